/* precision.c - products of bf16, where ATTN_PRECISION_FAST allows them and the CPU has them (--amx: those of AMX):
   their bits, step by step;
   their bound, over random options; the same bits in any order, cut and place; and the bits of floats wherever they do
   not run. */
#define WITH_GRADIENTS
#include "descriptors.h"
#include "pairs.h"

/* What attn_explain says of a call: bit 0, scores are made of products of bf16; bit 1, outputs are. */
static int fast_of(const attn_desc *d) {
    char text[1000];
    attn_desc forward = forward_of(d);
    attn_explain(&forward, text, sizeof text);
    if (strstr(text, "; scores and out by products of bf16")) return 3;
    if (strstr(text, "; scores by products of bf16")) return 1;
    if (strstr(text, "; out by products of bf16")) return 2;
    CHECKF(!strstr(text, "; no products of bf16") == (d->precision == ATTN_PRECISION_F32), "explained: %s", text);
    return 0;
}
static layout draw_own_places(void) { /* each element a place of its own */
    layout how = (layout)test_int(0, LAYOUT_COUNT - 1);
    return how == LAYOUT_BROADCAST ? LAYOUT_PACKED : how;
}
static attn_desc in_bf16(attn_desc *d, int which) { /* bits: q, k, v */
    attn_desc fast = *d;
    if (which & 1) fast.q = retyped(&d->q, ATTN_BF16, draw_own_places());
    if (which & 2) fast.k = retyped(&d->k, ATTN_BF16, draw_own_places());
    if (which & 4) fast.v = retyped(&d->v, ATTN_BF16, draw_own_places());
    fast.precision = ATTN_PRECISION_FAST;
    return fast;
}
/* And some of k and v as codes, with any scales. */
static attn_desc in_bf16_or_codes(attn_desc *d, int which) {
    attn_desc fast = in_bf16(d, which);
    if ((which & 2) && d->k.rank && !ref_is_distance(d->score) && test_int(0, 2) == 0)
        fast.k = coded(&d->k, &fast.k_scale, draw_own_places());
    if ((which & 4) && d->v.rank && test_int(0, 2) == 0) fast.v = coded(&d->v, &fast.v_scale, draw_own_places());
    return fast;
}
static int64_t rows_per_stream(const attn_desc *d) {
    ref_result r;
    ref_sizes(d, &r);
    if (d->bilinear.rank == 3 || d->w_q.rank == 3 || d->w_k.rank == 3 || d->w_v.rank == 2 || d->hidden_bias.rank == 2)
        return r.sq; /* a parameter per head */
    return r.h / r.hkv * r.sq;
}
/* By AMX from 32 numbers in a row on, values without such scores from twice as many on; of gradients also queries
   and keys; emulated ones take all, so that the suites reach all that the kernels do. */
static int64_t least_numbers(void) { return !test_with_amx() ? 0 : getenv("EMULATED_AMX") ? 1 : 32; }
static int has_pairs(const attn_view *v, const attn_view *scale) { /* codes by AMX, with a scale per row */
    return v->size[v->rank - 1] >= least_numbers() &&
           (v->type == ATTN_BF16 || (v->type == ATTN_I8 && test_with_amx() && scale->size[3] == 1));
}
static int expected(const attn_desc *d) {
    const int dots = d->score == ATTN_SCORE_SCALED_DOT || d->score == ATTN_SCORE_DOT, codes = d->v.type == ATTN_I8;
    if (d->isa != ATTN_ISA_AVX512 || rows_per_stream(d) <= 8) return 0;
    int scores = dots && d->q.type == ATTN_BF16 && has_pairs(&d->k, &d->k_scale);
    int values = d->out.rank && has_pairs(&d->v, &d->v_scale);
    if (!scores) values = values && d->v.size[3] >= 2 * least_numbers();
    if (codes) values = values && d->dropout <= 0;
    return scores | values << 1;
}

/* Does AVX-512 here multiply numbers of bf16? */
static int has_products(void) {
    attn_desc d = make_desc(1, 1, 1, 9, 8, 32, 32), fast = in_bf16(&d, 7);
    fast.isa = ATTN_ISA_AVX512;
    for (int n = 0; n < test_isa_count(); n++)
        if (test_isa(n) == ATTN_ISA_AVX512 && fast_of(&fast)) return 1;
    return 0;
}
static int by_amx(const attn_desc *d) {
    char text[1000];
    attn_desc forward = forward_of(d);
    attn_explain(&forward, text, sizeof text);
    return strstr(text, "products of bf16, by AMX") != NULL;
}
static void on_this_cpu(void) {
    int has = has_products();
    attn_desc d = make_desc(1, 1, 1, 9, 8, 32, 32), fast = in_bf16(&d, 7);
    fast.isa = ATTN_ISA_AVX512;
    if (test_with_amx() && CHECK(has)) CHECK(by_amx(&fast));
#if defined(__GNUC__) && !defined(_WIN32)
    if (test_with_amx() && getenv("EMULATED_AMX")) { /* it runs, and each task gives the tiles back */
        unsigned long long products = emulated_tile_products;
        ask_for(&fast, RESULT_OUT, LAYOUT_PACKED);
        run_desc(&fast, "by AMX");
        CHECK(emulated_tile_products > products);
        CHECK(emulated_tiles_configured == 0);
    }
#endif
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
    for (int n = 0; n < test_isa_count(); n++)
        if (test_isa(n) == ATTN_ISA_AVX512 && __builtin_cpu_supports("avx512bf16"))
            CHECK(has || __builtin_cpu_supports("amx-bf16")); /* unasked for, exact arithmetic is faster there */
#endif
    if (!has) test_skip("no products of bf16 here: no AVX512-BF16, or AMX that nobody asked for");
    test_release();
}

