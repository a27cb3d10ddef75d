/* fuzz.c - calls of every function with descriptors drawn at random: most are legal, many have one thing wrong.

       build/fuzz/fuzz.gcc --seconds 60 [--seed N] [--only FUNCTION]   runs N, N+1, ... of a few milliseconds each
       build/fuzz/fuzz.gcc --once N                                    run N again, as a finding names it, in words

   A run is a finding unless
   - a legal call is accepted and gives the results of the reference in double precision, within the bounds that the
     tests hold, in every element and nowhere else; again with the same bits on another instruction set, with another
     number of workers, tasks in another order, another workspace and other strides;
   - the same call with arrays of 16 bits, or keys and values of 8, gives the bits of the call with floats of the same
     values, which is the one that is held against the reference, each result rounded once;
   - a call with something wrong is refused with a status, a field and a rule, and no byte has changed;
   - a call whose keys come in parts gives the bits of the one with all of them, and an entry of a batch with starts or
     pages those of a call of its own on arrays that hold it alone;
   - the workspace is asked for with success when the call has success, and that much is enough, at any alignment;
   - it takes less than ten seconds of the processor (--limit), whatever the sizes; sizes beyond all memory come with
     others of 0.
   Every array lies in a heap block of exactly its size, so that the address sanitizer sees each byte beyond it.

   Under libFuzzer the same runs are made from its bytes: compile with -DFUZZ_LIBFUZZER -fsanitize=fuzzer,address. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* fork, mmap and setitimer under -std=c99 */
#endif
#include "page.h"

#include "descriptors.h"
#include "elementary.h"
#include "grads.h"
#include "parts.h"
#include "sums.h"
#include <stdarg.h>
#include <time.h>

/* ---- what a version asks for. 3: `align` has no default where it matters, what cannot count is an error, structures
   begin with their size. */
#ifndef FUZZ_RULES
#define FUZZ_RULES (ATTN_VERSION_NUMBER >= 300 ? 3 : 2)
#endif

/* ---- random numbers: the bytes of the fuzzer as long as there are any, then splitmix64 */
static struct {
    const unsigned char *at, *end;
    uint64_t state;
} source;

