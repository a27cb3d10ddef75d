/* memory.c - no byte is read or written outside of what the caller gave, at any size and alignment; the workspace is
   enough and not a byte less would do; allocations, their failure, and the stack. */
#if !defined(_WIN32) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* pthread_attr_setstack under -std=c99 */
#endif
#include "grads.h"
#ifndef _WIN32
#include <pthread.h>
#endif

/* ---- everything that takes a workspace, behind one interface */
static struct {
    attn_desc forward, additive, cosine;
    attn_view x, q, k, a, b;
    attn_out softmax, scores, product;
    attn_mha_desc mha;
    call backward, back_additive;
    attn_view d_softmax, d_product;
    attn_out dx, da, db;
    attn_mha_grad heads;
} job;

typedef attn_status (*sizer)(const attn_desc *options, size_t *bytes);
typedef attn_status (*runner)(const attn_desc *options);
typedef struct operation {
    const char *name;
    sizer size;
    runner run;
    attn_out *result;
} operation;

/* `d` with the hooks and the instruction set of `options`; not on the stack, which is measured below. */
static const attn_desc *with_hooks(const attn_desc *d, const attn_desc *options) {
    static attn_desc both;
    both = *d;
    both.isa = options->isa;
    both.workspace = options->workspace;
    both.workspace_bytes = options->workspace_bytes;
    both.allocator = options->allocator;
    both.parallel = options->parallel;
    return &both;
}
static attn_status size_forward(const attn_desc *o, size_t *n) {
    return attn_workspace_size(with_hooks(&job.forward, o), n, 0);
}
static attn_status size_additive(const attn_desc *o, size_t *n) {
    return attn_workspace_size(with_hooks(&job.additive, o), n, 0);
}
static attn_status size_cosine(const attn_desc *o, size_t *n) {
    return attn_workspace_size(with_hooks(&job.cosine, o), n, 0);
}
static attn_status run_forward(const attn_desc *o) { return attn_forward(with_hooks(&job.forward, o), 0); }
static attn_status run_additive(const attn_desc *o) { return attn_forward(with_hooks(&job.additive, o), 0); }
static attn_status run_cosine(const attn_desc *o) { return attn_forward(with_hooks(&job.cosine, o), 0); }
static attn_status size_softmax(const attn_desc *o, size_t *n) {
    return attn_softmax_workspace_size(job.x, job.softmax, o, n, 0);
}
static attn_status run_softmax(const attn_desc *o) { return attn_softmax(job.x, job.softmax, o, 0); }
static attn_status size_scores(const attn_desc *o, size_t *n) {
    attn_desc d = *o;
    d.q = job.q;
    d.k = job.k;
    d.scores = job.scores;
    return attn_workspace_size(&d, n, 0);
}
static attn_status run_scores(const attn_desc *o) { return attn_scores(job.q, job.k, job.scores, o, 0); }
static attn_status size_bmm(const attn_desc *o, size_t *n) {
    return attn_bmm_workspace_size(job.a, job.b, job.product, o, n, 0);
}
static attn_status run_bmm(const attn_desc *o) { return attn_bmm(job.a, job.b, job.product, o, 0); }
static attn_status size_mha(const attn_desc *o, size_t *n) {
    job.mha.attention = o;
    return attn_mha_workspace_size(&job.mha, n, 0);
}
static attn_status run_mha(const attn_desc *o) {
    job.mha.attention = o;
    return attn_mha(&job.mha, 0);
}

static attn_status size_backward(const attn_desc *o, size_t *n) {
    return attn_backward_workspace_size(with_hooks(&job.backward.d, o), &job.backward.g, n, 0);
}
static attn_status run_backward(const attn_desc *o) {
    return attn_backward(with_hooks(&job.backward.d, o), &job.backward.g, 0);
}
static attn_status size_back_additive(const attn_desc *o, size_t *n) {
    return attn_backward_workspace_size(with_hooks(&job.back_additive.d, o), &job.back_additive.g, n, 0);
}
static attn_status run_back_additive(const attn_desc *o) {
    return attn_backward(with_hooks(&job.back_additive.d, o), &job.back_additive.g, 0);
}
static attn_status size_softmax_backward(const attn_desc *o, size_t *n) {
    return attn_softmax_backward_workspace_size(job.x, job.d_softmax, job.dx, o, n, 0);
}
static attn_status run_softmax_backward(const attn_desc *o) {
    return attn_softmax_backward(job.x, job.d_softmax, job.dx, o, 0);
}
static attn_status size_bmm_backward(const attn_desc *o, size_t *n) {
    return attn_bmm_backward_workspace_size(job.a, job.b, job.d_product, job.da, job.db, o, n, 0);
}
static attn_status run_bmm_backward(const attn_desc *o) {
    return attn_bmm_backward(job.a, job.b, job.d_product, job.da, job.db, 0, o, 0);
}
static attn_status size_mha_backward(const attn_desc *o, size_t *n) {
    job.mha.attention = o;
    return attn_mha_backward_workspace_size(&job.mha, &job.heads, n, 0);
}
static attn_status run_mha_backward(const attn_desc *o) {
    job.mha.attention = o;
    return attn_mha_backward(&job.mha, &job.heads, 0);
}

static const operation operations[] = {
    {"forward", size_forward, run_forward, &job.forward.out},
    {"additive", size_additive, run_additive, &job.additive.out},
    {"cosine", size_cosine, run_cosine, &job.cosine.out},
    {"softmax", size_softmax, run_softmax, &job.softmax},
    {"scores", size_scores, run_scores, &job.scores},
    {"bmm", size_bmm, run_bmm, &job.product},
    {"mha", size_mha, run_mha, &job.mha.out},
    {"backward", size_backward, run_backward, &job.backward.g.dk},
    {"additive backward", size_back_additive, run_back_additive, &job.back_additive.g.dq},
    {"softmax backward", size_softmax_backward, run_softmax_backward, &job.dx},
    {"bmm backward", size_bmm_backward, run_bmm_backward, &job.db},
    {"mha backward", size_mha_backward, run_mha_backward, &job.heads.dw_key}};
enum { OPERATIONS = (int)(sizeof operations / sizeof *operations) };

static attn_view take(int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return make_filled(LAYOUT_PACKED, 1, rank, n0, n1, n2, n3);
}
static attn_out give(int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return make_out(LAYOUT_PACKED, rank, n0, n1, n2, n3);
}

