/* cc -O2 bench/workers.c -lm -lpthread; or `make bench-scaling`, which runs it first. How far a call spreads over up
   to 128 workers, on a machine that has fewer cores. Each task is timed alone, on the processor's time of the thread,
   and counts with the least of three; so does what the call does outside of its tasks. Then tasks are handed out as a
   pool would, in the order of their indices, each to the worker that is free first: 1 us for taking one, 5 us for
   waiting until all are done. Of memory it knows only what one worker sees: where all of them read at once, the
   machine's bandwidth is a ceiling of its own. A table in markdown:
       the time with one worker in ms; with more: that time over workers * theirs, and in brackets the number of tasks
       where it is another; KB of workspace for 1, 16 and 64 workers; the same ratio as measured, least times that
       pass, on as many threads as this machine has cores for
   The first argument: only rows whose name contains it. GCC or clang, POSIX. */
#define _GNU_SOURCE
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include "measure.h"
#include <unistd.h>

#ifndef BENCH_COMMIT
#define BENCH_COMMIT "unknown"
#endif

enum { PASSES = 3, MOST_WORKERS = 128, PAGE = 16, LEAST_SAMPLES = 3, MOST_SAMPLES = 21 };
static const double TAKE = 1e-6, BARRIER = 5e-6, ENOUGH = 1; /* seconds; of the last: real calls of a row and a pool */
static const int32_t workers[] = {1, 2, 8, 16, 32, 64, 128};
enum { COLUMNS = sizeof workers / sizeof *workers };

enum { PLAIN, PAGED, STARTS, CODES }; /* keys in pages; of sequences one after the other; of int8 */
static const int32_t key_starts[] = {0, 32768, 49152, 57344}, key_lengths[] = {32768, 16384, 8192, 8192};
enum { SEQUENCES = sizeof key_starts / sizeof *key_starts };
static const struct row {
    job job;
    int32_t form;
} rows[] = {
    {{"prefill 8x2048 d64 causal", SELF(8, 2048, 64), .causal = 1}, PLAIN},
    {{"prefill 32x4096 d128 causal", SELF(32, 4096, 128), .causal = 1}, PLAIN},
    {{"prefill 8x512 d64", SELF(8, 512, 64)}, PLAIN},
    {{"prefill 1x2048 d128 causal", SELF(1, 2048, 128), .causal = 1}, PLAIN},
    {{"one query, 32 on 8, 8192 keys", SIZES(1, 32, 8, 1, 8192, 128, 128)}, PLAIN},
    {{"one query, 32 on 8, 65536 keys", SIZES(1, 32, 8, 1, 65536, 128, 128)}, PLAIN},
    {{"one query, 32 on 8, 65536, pages of 16", SIZES(1, 32, 8, 1, 65536, 128, 128)}, PAGED},
    {{"one query, 32 on 8, 65536, int8", SIZES(1, 32, 8, 1, 65536, 128, 128)}, CODES},
    {{"4 x one query, 32 on 8, 65536 by starts", SIZES(1, 32, 8, SEQUENCES, 65536, 128, 128)}, STARTS},
    {{"one query, 8 heads, 4096 keys", SIZES(1, 8, 8, 1, 4096, 128, 128)}, PLAIN},
    {{"16 x one query, 32 on 8, 4096 keys", SIZES(16, 32, 8, 1, 4096, 128, 128)}, PLAIN},
    {{"backward 8x2048 d64 causal", SELF(8, 2048, 64), .kind = 'g', .causal = 1}, PLAIN},
    {{"backward 2x4096 d128 causal", SELF(2, 4096, 128), .kind = 'g', .causal = 1}, PLAIN},
    {{"backward 16x8x512 d64", SIZES(16, 8, 8, 512, 512, 64, 64), .kind = 'g'}, PLAIN},
};

static void must(attn_status status, const attn_error *err) {
    char text[200];
    if (status == ATTN_OK) return;
    attn_error_string(err, text, sizeof text);
    stop(text);
}

/* ---- what a call is made of: its tasks run one after the other and are timed */
typedef struct record {
    double *task, outside; /* the least times: of each task, in the order of running; of the call without them */
    int64_t room, tasks;
    int64_t count[ATTN_MAX_PHASES]; /* of each use of the callback */
    int32_t runs, pass;
    double inside;
} record;

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void note(double *least, double seconds, int32_t pass) {
    if (pass == 0 || seconds < *least) *least = seconds;
}

