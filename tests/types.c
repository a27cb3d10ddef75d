/* types.c - elements of 16 and 8 bits. A call whose arrays are of these types gives the bits of the same call with
   floats of the same values, each result rounded once: that call is held against the reference. Conversions one by one,
   over all numbers of 16 bits. */
#include "descriptors.h"
#include "saved.h"

static const int32_t float_types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
static int32_t draw_type(void) { return float_types[test_int(0, 2)]; }

/* ---- the same call with other types */

static layout draw_layout(void) { return (layout)test_int(0, LAYOUT_COUNT - 1); }
static layout draw_shared_nothing(void) { /* each element a place of its own, for what differs along the batch */
    layout how = draw_layout();
    return how == LAYOUT_BROADCAST ? LAYOUT_PACKED : how;
}

static attn_view *const *float_inputs(attn_desc *d, int *count) {
    static attn_view *inputs[12];
    attn_view *const all[] = {&d->q,   &d->k,   &d->v,   &d->given_scores, &d->sigma_per_head, &d->bilinear,
                              &d->w_v, &d->w_q, &d->w_k, &d->hidden_bias,  &d->bias,           &d->alibi};
    memcpy(inputs, all, sizeof all);
    *count = 12;
    return inputs;
}

/* The call `d` with arrays of drawn types; d gets the values that these have. codes: keys and values may be codes. */
static attn_desc typed_call(attn_desc *d, int codes) {
    attn_desc typed = *d;
    int count;
    attn_view *const *inputs = float_inputs(d, &count), *from[12];
    memcpy(from, inputs, sizeof from);
    inputs = float_inputs(&typed, &count);
    for (int n = 0; n < count; n++) {
        int code = codes && (n == 1 || n == 2) && from[n]->rank && test_int(0, 2) == 0;
        if (code) *inputs[n] = coded(from[n], n == 1 ? &typed.k_scale : &typed.v_scale, draw_shared_nothing());
        else *inputs[n] = retyped(from[n], draw_type(), draw_shared_nothing());
    }
    typed.sink = retyped(&d->sink, draw_type(), LAYOUT_PACKED);
    for (int n = 0; n < RESULT_COUNT; n++) {
        attn_out *o = result_of(&typed, n);
        if (!o->rank) continue;
        *o = make_out_of(n == 1 || n == 6 ? ATTN_F32 : draw_type(), draw_layout(), o->rank, o->size[0], o->size[1],
                         o->size[2], o->size[3]);
    }
    return typed;
}

static void check_typed(attn_desc *d, int case_of) {
    char what[60];
    ref_result r;
    attn_desc typed = typed_call(d, 1);
    int32_t workers = test_int(1, 3);
    ref_forward(d, &r);
    check_on(d, &r, ATTN_ISA_AUTO, "with floats");
    ref_free(&r);
    for (int n = 0; n < test_isa_count(); n++) {
        typed.isa = (int32_t)test_isa(n);
        snprintf(what, sizeof what, "case %d, %s", case_of, attn_isa_string(test_isa(n)));
        poison_results(&typed);
        if (run_desc(&typed, what)) check_rounded_results(&typed, d, what);
    }
    poison_results(&typed);
    if (run_planned(&typed, workers)) check_rounded_results(&typed, d, "tasks in a random order");
    if (d->empty == ATTN_EMPTY_UNIFORM) return; /* these rows are outside the promise */
    ref_sizes(d, &r);
    int64_t b = test_int(0, (int)r.b - 1), h = test_int(0, (int)r.h - 1), i = test_int(0, (int)r.sq - 1);
    check_row_alone(&typed, b, h, i);
    check_entries_alone(&typed);
}

static void generated(void) {
    memset(covered, 0, sizeof covered);
    for (int n = 0; n < 250; n++) {
        int f[FACTOR_COUNT];
        attn_desc d;
        draw_factors(f);
        build(&d, f);
        check_typed(&d, n);
        test_release();
    }
}

/* Sizes where all ways through the kernels are had: whole chunks, whole vectors, few and many queries. */
static void larger(void) {
    static const int sizes[][6] = {{1, 2, 2, 1, 700, 64},
                                   {1, 4, 1, 1, 300, 130},
                                   {1, 1, 1, 70, 330, 40},
                                   {1, 2, 1, 70, 70, 96},
                                   {1, 1, 1, 3, 4200, 33}};
    for (int n = 0; n < 30; n++) {
        const int *s = sizes[n % 5];
        attn_desc d = make_desc(s[0], s[1], s[2], s[3], s[4], s[5], s[5] + n % 5);
        if (n % 5 == 3) d.causal = 1;
        if (n % 5 == 4) set_score(&d, n % 2 ? ATTN_SCORE_COSINE : ATTN_SCORE_GAUSSIAN, 0);
        ask_for(&d, n % 2 ? RESULT_OUT : RESULT_OUT | RESULT_WEIGHTS | RESULT_LSE, LAYOUT_PACKED);
        check_typed(&d, n);
        test_release();
    }
}

