/* special.c - rows without keys, sinks, NaN and infinity where they matter and where they must not, memory
   that may not be read, numbers at the ends of the range. */
#include "cases.h"

enum { SQ = EMPTY_QUERIES, SK = EMPTY_KEYS, LONG = 300 };

static uint32_t float_bits(const attn_out *o, int64_t b, int64_t h, int64_t i, int64_t c) {
    attn_view v = attn_view_of(*o);
    const int64_t index[4] = {b, h, i, c};
    return bits_at(&v, index);
}

static uint32_t lse_bits(const attn_out *o, int64_t b, int64_t h, int64_t i) {
    attn_view v = attn_view_of(*o);
    const int64_t index[4] = {b, h, i, 0};
    return bits_at(&v, index);
}

/* ---- rows without a key */

/* The rows that have no key, found from the reference, hold exactly what the policy says. */
static void check_empty_rows(const attn_desc *d, const char *what) {
    ref_result r;
    int64_t rows = 0;
    ref_forward(d, &r);
    for (int64_t n = 0; n < r.b * r.h * r.sq; n++) {
        int64_t b = n / (r.h * r.sq), h = n / r.sq % r.h, i = n % r.sq;
        uint32_t nothing = d->empty == ATTN_EMPTY_NAN ? 0x7fc00000u : 0;
        if (r.lse[n] != -INFINITY) continue;
        rows++;
        CHECKF(lse_bits(&d->lse, b, h, i) == 0xff800000u, "%s: lse of an empty row is not -inf", what);
        if (d->empty == ATTN_EMPTY_UNIFORM) continue;
        for (int64_t c = 0; c < r.dv; c++)
            CHECKF(float_bits(&d->out, b, h, i, c) == nothing, "%s: out of an empty row", what);
        for (int64_t j = 0; j < r.sk; j++)
            CHECKF(float_bits(&d->weights, b, h, i, j) == nothing, "%s: weights of an empty row", what);
    }
    CHECKF(rows > 0, "%s: the test has no empty row", what);
    ref_free(&r);
}

static void empty_rows(void) {
    static const char *const names[NO_COUNT] = {"key length 0",
                                                "key length 0 per query",
                                                "mask 0",
                                                "mask 0 in rows",
                                                "positions before all keys",
                                                "window beside all keys",
                                                "query length",
                                                "bias -inf",
                                                "given scores -inf",
                                                "kernel of weight 0"};
    for (int how = 0; how < NO_COUNT; how++) {
        for (int32_t policy = 0; policy < ATTN_EMPTY_COUNT; policy++) {
            attn_desc d = without_keys(how);
            d.empty = policy;
            ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
            check_everywhere(&d, names[how]);
            check_empty_rows(&d, names[how]);
            ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_GAPS); /* without reading all keys */
            check_everywhere(&d, names[how]);
            check_empty_rows(&d, names[how]);
            test_release();
        }
    }
}

/* Sums of many like terms, where rounding always goes the same way: an average over 20000 keys, of rows without a key
   under UNIFORM and of equal scores. */
static void long_averages(void) {
    for (int variant = 0; variant < 4; variant++) {
        attn_desc d = make_desc(1, 1, 1, 2, 20000, 1, 2);
        attn_view column = attn_view_slice(d.v, 3, 0, 1);
        fill(&column, draw_normal, 0.3, 0); /* the other column stays random */
        if (variant & 1) set_score(&d, ATTN_SCORE_CONSTANT, 0);
        if (variant & 2) d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 0, 0);
        d.empty = ATTN_EMPTY_UNIFORM;
        ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
        check_everywhere(&d, "an average over many keys");
        test_release();
    }
}

/* The zero row of the default policy leaves the rows beside it as they are. */
static void empty_rows_leave_others(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, 1, 1, SQ, SK, 8, 7);
        d.isa = (int32_t)test_isa(n);
        run_desc(&d, "all rows");
        attn_desc some = copy_results(&d);
        some.mask = make_ints(ATTN_U8, 2, SQ, 1, 0, 0, 1, 1);
        for (int i = 0; i < SQ; i += 2) put_at(&some.mask, 0, 0, i, 0, 0);
        poison_results(&some);
        run_desc(&some, "every other row empty");
        for (int i = 1; i < SQ; i += 2) {
            attn_out a = slice_out_row(d.out, 0, 0, i), b = slice_out_row(some.out, 0, 0, i);
            check_same(&a, &b, "a row between empty ones");
        }
        test_release();
    }
}

