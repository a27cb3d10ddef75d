/* cc -O2 bench/bench.c bench/loops.c -lm -lpthread; or `make bench`, which also tells it compiler, flags and commit.
   First this machine's limits, then every row of work.h on every instruction set, on one thread and on all: operations
   or bytes a second, and the share of the limit measured before and after every sample, since clocks and neighbours
   change; the backward pass counts 5/2 of the forward's operations. Then the bars that need no peer. Every result is
   checked against double precision before it is timed. One thread: this process's CPU time; more: the clock on the
   wall. GCC or clang, POSIX.
   --json: a line of JSON per result. --filter TEXT: rows whose name contains it, and no bars. --isa NAME.
   --threads N: beside one. --samples N. --loops: only the bar of the plain loops, for a build with other flags.
   --sequences: only the bars of attn_rope and attn_append. --options: only those of a bias by index, sums by key and
   quantization, 8x1024 d64. */
#define _GNU_SOURCE
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include "measure.h"
#include <math.h>
#include <unistd.h>

#ifndef BENCH_FLAGS
#define BENCH_FLAGS "unknown"
#endif
#ifndef BENCH_COMMIT
#define BENCH_COMMIT "unknown"
#endif
#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

enum { MAX_SAMPLES = 101, FEW = 5, ROWS_CHECKED = 8, MOST_D = 256 };
static const double BUDGET = 0.8, WRONG = 2e-5; /* seconds of a result; error */

static struct {
    int json, samples, loops_only, sequences_only, options_only, threads;
    const char *filter, *isa;
} options = {0, 9, 0, 0, 0, 0, NULL, NULL};
static pool one, all;

static pool *pool_of(int threads) { return threads > 1 ? &all : &one; }
static int runs_here(int isa) {
    float x = 0;
    return attn_elementary(0, &x, &x, 1, (attn_isa)isa) == ATTN_OK;
}
static const char *name_of(int isa) { return attn_isa_string((attn_isa)isa); }

static int next_threads(int threads) { return threads < options.threads ? options.threads : INT32_MAX; }

/* ---- the machine's limits */
typedef struct limit { /* what a sample is held against */
    int threads, isa;
    reading read;
} limit;
static void run_peak(void *arg) {
    const limit *l = (const limit *)arg;
    pool_run(pool_of(l->threads), l->threads, peaks[l->isa], NULL);
}
static double peak(const limit *l) { /* operations a second */
    return rate(run_peak, (void *)l, l->threads > 1) * l->threads * peak_operations(l->isa);
}
static void run_read(void *arg) {
    const limit *l = (const limit *)arg;
    read_all(pool_of(l->threads), &l->read);
}
static double bandwidth(const limit *l) { /* bytes a second */
    double best = 0, now;
    limit with = *l;
    for (with.read.streams = 1; with.read.streams <= MOST_STREAMS; with.read.streams *= 2)
        if ((now = rate(run_read, &with, l->threads > 1)) > best) best = now;
    return best * 8 * (double)l->read.floats * l->read.repeats;
}

/* ---- the product kernel alone, all in L1: what the header's inner loop can reach. A look behind its API. */
typedef struct product {
    const attn__kernels *kernels;
    attn__product p;
} product;
static void run_product(void *arg) {
    const product *x = (const product *)arg;
    x->kernels->product(&x->p);
}
static double product_peak(int isa) {
    enum { ROWS = 24, FLOATS = 3072, DEPTH = 128, MOST_LANES = 64 }; /* 12 KB of A, at most as much of B */
    static float a[ROWS * DEPTH], b[FLOATS], c[ROWS * MOST_LANES];
    product x;
    int wide;
    memset(&x, 0, sizeof x);
    x.kernels = attn__table(isa);
    wide = x.kernels->width * x.kernels->vecs;
    x.p.a = a, x.p.b = b, x.p.c = c;
    x.p.rows = ROWS, x.p.depth = FLOATS / wide < DEPTH ? FLOATS / wide : DEPTH;
    x.p.a_row = x.p.depth, x.p.a_k = 1, x.p.b_row = x.p.c_row = wide;
    x.p.vecs = x.kernels->vecs, x.p.kind = ATTN__PRODUCT, x.p.chain = x.p.depth;
    return rate(run_product, &x, 0) * 2 * ROWS * (double)x.p.depth * wide;
}

/* So is its exponential. */
enum { EXPONENTIALS = 2048 };
static void run_exp(void *kernels) {
    static float x[EXPONENTIALS], y[EXPONENTIALS];
    ((const attn__kernels *)kernels)->elementary(0, x, y, EXPONENTIALS);
}

/* ---- the limits of this machine */
static void print_limit(const char *name, const char *isa, int threads, double value, const char *unit) {
    if (options.json)
        printf("{\"limit\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"value\":%.4g,\"unit\":\"%s\"}\n", name, isa, threads,
               value * 1e-9, unit);
    else printf("%-40s %-7s %2d %9.2f %s\n", name, isa, threads, value * 1e-9, unit);
    fflush(stdout);
}
#define MEDIAN(into, expression) \
    do { \
        double values[MAX_SAMPLES]; \
        for (int sample = 0; sample < options.samples; sample++) values[sample] = (expression); \
        into = median(values, options.samples); \
    } while (0)

