/* softmax.c - attn_softmax: ranks, strides, lengths, masks, in place. */
#include "grads.h"

/* ---- the formula, on [B,H,Sq,Sk] seen from the right */
typedef int (*predicate)(const attn_desc *o, int64_t b, int64_t i, int64_t j);

static int below_length(const attn_desc *o, int64_t b, int64_t i, int64_t j) {
    return !o->key_lengths.rank || j < ref_int(&o->key_lengths, b, i);
}

static double at(const attn_view *x, int64_t b, int64_t i, int64_t j) { return ref_at(x, 0, b, i, j); }

/* x and out of rank 2 or 3: [Sq,Sk] or [B,Sq,Sk] */
static void check_softmax(const attn_view *x, const attn_out *out, const attn_desc *o, predicate allowed,
                          const char *what) {
    attn_view y = attn_view_of(*out);
    int64_t batch = x->rank == 3 ? x->size[0] : 1, rows = x->size[x->rank - 2], n = x->size[x->rank - 1];
    double scale = o->scale != 0 ? (double)o->scale : 1;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < rows; i++) {
            double top = -INFINITY, sum = 0, total = 0;
            for (int64_t j = 0; j < n; j++)
                if (allowed(o, b, i, j)) top = fmax(top, scale * at(x, b, i, j));
            for (int64_t j = 0; j < n; j++)
                if (allowed(o, b, i, j)) sum += exp(scale * at(x, b, i, j) - top);
            for (int64_t j = 0; j < n; j++) {
                double want = allowed(o, b, i, j) ? exp(scale * at(x, b, i, j) - top) / sum : 0, got = at(&y, b, i, j);
                CHECKF(fabs(got - want) <= 1e-6 * (want + 1e-6), "%s: [%ld,%ld,%ld] is %.9g, not %.9g", what, (long)b,
                       (long)i, (long)j, got, want);
                CHECKF(want != 0 || got == 0, "%s: an excluded weight of %g", what, got);
                total += got;
            }
            CHECKF(fabs(total - (sum > 0)) < 1e-5, "%s: row %ld,%ld has the sum %g", what, (long)b, (long)i, total);
        }
}

static attn_desc no_options(void) {
    attn_desc o;
    memset(&o, 0, sizeof o);
    return o;
}

static attn_view lengths(int rank, int64_t n0, int64_t n1, const int32_t *from) {
    attn_view v = make_view(ATTN_I32, LAYOUT_PACKED, rank, n0, n1, 0, 0);
    for (int64_t i = 0; i < n0 * (rank == 2 ? n1 : 1); i++) put(&v, i, from[i]);
    return v;
}

/* ---- masked_softmax as d2l publishes it: X [2,2,4] with lengths (2,3), with ((1,3),(2,4)), and without */
static void test_textbook(void) {
    static const int32_t of_batch[] = {2, 3}, of_query[] = {1, 3, 2, 4};
    for (int n = 0; n < test_isa_count(); n++) {
        attn_view x = make_filled(LAYOUT_PACKED, 1, 3, 2, 2, 4, 0);
        attn_out out = make_out(LAYOUT_PACKED, 3, 2, 2, 4, 0);
        attn_desc o = no_options();
        o.isa = (int32_t)test_isa(n);
        CHECK_STATUS(attn_softmax(x, out, 0, 0), ATTN_OK);
        check_softmax(&x, &out, &o, below_length, "no lengths");
        o.key_lengths = lengths(1, 2, 0, of_batch);
        CHECK_STATUS(attn_softmax(x, out, &o, 0), ATTN_OK);
        check_softmax(&x, &out, &o, below_length, "lengths [B]");
        o.key_lengths = lengths(2, 2, 2, of_query);
        CHECK_STATUS(attn_softmax(x, out, &o, 0), ATTN_OK);
        check_softmax(&x, &out, &o, below_length, "lengths [B,Sq]");
        fill(&x, draw_int, 5, 5); /* equal scores: exactly equal weights */
        CHECK_STATUS(attn_softmax(x, out, &o, 0), ATTN_OK);
        const float *w = (const float *)out.data, third = 1 / 3.0f;
        const float want[] = {1, 0, 0, 0, third, third, third, 0, 0.5f, 0.5f, 0, 0, 0.25f, 0.25f, 0.25f, 0.25f};
        for (int i = 0; i < 16; i++) CHECK(w[i] == want[i]);
    }
}

