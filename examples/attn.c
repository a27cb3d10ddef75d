/* cc -O2 attn.c -lm */
/* Attention on arrays in NumPy's files, from the command line:

       attn q.npy k.npy v.npy --causal --score gaussian --out out.npy --weights w.npy --svg w.svg

   `attn --help` lists the options. Arrays are [B,H,S,D], without heads [B,S,D], of one sequence [S,D], in f16, f32 or
   f64 (which is rounded to f32 first). Results have as many axes as q; they are f16 where q is, else f32; lse is f32.
   An array that a call does without is written "-"; a result that goes to "-" goes to standard output. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include "npy.h"
#include "numbers.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#ifdef _WIN32
#include <fcntl.h>
#include <io.h>
#endif

#define FAIL(c, ...) (fprintf((c)->log, "attn: " __VA_ARGS__), fputc('\n', (c)->log), 0)
#define USAGE "usage: attn q.npy k.npy v.npy [options]; attn --help lists them\n"

/* ---- the options. Each sets a field of the call, most of them one of its descriptor. */

enum { SWITCH, NUMBER, SEED, CHOICE, WINDOW, TEXT, ARRAY, COUNTS, RESULT };
#define MAX_OPTIONS 40

typedef struct {
    attn_desc d; /* first */
    int axes;    /* of q */
    int rounded; /* numbers of f64 were, which is said once */
    int32_t explain, help, version;
    const char *svg, *sample;
    const char *given[MAX_OPTIONS]; /* what follows each option; NULL: the option is not there */
    void *held[2 * MAX_OPTIONS];    /* what is to be freed */
    int holds;
    int misread; /* a number of the command line was */
    FILE *log;
} call;

typedef struct {
    const char *name, *value; /* value NULL: nothing follows */
    int kind;
    size_t offset;              /* of the field in call */
    const char *axes;           /* of a RESULT; of an ARRAY that has heads where q has */
    const char *const *choices; /* of a CHOICE, NULL at the end */
    const char *help;
} option;

static const char *const scores[] = {
#define NAME(name, text, bound) #name,
    ATTN_SCORE_LIST(NAME) NULL
#undef NAME
};
static const char *const aligns[] = {"unset", "bottom-right", "positions", "top-left", NULL};
static const char *const empties[] = {"zero", "nan", "uniform", NULL};

