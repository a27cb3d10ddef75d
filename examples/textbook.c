/* cc -O2 textbook.c -lm */
/* The textbook's chapter on attention, section by section: masked softmax, batched matrix products, additive
   and scaled dot product attention, padded batches and other sequences, why 1/sqrt(d), and the exercises.
   Heatmaps go to the terminal and, as SVG, into the directory given as the first argument (the current one
   without). Every section checks itself. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static attn_error err; /* of the latest call: which field broke which rule */
static int checks, failures;
static const char *directory = ".";

static void check(int ok, const char *what) {
    checks++;
    if (!ok) {
        printf("WRONG: %s\n", what);
        failures++;
    }
}

static void must(attn_status status) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(&err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

static attn_desc blank(void) { /* zero means default, absent or off */
    attn_desc d = {0};
    return d;
}

static void forward(const attn_desc *d) { must(attn_forward(d, &err)); }

/* ---- random numbers: the same on every machine */
static double uniform(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 40) / 16777216.0;
}

static void fill_uniform(float *x, int n) {
    for (int i = 0; i < n; i++) x[i] = (float)uniform();
}

static void fill_normal(float *x, int n) { /* twelve uniform numbers have variance 1 */
    for (int i = 0; i < n; i++) {
        double sum = -6;
        for (int j = 0; j < 12; j++) sum += uniform();
        x[i] = (float)sum;
    }
}

/* ---- printing and drawing */
static void print_rows(const char *name, const float *x, int rows, int cols) {
    for (int i = 0; i < rows; i++) {
        printf("  %-22s", i == 0 ? name : "");
        for (int j = 0; j < cols; j++) printf(" %8.4f", x[i * cols + j]);
        printf("\n");
    }
}

static int put(void *file, const char *text, size_t n) { return fwrite(text, 1, n, (FILE *)file) != n; }

static attn_heatmap heatmap(attn_view values) {
    attn_heatmap map = {0};
    map.values = values;
    map.x_label = "Keys";
    map.y_label = "Queries";
    return map;
}

/* What the descriptor masks out of a picture of weights [batch,queries,keys] is hatched, unlike weights of 0. */
static void hatch(attn_heatmap *map, const attn_desc *d, int batch, int queries, int keys, uint8_t *mask) {
    must(attn_mask(attn_out_typed(ATTN_U8, mask, 4, batch, 1, queries, keys), d, &err));
    map->mask = map->values;
    map->mask.type = ATTN_U8;
    map->mask.data = mask;
}

static void draw(attn_heatmap map, const char *name, const char *title) {
    char path[1024];
    attn_writer writer = {put, stdout};
    map.terminal = getenv("COLORTERM") ? ATTN_TERMINAL_TRUECOLOR : ATTN_TERMINAL_ASCII;
    must(attn_heatmap_ansi(&map, writer, &err));
    map.title = title;
    snprintf(path, sizeof path, "%s/textbook_%s.svg", directory, name);
    FILE *file = fopen(path, "wb");
    if (file) {
        writer.user = file;
        must(attn_heatmap_svg(&map, writer, &err));
        printf("  written: %s\n\n", path);
    }
    check(file && fclose(file) == 0, path);
}

/* ---- 1. masked softmax: scores beyond a valid length get the weight 0 */
static void masked_softmax(void) {
    static const char *const names[3] = {"no lengths", "lengths [2]", "lengths [2,2]"};
    static const int32_t per_batch[2] = {2, 3}, per_query[2 * 2] = {1, 3, 2, 4};
    float x[2 * 2 * 4], p[2 * 2 * 4]; /* [batch, queries, keys]: for attn.h [batch, 1 head, queries, keys] */
    printf("1. Masked softmax of scores [2,2,4]\n");
    fill_uniform(x, 16);
    for (int kind = 0; kind < 3; kind++) {
        attn_desc options = blank();
        if (kind == 1) options.key_lengths = attn_view_i32(per_batch, 1, 2, 0, 0, 0);
        if (kind == 2) options.key_lengths = attn_view_i32(per_query, 2, 2, 2, 0, 0);
        must(attn_softmax(attn_view_f32(x, 4, 2, 1, 2, 4), attn_out_f32(p, 4, 2, 1, 2, 4), &options, &err));
        print_rows(names[kind], p, 4, 4);
        for (int row = 0; row < 4; row++) {
            int length = kind == 0 ? 4 : kind == 1 ? per_batch[row / 2] : per_query[row];
            double sum = 0;
            for (int j = 0; j < length; j++) sum += exp(x[row * 4 + j]);
            for (int j = 0; j < 4; j++) {
                double want = j < length ? exp(x[row * 4 + j]) / sum : 0;
                check(fabs(p[row * 4 + j] - want) <= 1e-6 && (j < length || p[row * 4 + j] == 0), names[kind]);
            }
        }
    }
    printf("\n");
}

