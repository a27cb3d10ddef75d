/* grads.c - see grads.h. */
#include "grads.h"

attn_out *grad_of(attn_grad *g, int which) {
    attn_out *results[GRAD_COUNT];
    results[GRAD_Q] = &g->dq;
    results[GRAD_K] = &g->dk;
    results[GRAD_V] = &g->dv;
    results[GRAD_GIVEN] = &g->d_given_scores;
    results[GRAD_BIAS] = &g->d_bias;
    results[GRAD_BILINEAR] = &g->d_bilinear;
    results[GRAD_W_Q] = &g->d_w_q;
    results[GRAD_W_K] = &g->d_w_k;
    results[GRAD_W_V] = &g->d_w_v;
    results[GRAD_HIDDEN_BIAS] = &g->d_hidden_bias;
    results[GRAD_SIGMA] = &g->d_sigma;
    results[GRAD_SCALE] = &g->d_scale;
    results[GRAD_SINK] = &g->d_sink;
    results[GRAD_ALIBI] = &g->d_alibi;
    return results[which];
}

ref_upstream upstream_of(const attn_grad *g) {
    ref_upstream up = {g->d_out, g->d_weights, g->d_lse};
    return up;
}

/* ---- building */
void draw_upstream(attn_grad *g, const attn_desc *d, int set, layout how) {
    ref_result r;
    ref_sizes(d, &r);
    memset(g, 0, sizeof *g);
    if (r.rows_b != r.b || (d->k.rank && d->k.size[0] != r.b))
        set = set & ~FROM_WEIGHTS ? set & ~FROM_WEIGHTS : FROM_LSE;
    if (set & FROM_OUT) g->d_out = make_filled(how, 1, 4, r.rows_b, r.h, r.sq, r.dv);
    if (set & FROM_LSE) g->d_lse = make_filled(how, 1, 3, r.rows_b, r.h, r.sq, 0);
    if (set & FROM_WEIGHTS) g->d_weights = make_filled(how, 1, 4, r.b, r.h, r.sq, r.sk);
}

unsigned all_grads(const attn_desc *d) {
    unsigned set = 0;
    for (int n = 0; n < GRAD_COUNT; n++)
        if (ref_grad_like(d, n).rank) set |= 1u << n;
    return set;
}

void ask_grads(call *c, unsigned set, unsigned accumulate, layout how) {
    c->g.accumulate = accumulate;
    for (int n = 0; n < GRAD_COUNT; n++) {
        attn_view like = ref_grad_like(&c->d, n);
        attn_out *o = grad_of(&c->g, n);
        memset(o, 0, sizeof *o);
        memset(&c->start[n], 0, sizeof c->start[n]);
        if (!(set >> n & 1) || !like.rank) continue;
        *o = make_out(how, like.rank, like.size[0], like.size[1], like.size[2], like.size[3]);
        if (accumulate >> n & 1)
            c->start[n] =
                make_filled(LAYOUT_PACKED, 1, like.rank, like.size[0], like.size[1], like.size[2], like.size[3]);
    }
}

call make_call(const attn_desc *d, int from, unsigned set) {
    call c;
    memset(&c, 0, sizeof c);
    c.d = *d;
    ask_for(&c.d, RESULT_OUT | RESULT_STATS, LAYOUT_PACKED);
    run_desc(&c.d, "the forward");
    draw_upstream(&c.g, &c.d, from, LAYOUT_PACKED);
    ask_grads(&c, set, 0, LAYOUT_PACKED);
    return c;
}

/* ---- running */
void put_start(const attn_out *o, const attn_view *start) {
    attn_view v = attn_view_of(*o);
    int64_t index[4] = {0, 0, 0, 0}, low, high, bytes = (int64_t)type_bytes(o->type);
    poison(o);
    if (!o->rank || !start->rank || !view_extent(&v, &low, &high)) return;
    do
        memcpy((char *)o->data + offset_of(&v, index) * bytes,
               (const char *)start->data + offset_of(start, index) * bytes, (size_t)bytes);
    while (next_index(&v, index));
}

void prepare_grads(call *c) {
    for (int n = 0; n < GRAD_COUNT; n++) put_start(grad_of(&c->g, n), &c->start[n]);
}

int accepted(attn_status status, const attn_error *err, const attn_desc *d, const char *what) {
    char text[200];
    if (status == ATTN_OK) return CHECKF(1, "%s", what);
    attn_error_string(err, text, sizeof text);
    CHECKF(0, "%s: refused: %s: %s", what, attn_status_string(status), text);
    ref_print(d);
    return 0;
}

int run_call(call *c, const char *what) {
    attn_error err;
    prepare_grads(c);
    return accepted(attn_backward(&c->d, &c->g, &err), &err, &c->d, what);
}

call copy_grads(const call *c) {
    call copy = *c;
    for (int n = 0; n < GRAD_COUNT; n++) *grad_of(&copy.g, n) = copy_out(grad_of(&copy.g, n));
    return copy;
}

