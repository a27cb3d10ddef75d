/* threads.c - tasks in any order, on any number of threads, through the callback or by the caller's own hand:
   always the same bits, every index once, no worker twice at the same time. */
#include "grads.h"
#include <pthread.h>

/* ---- a pool: threads that take the indices of a shuffled list, each with its own number */
typedef struct pool {
    int32_t workers;
    attn_task_fn task;
    void *arg;
    int64_t *order, count, next;
    int32_t calls, largest; /* of the callback; highest index of a worker that ran a task */
    pthread_mutex_t lock;
} pool;

typedef struct worker {
    pool *pool;
    int32_t number;
} worker;

static int64_t next_index_of(pool *p, int32_t number) { /* -1: no more */
    pthread_mutex_lock(&p->lock);
    int64_t i = p->next < p->count ? p->order[p->next++] : -1;
    if (i >= 0 && number > p->largest) p->largest = number;
    pthread_mutex_unlock(&p->lock);
    return i;
}

static void *work(void *arg) {
    worker *w = (worker *)arg;
    for (int64_t i; (i = next_index_of(w->pool, w->number)) >= 0;) w->pool->task(w->pool->arg, i, w->number);
    return 0;
}

static void run_pool(void *user, int64_t count, attn_task_fn task, void *arg) {
    enum { MOST = 16 };
    pool *p = (pool *)user;
    worker workers[MOST];
    pthread_t threads[MOST];
    p->calls++;
    p->task = task;
    p->arg = arg;
    p->count = count;
    p->next = 0;
    p->order = random_order(count);
    for (int32_t i = 0; i < p->workers; i++) {
        workers[i].pool = p;
        workers[i].number = i;
        if (pthread_create(&threads[i], 0, work, &workers[i])) abort();
    }
    for (int32_t i = 0; i < p->workers; i++) pthread_join(threads[i], 0);
    free(p->order);
}

static attn_parallel parallel_of(pool *p, int32_t workers) {
    attn_parallel parallel = {run_pool, p, workers};
    memset(p, 0, sizeof *p);
    p->workers = workers;
    pthread_mutex_init(&p->lock, 0);
    return parallel;
}

/* ---- calls of every kind */
static attn_desc some_call(int32_t score) {
    attn_desc d = make_desc(2, 4, 2, test_int(1, 24), test_int(1, 400), test_int(1, 20), test_int(1, 20));
    set_score(&d, score, test_int(1, 12));
    ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
    d.causal = test_int(0, 1);
    d.align = test_int(0, 1) ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
    d.dropout = test_int(0, 1) ? 0.3f : 0;
    d.seed = test_bits();
    return d;
}

static void check_pool(attn_desc *d, const attn_desc *want, int32_t workers) {
    pool p;
    size_t bytes = 0;
    d->parallel = parallel_of(&p, workers);
    CHECK_STATUS(attn_workspace_size(d, &bytes, 0), ATTN_OK);
    d->workspace = test_int(0, 1) ? test_guarded(bytes) : 0; /* exactly what so many workers need, or malloc */
    d->workspace_bytes = d->workspace ? bytes : 0;
    poison_results(d);
    run_desc(d, "a pool of threads");
    check_same_results(d, want, "a pool of threads");
    CHECKF(p.calls >= 1 && p.calls <= ATTN_MAX_PHASES, "the callback was called %d times", (int)p.calls);
    d->workspace = 0, d->workspace_bytes = 0;
    pthread_mutex_destroy(&p.lock);
}

static void test_pool(void) {
    static const int32_t workers[] = {1, 2, 3, 5, 8};
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        attn_desc d = some_call(score);
        for (int n = 0; n < test_isa_count(); n++) {
            d.isa = (int32_t)test_isa(n);
            memset(&d.parallel, 0, sizeof d.parallel);
            if (!run_desc(&d, "one thread")) break;
            attn_desc want = copy_results(&d);
            for (int w = 0; w < 5; w++) check_pool(&d, &want, workers[w]);
        }
        test_release();
    }
}

/* The library must hand out each index of 0..count-1 and leave the rest to the callback: one that runs the tasks in
   order, in reverse, and with whatever worker numbers it likes. */
typedef struct recorder {
    int mode, calls;
    int64_t tasks;
} recorder;
enum { IN_ORDER, REVERSED, LAST_WORKER, MODES };

static void run_recorded(void *user, int64_t count, attn_task_fn task, void *arg) {
    recorder *r = (recorder *)user;
    r->calls++;
    r->tasks += count;
    for (int64_t i = 0; i < count; i++)
        task(arg, r->mode == REVERSED ? count - 1 - i : i, r->mode == LAST_WORKER ? 3 : 0);
}

static void test_callback(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        attn_desc d = some_call(score);
        attn_plan plan;
        int64_t tasks = 0;
        run_desc(&d, "one thread");
        attn_desc want = copy_results(&d);
        d.parallel.run = run_recorded;
        d.parallel.workers = 4;
        CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
        for (int32_t p = 0; p < plan.phases; p++) tasks += plan.tasks[p];
        for (int mode = 0; mode < MODES; mode++) {
            recorder r = {mode, 0, 0};
            d.parallel.user = &r;
            poison_results(&d);
            run_desc(&d, "a callback on this thread");
            check_same_results(&d, &want, "a callback on this thread");
            CHECKF(r.calls <= plan.phases && r.tasks <= tasks, "%d calls, %ld tasks; the plan has %d phases, %ld tasks",
                   r.calls, (long)r.tasks, (int)plan.phases, (long)tasks);
            CHECKF(tasks < 2 || r.calls > 0, "%ld tasks and no call", (long)tasks);
        }
        test_release();
    }
}

/* ---- the plan, by hand */
static void test_plan(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        attn_desc d = some_call(score);
        attn_plan one, many;
        for (int n = 0; n < test_isa_count(); n++) {
            d.isa = (int32_t)test_isa(n);
            run_desc(&d, "one thread");
            attn_desc want = copy_results(&d);
            for (int32_t workers = 1; workers <= 4; workers++) {
                poison_results(&d);
                run_planned(&d, workers);
                check_same_results(&d, &want, "a plan in random order");
            }
            CHECK_STATUS(attn_plan_forward(&d, &one, 0), ATTN_OK);
            CHECK(one.phases >= 1 && one.phases <= ATTN_MAX_PHASES && one.isa == (int32_t)test_isa(n));
            d.parallel.workers = 7;
            CHECK_STATUS(attn_plan_forward(&d, &many, 0), ATTN_OK);
            CHECK(many.phases == one.phases && !memcmp(many.tasks, one.tasks, sizeof one.tasks));
            d.parallel.workers = 0;
        }
        test_release();
    }
}

/* One plan, copied, run twice with other data in between, each time with a workspace of its own; the descriptor and the
   plan it was copied from are gone. */
static void test_plan_again(void) {
    attn_desc d = some_call(ATTN_SCORE_ADDITIVE), gone;
    attn_plan plan, original;
    d.dropout = 0.25f;
    gone = d;
    CHECK_STATUS(attn_plan_forward(&gone, &original, 0), ATTN_OK);
    plan = original;
    memset(&gone, 0xEE, sizeof gone);
    memset(&original, 0xEE, sizeof original);
    for (int again = 0; again < 3; again++) {
        fill(&d.q, draw_normal, 0, 1);
        fill(&d.k, draw_normal, 0, 1);
        fill(&d.v, draw_normal, 0, 1);
        run_desc(&d, "one thread");
        attn_desc want = copy_results(&d);
        poison_results(&d);
        void *workspace = test_guarded(plan.workspace_bytes);
        for (int32_t p = 0; p < plan.phases; p++)
            for (int64_t i = plan.tasks[p]; i-- > 0;) attn_task(&plan, workspace, p, i, 0);
        check_same_results(&d, &want, "a plan used again");
    }
}

/* Phases of one plan, tasks on threads of the caller's own. */
typedef struct phase {
    const attn_plan *plan;
    void *workspace;
    int32_t number;
} phase;
static void run_phase_task(void *arg, int64_t index, int32_t number) {
    const phase *p = (const phase *)arg;
    attn_task(p->plan, p->workspace, p->number, index, number);
}

static void test_plan_on_threads(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        attn_desc d = some_call(score);
        attn_plan plan;
        pool p;
        run_desc(&d, "one thread");
        attn_desc want = copy_results(&d);
        d.parallel = parallel_of(&p, 4);
        CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
        poison_results(&d);
        phase now = {&plan, test_guarded(plan.workspace_bytes), 0};
        for (now.number = 0; now.number < plan.phases; now.number++)
            run_pool(&p, plan.tasks[now.number], run_phase_task, &now);
        check_same_results(&d, &want, "a plan on threads");
        pthread_mutex_destroy(&p.lock);
        test_release();
    }
}

/* ---- the pieces take the same callback */
static void test_pieces(void) {
    pool p;
    attn_desc o;
    attn_view x = make_filled(LAYOUT_PACKED, 2, 4, 3, 2, 40, 70), k = make_filled(LAYOUT_PACKED, 1, 4, 3, 2, 90, 70);
    attn_out softmax[2], scores[2], product[2];
    memset(&o, 0, sizeof o);
    o.causal = 1;
    o.align = ATTN_ALIGN_TOP_LEFT;
    for (int parallel = 0; parallel < 2; parallel++) {
        if (parallel) o.parallel = parallel_of(&p, 3);
        softmax[parallel] = make_out(LAYOUT_PACKED, 4, 3, 2, 40, 70);
        scores[parallel] = make_out(LAYOUT_PACKED, 4, 3, 2, 40, 90);
        product[parallel] = make_out(LAYOUT_PACKED, 4, 3, 2, 40, 90);
        CHECK_STATUS(attn_softmax(x, softmax[parallel], &o, 0), ATTN_OK);
        CHECK_STATUS(attn_scores(x, k, scores[parallel], &o, 0), ATTN_OK);
        CHECK_STATUS(attn_bmm(x, attn_view_swap(k, 2, 3), product[parallel], &o, 0), ATTN_OK);
    }
    CHECKF(p.calls >= 3 && p.largest < 3, "%d calls of the callback, highest worker %d", (int)p.calls, (int)p.largest);
    check_same(&softmax[1], &softmax[0], "softmax on threads");
    check_same(&scores[1], &scores[0], "scores on threads");
    check_same(&product[1], &product[0], "product on threads");
    pthread_mutex_destroy(&p.lock);
}

/* New rows of a cache: some of one entry, or of several, are a task; few are one, which takes no other thread. Against
   an entry after the other, none of which is cut. */
