/* mha.c - attn_mha against its composition: in double precision, and bit for bit from the pieces. */
#include "pairs.h"
#include "saved.h"

/* ---- a block of heads with everything it can have */
typedef struct block {
    attn_mha_desc m;
    attn_desc options;
    int64_t batch, queries, keys, size_d, size_v, width; /* width: of a row of the result */
} block;

static attn_view take(double deviation, int rank, int64_t n0, int64_t n1, int64_t n2) {
    return make_filled(test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_MIXED, deviation, rank, n0, n1, n2, 0);
}

enum { WITH_BIASES = 1, WITHOUT_RESULT = 2, SELF = 4, CROSS_VALUE = 8 };

/* Inputs of these sizes, and the weights of their layers. */
static void take_layers(block *b, int64_t heads_kv, int flags, int64_t eq, int64_t ek, int64_t ev, double deviation) {
    const int64_t heads = b->m.heads;
    b->m.query = take(1, 3, b->batch, b->queries, eq);
    if (!(flags & SELF)) b->m.key = take(1, 3, b->batch, b->keys, ek);
    if (flags & CROSS_VALUE) b->m.value = take(1, 3, b->batch, b->keys, ev);
    b->m.w_query = take(deviation, 2, heads * b->size_d, eq, 0);
    b->m.w_key = take(deviation, 2, heads_kv * b->size_d, ek, 0);
    b->m.w_value = take(deviation, 2, heads_kv * b->size_v, ev, 0);
}

static void make_block(block *b, int64_t heads, int64_t heads_kv, int flags) {
    int64_t eq = test_int(1, 20), ek = flags & SELF ? eq : test_int(1, 20),
            ev = flags & CROSS_VALUE ? test_int(1, 20) : ek;
    memset(b, 0, sizeof *b);
    b->batch = test_int(1, 3);
    b->queries = test_int(1, 9);
    b->keys = flags & SELF ? b->queries : test_int(1, 30);
    b->size_d = test_int(1, 9);
    b->size_v = test_int(1, 9);
    b->m.heads = heads;
    b->m.heads_kv = heads_kv == heads && test_int(0, 1) ? 0 : heads_kv;
    take_layers(b, heads_kv, flags, eq, ek, ev, 0.5);
    b->width = flags & WITHOUT_RESULT ? heads * b->size_v : test_int(1, 20);
    if (!(flags & WITHOUT_RESULT)) b->m.w_result = take(0.5, 2, b->width, heads * b->size_v, 0);
    if (flags & WITH_BIASES) {
        b->m.b_query = take(1, 1, heads * b->size_d, 0, 0);
        b->m.b_key = take(1, 1, heads_kv * b->size_d, 0, 0);
        b->m.b_value = take(1, 1, heads_kv * b->size_v, 0, 0);
        if (!(flags & WITHOUT_RESULT)) b->m.b_result = take(1, 1, b->width, 0, 0);
    }
    b->m.out = make_out(test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_GAPS, 3, b->batch, b->queries, b->width, 0);
    b->m.attention = &b->options;
}

static attn_view input_of(const block *b, int which) {
    attn_view key = b->m.key.rank ? b->m.key : b->m.query;
    return which == 0 ? b->m.query : which == 1 ? key : b->m.value.rank ? b->m.value : key;
}

/* ---- in double precision: projections here, the attention between them from ref.h, on floats */
static double *project(const attn_view *x, const attn_view *w, const attn_view *bias) {
    int64_t batch = x->size[0], rows = x->size[1], n = w->size[0];
    double *y = ref_doubles((size_t)(batch * rows * n + 1));
    for (int64_t i = 0; i < batch * rows * n; i++) {
        int64_t c = i % n, r = i / n % rows, b = i / n / rows;
        y[i] = bias->rank ? ref_at(bias, 0, 0, 0, c) : 0;
        for (int64_t e = 0; e < w->size[1]; e++) y[i] += ref_at(x, 0, b, r, e) * ref_at(w, 0, 0, c, e);
    }
    return y;
}

