/* errors.c - every status, with the whole text of each refusal; the layout of the structures; refusals write nothing.
   What one change to a good call provokes stands in refusals.h, in the order of the fields. Here are the calls that it
   starts from, what is accepted, and what takes more than a row. */
#include "page.h"

#include "test.h"
#include <float.h>

#define CLEAR(what) memset(&(what), 0, sizeof(what))

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
static attn_view floats(int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return attn_view_f32(m.scores, rank, n0, n1, n2, n3);
}
static attn_view ints(int rank, int64_t n0, int64_t n1) { return attn_view_i32(m.ints, rank, n0, n1, 0, 0); }
static attn_view mask(int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return attn_view_u8(m.mask, rank, n0, n1, n2, n3);
}

static attn_desc valid(void) {
    attn_desc d;
    CLEAR(d);
    CLEAR(m);
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
    CLEAR(d.q);
    CLEAR(d.k);
    return d;
}
static attn_desc gaussian(void) {
    attn_desc d = valid();
    d.score = ATTN_SCORE_GAUSSIAN;
    return d;
}
static attn_desc gaussian_per_head(void) {
    attn_desc d = gaussian();
    d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0);
    return d;
}
static attn_desc everything(void) { /* a bias, slopes, sinks */
    attn_desc d = valid();
    d.bias = floats(2, SQ, SK, 0, 0);
    d.alibi = d.sink = floats(1, H, 0, 0, 0);
    d.align = ATTN_ALIGN_TOP_LEFT;
    return d;
}
/* As many queries as keys. */
static attn_desc square(void) {
    attn_desc d = valid();
    d.k.size[2] = d.v.size[2] = SQ;
    no_results(&d);
    d.out = attn_out_bhsd(m.out, B, H, SQ, DV);
    return d;
}

static attn_view slopes(void) { return attn_view_f32(m.small, 1, H, 0, 0, 0); }
/* Lengths or positions of 64 bits: 0, but the last of them. */
static attn_view longs(int rank, int64_t last) {
    static int64_t x[B * SQ];
    CLEAR(x);
    x[rank == 1 ? B - 1 : B * SQ - 1] = last;
    return attn_view_i64(x, rank, B, SQ, 0, 0);
}
/* One element, as a view of sizes 1, of a view that is too large for strides of 64 bits. */
static attn_view cut_out(attn_view v, int64_t index) {
    for (int axis = 0, rank = v.rank; axis < rank; axis++) v = attn_view_slice(v, axis, axis ? 0 : index, 1);
    return v;
}
/* Keys and values as codes, with their scales. */
static void store_codes(attn_desc *d) {
    d->k.type = ATTN_I8;
    d->k_scale = floats(4, B, d->k.size[1], SK, 1);
}

