/* emulated.c - the calls of attn.h on arrays of a device, whose kernels run in the emulator: the random descriptors of
   the CPU's tests against the same float64 reference. Everything lies on the device here, unless a test
   says otherwise. */
#define WITH_GRADIENTS
#define NO_INDICES
#define DRAWN_FOR_A_DEVICE
#include "../descriptors.h"
#include "../parts.h"
#include "../../attn_cuda.cuh"
#include "fake.h"
#include "half.h"
#include <pthread.h>

/* So many with FULL=1; a third else, where an emulator has to do it. */
static int cases_of(int all) {
    const char *full = getenv("FULL");
    return full && *full ? all : all / 3;
}

static void *guarded_copy(const void *data, size_t bytes) { return memcpy(test_guarded(bytes), data, bytes); }
/* Two integers of a batch, in memory that a device reads: a constant of the program is the host's alone. */
static attn_view two_ints(int32_t first, int32_t second) {
    const int32_t both[2] = {first, second};
    return attn_view_i32((const int32_t *)guarded_copy(both, sizeof both), 1, 2, 0, 0, 0);
}

static void count_launches(void);
static void on_device(void) {
    fake_everything(2);
    count_launches();
    fake_timing(test_int(0, fake_timings() - 1), test_bits());
}

/* Is a device of this architecture played from here on? A real one plays what its kernels can: else the test, or this
   part of it, is skipped. The numbers of a test are those of four multiprocessors. */
static int play(int arch) {
    fake_set_arch(arch);
    if (fake_arch() != arch) {
        test_skip(arch == 90 ? "this device is no sm_90" : "this device is older");
        return 0;
    }
    fake_set_processors(4);
    return 1;
}
static void play_as_before(int arch) {
    fake_set_processors(0);
    fake_set_arch(arch);
}

/* What attn_explain, or with gradients attn_explain_backward, says of a call. */
static int explained(const attn_desc *d, const attn_grad *g, const char *words) {
    char text[400];
    if (g) attn_explain_backward(d, g, text, sizeof text);
    else attn_explain(d, text, sizeof text);
    return strstr(text, words) != 0;
}
/* Calls of stage 1 so far, forward and backward */
static long tiled_calls[2];
static void count_tiled(const attn_desc *d, const attn_grad *g) {
    tiled_calls[g != 0] += explained(d, g, "on the device, stage 1, tiles of f32");
}

/* How much ran there in all: kernels, blocks of threads. */
static long launches, blocks;
static void print_launches(const char *what, int cases, int backward) {
    printf("    %s: %d random descriptors against the reference, %ld launches, %ld blocks; %ld by stage 1\n", what,
           cases, launches, blocks, tiled_calls[backward]);
    CHECKF(launches >= cases, "only %ld kernels were launched", launches);
    CHECKF(tiled_calls[backward] > 0, "stage 1 did nothing");
    launches = blocks = tiled_calls[backward] = 0;
}
static void count_launches(void) {
    fake_counts counted = fake_counted();
    launches += counted.launches;
    blocks += counted.blocks;
    fake_forget();
}

/* Runs on the device: no allocation where the workspace is given, exactly as large as it was asked to be. */
static int run_with_workspace(attn_desc *d, const char *what) {
    size_t bytes = 0;
    if (!CHECK_STATUS(attn_workspace_size(d, &bytes, NULL), ATTN_OK)) return 0;
    d->workspace = test_guarded(bytes);
    d->workspace_bytes = bytes;
    count_launches();
    int fine = run_desc(d, what);
    CHECKF(fake_counted().allocations == 0, "%s: allocated although a workspace was given", what);
    d->workspace = NULL;
    d->workspace_bytes = 0;
    return fine;
}

/* Without starts: all elements of results are written. */
static void draw_factors_of_whole_arrays(int f[FACTOR_COUNT]) {
    draw_factors(f);
    f[F_SEQUENCES] = 0;
}

/* Against the reference; then again in other timings, with a workspace and as a plan: the same bits. */
static double check_forward(attn_desc *d, const char *what) {
    ref_result r;
    ref_forward(d, &r);
    on_device();
    count_tiled(d, 0);
    double ratio = check_on(d, &r, ATTN_ISA_AUTO, what);
    attn_desc again = copy_results(d);
    on_device();
    poison_results(&again);
    if (run_with_workspace(&again, what) && !check_same_results(d, &again, "run again")) ref_print(d);
    on_device();
    poison_results(&again);
    if (run_planned(&again, 1) && !check_same_results(d, &again, "as a plan")) ref_print(d);
    ref_free(&r);
    return ratio;
}

static void forward_pairs(void) {
    const int cases = cases_of(700);
    double worst[ATTN_SCORE_COUNT] = {0};
    memset(covered, 0, sizeof covered);
    for (int n = 0; n < cases; n++) {
        int f[FACTOR_COUNT];
        attn_desc d;
        char what[40];
        draw_factors(f);
        build(&d, f);
        snprintf(what, sizeof what, "case %d", n);
        worst[d.score] = fmax(worst[d.score], check_forward(&d, what));
        test_release();
    }
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) ref_print_worst(score, worst[score]);
    print_launches("forward", cases, 0);
    CHECKF(missing_pairs() == 0, "%d pairs of options were not tried", missing_pairs());
}

/* ---- gradients */
/* Against the reference; again in other timings, with a workspace and as a plan: the same bits, and those of an entry
   alone. */
static void check_backward(call *c, const char *what) {
    ref_grads g;
    ref_upstream up = upstream_of(&c->g);
    ref_backward(&c->d, &up, &g);
    on_device();
    count_tiled(&c->d, &c->g);
    if (run_call(c, what)) {
        check_grads(c, &g, what);
        call again = copy_grads(c);
        size_t bytes = 0;
        on_device();
        CHECK_STATUS(attn_backward_workspace_size(&again.d, &again.g, &bytes, 0), ATTN_OK);
        again.d.workspace = test_guarded(bytes);
        again.d.workspace_bytes = bytes;
        count_launches();
        if (run_call(&again, "run again") && !same_grads(c, &again, "run again")) ref_print(&c->d);
        CHECKF(fake_counted().allocations == 0, "%s: allocated although a workspace was given", what);
        call planned = copy_grads(c);
        on_device();
        if (run_call_planned(&planned, 1) && !same_grads(c, &planned, "as a plan")) ref_print(&c->d);
        if (g.forward.b > 0) check_batch_alone(c, test_int(0, (int)g.forward.b - 1));
    }
    ref_free_grads(&g);
}

static void backward_pairs(void) {
    const int cases = cases_of(900);
    for_gradients = 1;
    memset(covered, 0, sizeof covered);
    forget_worst();
    for (int n = 0; n < cases; n++) {
        int f[FACTOR_COUNT];
        call c;
        char what[40];
        draw_factors(f);
        build_call(&c, f);
        snprintf(what, sizeof what, "case %d", n);
        on_device();
        if (!run_desc(&c.d, what)) continue;
        if (f[F_STATS]) memset(&c.d.stats, 0, sizeof c.d.stats);
        check_backward(&c, what);
        test_release();
    }
    for_gradients = 0;
    print_worst("gradients of random descriptors", cases);
    print_launches("backward", cases, 1);
    CHECKF(missing_pairs() == 0, "%d pairs of options were not tried", missing_pairs());
}

/* ---- f16 and bf16: inputs of these types hold numbers that they can; a result is right where it is what rounding
   makes of some number within the bound, and rounding is monotone */
static int32_t draw_type(void) {
    int n = test_int(0, 2);
    return n == 0 ? ATTN_F32 : n == 1 ? ATTN_F16 : ATTN_BF16;
}
/* The view in memory of another type; what it loses the original loses too. */
static attn_view narrow(const attn_view *v, int32_t type) {
    attn_view h = *v;
    int64_t low, high, index[4] = {0, 0, 0, 0};
    if (!v->rank || type == ATTN_F32) return h;
    h.type = type;
    size_t count = view_extent(v, &low, &high) ? (size_t)(high - low + 1) : 0;
    if (!count) return h;
    h.data = (char *)test_guarded(count * 2) - low * 2;
    do {
        int64_t at = offset_of(v, index);
        float x = (float)round_to((double)((const float *)v->data)[at], type);
        ((uint16_t *)(uintptr_t)h.data)[at] = to_16((double)x, type);
        ((float *)(uintptr_t)v->data)[at] = x;
    } while (next_index(v, index));
    return h;
}
static attn_out narrow_out(const attn_out *o, int32_t type) {
    attn_view v = attn_view_of(*o), h = v;
    attn_out narrowed = *o;
    int64_t low, high;
    if (!o->rank || type == ATTN_F32) return narrowed;
    narrowed.type = type;
    if (view_extent(&v, &low, &high)) h.data = (char *)test_guarded((size_t)(high - low + 1) * 2) - low * 2;
    narrowed.data = (void *)(uintptr_t)h.data;
    return narrowed;
}
/* What a result of 16 bits holds, into its f32 twin. */
static void widen(const attn_out *from, const attn_out *to) {
    attn_view v = attn_view_of(*to);
    int64_t low, high, index[4] = {0, 0, 0, 0};
    if (!to->rank || from->type == ATTN_F32 || !view_extent(&v, &low, &high)) return;
    do {
        int64_t at = offset_of(&v, index);
        uint16_t h = ((const uint16_t *)from->data)[at];
        uint32_t bits;
        float x = (float)from_16(h, from->type);
        memcpy(&bits, &x, sizeof bits);
        if (isnan(x)) bits = h == (from->type == ATTN_F16 ? 0x7e00 : 0x7fc0) ? 0x7fc00000u : 0x7fc00001u;
        memcpy((float *)to->data + at, &bits, sizeof bits);
    } while (next_index(&v, index));
}
static int close_enough(float got, double want, double tolerance, int32_t type) {
    if (type == ATTN_F32 || isnan(want) || isnan(got)) return ref_ratio(got, want, tolerance) <= 1;
    if (isinf(want)) return (double)got == want;
    return (double)got >= round_to(want - tolerance, type) && (double)got <= round_to(want + tolerance, type);
}

static long rounded_checked;
static void check_rounded(const attn_desc *d, const ref_result *r, const attn_out *got, const double *want,
                          const char *name, int32_t type, const char *what) {
    attn_view v = attn_view_of(*got);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!got->rank || !view_extent(&v, &low, &high)) return;
    do {
        int64_t row = (index[0] * r->h + index[1]) * r->sq + index[2], at = row * v.size[3] + index[3];
        float x = ((const float *)v.data)[offset_of(&v, index)];
        double tolerance = ref_tolerance(d, r, want, row, at);
        rounded_checked++;
        if (CHECKF(close_enough(x, want[at], tolerance, type),
                   "%s: %s[%ld,%ld,%ld,%ld] of type %d is %.9g, want %.9g, bound %.3g", what, name, (long)index[0],
                   (long)index[1], (long)index[2], (long)index[3], type, (double)x, want[at], tolerance))
            continue;
        ref_print(d);
        return;
    } while (next_index(&v, index));
}

static void narrow_inputs(attn_desc *d, attn_desc *n) {
    attn_view *of[] = {&d->q,   &d->k,   &d->v,           &d->given_scores, &d->bias,  &d->bilinear,      &d->w_q,
                       &d->w_k, &d->w_v, &d->hidden_bias, &d->sink,         &d->alibi, &d->sigma_per_head};
    attn_view *to[] = {&n->q,   &n->k,   &n->v,           &n->given_scores, &n->bias,  &n->bilinear,      &n->w_q,
                       &n->w_k, &n->w_v, &n->hidden_bias, &n->sink,         &n->alibi, &n->sigma_per_head};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) *to[i] = narrow(of[i], draw_type());
}

static void half_forward(void) {
    const int cases = cases_of(300);
    memset(covered, 0, sizeof covered);
    rounded_checked = 0;
    for (int n = 0; n < cases; n++) {
        int f[FACTOR_COUNT];
        attn_desc d;
        ref_result r;
        char what[40];
        draw_factors_of_whole_arrays(f);
        build(&d, f);
        snprintf(what, sizeof what, "case %d", n);
        attn_desc half = d;
        narrow_inputs(&d, &half);
        for (int i = 0; i < RESULT_COUNT; i++)
            *result_of(&half, i) = narrow_out(result_of(&d, i), i == 1 || i == 6 ? ATTN_F32 : draw_type());
        ref_forward(&d, &r);
        on_device();
        poison_results(&d);
        if (run_desc(&half, what)) {
            const struct {
                const char *name;
                const double *want;
            } wants[6] = {{"out", r.out},
                          {"lse", r.lse},
                          {"weights", d.weights_after_dropout ? r.dropped : r.weights},
                          {"scores", r.scores},
                          {"scores_softcap", r.softcap},
                          {"scores_masked", r.masked}};
            for (int i = 0; i < 6; i++) {
                widen(result_of(&half, i), result_of(&d, i));
                if (i != 1)
                    check_rounded(&d, &r, result_of(&d, i), wants[i].want, wants[i].name, result_of(&half, i)->type,
                                  what);
            }
        }
        ref_free(&r);
        test_release();
    }
    printf("    f16 and bf16: %ld numbers of %d random descriptors\n", rounded_checked, cases);
}

static void half_backward(void) {
    const int cases = cases_of(300);
    memset(covered, 0, sizeof covered);
    rounded_checked = 0;
    for (int n = 0; n < cases; n++) {
        int f[FACTOR_COUNT];
        call c;
        ref_grads g;
        char what[40];
        draw_factors_of_whole_arrays(f);
        build_call(&c, f);
        snprintf(what, sizeof what, "case %d", n);
        attn_desc half = c.d;
        narrow_inputs(&c.d, &half);
        half.out = narrow_out(&c.d.out, draw_type());
        attn_grad half_grad = c.g;
        half_grad.d_out = narrow(&c.g.d_out, draw_type());
        half_grad.d_weights = narrow(&c.g.d_weights, draw_type());
        half_grad.d_lse = narrow(&c.g.d_lse, draw_type());
        on_device();
        if (!run_desc(&half, what)) continue;
        if (f[F_STATS]) memset(&half.stats, 0, sizeof half.stats);
        ref_upstream up = upstream_of(&c.g);
        ref_backward(&c.d, &up, &g);
        prepare_grads(&c);
        for (int i = 0; i < GRAD_COUNT; i++) {
            attn_out *o = grad_of(&c.g, i), *h = grad_of(&half_grad, i);
            attn_view v = attn_view_of(*o);
            *h = narrow_out(o, draw_type());
            if (!c.start[i].rank || h->type == ATTN_F32) continue;
            v = narrow(&v, h->type); /* what is added to, in both; and the number the reference starts from */
            h->data = (void *)(uintptr_t)v.data;
            narrow(&c.start[i], h->type);
        }
        attn_error err;
        on_device();
        if (accepted(attn_backward(&half, &half_grad, &err), &err, &c.d, what)) {
            for (int i = 0; i < GRAD_COUNT; i++) {
                const ref_tensor *t = &g.g[i];
                attn_out *o = grad_of(&c.g, i), *h = grad_of(&half_grad, i);
                attn_view v = attn_view_of(*o);
                int64_t index[4] = {0, 0, 0, 0}, low, high;
                widen(h, o);
                if (!o->rank || !view_extent(&v, &low, &high)) continue;
                do {
                    int64_t at = index_of(&t->like, index);
                    double start =
                        c.start[i].rank ? (double)((const float *)c.start[i].data)[offset_of(&c.start[i], index)] : 0;
                    double want = start + t->x[at], tolerance = grad_tolerance(i, t->error[at], t->x[at], start);
                    float got = ((const float *)v.data)[offset_of(&v, index)];
                    int fine = !isfinite(want) ? !isfinite(got)
                               : isnan(got)    ? 0
                                               : close_enough(got, want, tolerance, h->type);
                    rounded_checked++;
                    if (CHECKF(fine, "%s: %s[%ld,%ld,%ld,%ld] of type %d is %.9g, want %.9g, bound %.3g", what,
                               ref_grad_names[i], (long)index[0], (long)index[1], (long)index[2], (long)index[3],
                               h->type, (double)got, want, tolerance))
                        continue;
                    ref_print(&c.d);
                    break;
                } while (next_index(&v, index));
            }
        }
        ref_free_grads(&g);
        test_release();
    }
    printf("    f16 and bf16: %ld gradients of %d random descriptors\n", rounded_checked, cases);
}

/* ---- stages 2 and 3 from one end to the other: on devices that have them and on one that has stage 1 alone, in
   exactly the workspace that each asks for */
static double far_apart(const attn_out *a, const attn_out *b) {
    double most = 0;
    for (int64_t n = 0; n < a->size[0] * a->size[1] * a->size[2] * a->size[3]; n++) {
        double x = (double)((const float *)a->data)[n], y = (double)((const float *)b->data)[n];
        double apart = fabs(x - y) / (1 + fabs(y));
        most = apart <= most ? most : apart; /* a NaN is far away */
    }
    return most;
}
static void check_least(const attn_desc *d, const attn_grad *g);
/* Weights beside the results of before, which keep their bits: near those of stage 1, and each row's sum is 1. */
static attn_out fast_weights(attn_desc f, const char *stage, const attn_out *of_stage_1) {
    const attn_out before = f.out;
    const int64_t rows = f.q.size[1] * f.q.size[2], keys = f.k.size[2];
    size_t any = 0;
    f.out = make_out(LAYOUT_PACKED, 4, 1, f.q.size[1], f.q.size[2], f.v.size[3]);
    f.weights = make_out(LAYOUT_PACKED, 4, 1, f.q.size[1], f.q.size[2], keys);
    poison(&f.weights);
    on_device();
    CHECK(explained(&f, 0, stage));
    CHECK_STATUS(attn_workspace_size(&f, &f.workspace_bytes, 0), ATTN_OK);
    f.workspace = test_guarded(f.workspace_bytes);
    CHECK_STATUS(attn_forward(&f, 0), ATTN_OK);
    CHECKF(memcmp(f.out.data, before.data, (size_t)(rows * f.v.size[3]) * sizeof(float)) == 0, "%s, with weights",
           stage);
    if (of_stage_1)
        CHECKF(far_apart(&f.weights, of_stage_1) < 1e-4, "%s, weights: %.3g apart", stage,
               far_apart(&f.weights, of_stage_1));
    for (int64_t row = 0; row < rows; row++) {
        double sum = 0;
        for (int64_t j = 0; j < keys; j++) sum += (double)((const float *)f.weights.data)[row * keys + j];
        if (!CHECKF(fabs(sum - 1) < 1e-4, "%s, weights of row %ld: their sum is %.9g", stage, (long)row, sum)) break;
    }
    attn_desc later = f;
    later.workspace = 0, later.workspace_bytes = 0;
    check_least(&later, 0);
    later.out.data = later.weights.data = 0; /* enough for fewer queries and keys, too */
    CHECK_STATUS(attn_workspace_size(&later, &any, 0), ATTN_OK);
    CHECKF(any >= f.workspace_bytes, "%s, weights: %ld bytes, %ld for any", stage, (long)f.workspace_bytes, (long)any);
    return f.weights;
}
static void fast_stages(void) {
    static const int archs[4] = {75, 80, 90, 90}; /* the last one's driver has no TMA */
    const int arch = fake_arch();
    for (int n = 0; n < 6; n++) {
        const int few = n % 4 == 2; /* queries, many keys: these are split */
        const int32_t type = n % 2 ? ATTN_BF16 : ATTN_F16;
        attn_desc d = make_desc(1, 4, 2, few ? 3 : 64 + 9 * n, few ? 700 : 150, 64, 64);
        attn_view above = make_filled(LAYOUT_PACKED, 1, 4, 1, 4, d.q.size[2], 64);
        attn_out results[4][4], weights = {0};
        d.q = narrow(&d.q, type);
        d.k = narrow(&d.k, type);
        d.v = narrow(&d.v, type);
        d.causal = n < 4;
        d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        if (n == 4) d.softcap = 2;
        if (n == 5) d.dropout = 0.25f;
        for (int at = 0; at < 4; at++) {
            const char *stage = at == 0 ? "stage 1" : at == 2 && !few ? "stage 3" : "stage 2";
            attn_desc f = d;
            attn_grad g = {0};
            f.out = results[at][0] = make_out(LAYOUT_PACKED, 4, 1, 4, d.q.size[2], 64);
            if (n & 1) f.stats = make_out(LAYOUT_PACKED, 4, 1, 4, d.q.size[2], 2);
            g.d_out = narrow(&above, type);
            g.dq = results[at][1] = make_out(LAYOUT_PACKED, 4, 1, 4, d.q.size[2], 64);
            g.dk = results[at][2] = make_out(LAYOUT_PACKED, 4, 1, 2, d.k.size[2], 64);
            g.dv = results[at][3] = make_out(LAYOUT_PACKED, 4, 1, 2, d.k.size[2], 64);
            if (!play(archs[at])) continue;
            fake_set_tma(at < 3);
            on_device();
            CHECK(explained(&f, 0, stage) && explained(&f, &g, stage));
            CHECK_STATUS(attn_workspace_size(&f, &f.workspace_bytes, 0), ATTN_OK);
            f.workspace = test_guarded(f.workspace_bytes);
            CHECK_STATUS(attn_forward(&f, 0), ATTN_OK);
            CHECK_STATUS(attn_backward_workspace_size(&f, &g, &f.workspace_bytes, 0), ATTN_OK);
            f.workspace = test_guarded(f.workspace_bytes);
            CHECK_STATUS(attn_backward(&f, &g, 0), ATTN_OK);
            for (int i = 0; i < 4; i++)
                CHECKF(far_apart(&results[at][i], &results[0][i]) < 0.03, "case %d, %s, result %d: %.3g apart", n,
                       stage, i, far_apart(&results[at][i], &results[0][i]));
            const attn_out own = fast_weights(f, stage, weights.rank ? &weights : 0);
            if (at == 0) weights = own;
            on_device();
            f.weights = own;
            CHECK(explained(&f, &g, stage)); /* of no account to the gradients */
        }
        fake_set_tma(1);
        play_as_before(arch);
        test_release();
    }
}

/* Runs a call without a workspace, for which it allocates so many times; with one of `bytes`; with one of 0 bytes. */
static void check_workspace(const attn_desc *d, const attn_grad *g, size_t bytes, int allocations) {
    attn_desc f = *d;
    on_device();
    fake_forget();
    CHECK_STATUS(g ? attn_backward(&f, g, 0) : attn_forward(&f, 0), ATTN_OK);
    CHECKF(fake_counted().allocations == allocations, "%ld allocations", fake_counted().allocations);
    f.workspace = test_guarded(bytes + 1);
    f.workspace_bytes = allocations ? bytes : 0;
    CHECK_STATUS(g ? attn_backward(&f, g, 0) : attn_forward(&f, 0), ATTN_OK);
    f.workspace_bytes = 0;
    CHECK_STATUS(g ? attn_backward(&f, g, 0) : attn_forward(&f, 0), allocations ? ATTN_ERR_WORKSPACE : ATTN_OK);
}
/* The size that is reported for arrays that are there is accepted, and one byte less is not. */
static void check_least(const attn_desc *d, const attn_grad *g) {
    attn_desc f = *d;
    size_t bytes = 0;
    CHECK_STATUS(g ? attn_backward_workspace_size(&f, g, &bytes, 0) : attn_workspace_size(&f, &bytes, 0), ATTN_OK);
    if (bytes == 0) return;
    f.workspace = test_guarded(bytes);
    f.workspace_bytes = bytes;
    CHECK_STATUS(g ? attn_backward(&f, g, 0) : attn_forward(&f, 0), ATTN_OK);
    f.workspace_bytes--;
    CHECK_STATUS(g ? attn_backward(&f, g, 0) : attn_forward(&f, 0), ATTN_ERR_WORKSPACE);
}
/* A program that was compiled for less than the device: the stage that its kernels have runs, and attn_explain names
   what is missing in the build, not the device. */
