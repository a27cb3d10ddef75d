/* measure.h - what the programs of bench/ share: clock, median, a job's data, the job as a call of attn.h, the
   operations and bytes it takes, a read probe, the multiply-adds that a core can make. Include after attn.h. */
#include "pool.h"
#include "work.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Seconds: of this process where one thread works, so that a neighbour's slices do not count; else on the wall. */
static inline double seconds_now(int wall) {
    struct timespec t;
#ifdef __wasi__ /* has no clock of the process */
    (void)wall;
    clock_gettime(CLOCK_MONOTONIC, &t);
#else
    clock_gettime(wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
#endif
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Calls a second of f(arg), called for MEASURE_LEAST. */
static const double MEASURE_LEAST = 4e-3;
static inline double rate(void (*f)(void *), void *arg, int wall) {
    double start = seconds_now(wall), seconds;
    int calls = 0, batch = 1;
    do {
        for (int i = 0; i < batch; i++) f(arg);
        calls += batch, batch *= 2; /* the clock itself takes as long as a tiny call */
    } while ((seconds = seconds_now(wall) - start) < MEASURE_LEAST);
    return calls / seconds;
}

static inline int measure_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static inline double median(double *values, int n) { /* sorts them */
    qsort(values, (size_t)n, sizeof *values, measure_ascending);
    return values[n / 2];
}

static inline const char *cpu_name(void) {
    static char name[160] = "unknown CPU";
    char line[256], model[100] = "";
    int family = 0, number = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') { /* the first core's */
        sscanf(line, "model name : %99[^\n]", model);
        sscanf(line, "cpu family : %d", &family), sscanf(line, "model : %d", &number);
    }
    if (f) fclose(f);
    if (model[0]) snprintf(name, sizeof name, "%s (family %d, model %d)", model, family, number);
    return name;
}

static inline void stop(const char *what) {
    printf("bench: %s\n", what);
    exit(1);
}
static inline void *must_have(size_t bytes) {
    void *p = malloc(bytes + 1);
    if (!p) stop("out of memory");
    return p;
}

/* ---- a job's data */
static inline size_t elements(int64_t a, int64_t b, int64_t c, int64_t d) { return (size_t)(a * b * c * d); }
static inline float *random_floats(size_t n) { /* uniform, variance 1 */
    static uint32_t state = 1;
    float *p = (float *)must_have(n * sizeof *p);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = ((float)(state >> 8) / 8388608.0f - 1) * 1.7320508f;
    }
    return p;
}
static inline float *random_matrix(int32_t n) { /* keeps the variance of what it is multiplied with */
    float *p = random_floats(elements(n, n, 1, 1));
    for (size_t i = 0; i < elements(n, n, 1, 1); i++) p[i] /= sqrtf((float)n);
    return p;
}
static inline int has_gradients(const job *j) { return j->kind == 'g' || j->kind == 't'; }
static inline void make_data(job *j) {
    size_t pairs = elements(j->batch, j->heads, j->queries, j->keys), d = (size_t)j->d;
    size_t queries = elements(j->batch, j->heads, j->queries, j->d);
    size_t outs = elements(j->batch, j->heads, j->queries, j->dv);
    size_t keys = elements(j->batch, j->kv_heads, j->keys, j->d);
    size_t values = elements(j->batch, j->kv_heads, j->keys, j->dv);
    j->q = random_floats(j->kind == 's' ? pairs : queries);
    j->k = random_floats(keys);
    j->v = random_floats(values);
    j->out = random_floats(j->kind == 's' || j->kind == 'b' ? pairs : outs);
    if (j->score == ATTN_SCORE_ADDITIVE) j->w_v = random_floats(d);
    if (j->biased) j->bias = random_floats(pairs);
    if (j->weighed) j->weights = random_floats(pairs);
    if (j->masked) {
        size_t n = elements(j->queries, j->keys, 1, 1);
        uint8_t *mask = (uint8_t *)must_have(n);
        float *coin = random_floats(n);
        for (size_t i = 0; i < n; i++) mask[i] = coin[i] > 0;
        free(coin);
        j->mask = mask;
    }
    if (j->projected) j->w_q = random_matrix(j->d), j->w_k = random_matrix(j->d), j->hidden_bias = random_floats(d);
    if (!has_gradients(j)) return;
    j->d_out = random_floats(outs), j->stats = random_floats(elements(j->batch, j->heads, j->queries, 2));
    j->d_q = random_floats(queries), j->d_k = random_floats(keys), j->d_v = random_floats(values);
    if (j->biased) j->d_bias = random_floats(pairs);
    if (j->score == ATTN_SCORE_ADDITIVE) j->d_w_v = random_floats(d);
    if (j->projected)
        j->d_w_q = random_floats(d * d), j->d_w_k = random_floats(d * d), j->d_hidden_bias = random_floats(d);
}
static inline void free_data(job *j) {
    free((void *)j->q), free((void *)j->k), free((void *)j->v), free((void *)j->bias), free((void *)j->w_v);
    free((void *)j->w_q), free((void *)j->w_k), free((void *)j->hidden_bias), free((void *)j->d_out);
    free((void *)j->mask), free(j->out), free(j->weights), free(j->stats);
    free(j->d_q), free(j->d_k), free(j->d_v), free(j->d_bias);
    free(j->d_w_v), free(j->d_w_q), free(j->d_w_k), free(j->d_hidden_bias);
}

