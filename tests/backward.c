/* backward.c - attn_backward against the float64 reference, whose gradients are themselves held against central
   differences of its forward pass. */
#define WITH_GRADIENTS
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
        if (!ref_has_row(d, &r, b, i)) continue;
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
    for_gradients = 1;
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
            attn_grad above;
            draw_upstream(&above, &d, upstreams[f[F_UPSTREAM]], LAYOUT_PACKED);
            ref_upstream up = upstream_of(&above);
            check_differences(&d, &up, n);
            cases++;
        }
        test_release();
    }
    printf("    the reference against central differences, %ld descriptors:", cases);
    for (int which = 0; which < GRAD_COUNT; which++) {
        printf(" %s %ld", ref_grad_names[which], compared[which]);
        if (test_verbose()) printf(" (%.1g)", furthest[which]);
        CHECKF(compared[which] >= 40, "%s was compared %ld times", ref_grad_names[which], compared[which]);
    }
    printf("\n");
}

/* ---- attn_backward on the random descriptors of the forward */

static int all_poisoned(const attn_out *o) {
    attn_view v = attn_view_of(*o);
    int64_t low, high;
    if (!o->rank || !view_extent(&v, &low, &high)) return 1;
    const unsigned char *p = (const unsigned char *)((float *)o->data + low);
    for (size_t n = 0; n < (size_t)(high - low + 1) * 4; n++)
        if (p[n] != 0xFF) return 0;
    return 1;
}

/* Every input in memory of another layout; what is looked at element by element stays the same. */
static void lay_out_again(call *c) {
    attn_view *inputs[] = {&c->d.q,           &c->d.k,
                           &c->d.v,           &c->d.given_scores,
                           &c->d.bias,        &c->d.bias_index,
                           &c->d.bilinear,    &c->d.w_q,
                           &c->d.w_k,         &c->d.w_v,
                           &c->d.hidden_bias, &c->d.sink,
                           &c->d.alibi,       &c->d.sigma_per_head,
                           &c->d.mask,        &c->g.d_out,
                           &c->g.d_weights,   &c->g.d_lse};
    static const layout ways[] = {LAYOUT_PACKED, LAYOUT_BSHD, LAYOUT_GAPS, LAYOUT_REVERSED, LAYOUT_MIXED};
    for (size_t n = 0; n < sizeof inputs / sizeof *inputs; n++)
        if (inputs[n]->rank) *inputs[n] = copy_view(inputs[n], ways[test_int(0, 4)]);
    for (int n = 0; n < 2; n++) {
        attn_out *o = n ? &c->d.stats : &c->d.out;
        attn_view v = attn_view_of(*o);
        if (!o->rank) continue;
        v = copy_view(&v, ways[test_int(0, 4)]);
        o->data = (void *)(uintptr_t)v.data;
        memcpy(o->stride, v.stride, sizeof o->stride);
    }
}

/* The gradients are there; other ways to the same bits. */
static void check_other_ways(const call *c, int32_t workers) {
    call other = copy_grads(c);
    if (run_call_planned(&other, workers) && !same_grads(c, &other, "tasks in a random order")) ref_print(&c->d);

    other.d.parallel.run = run_shuffled;
    other.d.parallel.user = &workers;
    if (run_call(&other, "through a parallel callback") && !same_grads(c, &other, "through a parallel callback"))
        ref_print(&c->d);

    other = *c;
    lay_out_again(&other);
    ask_grads(&other, all_grads(&c->d), 0, LAYOUT_MIXED); /* all of them */
    other.g.accumulate = c->g.accumulate;
    for (int n = 0; n < GRAD_COUNT; n++) {
        attn_view like = attn_view_of(*grad_of(&other.g, n));
        if (c->start[n].rank) other.start[n] = c->start[n];
        else if (c->g.accumulate >> n & 1 && like.rank) other.start[n] = copy_view(&like, LAYOUT_PACKED);
    }
    if (run_call(&other, "all gradients, other strides") && !same_grads(c, &other, "all gradients, other strides"))
        ref_print(&c->d);
}