static void stages_compiled(const attn_desc *d, const attn_grad *g) {
    static const struct {
        int compiled;
        const char *runs, *why;
    } builds[] = {
        {90, "stage 3, wgmma", ""},
        {80, "stage 2, mma.sync",
         "(not stage 3, wgmma: compiled without sm_90a: add -gencode=arch=compute_90a,code=sm_90a)"},
        {75, "stage 1, tiles of f32 (not stage 2, mma.sync: compiled without sm_80", "code=compute_80, not stage 3"},
        {0, "stage 1, tiles of f32 (not stage 2, mma.sync: compiled without sm_80", "wgmma: compiled without sm_90a"},
    };
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        fake_set_compiled(builds[i].compiled);
        for (int backward = 0; backward < 2; backward++) {
            CHECKF(explained(d, backward ? g : 0, builds[i].runs), "compiled for %d", builds[i].compiled);
            CHECKF(explained(d, backward ? g : 0, builds[i].why), "compiled for %d: why", builds[i].compiled);
        }
        CHECK(fake_last_error() == 0);
    }
    fake_set_compiled(90);
}
/* One sweep finds dq, dk and dv; with ATTN_PRECISION_FAST dk and dv with the bits that they have without. */
static void check_sweep(attn_desc d, const attn_grad *of, const char *stage, int size) {
    const int64_t keys = d.k.size[2];
    attn_grad g = *of, fast = *of;
    for (int n = 0; n < 2; n++) {
        attn_grad *const at = n ? &fast : &g;
        at->dq = make_out(LAYOUT_PACKED, 4, 1, 4, 64, size);
        at->dk = make_out(LAYOUT_PACKED, 4, 1, 2, keys, size);
        at->dv = make_out(LAYOUT_PACKED, 4, 1, 2, keys, size);
        d.precision = n ? ATTN_PRECISION_FAST : ATTN_PRECISION_F32;
        CHECKF(explained(&d, at, stage) && explained(&d, at, "gradients in one sweep"), "heads of %d", size);
        CHECK_STATUS(attn_backward(&d, at, 0), ATTN_OK);
    }
    CHECK(memcmp(g.dk.data, fast.dk.data, (size_t)(2 * keys * size) * sizeof(float)) == 0);
    CHECK(memcmp(g.dv.data, fast.dv.data, (size_t)(2 * keys * size) * sizeof(float)) == 0);
    for (int i = 0; i < 4 * 64 * size; i++) {
        const float want = ((float *)g.dq.data)[i], got = ((float *)fast.dq.data)[i];
        CHECKF(fabsf(got - want) <= 1e-4f * (1 + fabsf(want)), "dq[%d]: %.9g, not %.9g", i, got, want);
    }
    attn_desc none = d;
    attn_grad of_none = fast;
    size_t bytes = 0;
    none.q.data = none.k.data = none.v.data = of_none.d_out.data = 0;
    none.out.data = of_none.dq.data = of_none.dk.data = of_none.dv.data = 0;
    CHECK_STATUS(attn_backward_workspace_size(&none, &of_none, &bytes, 0), ATTN_OK);
    check_workspace(&d, &fast, bytes, 1);
    check_least(&d, &fast);
}
static void sweep_of_all(const char *stage) {
    static const int sizes[] = {64, 72, 96, 128, 136};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        const int size = sizes[n];
        attn_desc d = make_desc(1, 4, 2, 64, 200, size, size);
        attn_view above = make_filled(LAYOUT_PACKED, 1, 4, 1, 4, 64, size);
        attn_grad g = {0};
        d.q = narrow(&d.q, ATTN_BF16), d.k = narrow(&d.k, ATTN_BF16), d.v = narrow(&d.v, ATTN_BF16);
        g.d_out = narrow(&above, ATTN_BF16);
        CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
        check_sweep(d, &g, stage, size);
        if (n) continue;
        d.softcap = 3.0f;
        CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
        check_sweep(d, &g, stage, size);
        g.dq = make_out(LAYOUT_PACKED, 4, 1, 4, 64, size); /* alone: the same sweep */
        CHECK(explained(&d, &g, stage) && explained(&d, &g, "in one sweep"));
        d.softcap = 0.0f, d.precision = ATTN_PRECISION_FAST;
        CHECK(explained(&d, &g, stage) && explained(&d, &g, "in one sweep"));
    }
}
static void fast_sweep(void) {
    const int arch = fake_arch();
    if (!play(80)) return;
    on_device();
    sweep_of_all("stage 2, mma.sync");
    play_as_before(arch);
}
/* The forward of stage 3 needs no workspace, and that is what is reported for arrays that are there. With NULL pointers
   it is enough all the same for fewer queries, which stage 2 runs with split keys, and for a driver without TMA. */
static void fast_workspace(void) {
    const int arch = fake_arch();
    size_t size[2], few = 0;
    attn_desc d = make_desc(1, 4, 2, 64, 700, 64, 64), none;
    attn_view above = make_filled(LAYOUT_PACKED, 1, 4, 1, 4, 64, 64);
    attn_grad g = {0}, no_grad;
    if (!play(90)) return;
    d.q = narrow(&d.q, ATTN_BF16), d.k = narrow(&d.k, ATTN_BF16), d.v = narrow(&d.v, ATTN_BF16);
    g.d_out = narrow(&above, ATTN_BF16);
    g.dq = make_out(LAYOUT_PACKED, 4, 1, 4, 64, 64);
    none = d, no_grad = g;
    none.q.data = none.k.data = none.v.data = no_grad.d_out.data = 0;
    none.out.data = no_grad.dq.data = 0;
    CHECK_STATUS(attn_workspace_size(&none, &size[0], 0), ATTN_OK);
    CHECK_STATUS(attn_backward_workspace_size(&none, &no_grad, &size[1], 0), ATTN_OK);
    for (int tma = 1; tma >= 0; tma--) {
        fake_set_tma(tma);
        on_device();
        CHECK(explained(&d, 0, tma ? "on the device, stage 3" : "(not stage 3, wgmma: the driver has no TMA)"));
        CHECK(explained(&d, &g, tma ? "on the device, stage 3" : "(not stage 3, wgmma: the driver has no TMA)"));
        check_workspace(&d, 0, size[0], !tma);
        check_workspace(&d, &g, size[1], 1);
        CHECK_STATUS(attn_workspace_size(&d, &few, 0), ATTN_OK);
        CHECKF(tma ? few == 0 : few > 0, "%ld bytes of the arrays that there are", (long)few);
        check_least(&d, 0);
        check_least(&d, &g);
    }
    fake_set_tma(1);
    stages_compiled(&d, &g);
    sweep_of_all("stage 3, wgmma");
    none = d, none.out.data = 0; /* on the device alone */
    CHECK_STATUS(attn_workspace_size(&none, &size[0], 0), ATTN_OK);
    d.q = attn_view_slice(d.q, 2, 0, 3), d.out = attn_out_slice(d.out, 2, 0, 3);
    CHECK(explained(&d, 0, "on the device, stage 2"));
    CHECK_STATUS(attn_workspace_size(&d, &few, 0), ATTN_OK);
    CHECKF(0 < few && few <= size[0], "%ld bytes of 3 queries, %ld of 64", (long)few, (long)size[0]);
    check_workspace(&d, 0, few, 1);
    play_as_before(arch);
}

/* A workspace for split keys is what the call itself needs, to the byte; asked for with a NULL pointer it is enough for
   all with fewer queries or keys, too: also where a tile of 64 rows becomes one of 16, and where few blocks are split
   into more parts. */
static void fast_split_keys(void) {
    enum { QUERIES = 8, KEYS = 4 };
    static const int queries[QUERIES] = {1, 4, 5, 16, 17, 63, 64, 130}, keys[KEYS] = {300, 512, 900, 2100};
    const int arch = fake_arch();
    for (int heads = 4; heads <= 8; heads += 4) {
        size_t most[QUERIES + 1][KEYS + 1] = {{0}}, splits = 0, one_launch = 0, less = 0;
        if (!play(80)) return;
        for (int q = 0; q < QUERIES; q++)
            for (int k = 0; k < KEYS; k++) {
                attn_desc d = make_desc(1, heads, 2, queries[q], keys[k], 64, 64);
                size_t bytes = 0, own = 0, least = most[q][k + 1] > most[q + 1][k] ? most[q][k + 1] : most[q + 1][k];
                d.q = narrow(&d.q, ATTN_BF16), d.k = narrow(&d.k, ATTN_BF16), d.v = narrow(&d.v, ATTN_BF16);
                on_device();
                fake_forget();
                CHECK(run_with_workspace(&d, "split keys"));
                CHECK_STATUS(attn_workspace_size(&d, &own, 0), ATTN_OK);
                splits += own > 0;
                one_launch += own > 0 && fake_counted().launches == 1;
                check_least(&d, 0);
                d.out.data = 0;
                CHECK_STATUS(attn_workspace_size(&d, &bytes, 0), ATTN_OK);
                CHECKF(bytes >= least, "%d queries, %d keys: %ld bytes, fewer have %ld", queries[q], keys[k],
                       (long)bytes, (long)least);
                CHECKF(own <= bytes, "%d queries, %d keys: %ld bytes, %ld for fewer, too", queries[q], keys[k],
                       (long)own, (long)bytes);
                less += own < bytes;
                most[q + 1][k + 1] = bytes;
                test_release();
            }
        CHECKF(splits > KEYS, "keys were split in %ld calls only", (long)splits);
        CHECKF(one_launch > 0 && one_launch < splits, "one launch in %ld of %ld", (long)one_launch, (long)splits);
        CHECKF(less > KEYS, "in %ld calls only the call itself needs less", (long)less);
        play_as_before(arch);
    }
}

/* packed: 0: nothing, 1: the queries, 2: the keys, too */
static attn_desc of_entries(int64_t batch, const int64_t *heads, int packed, int64_t queries, int64_t keys,
                            int64_t size) {
    attn_desc d = make_desc(packed ? 1 : batch, heads[0], heads[1], queries, keys, size, size);
    attn_view of_batch = make_view(ATTN_I32, LAYOUT_PACKED, 1, batch, 0, 0, 0);
    fill(&of_batch, draw_normal, 0, 0);
    d.query_starts = of_batch;
    if (packed) d.query_lengths = of_batch;
    if (packed == 2) d.key_starts = d.key_lengths = of_batch;
    else if (packed) d.k = make_filled(LAYOUT_PACKED, 1, 4, batch, heads[1], keys, size), d.v = d.k;
    d.q = narrow(&d.q, ATTN_F16), d.k = narrow(&d.k, ATTN_F16), d.v = narrow(&d.v, ATTN_F16);
    d.out = narrow_out(&d.out, ATTN_F16);
    on_device();
    return d;
}
/* What is asked for with a NULL pointer is enough for the same call, and for those with fewer queries or keys, where
   entries have starts, too: such a one may have another stage, and of packed entries each may have a tile more. */
static void fast_workspace_of_entries(void) {
    static const int sizes[3] = {64, 128, 256};
    const int arch = fake_arch();
    int stages[2] = {0}; /* calls whose smaller one has another stage, and the same */
    for (int n = 0; n < 60; n++) {
        const int64_t batch = test_int(2, 6), group = test_int(1, 4), heads_kv = test_int(1, 4);
        const int64_t heads[2] = {group * heads_kv, heads_kv};
        const int packed = n % 4 ? test_int(0, 2) : 1, size = sizes[n % 3];
        const int64_t queries = n % 4 ? test_int(64, 200) * (packed ? batch : 1) : test_int(1, 3);
        const int64_t keys = n % 4 ? test_int(64, 700) : 1871;
        size_t bytes = 0, own = 0, of_fewer = 0;
        if (!play(n % 5 ? 90 : 80)) return;
        if (n % 4 == 0) fake_set_processors(132); /* as many parts as there are */
        attn_desc d = of_entries(batch, heads, packed, queries, keys, size), none = d;
        attn_desc fewer = of_entries(batch, heads, packed, (queries + 7) / 8, keys - test_int(0, (int)keys / 2), size);
        d.dropout = none.dropout = fewer.dropout = n % 5 ? 0.0f : 0.3f;
        none.out.data = 0;
        CHECK_STATUS(attn_workspace_size(&none, &bytes, 0), ATTN_OK);
        CHECK_STATUS(attn_workspace_size(&d, &own, 0), ATTN_OK);
        CHECK_STATUS(attn_workspace_size(&fewer, &of_fewer, 0), ATTN_OK);
        stages[explained(&d, 0, "on the device, stage 3") == explained(&fewer, 0, "on the device, stage 3")]++;
        CHECKF(own <= bytes && of_fewer <= bytes,
               "case %d: %ld bytes for all, the call itself needs %ld, one with fewer queries and keys %ld", n,
               (long)bytes, (long)own, (long)of_fewer);
        test_release();
    }
    CHECK(stages[0] > 0 && stages[1] > 0);
    play_as_before(arch);
}

static int runs_on(const attn_desc *d, const attn_grad *g, int stage) {
    static const char *const words[] = {"on the device, stage 1", "on the device, stage 2", "on the device, stage 3"};
    return explained(d, g, words[stage - 1]);
}
/* The same of gradients with 256 columns: those of few rows are stage 1's where there are no stats, for no forward of
   stage 2 finds them. The arrays are only described. */
static void fast_workspace_of_gradients(void) {
    const void *address = (const void *)((uintptr_t)1 << 40);
    const int arch = fake_arch();
    size_t bytes[3] = {0};
    for (int n = 0; n < 3; n++) { /* not there yet; of 64 queries; of 32 */
        const int queries = n == 2 ? 32 : 64;
        attn_desc d = {0};
        attn_grad g = {0};
        if (!play(90)) return;
        d.q = g.d_out = attn_view_typed(ATTN_F16, address, 4, 1, 1, queries, 256);
        d.k = d.v = attn_view_typed(ATTN_F16, address, 4, 1, 1, 320, 256);
        d.out = attn_out_typed(ATTN_F16, (void *)((uintptr_t)1 << 41), 4, 1, 1, queries, 256);
        g.dq = attn_out_typed(ATTN_F16, (void *)((uintptr_t)1 << 42), 4, 1, 1, queries, 256);
        g.dk = attn_out_typed(ATTN_F16, (void *)((uintptr_t)1 << 43), 4, 1, 1, 320, 256);
        g.dv = attn_out_typed(ATTN_F16, (void *)((uintptr_t)1 << 44), 4, 1, 1, 320, 256);
        d.query_starts = attn_view_typed(ATTN_I32, address, 1, 1, 0, 0, 0);
        fake_everything(2);
        CHECK(runs_on(&d, &g, n == 2 ? 1 : 3));
        CHECK(n < 2 || explained(&d, &g, "mma.sync: entries with starts without stats"));
        if (n == 0) d.out.data = g.dq.data = g.dk.data = g.dv.data = 0;
        CHECK_STATUS(attn_backward_workspace_size(&d, &g, &bytes[n], 0), ATTN_OK);
        play_as_before(arch);
    }
    CHECKF(bytes[1] <= bytes[0] && bytes[2] <= bytes[0], "%ld bytes for all, %ld and %ld needed", (long)bytes[0],
           (long)bytes[1], (long)bytes[2]);
    CHECKF(bytes[2] > bytes[1], "%ld and %ld bytes: this shows nothing", (long)bytes[2], (long)bytes[1]);
}

/* What a call costs its host: where each array lies is asked once, and which device is the current one; a map is made
   once for each array and size of tile. The first call of a thread, and it alone, asks the device's four numbers and
   the driver's function for tensor maps, and has each kernel allowed its shared memory; after a reset of the device
   that once more. Without a workspace that is not asked for its place. A run of a plan asks for the current device. */
static void check_asked(const attn_desc *d, const attn_grad *g, long places, long maps) {
    attn_plan plan;
    attn_desc without = *d;
    without.workspace = 0, without.workspace_bytes = 0;
    fake_set_arch(fake_arch()); /* nothing is known of it now */
    for (int call = 0; call < 4; call++) {
        const attn_desc *of = call == 3 ? &without : d;
        if (call == 2) fake_reset_device();
        fake_forget();
        CHECK_STATUS(g ? attn_backward(of, g, 0) : attn_forward(of, 0), ATTN_OK);
        const fake_counts n = fake_counted();
        CHECKF(n.places == places - !of->workspace, "%ld arrays: where they lie was asked %ld times", places, n.places);
        CHECKF(n.facts == (call ? 0 : 4), "%ld numbers of the device", n.facts);
        CHECKF(n.maps == maps, "%ld tensor maps", n.maps);
        CHECKF(n.drivers == !call, "the driver was asked %ld times", n.drivers);
        if (call == 1) CHECKF(n.calls == places + 1 + n.launches, "%ld calls of the runtime", n.calls);
        if (call == 2) CHECK(n.allowances > 0 && n.allowances <= n.launches && fake_last_error() == 0);
    }
    CHECK_STATUS(g ? attn_plan_backward(d, g, &plan, 0) : attn_plan_forward(d, &plan, 0), ATTN_OK);
    fake_forget();
    attn_task(&plan, d->workspace, 0, 0, 0);
    CHECKF(fake_counted().calls == 1 + fake_counted().launches, "%ld calls of the runtime", fake_counted().calls);
}
static size_t bytes_of(const attn_out *o) { /* packed */
    size_t bytes = o->rank ? (o->type == ATTN_F32 ? 4 : 2) : 0;
    for (int i = 0; i < o->rank; i++) bytes *= (size_t)o->size[i];
    return bytes;
}
/* The bits of the results of a call. */
static uint64_t bits_of_results(const attn_desc *d, const attn_grad *g) {
    const attn_out *of[4] = {g ? &g->dq : &d->out, g ? &g->dk : &d->lse, g ? &g->dv : &d->stats, &d->weights};
    uint64_t hash = 1;
    for (int i = 0; i < (g ? 3 : 4); i++)
        for (size_t at = 0; at < bytes_of(of[i]); at++)
            hash = (hash ^ ((const unsigned char *)of[i]->data)[at]) * 1099511628211u;
    return hash;
}
static void forget_results(const attn_desc *d, const attn_grad *g) {
    const attn_out *of[4] = {g ? &g->dq : &d->out, g ? &g->dk : &d->lse, g ? &g->dv : &d->stats, &d->weights};
    for (int i = 0; i < (g ? 3 : 4); i++)
        if (of[i]->rank) memset(of[i]->data, 0xff, bytes_of(of[i]));
}
struct planned {
    attn_plan *plan;
    void *workspace;
};
static void *of_thread(void *arg) {
    const struct planned *p = (const struct planned *)arg;
    attn_task(p->plan, p->workspace, 0, 0, 0);
    return NULL;
}
static void run_by(attn_plan *plan, void *workspace, int by_another_thread) {
    struct planned p = {plan, workspace};
    pthread_t thread;
    if (!by_another_thread) of_thread(&p);
    else if (CHECK(!pthread_create(&thread, NULL, of_thread, &p))) pthread_join(thread, NULL);
}
/* A plan has the bits of the call and its launches, and makes its maps, but a run asks for nothing: `made` tensor maps,
   of what the workspace holds. Any copy, any workspace, any contents of the arrays, any thread. */
static void check_planned(const attn_desc *d, const attn_grad *g, long made) {
    attn_plan plan, copy;
    size_t bytes = 1;
    fake_forget();
    CHECK_STATUS(g ? attn_backward(d, g, 0) : attn_forward(d, 0), ATTN_OK);
    const fake_counts call = fake_counted();
    CHECK_STATUS(g ? attn_backward_workspace_size(d, g, &bytes, 0) : attn_workspace_size(d, &bytes, 0), ATTN_OK);
    for (int again = 0; again < 2; again++) {
        const uint64_t bits = bits_of_results(d, g);
        fake_forget();
        if (!again) {
            CHECK_STATUS(g ? attn_plan_backward(d, g, &plan, 0) : attn_plan_forward(d, &plan, 0), ATTN_OK);
            CHECK(plan.phases == 1 && plan.tasks[0] == 1 && plan.workspace_bytes == bytes);
            CHECK(fake_counted().launches == 0 && fake_counted().allocations == 0);
            CHECKF(fake_counted().maps == call.maps && (!call.maps || fake_counted().allowances > 0),
                   "%ld maps, of a call %ld; %ld allowances", fake_counted().maps, call.maps,
                   fake_counted().allowances);
            copy = plan;
            memset(&plan, 0xff, sizeof plan);
        }
        for (int run = 0; run < 2; run++) {
            forget_results(d, g);
            fake_forget();
            run_by(&copy, test_guarded(bytes), run);
            const fake_counts ran = fake_counted();
            CHECKF(ran.places == 0 && ran.facts == 0 && ran.drivers + ran.allowances == 0 &&
                       ran.maps == (fake_device() < 0 ? 0 : made),
                   "a run asks for %ld places, %ld numbers, %ld allowances, %ld maps", ran.places, ran.facts,
                   ran.allowances, ran.maps);
            CHECK(ran.launches == call.launches && ran.blocks == call.blocks && ran.stream == d->stream);
            CHECK(bits_of_results(d, g) == bits && fake_last_error() == 0);
        }
        ((uint16_t *)(uintptr_t)d->q.data)[1] ^= 0x80; /* other numbers in the same arrays */
        CHECK_STATUS(g ? attn_backward(d, g, 0) : attn_forward(d, 0), ATTN_OK);
        CHECK(bits_of_results(d, g) != bits);
    }
}
static void fast_host_cost(void) {
    static const int heads[3] = {64, 128, 256};
    static char workspace[1 << 19];
    const int arch = fake_arch();
    if (fake_device() < 0) {
        test_skip("what is asked of a real device is not counted");
        return;
    }
    fake_set_arch(90);
    for (int at = 0; at < 3; at++) {
        attn_desc d = make_desc(1, 2, 1, 70, 90, heads[at], heads[at]), of_rows;
        attn_view above = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, 70, heads[at]);
        attn_grad g = {0};
        d.q = narrow(&d.q, ATTN_BF16), d.k = narrow(&d.k, ATTN_BF16), d.v = narrow(&d.v, ATTN_BF16);
        d.out = narrow_out(&d.out, ATTN_BF16);
        d.stats = make_out(LAYOUT_PACKED, 4, 1, 2, 70, 2);
        d.workspace = workspace, d.workspace_bytes = sizeof workspace;
        on_device();
        CHECK(explained(&d, 0, "on the device, stage 3"));
        check_asked(&d, 0, 6, heads[at] <= 128 ? 4 : 3); /* q, k, v; out where it goes by TMA */
        check_planned(&d, 0, 0);
        g.d_out = narrow(&above, ATTN_BF16);
        g.dq = make_out(LAYOUT_PACKED, 4, 1, 2, 70, heads[at]), g.dk = make_out(LAYOUT_PACKED, 4, 1, 1, 90, heads[at]);
        g.dv = make_out(LAYOUT_PACKED, 4, 1, 1, 90, heads[at]);
        on_device();
        CHECK(explained(&d, &g, "on the device, stage 3"));
        check_asked(&d, &g, 10, 4); /* q, d_out, k, v */
        check_planned(&d, &g, 0);
        of_rows = d, memset(&of_rows.stats, 0, sizeof of_rows.stats);
        check_asked(&of_rows, &g, 9, 5); /* and q of the forward, in other tiles */
        check_planned(&of_rows, &g, 0);
        test_release();
    }
    fake_set_arch(arch);
}