static void print_limits(void) {
    static const struct {
        const char *name;
        size_t bytes; /* of each thread, in two parts */
    } levels[] = {{"read, 16 KiB a thread", 16 << 10},
                  {"read, 192 KiB a thread", 192 << 10},
                  {"read, 4 MiB a thread", 4 << 20},
                  {"read, 256 MiB in all", 0}};
    size_t most = (size_t)256 << 20;
    char *block = (char *)must_have(most + 64);
    float *memory = (float *)(block + (64 - (uintptr_t)block % 64)); /* no load across two lines */
    double value;
    memset(memory, 0, most);
    for (int isa = ATTN_ISA_SCALAR; isa < ATTN_ISA_COUNT; isa++) {
        if (!runs_here(isa)) continue;
        for (int threads = 1; threads <= options.threads; threads = next_threads(threads)) {
            limit l = {threads, isa, {{0}, 0, 0, 0, 0}};
            MEDIAN(value, peak(&l));
            print_limit("multiply-add in registers", name_of(isa), threads, value, "GFLOP/s");
        }
        MEDIAN(value, product_peak(isa));
        print_limit("product kernel in L1", name_of(isa), 1, value, "GFLOP/s");
        MEDIAN(value, rate(run_exp, (void *)attn__table(isa), 0) * EXPONENTIALS);
        print_limit("exp in L1", name_of(isa), 1, value, "G/s");
    }
    for (int i = 0; i < 4; i++)
        for (int threads = 1; threads <= options.threads; threads = next_threads(threads)) {
            size_t bytes = levels[i].bytes ? levels[i].bytes * (size_t)threads : most;
            limit l = {threads, 0, {{memory, memory + bytes / 8}, bytes / 8, threads, 1, 1}};
            if (bytes > most) continue;
            l.read.repeats = bytes < (1 << 20) ? 64 : 1;
            MEDIAN(value, bandwidth(&l));
            print_limit(levels[i].name, "", threads, value, "GB/s");
        }
    free(block);
}

/* ---- what double precision makes of a few rows */
static void project(const job *j, const float *x, const float *w, const float *bias, double *to) {
    for (int c = 0; c < j->d; c++) {
        to[c] = w ? 0 : (double)x[c];
        for (int i = 0; w && i < j->d; i++) to[c] += (double)w[c * j->d + i] * (double)x[i];
        if (bias) to[c] += (double)bias[c];
    }
}
static double score_of(const job *j, const float *q, const float *k) {
    double sum = 0, left[MOST_D], right[MOST_D];
    project(j, q, j->w_q, j->hidden_bias, left), project(j, k, j->w_k, NULL, right);
    for (int c = 0; c < j->d; c++) {
        double a = left[c], b = right[c];
        if (j->score == ATTN_SCORE_ADDITIVE) sum += (double)j->w_v[c] * tanh(a + b);
        else sum += j->score == ATTN_SCORE_GAUSSIAN ? -0.5 * (a - b) * (a - b) : a * b / sqrt((double)j->d);
    }
    return sum;
}
/* What dropout multiplies a weight with. */
static double kept(const job *j, int b, int h, int i, int n) {
    attn_desc desc;
    uint8_t byte = 1;
    if (!(j->dropout > 0)) return 1;
    memset(&desc, 0, sizeof desc);
    desc.dropout = j->dropout;
    desc.dropout_origin[0] = b, desc.dropout_origin[1] = h;
    desc.dropout_origin[2] = i, desc.dropout_origin[3] = n;
    attn_dropout_mask(attn_out_u8(&byte, 4, 1, 1, 1, 1), &desc, NULL);
    return byte / (1 - (double)j->dropout);
}
/* The largest difference, NaN if there is one. */
static double larger(double worst, double error) { return worst != worst || error <= worst ? worst : error; }
static double worse(double worst, float got, double want) { return larger(worst, fabs((double)got - want)); }
static double row_error(const job *j, int b, int h, int i, double *weight) {
    size_t row = ((size_t)b * (size_t)j->heads + (size_t)h) * (size_t)j->queries + (size_t)i, keys = (size_t)j->keys;
    size_t group = (size_t)b * (size_t)j->kv_heads + (size_t)(h * j->kv_heads / j->heads), d = (size_t)j->d;
    const float *q = j->q + row * (j->kind == 's' ? keys : d), *k = j->k + group * keys * d;
    const float *v = j->v + group * keys * (size_t)j->dv;
    double worst = 0, largest = -INFINITY, sum = 0;
    int from, to;
    if (j->kind == 'b') {
        for (size_t n = 0; n < keys; n++, sum = 0) {
            for (size_t c = 0; c < d; c++) sum += (double)q[c] * (double)k[j->transposed ? n * d + c : c * keys + n];
            worst = worse(worst, j->out[row * keys + n], sum);
        }
        return worst;
    }
    keys_allowed(j, b, i, &from, &to);
    for (size_t n = 0; n < keys; n++) {
        int allowed = (int)n >= from && (int)n < to && (!j->mask || j->mask[(size_t)i * keys + n]);
        weight[n] = !allowed ? -INFINITY : j->kind == 's' ? (double)q[n] : score_of(j, q, k + n * d);
        if (j->bias) weight[n] += (double)j->bias[row * keys + n];
        if (weight[n] > largest) largest = weight[n];
    }
    for (size_t n = 0; n < keys; n++) sum += weight[n] = exp(weight[n] - largest);
    for (size_t n = 0; n < keys; n++) {
        weight[n] /= sum;
        if (j->kind == 's') worst = worse(worst, j->out[row * keys + n], weight[n]);
        if (j->weights) worst = worse(worst, j->weights[row * keys + n], weight[n]);
    }
    for (int c = 0; !j->kind && c < j->dv; c++) {
        double want = 0;
        for (size_t n = 0; n < keys; n++)
            want += weight[n] * kept(j, b, h, i, (int)n) * (double)v[n * (size_t)j->dv + (size_t)c];
        worst = worse(worst, j->out[row * (size_t)j->dv + (size_t)c], want);
    }
    return worst;
}