/* ---- the bits: of a score */
static float amx_score_of(const attn_view *q, const attn_view *k, int64_t i, int64_t j, float scale) {
    float sum = 0;
    for (int64_t c = 0; c < q->size[3]; c += 32) {
        float a[32] = {0}, b[32] = {0};
        for (int64_t x = 0; x < 32 && c + x < q->size[3]; x++) {
            a[x] = (float)ref_at(k, 0, 0, j, c + x);
            b[x] = (float)ref_at(q, 0, 0, i, c + x);
        }
        sum = amx_sum(sum, a, b);
    }
    return sum * scale;
}
static float score_of(const attn_view *q, const attn_view *k, int64_t i, int64_t j, float scale) {
    float sum = 0, part;
    for (int64_t c = 0, n = q->size[3]; c < n; sum = c == 64 || n <= 64 ? part : sum + part) {
        int64_t end = c + 64 < n ? c + 64 : n;
        for (part = 0; c < end; c += 2) {
            for (int64_t x = c + 1; x >= c; x--) /* the odd one first */
                part = multiply_add(x < n ? (float)ref_at(q, 0, 0, i, x) : 0, x < n ? (float)ref_at(k, 0, 0, j, x) : 0,
                                    part);
        }
        c = end;
    }
    return sum * scale;
}
static void bits_of_scores(void) {
    static const int sizes[] = {1, 2, 32, 33, 40, 63, 64, 65, 130, 200};
    static const double deviations[] = {1, 1e-19, 1e-38};
    int compared = 0;
    if (!has_products()) return;
    for (int n = 0; n < 40; n++) {
        attn_desc d = make_desc(1, 1, 1, 9 + n * 3, 19 + n, sizes[n % 10], 1), fast;
        fill(&d.q, draw_normal, 0, deviations[n / 10 % 3]);
        fill(&d.k, draw_normal, 0, n / 10 == 2 ? 1 : deviations[n / 10 % 3]);
        fast = in_bf16(&d, 7);
        if (n >= 30) fast.k = coded(&d.k, &fast.k_scale, draw_own_places());
        fast.isa = ATTN_ISA_AVX512;
        fast.scale = 0.25f;
        ask_for(&fast, RESULT_SCORES, LAYOUT_PACKED);
        run_desc(&fast, "scores");
        int same = expected(&fast) != 0, amx = by_amx(&fast);
        compared += same;
        for (int64_t i = 0; i < d.q.size[2]; i++)
            for (int64_t j = 0; j < d.k.size[2]; j++) {
                attn_view scores = attn_view_of(fast.scores);
                float want = (amx ? amx_score_of : score_of)(&fast.q, &fast.k, i, j, n < 30 ? 0.25f : 1);
                if (n >= 30) want = want * (float)ref_at(&fast.k_scale, 0, 0, j, 0) * 0.25f;
                float got = (float)ref_at(&scores, 0, 0, i, j);
                same = same && CHECKF(got == want, "d %d: score %d,%d is %a, want %a", sizes[n % 10], (int)i, (int)j,
                                      (double)got, (double)want);
            }
        test_release();
    }
    CHECKF(compared >= 24, "%d cases compared", compared);
}

/* of out: equal scores make each weight 1 before the sum divides, so what is left is the order of the additions */
static float value_of(const attn_view *v, int64_t x) {
    float out = 0, chunk = 0, chain = 0;
    int64_t n = v->size[2];
    for (int64_t j = 0; j < n; j += 2) {
        for (int64_t key = j + 1; key >= j; key--) chain = multiply_add(1, (float)ref_at(v, 0, 0, key, x), chain);
        if ((j + 2) % 128) continue;
        chunk = (j + 2) % 256 ? chain : chunk + chain;
        chain = 0;
        if ((j + 2) % 256 == 0) out = j + 2 == 256 ? chunk : out + chunk;
    }
    return out / (float)n; /* a power of two */
}
static float rounded(float x) {
    attn_view v = make_view(ATTN_BF16, LAYOUT_PACKED, 1, 1, 0, 0, 0);
    put_at(&v, 0, 0, 0, 0, (double)x);
    return (float)ref_at(&v, 0, 0, 0, 0);
}
static float amx_value_of(const attn_view *v, int64_t x, const float *weights) {
    float out = 0, chunk = 0;
    for (int64_t j = 0; j < v->size[2]; j += 32) {
        float a[32];
        for (int64_t key = 0; key < 32; key++) a[key] = (float)ref_at(v, 0, 0, j + key, x);
        chunk = amx_sum(j % 256 ? chunk : 0, a, weights + j);
        if ((j + 32) % 256 == 0) out = j < 256 ? chunk : out + chunk;
    }
    return out / (float)v->size[2];
}
static void bits_of_values(void) {
    float weights[1024]; /* of codes each is its scale */
    int compared = 0;
    if (!has_products()) return;
    for (int n = 0; n < 32; n++) {
        attn_desc d = make_desc(1, 1, 1, 9 + n % 16 * 5, 256 << n % 3, 3, 1 + n % 16 * 9), fast;
        d.score = ATTN_SCORE_CONSTANT;
        fill(&d.v, draw_normal, 0, 1);
        fast = in_bf16(&d, 4);
        if (n >= 16) fast.v = coded(&d.v, &fast.v_scale, draw_own_places());
        for (int64_t j = 0; j < d.v.size[2]; j++)
            weights[j] = n < 16 ? 1 : rounded((float)ref_at(&fast.v_scale, 0, 0, j, 0));
        fast.isa = ATTN_ISA_AVX512;
        ask_for(&fast, RESULT_OUT, LAYOUT_PACKED);
        run_desc(&fast, "out");
        attn_view out = attn_view_of(fast.out);
        int same = expected(&fast) != 0, amx = by_amx(&fast);
        compared += same;
        for (int64_t i = 0; i < d.q.size[2]; i++)
            for (int64_t x = 0; x < d.v.size[3]; x++) {
                float want = amx ? amx_value_of(&fast.v, x, weights) : value_of(&fast.v, x),
                      got = (float)ref_at(&out, 0, 0, i, x);
                same = same && CHECKF(got == want, "%d keys: out %d,%d is %a, want %a", (int)d.v.size[2], (int)i,
                                      (int)x, (double)got, (double)want);
            }
        test_release();
    }
    CHECKF(compared >= 11, "%d cases compared", compared);
}

/* of weights by AMX: 2^x = 2^n p(f), n the floor of x, f rounded down; rounded after their sum is taken, that of even
   keys apart from that of odd ones. Values of 1 in a place of their own each show them. */