uint64_t test_bits(void) {
    uint64_t z = source.state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
double test_uniform(void) { return (double)(test_bits() >> 11) * 0x1p-53; }
double test_normal(void) {
    double r = sqrt(-2 * log(1 - test_uniform()));
    return r * cos(6.283185307179586 * test_uniform());
}
int test_int(int lo, int hi) {
    uint64_t span = (uint64_t)((int64_t)hi - lo) + 1, x = 0;
    if (source.at == source.end) return lo + (int)(test_bits() % span);
    for (uint64_t reach = 1; reach < span && source.at < source.end; reach <<= 8) x = x << 8 | *source.at++;
    return lo + (int)(x % span);
}
static int one_in(int n) { return test_int(0, n - 1) == 0; }
#define PICK(list) ((list)[test_int(0, (int)(sizeof(list) / sizeof *(list)) - 1)])

/* ---- findings */
static struct {
    const char *name; /* of the function that is called */
    unsigned long long seed;
    int failures; /* of this run */
    int entry;    /* its number */
} now;

void test_count_call(void) {} /* the fuzzer counts by itself */
int test_check(int ok, const char *file, int line, const char *format, ...) {
    if (ok) return 1;
    if (now.failures++ == 0) fprintf(stderr, "FINDING %s (--once %llu)\n", now.name, now.seed);
    if (now.failures > 6) return 0;
    fprintf(stderr, "    %s:%d: ", file, line);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    return 0;
}
int test_close(double got, double want, double tolerance, const char *file, int line, const char *text) {
    int same = (isnan(got) && isnan(want)) || (isinf(want) && got == want);
    return test_check(same || fabs(got - want) <= tolerance, file, line, "%s: got %.9g, want %.9g, off by %.3g > %.3g",
                      text, got, want, fabs(got - want), tolerance);
}
int test_status(attn_status got, attn_status want, const char *file, int line, const char *text) {
    return test_check(got == want, file, line, "%s: status \"%s\", want \"%s\"", text, attn_status_string(got),
                      attn_status_string(want));
}
int test_quiet(void) { return now.failures > 1; }
int test_verbose(void) { return 0; }
unsigned long long test_seed(void) { return now.seed; }

static attn_isa isas[ATTN_ISA_COUNT];
static int isa_count;
int test_isa_count(void) { return isa_count; }
attn_isa test_isa(int i) { return isas[i]; }
static void find_isas(void) {
    float x = 0;
    for (int i = ATTN_ISA_AUTO; i < ATTN_ISA_COUNT && isa_count < ATTN_ISA_COUNT; i++)
        if (attn_elementary(0, &x, &x, 1, (attn_isa)i) == ATTN_OK) isas[isa_count++] = (attn_isa)i;
}

/* ---- memory: blocks of exactly the size asked for, filled with 0xFF; what they held before a call */
typedef struct memory {
    unsigned char *base, *data, *copy;
    size_t bytes;
    int scratch, written; /* scratch: a workspace, whose contents mean nothing; written: of a result */
} memory;
enum { MOST_BLOCKS = 2048 };
static memory blocks[MOST_BLOCKS];
static int block_count;

static memory *take_block(size_t bytes, size_t alignment) { /* `alignment` bytes after a multiple of 16 */
    size_t before = bytes ? alignment : 16;                 /* of a block without a byte none may be touched */
    memory *m = &blocks[block_count++];
    if (block_count == MOST_BLOCKS) abort();
    memset(m, 0, sizeof *m);
    m->base = (unsigned char *)malloc(before + bytes);
    if (!m->base) abort();
    memset(m->base, 0xFF, before + bytes);
    m->data = m->base + before;
    m->bytes = bytes;
    return m;
}
static void *take_scratch(size_t bytes) { /* at any alignment */
    memory *m = take_block(bytes, (size_t)test_int(0, 63));
    m->scratch = 1;
    return m->data;
}
void *test_guarded(size_t bytes) { return take_block(bytes, 0)->data; }
void *test_guarded_low(size_t bytes) { return take_block(bytes, 0)->data; }
void *test_guarded_span(size_t before, size_t bytes, size_t after, int low) { /* for tests whose memory is not mapped */
    (void)before, (void)bytes, (void)after, (void)low;
    abort();
}
void test_release(void) {
    while (block_count > 0) {
        memory *m = &blocks[--block_count];
        free(m->base);
        free(m->copy);
    }
}
static void remember_blocks(void) {
    for (memory *m = blocks; m < blocks + block_count; m++) {
        free(m->copy);
        m->copy = (unsigned char *)malloc(m->bytes + 1);
        if (!m->copy) abort();
        memcpy(m->copy, m->data, m->bytes);
    }
}
static int blocks_unchanged(int results_too) {
    for (memory *m = blocks; m < blocks + block_count; m++)
        if (!m->scratch && m->copy && (results_too || !m->written) && memcmp(m->copy, m->data, m->bytes)) return 0;
    return 1;
}
static memory *block_of(const void *at) {
    for (memory *m = blocks; m < blocks + block_count; m++)
        if ((uintptr_t)at - (uintptr_t)m->data < m->bytes) return m;
    return 0;
}

/* An allocator that counts, and has an end. */
static int allocations, releases;
static void *hand_out(void *user, size_t bytes) {
    (void)user;
    void *p = bytes > (size_t)1 << 26 ? 0 : malloc(bytes);
    allocations += p != 0;
    return p;
}
static void take_back(void *user, void *p) {
    (void)user;
    releases++;
    free(p);
}

/* ---- a call, and the views that count in it */
typedef struct job job;
typedef struct entry {
    const char *name;
    void (*build)(job *j);
    void (*build_far)(job *j); /* sizes beyond all memory, without elements */
    void (*slots)(job *j);
    attn_status (*run)(job *j, attn_error *err);
    attn_status (*size)(job *j, size_t *bytes, attn_error *err); /* 0: needs no workspace */
    void (*check)(job *j);
    void (*alone)(job *j); /* instead of all these */
    int options;           /* OPTIONS_x of attn_desc that count */
} entry;
enum { OPTIONS_SCORE = 1, OPTIONS_MASK = 2, OPTIONS_WEIGHTS = 4, OPTIONS_HOOKS = 8, OPTIONS_ALL = 15 };

struct job {
    const entry *e;
    call c; /* c.d: the descriptor or the options, c.g: gradients */
    attn_mha_desc h;
    attn_mha_grad hg;
    attn_view v[4]; /* what a piece takes, */
    attn_out o[2];  /* and gives */
    uint32_t adds;
    attn_view kept; /* x of a softmax in place */
    int no_reference, no_repeat, unread_qk, in_place, typed, no_twin;
    int saves; /* attn_mha leaves for its gradients what they need */
};

typedef struct slot {
    void *at; /* attn_view or attn_out, which have one layout */
    const char *name;
    int output;
} slot;
static slot slots[80];
static int slot_count;

static attn_view get_view(const slot *s) {
    attn_view v;
    memcpy(&v, s->at, sizeof v);
    return v;
}
static void set_view(const slot *s, attn_view v) { memcpy(s->at, &v, sizeof v); }
static attn_out as_out(attn_view v) {
    attn_out o;
    memcpy(&o, &v, sizeof o);
    return o;
}
static void add_slot(void *at, const char *name, int output) {
    slot s = {at, name, output};
    slots[slot_count++] = s;
}
#define INPUT(structure, field) add_slot(&(structure)->field, #field, 0)
#define OUTPUT(structure, field) add_slot(&(structure)->field, #field, 1)

static void add_masks(attn_desc *d) {
    INPUT(d, bias), INPUT(d, bias_index), INPUT(d, mask), INPUT(d, key_lengths), INPUT(d, query_lengths),
        INPUT(d, positions);
    INPUT(d, query_starts), INPUT(d, key_starts);
}
static void add_options(attn_desc *d, int score) {
    if (score) {
        INPUT(d, sigma_per_head), INPUT(d, bilinear), INPUT(d, w_q), INPUT(d, w_k), INPUT(d, w_v);
        INPUT(d, hidden_bias), INPUT(d, given_scores);
    }
    INPUT(d, alibi), INPUT(d, sink);
    add_masks(d);
}

/* How many elements a view has, at most 2^62. */
static int64_t elements_of(const attn_view *v) {
    int64_t n = 1;
    for (int axis = 0; axis < v->rank; axis++)
        if (v->size[axis] <= 0) return 0;
    for (int axis = 0; axis < v->rank; axis++)
        n = v->size[axis] > ((int64_t)1 << 62) / n ? (int64_t)1 << 62 : n * v->size[axis];
    return v->rank > 0 ? n : 0;
}
static int is_there(const slot *s) {
    attn_view v = get_view(s);
    return v.rank >= 1 && v.rank <= 4 && elements_of(&v) > 0;
}

/* ---- legal calls */
static int64_t draw_size(int usual) {
    static const int known[] = {1, 2, 8, 16, 17, 32, 33, 64, 65, 128};
    int kind = test_int(0, 15);
    return kind == 0 ? 0 : kind == 1 ? PICK(known) : kind == 2 ? test_int(1, 4 * usual) : test_int(1, usual);
}
static shape draw_shape_small(void) {
    static const int heads[][2] = {{1, 1}, {1, 1}, {2, 2}, {4, 2}, {3, 1}, {6, 3}, {0, 0}};
    int pair = test_int(0, one_in(4) ? 6 : 5);
    shape s = {one_in(16) ? 0 : test_int(1, 2),
               heads[pair][0],
               heads[pair][1],
               draw_size(12),
               draw_size(40),
               draw_size(20),
               draw_size(20)};
    return s;
}
static void draw_run(attn_desc *d) {
    static int32_t workers;
    d->isa = (int32_t)(one_in(6) ? isas[test_int(0, isa_count - 1)] : attn_best_isa());
    d->parallel.workers = one_in(2) ? 0 : test_int(1, 9);
    workers = d->parallel.workers ? d->parallel.workers : 1;
    d->parallel.run = one_in(2) ? run_shuffled : 0;
    d->parallel.user = &workers;
}
/* Options, or none, of functions that use `parallel` alone. */
static const attn_desc *draw_spare(attn_desc *o) {
    memset(o, 0, sizeof *o);
    draw_run(o);
    return one_in(3) ? 0 : o;
}
static attn_desc draw_call(int score, shape s) { /* score -1: any */
    static const int32_t aligns[] = {ATTN_ALIGN_TOP_LEFT, ATTN_ALIGN_BOTTOM_RIGHT, ATTN_ALIGN_POSITIONS,
                                     ATTN_ALIGN_POSITIONS};
    attn_desc d;
    int f[FACTOR_COUNT];
    for (int n = 0; n < FACTOR_COUNT; n++) f[n] = n > F_LAYOUT_OUT && one_in(2) ? 0 : test_int(0, levels[n] - 1);
    if (score >= 0) f[F_SCORE] = score;
    if (s.h == 0 && f[F_SINK] == 2) f[F_SINK] = 1;
    if (s.d == 0) f[F_PER_HEAD] = 0; /* there is no width to go with it */
    build_shaped(&d, f, s);
    d.align = aligns[f[F_ALIGN]];
    if (!d.out.rank && d.score != ATTN_SCORE_GIVEN && one_in(3)) memset(&d.v, 0, sizeof d.v);
    if (!d.weights.rank) d.weights_after_dropout = 0;
    draw_run(&d);
    return d;
}

static attn_desc draw_piece(int score, shape s) {
    for_piece = 1;
    attn_desc d = draw_call(score, s);
    for_piece = 0;
    return d;
}
static attn_desc draw_with_gradients(int score, shape s) {
    for_gradients = 1;
    attn_desc d = draw_call(score, s);
    for_gradients = 0;
    return d;
}

/* What no part of the keys can give is left out. */
static void for_part(attn_desc *d) {
    if (d->empty == ATTN_EMPTY_UNIFORM) d->empty = ATTN_EMPTY_ZERO;
    if (d->align == ATTN_ALIGN_BOTTOM_RIGHT) d->align = ATTN_ALIGN_TOP_LEFT;
    d->weights_after_dropout = 0;
    for (int n = 0; n < RESULT_COUNT; n++)
        if (n >= 2 && n <= 5) memset(result_of(d, n), 0, sizeof(attn_out));
    if (!d->out.rank && !d->lse.rank && !d->stats.rank) ask_for(d, RESULT_LSE, LAYOUT_MIXED);
}
/* Makes a part of the call: not its first keys, its last, or neither. The reference knows whole calls alone; parts are
   held against those by run_in_parts. */
static void draw_part(job *j) {
    attn_desc *d = &j->c.d;
    ref_result r;
    for_part(d);
    j->no_reference = 1;
    ref_sizes(d, &r);
    d->key_origin = ATTN_PART_KEYS * test_int(0, 5);
    if (one_in(2)) {
        attn_view carry = make_filled(LAYOUT_MIXED, 1, 4, r.rows_b, r.h, r.sq, r.dv + 2),
                  sums = attn_view_slice(carry, 3, r.dv + 1, 1);
        fill(&sums, draw_int, 1, 9);
        d->carry_in = carry;
    }
    if (r.has_entries || r.sk % ATTN_PART_KEYS == 0) d->carry_out = make_carry(d);
}
static void build_forward(job *j) {
    shape s = draw_shape_small();
    int part = one_in(5);
    if (part && one_in(2)) s.sk = ATTN_PART_KEYS * test_int(1, 2);
    j->c.d = draw_call(-1, s);
    if (part) draw_part(j);
}
static void slots_of_call(attn_desc *d) {
    INPUT(d, q), INPUT(d, k), INPUT(d, v), INPUT(d, page_table);
    add_options(d, 1);
}
static void slots_forward(job *j) {
    attn_desc *d = &j->c.d;
    slots_of_call(d);
    INPUT(d, k_scale), INPUT(d, v_scale);
    OUTPUT(d, out), OUTPUT(d, lse), OUTPUT(d, stats), OUTPUT(d, weights);
    OUTPUT(d, scores), OUTPUT(d, scores_softcap), OUTPUT(d, scores_masked);
    INPUT(d, carry_in), OUTPUT(d, carry_out);
}
static attn_status run_forward(job *j, attn_error *err) { return attn_forward(&j->c.d, err); }
static attn_status size_forward(job *j, size_t *bytes, attn_error *err) {
    return attn_workspace_size(&j->c.d, bytes, err);
}
static void check_against(attn_desc *d) {
    ref_result r;
    ref_sizes(d, &r);
    if (r.b == 0 || r.h == 0 || r.sq == 0) return; /* no row; what is left may have any size */
    ref_forward(d, &r);
    ref_check(d, &r, now.name);
    ref_free(&r);
}
static void check_forward(job *j) { check_against(&j->c.d); }

/* Plan and tasks. Without an element in any result there is not much to do. */
static int any_result(void) {
    for (int n = 0; n < slot_count; n++)
        if (slots[n].output && is_there(&slots[n])) return 1;
    return 0;
}
static int32_t workers_of(const attn_desc *d) { return d->parallel.workers ? d->parallel.workers : 1; }
static attn_status run_tasks(attn_plan *plan, int32_t workers, size_t given, void *workspace) {
    int64_t all = 0;
    CHECKF(plan->phases >= 0 && plan->phases <= ATTN_MAX_PHASES, "%d phases", plan->phases);
    for (int32_t phase = 0; phase < plan->phases; phase++) {
        CHECKF(plan->tasks[phase] >= 0, "%ld tasks", (long)plan->tasks[phase]);
        if (all < (int64_t)1 << 40) all += plan->tasks[phase];
    }
    if (!CHECKF(any_result() || all < 1 << 20, "a plan of %ld tasks for nothing", (long)all)) return ATTN_OK;
    if (workspace) CHECK(given == plan->workspace_bytes);
    else workspace = take_scratch(plan->workspace_bytes);
    for (int32_t phase = 0; phase < plan->phases; phase++) {
        int64_t *order = random_order(plan->tasks[phase]);
        for (int64_t i = 0; i < plan->tasks[phase]; i++)
            attn_task(plan, workspace, phase, order[i], (int32_t)test_int(0, workers - 1));
        free(order);
    }
    return ATTN_OK;
}
static attn_status no_memory(attn_error *err) { /* as attn_forward would say */
    attn_error none;
    memset(&none, 0, sizeof none);
    none.status = ATTN_ERR_ALLOC;
    none.field = "workspace";
    none.rule = "could not be allocated";
    if (err) *err = none;
    return ATTN_ERR_ALLOC;
}
static attn_status run_plan_forward(job *j, attn_error *err) {
    attn_plan plan, copy;
    attn_status st = attn_plan_forward(&j->c.d, &plan, err);
    if (st != ATTN_OK || plan.workspace_bytes > (size_t)1 << 26) return st == ATTN_OK ? no_memory(err) : st;
    memcpy(&copy, &plan, sizeof copy);
    memset(&plan, 0xFF, sizeof plan);
    return run_tasks(&copy, workers_of(&j->c.d), j->c.d.workspace_bytes, j->c.d.workspace);
}

/* ---- gradients */
static void build_backward(job *j) {
    attn_desc d = draw_with_gradients(-1, draw_shape_small());
    static const layout layouts[] = {LAYOUT_PACKED, LAYOUT_BSHD, LAYOUT_GAPS, LAYOUT_MIXED};
    unsigned all;
    memset(&j->c, 0, sizeof j->c);
    if (!d.v.rank) d = draw_with_gradients(ATTN_SCORE_DOT, draw_shape_small());
    j->c.d = d;
    ask_for(&j->c.d, RESULT_OUT | RESULT_STATS, LAYOUT_PACKED);
    if (!j->c.d.v.rank) memset(&j->c.d.out, 0, sizeof j->c.d.out);
    j->c.d.weights_after_dropout = 0;
    run_desc(&j->c.d, "the forward");
    j->c.d.weights_after_dropout = one_in(2);
    draw_upstream(&j->c.g, &j->c.d, j->c.d.v.rank ? test_int(1, FROM_ALL) : FROM_LSE, PICK(layouts));
    all = all_grads(&j->c.d);
    if (!j->c.g.d_out.rank) all &= ~(1u << GRAD_V) | (j->c.d.v.rank ? ~0u : 0);
    unsigned some = one_in(2) ? all : all & (unsigned)test_bits(), added = one_in(3) ? (unsigned)test_bits() : 0;
    if (!some) some = all;
    ask_grads(&j->c, some, added & ATTN_GRAD_ALL, PICK(layouts));
    prepare_grads(&j->c);
    if (one_in(3)) memset(&j->c.d.stats, 0, sizeof j->c.d.stats);
}
static void slots_backward(job *j) {
    attn_desc *d = &j->c.d;
    attn_grad *g = &j->c.g;
    slots_of_call(d);
    INPUT(d, out), INPUT(d, stats), INPUT(g, d_out), INPUT(g, d_weights), INPUT(g, d_lse);
    for (int n = 0; n < GRAD_COUNT; n++) add_slot(grad_of(g, n), ref_grad_names[n], 1);
}
static attn_status run_backward(job *j, attn_error *err) { return attn_backward(&j->c.d, &j->c.g, err); }
static attn_status size_backward(job *j, size_t *bytes, attn_error *err) {
    return attn_backward_workspace_size(&j->c.d, &j->c.g, bytes, err);
}
static attn_status run_plan_backward(job *j, attn_error *err) {
    attn_plan plan;
    attn_status st = attn_plan_backward(&j->c.d, &j->c.g, &plan, err);
    if (st != ATTN_OK || plan.workspace_bytes > (size_t)1 << 26) return st == ATTN_OK ? no_memory(err) : st;
    return run_tasks(&plan, workers_of(&j->c.d), j->c.d.workspace_bytes, j->c.d.workspace);
}
static void check_backward(job *j) {
    ref_grads g;
    ref_upstream up = upstream_of(&j->c.g);
    ref_backward(&j->c.d, &up, &g);
    check_grads(&j->c, &g, now.name);
    ref_free_grads(&g);
}

/* ---- sums by key: j->c.g holds where they go, and of how many queries */
static void build_key_sums(job *j) {
    static const layout layouts[] = {LAYOUT_PACKED, LAYOUT_BSHD, LAYOUT_GAPS, LAYOUT_MIXED};
    attn_desc *d = &j->c.d;
    ref_result r;
    memset(&j->c, 0, sizeof j->c);
    *d = draw_with_gradients(-1, draw_shape_small());
    ask_for(d, one_in(2) ? RESULT_STATS : 0, LAYOUT_PACKED);
    attn_desc forward = *d;
    forward.weights_after_dropout = 0;
    if (d->stats.rank) run_desc(&forward, "the forward");
    if (d->k.rank && one_in(2)) memset(&d->v, 0, sizeof d->v);
    ref_sizes(d, &r);
    j->c.g.key_sums = make_out(PICK(layouts), 3, r.packed_keys ? 1 : r.b, r.h, r.sk, 0);
    if (one_in(2)) j->c.g.last_queries = test_int(1, (int)r.sq + 1);
    poison(&j->c.g.key_sums);
}
static void slots_key_sums(job *j) {
    attn_desc *d = &j->c.d;
    attn_grad *g = &j->c.g;
    slots_of_call(d);
    INPUT(d, stats), OUTPUT(g, key_sums);
}
static attn_status run_key_sums(job *j, attn_error *err) {
    return attn_key_sums(&j->c.d, j->c.g.last_queries, j->c.g.key_sums, err);
}
static attn_status size_key_sums(job *j, size_t *bytes, attn_error *err) {
    return attn_key_sums_workspace_size(&j->c.d, j->c.g.last_queries, j->c.g.key_sums, bytes, err);
}
static void check_key_sums(job *j) {
    sums_case s = {j->c.d, j->c.g.key_sums, j->c.g.last_queries, {0, {0}, {0}, 0, 0}};
    ref_result r;
    ref_sizes(&s.d, &r);
    if (r.b == 0 || r.h == 0 || r.sq == 0) return;
    ref_forward(&s.d, &r);
    check_reference(&s, &r, now.name);
    ref_free(&r);
}

/* ---- masked softmax: x of rank 4, or without axes that have size 1 */
static attn_view without_axes(attn_view v, int rank) { /* [B,1,Sq,Sk] -> [B,Sq,Sk], ... */
    if (v.rank != 4 || rank == 4) return v;
    for (int axis = rank == 3 ? 1 : 0; axis < rank; axis++) {
        v.size[axis] = v.size[axis + 4 - rank];
        v.stride[axis] = v.stride[axis + 4 - rank];
    }
    v.rank = rank;
    return v;
}
static attn_view with_axes(attn_view v) {
    attn_view r = v;
    if (v.rank < 1 || v.rank > 3) return v;
    r.rank = 4;
    for (int axis = 0; axis < 4; axis++) {
        int from = v.rank == 3 ? axis - (axis > 0) : axis - (4 - v.rank),
            absent = from < 0 || (v.rank == 3 && axis == 1);
        r.size[axis] = absent ? 1 : v.size[from];
        r.stride[axis] = absent ? 0 : v.stride[from];
    }
    return r;
}
static shape shape_of_rank(int rank) {
    shape s = draw_shape_small();
    if (rank < 4) s.h = s.hkv = 1;
    if (rank < 3) s.b = 1;
    if (rank < 2) s.sq = 1;
    return s;
}
static void build_softmax_of(job *j, int rank) {
    attn_desc d = draw_piece(ATTN_SCORE_GIVEN, shape_of_rank(rank));
    ask_for(&d, RESULT_WEIGHTS | (one_in(2) ? RESULT_LSE : 0) | (one_in(4) ? RESULT_STATS : 0), LAYOUT_MIXED);
    j->v[0] = without_axes(d.given_scores, rank);
    j->o[0] = as_out(without_axes(attn_view_of(d.weights), rank));
    if (rank == 3 && one_in(2)) {
        attn_view *pairs = ref_bias_of_pairs(&d);
        d.mask = without_axes(d.mask, 3), *pairs = without_axes(*pairs, 3);
    }
    memset(&d.v, 0, sizeof d.v);
    memset(&d.given_scores, 0, sizeof d.v);
    if (FUZZ_RULES < 3 || one_in(2)) memset(&d.weights, 0, sizeof d.v);
    if (d.dropout > 0) d.weights_after_dropout = 1;
    j->c.d = d;
}
static void build_softmax(job *j) {
    build_softmax_of(j, test_int(1, 4));
    j->kept = j->v[0];
    if (!one_in(3)) return;
    j->in_place = j->no_repeat = 1; /* out is x itself */
    j->kept = copy_view(&j->v[0], LAYOUT_PACKED);
    attn_view own = copy_view(&j->v[0], LAYOUT_PACKED);
    j->v[0] = own;
    j->o[0] = as_out(own);
}
static void slots_softmax(job *j) {
    attn_desc *d = &j->c.d;
    add_slot(&j->v[0], "x", 0);
    add_slot(&j->o[0], "out", 1);
    OUTPUT(d, lse), OUTPUT(d, stats);
    add_options(d, 0);
}
static attn_status run_softmax(job *j, attn_error *err) { return attn_softmax(j->v[0], j->o[0], &j->c.d, err); }
static attn_status size_softmax(job *j, size_t *bytes, attn_error *err) {
    return attn_softmax_workspace_size(j->v[0], j->o[0], &j->c.d, bytes, err);
}
static attn_desc softmax_as_call(const job *j, attn_view x) {
    attn_desc d = j->c.d;
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = with_axes(x);
    if (x.rank == 3 && d.mask.rank == 3) d.mask = with_axes(d.mask);
    attn_view *pairs = ref_bias_of_pairs(&d);
    if (x.rank == 3 && pairs->rank == 3) *pairs = with_axes(*pairs);
    return d;
}
static void check_softmax(job *j) {
    attn_view x = j->in_place ? j->kept : j->v[0];
    attn_desc d = softmax_as_call(j, x);
    d.weights = as_out(with_axes(attn_view_of(j->o[0])));
    check_against(&d);
}
static void build_softmax_backward(job *j) {
    static const layout layouts[] = {LAYOUT_PACKED, LAYOUT_GAPS, LAYOUT_MIXED};
    build_softmax_of(j, test_int(1, 4));
    attn_view x = j->v[0];
    j->v[1] = make_filled(PICK(layouts), 1, x.rank, x.size[0], x.size[1], x.size[2], x.size[3]);
    memset(&j->c.d.lse, 0, sizeof j->c.d.lse);
    memset(&j->c.d.stats, 0, sizeof j->c.d.stats);
}
static void slots_softmax_backward(job *j) {
    add_slot(&j->v[0], "x", 0);
    add_slot(&j->v[1], "d_out", 0);
    add_slot(&j->o[0], "dx", 1);
    add_options(&j->c.d, 0);
}
static attn_status run_softmax_backward(job *j, attn_error *err) {
    return attn_softmax_backward(j->v[0], j->v[1], j->o[0], &j->c.d, err);
}
static attn_status size_softmax_backward(job *j, size_t *bytes, attn_error *err) {
    return attn_softmax_backward_workspace_size(j->v[0], j->v[1], j->o[0], &j->c.d, bytes, err);
}
static void check_softmax_backward(job *j) {
    ref_grads g;
    ref_upstream up;
    call c;
    memset(&up, 0, sizeof up);
    memset(&c, 0, sizeof c);
    c.d = softmax_as_call(j, j->v[0]);
    up.weights = with_axes(j->v[1]);
    c.g.d_given_scores = as_out(with_axes(attn_view_of(j->o[0])));
    ref_backward(&c.d, &up, &g);
    check_grads(&c, &g, now.name);
    ref_free_grads(&g);
}

/* ---- scores, masks, merging */
static void build_scores(job *j) {
    attn_desc d = draw_piece(test_int(0, ATTN_SCORE_GIVEN - 1), draw_shape_small());
    ask_for(&d, RESULT_SCORES, LAYOUT_MIXED);
    j->v[0] = d.q;
    j->v[1] = d.k;
    j->o[0] = d.scores;
    d.weights_after_dropout = 0;
    memset(&d.q, 0, 3 * sizeof d.q);
    memset(&d.scores, 0, sizeof d.scores);
    j->c.d = d;
}
static void slots_scores(job *j) {
    add_slot(&j->v[0], "q", 0);
    add_slot(&j->v[1], "k", 0);
    add_slot(&j->o[0], "scores", 1);
    INPUT(&j->c.d, k_scale);
    add_options(&j->c.d, 1);
}
static attn_status run_scores(job *j, attn_error *err) { return attn_scores(j->v[0], j->v[1], j->o[0], &j->c.d, err); }
static attn_desc scores_as_call(job *j) {
    attn_desc d = j->c.d;
    d.q = j->v[0];
    d.k = j->v[1];
    d.scores = j->o[0];
    return d;
}
static attn_status size_scores(job *j, size_t *bytes, attn_error *err) {
    attn_desc d = scores_as_call(j);
    return attn_workspace_size(&d, bytes, err);
}
static void check_scores(job *j) {
    attn_desc d = scores_as_call(j);
    check_against(&d);
}

static attn_out make_bytes(const shape *s) {
    attn_view v = make_view(ATTN_U8, one_in(2) ? LAYOUT_GAPS : LAYOUT_BSHD, 4, s->b, s->h, s->sq, s->sk);
    return as_out(v);
}
static void build_mask(job *j) {
    shape s = draw_shape_small();
    attn_desc d = draw_piece(-1, s);
    j->o[0] = make_bytes(&s);
    if (one_in(3)) memset(&d.q, 0, 3 * sizeof d.q);
    ask_for(&d, 0, LAYOUT_PACKED);
    d.isa = 0;
    d.weights_after_dropout = 0;
    j->c.d = d;
}
static void slots_mask(job *j) {
    add_slot(&j->o[0], "mask", 1);
    add_masks(&j->c.d);
}
static attn_status run_mask(job *j, attn_error *err) { return attn_mask(j->o[0], &j->c.d, err); }
static void each_byte(job *j, int (*want)(const attn_desc *, const ref_result *, const int64_t *)) {
    attn_view v = attn_view_of(j->o[0]);
    int64_t index[4] = {0, 0, 0, 0};
    attn_desc sizes = j->c.d;
    ref_result r;
    sizes.score = ATTN_SCORE_GIVEN;
    sizes.given_scores = v;
    if (elements_of(&v)) ref_sizes(&sizes, &r);
    if (elements_of(&v)) do {
            int got = ((const uint8_t *)v.data)[offset_of(&v, index)], wanted = want(&j->c.d, &r, index);
            if (!CHECKF(got == wanted, "[%ld,%ld,%ld,%ld] is %d, want %d", (long)index[0], (long)index[1],
                        (long)index[2], (long)index[3], got, wanted))
                return;
        } while (next_index(&v, index));
}
static int want_allowed(const attn_desc *d, const ref_result *r, const int64_t *i) {
    return ref_allowed(d, r, i[0], i[1], i[2], i[3]);
}
static void check_mask(job *j) { each_byte(j, want_allowed); }

static void build_dropout_mask(job *j) {
    shape s = draw_shape_small();
    j->c.d = draw_piece(-1, s);
    j->c.d.dropout = one_in(3) ? j->c.d.dropout : (float)test_uniform();
    j->o[0] = make_bytes(&s);
    j->unread_qk = 1;
}
static void slots_dropout_mask(job *j) { add_slot(&j->o[0], "mask", 1); }
static attn_status run_dropout_mask(job *j, attn_error *err) { return attn_dropout_mask(j->o[0], &j->c.d, err); }
static int want_kept(const attn_desc *d, const ref_result *r, const int64_t *i) {
    uint32_t at[4], x[4];
    (void)r;
    for (int axis = 0; axis < 4; axis++) at[axis] = (uint32_t)d->dropout_origin[axis] + (uint32_t)i[axis];
    x[0] = at[3] / 4, x[1] = at[2], x[2] = at[1], x[3] = at[0];
    ref_philox(x, (uint32_t)d->seed, (uint32_t)(d->seed >> 32));
    return (double)x[at[3] % 4] >= (double)d->dropout * 4294967296.0;
}
static void check_dropout_mask(job *j) { each_byte(j, want_kept); }

static void build_merge(job *j) {
    shape s = draw_shape_small();
    for (int n = 0; n < 4; n++) {
        layout how = (layout)test_int(0, LAYOUT_COUNT - 1);
        j->v[n] = n % 2 ? make_filled(how, 5, 3, s.b, s.h, s.sq, 0) : make_filled(how, 1, 4, s.b, s.h, s.sq, s.dv);
        if (n % 2 && one_in(2)) fill(&j->v[n], draw_some_excluded, 0.3, -INFINITY);
    }
    j->o[0] = make_out(LAYOUT_MIXED, 4, s.b, s.h, s.sq, s.dv);
    if (one_in(2)) j->o[1] = make_out(LAYOUT_GAPS, 3, s.b, s.h, s.sq, 0);
}
static void slots_merge(job *j) {
    static const char *const names[] = {"out_a", "lse_a", "out_b", "lse_b"};
    for (int n = 0; n < 4; n++) add_slot(&j->v[n], names[n], 0);
    add_slot(&j->o[0], "out", 1);
    add_slot(&j->o[1], "lse", 1);
}
static attn_status run_merge(job *j, attn_error *err) {
    attn_desc o;
    if (one_in(2)) return attn_merge(j->v[0], j->v[1], j->v[2], j->v[3], j->o[0], j->o[1], err);
    return attn_merge_with(j->v[0], j->v[1], j->v[2], j->v[3], j->o[0], j->o[1], draw_spare(&o), err);
}
static void check_merge(job *j) {
    attn_view out = attn_view_of(j->o[0]), lse = attn_view_of(j->o[1]);
    int64_t i[4] = {0, 0, 0, 0};
    if (elements_of(&out)) do {
            double a = ref_at(&j->v[1], 0, i[0], i[1], i[2]), b = ref_at(&j->v[3], 0, i[0], i[1], i[2]),
                   top = fmax(a, b), ea = top == -INFINITY ? 0 : exp(a - top), eb = top == -INFINITY ? 0 : exp(b - top),
                   x = ea == 0 ? 0 : ref_at(&j->v[0], i[0], i[1], i[2], i[3]) * ea,
                   y = eb == 0 ? 0 : ref_at(&j->v[2], i[0], i[1], i[2], i[3]) * eb, sum = ea + eb,
                   got = ref_at(&out, i[0], i[1], i[2], i[3]);
            if (!CHECK_CLOSE(got, sum == 0 ? 0 : (x + y) / sum, 4e-6 * (1 + fabs(x) + fabs(y)))) return;
            if (!lse.rank || i[3]) continue;
            if (!CHECK_CLOSE(ref_at(&lse, 0, i[0], i[1], i[2]), sum == 0 ? -INFINITY : top + log(sum),
                             4e-6 * (1 + fabs(top))))
                return;
        } while (next_index(&out, i));
}

/* ---- products */
static attn_view drop_axes(attn_view v, int rank) { /* leading axes of size 1 */
    for (int axis = 0; axis < rank; axis++) {
        v.size[axis] = v.size[axis + 4 - rank];
        v.stride[axis] = v.stride[axis + 4 - rank];
    }
    v.rank = rank;
    return v;
}
static attn_view draw_factor(const int64_t batch[2], int64_t rows, int64_t columns, int rank) {
    layout how = (layout)test_int(0, LAYOUT_COUNT - 1);
    attn_view v;
    if (one_in(3)) v = attn_view_swap(make_filled(how, 1, 4, batch[0], batch[1], columns, rows), 2, 3);
    else v = make_filled(how, 1, 4, batch[0], batch[1], rows, columns);
    return drop_axes(v, rank);
}
static void draw_product(job *j, int64_t batch[3][2], int ranks[3], int64_t n[3]) {
    for (int axis = 0; axis < 3; axis++) n[axis] = draw_size(20);
    for (int v = 0; v < 2; v++) ranks[v] = test_int(2, 4);
    ranks[2] = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
    for (int axis = 0; axis < 2; axis++) {
        int64_t full = one_in(10) ? 0 : test_int(1, 3);
        for (int v = 0; v < 2; v++) batch[v][axis] = ranks[v] > 3 - axis && one_in(2) ? full : 1;
        batch[2][axis] = batch[0][axis] == 1 ? batch[1][axis] : batch[0][axis];
    }
    j->v[0] = draw_factor(batch[0], n[0], n[1], ranks[0]);
    j->v[1] = draw_factor(batch[1], n[1], n[2], ranks[1]);
    memset(&j->c.d, 0, sizeof j->c.d);
    draw_run(&j->c.d);
}
static void build_bmm(job *j) {
    int64_t batch[3][2], n[3];
    int ranks[3];
    draw_product(j, batch, ranks, n);
    attn_out o = make_out((layout)test_int(0, LAYOUT_COUNT - 1), 4, batch[2][0], batch[2][1], n[0], n[2]);
    j->o[0] = as_out(drop_axes(attn_view_of(o), ranks[2]));
}
static void slots_bmm(job *j) {
    add_slot(&j->v[0], "a", 0);
    add_slot(&j->v[1], "b", 0);
    add_slot(&j->o[0], "out", 1);
    INPUT(&j->c.d, k_scale);
}
static attn_status run_bmm(job *j, attn_error *err) { return attn_bmm(j->v[0], j->v[1], j->o[0], &j->c.d, err); }
static attn_status size_bmm(job *j, size_t *bytes, attn_error *err) {
    return attn_bmm_workspace_size(j->v[0], j->v[1], j->o[0], &j->c.d, bytes, err);
}

/* got[..,m,n] against start + the sum of a[..,m,k] b[..,k,n], where got has size 1 also over the batch */
static void check_sum(const attn_view *a, const attn_view *b, const attn_view *got, const int64_t batch[2],
                      const attn_view *start) {
    int64_t i[4] = {0, 0, 0, 0};
    int lead = 4 - got->rank, alike = a->stride[a->rank - 1] == 0 && b->stride[b->rank - 2] == 0;
    double bound = alike ? GRAD_BOUND_OF_SUMS : GRAD_BOUND; /* terms that are equal are all rounded the same way */
    if (elements_of(got)) do {
            int64_t at[4], depth = a->size[a->rank - 1], low[2], high[2];
            for (int axis = 0; axis < 4; axis++) at[axis] = axis < lead ? 0 : i[axis - lead];
            for (int axis = 0; axis < 2; axis++) {
                int whole = axis < lead || got->size[axis - lead] == 1;
                low[axis] = whole ? 0 : at[axis];
                high[axis] = whole ? batch[axis] : at[axis] + 1;
            }
            double sum = start->rank ? ref_at(start, at[0], at[1], at[2], at[3]) : 0, terms = fabs(sum);
            for (int64_t x = low[0]; x < high[0]; x++)
                for (int64_t y = low[1]; y < high[1]; y++)
                    for (int64_t k = 0; k < depth; k++) {
                        double term = ref_at(a, x, y, at[2], k) * ref_at(b, x, y, k, at[3]);
                        sum += term;
                        terms += fabs(term);
                    }
            if (!CHECK_CLOSE(ref_at(got, at[0], at[1], at[2], at[3]), sum, bound * terms + 1e-40)) return;
        } while (next_index(got, i));
}
static void batch_of(const job *j, int64_t batch[2]) {
    for (int axis = 0; axis < 2; axis++) {
        batch[axis] = 1;
        for (int v = 0; v < 2; v++) {
            int at = axis - (4 - j->v[v].rank);
            if (at >= 0 && j->v[v].size[at] != 1) batch[axis] = j->v[v].size[at];
        }
    }
}
static const attn_view no_view;
static void check_bmm(job *j) {
    attn_view out = attn_view_of(j->o[0]);
    int64_t batch[2];
    batch_of(j, batch);
    for (int axis = 0; axis < 2; axis++) batch[axis] = 1; /* its axes are the batch's: nothing is summed over them */
    check_sum(&j->v[0], &j->v[1], &out, batch, &no_view);
}
static attn_view last_swapped(attn_view v) { return attn_view_swap(v, v.rank - 2, v.rank - 1); }
static void build_bmm_backward(job *j) {
    int64_t batch[3][2], n[3];
    int ranks[3], wanted = test_int(1, 3);
    draw_product(j, batch, ranks, n);
    j->v[2] = draw_factor(batch[2], n[0], n[2], ranks[2]);
    j->adds = (uint32_t)test_int(0, 3);
    for (int r = 0; r < 2; r++) {
        const attn_view *v = &j->v[r];
        if (!(wanted >> r & 1)) continue;
        attn_out o = make_out(LAYOUT_MIXED, v->rank, v->size[0], v->size[1], v->size[2], v->size[3]);
        attn_view start = attn_view_of(o);
        j->o[r] = o;
        if (!(j->adds >> r & 1)) continue;
        fill(&start, draw_normal, 0, 1);
        j->c.start[r] = copy_view(&start, LAYOUT_PACKED);
    }
}
static void slots_bmm_backward(job *j) {
    static const char *const names[] = {"a", "b", "d_out"};
    for (int n = 0; n < 3; n++) add_slot(&j->v[n], names[n], 0);
    add_slot(&j->o[0], "da", 1);
    add_slot(&j->o[1], "db", 1);
}
static attn_status run_bmm_backward(job *j, attn_error *err) {
    return attn_bmm_backward(j->v[0], j->v[1], j->v[2], j->o[0], j->o[1], j->adds, &j->c.d, err);
}
static attn_status size_bmm_backward(job *j, size_t *bytes, attn_error *err) {
    return attn_bmm_backward_workspace_size(j->v[0], j->v[1], j->v[2], j->o[0], j->o[1], &j->c.d, bytes, err);
}
static void check_bmm_backward(job *j) {
    attn_view da = attn_view_of(j->o[0]), db = attn_view_of(j->o[1]), a = last_swapped(j->v[0]),
              b = last_swapped(j->v[1]);
    int64_t batch[2];
    batch_of(j, batch);
    if (da.rank) check_sum(&j->v[2], &b, &da, batch, &j->c.start[0]);
    if (db.rank) check_sum(&a, &j->v[2], &db, batch, &j->c.start[1]);
}

/* ---- multi-head attention, against the composition that it is: the same bits */
enum { HEAD_INPUTS = 11 };
static attn_view head_start[HEAD_INPUTS]; /* what a gradient of mha is added to */

static attn_view *head_input(attn_mha_desc *h, int n) {
    attn_view *all[HEAD_INPUTS];
    all[0] = &h->query, all[1] = &h->key, all[2] = &h->value;
    all[3] = &h->w_query, all[4] = &h->w_key, all[5] = &h->w_value, all[6] = &h->w_result;
    all[7] = &h->b_query, all[8] = &h->b_key, all[9] = &h->b_value, all[10] = &h->b_result;
    return all[n];
}
static attn_out *head_result(attn_mha_grad *g, int n) {
    attn_out *all[HEAD_INPUTS];
    all[0] = &g->dquery, all[1] = &g->dkey, all[2] = &g->dvalue;
    all[3] = &g->dw_query, all[4] = &g->dw_key, all[5] = &g->dw_value, all[6] = &g->dw_result;
    all[7] = &g->db_query, all[8] = &g->db_key, all[9] = &g->db_value, all[10] = &g->db_result;
    return all[n];
}
static attn_view take(double deviation, int rank, int64_t n0, int64_t n1, int64_t n2) {
    return make_filled((layout)test_int(0, LAYOUT_COUNT - 1), deviation, rank, n0, n1, n2, 0);
}
/* One entry alone would count as packed: that is no sum of pieces over all rows (sequence.mha_of_entries tests it). */
static void without_packing(attn_desc *d, int64_t batch) {
    if (batch == 1 && d->query_starts.rank) d->query_lengths = no_view;
    if (batch == 1 && d->key_starts.rank) d->key_lengths = no_view;
}
static void build_mha(job *j) {
    shape s = draw_shape_small();
    int self = one_in(3), biases = one_in(2), result = !one_in(3);
    int64_t eq = draw_size(12), ek = self ? eq : draw_size(12), ev = ek, width;
    if (s.h == 0) s.h = s.hkv = 1;
    if (self) s.sk = s.sq;
    attn_mha_desc *h = &j->h;
    h->heads = s.h;
    h->heads_kv = s.hkv == s.h && one_in(2) ? 0 : s.hkv;
    h->query = take(1, 3, s.b, s.sq, eq);
    if (!self) h->key = take(1, 3, s.b, s.sk, ek);
    if (one_in(2)) h->value = take(1, 3, s.b, s.sk, ev = draw_size(12));
    h->w_query = take(0.4, 2, s.h * s.d, eq, 0);
    h->w_key = take(0.4, 2, s.hkv * s.d, ek, 0);
    h->w_value = take(0.4, 2, s.hkv * s.dv, ev, 0);
    width = result ? draw_size(12) : s.h * s.dv;
    if (result) h->w_result = take(0.4, 2, width, s.h * s.dv, 0);
    if (biases) {
        h->b_query = take(1, 1, s.h * s.d, 0, 0);
        h->b_key = take(1, 1, s.hkv * s.d, 0, 0);
        h->b_value = take(1, 1, s.hkv * s.dv, 0, 0);
        if (result) h->b_result = take(1, 1, width, 0, 0);
    }
    h->out = make_out((layout)test_int(0, LAYOUT_COUNT - 1), 3, s.b, s.sq, width, 0);
    j->c.d = draw_piece(test_int(0, ATTN_SCORE_GIVEN - 1), s);
    if (s.d == 0) j->c.d.sigma = 0;
    memset(&j->c.d.q, 0, 3 * sizeof(attn_view));
    memset(&j->c.d.out, 0, sizeof(attn_out));
    without_packing(&j->c.d, s.b);
    h->attention = &j->c.d;
    j->saves = one_in(3) && !j->c.d.stats.rank;
}
/* Memory for what is saved, filled for gradients: before the workspace is asked for, which depends on it. */
static void set_saved(job *j, int filled) {
    attn_mha_desc *h = &j->h, fill;
    attn_desc o = j->c.d;
    h->saved = 0, h->saved_bytes = 0;
    if (!j->saves || attn_mha_saved_size(h, &h->saved_bytes, 0) != ATTN_OK || h->saved_bytes > (size_t)1 << 26) {
        h->saved_bytes = 0;
        return;
    }
    h->saved = take_scratch(h->saved_bytes);
    memset(&o.allocator, 0, sizeof o.allocator);
    memset(&o.parallel, 0, sizeof o.parallel);
    o.workspace = 0, o.workspace_bytes = 0;
    fill = *h;
    fill.attention = &o;
    if (filled && attn_mha(&fill, 0) != ATTN_OK) h->saved = 0, h->saved_bytes = 0;
}
static void slots_heads(job *j) {
    static const char *const names[] = {"query",    "key",     "value", "w_query", "w_key",   "w_value",
                                        "w_result", "b_query", "b_key", "b_value", "b_result"};
    for (int n = 0; n < HEAD_INPUTS; n++) add_slot(head_input(&j->h, n), names[n], 0);
    add_options(&j->c.d, 1);
}
static void slots_mha(job *j) {
    attn_desc *d = &j->c.d;
    slots_heads(j);
    add_slot(&j->h.out, "out", 1);
    OUTPUT(d, lse), OUTPUT(d, stats), OUTPUT(d, weights);
    OUTPUT(d, scores), OUTPUT(d, scores_softcap), OUTPUT(d, scores_masked);
}
static attn_status run_mha(job *j, attn_error *err) { return attn_mha(&j->h, err); }
static attn_status size_mha(job *j, size_t *bytes, attn_error *err) {
    set_saved(j, 0);
    return attn_mha_workspace_size(&j->h, bytes, err);
}
static attn_view what_is_projected(const attn_mha_desc *h, int which) {
    attn_view key = h->key.rank ? h->key : h->query;
    return which == 0 ? h->query : which == 1 ? key : h->value.rank ? h->value : key;
}
static attn_view project(attn_view x, attn_view w, attn_view bias) {
    attn_out y = make_out(LAYOUT_PACKED, 3, x.size[0], x.size[1], w.size[0], 0);
    float *p = (float *)y.data;
    CHECK_STATUS(attn_bmm(x, attn_view_swap(w, 0, 1), y, 0, 0), ATTN_OK);
    for (int64_t i = 0; bias.rank && i < x.size[0] * x.size[1] * w.size[0]; i++)
        p[i] = p[i] + (float)ref_at(&bias, 0, 0, 0, i % w.size[0]);
    return attn_view_of(y);
}
/* The attention inside: its results in memory of their own. */
static attn_desc inner_call(job *j, attn_out *merged) {
    attn_mha_desc *h = &j->h;
    int64_t heads = h->heads, heads_kv = h->heads_kv ? h->heads_kv : heads, size_v = h->w_value.size[0] / heads_kv;
    attn_desc d = copy_results(&j->c.d);
    attn_view x[3];
    for (int n = 0; n < 3; n++) x[n] = project(what_is_projected(h, n), *head_input(h, 3 + n), *head_input(h, 7 + n));
    for (int n = 1; n < RESULT_COUNT; n++) poison(result_of(&d, n));
    *merged = make_out(LAYOUT_PACKED, 3, h->query.size[0], h->query.size[1], heads * size_v, 0);
    d.workspace = 0, d.workspace_bytes = 0;
    memset(&d.parallel, 0, sizeof d.parallel); /* the same bits, without memory for millions of workers */
    d.q = attn_view_bshd((const float *)x[0].data, x[0].size[0], x[0].size[1], heads, x[0].size[2] / heads);
    d.k = attn_view_bshd((const float *)x[1].data, x[1].size[0], x[1].size[1], heads_kv, x[1].size[2] / heads_kv);
    d.v = attn_view_bshd((const float *)x[2].data, x[2].size[0], x[2].size[1], heads_kv, size_v);
    d.out = attn_out_bshd((float *)merged->data, h->query.size[0], h->query.size[1], heads, size_v);
    return d;
}
static void check_mha(job *j) {
    attn_out merged;
    attn_desc d = inner_call(j, &merged);
    attn_view y = attn_view_of(merged);
    run_desc(&d, "the attention inside");
    if (j->h.w_result.rank) y = project(y, j->h.w_result, j->h.b_result);
    attn_out want = as_out(y);
    check_same(&j->h.out, &want, "a block and its pieces");
    for (int n = 1; n < RESULT_COUNT; n++) check_same(result_of(&j->c.d, n), result_of(&d, n), "a result inside");
}

static void build_mha_backward(job *j) {
    build_mha(j);
    unsigned wanted = one_in(2) ? ~0u : (unsigned)test_bits(), any = 0;
    j->hg.d_out = take(1, 3, j->h.out.size[0], j->h.out.size[1], j->h.out.size[2]);
    j->hg.accumulate = one_in(3) ? (unsigned)test_bits() & 2047u : 0;
    ask_for(&j->c.d, 0, LAYOUT_PACKED);
    for (int n = 0; n < HEAD_INPUTS; n++) {
        attn_view like = *head_input(&j->h, n);
        attn_out *o = head_result(&j->hg, n);
        head_start[n] = no_view;
        if (!like.rank || !(wanted >> n & 1)) continue;
        any = 1;
        *o = make_out((layout)test_int(0, LAYOUT_COUNT - 1), like.rank, like.size[0], like.size[1], like.size[2], 0);
        attn_view start = attn_view_of(*o);
        if (!(j->hg.accumulate >> n & 1)) continue;
        fill(&start, draw_normal, 0, 1);
        head_start[n] = copy_view(&start, LAYOUT_PACKED);
    }
    if (any) return;
    j->hg.accumulate = 0;
    j->hg.dw_query = make_out(LAYOUT_PACKED, 2, j->h.w_query.size[0], j->h.w_query.size[1], 0, 0);
}
static void slots_mha_backward(job *j) {
    slots_heads(j);
    add_slot(&j->hg.d_out, "d_out", 0);
    for (int n = 0; n < HEAD_INPUTS; n++) add_slot(head_result(&j->hg, n), "a gradient", 1);
}
static attn_status run_mha_backward(job *j, attn_error *err) { return attn_mha_backward(&j->h, &j->hg, err); }
static attn_status size_mha_backward(job *j, size_t *bytes, attn_error *err) {
    set_saved(j, 1);
    return attn_mha_backward_workspace_size(&j->h, &j->hg, bytes, err);
}
/* Gradient n against this one, which is for `like` seen with its axes swapped when `swapped`. */
static void same_head_gradient(job *j, int n, attn_out want, int swapped) {
    attn_out *got = head_result(&j->hg, n);
    if (swapped) want = as_out(attn_view_swap(attn_view_of(want), 0, 1));
    if (got->rank) check_same(got, &want, "a gradient of a block and of its pieces");
}
static attn_out fresh_gradient(job *j, int n, int swapped) { /* what gradient n held before, to be added to */
    attn_view like = *head_input(&j->h, n);
    attn_out o = make_out(LAYOUT_PACKED, like.rank, like.size[0], like.size[1], like.size[2], 0);
    if (head_start[n].rank) {
        attn_view copy = copy_view(&head_start[n], LAYOUT_PACKED);
        o = as_out(copy);
    }
    return swapped ? as_out(attn_view_swap(attn_view_of(o), 0, 1)) : o;
}
/* Sums of the columns of y, in the order that the manual tells: chains of ATTN_GRAD_QUERIES rows within a batch entry,
   then one after the other. An addition is off by at most 2^-24 of what it makes, so these add up to the bound; the
   hair more is for what they make being off itself: of some 320 additions each by 320 * 2^-24 of the bound. That is
   below 1e-6 of the absolute terms where these differ in sign. Where they are alike, as the rows of dv are under
   ATTN_EMPTY_UNIFORM, their roundings are too, and more than 2e-6 of them may be lost: see NUMERICS. */
static void check_bias_gradient(job *j, int n, attn_view y) {
    attn_view got = attn_view_of(*head_result(&j->hg, n));
    for (int64_t c = 0; got.rank && c < y.size[2]; c++) {
        double sum = 0, made = 0;
        for (int64_t row = 0, last; row < y.size[0] * y.size[1]; row = last) {
            int64_t in_entry = row % y.size[1], left = y.size[1] - in_entry;
            double chain = ref_at(&y, 0, row / y.size[1], in_entry, c);
            last = row + (left < ATTN_GRAD_QUERIES ? left : ATTN_GRAD_QUERIES);
            for (int64_t next = row + 1; next < last; next++) {
                chain += ref_at(&y, 0, next / y.size[1], next % y.size[1], c);
                made += fabs(chain);
            }
            sum += chain;
            if (row) made += fabs(sum);
        }
        if (head_start[n].rank) {
            sum += ref_at(&head_start[n], 0, 0, 0, c);
            made += fabs(sum);
        }
        CHECK_CLOSE(ref_at(&got, 0, 0, 0, c), sum, 1.0001 * 0x1p-24 * made + 1e-40);
    }
}
/* What the attention inside has as gradients of its q, k and v, [B,S,H*D]; 0 where it was refused. */
static int inner_gradients(job *j, attn_out d_projected[3]) {
    attn_mha_desc *h = &j->h;
    attn_out merged, d_merged;
    attn_desc d = inner_call(j, &merged);
    attn_grad g;
    attn_view above = j->hg.d_out;
    memset(&g, 0, sizeof g);
    d.stats = make_out(LAYOUT_PACKED, 4, d.q.size[0], d.q.size[1], d.q.size[2], 2);
    if (!run_desc(&d, "the attention inside")) return 0;
    if (h->w_result.rank) {
        attn_out dw = fresh_gradient(j, 6, 1);
        d_merged = make_out(LAYOUT_PACKED, 3, merged.size[0], merged.size[1], merged.size[2], 0);
        CHECK_STATUS(attn_bmm_backward(attn_view_of(merged), attn_view_swap(h->w_result, 0, 1), above, d_merged, dw,
                                       j->hg.accumulate >> 6 & 1 ? 2 : 0, 0, 0),
                     ATTN_OK);
        same_head_gradient(j, 6, dw, 1);
        if (h->b_result.rank) check_bias_gradient(j, 10, above);
        above = attn_view_of(d_merged);
    } else above = copy_view(&above, LAYOUT_PACKED);
    g.d_out = attn_view_bshd((const float *)above.data, d.q.size[0], d.q.size[2], d.q.size[1], d.v.size[3]);
    attn_view *x[3];
    attn_out *dx[3];
    x[0] = &d.q, x[1] = &d.k, x[2] = &d.v;
    dx[0] = &g.dq, dx[1] = &g.dk, dx[2] = &g.dv;
    for (int n = 0; n < 3; n++) {
        const int64_t *s = x[n]->size;
        d_projected[n] = make_out(LAYOUT_PACKED, 3, s[0], s[2], s[1] * s[3], 0);
        *dx[n] = attn_out_bshd((float *)d_projected[n].data, s[0], s[2], s[1], s[3]);
    }
    return CHECK_STATUS(attn_backward(&d, &g, 0), ATTN_OK);
}
static void check_mha_backward(job *j) {
    attn_out d_projected[3], sums[3];
    unsigned has = j->hg.accumulate;
    if (!inner_gradients(j, d_projected)) return;
    for (int n = 0; n < 3; n++)
        if (head_input(&j->h, n)->rank) sums[n] = fresh_gradient(j, n, 0);
    for (int n = 0; n < 3; n++) {
        attn_out dw = fresh_gradient(j, 3 + n, 1);
        int to = n == 2 && !j->h.value.rank ? 1 : n;
        if (to == 1 && !j->h.key.rank) to = 0;
        uint32_t adds = (has >> to & 1u) | (j->hg.accumulate >> (3 + n) & 1u) << 1;
        CHECK_STATUS(attn_bmm_backward(what_is_projected(&j->h, n), attn_view_swap(*head_input(&j->h, 3 + n), 0, 1),
                                       attn_view_of(d_projected[n]), sums[to], dw, adds, 0, 0),
                     ATTN_OK);
        has |= 1u << to;
        same_head_gradient(j, 3 + n, dw, 1);
        if (head_input(&j->h, 7 + n)->rank) check_bias_gradient(j, 7 + n, attn_view_of(d_projected[n]));
    }
    for (int n = 0; n < 3; n++)
        if (head_input(&j->h, n)->rank) same_head_gradient(j, n, sums[n], 0);
}

/* ---- sizes beyond all memory, in calls that have no element or nearly none */
static int64_t far_size(void) {
    static const int64_t sizes[] = {0,
                                    0,
                                    1,
                                    2,
                                    3,
                                    (int64_t)1 << 31,
                                    (int64_t)1 << 32,
                                    (int64_t)1 << 40,
                                    ((int64_t)1 << 60) - 1,
                                    INT64_MAX / 2,
                                    INT64_MAX};
    return PICK(sizes);
}
static int64_t near_or_far(void) { return one_in(2) ? test_int(0, 3) : far_size(); }
static int64_t count_of(int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    attn_view v = {0, {n0, n1, n2, n3}, {0, 0, 0, 0}, 0, rank};
    return elements_of(&v);
}
static attn_view far_view(int32_t type, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    attn_view v = attn_view_f32(0, rank, n0, n1, n2, n3);
    int64_t n = count_of(rank, n0, n1, n2, n3);
    size_t bytes = type_bytes(type);
    v.type = type;
    if (n == 0) v.data = one_in(2) ? 0 : test_guarded(0);
    else if (n <= 4096) v.data = memset(test_guarded((size_t)n * bytes), 0, (size_t)n * bytes);
    else if (one_in(2)) { /* one element for all */ memset(v.stride, 0, sizeof v.stride);
        v.data = memset(test_guarded(bytes), 0, bytes);
    }
    return v;
}
/* A result: absent where it has elements beside far sizes, for these would take their time. */
static attn_out far_out(int far, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    attn_view v = attn_view_f32(0, rank, n0, n1, n2, n3);
    int64_t n = count_of(rank, n0, n1, n2, n3);
    if (n > 4096 || (far && n)) v = no_view;
    else v.data = n || one_in(2) ? test_guarded((size_t)n * 4) : 0;
    return as_out(v);
}
static int is_far(const shape *s) {
    const int64_t n[7] = {s->b, s->h, s->hkv, s->sq, s->sk, s->d, s->dv};
    for (int i = 0; i < 7; i++)
        if (n[i] > 4096) return 1;
    return 0;
}
static shape far_shape(void) {
    shape s = {near_or_far(), near_or_far(), 0, near_or_far(), near_or_far(), near_or_far(), near_or_far()};
    s.hkv = one_in(3) ? (s.h ? 1 : 0) : s.h;
    if (one_in(2)) s.d = s.dv = 0;
    return s;
}
static shape far_inputs(attn_desc *d) {
    static const int scores[] = {ATTN_SCORE_DOT,      ATTN_SCORE_COSINE,   ATTN_SCORE_GAUSSIAN,
                                 ATTN_SCORE_CONSTANT, ATTN_SCORE_ADDITIVE, ATTN_SCORE_GIVEN};
    shape s = far_shape();
    memset(d, 0, sizeof *d);
    d->score = PICK(scores);
    d->align = ATTN_ALIGN_TOP_LEFT;
    d->v = far_view(ATTN_F32, 4, s.b, s.hkv, s.sk, s.dv);
    if (d->score == ATTN_SCORE_GIVEN) d->given_scores = far_view(ATTN_F32, 4, s.b, s.h, s.sq, s.sk);
    else {
        d->q = far_view(ATTN_F32, 4, s.b, s.h, s.sq, s.d);
        d->k = far_view(ATTN_F32, 4, s.b, s.hkv, s.sk, s.d);
    }
    if (d->score == ATTN_SCORE_ADDITIVE) {
        int64_t hidden = near_or_far();
        d->w_q = far_view(ATTN_F32, 2, hidden, s.d, 0, 0);
        d->w_k = far_view(ATTN_F32, 2, hidden, s.d, 0, 0);
        d->w_v = far_view(ATTN_F32, 1, hidden, 0, 0, 0);
    }
    d->causal = one_in(2);
    if (one_in(4)) d->mask = far_view(ATTN_U8, 4, s.b, 1, s.sq, s.sk);
    if (one_in(4)) {
        if (one_in(3)) d->bias_index = far_view(ATTN_I32, 2, s.sq, s.sk, 0, 0);
        d->bias = d->bias_index.rank ? far_view(ATTN_F32, 2, s.h, near_or_far(), 0, 0)
                                     : far_view(ATTN_F32, 2, s.sq, s.sk, 0, 0);
    }
    if (one_in(4)) d->key_lengths = far_view(ATTN_I64, one_in(2) ? 1 : 2, s.b, s.sq, 0, 0);
    if (one_in(4)) d->query_lengths = far_view(ATTN_I32, 1, s.b, 0, 0, 0);
    if (one_in(4)) d->sink = far_view(ATTN_F32, 1, s.h, 0, 0, 0);
    if (one_in(6)) d->query_starts = far_view(ATTN_I64, 1, s.b, 0, 0, 0);
    if (one_in(6)) d->key_starts = far_view(ATTN_I32, 1, s.b, 0, 0, 0);
    if (one_in(8)) d->page_table = far_view(ATTN_I32, 2, s.b, near_or_far(), 0, 0);
    if (one_in(8)) d->carry_in = far_view(ATTN_F32, 4, s.b, s.h, s.sq, s.dv + 2);
    if (one_in(8)) d->key_origin = (int64_t)test_int(0, 3) << test_int(8, 50);
    draw_run(d);
    return s;
}
static void far_forward(job *j) {
    attn_desc *d = &j->c.d;
    shape s = far_inputs(d);
    int far = is_far(&s);
    d->out = far_out(far, 4, s.b, s.h, s.sq, s.dv);
    if (one_in(2)) d->lse = far_out(far, 3, s.b, s.h, s.sq, 0);
    if (one_in(2)) d->weights = far_out(far, 4, s.b, s.h, s.sq, s.sk);
    if (one_in(4)) d->scores = far_out(far, 4, s.b, s.h, s.sq, s.sk);
    if (one_in(4)) d->scores_masked = far_out(far, 4, s.b, s.h, s.sq, s.sk);
    if (one_in(4)) d->stats = far_out(far, 4, s.b, s.h, s.sq, 2);
}
static void far_backward(job *j) {
    attn_desc *d = &j->c.d;
    attn_grad *g = &j->c.g;
    shape s = far_inputs(d);
    int far = is_far(&s);
    d->out = as_out(far_view(ATTN_F32, 4, s.b, s.h, s.sq, s.dv));
    g->d_out = far_view(ATTN_F32, 4, s.b, s.h, s.sq, s.dv);
    if (one_in(2)) g->d_weights = far_view(ATTN_F32, 4, s.b, s.h, s.sq, s.sk);
    if (one_in(2)) g->d_lse = far_view(ATTN_F32, 3, s.b, s.h, s.sq, 0);
    for (int n = 0; n < GRAD_COUNT; n++) {
        attn_view like = ref_grad_like(d, n);
        if (like.rank && one_in(2))
            *grad_of(g, n) = far_out(far, like.rank, like.size[0], like.size[1], like.size[2], like.size[3]);
    }
}
static void far_key_sums(job *j) {
    shape s = far_inputs(&j->c.d);
    j->c.g.key_sums = far_out(is_far(&s), 3, s.b, s.h, s.sk, 0);
    if (one_in(2)) j->c.g.last_queries = (int64_t)(test_bits() >> 1);
}
static void far_softmax(job *j) {
    shape s = far_inputs(&j->c.d);
    attn_desc *d = &j->c.d;
    int rank = test_int(1, 4);
    d->score = 0;
    j->v[0] = far_view(ATTN_F32, rank, s.b, s.h, s.sq, s.sk);
    j->o[0] = far_out(is_far(&s), rank, s.b, s.h, s.sq, s.sk);
    j->v[1] = far_view(ATTN_F32, rank, s.b, s.h, s.sq, s.sk);
}
static void far_scores(job *j) {
    shape s = far_inputs(&j->c.d);
    j->v[0] = j->c.d.q;
    j->v[1] = j->c.d.k;
    j->o[0] = far_out(is_far(&s), 4, s.b, s.h, s.sq, s.sk);
    memset(&j->c.d.q, 0, 3 * sizeof(attn_view));
}
static void far_mask(job *j) {
    shape s = far_inputs(&j->c.d);
    attn_view v = far_view(ATTN_U8, 4, s.b, s.h, s.sq, s.sk);
    if (elements_of(&v) && is_far(&s)) v.data = 0;
    j->o[0] = as_out(v);
    j->c.d.dropout = one_in(2) ? 0.5f : 0;
}
static void far_merge(job *j) {
    shape s = far_shape();
    for (int n = 0; n < 4; n++) j->v[n] = far_view(ATTN_F32, n % 2 ? 3 : 4, s.b, s.h, s.sq, s.dv);
    j->o[0] = far_out(is_far(&s), 4, s.b, s.h, s.sq, s.dv);
    if (one_in(2)) j->o[1] = far_out(is_far(&s), 3, s.b, s.h, s.sq, 0);
}
static void far_bmm(job *j) {
    shape s = far_shape();
    memset(&j->c.d, 0, sizeof j->c.d);
    draw_run(&j->c.d);
    j->v[0] = far_view(ATTN_F32, 4, s.b, s.h, s.sq, s.d);
    j->v[1] = far_view(ATTN_F32, 4, s.b, s.h, s.d, s.sk);
    j->o[0] = far_out(is_far(&s), 4, s.b, s.h, s.sq, s.sk);
}
static void far_bmm_backward(job *j) {
    far_bmm(j);
    const int64_t *a = j->v[0].size, *b = j->v[1].size;
    int far = 0;
    for (int n = 0; n < 4; n++) far |= a[n] > 4096 || b[n] > 4096;
    j->v[2] = far_view(ATTN_F32, 4, a[0], a[1], a[2], b[3]);
    j->o[0] = far_out(far, 4, a[0], a[1], a[2], a[3]);
    j->o[1] = far_out(far, 4, b[0], b[1], b[2], b[3]);
}
static void far_mha(job *j) {
    attn_mha_desc *h = &j->h;
    int64_t b = near_or_far(), sq = near_or_far(), sk = near_or_far(), e = near_or_far(), n = near_or_far(),
            width = near_or_far();
    int far = b > 4096 || sq > 4096 || sk > 4096 || e > 4096 || n > 4096 || width > 4096;
    memset(&j->c.d, 0, sizeof j->c.d);
    draw_run(&j->c.d);
    j->c.d.align = ATTN_ALIGN_TOP_LEFT;
    h->attention = &j->c.d;
    h->heads = one_in(3) ? 2 : 1;
    h->query = far_view(ATTN_F32, 3, b, sq, e, 0);
    h->key = far_view(ATTN_F32, 3, b, sk, e, 0);
    h->w_query = far_view(ATTN_F32, 2, n, e, 0, 0);
    h->w_key = far_view(ATTN_F32, 2, n, e, 0, 0);
    h->w_value = far_view(ATTN_F32, 2, n, e, 0, 0);
    if (one_in(2)) h->w_result = far_view(ATTN_F32, 2, width, n, 0, 0);
    h->out = far_out(far, 3, b, sq, h->w_result.rank ? width : n, 0);
}
static void far_mha_backward(job *j) {
    far_mha(j);
    int far = 0;
    for (int n = 0; n < HEAD_INPUTS; n++)
        for (int axis = 0; axis < 3; axis++) far |= head_input(&j->h, n)->size[axis] > 4096;
    j->hg.d_out = far_view(ATTN_F32, 3, j->h.query.size[0], j->h.query.size[1],
                           j->h.w_result.rank ? j->h.w_result.size[0] : j->h.w_value.size[0], 0);
    j->h.out = as_out(j->hg.d_out);
    for (int n = 0; n < HEAD_INPUTS; n++) {
        attn_view like = *head_input(&j->h, n);
        if (like.rank) *head_result(&j->hg, n) = far_out(far, like.rank, like.size[0], like.size[1], like.size[2], 0);
    }
}

/* ---- the same call with arrays of other types */
static int is_float(int32_t type) { return type == ATTN_F32 || type == ATTN_F16 || type == ATTN_BF16; }
static int32_t draw_type(void) {
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    return PICK(types);
}
static int is_always_f32(const slot *s) {
    return !strncmp(s->name, "lse", 3) || !strcmp(s->name, "stats") || !strncmp(s->name, "carry", 5);
}

/* to = from, element by element; NaN as the one NaN of the type. */
static void convert(const attn_view *from, const attn_view *to) {
    int64_t index[4] = {0, 0, 0, 0};
    if (!elements_of(from)) return;
    do {
        int64_t at = offset_of(from, index), into = offset_of(to, index);
        if (from->type == ATTN_F32) put(to, into, ((const float *)from->data)[at]);
        else put(to, into, ref_of_half(from->type, ((const uint16_t *)from->data)[at]));
    } while (next_index(from, index));
}
static attn_view as_type(const attn_view *v, int32_t type, int output) {
    static const layout layouts[] = {LAYOUT_PACKED, LAYOUT_BSHD, LAYOUT_GAPS, LAYOUT_REVERSED, LAYOUT_MIXED};
    layout how = PICK(layouts);
    const int64_t *n = v->size;
    if (output) return attn_view_of(make_out_of(type, how, v->rank, n[0], n[1], n[2], n[3]));
    attn_view w = make_view(type, how, v->rank, n[0], n[1], n[2], n[3]);
    convert(v, &w);
    return w;
}
static slot *slot_of(const char *name) {
    for (int n = 0; n < slot_count; n++)
        if (!strcmp(slots[n].name, name)) return &slots[n];
    return 0;
}
/* Random codes and scales: what they mean is made of them. quarters: keys whose distances to queries are exact. */
static void as_codes(slot *s, slot *scales, int quarters) {
    attn_view v = get_view(s);
    if (!scales || v.rank != 4 || v.type != ATTN_F32) return;
    int64_t groups = one_in(2) || v.size[3] == 0 ? 1 : (v.size[3] + 31) / 32;
    attn_view codes = make_view(ATTN_I8, LAYOUT_MIXED, 4, v.size[0], v.size[1], v.size[2], v.size[3]),
              scale = make_view(one_in(2) ? ATTN_F32 : ATTN_F16, one_in(2) ? LAYOUT_PACKED : LAYOUT_MIXED, 4, v.size[0],
                                v.size[1], v.size[2], groups);
    int64_t index[4] = {0, 0, 0, 0};
    if (elements_of(&codes)) do
            put(&codes, offset_of(&codes, index), quarters ? test_int(-4, 4) : test_int(-128, 127));
        while (next_index(&codes, index));
    memset(index, 0, sizeof index);
    if (elements_of(&scale)) do
            put(&scale, offset_of(&scale, index), quarters ? 0.25 : 0.02 * test_uniform());
        while (next_index(&scale, index));
    set_view(s, codes);
    set_view(scales, scale);
}
/* Of a factor of a product the columns have scales. */
static void as_codes_of_columns(slot *s, slot *scales) {
    set_view(s, last_swapped(get_view(s)));
    as_codes(s, scales, 0);
    set_view(s, last_swapped(get_view(s)));
}
static int reads_results(const job *j) { return j->e->slots == slots_backward || j->e->slots == slots_key_sums; }
static void retype(job *j) {
    int adds = j->adds || j->c.g.accumulate || j->hg.accumulate, results = !adds || one_in(2),
        exact = ref_is_distance(j->c.d.score);
    j->typed = 1;
    j->no_twin = (adds && results) || j->in_place; /* what was there is rounded, too, or is there no more */
    if (one_in(3) && j->e->check == check_forward) as_codes(slot_of("k"), slot_of("k_scale"), exact);
    if (one_in(3) && j->e->check == check_forward) as_codes(slot_of("v"), slot_of("v_scale"), 0);
    if (one_in(3) && j->e->check == check_bmm) as_codes_of_columns(slot_of("b"), slot_of("k_scale"));
    if (one_in(3) && j->e->check == check_scores) as_codes(slot_of("k"), slot_of("k_scale"), exact);
    for (int n = 0; n < slot_count; n++) {
        slot *s = &slots[n];
        attn_view v = get_view(s);
        int32_t type = draw_type();
        if (v.rank < 1 || v.type != ATTN_F32 || is_always_f32(s) || type == ATTN_F32) continue;
        if (strstr(s->name, "_scale") && !strstr(s->name, "d_")) continue;
        if (j->in_place && (!strcmp(s->name, "x") || !strcmp(s->name, "out"))) continue;
        if (s->output && !results) continue;
        attn_view w = as_type(&v, type, s->output);
        if (s->output && adds) convert(&v, &w);
        set_view(s, w);
    }
    if (reads_results(j) || adds) j->no_reference = 1; /* out and stats are of other inputs */
}
static attn_view meaning_of(const attn_view *v, const attn_view *scale) { /* of codes, as floats */
    attn_view w = make_view(ATTN_F32, LAYOUT_PACKED, 4, v->size[0], v->size[1], v->size[2], v->size[3]);
    int64_t i[4] = {0, 0, 0, 0};
    if (elements_of(v)) do {
            float unit = (float)ref_at(scale, i[0], i[1], i[2], scale->size[3] == 1 ? 0 : i[3] / 32);
            put(&w, offset_of(&w, i), (float)((const int8_t *)v->data)[offset_of(v, i)] * unit);
        } while (next_index(v, i));
    return w;
}
static void same_rounded(const attn_view *got, const attn_view *plain, const char *name) {
    int64_t i[4] = {0, 0, 0, 0};
    if (elements_of(got)) do {
            uint32_t have = bits_at(got, i), want = bits_at(plain, i);
            if (want == 0xFFFFFFFFu && have == (got->type == ATTN_F32 ? want : 0xFFFFu))
                continue; /* a row of no entry */
            if (is_float(got->type) && got->type != ATTN_F32)
                want = ref_half(got->type, ((const float *)plain->data)[offset_of(plain, i)]);
            if (!CHECKF(have == want, "%s[%ld,%ld,%ld,%ld] of type %d has the bits %x, with floats %x", name,
                        (long)i[0], (long)i[1], (long)i[2], (long)i[3], (int)got->type, (unsigned)have, (unsigned)want))
                return;
        } while (next_index(got, i));
}
static void set_workspace(job *j, size_t bytes, int kind);
/* The call with floats of the same values; it stays in j for the reference to look at. */
static void run_twin(job *j) {
    attn_view had[80];
    attn_error err;
    char text[300];
    for (int n = 0; n < slot_count; n++) had[n] = get_view(&slots[n]);
    for (int n = 0; n < slot_count; n++) {
        slot *s = &slots[n];
        attn_view v = had[n];
        const slot *scale = v.type == ATTN_I8 ? slot_of(!strcmp(s->name, "v") ? "v_scale" : "k_scale") : 0;
        int columns = !strcmp(s->name, "b");
        if (v.rank < 1 || (!is_float(v.type) && !scale)) continue;
        if (scale) {
            attn_view of = get_view(scale), rows = columns ? last_swapped(v) : v, floats = meaning_of(&rows, &of);
            set_view(s, columns ? last_swapped(floats) : floats);
        } else if (s->output && (!j->in_place || strcmp(s->name, "out"))) {
            memory *m = elements_of(&v) ? block_of(v.data) : 0;
            attn_view w = as_type(&v, ATTN_F32, 1), before = v;
            if (m && v.type == ATTN_F32) { /* it may be added to */
                before.data = m->copy + ((const unsigned char *)v.data - m->data);
                convert(&before, &w);
            }
            set_view(s, w);
        } else if (v.type != ATTN_F32) {
            attn_view w = make_view(ATTN_F32, LAYOUT_PACKED, v.rank, v.size[0], v.size[1], v.size[2], v.size[3]);
            convert(&v, &w);
            set_view(s, w);
        }
    }
    for (int n = 0; n < slot_count; n++)
        if (!strcmp(slots[n].name, "k_scale") || !strcmp(slots[n].name, "v_scale")) set_view(&slots[n], no_view);
    set_workspace(j, 0, 0);
    j->h.saved = 0, j->h.saved_bytes = 0; /* that of other types would be refused */
    attn_status st = j->e->run(j, &err);
    attn_error_string(&err, text, sizeof text);
    if (!CHECKF(st == ATTN_OK, "accepted, but not with floats: %s", text)) return;
    for (int n = 0; n < slot_count; n++) {
        attn_view v = get_view(&slots[n]);
        if (slots[n].output && had[n].rank > 0) same_rounded(&had[n], &v, slots[n].name);
    }
    if (!j->no_reference && !now.failures) j->e->check(j);
    for (int n = 0; n < slot_count; n++) set_view(&slots[n], had[n]);
}

/* ---- one thing wrong. What must become of the call: */
enum { ACCEPTED, REFUSED, EITHER };
static const int64_t strange[] = {INT64_MIN, INT64_MIN + 1, -((int64_t)1 << 40), -1, 0, (int64_t)1 << 40, INT64_MAX};

static int is_int(int32_t type) { return type == ATTN_I32 || type == ATTN_I64; }
/* q and k of a constant score are not read: their data does not count. */
static int is_unread(const job *j, const slot *s) {
    return j->c.d.score == ATTN_SCORE_CONSTANT &&
           (!strcmp(s->name, "q") || !strcmp(s->name, "k") || !strcmp(s->name, "k_scale"));
}

static int has_sequences(void) {
    const slot *of[3] = {slot_of("query_starts"), slot_of("key_starts"), slot_of("page_table")};
    for (int n = 0; n < 3; n++)
        if (of[n] && get_view(of[n]).rank) return 1;
    return 0;
}

static int break_rank(const slot *s, attn_view *v) {
    static const int32_t ranks[] = {-1, 5, 127, INT32_MIN, INT32_MAX, -4};
    (void)s;
    v->rank = PICK(ranks);
    return REFUSED;
}
static int break_type(const slot *s, attn_view *v) {
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F64, ATTN_U8,   ATTN_I32,
                                    ATTN_I64, ATTN_I8,  -1,        99,       INT32_MIN, INT32_MAX};
    int32_t old = v->type;
    v->type = PICK(types);
    if (is_int(old) && is_int(v->type)) v->type = ATTN_U8;
    if (is_float(old) && is_float(v->type) && !is_always_f32(s)) v->type = ATTN_U8;
    return v->type == old ? ACCEPTED : REFUSED;
}
static int break_size(const slot *s, attn_view *v) {
    static const int64_t sizes[] = {-1, INT64_MIN, -((int64_t)1 << 32)};
    (void)s;
    v->size[test_int(0, v->rank - 1)] = PICK(sizes);
    return REFUSED;
}
static int far_from_others(const slot *s, attn_view *v) {
    static const int64_t sizes[] = {(int64_t)1 << 31, (int64_t)1 << 40, (int64_t)1 << 61, INT64_MAX};
    int axis = test_int(0, v->rank - 1);
    if (s->output && !strcmp(s->name, "mask")) return ACCEPTED; /* its sizes are the call's */
    if (has_sequences() && strchr("kv", *s->name) && strlen(s->name) == 1) return ACCEPTED; /* a pool's are its own */
    if (!strcmp(s->name, "page_table") || strstr(s->name, "_starts")) return ACCEPTED;      /* and so are these */
    /* a table's numbers are its own; packed, a bias or a mask has any number of columns from the longest entry's on */
    if (!strcmp(s->name, "bias") && get_view(slot_of("bias_index")).rank) return ACCEPTED;
    if (has_sequences() && (!strcmp(s->name, "mask") || !strncmp(s->name, "bias", 4))) return ACCEPTED;
    v->size[axis] = PICK(sizes);
    return !strcmp(s->name, "v") ? EITHER : REFUSED; /* its columns are its own where there is no out */
}
static int break_stride(const slot *s, attn_view *v) {
    int axis = test_int(0, 3);
    v->stride[axis] = PICK(strange);
    if (axis >= v->rank || elements_of(v) == 0 || v->size[axis] == 1) return ACCEPTED;
    if (v->stride[axis] == INT64_MAX || v->stride[axis] <= INT64_MIN + 1) return REFUSED;
    if (v->stride[axis] == 0 && s->output) return REFUSED;
    v->stride[axis] = INT64_MAX / v->size[axis];
    return REFUSED;
}
static int break_data(const slot *s, attn_view *v) {
    (void)s;
    v->data = 0;
    return elements_of(v) ? REFUSED : ACCEPTED;
}
/* Not yet broken: its elements are in one block. */
static int is_whole(const attn_view *v) {
    int64_t low, high, bytes = (int64_t)type_bytes(v->type);
    memory *m;
    if (elements_of(v) > 100000 || !view_extent(v, &low, &high)) return 0;
    m = block_of((const char *)v->data + low * bytes);
    return m && m == block_of((const char *)v->data + high * bytes);
}
static int make_smaller(const slot *s, attn_view *v) {
    (void)s;
    if (v->rank < 1 || v->rank > 4) return EITHER;     /* what was broken before it has no axis to cut */
    if (elements_of(v) && !is_whole(v)) return EITHER; /* nor one that may become legal without memory of its own */
    int axis = test_int(0, v->rank - 1);
    int64_t most = v->size[axis] < 1 << 20 ? v->size[axis] : 1 << 20; /* it may be far, or negative */
    v->size[axis] = most > 1 ? test_int(0, (int)most - 1) : 0;
    return EITHER;
}
static int leave_out(const slot *s, attn_view *v) {
    (void)s;
    *v = no_view;
    return EITHER;
}

