/* repeat.cu - what one call on a device does not show: races, and what calls cost the host. Calls of stages 1, 2 and 3
   that fill the device, forward and backward, each again and again over poisoned results: every bit must stay. Then the
   same two captured in a graph, which is replayed, then runs of their plans in one. Then the host's time for a call and
   for a run of its plan. Nothing is compared with float64 here (fast.cc and bench/cuda.cu do that). Memory of the
   device alone.

       repeat [REPEATS [SECONDS [plain]]]   of each call, within so many seconds; plain: built for sm_90 without "a" and
                                            head sizes up to 128, where stage 2 is to run instead of stage 3 */
#define CUDA_BENCH_LIBRARY
#include "../../bench/cuda.cu"
#include <chrono>

static void must(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    printf("FAILED %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* ---- arrays on the device */
__global__ void draw_numbers(void *to, int type, size_t n,
                             uint32_t seed) { /* sums of four, about a normal distribution */
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u ^ seed;
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
            sum += (float)(h >> 8) / 16777216.0f - 0.5f;
        }
        if (type == ATTN_F32) ((float *)to)[i] = sum * 1.7320508f;
        else ((uint16_t *)to)[i] = (uint16_t)(__float_as_uint(sum * 1.7320508f) >> 16);
    }
}
__global__ void count_different(const uint32_t *a, const uint32_t *b, size_t n, unsigned long long *count) {
    unsigned long long different = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        different += a[i] != b[i];
    if (different) atomicAdd(count, different);
}
struct array {
    void *data;
    size_t bytes;
};
static array make(size_t elements, int type, uint32_t seed) { /* seed 0: no numbers */
    const size_t bytes = (elements * (type == ATTN_F32 ? 4 : 2) + 15) / 16 * 16;
    array a = {NULL, bytes};
    must(cudaMalloc(&a.data, bytes), "cudaMalloc");
    if (seed) draw_numbers<<<1024, 256>>>(a.data, type, elements, seed);
    return a;
}

/* ---- a call: its forward and its backward, one after the other */
struct shape {
    int stage; /* that is to run */
    int type, batch, heads, heads_kv, queries, keys, d, causal;
    float softcap;
};
struct pair {
    cuda_job job;
    cudaStream_t stream;
    std::vector<array> inputs, results, first; /* first: the results of the first time */
    array work;
    unsigned long long *count;
    attn_plan plans[2];
};
static void make_plans(pair *p) {
    attn_desc d;
    attn_grad g;
    attn_error err;
    describe(&p->job, &d, &g);
    if (attn_plan_forward(&d, &p->plans[0], &err) == ATTN_OK &&
        attn_plan_backward(&d, &g, &p->plans[1], &err) == ATTN_OK)
        return;
    printf("FAILED a plan: %s %s\n", err.field, err.rule);
    exit(1);
}
static void make_pair(pair *p, const shape &s) {
    cuda_job &j = p->job;
    const size_t of_q = (size_t)s.batch * s.heads * s.queries * s.d, of_k = (size_t)s.batch * s.heads_kv * s.keys * s.d;
    memset(&j, 0, sizeof j);
    must(cudaStreamCreate(&p->stream), "stream");
    j.batch = s.batch, j.heads = s.heads, j.heads_kv = s.heads_kv, j.queries = s.queries, j.keys = s.keys;
    j.d = j.d_v = s.d, j.causal = s.causal, j.softcap = s.softcap, j.type = s.type, j.stream = p->stream;
    j.align = s.causal ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_UNSET;
    j.score = ATTN_SCORE_SCALED_DOT;
    p->inputs = {make(of_q, s.type, 1), make(of_k, s.type, 2), make(of_k, s.type, 3), make(of_q, s.type, 4)};
    p->results = {make(of_q, s.type, 0), make(of_q / s.d * 2, ATTN_F32, 0), make(of_q, s.type, 0),
                  make(of_k, s.type, 0), make(of_k, s.type, 0)};
    for (const array &a : p->results) p->first.push_back(make(a.bytes / 4, ATTN_F32, 0));
    void **const in[] = {&j.q, &j.k, &j.v, &j.d_out}, **const out[] = {&j.out, &j.stats, &j.dq, &j.dk, &j.dv};
    for (int i = 0; i < 4; i++) *in[i] = p->inputs[i].data;
    for (int i = 0; i < 5; i++) *out[i] = p->results[i].data;
    j.workspace_bytes = std::max(cuda_job_workspace(&j, 0), cuda_job_workspace(&j, 1));
    p->work = make(j.workspace_bytes / 4 + 4, ATTN_F32, 0);
    j.workspace = p->work.data;
    must(cudaMalloc((void **)&p->count, 8), "cudaMalloc");
    must(cudaMemset(p->count, 0, 8), "count");
    must(cudaDeviceSynchronize(), "inputs");
    make_plans(p);
}
static void free_pair(pair *p) {
    for (std::vector<array> *all : {&p->inputs, &p->results, &p->first})
        for (const array &a : *all) cudaFree(a.data);
    cudaFree(p->work.data);
    cudaFree(p->count);
    cudaStreamDestroy(p->stream);
}
static void run_pair(const pair &p, bool planned = false) {
    for (const array &a : p.results) must(cudaMemsetAsync(a.data, 0xff, a.bytes, p.stream), "poison");
    must(cudaMemsetAsync(p.work.data, 0xff, p.work.bytes, p.stream), "poison");
    for (int backward = 0; backward < 2; backward++)
        if (planned) attn_task(&p.plans[backward], p.job.workspace, 0, 0, 0);
        else if (cuda_job_run(&p.job, backward)) {
            printf("FAILED %s: %s\n", backward ? "backward" : "forward", cuda_job_error());
            exit(1);
        }
}
static void compare(const pair &p) {
    for (size_t i = 0; i < p.results.size(); i++)
        count_different<<<264, 256, 0, p.stream>>>((uint32_t *)p.results[i].data, (uint32_t *)p.first[i].data,
                                                   p.results[i].bytes / 4, p.count);
}
static unsigned long long different(const pair &p) { /* words since the last time */
    unsigned long long n = 0;
    must(cudaStreamSynchronize(p.stream), "the calls");
    must(cudaMemcpy(&n, p.count, 8, cudaMemcpyDeviceToHost), "count");
    must(cudaMemset(p.count, 0, 8), "count");
    return n;
}
static unsigned long long replay(const pair &p, int times, bool planned) {
    cudaGraph_t graph;
    cudaGraphExec_t captured;
    must(cudaStreamBeginCapture(p.stream, cudaStreamCaptureModeGlobal), "capture");
    run_pair(p, planned);
    must(cudaStreamEndCapture(p.stream, &graph), "capture");
    must(cudaGraphInstantiate(&captured, graph, 0), "graph");
    for (int i = 0; i < times; i++) {
        must(cudaGraphLaunch(captured, p.stream), "replay");
        compare(p);
    }
    const unsigned long long n = different(p);
    cudaGraphExecDestroy(captured);
    cudaGraphDestroy(graph);
    return n;
}