static float amx_exp(float score, float by, float top) {
    float x = fmaf(score, by, -top), f = x - floorf(x), p;
    if ((double)f + (double)floorf(x) > (double)x) f = nextafterf(f, 0);
    p = fmaf(0.013426470f, f, 0.052243177f);
    p = fmaf(fmaf(fmaf(p, f, 0.24127963f), f, 0.69304496f), f, 1);
    return ldexpf(p, (int)floorf(x));
}
static void bits_of_weights(void) {
    enum { KEYS = 40 };
    if (!test_with_amx()) test_skip("weights by AMX: they are tested with --amx");
    for (int n = 0; n < 10 && test_with_amx(); n++) {
        attn_desc d = make_desc(1, 1, 1, 12, KEYS, 32, KEYS), fast; /* of 32 numbers in a row only the first is not 0 */
        fill(&d.q, draw_normal, 0, 0);
        fill(&d.k, draw_normal, 0, 0);
        for (int64_t i = 0; i < 12; i++) put_at(&d.q, 0, 0, i, 0, (n + 1) * draw_normal(0, 1));
        for (int64_t j = 0; j < KEYS; j++) put_at(&d.k, 0, 0, j, 0, draw_normal(0, 1));
        for (int64_t j = 0; j < KEYS; j++)
            for (int64_t x = 0; x < KEYS; x++) put_at(&d.v, 0, 0, j, x, j == x);
        d.scale = 0.3f + 0.1f * (float)n;
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        fast = in_bf16(&d, 7);
        fast.isa = ATTN_ISA_AVX512;
        run_desc(&fast, "weights");
        attn_view out = attn_view_of(fast.out);
        for (int64_t i = 0; i < 12; i++) {
            float s[KEYS], w[KEYS], top = -INFINITY, sum[2] = {0, 0};
            for (int64_t j = 0; j < KEYS; j++) {
                s[j] = (float)ref_at(&fast.q, 0, 0, i, 0) * (float)ref_at(&fast.k, 0, 0, j, 0);
                top = fmaxf(top, s[j]);
            }
            top = top * fast.scale * 1.44269504f;
            for (int64_t j = 0; j < KEYS; j++) {
                w[j] = amx_exp(s[j], fast.scale * 1.44269504f, top);
                sum[j % 2] += w[j];
            }
            for (int64_t j = 0; j < KEYS; j++) {
                float want = flushed(rounded(w[j])) * (1 / (sum[0] + sum[1])), got = (float)ref_at(&out, 0, 0, i, j);
                CHECKF(got == want, "weight %d,%d is %a, want %a", (int)i, (int)j, (double)got, (double)want);
            }
        }
        test_release();
    }
}

/* ---- the bound, and the bits of all ways to compute it */
static double check_fast(attn_desc *d, int which, int case_of) {
    char what[60];
    ref_result r;
    attn_desc fast = in_bf16_or_codes(d, which), first;
    double ratio = 0;
    ref_forward(d, &r);
    for (int n = 0; n < test_isa_count(); n++) {
        fast.isa = (int32_t)test_isa(n);
        snprintf(what, sizeof what, "case %d, %s", case_of, attn_isa_string(test_isa(n)));
        int runs = fast_of(&fast);
        CHECKF(runs == (has_products() ? expected(&fast) : 0), "%s: products of bf16: %d", what, runs);
        ratio = fmax(ratio, check_on(&fast, &r, test_isa(n), what));
        first = copy_results(&fast);
        poison_results(&fast);
        if (run_planned(&fast, test_int(1, 3)) && d->empty != ATTN_EMPTY_UNIFORM)
            check_same_results(&first, &fast, "tasks in a random order");
        attn_desc packed = fast;
        if (fast.q.rank) packed.q = copy_view(&fast.q, LAYOUT_PACKED);
        if (fast.k.rank) packed.k = copy_view(&fast.k, LAYOUT_PACKED);
        if (fast.v.rank) packed.v = copy_view(&fast.v, LAYOUT_PACKED);
        if (!runs) packed.precision = ATTN_PRECISION_F32; /* exact where no products of bf16 run */
        poison_results(&packed);
        if (run_desc(&packed, what)) check_same_results(&first, &packed, runs ? "packed" : "packed and exact");
    }
    ref_free(&r);
    return ratio;
}
static void generated(void) {
    memset(covered, 0, sizeof covered);
    double ratio = 0;
    for (int n = 0; n < 400; n++) {
        int f[FACTOR_COUNT];
        attn_desc d;
        draw_factors(f);
        if (n % 2) f[F_SCORE] = test_int(0, 2);
        build(&d, f);
        ratio = fmax(ratio, check_fast(&d, n % 5 ? 7 : test_int(0, 7), n));
        test_release();
    }
    if (test_verbose()) printf("    largest error: %.3f of its bound\n", ratio);
}
static attn_desc large_case(int n) {
    static const int sizes[][6] = {{1, 2, 1, 70, 700, 64},  {1, 1, 1, 130, 600, 65}, {2, 2, 2, 33, 513, 128},
                                   {1, 4, 2, 20, 1000, 40}, {1, 1, 1, 300, 300, 16}, {1, 1, 1, 47, 257, 33}};
    const int *s = sizes[n % 6];
    attn_desc d = make_desc(s[0], s[1], s[2], s[3], s[4], s[5], s[5] + n % 4);
    int how = n / 6;
    d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (how == 1) d.causal = 1;
    if (how == 2) {
        d.window = 1;
        d.window_left = test_int(0, 200);
        d.window_right = test_int(0, 30);
    }
    if (how == 3) d.key_lengths = make_ints(ATTN_I32, 2, s[0], s[3], 0, 0, 0, s[4]);
    if (how == 4) {
        d.window = 1;
        d.window_left = 3;
        d.align = ATTN_ALIGN_POSITIONS;
        d.positions = make_ints(ATTN_I64, 2, s[0], s[3], 0, 0, -5, s[4]);
    }
    if (how == 5) set_score(&d, ATTN_SCORE_COSINE, 0);
    ask_for(&d, n % 2 ? RESULT_OUT : RESULT_OUT | RESULT_WEIGHTS | RESULT_LSE | RESULT_STATS, LAYOUT_PACKED);
    return d;
}
static void larger(void) {
    double ratio = 0;
    for (int n = 0; n < 36; n++) {
        attn_desc d = large_case(n);
        ratio = fmax(ratio, check_fast(&d, 7, n));
        test_release();
    }
    if (test_verbose()) printf("    largest error: %.3f of its bound\n", ratio);
}

