/* main.c - runs the suites.
   build/tests [--suite NAME] [--filter TEXT] [--isa NAME] [--without ISA,...] [--amx] [--seed N] [--list]
               [--verbose] [--first]   (up to the first failure)
   --without leaves instruction sets out, but the best one here. --amx asks for AMX first, and fails where
   there is none.
   A line per suite says what it did: "NAME: N calls, N checks on N instruction sets". The last line is "N passed, N
   failed" (", N skipped" when something was). Exit 1 when a test failed or none ran. */
#if !defined(_WIN32) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* mmap and MAP_ANONYMOUS under -std=c99 */
#endif
#include "test.h"
#include <signal.h>
#include <stdarg.h>
#include <time.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

/* One suite alone: cc -D'SUITES=X(errors)' tests/main.c tests/errors.c ... */
#ifndef SUITES
#define SUITES \
    X(forward) \
    X(special) \
    X(properties) \
    X(generator) \
    X(types) \
    X(precision) \
    X(products) \
    X(backward) \
    X(corners) \
    X(errors) \
    X(entries) \
    X(parts) \
    X(sums) \
    X(sequence) \
    X(memory) X(threads) X(isa) X(softmax) X(bmm) X(mha) X(pieces) X(heatmap) X(align) X(train_align) X(amx)
#endif
#define X(name) extern const test_case suite_##name[];
SUITES
#undef X
static const test_case *const suites[] = {
#define X(name) suite_##name,
    SUITES
#undef X
    0};

static struct {
    const char *suite, *filter, *isa, *without;
    unsigned long long seed;
    int list, verbose, amx, first;
} options;

/* ---- checks */
static struct {
    const char *name; /* of the test that runs */
    long checks, failures;
    int skips; /* of the whole program */
} now;

static void complain(const char *file, int line) {
    if (now.failures == 0) printf("FAILED %s (--seed %llu)\n", now.name, options.seed);
    now.failures++;
    printf("    %s:%d: ", file, line);
}

enum { SHOWN = 12 }; /* failures of one test that are printed */

int test_check(int ok, const char *file, int line, const char *format, ...) {
    now.checks++;
    if (ok) return 1;
    if (now.failures >= SHOWN) {
        now.failures++;
        return 0;
    }
    complain(file, line);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    if (options.first) { /* what runs beside it may still do so */
        fflush(stdout);
        _Exit(1);
    }
    return 0;
}

int test_close(double got, double want, double tolerance, const char *file, int line, const char *text) {
    int same = (got != got && want != want) || (isinf(want) && got == want); // NOLINT: x != x is the NaN test
    return test_check(same || fabs(got - want) <= tolerance, file, line, "%s: got %.9g, want %.9g, off by %.3g > %.3g",
                      text, got, want, fabs(got - want), tolerance);
}

int test_status(attn_status got, attn_status want, const char *file, int line, const char *text) {
    return test_check(got == want, file, line, "%s: status \"%s\", want \"%s\"", text, attn_status_string(got),
                      attn_status_string(want));
}

static long calls; /* of the library, in this suite; tests may make them on several threads */
void test_count_call(void) {
#ifdef __GNUC__
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
#else
    calls++;
#endif
}

int test_quiet(void) { return now.failures > 1; }

void test_skip(const char *why) {
    now.skips++;
    printf("SKIPPED %s: %s\n", now.name, why);
}

int test_verbose(void) { return options.verbose; }
int test_with_amx(void) { return options.amx; }
unsigned long long test_seed(void) { return options.seed; }

/* ---- instruction sets */
static attn_isa isas[ATTN_ISA_COUNT];
static int isa_count;

static int find_isas(void) {
    now.name = "instruction sets";
    for (int i = ATTN_ISA_AUTO + 1; i < ATTN_ISA_COUNT; i++) {
        float x = 0;
        attn_isa isa = (attn_isa)i;
        if (options.isa && strcmp(options.isa, attn_isa_string(isa)) != 0) continue;
        if (options.without && strstr(options.without, attn_isa_string(isa)) && isa != attn_best_isa()) continue;
        attn_status status = attn_elementary(0, &x, &x, 1, isa);
        if (status == ATTN_OK) isas[isa_count++] = isa;
        if (status == ATTN_ERR_ISA) {
            printf("this build or CPU has no %s\n", attn_isa_string(isa));
            now.skips++;
        }
    }
    for (int i = 0; i < isa_count - 1; i++) /* the best one stands last, whatever its number */
        if (isas[i] == attn_best_isa()) isas[i] = isas[isa_count - 1], isas[isa_count - 1] = attn_best_isa();
    if (isa_count == 0) printf("no instruction set to test\n");
    return isa_count > 0;
}