/* true: the same bits each time, by the stage that is to run */
static bool repeat(const shape &s, int repeats, double seconds) {
    char runs[40];
    pair p;
    int done = 0;
    make_pair(&p, s);
    run_pair(p);
    for (size_t i = 0; i < p.results.size(); i++)
        must(
            cudaMemcpyAsync(p.first[i].data, p.results[i].data, p.results[i].bytes, cudaMemcpyDeviceToDevice, p.stream),
            "copy");
    must(cudaStreamSynchronize(p.stream), "the first call");
    for (const double end = now() + seconds; done < repeats && now() < end; done++) {
        run_pair(p);
        compare(p);
        if (done % 8 == 7) must(cudaStreamSynchronize(p.stream), "the calls"); /* so that `end` is seen */
    }
    const unsigned long long again = different(p), replayed = replay(p, 50, false), planned = replay(p, 50, true);
    snprintf(runs, sizeof runs, "on the device, stage %d,", s.stage); /* not "(not stage 3, ..." */
    bool right = !again && !replayed && !planned;
    for (int backward = 0; backward < 2; backward++) {
        if (strstr(cuda_job_explain(&p.job, backward), runs)) continue;
        printf("FAILED not %s: %s\n", runs, cuda_job_explain(&p.job, backward));
        right = false;
    }
    printf("%-6s stage %d, %s, b%d h%d/%d %dx%d d%d%s%s: %d times, %llu words differ; of a graph %llu, of plans %llu\n",
           right ? "ok" : "FAILED", s.stage, s.type == ATTN_F32 ? "f32" : "bf16", s.batch, s.heads, s.heads_kv,
           s.queries, s.keys, s.d, s.causal ? " causal" : "", s.softcap != 0 ? " softcap" : "", done, again, replayed,
           planned);
    fflush(stdout);
    free_pair(&p);
    return right;
}

/* The host's time for a call whose kernels are short, and for a run of its plan, beside what is wanted: no failure, for
   it is the machine's, too. The median of rounds; the queue is emptied between them, which does not count. */
