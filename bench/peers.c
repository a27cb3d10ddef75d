/* peers.c - what peers.py calls through ctypes: attn.h, attention on OpenBLAS, plain loops, a read probe; and the clock
   around them, so that no call into C is timed. One process runs one job, on inputs that Python owns. */
#include "../attn.h"
#include "measure.h"
#include <math.h>

/* CBLAS, declared here so that this file can be checked where there is no BLAS. */
enum { CblasRowMajor = 101, CblasNoTrans = 111, CblasTrans = 112 };
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc);
void cblas_sgemv(int order, int trans, int m, int n, float alpha, const float *a, int lda, const float *x, int incx,
                 float beta, float *y, int incy);
char *openblas_get_config(void);

static pool workers;

int start(const job *j) { return pool_start(&workers, j->threads), 0; }

/* Arrays of 16 and 8 bits: a table of its own, for other versions of attn.h have none. */
#define DECODE(name, stored_as) \
    {"stored as " name ": one query, 8 heads, 4096 keys d128", SIZES(1, 8, 8, 1, 4096, 128, 128), .type = stored_as}, \
        {"stored as " name ": 8 queries, 8 heads, 4096 keys d128", SIZES(1, 8, 8, 8, 4096, 128, 128), \
         .type = stored_as}, \
        {"stored as " name ": one query, 32 heads on 8, 4096 keys d128", SIZES(1, 32, 8, 1, 4096, 128, 128), \
         .type = stored_as}, \
        {"stored as " name ": 8 queries, 32 heads on 8, 4096 keys d128", SIZES(1, 32, 8, 8, 4096, 128, 128), \
         .type = stored_as}, \
        {"stored as " name ": one query, 8 heads, 32768 keys d128", SIZES(1, 8, 8, 1, 32768, 128, 128), \
         .type = stored_as}, \
        {"stored as " name ": 8 queries, 8 heads, 32768 keys d128", SIZES(1, 8, 8, 8, 32768, 128, 128), \
         .type = stored_as}, \
        {"stored as " name ": one query, 32 heads on 8, 32768 keys d128", SIZES(1, 32, 8, 1, 32768, 128, 128), \
         .type = stored_as}, \
        {"stored as " name ": 8 queries, 32 heads on 8, 32768 keys d128", SIZES(1, 32, 8, 8, 32768, 128, 128), \
         .type = stored_as},
#define PREFILL(name, stored_as) \
    {"stored as " name ": 8x2048 d64", SELF(8, 2048, 64), .type = stored_as}, \
        {"stored as " name ": 8x2048 d128", SELF(8, 2048, 128), .type = stored_as},
#define FAST(name, ...) \
    { "stored as bf16, and its products: " name, __VA_ARGS__, .type = WORK_BF16, .precision = 1 }
