/* ref_grad.h - the gradients of attention in float64, straight from the formulas, each with how far rounding may take
   it; backward.c verifies them by central differences of ref_forward.

   Shares no code with the implementation. L is the sum of d_out*out + d_weights*weights + d_lse*lse; for every
   (query, key) pair that has weight, dL/d(raw score) comes first, then what it means for what the score is made of. */
#ifndef ATTN_REF_GRAD_H
#define ATTN_REF_GRAD_H

#include "ref.h"

/* The bound: |gradient - exact| <= GRAD_BOUND times `error` of the reference, a sum of absolute terms. */
#define GRAD_BOUND 1e-6
#define GRAD_BOUND_OF_SUMS 3e-6 /* of parameters: thousands of like terms in a chain, each rounded the same way */

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
static const char *const ref_grad_names[GRAD_COUNT] = {
    "dq",         "dk",      "dv",     "d_given_scores", "d_bias",
    "d_bilinear", "d_w_q",   "d_w_k",  "d_w_v",          "d_hidden_bias",
    "d_sigma",    "d_scale", "d_sink", "d_alibi"};

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

typedef struct ref_grads {
    ref_result forward;
    ref_tensor g[GRAD_COUNT];
    const attn_desc *d;
    const ref_upstream *up;
    double scale, *hidden_k, *hidden_k_error; /* of one head: dL/d(W_k k + b) */
    double *hidden_q, *hidden_q_error;        /* of one query */
} ref_grads;

/* ---- shapes */
static inline attn_view ref_grad_like(const attn_desc *d, int which) {
    static const float one = 1;
    attn_view none;
    memset(&none, 0, sizeof none);
    switch (which) {
    case GRAD_Q: return d->q;
    case GRAD_K: return d->k;
    case GRAD_V: return d->v;
    case GRAD_GIVEN: return d->given_scores;
    case GRAD_BIAS: return d->bias;
    case GRAD_BILINEAR: return d->bilinear;
    case GRAD_W_Q: return d->w_q;
    case GRAD_W_K: return d->w_k;
    case GRAD_W_V: return d->w_v;
    case GRAD_HIDDEN_BIAS: return d->hidden_bias;
    case GRAD_SIGMA:
        if (!ref_is_distance(d->score)) return none;
        return d->sigma_per_head.rank ? d->sigma_per_head : attn_view_f32(&one, 1, 1, 0, 0, 0);
    case GRAD_SCALE: return ref_is_kernel(d->score) ? none : attn_view_f32(&one, 1, 1, 0, 0, 0);
    case GRAD_SINK: return d->sink;
    default: return d->alibi;
    }
}

static inline void ref_make_tensor(ref_tensor *t, attn_view like) {
    memset(t, 0, sizeof *t);
    t->like = like;
    if (!like.rank) return;
    t->count = 1;
    for (int axis = like.rank; axis-- > 0;) {
        t->like.stride[axis] = t->count;
        t->count *= like.size[axis];
    }
    t->x = (double *)calloc((size_t)t->count + 1, sizeof *t->x);
    t->error = (double *)calloc((size_t)t->count + 1, sizeof *t->error);
    if (!t->x || !t->error) abort();
}

/* Adds to element [a,b,c,d], broadcast as the thing itself is. */
static inline void ref_add(ref_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d, double x, double error) {
    int64_t at = ref_offset(&t->like, a, b, c, d);
    t->x[at] += x;
    t->error[at] += error;
}

/* Where a slope is 0, what it is taken of may be infinite. */
static inline double ref_share(double slope, double x) { return slope == 0 ? 0 : slope * x; }

/* ---- what a raw score is made of. g is dL/d(raw score), e how far it may be off. */
static inline void ref_grad_dot(ref_grads *g, const ref_head *s, int64_t i, int64_t j, double slope, double e) {
    double scale = g->scale, raw = 0, terms = 0;
    for (int64_t c = 0; c < g->forward.dk; c++) {
        double q = ref_at(&g->d->q, s->b, s->h, i, c), k = ref_at(&g->d->k, s->b, s->hkv, j, c);
        ref_add(&g->g[GRAD_Q], s->b, s->h, i, c, slope * scale * k, e * fabs(scale * k));
        ref_add(&g->g[GRAD_K], s->b, s->hkv, j, c, slope * scale * q, e * fabs(scale * q));
        raw += q * k;
        terms += fabs(q * k);
    }
    ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * raw, e * terms);
}