static attn_out give_like(attn_view v) { return give(v.rank, v.size[0], v.size[1], v.size[2], v.size[3]); }
static attn_view take_like(attn_out o) { return take(o.rank, o.size[0], o.size[1], o.size[2], o.size[3]); }

static void set_up(void) {
    memset(&job, 0, sizeof job);
    job.forward = make_desc(2, 4, 2, 7, 300, 9, 5);
    job.forward.causal = 1;
    job.additive = make_desc(2, 2, 2, 5, 19, 6, 3);
    set_score(&job.additive, ATTN_SCORE_ADDITIVE, 7);
    job.cosine = make_desc(1, 2, 1, 5, 270, 6, 3);
    job.cosine.score = ATTN_SCORE_COSINE;
    job.x = take(3, 2, 5, 17, 0);
    job.softmax = give(3, 2, 5, 17, 0);
    job.q = take(4, 2, 3, 5, 6);
    job.k = take(4, 2, 3, 11, 6);
    job.scores = give(4, 2, 3, 5, 11);
    job.a = take(3, 3, 70, 13, 0);
    job.b = take(2, 13, 41, 0, 0);
    job.product = give(3, 3, 70, 41, 0);
    job.mha.query = take(3, 2, 5, 6, 0);
    job.mha.key = take(3, 2, 9, 7, 0);
    job.mha.w_query = take(2, 8, 6, 0, 0);
    job.mha.w_key = take(2, 4, 7, 0, 0);
    job.mha.w_value = take(2, 6, 7, 0, 0);
    job.mha.w_result = take(2, 5, 12, 0, 0);
    job.mha.b_result = take(1, 5, 0, 0, 0);
    job.mha.heads = 4;
    job.mha.heads_kv = 2;
    job.mha.out = give(3, 2, 5, 5, 0);
    attn_desc d = make_desc(2, 4, 2, 7, 300, 9, 5);
    d.bias = take(1, 300, 0, 0, 0);
    d.sink = take(1, 4, 0, 0, 0);
    d.causal = 1;
    job.backward = make_call(&d, FROM_ALL, ~0u);
    memset(&job.backward.d.stats, 0, sizeof job.backward.d.stats);
    d = make_desc(2, 2, 2, 5, 19, 6, 3);
    set_score(&d, ATTN_SCORE_ADDITIVE, 7);
    job.back_additive = make_call(&d, FROM_OUT, ~0u);
    job.d_softmax = take_like(job.softmax);
    job.dx = give_like(job.x);
    job.d_product = take_like(job.product);
    job.da = give_like(job.a);
    job.db = give_like(job.b);
    job.heads.d_out = take_like(job.mha.out);
    job.heads.dquery = give_like(job.mha.query);
    job.heads.dkey = give_like(job.mha.key);
    job.heads.dw_query = give_like(job.mha.w_query);
    job.heads.dw_key = give_like(job.mha.w_key);
    job.heads.dw_value = give_like(job.mha.w_value);
    job.heads.dw_result = give_like(job.mha.w_result);
    job.heads.db_result = give_like(job.mha.b_result);
}

static attn_desc no_options(attn_isa isa) {
    attn_desc o;
    memset(&o, 0, sizeof o);
    o.isa = (int32_t)isa;
    return o;
}

static attn_out packed_copy(const attn_out *o) {
    attn_view v = attn_view_of(*o);
    attn_out copy = *o;
    copy.data = (void *)(uintptr_t)copy_view(&v, LAYOUT_PACKED).data;
    return copy;
}

/* ---- guard pages */
static void run_in_exact_workspace(attn_desc *d, const char *what) {
    ref_result r;
    ref_forward(d, &r);
    for (int n = 0; n < test_isa_count(); n++) {
        size_t bytes = 0;
        d->isa = (int32_t)test_isa(n);
        if (!CHECK_STATUS(attn_workspace_size(d, &bytes, 0), ATTN_OK)) break;
        d->workspace_bytes = bytes;
        d->workspace = n % 2 ? test_guarded_low(bytes) : test_guarded(bytes);
        check_on(d, &r, test_isa(n), what);
    }
    ref_free(&r);
    test_release();
}

/* q, k and v may lie on pages that cannot be written. */
static void forbid_writes(const attn_desc *d) {
    if (d->q.rank) test_read_only((void *)(uintptr_t)d->q.data);
    if (d->k.rank) test_read_only((void *)(uintptr_t)d->k.data);
    if (d->v.rank) test_read_only((void *)(uintptr_t)d->v.data);
}

static void test_sizes(void) {
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 64, 65};
    enum { COUNT = (int)(sizeof sizes / sizeof *sizes) };
    for (int i = 0; i < COUNT; i++)
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
            int64_t sq = sizes[test_int(0, COUNT - 1)], sk = sizes[test_int(0, COUNT - 1)], hkv = test_int(1, 2);
            attn_desc d =
                make_desc(test_int(1, 2), hkv * test_int(1, 2), hkv, sq, sk, sizes[i], sizes[test_int(0, COUNT - 1)]);
            set_score(&d, score, sizes[test_int(0, COUNT - 1)]);
            ask_for(&d, test_int(1, RESULT_ALL), LAYOUT_PACKED);
            if (d.lse.rank) d.causal = 1;
            forbid_writes(&d);
            run_in_exact_workspace(&d, "a size between guard pages");
        }
}

/* More keys than fit in a chunk of any size one would choose, and results with gaps between their elements. */
static void test_long(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        attn_desc d = make_desc(1, 2, 1, test_int(1, 3), test_int(500, 1100), test_int(1, 9), test_int(1, 9));
        set_score(&d, score, test_int(1, 9));
        ask_for(&d, RESULT_ALL, score % 2 ? LAYOUT_GAPS : LAYOUT_MIXED);
        run_in_exact_workspace(&d, "many keys between guard pages");
    }
}