/* ---- 2. batched matrix product: [2,3,4] x [2,4,6] = [2,3,6] */
static void matrix_product(void) {
    float a[2 * 3 * 4], b[2 * 4 * 6], c[2 * 3 * 6];
    fill_normal(a, 24);
    fill_normal(b, 48);
    must(attn_bmm(attn_view_f32(a, 3, 2, 3, 4, 0), attn_view_f32(b, 3, 2, 4, 6, 0), attn_out_f32(c, 3, 2, 3, 6, 0),
                  NULL, &err));
    printf("2. Batched matrix product: [2,3,4] x [2,4,6] gives [2,3,6]\n");
    print_rows("of the first batch", c, 3, 6);
    printf("\n");
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 6; j++) {
                double want = 0;
                for (int k = 0; k < 4; k++) want += (double)a[(n * 3 + i) * 4 + k] * b[(n * 4 + k) * 6 + j];
                check(fabs(c[(n * 3 + i) * 6 + j] - want) <= 1e-5, "batched matrix product");
            }
}

/* ---- 3. and 4. attention pooling. Two sentences, one query each, ten keys of 2 numbers, the values 0..39 as
   [10,4] shared by both sentences, valid lengths 2 and 6. */
typedef struct pooling {
    float q_additive[2 * 20], q_dot[2 * 2], keys[2 * 10 * 2], values[10 * 4];
    float w_q[8 * 20], w_k[8 * 2], w_v[8];
    int32_t lengths[2];
} pooling;

static pooling make_pooling(void) {
    pooling p;
    fill_normal(p.q_additive, 2 * 20);
    fill_normal(p.q_dot, 2 * 2);
    fill_normal(p.w_q, 8 * 20);
    fill_normal(p.w_k, 8 * 2);
    fill_normal(p.w_v, 8);
    for (int i = 0; i < 2 * 10 * 2; i++) p.keys[i] = 1; /* equal keys: every valid one gets the same weight */
    for (int i = 0; i < 10 * 4; i++) p.values[i] = (float)i;
    p.lengths[0] = 2;
    p.lengths[1] = 6;
    return p;
}

/* out [2,1,1,4], weights [2,1,1,10] */
static attn_desc pooling_desc(const pooling *p, int score, float *out, float *weights) {
    attn_desc d = blank();
    d.score = score;
    d.k = attn_view_bhsd(p->keys, 2, 1, 10, 2);
    d.v = attn_view_bhsd(p->values, 2, 1, 10, 4);
    d.v.stride[0] = 0; /* both sentences read the same values */
    d.key_lengths = attn_view_i32(p->lengths, 1, 2, 0, 0, 0);
    d.out = attn_out_bhsd(out, 2, 1, 1, 4);
    d.weights = attn_out_bhsd(weights, 2, 1, 1, 10);
    if (score == ATTN_SCORE_ADDITIVE) { /* w_v . tanh(W_q q + W_k k), hidden width 8 */
        d.q = attn_view_bhsd(p->q_additive, 2, 1, 1, 20);
        d.w_q = attn_view_f32(p->w_q, 2, 8, 20, 0, 0);
        d.w_k = attn_view_f32(p->w_k, 2, 8, 2, 0, 0);
        d.w_v = attn_view_f32(p->w_v, 1, 8, 0, 0, 0);
    } else {
        d.q = attn_view_bhsd(p->q_dot, 2, 1, 1, 2);
    }
    return d;
}