static inline void ref_grad_cosine(ref_grads *g, const ref_head *s, int64_t i, int64_t j, double slope, double e) {
    double scale = g->scale, dot = 0, terms = 0, q2 = 0, k2 = 0;
    for (int64_t c = 0; c < g->forward.dk; c++) {
        double q = ref_at(&g->d->q, s->b, s->h, i, c), k = ref_at(&g->d->k, s->b, s->hkv, j, c);
        dot += q * k;
        terms += fabs(q * k);
        q2 += q * q;
        k2 += k * k;
    }
    if (q2 == 0 || k2 == 0) return; /* the cosine of a zero vector is 0, and has no direction */
    double q_norm = sqrt(q2), k_norm = sqrt(k2), cosine = dot / q_norm / k_norm;
    terms /= q_norm * k_norm;
    double small = 1e-44 / GRAD_BOUND / (q_norm * k_norm); /* a slope times a tiny component may be subnormal */
    for (int64_t c = 0; c < g->forward.dk; c++) {
        double q = ref_at(&g->d->q, s->b, s->h, i, c) / q_norm, k = ref_at(&g->d->k, s->b, s->hkv, j, c) / k_norm;
        ref_add(&g->g[GRAD_Q], s->b, s->h, i, c, slope * scale * (k - cosine * q) / q_norm,
                fabs(scale) * (e * (fabs(k) + terms * fabs(q)) / q_norm + small));
        ref_add(&g->g[GRAD_K], s->b, s->hkv, j, c, slope * scale * (q - cosine * k) / k_norm,
                fabs(scale) * (e * (fabs(q) + terms * fabs(k)) / k_norm + small));
    }
    ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * cosine, e * terms);
}

/* q M k */
static inline void ref_grad_bilinear(ref_grads *g, const ref_head *s, int64_t i, int64_t j, double slope, double e) {
    const attn_desc *d = g->d;
    double scale = g->scale, raw = 0, all_terms = 0;
    int64_t dq = d->q.size[3], dk = d->k.size[3];
    for (int64_t a = 0; a < dq; a++) {
        double q = ref_at(&d->q, s->b, s->h, i, a), sum = 0, terms = 0;
        for (int64_t c = 0; c < dk; c++) {
            double m = ref_at(&d->bilinear, 0, s->h, a, c), k = ref_at(&d->k, s->b, s->hkv, j, c);
            sum += m * k;
            terms += fabs(m * k);
            ref_add(&g->g[GRAD_K], s->b, s->hkv, j, c, slope * scale * q * m, e * fabs(scale * q * m));
            ref_add(&g->g[GRAD_BILINEAR], 0, s->h, a, c, slope * scale * q * k, e * fabs(scale * q * k));
        }
        ref_add(&g->g[GRAD_Q], s->b, s->h, i, a, slope * scale * sum, e * fabs(scale) * terms);
        raw += q * sum;
        all_terms += fabs(q) * terms;
    }
    ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * raw, e * all_terms);
}

/* w_v tanh(a + b): what belongs to W_q q and W_k k is collected per query and per key, see below */
static inline void ref_grad_additive(ref_grads *g, const ref_head *s, int64_t j, double slope, double e) {
    const attn_desc *d = g->d;
    int64_t hidden = g->forward.hidden;
    double scale = g->scale, raw = 0, all_terms = 0;
    for (int64_t u = 0; u < hidden; u++) {
        double bias = d->hidden_bias.rank ? ref_at(&d->hidden_bias, 0, 0, s->h, u) : 0, key = s->keys[j * hidden + u],
               w = ref_at(&d->w_v, 0, 0, s->h, u), t = tanh(s->query[u] + key + bias), steep = 1 - t * t,
               inner = fabs(s->query[u]) + fabs(key) + fabs(bias), x = slope * scale * w * steep,
               x_error = fabs(scale * w) *
                         (ref_share(steep, e) + (fabs(slope) + GRAD_BOUND * e) * (1 + ref_share(steep, inner)));
        raw += w * t;
        all_terms += fabs(w) * (1 + inner);
        ref_add(&g->g[GRAD_W_V], 0, 0, s->h, u, slope * scale * t,
                fabs(scale) * (e * fabs(t) + (fabs(slope) + GRAD_BOUND * e) * (1 + ref_share(steep, inner))));
        if (d->hidden_bias.rank) ref_add(&g->g[GRAD_HIDDEN_BIAS], 0, 0, s->h, u, x, x_error);
        g->hidden_q[u] += x;
        g->hidden_q_error[u] += x_error;
        g->hidden_k[j * hidden + u] += x;
        g->hidden_k_error[j * hidden + u] += x_error;
    }
    ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * raw, e * all_terms);
}

