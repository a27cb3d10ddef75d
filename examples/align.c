/* cc -O2 align.c -lm */
/* Which word of one sentence is which word of another? Attention between word vectors answers.

       align [options] [SENTENCE SENTENCE [VECTORS VECTORS]]

   The words of the first sentence ask (queries), those of the second answer (keys and values). The heatmap is
   softmax(q k^T / sqrt(dim)), and the largest weight of a row names the word's partner. VECTORS are files in
   fastText's text format ("count dim", then lines of a word and its numbers) of two languages in one space,
   such as fastText's aligned vectors, of 300 numbers each; make_vectors.c made those in data/, whose 100
   numbers are enough for their 1600 sentences. Each vector is brought to the length sqrt(dim): then its
   numbers have the variance 1 that the division by sqrt(dim) is meant for. A word is looked up as it is
   written, else in lower case; the vector of an unknown word is zero.

       --softmax rows|columns   the axis along which weights add up to 1: each word of the first sentence
                                looks for its partner in the second (rows), or each of the second in the first
       --sharpness X            a factor on the scores (default 1): the larger, the more for the best partner
       --max-words N            read the first N words of each file (default: all)
       --svg FILE               write the heatmap as a picture too
       --lines FILE             and as lines between the words, as thick as the weights
       --html FILE              and as a web page, where each cell tells its words and its weight
       --map reds|grey          in these colours
       --terminal true|256|ascii    how to draw it here (default: as the terminal can; ascii into a file)  */
#define _POSIX_C_SOURCE 200112L /* isatty */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#define ATTN_HEATMAP_HTML_IMPLEMENTATION
#include "numbers.h"
#include "web/attn_heatmap_html.h"
#include "words.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#ifdef _WIN32
#include <io.h>
#define isatty _isatty
#define fileno _fileno
#else
#include <unistd.h>
#endif

#define FAIL(log, ...) (fprintf(log, "align: " __VA_ARGS__), fputc('\n', log), 0)

typedef struct {
    const char *text, *path;
    words words, lower; /* as written, in lower case */
    int *found;         /* [words]: 0 = unknown, 1 = in lower case only, more = as written */
    float *vectors;     /* [words, dim] */
    long read, dim;     /* words of the file, numbers of a word */
} sentence;

typedef struct {
    int columns, map, terminal;
    float sharpness;
    int64_t max_words; /* 0 = all */
    const char *svg, *lines, *html;
} options;

static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }

/* ---- word vectors */

/* Reads the dim numbers at p, the rest of the line; without a row they are only counted, which is fast. */
static int parse_row(const lines *l, const char *p, float *row, long dim, FILE *log) {
    long count = 0;
    for (const char *end; *(p += strspn(p, " ")); p = end, count++) {
        char *number_end = NULL;
        float x = row ? strtof(p, &number_end) : 0;
        end = row ? number_end : p + strspn(p, "+-.0123456789eE");
        if ((*end && *end != ' ') || !isfinite(x))
            return FAIL(log, "%s, line %ld: not a number: %.20s", l->name, l->number, p);
        if (row && count < dim) row[count] = x;
    }
    if (count == dim) return 1;
    return FAIL(log, "%s, line %ld: %ld numbers, not %ld", l->name, l->number, count, dim);
}

/* Does this line of the file tell more about a word of the sentence than was known before? 0 = no. */
static int is_news(const sentence *s, int w, const char *word) {
    int how = 2 * is(word, s->words.word[w]) + is(word, s->lower.word[w]);
    return how > s->found[w] ? how : 0;
}

