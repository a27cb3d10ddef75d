/* backward.c - attn_backward against the float64 reference, whose gradients are themselves held against central
   differences of its forward pass. */
#include "ref_grad.h"
/* What a call of attn_backward has beside its forward call. */
#define MORE_FACTORS(X) X(UPSTREAM, 7) X(STATS, 2) X(ASKED, 5) X(ACCUMULATE, 3) X(LAYOUT_GRAD, 4)
#include "descriptors.h"

/* ---- the reference against central differences, in double precision */

/* The same numbers as doubles, packed. */
static attn_view as_doubles(attn_view v) {
    attn_view copy;
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!v.rank || v.type != ATTN_F32) return v;
    copy = make_view(ATTN_F64, LAYOUT_PACKED, v.rank, v.size[0], v.size[1], v.size[2], v.size[3]);
    if (!view_extent(&v, &low, &high)) return copy;
    do put(&copy, offset_of(&copy, index), (double)((const float *)v.data)[offset_of(&v, index)]);
    while (next_index(&v, index));
    return copy;
}

/* What a gradient belongs to, in a descriptor; 0 for the scale, which is no view. */
static attn_view *owner(attn_desc *d, int which) {
    switch (which) {
    case GRAD_Q: return &d->q;
    case GRAD_K: return &d->k;
    case GRAD_V: return &d->v;
    case GRAD_GIVEN: return &d->given_scores;
    case GRAD_BIAS: return &d->bias;
    case GRAD_BILINEAR: return &d->bilinear;
    case GRAD_W_Q: return &d->w_q;
    case GRAD_W_K: return &d->w_k;
    case GRAD_W_V: return &d->w_v;
    case GRAD_HIDDEN_BIAS: return &d->hidden_bias;
    case GRAD_SIGMA: return &d->sigma_per_head;
    case GRAD_SINK: return &d->sink;
    case GRAD_ALIBI: return &d->alibi;
    default: return 0;
    }
}

static double loss(const attn_desc *d, const ref_upstream *up) {
    ref_result r;
    double sum = 0;
    ref_forward(d, &r);
    for (int64_t row = 0; row < r.b * r.h * r.sq; row++) {
        int64_t b = row / (r.h * r.sq), h = row / r.sq % r.h, i = row % r.sq;
        int empty = r.lse[row] == -INFINITY;
        const double *weights = (d->weights_after_dropout ? r.dropped : r.weights) + row * r.sk;
        for (int64_t c = 0; up->out.rank && c < r.dv && !(empty && d->empty == ATTN_EMPTY_NAN); c++)
            sum += ref_at(&up->out, b, h, i, c) * r.out[row * r.dv + c];
        if (empty) continue; /* what is left of it is constant */
        for (int64_t j = 0; up->weights.rank && j < r.sk; j++) sum += ref_at(&up->weights, b, h, i, j) * weights[j];
        if (up->lse.rank) sum += ref_at(&up->lse, 0, b, h, i) * r.lse[row];
    }
    ref_free(&r);
    return sum;
}

/* dL/d(element), by four evaluations: the error is of the fourth order. `at`: of a packed view, or of the scale. */
static double difference(attn_desc *d, const ref_upstream *up, int which, int64_t at) {
    static const double steps[4] = {-2, -1, 1, 2}, factors[4] = {1, -8, 8, -1}, step = 2e-5;
    attn_view *v = owner(d, which);
    double *x = v ? (double *)(uintptr_t)v->data + at : 0, before = x ? *x : 0, sum = 0;
    for (int n = 0; n < 4; n++) {
        if (x) *x = before + steps[n] * step;
        else ref_scale_nudge = steps[n] * step;
        sum += factors[n] * loss(d, up);
    }
    if (x) *x = before;
    else ref_scale_nudge = 0;
    return sum / (12 * step);
}

/* Neither a kernel's edge nor its peak is near any pair: there a difference says nothing about a slope. */
static int away_from_edges(const attn_desc *d) {
    ref_result r;
    ref_sizes(d, &r);
    for (int64_t n = 0; n < r.b * r.h * r.sq * r.sk; n++) {
        int64_t j = n % r.sk, i = n / r.sk % r.sq, h = n / r.sk / r.sq % r.h, b = n / r.sk / r.sq / r.h;
        double square = 0;
        for (int64_t c = 0; c < r.dk; c++) {
            double q = ref_at(&d->q, b, h, i, c), k = ref_at(&d->k, b, h / (r.h / r.hkv), j, c);
            square += (q - k) * (q - k);
        }
        double u = sqrt(square) / ref_sigma(d, h);
        if (u < 0.01 || fabs(u - 1) < 0.01) return 0;
    }
    return 1;
}