/* Gradients of some rows: query i and key n of one head. Weights are had from the row's own statistics; that those are
   right is seen by the sum of the weights. */
typedef struct pair {
    const float *q, *k, *v, *d_out;
    double weight, dropped, d_score; /* before dropout, after it; the gradient of the score with its bias */
} pair;
static pair pair_of(const job *j, int b, int h, int i, int n) {
    size_t head = (size_t)b * (size_t)j->heads + (size_t)h, dv = (size_t)j->dv;
    size_t row = head * (size_t)j->queries + (size_t)i, key = head * (size_t)j->keys + (size_t)n;
    pair p = {j->q + row * (size_t)j->d, j->k + key * (size_t)j->d, j->v + key * dv, j->d_out + row * dv, 0, 0, 0};
    double above = 0, delta = 0, keep = kept(j, b, h, i, n), score;
    int from, to;
    keys_allowed(j, b, i, &from, &to);
    if (n < from || n >= to) return p;
    score = score_of(j, p.q, p.k);
    if (j->bias) score += (double)j->bias[(size_t)(h * j->queries + i) * (size_t)j->keys + (size_t)n];
    p.weight = exp(score - (double)j->stats[row * 2]) / (double)j->stats[row * 2 + 1];
    p.dropped = p.weight * keep;
    for (size_t c = 0; c < dv; c++) {
        above += (double)p.d_out[c] * (double)p.v[c] * keep;
        delta += (double)p.d_out[c] * (double)j->out[row * dv + c];
    }
    p.d_score = p.weight * (above - delta);
    return p;
}
/* The gradients of the two sides of a score: dq and dk are sums of it, for additive attention of it times W. */
static void add_side(const job *j, const pair *p, const float *other, double *sum) {
    double left[MOST_D], right[MOST_D];
    if (j->score == ATTN_SCORE_ADDITIVE)
        project(j, p->q, j->w_q, j->hidden_bias, left), project(j, p->k, j->w_k, NULL, right);
    for (int c = 0; c < j->d; c++) {
        double t = j->score == ATTN_SCORE_ADDITIVE ? tanh(left[c] + right[c]) : 0;
        sum[c] += p->d_score * (j->score == ATTN_SCORE_ADDITIVE ? (double)j->w_v[c] * (1 - t * t)
                                                                : (double)other[c] / sqrt((double)j->d));
    }
}
static double side_error(const job *j, const double *sum, const float *w, const float *got) {
    double worst = 0;
    for (int c = 0; c < j->d; c++) {
        double want = w ? 0 : sum[c];
        for (int i = 0; w && i < j->d; i++) want += (double)w[i * j->d + c] * sum[i];
        worst = worse(worst, got[c], want);
    }
    return worst;
}
static double gradient_error(const job *j, int b, int h, int i, int n) {
    size_t head = (size_t)b * (size_t)j->heads + (size_t)h;
    size_t row = head * (size_t)j->queries + (size_t)i, key = head * (size_t)j->keys + (size_t)n;
    double dq[MOST_D] = {0}, dk[MOST_D] = {0}, dv[MOST_D] = {0}, mass = 0, worst = 0;
    for (int other = 0; other < j->keys; other++) {
        pair p = pair_of(j, b, h, i, other);
        add_side(j, &p, p.k, dq), mass += p.weight;
        if (j->d_bias) worst = worse(worst, j->d_bias[row * (size_t)j->keys + (size_t)other], p.d_score);
    }
    for (int other = 0; other < j->queries; other++) {
        pair p = pair_of(j, b, h, other, n);
        add_side(j, &p, p.q, dk);
        for (int c = 0; c < j->dv; c++) dv[c] += p.dropped * (double)p.d_out[c];
    }
    for (int c = 0; c < j->dv; c++) worst = worse(worst, j->d_v[key * (size_t)j->dv + (size_t)c], dv[c]);
    worst = larger(worst, side_error(j, dq, j->w_q, j->d_q + row * (size_t)j->d));
    worst = larger(worst, side_error(j, dk, j->w_k, j->d_k + key * (size_t)j->d));
    return worse(worst, 1, mass);
}
static double check(const job *j) {
    double worst = 0, *weight = (double *)must_have((size_t)j->keys * sizeof *weight);
    for (int row = 0; row < ROWS_CHECKED; row++) {
        int b = row % j->batch, h = row % j->heads, i = (int)(row * 977L % j->queries);
        worst = larger(worst, row_error(j, b, h, i, weight));
        if (has_gradients(j)) worst = larger(worst, gradient_error(j, b, h, i, (int)(row * 661L % j->keys)));
    }
    free(weight);
    if (!(worst < WRONG * (j->kind == 'b' ? j->d : j->kind == 't' ? 5 : 1)))
        stop("the result is wrong"); /* sums of d terms, not means; gradients after a projection */
    return worst;
}

