/* cuda.cu - `make bench-cuda`: attention on the GPU at hand, forward and backward. Each row first against float64 on
   some of its queries and keys, then timed: CUDA events around calls that take some milliseconds together, the clocks
   warm, medians. Inputs of small rows rotate, so that the caches do not hold them. A causal row counts half the
   operations.

       bench-cuda [--rows TEXT...] [--json]    rows whose name contains one of these; one JSON object a line

   Compiled with CUDA_BENCH_LIBRARY it is the library that cuda_rows.py calls. */
#include "../attn_cuda.cuh"
#include <algorithm>
#ifndef CUDA_BENCH_LIBRARY
#include <cuda_runtime.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

/* One call, as cuda_rows.py describes it too. Arrays are packed [B,H,S,D] of `type` (attn_type), bias and d_bias
   [Sq,Sk] for all heads; stats, w_v: f32. d_v: head size of v. window: how many keys a query sees, itself the last;
   0: all. */
extern "C" {
struct cuda_job {
    int32_t batch, heads, heads_kv, queries, keys, d, d_v, causal, align, window, type, score, precision;
    float softcap, dropout;
    void *q, *k, *v, *w_v, *bias, *out, *stats, *d_out, *dq, *dk, *dv, *d_w_v, *d_bias, *workspace;
    size_t workspace_bytes;
    void *stream;
};
size_t cuda_job_workspace(const cuda_job *job, int backward);
int cuda_job_run(const cuda_job *job, int backward); /* attn_status; enqueues */
const char *cuda_job_explain(const cuda_job *job, int backward);
/* out = a b^T of matrices [rows,depth] and [columns,depth] with ATTN_PRECISION_FAST; attn_status; enqueues */
int cuda_job_product(int32_t type, int64_t rows, int64_t columns, int64_t depth, const void *a, const void *b,
                     void *out, void *stream);
/* keep[rows][keys]: which pairs of a head dropout keeps, from query `row` and key `key` on; attn_status */
int cuda_job_keep(float dropout, int b, int h, int row, int rows, int key, int keys, uint8_t *keep);
extern const int32_t cuda_job_scores[2]; /* scaled dot product, additive */
const char *cuda_job_error(void);        /* of the last call that failed */
}
static const uint64_t SEED = 12345; /* of dropout */

const int32_t cuda_job_scores[2] = {ATTN_SCORE_SCALED_DOT, ATTN_SCORE_ADDITIVE};
static char error_text[300];