/* From dL/d(W x) to dL/dW and dL/dx; without W they are the same. */
static inline void ref_grad_project(ref_grads *g, const attn_view *w, const attn_view *x, ref_tensor *dw,
                                    ref_tensor *dx, int64_t b, int64_t head, int64_t whead, int64_t row,
                                    const double *slope, const double *error) {
    for (int64_t u = 0; u < g->forward.hidden; u++) {
        if (!w->rank) ref_add(dx, b, head, row, u, slope[u], error[u]);
        for (int64_t c = 0; w->rank && c < x->size[3]; c++) {
            double factor = ref_at(w, 0, whead, u, c), value = ref_at(x, b, head, row, c);
            ref_add(dx, b, head, row, c, slope[u] * factor, error[u] * fabs(factor));
            ref_add(dw, 0, whead, u, c, slope[u] * value, error[u] * fabs(value));
        }
    }
}

/* The logarithm of a weight that depends on u = |q - k|/sigma. m (q - k) is its slope in q. */
static inline void ref_grad_distance(ref_grads *g, const ref_head *s, int64_t i, int64_t j, double slope, double e) {
    const attn_desc *d = g->d;
    double sigma = ref_sigma(d, s->h), square = 0, m = 0;
    for (int64_t c = 0; c < g->forward.dk; c++) {
        double difference = ref_at(&d->q, s->b, s->h, i, c) - ref_at(&d->k, s->b, s->hkv, j, c);
        square += difference * difference;
    }
    double u = sqrt(square) / sigma;
    if (d->score == ATTN_SCORE_GAUSSIAN) m = -1 / (sigma * sigma);
    if (d->score == ATTN_SCORE_EPANECHNIKOV) m = -2 / (sigma * sigma * (1 - u * u));
    if (d->score == ATTN_SCORE_TRIANGULAR && u != 0) m = -1 / (sigma * sigma * u * (1 - u));
    for (int64_t c = 0; c < g->forward.dk; c++) {
        double difference = ref_at(&d->q, s->b, s->h, i, c) - ref_at(&d->k, s->b, s->hkv, j, c), x = m * difference;
        ref_add(&g->g[GRAD_Q], s->b, s->h, i, c, slope * x, e * fabs(x));
        ref_add(&g->g[GRAD_K], s->b, s->hkv, j, c, -slope * x, e * fabs(x));
    }
    ref_add(&g->g[GRAD_SIGMA], 0, 0, 0, s->h, -slope * m * square / sigma, e * fabs(m) * square / sigma);
}

static inline void ref_grad_raw(ref_grads *g, const ref_head *s, int64_t i, int64_t j, double slope, double e) {
    switch (g->d->score) {
    case ATTN_SCORE_SCALED_DOT:
    case ATTN_SCORE_DOT: ref_grad_dot(g, s, i, j, slope, e); break;
    case ATTN_SCORE_COSINE: ref_grad_cosine(g, s, i, j, slope, e); break;
    case ATTN_SCORE_BILINEAR: ref_grad_bilinear(g, s, i, j, slope, e); break;
    case ATTN_SCORE_ADDITIVE: ref_grad_additive(g, s, j, slope, e); break;
    case ATTN_SCORE_GAUSSIAN:
    case ATTN_SCORE_EPANECHNIKOV:
    case ATTN_SCORE_TRIANGULAR: ref_grad_distance(g, s, i, j, slope, e); break;
    case ATTN_SCORE_GIVEN: {
        double given = ref_at(&g->d->given_scores, s->b, s->h, i, j);
        ref_add(&g->g[GRAD_GIVEN], s->b, s->h, i, j, slope * g->scale, e * fabs(g->scale));
        ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * given, e * fabs(given));
        break;
    }
    default: break; /* steps and constants have no slope */
    }
}

/* ---- one row */

/* How far a weight may be off, relative to it. Next to a kernel's edge it is a small difference of rounded numbers. */
static inline double ref_grad_off(const attn_desc *d, const ref_result *r, int64_t row, int64_t at) {
    int edge = d->score == ATTN_SCORE_EPANECHNIKOV || d->score == ATTN_SCORE_TRIANGULAR;
    return 1 + (r->all_terms[at] > r->s_max[row] ? r->all_terms[at] : r->s_max[row]) +
           (edge ? 0.1 / exp(r->scores[at]) : 0);
}

