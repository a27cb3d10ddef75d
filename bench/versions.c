/* versions.c - is attn.h as fast as another version of it? `make bench-versions REF=<commit, tag or file>`. The two
   headers, old (REF) and new (this tree), each in an object of its own (version_shim.c), run in one process, on the
   same arrays and the same workspace: pairs of samples of some milliseconds, the first of a pair alternating; processor
   time, with several threads the time that passes.
   First the new header runs against a second object of itself: rows that are off by more than 1 % get more pairs; what
   stays off then is told: by so much is this machine too noisy. Then a line per row and instruction set:
       row  instruction set  median of old / new time (above 1: the new one is faster)  its 95 % interval  pairs
       new time of a call
   The interval is that of the median without a distribution: two order statistics. A row falls SHORT when its whole
   interval lies below the bar. "other bits": the two results differ. The last line sums up; exit 1 when a row fell
   short or was refused.
   --rows TEXT: rows whose name contains it. --isa NAME; "auto": what each version chooses. --pairs N: the least, 16.
   --bar R: 0.98. --threads N: 1; with more, rows of a plan, whose tasks run one by one, are left out. --old NAME: what
   REF is called. GCC or clang, POSIX; as WebAssembly by wasm.sh. */
#define _GNU_SOURCE
#include "../attn.h"
#include "measure.h"
#include "version.h"

#ifndef BENCH_FLAGS
#define BENCH_FLAGS "unknown"
#endif

extern const version version_old, version_new, version_again;

enum { MOST_PAIRS = 400, LEAST_PAIRS = 15, MORE = 4, MORE_OF_SAME = 8 }; /* times as many pairs at most */
static const double SAMPLE = 4e-3, LONG_CALL = 25e-3, NOISE = 0.01;      /* seconds, seconds, ratio */

static struct {
    const char *rows, *isa, *old;
    int pairs, threads;
    double bar;
} options = {"", NULL, "the old attn.h", 16, 1, 0.98};

static pool threads;