static attn_view view_of(const void *data, int32_t type, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    attn_view v = attn_view_f32(NULL, 4, n0, n1, n2, n3);
    v.data = data;
    v.type = type;
    return v;
}
static attn_out out_of(void *data, int32_t type, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    attn_out o = attn_out_f32(NULL, 4, n0, n1, n2, n3);
    o.data = data;
    o.type = type;
    return o;
}
static void describe(const cuda_job *j, attn_desc *d, attn_grad *g) {
    *d = attn_desc();
    *g = attn_grad();
    d->q = view_of(j->q, j->type, j->batch, j->heads, j->queries, j->d);
    d->k = view_of(j->k, j->type, j->batch, j->heads_kv, j->keys, j->d);
    d->v = view_of(j->v, j->type, j->batch, j->heads_kv, j->keys, j->d_v);
    d->out = out_of(j->out, j->type, j->batch, j->heads, j->queries, j->d_v);
    if (j->bias) d->bias = view_of(j->bias, j->type, 1, 1, j->queries, j->keys);
    if (j->stats) d->stats = attn_out_f32((float *)j->stats, 4, j->batch, j->heads, j->queries, 2);
    d->score = j->score;
    d->precision = j->precision;
    d->causal = j->causal;
    d->align = j->align;
    if (j->window) d->window = 1, d->window_left = j->window - 1;
    d->softcap = j->softcap;
    d->dropout = j->dropout;
    d->seed = SEED;
    if (j->score == ATTN_SCORE_ADDITIVE) d->w_v = attn_view_f32((const float *)j->w_v, 1, j->d, 0, 0, 0);
    d->stream = j->stream;
    d->workspace = j->workspace;
    d->workspace_bytes = j->workspace_bytes;
    g->d_out = view_of(j->d_out, j->type, j->batch, j->heads, j->queries, j->d_v);
    g->dq = out_of(j->dq, j->type, j->batch, j->heads, j->queries, j->d);
    g->dk = out_of(j->dk, j->type, j->batch, j->heads_kv, j->keys, j->d);
    g->dv = out_of(j->dv, j->type, j->batch, j->heads_kv, j->keys, j->d_v);
    if (j->d_bias) g->d_bias = out_of(j->d_bias, j->type, 1, 1, j->queries, j->keys);
    if (j->d_w_v) g->d_w_v = attn_out_f32((float *)j->d_w_v, 1, j->d, 0, 0, 0);
}
static int keep_error(attn_status status, const attn_error *err) {
    if (status != ATTN_OK) attn_error_string(err, error_text, sizeof error_text);
    return (int)status;
}
size_t cuda_job_workspace(const cuda_job *job, int backward) {
    attn_desc d;
    attn_grad g;
    attn_error err;
    size_t bytes = 0;
    describe(job, &d, &g);
    keep_error(backward ? attn_backward_workspace_size(&d, &g, &bytes, &err) : attn_workspace_size(&d, &bytes, &err),
               &err);
    return bytes;
}
int cuda_job_run(const cuda_job *job, int backward) {
    attn_desc d;
    attn_grad g;
    attn_error err;
    describe(job, &d, &g);
    return keep_error(backward ? attn_backward(&d, &g, &err) : attn_forward(&d, &err), &err);
}
const char *cuda_job_explain(const cuda_job *job, int backward) {
    static char text[400];
    attn_desc d;
    attn_grad g;
    describe(job, &d, &g);
    if (backward) attn_explain_backward(&d, &g, text, sizeof text);
    else attn_explain(&d, text, sizeof text);
    return text;
}
int cuda_job_product(int32_t type, int64_t rows, int64_t columns, int64_t depth, const void *a, const void *b,
                     void *out, void *stream) {
    attn_desc d = attn_desc();
    attn_error err;
    d.precision = ATTN_PRECISION_FAST;
    d.stream = stream;
    const attn_view turned = attn_view_swap(view_of(b, type, 1, 1, columns, depth), 2, 3);
    return keep_error(
        attn_bmm(view_of(a, type, 1, 1, rows, depth), turned, out_of(out, type, 1, 1, rows, columns), &d, &err), &err);
}
int cuda_job_keep(float dropout, int b, int h, int row, int rows, int key, int keys, uint8_t *keep) {
    attn_desc d = attn_desc();
    attn_error err;
    const int64_t origin[4] = {b, h, row, key};
    d.dropout = dropout;
    d.seed = SEED;
    memcpy(d.dropout_origin, origin, sizeof origin);
    return keep_error(attn_dropout_mask(attn_out_u8(keep, 4, 1, 1, rows, keys), &d, &err), &err);
}
const char *cuda_job_error(void) { return error_text; }

#ifndef CUDA_BENCH_LIBRARY
static void stop(const char *what, const char *why) {
    printf("bench-cuda: %s: %s\n", what, why);
    exit(1);
}
static void must(cudaError_t error, const char *what) {
    if (error != cudaSuccess) stop(what, cudaGetErrorString(error));
}