/* Gradients without stats have the bits of those with the stats of the forward: the same stage finds them again. */
static void fast_stats(void) {
    static const int archs[2] = {80, 90};
    const int arch = fake_arch();
    for (int at = 0; at < 2; at++) {
        attn_desc d = make_desc(1, 4, 2, 140, 300, 64, 64);
        attn_view above = make_filled(LAYOUT_PACKED, 1, 4, 1, 4, 140, 64);
        attn_grad g[2] = {{0}};
        if (!play(archs[at])) continue;
        on_device();
        d.q = narrow(&d.q, ATTN_BF16), d.k = narrow(&d.k, ATTN_BF16), d.v = narrow(&d.v, ATTN_BF16);
        d.stats = make_out(LAYOUT_PACKED, 4, 1, 4, 140, 2);
        CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
        for (int n = 0; n < 2; n++) {
            g[n].d_out = narrow(&above, ATTN_BF16);
            g[n].dq = make_out(LAYOUT_PACKED, 4, 1, 4, 140, 64);
            g[n].dk = make_out(LAYOUT_PACKED, 4, 1, 2, 300, 64);
            g[n].dv = make_out(LAYOUT_PACKED, 4, 1, 2, 300, 64);
            CHECK(explained(&d, &g[n], at ? "stage 3" : "stage 2, mma.sync, gradients in one sweep (not stage 3"));
            CHECK_STATUS(attn_backward(&d, &g[n], 0), ATTN_OK);
            memset(&d.stats, 0, sizeof d.stats);
        }
        CHECK(memcmp(g[0].dq.data, g[1].dq.data, 4 * 140 * 64 * sizeof(float)) == 0);
        CHECK(memcmp(g[0].dk.data, g[1].dk.data, 2 * 300 * 64 * sizeof(float)) == 0);
        CHECK(memcmp(g[0].dv.data, g[1].dv.data, 2 * 300 * 64 * sizeof(float)) == 0);
        play_as_before(arch);
        test_release();
    }
}

/* Where blocks of queries are too few to fill the device, stage 2 splits the keys; the arrays are only described. */
static void fast_fill(void) {
    const int arch = fake_arch();
    const void *address = (const void *)((uintptr_t)1 << 40);
    for (int n = 0; n < 5; n++) { /* few blocks; then more heads, queries, fewer keys, gradients */
        const int64_t h = n == 1 ? 66 : 32, sq = n == 2 ? 257 : 64, sk = n == 3 ? 1023 : 32768;
        attn_desc d = {0};
        attn_grad g = {0};
        d.q = attn_view_typed(ATTN_BF16, address, 4, 1, h, sq, 128);
        d.k = d.v = attn_view_typed(ATTN_BF16, address, 4, 1, h, sk, 128);
        d.out = attn_out_typed(ATTN_BF16, (void *)((uintptr_t)1 << 41), 4, 1, h, sq, 128);
        g.d_out = d.q;
        g.dq = attn_out_typed(ATTN_BF16, (void *)((uintptr_t)1 << 42), 4, 1, h, sq, 128);
        fake_everything(2);
        if (!play(90)) return;
        fake_set_processors(132);
        CHECKF(explained(&d, n == 4 ? &g : 0,
                         n ? "on the device, stage 3"
                           : "on the device, stage 2, mma.sync (not stage 3, wgmma: few blocks of queries"),
               "case %d", n);
        play_as_before(arch);
    }
}

/* k or v as codes of 8 bits with their scales, and the floats that they stand for: each is rounded once. */
static void as_codes(attn_view *of, attn_view *scale, int per_row, int32_t type, attn_view *floats) {
    attn_view codes = make_view(ATTN_I8, LAYOUT_MIXED, 4, of->size[0], of->size[1], of->size[2], of->size[3]);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    fill(&codes, draw_int, -127, 127);
    *scale =
        make_view(type, LAYOUT_MIXED, 4, of->size[0], of->size[1], of->size[2], per_row ? 1 : (of->size[3] + 31) / 32);
    fill(scale, draw_normal, 0, 0.02);
    *floats = make_view(ATTN_F32, LAYOUT_PACKED, 4, of->size[0], of->size[1], of->size[2], of->size[3]);
    if (view_extent(&codes, &low, &high)) do {
            const int64_t group[4] = {index[0], index[1], index[2], per_row ? 0 : index[3] / 32};
            const int64_t at = offset_of(scale, group);
            const float factor = type == ATTN_F32 ? ((const float *)scale->data)[at]
                                                  : (float)from_16(((const uint16_t *)scale->data)[at], type);
            put_at(floats, index[0], index[1], index[2], index[3],
                   (double)((float)((const int8_t *)codes.data)[offset_of(&codes, index)] * factor));
        } while (next_index(&codes, index));
    *of = codes;
}
/* In the fast stages codes have the bits of the numbers of q's type that are next to what they stand for. */
static void fast_codes(void) {
    const int arch = fake_arch();
    for (int n = 0; n < 24; n++) {
        static const int queries[] = {130, 1, 70};
        const int type = n % 2 ? ATTN_F16 : ATTN_BF16, dim = n % 5 ? 64 : 40, value = n % 4 ? 64 : 72;
        attn_desc d = make_desc(2, 4, 2, queries[n % 3], n < 3 ? 1100 : test_int(1, 200), dim, value), same;
        attn_view floats;
        if (dim > 64 || value > 64) d.softcap = 3;
        if (n % 7 == 3) d.key_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, (int)d.k.size[2]);
        d.q = narrow(&d.q, type);
        d.lse = make_out(LAYOUT_PACKED, 3, 2, 4, d.q.size[2], 0);
        same = copy_results(&d);
        if (n % 3 != 1) as_codes(&d.k, &d.k_scale, n % 2, n % 5 < 2 ? ATTN_F16 : ATTN_F32, &floats);
        same.k = d.k.type == ATTN_I8 ? narrow(&floats, type) : (d.k = narrow(&d.k, type));
        if (n % 3 != 2) as_codes(&d.v, &d.v_scale, n % 4 < 2, n % 5 > 2 ? ATTN_F16 : ATTN_F32, &floats);
        same.v = d.v.type == ATTN_I8 ? narrow(&floats, type) : (d.v = narrow(&d.v, type));
        on_device();
        fake_set_arch(n % 4 < 2 ? 90 : 80);
        CHECK(explained(
            &d, 0, queries[n % 3] > 1 && fake_arch() == 90 ? "on the device, stage" : "device, stage 2, mma.sync"));
        CHECK(fake_arch() < 80 || !explained(&d, 0, "on the device, stage 1"));
        if (run_with_workspace(&d, "codes") && run_desc(&same, "their halves"))
            check_same_results(&d, &same, "codes on tensor cores");
        check_least(&d, 0);
        fake_set_arch(arch);
        test_release();
    }
}

/* Codes in rows that lie one after the other */
static attn_view side_by_side(const attn_view *of) {
    attn_view codes = make_view(ATTN_I8, LAYOUT_PACKED, 4, of->size[0], of->size[1], of->size[2], of->size[3]);
    int64_t index[4] = {0, 0, 0, 0};
    do ((int8_t *)(uintptr_t)codes.data)[offset_of(&codes, index)] = ((const int8_t *)of->data)[offset_of(of, index)];
    while (next_index(of, index));
    return codes;
}
/* Codes of both k and v, side by side and in pages: a decode reads them as they are and needs no memory for numbers,
   which differ from them as they are rounded; others have the bits of the numbers. */
static void fast_read_codes(void) {
    const int arch = fake_arch();
    for (int n = 0; n < 24; n++) {
        static const int queries[] = {2, 70, 1};
        const int type = n % 2 ? ATTN_F16 : ATTN_BF16, dim = n % 8 == 7 ? 40 : n % 8 > 4 ? 128 : 64;
        const int alone = n % 12 == 9; /* heads: 64 rows are the most that are read so, and stage 3's fewest */
        const int many = n == 16;      /* rows, so that stage 3 has them, in numbers that are made first */
        const int rows = alone ? 64 : many ? 130 : n % 6 == 3 ? 31 : queries[n % 3];
        const int reads = rows < 70 && dim != 40 && n % 6 != 5, in_tiles = !reads && dim != 40 && !many;
        const int arch_now = alone || many || n % 5 == 0 ? 90 : 80;
        const int64_t page = n % 4 ? test_int(1, 80) : test_int(1, 700), pages = n % 4 ? test_int(1, 9) : 1;
        attn_desc d = make_desc(pages, 4, alone ? 4 : 2, rows, page, dim, 64), same, plain;
        attn_view floats_k, floats_v;
        size_t bytes = 0, of_numbers = 0;
        d.q = make_filled(LAYOUT_PACKED, 1, 4, 1, 4, rows, dim);
        d.q = narrow(&d.q, type);
        d.out = make_out(LAYOUT_PACKED, 4, 1, 4, rows, 64);
        d.lse = make_out(LAYOUT_PACKED, 3, 1, 4, rows, 0);
        if (n % 4) {
            d.page_table = make_view(ATTN_I32, LAYOUT_PACKED, 2, 1, pages, 0, 0);
            for (int64_t i = 0; i < pages; i++) put_at(&d.page_table, 0, 0, 0, i, (double)(pages - 1 - i));
        }
        d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 0, (int)(page * pages));
        if (n % 6 == 5) d.softcap = 3;
        same = copy_results(&d);
        as_codes(&d.k, &d.k_scale, n % 2, n % 5 < 2 ? ATTN_F16 : ATTN_F32, &floats_k);
        as_codes(&d.v, &d.v_scale, n % 5 < 3, n % 3 ? ATTN_F16 : ATTN_F32, &floats_v);
        d.k = side_by_side(&d.k), d.v = side_by_side(&d.v);
        same.k = narrow(&floats_k, type), same.v = narrow(&floats_v, type);
        plain = same;
        if (in_tiles) same.alibi = make_view(ATTN_F32, LAYOUT_PACKED, 1, 4, 0, 0, 0);
        for (int h = 0; in_tiles && h < 4; h++) put_at(&same.alibi, 0, 0, 0, h, 0); /* in the kernel that makes them */
        on_device();
        fake_set_arch(arch_now);
        if (fake_arch() < 80) { /* a device that is older */
            test_release();
            return;
        }
        const char *why = "on the device, stage 2, mma.sync";
        if (fake_arch() == 90) why = "stage 3, wgmma: few queries"; /* of numbers that are made first */
        if (fake_arch() == 90 && reads) why = "stage 3, wgmma: keys and values of 8 bits are read as they are";
        if (fake_arch() == 90 && in_tiles) why = "stage 3, wgmma: keys or values of 8 bits become numbers tile by tile";
        if (fake_arch() == 90 && many) why = "on the device, stage 3, wgmma";
        CHECKF(explained(&d, 0, why), "case %d", n);
        CHECK_STATUS(attn_workspace_size(&d, &bytes, 0), ATTN_OK);
        CHECK_STATUS(attn_workspace_size(&same, &of_numbers, 0), ATTN_OK);
        CHECKF((bytes <= of_numbers) == (reads || in_tiles), "case %d: %d bytes, of numbers %d", n, (int)bytes,
               (int)of_numbers);
        if (run_with_workspace(&d, "codes") && run_desc(&same, "their numbers")) {
            if (!reads) check_same_results(&d, &same, "codes of k and v");
            else
                CHECKF(far_apart(&d.out, &same.out) < 0.03 && far_apart(&d.lse, &same.lse) < 0.03,
                       "case %d: codes are %.3g and %.3g from their numbers", n, far_apart(&d.out, &same.out),
                       far_apart(&d.lse, &same.lse));
        }
        check_least(&d, 0);
        if (n % 4 == 0) { /* with weights their numbers are made first, in a decode, too */
            attn_desc of_codes = d, of_them = plain;
            of_codes.weights = make_out(LAYOUT_PACKED, 4, 1, 4, rows, page);
            of_them.weights = make_out(LAYOUT_PACKED, 4, 1, 4, rows, page);
            on_device();
            CHECK(!explained(&of_codes, 0, "on the device, stage 1"));
            if (run_with_workspace(&of_codes, "codes, weights") && run_desc(&of_them, "their numbers, weights"))
                check_same_results(&of_codes, &of_them, "weights of codes");
        }
        /* one of them in numbers; in pages, where tiles cannot take the other, by the floats of stage 1 */
        d.v = same.v, memset(&d.v_scale, 0, sizeof d.v_scale);
        why = "mma.sync: k or v has 8 bits, in rows that are not of whole 16 bytes, and they lie in pages";
        CHECKF(explained(&d, 0,
                         dim == 40 && n % 4 ? why
                         : many             ? "on the device, stage 3"
                                            : "on the device, stage 2"),
               "case %d with one of them", n);
        for (int axis = 0; dim == 40 && axis < 3; axis++) d.k.stride[axis] = d.k.stride[axis] / 40 * 48;
        if (dim == 40) CHECKF(explained(&d, 0, why), "case %d, rows that begin at whole 16 bytes", n);
        if (in_tiles && run_with_workspace(&d, "codes of k") && run_desc(&same, "their numbers"))
            check_same_results(&d, &same, "codes of k alone");
        fake_set_arch(arch);
        test_release();
    }
}

static attn_desc described_codes(const void *address, int queries, int keys, int size, int of, int page) {
    const int64_t rows = page ? page : keys, batch = page ? keys / page : 8;
    attn_desc d = {0};
    d.q = attn_view_typed(ATTN_F16, address, 4, page ? 1 : 8, 4, queries, size);
    d.k = attn_view_typed(of & 1 ? ATTN_I8 : ATTN_F16, address, 4, batch, 4, rows, size);
    d.v = attn_view_typed(of & 2 ? ATTN_I8 : ATTN_F16, address, 4, batch, 4, rows, size);
    if (of & 1) d.k_scale = attn_view_typed(ATTN_F32, address, 4, batch, 4, rows, 1);
    if (of & 2) d.v_scale = attn_view_typed(ATTN_F16, address, 4, batch, 4, rows, 1);
    if (page) d.page_table = attn_view_typed(ATTN_I32, address, 2, 1, keys / page, 0, 0);
    d.out = attn_out_typed(ATTN_F16, address ? (void *)((uintptr_t)1 << 41) : NULL, 4, page ? 1 : 8, 4, queries, size);
    return d;
}
/* Which stage has keys and values of 8 bits (1: k, 2: v); the arrays are only described. */
static void fast_codes_described(void) {
    static const char in_tiles[] = "wgmma: keys or values of 8 bits become numbers tile by tile";
    static const char there[] = "on the device";
    static const struct {
        const char *name, *why;
        int arch, queries, size, of, starts, page, stage;
    } cases[] = {{"some rows", in_tiles, 90, 100, 64, 3, 0, 0, 2},
                 {"many rows", there, 90, 300, 64, 3, 0, 0, 3},
                 {"many rows, an older device", there, 80, 300, 64, 3, 0, 0, 2},
                 {"some rows of one", in_tiles, 90, 100, 64, 1, 0, 0, 2},
                 {"some rows with starts", in_tiles, 90, 100, 128, 3, 1, 0, 2},
                 {"with starts, and heads that stage 2 has none for", there, 90, 100, 256, 3, 1, 0, 3},
                 {"many rows in pages", there, 90, 300, 64, 3, 0, 16, 3},
                 {"many rows in pages of one", in_tiles, 90, 300, 64, 1, 0, 16, 2},
                 {"many rows in pages of the other", in_tiles, 90, 300, 64, 2, 0, 16, 2}};
    const int arch = fake_arch();
    const void *const address = (const void *)((uintptr_t)1 << 40);
    attn_desc d;
    attn_grad g = {0};
    size_t large = 0, small = 0;
    for (int n = 0; n < (int)(sizeof cases / sizeof *cases); n++) {
        d = described_codes(address, cases[n].queries, 512, cases[n].size, cases[n].of, cases[n].page);
        if (cases[n].starts) d.key_starts = attn_view_typed(ATTN_I32, address, 1, 8, 0, 0, 0);
        if (!play(cases[n].arch)) return;
        fake_everything(2);
        CHECKF(runs_on(&d, 0, cases[n].stage) && explained(&d, 0, cases[n].why), "%s", cases[n].name);
        play_as_before(arch);
    }
    /* With fewer keys stage 3 has it, for which numbers are made first. */
    if (!play(90)) return;
    fake_everything(2);
    fake_set_processors(132);
    for (int keys = 4096; keys >= 1000; keys -= 3096) {
        d = described_codes(NULL, 256, keys, 128, 3, 0);
        d.q.size[0] = d.k.size[0] = d.v.size[0] = d.out.size[0] = d.k_scale.size[0] = d.v_scale.size[0] = 1;
        d.q.size[1] = d.k.size[1] = d.v.size[1] = d.out.size[1] = d.k_scale.size[1] = d.v_scale.size[1] = 32;
        CHECK_STATUS(attn_workspace_size(&d, keys == 4096 ? &large : &small, 0), ATTN_OK);
    }
    CHECKF(small > 0 && small <= large, "%d bytes for 1000 keys, %d for 4096", (int)small, (int)large);
    fake_set_processors(0);
    /* Nothing there: no entries, and no heads */
    for (int of = 0; of < 4; of += 3) {
        d = described_codes(address, 100, 512, 64, of, 0);
        d.q.size[0] = d.k.size[0] = d.v.size[0] = d.out.size[0] = d.k_scale.size[0] = d.v_scale.size[0] = 1;
        d.query_starts = d.key_starts = d.query_lengths = d.key_lengths =
            attn_view_typed(ATTN_I32, address, 1, 0, 0, 0, 0);
        CHECK_STATUS(attn_workspace_size(&d, &large, 0), ATTN_OK);
        CHECK(explained(&d, 0, there));
    }
    d = described_codes(address, 8, 512, 64, 0, 0);
    d.q.size[0] = d.k.size[0] = d.v.size[0] = d.out.size[0] = 1, d.q.size[1] = d.out.size[1] = 0;
    d.query_starts = d.key_starts = d.query_lengths = d.key_lengths = attn_view_typed(ATTN_I32, address, 1, 2, 0, 0, 0);
    g.d_out = d.q, g.dq = d.out;
    g.dk = attn_out_typed(ATTN_F16, (void *)((uintptr_t)1 << 42), 4, 1, 4, 512, 64);
    g.dv = attn_out_typed(ATTN_F16, (void *)((uintptr_t)1 << 43), 4, 1, 4, 512, 64);
    CHECK_STATUS(attn_backward_workspace_size(&d, &g, &large, 0), ATTN_OK);
    play_as_before(arch);
}

/* Softcap runs on stage 3, gradients of any heads too; the arrays are only described. */
static void fast_softcap(void) {
    const int arch = fake_arch();
    const void *address = (const void *)((uintptr_t)1 << 40);
    for (int64_t size = 128; size <= 136; size += 8) {
        attn_desc d = {0};
        attn_grad g = {0};
        d.softcap = 2;
        d.q = d.k = d.v = attn_view_typed(ATTN_BF16, address, 4, 1, 4, 1024, size);
        d.out = attn_out_typed(ATTN_BF16, (void *)((uintptr_t)1 << 41), 4, 1, 4, 1024, size);
        g.d_out = d.q;
        g.dq = attn_out_typed(ATTN_BF16, (void *)((uintptr_t)1 << 42), 4, 1, 4, 1024, size);
        if (!play(90)) return;
        fake_everything(2);
        CHECK(explained(&d, 0, "on the device, stage 3"));
        CHECK(explained(&d, &g, "on the device, stage 3, wgmma, gradients in one sweep"));
        play_as_before(arch);
    }
}

