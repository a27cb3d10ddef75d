/* peers.c - what peers.py calls through ctypes: attn.h, attention on OpenBLAS, plain loops, a read probe; and the clock
   around them, so that no call into C is timed. One process runs one job, on inputs that Python owns.
   LOOP_ONLY leaves the additive loop alone, to be built with other flags. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef struct job {
    int32_t kind, batch, heads, kv_heads, queries, keys, d, dv, causal, window, score, threads, isa;
    const float *q, *k, *v, *bias, *w_v; /* [B,H,Sq,D] [B,Hkv,Sk,D] [B,Hkv,Sk,Dv] [H,Sq,Sk] [D] */
    const uint8_t *mask;                 /* [Sq,Sk] */
    const int32_t *lengths;              /* [B] */
    float *out, *weights;                /* [B,H,Sq,Dv] [B,H,Sq,Sk] */
} job;

/* ---- additive attention as it is written down: three loops and a softmax */
#ifdef LOOP_ONLY
void additive_loop(const job *j) {
    float weight[4096], sum, largest;
    int i, n, c;
    for (i = 0; i < j->queries; i++) {
        const float *q = j->q + (size_t)i * (size_t)j->d, *w = j->w_v;
        float *out = j->out + (size_t)i * (size_t)j->dv;
        for (largest = -1e30f, n = 0; n < j->keys; n++) {
            const float *k = j->k + (size_t)n * (size_t)j->d;
            for (sum = 0, c = 0; c < j->d; c++) sum += w[c] * tanhf(q[c] + k[c]);
            weight[n] = sum;
            if (sum > largest) largest = sum;
        }
        for (sum = 0, n = 0; n < j->keys; n++) sum += weight[n] = expf(weight[n] - largest);
        for (c = 0; c < j->dv; c++) out[c] = 0;
        for (n = 0; n < j->keys; n++)
            for (c = 0; c < j->dv; c++) out[c] += weight[n] / sum * j->v[(size_t)n * (size_t)j->dv + (size_t)c];
    }
}
#else
#include "../attn.h"
#include "pool.h"
#include <cblas.h>
#include <string.h>
#include <time.h>

static pool workers;


void start(const job *j) { pool_start(&workers, j->threads); }