/* Takes one line: its row, at the length sqrt(dim), for the words of the sentence that it is news to. */
static int take_line(sentence *s, const lines *l, float *row, FILE *log) {
    char *p = l->text + strcspn(l->text, " "), *numbers = *p ? p + 1 : p;
    double square = 0;
    int wanted = 0;
    *p = 0;
    for (int w = 0; w < s->words.count; w++) wanted = wanted || is_news(s, w, l->text);
    if (!parse_row(l, numbers, wanted ? row : NULL, s->dim, log)) return 0;
    for (long i = 0; wanted && i < s->dim; i++) square += (double)row[i] * (double)row[i];
    for (int w = 0; wanted && w < s->words.count; w++) {
        int how = is_news(s, w, l->text);
        if (how) s->found[w] = how;
        for (long i = 0; how && i < s->dim; i++)
            s->vectors[w * s->dim + i] = square > 0 ? row[i] * (float)sqrt((double)s->dim / square) : 0;
    }
    return 1;
}

static int read_rows(sentence *s, lines *l, float **row, int64_t max_words, FILE *log) {
    long count;
    char more;
    if (!lines_next(l) || sscanf(l->text, "%9ld %9ld %c", &count, &s->dim, &more) != 2 || count < 1 || s->dim < 1)
        return FAIL(log, "%s, line 1: not the number of words and the numbers per word", l->name);
    *row = (float *)malloc((size_t)s->dim * sizeof **row);
    s->vectors = (float *)calloc((size_t)s->words.count * (size_t)s->dim, sizeof *s->vectors);
    if (!*row || !s->vectors) return FAIL(log, "no memory");
    while (s->read < count && (max_words == 0 || s->read < max_words)) {
        if (!lines_next(l))
            return FAIL(log, "%s, line %ld: the end, after %ld of %ld words", l->name, l->number, s->read, count);
        if (!take_line(s, l, *row, log)) return 0;
        if (++s->read % 100000 == 0) fprintf(log, "%s: %ld of %ld words\n", l->name, s->read, count);
    }
    while (s->read == count && lines_next(l))
        if (l->text[0]) return FAIL(log, "%s, line %ld: more than %ld words", l->name, l->number, count);
    return 1;
}

static int read_sentence(sentence *s, int64_t max_words, FILE *log) {
    lines l = {.name = s->path};
    float *row = NULL;
    if (!words_split(&s->words, s->text) || !words_split(&s->lower, s->text)) return FAIL(log, "no memory");
    if (s->words.count == 0) return FAIL(log, "a sentence without words");
    for (int w = 0; w < s->lower.count; w++) words_lower(s->lower.word[w]);
    if (!(s->found = (int *)calloc((size_t)s->words.count, sizeof *s->found))) return FAIL(log, "no memory");
    if (!(l.file = fopen(s->path, "rb"))) return FAIL(log, "%s: %s", s->path, strerror(errno));
    int ok = read_rows(s, &l, &row, max_words, log);
    fclose(l.file);
    free(l.text);
    free(row);
    return ok;
}

static void free_sentence(sentence *s) {
    free(s->words.word);
    free(s->lower.word);
    free(s->found);
    free(s->vectors);
}

/* ---- attention */

/* weights [q words, k words] = softmax(q k^T / sqrt(dim)), out [q words, dim] = weights v. Here v = k. */
static attn_status attention_qkv(const sentence *q, const sentence *k, const options *o, float *weights, float *out,
                                 attn_error *err) {
    const int64_t n = q->words.count, m = k->words.count, dim = q->dim;
    attn_desc d = {.q = attn_view_bhsd(q->vectors, 1, 1, n, dim),
                   .k = attn_view_bhsd(k->vectors, 1, 1, m, dim),
                   .v = attn_view_bhsd(k->vectors, 1, 1, m, dim),
                   .out = attn_out_bhsd(out, 1, 1, n, dim),
                   .weights = attn_out_bhsd(weights, 1, 1, n, m),
                   .scale = o->sharpness / sqrtf((float)dim)};
    if (!o->columns) return attn_forward(&d, err);

    /* Along the columns: the second sentence asks, and its weights are written transposed. */
    attn_desc t = {.q = d.k, .k = d.q, .weights = d.weights, .scale = d.scale};
    t.weights.size[2] = m, t.weights.stride[2] = 1;
    t.weights.size[3] = n, t.weights.stride[3] = m;
    attn_status status = attn_forward(&t, err);
    if (status != ATTN_OK) return status;
    return attn_bmm(attn_view_of(d.weights), d.v, d.out, NULL, err);
}

