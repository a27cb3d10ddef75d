/* parts.c - of "sequences": keys that come in several calls (carry_in, carry_out). Entries of unequal length in shared
   arrays and pages: entries.c; a cache that grows, rotary positions: sequence.c. Random calls are cut, by views of
   their keys or by starts, and the last of the calls must give the bits of the one; so must, of the gradients, what
   belongs to a part's keys. */
#include "grads.h"
#include "descriptors.h"
#include "parts.h"

/* ---- random calls */
static void draw_types(attn_desc *d) {
    static const int32_t types[] = {ATTN_F32, ATTN_F32, ATTN_F16, ATTN_BF16};
    attn_view *views[] = {&d->q, &d->k, &d->v, &d->given_scores, &d->bias};
    if (test_int(0, 1)) return;
    for (int n = 0; n < 5; n++) {
        int32_t type = types[test_int(0, 3)];
        if (views[n]->rank && type != ATTN_F32) *views[n] = retyped(views[n], type, LAYOUT_MIXED);
    }
    if (test_int(0, 2) || ref_is_distance(d->score)) return;
    attn_view *codes[] = {&d->k, &d->v}, *scales[] = {&d->k_scale, &d->v_scale};
    for (int n = 0; n < 2; n++) {
        attn_view v = *codes[n];
        if (!v.rank || test_int(0, 3) == 0) continue;
        int64_t groups = test_int(0, 1) ? 1 : (v.size[3] + 31) / 32;
        *codes[n] = make_view(ATTN_I8, LAYOUT_MIXED, 4, v.size[0], v.size[1], v.size[2], v.size[3]);
        fill(codes[n], draw_int, -127, 127);
        *scales[n] = make_filled(LAYOUT_PACKED, 0.02, 4, v.size[0], v.size[1], v.size[2], groups);
    }
}
/* What is not finite, in a key that rows may attend to. */
static void spoil(const attn_view *v) {
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    if (!v->rank || v->type == ATTN_I8) return;
    for (int axis = 0; axis < 4; axis++)
        if (v->size[axis] == 0) return;
    put_at(v, test_int(0, (int)v->size[0] - 1), test_int(0, (int)v->size[1] - 1), test_int(0, (int)v->size[2] - 1),
           test_int(0, (int)v->size[3] - 1), odd[test_int(0, 2)]);
}
static void draw_call(attn_desc *d, int n) {
    static const int keys[][2] = {{257, 300}, {512, 520}, {600, 900}, {1000, 1300}};
    int f[FACTOR_COUNT], set = n % 3 == 0 ? RESULT_OUT : test_int(1, 7);
    draw_factors(f);
    if (f[F_ALIGN] == 1) f[F_ALIGN] = 3; /* the last key is not known */
    if (f[F_EMPTY] == ATTN_EMPTY_UNIFORM) f[F_EMPTY] = ATTN_EMPTY_ZERO;
    if (f[F_NUMBERS] == 2 && n % 2) f[F_NUMBERS] = 0;
    f[F_AFTER] = 0;
    shape s = draw_shape(f);
    const int *most = keys[test_int(0, 3)];
    s.sk = test_int(most[0], most[1]);
    build_shaped(d, f, s);
    if (!f[F_POISON]) draw_types(d);
    if (d->mask.rank && d->mask.size[d->mask.rank - 1] > 1 && n % 2) { /* chunks that no row may attend to */
        int64_t chunk = test_int(0, (int)s.sk / ATTN_PART_KEYS - 1);
        attn_view some = attn_view_slice(d->mask, d->mask.rank - 1, chunk * ATTN_PART_KEYS, ATTN_PART_KEYS);
        fill(&some, draw_int, 0, 0);
    }
    if (n % 5 == 0) spoil(&d->v);
    if (n % 10 == 0) spoil(&d->k);
    ask_for(d, (set & 3) | (set & 4 ? RESULT_STATS : 0), LAYOUT_MIXED);
    if (!d->out.rank && !d->page_table.rank && test_int(0, 1))
        memset(&d->v, 0, sizeof d->v), memset(&d->v_scale, 0, sizeof d->v_scale);
    if (!d->v.rank) memset(&d->out, 0, sizeof d->out);
    if (!d->out.rank && !d->lse.rank && !d->stats.rank) ask_for(d, RESULT_LSE, LAYOUT_PACKED);
    if (d->window && d->window_left > 0) d->window_left = test_int(0, 700);
    if (d->positions.rank) fill(&d->positions, draw_int, -3, 1300);
    if (n % 4 == 1) d->precision = ATTN_PRECISION_FAST;
}
static void forward(void) {
    memset(covered, 0, sizeof covered);
    for (int n = 0; n < 600; n++) {
        attn_desc d, whole;
        ref_result r;
        draw_call(&d, n);
        ref_sizes(&d, &r);
        cuts c = draw_cuts(r.sk);
        poison_results(&d);
        if (!run_somehow(&d, "at once")) return;
        whole = copy_results(&d);
        d.isa = ATTN_ISA_AUTO;
        run_parts(&d, &c, r.has_entries || test_int(0, 3) == 0);
        if (!check_same_results(&whole, &d, "in parts and at once")) {
            printf("        case %d, parts from", n);
            for (int p = 0; p < c.count; p++) printf(" %ld", (long)c.at[p]);
            printf(" of\n");
            ref_print(&d);
        }
        if (n % 6 == 0 && d.precision == ATTN_PRECISION_F32 && !d.k_scale.rank && !d.v_scale.rank && n % 5) {
            ref_forward(&d, &r);
            ref_check(&d, &r, "in parts");
            ref_free(&r);
        }
        test_release();
    }
}