static attn_view as_heads(const double *y, int64_t batch, int64_t rows, int64_t heads, int64_t size) {
    int64_t n = batch * rows * heads * size;
    float *x = (float *)test_guarded((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)y[i];
    return attn_view_bshd(x, batch, rows, heads, size);
}

static void check_block(const block *b) {
    int64_t heads = b->m.heads, heads_kv = b->m.heads_kv ? b->m.heads_kv : heads, sizes[3], counts[3];
    const attn_view *w[3], *bias[3];
    attn_view x[3];
    ref_result r;
    attn_desc d = b->options;
    w[0] = &b->m.w_query, w[1] = &b->m.w_key, w[2] = &b->m.w_value;
    bias[0] = &b->m.b_query, bias[1] = &b->m.b_key, bias[2] = &b->m.b_value;
    sizes[0] = sizes[1] = b->size_d, sizes[2] = b->size_v;
    counts[0] = heads, counts[1] = counts[2] = heads_kv;
    for (int i = 0; i < 3; i++) {
        attn_view in = input_of(b, i);
        double *y = project(&in, w[i], bias[i]);
        x[i] = as_heads(y, b->batch, in.size[1], counts[i], sizes[i]);
        free(y);
    }
    d.q = x[0];
    d.k = x[1];
    d.v = x[2];
    ref_forward(&d, &r);
    attn_view merged = as_heads(r.out, 1, 1, 1, r.b * r.h * r.sq * r.dv), got = attn_view_of(b->m.out),
              weights = attn_view_of(b->options.weights);
    int64_t at[3];
    for (at[0] = 0; at[0] < b->batch; at[0]++)
        for (at[1] = 0; at[1] < b->queries; at[1]++)
            for (at[2] = 0; at[2] < b->width; at[2]++) {
                double want = b->m.b_result.rank ? ref_at(&b->m.b_result, 0, 0, 0, at[2]) : 0, terms = fabs(want);
                for (int64_t e = 0; e < heads * b->size_v; e++) {
                    double v =
                        ((const float *)merged
                             .data)[((at[0] * heads + e / b->size_v) * b->queries + at[1]) * b->size_v + e % b->size_v];
                    double weight = b->m.w_result.rank ? ref_at(&b->m.w_result, 0, 0, at[2], e) : e == at[2];
                    want += weight * v;
                    terms += fabs(weight * v);
                }
                CHECK_CLOSE(ref_at(&got, 0, at[0], at[1], at[2]), want, 3e-5 * (1 + terms));
            }
    for (int64_t i = 0; weights.rank && i < r.b * r.h * r.sq * r.sk; i++)
        CHECK_CLOSE(ref_at(&weights, i / r.sk / r.sq / r.h, i / r.sk / r.sq % r.h, i / r.sk % r.sq, i % r.sk),
                    r.weights[i], 2e-5);
    ref_free(&r);
}

/* ---- from the pieces: attn_bmm, + bias, attn_forward, attn_bmm. The same bits. With ATTN_PRECISION_FAST what lies
   between them is rounded to bf16 where products of bf16 are used and weights and what they multiply are bf16. */
static attn_view project_here(attn_view x, attn_view w, attn_view bias, const attn_desc *options, int rounds) {
    attn_desc o;
    attn_out y = make_out(LAYOUT_PACKED, 3, x.size[0], x.size[1], w.size[0], 0);
    attn_view got = attn_view_of(y);
    float *p = (float *)y.data;
    memset(&o, 0, sizeof o);
    o.isa = options->isa;
    o.precision = options->precision;
    CHECK_STATUS(attn_bmm(x, attn_view_swap(w, 0, 1), y, &o, 0), ATTN_OK);
    for (int64_t i = 0; bias.rank && i < x.size[0] * x.size[1] * w.size[0]; i++)
        p[i] = p[i] + (float)ref_at(&bias, 0, 0, 0, i % w.size[0]);
    return rounds ? retyped(&got, ATTN_BF16, LAYOUT_PACKED) : got;
}
static int rounds_here(const block *b, int i) { /* layer i: before the attention, or 3, after it */
    const attn_view *w[4] = {&b->m.w_query, &b->m.w_key, &b->m.w_value, &b->m.w_result};
    return b->options.precision == ATTN_PRECISION_FAST && pairs_on(b->options.isa) && b->m.heads * b->queries > 8 &&
           w[i]->rank && w[i]->type == ATTN_BF16 && (i == 3 || input_of(b, i).type == ATTN_BF16);
}
static attn_view projection_here(const block *b, int i) {
    const attn_view *w[3] = {&b->m.w_query, &b->m.w_key, &b->m.w_value},
                    *bias[3] = {&b->m.b_query, &b->m.b_key, &b->m.b_value};
    return project_here(input_of(b, i), *w[i], *bias[i], &b->options, rounds_here(b, i));
}
static attn_view heads_here(attn_view x, int64_t heads, int64_t size) { /* [B,S,heads*size] as [B,heads,S,size] */
    attn_view v = attn_view_bshd((const float *)x.data, x.size[0], x.size[1], heads, size);
    v.type = x.type;
    return v;
}

static void check_pieces(const block *b) {
    int64_t heads = b->m.heads, heads_kv = b->m.heads_kv ? b->m.heads_kv : heads;
    attn_out merged = make_out_of(rounds_here(b, 3) ? ATTN_BF16 : ATTN_F32, LAYOUT_PACKED, 3, b->batch, b->queries,
                                  heads * b->size_v, 0),
             want;
    attn_desc d = copy_results(&b->options);
    d.q = heads_here(projection_here(b, 0), heads, b->size_d);
    d.k = heads_here(projection_here(b, 1), heads_kv, b->size_d);
    d.v = heads_here(projection_here(b, 2), heads_kv, b->size_v);
    d.out = attn_out_bshd((float *)merged.data, b->batch, b->queries, heads, b->size_v);
    d.out.type = merged.type;
    poison(&d.weights);
    poison(&d.lse);
    poison(&d.stats);
    run_desc(&d, "the pieces of a block");
    want = merged;
    if (b->m.w_result.rank) {
        attn_view y = project_here(attn_view_of(merged), b->m.w_result, b->m.b_result, &b->options, 0);
        want = attn_out_f32((float *)(uintptr_t)y.data, 3, b->batch, b->queries, b->width, 0);
    }
    check_rounded_once(&b->m.out, &want, "a block and its pieces");
    check_same(&b->options.weights, &d.weights, "weights of a block and of its pieces");
    check_same(&b->options.lse, &d.lse, "lse of a block and of its pieces");
    check_same(&b->options.stats, &d.stats, "stats of a block and of its pieces");
}

static void run_block(block *b) {
    attn_out first = b->m.out;
    for (int n = 0; n < test_isa_count(); n++) {
        attn_error err;
        b->options.isa = (int32_t)test_isa(n);
        poison(&b->m.out);
        if (!CHECKF(attn_mha(&b->m, &err) == ATTN_OK, "refused: %s %s", err.field, err.rule)) return;
        CHECK(gaps_untouched(&b->m.out));
        check_block(b);
        check_pieces(b);
        attn_view v = attn_view_of(b->m.out);
        v = copy_view(&v, LAYOUT_PACKED);
        attn_out copy = attn_out_f32((float *)(uintptr_t)v.data, 3, b->batch, b->queries, b->width, 0);
        if (n == 0) first = copy;
        else check_same(&copy, &first, "a block on two instruction sets");
    }
    test_release();
}

static void ask_weights(block *b) {
    b->options.weights = make_out(LAYOUT_PACKED, 4, b->batch, b->m.heads, b->queries, b->keys);
    b->options.lse = make_out(LAYOUT_PACKED, 3, b->batch, b->m.heads, b->queries, 0);
}

/* ---- the tests */
static void test_shapes(void) {
    static const int64_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}, {6, 3}};
    for (int flags = 0; flags < 16; flags++)
        for (int h = 0; h < 5; h++) {
            block b;
            make_block(&b, heads[h][0], heads[h][1], flags);
            if (h % 2) ask_weights(&b);
            run_block(&b);
        }
}

static void test_stats(void) {
    block b;
    make_block(&b, 4, 2, WITH_BIASES);
    b.options.stats = make_out(LAYOUT_PACKED, 4, b.batch, 4, b.queries, 2);
    run_block(&b);
}

static void test_no_options(void) { /* attention may be NULL */
    block b;
    make_block(&b, 2, 2, WITH_BIASES);
    CHECK_STATUS(attn_mha(&b.m, 0), ATTN_OK);
    attn_view v = attn_view_of(b.m.out);
    v = copy_view(&v, LAYOUT_PACKED);
    attn_out want = attn_out_f32((float *)(uintptr_t)v.data, 3, b.batch, b.queries, b.width, 0);
    poison(&b.m.out);
    b.m.attention = 0;
    CHECK_STATUS(attn_mha(&b.m, 0), ATTN_OK);
    check_same(&b.m.out, &want, "without options");
}

static void set_options(block *b, int i) { /* i: which */
    attn_desc *o = &b->options;
    o->causal = i & 1;
    o->align = i & 2 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
    if (i & 4) o->key_lengths = make_ints(ATTN_I32, 1, b->batch, 0, 0, 0, 0, (int)b->keys);
    if (i & 8) o->mask = make_ints(ATTN_U8, 4, b->batch, 1, b->queries, b->keys, 0, 1);
    if (i & 16) o->alibi = take(0.3, 1, 4, 0, 0);
    if (i % 3 == 0) o->sink = take(1, 1, 4, 0, 0);
    if (i % 5 == 0) o->bias = take(1, 2, b->queries, b->keys, 0);
    if (i % 7 == 0) o->softcap = 2;
    if (i % 4 == 0) o->scale = 0.7f;
    if (i % 6 == 0) o->dropout = 0.4f, o->seed = 11;
}
static void test_options(void) {
    for (int i = 0; i < 40; i++) {
        block b;
        make_block(&b, 4, 2, i % 16);
        ask_weights(&b);
        set_options(&b, i);
        run_block(&b);
    }
}

