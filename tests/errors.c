/* errors.c - every status, with the field and the rule it names; the layout of the structures; refusals write
   nothing. */
#include "test.h"
#include <float.h>

/* ---- a call that is accepted, with every result, in memory that is compared afterwards */
enum { B = 2, H = 4, HKV = 2, SQ = 3, SK = 5, D = 4, DV = 3, HIDDEN = 6, SCORES = B * H * SQ * SK };

static struct {
    float q[B * H * SQ * D], k[B * HKV * SK * D], v[B * HKV * SK * DV], scores[SCORES], small[H * HIDDEN * D];
    uint8_t mask[SCORES];
    int32_t ints[B * SQ];
    unsigned char guard0[64];
    float out[B * H * SQ * DV], lse[B * H * SQ], weights[SCORES], raw[SCORES], softcap[SCORES], masked[SCORES];
    float stats[SCORES], gradients[14][SCORES];
    unsigned char guard1[64];
} m;

static unsigned char *results_begin(void) { return m.guard0; }
static size_t results_size(void) { return (size_t)((unsigned char *)(&m + 1) - m.guard0); }
static void paint(void) { memset(results_begin(), 0xA5, results_size()); }
static int unpainted(void) {
    for (size_t i = 0; i < results_size(); i++)
        if (results_begin()[i] != 0xA5) return 1;
    return 0;
}

static void set_floats(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = (float)test_normal();
}

static attn_desc valid(void) {
    attn_desc d;
    memset(&d, 0, sizeof d);
    memset(&m, 0, sizeof m);
    set_floats(m.q, sizeof m.q / sizeof *m.q);
    set_floats(m.k, sizeof m.k / sizeof *m.k);
    set_floats(m.v, sizeof m.v / sizeof *m.v);
    set_floats(m.scores, SCORES);
    for (int i = 0; i < H * HIDDEN * D; i++) m.small[i] = 1;
    memset(m.mask, 1, sizeof m.mask);
    paint();
    d.q = attn_view_bhsd(m.q, B, H, SQ, D);
    d.k = attn_view_bhsd(m.k, B, HKV, SK, D);
    d.v = attn_view_bhsd(m.v, B, HKV, SK, DV);
    d.out = attn_out_bhsd(m.out, B, H, SQ, DV);
    d.lse = attn_out_f32(m.lse, 3, B, H, SQ, 0);
    d.weights = attn_out_bhsd(m.weights, B, H, SQ, SK);
    d.scores = attn_out_bhsd(m.raw, B, H, SQ, SK);
    d.scores_softcap = attn_out_bhsd(m.softcap, B, H, SQ, SK);
    d.scores_masked = attn_out_bhsd(m.masked, B, H, SQ, SK);
    d.stats = attn_out_bhsd(m.stats, B, H, SQ, 2);
    return d;
}
static void no_results(attn_desc *d) {
    memset(&d->out, 0, (size_t)((char *)&d->score - (char *)&d->out));
    memset(&d->stats, 0, sizeof d->stats);
}
static attn_desc additive(void) {
    attn_desc d = valid();
    d.score = ATTN_SCORE_ADDITIVE;
    d.w_q = d.w_k = attn_view_f32(m.small, 2, HIDDEN, D, 0, 0);
    d.w_v = d.hidden_bias = attn_view_f32(m.small, 1, HIDDEN, 0, 0, 0);
    return d;
}
static attn_desc bilinear(void) {
    attn_desc d = valid();
    d.score = ATTN_SCORE_BILINEAR;
    d.bilinear = attn_view_f32(m.small, 2, D, D, 0, 0);
    return d;
}
static attn_desc given(void) {
    attn_desc d = valid();
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = attn_view_f32(m.scores, 4, B, H, SQ, SK);
    memset(&d.q, 0, sizeof d.q);
    memset(&d.k, 0, sizeof d.k);
    return d;
}
static attn_desc gaussian(void) {
    attn_desc d = valid();
    d.score = ATTN_SCORE_GAUSSIAN;
    return d;
}

static attn_view floats(int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return attn_view_f32(m.scores, rank, n0, n1, n2, n3);
}
static attn_view ints(int rank, int64_t n0, int64_t n1) { return attn_view_i32(m.ints, rank, n0, n1, 0, 0); }
static attn_view mask(int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return attn_view_u8(m.mask, rank, n0, n1, n2, n3);
}

/* ---- what a refusal must be like */

/* The name before a dot or a bracket is one of attn_desc or of a parameter. */
static int is_field(const char *field) {
    static const char *const known[] = {"q",
                                        "k",
                                        "v",
                                        "out",
                                        "lse",
                                        "weights",
                                        "scores",
                                        "scores_softcap",
                                        "scores_masked",
                                        "struct_bytes",
                                        "score",
                                        "scale_set",
                                        "scale",
                                        "sigma",
                                        "sigma_per_head",
                                        "bilinear",
                                        "w_q",
                                        "w_k",
                                        "w_v",
                                        "hidden_bias",
                                        "given_scores",
                                        "softcap",
                                        "bias",
                                        "alibi",
                                        "sink",
                                        "mask",
                                        "key_lengths",
                                        "query_lengths",
                                        "causal",
                                        "align",
                                        "positions",
                                        "window",
                                        "empty",
                                        "window_left",
                                        "window_right",
                                        "dropout",
                                        "weights_after_dropout",
                                        "seed",
                                        "dropout_origin",
                                        "isa",
                                        "reserved",
                                        "reserved2",
                                        "precision",
                                        "workspace",
                                        "workspace_bytes",
                                        "allocator",
                                        "parallel",
                                        "desc",
                                        "plan",
                                        "bytes",
                                        "options",
                                        "x",
                                        "y",
                                        "n",
                                        "function",
                                        "a",
                                        "b",
                                        "out_a",
                                        "out_b",
                                        "lse_a",
                                        "lse_b",
                                        "query",
                                        "key",
                                        "value",
                                        "w_query",
                                        "w_key",
                                        "w_value",
                                        "w_result",
                                        "b_query",
                                        "b_key",
                                        "b_value",
                                        "b_result",
                                        "heads",
                                        "heads_kv",
                                        "attention",
                                        "writer",
                                        "values",
                                        "stats",
                                        "forward",
                                        "grad",
                                        "d_out",
                                        "d_weights",
                                        "d_lse",
                                        "dq",
                                        "dk",
                                        "dv",
                                        "d_given_scores",
                                        "d_bias",
                                        "d_bilinear",
                                        "d_w_q",
                                        "d_w_k",
                                        "d_w_v",
                                        "d_hidden_bias",
                                        "d_sigma",
                                        "d_scale",
                                        "d_sink",
                                        "d_alibi",
                                        "accumulate",
                                        "dx",
                                        "da",
                                        "db",
                                        "dquery",
                                        "dkey",
                                        "dvalue",
                                        "dw_query",
                                        "dw_key",
                                        "dw_value",
                                        "dw_result",
                                        "db_query",
                                        "db_key",
                                        "db_value",
                                        "db_result",
                                        "query_starts",
                                        "key_starts",
                                        "page_table",
                                        "carry_in",
                                        "carry_out",
                                        "key_origin",
                                        "k_scale",
                                        "v_scale",
                                        "from",
                                        "to",
                                        "codes",
                                        "blocks",
                                        0};
    size_t n = strcspn(field, ".[");
    for (int i = 0; known[i]; i++)
        if (strlen(known[i]) == n && !strncmp(known[i], field, n)) return 1;
    return 0;
}

/* The text says what the structure holds, and is cut and ended at any size. */
static void check_text(const attn_error *err, int line) {
    char whole[300], number[32], cut[300];
    size_t length = attn_error_string(err, whole, sizeof whole);
    CHECKF(length < sizeof whole && strlen(whole) == length, "line %d: the length of \"%s\"", line, whole);
    CHECKF(strstr(whole, err->field) == whole && strstr(whole, err->rule), "line %d: \"%s\"", line, whole);
    if (err->has_numbers) {
        snprintf(number, sizeof number, "%lld", (long long)err->got);
        CHECKF(strstr(whole, number) != 0, "line %d: no %s in \"%s\"", line, number, whole);
        snprintf(number, sizeof number, "%lld", (long long)err->want);
        CHECKF(strstr(whole, number) != 0, "line %d: no %s in \"%s\"", line, number, whole);
    }
    CHECKF(attn_error_string(err, 0, 0) == length, "line %d: length without text", line);
    for (size_t size = 0; size < length + 3; size++) {
        memset(cut, 'x', sizeof cut);
        int ok = attn_error_string(err, cut, size) == length && cut[size] == 'x';
        if (size > 0) ok &= strlen(cut) == (length < size ? length : size - 1) && !strncmp(cut, whole, strlen(cut));
        CHECKF(ok, "line %d: cut at %lu: \"%.*s\"", line, (unsigned long)size, (int)size, cut);
    }
}

static void check_error(attn_status got, const attn_error *err, attn_status want, const char *field, int line) {
    CHECKF(got == want, "line %d: status \"%s\", want \"%s\" (%s %s)", line, attn_status_string(got),
           attn_status_string(want), err->field ? err->field : "?", err->rule ? err->rule : "?");
    if (got == ATTN_OK || !CHECKF(err->field && err->rule, "line %d: field and rule", line)) return;
    CHECKF(err->status == (int32_t)got, "line %d: err.status %d, returned %d", line, (int)err->status, (int)got);
    CHECKF(!strcmp(err->field, field), "line %d: field \"%s\", want \"%s\" (%s)", line, err->field, field, err->rule);
    CHECKF(is_field(err->field), "line %d: \"%s\" is no field", line, err->field);
    CHECKF(strlen(err->rule) > 5, "line %d: rule \"%s\"", line, err->rule);
    CHECKF(!err->has_numbers || err->got != err->want || want == ATTN_ERR_RANGE, "line %d: the two numbers are equal",
           line);
    check_text(err, line);
}

static void poison_error(attn_error *err) { memset(err, 0xEE, sizeof *err); }

static void check_unwritten(int line) {
    if (!CHECKF(!unpainted(), "line %d: a refused call wrote to an output", line)) paint();
}

static void refused(const attn_desc *d, attn_status want, const char *field, int line) {
    attn_error err;
    attn_plan plan;
    char text[400];
    poison_error(&err);
    check_error(attn_forward(d, &err), &err, want, field, line);
    check_unwritten(line);
    CHECKF(attn_forward(d, 0) == want, "line %d: another status without err", line);
    if (want != ATTN_ERR_WORKSPACE && want != ATTN_ERR_ALLOC && strcmp(field, "workspace") != 0) {
        poison_error(&err);
        check_error(attn_plan_forward(d, &plan, &err), &err, want, field, line);
    }
    CHECKF(attn_explain(d, text, sizeof text) > 10, "line %d: nothing explained", line);
    check_unwritten(line);
}

/* One change to a call that is accepted without it. */
#define REFUSED(from, status, field, change) \
    do { \
        attn_desc d = from(); \
        change; \
        refused(&d, status, field, __LINE__); \
    } while (0)
#define ACCEPTED(from, change) \
    do { \
        attn_desc d = from(); \
        attn_error err; \
        change; \
        poison_error(&err); \
        if (!CHECK_STATUS(attn_forward(&d, &err), ATTN_OK)) printf("        %s %s\n", err.field, err.rule); \
        CHECK(err.status == ATTN_OK && !*err.field && !*err.rule); \
    } while (0)

static void test_accepted(void) { /* what the changes below start from */
    ACCEPTED(valid, (void)0);
    ACCEPTED(additive, (void)0);
    ACCEPTED(bilinear, (void)0);
    ACCEPTED(given, (void)0);
    ACCEPTED(gaussian, (void)0);
    ACCEPTED(gaussian, d.sigma = 0.5f);
    ACCEPTED(gaussian, d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0));
    ACCEPTED(valid, d.scale_set = 1);
    ACCEPTED(valid, memset(&d.v, 0, sizeof d.v); memset(&d.out, 0, sizeof d.out));
    ACCEPTED(valid, d.dropout = 1);
    ACCEPTED(valid, d.mask = mask(1, SK, 0, 0, 0));
    ACCEPTED(valid, d.mask = mask(4, B, 1, SQ, 1));
    ACCEPTED(valid, d.window = 1; d.window_left = ATTN_UNBOUNDED; d.window_right = 0; d.align = ATTN_ALIGN_TOP_LEFT);
    ACCEPTED(valid, d.window = 1; d.window_left = INT64_MAX; d.window_right = INT64_MAX;
             d.align = ATTN_ALIGN_BOTTOM_RIGHT);
    ACCEPTED(valid, d.weights_after_dropout = 1; d.dropout = 0.5f);
    ACCEPTED(valid, d.weights_after_dropout = 1; memset(&d.weights, 0, sizeof d.weights)); /* as in evaluation */
    ACCEPTED(valid, d.seed = 7; d.dropout_origin[2] = 5; d.align = ATTN_ALIGN_BOTTOM_RIGHT);
}

