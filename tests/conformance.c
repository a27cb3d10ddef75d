/* conformance.c - holds attn.h against numbers that others have stated.  build/conformance FILE

   The file is text, one case after another:
       case NAME
       source TEXT, note TEXT            where the numbers come from; not interpreted
       score WORD                        dot bilinear additive gaussian boxcar epanechnikov triangular constant
                                         cosine concat given_scores mask
       option NAME WORD                  dtype layout causal align empty
       scalar NAME NUMBER                scale softcap sigma heads concat_score_weight window_left ...
       input NAME RANK DIM...            then the numbers, row-major; nan, inf and -inf occur
       expect NAME RANK DIM...           the same
       tolerance RTOL ATOL               |x - want| <= ATOL + RTOL*|want|; nan equals nan, an infinity itself
       end
   dtype is the type of q, k, v and the output, of what comes in for the output and of dq, dk and dv. A number rounded
   to it may be off by half a unit of its last place more than the tolerance says. f64 is no type of these arrays.
   Every case runs on every instruction set of this machine. What a case composes from the library is composed
   here: concat, given_scores, query_mask, value_mask, a block of heads. Where d_output, d_weights or d_lse is
   given, the gradients that are expected (dq dk dv dbias dw_q ...) are those of the sum of each times its result.
   The last line is "N passed, N failed" (", N skipped" when something was, the reasons above it); exit 1 when a
   case failed or none ran. */
#include "../attn.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the vocabulary */
static const char *const scores[] = {"dot",          "bilinear",   "additive", "gaussian", "boxcar",
                                     "epanechnikov", "triangular", "constant", "cosine",   "concat",
                                     "given_scores", "mask",       0};
static const char *const options[] = {"dtype", "layout", "causal", "align", "empty", 0};
static const char *const scalars[] = {"scale",       "softcap",      "sigma", "heads", "concat_score_weight",
                                      "window_left", "window_right", "Tq",    "Tv",    0};
static const char *const inputs[] = {
    "q",        "k",         "v",         "w_q",        "w_k",        "w_v",           "b",
    "m",        "positions", "valid_len", "mask",       "bias",       "scores",        "sink",
    "alibi",    "W_query",   "W_key",     "W_value",    "W_result",   "query_lengths", "shape",
    "d_output", "d_weights", "d_lse",     "query_mask", "value_mask", "scores_mask",   0};
static const char *const expects[] = {"output", "lse", "scores", "scores_softcap", "scores_bias", "weights", "mask",
                                      "dq",     "dk",  "dv",     "dbias",          "dw_q",        "dw_k",    "dw_v",
                                      "db",     "dm",  "dsigma", "dscale",         "dsink",       "dalibi",  0};

static int find_word(const char *const *list, const char *word) { /* its index, or -1 */
    for (int i = 0; list[i]; i++)
        if (!strcmp(list[i], word)) return i;
    return -1;
}

/* ---- a case as it stands in the file */
typedef enum item_kind { OPTION, SCALAR, INPUT, EXPECT } item_kind;

typedef struct array {
    int rank;
    int64_t size[4], count;
    double *x;
} array;

typedef struct item {
    item_kind kind;
    char name[24], word[24]; /* word: of an option */
    double number;           /* of a scalar */
    array a;                 /* of an input or an expectation */
} item;

enum { MOST_ITEMS = 64 };
typedef struct test_case {
    char name[200], score[24];
    item items[MOST_ITEMS];
    int item_count, has_tolerance;
    double rtol, atol;
} test_case;

static const item *find_item(const test_case *c, item_kind kind, const char *name) {
    for (int i = 0; i < c->item_count; i++)
        if (c->items[i].kind == kind && !strcmp(c->items[i].name, name)) return &c->items[i];
    return 0;
}
static const array *input_of(const test_case *c, const char *name) {
    const item *it = find_item(c, INPUT, name);
    return it ? &it->a : 0;
}
static const array *expected(const test_case *c, const char *name) {
    const item *it = find_item(c, EXPECT, name);
    return it ? &it->a : 0;
}
static int has_scalar(const test_case *c, const char *name) { return find_item(c, SCALAR, name) != 0; }
static double scalar_of(const test_case *c, const char *name, double otherwise) {
    const item *it = find_item(c, SCALAR, name);
    return it ? it->number : otherwise;
}
static int option_is(const test_case *c, const char *name, const char *word) {
    const item *it = find_item(c, OPTION, name);
    return it && !strcmp(it->word, word);
}

/* ---- memory of one case, freed together */
typedef union piece {
    union piece *next;
    double align;
} piece;
static piece *pieces;

static void *take(size_t bytes) {
    piece *p = (piece *)malloc(sizeof *p + bytes + 1);
    if (!p) {
        printf("out of memory\n");
        exit(1);
    }
    p->next = pieces;
    pieces = p;
    return p + 1;
}
static void free_all(void) {
    while (pieces) {
        piece *next = pieces->next;
        free(pieces);
        pieces = next;
    }
}

/* ---- reading. A problem is printed once with its line; the case it is in has failed. */
typedef struct reader {
    const char *path, *at, *end;
    int line, bad;
} reader;

static int malformed(reader *r, const char *format, ...) {
    va_list args;
    if (!r->bad) {
        printf("%s:%d: ", r->path, r->line);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
    }
    r->bad = 1;
    return 0;
}

static int is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static void skip_space(reader *r, int lines_too) {
    while (r->at < r->end && is_space(*r->at) && (lines_too || *r->at != '\n')) {
        if (*r->at == '\n') r->line++;
        r->at++;
    }
}

/* The next word, on this line or (lines_too) on a later one; 0 when there is none or it is too long. */
static int read_word(reader *r, char *word, size_t size, int lines_too) {
    size_t n = 0;
    skip_space(r, lines_too);
    while (r->at < r->end && !is_space(*r->at)) {
        if (n + 1 == size) return malformed(r, "a word too long");
        word[n++] = *r->at++;
    }
    word[n] = 0;
    return n > 0;
}

static int read_number(reader *r, double *x, int lines_too) {
    char word[64], *end;
    if (!read_word(r, word, sizeof word, lines_too)) return malformed(r, "a number is missing");
    *x = strtod(word, &end);
    return *end ? malformed(r, "\"%s\" is no number", word) : 1;
}