static const char *const sentence_ticks[2] = {"length 2", "length 6"};
static const float expected[2 * 4] = {2, 3, 4, 5, 10, 11, 12, 13}; /* means of the first 2 and of the first 6 values */

static void equal_keys(const pooling *p, int score, const char *name, const char *title) {
    float out[2 * 4], weights[2 * 10];
    uint8_t mask[2 * 10];
    attn_desc d = pooling_desc(p, score, out, weights);
    forward(&d);
    print_rows("output", out, 2, 4);
    for (int i = 0; i < 8; i++) check(fabs(out[i] - expected[i]) <= 1e-5, "[2,3,4,5], [10,11,12,13]");
    for (int i = 0; i < 20; i++) {
        int length = p->lengths[i / 10];
        check(fabs(weights[i] - (i % 10 < length ? 1.0 / length : 0)) <= 1e-6, "equal keys share the weight");
    }
    attn_heatmap map = heatmap(attn_view_f32(weights, 2, 2, 10, 0, 0));
    hatch(&map, &d, 2, 1, 10, mask);
    map.range_set = 1; /* masked cells do not count for it: it would begin at 1/6 */
    map.range_max = 0.5f;
    map.y_ticks = sentence_ticks;
    draw(map, name, title);
}

/* Dropout is a field that training sets and evaluation leaves at 0. Averaged over many masks the two agree.
 */
static void dropout(const pooling *p) {
    float out[2 * 4], weights[2 * 10], mean[2 * 4] = {0};
    int masks = 4000, wrong = 0;
    attn_desc d = pooling_desc(p, ATTN_SCORE_SCALED_DOT, out, weights);
    d.dropout = 0.5f;
    d.weights_after_dropout = 1;
    for (int seed = 0; seed < masks; seed++) {
        d.seed = (uint64_t)seed;
        forward(&d);
        if (seed == 0) print_rows("training, dropout 0.5", out, 2, 4);
        for (int i = 0; i < 8; i++) mean[i] += out[i] / (float)masks;
        for (int i = 0; i < 20; i++) { /* dropped, or doubled to make up for the dropped ones */
            double kept = i % 10 < p->lengths[i / 10] ? 2.0 / p->lengths[i / 10] : 0;
            wrong += !(weights[i] == 0 || fabs(weights[i] - kept) <= 1e-6);
        }
    }
    print_rows("mean of 4000 masks", mean, 2, 4);
    printf("\n");
    check(wrong == 0, "under dropout 0.5 a weight is 0 or doubled");
    for (int i = 0; i < 8; i++) check(fabs(mean[i] - expected[i]) <= 0.5, "dropout keeps the mean");
}

/* ---- 5. a padded batch: three sentences of 4, 3 and 2 words in one array [3,4,8] */
static void padded_batch(void) {
    static const char *const sentences[3] = {"the tide comes in", "gulls cry out", "calm again"};
    static const int32_t lengths[3] = {4, 3, 2};
    float x[3 * 4 * 8], out[3 * 4 * 8], weights[3 * 4 * 4];
    uint8_t mask[3 * 4 * 4];
    attn_desc d = blank();
    fill_normal(x, 3 * 4 * 8); /* word vectors of 8 numbers */
    for (int b = 0; b < 3; b++)
        for (int c = lengths[b] * 8; c < 4 * 8; c++) x[b * 32 + c] = (float)NAN; /* padding may hold anything */
    d.q = d.k = d.v = attn_view_bhsd(x, 3, 1, 4, 8);                             /* every word looks at all words */
    d.key_lengths = d.query_lengths = attn_view_i32(lengths, 1, 3, 0, 0, 0);
    d.out = attn_out_bhsd(out, 3, 1, 4, 8);
    d.weights = attn_out_bhsd(weights, 3, 1, 4, 4);
    forward(&d);
    printf("5. A padded batch: sentences of 4, 3 and 2 words, the padding filled with NaN\n");
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 4; i++) {
            double sum = 0, beyond = 0;
            for (int j = 0; j < 4; j++) *(j < lengths[b] ? &sum : &beyond) += weights[(b * 4 + i) * 4 + j];
            check(beyond == 0, "padding has no weight");
            check(fabs(sum - (i < lengths[b])) <= 1e-6, "a word's weights sum to 1, those of padding to 0");
        }
    for (int i = 0; i < 3 * 4 * 8; i++) check(isfinite(out[i]), "what is in the padding has no influence");
    attn_heatmap map = heatmap(attn_view_f32(weights, 3, 3, 4, 4, 0));
    hatch(&map, &d, 3, 4, 4, mask);
    map.panel_titles = sentences;
    draw(map, "padded_batch", "A padded batch");
}