static void test_null(void) {
    attn_error err;
    attn_plan plan;
    attn_desc fine = valid();
    size_t bytes;
    poison_error(&err);
    check_error(attn_forward(0, &err), &err, ATTN_ERR_NULL, "desc", __LINE__);
    poison_error(&err);
    check_error(attn_plan_forward(&fine, 0, &err), &err, ATTN_ERR_NULL, "plan", __LINE__);
    check_error(attn_plan_forward(0, &plan, &err), &err, ATTN_ERR_NULL, "desc", __LINE__);
    check_error(attn_workspace_size(&fine, 0, &err), &err, ATTN_ERR_NULL, "bytes", __LINE__);
    check_error(attn_workspace_size(0, &bytes, &err), &err, ATTN_ERR_NULL, "desc", __LINE__);
    REFUSED(valid, ATTN_ERR_NULL, "q", memset(&d.q, 0, sizeof d.q));
    REFUSED(valid, ATTN_ERR_NULL, "k", memset(&d.k, 0, sizeof d.k));
    REFUSED(valid, ATTN_ERR_NULL, "v", memset(&d.v, 0, sizeof d.v));
    REFUSED(valid, ATTN_ERR_NULL, "q.data", d.q.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "k.data", d.k.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "v.data", d.v.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "out.data", d.out.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "lse.data", d.lse.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "weights.data", d.weights.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "scores.data", d.scores.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "scores_softcap.data", d.scores_softcap.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "scores_masked.data", d.scores_masked.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "stats.data", d.stats.data = 0);
    REFUSED(valid, ATTN_ERR_NULL, "bias.data", d.bias = attn_view_f32(0, 1, SK, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_NULL, "mask.data", d.mask = attn_view_u8(0, 1, SK, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_NULL, "alibi.data", d.alibi = attn_view_f32(0, 1, H, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_NULL, "sink.data", d.sink = attn_view_f32(0, 1, H, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_NULL, "key_lengths.data", d.key_lengths = attn_view_i32(0, 1, B, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_NULL, "query_lengths.data", d.query_lengths = attn_view_i64(0, 1, B, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_NULL, "positions.data", d.align = ATTN_ALIGN_POSITIONS;
            d.positions = attn_view_i32(0, 1, B, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_NULL, "positions", d.align = ATTN_ALIGN_POSITIONS);
    REFUSED(bilinear, ATTN_ERR_NULL, "bilinear", memset(&d.bilinear, 0, sizeof d.bilinear));
    REFUSED(bilinear, ATTN_ERR_NULL, "bilinear.data", d.bilinear.data = 0);
    REFUSED(additive, ATTN_ERR_NULL, "w_v", memset(&d.w_v, 0, sizeof d.w_v));
    REFUSED(additive, ATTN_ERR_NULL, "w_q.data", d.w_q.data = 0);
    REFUSED(additive, ATTN_ERR_NULL, "w_k.data", d.w_k.data = 0);
    REFUSED(additive, ATTN_ERR_NULL, "w_v.data", d.w_v.data = 0);
    REFUSED(additive, ATTN_ERR_NULL, "hidden_bias.data", d.hidden_bias.data = 0);
    REFUSED(given, ATTN_ERR_NULL, "given_scores", memset(&d.given_scores, 0, sizeof d.given_scores));
    REFUSED(given, ATTN_ERR_NULL, "given_scores.data", d.given_scores.data = 0);
    REFUSED(gaussian, ATTN_ERR_NULL, "sigma_per_head.data", d.sigma_per_head = attn_view_f32(0, 1, H, 0, 0, 0));
}

static void *no_memory(void *user, size_t bytes) {
    (void)user;
    (void)bytes;
    return 0;
}
static void no_release(void *user, void *block) {
    (void)block;
    ++*(int *)user;
}

static void test_hooks(void) {
    int released = 0;
    size_t bytes = 0;
    char small[16];
    attn_plan plan;
    attn_desc nothing = valid();
    no_results(&nothing);
    refused(&nothing, ATTN_ERR_NULL, "out", __LINE__); /* no result at all */
    REFUSED(valid, ATTN_ERR_NULL, "allocator", d.allocator.allocate = no_memory);
    REFUSED(valid, ATTN_ERR_NULL, "allocator", d.allocator.release = no_release);
    REFUSED(valid, ATTN_ERR_ALLOC, "workspace", d.allocator.allocate = no_memory; d.allocator.release = no_release;
            d.allocator.user = &released);
    CHECK(released == 0);
    nothing = valid();
    CHECK_STATUS(attn_workspace_size(&nothing, &bytes, 0), ATTN_OK);
    CHECK(bytes > sizeof small);
    REFUSED(valid, ATTN_ERR_WORKSPACE, "workspace_bytes", d.workspace = small; d.workspace_bytes = sizeof small);
    REFUSED(valid, ATTN_ERR_WORKSPACE, "workspace_bytes", d.workspace = small; d.workspace_bytes = bytes - 1);
    REFUSED(valid, ATTN_ERR_WORKSPACE, "workspace_bytes", d.workspace = small);
    REFUSED(valid, ATTN_ERR_NULL, "workspace", d.workspace_bytes = bytes); /* it would allocate, silently */
    REFUSED(valid, ATTN_ERR_NULL, "workspace", d.workspace_bytes = 1);
    nothing.workspace_bytes = 1; /* which counts in no size query and no plan */
    CHECK_STATUS(attn_workspace_size(&nothing, &bytes, 0), ATTN_OK);
    CHECK_STATUS(attn_plan_forward(&nothing, &plan, 0), ATTN_OK);
    REFUSED(valid, ATTN_ERR_RANGE, "parallel.workers", d.parallel.workers = -1);
    REFUSED(valid, ATTN_ERR_OVERFLOW, "workspace", d.parallel.workers = INT32_MAX;
            d.v.size[3] = d.out.size[3] = (int64_t)1 << 50; memset(&d.v.stride, 0, sizeof d.v.stride);
            d.out.size[0] = 1; d.out.size[1] = 1; d.out.size[2] = 1; d.q.size[0] = d.k.size[0] = d.v.size[0] = 1;
            d.q.size[1] = d.k.size[1] = d.v.size[1] = 1; d.q.size[2] = 1; memset(&d.lse, 0, sizeof d.lse);
            memset(&d.weights, 0, sizeof d.weights); memset(&d.scores, 0, sizeof d.scores);
            memset(&d.scores_softcap, 0, sizeof d.scores_softcap); memset(&d.scores_masked, 0, sizeof d.scores_masked);
            memset(&d.stats, 0, sizeof d.stats));
}

static void test_type(void) {
    static const int32_t floats_not_here[] = {ATTN_F64, ATTN_I8};
    static const int32_t not_floats[] = {ATTN_U8, ATTN_I32, ATTN_I64, ATTN_TYPE_COUNT, -1, INT32_MAX, INT32_MIN};
    static const int32_t not_f32[] = {ATTN_F16, ATTN_BF16, ATTN_F64, ATTN_I8};
    for (int i = 0; i < 4; i++) {
        REFUSED(valid, ATTN_ERR_TYPE, "lse.type", d.lse.type = not_f32[i]);
        REFUSED(valid, ATTN_ERR_TYPE, "stats.type", d.stats.type = not_f32[i]);
    }
    for (int i = 0; i < 2; i++) {
        REFUSED(valid, ATTN_ERR_TYPE, "q.type", d.q.type = floats_not_here[i]);
        REFUSED(valid, ATTN_ERR_TYPE, "out.type", d.out.type = floats_not_here[i]);
        REFUSED(valid, ATTN_ERR_TYPE, "bias.type", d.bias = floats(1, SK, 0, 0, 0); d.bias.type = floats_not_here[i]);
    }
    for (int i = 0; i < 7; i++) {
        REFUSED(valid, ATTN_ERR_TYPE, "k.type", d.k.type = not_floats[i]);
        REFUSED(valid, ATTN_ERR_TYPE, "v.type", d.v.type = not_floats[i]);
        REFUSED(valid, ATTN_ERR_TYPE, "lse.type", d.lse.type = not_floats[i]);
        REFUSED(valid, ATTN_ERR_TYPE, "weights.type", d.weights.type = not_floats[i]);
        REFUSED(valid, ATTN_ERR_TYPE, "sink.type", d.sink = floats(1, H, 0, 0, 0); d.sink.type = not_floats[i]);
        REFUSED(additive, ATTN_ERR_TYPE, "w_v.type", d.w_v.type = not_floats[i]);
        if (not_floats[i] != ATTN_U8)
            REFUSED(valid, ATTN_ERR_TYPE, "mask.type", d.mask = mask(1, SK, 0, 0, 0); d.mask.type = not_floats[i]);
    }
    REFUSED(valid, ATTN_ERR_TYPE, "mask.type", d.mask = floats(1, SK, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_TYPE, "key_lengths.type", d.key_lengths = floats(1, B, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_TYPE, "query_lengths.type", d.query_lengths = mask(1, B, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_TYPE, "positions.type", d.align = ATTN_ALIGN_POSITIONS;
            d.positions = floats(1, B, 0, 0, 0));
}

/* Keys and values as codes, with their scales. */
static void codes(attn_desc *d) {
    d->k.type = ATTN_I8;
    d->k_scale = floats(4, B, d->k.size[1], SK, 1);
}
static void test_scales(void) {
    ACCEPTED(valid, codes(&d));
    ACCEPTED(valid, codes(&d); d.k_scale.type = ATTN_F16);
    REFUSED(valid, ATTN_ERR_NULL, "k_scale", d.k.type = ATTN_I8);
    REFUSED(valid, ATTN_ERR_NULL, "v_scale", d.v.type = ATTN_I8);
    REFUSED(valid, ATTN_ERR_NULL, "k_scale.data", codes(&d); d.k_scale.data = 0);
    REFUSED(valid, ATTN_ERR_OPTION, "k_scale", codes(&d); d.k.type = ATTN_F32);
    REFUSED(valid, ATTN_ERR_OPTION, "v_scale", codes(&d); d.v_scale = d.k_scale);
    REFUSED(valid, ATTN_ERR_TYPE, "k_scale.type", codes(&d); d.k_scale.type = ATTN_BF16);
    REFUSED(valid, ATTN_ERR_TYPE, "k_scale.type", codes(&d); d.k_scale.type = ATTN_I8);
    REFUSED(valid, ATTN_ERR_RANK, "k_scale.rank", codes(&d); d.k_scale.rank = 3);
    REFUSED(valid, ATTN_ERR_SIZE, "k_scale.size[3]", codes(&d); d.k_scale.size[3] = 2);
    REFUSED(valid, ATTN_ERR_SIZE, "k_scale.size[3]", codes(&d); d.k_scale.size[3] = 0);
    REFUSED(valid, ATTN_ERR_SIZE, "k_scale.size[2]", codes(&d); d.k_scale.size[2]--);
    REFUSED(valid, ATTN_ERR_OVERLAP, "out", codes(&d); d.k_scale.data = d.out.data);
}

static void test_rank(void) {
    static const int32_t wrong[] = {-1, 5, INT32_MAX, INT32_MIN};
    REFUSED(valid, ATTN_ERR_RANK, "q.rank", d.q.rank = 3);
    REFUSED(valid, ATTN_ERR_RANK, "k.rank", d.k.rank = 2);
    REFUSED(valid, ATTN_ERR_RANK, "v.rank", d.v.rank = 1);
    REFUSED(valid, ATTN_ERR_RANK, "out.rank", d.out.rank = 3);
    REFUSED(valid, ATTN_ERR_RANK, "lse.rank", d.lse.rank = 4);
    REFUSED(valid, ATTN_ERR_RANK, "weights.rank", d.weights.rank = 3);
    REFUSED(valid, ATTN_ERR_RANK, "stats.rank", d.stats.rank = 3);
    REFUSED(valid, ATTN_ERR_RANK, "alibi.rank", d.alibi = floats(2, H, 1, 0, 0));
    REFUSED(valid, ATTN_ERR_RANK, "sink.rank", d.sink = floats(2, 1, H, 0, 0));
    REFUSED(valid, ATTN_ERR_RANK, "key_lengths.rank", d.key_lengths = attn_view_i32(m.ints, 3, B, 1, 1, 0));
    REFUSED(valid, ATTN_ERR_RANK, "query_lengths.rank", d.query_lengths = ints(2, B, SQ));
    REFUSED(valid, ATTN_ERR_RANK, "positions.rank", d.align = ATTN_ALIGN_POSITIONS;
            d.positions = attn_view_i32(m.ints, 3, B, SQ, 1, 0));
    REFUSED(bilinear, ATTN_ERR_RANK, "bilinear.rank", d.bilinear.rank = 1);
    REFUSED(bilinear, ATTN_ERR_RANK, "bilinear.rank", d.bilinear = floats(4, 1, 1, D, D));
    REFUSED(additive, ATTN_ERR_RANK, "w_q.rank", d.w_q.rank = 1);
    REFUSED(additive, ATTN_ERR_RANK, "w_k.rank", d.w_k.rank = 1);
    for (int32_t rank = 4; rank < 6; rank++) {
        REFUSED(additive, ATTN_ERR_RANK, "w_q.rank", d.w_q.rank = rank);
        REFUSED(additive, ATTN_ERR_RANK, "w_k.rank", d.w_k.rank = rank);
        REFUSED(bilinear, ATTN_ERR_RANK, "bilinear.rank", d.bilinear.rank = rank);
    }
    REFUSED(additive, ATTN_ERR_RANK, "w_v.rank", d.w_v.rank = 3);
    REFUSED(additive, ATTN_ERR_RANK, "hidden_bias.rank", d.hidden_bias.rank = 3);
    REFUSED(given, ATTN_ERR_RANK, "given_scores.rank", d.given_scores.rank = 3);
    REFUSED(gaussian, ATTN_ERR_RANK, "sigma_per_head.rank", d.sigma_per_head = floats(2, H, 1, 0, 0));
    for (int i = 0; i < 4; i++) {
        REFUSED(valid, ATTN_ERR_RANK, "q.rank", d.q.rank = wrong[i]);
        REFUSED(valid, ATTN_ERR_RANK, "k.rank", d.k.rank = wrong[i]);
        REFUSED(valid, ATTN_ERR_RANK, "v.rank", d.v.rank = wrong[i]);
        REFUSED(valid, ATTN_ERR_RANK, "out.rank", d.out.rank = wrong[i]);
        REFUSED(valid, ATTN_ERR_RANK, "mask.rank", d.mask = mask(4, 1, 1, 1, SK); d.mask.rank = wrong[i]);
        REFUSED(valid, ATTN_ERR_RANK, "bias.rank", d.bias = floats(4, 1, 1, 1, SK); d.bias.rank = wrong[i]);
    }
}

static void test_no_view(void) { /* what the functions that make views cannot do, the call that takes them refuses */
    static const int beyond[] = {-1, 4, INT32_MAX, INT32_MIN};
    static const int64_t range[][2] = {{-1, 2},        {0, -1},        {0, SK + 1},    {SK, 1},       {SK + 1, 0},
                                       {INT64_MAX, 1}, {1, INT64_MAX}, {INT64_MIN, 0}, {0, INT64_MIN}};
    attn_view none;
    memset(&none, 0, sizeof none);
    for (int i = 0; i < 4; i++) {
        REFUSED(valid, ATTN_ERR_RANK, "k.rank", d.k = attn_view_slice(d.k, beyond[i], 0, 1));
        REFUSED(valid, ATTN_ERR_RANK, "out.rank", d.out = attn_out_slice(d.out, beyond[i], 0, 1));
        REFUSED(valid, ATTN_ERR_RANK, "k.rank", d.k = attn_view_swap(d.k, beyond[i], 2));
        REFUSED(valid, ATTN_ERR_RANK, "k.rank", d.k = attn_view_swap(d.k, 2, beyond[i]));
        REFUSED(valid, ATTN_ERR_RANK, "k.rank", d.k = attn_view_swap(attn_view_slice(d.k, beyond[i], 0, 1), 0, 1));
        CHECK(attn_view_slice(none, beyond[i], 0, 1).rank == 0 && attn_view_swap(none, 0, beyond[i]).rank == 0);
        if (beyond[i] != 4) REFUSED(valid, ATTN_ERR_RANK, "q.rank", d.q = attn_view_qkv(m.q, beyond[i], B, SQ, H, D));
    }
    REFUSED(valid, ATTN_ERR_RANK, "q.rank", d.q = attn_view_qkv(m.q, 3, B, SQ, H, D));
    REFUSED(valid, ATTN_ERR_RANK, "bias.rank", d.bias = attn_view_slice(floats(2, SQ, SK, 0, 0), 2, 0, 1));
    REFUSED(valid, ATTN_ERR_RANK, "bias.rank", d.bias = attn_view_swap(floats(2, SQ, SK, 0, 0), 1, 2));
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        REFUSED(valid, ATTN_ERR_SIZE, "k.size[2]", d.k = attn_view_slice(d.k, 2, range[i][0], range[i][1]));
        REFUSED(valid, ATTN_ERR_SIZE, "k.size[2]",
                d.k = attn_view_slice(attn_view_slice(d.k, 2, range[i][0], range[i][1]), 2, 0, 0));
    }
    ACCEPTED(valid, d.k = attn_view_slice(d.k, 2, 0, SK); d.out = attn_out_slice(d.out, 0, 0, B));
}

static void test_size(void) {
    REFUSED(valid, ATTN_ERR_SIZE, "k.size[0]", d.k.size[0] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "k.size[1]", d.k.size[1] = 3);
    REFUSED(valid, ATTN_ERR_SIZE, "k.size[3]", d.k.size[3] = D - 1);
    REFUSED(valid, ATTN_ERR_SIZE, "v.size[0]", d.v.size[0] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "v.size[1]", d.v.size[1] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "v.size[2]", d.v.size[2] = SK - 1);
    REFUSED(valid, ATTN_ERR_SIZE, "out.size[0]", d.out.size[0] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "out.size[1]", d.out.size[1] = HKV);
    REFUSED(valid, ATTN_ERR_SIZE, "out.size[2]", d.out.size[2] = SQ - 1);
    REFUSED(valid, ATTN_ERR_SIZE, "out.size[3]", d.out.size[3] = DV - 1);
    REFUSED(valid, ATTN_ERR_SIZE, "lse.size[0]", d.lse.size[0] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "lse.size[1]", d.lse.size[1] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "lse.size[2]", d.lse.size[2] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "weights.size[2]", d.weights.size[2] = SQ - 1);
    REFUSED(valid, ATTN_ERR_SIZE, "weights.size[3]", d.weights.size[3] = SK - 1);
    REFUSED(valid, ATTN_ERR_SIZE, "scores.size[3]", d.scores.size[3] = SK - 1);
    REFUSED(valid, ATTN_ERR_SIZE, "stats.size[0]", d.stats.size[0] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "stats.size[2]", d.stats.size[2] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "stats.size[3]", d.stats.size[3] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "stats.size[3]", d.stats = attn_out_bhsd(m.gradients[0], B, H, SQ, 3));
    REFUSED(valid, ATTN_ERR_SIZE, "scores_softcap.size[1]", d.scores_softcap.size[1] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "scores_masked.size[0]", d.scores_masked.size[0] = 1);
    REFUSED(valid, ATTN_ERR_SIZE, "mask.size[0]", d.mask = mask(1, SK - 1, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_SIZE, "mask.size[0]", d.mask = mask(2, 2, SK, 0, 0));
    REFUSED(valid, ATTN_ERR_SIZE, "mask.size[1]", d.mask = mask(4, B, HKV, SQ, SK));
    REFUSED(valid, ATTN_ERR_SIZE, "bias.size[0]", d.bias = floats(3, HKV, SQ, SK, 0));
    REFUSED(valid, ATTN_ERR_SIZE, "bias.size[3]", d.bias = floats(4, B, H, SQ, SK + 1); d.bias.stride[0] = 0);
    REFUSED(valid, ATTN_ERR_SIZE, "alibi.size[0]", d.alibi = floats(1, HKV, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_SIZE, "sink.size[0]", d.sink = floats(1, 1, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_SIZE, "key_lengths.size[0]", d.key_lengths = ints(1, 1, 0));
    REFUSED(valid, ATTN_ERR_SIZE, "key_lengths.size[1]", d.key_lengths = ints(2, B, SQ - 1));
    REFUSED(valid, ATTN_ERR_SIZE, "query_lengths.size[0]", d.query_lengths = ints(1, SQ, 0));
    REFUSED(valid, ATTN_ERR_SIZE, "positions.size[0]", d.align = ATTN_ALIGN_POSITIONS; d.positions = ints(1, SQ, 0));
    REFUSED(valid, ATTN_ERR_SIZE, "positions.size[1]", d.align = ATTN_ALIGN_POSITIONS; d.positions = ints(2, B, 1));
    REFUSED(bilinear, ATTN_ERR_SIZE, "bilinear.size[0]", d.bilinear.size[0] = D - 1);
    REFUSED(bilinear, ATTN_ERR_SIZE, "bilinear.size[1]", d.bilinear.size[1] = D - 1);
    REFUSED(bilinear, ATTN_ERR_SIZE, "bilinear.size[0]", d.bilinear = floats(3, HKV, D, D, 0));
    REFUSED(additive, ATTN_ERR_SIZE, "w_q.size[0]", d.w_q.size[0] = HIDDEN - 1);
    REFUSED(additive, ATTN_ERR_SIZE, "w_q.size[1]", d.w_q.size[1] = D - 1);
    REFUSED(additive, ATTN_ERR_SIZE, "w_k.size[0]", d.w_k.size[0] = HIDDEN - 1);
    REFUSED(additive, ATTN_ERR_SIZE, "w_k.size[2]", d.w_k = floats(3, H, HIDDEN, D - 1, 0); d.w_k.stride[0] = 0);
    REFUSED(additive, ATTN_ERR_SIZE, "w_v.size[0]", d.w_v = floats(2, HKV, HIDDEN, 0, 0));
    REFUSED(additive, ATTN_ERR_SIZE, "hidden_bias.size[0]", d.hidden_bias.size[0] = 1);
    REFUSED(additive, ATTN_ERR_SIZE, "q.size[3]", memset(&d.w_q, 0, sizeof d.w_q));
    REFUSED(additive, ATTN_ERR_SIZE, "k.size[3]", memset(&d.w_k, 0, sizeof d.w_k));
    REFUSED(given, ATTN_ERR_SIZE, "v.size[1]", d.v.size[1] = 3; d.v.stride[1] = 0);
    REFUSED(given, ATTN_ERR_SIZE, "v.size[2]", d.v.size[2] = SK - 1);
    REFUSED(gaussian, ATTN_ERR_SIZE, "sigma_per_head.size[0]", d.sigma_per_head = floats(1, HKV, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_SIZE, "k.size[1]", d.k.size[1] = d.v.size[1] = 0);
    for (int axis = 0; axis < 4; axis++) { /* negative ones */
        static const char *const names[] = {"q.size[0]", "q.size[1]", "q.size[2]", "q.size[3]"};
        REFUSED(valid, ATTN_ERR_SIZE, names[axis], d.q.size[axis] = -1);
        REFUSED(valid, ATTN_ERR_SIZE, names[axis], d.q.size[axis] = INT64_MIN);
    }
    REFUSED(valid, ATTN_ERR_SIZE, "out.size[2]", d.out.size[2] = -1);
    REFUSED(valid, ATTN_ERR_SIZE, "mask.size[0]", d.mask = mask(1, -SK, 0, 0, 0));
}

static void test_stride(void) {
    REFUSED(valid, ATTN_ERR_STRIDE, "out.stride", d.out.stride[3] = 0);
    REFUSED(valid, ATTN_ERR_STRIDE, "out.stride", d.out.stride[2] = DV - 1);
    REFUSED(valid, ATTN_ERR_STRIDE, "out.stride", d.out.stride[2] = -(DV - 1));
    REFUSED(valid, ATTN_ERR_STRIDE, "out.stride", d.out.stride[0] = d.out.stride[1]);
    REFUSED(valid, ATTN_ERR_STRIDE, "lse.stride", d.lse.stride[0] = 0);
    REFUSED(valid, ATTN_ERR_STRIDE, "weights.stride", d.weights.stride[1] = 0);
    REFUSED(valid, ATTN_ERR_STRIDE, "scores.stride", d.scores.stride[2] = 1);
    REFUSED(valid, ATTN_ERR_STRIDE, "scores_softcap.stride", d.scores_softcap.stride[2] = 0);
    REFUSED(valid, ATTN_ERR_STRIDE, "scores_masked.stride", d.scores_masked.stride[3] = 0);
    REFUSED(valid, ATTN_ERR_STRIDE, "stats.stride", d.stats.stride[3] = 0);
    REFUSED(valid, ATTN_ERR_STRIDE, "scores.stride", d.scores.stride[2] = -1);
    ACCEPTED(valid, d.out.size[0] = 1; d.out.stride[0] = 0; d.q.size[0] = d.k.size[0] = d.v.size[0] = 1;
             d.lse.size[0] = 1; d.weights.size[0] = d.scores.size[0] = d.scores_softcap.size[0] =
                                    d.scores_masked.size[0] = d.stats.size[0] = 1); /* one entry */
    ACCEPTED(valid, d.out.data = m.out + (SQ - 1) * DV; d.out.stride[2] = -DV);     /* reversed */
    ACCEPTED(valid, memset(d.q.stride, 0, sizeof d.q.stride);
             memset(d.k.stride, 0, sizeof d.k.stride)); /* inputs may */
}

static void test_range(void) {
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    m.ints[0] = 0;
    for (int i = 0; i < 3; i++) {
        REFUSED(valid, ATTN_ERR_RANGE, "scale", d.scale = odd[i]);
        REFUSED(valid, ATTN_ERR_RANGE, "scale", d.scale = odd[i]; d.scale_set = 1);
        REFUSED(valid, ATTN_ERR_RANGE, "softcap", d.softcap = odd[i]);
        REFUSED(valid, ATTN_ERR_RANGE, "dropout", d.dropout = odd[i]);
        REFUSED(gaussian, ATTN_ERR_RANGE, "sigma", d.sigma = odd[i]);
        REFUSED(gaussian, ATTN_ERR_RANGE, "sigma_per_head", d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0);
                m.small[H - 1] = odd[i]);
    }
    REFUSED(valid, ATTN_ERR_RANGE, "softcap", d.softcap = -1);
    REFUSED(valid, ATTN_ERR_RANGE, "dropout", d.dropout = -FLT_MIN);
    REFUSED(valid, ATTN_ERR_RANGE, "dropout", d.dropout = 1 + FLT_EPSILON);
    REFUSED(gaussian, ATTN_ERR_RANGE, "sigma", d.sigma = -1);
    REFUSED(gaussian, ATTN_ERR_RANGE, "sigma_per_head", d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0);
            m.small[0] = 0);
    REFUSED(gaussian, ATTN_ERR_RANGE, "sigma_per_head", d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0);
            m.small[2] = -1);
    REFUSED(valid, ATTN_ERR_RANGE, "window_left", d.window = 1; d.window_left = -2);
    REFUSED(valid, ATTN_ERR_RANGE, "window_right", d.window = 1; d.window_right = -2);
    REFUSED(valid, ATTN_ERR_RANGE, "window_right", d.window = 1; d.window_right = INT64_MIN);
    REFUSED(valid, ATTN_ERR_RANGE, "key_lengths", d.key_lengths = ints(1, B, 0); m.ints[1] = -1);
    REFUSED(valid, ATTN_ERR_RANGE, "key_lengths", d.key_lengths = ints(1, B, 0); m.ints[1] = SK + 1);
    REFUSED(valid, ATTN_ERR_RANGE, "key_lengths", d.key_lengths = ints(2, B, SQ); m.ints[B * SQ - 1] = SK + 1);
    REFUSED(valid, ATTN_ERR_RANGE, "key_lengths", d.key_lengths = ints(2, B, SQ); m.ints[1] = INT32_MIN);
    REFUSED(valid, ATTN_ERR_RANGE, "query_lengths", d.query_lengths = ints(1, B, 0); m.ints[0] = SQ + 1);
    REFUSED(valid, ATTN_ERR_RANGE, "query_lengths", d.query_lengths = ints(1, B, 0); m.ints[1] = -1);
    ACCEPTED(valid, d.key_lengths = ints(1, B, 0); m.ints[1] = SK);
    ACCEPTED(valid, d.query_lengths = ints(1, B, 0); m.ints[1] = SQ);
    ACCEPTED(valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = ints(1, B, 0); m.ints[0] = INT32_MIN;
             m.ints[1] = INT32_MAX; d.causal = 1);
}

static void test_long_lengths(void) { /* beyond 32 bits, where half a number would be in range */
    static const int64_t far[] = {(int64_t)1 << 32, ((int64_t)1 << 32) + 1, -((int64_t)1 << 32), INT64_MAX, INT64_MIN};
    static const int64_t edge = (int64_t)1 << 62; /* of positions: what can still be added to */
    for (int i = 0; i < 5; i++) {
        int64_t lengths[B] = {1, far[i]};
        REFUSED(valid, ATTN_ERR_RANGE, "key_lengths", d.key_lengths = attn_view_i64(lengths, 1, B, 0, 0, 0));
        REFUSED(valid, ATTN_ERR_RANGE, "query_lengths", d.query_lengths = attn_view_i64(lengths, 1, B, 0, 0, 0));
        if (i < 3)
            ACCEPTED(valid, d.align = ATTN_ALIGN_POSITIONS; d.causal = d.window = 1;
                     d.positions = attn_view_i64(lengths, 1, B, 0, 0, 0));
        else
            REFUSED(valid, ATTN_ERR_RANGE, "positions", d.align = ATTN_ALIGN_POSITIONS;
                    d.positions = attn_view_i64(lengths, 1, B, 0, 0, 0));
    }
    for (int side = -1; side < 2; side += 2)
        for (int beyond = 0; beyond < 2; beyond++) {
            int64_t positions[B * SQ] = {0};
            positions[B * SQ - 1] = side * (edge + beyond);
            if (beyond)
                REFUSED(valid, ATTN_ERR_RANGE, "positions", d.align = ATTN_ALIGN_POSITIONS;
                        d.positions = attn_view_i64(positions, 2, B, SQ, 0, 0));
            else
                ACCEPTED(valid, d.align = ATTN_ALIGN_POSITIONS; d.alibi = floats(1, H, 0, 0, 0);
                         d.positions = attn_view_i64(positions, 2, B, SQ, 0, 0));
        }
}

/* As many queries as keys. */
static attn_desc square(void) {
    attn_desc d = valid();
    d.k.size[2] = d.v.size[2] = SQ;
    no_results(&d);
    d.out = attn_out_bhsd(m.out, B, H, SQ, DV);
    return d;
}

static void test_option(void) {
    static const int32_t other[] = {-1, 1000, INT32_MAX, INT32_MIN};
    for (int i = -1; i < 4; i++) {
#define UNKNOWN(count) (i < 0 ? (int32_t)(count) : other[i])
        REFUSED(valid, ATTN_ERR_OPTION, "score", d.score = UNKNOWN(ATTN_SCORE_COUNT));
        REFUSED(valid, ATTN_ERR_OPTION, "align", d.align = UNKNOWN(ATTN_ALIGN_COUNT));
        REFUSED(valid, ATTN_ERR_OPTION, "empty", d.empty = UNKNOWN(ATTN_EMPTY_COUNT));
        REFUSED(valid, ATTN_ERR_OPTION, "precision", d.precision = UNKNOWN(ATTN_PRECISION_COUNT));
        REFUSED(valid, ATTN_ERR_OPTION, "isa", d.isa = UNKNOWN(ATTN_ISA_COUNT));
#undef UNKNOWN
    }
    for (int i = 0; i < 6; i++) { /* a flag that looks like a number: window = 4 */
        static const int32_t no_flags[] = {2, 4, 3, -1, INT32_MAX, INT32_MIN};
        REFUSED(square, ATTN_ERR_OPTION, "causal", d.causal = no_flags[i]);
        REFUSED(square, ATTN_ERR_OPTION, "window", d.window = no_flags[i]);
        REFUSED(square, ATTN_ERR_OPTION, "window", d.window = no_flags[i]; d.window_left = 3);
        REFUSED(valid, ATTN_ERR_OPTION, "scale_set", d.scale_set = no_flags[i]);
        REFUSED(valid, ATTN_ERR_OPTION, "weights_after_dropout", d.weights_after_dropout = no_flags[i]);
    }
    REFUSED(valid, ATTN_ERR_OPTION, "reserved", d.reserved = 1);
    for (int32_t score = ATTN_SCORE_GAUSSIAN; score <= ATTN_SCORE_CONSTANT; score++) {
        REFUSED(valid, ATTN_ERR_OPTION, "scale", d.score = score; d.scale = 0.5f);
        REFUSED(valid, ATTN_ERR_OPTION, "scale", d.score = score; d.scale_set = 1);
    }
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) { /* parameters of another score */
        if (score == ATTN_SCORE_ADDITIVE || score == ATTN_SCORE_BILINEAR || score == ATTN_SCORE_GIVEN) continue;
        REFUSED(valid, ATTN_ERR_OPTION, "bilinear", d.score = score; d.bilinear = floats(2, D, D, 0, 0));
        REFUSED(valid, ATTN_ERR_OPTION, "w_q", d.score = score; d.w_q = floats(2, HIDDEN, D, 0, 0));
        REFUSED(valid, ATTN_ERR_OPTION, "w_k", d.score = score; d.w_k = floats(2, HIDDEN, D, 0, 0));
        REFUSED(valid, ATTN_ERR_OPTION, "w_v", d.score = score; d.w_v = floats(1, HIDDEN, 0, 0, 0));
        REFUSED(valid, ATTN_ERR_OPTION, "hidden_bias", d.score = score; d.hidden_bias = floats(1, HIDDEN, 0, 0, 0));
        REFUSED(valid, ATTN_ERR_OPTION, "given_scores", d.score = score; d.given_scores = floats(4, B, H, SQ, SK));
        if (score >= ATTN_SCORE_GAUSSIAN && score <= ATTN_SCORE_TRIANGULAR) continue;
        REFUSED(valid, ATTN_ERR_OPTION, "sigma", d.score = score; d.sigma = 1);
        REFUSED(valid, ATTN_ERR_OPTION, "sigma_per_head", d.score = score;
                d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0));
    }
    REFUSED(gaussian, ATTN_ERR_OPTION, "sigma", d.sigma = 1; d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0));
    REFUSED(given, ATTN_ERR_OPTION, "q", d.q = attn_view_bhsd(m.q, B, H, SQ, D));
    REFUSED(given, ATTN_ERR_OPTION, "k", d.k = attn_view_bhsd(m.k, B, HKV, SK, D));
    REFUSED(valid, ATTN_ERR_OPTION, "align", d.positions = ints(1, B, 0));
    REFUSED(valid, ATTN_ERR_OPTION, "align", d.positions = ints(1, B, 0); d.align = ATTN_ALIGN_BOTTOM_RIGHT);
    REFUSED(valid, ATTN_ERR_OPTION, "window_left", d.window_left = -77); /* what is set and cannot count */
    REFUSED(valid, ATTN_ERR_OPTION, "window_left", d.window_left = ATTN_UNBOUNDED);
    REFUSED(valid, ATTN_ERR_OPTION, "window_right", d.window_right = 1);
    REFUSED(valid, ATTN_ERR_OPTION, "weights_after_dropout", d.weights_after_dropout = 1; d.dropout = 0.5f;
            memset(&d.weights, 0, sizeof d.weights));
    REFUSED(valid, ATTN_ERR_RANK, "mask.rank", d.mask.data = m.mask);
    REFUSED(valid, ATTN_ERR_RANK, "query_starts.rank", d.query_starts.data = m.ints);
    REFUSED(valid, ATTN_ERR_RANK, "key_starts.rank", d.key_starts.data = m.ints);
    REFUSED(valid, ATTN_ERR_RANK, "page_table.rank", d.page_table.data = m.ints);
    REFUSED(valid, ATTN_ERR_RANK, "carry_in.rank", d.carry_in.data = m.small);
    REFUSED(valid, ATTN_ERR_RANK, "carry_out.rank", d.carry_out.data = m.raw);
    REFUSED(valid, ATTN_ERR_RANK, "q.rank", d.q.rank = 0);
    REFUSED(valid, ATTN_ERR_RANK, "out.rank", d.out.rank = 0);
}

/* Which key a query sits at is not guessed where it matters and Sq != Sk; every choice is, where Sq == Sk. */
static attn_view slopes(void) { return attn_view_f32(m.small, 1, H, 0, 0, 0); }
static void test_align(void) {
    for (int32_t align = ATTN_ALIGN_UNSET; align < ATTN_ALIGN_COUNT; align++) {
        attn_view p = ints(1, B, 0);
        if (align != ATTN_ALIGN_POSITIONS) memset(&p, 0, sizeof p);
        ACCEPTED(valid, d.align = align; d.positions = p);
        ACCEPTED(square, d.align = align; d.positions = p; d.causal = d.window = 1; d.alibi = slopes());
        ACCEPTED(square, d.align = align; d.positions = p; d.causal = 1; d.key_lengths = ints(1, B, 0); m.ints[0] = 1);
        ACCEPTED(valid, d.align = align; d.positions = p; d.window = 1;
                 d.window_left = d.window_right = ATTN_UNBOUNDED);
        if (align == ATTN_ALIGN_UNSET) continue;
        ACCEPTED(valid, d.align = align; d.positions = p; d.causal = d.window = 1; d.alibi = slopes());
    }
    REFUSED(valid, ATTN_ERR_OPTION, "align", d.causal = 1);
    REFUSED(valid, ATTN_ERR_OPTION, "align", d.alibi = slopes());
    REFUSED(valid, ATTN_ERR_OPTION, "align", d.window = 1; d.window_left = ATTN_UNBOUNDED);
    REFUSED(valid, ATTN_ERR_OPTION, "align", d.window = 1; d.window_right = ATTN_UNBOUNDED);
    REFUSED(valid, ATTN_ERR_OPTION, "align", d.causal = 1; d.key_lengths = ints(1, B, 0); m.ints[0] = m.ints[1] = SQ);
    REFUSED(given, ATTN_ERR_OPTION, "align", d.causal = 1);
    REFUSED(valid, ATTN_ERR_OPTION, "align", d.causal = 1; d.q.size[2] = 0; no_results(&d);
            d.out = attn_out_bhsd(m.out, B, H, 0, DV)); /* a call without a row, too */
}

static void test_align_of_pieces(void) {
    attn_desc fine = valid(); /* fills and paints the memory */
    attn_error err;
    attn_desc options;
    attn_out out = attn_out_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SK),
             as_many = attn_out_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SQ);
    attn_view x = floats(2, SQ, SK, 0, 0);
    (void)fine;
    memset(&options, 0, sizeof options);
    options.causal = 1;
    CHECK_STATUS(attn_mask(out, &options, &err), ATTN_ERR_OPTION);
    CHECK(!strcmp(err.field, "align") && strstr(err.rule, "ATTN_ALIGN_TOP_LEFT") && strstr(err.rule, "decode"));
    CHECK(!unpainted());
    CHECK_STATUS(attn_mask(as_many, &options, &err), ATTN_OK);
    paint();
    CHECK_STATUS(attn_softmax(x, attn_out_f32(m.weights, 2, SQ, SK, 0, 0), &options, &err), ATTN_ERR_OPTION);
    CHECK(!strcmp(err.field, "align") && !unpainted());
    CHECK_STATUS(attn_softmax(floats(2, SQ, SQ, 0, 0), attn_out_f32(m.weights, 2, SQ, SQ, 0, 0), &options, &err),
                 ATTN_OK);
    memset(&options, 0, sizeof options);
    options.alibi = slopes(); /* does not count in a mask */
    CHECK_STATUS(attn_mask(out, &options, &err), ATTN_OK);
}

/* Sizes whose product no 64 bits hold make a view that is refused, and so is each part of it; no data moves. */
static void test_huge_views(void) {
    const int64_t n = (int64_t)1 << 40;
    attn_view v[6];
    v[0] = attn_view_f32(m.q, 3, n, n, 1, 0);
    v[1] = attn_view_bhsd(m.q, n, 1, n, 1);
    v[2] = attn_view_bshd(m.q, 1, n, n, n);
    v[3] = attn_view_qkv(m.q, 2, 1, 1, n, n);
    v[4] = attn_view_qkv(m.q, 1, n, (int64_t)1 << 19, 1, 1);
    v[5] = attn_view_rows(m.q, n, n, 1, 1, n);
    for (int i = 0; i < 6; i++) {
        attn_view parts[4];
        parts[0] = v[i];
        parts[1] = attn_view_slice(v[i], 0, 0, 1);
        parts[2] = attn_view_swap(attn_view_slice(attn_view_slice(v[i], 1, 0, 1), 2, 0, 1), 0, 1);
        parts[3] = attn_view_slice(v[i], 0, 0, 0);
        for (int part = 0; part < 4; part++) {
            CHECKF(parts[part].data == m.q, "view %d, part %d: data moved", i, part);
            REFUSED(valid, ATTN_ERR_OVERFLOW, "q", d.q = parts[part]);
        }
    }
    v[0] = attn_view_qkv(m.q, 2, 0, n, n, n); /* no element: legal, and nothing moves */
    CHECK(v[0].data == m.q && v[0].rank == 4);
}

/* Calls without an element return at once, however many rows of none there are. */
static void test_no_elements(void) {
    const int64_t n = (int64_t)1 << 40;
    attn_desc options;
    attn_out mask_out = attn_out_u8((uint8_t *)m.raw, 4, 1, 1, n, 0), merged = attn_out_bhsd(m.out, 1, 1, n, 0), none;
    attn_view rows = attn_view_bhsd(m.q, 1, 1, n, 0), lse = attn_view_f32(m.q, 3, 1, 1, n, 0);
    memset(&options, 0, sizeof options);
    memset(&none, 0, sizeof none);
    lse.stride[2] = 0;
    CHECK_STATUS(attn_mask(mask_out, &options, 0), ATTN_OK);
    CHECK_STATUS(attn_dropout_mask(mask_out, &options, 0), ATTN_OK);
    CHECK_STATUS(attn_merge(rows, lse, rows, lse, merged, none, 0), ATTN_OK);
}

static void test_missing_isa(void) {
    int missing = 0;
    for (int isa = ATTN_ISA_AUTO + 1; isa < ATTN_ISA_COUNT; isa++) {
        float x = 1, y = 7;
        if (attn_elementary(ATTN_EXP, &x, &y, 1, (attn_isa)isa) == ATTN_OK) continue;
        missing++;
        CHECK_STATUS(attn_elementary(ATTN_EXP, &x, &y, 1, (attn_isa)isa), ATTN_ERR_ISA);
        CHECK(y == 7);
        REFUSED(valid, ATTN_ERR_ISA, "isa", d.isa = isa);
    }
    if (!missing) test_skip("this machine has every instruction set: ATTN_ERR_ISA was not provoked");
    CHECK(ATTN_ISA_COUNT == 6);
}

static void test_overflow(void) {
    static const int64_t huge[] = {(int64_t)1 << 62, (int64_t)1 << 61, INT64_MAX, ((int64_t)1 << 62) + 1};
    for (int i = 0; i < 4; i++) {
        REFUSED(valid, ATTN_ERR_OVERFLOW, "q", d.q.size[0] = huge[i]);
        REFUSED(valid, ATTN_ERR_OVERFLOW, "q", d.q.size[0] = d.q.size[1] = d.q.size[2] = d.q.size[3] = huge[i]);
        REFUSED(valid, ATTN_ERR_OVERFLOW, "k", d.k.size[2] = huge[i]);
        REFUSED(valid, ATTN_ERR_OVERFLOW, "out", d.out.size[3] = huge[i]);
        REFUSED(valid, ATTN_ERR_OVERFLOW, "mask", d.mask = mask(2, huge[i], SK, 0, 0));
        REFUSED(valid, ATTN_ERR_OVERFLOW, "q.stride", d.q.stride[0] = huge[i]);
        REFUSED(valid, ATTN_ERR_OVERFLOW, "q.stride", d.q.stride[0] = -huge[i]);
        REFUSED(valid, ATTN_ERR_OVERFLOW, "out.stride", d.out.stride[1] = huge[i]);
        REFUSED(valid, ATTN_ERR_OVERFLOW, "weights.stride", d.weights.stride[2] = -huge[i]);
    }
    for (int64_t off = 0; off <= 600; off += 100) /* bytes: an extent of 2^62, and somewhat more */
        REFUSED(valid, ATTN_ERR_OVERFLOW, "mask.stride", d.mask = mask(2, SQ, SK, 0, 0);
                d.mask.stride[0] = (((int64_t)1 << 62) + off) / (SQ - 1));
    for (int64_t half = (int64_t)1 << 61; half < INT64_MAX / 2 - SK; half += (int64_t)1 << 57) /* and up to 2^63 */
        REFUSED(valid, ATTN_ERR_OVERFLOW, "mask.stride", d.mask = mask(2, SQ, SK, 0, 0); d.mask.stride[0] = half);
    REFUSED(valid, ATTN_ERR_OVERFLOW, "q.stride", d.q.stride[0] = INT64_MIN);
    REFUSED(valid, ATTN_ERR_OVERFLOW, "v.stride", d.v.stride[0] = (int64_t)1 << 61;
            d.v.stride[1] = -((int64_t)1 << 61));
    REFUSED(valid, ATTN_ERR_OVERFLOW, "key_lengths.stride", d.key_lengths = ints(1, B, 0);
            d.key_lengths.stride[0] = INT64_MIN);
    /* broadcast inputs reach little memory, but their scores cannot be counted */
    REFUSED(valid, ATTN_ERR_OVERFLOW, "k", d.q.size[2] = (int64_t)1 << 40; memset(d.q.stride, 0, sizeof d.q.stride);
            d.k.size[2] = d.v.size[2] = (int64_t)1 << 40; memset(d.k.stride, 0, sizeof d.k.stride);
            memset(d.v.stride, 0, sizeof d.v.stride); no_results(&d);
            d.lse = attn_out_f32(m.lse, 3, B, H, (int64_t)1 << 40, 0));
}

static void test_most_elements(void) { /* a view may have one less than 2^60, though so many scores are too many */
    for (int more = 0; more < 2; more++) {
        attn_desc d;
        attn_error err;
        size_t bytes;
        memset(&d, 0, sizeof d);
        d.q = attn_view_bhsd(0, 1, 1, ((int64_t)1 << 60) - 1 + more, 1);
        d.k = attn_view_bhsd(0, 1, 1, 1, 1);
        d.lse = attn_out_f32(0, 3, 1, 1, d.q.size[2], 0);
        poison_error(&err);
        check_error(attn_workspace_size(&d, &bytes, &err), &err, ATTN_ERR_OVERFLOW, more ? "q" : "k", __LINE__);
    }
}

/* The product counts, not a size: 2^15 along every axis is refused, one less along the last is not. */
static void test_many_small_sizes(void) {
    const int64_t n = (int64_t)1 << 15;
    for (int less = 0; less < 2; less++) {
        attn_desc d;
        attn_error err;
        size_t bytes;
        memset(&d, 0, sizeof d);
        d.q = d.k = attn_view_bhsd(0, 1, 1, 1, 1);
        for (int i = 0; i < 4; i++) {
            d.q.size[i] = i == 3 ? n - less : n;
            d.k.size[i] = i == 2 ? 1 : d.q.size[i];
            d.q.stride[i] = d.k.stride[i] = 0;
        }
        d.lse = attn_out_f32(0, 3, n, n, n, 0);
        poison_error(&err);
        if (less) CHECK_STATUS(attn_workspace_size(&d, &bytes, &err), ATTN_OK);
        else check_error(attn_workspace_size(&d, &bytes, &err), &err, ATTN_ERR_OVERFLOW, "q", __LINE__);
    }
}

static void test_overflow_workspace(void) { /* sizes that no data backs: refused or priced, without a crash */
    for (int axis = 0; axis < 4; axis++) {
        for (int bits = 20; bits < 63; bits++) {
            attn_desc d = valid();
            attn_error err;
            size_t bytes = 12345;
            d.q.size[axis] = d.k.size[axis] = d.v.size[axis] = (int64_t)1 << bits;
            no_results(&d);
            memset(d.q.stride, 0, sizeof d.q.stride);
            memset(d.k.stride, 0, sizeof d.k.stride);
            memset(d.v.stride, 0, sizeof d.v.stride);
            poison_error(&err);
            attn_status status = attn_workspace_size(&d, &bytes, &err);
            CHECKF(status == ATTN_OK || status == ATTN_ERR_OVERFLOW, "axis %d, 2^%d: %s", axis, bits,
                   attn_status_string(status));
            CHECKF(status == ATTN_OK || bytes == 12345, "axis %d, 2^%d: bytes written on error", axis, bits);
            CHECKF(err.status == (int32_t)status, "axis %d, 2^%d: err.status", axis, bits);
            CHECKF(bits < 60 || status == ATTN_ERR_OVERFLOW, "axis %d, 2^%d accepted", axis, bits);
            CHECKF(bits > 24 || status == ATTN_OK, "axis %d, 2^%d refused", axis, bits);
        }
    }
}

static void test_count(void) { /* scores that can just be counted, or whose longer axis alone could not be squared */
    static const int64_t sizes[][2] = {
        {(int64_t)15 << 26, (int64_t)1 << 30}, {1, (int64_t)1 << 40}, {(int64_t)1 << 40, 1}};
    for (int i = 0; i < 3; i++) {
        attn_desc d;
        size_t bytes;
        memset(&d, 0, sizeof d);
        d.q = attn_view_bhsd(0, 1, 1, sizes[i][0], 1);
        d.k = attn_view_bhsd(0, 1, 1, sizes[i][1], 1);
        d.lse = attn_out_f32(0, 3, 1, 1, sizes[i][0], 0);
        CHECK_STATUS(attn_workspace_size(&d, &bytes, 0), ATTN_OK);
    }
}

static void test_rules(void) { /* the sizes of the weights, each rule naming what it compares with */
    static const char *const rules[] = {"must equal q.size[0]", "must equal q.size[1]", "must equal q.size[2]",
                                        "must equal k.size[2]"};
    for (int axis = 0; axis < 4; axis++) {
        attn_desc d = valid();
        attn_error err;
        d.weights.size[axis]--;
        CHECK_STATUS(attn_forward(&d, &err), ATTN_ERR_SIZE);
        CHECKF(!strcmp(err.rule, rules[axis]), "weights.size[%d]: %s", axis, err.rule);
    }
}

static void test_overlap(void) {
    REFUSED(valid, ATTN_ERR_OVERLAP, "out", d.out.data = m.q);
    REFUSED(valid, ATTN_ERR_OVERLAP, "out", d.out.data = m.q + B * H * SQ * D - 1);
    REFUSED(valid, ATTN_ERR_OVERLAP, "out", d.out.data = m.k - 1);
    REFUSED(valid, ATTN_ERR_OVERLAP, "out", d.out.data = m.v);
    REFUSED(valid, ATTN_ERR_OVERLAP, "out", d.out.data = m.lse - 1);
    REFUSED(valid, ATTN_ERR_OVERLAP, "out", d.out.data = m.lse);
    REFUSED(valid, ATTN_ERR_OVERLAP, "lse", d.lse.data = m.weights);
    REFUSED(valid, ATTN_ERR_OVERLAP, "weights", d.weights.data = d.scores.data);
    REFUSED(valid, ATTN_ERR_OVERLAP, "scores", d.scores.data = d.scores_softcap.data);
    REFUSED(valid, ATTN_ERR_OVERLAP, "scores_softcap", d.scores_softcap.data = d.scores_masked.data);
    REFUSED(valid, ATTN_ERR_OVERLAP, "scores_masked", d.scores_masked.data = m.k);
    REFUSED(valid, ATTN_ERR_OVERLAP, "stats", d.stats.data = m.v);
    REFUSED(valid, ATTN_ERR_OVERLAP, "weights", d.bias = attn_view_f32(m.weights, 1, SK, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_OVERLAP, "weights",
            d.mask = attn_view_u8((uint8_t *)m.weights + 4 * SCORES - SK, 1, SK, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_OVERLAP, "lse", d.sink = attn_view_f32(m.lse, 1, H, 0, 0, 0));
    REFUSED(valid, ATTN_ERR_OVERLAP, "out", d.alibi = attn_view_f32(m.out, 1, H, 0, 0, 0);
            d.align = ATTN_ALIGN_BOTTOM_RIGHT);
    REFUSED(gaussian, ATTN_ERR_OVERLAP, "out", d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0);
            d.out.data = m.small);
    REFUSED(additive, ATTN_ERR_OVERLAP, "lse", d.lse.data = m.small);
    REFUSED(bilinear, ATTN_ERR_OVERLAP, "lse", d.lse.data = m.small + 1);
    REFUSED(given, ATTN_ERR_OVERLAP, "weights", d.weights.data = m.scores); /* in place only as attn_softmax does it */
    ACCEPTED(given, d.weights.data = m.scores; memset(&d.out, 0, sizeof d.out));
}

/* q, k, v and the output in one array [B,S,4,H,D], wherever in memory it begins: nothing overlaps, as long as the
   output stays in its slot. */
static void check_interleaved(float *packed, const float *copy) {
    enum { S = 3, N = 2, W = 4, ROW = 4 * N * W };
    float alone[B * S * N * W];
    attn_desc d;
    memcpy(packed, copy, B * S * ROW * sizeof *packed);
    memset(&d, 0, sizeof d);
    d.q = attn_view_rows(packed, B, S, N, W, ROW);
    d.k = attn_view_rows(packed + N * W, B, S, N, W, ROW);
    d.v = attn_view_rows(packed + 2 * N * W, B, S, N, W, ROW);
    d.out = attn_out_bshd(alone, B, S, N, W);
    CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
    d.out = attn_out_rows(packed + 3 * N * W, B, S, N, W, ROW);
    if (!CHECK_STATUS(attn_forward(&d, 0), ATTN_OK)) return;
    for (int token = 0; token < B * S; token++) {
        CHECK(!memcmp(packed + token * ROW, copy + token * ROW, 3 * N * W * sizeof *packed));
        CHECK(!memcmp(packed + token * ROW + 3 * N * W, alone + token * N * W, N * W * sizeof *packed));
    }
    d.out = attn_out_rows(packed + 3 * N * W - 1, B, S, N, W, ROW); /* one float into v */
    CHECK_STATUS(attn_forward(&d, 0), ATTN_ERR_OVERLAP);
    d.out = attn_out_rows(packed + 3 * N * W + 1, B, S, N, W, ROW); /* one float into the next token's q */
    CHECK_STATUS(attn_forward(&d, 0), ATTN_ERR_OVERLAP);
    d.q = d.k = d.v = attn_view_rows(copy, B, S, N, W, ROW); /* two outputs beside each other */
    d.out = attn_out_rows(packed, B, S, N, W, ROW);
    d.weights = attn_out_rows(packed + N * W, B, S, N, S, ROW);
    CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
    d.weights = attn_out_rows(packed + N * W - 1, B, S, N, S, ROW);
    CHECK_STATUS(attn_forward(&d, 0), ATTN_ERR_OVERLAP);
}

static void test_interleaved(void) {
    enum { ROW = 32, WHOLE = B * 3 * ROW };
    float packed[WHOLE + ROW], copy[WHOLE];
    set_floats(copy, WHOLE);
    for (int from = 0; from < ROW; from++) check_interleaved(packed + from, copy);
}

/* ---- empty tensors: no data is needed, and what belongs to them is still checked */
static void test_empty(void) {
    ACCEPTED(valid, d.q.size[0] = d.k.size[0] = d.v.size[0] = d.out.size[0] = d.lse.size[0] = d.weights.size[0] =
                        d.scores.size[0] = d.scores_softcap.size[0] = d.scores_masked.size[0] = d.stats.size[0] = 0;
             d.q.data = d.k.data = d.v.data = 0; d.out.data = d.lse.data = d.weights.data = d.scores.data = 0);
    ACCEPTED(valid, d.k.size[2] = d.v.size[2] = d.weights.size[3] = d.scores.size[3] = d.scores_softcap.size[3] =
                        d.scores_masked.size[3] = 0;
             d.k.data = d.v.data = 0);
    ACCEPTED(valid, d.q.size[3] = d.k.size[3] = 0; d.q.data = d.k.data = 0);
    ACCEPTED(valid, d.v.size[3] = d.out.size[3] = 0; d.v.data = 0; d.out.data = 0);
    REFUSED(valid, ATTN_ERR_SIZE, "k.size[0]", d.q.size[0] = 0);
    REFUSED(valid, ATTN_ERR_SIZE, "v.size[2]", d.k.size[2] = 0);
    REFUSED(valid, ATTN_ERR_SIZE, "k.size[3]", d.k.size[3] = 0);
}

/* What the entries of a batch have of its arrays. */
static struct {
    int32_t query_starts[2], query_lengths[2], key_starts[2], key_lengths[2], per_query[2 * SQ], table[4];
} seq;
static attn_view seq_ints(const int32_t *x) { return attn_view_i32(x, 1, B, 0, 0, 0); }

/* ---- the pieces name their own parameters */
static void test_pieces(void) {
    attn_error err;
    attn_view none, x = floats(2, SQ, SK, 0, 0), q, k;
    attn_out nowhere, o = attn_out_f32(m.weights, 2, SQ, SK, 0, 0),
                      bytes = attn_out_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SK);
    attn_desc d = valid(), options;
    size_t size;
    memset(&none, 0, sizeof none);
    memset(&nowhere, 0, sizeof nowhere);
    memset(&options, 0, sizeof options);
    q = d.q;
    k = d.k;
#define FAILS(call, status, field) \
    do { \
        poison_error(&err); \
        check_error(call, &err, status, field, __LINE__); \
        check_unwritten(__LINE__); \
    } while (0)
    FAILS(attn_softmax(none, o, 0, &err), ATTN_ERR_NULL, "x");
    FAILS(attn_softmax(x, nowhere, 0, &err), ATTN_ERR_NULL, "out");
    FAILS(attn_softmax(x, attn_out_f32(m.weights, 3, 1, SQ, SK, 0), 0, &err), ATTN_ERR_RANK, "out.rank");
    FAILS(attn_softmax(attn_view_f32(0, 2, SQ, SK, 0, 0), o, 0, &err), ATTN_ERR_NULL, "x.data");
    FAILS(attn_softmax(mask(2, SQ, SK, 0, 0), o, 0, &err), ATTN_ERR_TYPE, "x.type");
    FAILS(attn_softmax(x, attn_out_f32(m.weights, 2, SQ, SK - 1, 0, 0), 0, &err), ATTN_ERR_SIZE, "out.size[1]");
    FAILS(attn_softmax(x, attn_out_f32(m.weights, 2, SQ - 1, SK, 0, 0), 0, &err), ATTN_ERR_SIZE, "out.size[0]");
    FAILS(attn_softmax(x, attn_out_f32(m.scores + 1, 2, SQ, SK, 0, 0), 0, &err), ATTN_ERR_OVERLAP, "out");
    FAILS(attn_softmax_workspace_size(x, o, 0, 0, &err), ATTN_ERR_NULL, "bytes");
    options.dropout = 2;
    FAILS(attn_softmax(x, o, &options, &err), ATTN_ERR_RANGE, "dropout");
    FAILS(attn_dropout_mask(bytes, &options, &err), ATTN_ERR_RANGE, "dropout");
    options.dropout = NAN;
    FAILS(attn_dropout_mask(bytes, &options, &err), ATTN_ERR_RANGE, "dropout");
    options.dropout = 0;

    FAILS(attn_scores(q, k, nowhere, 0, &err), ATTN_ERR_NULL, "scores");
    FAILS(attn_scores(none, k, d.scores, 0, &err), ATTN_ERR_NULL, "q");
    FAILS(attn_scores(q, k, attn_out_f32(m.raw, 4, B, H, SK, SQ), 0, &err), ATTN_ERR_SIZE, "scores.size[2]");
    options.score = ATTN_SCORE_BILINEAR;
    FAILS(attn_scores(q, k, d.scores, &options, &err), ATTN_ERR_NULL, "bilinear");
    options.score = 0;

    FAILS(attn_mask(nowhere, 0, &err), ATTN_ERR_NULL, "mask");
    FAILS(attn_mask(attn_out_f32(m.raw, 4, 1, 1, SQ, SK), 0, &err), ATTN_ERR_TYPE, "mask.type");
    FAILS(attn_mask(attn_out_u8((uint8_t *)m.raw, 2, SQ, SK, 0, 0), 0, &err), ATTN_ERR_RANK, "mask.rank");
    FAILS(attn_mask(attn_out_u8(0, 4, 1, 1, SQ, SK), 0, &err), ATTN_ERR_NULL, "mask.data");
    options.key_lengths = ints(1, B, 0);
    FAILS(attn_mask(bytes, &options, &err), ATTN_ERR_SIZE, "key_lengths.size[0]");
    options.key_lengths = ints(1, 1, 0);
    m.ints[0] = SK + 1;
    FAILS(attn_mask(bytes, &options, &err), ATTN_ERR_RANGE, "key_lengths");
    memset(&options, 0, sizeof options);
    memset(&seq, 0, sizeof seq);
    options.query_starts = seq_ints(seq.query_starts);
    options.key_lengths = attn_view_i32(seq.per_query, 2, 1, SQ, 0, 0); /* of packed queries, which pictures are not */
    FAILS(attn_mask(attn_out_u8((uint8_t *)m.raw, 4, B, 1, SQ, SK), &options, &err), ATTN_ERR_SIZE,
          "key_lengths.size[0]");
    memset(&options, 0, sizeof options);
    options.mask = attn_view_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SK);
    FAILS(attn_mask(bytes, &options, &err), ATTN_ERR_OVERLAP, "mask");
    memset(&options, 0, sizeof options);
    bytes.stride[2] = 1;
    FAILS(attn_mask(bytes, &options, &err), ATTN_ERR_STRIDE, "mask.stride");
    FAILS(attn_dropout_mask(bytes, &options, &err), ATTN_ERR_STRIDE, "mask.stride");
    FAILS(attn_dropout_mask(nowhere, &options, &err), ATTN_ERR_NULL, "mask");

    FAILS(attn_bmm(none, x, o, 0, &err), ATTN_ERR_NULL, "a");
    FAILS(attn_bmm(x, none, o, 0, &err), ATTN_ERR_NULL, "b");
    FAILS(attn_bmm(x, attn_view_swap(x, 0, 1), nowhere, 0, &err), ATTN_ERR_NULL, "out");
    FAILS(attn_bmm(floats(1, SK, 0, 0, 0), x, o, 0, &err), ATTN_ERR_RANK, "a.rank");
    FAILS(attn_bmm(x, x, o, 0, &err), ATTN_ERR_SIZE, "b.size[0]");
    FAILS(attn_bmm(x, attn_view_swap(x, 0, 1), o, 0, &err), ATTN_ERR_SIZE, "out.size[1]");
    FAILS(attn_bmm(attn_view_swap(x, 0, 1), x, o, 0, &err), ATTN_ERR_SIZE, "out.size[0]");
    FAILS(attn_bmm(floats(3, 2, 2, 2, 0), floats(3, 3, 2, 2, 0), attn_out_f32(m.weights, 3, 2, 2, 2, 0), 0, &err),
          ATTN_ERR_SIZE, "b.size[0]");
    FAILS(attn_bmm(floats(3, 2, 2, 2, 0), floats(2, 2, 2, 0, 0), attn_out_f32(m.weights, 3, 3, 2, 2, 0), 0, &err),
          ATTN_ERR_SIZE, "out.size[0]");
    FAILS(attn_bmm(floats(2, 2, 2, 0, 0), floats(2, 2, 2, 0, 0), attn_out_f32(m.scores + 3, 2, 2, 2, 0, 0), 0, &err),
          ATTN_ERR_OVERLAP, "out");
    FAILS(attn_bmm(floats(2, 2, 2, 0, 0), floats(2, 2, (int64_t)1 << 61, 0, 0), attn_out_f32(m.weights, 2, 2, 2, 0, 0),
                   0, &err),
          ATTN_ERR_OVERFLOW, "b");
    FAILS(attn_bmm_workspace_size(x, x, o, 0, &size, &err), ATTN_ERR_SIZE, "b.size[0]");
    FAILS(attn_bmm_workspace_size(x, attn_view_swap(x, 0, 1), attn_out_f32(m.weights, 2, SQ, SQ, 0, 0), 0, 0, &err),
          ATTN_ERR_NULL, "bytes");
    options.isa = 99;
    FAILS(attn_bmm(x, attn_view_swap(x, 0, 1), attn_out_f32(m.weights, 2, SQ, SQ, 0, 0), &options, &err),
          ATTN_ERR_OPTION, "isa");
    options.isa = 0;
    options.workspace = m.mask;
    options.workspace_bytes = 1;
    FAILS(attn_bmm(x, attn_view_swap(x, 0, 1), attn_out_f32(m.weights, 2, SQ, SQ, 0, 0), &options, &err),
          ATTN_ERR_WORKSPACE, "workspace_bytes");

    x = floats(4, B, H, SQ, DV);
    q = floats(3, B, H, SQ, 0);
    o = attn_out_bhsd(m.out, B, H, SQ, DV);
    FAILS(attn_merge(none, q, x, q, o, nowhere, &err), ATTN_ERR_NULL, "out_a");
    FAILS(attn_merge(x, none, x, q, o, nowhere, &err), ATTN_ERR_NULL, "lse_a");
    FAILS(attn_merge(x, q, none, q, o, nowhere, &err), ATTN_ERR_NULL, "out_b");
    FAILS(attn_merge(x, q, x, none, o, nowhere, &err), ATTN_ERR_NULL, "lse_b");
    FAILS(attn_merge(x, q, x, q, nowhere, nowhere, &err), ATTN_ERR_NULL, "out");
    FAILS(attn_merge(q, q, x, q, o, nowhere, &err), ATTN_ERR_RANK, "out_a.rank");
    FAILS(attn_merge(x, x, x, q, o, nowhere, &err), ATTN_ERR_RANK, "lse_a.rank");
    FAILS(attn_merge(x, q, floats(4, B, H, SQ, DV - 1), q, o, nowhere, &err), ATTN_ERR_SIZE, "out_b.size[3]");
    FAILS(attn_merge(x, q, x, floats(3, B, H, SQ - 1, 0), o, nowhere, &err), ATTN_ERR_SIZE, "lse_b.size[2]");
    FAILS(attn_merge(x, q, x, q, o, attn_out_f32(m.lse, 3, B, H, 1, 0), &err), ATTN_ERR_SIZE, "lse.size[2]");
    FAILS(attn_merge(x, q, x, q, attn_out_bhsd(m.scores, B, H, SQ, DV), nowhere, &err), ATTN_ERR_OVERLAP, "out");
    FAILS(attn_merge(x, q, x, q, o, attn_out_f32(m.out, 3, B, H, SQ, 0), &err), ATTN_ERR_OVERLAP, "out");

    CHECK_STATUS(attn_elementary(ATTN_FUNCTION_COUNT, m.q, m.out, 4, ATTN_ISA_AUTO), ATTN_ERR_OPTION);
    CHECK_STATUS(attn_elementary((attn_function)-1, m.q, m.out, 4, ATTN_ISA_AUTO), ATTN_ERR_OPTION);
    CHECK_STATUS(attn_elementary(ATTN_EXP, 0, m.out, 4, ATTN_ISA_AUTO), ATTN_ERR_NULL);
    CHECK_STATUS(attn_elementary(ATTN_EXP, m.q, 0, 4, ATTN_ISA_AUTO), ATTN_ERR_NULL);
    CHECK_STATUS(attn_elementary(ATTN_EXP, 0, 0, 0, ATTN_ISA_AUTO), ATTN_OK);
    CHECK(attn_elementary(ATTN_EXP, m.q, m.out, -1, ATTN_ISA_AUTO) != ATTN_OK);
    CHECK(attn_elementary(ATTN_EXP, m.q, m.out, 4, (attn_isa)77) != ATTN_OK);
    CHECK(!unpainted());
}

static attn_mha_desc heads(const attn_desc *options) { /* embedding 4, 2 heads of 2 */
    attn_mha_desc h;
    memset(&h, 0, sizeof h);
    h.query = attn_view_f32(m.q, 3, B, SQ, 4, 0);
    h.key = attn_view_f32(m.k, 3, B, SK, 4, 0);
    h.value = attn_view_f32(m.v, 3, B, SK, DV, 0);
    h.w_query = h.w_key = attn_view_f32(m.small, 2, 4, 4, 0, 0);
    h.w_value = attn_view_f32(m.small, 2, 6, DV, 0, 0);
    h.w_result = attn_view_f32(m.small, 2, 5, 6, 0, 0);
    h.out = attn_out_f32(m.weights, 3, B, SQ, 5, 0);
    h.heads = 2;
    h.attention = options;
    return h;
}

static void test_mha(void) {
    attn_desc options = valid(); /* fills and paints the memory */
    attn_error err;
    size_t size;
    memset(&options, 0, sizeof options);
#define MHA(status, field, change) \
    do { \
        attn_mha_desc h = heads(&options); \
        change; \
        poison_error(&err); \
        check_error(attn_mha(&h, &err), &err, status, field, __LINE__); \
        check_unwritten(__LINE__); \
    } while (0)
    FAILS(attn_mha(0, &err), ATTN_ERR_NULL, "desc");
    FAILS(attn_mha_workspace_size(0, &size, &err), ATTN_ERR_NULL, "desc");
    {
        attn_mha_desc h = heads(0);
        FAILS(attn_mha_workspace_size(&h, 0, &err), ATTN_ERR_NULL, "bytes");
    }
    MHA(ATTN_ERR_NULL, "query", memset(&h.query, 0, sizeof h.query));
    MHA(ATTN_ERR_NULL, "w_query", memset(&h.w_query, 0, sizeof h.w_query));
    MHA(ATTN_ERR_NULL, "w_key", memset(&h.w_key, 0, sizeof h.w_key));
    MHA(ATTN_ERR_NULL, "w_value", memset(&h.w_value, 0, sizeof h.w_value));
    MHA(ATTN_ERR_NULL, "out", memset(&h.out, 0, sizeof h.out));
    MHA(ATTN_ERR_NULL, "query.data", h.query.data = 0);
    MHA(ATTN_ERR_NULL, "w_value.data", h.w_value.data = 0);
    MHA(ATTN_ERR_NULL, "w_result.data", h.w_result.data = 0);
    MHA(ATTN_ERR_NULL, "b_key.data", h.b_key = attn_view_f32(0, 1, 4, 0, 0, 0));
    MHA(ATTN_ERR_NULL, "out.data", h.out.data = 0);
    MHA(ATTN_ERR_TYPE, "key.type", h.key.type = ATTN_F64);
    MHA(ATTN_ERR_TYPE, "w_query.type", h.w_query.type = ATTN_I8);
    MHA(ATTN_ERR_RANK, "value.rank", h.value.rank = 2);
    MHA(ATTN_ERR_RANK, "w_key.rank", h.w_key.rank = 3);
    MHA(ATTN_ERR_RANK, "w_result.rank", h.w_result.rank = 1);
    MHA(ATTN_ERR_RANK, "b_query.rank", h.b_query = floats(2, 1, 4, 0, 0));
    MHA(ATTN_ERR_SIZE, "key.size[0]", h.key.size[0] = 1);
    MHA(ATTN_ERR_SIZE, "value.size[1]", h.value.size[1] = SK - 1);
    MHA(ATTN_ERR_SIZE, "w_query.size[0]", h.w_query.size[0] = 3);
    MHA(ATTN_ERR_SIZE, "w_query.size[1]", h.w_query.size[1] = 3);
    MHA(ATTN_ERR_SIZE, "w_key.size[1]", h.w_key.size[1] = 3);
    MHA(ATTN_ERR_SIZE, "w_value.size[1]", h.w_value.size[1] = 2);
    MHA(ATTN_ERR_SIZE, "w_value.size[0]", h.w_value.size[0] = 5);
    MHA(ATTN_ERR_SIZE, "w_key.size[0]", h.w_key.size[0] = 2);
    MHA(ATTN_ERR_SIZE, "w_result.size[1]", h.w_result.size[1] = 5);
    MHA(ATTN_ERR_SIZE, "out.size[1]", h.out = attn_out_f32(m.weights, 3, B, SK, 5, 0));
    MHA(ATTN_ERR_SIZE, "out.size[2]", h.out = attn_out_f32(m.weights, 3, B, SQ, 6, 0));
    MHA(ATTN_ERR_SIZE, "b_query.size[0]", h.b_query = floats(1, 5, 0, 0, 0));
    MHA(ATTN_ERR_SIZE, "b_result.size[0]", h.b_result = floats(1, 6, 0, 0, 0));
    MHA(ATTN_ERR_RANGE, "heads", h.heads = 0);
    MHA(ATTN_ERR_RANGE, "heads", h.heads = -2);
    MHA(ATTN_ERR_RANGE, "heads_kv", h.heads_kv = -1);
    MHA(ATTN_ERR_RANGE, "heads_kv", h.heads_kv = 3);
    MHA(ATTN_ERR_OPTION, "b_result", h.b_result = floats(1, 6, 0, 0, 0); memset(&h.w_result, 0, sizeof h.w_result);
        h.out = attn_out_f32(m.weights, 3, B, SQ, 6, 0));
    MHA(ATTN_ERR_STRIDE, "out.stride", h.out.stride[1] = 1);
    MHA(ATTN_ERR_OVERLAP, "out", h.out.data = m.q);
    MHA(ATTN_ERR_OVERLAP, "out", h.out.data = m.k);
    MHA(ATTN_ERR_OVERLAP, "out", h.out.data = m.v);
    MHA(ATTN_ERR_OVERLAP, "out", h.out.data = m.small);
    MHA(ATTN_ERR_OVERFLOW, "query", h.query.size[1] = (int64_t)1 << 62);
    MHA(ATTN_ERR_OPTION, "score", options.score = 99);
    options.score = 0;
    MHA(ATTN_ERR_SIZE, "mask.size[0]", options.mask = mask(1, SK + 1, 0, 0, 0));
    memset(&options, 0, sizeof options);
    {
        attn_mha_desc h = heads(&options);
        char text[100];
        h.heads = 4;
        h.heads_kv = 3;
        CHECK_STATUS(attn_mha(&h, &err), ATTN_ERR_RANGE);
        attn_error_string(&err, text, sizeof text);
        CHECKF(!strcmp(text, "heads_kv must divide heads: 3 does not divide 4"), "%s", text);
    }
    MHA(ATTN_ERR_OVERLAP, "out", h.b_key = attn_view_f32(m.weights, 1, 4, 0, 0, 0));
    MHA(ATTN_ERR_OVERLAP, "out", options.mask = attn_view_u8((uint8_t *)m.weights, 1, SK, 0, 0, 0));
    memset(&options, 0, sizeof options);
    MHA(ATTN_ERR_OVERLAP, "lse", options.lse = attn_out_f32(m.small, 3, B, 2, SQ, 0));
    MHA(ATTN_ERR_OVERLAP, "lse", options.lse = attn_out_f32(m.v, 3, B, 2, SQ, 0));
    memset(&options, 0, sizeof options);
    MHA(ATTN_ERR_OVERLAP, "weights", options.weights = attn_out_f32(m.q, 4, B, 2, SQ, SK));
    MHA(ATTN_ERR_OVERLAP, "out", options.weights = attn_out_f32(m.weights, 4, B, 2, SQ, SK));
    memset(&options, 0, sizeof options);
    MHA(ATTN_ERR_WORKSPACE, "workspace_bytes", options.workspace = m.mask; options.workspace_bytes = 8);
    memset(&options, 0, sizeof options);
    attn_mha_desc fine = heads(&options); /* what the changes start from */
    CHECK_STATUS(attn_mha(&fine, &err), ATTN_OK);
    attn_mha_grad g; /* where there are no elements their strides may be anything */
    memset(&g, 0, sizeof g);
    memset(&fine.w_result, 0, sizeof fine.w_result);
    fine.query.size[1] = 0;
    fine.out = attn_out_f32(m.weights, 3, B, 0, 6, 0);
    fine.out.stride[2] = INT64_MIN;
    CHECK_STATUS(attn_mha(&fine, &err), ATTN_OK);
    g.d_out = attn_view_of(fine.out);
    g.dquery = attn_out_f32(m.q, 3, B, 0, 4, 0);
    CHECK_STATUS(attn_mha_backward(&fine, &g, &err), ATTN_OK);
}

/* ---- gradients */

/* Every field of attn_grad, what must be there for it, and a call that has that. */
static attn_desc everything(void) { /* a bias, slopes, sinks */
    attn_desc d = valid();
    d.bias = floats(2, SQ, SK, 0, 0);
    d.alibi = d.sink = floats(1, H, 0, 0, 0);
    d.align = ATTN_ALIGN_TOP_LEFT;
    return d;
}
static attn_desc gaussian_per_head(void) {
    attn_desc d = gaussian();
    d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0);
    return d;
}
static const struct grad_field {
    const char *name;
    size_t offset;
    attn_desc (*from)(void);
    int32_t least_rank, most_rank;
} grad_fields[] = {
#define FIELD(name, from, least, most) \
    { #name, offsetof(attn_grad, name), from, least, most }
    FIELD(d_out, everything, 4, 4),       FIELD(d_weights, everything, 4, 4),
    FIELD(d_lse, everything, 3, 3),       FIELD(dq, everything, 4, 4),
    FIELD(dk, everything, 4, 4),          FIELD(dv, everything, 4, 4),
    FIELD(d_given_scores, given, 4, 4),   FIELD(d_bias, everything, 2, 2),
    FIELD(d_bilinear, bilinear, 2, 2),    FIELD(d_w_q, additive, 2, 2),
    FIELD(d_w_k, additive, 2, 2),         FIELD(d_w_v, additive, 1, 1),
    FIELD(d_hidden_bias, additive, 1, 1), FIELD(d_sigma, gaussian_per_head, 1, 1),
    FIELD(d_scale, everything, 1, 1),     FIELD(d_sink, everything, 1, 1),
    FIELD(d_alibi, everything, 1, 1)};
enum { GRAD_FIELDS = (int)(sizeof grad_fields / sizeof *grad_fields), FROM_ABOVE = 3 };

static attn_out *grad_field(attn_grad *g, int n) { return (attn_out *)(void *)((char *)g + grad_fields[n].offset); }

static attn_out shaped_like(const attn_view *v, float *data) {
    return attn_out_f32(data, v->rank, v->size[0], v->size[1], v->size[2], v->size[3]);
}

/* All that `d` can have. */
static attn_grad grads_of(const attn_desc *d) {
    const attn_view *owners[] = {&d->q,        &d->k,   &d->v,   &d->given_scores, &d->bias,
                                 &d->bilinear, &d->w_q, &d->w_k, &d->w_v,          &d->hidden_bias};
    int kernel = d->score >= ATTN_SCORE_GAUSSIAN && d->score <= ATTN_SCORE_CONSTANT;
    attn_grad g;
    memset(&g, 0, sizeof g);
    g.d_out = floats(4, B, H, SQ, DV);
    g.d_weights = floats(4, B, H, SQ, SK);
    g.d_lse = floats(3, B, H, SQ, 0);
    for (int n = 0; n < 10; n++)
        if (owners[n]->rank) *grad_field(&g, FROM_ABOVE + n) = shaped_like(owners[n], m.gradients[n]);
    if (kernel) g.d_sigma = attn_out_f32(m.gradients[10], 1, d->sigma_per_head.rank ? H : 1, 0, 0, 0);
    else g.d_scale = attn_out_f32(m.gradients[11], 1, 1, 0, 0, 0);
    if (d->sink.rank) g.d_sink = shaped_like(&d->sink, m.gradients[12]);
    if (d->alibi.rank) g.d_alibi = shaped_like(&d->alibi, m.gradients[13]);
    return g;
}

static void refused_backward(const attn_desc *d, const attn_grad *g, attn_status want, const char *field, int line) {
    attn_error err;
    attn_plan plan;
    char text[600], why[300];
    poison_error(&err);
    check_error(attn_backward(d, g, &err), &err, want, field, line);
    check_unwritten(line);
    CHECKF(attn_backward(d, g, 0) == want, "line %d: another status without err", line);
    if (want == ATTN_ERR_WORKSPACE || want == ATTN_ERR_ALLOC) return;
    poison_error(&err);
    check_error(attn_plan_backward(d, g, &plan, &err), &err, want, field, line);
    attn_error_string(&err, why, sizeof why);
    if (attn_explain_backward(d, g, text, sizeof text) == 0 || want == ATTN_ERR_OVERLAP || strstr(field, ".data"))
        return; /* it looks at no data */
    CHECKF(strstr(text, why) != 0, "line %d: \"%s\" does not contain \"%s\"", line, text, why);
    check_unwritten(line);
}

/* One change to a call that is accepted without it. */
#define BACKWARD(from, status, field, change) \
    do { \
        attn_desc d = from(); \
        attn_grad g = grads_of(&d); \
        change; \
        refused_backward(&d, &g, status, field, __LINE__); \
    } while (0)
#define BACKWARD_OK(from, change) \
    do { \
        attn_desc d = from(); \
        attn_grad g = grads_of(&d); \
        attn_error err; \
        size_t bytes; \
        change; \
        poison_error(&err); \
        if (!CHECK_STATUS(attn_backward(&d, &g, &err), ATTN_OK)) printf("        %s %s\n", err.field, err.rule); \
        CHECK(err.status == ATTN_OK && !*err.field && !*err.rule); \
        CHECK_STATUS(attn_backward_workspace_size(&d, &g, &bytes, 0), ATTN_OK); \
    } while (0)

static void no_gradient(attn_grad *g) { /* no result */
    for (int n = FROM_ABOVE; n < GRAD_FIELDS; n++) memset(grad_field(g, n), 0, sizeof(attn_out));
}
static void nothing_above(attn_grad *g) {
    for (int n = 0; n < FROM_ABOVE; n++) memset(grad_field(g, n), 0, sizeof(attn_out));
}

static void test_backward_accepted(void) {
    static attn_desc (*const from[])(void) = {valid, everything, additive,         bilinear,
                                              given, gaussian,   gaussian_per_head};
    for (int n = 0; n < 7; n++) {
        BACKWARD_OK(from[n], (void)0);
        BACKWARD_OK(from[n], g.accumulate = ATTN_GRAD_ALL); /* of those that are absent too */
        BACKWARD_OK(from[n], memset(&d.stats, 0, sizeof d.stats));
        for (int field = 0; field < GRAD_FIELDS; field++) { /* each may be absent, each result be wanted alone */
            BACKWARD_OK(from[n], memset(grad_field(&g, field), 0, sizeof(attn_out)));
            BACKWARD_OK(
                from[n], attn_out one = *grad_field(&g, field); if (field >= FROM_ABOVE && one.rank) {
                    no_gradient(&g);
                    *grad_field(&g, field) = one;
                });
        }
    }
    BACKWARD_OK(valid, memset(&d.lse, 0, sizeof d.lse); memset(&d.weights, 0, sizeof d.weights));
    BACKWARD_OK(valid, memset(&g.d_out, 0, sizeof g.d_out); no_results(&d));            /* out is not read */
    BACKWARD_OK(valid, attn_out dv = g.dv; no_gradient(&g); g.dv = dv; no_results(&d)); /* nor for dv alone */
    BACKWARD_OK(valid, memset(&g.d_out, 0, sizeof g.d_out); memset(&g.dv, 0, sizeof g.dv); no_results(&d);
                memset(&d.v, 0, sizeof d.v));
    BACKWARD_OK(valid, d.out.data = m.out + (SQ - 1) * DV;
                d.out.stride[2] = -DV); /* reversed, and so may a result be */
    BACKWARD_OK(valid, g.dq.data = m.gradients[0] + (SQ - 1) * D; g.dq.stride[2] = -D);
    BACKWARD_OK(valid, memset(g.d_out.stride, 0, sizeof g.d_out.stride)); /* what is read may be broadcast */
    for (int32_t score = ATTN_SCORE_BOXCAR; score <= ATTN_SCORE_TRIANGULAR; score++)
        BACKWARD_OK(gaussian, d.score = score);
    BACKWARD_OK(gaussian, d.score = ATTN_SCORE_CONSTANT; memset(&g.d_sigma, 0, sizeof g.d_sigma));
    BACKWARD_OK(valid, g.d_weights.data = g.d_out.data);
}

/* Of a view only the first `rank` sizes and strides count: what stands behind them changes no status and no bit. */
static attn_desc ranks_of_one(void) {
    attn_desc d = everything();
    d.bias = floats(1, SK, 0, 0, 0);
    d.mask = mask(1, SK, 0, 0, 0);
    d.key_lengths = d.query_lengths = d.positions = ints(1, B, 0);
    d.align = ATTN_ALIGN_POSITIONS;
    d.causal = 1;
    for (int i = 0; i < B * SQ; i++) m.ints[i] = i < B ? SQ : INT32_MIN; /* no length, what lies behind them */
    return d;
}
static attn_desc ranks_of_three(void) {
    attn_desc d = everything();
    d.bias = floats(3, H, SQ, SK, 0);
    d.mask = mask(3, H, SQ, SK, 0);
    d.key_lengths = ints(2, B, SQ);
    for (int i = 0; i < B * SQ; i++) m.ints[i] = 1 + i % SK;
    return d;
}
static void set_beyond_rank(void *view, int64_t size, int64_t stride) {
    attn_view v;
    memcpy(&v, view, sizeof v);
    for (int axis = v.rank; v.rank > 0 && axis < 4; axis++) {
        v.size[axis] = size;
        v.stride[axis] = stride;
    }
    memcpy(view, &v, sizeof v);
}
static void test_beyond_rank(void) {
    static const int64_t junk[][2] = {{0, 0}, {3, 1}, {-1, -1}, {INT64_MAX, INT64_MAX}, {INT64_MIN, INT64_MIN}, {1, 7}};
    static attn_desc (*const from[])(void) = {everything, ranks_of_one, ranks_of_three,   additive,
                                              bilinear,   given,        gaussian_per_head};
    static unsigned char want[sizeof m];
    for (size_t call = 0; call < sizeof from / sizeof *from; call++) {
        for (size_t n = 0; n < sizeof junk / sizeof *junk; n++) {
            attn_error err;
            attn_desc d = from[call]();
            attn_grad g = grads_of(&d);
            void *const views[] = {&d.q,
                                   &d.k,
                                   &d.v,
                                   &d.out,
                                   &d.lse,
                                   &d.weights,
                                   &d.scores,
                                   &d.scores_softcap,
                                   &d.scores_masked,
                                   &d.stats,
                                   &d.sigma_per_head,
                                   &d.bilinear,
                                   &d.w_q,
                                   &d.w_k,
                                   &d.w_v,
                                   &d.hidden_bias,
                                   &d.given_scores,
                                   &d.bias,
                                   &d.alibi,
                                   &d.sink,
                                   &d.mask,
                                   &d.key_lengths,
                                   &d.query_lengths,
                                   &d.positions};
            for (int junked = 0; junked < 2; junked++) {
                for (size_t v = 0; junked && v < sizeof views / sizeof *views; v++)
                    set_beyond_rank(views[v], junk[n][0], junk[n][1]);
                for (int v = 0; junked && v < GRAD_FIELDS; v++)
                    set_beyond_rank(grad_field(&g, v), junk[n][0], junk[n][1]);
                paint();
                if (!CHECK_STATUS(attn_forward(&d, &err), ATTN_OK)) printf("        %s %s\n", err.field, err.rule);
                if (!CHECK_STATUS(attn_backward(&d, &g, &err), ATTN_OK)) printf("        %s %s\n", err.field, err.rule);
                if (!junked) memcpy(want, results_begin(), results_size());
            }
            CHECKF(!memcmp(want, results_begin(), results_size()),
                   "call %d: other bits with %lld and %lld beyond the rank", (int)call, (long long)junk[n][0],
                   (long long)junk[n][1]);
        }
    }
}

static void test_backward_null(void) {
    attn_error err;
    attn_plan plan;
    attn_desc fine = valid();
    attn_grad all = grads_of(&fine);
    size_t bytes;
    poison_error(&err);
    check_error(attn_backward(0, &all, &err), &err, ATTN_ERR_NULL, "forward", __LINE__);
    check_error(attn_backward(&fine, 0, &err), &err, ATTN_ERR_NULL, "grad", __LINE__);
    check_error(attn_plan_backward(&fine, &all, 0, &err), &err, ATTN_ERR_NULL, "plan", __LINE__);
    check_error(attn_plan_backward(0, &all, &plan, &err), &err, ATTN_ERR_NULL, "forward", __LINE__);
    check_error(attn_plan_backward(&fine, 0, &plan, &err), &err, ATTN_ERR_NULL, "grad", __LINE__);
    check_error(attn_backward_workspace_size(&fine, &all, 0, &err), &err, ATTN_ERR_NULL, "bytes", __LINE__);
    check_error(attn_backward_workspace_size(0, &all, &bytes, &err), &err, ATTN_ERR_NULL, "forward", __LINE__);
    check_error(attn_backward_workspace_size(&fine, 0, &bytes, &err), &err, ATTN_ERR_NULL, "grad", __LINE__);
    check_unwritten(__LINE__);
    BACKWARD(valid, ATTN_ERR_NULL, "d_out", nothing_above(&g));
    BACKWARD(valid, ATTN_ERR_NULL, "dq", no_gradient(&g));
    BACKWARD(valid, ATTN_ERR_NULL, "out", memset(&d.out, 0, sizeof d.out));
    BACKWARD(valid, ATTN_ERR_NULL, "out.data", d.out.data = 0);
    BACKWARD(valid, ATTN_ERR_NULL, "stats.data", d.stats.data = 0);
    BACKWARD(valid, ATTN_ERR_NULL, "q", memset(&d.q, 0, sizeof d.q));
    BACKWARD(valid, ATTN_ERR_NULL, "k.data", d.k.data = 0);
    BACKWARD(valid, ATTN_ERR_NULL, "bias.data", d.bias = attn_view_f32(0, 1, SK, 0, 0, 0));
    BACKWARD(additive, ATTN_ERR_NULL, "w_v", memset(&d.w_v, 0, sizeof d.w_v));
    BACKWARD(bilinear, ATTN_ERR_NULL, "bilinear", memset(&d.bilinear, 0, sizeof d.bilinear));
    BACKWARD(valid, ATTN_ERR_NULL, "allocator", d.allocator.allocate = no_memory);
    for (int n = 0; n < GRAD_FIELDS; n++) {
        char name[40];
        snprintf(name, sizeof name, "%s.data", grad_fields[n].name);
        BACKWARD(grad_fields[n].from, ATTN_ERR_NULL, name, grad_field(&g, n)->data = 0);
    }
    { /* sizes alone need no data */
        attn_desc d = everything();
        attn_grad bare = grads_of(&d);
        for (int n = 0; n < GRAD_FIELDS; n++) grad_field(&bare, n)->data = 0;
        d.q.data = d.k.data = d.v.data = 0;
        d.out.data = d.stats.data = 0;
        CHECK_STATUS(attn_backward_workspace_size(&d, &bare, &bytes, &err), ATTN_OK);
    }
}

static void test_backward_views(void) {                  /* each rule for views, broken in each field */
    BACKWARD(valid, ATTN_ERR_TYPE, "k.type", codes(&d)); /* codes have no gradient */
    static const int32_t types[] = {ATTN_I8, ATTN_I64, ATTN_F64, ATTN_U8, ATTN_I32, ATTN_TYPE_COUNT, -1};
    char name[60];
    for (int n = 0; n < GRAD_FIELDS; n++) {
        const struct grad_field *f = &grad_fields[n];
        for (int i = 0; i < 7; i++) {
            snprintf(name, sizeof name, "%s.type", f->name);
            BACKWARD(f->from, ATTN_ERR_TYPE, name, grad_field(&g, n)->type = types[i]);
        }
        snprintf(name, sizeof name, "%s.rank", f->name);
        for (int32_t rank = 1; rank <= 5; rank++)
            if (rank < f->least_rank || rank > f->most_rank) {
                BACKWARD(f->from, ATTN_ERR_RANK, name, attn_out *o = grad_field(&g, n); int32_t had = o->rank;
                         o->rank = rank; for (int a = had; a < rank && a < 4; a++) o->size[a] = o->stride[a] = 1);
            }
        BACKWARD(f->from, ATTN_ERR_RANK, name, grad_field(&g, n)->rank = -1);
        for (int axis = 0; axis < f->least_rank; axis++) {
            snprintf(name, sizeof name, "%s.size[%d]", f->name, axis);
            BACKWARD(f->from, ATTN_ERR_SIZE, name, grad_field(&g, n)->size[axis]--);
            BACKWARD(f->from, ATTN_ERR_SIZE, name, grad_field(&g, n)->size[axis] = -1);
        }
        BACKWARD(f->from, ATTN_ERR_OVERFLOW, f->name, grad_field(&g, n)->size[0] = (int64_t)1 << 62);
        attn_desc first = f->from();
        attn_grad grads = grads_of(&first);
        if (n < FROM_ABOVE || grad_field(&grads, n)->size[0] < 2) continue; /* results must not overlap themselves */
        snprintf(name, sizeof name, "%s.stride", f->name);
        BACKWARD(f->from, ATTN_ERR_STRIDE, name, grad_field(&g, n)->stride[0] = 0);
        BACKWARD(f->from, ATTN_ERR_OVERFLOW, name, grad_field(&g, n)->stride[0] = (int64_t)1 << 62);
    }
}

static void test_backward_options(void) {
    static attn_desc (*const from[])(void) = {valid, additive, bilinear, given, gaussian};
    for (int n = 0; n < 5; n++)
        for (int field = FROM_ABOVE; field < GRAD_FIELDS; field++) { /* of what the call has not got */
            attn_desc has = from[n]();
            attn_grad there = grads_of(&has);
            if (grad_field(&there, field)->rank) continue;
            attn_desc with = grad_fields[field].from();
            attn_out foreign = *grad_field((there = grads_of(&with), &there), field);
            foreign.data = m.gradients[field - FROM_ABOVE];
            BACKWARD(from[n], ATTN_ERR_OPTION, grad_fields[field].name, *grad_field(&g, field) = foreign);
        }
    BACKWARD(given, ATTN_ERR_OPTION, "dv", memset(&d.v, 0, sizeof d.v); memset(&g.d_out, 0, sizeof g.d_out);
             memset(&d.out, 0, sizeof d.out));
    BACKWARD(valid, ATTN_ERR_OPTION, "d_out", memset(&d.v, 0, sizeof d.v); memset(&g.dv, 0, sizeof g.dv);
             memset(&d.out, 0, sizeof d.out));
    BACKWARD(valid, ATTN_ERR_OPTION, "accumulate", g.accumulate = ATTN_GRAD_ALL + 1);
    BACKWARD(valid, ATTN_ERR_OPTION, "accumulate", g.accumulate = 0x80000000u);
    BACKWARD(valid, ATTN_ERR_OPTION, "reserved", g.reserved = 1);
    BACKWARD(valid, ATTN_ERR_OPTION, "score", d.score = ATTN_SCORE_COUNT);
    BACKWARD(valid, ATTN_ERR_OPTION, "isa", d.isa = 99);
    BACKWARD(valid, ATTN_ERR_RANGE, "dropout", d.dropout = 2);
    BACKWARD(valid, ATTN_ERR_RANGE, "key_lengths", d.key_lengths = ints(1, B, 0); m.ints[1] = SK + 1);
    BACKWARD(valid, ATTN_ERR_RANGE, "parallel.workers", d.parallel.workers = -1);
    BACKWARD(valid, ATTN_ERR_SIZE, "k.size[3]", d.k.size[3] = D - 1);
    BACKWARD(valid, ATTN_ERR_SIZE, "out.size[2]", d.out.size[2] = SQ - 1);
    BACKWARD(valid, ATTN_ERR_SIZE, "stats.size[3]", d.stats.size[3] = 1);
    for (int isa = ATTN_ISA_AUTO + 1; isa < ATTN_ISA_COUNT; isa++) {
        float x = 1, y;
        if (attn_elementary(ATTN_EXP, &x, &y, 1, (attn_isa)isa) == ATTN_ERR_ISA)
            BACKWARD(valid, ATTN_ERR_ISA, "isa", d.isa = isa);
    }
}

static void test_backward_overlap(void) {
    for (int n = FROM_ABOVE; n < GRAD_FIELDS; n++) { /* every result with all that is read, and with the others */
        const struct grad_field *f = &grad_fields[n];
        attn_desc base = f->from();
        const void *read[] = {base.q.data,    base.k.data,    base.v.data,   base.out.data,          base.stats.data,
                              base.bias.data, base.sink.data, base.w_q.data, base.given_scores.data, m.scores};
        for (size_t i = 0; i < sizeof read / sizeof *read; i++)
            if (read[i])
                BACKWARD(f->from, ATTN_ERR_OVERLAP, f->name, grad_field(&g, n)->data = (void *)(uintptr_t)read[i]);
        BACKWARD(f->from, ATTN_ERR_OVERLAP, f->name,
                 d.mask = attn_view_u8((uint8_t *)grad_field(&g, n)->data, 1, SK, 0, 0, 0);
                 grad_field(&g, n)->data = (void *)(uintptr_t)d.mask.data);
        for (int other = n + 1; other < GRAD_FIELDS; other++) {
            attn_grad all = grads_of(&base);
            if (!grad_field(&all, other)->rank) continue;
            BACKWARD(f->from, ATTN_ERR_OVERLAP, f->name, grad_field(&g, other)->data = grad_field(&g, n)->data);
        }
    }
    BACKWARD(valid, ATTN_ERR_OVERLAP, "d_scale", d.key_lengths = ints(1, B, 0); g.d_scale.data = m.ints);
    BACKWARD(valid, ATTN_ERR_OVERLAP, "d_scale", d.query_lengths = ints(1, B, 0); g.d_scale.data = m.ints + 1);
    BACKWARD(valid, ATTN_ERR_OVERLAP, "d_scale", d.align = ATTN_ALIGN_POSITIONS; d.positions = ints(2, B, SQ);
             g.d_scale.data = m.ints + B * SQ - 1);
    { /* dq, dk and dv in one array, each in its slot */
        enum { ROW = H * D + HKV * D + HKV * DV };
        attn_desc d = valid();
        attn_grad g = grads_of(&d);
        float packed[B * SQ * ROW + 64];
        d.k.size[2] = d.v.size[2] = SQ;
        no_results(&d);
        d.out = attn_out_bhsd(m.out, B, H, SQ, DV);
        memset(&g.d_weights, 0, sizeof g.d_weights);
        g.dq = attn_out_rows(packed, B, SQ, H, D, ROW);
        g.dk = attn_out_rows(packed + H * D, B, SQ, HKV, D, ROW);
        g.dv = attn_out_rows(packed + H * D + HKV * D, B, SQ, HKV, DV, ROW);
        CHECK_STATUS(attn_backward(&d, &g, 0), ATTN_OK);
        paint();
        g.dk = attn_out_rows(packed + H * D - 1, B, SQ, HKV, D, ROW); /* one float into dq */
        refused_backward(&d, &g, ATTN_ERR_OVERLAP, "dq", __LINE__);
    }
}

static void test_backward_hooks(void) {
    int released = 0;
    char small[16];
    size_t bytes = 0;
    attn_desc fine = valid();
    attn_grad all = grads_of(&fine);
    CHECK_STATUS(attn_backward_workspace_size(&fine, &all, &bytes, 0), ATTN_OK);
    CHECK(bytes > sizeof small);
    BACKWARD(valid, ATTN_ERR_WORKSPACE, "workspace_bytes", d.workspace = small; d.workspace_bytes = sizeof small);
    BACKWARD(valid, ATTN_ERR_WORKSPACE, "workspace_bytes", d.workspace = small; d.workspace_bytes = bytes - 1);
    BACKWARD(valid, ATTN_ERR_ALLOC, "workspace", d.allocator.allocate = no_memory; d.allocator.release = no_release;
             d.allocator.user = &released);
    CHECK(released == 0);
}

/* Sizes that no data backs: refused or priced, without a crash. */
static void test_backward_overflow(void) {
    for (int axis = 0; axis < 4; axis++)
        for (int bits = 20; bits < 63; bits++) {
            attn_desc d = valid();
            attn_error err;
            attn_grad g;
            size_t bytes = 12345;
            no_results(&d);
            d.q.size[axis] = d.k.size[axis] = d.v.size[axis] = (int64_t)1 << bits;
            memset(d.q.stride, 0, sizeof d.q.stride);
            memset(d.k.stride, 0, sizeof d.k.stride);
            memset(d.v.stride, 0, sizeof d.v.stride);
            memset(&g, 0, sizeof g);
            g.d_lse = floats(3, d.q.size[0], d.q.size[1], d.q.size[2], 0);
            memset(g.d_lse.stride, 0, sizeof g.d_lse.stride);
            g.d_scale = attn_out_f32(m.gradients[11], 1, 1, 0, 0, 0);
            poison_error(&err);
            attn_status status = attn_backward_workspace_size(&d, &g, &bytes, &err);
            CHECKF(status == ATTN_OK || status == ATTN_ERR_OVERFLOW, "axis %d, 2^%d: %s (%s %s)", axis, bits,
                   attn_status_string(status), err.field, err.rule);
            CHECKF(status == ATTN_OK || bytes == 12345, "axis %d, 2^%d: bytes written on error", axis, bits);
            CHECKF(bits < 60 || status == ATTN_ERR_OVERFLOW, "axis %d, 2^%d accepted", axis, bits);
            CHECKF(bits > 24 || status == ATTN_OK, "axis %d, 2^%d refused", axis, bits);
        }
    check_unwritten(__LINE__);
}

static void test_backward_explain(void) {
    attn_desc d = valid();
    attn_grad g = grads_of(&d);
    char whole[600], cut[600];
    size_t length = attn_explain_backward(&d, &g, whole, sizeof whole);
    CHECK(length > 20 && length < sizeof whole && strlen(whole) == length);
    CHECK(attn_explain_backward(&d, &g, 0, 0) == length);
    CHECK(attn_explain_backward(0, &g, 0, 0) > 10 && attn_explain_backward(&d, 0, 0, 0) > 10);
    for (size_t size = 0; size <= length + 2; size++) {
        memset(cut, 'x', sizeof cut);
        int ok = attn_explain_backward(&d, &g, cut, size) == length && cut[size] == 'x';
        if (size > 0) ok &= strlen(cut) == (length < size ? length : size - 1) && !strncmp(cut, whole, strlen(cut));
        CHECKF(ok, "explained into %lu bytes", (unsigned long)size);
    }
    CHECKF(strstr(whole, attn_score_string(ATTN_SCORE_SCALED_DOT)) && strstr(whole, attn_isa_string(attn_best_isa())),
           "%s", whole);
    CHECKF(strstr(whole, " tasks for parameters") != 0, "%s", whole);
    for (int n = FROM_ABOVE; n < GRAD_FIELDS; n++) /* dv alone has none */
        if (grad_field(&g, n) != &g.dv) memset(grad_field(&g, n), 0, sizeof(attn_out));
    attn_explain_backward(&d, &g, whole, sizeof whole);
    CHECKF(strstr(whole, "gradients") && !strstr(whole, "parameters"), "%s", whole);
    check_unwritten(__LINE__);
}

static void test_backward_pieces(void) {
    attn_desc options = valid();
    attn_error err;
    attn_view none, x = floats(3, B, SQ, SK, 0), a = floats(3, B, SQ, SK, 0), b = floats(2, SK, DV, 0, 0),
                    ab = floats(3, B, SQ, DV, 0);
    attn_out nowhere, dx = attn_out_f32(m.gradients[0], 3, B, SQ, SK, 0), da = dx,
                      db = attn_out_f32(m.gradients[1], 2, SK, DV, 0, 0);
    size_t size;
    memset(&none, 0, sizeof none);
    memset(&nowhere, 0, sizeof nowhere);
    memset(&options, 0, sizeof options);
    FAILS(attn_softmax_backward(none, x, dx, 0, &err), ATTN_ERR_NULL, "x");
    FAILS(attn_softmax_backward(x, none, dx, 0, &err), ATTN_ERR_NULL, "d_out");
    FAILS(attn_softmax_backward(x, x, nowhere, 0, &err), ATTN_ERR_NULL, "dx");
    FAILS(attn_softmax_backward(attn_view_f32(0, 3, B, SQ, SK, 0), x, dx, 0, &err), ATTN_ERR_NULL, "x.data");
    FAILS(attn_softmax_backward(x, attn_view_f32(0, 3, B, SQ, SK, 0), dx, 0, &err), ATTN_ERR_NULL, "d_out.data");
    FAILS(attn_softmax_backward(x, x, attn_out_f32(0, 3, B, SQ, SK, 0), 0, &err), ATTN_ERR_NULL, "dx.data");
    FAILS(attn_softmax_backward(mask(3, B, SQ, SK, 0), x, dx, 0, &err), ATTN_ERR_TYPE, "x.type");
    FAILS(attn_softmax_backward(x, mask(3, B, SQ, SK, 0), dx, 0, &err), ATTN_ERR_TYPE, "d_out.type");
    FAILS(attn_softmax_backward(x, floats(2, SQ, SK, 0, 0), dx, 0, &err), ATTN_ERR_RANK, "d_out.rank");
    FAILS(attn_softmax_backward(x, x, attn_out_f32(m.gradients[0], 2, SQ, SK, 0, 0), 0, &err), ATTN_ERR_RANK,
          "dx.rank");
    FAILS(attn_softmax_backward(x, floats(3, B, SQ, SK - 1, 0), dx, 0, &err), ATTN_ERR_SIZE, "d_out.size[2]");
    FAILS(attn_softmax_backward(x, floats(3, B, SQ - 1, SK, 0), dx, 0, &err), ATTN_ERR_SIZE, "d_out.size[1]");
    FAILS(attn_softmax_backward(x, x, attn_out_f32(m.gradients[0], 3, B, SQ, SK - 1, 0), 0, &err), ATTN_ERR_SIZE,
          "dx.size[2]");
    FAILS(attn_softmax_backward(x, x, attn_out_f32(m.scores, 3, B, SQ, SK, 0), 0, &err), ATTN_ERR_OVERLAP, "dx");
    FAILS(attn_softmax_backward_workspace_size(x, x, dx, 0, 0, &err), ATTN_ERR_NULL, "bytes");
    FAILS(attn_softmax_backward_workspace_size(x, none, dx, 0, &size, &err), ATTN_ERR_NULL, "d_out");
    options.dropout = 2;
    FAILS(attn_softmax_backward(x, x, dx, &options, &err), ATTN_ERR_RANGE, "dropout");
    options.dropout = 0;
    dx.stride[1] = 0;
    FAILS(attn_softmax_backward(x, x, dx, 0, &err), ATTN_ERR_STRIDE, "dx.stride");
    dx = da;
    for (int rank = 2; rank <= 3; rank++) { /* named as the caller knows them, whatever they are looked at as */
        const char *of_bias = rank == 2 ? "bias.size[1]" : "bias.size[2]",
                   *of_mask = rank == 2 ? "mask.size[1]" : "mask.size[2]";
        int64_t all[3] = {B, SQ, SK - 1}, *n = all + 3 - rank;
        options.bias = floats(rank, n[0], n[1], n[2 - (rank == 2)], 0);
        FAILS(attn_softmax_backward(x, x, dx, &options, &err), ATTN_ERR_SIZE, of_bias);
        memset(&options.bias, 0, sizeof options.bias);
        options.mask = mask(rank, n[0], n[1], n[2 - (rank == 2)], 0);
        FAILS(attn_softmax_backward(x, x, dx, &options, &err), ATTN_ERR_SIZE, of_mask);
        memset(&options.mask, 0, sizeof options.mask);
    }

    FAILS(attn_bmm_backward(none, b, ab, da, db, 0, 0, &err), ATTN_ERR_NULL, "a");
    FAILS(attn_bmm_backward(a, none, ab, da, db, 0, 0, &err), ATTN_ERR_NULL, "b");
    FAILS(attn_bmm_backward(a, b, none, da, db, 0, 0, &err), ATTN_ERR_NULL, "d_out");
    FAILS(attn_bmm_backward(a, b, ab, nowhere, nowhere, 0, 0, &err), ATTN_ERR_NULL, "da");
    FAILS(attn_bmm_backward(a, b, attn_view_f32(0, 3, B, SQ, DV, 0), da, db, 0, 0, &err), ATTN_ERR_NULL, "d_out.data");
    FAILS(attn_bmm_backward(a, b, ab, attn_out_f32(0, 3, B, SQ, SK, 0), db, 0, 0, &err), ATTN_ERR_NULL, "da.data");
    FAILS(attn_bmm_backward(mask(3, B, SQ, SK, 0), b, ab, da, db, 0, 0, &err), ATTN_ERR_TYPE, "a.type");
    FAILS(attn_bmm_backward(a, b, mask(3, B, SQ, DV, 0), da, db, 0, 0, &err), ATTN_ERR_TYPE, "d_out.type");
    FAILS(attn_bmm_backward(floats(1, SK, 0, 0, 0), b, ab, da, db, 0, 0, &err), ATTN_ERR_RANK, "a.rank");
    FAILS(attn_bmm_backward(a, b, ab, attn_out_f32(m.gradients[0], 2, SQ, SK, 0, 0), db, 0, 0, &err), ATTN_ERR_RANK,
          "da.rank");
    FAILS(attn_bmm_backward(a, b, ab, da, attn_out_f32(m.gradients[1], 3, 1, SK, DV, 0), 0, 0, &err), ATTN_ERR_RANK,
          "db.rank");
    FAILS(attn_bmm_backward(a, floats(2, SK - 1, DV, 0, 0), ab, da, db, 0, 0, &err), ATTN_ERR_SIZE, "b.size[0]");
    FAILS(attn_bmm_backward(a, b, floats(3, B, SQ, DV - 1, 0), da, db, 0, 0, &err), ATTN_ERR_SIZE, "d_out.size[2]");
    FAILS(attn_bmm_backward(a, b, floats(3, B, SQ - 1, DV, 0), da, db, 0, 0, &err), ATTN_ERR_SIZE, "d_out.size[1]");
    FAILS(attn_bmm_backward(a, b, ab, attn_out_f32(m.gradients[0], 3, B, SQ, SK - 1, 0), db, 0, 0, &err), ATTN_ERR_SIZE,
          "da.size[2]");
    FAILS(attn_bmm_backward(a, b, ab, da, attn_out_f32(m.gradients[1], 2, SK - 1, DV, 0, 0), 0, 0, &err), ATTN_ERR_SIZE,
          "db.size[0]");
    FAILS(attn_bmm_backward(a, b, ab, attn_out_f32(m.scores, 3, B, SQ, SK, 0), db, 0, 0, &err), ATTN_ERR_OVERLAP, "da");
    FAILS(attn_bmm_backward(a, b, ab, da, attn_out_f32(m.gradients[0], 2, SK, DV, 0, 0), 0, 0, &err), ATTN_ERR_OVERLAP,
          "da");
    FAILS(attn_bmm_backward(a, b, ab, da, db, 4, 0, &err), ATTN_ERR_OPTION, "accumulate");
    FAILS(attn_bmm_backward_workspace_size(a, b, ab, da, db, 0, 0, &err), ATTN_ERR_NULL, "bytes");
    FAILS(attn_bmm_backward_workspace_size(none, b, ab, da, db, 0, &size, &err), ATTN_ERR_NULL, "a");
    da.stride[1] = 0;
    FAILS(attn_bmm_backward(a, b, ab, da, db, 0, 0, &err), ATTN_ERR_STRIDE, "da.stride");
    options.isa = 99;
    da = dx;
    FAILS(attn_bmm_backward(a, b, ab, da, db, 0, &options, &err), ATTN_ERR_OPTION, "isa");
    for (int n = 0; n < 15; n++) { /* no view takes these ranks */
        static const char *const names[] = {"a.rank", "b.rank", "d_out.rank", "da.rank", "db.rank"};
        static const int32_t wrong[] = {-1, 1, 5};
        attn_view v[3] = {a, b, ab};
        attn_out o[2] = {da, db};
        *(n % 5 < 3 ? &v[n % 5].rank : &o[n % 5 - 3].rank) = wrong[n / 5];
        FAILS(attn_bmm_backward(v[0], v[1], v[2], o[0], o[1], 0, 0, &err), ATTN_ERR_RANK, names[n % 5]);
    }
    a = floats(4, 2, 3, 2, 2); /* batch axes that do not go together */
    b = floats(4, 2, 1, 2, 2);
    da = attn_out_f32(m.gradients[0], 4, 2, 3, 2, 2);
    FAILS(attn_bmm_backward(a, floats(4, 3, 1, 2, 2), a, da, nowhere, 0, 0, &err), ATTN_ERR_SIZE, "b.size[0]");
    FAILS(attn_bmm_backward(a, floats(4, 1, 2, 2, 2), a, da, nowhere, 0, 0, &err), ATTN_ERR_SIZE, "b.size[1]");
    FAILS(attn_bmm_backward(a, floats(3, 2, 2, 2, 0), a, da, nowhere, 0, 0, &err), ATTN_ERR_SIZE, "b.size[0]");
    FAILS(attn_bmm_backward(a, b, floats(4, 1, 3, 2, 2), da, nowhere, 0, 0, &err), ATTN_ERR_SIZE, "d_out.size[0]");
    FAILS(attn_bmm_backward(a, b, floats(4, 2, 1, 2, 2), da, nowhere, 0, 0, &err), ATTN_ERR_SIZE, "d_out.size[1]");
    FAILS(attn_bmm_backward(a, b, floats(3, 3, 2, 2, 0), da, nowhere, 0, 0, &err), ATTN_ERR_SIZE, "d_out.rank");
    a = floats(3, 3, 2, 2, 0);
    da = attn_out_f32(m.gradients[0], 3, 3, 2, 2, 0);
    FAILS(attn_bmm_backward(a, b, a, da, nowhere, 0, 0, &err), ATTN_ERR_SIZE, "d_out.rank");
    b = floats(3, 1, 2, 2, 0);
    FAILS(attn_bmm_backward(a, b, floats(3, 2, 2, 2, 0), da, nowhere, 0, 0, &err), ATTN_ERR_SIZE, "d_out.size[0]");
}

/* ---- of a block of heads */
static attn_mha_grad head_grads(const attn_mha_desc *h) {
    attn_mha_grad g;
    memset(&g, 0, sizeof g);
    g.d_out = floats(3, B, SQ, h->w_result.rank ? 5 : 6, 0);
    g.dquery = shaped_like(&h->query, m.gradients[0]);
    g.dkey = shaped_like(&h->key, m.gradients[1]);
    g.dvalue = shaped_like(&h->value, m.gradients[2]);
    g.dw_query = shaped_like(&h->w_query, m.gradients[3]);
    g.dw_key = shaped_like(&h->w_key, m.gradients[4]);
    g.dw_value = shaped_like(&h->w_value, m.gradients[5]);
    g.dw_result = shaped_like(&h->w_result, m.gradients[6]);
    return g;
}

static void test_backward_heads(void) {
    static const struct {
        const char *name;
        size_t offset;
        int64_t first, second; /* sizes but one of a weight */
    } results[] = {
#define RESULT(name) {#name, offsetof(attn_mha_grad, name), 0, 0}
        RESULT(dquery), RESULT(dkey),     RESULT(dvalue),   RESULT(dw_query),
        RESULT(dw_key), RESULT(dw_value), RESULT(dw_result)};
    attn_desc options = valid();
    attn_error err;
    size_t size;
    memset(&options, 0, sizeof options);
#define MHA_BACKWARD(status, field, change) \
    do { \
        attn_mha_desc h = heads(&options); \
        memset(&h.out, 0, sizeof h.out); \
        h.out = attn_out_f32(m.weights, 3, B, SQ, 5, 0); \
        attn_mha_grad g = head_grads(&h); \
        change; \
        poison_error(&err); \
        check_error(attn_mha_backward(&h, &g, &err), &err, status, field, __LINE__); \
        check_unwritten(__LINE__); \
    } while (0)
    attn_mha_desc fine = heads(&options);
    attn_mha_grad grads = head_grads(&fine);
    FAILS(attn_mha_backward(0, &grads, &err), ATTN_ERR_NULL, "desc");
    FAILS(attn_mha_backward(&fine, 0, &err), ATTN_ERR_NULL, "grad");
    FAILS(attn_mha_backward_workspace_size(&fine, &grads, 0, &err), ATTN_ERR_NULL, "bytes");
    FAILS(attn_mha_backward_workspace_size(0, &grads, &size, &err), ATTN_ERR_NULL, "desc");
    MHA_BACKWARD(ATTN_ERR_NULL, "d_out", memset(&g.d_out, 0, sizeof g.d_out));
    MHA_BACKWARD(ATTN_ERR_NULL, "dquery",
                 memset(&g.dquery, 0, offsetof(attn_mha_grad, attention) - offsetof(attn_mha_grad, dquery)));
    MHA_BACKWARD(ATTN_ERR_NULL, "query", memset(&h.query, 0, sizeof h.query));
    MHA_BACKWARD(ATTN_ERR_NULL, "w_key.data", h.w_key.data = 0);
    MHA_BACKWARD(ATTN_ERR_NULL, "d_out.data", g.d_out.data = 0);
    MHA_BACKWARD(ATTN_ERR_TYPE, "d_out.type", g.d_out.type = ATTN_U8);
    MHA_BACKWARD(ATTN_ERR_RANK, "d_out.rank", g.d_out = floats(2, SQ, 5, 0, 0));
    MHA_BACKWARD(ATTN_ERR_SIZE, "d_out.size[0]", g.d_out.size[0] = 1);
    MHA_BACKWARD(ATTN_ERR_SIZE, "d_out.size[1]", g.d_out.size[1] = SQ - 1);
    MHA_BACKWARD(ATTN_ERR_SIZE, "d_out.size[2]", g.d_out.size[2] = 4);
    for (int n = 0; n < 7; n++) {
        char name[40];
#define AT_RESULT ((attn_out *)(void *)((char *)&g + results[n].offset))
        snprintf(name, sizeof name, "%s.data", results[n].name);
        MHA_BACKWARD(ATTN_ERR_NULL, name, AT_RESULT->data = 0);
        snprintf(name, sizeof name, "%s.type", results[n].name);
        MHA_BACKWARD(ATTN_ERR_TYPE, name, AT_RESULT->type = ATTN_F64);
        snprintf(name, sizeof name, "%s.rank", results[n].name);
        MHA_BACKWARD(ATTN_ERR_RANK, name, AT_RESULT->rank = 1);
        snprintf(name, sizeof name, "%s.size[1]", results[n].name);
        MHA_BACKWARD(ATTN_ERR_SIZE, name, AT_RESULT->size[1]--);
        snprintf(name, sizeof name, "%s.stride", results[n].name);
        MHA_BACKWARD(ATTN_ERR_STRIDE, name, AT_RESULT->stride[0] = 0);
        MHA_BACKWARD(ATTN_ERR_OVERLAP, results[n].name, AT_RESULT->data = m.q);
        MHA_BACKWARD(ATTN_ERR_OVERLAP, results[n].name, AT_RESULT->data = m.small);
        MHA_BACKWARD(ATTN_ERR_OVERLAP, results[n].name, AT_RESULT->data = m.scores);
        if (n) MHA_BACKWARD(ATTN_ERR_OVERLAP, "dquery", AT_RESULT->data = m.gradients[0]);
    }
    attn_grad inner; /* what belongs to the attention itself lies apart too */
    memset(&inner, 0, sizeof inner);
    inner.d_scale = attn_out_f32(m.gradients[0], 1, 1, 0, 0, 0);
    MHA_BACKWARD(ATTN_ERR_OVERLAP, "dquery", g.attention = &inner);
    memset(&inner, 0, sizeof inner);
    inner.d_lse = attn_view_f32(m.gradients[1], 3, B, 2, SQ, 0);
    MHA_BACKWARD(ATTN_ERR_OVERLAP, "dkey", g.attention = &inner);
    float *const read[] = {m.q, m.k, m.v, m.small, m.scores};
    for (int n = 0; n < 5; n++) { /* query, key, value, the weights, d_out */
        memset(&inner, 0, sizeof inner);
        inner.d_scale = attn_out_f32(read[n], 1, 1, 0, 0, 0);
        MHA_BACKWARD(ATTN_ERR_OVERLAP, "d_scale", g.attention = &inner);
    }
    MHA_BACKWARD(ATTN_ERR_OPTION, "db_query", g.db_query = attn_out_f32(m.gradients[7], 1, 4, 0, 0, 0));
    MHA_BACKWARD(ATTN_ERR_OPTION, "db_result", g.db_result = attn_out_f32(m.gradients[7], 1, 5, 0, 0, 0));
    MHA_BACKWARD(ATTN_ERR_OPTION, "dvalue", memset(&h.value, 0, sizeof h.value);
                 h.w_value = attn_view_f32(m.small, 2, 6, 4, 0, 0);
                 g.dw_value = shaped_like(&h.w_value, m.gradients[5]));
    MHA_BACKWARD(ATTN_ERR_SIZE, "db_key.size[0]", h.b_key = floats(1, 4, 0, 0, 0);
                 g.db_key = attn_out_f32(m.gradients[7], 1, 3, 0, 0, 0));
    MHA_BACKWARD(ATTN_ERR_OPTION, "accumulate", g.accumulate = 1u << 11);
    MHA_BACKWARD(ATTN_ERR_OPTION, "reserved", g.reserved = 1);
    MHA_BACKWARD(ATTN_ERR_RANGE, "heads", h.heads = 0);
    MHA_BACKWARD(ATTN_ERR_OPTION, "score", options.score = 99);
    options.score = 0;
    MHA_BACKWARD(ATTN_ERR_WORKSPACE, "workspace_bytes", options.workspace = m.mask; options.workspace_bytes = 8);
    memset(&options, 0, sizeof options);
    fine = heads(&options);
    grads = head_grads(&fine);
    CHECK_STATUS(attn_mha_backward(&fine, &grads, &err), ATTN_OK);
#undef AT_RESULT
}

/* Conversions: their arguments, broken one by one. */
static void test_conversions(void) {
    attn_error err;
    attn_view x = floats(4, 1, 2, 3, 40);
    static int8_t bytes[240];
    static float scales[18], other[240];
    attn_out o = attn_out_f32(other, 4, 1, 2, 3, 40), c = attn_out_typed(ATTN_I8, bytes, 4, 1, 2, 3, 40);
    attn_out s = attn_out_f32(scales, 4, 1, 2, 3, 2), bad;
    attn_view wrong;
#define WITH(what, from, change) (what = from, change, what)
    FAILS(attn_convert(WITH(wrong, x, wrong.type = ATTN_U8), o, &err), ATTN_ERR_TYPE, "from.type");
    FAILS(attn_convert(x, WITH(bad, o, bad.type = ATTN_I8), &err), ATTN_ERR_TYPE, "to.type");
    FAILS(attn_convert(x, WITH(bad, o, bad.size[2] = 2), &err), ATTN_ERR_SIZE, "to.size[2]");
    FAILS(attn_convert(x, WITH(bad, o, bad.rank = 3), &err), ATTN_ERR_SIZE, "to.size[0]");
    FAILS(attn_convert(WITH(wrong, x, wrong.data = 0), o, &err), ATTN_ERR_NULL, "from.data");
    FAILS(attn_convert(WITH(wrong, x, wrong.rank = 0), o, &err), ATTN_ERR_RANK, "from.rank");
    FAILS(attn_convert(WITH(wrong, x, memset(&wrong, 0, sizeof wrong)), o, &err), ATTN_ERR_NULL, "from");
    FAILS(attn_convert(x, WITH(bad, o, bad.stride[3] = 0), &err), ATTN_ERR_STRIDE, "to.stride");
    FAILS(attn_convert(attn_view_of(o), o, &err), ATTN_ERR_OVERLAP, "to");
    FAILS(attn_quantize(x, WITH(bad, c, bad.type = ATTN_U8), s, &err), ATTN_ERR_TYPE, "codes.type");
    FAILS(attn_quantize(x, c, WITH(bad, s, bad.type = ATTN_BF16), &err), ATTN_ERR_TYPE, "scale.type");
    FAILS(attn_quantize(WITH(wrong, x, wrong.type = ATTN_F64), c, s, &err), ATTN_ERR_TYPE, "from.type");
    FAILS(attn_quantize(x, c, attn_out_f32(scales, 4, 1, 2, 3, 3), &err), ATTN_ERR_SIZE, "scale.size[3]");
    FAILS(attn_quantize(x, WITH(bad, c, bad.size[3] = 39), s, &err), ATTN_ERR_SIZE, "codes.size[3]");
    FAILS(attn_unpack_q8_0(bytes, c, s, &err), ATTN_ERR_SIZE, "codes.size[3]");
    c.size[3] = 32;
    FAILS(attn_unpack_q8_0(bytes, c, s, &err), ATTN_ERR_SIZE, "scale.size[3]");
    s.size[3] = 1;
    FAILS(attn_unpack_q8_0(0, c, s, &err), ATTN_ERR_NULL, "blocks");
    for (int i = 0; i < 240; i++) CHECK(bytes[i] == 0 && other[i] == 0);
#undef WITH
}

/* ---- the layout that bindings rely on: 64-bit machines of the usual kind */
typedef struct place {
    const char *name;
    size_t offset, want;
} place;

static void check_places(const place *p) {
    for (; p->name; p++)
        CHECKF(p->offset == p->want, "%s lies at %lu, not %lu", p->name, (unsigned long)p->offset,
               (unsigned long)p->want);
}

/* The text says the same: every field of the list, and no other one of the structure. */
static void check_layout_text(const place *p, const char *structure) {
    static char text[8000];
    char line[80];
    size_t n = strlen(structure), fields = 0, told = 0;
    CHECK(attn_layout(text, sizeof text) == strlen(text));
    snprintf(line, sizeof line, "\n%s ", structure);
    const char *from = strstr(text, line);
    if (!CHECKF(from != 0, "no %s in the layout", structure)) return;
    from = strchr(from + 1, '\n');
    const char *end = from;
    for (; !strncmp(end, "\n    ", 5); end = strchr(end + 1, '\n')) told++;
    for (; p->name; p++) {
        if (strncmp(p->name, structure, n) || p->name[n] != '.') continue;
        fields++;
        snprintf(line, sizeof line, "\n    %s %lu ", p->name + n + 1, (unsigned long)p->want);
        const char *at = strstr(from, line);
        CHECKF(at && at < end, "%s%s", p->name, line);
    }
    CHECKF(fields == told, "%s: %lu fields, %lu in the text", structure, (unsigned long)fields, (unsigned long)told);
}

static void test_layout(void) {
#define AT(type, field, want) \
    { #type "." #field, offsetof(type, field), want }
    static const place desc[] = {AT(attn_desc, struct_bytes, 0),
                                 AT(attn_desc, q, 8),
                                 AT(attn_desc, k, 88),
                                 AT(attn_desc, v, 168),
                                 AT(attn_desc, out, 248),
                                 AT(attn_desc, lse, 328),
                                 AT(attn_desc, weights, 408),
                                 AT(attn_desc, scores, 488),
                                 AT(attn_desc, scores_softcap, 568),
                                 AT(attn_desc, scores_masked, 648),
                                 AT(attn_desc, score, 728),
                                 AT(attn_desc, scale_set, 732),
                                 AT(attn_desc, scale, 736),
                                 AT(attn_desc, sigma, 740),
                                 AT(attn_desc, sigma_per_head, 744),
                                 AT(attn_desc, bilinear, 824),
                                 AT(attn_desc, w_q, 904),
                                 AT(attn_desc, w_k, 984),
                                 AT(attn_desc, w_v, 1064),
                                 AT(attn_desc, hidden_bias, 1144),
                                 AT(attn_desc, given_scores, 1224),
                                 AT(attn_desc, softcap, 1304),
                                 AT(attn_desc, bias, 1312),
                                 AT(attn_desc, alibi, 1392),
                                 AT(attn_desc, sink, 1472),
                                 AT(attn_desc, mask, 1552),
                                 AT(attn_desc, key_lengths, 1632),
                                 AT(attn_desc, query_lengths, 1712),
                                 AT(attn_desc, causal, 1792),
                                 AT(attn_desc, align, 1796),
                                 AT(attn_desc, positions, 1800),
                                 AT(attn_desc, window, 1880),
                                 AT(attn_desc, empty, 1884),
                                 AT(attn_desc, window_left, 1888),
                                 AT(attn_desc, window_right, 1896),
                                 AT(attn_desc, dropout, 1904),
                                 AT(attn_desc, weights_after_dropout, 1908),
                                 AT(attn_desc, seed, 1912),
                                 AT(attn_desc, dropout_origin, 1920),
                                 AT(attn_desc, isa, 1952),
                                 AT(attn_desc, reserved, 1956),
                                 AT(attn_desc, workspace, 1960),
                                 AT(attn_desc, workspace_bytes, 1968),
                                 AT(attn_desc, allocator, 1976),
                                 AT(attn_desc, parallel, 2000),
                                 AT(attn_desc, stats, 2024),
                                 AT(attn_desc, stream, 2104),
                                 AT(attn_desc, k_scale, 2112),
                                 AT(attn_desc, v_scale, 2192),
                                 AT(attn_desc, precision, 2272),
                                 AT(attn_desc, reserved2, 2276),
                                 AT(attn_desc, query_starts, 2280),
                                 AT(attn_desc, key_starts, 2360),
                                 AT(attn_desc, page_table, 2440),
                                 AT(attn_desc, carry_in, 2520),
                                 AT(attn_desc, carry_out, 2600),
                                 AT(attn_desc, key_origin, 2680),
                                 {"sizeof attn_desc", sizeof(attn_desc), 2688},
                                 {0, 0, 0}};
    static const place others[] = {AT(attn_view, data, 0),
                                   AT(attn_view, size, 8),
                                   AT(attn_view, stride, 40),
                                   AT(attn_view, type, 72),
                                   AT(attn_view, rank, 76),
                                   {"sizeof attn_view", sizeof(attn_view), 80},
                                   AT(attn_out, data, 0),
                                   AT(attn_out, size, 8),
                                   AT(attn_out, stride, 40),
                                   AT(attn_out, type, 72),
                                   AT(attn_out, rank, 76),
                                   {"sizeof attn_out", sizeof(attn_out), 80},
                                   AT(attn_error, status, 0),
                                   AT(attn_error, field, 8),
                                   AT(attn_error, rule, 16),
                                   AT(attn_error, got, 24),
                                   AT(attn_error, want, 32),
                                   AT(attn_error, has_numbers, 40),
                                   AT(attn_error, cuda, 44),
                                   AT(attn_error, place, 48),
                                   AT(attn_error, has_place, 64),
                                   AT(attn_error, has_type, 68),
                                   AT(attn_error, reserved2, 72),
                                   {"sizeof attn_error", sizeof(attn_error), 80},
                                   AT(attn_allocator, allocate, 0),
                                   AT(attn_allocator, release, 8),
                                   AT(attn_allocator, user, 16),
                                   AT(attn_parallel, run, 0),
                                   AT(attn_parallel, user, 8),
                                   AT(attn_parallel, workers, 16),
                                   {"sizeof attn_parallel", sizeof(attn_parallel), 24},
                                   AT(attn_plan, workspace_bytes, 0),
                                   AT(attn_plan, phases, 8),
                                   AT(attn_plan, isa, 12),
                                   AT(attn_plan, tasks, 16),
                                   AT(attn_plan, internal, 144),
                                   {"sizeof attn_plan", sizeof(attn_plan), 4240},
                                   AT(attn_mha_desc, struct_bytes, 0),
                                   AT(attn_mha_desc, query, 8),
                                   AT(attn_mha_desc, key, 88),
                                   AT(attn_mha_desc, value, 168),
                                   AT(attn_mha_desc, w_query, 248),
                                   AT(attn_mha_desc, w_key, 328),
                                   AT(attn_mha_desc, w_value, 408),
                                   AT(attn_mha_desc, w_result, 488),
                                   AT(attn_mha_desc, b_query, 568),
                                   AT(attn_mha_desc, b_key, 648),
                                   AT(attn_mha_desc, b_value, 728),
                                   AT(attn_mha_desc, b_result, 808),
                                   AT(attn_mha_desc, out, 888),
                                   AT(attn_mha_desc, heads, 968),
                                   AT(attn_mha_desc, heads_kv, 976),
                                   AT(attn_mha_desc, attention, 984),
                                   {"sizeof attn_mha_desc", sizeof(attn_mha_desc), 992},
                                   AT(attn_rope_desc, struct_bytes, 0),
                                   AT(attn_rope_desc, base, 8),
                                   AT(attn_rope_desc, scaling, 16),
                                   AT(attn_rope_desc, no_truncation, 20),
                                   AT(attn_rope_desc, factor, 24),
                                   AT(attn_rope_desc, original_positions, 32),
                                   AT(attn_rope_desc, low_freq_factor, 40),
                                   AT(attn_rope_desc, high_freq_factor, 48),
                                   AT(attn_rope_desc, beta_fast, 56),
                                   AT(attn_rope_desc, beta_slow, 64),
                                   AT(attn_rope_desc, attention_factor, 72),
                                   AT(attn_rope_desc, first_position, 80),
                                   {"sizeof attn_rope_desc", sizeof(attn_rope_desc), 88},
                                   {0, 0, 0}};
    static const place gradients[] = {AT(attn_grad, struct_bytes, 0),
                                      AT(attn_grad, d_out, 8),
                                      AT(attn_grad, d_weights, 88),
                                      AT(attn_grad, d_lse, 168),
                                      AT(attn_grad, dq, 248),
                                      AT(attn_grad, dk, 328),
                                      AT(attn_grad, dv, 408),
                                      AT(attn_grad, d_given_scores, 488),
                                      AT(attn_grad, d_bias, 568),
                                      AT(attn_grad, d_bilinear, 648),
                                      AT(attn_grad, d_w_q, 728),
                                      AT(attn_grad, d_w_k, 808),
                                      AT(attn_grad, d_w_v, 888),
                                      AT(attn_grad, d_hidden_bias, 968),
                                      AT(attn_grad, d_sigma, 1048),
                                      AT(attn_grad, d_scale, 1128),
                                      AT(attn_grad, d_sink, 1208),
                                      AT(attn_grad, d_alibi, 1288),
                                      AT(attn_grad, accumulate, 1368),
                                      AT(attn_grad, reserved, 1372),
                                      {"sizeof attn_grad", sizeof(attn_grad), 1376},
                                      AT(attn_mha_grad, struct_bytes, 0),
                                      AT(attn_mha_grad, d_out, 8),
                                      AT(attn_mha_grad, dquery, 88),
                                      AT(attn_mha_grad, dkey, 168),
                                      AT(attn_mha_grad, dvalue, 248),
                                      AT(attn_mha_grad, dw_query, 328),
                                      AT(attn_mha_grad, dw_key, 408),
                                      AT(attn_mha_grad, dw_value, 488),
                                      AT(attn_mha_grad, dw_result, 568),
                                      AT(attn_mha_grad, db_query, 648),
                                      AT(attn_mha_grad, db_key, 728),
                                      AT(attn_mha_grad, db_value, 808),
                                      AT(attn_mha_grad, db_result, 888),
                                      AT(attn_mha_grad, attention, 968),
                                      AT(attn_mha_grad, accumulate, 976),
                                      AT(attn_mha_grad, reserved, 980),
                                      {"sizeof attn_mha_grad", sizeof(attn_mha_grad), 984},
                                      {0, 0, 0}};
#undef AT
    CHECK(sizeof(attn_view) == sizeof(attn_out));
    if (sizeof(void *) != 8) {
        test_skip("the offsets are those of a 64-bit machine");
        return;
    }
    check_places(desc);
    check_places(others);
    check_places(gradients);
    check_layout_text(desc, "attn_desc");
    check_layout_text(others, "attn_error");
    check_layout_text(others, "attn_mha_desc");
    check_layout_text(others, "attn_rope_desc");
    check_layout_text(gradients, "attn_grad");
    check_layout_text(gradients, "attn_mha_grad");
}

static int broken_pipe(void *user, const char *bytes, size_t count) {
    (void)bytes;
    (void)count;
    return --*(int *)user < 0;
}

/* struct_bytes: 0 or the size as it is, refused where no version had it; what is beyond must be 0. */
static void test_struct_bytes(void) {
    struct {
        attn_desc d;
        char beyond[64];
    } more;
    static const uint64_t fixed[] = {1, 8, (uint64_t)1 << 40, UINT64_MAX};
    static const int near[] = {-8, 1, 4};
#define WRONG(structure) (i < 4 ? fixed[i] : sizeof(structure) + (uint64_t)(int64_t)near[i - 4])
/* attn_desc has grown behind `stream` */
#define WRONG_DESC (i == 4 ? offsetof(attn_desc, stream) : WRONG(attn_desc))
    ACCEPTED(valid, d.struct_bytes = sizeof(attn_desc));
    static struct { /* of a later version: less than 64 KB */
        attn_desc d;
        char beyond[1 << 17];
    } large;
    large.d = valid();
    large.d.struct_bytes = (1 << 16) - sizeof(void *);
    CHECK_STATUS(attn_forward(&large.d, 0), ATTN_OK);
    paint();
    large.d.struct_bytes = 1 << 16;
    refused(&large.d, ATTN_ERR_OPTION, "struct_bytes", __LINE__);
    for (size_t i = 0; i < 7; i++) {
        attn_desc options;
        attn_error err;
        attn_view x = floats(2, SQ, SQ, 0, 0);
        attn_out o = attn_out_f32(m.weights, 2, SQ, SQ, 0, 0);
        memset(&options, 0, sizeof options);
        REFUSED(valid, ATTN_ERR_OPTION, "struct_bytes", d.struct_bytes = WRONG_DESC);
        BACKWARD(valid, ATTN_ERR_OPTION, "struct_bytes", d.struct_bytes = WRONG_DESC);
        BACKWARD(valid, ATTN_ERR_OPTION, "struct_bytes", g.struct_bytes = WRONG(attn_grad));
        options.struct_bytes = WRONG_DESC; /* nested and as options */
        MHA(ATTN_ERR_OPTION, "struct_bytes", (void)0);
        FAILS(attn_softmax(x, o, &options, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_softmax_backward(x, x, o, &options, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_scores(x, x, o, &options, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_bmm(x, x, o, &options, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_mask(attn_out_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SK), &options, &err), ATTN_ERR_OPTION,
              "struct_bytes");
        options.struct_bytes = 0;
        MHA(ATTN_ERR_OPTION, "struct_bytes", h.struct_bytes = WRONG(attn_mha_desc));
        attn_mha_desc h = heads(&options);
        attn_mha_grad g = head_grads(&h);
        attn_grad own;
        memset(&own, 0, sizeof own);
        g.struct_bytes = WRONG(attn_mha_grad);
        FAILS(attn_mha_backward(&h, &g, &err), ATTN_ERR_OPTION, "struct_bytes");
        g.struct_bytes = 0;
        g.attention = &own;
        own.struct_bytes = WRONG(attn_grad);
        FAILS(attn_mha_backward(&h, &g, &err), ATTN_ERR_OPTION, "struct_bytes");
        attn_heatmap map;
        int calls = 1000000;
        attn_writer writer = {broken_pipe, &calls};
        memset(&map, 0, sizeof map);
        map.values = attn_view_f32(m.scores, 2, 2, 2, 0, 0);
        map.struct_bytes = i == 4 ? offsetof(attn_heatmap, terminal) : WRONG(attn_heatmap); /* grown behind it */
        FAILS(attn_heatmap_svg(&map, writer, &err), ATTN_ERR_OPTION, "struct_bytes");
        CHECK(calls == 1000000);
    }
    memset(&more, 0, sizeof more);
    more.d = valid();
    more.d.struct_bytes = sizeof more;
    CHECK_STATUS(attn_forward(&more.d, 0), ATTN_OK);
    for (size_t i = 0; i < sizeof more.beyond; i += sizeof more.beyond - 1) {
        paint();
        more.beyond[i] = 1;
        refused(&more.d, ATTN_ERR_OPTION, "struct_bytes", __LINE__);
        more.beyond[i] = 0;
    }
}

/* The numbers of the enumerations are part of the interface: bindings write them down. */
static void test_numbers(void) {
    CHECK(ATTN_OK == 0 && ATTN_ERR_NULL == 1 && ATTN_ERR_TYPE == 2 && ATTN_ERR_RANK == 3 && ATTN_ERR_SIZE == 4);
    CHECK(ATTN_ERR_STRIDE == 5 && ATTN_ERR_RANGE == 6 && ATTN_ERR_OPTION == 7 && ATTN_ERR_OVERFLOW == 8);
    CHECK(ATTN_ERR_OVERLAP == 9 && ATTN_ERR_WORKSPACE == 10 && ATTN_ERR_ALLOC == 11 && ATTN_ERR_ISA == 12);
    CHECK(ATTN_ERR_WRITE == 13 && ATTN_ERR_PLACE == 14 && ATTN_ERR_CUDA == 15 && ATTN_STATUS_COUNT == 16);
    CHECK(ATTN_F32 == 0 && ATTN_F16 == 1 && ATTN_BF16 == 2 && ATTN_F64 == 3 && ATTN_U8 == 4 && ATTN_I32 == 5 &&
          ATTN_I64 == 6 && ATTN_I8 == 7);
    CHECK(ATTN_SCORE_SCALED_DOT == 0 && ATTN_SCORE_DOT == 1 && ATTN_SCORE_COSINE == 2 && ATTN_SCORE_BILINEAR == 3);
    CHECK(ATTN_SCORE_ADDITIVE == 4 && ATTN_SCORE_GAUSSIAN == 5 && ATTN_SCORE_BOXCAR == 6 &&
          ATTN_SCORE_EPANECHNIKOV == 7);
    CHECK(ATTN_SCORE_TRIANGULAR == 8 && ATTN_SCORE_CONSTANT == 9 && ATTN_SCORE_GIVEN == 10 && ATTN_SCORE_COUNT == 11);
    CHECK(ATTN_ALIGN_UNSET == 0 && ATTN_ALIGN_BOTTOM_RIGHT == 1 && ATTN_ALIGN_POSITIONS == 2 &&
          ATTN_ALIGN_TOP_LEFT == 3);
    CHECK(ATTN_EXP == 0 && ATTN_LOG == 1 && ATTN_TANH == 2 && ATTN_FUNCTION_COUNT == 3);
    CHECK(ATTN_EMPTY_ZERO == 0 && ATTN_EMPTY_NAN == 1 && ATTN_EMPTY_UNIFORM == 2);
    CHECK(ATTN_PRECISION_F32 == 0 && ATTN_PRECISION_FAST == 1 && ATTN_PRECISION_COUNT == 2);
    CHECK(ATTN_ISA_AUTO == 0 && ATTN_ISA_SCALAR == 1 && ATTN_ISA_AVX2 == 2 && ATTN_ISA_AVX512 == 3 &&
          ATTN_ISA_NEON == 4 && ATTN_ISA_PORTABLE == 5);
    CHECK(ATTN_GRAD_Q == 1 && ATTN_GRAD_K == 2 && ATTN_GRAD_V == 4 && ATTN_GRAD_GIVEN_SCORES == 8);
    CHECK(ATTN_GRAD_BIAS == 16 && ATTN_GRAD_BILINEAR == 32 && ATTN_GRAD_W_Q == 64 && ATTN_GRAD_W_K == 128);
    CHECK(ATTN_GRAD_W_V == 256 && ATTN_GRAD_HIDDEN_BIAS == 512 && ATTN_GRAD_SIGMA == 1024 && ATTN_GRAD_SCALE == 2048);
    CHECK(ATTN_GRAD_SINK == 4096 && ATTN_GRAD_ALIBI == 8192 && ATTN_GRAD_ALL == 16383);
    CHECK(attn_version() == ATTN_VERSION_NUMBER && ATTN_VERSION_NUMBER >= 100);
}

/* ---- texts */
static void test_strings(void) {
    attn_error ok = {ATTN_OK, "", "", 0, 0, 0, 0, {0, 0}, 0, 0, 0},
               extreme = {ATTN_ERR_SIZE, "q.size[0]", "must equal", INT64_MIN, INT64_MAX, 1, 0, {3, 4}, 2, 0, 0};
    char text[100];
    for (int i = 0; i < ATTN_STATUS_COUNT; i++) {
        const char *s = attn_status_string((attn_status)i);
        CHECK(s && *s);
        for (int j = 0; j < i; j++) CHECK(strcmp(s, attn_status_string((attn_status)j)) != 0);
    }
    CHECK(!strcmp(attn_status_string(ATTN_ERR_SIZE), "a size that does not agree with another one"));
    CHECK(*attn_status_string((attn_status)-1) && *attn_status_string(ATTN_STATUS_COUNT) &&
          *attn_status_string((attn_status)12345));
    CHECK(!strcmp(attn_isa_string(ATTN_ISA_AVX2), "avx2") && !strcmp(attn_isa_string(ATTN_ISA_SCALAR), "scalar"));
    CHECK(!strcmp(attn_isa_string(ATTN_ISA_AVX512), "avx512") && !strcmp(attn_isa_string(ATTN_ISA_NEON), "neon"));
    CHECK(!strcmp(attn_isa_string(ATTN_ISA_PORTABLE), "portable"));
    CHECK(*attn_isa_string((attn_isa)-1) && *attn_isa_string(ATTN_ISA_COUNT));
    CHECK(!strcmp(attn_score_string(ATTN_SCORE_SCALED_DOT), "scaled dot product"));
    CHECK(!strcmp(attn_score_string(ATTN_SCORE_GIVEN), "given"));
    CHECK(*attn_score_string((attn_score)-1) && *attn_score_string(ATTN_SCORE_COUNT));
    CHECK(attn_error_string(&ok, text, sizeof text) == 2 && !strcmp(text, "ok"));
    CHECK(attn_error_string(0, text, sizeof text) == strlen(text) && *text);
    check_text(&extreme, __LINE__);
    {
        attn_desc d = valid(); /* the example of the manual */
        attn_error err;
        d.k.size[3] = D - 1;
        attn_forward(&d, &err);
        attn_error_string(&err, text, sizeof text);
        CHECKF(!strcmp(text, "k.size[3] must equal q.size[3]: 4, is 3"), "%s", text);
        CHECK(err.got == 3 && err.want == 4 && err.has_numbers);
    }
}

/* The whole text of a refusal. */
static void says(attn_status got, const attn_error *err, const char *want) {
    char text[400];
    attn_error_string(err, text, sizeof text);
    CHECKF(got == (attn_status)err->status && !strcmp(text, want), "\"%s\", want \"%s\"", text, want);
}
static void test_words(void) {
    attn_error err;
    attn_desc d = square();
    attn_out picture = attn_out_u8(m.mask, 4, 1, 1, SQ, SQ);
    d.mask = floats(2, SQ, SQ, 0, 0);
    poison_error(&err);
    says(attn_forward(&d, &err), &err, "mask.type must be ATTN_U8, is ATTN_F32");
    CHECK(err.has_type && err.got == ATTN_F32 && !err.has_numbers);
    d.mask.type = 99;
    says(attn_forward(&d, &err), &err, "mask.type must be ATTN_U8, is 99");
    d.mask.type = -1;
    says(attn_forward(&d, &err), &err, "mask.type must be ATTN_U8, is -1");
    for (int type = 0; type < ATTN_TYPE_COUNT; type++) {
        static const char *const names[] = {"F32", "F16", "BF16", "F64", "U8", "I32", "I64", "I8"};
        char want[60];
        if (type == ATTN_I32 || type == ATTN_I64) continue;
        snprintf(want, sizeof want, "positions.type must be ATTN_I32 or ATTN_I64, is ATTN_%s", names[type]);
        d = square();
        d.align = ATTN_ALIGN_POSITIONS;
        d.positions = attn_view_typed((attn_type)type, m.ints, 1, B, 0, 0, 0);
        says(attn_forward(&d, &err), &err, want);
    }
    d = valid();
    d.k = attn_view_bhsd(m.k, B, 3, SK, D);
    says(attn_forward(&d, &err), &err, "k.size[1] must divide the number of query heads: 3 does not divide 4");
    CHECK(err.has_numbers == 2 && err.got == 3 && err.want == H && !err.has_type);
    d.k = attn_view_bhsd(m.k, B, HKV, SK, D + 1); /* nothing stays of an error before */
    says(attn_forward(&d, &err), &err, "k.size[3] must equal q.size[3]: 4, is 5");
    CHECK(err.has_numbers == 1 && !err.has_type);
    picture.type = ATTN_F16;
    says(attn_mask(picture, 0, &err), &err, "mask.type must be ATTN_U8, is ATTN_F16");
    d = valid();
    CHECK_STATUS(attn_forward(&d, &err), ATTN_OK);
    CHECK(!err.has_type && !err.has_numbers);
    {
        attn_heatmap map;
        char text[100];
        attn_buffer b = {text, sizeof text, 0};
        memset(&map, 0, sizeof map);
        map.values = attn_view_i32(m.ints, 2, 2, 2, 0, 0);
        says(attn_heatmap_svg(&map, attn_buffer_writer(&b), &err), &err,
             "values.type must be ATTN_F32, ATTN_F16, ATTN_BF16 or ATTN_U8, is ATTN_I32");
    }
    attn_grad g = grads_of(&d);
    memset(&g.d_out, 0, sizeof g.d_out), memset(&g.d_weights, 0, sizeof g.d_weights);
    memset(&g.d_lse, 0, sizeof g.d_lse);
    says(attn_backward(&d, &g, &err), &err,
         "d_out must be given, or d_weights or d_lse: the gradient of the loss with respect to a result");
    memset(&g, 0, sizeof g);
    g.d_out = attn_view_bhsd(m.out, B, H, SQ, DV);
    says(attn_backward(&d, &g, &err), &err, "dq must be given, or another gradient that is to be computed");
}

static void check_explained(const attn_desc *d) {
    char whole[600], cut[600];
    size_t length = attn_explain(d, whole, sizeof whole);
    CHECK(length > 20 && length < sizeof whole && strlen(whole) == length);
    CHECK(attn_explain(d, 0, 0) == length && attn_explain(d, whole, 0) == length);
    for (size_t size = 0; size <= length + 2; size++) {
        memset(cut, 'x', sizeof cut);
        int ok = attn_explain(d, cut, size) == length && cut[size] == 'x';
        if (size > 0) ok &= strlen(cut) == (length < size ? length : size - 1) && !strncmp(cut, whole, strlen(cut));
        CHECKF(ok, "explained into %lu bytes", (unsigned long)size);
    }
}

static void test_explain(void) {
    char text[600], why[200];
    attn_error err;
    attn_desc d;
    memset(&d, 0, sizeof d);
    check_explained(0);
    check_explained(&d);
    for (int i = 0; i < 200; i++) { /* whatever it is given: bytes at random, but for the content of lengths */
        unsigned char *bytes = (unsigned char *)&d;
        d = valid();
        for (int n = test_int(1, 8); n > 0; n--)
            bytes[test_int(0, (int)offsetof(attn_desc, key_lengths) - 1)] = (unsigned char)test_int(0, 255);
        memset(&d.sigma_per_head, 0, sizeof d.sigma_per_head);
        CHECK(attn_explain(&d, text, sizeof text) > 10);
    }
    CHECK(!unpainted());
    d = valid();
    check_explained(&d);
    attn_explain(&d, text, sizeof text);
    CHECKF(strstr(text, attn_score_string(ATTN_SCORE_SCALED_DOT)) && strstr(text, attn_isa_string(attn_best_isa())),
           "%s", text);
    d.k.size[3] = 7;
    check_explained(&d);
    attn_explain(&d, text, sizeof text);
    attn_forward(&d, &err);
    attn_error_string(&err, why, sizeof why);
    CHECKF(strstr(text, why) != 0, "\"%s\" does not contain \"%s\"", text, why);
}

/* What attn_explain says of the options, behind the sizes and before what else it says. */
static void explains(const attn_desc *d, const char *options) {
    char whole[600], *begins, *ends;
    check_explained(d);
    attn_explain(d, whole, sizeof whole);
    begins = strstr(whole, "; with ");
    ends = strstr(whole, "; kernels ");
    if (!CHECKF(begins && ends && begins < ends, "%s", whole)) return;
    *ends = 0;
    CHECKF(!strcmp(begins + 7, options), "options \"%s\", want \"%s\"", begins + 7, options);
}
static void test_explained_options(void) {
#define PAIRS " % of the pairs allowed by lengths, causal and window"
    static const int32_t lengths[] = {2, 0}, starts[] = {0, 2}, of_entries[] = {2, 1};
    char text[600];
    attn_desc d = square();
    explains(&d, "scale 0.5");
    d.causal = 1; /* 1 + 2 + 3 of 9 */
    explains(&d, "scale 0.5, causal, align top-left; 66.6667" PAIRS);
    d.key_lengths = attn_view_i32(lengths, 1, B, 0, 0, 0);
    d.align = ATTN_ALIGN_BOTTOM_RIGHT; /* 0 + 1 + 2, and nothing, of 18 */
    explains(&d, "scale 0.5, causal, align bottom-right, key_lengths; 16.6667" PAIRS);
    d.window = 1;
    d.window_left = 0;
    d.window_right = ATTN_UNBOUNDED;
    d.scale = -1.25e9f;
    d.key_lengths.data = NULL; /* not at hand */
    explains(&d, "scale -1.25e9, causal, window_left 0, window_right unbounded, align bottom-right, key_lengths");
    d = gaussian();
    d.sigma = 0.3f;
    d.softcap = 1e-20f;
    d.dropout = 0.1f;
    d.weights_after_dropout = 1;
    d.empty = ATTN_EMPTY_UNIFORM;
    d.mask = mask(1, SK, 0, 0, 0);
    d.bias = floats(1, SK, 0, 0, 0);
    d.sink = d.alibi = slopes();
    d.align = ATTN_ALIGN_POSITIONS;
    d.positions = ints(1, B, 0);
    explains(&d, "sigma 0.3, softcap 1e-20, align positions, empty uniform, dropout 0.1, weights after dropout, bias, "
                 "alibi, sink, mask, positions");
    d = gaussian();
    d.sigma_per_head = slopes();
    d.empty = ATTN_EMPTY_NAN;
    explains(&d, "a sigma per head, empty NaN");
    d = given();
    d.query_lengths = attn_view_i32(lengths, 1, B, 0, 0, 0); /* 2 rows of 2 * 3 */
    explains(&d, "scale 1, query_lengths; 33.3333" PAIRS);
    d = square();
    d.q.size[0] = d.k.size[0] = d.v.size[0] = d.out.size[0] = 1;
    d.query_starts = d.key_starts = attn_view_i32(starts, 1, B, 0, 0, 0);
    d.query_lengths = d.key_lengths = attn_view_i32(of_entries, 1, B, 0, 0, 0);
    d.causal = 1; /* 3 of 2 * 2, and 1 of 1 * 1 */
    explains(&d, "scale 0.5, causal, align top-left, key_lengths, query_lengths, query_starts, key_starts; 80" PAIRS);
    memset(&d, 0, sizeof d); /* as many rows as are counted, and more */
    d.causal = 1;
    for (int64_t n = 1 << 20; n <= (1 << 20) + 1; n++) {
        d.q = d.k = attn_view_bhsd(NULL, 1, 1, n, 1);
        attn_explain(&d, text, sizeof text);
        CHECKF(!strstr(text, "; 50" PAIRS) == (n > 1 << 20), "%s", text);
    }
#undef PAIRS
}

/* A writer that fails at any of its calls. */
static void test_write(void) {
    typedef attn_status (*drawer)(const attn_heatmap *, attn_writer, attn_error *);
    static const drawer drawers[] = {attn_heatmap_svg, attn_heatmap_ansi, attn_heatmap_ppm, attn_heatmap_html};
    float x[4] = {0, 1, 2, 3};
    attn_heatmap map;
    attn_error err;
    memset(&map, 0, sizeof map);
    map.values = attn_view_f32(x, 2, 2, 2, 0, 0);
    for (int i = 0; i < 4; i++) {
        int calls = 1000000, good = 0;
        attn_writer writer = {broken_pipe, &calls};
        CHECK_STATUS(drawers[i](&map, writer, 0), ATTN_OK);
        for (calls = 1000000 - calls; good < calls; good++) {
            int left = good;
            writer.user = &left;
            CHECK_STATUS(drawers[i](&map, writer, &err), ATTN_ERR_WRITE);
            CHECK(err.status == ATTN_ERR_WRITE && *err.field && *err.rule);
        }
        CHECK(good > 0);
    }
}

/* ---- numbers beyond 64 bits */

/* Refused for that view, whichever rule says so, with nothing written. */
static void refused_for(const attn_desc *d, const char *view, int line) {
    attn_error err;
    attn_plan plan;
    poison_error(&err);
    if (!CHECKF(attn_plan_forward(d, &plan, &err) != ATTN_OK, "line %d: accepted", line)) return;
    CHECKF(attn_forward(d, &err) != ATTN_OK, "line %d: only the plan is refused", line);
    CHECKF(strncmp(err.field, view, strlen(view)) == 0 && *err.rule, "line %d: %s %s", line, err.field, err.rule);
    check_unwritten(line);
}
#define REFUSED_FOR(from, view, change) \
    do { \
        attn_desc d = from(); \
        change; \
        refused_for(&d, view, __LINE__); \
    } while (0)

/* One element, as a view of sizes 1, of a view that is too large for strides of 64 bits. */
static attn_view cut_out(attn_view v, int64_t index) {
    for (int axis = 0, rank = v.rank; axis < rank; axis++) v = attn_view_slice(v, axis, axis ? 0 : index, 1);
    return v;
}
/* Where strides do not fit no part of the view is one; data never leaves its place for a number that wrapped around. */
static void test_far_views(void) {
    static const int64_t far = (int64_t)1 << 40;
    for (int64_t index = 1; index < 4; index++) {
        REFUSED_FOR(valid, "bias", d.bias = cut_out(attn_view_f32(m.scores, 3, 4, far, far, 0), index));
        REFUSED_FOR(valid, "bias", d.bias = cut_out(attn_view_f32(m.scores, 4, 4, far, far, SK), index));
        REFUSED_FOR(valid, "bias", d.bias = cut_out(attn_view_bhsd(m.scores, 4, 1, far, far), index));
        REFUSED_FOR(valid, "bias", d.bias = cut_out(attn_view_bshd(m.scores, 4, far, far, 1), index));
        REFUSED_FOR(valid, "bias", d.bias = cut_out(attn_view_rows(m.scores, 4, far, 1, 1, far), index));
        REFUSED_FOR(valid, "mask", d.mask = cut_out(attn_view_u8(m.mask, 3, 4, far, far, 0), index));
    }
    for (int which = 1; which < 3; which++) { /* h * d does not fit, nor does what is three times as much */
        attn_view v = attn_view_qkv(m.q, which, 1, 1, far, far);
        attn_view cut = cut_out(v, 0);
        CHECKF(v.data == m.q || v.rank < 0, "a view that is too large has moved its data");
        REFUSED_FOR(valid, "bias", d.bias = v);
        REFUSED_FOR(valid, "bias", d.bias = cut);
        cut = attn_view_qkv(m.q, which, 2, (int64_t)1 << 31, (int64_t)1 << 15, (int64_t)1 << 16);
        REFUSED_FOR(valid, "bias", d.bias = cut_out(cut, 1));
    }
    REFUSED_FOR(valid, "k", d.k.stride[2] = INT64_MAX / 2; d.k = attn_view_slice(d.k, 2, 4, 1));
    REFUSED_FOR(valid, "k", d.k.stride[0] = INT64_MIN; d.k = attn_view_slice(d.k, 0, 1, 1));
}

/* A position that cannot be added to an index is refused, not bent to the largest number. */
static void test_far_positions(void) {
    static const int64_t first[] = {INT64_MAX - SQ + 2, INT64_MAX};
    int64_t positions[B] = {0, 0};
    for (int i = 0; i < 2; i++) {
        positions[1] = first[i];
        REFUSED_FOR(valid, "positions", d.align = ATTN_ALIGN_POSITIONS; d.causal = 1;
                    d.positions = attn_view_i64(positions, 1, B, 0, 0, 0));
        REFUSED_FOR(valid, "positions", d.align = ATTN_ALIGN_POSITIONS; d.window = 1; d.window_left = 1;
                    d.positions = attn_view_i64(positions, 1, B, 0, 0, 0));
    }
    positions[1] = (int64_t)1 << 61;
    ACCEPTED(valid, d.align = ATTN_ALIGN_POSITIONS; d.causal = 1;
             d.positions = attn_view_i64(positions, 1, B, 0, 0, 0));
}

static int count_bytes(void *user, const char *bytes, size_t count) {
    (void)bytes;
    return (*(size_t *)user += count) > 1 << 20;
}
/* More rows or columns than a picture may have, of panels that are none. */
static void test_far_pictures(void) {
    typedef attn_status (*drawer)(const attn_heatmap *, attn_writer, attn_error *);
    static const drawer drawers[] = {attn_heatmap_svg, attn_heatmap_ansi, attn_heatmap_ppm, attn_heatmap_html};
    static const int64_t sizes[][4] = {
        {0, 1, 1, 1 << 20}, {1, 0, 1 << 20, 1}, {0, 0, 1 << 20, 1 << 20}, {1 << 20, 1, 0, 1}, {1, 1 << 20, 1, 0}};
    for (int i = 0; i < 5; i++)
        for (int kind = 0; kind < 4; kind++) {
            attn_heatmap map;
            attn_error err;
            size_t written = 0;
            attn_writer writer = {count_bytes, &written};
            memset(&map, 0, sizeof map);
            map.values = attn_view_f32(m.scores, 4, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
            attn_status st = drawers[kind](&map, writer, &err);
            CHECKF(st != ATTN_OK && st != ATTN_ERR_WRITE && written == 0, "sizes %d, picture %d: %s, %lu bytes", i,
                   kind, attn_status_string(st), (unsigned long)written);
            CHECKF(!strncmp(err.field, "values", 6), "%s %s", err.field, err.rule);
        }
}

/* ---- sequences in shared arrays: starts, packed entries, pages */
static attn_desc padded(void) { /* entries at the end of their rows */
    attn_desc d = valid();
    memset(&seq, 0, sizeof seq);
    seq.query_starts[1] = 2, seq.key_starts[0] = 1, seq.key_starts[1] = 4;
    d.query_starts = seq_ints(seq.query_starts);
    d.key_starts = seq_ints(seq.key_starts);
    d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    return d;
}
static attn_desc packed(void) { /* all entries in one row */
    attn_desc d = valid();
    memset(&seq, 0, sizeof seq);
    no_results(&d);
    d.q = attn_view_bhsd(m.q, 1, H, B * SQ, D);
    d.k = attn_view_bhsd(m.k, 1, HKV, B * SK, D);
    d.v = attn_view_bhsd(m.v, 1, HKV, B * SK, DV);
    d.out = attn_out_bhsd(m.out, 1, H, B * SQ, DV);
    d.stats = attn_out_bhsd(m.stats, 1, H, B * SQ, 2);
    seq.query_starts[1] = SQ, seq.key_starts[1] = SK;
    for (int b = 0; b < B; b++) seq.query_lengths[b] = SQ, seq.key_lengths[b] = SK;
    d.query_starts = seq_ints(seq.query_starts), d.query_lengths = seq_ints(seq.query_lengths);
    d.key_starts = seq_ints(seq.key_starts), d.key_lengths = seq_ints(seq.key_lengths);
    d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    return d;
}
static attn_desc paged(void) { /* 5 pages of 2 rows, 2 of them for each entry */
    attn_desc d = valid();
    memset(&seq, 0, sizeof seq);
    no_results(&d);
    d.k = attn_view_bhsd(m.k, 5, HKV, 2, D);
    d.v = attn_view_bhsd(m.v, 5, HKV, 2, DV);
    d.out = attn_out_bhsd(m.out, B, H, SQ, DV);
    d.stats = attn_out_bhsd(m.stats, B, H, SQ, 2);
    seq.table[0] = 4, seq.table[2] = 1, seq.table[3] = 3, seq.key_lengths[0] = 4, seq.key_lengths[1] = 3;
    d.page_table = attn_view_i32(seq.table, 2, B, 2, 0, 0);
    d.key_lengths = seq_ints(seq.key_lengths);
    d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    return d;
}

/* A number of an entry, in its place. */
static void refused_at(const attn_desc *d, const attn_grad *g, const char *field, const char *rule, int64_t got,
                       int64_t want, int places, int64_t i, int64_t j, int line) {
    attn_error err;
    poison_error(&err);
    check_error(g ? attn_backward(d, g, &err) : attn_forward(d, &err), &err, ATTN_ERR_RANGE, field, line);
    CHECKF(strstr(err.rule, rule) != 0, "line %d: \"%s\"", line, err.rule);
    CHECKF(err.has_numbers && err.got == got && err.want == want, "line %d: %lld, want %lld", line, (long long)err.got,
           (long long)err.want);
    CHECKF(err.has_place == places && err.place[0] == i && (places < 2 || err.place[1] == j),
           "line %d: %d places [%ld,%ld]", line, (int)err.has_place, (long)err.place[0], (long)err.place[1]);
    check_unwritten(line);
}
#define REFUSED_AT(from, field, rule, got, want, places, i, j, change) \
    do { \
        attn_desc d = from(); \
        change; \
        refused_at(&d, 0, field, rule, got, want, places, i, j, __LINE__); \
    } while (0)

static void test_starts(void) {
    static const int32_t far[] = {INT32_MIN, -1};
    static int64_t wide[B] = {0, INT64_MAX};
    ACCEPTED(padded, (void)0);
    ACCEPTED(padded, seq.key_starts[0] = SK; seq.query_starts[1] = SQ); /* entries without a key, without a row */
    REFUSED(padded, ATTN_ERR_NULL, "query_starts.data", d.query_starts.data = 0);
    REFUSED(padded, ATTN_ERR_NULL, "key_starts.data", d.key_starts.data = 0);
    REFUSED(padded, ATTN_ERR_TYPE, "query_starts.type", d.query_starts.type = ATTN_F32);
    REFUSED(padded, ATTN_ERR_TYPE, "key_starts.type", d.key_starts.type = ATTN_U8);
    REFUSED(padded, ATTN_ERR_RANK, "query_starts.rank", d.query_starts.rank = 2);
    REFUSED(padded, ATTN_ERR_RANK, "key_starts.rank", d.key_starts.rank = 4);
    REFUSED(padded, ATTN_ERR_SIZE, "q.size[0]", d.query_starts.size[0] = d.key_starts.size[0] = 3);
    REFUSED(padded, ATTN_ERR_SIZE, "key_starts.size[0]", d.key_starts.size[0] = 1);
    REFUSED(padded, ATTN_ERR_SIZE, "q.size[0]", d.query_starts.size[0] = -1);
    REFUSED(padded, ATTN_ERR_SIZE, "weights.size[0]", d.weights.size[0] = 1);
    REFUSED(padded, ATTN_ERR_SIZE, "bias.size[0]", d.bias = floats(4, 3, 1, SQ, SK));
    REFUSED(padded, ATTN_ERR_OVERLAP, "out", d.query_starts.data = m.out);
    for (int n = 0; n < 2; n++) {
        REFUSED_AT(padded, "query_starts", "at least", far[n], 0, 1, 1, 0, seq.query_starts[1] = far[n]);
        REFUSED_AT(padded, "key_starts", "at least", far[n], 0, 1, 0, 0, seq.key_starts[0] = far[n]);
    }
    REFUSED_AT(padded, "query_starts", "at most Sq", SQ + 1, SQ, 1, 1, 0, seq.query_starts[1] = SQ + 1);
    REFUSED_AT(padded, "key_starts", "at most Sk", SK + 1, SK, 1, 0, 0, seq.key_starts[0] = SK + 1);
    REFUSED_AT(padded, "query_starts", "at most Sq", INT64_MAX, SQ, 1, 1, 0,
               d.query_starts = attn_view_i64(wide, 1, B, 0, 0, 0));
    REFUSED_AT(padded, "key_starts", "plus key_lengths", INT64_MAX, SK, 1, 1, 0, seq.key_lengths[1] = 3;
               d.key_lengths = seq_ints(seq.key_lengths); d.key_starts = attn_view_i64(wide, 1, B, 0, 0, 0));
    REFUSED_AT(padded, "query_starts", "plus query_lengths", 4, SQ, 1, 1, 0,
               d.query_lengths = seq_ints(seq.query_lengths);
               seq.query_lengths[1] = 2);
    REFUSED_AT(padded, "key_starts", "plus key_lengths", 6, SK, 1, 1, 0, d.key_lengths = seq_ints(seq.key_lengths);
               seq.key_lengths[1] = 2);
    REFUSED_AT(padded, "key_lengths", "Sk - key_starts", 2, 1, 2, 1, 2,
               d.key_lengths = attn_view_i32(seq.per_query, 2, B, SQ, 0, 0);
               seq.per_query[SQ + 2] = 2);
    REFUSED(padded, ATTN_ERR_OPTION, "align", d.align = 0; d.causal = 1); /* entries of 3 queries and 4 keys */
    REFUSED(packed, ATTN_ERR_OPTION, "align", d.align = 0; d.causal = 1);
    ACCEPTED(packed, d.align = 0; d.causal = 1; seq.key_lengths[0] = seq.key_lengths[1] = SQ); /* as many of both */
}
static void test_packed(void) {
    ACCEPTED(packed, (void)0);
    ACCEPTED(packed, seq.key_starts[1] = 3); /* keys in common */
    ACCEPTED(packed, d.bias = floats(4, 1, H, 1, 1));
    REFUSED(packed, ATTN_ERR_SIZE, "q.size[0]", d.q = attn_view_bhsd(m.q, 3, H, 2, D));
    REFUSED(packed, ATTN_ERR_SIZE, "out.size[0]", d.out = attn_out_bhsd(m.out, B, H, SQ, DV));
    REFUSED(packed, ATTN_ERR_SIZE, "v.size[0]", d.v = attn_view_bhsd(m.v, B, HKV, SK, DV));
    REFUSED(packed, ATTN_ERR_OPTION, "weights", d.weights = attn_out_bhsd(m.weights, 1, H, B * SQ, B * SK));
    REFUSED(packed, ATTN_ERR_OPTION, "scores", d.scores = attn_out_bhsd(m.gradients[0], 1, H, B * SQ, B * SK));
    REFUSED(packed, ATTN_ERR_OPTION, "mask", d.mask = mask(2, B * SQ, 1, 0, 0));
    REFUSED(packed, ATTN_ERR_OPTION, "bias", d.bias = floats(4, B, 1, 1, 2 * SK));
    REFUSED(packed, ATTN_ERR_SIZE, "key_lengths.size[0]", d.key_lengths = attn_view_i32(seq.per_query, 2, B, SQ, 0, 0));
    REFUSED_AT(packed, "query_starts", "plus query_lengths", 7, 6, 1, 1, 0, seq.query_starts[1] = 4);
    REFUSED_AT(packed, "key_starts", "plus key_lengths", 11, 10, 1, 1, 0, seq.key_starts[1] = 6);
    REFUSED_AT(packed, "query_starts", "the end of the entry before it", 2, 3, 1, 1, 0, seq.query_starts[1] = 2);
    REFUSED_AT(packed, "query_starts", "the end of the entry before it", 3, 5, 1, 0, 0, seq.query_starts[0] = 3;
               seq.query_starts[1] = 2);
    REFUSED_AT(packed, "query_starts", "the end of the entry before it", 0, 3, 1, 1, 0, seq.query_starts[1] = 0);
    ACCEPTED(packed, seq.query_starts[1] = 0; seq.query_starts[0] = 3);  /* in any order */
    ACCEPTED(packed, seq.query_starts[1] = 1; seq.query_lengths[1] = 0); /* no row, none in common */
}
/* Many entries, in no order: found where two of them overlap. */
static void test_packed_many(void) {
    enum { MANY = 500 };
    static int32_t starts[MANY], lengths[MANY];
    static float x[2 * MANY];
    attn_desc d;
    attn_error err;
    memset(&d, 0, sizeof d);
    d.q = d.k = d.v = attn_view_bhsd(x, 1, 1, 2 * MANY, 1);
    d.out = attn_out_bhsd((float *)test_guarded(sizeof x), 1, 1, 2 * MANY, 1);
    d.query_starts = d.key_starts = attn_view_i32(starts, 1, MANY, 0, 0, 0);
    d.query_lengths = d.key_lengths = attn_view_i32(lengths, 1, MANY, 0, 0, 0);
    for (int n = 0; n < 20; n++) {
        int64_t order[MANY], at = 0;
        int bad = n % 2 ? test_int(1, MANY - 1) : 0;
        for (int b = 0; b < MANY; b++) order[b] = (b * 7 + n) % MANY;
        for (int b = 0; b < MANY; b++) {
            lengths[order[b]] = test_int(1, 2);
            starts[order[b]] = (int32_t)at - (b > 0 && b == bad);
            at += lengths[order[b]] - (b > 0 && b == bad);
        }
        attn_status st = attn_forward(&d, &err);
        if (!bad) CHECK_STATUS(st, ATTN_OK);
        else
            CHECKF(st == ATTN_ERR_RANGE && !strcmp(err.field, "query_starts") && err.place[0] == order[bad] &&
                       err.got == err.want - 1,
                   "%s %s at %ld, want %ld", attn_status_string(st), err.field, (long)err.place[0], (long)order[bad]);
    }
}
/* Every entry is looked at, not only the first two, whichever of the numbers are given. */
static void test_third_entry(void) {
    enum { THREE = 3, ROWS = 4 };
    static float x[THREE * ROWS];
    static int32_t numbers[THREE];
    static const struct {
        const char *field;
        size_t view;
    } fields[] = {{"key_starts", offsetof(attn_desc, key_starts)}, {"query_starts", offsetof(attn_desc, query_starts)}};
    for (size_t n = 0; n < sizeof fields / sizeof fields[0]; n++) {
        attn_view starts = attn_view_i32(numbers, 1, THREE, 0, 0, 0);
        attn_error err;
        attn_desc d;
        memset(&d, 0, sizeof d);
        d.q = d.k = d.v = attn_view_bhsd(x, THREE, 1, ROWS, 1);
        d.out = attn_out_bhsd((float *)test_guarded(sizeof x), THREE, 1, ROWS, 1);
        memcpy((char *)&d + fields[n].view, &starts, sizeof starts);
        numbers[2] = ROWS;
        CHECK_STATUS(attn_forward(&d, &err), ATTN_OK);
        numbers[2] = ROWS + 1;
        poison_error(&err);
        check_error(attn_forward(&d, &err), &err, ATTN_ERR_RANGE, fields[n].field, __LINE__);
        CHECKF(err.has_place == 1 && err.place[0] == 2, "at %ld", (long)err.place[0]);
    }
}
static void test_pages(void) {
    ACCEPTED(paged, (void)0);
    ACCEPTED(paged, seq.key_lengths[1] = 2; seq.table[3] = 77); /* behind a length */
    REFUSED(paged, ATTN_ERR_NULL, "page_table.data", d.page_table.data = 0);
    REFUSED(paged, ATTN_ERR_TYPE, "page_table.type", d.page_table.type = ATTN_BF16);
    REFUSED(paged, ATTN_ERR_RANK, "page_table.rank", d.page_table.rank = 1);
    REFUSED(paged, ATTN_ERR_SIZE, "page_table.size[0]", d.page_table = attn_view_i32(seq.table, 2, 1, 2, 0, 0));
    REFUSED(paged, ATTN_ERR_SIZE, "v.size[0]", d.v.size[0] = 4);
    REFUSED(paged, ATTN_ERR_SIZE, "v.size[2]", d.v.size[2] = 1);
    REFUSED(paged, ATTN_ERR_SIZE, "mask.size[0]", d.mask = mask(1, 5, 0, 0, 0)); /* Sk is 4 */
    REFUSED(paged, ATTN_ERR_SIZE, "mask.size[0]", d.k.size[2] = d.v.size[2] = 0; d.mask = mask(1, 4, 0, 0, 0));
    REFUSED(paged, ATTN_ERR_SIZE, "mask.size[0]", d.page_table.size[1] = 0; d.mask = mask(1, 4, 0, 0, 0));
    REFUSED(paged, ATTN_ERR_OVERLAP, "out", d.page_table.data = m.out);
    REFUSED(given, ATTN_ERR_OPTION, "page_table", d.page_table = attn_view_i32(seq.table, 2, B, 2, 0, 0);
            memset(&d.v, 0, sizeof d.v); memset(&d.out, 0, sizeof d.out));
    REFUSED_AT(paged, "page_table", "a page of the pool", 5, 4, 2, 0, 1, seq.table[1] = 5);
    REFUSED_AT(paged, "page_table", "at least", -1, 0, 2, 1, 1, seq.table[3] = -1);
    REFUSED_AT(paged, "key_lengths", "at most", 5, 4, 1, 1, 0, seq.key_lengths[1] = 5);
    REFUSED_AT(paged, "key_starts", "plus key_lengths", 5, 4, 1, 0, 0, seq.key_starts[0] = 1;
               d.key_starts = seq_ints(seq.key_starts));
}
/* The last of some parts of the keys; and one in the middle, of no key. */
static attn_desc last_part(void) {
    attn_desc d = valid();
    no_results(&d);
    d.out = attn_out_bhsd(m.out, B, H, SQ, DV);
    d.lse = attn_out_f32(m.lse, 3, B, H, SQ, 0);
    d.stats = attn_out_bhsd(m.stats, B, H, SQ, 2);
    d.carry_in = floats(4, B, H, SQ, DV + 2);
    d.key_origin = 2 * ATTN_PART_KEYS;
    return d;
}
static attn_desc middle_part(void) {
    attn_desc d = last_part();
    no_results(&d);
    d.k.size[2] = d.v.size[2] = 0;
    d.carry_out = attn_out_bhsd(m.weights, B, H, SQ, DV + 2);
    return d;
}
/* The two numbers, too. */
static void refused_part(const attn_desc *d, attn_status want, const char *field, int64_t got, int64_t wanted,
                         int line) {
    attn_error err;
    refused(d, want, field, line);
    attn_forward(d, &err);
    CHECKF(err.has_numbers && err.got == got && err.want == wanted, "line %d: %lld, want %lld", line,
           (long long)err.got, (long long)err.want);
}
#define REFUSED_PART(from, status, field, got, want, change) \
    do { \
        attn_desc d = from(); \
        change; \
        refused_part(&d, status, field, got, want, __LINE__); \
    } while (0)
static void test_parts(void) {
    ACCEPTED(last_part, (void)0);
    ACCEPTED(middle_part, (void)0);
    ACCEPTED(middle_part, d.out = attn_out_bhsd(m.out, B, H, SQ, DV)); /* those of the keys so far */
    ACCEPTED(middle_part, d.carry_in = attn_view_of(d.carry_out));
    ACCEPTED(middle_part, d.key_origin = 0);
    ACCEPTED(last_part, d.causal = 1; d.align = ATTN_ALIGN_TOP_LEFT);
    ACCEPTED(valid, d.key_origin = ATTN_PART_KEYS); /* nothing is carried: a part on its own */
    ACCEPTED(last_part, memset(&d.v, 0, sizeof d.v); memset(&d.out, 0, sizeof d.out);
             d.carry_in = floats(4, B, H, SQ, 2)); /* no values */
    ACCEPTED(padded, memset(&d.stats, 0, sizeof d.stats); memset(&d.weights, 0, sizeof d.weights);
             d.scores = d.scores_softcap = d.scores_masked = d.weights; d.align = ATTN_ALIGN_TOP_LEFT;
             d.carry_out = attn_out_bhsd(m.weights, B, H, SQ, DV + 2)); /* an entry may end in any part */
    REFUSED(last_part, ATTN_ERR_NULL, "carry_in.data", d.carry_in.data = 0);
    REFUSED(last_part, ATTN_ERR_RANK, "carry_in.rank", d.carry_in.rank = 0);
    REFUSED(last_part, ATTN_ERR_RANK, "carry_in.rank", d.carry_in.rank = 3);
    REFUSED(last_part, ATTN_ERR_TYPE, "carry_in.type", d.carry_in.type = ATTN_F16);
    REFUSED_PART(last_part, ATTN_ERR_SIZE, "carry_in.size[0]", 1, B, d.carry_in.size[0] = 1);
    REFUSED_PART(last_part, ATTN_ERR_SIZE, "carry_in.size[1]", HKV, H, d.carry_in.size[1] = HKV);
    REFUSED_PART(last_part, ATTN_ERR_SIZE, "carry_in.size[2]", SQ - 1, SQ, d.carry_in.size[2] = SQ - 1);
    REFUSED_PART(last_part, ATTN_ERR_SIZE, "carry_in.size[3]", DV, DV + 2, d.carry_in.size[3] = DV);
    REFUSED(middle_part, ATTN_ERR_NULL, "carry_out.data", d.carry_out.data = 0);
    REFUSED(middle_part, ATTN_ERR_RANK, "carry_out.rank", d.carry_out.rank = 0);
    REFUSED(middle_part, ATTN_ERR_TYPE, "carry_out.type", d.carry_out.type = ATTN_BF16);
    REFUSED(middle_part, ATTN_ERR_STRIDE, "carry_out.stride", d.carry_out.stride[0] = 0);
    REFUSED_PART(middle_part, ATTN_ERR_SIZE, "carry_out.size[3]", DV + 1, DV + 2, d.carry_out.size[3] = DV + 1);
    REFUSED_PART(middle_part, ATTN_ERR_SIZE, "k.size[2]", SK, 0, d.k.size[2] = d.v.size[2] = SK);
    REFUSED_PART(last_part, ATTN_ERR_RANGE, "key_origin", -ATTN_PART_KEYS, 0, d.key_origin = -ATTN_PART_KEYS);
    REFUSED_PART(last_part, ATTN_ERR_RANGE, "key_origin", 257, 256, d.key_origin = 257);
    REFUSED_PART(last_part, ATTN_ERR_RANGE, "key_origin", INT64_MAX, (int64_t)1 << 62, d.key_origin = INT64_MAX);
    REFUSED(middle_part, ATTN_ERR_OVERLAP, "carry_out",
            d.carry_in = attn_view_of(d.carry_out); /* not as it lies there */
            d.carry_in.stride[0] = d.carry_out.stride[1]; d.carry_in.stride[1] = d.carry_out.stride[0]);
    REFUSED(middle_part, ATTN_ERR_OVERLAP, "out", d.carry_out.data = m.out; d.out = attn_out_bhsd(m.out, B, H, SQ, DV));
    REFUSED(last_part, ATTN_ERR_OPTION, "weights", d.weights = attn_out_bhsd(m.weights, B, H, SQ, SK));
    REFUSED(last_part, ATTN_ERR_OPTION, "scores", d.scores = attn_out_bhsd(m.raw, B, H, SQ, SK));
    REFUSED(last_part, ATTN_ERR_OPTION, "scores_softcap", d.scores_softcap = attn_out_bhsd(m.softcap, B, H, SQ, SK));
    REFUSED(last_part, ATTN_ERR_OPTION, "scores_masked", d.scores_masked = attn_out_bhsd(m.masked, B, H, SQ, SK));
    REFUSED(last_part, ATTN_ERR_OPTION, "empty", d.empty = ATTN_EMPTY_UNIFORM);
    REFUSED(last_part, ATTN_ERR_OPTION, "align", d.causal = 1; d.align = ATTN_ALIGN_BOTTOM_RIGHT);
    REFUSED(middle_part, ATTN_ERR_OPTION, "align", d.window = 1; d.key_origin = 0);
    REFUSED(valid, ATTN_ERR_OPTION, "align", d.alibi = floats(1, H, 0, 0, 0); d.align = ATTN_ALIGN_BOTTOM_RIGHT;
            d.key_origin = ATTN_PART_KEYS);
    BACKWARD_OK(everything, d.key_origin = ATTN_PART_KEYS; d.align = ATTN_ALIGN_TOP_LEFT;
                memset(&g.d_weights, 0, sizeof g.d_weights); memset(&g.d_sink, 0, sizeof g.d_sink));
    BACKWARD(last_part, ATTN_ERR_OPTION, "carry_in", memset(&g.d_weights, 0, sizeof g.d_weights));
    BACKWARD(last_part, ATTN_ERR_OPTION, "carry_out", memset(&g.d_weights, 0, sizeof g.d_weights);
             memset(&d.carry_in, 0, sizeof d.carry_in); d.carry_out = attn_out_bhsd(m.weights, B, H, SQ, DV + 2);
             d.k.size[2] = d.v.size[2] = g.dk.size[2] = g.dv.size[2] = 0);
    BACKWARD(valid, ATTN_ERR_NULL, "stats", d.key_origin = ATTN_PART_KEYS; memset(&d.stats, 0, sizeof d.stats));
    BACKWARD(valid, ATTN_ERR_OPTION, "d_weights", d.key_origin = ATTN_PART_KEYS);
    BACKWARD(everything, ATTN_ERR_OPTION, "d_sink", d.key_origin = ATTN_PART_KEYS; d.align = ATTN_ALIGN_TOP_LEFT;
             memset(&g.d_weights, 0, sizeof g.d_weights));
}
static void test_backward_sequences(void) {
    BACKWARD_OK(padded, (void)0);
    BACKWARD(padded, ATTN_ERR_SIZE, "dk.size[2]", g.dk = attn_out_bhsd(m.gradients[1], B, HKV, SK - 1, D));
    BACKWARD(padded, ATTN_ERR_SIZE, "d_weights.size[0]", g.d_weights.size[0] = 1);
    for (int n = 0; n < 2; n++) {
        attn_desc d = packed();
        attn_grad g;
        memset(&g, 0, sizeof g);
        g.d_out = floats(4, 1, H, B * SQ, DV);
        g.dq = attn_out_bhsd(m.gradients[0], 1, H, B * SQ, D);
        g.dk = attn_out_bhsd(m.gradients[1], 1, HKV, B * SK, D);
        g.dv = attn_out_bhsd(m.gradients[2], 1, HKV, B * SK, DV);
        memset(&d.stats, 0, sizeof d.stats);
        if (n == 0) {
            seq.key_starts[1] = 4;
            refused_at(&d, &g, "key_starts", "the end of the entry before it", 4, 5, 1, 1, 0, __LINE__);
            seq.key_starts[1] = 5, seq.query_starts[1] = 2;
            refused_at(&d, &g, "query_starts", "the end of the entry before it", 2, 3, 1, 1, 0, __LINE__);
            continue;
        }
        g.d_weights = attn_view_f32(m.gradients[4], 4, 1, H, B * SQ, B * SK);
        refused_backward(&d, &g, ATTN_ERR_OPTION, "d_weights", __LINE__);
        memset(&g.d_weights, 0, sizeof g.d_weights);
        d.bias = floats(4, 1, H, 1, 1);
        g.d_bias = attn_out_f32(m.gradients[3], 4, 1, H, SQ, 1);
        refused_backward(&d, &g, ATTN_ERR_SIZE, "d_bias.size[2]", __LINE__);
    }
    BACKWARD(paged, ATTN_ERR_OPTION, "page_table", memset(&g, 0, sizeof g); g.d_out = floats(4, B, H, SQ, DV);
             g.dq = attn_out_bhsd(m.gradients[0], B, H, SQ, D));
}

const test_case suite_errors[] = {{"errors.accepted", test_accepted},
                                  {"errors.null", test_null},
                                  {"errors.hooks", test_hooks},
                                  {"errors.type", test_type},
                                  {"errors.scales", test_scales},
                                  {"errors.conversions", test_conversions},
                                  {"errors.rank", test_rank},
                                  {"errors.no_view", test_no_view},
                                  {"errors.size", test_size},
                                  {"errors.stride", test_stride},
                                  {"errors.range", test_range},
                                  {"errors.long_lengths", test_long_lengths},
                                  {"errors.option", test_option},
                                  {"errors.align", test_align},
                                  {"errors.align_of_pieces", test_align_of_pieces},
                                  {"errors.huge_views", test_huge_views},
                                  {"errors.no_elements", test_no_elements},
                                  {"errors.isa", test_missing_isa},
                                  {"errors.overflow", test_overflow},
                                  {"errors.most_elements", test_most_elements},
                                  {"errors.many_small_sizes", test_many_small_sizes},
                                  {"errors.overflow_workspace", test_overflow_workspace},
                                  {"errors.count", test_count},
                                  {"errors.rules", test_rules},
                                  {"errors.overlap", test_overlap},
                                  {"errors.interleaved", test_interleaved},
                                  {"errors.empty", test_empty},
                                  {"errors.pieces", test_pieces},
                                  {"errors.mha", test_mha},
                                  {"errors.backward_accepted", test_backward_accepted},
                                  {"errors.beyond_rank", test_beyond_rank},
                                  {"errors.backward_null", test_backward_null},
                                  {"errors.backward_views", test_backward_views},
                                  {"errors.backward_options", test_backward_options},
                                  {"errors.backward_overlap", test_backward_overlap},
                                  {"errors.backward_hooks", test_backward_hooks},
                                  {"errors.backward_overflow", test_backward_overflow},
                                  {"errors.backward_explain", test_backward_explain},
                                  {"errors.backward_pieces", test_backward_pieces},
                                  {"errors.backward_heads", test_backward_heads},
                                  {"errors.layout", test_layout},
                                  {"errors.struct_bytes", test_struct_bytes},
                                  {"errors.numbers", test_numbers},
                                  {"errors.strings", test_strings},
                                  {"errors.words", test_words},
                                  {"errors.explain", test_explain},
                                  {"errors.explained_options", test_explained_options},
                                  {"errors.write", test_write},
                                  {"errors.far_views", test_far_views},
                                  {"errors.far_positions", test_far_positions},
                                  {"errors.far_pictures", test_far_pictures},
                                  {"errors.starts", test_starts},
                                  {"errors.third_entry", test_third_entry},
                                  {"errors.packed", test_packed},
                                  {"errors.packed_many", test_packed_many},
                                  {"errors.pages", test_pages},
                                  {"errors.parts", test_parts},
                                  {"errors.backward_sequences", test_backward_sequences},
                                  {0, 0}};