/* ---- some rows, one head, or one row alone */
static attn_desc rows_alone(const attn_desc *d, int64_t from, int64_t n) {
    attn_desc some = *d;
    some.q = attn_view_slice(d->q, 2, from, n);
    if (d->out.rank) some.out = attn_out_slice(d->out, 2, from, n);
    if (d->key_lengths.rank == 2) some.key_lengths = attn_view_slice(d->key_lengths, 1, from, n);
    if (d->positions.rank == 2) some.positions = attn_view_slice(d->positions, 1, from, n);
    else {
        attn_view at = make_view(ATTN_I64, LAYOUT_PACKED, 2, d->q.size[0], n, 0, 0);
        for (int64_t b = 0; b < d->q.size[0]; b++)
            for (int64_t i = 0; i < n; i++) {
                ref_result r;
                ref_sizes(d, &r);
                ((int64_t *)(uintptr_t)at.data)[b * n + i] = ref_position(d, &r, b, from + i);
            }
        some.align = ATTN_ALIGN_POSITIONS;
        some.positions = at;
    }
    return some;
}
static void alone(void) {
    for (int n = 0; n < 36; n++) {
        attn_desc d = large_case(n), fast, some, copy;
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        fast = in_bf16_or_codes(&d, 7);
        for (int isa = 0; isa < test_isa_count(); isa++) {
            fast.isa = (int32_t)test_isa(isa);
            run_desc(&fast, "whole");
            int64_t count = test_int(9, 20), from = test_int(0, (int)(d.q.size[2] - count));
            some = rows_alone(&fast, from, count);
            copy = copy_results(&some);
            poison_results(&copy);
            if (run_desc(&copy, "some rows")) check_same_results(&some, &copy, "some rows alone");
            int64_t b = test_int(0, (int)d.q.size[0] - 1), h = test_int(0, (int)d.q.size[1] - 1);
            attn_desc row = row_alone(&fast, b, h, from);
            copy = copy_results(&row);
            row = copy_results(&row);
            row.precision = ATTN_PRECISION_F32;
            if (run_desc(&copy, "a row") && run_desc(&row, "the row")) check_same_results(&row, &copy, "one is exact");
        }
        test_release();
    }
}

/* ---- what a row may not attend to has no influence, whatever it holds */
static void excluded(void) {
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (int n = 0; n < 48; n++) {
        int64_t sq = test_int(9, 90), sk = test_int(2, 400), size = test_int(1, 70);
        attn_desc d = make_desc(1, 2, 1, sq, sk, size, size + n % 3), fast, clean;
        if (n < 24) d.mask = make_ints(ATTN_U8, 2, sq, sk, 0, 0, 0, 1);
        else { /* nothing but a scale, of scores of which all may be negative */ d.score = ATTN_SCORE_DOT;
            d.scale = n % 4 < 2 ? 4.0f : 0.17f;
            d.causal = n % 8 < 6;
            d.align = ATTN_ALIGN_BOTTOM_RIGHT;
            for (int64_t at = 0; n % 2 && at < 2 * sq * size; at++)
                ((float *)(uintptr_t)d.q.data)[at] = fabsf(((const float *)d.q.data)[at]);
            for (int64_t at = 0; n % 2 && at < sk * size; at++)
                ((float *)(uintptr_t)d.k.data)[at] = -fabsf(((const float *)d.k.data)[at]);
        }
        if (n < 24 && n % 3 == 1) { /* the first 16 rows end with an even key: the one after it is of its pair */
            d.causal = 1;
            d.align = ATTN_ALIGN_POSITIONS;
            d.positions = one_int(1);
        }
        ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
        fast = in_bf16(&d, 7);
        for (int isa = 0; isa < test_isa_count(); isa++) {
            ref_result r;
            attn_view out = attn_view_of(fast.out), was;
            fast.isa = (int32_t)test_isa(isa);
            run_desc(&fast, "clean");
            clean = copy_results(&fast);
            was = attn_view_of(clean.out);
            int64_t j = n < 24 && n % 3 == 1 && sk > 17 ? 17 : test_int(0, (int)sk - 1), c = test_int(0, (int)size - 1);
            double key = ref_at(&fast.k, 0, 0, j, c), value = ref_at(&fast.v, 0, 0, j, c);
            int bad_key = n < 24 && n % 2;
            if (bad_key) put_at(&fast.k, 0, 0, j, c, (double)bad[n % 4]);
            put_at(&fast.v, 0, 0, j, c, (double)bad[n / 2 % 4]);
            poison_results(&fast);
            run_desc(&fast, "with a bad key");
            ref_sizes(&fast, &r);
            for (int64_t i = 0; i < 2 * sq; i++)
                for (int64_t x = 0; x < d.v.size[3]; x++) {
                    const int64_t at[4] = {0, i / sq, i % sq, x};
                    if (ref_allowed(&fast, &r, 0, at[1], at[2], j)) {
                        if (!bad_key && x == c && isnan(bad[n / 2 % 4])) CHECK(bits_at(&out, at) == 0x7fc00000u);
                        if (bad_key || x == c) continue;
                    }
                    CHECKF(bits_at(&out, at) == bits_at(&was, at), "row %d, column %d, key %d", (int)i, (int)x, (int)j);
                }
            put_at(&fast.k, 0, 0, j, c, key);
            put_at(&fast.v, 0, 0, j, c, value);
        }
        test_release();
    }
}

/* Keys that lengths or causal exclude are not read, nor is anything after a row: it lies on pages not there. */
static attn_view mapped_only(int32_t type, int64_t first, int64_t end, int64_t sk, int64_t n, int low) {
    size_t row = (size_t)n * type_bytes(type);
    char *p =
        (char *)test_guarded_span((size_t)first * row, (size_t)(end - first) * row, (size_t)(sk - end) * row, low);
    attn_view v = attn_view_typed(type, p, 4, 1, 1, end - first, n);
    if (type == ATTN_I8) fill(&v, draw_int, -128, 127);
    else fill(&v, draw_normal, 0, 0.5);
    v.data = p - (size_t)first * row;
    v.size[2] = sk;
    return v;
}
static void not_read(void) {
    for (int n = 0; n < 60; n++) {
        int64_t sk = 20000, sq = test_int(9, 80), size = test_int(1, 70), first = n % 3 ? test_int(0, 600) : 0;
        int64_t end = first + sq + test_int(0, 300);
        attn_desc d = make_desc(1, 1, 1, sq, 1, size, size + n % 2);
        const int32_t type = n % 4 < 2 ? ATTN_BF16 : ATTN_I8;
        d = in_bf16(&d, 7);
        d.k = mapped_only(type, first, end, sk, size, n % 2);
        d.v = mapped_only(type, first, end, sk, size + n % 2, n % 2);
        if (type == ATTN_I8) d.k_scale = mapped_only(n % 8 < 4 ? ATTN_F32 : ATTN_F16, first, end, sk, 1, n % 2);
        if (type == ATTN_I8) d.v_scale = mapped_only(n % 8 < 4 ? ATTN_F32 : ATTN_F16, first, end, sk, 1, n % 2);
        d.causal = 1;
        d.align = ATTN_ALIGN_POSITIONS;
        d.positions = one_int(end - sq);
        d.window = first > 0;
        d.window_left = first > 0 ? end - sq - first : 0;
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        for (int isa = 0; isa < test_isa_count(); isa++) {
            d.isa = (int32_t)test_isa(isa);
            run_desc(&d, "pages that are not there");
        }
        test_release();
    }
}