/* Which stage has an option, and why the stronger one has not, for each alone; the arrays are only described. */
static void fast_options(void) {
    static const struct {
        const char *name;
        int forward, backward; /* stages */
        const char *why;
    } options[] = {
        {"none", 3, 3, "on the device"},
        {"a mask", 3, 3, "on the device"},
        {"a bias", 3, 3, "on the device"},
        {"dropout", 3, 3, "on the device"},
        {"a softcap", 3, 3, "on the device"},
        {"ALiBi", 3, 3, "on the device"},
        {"a negative scale", 3, 3, "on the device"},
        {"a sink", 3, 3, "on the device"},
        {"weights", 3, 3, "on the device"},
        {"masked scores", 3, 3, "on the device"},
        {"uniform rows", 1, 1, "mma.sync: empty rows are to be uniform"},
        {"cosines", 1, 1, "mma.sync: the score is not a dot product"},
        {"f32", 2, 2, "wgmma: q, k, v are not all f16 or all bf16"},
        {"starts", 3, 3, "on the device"},
        {"d_bias", 3, 3, "on the device"},
        {"d_scale", 3, 3, "on the device"},
        {"d_sink", 3, 3, "on the device"},
        {"pages", 3, 0, "on the device"}, /* these have no gradients */
        {"pages and starts", 1, 0, "mma.sync: keys in pages have starts"},
        {"pages of 20 rows", 2, 0, "wgmma: pages of a number of rows that is not a multiple of 8"},
        {"pages and weights", 1, 0, "mma.sync: weights or scores of entries with starts, or over keys in pages"},
        {"pages and masked scores", 1, 0, "mma.sync: weights or scores of entries with starts, or over keys in pages"},
        {"starts and weights", 1, 0, "mma.sync: weights or scores of entries with starts, or over keys in pages"},
        {"weights alone", 2, 0, "wgmma: no out is wanted"},
        {"scores alone", 2, 0, "wgmma: no out is wanted"},
        {"packed documents", 3, 3, "on the device"},
        {"packed documents of few rows", 2, 2, "wgmma: few queries"},
        {"packed documents of few rows, in f32", 2, 1, "wgmma: q, k, v are not all f16 or all bf16"},
        {"packed documents and d_scale", 3, 1, "on the device"},
        {"d_weights", 3, 1, "on the device"},
        {"d_alibi", 3, 3, "on the device"},
        {"packed queries, padded keys", 3, 3, "on the device"},
        {"packed queries, padded keys and d_alibi", 3, 1, "on the device"},
        {"starts and a mask", 2, 2, "wgmma: bias or mask where entries have starts"},
        {"starts and a bias", 2, 2, "wgmma: bias or mask where entries have starts"},
    };
    const int arch = fake_arch();
    const char *const base = (const char *)((uintptr_t)1 << 40);
    if (!play(90)) return;
    for (int n = 0; n < (int)(sizeof options / sizeof *options); n++) {
        const int32_t type = n == 12 || n == 27 ? ATTN_F32 : ATTN_BF16;
        float *const written = (float *)((uintptr_t)1 << 41);
        attn_desc d = {0};
        attn_grad g = {0};
        d.q = d.k = d.v = attn_view_typed(type, base, 4, 1, 4, 1024, 64);
        d.out = attn_out_typed(type, written, 4, 1, 4, 1024, 64);
        g.d_out = d.q;
        g.dq = attn_out_typed(type, written + (1 << 24), 4, 1, 4, 1024, 64);
        if (n == 1 || n == 33) d.mask = attn_view_u8((const uint8_t *)base, 2, 1024, 1024, 0, 0);
        if (n == 2 || n == 14 || n == 34) d.bias = attn_view_f32((const float *)base, 2, 1024, 1024, 0, 0);
        if (n == 3) d.dropout = 0.5f;
        if (n == 4) d.softcap = 2;
        if (n == 5 || n == 30 || n == 32) d.alibi = attn_view_f32((const float *)base, 1, 4, 0, 0, 0);
        if (n == 6) d.scale = -1;
        if (n == 7 || n == 16) d.sink = attn_view_f32((const float *)base, 1, 4, 0, 0, 0);
        const int pages = n > 16 && n < 22;
        if (n == 8 || n == 20 || n == 22 || n == 23) d.weights = attn_out_f32(written + (2 << 24), 4, 1, 4, 1024, 1024);
        if (n == 9 || n == 21) d.scores_masked = attn_out_f32(written + (2 << 24), 4, 1, 4, 1024, 1024);
        if (n == 10) d.empty = ATTN_EMPTY_UNIFORM;
        if (n == 11) d.score = ATTN_SCORE_COSINE;
        if (n == 24) d.scores = attn_out_f32(written + (2 << 24), 4, 1, 4, 1024, 1024);
        if (n == 23 || n == 24) d.out.rank = 0, d.out.data = 0;
        if (n > 24 && n < 29) {
            d.query_starts = d.key_starts = attn_view_typed(ATTN_I32, base, 1, n == 25 || n == 28 ? 3 : 64, 0, 0, 0);
            d.query_lengths = d.key_lengths = d.query_starts;
        }
        if (n == 31 || n == 32) {
            d.query_starts = d.key_starts = attn_view_typed(ATTN_I32, base, 1, 1, 0, 0, 0);
            d.query_lengths = d.query_starts;
        }
        if (n == 13 || n == 22 || n > 32) d.query_starts = attn_view_typed(ATTN_I32, base, 1, 1, 0, 0, 0);
        if (n == 14) g.d_bias = attn_out_f32(written + (2 << 24), 2, 1024, 1024, 0, 0);
        if (n == 15 || n == 28) g.d_scale = attn_out_f32(written + (2 << 24), 1, 1, 0, 0, 0);
        if (n == 16) g.d_sink = attn_out_f32(written + (2 << 24), 1, 4, 0, 0, 0);
        if (n == 29) g.d_weights = attn_view_f32((const float *)base, 4, 1, 4, 1024, 1024);
        if (n == 30 || n == 32) g.d_alibi = attn_out_f32(written + (2 << 24), 1, 4, 0, 0, 0);
        if (pages) d.page_table = attn_view_typed(ATTN_I32, base, 2, 1, 4, 0, 0);
        if (pages) d.k = d.v = attn_view_typed(type, base, 4, 5, 4, n == 19 ? 20 : 256, 64);
        if (n == 18) d.key_starts = attn_view_typed(ATTN_I32, base, 1, 1, 0, 0, 0);
        fake_everything(2);
        CHECKF(runs_on(&d, 0, options[n].forward) && explained(&d, 0, options[n].why), "%s", options[n].name);
        if (!options[n].backward) continue;
        CHECKF(runs_on(&d, &g, options[n].backward), "gradients: %s", options[n].name);
        if (n == 28 || n == 32)
            CHECKF(explained(&d, &g, "mma.sync: d_bias, d_scale or d_alibi where entries have starts"), "why: %s",
                   options[n].name);
        if (n == 29)
            CHECKF(explained(&d, &g, "mma.sync: there are d_weights, or more is wanted than"), "why: %s",
                   options[n].name);
        if (n == 27)
            CHECKF(explained(&d, &g, "mma.sync: gradients of entries with starts"), "why: %s", options[n].name);
    }
    play_as_before(arch);
}

/* Which calls of f32 stage 2 takes, and why not the others; the arrays are only described. */
static void fast_floats(void) {
    static const struct {
        const char *why;
        int arch, size, stage;
    } cases[] = {{"on the device", 90, 64, 2},
                 {"on the device", 80, 128, 2},
                 {"the device is older than sm_80", 75, 64, 1},
                 {"a head size is beyond those that were compiled", 90, 136, 1},
                 {"a head size is no multiple of 8", 90, 68, 1},
                 {"rows of q, k, v are not 16-byte aligned", 90, 64, 1},
                 {"q, k, v are not of one type", 90, 64, 1},
                 {"weights or scores of f32", 90, 64, 1},
                 {"out is not in rows of the type of q or f32", 90, 64, 1}};
    const int arch = fake_arch();
    const char *const base = (const char *)((uintptr_t)1 << 40);
    float *const written = (float *)((uintptr_t)1 << 41);
    for (int n = 0; n < (int)(sizeof cases / sizeof *cases); n++) {
        const int32_t of_v = n == 6 ? ATTN_BF16 : ATTN_F32;
        attn_desc d = {0};
        attn_grad g = {0};
        d.q = d.k = attn_view_f32((const float *)(base + (n == 5 ? 4 : 0)), 4, 1, 4, 1024, cases[n].size);
        d.v = attn_view_typed(of_v, base, 4, 1, 4, 1024, cases[n].size);
        d.out = attn_out_typed(n == 8 ? ATTN_BF16 : ATTN_F32, written, 4, 1, 4, 1024, cases[n].size);
        if (n == 7) d.weights = attn_out_f32(written + (2 << 24), 4, 1, 4, 1024, 1024);
        g.d_out = attn_view_f32((const float *)base, 4, 1, 4, 1024, cases[n].size);
        g.dq = attn_out_f32(written + (1 << 24), 4, 1, 4, 1024, cases[n].size);
        if (!play(cases[n].arch)) return;
        fake_everything(2);
        CHECKF(runs_on(&d, 0, cases[n].stage) && explained(&d, 0, cases[n].why), "case %d", n);
        if (n != 7) CHECKF(runs_on(&d, &g, cases[n].stage), "gradients, case %d", n);
        play_as_before(arch);
    }
}

/* No heads: nothing to do, dk and dv are 0. Rows without a key whose sink is NaN: that is their log-sum-exp. */
static void fast_corners(void) {
    static const int archs[3] = {75, 80, 90};
    const int arch = fake_arch();
    for (int at = 0; at < 3; at++) {
        attn_desc d = make_desc(1, 0, 2, 64, 64, 64, 64), s = make_desc(1, 2, 2, 64, 64, 64, 64);
        attn_grad g = {0};
        attn_view above = make_filled(LAYOUT_PACKED, 1, 4, 1, 0, 64, 64);
        d.q = narrow(&d.q, ATTN_BF16), d.k = narrow(&d.k, ATTN_BF16), d.v = narrow(&d.v, ATTN_BF16);
        d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 9, 9);
        g.d_out = narrow(&above, ATTN_BF16);
        g.dk = make_out(LAYOUT_PACKED, 4, 1, 2, 64, 64);
        s.q = narrow(&s.q, ATTN_BF16), s.k = narrow(&s.k, ATTN_BF16), s.v = narrow(&s.v, ATTN_BF16);
        s.lse = make_out(LAYOUT_PACKED, 3, 1, 2, 64, 0);
        s.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 0, 0);
        s.sink = make_filled(LAYOUT_PACKED, 0, 1, 2, 0, 0, 0);
        put_at(&s.sink, 0, 0, 0, 1, NAN);
        on_device();
        fake_set_arch(archs[at]);
        CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
        CHECK_STATUS(attn_backward(&d, &g, 0), ATTN_OK);
        CHECK(((const float *)g.dk.data)[0] == 0 && ((const float *)g.dk.data)[2 * 64 * 64 - 1] == 0);
        CHECK_STATUS(attn_forward(&s, 0), ATTN_OK);
        CHECK(((const float *)s.lse.data)[0] == 0 && isnan((double)((const float *)s.lse.data)[127]));
        CHECK(((const float *)s.out.data)[0] == 0 && ((const float *)s.out.data)[2 * 64 * 64 - 1] == 0);
        /* one key, values without columns: no tensor map has such a size, and its strides are of no account */
        attn_desc n = make_desc(1, 1, 1, 128, 1, 64, 0);
        n.q = narrow(&n.q, ATTN_BF16), n.k = narrow(&n.k, ATTN_BF16), n.v = narrow(&n.v, ATTN_BF16);
        n.lse = make_out(LAYOUT_PACKED, 3, 1, 1, 128, 0);
        poison(&n.lse);
        CHECK_STATUS(attn_forward(&n, 0), ATTN_OK);
        CHECK(isfinite(((const float *)n.lse.data)[0]) && isfinite(((const float *)n.lse.data)[127]));
        fake_set_arch(arch);
        test_release();
    }
}

/* The rows in front of padded entries are empty rows: their sink has a share of d_lse, in each stage as on the CPU. */
static void sinks_in_front(void) {
    const int archs[3] = {75, 80, 90}, arch = fake_arch();
    attn_desc d = make_desc(2, 2, 2, 130, 70, 64, 64);
    attn_grad g = {0};
    attn_view above = make_filled(LAYOUT_PACKED, 1, 4, 2, 2, 130, 64);
    float want[2];
    d.q = narrow(&d.q, ATTN_BF16), d.k = narrow(&d.k, ATTN_BF16), d.v = narrow(&d.v, ATTN_BF16);
    d.sink = make_filled(LAYOUT_PACKED, 0, 1, 2, 0, 0, 0);
    d.query_starts = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 66, 66);
    d.key_starts = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 3, 3);
    g.d_out = narrow(&above, ATTN_BF16);
    g.d_lse = make_filled(LAYOUT_PACKED, 0.1, 3, 2, 2, 130, 0);
    g.dq = make_out(LAYOUT_PACKED, 4, 2, 2, 130, 64);
    g.d_sink = make_out(LAYOUT_PACKED, 1, 2, 0, 0, 0);
    for (int at = 0; at < 4; at++) { /* first on the host */
        const float *got = (const float *)g.d_sink.data;
        if (at && !play(archs[at - 1])) return;
        if (at) on_device();
        else fake_everything(0);
        if (at) CHECK(runs_on(&d, &g, at));
        CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
        CHECK_STATUS(attn_backward(&d, &g, 0), ATTN_OK);
        if (at == 0) memcpy(want, got, sizeof want);
        for (int h = 0; h < 2; h++) /* 260 terms, of out that is rounded */
            CHECKF(fabs((double)got[h] - want[h]) < 0.02, "stage %d: %g, want %g", at, (double)got[h], (double)want[h]);
        play_as_before(arch);
    }
}

/* ---- where arrays lie */
static void refused(attn_status status, attn_status want, const attn_error *err, const char *field, const char *rule) {
    CHECKF(status == want && strcmp(err->field, field) == 0 && strstr(err->rule, rule),
           "status \"%s\", field %s, rule %s; want \"%s\", %s, %s", attn_status_string(status), err->field, err->rule,
           attn_status_string(want), field, rule);
}

/* Each array of a call in turn on the other side. */
static void mixed_places(void) {
    attn_error err;
    for (int at = 0; at < 6; at++)
        for (int other = 0; other <= 2; other += 2) {
            attn_desc d = make_desc(1, 2, 2, 5, 7, 4, 3);
            ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
            d.bias = make_filled(LAYOUT_PACKED, 1, 2, 5, 7, 0, 0);
            d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 3, 7);
            const void *arrays[6] = {d.k.data, d.v.data, d.out.data, d.lse.data, d.bias.data, d.key_lengths.data};
            const char *names[6] = {"k", "v", "out", "lse", "bias", "key_lengths"};
            size_t bytes = 0;
            fake_everything(2 - other);
            fake_range(arrays[at], 4, other);
            poison_results(&d);
            refused(attn_forward(&d, &err), ATTN_ERR_PLACE, &err, names[at],
                    other ? "must lie on the host" : "must lie on the device");
            refused(attn_workspace_size(&d, &bytes, &err), ATTN_ERR_PLACE, &err, names[at], "must lie on");
            CHECK(isnan((double)*(float *)d.out.data));
            test_release();
        }
    attn_desc d = make_desc(1, 1, 1, 3, 4, 2, 2);
    static char workspace[1 << 16];
    fake_everything(2);
    fake_range(workspace, sizeof workspace, 0);
    d.workspace = workspace;
    d.workspace_bytes = sizeof workspace;
    refused(attn_forward(&d, &err), ATTN_ERR_PLACE, &err, "workspace", "must lie on the device");
    d.workspace = 0, d.workspace_bytes = 0;
    d.q.type = ATTN_F64;
    fake_everything(0);
    refused(attn_forward(&d, &err), ATTN_ERR_TYPE, &err, "q.type", "must be ATTN_F32, ATTN_F16 or ATTN_BF16");
    d.q.type = ATTN_F32;
    ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
    fake_everything(2);
    d.lse.type = ATTN_F16;
    refused(attn_forward(&d, &err), ATTN_ERR_TYPE, &err, "lse.type", "must be ATTN_F32");
    d.lse.type = ATTN_F32;
    d.q.type = ATTN_F64;
    refused(attn_forward(&d, &err), ATTN_ERR_TYPE, &err, "q.type", "must be ATTN_F32");
}

/* Plans of every stage, in a stream and on a device of their own. */
static void fast_plans(void) {
    const int arch = fake_arch();
    /* f32; stage 2; a decode; split keys; codes; packed heads; heads of 256 numbers; a mask; weights; f32 in stage 2 */
    for (int n = 0; n < 10; n++) {
        static const char *stages[10] = {"stage 1", "stage 2", "stage 2", "stage 2", "stage 3",
                                         "stage 3", "stage 3", "stage 3", "stage 3", "stage 2"};
        const int own_arch = n == 0 ? 75 : n == 1 ? 80 : 90, halves = n > 0 && n < 9;
        const int h = n == 5 ? 8 : 4, sq = n == 2 || n == 3 ? 1 : 64, sk = n == 3 ? 700 : 90, dim = n == 6 ? 256 : 128;
        attn_desc d = make_desc(1, h, 2, sq, sk, dim, dim);
        attn_view above = make_filled(LAYOUT_PACKED, 1, 4, 1, h, sq, dim), floats;
        attn_grad g = {0};
        fake_set_arch(own_arch);
        if (fake_arch() != own_arch) continue; /* a device that is older */
        if (n == 5) fake_set_processors(1);
        if (n == 7) d.mask = make_ints(ATTN_U8, 2, sq, sk, 0, 0, 0, 1);
        d.out = make_out(LAYOUT_PACKED, 4, 1, h, sq, dim);
        if (n == 8) d.weights = make_out(LAYOUT_PACKED, 4, 1, h, sq, sk);
        if (halves) d.q = narrow(&d.q, ATTN_BF16), d.k = narrow(&d.k, ATTN_BF16), d.v = narrow(&d.v, ATTN_BF16);
        if (n == 4) as_codes(&d.k, &d.k_scale, 1, ATTN_F32, &floats), as_codes(&d.v, &d.v_scale, 0, ATTN_F32, &floats);
        d.stream = fake_stream();
        on_device();
        CHECKF(explained(&d, 0, stages[n]), "plan %d", n);
        check_planned(&d, 0, n == 4 ? 2 : 0);
        g.d_out = halves ? narrow(&above, ATTN_BF16) : above;
        g.dq = make_out(LAYOUT_PACKED, 4, 1, h, sq, dim);
        g.dk = make_out(LAYOUT_PACKED, 4, 1, 2, sk, dim), g.dv = make_out(LAYOUT_PACKED, 4, 1, 2, sk, dim);
        if (n != 4) check_planned(&d, &g, 0);
        if (n == 0 && fake_device() >= 0) { /* the second device is current while its kernels are launched */
            fake_everything(2 + 16);
            check_planned(&d, &g, 0);
            CHECK(fake_device() == 0);
        }
        fake_set_processors(0);
        test_release();
    }
    fake_set_arch(arch);
}
/* What a plan refuses, and one of nothing */
static void fast_plans_refused(void) {
    attn_desc d = make_desc(1, 1, 1, 3, 4, 2, 2), none = d;
    attn_error err;
    attn_plan plan;
    on_device();
    fake_range(d.v.data, 4, 0);
    refused(attn_plan_forward(&d, &plan, &err), ATTN_ERR_PLACE, &err, "v", "must lie on the device");
    on_device();
    none.q.size[2] = none.out.size[2] = 0;
    CHECK_STATUS(attn_plan_forward(&none, &plan, &err), ATTN_OK);
    CHECK(plan.phases == 1 && plan.tasks[0] == 0 && plan.workspace_bytes == 0);
    if (fake_device() < 0) return;
    fake_set_compiled(0); /* a build for other devices */
    refused(attn_plan_forward(&d, &plan, &err), ATTN_ERR_CUDA, &err, "the CUDA runtime", "");
    CHECK(err.cuda == 209 && fake_last_error() == 0);
    fake_set_compiled(90);
    fake_everything(3); /* managed memory: tasks run on the host */
    CHECK_STATUS(attn_plan_forward(&d, &plan, &err), ATTN_OK);
    fake_forget();
    attn_task(&plan, test_guarded(plan.workspace_bytes), 0, 0, 0);
    CHECK(fake_counted().launches == 0 && !isnan((double)*(float *)d.out.data));
}

/* What the host alone does is refused by name: gradients of keys in parts, sums by key; desc.precision is of no
   account. */
static void of_the_host(void) {
    attn_error err;
    attn_desc d;
    attn_grad g = {0};
    d = make_desc(1, 1, 1, 3, ATTN_PART_KEYS, 4, 5);
    d.key_origin = ATTN_PART_KEYS;
    d.stats = make_out(LAYOUT_PACKED, 4, 1, 1, 3, 2);
    g.d_out = attn_view_of(d.out), g.dq = make_out(LAYOUT_PACKED, 4, 1, 1, 3, 4);
    fake_everything(2);
    refused(attn_backward(&d, &g, &err), ATTN_ERR_PLACE, &err, "key_origin", "must be 0");
    refused(attn_key_sums(&d, 0, make_out(LAYOUT_PACKED, 3, 1, 1, ATTN_PART_KEYS, 0), &err), ATTN_ERR_PLACE, &err,
            "key_sums", "must be absent on a device");

    for (int n = 0; n < 2; n++) {
        attn_desc bf16 = make_desc(1, 2, 2, 70, 90, 64, 64), same;
        if (n) bf16.q = narrow(&bf16.q, ATTN_BF16), bf16.k = narrow(&bf16.k, ATTN_BF16);
        bf16.v = narrow(&bf16.v, ATTN_BF16);
        same = copy_results(&bf16);
        same.precision = ATTN_PRECISION_FAST;
        on_device();
        CHECK_STATUS(attn_forward(&bf16, 0), ATTN_OK);
        CHECK_STATUS(attn_forward(&same, 0), ATTN_OK);
        check_same_results(&bf16, &same, "another precision");
        test_release();
    }
}

/* Two devices are two places; what a call allocates lies on that of its arrays; the caller's stays the current one. */
static void several_devices(void) {
    attn_desc d = make_desc(1, 2, 2, 5, 7, 4, 3);
    attn_mha_desc m = {0};
    attn_error err;
    ref_result r;
    if (fake_device() < 0) {
        test_skip("there is one device to test on");
        return;
    }
    set_score(&d, ATTN_SCORE_COSINE, 0); /* needs a workspace */
    ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
    fake_everything(2 + 16);
    fake_range(d.v.data, 4, 2);
    refused(attn_forward(&d, &err), ATTN_ERR_PLACE, &err, "v", "must lie on the device");
    ref_forward(&d, &r);
    m.query = make_filled(LAYOUT_PACKED, 1, 3, 2, 5, 4, 0);
    m.w_query = m.w_key = m.w_value = make_filled(LAYOUT_PACKED, 1, 2, 4, 4, 0, 0);
    m.heads = 2;
    m.out = make_out(LAYOUT_PACKED, 3, 2, 5, 4, 0);
    for (int call = 0; call < 2; call++) {
        fake_everything(2 + 16);
        fake_forget();
        if (call) CHECK_STATUS(attn_mha(&m, 0), ATTN_OK);
        else check_on(&d, &r, ATTN_ISA_AUTO, "the second device");
        CHECK(fake_counted().allocations == 1 && fake_counted().releases == 1 && fake_counted().device == 1);
        CHECK(fake_device() == 0);
    }
    for (int call = 0; call < 4; call++) { /* one beside an older one: each has its own stage */
        attn_desc f = make_desc(1, 1, 1, 70, 90, 64, 64);
        f.q = narrow(&f.q, ATTN_BF16), f.k = narrow(&f.k, ATTN_BF16), f.v = narrow(&f.v, ATTN_BF16);
        fake_everything(2 + 16 * (call % 2 ? FAKE_OLD_DEVICE : 1));
        CHECK(explained(&f, 0, call % 2 ? "stage 1" : "stage 3"));
    }
    for (int nobody = -2; nobody < 0; nobody++) { /* managed memory that no device has touched: the current one's */
        fake_everything(3 + 16 * nobody);
        fake_forget();
        check_on(&d, &r, ATTN_ISA_AUTO, "managed memory");
        CHECK(fake_device() == 0 && fake_last_error() == 0 && fake_counted().refused == 0);
    }
    fake_everything(2 + 16 * 9); /* one that is no more: no error of a call stays behind */
    poison_results(&d);
    CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
    CHECK(fake_device() == 0 && fake_last_error() == 0 && fake_counted().refused > 0);
    ref_free(&r);
}

/* Some kernel before was at fault, or this is the child of a fork (3), a server of several processes fails (805), a
   capture was invalidated (901): where arrays lie cannot be told, and nothing is touched. Without a device or a driver
   all of them are on the host. */
static void lost_device(void) {
    attn_desc d = make_desc(1, 1, 1, 3, 4, 2, 2);
    attn_out mask = attn_out_u8((uint8_t *)test_guarded(12), 4, 1, 1, 3, 4);
    const int lost[] = {2, 3, 4, 214, 700, 719, 805, 901, 999}, none[] = {1, 34, 35, 46, 100, 803, 804};
    attn_error err;
    fake_everything(2);
    poison_results(&d);
    fake_forget();
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        fake_fail_queries(lost[i]);
        CHECKF(attn_forward(&d, &err) == ATTN_ERR_CUDA && err.status == ATTN_ERR_CUDA && err.cuda == lost[i],
               "error %d", lost[i]);
        CHECK(attn_dropout_mask(mask, &d, &err) == ATTN_ERR_CUDA && err.cuda == lost[i]);
        CHECK(isnan((double)*(float *)d.out.data) && fake_last_error() == 0);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        poison_results(&d);
        fake_fail_queries(none[i]);
        CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
        CHECKF(!isnan((double)*(float *)d.out.data), "error %d", none[i]);
        CHECK(fake_last_error() == 0);
    }
    CHECK(fake_counted().launches == 0);
    fake_fail_queries(0);
}