static int break_view(job *j) {
    static int (*const ways[])(const slot *, attn_view *) = {break_rank,   break_type, break_size,   far_from_others,
                                                             break_stride, break_data, make_smaller, leave_out};
    const slot *s = &slots[test_int(0, slot_count - 1)];
    attn_view v = get_view(s);
    int result;
    if (!v.rank && FUZZ_RULES >= 3 && one_in(2)) { /* data without a shape */
        v.data = test_guarded(4);
        result = REFUSED;
    } else if (v.rank < 0 || v.rank > 4) return EITHER; /* it is broken already */
    else if (!v.rank) result = break_rank(s, &v);
    else result = PICK(ways)(s, &v);
    set_view(s, v);
    if (is_unread(j, s)) return j->no_reference = j->no_repeat = 1, EITHER;
    return result;
}

static int overlap(job *j) {
    const slot *a = &slots[test_int(0, slot_count - 1)], *b = &slots[test_int(0, slot_count - 1)];
    for (int tries = 0; tries < 20 && !(a->output && is_there(a)); tries++) a = &slots[test_int(0, slot_count - 1)];
    for (int tries = 0; tries < 20 && !is_there(b); tries++) b = &slots[test_int(0, slot_count - 1)];
    if (a == b || !a->output || !is_there(a) || !is_there(b)) return ACCEPTED;
    attn_view v = get_view(a), other = get_view(b);
    v.data = other.data;
    if (type_bytes(v.type) > 1 && (uintptr_t)v.data % 4) return ACCEPTED;
    set_view(a, v);
    if (!strcmp(b->name, "x") || !strcmp(b->name, "given_scores")) { /* in place where all strides agree */
        j->no_reference = j->no_repeat = 1;
        return EITHER;
    }
    j->no_reference = 1;
    if (!strcmp(a->name, "carry_out") && !strcmp(b->name, "carry_in")) return j->no_repeat = 1, EITHER; /* in place */
    return is_unread(j, b) ? EITHER : REFUSED;
}

