/* ref.h - attention in float64, straight from the formulas, and the comparison of a result with it.

   Shares no code with the implementation. One pass over (query, key) pairs, every element read through its
   view, a key that is excluded is not read (unless the raw scores of all keys are asked for). */
#ifndef ATTN_REF_H
#define ATTN_REF_H

#include "test.h"

typedef struct ref_result {
    int64_t b, h, hkv, sq, sk, dk, dv, hidden;
    double *out;               /* [b,h,sq,dv] */
    double *lse;               /* [b,h,sq] */
    double *weights, *dropped; /* [b,h,sq,sk], before and after dropout */
    double *scores, *softcap;  /* [b,h,sq,sk]; NaN where nothing was read */
    double *masked;
    double *terms;         /* [b,h,sq,sk] sum of the absolute terms of the raw score; inf where nothing was read */
    double *all_terms;     /* the same with bias and ALiBi */
    double *v_max, *s_max; /* [b,h,sq] V and S of the bound in ATTN_SCORE_LIST */
    double *stats;         /* [b,h,sq,2] largest score, sum of e^(score - largest), without the sink */
    double *stats_off;     /* [b,h,sq] what the largest score may be off, in units of the bound */
    double *block;
} ref_result;

/* ---- reading */

/* Where element [a,b,c,d] of a view is: aligned from the right and broadcast as numpy does. */
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
    default: return NAN;
    }
}

/* An integer per batch entry or per query: [B] or [B,Sq] */
static inline int64_t ref_int(const attn_view *v, int64_t b, int64_t i) {
    int64_t offset = v->rank == 2 ? ref_offset(v, 0, 0, b, i) : ref_offset(v, 0, 0, 0, b);
    return v->type == ATTN_I32 ? ((const int32_t *)v->data)[offset] : ((const int64_t *)v->data)[offset];
}

/* ---- dropout: Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3"
 * (2011) */