/* The callback of attn_parallel. */
static void run_and_record(void *user, int64_t count, attn_task_fn task, void *arg) {
    record *r = (record *)user;
    const double start = thread_seconds();
    if (r->runs == ATTN_MAX_PHASES) stop("more steps than a plan has phases");
    while (r->tasks + count > r->room) {
        r->room = 2 * r->room + 1024;
        if (!(r->task = (double *)realloc(r->task, (size_t)r->room * sizeof *r->task))) stop("out of memory");
    }
    for (int64_t i = 0; i < count; i++) {
        const double before = thread_seconds();
        task(arg, i, 0);
        note(&r->task[r->tasks++], thread_seconds() - before, r->pass);
    }
    r->count[r->runs++] = count;
    r->inside += thread_seconds() - start;
}

/* Seconds of the recorded call on so many workers. */
static double spread(const record *r, int32_t n) {
    const double *task = r->task;
    double seconds = r->outside;
    for (int32_t run = 0; run < r->runs; run++) {
        double busy[MOST_WORKERS] = {0}, last = 0;
        for (int64_t i = 0; i < r->count[run]; i++) {
            int32_t first = 0;
            for (int32_t w = 1; w < n; w++)
                if (busy[w] < busy[first]) first = w;
            busy[first] += *task++ + (n > 1 ? TAKE : 0);
            if (busy[first] > last) last = busy[first];
        }
        seconds += last + (n > 1 ? BARRIER : 0);
    }
    return seconds;
}

/* ---- a row's call */
typedef struct form { /* what the row's keys need beyond the job's data */
    int32_t *table;
    int8_t *codes[2];
    float *scales[2];
} form;

static void page_keys(attn_desc *d, const job *j, form *f) { /* pages allotted at random */
    const int64_t pages = j->keys / PAGE;
    uint32_t state = 7;
    f->table = (int32_t *)must_have((size_t)pages * sizeof *f->table);
    for (int64_t i = 0; i < pages; i++) f->table[i] = (int32_t)i;
    for (int64_t i = pages - 1; i > 0; i--) {
        const int64_t other = (int64_t)((state = state * 1664525u + 1013904223u) >> 8) % (i + 1);
        const int32_t page = f->table[i];
        f->table[i] = f->table[other], f->table[other] = page;
    }
    d->k = attn_view_bhsd(j->k, pages, j->kv_heads, PAGE, j->d);
    d->v = attn_view_bhsd(j->v, pages, j->kv_heads, PAGE, j->dv);
    d->page_table = attn_view_i32(f->table, 2, 1, pages, 0, 0);
}
static void code_keys(attn_desc *d, const job *j, form *f) { /* a scale for each row */
    attn_view *const views[] = {&d->k, &d->v}, *const scales[] = {&d->k_scale, &d->v_scale};
    attn_error err;
    for (int i = 0; i < 2; i++) {
        const int64_t size = views[i]->size[3];
        attn_out codes, scale;
        f->codes[i] = (int8_t *)must_have(elements(1, j->kv_heads, j->keys, size));
        f->scales[i] = (float *)must_have(elements(1, j->kv_heads, j->keys, 1) * sizeof(float));
        codes = attn_out_typed(ATTN_I8, f->codes[i], 4, 1, j->kv_heads, j->keys, size);
        scale = attn_out_bhsd(f->scales[i], 1, j->kv_heads, j->keys, 1);
        must(attn_quantize(*views[i], codes, scale, &err), &err);
        *views[i] = attn_view_of(codes), *scales[i] = attn_view_of(scale);
    }
}
static void join_keys(attn_desc *d, const job *j) { /* the job's queries, one for each sequence */
    d->q = attn_view_bhsd(j->q, SEQUENCES, j->heads, 1, j->d);
    d->out = attn_out_bhsd(j->out, SEQUENCES, j->heads, 1, j->dv);
    d->key_starts = attn_view_i32(key_starts, 1, SEQUENCES, 0, 0, 0);
    d->key_lengths = attn_view_i32(key_lengths, 1, SEQUENCES, 0, 0, 0);
}
static void prepare(call *c, const struct row *row, const job *j, form *f, pool *one) {
    memset(f, 0, sizeof *f);
    if (call_prepare(c, j, one) != ATTN_OK) stop("attn.h refused the call");
    if (row->form == PAGED) page_keys(&c->desc, j, f);
    if (row->form == CODES) code_keys(&c->desc, j, f);
    if (row->form == STARTS) join_keys(&c->desc, j);
    free(c->desc.workspace);
}
static void free_form(form *f) {
    free(f->table);
    for (int i = 0; i < 2; i++) free(f->codes[i]), free(f->scales[i]);
}