/* Where only the output is asked for, in tiles of few rows and of many: a row without a key is 0, not 0 times 1/0. */
static void empty_rows_alone(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        for (int rows = SQ; rows <= 40; rows += 40 - SQ) {
            attn_desc d = make_desc(1, 1, 1, rows, SK, 8, 7);
            d.mask = make_ints(ATTN_U8, 2, rows, 1, 0, 0, 1, 1);
            for (int i = 0; i < rows; i += 2) put_at(&d.mask, 0, 0, i, 0, 0);
            d.isa = (int32_t)test_isa(n);
            ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
            run_desc(&d, "output alone");
            for (int i = 0; i < rows; i++)
                for (int c = 0; c < 7; c++)
                    CHECKF((float_bits(&d.out, 0, 0, i, c) == 0) == (i % 2 == 0), "row %d of %d", i, rows);
            test_release();
        }
    }
}

/* ---- sinks */
static void sinks(void) {
    static const float values[] = {0, 3, -3, 80, -80, 1e4f, -1e4f, -1e30f, 1e30f, -INFINITY};
    for (size_t n = 0; n < sizeof values / sizeof *values; n++) {
        for (int how = -1; how < NO_COUNT; how++) {
            attn_desc d = how < 0 ? make_desc(2, 2, 1, SQ, LONG, 6, 5) : without_keys(how);
            d.sink = make_ints(ATTN_F32, 1, 2, 0, 0, 0, 1, 1);
            put_at(&d.sink, 0, 0, 0, 0, (double)values[n]);
            d.empty = (int32_t)n % ATTN_EMPTY_COUNT;
            ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
            check_everywhere(&d, "sink");
            test_release();
        }
    }
}

/* A row with a finite sink and no key: out and weights 0 under every policy, lse the sink itself. */
static void sink_alone(void) {
    for (int32_t policy = 0; policy < ATTN_EMPTY_COUNT; policy++) {
        for (int n = 0; n < test_isa_count(); n++) {
            attn_desc d = without_keys(NO_MASK);
            d.sink = make_ints(ATTN_F32, 1, 2, 0, 0, 0, -4, -4);
            d.empty = policy;
            d.isa = (int32_t)test_isa(n);
            ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
            run_desc(&d, "sink alone");
            CHECK(lse_bits(&d.lse, 1, 1, SQ - 1) == 0xc0800000u);
            CHECK(float_bits(&d.out, 1, 1, SQ - 1, 4) == 0);
            CHECK(float_bits(&d.weights, 1, 1, SQ - 1, SK - 1) == 0);
            test_release();
        }
    }
}

/* ---- NaN and infinity */

/* The rows of two runs that do not attend to key `dirty` have the same bits; those that do differ by the
 * reference. */
static void check_rows_untouched(const attn_desc *clean, const attn_desc *dirty, int64_t row, int64_t key) {
    ref_result r;
    ref_sizes(clean, &r);
    for (int64_t i = 0; i < r.sq; i++) {
        if (row >= 0 ? i == row : ref_allowed(clean, &r, 0, 0, i, key)) continue;
        attn_out a = slice_out_row(clean->out, 0, 0, i), b = slice_out_row(dirty->out, 0, 0, i);
        check_same(&a, &b, "a row that a NaN elsewhere must not reach");
    }
}

static void nan_somewhere(int32_t score, int where, float x) {
    attn_desc d = make_desc(1, 1, 1, SQ, LONG, 7, 5);
    int64_t row = test_int(0, SQ - 1), key = test_int(0, LONG - 1), column = test_int(0, 4);
    set_score(&d, score, 6);
    d.mask = make_ints(ATTN_U8, 2, SQ, LONG, 0, 0, 0, 1);
    for (int isa = 0; isa < test_isa_count(); isa++) {
        attn_desc clean = d, dirty = d;
        clean.isa = dirty.isa = (int32_t)test_isa(isa);
        ask_for(&clean, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
        ask_for(&dirty, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
        run_desc(&clean, "clean");
        dirty.q = d.q.rank ? copy_view(&d.q, LAYOUT_PACKED) : d.q;
        dirty.k = d.k.rank ? copy_view(&d.k, LAYOUT_PACKED) : d.k;
        dirty.v = copy_view(&d.v, LAYOUT_PACKED);
        if (score == ATTN_SCORE_GIVEN) dirty.given_scores = copy_view(&d.given_scores, LAYOUT_PACKED);
        if (where == 2) put_float(&dirty.v, 0, 0, key, column, x);
        else if (score == ATTN_SCORE_GIVEN) put_float(&dirty.given_scores, 0, 0, row, key, x);
        else put_float(where == 0 ? &dirty.q : &dirty.k, 0, 0, where == 0 ? row : key, 3, x);
        ref_result r;
        ref_forward(&dirty, &r);
        check_on(&dirty, &r, test_isa(isa), ref_score_names[score]);
        ref_free(&r);
        int by_row = where == 0 || (score == ATTN_SCORE_GIVEN && where == 1);
        check_rows_untouched(&clean, &dirty, by_row ? row : -1, key);
    }
    test_release();
}

static void not_finite(void) {
    const float values[] = {odd_nan(), INFINITY, -INFINITY};
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int where = 0; where < 3; where++)
            for (int n = 0; n < 3; n++)
                for (int again = 0; again < 2; again++) nan_somewhere(score, where, values[n]);
}

/* A NaN in V spoils its column, of the rows that attend to its key. */
static void nan_in_a_column(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, 1, 1, SQ, SK, 4, 21);
        d.isa = (int32_t)test_isa(n);
        d.causal = 1;
        put_float(&d.v, 0, 0, 9, 13, odd_nan());
        run_desc(&d, "NaN in V");
        for (int i = 0; i < SQ; i++)
            for (int c = 0; c < 21; c++) {
                uint32_t bits = float_bits(&d.out, 0, 0, i, c);
                int spoilt = i >= 9 && c == 13;
                CHECKF((bits == 0x7fc00000u) == spoilt, "out[%d,%d] has the bits %08x", i, c, (unsigned)bits);
            }
        test_release();
    }
}