static int put_int(const attn_view *v, int64_t x) { /* into a random element; 0 where there is none */
    int64_t index[4] = {0, 0, 0, 0};
    if (v->rank < 1 || v->rank > 4 || !elements_of(v) || !is_int(v->type) || !is_whole(v)) return 0;
    for (int axis = 0; axis < v->rank; axis++) index[axis] = test_int(0, (int)v->size[axis] - 1);
    int64_t at = offset_of(v, index);
    if (v->type == ATTN_I64) ((int64_t *)(uintptr_t)v->data)[at] = x;
    else ((int32_t *)(uintptr_t)v->data)[at] = x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (int32_t)x;
    return 1;
}
static float odd_float(void) {
    const float odd[] = {NAN,    -NAN,    INFINITY, -INFINITY, 1e38f,  -1e38f,
                         1e-40f, -1e-40f, -0.0f,    3.4e38f,   1e-38f, odd_nan()};
    return PICK(odd);
}

static int break_mask_option(attn_desc *d) {
    static const int32_t enums[] = {-1, ATTN_ALIGN_COUNT, INT32_MIN, INT32_MAX};
    static const int64_t sides[] = {-2, INT64_MIN, -100}, legal[] = {INT64_MAX, 0, ATTN_UNBOUNDED, (int64_t)1 << 40};
    static const int64_t starts[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 40}, pages[] = {-1, 1000, INT64_MAX};
    static const int64_t origins[] = {-256, 1, 255, 257, INT64_MIN, INT64_MAX};
    switch (test_int(0, 11)) {
    case 0: d->align = PICK(enums); return REFUSED;
    case 1:
        d->window = 1;
        if (one_in(2)) d->window_left = PICK(sides);
        else d->window_right = PICK(sides);
        return REFUSED;
    case 2:
        d->window = one_in(2) ? 1 : INT32_MIN;
        d->window_left = PICK(legal);
        d->window_right = PICK(legal);
        return d->window == 1 || FUZZ_RULES < 3 ? ACCEPTED : REFUSED;
    case 3: /* with starts, the lengths of rows of no entry are not read */
        if (!put_int(&d->key_lengths, one_in(2) ? INT64_MAX : -1)) return ACCEPTED;
        return d->key_lengths.rank == 2 && has_sequences() ? EITHER : REFUSED;
    case 4: return put_int(&d->query_lengths, one_in(2) ? INT64_MIN : INT64_MAX) ? REFUSED : ACCEPTED;
    case 5: d->causal = one_in(2) ? -1 : INT32_MIN; return FUZZ_RULES >= 3 ? REFUSED : ACCEPTED;
    case 6: return put_int(one_in(2) ? &d->query_starts : &d->key_starts, PICK(starts)) ? REFUSED : ACCEPTED;
    case 7: return put_int(one_in(2) ? &d->query_starts : &d->key_starts, test_int(0, 9)) ? EITHER : ACCEPTED;
    case 8: return put_int(&d->page_table, PICK(pages)) ? EITHER : ACCEPTED; /* some are not read */
    case 9: d->key_origin = PICK(origins); return REFUSED;
    case 10: return put_int(&d->bias_index, one_in(2) ? INT64_MAX : 40) ? REFUSED : ACCEPTED; /* tables are smaller */
    default:
        if (d->window) return ACCEPTED;
        d->window_left = PICK(sides); /* numbers whose flag is 0 */
        return FUZZ_RULES >= 3 ? REFUSED : ACCEPTED;
    }
}
/* What cannot be added is refused; 0.2 had no rule. */
static int break_positions(job *j) {
    static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX - 2, INT64_MIN + 2, -1, (int64_t)1 << 40};
    attn_desc *d = &j->c.d;
    if (!put_int(&d->positions, PICK(far))) return ACCEPTED;
    j->no_reference |= FUZZ_RULES < 3;
    return EITHER;
}
static int break_weights_option(attn_desc *d) {
    static const float wrong[] = {-0.001f, 1.001f, NAN, INFINITY, -INFINITY, -1e30f};
    if (one_in(2)) {
        for (int n = 0; n < 4; n++) d->dropout_origin[n] = PICK(strange);
        d->seed = test_bits();
        return ACCEPTED;
    }
    d->dropout = PICK(wrong);
    return REFUSED;
}
static int break_score_option(attn_desc *d) {
    static const int32_t enums[] = {-1, ATTN_SCORE_COUNT, INT32_MIN, INT32_MAX};
    float x = odd_float();
    switch (test_int(0, 4)) {
    case 0: d->score = PICK(enums); return REFUSED;
    case 1:
        d->scale = x;
        if (ref_is_kernel(d->score)) return x == 0 ? ACCEPTED : REFUSED;
        return isfinite(x) ? EITHER : REFUSED;
    case 2: d->sigma = x; return x == 0 ? EITHER : REFUSED; /* none is a width */
    case 3: d->softcap = x; return (isfinite(x) && x >= 0) ? EITHER : REFUSED;
    default: {
        static const int32_t empty[] = {-1, ATTN_EMPTY_COUNT, INT32_MAX};
        d->empty = PICK(empty);
        return REFUSED;
    }
    }
}
static int break_hook(attn_desc *d) {
    static const int32_t wrong[] = {-1, ATTN_ISA_COUNT, INT32_MIN, INT32_MAX};
    switch (test_int(0, 3)) {
    case 0: d->isa = PICK(wrong); return REFUSED;
    case 1: d->reserved = PICK(wrong); return REFUSED;
    case 2: d->parallel.workers = one_in(2) ? -1 : INT32_MIN; return REFUSED;
    default: d->parallel.workers = INT32_MAX; return EITHER;
    }
}
/* The sizes that causal looks at; 0 where this call has no such thing. */
static int queries_and_keys(int64_t *queries, int64_t *keys) {
    *queries = *keys = -1;
    for (int n = 0; n < slot_count; n++) {
        attn_view v = get_view(&slots[n]);
        const char *name = slots[n].name;
        int whole = !strcmp(name, "x") || !strcmp(name, "given_scores") || (slots[n].output && !strcmp(name, "mask"));
        if (v.rank < 1 || v.rank > 4) continue;
        if (whole) *queries = v.rank > 1 ? v.size[v.rank - 2] : 1, *keys = v.size[v.rank - 1];
        if (!strcmp(name, "q") || !strcmp(name, "query")) *queries = v.size[v.rank - 2];
        if (!strcmp(name, "k") || !strcmp(name, "key")) *keys = v.size[v.rank - 2];
        if (!strcmp(name, "query") && *keys < 0) *keys = *queries; /* itself, unless a key follows */
    }
    return *queries >= 0 && *keys >= 0;
}
/* What is new with 0.3. */
static int break_rule_3(job *j) {
    attn_desc *d = &j->c.d;
    int64_t queries, keys;
    int which = test_int(0, 3);
#if FUZZ_RULES >= 3
    static const uint64_t wrong[] = {1, 8, offsetof(attn_desc, stream), sizeof *d + 1};
    if (which == 0) d->struct_bytes = PICK(wrong);
    if (which == 0) return REFUSED;
    if (which == 1) d->struct_bytes = sizeof *d;
#endif
    if (FUZZ_RULES >= 3 && which == 2 && j->e->options & OPTIONS_MASK && queries_and_keys(&queries, &keys)) {
        d->align = 0;
        d->causal = 1;
        if (d->carry_in.rank || d->carry_out.rank || d->key_origin) return REFUSED;
        if (has_sequences()) return d->positions.rank ? REFUSED : EITHER; /* it is the entries' sizes that count */
        return d->positions.rank || queries != keys ? REFUSED : ACCEPTED;
    }
    if (FUZZ_RULES < 3 || which != 3 || j->e->slots != slots_forward || d->weights.rank) return ACCEPTED;
    d->weights_after_dropout = 1;
    d->dropout = 0.5f;
    return REFUSED;
}
static int break_option(job *j) {
    attn_desc *d = &j->c.d;
    int which = 1 << test_int(0, 4), result = ACCEPTED;
    if (!(which == 16 ? j->e->options : j->e->options & which)) return ACCEPTED;
    j->no_reference |= reads_results(j); /* its out and stats are of other options */
    if (which == 16) return break_rule_3(j);
    if (which == OPTIONS_MASK) result = one_in(4) ? break_positions(j) : break_mask_option(d);
    if (which == OPTIONS_WEIGHTS) result = break_weights_option(d);
    if (which == OPTIONS_SCORE) result = break_score_option(d);
    if (which == OPTIONS_HOOKS) result = break_hook(d);
    if (which == OPTIONS_SCORE && result == EITHER) j->no_reference = 1;
    if (d->parallel.workers == INT32_MAX) j->no_repeat = 1;
    return result;
}
static int break_something(job *j) {
    static int (*const ways[])(job *) = {break_view, break_view, overlap, break_option, break_option};
    int result = ACCEPTED, before = ACCEPTED;
    for (int times = one_in(5) ? 2 : 1; times > 0; times--, before = EITHER) {
        int (*const way)(job *) = PICK(ways);
        result = way(j);
        if (way == overlap) times = 1; /* the other view must stay, for the result has no memory of its own */
        if (before == EITHER) j->no_reference = 1, result = EITHER; /* one may make the other one good */
    }
    return result;
}
/* Numbers that no bound covers: the bits must be the same all the same. */
static void put_odd_numbers(job *j) {
    for (int times = test_int(1, 4); times > 0; times--) {
        const slot *s = &slots[test_int(0, slot_count - 1)];
        attn_view v = get_view(s);
        int64_t index[4] = {0, 0, 0, 0};
        if (s->output || !is_there(s) || !is_float(v.type) || !strcmp(s->name, "sigma_per_head")) continue;
        if (!strcmp(s->name, "carry_in")) continue; /* it has what a call left there */
        for (int axis = 0; axis < v.rank; axis++) index[axis] = test_int(0, (int)v.size[axis] - 1);
        if (v.type != ATTN_F32) put(&v, offset_of(&v, index), odd_float());
        else put_float(&v, index[0], index[1], index[2], index[3], odd_float());
        j->no_reference = 1;
    }
}