/* ---- sequences in shared arrays: starts, packed entries, pages; keys in parts */
static struct {
    int32_t query_starts[2], query_lengths[2], key_starts[2], key_lengths[2], per_query[2 * SQ], table[4],
        index[SQ + SK];
} seq;
static attn_view seq_ints(const int32_t *x) { return attn_view_i32(x, 1, B, 0, 0, 0); }
static attn_desc padded(void) { /* entries at the end of their rows */
    attn_desc d = valid();
    CLEAR(seq);
    seq.query_starts[1] = 2, seq.key_starts[0] = 1, seq.key_starts[1] = 4;
    d.query_starts = seq_ints(seq.query_starts);
    d.key_starts = seq_ints(seq.key_starts);
    d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    return d;
}
static attn_desc packed(void) { /* all entries in one row */
    attn_desc d = valid();
    CLEAR(seq);
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
    CLEAR(seq);
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

/* A bias by index: the table of each head has 4 numbers; by distance, one way or the other. */
static attn_desc indexed(void) {
    attn_desc d = valid();
    CLEAR(seq);
    d.bias = floats(2, H, 4, 0, 0);
    d.bias_index = attn_view_i32(seq.index, 2, 1, SK, 0, 0);
    return d;
}

static attn_desc by_distance(int step) {
    attn_desc d = indexed();
    d.bias_index = attn_view_i32(seq.index + (step < 0 ? SQ - 1 : 0), 2, SQ, SK, 0, 0);
    d.bias_index.stride[0] = step, d.bias_index.stride[1] = 1;
    return d;
}
static attn_desc back(void) { return by_distance(-1); }
static attn_desc forth(void) { return by_distance(1); }

/* ---- gradients */

/* Every field of attn_grad, what must be there for it, and a call that has that. */
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
    CLEAR(g);
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
static void no_gradient(attn_grad *g) { /* no result */
    for (int n = FROM_ABOVE; n < GRAD_FIELDS; n++) memset(grad_field(g, n), 0, sizeof(attn_out));
}
static void nothing_above(attn_grad *g) {
    for (int n = 0; n < FROM_ABOVE; n++) memset(grad_field(g, n), 0, sizeof(attn_out));
}

/* ---- blocks of heads */
static attn_mha_desc heads(const attn_desc *options) { /* embedding 4, 2 heads of 2 */
    attn_mha_desc h;
    CLEAR(h);
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
static uint64_t never_filled[256]; /* attn_mha_desc.saved, with room enough */
static size_t size_of_saved(const attn_mha_desc *h) {
    size_t bytes = 0;
    CHECK_STATUS(attn_mha_saved_size(h, &bytes, 0), ATTN_OK);
    CHECK(bytes <= sizeof never_filled);
    return bytes;
}
/* Every gradient that such a block has, and what it is the gradient of. */
static const struct head_field {
    const char *name;
    size_t offset, of;
} head_fields[] = {
#define FIELD_OF(name) \
    { "d" #name, offsetof(attn_mha_grad, d##name), offsetof(attn_mha_desc, name) }
    FIELD_OF(query), FIELD_OF(key),     FIELD_OF(value),   FIELD_OF(w_query),
    FIELD_OF(w_key), FIELD_OF(w_value), FIELD_OF(w_result)};
enum { HEAD_FIELDS = (int)(sizeof head_fields / sizeof *head_fields) };

static attn_out *head_field(attn_mha_grad *g, int n) { return (attn_out *)(void *)((char *)g + head_fields[n].offset); }

static attn_mha_grad head_grads(const attn_mha_desc *h) {
    attn_mha_grad g;
    CLEAR(g);
    g.d_out = floats(3, B, SQ, h->w_result.rank ? 5 : 6, 0);
    for (int n = 0; n < HEAD_FIELDS; n++) {
        const attn_view *of = (const attn_view *)(const void *)((const char *)h + head_fields[n].of);
        *head_field(&g, n) = shaped_like(of, m.gradients[n]);
    }
    return g;
}
/* Gradients of the attention inside, at a place that something else may have. */
static const attn_grad *inner_scale(float *at) {
    static attn_grad g;
    g.d_scale = attn_out_f32(at, 1, 1, 0, 0, 0);
    return &g;
}
static const attn_grad *inner_lse(float *at) {
    static attn_grad g;
    g.d_lse = attn_view_f32(at, 3, B, 2, SQ, 0);
    return &g;
}

/* ---- memory */
static void *allocate_nothing(void *user, size_t bytes) {
    (void)user;
    (void)bytes;
    return 0;
}
static int released;
static void no_release(void *user, void *block) {
    (void)user;
    (void)block;
    released++;
}
static const attn_allocator no_memory = {allocate_nothing, no_release, 0};
static size_t size_of(const attn_desc *d) {
    size_t bytes = 0;
    CHECK_STATUS(attn_workspace_size(d, &bytes, 0), ATTN_OK);
    return bytes;
}
static size_t size_of_backward(const attn_desc *d, const attn_grad *g) {
    size_t bytes = 0;
    CHECK_STATUS(attn_backward_workspace_size(d, g, &bytes, 0), ATTN_OK);
    return bytes;
}

/* ---- what a refusal must be like */

/* The name before a dot or a bracket is one of attn_desc or of a parameter. */
static int is_field(const char *field) {
    static const char known[] =
        " q k v out lse weights scores scores_softcap scores_masked struct_bytes score scale_set scale sigma "
        "sigma_per_head bilinear w_q w_k w_v hidden_bias given_scores softcap bias alibi sink mask key_lengths "
        "query_lengths causal align positions window empty window_left window_right dropout weights_after_dropout "
        "seed dropout_origin isa reserved reserved2 precision workspace workspace_bytes allocator parallel desc plan "
        "bytes options x y n function a b out_a out_b lse_a lse_b query key value w_query w_key w_value w_result "
        "b_query b_key b_value b_result heads heads_kv attention writer values stats forward grad d_out d_weights "
        "d_lse dq dk dv d_given_scores d_bias d_bilinear d_w_q d_w_k d_w_v d_hidden_bias d_sigma d_scale d_sink "
        "d_alibi accumulate dx da db dquery dkey dvalue dw_query dw_key dw_value dw_result db_query db_key db_value "
        "db_result bias_index query_starts key_starts page_table carry_in carry_out key_origin k_scale v_scale from to "
        "codes "
        "blocks key_sums last_queries saved saved_bytes ";
    char name[40];
    snprintf(name, sizeof name, " %.*s ", (int)strcspn(field, ".["), field);
    return strstr(known, name) != 0;
}

/* Is `cut`, of x before, the beginning of a text of which so many bytes fit in? */
static int is_cut(const char *cut, const char *whole, size_t size, size_t returned) {
    size_t length = strlen(whole);
    if (returned != length || cut[size] != 'x') return 0;
    return !size || (strlen(cut) == (length < size ? length : size - 1) && !strncmp(cut, whole, strlen(cut)));
}

/* The text says what the structure holds, and is cut and ended at any size. */
static void check_text(const attn_error *err, int line) {
    char whole[300], number[32], cut[300];
    size_t length = attn_error_string(err, whole, sizeof whole);
    CHECKF(length < sizeof whole && strlen(whole) == length, "line %d: the length of \"%s\"", line, whole);
    CHECKF(strstr(whole, err->field) == whole && strstr(whole, err->rule), "line %d: \"%s\"", line, whole);
    for (int n = 0; n < 2 && err->has_numbers; n++) {
        snprintf(number, sizeof number, "%lld", (long long)(n ? err->want : err->got));
        CHECKF(strstr(whole, number) != 0, "line %d: no %s in \"%s\"", line, number, whole);
    }
    CHECKF(attn_error_string(err, 0, 0) == length, "line %d: length without text", line);
    for (size_t size = 0; size < length + 3; size++) {
        memset(cut, 'x', sizeof cut);
        CHECKF(is_cut(cut, whole, size, attn_error_string(err, cut, size)), "line %d: cut at %lu: \"%.*s\"", line,
               (unsigned long)size, (int)size, cut);
    }
}

/* `want` is the whole text, up to a * where it ends in one, or the field alone. */
static void check_error(attn_status got, const attn_error *err, attn_status status, const char *want, int line) {
    char text[400];
    size_t n = strlen(want);
    CHECKF(got == status, "line %d: status \"%s\", want \"%s\" (%s %s)", line, attn_status_string(got),
           attn_status_string(status), err->field ? err->field : "?", err->rule ? err->rule : "?");
    if (got == ATTN_OK || !CHECKF(err->field && err->rule, "line %d: field and rule", line)) return;
    CHECKF(err->status == (int32_t)got, "line %d: err.status %d, returned %d", line, (int)err->status, (int)got);
    attn_error_string(err, text, sizeof text);
    CHECKF(!strncmp(want, err->field, strcspn(want, " ")) && !err->field[strcspn(want, " ")] &&
               (!strchr(want, ' ') || (want[n - 1] == '*' ? !strncmp(text, want, n - 1) : !strcmp(text, want))),
           "line %d: \"%s\", want \"%s\"", line, text, want);
    CHECKF(is_field(err->field), "line %d: \"%s\" is no field", line, err->field);
    CHECKF(strlen(err->rule) > 5, "line %d: rule \"%s\"", line, err->rule);
    CHECKF(!err->has_numbers || err->got != err->want || status == ATTN_ERR_RANGE, "line %d: the two numbers are equal",
           line);
    check_text(err, line);
}

static void poison_error(attn_error *err) { memset(err, 0xEE, sizeof *err); }

static void check_unwritten(int line) {
    if (!CHECKF(!unpainted(), "line %d: a refused call wrote to an output", line)) paint();
}

/* A call, its plan and its text; g: NULL, or the gradients that it is for. */
static attn_status run_call(const attn_desc *d, const attn_grad *g, attn_error *err) {
    return g ? attn_backward(d, g, err) : attn_forward(d, err);
}
static attn_status plan_call(const attn_desc *d, const attn_grad *g, attn_error *err) {
    attn_plan plan;
    return g ? attn_plan_backward(d, g, &plan, err) : attn_plan_forward(d, &plan, err);
}
static size_t explain(const attn_desc *d, const attn_grad *g, char *text, size_t size) {
    return g ? attn_explain_backward(d, g, text, size) : attn_explain(d, text, size);
}

static void refused(const attn_desc *d, const attn_grad *g, attn_status status, const char *want, int line) {
    const int needed_to_run = !strncmp(want, "workspace", 9); /* a plan and a text need none */
    attn_error err;
    char text[600], why[300];
    poison_error(&err);
    check_error(run_call(d, g, &err), &err, status, want, line);
    check_unwritten(line);
    CHECKF(run_call(d, g, 0) == status, "line %d: another status without err", line);
    if (!needed_to_run) {
        poison_error(&err);
        check_error(plan_call(d, g, &err), &err, status, want, line);
    }
    CHECKF(explain(d, g, text, sizeof text) > 10, "line %d: nothing explained", line);
    check_unwritten(line);
    if (!g) return; /* the text of a forward call needs no result */
    if (needed_to_run || status == ATTN_ERR_OVERLAP || strstr(err.field, ".data")) return; /* it looks at no data */
    attn_error_string(&err, why, sizeof why);
    CHECKF(strstr(text, why) != 0, "line %d: \"%s\" does not contain \"%s\"", line, text, why);
}

static void accepted(const attn_desc *d, const attn_grad *g, int line) {
    attn_error err;
    poison_error(&err);
    attn_status got = run_call(d, g, &err);
    CHECKF(got == ATTN_OK, "line %d: %s (%s %s)", line, attn_status_string(got), err.field, err.rule);
    CHECKF(err.status == ATTN_OK && !*err.field && !*err.rule, "line %d: an error in an accepted call", line);
    if (g) size_of_backward(d, g);
}

#define FAILS(call, status, want) \
    do { \
        poison_error(&err); \
        check_error(call, &err, status, want, __LINE__); \
        check_unwritten(__LINE__); \
    } while (0)
/* One change to a call that is accepted without it. */
#define CHANGED(from, change, then) \
    do { \
        attn_desc d = from(); \
        attn_grad g = grads_of(&d); \
        (void)g; \
        change; \
        then; \
    } while (0)
#define REFUSED(from, status, want, change) CHANGED(from, change, refused(&d, 0, status, want, __LINE__))
#define BACKWARD_REFUSED(from, status, want, change) CHANGED(from, change, refused(&d, &g, status, want, __LINE__))
#define ACCEPTED(from, change) CHANGED(from, change, accepted(&d, 0, __LINE__))
#define BACKWARD_OK(from, change) CHANGED(from, change, accepted(&d, &g, __LINE__))

/* ---- the table */

/* Numbers that a row may be repeated with: `n` in its change, % in its text. */
#define NUMBERS(name, ...) static const int64_t name[] = {__VA_ARGS__}
NUMBERS(once, 0);
NUMBERS(not_f32, ATTN_F16, ATTN_BF16, ATTN_F64, ATTN_I8);
NUMBERS(other_floats, ATTN_F64, ATTN_I8);
NUMBERS(no_floats, ATTN_U8, ATTN_I32, ATTN_I64, ATTN_TYPE_COUNT, -1, INT32_MAX, INT32_MIN);
NUMBERS(no_bytes, ATTN_F32, ATTN_I32, ATTN_I64, ATTN_TYPE_COUNT, 99, -1, INT32_MAX, INT32_MIN);
NUMBERS(no_ints, ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F64, ATTN_U8, ATTN_I8);
NUMBERS(wrong_ranks, -1, 5, INT32_MAX, INT32_MIN);
NUMBERS(large_ranks, 5, INT32_MAX);
NUMBERS(four_and_five, 4, 5);
NUMBERS(no_matrix, -1, 1);
NUMBERS(no_axes, -1, 4, INT32_MAX, INT32_MIN);
NUMBERS(no_parts, -1, INT32_MAX, INT32_MIN, 3);
NUMBERS(negative, -1, INT64_MIN);
NUMBERS(negative_32, -1, INT32_MIN);
NUMBERS(unknown, -1, 1000, INT32_MAX, INT32_MIN);
NUMBERS(no_flags, 2, 4, 3, -1, INT32_MAX, INT32_MIN);
NUMBERS(kernels, ATTN_SCORE_GAUSSIAN, ATTN_SCORE_BOXCAR, ATTN_SCORE_EPANECHNIKOV, ATTN_SCORE_TRIANGULAR,
        ATTN_SCORE_CONSTANT);
NUMBERS(without_sigma, ATTN_SCORE_SCALED_DOT, ATTN_SCORE_DOT, ATTN_SCORE_COSINE, ATTN_SCORE_CONSTANT);
NUMBERS(without_views, ATTN_SCORE_SCALED_DOT, ATTN_SCORE_DOT, ATTN_SCORE_COSINE, ATTN_SCORE_GAUSSIAN, ATTN_SCORE_BOXCAR,
        ATTN_SCORE_EPANECHNIKOV, ATTN_SCORE_TRIANGULAR, ATTN_SCORE_CONSTANT);
#define FAR ((int64_t)1 << 40) /* FAR * FAR does not fit in 64 bits */
#define E62 ((int64_t)1 << 62)
NUMBERS(huge, E62, E62 / 2, INT64_MAX, E62 + 1);
NUMBERS(far_lengths, FAR >> 8, (FAR >> 8) + 1, INT64_MAX); /* of which half the bits would be in range */
NUMBERS(far_below, -(FAR >> 8), INT64_MIN);
NUMBERS(far_ahead, E62 + 1, INT64_MAX - SQ + 2, INT64_MAX); /* positions that no index can be added to */
NUMBERS(far_behind, -E62 - 1, INT64_MIN);
NUMBERS(up_to_15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
NUMBERS(one_and_two, 1, 2);
NUMBERS(one_to_three, 1, 2, 3);
NUMBERS(each_odd, 0, 1, 2);
static const float odd[] = {NAN, INFINITY, -INFINITY};
NUMBERS(each_outside, 0, 1, 2, 3, 4, 5, 6, 7, 8);
static const int64_t outside[][2] = {{-1, 2},        {0, -1},        {0, SK + 1},    {SK, 1},       {SK + 1, 0},
                                     {INT64_MAX, 1}, {1, INT64_MAX}, {INT64_MIN, 0}, {0, INT64_MIN}};

/* A row of refusals.h: which call, what it says. Its change is a case of a switch, found by the line. */
enum { FORWARD_ROWS, BACKWARD_ROWS, MHA_ROWS, MHA_BACKWARD_ROWS, PIECE_ROWS };
typedef struct refusal {
    int line, kind;
    attn_status status;
    const char *text;
    attn_desc (*from)(void);
    const int64_t *numbers;
    size_t count;
} refusal;
static const refusal refusals[] = {
#define ROW(kind, st, text, from, numbers, count) {__LINE__, kind##_ROWS, st, text, from, numbers, count},
#define FORWARD(st, text, from, ...) ROW(FORWARD, ATTN_ERR_##st, text, from, once, 1)
#define FORWARD_EACH(numbers, st, text, from, ...) \
    ROW(FORWARD, ATTN_ERR_##st, text, from, numbers, sizeof numbers / sizeof *numbers)
#define BACKWARD(st, text, from, ...) ROW(BACKWARD, ATTN_ERR_##st, text, from, once, 1)
#define MHA(st, text, ...) ROW(MHA, ATTN_ERR_##st, text, valid, once, 1)
#define MHA_BACKWARD(st, text, ...) ROW(MHA_BACKWARD, ATTN_ERR_##st, text, valid, once, 1)
#define PIECE(st, text, ...) ROW(PIECE, ATTN_ERR_##st, text, valid, once, 1)
#define PIECE_EACH(numbers, st, text, ...) \
    ROW(PIECE, ATTN_ERR_##st, text, valid, numbers, sizeof numbers / sizeof *numbers)
#include "refusals.h"
};

/* Makes the call of a row with all that a change may name. */
static void refuse(const refusal *row, const char *want, int64_t n) {
    attn_desc d = row->from(), options; /* fills and paints the memory */
    attn_grad g = grads_of(&d);
    attn_view none, q = d.q, k = d.k;
    attn_out nowhere;
    CLEAR(options), CLEAR(none), CLEAR(nowhere);
    attn_mha_desc h = heads(&options);
    attn_mha_grad hg = head_grads(&h);
    attn_status got = ATTN_OK;
    attn_error its, *err = &its;
    attn_plan plan;
    size_t size;
    /* softmax, mask, products, merging */
    attn_view x = floats(2, SQ, SK, 0, 0), xt = attn_view_swap(x, 0, 1);
    attn_out o = attn_out_f32(m.weights, 2, SQ, SK, 0, 0), square_out = attn_out_f32(m.weights, 2, SQ, SQ, 0, 0),
             bytes = attn_out_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SK);
    attn_view part = floats(4, B, H, SQ, DV), lse = floats(3, B, H, SQ, 0);
    attn_out merged = attn_out_bhsd(m.out, B, H, SQ, DV);
    /* their gradients */
    attn_view x3 = floats(3, B, SQ, SK, 0), a = x3, b = floats(2, SK, DV, 0, 0), ab = floats(3, B, SQ, DV, 0);
    attn_out dx = attn_out_f32(m.gradients[0], 3, B, SQ, SK, 0), da = dx,
             db = attn_out_f32(m.gradients[1], 2, SK, DV, 0, 0);
    attn_view a4 = floats(4, 2, 3, 2, 2), b4 = floats(4, 2, 1, 2, 2), a3 = floats(3, 3, 2, 2, 0);
    attn_out da4 = attn_out_f32(m.gradients[0], 4, 2, 3, 2, 2), da3 = attn_out_f32(m.gradients[0], 3, 3, 2, 2, 0);
    /* conversions */
    attn_view from = floats(4, 1, 2, 3, 40);
    attn_out to = attn_out_f32(m.weights, 4, 1, 2, 3, 40), codes = attn_out_typed(ATTN_I8, m.out, 4, 1, 2, 3, 40),
             scale = attn_out_f32(m.lse, 4, 1, 2, 3, 2);
    poison_error(err);
    switch (row->line) {
#define FORWARD(st, text, from, ...) \
    case __LINE__: { \
        __VA_ARGS__; \
    } break;
#define FORWARD_EACH(numbers, ...) FORWARD(__VA_ARGS__)
#define BACKWARD FORWARD
#define MHA(st, text, ...) FORWARD(st, text, valid, __VA_ARGS__)
#define MHA_BACKWARD MHA
#define PIECE(st, text, ...) FORWARD(st, text, valid, got = (__VA_ARGS__))
#define PIECE_EACH(numbers, ...) PIECE(__VA_ARGS__)
#include "refusals.h"
    }
    if (row->kind == FORWARD_ROWS) refused(&d, 0, row->status, want, row->line);
    if (row->kind == BACKWARD_ROWS) refused(&d, &g, row->status, want, row->line);
    if (row->kind == MHA_ROWS) got = attn_mha(&h, err);
    if (row->kind == MHA_BACKWARD_ROWS) got = attn_mha_backward(&h, &hg, err);
    if (row->kind >= MHA_ROWS) check_error(got, err, row->status, want, row->line);
    check_unwritten(row->line);
}

/* The text of a row for one of its numbers. */
static void text_of(const refusal *row, int64_t n, char text[400]) {
    static const char *const types[] = {"F32", "F16", "BF16", "F64", "U8", "I32", "I64", "I8"};
    const char *at = strchr(row->text, '%'), *type = strstr(row->text, ".type ");
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)n);
    if (type && n >= 0 && n < ATTN_TYPE_COUNT) snprintf(number, sizeof number, "ATTN_%s", types[n]);
    snprintf(text, 400, "%.*s%s%s", (int)strcspn(row->text, "%"), row->text, at ? number : "", at ? at + 1 : "");
}

/* Every row of a kind with each of its numbers; the rows are in the order of the fields' names. */
static void test_rows(int kind) {
    char field[64], before[64] = "", text[400];
    released = 0;
    for (size_t r = 0; r < sizeof refusals / sizeof *refusals; r++) {
        const refusal *row = &refusals[r];
        if (row->kind != kind) continue;
        snprintf(field, sizeof field, "%.*s", (int)strcspn(row->text, " "), row->text);
        CHECKF(strcmp(before, field) <= 0, "line %d: %s stands after %s", row->line, field, before);
        memcpy(before, field, sizeof before);
        for (size_t i = 0; i < row->count; i++) {
            text_of(row, row->numbers[i], text);
            refuse(row, text, row->numbers[i]);
        }
    }
    CHECK(released == 0);
}
static void test_forward(void) { test_rows(FORWARD_ROWS); }
static void test_backward(void) { test_rows(BACKWARD_ROWS); }
static void test_mha(void) { test_rows(MHA_ROWS); }
static void test_mha_backward(void) { test_rows(MHA_BACKWARD_ROWS); }
static void test_pieces(void) { test_rows(PIECE_ROWS); }

/* ---- what is accepted */
static void test_accepted(void) { /* what the changes start from, and what comes close to a refusal */
    ACCEPTED(valid, (void)0);
    ACCEPTED(additive, (void)0);
    ACCEPTED(bilinear, (void)0);
    ACCEPTED(given, (void)0);
    ACCEPTED(gaussian, (void)0);
    ACCEPTED(gaussian, d.sigma = 0.5f);
    ACCEPTED(gaussian, d.sigma_per_head = attn_view_f32(m.small, 1, H, 0, 0, 0));
    ACCEPTED(valid, d.scale_set = 1);
    ACCEPTED(valid, CLEAR(d.v); CLEAR(d.out));
    ACCEPTED(valid, d.dropout = 1);
    ACCEPTED(valid, d.mask = mask(1, SK, 0, 0, 0));
    ACCEPTED(valid, d.mask = mask(4, B, 1, SQ, 1));
    ACCEPTED(valid, d.window = 1; d.window_left = ATTN_UNBOUNDED; d.window_right = 0; d.align = ATTN_ALIGN_TOP_LEFT);
    ACCEPTED(valid, d.window = 1; d.window_left = INT64_MAX; d.window_right = INT64_MAX;
             d.align = ATTN_ALIGN_BOTTOM_RIGHT);
    ACCEPTED(valid, d.weights_after_dropout = 1; d.dropout = 0.5f);
    ACCEPTED(valid, d.weights_after_dropout = 1; CLEAR(d.weights)); /* as in evaluation */
    ACCEPTED(valid, d.seed = 7; d.dropout_origin[2] = 5; d.align = ATTN_ALIGN_BOTTOM_RIGHT);
    ACCEPTED(valid, store_codes(&d));
    ACCEPTED(valid, store_codes(&d); d.k_scale.type = ATTN_F16);
    ACCEPTED(valid, d.k = attn_view_slice(d.k, 2, 0, SK); d.out = attn_out_slice(d.out, 0, 0, B));
    ACCEPTED(valid, d.out.size[0] = 1; d.out.stride[0] = 0; d.q.size[0] = d.k.size[0] = d.v.size[0] = 1;
             d.lse.size[0] = 1; d.weights.size[0] = d.scores.size[0] = d.scores_softcap.size[0] =
                                    d.scores_masked.size[0] = d.stats.size[0] = 1); /* one entry */
    ACCEPTED(valid, d.out.data = m.out + (SQ - 1) * DV; d.out.stride[2] = -DV);     /* reversed */
    ACCEPTED(valid, CLEAR(d.q.stride); CLEAR(d.k.stride));                          /* inputs may */
    ACCEPTED(valid, d.key_lengths = ints(1, B, 0); m.ints[1] = SK);
    ACCEPTED(valid, d.query_lengths = ints(1, B, 0); m.ints[1] = SQ);
    ACCEPTED(valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = ints(1, B, 0); m.ints[0] = INT32_MIN;
             m.ints[1] = INT32_MAX; d.causal = 1);
    ACCEPTED(given, d.weights.data = m.scores; CLEAR(d.out));
    ACCEPTED(valid, d.q.size[0] = d.k.size[0] = d.v.size[0] = d.out.size[0] = d.lse.size[0] = d.weights.size[0] =
                        d.scores.size[0] = d.scores_softcap.size[0] = d.scores_masked.size[0] = d.stats.size[0] = 0;
             d.q.data = d.k.data = d.v.data = 0; d.out.data = d.lse.data = d.weights.data = d.scores.data = 0);
    ACCEPTED(valid, d.k.size[2] = d.v.size[2] = d.weights.size[3] = d.scores.size[3] = d.scores_softcap.size[3] =
                        d.scores_masked.size[3] = 0;
             d.k.data = d.v.data = 0);
    ACCEPTED(valid, d.q.size[3] = d.k.size[3] = 0; d.q.data = d.k.data = 0);
    ACCEPTED(valid, d.v.size[3] = d.out.size[3] = 0; d.v.data = 0; d.out.data = 0);
    ACCEPTED(padded, (void)0);
    ACCEPTED(padded, seq.key_starts[0] = SK; seq.query_starts[1] = SQ); /* entries without a key, without a row */
    ACCEPTED(packed, d.align = 0; d.causal = 1; seq.key_lengths[0] = seq.key_lengths[1] = SQ); /* as many of both */
    ACCEPTED(packed, (void)0);
    ACCEPTED(packed, seq.key_starts[1] = 3); /* keys in common */
    ACCEPTED(packed, d.bias = floats(4, 1, H, 1, 1));
    ACCEPTED(packed, seq.key_starts[0] = SK; seq.key_starts[1] = 0);     /* keys in any order */
    ACCEPTED(packed, seq.query_starts[1] = 1; seq.query_lengths[1] = 0); /* no row, none in common */
    ACCEPTED(packed, seq.query_starts[0] = 5; seq.query_lengths[0] = 0); /* nor is the other one after it */
    ACCEPTED(paged, (void)0);
    ACCEPTED(paged, seq.key_lengths[1] = 2; seq.table[3] = 77); /* beyond a length */
    ACCEPTED(last_part, (void)0);
    ACCEPTED(middle_part, (void)0);
    ACCEPTED(middle_part, d.out = attn_out_bhsd(m.out, B, H, SQ, DV)); /* those of the keys so far */
    ACCEPTED(middle_part, d.carry_in = attn_view_of(d.carry_out));
    ACCEPTED(middle_part, d.key_origin = 0);
    ACCEPTED(last_part, d.causal = 1; d.align = ATTN_ALIGN_TOP_LEFT);
    ACCEPTED(valid, d.key_origin = ATTN_PART_KEYS); /* nothing is carried: a part on its own */
    ACCEPTED(last_part, CLEAR(d.v); CLEAR(d.out); d.carry_in = floats(4, B, H, SQ, 2)); /* no values */
    ACCEPTED(padded, CLEAR(d.stats); CLEAR(d.weights); d.scores = d.scores_softcap = d.scores_masked = d.weights;
             d.align = ATTN_ALIGN_TOP_LEFT;
             d.carry_out = attn_out_bhsd(m.weights, B, H, SQ, DV + 2)); /* an entry may end in any part */
    BACKWARD_OK(padded, (void)0);
    BACKWARD_OK(everything, d.key_origin = ATTN_PART_KEYS; d.align = ATTN_ALIGN_TOP_LEFT; CLEAR(g.d_weights);
                CLEAR(g.d_sink));
}

static void test_backward_accepted(void) {
    static attn_desc (*const from[])(void) = {valid, everything, additive,         bilinear,
                                              given, gaussian,   gaussian_per_head};
    for (int n = 0; n < 7; n++) {
        BACKWARD_OK(from[n], (void)0);
        BACKWARD_OK(from[n], g.accumulate = ATTN_GRAD_ALL); /* of those that are absent too */
        BACKWARD_OK(from[n], CLEAR(d.stats));
        for (int field = 0; field < GRAD_FIELDS; field++) { /* each may be absent, each result be wanted alone */
            BACKWARD_OK(from[n], memset(grad_field(&g, field), 0, sizeof(attn_out)));
            BACKWARD_OK(
                from[n], attn_out one = *grad_field(&g, field); if (field >= FROM_ABOVE && one.rank) {
                    no_gradient(&g);
                    *grad_field(&g, field) = one;
                });
        }
    }
    BACKWARD_OK(valid, CLEAR(d.lse); CLEAR(d.weights));
    BACKWARD_OK(valid, CLEAR(g.d_out); no_results(&d));                                 /* out is not read */
    BACKWARD_OK(valid, attn_out dv = g.dv; no_gradient(&g); g.dv = dv; no_results(&d)); /* nor for dv alone */
    BACKWARD_OK(valid, CLEAR(g.d_out); CLEAR(g.dv); no_results(&d); CLEAR(d.v));
    BACKWARD_OK(valid, d.out.data = m.out + (SQ - 1) * DV;
                d.out.stride[2] = -DV); /* reversed, and so may a result be */
    BACKWARD_OK(valid, g.dq.data = m.gradients[0] + (SQ - 1) * D; g.dq.stride[2] = -D);
    BACKWARD_OK(valid, CLEAR(g.d_out.stride)); /* what is read may be broadcast */
    for (int32_t score = ATTN_SCORE_BOXCAR; score <= ATTN_SCORE_TRIANGULAR; score++)
        BACKWARD_OK(gaussian, d.score = score);
    BACKWARD_OK(gaussian, d.score = ATTN_SCORE_CONSTANT; CLEAR(g.d_sigma));
    BACKWARD_OK(valid, g.d_weights.data = g.d_out.data);
}

static void test_align(void) { /* every choice is good where Sq == Sk, and any but none elsewhere */
    for (int32_t align = ATTN_ALIGN_UNSET; align < ATTN_ALIGN_COUNT; align++) {
        attn_view p = ints(1, B, 0);
        if (align != ATTN_ALIGN_POSITIONS) CLEAR(p);
        ACCEPTED(valid, d.align = align; d.positions = p);
        ACCEPTED(square, d.align = align; d.positions = p; d.causal = d.window = 1; d.alibi = slopes());
        ACCEPTED(square, d.align = align; d.positions = p; d.causal = 1; d.key_lengths = ints(1, B, 0); m.ints[0] = 1);
        ACCEPTED(valid, d.align = align; d.positions = p; d.window = 1;
                 d.window_left = d.window_right = ATTN_UNBOUNDED);
        if (align == ATTN_ALIGN_UNSET) continue;
        ACCEPTED(valid, d.align = align; d.positions = p; d.causal = d.window = 1; d.alibi = slopes());
    }
}

static void test_align_of_pieces(void) {
    valid(); /* fills and paints the memory */
    attn_error err;
    attn_desc options;
    attn_out out = attn_out_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SK),
             as_many = attn_out_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SQ);
    attn_view x = floats(2, SQ, SK, 0, 0);
    CLEAR(options);
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
    CLEAR(options);
    options.alibi = slopes(); /* does not count in a mask */
    CHECK_STATUS(attn_mask(out, &options, &err), ATTN_OK);
}

static void test_positions(void) { /* up to 2^62 an index can be added */
    static const int64_t good[] = {FAR, FAR >> 8, -FAR, E62 / 2, E62, -E62};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ACCEPTED(valid, d.align = ATTN_ALIGN_POSITIONS; d.causal = d.window = 1; d.positions = longs(1, good[i]));
        ACCEPTED(valid, d.align = ATTN_ALIGN_POSITIONS; d.alibi = slopes(); d.positions = longs(2, good[i]));
    }
}