/* Nor are keys between those of different rows: half of the rows look at the first keys, half at later ones. */
static void gaps_not_read(void) {
    for (int n = 0; n < 32; n++) {
        const int codes = n >= 16;
        int64_t sq = 6 + 3 * n % 48, size = codes ? 128 : 64, later = 231 + n % 16, row = 128; /* bytes */
        attn_desc d = make_desc(1, 1, 1, sq, 256, size, size);
        d = in_bf16(&d, 7);
        d.k = mapped_only(codes ? ATTN_I8 : ATTN_BF16, 0, 256, 256, size, n % 2);
        d.v = mapped_only(codes ? ATTN_I8 : ATTN_BF16, 0, 256, 256, size, n % 2);
        for (attn_view *v = &d.k_scale; codes && v; v = v == &d.k_scale ? &d.v_scale : NULL) {
            *v = mapped_only(ATTN_F32, 0, 256, 256, 32, n % 2); /* one in as many bytes as codes */
            v->size[3] = 1;
        }
        d.window = 1;
        d.window_left = 2;
        d.align = ATTN_ALIGN_POSITIONS;
        d.positions = make_view(ATTN_I64, LAYOUT_PACKED, 2, 1, sq, 0, 0);
        for (int64_t i = 0; i < sq; i++) ((int64_t *)(uintptr_t)d.positions.data)[i] = i % 2 ? later : 5;
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        d.isa = (int32_t)test_isa(n % test_isa_count());
        run_desc(&d, "with all keys");
        attn_desc readable = copy_results(&d);
        const attn_view *const views[] = {&d.k, &d.v, &d.k_scale, &d.v_scale};
        for (int which = 0; which < (codes ? 4 : 2); which++)
            test_no_access((char *)(uintptr_t)views[which]->data + 6 * row, (size_t)((later - 8) * row));
        poison_results(&d);
        if (run_desc(&d, "without those between")) check_same_results(&readable, &d, "keys between");
        test_release();
    }
}

/* The same within a few keys: what two windows leave between them lies on pages of its own. */
static void small_gaps_not_read(void) {
    for (int n = 0; n < 8; n++) {
        int64_t sq = 32 + n, columns = 2048; /* a row is 4096 bytes */
        attn_desc d = make_desc(1, 1, 1, sq, 64, 40, 1);
        d = in_bf16(&d, 7);
        d.v = mapped_only(ATTN_BF16, 0, 64, 64, columns, 0);
        if (n % 2) {
            d.v = mapped_only(ATTN_I8, 0, 64, 64, 2 * columns, 0);
            d.v_scale = mapped_only(ATTN_F32, 0, 64, 64, 1024, 0);
            d.v.size[3] = columns, d.v_scale.size[3] = 1;
        }
        d.window = 1;
        d.window_left = 2;
        d.window_right = 3;
        d.align = ATTN_ALIGN_POSITIONS;
        d.positions = make_view(ATTN_I64, LAYOUT_PACKED, 2, 1, sq, 0, 0);
        for (int64_t i = 0; i < sq; i++)
            ((int64_t *)(uintptr_t)d.positions.data)[i] = (n % 4 < 2 ? i : i / 16) % 2 ? 25 : 2;
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        d.isa = (int32_t)test_isa(test_isa_count() - 1);
        run_desc(&d, "with all keys");
        attn_desc readable = copy_results(&d);
        test_no_access((char *)(uintptr_t)d.v.data + 8 * 4096, 12 * 4096);
        if (n % 2) test_no_access((char *)(uintptr_t)d.v_scale.data + 8 * 4096, 12 * 4096);
        poison_results(&d);
        if (run_desc(&d, "without those between")) check_same_results(&readable, &d, "keys between");
        test_release();
    }
}

/* Scores far from 0: a bias that excludes in practice, on some or all keys of a row, or a large product. */
static void far_scores(void) {
    static const float far[] = {-1e9f, -1e10f, -1e30f, -2e38f, -3.40282347e38f, 1e10f, 1e38f};
    for (int n = 0; n < 14; n++) {
        attn_desc d = make_desc(1, 1, 1, 33, 300, 20, 24);
        if (n < 7) {
            d.bias = make_view(ATTN_F32, LAYOUT_PACKED, 2, 33, 300, 0, 0);
            for (int64_t i = 0; i < 33; i++)
                for (int64_t j = 0; j < 300; j++)
                    ((float *)(uintptr_t)d.bias.data)[i * 300 + j] = i % 4 == 3 || (i % 4 && j >= 256) ? far[n] : 0;
        } else {
            fill(&d.q, draw_normal, 0, 1);
            fill(&d.k, draw_normal, 0, fabs((double)far[n - 7]) / 1000);
            d.score = ATTN_SCORE_DOT;
            d.scale = n % 2 ? 1.0f : 0.01f;
        }
        ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
        attn_desc fast = in_bf16(&d, 7), exact = copy_results(&fast);
        exact.precision = ATTN_PRECISION_F32;
        for (int isa = 0; isa < test_isa_count(); isa++) {
            fast.isa = exact.isa = (int32_t)test_isa(isa);
            run_desc(&fast, "fast"), run_desc(&exact, "exact");
            attn_view a = attn_view_of(fast.out), b = attn_view_of(exact.out);
            for (int64_t i = 0; i < 33; i++)
                for (int64_t x = 0; x < 24; x++) {
                    double got = ref_at(&a, 0, 0, i, x), want = ref_at(&b, 0, 0, i, x);
                    CHECKF(fabs(got - want) < 0.03, "score %g, row %d, column %d: %g, exactly %g", (double)far[n % 7],
                           (int)i, (int)x, got, want);
                }
        }
        test_release();
    }
}

/* Other results change no bit of out. */
static void other_results(void) {
    for (int n = 0; n < 12; n++) {
        attn_desc d = large_case(n * 5 % 36), fast, more;
        int64_t sq = d.q.size[2], sk = d.k.size[2];
        d.score = ATTN_SCORE_SCALED_DOT;
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        fast = in_bf16_or_codes(&d, 7);
        more = fast;
        ask_for(&more, RESULT_OUT | (n % 3 ? RESULT_WEIGHTS : 0) | (n % 3 != 1 ? RESULT_MASKED : 0), LAYOUT_PACKED);
        if (n % 4 == 3) { more.mask = make_ints(ATTN_U8, 2, sq, sk, 0, 0, 1, 1); }
        for (int isa = 0; isa < test_isa_count(); isa++) {
            fast.isa = more.isa = (int32_t)test_isa(isa);
            if (!run_desc(&fast, "out") || !run_desc(&more, "out and more")) continue;
            attn_view a = attn_view_of(fast.out), b = attn_view_of(more.out);
            int same = 1;
            for (int64_t i = 0; i < a.size[0] * a.size[1] * sq; i++)
                for (int64_t x = 0; same && x < a.size[3]; x++) {
                    const int64_t at[4] = {i / sq / a.size[1], i / sq % a.size[1], i % sq, x};
                    same = CHECKF(bits_at(&a, at) == bits_at(&b, at), "case %d, row %d", n, (int)i);
                }
        }
        test_release();
    }
}