#define AT(kind, field) kind, offsetof(call, field)
static const option options[] = {
    {"--score", "NAME", AT(CHOICE, d.score), NULL, scores, "how a query meets a key"},
    {"--scale", "X", AT(NUMBER, d.scale), NULL, NULL, "factor of the score (scaled-dot: 1/sqrt(D), others: 1)"},
    {"--sigma", "X", AT(NUMBER, d.sigma), NULL, NULL, "width of the scores of a distance (1)"},
    {"--bilinear", "FILE", AT(ARRAY, d.bilinear), NULL, NULL, "M [Dq,Dk] of the bilinear score"},
    {"--w-q", "FILE", AT(ARRAY, d.w_q), NULL, NULL, "W_q [h,Dq] of the additive score"},
    {"--w-k", "FILE", AT(ARRAY, d.w_k), NULL, NULL, "W_k [h,Dk]"},
    {"--w-v", "FILE", AT(ARRAY, d.w_v), NULL, NULL, "w_v [h]"},
    {"--hidden-bias", "FILE", AT(ARRAY, d.hidden_bias), NULL, NULL, "b [h]"},
    {"--given-scores", "FILE", AT(ARRAY, d.given_scores), "BHQS", NULL, "with --score given; then q and k are -"},
    {"--softcap", "C", AT(NUMBER, d.softcap), NULL, NULL, "a score s becomes C tanh(s/C)"},
    {"--bias", "FILE", AT(ARRAY, d.bias), "BHQS", NULL, "added to the scores, broadcast from the right"},
    {"--alibi", "FILE", AT(ARRAY, d.alibi), NULL, NULL, "slopes [H]"},
    {"--sink", "FILE", AT(ARRAY, d.sink), NULL, NULL, "one more logit of the softmax [H]"},
    {"--mask", "FILE", AT(ARRAY, d.mask), "BHQS", NULL, "bool, true: may attend; broadcast from the right"},
    {"--key-lengths", "N,..", AT(COUNTS, d.key_lengths), NULL, NULL, "valid keys of each entry; FILE: [B] or [B,Sq]"},
    {"--query-lengths", "N,..", AT(COUNTS, d.query_lengths), NULL, NULL, "valid queries of each entry; FILE: [B]"},
    {"--query-starts", "N,..", AT(COUNTS, d.query_starts), NULL, NULL, "where each entry's queries begin; FILE: [B]"},
    {"--key-starts", "N,..", AT(COUNTS, d.key_starts), NULL, NULL, "where each entry's keys begin; FILE: [B]"},
    {"--page-table", "FILE", AT(ARRAY, d.page_table), NULL, NULL, "[B,pages]; then k and v are pages [N,Hkv,P,D]"},
    {"--causal", NULL, AT(SWITCH, d.causal), NULL, NULL, "a query attends to the keys up to its position"},
    {"--align", "NAME", AT(CHOICE, d.align), NULL, aligns, "where the queries stand among the keys"},
    {"--positions", "N,..", AT(COUNTS, d.positions), NULL, NULL, "with --align positions; FILE: [B] or [B,Sq]"},
    {"--window", "L,R", AT(WINDOW, d.window), NULL, NULL, "L keys before the position, R after it; -1: all"},
    {"--empty", "NAME", AT(CHOICE, d.empty), NULL, empties, "the row of a query that may attend to no key"},
    {"--dropout", "P", AT(NUMBER, d.dropout), NULL, NULL, "drop weights with probability P"},
    {"--seed", "N", AT(SEED, d.seed), NULL, NULL, "of dropout"},
    {"--out", "FILE", AT(RESULT, d.out), "BHQV", NULL, "write the output [..,Sq,Dv]"},
    {"--weights", "FILE", AT(RESULT, d.weights), "BHQS", NULL, "write the weights [..,Sq,Sk]"},
    {"--scores", "FILE", AT(RESULT, d.scores), "BHQS", NULL, "write the raw scores [..,Sq,Sk]"},
    {"--lse", "FILE", AT(RESULT, d.lse), "BHQ", NULL, "write the log-sum-exp [..,Sq]"},
    {"--svg", "FILE", AT(TEXT, svg), NULL, NULL, "write a heatmap of the weights"},
    {"--explain", NULL, AT(SWITCH, explain), NULL, NULL, "say how the call would run, and compute nothing"},
    {"--sample", "FOLDER", AT(TEXT, sample), NULL, NULL, "write q.npy, k.npy and v.npy there and try them"},
    {"--version", NULL, AT(SWITCH, version), NULL, NULL, "the version of attn.h"},
    {"--help", NULL, AT(SWITCH, help), NULL, NULL, "this"},
};
enum { OPTIONS = sizeof options / sizeof *options };
typedef char options_fit[OPTIONS <= MAX_OPTIONS ? 1 : -1]; /* does not compile where they do not */

/* A name as it is written here: SCALED_DOT is scaled-dot. */
static int written(char c) { return c == '_' ? '-' : tolower((unsigned char)c); }

/* The short name of an option, or 0: -o, -h. */
static char letter_of(const option *o) {
    return o->offset == offsetof(call, d.out) ? 'o' : o->offset == offsetof(call, help) ? 'h' : 0;
}

