/* cc -O2 relative_bias.c -lm */
/* A bias by index, as two models have it. T5 (Raffel et al. 2020): the distance between key and query falls into one of
   32 buckets, and each head has a number for each bucket; its scores are not divided by a square root. Swin
   Transformer (Liu et al. 2021): queries and keys are the places of a window of M x M, and each head has a number for
   each of the (2M - 1)^2 ways one place can lie beside another; all windows of a picture share them. Outputs and the
   gradients of both tables are compared with double precision, and two heads' gradients drawn, blue below 0 and red
   above. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, SIZE = 16, BUCKETS = 32, MAX_DISTANCE = 128, TOKENS = 200, WINDOW = 7, WINDOWS = 9 };

static attn_error err;
static int failures;

static void must(attn_status status) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(&err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

static void expect(int holds, const char *what) {
    if (holds) return;
    printf("FAILED: %s\n", what);
    failures++;
}

/* relative_position_bucket of T5: half of the buckets for keys behind the query; of each half the first 8 for one
   distance each, the others for ever longer stretches of distances up to max_distance. A decoder, which looks back
   only, has all buckets for that. */
static int32_t bucket_of(int64_t key_minus_query, int bidirectional, int buckets, int max_distance) {
    int64_t n = -key_minus_query, first = 0;
    if (bidirectional) {
        buckets /= 2;
        first = n < 0 ? buckets : 0;
        n = n < 0 ? -n : n;
    } else if (n < 0) n = 0;
    const int exact = buckets / 2;
    if (n < exact) return (int32_t)(first + n);
    const double far = log((double)n / exact) / log((double)max_distance / exact) * (buckets - exact);
    const int64_t bucket = exact + (int64_t)(far + 1e-9);
    return (int32_t)(first + (bucket < buckets ? bucket : buckets - 1));
}

/* relative_position_index of Swin, [m*m, m*m]: rows apart and columns apart, both counted from 0. */
static void window_indices(int m, int32_t *index) {
    for (int i = 0; i < m * m; i++)
        for (int j = 0; j < m * m; j++)
            index[i * m * m + j] = (i / m - j / m + m - 1) * (2 * m - 1) + i % m - j % m + m - 1;
}

static float uniform(void) { /* the same numbers on every machine */
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / 8388608.0f - 1.0f;
}
static float *numbers(int64_t n) {
    float *x = (float *)malloc((size_t)n * sizeof *x);
    if (!x) exit(1);
    for (int64_t i = 0; i < n; i++) x[i] = uniform();
    return x;
}

static int64_t index_at(const attn_desc *d, int64_t i, int64_t j) {
    const attn_view *v = &d->bias_index;
    return ((const int32_t *)v->data)[i * v->stride[0] + j * v->stride[1]];
}

/* out and the table's gradient in double precision; worst: the largest difference of each */
static void compare(const attn_desc *d, const float *d_out, const float *d_table, double worst[2]) {
    const int64_t n = d->q.size[2], size = d->bias.size[1], batch = d->q.size[0];
    const float *q = (const float *)d->q.data, *k = (const float *)d->k.data, *v = (const float *)d->v.data;
    const float *table = (const float *)d->bias.data, *out = (const float *)d->out.data;
    double *p = (double *)malloc((size_t)n * sizeof *p), *dp = (double *)malloc((size_t)n * sizeof *dp);
    double *want = (double *)calloc((size_t)(HEADS * size), sizeof *want);
    if (!p || !dp || !want) exit(1);
    worst[0] = worst[1] = 0;
    for (int64_t row = 0; row < batch * HEADS * n; row++) {
        const int64_t head = row / n, h = head % HEADS, i = row % n;
        double mass = 0, delta = 0;
        for (int64_t j = 0; j < n; j++) {
            double s = 0, x = 0;
            for (int c = 0; c < SIZE; c++) s += (double)q[row * SIZE + c] * k[(head * n + j) * SIZE + c];
            for (int c = 0; c < SIZE; c++) x += (double)d_out[row * SIZE + c] * v[(head * n + j) * SIZE + c];
            mass += p[j] = exp(s * (double)d->scale + table[h * size + index_at(d, i, j)]);
            dp[j] = x;
        }
        for (int64_t j = 0; j < n; j++) p[j] /= mass, delta += p[j] * dp[j];
        for (int64_t j = 0; j < n; j++) want[h * size + index_at(d, i, j)] += p[j] * (dp[j] - delta);
        for (int c = 0; c < SIZE; c++) {
            double x = 0;
            for (int64_t j = 0; j < n; j++) x += p[j] * v[(head * n + j) * SIZE + c];
            worst[0] = fmax(worst[0], fabs(x - out[row * SIZE + c]));
        }
    }
    for (int64_t x = 0; x < HEADS * size; x++) worst[1] = fmax(worst[1], fabs(want[x] - d_table[x]));
    free(p), free(dp), free(want);
}

static int put(void *file, const char *text, size_t n) { return fwrite(text, 1, n, (FILE *)file) != n; }