int same_grads(const call *a, const call *b, const char *what) {
    call x = *a, y = *b;
    char text[120];
    int same = 1;
    for (int n = 0; n < GRAD_COUNT; n++) {
        snprintf(text, sizeof text, "%s: %s", what, ref_grad_names[n]);
        same &= check_same(grad_of(&x.g, n), grad_of(&y.g, n), text);
    }
    return same;
}

/* ---- against the reference */
/* of every gradient, since forget_worst */
static double grad_worst[GRAD_COUNT];
static long grad_compared[GRAD_COUNT];
void forget_worst(void) {
    memset(grad_worst, 0, sizeof grad_worst);
    memset(grad_compared, 0, sizeof grad_compared);
}

void print_worst(const char *what, long cases) {
    printf("    %s, %ld calls:", what, cases);
    for (int n = 0; n < GRAD_COUNT; n++) {
        if (!grad_compared[n]) continue;
        printf(" %s %ld", ref_grad_names[n], grad_compared[n]);
        if (test_verbose()) printf(" (%.3f)", grad_worst[n]);
    }
    printf("\n");
}

double grad_ratio(float got, double want, double tolerance) {
    uint32_t bits;
    memcpy(&bits, &got, sizeof bits);
    if (isnan(got) && bits != 0x7fc00000u) return INFINITY;
    if (!isfinite(want)) return isfinite(got) ? INFINITY : 0;
    return ref_ratio(got, want, tolerance);
}

double grad_tolerance(int which, double error, double want, double start) {
    if (error == 0 && start == 0) return 0;
    return (which < GRAD_BIAS ? GRAD_BOUND : GRAD_BOUND_OF_SUMS) * error + 1e-40 + 2e-6 * fabs(start) +
           (start == 0 ? 0 : 1e-7 * fabs(want));
}

int64_t index_of(const attn_view *v, const int64_t index[4]) { return offset_of(v, index); }

int check_other_row(const call *c, const ref_grads *g, int which, const int64_t index[4], uint32_t got,
                    const char *what) {
    const ref_result *r = &g->forward;
    const attn_view *start = &c->start[which];
    uint32_t before = UINT32_MAX;
    int keys = which == GRAD_K || which == GRAD_V;
    if (which > GRAD_V || !(keys ? r->packed_keys : r->packed_rows)) return 0;
    if (in_some_entry(&c->d, r, keys, index[2])) return 0;
    if (start->rank) before = bits_at(start, index);
    CHECKF(got == before, "%s: wrote %08x to row %ld of %s, which belongs to no entry", what, (unsigned)got,
           (long)index[2], ref_grad_names[which]);
    return 1;
}

void check_grad(call *c, const ref_grads *g, int which, const char *what) {
    const ref_tensor *t = &g->g[which];
    attn_view v = attn_view_of(*grad_of(&c->g, which));
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!v.rank) return;
    CHECKF(gaps_untouched(grad_of(&c->g, which)), "%s: wrote between the elements of %s", what, ref_grad_names[which]);
    if (!view_extent(&v, &low, &high)) return;
    do {
        int64_t at = index_of(&t->like, index);
        if (check_other_row(c, g, which, index, bits_at(&v, index), what)) continue;
        double start =
                   c->start[which].rank ? ((const float *)c->start[which].data)[offset_of(&c->start[which], index)] : 0,
               want = start + t->x[at], tolerance = grad_tolerance(which, t->error[at], t->x[at], start);
        /* NUMERICS: what equal terms lose, all rounded the same way */
        if (which == GRAD_BIAS && c->bias_chain) tolerance += ldexp((double)c->bias_chain / 4 + 1, -24) * t->error[at];
        float got = ((const float *)v.data)[offset_of(&v, index)];
        double ratio = grad_ratio(got, want, tolerance);
        grad_compared[which]++;
        grad_worst[which] = fmax(grad_worst[which], ratio);
        if (CHECKF(ratio <= 1,
                   "%s: %s[%ld,%ld,%ld,%ld] is %.9g, want %.9g: off by %.3g, bound %.3g (isa %s, seed %llu)", what,
                   ref_grad_names[which], (long)index[0], (long)index[1], (long)index[2], (long)index[3], (double)got,
                   want, fabs((double)got - want), tolerance, attn_isa_string((attn_isa)c->d.isa), test_seed()))
            continue;
        ref_print(&c->d);
        return;
    } while (next_index(&v, index));
}

double check_sums(const attn_out *got, const ref_tensor *t, const attn_view *start,
                  double (*tolerance)(double, double, double), const char *what) {
    attn_view v = attn_view_of(*got);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    double worst = 0;
    if (!v.rank) return 0;
    CHECKF(gaps_untouched(got), "%s: wrote between the elements", what);
    if (!view_extent(&v, &low, &high)) return 0;
    do {
        int64_t at = offset_of(&t->like, index);
        double before = start->rank ? (double)((const float *)start->data)[offset_of(start, index)] : 0,
               bound = tolerance(t->error[at], t->x[at], before), want = before + t->x[at];
        float value = ((const float *)v.data)[offset_of(&v, index)];
        double ratio = grad_ratio(value, want, bound);
        worst = fmax(worst, ratio);
        if (!CHECKF(ratio <= 1, "%s: [%ld,%ld,%ld,%ld] is %.9g, want %.9g: off by %.3g, bound %.3g", what,
                    (long)index[0], (long)index[1], (long)index[2], (long)index[3], (double)value, want,
                    fabs((double)value - want), bound))
            return worst;
    } while (next_index(&v, index));
    return worst;
}