/* ---- a row on one instruction set and so many threads */
static double prepare(call *c, job *j) { /* and check; returns the error */
    float *out = j->out;
    out[0] = NAN;
    if (call_prepare(c, j, pool_of(j->threads)) != ATTN_OK) stop("attn.h refused the call");
    run_call(c);
    return check(j);
}

static void measure_row(job *j) {
    double percent[MAX_SAMPLES], rates[MAX_SAMPLES], bytes = bytes_moved(j), work = bytes > 0 ? bytes : operations(j);
    limit l = {j->threads, j->isa, {{j->k, j->v}, elements(j->batch, j->kv_heads, j->keys, j->d), j->threads, 1, 1}};
    double (*probe)(const limit *) = bytes > 0 ? bandwidth : peak, end, error, middle, percents;
    const char *unit = bytes > 0 ? "GB/s" : "GFLOP/s";
    int n = 0;
    call c;
    error = prepare(&c, j);
    if (j->kind == 's')
        l.read.part[0] = j->q, l.read.part[1] = j->out, l.read.floats = elements(j->queries, j->keys, 1, 1);
    end = seconds_now(1) + BUDGET;
    while (n < options.samples && (n < FEW || seconds_now(1) < end)) {
        double before = probe(&l);
        rates[n] = rate(run_call, &c, j->threads > 1) * work;
        percent[n] = 100 * rates[n] / (0.5 * (before + probe(&l))), n++;
    }
    middle = median(rates, n) * 1e-9, percents = median(percent, n);
    if (options.json)
        printf("{\"row\":\"%s\",\"isa\":\"%s\",\"heads\":%d,\"queries\":%d,\"keys\":%d,\"threads\":%d,\"value\":%.4g,"
               "\"unit\":\"%s\",\"percent\":%.2f,\"low\":%.2f,\"high\":%.2f,\"max_error\":%.3g,\"samples\":%d}\n",
               j->name, name_of(j->isa), j->heads, j->queries, j->keys, j->threads, middle, unit, percents, percent[0],
               percent[n - 1], error, n);
    else
        printf("%-40s %s%s %2d %9.1f %-7s %5.1f %% (%5.1f to %5.1f) %.1e\n", j->name, name_of(j->isa),
               j->isa == ATTN_ISA_SCALAR ? "*"
               : j->isa == ATTN_ISA_AVX2 ? "   "
                                         : " ",
               j->threads, middle, unit, percents, percent[0], percent[n - 1], error);
    fflush(stdout);
    free(c.desc.workspace);
}

/* With an emulated fused multiply-add only small work is of use. 0: something like it comes anyway. */
static int cut(job *j) {
    int fold = j->heads / j->kv_heads;
    if (j->lengths || j->keys > 8192 || (!j->kind && j->queries > 2048)) return 0;
    if (j->kv_heads > 2) j->kv_heads = 2, j->heads = 2 * fold;
    if (j->queries > 128) j->queries = 128;
    if (j->keys > 128) j->keys = 128;
    return 1;
}

static void measure_rows(void) {
    for (int i = 0; i < WORK_COUNT; i++) {
        job full = work_table[i], small = full;
        int has_small = cut(&small);
        if (options.filter && !strstr(full.name, options.filter)) continue;
        make_data(&full);
        if (has_small) make_data(&small);
        for (int isa = ATTN_ISA_SCALAR; isa < ATTN_ISA_COUNT; isa++) {
            job *j = isa == ATTN_ISA_SCALAR ? &small : &full;
            if (!runs_here(isa) || (isa == ATTN_ISA_SCALAR && !has_small)) continue;
            if (options.isa && strcmp(options.isa, name_of(isa)) != 0) continue;
            for (j->threads = 1; j->threads <= options.threads; j->threads = next_threads(j->threads))
                j->isa = isa, measure_row(j);
        }
        free_data(&full);
        if (has_small) free_data(&small);
    }
}