static void test_scores(void) { /* other scores on projected queries and keys */
    for (int32_t score = 0; score < ATTN_SCORE_GIVEN; score++)
        for (int again = 0; again < 4; again++) {
            block b;
            attn_desc *o = &b.options;
            int64_t hidden = test_int(1, 9);
            make_block(&b, 4, 2, again & 1 ? WITH_BIASES : 0);
            ask_weights(&b);
            o->score = score;
            if (score == ATTN_SCORE_BILINEAR)
                o->bilinear = again & 2 ? take(1, 3, 4, b.size_d, b.size_d) : take(1, 2, b.size_d, b.size_d, 0);
            if (score == ATTN_SCORE_ADDITIVE) {
                o->w_q = again & 2 ? take(1, 3, 4, hidden, b.size_d) : take(1, 2, hidden, b.size_d, 0);
                o->w_k = take(1, 2, hidden, b.size_d, 0);
                o->w_v = again & 2 ? take(1, 2, 4, hidden, 0) : take(1, 1, hidden, 0, 0);
            }
            if (score >= ATTN_SCORE_BOXCAR && score <= ATTN_SCORE_TRIANGULAR)
                o->sigma = 60; /* far from where weights end */
            run_block(&b);
        }
}

static void test_empty(void) {
    float w[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, x[8] = {1, 2, 3, 4, 5, 6, 7, 8},
          bias[4] = {1, 2, 3, 4}, out[8];
    attn_mha_desc m;
    memset(&m, 0, sizeof m);
    m.query = attn_view_f32(x, 3, 1, 2, 4, 0);
    m.key = attn_view_f32(0, 3, 1, 0, 4, 0); /* no keys: empty rows, of which the result is its bias */
    m.w_query = m.w_key = m.w_value = m.w_result = attn_view_f32(w, 2, 4, 4, 0, 0);
    m.b_result = attn_view_f32(bias, 1, 4, 0, 0, 0);
    m.heads = 2;
    m.out = attn_out_f32(out, 3, 1, 2, 4, 0);
    CHECK_STATUS(attn_mha(&m, 0), ATTN_OK);
    for (int i = 0; i < 8; i++) CHECK(out[i] == bias[i % 4]);
    memset(out, 0xFF, sizeof out);
    m.query = m.key = attn_view_f32(0, 3, 0, 2, 4, 0); /* no batch */
    m.out = attn_out_f32(out, 3, 0, 2, 4, 0);
    CHECK_STATUS(attn_mha(&m, 0), ATTN_OK);
    for (int i = 0; i < 8; i++) CHECK(isnan(out[i]));
    m.query = attn_view_f32(0, 3, 1, 0, 4, 0); /* no queries */
    m.key = attn_view_f32(x, 3, 1, 2, 4, 0);
    m.out = attn_out_f32(0, 3, 1, 0, 4, 0);
    CHECK_STATUS(attn_mha(&m, 0), ATTN_OK);
}

/* ---- gradients, in double precision from end to end */
enum { HEAD_RESULTS = 11 };
static const char *const head_names[HEAD_RESULTS] = {"dquery", "dkey",     "dvalue",    "dw_query",
                                                     "dw_key", "dw_value", "dw_result", "db_query",
                                                     "db_key", "db_value", "db_result"};

static attn_out *head_result(attn_mha_grad *g, int n) {
    attn_out *results[HEAD_RESULTS];
    results[0] = &g->dquery, results[1] = &g->dkey, results[2] = &g->dvalue;
    results[3] = &g->dw_query, results[4] = &g->dw_key, results[5] = &g->dw_value, results[6] = &g->dw_result;
    results[7] = &g->db_query, results[8] = &g->db_key, results[9] = &g->db_value, results[10] = &g->db_result;
    return results[n];
}

static attn_view head_owner(const block *b, int n) { /* what result n belongs to */
    const attn_view owners[HEAD_RESULTS] = {b->m.query, b->m.key,     b->m.value,    b->m.w_query,
                                            b->m.w_key, b->m.w_value, b->m.w_result, b->m.b_query,
                                            b->m.b_key, b->m.b_value, b->m.b_result};
    return owners[n];
}

/* Doubles of a sequence of heads, seen as [B,H,S,D]. */
static attn_view double_heads(const double *y, int64_t batch, int64_t rows, int64_t heads, int64_t size) {
    attn_view v = attn_view_bshd(0, batch, rows, heads, size);
    v.data = y;
    v.type = ATTN_F64;
    return v;
}

/* Adds what the gradient `y` (with its error) of x w^T + bias means for x, w and bias; rows of all batches alike. */
static void project_back(const attn_view *x, const attn_view *w, const double *y, const double *error, ref_tensor *dx,
                         ref_tensor *dw, ref_tensor *db) {
    int64_t n = w->size[0];
    for (int64_t row = 0; row < x->size[0] * x->size[1]; row++)
        for (int64_t c = 0; c < n; c++) {
            double g = y[row * n + c], e = error[row * n + c];
            for (int64_t k = 0; k < w->size[1]; k++) {
                double value = ref_at(x, 0, row / x->size[1], row % x->size[1], k), weight = ref_at(w, 0, 0, c, k);
                ref_add(dx, 0, row / x->size[1], row % x->size[1], k, g * weight, e * fabs(weight));
                ref_add(dw, 0, 0, c, k, g * value, e * fabs(value));
            }
            if (db->like.rank) ref_add(db, 0, 0, 0, c, g, e);
        }
}

/* What the projections became where they are rounded: of the gradients nothing else is known. NULL: they are exact. */
static const attn_view *rounded_projections;
/* The reference: `want` for the eleven results, g for what belongs to the attention inside. */
static void reference_heads(const block *b, const attn_mha_grad *up, ref_tensor want[HEAD_RESULTS], ref_grads *g,
                            attn_desc *inner, ref_upstream *inner_up) {
    int64_t heads = b->m.heads, heads_kv = b->m.heads_kv ? b->m.heads_kv : heads, rows = b->batch * b->queries,
            merged = heads * b->size_v;
    const attn_view *w[3] = {&b->m.w_query, &b->m.w_key, &b->m.w_value},
                    *bias[3] = {&b->m.b_query, &b->m.b_key, &b->m.b_value};
    const int64_t sizes[3] = {b->size_d, b->size_d, b->size_v}, counts[3] = {heads, heads_kv, heads_kv};
    double *projected[3], *d_merged = ref_doubles((size_t)(rows * merged)),
                          *terms = ref_doubles((size_t)(rows * merged));
    attn_view x[3];
    for (int n = 0; n < HEAD_RESULTS; n++) ref_make_tensor(&want[n], head_owner(b, n));
    for (int n = 0; n < 3; n++) {
        attn_view in = input_of(b, n);
        projected[n] = project(&in, w[n], bias[n]);
        const attn_view *as = rounded_projections ? &rounded_projections[n] : 0;
        for (int64_t at = 0, c = w[n]->size[0]; as && at < in.size[0] * in.size[1] * c; at++)
            projected[n][at] = ref_at(as, 0, at / c / in.size[1], at / c % in.size[1], at % c);
        x[n] = double_heads(projected[n], b->batch, in.size[1], counts[n], sizes[n]);
    }
    for (int64_t at = 0; at < rows * merged; at++) { /* of the heads side by side */
        int64_t row = at / merged, e = at % merged;
        d_merged[at] = terms[at] = 0;
        for (int64_t c = 0; c < b->width; c++) {
            double d_out = ref_at(&up->d_out, 0, row / b->queries, row % b->queries, c),
                   weight = b->m.w_result.rank ? ref_at(&b->m.w_result, 0, 0, c, e) : c == e;
            d_merged[at] += d_out * weight;
            terms[at] += fabs(d_out * weight);
        }
    }
    *inner = b->options;
    inner->q = x[0];
    inner->k = x[1];
    inner->v = x[2];
    memset(inner_up, 0, sizeof *inner_up);
    inner_up->out = double_heads(d_merged, b->batch, b->queries, heads, b->size_v);
    if (up->attention) {
        inner_up->weights = up->attention->d_weights;
        inner_up->lse = up->attention->d_lse;
    }
    ref_backward(inner, inner_up, g);
    for (int n = 0; n < 3; n++) { /* packed as [B,H,S,D]; a block has rows of all heads */
        attn_view in = input_of(b, n);
        int64_t width = counts[n] * sizes[n], of_in = in.size[0] * in.size[1];
        double *y = ref_doubles((size_t)(of_in * width)), *error = ref_doubles((size_t)(of_in * width));
        int to = n;
        while (to > 0 && !head_owner(b, to).rank) to--; /* absent: it is the one before */
        for (int64_t at = 0; at < of_in * width; at++) {
            int64_t row = at / width, c = at % width;
            int64_t from = ref_offset(&g->g[n].like, row / in.size[1], c / sizes[n], row % in.size[1], c % sizes[n]);
            y[at] = g->g[n].x[from];
            error[at] = g->g[n].error[from];
        }
        project_back(&in, w[n], y, error, &want[to], &want[3 + n], &want[7 + n]);
        free(y);
        free(error);
        free(projected[n]);
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < b->width; c++) {
            double d_out = ref_at(&up->d_out, 0, row / b->queries, row % b->queries, c);
            if (b->m.b_result.rank) ref_add(&want[10], 0, 0, 0, c, d_out, fabs(d_out));
            for (int64_t e = 0; b->m.w_result.rank && e < merged; e++) {
                int64_t at = ((row / b->queries * heads + e / b->size_v) * b->queries + row % b->queries);
                double out = g->forward.out[at * b->size_v + e % b->size_v],
                       off = g->forward.v_max[at] * (1 + g->forward.s_max[at]);
                ref_add(&want[6], 0, 0, c, e, d_out * out, fabs(d_out) * (fabs(out) + off));
            }
        }
    free(d_merged);
    free(terms);
}

/* Of float rounding in the projections: the scores' terms are sums themselves. */
static double heads_bound(double terms, double sum, double start) {
    (void)sum;
    return 1e-6 * terms + 1e-6 * fabs(start) + 1e-30;
}
static double heads_worst;

/* The gradients of one block: of all it has (`set`), some added to what is there (`accumulate`), with those of the
   attention inside when `inside`. */
static void check_heads(block *b, unsigned set, unsigned accumulate, int inside, const char *what) {
    attn_mha_grad g;
    call c;
    ref_tensor want[HEAD_RESULTS];
    ref_grads inner;
    ref_upstream inner_up;
    attn_desc inner_desc;
    attn_view start[HEAD_RESULTS];
    attn_out first[HEAD_RESULTS];
    call first_inside;
    layout how = test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_GAPS;
    memset(&g, 0, sizeof g);
    memset(&c, 0, sizeof c);
    memset(start, 0, sizeof start);
    g.d_out = take(1, 3, b->batch, b->queries, b->width);
    g.accumulate = accumulate;
    int any = 0;
    for (int n = 0; n < HEAD_RESULTS; n++) {
        attn_view like = head_owner(b, n);
        if (!(set >> n & 1) || !like.rank) continue;
        any = 1;
        *head_result(&g, n) = make_out(how, like.rank, like.size[0], like.size[1], like.size[2], 0);
        if (accumulate >> n & 1)
            start[n] = make_filled(LAYOUT_PACKED, 1, like.rank, like.size[0], like.size[1], like.size[2], 0);
    }
    if (!any) return;
    if (inside) {
        c.d = b->options;
        c.g.d_weights = make_filled(LAYOUT_MIXED, 1, 4, b->batch, b->m.heads, b->queries, b->keys);
        c.g.d_lse = make_filled(LAYOUT_PACKED, 1, 3, b->batch, b->m.heads, b->queries, 0);
        ask_grads(&c, ~7u, accumulate ? ATTN_GRAD_BIAS | ATTN_GRAD_SINK : 0, how);
        memset(&c.g.dq, 0, sizeof c.g.dq), memset(&c.g.dk, 0, sizeof c.g.dk), memset(&c.g.dv, 0, sizeof c.g.dv);
        g.attention = &c.g;
    }
    first_inside = c;
    reference_heads(b, &g, want, &inner, &inner_desc, &inner_up);
    for (int n = 0; n < test_isa_count(); n++) {
        attn_error err;
        b->options.isa = (int32_t)test_isa(n);
        for (int r = 0; r < HEAD_RESULTS; r++) put_start(head_result(&g, r), &start[r]);
        if (inside) prepare_grads(&c);
        check_saved(&b->m, &g);
        if (!CHECKF(attn_mha_backward(&b->m, &g, &err) == ATTN_OK, "%s: refused: %s %s", what, err.field, err.rule))
            break;
        for (int r = 0; r < HEAD_RESULTS; r++) {
            heads_worst =
                fmax(heads_worst, check_sums(head_result(&g, r), &want[r], &start[r], heads_bound, head_names[r]));
            if (n == 0) first[r] = copy_out(head_result(&g, r));
            else check_same(&first[r], head_result(&g, r), head_names[r]);
        }
        if (!inside) continue;
        for (int r = GRAD_GIVEN; r < GRAD_COUNT; r++)
            heads_worst = fmax(heads_worst,
                               check_sums(grad_of(&c.g, r), &inner.g[r], &c.start[r], heads_bound, ref_grad_names[r]));
        if (n == 0) first_inside = copy_grads(&c);
        else same_grads(&first_inside, &c, what);
    }
    for (int n = 0; n < HEAD_RESULTS; n++) {
        free(want[n].x);
        free(want[n].error);
    }
    ref_free_grads(&inner);
}

static void test_gradients(void) {
    static const int64_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}, {6, 3}};
    heads_worst = 0;
    for (int flags = 0; flags < 16; flags++)
        for (int h = 0; h < 5; h++) {
            block b;
            make_block(&b, heads[h][0], heads[h][1], flags);
            check_heads(&b, h % 2 ? (unsigned)test_bits() : ~0u,
                        h % 3 ? 0
                        : h   ? 2047
                              : (unsigned)test_int(0, 2047),
                        0, "a block of heads");
            test_release();
        }
    if (test_verbose()) printf("    largest error %.3f of the bound\n", heads_worst);
}