/* ---- 5b. sequences in one array: who may attend to whom, as attn_mask tells it. Three documents of 4, 3 and 5
   words lie one after the other; a window; a batch whose padding comes first; two questions about one text. */
#define WORDS 12
static int attended(const uint8_t *picture) {
    int n = 0;
    for (int i = 0; i < WORDS * WORDS; i++) n += picture[i];
    return n;
}

static void sequences(void) {
    static const char *const titles[4] = {"packed documents, causal", "a window of 4", "padding first",
                                          "a shared prefix"};
    static const int32_t starts[3] = {0, 4, 7}, lengths[3] = {4, 3, 5}, after_padding[1] = {5};
    static const int32_t questions[2] = {0, 6}, words[2] = {5, 4}, text[2] = {0, 0}, text_words[2] = {7, 7};
    static uint8_t pictures[4][WORDS * WORDS];
    attn_desc d[4] = {{0}};
    d[0].query_starts = d[0].key_starts = attn_view_i32(starts, 1, 3, 0, 0, 0);
    d[0].query_lengths = d[0].key_lengths = attn_view_i32(lengths, 1, 3, 0, 0, 0);
    d[0].causal = d[1].causal = d[2].causal = 1; /* each word sees those before it and itself, */
    d[1].window = 1;
    d[1].window_left = 3; /* or only the three before it */
    d[2].query_starts = d[2].key_starts = attn_view_i32(after_padding, 1, 1, 0, 0, 0);
    d[3].query_starts = attn_view_i32(questions, 1, 2, 0, 0, 0);
    d[3].query_lengths = attn_view_i32(words, 1, 2, 0, 0, 0);
    d[3].key_starts = attn_view_i32(text, 1, 2, 0, 0, 0);
    d[3].key_lengths = attn_view_i32(text_words, 1, 2, 0, 0, 0);
    for (int i = 0; i < 4; i++)
        must(attn_mask(attn_out_typed(ATTN_U8, pictures[i], 4, 1, 1, WORDS, WORDS), &d[i], &err));
    printf("5b. Sequences in one array: which query (row) may attend to which key (column)\n");
    check(attended(pictures[0]) == 4 * 5 / 2 + 3 * 4 / 2 + 5 * 6 / 2, "a document attends to itself, causally");
    check(attended(pictures[1]) == 4 * WORDS - 3 - 2 - 1, "a window of four words");
    check(attended(pictures[2]) == 7 * 8 / 2, "nothing attends to padding");
    check(attended(pictures[3]) == (5 + 4) * 7, "both questions attend to the text");
    attn_heatmap map = heatmap(attn_view_u8(&pictures[0][0], 3, 4, WORDS, WORDS, 0));
    map.mask = map.values;
    map.panel_titles = titles;
    draw(map, "sequences", "Sequences in one array");
}

/* ---- 6. why 1/sqrt(d): q.k of normal vectors has variance d, so that the softmax saturates and its gradient
 * dies */
#define ROWS 64
#define MOST_D 1024

typedef struct saturation {
    double variance; /* of the scores */
    double largest;  /* weight of a row, mean over the rows */
    double gradient; /* sum over i,j of |d p_i / d s_j| = |p_i (delta_ij - p_j)|, mean over the rows */
} saturation;