static void test_append(void) {
    enum { B = 3, H = 2, N = 250, D = 512, S = 512, PAGE = 16, PAGES = S / PAGE, ROWS = B * H * S };
    static const attn_type types[] = {ATTN_F32, ATTN_BF16, ATTN_I8};
    const attn_view fresh = make_filled(LAYOUT_PACKED, 1, 4, B, H, N, D);
    int64_t *order = random_order(B * PAGES);
    int32_t table[B * PAGES], held[] = {7, 0, 100}, counts[] = {N, 170, N}, ones[] = {1, 1, 1};
    for (int n = 0; n < B * PAGES; n++) table[n] = (int32_t)order[n];
    for (int way = 0; way < 12; way++) {
        const int paged = way & 1, few = way >> 1 & 1;
        const int64_t entries = paged ? B * PAGES : B, rows = paged ? PAGE : S;
        const attn_type type = types[way >> 2];
        const size_t bytes = (size_t)ROWS * D * 4;
        unsigned char *cache[2] = {(unsigned char *)calloc(bytes, 1), (unsigned char *)calloc(bytes, 1)};
        float *scales[2] = {(float *)calloc(ROWS, 4), (float *)calloc(ROWS, 4)};
        pool p;
        attn_desc o, one;
        memset(&o, 0, sizeof o);
        one = o;
        o.parallel = parallel_of(&p, 4);
        o.query_lengths = attn_view_i32(few ? ones : counts, 1, B, 0, 0, 0);
        if (paged) o.page_table = attn_view_i32(table, 2, B, PAGES, 0, 0);
        if (type == ATTN_I8) o.v_scale = attn_view_f32(scales[1], 4, entries, H, rows, 1);
        CHECK_STATUS(attn_append(fresh, attn_out_typed(type, cache[1], 4, entries, H, rows, D),
                                 attn_view_i32(held, 1, B, 0, 0, 0), &o, 0),
                     ATTN_OK);
        for (int b = 0; b < B; b++) {
            attn_out to = attn_out_typed(type, cache[0], 4, entries, H, rows, D);
            attn_view scale = attn_view_f32(scales[0], 4, entries, H, rows, 1);
            one.query_lengths = attn_view_slice(o.query_lengths, 0, b, 1);
            if (paged) one.page_table = attn_view_slice(o.page_table, 0, b, 1);
            if (type == ATTN_I8) one.v_scale = paged ? scale : attn_view_slice(scale, 0, b, 1);
            CHECK_STATUS(attn_append(attn_view_slice(fresh, 0, b, 1), paged ? to : attn_out_slice(to, 0, b, 1),
                                     attn_view_i32(held + b, 1, 1, 0, 0, 0), &one, 0),
                         ATTN_OK);
        }
        CHECKF(p.calls == !few && p.count == (few ? 0 : 3), "way %d: %d calls with %ld tasks", way, (int)p.calls,
               (long)p.count);
        CHECKF(memcmp(cache[0], cache[1], bytes) == 0, "way %d: a cache filled by threads", way);
        CHECKF(memcmp(scales[0], scales[1], (size_t)ROWS * 4) == 0, "way %d: its scales", way);
        for (int n = 0; n < 2; n++) free(cache[n]), free(scales[n]);
        pthread_mutex_destroy(&p.lock);
    }
    free(order);
}

/* Masks by rows: what is allowed is said here once more; a row of dropout is that of a call for this row alone. */
enum { MASK_CAUSAL, MASK_PICTURE, MASK_STARTS, MASK_DROPOUT, MASKS };
enum { MASK_B = 3, MASK_H = 2, MASK_ROWS = 90, MASK_KEYS = 210 };
static int32_t mask_starts[] = {0, 33, 40, 20}, mask_lengths[] = {33, 7, 50, 0}, mask_keys[] = {33, 7, 50, 70};
static int mask_allows(int way, int b, int i, int j) {
    if (way == MASK_CAUSAL) return j <= i;
    if (way == MASK_STARTS) return i >= mask_starts[b] && j >= mask_starts[b] && j <= i;
    for (b = 0; b < MASK_B; b++)
        if (i >= mask_starts[b] && i < mask_starts[b] + mask_lengths[b]) return j >= mask_starts[b] && j <= i;
    return 0;
}
static void test_masks(void) {
    static uint8_t want[MASK_B * MASK_H * MASK_ROWS * MASK_KEYS], got[sizeof want];
    for (int way = 0; way < MASKS; way++) {
        const int batch = way == MASK_PICTURE ? 1 : MASK_B, rows = batch * MASK_H * MASK_ROWS;
        const int64_t entries = way == MASK_PICTURE ? MASK_B + 1 : MASK_B; /* the last one has no rows */
        const attn_out to = attn_out_u8(got, 4, batch, MASK_H, MASK_ROWS, MASK_KEYS);
        attn_desc d;
        memset(&d, 0, sizeof d);
        d.causal = way != MASK_DROPOUT, d.align = ATTN_ALIGN_TOP_LEFT;
        d.dropout = way == MASK_DROPOUT ? 0.4f : 0, d.seed = 99;
        if (way == MASK_PICTURE || way == MASK_STARTS)
            d.query_starts = d.key_starts = attn_view_i32(mask_starts, 1, entries, 0, 0, 0);
        if (way == MASK_PICTURE) {
            d.query_lengths = attn_view_i32(mask_lengths, 1, entries, 0, 0, 0);
            d.key_lengths = attn_view_i32(mask_keys, 1, entries, 0, 0, 0);
        }
        for (int r = 0; r < rows; r++) {
            uint8_t *row = want + r * MASK_KEYS;
            const int b = r / MASK_ROWS / MASK_H, h = r / MASK_ROWS % MASK_H, i = r % MASK_ROWS;
            attn_desc one = d;
            one.dropout_origin[0] = b, one.dropout_origin[1] = h, one.dropout_origin[2] = i;
            for (int j = 0; j < MASK_KEYS; j++) row[j] = way != MASK_DROPOUT && mask_allows(way, b, i, j);
            if (way == MASK_DROPOUT)
                CHECK_STATUS(attn_dropout_mask(attn_out_u8(row, 4, 1, 1, 1, MASK_KEYS), &one, 0), ATTN_OK);
        }
        for (int32_t workers = 0; workers <= 128; workers += workers < 9 ? 1 : 7) {
            const int on_threads = workers > 0 && workers <= 8;
            const int64_t share = (rows + 4 * (workers ? workers : 1) - 1) / (4 * (workers ? workers : 1)),
                          least = 4096 / MASK_KEYS + 1, each = share > least ? share : least;
            recorder r = {workers % 2 ? REVERSED : IN_ORDER, 0, 0};
            pool p;
            memset(&d.parallel, 0, sizeof d.parallel);
            if (on_threads) d.parallel = parallel_of(&p, workers);
            if (workers > 8) d.parallel.run = run_recorded, d.parallel.user = &r, d.parallel.workers = workers;
            memset(got, 7, sizeof got);
            CHECK_STATUS(way == MASK_DROPOUT ? attn_dropout_mask(to, &d, 0) : attn_mask(to, &d, 0), ATTN_OK);
            CHECKF(!memcmp(got, want, (size_t)rows * MASK_KEYS), "way %d, %d workers: another mask", way, (int)workers);
            if (!workers) continue;
            CHECKF((on_threads ? p.count : r.tasks) == (rows + each - 1) / each, "way %d, %d workers: %ld tasks", way,
                   (int)workers, (long)(on_threads ? p.count : r.tasks));
            if (on_threads) pthread_mutex_destroy(&p.lock);
        }
    }
}

/* ---- pieces whose rows are tasks: on any workers, in any order the bytes of a call for each row, gaps too */
enum { ROW_CONVERT, ROW_QUANTIZE, ROW_ROPE, ROW_MERGE };
enum { ALONE_COLUMNS = 100000 };
typedef struct row_call {
    int piece;
    attn_view from[4]; /* merge: two results, each with its lse; rope: x, both tables, positions */
    attn_out to[2];
    uint32_t flags;
    int in_place; /* x is the result; what it held: */
    unsigned char *held;
    int64_t rows, numbers;   /* what is cut into tasks: rows that take as long as so many numbers */
    int64_t line;            /* rows of whole lines of the cache, where the results are packed; 0: not looked at */
    unsigned char *bytes[2]; /* of the results */
    size_t count[2];
} row_call;

static attn_status run_row_call(const row_call *c, const attn_desc *o) {
    const attn_view *v = c->from;
    switch (c->piece) {
    case ROW_CONVERT: return attn_convert_with(v[0], c->to[0], o, 0);
    case ROW_QUANTIZE: return attn_quantize_with(v[0], c->to[0], c->to[1], o, 0);
    case ROW_ROPE: return attn_rope_with(v[0], v[1], v[2], v[3], c->flags, c->to[0], o, 0);
    default: return attn_merge_with(v[0], v[1], v[2], v[3], c->to[0], c->to[1], o, 0);
    }
}

static void clear_results(const row_call *c) {
    for (int n = 0; n < 2; n++) memset(c->bytes[n], 0xA5, c->count[n]);
    if (c->in_place) memcpy(c->bytes[0], c->held, c->count[0]);
}

/* One row of one head alone, or some columns of it, by the functions without options: nothing is cut there. */
static void run_alone(const row_call *c, int64_t b, int64_t h, int64_t i, int64_t column) {
    const int64_t at[3] = {b, h, i};
    const attn_view *p = &c->from[3];
    int32_t position = (int32_t)i;
    row_call one = *c;
    attn_status st;
    for (int axis = 0; axis < 3; axis++) {
        for (int n = 0; n < (c->piece == ROW_MERGE ? 4 : 1); n++)
            if (axis < one.from[n].rank - (one.from[n].rank < 3))
                one.from[n] = attn_view_slice(one.from[n], axis, at[axis], 1);
        for (int n = 0; n < 2; n++)
            if (axis < one.to[n].rank - (one.to[n].rank < 3)) one.to[n] = attn_out_slice(one.to[n], axis, at[axis], 1);
    }
    if (p->rank && c->piece == ROW_ROPE) {
        position = ((const int32_t *)p->data)[p->rank == 1 ? b : b * p->size[1] + i];
        if (p->rank == 1) position += (int32_t)i;
    }
    if (c->from[0].rank < 3) {
        const int last = c->from[0].rank - 1;
        const int64_t left = c->from[0].size[last] - column, n = left < ALONE_COLUMNS ? left : ALONE_COLUMNS;
        one.from[0] = attn_view_slice(one.from[0], last, column, n);
        one.to[0] = attn_out_slice(one.to[0], last, column, n);
    }
    switch (c->piece) {
    case ROW_CONVERT: st = attn_convert(one.from[0], one.to[0], 0); break;
    case ROW_QUANTIZE: st = attn_quantize(one.from[0], one.to[0], one.to[1], 0); break;
    case ROW_ROPE:
        st = attn_rope(one.from[0], c->from[1], c->from[2], attn_view_i32(&position, 1, 1, 0, 0, 0), c->flags,
                       one.to[0], 0);
        break;
    default: st = attn_merge(one.from[0], one.from[1], one.from[2], one.from[3], one.to[0], one.to[1], 0);
    }
    CHECK_STATUS(st, ATTN_OK);
}
static void run_each_alone(const row_call *c) {
    const attn_view *v = &c->from[0];
    const int last = v->rank - 1;
    if (v->rank < 3) {
        for (int64_t b = 0; b < (last ? v->size[0] : 1); b++)
            for (int64_t x = 0; x < v->size[last]; x += ALONE_COLUMNS) run_alone(c, b, 0, 0, x);
        return;
    }
    for (int64_t b = 0; b < v->size[0]; b++)
        for (int64_t h = 0; h < v->size[1]; h++)
            for (int64_t i = 0; i < v->size[2]; i++) run_alone(c, b, h, i, 0);
}