/* Some rows to each key head, which keys and values of 16 and 8 bits are made floats for part by part or, of few rows,
   not at all; scales within and across vectors, more of them than are looked up at once; and rows of no number. */
static void shared_keys(void) {
    static const int widths[] = {0, 8, 33, 40, 64, 72, 128, 200, 20000};
    for (int n = 0; n < 54; n++) {
        int size = widths[n % 9], wide = size > 1000, kv_heads = test_int(1, 2);
        attn_desc d = make_desc(1, kv_heads * test_int(1, 4), kv_heads, test_int(1, wide ? 3 : 12),
                                wide ? test_int(1, 4) : test_int(1, 330), size, wide ? 24 : size + n / 9 % 2);
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        check_typed(&d, n);
        test_release();
    }
}

/* ---- gradients */

/* Against the reference, whose out is exact: where it was stored in 16 bits, the bound grows by their rounding. Not
   where that is no share of the number: subnormal ones. */
static void check_stored_out(call *c, int32_t type) {
    attn_view out = attn_view_of(c->d.out);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (out.rank && type == ATTN_F16 && view_extent(&out, &low, &high)) do {
            double x = ref_at(&out, index[0], index[1], index[2], index[3]);
            if (fabs(x) < ldexp(1, -14)) return;
        } while (next_index(&out, index));
    double more = type == ATTN_F16 ? ldexp(1, -11) : type == ATTN_BF16 ? ldexp(1, -8) : 0;
    ref_upstream up = upstream_of(&c->g);
    ref_grads g;
    ref_backward(&c->d, &up, &g);
    for (int n = 0; n < GRAD_COUNT; n++)
        for (int64_t i = 0; i < g.g[n].count; i++) g.g[n].error[i] *= 1 + more / GRAD_BOUND;
    check_grads(c, &g, "gradients of what was stored");
    ref_free_grads(&g);
}
static void check_typed_grads(call *c, int case_of) {
    char what[80];
    call typed = *c;
    typed.d = typed_call(&c->d, 0);
    run_desc(&c->d, "the forward with floats");
    run_desc(&typed.d, "the forward");
    if (typed.d.out.rank) { /* what was stored is what the gradients are of */
        attn_view stored = attn_view_of(typed.d.out), plain = attn_view_of(c->d.out);
        int64_t index[4] = {0, 0, 0, 0}, low, high;
        if (view_extent(&stored, &low, &high)) do {
                const int64_t *x = index;
                put(&plain, offset_of(&plain, index), ref_at(&stored, x[0], x[1], x[2], x[3]));
            } while (next_index(&stored, index));
    }
    typed.g.d_out = retyped(&c->g.d_out, draw_type(), draw_shared_nothing());
    typed.g.d_weights = retyped(&c->g.d_weights, draw_type(), draw_shared_nothing());
    typed.g.d_lse = retyped(&c->g.d_lse, draw_type(), draw_shared_nothing());
    for (int n = 0; n < GRAD_COUNT; n++) {
        attn_out *o = grad_of(&typed.g, n);
        if (!o->rank) continue;
        *o = make_out_of(draw_type(), draw_layout(), o->rank, o->size[0], o->size[1], o->size[2], o->size[3]);
        if (c->start[n].rank) typed.start[n] = retyped(&c->start[n], o->type, LAYOUT_PACKED);
    }
    run_call(c, "with floats");
    check_stored_out(c, typed.d.out.type);
    for (int isa = 0; isa < test_isa_count(); isa++) {
        typed.d.isa = (int32_t)test_isa(isa);
        typed.d.parallel.workers = 1;
        if (isa % 2 ? !run_call(&typed, "gradients") : !run_call_planned(&typed, test_int(1, 3))) continue;
        for (int n = 0; n < GRAD_COUNT; n++) {
            snprintf(what, sizeof what, "case %d, %s, %s", case_of, ref_grad_names[n], attn_isa_string(test_isa(isa)));
            if (!check_rounded_once(grad_of(&typed.g, n), grad_of(&c->g, n), what)) ref_print(&c->d);
        }
    }
}
static void gradients(void) {
    memset(covered, 0, sizeof covered);
    for (int n = 0; n < 150; n++) {
        int f[FACTOR_COUNT];
        call c;
        memset(&c, 0, sizeof c);
        draw_factors(f);
        for_gradients = 1;
        build(&c.d, f);
        for_gradients = 0;
        ask_for(&c.d, RESULT_OUT | (n % 2 ? RESULT_STATS : 0), LAYOUT_PACKED);
        draw_upstream(&c.g, &c.d, test_int(1, FROM_ALL) | FROM_OUT, LAYOUT_PACKED);
        /* a bias is summed block by block: its floats go on from what was there, elements of 16 bits are added last */
        ask_grads(&c, all_grads(&c.d), n % 3 ? 0 : (unsigned)test_bits() & ATTN_GRAD_ALL & ~(unsigned)ATTN_GRAD_BIAS,
                  LAYOUT_PACKED);
        check_typed_grads(&c, n);
        test_release();
    }
}