static const job typed_table[] = {
    FAST("8x512 d64", SELF(8, 512, 64)),
    FAST("8x512 d128", SELF(8, 512, 128)),
    FAST("8x2048 d64", SELF(8, 2048, 64)),
    FAST("8x2048 d64 causal", SELF(8, 2048, 64), .causal = 1),
    FAST("8x2048 d128", SELF(8, 2048, 128)),
    FAST("8x2048 d128 causal", SELF(8, 2048, 128), .causal = 1),
    FAST("4x4096 d128 causal", SELF(4, 4096, 128), .causal = 1),
    FAST("1x8192 d64", SELF(1, 8192, 64)),
    FAST("1x8192 d128", SELF(1, 8192, 128)),
    FAST("32 heads on 8, 2048 d128 causal", SIZES(1, 32, 8, 2048, 2048, 128, 128), .causal = 1),
    FAST("cross, 8x64 queries, 4096 keys d64", SIZES(1, 8, 8, 64, 4096, 64, 64)),
    FAST("cross, 8x64 queries, 4096 keys d128", SIZES(1, 8, 8, 64, 4096, 128, 128)),
    {"stored as i8, and its products: 8x2048 d64", SELF(8, 2048, 64), .type = WORK_I8, .precision = 1},
    {"stored as i8, and its products: 8x2048 d128", SELF(8, 2048, 128), .type = WORK_I8, .precision = 1},
    FAST("backward, 8x512 d64", SELF(8, 512, 64), .kind = 'g'),
    FAST("backward, 8x2048 d64", SELF(8, 2048, 64), .kind = 'g'),
    FAST("backward, 8x2048 d64 causal", SELF(8, 2048, 64), .kind = 'g', .causal = 1),
    FAST("backward, 8x2048 d128", SELF(8, 2048, 128), .kind = 'g'),
    FAST("backward, 8x2048 d128 causal", SELF(8, 2048, 128), .kind = 'g', .causal = 1),
    FAST("matrix product 512^3", SELF(1, 512, 512), .kind = 'b'),
    FAST("matrix product 128x512x512, b transposed", SIZES(1, 1, 1, 128, 512, 512, 512), .kind = 'b', .transposed = 1),
    FAST("matrix product 16x1024x1024", SIZES(1, 1, 1, 16, 1024, 1024, 1024), .kind = 'b'),
    FAST("matrix product 16x1024x1024, b transposed", SIZES(1, 1, 1, 16, 1024, 1024, 1024), .kind = 'b',
         .transposed = 1),
    FAST("matrix product 1x4096x4096, b transposed", SIZES(1, 1, 1, 1, 4096, 4096, 4096), .kind = 'b', .transposed = 1),
    {"stored as bf16: matrix product 1x1024x1024", SIZES(1, 1, 1, 1, 1024, 1024, 1024), .kind = 'b', .type = WORK_BF16},
    {"stored as bf16: matrix product 16x1024x1024", SIZES(1, 1, 1, 16, 1024, 1024, 1024), .kind = 'b',
     .type = WORK_BF16},
    {"stored as bf16: matrix product 1x1024x1024, b transposed", SIZES(1, 1, 1, 1, 1024, 1024, 1024), .kind = 'b',
     .type = WORK_BF16, .transposed = 1},
    {"stored as i8: matrix product 1x1024x1024, b transposed", SIZES(1, 1, 1, 1, 1024, 1024, 1024), .kind = 'b',
     .type = WORK_I8, .transposed = 1},
    {"stored as i8: matrix product 16x1024x1024, b transposed", SIZES(1, 1, 1, 16, 1024, 1024, 1024), .kind = 'b',
     .type = WORK_I8, .transposed = 1},
    DECODE("f16", WORK_F16) DECODE("bf16", WORK_BF16) DECODE("i8", WORK_I8) DECODE("q8_0", WORK_Q8_0)
        PREFILL("f16", WORK_F16) PREFILL("bf16", WORK_BF16) PREFILL("q8_0", WORK_Q8_0)};
enum { TYPED_COUNT = sizeof typed_table / sizeof *typed_table };

/* Multi-head attention of x [B,S,E], here q, E = d; as torch.nn.Linear has them [E,E], w_q, w_k and, in the places of k
   and v, the matrices of values and results. */
#define MULTI_HEAD(which, b, s, e, h) SIZES(b, h, h, s, s, e, e), .kind = which, .projected = 1
static const job multi_head_table[] = {
    {"multi-head, 1x128 tokens of 512", MULTI_HEAD('m', 1, 128, 512, 8)},
    {"multi-head, 8x128 tokens of 512", MULTI_HEAD('m', 8, 128, 512, 8)},
    {"multi-head, 1x1024 tokens of 1024", MULTI_HEAD('m', 1, 1024, 1024, 16)},
    {"multi-head, one token of 1024", MULTI_HEAD('m', 1, 1, 1024, 16)},
    {"multi-head, forward+backward, 8x128 tokens of 512", MULTI_HEAD('n', 8, 128, 512, 8)},
    FAST("multi-head, 8x128 tokens of 512", MULTI_HEAD('m', 8, 128, 512, 8)),
    FAST("multi-head, 1x1024 tokens of 1024", MULTI_HEAD('m', 1, 1024, 1024, 16)),
    FAST("multi-head, one token of 1024", MULTI_HEAD('m', 1, 1, 1024, 16)),
};
enum { MULTI_HEAD_COUNT = sizeof multi_head_table / sizeof *multi_head_table };

