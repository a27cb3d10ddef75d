/* exhaustive.c - exp, log and tanh of every float, on every instruction set of this machine: within 2 units of the last
   place of the exact value, and the same bits everywhere. Takes minutes; one thread for each processor.
   build/exhaustive [STEP]: every STEP-th float, 1 unless given. */
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
    printf("%d passed, %d failed", passed, ELEMENTARY_COUNT - passed);
    if (skipped) printf(", %d skipped", skipped);
    printf("\n");
    return passed < ELEMENTARY_COUNT;
}