static void test_masks(void) { /* the same for what masks and biases read */
    for (int i = 0; i < 30; i++) {
        int64_t sq = test_int(1, 20), sk = test_int(1, 40);
        attn_desc d = make_desc(2, 2, 2, sq, sk, 5, 6);
        d.mask = make_ints(ATTN_U8, 4, test_int(1, 2), 1, sq, sk, 0, 1);
        d.bias = take(2, sq, sk, 0, 0);
        d.alibi = take(1, 2, 0, 0, 0);
        d.sink = take(1, 2, 0, 0, 0);
        d.key_lengths = make_ints(i % 2 ? ATTN_I32 : ATTN_I64, 2, 2, sq, 0, 0, 0, (int)sk);
        d.query_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, (int)sq);
        d.positions = make_ints(ATTN_I64, 1, 2, 0, 0, 0, -5, (int)sk);
        d.align = ATTN_ALIGN_POSITIONS;
        d.causal = i % 3 == 0;
        d.window = i % 4 == 0;
        d.window_left = test_int(-1, 9);
        d.window_right = test_int(-1, 9);
        if (!d.window) d.window_left = d.window_right = 0;
        d.dropout = i % 5 ? 0 : 0.5f;
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        run_in_exact_workspace(&d, "masks between guard pages");
    }
}

/* ---- the workspace */

/* At any alignment, ending at an unmapped page and beginning after one. Bytes beside it stay as they are. */
static void run_misaligned(const operation *op, attn_isa isa, const attn_out *want) {
    attn_desc o = no_options(isa);
    size_t bytes = 0;
    CHECK_STATUS(op->size(&o, &bytes), ATTN_OK);
    for (size_t off = 0; off < 64; off++) {
        unsigned char *low = (unsigned char *)test_guarded_low(bytes + off),
                      *high = (unsigned char *)test_guarded(bytes + off);
        int clean = 1;
        o.workspace_bytes = bytes;
        for (int upper = 0; upper < 2; upper++) {
            o.workspace = upper ? high : low + off; /* [off][bytes] and [bytes][off] */
            poison(op->result);
            CHECK_STATUS(op->run(&o), ATTN_OK);
            check_same(op->result, want, op->name);
        }
        for (size_t i = 0; i < off; i++) clean &= low[i] == 0xFF && high[bytes + i] == 0xFF;
        CHECKF(clean, "%s: wrote beside a workspace of %lu bytes, %lu off", op->name, (unsigned long)bytes,
               (unsigned long)off);
    }
}

static void test_workspace(void) {
    for (int i = 0; i < OPERATIONS; i++) {
        set_up();
        attn_desc o = no_options(ATTN_ISA_AUTO);
        CHECK_STATUS(operations[i].run(&o), ATTN_OK);
        attn_out want = packed_copy(operations[i].result);
        for (int n = 0; n < test_isa_count(); n++) run_misaligned(&operations[i], test_isa(n), &want);
        test_release();
    }
}

static int still_painted(const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0xFF) return 0;
    return 1;
}

static void test_workspace_too_small(void) {
    for (int i = 0; i < OPERATIONS; i++) {
        const operation *op = &operations[i];
        attn_desc o = no_options(ATTN_ISA_AUTO);
        size_t bytes = 0;
        set_up();
        CHECK_STATUS(op->size(&o, &bytes), ATTN_OK);
        if (!CHECKF(bytes > 2, "%s needs no workspace", op->name)) continue;
        unsigned char *block = (unsigned char *)test_guarded(bytes);
        attn_out untouched = packed_copy(op->result);
        const size_t less[] = {0, 1, bytes / 2, bytes - 1};
        for (int n = 0; n < 4; n++) {
            o.workspace = block;
            o.workspace_bytes = less[n];
            CHECK_STATUS(op->run(&o), ATTN_ERR_WORKSPACE);
            check_same(op->result, &untouched, op->name);
            CHECK(still_painted(block, bytes));
        }
        o.workspace_bytes = bytes + 1000; /* says more than is there: only `bytes` are touched */
        CHECK_STATUS(op->run(&o), ATTN_OK);
        test_release();
    }
}

/* One worker more takes whole lines of the cache: what floats it has lie as those of the first do, and no two workers
   write to one line. */
static void test_whole_lines(void) {
    set_up();
    for (const operation *op = operations; op < operations + OPERATIONS; op++)
        for (int n = 0; n < test_isa_count(); n++) {
            size_t bytes, before = 0;
            for (int32_t workers = 1; workers <= 9; workers++, before = bytes) {
                attn_desc o = no_options(test_isa(n));
                o.parallel.workers = workers;
                if (!CHECK_STATUS(op->size(&o, &bytes), ATTN_OK)) break;
                CHECKF(workers == 1 || (bytes - before) % 64 == 0, "%s: %lu bytes for %d workers, %lu for one less",
                       op->name, (unsigned long)bytes, (int)workers, (unsigned long)before);
            }
        }
}

/* All tasks on one worker. */
static void run_on_worker(void *user, int64_t count, attn_task_fn task, void *arg) {
    for (int64_t i = 0; i < count; i++) task(arg, i, *(const int32_t *)user);
}

/* A worker's own memory lies on lines of the cache that nobody else writes to, and is written by that worker first: of
   the same call, all on the one worker and all on the other, each leaves the other's bytes as they were. */
static void check_own_lines(const operation *op, attn_isa isa) {
    enum { LINE = 64, SHARED = 3 }; /* of a byte: 1 and 2 are the workers that write to it */
    attn_desc o = no_options(isa);
    size_t bytes = 0, own[SHARED + 1] = {0}, mixed = 0;
    int32_t worker = 0;
    o.parallel.run = run_on_worker;
    o.parallel.user = &worker;
    o.parallel.workers = 3;
    if (!CHECK_STATUS(op->size(&o, &bytes), ATTN_OK)) return;
    unsigned char *block = (unsigned char *)test_guarded(bytes), *who = (unsigned char *)test_guarded(bytes);
    memset(who, 0, bytes);
    o.workspace = block;
    o.workspace_bytes = bytes;
    for (worker = 1; worker <= 2; worker++) {
        memset(block, 0xA5, bytes);
        CHECK_STATUS(op->run(&o), ATTN_OK);
        for (size_t i = 0; i < bytes; i++) who[i] |= (unsigned char)(block[i] == 0xA5 ? 0 : worker);
    }
    for (size_t i = 0, seen = 0; i < bytes; i++) {
        if ((uintptr_t)&block[i] % LINE == 0) seen = 0;
        if (!who[i]) continue;
        mixed += (seen && seen != who[i]) || (!own[who[i]] && (uintptr_t)&block[i] % LINE);
        seen = who[i];
        own[seen]++;
    }
    CHECKF(!mixed && own[1] && own[2],
           "%s on %s: %lu bytes of worker 1, %lu of worker 2, %lu not on lines of their own", op->name,
           attn_isa_string(isa), (unsigned long)own[1], (unsigned long)own[2], (unsigned long)mixed);
}
static void test_own_lines(void) {
    for (const operation *op = operations; op < operations + OPERATIONS; op++)
        for (int n = 0; n < test_isa_count(); n++) {
            /* these make several such calls in one place: a line may belong to another worker in the next of them */
            if (op->run == run_mha || op->run == run_mha_backward || op->run == run_bmm_backward) continue;
            set_up();
            check_own_lines(op, test_isa(n));
            test_release();
        }
}