/* ---- what takes more than a row: refused in a loop, or with data of its own */
static void test_no_view(void) { /* no axis of an absent view, no part of a packed one; both stay where they are */
    attn_view none, v;
    CLEAR(none);
    for (size_t i = 0; i < sizeof no_axes / sizeof *no_axes; i++) {
        int axis = (int)no_axes[i];
        CHECK(attn_view_slice(none, axis, 0, 1).rank == 0 && attn_view_swap(none, 0, axis).rank == 0);
    }
    for (int which = 1; which < 3; which++) {
        v = attn_view_qkv(m.q, which, 1, 1, FAR, FAR);
        CHECKF(v.data == m.q || v.rank < 0, "a view that is too large has moved its data");
    }
    v = attn_view_bhsd(m.q, 3, 1, 0, D); /* without an element any stride will do */
    v.stride[0] = INT64_MAX / 2;
    v = attn_view_slice(v, 0, 2, 1);
    CHECK(v.rank == 4 && v.size[0] == 1 && v.data == m.q);
}

static void test_hooks(void) {
    size_t bytes = 0;
    attn_plan plan;
    attn_desc d = valid();
    CHECK(size_of(&d) > 16);
    d.workspace_bytes = 1; /* which counts in no size query and no plan */
    CHECK_STATUS(attn_workspace_size(&d, &bytes, 0), ATTN_OK);
    CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
    no_results(&d);
    refused(&d, 0, ATTN_ERR_NULL, "out", __LINE__); /* no result at all */
    d = valid();
    attn_grad g = grads_of(&d);
    CHECK(size_of_backward(&d, &g) > 16);
    no_results(&d);
    d.parallel.workers = INT32_MAX;
    d.q = attn_view_bhsd(m.q, 1, 1, 1, D);
    d.k = attn_view_bhsd(m.k, 1, 1, SK, D);
    d.v = attn_view_bhsd(m.v, 1, 1, SK, FAR << 10);
    CLEAR(d.v.stride);
    d.out = attn_out_bhsd(m.out, 1, 1, 1, FAR << 10);
    refused(&d, 0, ATTN_ERR_OVERFLOW, "workspace", __LINE__);
}