/* ---- rows */
struct row {
    std::string name;
    cuda_job job;
    bool backward, decode, bias, d_bias;
};
static row make_row(const std::string &name, int batch, int heads, int heads_kv, int queries, int keys, int d, int type,
                    bool backward) {
    row r;
    memset(&r.job, 0, sizeof r.job);
    r.job.batch = batch, r.job.heads = heads, r.job.heads_kv = heads_kv, r.job.queries = queries, r.job.keys = keys;
    r.job.d = r.job.d_v = d, r.job.type = type;
    r.name = name, r.backward = backward, r.decode = r.bias = r.d_bias = false;
    return r;
}
/* What models add to attention: forward and backward of each. */
static void add_options(std::vector<row> &rows) {
    for (int backward = 0; backward < 2; backward++) {
        const std::string pass = backward ? "backward " : "forward ";
        row values = make_row(pass + "d192 v128 4k causal", 4, 16, 16, 4096, 4096, 192, ATTN_BF16, backward);
        values.job.d_v = 128, values.job.causal = 1;
        row window = make_row(pass + "d128 8k window 1k", 2, 16, 16, 8192, 8192, 128, ATTN_BF16, backward);
        window.job.causal = 1, window.job.window = 1024;
        row softcap = make_row(pass + "d128 4k softcap", 4, 16, 16, 4096, 4096, 128, ATTN_BF16, backward);
        softcap.job.softcap = 2;
        row bias = make_row(pass + "d128 4k bias", 4, 16, 16, 4096, 4096, 128, ATTN_BF16, backward);
        bias.bias = true;
        row dropout = make_row(pass + "d128 4k dropout", 4, 16, 16, 4096, 4096, 128, ATTN_BF16, backward);
        dropout.job.dropout = 0.1f;
        for (const row &r : {values, window, softcap, bias, dropout}) rows.push_back(r);
        if (backward) rows.push_back(bias), rows.back().name += " with its gradient", rows.back().d_bias = true;
    }
    for (int d = 64; d <= 128; d += 32) { /* beside the same with two sweeps */
        const int heads = 2048 / d;
        rows.push_back(make_row("backward d" + std::to_string(d) + " 4k, one sweep", 4, heads, heads, 4096, 4096, d,
                                ATTN_BF16, true));
        rows.back().job.precision = ATTN_PRECISION_FAST;
    }
}
static std::vector<row> all_rows() {
    std::vector<row> rows;
    char name[120];
    for (int backward = 0; backward < 2; backward++)
        for (int d = 64; d <= 256; d *= 2)
            for (int causal = 0; causal < 2; causal++)
                for (int s = 2048; s <= 32768; s *= 2) {
                    const int batch = s < 16384 ? 16384 / s : 1;
                    snprintf(name, sizeof name, "%s d%d %dk%s", backward ? "backward" : "forward", d, s / 1024,
                             causal ? " causal" : "");
                    rows.push_back(make_row(name, batch, 2048 / d, 2048 / d, s, s, d, ATTN_BF16, backward));
                    rows.back().job.causal = causal;
                }
    static const struct {
        const char *name;
        int batch, heads, queries, keys, d, causal, type, backward;
    } others[] = {{"forward d96 4k", 4, 21, 4096, 4096, 96, 0, ATTN_BF16, 0},
                  {"forward d192 4k", 4, 10, 4096, 4096, 192, 0, ATTN_BF16, 0},
                  {"forward d128 512 rows", 32, 16, 512, 512, 128, 0, ATTN_BF16, 0},
                  {"forward d128 chunk of 512 in 16k", 1, 32, 512, 16384, 128, 1, ATTN_BF16, 0},
                  {"forward f32 d64 2k", 4, 16, 2048, 2048, 64, 0, ATTN_F32, 0},
                  {"forward f32 d128 2k causal", 4, 16, 2048, 2048, 128, 1, ATTN_F32, 0},
                  {"backward f32 d64 2k", 4, 16, 2048, 2048, 64, 0, ATTN_F32, 1},
                  {"backward f32 d128 2k causal", 4, 16, 2048, 2048, 128, 1, ATTN_F32, 1}};
    for (const auto &o : others) {
        rows.push_back(make_row(o.name, o.batch, o.heads, o.heads, o.queries, o.keys, o.d, o.type, o.backward));
        rows.back().job.causal = o.causal;
        if (o.queries != o.keys) rows.back().job.align = ATTN_ALIGN_BOTTOM_RIGHT;
    }
    add_options(rows);
    /* batch, key heads, queries of each, keys, head size, softcap */
    static const int decodes[][6] = {{1, 8, 4, 65536, 128, 0},  {8, 8, 4, 8192, 128, 0},   {32, 8, 4, 8192, 128, 0},
                                     {128, 8, 4, 1024, 128, 0}, {32, 32, 1, 2048, 128, 0}, {32, 8, 8, 8192, 128, 0},
                                     {32, 8, 4, 8192, 64, 0},   {32, 8, 4, 8192, 256, 0},  {32, 8, 4, 8192, 128, 2}};
    for (const int(&n)[6] : decodes) {
        const std::string d = n[4] == 128 ? "" : ", d" + std::to_string(n[4]);
        snprintf(name, sizeof name, "decode %d x %d/%d heads, %dk keys%s%s", n[0], n[1] * n[2], n[1], n[3] / 1024,
                 d.c_str(), n[5] ? ", softcap" : "");
        rows.push_back(make_row(name, n[0], n[1] * n[2], n[1], 1, n[3], n[4], ATTN_BF16, false));
        rows.back().job.softcap = (float)n[5];
        rows.back().job.causal = 1, rows.back().job.align = ATTN_ALIGN_BOTTOM_RIGHT, rows.back().decode = true;
    }
    for (int backward = 0; backward < 2; backward++)
        for (int h = 64; h <= 256; h *= 2)
            for (int s = 128; s <= 1024; s *= s == 128 ? 4 : 2) {
                snprintf(name, sizeof name, "additive %s h%d %d", backward ? "backward" : "forward", h, s);
                rows.push_back(make_row(name, 1, 16, 16, s, s, h, ATTN_F32, backward));
                rows.back().job.score = ATTN_SCORE_ADDITIVE;
            }
    return rows;
}
static double pairs_of(const cuda_job &j) {
    const double rows = (double)j.batch * j.heads * j.queries, all = rows * j.keys;
    if (j.window) return rows * j.window - (double)j.batch * j.heads * j.window * (j.window - 1) / 2;
    return j.causal && j.align != ATTN_ALIGN_BOTTOM_RIGHT ? all / 2 : all;
}
static size_t size_of(const cuda_job &j) { return j.type == ATTN_F32 ? 4 : 2; }
static size_t q_count(const cuda_job &j) { return (size_t)j.batch * j.heads * j.queries * j.d; }
static size_t k_count(const cuda_job &j) { return (size_t)j.batch * j.heads_kv * j.keys * j.d; }
static size_t v_count(const cuda_job &j) { return k_count(j) / j.d * j.d_v; }
static size_t out_count(const cuda_job &j) { return q_count(j) / j.d * j.d_v; }