/* ---- what the size depends on */
static size_t bytes_of(const attn_desc *d) {
    size_t bytes = 0;
    CHECK_STATUS(attn_workspace_size(d, &bytes, 0), ATTN_OK);
    return bytes;
}

/* A call without data: sizes alone. */
enum { BATCH, HEADS, GROUP, QUERIES, KEYS, SIZE, SIZE_V, WIDTH, WORKERS, AXES };
static attn_desc shape(int32_t score, const int64_t n[AXES]) {
    attn_desc d = no_options(ATTN_ISA_AUTO);
    d.score = score;
    d.q = attn_view_bhsd(0, n[BATCH], n[HEADS] * n[GROUP], n[QUERIES], n[SIZE]);
    d.k = attn_view_bhsd(0, n[BATCH], n[HEADS], n[KEYS], n[SIZE]);
    d.v = attn_view_bhsd(0, n[BATCH], n[HEADS], n[KEYS], n[SIZE_V]);
    d.out = attn_out_bhsd(0, n[BATCH], n[HEADS] * n[GROUP], n[QUERIES], n[SIZE_V]);
    d.parallel.workers = (int32_t)n[WORKERS];
    if (score == ATTN_SCORE_BILINEAR) d.bilinear = attn_view_f32(0, 2, n[SIZE], n[SIZE], 0, 0);
    if (score == ATTN_SCORE_ADDITIVE) {
        d.w_q = d.w_k = attn_view_f32(0, 2, n[WIDTH], n[SIZE], 0, 0);
        d.w_v = attn_view_f32(0, 1, n[WIDTH], 0, 0, 0);
    }
    if (score == ATTN_SCORE_GIVEN) {
        d.given_scores = attn_view_bhsd(0, n[BATCH], n[HEADS] * n[GROUP], n[QUERIES], n[KEYS]);
        memset(&d.q, 0, sizeof d.q);
        memset(&d.k, 0, sizeof d.k);
    }
    return d;
}

static size_t bytes_of_long(int64_t heads_kv, int64_t queries, int64_t keys, attn_isa isa, int fast) {
    attn_desc d;
    size_t bytes = 0;
    memset(&d, 0, sizeof d);
    d.q = attn_view_bhsd(0, 1, 6, queries, 64);
    d.k = attn_view_bhsd(0, 1, heads_kv, keys, 64);
    d.v = attn_view_bhsd(0, 1, heads_kv, keys, 64);
    d.out = attn_out_bhsd(0, 1, 6, queries, 64);
    d.isa = (int32_t)isa;
    if (fast) d.q.type = d.k.type = d.v.type = ATTN_BF16, d.precision = ATTN_PRECISION_FAST;
    CHECK_STATUS(attn_workspace_size(&d, &bytes, 0), ATTN_OK);
    return bytes;
}
static void test_monotone_long(void) { /* around the sizes from which on keys are cut among tasks */
    static const int64_t keys[] = {3840, 3841, 4096, 9000}, heads_kv[] = {1, 2, 3, 6};
    for (int n = 0; n < 2 * test_isa_count(); n++)
        for (int64_t queries = 1; queries < 12; queries++)
            for (int k = 0; k < 4; k++)
                for (int h = 0; h < 4; h++) {
                    attn_isa isa = test_isa(n / 2);
                    size_t bytes = bytes_of_long(heads_kv[h], queries, keys[k], isa, n % 2);
                    CHECK(k == 3 || bytes <= bytes_of_long(heads_kv[h], queries, keys[k + 1], isa, n % 2));
                    CHECK(h == 3 || bytes <= bytes_of_long(heads_kv[h + 1], queries, keys[k], isa, n % 2));
                    CHECK(bytes <= bytes_of_long(heads_kv[h], queries + 1, keys[k], isa, n % 2));
                }
}

static void put_heads_side_by_side(attn_view *v) {
    v->stride[1] = v->size[3], v->stride[2] = v->size[1] * v->size[3], v->stride[0] = v->size[2] * v->stride[2];
}
static int32_t any_float(void) {
    static const int32_t types[3] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    return types[test_int(0, 2)];
}
static void test_monotone(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int axis = 0; axis < 7 * AXES; axis++)
            for (int n = 0; n < test_isa_count(); n++) {
                const int beside = axis >= AXES; /* heads of keys and values; of any type, and more often */
                int64_t size[AXES];
                size_t before = 0;
                for (int i = 0; i < AXES; i++) size[i] = test_int(1, 5);
                size[KEYS] = beside ? test_int(400, 900) : test_int(1, 600);
                for (int i = SIZE; beside && i <= SIZE_V; i++) size[i] = test_int(1, 200);
                const int32_t types[2] = {any_float(), any_float()};
                int64_t *grows = &size[axis % AXES];
                for (*grows = axis % AXES == WORKERS; *grows < 700; *grows += 1 + *grows / 20) {
                    attn_desc d = shape(score, size);
                    d.isa = (int32_t)test_isa(n);
                    if (beside) put_heads_side_by_side(&d.k), put_heads_side_by_side(&d.v);
                    if (beside && d.k.rank) d.k.type = types[0], d.v.type = types[1];
                    if (axis >= 5 * AXES && d.q.rank) {
                        d.q.type = d.k.type = d.v.type = ATTN_BF16;
                        d.precision = ATTN_PRECISION_FAST;
                    }
                    size_t bytes = bytes_of(&d);
                    if (!CHECKF(bytes >= before, "score %d, axis %d: %lu bytes at %ld, %lu before", (int)score, axis,
                                (unsigned long)bytes, (long)*grows, (unsigned long)before))
                        break;
                    before = bytes;
                }
            }
}

