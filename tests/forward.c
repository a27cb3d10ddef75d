/* forward.c - every score and every size against the float64 reference, on every instruction set. */
#include "cases.h"

static void every_score(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        attn_desc d = make_desc(2, 2, 2, 21, 37, 13, 11);
        set_score(&d, score, 9);
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        check_everywhere(&d, ref_score_names[score]);
        test_release();
    }
}

static void every_d(void) {
    for (int size = 1; size <= 130; size++) {
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
            attn_desc d = make_desc(1, 1, 1, 1 + size % 19, 1 + size * 5 % 23, size, 1 + size * 7 % 40);
            set_score(&d, score, size); /* the hidden width takes every value too */
            ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
            check_everywhere(&d, ref_score_names[score]);
            test_release();
        }
    }
}

static void every_dv(void) {
    for (int size = 1; size <= 130; size++) {
        attn_desc d = make_desc(1, 1, 1, 1 + size % 35, 1 + size * 3 % 29, 3, size);
        check_everywhere(&d, "size of the values");
        test_release();
    }
}

/* Sizes around those of tiles and chunks, each with each. */
static void odd_sizes(void) {
    static const int queries[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 65},
                     keys[] = {1, 7, 15, 16, 17, 64, 127, 128, 129, 255, 256, 257, 300}, values[] = {1, 8, 3, 17, 33};
    int n = 0;
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++, n++) {
            attn_desc d = make_desc(1, 1, 1, queries[i], keys[j], 5, values[n % 5]);
            ask_for(&d, n % 2 ? RESULT_ALL : RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
            d.causal = n % 3 == 0;
            d.align = n % 2 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
            check_everywhere(&d, "odd sizes");
            test_release();
        }
    }
}

/* A size of 0 is legal everywhere. */
static void no_size(void) {
    for (int axis = 0; axis < 6; axis++) {
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
            int64_t n[6] = {2, 2, 3, 5, 4, 3};
            n[axis] = 0;
            attn_desc d = make_desc(n[0], n[1], n[1], n[2], n[3], n[4], n[5]);
            set_score(&d, score, 3);
            ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
            check_everywhere(&d, ref_score_names[score]);
            test_release();
        }
    }
}

static void grouped_heads(void) {
    static const int groups[][2] = {{6, 1}, {6, 2}, {6, 3}, {6, 6}, {5, 1}, {32, 4}};
    for (size_t n = 0; n < sizeof groups / sizeof *groups; n++) {
        for (int queries = 1; queries <= 19; queries += 6) {
            attn_desc d = make_desc(2, groups[n][0], groups[n][1], queries, 40, 8, 6);
            ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
            check_everywhere(&d, "grouped heads");
            test_release();
        }
    }
}

/* Rows of several chunks of keys, whole, causal, in a window, and with a tail of one key. */
static void long_rows(void) {
    static const int keys[] = {511, 512, 513, 767, 1025, 1300};
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) {
        for (int variant = 0; variant < 4; variant++) {
            int queries = variant == 0 ? 1 : variant == 1 ? 3 : 18;
            attn_desc d = make_desc(1, 2, 1, queries, keys[n], 6, 5);
            ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
            d.align = ATTN_ALIGN_BOTTOM_RIGHT;
            d.causal = variant >= 2;
            d.window = variant == 3;
            d.window_left = d.window ? 300 : 0;
            d.window_right = d.window ? ATTN_UNBOUNDED : 0;
            check_everywhere(&d, "long rows");
            test_release();
        }
    }
}

static void every_layout(void) {
    for (int how = 0; how < LAYOUT_COUNT; how++) {
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
            attn_desc d = make_desc(2, 4, 2, 19, 35, 10, 12);
            set_score(&d, score, 7);
            ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
            attn_desc other = d;
            layout copied = how == LAYOUT_BROADCAST ? LAYOUT_PACKED : (layout)how;
            if (score == ATTN_SCORE_GIVEN) other.given_scores = copy_view(&d.given_scores, copied);
            else {
                if (how == LAYOUT_BROADCAST) d.q.stride[1] = d.k.stride[0] = d.v.stride[2] = 0;
                other.q = copy_view(&d.q, copied);
                other.k = copy_view(&d.k, copied);
                other.v = copy_view(&d.v, copied);
            }
            check_everywhere(&d, ref_score_names[score]);
            ask_for(&other, RESULT_ALL, (layout)how);
            check_everywhere(&other, ref_score_names[score]);
            if (!check_same_results(&d, &other, "packed and in another layout")) ref_print(&other);
            test_release();
        }
    }
}

