/* cc -O2 bench/bench.c -lm; or `make bench`, which also tells it compiler, flags and commit.
   Forward attention on one thread, per instruction set, beside the machine's own peak: loops of fused
   multiply-adds in registers, run before and after every sample, since clocks and neighbours change. Every
   result is checked against double precision before it is timed. Times are this process's CPU time.
   --json: a line of JSON per row. --isa NAME: one instruction set. --samples N: at least 9. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#ifndef BENCH_FLAGS
#define BENCH_FLAGS "unknown"
#endif
#ifndef BENCH_COMMIT
#define BENCH_COMMIT "unknown"
#endif
#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

enum { MAX_SAMPLES = 101 };

static double now(void) { return (double)clock() / CLOCKS_PER_SEC; }

static void stop(const char *what) {
    printf("bench: %s\n", what);
    exit(1);
}
static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double median(const double *values, int n) {
    double sorted[MAX_SAMPLES];
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return sorted[n / 2];
}

/* ---- peaks: 12 independent chains cover the latency of every machine so far; the barrier keeps each in a
   register. Returns the operations, two per multiply-add. */
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#if defined(__GNUC__) && defined(__x86_64__)
#define KEEP(v) __asm__ volatile("" : "+x"(v))
#define KEEP512(v) __asm__ volatile("" : "+v"(v))
#else
#define KEEP(v) (void)0
#endif
static volatile float sink;

static double peak_scalar(long rounds) { /* no fused instruction: a multiplication and an addition */
    float a = 0.5f, b = 0.25f;
    long i;
#define DECLARE(n) float c##n = 0;
#define STEP(n) \
    c##n = c##n * a + b; \
    KEEP(c##n);
    CHAINS(DECLARE)
    for (i = 0; i < rounds; i++) { CHAINS(STEP) }
#undef DECLARE
#undef STEP
#define TOTAL(n) +c##n
    sink = 0 CHAINS(TOTAL);
    return 2.0 * 12 * (double)rounds;
}
#if defined(__GNUC__) && defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double peak_avx2(long rounds) {
    __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f), total = b;
    long i;
#define DECLARE(n) __m256 c##n = b;
#define STEP(n) \
    c##n = _mm256_fmadd_ps(c##n, a, b); \
    KEEP(c##n);
#define ADD(n) total = _mm256_add_ps(total, c##n);
    CHAINS(DECLARE)
    for (i = 0; i < rounds; i++) { CHAINS(STEP) }
    CHAINS(ADD)
#undef DECLARE
#undef STEP
#undef ADD
    sink = _mm256_cvtss_f32(total);
    return 2.0 * 8 * 12 * (double)rounds;
}
__attribute__((target("avx512f"))) static double peak_avx512(long rounds) {
    __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f), total = b;
    long i;
#define DECLARE(n) __m512 c##n = b;
#define STEP(n) \
    c##n = _mm512_fmadd_ps(c##n, a, b); \
    KEEP512(c##n);
#define ADD(n) total = _mm512_add_ps(total, c##n);
    CHAINS(DECLARE)
    for (i = 0; i < rounds; i++) { CHAINS(STEP) }
    CHAINS(ADD)
#undef DECLARE
#undef STEP
#undef ADD
    sink = _mm512_cvtss_f32(total);
    return 2.0 * 16 * 12 * (double)rounds;
}
#else
#define peak_avx2 peak_scalar
#define peak_avx512 peak_scalar
#endif

/* Operations per second of the probe of an instruction set; about 4 ms. */
static double peak(attn_isa isa) {
    double start, operations, seconds;
    long rounds = isa == ATTN_ISA_SCALAR ? 500000 : 1000000;
    start = now();
    if (isa == ATTN_ISA_AVX512) operations = peak_avx512(rounds);
    else if (isa == ATTN_ISA_AVX2) operations = peak_avx2(rounds);
    else operations = peak_scalar(rounds);
    seconds = now() - start;
    return seconds > 0 ? operations / seconds : 0;
}

/* ---- one shape */
typedef struct {
    int heads, length, size, causal;
} shape;
typedef struct {
    double percent, low, high, gflops, error;
} measurement;

