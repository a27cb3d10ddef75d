/* isa.c - which instruction set runs; the elementary functions on all of them; the caller's floating-point control
   register, which changes no bit and comes back as it was. */
#include "page.h"

#include "cases.h"
#include "elementary.h"
#include <fenv.h>
#if defined(__SSE__) || defined(_M_X64)
#include <xmmintrin.h>
#define HAS_CONTROL 1
#elif defined(__aarch64__) && defined(__GNUC__)
#define HAS_CONTROL 1
#else
#define HAS_CONTROL 0
#endif

/* ---- which one runs */
static void test_best(void) {
    static const attn_isa weakest_first[] = {ATTN_ISA_SCALAR, ATTN_ISA_PORTABLE, ATTN_ISA_RELAXED,
                                             ATTN_ISA_AVX2,   ATTN_ISA_AVX512,   ATTN_ISA_NEON};
    attn_isa best = attn_best_isa();
    float x = 0, y = 7;
    int n = 0;
    CHECK(sizeof weakest_first / sizeof *weakest_first == ATTN_ISA_COUNT - 1);
    CHECK(best >= ATTN_ISA_SCALAR && best < ATTN_ISA_COUNT);
    CHECK_STATUS(attn_elementary(0, &x, &y, 1, best), ATTN_OK);
    CHECK(y == 1);
    CHECK_STATUS(attn_elementary(0, &x, &y, 1, ATTN_ISA_AUTO), ATTN_OK);
    CHECK_STATUS(attn_elementary(0, &x, &y, 1, ATTN_ISA_SCALAR), ATTN_OK);
    while (n < ATTN_ISA_COUNT - 1 && weakest_first[n] != best) n++;
    for (n++; n < ATTN_ISA_COUNT - 1; n++) CHECK_STATUS(attn_elementary(0, &x, &y, 1, weakest_first[n]), ATTN_ERR_ISA);
    CHECK(attn_best_isa() == best);
}

/* Every call takes the one it is told to take, or refuses. */
static void test_forced(void) {
    attn_desc d = make_desc(1, 1, 1, 3, 5, 4, 2), o;
    attn_plan plan;
    attn_view x = make_filled(LAYOUT_PACKED, 1, 2, 4, 4, 0, 0);
    attn_out y = make_out(LAYOUT_PACKED, 2, 4, 4, 0, 0), s = make_out(LAYOUT_PACKED, 4, 1, 1, 3, 5);
    char text[500];
    memset(&o, 0, sizeof o);
    CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
    CHECK(plan.isa == (int32_t)attn_best_isa());
    for (int isa = ATTN_ISA_AUTO; isa < ATTN_ISA_COUNT; isa++) {
        float z = 0;
        attn_status want = attn_elementary(0, &z, &z, 1, (attn_isa)isa);
        d.isa = o.isa = isa;
        CHECK(want == ATTN_OK || want == ATTN_ERR_ISA);
        CHECK_STATUS(attn_forward(&d, 0), want);
        CHECK_STATUS(attn_softmax(x, y, &o, 0), want);
        CHECK_STATUS(attn_bmm(x, x, y, &o, 0), want);
        CHECK_STATUS(attn_scores(d.q, d.k, s, &o, 0), want);
        attn_explain(&d, text, sizeof text);
        if (want != ATTN_OK || isa == ATTN_ISA_AUTO) continue;
        CHECK(attn_plan_forward(&d, &plan, 0) == ATTN_OK && plan.isa == isa);
        CHECKF(strstr(text, attn_isa_string((attn_isa)isa)) != 0, "%s", text);
    }
}

/* ---- exp, log, tanh */
static void check_elementary(int function, const float *x, const float *y, int n, attn_isa isa) {
    for (int i = 0; i < n; i++) {
        double off = elementary_ulps(function, x[i], y[i]);
        CHECKF(off <= 2, "%s(%.9g) on %s is %.9g, %.3g units off", elementary_names[function], (double)x[i],
               attn_isa_string(isa), (double)y[i], off);
        CHECKF(!elementary_odd_nan(y[i]), "%s(%08x) on %s is a NaN with the bits %08x", elementary_names[function],
               (unsigned)bits_of_float(x[i]), attn_isa_string(isa), (unsigned)bits_of_float(y[i]));
    }
}