static void test_linear(void) { /* in queries and keys, whatever is asked for */
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        int64_t n[AXES] = {1, 1, 1, 1 << 16, 1 << 16, 8, 8, 8, 1};
        attn_desc d = shape(score, n);
        size_t bytes = bytes_of(&d);
        CHECKF(bytes <= (size_t)(n[QUERIES] + n[KEYS]) * 4 * (8 + 8 + 3 * 8 + 64),
               "score %d: %lu bytes for 2^16 x 2^16", (int)score, (unsigned long)bytes);
        n[QUERIES] *= 2;
        n[KEYS] *= 2;
        d = shape(score, n);
        CHECKF(bytes_of(&d) <= 2 * bytes, "score %d: more than twice for twice the size", (int)score);
    }
}

/* A small call has no room for more rows and keys than it has. */
static void test_small(void) {
    static const int64_t small[AXES] = {1, 1, 1, 1, 16, 16, 16, 8, 1}, large[AXES] = {1, 1, 1, 64, 256, 16, 16, 8, 1};
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc one = shape(ATTN_SCORE_SCALED_DOT, small), many = shape(ATTN_SCORE_SCALED_DOT, large);
        one.isa = many.isa = (int32_t)test_isa(n);
        size_t bytes = bytes_of(&one), most = bytes_of(&many);
        CHECKF(bytes <= most / 4 * 3, "%lu bytes for 1 x 16, %lu for 64 x 256", (unsigned long)bytes,
               (unsigned long)most);
    }
}

/* Neither data, nor the content of lengths, nor the results asked for, change it; a plan says the same. */
static void test_size_alone(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        attn_desc d = make_desc(2, 2, 1, 9, 40, 6, 5), bare;
        attn_plan plan;
        set_score(&d, score, 7);
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        size_t bytes = bytes_of(&d);
        CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
        CHECK(plan.workspace_bytes == bytes);
        bare = d;
        bare.q.data = bare.k.data = bare.v.data = bare.w_q.data = bare.w_k.data = bare.w_v.data = bare.bilinear.data =
            0;
        bare.given_scores.data = 0;
        for (int n = 0; n < RESULT_COUNT; n++) result_of(&bare, n)->data = 0;
        CHECK(bytes_of(&bare) == bytes);
        d.key_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, 0); /* no key at all */
        CHECK(bytes_of(&d) == bytes);
        d.key_lengths.data = 0;
        CHECK(bytes_of(&d) == bytes);
    }
}

/* ---- gradients: the same questions */

static void test_backward_sizes(void) { /* inputs that cannot be written, results and workspace between guard pages */
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 130};
    enum { COUNT = (int)(sizeof sizes / sizeof *sizes) };
    for (int i = 0; i < COUNT; i++)
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
            int64_t hkv = test_int(1, 2);
            attn_desc d = make_desc(test_int(1, 2), hkv * test_int(1, 2), hkv, sizes[test_int(0, COUNT - 1)],
                                    sizes[test_int(0, COUNT - 1)], sizes[i], sizes[test_int(0, COUNT - 1)]);
            set_score(&d, score, sizes[test_int(0, COUNT - 1)]);
            d.causal = test_int(0, 1);
            call c = make_call(&d, test_int(1, FROM_ALL), ~0u);
            ref_grads g;
            ref_upstream up = upstream_of(&c.g);
            const attn_view *inputs[] = {&c.d.q,     &c.d.k,         &c.d.v,    &c.d.given_scores,
                                         &c.g.d_out, &c.g.d_weights, &c.g.d_lse};
            for (size_t n = 0; n < sizeof inputs / sizeof *inputs; n++)
                if (inputs[n]->rank) test_read_only((void *)(uintptr_t)inputs[n]->data);
            test_read_only(c.d.out.data);
            test_read_only(c.d.stats.data);
            if (i % 2) memset(&c.d.stats, 0, sizeof c.d.stats);
            ref_backward(&c.d, &up, &g);
            for (int n = 0; n < test_isa_count(); n++) {
                size_t bytes = 0;
                c.d.isa = (int32_t)test_isa(n);
                if (!CHECK_STATUS(attn_backward_workspace_size(&c.d, &c.g, &bytes, 0), ATTN_OK)) break;
                c.d.workspace_bytes = bytes;
                c.d.workspace = n % 2 ? test_guarded_low(bytes) : test_guarded(bytes);
                if (run_call(&c, "a size between guard pages")) check_grads(&c, &g, "a size between guard pages");
            }
            ref_free_grads(&g);
            test_release();
        }
}

/* A call without data: sizes alone, everything asked for. */
static size_t backward_bytes(int32_t score, const int64_t n[AXES], attn_isa isa, int from, unsigned set, int stats) {
    attn_desc d = shape(score, n);
    attn_grad g;
    size_t bytes = 0;
    attn_error err;
    int64_t h = n[HEADS] * n[GROUP];
    d.isa = (int32_t)isa;
    if (stats) d.stats = attn_out_bhsd(0, n[BATCH], h, n[QUERIES], 2);
    d.bias = attn_view_f32(0, 2, n[QUERIES], n[KEYS], 0, 0);
    d.alibi = d.sink = attn_view_f32(0, 1, h, 0, 0, 0);
    d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    memset(&g, 0, sizeof g);
    if (from & FROM_OUT) g.d_out = attn_view_bhsd(0, n[BATCH], h, n[QUERIES], n[SIZE_V]);
    if (from & FROM_WEIGHTS) g.d_weights = attn_view_bhsd(0, n[BATCH], h, n[QUERIES], n[KEYS]);
    if (from & FROM_LSE) g.d_lse = attn_view_f32(0, 3, n[BATCH], h, n[QUERIES], 0);
    for (int r = 0; r < GRAD_COUNT; r++) {
        attn_view like = ref_grad_like(&d, r);
        if (set >> r & 1 && like.rank)
            *grad_of(&g, r) = attn_out_f32(0, like.rank, like.size[0], like.size[1], like.size[2], like.size[3]);
    }
    if (!CHECKF(attn_backward_workspace_size(&d, &g, &bytes, &err) == ATTN_OK, "score %d: %s %s", (int)score, err.field,
                err.rule))
        return 0;
    return bytes;
}