/* Seconds of `count` calls, of this process where one thread works, else on the clock on the wall. */
double seconds(void (*call)(const job *), const job *j, int count, int wall) {
    clockid_t clock = wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID;
    struct timespec from, to;
    clock_gettime(clock, &from);
    while (count-- > 0) call(j);
    clock_gettime(clock, &to);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

/* ---- attn.h: the descriptor is filled once, as a program would */
static attn_desc desc;
static attn_view left, right;

int attn_start(const job *j) {
    size_t bytes = 0;
    attn_status status;
    start(j);
    desc.isa = j->isa;
    desc.parallel.run = pool_run, desc.parallel.user = &workers, desc.parallel.workers = j->threads;
    if (j->mask) desc.mask = attn_view_u8(j->mask, 2, j->queries, j->keys, 0, 0);
    if (j->kind == 'b') {
        left = attn_view_f32(j->q, 3, j->heads, j->queries, j->d, 0);
        right = attn_view_f32(j->k, 3, j->heads, j->d, j->keys, 0);
        desc.out = attn_out_f32(j->out, 3, j->heads, j->queries, j->keys, 0);
        status = attn_bmm_workspace_size(left, right, desc.out, &desc, &bytes, NULL);
    } else if (j->kind == 's') {
        left = attn_view_f32(j->q, 2, j->queries, j->keys, 0, 0);
        desc.out = attn_out_f32(j->out, 2, j->queries, j->keys, 0, 0);
        status = attn_softmax_workspace_size(left, desc.out, &desc, &bytes, NULL);
    } else {
        desc.q = attn_view_bhsd(j->q, j->batch, j->heads, j->queries, j->d);
        desc.k = attn_view_bhsd(j->k, j->batch, j->kv_heads, j->keys, j->d);
        desc.v = attn_view_bhsd(j->v, j->batch, j->kv_heads, j->keys, j->dv);
        desc.out = attn_out_bhsd(j->out, j->batch, j->heads, j->queries, j->dv);
        if (j->weights) desc.weights = attn_out_bhsd(j->weights, j->batch, j->heads, j->queries, j->keys);
        if (j->bias) desc.bias = attn_view_f32(j->bias, 3, j->heads, j->queries, j->keys, 0);
        if (j->w_v) desc.w_v = attn_view_f32(j->w_v, 1, j->d, 0, 0, 0);
        if (j->lengths) desc.key_lengths = attn_view_i32(j->lengths, 1, j->batch, 0, 0, 0);
        desc.causal = j->causal, desc.score = j->score;
        desc.window = j->window > 0, desc.window_left = j->window, desc.window_right = ATTN_UNBOUNDED;
        status = attn_workspace_size(&desc, &bytes, NULL);
    }
    desc.workspace = malloc(bytes + 1), desc.workspace_bytes = bytes;
    return status;
}
void attn_call(const job *j) {
    if (j->kind == 'b') attn_bmm(left, right, desc.out, &desc, NULL);
    else if (j->kind == 's') attn_softmax(left, desc.out, &desc, NULL);
    else attn_forward(&desc, NULL);
}

/* ---- blocked attention on sgemm: scores of a block of queries and a block of keys, their softmax, times V. Heads that
   share keys are folded into one product. */
static int query_block, key_block;
static float *scratch[64];

static inline float exp_of(float x) { /* x <= 0; 2 ulp */
    const float log2e = 1.44269504f;
    float n, f;
    int32_t bits;
    x = x < -87 ? -87 : x;
    n = __builtin_rintf(x * log2e), f = x * log2e - n;
    bits = ((int32_t)n + 127) << 23;
    memcpy(&n, &bits, 4);
    f = 1 + f * (0.693147180f + f * (0.240226512f + f * (0.0555041086f + f * (0.00961812911f + f * (0.00133335581f +
            f * 0.000154035304f)))));
    return n * f;
}

static void block_softmax(const job *j, float *s, int64_t row, int first, int n, float *largest, float *sum, float *out) {
    int64_t head = row / j->queries, query = row % j->queries;
    int from = 0, to = n, c;
    float most = *largest, total = 0, alpha;
    if (j->lengths && to > j->lengths[head / j->heads] - first) to = j->lengths[head / j->heads] - first;
    if (j->causal && to > query + 1 - first) to = (int)query + 1 - first;
    if (to < 0) to = 0;
    if (j->bias) {
        const float *bias = j->bias + row * j->keys + first;
        for (c = 0; c < to; c++) s[c] += bias[c];
    }
    if (j->mask) {
        const uint8_t *mask = j->mask + query * j->keys + first;
        for (c = 0; c < to; c++) s[c] = mask[c] ? s[c] : -1e30f;
    }
#pragma omp simd reduction(max : most)
    for (c = from; c < to; c++) most = s[c] > most ? s[c] : most;
#pragma omp simd reduction(+ : total)
    for (c = from; c < to; c++) total += s[c] = exp_of(s[c] - most);
    memset(s + to, 0, (size_t)(n - to) * sizeof *s);
    alpha = exp_of(*largest - most);
    *sum = *sum * alpha + total, *largest = most;
    if (first)
        for (c = 0; c < j->dv; c++) out[c] *= alpha;
}

static void blas_task(void *arg, int64_t index, int32_t worker) {
    const job *j = (const job *)arg;
    int fold = j->heads / j->kv_heads, rows = fold * j->queries, blocks = (rows + query_block - 1) / query_block;
    int64_t head = index / blocks, begin = index % blocks * query_block;
    int m = (int)(begin + query_block < rows ? query_block : rows - begin), keys = j->keys, first, i, c;
    const float *q = j->q + (head * rows + begin) * j->d, *k = j->k + head * keys * j->d, *v = j->v + head * keys * j->dv;
    float *out = j->out + (head * rows + begin) * j->dv, *sum = scratch[worker], *largest = sum + query_block;
    float scale = 1 / sqrtf((float)j->d), *weights = j->weights ? j->weights + (head * rows + begin) * keys : NULL;
    if (j->causal && begin + m < keys) keys = (int)begin + m;
    if (j->lengths && j->lengths[head / j->kv_heads] < keys) keys = j->lengths[head / j->kv_heads];
    for (i = 0; i < m; i++) sum[i] = 0, largest[i] = -1e30f;
    for (first = 0; first < keys; first += key_block) {
        int n = first + key_block < keys ? key_block : keys - first;
        float *s = weights ? weights : largest + query_block;
        if (m == 1)
            cblas_sgemv(CblasRowMajor, CblasNoTrans, n, j->d, scale, k + (size_t)first * (size_t)j->d, j->d, q, 1, 0, s, 1);
        else
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, j->d, scale, q, j->d,
                        k + (size_t)first * (size_t)j->d, j->d, 0, s, n);
        for (i = 0; i < m; i++)
            block_softmax(j, s + (size_t)i * (size_t)n, head * rows + begin + i, first, n, largest + i, sum + i,
                          out + (size_t)i * (size_t)j->dv);
        if (m == 1)
            cblas_sgemv(CblasRowMajor, CblasTrans, n, j->dv, 1, v + (size_t)first * (size_t)j->dv, j->dv, s, 1, first > 0, out, 1);
        else
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, j->dv, n, 1, s, n,
                        v + (size_t)first * (size_t)j->dv, j->dv, first > 0, out, j->dv);
    }
    for (i = 0; i < m; i++) {
        for (c = 0; c < j->dv; c++) out[i * j->dv + c] /= sum[i];
        for (c = 0; weights && c < j->keys; c++) weights[(size_t)i * (size_t)j->keys + (size_t)c] /= sum[i];
    }
}
static void blas_attention(const job *j, int queries, int keys) {
    int rows = j->heads / j->kv_heads * j->queries, i;
    query_block = queries < rows ? queries : rows, key_block = keys < j->keys ? keys : j->keys;
    for (i = 0; i < workers.threads; i++)
        if (!scratch[i]) scratch[i] = (float *)malloc((size_t)query_block * ((size_t)key_block + 2) * sizeof(float));
    pool_run(&workers, (int64_t)j->batch * j->kv_heads * ((rows + query_block - 1) / query_block), blas_task, (void *)j);
}
void blas_flash(const job *j) { blas_attention(j, 256, 512); }
void blas_full(const job *j) { blas_attention(j, 1 << 20, 1 << 20); }

static void blas_bmm_task(void *arg, int64_t i, int32_t worker) {
    const job *j = (const job *)arg;
    (void)worker;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, j->queries, j->keys, j->d, 1, j->q + i * j->queries * j->d, j->d,
                j->k + i * j->d * j->keys, j->keys, 0, j->out + i * j->queries * j->keys, j->keys);
}
void blas_bmm(const job *j) { pool_run(&workers, j->heads, blas_bmm_task, (void *)j); }

/* ---- reading K and V once, in as many parts as threads */
static void read_task(void *arg, int64_t i, int32_t worker) {
    const job *j = (const job *)arg;
    size_t n = (size_t)j->batch * (size_t)j->kv_heads * (size_t)j->keys * (size_t)j->d / (size_t)j->threads, c;
    const int32_t *k = (const int32_t *)j->k + (size_t)i * n, *v = (const int32_t *)j->v + (size_t)i * n;
    int32_t sum = 0;
    for (c = 0; c < n; c++) sum += k[c];
    for (c = 0; c < n; c++) sum += v[c];
    ((volatile float *)j->out)[worker] = (float)sum;
}
void read_probe(const job *j) { pool_run(&workers, j->threads, read_task, (void *)j); }
#endif