/* ---- a call and what must hold of it */
static struct { unsigned long long runs, accepted; } * counts; /* of each entry, shared with the process that watches */

static void set_workspace(job *j, size_t bytes, int kind) {
    attn_desc *d = &j->c.d;
    memset(&d->allocator, 0, sizeof d->allocator);
    d->workspace = 0;
    d->workspace_bytes = 0;
    if (bytes > (size_t)1 << 26) kind = 1; /* the allocator refuses that much */
    if (kind == 1) d->allocator.allocate = hand_out, d->allocator.release = take_back;
    if (kind == 2) d->workspace = take_scratch(bytes), d->workspace_bytes = bytes;
}
static int workspace_kept_its_size(void) { /* nothing below it was written */
    for (memory *m = blocks; m < blocks + block_count; m++)
        for (unsigned char *p = m->base; m->scratch && p < m->data; p++)
            if (*p != 0xFF) return 0;
    return 1;
}
static void mark_results(void) {
    for (memory *m = blocks; m < blocks + block_count; m++) m->written = 0;
    for (int n = 0; n < slot_count; n++) {
        attn_view v = get_view(&slots[n]);
        memory *m = slots[n].output && is_there(&slots[n]) ? block_of(v.data) : 0;
        if (m) m->written = 1;
    }
}
/* Refusals that tell of data or of memory, which the question for the size does not look at. */
static int is_about_data(attn_status st, const char *field) {
    return st == ATTN_ERR_OVERLAP || st == ATTN_ERR_WORKSPACE || st == ATTN_ERR_ALLOC ||
           !strcmp(field, "weights_after_dropout") || /* nor at results */
           (st == ATTN_ERR_NULL && (strstr(field, ".data") || !strcmp(field, "out") || !strcmp(field, "scores")));
}
static void check_refusal(attn_status st, const attn_error *err) {
    char text[300];
    size_t length = attn_error_string(err, text, sizeof text);
    CHECKF(st > ATTN_OK && st < ATTN_STATUS_COUNT && err->status == (int32_t)st, "status %d, in the error %d", (int)st,
           (int)err->status);
    CHECKF(err->field && *err->field && err->rule && *err->rule, "a refusal without field or rule");
    CHECKF(length == strlen(text) && length > 3, "\"%s\"", text);
    CHECKF(blocks_unchanged(1), "refused (%s), yet something was written", text);
}
static void check_size(job *j, attn_status st, const attn_error *err, attn_status size_st, const attn_error *size_err) {
    char text[300];
    attn_error_string(size_st == ATTN_OK ? err : size_err, text, sizeof text);
    if (st == ATTN_OK) CHECKF(size_st == ATTN_OK, "accepted, but the question for its workspace is refused: %s", text);
    else if (size_st == ATTN_OK)
        CHECKF(is_about_data(st, err->field), "refused, but not the question for its workspace: %s", text);
    (void)j;
}
/* In what was written each NaN is the one NaN, so that the filling is none; between elements the filling stays. */
static void check_results_written(void) {
    for (int n = 0; n < slot_count; n++) {
        attn_view v = get_view(&slots[n]);
        attn_out o = as_out(v);
        int64_t index[4] = {0, 0, 0, 0};
        if (!slots[n].output || !is_there(&slots[n]) || !is_float(v.type)) continue;
        CHECKF(gaps_untouched(&o), "wrote between the elements of %s", slots[n].name);
        if (has_sequences() && v.rank > 2 && v.size[0] == 1) continue; /* rows of no entry keep the filling */
        do {
            uint32_t bits = bits_at(&v, index);
            if (v.type == ATTN_F16) bits = (bits & 0x7fffu) > 0x7c00u ? bits << 16 ^ 0x01c00000u : 0; /* as a float's */
            if (v.type == ATTN_BF16) bits <<= 16;
            if ((bits & 0x7fffffffu) <= 0x7f800000u || bits == 0x7fc00000u) continue;
            CHECKF(0, "%s[%ld,%ld,%ld,%ld] has the bits %08x", slots[n].name, (long)index[0], (long)index[1],
                   (long)index[2], (long)index[3], (unsigned)bits);
            break;
        } while (next_index(&v, index));
    }
}

/* --once says what is called. */
static int verbose;
static void describe(const job *j, int expected) {
    static const char *const outcomes[] = {"must be accepted", "must be refused", "may be either"};
    const attn_desc *d = &j->c.d;
    if (!verbose) return;
    printf("%s, which %s\n", j->e->name, outcomes[expected]);
    for (int n = 0; n < slot_count; n++) {
        attn_view v = get_view(&slots[n]);
        if (!v.rank && !v.data) continue;
        printf("    %c %-14s type %d rank %d", slots[n].output ? '>' : '<', slots[n].name, v.type, v.rank);
        for (int axis = 0; axis < v.rank && axis < 4; axis++)
            printf("%s%lld x %lld", axis ? ", " : ": ", (long long)v.size[axis], (long long)v.stride[axis]);
        printf("%s\n", v.data ? "" : "  NULL");
    }
    printf("    score %d scale %g (%d) sigma %g softcap %g causal %d align %d window %d [%lld, %lld] empty %d\n",
           d->score, (double)d->scale, d->scale_set, (double)d->sigma, (double)d->softcap, d->causal, d->align,
           d->window, (long long)d->window_left, (long long)d->window_right, d->empty);
    printf("    dropout %g (%d) isa %d workers %d%s workspace %lu, added to %x %x %x\n", (double)d->dropout,
           d->weights_after_dropout, d->isa, d->parallel.workers, d->parallel.run ? " in parallel" : "",
           (unsigned long)d->workspace_bytes, (unsigned)j->c.g.accumulate, (unsigned)j->hg.accumulate,
           (unsigned)j->adds);
    fflush(stdout);
}

static attn_status attempt(job *j, attn_error *err, int expected) {
    attn_error size_err;
    attn_status size_st = ATTN_OK, st;
    size_t bytes = 0;
    describe(j, expected);
    memset(err, 0x5A, sizeof *err);
    set_workspace(j, 0, 0);
    if (j->e->size) size_st = j->e->size(j, &bytes, &size_err);
    if (j->e->size) set_workspace(j, bytes, test_int(0, 2));
    mark_results();
    remember_blocks();
    allocations = releases = 0;
    st = j->e->run(j, err);
    CHECKF(allocations == releases && allocations <= 1, "%d allocations, %d releases", allocations, releases);
    CHECKF(workspace_kept_its_size(), "wrote below the workspace");
    if (st == ATTN_OK) {
        CHECKF(err->status == ATTN_OK && !*err->field && !*err->rule, "success, but the error says something");
        CHECKF(blocks_unchanged(0), "an input was changed");
        check_results_written();
    } else {
        check_refusal(st, err);
        CHECKF(j->e->run(j, 0) == st, "another status without attn_error");
    }
    if (j->e->size) check_size(j, st, err, size_st, &size_err);
    if (expected == ACCEPTED) {
        char text[300];
        attn_error_string(err, text, sizeof text);
        CHECKF(st == ATTN_OK, "a legal call is refused: %s", text);
    }
    if (expected == REFUSED) CHECKF(st != ATTN_OK, "accepted, which must be refused");
    return st;
}

/* One byte less than the workspace that is needed. */
static void attempt_short(job *j) {
    attn_error err;
    size_t bytes = 0;
    int by_tasks = j->e->run == run_plan_forward || j->e->run == run_plan_backward;
    set_workspace(j, 0, 0);
    if (!j->e->size || by_tasks || j->e->size(j, &bytes, 0) != ATTN_OK || bytes == 0) return;
    set_workspace(j, bytes - 1, 2);
    remember_blocks();
    attn_status st = j->e->run(j, &err);
    CHECKF(st == ATTN_ERR_WORKSPACE, "a workspace that is one byte short: \"%s\"", attn_status_string(st));
    check_refusal(st, &err);
    CHECK(workspace_kept_its_size());
}