/* Every 4099th bit pattern: all exponents, both signs, NaNs. */
static void test_elementary(void) {
    enum { BLOCK = 4096, STEP = 4099 };
    static float x[BLOCK], y[BLOCK], other[BLOCK];
    for (int function = 0; function < ELEMENTARY_COUNT; function++)
        for (uint64_t bits = 0; bits >> 32 == 0;) {
            int n = 0;
            for (; n < BLOCK && bits >> 32 == 0; bits += STEP) x[n++] = float_of_bits((uint32_t)bits);
            for (int i = 0; i < test_isa_count(); i++) {
                attn_elementary(function, x, i ? other : y, n, test_isa(i));
                if (i == 0) check_elementary(function, x, y, n, test_isa(i));
                else
                    CHECKF(!memcmp(y, other, (size_t)n * sizeof *y), "%s: other bits on %s", elementary_names[function],
                           attn_isa_string(test_isa(i)));
            }
        }
}

static float only(int function, float x, attn_isa isa) {
    float y = 7;
    CHECK_STATUS(attn_elementary(function, &x, &y, 1, isa), ATTN_OK);
    return y;
}

/* Where a function reaches a limit, and the floats on both sides. */
static void test_special(void) {
    static const float near[] = {0,           1,           2,          0.5f,      0x1p-126f,   0x1p-149f,
                                 0x1p-24f,    0x1p-12f,    0.625f,     0.55f,     0.70710678f, 1.41421356f,
                                 0.34657359f, 0.69314718f, 1.0397208f, 87.33654f, 88.72284f,   100,
                                 103.97208f,  9.0109f,     20,         16777216,  FLT_MAX};
    for (int i = 0; i < test_isa_count(); i++) {
        attn_isa isa = test_isa(i);
        for (size_t n = 0; n < sizeof near / sizeof *near; n++)
            for (uint32_t sign = 0; sign < 2; sign++)
                for (int step = -40; step <= 40; step++) {
                    float x = float_of_bits((bits_of_float(near[n]) + (uint32_t)step) ^ sign << 31), y;
                    for (int function = 0; function < ELEMENTARY_COUNT; function++) {
                        y = only(function, x, isa);
                        check_elementary(function, &x, &y, 1, isa);
                    }
                }
        CHECK(only(ELEMENTARY_EXP, 0, isa) == 1 && only(ELEMENTARY_EXP, -0.0f, isa) == 1);
        CHECK(only(ELEMENTARY_EXP, INFINITY, isa) == INFINITY &&
              bits_of_float(only(ELEMENTARY_EXP, -INFINITY, isa)) == 0);
        CHECK(only(ELEMENTARY_EXP, 89, isa) == INFINITY && bits_of_float(only(ELEMENTARY_EXP, -88, isa)) == 0);
        CHECK(only(ELEMENTARY_EXP, FLT_MAX, isa) == INFINITY &&
              bits_of_float(only(ELEMENTARY_EXP, -FLT_MAX, isa)) == 0);
        CHECK(bits_of_float(only(ELEMENTARY_LOG, 1, isa)) == 0);
        CHECK(only(ELEMENTARY_LOG, 0, isa) == -INFINITY && only(ELEMENTARY_LOG, -0.0f, isa) == -INFINITY);
        CHECK(only(ELEMENTARY_LOG, INFINITY, isa) == INFINITY && isnan(only(ELEMENTARY_LOG, -INFINITY, isa)));
        CHECK(isnan(only(ELEMENTARY_LOG, -1, isa)) && isnan(only(ELEMENTARY_LOG, -0x1p-149f, isa)));
        CHECK(bits_of_float(only(ELEMENTARY_TANH, 0, isa)) == 0 &&
              bits_of_float(only(ELEMENTARY_TANH, -0.0f, isa)) == 0x80000000u);
        CHECK(only(ELEMENTARY_TANH, INFINITY, isa) == 1 && only(ELEMENTARY_TANH, -INFINITY, isa) == -1);
        CHECK(only(ELEMENTARY_TANH, FLT_MAX, isa) == 1 && only(ELEMENTARY_TANH, -FLT_MAX, isa) == -1);
        for (int function = 0; function < ELEMENTARY_COUNT; function++)
            for (int negative = 0; negative < 2; negative++) CHECK(isnan(only(function, negative ? -NAN : NAN, isa)));
    }
}

