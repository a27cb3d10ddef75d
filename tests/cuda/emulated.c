/* emulated.c - the calls of attn.h on arrays of a device, whose kernels run in the emulator: the random descriptors of
   the CPU's tests against the same float64 reference. Everything lies on the device here, unless a test says otherwise. */
#include "../grads.h"
#define MORE_FACTORS(X) X(UPSTREAM, 7) X(STATS, 2) X(ASKED, 5) X(ACCUMULATE, 3) X(LAYOUT_GRAD, 4)
#include "../descriptors.h"
#include "fake.h"

static void count_launches(void);
static void on_device(void) {
    fake_everything(2);
    count_launches();
    fake_timing(test_int(0, fake_timings() - 1), test_bits());
}

/* How much ran there in all: kernels, blocks of threads. */
static long launches, blocks;
static void print_launches(const char *what, int cases) {
    printf("    %s: %d random descriptors against the reference, %ld launches, %ld blocks\n", what, cases, launches, blocks);
    CHECKF(launches >= cases, "only %ld kernels were launched", launches);
    launches = blocks = 0;
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

/* Against the reference; then again in other timings, with a workspace: the same bits. */
static double check_forward(attn_desc *d, const char *what) {
    ref_result r;
    ref_forward(d, &r);
    on_device();
    double ratio = check_on(d, &r, ATTN_ISA_AUTO, what);
    attn_desc again = copy_results(d);
    on_device();
    poison_results(&again);
    if (run_with_workspace(&again, what) && !check_same_results(d, &again, "run again")) ref_print(d);
    ref_free(&r);
    return ratio;
}

static void forward_pairs(void) {
    enum { CASES = 700 };
    double worst[ATTN_SCORE_COUNT] = {0};
    memset(covered, 0, sizeof covered);
    for (int n = 0; n < CASES; n++) {
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
    print_launches("forward", CASES);
    CHECKF(missing_pairs() == 0, "%d pairs of options were not tried", missing_pairs());
}

/* ---- gradients */
static const int upstreams[7] = {1, 3, 5, 7, 2, 4, 6}; /* of the levels of a factor */

static unsigned draw_asked(int level, unsigned there) {
    unsigned set = level == 0   ? there
                   : level == 1 ? 7 /* q, k, v */
                   : level == 2 ? there & (unsigned)test_bits()
                   : level == 3 ? 1u << test_int(0, GRAD_COUNT - 1)
                                : there & ~7u;
    return set & there ? set & there : 1u << GRAD_V;
}

static void build_call(call *c, const int f[FACTOR_COUNT]) {
    static const unsigned sums[3] = {0, ATTN_GRAD_ALL, 0};
    int from = upstreams[f[F_UPSTREAM]];
    unsigned there;
    memset(c, 0, sizeof *c);
    build(&c->d, f);
    layout out = (layout)(f[F_LAYOUT_OUT] == 3 ? LAYOUT_MIXED : f[F_LAYOUT_OUT]);
    ref_result r;
    ref_sizes(&c->d, &r);
    if (from & FROM_OUT && !c->d.out.rank) c->d.out = make_out(out, 4, r.b, r.h, r.sq, r.dv);
    c->d.stats = make_out(out, 4, r.b, r.h, r.sq, 2);
    draw_upstream(&c->g, &c->d, from, (layout)test_int(0, LAYOUT_COUNT - 1));
    there = all_grads(&c->d);
    ask_grads(c, draw_asked(f[F_ASKED], there),
              f[F_ACCUMULATE] == 2 ? there & (unsigned)test_bits() : sums[f[F_ACCUMULATE]],
              (layout)(f[F_LAYOUT_GRAD] == 3 ? LAYOUT_MIXED : f[F_LAYOUT_GRAD]));
}

/* Against the reference; again in another timing, with a workspace: the same bits. */
static void check_backward(call *c, const char *what) {
    ref_grads g;
    ref_upstream up = upstream_of(&c->g);
    ref_backward(&c->d, &up, &g);
    on_device();
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
    }
    ref_free_grads(&g);
}

static void backward_pairs(void) {
    enum { CASES = 900 };
    memset(covered, 0, sizeof covered);
    forget_worst();
    for (int n = 0; n < CASES; n++) {
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
    print_worst("gradients of random descriptors", CASES);
    print_launches("backward", CASES);
    CHECKF(missing_pairs() == 0, "%d pairs of options were not tried", missing_pairs());
}

const test_case suite_emulated[] = {
    {"emulated.forward_pairs", forward_pairs},
    {"emulated.backward_pairs", backward_pairs},
    {0, 0},
};