/* ---- numbers: rounded on the host, drawn in bulk */
static uint64_t state = 1;
static float number() /* uniform, variance 1 */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((float)(state >> 40) / 8388608.0f - 1.0f) * 1.7320508f;
}
static uint16_t to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static double value(const std::vector<unsigned char> &x, const cuda_job &j, size_t at) {
    uint32_t u;
    float f;
    if (j.type == ATTN_F32) {
        memcpy(&f, &x[at * 4], 4);
    } else {
        uint16_t h;
        memcpy(&h, &x[at * 2], 2);
        u = (uint32_t)h << 16;
        memcpy(&f, &u, 4);
    }
    return f;
}
static std::vector<unsigned char> draw(const cuda_job &j, size_t n) {
    std::vector<unsigned char> x(n * size_of(j));
    for (size_t i = 0; i < n; i++) {
        const float f = number();
        const uint16_t h = to_bf16(f);
        if (j.type == ATTN_F32) memcpy(&x[i * 4], &f, 4);
        else memcpy(&x[i * 2], &h, 2);
    }
    return x;
}
static void *device_memory(size_t bytes) {
    void *p = NULL;
    must(cudaMalloc(&p, bytes + 256), "cudaMalloc");
    return p;
}
/* `sets` copies, one after the other */
static void *device_copies(const std::vector<unsigned char> &x, int sets) {
    unsigned char *p = (unsigned char *)device_memory(x.size() * (size_t)sets);
    for (int i = 0; i < sets; i++)
        must(cudaMemcpy(p + x.size() * (size_t)i, x.data(), x.size(), cudaMemcpyHostToDevice), "copying to the device");
    return p;
}
static std::vector<unsigned char> back(const void *p, size_t bytes) {
    std::vector<unsigned char> x(bytes);
    must(cudaMemcpy(x.data(), p, bytes, cudaMemcpyDeviceToHost), "copying from the device");
    return x;
}