static float *random_floats(size_t n) { /* uniform, variance 1 */
    static uint32_t state = 1;
    float *p = (float *)malloc(n * sizeof *p);
    size_t i;
    if (!p) stop("out of memory");
    for (i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = ((float)(state >> 8) / 8388608.0f - 1) * 1.7320508f;
    }
    return p;
}
/* The largest error of a few rows against double precision. */
static double check(const shape *s, const float *q, const float *k, const float *v, const float *out) {
    double worst = 0, *weight = (double *)malloc((size_t)s->length * sizeof *weight);
    int row, j, c;
    if (!weight) stop("out of memory");
    for (row = 0; row < 8; row++) {
        int head = row % s->heads, i = row * 977 % s->length, keys = s->causal ? i + 1 : s->length;
        const float *qi = q + ((size_t)head * (size_t)s->length + (size_t)i) * (size_t)s->size;
        const float *kh = k + (size_t)head * (size_t)s->length * (size_t)s->size;
        const float *vh = v + (size_t)head * (size_t)s->length * (size_t)s->size;
        double largest = -INFINITY, sum = 0;
        for (j = 0; j < keys; j++) {
            double score = 0;
            for (c = 0; c < s->size; c++)
                score += (double)qi[c] * (double)kh[(size_t)j * (size_t)s->size + (size_t)c];
            weight[j] = score / sqrt((double)s->size);
            if (weight[j] > largest) largest = weight[j];
        }
        for (j = 0; j < keys; j++) sum += weight[j] = exp(weight[j] - largest);
        for (c = 0; c < s->size; c++) {
            double want = 0, error;
            for (j = 0; j < keys; j++)
                want += weight[j] * (double)vh[(size_t)j * (size_t)s->size + (size_t)c];
            error = fabs((double)out[(qi - q) + c] - want / sum);
            if (worst == worst && !(error <= worst)) worst = error;
        }
    }
    free(weight);
    return worst;
}
static measurement measure(const shape *s, attn_isa isa, int samples) {
    size_t n = (size_t)s->heads * (size_t)s->length * (size_t)s->size;
    float *q = random_floats(n), *k = random_floats(n), *v = random_floats(n), *out = random_floats(n);
    double percent[MAX_SAMPLES], rate[MAX_SAMPLES], operations;
    measurement m;
    attn_desc d;
    size_t bytes;
    int i;
    memset(&d, 0, sizeof d);
    d.q = attn_view_bhsd(q, 1, s->heads, s->length, s->size);
    d.k = attn_view_bhsd(k, 1, s->heads, s->length, s->size);
    d.v = attn_view_bhsd(v, 1, s->heads, s->length, s->size);
    d.out = attn_out_bhsd(out, 1, s->heads, s->length, s->size);
    d.causal = s->causal;
    d.isa = isa;
    if (attn_workspace_size(&d, &bytes, NULL) != ATTN_OK) stop("attn_workspace_size");
    d.workspace = malloc(bytes ? bytes : 1);
    d.workspace_bytes = bytes;
    if (attn_forward(&d, NULL) != ATTN_OK) stop("attn_forward");
    m.error = check(s, q, k, v, out);
    if (!(m.error < 1e-5)) stop("the result is wrong");
    operations = 4.0 * s->heads * (double)s->length * s->length * s->size * (s->causal ? 0.5 : 1);
    for (i = 0; i < samples; i++) {
        double before = peak(isa), start = now(), seconds, after;
        int repeats = 0;
        do attn_forward(&d, NULL), repeats++;
        while ((seconds = now() - start) < 5e-3);
        after = peak(isa);
        rate[i] = operations * repeats / seconds;
        percent[i] = 100 * rate[i] / (0.5 * (before + after));
    }
    m.percent = median(percent, samples);
    m.gflops = median(rate, samples) * 1e-9;
    m.low = m.high = percent[0];
    for (i = 1; i < samples; i++) {
        if (percent[i] < m.low) m.low = percent[i];
        if (percent[i] > m.high) m.high = percent[i];
    }
    free(q), free(k), free(v), free(out), free(d.workspace);
    return m;
}