/* NaN, infinity and huge numbers in K and V of keys that no row may attend to: the bits are those without.
   Excluded lanes lie inside tiles and fill whole ones. */
static void exclude(attn_desc *d, int how, int64_t key) {
    if (how == 0) put_at(&d->mask, 0, 0, 0, key, 0);
    else put_at(&d->bias, 0, 0, 0, key, -INFINITY);
}

static void excluded_keys(void) {
    const float values[] = {odd_nan(), INFINITY, -3e38f};
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        for (int how = 0; how < 2; how++) {
            attn_desc d = make_desc(1, 2, 1, SQ, LONG, 7, 5);
            set_score(&d, score, 6);
            if (how == 0) d.mask = make_ints(ATTN_U8, 1, LONG, 0, 0, 0, 1, 1);
            else d.bias = make_filled(LAYOUT_PACKED, 1, 1, LONG, 0, 0, 0);
            for (int j = 0; j < LONG; j++)
                if (test_int(0, 2) == 0 || (j >= 16 && j < 64) || j >= LONG - 20) exclude(&d, how, j);
            ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS | RESULT_MASKED, LAYOUT_PACKED);
            check_everywhere(&d, ref_score_names[score]);
            attn_desc clean = copy_results(&d);
            ref_result r;
            ref_sizes(&d, &r);
            for (int j = 0; j < LONG; j++) {
                float x = values[test_int(0, 2)];
                if (ref_allowed(&d, &r, 0, 0, 0, j)) continue;
                for (int c = 0; c < 7 && d.k.rank; c++) put_float(&d.k, 0, 0, j, c, x);
                for (int i = 0; i < SQ && !d.k.rank; i++) put_float(&d.given_scores, 0, 1, i, j, x);
                for (int c = 0; c < 5; c++) put_float(&d.v, 0, 0, j, c, x);
            }
            check_everywhere(&d, ref_score_names[score]);
            check_same_results(&clean, &d, "what excluded keys hold");
            test_release();
        }
    }
}

/* The same for keys that only some rows exclude: by causal, a window, lengths per query; a NaN key spoils
   exactly the rows that may attend to it. */
static void excluded_by_row(void) {
    for (int variant = 0; variant < 12; variant++) {
        attn_desc d = make_desc(1, 1, 1, 33, 70, 5, 4);
        int64_t key = test_int(0, 69);
        d.causal = variant % 3 == 0;
        d.window = variant % 3 == 1;
        d.window_left = test_int(0, 9);
        d.window_right = test_int(0, 9);
        if (!d.window) d.window_left = d.window_right = 0;
        if (variant % 3 == 2) d.key_lengths = make_ints(ATTN_I32, 2, 1, 33, 0, 0, 0, 70);
        d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        for (int n = 0; n < test_isa_count(); n++) {
            attn_desc clean = d, dirty = d;
            clean.isa = dirty.isa = (int32_t)test_isa(n);
            ask_for(&clean, RESULT_OUT, LAYOUT_PACKED);
            ask_for(&dirty, RESULT_OUT, LAYOUT_PACKED);
            dirty.k = copy_view(&d.k, LAYOUT_PACKED);
            dirty.v = copy_view(&d.v, LAYOUT_PACKED);
            put_float(&dirty.k, 0, 0, key, 2, odd_nan());
            put_float(&dirty.v, 0, 0, key, 1, odd_nan());
            run_desc(&clean, "clean");
            ref_result r;
            ref_forward(&dirty, &r);
            check_on(&dirty, &r, test_isa(n), "a NaN key that some rows exclude");
            ref_free(&r);
            check_rows_untouched(&clean, &dirty, -1, key);
        }
        test_release();
    }
}