static int read_integer(reader *r, int64_t least, int64_t most, int64_t *n, const char *what) {
    double x;
    if (!read_number(r, &x, 0)) return 0;
    if (!(x >= (double)least && x <= (double)most && x == floor(x)))
        return malformed(r, "%s must be a whole number from %.0f to %.0f", what, (double)least, (double)most);
    *n = (int64_t)x;
    return 1;
}

static void read_line(reader *r, char *text, size_t size) { /* the rest of it, cut to size */
    size_t n = 0;
    skip_space(r, 0);
    for (; r->at < r->end && *r->at != '\n'; r->at++)
        if (n + 1 < size && *r->at != '\r') text[n++] = *r->at;
    text[n] = 0;
}

static int end_line(reader *r) {
    skip_space(r, 0);
    return r->at == r->end || *r->at == '\n' ? 1 : malformed(r, "more on the line than belongs there");
}

static int read_name(reader *r, test_case *c, item_kind kind, const char *const *known, const char *what,
                     item **result) {
    item *it = &c->items[c->item_count];
    if (c->item_count == MOST_ITEMS) return malformed(r, "more than %d lines in a case", (int)MOST_ITEMS);
    memset(it, 0, sizeof *it);
    it->kind = kind;
    if (!read_word(r, it->name, sizeof it->name, 0)) return malformed(r, "the %s has no name", what);
    if (find_word(known, it->name) < 0) return malformed(r, "unknown %s \"%s\"", what, it->name);
    if (find_item(c, kind, it->name)) return malformed(r, "%s \"%s\" is given twice", what, it->name);
    c->item_count++;
    *result = it;
    return 1;
}

static int read_array(reader *r, array *a) {
    int64_t rank, room = r->end - r->at; /* a number takes a byte at least */
    if (!read_integer(r, 0, 4, &rank, "a rank")) return 0;
    a->rank = (int)rank;
    a->count = 1;
    for (int i = 0; i < a->rank; i++) {
        if (!read_integer(r, 0, (int64_t)1 << 40, &a->size[i], "a size")) return 0;
        a->count = a->size[i] && a->count > room / a->size[i] ? room + 1 : a->count * a->size[i];
    }
    for (int i = 0; i < a->rank; i++)
        if (a->size[i] == 0) a->count = 0;
    if (!end_line(r)) return 0;
    if (a->count > room) return malformed(r, "fewer numbers in the file than the sizes say");
    a->x = (double *)take((size_t)a->count * sizeof *a->x);
    for (int64_t i = 0; i < a->count; i++)
        if (!read_number(r, &a->x[i], 1)) return 0;
    return end_line(r);
}

static int read_statement(reader *r, test_case *c, const char *word) {
    item *it;
    char rest[8];
    if (!strcmp(word, "source") || !strcmp(word, "note")) {
        read_line(r, rest, sizeof rest);
        return 1;
    }
    if (!strcmp(word, "score")) {
        if (c->score[0]) return malformed(r, "a second score");
        if (!read_word(r, c->score, sizeof c->score, 0)) return malformed(r, "the score is missing");
        if (find_word(scores, c->score) < 0) return malformed(r, "unknown score \"%s\"", c->score);
        return end_line(r);
    }
    if (!strcmp(word, "option")) {
        if (!read_name(r, c, OPTION, options, "option", &it)) return 0;
        if (!read_word(r, it->word, sizeof it->word, 0)) return malformed(r, "the option's word is missing");
        return end_line(r);
    }
    if (!strcmp(word, "scalar"))
        return read_name(r, c, SCALAR, scalars, "scalar", &it) && read_number(r, &it->number, 0) && end_line(r);
    if (!strcmp(word, "input")) return read_name(r, c, INPUT, inputs, "input", &it) && read_array(r, &it->a);
    if (!strcmp(word, "expect")) return read_name(r, c, EXPECT, expects, "expectation", &it) && read_array(r, &it->a);
    if (!strcmp(word, "tolerance")) {
        c->has_tolerance = 1;
        return read_number(r, &c->rtol, 0) && read_number(r, &c->atol, 0) && end_line(r);
    }
    if (!strcmp(word, "case")) {
        r->at -= strlen(word); /* to be read again */
        return malformed(r, "the case \"%s\" has no end", c->name);
    }
    return malformed(r, "unknown word \"%s\"", word);
}

/* From the word after "case" to "end". 1 when all of it was understood. */
static int read_case(reader *r, test_case *c) {
    char word[24];
    memset(c, 0, sizeof *c);
    read_line(r, c->name, sizeof c->name);
    if (!c->name[0]) return malformed(r, "the case has no name");
    while (read_word(r, word, sizeof word, 1)) {
        if (!strcmp(word, "end")) {
            if (!c->score[0]) return malformed(r, "the case \"%s\" has no score", c->name);
            if (!c->has_tolerance) return malformed(r, "the case \"%s\" has no tolerance", c->name);
            return end_line(r);
        }
        if (!read_statement(r, c, word)) return 0;
    }
    return malformed(r, "the file ends within the case \"%s\"", c->name);
}

/* After a problem: to the next line that begins a case. */
static void recover(reader *r) {
    r->bad = 0;
    for (skip_space(r, 1); r->at < r->end; skip_space(r, 1)) {
        if (r->end - r->at > 4 && !strncmp(r->at, "case", 4) && is_space(r->at[4])) return;
        while (r->at < r->end && *r->at != '\n') r->at++;
    }
}

/* ---- from a case to descriptors. What does not fit together fails the case with a sentence. */
typedef struct problem {
    const test_case *c;
    attn_isa isa;
    int rank;         /* 4: with a head axis, 3: without */
    int32_t type;     /* of q, k, v and output */
    int bthd;         /* q, k, v and output are stored [B,S,H,D] */
    int64_t shape[4]; /* B, H, Sq, Sk */
    char why[300];    /* it failed */
} problem;

static int fail(problem *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->why, sizeof p->why, format, args);
    va_end(args);
    return 0;
}

static float *floats_of(const array *a) {
    float *x = (float *)take((size_t)a->count * sizeof *x);
    for (int64_t i = 0; i < a->count; i++) x[i] = (float)a->x[i];
    return x;
}