static saturation saturate(const float *q, const float *k, int d_size, int score) {
    static float scores[ROWS * ROWS], weights[ROWS * ROWS];
    saturation result = {0, 0, 0};
    attn_desc d = blank();
    d.score = score;
    d.q = attn_view_bhsd(q, 1, 1, ROWS, d_size);
    d.k = attn_view_bhsd(k, 1, 1, ROWS, d_size);
    d.scores = attn_out_bhsd(scores, 1, 1, ROWS, ROWS);
    d.weights = attn_out_bhsd(weights, 1, 1, ROWS, ROWS); /* no output wanted: no values needed */
    forward(&d);
    for (int r = 0; r < ROWS; r++) {
        const float *p = weights + r * ROWS;
        double largest = 0;
        for (int i = 0; i < ROWS; i++) {
            result.variance += (double)scores[r * ROWS + i] * scores[r * ROWS + i] / (ROWS * ROWS);
            if (p[i] > largest) largest = p[i];
            for (int j = 0; j < ROWS; j++) result.gradient += fabs(p[i] * ((i == j) - (double)p[j])) / ROWS;
        }
        result.largest += largest / ROWS;
    }
    return result;
}

static void why_sqrt_d(void) {
    static float q[ROWS * MOST_D], k[ROWS * MOST_D];
    printf("6. Why 1/sqrt(d): 64 normal queries and keys of d numbers\n");
    printf("            q.k: variance  largest weight  gradient    q.k/sqrt(d): variance  largest weight  "
           "gradient\n");
    for (int d = 1; d <= MOST_D; d *= 4) {
        fill_normal(q, ROWS * d);
        fill_normal(k, ROWS * d);
        saturation raw = saturate(q, k, d, ATTN_SCORE_DOT);
        saturation scaled = saturate(q, k, d, ATTN_SCORE_SCALED_DOT);
        printf("  d = %4d %15.2f %15.4f %9.4f %24.2f %15.4f %9.4f\n", d, raw.variance, raw.largest, raw.gradient,
               scaled.variance, scaled.largest, scaled.gradient);
        check(raw.variance > 0.5 * d && raw.variance < 2 * d, "the variance of q.k is d");
        check(fabs(scaled.variance - raw.variance / d) <= 1e-4, "the variance of q.k/sqrt(d) is that over d");
        check(d < 256 || (raw.largest > 0.8 && raw.gradient < 0.5), "unscaled, the softmax saturates");
        check(scaled.largest < 0.3 && scaled.gradient > 1.5, "scaled, the softmax does not saturate");
    }
    printf("\n");
}

/* ---- 7. exercises */
static double largest_difference(const float *a, const float *b, int n) {
    double most = 0;
    for (int i = 0; i < n; i++)
        if (most == most && !(fabs((double)a[i] - b[i]) <= most)) most = fabs((double)a[i] - b[i]);
    return most;
}

/* The score of key j in sentence b, straight from the formula. */
static double score_of(const pooling *p, int score, int b, int j) {
    const float *key = p->keys + (b * 10 + j) * 2;
    double sum = 0;
    if (score == ATTN_SCORE_SCALED_DOT)
        return ((double)p->q_dot[2 * b] * key[0] + (double)p->q_dot[2 * b + 1] * key[1]) / sqrt(2.0);
    for (int u = 0; u < 8; u++) {
        double hidden = (double)p->w_k[2 * u] * key[0] + (double)p->w_k[2 * u + 1] * key[1];
        for (int c = 0; c < 20; c++) hidden += (double)p->w_q[20 * u + c] * p->q_additive[20 * b + c];
        sum += p->w_v[u] * tanh(hidden);
    }
    return sum;
}

static void check_weights(const pooling *p, int score, const float *weights) {
    for (int b = 0; b < 2; b++) {
        double mass = 0;
        for (int j = 0; j < p->lengths[b]; j++) mass += exp(score_of(p, score, b, j));
        for (int j = 0; j < p->lengths[b]; j++)
            check(fabs(weights[b * 10 + j] - exp(score_of(p, score, b, j)) / mass) <= 1e-5,
                  "weights of keys that differ");
    }
}