static void test_backward_monotone(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int axis = 0; axis < AXES; axis++)
            for (int n = 0; n < test_isa_count(); n++) {
                int64_t size[AXES];
                size_t before = 0;
                int from = test_int(1, FROM_ALL), stats = test_int(0, 1);
                unsigned set = test_int(0, 2) ? ~0u : (unsigned)test_bits() | 7u;
                for (int i = 0; i < AXES; i++) size[i] = test_int(1, 5);
                size[KEYS] = test_int(1, 600);
                size[QUERIES] = test_int(1, 300);
                for (size[axis] = axis == WORKERS; size[axis] < 700; size[axis] += 1 + size[axis] / 20) {
                    size_t bytes = backward_bytes(score, size, test_isa(n), from, set, stats);
                    if (!CHECKF(bytes >= before, "score %d, axis %d: %lu bytes at %ld, %lu before", (int)score, axis,
                                (unsigned long)bytes, (long)size[axis], (unsigned long)before))
                        break;
                    before = bytes;
                }
            }
}

static void test_backward_linear(void) { /* in queries and keys, whatever is asked for */
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int from = 1; from <= FROM_ALL; from++) {
            int64_t n[AXES] = {1, 1, 1, 1 << 16, 1 << 16, 8, 8, 8, 1};
            size_t bytes = backward_bytes(score, n, ATTN_ISA_AUTO, from, ~0u, 0), twice;
            CHECKF(bytes <= (size_t)(n[QUERIES] + n[KEYS]) * 4 * (4 * (8 + 8 + 8) + 64),
                   "score %d: %lu bytes for 2^16 x 2^16", (int)score, (unsigned long)bytes);
            n[QUERIES] *= 2;
            n[KEYS] *= 2;
            twice = backward_bytes(score, n, ATTN_ISA_AUTO, from, ~0u, 0);
            CHECKF(twice <= 2 * bytes, "score %d: more than twice for twice the size", (int)score);
        }
}

/* What is asked for is used: of blocks that are full, two thirds of the workspace at least. */
static void test_backward_uses_all(void) {
    attn_desc d = make_desc(1, 1, 1, 256, 256, 64, 64);
    call c = make_call(&d, FROM_OUT, 7); /* dq, dk, dv */
    for (int n = 0; n < test_isa_count(); n++) {
        size_t bytes = 0, unused = 0;
        c.d.isa = (int32_t)test_isa(n);
        CHECK_STATUS(attn_backward_workspace_size(&c.d, &c.g, &bytes, 0), ATTN_OK);
        unsigned char *block = (unsigned char *)test_guarded(bytes);
        memset(block, 0xEE, bytes);
        c.d.workspace = block;
        c.d.workspace_bytes = bytes;
        CHECK_STATUS(attn_backward(&c.d, &c.g, 0), ATTN_OK);
        for (size_t i = 0; i < bytes; i++) unused += block[i] == 0xEE;
        CHECKF(unused <= bytes / 3, "%s: %lu of %lu bytes are not used", attn_isa_string(test_isa(n)),
               (unsigned long)unused, (unsigned long)bytes);
    }
}

/* No batch entry, or no head: nothing is run, so no memory is needed, however the bias's gradient is summed. */
static void test_nothing_to_do(void) {
    for (int axis = 0; axis < 2; axis++)
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
            for (int32_t workers = 1; workers <= 4; workers += 3) {
                attn_desc d = make_desc(axis == 0 ? 0 : 2, axis == 1 ? 0 : 2, axis == 1 ? 0 : 2, 5, 9, 3, 2);
                attn_plan plan;
                set_score(&d, score, 4);
                d.bias = take(1, 9, 0, 0, 0);
                d.parallel.workers = workers;
                CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
                CHECK(plan.workspace_bytes == 0 && plan.tasks[0] == 0);
                call c = make_call(&d, FROM_OUT, 1u << GRAD_Q | 1u << GRAD_K | 1u << GRAD_V | 1u << GRAD_BIAS);
                c.g.accumulate = ATTN_GRAD_BIAS;
                CHECK_STATUS(attn_plan_backward(&c.d, &c.g, &plan, 0), ATTN_OK);
                CHECKF(plan.workspace_bytes == 0 && plan.tasks[0] == 0, "%lu bytes for %ld tasks",
                       (unsigned long)plan.workspace_bytes, (long)plan.tasks[0]);
                test_release();
            }
}

/* ---- allocation hooks */
typedef struct heap {
    int allocated, released, fails_at; /* the fails_at-th request, from 1, gets nothing */
    size_t bytes;
    void *block;
} heap;

static void *allocate(void *user, size_t bytes) {
    heap *h = (heap *)user;
    if (++h->allocated == h->fails_at) return 0;
    h->bytes = bytes;
    return h->block = test_guarded(bytes);
}
static void release(void *user, void *block) {
    heap *h = (heap *)user;
    h->released++;
    CHECK(block == h->block);
}

static void test_allocations(void) {
    for (int i = 0; i < OPERATIONS; i++)
        for (int n = 0; n < test_isa_count(); n++) {
            const operation *op = &operations[i];
            attn_desc o = no_options(test_isa(n));
            heap h = {0, 0, 0, 0, 0};
            size_t bytes = 0;
            set_up();
            attn_out untouched = packed_copy(op->result);
            CHECK_STATUS(op->size(&o, &bytes), ATTN_OK);
            o.allocator.allocate = allocate;
            o.allocator.release = release;
            o.allocator.user = &h;
            CHECK_STATUS(op->run(&o), ATTN_OK);
            int requests = h.allocated;
            CHECKF(requests == 1 && h.released == 1, "%s: %d blocks taken, %d given back", op->name, requests,
                   h.released);
            CHECKF(h.bytes <= bytes, "%s: takes %lu bytes, says %lu", op->name, (unsigned long)h.bytes,
                   (unsigned long)bytes);
            for (int fails = 1; fails <= requests; fails++) {
                poison(op->result);
                heap failing = {0, 0, fails, 0, 0};
                o.allocator.user = &failing;
                CHECK_STATUS(op->run(&o), ATTN_ERR_ALLOC);
                CHECKF(failing.released == fails - 1, "%s: gave back %d of %d blocks", op->name, failing.released,
                       fails - 1);
                check_same(op->result, &untouched, op->name);
            }
            h.allocated = 0; /* with a workspace nothing is taken */
            o.allocator.user = &h;
            o.workspace = test_guarded(bytes);
            o.workspace_bytes = bytes;
            CHECK_STATUS(op->run(&o), ATTN_OK);
            CHECKF(h.allocated == 0, "%s: took memory besides its workspace", op->name);
            test_release();
        }
}

/* What a call that is refused has taken, it has given back, and its result is as it was: refused for what the data is,
   which some see only late. */