/* A batch in parts, as a training program accumulates micro-batches: added up they are the gradient of the whole. */
static void check_micro_batches(const call *c, int64_t batch) {
    ref_grads want;
    ref_upstream up = upstream_of(&c->g);
    call whole = copy_grads(c);
    whole.g.accumulate = ATTN_GRAD_ALL;
    for (int n = 0; n < GRAD_COUNT; n++) {
        attn_view v = attn_view_of(*grad_of(&whole.g, n));
        if (v.rank && !whole.start[n].rank)
            whole.start[n] = make_filled(LAYOUT_PACKED, 0, v.rank, v.size[0], v.size[1], v.size[2], v.size[3]);
    }
    prepare_grads(&whole);
    for (int64_t b = 0; b < batch; b++) {
        attn_error err;
        call one = entry_of(&whole, b);
        if (!accepted(attn_backward(&one.d, &one.g, &err), &err, &one.d, "a micro-batch")) return;
    }
    ref_backward(&c->d, &up, &want);
    check_grads(&whole, &want, "micro-batches");
    ref_free_grads(&want);
}

static void pairs(void) {
    static const int32_t workers[] = {1, 2, 3, 8};
    enum { CASES = 1000 };
    for_gradients = 1;
    memset(covered, 0, sizeof covered);
    forget_worst();
    for (int n = 0; n < CASES; n++) {
        int f[FACTOR_COUNT];
        call c;
        char what[40];
        draw_factors(f);
        build_call(&c, f);
        snprintf(what, sizeof what, "case %d", n);
        if (!run_desc(&c.d, what)) continue;
        for (int result = 1; result < RESULT_COUNT - 1; result++) poison(result_of(&c.d, result));
        attn_out stats = c.d.stats;
        if (f[F_STATS]) memset(&c.d.stats, 0, sizeof c.d.stats);
        int fine = check_call(&c, what);
        for (int result = 1; result < RESULT_COUNT - 1; result++)
            CHECKF(all_poisoned(result_of(&c.d, result)), "%s: wrote to result %d of the forward", what, result);
        if (fine) {
            call other = copy_grads(&c);
            if (f[F_STATS]) other.d.stats = stats;
            else memset(&other.d.stats, 0, sizeof other.d.stats);
            run_call(&other, "stats given, or computed again");
            if (!same_grads(&c, &other, "stats given, or computed again")) ref_print(&c.d);
            check_other_ways(&c, workers[f[F_WORKERS]]);
            ref_result r;
            ref_sizes(&c.d, &r);
            check_batch_alone(&c, test_int(0, (int)r.b - 1));
            if (r.b > 1 && n % 3 == 0 && !outside_counts(&c)) check_micro_batches(&c, r.b);
        }
        test_release();
    }
    print_worst("gradients of random descriptors", CASES);
    int missing = missing_pairs();
    CHECKF(missing == 0, "%d pairs of options were not tried", missing);
}

/* A row that reaches no key has no gradient, whatever the stats given for it are, and whatever the workspace held. */
static void stats_of_empty_rows(void) {
    enum { QUERIES = 5, REACHING = 3 };
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int n = 0; n < 2 * test_isa_count(); n++) {
            attn_desc d = make_desc(1, 2, 1, QUERIES, 14, 18, 9);
            set_score(&d, score, 12);
            d.query_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, REACHING, REACHING);
            d.empty = n % 2 ? ATTN_EMPTY_UNIFORM : ATTN_EMPTY_ZERO;
            call c = make_call(&d, FROM_ALL, ~0u);
            size_t bytes = 0;
            c.d.isa = (int32_t)test_isa(n / 2);
            if (!run_call(&c, "stats of the forward")) return;
            call want = copy_grads(&c);
            for (int h = 0; h < 2; h++)
                for (int i = REACHING; i < QUERIES; i++) ((float *)c.d.stats.data)[(h * QUERIES + i) * 2] = INFINITY;
            CHECK_STATUS(attn_backward_workspace_size(&c.d, &c.g, &bytes, 0), ATTN_OK);
            c.d.workspace = memset(test_guarded(bytes), 0xFF, bytes);
            c.d.workspace_bytes = bytes;
            run_call(&c, "other stats");
            same_grads(&want, &c, "other stats");
            test_release();
        }
}

/* Gradients of scores that would fill the caches go past them, as whole lines where they lie so: the bits of calls on
   half of the rows, which do not. */