/* ---- keys on pages that cannot be read */

static void unmapped_case(int32_t score, int variant) {
    enum { KEYS = 3000, D = 6, DV = 5 };
    static const int64_t ends[] = {1, 15, 16, 17, 128, 129, 300};
    int64_t first, end = ends[test_int(0, 6)], sq = test_int(1, 40);
    attn_desc d = make_desc(1, 1, 1, sq, 1, D, DV);
    set_score(&d, score, 4);
    limit_keys(&d, variant, &first, &end);
    int low = test_int(0, 1);
    d.k = unmapped_beyond(first, end, KEYS, D, low);
    d.v = unmapped_beyond(first, end, KEYS, DV, low);
    ask_for(&d, RESULT_OUT | RESULT_LSE | (test_int(0, 1) ? RESULT_WEIGHTS | RESULT_MASKED : 0), LAYOUT_PACKED);
    check_everywhere(&d, ref_score_names[score]);
    test_release();
}

/* Positions of their own: no row reaches the keys between two ranges, which lie in pages that are closed. */
static void unmapped_between(void) {
    enum { KEYS = 200, D = 64, NEAR = 10, FAR = 190 };
    for (int rows = 5; rows <= 40; rows += 7) {
        attn_desc d = make_desc(1, 1, 1, rows, KEYS, D, D);
        d.window = 1;
        d.window_left = d.window_right = 3;
        d.align = ATTN_ALIGN_POSITIONS;
        d.positions = make_ints(ATTN_I64, 2, 1, rows, 0, 0, 0, 0);
        for (int i = 0; i < rows; i++) put_at(&d.positions, 0, 0, 0, i, i % 3 == 1 ? FAR : NEAR);
        attn_view *views[2] = {&d.k, &d.v};
        for (int n = 0; n < 2; n++) {
            float *row = (float *)(uintptr_t)views[n]->data;
            test_no_access(row + (NEAR + 4) * D, (FAR - NEAR - 7) * D * sizeof *row);
        }
        ask_for(&d, RESULT_OUT | RESULT_LSE | (rows % 2 ? RESULT_WEIGHTS | RESULT_MASKED : 0), LAYOUT_PACKED);
        check_everywhere(&d, "keys between two ranges");
        test_release();
    }
}
static void unmapped(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int variant = 0; variant < KEY_LIMITS; variant++)
            for (int again = 0; again < 4 && score != ATTN_SCORE_GIVEN; again++) unmapped_case(score, variant);
}

/* Given scores and V beyond the lengths. */
static void unmapped_given(void) {
    enum { KEYS = 4000, LENGTH = 140 };
    attn_desc d = given_beyond(LENGTH, KEYS);
    ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
    check_everywhere(&d, "given scores beyond the length");
}

/* ---- windows: every edge, inside tiles and on their borders */
static void window_edges(void) {
    for (int n = 0; n < 120; n++) {
        attn_desc d = make_desc(1, 1, 1, 35, 70, 3, 2);
        d.window = 1;
        d.window_left = n % 5 == 4 ? ATTN_UNBOUNDED : n % 40;
        d.window_right = n % 7 == 6 ? ATTN_UNBOUNDED : n / 3;
        d.causal = n % 11 == 0;
        d.align = n % 3 ? n % 3 : ATTN_ALIGN_TOP_LEFT;
        if (d.align == ATTN_ALIGN_POSITIONS) d.positions = make_ints(ATTN_I32, 1, 1, 0, 0, 0, n - 40, n - 40);
        ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS | RESULT_MASKED, LAYOUT_PACKED);
        check_everywhere(&d, "window");
        test_release();
    }
}

/* Positions and windows at the ends of 64 bits: nothing wraps. */
static void far_positions(void) {
    static const int64_t far = (int64_t)1 << 62, positions[] = {far, -far, far - 5, -far + 5, (int64_t)1 << 40, 0},
                         sides[] = {0, 5, INT64_MAX, ATTN_UNBOUNDED};
    for (int n = 0; n < 6 * 4 * 4 * 2; n++) {
        int64_t p = positions[n % 6], left = sides[n / 6 % 4], right = sides[n / 24 % 4];
        attn_desc d = make_desc(1, 1, 1, 1, 20, 3, 2);
        d.align = ATTN_ALIGN_POSITIONS;
        d.positions = one_int(p);
        d.window = 1;
        d.window_left = left;
        d.window_right = right;
        d.causal = n / 96;
        ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
        check_everywhere(&d, "far positions");
        test_release();
    }
}