static void test_refused(void) {
    for (int kind = 0; kind < 4; kind++) {
        attn_desc o = no_options(ATTN_ISA_AUTO);
        heap h = {0, 0, 0, 0, 0};
        set_up();
        o.allocator.allocate = allocate;
        o.allocator.release = release;
        o.allocator.user = &h;
        if (kind == 0) job.mha.w_value.data = 0;
        if (kind == 1) job.mha.out.data = (void *)(uintptr_t)job.mha.query.data;
        if (kind == 2) o.key_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 99, 99);
        if (kind == 3) o.lse = attn_out_f32(0, 3, 2, 4, 5, 0);
        attn_out mha = packed_copy(&job.mha.out), softmax = packed_copy(&job.softmax);
        CHECK(run_mha(&o) != ATTN_OK);
        check_same(&job.mha.out, &mha, "multi-head attention, refused");
        CHECK(run_softmax(&o) != ATTN_OK || kind < 2);
        if (kind >= 2) check_same(&job.softmax, &softmax, "softmax, refused");
        CHECKF(h.allocated == h.released, "refused: %d blocks taken, %d given back", h.allocated, h.released);
        test_release();
    }
}

/* Masks, dropout and merging take no memory: an allocator that must not be called. */
static void test_no_allocation(void) {
    heap h = {0, 0, 1, 0, 0};
    attn_desc o = no_options(ATTN_ISA_AUTO);
    attn_view x = take(4, 2, 2, 3, 5), lse = take(3, 2, 2, 3, 0);
    uint8_t *bytes = (uint8_t *)test_guarded(2 * 2 * 3 * 5);
    o.allocator.allocate = allocate;
    o.allocator.release = release;
    o.allocator.user = &h;
    o.dropout = 0.5f;
    o.causal = 1;
    o.align = ATTN_ALIGN_TOP_LEFT;
    CHECK_STATUS(attn_mask(attn_out_u8(bytes, 4, 2, 2, 3, 5), &o, 0), ATTN_OK);
    CHECK_STATUS(attn_dropout_mask(attn_out_u8(bytes, 4, 2, 2, 3, 5), &o, 0), ATTN_OK);
    CHECK_STATUS(attn_merge_with(x, lse, x, lse, give(4, 2, 2, 3, 5), give(3, 2, 2, 3, 0), &o, 0), ATTN_OK);
    CHECK_STATUS(attn_convert_with(x, give(4, 2, 2, 3, 5), &o, 0), ATTN_OK);
    CHECK(h.allocated == 0);
}

/* A parameter for each head makes a stream of each, though there is one head of keys. */
static void test_monotone_per_head(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        size_t before = 0;
        for (int64_t heads = 1; heads < 5; heads++) {
            const int64_t size[AXES] = {1, heads, 8, 1, 1000, 16, 40, 1, 4};
            attn_desc d = shape(ATTN_SCORE_BILINEAR, size);
            d.bilinear = attn_view_f32(0, 3, 8 * heads, 16, 16, 0);
            d.isa = (int32_t)test_isa(n);
            size_t bytes = bytes_of(&d);
            CHECKF(bytes >= before, "%s, %d heads: %lu bytes, %lu before", attn_isa_string(test_isa(n)), (int)heads,
                   (unsigned long)bytes, (unsigned long)before);
            before = bytes;
        }
    }
}

/* ---- the stack */
#if defined(_WIN32) || defined(TEST_NO_SIGNALS) || defined(__SANITIZE_ADDRESS__)
static void test_stack(void) {
    CHECK(1);
    test_skip("the stack is not measured in this build");
}
#else
enum { STACK = 512 * 1024, STACK_LIMIT = 16 * 1024, PAINT = 0xC5 };

typedef struct errand {
    const operation *op; /* 0: nothing */
    attn_desc options;
    const attn_plan *plan; /* its tasks instead */
    void *workspace;
    attn_status status;
} errand;

static void *do_errand(void *arg) {
    errand *e = (errand *)arg;
    if (e->op) e->status = e->op->run(&e->options);
    for (int32_t phase = 0; e->plan && phase < e->plan->phases; phase++)
        for (int64_t i = 0; i < e->plan->tasks[phase]; i++) attn_task(e->plan, e->workspace, phase, i, 0);
    return 0;
}

/* Bytes of a painted stack that are another colour afterwards. */
static size_t stack_of(errand *e) {
    unsigned char *stack = (unsigned char *)test_guarded(STACK);
    pthread_attr_t attributes;
    pthread_t thread;
    size_t low = 0;
    memset(stack, PAINT, STACK);
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, STACK) == 0);
    if (!CHECK(pthread_create(&thread, &attributes, do_errand, e) == 0)) return 0;
    pthread_join(thread, 0);
    pthread_attr_destroy(&attributes);
    while (low < STACK && stack[low] == PAINT) low++;
    return STACK - low;
}

static attn_status run_mask(const attn_desc *d) {
    static uint8_t mask[32 * 32];
    return attn_mask(attn_out_u8(mask, 4, 2, 1, 16, 32), d, 0);
}
static attn_status run_dropout_mask(const attn_desc *d) {
    static uint8_t mask[32 * 32];
    return attn_dropout_mask(attn_out_u8(mask, 4, 2, 1, 16, 32), d, 0);
}
/* These need no workspace, and so are no operations. */
static void test_stack_of_masks(size_t empty) {
    static const operation masks[] = {{"mask", 0, run_mask, 0}, {"dropout mask", 0, run_dropout_mask, 0}};
    static const int64_t starts[2] = {0, 20};
    for (int i = 0; i < 4; i++) {
        errand e;
        memset(&e, 0, sizeof e);
        e.op = &masks[i % 2];
        e.options.causal = 1, e.options.align = ATTN_ALIGN_TOP_LEFT;
        if (i == 2) e.options.key_starts = attn_view_i64(starts, 1, 2, 0, 0, 0);
        size_t used = stack_of(&e) - empty;
        CHECK_STATUS(e.status, ATTN_OK);
        CHECKF(used <= STACK_LIMIT, "%s: %lu bytes of stack", e.op->name, (unsigned long)used);
    }
}