/* Keys that differ: now the two scoring functions give two pictures. */
static void other_keys(pooling p) {
    static const char *const titles[2] = {"additive", "scaled dot product"};
    float out[2 * 4], weights[2 * 2 * 10]; /* [scoring function, sentence, key] */
    uint8_t mask[2 * 10];
    fill_normal(p.keys, 2 * 10 * 2);
    attn_desc additive = pooling_desc(&p, ATTN_SCORE_ADDITIVE, out, weights);
    attn_desc dot = pooling_desc(&p, ATTN_SCORE_SCALED_DOT, out, weights + 20);
    forward(&additive);
    forward(&dot);
    check_weights(&p, ATTN_SCORE_ADDITIVE, weights);
    check_weights(&p, ATTN_SCORE_SCALED_DOT, weights + 20);
    printf("7a. Keys that differ\n");
    check(largest_difference(weights, weights + 20, 20) > 0.05, "the two heatmaps differ");
    attn_heatmap map = heatmap(attn_view_f32(weights, 3, 2, 2, 10, 0));
    hatch(&map, &dot, 2, 1, 10, mask);
    map.mask.stride[0] = 0; /* both panels have one mask */
    map.panel_titles = titles;
    map.y_ticks = sentence_ticks;
    draw(map, "other_keys", "Keys that differ");
}

/* A vector sum as score, w.(q+k) = w.q + w.k: w.q is the same for all keys of a row and cancels in the
 * softmax. */
static void vector_sum(void) {
    float q[3 * 4], k[5 * 4], w[4], scores[3 * 5], weights[3 * 5];
    fill_normal(q, 12);
    fill_normal(k, 20);
    fill_normal(w, 4);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 5; j++) {
            double sum = 0;
            for (int c = 0; c < 4; c++) sum += w[c] * ((double)q[i * 4 + c] + k[j * 4 + c]);
            scores[i * 5 + j] = (float)sum;
        }
    must(attn_softmax(attn_view_f32(scores, 2, 3, 5, 0, 0), attn_out_f32(weights, 2, 3, 5, 0, 0), NULL, &err));
    printf("7b. A vector sum as score, w.(q+k): different scores, the same weights for every query\n");
    print_rows("scores", scores, 3, 5);
    print_rows("weights", weights, 3, 5);
    printf("\n");
    for (int i = 1; i < 3; i++) {
        check(largest_difference(scores, scores + 5 * i, 5) > 0.01, "the scores depend on the query");
        check(largest_difference(weights, weights + 5 * i, 5) <= 1e-6, "the weights do not");
    }
}

/* weights [6,8] of 6 queries and 8 keys of 3 numbers */
static attn_desc small_desc(const float *q, const float *k, int score, float *weights) {
    attn_desc d = blank();
    d.score = score;
    d.q = attn_view_bhsd(q, 1, 1, 6, 3);
    d.k = attn_view_bhsd(k, 1, 1, 8, 3);
    d.weights = attn_out_bhsd(weights, 1, 1, 6, 8);
    return d;
}

/* exp(-|q-k|^2/2): as |q-k|^2 = |q|^2 - 2 q.k + |k|^2 and |q|^2 cancels, it is a dot product with a bias
   -|k|^2/2 per key. Where all keys have one norm, the bias cancels too. */