/* Any count at any alignment, in place or not, and no float beside them. */
static void test_counts(void) {
    for (int i = 0; i < test_isa_count(); i++)
        for (int n = 0; n < 40; n++)
            for (int function = 0; function < ELEMENTARY_COUNT; function++) {
                float *x = test_floats((size_t)n), *y = (float *)test_guarded_low((size_t)n * sizeof *y);
                CHECK_STATUS(attn_elementary(function, x, y, n, test_isa(i)), ATTN_OK);
                for (int at = 0; at < n; at++)
                    CHECK(bits_of_float(only(function, x[at], test_isa(i))) == bits_of_float(y[at]));
                CHECK_STATUS(attn_elementary(function, x, x, n, test_isa(i)), ATTN_OK);
                CHECK(!memcmp(x, y, (size_t)n * sizeof *x));
                test_release();
            }
}

/* ---- the control register. A fixed set of calls whose results are bytes to compare. */
enum { RESULT_FLOATS = 4096, TEXT_BYTES = 1 << 16 };
typedef struct outcome {
    float x[RESULT_FLOATS];
    size_t count;
    char text[TEXT_BYTES];
    size_t length;
    int refused; /* calls that were */
} outcome;

static struct {
    attn_desc calls[2 * ATTN_SCORE_COUNT];
    attn_view x, y, lse;
    attn_mha_desc mha;
    attn_desc options;
} set;

static float *results(outcome *o, size_t n) {
    float *to = o->x + o->count;
    if (o->count + n > RESULT_FLOATS) abort();
    o->count += n;
    return to;
}

/* Ordinary numbers, subnormal ones, and (odd) infinities and NaNs. */
static double draw_odd(double odd, double deviation) {
    int kind = test_int(0, 19);
    if (odd != 0 && kind == 0) return test_int(0, 1) ? NAN : INFINITY;
    return kind < 4 ? test_normal() * 0x1p-130 : kind == 4 ? test_normal() * 0x1p-70 : deviation * test_normal();
}

static void set_up(void) {
    memset(&set, 0, sizeof set);
    for (int i = 0; i < 2 * ATTN_SCORE_COUNT; i++) {
        attn_desc *d = &set.calls[i];
        *d = make_desc(1, 2, 1, 3, 11, 5, 3);
        set_score(d, i / 2, 6);
        if (d->q.rank) fill(&d->q, draw_odd, i % 2, 1), fill(&d->k, draw_odd, i % 2, 1);
        fill(&d->v, draw_odd, i % 2, 1);
        memset(&d->out, 0, sizeof d->out);
        d->softcap = i % 4 ? 0 : 2.5f;
        d->dropout = i % 3 ? 0 : 0.3f;
        d->seed = 5;
    }
    set.x = make_view(ATTN_F32, LAYOUT_PACKED, 4, 1, 2, 3, 5);
    set.y = make_view(ATTN_F32, LAYOUT_PACKED, 4, 1, 2, 5, 3);
    set.lse = make_filled(LAYOUT_PACKED, 3, 3, 1, 2, 3, 0);
    fill(&set.x, draw_odd, 0, 1);
    fill(&set.y, draw_odd, 0, 1);
    set.mha.query = make_filled(LAYOUT_PACKED, 1, 3, 1, 3, 4, 0);
    set.mha.w_query = set.mha.w_key = set.mha.w_value = set.mha.w_result = make_filled(LAYOUT_PACKED, 1, 2, 4, 4, 0, 0);
    set.mha.b_query = set.mha.b_result = make_filled(LAYOUT_PACKED, 1, 1, 4, 0, 0, 0);
    set.mha.heads = 2;
    set.options.scale = 0.3f;
    set.options.dropout = 0.4f;
    set.options.seed = 77;
}