/* ---- float64, on some rows */
struct host_data {
    std::vector<unsigned char> q, k, v, d_out, out, stats, dq, dk, dv, w_v, bias, d_bias;
};
static size_t query_row(const cuda_job &j, int b, int h, int i) { return ((size_t)b * j.heads + h) * j.queries + i; }
static size_t key_row(const cuda_job &j, int b, int h, int key) {
    return ((size_t)b * j.heads_kv + h / (j.heads / j.heads_kv)) * j.keys + key;
}
static double weight_of(const host_data &x, int c) { /* w_v[c] of additive attention */
    float w;
    memcpy(&w, &x.w_v[(size_t)c * 4], 4);
    return w;
}
static double raw_score(const cuda_job &j, const host_data &x, size_t q_row, size_t k_row) {
    double s = 0;
    for (int c = 0; c < j.d; c++) {
        const double a = value(x.q, j, q_row * j.d + c), b = value(x.k, j, k_row * j.d + c);
        s += j.score == ATTN_SCORE_ADDITIVE ? weight_of(x, c) * tanh(a + b) : a * b;
    }
    return j.score == ATTN_SCORE_ADDITIVE ? s : s / sqrt((double)j.d);
}
static bool sees(const cuda_job &j, int i, int key) {
    const int position = i + (j.align == ATTN_ALIGN_BOTTOM_RIGHT ? j.keys - j.queries : 0);
    return (!j.causal || key <= position) && (!j.window || key > position - j.window);
}
/* As it reaches the softmax, and its derivative by the raw score. */
struct score_pair {
    double score, slope;
};
static score_pair score_of(const cuda_job &j, const host_data &x, int b, int h, int i, int key) {
    score_pair p = {-INFINITY, 0};
    if (!sees(j, i, key)) return p;
    p.score = raw_score(j, x, query_row(j, b, h, i), key_row(j, b, h, key));
    p.slope = 1;
    if (j.softcap > 0) {
        const double t = tanh(p.score / (double)j.softcap);
        p.score = (double)j.softcap * t;
        p.slope = 1 - t * t;
    }
    if (!x.bias.empty()) p.score += value(x.bias, j, (size_t)i * j.keys + key);
    return p;
}
/* What dropout multiplies the weights of so many queries and keys by. */
static std::vector<double> factors_of(const cuda_job &j, int b, int h, int row, int rows, int key, int keys) {
    std::vector<uint8_t> keep((size_t)rows * keys, 1);
    std::vector<double> factors;
    if (j.dropout > 0 && cuda_job_keep(j.dropout, b, h, row, rows, key, keys, keep.data()) != ATTN_OK)
        stop("attn_dropout_mask", cuda_job_error());
    for (uint8_t kept : keep) factors.push_back(kept ? 1 / (1 - (double)j.dropout) : 0);
    return factors;
}
/* Of two rows, from the gradient of their raw score: that of component c of the query, or of the key. */
static double component_grad(const cuda_job &j, const host_data &x, size_t q_row, size_t k_row, int c, double ds,
                             bool of_query) {
    const double a = value(x.q, j, q_row * j.d + c), b = value(x.k, j, k_row * j.d + c), t = tanh(a + b);
    if (j.score == ATTN_SCORE_ADDITIVE) return ds * weight_of(x, c) * (1 - t * t);
    return ds * (of_query ? b : a) / sqrt((double)j.d);
}
static double product(const cuda_job &j, const std::vector<unsigned char> &a, size_t a_row,
                      const std::vector<unsigned char> &b, size_t b_row) /* of rows of j.d_v numbers */
{
    double sum = 0;
    for (int c = 0; c < j.d_v; c++) sum += value(a, j, a_row * j.d_v + c) * value(b, j, b_row * j.d_v + c);
    return sum;
}
struct difference {
    double off, size;
    void add(double got, double want) { off += (got - want) * (got - want), size += want * want; }
    double relative() const { return sqrt(off / (size > 0 ? size : 1)); }
};
/* out, and dq where it is wanted, of some queries; their lse too: the gradients of keys below take it from stats. */
static double check_queries(const row &r, const host_data &x) {
    const cuda_job &j = r.job;
    difference of_out = {0, 0}, of_lse = {0, 0}, of_dq = {0, 0};
    std::vector<double> p((size_t)j.keys), slope((size_t)j.keys), out((size_t)j.d_v), dq((size_t)j.d);
    for (int n = 0; n < 8; n++) {
        const int b = n * 5 % j.batch, h = n * 7 % j.heads, i = (int)((int64_t)(j.queries - 1) * n / 7);
        const size_t row = query_row(j, b, h, i);
        const std::vector<double> factor = factors_of(j, b, h, i, 1, 0, j.keys);
        double top = -INFINITY, mass = 0, delta = 0;
        float stats[2];
        for (int key = 0; key < j.keys; key++) {
            const score_pair s = score_of(j, x, b, h, i, key);
            p[key] = s.score, slope[key] = s.slope;
            top = fmax(top, s.score);
        }
        for (int key = 0; key < j.keys; key++) mass += p[key] = exp(p[key] - top);
        for (double &y : out) y = 0;
        for (double &y : dq) y = 0;
        for (int key = 0; key < j.keys; key++) {
            p[key] /= mass;
            if (!(p[key] > 0)) continue;
            for (int c = 0; c < j.d_v; c++)
                out[c] += p[key] * factor[key] * value(x.v, j, key_row(j, b, h, key) * j.d_v + c);
        }
        for (int c = 0; c < j.d_v; c++) of_out.add(value(x.out, j, row * j.d_v + c), out[c]);
        memcpy(stats, &x.stats[row * 8], 8);
        of_lse.add((double)stats[0] + log((double)stats[1]), top + log(mass));
        if (!r.backward) continue;
        for (int c = 0; c < j.d_v; c++) delta += value(x.d_out, j, row * j.d_v + c) * out[c];
        for (int key = 0; key < j.keys; key++) {
            if (!(p[key] > 0)) continue;
            const size_t k_row = key_row(j, b, h, key);
            const double ds = p[key] * slope[key] * (factor[key] * product(j, x.d_out, row, x.v, k_row) - delta);
            for (int c = 0; c < j.d; c++) dq[c] += component_grad(j, x, row, k_row, c, ds, true);
        }
        for (int c = 0; c < j.d; c++) of_dq.add(value(x.dq, j, row * j.d + c), dq[c]);
    }
    return fmax(fmax(of_out.relative(), of_lse.relative()), of_dq.relative());
}
/* Of a pair, its weight and the gradient of its score as the softmax gets it; factor: dropout's. The query's stats and
   output are the device's own, which check_queries has checked. */