/* ---- the same call again in another way */
static void relocate_input(const slot *s) {
    static const layout layouts[] = {LAYOUT_PACKED, LAYOUT_BSHD, LAYOUT_GAPS, LAYOUT_REVERSED, LAYOUT_MIXED};
    attn_view v = get_view(s);
    double elements = 1; /* of a call that reads nothing a view may be as large as it likes */
    for (int n = 0; n < v.rank && n < 4; n++) elements *= (double)v.size[n];
    if (is_there(s) && v.data && !one_in(3) && elements < 1e8) set_view(s, copy_view(&v, PICK(layouts)));
}
static void relocate_output(const slot *s) { /* what it held before comes along */
    static const layout layouts[] = {LAYOUT_PACKED, LAYOUT_BSHD, LAYOUT_GAPS, LAYOUT_MIXED};
    attn_view v = get_view(s), before = v, fresh;
    memory *m = block_of(v.data);
    if (!is_there(s) || !m) return;
    before.data = m->copy + ((const unsigned char *)v.data - m->data);
    fresh = v;
    set_strides(&fresh, PICK(layouts));
    for (int axis = 0; axis < 4; axis++)
        fresh.stride[axis] = fresh.stride[axis] < 0 ? -fresh.stride[axis] : fresh.stride[axis];
    take_memory(&fresh);
    int64_t index[4] = {0, 0, 0, 0};
    size_t bytes = type_bytes(v.type);
    do
        memcpy((char *)(uintptr_t)fresh.data + offset_of(&fresh, index) * (int64_t)bytes,
               (const char *)before.data + offset_of(&before, index) * (int64_t)bytes, bytes);
    while (next_index(&v, index));
    set_view(s, fresh);
}
static void same_elements(const attn_view *a, const attn_view *b, const char *name) {
    int64_t index[4] = {0, 0, 0, 0};
    size_t bytes = type_bytes(a->type);
    do {
        const char *x = (const char *)a->data + offset_of(a, index) * (int64_t)bytes,
                   *y = (const char *)b->data + offset_of(b, index) * (int64_t)bytes;
        uint32_t p = 0, q = 0;
        memcpy(&p, x, bytes);
        memcpy(&q, y, bytes);
        if (p == q) continue;
        CHECKF(0, "%s[%ld,%ld,%ld,%ld] has the bits %08x, in another way %08x", name, (long)index[0], (long)index[1],
               (long)index[2], (long)index[3], (unsigned)p, (unsigned)q);
        return;
    } while (next_index(a, index));
}
static void repeat(job *j) {
    attn_view first[80];
    attn_error err;
    for (int n = 0; n < slot_count; n++) {
        first[n] = get_view(&slots[n]);
        if (!slots[n].output) relocate_input(&slots[n]);
        else relocate_output(&slots[n]);
    }
    if (j->c.d.parallel.workers >= 0) draw_run(&j->c.d);
    if (attempt(j, &err, ACCEPTED) != ATTN_OK) return;
    for (int n = 0; n < slot_count; n++) {
        attn_view v = get_view(&slots[n]);
        if (slots[n].output && is_there(&slots[n])) same_elements(&first[n], &v, slots[n].name);
    }
}

/* The sentence about a call: the same length whatever the room, and "refused" where the size is. */
static void check_explained(job *j) {
    int backward = j->e->slots == slots_backward;
    size_t bytes, length, room;
    set_workspace(j, 0, 0);
    attn_status st = j->e->size(j, &bytes, 0);
    length = backward ? attn_explain_backward(&j->c.d, &j->c.g, 0, 0) : attn_explain(&j->c.d, 0, 0);
    room = one_in(2) ? length + 1 : (size_t)test_int(0, (int)length + 1);
    char *text = (char *)test_guarded(room);
    size_t again = backward ? attn_explain_backward(&j->c.d, &j->c.g, text, room) : attn_explain(&j->c.d, text, room);
    CHECKF(again == length && length > 10, "a sentence of %lu bytes, then of %lu", (unsigned long)length,
           (unsigned long)again);
    if (room == 0) return;
    CHECKF(strlen(text) == (length < room ? length : room - 1), "a sentence that is cut in the wrong place");
    if (room < 9) return;
    CHECKF((strncmp(text, "refused:", 8) == 0) == (st != ATTN_OK), "\"%s\", but the size: %s", text,
           attn_status_string(st));
}

static void run_entry(const entry *e, int number) {
    job j;
    attn_error err;
    int expected = ACCEPTED, far = e->build_far && one_in(10);
    memset(&j, 0, sizeof j);
    j.e = e;
    now.name = e->name;
    slot_count = 0;
    now.entry = number;
    counts[number].runs++;
    if (e->alone) {
        e->alone(&j);
        return;
    }
    (far ? e->build_far : e->build)(&j);
    if (now.failures) return;
    e->slots(&j);
    if (far) expected = EITHER, j.no_reference = j.no_repeat = 1;
    else {
        if (one_in(3)) retype(&j);
        if (one_in(8)) put_odd_numbers(&j);
        if (one_in(2)) expected = break_something(&j);
        else if (one_in(8)) attempt_short(&j);
        j.no_reference |= expected != ACCEPTED && reads_results(&j); /* out and stats are not of this call */
    }
    attn_status st = attempt(&j, &err, expected);
    if (st == ATTN_OK) counts[number].accepted++;
    if (st == ATTN_OK && j.typed && expected == ACCEPTED && !j.no_twin && !now.failures) run_twin(&j);
    else if (st == ATTN_OK && (!j.typed || j.in_place) && !j.no_reference && !now.failures) e->check(&j);
    if (st == ATTN_OK && !j.no_repeat && !now.failures) repeat(&j);
    if ((e->run == run_forward || e->run == run_backward) && one_in(4)) check_explained(&j);
}

/* ---- exp, log, tanh */
static void run_elementary(job *j) {
    int function = one_in(8) ? test_int(-2, 5) : test_int(0, 2), isa = one_in(8) ? test_int(-1, ATTN_ISA_COUNT) : 0;
    int64_t n = one_in(8) ? -test_int(1, 1000) : test_int(0, 70), count = n > 0 ? n : 0;
    int wrong = function < 0 || function > 2 || isa < 0 || isa >= ATTN_ISA_COUNT || n < 0;
    float *x = (float *)test_guarded((size_t)count * 4), *y = one_in(2) ? x : (float *)test_guarded((size_t)count * 4);
    float copy[70];
    for (int64_t i = 0; i < count; i++) {
        x[i] = one_in(2) ? (float)(20 * test_normal()) : float_of_bits((uint32_t)test_bits());
        copy[i] = x[i];
    }
    remember_blocks();
    if (!isa) isa = (int)isas[test_int(0, isa_count - 1)];
    attn_status st = attn_elementary(function, x, y, n, (attn_isa)isa);
    (void)j;
    if (wrong) CHECKF(st != ATTN_OK && blocks_unchanged(1), "accepted, or written to, for nothing");
    if (wrong || st == ATTN_ERR_ISA) return;
    CHECK_STATUS(st, ATTN_OK);
    counts[now.entry].accepted++;
    for (int64_t i = 0; i < count; i++)
        CHECKF(elementary_ulps(function, copy[i], y[i]) <= 2 && !elementary_odd_nan(y[i]), "%s(%.9g) is %.9g",
               elementary_names[function], (double)copy[i], (double)y[i]);
}

/* ---- conversions, rows as codes, blocks of q8_0 */
static attn_view draw_array(int32_t type, const int64_t *n, int rank, int output) {
    attn_view v;
    if (output) {
        static const layout layouts[] = {LAYOUT_PACKED, LAYOUT_BSHD, LAYOUT_GAPS, LAYOUT_MIXED};
        return attn_view_of(make_out_of(type, PICK(layouts), rank, n[0], n[1], n[2], n[3]));
    }
    v = make_view(type, (layout)test_int(0, LAYOUT_COUNT - 1), rank, n[0], n[1], n[2], n[3]);
    fill(&v, draw_normal, 0, one_in(4) ? 1e-6 : one_in(4) ? 1e5 : 1);
    return v;
}
/* One thing wrong with one of the views; what becomes of it is a status, and nothing written. */
static int break_one(attn_view *const *views, int count) {
    attn_view *v = views[test_int(0, count - 1)];
    static const int32_t types[] = {ATTN_U8, ATTN_I32, ATTN_I64, -1, ATTN_TYPE_COUNT, INT32_MAX};
    if (!one_in(4)) return ACCEPTED;
    switch (test_int(0, 4)) {
    case 0: v->type = PICK(types); return REFUSED;
    case 1: v->rank = one_in(2) ? 5 : -1; return REFUSED;
    case 2: v->size[test_int(0, v->rank - 1)] = -1; return REFUSED;
    case 3:
        if (!elements_of(v)) return ACCEPTED;
        v->data = 0;
        return REFUSED;
    default: {
        int axis = test_int(0, v->rank - 1);
        if (!elements_of(v)) return ACCEPTED; /* nor may one become legal without memory of its own */
        v->size[axis]--;
        if (count == 3 && v == views[2] && axis == 3) return EITHER; /* of two scales one may be left, for the row */
        return v->size[axis] == 0 && count == 1 ? EITHER : REFUSED;
    }
    }
}
static int refused_as_it_must(attn_status st, const attn_error *err, int expected) {
    char text[300];
    attn_error_string(err, text, sizeof text);
    if (st != ATTN_OK) check_refusal(st, err);
    if (expected == REFUSED) CHECKF(st != ATTN_OK, "accepted, which must be refused");
    if (expected == ACCEPTED) CHECKF(st == ATTN_OK, "a legal call is refused: %s", text);
    counts[now.entry].accepted += st == ATTN_OK;
    return st != ATTN_OK || expected != ACCEPTED;
}
static void draw_sizes(int64_t *n, int rank) {
    for (int axis = 0; axis < 4; axis++) n[axis] = axis >= rank ? 0 : one_in(12) ? 0 : test_int(1, axis ? 9 : 3);
    n[rank - 1] = draw_size(40);
}
static void run_convert(job *j) {
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F64};
    int rank = test_int(1, 4);
    int64_t n[4], i[4] = {0, 0, 0, 0};
    attn_error err;
    (void)j;
    draw_sizes(n, rank);
    attn_view from = draw_array(PICK(types), n, rank, 0), to = draw_array(PICK(types), n, rank, 1);
    attn_view *views[2];
    views[0] = &from, views[1] = &to;
    if (elements_of(&from) && one_in(3)) put(&from, offset_of(&from, i), odd_float());
    int expected = break_one(views, 2);
    remember_blocks();
    attn_desc options;
    attn_status st = one_in(2) ? attn_convert(from, as_out(to), &err)
                               : attn_convert_with(from, as_out(to), draw_spare(&options), &err);
    if (refused_as_it_must(st, &err, expected)) return;
    attn_out o = as_out(to);
    CHECKF(gaps_untouched(&o), "wrote between the elements");
    if (elements_of(&from)) do {
            const char *at = (const char *)from.data + offset_of(&from, i) * (int64_t)type_bytes(from.type);
            double x, got;
            float f;
            uint16_t h;
            if (from.type == ATTN_F64) memcpy(&x, at, 8);
            else if (from.type == ATTN_F32) memcpy(&f, at, 4), x = f;
            else memcpy(&h, at, 2), x = ref_of_half(from.type, h);
            at = (const char *)to.data + offset_of(&to, i) * (int64_t)type_bytes(to.type);
            if (to.type == ATTN_F64) {
                memcpy(&got, at, 8);
                CHECKF(isnan(x) ? isnan(got) : got == x, "%.17g became %.17g", x, got);
                continue;
            }
            uint32_t bits = bits_at(&to, i), want = 0x7fc00000u;
            f = (float)x;
            if (to.type != ATTN_F32) want = ref_half(to.type, x);
            else if (!isnan(x)) memcpy(&want, &f, 4);
            if (!CHECKF(bits == want, "%.17g has the bits %x, want %x", x, (unsigned)bits, (unsigned)want)) return;
        } while (next_index(&from, i));
}
static void run_quantize(job *j) {
    int64_t n[4], i[4] = {0, 0, 0, 0}, sizes[4];
    attn_error err;
    (void)j;
    draw_sizes(n, 4);
    memcpy(sizes, n, sizeof sizes);
    int grouped = one_in(2) && n[3] > 0, half = one_in(2);
    sizes[3] = grouped ? (n[3] + 31) / 32 : 1;
    attn_view from = draw_array(draw_type(), n, 4, 0), codes = draw_array(ATTN_I8, n, 4, 1),
              scale = draw_array(half ? ATTN_F16 : ATTN_F32, sizes, 4, 1), *views[3];
    views[0] = &from, views[1] = &codes, views[2] = &scale;
    if (elements_of(&from) && one_in(4)) put(&from, offset_of(&from, i), odd_float());
    int expected = break_one(views, 3);
    remember_blocks();
    attn_desc options;
    attn_status st = one_in(2) ? attn_quantize(from, as_out(codes), as_out(scale), &err)
                               : attn_quantize_with(from, as_out(codes), as_out(scale), draw_spare(&options), &err);
    if (refused_as_it_must(st, &err, expected)) return;
    attn_out a = as_out(codes), b = as_out(scale);
    CHECKF(gaps_untouched(&a) && gaps_untouched(&b), "wrote between the elements");
    if (elements_of(&scale)) do {
            int64_t first = grouped ? 32 * i[3] : 0, end = grouped && first + 32 < n[3] ? first + 32 : n[3], c;
            double most = 0, unit = ref_at(&scale, i[0], i[1], i[2], i[3]);
            for (c = first; c < end; c++) {
                double x = fabs(ref_at(&from, i[0], i[1], i[2], c));
                most = isfinite(x) && !isnan(most) ? fmax(most, x) : NAN;
            }
            double want = (float)most / 127.0f;
            if (half) want = ref_of_half(ATTN_F16, ref_half(ATTN_F16, want > 65504 ? 65504 : want));
            if (!CHECK_CLOSE(unit, want, 0)) return;
            for (c = first; c < end && unit > 0; c++) {
                const int64_t at[4] = {i[0], i[1], i[2], c};
                float exact = (float)ref_at(&from, i[0], i[1], i[2], c) / (float)unit;
                int got = (int8_t)bits_at(&codes, at);
                if (!CHECKF(got == (int)fmin(fmax(nearbyint(exact), -127), 127), "code %d of %g", got, (double)exact))
                    return;
            }
        } while (next_index(&scale, i));
}
static void run_unpack(job *j) {
    int64_t n[4], i[4] = {0, 0, 0, 0}, sizes[4];
    attn_error err;
    (void)j;
    draw_sizes(n, 4);
    n[3] = 32 * test_int(0, 4);
    memcpy(sizes, n, sizeof sizes);
    sizes[3] = n[3] / 32;
    attn_view codes = draw_array(ATTN_I8, n, 4, 1), scale = draw_array(one_in(2) ? ATTN_F16 : ATTN_F32, sizes, 4, 1),
              *views[2];
    size_t bytes = (size_t)(n[0] * n[1] * n[2] * sizes[3]) * 34;
    unsigned char *blocks_in = (unsigned char *)take_block(bytes, (size_t)test_int(0, 15))->data;
    for (size_t k = 0; k < bytes; k++) blocks_in[k] = (unsigned char)test_int(0, 255);
    views[0] = &codes, views[1] = &scale;
    int expected = break_one(views, 2);
    if (n[3] == 0) expected = EITHER; /* there is no size for the scales of no number */
    remember_blocks();
    attn_status st = attn_unpack_q8_0(blocks_in, as_out(codes), as_out(scale), &err);
    if (refused_as_it_must(st, &err, expected)) return;
    attn_out a = as_out(codes), b = as_out(scale);
    CHECKF(gaps_untouched(&a) && gaps_untouched(&b), "wrote between the elements");
    const unsigned char *block = blocks_in;
    if (elements_of(&scale)) do {
            double want = ref_of_half(ATTN_F16, (uint16_t)(block[0] | block[1] << 8));
            if (!CHECK_CLOSE(ref_at(&scale, i[0], i[1], i[2], i[3]), want, 0)) return;
            for (int c = 0; c < 32; c++) {
                const int64_t at[4] = {i[0], i[1], i[2], 32 * i[3] + c};
                if (!CHECKF(bits_at(&codes, at) == block[2 + c], "a code that is not the block's")) return;
            }
            block += 34;
        } while (next_index(&scale, i));
}

/* ---- views: against a model that does not overflow. A view is right, or of a kind that every call refuses. */
__extension__ typedef __int128 wide;
typedef struct model {
    wide size[4], stride[4], offset; /* in elements */
    int rank, bad;                   /* bad: of what is not there; must be refused */
    int overflowed;                  /* a product is beyond 2^60: may be refused */
} model;

static int fits(wide x) { return x < (wide)1 << 60 && x > -((wide)1 << 60); }
static model row_major(int rank, const int64_t n[4]) {
    model m;
    wide all = 1;
    memset(&m, 0, sizeof m);
    m.rank = rank;
    m.bad = rank < 1 || rank > 4;
    for (int axis = 3; axis >= 0 && !m.bad; axis--) {
        m.size[axis] = axis < rank ? n[axis] : 0;
        m.stride[axis] = axis >= rank ? 0 : axis == rank - 1 ? 1 : m.stride[axis + 1] * m.size[axis + 1];
        if (m.size[axis] < 0) m.bad = 1;
        m.overflowed |= !fits(m.stride[axis]);
        if (m.stride[axis] > (wide)1 << 90) m.stride[axis] = (wide)1 << 90; /* whatever: far too much */
    }
    for (int axis = 0; axis < rank && !m.bad; axis++) all *= all > (wide)1 << 60 ? m.size[axis] > 0 : m.size[axis];
    m.overflowed |= all >= (wide)1 << 60;
    return m;
}
static void model_swap(model *m, int a, int b) {
    if (m->bad || a < 0 || b < 0 || a >= m->rank || b >= m->rank) {
        m->bad = 1;
        return;
    }
    wide n = m->size[a], s = m->stride[a];
    m->size[a] = m->size[b], m->stride[a] = m->stride[b];
    m->size[b] = n, m->stride[b] = s;
}
static void model_slice(model *m, int axis, int64_t first, int64_t count) {
    if (m->bad || axis < 0 || axis >= m->rank || first < 0 || count < 0 || first + (wide)count > m->size[axis]) {
        m->bad = 1;
        return;
    }
    if (count > 0) m->offset += first * m->stride[axis];
    m->overflowed |= !fits(m->offset);
    m->size[axis] = count;
}
/* Would every call refuse it, from its own fields? */
static int is_refused(const attn_view *v) {
    wide elements = 1, below = 0, above = 1;
    if (v->rank < 0 || v->rank > 4) return 1;
    for (int axis = 0; axis < v->rank; axis++)
        if (v->size[axis] < 0) return 1;
    for (int axis = 0; axis < v->rank; axis++) {
        wide reach = ((wide)v->size[axis] - 1) * v->stride[axis];
        if (v->size[axis] == 0) return 0;
        elements = elements * v->size[axis] > (wide)1 << 62 ? (wide)1 << 62 : elements * v->size[axis];
        if (reach < 0) below -= reach;
        else above += reach;
    }
    return elements >= (wide)1 << 60 || (below + above) * (wide)type_bytes(v->type) >= (wide)1 << 62;
}
static void compare_view(const model *m, const attn_view *v, const void *base, const char *what) {
    wide bytes = (wide)type_bytes(v->type), moved = (wide)((intptr_t)v->data - (intptr_t)base), n = 1, reach = 0;
    int refused = is_refused(v);
    if (m->bad) {
        CHECKF(refused, "%s: of what is not there, yet it would be accepted", what);
        return;
    }
    if (refused && m->overflowed) return;
    for (int axis = 0; axis < m->rank; axis++) {
        n = n > (wide)1 << 62 && m->size[axis] ? n : n * m->size[axis];
        reach += m->size[axis] > 0 ? (m->size[axis] - 1) * m->stride[axis] : 0;
    }
    if (n == 0) return; /* without an element nothing but the sizes matters */
    if (n >= (wide)1 << 60 || reach * bytes >= (wide)1 << 62 || m->offset * bytes > INT64_MAX) {
        CHECKF(refused, "%s: too large, yet it would be accepted", what);
        return;
    }
    CHECKF(v->rank == m->rank && moved == m->offset * bytes, "%s: begins in the wrong place", what);
    for (int axis = 0; axis < m->rank; axis++)
        CHECKF(v->size[axis] == m->size[axis] && (m->size[axis] == 1 || v->stride[axis] == m->stride[axis]),
               "%s: axis %d has size %ld and stride %ld", what, axis, (long)v->size[axis], (long)v->stride[axis]);
}
static attn_view draw_view(model *m, void *base, const char **what) {
    static const char *const names[] = {"f32",  "u8",   "i32", "i64",      "out f32", "out u8",   "bhsd",
                                        "bshd", "rows", "qkv", "out rows", "typed",   "out typed"};
    static const attn_type types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F64, ATTN_I8};
    int64_t n[4], row = one_in(3) ? PICK(strange) : test_int(0, 50);
    int kind = test_int(0, 12), rank = one_in(6) ? test_int(-2, 6) : test_int(1, 4);
    for (int axis = 0; axis < 4; axis++) n[axis] = one_in(3) ? PICK(strange) : test_int(0, 5);
    if (rank == 0) rank = 1;
    if (row < 0) row = 0;
    *what = names[kind];
    *m = row_major(kind < 6 || kind > 10 ? rank : 4, n);
    if (kind >= 7 && kind <= 10) model_swap(m, 1, 2);
    if (kind == 8 || kind == 10) {
        m->stride[2] = row;
        m->stride[0] = n[1] > 0 && row > 0 ? (wide)n[1] * row : 0;
        m->overflowed |= !fits(m->stride[0]) || !fits(m->stride[2]);
    }
    switch (kind) {
    case 0: return attn_view_f32((float *)base, rank, n[0], n[1], n[2], n[3]);
    case 1: return attn_view_u8((uint8_t *)base, rank, n[0], n[1], n[2], n[3]);
    case 2: return attn_view_i32((int32_t *)base, rank, n[0], n[1], n[2], n[3]);
    case 3: return attn_view_i64((int64_t *)base, rank, n[0], n[1], n[2], n[3]);
    case 4: return attn_view_of(attn_out_f32((float *)base, rank, n[0], n[1], n[2], n[3]));
    case 5: return attn_view_of(attn_out_u8((uint8_t *)base, rank, n[0], n[1], n[2], n[3]));
    case 6: return attn_view_bhsd((float *)base, n[0], n[1], n[2], n[3]);
    case 7: return attn_view_bshd((float *)base, n[0], n[1], n[2], n[3]);
    case 8: return attn_view_rows((float *)base, n[0], n[1], n[2], n[3], row);
    case 11: return attn_view_typed(PICK(types), base, rank, n[0], n[1], n[2], n[3]);
    case 12: return attn_view_of(attn_out_typed(PICK(types), base, rank, n[0], n[1], n[2], n[3]));
    case 10: return attn_view_of(attn_out_rows((float *)base, n[0], n[1], n[2], n[3], row));
    default: break;
    }
    int which = one_in(6) ? test_int(-1, 4) : test_int(0, 2); /* memory [B,S,3,H,D] */
    if (which < 0 || which > 2) m->bad = 1;
    if (!m->bad)
        m->offset = which * m->size[1] * m->size[3] > (wide)1 << 90 ? (wide)1 << 90 : which * m->size[1] * m->size[3];
    m->stride[0] *= 3;
    m->stride[2] *= 3;
    m->overflowed |= !fits(m->stride[0]) || !fits(m->stride[2]) || !fits(m->offset);
    return attn_view_qkv((float *)base, which, n[0], n[1], n[2], n[3]);
}
static void run_views(job *j) {
    model m;
    const char *what;
    void *base = test_guarded(0);
    attn_view v = draw_view(&m, base, &what);
    (void)j;
    compare_view(&m, &v, base, what);
    for (int times = test_int(0, 4); times > 0; times--) {
        int a = one_in(8) ? test_int(-1, 5) : test_int(0, 3), b = one_in(8) ? test_int(-1, 5) : test_int(0, 3);
        if (one_in(3)) {
            v = attn_view_swap(v, a, b);
            model_swap(&m, a, b);
        } else {
            int64_t size = a >= 0 && a < 4 && v.size[a] > 0 ? v.size[a] : 1, first, count;
            first = one_in(4) ? PICK(strange) : one_in(2) ? 0 : (int64_t)(test_bits() % (uint64_t)size);
            count = one_in(4) ? PICK(strange) : test_int(0, 2);
            v = one_in(2) ? attn_view_slice(v, a, first, count)
                          : attn_view_of(attn_out_slice(as_out(v), a, first, count));
            model_slice(&m, a, first, count);
        }
        if (verbose)
            printf("    now %lld x %lld, %lld x %lld, %lld x %lld, %lld x %lld, rank %d, data + %lld\n",
                   (long long)v.size[0], (long long)v.stride[0], (long long)v.size[1], (long long)v.stride[1],
                   (long long)v.size[2], (long long)v.stride[2], (long long)v.size[3], (long long)v.stride[3], v.rank,
                   (long long)((intptr_t)v.data - (intptr_t)base));
        compare_view(&m, &v, base, what);
    }
    counts[now.entry].accepted += !is_refused(&v);
}