/* ---- bars: two rates in turn, the median of their ratio */
static void print_bar(const char *name, double *ratios, double bar) {
    double ratio = median(ratios, options.samples), low = ratios[0], high = ratios[options.samples - 1];
    const char *verdict = bar <= 0 ? "" : ratio >= bar ? "holds" : "SHORT";
    if (options.json)
        printf("{\"bar\":\"%s\",\"ratio\":%.3f,\"low\":%.3f,\"high\":%.3f,\"least\":%.2f,\"verdict\":\"%s\"}\n", name,
               ratio, low, high, bar, verdict);
    else if (bar > 0) printf("%-60s %6.2f (%.2f to %.2f), bar %.2f %s\n", name, ratio, low, high, bar, verdict);
    else printf("%-60s %6.2f (%.2f to %.2f)\n", name, ratio, low, high);
    fflush(stdout);
}
static void bar_of_product(int isa) {
    double ratios[MAX_SAMPLES];
    char name[80];
    job j = {"8x2048 d128", SELF(8, 2048, 128)};
    call c;
    if (!runs_here(isa)) return;
    j.threads = 1, j.isa = isa;
    make_data(&j), prepare(&c, &j);
    for (int i = 0; i < options.samples; i++) {
        double before = product_peak(isa), ours = rate(run_call, &c, 0) * operations(&j);
        ratios[i] = ours / (0.5 * (before + product_peak(isa)));
    }
    snprintf(name, sizeof name, "%s on %s over its product kernel in L1", j.name, name_of(isa));
    print_bar(name, ratios, isa == ATTN_ISA_AVX2 ? 0.85 : 0);
    free_data(&j), free(c.desc.workspace);
}
static void bar_of_fixed_cost(void) {
    double ratios[MAX_SAMPLES];
    job least = {"one query, one key, d 1", SELF(1, 1, 1)}, small = {"1x16x16 d16", SELF(1, 16, 16)};
    call a, b;
    least.threads = small.threads = 1;
    make_data(&least), make_data(&small), prepare(&a, &least), prepare(&b, &small);
    for (int i = 0; i < options.samples; i++) ratios[i] = rate(run_call, &a, 0) / rate(run_call, &b, 0);
    print_bar("1x16x16 d16 over the least call there is, in time", ratios, 3);
    free_data(&least), free_data(&small), free(a.desc.workspace), free(b.desc.workspace);
}
typedef struct planned {
    attn_plan plan;
    void *workspace;
} planned;
static void run_plan(void *arg) {
    const planned *x = (const planned *)arg;
    for (int32_t phase = 0; phase < x->plan.phases; phase++)
        for (int64_t i = 0; i < x->plan.tasks[phase]; i++) attn_task(&x->plan, x->workspace, phase, i, 0);
}
static void bar_of_plan(void) { /* what is saved by checking a call once, not each time that it runs */
    double ratios[MAX_SAMPLES];
    job j = {"1x16x16 d16", SELF(1, 16, 16)};
    call c;
    planned x;
    j.threads = 1;
    make_data(&j), prepare(&c, &j);
    x.workspace = c.desc.workspace;
    if (attn_plan_forward(&c.desc, &x.plan, NULL) != ATTN_OK) stop("no plan");
    for (int i = 0; i < options.samples; i++) ratios[i] = rate(run_plan, &x, 0) / rate(run_call, &c, 0);
    print_bar("1x16x16 d16, tasks of a plan over attn_forward", ratios, 1);
    free_data(&j), free(c.desc.workspace);
}

void attention_loop(void *job, int64_t i, int32_t worker);
static void run_loop(void *arg) {
    const job *j = (const job *)arg;
    for (int i = 0; i < j->heads * j->queries; i++) attention_loop((void *)j, i, 0);
}
static void bar_of_loops(void) {
    double ratios[MAX_SAMPLES];
    job j = {"2x256 d64", SELF(2, 256, 64)};
    char name[80];
    call c;
#if defined(__FMA__) || defined(__aarch64__)
    const char *fused = "with";
    double bar = 1;
#else
    const char *fused = "without";
    double bar = 0;
#endif
    j.threads = 1, j.isa = ATTN_ISA_SCALAR;
    make_data(&j), run_loop(&j), check(&j), prepare(&c, &j);
    for (int i = 0; i < options.samples; i++) ratios[i] = rate(run_call, &c, 0) / rate(run_loop, &j, 0);
    snprintf(name, sizeof name, "%s on scalar, %s hardware FMA, over plain loops", j.name, fused);
    print_bar(name, ratios, bar);
    free_data(&j), free(c.desc.workspace);
}