/* So many keys that those of a tile are cut among tasks, within each part. */
static void many_keys(void) {
    static const int64_t heads[][2] = {{1, 1}, {4, 1}, {4, 4}}, sizes[][2] = {{64, 64}, {20, 33}, {8, 3}};
    for (int n = 0; n < 9; n++) {
        cuts c = {{0, 4096, 4096 + 256 * test_int(0, 2), 9000 + n}, 3};
        attn_desc d =
            make_desc(1, heads[n % 3][0], heads[n % 3][1], 1 + (n == 6), c.at[3], sizes[n / 3][0], sizes[n / 3][1]);
        attn_desc whole;
        if (n % 2) d.mask = make_ints(ATTN_U8, 1, c.at[3], 0, 0, 0, 0, 1);
        if (n == 3) spoil(&d.v);
        ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_STATS, LAYOUT_PACKED);
        if (!run_somehow(&d, "at once")) return;
        whole = copy_results(&d);
        run_parts(&d, &c, 0);
        check_same_results(&whole, &d, "many keys in parts and at once");
        test_release();
    }
}

/* ---- gradients */
static void backward(void) {
    memset(covered, 0, sizeof covered);
    forget_worst();
    for (int n = 0; n < 190; n++) {
        attn_desc d;
        ref_result r;
        ref_grads g;
        do test_release(), draw_call(&d, n);
        while (d.query_starts.rank || d.key_starts.rank || d.page_table.rank || !d.v.rank || d.k_scale.rank ||
               d.v_scale.rank || (d.bias.rank && d.bias.type != ATTN_F32) || d.sink.rank);
        ref_sizes(&d, &r);
        d.precision = ATTN_PRECISION_F32;
        cuts c = draw_cuts(r.sk);
        call whole = make_call(&d, RESULT_OUT | RESULT_LSE, (1u << GRAD_COUNT) - 1 - (1u << GRAD_SINK)), parts;
        if (!run_call(&whole, "gradients at once")) return;
        parts = copy_grads(&whole);
        if (!gradients_in_parts(&whole, &parts, &c)) return;
        if (n % 5) {
            const ref_upstream up = upstream_of(&parts.g);
            ref_backward(&parts.d, &up, &g);
            check_grads(&parts, &g, "gradients in parts");
            ref_free_grads(&g);
        }
        test_release();
    }
    print_worst("gradients in parts", 190);
}

/* A last part of one key is a column of the bias, not a bias that is the same for all keys: a 0 keeps its sign. */
static void one_key_left(void) {
    const cuts c = {{0, ATTN_PART_KEYS, ATTN_PART_KEYS + 1}, 2};
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, 2, 2, 9, ATTN_PART_KEYS + 1, 8, 8);
        d.align = ATTN_ALIGN_TOP_LEFT;
        d.isa = (int32_t)test_isa(n);
        d.bias = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, 9, ATTN_PART_KEYS + 1);
        for (int64_t h = 0; h < 2; h++)
            for (int64_t i = 0; i < 9; i++) put_at(&d.bias, 0, h, i, ATTN_PART_KEYS, -1000); /* weight 0 */
        call whole = make_call(&d, RESULT_OUT | RESULT_LSE, 1u << GRAD_Q | 1u << GRAD_BIAS), parts;
        if (!run_call(&whole, "gradients at once")) return;
        parts = copy_grads(&whole);
        if (!gradients_in_parts(&whole, &parts, &c)) return;
        test_release();
    }
}