/* ---- pictures */
typedef struct sheet { /* a writer that keeps the beginning, and may fail */
    char *text;
    size_t length, room, fails_at;
} sheet;
static int put_on_sheet(void *user, const char *bytes, size_t count) {
    sheet *s = (sheet *)user;
    if (s->length + count > s->fails_at) return 1;
    for (size_t i = 0; i < count; i++, s->length++)
        if (s->length < s->room) s->text[s->length] = bytes[i];
    return 0;
}
static const char *draw_text(void) {
    static const char *const bits[] = {
        "a",  "Key",      "\xc3\xa9",     "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "<&\">'", "\x80", "\xff",
        "\n", "\x1b[31m", "\xe2\x80\xae", "\xcc\x81",     "\xe2\x80\x8b",     "]]>",    "%@",   "\x01"};
    int n = one_in(4) ? test_int(20, 40) : test_int(0, 5);
    char text[400];
    size_t length = 0;
    if (one_in(8)) return 0;
    for (int i = 0; i < n; i++) {
        const char *bit = PICK(bits);
        memcpy(text + length, bit, strlen(bit));
        length += strlen(bit);
    }
    text[length] = 0;
    return (const char *)memcpy(test_guarded(length + 1), text, length + 1);
}
static const char *const *draw_texts(int64_t n) {
    if (one_in(2) || n < 0 || n > 1000) return 0;
    const char **texts = (const char **)test_guarded((size_t)n * sizeof *texts);
    for (int64_t i = 0; i < n; i++) texts[i] = draw_text();
    return texts;
}
static double draw_value(double a, double b) {
    (void)a;
    (void)b;
    return one_in(8) ? (double)odd_float() : test_normal() * (one_in(4) ? 1e6 : 1);
}
static attn_heatmap draw_map(const attn_desc *of) {
    attn_heatmap map;
    int rank = test_int(2, 4);
    int64_t n[4] = {0, 0, 0, 0}, rows, columns, panels = 1;
    static const int32_t sides[] = {0, 0, 0, 300, 1000, 40, -1, INT32_MIN, INT32_MAX, 32767, 32768};
    memset(&map, 0, sizeof map);
    for (int axis = 0; axis < rank; axis++)
        n[axis] = one_in(10) ? 0 : axis < rank - 2 ? test_int(1, 2) : test_int(1, 7);
    if (one_in(6)) n[rank - 1 - test_int(0, 1)] = one_in(2) ? test_int(1, 3000) : far_size();
    if (of) map.values = attn_view_u8(0, 4, of->q.size[0], of->q.size[1], of->q.size[2], of->k.size[2]);
    else {
        attn_view shape_only = attn_view_f32(0, rank, n[0], n[1], n[2], n[3]);
        int32_t type = one_in(3) ? ATTN_U8 : ATTN_F32;
        if (count_of(rank, n[0], n[1], n[2], n[3]) > 100000) map.values = shape_only, map.values.data = test_guarded(0);
        else {
            map.values = make_view(type, (layout)test_int(0, LAYOUT_COUNT - 1), rank, n[0], n[1], n[2], n[3]);
            fill(&map.values, type == ATTN_U8 ? draw_int : draw_value, 0, 255);
            if (one_in(3)) {
                map.mask = make_view(ATTN_U8, (layout)test_int(0, LAYOUT_COUNT - 1), rank, n[0], n[1], n[2], n[3]);
                fill(&map.mask, draw_int, 0, 1);
            }
        }
    }
    map.mask_of = of;
    if (of) rank = 4;
    rows = map.values.size[rank - 2], columns = map.values.size[rank - 1];
    for (int axis = 0; axis < rank - 2; axis++) panels *= map.values.size[axis];
    map.title = draw_text(), map.x_label = draw_text(), map.y_label = draw_text();
    map.x_ticks = draw_texts(columns), map.y_ticks = draw_texts(rows), map.panel_titles = draw_texts(panels);
    map.colormap = one_in(16) ? PICK(sides) : test_int(0, ATTN_COLORMAP_COUNT - 1);
    map.terminal = one_in(16) ? PICK(sides) : test_int(0, ATTN_TERMINAL_COUNT - 1);
    if (one_in(3)) map.range_set = 1, map.range_min = odd_float(), map.range_max = one_in(2) ? odd_float() : 2;
    map.width = PICK(sides), map.height = PICK(sides);
    map.ticks_on_top = one_in(2), map.no_colorbar = one_in(2), map.numbers = one_in(2), map.cell_titles = one_in(3);
    return map;
}
static int is_utf8(const unsigned char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t more = s[i] < 0x80 ? 0 : s[i] >= 0xF0 ? 3 : s[i] >= 0xE0 ? 2 : 1;
        if (s[i] >= 0x80 && (s[i] < 0xC2 || s[i] > 0xF4)) return 0;
        for (i++; more > 0; more--, i++)
            if (i >= n || (s[i] & 0xC0) != 0x80) return 0;
    }
    return 1;
}
/* The text is what the kind promises. */
static void check_picture(int kind, const attn_heatmap *map, const sheet *s) {
    int width = 0, height = 0, header = 0;
    const char *bidi[] = {"\xe2\x80\xae", "\xe2\x80\xab"};
    if (kind == 2) {
        if (!CHECKF(sscanf(s->text, "P6\n%d %d\n255%n", &width, &height, &header) == 2 && header++, "no PPM")) return;
        CHECKF(s->length == (size_t)header + 3 * (size_t)width * (size_t)height, "%d x %d pixels in %lu bytes", width,
               height, (unsigned long)s->length);
        return;
    }
    if (s->length >= s->room) return;
    s->text[s->length] = 0;
    CHECKF(strlen(s->text) == s->length && is_utf8((const unsigned char *)s->text, s->length), "a text that is none");
    for (size_t i = 0; i < s->length; i++) {
        unsigned char c = (unsigned char)s->text[i];
        int colour = c == 0x1b && kind == 0 && map->terminal != ATTN_TERMINAL_ASCII && s->text[i + 1] == '[';
        if (!CHECKF(c >= 32 || c == '\n' || colour, "a control character %d", c)) return;
    }
    if (kind == 0) CHECKF(!strstr(s->text, "\x1b[31m"), "a label's own colours");
    if (kind == 1 || kind == 4) CHECKF(!strncmp(s->text, "<svg", 4) && strstr(s->text, "</svg>"), "no SVG");
    if (kind == 3)
        CHECKF(!strncmp(s->text, "<!DOCTYPE html>", 15) && !strcmp(s->text + s->length - 10, "</script>\n"), "no page");
    for (int n = 0; n < 2 && FUZZ_RULES >= 3; n++)
        CHECKF(!strstr(s->text, bidi[n]), "a label turns the text's direction");
}
/* Takes the data of a view that a picture of a mask reads; 1: of one that has elements, which must be refused. */
static int without_data(attn_desc *d) {
    attn_view *read[] = {&d->bias, &d->bias_index, &d->mask, &d->key_lengths, &d->query_lengths, &d->positions};
    attn_view *v = PICK(read);
    v->data = 0;
    return elements_of(v) > 0;
}
static void run_heatmap(job *j) {
    static attn_status (*const kinds[])(const attn_heatmap *, attn_writer, attn_error *) = {
        attn_heatmap_ansi, attn_heatmap_svg, attn_heatmap_ppm, attn_heatmap_html, attn_heatmap_lines_svg};
    enum { ROOM = 1 << 16, MOST = 1 << 23 };
    int kind = test_int(0, 4), far = 0;
    attn_desc d = draw_piece(ATTN_SCORE_DOT, draw_shape_small());
    d.weights_after_dropout = 0;
    attn_heatmap map = draw_map(one_in(5) ? &d : 0);
    sheet first = {(char *)test_guarded(ROOM), 0, ROOM, MOST}, again = {(char *)test_guarded(ROOM), 0, ROOM, MOST};
    attn_writer writer = {put_on_sheet, &first};
    attn_error err;
    /* Of what draw_map gives memory to nothing is that large; a mask's sizes are those of a call, and need no data. */
    if (map.values.rank < 0 || (!map.mask_of && elements_of(&map.values) > 100000)) far = 1;
    if (map.mask_of && one_in(4)) far |= without_data(&d);
    if (map.mask_of && one_in(16)) map.values.data = test_guarded(0), far = 1; /* which cannot count */
    add_slot(&map.values, "values", 0);
    if (map.mask.rank) add_slot(&map.mask, "mask", 0);
    if (one_in(16)) {
        int has_axes = map.values.rank >= 1 && map.values.rank <= 4;
        far |= (one_in(2) || !has_axes ? break_rank : break_size)(slots, &map.values) == REFUSED;
    }
    describe(j, far ? REFUSED : EITHER);
    if (verbose)
        printf("    kind %d%s colours %d terminal %d range %d [%g, %g] %d x %d pixels, no bar %d, numbers %d\n", kind,
               map.mask_of ? " of a mask" : "", map.colormap, map.terminal, map.range_set, (double)map.range_min,
               (double)map.range_max, map.width, map.height, map.no_colorbar, map.numbers);
    remember_blocks();
    attn_status st = kinds[kind](&map, writer, &err);
    if (st == ATTN_ERR_WRITE && first.length <= MOST) { /* it went on too long */
        int sides[2] = {0, 0}, two = kind == 2 ? sscanf(first.text, "P6\n%d %d", sides, sides + 1) : 0;
        if (FUZZ_RULES >= 3 && kind == 2)
            CHECKF(two == 2 && sides[0] <= 32767 && sides[1] <= 32767, "a PPM of %d x %d pixels", sides[0], sides[1]);
        return;
    }
    if (st != ATTN_OK) {
        check_refusal(st, &err);
        CHECKF(first.length == 0, "refused, yet %lu bytes came", (unsigned long)first.length);
        return;
    }
    CHECKF(!far, "accepted, which must be refused");
    counts[now.entry].accepted++;
    check_picture(kind, &map, &first);
    writer.user = &again;
    again.fails_at = one_in(2) ? (size_t)(test_bits() % (first.length + 1)) : MOST;
    st = kinds[kind](&map, writer, &err);
    CHECKF(st == (again.fails_at < first.length ? ATTN_ERR_WRITE : ATTN_OK), "\"%s\" with a writer that fails",
           attn_status_string(st));
    size_t both = again.length < ROOM ? again.length : ROOM - 1;
    CHECKF(again.length <= first.length && !memcmp(first.text, again.text, both), "two pictures of one map");
}

/* ---- sequences: lengths from offsets, rotary positions and their tables, new rows of a cache */
static attn_view draw_ints(int64_t n) { return make_view(draw_int_type(), LAYOUT_MIXED, 1, n, 0, 0, 0); }

static void run_lengths_of(job *j) {
    int64_t b, n = one_in(8) ? 0 : test_int(1, 6), at = test_int(0, 3), i[4] = {0, 0, 0, 0};
    attn_view offsets = draw_ints(n + 1),
              lengths = attn_view_of(make_out_of(draw_int_type(), LAYOUT_GAPS, 1, n, 0, 0, 0)), *views[2];
    int descends = 0;
    attn_error err;
    (void)j;
    for (b = 0; b <= n; b++, at += one_in(12) ? -test_int(1, 9) : test_int(0, 9)) {
        descends |= at < (b ? ref_int(&offsets, b - 1, 0) : 0);
        put_at(&offsets, 0, 0, 0, b, (double)at);
    }
    views[0] = &offsets, views[1] = &lengths;
    static const int32_t types[] = {ATTN_F32, ATTN_I8, ATTN_U8, -1, INT32_MAX};
    attn_view *v = views[test_int(0, 1)];
    int expected = one_in(4) ? REFUSED : ACCEPTED;
    if (expected == REFUSED) switch (test_int(0, 3)) {
        case 0: v->type = PICK(types); break;
        case 1: v->rank = one_in(2) ? 5 : -1; break;
        case 2: v->size[0]--; break;
        default: expected = elements_of(v) ? REFUSED : ACCEPTED, v->data = 0;
        }
    if (descends) expected = REFUSED;
    remember_blocks();
    attn_status st = attn_lengths_of(offsets, as_out(lengths), &err);
    if (refused_as_it_must(st, &err, expected)) return;
    attn_out o = as_out(lengths);
    CHECKF(gaps_untouched(&o), "wrote between the elements");
    for (i[0] = 0; i[0] < n; i[0]++)
        CHECK(ref_int(&lengths, i[0], 0) == ref_int(&offsets, i[0] + 1, 0) - ref_int(&offsets, i[0], 0));
}

static void run_alibi_slopes(job *j) {
    int64_t n[4] = {test_int(0, 70), 0, 0, 0}, i;
    attn_view slopes = draw_array(draw_type(), n, 1, 1), *view = &slopes;
    attn_error err;
    (void)j;
    int expected = break_one(&view, 1);
    const int is_float = slopes.type == ATTN_F32 || slopes.type == ATTN_F16 || slopes.type == ATTN_BF16;
    if (expected == REFUSED && slopes.rank == 1 && is_float) expected = EITHER; /* alone it may have any size */
    remember_blocks();
    attn_status st = attn_alibi_slopes(as_out(slopes), &err);
    if (refused_as_it_must(st, &err, expected) && (st != ATTN_OK || expected == EITHER)) return;
    attn_out o = as_out(slopes);
    CHECKF(gaps_untouched(&o), "wrote between the elements");
    for (i = 0; i < slopes.size[0]; i++) CHECK(ref_at(&slopes, 0, 0, 0, i) > 0 && ref_at(&slopes, 0, 0, 0, i) < 1);
}

/* One number of a descriptor may be anything. */
static double odd_double(void) {
    const double odd[] = {NAN, INFINITY, -INFINITY, -1, 0,      1e-19, 1e-18,  0.5,
                          1,   1.5,      2,         8,  500000, 1e18,  1.1e18, 1e300};
    return PICK(odd);
}
static attn_rope_desc draw_rope(int *odd) {
    attn_rope_desc d;
    double *numbers[] = {&d.base,      &d.factor,    &d.low_freq_factor, &d.high_freq_factor,
                         &d.beta_fast, &d.beta_slow, &d.attention_factor};
    static const uint64_t bytes[] = {1, 8, sizeof d, sizeof d + 1};
    memset(&d, 0, sizeof d);
    d.scaling = test_int(0, ATTN_ROPE_SCALING_COUNT - 1);
    if (one_in(2)) d.base = 500000;
    if (d.scaling) d.factor = 1 + 31 * test_uniform();
    if (d.scaling >= ATTN_ROPE_YARN) d.original_positions = test_int(1, 8192);
    if (d.scaling == ATTN_ROPE_YARN && one_in(2))
        d.attention_factor = 0.5 + test_uniform(), d.no_truncation = one_in(2);
    d.first_position = one_in(2) ? 0 : test_int(0, 1 << 24);
    *odd = one_in(3);
    if (!*odd) return d;
    switch (test_int(0, 5)) {
    case 0: d.scaling = PICK(strange) < 0 ? -1 : ATTN_ROPE_SCALING_COUNT; break;
    case 1: d.first_position = PICK(strange); break;
    case 2: d.original_positions = PICK(strange); break;
    case 3: d.struct_bytes = PICK(bytes); break;
    default: *PICK(numbers) = odd_double();
    }
    return d;
}
/* The rows and columns of a table lie on circles; of the plain one, where the angle says. */
static void run_rope_table(job *j) {
    int odd;
    attn_rope_desc d = draw_rope(&odd);
    int64_t n[4] = {test_int(0, 5), one_in(8) ? 0 : test_int(1, 40), 0, 0}, i[4] = {0, 0, 0, 0};
    attn_view c = draw_array(ATTN_F32, n, 2, 1), s = draw_array(ATTN_F32, n, 2, 1), *views[2];
    double base = d.base != 0 ? d.base : 10000, most = 1;
    attn_error err;
    (void)j;
    views[0] = &c, views[1] = &s;
    int expected = break_one(views, 2);
    if (n[0] == 0 && expected == REFUSED) expected = EITHER; /* types and sizes of nothing, but nothing is written */
    if (d.scaling == ATTN_ROPE_NTK && n[1] == 1) odd = 1;    /* R/(R-2) */
    if (odd && expected == ACCEPTED) expected = EITHER;
    if (d.first_position + n[0] - 1 > 1 << 24 && !odd) expected = REFUSED;
    remember_blocks();
    attn_status st = attn_rope_table(as_out(c), as_out(s), &d, &err);
    if (refused_as_it_must(st, &err, expected) && (st != ATTN_OK || expected == EITHER)) return;
    attn_out o = as_out(c), q = as_out(s);
    CHECKF(gaps_untouched(&o) && gaps_untouched(&q), "wrote between the elements");
    if (d.scaling == ATTN_ROPE_YARN) most = d.attention_factor != 0 ? d.attention_factor : 0.1 * log(d.factor) + 1;
    if (elements_of(&c)) do {
            double x = ref_at(&c, 0, 0, i[0], i[1]), y = ref_at(&s, 0, 0, i[0], i[1]);
            double angle = (double)(d.first_position + i[0]) * pow(base, -(double)i[1] / (double)n[1]);
            if (!CHECKF(fabs(hypot(x, y) / most - 1) < 2e-7, "%g, %g are not on the circle of %g", x, y, most)) return;
            if (d.scaling == ATTN_ROPE_PLAIN)
                CHECKF(fabs(x - cos(angle)) < 2e-7 && fabs(y - sin(angle)) < 2e-7, "[%ld,%ld]: %g, %g, want %g, %g",
                       (long)i[0], (long)i[1], x, y, cos(angle), sin(angle));
        } while (next_index(&c, i));
}