/* One program, both places: host arrays run on the CPU, and launch nothing; pinned ones too; managed ones on the
   device. */
static void both_places(void) {
    for (int type = 0; type <= 3; type++) {
        attn_desc d = make_desc(2, 2, 1, 9, 20, 5, 4);
        ref_result r;
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        ref_forward(&d, &r);
        fake_everything(type);
        fake_forget();
        check_on(&d, &r, ATTN_ISA_AUTO, "one place");
        CHECKF((fake_counted().launches > 0) == (type >= 2), "memory of type %d: %ld launches", type,
               fake_counted().launches);
        char text[300];
        attn_explain(&d, text, sizeof text);
        CHECKF((strstr(text, "on the device, stage ") != 0) == (type >= 2), "explained as: %s", text);
        ref_free(&r);
        test_release();
    }
}

/* What is too long is as long as it may be; what is negative, 0. The CPU reports it, a device's contents it
   cannot see. */
static void lengths_are_clamped(void) {
    attn_desc d = make_desc(2, 1, 1, 6, 9, 3, 2), clamped;
    ref_result r;
    const int32_t lengths[4][2] = {{40, -3}, {-1, 100}, {9, 0}, {0, 6}};
    int32_t *l = (int32_t *)guarded_copy(lengths, sizeof lengths);
    ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
    clamped = d;
    d.key_lengths = attn_view_i32(l, 1, 2, 0, 0, 0);
    d.query_lengths = attn_view_i32(l + 2, 1, 2, 0, 0, 0);
    clamped.key_lengths = attn_view_i32(l + 4, 1, 2, 0, 0, 0);
    clamped.query_lengths = attn_view_i32(l + 6, 1, 2, 0, 0, 0);
    for (int align = 0; align < 2; align++) {
        d.align = clamped.align = align;
        d.causal = clamped.causal = align;
        ref_forward(&clamped, &r);
        on_device();
        poison_results(&d);
        run_desc(&d, "lengths beyond their axes");
        ref_check(&clamped, &r, "lengths beyond their axes");
        ref_free(&r);
    }
    fake_everything(0);
    CHECK_STATUS(attn_forward(&d, 0), ATTN_ERR_RANGE);
}

/* What starts, lengths and page tables hold on a device is not looked at by the host, where addresses may be none.
   There it is made to fit: whatever it is, nothing beside the arrays is read or written. */
static void starts_are_clamped(void) {
    for (int n = 0; n < 120; n++) {
        const int64_t b = test_int(1, 4), page = test_int(1, 9), pages = test_int(0, 6), pool = test_int(0, 3);
        const int packed_q = n % 3 == 0, packed_k = n % 4 == 0, paged = n % 5 == 0;
        const int64_t keys = paged ? pages * page : test_int(0, 80);
        attn_desc d = make_desc(packed_q ? 1 : b, 2, 1, test_int(0, 70), 1, 5, 6);
        d.k = make_filled(LAYOUT_PACKED, 1, 4, paged ? pool : packed_k ? 1 : b, 1, paged ? page : keys, 5);
        d.v = make_filled(LAYOUT_PACKED, 1, 4, paged ? pool : packed_k ? 1 : b, 1, paged ? page : keys, 6);
        if (n % 7 == 0) set_score(&d, ATTN_SCORE_COSINE, 5);
        if (n % 7 == 1) set_score(&d, ATTN_SCORE_ADDITIVE, 5);
        d.empty = n % ATTN_EMPTY_COUNT;
        d.causal = n % 2, d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        d.query_starts = make_ints(ATTN_I64, 1, b, 0, 0, 0, -100, 100);
        d.key_starts = make_ints(ATTN_I32, 1, b, 0, 0, 0, -100, 100);
        d.key_lengths = make_ints(ATTN_I32, 1, b, 0, 0, 0, -100, 100);
        d.query_lengths = make_ints(ATTN_I64, 1, b, 0, 0, 0, -100, 100);
        if (paged) d.page_table = make_ints(ATTN_I32, 2, b, pages, 0, 0, -100, 100);
        if (!packed_q && (!packed_k || paged)) ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        on_device();
        poison_results(&d);
        if (!CHECK_STATUS(attn_forward(&d, 0), ATTN_OK)) printf("    case %d\n", n);
        if (!paged) {
            call c = {.d = d};
            draw_upstream(&c.g, &d, FROM_OUT, LAYOUT_PACKED);
            ask_grads(&c, ~0u, n % 2 ? ATTN_GRAD_ALL : 0, LAYOUT_PACKED);
            run_call(&c, "gradients");
        }
        CHECKF(!*fake_failure(), "case %d: %s", n, fake_failure());
        attn_view *const unread[5] = {&d.query_starts, &d.key_starts, &d.key_lengths, &d.query_lengths, &d.page_table};
        for (int i = 0; i < 5; i++)
            if (unread[i]->rank) unread[i]->data = (const void *)((uintptr_t)(i + 1) << 40);
        size_t bytes = 0;
        fake_everything(2);
        CHECK_STATUS(attn_workspace_size(&d, &bytes, 0), ATTN_OK);
        CHECK(explained(&d, 0, "on the device, stage 1"));
        test_release();
    }
}

/* The bits of the mask are the CPU's: alone, and as the weights that are 0. */
static void dropout_bits(void) {
    attn_error err;
    for (int n = 0; n < 60; n++) {
        attn_desc d = make_desc(2, 3, 1, 11, 70, 4, 2);
        d.dropout = n == 0 ? 1 : (float)test_uniform();
        d.seed = test_bits();
        for (int i = 0; i < 4; i++)
            d.dropout_origin[i] = test_int(0, 1) ? (int64_t)(test_bits() >> 2) : test_int(0, 99);
        d.weights_after_dropout = 1;
        ask_for(&d, RESULT_OUT | RESULT_WEIGHTS, LAYOUT_PACKED);
        attn_out on_host = attn_out_u8((uint8_t *)test_guarded(2 * 3 * 11 * 70), 4, 2, 3, 11, 70), there = on_host;
        there.data = test_guarded(2 * 3 * 11 * 70);
        fake_everything(0);
        CHECK_STATUS(attn_dropout_mask(on_host, &d, 0), ATTN_OK);
        on_device();
        err.status = ATTN_ERR_CUDA;
        CHECK_STATUS(attn_dropout_mask(there, &d, &err), ATTN_OK);
        CHECK(err.status == ATTN_OK);
        CHECK(memcmp(on_host.data, there.data, 2 * 3 * 11 * 70) == 0);
        run_desc(&d, "dropout");
        for (int i = 0; i < 2 * 3 * 11 * 70 && d.dropout < 1; i++)
            if (!CHECKF((((float *)d.weights.data)[i] != 0) == ((uint8_t *)on_host.data)[i], "weight %d of case %d", i,
                        n))
                break;
        test_release();
    }
}

/* ---- stage 1: sizes around those of its tiles, of vectors and of values that registers hold and that they do not */
typedef struct tiled_sizes {
    int64_t queries, keys, vector, value;
} tiled_sizes;
static tiled_sizes draw_sizes(int n) {
    static const int queries[] = {1, 15, 16, 17, 63, 65, 130}, keys[] = {1, 63, 64, 65, 129, 200},
                     vectors[] = {1, 31, 33, 64, 129}, values[] = {128, 3, 64, 65, 260};
    const tiled_sizes s = {queries[n % 7], keys[n % 6], vectors[n / 3 % 5], n % 4 ? 1 + n % 66 : values[n / 4 % 5]};
    return s;
}
static void tiles(void) {
    double worst[ATTN_SCORE_COUNT] = {0};
    const int cases = 7 * ATTN_SCORE_COUNT;
    for (int n = 0; n < cases; n++) {
        const int32_t score = n % ATTN_SCORE_COUNT;
        const tiled_sizes s = draw_sizes(n);
        attn_desc d = make_desc(1, 4, 2, s.queries, s.keys, score == ATTN_SCORE_ADDITIVE ? 9 : s.vector, s.value);
        set_score(&d, score, s.vector);
        if (score == ATTN_SCORE_ADDITIVE) {
            if (n / 11 % 4 == 1) fill(&d.w_q, draw_normal, 0, 6); /* beyond what is clear, in some rows */
            if (n / 11 % 4 == 2) d.hidden_bias = make_filled(LAYOUT_PACKED, 3, 2, 4, s.vector, 0, 0);
        }
        d.causal = n % 3 == 0;
        d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        if (n % 5 == 2) d.dropout = 0.4f;
        d.empty = n % ATTN_EMPTY_COUNT;
        if (n % 7 == 5) { /* rows without a key */
            d.key_lengths = make_ints(ATTN_I32, 2, 1, s.queries, 0, 0, 0, (int)s.keys);
            put_at(&d.key_lengths, 0, 0, 0, 0, 0);
        }
        d.seed = test_bits();
        if (score == ATTN_SCORE_BILINEAR) d.scale = 0.1f, d.scale_set = 1; /* no weight vanishes */
        if (n % 4 == 3) put_at(&d.v, 0, 0, test_int(0, (int)s.keys - 1), 0, n % 8 == 3 ? INFINITY : NAN);
        ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_STATS | (n % 2 ? RESULT_WEIGHTS : 0), LAYOUT_PACKED);
        worst[score] = fmax(worst[score], check_forward(&d, "tiles"));
        CHECK(explained(&d, 0, "on the device, stage 1, tiles of f32"));
        test_release();
    }
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) ref_print_worst(score, worst[score]);
    printf("    stage 1: %d calls of sizes around those of its tiles\n", cases);
}

/* Starts, packed entries, pages: random descriptors of sizes around those of its tiles against the reference. */
static void tiles_entries(void) {
    const int cases = cases_of(270);
    int had[6] = {0};
    memset(covered, 0, sizeof covered);
    tiled_calls[0] = 0;
    for (int n = 0; n < cases; n++) {
        static const int heads[][2] = {{2, 2}, {4, 2}, {1, 1}, {3, 1}}, sequences[] = {4, 3, 5, 4};
        int f[FACTOR_COUNT];
        const tiled_sizes sizes = draw_sizes(n + n / 7);
        attn_desc d;
        char what[40];
        draw_factors(f);
        f[F_SCORE] = n % ATTN_SCORE_COUNT;
        f[F_SEQUENCES] = sequences[n / ATTN_SCORE_COUNT % 4];
        const int *h = heads[f[F_HEADS]];
        const shape s = {1 + f[F_BATCH], h[0], h[1], sizes.queries, sizes.keys, sizes.vector, sizes.value};
        snprintf(what, sizeof what, "case %d", n);
        build_shaped(&d, f, s);
        had[d.page_table.rank ? 5 : d.out.rank && drawn.q_b < 2 && d.query_starts.size[0] > 1 ? 4 : 3]++;
        check_forward(&d, what);
        test_release();
    }
    printf("    stage 1: %d calls with starts, %d of them packed, %d with pages\n", cases, had[4], had[5]);
    CHECK(had[3] > 0 && had[4] > 0 && had[5] > 0);
    CHECKF(tiled_calls[0] == cases, "stage 1 did %ld of %d calls", tiled_calls[0], cases);
}

/* Gradients of additive scores, whose tiles go another way where numbers are not finite: of a key that is masked. */
/* Keys in parts, whose last call has the results of all of them; each part runs in stage 1. */
static void draw_keys_in_parts(attn_desc *d, int n) {
    static const int keys[][2] = {{257, 300}, {512, 520}, {600, 800}};
    int f[FACTOR_COUNT];
    draw_factors(f);
    if (f[F_ALIGN] == 1) f[F_ALIGN] = 3; /* the last key is not known */
    if (f[F_EMPTY] == ATTN_EMPTY_UNIFORM) f[F_EMPTY] = ATTN_EMPTY_ZERO;
    f[F_AFTER] = 0;
    shape s = draw_shape(f);
    s.sk = test_int(keys[n % 3][0], keys[n % 3][1]);
    if (n % 11 == 5) s.dv = 140;                                  /* more than registers hold */
    if (n % 4 == 2) s.d = s.dv = 32, f[F_SCORE] = ATTN_SCORE_DOT; /* which fast stages would take */
    build_shaped(d, f, s);
    if (n % 4 == 2 && !f[F_POISON]) {
        attn_view *const views[3] = {&d->q, &d->k, &d->v};
        for (int i = 0; i < 3; i++)
            if (views[i]->rank) *views[i] = retyped(views[i], ATTN_BF16, LAYOUT_PACKED);
    }
    ask_for(d, RESULT_OUT | RESULT_LSE | RESULT_STATS, LAYOUT_MIXED);
    if (d->window && d->window_left > 0) d->window_left = test_int(0, 700);
    if (d->positions.rank) fill(&d->positions, draw_int, -3, 800);
}
static void tiles_parts(void) {
    const int cases = cases_of(240);
    for (int n = 0; n < cases; n++) {
        attn_desc d;
        ref_result r;
        draw_keys_in_parts(&d, n);
        ref_forward(&d, &r);
        cuts c = draw_cuts(r.sk);
        while (c.count == 1) c = draw_cuts(r.sk); /* that is a call of stage 2 or 3 */
        const int by_starts = r.has_entries || n % 4 == 0;
        attn_out carry = make_carry(&d), other = make_carry(&d);
        for (int p = 0; p < c.count; p++) {
            attn_desc part = cut(&d, c.at[p], c.at[p + 1], by_starts);
            if (p > 0) part.carry_in = attn_view_of(carry);
            if (p > 0 && n % 2) carry = other; /* else in place */
            if (p + 1 < c.count) part.carry_out = carry, without_results(&part);
            on_device();
            poison_results(&part);
            CHECKF(explained(&part, 0, "stage 1"), "case %d: not in stage 1", n);
            CHECK_STATUS(attn_forward(&part, 0), ATTN_OK);
            CHECKF(!*fake_failure() && gaps_untouched(&carry), "case %d: %s", n, fake_failure());
        }
        ref_check(&d, &r, "in parts");
        ref_free(&r);
        test_release();
    }
}
static void tiles_excluded(void) {
    attn_desc d = make_desc(1, 1, 1, 40, 70, 9, 8);
    attn_grad g = {0};
    set_score(&d, ATTN_SCORE_ADDITIVE, 9);
    d.mask = make_view(ATTN_U8, LAYOUT_PACKED, 2, 40, 70, 0, 0);
    for (int64_t i = 0; i < 40; i++)
        for (int64_t j = 0; j < 70; j++) put_at(&d.mask, 0, 0, i, j, j != 37);
    for (int64_t x = 0; x < 9; x++) put_at(&d.k, 0, 0, 37, x, x % 2 ? NAN : INFINITY);
    g.d_out = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, 40, 8);
    g.dq = make_out(LAYOUT_PACKED, 4, 1, 1, 40, 9), g.dk = make_out(LAYOUT_PACKED, 4, 1, 1, 70, 9);
    on_device();
    CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
    CHECK_STATUS(attn_backward(&d, &g, 0), ATTN_OK);
    const float *dq = (const float *)g.dq.data, *dk = (const float *)g.dk.data;
    for (int n = 0; n < 40 * 9; n++) CHECKF(isfinite(dq[n]), "dq[%d] is %g", n, (double)dq[n]);
    for (int n = 0; n < 70 * 9; n++)
        CHECKF(n / 9 == 37 ? dk[n] == 0 : isfinite(dk[n]) && dk[n] != 0, "dk[%d] is %g", n, (double)dk[n]);
    test_release();
}

/* Codes have the bits of the floats that they stand for, with every score, side by side and in pages. */
static void tiles_codes(void) {
    const int cases = cases_of(12 * ATTN_SCORE_COUNT);
    for (int n = 0; n < cases; n++) {
        const tiled_sizes s = draw_sizes(n + n / 7);
        const int32_t score = n % ATTN_SCORE_COUNT;
        const int64_t page = n % 3 ? 0 : test_int(1, 30), pages = page ? (s.keys + page - 1) / page : 0;
        attn_desc d = make_desc(page ? pages : 2, 4, 2, s.queries, page ? page : s.keys,
                                score == ATTN_SCORE_ADDITIVE ? 9 : s.vector, s.value),
                  same;
        if (score == ATTN_SCORE_GIVEN) continue;
        set_score(&d, score, s.vector);
        if (page) {
            d.q = make_filled(LAYOUT_PACKED, 1, 4, 1, 4, s.queries, d.q.size[3]);
            d.out = make_out(LAYOUT_PACKED, 4, 1, 4, s.queries, s.value);
            d.page_table = make_view(ATTN_I32, LAYOUT_PACKED, 2, 1, pages, 0, 0);
            for (int64_t i = 0; i < pages; i++) put_at(&d.page_table, 0, 0, 0, i, (double)(pages - 1 - i));
        }
        d.key_lengths = make_ints(ATTN_I32, 1, page ? 1 : 2, 0, 0, 0, 0, (int)s.keys);
        same = copy_results(&d);
        if (n % 4 != 1) as_codes(&d.k, &d.k_scale, n % 2, n % 5 < 2 ? ATTN_F16 : ATTN_F32, &same.k);
        if (n % 4 != 2) as_codes(&d.v, &d.v_scale, n % 5 < 3, n % 2 ? ATTN_F16 : ATTN_F32, &same.v);
        on_device();
        CHECK(explained(&d, 0, "on the device, stage 1, tiles of f32"));
        if (run_desc(&d, "codes") && run_desc(&same, "their floats")) check_same_results(&d, &same, "codes");
        test_release();
    }
}

/* attn_mask with starts: the host's picture, of each entry in its place or of all packed ones in one. */
static void tiles_pictures(void) {
    for (int n = 0; n < 60; n++) {
        const int64_t b = test_int(1, 4), h = test_int(1, 2), rows = test_int(1, 30), keys = test_int(1, 40);
        const int64_t pictures = n % 2 ? b : 1, bytes = pictures * h * rows * keys;
        attn_desc d = {0};
        attn_out on_host = attn_out_u8((uint8_t *)test_guarded((size_t)bytes), 4, pictures, h, rows, keys),
                 there = on_host;
        there.data = test_guarded((size_t)bytes);
        if (n % 3) d.query_starts = make_ints(ATTN_I32, 1, b, 0, 0, 0, 0, 0);
        if (n % 3 != 1) d.key_starts = make_ints(ATTN_I64, 1, b, 0, 0, 0, 0, 0);
        d.query_lengths = make_ints(ATTN_I64, 1, b, 0, 0, 0, 0, 0);
        d.key_lengths = make_ints(ATTN_I32, 1, b, 0, 0, 0, 0, 0);
        for (int64_t i = 0, row = 0; i < b; i++) {
            const int64_t key = d.key_starts.rank ? test_int(0, (int)keys) : 0, left = rows - row;
            const int64_t length = d.query_starts.rank || pictures > 1 ? test_int(0, (int)left) : i ? 0 : left;
            if (d.query_starts.rank) put_at(&d.query_starts, 0, 0, 0, i, (double)row);
            if (d.key_starts.rank) put_at(&d.key_starts, 0, 0, 0, i, (double)key);
            put_at(&d.query_lengths, 0, 0, 0, i, (double)length);
            put_at(&d.key_lengths, 0, 0, 0, i, (double)test_int(0, (int)(keys - key)));
            if (pictures == 1) row += length;
        }
        d.causal = test_int(0, 1), d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        fake_everything(0);
        if (!CHECK_STATUS(attn_mask(on_host, &d, 0), ATTN_OK)) return;
        on_device();
        CHECK_STATUS(attn_mask(there, &d, 0), ATTN_OK);
        CHECKF(!memcmp(on_host.data, there.data, (size_t)bytes), "case %d: another picture than the host's", n);
        test_release();
    }
}

/* From above, what is asked, options, where entries lie: random. NaN in some keys, NaN or infinity in some values, and
   NaN above rows that have no key by their length. */
static void tiles_backward(void) {
    const int cases = cases_of(15 * ATTN_SCORE_COUNT);
    static const int heads[][2] = {{2, 2}, {4, 2}, {1, 1}, {3, 1}}, sequences[] = {0, 4, 3, 4};
    int had[2][2] = {{0}}; /* queries, keys that are packed */
    memset(covered, 0, sizeof covered);
    forget_worst();
    tiled_calls[1] = 0;
    for_gradients = 1;
    for (int n = 0; n < cases; n++) {
        int f[FACTOR_COUNT];
        const tiled_sizes sizes = draw_sizes(n + n / 7);
        const int last = (int)sizes.queries - 1;
        call c;
        char what[40];
        draw_factors(f);
        f[F_SCORE] = n % ATTN_SCORE_COUNT;
        f[F_SEQUENCES] = sequences[n / ATTN_SCORE_COUNT % 4];
        if (n % 3) f[F_PER_HEAD] = 0;
        const int *h = heads[f[F_HEADS]];
        const shape s = {1 + f[F_BATCH], h[0], h[1], sizes.queries, sizes.keys, sizes.vector, sizes.value};
        snprintf(what, sizeof what, "case %d", n);
        memset(&c, 0, sizeof c);
        build_shaped(&c.d, f, s);
        const attn_view *starts = c.d.query_starts.rank ? &c.d.query_starts : &c.d.key_starts;
        if (starts->rank) had[drawn.q_b != starts->size[0]][drawn.k_b != starts->size[0]]++;
        if (f[F_SCORE] == ATTN_SCORE_ADDITIVE && n % 2) {
            set_score(&c.d, ATTN_SCORE_ADDITIVE, sizes.value % 70 + 1);
            memset(&c.d.hidden_bias, 0, sizeof c.d.hidden_bias);
        }
        if (f[F_SCORE] == ATTN_SCORE_ADDITIVE && c.d.w_q.rank && n / 11 % 3 == 1)
            fill(&c.d.w_q, draw_normal, 0, 6); /* beyond what is clear, in some rows */
        if ((n % 5 == 3 || f[F_SCORE] == ATTN_SCORE_ADDITIVE) && c.d.k.rank)
            put_at(&c.d.k, 0, 0, test_int(0, (int)c.d.k.size[2] - 1), 0, NAN);
        if (n % 7 == 3) put_at(&c.d.v, 0, 0, test_int(0, (int)c.d.v.size[2] - 1), 0, n % 2 ? INFINITY : NAN);
        build_gradients(&c, f);
        attn_view above[3] = {c.g.d_out, c.g.d_weights, c.g.d_lse};
        for (int k = 0; k < 3; k++)
            if (!f[F_SEQUENCES] && above[k].rank && c.d.query_lengths.rank &&
                ref_int(&c.d.query_lengths, 0, 0) <= last) {
                attn_view row = attn_view_slice(attn_view_slice(above[k], 0, 0, 1), 2, last, 1);
                fill(&row, draw_normal, NAN, 0);
            }
        on_device();
        if (!run_desc(&c.d, what)) continue;
        if (f[F_STATS]) memset(&c.d.stats, 0, sizeof c.d.stats);
        check_backward(&c, what);
        test_release();
    }
    for_gradients = 0;
    print_worst("gradients by tiles", cases);
    printf("    stage 1: gradients with starts %d, of packed queries %d, keys %d, both %d\n", had[0][0], had[1][0],
           had[0][1], had[1][1]);
    CHECK(had[0][0] > 0 && had[1][0] > 0 && had[0][1] > 0 && had[1][1] > 0);
    CHECKF(tiled_calls[1] == cases, "stage 1 did %ld of %d calls", tiled_calls[1], cases);
}