/* ---- sequences: rotary positions and new rows of a cache over a copy of the same bytes, or attn_convert of them */
typedef struct sequence {
    attn_view x, cosines, sines, lengths;
    attn_out out, cache, straight;
    attn_desc options;
    size_t bytes;
    uint32_t flags;
} sequence;
static void *(*volatile copy_memory)(void *, const void *, size_t) = memcpy;
static void run_copy(void *arg) {
    const sequence *s = (const sequence *)arg;
    copy_memory(s->straight.data, s->x.data, s->bytes);
}
static void run_rope(void *arg) {
    static const attn_view none;
    const sequence *s = (const sequence *)arg;
    if (attn_rope(s->x, s->cosines, s->sines, none, s->flags, s->out, NULL)) stop("attn_rope refused the call");
}
static void run_append(void *arg) {
    const sequence *s = (const sequence *)arg;
    if (attn_append(s->x, s->cache, s->lengths, &s->options, NULL)) stop("attn_append refused the call");
}
static void run_copies(void *arg) { /* the same rows to the same places, where all are f32 */
    const sequence *s = (const sequence *)arg;
    const attn_view *x = &s->x, *table = &s->options.page_table;
    for (int64_t b = 0; b < x->size[0]; b++)
        for (int64_t h = 0; h < x->size[1]; h++)
            for (int64_t i = 0; i < x->size[2]; i++) {
                const int64_t to = ((const int32_t *)s->lengths.data)[b] + i, page = to / s->cache.size[2];
                const int64_t at = table->rank ? ((const int32_t *)table->data)[b * table->stride[0] + page] : b;
                copy_memory((float *)s->cache.data + at * s->cache.stride[0] + h * s->cache.stride[1] +
                                (to - page * s->cache.size[2]) * s->cache.stride[2],
                            (const float *)x->data + b * x->stride[0] + h * x->stride[1] + i * x->stride[2],
                            (size_t)x->size[3] * sizeof(float));
            }
}
static void run_convert(void *arg) {
    const sequence *s = (const sequence *)arg;
    if (attn_convert(s->x, s->straight, NULL)) stop("attn_convert refused the call");
}
static float *aligned_floats(size_t n, void **block) {
    *block = must_have(n * sizeof(float) + 64);
    float *x = (float *)((char *)*block + (64 - (uintptr_t)*block % 64));
    for (size_t i = 0; i < n; i++) x[i] = (float)(i % 61) / 64 - 0.5f;
    return x;
}
static void bar_of_rope(int heads, int rows, int d) {
    static const struct {
        const char *name;
        uint32_t flags;
        int in_place;
    } ways[] = {{"halves", 0, 0}, {"interleaved", 1, 0}, {"halves, in place", 0, 1}, {"interleaved, in place", 1, 1}};
    size_t n = (size_t)heads * (size_t)rows * (size_t)d, half = (size_t)rows * (size_t)d / 2;
    void *blocks[4];
    float *x = aligned_floats(n, &blocks[0]), *y = aligned_floats(n, &blocks[1]);
    float *c = aligned_floats(half, &blocks[2]), *sines = aligned_floats(half, &blocks[3]);
    sequence s;
    char name[80];
    double ratios[MAX_SAMPLES];
    memset(&s, 0, sizeof s);
    attn_rope_table(attn_out_f32(c, 2, rows, d / 2, 0, 0), attn_out_f32(sines, 2, rows, d / 2, 0, 0), NULL, NULL);
    s.cosines = attn_view_f32(c, 2, rows, d / 2, 0, 0), s.sines = attn_view_f32(sines, 2, rows, d / 2, 0, 0);
    s.straight = attn_out_bhsd(y, 1, heads, rows, d), s.bytes = n * sizeof *x;
    for (int way = 0; way < 4; way++) {
        s.flags = ways[way].flags;
        s.x = attn_view_bhsd(x, 1, heads, rows, d);
        s.out = ways[way].in_place ? attn_out_bhsd(x, 1, heads, rows, d) : s.straight;
        for (int i = 0; i < options.samples; i++) ratios[i] = rate(run_rope, &s, 0) / rate(run_copy, &s, 0);
        snprintf(name, sizeof name, "rope %dx%d d%d, %s, over memcpy", heads, rows, d, ways[way].name);
        print_bar(name, ratios, 0.8);
    }
    for (int i = 0; i < 4; i++) free(blocks[i]);
}
static void bar_of_append(int entries, int heads, int rows, int page, int32_t type) {
    enum { D = 128 };
    const int capacity = 2 * rows + 2 * page, pages = page ? capacity / page : 1, room = page ? page : capacity;
    const size_t n = (size_t)entries * (size_t)heads * (size_t)rows * D;
    const size_t cached = (size_t)entries * (size_t)pages * (size_t)heads * (size_t)room * D;
    void *blocks[3];
    float *x = aligned_floats(n, &blocks[0]), *y = aligned_floats(n, &blocks[1]),
          *cache = aligned_floats(cached, &blocks[2]);
    int32_t *lengths = (int32_t *)must_have((size_t)entries * sizeof *lengths);
    int32_t *table = (int32_t *)must_have((size_t)entries * (size_t)pages * sizeof *table);
    sequence s;
    char name[80];
    double ratios[MAX_SAMPLES];
    memset(&s, 0, sizeof s);
    for (int b = 0; b < entries; b++) lengths[b] = rows / 2 + 1;
    for (int i = 0; i < entries * pages; i++) table[i] = entries * pages - 1 - i;
    s.x = attn_view_bhsd(x, entries, heads, rows, D);
    s.straight = attn_out_typed((attn_type)type, y, 4, entries, heads, rows, D);
    s.cache = attn_out_typed((attn_type)type, cache, 4, entries * pages, heads, room, D);
    s.lengths = attn_view_i32(lengths, 1, entries, 0, 0, 0);
    if (page) s.options.page_table = attn_view_i32(table, 2, entries, pages, 0, 0);
    for (int i = 0; i < options.samples; i++)
        ratios[i] = rate(run_append, &s, 0) / rate(type == ATTN_F32 ? run_copies : run_convert, &s, 0);
    snprintf(name, sizeof name, "append %dx%dx%d d%d to %s%s, over %s", entries, heads, rows, D,
             type == ATTN_F16 ? "f16" : "f32", page ? ", pages of 16" : "",
             type == ATTN_F16 ? "attn_convert" : "memcpy of each row");
    print_bar(name, ratios, 0.8);
    for (int i = 0; i < 3; i++) free(blocks[i]);
    free(lengths), free(table);
}
static void bars_of_sequences(void) {
    bar_of_rope(8, 64, 128), bar_of_rope(32, 256, 128), bar_of_rope(32, 4096, 128);
    for (int page = 0; page <= 16; page += 16)
        for (int type = ATTN_F32; type <= ATTN_F16; type++)
            bar_of_append(8, 32, 1, page, type), bar_of_append(1, 8, 512, page, type);
}