static void test_gradients_of_options(void) {
    heads_worst = 0;
    for (int i = 0; i < 60; i++) {
        block b;
        attn_desc *o = &b.options;
        make_block(&b, 4, 2, i % 16);
        set_options(&b, i);
        if (i % 11 == 0) o->score = ATTN_SCORE_COSINE;
        if (i % 11 == 1) o->score = ATTN_SCORE_BILINEAR, o->bilinear = take(1, 2, b.size_d, b.size_d, 0);
        if (i % 11 == 2) {
            o->score = ATTN_SCORE_ADDITIVE;
            o->w_q = o->w_k = take(1, 2, 5, b.size_d, 0);
            o->w_v = take(1, 1, 5, 0, 0);
        }
        if (i % 11 == 3) o->score = ATTN_SCORE_GAUSSIAN, o->scale = 0, o->sigma = 2;
        check_heads(&b, ~0u, i % 2 ? 0 : 2047, i % 4 != 3, "a block of heads with options");
        test_release();
    }
    if (test_verbose()) printf("    largest error %.3f of the bound\n", heads_worst);
}

/* NaN and infinity in the values' input reach their column of dw_value, and no other, where a query attends to the
   token; where none does they reach nothing. */
static void test_gradients_special(void) {
    for (int i = 0; i < 24; i++) {
        const int n = i % test_isa_count(), attended = i / 3 % 2;
        block b;
        attn_mha_grad g;
        attn_error err;
        make_block(&b, 4, 2, CROSS_VALUE | i % 4);
        const int64_t length = (b.keys + 1) / 2, columns = b.m.value.size[2], rows = b.m.w_value.size[0];
        const int64_t token = attended ? length - 1 : b.keys - 1, column = test_int(0, (int)columns - 1);
        if (!attended && token < length) continue;
        b.options.isa = (int32_t)test_isa(n);
        b.options.key_lengths = make_ints(ATTN_I32, 1, b.batch, 0, 0, 0, (int)length, (int)length);
        memset(&g, 0, sizeof g);
        g.d_out = take(1, 3, b.batch, b.queries, b.width);
        g.dw_value = make_out(LAYOUT_PACKED, 2, rows, columns, 0, 0);
        CHECK_STATUS(attn_mha_backward(&b.m, &g, &err), ATTN_OK);
        attn_out clean = copy_out(&g.dw_value);
        put_at(&b.m.value, 0, b.batch - 1, token, column, i % 2 ? NAN : INFINITY);
        poison(&g.dw_value);
        CHECK_STATUS(attn_mha_backward(&b.m, &g, &err), ATTN_OK);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++) {
                const float got = ((const float *)g.dw_value.data)[r * columns + c];
                const float want = ((const float *)clean.data)[r * columns + c];
                const int spoilt = attended && c == column;
                CHECKF(spoilt ? !isfinite(got) : !memcmp(&got, &want, sizeof got),
                       "dw_value[%ld,%ld] is %g, without the number in column %ld of token %ld it is %g", (long)r,
                       (long)c, (double)got, (long)column, (long)token, (double)want);
            }
        test_release();
    }
}