static void packed_qkv(void) {
    enum { B = 2, S = 21, H = 3, D = 9 };
    float *qkv = test_floats(B * S * 3 * H * D);
    attn_desc d = make_desc(B, H, H, S, S, D, D);
    d.q = attn_view_qkv(qkv, 0, B, S, H, D);
    d.k = attn_view_qkv(qkv, 1, B, S, H, D);
    d.v = attn_view_qkv(qkv, 2, B, S, H, D);
    d.out = attn_out_bshd((float *)test_guarded(B * S * H * D * sizeof(float)), B, S, H, D);
    check_everywhere(&d, "packed QKV");
}

/* Parameters of a score per head, and those that may be absent. */
static void parameters(void) {
    for (int variant = 0; variant < 16; variant++) {
        attn_desc d = make_desc(2, 4, 2, 10, 19, 8, 3);
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        d.score = ATTN_SCORE_ADDITIVE;
        if (variant & 1) d.w_q = make_filled(LAYOUT_GAPS, 0.5, 3, 4, 8, 8, 0);
        if (variant & 2) d.w_k = make_filled(LAYOUT_MIXED, 0.5, 3, 4, 8, 8, 0);
        d.w_v =
            variant & 4 ? make_filled(LAYOUT_REVERSED, 1, 2, 4, 8, 0, 0) : make_filled(LAYOUT_GAPS, 1, 1, 8, 0, 0, 0);
        if (variant & 8) d.hidden_bias = make_filled(LAYOUT_MIXED, 1, 2, 4, 8, 0, 0);
        check_everywhere(&d, "additive, identities");

        d.w_q = make_filled(LAYOUT_MIXED, 0.5, 2 + (variant & 1), variant & 1 ? 4 : 20, variant & 1 ? 20 : 5, 5, 0);
        d.w_k = make_filled(LAYOUT_GAPS, 0.5, 2, 20, 8, 0, 0);
        d.w_v = make_filled(LAYOUT_PACKED, 1, 1, 20, 0, 0, 0);
        d.hidden_bias = variant & 8 ? make_filled(LAYOUT_PACKED, 1, 1, 20, 0, 0, 0) : d.sink;
        d.q = make_filled(LAYOUT_PACKED, 1, 4, 2, 4, 10, 5);
        check_everywhere(&d, "additive, queries and keys of different sizes");

        d.score = ATTN_SCORE_BILINEAR;
        d.bilinear =
            variant & 1 ? make_filled(LAYOUT_MIXED, 0.5, 3, 4, 5, 8, 0) : make_filled(LAYOUT_GAPS, 1, 2, 5, 8, 0, 0);
        memset(&d.w_q, 0, sizeof d.w_q);
        memset(&d.w_k, 0, sizeof d.w_k);
        memset(&d.w_v, 0, sizeof d.w_v);
        memset(&d.hidden_bias, 0, sizeof d.hidden_bias);
        check_everywhere(&d, "bilinear");
        test_release();
    }
}

static void widths(void) {
    static const float sigmas[] = {0, 0.5f, 1, 2, 4, 1.3f, 2.7f};
    for (size_t n = 0; n < sizeof sigmas / sizeof *sigmas; n++) {
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
            if (!ref_is_distance(score)) continue;
            attn_desc d = make_desc(1, 3, 3, 18, 40, 2, 3);
            set_score(&d, score, 0);
            fill(&d.q, draw_quarters, -1.5, 1.5);
            fill(&d.k, draw_quarters, -1.5, 1.5);
            d.sigma = sigmas[n];
            ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
            check_everywhere(&d, ref_score_names[score]);
            d.sigma = 0;
            d.sigma_per_head = make_view(ATTN_F32, LAYOUT_REVERSED, 1, 3, 0, 0, 0);
            for (int h = 0; h < 3; h++)
                put_at(&d.sigma_per_head, 0, 0, 0, h, h == 1 ? 1 : sigmas[n] > 0 ? sigmas[n] : 8);
            check_everywhere(&d, ref_score_names[score]);
            test_release();
        }
    }
}