/* Rows and keys in front of an entry have tiles of their own. With ATTN_EMPTY_UNIFORM these rows add to dv. The
   gradient of a given score beside an entry's keys is 0. */
static void tiles_in_front(void) {
    for (int n = 0; n < 8; n++) {
        attn_desc d = make_desc(2, 2, 1, 100, 140, 5, 6);
        if (n >= 6) set_score(&d, ATTN_SCORE_GIVEN, 0);
        d.query_starts = make_ints(ATTN_I64, 1, 2, 0, 0, 0, 70, 70);
        d.key_starts = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 10, 10);
        put_at(&d.query_starts, 0, 0, 0, n % 2, 3);
        put_at(&d.key_starts, 0, 0, 0, n % 2, 66);
        d.key_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 65, 65); /* a tile, and a key */
        d.bias = make_filled(LAYOUT_PACKED, 1, 4, 2, 2, n % 3 ? 1 : 100, n % 3 == 1 ? 1 : 140);
        d.empty = n % 2 ? ATTN_EMPTY_UNIFORM : ATTN_EMPTY_ZERO;
        on_device();
        call c = make_call(&d, FROM_OUT, ~0u);
        check_backward(&c, "rows in front");
        for (int64_t b = 0; b < 2; b++) check_batch_alone(&c, b);
        test_release();
    }
}

/* Packed rows and keys of no entry, which hold NaN here: they add to no gradient, and theirs are not written. */
static void put_nan(attn_view v, int64_t first, int64_t end) {
    v = attn_view_slice(v, 2, first, end - first);
    fill(&v, draw_normal, NAN, 0);
}
static void tiles_others(void) {
    for (int n = 0; n < 4; n++) {
        attn_desc d = make_desc(1, 2, 1, 90, 150, 9, 8);
        set_score(&d, n % 2 ? ATTN_SCORE_BILINEAR : ATTN_SCORE_ADDITIVE, n ? 9 : 96);
        d.query_starts = two_ints(5, 40), d.query_lengths = two_ints(20, 45);
        d.key_starts = two_ints(3, 70), d.key_lengths = two_ints(60, 66);
        put_nan(d.q, 0, 5), put_nan(d.q, 25, 40), put_nan(d.q, 85, 90);
        put_nan(d.k, 0, 3), put_nan(d.k, 63, 70), put_nan(d.k, 136, 150);
        on_device();
        call c = make_call(&d, FROM_OUT, 0);
        ask_grads(&c, ~0u, n < 2 ? 0 : ATTN_GRAD_ALL, LAYOUT_PACKED);
        check_backward(&c, "rows and keys of no entry");
        test_release();
    }
}

/* Padding after an entry's queries, not finite or large: the entry has the bits of a call of its own. */
static void tiles_padding(void) {
    for (int n = 0; n < 4; n++) {
        attn_desc d = make_desc(2, 2, 1, 60, 100, 9, 8);
        attn_view padding = attn_view_slice(d.q, 2, 40, 10);
        set_score(&d, ATTN_SCORE_ADDITIVE, 5);
        d.query_starts = two_ints(3, 0), d.query_lengths = two_ints(20, 30);
        if (n & 1) d.key_starts = two_ints(5, 0), d.key_lengths = two_ints(60, 66);
        if (n & 2) put_nan(d.q, 40, 50);
        else fill(&padding, draw_normal, 0, 100);
        on_device();
        call c = make_call(&d, FROM_OUT, 0);
        ask_grads(&c, ~0u, 0, LAYOUT_PACKED);
        check_backward(&c, "padding");
        for (int64_t b = 0; b < 2; b++) check_batch_alone(&c, b);
        test_release();
    }
}

/* ---- matrix products with enough elements for tiles: the bits of the CPU, from any strides, NaN and infinity too */
static attn_view draw_factor(int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
    const layout how = (layout)test_int(0, LAYOUT_COUNT - 1);
    attn_view v = test_int(0, 1) ? make_filled(how, 1, 4, batch, heads, rows, columns)
                                 : attn_view_swap(make_filled(how, 1, 4, batch, heads, columns, rows), 2, 3);
    return test_int(0, 3) ? v : narrow(&v, ATTN_BF16);
}
static void products(void) {
    static const int depths[] = {1, 31, 32, 33, 63, 64, 65, 96, 130, 200};
    for (int n = 0; n < 20; n++) {
        const int64_t rows = test_int(16, 140), columns = test_int(16, 140), depth = depths[n % 10];
        const int64_t batch = n % 3 ? 2 : 4, heads = n % 3 ? 8 : 4;
        attn_view a = draw_factor(n % 4 ? batch : 1, heads, rows, depth), b = draw_factor(batch, heads, depth, columns);
        attn_out results[2];
        if (n % 5 == 0 && a.type == ATTN_F32) put_at(&a, 0, 1, rows - 1, depth - 1, INFINITY);
        if (n % 7 == 0 && b.type == ATTN_F32) put_at(&b, batch - 1, 0, 0, columns - 1, NAN);
        for (int device = 0; device < 2; device++) {
            results[device] = make_out(n % 2 ? LAYOUT_MIXED : LAYOUT_GAPS, 4, batch, heads, rows, columns);
            poison(&results[device]);
            if (device) on_device();
            else fake_everything(0);
            CHECK_STATUS(attn_bmm(a, b, results[device], 0, 0), ATTN_OK);
            CHECK(gaps_untouched(&results[device]));
        }
        check_same(&results[0], &results[1], "a product");
        test_release();
    }
}
/* Of the largest number: nothing that is far away, and no NaN */
static double difference(const attn_out *got, const attn_out *want) {
    const attn_view x = attn_view_of(*got), y = attn_view_of(*want);
    int64_t index[4] = {0, 0, 0, 0};
    double largest = 0, apart = 0;
    do {
        int64_t at[4] = {0, 0, 0, 0};
        memcpy(at + 4 - x.rank, index, (size_t)x.rank * sizeof *at);
        const double a = ref_at(&x, at[0], at[1], at[2], at[3]), b = ref_at(&y, at[0], at[1], at[2], at[3]);
        largest = fmax(largest, fabs(b));
        apart = fabs(a - b) <= apart ? apart : fabs(a - b);
    } while (next_index(&x, index));
    return apart / largest;
}
/* The gradient of a projection's weights, where it is tiles: tokens beyond query_lengths, or in front of
   query_starts, may hold NaN, and have no part in it. Against the CPU's, whose tests compare it with float64. */
static void projections_of(int starts, int32_t type) {
    attn_mha_desc m;
    attn_mha_grad g;
    attn_desc options;
    attn_out results[2];
    const int64_t width = type == ATTN_F32 ? 270 : 272; /* of whole lines */
    memset(&m, 0, sizeof m);
    memset(&g, 0, sizeof g);
    memset(&options, 0, sizeof options);
    m.query = make_filled(LAYOUT_PACKED, 1, 3, 2, 9, width, 0);
    m.w_query = make_filled(LAYOUT_PACKED, 0.1, 2, 256, width, 0, 0);
    m.w_key = make_filled(LAYOUT_PACKED, 0.1, 2, 256, width, 0, 0);
    m.w_value = make_filled(LAYOUT_PACKED, 0.1, 2, 256, width, 0, 0);
    m.out = make_out_of(type, LAYOUT_PACKED, 3, 2, 9, 256, 0);
    m.heads = 4;
    m.attention = &options;
    options.query_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 7, 7);
    options.key_lengths = options.query_lengths;
    if (starts) options.query_starts = options.key_starts = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 1, 1);
    put_at(&m.query, 0, 0, 8, 3, NAN);
    put_at(&m.query, 0, 1, starts ? 0 : 7, width - 1, INFINITY);
    g.d_out = make_filled(LAYOUT_PACKED, 1, 3, 2, 9, 256, 0);
    attn_view *const views[5] = {&m.query, &m.w_query, &m.w_key, &m.w_value, &g.d_out};
    for (int i = 0; i < 5; i++) *views[i] = narrow(views[i], type);
    options.precision = type == ATTN_F32 ? ATTN_PRECISION_F32 : ATTN_PRECISION_FAST;
    for (int device = 0; device < 2; device++) {
        g.dw_query = results[device] = make_out(LAYOUT_PACKED, 2, 256, width, 0, 0);
        if (device) on_device();
        else fake_everything(0);
        CHECK_STATUS(attn_mha_backward(&m, &g, 0), ATTN_OK);
    }
    if (type != ATTN_F32) CHECK(difference(&results[1], &results[0]) <= ldexp(12, type == ATTN_BF16 ? -9 : -12));
    for (int64_t i = 0; type == ATTN_F32 && i < 256 * width; i++) {
        const float want = ((const float *)results[0].data)[i], got = ((const float *)results[1].data)[i];
        if (!CHECKF(fabs((double)(got - want)) <= 1e-5 * (1 + fabs((double)want)), "dw_query %ld: %g, on the CPU %g",
                    (long)i, (double)got, (double)want))
            break;
    }
    test_release();
}
static void projections(void) {
    const int arch = fake_arch();
    fake_set_arch(75); /* stage 1 has all of the call, as far as a device can be played */
    projections_of(0, ATTN_F32);
    projections_of(1, ATTN_F32);
    fake_set_arch(arch);
}
/* ---- with ATTN_PRECISION_FAST tensor cores make products: against float64, over all lines that are aligned to 16
   bytes (what has no such lines stays in stage 1). NaN lies behind the ends of lines. */
static attn_view take_lines(int32_t type, int64_t batch, int64_t heads, int64_t rows, int64_t columns, int turned) {
    attn_view v = {0, {batch, heads, turned ? columns : rows, turned ? rows : columns}, {0, 0, 0, 1}, type, 4};
    int64_t low = 0, high = -1;
    v.stride[2] = (v.size[3] + 7) / 8 * 8 + 8 * test_int(0, 1);
    v.stride[1] = v.stride[2] * v.size[2] + 8 * test_int(0, 1);
    v.stride[0] = v.stride[1] * heads;
    view_extent(&v, &low, &high);
    v.data = test_guarded((size_t)((high + 8) / 8 * 8) * type_bytes(type));
    return turned ? attn_view_swap(v, 2, 3) : v;
}
static attn_view draw_lines(int32_t type, int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
    attn_view v = take_lines(type, batch, heads, rows, columns, test_int(0, 1));
    fill(&v, draw_normal, 0, 1);
    return v;
}
static attn_view in_other_lines(const attn_view *v) {
    attn_view other = take_lines(v->type, v->size[0], v->size[1], v->size[2], v->size[3], v->stride[3] == 1);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!view_extent(v, &low, &high)) return other;
    do put(&other, offset_of(&other, index), ref_at(v, index[0], index[1], index[2], index[3]));
    while (next_index(v, index));
    return other;
}
static attn_out out_in_lines(int32_t type, const int64_t size[4]) { /* or in rows of any alignment */
    attn_view v = take_lines(type, size[0], size[1], size[2], size[3], 0);
    attn_out o = {(void *)(uintptr_t)v.data, {size[0], size[1], size[2], size[3]}, {0, 0, 0, 0}, type, 4};
    memcpy(o.stride, v.stride, sizeof o.stride);
    return test_int(0, 2) ? o : make_out_of(type, LAYOUT_MIXED, 4, size[0], size[1], size[2], size[3]);
}
static attn_out same_lines(const attn_out *o) {
    attn_out other = *o;
    attn_view v = attn_view_of(*o);
    int64_t low = 0, high = -1;
    view_extent(&v, &low, &high);
    other.data = test_guarded((size_t)((high + 8) / 8 * 8) * type_bytes(o->type));
    poison(&other);
    return other;
}

/* out = before + a b, summed over the axes of batch that out has not. Of n terms sums of 16 bits are within n units of
   f32: tensor cores may cut off where they do not round. Those of f32 are chains of 16, added one after the other. */
static void check_sums_of(attn_view a, attn_view b, const attn_out *out, const attn_view *before, const char *what) {
    const attn_view v = attn_view_of(*out);
    int64_t at[4] = {0, 0, 0, 0}, end[2], low, high, first[2];
    if (!view_extent(&v, &low, &high)) return;
    do {
        double sum = 0, terms = 0;
        int64_t count = 0, chains = 0;
        if (before) sum = ref_at(before, at[0], at[1], at[2], at[3]), terms = fabs(sum);
        for (int i = 0; i < 2; i++) {
            const int64_t batch = a.size[i] == 1 ? b.size[i] : a.size[i];
            first[i] = v.size[i] == 1 ? 0 : at[i];
            end[i] = v.size[i] == 1 ? batch : at[i] + 1;
        }
        for (int64_t x = first[0]; x < end[0]; x++)
            for (int64_t y = first[1]; y < end[1]; y++, chains += (a.size[3] + 15) / 16)
                for (int64_t k = 0; k < a.size[3]; k++, count++) {
                    const double term = ref_at(&a, x, y, at[2], k) * ref_at(&b, x, y, k, at[3]);
                    sum += term;
                    terms += fabs(term);
                }
        const float got = (float)ref_at(&v, at[0], at[1], at[2], at[3]);
        const double units = (double)(a.type == ATTN_F32 ? 21 + chains : 2 * (count + 2));
        if (!CHECKF(close_enough(got, sum, units * ldexp(terms, -24), out->type),
                    "%s: [%ld,%ld,%ld,%ld] is %g, want %g", what, (long)at[0], (long)at[1], (long)at[2], (long)at[3],
                    (double)got, sum))
            return;
    } while (next_index(&v, at));
}

enum { FEW_ROWS = 96 * 1024, LARGE_TILES = 48 * 1024, SMALL_TILES = 32 * 1024 }; /* bytes of shared memory */
static size_t bmm_in(attn_view a, attn_view b, attn_out out, int32_t precision, int processors) {
    attn_desc o;
    memset(&o, 0, sizeof o);
    o.precision = precision;
    poison(&out);
    on_device();
    fake_set_processors(processors);
    fake_forget();
    CHECK_STATUS(attn_bmm(a, b, out, &o, 0), ATTN_OK);
    CHECK(gaps_untouched(&out));
    return fake_counted().shared;
}
static void fast_products(void) {
    static const int sizes[] = {1, 5, 8, 31, 33, 63, 64, 65, 72, 127, 128, 129, 136};
    static const int depths[] = {0, 1, 8, 15, 31, 32, 33, 64, 65, 97, 130, 200, 900};
    const int arch = fake_arch();
    long few = 0, large = 0;
    if (!play(80)) return;
    for (int n = 0; n < cases_of(160); n++) {
        const int32_t type = n % 4 == 1 ? ATTN_F32 : n % 2 ? ATTN_BF16 : ATTN_F16;
        /* single rows of entries that share b become one matrix, which need not lie in lines */
        const int64_t rows = n % 13 == 3 ? 600 : sizes[test_int(n % 3 == 0 ? 7 : n % 4 == 0, 12)];
        const int64_t columns = sizes[test_int(n % 3 ? 0 : 7, 12)];
        const int64_t depth = depths[n % 13], batch = test_int(1, 2), heads = test_int(1, 2);
        const int64_t size[4] = {batch, heads, rows, columns};
        attn_view a = draw_lines(type, n % 5 ? batch : 1, heads, rows, depth);
        attn_view b = draw_lines(type, batch, n % 4 ? heads : 1, depth, columns);
        attn_out first = out_in_lines(n % 7 ? draw_type() : ATTN_F32, size), other = same_lines(&first);
        if (n % 7 == 0 && depth) put_at(&a, 0, heads - 1, rows - 1, depth - 1, INFINITY);
        if (n % 9 == 0 && depth) put_at(&b, batch - 1, 0, 0, columns - 1, NAN);
        if (n % 12 == 1 && depth) { /* f32 that has no parts */
            put_at(&a, 0, 0, 0, 0, 3.4028e38);
            for (int64_t i = 0; i < batch * columns; i++) put_at(&b, i / columns, 0, 0, i % columns, 0.25);
        }
        const size_t shared = bmm_in(a, b, first, ATTN_PRECISION_FAST, 1);
        const size_t small = shared == FEW_ROWS ? FEW_ROWS : SMALL_TILES;
        CHECKF(shared == small || (shared == LARGE_TILES && type != ATTN_F32), "not by tensor cores: %ld bytes",
               (long)shared);
        if (b.size[1] == heads) /* else rows of all heads may be those of one matrix */
            CHECK((shared == FEW_ROWS) == (rows <= 64 || columns <= 64));
        few += small == FEW_ROWS, large += shared == LARGE_TILES;
        check_sums_of(a, b, &first, 0, "a product by tensor cores");
        CHECK(bmm_in(a, b, other, ATTN_PRECISION_FAST, 1000) == small);
        check_same(&first, &other, "a product in small tiles");
        CHECK(bmm_in(in_other_lines(&a), in_other_lines(&b), other, ATTN_PRECISION_FAST, 1) >= SMALL_TILES);
        check_same(&first, &other, "a product of other lines");
        test_release();
    }
    CHECKF(large > cases_of(160) / 12, "%ld products in large tiles", large);
    CHECKF(few > cases_of(160) / 5, "%ld products of few rows or columns", few);
    play_as_before(arch);
}
/* What tensor cores do not take, and every product without FAST: the bits of the CPU */
enum { OF_SLOW_FLOATS, OF_TWO_TYPES, NOT_ALIGNED, OLDER, WITHOUT_FAST, WAYS_LEFT };
static void fast_products_left(void) {
    const int arch = fake_arch();
    if (!play(80)) return;
    for (int n = 0; n < 2 * WAYS_LEFT; n++) {
        const int way = n / 2;
        const int64_t least = way == OF_SLOW_FLOATS ? 65 : 60, depth = test_int(30, 80);
        const int64_t size[4] = {2, 2, test_int(least, 70), test_int(least, 70)};
        const int32_t half = n % 2 ? ATTN_BF16 : ATTN_F16, type = way == OF_SLOW_FLOATS ? ATTN_F32 : half;
        attn_view a = draw_lines(type, 2, 2, size[2] + 1, depth + 1);
        attn_view b = draw_lines(way == OF_TWO_TYPES ? ATTN_F16 + ATTN_BF16 - type : type, 2, 2, depth, size[3]);
        attn_out out = out_in_lines(draw_type(), size), want = same_lines(&out);
        a = attn_view_slice(attn_view_slice(a, 2, way == NOT_ALIGNED, size[2]), 3, way == NOT_ALIGNED, depth);
        fake_everything(0);
        CHECK_STATUS(attn_bmm(a, b, want, 0, 0), ATTN_OK);
        if (way == OLDER || way == OF_SLOW_FLOATS) fake_set_arch(way == OLDER ? 75 : n % 2 ? 120 : 86);
        const size_t shared = bmm_in(a, b, out, way == WITHOUT_FAST ? ATTN_PRECISION_F32 : ATTN_PRECISION_FAST, 4);
        fake_set_arch(80);
        CHECKF(shared < SMALL_TILES, "way %d: by tensor cores", way);
        check_same(&out, &want, "a product that stays in stage 1");
        test_release();
    }
    play_as_before(arch);
}

static void draw_before(const attn_out *o, int adds, attn_view *before) {
    const attn_view v = attn_view_of(*o);
    fill(&v, draw_normal, 0, adds ? 1 : 0);
    if (adds) *before = copy_view(&v, LAYOUT_PACKED);
    else poison(o);
}
static void fast_product_gradients(void) {
    static const int sizes[] = {8, 33, 64, 65, 100};
    const int arch = fake_arch();
    if (!play(80)) return;
    for (int n = 0; n < cases_of(45); n++) {
        const int32_t type = n % 3 == 2 ? ATTN_F32 : n % 3 ? ATTN_BF16 : ATTN_F16;
        const int64_t rows = sizes[n % 5], depth = sizes[test_int(0, 4)], columns = sizes[test_int(0, 4)];
        const int64_t batch = test_int(1, 3), heads = test_int(1, 2), of_a[4] = {n % 3 ? batch : 1, heads, rows, depth};
        const int64_t of_b[4] = {batch, n % 4 ? heads : 1, depth, columns};
        const uint32_t accumulate = (uint32_t)n % 4;
        attn_view a = draw_lines(type, of_a[0], of_a[1], rows, depth), before[2];
        attn_view b = draw_lines(type, of_b[0], of_b[1], depth, columns);
        attn_view d_out = draw_lines(type, batch, heads, rows, columns);
        attn_out da = out_in_lines(draw_type(), of_a), db = out_in_lines(draw_type(), of_b);
        attn_desc o;
        memset(&o, 0, sizeof o);
        o.precision = ATTN_PRECISION_FAST;
        poison(&da), draw_before(&da, accumulate & 1, &before[0]);
        poison(&db), draw_before(&db, accumulate & 2, &before[1]);
        on_device();
        fake_forget();
        CHECK_STATUS(attn_bmm_backward(a, b, d_out, da, db, accumulate, &o, 0), ATTN_OK);
        CHECK(fake_counted().shared >= SMALL_TILES);
        CHECK(gaps_untouched(&da) && gaps_untouched(&db));
        check_sums_of(d_out, attn_view_swap(b, 2, 3), &da, accumulate & 1 ? &before[0] : 0, "da by tensor cores");
        check_sums_of(attn_view_swap(a, 2, 3), d_out, &db, accumulate & 2 ? &before[1] : 0, "db by tensor cores");
        test_release();
    }
    play_as_before(arch);
}

/* ---- attn_mha with it: of 16 bits between the layers, too */
enum { ABSENT = -1 };
static attn_view take_typed(int32_t type, double deviation, int rank, int64_t n0, int64_t n1, int64_t n2) {
    attn_view v = {0};
    if (type == ABSENT) return v;
    v = make_filled(LAYOUT_PACKED, deviation, rank, n0, n1, n2, 0);
    return type == ATTN_F32 ? v : retyped(&v, type, LAYOUT_PACKED);
}

enum { MHA_BATCH = 2, MHA_ROWS = 70, MHA_KEYS = 45, MHA_WIDTH = 72, MHA_HEADS = 4, MHA_HEADS_KV = 2, MHA_SIZE = 24 };
/* types: of query and key, of each layer's weights, of d_out; ABSENT: there is no key, or no layer
   behind attention */