static void set_bytes(row_call *c) {
    for (int n = 0; n < 2; n++) {
        const attn_view v = attn_view_of(c->to[n]);
        int64_t low = 0, high = -1;
        if (v.rank) view_extent(&v, &low, &high);
        c->count[n] = (size_t)(high - low + 1) * type_bytes(v.type);
        c->bytes[n] = c->count[n] ? (unsigned char *)c->to[n].data + low * (int64_t)type_bytes(v.type)
                                  : (unsigned char *)c->count;
    }
}

/* Tasks take some 30 us; there are about four for each worker at most, and many rows fill whole lines of the cache. */
static int64_t row_tasks_of(const row_call *c, int32_t workers) {
    const int64_t least = (1 << 18) / c->numbers + 1, share = (c->rows + 4 * workers - 1) / (4 * workers);
    int64_t some = share > least ? share : least;
    if (some >= 4 * c->line) some = (some + c->line - 1) / c->line * c->line;
    return (c->rows + some - 1) / some;
}

/* Without options, with one worker, and with some of 2 to 8 on threads and of 9 to 128: others in each case. */
static void check_row_call(row_call *c, const char *what) {
    static int cases;
    const int32_t counts[] = {0, 1, 2 + cases % 7, 9 + 17 * (cases % 8), 128};
    unsigned char *want[2];
    cases++;
    set_bytes(c);
    if (c->in_place) memcpy(c->held = test_guarded(c->count[0]), c->bytes[0], c->count[0]);
    clear_results(c);
    run_each_alone(c);
    for (int n = 0; n < 2; n++) memcpy(want[n] = test_guarded(c->count[n]), c->bytes[n], c->count[n]);
    for (int k = 0; k < 5; k++) {
        const int32_t workers = counts[k];
        const int on_threads = workers > 0 && workers <= 8;
        recorder r = {workers % 2 ? REVERSED : IN_ORDER, 0, 0};
        pool p;
        attn_desc o;
        memset(&o, 0, sizeof o);
        if (on_threads) o.parallel = parallel_of(&p, workers);
        if (workers > 8) o.parallel.run = run_recorded, o.parallel.user = &r, o.parallel.workers = workers;
        clear_results(c);
        CHECK_STATUS(run_row_call(c, workers ? &o : 0), ATTN_OK);
        for (int n = 0; n < 2; n++)
            CHECKF(!memcmp(c->bytes[n], want[n], c->count[n]), "%s, %d workers: other bytes", what, (int)workers);
        if (workers && c->line) {
            const int64_t tasks = row_tasks_of(c, workers), got = on_threads ? p.count : r.tasks;
            CHECKF(got == (tasks > 1 ? tasks : 0), "%s, %d workers: %ld tasks, not %ld", what, (int)workers, (long)got,
                   (long)tasks);
        }
        if (on_threads) pthread_mutex_destroy(&p.lock);
    }
    test_release();
}

enum { ROWS_B = 2, ROWS_H = 3, ROWS_S = 704, ROWS_D = 129, MERGED_D = 30, MERGED_S = 100 };
static attn_view row_floats(int32_t type, layout how, int64_t d) {
    attn_view v = make_view(type, how, 4, ROWS_B, ROWS_H, d == MERGED_D ? MERGED_S : ROWS_S, d);
    fill(&v, draw_normal, 0, 1);
    return v;
}
static void set_rows(row_call *c, int piece, layout how, int64_t rows, int64_t numbers, int64_t line) {
    memset(c, 0, sizeof *c);
    c->piece = piece, c->rows = rows, c->numbers = numbers, c->line = how == LAYOUT_PACKED ? line : 0;
}

static void test_converted_rows(void) {
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F64};
    static const int64_t lines[] = {16, 32, 32, 8};
    row_call c;
    for (int n = 0; n < 20; n++) {
        const layout how = n < 16 ? LAYOUT_PACKED : n % 3 ? LAYOUT_MIXED : LAYOUT_BSHD;
        set_rows(&c, ROW_CONVERT, how, ROWS_B * ROWS_H * ROWS_S, ROWS_D, lines[n / 4 % 4]);
        c.from[0] = row_floats(types[n % 4], how, ROWS_D);
        c.to[0] = make_out_of(types[n / 4 % 4], how, 4, ROWS_B, ROWS_H, ROWS_S, ROWS_D);
        check_row_call(&c, "converted rows");
    }
    for (int n = 0; n < 4; n++) { /* few rows, longer than a task: parts of them, each a task where they are so long */
        const int64_t rows = n < 2 ? 1 : 3, columns = n % 2 ? 600000 : 1000003;
        set_rows(&c, ROW_CONVERT, LAYOUT_PACKED, rows * (n % 2 ? 2 : 3), n % 2 ? 300032 : 333376, 64);
        c.from[0] = make_view(types[n], LAYOUT_PACKED, rows > 1 ? 2 : 1, rows > 1 ? rows : columns, columns, 0, 0);
        c.to[0] = make_out_of(types[3 - n], n > 2 ? LAYOUT_GAPS : LAYOUT_PACKED, c.from[0].rank, c.from[0].size[0],
                              columns, 0, 0);
        if (rows == 1) c.from[0].size[1] = c.to[0].size[1] = 0;
        fill(&c.from[0], draw_normal, 0, 1);
        check_row_call(&c, "parts of long rows");
    }
}

static void test_quantized_rows(void) {
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    for (int n = 0; n < 12; n++) {
        const layout how = n < 6 ? LAYOUT_PACKED : n % 4 ? LAYOUT_MIXED : LAYOUT_BSHD;
        const int64_t d = n % 4 < 2 ? ROWS_D : 128, groups = n % 2 ? (d + 31) / 32 : 1;
        const int32_t scales = n % 3 ? ATTN_F32 : ATTN_F16;
        row_call c;
        set_rows(&c, ROW_QUANTIZE, how, ROWS_B * ROWS_H * ROWS_S, d, d == 128 ? 16 : 64);
        if (n % 2 && d == 128) c.line = how == LAYOUT_PACKED ? (scales == ATTN_F32 ? 4 : 8) : 0;
        else if (d == 128 && scales == ATTN_F16) c.line = how == LAYOUT_PACKED ? 32 : 0;
        c.from[0] = row_floats(types[n / 2 % 3], how, d);
        c.to[0] = make_out_of(ATTN_I8, how, 4, ROWS_B, ROWS_H, ROWS_S, d);
        c.to[1] = make_out_of(scales, how, 4, ROWS_B, ROWS_H, ROWS_S, groups);
        check_row_call(&c, "quantized rows");
    }
}

/* Positions: none, of each entry, of each row; in place, where x and out are one. */
static void test_turned_rows(void) {
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    static const int64_t lines[] = {16, 32, 32};
    for (int n = 0; n < 13; n++) {
        const layout how = n < 8 ? LAYOUT_PACKED : n % 3 ? LAYOUT_MIXED : LAYOUT_BSHD;
        const int32_t type = types[n % 3], result = types[n / 2 % 3];
        const int each = n / 3 % 3, in_place = n % 4 == 3;
        row_call c;
        set_rows(&c, ROW_ROPE, how, ROWS_B * ROWS_S, ROWS_H * ROWS_D, lines[in_place ? n % 3 : n / 2 % 3]);
        c.from[0] = row_floats(type, how == LAYOUT_MIXED && in_place ? LAYOUT_BSHD : how, ROWS_D);
        c.from[1] = make_filled(n % 5 ? LAYOUT_PACKED : LAYOUT_GAPS, 1, 2, ROWS_S + 9, 40, 0, 0);
        c.from[2] = make_filled(LAYOUT_PACKED, 1, 2, ROWS_S + 9, 40, 0, 0);
        if (each) c.from[3] = make_ints(ATTN_I32, each, ROWS_B, ROWS_S, 0, 0, 0, 9);
        if (each == 1) c.from[3].size[1] = 0;
        c.flags = (uint32_t)n % 4;
        c.to[0] = make_out_of(result, how, 4, ROWS_B, ROWS_H, ROWS_S, ROWS_D);
        if (in_place) memcpy(&c.to[0], &c.from[0], sizeof c.to[0]), c.in_place = 1;
        check_row_call(&c, "turned rows");
    }
}

static void test_merged_rows(void) {
    for (int n = 0; n < 12; n++) {
        static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
        const layout how = n < 4 ? LAYOUT_PACKED : n % 3 ? LAYOUT_MIXED : LAYOUT_GAPS;
        const int with_lse = n % 2;
        row_call c;
        set_rows(&c, ROW_MERGE, how, ROWS_B * ROWS_H * MERGED_S, 64 * MERGED_D, with_lse ? 16 : 8);
        if (n % 3 && !with_lse) c.line *= 2; /* 60 bytes */
        for (int i = 0; i < 2; i++) {
            c.from[2 * i] = row_floats(types[(n + i) % 3], how, MERGED_D);
            c.from[2 * i + 1] = make_filled(how, 1, 3, ROWS_B, ROWS_H, MERGED_S, 0);
        }
        put_float(&c.from[1], 0, 0, 3, 0, -INFINITY);
        c.to[0] = make_out_of(types[n % 3], how, 4, ROWS_B, ROWS_H, MERGED_S, MERGED_D);
        if (with_lse) c.to[1] = make_out(how, 3, ROWS_B, ROWS_H, MERGED_S, 0);
        check_row_call(&c, "merged rows");
    }
}

