/* ref.h - attention and its gradients in float64, straight from the formulas, and the comparison of results with
   them. Shares no code with the implementation. backward.c verifies the gradients by central differences. */
#ifndef ATTN_REF_H
#define ATTN_REF_H

#include "test.h"

/* What batch entry b has of the arrays: rows from q0 on, keys from k0 on. i and j of the formulas count from there. */
typedef struct ref_entry {
    int64_t q0, q, k0, k;
} ref_entry;
enum { REF_ENTRIES = 64 }; /* most entries of a call with starts or pages */

/* Everything below is indexed by the places of the arrays: row I of them is query I - q0 of an entry. */
typedef struct ref_result {
    int64_t b, h, hkv, sq, sk, dk, dv, hidden;
    int64_t rows_b;               /* batch size of the arrays of queries: b, or 1 where they are packed */
    int has_entries;              /* starts or pages: `entries` says what belongs to whom */
    int packed_rows, packed_keys; /* rows and keys of no entry are left alone */
    ref_entry entries[REF_ENTRIES];
    double *out;               /* [b,h,sq,dv] */
    double *lse;               /* [b,h,sq] */
    double *weights, *dropped; /* [b,h,sq,sk], before and after dropout */
    double *scores, *softcap;  /* [b,h,sq,sk]; NaN where nothing was read */
    double *masked;
    double *terms;         /* [b,h,sq,sk] sum of the absolute terms of the raw score; inf where nothing was read */
    double *all_terms;     /* the same with bias and ALiBi */
    double *exp_scores;    /* [b,h,sq,sk] of the distance kernels: e^score, the kernel's weight */
    double *v_max, *s_max; /* [b,h,sq] V and S of the bound in ATTN_SCORE_LIST */
    double *stats;         /* [b,h,sq,2] largest score, sum of e^(score - largest), without the sink */
    double *stats_off;     /* [b,h,sq] what the largest score may be off, in units of the bound */
    double *block;
} ref_result;

/* ---- numbers of 16 bits: sign, exponent, mantissa of so many bits; by arithmetic, rounded by the C library */
/* 2^n, of which the suites take billions: the exponent of a double, within -1022..1023 */
static inline double ref_power(int n) {
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}
static inline int ref_mantissa(int32_t type) { return type == ATTN_F16 ? 10 : 7; }
static inline double ref_of_half(int32_t type, uint16_t x) {
    int m = ref_mantissa(type), exponent = (x & 0x7fff) >> m, most = 0x7fff >> m, bias = most / 2;
    double fraction = x & ((1 << m) - 1), value;
    if (exponent == most) value = fraction ? NAN : INFINITY;
    else value = (exponent ? fraction + (1 << m) : fraction) * ref_power((exponent ? exponent : 1) - bias - m);
    return x >> 15 ? -value : value;
}
static inline uint16_t ref_half(int32_t type, double x) {
    int m = ref_mantissa(type), most = 0x7fff >> m, bias = most / 2, exponent;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return type == ATTN_F16 ? 0x7e00 : 0x7fc0;
    if (isinf(x)) return (uint16_t)(sign | most << m);
    frexp(x, &exponent); /* |x| < 2^exponent */
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    double units = nearbyint(fabs(x) * ref_power(m - exponent)); /* of the last place */
    if (units >= 2 << m) exponent++, units /= 2;
    if (exponent > bias) return (uint16_t)(sign | most << m);
    if (units < 1 << m) return (uint16_t)(sign | (unsigned)units);
    return (uint16_t)(sign | (unsigned)(exponent + bias) << m | ((unsigned)units - (1u << m)));
}

/* ---- reading: elements of a view, aligned from the right and broadcast as numpy does */
static inline int64_t ref_offset(const attn_view *v, int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t index[4] = {a, b, c, d};
    int64_t offset = 0;
    for (int axis = 0; axis < v->rank; axis++)
        if (v->size[axis] != 1) offset += index[axis + 4 - v->rank] * v->stride[axis];
    return offset;
}

static inline double ref_at(const attn_view *v, int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t offset = ref_offset(v, a, b, c, d);
    switch (v->type) {
    case ATTN_F32: return ((const float *)v->data)[offset];
    case ATTN_F64: return ((const double *)v->data)[offset]; /* the reference alone takes it: central differences */
    case ATTN_U8: return ((const uint8_t *)v->data)[offset];
    case ATTN_I8: return ((const int8_t *)v->data)[offset]; /* without its scale */
    case ATTN_F16:
    case ATTN_BF16: return ref_of_half(v->type, ((const uint16_t *)v->data)[offset]);
    default: return NAN;
    }
}

/* Of a bias by index: where in the table, whose row is the head's; below 0: nowhere. */
static inline int64_t ref_bias_index(const attn_desc *d, int64_t b, int64_t h, int64_t i, int64_t j) {
    int64_t offset = ref_offset(&d->bias_index, b, h, i, j);
    return d->bias_index.type == ATTN_I32 ? ((const int32_t *)d->bias_index.data)[offset]
                                          : ((const int64_t *)d->bias_index.data)[offset];
}
static inline double ref_bias(const attn_desc *d, int64_t b, int64_t h, int64_t i, int64_t j) {
    if (!d->bias.rank) return 0;
    if (!d->bias_index.rank) return ref_at(&d->bias, b, h, i, j);
    int64_t at = ref_bias_index(d, b, h, i, j);
    return at < 0 ? 0 : ref_at(&d->bias, 0, 0, h, at);
}
/* What broadcasts against [B,H,Sq,Sk]: the bias, or its index. */
static inline attn_view *ref_bias_of_pairs(attn_desc *d) { return d->bias_index.rank ? &d->bias_index : &d->bias; }