int test_isa_count(void) { return isa_count; }
attn_isa test_isa(int i) { return isas[i]; }

/* ---- random numbers: splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t state;

void test_rand_seed(uint64_t seed) { state = seed; }

uint64_t test_bits(void) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double test_uniform(void) { return (double)(test_bits() >> 11) * 0x1p-53; }

/* Box and Muller's radius and cosine, both between the entries of tables: the suites take hundreds of millions of these
   numbers. The last stretch of the radius has no end, and is computed. */
double test_normal(void) {
    enum { STEPS = 1024 };
    static double radius[STEPS], cosine[STEPS + 1];
    if (cosine[0] == 0)
        for (int n = 0; n <= STEPS; n++) {
            if (n < STEPS) radius[n] = sqrt(-2 * log(1 - n / (double)STEPS));
            cosine[n] = cos(6.283185307179586 * n / STEPS);
        }
    double u = STEPS * test_uniform(), w = STEPS * test_uniform();
    int i = (int)u, j = (int)w;
    double r = i < STEPS - 1 ? radius[i] + (u - i) * (radius[i + 1] - radius[i]) : sqrt(-2 * log(1 - u / STEPS));
    return r * (cosine[j] + (w - j) * (cosine[j + 1] - cosine[j]));
}
int test_int(int lo, int hi) { return lo + (int)(test_bits() % (uint64_t)((int64_t)hi - lo + 1)); }

/* ---- guarded memory */
typedef struct block {
    unsigned char *base, *open; /* of the mapping, of its accessible pages */
    size_t total, opened;
    unsigned char *data;
    size_t bytes;
    int kept; /* as what it is kept when it is freed: 0, not at all */
    struct block *next;
} block;
static block *blocks;

/* Freed blocks, by their number of pages, large ones by the next power of two: closed, so that nobody reads or writes
   what was freed, but still mapped. To map them anew, with a fault for each page, was a tenth of the time of all
   suites. */
enum { KEPT_PAGES = 64, KEPT_DOUBLED = 8, KEPT_KINDS = KEPT_PAGES + KEPT_DOUBLED };
static block *kept[KEPT_KINDS + 1];
static size_t pages_kept(int kind) {
    return kind <= KEPT_PAGES ? (size_t)kind : (size_t)KEPT_PAGES << (kind - KEPT_PAGES);
}
static int kept_as(size_t pages) { /* 0: they are not */
#if defined(TEST_MAPPED) || defined(_WIN32)
    (void)pages;
    return 0;
#else
    int kind = pages <= KEPT_PAGES ? (int)pages : KEPT_PAGES;
    while (kind <= KEPT_KINDS && pages_kept(kind) < pages) kind++;
    return kind <= KEPT_KINDS ? kind : 0;
#endif
}

enum { FILL = 0xFF };