/* ---- results */

static int put(void *file, const char *s, size_t n) { return fwrite(s, 1, n, (FILE *)file) != n; }

typedef attn_status (*picture)(const attn_heatmap *, attn_writer, attn_error *);

/* Writes the heatmap as one kind of file, where one is asked for. */
static int draw_file(const attn_heatmap *map, picture draw, const char *path, const char *what, FILE *out, FILE *log) {
    attn_writer writer = {put, NULL};
    if (!path) return 1;
    if (!(writer.user = fopen(path, "wb"))) return FAIL(log, "%s: %s", path, strerror(errno));
    attn_status status = draw(map, writer, NULL);
    if (fclose((FILE *)writer.user) != 0 || status != ATTN_OK) return FAIL(log, "%s cannot be written", path);
    fprintf(out, "\nas a %s: %s\n", what, path);
    return 1;
}

static int draw(const sentence *q, const sentence *k, const options *o, const float *weights, FILE *out, FILE *log) {
    attn_writer writer = {put, out};
    attn_heatmap map = {.values = attn_view_f32(weights, 2, q->words.count, k->words.count, 0, 0),
                        .y_ticks = (const char *const *)q->words.word,
                        .x_ticks = (const char *const *)k->words.word,
                        .y_label = "queries",
                        .x_label = "keys",
                        .range_set = 1,
                        .range_max = 1,
                        .colormap = o->map,
                        .terminal = o->terminal};
    map.ticks_on_top = 1; /* on a terminal words above the columns read in their order */
    if (attn_heatmap_ansi(&map, writer, NULL) != ATTN_OK) return FAIL(log, "the heatmap cannot be written");
    map.ticks_on_top = 0;
    return draw_file(&map, attn_heatmap_svg, o->svg, "picture", out, log) &&
           draw_file(&map, attn_heatmap_lines_svg, o->lines, "picture of lines", out, log) &&
           draw_file(&map, attn_heatmap_html, o->html, "web page", out, log);
}

static void describe(const char *name, const sentence *s, FILE *out) {
    fprintf(out, "%s: %s, vocabulary size %ld, embedding size %ld\n", name, s->path, s->read, s->dim);
    for (int w = 0; w < s->words.count; w++)
        if (!s->found[w]) fprintf(out, "%s: unknown word: %s\n", name, s->words.word[w]);
}

/* A line for each word that asks: its partner and the weight. 0 when weights do not add up to 1. */
static int list_pairs(const sentence *q, const sentence *k, int columns, const float *weights, FILE *out) {
    const sentence *asks = columns ? k : q, *answers = columns ? q : k;
    const int m = k->words.count, next = columns ? m : 1;
    for (int i = 0; i < asks->words.count; i++) {
        const float *w = weights + (columns ? i : i * m);
        int best = 0;
        float sum = 0;
        for (int j = 0; j < answers->words.count; j++) {
            sum += w[j * next];
            if (w[j * next] > w[best * next]) best = j;
        }
        if (!(fabsf(sum - 1) <= 1e-4f)) return 0;
        fprintf(out, "%.2f  %s\342\206\222%s\n", (double)w[best * next], asks->words.word[i],
                asks->found[i] ? answers->words.word[best] : "(unknown)");
    }
    return 1;
}

static int report(const sentence *q, const sentence *k, const options *o, FILE *out, FILE *log) {
    const size_t n = (size_t)q->words.count, m = (size_t)k->words.count, dim = (size_t)q->dim;
    float *weights = (float *)malloc(n * m * sizeof(float)), *result = (float *)malloc(n * dim * sizeof(float));
    attn_error err = {.field = "no", .rule = "memory"};
    int ok = weights && result && attention_qkv(q, k, o, weights, result, &err) == ATTN_OK;
    if (ok) {
        describe("queries", q, out);
        describe("keys", k, out);
        fprintf(out, "attention_qkv(q, k, v): shape (%d, %ld), first numbers", q->words.count, q->dim);
        for (size_t i = 0; i < 6 && i < dim; i++) fprintf(out, " %.4f", (double)result[i]);
        fprintf(out, "\n\n");
        ok = draw(q, k, o, weights, out, log);
        fprintf(out, "\n");
        if (ok && !list_pairs(q, k, o->columns, weights, out)) ok = FAIL(log, "the weights do not add up to 1");
    } else ok = FAIL(log, "%s %s", err.field, err.rule);
    free(weights);
    free(result);
    return ok;
}