/* As large as the weight may be found: where scores are so large that they lose their digits, rows become flat. */
static inline double ref_grad_reach(const ref_result *r, int64_t row, int64_t at, double off) {
    return exp(fmin(0, r->masked[at] - r->lse[row] + GRAD_BOUND * off));
}

/* dL/d(weight) of one pair and the sum of its absolute terms; adds the pair's part of dv. `error`: of the weight.
   ref_tiny stands for a weight below 2^-126, which is rounded to 0: what that is in units of the bound. */
static const double ref_tiny = 2e-32;

static inline double ref_grad_weight(ref_grads *g, const ref_head *s, int64_t i, int64_t j, double error,
                                     double *terms) {
    const attn_desc *d = g->d;
    const ref_result *r = &g->forward;
    int64_t at = ref_row_index(r, s->b, s->h, i) * r->sk + j;
    double kept = d->dropout > 0 ? ref_kept(d, s->b, s->h, i, j) ? 1 / (1 - (double)d->dropout) : 0 : 1, slope = 0;
    *terms = 0;
    for (int64_t c = 0; g->up->out.rank && c < r->dv; c++) {
        double upstream = ref_at(&g->up->out, s->b, s->h, i, c), v = ref_at(&d->v, s->b, s->hkv, j, c),
               weight = r->dropped[at];
        slope += upstream * v;
        *terms += fabs(upstream * v);
        ref_add(&g->g[GRAD_V], s->b, s->hkv, j, c, weight * upstream, ref_share(kept, error) * fabs(upstream));
    }
    double given = g->up->weights.rank ? ref_at(&g->up->weights, s->b, s->h, i, j) : 0;
    if (d->weights_after_dropout) given *= kept;
    *terms = kept * *terms + fabs(given);
    return kept * slope + given;
}

static inline void ref_grad_pair(ref_grads *g, const ref_head *s, int64_t i, int64_t j, double slope, double error) {
    const attn_desc *d = g->d;
    const ref_result *r = &g->forward;
    int64_t row = ref_row_index(r, s->b, s->h, i), at = row * r->sk + j;
    double distance = (double)ref_distance(ref_position(d, r, s->b, i), j), steep = 1;
    double e = ref_share(error, ref_grad_off(d, r, row, at));
    if (d->bias.rank) ref_add(&g->g[GRAD_BIAS], s->b, s->h, i, j, slope, e);
    if (d->alibi.rank) ref_add(&g->g[GRAD_ALIBI], 0, 0, 0, s->h, -slope * distance, e * distance);
    if (d->softcap > 0) { /* the slope of tanh where it is flat is a small difference of rounded numbers */
        double t = tanh(r->scores[at] / d->softcap);
        steep = 1 - t * t;
        e = ref_share(steep, e) + error * (1 + ref_share(steep, r->terms[at] / d->softcap));
    }
    ref_grad_raw(g, s, i, j, slope * steep, e);
}

static inline void ref_grad_uniform_row(ref_grads *g, const ref_head *s, int64_t i) {
    for (int64_t j = 0; j < g->forward.sk; j++) {
        double terms;
        if (g->up->out.rank) ref_grad_weight(g, s, i, j, 1 / (double)g->forward.sk, &terms);
    }
}