/* How many letters have to be put in, left out or changed to make one name of the other. */
static int distance(const char *a, const char *b) {
    enum { LONGEST = 40 };
    int row[LONGEST + 1], length = (int)strlen(b);
    if (length > LONGEST) return LONGEST;
    for (int j = 0; j <= length; j++) row[j] = j;
    for (; *a; a++) {
        int before = row[0]++; /* of the row above, one to the left */
        for (int j = 1; j <= length; j++) {
            int best = before + (written(*a) != written(b[j - 1]));
            before = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[length];
}
/* Of two names the one that is more like a wrong one; neither (NULL) where both are unlike it. */
static const char *nearer(const char *wrong, const char *a, const char *b) {
    const int length = (int)strlen(wrong), most = length < 6 ? 2 : length / 3;
    const int starts = length > 3 && strncmp(wrong, b, (size_t)length) == 0; /* an abbreviation */
    if (a && distance(wrong, a) <= distance(wrong, b)) return a;
    return starts || distance(wrong, b) <= most ? b : a;
}

static int help(FILE *out) {
    char left[40];
    fputs("usage: attn q.npy k.npy v.npy [options]\n"
          "Attention on NumPy's files: [B,H,S,D], [B,S,D] or [S,D]. Where no result is asked for, the weights are\n"
          "drawn here. --option=value is --option value; a result for the file - goes to standard output. The\n"
          "comments of attn.h say more about each option. N,..: numbers, or a FILE of i32 or i64.\n\n",
          out);
    for (int i = 0; i < OPTIONS; i++) {
        const char letter[] = {'-', letter_of(&options[i]), ',', ' ', 0};
        snprintf(left, sizeof left, "%s%s %s", letter[1] ? letter : "", options[i].name,
                 options[i].value ? options[i].value : "");
        fprintf(out, "  %-20s %s", left, options[i].help);
        for (int n = 0; options[i].choices && options[i].choices[n]; n++) {
            fputs(n == 0 ? ":" : ",", out);
            if (n % 6 == 0 && options[i].choices == scores) fprintf(out, "\n%22s", "");
            fputc(' ', out);
            for (const char *s = options[i].choices[n]; *s; s++) fputc(written(*s), out);
        }
        fputc('\n', out);
    }
    return 1;
}

/* ---- arrays */

static void *hold(call *c, void *block) { return c->held[c->holds++] = block; }

static void insert_axis(attn_view *v, int at) {
    for (int axis = v->rank++; axis > at; axis--) {
        v->size[axis] = v->size[axis - 1];
        v->stride[axis] = v->stride[axis - 1];
    }
    v->size[at] = 1;
    v->stride[at] = 0;
}

/* A file as a view: numbers of f64 are rounded to f32. */
static int read_array(call *c, const char *path, attn_view *v) {
    const char *wrong = attn_npy_read(path, v);
    attn_out rounded;
    float *numbers;
    if (wrong) return FAIL(c, "%s: %s", path, wrong);
    hold(c, (void *)v->data);
    if (v->type != ATTN_F64) return 1;
    if (!c->rounded++)
        fprintf(c->log, "attn: %s holds numbers of f64: they are rounded, all is computed in f32\n", path);
    numbers = (float *)hold(c, malloc((size_t)attn_npy_count(v) * sizeof(float) + 1));
    if (!numbers) return FAIL(c, "%s: no memory for it", path);
    rounded = attn_out_f32(numbers, v->rank, v->size[0], v->size[1], v->size[2], v->size[3]);
    attn_convert(*v, rounded, NULL);
    *v = attn_view_of(rounded);
    return 1;
}

/* An array that has a batch and heads where q has them gets what it lacks with q. One that is broadcast from the right
   may have fewer axes still. */
static void with_heads(const call *c, attn_view *v) {
    if (c->axes == 2 && v->rank == 2) insert_axis(v, 0);
    if (c->axes <= 3 && v->rank == 3) insert_axis(v, 1);
}

static int64_t size_of(const call *c, char axis) {
    const attn_desc *d = &c->d;
    const attn_view *rows = d->q.rank ? &d->q : &d->given_scores;
    switch (axis) {
    case 'B': return rows->size[0];
    case 'H': return rows->size[1];
    case 'Q': return rows->size[2];
    case 'S':
        return !d->k.rank ? d->given_scores.size[3]
                          : d->k.size[2] * (d->page_table.rank == 2 ? d->page_table.size[1] : 1);
    default: return d->v.size[3];
    }
}

static int make_result(call *c, attn_out *o, const char *axes) {
    const attn_view *q = c->d.q.rank ? &c->d.q : &c->d.given_scores;
    const attn_type type = q->type == ATTN_F16 && axes[3] ? ATTN_F16 : ATTN_F32;
    int64_t size[4] = {0}, count = 1;
    for (int i = 0; axes[i]; i++) {
        size[i] = size_of(c, axes[i]);
        if (size[i] > 0 && count > INT64_MAX / 16 / size[i]) return FAIL(c, "a result is too large");
        count *= size[i];
    }
    if (!hold(c, malloc((size_t)count * 4 + 1))) return FAIL(c, "no memory for a result");
    *o = attn_out_typed(type, c->held[c->holds - 1], (int)strlen(axes), size[0], size[1], size[2], size[3]);
    return 1;
}

static int is_output(const char *path) { return strcmp(path, "-") == 0; }
/* What a file could not take, and why. */
static int lost(call *c, const char *path) {
    return FAIL(c, "%s: it cannot be written%s%s", is_output(path) ? "standard output" : path, errno ? ": " : "",
                errno ? strerror(errno) : "");
}

/* With as many axes as q has. */
static int write_result(call *c, attn_out o, const char *path, FILE *out) {
    attn_view v = attn_view_of(o);
    for (int n = 4 - c->axes; n > 0; n--) { /* first heads, then the batch */
        const int at = n == 4 - c->axes;
        for (int axis = at; axis + 1 < v.rank; axis++) {
            v.size[axis] = v.size[axis + 1];
            v.stride[axis] = v.stride[axis + 1];
        }
        v.rank--;
    }
    errno = 0;
    if (!is_output(path)) return attn_npy_write(path, v) ? lost(c, path) : 1;
#ifdef _WIN32
    _setmode(_fileno(out), _O_BINARY);
#endif
    return attn_npy_put(out, v) || fflush(out) ? lost(c, path) : 1;
}

/* ---- the command line */

static int choose(call *c, const option *o, const char *name, int32_t *field) {
    const char *near = NULL;
    char like[40] = "";
    for (int n = 0; o->choices[n]; n++) {
        if (distance(name, o->choices[n]) == 0) return *field = n, 1;
        near = nearer(name, near, o->choices[n]);
    }
    for (size_t i = 0; near && near[i] && i + 1 < sizeof like; i++) like[i] = (char)written(near[i]);
    return FAIL(c, "%s: there is no %s%s%s%s attn --help lists the names", o->name, name, near ? ": is " : ";", like,
                near ? " meant?" : "");
}

/* So many whole numbers with commas between them, or all there are (count 0): how many, 0 where one is none. */
static int64_t read_list(call *c, const option *o, const char *value, int count, int64_t least, int64_t *numbers) {
    char text[24];
    int64_t n = 0;
    for (const char *s = value;; s++) {
        const size_t length = strcspn(s, ",");
        if (length >= sizeof text) return FAIL(c, "%s: a number of more than 23 characters", o->name);
        snprintf(text, sizeof text, "%.*s", (int)length, s);
        if (count && n == count) return 0;
        if (!take_whole(c->log, "attn", o->name, text, least, INT64_MAX, &numbers[n++])) return 0;
        if (!*(s += length)) return n;
    }
}

/* Numbers of the command line, [B], or a file of them. */
static int read_counts(call *c, const option *o, const char *value, attn_view *v) {
    const size_t length = strlen(value);
    int64_t *numbers, count;
    if (!isdigit((unsigned char)*value) || strspn(value, "0123456789,") != length) return read_array(c, value, v);
    numbers = (int64_t *)hold(c, malloc(length * sizeof *numbers));
    if (!numbers) return FAIL(c, "no memory for %s", o->name);
    count = read_list(c, o, value, 0, 0, numbers);
    *v = attn_view_i64(numbers, 1, count, 0, 0, 0);
    return count > 0 || !(c->misread = 1);
}

/* What follows an option goes into its field. */
static int set_field(call *c, const option *o, const char *value) {
    void *field = (char *)c + o->offset;
    int64_t sides[2];
    switch (o->kind) {
    case SWITCH: return *(int32_t *)field = 1;
    case TEXT: return *(const char **)field = value, 1;
    case CHOICE: return choose(c, o, value, (int32_t *)field);
    case NUMBER:
        if (o->offset == offsetof(call, d.scale)) c->d.scale_set = 1;
        return take_real(c->log, "attn", o->name, value, -FLT_MAX, FLT_MAX, (float *)field);
    case SEED: return take_seed(c->log, "attn", o->name, value, (uint64_t *)field);
    case WINDOW:
        if (read_list(c, o, value, 2, -1, sides) != 2)
            return FAIL(c, "--window: %s is not two whole numbers with a comma", value);
        c->d.window = 1;
        c->d.window_left = sides[0];
        c->d.window_right = sides[1];
        return 1;
    case ARRAY: return read_array(c, value, (attn_view *)field);
    case COUNTS: return read_counts(c, o, value, (attn_view *)field);
    default: return 1; /* results come when all sizes are known */
    }
}
static int is_array(const option *o) { return o->kind == ARRAY || o->kind == COUNTS; }

/* The option of an argument whose first letters, so many, are its name. */
static int find_option(call *c, const char *argument, size_t length) {
    const char *near = NULL;
    char name[80];
    snprintf(name, sizeof name, "%.*s", (int)length, argument);
    for (int n = 0; n < OPTIONS; n++) {
        const option *o = &options[n];
        if (strcmp(o->name, name) == 0 || (length == 2 && name[1] == letter_of(o))) return n;
        near = nearer(name, near, o->name);
    }
    (void)FAIL(c, "there is no option %s%s%s%s", name, near ? ": is " : "", near ? near : "", near ? " meant?" : "");
    return OPTIONS;
}
static int is_written(const option *o) { return o->kind == RESULT || o->offset == offsetof(call, svg); }
static int same_file(const char *a, const char *b) {
    while (strncmp(a, "./", 2) == 0) a += 2;
    while (strncmp(b, "./", 2) == 0) b += 2;
    return strcmp(a, b) == 0;
}

/* Sorts the command line into given options and three files. */
static int sort(call *c, int argc, char **argv, const char *files[3]) {
    int count = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
        const option *o;
        int n;
        if (argv[i][0] != '-' || !argv[i][1]) {
            if (count == 3) return FAIL(c, "%s is one file too many: q, k and v are three", argv[i]);
            files[count++] = argv[i];
            continue;
        }
        n = find_option(c, argv[i], value ? (size_t)(value - argv[i]) : strlen(argv[i]));
        if (n == OPTIONS) return 0;
        o = &options[n];
        if (value && !o->value) return FAIL(c, "%s takes no value", o->name);
        if (o->value && !value && ++i == argc) return FAIL(c, "%s: %s is missing", o->name, o->value);
        c->given[n] = value ? value + 1 : argv[i];
        if (!is_array(o) && !set_field(c, o, c->given[n])) return 0;
        for (int other = 0; is_written(o) && other < OPTIONS; other++)
            if (other != n && c->given[other] && is_written(&options[other]) && same_file(c->given[other], c->given[n]))
                return FAIL(c, "%s and %s would both be written to %s", options[other].name, o->name, c->given[n]);
    }
    return count == 3 || c->help || c->version || c->sample ? 1 : FAIL(c, "three files are needed, for q, k and v");
}

/* The arrays and options of the command line, into the descriptor. */
static int fill(call *c, const char *const files[3]) {
    attn_view *const views[] = {&c->d.q, &c->d.k, &c->d.v};
    for (int i = 0; i < 3; i++) {
        if (strcmp(files[i], "-") == 0) continue;
        if (!read_array(c, files[i], views[i])) return 0;
    }
    for (int i = 0; i < OPTIONS; i++)
        if (c->given[i] && is_array(&options[i]) && !set_field(c, &options[i], c->given[i])) return 0;
    c->axes = c->d.q.rank ? c->d.q.rank : c->d.given_scores.rank;
    for (int i = 0; i < 3; i++) with_heads(c, views[i]);
    for (int i = 0; i < OPTIONS; i++) {
        void *field = (char *)c + options[i].offset;
        if (!c->given[i] || !options[i].axes) continue;
        if (is_array(&options[i])) with_heads(c, (attn_view *)field);
        else if (!make_result(c, (attn_out *)field, options[i].axes)) return 0;
    }
    if (!c->d.weights.rank && (c->svg || !(c->d.out.rank || c->d.scores.rank || c->d.lse.rank)))
        return make_result(c, &c->d.weights, "BHQS");
    return 1;
}

/* ---- what comes out */

static int put(void *file, const char *s, size_t n) { return fwrite(s, 1, n, (FILE *)file) != n; }

/* The weights as a picture; what a query may not attend to is hatched. */
static attn_status draw(call *c, FILE *out, attn_error *err) {
    const int to_file = c->svg && !is_output(c->svg);
    const int64_t *n = c->d.weights.size;
    uint8_t *mask = (uint8_t *)hold(c, malloc((size_t)(n[0] * n[1] * n[2] * n[3]) + 1));
    attn_heatmap map = {0};
    attn_writer writer;
    attn_status status;
    FILE *file;
    if (!mask) return ATTN_ERR_WRITE; /* errno says why */
    status = attn_mask(attn_out_u8(mask, 4, n[0], n[1], n[2], n[3]), &c->d, err);
    if (status != ATTN_OK) return status;
    file = to_file ? fopen(c->svg, "wb") : out;
    if (!file) return ATTN_ERR_WRITE;
    writer.write = put;
    writer.user = file;
    map.values = attn_view_of(c->d.weights);
    if (c->d.empty != ATTN_EMPTY_UNIFORM) map.mask = attn_view_u8(mask, 4, n[0], n[1], n[2], n[3]);
    map.x_label = "Keys";
    map.y_label = "Queries";
    map.terminal = ATTN_TERMINAL_ASCII;
    status = c->svg ? attn_heatmap_svg(&map, writer, err) : attn_heatmap_ansi(&map, writer, err);
    return (to_file ? fclose(file) : fflush(file)) && status == ATTN_OK ? ATTN_ERR_WRITE : status;
}

/* The option that sets a field of attn_desc, or NULL. */
static const option *option_of(const char *field, size_t length) {
    if (strncmp(field, "window_", 7) == 0) length = strlen("window"); /* two fields, one option */
    for (int n = 0; n < OPTIONS; n++) {
        size_t i = 0;
        while (i < length && written(field[i]) == options[n].name[2 + i]) i++;
        if (i == length && !options[n].name[2 + i]) return &options[n];
    }
    return NULL;
}
/* What attn.h says, in the words of this command: --key-lengths for key_lengths, bottom-right or --align bottom-right
   for ATTN_ALIGN_BOTTOM_RIGHT, i64 for ATTN_I64. */
static int refuse(call *c, const attn_error *err) {
    char text[1024], *s = text;
    const size_t field = strcspn(err->field, ".[");
    const option *of = option_of(err->field, field);
    if (of && (of->kind == NUMBER || of->kind == WINDOW)) c->misread = 1;
    attn_error_string(err, text, sizeof text);
    fprintf(c->log, "attn: %s", of ? of->name : "");
    if (of) s += field;
    while (*s) {
        if (strncmp(s, "ATTN_", 5) != 0) {
            fputc(*s++, c->log);
            continue;
        }
        s += 5;
        for (int n = 0; n < OPTIONS; n++) {
            const size_t length = options[n].kind == CHOICE ? strcspn(s, "_") : 0;
            if (!length || option_of(s, length) != &options[n]) continue;
            if (&options[n] != of) fprintf(c->log, "%s ", options[n].name);
            s += length + 1;
        }
        while (isupper((unsigned char)*s) || isdigit((unsigned char)*s) || *s == '_') fputc(written(*s++), c->log);
    }
    fputs(c->axes < 4 && strstr(text, ".size[") ? " (axes are counted as in [B,H,S,D])\n" : "\n", c->log);
    return 0;
}

static int attend(call *c, const char *const files[3], FILE *out) {
    char text[1024];
    attn_error err = {0};
    attn_status status;
    int results = 0;
    if (!fill(c, files)) return 0;
    if (c->explain) {
        attn_explain(&c->d, text, sizeof text);
        return fprintf(out, "%s\n", text) > 0;
    }
    if (attn_forward(&c->d, &err) != ATTN_OK) return refuse(c, &err);
    for (int i = 0; i < OPTIONS; i++) {
        if (!c->given[i] || options[i].kind != RESULT) continue;
        if (!write_result(c, *(attn_out *)((char *)c + options[i].offset), c->given[i], out)) return 0;
        results++;
    }
    if (results && !c->svg) return 1;
    errno = 0;
    status = draw(c, out, &err);
    return status == ATTN_OK ? 1 : status == ATTN_ERR_WRITE ? lost(c, c->svg ? c->svg : "-") : refuse(c, &err);
}

/* The exit status: 0, 1 = something failed, 2 = a command line that is not understood. */
static int command(int argc, char **argv, FILE *out, FILE *log);

/* Writes three files, calls the command with them and compares what it wrote with the formula in double. */
static int sample(const call *c, FILE *out) {
    enum { QUERIES = 5, KEYS = 7, SIZE = 4 };
    float numbers[3][KEYS * SIZE];
    char path[4][512];
    char *argv[] = {"attn", path[0], path[1], path[2], "--causal", "--weights", path[3], "--align", "bottom-right"};
    attn_view weights;
    const char *wrong;
    double error = 0;
    for (int n = 0; n < 4; n++) {
        snprintf(path[n], sizeof path[n], "%s/%c.npy", c->sample, "qkvw"[n]);
        for (int i = 0; n < 3 && i < KEYS * SIZE; i++) numbers[n][i] = (float)sin(7.0 * n + i * (n + 1.0)) * 2;
        if (n < 3 && (wrong = attn_npy_write(path[n], attn_view_f32(numbers[n], 2, n ? KEYS : QUERIES, SIZE, 0, 0))))
            return FAIL(c, "%s: %s", path[n], wrong);
    }
    if (command(sizeof argv / sizeof *argv, argv, out, c->log)) return 0;
    if ((wrong = attn_npy_read(path[3], &weights))) return FAIL(c, "%s: %s", path[3], wrong);
    for (int i = 0; i < QUERIES; i++) {
        double e[KEYS] = {0}, sum = 0;
        for (int j = 0; j <= i + KEYS - QUERIES; j++) {
            double dot = 0;
            for (int s = 0; s < SIZE; s++) dot += (double)numbers[0][i * SIZE + s] * numbers[1][j * SIZE + s];
            sum += e[j] = exp(dot / 2); /* 2 is sqrt(SIZE) */
        }
        for (int j = 0; j < KEYS; j++)
            error = fmax(error, fabs(((const float *)weights.data)[i * KEYS + j] - e[j] / sum));
    }
    free((void *)weights.data);
    fprintf(out, "%s, %s, %s: 5 queries, 7 keys and values of 4 numbers; %s: their weights, off by %.1e\n", path[0],
            path[1], path[2], path[3], error);
    return error <= 1e-5 ? 1 : FAIL(c, "WRONG: not what the formula says");
}

static int command(int argc, char **argv, FILE *out, FILE *log) {
    call c = {.axes = 4, .log = log};
    const char *files[3];
    int ok;
    if (!sort(&c, argc, argv, files)) {
        fputs(USAGE, log);
        return 2;
    }
    ok = c.help      ? help(out)
         : c.version ? fprintf(out, "attn %d.%d.%d\n", attn_version() / 10000, attn_version() / 100 % 100,
                               attn_version() % 100) > 0
         : c.sample  ? sample(&c, out)
                     : attend(&c, files, out);
    if (ok && (fflush(out) || ferror(out))) ok = lost(&c, "-");
    while (c.holds > 0) free(c.held[--c.holds]);
    return ok ? 0 : 1 + c.misread;
}

int main(int argc, char **argv) { return command(argc, argv, stdout, stderr); }