#define ADDITIVE .score = ATTN_SCORE_ADDITIVE
static const int32_t lengths[] = {64, 128, 192, 256, 320, 384, 448, 512};
static const version_row rows[] = {
    {{"8x512 d64", SELF(8, 512, 64)}, 0, 0, 0},
    {{"8x512 d64 causal", SELF(8, 512, 64), .causal = 1}, 0, 0, 0},
    {{"8x2048 d64", SELF(8, 2048, 64)}, 0, 0, 0},
    {{"8x2048 d64 causal", SELF(8, 2048, 64), .causal = 1}, 0, 0, 0},
    {{"8x2048 d128", SELF(8, 2048, 128)}, 0, 0, 0},
    {{"8x2048 d128 causal", SELF(8, 2048, 128), .causal = 1}, 0, 0, 0},
    {{"8x64x64 d64", SELF(8, 64, 64)}, 0, 0, 0},
    {{"2x32x32 d32", SELF(2, 32, 32)}, 0, 0, 1},
    {{"1x16x16 d16", SELF(1, 16, 16)}, 0, 0, 1},
    {{"1x16x16 d16, size query too", SELF(1, 16, 16)}, 'w', 0, 1},
    {{"1x16x16 d16, tasks of a plan", SELF(1, 16, 16)}, 'p', 0, 1},
    {{"2 queries, 8 heads, 16 keys d32", SIZES(1, 8, 8, 2, 16, 32, 32)}, 0, 0, 1},
    {{"one query, 8 heads, 64 keys d64", SIZES(1, 8, 8, 1, 64, 64, 64)}, 0, 0, 1},
    {{"one query, 8 heads, 4096 keys d128", SIZES(1, 8, 8, 1, 4096, 128, 128)}, 0, 0, 0},
    {{"one query, 8 heads, 32768 keys d128", SIZES(1, 8, 8, 1, 32768, 128, 128)}, 0, 0, 0},
    {{"8 queries, 32 heads on 8, 8192 keys d128", SIZES(1, 32, 8, 8, 8192, 128, 128)}, 0, 0, 0},
    {{"bias, 8x512 d64", SELF(8, 512, 64), .biased = 1}, 0, 0, 0},
    {{"mask, 8x512 d64", SELF(8, 512, 64), .masked = 1}, 0, 0, 0},
    {{"key lengths, 8x512 d64", SIZES(8, 1, 1, 512, 512, 64, 64), .lengths = lengths}, 0, 0, 0},
    {{"dropout, 8x512 d64", SELF(8, 512, 64), .dropout = 0.1f}, 0, 0, 0},
    {{"softcap, 8x512 d64", SELF(8, 512, 64)}, 0, 20, 0},
    {{"weights returned, 8x512 d64", SELF(8, 512, 64), .weighed = 1}, 0, 0, 0},
    {{"Gaussian, 512x512 d64", SELF(1, 512, 64), .score = ATTN_SCORE_GAUSSIAN}, 0, 0, 0},
    {{"triangular, 512x512 d64", SELF(1, 512, 64), .score = ATTN_SCORE_TRIANGULAR}, 0, 0, 0},
    {{"additive h64, 512x512", SELF(1, 512, 64), ADDITIVE}, 0, 0, 0},
    {{"additive h16, 16x16", SELF(1, 16, 16), ADDITIVE}, 0, 0, 1},
    {{"cosine, 512x512 d64", SELF(1, 512, 64), .score = ATTN_SCORE_COSINE}, 0, 0, 0},
    {{"backward, 8x512 d64", SELF(8, 512, 64), .kind = 'g'}, 0, 0, 0},
    {{"backward, 8x512 d64 causal", SELF(8, 512, 64), .kind = 'g', .causal = 1}, 0, 0, 0},
    {{"backward, 8x2048 d64", SELF(8, 2048, 64), .kind = 'g'}, 0, 0, 0},
    {{"backward, 8x2048 d128", SELF(8, 2048, 128), .kind = 'g'}, 0, 0, 0},
    {{"backward, 8x64x64 d64", SELF(8, 64, 64), .kind = 'g'}, 0, 0, 0},
    {{"backward, 1x16x16 d16", SELF(1, 16, 16), .kind = 'g'}, 0, 0, 1},
    {{"backward, additive h64, 256x256", SELF(1, 256, 64), .kind = 'g', ADDITIVE}, 0, 0, 0},
    {{"backward, Gaussian, 512x512 d64", SELF(1, 512, 64), .kind = 'g', .score = ATTN_SCORE_GAUSSIAN}, 0, 0, 0},
    {{"matrix products 32 x 128^3", SELF(32, 128, 128), .kind = 'b'}, 0, 0, 0},
    {{"matrix product 512^3", SELF(1, 512, 512), .kind = 'b'}, 0, 0, 0},
    {{"matrix product 128x512x512", SIZES(1, 1, 1, 128, 512, 512, 512), .kind = 'b'}, 0, 0, 0},
    {{"matrix product 16x1024x1024", SIZES(1, 1, 1, 16, 1024, 1024, 1024), .kind = 'b'}, 0, 0, 0},
    {{"matrix product 1x1024x1024", SIZES(1, 1, 1, 1, 1024, 1024, 1024), .kind = 'b'}, 0, 0, 0},
    {{"matrix product 1x1024x1024, b transposed", SIZES(1, 1, 1, 1, 1024, 1024, 1024), .kind = 'b', .transposed = 1},
     0,
     0,
     0},
    {{"masked softmax 4096x1024", SIZES(1, 1, 1, 4096, 1024, 1, 1), .kind = 's', .masked = 1}, 0, 0, 0},
    {{"multi-head, 2x128 tokens of 256", SIZES(2, 8, 8, 128, 128, 256, 256), .projected = 1}, 'm', 0, 0},
    {{"multi-head backward, 2x128 of 256", SIZES(2, 8, 8, 128, 128, 256, 256), .kind = 'g', .projected = 1}, 'm', 0, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- two calls in turn */
typedef struct side {
    const version *version;
    void *call;
    uint64_t bits;  /* of what it computed */
    double seconds; /* of the shortest sample, a call */
} side;
typedef struct outcome {
    double ratio, low, high; /* the median, the interval that it lies in */
    int pairs;
} outcome;

static double seconds_of(side *s, int times) { /* a call */
    double start = seconds_now(options.threads > 1), seconds;
    if (!s->version->run(s->call, times)) stop("attn.h refused the call");
    seconds = (seconds_now(options.threads > 1) - start) / times;
    if (!(s->seconds > 0) || seconds < s->seconds) s->seconds = seconds;
    return seconds;
}

/* How many order statistics lie below the interval: the most that leave the median outside with 5 % at most. */
static int rank_of_interval(int n) {
    double term = 1, sum;
    int below = 0;
    for (int i = 0; i < n; i++) term /= 2;
    for (sum = term; sum <= 0.025; sum += term) below++, term *= (double)(n - below + 1) / below;
    return below;
}
static outcome outcome_of(const double *ratios, int n) {
    double sorted[MOST_PAIRS];
    int below = rank_of_interval(n);
    outcome o;
    memcpy(sorted, ratios, (size_t)n * sizeof *ratios);
    o.ratio = median(sorted, n), o.pairs = n;
    if (n % 2 == 0) o.ratio = (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    o.low = sorted[below - 1], o.high = sorted[n - below];
    return o;
}

/* Enough when the same header is within 1 %; else when the interval is narrow and, where the row falls short, twice as
   many pairs say so. */
static int settled(const outcome *o, int same) {
    if (same) return fabs(o->ratio - 1) <= NOISE;
    return o->high - o->low <= 2 * NOISE && (o->high >= options.bar || o->pairs >= 2 * options.pairs);
}
static outcome compare(side *old, side *new, int same) {
    double ratios[MOST_PAIRS];
    int most = options.pairs * (same ? MORE_OF_SAME : MORE), times = 1, n = 0;
    outcome o;
    while (new->version->run(new->call, 1), seconds_of(new, times) * times < SAMPLE / 2) times *= 2;
    if (new->seconds * times > LONG_CALL) most = options.pairs * 2;
    seconds_of(old, times);
    do {
        double first = seconds_of(n % 2 ? new : old, times), second = seconds_of(n % 2 ? old : new, times);
        ratios[n] = n % 2 ? second / first : first / second, n++;
        if (n >= options.pairs) o = outcome_of(ratios, n);
    } while (n < options.pairs || (n < most && !settled(&o, same)));
    return o;
}

/* ---- a row on an instruction set */
static uint64_t add_bits(uint64_t hash, const float *x, size_t n) { /* FNV-1a of words */
    for (size_t i = 0; x && i < n; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash;
}
static uint64_t bits_of(const job *j) {
    size_t sizes[4] = {elements(j->batch, j->heads, j->queries, j->dv), elements(j->batch, j->heads, j->queries, j->d),
                       elements(j->batch, j->heads, j->keys, j->d), elements(j->batch, j->heads, j->keys, j->dv)};
    const float *results[4] = {j->out, j->d_q, j->d_k, j->d_v};
    uint64_t hash = 14695981039346656037u;
    if (j->kind == 's' || j->kind == 'b') sizes[0] = elements(j->batch, j->heads, j->queries, j->keys);
    for (int i = 0; i < 4; i++) hash = add_bits(hash, results[i], sizes[i]);
    return hash;
}

/* Both calls in one workspace, each run once: 0 when one was refused. */
static int prepare_pair(side *old, side *new, const version_row *row, const char *isa, void **workspace) {
    size_t most = 0;
    side *sides[2] = {old, new};
    *workspace = NULL;
    for (int i = 0; i < 2; i++) {
        int32_t number = sides[i]->version->isa(isa);
        sides[i]->call = number < 0 ? NULL : sides[i]->version->prepare(row, number, &threads);
        if (!sides[i]->call) return 0;
        if (most < sides[i]->version->bytes(sides[i]->call)) most = sides[i]->version->bytes(sides[i]->call);
    }
    *workspace = must_have(most + 64);
    for (int i = 0; i < 2; i++) {
        sides[i]->version->give(sides[i]->call, (char *)*workspace + (64 - (uintptr_t)*workspace % 64));
        if (!sides[i]->version->run(sides[i]->call, 1)) return 0;
        sides[i]->bits = bits_of(&row->job);
    }
    return 1;
}

static struct {
    int rows, noisy, results, short_of, refused, other_bits, furthest_pairs;
    double furthest, least; /* of the ratios: of the same header, of the two */
    char furthest_row[80], least_row[80];
} found = {.least = 1e9};

static void take_same(const char *name, const outcome *o) {
    found.rows++;
    if (fabs(o->ratio - 1) > NOISE) found.noisy++;
    if (fabs(o->ratio - 1) < fabs(found.furthest)) return;
    found.furthest = o->ratio - 1, found.furthest_pairs = o->pairs;
    snprintf(found.furthest_row, sizeof found.furthest_row, "%s", name);
}
static void take(const version_row *row, const char *isa, const side *old, const side *new, const outcome *o) {
    int falls_short = o->high < options.bar, differs = old->bits != new->bits;
    found.results++, found.short_of += falls_short, found.other_bits += differs;
    if (o->ratio < found.least) {
        found.least = o->ratio;
        snprintf(found.least_row, sizeof found.least_row, "%s, %s", row->job.name, isa);
    }
    printf("%-42s %-7s %6.3f (%.3f to %.3f) %4d %10.4f ms%s%s\n", row->job.name, isa, o->ratio, o->low, o->high,
           o->pairs, new->seconds * 1e3, falls_short ? " SHORT" : "", differs ? " other bits" : "");
    fflush(stdout);
}

static void measure(const version_row *row, const char *isa, int same) {
    side old = {same ? &version_again : &version_old, NULL, 0, 0}, new = {&version_new, NULL, 0, 0};
    char name[80];
    void *workspace;
    outcome o;
    snprintf(name, sizeof name, "%s, %s", row->job.name, isa);
    if (!prepare_pair(&old, &new, row, isa, &workspace)) {
        const side *refuses = old.call ? &new : &old;
        if (!same)
            printf("%-42s %-7s REFUSED by the %s: %s\n", row->job.name, isa, old.call ? "new" : "old",
                   refuses->version->refusal());
        found.refused++;
    } else if (!same || seconds_of(&new, 1) < LONG_CALL) { /* what takes long shows the noise least */
        o = compare(&old, &new, same);
        if (same) take_same(name, &o);
        else take(row, isa, &old, &new, &o);
    }
    free(old.call), free(new.call), free(workspace);
}

static void measure_rows(int same) {
    static const char *const isas[] = {"scalar", "avx2", "avx512", "neon", "portable", "relaxed", "auto"};
    for (int i = 0; i < ROWS; i++) {
        version_row row = rows[i];
        if (!strstr(row.job.name, options.rows) || (row.way == 'p' && threads.threads > 1)) continue;
        make_data(&row.job);
        for (size_t n = 0; n < sizeof isas / sizeof *isas; n++) {
            if (strcmp(options.isa ? options.isa : isas[n], isas[n]) != 0) continue;
            if (!options.isa && !strcmp(isas[n], "auto")) continue;
            if ((n == 0 && !row.scalar) || version_new.isa(isas[n]) < 0 || version_old.isa(isas[n]) < 0) continue;
            measure(&row, isas[n], same);
        }
        free_data(&row.job);
    }
}

static void print_noise(void) {
    printf("the same header against itself: %d rows, ", found.rows);
    if (!found.noisy) printf("all within 1 %%");
    else printf("%d OFF BY MORE THAN 1 %%: this machine is too noisy now", found.noisy);
    printf("; furthest %+.2f %% after %d pairs (%s)\n\n", 100 * found.furthest, found.furthest_pairs,
           found.furthest_row);
    fflush(stdout);
}

static void parse(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--rows")) options.rows = value;
        else if (!strcmp(argv[i], "--isa")) options.isa = value;
        else if (!strcmp(argv[i], "--old")) options.old = value;
        else if (!strcmp(argv[i], "--pairs")) options.pairs = atoi(value);
        else if (!strcmp(argv[i], "--bar")) options.bar = atof(value);
        else if (!strcmp(argv[i], "--threads")) options.threads = atoi(value);
        else stop("options: --rows TEXT, --isa NAME, --pairs N, --bar R, --threads N, --old NAME");
    }
    if (options.pairs < LEAST_PAIRS) options.pairs = LEAST_PAIRS;
    if (options.pairs > MOST_PAIRS / MORE_OF_SAME) options.pairs = MOST_PAIRS / MORE_OF_SAME;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    pool_start(&threads, options.threads);
    printf("old: %s, version %d; new: this tree's attn.h, version %d\n%s, threads: %d\n%s\n", options.old,
           (int)version_old.number, (int)version_new.number, cpu_name(), (int)threads.threads, BENCH_FLAGS);
    measure_rows(1), print_noise();
    found.refused = 0;
    printf("%-42s %-7s %6s %-18s %3s %10s\n", "row", "isa", "old/new", "95 % of the median", "pairs", "new, a call");
    measure_rows(0);
    printf("%d rows: %d fall short of %.2f, %d refused, %d with other bits; least %.3f (%s); %s\n", found.results,
           found.short_of, options.bar, found.refused, found.other_bits, found.results ? found.least : 0,
           found.least_row, found.noisy ? "TOO NOISY to tell 1 %" : "noise within 1 %");
    return found.short_of > 0 || found.refused > 0 || found.results == 0;
}