static void large_gradients(void) {
    enum { QUERIES = 1040, KEYS = 2064, HALF = QUERIES / 2, LINE = 16 };
    attn_desc d;
    memset(&d, 0, sizeof d);
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, QUERIES, KEYS);
    d.bias = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, QUERIES, KEYS);
    d.v = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, KEYS, 1);
    call whole = make_call(&d, FROM_OUT, 0);
    for (int n = 0; n < 2 * test_isa_count(); n++) {
        attn_out *grads[] = {&whole.g.d_bias, &whole.g.d_given_scores};
        whole.d.isa = (int32_t)test_isa(n / 2);
        for (int g = 0; g < 2; g++) { /* rows begin with a line, or after its first number */
            attn_out o = make_out(LAYOUT_PACKED, 4, 1, 1, QUERIES, KEYS + 2 * LINE);
            *grads[g] = attn_out_slice(o, 3, n % 2 + (int64_t)(-(uintptr_t)o.data / sizeof(float) % LINE), KEYS);
        }
        if (!run_call(&whole, "large gradients")) return;
        for (int64_t i = 0; i < QUERIES; i += HALF) {
            call half = whole;
            half.d.given_scores = attn_view_slice(d.given_scores, 2, i, HALF);
            half.d.bias = attn_view_slice(d.bias, 2, i, HALF);
            half.d.out = attn_out_slice(whole.d.out, 2, i, HALF);
            half.d.stats = attn_out_slice(whole.d.stats, 2, i, HALF);
            half.g.d_out = attn_view_slice(whole.g.d_out, 2, i, HALF);
            half.g.d_bias = make_out(LAYOUT_PACKED, 4, 1, 1, HALF, KEYS);
            half.g.d_given_scores = make_out(LAYOUT_PACKED, 4, 1, 1, HALF, KEYS);
            if (!run_call(&half, "half of them")) return;
            attn_out of_half[] = {half.g.d_bias, half.g.d_given_scores};
            for (int g = 0; g < 2; g++) {
                attn_out rows = attn_out_slice(*grads[g], 2, i, HALF);
                check_same(&rows, &of_half[g], g ? "large d_given_scores" : "a large d_bias");
            }
        }
    }
}

/* Keys that rows reach by causal and window are computed apart from others, those that a mask admits are not: the same
   bits, wherever the edges lie in blocks and vectors. */
static void reach_is_a_mask(void) {
    static const int cases[][3] = {{150, 187, 400}, {187, 150, 400}, {150, 187, 70}, {300, 331, 40}, {70, 329, 3}};
    for (int n = 0; n < 5; n++) {
        const int queries = cases[n][0], keys = cases[n][1], left = cases[n][2];
        attn_desc d = make_desc(1, 2, 1, queries, keys, 5, 3);
        d.causal = d.window = 1;
        d.window_left = left;
        d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        call c = make_call(&d, FROM_OUT, 1u << GRAD_Q | 1u << GRAD_K | 1u << GRAD_V);
        for (int isa = 0; isa < test_isa_count(); isa++) {
            c.d.isa = (int32_t)test_isa(isa);
            run_desc(&c.d, "causal and window");
            if (!run_call(&c, "causal and window")) return;
            call masked = copy_grads(&c);
            masked.d = copy_results(&c.d);
            masked.d.causal = masked.d.window = 0;
            masked.d.window_left = 0;
            masked.d.align = ATTN_ALIGN_TOP_LEFT;
            masked.d.mask = make_ints(ATTN_U8, 4, 1, 1, queries, keys, 0, 0);
            for (int i = 0; i < queries; i++)
                for (int j = 0; j < keys; j++) {
                    const int before = i + keys - queries - j;
                    put_at(&masked.d.mask, 0, 0, i, j, before >= 0 && before <= left);
                }
            poison_results(&masked.d);
            run_desc(&masked.d, "a mask");
            if (!run_call(&masked, "a mask")) return;
            check_same_results(&c.d, &masked.d, "causal and window, and as a mask");
            same_grads(&c, &masked, "causal and window, and as a mask");
        }
        test_release();
    }
}

/* The gradient of a bias that all entries share, of entries with numbers of keys of their own: the same bits for any
   number of workers, among whom the keys of a large call are cut. */