enum { OF_QUERY, OF_KEY, OF_WEIGHTS, OF_D_OUT = OF_WEIGHTS + 4, MHA_TYPES };
static void make_mha(attn_mha_desc *m, attn_mha_grad *g, const int32_t *types, int biases) {
    const int32_t *w = types + OF_WEIGHTS, type = types[OF_QUERY];
    const int64_t of_q = MHA_HEADS * MHA_SIZE, of_k = MHA_HEADS_KV * MHA_SIZE, of_out = w[3] == ABSENT ? of_q : 64;
    const int64_t key = types[OF_KEY] == ABSENT ? MHA_WIDTH : 40;
    memset(m, 0, sizeof *m);
    memset(g, 0, sizeof *g);
    m->query = take_typed(type, 1, 3, MHA_BATCH, MHA_ROWS, MHA_WIDTH);
    m->key = take_typed(types[OF_KEY], 1, 3, MHA_BATCH, MHA_KEYS, key);
    m->w_query = take_typed(w[0], 0.2, 2, of_q, MHA_WIDTH, 0);
    m->w_key = take_typed(w[1], 0.2, 2, of_k, key, 0);
    m->w_value = take_typed(w[2], 0.2, 2, of_k, key, 0);
    m->w_result = take_typed(w[3], 0.2, 2, of_out, of_q, 0);
    if (biases) m->b_query = take_typed(type, 1, 1, of_q, 0, 0);
    if (biases) m->b_value = take_typed(ATTN_F32, 1, 1, of_k, 0, 0);
    if (biases) m->b_result = take_typed(type, 1, 1, of_out, 0, 0);
    m->heads = MHA_HEADS;
    m->heads_kv = MHA_HEADS_KV;
    g->d_out = take_typed(types[OF_D_OUT], 1, 3, MHA_BATCH, MHA_ROWS, of_out);
}
/* Fresh results: out, dquery, dkey, of each weight, of each bias; on the device with FAST, on the CPU without */
enum { MHA_OUTS = 10 };
static void run_layers(attn_mha_desc *m, attn_mha_grad *g, int device, int32_t type, int32_t of_out, attn_out *outs) {
    const attn_view *of[MHA_OUTS] = {0,           &m->query,    &m->key,     &m->w_query, &m->w_key,
                                     &m->w_value, &m->w_result, &m->b_query, &m->b_value, &m->b_result};
    attn_out *grads[MHA_OUTS] = {&m->out,      &g->dquery,    &g->dkey,     &g->dw_query, &g->dw_key,
                                 &g->dw_value, &g->dw_result, &g->db_query, &g->db_value, &g->db_result};
    attn_desc options;
    memset(&options, 0, sizeof options);
    options.precision = device ? ATTN_PRECISION_FAST : ATTN_PRECISION_F32;
    options.causal = 1;
    options.align = ATTN_ALIGN_TOP_LEFT;
    m->attention = &options;
    for (int i = 0; i < MHA_OUTS; i++) {
        memset(&outs[i], 0, sizeof outs[i]);
        if (i && !of[i]->rank) continue;
        outs[i] = i ? make_out_of(i < 3 ? type : ATTN_F32, LAYOUT_PACKED, of[i]->rank, of[i]->size[0], of[i]->size[1],
                                  of[i]->size[2], 0)
                    : make_out_of(of_out, LAYOUT_PACKED, 3, MHA_BATCH, MHA_ROWS, g->d_out.size[2], 0);
        *grads[i] = outs[i];
    }
    if (device) on_device();
    else fake_everything(0);
    CHECK_STATUS(attn_mha(m, 0), ATTN_OK);
    CHECK_STATUS(attn_mha_backward(m, g, 0), ATTN_OK);
    m->attention = 0;
}
static attn_out by_bmm(attn_view x, attn_view w, int32_t type) { /* x w^T */
    attn_out y = make_out_of(type, LAYOUT_PACKED, 3, x.size[0], x.size[1], w.size[0], 0);
    bmm_in(x, attn_view_swap(w, 0, 1), y, ATTN_PRECISION_FAST, 4);
    return y;
}
static attn_out as_heads(attn_out y, int64_t heads) {
    attn_out o = {y.data,
                  {y.size[0], heads, y.size[1], y.size[2] / heads},
                  {y.stride[0], y.size[2] / heads, y.stride[1], 1},
                  y.type,
                  4};
    return o;
}
static void bmm_gradients(attn_view x, attn_view w, attn_view dy, attn_out dx, attn_out dw) {
    const attn_out none = {0};
    attn_desc o;
    memset(&o, 0, sizeof o);
    o.precision = ATTN_PRECISION_FAST;
    on_device();
    CHECK_STATUS(attn_bmm_backward(x, attn_view_swap(w, 0, 1), dy, dx, none, 0, &o, 0), ATTN_OK);
    x = attn_view_swap(x, 1, 2), dy = attn_view_swap(dy, 1, 2); /* y^T = w x^T */
    CHECK_STATUS(attn_bmm_backward(w, x, dy, dw, none, 0, &o, 0), ATTN_OK);
}
/* Without biases, with a key: what attn_bmm and attention make of arrays of this type, one after the other, bit for
   bit; attn_mha's out, or gradients */
static void check_mha_pieces(const attn_mha_desc *m, const attn_mha_grad *g, int32_t type, int gradients,
                             const attn_out *outs) {
    attn_out y[3] = {by_bmm(m->query, m->w_query, type), by_bmm(m->key, m->w_key, type),
                     by_bmm(m->key, m->w_value, type)};
    attn_out own[MHA_OUTS] = {{0}}, dy[3], heads;
    attn_desc d;
    attn_grad inner;
    memset(&d, 0, sizeof d);
    memset(&inner, 0, sizeof inner);
    for (int i = 0; i < MHA_OUTS; i++)
        if (outs[i].rank) own[i] = same_lines(&outs[i]);
    heads = m->w_result.rank || gradients
                ? make_out_of(type, LAYOUT_PACKED, 3, MHA_BATCH, MHA_ROWS, MHA_HEADS * MHA_SIZE, 0)
                : own[0];
    d.q = attn_view_of(as_heads(y[0], MHA_HEADS));
    d.k = attn_view_of(as_heads(y[1], MHA_HEADS_KV));
    d.v = attn_view_of(as_heads(y[2], MHA_HEADS_KV));
    d.out = as_heads(heads, MHA_HEADS);
    if (gradients) d.stats = make_out(LAYOUT_PACKED, 4, MHA_BATCH, MHA_HEADS, MHA_ROWS, 2);
    d.causal = 1;
    d.align = ATTN_ALIGN_TOP_LEFT;
    on_device();
    CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
    if (!gradients) {
        if (m->w_result.rank)
            bmm_in(attn_view_of(heads), attn_view_swap(m->w_result, 0, 1), own[0], ATTN_PRECISION_FAST, 4);
        check_same(&own[0], &outs[0], "out of layers and pieces");
        return;
    }
    for (int i = 0; i < 3; i++) dy[i] = same_lines(&y[i]);
    if (m->w_result.rank) {
        const attn_out d_heads = same_lines(&heads);
        bmm_gradients(attn_view_of(heads), m->w_result, g->d_out, d_heads, own[6]);
        check_same(&own[6], &outs[6], "dw_result of layers and pieces");
        inner.d_out = attn_view_of(as_heads(d_heads, MHA_HEADS));
    } else {
        inner.d_out =
            attn_view_typed((attn_type)g->d_out.type, g->d_out.data, 4, MHA_BATCH, MHA_ROWS, MHA_HEADS, MHA_SIZE);
        inner.d_out = attn_view_swap(inner.d_out, 1, 2);
    }
    inner.dq = as_heads(dy[0], MHA_HEADS);
    inner.dk = as_heads(dy[1], MHA_HEADS_KV);
    inner.dv = as_heads(dy[2], MHA_HEADS_KV);
    on_device();
    CHECK_STATUS(attn_backward(&d, &inner, 0), ATTN_OK);
    bmm_gradients(m->query, m->w_query, attn_view_of(dy[0]), own[1], own[3]);
    check_same(&own[1], &outs[1], "dquery of layers and pieces");
    check_same(&own[3], &outs[3], "dw_query of layers and pieces");
}
/* On the device against the CPU in f32, whose tests compare it with float64. type, of_out: of results; far: how far
   out, and gradients, may be apart, of the largest number */
static void check_layers(attn_mha_desc *m, attn_mha_grad *g, int32_t type, int32_t of_out, const double *far, int n,
                         attn_out *got) {
    attn_out want[MHA_OUTS];
    run_layers(m, g, 0, ATTN_F32, ATTN_F32, want);
    run_layers(m, g, 1, type, of_out, got);
    for (int i = 0; i < MHA_OUTS; i++) {
        if (!got[i].rank) continue;
        const double apart = difference(&got[i], &want[i]), bound = far[i > 0];
        CHECKF(apart <= bound, "result %d of case %d differs by %g, bound %g", i, n, apart, bound);
    }
}
/* Of layers with 16 bits between them, and with floats: products of up to 96 terms are within 96 units of 2^-23 */
static double bound_of_layers(int32_t type) { return ldexp(12, type == ATTN_BF16 ? -9 : type == ATTN_F16 ? -12 : -19); }
static void fast_product_layers(void) {
    const int arch = fake_arch();
    if (!play(80)) return;
    projections_of(0, ATTN_F16);
    projections_of(0, ATTN_BF16);
    for (int n = 0; n < 8; n++) {
        const int32_t type = n % 2 ? ATTN_BF16 : ATTN_F16, key = n / 2 % 2 ? ABSENT : type;
        const int32_t types[MHA_TYPES] = {type, key, type, type, type, type, type};
        const int biases = n / 4;
        attn_mha_desc m;
        attn_mha_grad g;
        attn_out got[MHA_OUTS];
        if (biases) fake_set_arch(arch);
        make_mha(&m, &g, types, biases);
        const int32_t of_results = biases ? ATTN_F32 : type;
        const double far[2] = {bound_of_layers(type), bound_of_layers(type)};
        check_layers(&m, &g, of_results, of_results, far, n, got);
        for (int i = 0; m.key.rank && !biases && i < 2; i++) check_mha_pieces(&m, &g, type, i, got);
        test_release();
    }
    play_as_before(arch);
}
/* Where all weights and what they multiply are of one type of 16 bits (T), and without a layer behind attention its
   out, or d_out, too, that is what lies between; where one is of another (O) or f32 (F), floats do. */
static void fast_product_mixed_layers(void) {
    enum { T, O, F, NONE };
    static const struct {
        int types[MHA_TYPES], of_out, of_forward, of_backward;
    } cases[] = {
        {{T, T, T, T, O, T, T}, F, F, F},    {{T, T, T, T, F, T, T}, F, F, F},    {{T, T, F, T, T, T, T}, F, F, F},
        {{T, T, T, T, T, O, T}, F, F, F},    {{T, O, T, O, O, T, T}, F, F, F},    {{F, T, T, T, T, T, T}, F, F, F},
        {{T, T, T, T, T, T, F}, F, T, T},    {{T, T, T, T, T, NONE, T}, T, T, T}, {{T, T, T, T, T, NONE, F}, T, T, F},
        {{T, T, T, T, T, NONE, O}, T, T, F}, {{T, T, T, T, T, NONE, T}, F, F, F}};
    const int arch = fake_arch();
    if (!play(80)) return;
    for (int n = 0; n < (int)(sizeof cases / sizeof *cases); n++) {
        const int32_t type = n % 2 ? ATTN_BF16 : ATTN_F16;
        const int32_t of[4] = {type, ATTN_F16 + ATTN_BF16 - type, ATTN_F32, ABSENT};
        int32_t types[MHA_TYPES];
        attn_mha_desc m;
        attn_mha_grad g;
        attn_out got[MHA_OUTS];
        for (int i = 0; i < MHA_TYPES; i++) types[i] = of[cases[n].types[i]];
        make_mha(&m, &g, types, 0);
        const int32_t of_out = of[cases[n].of_out], of_backward = of[cases[n].of_backward];
        const int32_t of_forward = of[cases[n].of_forward];
        const double far[2] = {bound_of_layers(of_forward), bound_of_layers(of_backward)};
        check_layers(&m, &g, ATTN_F32, of_out, far, n, got);
        check_mha_pieces(&m, &g, of_forward, 0, got);
        check_mha_pieces(&m, &g, of_backward, 1, got);
        test_release();
    }
    play_as_before(arch);
}

/* What attn_mha leaves for its gradients lies on the host alone. */
static void saved_refused(void) {
    attn_mha_desc m;
    attn_mha_grad g;
    attn_error err;
    uint64_t saved[256] = {0};
    size_t bytes;
    memset(&m, 0, sizeof m);
    memset(&g, 0, sizeof g);
    m.query = make_filled(LAYOUT_PACKED, 1, 3, 2, 5, 4, 0);
    m.w_query = m.w_key = m.w_value = make_filled(LAYOUT_PACKED, 1, 2, 4, 4, 0, 0);
    m.heads = 2;
    m.out = make_out(LAYOUT_PACKED, 3, 2, 5, 4, 0);
    m.saved = saved, m.saved_bytes = sizeof saved;
    g.d_out = make_filled(LAYOUT_PACKED, 1, 3, 2, 5, 4, 0);
    g.dw_query = make_out(LAYOUT_PACKED, 2, 4, 4, 0, 0);
    for (int device = 0; device < 2; device++) {
        if (device) on_device();
        else fake_everything(0);
        const attn_status st = attn_mha(&m, &err), size = attn_mha_saved_size(&m, &bytes, 0);
        if (!device) {
            CHECK(st == ATTN_OK && size == ATTN_OK && bytes <= sizeof saved);
            CHECK_STATUS(attn_mha_backward(&m, &g, &err), ATTN_OK);
            continue;
        }
        refused(st, ATTN_ERR_PLACE, &err, "saved", "must be NULL on a device");
        refused(attn_mha_backward(&m, &g, &err), ATTN_ERR_PLACE, &err, "saved", "must be NULL on a device");
        CHECK(size == ATTN_ERR_PLACE);
    }
    test_release();
}

/* ---- what lies around attention where a cache is on the device: the bits of the CPU */
static const int32_t cache_types[4] = {ATTN_F16, ATTN_BF16, ATTN_F32, ATTN_I8};
static int32_t float_type(void) { return cache_types[test_int(0, 2)]; }
/* Mostly layouts whose rows whole pieces can be read of */
static layout cache_layout(void) {
    static const layout some[4] = {LAYOUT_PACKED, LAYOUT_BSHD, LAYOUT_PACKED, LAYOUT_MIXED};
    return some[test_int(0, 3)];
}
static int64_t cache_columns(int n) {
    static const int64_t some[] = {128, 64, 80, 8, 1, 33, 256, 264, 0, 100, 1032};
    return some[n % 11];
}
/* Numbers, and some that are odd */
static attn_view cache_numbers(int32_t type, layout how, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    static const double odd[] = {NAN,
                                 INFINITY,
                                 -INFINITY,
                                 -0.0,
                                 1e-40,
                                 65519,
                                 1e38,
                                 127.5, /* and what two roundings round wrongly */
                                 1 + 0x1p-11 + 0x1p-40,
                                 1 + 0x1p-8 + 0x1p-40};
    attn_view v = make_view(type, how, 4, n0, n1, n2, n3);
    fill(&v, draw_normal, 0, 3);
    for (int n = 0; n0 * n1 * n2 * n3 > 0 && n < 4; n++)
        if (test_int(0, 1))
            put_at(&v, test_int(0, (int)n0 - 1), test_int(0, (int)n1 - 1), test_int(0, (int)n2 - 1),
                   test_int(0, (int)n3 - 1), odd[test_int(0, 9)]);
    if (n0 * n1 * n2 * n3 > 0 && type != ATTN_F64 && test_int(0, 1)) { /* a NaN that is not the one */
        const int64_t last[4] = {n0 - 1, n1 - 1, n2 - 1, n3 - 1}, at = offset_of(&v, last);
        if (type == ATTN_F32) ((uint32_t *)(uintptr_t)v.data)[at] = 0xff812345u;
        else ((uint16_t *)(uintptr_t)v.data)[at] = type == ATTN_F16 ? 0xfc01 : 0xff81;
    }
    return v;
}
/* Two outputs of the same strides: one for the CPU, one for the device */
static void make_twins(attn_out *twins, int32_t type, layout how, int rank, int64_t n0, int64_t n1, int64_t n2,
                       int64_t n3) {
    twins[0] = twins[1] = make_out_of(type, how, rank, n0, n1, n2, n3);
    attn_view v = attn_view_of(twins[1]);
    take_memory(&v);
    twins[1].data = (void *)(uintptr_t)v.data;
    poison(&twins[0]), poison(&twins[1]);
}
/* The same bytes, those between elements, too */
static int twins_agree(const attn_out *twins) {
    const attn_view v = attn_view_of(twins[0]);
    int64_t low, high;
    return !twins->rank || !view_extent(&v, &low, &high) ||
           !memcmp(twins[0].data, twins[1].data, (size_t)(high + 1) * type_bytes(v.type));
}
static void to_place(int device) {
    if (device) on_device();
    else fake_everything(0);
    fake_forget();
}

typedef struct appending {
    attn_view fresh, lengths;
    attn_desc options;
    attn_out cache[2], scale[2]; /* [1]: on the device */
    int for_v;
} appending;
/* wild: what integers hold is anything */
static void draw_appending(appending *a, int n, int wild) {
    const int packed_from = n % 3 == 0, paged = n % 2, packed_to = !paged && n % 4 == 2, codes = test_int(0, 1);
    const int64_t b = n % 5 == 0 ? test_int(30, 70) : test_int(0, 4), h = test_int(0, 3), most = test_int(0, 20);
    const int64_t page = test_int(1, 9), pages = test_int(1, 6), pool = b * pages + 1, d = cache_columns(n);
    const int64_t room = paged ? page * pages : most + test_int(0, 9);
    const int64_t batch = paged ? pool : packed_to ? 1 : b, rows = paged ? page : packed_to ? room * b : room;
    const layout how = cache_layout();
    memset(a, 0, sizeof *a);
    a->fresh = cache_numbers(float_type(), n % 7 ? cache_layout() : LAYOUT_BROADCAST, packed_from ? 1 : b, h,
                             packed_from ? most * b : most, d);
    a->lengths = make_ints(draw_int_type(), 1, b, 0, 0, 0, -50, 50);
    a->options.query_lengths = make_ints(draw_int_type(), 1, b, 0, 0, 0, -50, 50);
    if (packed_from || n % 7 == 1) a->options.query_starts = make_ints(draw_int_type(), 1, b, 0, 0, 0, -50, 50);
    if (packed_to || n % 7 == 2) a->options.key_starts = make_ints(draw_int_type(), 1, b, 0, 0, 0, -50, 50);
    if (paged) a->options.page_table = make_ints(draw_int_type(), 2, b, pages, 0, 0, -9, 9);
    for (int64_t e = 0; !wild && e < b; e++) {
        const int64_t count = test_int(0, (int)(most < room ? most : room)), left = test_int(0, (int)(room - count));
        put_at(&a->options.query_lengths, 0, 0, 0, e, (double)count);
        if (a->options.query_starts.rank)
            put_at(&a->options.query_starts, 0, 0, 0, e, (double)(packed_from ? e * most : most - count));
        if (a->options.key_starts.rank)
            put_at(&a->options.key_starts, 0, 0, 0, e, (double)(packed_to ? e * room : left / 2));
        put_at(&a->lengths, 0, 0, 0, e, (double)(a->options.key_starts.rank ? left - left / 2 : left));
        for (int64_t j = 0; paged && j < pages; j++)
            put_at(&a->options.page_table, 0, 0, e, j, (double)(e * pages + pages - j));
    }
    if (!packed_from && !packed_to && !wild && n % 11 == 3) { /* all rows, and the same of all entries */
        a->options.query_lengths = a->options.query_starts = a->options.key_starts = (attn_view){0};
        for (int64_t e = 0; e < b; e++) put_at(&a->lengths, 0, 0, 0, e, (double)(room < most ? 0 : room - most));
        if (room < most) a->fresh.size[2] = 0;
    }
    make_twins(a->cache, codes ? ATTN_I8 : float_type(), how, 4, batch, h, rows, d);
    a->for_v = n % 2;
    if (codes)
        make_twins(a->scale, test_int(0, 1) ? ATTN_F32 : ATTN_F16, cache_layout(), 4, batch, h, rows,
                   test_int(0, 1) ? 1 : (d + 31) / 32);
    a->options.stream = fake_stream();
}
static attn_status append_to(appending *a, int device, attn_error *err) {
    if (a->scale[0].rank) *(a->for_v ? &a->options.v_scale : &a->options.k_scale) = attn_view_of(a->scale[device]);
    return attn_append(a->fresh, a->cache[device], a->lengths, &a->options, err);
}
static void cache_appends(void) {
    const int cases = cases_of(900);
    long launched = 0;
    for (int n = 0; n < cases; n++) {
        appending a;
        draw_appending(&a, n, 0);
        for (int device = 0; device < 2; device++) {
            to_place(device);
            if (!CHECK_STATUS(append_to(&a, device, 0), ATTN_OK)) printf("    case %d\n", n);
            CHECK(fake_counted().launches <= device);
            if (fake_counted().launches) launched++, CHECK(fake_counted().stream == fake_stream());
        }
        CHECKF(twins_agree(a.cache) && twins_agree(a.scale), "case %d: types %d %d, %s", n, (int)a.fresh.type,
               (int)a.cache[0].type, fake_failure());
        test_release();
    }
    CHECKF(launched > cases / 2, "%ld of %d calls ran on the device", launched, cases);
}
static void cache_conversions(void) {
    for (int n = 0; n < cases_of(400); n++) {
        const int64_t b = test_int(0, 2), h = test_int(1, 3), s = test_int(0, 40), d = cache_columns(n);
        const int32_t from_type = n % 5 ? float_type() : ATTN_F64;
        attn_view x = cache_numbers(from_type, cache_layout(), b, h, s, d);
        attn_out to[2], codes[2], scale[2];
        make_twins(to, n % 7 ? float_type() : ATTN_F64, cache_layout(), 4, b, h, s, d);
        make_twins(codes, ATTN_I8, cache_layout(), 4, b, h, s, d);
        make_twins(scale, n % 3 ? ATTN_F32 : ATTN_F16, cache_layout(), 4, b, h, s, n % 2 ? 1 : (d + 31) / 32);
        for (int device = 0; device < 2; device++) {
            to_place(device);
            CHECK_STATUS(attn_convert(x, to[device], 0), ATTN_OK);
            if (n % 5) CHECK_STATUS(attn_quantize(x, codes[device], scale[device], 0), ATTN_OK);
        }
        CHECKF(twins_agree(to), "case %d: types %d %d, %s", n, (int)from_type, (int)to[0].type, fake_failure());
        CHECKF(twins_agree(codes) && twins_agree(scale), "case %d: codes, %s", n, fake_failure());
        if (d % 32 == 0) { /* q8_0 */
            const int64_t bytes = b * h * s * d / 32 * 34;
            unsigned char *blocks = (unsigned char *)test_guarded((size_t)bytes);
            for (int64_t i = 0; i < bytes; i++) blocks[i] = (unsigned char)test_int(0, 255);
            make_twins(scale, n % 3 ? ATTN_F32 : ATTN_F16, cache_layout(), 4, b, h, s, d / 32);
            for (int device = 0; device < 2; device++) {
                to_place(device);
                CHECK_STATUS(attn_unpack_q8_0(blocks, codes[device], scale[device], 0), ATTN_OK);
            }
            CHECKF(twins_agree(codes) && twins_agree(scale), "case %d: blocks, %s", n, fake_failure());
        }
        test_release();
    }
}
/* A long row is cut among warps. */
static void cache_long_rows(void) {
    for (int n = 0; n < 9; n++) {
        attn_view x = cache_numbers(cache_types[n % 3], LAYOUT_PACKED, 1, 1, 1 + n / 3, 5000 + n);
        attn_out to[2];
        make_twins(to, cache_types[n / 3], LAYOUT_PACKED, 4, 1, 1, 1 + n / 3, 5000 + n);
        for (int device = 0; device < 2; device++) {
            to_place(device);
            CHECK_STATUS(attn_convert(x, to[device], 0), ATTN_OK);
        }
        CHECKF(twins_agree(to), "case %d", n);
        test_release();
    }
}
/* Scales from the smallest numbers that there are to the largest */
static void cache_scales(void) {
    for (int n = 0; n < 60; n++) {
        attn_view x = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, 5, 64);
        attn_out codes[2], scale[2];
        for (int64_t i = 0; i < 5; i++)
            for (int64_t j = 0; j < 64; j++)
                put_at(&x, 0, 0, i, j, ldexp((double)test_int(-1000, 1000), n < 30 ? n - 150 : n + 58));
        make_twins(codes, ATTN_I8, LAYOUT_PACKED, 4, 1, 1, 5, 64);
        make_twins(scale, ATTN_F32, LAYOUT_PACKED, 4, 1, 1, 5, n % 2 ? 1 : 2);
        for (int device = 0; device < 2; device++) {
            to_place(device);
            CHECK_STATUS(attn_quantize(x, codes[device], scale[device], 0), ATTN_OK);
        }
        CHECKF(twins_agree(codes) && twins_agree(scale), "case %d: %s", n, fake_failure());
        test_release();
    }
}
static void cache_rotations(void) {
    for (int n = 0; n < cases_of(600); n++) {
        const int64_t b = test_int(1, 5), h = test_int(1, 9), s = test_int(1, 12), d = cache_columns(n);
        const int64_t half = n % 3 ? d / 2 : test_int(0, (int)d / 2), table = s + test_int(1, 9);
        const layout how = cache_layout();
        attn_view cosines = make_filled(n % 5 ? LAYOUT_PACKED : LAYOUT_MIXED, 1, 2, table, half, 0, 0);
        attn_view sines = make_filled(n % 5 ? LAYOUT_PACKED : LAYOUT_MIXED, 1, 2, table, half, 0, 0);
        attn_view positions = {0}, x = cache_numbers(float_type(), n % 4 ? how : cache_layout(), b, h, s, d);
        attn_out out[2];
        const int in_place = n % 4 == 1;
        if (n % 7 < 3) positions = make_ints(draw_int_type(), 1, b, 0, 0, 0, 0, (int)(table - s));
        else if (n % 7 < 6) positions = make_ints(draw_int_type(), 2, b, s, 0, 0, 0, (int)table - 1);
        make_twins(out, in_place ? x.type : float_type(), in_place ? LAYOUT_PACKED : how, 4, b, h, s, d);
        for (int device = 0; device < 2; device++) {
            attn_view from = x;
            to_place(0);
            if (in_place) CHECK_STATUS(attn_convert(x, out[device], 0), ATTN_OK), from = attn_view_of(out[device]);
            to_place(device);
            CHECK_STATUS(attn_rope(from, cosines, sines, positions, (uint32_t)n / 2 % 4, out[device], 0), ATTN_OK);
        }
        CHECKF(twins_agree(out), "case %d: D %ld, R %ld, types %d %d, %s", n, (long)d, 2 * (long)half, (int)x.type,
               (int)out[0].type, fake_failure());
        test_release();
    }
}
static void cache_tables(void) {
    for (int n = 0; n < 40; n++) {
        attn_rope_desc d = {.base = n % 3 ? 500000 : 0, .first_position = n % 4 ? 0 : 1 << 20};
        const int64_t rows = test_int(0, 50), half = n % 6 == 5 ? test_int(65, 150) : test_int(1, 64);
        attn_out cosines[2], sines[2];
        d.scaling = n % ATTN_ROPE_SCALING_COUNT;
        if (d.scaling) d.factor = 2.5;
        if (d.scaling >= ATTN_ROPE_YARN) d.original_positions = 8192;
        if (n % 10 == 5) {
            d.attention_factor = 1.5, d.factors = make_view(ATTN_F32, LAYOUT_GAPS, 1, half, 0, 0, 0);
            for (int64_t i = 0; i < half; i++)
                put_at(&d.factors, 0, 0, 0, i, i % 5 == 4 ? INFINITY : 0.25 + test_uniform());
        }
        make_twins(cosines, ATTN_F32, cache_layout(), 2, rows, half, 0, 0);
        make_twins(sines, ATTN_F32, cache_layout(), 2, rows, half, 0, 0);
        for (int device = 0; device < 2; device++) {
            to_place(device);
            CHECK_STATUS(attn_rope_table(cosines[device], sines[device], &d, 0), ATTN_OK);
        }
        CHECKF(twins_agree(cosines) && twins_agree(sines), "case %d: %s", n, fake_failure());
        if (n == 5) { /* not looked at by the host: any factor */
            for (int64_t i = 0; i < half; i++) put_at(&d.factors, 0, 0, 0, i, i % 2 ? NAN : -1e-30);
            on_device();
            CHECK_STATUS(attn_rope_table(cosines[1], sines[1], &d, 0), ATTN_OK);
        }
        test_release();
    }
}
/* What lengths, starts, pages and positions hold is not looked at by the host; whatever it is, nothing beside the
   arrays is read or written. A page that is none gets no row; the others are untouched where no page is one. */