/* ---- ATTN_PRECISION_FAST: of arrays of bf16, or some of them */
enum { FAST_TYPES = 7 };
static attn_view *typed_view(block *b, int n) {
    attn_view *const views[FAST_TYPES] = {&b->m.query, &b->m.key,     &b->m.value,   &b->m.w_query,
                                          &b->m.w_key, &b->m.w_value, &b->m.w_result};
    return views[n];
}
/* bf16: bits, which of them are. Sizes with which products of bf16 are made, and smaller ones. */
static void make_fast_block(block *b, int64_t heads, int64_t heads_kv, int flags, int64_t queries, int bf16) {
    static const int64_t inputs[] = {16, 32, 40, 64, 70}, sizes[] = {7, 32, 40}, widths[] = {20, 64, 70};
    const int64_t eq = inputs[test_int(0, 4)], ek = flags & SELF ? eq : inputs[test_int(0, 4)],
                  ev = flags & CROSS_VALUE ? inputs[test_int(0, 4)] : ek;
    memset(b, 0, sizeof *b);
    b->batch = test_int(1, 2);
    b->queries = queries;
    b->keys = flags & SELF ? queries : test_int(1, 40);
    b->size_d = sizes[test_int(0, 2)];
    b->size_v = sizes[test_int(0, 2)];
    b->m.heads = heads;
    b->m.heads_kv = heads_kv;
    take_layers(b, heads_kv, flags, eq, ek, ev, 0.1);
    b->width = flags & WITHOUT_RESULT ? heads * b->size_v : widths[test_int(0, 2)];
    if (!(flags & WITHOUT_RESULT)) b->m.w_result = take(0.1, 2, b->width, heads * b->size_v, 0);
    else b->m.w_result.type = ATTN_BF16; /* absent, whatever its type */
    if (flags & WITH_BIASES) {
        b->m.b_query = take(1, 1, heads * b->size_d, 0, 0);
        b->m.b_value = take(1, 1, heads_kv * b->size_v, 0, 0);
        if (!(flags & WITHOUT_RESULT)) b->m.b_result = take(1, 1, b->width, 0, 0);
    }
    for (int n = 0; n < FAST_TYPES; n++)
        if (typed_view(b, n)->rank)
            *typed_view(b, n) = retyped(typed_view(b, n),
                                        bf16 >> n & 1 ? ATTN_BF16
                                        : n % 3       ? ATTN_F32
                                                      : ATTN_F16,
                                        test_int(0, 2) ? LAYOUT_PACKED : LAYOUT_MIXED);
    /* entries that lie apart are products of their own, as those of the pieces are not */
    b->m.out =
        make_out_of(test_int(0, 3) ? ATTN_F32 : ATTN_BF16, b->batch > 1 || test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_GAPS,
                    3, b->batch, b->queries, b->width, 0);
    b->m.attention = &b->options;
    b->options.precision = ATTN_PRECISION_FAST;
}
static const int fast_heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}};
static void draw_fast_block(block *b, int n) {
    const int64_t heads = fast_heads[n % 4][0], few = 8 / heads;
    make_fast_block(b, heads, fast_heads[n % 4][1], test_int(0, 15),
                    n % 5 == 0 ? test_int(1, (int)few) : test_int((int)few + 1, 30), n % 3 ? test_int(0, 127) : 127);
}

