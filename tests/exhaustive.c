/* exhaustive.c - exp, log and tanh of every float, on every instruction set of this machine: within 2 units of the last
   place of the exact value, and the same bits everywhere. Then the tables of attn_rope_table, of each kind: every
   position to 2^16 and a million numbers to 2^24, within 1 unit of cosine and sine in long double. Takes minutes; one
   thread for each processor.
   build/exhaustive [STEP]: every STEP-th float, and a STEP-th of the tables' rows, 1 unless given. */
#if !defined(_WIN32) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE
#endif
#include "../attn.h"
#include "elementary.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCK = 1 << 14, MOST_THREADS = 64 };
static const double LIMIT = 2;

typedef struct verdict { /* of one function */
    double worst;
    float at;                   /* where it is that far off */
    uint64_t tested, different; /* different: bits, between instruction sets */
    float differs;              /* the last such place */
    uint64_t nans;              /* with other bits than 0x7fc00000 */
} verdict;

static struct {
    int function;
    uint64_t step, next; /* next: the first bit pattern that nobody works on */
    attn_isa isas[ATTN_ISA_COUNT];
    int isa_count;
    verdict verdict;
    pthread_mutex_t lock;
} job;

/* The floats of one block through every instruction set. */
static void test_block(uint64_t first, verdict *v) {
    float x[BLOCK] = {0}, y[BLOCK], other[BLOCK];
    int n = 0;
    for (uint64_t bits = first; n < BLOCK && bits >> 32 == 0; bits += job.step) x[n++] = float_of_bits((uint32_t)bits);
    attn_elementary(job.function, x, y, n, job.isas[0]);
    for (int i = 0; i < n; i++) {
        double off = elementary_ulps(job.function, x[i], y[i]);
        if (!(off <= v->worst)) v->worst = off, v->at = x[i];
        v->nans += (uint64_t)elementary_odd_nan(y[i]);
    }
    for (int isa = 1; isa < job.isa_count; isa++) {
        attn_elementary(job.function, x, other, n, job.isas[isa]);
        if (!memcmp(y, other, (size_t)n * sizeof *y)) continue;
        for (int i = 0; i < n; i++)
            if (bits_of_float(y[i]) != bits_of_float(other[i])) v->different++, v->differs = x[i];
    }
    v->tested += (uint64_t)n;
}

static void *work(void *arg) {
    verdict mine = {0, 0, 0, 0, 0, 0};
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&job.lock);
        uint64_t first = job.next;
        job.next += BLOCK * job.step;
        pthread_mutex_unlock(&job.lock);
        if (first >> 32) break;
        test_block(first, &mine);
    }
    pthread_mutex_lock(&job.lock);
    if (!(mine.worst <= job.verdict.worst)) job.verdict.worst = mine.worst, job.verdict.at = mine.at;
    if (mine.different) job.verdict.differs = mine.differs;
    job.verdict.different += mine.different;
    job.verdict.tested += mine.tested;
    job.verdict.nans += mine.nans;
    pthread_mutex_unlock(&job.lock);
    return 0;
}

static int threads_of_machine(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : (int)n;
}

static int test_function(int function) { /* 1 when it passed */
    static const verdict none = {0, 0, 0, 0, 0, 0};
    pthread_t threads[MOST_THREADS];
    int count = threads_of_machine(), passed;
    job.function = function;
    job.next = 0;
    job.verdict = none;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], 0, work, 0)) abort();
    for (int i = 0; i < count; i++) pthread_join(threads[i], 0);
    passed =
        job.verdict.worst <= LIMIT && job.verdict.different == 0 && job.verdict.nans == 0 && job.verdict.tested > 0;
    printf("%-6s %-4s of %llu floats: at most %.3f units of the last place, at %.9g (limit %g); ",
           passed ? "ok" : "FAILED", elementary_names[function], (unsigned long long)job.verdict.tested,
           job.verdict.worst, (double)job.verdict.at, LIMIT);
    printf("%llu with other bits on another instruction set", (unsigned long long)job.verdict.different);
    if (job.verdict.different) printf(", as at %.9g", (double)job.verdict.differs);
    if (job.verdict.nans) printf("; %llu NaNs of other bits than 7fc00000", (unsigned long long)job.verdict.nans);
    printf("\n");
    fflush(stdout);
    return passed;
}

/* ---- tables for rotary positions. The frequencies as the manual has them, from long double: where that is so near the
   middle between two doubles that it does not tell which is the nearest, either counts. */