static void distance_scores(void) {
    static const char *const titles[3] = {"gaussian", "dot", "dot - |k|^2/2"};
    float q[6 * 3], k[8 * 3], bias[8], weights[3 * 6 * 8];
    fill_normal(q, 18);
    fill_normal(k, 24);
    for (int j = 0; j < 8; j++)
        bias[j] = -0.5f * (k[3 * j] * k[3 * j] + k[3 * j + 1] * k[3 * j + 1] + k[3 * j + 2] * k[3 * j + 2]);
    attn_desc gaussian = small_desc(q, k, ATTN_SCORE_GAUSSIAN, weights);
    attn_desc dot = small_desc(q, k, ATTN_SCORE_DOT, weights + 48);
    attn_desc biased = small_desc(q, k, ATTN_SCORE_DOT, weights + 96);
    biased.bias = attn_view_f32(bias, 1, 8, 0, 0, 0); /* [Sk], broadcast over batch, heads and queries */
    forward(&gaussian);
    forward(&dot);
    forward(&biased);
    printf("7c. Distance as score\n");
    check(largest_difference(weights, weights + 48, 48) > 0.01, "gaussian is not dot for keys of any norm");
    check(largest_difference(weights, weights + 96, 48) <= 1e-5, "gaussian is dot with the keys' norms as bias");
    attn_heatmap map = heatmap(attn_view_f32(weights, 3, 3, 6, 8, 0));
    map.panel_titles = titles;
    draw(map, "distance", "Distance as score");

    for (int i = 0; i < 24; i++) k[i] /= sqrtf(-2 * bias[i / 3]); /* keys of norm 1 */
    forward(&gaussian);
    forward(&dot);
    double difference = largest_difference(weights, weights + 48, 48);
    printf("  with keys of norm 1 gaussian and dot differ by %.1e\n\n", difference);
    check(difference <= 1e-5, "for keys of one norm gaussian is dot");
}

/* q M k: queries of 3 numbers, keys of 5. The same as the dot product of M^T q with k. */
static void bilinear(void) {
    float q[6 * 3], k[8 * 5], m[3 * 5], projected[6 * 5], weights[6 * 8], other[6 * 8];
    fill_normal(q, 18);
    fill_normal(k, 40);
    fill_normal(m, 15);
    attn_desc d = blank();
    d.score = ATTN_SCORE_BILINEAR;
    d.q = attn_view_bhsd(q, 1, 1, 6, 3);
    d.k = attn_view_bhsd(k, 1, 1, 8, 5);
    d.bilinear = attn_view_f32(m, 2, 3, 5, 0, 0);
    d.weights = attn_out_bhsd(weights, 1, 1, 6, 8);
    forward(&d);
    must(attn_bmm(attn_view_f32(q, 2, 6, 3, 0, 0), d.bilinear, attn_out_f32(projected, 2, 6, 5, 0, 0), NULL, &err));
    attn_desc dot = blank();
    dot.score = ATTN_SCORE_DOT;
    dot.q = attn_view_bhsd(projected, 1, 1, 6, 5);
    dot.k = d.k;
    dot.weights = attn_out_bhsd(other, 1, 1, 6, 8);
    forward(&dot);
    printf("7d. Bilinear scores q M k, queries of 3 numbers and keys of 5\n");
    check(largest_difference(weights, other, 48) <= 1e-5, "bilinear is the dot product of projected queries");
    draw(heatmap(attn_view_f32(weights, 2, 6, 8, 0, 0)), "bilinear", "Bilinear scores");
}

/* What each scoring function costs: n queries and n keys of 64 numbers, 64 hidden units. Operations are
   multiplications and additions; bytes are those of the operands and the result, each once, and what they
   would be with the tensors of a step-by-step program written and read: scores and weights [n,n], for
   additive [n,n,64] as well. */
#define WIDTH 64
#define MOST_N 1024

static double milliseconds(const attn_desc *d) { /* of one call */
    clock_t start = clock();
    int calls = 0;
    do {
        forward(d);
        calls++;
    } while (clock() - start < CLOCKS_PER_SEC / 50);
    return 1000.0 * (double)(clock() - start) / CLOCKS_PER_SEC / calls;
}

static void cost_row(const attn_desc *d, const char *name, double n) {
    double operations = n * n * 4 * WIDTH, bytes = 4 * 4 * n * WIDTH, tensors = 2 * 2 * 4 * n * n;
    if (d->score == ATTN_SCORE_COSINE) operations += 2 * 2 * n * WIDTH + n * n;
    if (d->score == ATTN_SCORE_GAUSSIAN) operations += n * n * WIDTH;
    if (d->score == ATTN_SCORE_BILINEAR) operations += 2 * n * WIDTH * WIDTH, bytes += 4 * WIDTH * WIDTH;
    if (d->score == ATTN_SCORE_ADDITIVE) {
        operations += 2 * 2 * n * WIDTH * WIDTH + n * n * WIDTH; /* two projections, a sum; tanh counts as nothing */
        bytes += 4 * (2 * WIDTH * WIDTH + WIDTH);
        tensors += 2 * 4 * n * n * WIDTH;
    }
    printf("  %-20s %5.0f %9.3f %12.2f %12.1f %20.1f\n", name, n, milliseconds(d), operations / 1e6, bytes / 1024,
           (bytes + tensors) / 1024);
}