static int rounds_any(const block *b) { /* is something between the layers bf16? */
    for (int i = 0; i < 4; i++)
        if (rounds_here(b, i)) return 1;
    return 0;
}
static void check_saved_size(const block *b) {
    attn_mha_desc m = b->m;
    attn_desc exact = b->options;
    size_t fast = 0, floats = 0;
    if (attn_mha_saved_size(&m, &fast, 0) == ATTN_ERR_PLACE) return;
    exact.precision = ATTN_PRECISION_F32;
    m.attention = &exact;
    CHECK_STATUS(attn_mha_saved_size(&m, &floats, 0), ATTN_OK);
    CHECKF(fast == floats, "saved: %lu bytes, of floats %lu", (unsigned long)fast, (unsigned long)floats);
}

/* There other types lie between the layers: tests/cuda/emulated.c has tests of it. */
static int on_device(void) {
    block b;
    size_t bytes;
    make_block(&b, 1, 1, 0);
    int is = attn_mha_saved_size(&b.m, &bytes, 0) == ATTN_ERR_PLACE;
    test_release();
    if (is) test_skip("a device has other products between the layers");
    return is;
}

static void test_fast(void) {
    int rounded = 0;
    if (on_device()) return;
    for (int n = 0; n < 60; n++) {
        block b;
        draw_fast_block(&b, n);
        if (n % 2) ask_weights(&b);
        b.options.causal = n % 3 == 0;
        b.options.align = ATTN_ALIGN_TOP_LEFT;
        for (int isa = 0; isa < test_isa_count(); isa++) {
            attn_error err;
            b.options.isa = (int32_t)test_isa(isa);
            poison(&b.m.out);
            if (!CHECKF(attn_mha(&b.m, &err) == ATTN_OK, "refused: %s %s", err.field, err.rule)) break;
            check_pieces(&b);
            check_saved_size(&b);
            rounded += rounds_any(&b);
        }
        test_release();
    }
    for (int isa = 0; isa < test_isa_count(); isa++)
        if (pairs_on((int32_t)test_isa(isa))) CHECKF(rounded > 30, "%d blocks were rounded", rounded);
    test_release();
}

/* Entries one after the other are one array to the layers. */
static void test_fast_packed(void) {
    if (on_device()) return;
    for (int n = 0; n < 16; n++) {
        block b;
        make_fast_block(&b, fast_heads[n % 4][0], fast_heads[n % 4][1], SELF | n % 4, n % 2 ? 30 : 6, 127);
        const int64_t third = b.queries / 3;
        b.batch = 1, b.m.query.size[0] = b.m.out.size[0] = 1;
        b.options.query_starts = b.options.key_starts = make_ints(ATTN_I32, 1, 3, 0, 0, 0, 0, 0);
        b.options.query_lengths = b.options.key_lengths = make_ints(ATTN_I32, 1, 3, 0, 0, 0, (int)third, (int)third);
        for (int e = 0; e < 3; e++) put_at(&b.options.query_starts, 0, 0, 0, e, (double)(e * third));
        for (int isa = 0; isa < test_isa_count(); isa++) {
            attn_error err;
            b.options.isa = (int32_t)test_isa(isa);
            poison(&b.m.out);
            if (CHECKF(attn_mha(&b.m, &err) == ATTN_OK, "refused: %s %s", err.field, err.rule)) check_pieces(&b);
        }
        test_release();
    }
}

/* Gradients: with `saved` the same, and those of the projections as they were rounded. P and dS may be rounded, too,
   and out is. */
/* Of longer sums than those above; and what w_result leaves of d_out, which is near 0 where its terms cancel. */
static double long_bound(double terms, double sum, double start) { return heads_bound(4 * terms, sum, start) + 2e-6; }
static double fast_bound(double terms, double sum, double start) {
    return long_bound(terms, sum, start) + (ldexp(1, -7) + ldexp(1, -8)) * terms;
}
static void check_fast_heads(block *b, int n) {
    attn_mha_grad g;
    ref_tensor want[HEAD_RESULTS];
    ref_grads inner;
    ref_upstream inner_up;
    attn_desc inner_desc;
    attn_view start[HEAD_RESULTS], projections[3];
    memset(&g, 0, sizeof g);
    memset(start, 0, sizeof start);
    g.d_out = take(1, 3, b->batch, b->queries, b->width);
    if (n % 2) g.d_out = retyped(&g.d_out, ATTN_BF16, LAYOUT_PACKED);
    for (int r = 0; r < HEAD_RESULTS; r++) {
        attn_view like = head_owner(b, r);
        if (like.rank)
            *head_result(&g, r) = make_out(LAYOUT_PACKED, like.rank, like.size[0], like.size[1], like.size[2], 0);
    }
    for (int i = 0; i < 3; i++) projections[i] = projection_here(b, i);
    rounded_projections = projections;
    reference_heads(b, &g, want, &inner, &inner_desc, &inner_up);
    rounded_projections = 0;
    check_saved(&b->m, &g);
    for (int r = 0; r < HEAD_RESULTS; r++) put_start(head_result(&g, r), &start[r]);
    if (CHECK_STATUS(attn_mha_backward(&b->m, &g, 0), ATTN_OK))
        for (int r = 0; r < HEAD_RESULTS; r++)
            heads_worst =
                fmax(heads_worst, check_sums(head_result(&g, r), &want[r], &start[r],
                                             pairs_on(b->options.isa) ? fast_bound : long_bound, head_names[r]));
    for (int r = 0; r < HEAD_RESULTS; r++) {
        free(want[r].x);
        free(want[r].error);
    }
    ref_free_grads(&inner);
}
static void test_fast_gradients(void) {
    heads_worst = 0;
    if (on_device()) return;
    for (int n = 0; n < 30; n++) {
        block b;
        draw_fast_block(&b, n);
        b.options.isa = (int32_t)test_isa(n % 5 ? test_isa_count() - 1 : n / 5 % test_isa_count());
        b.options.causal = n % 3 == 0;
        b.options.align = ATTN_ALIGN_TOP_LEFT;
        check_fast_heads(&b, n);
        test_release();
    }
    if (test_verbose()) printf("    largest error %.3f of the bound\n", heads_worst);
}

/* ---- what attn_mha leaves for attn_mha_backward (with the calls above: check_saved) */
typedef struct kept {
    block b;
    attn_mha_grad g;
    attn_out start; /* what the result of a refused call must still hold */
} kept;
static int make_kept(kept *k, int flags) { /* not on a device */
    memset(k, 0, sizeof *k);
    make_block(&k->b, 4, 2, flags);
    k->g.d_out = take(1, 3, k->b.batch, k->b.queries, k->b.width);
    k->g.dw_query = make_out(LAYOUT_PACKED, 2, k->b.m.w_query.size[0], k->b.m.w_query.size[1], 0, 0);
    poison(&k->g.dw_query);
    k->start = copy_out(&k->g.dw_query);
    k->b.m.attention = &k->b.options;
    if (give_saved(&k->b.m)) return 1;
    test_skip("a device takes no saved");
    test_release();
    return 0;
}
static void refused_saved(kept *k, const char *what) {
    attn_error err;
    const attn_status got = attn_mha_backward(&k->b.m, &k->g, &err);
    CHECKF(got == ATTN_ERR_OPTION && !strcmp(err.field, "saved"), "%s: \"%s\", field %s", what, attn_status_string(got),
           err.field);
    check_same(&k->g.dw_query, &k->start, "a result of a refused call");
}