/* The three tables; NULL at their end. */
const job *table_row(int i) {
    if (i < WORK_COUNT) return &work_table[i];
    if ((i -= WORK_COUNT) < TYPED_COUNT) return &typed_table[i];
    return (i -= TYPED_COUNT) < MULTI_HEAD_COUNT ? &multi_head_table[i] : NULL;
}
double table_operations(int i) {
    const job *j = table_row(i);
    double tokens = (double)j->batch * j->queries;
    if (j->kind != 'm' && j->kind != 'n') return operations(j);
    return (j->kind == 'n' ? 3 : 1) * 4 * tokens * j->d * (2.0 * j->d + j->keys);
}

double seconds(void (*function)(const job *), const job *j, int count, int wall) {
    double from = seconds_now(wall);
    while (count-- > 0) function(j);
    return seconds_now(wall) - from;
}

static call ours;
int attn_start(const job *j) { return start(j), call_prepare(&ours, j, &workers); }
/* ggml's blocks as codes, and their f16 scales, one for each 32. */
static int unpack(const job *j, const void *blocks, int32_t d, attn_view *codes, attn_view *scales) {
    size_t n = elements(j->batch, j->kv_heads, j->keys, d);
    attn_out c = attn_out_typed(ATTN_I8, must_have(n), 4, j->batch, j->kv_heads, j->keys, d);
    attn_out s = attn_out_typed(ATTN_F16, must_have(n / 16), 4, j->batch, j->kv_heads, j->keys, d / 32);
    *codes = attn_view_of(c), *scales = attn_view_of(s);
    return attn_unpack_q8_0(blocks, c, s, NULL);
}
/* Gradients of the row's type, too, after the forward pass. */
static int typed_gradients(const job *j, size_t *bytes) {
    attn_grad *g = &ours.grad;
    size_t backward;
    call_add_gradients(&ours, j);
    g->d_out.type = g->dq.type = g->dk.type = g->dv.type = j->type;
    if (attn_forward(&ours.desc, NULL) || attn_backward_workspace_size(&ours.desc, g, &backward, NULL)) return 1;
    ours.kind = j->kind, *bytes = backward;
    return 0;
}
/* The same with arrays of the row's type. */
int typed_start(const job *j) {
    attn_desc *d = &ours.desc;
    size_t bytes;
    job forward = *j;
    if (j->kind == 'g') forward.kind = 0;
    if (attn_start(&forward)) return 1;
    d->precision = j->precision;
    if (d->precision) attn_enable_amx(NULL); /* where there is none, it runs without */
    if (j->kind == 'b' && j->type == WORK_I8) {
        ours.right.type = j->type;
        d->k_scale = attn_view_f32(j->k_scale, 3, j->heads, j->keys, 1, 0);
    } else if (j->kind == 'b') ours.left.type = ours.right.type = d->out.type = j->type;
    else if (j->type == WORK_F16 || j->type == WORK_BF16) d->q.type = d->out.type = d->k.type = d->v.type = j->type;
    else if (j->type == WORK_Q8_0) {
        if (unpack(j, j->k, j->d, &d->k, &d->k_scale) || unpack(j, j->v, j->dv, &d->v, &d->v_scale)) return 1;
    } else {
        d->k.type = d->v.type = j->type;
        if (j->precision) d->q.type = d->out.type = ATTN_BF16;
        d->k_scale = attn_view_f32(j->k_scale, 4, j->batch, j->kv_heads, j->keys, 1);
        d->v_scale = attn_view_f32(j->v_scale, 4, j->batch, j->kv_heads, j->keys, 1);
    }
    if (j->kind == 'b' ? attn_bmm_workspace_size(ours.left, ours.right, d->out, d, &bytes, NULL)
                       : attn_workspace_size(d, &bytes, NULL))
        return 1;
    free(d->workspace);
    d->workspace = NULL, d->workspace_bytes = 0;
    if (j->kind == 'g' && typed_gradients(j, &bytes)) return 1;
    d->workspace = malloc(bytes + 1), d->workspace_bytes = bytes;
    return 0;
}
void attn_call(const job *j) {
    (void)j;
    call_run(&ours);
}
static attn_mha_desc multi_head;
static attn_mha_grad multi_head_grad;
int multi_head_start(const job *j) {
    attn_mha_desc *m = &multi_head;
    attn_desc *d = &ours.desc;
    start(j);
    m->query = attn_view_f32(j->q, 3, j->batch, j->queries, j->d, 0);
    m->w_query = attn_view_f32(j->w_q, 2, j->d, j->d, 0, 0), m->w_key = attn_view_f32(j->w_k, 2, j->d, j->d, 0, 0);
    m->w_value = attn_view_f32(j->k, 2, j->d, j->d, 0, 0), m->w_result = attn_view_f32(j->v, 2, j->d, j->d, 0, 0);
    m->out = attn_out_f32(j->out, 3, j->batch, j->queries, j->d, 0);
    m->query.type = m->w_query.type = m->w_key.type = m->w_value.type = m->w_result.type = m->out.type = j->type;
    d->precision = j->precision;
    if (d->precision) attn_enable_amx(NULL);
    m->heads = j->heads, m->attention = d;
    d->parallel.run = pool_run, d->parallel.user = &workers, d->parallel.workers = j->threads;
    free(m->saved);
    m->saved = NULL, m->saved_bytes = 0;
    if (j->kind == 'n') { /* as PyTorch keeps what its gradients need */
        if (attn_mha_saved_size(m, &m->saved_bytes, NULL)) return 1;
        m->saved = must_have(m->saved_bytes);
    }
    if (attn_mha_workspace_size(m, &d->workspace_bytes, NULL)) return 1;
    if (j->kind == 'n') {
        attn_mha_grad *g = &multi_head_grad;
        size_t forward = d->workspace_bytes;
        g->d_out = attn_view_f32(j->d_out, 3, j->batch, j->queries, j->d, 0);
        g->dquery = attn_out_f32(j->d_q, 3, j->batch, j->queries, j->d, 0);
        g->dw_query = attn_out_f32(j->d_w_q, 2, j->d, j->d, 0, 0);
        g->dw_key = attn_out_f32(j->d_w_k, 2, j->d, j->d, 0, 0);
        g->dw_value = attn_out_f32(j->d_k, 2, j->d, j->d, 0, 0);
        g->dw_result = attn_out_f32(j->d_v, 2, j->d, j->d, 0, 0);
        if (attn_mha_backward_workspace_size(m, g, &d->workspace_bytes, NULL)) return 1;
        if (d->workspace_bytes < forward) d->workspace_bytes = forward;
    }
    d->workspace = must_have(d->workspace_bytes);
    return 0;
}
void multi_head_call(const job *j) {
    attn_mha(&multi_head, NULL);
    if (j->kind == 'n') attn_mha_backward(&multi_head, &multi_head_grad, NULL);
}
/* Which weights its dropout keeps, [B,H,Sq,Sk]. */
int attn_kept(const job *j, uint8_t *mask) {
    attn_desc options;
    memset(&options, 0, sizeof options);
    options.dropout = j->dropout;
    return attn_dropout_mask(attn_out_u8(mask, 4, j->batch, j->heads, j->queries, j->keys), &options, NULL);
}
void plain_loop(const job *j) { pool_run(&workers, (int64_t)j->heads * j->queries, j->loop, (void *)j); }