/* ---- options: a bias by index over the call without; sums by key over the forward; codes over a copy, in bytes
   read and written */
typedef struct option {
    attn_desc desc;
    attn_out sums, codes, scales;
} option;
static void run_forward(void *arg) {
    if (attn_forward(&((const option *)arg)->desc, NULL)) stop("attn_forward refused the call");
}
static void run_sums(void *arg) {
    const option *o = (const option *)arg;
    if (attn_key_sums(&o->desc, 0, o->sums, NULL)) stop("attn_key_sums refused the call");
}
static void run_codes(void *arg) {
    const option *o = (const option *)arg;
    if (attn_quantize(o->desc.k, o->codes, o->scales, NULL)) stop("attn_quantize refused the call");
}
static void bar_of_option(const char *name, void (*run)(void *), option *with, const option *plain, double bar) {
    double ratios[MAX_SAMPLES];
    for (int i = 0; i < options.samples; i++) ratios[i] = rate(run, with, 0) / rate(run_forward, (void *)plain, 0);
    print_bar(name, ratios, bar);
}
static void bars_of_bias(const option *plain, int heads, int rows) {
    enum { TABLE = 256 };
    int32_t *index = (int32_t *)must_have((size_t)rows * (size_t)rows * sizeof *index), *distances = index + rows;
    float *bias = random_floats((size_t)heads * (size_t)rows * (size_t)rows);
    option with = *plain;
    with.desc.bias = attn_view_f32(bias, 4, 1, heads, rows, rows);
    bar_of_option("bias of all pairs, over the call without", run_forward, &with, plain, 0);
    with.desc.bias = attn_view_f32(bias, 2, heads, TABLE, 0, 0);
    for (int i = -rows + 1; i < rows; i++) distances[i] = (i < 0 ? -i : i) % TABLE;
    with.desc.bias_index = attn_view_i32(distances, 2, rows, rows, 0, 0);
    with.desc.bias_index.stride[0] = -1, with.desc.bias_index.stride[1] = 1;
    bar_of_option("bias by distance, over the call without", run_forward, &with, plain, 1 / 1.15);
    for (int i = 0; i < rows * rows; i++) index[i] = (int32_t)((uint32_t)i * 2654435761u >> 24);
    with.desc.bias_index = attn_view_i32(index, 2, rows, rows, 0, 0);
    bar_of_option("bias by any index, over the call without", run_forward, &with, plain, 1 / 1.15);
    free(index), free(bias);
}
static void bars_of_codes(int heads, int rows, int d) {
    const size_t n = (size_t)heads * (size_t)rows * (size_t)d;
    float *x = random_floats(n), *y = random_floats(n), *scales = random_floats(n / 32);
    double ratios[MAX_SAMPLES];
    option o;
    sequence s;
    memset(&o, 0, sizeof o), memset(&s, 0, sizeof s);
    o.desc.k = s.x = attn_view_bhsd(x, 1, heads, rows, d);
    s.straight = attn_out_bhsd(y, 1, heads, rows, d), s.bytes = n * sizeof *x;
    o.codes = attn_out_typed(ATTN_I8, must_have(n), 4, 1, heads, rows, d);
    for (int groups = 1; groups <= d / 32; groups += d / 32 - 1) {
        o.scales = attn_out_f32(scales, 4, 1, heads, rows, groups);
        for (int i = 0; i < options.samples; i++) ratios[i] = 5 * rate(run_codes, &o, 0) / (8 * rate(run_copy, &s, 0));
        print_bar(groups == 1 ? "attn_quantize, a scale per row, over memcpy, bytes a second"
                              : "attn_quantize, a scale per 32, over memcpy, bytes a second",
                  ratios, 0.5);
    }
    free(x), free(y), free(scales), free(o.codes.data);
}
static void bars_of_options(void) {
    enum { HEADS = 8, ROWS = 1024, D = 64 };
    const size_t n = (size_t)HEADS * ROWS * D;
    float *x[4], *stats = random_floats(2 * HEADS * ROWS), *sums = random_floats(HEADS * ROWS);
    option plain;
    for (int i = 0; i < 4; i++) x[i] = random_floats(n);
    memset(&plain, 0, sizeof plain);
    plain.desc.q = attn_view_bhsd(x[0], 1, HEADS, ROWS, D), plain.desc.k = attn_view_bhsd(x[1], 1, HEADS, ROWS, D);
    plain.desc.v = attn_view_bhsd(x[2], 1, HEADS, ROWS, D), plain.desc.out = attn_out_bhsd(x[3], 1, HEADS, ROWS, D);
    plain.sums = attn_out_f32(sums, 3, 1, HEADS, ROWS, 0);
    bars_of_bias(&plain, HEADS, ROWS);
    bar_of_option("attn_key_sums without stats, over attn_forward", run_sums, &plain, &plain, 0);
    plain.desc.stats = attn_out_f32(stats, 4, 1, HEADS, ROWS, 2);
    bar_of_option("attn_key_sums with stats, over attn_forward", run_sums, &plain, &plain, 1 / 0.6);
    bars_of_codes(8, 4096, 128);
    for (int i = 0; i < 4; i++) free(x[i]);
    free(stats), free(sums);
}