/* Products of bf16, where there are such: of bf16 and of int8; and gradients. */
static void test_stack_of_fast(attn_isa isa, const errand *nothing, size_t empty) {
    for (int what = 0; what < 3; what++) {
        attn_plan plan;
        errand e = *nothing;
        attn_desc d = make_desc(1, 2, 1, 70, 300, 69, 67);
        attn_grad g;
        memset(&g, 0, sizeof g);
        ask_for(&d, RESULT_OUT | RESULT_STATS, LAYOUT_GAPS);
        g.d_out = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, 70, 67);
        g.d_out = retyped(&g.d_out, ATTN_BF16, LAYOUT_GAPS);
        g.dq = make_out(LAYOUT_GAPS, 4, 1, 2, 70, 69);
        g.dk = make_out(LAYOUT_GAPS, 4, 1, 1, 300, 69), g.dv = make_out(LAYOUT_GAPS, 4, 1, 1, 300, 67);
        d.q = retyped(&d.q, ATTN_BF16, LAYOUT_GAPS);
        d.k = what == 1 ? coded(&d.k, &d.k_scale, LAYOUT_GAPS) : retyped(&d.k, ATTN_BF16, LAYOUT_GAPS);
        d.v = what == 1 ? coded(&d.v, &d.v_scale, LAYOUT_GAPS) : retyped(&d.v, ATTN_BF16, LAYOUT_GAPS);
        d.precision = ATTN_PRECISION_FAST;
        if (what == 1) d.mask = make_ints(ATTN_U8, 2, 70, 300, 0, 0, 0, 1);
        d.isa = (int32_t)isa;
        CHECK_STATUS(what == 2 ? attn_plan_backward(&d, &g, &plan, 0) : attn_plan_forward(&d, &plan, 0), ATTN_OK);
        e.plan = &plan;
        e.workspace = test_guarded(plan.workspace_bytes);
        size_t used = stack_of(&e) - empty;
        CHECKF(used <= STACK_LIMIT, "fast tasks %d on %s: %lu bytes of stack", what, attn_isa_string(isa),
               (unsigned long)used);
        if (test_verbose())
            printf("    fast %-3d %-6s %6lu bytes of stack\n", what, attn_isa_string(isa), (unsigned long)used);
        test_release();
    }
}

/* Kernels that stand in for instructions this CPU lacks, as `make golden` has them, say nothing about the stack. */
static int is_emulated(attn_isa isa) {
#if defined(__GNUC__) && defined(__x86_64__)
    return isa == ATTN_ISA_AVX512 && !__builtin_cpu_supports("avx512f");
#else
    (void)isa;
    return 0;
#endif
}

static void test_stack(void) {
    CHECK(1);
    for (int n = 0; n < test_isa_count(); n++) {
        if (is_emulated(test_isa(n))) {
            test_skip("the stack is not measured where instructions are emulated");
            continue;
        }
        errand nothing;
        memset(&nothing, 0, sizeof nothing);
        size_t empty = stack_of(&nothing);
        if (n == 0) test_stack_of_masks(empty);
        test_stack_of_fast(test_isa(n), &nothing, empty);
        for (int i = 0; i < OPERATIONS; i++) {
            errand e = nothing;
            set_up();
            e.op = &operations[i];
            e.options = no_options(test_isa(n));
            size_t used = stack_of(&e) - empty;
            CHECK_STATUS(e.status, ATTN_OK);
            CHECKF(used <= STACK_LIMIT, "%s on %s: %lu bytes of stack", e.op->name, attn_isa_string(test_isa(n)),
                   (unsigned long)used);
            if (test_verbose())
                printf("    %-17s %-6s %6lu bytes of stack\n", e.op->name, attn_isa_string(test_isa(n)),
                       (unsigned long)used);
            test_release();
        }
        for (int32_t what = 0; what < 3 * ATTN_SCORE_COUNT; what++) { /* floats; 16 bits; these, of one query */
            int32_t score = what % ATTN_SCORE_COUNT, queries = what < 2 * ATTN_SCORE_COUNT ? 20 : 1;
            attn_plan plan;
            errand e = nothing;
            attn_desc d = make_desc(1, 2, 1, queries, 300, 33, 17);
            set_score(&d, score, 19);
            attn_view *views[] = {&d.q, &d.k, &d.v, &d.given_scores, &d.w_q, &d.w_k, &d.bilinear};
            for (int v = 0; what >= ATTN_SCORE_COUNT && v < 7; v++) {
                const int64_t *size = views[v]->size;
                if (!views[v]->rank) continue;
                *views[v] = make_view(ATTN_F16, LAYOUT_PACKED, views[v]->rank, size[0], size[1], size[2], size[3]);
                fill(views[v], draw_normal, 0, 1);
            }
            ask_for(&d, RESULT_ALL, LAYOUT_GAPS);
            d.isa = (int32_t)test_isa(n);
            d.dropout = 0.25f;
            d.softcap = 3;
            CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
            e.plan = &plan;
            e.workspace = test_guarded(plan.workspace_bytes);
            size_t used = stack_of(&e) - empty;
            CHECKF(used <= STACK_LIMIT, "tasks of score %d on %s: %lu bytes of stack", (int)what,
                   attn_isa_string(test_isa(n)), (unsigned long)used);
            if (test_verbose())
                printf("    task %-3d %-6s %6lu bytes of stack\n", (int)what, attn_isa_string(test_isa(n)),
                       (unsigned long)used);
            test_release();
        }
    }
}
#endif

const test_case suite_memory[] = {{"memory.sizes", test_sizes},
                                  {"memory.long", test_long},
                                  {"memory.masks", test_masks},
                                  {"memory.workspace", test_workspace},
                                  {"memory.workspace_too_small", test_workspace_too_small},
                                  {"memory.whole_lines", test_whole_lines},
                                  {"memory.own_lines", test_own_lines},
                                  {"memory.monotone", test_monotone},
                                  {"memory.small", test_small},
                                  {"memory.monotone_long", test_monotone_long},
                                  {"memory.monotone_per_head", test_monotone_per_head},
                                  {"memory.linear", test_linear},
                                  {"memory.size_alone", test_size_alone},
                                  {"memory.backward_sizes", test_backward_sizes},
                                  {"memory.backward_monotone", test_backward_monotone},
                                  {"memory.backward_linear", test_backward_linear},
                                  {"memory.backward_uses_all", test_backward_uses_all},
                                  {"memory.nothing_to_do", test_nothing_to_do},
                                  {"memory.allocations", test_allocations},
                                  {"memory.refused", test_refused},
                                  {"memory.no_allocation", test_no_allocation},
                                  {"memory.stack", test_stack},
                                  {0, 0}};