/* ---- the ends of the range */

/* A score of -inf has weight 0 wherever it comes from: bias, a given score, a softcap's neighbour, an
 * infinite key. */
static void minus_infinity(void) {
    for (int variant = 0; variant < 8; variant++) {
        attn_desc d = make_desc(1, 1, 1, SQ, LONG, 5, 4);
        if (variant & 1) set_score(&d, ATTN_SCORE_GIVEN, 0);
        if (variant & 1)
            for (int j = 0; j < LONG; j += 3) put_at(&d.given_scores, 0, 0, j % SQ, j, -INFINITY);
        else {
            attn_view first = attn_view_slice(d.q, 3, 0, 1);
            fill(&first, draw_int, 1, 2); /* positive, so that the key below scores -inf everywhere */
            put_at(&d.k, 0, 0, 17, 0, -INFINITY);
        }
        if (variant & 2) {
            d.bias = make_filled(LAYOUT_PACKED, 1, 2, SQ, LONG, 0, 0);
            for (int j = 0; j < LONG; j += 2) put_at(&d.bias, 0, 0, j % SQ, j, -INFINITY);
        }
        if (variant & 4) d.softcap = 4; /* a product of -inf is -4 then, and counts; a given one excludes */
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        check_everywhere(&d, "-inf");
        test_release();
    }
}

static void huge_scores(void) {
    static const double sizes[] = {1e2, 1e4, 1e9, 1e30, 1e37};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        attn_desc d = make_desc(1, 1, 1, SQ, LONG, 5, 4);
        set_score(&d, ATTN_SCORE_GIVEN, 0);
        fill(&d.given_scores, draw_normal, 0, sizes[n]);
        for (int i = 0; i < SQ; i++) put_at(&d.given_scores, 0, 0, i, 11 * i, 3 * sizes[n]); /* ties of the largest */
        for (int i = 0; i < SQ; i++) put_at(&d.given_scores, 0, 0, i, 11 * i + 90, 3 * sizes[n]);
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        check_everywhere(&d, "huge scores");
        test_release();
    }
}

/* A weight is 0 or at least the smallest normal number, also when a sum halves it. */
static void tiny_weights(void) {
    attn_desc d = make_desc(1, 1, 1, SQ, LONG, 5, 4);
    set_score(&d, ATTN_SCORE_GIVEN, 0);
    for (int i = 0; i < SQ; i++)
        for (int j = 0; j < LONG; j++) put_at(&d.given_scores, 0, 0, i, j, j <= i ? 0 : -80 - 0.1 * (j % 120));
    ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
    check_everywhere(&d, "weights that underflow");
    for (int i = 0; i < SQ; i++) {
        int zeros = 0;
        for (int j = 0; j < LONG; j++) {
            uint32_t bits = float_bits(&d.weights, 0, 0, i, j);
            zeros += bits == 0;
            CHECKF(bits == 0 || (bits >= 0x00800000u && bits <= 0x3f800000u), "weight %d of row %d has the bits %08x",
                   j, i, (unsigned)bits);
        }
        CHECKF(zeros > 0 && zeros < LONG, "%d of %d weights underflow", zeros, LONG);
    }
}

/* Values too small to be normal numbers are added up as they are. */
static void subnormal_values(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, 1, 1, SQ, SK, 5, 4);
        ref_result r;
        fill(&d.v, draw_normal, 0, 1e-39);
        d.isa = (int32_t)test_isa(n);
        run_desc(&d, "subnormal values");
        ref_forward(&d, &r);
        attn_view out = attn_view_of(d.out);
        for (int at = 0; at < SQ * 4; at++)
            CHECK_CLOSE(ref_at(&out, 0, 0, at / 4, at % 4), r.out[at], 2e-5 * r.v_max[at / 4] + SK * 0x1p-149);
        ref_free(&r);
        test_release();
    }
}

/* An average of values near the largest float is one of them. */
/* As large as the header allows: the sum over the keys stays below 3e38. */
static void huge_values(void) {
    attn_desc d = make_desc(1, 1, 1, SQ, LONG, 5, 4);
    fill(&d.v, draw_normal, 2e38 / LONG, 1e37 / LONG);
    check_everywhere(&d, "huge values");
}

static void softcap_extremes(void) {
    static const float caps[] = {1e-30f, 1e-3f, 1, 50, 1e10f, 1e30f};
    for (size_t n = 0; n < sizeof caps / sizeof *caps; n++) {
        attn_desc d = make_desc(1, 1, 1, SQ, SK, 5, 4);
        put_at(&d.q, 0, 0, 3, 0, 1e15);
        d.softcap = caps[n];
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        check_everywhere(&d, "softcap");
        test_release();
    }
}