static inline void ref_philox(uint32_t x[4], uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        uint64_t left = (uint64_t)0xD2511F53u * x[0], right = (uint64_t)0xCD9E8D57u * x[2];
        uint32_t x1 = x[1], x3 = x[3];
        x[0] = (uint32_t)(right >> 32) ^ x1 ^ key0;
        x[1] = (uint32_t)right;
        x[2] = (uint32_t)(left >> 32) ^ x3 ^ key1;
        x[3] = (uint32_t)left;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

static inline int ref_kept(const attn_desc *d, int64_t b, int64_t h, int64_t i, int64_t j) {
    const int64_t *origin = d->dropout_origin;
    uint32_t column = (uint32_t)(origin[3] + j);
    uint32_t x[4] = {column / 4, (uint32_t)(origin[2] + i), (uint32_t)(origin[1] + h), (uint32_t)(origin[0] + b)};
    ref_philox(x, (uint32_t)d->seed, (uint32_t)(d->seed >> 32));
    return (double)x[column % 4] >= (double)d->dropout * 4294967296.0;
}

/* ---- scores */

/* What is computed once for one head: W_k k of the keys read so far, and W_q q or q M of the query at hand.
 */
typedef struct ref_head {
    const attn_desc *d;
    const ref_result *r;
    int64_t b, h, hkv;
    double *query, *query_terms; /* of size max(Dk, hidden) */
    double *keys;                /* [sk, hidden] */
    unsigned char *key_ready;
} ref_head;

static inline double ref_project(const attn_view *w, const attn_view *x, int64_t b, int64_t head, int64_t whead,
                                 int64_t row, int64_t unit) {
    double sum = 0;
    if (!w->rank) return ref_at(x, b, head, row, unit); /* absent = identity */
    for (int64_t c = 0; c < x->size[3]; c++) sum += ref_at(w, 0, whead, unit, c) * ref_at(x, b, head, row, c);
    return sum;
}

static inline void ref_prepare_query(ref_head *s, int64_t i) {
    const attn_desc *d = s->d;
    if (d->score == ATTN_SCORE_ADDITIVE) {
        for (int64_t u = 0; u < s->r->hidden; u++) s->query[u] = ref_project(&d->w_q, &d->q, s->b, s->h, s->h, i, u);
    } else if (d->score == ATTN_SCORE_BILINEAR) {
        for (int64_t c = 0; c < s->r->dk; c++) {
            s->query[c] = s->query_terms[c] = 0;
            for (int64_t a = 0; a < d->q.size[3]; a++) {
                double term = ref_at(&d->q, s->b, s->h, i, a) * ref_at(&d->bilinear, 0, s->h, a, c);
                s->query[c] += term;
                s->query_terms[c] += fabs(term);
            }
        }
    } else if (d->score != ATTN_SCORE_GIVEN) {
        for (int64_t c = 0; c < s->r->dk; c++) {
            s->query[c] = ref_at(&d->q, s->b, s->h, i, c);
            s->query_terms[c] = fabs(s->query[c]);
        }
    }
}

static inline double ref_additive(ref_head *s, int64_t j, double *terms) {
    const attn_desc *d = s->d;
    double score = 0, *key = s->keys + j * s->r->hidden;
    *terms = 0;
    for (int64_t u = 0; u < s->r->hidden; u++) {
        double bias = d->hidden_bias.rank ? ref_at(&d->hidden_bias, 0, 0, s->h, u) : 0;
        double w = ref_at(&d->w_v, 0, 0, s->h, u);
        if (!s->key_ready[j]) key[u] = ref_project(&d->w_k, &d->k, s->b, s->hkv, s->h, j, u);
        score += w * tanh(s->query[u] + key[u] + bias);
        *terms += fabs(w) * (fabs(s->query[u]) + fabs(key[u] + bias) + 1);
    }
    s->key_ready[j] = 1;
    return score;
}

static inline double ref_product(const ref_head *s, int64_t j, double *terms) {
    double dot = 0, query2 = 0, key2 = 0;
    *terms = 0;
    for (int64_t c = 0; c < s->r->dk; c++) {
        double key = ref_at(&s->d->k, s->b, s->hkv, j, c);
        dot += s->query[c] * key;
        *terms += s->query_terms[c] * fabs(key);
        query2 += s->query[c] * s->query[c];
        key2 += key * key;
    }
    if (s->d->score != ATTN_SCORE_COSINE) return dot;
    double norms = sqrt(query2) * sqrt(key2);
    if (norms == 0) return *terms = 0;
    *terms /= norms;
    return dot / norms;
}

static inline double ref_sigma(const attn_desc *d, int64_t h) {
    if (d->sigma_per_head.rank) return ref_at(&d->sigma_per_head, 0, 0, 0, h);
    return d->sigma != 0 ? (double)d->sigma : 1;
}

static inline double ref_distance_kernel(const ref_head *s, int64_t j) {
    const attn_desc *d = s->d;
    double u2 = 0, weight, sigma = ref_sigma(d, s->h);
    for (int64_t c = 0; c < s->r->dk; c++) {
        double difference = s->query[c] - ref_at(&d->k, s->b, s->hkv, j, c);
        u2 += difference * difference;
    }
    u2 /= sigma * sigma;
    if (isnan(u2)) return u2;
    if (d->score == ATTN_SCORE_GAUSSIAN) return -u2 / 2;
    if (d->score == ATTN_SCORE_BOXCAR) weight = u2 <= 1;
    else if (d->score == ATTN_SCORE_EPANECHNIKOV) weight = 1 - u2;
    else weight = 1 - sqrt(u2);
    return weight > 0 ? log(weight) : -INFINITY;
}

/* The kernels, whose score is the logarithm of a weight and which take no scale. */
static inline int ref_is_kernel(int32_t score) { return score >= ATTN_SCORE_GAUSSIAN && score <= ATTN_SCORE_CONSTANT; }

static inline int ref_is_distance(int32_t score) { return ref_is_kernel(score) && score != ATTN_SCORE_CONSTANT; }

static double ref_scale_nudge; /* added to the scale, which a descriptor holds as a float: for central differences */

static inline double ref_scale(const attn_desc *d, const ref_result *r) {
    double scale = d->scale_set || d->scale != 0 ? (double)d->scale : 1;
    if (d->score == ATTN_SCORE_SCALED_DOT && !d->scale_set && d->scale == 0 && r->dk > 0)
        scale = 1 / sqrt((double)r->dk);
    return scale + ref_scale_nudge;
}

/* The raw score, scale included, and the sum of its absolute terms. */
static inline double ref_score(ref_head *s, int64_t i, int64_t j, double *terms) {
    const attn_desc *d = s->d;
    double score = 0, scale = ref_scale(d, s->r);
    *terms = 0;
    switch (d->score) {
    case ATTN_SCORE_CONSTANT: return 0;
    case ATTN_SCORE_GIVEN: *terms = fabs(score = ref_at(&d->given_scores, s->b, s->h, i, j)); break;
    case ATTN_SCORE_ADDITIVE: score = ref_additive(s, j, terms); break;
    case ATTN_SCORE_SCALED_DOT:
    case ATTN_SCORE_DOT:
    case ATTN_SCORE_COSINE:
    case ATTN_SCORE_BILINEAR: score = ref_product(s, j, terms); break;
    default: *terms = fabs(score = ref_distance_kernel(s, j)); return score;
    }
    *terms *= fabs(scale);
    return scale * score;
}

/* A kernel's weight of 0 excludes before the softcap, which would make a number of it. */
static inline double ref_softcap(const attn_desc *d, double score) {
    if (ref_is_distance(d->score) && score == -INFINITY) return score;
    return d->softcap > 0 ? d->softcap * tanh(score / d->softcap) : score;
}

/* ---- masks */
static inline int64_t ref_key_length(const attn_desc *d, const ref_result *r, int64_t b, int64_t i) {
    return d->key_lengths.rank ? ref_int(&d->key_lengths, b, i) : r->sk;
}

static inline int64_t ref_query_length(const attn_desc *d, const ref_result *r, int64_t b) {
    return d->query_lengths.rank ? ref_int(&d->query_lengths, b, 0) : r->sq;
}

static inline int64_t ref_position(const attn_desc *d, const ref_result *r, int64_t b, int64_t i) {
    if (d->align == ATTN_ALIGN_BOTTOM_RIGHT) return i + ref_key_length(d, r, b, i) - ref_query_length(d, r, b);
    if (d->align == ATTN_ALIGN_POSITIONS) return ref_int(&d->positions, b, i) + (d->positions.rank == 1 ? i : 0);
    return i;
}

/* |a - b| for any two numbers of 64 bits */
static inline uint64_t ref_distance(int64_t a, int64_t b) {
    return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

static inline int ref_allowed(const attn_desc *d, const ref_result *r, int64_t b, int64_t h, int64_t i, int64_t j) {
    int64_t p = ref_position(d, r, b, i), side = j < p ? d->window_left : d->window_right;
    if (i >= ref_query_length(d, r, b) || j >= ref_key_length(d, r, b, i)) return 0;
    if (d->causal && j > p) return 0;
    if (d->window && j != p && side != ATTN_UNBOUNDED && ref_distance(j, p) > (uint64_t)side) return 0;
    if (d->mask.rank && ref_at(&d->mask, b, h, i, j) == 0) return 0;
    return !(d->bias.rank && ref_at(&d->bias, b, h, i, j) == -INFINITY);
}

/* ---- one row */
static inline int64_t ref_row_index(const ref_result *r, int64_t b, int64_t h, int64_t i) {
    return (b * r->h + h) * r->sq + i;
}

static inline void ref_row_scores(ref_head *s, int64_t i) {
    const attn_desc *d = s->d;
    const ref_result *r = s->r;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    int all = d->scores.rank || d->scores_softcap.rank, prepared = 0;
    for (int64_t j = 0; j < r->sk; j++) {
        int64_t at = row * r->sk + j;
        int allowed = ref_allowed(d, r, s->b, s->h, i, j);
        r->scores[at] = r->softcap[at] = NAN;
        r->masked[at] = -INFINITY;
        r->terms[at] = r->all_terms[at] = INFINITY;
        if (!allowed && !all) continue;
        if (!prepared) ref_prepare_query(s, i);
        prepared = 1;
        r->scores[at] = ref_score(s, i, j, &r->terms[at]);
        r->softcap[at] = ref_softcap(d, r->scores[at]);
        if (!allowed || r->softcap[at] == -INFINITY) continue;
        double bias = d->bias.rank ? ref_at(&d->bias, s->b, s->h, i, j) : 0;
        double slope = d->alibi.rank ? ref_at(&d->alibi, 0, 0, 0, s->h) : 0;
        double alibi = slope * (double)ref_distance(ref_position(d, r, s->b, i), j);
        r->masked[at] = r->softcap[at] + bias - alibi;
        r->all_terms[at] = r->terms[at] + fabs(bias) + fabs(alibi);
    }
}

/* max that lets NaN through */
static inline double ref_max(double a, double b) { return isnan(a) || a > b ? a : b; }

static inline void ref_row_stats(const ref_head *s, int64_t row) {
    const ref_result *r = s->r;
    const double *masked = r->masked + row * r->sk;
    double top = -INFINITY, sum = 0, off = 0;
    for (int64_t j = 0; j < r->sk; j++) top = ref_max(top, masked[j]);
    for (int64_t j = 0; j < r->sk; j++) {
        double terms = r->all_terms[row * r->sk + j], score = r->scores[row * r->sk + j];
        if (masked[j] == -INFINITY) continue;
        sum += exp(masked[j] - top);
        if (ref_is_distance(s->d->score)) terms = (1 + terms) / fmin(1, exp(score));
        if (terms > off) off = terms;
    }
    r->stats[2 * row] = top;
    r->stats[2 * row + 1] = sum;
    r->stats_off[row] = 1 + off;
}

static inline void ref_row_softmax(const ref_head *s, int64_t i) {
    const attn_desc *d = s->d;
    const ref_result *r = s->r;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    double *weights = r->weights + row * r->sk;
    const double *masked = r->masked + row * r->sk;
    double sink = d->sink.rank ? ref_at(&d->sink, 0, 0, 0, s->h) : -INFINITY, top = sink, sum;
    for (int64_t j = 0; j < r->sk; j++) top = ref_max(top, masked[j]);
    if (top == -INFINITY) {
        r->lse[row] = -INFINITY;
        for (int64_t j = 0; j < r->sk; j++)
            weights[j] = d->empty == ATTN_EMPTY_NAN ? NAN : d->empty == ATTN_EMPTY_UNIFORM ? 1 / (double)r->sk : 0;
        return;
    }
    sum = sink == -INFINITY ? 0 : exp(sink - top);
    for (int64_t j = 0; j < r->sk; j++)
        if (masked[j] != -INFINITY) sum += exp(masked[j] - top);
    for (int64_t j = 0; j < r->sk; j++) weights[j] = masked[j] == -INFINITY ? 0 : exp(masked[j] - top) / sum;
    r->lse[row] = top + log(sum);
}

/* V and S of the bound. A key whose exact weight is far below rounding adds nothing to S, nor does one
 * outside. */
static inline void ref_row_bound(const ref_head *s, int64_t i, int uniform) {
    const attn_desc *d = s->d;
    const ref_result *r = s->r;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    double v_max = 0, s_max = 0;
    for (int64_t j = 0; j < r->sk; j++) {
        double masked = r->masked[row * r->sk + j], terms = r->all_terms[row * r->sk + j];
        if (masked == -INFINITY && !uniform) continue;
        for (int64_t c = 0; c < r->dv; c++) {
            double v = fabs(ref_at(&d->v, s->b, s->hkv, j, c));
            if (isfinite(v) && v > v_max) v_max = v;
        }
        if (isfinite(terms) && terms > s_max && masked - r->lse[row] > -40 - 1e-5 * terms) s_max = terms;
    }
    r->v_max[row] = d->dropout < 1 ? v_max / (1 - (double)d->dropout) : 0;
    r->s_max[row] = s_max;
}

static inline void ref_row_output(const ref_head *s, int64_t i) {
    const attn_desc *d = s->d;
    const ref_result *r = s->r;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    const double *weights = r->weights + row * r->sk, *masked = r->masked + row * r->sk;
    double *dropped = r->dropped + row * r->sk, *out = r->out + row * r->dv;
    int empty = r->lse[row] == -INFINITY, uniform = empty && d->empty == ATTN_EMPTY_UNIFORM;
    for (int64_t j = 0; j < r->sk; j++) {
        dropped[j] = weights[j];
        if (d->dropout > 0 && !(empty && d->empty == ATTN_EMPTY_NAN))
            dropped[j] = ref_kept(d, s->b, s->h, i, j) ? weights[j] / (1 - (double)d->dropout) : 0;
    }
    for (int64_t c = 0; c < r->dv; c++) {
        out[c] = empty && d->empty == ATTN_EMPTY_NAN ? NAN : 0;
        for (int64_t j = 0; j < r->sk; j++)
            if (masked[j] != -INFINITY || uniform) out[c] += dropped[j] * ref_at(&d->v, s->b, s->hkv, j, c);
    }
    ref_row_bound(s, i, uniform);
}

/* ---- the whole */
static inline void ref_sizes(const attn_desc *d, ref_result *r) {
    int given = d->score == ATTN_SCORE_GIVEN;
    memset(r, 0, sizeof *r);
    r->b = given ? d->given_scores.size[0] : d->q.size[0];
    r->h = given ? d->given_scores.size[1] : d->q.size[1];
    r->sq = given ? d->given_scores.size[2] : d->q.size[2];
    r->sk = given ? d->given_scores.size[3] : d->k.size[2];
    r->dk = given ? 0 : d->k.size[3];
    r->hkv = !given ? d->k.size[1] : d->v.rank ? d->v.size[1] : r->h;
    r->dv = d->v.rank ? d->v.size[3] : 0;
    r->hidden = d->score == ATTN_SCORE_ADDITIVE ? d->w_v.size[d->w_v.rank - 1] : 0;
}

static inline double *ref_doubles(size_t n) {
    double *p = (double *)malloc((n + 1) * sizeof *p);
    if (!p) abort();
    return p;
}

static inline double *ref_take(double **from, int64_t n) {
    double *p = *from;
    *from += n;
    return p;
}

static inline void ref_allocate(ref_result *r) {
    int64_t rows = r->b * r->h * r->sq;
    double *p = r->block = ref_doubles((size_t)(rows * (r->dv + 6 + 7 * r->sk)));
    r->out = ref_take(&p, rows * r->dv);
    r->lse = ref_take(&p, rows);
    r->v_max = ref_take(&p, rows);
    r->s_max = ref_take(&p, rows);
    r->stats = ref_take(&p, 2 * rows);
    r->stats_off = ref_take(&p, rows);
    r->weights = ref_take(&p, rows * r->sk);
    r->dropped = ref_take(&p, rows * r->sk);
    r->scores = ref_take(&p, rows * r->sk);
    r->softcap = ref_take(&p, rows * r->sk);
    r->masked = ref_take(&p, rows * r->sk);
    r->terms = ref_take(&p, rows * r->sk);
    r->all_terms = ref_take(&p, rows * r->sk);
}

/* Free with ref_free. The descriptor must be one that attn_forward accepts. */
static inline void ref_forward(const attn_desc *d, ref_result *r) {
    ref_sizes(d, r);
    ref_allocate(r);
    int64_t width = r->dk > r->hidden ? r->dk : r->hidden;
    ref_head s = {d,
                  r,
                  0,
                  0,
                  0,
                  ref_doubles((size_t)width),
                  ref_doubles((size_t)width),
                  ref_doubles((size_t)(r->sk * r->hidden)),
                  (unsigned char *)malloc((size_t)r->sk + 1)};
    for (s.b = 0; s.b < r->b; s.b++) {
        for (s.h = 0; s.h < r->h; s.h++) {
            s.hkv = s.h / (r->h / r->hkv);
            memset(s.key_ready, 0, (size_t)r->sk);
            for (int64_t i = 0; i < r->sq; i++) {
                ref_row_scores(&s, i);
                ref_row_stats(&s, ref_row_index(r, s.b, s.h, i));
                ref_row_softmax(&s, i);
                ref_row_output(&s, i);
            }
        }
    }
    free(s.query);
    free(s.query_terms);
    free(s.keys);
    free(s.key_ready);
}

static inline void ref_free(ref_result *r) { free(r->block); }

/* ---- comparison */
static const double ref_bounds[] = {
#define REF_X(name, text, bound) bound,
    ATTN_SCORE_LIST(REF_X)
#undef REF_X
};
static const char *const ref_score_names[] = {
#define REF_X(name, text, bound) text,
    ATTN_SCORE_LIST(REF_X)
#undef REF_X
};

static inline double ref_bound(const attn_desc *d) { return ref_bounds[d->score]; }

/* With --verbose: how near the bound of a score a test came. */
static inline void ref_print_worst(int32_t score, double ratio) {
    if (test_verbose())
        printf("    %-20s largest error %.3f of the bound %g * V * (1 + S)\n", ref_score_names[score], ratio,
               ref_bounds[score]);
}

static inline void ref_print_view(const char *name, const attn_view *v) {
    static const char *const types[] = {"f32", "f16", "bf16", "f64", "u8", "i32", "i64"};
    if (!v->rank) return;
    printf("        %-14s %s size", name, types[v->type]);
    for (int axis = 0; axis < v->rank; axis++) printf(" %ld", (long)v->size[axis]);
    printf(" stride");
    for (int axis = 0; axis < v->rank; axis++) printf(" %ld", (long)v->stride[axis]);
    printf("\n");
}

/* What is needed to build the same call again. */
static inline void ref_print(const attn_desc *d) {
    const struct {
        const char *name;
        attn_view view;
    } views[] = {{"q", d->q},
                 {"k", d->k},
                 {"v", d->v},
                 {"given_scores", d->given_scores},
                 {"sigma_per_head", d->sigma_per_head},
                 {"bilinear", d->bilinear},
                 {"w_q", d->w_q},
                 {"w_k", d->w_k},
                 {"w_v", d->w_v},
                 {"hidden_bias", d->hidden_bias},
                 {"bias", d->bias},
                 {"alibi", d->alibi},
                 {"sink", d->sink},
                 {"mask", d->mask},
                 {"key_lengths", d->key_lengths},
                 {"query_lengths", d->query_lengths},
                 {"positions", d->positions},
                 {"out", attn_view_of(d->out)},
                 {"lse", attn_view_of(d->lse)},
                 {"weights", attn_view_of(d->weights)},
                 {"scores", attn_view_of(d->scores)},
                 {"scores_softcap", attn_view_of(d->scores_softcap)},
                 {"scores_masked", attn_view_of(d->scores_masked)},
                 {"stats", attn_view_of(d->stats)}};
    if (test_quiet()) return;
    printf("        %s, isa %s, scale %g (set %d), sigma %g, softcap %g, causal %d, align %d, window %d "
           "[%ld,%ld], "
           "empty %d, dropout %g (after %d) seed %llu origin %ld %ld %ld %ld\n",
           ref_score_names[d->score], attn_isa_string((attn_isa)d->isa), (double)d->scale, d->scale_set,
           (double)d->sigma, (double)d->softcap, d->causal, d->align, d->window, (long)d->window_left,
           (long)d->window_right, d->empty, (double)d->dropout, d->weights_after_dropout, (unsigned long long)d->seed,
           (long)d->dropout_origin[0], (long)d->dropout_origin[1], (long)d->dropout_origin[2],
           (long)d->dropout_origin[3]);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) ref_print_view(views[i].name, &views[i].view);
}

/* How far a result is off, in units of its bound. */
typedef struct ref_worst {
    double ratio;     /* largest error / bound; above 1 = wrong; infinite where the kind of number is wrong */
    int64_t index[4]; /* of the first element above 1, else of the largest */
    double got, want, tolerance;
} ref_worst;

static inline double ref_ratio(float got, double want, double tolerance) {
    uint32_t bits;
    memcpy(&bits, &got, sizeof bits);
    if (isnan(got) || isnan(want)) return isnan(want) && bits == 0x7fc00000u ? 0 : INFINITY;
    if (isinf(got) || isinf(want)) return (double)got == want ? 0 : INFINITY;
    double error = fabs((double)got - want);
    return error == 0 ? 0 : tolerance > 0 ? error / tolerance : INFINITY;
}

/* The error allowed for one element of a result. */
static inline double ref_tolerance(const attn_desc *d, const ref_result *r, const double *want, int64_t row,
                                   int64_t at) {
    double unit = ref_bound(d) * (1 + r->s_max[row]);
    if (want == r->out) return unit * r->v_max[row];
    if (want == r->lse) return ref_bound(d) * (1 + r->s_max[row] + fabs(r->lse[row]));
    if (want == r->weights || want == r->dropped) /* an excluded key has a weight of exactly 0 */
        return want[at] == 0 ? 0 : want == r->weights ? unit : unit / (1 - (double)d->dropout);
    unit = ref_bound(d) * (1 + (want == r->masked ? r->all_terms : r->terms)[at]);
    /* the logarithm of a kernel's weight: what is exact to the bound is the weight, near its edge not the logarithm */
    return ref_is_distance(d->score) && d->score != ATTN_SCORE_GAUSSIAN ? unit / exp(r->scores[at]) : unit;
}

static inline ref_worst ref_compare_result(const attn_desc *d, const ref_result *r, const attn_out *got,
                                           const double *want) {
    ref_worst worst = {0, {0, 0, 0, 0}, 0, 0, 0};
    attn_view view = attn_view_of(*got);
    int64_t last = want == r->out ? r->dv : want == r->lse ? 1 : r->sk;
    for (int64_t row = 0; row < r->b * r->h * r->sq; row++) {
        int64_t b = row / (r->h * r->sq), h = row / r->sq % r->h, i = row % r->sq;
        for (int64_t c = 0; c < last; c++) {
            int64_t at = row * last + c;
            float value = (float)(want == r->lse ? ref_at(&view, 0, b, h, i) : ref_at(&view, b, h, i, c));
            double tolerance = ref_tolerance(d, r, want, row, at), ratio = ref_ratio(value, want[at], tolerance);
            if (!(ratio > worst.ratio)) continue;
            ref_worst found = {ratio, {b, h, i, c}, value, want[at], tolerance};
            worst = found;
            if (ratio > 1) return worst;
        }
    }
    return worst;
}

/* The two numbers of a row belong together: the sum is held against the one that goes with the maximum found. */
static inline double ref_stats_ratio(const attn_desc *d, const ref_result *r, int64_t row, double top, double sum) {
    double want = r->stats[2 * row], mass = r->stats[2 * row + 1], off = ref_bound(d) * r->stats_off[row];
    if (isnan(mass)) return isnan(sum) ? 0 : INFINITY; /* of a row with NaN or +inf the maximum says nothing */
    if (want == -INFINITY) return top == want && sum == 0 ? 0 : INFINITY;
    double ratio = fabs(top - want) / off;
    return fmax(ratio, fabs(log(sum) + top - log(mass) - want) / (off + ref_bound(d) * fabs(log(mass))));
}

static inline void ref_check_stats(const attn_desc *d, const ref_result *r, const char *what) {
    attn_view view = attn_view_of(d->stats);
    for (int64_t row = 0; d->stats.rank && row < r->b * r->h * r->sq; row++) {
        int64_t b = row / (r->h * r->sq), h = row / r->sq % r->h, i = row % r->sq;
        double top = ref_at(&view, b, h, i, 0), sum = ref_at(&view, b, h, i, 1),
               ratio = ref_stats_ratio(d, r, row, top, sum);
        if (CHECKF(ratio <= 1, "%s: stats[%ld,%ld,%ld] are %.9g and %.9g, want %.9g and %.9g (isa %s, seed %llu)", what,
                   (long)b, (long)h, (long)i, top, sum, r->stats[2 * row], r->stats[2 * row + 1],
                   attn_isa_string((attn_isa)d->isa), test_seed()))
            continue;
        ref_print(d);
        return;
    }
}

/* Checks every result that `d` asks for and attn_forward has written; returns the largest ratio of an error
   in out or weights to its bound. `what` says what was tried. */
static inline double ref_check(const attn_desc *d, const ref_result *r, const char *what) {
    const struct {
        const char *name;
        const attn_out *got;
        const double *want;
    } results[] = {{"out", &d->out, r->out},
                   {"lse", &d->lse, r->lse},
                   {"weights", &d->weights, d->weights_after_dropout ? r->dropped : r->weights},
                   {"scores", &d->scores, r->scores},
                   {"scores_softcap", &d->scores_softcap, r->softcap},
                   {"scores_masked", &d->scores_masked, r->masked}};
    double ratio = 0;
    for (int n = 0; n < 6; n++) {
        if (!results[n].got->rank) continue;
        ref_worst w = ref_compare_result(d, r, results[n].got, results[n].want);
        if (n == 0 || n == 2) ratio = fmax(ratio, w.ratio);
        if (!CHECKF(w.ratio <= 1,
                    "%s: %s[%ld,%ld,%ld,%ld] is %.9g, want %.9g: off by %.3g, bound %.3g (isa %s, seed %llu)", what,
                    results[n].name, (long)w.index[0], (long)w.index[1], (long)w.index[2], (long)w.index[3], w.got,
                    w.want, fabs(w.got - w.want), w.tolerance, attn_isa_string((attn_isa)d->isa), test_seed()))
            ref_print(d);
    }
    ref_check_stats(d, r, what);
    return ratio;
}

#endif