/* No two tasks write to one line of the cache, where the results begin with one: what each changes is looked at. */
typedef struct line_watch {
    row_call *c;
    int64_t tasks, shared;
} line_watch;
static void run_watched(void *user, int64_t count, attn_task_fn task, void *arg) {
    line_watch *w = (line_watch *)user;
    w->tasks = count;
    for (int n = 0; n < 2; n++) w->c->count[n] = (w->c->count[n] + 63) / 64 * 64;
    unsigned char *before[2] = {test_guarded(w->c->count[0]), test_guarded(w->c->count[1])};
    unsigned char *taken[2] = {(unsigned char *)calloc(w->c->count[0] / 64 + 1, 1),
                               (unsigned char *)calloc(w->c->count[1] / 64 + 1, 1)};
    for (int64_t i = 0; i < count; i++) {
        for (int n = 0; n < 2; n++) memcpy(before[n], w->c->bytes[n], w->c->count[n]);
        task(arg, i, 0);
        for (int n = 0; n < 2; n++)
            for (size_t line = 0; line < w->c->count[n]; line += 64)
                if (memcmp(before[n] + line, w->c->bytes[n] + line, 64)) w->shared += taken[n][line / 64]++;
    }
    for (int n = 0; n < 2; n++) free(taken[n]);
}
static attn_out on_a_line(int32_t type, int rank, int64_t n2, int64_t n3) {
    const size_t count = (size_t)(ROWS_B * ROWS_H * n2 * (rank == 4 ? n3 : 1));
    const uintptr_t at = (uintptr_t)test_guarded(count * type_bytes(type) + 128);
    return attn_out_typed((attn_type)type, (void *)((at + 63) / 64 * 64), rank, ROWS_B, ROWS_H, n2, n3);
}
static void test_lines_of_rows(void) {
    for (int n = 0; n < 12; n++) {
        const int piece = n / 3;
        const int32_t type = n % 3 ? ATTN_F32 : ATTN_F16;
        line_watch w = {0, 0, 0};
        row_call c;
        attn_desc o;
        set_rows(&c, piece, LAYOUT_PACKED, 0, 0, 0);
        c.from[0] = row_floats(ATTN_F32, LAYOUT_PACKED, piece == ROW_MERGE ? MERGED_D : ROWS_D);
        c.to[0] = on_a_line(piece == ROW_QUANTIZE ? ATTN_I8 : type, 4, c.from[0].size[2], c.from[0].size[3]);
        if (piece == ROW_QUANTIZE) c.to[1] = on_a_line(type, 4, ROWS_S, n % 2 ? 1 : (ROWS_D + 31) / 32);
        if (piece == ROW_ROPE) c.from[1] = c.from[2] = make_filled(LAYOUT_PACKED, 1, 2, ROWS_S, 40, 0, 0);
        if (piece == ROW_MERGE) {
            c.from[1] = c.from[3] = make_filled(LAYOUT_PACKED, 1, 3, ROWS_B, ROWS_H, MERGED_S, 0);
            c.from[2] = c.from[0], c.to[1] = on_a_line(ATTN_F32, 3, MERGED_S, 0);
        }
        memset(&o, 0, sizeof o);
        o.parallel.run = run_watched, o.parallel.user = &w, o.parallel.workers = n % 3 == 2 ? 40 : 1;
        w.c = &c;
        set_bytes(&c);
        clear_results(&c);
        CHECK_STATUS(run_row_call(&c, &o), ATTN_OK);
        CHECKF(w.tasks > 1 && !w.shared, "piece %d: %ld tasks, %ld lines of several", piece, (long)w.tasks,
               (long)w.shared);
        test_release();
    }
}

static void test_heads(void) {
    pool p;
    attn_desc o;
    attn_mha_desc m;
    attn_out out[2], weights[2];
    memset(&o, 0, sizeof o);
    memset(&m, 0, sizeof m);
    m.query = make_filled(LAYOUT_PACKED, 1, 3, 2, 50, 12, 0);
    m.w_query = make_filled(LAYOUT_PACKED, 0.3, 2, 24, 12, 0, 0);
    m.w_key = make_filled(LAYOUT_PACKED, 0.3, 2, 8, 12, 0, 0);
    m.w_value = make_filled(LAYOUT_PACKED, 0.3, 2, 10, 12, 0, 0);
    m.w_result = make_filled(LAYOUT_PACKED, 0.3, 2, 70, 30, 0, 0);
    m.b_result = make_filled(LAYOUT_PACKED, 1, 1, 70, 0, 0, 0);
    m.heads = 6;
    m.heads_kv = 2;
    m.attention = &o;
    for (int parallel = 0; parallel < 2; parallel++) {
        if (parallel) o.parallel = parallel_of(&p, 4);
        m.out = out[parallel] = make_out(LAYOUT_PACKED, 3, 2, 50, 70, 0);
        o.weights = weights[parallel] = make_out(LAYOUT_PACKED, 4, 2, 6, 50, 50);
        CHECK_STATUS(attn_mha(&m, 0), ATTN_OK);
    }
    CHECKF(p.calls >= 2, "%d calls of the callback", (int)p.calls);
    check_same(&out[1], &out[0], "heads on threads");
    check_same(&weights[1], &weights[0], "weights of heads on threads");
    pthread_mutex_destroy(&p.lock);
}

/* Two calls at the same time that share their inputs: nothing is shared behind the caller's back. */
typedef struct reentrant {
    attn_desc d;
    attn_status status;
} reentrant;
static void *call_forward(void *arg) {
    reentrant *r = (reentrant *)arg;
    for (int i = 0; i < 3; i++) r->status = attn_forward(&r->d, 0);
    return 0;
}
static void test_reentrant(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        reentrant calls[3];
        pthread_t threads[3];
        attn_desc d = some_call(score);
        run_desc(&d, "one thread");
        for (int i = 0; i < 3; i++) {
            calls[i].d = copy_results(&d);
            poison_results(&calls[i].d);
        }
        for (int i = 0; i < 3; i++)
            if (pthread_create(&threads[i], 0, call_forward, &calls[i])) abort();
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], 0);
            CHECK_STATUS(calls[i].status, ATTN_OK);
            check_same_results(&calls[i].d, &d, "calls at the same time");
        }
        test_release();
    }
}

/* One row over many keys is cut among tasks by its keys: the bits of the row inside a call that is not cut, against
   float64, and with the tasks in any order. */
static void test_long_rows(void) {
    static const int32_t scores[] = {ATTN_SCORE_SCALED_DOT, ATTN_SCORE_COSINE, ATTN_SCORE_BILINEAR};
    enum { KEYS = 9999, ROWS = 6 };
    for (int n = 0; n < 12; n++) {
        attn_desc d = make_desc(1, 2, test_int(1, 2), ROWS, KEYS, test_int(1, 19), test_int(1, 40));
        set_score(&d, scores[n % 3], 0);
        if (n % 3 == 2) d.scale = 0.05f; /* no weight underflows: 0 times infinity would be NaN */
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        d.causal = n & 1;
        d.align = n & 1 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
        d.window = n % 4 == 1;
        d.window_left = d.window ? 3000 : 0;
        d.window_right = d.window ? ATTN_UNBOUNDED : 0;
        d.dropout = n % 4 == 2 ? 0.3f : 0;
        d.bias = n % 4 == 3 ? make_filled(LAYOUT_PACKED, 1, 2, ROWS, KEYS, 0, 0) : d.bias;
        if (n >= 6) d.key_lengths = one_int(KEYS - 300); /* what lies after is not read */
        if (n >= 6) put_at(&d.v, 0, 0, KEYS - 7, 0, NAN);
        if (n >= 9) put_at(&d.v, 0, 0, 77, 0, INFINITY); /* this is */
        check_everywhere(&d, "many keys");
        for (int64_t h = 0; h < 2; h++) {
            attn_desc one = row_alone(&d, 0, h, n % ROWS);
            attn_plan plan;
            one.parallel.workers = 3;
            CHECK_STATUS(attn_plan_forward(&one, &plan, 0), ATTN_OK);
            CHECKF(plan.phases == (scores[n % 3] == ATTN_SCORE_COSINE ? 3 : 2) && plan.tasks[plan.phases - 2] > 2,
                   "the keys of one row are not cut in three or more");
            check_row_alone(&d, 0, h, n % ROWS);
            attn_desc want = copy_results(&one);
            poison_results(&one);
            run_planned(&one, 3);
            check_same_results(&one, &want, "parts of the keys in any order");
        }
        test_release();
    }
}

/* What a cache has room for beyond its keys is not cut: the tasks share the keys that are there. */
static void test_long_rows_with_room(void) {
    enum { KEYS = 9999, ROOM = 40000 };
    attn_desc d = make_desc(1, 2, 1, 1, ROOM, 8, 8), own;
    attn_plan plan;
    ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
    own = copy_results(&d);
    own.k = attn_view_slice(d.k, 2, 0, KEYS), own.v = attn_view_slice(d.v, 2, 0, KEYS);
    d.key_lengths = one_int(KEYS);
    d.parallel.workers = 3;
    CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
    CHECKF(plan.phases == 2 && plan.tasks[0] > 2, "the keys are not cut");
    run_desc(&own, "without room");
    run_planned(&d, 3);
    check_same_results(&own, &d, "with room");
    test_release();
}

/* The same with keys that a mask excludes: whatever their values hold, in the first column or the last, counts not. */
static void test_long_masked_rows(void) {
    enum { KEYS = 5000, COLUMNS = 70 };
    for (int rows = 1; rows <= 4; rows++) {
        attn_desc d = make_desc(1, 1, 1, rows, KEYS, 3, COLUMNS);
        attn_plan plan;
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        d.mask = make_ints(ATTN_U8, 1, KEYS, 0, 0, 0, 1, 1);
        for (int n = 0; n < 8; n++) {
            const int key = 600 * n + test_int(0, 599), column = n % 4 ? test_int(0, COLUMNS - 1) : COLUMNS - 1;
            put_at(&d.mask, 0, 0, 0, key, 0);
            put_at(&d.v, 0, 0, key, column, n % 2 ? INFINITY : NAN);
        }
        d.parallel.workers = 2;
        CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
        CHECKF(plan.phases == 2 && plan.tasks[0] > 1, "the keys of %d rows are not cut", rows);
        check_everywhere(&d, "many keys, some excluded");
        test_release();
    }
}