static size_t workspace_bytes(const call *c, int32_t n) {
    attn_desc d = c->desc;
    attn_error err;
    size_t bytes;
    d.parallel.workers = n, d.workspace = NULL, d.workspace_bytes = 0;
    must(c->kind == 'g' ? attn_backward_workspace_size(&d, &c->grad, &bytes, &err)
                        : attn_workspace_size(&d, &bytes, &err),
         &err);
    return bytes;
}
/* The call for so many workers, of this callback, in a workspace of its own. */
static call with_workers(const call *c, int32_t n, void *user,
                         void (*run)(void *user, int64_t count, attn_task_fn task, void *arg)) {
    call own = *c;
    own.desc.workspace_bytes = workspace_bytes(c, n), own.desc.workspace = must_have(own.desc.workspace_bytes);
    memset(own.desc.workspace, 0, own.desc.workspace_bytes); /* its pages are there, as in a program that goes on */
    own.desc.parallel.run = run, own.desc.parallel.user = user, own.desc.parallel.workers = n;
    return own;
}

/* Each number of workers in turn, so that what disturbs the machine for a while does not disturb one of them alone. */
static void record_all(const call *c, record *records) {
    call calls[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        calls[i] = with_workers(c, workers[i], &records[i], run_and_record);
        records[i].pass = 0;
    }
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < COLUMNS; i++) {
            record *r = &records[i];
            const double start = thread_seconds();
            r->pass = pass, r->runs = 0, r->tasks = 0, r->inside = 0;
            run_call(&calls[i]);
            note(&r->outside, thread_seconds() - start - r->inside, pass);
        }
    for (int i = 0; i < COLUMNS; i++) free(calls[i].desc.workspace);
}

/* What one thread takes over threads * what these take, in turn. */
static double real_efficiency(const call *c, pool *one, pool *threads) {
    call alone = with_workers(c, 1, one, pool_run), shared = with_workers(c, threads->threads, threads, pool_run);
    const double start = seconds_now(1);
    double least[2] = {0};
    for (int n = 0; n < MOST_SAMPLES && (n < LEAST_SAMPLES || seconds_now(1) - start < ENOUGH); n++) {
        note(&least[0], 1 / rate(run_call, &alone, 1), n);
        note(&least[1], 1 / rate(run_call, &shared, 1), n);
    }
    free(alone.desc.workspace), free(shared.desc.workspace);
    return least[0] / (threads->threads * least[1]);
}

static void measure(const struct row *row, record *records, pool *pools, long cores) {
    job j = row->job;
    call c;
    form f;
    double one;
    int64_t tasks = 0;
    int i;
    make_data(&j);
    prepare(&c, row, &j, &f, &pools[0]);
    record_all(&c, records);
    one = spread(&records[0], 1);
    printf("| %-39s | %7.2f |", j.name, 1e3 * one);
    for (i = 1; i < COLUMNS; i++) {
        char number[32] = "";
        if (records[i].tasks != tasks) snprintf(number, sizeof number, "(%ld)", (long)(tasks = records[i].tasks));
        printf(" %.2f %-6s |", one / (workers[i] * spread(&records[i], workers[i])), number);
    }
    for (i = 1; i <= 64; i = i == 1 ? 16 : 4 * i) printf(" %6.0f |", (double)workspace_bytes(&c, i) / 1024);
    for (i = 1; i < COLUMNS && workers[i] <= cores; i++) printf(" %.2f |", real_efficiency(&c, &pools[0], &pools[i]));
    printf("\n");
    fflush(stdout);
    free_form(&f), free_data(&j);
}

int main(int argc, char **argv) {
    static pool pools[COLUMNS];
    static record records[COLUMNS];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int i;
    for (i = 0; i < COLUMNS && workers[i] <= cores; i++) pools[i].pinned = i > 0, pool_start(&pools[i], workers[i]);
    printf("%s, %ld cores, %s; attn.h %s\n\n| %-39s | %7s |", cpu_name(), cores, attn_isa_string(attn_best_isa()),
           BENCH_COMMIT, "one call", "ms");
    for (i = 1; i < COLUMNS; i++) printf(" %-11d |", workers[i]);
    printf(" %6s | %6s | %6s |", "KB: 1", "16", "64");
    for (i = 1; i < COLUMNS && workers[i] <= cores; i++) printf(" real %d |", workers[i]);
    printf("\n|---|");
    for (i = 0; i < COLUMNS + 3; i++) printf("---|");
    for (i = 1; i < COLUMNS && workers[i] <= cores; i++) printf("---|");
    printf("\n");
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        if (argc < 2 || strstr(rows[n].job.name, argv[1])) measure(&rows[n], records, pools, cores);
    for (i = 0; i < COLUMNS; i++) free(records[i].task);
    return 0;
}