/* Multi-head attention passes them on: its keys come in parts, too. */
static void heads(void) {
    enum { KEYS = 700, E = 6, H = 2, D = 5 };
    attn_mha_desc d;
    attn_desc o;
    float out[2][3 * E];
    memset(&d, 0, sizeof d), memset(&o, 0, sizeof o);
    attn_view key = make_filled(LAYOUT_PACKED, 1, 3, 1, KEYS, E, 0);
    d.query = make_filled(LAYOUT_PACKED, 1, 3, 1, 3, E, 0), d.key = key;
    d.w_query = make_filled(LAYOUT_PACKED, 1, 2, H * D, E, 0, 0), d.w_key = d.w_query, d.w_value = d.w_query;
    d.w_result = make_filled(LAYOUT_PACKED, 1, 2, E, H * D, 0, 0);
    d.heads = H, d.attention = &o;
    d.out = attn_out_f32(out[0], 3, 1, 3, E, 0);
    CHECK_STATUS(attn_mha(&d, 0), ATTN_OK);
    d.out = attn_out_f32(out[1], 3, 1, 3, E, 0);
    o.carry_out = make_out(LAYOUT_PACKED, 4, 1, H, 3, D + 2);
    for (int64_t at = 0; at < KEYS; at += 256) {
        d.key = attn_view_slice(key, 1, at, KEYS - at < 256 ? KEYS - at : 256);
        if (at + 256 >= KEYS) memset(&o.carry_out, 0, sizeof o.carry_out);
        o.key_origin = at;
        CHECK_STATUS(attn_mha(&d, 0), ATTN_OK);
        o.carry_in = attn_view_of(o.carry_out);
    }
    CHECK(!memcmp(out[0], out[1], sizeof out[0]));
}

/* The picture of a part's mask is a part of the picture. */
static void mask(void) {
    uint8_t whole[40][700], part[40][444];
    attn_desc d;
    memset(&d, 0, sizeof d);
    d.causal = d.window = 1, d.window_left = 300, d.align = ATTN_ALIGN_POSITIONS;
    d.positions = make_ints(ATTN_I64, 2, 1, 40, 0, 0, -3, 700);
    CHECK_STATUS(attn_mask(attn_out_u8(whole[0], 4, 1, 1, 40, 700), &d, 0), ATTN_OK);
    d.key_origin = ATTN_PART_KEYS;
    CHECK_STATUS(attn_mask(attn_out_u8(part[0], 4, 1, 1, 40, 444), &d, 0), ATTN_OK);
    for (int i = 0; i < 40; i++) CHECK(!memcmp(part[i], whole[i] + 256, 444));
}

/* What a part hands on of a row whose query is not a number, of either sign: NaN, on each instruction set. */
static void nan_of_either_sign(void) {
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0xffc12345};
    for (int n = 0; n < 24; n++) {
        const int64_t queries = n % 2 ? 3 : 9, keys = ATTN_PART_KEYS, size = 16;
        attn_desc d = {0};
        d.q = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, queries, size);
        d.k = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, keys, size);
        d.v = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, keys, size);
        for (int64_t c = 0; c < (n % 4 < 2 ? 1 : size); c++) memcpy((float *)d.q.data + size + c, nans + n % 3, 4);
        if (n % 8 >= 4) d.causal = 1, d.align = ATTN_ALIGN_TOP_LEFT;
        d.carry_out = make_out(LAYOUT_PACKED, 4, 1, 1, queries, size + 2);
        const size_t bytes = (size_t)(queries * (size + 2)) * sizeof(float);
        uint32_t *first = (uint32_t *)test_guarded(bytes);
        for (int i = 0; i < test_isa_count(); i++) {
            d.isa = test_isa(i);
            if (!run_desc(&d, "a query that is not a number")) return;
            if (i == 0) memcpy(first, d.carry_out.data, bytes);
            CHECKF(!memcmp(first, d.carry_out.data, bytes), "%s: other bits than %s", attn_isa_string(d.isa),
                   attn_isa_string(test_isa(0)));
        }
        for (int64_t c = 0; c < size; c++)
            CHECKF(first[size + 2 + c] == 0x7fc00000, "number %d of the row: %08x", (int)c,
                   (unsigned)first[size + 2 + c]);
        test_release();
    }
}

const test_case suite_parts[] = {
    {"parts.forward", forward},
    {"parts.many_keys", many_keys},
    {"parts.backward", backward},
    {"parts.heads", heads},
    {"parts.mask", mask},
    {"parts.one_key_left", one_key_left},
    {"parts.nan_of_either_sign", nan_of_either_sign},
    {0, 0},
};