/* Sizes whose product no 64 bits hold make a view that is refused, and so is each part of it; no data moves. */
static void test_huge_views(void) {
    attn_view v[6];
    v[0] = attn_view_f32(m.q, 3, FAR, FAR, 1, 0);
    v[1] = attn_view_bhsd(m.q, FAR, 1, FAR, 1);
    v[2] = attn_view_bshd(m.q, 1, FAR, FAR, FAR);
    v[3] = attn_view_qkv(m.q, 2, 1, 1, FAR, FAR);
    v[4] = attn_view_qkv(m.q, 1, FAR, (int64_t)1 << 19, 1, 1);
    v[5] = attn_view_rows(m.q, FAR, FAR, 1, 1, FAR);
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
    v[0] = attn_view_qkv(m.q, 2, 0, FAR, FAR, FAR); /* no element: legal, and nothing moves */
    CHECK(v[0].data == m.q && v[0].rank == 4);
}

/* Calls without an element return at once, however many rows of none there are. */
static void test_no_elements(void) {
    attn_desc options;
    attn_out mask_out = attn_out_u8((uint8_t *)m.raw, 4, 1, 1, FAR, 0), none,
             merged = attn_out_bhsd(m.out, 1, 1, FAR, 0);
    attn_view rows = attn_view_bhsd(m.q, 1, 1, FAR, 0), lse = attn_view_f32(m.q, 3, 1, 1, FAR, 0);
    CLEAR(options);
    CLEAR(none);
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
        BACKWARD_REFUSED(valid, ATTN_ERR_ISA, "isa", d.isa = isa);
    }
    if (!missing) test_skip("this machine has every instruction set: ATTN_ERR_ISA was not provoked");
    CHECK(ATTN_ISA_COUNT == 7);
}

/* Views may have one element less than 2^60, however many along one axis, and their scores must be a number that can be
   counted: where its product alone is large, and where the square of the longer axis would be. */