static void print_machine(void) {
    if (options.json)
        printf("{\"cpu\":\"%s\",\"threads\":%d,\"compiler\":\"%s\",\"flags\":\"%s\",\"commit\":\"%s\",\"version\":%d,"
               "\"best_isa\":\"%s\"}\n",
               cpu_name(), options.threads, COMPILER, BENCH_FLAGS, BENCH_COMMIT, (int)attn_version(),
               name_of(attn_best_isa()));
    else
        printf("%s\n%s, %s, commit %s\nbest instruction set: %s; medians of at most %d samples; rows in %% of the "
               "multiply-add peak, or of reading K and V\nwhere that is the work, lowest to highest, and the largest "
               "error. *: cut to 2 heads, 128 queries, 128 keys\n\n",
               cpu_name(), COMPILER, BENCH_FLAGS, BENCH_COMMIT, name_of(attn_best_isa()), options.samples);
}

int main(int argc, char **argv) {
    options.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--json")) options.json = 1;
        else if (!strcmp(argv[i], "--loops")) options.loops_only = 1;
        else if (!strcmp(argv[i], "--sequences")) options.sequences_only = 1;
        else if (!strcmp(argv[i], "--options")) options.options_only = 1;
        else if (!strcmp(argv[i], "--filter")) options.filter = value, i++;
        else if (!strcmp(argv[i], "--isa")) options.isa = value, i++;
        else if (!strcmp(argv[i], "--threads")) options.threads = atoi(value), i++;
        else if (!strcmp(argv[i], "--samples")) options.samples = atoi(value), i++;
        else
            stop("options: --json, --filter TEXT, --isa NAME, --threads N, --samples N, --loops, --sequences, "
                 "--options");
    }
    if (options.threads < 1) options.threads = 1;
    if (options.samples < FEW) options.samples = FEW;
    if (options.samples > MAX_SAMPLES) options.samples = MAX_SAMPLES;
    all.pinned = options.threads > 1;
    pool_start(&one, 1), pool_start(&all, options.threads);
    if (options.loops_only) {
        bar_of_loops();
        return 0;
    }
    if (options.sequences_only) {
        bars_of_sequences();
        return 0;
    }
    if (options.options_only) {
        bars_of_options();
        return 0;
    }
    print_machine();
    if (!options.filter) print_limits();
    measure_rows();
    if (options.filter) return 0;
    for (int isa = ATTN_ISA_AVX2; isa < ATTN_ISA_COUNT; isa++) bar_of_product(isa);
    bar_of_fixed_cost(), bar_of_plan(), bar_of_loops(), bars_of_sequences(), bars_of_options();
    return 0;
}
