/* cuda.cu - `make bench-cuda`: attention on the GPU at hand, forward and backward. Each row first against float64 on
   some of its queries and keys, then timed: CUDA events around calls that take some milliseconds together, the clocks
   warm, medians. Inputs of small rows rotate, so that the caches do not hold them. A causal row counts half the
   operations.

       bench-cuda [--rows TEXT] [--json]       rows whose name contains TEXT; one JSON object a line

   Compiled with CUDA_BENCH_LIBRARY it is the library that cuda_peers.py calls. */
#include "../attn_cuda.cuh"
#include <algorithm>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

/* One call, as cuda_peers.py describes it too. Arrays are packed [B,H,S,D] of `type` (attn_type); stats, w_v: f32. */
extern "C" {
struct cuda_job {
    int32_t batch, heads, heads_kv, queries, keys, d, causal, align, type, score;
    void *q, *k, *v, *w_v, *out, *stats, *d_out, *dq, *dk, *dv, *d_w_v, *workspace;
    size_t workspace_bytes;
    void *stream;
};
size_t cuda_job_workspace(const cuda_job *job, int backward);
int cuda_job_run(const cuda_job *job, int backward); /* attn_status; enqueues */
const char *cuda_job_explain(const cuda_job *job, int backward);
extern const int32_t cuda_job_scores[2]; /* scaled dot product, additive */
const char *cuda_job_error(void);        /* of the last call that failed */
}

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
    d->v = view_of(j->v, j->type, j->batch, j->heads_kv, j->keys, j->d);
    d->out = out_of(j->out, j->type, j->batch, j->heads, j->queries, j->d);
    if (j->stats) d->stats = attn_out_f32((float *)j->stats, 4, j->batch, j->heads, j->queries, 2);
    d->score = j->score;
    d->causal = j->causal;
    d->align = j->align;
    if (j->score == ATTN_SCORE_ADDITIVE) d->w_v = attn_view_f32((const float *)j->w_v, 1, j->d, 0, 0, 0);
    d->stream = j->stream;
    d->workspace = j->workspace;
    d->workspace_bytes = j->workspace_bytes;
    g->d_out = view_of(j->d_out, j->type, j->batch, j->heads, j->queries, j->d);
    g->dq = out_of(j->dq, j->type, j->batch, j->heads, j->queries, j->d);
    g->dk = out_of(j->dk, j->type, j->batch, j->heads_kv, j->keys, j->d);
    g->dv = out_of(j->dv, j->type, j->batch, j->heads_kv, j->keys, j->d);
    if (j->d_w_v) g->d_w_v = attn_out_f32((float *)j->d_w_v, 1, j->d, 0, 0, 0);
}
static int told(attn_status status, const attn_error *err) {
    if (status != ATTN_OK) attn_error_string(err, error_text, sizeof error_text);
    return (int)status;
}
size_t cuda_job_workspace(const cuda_job *job, int backward) {
    attn_desc d;
    attn_grad g;
    attn_error err;
    size_t bytes = 0;
    describe(job, &d, &g);
    told(backward ? attn_backward_workspace_size(&d, &g, &bytes, &err) : attn_workspace_size(&d, &bytes, &err), &err);
    return bytes;
}
int cuda_job_run(const cuda_job *job, int backward) {
    attn_desc d;
    attn_grad g;
    attn_error err;
    describe(job, &d, &g);
    return told(backward ? attn_backward(&d, &g, &err) : attn_forward(&d, &err), &err);
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
    bool backward, decode;
};
static std::vector<row> all_rows() {
    std::vector<row> rows;
    char name[120];
    row r;
    for (int backward = 0; backward < 2; backward++)
        for (int d = 64; d <= 256; d *= 2)
            for (int causal = 0; causal < 2; causal++)
                for (int s = 2048; s <= 32768; s *= 2) {
                    const int batch = s < 16384 ? 16384 / s : 1;
                    memset(&r.job, 0, sizeof r.job);
                    r.job.batch = batch, r.job.heads = r.job.heads_kv = 2048 / d, r.job.queries = r.job.keys = s;
                    r.job.d = d, r.job.causal = causal, r.job.type = ATTN_BF16;
                    r.backward = backward, r.decode = false;
                    snprintf(name, sizeof name, "%s d%d %dk%s", backward ? "backward" : "forward", d, s / 1024,
                             causal ? " causal" : "");
                    r.name = name;
                    rows.push_back(r);
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
        memset(&r.job, 0, sizeof r.job);
        r.job.batch = o.batch, r.job.heads = r.job.heads_kv = o.heads, r.job.queries = o.queries, r.job.keys = o.keys;
        r.job.d = o.d, r.job.causal = o.causal, r.job.type = o.type;
        if (o.queries != o.keys) r.job.align = ATTN_ALIGN_BOTTOM_RIGHT;
        r.backward = o.backward, r.decode = false, r.name = o.name;
        rows.push_back(r);
    }
    static const int decodes[][4] = {{1, 8, 4, 65536},  {8, 8, 4, 8192},   {32, 8, 4, 8192},
                                     {128, 8, 4, 1024}, {32, 32, 1, 2048}, {32, 8, 8, 8192}};
    for (const int(&n)[4] : decodes) { /* batch, key heads, queries of each, keys */
        memset(&r.job, 0, sizeof r.job);
        r.job.batch = n[0], r.job.heads_kv = n[1], r.job.heads = n[1] * n[2], r.job.queries = 1, r.job.keys = n[3];
        r.job.d = 128, r.job.causal = 1, r.job.align = ATTN_ALIGN_BOTTOM_RIGHT, r.job.type = ATTN_BF16;
        r.backward = false, r.decode = true;
        snprintf(name, sizeof name, "decode %d x %d/%d heads, %dk keys", n[0], r.job.heads, n[1], n[3] / 1024);
        r.name = name;
        rows.push_back(r);
    }
    for (int backward = 0; backward < 2; backward++)
        for (int h = 64; h <= 256; h *= 2)
            for (int s = 128; s <= 1024; s *= s == 128 ? 4 : 2) {
                memset(&r.job, 0, sizeof r.job);
                r.job.batch = 1, r.job.heads = r.job.heads_kv = 16, r.job.queries = r.job.keys = s, r.job.d = h;
                r.job.type = ATTN_F32, r.job.score = ATTN_SCORE_ADDITIVE;
                r.backward = backward, r.decode = false;
                snprintf(name, sizeof name, "additive %s h%d %d", backward ? "backward" : "forward", h, s);
                r.name = name;
                rows.push_back(r);
            }
    return rows;
}
static double pairs_of(const cuda_job &j) {
    const double all = (double)j.batch * j.heads * j.queries * j.keys;
    return j.causal && j.align != ATTN_ALIGN_BOTTOM_RIGHT ? all / 2 : all;
}
static size_t size_of(const cuda_job &j) { return j.type == ATTN_F32 ? 4 : 2; }
static size_t q_count(const cuda_job &j) { return (size_t)j.batch * j.heads * j.queries * j.d; }
static size_t k_count(const cuda_job &j) { return (size_t)j.batch * j.heads_kv * j.keys * j.d; }

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
    std::vector<unsigned char> q, k, v, d_out, out, stats, dq, dk, dv, w_v;
};
static double raw_score(const cuda_job &j, const host_data &x, size_t q_at, size_t k_at) {
    double s = 0;
    for (int c = 0; c < j.d; c++) {
        const double a = value(x.q, j, q_at + (size_t)c), b = value(x.k, j, k_at + (size_t)c);
        float w = 0;
        if (j.score == ATTN_SCORE_ADDITIVE) {
            memcpy(&w, &x.w_v[(size_t)c * 4], 4);
            s += (double)w * tanh(a + b);
        } else {
            s += a * b;
        }
    }
    return j.score == ATTN_SCORE_ADDITIVE ? s : s / sqrt((double)j.d);
}
static bool sees(const cuda_job &j, int i, int key) {
    return !j.causal || key <= i + (j.align == ATTN_ALIGN_BOTTOM_RIGHT ? j.keys - j.queries : 0);
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
    std::vector<double> p((size_t)j.keys), out((size_t)j.d), dq((size_t)j.d);
    for (int n = 0; n < 8; n++) {
        const int b = n * 5 % j.batch, h = n * 7 % j.heads, i = (int)((int64_t)(j.queries - 1) * n / 7);
        const size_t head = (size_t)b * j.heads_kv + h / (j.heads / j.heads_kv),
                     row = ((size_t)b * j.heads + h) * j.queries + i;
        double top = -INFINITY, mass = 0, delta = 0;
        for (int key = 0; key < j.keys; key++) {
            p[key] = sees(j, i, key) ? raw_score(j, x, row * j.d, (head * j.keys + key) * j.d) : -INFINITY;
            top = fmax(top, p[key]);
        }
        for (int key = 0; key < j.keys; key++) mass += p[key] = exp(p[key] - top);
        for (int c = 0; c < j.d; c++) out[c] = dq[c] = 0;
        for (int key = 0; key < j.keys; key++) {
            p[key] /= mass;
            if (!(p[key] > 0)) continue;
            for (int c = 0; c < j.d; c++) out[c] += p[key] * value(x.v, j, (head * j.keys + key) * j.d + c);
        }
        for (int c = 0; c < j.d; c++) of_out.add(value(x.out, j, row * j.d + c), out[c]);
        float stats[2];
        memcpy(stats, &x.stats[row * 8], 8);
        of_lse.add((double)stats[0] + log((double)stats[1]), top + log(mass));
        if (!r.backward) continue;
        for (int c = 0; c < j.d; c++) delta += value(x.d_out, j, row * j.d + c) * out[c];
        for (int key = 0; key < j.keys; key++) {
            double dp = 0;
            if (!(p[key] > 0)) continue;
            for (int c = 0; c < j.d; c++)
                dp += value(x.d_out, j, row * j.d + c) * value(x.v, j, (head * j.keys + key) * j.d + c);
            const double ds = p[key] * (dp - delta);
            for (int c = 0; c < j.d; c++) {
                const double a = value(x.q, j, row * j.d + c), k = value(x.k, j, (head * j.keys + key) * j.d + c);
                float w = 0;
                if (j.score == ATTN_SCORE_ADDITIVE) memcpy(&w, &x.w_v[(size_t)c * 4], 4);
                const double t = tanh(a + k);
                dq[c] += j.score == ATTN_SCORE_ADDITIVE ? ds * w * (1 - t * t) : ds * k / sqrt((double)j.d);
            }
        }
        for (int c = 0; c < j.d; c++) of_dq.add(value(x.dq, j, row * j.d + c), dq[c]);
    }
    return fmax(fmax(of_out.relative(), of_lse.relative()), of_dq.relative());
}
/* dk and dv of some keys, over all queries: each query's log-sum-exp and output are the device's own, checked above. */
static double check_keys(const row &r, const host_data &x) {
    const cuda_job &j = r.job;
    difference of_dk = {0, 0}, of_dv = {0, 0};
    std::vector<double> dk((size_t)j.d), dv((size_t)j.d);
    if (!r.backward) return 0;
    for (int n = 0; n < 4; n++) {
        const int b = n % j.batch, group = j.heads / j.heads_kv, hk = n * 3 % j.heads_kv;
        const int key = (int)((int64_t)(j.keys - 1) * n / 7);
        const size_t k_at = (((size_t)b * j.heads_kv + hk) * j.keys + key) * j.d;
        for (int c = 0; c < j.d; c++) dk[c] = dv[c] = 0;
        for (int h = hk * group; h < (hk + 1) * group; h++)
            for (int i = 0; i < j.queries; i++) {
                if (!sees(j, i, key)) continue;
                const size_t row = ((size_t)b * j.heads + h) * j.queries + i;
                float stats[2];
                double dp = 0, delta = 0;
                memcpy(stats, &x.stats[row * 8], 8);
                const double p = exp(raw_score(j, x, row * j.d, k_at) - (double)stats[0]) / (double)stats[1];
                for (int c = 0; c < j.d; c++) {
                    const double d_out = value(x.d_out, j, row * j.d + c);
                    dp += d_out * value(x.v, j, k_at + c);
                    delta += d_out * value(x.out, j, row * j.d + c);
                }
                const double ds = p * (dp - delta);
                for (int c = 0; c < j.d; c++) {
                    const double a = value(x.q, j, row * j.d + c), k = value(x.k, j, k_at + c);
                    float w = 0;
                    if (j.score == ATTN_SCORE_ADDITIVE) memcpy(&w, &x.w_v[(size_t)c * 4], 4);
                    const double t = tanh(a + k);
                    dk[c] += j.score == ATTN_SCORE_ADDITIVE ? ds * w * (1 - t * t) : ds * a / sqrt((double)j.d);
                    dv[c] += p * value(x.d_out, j, row * j.d + c);
                }
            }
        for (int c = 0; c < j.d; c++) {
            of_dk.add(value(x.dk, j, k_at + c), dk[c]);
            of_dv.add(value(x.dv, j, k_at + c), dv[c]);
        }
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

static bool run_row(const row &r, double copy, bool json, cudaStream_t stream) {
    cuda_job j = r.job;
    const size_t q_bytes = q_count(j) * size_of(j), k_bytes = k_count(j) * size_of(j),
                 stats_bytes = q_count(j) / (size_t)j.d * 8;
    const size_t inputs = 2 * k_bytes + q_bytes, enough = (size_t)256 << 20;
    const int sets = inputs >= enough ? 1 : (int)std::min<size_t>(16, enough / inputs + 1);
    cuda_job all = j;
    host_data x;
    x.q = draw(j, q_count(j)), x.k = draw(j, k_count(j)), x.v = draw(j, k_count(j));
    all.q = device_copies(x.q, sets), all.k = device_copies(x.k, sets), all.v = device_copies(x.v, sets);
    all.out = device_memory(q_bytes), all.stats = device_memory(stats_bytes);
    must(cudaMemset(all.out, 0xff, q_bytes), "cudaMemset");
    if (j.score == ATTN_SCORE_ADDITIVE) {
        cuda_job floats = j;
        floats.type = ATTN_F32;
        x.w_v = draw(floats, (size_t)j.d);
        all.w_v = device_copies(x.w_v, 1);
    }
    if (r.backward) {
        x.d_out = draw(j, q_count(j));
        all.d_out = device_copies(x.d_out, 1);
        all.dq = device_memory(q_bytes), all.dk = device_memory(k_bytes), all.dv = device_memory(k_bytes);
        if (j.score == ATTN_SCORE_ADDITIVE) all.d_w_v = device_memory((size_t)j.d * 4);
        must(cudaMemset(all.dq, 0xff, q_bytes), "cudaMemset");
        must(cudaMemset(all.dk, 0xff, k_bytes), "cudaMemset");
        must(cudaMemset(all.dv, 0xff, k_bytes), "cudaMemset");
    }
    all.stream = stream;
    all.workspace_bytes = cuda_job_workspace(&all, 0);
    if (r.backward) all.workspace_bytes = std::max(all.workspace_bytes, cuda_job_workspace(&all, 1));
    all.workspace = device_memory(all.workspace_bytes);

    for (int backward = 0; backward <= (r.backward ? 1 : 0); backward++)
        if (cuda_job_run(&all, backward) != ATTN_OK) stop(r.name.c_str(), cuda_job_error());
    must(cudaStreamSynchronize(stream), r.name.c_str());
    x.out = back(all.out, q_bytes), x.stats = back(all.stats, stats_bytes);
    if (r.backward) x.dq = back(all.dq, q_bytes), x.dk = back(all.dk, k_bytes), x.dv = back(all.dv, k_bytes);
    const double error = fmax(check_queries(r, x), check_keys(r, x));
    const double bound = j.type == ATTN_F32 ? 1e-4 : r.backward ? 2e-2 : 1e-2;
    const bool right = error <= bound; /* a NaN is not */

    const timing t = measure(stream, [&](int n) {
        cuda_job now = all;
        const size_t set = (size_t)(n % sets);
        now.q = (char *)all.q + set * q_bytes, now.k = (char *)all.k + set * k_bytes,
        now.v = (char *)all.v + set * k_bytes;
        cuda_job_run(&now, r.backward);
    });
    const bool additive = j.score == ATTN_SCORE_ADDITIVE;
    const double work = r.decode   ? (double)(2 * k_bytes)
                        : additive ? pairs_of(j) * j.d
                                   : pairs_of(j) * j.d * (r.backward ? 10 : 4);
    const char *unit = r.decode ? "GB/s" : additive ? "G tanh/s" : "TFLOP/s";
    const double rate = work / t.median / (r.decode || additive ? 1e9 : 1e12);
    const char *stage = strstr(cuda_job_explain(&all, r.backward), "stage ");
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
    void *const blocks[] = {all.q,     all.k,  all.v,  all.w_v, all.out,   all.stats,
                            all.d_out, all.dq, all.dk, all.dv,  all.d_w_v, all.workspace};
    for (void *p : blocks) cudaFree(p);
    return right;
}

int main(int argc, char **argv) {
    const char *only = "";
    bool json = false;
    int passed = 0, failed = 0;
    cudaDeviceProp device;
    cudaStream_t stream;
    attn_error err;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) json = true;
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc) only = argv[++i];
        else stop(argv[i], "options: --rows TEXT, --json");
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
        if (r.name.find(only) == std::string::npos) continue;
        if (run_row(r, copy, json, stream)) passed++;
        else failed++;
    }
    printf("%s%d rows right, %d wrong%s\n", json ? "{\"sum\": \"" : "", passed, failed, json ? "\"}" : "");
    return failed > 0 || passed == 0;
}
#endif