static void run_planned_here(attn_desc *d, outcome *o) {
    static char workspace[1 << 18];
    attn_plan plan;
    d->out = attn_out_f32(results(o, 18), 4, 1, 2, 3, 3);
    o->refused += attn_plan_forward(d, &plan, 0) != ATTN_OK || plan.workspace_bytes > sizeof workspace;
    for (int32_t phase = 0; !o->refused && phase < plan.phases; phase++)
        for (int64_t i = 0; i < plan.tasks[phase]; i++) attn_task(&plan, workspace, phase, i, 0);
    memset(&d->out, 0, sizeof d->out);
}

static void run_pictures(outcome *o) {
    typedef attn_status (*drawer)(const attn_heatmap *, attn_writer, attn_error *);
    static const drawer drawers[] = {attn_heatmap_ansi, attn_heatmap_svg, attn_heatmap_ppm, attn_heatmap_html,
                                     attn_heatmap_lines_svg};
    for (int i = 0; i < 5; i++) {
        attn_heatmap map;
        attn_buffer buffer = {o->text + o->length, TEXT_BYTES - o->length, 0};
        memset(&map, 0, sizeof map);
        map.values = set.x;
        map.numbers = 1;
        map.colormap = i % ATTN_COLORMAP_COUNT;
        o->refused += drawers[i](&map, attn_buffer_writer(&buffer), 0) != ATTN_OK;
        o->length += buffer.length < buffer.size ? buffer.length : buffer.size;
    }
}

static void run_calls(outcome *o, attn_isa isa) {
    static attn_desc d;
    for (int i = 0; i < 2 * ATTN_SCORE_COUNT; i++) {
        d = set.calls[i];
        d.isa = (int32_t)isa;
        run_planned_here(&d, o);
        d.out = attn_out_f32(results(o, 18), 4, 1, 2, 3, 3);
        d.lse = attn_out_f32(results(o, 6), 3, 1, 2, 3, 0);
        d.weights = attn_out_f32(results(o, 66), 4, 1, 2, 3, 11);
        o->refused += attn_forward(&d, 0) != ATTN_OK;
        o->length += attn_explain(&d, o->text + o->length, TEXT_BYTES - o->length);
    }
    set.options.isa = (int32_t)isa;
    d = set.options, d.weights_after_dropout = 1;
    o->refused += attn_softmax(set.x, attn_out_f32(results(o, 30), 4, 1, 2, 3, 5), &d, 0) != ATTN_OK;
    o->refused += attn_bmm(set.x, set.y, attn_out_f32(results(o, 18), 4, 1, 2, 3, 3), &set.options, 0) != ATTN_OK;
    o->refused += attn_scores(set.x, set.x, attn_out_f32(results(o, 18), 4, 1, 2, 3, 3), &set.options, 0) != ATTN_OK;
    o->refused += attn_mask(attn_out_u8((uint8_t *)results(o, 6), 4, 1, 1, 3, 8), &set.options, 0) != ATTN_OK;
    o->refused += attn_dropout_mask(attn_out_u8((uint8_t *)results(o, 16), 4, 1, 1, 8, 8), &set.options, 0) != ATTN_OK;
    o->refused += attn_merge(set.x, set.lse, set.x, set.lse, attn_out_f32(results(o, 30), 4, 1, 2, 3, 5),
                             attn_out_f32(results(o, 6), 3, 1, 2, 3, 0), 0) != ATTN_OK;
    set.mha.out = attn_out_f32(results(o, 12), 3, 1, 3, 4, 0);
    set.mha.attention = &set.options;
    o->refused += attn_mha(&set.mha, 0) != ATTN_OK;
    for (int function = 0; function < ELEMENTARY_COUNT; function++)
        o->refused += attn_elementary(function, (const float *)set.x.data, results(o, 30), 30, isa) != ATTN_OK;
    run_pictures(o);
}