/* The gradients of the tables of Swin's first two heads: how many rows a key lies above its query or below it, how many
   columns to its left or right; in the middle it is the query's own place. */
static void draw(const float *d_table) {
    static const char *const titles[] = {"head 0", "head 1"};
    const attn_writer terminal = {put, stdout};
    attn_heatmap map;
    memset(&map, 0, sizeof map);
    map.values = attn_view_f32(d_table, 3, 2, 2 * WINDOW - 1, 2 * WINDOW - 1, 0);
    map.title = "Gradient of a bias table";
    map.y_label = "rows apart";
    map.x_label = "columns apart";
    map.panel_titles = titles;
    map.colormap = ATTN_COLORMAP_DIVERGING;
    map.terminal = getenv("COLORTERM") ? ATTN_TERMINAL_TRUECOLOR : ATTN_TERMINAL_ASCII;
    must(attn_heatmap_ansi(&map, terminal, &err));
}

static void run(const char *name, int64_t batch, int64_t n, int64_t size, float scale, attn_view index) {
    const int64_t all = batch * HEADS * n * SIZE;
    float *q = numbers(all), *k = numbers(all), *v = numbers(all), *d_out = numbers(all), *out = numbers(all);
    float *table = numbers(HEADS * size), *d_table = numbers(HEADS * size);
    double worst[2];
    attn_desc d;
    attn_grad g;
    memset(&d, 0, sizeof d), memset(&g, 0, sizeof g);
    d.q = attn_view_bhsd(q, batch, HEADS, n, SIZE), d.k = attn_view_bhsd(k, batch, HEADS, n, SIZE);
    d.v = attn_view_bhsd(v, batch, HEADS, n, SIZE), d.out = attn_out_bhsd(out, batch, HEADS, n, SIZE);
    d.scale = scale;
    d.bias = attn_view_f32(table, 2, HEADS, size, 0, 0); /* the table of each head */
    d.bias_index = index;                                /* which of its numbers a pair gets */
    must(attn_forward(&d, &err));
    g.d_out = attn_view_bhsd(d_out, batch, HEADS, n, SIZE);
    g.d_bias = attn_out_f32(d_table, 2, HEADS, size, 0, 0);
    must(attn_backward(&d, &g, &err));
    compare(&d, d_out, d_table, worst);
    printf("%s: %ld x %d heads, %ld queries and keys, tables of %ld; out differs by %.1e from double precision, the "
           "tables' gradient by %.1e\n",
           name, (long)batch, HEADS, (long)n, (long)size, worst[0], worst[1]);
    expect(worst[0] < 1e-5 && worst[1] < 1e-3, name);
    if (size == (2 * WINDOW - 1) * (2 * WINDOW - 1)) draw(d_table);
    free(q), free(k), free(v), free(d_out), free(out), free(table), free(d_table);
}

int main(void) {
    /* as the two models' own code computes them */
    static const int32_t distances[] = {0, 1, -1, -7, -8, -12, -16, -127, -128, -1000, 8, 1000};
    static const int32_t two_ways[] = {0, 17, 1, 7, 8, 9, 10, 15, 15, 15, 24, 31};
    static const int32_t backwards[] = {0, 0, 1, 7, 8, 12, 16, 31, 31, 31, 0, 0};
    static const int32_t two_by_two[16] = {4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4};
    int32_t by_distance[2 * TOKENS - 1], window[WINDOW * WINDOW * WINDOW * WINDOW];
    attn_view index;
    for (int n = 0; n < 12; n++) {
        expect(bucket_of(distances[n], 1, BUCKETS, MAX_DISTANCE) == two_ways[n], "a bucket of T5's encoder");
        expect(bucket_of(distances[n], 0, BUCKETS, MAX_DISTANCE) == backwards[n], "a bucket of T5's decoder");
    }
    window_indices(2, window);
    expect(!memcmp(window, two_by_two, sizeof two_by_two), "the indices of a window of 2 x 2");

    /* T5: one vector, of the distances -(TOKENS - 1) .. TOKENS - 1, seen as [Sq,Sk]. Nothing of that size is made. */
    for (int x = 0; x < 2 * TOKENS - 1; x++) by_distance[x] = bucket_of(x - (TOKENS - 1), 1, BUCKETS, MAX_DISTANCE);
    index = attn_view_i32(by_distance + TOKENS - 1, 2, TOKENS, TOKENS, 0, 0);
    index.stride[0] = -1, index.stride[1] = 1;
    run("T5", 1, TOKENS, BUCKETS, 1.0f, index);

    window_indices(WINDOW, window);
    index = attn_view_i32(window, 2, WINDOW * WINDOW, WINDOW * WINDOW, 0, 0);
    run("Swin", WINDOWS, WINDOW * WINDOW, (2 * WINDOW - 1) * (2 * WINDOW - 1), 0.25f, index);
    return failures || fflush(stdout) || ferror(stdout);
}