/* ---- blocked attention on sgemm: scores of a block of queries and a block of keys, their softmax, times V: what
   PyTorch does, with a faster exp. Causal blocks are skipped; masks and lengths are not looked at before the softmax.
   Heads that share keys are folded into one product. */
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
    f = 1 + f * (0.693147180f +
                 f * (0.240226512f +
                      f * (0.0555041086f + f * (0.00961812911f + f * (0.00133335581f + f * 0.000154035304f)))));
    return n * f;
}

static void block_softmax(const job *j, float *s, int64_t row, int first, int n, float *largest, float *sum,
                          float *out) {
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
    for (c = from; c < to; c++) most = s[c] > most ? s[c] : most;
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
    const float *q = j->q + (head * rows + begin) * j->d, *k = j->k + head * keys * j->d,
                *v = j->v + head * keys * j->dv;
    float *out = j->out + (head * rows + begin) * j->dv, *sum = scratch[worker], *largest = sum + query_block;
    float scale = 1 / sqrtf((float)j->d), *weights = j->weights ? j->weights + (head * rows + begin) * keys : NULL;
    if (j->causal && begin + m < keys) keys = (int)begin + m;
    for (i = 0; i < m; i++) sum[i] = 0, largest[i] = -1e30f;
    for (first = 0; first < keys; first += key_block) {
        int n = first + key_block < keys ? key_block : keys - first;
        float *s = weights ? weights : largest + query_block;
        if (m == 1)
            cblas_sgemv(CblasRowMajor, CblasNoTrans, n, j->d, scale, k + (size_t)first * (size_t)j->d, j->d, q, 1, 0, s,
                        1);
        else
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, j->d, scale, q, j->d,
                        k + (size_t)first * (size_t)j->d, j->d, 0, s, n);
        for (i = 0; i < m; i++)
            block_softmax(j, s + (size_t)i * (size_t)n, head * rows + begin + i, first, n, largest + i, sum + i,
                          out + (size_t)i * (size_t)j->dv);
        if (m == 1)
            cblas_sgemv(CblasRowMajor, CblasTrans, n, j->dv, 1, v + (size_t)first * (size_t)j->dv, j->dv, s, 1,
                        first > 0, out, 1);
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
    pool_run(&workers, (int64_t)j->batch * j->kv_heads * ((rows + query_block - 1) / query_block), blas_task,
             (void *)j);
}
void blas_flash(const job *j) { blas_attention(j, 256, 512); }
void blas_full(const job *j) { blas_attention(j, 1 << 20, 1 << 20); }