/* The ends of the widths that are taken: equal vectors are at distance 0. */
static void sigma_extremes(void) {
    static const float sigmas[] = {1e-18f, 1e-15f, 1e-10f, 1e10f, 1e15f, 1e18f};
    for (size_t n = 0; n < sizeof sigmas / sizeof *sigmas; n++) {
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
            if (!ref_is_distance(score)) continue;
            attn_desc d = make_desc(1, 1, 1, SQ, SK, 2, 3);
            d.score = score;
            d.sigma = sigmas[n];
            fill(&d.q, draw_quarters, 0, 1);
            fill(&d.k, draw_quarters, 0, 1);
            for (int at = 0; at < SQ * 2; at++) put_at(&d.k, 0, 0, at / 2, at % 2, ref_at(&d.q, 0, 0, at / 2, at % 2));
            ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
            char what[60];
            snprintf(what, sizeof what, "%s, sigma %g", ref_score_names[score], (double)sigmas[n]);
            check_everywhere(&d, what);
            test_release();
        }
    }
}

/* -1e9 is data: beside ordinary scores it has no weight, alone it has all of it. */
static void minus_a_billion(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, 1, 1, 2, SK, 5, 1);
        d.isa = (int32_t)test_isa(n);
        set_score(&d, ATTN_SCORE_GIVEN, 0);
        fill(&d.given_scores, draw_int, 0, 0);
        d.bias = make_ints(ATTN_F32, 2, 2, SK, 0, 0, -1000000000, -1000000000);
        put_at(&d.bias, 0, 0, 1, 5, 0);
        ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
        run_desc(&d, "-1e9");
        attn_view w = attn_view_of(d.weights), lse = attn_view_of(d.lse);
        for (int j = 0; j < SK; j++) {
            CHECK_CLOSE(ref_at(&w, 0, 0, 0, j), 1.0 / SK, 1e-8);
            CHECK_CLOSE(ref_at(&w, 0, 0, 1, j), j == 5, 0);
        }
        CHECK_CLOSE(ref_at(&lse, 0, 0, 0, 0), -1e9, 64);
        CHECK_CLOSE(ref_at(&lse, 0, 0, 0, 1), 0, 0);
        test_release();
    }
}

/* Cosine takes no notice of a vector's length: of 0 it is 0, of tiny and of huge ones what it is of ordinary
 * ones. */
static void cosine_lengths(void) {
    static const double lengths[] = {1, 1e-10, 1e-19, 1e-30, 1e10, 1e19, 1e30};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        attn_desc d = make_desc(1, 1, 1, SQ, SK, 6, 3);
        d.score = ATTN_SCORE_COSINE;
        fill(&d.q, draw_normal, 0, lengths[n]);
        attn_view zero = attn_view_slice(d.k, 2, 4, 1);
        fill(&zero, draw_int, 0, 0);
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        char what[40];
        snprintf(what, sizeof what, "cosine, queries of length %g", lengths[n]);
        check_everywhere(&d, what);
        attn_view q = d.q;
        fill(&d.k, draw_normal, 0, lengths[n]);
        fill(&q, draw_normal, 0, 1);
        snprintf(what, sizeof what, "cosine, keys of length %g", lengths[n]);
        check_everywhere(&d, what);
        test_release();
    }
}

/* Additive scores where e^2a and e^2b leave the range of float although a + b does not. */
static void additive_extremes(void) {
    static const double offsets[] = {0, 10, 20, 44, 100, 1000};
    for (size_t n = 0; n < sizeof offsets / sizeof *offsets; n++) {
        for (int only_some = 0; only_some < 2; only_some++) {
            attn_desc d = additive_far_apart(SQ, SK, offsets[n], only_some);
            ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
            check_everywhere(&d, "additive, far apart");
            test_release();
        }
    }
}

/* The kernels' edges: u = 1 exactly is inside the boxcar and has no weight under the others; the softcap does
   not bring a key without weight back. */
static void kernel_edges(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        for (int softcap = 0; softcap < 2 && ref_is_distance(score); softcap++) {
            attn_desc d = make_desc(1, 1, 1, 1, 9, 1, 2);
            d.score = score;
            d.softcap = softcap ? 1.5f : 0;
            put_at(&d.q, 0, 0, 0, 0, 100);
            for (int j = 0; j < 9; j++) put_at(&d.k, 0, 0, j, 0, 100 + (j - 4) * 0.5);
            ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
            check_everywhere(&d, ref_score_names[score]);
            for (int j = 0; j < 9; j++) {
                int inside =
                    score == ATTN_SCORE_GAUSSIAN || abs(j - 4) < 2 || (abs(j - 4) == 2 && score == ATTN_SCORE_BOXCAR);
                CHECKF((float_bits(&d.weights, 0, 0, 0, j) != 0) == inside, "%s: weight %d", ref_score_names[score], j);
            }
            test_release();
        }
    }
}