struct pair_grads {
    double weight, of_score;
};
static pair_grads pair_of(const cuda_job &j, const host_data &x, int b, int h, int i, int key, double score,
                          double factor) {
    const size_t row = query_row(j, b, h, i);
    float stats[2];
    memcpy(stats, &x.stats[row * 8], 8);
    const double weight = exp(score - (double)stats[0]) / (double)stats[1];
    const double above = product(j, x.d_out, row, x.v, key_row(j, b, h, key)),
                 delta = product(j, x.d_out, row, x.out, row);
    return pair_grads{weight, weight * (factor * above - delta)};
}
/* d_bias of some pairs, over the batch and all heads */
static double check_bias(const row &r, const host_data &x) {
    const cuda_job &j = r.job;
    difference of_bias = {0, 0};
    for (int n = 0; r.d_bias && n < 40; n++) {
        const int i = (int)((int64_t)(j.queries - 1) * n / 39), key = (int)((int64_t)(j.keys - 1) * (n * 7 % 40) / 39);
        double sum = 0;
        for (int head = 0; head < j.batch * j.heads; head++) {
            const int b = head / j.heads, h = head % j.heads;
            sum += pair_of(j, x, b, h, i, key, score_of(j, x, b, h, i, key).score, 1).of_score;
        }
        of_bias.add(value(x.d_bias, j, (size_t)i * j.keys + key), sum);
    }
    return of_bias.relative();
}
/* dk and dv of some keys, over all queries */
static double check_keys(const row &r, const host_data &x) {
    const cuda_job &j = r.job;
    difference of_dk = {0, 0}, of_dv = {0, 0};
    std::vector<double> dk((size_t)j.d), dv((size_t)j.d_v);
    if (!r.backward) return 0;
    for (int n = 0; n < 4; n++) {
        const int b = n % j.batch, group = j.heads / j.heads_kv, hk = n * 3 % j.heads_kv;
        const int key = (int)((int64_t)(j.keys - 1) * n / 7);
        const size_t k_row = key_row(j, b, hk * group, key);
        for (double &y : dk) y = 0;
        for (double &y : dv) y = 0;
        for (int h = hk * group; h < (hk + 1) * group; h++) {
            const std::vector<double> factor = factors_of(j, b, h, 0, j.queries, key, 1);
            for (int i = 0; i < j.queries; i++) {
                if (!sees(j, i, key)) continue;
                const size_t row = query_row(j, b, h, i);
                const score_pair s = score_of(j, x, b, h, i, key);
                const pair_grads g = pair_of(j, x, b, h, i, key, s.score, factor[i]);
                for (int c = 0; c < j.d; c++) dk[c] += component_grad(j, x, row, k_row, c, g.of_score * s.slope, false);
                for (int c = 0; c < j.d_v; c++) dv[c] += g.weight * factor[i] * value(x.d_out, j, row * j.d_v + c);
            }
        }
        for (int c = 0; c < j.d; c++) of_dk.add(value(x.dk, j, k_row * j.d + c), dk[c]);
        for (int c = 0; c < j.d_v; c++) of_dv.add(value(x.dv, j, k_row * j.d_v + c), dv[c]);
    }
    return fmax(of_dk.relative(), of_dv.relative());
}