static inline void ref_grad_row(ref_grads *g, ref_head *s, int64_t i, double *slope, double *terms, double *reach) {
    const attn_desc *d = g->d;
    const ref_result *r = &g->forward;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    const double *weights = r->weights + row * r->sk, *masked = r->masked + row * r->sk;
    double delta = 0, delta_terms = 0, d_lse = g->up->lse.rank ? ref_at(&g->up->lse, 0, s->b, s->h, i) : 0;
    if (r->lse[row] == -INFINITY) { /* a row without mass has no gradients, but for the values under UNIFORM */
        if (d->empty == ATTN_EMPTY_UNIFORM) ref_grad_uniform_row(g, s, i);
        return;
    }
    if (d->score == ATTN_SCORE_ADDITIVE) {
        memset(g->hidden_q, 0, (size_t)r->hidden * sizeof(double));
        memset(g->hidden_q_error, 0, (size_t)r->hidden * sizeof(double));
        ref_prepare_query(s, i);
    }
    for (int64_t j = 0; j < r->sk; j++) {
        if (masked[j] == -INFINITY) continue;
        double off = ref_grad_off(d, r, row, row * r->sk + j);
        reach[j] = ref_grad_reach(r, row, row * r->sk + j, off) + ref_tiny;
        slope[j] = ref_grad_weight(g, s, i, j, ref_share(reach[j], off), &terms[j]);
        delta += weights[j] * slope[j];
        delta_terms += reach[j] * terms[j];
    }
    for (int64_t j = 0; j < r->sk; j++) {
        double ignored;
        if (masked[j] == -INFINITY) continue;
        if (d->score == ATTN_SCORE_ADDITIVE && !s->key_ready[j]) ref_additive(s, j, &ignored);
        ref_grad_pair(g, s, i, j, weights[j] * (slope[j] - delta + d_lse),
                      reach[j] * (terms[j] + delta_terms + fabs(d_lse)));
    }
    if (d->sink.rank) {
        double sink = ref_at(&d->sink, 0, 0, 0, s->h), weight = sink == -INFINITY ? 0 : exp(sink - r->lse[row]);
        if (weight != 0) /* NaN too */
            ref_add(&g->g[GRAD_SINK], 0, 0, 0, s->h, weight * (d_lse - delta),
                    (weight + ref_tiny) * (1 + r->s_max[row] + fabs(sink)) * (delta_terms + fabs(d_lse)));
    }
    if (d->score == ATTN_SCORE_ADDITIVE)
        ref_grad_project(g, &d->w_q, &d->q, &g->g[GRAD_W_Q], &g->g[GRAD_Q], s->b, s->h, s->h, i, g->hidden_q,
                         g->hidden_q_error);
}

/* ---- the whole. Free with ref_free_grads. */
static inline void ref_backward(const attn_desc *d, const ref_upstream *up, ref_grads *g) {
    memset(g, 0, sizeof *g);
    ref_forward(d, &g->forward);
    const ref_result *r = &g->forward;
    int64_t width = r->dk > r->hidden ? r->dk : r->hidden, hidden_keys = r->sk * r->hidden;
    double *slope = ref_doubles((size_t)r->sk), *terms = ref_doubles((size_t)r->sk),
           *reach = ref_doubles((size_t)r->sk);
    ref_head s = {d,
                  r,
                  0,
                  0,
                  0,
                  ref_doubles((size_t)width),
                  ref_doubles((size_t)width),
                  ref_doubles((size_t)hidden_keys),
                  (unsigned char *)malloc((size_t)r->sk + 1)};
    g->d = d;
    g->up = up;
    g->scale = ref_scale(d, r);
    g->hidden_k = ref_doubles((size_t)hidden_keys);
    g->hidden_k_error = ref_doubles((size_t)hidden_keys);
    g->hidden_q = ref_doubles((size_t)r->hidden);
    g->hidden_q_error = ref_doubles((size_t)r->hidden);
    for (int n = 0; n < GRAD_COUNT; n++) ref_make_tensor(&g->g[n], ref_grad_like(d, n));
    for (s.b = 0; s.b < r->b; s.b++)
        for (s.h = 0; s.h < r->h; s.h++) {
            s.hkv = s.h / (r->h / r->hkv);
            memset(s.key_ready, 0, (size_t)r->sk);
            memset(g->hidden_k, 0, (size_t)hidden_keys * sizeof(double));
            memset(g->hidden_k_error, 0, (size_t)hidden_keys * sizeof(double));
            for (int64_t i = 0; i < r->sq; i++) ref_grad_row(g, &s, i, slope, terms, reach);
            for (int64_t j = 0; d->score == ATTN_SCORE_ADDITIVE && j < r->sk; j++)
                if (s.key_ready[j]) /* some row may attend to it */
                    ref_grad_project(g, &d->w_k, &d->k, &g->g[GRAD_W_K], &g->g[GRAD_K], s.b, s.hkv, s.h, j,
                                     g->hidden_k + j * r->hidden, g->hidden_k_error + j * r->hidden);
        }
    free(slope);
    free(terms);
    free(reach);
    free(s.query);
    free(s.query_terms);
    free(s.keys);
    free(s.key_ready);
    free(g->hidden_k);
    free(g->hidden_k_error);
    free(g->hidden_q);
    free(g->hidden_q_error);
}

static inline void ref_free_grads(ref_grads *g) {
    ref_free(&g->forward);
    for (int n = 0; n < GRAD_COUNT; n++) {
        free(g->g[n].x);
        free(g->g[n].error);
    }
}

#endif