static void change_block(block *b, int n) { /* in one thing, which what is saved depends on or may depend on */
    attn_desc *o = &b->options;
    attn_mha_desc *m = &b->m;
    attn_view value = m->w_value;
    switch (n) {
    case 0: o->score = ATTN_SCORE_DOT; break;
    case 1: o->scale = 0.5f; break;
    case 2: o->scale_set = 1; break;
    case 3: o->softcap = 2; break;
    case 4: o->causal = 1; break;
    case 5: o->align = ATTN_ALIGN_TOP_LEFT; break;
    case 6: o->empty = ATTN_EMPTY_NAN; break;
    case 7: o->window = 1; break;
    case 8: o->window_left = 1; break;
    case 9: o->window_right = 1; break;
    case 10: o->dropout = 0.25f; break;
    case 11: o->seed = 1; break;
    case 12: o->dropout_origin[3] = 1; break;
    case 13: o->precision = ATTN_PRECISION_FAST; break;
    case 14: o->mask = make_ints(ATTN_U8, 1, b->keys, 0, 0, 0, 0, 1); break;
    case 15: o->bias = take(1, 2, 1, b->keys, 0); break; /* it had one axis */
    case 16: m->b_value = take(1, 1, 2 * b->size_v, 0, 0); break;
    case 17: m->w_value = retyped(&value, ATTN_BF16, LAYOUT_PACKED); break;
    case 18: m->heads = 2, m->heads_kv = 1; break;
    case 19: m->heads_kv = 1, m->w_key.size[0] /= 2, m->w_value.size[0] /= 2; break;
    case 20: m->query.size[0]--, m->out.size[0]--, m->key.size[0]--; break;
    case 21: m->query.size[1]--, m->out.size[1]--; break;
    case 22: m->key.size[1]--; break;
    default: m->key.size[2]--, m->w_key.size[1]--, m->w_value.size[1]--; break;
    }
}
enum { CHANGES = 24 };

static void test_saved_of_others(void) { /* memory that was filled for another call, or not at all */
    for (int n = 0; n < CHANGES; n++) {
        kept k;
        char what[40];
        if (!make_kept(&k, 0)) return;
        k.b.options.window = n == 8 || n == 9;
        k.b.options.align = ATTN_ALIGN_BOTTOM_RIGHT;
        if (n == 15) k.b.options.bias = take(1, 1, k.b.keys, 0, 0);
        refused_saved(&k, "not filled");
        CHECK_STATUS(attn_mha(&k.b.m, 0), ATTN_OK);
        change_block(&k.b, n);
        k.g.d_out.size[0] = k.b.m.out.size[0], k.g.d_out.size[1] = k.b.m.out.size[1];
        snprintf(what, sizeof what, "filled before change %d", n);
        refused_saved(&k, what);
        test_release();
    }
}

/* One entry by starts and lengths is packed, but where weights are asked for: then rows outside it are saved, too. */
static void test_saved_of_one_entry(void) {
    for (int drops = 0; drops < 2; drops++) {
        kept k;
        if (!make_kept(&k, SELF)) return;
        k.b.m.query.size[0] = k.b.m.out.size[0] = k.g.d_out.size[0] = k.b.batch = 1;
        k.b.options.query_starts = k.b.options.key_starts = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 0, 0);
        k.b.options.query_lengths = k.b.options.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 1, 1);
        ask_weights(&k.b);
        CHECK_STATUS(attn_mha(&k.b.m, 0), ATTN_OK);
        if (drops) memset(&k.b.options.weights, 0, sizeof k.b.options.weights), refused_saved(&k, "filled unpacked");
        else CHECK_STATUS(attn_mha_backward(&k.b.m, &k.g, 0), ATTN_OK);
        test_release();
    }
}

static void test_saved_large(void) { /* several chunks of keys, blocks of queries and tasks */
    for (int n = 0; n < test_isa_count(); n++)
        for (int result = 0; result < 2; result++) {
            attn_mha_desc m;
            attn_mha_grad g;
            attn_desc options;
            memset(&m, 0, sizeof m), memset(&g, 0, sizeof g), memset(&options, 0, sizeof options);
            m.query = take(1, 3, 1, 290, 13), m.key = take(1, 3, 1, 530, 13);
            m.w_query = take(0.3, 2, 64, 13, 0), m.w_key = take(0.3, 2, 32, 13, 0), m.w_value = take(0.3, 2, 18, 13, 0);
            if (result) m.w_result = take(0.3, 2, 21, 36, 0);
            m.out = make_out(LAYOUT_PACKED, 3, 1, 290, result ? 21 : 36, 0);
            m.heads = 4, m.heads_kv = 2, m.attention = &options;
            options.isa = (int32_t)test_isa(n), options.causal = 1, options.align = ATTN_ALIGN_BOTTOM_RIGHT;
            g.d_out = take(1, 3, 1, 290, m.out.size[2]);
            g.dquery = make_out(LAYOUT_PACKED, 3, 1, 290, 13, 0), g.dkey = make_out(LAYOUT_PACKED, 3, 1, 530, 13, 0);
            g.dw_value = make_out(LAYOUT_PACKED, 2, 18, 13, 0, 0);
            check_saved(&m, &g);
            test_release();
        }
}

static void *no_memory(void *user, size_t bytes) {
    (void)user, (void)bytes;
    return 0;
}
static void no_release(void *user, void *memory) { (void)user, (void)memory; }
static void test_saved_after_failure(void) { /* what a call that fails leaves is nothing */
    for (int how = 0; how < 2; how++) {
        kept k;
        if (!make_kept(&k, 0)) return;
        CHECK_STATUS(attn_mha(&k.b.m, 0), ATTN_OK);
        CHECK_STATUS(attn_mha_backward(&k.b.m, &k.g, 0), ATTN_OK);
        k.start = copy_out(&k.g.dw_query);
        k.b.options.workspace = how ? &how : 0;
        k.b.options.allocator.allocate = how ? 0 : no_memory;
        k.b.options.allocator.release = how ? 0 : no_release;
        CHECK_STATUS(attn_mha(&k.b.m, 0), how ? ATTN_ERR_WORKSPACE : ATTN_ERR_ALLOC);
        k.b.options.workspace = 0;
        memset(&k.b.options.allocator, 0, sizeof k.b.options.allocator);
        refused_saved(&k, "after a failure");
        test_release();
    }
}