/* ---- time */
struct timing {
    double median, least; /* seconds a call */
};
template <class F> static timing measure(cudaStream_t stream, F call) {
    enum { SAMPLES = 15 };
    const double warm = 0.3, sample = 5e-3;
    cudaEvent_t start, end;
    std::vector<double> seconds;
    int calls = 1, next = 0;
    must(cudaEventCreate(&start), "cudaEventCreate");
    must(cudaEventCreate(&end), "cudaEventCreate");
    const auto timed = [&](int n) {
        float ms = 0;
        must(cudaEventRecord(start, stream), "cudaEventRecord");
        for (int i = 0; i < n; i++) call(next++);
        must(cudaEventRecord(end, stream), "cudaEventRecord");
        must(cudaEventSynchronize(end), "the device");
        must(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
        return ms * 1e-3;
    };
    for (double spent = 0; spent < warm;) {
        const double once = timed(calls);
        spent += once;
        if (once < sample) calls *= 2;
    }
    for (int i = 0; i < SAMPLES; i++) seconds.push_back(timed(calls) / calls);
    std::sort(seconds.begin(), seconds.end());
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    return timing{seconds[SAMPLES / 2], seconds[0]};
}
static double copy_speed(cudaStream_t stream) /* bytes read and written a second */
{
    const size_t bytes = (size_t)1 << 30;
    void *a = device_memory(bytes), *b = device_memory(bytes);
    const timing t =
        measure(stream, [&](int) { must(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, stream), "copy"); });
    cudaFree(a);
    cudaFree(b);
    return 2.0 * (double)bytes / t.median;
}

/* Of arrays like q, k, v, out, stats */
struct byte_counts {
    size_t q, k, v, out, stats;
    explicit byte_counts(const cuda_job &j)
        : q(q_count(j) * size_of(j)), k(k_count(j) * size_of(j)), v(v_count(j) * size_of(j)),
          out(out_count(j) * size_of(j)), stats(q_count(j) / (size_t)j.d * 8) {}
};
static void *poisoned(size_t bytes) {
    void *p = device_memory(bytes);
    must(cudaMemset(p, 0xff, bytes), "cudaMemset");
    return p;
}
/* The row's arrays on the device, `sets` of q, k, v; what the inputs hold on the host too. */
static cuda_job make_arrays(const row &r, int sets, cudaStream_t stream, host_data &x) {
    cuda_job j = r.job, floats = r.job;
    const byte_counts bytes(j);
    x.q = draw(j, q_count(j)), x.k = draw(j, k_count(j)), x.v = draw(j, v_count(j));
    j.q = device_copies(x.q, sets), j.k = device_copies(x.k, sets), j.v = device_copies(x.v, sets);
    j.out = poisoned(bytes.out), j.stats = poisoned(bytes.stats);
    if (r.bias) {
        x.bias = draw(j, (size_t)j.queries * j.keys);
        j.bias = device_copies(x.bias, 1);
        if (r.d_bias) j.d_bias = poisoned(x.bias.size());
    }
    if (j.score == ATTN_SCORE_ADDITIVE) {
        floats.type = ATTN_F32;
        x.w_v = draw(floats, (size_t)j.d);
        j.w_v = device_copies(x.w_v, 1);
        if (r.backward) j.d_w_v = device_memory((size_t)j.d * 4);
    }
    if (r.backward) {
        x.d_out = draw(j, out_count(j));
        j.d_out = device_copies(x.d_out, 1);
        j.dq = poisoned(bytes.q), j.dk = poisoned(bytes.k), j.dv = poisoned(bytes.v);
    }
    j.stream = stream;
    j.workspace_bytes = cuda_job_workspace(&j, 0);
    if (r.backward) j.workspace_bytes = std::max(j.workspace_bytes, cuda_job_workspace(&j, 1));
    j.workspace = device_memory(j.workspace_bytes);
    return j;
}
/* Runs it once: how far it is from float64. */
static double error_of(const row &r, const cuda_job &j, host_data &x) {
    const byte_counts bytes(j);
    for (int backward = 0; backward <= (r.backward ? 1 : 0); backward++)
        if (cuda_job_run(&j, backward) != ATTN_OK) stop(r.name.c_str(), cuda_job_error());
    must(cudaStreamSynchronize((cudaStream_t)j.stream), r.name.c_str());
    x.out = back(j.out, bytes.out), x.stats = back(j.stats, bytes.stats);
    if (r.backward) x.dq = back(j.dq, bytes.q), x.dk = back(j.dk, bytes.k), x.dv = back(j.dv, bytes.v);
    if (r.d_bias) x.d_bias = back(j.d_bias, x.bias.size());
    return fmax(fmax(check_queries(r, x), check_keys(r, x)), check_bias(r, x));
}
static void print_row(const row &r, const cuda_job &j, timing t, double copy, double error, bool right, bool json) {
    const bool additive = j.score == ATTN_SCORE_ADDITIVE;
    const byte_counts bytes(j);
    const double work = r.decode     ? (double)(bytes.k + bytes.v)
                        : additive   ? pairs_of(j) * j.d
                        : r.backward ? pairs_of(j) * (6 * j.d + 4 * j.d_v)
                                     : pairs_of(j) * (2 * j.d + 2 * j.d_v);
    const char *unit = r.decode ? "GB/s" : additive ? "G tanh/s" : "TFLOP/s";
    const double rate = work / t.median / (r.decode || additive ? 1e9 : 1e12);
    const char *stage = strstr(cuda_job_explain(&j, r.backward), "stage ");
    if (json)
        printf("{\"row\": \"%s\", \"ms\": %.6f, \"least_ms\": %.6f, \"rate\": %.3f, \"unit\": \"%s\", \"error\": %.3g, "
               "\"right\": %s, \"stage\": \"%.7s\"}\n",
               r.name.c_str(), t.median * 1e3, t.least * 1e3, rate, unit, error, right ? "true" : "false",
               stage ? stage : "");
    else
        printf("%-36s %9.4f ms (least %9.4f) %9.1f %-8s %s%.7s, error %.1e%s\n", r.name.c_str(), t.median * 1e3,
               t.least * 1e3, rate, unit,
               r.decode ? (std::to_string((int)(100 * work / t.median / copy)) + " % of copying, ").c_str() : "",
               stage ? stage : "", error, right ? "" : "  WRONG");
    fflush(stdout);
}
static bool run_row(const row &r, double copy, bool json, cudaStream_t stream) {
    const byte_counts bytes(r.job);
    const size_t inputs = bytes.q + bytes.k + bytes.v, enough = (size_t)256 << 20;
    const int sets = inputs >= enough ? 1 : (int)std::min<size_t>(16, enough / inputs + 1);
    host_data x;
    const cuda_job j = make_arrays(r, sets, stream, x);
    const double error = error_of(r, j, x), bound = j.type == ATTN_F32 ? 1e-4 : r.backward ? 2e-2 : 1e-2;
    const bool right = error <= bound; /* a NaN is not */
    const timing t = measure(stream, [&](int n) {
        cuda_job now = j;
        const size_t set = (size_t)(n % sets);
        now.q = (char *)j.q + set * bytes.q, now.k = (char *)j.k + set * bytes.k, now.v = (char *)j.v + set * bytes.v;
        cuda_job_run(&now, r.backward);
    });
    print_row(r, j, t, copy, error, right, json);
    void *const blocks[] = {j.bias,  j.q,  j.k,  j.v,  j.w_v,   j.out,    j.stats,
                            j.d_out, j.dq, j.dk, j.dv, j.d_w_v, j.d_bias, j.workspace};
    for (void *p : blocks) cudaFree(p);
    return right;
}