static ref_upstream draw_upstream(const ref_result *r, int level, layout how) {
    static const int sets[7] = {1, 3, 5, 7, 2, 4, 6}; /* 1: out, 2: lse, 4: weights */
    ref_upstream up;
    memset(&up, 0, sizeof up);
    if (sets[level] & 1) up.out = make_filled(how, 1, 4, r->b, r->h, r->sq, r->dv);
    if (sets[level] & 2) up.lse = make_filled(how, 1, 3, r->b, r->h, r->sq, 0);
    if (sets[level] & 4) up.weights = make_filled(how, 1, 4, r->b, r->h, r->sq, r->sk);
    return up;
}

static attn_desc doubled(const attn_desc *d) {
    attn_desc x = *d;
    for (int n = 0; n < GRAD_COUNT; n++)
        if (owner(&x, n)) *owner(&x, n) = as_doubles(*owner(&x, n));
    if (!ref_is_distance(d->score)) return x;
    if (!d->sigma_per_head.rank) { /* one number, seen by all heads */
        x.sigma_per_head = make_view(ATTN_F64, LAYOUT_PACKED, 1, 1, 0, 0, 0);
        put(&x.sigma_per_head, 0, ref_sigma(d, 0));
        x.sigma_per_head.size[0] = d->q.size[1];
        x.sigma_per_head.stride[0] = 0;
    }
    x.sigma = 0;
    return x;
}

/* Counts of compared elements, by gradient; and the furthest off. */
static long compared[GRAD_COUNT];
static double furthest[GRAD_COUNT];

static void check_differences(const attn_desc *d, const ref_upstream *up, int n) {
    ref_grads g;
    attn_desc x = doubled(d);
    ref_backward(d, up, &g);
    for (int which = 0; which < GRAD_COUNT; which++) {
        const ref_tensor *t = &g.g[which];
        for (int tries = 0; t->count > 0 && tries < 8; tries++) {
            int64_t at = test_int(0, (int)t->count - 1);
            double want = difference(&x, up, which, at), off = fabs(t->x[at] - want) / (1 + t->error[at]);
            compared[which]++;
            furthest[which] = fmax(furthest[which], off);
            if (!CHECKF(off <= 5e-9, "case %d: %s[%ld] is %.12g, by differences %.12g", n, ref_grad_names[which],
                        (long)at, t->x[at], want))
                ref_print(d);
        }
    }
    ref_free_grads(&g);
}

static void central_differences(void) {
    long cases = 0;
    memset(covered, 0, sizeof covered);
    memset(compared, 0, sizeof compared);
    memset(furthest, 0, sizeof furthest);
    for (int n = 0; n < 400; n++) {
        static const int heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}};
        int f[FACTOR_COUNT];
        attn_desc d;
        draw_factors(f);
        f[F_NUMBERS] %= 2; /* no tiny numbers, biases of -1e9 and NaN: differences would lose them */
        f[F_BIAS] %= 6;
        f[F_POISON] = 0;
        shape s = {1 + f[F_BATCH],
                   heads[f[F_HEADS]][0],
                   heads[f[F_HEADS]][1],
                   test_int(1, 1 + f[F_QUERIES]),
                   test_int(1, 1 + 2 * f[F_KEYS]),
                   test_int(1, 4),
                   test_int(1, 3)};
        build_shaped(&d, f, s);
        for (int again = 0; ref_is_distance(d.score) && (again == 0 || !away_from_edges(&d)) && again < 300; again++) {
            fill(&d.q, draw_normal, 0, 0.5);
            fill(&d.k, draw_normal, 0, 0.5);
        }
        if (!ref_is_distance(d.score) || away_from_edges(&d)) {
            ref_result r;
            ref_sizes(&d, &r);
            ref_upstream up = draw_upstream(&r, f[F_UPSTREAM], LAYOUT_PACKED);
            check_differences(&d, &up, n);
            cases++;
        }
        test_release();
    }
    printf("    the reference against central differences, %ld descriptors:", cases);
    for (int which = 0; which < GRAD_COUNT; which++) {
        printf(" %s %ld", ref_grad_names[which], compared[which]);
        if (test_verbose()) printf(" (%.1g)", furthest[which]);
        CHECKF(compared[which] > 100, "%s was compared %ld times", ref_grad_names[which], compared[which]);
    }
    printf("\n");
}

const test_case suite_backward[] = {{"backward.central_differences", central_differences}, {0, 0}};