/* An input as it is; an empty view when the case has none of that name. */
static attn_view view_of(const test_case *c, const char *name) {
    const array *a = input_of(c, name);
    attn_view none = {0, {0, 0, 0, 0}, {0, 0, 0, 0}, 0, 0};
    if (!a) return none;
    return attn_view_f32(floats_of(a), a->rank, a->size[0], a->size[1], a->size[2], a->size[3]);
}

/* Memory for as many numbers of the problem's type as a view of floats has. */
static attn_out room_like(const problem *p, const attn_view *v) {
    size_t bytes = p->type == ATTN_F32 ? 4 : 2;
    attn_out o;
    for (int i = 0; i < v->rank; i++) bytes *= (size_t)v->size[i];
    memcpy(&o, v, sizeof o);
    o.data = memset(take(bytes), 0x5B, bytes);
    o.type = p->type;
    return o;
}
/* A dense view of floats, stored in the problem's type. */
static attn_view stored(const problem *p, attn_view v) {
    attn_out o;
    if (!v.rank || p->type == ATTN_F32) return v;
    o = room_like(p, &v);
    attn_convert(v, o, 0);
    return attn_view_of(o);
}

/* q, k or v of a problem as [B,H,S,D] */
static attn_view sequence_of(const problem *p, const char *name) {
    const array *a = input_of(p->c, name);
    attn_view v = stored(p, view_of(p->c, name));
    if (!a || a->rank != p->rank) return v; /* attn_forward refuses a wrong rank */
    if (a->rank == 3) return attn_view_typed((attn_type)p->type, v.data, 4, a->size[0], 1, a->size[1], a->size[2]);
    return p->bthd ? attn_view_swap(v, 1, 2) : v;
}

/* What broadcasts against the scores: in a problem without heads a third axis from the right is the batch. */
static attn_view against_scores(const problem *p, attn_view v) {
    if (p->rank == 4 || v.rank != 3) return v;
    v.rank = 4;
    v.size[3] = v.size[2], v.stride[3] = v.stride[2];
    v.size[2] = v.size[1], v.stride[2] = v.stride[1];
    v.size[1] = 1, v.stride[1] = 0;
    return v;
}

static int is_whole(double x) { return fabs(x) <= 0x1p53 && x == floor(x); }

/* The whole numbers of an input: lengths and positions. */
static int integers_of(problem *p, const char *name, attn_view *view) {
    const array *a = input_of(p->c, name);
    if (!a) return 1;
    int64_t *x = (int64_t *)take((size_t)a->count * sizeof *x);
    for (int64_t i = 0; i < a->count; i++) {
        if (!is_whole(a->x[i])) return fail(p, "%s: %g is no whole number", name, a->x[i]);
        x[i] = (int64_t)a->x[i];
    }
    *view = attn_view_i64(x, a->rank, a->size[0], a->size[1], a->size[2], a->size[3]);
    return 1;
}

static attn_view mask_view(const problem *p, const array *a) {
    uint8_t *x = (uint8_t *)take((size_t)a->count);
    for (int64_t i = 0; i < a->count; i++) x[i] = a->x[i] != 0;
    return against_scores(p, attn_view_u8(x, a->rank, a->size[0], a->size[1], a->size[2], a->size[3]));
}

static int mask_at(const attn_view *m, const int64_t index[4]) {
    int64_t offset = 0;
    for (int axis = 0; axis < m->rank; axis++)
        if (m->size[axis] != 1) offset += index[axis + 4 - m->rank] * m->stride[axis];
    return ((const uint8_t *)m->data)[offset];
}

static int broadcasts(const problem *p, const attn_view *m) {
    for (int axis = 0; axis < m->rank; axis++)
        if (m->size[axis] != 1 && m->size[axis] != p->shape[axis + 4 - m->rank]) return 0;
    return 1;
}

/* Both masks, element by element in full size. */
static attn_view both_masks(const problem *p, const attn_view *a, const attn_view *b) {
    const int64_t *n = p->shape;
    uint8_t *x = (uint8_t *)take((size_t)(n[0] * n[1] * n[2] * n[3])), *next = x;
    int64_t at[4];
    for (at[0] = 0; at[0] < n[0]; at[0]++)
        for (at[1] = 0; at[1] < n[1]; at[1]++)
            for (at[2] = 0; at[2] < n[2]; at[2]++)
                for (at[3] = 0; at[3] < n[3]; at[3]++) *next++ = (uint8_t)(mask_at(a, at) && mask_at(b, at));
    return attn_view_u8(x, 4, n[0], n[1], n[2], n[3]);
}

/* mask, scores_mask and value_mask [B,Sk] are one field of the descriptor. */
static int set_mask(problem *p, attn_desc *d) {
    static const char *const names[] = {"mask", "scores_mask", "value_mask"};
    for (int i = 0; i < 3; i++) {
        const array *a = input_of(p->c, names[i]);
        attn_view m;
        if (!a) continue;
        m = mask_view(p, a);
        if (i == 2 && a->rank != 2) return fail(p, "value_mask must have rank 2, has %d", a->rank);
        if (i == 2) m = attn_view_u8((const uint8_t *)m.data, 4, a->size[0], 1, 1, a->size[1]);
        if (!d->mask.rank) {
            d->mask = m;
            continue;
        }
        if (!broadcasts(p, &m) || !broadcasts(p, &d->mask)) return fail(p, "%s does not broadcast", names[i]);
        d->mask = both_masks(p, &d->mask, &m);
    }
    return 1;
}

