/* cases.h - builds views over guarded memory, runs a descriptor on every instruction set, holds the results
   against the reference and against each other. */
#ifndef ATTN_CASES_H
#define ATTN_CASES_H

#include "ref.h"

/* ---- views. What lies between their elements stays 0xFF: a NaN in floats, a length that is refused, true in
 * masks. */
typedef enum layout {
    LAYOUT_PACKED,    /* row-major */
    LAYOUT_BSHD,      /* the two middle axes exchanged in memory */
    LAYOUT_GAPS,      /* elements and rows apart */
    LAYOUT_REVERSED,  /* negative strides; inputs only, outputs are packed then */
    LAYOUT_BROADCAST, /* outer axes of stride 0; likewise */
    LAYOUT_MIXED,     /* axes in a random order, random gaps, some reversed */
    LAYOUT_COUNT
} layout;

size_t type_bytes(int32_t type);

/* Lowest and highest element offset of a view, and whether it has elements at all. */
int view_extent(const attn_view *v, int64_t *low, int64_t *high);

/* Steps `index` through the elements of a view, last axis first; 0 when all are done. */
static inline int next_index(const attn_view *v, int64_t index[4]) {
    for (int axis = v->rank; axis-- > 0;) {
        if (++index[axis] < v->size[axis]) return 1;
        index[axis] = 0;
    }
    return 0;
}

static inline int64_t offset_of(const attn_view *v, const int64_t index[4]) {
    int64_t offset = 0;
    for (int axis = 0; axis < v->rank; axis++) offset += index[axis] * v->stride[axis];
    return offset;
}

void shuffle(int64_t *x, int64_t n);

void set_strides(attn_view *v, layout how);

/* Gives a view with sizes and strides its guarded memory: exactly its extent. */
void take_memory(attn_view *v);

attn_view make_view(int32_t type, layout how, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);