static void costs(void) {
#define ATTN_X(id, name, bound) name,
    static const char *const names[ATTN_SCORE_COUNT] = {ATTN_SCORE_LIST(ATTN_X)};
#undef ATTN_X
    static const int scores[] = {ATTN_SCORE_DOT,      ATTN_SCORE_SCALED_DOT, ATTN_SCORE_COSINE,
                                 ATTN_SCORE_BILINEAR, ATTN_SCORE_ADDITIVE,   ATTN_SCORE_GAUSSIAN};
    static float q[MOST_N * WIDTH], k[MOST_N * WIDTH], v[MOST_N * WIDTH], out[MOST_N * WIDTH];
    static float m[WIDTH * WIDTH], w_q[WIDTH * WIDTH], w_k[WIDTH * WIDTH], w_v[WIDTH];
    fill_normal(q, MOST_N * WIDTH);
    fill_normal(k, MOST_N * WIDTH);
    fill_normal(v, MOST_N * WIDTH);
    fill_normal(m, WIDTH * WIDTH);
    fill_normal(w_q, WIDTH * WIDTH);
    fill_normal(w_k, WIDTH * WIDTH);
    fill_normal(w_v, WIDTH);
    printf("7e. What a scoring function costs: n queries, n keys, 64 numbers each\n");
    printf("  score                    n  ms a call   operations       bytes       with the tensors in\n");
    printf("                                          in millions        in KB        memory, in KB\n");
    for (size_t s = 0; s < sizeof scores / sizeof *scores; s++)
        for (int n = 64; n <= MOST_N; n *= 4) {
            attn_desc d = blank();
            d.score = scores[s];
            d.q = attn_view_bhsd(q, 1, 1, n, WIDTH);
            d.k = attn_view_bhsd(k, 1, 1, n, WIDTH);
            d.v = attn_view_bhsd(v, 1, 1, n, WIDTH);
            d.out = attn_out_bhsd(out, 1, 1, n, WIDTH);
            if (d.score == ATTN_SCORE_BILINEAR) d.bilinear = attn_view_f32(m, 2, WIDTH, WIDTH, 0, 0);
            if (d.score == ATTN_SCORE_ADDITIVE) {
                d.w_q = attn_view_f32(w_q, 2, WIDTH, WIDTH, 0, 0);
                d.w_k = attn_view_f32(w_k, 2, WIDTH, WIDTH, 0, 0);
                d.w_v = attn_view_f32(w_v, 1, WIDTH, 0, 0, 0);
            }
            cost_row(&d, names[d.score], n);
        }
    printf("\n");
}

int main(int argc, char **argv) {
    if (argc > 1) directory = argv[1];
    masked_softmax();
    matrix_product();
    pooling p = make_pooling();
    printf("3. Additive attention: queries [2,1,20], keys [2,10,2], values [2,10,4], lengths 2 and 6\n");
    equal_keys(&p, ATTN_SCORE_ADDITIVE, "additive", "Additive attention");
    printf("4. Scaled dot product attention: queries [2,1,2], the same keys, values and lengths\n");
    equal_keys(&p, ATTN_SCORE_SCALED_DOT, "scaled_dot", "Scaled dot product attention");
    dropout(&p);
    padded_batch();
    sequences();
    why_sqrt_d();
    other_keys(p);
    vector_sum();
    distance_scores();
    bilinear();
    costs();
    printf("%d checks, %d wrong\n", checks, failures);
    return failures || fflush(stdout) || ferror(stdout); /* an output that is lost fails, too */
}