/* ---- every rank and layout */
static attn_out as_output(attn_view v) {
    attn_out o;
    memcpy(&o, &v, sizeof o);
    o.data = (void *)(uintptr_t)v.data;
    return o;
}

/* What attn_forward makes of x as given scores: the softmax is that and nothing else. */
static attn_out by_forward(attn_view x, const attn_desc *options) {
    attn_desc d = *options;
    int64_t n[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
    for (int axis = 0; axis < x.rank; axis++) {
        int to = axis + 4 - x.rank;
        if (x.rank == 3 && axis == 0) to = 0; /* [B,Sq,Sk] has no heads */
        n[to] = x.size[axis];
        stride[to] = x.stride[axis];
    }
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = attn_view_f32((const float *)x.data, 4, n[0], n[1], n[2], n[3]);
    memcpy(d.given_scores.stride, stride, sizeof stride);
    memset(&d.lse, 0, sizeof d.lse);
    d.weights = make_out(LAYOUT_PACKED, 4, n[0], n[1], n[2], n[3]);
    CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
    attn_out back = attn_out_f32((float *)d.weights.data, x.rank, x.size[0], x.size[1], x.size[2], x.size[3]);
    return back;
}

static void check_layout(layout how, int rank, const attn_desc *options) {
    attn_view x = make_filled(how, 3, rank, test_int(1, 4), test_int(1, 5), test_int(1, 6), test_int(1, 70));
    attn_out out = make_out(how, rank, x.size[0], x.size[1], x.size[2], x.size[3]), want = by_forward(x, options);
    poison(&out);
    CHECK_STATUS(attn_softmax(x, out, options, 0), ATTN_OK);
    CHECK(gaps_untouched(&out));
    check_same(&out, &want, "softmax and attention with given scores");
    if (how == LAYOUT_BROADCAST) return; /* no output can be that */
    CHECK_STATUS(attn_softmax(x, as_output(x), options, 0), ATTN_OK);
    attn_out in_place = as_output(x);
    check_same(&in_place, &want, "softmax in place");
}

static void test_layouts(void) {
    for (int n = 0; n < test_isa_count(); n++)
        for (int how = 0; how < LAYOUT_COUNT; how++)
            for (int rank = 1; rank <= 4; rank++)
                for (int again = 0; again < 4; again++) {
                    attn_desc o = no_options();
                    o.isa = (int32_t)test_isa(n);
                    o.causal = again == 1;
                    o.align = again == 1 ? ATTN_ALIGN_BOTTOM_RIGHT : 0;
                    o.scale = again == 2 ? -0.5f : 0;
                    o.dropout = again == 3 ? 0.5f : 0;
                    o.weights_after_dropout = again == 3;
                    check_layout((layout)how, rank, &o);
                    test_release();
                }
}

/* ---- options */
static int causal_bottom_right(const attn_desc *o, int64_t b, int64_t i, int64_t j) {
    int64_t rows = 6, n = o->key_lengths.rank ? ref_int(&o->key_lengths, b, i) : 9;
    return j < n && j <= i + n - rows;
}
static int in_window(const attn_desc *o, int64_t b, int64_t i, int64_t j) {
    (void)b;
    return j >= i - o->window_left && j <= i + o->window_right;
}
static int in_mask(const attn_desc *o, int64_t b, int64_t i, int64_t j) { return ref_at(&o->mask, 0, b, i, j) != 0; }

static void test_options(void) {
    static const int32_t short_ones[] = {9, 4, 0};
    for (int n = 0; n < test_isa_count(); n++) {
        attn_view x = make_filled(LAYOUT_MIXED, 2, 3, 3, 6, 9, 0);
        attn_out out = make_out(LAYOUT_GAPS, 3, 3, 6, 9, 0);
        attn_desc o = no_options();
        o.isa = (int32_t)test_isa(n);
        o.causal = 1;
        o.align = ATTN_ALIGN_BOTTOM_RIGHT;
        CHECK_STATUS(attn_softmax(x, out, &o, 0), ATTN_OK);
        check_softmax(&x, &out, &o, causal_bottom_right, "causal, bottom right");
        o.key_lengths = lengths(1, 3, 0, short_ones);
        CHECK_STATUS(attn_softmax(x, out, &o, 0), ATTN_OK);
        check_softmax(&x, &out, &o, causal_bottom_right, "causal with lengths");
        o = no_options();
        o.scale = 0.25f;
        o.window = 1;
        o.align = ATTN_ALIGN_TOP_LEFT;
        o.window_left = 1;
        o.window_right = 2;
        CHECK_STATUS(attn_softmax(x, out, &o, 0), ATTN_OK);
        check_softmax(&x, &out, &o, in_window, "window and scale");
        for (int rank = 1; rank <= 3; rank++) { /* against the shape of x, [B,Sq,Sk] */
            o = no_options();
            o.mask = rank == 3   ? make_ints(ATTN_U8, 3, 3, 6, 9, 0, 0, 1)
                     : rank == 2 ? make_ints(ATTN_U8, 2, 6, 9, 0, 0, 0, 1)
                                 : make_ints(ATTN_U8, 1, 9, 0, 0, 0, 0, 1);
            CHECK_STATUS(attn_softmax(x, out, &o, 0), ATTN_OK);
            check_softmax(&x, &out, &o, in_mask, "mask");
        }
    }
}

static void test_bias_and_lse(void) {
    enum { BATCH = 2, ROWS = 3, N = 7 };
    attn_view x = make_filled(LAYOUT_PACKED, 2, 3, BATCH, ROWS, N, 0);
    attn_out out = make_out(LAYOUT_PACKED, 3, BATCH, ROWS, N, 0);
    attn_desc o = no_options();
    float sink = 0.75f;
    o.bias = make_filled(LAYOUT_PACKED, 1, 3, BATCH, 1, N, 0); /* one row for each batch entry */
    o.lse = make_out(LAYOUT_PACKED, 3, BATCH, 1, ROWS, 0);
    o.sink = attn_view_f32(&sink, 1, 1, 0, 0, 0);
    CHECK_STATUS(attn_softmax(x, out, &o, 0), ATTN_OK);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < ROWS; i++) {
            double sum = exp(0.75);
            for (int j = 0; j < N; j++) sum += exp(at(&x, b, i, j) + ref_at(&o.bias, 0, b, 0, j));
            CHECK_CLOSE(((float *)o.lse.data)[b * ROWS + i], log(sum), 1e-6);
            for (int j = 0; j < N; j++)
                CHECK_CLOSE(((float *)out.data)[(b * ROWS + i) * N + j],
                            exp(at(&x, b, i, j) + ref_at(&o.bias, 0, b, 0, j)) / sum, 1e-6);
        }
}