static void check_outcome(const outcome *got, const outcome *want, attn_isa isa, const char *state) {
    size_t at = 0;
    CHECKF(got->refused == 0, "%s, %s: %d calls refused", attn_isa_string(isa), state, got->refused);
    while (at < want->count && bits_of_float(got->x[at]) == bits_of_float(want->x[at])) at++;
    CHECKF(at == want->count, "%s, %s: number %lu of %lu is %.9g, not %.9g", attn_isa_string(isa), state,
           (unsigned long)at, (unsigned long)want->count, (double)got->x[at], (double)want->x[at]);
    CHECKF(got->length == want->length && !memcmp(got->text, want->text, want->length), "%s, %s: other text",
           attn_isa_string(isa), state);
}

static void test_rounding(void) { /* with what C99 has for it */
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
    static const char *const names[] = {"to nearest", "toward zero", "upward", "downward"};
    static outcome want, got;
    set_up();
    for (int n = 0; n < test_isa_count(); n++) {
        memset(&want, 0, sizeof want);
        run_calls(&want, test_isa(n));
        for (int i = 0; i < 4; i++) {
            memset(&got, 0, sizeof got);
            if (!CHECK(fesetround(modes[i]) == 0)) continue;
            run_calls(&got, test_isa(n));
            int after = fegetround();
            fesetround(FE_TONEAREST);
            CHECKF(after == modes[i], "%s: the rounding mode was not given back", names[i]);
            check_outcome(&got, &want, test_isa(n), names[i]);
        }
    }
}

#if HAS_CONTROL
#if defined(__aarch64__)
/* Flush to zero, one NaN for all, the rounding modes. */
enum { FLAGS = 0, FLUSH = 1 << 24, ONE_NAN = 1 << 25, UP = 1 << 22, DOWN = 1 << 23 };
static const unsigned states[] = {0, FLUSH, ONE_NAN, FLUSH | ONE_NAN, UP, DOWN | FLUSH, UP | DOWN};
static unsigned get_control(void) {
    uint64_t control;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(control));
    return (unsigned)control;
}
static void set_control(unsigned control) {
    __asm__ __volatile__("msr fpcr, %0" : : "r"((uint64_t)control) : "memory");
}
#else
/* Flush to zero, denormals are zero, the rounding modes, and no exception masked: a division by zero would be a
   signal. */
enum { FLAGS = 0x3F, DENORMALS_ZERO = 0x40, MASKS = 0x1F80, FLUSH = 0x8000, UP = 0x4000, DOWN = 0x2000 };
static const unsigned states[] = {
    MASKS,      MASKS | FLUSH,          MASKS | DENORMALS_ZERO, MASKS | FLUSH | DENORMALS_ZERO,
    MASKS | UP, MASKS | DOWN | FLUSH,   MASKS | UP | DOWN,      0,
    UP,         FLUSH | DENORMALS_ZERO, MASKS | FLAGS};
static unsigned get_control(void) { return _mm_getcsr(); }
static void set_control(unsigned control) { _mm_setcsr(control); }
#endif
static void test_control(void) {
    static outcome want, got;
    unsigned usual = get_control();
    set_up();
    for (int n = 0; n < test_isa_count(); n++) {
        memset(&want, 0, sizeof want);
        run_calls(&want, test_isa(n));
        for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
            char name[32];
            memset(&got, 0, sizeof got);
            set_control(states[i]);
            run_calls(&got, test_isa(n));
            unsigned after = get_control();
            set_control(usual);
            snprintf(name, sizeof name, "control register %04x", states[i]);
            CHECKF((after & ~(unsigned)FLAGS) == (states[i] & ~(unsigned)FLAGS), "%s: %04x afterwards", name, after);
            check_outcome(&got, &want, test_isa(n), name);
        }
    }
}
#else
static void test_control(void) {
    CHECK(1);
    test_skip("the control register of this machine is not known here; see isa.rounding");
}
#endif

const test_case suite_isa[] = {{"isa.best", test_best},
                               {"isa.forced", test_forced},
                               {"isa.elementary", test_elementary},
                               {"isa.special", test_special},
                               {"isa.counts", test_counts},
                               {"isa.rounding", test_rounding},
                               {"isa.control", test_control},
                               {0, 0}};