/* ---- the command line */

static int set_option(options *o, const char *name, const char *value, FILE *log) {
    if (is(name, "--softmax") && is(value, "rows")) return o->columns = 0, 1;
    if (is(name, "--softmax") && is(value, "columns")) return o->columns = 1;
    if (is(name, "--map") && is(value, "reds")) return o->map = ATTN_COLORMAP_REDS, 1;
    if (is(name, "--map") && is(value, "grey")) return o->map = ATTN_COLORMAP_GREY, 1;
    if (is(name, "--terminal") && is(value, "true")) return o->terminal = ATTN_TERMINAL_TRUECOLOR, 1;
    if (is(name, "--terminal") && is(value, "256")) return o->terminal = ATTN_TERMINAL_256, 1;
    if (is(name, "--terminal") && is(value, "ascii")) return o->terminal = ATTN_TERMINAL_ASCII, 1;
    if (is(name, "--svg")) return o->svg = value, 1;
    if (is(name, "--lines")) return o->lines = value, 1;
    if (is(name, "--html")) return o->html = value, 1;
    if (is(name, "--sharpness")) return take_real(log, "align", name, value, FLT_MIN, FLT_MAX, &o->sharpness);
    if (is(name, "--max-words")) return take_whole(log, "align", name, value, 1, INT32_MAX, &o->max_words);
    return 0;
}

/* The exit status: 0, 1 = something failed, 2 = a command line that is not understood. */
static int align(int argc, char **argv, FILE *out, FILE *log) {
    options o = {.terminal = ATTN_TERMINAL_ASCII, .sharpness = 1};
    const char *given[5] = {"L accord sur la zone \303\251conomique europ\303\251enne a \303\251t\303\251 "
                            "sign\303\251 en ao\303\273t 1992 .",
                            "The agreement on the European Economic Area was signed in August 1992 .",
                            data_path("examples/data/fr.vec"), data_path("examples/data/en.vec"), NULL};
    int count = 0, ok = 1;
    if (isatty(fileno(out))) o.terminal = getenv("COLORTERM") ? ATTN_TERMINAL_TRUECOLOR : ATTN_TERMINAL_256;
    for (int i = 1; ok && i < argc; i++) {
        int option = strncmp(argv[i], "--", 2) == 0;
        if (option) ok = i + 1 < argc && set_option(&o, argv[i], argv[i + 1], log);
        else given[count++] = argv[i];
        i += option;
        ok = ok && count <= 4;
    }
    if (!ok || count % 2 != 0) {
        fprintf(log, "usage: align [--softmax rows|columns] [--sharpness X] [--max-words N] [--svg FILE]\n"
                     "    [--lines FILE] [--html FILE] [--map reds|grey] [--terminal true|256|ascii]\n"
                     "    [SENTENCE SENTENCE [VECTORS VECTORS]]\n");
        return 2;
    }
    sentence q = {.text = given[0], .path = given[2]}, k = {.text = given[1], .path = given[3]};
    ok = read_sentence(&q, o.max_words, log) && read_sentence(&k, o.max_words, log);
    if (ok && q.dim != k.dim) ok = FAIL(log, "%s has %ld numbers per word, %s %ld", q.path, q.dim, k.path, k.dim);
    ok = ok && report(&q, &k, &o, out, log);
    if (ok && (fflush(out) || ferror(out))) ok = FAIL(log, "the output cannot be written");
    free_sentence(&q);
    free_sentence(&k);
    return !ok;
}

int main(int argc, char **argv) { return align(argc, argv, stdout, stderr); }