/* Rows without keys, joined by a worker that did nothing before: zeros, whatever the workspace held. */
static void test_long_empty_rows(void) {
    enum { COLUMNS = 70 };
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, 1, 1, 2, 5000, 3, COLUMNS);
        attn_plan plan;
        d.isa = test_isa(n);
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        const float *out = d.out.data;
        d.key_lengths = one_int(0);
        d.parallel.workers = 2;
        CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
        void *workspace = test_guarded(plan.workspace_bytes); /* NaN everywhere */
        for (int32_t at = 0; at < plan.phases; at++)
            for (int64_t i = 0; i < plan.tasks[at]; i++) attn_task(&plan, workspace, at, i, at);
        for (int i = 0; i < 2 * COLUMNS; i++) CHECKF(out[i] == 0, "element %d: %g", i, (double)out[i]);
        test_release();
    }
}

/* ---- many workers: whatever there are, and in whatever order their tasks come, one worker's bits. Some of these calls
   cut keys among tasks, some tiles. */
enum {
    PLAIN,
    SHORT_WINDOW,
    PAGED,
    UNEVEN,
    CODES,
    HALVES,
    STARTED,
    CARRIED,
    WIDE,
    SHARED,
    TILES,
    GROUPED_TILES,
    MANY_KINDS
};
static attn_view heads_side_by_side(int32_t type, int64_t pages, int64_t heads, int64_t page, int64_t size) {
    attn_view v = attn_view_swap(make_view(type, LAYOUT_PACKED, 4, pages, page, heads, size), 1, 2);
    if (type == ATTN_I8) fill(&v, draw_int, -127, 127);
    else fill(&v, draw_normal, 0, 1);
    return v;
}

static void put_keys_in_pages(attn_desc *d, int64_t batch, int64_t heads, int64_t keys, int64_t page, int32_t type) {
    const int64_t pages = batch * keys / page;
    int64_t *order = random_order(pages);
    d->k = heads_side_by_side(type, pages, heads, page, d->q.size[3]);
    d->v = heads_side_by_side(type, pages, heads, page, d->v.size[3]);
    d->page_table = make_view(ATTN_I32, LAYOUT_PACKED, 2, batch, keys / page, 0, 0);
    for (int64_t i = 0; i < pages; i++) put_at(&d->page_table, 0, 0, i % batch, i / batch, (double)order[i]);
    free(order);
    if (type != ATTN_I8) return;
    d->k_scale = make_filled(LAYOUT_PACKED, 0.02, 4, pages, heads, page, 1);
    d->v_scale = make_filled(LAYOUT_PACKED, 0.02, 4, pages, heads, page, 1);
}

static attn_desc many_call(int kind) {
    enum { KEYS = 16 * 320 };
    static const int lengths[4] = {700, KEYS - 777, 0, 9};
    const int cut_tiles = kind == TILES || kind == GROUPED_TILES, batched = kind == UNEVEN || kind == STARTED;
    const int64_t batch = batched          ? 4
                          : kind == SHARED ? 2
                                           : 1,
                  heads = kind == GROUPED_TILES ? 4
                          : kind == TILES       ? 2
                                                : 8;
    const int64_t heads_kv = kind == GROUPED_TILES ? 2 : kind == TILES ? 2 : kind == WIDE ? 1 : 4;
    const int64_t rows = cut_tiles ? 700 + test_int(0, 60) : kind == WIDE || kind == STARTED || kind == SHARED ? 2 : 1;
    const int64_t keys = cut_tiles ? 900 : KEYS, size = cut_tiles ? 40 : test_int(96, 100);
    attn_desc d = make_desc(batch, heads, heads_kv, rows, keys, size, size + 5);
    ask_for(&d, kind == PLAIN || kind == STARTED || kind == TILES ? RESULT_ALL : RESULT_OUT | RESULT_LSE,
            LAYOUT_PACKED);
    d.causal = cut_tiles || kind == CARRIED;
    d.align = kind == CARRIED ? ATTN_ALIGN_POSITIONS : ATTN_ALIGN_BOTTOM_RIGHT;
    if (kind == PLAIN) d.bias = make_filled(LAYOUT_PACKED, 1, 2, 1, keys, 0, 0), d.dropout = 0.25f;
    if (kind == SHORT_WINDOW) d.window = 1, d.window_left = 1500;
    if (kind == PAGED || kind == UNEVEN || kind == CODES)
        put_keys_in_pages(&d, batch, heads_kv, keys, 16,
                          kind == CODES    ? ATTN_I8
                          : kind == UNEVEN ? ATTN_BF16
                                           : ATTN_F32);
    if (kind == HALVES) d.k = retyped(&d.k, ATTN_F16, LAYOUT_PACKED), d.v = retyped(&d.v, ATTN_F16, LAYOUT_PACKED);
    if (kind == PAGED || kind == WIDE) d.key_lengths = one_int(keys - 333);
    if (batched) {
        d.key_lengths = make_view(ATTN_I32, LAYOUT_PACKED, 1, batch, 0, 0, 0);
        for (int b = 0; b < batch; b++) put_at(&d.key_lengths, 0, 0, 0, b, lengths[b]);
    }
    if (kind == SHARED) { /* lengths for each query, the same for all entries, of which one has fewer queries */
        d.key_lengths = make_view(ATTN_I32, LAYOUT_PACKED, 2, 1, rows, 0, 0);
        d.query_lengths = make_view(ATTN_I32, LAYOUT_PACKED, 1, batch, 0, 0, 0);
        for (int i = 0; i < 2; i++)
            put_at(&d.key_lengths, 0, 0, 0, i, i ? KEYS - 99 : 256), put_at(&d.query_lengths, 0, 0, 0, i, 2 - i);
        d.key_lengths.size[0] = batch, d.key_lengths.stride[0] = 0;
    }
    if (kind == STARTED) {
        d.query_starts = make_view(ATTN_I32, LAYOUT_PACKED, 1, batch, 0, 0, 0);
        d.key_starts = make_view(ATTN_I64, LAYOUT_PACKED, 1, batch, 0, 0, 0);
        for (int b = 0; b < batch; b++)
            put_at(&d.query_starts, 0, 0, 0, b, b % 2), put_at(&d.key_starts, 0, 0, 0, b, 77);
    }
    if (kind != CARRIED) return d;
    attn_out carry = make_out(LAYOUT_PACKED, 4, batch, heads, rows, size + 5 + 2);
    attn_desc before = d;
    d.positions = before.positions = one_int(3 * keys);
    memset(&before.lse, 0, sizeof before.lse);
    before.carry_out = carry;
    run_desc(&before, "the keys before");
    d.carry_in = attn_view_of(carry), d.key_origin = keys;
    return d;
}

static void test_many_workers(void) {
    static const int32_t workers[] = {2, 3, 5, 8, 16, 31, 64, 127, 128};
    for (int kind = 0; kind < MANY_KINDS; kind++) {
        attn_desc d = many_call(kind);
        for (int n = 0; n < test_isa_count(); n++) {
            const attn_isa isa = test_isa(n);
            const int slow = isa != ATTN_ISA_AVX2 && isa != ATTN_ISA_NEON;
            int64_t tasks = 0;
            d.isa = (int32_t)isa, d.parallel.workers = 1;
            poison_results(&d);
            if (!run_desc(&d, "one worker")) break;
            attn_desc want = copy_results(&d);
            for (int w = 0; w < 9; w++) {
                attn_plan plan;
                if (workers[w] != 16 && (slow || (w + kind) % 3)) continue; /* they have the same driver */
                d.parallel.workers = workers[w];
                CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
                void *workspace = test_guarded(plan.workspace_bytes);
                for (int backwards = slow; backwards < 2; backwards++) {
                    poison_results(&d);
                    for (int32_t p = 0; p < plan.phases; p++)
                        for (int64_t i = 0; i < plan.tasks[p]; i++)
                            attn_task(&plan, workspace, p, backwards ? plan.tasks[p] - 1 - i : i,
                                      (int32_t)(i % workers[w]));
                    check_same_results(&d, &want, "many workers, in order or in reverse");
                }
                poison_results(&d);
                if (!slow) run_plan(&plan, workers[w]);
                if (!slow) check_same_results(&d, &want, "many workers, in any order");
                if (workers[w] == 8) check_pool(&d, &want, 8);
                memset(&d.parallel, 0, sizeof d.parallel);
                for (int32_t p = tasks = 0; p < plan.phases; p++)
                    if (plan.tasks[p] > tasks) tasks = plan.tasks[p];
                if (workers[w] == 16 && (kind != WIDE || isa == ATTN_ISA_AVX2 || isa == ATTN_ISA_AVX512)) /* 16 rows */
                    CHECKF(tasks >= 16 && (kind >= TILES || tasks <= 8 * 16), "kind %d: %ld tasks for 16 workers", kind,
                           (long)tasks);
            }
        }
        test_release();
    }
}

/* ---- gradients: a pool, the plan on threads, calls at the same time */
enum { MANY_HEADS, FEW_HEADS, FEW_GROUPS, SHAPES }; /* fewer than threads: blocks of queries, or parts, are tasks */
static call some_gradients(int32_t score, int shape) {
    const int64_t heads = shape == MANY_HEADS ? 4 : shape == FEW_HEADS ? test_int(1, 2) : 2;
    const int64_t batch = shape == MANY_HEADS ? 2 : 1, size = test_int(1, 20), size_v = test_int(1, 20);
    const int64_t queries = shape == MANY_HEADS ? test_int(1, 150) : test_int(200, 700);
    const int64_t keys = shape == MANY_HEADS ? test_int(1, 130) : test_int(130, 300);
    attn_desc d = make_desc(batch, heads, shape == FEW_HEADS ? heads : heads / 2, queries, keys, size, size_v);
    set_score(&d, score, test_int(1, 12));
    d.causal = test_int(0, 1);
    d.align = test_int(0, 1) ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
    d.dropout = test_int(0, 1) ? 0.3f : 0;
    d.seed = test_bits();
    d.empty = shape == MANY_HEADS ? ATTN_EMPTY_ZERO : ATTN_EMPTY_UNIFORM;
    d.bias = shape == FEW_HEADS ? make_filled(LAYOUT_PACKED, 1, 4, 1, heads, queries, keys)
                                : make_filled(LAYOUT_PACKED, 1, 1, keys, 0, 0, 0);
    call c = make_call(&d, FROM_ALL, ~0u);
    if (test_int(0, 1)) memset(&c.d.stats, 0, sizeof c.d.stats);
    return c;
}