/* ---- the pieces */

/* Random sizes, each piece against the same with floats. */
static void pieces(void) {
    for (int n = 0; n < 60; n++) {
        int64_t b = test_int(1, 2), h = test_int(1, 3), m = test_int(1, 70), k = test_int(1, 150), c = test_int(1, 90);
        attn_desc options;
        memset(&options, 0, sizeof options);
        attn_view x = make_filled(LAYOUT_PACKED, 1, 4, b, h, m, k), y = make_filled(LAYOUT_PACKED, 1, 4, b, h, k, c);
        attn_view d_out = make_filled(LAYOUT_PACKED, 1, 4, b, h, m, c);
        attn_view tx = retyped(&x, draw_type(), draw_shared_nothing()),
                  ty = retyped(&y, draw_type(), draw_shared_nothing());
        attn_view td = retyped(&d_out, draw_type(), draw_shared_nothing());
        attn_out to = make_out_of(draw_type(), draw_layout(), 4, b, h, m, c),
                 o = make_out(LAYOUT_PACKED, 4, b, h, m, c);
        attn_out tda = make_out_of(draw_type(), draw_layout(), 4, b, h, m, k),
                 da = make_out(LAYOUT_PACKED, 4, b, h, m, k);
        attn_out tdb = make_out_of(draw_type(), draw_layout(), 4, b, h, k, c),
                 db = make_out(LAYOUT_PACKED, 4, b, h, k, c);
        attn_out ts = make_out_of(draw_type(), draw_layout(), 4, b, h, m, k),
                 s = make_out(LAYOUT_PACKED, 4, b, h, m, k);
        CHECK_STATUS(attn_bmm(x, y, o, NULL, NULL), ATTN_OK);
        CHECK_STATUS(attn_bmm_backward(x, y, d_out, da, db, 0, NULL, NULL), ATTN_OK);
        CHECK_STATUS(attn_softmax(x, s, NULL, NULL), ATTN_OK);
        for (int isa = 0; isa < test_isa_count(); isa++) {
            options.isa = (int32_t)test_isa(isa);
            poison(&to), poison(&tda), poison(&tdb), poison(&ts);
            CHECK_STATUS(attn_bmm(tx, ty, to, &options, NULL), ATTN_OK);
            check_rounded_once(&to, &o, "product");
            CHECK_STATUS(attn_bmm_backward(tx, ty, td, tda, tdb, 0, &options, NULL), ATTN_OK);
            check_rounded_once(&tda, &da, "gradient of a");
            check_rounded_once(&tdb, &db, "gradient of b");
            CHECK_STATUS(attn_softmax(tx, ts, &options, NULL), ATTN_OK);
            check_rounded_once(&ts, &s, "softmax");
        }
        test_release();
    }
}
/* A softmax of elements of 16 bits in place. */
static void in_place(void) {
    for (int n = 0; n < 20; n++) {
        int32_t type = float_types[1 + n % 2];
        attn_view x = make_filled(LAYOUT_PACKED, 3, 3, 2, test_int(1, 70), test_int(1, 600), 0);
        attn_view tx = retyped(&x, type, LAYOUT_PACKED);
        attn_desc options;
        memset(&options, 0, sizeof options);
        options.key_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, (int)x.size[2]);
        attn_out out = make_out(LAYOUT_PACKED, 3, 2, x.size[1], x.size[2], 0), self = {0, {0}, {0}, 0, 0};
        memcpy(&self, &tx, sizeof self);
        CHECK_STATUS(attn_softmax(x, out, &options, NULL), ATTN_OK);
        CHECK_STATUS(attn_softmax(tx, self, &options, NULL), ATTN_OK);
        check_rounded_once(&self, &out, "in place");
        test_release();
    }
}
/* Two attentions as one. */
static void merged(void) {
    for (int n = 0; n < 20; n++) {
        int64_t sq = test_int(1, 9), dv = test_int(1, 70);
        attn_view a = make_filled(LAYOUT_PACKED, 1, 4, 2, 3, sq, dv),
                  b = make_filled(LAYOUT_PACKED, 1, 4, 2, 3, sq, dv);
        attn_view la = make_filled(LAYOUT_PACKED, 1, 3, 2, 3, sq, 0),
                  lb = make_filled(LAYOUT_PACKED, 1, 3, 2, 3, sq, 0);
        attn_view ta = retyped(&a, draw_type(), draw_shared_nothing()),
                  tb = retyped(&b, draw_type(), draw_shared_nothing());
        attn_out out = make_out(LAYOUT_PACKED, 4, 2, 3, sq, dv), lse = make_out(LAYOUT_PACKED, 3, 2, 3, sq, 0);
        attn_out tout = make_out_of(draw_type(), draw_layout(), 4, 2, 3, sq, dv);
        CHECK_STATUS(attn_merge(a, la, b, lb, out, lse, NULL), ATTN_OK);
        CHECK_STATUS(attn_merge(ta, la, tb, lb, tout, lse, NULL), ATTN_OK);
        check_rounded_once(&tout, &out, "merged");
        test_release();
    }
}