/* ---- numbers at the limits */
static void test_limits(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        float x[6][4] = {{1e30f, 1e30f, -1e30f, 0},    {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                         {-INFINITY, 2, -INFINITY, 2}, {1, NAN, 2, 3},
                         {-1e9f, -1e9f, -1e9f, -1e9f}, {3e38f, -3e38f, 3e38f, 0}};
        const float want[6][4] = {{0.5f, 0.5f, 0, 0},           {0, 0, 0, 0},
                                  {0, 0.5f, 0, 0.5f},           {NAN, NAN, NAN, NAN},
                                  {0.25f, 0.25f, 0.25f, 0.25f}, {0.5f, 0, 0.5f, 0}};
        attn_desc o = no_options();
        o.isa = (int32_t)test_isa(n);
        CHECK_STATUS(attn_softmax(attn_view_f32(x[0], 2, 6, 4, 0, 0), attn_out_f32(x[0], 2, 6, 4, 0, 0), &o, 0),
                     ATTN_OK);
        for (int i = 0; i < 24; i++) CHECK_CLOSE(x[i / 4][i % 4], want[i / 4][i % 4], 0);
        o.empty = ATTN_EMPTY_UNIFORM;
        float empty[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
        CHECK_STATUS(attn_softmax(attn_view_f32(empty, 1, 4, 0, 0, 0), attn_out_f32(empty, 1, 4, 0, 0, 0), &o, 0),
                     ATTN_OK);
        for (int i = 0; i < 4; i++) CHECK(empty[i] == 0.25f);
        o.empty = ATTN_EMPTY_NAN;
        empty[0] = empty[1] = empty[2] = empty[3] = -INFINITY;
        CHECK_STATUS(attn_softmax(attn_view_f32(empty, 1, 4, 0, 0, 0), attn_out_f32(empty, 1, 4, 0, 0, 0), &o, 0),
                     ATTN_OK);
        for (int i = 0; i < 4; i++) CHECK(isnan(empty[i]));
    }
}

/* Long rows, and rows so many that a tile is not full. */
static void test_long(void) {
    for (int n = 0; n < test_isa_count(); n++)
        for (int i = 0; i < 12; i++) {
            attn_view x = make_filled(LAYOUT_PACKED, 4, 2, test_int(1, 40), test_int(200, 1500), 0, 0);
            attn_out out = make_out(LAYOUT_PACKED, 2, x.size[0], x.size[1], 0, 0);
            attn_desc o = no_options();
            o.isa = (int32_t)test_isa(n);
            CHECK_STATUS(attn_softmax(x, out, &o, 0), ATTN_OK);
            check_softmax(&x, &out, &o, below_length, "a long row");
            test_release();
        }
}

static void test_empty(void) {
    float x[4] = {1, 2, 3, 4};
    attn_out none = attn_out_f32(x, 2, 0, 4, 0, 0), narrow = attn_out_f32(x, 2, 4, 0, 0, 0);
    CHECK_STATUS(attn_softmax(attn_view_of(none), none, 0, 0), ATTN_OK);
    CHECK_STATUS(attn_softmax(attn_view_of(narrow), narrow, 0, 0), ATTN_OK);
    CHECK_STATUS(attn_softmax(attn_view_f32(0, 3, 2, 0, 5, 0), attn_out_f32(0, 3, 2, 0, 5, 0), 0, 0), ATTN_OK);
    CHECK(x[0] == 1 && x[1] == 2 && x[2] == 3 && x[3] == 4);
    CHECK_STATUS(attn_softmax(attn_view_f32(x, 1, 1, 0, 0, 0), attn_out_f32(x, 1, 1, 0, 0, 0), 0, 0), ATTN_OK);
    CHECK(x[0] == 1 && x[1] == 2);
}

/* In place means the same elements at the same places; anything else that overlaps is refused. */
static void test_in_place(void) {
    float x[32] = {0}, before[32];
    attn_view v = attn_view_f32(x, 2, 4, 4, 0, 0);
    attn_desc o = no_options();
    for (int i = 0; i < 32; i++) x[i] = (float)test_normal();
    memcpy(before, x, sizeof x);
    CHECK_STATUS(attn_softmax(v, as_output(attn_view_swap(v, 0, 1)), 0, 0), ATTN_ERR_OVERLAP);
    CHECK_STATUS(attn_softmax(v, attn_out_f32(x + 1, 2, 4, 4, 0, 0), 0, 0), ATTN_ERR_OVERLAP);
    CHECK_STATUS(attn_softmax(v, attn_out_f32(x + 4, 2, 4, 4, 0, 0), 0, 0), ATTN_ERR_OVERLAP);
    o.lse = attn_out_f32(x, 3, 1, 1, 4, 0); /* the other result over x */
    CHECK_STATUS(attn_softmax(v, attn_out_f32(x + 16, 2, 4, 4, 0, 0), &o, 0), ATTN_ERR_OVERLAP);
    CHECK(!memcmp(before, x, sizeof x));
    CHECK_STATUS(attn_softmax(v, attn_out_f32(x + 16, 2, 4, 4, 0, 0), 0, 0), ATTN_OK);
    CHECK(!memcmp(before, x, sizeof x / 2));
    CHECK_STATUS(attn_softmax(v, as_output(v), 0, 0), ATTN_OK);
    CHECK(!memcmp(x, x + 16, sizeof x / 2));
}

/* ---- gradients: those of given scores, whose weights are the result */

/* x, or something broadcast against it, as [B,H,Sq,Sk]: x of rank 3 is [B,Sq,Sk]. */
static attn_view widened(attn_view v, int rank) {
    if (!v.rank) return v;
    attn_view w = v;
    w.rank = 4;
    for (int axis = 0; axis < 4; axis++) {
        int mine = v.rank - 4 + axis;
        if (rank == 3 && axis == 0) mine = v.rank - 3; /* the batch */
        if (rank == 3 && axis == 1) mine = -1;
        w.size[axis] = mine >= 0 ? v.size[mine] : 1;
        w.stride[axis] = mine >= 0 ? v.stride[mine] : 0;
    }
    return w;
}

static double softmax_worst;

static void check_gradient(attn_view x, attn_view d_out, attn_out dx, const attn_desc *options, const char *what) {
    attn_desc d = *options;
    attn_view got = attn_view_of(dx), first = got;
    ref_upstream up;
    ref_grads g;
    memset(&up, 0, sizeof up);
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = widened(x, x.rank);
    d.bias = widened(options->bias, x.rank);
    d.mask = widened(options->mask, x.rank);
    up.weights = widened(d_out, x.rank);
    ref_backward(&d, &up, &g);
    for (int n = 0; n < test_isa_count(); n++) {
        attn_error err;
        attn_desc o = *options;
        int64_t at[4] = {0, 0, 0, 0}, low, high;
        o.isa = (int32_t)test_isa(n);
        poison(&dx);
        if (!accepted(attn_softmax_backward(x, d_out, dx, &o, &err), &err, &d, what)) break;
        CHECKF(gaps_untouched(&dx), "%s: wrote between the elements", what);
        if (!view_extent(&got, &low, &high)) break;
        attn_view wide = widened(got, x.rank);
        do {
            int64_t index = offset_of(&g.g[GRAD_GIVEN].like, at);
            double want = g.g[GRAD_GIVEN].x[index], value = ref_at(&wide, at[0], at[1], at[2], at[3]),
                   ratio = grad_ratio((float)value, want,
                                      grad_tolerance(GRAD_GIVEN, g.g[GRAD_GIVEN].error[index], want, 0));
            softmax_worst = fmax(softmax_worst, ratio);
            if (!CHECKF(ratio <= 1, "%s: dx[%ld,%ld,%ld,%ld] is %.9g, want %.9g", what, (long)at[0], (long)at[1],
                        (long)at[2], (long)at[3], value, want)) {
                ref_print(&d);
                break;
            }
        } while (next_index(&wide, at));
        attn_out a, b;
        if (n == 0) first = copy_view(&got, LAYOUT_PACKED);
        memcpy(&a, &first, sizeof a);
        memcpy(&b, &got, sizeof b);
        check_same(&a, &b, what);
    }
    ref_free_grads(&g);
}

static void test_gradient(void) {
    softmax_worst = 0;
    for (int n = 0; n < 400; n++) {
        int rank = 1 + n % 4;
        const int64_t full[4] = {test_int(1, 3), test_int(1, 3), test_int(1, 20),
                                 n % 9 ? test_int(1, 70) : test_int(250, 600)};
        int64_t size[4] = {0, 0, 0, 0};
        int64_t bias[4] = {1, 1, 1, 1},
                batch = rank == 4   ? full[0]
                        : rank == 3 ? full[1]
                                    : 1,
                heads = rank == 4 ? full[1] : 1, rows = rank > 1 ? full[2] : 1, keys = full[3];
        layout how = (layout)(n % LAYOUT_COUNT);
        memcpy(size, full + 4 - rank, (size_t)rank * sizeof *size);
        attn_view x = make_filled(how, n % 5 ? 1 : 8, rank, size[0], size[1], size[2], size[3]),
                  d_out = make_filled((layout)(n / 3 % LAYOUT_COUNT), 1, rank, size[0], size[1], size[2], size[3]);
        attn_out dx = make_out(n / 2 % 2 ? how : LAYOUT_MIXED, rank, size[0], size[1], size[2], size[3]);
        attn_desc o = no_options();
        for (int axis = 0; axis < rank; axis++) bias[axis] = test_int(0, 2) ? size[axis] : 1;
        if (test_int(0, 3) == 0) o.bias = make_filled(LAYOUT_MIXED, 1, rank, bias[0], bias[1], bias[2], bias[3]);
        if (test_int(0, 3) == 0) {
            o.mask = make_view(ATTN_U8, LAYOUT_PACKED, rank, size[0], size[1], size[2], size[3]);
            fill(&o.mask, draw_int, 0, 2);
        }
        if (test_int(0, 2) == 0) o.key_lengths = make_ints(ATTN_I32, 1, batch, 0, 0, 0, 0, (int)keys);
        else if (test_int(0, 3) == 0) o.key_lengths = make_ints(ATTN_I64, 2, batch, rows, 0, 0, 0, (int)keys);
        if (test_int(0, 4) == 0) o.query_lengths = make_ints(ATTN_I32, 1, batch, 0, 0, 0, 0, (int)rows);
        if (test_int(0, 3) == 0) o.sink = make_filled(LAYOUT_PACKED, 1, 1, heads, 0, 0, 0);
        if (test_int(0, 3) == 0) o.alibi = make_filled(LAYOUT_PACKED, 0.2, 1, heads, 0, 0, 0);
        o.causal = test_int(0, 3) == 0;
        o.align = test_int(0, 1) ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
        o.scale = test_int(0, 1) ? 0.7f : 0;
        o.softcap = test_int(0, 3) ? 0 : 2;
        o.empty = test_int(0, ATTN_EMPTY_COUNT - 1);
        if (test_int(0, 3) == 0)
            o.seed = test_bits(), o.dropout = test_int(0, 1) ? 0.3f : 0.5f, o.weights_after_dropout = 1;
        check_gradient(x, d_out, dx, &o, "the gradient of a softmax");
        test_release();
    }
    if (test_verbose()) printf("    largest error %.3f of the bound\n", softmax_worst);
}

/* Of the textbook's: without options, and a NaN that stays in its row. */
static void test_gradient_plain(void) {
    attn_view x = make_filled(LAYOUT_PACKED, 1, 3, 2, 5, 40, 0), d_out = make_filled(LAYOUT_PACKED, 1, 3, 2, 5, 40, 0);
    attn_out dx = make_out(LAYOUT_PACKED, 3, 2, 5, 40, 0), want = make_out(LAYOUT_PACKED, 3, 2, 5, 40, 0);
    attn_desc o = no_options();
    CHECK_STATUS(attn_softmax_backward(x, d_out, want, 0, 0), ATTN_OK);
    CHECK_STATUS(attn_softmax_backward(x, d_out, dx, &o, 0), ATTN_OK);
    check_same(&dx, &want, "no options");
    put_at(&x, 0, 1, 3, 17, NAN);
    check_gradient(x, d_out, dx, &o, "a NaN score");
    for (int row = 0; row < 10; row++) {
        attn_out a = attn_out_slice(attn_out_slice(dx, 0, row / 5, 1), 1, row % 5, 1),
                 b = attn_out_slice(attn_out_slice(want, 0, row / 5, 1), 1, row % 5, 1);
        if (row != 8) check_same(&a, &b, "a row beside one with NaN");
    }
    CHECK_STATUS(attn_softmax_backward(attn_view_f32(0, 2, 3, 0, 0, 0), attn_view_f32(0, 2, 3, 0, 0, 0),
                                       attn_out_f32(0, 2, 3, 0, 0, 0), 0, 0),
                 ATTN_OK);
}

const test_case suite_softmax[] = {{"softmax.textbook", test_textbook},
                                   {"softmax.layouts", test_layouts},
                                   {"softmax.options", test_options},
                                   {"softmax.bias_and_lse", test_bias_and_lse},
                                   {"softmax.limits", test_limits},
                                   {"softmax.long", test_long},
                                   {"softmax.empty", test_empty},
                                   {"softmax.in_place", test_in_place},
                                   {"softmax.gradient", test_gradient},
                                   {"softmax.gradient_plain", test_gradient_plain},
                                   {0, 0}};