void check_grads(call *c, const ref_grads *g, const char *what) {
    for (int n = 0; n < GRAD_COUNT; n++) check_grad(c, g, n, what);
}

int check_call(call *c, const char *what) {
    ref_grads g;
    ref_upstream up = upstream_of(&c->g);
    call first = *c;
    int fine = 1;
    ref_backward(&c->d, &up, &g);
    for (int n = 0; n < test_isa_count() && fine; n++) {
        c->d.isa = (int32_t)test_isa(n);
        fine = run_call(c, what);
        if (!fine) break;
        check_grads(c, &g, what);
        if (n == 0) first = copy_grads(c);
        else if (!same_grads(&first, c, what)) ref_print(&c->d);
    }
    ref_free_grads(&g);
    return fine;
}

/* ---- the same work in other ways */
int run_call_planned(call *c, int32_t workers) {
    attn_plan plan;
    attn_error err;
    c->d.parallel.workers = workers;
    prepare_grads(c);
    if (!accepted(attn_plan_backward(&c->d, &c->g, &plan, &err), &err, &c->d, "a plan")) return 0;
    size_t bytes = 0;
    CHECK_STATUS(attn_backward_workspace_size(&c->d, &c->g, &bytes, 0), ATTN_OK);
    CHECK(bytes == plan.workspace_bytes);
    run_plan(&plan, workers);
    return 1;
}

call entry_of(const call *c, int64_t b) {
    call one = *c;
    ref_result r;
    ref_sizes(&c->d, &r);
    ref_entry e = ref_entry_of(&c->d, &r, b);
    if (!r.has_entries) e.q = r.sq;
    one.d = entry_alone(&c->d, b);
    one.g.d_out = cut_entry(c->g.d_out, b, e.q0, e.q);
    one.g.d_lse = cut_entry(c->g.d_lse, b, e.q0, e.q);
    if (c->g.d_weights.rank) one.g.d_weights = attn_view_slice(cut_entry(c->g.d_weights, b, e.q0, e.q), 3, e.k0, e.k);
    for (int n = 0; n < GRAD_COUNT; n++) {
        int keys = n == GRAD_K || n == GRAD_V;
        attn_view views[2] = {attn_view_of(*grad_of(&one.g, n)), one.start[n]};
        for (int v = 0; v < 2; v++) {
            if (n == GRAD_BIAS && !c->d.bias_index.rank) {
                views[v] = cut_broadcast(cut_broadcast(views[v], 0, b, 1), 2, e.q0, e.q);
                views[v] = cut_broadcast(views[v], 3, r.packed_rows || r.packed_keys ? 0 : e.k0, e.k);
            }
            if (n > GRAD_GIVEN || !views[v].rank) continue; /* a sum over the batch */
            views[v] = cut_entry(views[v], b, keys ? e.k0 : e.q0, keys ? e.k : e.q);
            if (n == GRAD_GIVEN) views[v] = attn_view_slice(views[v], 3, e.k0, e.k);
        }
        memcpy(grad_of(&one.g, n), &views[0], sizeof(attn_out));
        one.start[n] = views[1];
    }
    return one;
}

int outside_counts(const call *c) {
    ref_result r;
    ref_sizes(&c->d, &r);
    return r.has_entries && !r.packed_rows && (c->d.sink.rank || c->d.empty == ATTN_EMPTY_UNIFORM);
}

int is_bias_of_either_kind(const call *c, int64_t b) {
    ref_result r;
    ref_sizes(&c->d, &r);
    const ref_entry e = ref_entry_of(&c->d, &r, b);
    return r.has_entries && (e.k == 1 || (e.q == 1 && c->d.bias.size[2] == 1));
}

void check_batch_alone(const call *c, int64_t b) {
    call copy = copy_grads(c), whole = *c, one, want;
    const int own_bias =
        c->d.bias.rank == 4 && !c->d.bias_index.rank && c->d.bias.size[0] > 1 && !is_bias_of_either_kind(c, b);
    for (int n = GRAD_GIVEN + 1 + own_bias; n < GRAD_COUNT; n++)
        memset(grad_of(&copy.g, n), 0, sizeof(attn_out)), memset(grad_of(&whole.g, n), 0, sizeof(attn_out));
    if (outside_counts(c)) memset(&copy.g.dv, 0, sizeof copy.g.dv), memset(&whole.g.dv, 0, sizeof whole.g.dv);
    if (!copy.g.dq.rank && !copy.g.dk.rank && !copy.g.dv.rank && !copy.g.d_given_scores.rank && !copy.g.d_bias.rank)
        return;
    one = entry_of(&copy, b), want = entry_of(&whole, b);
    if (!run_call(&one, "one entry of the batch alone")) return;
    if (!same_grads(&want, &one, "one entry of the batch alone")) ref_print(&c->d);
}