static void test_backward_pool(void) {
    static const int32_t workers[] = {1, 2, 3, 5, 8};
    int most = 0;
    for (int32_t k = 0; k < SHAPES * ATTN_SCORE_COUNT; k++) {
        call c = some_gradients(k / SHAPES, k % SHAPES);
        for (int n = 0; n < test_isa_count(); n++) {
            c.d.isa = (int32_t)test_isa(n);
            memset(&c.d.parallel, 0, sizeof c.d.parallel);
            if (!run_call(&c, "one thread")) break;
            call want = copy_grads(&c);
            for (int w = 0; w < 5; w++) {
                pool p;
                size_t bytes = 0;
                /* each number meets each shape; the slow kernels, whose driver is the same, meet fewer */
                if ((w + k) % 5 >= (n == 0 && test_isa_count() > 1 ? 1 : 3)) continue;
                c.d.parallel = parallel_of(&p, workers[w]);
                CHECK_STATUS(attn_backward_workspace_size(&c.d, &c.g, &bytes, 0), ATTN_OK);
                c.d.workspace = test_int(0, 1) ? test_guarded(bytes) : 0;
                c.d.workspace_bytes = c.d.workspace ? bytes : 0;
                run_call(&c, "gradients on a pool of threads");
                same_grads(&want, &c, "gradients on a pool of threads");
                CHECKF(p.calls <= ATTN_MAX_PHASES, "the callback was called %d times", (int)p.calls);
                if (p.calls > most) most = (int)p.calls;
                c.d.workspace = 0, c.d.workspace_bytes = 0;
                pthread_mutex_destroy(&p.lock);
            }
        }
        test_release();
    }
    CHECKF(most > 4, "no call had rounds: %d calls of the callback", most);
}

/* An entry with fewer blocks of keys than parts: what lies outside of its keys is written by one task. */
static void test_backward_outside(void) {
    attn_desc d = make_desc(1, 1, 1, 300, 1500, 8, 8);
    pool p;
    d.key_starts = make_ints(ATTN_I64, 1, 1, 0, 0, 0, 1400, 1400);
    d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 70, 70);
    d.bias = make_filled(LAYOUT_PACKED, 1, 2, 300, 1500, 0, 0);
    call c = make_call(&d, FROM_OUT, ~0u);
    if (!run_call(&c, "one thread")) return;
    call want = copy_grads(&c);
    c.d.parallel = parallel_of(&p, 8);
    run_call(&c, "more parts than blocks of keys");
    same_grads(&want, &c, "more parts than blocks of keys");
    pthread_mutex_destroy(&p.lock);
    test_release();
}

/* Few workers and many blocks of queries: a plan never has more phases than there is room for, and rounds, or parts
   where there would be too many rounds, give the same bits. */
static void test_backward_rounds(void) {
    int most = 0;
    for (int64_t blocks = 2; blocks <= 22; blocks++) {
        attn_desc d = make_desc(1, 1, 1, blocks * ATTN_GRAD_QUERIES - 5, 140, 8, 8);
        call c = make_call(&d, FROM_OUT, 7); /* dq, dk, dv */
        if (!run_call(&c, "one thread")) break;
        call want = copy_grads(&c);
        for (int32_t workers = 2; workers <= 5; workers++) {
            attn_plan plan;
            pool p;
            c.d.parallel = parallel_of(&p, workers);
            CHECK_STATUS(attn_plan_backward(&c.d, &c.g, &plan, 0), ATTN_OK);
            if (!CHECKF(plan.phases <= ATTN_MAX_PHASES, "%d phases for %d blocks and %d workers", (int)plan.phases,
                        (int)blocks, (int)workers))
                break;
            if (plan.phases > most) most = plan.phases;
            run_call(&c, "few workers, many blocks");
            same_grads(&want, &c, "few workers, many blocks");
            pthread_mutex_destroy(&p.lock);
        }
        test_release();
    }
    CHECKF(most > 10, "no call had many rounds: %d phases", most);
}

/* From 1 to 128 workers few heads are cut in ways that differ in what tasks leave for each other: forwards, backwards
   and at random, by the first worker, the last one or any, in a workspace that holds NaN, each gives one worker's
   bits. */
enum { IN_GROUPS, CAUSAL, CHUNKED, LATE, OPTIONS, COSINE, CUTS };
static call few_heads(int shape) {
    static const int64_t size[CUTS][7] = {{1, 4, 1, 379, 1021, 128, 8}, {1, 2, 2, 900, 900, 16, 16},
                                          {2, 2, 1, 300, 700, 8, 24},   {1, 1, 1, 700, 300, 20, 12},
                                          {1, 2, 2, 400, 500, 16, 16},  {1, 2, 1, 500, 500, 12, 12}};
    const int64_t *n = size[shape];
    attn_desc d = make_desc(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
    if (shape == COSINE) set_score(&d, ATTN_SCORE_COSINE, 0);
    d.causal = shape != IN_GROUPS && shape != OPTIONS;
    d.align = shape == CAUSAL || shape == COSINE ? ATTN_ALIGN_TOP_LEFT : ATTN_ALIGN_BOTTOM_RIGHT;
    if (shape == CHUNKED) d.key_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 333, 700);
    if (shape == OPTIONS) {
        d.window = 1, d.window_left = 90, d.window_right = 200;
        d.softcap = 20, d.dropout = 0.2f;
        d.empty = ATTN_EMPTY_UNIFORM;
        d.mask = make_ints(ATTN_U8, 2, 400, 500, 0, 0, 0, 1);
        d.bias = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, 400, 500);
    }
    return make_call(&d, FROM_OUT, 7 | (shape == OPTIONS ? ATTN_GRAD_BIAS : 0)); /* dq, dk, dv */
}

static void run_adverse(call *c, const attn_plan *plan, int32_t workers) {
    void *workspace = test_guarded(plan->workspace_bytes); /* NaN everywhere */
    prepare_grads(c);
    for (int32_t p = 0; p < plan->phases; p++) {
        const int64_t count = plan->tasks[p];
        int64_t *order = random_order(count);
        for (int64_t i = 0; i < count; i++) {
            const int64_t index = workers % 3 == 0 ? i : workers % 3 == 1 ? count - 1 - i : order[i];
            const int who = i % 3 == 0 ? 0 : i % 3 == 1 ? workers - 1 : test_int(0, workers - 1);
            attn_task(plan, workspace, p, index, who);
        }
        free(order);
    }
}

static void test_backward_workers(void) {
    int many = 0;
    for (int shape = 0; shape < CUTS; shape++) {
        call c = few_heads(shape);
        attn_plan plan;
        if (!run_call(&c, "one worker")) break;
        call want = copy_grads(&c);
        for (int32_t workers = 1; workers <= 128; workers += workers < 9 ? 1 : shape == IN_GROUPS ? 40 : 7) {
            c.d.parallel.workers = workers;
            CHECK_STATUS(attn_plan_backward(&c.d, &c.g, &plan, 0), ATTN_OK);
            run_adverse(&c, &plan, workers);
            if (!same_grads(&want, &c, "few heads, many workers"))
                CHECKF(0, "shape %d, %d workers", shape, (int)workers);
            if (shape == IN_GROUPS) many += plan.phases > 3;
            if (shape == CAUSAL)
                CHECKF(plan.tasks[1] >= (workers < 28 ? workers : 28), "%ld tasks for %d workers", (long)plan.tasks[1],
                       (int)workers);
        }
        test_release();
    }
    CHECKF(many >= 4, "%d numbers of workers have several rounds", many);
}

/* ---- how gradients are cut: the table of CONTRIBUTING.md once more, by itself. Nothing is computed: plans alone. */
typedef struct shape_of_units {
    int64_t units, group, blocks, key_blocks, workers; /* query heads of a unit; per head; of keys */
    int causal, score;
} shape_of_units;
enum { MODEL_D = 16, MODEL_ROUNDS = 6 };
static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t rounded_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t blocks_reached(const shape_of_units *s, int64_t block) { /* 64 keys each, by 128 queries */
    return s->causal ? least_of(s->key_blocks, 2 * (block % s->blocks + 1)) : s->key_blocks;
}

/* Rounds of cells into ends[]: 0, if there is no room for them in six. Beside a round's cells a unit has dk and dv of a
   head; all have what dk and dv of a head take for each worker or, up to 2 MB for each, as much as they can use. */
static int rounds_of_cells(const shape_of_units *s, int64_t *ends) {
    const int64_t cell = 128 * MODEL_D, sums = s->key_blocks * 64 * 2 * MODEL_D, blocks = s->group * s->blocks;
    const int64_t used = least_of(s->units, s->workers) * sums + s->units * blocks * s->key_blocks * cell;
    const int64_t most = least_of(used, s->workers * (2 << 20) / 4), all = s->workers * sums;
    const int64_t room = ((all > most ? all : most) / s->units - sums) / cell;
    int64_t q = 0, held;
    int n = 0;
    if (s->workers < 3 || s->score > ATTN_SCORE_DOT) return 0;
    for (; q < blocks && n < MODEL_ROUNDS; ends[n++] = q)
        for (held = 0; q < blocks && (held += blocks_reached(s, q)) <= room;) q++;
    return q < blocks ? 0 : n;
}

/* Tasks of the phases after the rows' into tasks[]; returns how many, and what an explanation says of them. Costs are
   half products times W, times B. */
static int model_of(const shape_of_units *s, int64_t *tasks, int64_t *first, const char **says) {
    const int64_t u = s->units, w = s->workers, b = s->blocks, k = s->key_blocks;
    const int64_t whole = 10 * rounded_up(u, w) * w * b, cut = (s->score == ATTN_SCORE_ADDITIVE ? 20 : 14) * u * b;
    const int64_t of_slots = least_of(w / u, b), slots = of_slots ? rounded_up(b, of_slots) : 0;
    const int64_t parts = rounded_up(4 * w, u);
    int64_t ends[MODEL_ROUNDS], part, n;
    int by_slots = s->group == 1 && of_slots > 1 && slots <= MODEL_ROUNDS && 10 * slots * w < least_of(whole, cut);
    const int by_cells = 11 * u * b < whole && (!by_slots || 11 * u * b < 10 * (slots + s->causal) * w);
    const int rounds = w > 1 && by_cells ? rounds_of_cells(s, ends) : 0;
    if (rounds) {
        part = least_of((rounds > 1 ? 4 : 2) * w / u, k);
        part = part ? part : 1;
        *says = " tasks for parts of keys, a few blocks of queries at a time";
        *first = u * part;
        for (n = 0; n < rounds; n++) tasks[2 * n] = u * part, tasks[2 * n + 1] = u * (ends[n] - (n ? ends[n - 1] : 0));
        return 2 * rounds;
    }
    if (w > 1 && by_slots) {
        *says = " tasks for blocks of queries, a few at a time";
        *first = u * b;
        for (n = 0; n < slots; n++)
            tasks[2 * n] = u * least_of(of_slots, b - n * of_slots), tasks[2 * n + 1] = u * least_of(k, w);
        return 2 * (int)slots;
    }
    *says = w == 1 || whole <= cut ? " tasks for all products" : " tasks for parts of keys or queries";
    *first = tasks[0] = w == 1 || whole <= cut ? u : u * (least_of(parts, k) + least_of(parts, b));
    return 1;
}