/* ---- a full table of pages: none is looked up beyond it, to be prefetched, say; keys are cut, weights come last */
static void full_table(void) {
    enum { PAGE = 256, PAGES = 20 };
    for (int n = 0; n < 8; n++) {
        attn_desc d = make_desc(1, 12, 1, 1 + n % 2, PAGES * PAGE, 32, 32), fast, paged;
        ask_for(&d, RESULT_OUT | RESULT_WEIGHTS, LAYOUT_PACKED);
        d.out = make_out_of(ATTN_BF16, LAYOUT_PACKED, 4, 1, 12, 1 + n % 2, 32);
        d.weights = make_out_of(ATTN_BF16, LAYOUT_PACKED, 4, 1, 12, 1 + n % 2, PAGES * PAGE);
        fast = in_bf16(&d, 7);
        fast.k = copy_view(&fast.k, LAYOUT_PACKED), fast.v = copy_view(&fast.v, LAYOUT_PACKED);
        run_desc(&fast, "keys side by side");
        paged = copy_results(&fast);
        poison_results(&paged);
        for (attn_view *v = &paged.k; v; v = v == &paged.k ? &paged.v : NULL) {
            v->size[0] = PAGES, v->size[2] = PAGE;
            v->stride[0] = v->stride[1] = PAGE * 32;
        }
        paged.page_table = make_view(ATTN_I32, LAYOUT_PACKED, 2, 1, PAGES, 0, 0);
        for (int p = 0; p < PAGES; p++) put_at(&paged.page_table, 0, 0, 0, p, p);
        if (run_planned(&paged, 4)) check_same_results(&fast, &paged, "keys in pages");
        test_release();
    }
}

/* ---- keys whose rows are whole lines of the cache are read where they lie, unless their numbers are apart or pages
   are shorter than a chunk */
static attn_view in_whole_lines(const attn_view *v, int64_t apart) { /* a copy of [1,1,rows,columns] */
    const int64_t rows = v->size[2], columns = v->size[3];
    attn_view room = make_view(v->type, LAYOUT_PACKED, 1, rows * columns * apart + 64, 0, 0, 0), w = *v;
    w.data = (const void *)(((uintptr_t)room.data + 63) / 64 * 64);
    w.stride[3] = apart, w.stride[2] = columns * apart, w.stride[0] = w.stride[1] = rows * columns * apart;
    for (int64_t j = 0; j < rows; j++)
        for (int64_t x = 0; x < columns; x++) put_at(&w, 0, 0, j, x, ref_at(v, 0, 0, j, x));
    return w;
}
static void whole_lines(void) {
    enum { PAGE = 16, PAGES = 20 };
    for (int n = 0; n < 16; n++) {
        attn_desc d = make_desc(1, 1, 1, 20, PAGE * PAGES, 32 << n % 2, 32), fast, other;
        ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
        fast = in_bf16(&d, 7);
        if (n >= 8)
            fast.k = coded(&d.k, &fast.k_scale, LAYOUT_PACKED), fast.v = coded(&d.v, &fast.v_scale, LAYOUT_PACKED);
        fast.k = in_whole_lines(&fast.k, 1), fast.v = copy_view(&fast.v, LAYOUT_PACKED);
        run_desc(&fast, "side by side");
        other = copy_results(&fast);
        poison_results(&other);
        other.k = in_whole_lines(&fast.k, 2);
        if (run_desc(&other, "apart")) check_same_results(&fast, &other, "numbers of keys apart");
        poison_results(&other);
        other.k = fast.k;
        other.page_table = make_view(ATTN_I32, LAYOUT_PACKED, 2, 1, PAGES, 0, 0);
        attn_view *const views[] = {&other.k, &other.v, &other.k_scale, &other.v_scale};
        for (int which = 0; which < (n < 8 ? 2 : 4); which++) {
            attn_view *v = views[which], from = copy_view(v, LAYOUT_PACKED);
            *v = copy_view(v, LAYOUT_PACKED);
            v->size[0] = PAGES, v->size[2] = PAGE, v->stride[0] = v->stride[1] = PAGE * v->stride[2];
            for (int64_t j = 0; j < PAGE * PAGES; j++)
                for (int64_t x = 0; x < v->size[3]; x++)
                    put_at(v, PAGES - 1 - j / PAGE, 0, j % PAGE, x, ref_at(&from, 0, 0, j, x));
        }
        for (int p = 0; p < PAGES; p++) put_at(&other.page_table, 0, 0, 0, p, PAGES - 1 - p);
        if (run_desc(&other, "pages")) check_same_results(&fast, &other, "keys in pages, the last one first");
        test_release();
    }
}

/* ---- results of bf16: those of f32, rounded once */
static void rounded_results(void) {
    for (int n = 0; n < 24; n++) {
        attn_desc d = large_case(n * 5 % 36), fast, typed;
        if (n % 4 == 1) d.softcap = 3;
        if (n % 4 == 2) fill(&d.v, draw_normal, 0, 1e-38); /* results are subnormal, too */
        if (n % 4 == 3) put_at(&d.v, 0, 0, d.k.size[2] / 2, 3, n % 8 == 3 ? INFINITY : NAN);
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        fast = n % 4 < 2 ? in_bf16_or_codes(&d, 7) : in_bf16(&d, 7);
        for (int isa = 0; isa < test_isa_count(); isa++) {
            fast.isa = (int32_t)test_isa(isa);
            typed = fast;
            for (int r = 0; r < RESULT_COUNT; r++) {
                attn_out *o = result_of(&typed, r);
                if (o == &typed.lse || o == &typed.stats) *o = copy_out(o);
                else
                    *o = make_out_of(ATTN_BF16, n % 3 ? LAYOUT_PACKED : draw_own_places(), o->rank, o->size[0],
                                     o->size[1], o->size[2], o->size[3]);
            }
            if (run_desc(&fast, "floats") && run_desc(&typed, "rounded"))
                check_rounded_results(&typed, &fast, attn_isa_string(test_isa(isa)));
        }
        test_release();
    }
}

/* ---- scales of codes: one of either sign makes the same products, and of a key that a row may not attend to none has
   influence */