/* The dropout of 1 gives zeros, not the NaN of 0 * 1/0; that of 0 changes no bit. */
static void dropout_ends(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, 2, 1, SQ, SK, 5, 4);
        d.isa = (int32_t)test_isa(n);
        d.weights_after_dropout = 1;
        ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
        run_desc(&d, "no dropout");
        attn_desc all = copy_results(&d);
        all.dropout = 1;
        all.seed = 7;
        run_desc(&all, "dropout 1");
        check_same(&d.lse, &all.lse, "the log-sum-exp is that before dropout");
        for (int i = 0; i < SQ; i++) {
            for (int c = 0; c < 4; c++) CHECK(float_bits(&all.out, 0, 1, i, c) == 0);
            for (int j = 0; j < SK; j++) CHECK(float_bits(&all.weights, 0, 1, i, j) == 0);
        }
        all.dropout = 0;
        poison_results(&all);
        run_desc(&all, "dropout 0 with a seed");
        check_same_results(&d, &all, "dropout 0");
        test_release();
    }
}

/* Origins count modulo 2^32, also in the middle of a row. */
static void dropout_wraps(void) {
    attn_desc d = make_desc(1, 2, 1, SQ, SK, 5, 4);
    d.dropout = 0.5f;
    d.seed = test_bits();
    d.dropout_origin[3] = ((int64_t)1 << 32) - 20;
    d.dropout_origin[2] = ((int64_t)1 << 32) - 3;
    check_everywhere(&d, "an origin that wraps");
    attn_desc same = copy_results(&d), other = copy_results(&d);
    for (int n = 0; n < 4; n++) same.dropout_origin[n] += (int64_t)3 << 32;
    run_desc(&same, "an origin beyond 2^32");
    check_same_results(&d, &same, "an origin beyond 2^32");
    other.dropout_origin[2]++;
    run_desc(&other, "another origin");
    CHECK(float_bits(&d.out, 0, 0, 1, 0) != float_bits(&other.out, 0, 0, 1, 0));
}

/* ALiBi from a position so far away that distances are rounded: scores are the same in the forward pass and in the
   gradients, whatever blocks of keys these take, so no weight is above 1. */
static void far_gradients(void) {
    static const int64_t positions[] = {INT32_MAX, INT32_MAX - 2, (int64_t)1 << 40, -((int64_t)1 << 35)};
    for (int n = 0; n < 4; n++)
        for (int isa = 0; isa < test_isa_count(); isa++) {
            attn_desc o;
            memset(&o, 0, sizeof o);
            o.isa = (int32_t)test_isa(isa);
            o.align = ATTN_ALIGN_POSITIONS;
            o.alibi = make_filled(LAYOUT_PACKED, 0, 1, 1, 0, 0, 0);
            fill(&o.alibi, draw_normal, 0.163, 0);
            o.positions = one_int(positions[n]);
            int64_t keys = n < 2 ? 65 : 330; /* with 65 all are as far, but for how that is rounded */
            attn_view x = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, 7, keys),
                      g = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, 7, keys);
            attn_out dx = make_out(LAYOUT_PACKED, 4, 1, 1, 7, keys);
            attn_view v = attn_view_of(dx);
            CHECK_STATUS(attn_softmax_backward(x, g, dx, &o, NULL), ATTN_OK);
            for (int i = 0; i < 7; i++)
                for (int j = 0; j < keys; j++) CHECK(fabs(ref_at(&v, 0, 0, i, j)) <= 20);
            test_release();
        }
}

/* NaN and Inf of one query, or of its gradient, stay with the keys that it attends to, and a gradient's in their
   column, also where rows are used in place: whole vectors, aligned, side by side. */