int main(int argc, char **argv) {
    std::vector<std::string> only;
    bool json = false;
    int passed = 0, failed = 0;
    cudaDeviceProp device;
    cudaStream_t stream;
    attn_error err;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) json = true;
        else if (!strcmp(argv[i], "--rows"))
            while (i + 1 < argc && strncmp(argv[i + 1], "--", 2)) only.push_back(argv[++i]);
        else stop(argv[i], "options: --rows TEXT..., --json");
    }
    if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) {
        printf("bench-cuda: skipped (there is no device)\n");
        return 0;
    }
    must(cudaStreamCreate(&stream), "cudaStreamCreate");
    if (attn_cuda_prepare(&err) != ATTN_OK) stop("attn_cuda_prepare", err.rule);
    const double copy = copy_speed(stream);
    printf("%s%s, %d processors, sm_%d%d, copies %.0f GB/s%s\n", json ? "{\"device\": \"" : "", device.name,
           device.multiProcessorCount, device.major, device.minor, copy / 1e9, json ? "\"}" : "");
    for (const row &r : all_rows()) {
        const auto named = [&](const std::string &text) { return r.name.find(text) != std::string::npos; };
        if (!only.empty() && std::none_of(only.begin(), only.end(), named)) continue;
        if (run_row(r, copy, json, stream)) passed++;
        else failed++;
    }
    printf("%s%d rows right, %d wrong%s\n", json ? "{\"sum\": \"" : "", passed, failed, json ? "\"}" : "");
    return failed > 0 || passed == 0;
}
#endif