struct host_row {
    const char *name;
    int backward, queries, keys;
    double most[2]; /* us of a call, of a run */
};
template <class F> static double microseconds(const char *name, F call) {
    std::vector<double> rounds;
    for (int round = 0; round < 35; round++) {
        must(cudaDeviceSynchronize(), name);
        const double start = now();
        for (int i = 0; i < 16; i++) call(); /* fewer than what the queue holds, else the device is waited for */
        if (round >= 5) rounds.push_back((now() - start) / 16 * 1e6);
    }
    must(cudaDeviceSynchronize(), name);
    std::sort(rounds.begin(), rounds.end());
    return rounds[rounds.size() / 2];
}
/* What no call can be faster than: a kernel that does nothing, with parameters as large as those of our kernels. */
struct many_bytes {
    char bytes[3072];
};
__global__ void nothing(__grid_constant__ const many_bytes) {}
static void launch_time() {
    const many_bytes b = {};
    const double one = microseconds("a launch", [&] { nothing<<<1, 32>>>(b); });
    printf("host   a kernel that does nothing: %.1f us a launch\n", one);
}
static void host_time(const host_row &r) {
    const shape s = {0, ATTN_BF16, 1, 2, 2, r.queries, r.keys, 128, 0, 0};
    pair p;
    make_pair(&p, s);
    run_pair(p);
    const char *stage = strstr(cuda_job_explain(&p.job, r.backward), "stage ");
    const double call = microseconds(r.name, [&] {
        if (cuda_job_run(&p.job, r.backward)) printf("FAILED %s: %s\n", r.name, cuda_job_error()), exit(1);
    });
    const double run = microseconds(r.name, [&] { attn_task(&p.plans[r.backward], p.job.workspace, 0, 0, 0); });
    printf("host   %s, %.7s: %.1f us a call (at most %g%s), %.1f a run of its plan (at most %g%s)\n", r.name,
           stage ? stage : "?", call, r.most[0], call > r.most[0] ? ": MISSED" : "", run, r.most[1],
           run > r.most[1] ? ": MISSED" : "");
    fflush(stdout);
    free_pair(&p);
}

int main(int argc, char **argv) {
    const int repeats = argc > 1 ? atoi(argv[1]) : 200;
    const double seconds = argc > 2 ? atof(argv[2]) : 3;
    const bool plain = argc > 3;
    std::vector<shape> shapes = {{1, ATTN_F32, 2, 16, 4, 1000, 1337, 64, 1, 0},
                                 {3, ATTN_BF16, 1, 16, 16, 2048, 8192, 128, 0, 0}, /* many keys */
                                 {3, ATTN_BF16, 2, 8, 2, 1500, 1500, 128, 1, 3.0f},
                                 {2, ATTN_BF16, 4, 16, 2, 3, 5000, 128, 0, 0}}; /* few queries: split keys */
    cudaDeviceProp here;
    attn_error err;
    int failed = 0, most;
    must(cudaGetDeviceProperties(&here, 0), "the device");
    most = here.major == 9 && !plain ? 3 : here.major >= 8 ? 2 : 1;
    for (int d = 64; d <= (plain ? 128 : 256); d *= 2)
        for (int causal = 0; causal < 2; causal++) {
            shapes.push_back({3, ATTN_BF16, 2, 16, 4, 2048, 2048, d, causal, 0});
            shapes.push_back({3, ATTN_BF16, 3, 8, 8, 1000, 1337, d, causal, 0});
        }
    for (int d = 96; d <= (plain ? 96 : 192); d *= 2) shapes.push_back({3, ATTN_BF16, 3, 8, 8, 1000, 1337, d, 1, 0});
    shapes.push_back({3, ATTN_BF16, 8, 32, 8, 96, 2048, 128, 0, 0}); /* four heads in a tile */
    if (attn_cuda_prepare(&err) != ATTN_OK) printf("FAILED attn_cuda_prepare: %s\n", err.rule), exit(1);
    for (shape s : shapes) {
        s.stage = std::min(s.stage, most);
        if (!repeat(s, repeats, seconds)) failed++;
    }
    const host_row rows[] = {{"forward, 64 queries", 0, 64, 64, {10, 4}},
                             {"forward, 512 queries", 0, 512, 512, {10, 4}},
                             {"decode, 4096 keys", 0, 1, 4096, {10, 4}},
                             {"backward, 16 queries", 1, 16, 64, {16, 8}},
                             {"backward, 512 queries", 1, 512, 512, {16, 8}}};
    launch_time();
    for (const host_row &r : rows) host_time(r);
    printf("repeat: %d calls, %d failed\n", (int)shapes.size(), failed);
    return failed != 0;
}