static void scales(void) {
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
    for (int n = 0; n < 40; n++) {
        int64_t sq = test_int(9, 90), sk = test_int(2, 400), size = test_int(32, 70);
        attn_desc d = make_desc(1, 2, 1, sq, sk, size, size), fast, clean;
        if (n % 4 == 1) d.mask = make_ints(ATTN_U8, 2, sq, sk, 0, 0, 0, 1);
        d.causal = n % 4 > 1;
        d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        if (n % 4 == 3) d.bias = make_filled(LAYOUT_MIXED, 1, 2, sq, sk, 0, 0);
        ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
        fast = in_bf16(&d, 7);
        do fast.k = coded(&d.k, &fast.k_scale, draw_own_places());
        while (fast.k_scale.size[3] > 1);
        do fast.v = coded(&d.v, &fast.v_scale, draw_own_places());
        while (fast.v_scale.size[3] > 1);
        for (int isa = 0; isa < test_isa_count(); isa++) {
            fast.isa = (int32_t)test_isa(isa);
            CHECK(fast_of(&fast) == (fast.isa == ATTN_ISA_AVX512 && test_with_amx() ? 3 : 0));
            run_desc(&fast, "clean");
            clean = copy_results(&fast);
            poison_results(&fast);
            for (int64_t j = 0; j < sk; j++) {
                attn_view *const codes[] = {&fast.k, &fast.v}, *const scale[] = {&fast.k_scale, &fast.v_scale};
                for (int which = 0; which < 2; which++) {
                    if (test_int(0, 1)) continue;
                    put_at(scale[which], 0, 0, j, 0, -ref_at(scale[which], 0, 0, j, 0));
                    for (int64_t c = 0; c < size; c++)
                        put_at(codes[which], 0, 0, j, c, -ref_at(codes[which], 0, 0, j, c));
                }
            }
            if (run_desc(&fast, "scales of both signs")) check_same_results(&clean, &fast, "scales of both signs");
            int64_t j = test_int(0, (int)sk - 1);
            attn_view *which = n % 8 < 4 ? &fast.v_scale : &fast.k_scale, out = attn_view_of(fast.out);
            attn_view was = attn_view_of(clean.out);
            double scale = ref_at(which, 0, 0, j, 0);
            put_at(which, 0, 0, j, 0, (double)bad[n / 8]);
            poison_results(&fast);
            run_desc(&fast, "with a bad scale");
            ref_result r;
            ref_sizes(&fast, &r);
            for (int64_t i = 0; i < 2 * sq; i++)
                for (int64_t x = 0; x < size; x++) {
                    const int64_t at[4] = {0, i / sq, i % sq, x};
                    uint32_t got = bits_at(&out, at);
                    if (!ref_allowed(&fast, &r, 0, at[1], at[2], j))
                        CHECKF(got == bits_at(&was, at), "row %d, column %d, key %d", (int)i, (int)x, (int)j);
                    else if (isnan(bad[n / 8])) CHECK(got == 0x7fc00000u);
                }
            put_at(which, 0, 0, j, 0, scale);
        }
        test_release();
    }
}

/* ---- entries side by side, of codes: each has the bits of a call of its own */
static void entries_of_codes(void) {
    int64_t entries = 0;
    for (int n = 0; entries < 60 && n < 2000; n++) {
        int f[FACTOR_COUNT];
        attn_desc d;
        ref_result r;
        draw_factors(f);
        f[F_SCORE] = test_int(0, 2);
        build(&d, f);
        ref_sizes(&d, &r);
        if (r.has_entries && d.k.rank && !d.page_table.rank && r.packed_rows) {
            attn_desc fast = in_bf16_or_codes(&d, 7);
            fast.isa = test_isa(test_isa_count() - 1);
            poison_results(&fast);
            if (run_planned(&fast, 2)) check_entries_alone(&fast);
            entries += r.b;
        }
        test_release();
    }
}

/* ---- the backward pass: by AMX, else it takes no notice */
static int gradients_by_amx(const call *c) {
    char text[1000];
    attn_explain_backward(&c->d, &c->g, text, sizeof text);
    const int fast = strstr(text, "; products of bf16, by AMX") != NULL;
    CHECKF(fast || strstr(text, "; no products of bf16"), "explained: %s", text);
    return fast;
}
static int gradients_expected(const call *c) {
    const attn_view *q = &c->d.q, *k = &c->d.k;
    const int64_t least = least_numbers();
    return test_with_amx() && c->g.d_out.rank && c->g.d_out.type == ATTN_BF16 && expected(&c->d) & 1 &&
           c->d.v.type == ATTN_BF16 && c->d.v.size[3] >= least && q->size[2] >= least && k->size[2] >= least;
}
/* P and dS are rounded to bf16; where the forward had such products, out, which dS is made of, is not exact, either. */
static void check_fast_grads(call *c, int fast_forward, int bad, const char *what) {
    const double more = ldexp(1, -8) + (fast_forward ? ldexp(1, -8) : 0);
    ref_upstream up = upstream_of(&c->g);
    ref_grads g;
    ref_backward(&c->d, &up, &g);
    for (int n = 0; n < GRAD_COUNT; n++)
        for (int64_t i = 0; i < g.g[n].count; i++) g.g[n].error[i] *= 1 + more / GRAD_BOUND;
    for (int n = 0; n < (bad ? GRAD_GIVEN : GRAD_COUNT); n++) check_grad(c, &g, n, what);
    ref_free_grads(&g);
}
/* In one call in four something is not finite, so that its products are made without the pairs that are excluded. In a
   row without a key it is nothing to sums over rows, which the reference does not know. */
