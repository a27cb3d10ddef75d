/* grads.h - a forward call and the call of attn_backward that belongs to it: built, run on every instruction set, held
   against the reference and against each other. */
#ifndef ATTN_GRADS_H
#define ATTN_GRADS_H

#include "cases.h"

typedef struct call {
    attn_desc d;
    attn_grad g;
    attn_view start[GRAD_COUNT]; /* what an output holds before, where it is added to */
    int64_t bias_chain; /* terms of a sum of d_bias that are added in one chain, where they are more than 128 */
} call;

attn_out *grad_of(attn_grad *g, int which);

ref_upstream upstream_of(const attn_grad *g);

/* ---- building */
enum { FROM_OUT = 1, FROM_LSE = 2, FROM_WEIGHTS = 4, FROM_ALL = 7 };

void draw_upstream(attn_grad *g, const attn_desc *d, int set, layout how);

/* The gradients that this call can have, as bits. */
unsigned all_grads(const attn_desc *d);

/* Asks for the gradients of the set that there are, in fresh memory, and for no others. */
void ask_grads(call *c, unsigned set, unsigned accumulate, layout how);

/* A plain call with everything from above and everything asked for; the forward has run. */
call make_call(const attn_desc *d, int from, unsigned set);

/* ---- running */

/* What an output holds before a call: what is added to, else garbage. */
void put_start(const attn_out *o, const attn_view *start);
void prepare_grads(call *c);

int accepted(attn_status status, const attn_error *err, const attn_desc *d, const char *what);

int run_call(call *c, const char *what);

/* A call with packed copies of what the gradients hold now. */
call copy_grads(const call *c);

/* Those that both have, have the same bits. */
int same_grads(const call *a, const call *b, const char *what);

/* ---- against the reference */

/* The largest errors since forget_worst, in units of the bound, and how many numbers were compared: of all files that
   compare gradients together. */
void forget_worst(void);
void print_worst(const char *what, long cases);

/* Not finite where the exact gradient is not: which of the infinities and NaN it is, depends on what underflows. */
double grad_ratio(float got, double want, double tolerance);

double grad_tolerance(int which, double error, double want, double start);

/* Element [index] of a packed view */
int64_t index_of(const attn_view *v, const int64_t index[4]);

/* A packed row of no entry keeps what it holds: garbage, or what would be added to. 1: it is one. */
int check_other_row(const call *c, const ref_grads *g, int which, const int64_t index[4], uint32_t got,
                    const char *what);

void check_grad(call *c, const ref_grads *g, int which, const char *what);

/* Of a function that is no forward call: sums of terms (t->error: of their magnitudes), added to `start` where that is
   given. Returns the largest error in units of tolerance(terms, sum, start). */
double check_sums(const attn_out *got, const ref_tensor *t, const attn_view *start,
                  double (*tolerance)(double, double, double), const char *what);

void check_grads(call *c, const ref_grads *g, const char *what);

/* On every instruction set against the reference, and the bits of all of them equal. The gradients of the last one
   stay. */
int check_call(call *c, const char *what);

/* ---- the same work in other ways */

int run_call_planned(call *c, int32_t workers);

/* The part of a call that belongs to one entry of the batch, in place. */
call entry_of(const call *c, int64_t b);

/* Rows outside of an entry are no part of its own call, but under ATTN_EMPTY_UNIFORM they add to dv, and with a sink to
   d_sink. */
int outside_counts(const call *c);

/* A bias with one row (column) is, where an entry has one query (key), that query's and all queries' at once. Its
   gradient is a sum in the one case and not in the other: -0 becomes 0, and what was there is added before or after. */
int is_bias_of_either_kind(const call *c, int64_t b);

/* One entry of the batch alone: the same bits of what is its own, a bias too, unless entries share it. */
void check_batch_alone(const call *c, int64_t b);

#endif