static void gradients_not_finite(void) {
    enum { N = 8, D = 16, ROW = 2, COLUMN = 3 };
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    for (int n = 0; n < 6 * test_isa_count(); n++) {
        attn_desc d = make_desc(1, 1, 1, N, N, D, D);
        attn_grad g;
        attn_view out[3];
        memset(&g, 0, sizeof g);
        g.d_out = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, N, D);
        d.causal = 1;
        ask_for(&d, RESULT_OUT | RESULT_STATS, LAYOUT_PACKED);
        d.isa = test_isa(n / 6);
        put_at(n % 2 ? &d.q : &g.d_out, 0, 0, ROW, COLUMN, odd[n % 6 / 2]);
        g.dq = make_out(LAYOUT_PACKED, 4, 1, 1, N, D), g.dk = make_out(LAYOUT_PACKED, 4, 1, 1, N, D);
        g.dv = make_out(LAYOUT_PACKED, 4, 1, 1, N, D);
        CHECK_STATUS(attn_forward(&d, NULL), ATTN_OK);
        CHECK_STATUS(attn_backward(&d, &g, NULL), ATTN_OK);
        out[0] = attn_view_of(g.dq), out[1] = attn_view_of(g.dk), out[2] = attn_view_of(g.dv);
        for (int i = 0; i < N; i++)
            for (int c = 0; c < D; c++) {
                CHECK(isfinite(ref_at(&out[0], 0, 0, i, c)) == (i != ROW));
                CHECK(isfinite(ref_at(&out[1], 0, 0, i, c)) || i <= ROW);
                CHECK(isfinite(ref_at(&out[2], 0, 0, i, c)) || (i <= ROW && (n % 2 || c == COLUMN)));
            }
        test_release();
    }
}

/* A row without a key adds 0 to every gradient, also where its sink is no number, whatever the workspace held. */
static void sinks_without_keys(void) {
    static const float odd[] = {NAN, INFINITY, 0};
    for (int32_t score = 0; score < ATTN_SCORE_GIVEN; score++)
        for (int n = 0; n < 3 * test_isa_count(); n++) {
            attn_desc d = make_desc(1, 1, 1, 2, 5, 4, 4);
            attn_grad g;
            attn_error err;
            size_t bytes;
            memset(&g, 0, sizeof g);
            set_score(&d, score, 8);
            d.align = ATTN_ALIGN_TOP_LEFT;
            d.query_lengths = one_int(0);
            d.sink = make_filled(LAYOUT_PACKED, 0, 1, 1, 0, 0, 0);
            put_at(&d.sink, 0, 0, 0, 0, odd[n % 3]);
            d.isa = (int32_t)test_isa(n / 3);
            ask_for(&d, RESULT_OUT | RESULT_STATS, LAYOUT_PACKED);
            CHECK_STATUS(attn_forward(&d, &err), ATTN_OK);
            g.d_out = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, 2, 4);
            g.dq = make_out(LAYOUT_PACKED, 4, 1, 1, 2, 4), g.dk = make_out(LAYOUT_PACKED, 4, 1, 1, 5, 4);
            CHECK_STATUS(attn_backward_workspace_size(&d, &g, &bytes, &err), ATTN_OK);
            d.workspace = test_guarded(bytes), d.workspace_bytes = bytes;
            memset(d.workspace, n % 2 ? 0xff : 0xbf, bytes); /* NaN; -1.5 */
            CHECK_STATUS(attn_backward(&d, &g, &err), ATTN_OK);
            for (int64_t i = 0; i < 5; i++)
                for (int64_t c = 0; c < 4; c++) {
                    if (i < 2) CHECK(float_bits(&g.dq, 0, 0, i, c) == 0);
                    CHECK(float_bits(&g.dk, 0, 0, i, c) == 0);
                }
            test_release();
        }
}

const test_case suite_special[] = {
    {"special.sinks_without_keys", sinks_without_keys},
    {"special.gradients_not_finite", gradients_not_finite},
    {"special.far_gradients", far_gradients},
    {"special.empty_rows", empty_rows},
    {"special.long_averages", long_averages},
    {"special.empty_rows_leave_others", empty_rows_leave_others},
    {"special.empty_rows_alone", empty_rows_alone},
    {"special.sinks", sinks},
    {"special.sink_alone", sink_alone},
    {"special.not_finite", not_finite},
    {"special.nan_in_a_column", nan_in_a_column},
    {"special.excluded_keys", excluded_keys},
    {"special.excluded_by_row", excluded_by_row},
    {"special.unmapped", unmapped},
    {"special.unmapped_between", unmapped_between},
    {"special.unmapped_given", unmapped_given},
    {"special.window_edges", window_edges},
    {"special.far_positions", far_positions},
    {"special.minus_infinity", minus_infinity},
    {"special.huge_scores", huge_scores},
    {"special.tiny_weights", tiny_weights},
    {"special.subnormal_values", subnormal_values},
    {"special.huge_values", huge_values},
    {"special.softcap_extremes", softcap_extremes},
    {"special.sigma_extremes", sigma_extremes},
    {"special.minus_a_billion", minus_a_billion},
    {"special.cosine_lengths", cosine_lengths},
    {"special.additive_extremes", additive_extremes},
    {"special.kernel_edges", kernel_edges},
    {"special.dropout_ends", dropout_ends},
    {"special.dropout_wraps", dropout_wraps},
    {0, 0},
};