/* An integer per batch entry or per query: [B] or [B,Sq] */
static inline int64_t ref_int(const attn_view *v, int64_t b, int64_t i) {
    int64_t offset = v->rank == 2 ? ref_offset(v, 0, 0, b, i) : ref_offset(v, 0, 0, 0, b);
    return v->type == ATTN_I32 ? ((const int32_t *)v->data)[offset] : ((const int64_t *)v->data)[offset];
}

/* ---- what a descriptor says */
/* The kernels, whose score is the logarithm of a weight and which take no scale. */
static inline int ref_is_kernel(int32_t score) { return score >= ATTN_SCORE_GAUSSIAN && score <= ATTN_SCORE_CONSTANT; }

static inline int ref_is_distance(int32_t score) { return ref_is_kernel(score) && score != ATTN_SCORE_CONSTANT; }

double ref_sigma(const attn_desc *d, int64_t h);
ref_entry ref_entry_of(const attn_desc *d, const ref_result *r, int64_t b);
int ref_has_key(const attn_desc *d, const ref_result *r, int64_t b, int64_t j); /* of the entry, whatever excludes it */
int ref_has_row(const attn_desc *d, const ref_result *r, int64_t b, int64_t i); /* 0: packed, and of another entry */
int64_t ref_key_place(const attn_desc *d, const attn_view *v, int64_t b, int64_t j, int64_t *row); /* batch index */
int64_t ref_key_length(const attn_desc *d, const ref_result *r, int64_t b, int64_t i);
int64_t ref_query_length(const attn_desc *d, const ref_result *r, int64_t b);
int64_t ref_position(const attn_desc *d, const ref_result *r, int64_t b, int64_t i);
int ref_allowed(const attn_desc *d, const ref_result *r, int64_t b, int64_t h, int64_t i, int64_t j);
void ref_sizes(const attn_desc *d, ref_result *r);
void ref_philox(uint32_t x[4], uint32_t key0, uint32_t key1);
void ref_print(const attn_desc *d); /* what is needed to build the same call again */

/* ---- results. Free with ref_free. The descriptor must be one that attn_forward accepts. */
void ref_forward(const attn_desc *d, ref_result *r);
void ref_free(ref_result *r);
double *ref_doubles(size_t n);
extern double ref_scale_nudge; /* added to the scale, which a descriptor holds as a float: for central differences */

/* ---- comparison */
extern const char *const ref_score_names[];
double ref_bound(const attn_desc *d);
double ref_ratio(float got, double want, double tolerance);

double ref_tolerance(const attn_desc *d, const ref_result *r, const double *want, int64_t row, int64_t at);

/* Checks every result that `d` asks for and attn_forward has written; returns the largest ratio of an error
   in out or weights to its bound. `what` says what was tried. */
double ref_check(const attn_desc *d, const ref_result *r, const char *what);

/* With --verbose: how near the bound of a score a test came. */
void ref_print_worst(int32_t score, double ratio);

/* ---- gradients, each with how far rounding may take it */

/* The bound: |gradient - exact| <= GRAD_BOUND times `error` of the reference, a sum of absolute terms. */
#define GRAD_BOUND 1e-6
#define GRAD_BOUND_OF_SUMS 3e-6 /* of parameters: 128 equal terms in a chain, each rounded the same way, lose 1.94e-6 */

/* What can have a gradient, in the order of attn_grad. */
enum {
    GRAD_Q,
    GRAD_K,
    GRAD_V,
    GRAD_GIVEN,
    GRAD_BIAS,
    GRAD_BILINEAR,
    GRAD_W_Q,
    GRAD_W_K,
    GRAD_W_V,
    GRAD_HIDDEN_BIAS,
    GRAD_SIGMA,
    GRAD_SCALE,
    GRAD_SINK,
    GRAD_ALIBI,
    GRAD_COUNT
};
extern const char *const ref_grad_names[GRAD_COUNT];

typedef struct ref_upstream {
    attn_view out, weights, lse; /* rank 0: absent */
} ref_upstream;

/* One gradient, shaped like what it belongs to; packed. rank 0: there is no such thing in this call. `error` is the
   largest effect of rounding, in units of the bound: sums of absolute terms, each times what its factors are off. */
typedef struct ref_tensor {
    attn_view like;
    int64_t count;
    double *x, *error;
} ref_tensor;

/* Rows along the last axis of a view as doubles, each read when it is needed first. */
typedef struct ref_rows {
    const attn_view *v;
    int64_t width;
    double *x;
    unsigned char *ready;
} ref_rows;

typedef struct ref_grads {
    ref_result forward;
    ref_tensor g[GRAD_COUNT];
    const attn_desc *d;
    const ref_upstream *up;
    ref_rows d_out;                           /* of one head */
    double scale, *hidden_k, *hidden_k_error; /* of one head: dL/d(W_k k + b) */
    double *hidden_q, *hidden_q_error;        /* of one query */
} ref_grads;

attn_view ref_grad_like(const attn_desc *d, int which);
void ref_make_tensor(ref_tensor *t, attn_view like);
void ref_add(ref_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d, double x, double error);

/* Free with ref_free_grads. */
void ref_backward(const attn_desc *d, const ref_upstream *up, ref_grads *g);
void ref_free_grads(ref_grads *g);

#endif