/* With TEST_MAPPED, memory comes from the program. There are no closed pages then: the margins hold FILL. */
#ifdef TEST_MAPPED
void *test_map(size_t bytes);
void test_unmap(void *p);
static size_t page_size(void) { return 4096; }
static void *map_closed(size_t n) {
    void *p = test_map(n);
    return p ? memset(p, FILL, n) : 0;
}
static int map_open(void *p, size_t n) { return p && n; }
static int map_read_only(void *p, size_t n) { return p && n; }
static int map_close(void *p, size_t n) { return p && n; }
static void unmap(void *p, size_t n) {
    (void)n;
    test_unmap(p);
}
#elif defined(_WIN32)
static size_t page_size(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwPageSize;
}
static void *map_closed(size_t n) { return VirtualAlloc(0, n, MEM_RESERVE, PAGE_NOACCESS); }
static int map_open(void *p, size_t n) { return VirtualAlloc(p, n, MEM_COMMIT, PAGE_READWRITE) != 0; }
static int map_read_only(void *p, size_t n) {
    DWORD old;
    return VirtualProtect(p, n, PAGE_READONLY, &old) != 0;
}
static int map_close(void *p, size_t n) {
    DWORD old;
    return VirtualProtect(p, n, PAGE_NOACCESS, &old) != 0;
}
static void unmap(void *p, size_t n) {
    (void)n;
    VirtualFree(p, 0, MEM_RELEASE);
}
#else
static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }
static void *map_closed(size_t n) {
    void *p = mmap(0, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? 0 : p;
}
static int map_open(void *p, size_t n) { return mprotect(p, n, PROT_READ | PROT_WRITE) == 0; }
static int map_read_only(void *p, size_t n) { return mprotect(p, n, PROT_READ) == 0; }
static int map_close(void *p, size_t n) { return mprotect(p, n, PROT_NONE) == 0; }
static void unmap(void *p, size_t n) { munmap(p, n); }
#endif

static size_t whole_pages(size_t bytes) { return (bytes + page_size() - 1) / page_size() * page_size(); }

void *test_guarded_span(size_t before, size_t bytes, size_t after, int low) {
    size_t page = page_size(), below = whole_pages(before) + page, inside = whole_pages(bytes);
    const int kind = before || after ? 0 : kept_as(inside / page);
    block *b = kind ? kept[kind] : 0;
    if (b) {
        kept[kind] = b->next;
    } else {
        b = (block *)malloc(sizeof *b);
        if (!b) abort();
        b->kept = kind;
        b->total = below + (kind ? pages_kept(kind) * page : inside) + whole_pages(after) + page;
        b->base = (unsigned char *)map_closed(b->total);
        if (!b->base) {
            printf("out of address space\n");
            exit(1);
        }
    }
    b->open = b->base + below;
    b->opened = inside;
    b->bytes = bytes;
    b->data = low ? b->open : b->open + inside - bytes;
#ifdef TEST_MAPPED
    b->open = b->base;
    b->opened = b->total;
    inside = 0;
#endif
    b->next = blocks;
    blocks = b;
    if (inside) {
        if (!map_open(b->open, inside)) exit(1);
        memset(b->open, FILL, inside);
    }
    return b->data;
}

void *test_guarded(size_t bytes) { return test_guarded_span(0, bytes, 0, 0); }
void *test_guarded_low(size_t bytes) { return test_guarded_span(0, bytes, 0, 1); }

void test_read_only(void *data) {
    block *b = blocks;
    while (b && b->data != data) b = b->next;
    if (!b || (b->opened && !map_read_only(b->open, b->opened))) abort();
}

void test_no_access(void *from, size_t bytes) {
    const size_t page = page_size(), skip = (page - (size_t)((uintptr_t)from % page)) % page;
    const size_t inside = bytes > skip ? (bytes - skip) / page * page : 0;
    if (inside && !map_close((char *)from + skip, inside)) abort();
}

float *test_floats(size_t n) {
    float *p = (float *)test_guarded(n * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = (float)test_normal();
    return p;
}

static int untouched(const unsigned char *p, const unsigned char *end) {
    while (p < end)
        if (*p++ != FILL) return 0;
    return 1;
}

void test_release(void) {
    while (blocks) {
        block *b = blocks;
        CHECKF(untouched(b->open, b->data), "wrote below a block of %lu bytes", (unsigned long)b->bytes);
        CHECKF(untouched(b->data + b->bytes, b->open + b->opened), "wrote above a block of %lu bytes",
               (unsigned long)b->bytes);
        blocks = b->next;
        if (b->kept) {
            if (!map_close(b->open, b->opened)) exit(1);
            b->next = kept[b->kept];
            kept[b->kept] = b;
            continue;
        }
        unmap(b->base, b->total);
        free(b);
    }
}

/* ---- running */
static uint64_t hash(const char *s) { /* FNV-1a */
    uint64_t h = 14695981039346656037u;
    while (*s) h = (h ^ (unsigned char)*s++) * 1099511628211u;
    return h;
}

static int run(const test_case *test) { /* 1 when it passed */
    const clock_t start = clock();
    const int skips = now.skips;
    now.name = test->name;
    now.checks = now.failures = 0;
    test_rand_seed(options.seed ^ hash(test->name));
    test->run();
    test_release();
    if (now.checks == 0 && now.skips == skips) CHECKF(0, "the test checked nothing");
    if (now.failures > SHOWN) printf("    and %ld more\n", now.failures - SHOWN);
    if (options.verbose)
        printf("%-40s %7ld checks %6.2f s\n", test->name, now.checks,
               (double)(clock() - start) / (double)CLOCKS_PER_SEC);
    fflush(stdout);
    return now.failures == 0;
}

static long passed, failed;

static void print_sum(void) {
    printf("%ld passed, %ld failed", passed, failed);
    if (now.skips) printf(", %d skipped", now.skips);
    printf("\n");
}

/* A fault names the test before the program ends: a guard page was touched, an invariant broken. */
static void fault(int number) {
    printf("FAILED %s (--seed %llu): signal %d; the tests after it did not run\n", now.name, options.seed, number);
    failed++;
    print_sum();
    fflush(stdout);
    _Exit(1);
}

static int chosen(const char *name) {
    size_t n = strcspn(name, "."); /* of the suite's name */
    if (options.suite && (strlen(options.suite) != n || strncmp(name, options.suite, n) != 0)) return 0;
    return !options.filter || strstr(name, options.filter) != 0;
}
static void run_suite(const test_case *test) {
    const char *name = test->name;
    long ran = 0, checks = 0;
    calls = 0;
    for (; test->name; test++) {
        if (!chosen(test->name)) continue;
        if (options.list) {
            printf("%s\n", test->name);
            continue;
        }
        if (run(test)) passed++;
        else failed++;
        ran++, checks += now.checks;
    }
    if (ran)
        printf("%.*s: %ld calls, %ld checks on %d instruction sets\n", (int)strcspn(name, "."), name, calls, checks,
               isa_count);
}

static int usage(const char *problem) {
    printf(
        "%s\noptions: --suite NAME, --filter TEXT, --isa NAME, --without ISA,..., --amx, --seed N, --list, --verbose, "
        "--first\n",
        problem);
    return 0;
}

static int parse(int argc, char **argv) {
    options.seed = 1;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : 0;
        int takes_value = 1;
        if (!strcmp(a, "--suite")) options.suite = value;
        else if (!strcmp(a, "--filter")) options.filter = value;
        else if (!strcmp(a, "--isa")) options.isa = value;
        else if (!strcmp(a, "--without")) options.without = value;
        else if (!strcmp(a, "--seed")) options.seed = value ? strtoull(value, 0, 10) : 0;
        else if (!strcmp(a, "--amx")) options.amx = 1, takes_value = 0;
        else if (!strcmp(a, "--list")) options.list = 1, takes_value = 0;
        else if (!strcmp(a, "--verbose")) options.verbose = 1, takes_value = 0;
        else if (!strcmp(a, "--first")) options.first = 1, takes_value = 0;
        else return usage(a);
        if (takes_value && !value) return usage("a value is missing");
        i += takes_value;
    }
    return 1;
}

static int enable_amx(void) {
    char text[200];
    attn_error e;
    if (attn_enable_amx(&e) == ATTN_OK) return 1;
    attn_error_string(&e, text, sizeof text);
    printf("no AMX here: %s\n", text);
    return 0;
}

int main(int argc, char **argv) {
    if (!parse(argc, argv)) return 1;
#if !defined(__SANITIZE_ADDRESS__) && !defined(TEST_NO_SIGNALS) /* a sanitizer's own report says more */
    signal(SIGSEGV, fault);
    signal(SIGILL, fault);
    signal(SIGFPE, fault);
    signal(SIGABRT, fault); /* assert */
#ifdef SIGBUS
    signal(SIGBUS, fault);
#endif
#endif
    if (options.amx && !enable_amx()) return 1;
    if (!options.list && !find_isas()) return 1;
    for (int s = 0; suites[s]; s++) run_suite(suites[s]);
    if (options.list) return 0;
    if (passed + failed == 0) printf("no test ran\n");
    print_sum();
    return failed > 0 || passed == 0;
}