/* A matrix; of a single one, rows for each thread. */
static void blas_bmm_task(void *arg, int64_t i, int32_t worker) {
    const job *j = (const job *)arg;
    int64_t parts = j->heads > 1 ? 1 : j->threads, n = i / parts, first = i % parts * j->queries / parts;
    int64_t rows = (i % parts + 1) * j->queries / parts - first, row = n * j->queries + first;
    (void)worker;
    if (rows > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, j->transposed ? CblasTrans : CblasNoTrans, (int)rows, j->keys, j->d, 1,
                    j->q + row * j->d, j->d, j->k + n * j->d * j->keys, j->transposed ? j->d : j->keys, 0,
                    j->out + row * j->keys, j->keys);
}
void blas_bmm(const job *j) { pool_run(&workers, j->heads > 1 ? j->heads : j->threads, blas_bmm_task, (void *)j); }

static void blas_sgemm_task(void *arg, int64_t i, int32_t worker) { /* a band of rows for each thread */
    enum { N = 2048 };
    int rows = N / workers.threads;
    float *a = (float *)arg;
    (void)worker;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, N, N, 1, a + i * rows * N, N, a + N * N, N, 0,
                a + 2 * N * N + i * rows * N, N);
}
/* 2048^3, the machine's own measure. */
void blas_sgemm(const job *j) {
    static float *a;
    enum { N = 2048 };
    int i;
    (void)j;
    if (!a)
        for (a = (float *)malloc(3 * N * N * sizeof *a), i = 0; i < 3 * N * N; i++) a[i] = 1;
    pool_run(&workers, workers.threads, blas_sgemm_task, a);
}
const char *machine_name(void) { return cpu_name(); }
const char *blas_name(void) { return openblas_get_config(); }

/* As many multiply-adds as the machine can make. */
enum { PEAK_TASKS = 32 }; /* so long that waking the others does not count */
void peak_probe(const job *j) {
    (void)j;
    pool_run(&workers, PEAK_TASKS * workers.threads, peaks[attn_best_isa()], NULL);
}
double peak_count(int threads) { return (double)PEAK_TASKS * threads * peak_operations(attn_best_isa()); }

/* Reading K and V once; a thread in 1, 2 or 4 streams. */
static void read_probe(const job *j, int streams) {
    reading r = {{j->k, j->v}, elements(j->batch, j->kv_heads, j->keys, j->d), workers.threads, 1, streams};
    read_all(&workers, &r);
}
void read_probe_1(const job *j) { read_probe(j, 1); }
void read_probe_2(const job *j) { read_probe(j, 2); }
void read_probe_4(const job *j) { read_probe(j, 4); }