/* ---- a job as a call of attn.h: the descriptor is filled once, as a program would */
typedef struct call {
    attn_desc desc;
    attn_grad grad;
    attn_view left, right;
    int32_t kind;
} call;

static inline void call_add_gradients(call *c, const job *j) {
    attn_grad *g = &c->grad;
    c->desc.stats = attn_out_bhsd(j->stats, j->batch, j->heads, j->queries, 2);
    g->d_out = attn_view_bhsd(j->d_out, j->batch, j->heads, j->queries, j->dv);
    g->dq = attn_out_bhsd(j->d_q, j->batch, j->heads, j->queries, j->d);
    g->dk = attn_out_bhsd(j->d_k, j->batch, j->kv_heads, j->keys, j->d);
    g->dv = attn_out_bhsd(j->d_v, j->batch, j->kv_heads, j->keys, j->dv);
    if (j->d_bias) g->d_bias = attn_out_f32(j->d_bias, 3, j->heads, j->queries, j->keys, 0);
    if (j->d_w_v) g->d_w_v = attn_out_f32(j->d_w_v, 1, j->d, 0, 0, 0);
    if (j->d_w_q) g->d_w_q = attn_out_f32(j->d_w_q, 2, j->d, j->d, 0, 0);
    if (j->d_w_k) g->d_w_k = attn_out_f32(j->d_w_k, 2, j->d, j->d, 0, 0);
    if (j->d_hidden_bias) g->d_hidden_bias = attn_out_f32(j->d_hidden_bias, 1, j->d, 0, 0, 0);
}