/* a b + sign c d, each product and the sum rounded */
static float of_products(float a, float b, float sign, float c, float d) {
    volatile float p = a * b, q = c * d, r = p + sign * q;
    return r;
}
static void run_rope(job *j) {
    int64_t n[4], i[4] = {0, 0, 0, 0}, pairs, table[4] = {0, 0, 0, 0}, rows;
    attn_view c, s, positions = no_view, *views[4];
    uint32_t flags = (uint32_t)test_int(0, 3);
    attn_error err;
    (void)j;
    draw_sizes(n, 4);
    pairs = test_int(0, (int)n[3] / 2);
    rows = n[2] + test_int(0, 4);
    table[0] = rows, table[1] = pairs;
    attn_view x = draw_array(draw_type(), n, 4, 0), out = draw_array(draw_type(), n, 4, 1), before = x;
    int in_place = one_in(3);
    if (in_place) { /* and what it held before */
        x = draw_array(draw_type(), n, 4, 1);
        fill(&x, draw_normal, 0, 1);
        before = copy_view(&x, LAYOUT_PACKED);
        out = x;
    }
    c = draw_array(ATTN_F32, table, 2, 0), s = draw_array(ATTN_F32, table, 2, 0);
    if (one_in(2)) {
        int each = one_in(2);
        positions = make_view(draw_int_type(), LAYOUT_MIXED, each ? 2 : 1, n[0], each ? n[2] : 0, 0, 0);
        fill(&positions, draw_int, 0, (double)(each ? rows - 1 : rows - n[2]));
        if (each && rows == 0) positions = no_view;
    }
    views[0] = &out, views[1] = &c, views[2] = &s, views[3] = &x;
    int expected = in_place ? ACCEPTED : break_one(views, 4);
    if (expected == REFUSED && (c.size[0] < rows || c.size[1] < pairs || s.size[0] < rows || s.size[1] < pairs))
        expected = EITHER; /* both may be the smaller ones */
    if (expected == ACCEPTED && one_in(12)) expected = put_int(&positions, PICK(strange)) ? EITHER : ACCEPTED;
    if (expected == ACCEPTED && one_in(12)) flags |= 1u << test_int(2, 31), expected = REFUSED;
    remember_blocks();
    attn_desc options;
    attn_status st = one_in(2) ? attn_rope(x, c, s, positions, flags, as_out(out), &err)
                               : attn_rope_with(x, c, s, positions, flags, as_out(out), draw_spare(&options), &err);
    if (refused_as_it_must(st, &err, expected)) return;
    attn_out o = as_out(out);
    CHECKF(gaps_untouched(&o), "wrote between the elements");
    if (elements_of(&out)) do {
            int64_t at = positions.rank ? ref_int(&positions, i[0], i[2]) + (positions.rank == 1 ? i[2] : 0) : i[2],
                    pair;
            int first, between = (flags & ATTN_ROPE_INTERLEAVED) != 0;
            float a = (float)ref_at(&before, i[0], i[1], i[2], i[3]), want = a;
            if (i[3] < 2 * pairs) {
                pair = between ? i[3] / 2 : i[3] % pairs;
                first = between ? i[3] % 2 == 0 : i[3] < pairs;
                float b = (float)ref_at(&before, i[0], i[1], i[2], i[3] + (first ? 1 : -1) * (between ? 1 : pairs));
                float turn = (first ? -1.0f : 1.0f) * (flags & ATTN_ROPE_INVERSE ? -1.0f : 1.0f);
                want = of_products(a, (float)ref_at(&c, 0, 0, at, pair), turn, b, (float)ref_at(&s, 0, 0, at, pair));
            }
            uint32_t have = bits_at(&out, i), bits = out.type == ATTN_F32 ? 0 : ref_half(out.type, want);
            if (out.type == ATTN_F32) memcpy(&bits, &want, 4);
            if (out.type == ATTN_F32 && isnan(want)) bits = 0x7fc00000u;
            if (!CHECKF(have == bits, "[%ld,%ld,%ld,%ld] has the bits %x, want %x", (long)i[0], (long)i[1], (long)i[2],
                        (long)i[3], (unsigned)have, (unsigned)bits))
                return;
        } while (next_index(&out, i));
}

/* What a cache is to hold, in a copy of it: row by row by attn_convert and attn_quantize, whose results are looked at
   elsewhere. */
static void append_to_copy(const attn_view *fresh, attn_view *cache, attn_view *scale, const attn_desc *d,
                           const attn_view *lengths) {
    for (int64_t b = 0; b < lengths->size[0]; b++) {
        int64_t from = d->query_starts.rank ? ref_int(&d->query_starts, b, 0) : 0, page = cache->size[2];
        int64_t rows = d->query_lengths.rank ? ref_int(&d->query_lengths, b, 0) : fresh->size[2] - from;
        int64_t to = (d->key_starts.rank ? ref_int(&d->key_starts, b, 0) : 0) + ref_int(lengths, b, 0);
        for (int64_t i = 0; i < rows; i++) {
            int paged = d->page_table.rank > 0;
            int64_t at = paged ? ref_int(&d->page_table, b, (to + i) / page) : cache->size[0] == 1 ? 0 : b;
            attn_view row = attn_view_slice(attn_view_slice(*fresh, 0, fresh->size[0] == 1 ? 0 : b, 1), 2, from + i, 1);
            attn_view place[2] = {*cache, *scale};
            for (int n = 0; n < 2; n++)
                if (place[n].rank)
                    place[n] =
                        attn_view_slice(attn_view_slice(place[n], 0, at, 1), 2, paged ? (to + i) % page : to + i, 1);
            if (scale->rank) CHECK_STATUS(attn_quantize(row, as_out(place[0]), as_out(place[1]), 0), ATTN_OK);
            else CHECK_STATUS(attn_convert(row, as_out(place[0]), 0), ATTN_OK);
        }
    }
}
static void run_append(job *j) {
    int64_t batch = one_in(10) ? 0 : test_int(1, 4), heads = one_in(10) ? 0 : test_int(1, 3), n = test_int(0, 6),
            total = 0;
    int64_t size = draw_size(12), room, page = 0, pages = 0, taken = 0;
    int packed = one_in(3), kind = test_int(0, 2), codes = one_in(3); /* kind 1: pages, 2: a packed cache */
    attn_desc d;
    attn_error err;
    (void)j;
    memset(&d, 0, sizeof d);
    int64_t rows[4], held[4], need = n;
    attn_view lengths = draw_ints(batch);
    if (packed || one_in(2)) d.query_lengths = draw_ints(batch);
    if (packed) d.query_starts = draw_ints(batch);
    for (int64_t b = 0; b < batch; b++) {
        rows[b] = d.query_lengths.rank ? test_int(0, (int)n) : n;
        held[b] = test_int(0, 12);
        if (packed) put_at(&d.query_starts, 0, 0, 0, b, (double)total);
        if (d.query_lengths.rank) put_at(&d.query_lengths, 0, 0, 0, b, (double)rows[b]);
        put_at(&lengths, 0, 0, 0, b, (double)held[b]);
        total += rows[b];
        if (held[b] + rows[b] > need) need = held[b] + rows[b];
    }
    room = need + test_int(0, 3);
    if (kind == 1) {
        page = test_int(1, 5), pages = (need + page - 1) / page + test_int(0, 1);
        int64_t *order = random_order(batch * pages + 2);
        d.page_table = make_view(draw_int_type(), LAYOUT_MIXED, 2, batch, pages, 0, 0);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t p = 0; p < pages; p++) /* a page that gets no row is not looked at */
                put_at(&d.page_table, 0, 0, b, p,
                       p < held[b] / page || p * page >= held[b] + rows[b] ? -7 : (double)order[b * pages + p]);
        free(order);
    }
    if (kind == 2) {
        d.key_starts = draw_ints(batch);
        for (int64_t b = 0; b < batch; b++, taken += room) put_at(&d.key_starts, 0, 0, 0, b, (double)taken);
    }
    const int64_t from[4] = {packed ? 1 : batch, heads, packed ? total : n, size},
                  to[4] = {kind == 1   ? batch * pages + 2
                           : kind == 2 ? 1
                                       : batch,
                           heads,
                           kind == 1   ? page
                           : kind == 2 ? taken
                                       : room,
                           size};
    int64_t groups[4] = {to[0], to[1], to[2], one_in(2) || size == 0 ? 1 : (size + 31) / 32};
    attn_view fresh = draw_array(draw_type(), from, 4, 0), scale = no_view,
              cache = draw_array(codes ? ATTN_I8 : draw_type(), to, 4, 1), *views[2];
    if (codes) scale = draw_array(one_in(2) ? ATTN_F16 : ATTN_F32, groups, 4, 1);
    *(one_in(2) ? &d.k_scale : &d.v_scale) = scale;
    views[0] = &fresh, views[1] = &cache;
    int expected = break_one(views, 2);
    if (expected == REFUSED && (fresh.size[2] != from[2] || cache.size[2] != to[2] || cache.size[0] != to[0]))
        expected = EITHER; /* a row, or a page, that nobody wants */
    if (one_in(5)) {
        attn_view *const ints[] = {&lengths, &d.query_lengths, &d.query_starts, &d.key_starts, &d.page_table};
        if (put_int(PICK(ints), PICK(strange))) expected = EITHER;
    }
    remember_blocks();
    attn_status st = attn_append(fresh, as_out(cache), lengths, &d, &err);
    if (refused_as_it_must(st, &err, expected)) return;
    attn_view held_cache = copy_view(&cache, LAYOUT_PACKED),
              held_scale = codes ? copy_view(&scale, LAYOUT_PACKED) : no_view;
    for (int which = 0; which < 2; which++) { /* what was there before the call, and then these rows again */
        attn_view now_there = which ? scale : cache, copy = which ? held_scale : held_cache, was = now_there;
        memory *m = now_there.rank && elements_of(&now_there) ? block_of(now_there.data) : 0;
        int64_t i[4] = {0, 0, 0, 0};
        size_t bytes = type_bytes(now_there.type);
        if (!m) continue;
        was.data = m->copy + ((const unsigned char *)now_there.data - m->data);
        do
            memcpy((char *)(uintptr_t)copy.data + offset_of(&copy, i) * (int64_t)bytes,
                   (const char *)was.data + offset_of(&was, i) * (int64_t)bytes, bytes);
        while (next_index(&copy, i));
    }
    append_to_copy(&fresh, &held_cache, &held_scale, &d, &lengths);
    if (elements_of(&cache)) same_elements(&cache, &held_cache, "cache");
    if (codes && elements_of(&scale)) same_elements(&scale, &held_scale, "scale");
}

/* ---- keys that come in parts, and entries that lie among others: the bits of the whole, and of each alone */
static void run_in_parts(job *j) {
    static const entry whole_call = {"attn_forward", build_forward, 0, slots_forward, run_forward,
                                     size_forward,   check_forward, 0, OPTIONS_ALL};
    static const int sets[] = {RESULT_OUT, RESULT_OUT | RESULT_LSE, RESULT_LSE | RESULT_STATS,
                               RESULT_OUT | RESULT_STATS};
    int set = PICK(sets);
    shape s = draw_shape_small();
    if (!one_in(8)) s.sk = test_int(ATTN_PART_KEYS + 1, 1300);
    attn_desc *d = &j->c.d, whole;
    *d = draw_call(-1, s);
    for_part(d);
    ask_for(d, d->v.rank ? set : set & RESULT_STATS ? RESULT_STATS : RESULT_LSE, LAYOUT_MIXED);
    ref_result r;
    ref_sizes(d, &r);
    j->e = &whole_call;
    slots_forward(j);
    if (one_in(2)) retype(j);
    if (one_in(4)) put_odd_numbers(j);
    describe(j, ACCEPTED);
    cuts c = draw_cuts(r.sk);
    poison_results(d);
    if (!run_somehow(d, "at once")) return;
    counts[now.entry].accepted++;
    check_entries_alone(d);
    whole = copy_results(d);
    run_parts(d, &c, r.has_entries || one_in(4));
    check_same_results(&whole, d, "in parts and at once");
}

/* What belongs to a part's keys has the bits of the whole, what is a sum over them its bound. */
static void run_gradients_in_parts(job *j) {
    shape s = draw_shape_small();
    if (!one_in(8)) s.sk = test_int(ATTN_PART_KEYS + 1, 800);
    attn_desc d;
    do d = draw_with_gradients(-1, s);
    while (d.query_starts.rank || d.key_starts.rank || !d.v.rank); /* no view of theirs is cut */
    for_part(&d);
    ref_result r;
    ref_sizes(&d, &r);
    cuts c = draw_cuts(r.sk);
    call whole = make_call(&d, RESULT_OUT | RESULT_LSE, all_grads(&d) & ~(1u << GRAD_SINK)), parts;
    (void)j;
    if (!run_call(&whole, "gradients at once")) return;
    parts = copy_grads(&whole);
    counts[now.entry].accepted += gradients_in_parts(&whole, &parts, &c);
    if (now.failures || r.b * r.h * r.sq == 0) return;
    if (d.bias.rank && (d.bias_index.rank || d.bias.size[d.bias.rank - 1] == 1))
        parts.bias_chain = r.b * r.h * r.sq * r.sk / elements_of(&d.bias);
    ref_grads g;
    const ref_upstream up = upstream_of(&parts.g);
    ref_backward(&parts.d, &up, &g);
    check_grads(&parts, &g, "gradients in parts");
    ref_free_grads(&g);
}

/* ---- all of them */
static const entry entries[] = {
    {"attn_forward", build_forward, far_forward, slots_forward, run_forward, size_forward, check_forward, 0, 15},
    {"attn_plan_forward", build_forward, far_forward, slots_forward, run_plan_forward, size_forward, check_forward, 0,
     15},
    {"attn_forward in parts", 0, 0, 0, 0, 0, 0, run_in_parts, 0},
    {"attn_backward", build_backward, far_backward, slots_backward, run_backward, size_backward, check_backward, 0, 15},
    {"attn_backward in parts", 0, 0, 0, 0, 0, 0, run_gradients_in_parts, 0},
    {"attn_plan_backward", build_backward, far_backward, slots_backward, run_plan_backward, size_backward,
     check_backward, 0, 15},
    {"attn_key_sums", build_key_sums, far_key_sums, slots_key_sums, run_key_sums, size_key_sums, check_key_sums, 0, 15},
    {"attn_softmax", build_softmax, far_softmax, slots_softmax, run_softmax, size_softmax, check_softmax, 0,
     OPTIONS_MASK | OPTIONS_WEIGHTS | OPTIONS_HOOKS},
    {"attn_softmax_backward", build_softmax_backward, far_softmax, slots_softmax_backward, run_softmax_backward,
     size_softmax_backward, check_softmax_backward, 0, OPTIONS_MASK | OPTIONS_WEIGHTS | OPTIONS_HOOKS},
    {"attn_scores", build_scores, far_scores, slots_scores, run_scores, size_scores, check_scores, 0, OPTIONS_ALL},
    {"attn_mask", build_mask, far_mask, slots_mask, run_mask, 0, check_mask, 0, OPTIONS_MASK},
    {"attn_dropout_mask", build_dropout_mask, far_mask, slots_dropout_mask, run_dropout_mask, 0, check_dropout_mask, 0,
     OPTIONS_WEIGHTS},
    {"attn_merge", build_merge, far_merge, slots_merge, run_merge, 0, check_merge, 0, 0},
    {"attn_bmm", build_bmm, far_bmm, slots_bmm, run_bmm, size_bmm, check_bmm, 0, OPTIONS_HOOKS},
    {"attn_bmm_backward", build_bmm_backward, far_bmm_backward, slots_bmm_backward, run_bmm_backward, size_bmm_backward,
     check_bmm_backward, 0, OPTIONS_HOOKS},
    {"attn_mha", build_mha, far_mha, slots_mha, run_mha, size_mha, check_mha, 0, OPTIONS_ALL},
    {"attn_mha_backward", build_mha_backward, far_mha_backward, slots_mha_backward, run_mha_backward, size_mha_backward,
     check_mha_backward, 0, OPTIONS_ALL},
    {"attn_elementary", 0, 0, 0, 0, 0, 0, run_elementary, 0},
    {"attn_convert", 0, 0, 0, 0, 0, 0, run_convert, 0},
    {"attn_quantize", 0, 0, 0, 0, 0, 0, run_quantize, 0},
    {"attn_unpack_q8_0", 0, 0, 0, 0, 0, 0, run_unpack, 0},
    {"attn_lengths_of", 0, 0, 0, 0, 0, 0, run_lengths_of, 0},
    {"attn_append", 0, 0, 0, 0, 0, 0, run_append, 0},
    {"attn_rope", 0, 0, 0, 0, 0, 0, run_rope, 0},
    {"attn_rope_table", 0, 0, 0, 0, 0, 0, run_rope_table, 0},
    {"attn_alibi_slopes", 0, 0, 0, 0, 0, 0, run_alibi_slopes, 0},
    {"attn_view_...", 0, 0, 0, 0, 0, 0, run_views, 0},
    {"attn_heatmap_...", 0, 0, 0, 0, 0, 0, run_heatmap, 0}};
enum { ENTRIES = (int)(sizeof entries / sizeof *entries) };

static int run_number(unsigned long long seed, const char *only) {
    int number = test_int(0, ENTRIES - 1);
    now.seed = seed;
    now.failures = 0;
    if (only && !strstr(entries[number].name, only)) return 0;
    run_entry(&entries[number], number);
    test_release();
    return now.failures;
}

/* What the sanitizers are to do: no memory is no error here; stop at the first finding. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:detect_leaks=0"; }
const char *__ubsan_default_options(void) { return "print_stacktrace=1:halt_on_error=1"; }

#ifdef FUZZ_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int ready;
    if (!ready) {
        find_isas();
        counts = calloc(ENTRIES, sizeof *counts);
    }
    ready = 1;
    source.state = size;
    for (size_t i = 0; i < size; i++) source.state = source.state * 31 + data[i];
    source.at = data;
    source.end = data + size;
    if (run_number(source.state, 0)) abort();
    return 0;
}
#else
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int limit = 10, findings_most = 20; /* seconds of a run; findings after which there is no point in going on */
static struct {
    unsigned long long seed; /* of the run at hand */
    int number, findings;
} * shared;

extern void __sanitizer_print_stack_trace(void) __attribute__((weak));
static void took_too_long(int signal) {
    static const char text[] = "FINDING: it takes too long\n";
    (void)signal;
    if (write(2, text, sizeof text - 1) > 0 && __sanitizer_print_stack_trace) __sanitizer_print_stack_trace();
    _exit(3);
}
static void limit_time(int seconds) { /* of the processor, so that a busy machine makes no finding */
    struct itimerval timer = {{0, 0}, {seconds, 0}};
    setitimer(ITIMER_PROF, &timer, 0);
}
static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static int run_seed(unsigned long long seed, const char *only) {
    test_rand_seed(seed);
    shared->seed = seed;
    limit_time(limit);
    int failures = run_number(seed, only);
    limit_time(0);
    return failures;
}
void test_rand_seed(uint64_t seed) {
    source.at = source.end = 0;
    source.state = seed * 0xD1342543DE82EF95u + 1;
}

/* Runs from `seed` on in a process of their own, so that a crash is one finding among others. */
static unsigned long long run_some(unsigned long long seed, double end, const char *only) {
    int status;
    fflush(0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPROF, took_too_long);
        for (; seconds_now() < end && shared->findings < findings_most; seed++)
            if (run_seed(seed, only)) shared->findings++;
        shared->seed = seed - 1;
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        fprintf(stderr, "no process of its own for the runs\n");
        exit(2);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        shared->findings++;
        fprintf(stderr, "FINDING: the run ended early (--once %llu)\n", shared->seed);
    }
    return shared->seed + 1;
}
static unsigned long long number_of(const char *text) { return text ? strtoull(text, 0, 10) : 0; }

int main(int argc, char **argv) {
    double seconds = 10, end;
    unsigned long long seed = 1, all = 0, first;
    const char *once = 0, *only = 0;
    void *map = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return 2;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : 0;
        if (!strcmp(argv[i], "--seconds") && value) seconds = strtod(value, 0);
        else if (!strcmp(argv[i], "--seed") && value) seed = number_of(value);
        else if (!strcmp(argv[i], "--limit") && value) limit = atoi(value);
        else if (!strcmp(argv[i], "--findings") && value) findings_most = atoi(value);
        else if (!strcmp(argv[i], "--once") && value) once = value;
        else if (!strcmp(argv[i], "--only") && value) only = value;
        else {
            fprintf(
                stderr,
                "usage: fuzz [--seconds N] [--seed N] [--only FUNCTION] [--limit SECONDS] [--findings N] [--once N]\n");
            return 2;
        }
    }
    shared = map;
    counts = (void *)((char *)map + 4096);
    find_isas();
    if (once) {
        signal(SIGPROF, took_too_long);
        verbose = 1;
        int failures = run_seed(number_of(once), 0);
        printf("run %s of %s: %d findings\n", once, now.name, failures);
        return failures > 0;
    }
    first = seed;
    end = seconds_now() + seconds;
    while (seconds_now() < end && shared->findings < findings_most) seed = run_some(seed, end, only);
    for (int n = 0; n < ENTRIES; n++) {
        all += counts[n].runs;
        if (counts[n].runs)
            printf("%-22s %8llu runs, %3.0f %% accepted\n", entries[n].name, counts[n].runs,
                   100.0 * (double)counts[n].accepted / (double)counts[n].runs);
    }
    printf("%llu executions from seed %llu on, %d findings\n", all, first, shared->findings);
    printf("%d passed, %d failed\n", shared->findings == 0 && all > 0, shared->findings + (all == 0));
    return shared->findings > 0 || all == 0;
}
#endif