enum { HALF = 64, KINDS = ATTN_ROPE_SCALING_COUNT, NEAR_ROWS = 1 << 16, FAR_ROWS = 1000000, ROWS = 64 };
static attn_rope_desc table_kind(int kind) {
    attn_rope_desc d;
    memset(&d, 0, sizeof d);
    d.scaling = kind;
    d.base = kind == ATTN_ROPE_PLAIN ? 0 : 500000;
    d.factor = kind == ATTN_ROPE_PLAIN ? 0 : 8;
    d.original_positions = kind == ATTN_ROPE_YARN || kind == ATTN_ROPE_LLAMA3 ? 8192 : 0;
    return d;
}
static double frequency(const attn_rope_desc *d, int n, int other) {
    const double two_pi = 6.283185307179586, size = 2 * HALF;
    long double base = d->base != 0 ? (long double)d->base : 10000, exact;
    if (d->scaling == ATTN_ROPE_NTK) base *= powl((long double)d->factor, (long double)size / ((long double)size - 2));
    exact = powl(base, -2.0L * n / (long double)size);
    double w = (double)exact, part;
    if (other) { /* the neighbour on the other side of the exact value, where it is nearly as near */
        double next = nextafter(w, exact > (long double)w ? INFINITY : 0);
        if (fabsl(fabsl(exact - (long double)w) - fabsl((long double)next - exact)) < exact * 0x1p-60L) w = next;
    }
    if (d->scaling == ATTN_ROPE_LINEAR) return w / d->factor;
    if (d->scaling == ATTN_ROPE_YARN) {
        double low = floor(size * log((double)d->original_positions / (32 * two_pi)) / (2 * log(d->base)));
        double high = ceil(size * log((double)d->original_positions / two_pi) / (2 * log(d->base)));
        part = 1 - (n - low) / (high - low);
    } else if (d->scaling == ATTN_ROPE_LLAMA3) part = ((double)d->original_positions * w / two_pi - 1) / 3;
    else return w;
    if (part >= 1) return w;
    return part <= 0 ? w / d->factor : w / d->factor * (1 - part) + w * part;
}
static double table_off(float got, long double want) { /* in units of the last place */
    return (double)(fabsl((long double)got - want) / (long double)elementary_unit((double)want));
}
/* Rows from some position on: the largest distance of a number from the better of its two exact ones. */
static double check_rows(const attn_rope_desc *kind, double f[2][HALF], int64_t first, int rows) {
    static float cosines[ROWS * HALF], sines[ROWS * HALF];
    attn_rope_desc d = *kind;
    const long double m = d.scaling == ATTN_ROPE_YARN ? (long double)(0.1 * log(d.factor) + 1) : 1;
    double worst = 0;
    d.first_position = first;
    if (attn_rope_table(attn_out_f32(cosines, 2, rows, HALF, 0, 0), attn_out_f32(sines, 2, rows, HALF, 0, 0), &d, 0))
        return INFINITY;
    for (int i = 0; i < rows; i++)
        for (int n = 0; n < HALF; n++) {
            double best = INFINITY;
            for (int other = 0; other < (f[0][n] == f[1][n] ? 1 : 2); other++) {
                const long double angle = (long double)((double)(first + i) * f[other][n]);
                const double c = table_off(cosines[i * HALF + n], m * cosl(angle));
                const double s = table_off(sines[i * HALF + n], m * sinl(angle)), both = c > s ? c : s;
                if (both < best) best = both;
            }
            if (!(best <= worst)) worst = best;
        }
    return worst;
}
static int test_tables(int kind) {
    static const char *const names[KINDS] = {"plain", "linear", "ntk", "yarn", "llama3"};
    const attn_rope_desc d = table_kind(kind);
    const int64_t far = FAR_ROWS / (int64_t)job.step;
    uint64_t random = 1;
    double f[2][HALF], worst = 0, off;
    for (int n = 0; n < HALF; n++) f[0][n] = frequency(&d, n, 0), f[1][n] = frequency(&d, n, 1);
    for (int64_t p = 0; p < NEAR_ROWS; p += ROWS * (int64_t)job.step)
        if (!((off = check_rows(&d, f, p, ROWS)) <= worst)) worst = off;
    for (int64_t n = 0; n < far; n += HALF) { /* each row is of 64 frequencies: a million numbers of each table */
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (!((off = check_rows(&d, f, (int64_t)(random >> 40), 1)) <= worst)) worst = off;
    }
    printf("%-6s rotary positions, %s: at most %.3f units of the last place (limit 1)\n", worst <= 1 ? "ok" : "FAILED",
           names[kind], worst);
    fflush(stdout);
    return worst <= 1;
}

int main(int argc, char **argv) {
    int passed = 0, skipped = 0;
    job.step = argc > 1 ? strtoull(argv[1], 0, 10) : 1;
    if (argc > 2 || job.step == 0) {
        printf("usage: %s [STEP]\n", argv[0]);
        return 2;
    }
    pthread_mutex_init(&job.lock, 0);
    for (int isa = ATTN_ISA_AUTO + 1; isa < ATTN_ISA_COUNT; isa++) {
        float x = 0;
        if (attn_elementary(0, &x, &x, 1, (attn_isa)isa) == ATTN_OK) {
            job.isas[job.isa_count++] = (attn_isa)isa;
            continue;
        }
        printf("skipped %s: this build or CPU has it not\n", attn_isa_string((attn_isa)isa));
        skipped++;
    }
    for (int function = 0; function < ELEMENTARY_COUNT; function++) passed += test_function(function);
    for (int kind = 0; kind < KINDS; kind++) passed += test_tables(kind);
    printf("%d passed, %d failed", passed, ELEMENTARY_COUNT + KINDS - passed);
    if (skipped) printf(", %d skipped", skipped);
    printf("\n");
    return passed < ELEMENTARY_COUNT + KINDS;
}