/* Of the backward pass alone it runs the forward pass before. */
static inline attn_status call_prepare(call *c, const job *j, pool *threads) {
    attn_desc *d = &c->desc;
    size_t bytes = 0, backward = 0;
    attn_status status;
    memset(c, 0, sizeof *c);
    c->kind = j->kind;
    d->isa = j->isa;
    d->parallel.run = pool_run, d->parallel.user = threads, d->parallel.workers = j->threads;
    if (j->mask) d->mask = attn_view_u8(j->mask, 2, j->queries, j->keys, 0, 0);
    if (j->kind == 'b') {
        c->left = attn_view_f32(j->q, 3, j->heads, j->queries, j->d, 0);
        c->right = j->transposed ? attn_view_swap(attn_view_f32(j->k, 3, j->heads, j->keys, j->d, 0), 1, 2)
                                 : attn_view_f32(j->k, 3, j->heads, j->d, j->keys, 0);
        d->out = attn_out_f32(j->out, 3, j->heads, j->queries, j->keys, 0);
        status = attn_bmm_workspace_size(c->left, c->right, d->out, d, &bytes, NULL);
    } else if (j->kind == 's') {
        c->left = attn_view_f32(j->q, 2, j->queries, j->keys, 0, 0);
        d->out = attn_out_f32(j->out, 2, j->queries, j->keys, 0, 0);
        status = attn_softmax_workspace_size(c->left, d->out, d, &bytes, NULL);
    } else {
        d->q = attn_view_bhsd(j->q, j->batch, j->heads, j->queries, j->d);
        d->k = attn_view_bhsd(j->k, j->batch, j->kv_heads, j->keys, j->d);
        d->v = attn_view_bhsd(j->v, j->batch, j->kv_heads, j->keys, j->dv);
        d->out = attn_out_bhsd(j->out, j->batch, j->heads, j->queries, j->dv);
        if (j->weights) d->weights = attn_out_bhsd(j->weights, j->batch, j->heads, j->queries, j->keys);
        if (j->bias) d->bias = attn_view_f32(j->bias, 3, j->heads, j->queries, j->keys, 0);
        if (j->w_v) d->w_v = attn_view_f32(j->w_v, 1, j->d, 0, 0, 0);
        if (j->w_q) d->w_q = attn_view_f32(j->w_q, 2, j->d, j->d, 0, 0);
        if (j->w_k) d->w_k = attn_view_f32(j->w_k, 2, j->d, j->d, 0, 0);
        if (j->hidden_bias) d->hidden_bias = attn_view_f32(j->hidden_bias, 1, j->d, 0, 0, 0);
        if (j->lengths) d->key_lengths = attn_view_i32(j->lengths, 1, j->batch, 0, 0, 0);
        d->causal = j->causal, d->score = j->score, d->dropout = j->dropout;
        if (j->window > 0) d->window = 1, d->window_left = j->window, d->window_right = ATTN_UNBOUNDED;
        if (has_gradients(j)) call_add_gradients(c, j);
        status = attn_workspace_size(d, &bytes, NULL);
        if (status == ATTN_OK && has_gradients(j)) status = attn_backward_workspace_size(d, &c->grad, &backward, NULL);
        if (bytes < backward) bytes = backward;
    }
    d->workspace = malloc(bytes + 1), d->workspace_bytes = bytes;
    if (status == ATTN_OK && j->kind == 'g') status = attn_forward(d, NULL);
    if (j->kind == 'g') d->workspace_bytes = backward;
    return status;
}
static inline attn_status call_run(const call *c) {
    attn_status status = ATTN_OK;
    if (c->kind == 'b') return attn_bmm(c->left, c->right, c->desc.out, &c->desc, NULL);
    if (c->kind == 's') return attn_softmax(c->left, c->desc.out, &c->desc, NULL);
    if (c->kind != 'g') status = attn_forward(&c->desc, NULL);
    if (status == ATTN_OK && (c->kind == 'g' || c->kind == 't')) status = attn_backward(&c->desc, &c->grad, NULL);
    return status;
}

static inline void run_call(void *arg) {
    if (call_run((const call *)arg) != ATTN_OK) stop("attn.h refused the call");
}

/* ---- what it takes */
/* The keys that query i may attend to, but for a mask: from..to-1. */
static inline void keys_allowed(const job *j, int b, int i, int *from, int *to) {
    *from = j->window && i > j->window ? i - j->window : 0;
    *to = j->causal && i + 1 < j->keys ? i + 1 : j->keys;
    if (j->lengths && *to > j->lengths[b]) *to = j->lengths[b];
}
static inline double operations(const job *j) { /* the backward pass: 5/2 of the forward's */
    double pairs = 0, passes = j->kind == 'g' ? 2.5 : j->kind == 't' ? 3.5 : 1;
    int b, i, from, to;
    if (j->kind == 'b') return 2.0 * (double)elements(j->heads, j->queries, j->keys, j->d);
    for (b = 0; b < j->batch; b++)
        for (i = 0; i < j->queries; i++) keys_allowed(j, b, i, &from, &to), pairs += to - from;
    return passes * pairs * j->heads * (j->score == WORK_ADDITIVE ? j->d + 2 * j->dv : 2 * (j->d + j->dv));
}
/* Of work bound by memory, else 0: K and V once, or x, its mask and the result, or the matrix that a row is taken by. */
static inline double bytes_moved(const job *j) {
    if (j->kind == 's') return (double)elements(j->queries, j->keys, 9, 1);
    if (j->kind == 'b') return j->queries == 1 ? 4.0 * (double)elements(j->heads, j->keys, j->d, 1) : 0;
    return j->queries == 1 ? 4.0 * (double)elements(j->batch, j->kv_heads, j->keys, j->d + j->dv) : 0;
}