attn_out make_out_of(int32_t type, layout how, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
attn_out make_out(layout how, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);

void put(const attn_view *v, int64_t offset, double x);

/* Element [a,b,c,d], aligned from the right as in ref_at. */
void put_at(const attn_view *v, int64_t a, int64_t b, int64_t c, int64_t d, double x);

static inline double draw_normal(double mean, double deviation) { return mean + deviation * test_normal(); }
static inline double draw_int(double low, double high) { return test_int((int)low, (int)high); }
/* Quarters: squared distances are exact in float, so that a kernel's edge is where the reference has it. */
static inline double draw_quarters(double low, double high) { return 0.25 * test_int((int)(4 * low), (int)(4 * high)); }

void fill(const attn_view *v, double (*draw)(double, double), double a, double b);

attn_view make_filled(layout how, double deviation, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);

attn_view make_ints(int32_t type, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3, int low, int high);

/* The same elements in memory of another layout. */
attn_view copy_view(const attn_view *v, layout how);

/* What [B,H,Sq,..] or a view broadcast against it holds for one (b,h,i): sizes 1, or the axis broadcast as
 * before. */
attn_view slice_row(attn_view v, int64_t b, int64_t h, int64_t i);

attn_out slice_out_row(attn_out o, int64_t b, int64_t h, int64_t i);

/* ---- a plain call: packed q, k, v with normal numbers, all in guarded memory */
attn_desc make_desc(int64_t b, int64_t h, int64_t hkv, int64_t sq, int64_t sk, int64_t d, int64_t dv);

/* Makes `desc`, which has q, k and v, one of the given score with random parameters. */
void set_score(attn_desc *desc, int32_t score, int64_t hidden);

/* ---- what several files try */

/* Ways to leave rows without a key. The last ones need a score of their own. */
enum { EMPTY_QUERIES = 19, EMPTY_KEYS = 40 };
enum {
    NO_LENGTH,
    NO_LENGTH_PER_QUERY,
    NO_MASK,
    NO_MASK_ROW,
    NO_CAUSAL,
    NO_WINDOW,
    NO_QUERY,
    NO_BIAS,
    NO_GIVEN,
    NO_KERNEL,
    NO_COUNT
};

attn_desc without_keys(int how);

float odd_nan(void); /* negative, with a payload: a result must not carry it on */

/* Puts the float itself: a conversion to double and back could change a NaN's bits. */
void put_float(const attn_view *v, int64_t b, int64_t h, int64_t i, int64_t c, float x);

/* K or V of one head [1,1,sk,n] of which only keys first..end-1 are mapped, flush to either guard. */
attn_view unmapped_beyond(int64_t first, int64_t end, int64_t sk, int64_t n, int low);

/* One of some ways to keep all rows of one batch entry from keys: they may read first..end-1 alone. `end` says how many
   where any number will do, and changes where that way has its own. */
enum { KEY_LIMITS = 6 };
void limit_keys(attn_desc *d, int variant, int64_t *first, int64_t *end);

/* Given scores and v beyond a length, on pages that cannot be read. */
attn_desc given_beyond(int64_t length, int64_t keys);

/* Additive scores where e^2a and e^2b leave the range of float although a + b does not, of all rows or some. */
attn_desc additive_far_apart(int64_t sq, int64_t sk, double offset, int only_some);

/* ---- results */
enum {
    RESULT_OUT = 1,
    RESULT_LSE = 2,
    RESULT_WEIGHTS = 4,
    RESULT_SCORES = 8,
    RESULT_SOFTCAP = 16,
    RESULT_MASKED = 32,
    RESULT_STATS = 64,
    RESULT_ALL = 127,
    RESULT_COUNT = 7
};

attn_out *result_of(attn_desc *d, int which);

/* Asks for the results of the set, in fresh memory, and for no others. */
void ask_for(attn_desc *d, int set, layout how);

/* Sets all memory of an output to 0xFF, what lies between its elements too. */
void poison(const attn_out *o);

void poison_results(attn_desc *d);

/* Nothing between the elements of an output was written. */
int gaps_untouched(const attn_out *o);

uint32_t bits_at(const attn_view *v, const int64_t index[4]);

/* Two outputs of one shape have the same bits. */
int check_same(const attn_out *a, const attn_out *b, const char *what);

int check_same_results(const attn_desc *a, const attn_desc *b, const char *what);

/* The forward call of a backward call's descriptor: where it asks for no weights, it says nothing about them. */
attn_desc forward_of(const attn_desc *d);

/* Runs a descriptor; 1 when it was accepted. A refusal is a failed check, with field and rule. */
int run_desc(const attn_desc *d, const char *what);

/* ---- batch entries of arrays that several share */

/* Row or key `at` of the arrays belongs to some entry. */
int in_some_entry(const attn_desc *d, const ref_result *r, int keys, int64_t at);

/* Packed rows of no entry hold what poison_results has put there. */
int others_untouched(const attn_desc *d, const attn_out *o);

/* An axis of a view that broadcasts against [B,H,Sq,Sk], which keeps those of size 1. */
attn_view cut_broadcast(attn_view v, int axis, int64_t first, int64_t count);
/* Of an array [B,H,S,..] what one entry has; all entries are in the first where that is packed. */
attn_view cut_entry(attn_view v, int64_t b, int64_t first, int64_t count);
attn_out cut_out_entry(attn_out o, int64_t b, int64_t first, int64_t count);
/* The keys of an entry out of their pages, side by side. */
attn_view gather_keys(const attn_desc *d, const attn_view *pool, int64_t b, int64_t first, int64_t count);

/* Entry b as a call of its own, without starts and pages: views cut to it, its results in place. */
attn_desc entry_alone(const attn_desc *d, int64_t b);

/* Runs `d` on the instruction set and holds every result against the reference; returns the largest error in
   units of its bound. */
double check_on(attn_desc *d, const ref_result *r, attn_isa isa, const char *what);

/* Packed copies of what an output, and what the results of a call hold now. */
attn_out copy_out(const attn_out *o);
attn_desc copy_results(const attn_desc *d);

/* The same on every instruction set, and the bits of all of them equal. */
double check_everywhere(attn_desc *d, const char *what);

/* ---- the same work in other ways */

/* 0..count-1 in a random order, to be freed */
int64_t *random_order(int64_t count);

void run_shuffled(void *user, int64_t count, attn_task_fn task, void *arg);

/* Plan and tasks in a random order by random workers, in a workspace of exactly the size asked for. */
void run_plan(const attn_plan *plan, int32_t workers);
int run_planned(const attn_desc *d, int32_t workers);

attn_view slice_head(attn_view v, int rank_shared, int64_t h);

attn_view one_int(int64_t x);

/* The call that computes row (b,h,i) of `d` alone: with its position, its lengths and its origin of dropout.
 */
attn_desc row_alone(const attn_desc *d, int64_t b, int64_t h, int64_t i);

/* Row (b,h,i) of `d`, whose results are there, computed alone gives the same bits. */
void check_row_alone(const attn_desc *d, int64_t b, int64_t h, int64_t i);

/* Each entry of `d`, whose results are there, as a call of its own gives the same bits. */
void check_entries_alone(const attn_desc *d);

/* A view of `type` with the values of v, a view of floats, rounded; v gets the rounded ones. */
attn_view retyped(attn_view *v, int32_t type, layout how);

/* Keys or values as codes, with a scale per row or per 32 numbers of it; v, a view of floats, gets what they mean. */
attn_view coded(attn_view *v, attn_view *scale, layout how);

/* `typed` holds `plain`, floats, rounded once. */
int check_rounded_once(const attn_out *typed, const attn_out *plain, const char *what);
int check_rounded_results(const attn_desc *typed, const attn_desc *plain, const char *what);

#endif