static float *identity(int64_t n, double scale) {
    float *x = (float *)take((size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n * n; i++) x[i] = i % (n + 1) ? 0.0f : (float)scale;
    return x;
}

/* Keras' concat: w sum tanh(scale (q + k)) is additive attention with two multiples of the identity. */
static int set_concat(problem *p, attn_desc *d, int64_t width) {
    const float *both = identity(width, scalar_of(p->c, "scale", 1));
    float *w = (float *)take((size_t)width * sizeof *w);
    for (int64_t i = 0; i < width; i++) w[i] = (float)scalar_of(p->c, "concat_score_weight", 1);
    d->score = ATTN_SCORE_ADDITIVE;
    d->w_q = d->w_k = attn_view_f32(both, 2, width, width, 0, 0);
    d->w_v = attn_view_f32(w, 1, width, 0, 0, 0);
    d->scale_set = 0;
    d->scale = 0;
    return 1;
}

static int set_score(problem *p, attn_desc *d, int64_t width) {
    static const int32_t score[] = {ATTN_SCORE_SCALED_DOT, ATTN_SCORE_BILINEAR, ATTN_SCORE_ADDITIVE,
                                    ATTN_SCORE_GAUSSIAN,   ATTN_SCORE_BOXCAR,   ATTN_SCORE_EPANECHNIKOV,
                                    ATTN_SCORE_TRIANGULAR, ATTN_SCORE_CONSTANT, ATTN_SCORE_COSINE,
                                    ATTN_SCORE_ADDITIVE,   ATTN_SCORE_GIVEN,    ATTN_SCORE_CONSTANT};
    d->score = score[find_word(scores, p->c->score)];
    d->scale_set = has_scalar(p->c, "scale");
    d->scale = (float)scalar_of(p->c, "scale", 0);
    if (d->score != ATTN_SCORE_CONSTANT) d->sigma = (float)scalar_of(p->c, "sigma", 0); /* no width changes it */
    d->bilinear = view_of(p->c, "m");
    d->w_q = view_of(p->c, "w_q");
    d->w_k = view_of(p->c, "w_k");
    d->w_v = view_of(p->c, "w_v");
    d->hidden_bias = view_of(p->c, "b");
    if (!strcmp(p->c->score, "given_scores")) d->given_scores = against_scores(p, view_of(p->c, "scores"));
    return strcmp(p->c->score, "concat") ? 1 : set_concat(p, d, width);
}

static int one_of(problem *p, const char *option, const char *const *words, int32_t *value) {
    const item *it = find_item(p->c, OPTION, option);
    if (!it) return 1;
    *value = find_word(words, it->word);
    return *value >= 0 ? 1 : fail(p, "unknown word \"%s\" for option %s", it->word, option);
}

/* A scalar that counts; unchanged when the case has none of that name. */
static int whole_scalar(problem *p, const char *name, int64_t *n) {
    double x = scalar_of(p->c, name, (double)*n);
    if (!is_whole(x)) return fail(p, "%s: %g is no whole number", name, x);
    *n = (int64_t)x;
    return 1;
}

static int set_positions(problem *p, attn_desc *d) {
    static const char *const align[] = {"top_left", "bottom_right", "positions", 0};
    static const char *const empty[] = {"zero", "nan", "uniform", 0};
    int32_t causal = -1, other = -1;
    if (!one_of(p, "causal", align, &causal) || !one_of(p, "align", align, &other)) return 0;
    if (!one_of(p, "empty", empty, &d->empty)) return 0;
    if (causal >= 0 && other >= 0 && causal != other) return fail(p, "two alignments in one case");
    d->causal = causal >= 0;
    if (causal < 0) causal = other;
    d->align = causal > 0 ? causal : ATTN_ALIGN_TOP_LEFT;
    d->window = has_scalar(p->c, "window_left") || has_scalar(p->c, "window_right");
    d->window_left = d->window_right = d->window ? ATTN_UNBOUNDED : 0;
    if (!whole_scalar(p, "window_left", &d->window_left)) return 0;
    if (!whole_scalar(p, "window_right", &d->window_right)) return 0;
    return integers_of(p, "positions", &d->positions) && integers_of(p, "valid_len", &d->key_lengths) &&
           integers_of(p, "query_lengths", &d->query_lengths);
}

/* Everything but q, k, v and the results. `width`: of a query. */
static int set_options(problem *p, attn_desc *d, int64_t width) {
    memset(d, 0, sizeof *d);
    d->isa = (int32_t)p->isa;
    d->softcap = (float)scalar_of(p->c, "softcap", 0);
    d->bias = against_scores(p, view_of(p->c, "bias"));
    d->alibi = view_of(p->c, "alibi");
    d->sink = view_of(p->c, "sink");
    return set_score(p, d, width) && set_positions(p, d) && set_mask(p, d);
}

/* ---- results: written where the case's expectation is laid out */
static const float UNWRITTEN = -12345.678f;

typedef struct result {
    const char *name;
    int rank;
    int64_t size[4], count;
    float *x;
    uint8_t *bytes;  /* instead, for a mask */
    attn_out narrow; /* what was written, where it is not floats: to become some */
} result;

static result make_result(const char *name, int rank, const int64_t *size) {
    result r;
    memset(&r, 0, sizeof r);
    r.name = name;
    r.rank = rank;
    r.size[0] = r.size[1] = r.size[2] = r.size[3] = r.count = 1;
    for (int i = 0; i < rank; i++) r.count *= r.size[i] = size[i];
    r.x = (float *)take((size_t)r.count * sizeof *r.x);
    for (int64_t i = 0; i < r.count; i++) r.x[i] = UNWRITTEN;
    return r;
}

/* Where a result in the problem's type is written, row-major. */
static attn_view place_of(const problem *p, result *r) {
    attn_view v = attn_view_f32(r->x, r->rank, r->size[0], r->size[1], r->size[2], r->size[3]);
    if (p->type == ATTN_F32) return v;
    r->narrow = room_like(p, &v);
    return attn_view_of(r->narrow);
}
static void widen(const result *r) {
    if (r->narrow.rank && r->narrow.data)
        attn_convert(attn_view_of(r->narrow),
                     attn_out_f32(r->x, r->rank, r->size[0], r->size[1], r->size[2], r->size[3]), 0);
}

/* The same sizes, but for axes of size 1? */
static int same_shape(const result *r, const array *want) {
    int i = 0, j = 0;
    for (;;) {
        while (i < r->rank && r->size[i] == 1) i++;
        while (j < want->rank && want->size[j] == 1) j++;
        if (i == r->rank || j == want->rank) return i == r->rank && j == want->rank;
        if (r->size[i++] != want->size[j++]) return 0;
    }
}

static void index_text(const array *a, int64_t at, char *text) {
    int64_t index[4] = {0, 0, 0, 0};
    for (int i = a->rank - 1; i >= 0; i--) {
        index[i] = at % a->size[i];
        at /= a->size[i];
    }
    *text = 0;
    for (int i = 0; i < a->rank; i++) text += sprintf(text, i ? ",%ld" : "%ld", (long)index[i]);
}

/* How far off rounding to a type may be: half a unit in the last place, also of the smallest numbers. */
static double rounding_of(int32_t type, double want) {
    if (type == ATTN_F16) return fmax(0x1p-11 * fabs(want), 0x1p-25);
    return type == ATTN_BF16 ? 0x1p-8 * fabs(want) : 0;
}
static int close_enough(double got, double want, double tolerance, int32_t type) {
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    if (type == ATTN_F16 && fabs(want) >= 65520) return got == copysign(INFINITY, want);
    return fabs(got - want) <= tolerance;
}

static int compare(problem *p, const result *r) {
    const array *want = expected(p->c, r->name);
    char where[100];
    int64_t bad = 0, first = -1;
    if (!want) return 1;
    widen(r);
    if (!same_shape(r, want))
        return fail(p, "%s has %ld numbers of another shape than expected", r->name, (long)r->count);
    for (int64_t i = 0; i < r->count; i++) {
        double got = r->bytes ? r->bytes[i] : r->x[i], x = want->x[i];
        double tolerance = p->c->atol + p->c->rtol * fabs(x) + rounding_of(r->narrow.type, x);
        if (close_enough(got, x, tolerance, r->narrow.type)) continue;
        if (bad++ == 0) first = i;
    }
    if (bad == 0) return 1;
    index_text(want, first, where);
    return fail(p, "%s[%s] is %.9g, expected %.9g; %ld of %ld numbers are off", r->name, where,
                r->bytes ? (double)r->bytes[first] : (double)r->x[first], want->x[first], (long)bad, (long)r->count);
}

static int call(problem *p, attn_status status, const attn_error *err) {
    char text[200];
    if (status == ATTN_OK) return 1;
    attn_error_string(err, text, sizeof text);
    return fail(p, "refused: %s", text);
}

/* The results besides the output, each where it is expected. */
enum { RESULTS = 5 };
static void ask(const problem *p, attn_desc *d, result *r) {
    static const char *const names[RESULTS] = {"lse", "weights", "scores", "scores_softcap", "scores_bias"};
    attn_out *outs[RESULTS];
    outs[0] = &d->lse;
    outs[1] = &d->weights;
    outs[2] = &d->scores;
    outs[3] = &d->scores_softcap;
    outs[4] = &d->scores_masked;
    for (int i = 0; i < RESULTS; i++) {
        const int64_t *n = p->shape;
        if (!expected(p->c, names[i])) continue;
        r[i] = make_result(names[i], i ? 4 : 3, n);
        *outs[i] = attn_out_f32(r[i].x, i ? 4 : 3, n[0], n[1], n[2], n[3]);
    }
}
static int compare_all(problem *p, const result *r) {
    for (int i = 0; i < RESULTS; i++)
        if (r[i].name && !compare(p, &r[i])) return 0;
    return 1;
}

/* The mask as data; in a case about masks alone, or beside other expectations. */
static int run_mask(problem *p, const attn_desc *d) {
    const int64_t *n = p->shape;
    attn_error err;
    result r;
    if (!expected(p->c, "mask")) return 1;
    r = make_result("mask", 4, n);
    r.bytes = (uint8_t *)r.x;
    memset(r.bytes, 77, (size_t)r.count);
    return call(p, attn_mask(attn_out_u8(r.bytes, 4, n[0], n[1], n[2], n[3]), d, &err), &err) && compare(p, &r);
}

/* query_mask [B,Sq]: rows of the output become 0. `r` is [B,Sq,...] when rows_outer, else [B,H,Sq,...]. */
static int apply_query_mask(problem *p, result *r, int rows_outer) {
    const array *m = input_of(p->c, "query_mask");
    int64_t width = 1, heads = rows_outer ? 1 : p->shape[1], queries = p->shape[2];
    if (!m) return 1;
    if (m->rank != 2 || m->size[0] != p->shape[0] || m->size[1] != queries) return fail(p, "query_mask must be [B,Sq]");
    widen(r);
    if (r->narrow.rank) r->narrow.data = 0; /* the zeros are in the floats */
    for (int i = rows_outer ? 2 : 3; i < r->rank; i++) width *= r->size[i];
    for (int64_t row = 0; row < p->shape[0] * heads * queries; row++)
        if (m->x[row / (heads * queries) * queries + row % queries] == 0)
            for (int64_t c = 0; c < width; c++) r->x[row * width + c] = 0;
    return 1;
}

/* ---- sizes of what a case has */
static int64_t size_of(const array *a, int from_right) {
    return a && a->rank > from_right ? a->size[a->rank - 1 - from_right] : 1;
}

/* ---- gradients: the names of the expectations and where attn_grad has them */
enum { G_Q, G_K, G_V, G_BIAS, G_W_Q, G_W_K, G_W_V, G_B, G_M, G_SIGMA, G_SCALE, G_SINK, G_ALIBI, GRADS };
static const char *const grad_names[GRADS] = {"dq", "dk", "dv",     "dbias",  "dw_q",  "dw_k",  "dw_v",
                                              "db", "dm", "dsigma", "dscale", "dsink", "dalibi"};
static const char *const grad_owners[GRADS] = {"q", "k", "v", "bias", "w_q",  "w_k",  "w_v",
                                               "b", "m", 0,   0,      "sink", "alibi"};

static attn_out *grad_of(attn_grad *g, int which) {
    attn_out *results[GRADS];
    results[G_Q] = &g->dq, results[G_K] = &g->dk, results[G_V] = &g->dv, results[G_BIAS] = &g->d_bias;
    results[G_W_Q] = &g->d_w_q, results[G_W_K] = &g->d_w_k, results[G_W_V] = &g->d_w_v;
    results[G_B] = &g->d_hidden_bias, results[G_M] = &g->d_bilinear;
    results[G_SIGMA] = &g->d_sigma, results[G_SCALE] = &g->d_scale, results[G_SINK] = &g->d_sink;
    results[G_ALIBI] = &g->d_alibi;
    return results[which];
}

static attn_out as_output(attn_view v) { /* the tests made this memory: it is writable */
    attn_out o;
    memcpy(&o, &v, sizeof o);
    return o;
}

static int wants_gradients(const test_case *c) {
    for (int i = 0; i < GRADS; i++)
        if (expected(c, grad_names[i])) return 1;
    return 0;
}

/* An upstream gradient, seen with the sizes n; in the file axes of size 1 may be missing. */
static int upstream(problem *p, const char *name, int rank, const int64_t *n, attn_view *view) {
    const array *a = input_of(p->c, name);
    result r;
    if (!a) return 1;
    memset(&r, 0, sizeof r);
    r.rank = rank;
    memcpy(r.size, n, (size_t)rank * sizeof *n);
    if (!same_shape(&r, a)) return fail(p, "%s has another shape than what it belongs to", name);
    *view = attn_view_f32(floats_of(a), rank, n[0], rank > 1 ? n[1] : 0, rank > 2 ? n[2] : 0, rank > 3 ? n[3] : 0);
    if (!strcmp(name, "d_output")) *view = stored(p, *view);
    return 1;
}

/* d_output of the rows that query_mask zeroes counts for nothing. `v` is [B,H,Sq,Dv] or, rows_outer, [B,Sq,E]. */
static int mask_upstream(problem *p, attn_view *v, int rows_outer) {
    const array *m = input_of(p->c, "query_mask");
    if (!m || !v->rank) return 1;
    if (m->rank != 2 || m->size[0] != p->shape[0] || m->size[1] != p->shape[2])
        return fail(p, "query_mask must be [B,Sq]");
    for (int64_t row = 0; row < m->count; row++) {
        attn_view one = attn_view_slice(*v, 0, row / p->shape[2], 1);
        one = attn_view_slice(one, rows_outer ? 1 : 2, row % p->shape[2], 1);
        for (int64_t h = 0; m->x[row] == 0 && h < (rows_outer ? 1 : one.size[1]); h++)
            for (int64_t c = 0; c < one.size[one.rank - 1]; c++) {
                int64_t at = (rows_outer ? 0 : h * one.stride[1]) + c * one.stride[one.rank - 1];
                if (one.type == ATTN_F32) ((float *)(uintptr_t)one.data)[at] = 0;
                else ((uint16_t *)(uintptr_t)one.data)[at] = 0;
            }
    }
    return 1;
}

/* A result laid out as the case has what it belongs to, seen as the descriptor has it. */
static attn_out grad_result(const problem *p, int which, result *r) {
    const array *a = grad_owners[which] ? input_of(p->c, grad_owners[which]) : 0;
    const int64_t one[1] = {1};
    attn_view v;
    *r = make_result(grad_names[which], a ? a->rank : 1, a ? a->size : one);
    if (which <= G_V) v = place_of(p, r);
    else v = attn_view_f32(r->x, r->rank, r->size[0], r->size[1], r->size[2], r->size[3]);
    if (which <= G_V && r->rank == 3)
        v = attn_view_typed((attn_type)v.type, v.data, 4, r->size[0], 1, r->size[1], r->size[2]);
    else if (which <= G_V && p->bthd) v = attn_view_swap(v, 1, 2);
    if (which == G_BIAS) v = against_scores(p, v);
    return as_output(v);
}

/* tanh(scale (q + k)): the scale is every diagonal element of both projections. */
static int compare_concat_scale(problem *p, const attn_grad *g) {
    result r = make_result("dscale", 1, &g->d_w_q.size[0]);
    int64_t n = g->d_w_q.size[0];
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum +=
            (double)((const float *)g->d_w_q.data)[i * (n + 1)] + (double)((const float *)g->d_w_k.data)[i * (n + 1)];
    r.rank = 0;
    r.count = 1;
    r.x[0] = (float)sum;
    return compare(p, &r);
}

/* Asks for what the case expects. Which gradients there are is the library's to say, but for those of what a reader
   composes. */
static int ask_gradients(problem *p, const attn_desc *d, attn_grad *g, result *r, int first) {
    int concat = !strcmp(p->c->score, "concat");
    for (int i = first; i < GRADS; i++) {
        if (!expected(p->c, grad_names[i])) continue;
        if (grad_owners[i] && !input_of(p->c, grad_owners[i]))
            return fail(p, "%s is expected of what the case has not got", grad_names[i]);
        if (i == G_SCALE && concat) {
            int64_t n = d->w_q.size[0];
            g->d_w_q = attn_out_f32((float *)take((size_t)(n * n) * 4), 2, n, n, 0, 0);
            g->d_w_k = attn_out_f32((float *)take((size_t)(n * n) * 4), 2, n, n, 0, 0);
            continue;
        }
        *grad_of(g, i) = grad_result(p, i, &r[i]);
        if (i == G_SIGMA && d->score == ATTN_SCORE_CONSTANT) { /* no width changes anything */
            r[i].x[0] = 0;
            grad_of(g, i)->rank = 0, grad_of(g, i)->data = 0;
        }
    }
    return 1;
}

static int any_gradient(const attn_grad *g) {
    attn_grad copy = *g;
    for (int i = 0; i < GRADS; i++)
        if (grad_of(&copy, i)->rank) return 1;
    return 0;
}

static int compare_gradients(problem *p, const attn_grad *g, const result *r, int first) {
    if (first <= G_SCALE && !strcmp(p->c->score, "concat") && expected(p->c, "dscale") && !compare_concat_scale(p, g))
        return 0;
    for (int i = first; i < GRADS; i++)
        if (r[i].name && !compare(p, &r[i])) return 0;
    return 1;
}

/* Of an attention without a block of heads around it. */
static int run_gradients(problem *p, attn_desc *d) {
    static const result none[GRADS];
    const array *v = input_of(p->c, "v");
    const int64_t *n = p->shape;
    result r[GRADS];
    attn_grad g;
    attn_error err;
    memcpy(r, none, sizeof r);
    memset(&g, 0, sizeof g);
    if (!wants_gradients(p->c)) return 1;
    if (input_of(p->c, "d_output")) {
        int64_t size[4];
        size[0] = n[0], size[1] = p->bthd ? n[2] : n[1], size[2] = p->bthd ? n[1] : n[2], size[3] = size_of(v, 0);
        if (!upstream(p, "d_output", 4, size, &g.d_out)) return 0;
        if (p->bthd) g.d_out = attn_view_swap(g.d_out, 1, 2);
        if (!mask_upstream(p, &g.d_out, 0)) return 0;
        d->out = room_like(p, &g.d_out);
        if (!call(p, attn_forward(d, &err), &err)) return 0;
    }
    if (!upstream(p, "d_weights", 4, n, &g.d_weights) || !upstream(p, "d_lse", 3, n, &g.d_lse)) return 0;
    if (!ask_gradients(p, d, &g, r, 0)) return 0;
    if (any_gradient(&g) && !call(p, attn_backward(d, &g, &err), &err)) return 0;
    return compare_gradients(p, &g, r, 0);
}

/* ---- the three kinds of cases */
static int run_mask_case(problem *p) {
    const array *want = expected(p->c, "mask"), *shape = input_of(p->c, "shape");
    attn_desc d;
    if (!want || want->rank < 2) return fail(p, "a mask case must expect a mask of rank 2 or more");
    p->rank = want->rank == 4 ? 4 : 3;
    p->shape[0] = want->rank > 2 ? want->size[0] : 1;
    p->shape[1] = want->rank == 4 ? want->size[1] : 1;
    p->shape[2] = size_of(want, 1);
    p->shape[3] = size_of(want, 0);
    for (int64_t i = 0; shape && i < shape->count; i++)
        if (shape->count != want->rank || shape->x[i] != (double)want->size[i]) return fail(p, "shape and mask differ");
    if (scalar_of(p->c, "Tq", (double)p->shape[2]) != (double)p->shape[2] ||
        scalar_of(p->c, "Tv", (double)p->shape[3]) != (double)p->shape[3])
        return fail(p, "Tq, Tv and the expected mask differ");
    return set_options(p, &d, 1) && run_mask(p, &d);
}

static int run_attention(problem *p) {
    const array *q = input_of(p->c, "q"), *k = input_of(p->c, "k"), *v = input_of(p->c, "v");
    const array *given = strcmp(p->c->score, "given_scores") ? 0 : input_of(p->c, "scores"), *leads = given ? given : q;
    result r[RESULTS], out;
    attn_desc d;
    attn_error err;
    int queries;
    memset(r, 0, sizeof r);
    if (!leads) return fail(p, "the case has no %s", strcmp(p->c->score, "given_scores") ? "q" : "scores");
    if (leads->rank != 3 && leads->rank != 4) return fail(p, "rank %d: only 3 and 4 are known", leads->rank);
    p->rank = leads->rank;
    queries = p->rank == 3 || (p->bthd && !given) ? 1 : 2; /* axis of the queries */
    p->shape[0] = leads->size[0];
    p->shape[1] = p->rank == 3 ? 1 : leads->size[3 - queries];
    p->shape[2] = leads->size[queries];
    p->shape[3] = given ? given->size[given->rank - 1] : k && k->rank == p->rank ? k->size[queries] : 0;
    if (!set_options(p, &d, size_of(q, 0))) return 0;
    if (!given) d.q = sequence_of(p, "q"), d.k = sequence_of(p, "k");
    d.v = sequence_of(p, "v");
    ask(p, &d, r);
    if (expected(p->c, "output")) {
        int64_t n[4] = {p->shape[0], p->bthd ? p->shape[2] : p->shape[1], p->bthd ? p->shape[1] : p->shape[2],
                        size_of(v, 0)};
        out = make_result("output", 4, n);
        attn_view place = place_of(p, &out);
        d.out = as_output(p->bthd ? attn_view_swap(place, 1, 2) : place);
    }
    if (d.out.rank || d.lse.rank || d.weights.rank || d.scores.rank || d.scores_softcap.rank || d.scores_masked.rank)
        if (!call(p, attn_forward(&d, &err), &err)) return 0;
    if (d.out.rank && (!apply_query_mask(p, &out, p->bthd) || !compare(p, &out))) return 0;
    return compare_all(p, r) && run_mask(p, &d) && run_gradients(p, &d);
}

/* A projection of a block of heads; one that is not given is the identity. */
static attn_view projection(const problem *p, const char *name, int64_t width) {
    attn_view w = view_of(p->c, name);
    return w.rank ? w : attn_view_f32(identity(width, 1), 2, width, width, 0, 0);
}

/* Of a block of heads: dq, dk and dv are those of its inputs. */
static int run_head_gradients(problem *p, const attn_mha_desc *m, attn_desc *inner, int64_t width) {
    static const result none[GRADS];
    const int64_t *n = p->shape;
    int64_t size[3];
    result r[GRADS];
    attn_grad g;
    attn_mha_grad h;
    attn_error err;
    memcpy(r, none, sizeof r);
    memset(&g, 0, sizeof g);
    memset(&h, 0, sizeof h);
    if (!wants_gradients(p->c)) return 1;
    size[0] = n[0], size[1] = n[2], size[2] = width;
    if (!upstream(p, "d_output", 3, size, &h.d_out)) return 0;
    if (!h.d_out.rank) { /* the library wants one; nothing comes from it */
        float *zero = (float *)take((size_t)(n[0] * n[2] * width) * 4);
        memset(zero, 0, (size_t)(n[0] * n[2] * width) * 4);
        h.d_out = attn_view_f32(zero, 3, n[0], n[2], width, 0);
    }
    if (!mask_upstream(p, &h.d_out, 1)) return 0;
    if (!upstream(p, "d_weights", 4, n, &g.d_weights) || !upstream(p, "d_lse", 3, n, &g.d_lse)) return 0;
    for (int i = G_Q; i <= G_V; i++) {
        attn_out *o = i == G_Q ? &h.dquery : i == G_K ? &h.dkey : &h.dvalue;
        if (!expected(p->c, grad_names[i])) continue;
        if (!input_of(p->c, grad_owners[i]))
            return fail(p, "%s is expected of what the case has not got", grad_names[i]);
        grad_result(p, i, &r[i]);
        *o = r[i].narrow.rank ? r[i].narrow : attn_out_f32(r[i].x, 3, r[i].size[0], r[i].size[1], r[i].size[2], 0);
    }
    if (!ask_gradients(p, inner, &g, r, G_BIAS)) return 0;
    if (!h.dquery.rank && !h.dkey.rank && !h.dvalue.rank) { /* here too */
        h.dquery = attn_out_f32((float *)take((size_t)(n[0] * n[2] * m->query.size[2]) * 4), 3, n[0], n[2],
                                m->query.size[2], 0);
    }
    h.attention = &g;
    if (!call(p, attn_mha_backward(m, &h, &err), &err)) return 0;
    return compare_gradients(p, &g, r, 0);
}

static int run_heads(problem *p) {
    const array *q = input_of(p->c, "q"), *k = input_of(p->c, "k"), *v = input_of(p->c, "v");
    result r[RESULTS], out;
    attn_mha_desc m;
    attn_desc inner;
    attn_error err;
    int64_t size_d, n[3];
    memset(r, 0, sizeof r);
    if (!q || q->rank != 3) return fail(p, "a block of heads needs a q of rank 3");
    p->rank = 3;
    memset(&m, 0, sizeof m);
    if (!whole_scalar(p, "heads", &m.heads)) return 0;
    if (m.heads < 1) return fail(p, "heads must be at least 1");
    m.query = stored(p, view_of(p->c, "q"));
    m.key = stored(p, view_of(p->c, "k"));
    m.value = stored(p, view_of(p->c, "v"));
    if (!k) k = q;
    if (!v) v = k;
    m.w_query = projection(p, "W_query", size_of(q, 0));
    m.w_key = projection(p, "W_key", size_of(k, 0));
    m.w_value = projection(p, "W_value", size_of(v, 0));
    m.w_result = view_of(p->c, "W_result");
    size_d = m.w_query.size[0] / m.heads;
    m.heads_kv = size_d > 0 && m.w_key.size[0] % size_d == 0 ? m.w_key.size[0] / size_d : 0;
    p->shape[0] = q->size[0];
    p->shape[1] = m.heads;
    p->shape[2] = q->size[1];
    p->shape[3] = size_of(k, 1);
    if (!set_options(p, &inner, size_d)) return 0;
    ask(p, &inner, r);
    n[0] = p->shape[0];
    n[1] = p->shape[2];
    n[2] = m.w_result.rank ? m.w_result.size[0] : m.heads_kv ? m.w_value.size[0] / m.heads_kv * m.heads : 0;
    out = make_result("output", 3, n);
    m.out = as_output(place_of(p, &out));
    m.attention = &inner;
    if (!call(p, attn_mha(&m, &err), &err)) return 0;
    return apply_query_mask(p, &out, 1) && compare(p, &out) && compare_all(p, r) && run_mask(p, &inner) &&
           run_head_gradients(p, &m, &inner, n[2]);
}

static int run_on(const test_case *c, attn_isa isa) {
    problem p;
    int passed;
    memset(&p, 0, sizeof p);
    p.c = c;
    p.isa = isa;
    p.bthd = option_is(c, "layout", "BTNH");
    if (option_is(c, "dtype", "f16")) p.type = ATTN_F16;
    if (option_is(c, "dtype", "bf16")) p.type = ATTN_BF16;
    if (find_item(c, OPTION, "layout") && !p.bthd && !option_is(c, "layout", "BHSD"))
        passed = fail(&p, "unknown layout \"%s\"", find_item(c, OPTION, "layout")->word);
    else if (!strcmp(c->score, "mask")) passed = run_mask_case(&p);
    else passed = has_scalar(c, "heads") ? run_heads(&p) : run_attention(&p);
    if (!passed) printf("FAILED %s (%s): %s\n", c->name, attn_isa_string(isa), p.why);
    return passed;
}

/* ---- all cases */
typedef enum outcome { PASSED, FAILED, SKIPPED } outcome;

/* What this version of the library has not got; 0 when it has all that the case needs. */
static const char *missing(const test_case *c) {
    return option_is(c, "dtype", "f64") ? "this version computes in f32" : 0;
}

/* Is there a result to look at? */
static int expects_results(const test_case *c) {
    for (int i = 0; i < c->item_count; i++)
        if (c->items[i].kind == EXPECT) return 1;
    return 0;
}

static outcome run_case(const test_case *c) {
    static const char *const types[] = {"f32", "f16", "bf16", "f64", 0};
    const char *lacks = missing(c);
    const item *type = find_item(c, OPTION, "dtype");
    int ran = 0;
    if (type && find_word(types, type->word) < 0) {
        printf("FAILED %s: unknown dtype \"%s\"\n", c->name, type->word);
        return FAILED;
    }
    if (lacks) {
        printf("skipped %s: %s\n", c->name, lacks);
        return SKIPPED;
    }
    if (expects_results(c)) {
        for (int isa = ATTN_ISA_AUTO + 1; isa < ATTN_ISA_COUNT; isa++) {
            float x = 0;
            if (attn_elementary(ATTN_EXP, &x, &x, 1, (attn_isa)isa) == ATTN_ERR_ISA) continue;
            if (!run_on(c, (attn_isa)isa)) return FAILED;
            ran++;
        }
    }
    if (ran) return PASSED;
    printf("FAILED %s: it expects nothing\n", c->name);
    return FAILED;
}

static char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    char *text = 0;
    size_t room = 1 << 16, n;
    *size = 0;
    if (!f) return 0;
    while ((text = (char *)realloc(text, room)) != 0) {
        n = fread(text + *size, 1, room - *size, f);
        *size += n;
        if (n == 0) break;
        if (*size == room) room *= 2;
    }
    if (ferror(f)) {
        free(text);
        text = 0;
    }
    fclose(f);
    return text;
}

int main(int argc, char **argv) {
    static test_case c;
    int count[3] = {0, 0, 0};
    size_t size;
    char *text, word[24];
    reader r;
    if (argc != 2) {
        printf("usage: %s FILE\n", argv[0]);
        return 2;
    }
    text = read_file(argv[1], &size);
    if (!text) {
        printf("cannot read %s\n", argv[1]);
        return 1;
    }
    r.path = argv[1];
    r.at = text;
    r.end = text + size;
    r.line = 1;
    r.bad = 0;
    while (read_word(&r, word, sizeof word, 1) || r.bad) {
        if (!r.bad && strcmp(word, "case")) malformed(&r, "\"%s\" stands where a case should begin", word);
        if (!r.bad && read_case(&r, &c)) count[run_case(&c)]++;
        else {
            count[FAILED]++;
            recover(&r);
        }
        free_all();
    }
    free(text);
    if (count[PASSED] + count[FAILED] == 0) printf("no case ran\n");
    printf("%d passed, %d failed", count[PASSED], count[FAILED]);
    if (count[SKIPPED]) printf(", %d skipped", count[SKIPPED]);
    printf("\n");
    return count[FAILED] > 0 || count[PASSED] == 0;
}