/* ---- reading two arrays, each thread its part of both */
#if defined(__GNUC__) && defined(__x86_64__)
#define MEASURE_AVX2 __attribute__((target("avx2,fma")))
#else
#define MEASURE_AVX2
#endif
typedef float measure_v8 __attribute__((vector_size(32), aligned(4), may_alias));
/* So many streams: from as many places, 256 bytes of each in turn. */
static inline __attribute__((always_inline)) float read_by_eight(const float *p, size_t n, int streams) {
    measure_v8 sum[8] = {{0}};
    size_t apart = n / (size_t)streams, i;
    for (i = 0; i + 64 <= apart; i += 64)
        for (int s = 0; s < streams; s++) {
            const measure_v8 *x = (const measure_v8 *)(p + (size_t)s * apart + i);
            sum[0] += x[0], sum[1] += x[1], sum[2] += x[2], sum[3] += x[3];
            sum[4] += x[4], sum[5] += x[5], sum[6] += x[6], sum[7] += x[7];
        }
    sum[0] += sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    return sum[0][0] + sum[0][7];
}
static inline float read_plain(const float *p, size_t n, int streams) { return read_by_eight(p, n, streams); }
static inline MEASURE_AVX2 float read_avx2(const float *p, size_t n, int s) { return read_by_eight(p, n, s); }

typedef struct reading {
    const float *part[2];
    size_t floats; /* of each */
    int threads, repeats, streams;
} reading;
enum { MOST_STREAMS = 4 }; /* the memory's speed is the best of 1, 2 and 4 */
static volatile float measure_sink;
static inline void read_task(void *arg, int64_t i, int32_t worker) {
    const reading *r = (const reading *)arg;
    float (*read)(const float *, size_t, int) =
        attn_best_isa() == ATTN_ISA_AVX2 || attn_best_isa() == ATTN_ISA_AVX512 ? read_avx2 : read_plain;
    size_t n = r->floats / (size_t)r->threads;
    int part, repeat;
    (void)worker;
    for (repeat = 0; repeat < r->repeats; repeat++)
        for (part = 0; part < 2; part++) measure_sink = read(r->part[part] + (size_t)i * n, n, r->streams);
}
static inline void read_all(pool *p, const reading *r) { pool_run(p, r->threads, read_task, (void *)r); }

/* ---- peaks: 12 independent chains cover the latency of every machine so far; the barrier keeps each in a register */
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#if defined(__x86_64__)
#define KEEP(v) __asm__ volatile("" : "+v"(v))
#elif defined(__wasm__)
#define KEEP(v) __asm__ volatile("" : "+r"(v))
#else
#define KEEP(v) __asm__ volatile("" : "+w"(v))
#endif
enum { PEAK_ROUNDS = 20000 };

#define PEAK(name, attributes, vector, all_of, step) \
    attributes static void name(void *arg, int64_t task, int32_t worker) { \
        vector a = all_of(0.5f), b = all_of(0.25f), CHAINS(PEAK_DECLARE) end = b; \
        (void)arg, (void)task, (void)worker; \
        for (int i = 0; i < PEAK_ROUNDS; i++) { CHAINS(step) } \
        KEEP(end); \
    }
#define PEAK_DECLARE(n) c##n = b,
#define PEAK_SCALAR(n) \
    c##n = c##n * a + b; \
    KEEP(c##n);
#define PEAK_AVX2(n) \
    c##n = _mm256_fmadd_ps(c##n, a, b); \
    KEEP(c##n);
#define PEAK_AVX512(n) \
    c##n = _mm512_fmadd_ps(c##n, a, b); \
    KEEP(c##n);
#define SAME(x) (x)
#define FOUR(x) \
    { x, x, x, x }
typedef float measure_v4 __attribute__((vector_size(16)));
PEAK(peak_scalar, , float, SAME, PEAK_SCALAR) /* a multiplication and an addition where there is no fused one */
PEAK(peak_four, , measure_v4, FOUR, PEAK_SCALAR)
#ifdef __x86_64__
PEAK(peak_avx2, __attribute__((target("avx2,fma"))), __m256, _mm256_set1_ps, PEAK_AVX2)
PEAK(peak_avx512, __attribute__((target("avx512f"))), __m512, _mm512_set1_ps, PEAK_AVX512)
#else
#define peak_avx2 peak_scalar
#define peak_avx512 peak_scalar
#endif
static const attn_task_fn peaks[] = {NULL, peak_scalar, peak_avx2, peak_avx512, peak_four, peak_four};
/* Operations that one task is. */
static inline double peak_operations(int isa) {
    static const int lanes[] = {0, 1, 8, 16, 4, 4};
    return PEAK_ROUNDS * 12.0 * 2 * lanes[isa];
}