static void bias_of_all_entries(void) {
    for (int n = 0; n < 2 * test_isa_count(); n++) {
        float first[512];
        attn_view lengths = make_view(ATTN_I32, LAYOUT_PACKED, 1, 4, 0, 0, 0);
        attn_view starts = make_view(ATTN_I32, LAYOUT_PACKED, 1, 4, 0, 0, 0);
        attn_desc d = {0};
        attn_grad g = {0};
        for (int64_t b = 0; b < 4; b++) put_at(&lengths, 0, 0, 0, b, test_int(1, 512)), put_at(&starts, 0, 0, 0, b, 0);
        d.q = make_filled(LAYOUT_PACKED, 1, 4, 4, 1, 64, 64);
        d.k = make_filled(LAYOUT_PACKED, 1, 4, 4, 1, 512, 64);
        d.v = make_filled(LAYOUT_PACKED, 1, 4, 4, 1, 512, 64);
        d.bias = make_filled(LAYOUT_PACKED, 1, 1, 512, 0, 0, 0);
        d.out = make_out(LAYOUT_PACKED, 4, 4, 1, 64, 64);
        d.key_lengths = lengths, d.query_starts = starts;
        d.isa = test_isa(n / 2);
        g.d_out = make_filled(LAYOUT_PACKED, 1, 4, 4, 1, 64, 64);
        g.d_bias = make_out(LAYOUT_PACKED, 1, 512, 0, 0, 0);
        if (n % 2) g.dk = make_out(LAYOUT_PACKED, 4, 4, 1, 512, 64), g.dv = make_out(LAYOUT_PACKED, 4, 4, 1, 512, 64);
        if (!run_desc(&d, "entries with a bias in common")) return;
        for (d.parallel.workers = 1; d.parallel.workers < 12; d.parallel.workers += 2) {
            CHECK_STATUS(attn_backward(&d, &g, NULL), ATTN_OK);
            if (d.parallel.workers == 1) memcpy(first, g.d_bias.data, sizeof first);
            CHECKF(!memcmp(g.d_bias.data, first, sizeof first), "%d workers on %s: other bits", (int)d.parallel.workers,
                   attn_isa_string(d.isa));
        }
        test_release();
    }
}

/* The gradient of a table that many pairs have numbers of, however a call that is worth cutting is cut: against the
   reference, and the same bits for any number of workers and where the indices lie otherwise. */
static void tables(void) {
    static const int32_t workers[] = {1, 2, 3, 8, 16};
    for (int n = 0; n < 2 * test_isa_count(); n++) {
        const int64_t sq = 300, sk = 401, size = n % 4 == 1 ? 2500 : n % 2 ? 37 : 1;
        attn_view distances = make_ints(ATTN_I32, 1, sq + sk - 1, 0, 0, 0, -1, (int)size - 1);
        attn_desc d = {0};
        attn_out first;
        d.q = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, sq, 32), d.k = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, sk, 32);
        d.v = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, sk, 32);
        d.bias = make_filled(LAYOUT_PACKED, 1, 2, n % 3 ? 2 : 1, size, 0, 0);
        d.bias_index = attn_view_i32((const int32_t *)distances.data + sq - 1, 2, sq, sk, 0, 0);
        d.bias_index.stride[0] = -1, d.bias_index.stride[1] = 1;
        d.causal = n / 2 % 2, d.align = ATTN_ALIGN_BOTTOM_RIGHT, d.isa = test_isa(n / 2);
        call c = make_call(&d, FROM_OUT, 1u << GRAD_BIAS | (n % 4 < 3 ? 1u << GRAD_Q | 1u << GRAD_K : 0)), again;
        if (!run_call(&c, "a table")) return;
        if (n < 4) {
            ref_grads g;
            ref_upstream up = upstream_of(&c.g);
            ref_backward(&c.d, &up, &g);
            c.bias_chain = 2 * sq * sk / size;
            check_grads(&c, &g, "a table");
            ref_free_grads(&g);
        }
        first = c.g.d_bias;
        again = copy_grads(&c);
        again.d.bias_index = copy_view(&d.bias_index, LAYOUT_GAPS);
        for (int w = 0; w < 5; w++) {
            again.d.parallel.workers = workers[w];
            CHECK_STATUS(attn_backward(&again.d, &again.g, NULL), ATTN_OK);
            CHECKF(!memcmp(again.g.d_bias.data, first.data, (size_t)(first.size[0] * size) * 4),
                   "%d workers on %s: other bits of a table", (int)workers[w], attn_isa_string(d.isa));
            if (!run_call_planned(&again, workers[w])) return;
            CHECKF(!memcmp(again.g.d_bias.data, first.data, (size_t)(first.size[0] * size) * 4),
                   "%d workers on %s: other bits of a table, planned", (int)workers[w], attn_isa_string(d.isa));
        }
        test_release();
    }
}

const test_case suite_backward[] = {{"backward.bias_of_all_entries", bias_of_all_entries},
                                    {"backward.tables", tables},
                                    {"backward.central_differences", central_differences},
                                    {"backward.stats_of_empty_rows", stats_of_empty_rows},
                                    {"backward.large_gradients", large_gradients},
                                    {"backward.reach_is_a_mask", reach_is_a_mask},
                                    {"backward.pairs", pairs},
                                    {0, 0}};