static void check_model(const shape_of_units *s, int *ways) {
    float *at[5]; /* addresses that are planned with, never used */
    const int64_t heads = s->units * s->group, queries = s->blocks * 128, keys = s->key_blocks * 64;
    int64_t tasks[ATTN_MAX_PHASES], first;
    const char *says;
    char text[1000], number[80];
    attn_desc d;
    attn_grad g;
    attn_plan plan;
    for (int i = 0; i < 5; i++) at[i] = (float *)((uintptr_t)(i + 1) << 28);
    memset(&d, 0, sizeof d);
    memset(&g, 0, sizeof g);
    d.q = attn_view_bhsd(at[0], 1, heads, queries, MODEL_D);
    d.k = d.v = attn_view_bhsd(at[0], 1, s->units, keys, MODEL_D);
    d.out = attn_out_bhsd(at[1], 1, heads, queries, MODEL_D);
    d.score = s->score;
    if (s->score == ATTN_SCORE_ADDITIVE) {
        d.w_q = d.w_k = attn_view_f32(at[0], 2, 16, MODEL_D, 0, 0);
        d.w_v = attn_view_f32(at[0], 1, 16, 0, 0, 0);
    }
    d.causal = s->causal, d.align = ATTN_ALIGN_TOP_LEFT;
    d.parallel.workers = (int32_t)s->workers;
    g.d_out = d.q;
    g.dq = attn_out_bhsd(at[2], 1, heads, queries, MODEL_D);
    g.dk = attn_out_bhsd(at[3], 1, s->units, keys, MODEL_D);
    g.dv = attn_out_bhsd(at[4], 1, s->units, keys, MODEL_D);
    CHECK_STATUS(attn_plan_backward(&d, &g, &plan, 0), ATTN_OK);
    const int n = model_of(s, tasks, &first, &says), before = plan.phases - n;
    int same = before == 1 + (s->score == ATTN_SCORE_ADDITIVE); /* whose keys are prepared; the rows */
    for (int i = 0; same && i < n; i++) same = plan.tasks[before + i] == tasks[i];
    snprintf(number, sizeof number, "then %ld%s", (long)first, says);
    attn_explain_backward(&d, &g, text, sizeof text);
    CHECKF(same && strstr(text, number),
           "%ld units of %ld heads, %ld blocks by %ld of keys, %ld workers, causal %d, score %d: not %d phases, %s\n%s",
           (long)s->units, (long)s->group, (long)s->blocks, (long)s->key_blocks, (long)s->workers, s->causal, s->score,
           n, number, text);
    ways[strstr(says, "all") ? 0 : strstr(says, "parts of keys,") ? 1 : strstr(says, "blocks") ? 2 : 3]++;
}

static void test_backward_model(void) {
    static const int64_t workers[] = {1, 2, 3, 4, 5, 7, 8, 11, 16, 24, 32, 48, 64, 96, 127, 128};
    static const int64_t units[] = {1, 2, 4, 6, 8, 16, 31, 64, 130}, blocks[] = {1, 2, 3, 5, 8, 13, 16, 33};
    static const int scores[] = {ATTN_SCORE_SCALED_DOT, ATTN_SCORE_ADDITIVE, ATTN_SCORE_GAUSSIAN};
    int ways[4] = {0, 0, 0, 0};
    for (int i = 0; i < 9 * 8 * 16; i++)
        for (int way = 0; way < 3 * 8; way++) {
            const int64_t b = blocks[i / 9 % 8];
            const shape_of_units s = {units[i % 9], 1 + (way >> 1 & 1), b, way & 4 ? 3 : 2 * b, workers[i / 9 / 8],
                                      way & 1,      scores[way / 8]};
            check_model(&s, ways);
        }
    for (int n = 0; n < 4; n++) CHECKF(ways[n] > 500, "way %d was taken %d times", n, ways[n]);
}

/* A bias of its own for each head: its gradient is summed over no two of them, and each stays a task. */
static void test_backward_bias_tasks(void) {
    attn_desc d = make_desc(2, 4, 4, 20, 30, 4, 4);
    d.bias = make_filled(LAYOUT_PACKED, 1, 4, 2, 4, 20, 30);
    call c = make_call(&d, FROM_OUT, 7 | ATTN_GRAD_BIAS);
    attn_plan plan;
    CHECK_STATUS(attn_plan_backward(&c.d, &c.g, &plan, 0), ATTN_OK);
    for (int n = 0; n < plan.phases; n++)
        CHECKF(plan.tasks[n] >= 8, "phase %d has %ld tasks for 8 heads", n, (long)plan.tasks[n]);
}

/* A bias of all entries and heads: its gradient becomes zeros before the first block, and where it has 16 bits it is
   made from sums after the last, by tasks of 128 rows each. Against float64; the narrow one is the other, rounded. */
static void test_backward_bias_rows(void) {
    enum { ROWS = 300, BLOCKS = 3, KEYS = 40 };
    attn_desc d = make_desc(2, 4, 2, ROWS, KEYS, 4, 4);
    d.bias = make_filled(LAYOUT_PACKED, 1, 2, ROWS, KEYS, 0, 0);
    call c = make_call(&d, FROM_OUT, 1u << GRAD_Q | 1u << GRAD_BIAS);
    attn_out want = c.g.d_bias, rounded = make_out(LAYOUT_PACKED, 2, ROWS, KEYS, 0, 0);
    check_call(&c, "the gradient of a bias");
    rounded.type = ATTN_BF16;
    CHECK_STATUS(attn_convert(attn_view_of(want), rounded, 0), ATTN_OK);
    c.g.d_bias = make_out(LAYOUT_PACKED, 2, ROWS, KEYS, 0, 0);
    for (int narrow = 0; narrow < 2; narrow++) {
        attn_plan plan;
        pool p;
        if (narrow) c.g.d_bias.type = ATTN_BF16;
        c.d.parallel = parallel_of(&p, 3);
        CHECK_STATUS(attn_plan_backward(&c.d, &c.g, &plan, 0), ATTN_OK);
        CHECKF(plan.tasks[0] == (2 * 4 + 1) * BLOCKS && (!narrow || plan.tasks[plan.phases - 1] == BLOCKS),
               "%ld tasks at first, %ld at last", (long)plan.tasks[0], (long)plan.tasks[plan.phases - 1]);
        run_call(&c, "the gradient of a bias on threads");
        check_same(&c.g.d_bias, narrow ? &rounded : &want, "the gradient of a bias on threads");
        pthread_mutex_destroy(&p.lock);
    }
}

/* The gradient of a table where rows in front of the entry, which count under ATTN_EMPTY_UNIFORM, are another task's
   than the entry's rows that go to the same sums. ThreadSanitizer tells of an update that may be lost. */
static void test_backward_table_of_an_entry(void) {
    enum { FRONT = 6 * 128, ROWS = 11 * 128, KEYS = 512 };
    int64_t start = FRONT;
    attn_desc d = make_desc(1, 1, 1, ROWS, KEYS, 8, 8);
    pool p;
    d.empty = ATTN_EMPTY_UNIFORM;
    d.bias = make_filled(LAYOUT_PACKED, 1, 1, 2, 0, 0, 0);
    d.bias_index = make_ints(ATTN_I32, 2, ROWS, KEYS, 0, 0, 0, 1);
    d.query_starts = attn_view_i64(&start, 1, 1, 0, 0, 0);
    call c = make_call(&d, FROM_OUT, 1u << GRAD_BIAS);
    run_call(&c, "one worker");
    call want = copy_grads(&c);
    c.d.parallel = parallel_of(&p, 2);
    for (int n = 0; n < 8; n++) {
        run_call(&c, "two workers");
        if (!same_grads(&want, &c, "two workers")) break;
    }
    pthread_mutex_destroy(&p.lock);
}

static void test_backward_plan_on_threads(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        call c = some_gradients(score, score % SHAPES);
        attn_plan plan, copy;
        pool p;
        run_call(&c, "one thread");
        call want = copy_grads(&c);
        c.d.parallel = parallel_of(&p, 4);
        CHECK_STATUS(attn_plan_backward(&c.d, &c.g, &plan, 0), ATTN_OK);
        CHECK(plan.phases >= 1 && plan.phases <= ATTN_MAX_PHASES);
        copy = plan; /* a plan may be copied, and run again with other data */
        memset(&plan, 0xEE, sizeof plan);
        prepare_grads(&c);
        phase now = {&copy, test_guarded(copy.workspace_bytes), 0};
        for (int again = 0; again < 2; again++) {
            for (now.number = 0; now.number < copy.phases; now.number++)
                run_pool(&p, copy.tasks[now.number], run_phase_task, &now);
            same_grads(&want, &c, "a plan of gradients on threads");
            fill(&c.g.d_out, draw_normal, 0, 1);
            memset(&c.d.parallel, 0, sizeof c.d.parallel);
            attn_grad mine = c.g;
            call other = copy_grads(&c);
            run_call(&other, "one thread, other data");
            want = other;
            c.g = mine;
        }
        pthread_mutex_destroy(&p.lock);
        test_release();
    }
}

typedef struct both_ways {
    call c;
    attn_status status;
} both_ways;
static void *call_backward(void *arg) {
    both_ways *r = (both_ways *)arg;
    for (int i = 0; i < 3; i++) r->status = attn_backward(&r->c.d, &r->c.g, 0);
    return 0;
}
static void test_backward_reentrant(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        both_ways ways[3];
        pthread_t threads[3];
        call c = some_gradients(score, MANY_HEADS);
        run_call(&c, "one thread");
        for (int i = 0; i < 3; i++) {
            ways[i].c = copy_grads(&c);
            prepare_grads(&ways[i].c);
        }
        for (int i = 0; i < 3; i++)
            if (pthread_create(&threads[i], 0, call_backward, &ways[i])) abort();
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], 0);
            CHECK_STATUS(ways[i].status, ATTN_OK);
            same_grads(&c, &ways[i].c, "gradients at the same time");
        }
        test_release();
    }
}