static void test_most_elements(void) {
    enum { SMALL = 1 << 15, THIRTY = 1 << 30 };
    static const int64_t many = (int64_t)1 << 60;
    const struct {
        int64_t q[4], keys;
        const char *want;
    } cases[] = {{{1, 1, many - 1, 1}, 1, "k must make B*H*Sq*Sk a number that can be counted"},
                 {{1, 1, many, 1}, 1, "q must have fewer than 2^60 elements"},
                 {{SMALL, SMALL, SMALL, SMALL}, 1, "q must have fewer than 2^60 elements"},
                 {{SMALL, SMALL, SMALL, SMALL - 1}, 1, 0},
                 {{1, 1, (int64_t)15 << 26, 1}, THIRTY, 0},
                 {{1, 1, 1, 1}, FAR, 0},
                 {{1, 1, FAR, 1}, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t *q = cases[i].q;
        attn_desc d;
        attn_error err;
        size_t bytes;
        CLEAR(d);
        d.q = attn_view_bhsd(0, q[0], q[1], q[2], q[3]);
        d.k = attn_view_bhsd(0, q[0], q[1], cases[i].keys, q[3]);
        d.lse = attn_out_f32(0, 3, q[0], q[1], q[2], 0);
        poison_error(&err);
        attn_status got = attn_workspace_size(&d, &bytes, &err);
        if (cases[i].want) check_error(got, &err, ATTN_ERR_OVERFLOW, cases[i].want, __LINE__);
        else CHECK_STATUS(got, ATTN_OK);
    }
}

/* Sizes that no data backs: refused or priced, without a crash. */
static void test_overflow_workspace(void) {
    for (int n = 0; n < 2 * 4 * 43; n++) {
        const int backward = n % 2, axis = n / 2 % 4, bits = 20 + n / 8;
        attn_desc d = valid();
        attn_error err;
        attn_grad g;
        size_t bytes = 12345;
        no_results(&d);
        d.q.size[axis] = d.k.size[axis] = d.v.size[axis] = (int64_t)1 << bits;
        CLEAR(d.q.stride), CLEAR(d.k.stride), CLEAR(d.v.stride), CLEAR(g);
        g.d_lse = floats(3, d.q.size[0], d.q.size[1], d.q.size[2], 0);
        CLEAR(g.d_lse.stride);
        g.d_scale = attn_out_f32(m.gradients[11], 1, 1, 0, 0, 0);
        poison_error(&err);
        attn_status status =
            backward ? attn_backward_workspace_size(&d, &g, &bytes, &err) : attn_workspace_size(&d, &bytes, &err);
        CHECKF(status == ATTN_OK || status == ATTN_ERR_OVERFLOW, "axis %d, 2^%d: %s (%s %s)", axis, bits,
               attn_status_string(status), err.field, err.rule);
        CHECKF(status == ATTN_OK || bytes == 12345, "axis %d, 2^%d: bytes written on error", axis, bits);
        CHECKF(err.status == (int32_t)status, "axis %d, 2^%d: err.status", axis, bits);
        CHECKF(bits < 60 || status == ATTN_ERR_OVERFLOW, "axis %d, 2^%d accepted", axis, bits);
        CHECKF(bits > 24 || status == ATTN_OK, "axis %d, 2^%d refused", axis, bits);
    }
    check_unwritten(__LINE__);
}

/* q, k, v and the output in one array [B,S,4,H,D], wherever in memory it begins: nothing overlaps, as long as the
   output stays in its slot. */
static void check_interleaved(float *packed, const float *copy) {
    enum { S = 3, N = 2, W = 4, ROW = 4 * N * W };
    float alone[B * S * N * W];
    attn_desc d;
    memcpy(packed, copy, B * S * ROW * sizeof *packed);
    CLEAR(d);
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

static void test_elementary(void) {
    valid(); /* fills and paints the memory */
    CHECK_STATUS(attn_elementary(ATTN_FUNCTION_COUNT, m.q, m.out, 4, ATTN_ISA_AUTO), ATTN_ERR_OPTION);
    CHECK_STATUS(attn_elementary((attn_function)-1, m.q, m.out, 4, ATTN_ISA_AUTO), ATTN_ERR_OPTION);
    CHECK_STATUS(attn_elementary(ATTN_EXP, 0, m.out, 4, ATTN_ISA_AUTO), ATTN_ERR_NULL);
    CHECK_STATUS(attn_elementary(ATTN_EXP, m.q, 0, 4, ATTN_ISA_AUTO), ATTN_ERR_NULL);
    CHECK_STATUS(attn_elementary(ATTN_EXP, 0, 0, 0, ATTN_ISA_AUTO), ATTN_OK);
    CHECK(attn_elementary(ATTN_EXP, m.q, m.out, -1, ATTN_ISA_AUTO) != ATTN_OK);
    CHECK(attn_elementary(ATTN_EXP, m.q, m.out, 4, (attn_isa)77) != ATTN_OK);
    CHECK(!unpainted());
}

static void test_mha_accepted(void) {
    attn_desc options = valid();
    attn_error err;
    CLEAR(options);
    attn_mha_desc fine = heads(&options); /* what the changes start from */
    CHECK_STATUS(attn_mha(&fine, &err), ATTN_OK);
    attn_mha_grad g = head_grads(&fine);
    CHECK_STATUS(attn_mha_backward(&fine, &g, &err), ATTN_OK);
    CLEAR(g); /* where there are no elements their strides may be anything */
    CLEAR(fine.w_result);
    fine.query.size[1] = 0;
    fine.out = attn_out_f32(m.weights, 3, B, 0, 6, 0);
    fine.out.stride[2] = INT64_MIN;
    CHECK_STATUS(attn_mha(&fine, &err), ATTN_OK);
    g.d_out = attn_view_of(fine.out);
    g.dquery = attn_out_f32(m.q, 3, B, 0, 4, 0);
    CHECK_STATUS(attn_mha_backward(&fine, &g, &err), ATTN_OK);
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
/* Of a view only the first `rank` sizes and strides count: what stands after them changes no status and no bit. */
static attn_desc ranks_of_one(void) {
    attn_desc d = everything();
    d.bias = floats(1, SK, 0, 0, 0);
    d.mask = mask(1, SK, 0, 0, 0);
    d.key_lengths = d.query_lengths = d.positions = ints(1, B, 0);
    d.align = ATTN_ALIGN_POSITIONS;
    d.causal = 1;
    for (int i = 0; i < B * SQ; i++) m.ints[i] = i < B ? SQ : INT32_MIN; /* no length, what lies after them */
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
static void test_beyond_rank(void) {
    static const int64_t junk[][2] = {{0, 0}, {3, 1}, {-1, -1}, {INT64_MAX, INT64_MAX}, {INT64_MIN, INT64_MIN}, {1, 7}};
    static attn_desc (*const from[])(void) = {everything, ranks_of_one, ranks_of_three,   additive,
                                              bilinear,   given,        gaussian_per_head};
    static unsigned char want[sizeof m];
    for (size_t call = 0; call < sizeof from / sizeof *from; call++) {
        for (size_t n = 0; n < sizeof junk / sizeof *junk; n++) {
            attn_desc d = from[call]();
            attn_grad g = grads_of(&d);
            // clang-format off
            void *const views[] = {&d.q, &d.k, &d.v, &d.out, &d.lse, &d.weights, &d.scores, &d.scores_softcap,
                    &d.scores_masked, &d.stats, &d.sigma_per_head, &d.bilinear, &d.w_q, &d.w_k, &d.w_v, &d.hidden_bias,
                    &d.given_scores, &d.bias, &d.alibi, &d.sink, &d.mask, &d.key_lengths, &d.query_lengths,
                    &d.positions};
            // clang-format on
            for (int junked = 0; junked < 2; junked++) {
                for (size_t v = 0; junked && v < sizeof views / sizeof *views; v++)
                    set_beyond_rank(views[v], junk[n][0], junk[n][1]);
                for (int v = 0; junked && v < GRAD_FIELDS; v++)
                    set_beyond_rank(grad_field(&g, v), junk[n][0], junk[n][1]);
                paint();
                accepted(&d, 0, __LINE__);
                accepted(&d, &g, __LINE__);
                if (!junked) memcpy(want, results_begin(), results_size());
            }
            CHECKF(!memcmp(want, results_begin(), results_size()),
                   "call %d: other bits with %lld and %lld beyond the rank", (int)call, (long long)junk[n][0],
                   (long long)junk[n][1]);
        }
    }
}

/* The name of a view's member, until the next one is asked for. */
static const char *member(const char *view, const char *name) {
    static char text[60];
    snprintf(text, sizeof text, "%s.%s", view, name);
    return text;
}

static void test_backward_null(void) {
    for (int n = 0; n < GRAD_FIELDS; n++)
        BACKWARD_REFUSED(grad_fields[n].from, ATTN_ERR_NULL, member(grad_fields[n].name, "data"),
                         grad_field(&g, n)->data = 0);
    attn_desc d = everything();
    attn_grad bare = grads_of(&d);
    for (int n = 0; n < GRAD_FIELDS; n++) grad_field(&bare, n)->data = 0;
    d.q.data = d.k.data = d.v.data = 0;
    d.out.data = d.stats.data = 0;
    size_of_backward(&d, &bare); /* sizes alone need no data */
}

static void test_backward_views(void) { /* each rule for views, broken in each field */
    static const int32_t types[] = {ATTN_I8, ATTN_I64, ATTN_F64, ATTN_U8, ATTN_I32, ATTN_TYPE_COUNT, -1};
    char name[60];
    for (int n = 0; n < GRAD_FIELDS; n++) {
        const struct grad_field *f = &grad_fields[n];
        for (int i = 0; i < 7; i++)
            BACKWARD_REFUSED(f->from, ATTN_ERR_TYPE, member(f->name, "type"), grad_field(&g, n)->type = types[i]);
        snprintf(name, sizeof name, "%s.rank", f->name);
        for (int32_t rank = 1; rank <= 5; rank++)
            if (rank < f->least_rank || rank > f->most_rank) {
                BACKWARD_REFUSED(f->from, ATTN_ERR_RANK, name, attn_out *o = grad_field(&g, n); int32_t had = o->rank;
                                 o->rank = rank;
                                 for (int a = had; a < rank && a < 4; a++) o->size[a] = o->stride[a] = 1);
            }
        BACKWARD_REFUSED(f->from, ATTN_ERR_RANK, name, grad_field(&g, n)->rank = -1);
        for (int axis = 0; axis < f->least_rank; axis++) {
            snprintf(name, sizeof name, "%s.size[%d]", f->name, axis);
            BACKWARD_REFUSED(f->from, ATTN_ERR_SIZE, name, grad_field(&g, n)->size[axis]--);
            BACKWARD_REFUSED(f->from, ATTN_ERR_SIZE, name, grad_field(&g, n)->size[axis] = -1);
        }
        BACKWARD_REFUSED(f->from, ATTN_ERR_OVERFLOW, f->name, grad_field(&g, n)->size[0] = (int64_t)1 << 62);
        attn_desc first = f->from();
        attn_grad grads = grads_of(&first);
        if (n < FROM_ABOVE || grad_field(&grads, n)->size[0] < 2) continue; /* results must not overlap themselves */
        snprintf(name, sizeof name, "%s.stride", f->name);
        BACKWARD_REFUSED(f->from, ATTN_ERR_STRIDE, name, grad_field(&g, n)->stride[0] = 0);
        BACKWARD_REFUSED(f->from, ATTN_ERR_OVERFLOW, name, grad_field(&g, n)->stride[0] = (int64_t)1 << 62);
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
            BACKWARD_REFUSED(from[n], ATTN_ERR_OPTION, grad_fields[field].name, *grad_field(&g, field) = foreign);
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
                BACKWARD_REFUSED(f->from, ATTN_ERR_OVERLAP, f->name,
                                 grad_field(&g, n)->data = (void *)(uintptr_t)read[i]);
        BACKWARD_REFUSED(f->from, ATTN_ERR_OVERLAP, f->name,
                         d.mask = attn_view_u8((uint8_t *)grad_field(&g, n)->data, 1, SK, 0, 0, 0);
                         grad_field(&g, n)->data = (void *)(uintptr_t)d.mask.data);
        for (int other = n + 1; other < GRAD_FIELDS; other++) {
            attn_grad all = grads_of(&base);
            if (!grad_field(&all, other)->rank) continue;
            BACKWARD_REFUSED(f->from, ATTN_ERR_OVERLAP, f->name, grad_field(&g, other)->data = grad_field(&g, n)->data);
        }
    }
    { /* dq, dk and dv in one array, each in its slot */
        enum { ROW = H * D + HKV * D + HKV * DV };
        attn_desc d = valid();
        attn_grad g = grads_of(&d);
        float packed[B * SQ * ROW + 64];
        d.k.size[2] = d.v.size[2] = SQ;
        no_results(&d);
        d.out = attn_out_bhsd(m.out, B, H, SQ, DV);
        CLEAR(g.d_weights);
        g.dq = attn_out_rows(packed, B, SQ, H, D, ROW);
        g.dk = attn_out_rows(packed + H * D, B, SQ, HKV, D, ROW);
        g.dv = attn_out_rows(packed + H * D + HKV * D, B, SQ, HKV, DV, ROW);
        CHECK_STATUS(attn_backward(&d, &g, 0), ATTN_OK);
        paint();
        g.dk = attn_out_rows(packed + H * D - 1, B, SQ, HKV, D, ROW); /* one float into dq */
        refused(&d, &g, ATTN_ERR_OVERLAP, "dq", __LINE__);
    }
}

static void test_mha_results(void) { /* each rule for views, broken in each gradient */
    attn_desc options = valid();
    attn_error err;
    CLEAR(options);
#define MHA_REFUSED(status, want, change) \
    do { \
        attn_mha_desc h = heads(&options); \
        attn_mha_grad g = head_grads(&h); \
        attn_out *result = head_field(&g, n); \
        change; \
        FAILS(attn_mha_backward(&h, &g, &err), status, want); \
    } while (0)
    for (int n = 0; n < HEAD_FIELDS; n++) {
        const char *name = head_fields[n].name;
        MHA_REFUSED(ATTN_ERR_NULL, member(name, "data"), result->data = 0);
        MHA_REFUSED(ATTN_ERR_TYPE, member(name, "type"), result->type = ATTN_F64);
        MHA_REFUSED(ATTN_ERR_RANK, member(name, "rank"), result->rank = 1);
        MHA_REFUSED(ATTN_ERR_SIZE, member(name, "size[1]"), result->size[1]--);
        MHA_REFUSED(ATTN_ERR_STRIDE, member(name, "stride"), result->stride[0] = 0);
        MHA_REFUSED(ATTN_ERR_OVERLAP, name, result->data = m.q);
        MHA_REFUSED(ATTN_ERR_OVERLAP, name, result->data = m.small);
        MHA_REFUSED(ATTN_ERR_OVERLAP, name, result->data = m.scores);
        if (n) MHA_REFUSED(ATTN_ERR_OVERLAP, "dquery", result->data = m.gradients[0]);
    }
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
    // clang-format off
    static const place desc[] = {
        AT(attn_desc, struct_bytes, 0), AT(attn_desc, q, 8), AT(attn_desc, k, 88), AT(attn_desc, v, 168),
        AT(attn_desc, out, 248), AT(attn_desc, lse, 328), AT(attn_desc, weights, 408), AT(attn_desc, scores, 488),
        AT(attn_desc, scores_softcap, 568), AT(attn_desc, scores_masked, 648), AT(attn_desc, score, 728),
        AT(attn_desc, scale_set, 732), AT(attn_desc, scale, 736), AT(attn_desc, sigma, 740),
        AT(attn_desc, sigma_per_head, 744), AT(attn_desc, bilinear, 824), AT(attn_desc, w_q, 904),
        AT(attn_desc, w_k, 984), AT(attn_desc, w_v, 1064), AT(attn_desc, hidden_bias, 1144),
        AT(attn_desc, given_scores, 1224), AT(attn_desc, softcap, 1304), AT(attn_desc, bias, 1312),
        AT(attn_desc, alibi, 1392), AT(attn_desc, sink, 1472), AT(attn_desc, mask, 1552),
        AT(attn_desc, key_lengths, 1632), AT(attn_desc, query_lengths, 1712), AT(attn_desc, causal, 1792),
        AT(attn_desc, align, 1796), AT(attn_desc, positions, 1800), AT(attn_desc, window, 1880),
        AT(attn_desc, empty, 1884), AT(attn_desc, window_left, 1888), AT(attn_desc, window_right, 1896),
        AT(attn_desc, dropout, 1904), AT(attn_desc, weights_after_dropout, 1908), AT(attn_desc, seed, 1912),
        AT(attn_desc, dropout_origin, 1920), AT(attn_desc, isa, 1952), AT(attn_desc, reserved, 1956),
        AT(attn_desc, workspace, 1960), AT(attn_desc, workspace_bytes, 1968), AT(attn_desc, allocator, 1976),
        AT(attn_desc, parallel, 2000), AT(attn_desc, stats, 2024), AT(attn_desc, stream, 2104),
        AT(attn_desc, k_scale, 2112), AT(attn_desc, v_scale, 2192), AT(attn_desc, precision, 2272),
        AT(attn_desc, reserved2, 2276), AT(attn_desc, query_starts, 2280), AT(attn_desc, key_starts, 2360),
        AT(attn_desc, page_table, 2440), AT(attn_desc, carry_in, 2520), AT(attn_desc, carry_out, 2600),
        AT(attn_desc, key_origin, 2680), AT(attn_desc, bias_index, 2688),
        {"sizeof attn_desc", sizeof(attn_desc), 2768},
        {0, 0, 0}};
    static const place others[] = {
        AT(attn_view, data, 0), AT(attn_view, size, 8), AT(attn_view, stride, 40), AT(attn_view, type, 72),
        AT(attn_view, rank, 76), {"sizeof attn_view", sizeof(attn_view), 80},
        AT(attn_out, data, 0), AT(attn_out, size, 8), AT(attn_out, stride, 40), AT(attn_out, type, 72),
        AT(attn_out, rank, 76), {"sizeof attn_out", sizeof(attn_out), 80},
        AT(attn_error, status, 0), AT(attn_error, field, 8), AT(attn_error, rule, 16), AT(attn_error, got, 24),
        AT(attn_error, want, 32), AT(attn_error, has_numbers, 40), AT(attn_error, cuda, 44), AT(attn_error, place, 48),
        AT(attn_error, has_place, 64), AT(attn_error, has_type, 68), AT(attn_error, reserved2, 72),
        {"sizeof attn_error", sizeof(attn_error), 80},
        AT(attn_allocator, allocate, 0), AT(attn_allocator, release, 8), AT(attn_allocator, user, 16),
        AT(attn_parallel, run, 0), AT(attn_parallel, user, 8), AT(attn_parallel, workers, 16),
        {"sizeof attn_parallel", sizeof(attn_parallel), 24},
        AT(attn_plan, workspace_bytes, 0), AT(attn_plan, phases, 8), AT(attn_plan, isa, 12), AT(attn_plan, tasks, 16),
        AT(attn_plan, internal, 144), {"sizeof attn_plan", sizeof(attn_plan), 5264},
        AT(attn_mha_desc, struct_bytes, 0), AT(attn_mha_desc, query, 8), AT(attn_mha_desc, key, 88),
        AT(attn_mha_desc, value, 168), AT(attn_mha_desc, w_query, 248), AT(attn_mha_desc, w_key, 328),
        AT(attn_mha_desc, w_value, 408), AT(attn_mha_desc, w_result, 488), AT(attn_mha_desc, b_query, 568),
        AT(attn_mha_desc, b_key, 648), AT(attn_mha_desc, b_value, 728), AT(attn_mha_desc, b_result, 808),
        AT(attn_mha_desc, out, 888), AT(attn_mha_desc, heads, 968), AT(attn_mha_desc, heads_kv, 976),
        AT(attn_mha_desc, attention, 984), AT(attn_mha_desc, saved, 992), AT(attn_mha_desc, saved_bytes, 1000),
        {"sizeof attn_mha_desc", sizeof(attn_mha_desc), 1008},
        AT(attn_rope_desc, struct_bytes, 0), AT(attn_rope_desc, base, 8), AT(attn_rope_desc, scaling, 16),
        AT(attn_rope_desc, no_truncation, 20), AT(attn_rope_desc, factor, 24),
        AT(attn_rope_desc, original_positions, 32), AT(attn_rope_desc, low_freq_factor, 40),
        AT(attn_rope_desc, high_freq_factor, 48), AT(attn_rope_desc, beta_fast, 56), AT(attn_rope_desc, beta_slow, 64),
        AT(attn_rope_desc, attention_factor, 72), AT(attn_rope_desc, first_position, 80),
        AT(attn_rope_desc, factors, 88), {"sizeof attn_rope_desc", sizeof(attn_rope_desc), 168},
        {0, 0, 0}};
    static const place gradients[] = {
        AT(attn_grad, struct_bytes, 0), AT(attn_grad, d_out, 8), AT(attn_grad, d_weights, 88),
        AT(attn_grad, d_lse, 168), AT(attn_grad, dq, 248), AT(attn_grad, dk, 328), AT(attn_grad, dv, 408),
        AT(attn_grad, d_given_scores, 488), AT(attn_grad, d_bias, 568), AT(attn_grad, d_bilinear, 648),
        AT(attn_grad, d_w_q, 728), AT(attn_grad, d_w_k, 808), AT(attn_grad, d_w_v, 888),
        AT(attn_grad, d_hidden_bias, 968), AT(attn_grad, d_sigma, 1048), AT(attn_grad, d_scale, 1128),
        AT(attn_grad, d_sink, 1208), AT(attn_grad, d_alibi, 1288), AT(attn_grad, accumulate, 1368),
        AT(attn_grad, reserved, 1372), AT(attn_grad, key_sums, 1376), AT(attn_grad, last_queries, 1456),
        {"sizeof attn_grad", sizeof(attn_grad), 1464},
        AT(attn_mha_grad, struct_bytes, 0), AT(attn_mha_grad, d_out, 8), AT(attn_mha_grad, dquery, 88),
        AT(attn_mha_grad, dkey, 168), AT(attn_mha_grad, dvalue, 248), AT(attn_mha_grad, dw_query, 328),
        AT(attn_mha_grad, dw_key, 408), AT(attn_mha_grad, dw_value, 488), AT(attn_mha_grad, dw_result, 568),
        AT(attn_mha_grad, db_query, 648), AT(attn_mha_grad, db_key, 728), AT(attn_mha_grad, db_value, 808),
        AT(attn_mha_grad, db_result, 888), AT(attn_mha_grad, attention, 968), AT(attn_mha_grad, accumulate, 976),
        AT(attn_mha_grad, reserved, 980), {"sizeof attn_mha_grad", sizeof(attn_mha_grad), 984},
        {0, 0, 0}};
// clang-format on
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
/* attn_desc has grown after `stream`, attn_mha_desc after `attention`, attn_grad after `reserved` */
#define WRONG_DESC (i == 4 ? offsetof(attn_desc, stream) : WRONG(attn_desc))
#define WRONG_GRAD (i == 4 ? offsetof(attn_grad, reserved) : WRONG(attn_grad))
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
    refused(&large.d, 0, ATTN_ERR_OPTION, "struct_bytes", __LINE__);
    for (size_t i = 0; i < 7; i++) {
        attn_desc options;
        attn_error err;
        attn_view x = floats(2, SQ, SQ, 0, 0);
        attn_out o = attn_out_f32(m.weights, 2, SQ, SQ, 0, 0);
        CLEAR(options);
        REFUSED(valid, ATTN_ERR_OPTION, "struct_bytes", d.struct_bytes = WRONG_DESC);
        BACKWARD_REFUSED(valid, ATTN_ERR_OPTION, "struct_bytes", d.struct_bytes = WRONG_DESC);
        BACKWARD_REFUSED(valid, ATTN_ERR_OPTION, "struct_bytes", g.struct_bytes = WRONG_GRAD);
        options.struct_bytes = WRONG_DESC; /* nested and as options */
        attn_mha_desc h = heads(&options);
        FAILS(attn_mha(&h, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_softmax(x, o, &options, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_softmax_backward(x, x, o, &options, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_scores(x, x, o, &options, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_bmm(x, x, o, &options, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_convert_with(x, o, &options, &err), ATTN_ERR_OPTION, "struct_bytes");
        FAILS(attn_mask(attn_out_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SK), &options, &err), ATTN_ERR_OPTION,
              "struct_bytes");
        options.struct_bytes = 0;
        h.struct_bytes = i == 4 ? offsetof(attn_mha_desc, attention) : WRONG(attn_mha_desc);
        FAILS(attn_mha(&h, &err), ATTN_ERR_OPTION, "struct_bytes");
        h.struct_bytes = 0;
        attn_mha_grad g = head_grads(&h);
        attn_grad own;
        CLEAR(own);
        g.struct_bytes = WRONG(attn_mha_grad);
        FAILS(attn_mha_backward(&h, &g, &err), ATTN_ERR_OPTION, "struct_bytes");
        g.struct_bytes = 0;
        g.attention = &own;
        own.struct_bytes = WRONG_GRAD;
        FAILS(attn_mha_backward(&h, &g, &err), ATTN_ERR_OPTION, "struct_bytes");
        attn_heatmap map;
        int calls = 1000000;
        attn_writer writer = {broken_pipe, &calls};
        CLEAR(map);
        map.values = attn_view_f32(m.scores, 2, 2, 2, 0, 0);
        map.struct_bytes = i == 4 ? offsetof(attn_heatmap, terminal) : WRONG(attn_heatmap); /* grown after it */
        FAILS(attn_heatmap_svg(&map, writer, &err), ATTN_ERR_OPTION, "struct_bytes");
        CHECK(calls == 1000000);
    }
    CLEAR(more);
    more.d = valid();
    more.d.struct_bytes = sizeof more;
    CHECK_STATUS(attn_forward(&more.d, 0), ATTN_OK);
    for (size_t i = 0; i < sizeof more.beyond; i += sizeof more.beyond - 1) {
        paint();
        more.beyond[i] = 1;
        refused(&more.d, 0, ATTN_ERR_OPTION, "struct_bytes", __LINE__);
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
          ATTN_ISA_NEON == 4 && ATTN_ISA_PORTABLE == 5 && ATTN_ISA_RELAXED == 6);
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
    CHECK(!strcmp(attn_isa_string(ATTN_ISA_RELAXED), "relaxed"));
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

static void test_words(void) { /* what the numbers of an error are */
    attn_error err;
    attn_desc d = square();
    d.mask = floats(2, SQ, SQ, 0, 0);
    FAILS(attn_forward(&d, &err), ATTN_ERR_TYPE, "mask.type must be ATTN_U8, is ATTN_F32");
    CHECK(err.has_type && err.got == ATTN_F32 && !err.has_numbers);
    d = valid();
    d.k = attn_view_bhsd(m.k, B, 3, SK, D);
    FAILS(attn_forward(&d, &err), ATTN_ERR_SIZE,
          "k.size[1] must divide the number of query heads: 3 does not divide 4");
    CHECK(err.has_numbers == 2 && err.got == 3 && err.want == H && !err.has_type);
    d.k = attn_view_bhsd(m.k, B, HKV, SK, D + 1);
    attn_forward(&d, &err); /* nothing stays of an error before */
    check_error((attn_status)err.status, &err, ATTN_ERR_SIZE, "k.size[3] must equal q.size[3]: 4, is 5", __LINE__);
    CHECK(err.has_numbers == 1 && !err.has_type);
    FAILS(attn_mask(attn_out_typed(ATTN_F16, m.mask, 4, 1, 1, SQ, SQ), 0, &err), ATTN_ERR_TYPE,
          "mask.type must be ATTN_U8, is ATTN_F16");
    d = valid();
    CHECK_STATUS(attn_forward(&d, &err), ATTN_OK);
    CHECK(!err.has_type && !err.has_numbers);
    paint();
    attn_heatmap map;
    char text[100];
    attn_buffer b = {text, sizeof text, 0};
    CLEAR(map);
    map.values = attn_view_i32(m.ints, 2, 2, 2, 0, 0);
    FAILS(attn_heatmap_svg(&map, attn_buffer_writer(&b), &err), ATTN_ERR_TYPE,
          "values.type must be ATTN_F32, ATTN_F16, ATTN_BF16 or ATTN_U8, is ATTN_I32");
    {
        attn_desc options; /* two numbers of which none is that of a row */
        CLEAR(options);
        attn_mha_desc h = heads(&options);
        h.heads = 4;
        h.heads_kv = 3;
        FAILS(attn_mha(&h, &err), ATTN_ERR_RANGE, "heads_kv must divide heads: 3 does not divide 4");
    }
}

static void check_explained(const attn_desc *d, const attn_grad *g) {
    char whole[600], cut[600];
    size_t length = explain(d, g, whole, sizeof whole);
    CHECK(length > 20 && length < sizeof whole && strlen(whole) == length);
    CHECK(explain(d, g, 0, 0) == length && explain(d, g, whole, 0) == length);
    for (size_t size = 0; size <= length + 2; size++) {
        memset(cut, 'x', sizeof cut);
        CHECKF(is_cut(cut, whole, size, explain(d, g, cut, size)), "explained into %lu bytes", (unsigned long)size);
    }
}

static void check_names(const char *text) {
    CHECKF(strstr(text, attn_score_string(ATTN_SCORE_SCALED_DOT)) && strstr(text, attn_isa_string(attn_best_isa())),
           "%s", text);
}

static void test_backward_explain(void) {
    attn_desc d = valid();
    attn_grad g = grads_of(&d);
    char text[600];
    check_explained(&d, &g);
    CHECK(attn_explain_backward(0, &g, 0, 0) > 10 && attn_explain_backward(&d, 0, 0, 0) > 10);
    attn_explain_backward(&d, &g, text, sizeof text);
    check_names(text);
    CHECKF(strstr(text, " tasks for parameters") != 0, "%s", text);
    attn_out dv = g.dv; /* dv alone has none */
    no_gradient(&g);
    g.dv = dv;
    attn_explain_backward(&d, &g, text, sizeof text);
    CHECKF(strstr(text, "gradients") && !strstr(text, "parameters"), "%s", text);
    check_unwritten(__LINE__);
}

static void test_explain(void) {
    char text[600], why[200];
    attn_error err;
    attn_desc d;
    CLEAR(d);
    check_explained(0, 0);
    check_explained(&d, 0);
    for (int i = 0; i < 200; i++) { /* whatever it is given: bytes at random, but for the content of lengths */
        unsigned char *bytes = (unsigned char *)&d;
        d = valid();
        for (int n = test_int(1, 8); n > 0; n--)
            bytes[test_int(0, (int)offsetof(attn_desc, key_lengths) - 1)] = (unsigned char)test_int(0, 255);
        CLEAR(d.sigma_per_head);
        CHECK(attn_explain(&d, text, sizeof text) > 10);
    }
    CHECK(!unpainted());
    d = valid();
    check_explained(&d, 0);
    attn_explain(&d, text, sizeof text);
    check_names(text);
    d.k.size[3] = 7;
    check_explained(&d, 0);
    attn_explain(&d, text, sizeof text);
    attn_forward(&d, &err);
    attn_error_string(&err, why, sizeof why);
    CHECKF(strstr(text, why) != 0, "\"%s\" does not contain \"%s\"", text, why);
}

/* What attn_explain says of the options, after the sizes and before what else it says. */
static void explains(const attn_desc *d, const char *options) {
    char whole[600], *begins, *ends;
    check_explained(d, 0);
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
    d.causal = 1; /* 3 and 1 of 2 * 2 each, as padded entries would have */
    explains(&d, "scale 0.5, causal, align top-left, key_lengths, query_lengths, query_starts, key_starts; 50" PAIRS);
    d = square(); /* as much as the same entries padded to the longest */
    d.query_lengths = d.key_lengths = attn_view_i32(of_entries, 1, B, 0, 0, 0);
    d.q.size[2] = d.k.size[2] = d.v.size[2] = d.out.size[2] = 2;
    d.causal = 1;
    explains(&d, "scale 0.5, causal, align top-left, key_lengths, query_lengths; 50" PAIRS);
    CLEAR(d); /* as many rows as are counted, and more */
    d.causal = 1;
    for (int64_t n = 1 << 20; n <= (1 << 20) + 1; n++) {
        d.q = d.k = attn_view_bhsd(NULL, 1, 1, n, 1);
        attn_explain(&d, text, sizeof text);
        CHECKF(!strstr(text, "; 50" PAIRS) == (n > 1 << 20), "%s", text);
    }
#undef PAIRS
}

/* ---- pictures */
typedef attn_status (*drawer)(const attn_heatmap *, attn_writer, attn_error *);
static const drawer drawers[] = {attn_heatmap_svg, attn_heatmap_ansi, attn_heatmap_ppm, attn_heatmap_html,
                                 attn_heatmap_lines_svg};
enum { DRAWERS = sizeof drawers / sizeof *drawers };
/* A writer that fails at any of its calls. */
static void test_write(void) {
    float x[4] = {0, 1, 2, 3};
    attn_heatmap map;
    attn_error err;
    CLEAR(map);
    map.values = attn_view_f32(x, 2, 2, 2, 0, 0);
    for (int i = 0; i < DRAWERS; i++) {
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

static int count_bytes(void *user, const char *bytes, size_t count) {
    (void)bytes;
    return (*(size_t *)user += count) > 1 << 20;
}
/* More rows or columns than a picture may have, of panels that are none. */
static void test_far_pictures(void) {
    static const int64_t sizes[][4] = {
        {0, 1, 1, 1 << 20}, {1, 0, 1 << 20, 1}, {0, 0, 1 << 20, 1 << 20}, {1 << 20, 1, 0, 1}, {1, 1 << 20, 1, 0}};
    for (int i = 0; i < 5; i++)
        for (int kind = 0; kind < DRAWERS; kind++) {
            attn_heatmap map;
            attn_error err;
            size_t written = 0;
            attn_writer writer = {count_bytes, &written};
            CLEAR(map);
            map.values = attn_view_f32(m.scores, 4, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
            attn_status st = drawers[kind](&map, writer, &err);
            CHECKF(st != ATTN_OK && st != ATTN_ERR_WRITE && written == 0, "sizes %d, picture %d: %s, %lu bytes", i,
                   kind, attn_status_string(st), (unsigned long)written);
            CHECKF(!strncmp(err.field, "values", 6), "%s %s", err.field, err.rule);
        }
}

/* Many entries, some of them empty, which stand anywhere: found where one begins before the end of another. */
static void test_packed_many(void) {
    enum { MANY = 1800 };
    static int32_t starts[MANY], lengths[MANY];
    static float x[2 * MANY];
    attn_desc d;
    attn_error err;
    CLEAR(d);
    d.q = d.k = d.v = attn_view_bhsd(x, 1, 1, 2 * MANY, 1);
    d.out = attn_out_bhsd((float *)test_guarded(sizeof x), 1, 1, 2 * MANY, 1);
    d.query_starts = d.key_starts = attn_view_i32(starts, 1, MANY, 0, 0, 0);
    d.query_lengths = d.key_lengths = attn_view_i32(lengths, 1, MANY, 0, 0, 0);
    for (int n = 0; n < 40; n++) {
        const int bad = n % 2 ? test_int(1, MANY - 1) : 0; /* has a row, as has one somewhere before it */
        int end = 0, bad_end = 0;
        for (int b = 0; b < MANY; b++) {
            lengths[b] = b == 0 || (bad && b == bad) ? 1 : test_int(0, 2);
            starts[b] = lengths[b] ? end : test_int(0, 2 * MANY);
            if (bad && b == bad) starts[b] = n % 4 == 1 ? end - 1 : test_int(0, end - 1);
            else if (lengths[b]) end += lengths[b];
            if (bad && b == bad) bad_end = end;
        }
        attn_status st = attn_forward(&d, &err);
        if (!bad) CHECK_STATUS(st, ATTN_OK);
        else
            CHECKF(st == ATTN_ERR_RANGE && !strcmp(err.field, "query_starts") && err.place[0] == bad &&
                       err.got == starts[bad] && err.want == bad_end,
                   "%s %s at %ld, want %d", attn_status_string(st), err.field, (long)err.place[0], bad);
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
        CLEAR(d);
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

static void test_backward_packed(void) {
    attn_desc d = packed();
    attn_grad g;
    CLEAR(g), CLEAR(d.stats);
    g.d_out = floats(4, 1, H, B * SQ, DV);
    g.dq = attn_out_bhsd(m.gradients[0], 1, H, B * SQ, D);
    g.dk = attn_out_bhsd(m.gradients[1], 1, HKV, B * SK, D);
    g.dv = attn_out_bhsd(m.gradients[2], 1, HKV, B * SK, DV);
    seq.key_starts[1] = SK - 1;
    refused(&d, &g, ATTN_ERR_RANGE, "key_starts must be at least the end of the entry before it: 5, is 4 at [1]",
            __LINE__);
    seq.key_starts[0] = SK, seq.key_starts[1] = 0; /* apart, but not in order */
    refused(&d, &g, ATTN_ERR_RANGE, "key_starts must be at least the end of the entry before it: 10, is 0 at [1]",
            __LINE__);
    seq.key_starts[0] = 0;
    seq.key_starts[1] = SK, seq.query_starts[1] = SQ - 1;
    refused(&d, &g, ATTN_ERR_RANGE, "query_starts must be at least the end of the entry before it: 3, is 2 at [1]",
            __LINE__);
    seq.query_starts[1] = SQ;
    g.d_weights = attn_view_f32(m.gradients[4], 4, 1, H, B * SQ, B * SK);
    refused(&d, &g, ATTN_ERR_OPTION, "d_weights", __LINE__);
    CLEAR(g.d_weights);
    d.bias = floats(4, 1, H, 1, 1);
    g.d_bias = attn_out_f32(m.gradients[3], 4, 1, H, SQ, 1);
    refused(&d, &g, ATTN_ERR_SIZE, "d_bias.size[2]", __LINE__);
}

static void test_key_sums(void) {
    attn_desc d = valid();
    attn_grad g;
    attn_error err;
    CLEAR(g);
    g.key_sums = attn_out_f32(m.gradients[0], 3, B, H, SK, 0);
    accepted(&d, &g, __LINE__);
    char text[400];
    attn_explain_backward(&d, &g, text, sizeof text);
    CHECKF(!strncmp(text, "sums by key of scaled dot product attention", 43), "%s", text);
    paint();
    FAILS(attn_key_sums(&d, -1, g.key_sums, &err), ATTN_ERR_RANGE, "last_queries");
    FAILS(attn_key_sums(&d, 0, attn_out_f32(m.gradients[0], 3, B, H, SK - 1, 0), &err), ATTN_ERR_SIZE,
          "key_sums.size[2]");
    FAILS(attn_key_sums(&d, 0, attn_out_f32(m.gradients[0], 3, B, HKV, SK, 0), &err), ATTN_ERR_SIZE,
          "key_sums.size[1]");
    FAILS(attn_key_sums(&d, 0, attn_out_f32(NULL, 3, B, H, SK, 0), &err), ATTN_ERR_NULL, "key_sums.data");
    attn_out none;
    CLEAR(none);
    FAILS(attn_key_sums(&d, 0, none, &err), ATTN_ERR_NULL, "key_sums must be given: where the sums go");
    g.d_lse = floats(3, B, H, SQ, 0);
    refused(&d, &g, ATTN_ERR_OPTION, "key_sums must be absent where gradients are given or wanted", __LINE__);
    CLEAR(g.d_lse);
    g.dq = attn_out_f32(m.gradients[1], 4, B, H, SQ, D);
    refused(&d, &g, ATTN_ERR_OPTION, "key_sums", __LINE__);
}
static void test_last_queries(void) { /* without sums */
    BACKWARD_REFUSED(valid, ATTN_ERR_OPTION, "last_queries", g.last_queries = 1);
    BACKWARD_REFUSED(valid, ATTN_ERR_RANGE, "last_queries", g.last_queries = INT64_MIN);
}

#define TEST(name) \
    { "errors." #name, test_##name }
// clang-format off
const test_case suite_errors[] = {
    TEST(accepted), TEST(forward), TEST(backward), TEST(mha), TEST(mha_backward), TEST(pieces),
    TEST(backward_accepted), TEST(align), TEST(align_of_pieces), TEST(positions), TEST(no_view), TEST(hooks),
    TEST(huge_views), TEST(no_elements), TEST(missing_isa), TEST(most_elements),
    TEST(overflow_workspace), TEST(interleaved), TEST(elementary), TEST(mha_accepted), TEST(beyond_rank),
    TEST(backward_null), TEST(backward_views), TEST(backward_options), TEST(backward_overlap), TEST(mha_results),
    TEST(layout), TEST(struct_bytes), TEST(numbers), TEST(strings), TEST(words), TEST(explain),
    TEST(explained_options), TEST(backward_explain), TEST(write), TEST(far_pictures), TEST(third_entry),
    TEST(packed_many), TEST(backward_packed), TEST(key_sums), TEST(last_queries),
    {0, 0}};
// clang-format on