static void put_bad_number(call *c) {
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    attn_view *const views[] = {&c->d.q, &c->d.k, &c->g.d_out}, *v = views[test_int(0, 2)];
    if (!v->size[0] || !v->size[1] || !v->size[2]) return;
    put_at(v, test_int(0, (int)v->size[0] - 1), test_int(0, (int)v->size[1] - 1), test_int(0, (int)v->size[2] - 1),
           test_int(0, (int)v->size[3] - 1), bad[test_int(0, 2)]);
}
static void check_gradients(call *c, int case_of) {
    static const int32_t workers[] = {1, 2, 3, 8};
    const int exact_forward = case_of % 3 == 1;
    ref_result r;
    ref_sizes(&c->d, &r);
    const int alone = !r.has_entries || (r.packed_rows && r.packed_keys);
    for (int isa = 0; isa < test_isa_count(); isa++) {
        char what[60];
        c->d.isa = (int32_t)test_isa(isa);
        snprintf(what, sizeof what, "gradients %d, %s", case_of, attn_isa_string(test_isa(isa)));
        const int fast = gradients_by_amx(c);
        CHECKF(fast == gradients_expected(c), "%s: by AMX: %d", what, fast);
        attn_desc forward = c->d;
        if (exact_forward) forward.precision = ATTN_PRECISION_F32;
        if (!run_desc(&forward, what) || !run_call(c, what)) return;
        call other = copy_grads(c);
        if (fast) check_fast_grads(c, (fast_of(&forward) & 2) != 0, case_of % 4 == 3, what);
        else {
            other.d.precision = ATTN_PRECISION_F32;
            if (run_call(&other, "exact")) same_grads(c, &other, "exact");
            continue;
        }
        for (int n = 0; n < 4; n++)
            if (run_call_planned(&other, workers[n]) && !same_grads(c, &other, "tasks in a random order"))
                ref_print(&c->d);
        other.d.parallel.workers = 0;
        other.d.q = copy_view(&c->d.q, LAYOUT_PACKED);
        other.d.k = copy_view(&c->d.k, LAYOUT_PACKED);
        other.d.v = copy_view(&c->d.v, LAYOUT_PACKED);
        other.g.d_out = copy_view(&c->g.d_out, LAYOUT_PACKED);
        if (run_call(&other, "packed")) same_grads(c, &other, "packed");
        if (alone) check_batch_alone(c, test_int(0, (int)r.b - 1));
    }
}
static void gradients(void) {
    for_gradients = 1;
    for (int n = 0; n < 80; n++) {
        static const int heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}};
        int f[FACTOR_COUNT];
        call c;
        draw_factors(f);
        f[F_SCORE] = n % 2;
        f[F_NUMBERS] %= 2;
        f[F_UPSTREAM] %= 4; /* d_out among others */
        if (n % 3 == 0) f[F_SOFTCAP] = f[F_BIAS] = f[F_ALIBI] = f[F_DROPOUT] = f[F_UPSTREAM] = f[F_ASKED] = 0;
        const int small = n % 10 == 9, least = small ? 1 : 32;
        shape s = {1 + f[F_BATCH],
                   heads[f[F_HEADS]][0],
                   heads[f[F_HEADS]][1],
                   least + test_int(0, n % 4 ? 40 : 150),
                   least + test_int(0, n % 4 ? 60 : 250),
                   least + (n % 5 ? 8 * test_int(0, 5) : test_int(0, 40)),
                   least + (n % 5 ? 8 * test_int(0, 5) : test_int(0, 40))};
        memset(&c, 0, sizeof c);
        build_shaped(&c.d, f, s);
        build_gradients(&c, f);
        c.d = in_bf16(&c.d, n % 20 == 19 ? 3 : 7);
        c.g.d_out = retyped(&c.g.d_out, ATTN_BF16, draw_own_places());
        if (n % 4 == 3) put_bad_number(&c);
        check_gradients(&c, n);
        test_release();
    }
    for_gradients = 0;
}

/* A scale that could make much of products that are flushed: the scores are exact ones. */
static void large_scale(void) {
    attn_desc d = make_desc(1, 1, 1, 16, 16, 64, 8), fast, exact;
    const attn_view whole[] = {d.q, d.k};
    for (int n = 0; n < 2; n++)
        for (int64_t i = 0; i < 16; i++)
            for (int64_t x = 0; x < 64; x++) put_at(&whole[n], 0, 0, i, x, ldexp(n && i != 3 ? 0.25 : 1, -66));
    ask_for(&d, RESULT_OUT | RESULT_SCORES, LAYOUT_PACKED);
    d.scale = ldexpf(1, 127);
    fast = in_bf16(&d, 3);
    for (int isa = 0; isa < test_isa_count(); isa++) {
        fast.isa = (int32_t)test_isa(isa);
        exact = copy_results(&fast);
        exact.precision = ATTN_PRECISION_F32;
        poison_results(&exact);
        if (run_desc(&fast, "fast") && run_desc(&exact, "exact")) check_same_results(&fast, &exact, "a large scale");
    }
    test_release();
}

/* AMX changes nothing before it is asked for, nor what a plan made before does, in any task. Last, for it stays so. */
static void asked_later(void) {
    attn_desc d = make_desc(3, 2, 1, 40, 90, 40, 24), fast, first, again;
    attn_error e;
    attn_plan plan;
    ask_for(&d, RESULT_OUT, LAYOUT_PACKED);
    d.key_starts = make_ints(ATTN_I32, 1, 3, 0, 0, 0, 0, 9); /* so that each entry is a call of its own */
    d.key_lengths = make_ints(ATTN_I32, 1, 3, 0, 0, 0, 20, 80);
    fast = in_bf16(&d, 7);
    fast.isa = test_isa(test_isa_count() - 1);
    run_desc(&fast, "before");
    first = copy_results(&fast);
    again = copy_results(&fast);
    poison_results(&again);
    CHECK(attn_plan_forward(&again, &plan, NULL) == ATTN_OK);
    int before = by_amx(&fast), there = attn_enable_amx(&e) == ATTN_OK;
    CHECK(before == (test_with_amx() && fast.isa == ATTN_ISA_AVX512));
    CHECK(there || !test_with_amx());
    if (there) {
        CHECK(e.status == ATTN_OK && attn_enable_amx(NULL) == ATTN_OK);
        CHECK(by_amx(&fast) == (fast.isa == ATTN_ISA_AVX512));
    } else CHECK(e.status == ATTN_ERR_ISA && !strcmp(e.field, "amx") && strstr(e.rule, "must "));
    void *workspace = plan.workspace_bytes ? test_guarded(plan.workspace_bytes) : NULL;
    for (int32_t phase = 0; phase < plan.phases; phase++)
        for (int64_t i = 0; i < plan.tasks[phase]; i++) attn_task(&plan, workspace, phase, i, 0);
    check_same_results(&first, &again, "a plan made before");
    test_release();
}

const test_case suite_precision[] = {
    {"precision.on_this_cpu", on_this_cpu},
    {"precision.bits_of_scores", bits_of_scores},
    {"precision.bits_of_values", bits_of_values},
    {"precision.bits_of_weights", bits_of_weights},
    {"precision.generated", generated},
    {"precision.larger", larger},
    {"precision.alone", alone},
    {"precision.excluded", excluded},
    {"precision.not_read", not_read},
    {"precision.gaps_not_read", gaps_not_read},
    {"precision.small_gaps_not_read", small_gaps_not_read},
    {"precision.far_scores", far_scores},
    {"precision.other_results", other_results},
    {"precision.full_table", full_table},
    {"precision.whole_lines", whole_lines},
    {"precision.rounded_results", rounded_results},
    {"precision.scales", scales},
    {"precision.entries_of_codes", entries_of_codes},
    {"precision.gradients", gradients},
    {"precision.large_scale", large_scale},
    {"precision.asked_later", asked_later},
    {0, 0},
};