/* Multi-head attention and its gradients: between its layers are floats, and what several layers add to one gradient is
   added up before it is rounded. */
static void make_layers(attn_mha_desc *m, attn_mha_desc *t, int own) {
    int64_t b = 2, sq = test_int(1, 9), sk = own ? test_int(1, 80) : sq, e = test_int(1, 20), d = test_int(1, 12);
    attn_view *views[] = {&m->query,    &m->key,     &m->value, &m->w_query, &m->w_key,   &m->w_value,
                          &m->w_result, &m->b_query, &m->b_key, &m->b_value, &m->b_result};
    attn_view *typed[] = {&t->query,    &t->key,     &t->value, &t->w_query, &t->w_key,   &t->w_value,
                          &t->w_result, &t->b_query, &t->b_key, &t->b_value, &t->b_result};
    memset(m, 0, sizeof *m);
    m->heads = 4;
    m->heads_kv = 2;
    m->query = make_filled(LAYOUT_PACKED, 1, 3, b, sq, e, 0);
    if (own) m->key = make_filled(LAYOUT_PACKED, 1, 3, b, sk, e + 1, 0);
    int64_t ek = own ? e + 1 : e;
    m->w_query = make_filled(LAYOUT_PACKED, 0.5, 2, 4 * d, e, 0, 0);
    m->w_key = make_filled(LAYOUT_PACKED, 0.5, 2, 2 * d, ek, 0, 0);
    m->w_value = make_filled(LAYOUT_PACKED, 0.5, 2, 2 * d, ek, 0, 0);
    m->w_result = make_filled(LAYOUT_PACKED, 0.5, 2, 7, 4 * d, 0, 0);
    m->b_query = make_filled(LAYOUT_PACKED, 1, 1, 4 * d, 0, 0, 0);
    m->b_value = make_filled(LAYOUT_PACKED, 1, 1, 2 * d, 0, 0, 0);
    m->b_result = make_filled(LAYOUT_PACKED, 1, 1, 7, 0, 0, 0);
    m->out = make_out(LAYOUT_PACKED, 3, b, sq, 7, 0);
    *t = *m;
    for (int n = 0; n < 11; n++) *typed[n] = retyped(views[n], draw_type(), draw_shared_nothing());
    t->out = make_out_of(draw_type(), draw_layout(), 3, b, sq, 7, 0);
}
static void layers(void) {
    for (int n = 0; n < 40; n++) {
        attn_mha_desc m, t;
        attn_mha_grad g, tg;
        make_layers(&m, &t, n % 2);
        memset(&g, 0, sizeof g);
        g.d_out = make_filled(LAYOUT_PACKED, 1, 3, m.out.size[0], m.out.size[1], m.out.size[2], 0);
        tg = g;
        tg.d_out = retyped(&g.d_out, draw_type(), draw_shared_nothing());
        attn_view *of[] = {&m.query,    &m.key,     &m.value, &m.w_query, &m.w_key,   &m.w_value,
                           &m.w_result, &m.b_query, &m.b_key, &m.b_value, &m.b_result};
        attn_out *plain[] = {&g.dquery,    &g.dkey,     &g.dvalue, &g.dw_query, &g.dw_key,   &g.dw_value,
                             &g.dw_result, &g.db_query, &g.db_key, &g.db_value, &g.db_result};
        attn_out *typed[] = {&tg.dquery,    &tg.dkey,     &tg.dvalue, &tg.dw_query, &tg.dw_key,   &tg.dw_value,
                             &tg.dw_result, &tg.db_query, &tg.db_key, &tg.db_value, &tg.db_result};
        for (int i = 0; i < 11; i++) {
            const attn_view *v = of[i];
            if (!v->rank) continue;
            *plain[i] = make_out(LAYOUT_PACKED, v->rank, v->size[0], v->size[1], v->size[2], 0);
            *typed[i] = make_out_of(draw_type(), draw_layout(), v->rank, v->size[0], v->size[1], v->size[2], 0);
        }
        CHECK_STATUS(attn_mha(&m, NULL), ATTN_OK);
        CHECK_STATUS(attn_mha_backward(&m, &g, NULL), ATTN_OK);
        for (int isa = 0; isa < test_isa_count(); isa++) {
            attn_desc options;
            memset(&options, 0, sizeof options);
            options.isa = (int32_t)test_isa(isa);
            t.attention = &options;
            poison(&t.out);
            CHECK_STATUS(attn_mha(&t, NULL), ATTN_OK);
            check_rounded_once(&t.out, &m.out, "multi-head attention");
            for (int i = 0; i < 11; i++) poison(typed[i]);
            check_saved(&t, &tg);
            CHECK_STATUS(attn_mha_backward(&t, &tg, NULL), ATTN_OK);
            for (int i = 0; i < 11; i++) check_rounded_once(typed[i], plain[i], "its gradient");
        }
        /* and added to what is there: the sum is rounded, not its parts */
        attn_view start = make_filled(LAYOUT_PACKED, 1, 3, m.query.size[0], m.query.size[1], m.query.size[2], 0);
        attn_view before = retyped(&start, tg.dquery.type, LAYOUT_PACKED), sum = attn_view_of(g.dquery);
        int64_t index[4] = {0, 0, 0, 0};
        tg.accumulate = 1;
        t.attention = NULL;
        do {
            attn_view to = attn_view_of(tg.dquery);
            put(&to, offset_of(&to, index), ref_at(&before, 0, index[0], index[1], index[2]));
            put(&sum, offset_of(&sum, index),
                (float)(ref_at(&sum, 0, index[0], index[1], index[2]) +
                        ref_at(&start, 0, index[0], index[1], index[2])));
        } while (next_index(&sum, index));
        CHECK_STATUS(attn_mha_backward(&t, &tg, NULL), ATTN_OK);
        if (tg.dquery.type != ATTN_F32) check_rounded_once(&tg.dquery, &g.dquery, "added to the gradient of the query");
        test_release();
    }
}