/* Leaving results out changes no bit of the others: all subsets, with options that reach every stage. */
static void results_left_out(void) {
    static const int32_t scores[] = {ATTN_SCORE_SCALED_DOT, ATTN_SCORE_COSINE,     ATTN_SCORE_BILINEAR,
                                     ATTN_SCORE_ADDITIVE,   ATTN_SCORE_TRIANGULAR, ATTN_SCORE_GIVEN};
    for (size_t n = 0; n < sizeof scores / sizeof *scores; n++) {
        attn_desc d = make_desc(1, 2, 1, 18, 300, 6, 5);
        set_score(&d, scores[n], 5);
        d.softcap = 3;
        d.bias = make_filled(LAYOUT_PACKED, 1, 2, 18, 300, 0, 0);
        d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 290, 290);
        d.dropout = 0.25f;
        d.seed = test_bits();
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        check_everywhere(&d, ref_score_names[scores[n]]);
        attn_desc some = d;
        for (int isa = 0; isa < test_isa_count(); isa++) {
            for (int set = 1; set < RESULT_ALL; set++) {
                /* each set meets the slow kernels, whose driver is the same, under two of the scores */
                if (isa == 0 && test_isa_count() > 1 && (set + (int)n) % 3) continue;
                some.v = d.v;
                if (!(set & RESULT_OUT)) memset(&some.v, 0, sizeof some.v); /* not needed then */
                ask_for(&some, set, set % 2 ? LAYOUT_PACKED : LAYOUT_MIXED);
                some.isa = (int32_t)test_isa(isa);
                run_desc(&some, "a subset of the results");
                if (!check_same_results(&d, &some, "a subset of the results")) ref_print(&some);
            }
        }
        test_release();
    }
}

/* The bound of ATTN_SCORE_LIST at sizes as they are used: common numbers, peaked rows, and inputs far from
   the origin (coordinates in the thousands for the distance kernels). */
static double worst[ATTN_SCORE_COUNT];

static void accuracy_at(int32_t score, int peaked, int64_t dim, int64_t sk) {
    attn_isa best = test_isa(test_isa_count() - 1);
    attn_desc d = make_desc(1, 2, 1, best == ATTN_ISA_SCALAR ? 3 : 12, sk, dim, 64);
    double width = 1 / sqrt((double)dim);
    ref_result r;
    set_score(&d, score, 48);
    if (peaked && score == ATTN_SCORE_GIVEN) fill(&d.given_scores, draw_normal, 3, 20);
    else if (peaked && ref_is_distance(score)) {
        fill(&d.q, draw_normal, 4096, width);
        fill(&d.k, draw_normal, 4096, width);
    } else if (peaked && score != ATTN_SCORE_CONSTANT) {
        fill(&d.q, draw_normal, 0.5, 3);
        fill(&d.k, draw_normal, -0.5, 2);
    }
    ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS | RESULT_SCORES, LAYOUT_PACKED);
    ref_forward(&d, &r);
    worst[score] = fmax(worst[score], check_on(&d, &r, best, ref_score_names[score]));
    ref_free(&r);
    test_release();
}

static void accuracy(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        worst[score] = 0;
        for (int peaked = 0; peaked < 2; peaked++) {
            accuracy_at(score, peaked, 64, 2000);
            accuracy_at(score, peaked, 128, 700);
            accuracy_at(score, peaked, 3, 1100);
        }
        ref_print_worst(score, worst[score]);
    }
}

const test_case suite_forward[] = {
    {"forward.every_score", every_score}, {"forward.every_d", every_d},
    {"forward.every_dv", every_dv},       {"forward.odd_sizes", odd_sizes},
    {"forward.no_size", no_size},         {"forward.grouped_heads", grouped_heads},
    {"forward.long_rows", long_rows},     {"forward.every_layout", every_layout},
    {"forward.packed_qkv", packed_qkv},   {"forward.parameters", parameters},
    {"forward.widths", widths},           {"forward.results_left_out", results_left_out},
    {"forward.accuracy", accuracy},       {0, 0},
};