static void test_backward_pieces(void) { /* the pieces and a block of heads on threads */
    pool p;
    attn_desc o;
    attn_mha_desc m;
    attn_mha_grad g;
    attn_view x = make_filled(LAYOUT_PACKED, 2, 4, 3, 2, 40, 70), b = make_filled(LAYOUT_PACKED, 1, 3, 2, 70, 90, 0),
              d_out = make_filled(LAYOUT_PACKED, 1, 4, 3, 2, 40, 90);
    attn_out dx[2], da[2], db[2], dw[2], dquery[2];
    memset(&o, 0, sizeof o);
    memset(&m, 0, sizeof m);
    memset(&g, 0, sizeof g);
    m.query = make_filled(LAYOUT_PACKED, 1, 3, 2, 50, 12, 0);
    m.w_query = make_filled(LAYOUT_PACKED, 0.3, 2, 24, 12, 0, 0);
    m.w_key = make_filled(LAYOUT_PACKED, 0.3, 2, 8, 12, 0, 0);
    m.w_value = make_filled(LAYOUT_PACKED, 0.3, 2, 10, 12, 0, 0);
    m.out = make_out(LAYOUT_PACKED, 3, 2, 50, 30, 0);
    m.heads = 6;
    m.heads_kv = 2;
    m.attention = &o;
    g.d_out = make_filled(LAYOUT_PACKED, 1, 3, 2, 50, 30, 0);
    o.causal = 1;
    o.align = ATTN_ALIGN_TOP_LEFT;
    for (int parallel = 0; parallel < 2; parallel++) {
        if (parallel) o.parallel = parallel_of(&p, 3);
        dx[parallel] = make_out(LAYOUT_PACKED, 4, 3, 2, 40, 70);
        da[parallel] = make_out(LAYOUT_PACKED, 4, 3, 2, 40, 70);
        db[parallel] = make_out(LAYOUT_PACKED, 3, 2, 70, 90, 0);
        g.dquery = dquery[parallel] = make_out(LAYOUT_PACKED, 3, 2, 50, 12, 0);
        g.dw_key = dw[parallel] = make_out(LAYOUT_PACKED, 2, 8, 12, 0, 0);
        CHECK_STATUS(attn_softmax_backward(x, x, dx[parallel], &o, 0), ATTN_OK);
        CHECK_STATUS(attn_bmm_backward(x, b, d_out, da[parallel], db[parallel], 0, &o, 0), ATTN_OK);
        CHECK_STATUS(attn_mha_backward(&m, &g, 0), ATTN_OK);
    }
    CHECKF(p.calls >= 3 && p.largest < 3, "%d calls of the callback, highest worker %d", (int)p.calls, (int)p.largest);
    check_same(&dx[1], &dx[0], "the gradient of a softmax on threads");
    check_same(&da[1], &da[0], "the gradient of a product on threads");
    check_same(&db[1], &db[0], "the gradient of a product on threads");
    check_same(&dquery[1], &dquery[0], "gradients of heads on threads");
    check_same(&dw[1], &dw[0], "gradients of heads on threads");
    pthread_mutex_destroy(&p.lock);
}

/* Two tasks go to the callback, a single one does not. */
static void test_two_tasks(void) {
    enum { FORWARD, BMM, SOFTMAX, BACKWARD, BMM_BACKWARD, KINDS };
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t batch = 1; batch <= 2; batch++) {
            recorder r = {IN_ORDER, 0, 0};
            attn_desc d = make_desc(batch, 1, 1, 3, 5, 4, 2), o;
            call c = make_call(&d, FROM_OUT, 1u << GRAD_V);
            attn_view a = make_filled(LAYOUT_PACKED, 1, 3, batch, 3, 4, 0),
                      b = make_filled(LAYOUT_PACKED, 1, 3, batch, 4, 5, 0),
                      d_out = make_filled(LAYOUT_PACKED, 1, 3, batch, 3, 5, 0);
            attn_out product = make_out(LAYOUT_PACKED, 3, batch, 3, 5, 0),
                     da = make_out(LAYOUT_PACKED, 3, batch, 3, 4, 0), none;
            memset(&o, 0, sizeof o);
            memset(&none, 0, sizeof none);
            o.parallel.run = run_recorded;
            o.parallel.user = &r;
            c.d.parallel = o.parallel;
            if (kind == FORWARD) CHECK_STATUS(attn_forward(&c.d, 0), ATTN_OK);
            if (kind == BMM) CHECK_STATUS(attn_bmm(a, b, product, &o, 0), ATTN_OK);
            if (kind == SOFTMAX) CHECK_STATUS(attn_softmax(a, da, &o, 0), ATTN_OK);
            if (kind == BACKWARD) CHECK_STATUS(attn_backward(&c.d, &c.g, 0), ATTN_OK);
            if (kind == BMM_BACKWARD) CHECK_STATUS(attn_bmm_backward(a, b, d_out, da, none, 0, &o, 0), ATTN_OK);
            int phases = kind == BACKWARD ? 2 : 1;
            CHECKF(r.calls == (batch == 2 ? phases : 0) && r.tasks == 2 * r.calls,
                   "kind %d, batch %d: %d calls with %ld tasks", kind, (int)batch, r.calls, (long)r.tasks);
            test_release();
        }
}

/* However few columns a product has, each of many workers has tasks. */
static void test_tasks_for_all(void) {
    enum { WORKERS = 16 };
    for (int n = 0; n < test_isa_count(); n++)
        for (int entries = 1; entries <= 64; entries *= 64) {
            recorder r = {IN_ORDER, 0, 0};
            attn_view a = make_filled(LAYOUT_PACKED, 1, 3, entries, 4096 / entries, 5, 0);
            attn_desc o;
            memset(&o, 0, sizeof o);
            o.isa = (int32_t)test_isa(n);
            o.parallel.workers = WORKERS;
            o.parallel.run = run_recorded;
            o.parallel.user = &r;
            CHECK_STATUS(attn_bmm(a, make_filled(LAYOUT_PACKED, 1, 2, 5, 10, 0, 0),
                                  make_out(LAYOUT_PACKED, 3, entries, 4096 / entries, 10, 0), &o, 0),
                         ATTN_OK);
            CHECKF(r.calls == 1 && r.tasks >= WORKERS, "%ld tasks for %d workers", (long)r.tasks, WORKERS);
            test_release();
        }
}

/* A row times columns that lie side by side: a task has at least so many as are multiplied together. */
static void test_tasks_of_columns(void) {
    enum { COLUMNS = 640, TOGETHER = 32 };
    for (int n = 0; n < test_isa_count(); n++) {
        recorder r = {IN_ORDER, 0, 0};
        attn_desc o;
        memset(&o, 0, sizeof o);
        o.isa = (int32_t)test_isa(n);
        o.parallel.workers = 64;
        o.parallel.run = run_recorded;
        o.parallel.user = &r;
        CHECK_STATUS(attn_bmm(make_filled(LAYOUT_PACKED, 1, 2, 1, 70, 0, 0),
                              attn_view_swap(make_filled(LAYOUT_PACKED, 1, 2, COLUMNS, 70, 0, 0), 0, 1),
                              make_out(LAYOUT_PACKED, 2, 1, COLUMNS, 0, 0), &o, 0),
                     ATTN_OK);
        const int multiplies = o.isa == ATTN_ISA_AVX2 || o.isa == ATTN_ISA_AVX512; /* others may make copies */
        CHECKF(r.tasks > 0 && (!multiplies || r.tasks == COLUMNS / TOGETHER), "%ld tasks", (long)r.tasks);
        test_release();
    }
}

/* Sequences one after the other, of few tiles each: not so many tiles to a task that workers are left without; one
   worker has fewer tasks than many. */
static void test_tasks_of_sequences(void) {
    enum { SEQUENCES = 4, ROWS = 256 };
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, 2, 2, SEQUENCES * ROWS, SEQUENCES * ROWS, 8, 8);
        attn_plan plan;
        int64_t tasks[3] = {0, 0, 0};
        d.query_starts = d.key_starts = make_ints(ATTN_I32, 1, SEQUENCES, 0, 0, 0, 0, 0);
        for (int i = 0; i < SEQUENCES; i++) ((int32_t *)(uintptr_t)d.query_starts.data)[i] = i * ROWS;
        d.query_lengths = d.key_lengths = make_ints(ATTN_I32, 1, SEQUENCES, 0, 0, 0, ROWS, ROWS);
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        d.isa = (int32_t)test_isa(n);
        for (int w = 0; w < 3; w++) {
            d.parallel.workers = 1 << 3 * w;
            CHECK_STATUS(attn_plan_forward(&d, &plan, NULL), ATTN_OK);
            for (int32_t i = 0; i < plan.phases; i++) tasks[w] = plan.tasks[i] > tasks[w] ? plan.tasks[i] : tasks[w];
        }
        CHECKF(tasks[1] >= 8 && tasks[0] < tasks[2], "%ld, %ld, %ld tasks for 1, 8, 64 workers", (long)tasks[0],
               (long)tasks[1], (long)tasks[2]);
        test_release();
    }
}

const test_case suite_threads[] = {{"threads.pool", test_pool},
                                   {"threads.callback", test_callback},
                                   {"threads.two_tasks", test_two_tasks},
                                   {"threads.tasks_for_all", test_tasks_for_all},
                                   {"threads.tasks_of_columns", test_tasks_of_columns},
                                   {"threads.tasks_of_sequences", test_tasks_of_sequences},
                                   {"threads.plan", test_plan},
                                   {"threads.plan_again", test_plan_again},
                                   {"threads.plan_on_threads", test_plan_on_threads},
                                   {"threads.pieces", test_pieces},
                                   {"threads.append", test_append},
                                   {"threads.masks", test_masks},
                                   {"threads.converted_rows", test_converted_rows},
                                   {"threads.quantized_rows", test_quantized_rows},
                                   {"threads.turned_rows", test_turned_rows},
                                   {"threads.merged_rows", test_merged_rows},
                                   {"threads.lines_of_rows", test_lines_of_rows},
                                   {"threads.heads", test_heads},
                                   {"threads.reentrant", test_reentrant},
                                   {"threads.long_rows", test_long_rows},
                                   {"threads.long_rows_with_room", test_long_rows_with_room},
                                   {"threads.long_masked_rows", test_long_masked_rows},
                                   {"threads.long_empty_rows", test_long_empty_rows},
                                   {"threads.many_workers", test_many_workers},
                                   {"threads.backward_pool", test_backward_pool},
                                   {"threads.backward_outside", test_backward_outside},
                                   {"threads.backward_rounds", test_backward_rounds},
                                   {"threads.backward_workers", test_backward_workers},
                                   {"threads.backward_model", test_backward_model},
                                   {"threads.backward_bias_tasks", test_backward_bias_tasks},
                                   {"threads.backward_bias_rows", test_backward_bias_rows},
                                   {"threads.backward_table_of_an_entry", test_backward_table_of_an_entry},
                                   {"threads.backward_plan_on_threads", test_backward_plan_on_threads},
                                   {"threads.backward_reentrant", test_backward_reentrant},
                                   {"threads.backward_pieces", test_backward_pieces},
                                   {0, 0}};