static void cache_clamped(void) {
    for (int n = 0; n < cases_of(600); n++) {
        appending a;
        attn_out out = make_out(LAYOUT_PACKED, 4, 2, 3, 4, 16);
        attn_view x = attn_view_of(out), table = make_filled(LAYOUT_PACKED, 1, 2, 4, 8, 0, 0);
        attn_view positions =
            n % 2 ? make_ints(ATTN_I64, 1, 2, 0, 0, 0, -99, 99) : make_ints(ATTN_I32, 2, 2, 4, 0, 0, -99, 99);
        const attn_view *const unread[5] = {&a.lengths, &a.options.query_lengths, &a.options.query_starts,
                                            &a.options.key_starts, &a.options.page_table};
        draw_appending(&a, n, 1);
        for (int i = 0; n % 9 == 0 && i < 4; i++)
            for (int64_t e = 0; unread[i]->type == ATTN_I64 && e < unread[i]->size[0]; e++)
                ((int64_t *)(uintptr_t)unread[i]->data)[e] = test_int(0, 1) ? INT64_MAX - test_int(0, 3) : INT64_MIN;
        const int no_page = a.options.page_table.rank && n % 3 == 1;
        if (no_page) fill(&a.options.page_table, draw_int, -9, -1);
        fill(&x, draw_normal, 0, 1);
        if (n % 9 == 1)
            for (int e = 0; e < 2; e++) ((int64_t *)(uintptr_t)positions.data)[e] = e ? INT64_MAX : INT64_MIN;
        on_device();
        CHECK_STATUS(append_to(&a, 1, 0), ATTN_OK);
        CHECKF(!*fake_failure(), "case %d: %s", n, fake_failure());
        if (no_page) CHECKF(twins_agree(a.cache) && twins_agree(a.scale), "case %d: written to no page", n);
        CHECK_STATUS(attn_rope(x, table, table, positions, (uint32_t)n % 4, out, 0), ATTN_OK);
        CHECKF(!*fake_failure(), "case %d: %s", n, fake_failure());
        for (int i = 0; i < 5; i++) /* nor does the host read them */
            if (unread[i]->rank) ((attn_view *)(uintptr_t)unread[i])->data = (const void *)((uintptr_t)(i + 1) << 40);
        a.cache[1].size[1] = a.fresh.size[1] = 0, a.scale[1].size[1] = 0;
        fake_everything(2);
        CHECK_STATUS(append_to(&a, 1, 0), ATTN_OK);
        test_release();
    }
}
/* Arrays in two places, by name; what is left to the host; tables without enough rows */
static void cache_refused(void) {
    attn_error err;
    appending a;
    attn_out floats[2], codes[2], scale[2], tables[2];
    attn_view x = make_filled(LAYOUT_PACKED, 1, 4, 2, 2, 3, 32), positions = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, 0);
    attn_view ints[5], few, factors = make_filled(LAYOUT_PACKED, 0, 1, 16, 0, 0, 0);
    attn_rope_desc longrope = {.factors = factors};
    unsigned char *blocks = (unsigned char *)test_guarded(2 * 2 * 3 * 34);
    make_twins(floats, ATTN_F32, LAYOUT_PACKED, 4, 2, 2, 3, 32);
    make_twins(codes, ATTN_I8, LAYOUT_PACKED, 4, 2, 2, 3, 32);
    make_twins(scale, ATTN_F32, LAYOUT_PACKED, 4, 2, 2, 3, 1);
    make_twins(tables, ATTN_F32, LAYOUT_PACKED, 2, 9, 16, 0, 0);
    for (int n = 0; n < 5; n++) ints[n] = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, 0);
#define ELSEWHERE(view, call, field) \
    do { \
        on_device(); \
        fake_range((view).data, 1, 0); \
        refused(call, ATTN_ERR_PLACE, &err, field, "must lie on the device, where the call runs"); \
        fake_everything(0); \
        fake_range((view).data, 1, 2); \
        CHECK((call) == ATTN_ERR_PLACE && fake_counted().launches == 0); \
    } while (0)
    fake_forget();
    ELSEWHERE(floats[0], attn_convert(x, floats[0], &err), "to");
    ELSEWHERE(codes[0], attn_quantize(x, codes[0], scale[0], &err), "codes");
    ELSEWHERE(scale[0], attn_quantize(x, codes[0], scale[0], &err), "scale");
    ELSEWHERE(scale[0], attn_unpack_q8_0(blocks, codes[0], scale[0], &err), "scale");
    on_device();
    fake_range(blocks, 1, 0);
    refused(attn_unpack_q8_0(blocks, codes[0], scale[0], &err), ATTN_ERR_PLACE, &err, "blocks",
            "must lie on the device");
    fake_everything(0);
    fake_range(blocks, 1, 2);
    refused(attn_unpack_q8_0(blocks, codes[0], scale[0], &err), ATTN_ERR_PLACE, &err, "blocks", "must lie on the host");
    const attn_view table = attn_view_of(tables[0]);
    ELSEWHERE(positions, attn_rope(x, table, table, positions, 0, floats[0], &err), "positions");
    ELSEWHERE(tables[1], attn_rope(x, table, attn_view_of(tables[1]), positions, 0, floats[0], &err), "sines");
    ELSEWHERE(floats[0], attn_rope(x, table, table, positions, 0, floats[0], &err), "out");
    ELSEWHERE(tables[1], attn_rope_table(tables[0], tables[1], NULL, &err), "sines");
    ELSEWHERE(factors, attn_rope_table(tables[0], tables[1], &longrope, &err), "factors");
    memset(&a, 0, sizeof a);
    a.options.query_lengths = ints[0], a.options.query_starts = ints[1], a.options.key_starts = ints[2];
    a.options.page_table = make_ints(ATTN_I32, 2, 2, 1, 0, 0, 0, 1);
    a.options.k_scale = attn_view_of(scale[0]);
#define APPEND attn_append(x, codes[0], ints[3], &a.options, &err)
    ELSEWHERE(codes[0], APPEND, "cache");
    ELSEWHERE(ints[3], APPEND, "lengths");
    ELSEWHERE(ints[0], APPEND, "query_lengths");
    ELSEWHERE(ints[1], APPEND, "query_starts");
    ELSEWHERE(ints[2], APPEND, "key_starts");
    ELSEWHERE(a.options.page_table, APPEND, "page_table");
    ELSEWHERE(scale[0], APPEND, "k_scale");
    on_device();
    few = attn_view_slice(table, 0, 0, 2);
    refused(attn_rope(x, few, few, positions, 0, floats[0], &err), ATTN_ERR_SIZE, &err, "cosines.size[0]",
            "must hold a row");
    few = attn_view_slice(table, 0, 0, 0);
    refused(attn_rope(x, few, few, make_ints(ATTN_I32, 2, 2, 3, 0, 0, 0, 0), 0, floats[0], &err), ATTN_ERR_SIZE, &err,
            "cosines.size[0]", "must hold a row");
    refused(attn_lengths_of(ints[0], attn_out_typed(ATTN_I32, (void *)(uintptr_t)ints[1].data, 1, 1, 0, 0, 0), &err),
            ATTN_ERR_PLACE, &err, "offsets", "must lie on the host");
    refused(attn_alibi_slopes(attn_out_f32((float *)floats[0].data, 1, 8, 0, 0, 0), &err), ATTN_ERR_PLACE, &err,
            "slopes", "must lie on the host");
}
static void never_run(void *user, int64_t count, attn_task_fn task, void *arg) {
    (void)user, (void)count, (void)task, (void)arg;
    CHECKF(0, "a call on a device asked for threads");
}
/* Calls without options: the thread's stream, and the device of their arrays; one kernel each */
static void cache_streams(void) {
    attn_view x = make_filled(LAYOUT_PACKED, 1, 4, 2, 2, 3, 32), none = {0}, some, lse;
    attn_out floats[2], codes[2], scale[2], tables[2], lse_out;
    unsigned char *blocks = (unsigned char *)memset(test_guarded(2 * 2 * 3 * 34), 0, 2 * 2 * 3 * 34);
    make_twins(floats, ATTN_F32, LAYOUT_PACKED, 4, 2, 2, 3, 32);
    make_twins(codes, ATTN_I8, LAYOUT_PACKED, 4, 2, 2, 3, 32);
    make_twins(scale, ATTN_F32, LAYOUT_PACKED, 4, 2, 2, 3, 1);
    make_twins(tables, ATTN_F32, LAYOUT_PACKED, 2, 9, 16, 0, 0);
    lse = make_filled(LAYOUT_PACKED, 1, 3, 2, 2, 3, 0), lse_out = make_out(LAYOUT_PACKED, 3, 2, 2, 3, 0);
    for (int n = 0; n < 12; n++) {
        const attn_view table = attn_view_of(tables[0]);
        attn_status st = ATTN_OK;
        attn_cuda_use_stream(n % 2 ? fake_stream() : NULL);
        fake_everything(fake_device() < 0 ? 2 : 2 + 16);
        fake_forget();
        if (n < 2) st = attn_convert(x, floats[0], 0);
        else if (n < 4) st = attn_quantize(x, codes[0], scale[0], 0);
        else if (n < 6) st = attn_unpack_q8_0(blocks, codes[0], scale[0], 0);
        else if (n < 8) st = attn_rope_table(tables[0], tables[1], NULL, 0);
        else if (n < 10) st = attn_rope(x, table, table, none, 0, floats[0], 0);
        else st = attn_merge(x, lse, x, lse, floats[0], lse_out, 0);
        CHECK_STATUS(st, ATTN_OK);
        CHECKF(fake_counted().launches == 1 && fake_counted().stream == (n % 2 ? fake_stream() : NULL), "call %d", n);
        CHECK(fake_device() <= 0);
    }
    for (int n = 0; n < 8; n++) { /* with options: their stream, and nothing for threads */
        const attn_view table = attn_view_of(tables[0]);
        attn_desc o;
        attn_status st = ATTN_OK;
        memset(&o, 0, sizeof o);
        o.stream = n % 2 ? fake_stream() : NULL;
        o.parallel.run = never_run, o.parallel.workers = 64;
        attn_cuda_use_stream(n % 2 ? NULL : fake_stream());
        fake_everything(fake_device() < 0 ? 2 : 2 + 16);
        fake_forget();
        if (n < 2) st = attn_convert_with(x, floats[0], &o, 0);
        else if (n < 4) st = attn_quantize_with(x, codes[0], scale[0], &o, 0);
        else if (n < 6) st = attn_rope_with(x, table, table, none, 0, floats[0], &o, 0);
        else st = attn_merge_with(x, lse, x, lse, floats[0], lse_out, &o, 0);
        CHECK_STATUS(st, ATTN_OK);
        CHECKF(fake_counted().launches == 1 && fake_counted().stream == o.stream, "call %d with options", n);
    }
    attn_cuda_use_stream(NULL);
    on_device();
    fake_forget();
    some = attn_view_slice(x, 2, 0, 0);
    CHECK_STATUS(attn_convert(some, attn_out_slice(floats[0], 2, 0, 0), 0), ATTN_OK);
    CHECK_STATUS(attn_quantize(some, attn_out_slice(codes[0], 2, 0, 0), attn_out_slice(scale[0], 2, 0, 0), 0), ATTN_OK);
    CHECK_STATUS(attn_rope(some, attn_view_of(tables[0]), attn_view_of(tables[0]), none, 0,
                           attn_out_slice(floats[0], 2, 0, 0), 0),
                 ATTN_OK);
    CHECK_STATUS(attn_append(some, floats[0], make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, 0), NULL, 0), ATTN_OK);
    CHECK(fake_counted().launches == 0);
}

/* ---- memory and streams */
typedef struct ledger {
    long taken, given;
} ledger;
static void *take_block(void *user, size_t bytes) {
    ((ledger *)user)->taken++;
    return test_guarded(bytes);
}
static void give_block(void *user, void *block) {
    ((ledger *)user)->given++;
    (void)block; /* test_release has it */
}
static void memory_and_stream(void) {
    attn_desc d = make_desc(1, 2, 2, 8, 12, 5, 4);
    ledger account = {0, 0};
    attn_error err;
    set_score(&d, ATTN_SCORE_COSINE, 0); /* needs a workspace */
    d.stream = fake_stream();
    on_device();
    fake_forget();
    run_desc(&d, "without a workspace");
    CHECK(fake_counted().allocations == 1 && fake_counted().releases == 1 && fake_counted().stream == fake_stream());
    d.allocator.allocate = take_block;
    d.allocator.release = give_block;
    d.allocator.user = &account;
    fake_forget();
    run_desc(&d, "with an allocator");
    CHECK(account.taken == 1 && account.given == 1 && fake_counted().allocations == 0);
    memset(&d.allocator, 0, sizeof d.allocator);
    fake_fail_allocations(1);
    poison_results(&d);
    fake_forget();
    CHECK_STATUS(attn_forward(&d, &err), ATTN_ERR_ALLOC);
    CHECK(fake_counted().launches == 0 && isnan((double)*(float *)d.out.data));
    fake_fail_allocations(0);

    size_t bytes = 0, host = 0, either = 0;
    CHECK_STATUS(attn_workspace_size(&d, &bytes, 0), ATTN_OK);
    char *workspace = (char *)test_guarded(bytes);
    d.workspace = workspace;
    d.workspace_bytes = bytes - 1;
    refused(attn_forward(&d, &err), ATTN_ERR_WORKSPACE, &err, "workspace_bytes", "must be at least");
    d.workspace = 0, d.workspace_bytes = 0;
    fake_everything(0);
    CHECK_STATUS(attn_workspace_size(&d, &host, 0), ATTN_OK);
    d.q.data = d.k.data = d.v.data = d.out.data = 0; /* nothing tells: enough for either */
    CHECK_STATUS(attn_workspace_size(&d, &either, 0), ATTN_OK);
    CHECKF(either >= host && either >= bytes, "%ld bytes for either, %ld on the host, %ld on the device", (long)either,
           (long)host, (long)bytes);
    CHECK_STATUS(attn_cuda_prepare(&err), ATTN_OK);
}

/* Every kernel that has run, in all tests before this one, is among those that attn_cuda_prepare loads: a capture that
   comes to one that is not loaded fails. */
static void all_are_prepared(void) {
    attn_error err;
    int all = 0;
    fake_forget_loaded();
    CHECK_STATUS(attn_cuda_prepare(&err), ATTN_OK);
    const int missing = fake_not_loaded(&all);
    CHECKF(missing == 0, "%d of %d kernels that have run are not loaded by attn_cuda_prepare", missing, all);
}

const test_case suite_emulated[] = {
    {"emulated.forward_pairs", forward_pairs},
    {"emulated.backward_pairs", backward_pairs},
    {"emulated.half_forward", half_forward},
    {"emulated.half_backward", half_backward},
    {"emulated.tiles", tiles},
    {"emulated.tiles_entries", tiles_entries},
    {"emulated.tiles_parts", tiles_parts},
    {"emulated.tiles_excluded", tiles_excluded},
    {"emulated.tiles_codes", tiles_codes},
    {"emulated.tiles_pictures", tiles_pictures},
    {"emulated.tiles_backward", tiles_backward},
    {"emulated.tiles_in_front", tiles_in_front},
    {"emulated.tiles_others", tiles_others},
    {"emulated.tiles_padding", tiles_padding},
    {"emulated.tiles_products", products},
    {"emulated.tiles_projections", projections},
    {"emulated.products", fast_products},
    {"emulated.products_left", fast_products_left},
    {"emulated.products_gradients", fast_product_gradients},
    {"emulated.products_layers", fast_product_layers},
    {"emulated.products_mixed_layers", fast_product_mixed_layers},
    {"emulated.saved_refused", saved_refused},
    {"emulated.fast_stages", fast_stages},
    {"emulated.fast_workspace", fast_workspace},
    {"emulated.fast_sweep", fast_sweep},
    {"emulated.fast_host_cost", fast_host_cost},
    {"emulated.fast_plans", fast_plans},
    {"emulated.fast_plans_refused", fast_plans_refused},
    {"emulated.fast_workspace_of_entries", fast_workspace_of_entries},
    {"emulated.fast_workspace_of_gradients", fast_workspace_of_gradients},
    {"emulated.fast_split_keys", fast_split_keys},
    {"emulated.fast_stats", fast_stats},
    {"emulated.fast_fill", fast_fill},
    {"emulated.fast_codes", fast_codes},
    {"emulated.fast_read_codes", fast_read_codes},
    {"emulated.fast_codes_described", fast_codes_described},
    {"emulated.fast_softcap", fast_softcap},
    {"emulated.fast_options", fast_options},
    {"emulated.fast_floats", fast_floats},
    {"emulated.fast_corners", fast_corners},
    {"emulated.fast_sinks_in_front", sinks_in_front},
    {"emulated.cache_appends", cache_appends},
    {"emulated.cache_conversions", cache_conversions},
    {"emulated.cache_long_rows", cache_long_rows},
    {"emulated.cache_scales", cache_scales},
    {"emulated.cache_rotations", cache_rotations},
    {"emulated.cache_tables", cache_tables},
    {"emulated.cache_clamped", cache_clamped},
    {"emulated.cache_refused", cache_refused},
    {"emulated.cache_streams", cache_streams},
    {"emulated.mixed_places", mixed_places},
    {"emulated.of_the_host", of_the_host},
    {"emulated.several_devices", several_devices},
    {"emulated.lost_device", lost_device},
    {"emulated.both_places", both_places},
    {"emulated.lengths_are_clamped", lengths_are_clamped},
    {"emulated.starts_are_clamped", starts_are_clamped},
    {"emulated.dropout_bits", dropout_bits},
    {"emulated.memory_and_stream", memory_and_stream},
    {"emulated.prepared", all_are_prepared},
    {0, 0},
};