/* ---- conversions */

/* All numbers of 16 bits as floats, and all floats next to them and half-way between: as a product with 1 by 1, whose
   arithmetic is exact, by the kernels of each instruction set; and by attn_convert. */
static void all_of(int32_t type, const float *x, int64_t count, const uint16_t *half) {
    static const float one = 1;
    attn_view one_by_one = attn_view_f32(&one, 2, 1, 1, 0, 0);
    attn_view floats = attn_view_f32(x, 2, count, 1, 0, 0),
              halves = attn_view_typed((attn_type)type, half, 2, 65536, 1, 0, 0);
    attn_out narrow = make_out_of(type, LAYOUT_PACKED, 2, count, 1, 0, 0),
             wide = make_out(LAYOUT_PACKED, 2, 65536, 1, 0, 0);
    for (int isa = 0; isa <= test_isa_count(); isa++) {
        attn_desc options;
        memset(&options, 0, sizeof options);
        poison(&narrow), poison(&wide);
        if (isa < test_isa_count()) {
            options.isa = (int32_t)test_isa(isa);
            CHECK_STATUS(
                attn_bmm(attn_view_swap(floats, 0, 1), attn_view_swap(one_by_one, 0, 1), narrow, &options, NULL),
                count == 1 ? ATTN_OK : ATTN_ERR_SIZE);
            CHECK_STATUS(attn_bmm(one_by_one, attn_view_swap(floats, 0, 1),
                                  attn_out_typed((attn_type)type, narrow.data, 2, 1, count, 0, 0), &options, NULL),
                         ATTN_OK);
            CHECK_STATUS(attn_bmm(one_by_one, attn_view_swap(halves, 0, 1),
                                  attn_out_f32((float *)wide.data, 2, 1, 65536, 0, 0), &options, NULL),
                         ATTN_OK);
        } else {
            CHECK_STATUS(attn_convert(floats, narrow, NULL), ATTN_OK);
            CHECK_STATUS(attn_convert(halves, wide, NULL), ATTN_OK);
        }
        int wrong = 0;
        for (int64_t i = 0; i < count; i++) {
            uint16_t want = ref_half(type, x[i]), got = ((const uint16_t *)narrow.data)[i];
            if (isa < test_isa_count() && x[i] == 0) want = 0; /* a sum from 0 is +0 */
            wrong += want != got;
        }
        CHECKF(wrong == 0, "type %d, way %d: %d of %ld floats are not rounded to the nearest", (int)type, isa, wrong,
               (long)count);
        for (int i = 0; i < 65536; i++) {
            double want = ref_of_half(type, (uint16_t)i), got = ((const float *)wide.data)[i];
            uint32_t bits;
            memcpy(&bits, (const float *)wide.data + i, 4);
            wrong += isnan(want) ? bits != 0x7fc00000u : want != got;
        }
        CHECKF(wrong == 0, "type %d, way %d: %d of 65536 are not what they stand for", (int)type, isa, wrong);
    }
}
static void every_number(void) {
    float *x = (float *)test_guarded((65536 * 6 + 8) * sizeof *x);
    uint16_t *half = (uint16_t *)test_guarded(65536 * sizeof *half);
    for (int i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    for (int type = ATTN_F16; type <= ATTN_BF16; type++) {
        int64_t count = 0;
        for (int i = 0; i < 65536; i++) {
            float a = (float)ref_of_half(type, (uint16_t)i), next = (float)ref_of_half(type, (uint16_t)(i + 1));
            if ((i & 0x7fff) == 0x7fff || isinf(next)) next = a;
            float middle = (float)(((double)a + next) / 2);
            x[count++] = a;
            x[count++] = middle;
            x[count++] = nextafterf(middle, INFINITY);
            x[count++] = nextafterf(middle, -INFINITY);
            x[count++] = nextafterf(a, INFINITY);
            x[count++] = nextafterf(a, -INFINITY);
        }
        const float more[8] = {65519.99f, 65520, 65536, 3.4028235e38f, 3.3961775e38f, 1e-45f, -65520, 2.9802322e-8f};
        memcpy(x + count, more, sizeof more);
        all_of((int32_t)type, x, count + 8, half);
    }
    test_release();
}
/* Doubles are rounded once: next to what is half-way between two, a float would be half-way itself. */
static void doubles(void) {
    for (int type = ATTN_F32; type <= ATTN_BF16; type++) {
        double x[40];
        int n = 0;
        for (double a = 1e-8; a < 1e38; a *= 1e4) {
            double unit = type == ATTN_F16 ? ldexp(1, -11) : type == ATTN_BF16 ? ldexp(1, -8) : ldexp(1, -24);
            int e;
            double base = ldexp(1, (frexp(a, &e), e));
            x[n++] = base * (1 + unit) * (1 + ldexp(1, -52));
            x[n++] = base * (1 + unit) * (1 - ldexp(1, -52));
            x[n++] = base * (1 + unit);
        }
        x[n++] = 1e300, x[n++] = -1e-320, x[n++] = NAN, x[n++] = -INFINITY;
        attn_out out = make_out_of(type, LAYOUT_PACKED, 1, n, 0, 0, 0);
        attn_view from = attn_view_typed(ATTN_F64, x, 1, n, 0, 0, 0), v = attn_view_of(out);
        CHECK_STATUS(attn_convert(from, out, NULL), ATTN_OK);
        for (int i = 0; i < n; i++) {
            const int64_t index[4] = {i, 0, 0, 0};
            float f = (float)x[i];
            uint32_t want = type == ATTN_F32 ? 0x7fc00000u : ref_half(type, x[i]);
            if (type == ATTN_F32 && !isnan(f)) memcpy(&want, &f, 4);
            CHECKF(bits_at(&v, index) == want, "%.17g as type %d: %x, want %x", x[i], type,
                   (unsigned)bits_at(&v, index), (unsigned)want);
        }
        double back[40];
        CHECK_STATUS(attn_convert(v, attn_out_typed(ATTN_F64, back, 1, n, 0, 0, 0), NULL), ATTN_OK);
        for (int i = 0; i < n; i++) CHECK_CLOSE(back[i], ref_at(&v, 0, 0, 0, i), 0);
        test_release();
    }
}

/* ---- codes */
static void quantized(void) {
    for (int n = 0; n < 40; n++) {
        int64_t d = n % 4 == 3 ? test_int(250, 600) : test_int(1, 100);
        int64_t groups = n % 2 ? 1 : (d + 31) / 32, step = groups == 1 ? d : 32;
        attn_view x = make_filled(LAYOUT_PACKED, n % 5 ? 3 : n % 2 ? 1e-30 : 1e7, 4, 2, 2, 5, d);
        if (n % 7 == 0) put_at(&x, 1, 0, 2, d / 2, n % 2 ? NAN : INFINITY);
        for (int64_t j = 0; n % 3 == 1 && j < d; j++) { /* zeros, the least and the largest numbers, ties of codes */
            put_at(&x, 0, 0, 1, j, n % 2 ? 0.0 : -0.0);
            put_at(&x, 0, 0, 2, j, test_int(-99, 99) * 1.4e-45);
            put_at(&x, 0, 0, 3, j, (j % 3 - 1) * 3.4028234663852886e38);
            put_at(&x, 0, 0, 4, j, j % 32 ? test_int(-253, 253) * 0.5 : 127);
        }
        attn_view from = retyped(&x, draw_type(), draw_shared_nothing());
        attn_out codes = make_out_of(ATTN_I8, draw_layout(), 4, 2, 2, 5, d);
        attn_out scale = make_out_of(n % 3 ? ATTN_F32 : ATTN_F16, draw_layout(), 4, 2, 2, 5, groups);
        attn_view c = attn_view_of(codes), s = attn_view_of(scale);
        poison(&codes), poison(&scale);
        CHECK_STATUS(attn_quantize(from, codes, scale, NULL), ATTN_OK);
        CHECK(gaps_untouched(&codes) && gaps_untouched(&scale));
        for (int64_t row = 0; row < 20; row++)
            for (int64_t g = 0; g < groups; g++) {
                int64_t i0 = row / 10, i1 = row / 5 % 2, i2 = row % 5, end = (g + 1) * step < d ? (g + 1) * step : d;
                double most = 0, unit = ref_at(&s, i0, i1, i2, g);
                for (int64_t j = g * step; j < end; j++)
                    most = isfinite(ref_at(&x, i0, i1, i2, j)) ? fmax(most, fabs(ref_at(&x, i0, i1, i2, j))) : NAN;
                for (int64_t j = g * step; j < end; j++) most = isfinite(ref_at(&x, i0, i1, i2, j)) ? most : NAN;
                double want = (float)most / 127.0f;
                if (scale.type == ATTN_F16)
                    want = ref_of_half(ATTN_F16, ref_half(ATTN_F16, want > 65504 ? 65504 : want));
                CHECK_CLOSE(unit, want, 0);
                for (int64_t j = g * step; j < end; j++) {
                    const int64_t index[4] = {i0, i1, i2, j};
                    double exact = unit > 0 ? (float)ref_at(&x, i0, i1, i2, j) / (float)unit : 0;
                    int code = (int8_t)bits_at(&c, index);
                    CHECKF(code == (int)fmin(fmax(nearbyint(exact), -127), 127), "code %d of %g", code, exact);
                }
            }
        test_release();
    }
}
/* Dense rows are taken some at a time: the bits of the same rows in arrays with gaps, which are taken one by one. */
static void quantized_together(void) {
    static const int64_t columns[] = {1, 7, 16, 31, 32, 33, 64, 96, 128, 256, 320, 1024, 2048, 2080};
    for (size_t n = 0; n < 2 * sizeof columns / sizeof *columns; n++) {
        const int64_t d = columns[n / 2], groups = n % 2 ? (d + 31) / 32 : 1, rows = test_int(34, 70);
        attn_view x = make_filled(LAYOUT_PACKED, 3, 4, 1, 2, rows, d);
        attn_view apart = make_filled(LAYOUT_PACKED, 3, 4, 1, 2, rows, d + 3);
        for (int64_t i = 0; i < 2 * rows; i++) {
            const double exact[4] = {0.5, 1.4e-45, 3e38, i % 8 < 4 ? INFINITY : NAN};
            for (int64_t j = 0; i % 5 < 4 && j < d; j++)
                if (i % 5 < 3 || (i == 13 && j == d - 1))
                    put_at(&x, 0, i / rows, i % rows, j, j ? test_int(-253, 253) * exact[i % 5] / 253 : exact[i % 5]);
            for (int64_t j = 0; j < d; j++)
                put_at(&apart, 0, i / rows, i % rows, j, ref_at(&x, 0, i / rows, i % rows, j));
        }
        apart.size[3] = d;
        attn_out codes[2], scale[2];
        for (int way = 0; way < 2; way++) {
            codes[way] = make_out_of(ATTN_I8, LAYOUT_PACKED, 4, 1, 2, rows, d);
            scale[way] = make_out_of(n % 3 ? ATTN_F32 : ATTN_F16, LAYOUT_PACKED, 4, 1, 2, rows, groups);
            CHECK_STATUS(attn_quantize(way ? apart : x, codes[way], scale[way], NULL), ATTN_OK);
        }
        CHECK(!memcmp(codes[0].data, codes[1].data, (size_t)(2 * rows * d)));
        CHECK(!memcmp(scale[0].data, scale[1].data, (size_t)(2 * rows * groups) * (n % 3 ? 4 : 2)));
        test_release();
    }
}
/* One query, keys with rows so long that they are multiplied by chains side by side: the bits of plain C. */
static void long_rows(void) {
    static const int64_t columns[] = {896, 1023, 1024, 1152, 1920, 2047, 2048, 2176};
    for (int n = 0; n < 3 * 8; n++) {
        attn_view q = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, 1, columns[n / 3]);
        attn_view k = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, 70, columns[n / 3]);
        attn_view keys = retyped(&k, float_types[n % 3], n % 2 ? LAYOUT_GAPS : LAYOUT_PACKED);
        attn_out scores[2];
        attn_desc o;
        memset(&o, 0, sizeof o);
        for (int i = 0; i < test_isa_count(); i++)
            for (int way = 0; way < 2; way++) {
                scores[way] = make_out(LAYOUT_PACKED, 4, 1, 2, 1, 70);
                o.isa = way ? (int32_t)test_isa(i) : ATTN_ISA_SCALAR;
                CHECK_STATUS(attn_scores(q, keys, scores[way], &o, NULL), ATTN_OK);
                if (way)
                    CHECKF(!memcmp(scores[0].data, scores[1].data, 2 * 70 * sizeof(float)), "%ld columns: other bits",
                           (long)columns[n / 3]);
            }
        test_release();
    }
}
static void blocks_of_ggml(void) {
    unsigned char block[6 * 34];
    for (int n = 0; n < 6 * 34; n++) block[n] = (unsigned char)test_int(0, 255);
    attn_out codes = make_out_of(ATTN_I8, LAYOUT_MIXED, 4, 1, 1, 3, 64),
             scale = make_out_of(ATTN_F16, LAYOUT_MIXED, 4, 1, 1, 3, 2);
    attn_view c = attn_view_of(codes), s = attn_view_of(scale);
    CHECK_STATUS(attn_unpack_q8_0(block, codes, scale, NULL), ATTN_OK);
    for (int row = 0; row < 3; row++)
        for (int n = 0; n < 64; n++) {
            const unsigned char *from = block + (row * 2 + n / 32) * 34;
            const int64_t index[4] = {0, 0, row, n}, group[4] = {0, 0, row, n / 32};
            uint16_t half = (uint16_t)(from[0] | from[1] << 8);
            if ((half & 0x7fff) > 0x7c00) half = 0x7e00;
            CHECK(bits_at(&c, index) == from[2 + n % 32]);
            CHECK(bits_at(&s, group) == half);
        }
    test_release();
}
/* A scale is read only where its key is; the key beyond a length lies on no page, nor does its scale. */
static void scales_not_read(void) {
    for (int low = 0; low < 2; low++) {
        attn_desc d = make_desc(1, 1, 1, 1, 40, 32, 32);
        int8_t *codes = (int8_t *)test_guarded_span(0, 25 * 32, 15 * 32, low);
        float *scale = (float *)test_guarded_span(0, 25 * 4, 15 * 4, low);
        memset(codes, 3, 25 * 32);
        for (int j = 0; j < 25; j++) scale[j] = j == 7 ? NAN : 0.01f;
        d.k = attn_view_typed(ATTN_I8, codes, 4, 1, 1, 40, 32);
        d.k_scale = attn_view_f32(scale, 4, 1, 1, 40, 1);
        d.mask = make_ints(ATTN_U8, 1, 40, 0, 0, 0, 1, 1);
        d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 25, 25);
        ask_for(&d, RESULT_OUT | RESULT_WEIGHTS, LAYOUT_PACKED);
        for (int isa = 0; isa < test_isa_count(); isa++) {
            attn_view weights = attn_view_of(d.weights);
            d.isa = (int32_t)test_isa(isa);
            put_at(&d.mask, 0, 0, 0, 7, 0);
            run_desc(&d, "a NaN scale after a mask");
            CHECK_CLOSE(ref_at(&weights, 0, 0, 0, 3), 1 / 24.0, 1e-6);
            put_at(&d.mask, 0, 0, 0, 7, 1);
            run_desc(&d, "a NaN scale");
            CHECK(isnan(ref_at(&weights, 0, 0, 0, 3)));
        }
        test_release();
    }
}

const test_case suite_types[] = {
    {"types.generated", generated},
    {"types.larger", larger},
    {"types.shared_keys", shared_keys},
    {"types.gradients", gradients},
    {"types.pieces", pieces},
    {"types.in_place", in_place},
    {"types.merged", merged},
    {"types.layers", layers},
    {"types.every_number", every_number},
    {"types.doubles", doubles},
    {"types.quantized", quantized},
    {"types.quantized_together", quantized_together},
    {"types.long_rows", long_rows},
    {"types.blocks_of_ggml", blocks_of_ggml},
    {"types.scales_not_read", scales_not_read},
    {0, 0},
};