/* ---- the table */
static void cpu_name(char *name, size_t size) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(name, size, "unknown CPU");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
            snprintf(name, size, "%s", strchr(line, ':') + 2);
            name[strcspn(name, "\n")] = 0;
            break;
        }
    if (f) fclose(f);
}
static void print_row(const shape *s, attn_isa isa, const measurement *m, int samples, int json) {
    const char *name = attn_isa_string(isa);
    if (json)
        printf("{\"isa\":\"%s\",\"heads\":%d,\"length\":%d,\"d\":%d,\"causal\":%d,\"percent_of_peak\":%.2f,"
               "\"low\":%.2f,"
               "\"high\":%.2f,\"gflops\":%.2f,\"max_error\":%.3g,\"samples\":%d}\n",
               name, s->heads, s->length, s->size, s->causal, m->percent, m->low, m->high, m->gflops,
               m->error, samples);
    else
        printf("%-8s %dx%-5d d%-4d %-7s %6.1f %%  (%5.1f to %5.1f) %9.2f GFLOP/s   max error %.1e\n", name,
               s->heads, s->length, s->size, s->causal ? "causal" : "", m->percent, m->low, m->high,
               m->gflops, m->error);
    fflush(stdout);
}
static void run(attn_isa isa, int samples, int json) {
    static const int sizes[] = {64, 128};
    double peaks[MAX_SAMPLES];
    int i, causal;
    for (i = 0; i < samples; i++) peaks[i] = peak(isa);
    if (!json) {
        printf("\n%s: peak %.1f GFLOP/s", attn_isa_string(isa), median(peaks, samples) * 1e-9);
        if (isa == ATTN_ISA_SCALAR)
            printf(" of multiply and add; it emulates the fused one: shapes of 2x128 only");
        printf("\n");
    }
    for (i = 0; i < 2; i++)
        for (causal = 0; causal < 2; causal++) {
            shape s = {8, 2048, 64, 0};
            measurement m;
            if (isa == ATTN_ISA_SCALAR) s.heads = 2, s.length = 128;
            s.size = sizes[i];
            s.causal = causal;
            m = measure(&s, isa, samples);
            print_row(&s, isa, &m, samples, json);
        }
}

int main(int argc, char **argv) {
    char cpu[128];
    const char *only = NULL;
    int i, json = 0, samples = 11, isa;
    float x = 0;
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) json = 1;
        else if (!strcmp(argv[i], "--isa") && i + 1 < argc) only = argv[++i];
        else if (!strcmp(argv[i], "--samples") && i + 1 < argc) samples = atoi(argv[++i]);
        else stop("options: --json, --isa NAME, --samples N");
    }
    if (samples < 9) samples = 9;
    if (samples > MAX_SAMPLES) samples = MAX_SAMPLES;
    cpu_name(cpu, sizeof cpu);
    if (json)
        printf("{\"cpu\":\"%s\",\"compiler\":\"%s\",\"flags\":\"%s\",\"commit\":\"%s\",\"version\":%d,\"best_"
               "isa\":\"%s\"}\n",
               cpu, COMPILER, BENCH_FLAGS, BENCH_COMMIT, (int)attn_version(),
               attn_isa_string(attn_best_isa()));
    else
        printf("%s\n%s, %s, commit %s\nforward f32, one thread, best instruction set: %s\n"
               "median of %d samples (lowest to highest), each against the peak measured around it; a causal "
               "shape counts\n"
               "half the operations\n",
               cpu, COMPILER, BENCH_FLAGS, BENCH_COMMIT, attn_isa_string(attn_best_isa()), samples);
    for (isa = ATTN_ISA_SCALAR; isa < ATTN_ISA_COUNT; isa++) {
        if (only && strcmp(only, attn_isa_string((attn_isa)isa)) != 0) continue;
        if (attn_elementary(0, &x, &x, 1, (attn_isa)isa) == ATTN_OK) run((attn_isa)isa, samples, json);
        else if (!json) printf("\n%s: not in this build or on this CPU\n", attn_isa_string((attn_isa)isa));
    }
    return 0;
}