/* Gradients come from it and are not made anew: with NaN there they are others, and less memory is needed. */
static void test_saved_is_read(void) {
    for (int i = 0; i < 8; i++) {
        kept k;
        size_t bytes[2][2];
        if (!make_kept(&k, i / 2)) return;
        for (int with = 0; with < 2; with++) {
            attn_mha_desc m = k.b.m;
            if (!with) m.saved = 0;
            CHECK_STATUS(attn_mha_workspace_size(&m, &bytes[with][0], 0), ATTN_OK);
            CHECK_STATUS(attn_mha_backward_workspace_size(&m, &k.g, &bytes[with][1], 0), ATTN_OK);
        }
        CHECK(bytes[1][0] < bytes[0][0] && bytes[1][1] < bytes[0][1]);
        CHECK_STATUS(attn_mha(&k.b.m, 0), ATTN_OK);
        /* arrays begin at multiples of 64 bytes: first the mark, then q; the stats come last */
        unsigned char *saved = (unsigned char *)k.b.m.saved, *q = saved + (64 - (uintptr_t)saved % 64) % 64 + 64,
                      *stats = q - 128 + (k.b.m.saved_bytes - (size_t)(k.b.batch * 4 * k.b.queries * 8 + 63) / 64 * 64);
        memset(i % 2 ? stats : q, 0xFF, i % 2 ? 8 : 4);
        k.b.options.lse = make_out(LAYOUT_PACKED, 3, k.b.batch, 4, k.b.queries, 0); /* results may be others now */
        k.b.m.out = make_out_of(ATTN_BF16, LAYOUT_PACKED, 3, k.b.batch, k.b.queries, k.b.width, 0);
        CHECK_STATUS(attn_mha_backward(&k.b.m, &k.g, 0), ATTN_OK);
        attn_view got = attn_view_of(k.g.dw_query);
        int nans = 0;
        for (int64_t n = 0; n < got.size[0] * got.size[1]; n++)
            nans += isnan(ref_at(&got, 0, 0, n / got.size[1], n % got.size[1]));
        CHECKF(nans > 0, "gradients do not come from the saved %s", i % 2 ? "stats" : "q");
        test_release();
    }
}

static void test_saved_without_result(void) { /* no element in out, no queries or no keys: gradients are 0 */
    for (int how = 0; how < 3; how++) {
        kept k;
        if (!make_kept(&k, 0)) return;
        if (how == 0) k.b.m.w_result.size[0] = k.b.m.out.size[2] = k.g.d_out.size[2] = 0;
        if (how == 1) k.b.m.query.size[1] = k.b.m.out.size[1] = k.g.d_out.size[1] = 0;
        if (how == 2) k.b.m.key.size[1] = 0;
        CHECK_STATUS(attn_mha(&k.b.m, 0), ATTN_OK);
        CHECK_STATUS(attn_mha_backward(&k.b.m, &k.g, 0), ATTN_OK);
        attn_view got = attn_view_of(k.g.dw_query);
        for (int64_t i = 0; i < got.size[0] * got.size[1]; i++)
            CHECK(ref_at(&got, 0, 0, i / got.size[1], i % got.size[1]) == 0);
        test_release();
    }
}

/* What lies between the layers are floats in both calls: of 16 bits are results and gradients that one of them has. */
static void test_saved_fast_floats(void) {
    for (int n = 0; n < 12; n++) {
        kept k;
        if (!make_kept(&k, 0)) return;
        k.b.options.precision = ATTN_PRECISION_FAST;
        if (n % 3 == 0)
            k.b.options.weights = make_out_of(ATTN_F16, LAYOUT_PACKED, 4, k.b.batch, 4, k.b.queries, k.b.keys);
        if (n % 3 == 1) k.b.m.out = make_out_of(ATTN_BF16, LAYOUT_PACKED, 3, k.b.batch, k.b.queries, k.b.width, 0);
        if (n % 3 == 2) k.g.d_out = retyped(&k.g.d_out, ATTN_BF16, LAYOUT_PACKED);
        CHECK_STATUS(attn_mha(&k.b.m, 0), ATTN_OK);
        memset(&k.b.options.weights, 0, sizeof k.b.options.weights);
        k.b.m.out = make_out(LAYOUT_PACKED, 3, k.b.batch, k.b.queries, k.b.width, 0);
        CHECK_STATUS(attn_mha_backward(&k.b.m, &k.g, 0), ATTN_OK);
        test_release();
    }
}

/* What was saved before AMX was asked for is floats, and after it would be bf16. Last, for it stays so. */
static void test_asked_later(void) {
    kept k;
    memset(&k, 0, sizeof k);
    make_fast_block(&k.b, 2, 2, 0, 9, 127);
    k.g.d_out = take(1, 3, k.b.batch, k.b.queries, k.b.width);
    k.g.dw_query = make_out(LAYOUT_PACKED, 2, k.b.m.w_query.size[0], k.b.m.w_query.size[1], 0, 0);
    poison(&k.g.dw_query);
    k.start = copy_out(&k.g.dw_query);
    k.b.m.attention = &k.b.options;
    k.b.options.isa = test_isa(test_isa_count() - 1);
    if (!give_saved(&k.b.m)) return;
    CHECK_STATUS(attn_mha(&k.b.m, 0), ATTN_OK);
    const int before = pairs_on(k.b.options.isa), there = attn_enable_amx(0) == ATTN_OK;
    CHECK(there || pairs_on(k.b.options.isa) == before);
    if (getenv("EMULATED_AMX")) CHECK(before != PAIRS_BY_VECTORS); /* floats are faster where there is AMX */
    if (!before == !pairs_on(k.b.options.isa)) CHECK_STATUS(attn_mha_backward(&k.b.m, &k.g, 0), ATTN_OK);
    else refused_saved(&k, "filled before AMX was asked for");
    test_release();
}

const test_case suite_mha[] = {{"mha.shapes", test_shapes},
                               {"mha.no_options", test_no_options},
                               {"mha.options", test_options},
                               {"mha.scores", test_scores},
                               {"mha.empty", test_empty},
                               {"mha.gradients", test_gradients},
                               {"mha.gradients_of_options", test_gradients_of_options},
                               {"mha.gradients_special", test_gradients_special},
                               {"mha.fast", test_fast},
                               {"mha.fast_packed", test_fast_packed},
                               {"mha.fast_gradients", test_fast_gradients},
                               {"mha.stats", test_stats},
                               {"mha.saved_of_others", test_saved_of_others},
                               {"mha.saved_of_one_entry", test_saved_of_one_entry},
                               {"mha.saved_large", test_saved_large},
                               {"mha.saved_after_failure", test_saved_after_failure},
                               {"mha.saved_is_read", test_saved_is_read},
                               {"mha.saved_without_result", test_saved_without_result},
                               {"mha.saved_fast_floats", test_saved_fast_floats},
                               {"mha.asked_later", test_asked_later},
                               {0, 0}};
