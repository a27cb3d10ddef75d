/* amx.c - the emulation of AMX's tiles of bf16 (emulate_amx.h): what a product is in exact arithmetic, its bits step by
   step, what is refused; and, where this machine has tiles, that they give the same bits. The library is not called.
   This suite stands last: what it asks for, of the emulation and of Linux, is permitted to the process from then on. */
#if !defined(_WIN32) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE
#endif
#include "test.h"
#include "elementary.h"
#include <fenv.h>
#include <setjmp.h>

#if defined(__GNUC__) && !defined(_WIN32)
#include <pthread.h>
static jmp_buf at_fault;
static const char *fault;
#define EMULATED_FAULT(instruction, why) ((void)(instruction), fault = (why), longjmp(at_fault, 1))
#include "emulate_amx.h"

/* Sums [rows][columns] of floats; left operand [rows][depth], right one [depth][columns], of pairs. */
typedef struct product {
    int rows, depth, columns;
    float c[16][16];
    uint16_t a[16][32], b[16][32];
} product;
enum { C, A, B }; /* tiles */

static void configure(unsigned char *byte, int rows, int depth, int columns) {
    memset(byte, 0, 64);
    byte[0] = 1;
    byte[16 + 2 * C] = byte[16 + 2 * B] = (unsigned char)(4 * columns), byte[16 + 2 * A] = (unsigned char)(4 * depth);
    byte[48 + C] = byte[48 + A] = (unsigned char)rows, byte[48 + B] = (unsigned char)depth;
}
static void ask(void) {
    setenv("EMULATED_AMX", "1", 1);
    CHECK(ATTN__ARCH_PRCTL(0x1023, (void *)18) == 0);
}
static void emulate(product *p) {
    unsigned char byte[64];
    configure(byte, p->rows, p->depth, p->columns);
    emulated_tile_loadconfig(byte);
    emulated_tile_loadd(C, p->c, 64);
    emulated_tile_loadd(A, p->a, 64);
    emulated_tile_loadd(B, p->b, 64);
    emulated_tile_dpbf16ps(C, A, B);
    emulated_tile_stored(C, p->c, 64);
    emulated_tile_release();
}

/* ---- numbers of six kinds, as bits of bf16 */
enum { ORDINARY, WIDE, TINY, UNDERFLOW_OFTEN, OVERFLOW_OFTEN, ANYTHING, KINDS };
static const char *const kinds[] = {"ordinary", "of many sizes", "tiny", "underflowing", "overflowing", "anything"};
static uint16_t draw(int kind) {
    static const int least[] = {118, 100, 0, 52, 190, 0}, most[] = {127, 140, 10, 80, 254, 255};
    return (uint16_t)(test_int(0, 1) << 15 | test_int(least[kind], most[kind]) << 7 | test_int(0, 127));
}
static float draw_sum(int kind) { return float_of_bits((uint32_t)draw(kind) << 16 | (uint32_t)test_int(0, 0xffff)); }
static void draw_product(product *p, int kind, int full) {
    p->rows = full ? 16 : test_int(1, 16);
    p->depth = full ? 16 : test_int(1, 16);
    p->columns = full ? 16 : test_int(1, 16);
    for (int i = 0; i < 256; i++) p->c[i / 16][i % 16] = draw_sum(kind);
    for (int i = 0; i < 512; i++) p->a[i / 32][i % 32] = draw(kind), p->b[i / 32][i % 32] = draw(kind);
}

/* ---- the manual's steps, in floats and with the fused multiply-add of the C library */
static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
static float of_bf16(uint16_t half) { return flushed(float_of_bits((uint32_t)half << 16)); }
static float multiply_add(float a, float b, float c) {
    float sum = fmaf(a, b, c);
    if (fabsf(sum) != 0x1p-126f) return flushed(sum);
    /* Is it so large only because it was rounded to a multiple of 2^-149? Then not where there is room below. */
    int small = fabsf(a) < fabsf(b);
    float larger = fmaf(small ? a * 0x1p48f : a, small ? b : b * 0x1p48f, c * 0x1p48f);
    return fabsf(larger) < 0x1p-78f ? copysignf(0, sum) : sum;
}
static void step_by_step(product *p) {
    for (int m = 0; m < p->rows; m++)
        for (int n = 0; n < p->columns; n++) {
            float sums[2] = {0, 0};
            for (int k = 0; k < p->depth; k++)
                for (int i = 0; i < 2; i++)
                    sums[i] = multiply_add(of_bf16(p->a[m][2 * k + i]), of_bf16(p->b[k][2 * n + i]), sums[i]);
            p->c[m][n] = flushed(flushed(p->c[m][n]) + flushed(sums[0] + sums[1]));
        }
}

static int same(float x, float y) { return bits_of_float(x) == bits_of_float(y) || (isnan(x) && isnan(y)); }
static void check_same(const product *got, const product *want, const char *what) {
    int wrong = 0, first = 0;
    for (int i = 255; i >= 0; i--)
        if (!same(got->c[i / 16][i % 16], want->c[i / 16][i % 16])) wrong++, first = i;
    CHECKF(!wrong, "%s, %d rows, depth %d, %d columns: %d sums differ, first [%d][%d]: %a, not %a", what, got->rows,
           got->depth, got->columns, wrong, first / 16, first % 16, (double)got->c[first / 16][first % 16],
           (double)want->c[first / 16][first % 16]);
}
static void test_steps(void) {
    ask();
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 60; i++) {
            product got, want;
            draw_product(&got, kind, i % 2);
            want = got;
            emulate(&got);
            step_by_step(&want);
            check_same(&got, &want, kinds[kind]);
        }
}

/* ---- exact arithmetic: whole numbers as they are, others within the bound; rows of any stride, no byte beside them */
static void test_exact(void) {
    ask();
    for (int i = 0; i < 100; i++) {
        int whole = i % 2, rows = test_int(1, 16), depth = test_int(1, 16), columns = test_int(1, 16);
        int a_row = 2 * depth + test_int(0, 9), b_row = 2 * columns + test_int(0, 9), c_row = columns + test_int(0, 9);
        uint16_t *a = test_guarded(sizeof *a * (size_t)((rows - 1) * a_row + 2 * depth));
        uint16_t *b = test_guarded_low(sizeof *b * (size_t)((depth - 1) * b_row + 2 * columns));
        float *c = test_guarded(sizeof *c * (size_t)((rows - 1) * c_row + columns)), before[16][16];
        unsigned char byte[64];
        for (int m = 0; m < rows; m++)
            for (int k = 0; k < 2 * depth; k++)
                a[m * a_row + k] = whole ? (uint16_t)(bits_of_float((float)test_int(-99, 99)) >> 16) : draw(ORDINARY);
        for (int k = 0; k < depth; k++)
            for (int n = 0; n < 2 * columns; n++)
                b[k * b_row + n] = whole ? (uint16_t)(bits_of_float((float)test_int(-99, 99)) >> 16) : draw(ORDINARY);
        for (int m = 0; m < rows; m++)
            for (int n = 0; n < columns; n++)
                before[m][n] = c[m * c_row + n] = whole ? (float)test_int(-999, 999) : draw_sum(ORDINARY);
        configure(byte, rows, depth, columns);
        emulated_tile_loadconfig(byte);
        emulated_tile_loadd(C, c, 4 * c_row);
        emulated_tile_loadd(A, a, 2 * a_row);
        emulated_tile_loadd(B, b + (depth - 1) * b_row, -2 * b_row); /* upwards: the last row first */
        emulated_tile_dpbf16ps(C, A, B);
        emulated_tile_stored(C, c, 4 * c_row);
        emulated_tile_release();
        for (int m = 0; m < rows; m++)
            for (int n = 0; n < columns; n++) {
                double sum = (double)before[m][n], size = fabs(sum);
                for (int k = 0; k < 2 * depth; k++) {
                    uint16_t right = b[(depth - 1 - k / 2) * b_row + 2 * n + k % 2];
                    double term = (double)of_bf16(a[m * a_row + k]) * (double)of_bf16(right);
                    sum += term, size += fabs(term);
                }
                CHECK_CLOSE((double)c[m * c_row + n], sum, whole ? 0 : (depth + 2) * 0x1p-24 * size);
            }
        test_release();
    }
}

/* ---- bits known beforehand: one sum, with up to three pairs: even and odd elements in turn */
typedef struct known {
    const char *what;
    uint32_t c;
    struct {
        uint16_t a, b;
    } element[6];
    uint32_t want;
} known;
#define ONE 0x3f80
#define MINUS 0x8000
#define POWER(e) (uint16_t)((127 + (e)) << 7) /* 2^e */
#define POWER_OF(e) \
    { POWER((e) / 2), POWER((e) - (e) / 2) } /* as a product */
#define NEGATIVE_OF(e) \
    { MINUS | POWER((e) / 2), POWER((e) - (e) / 2) }
#define NONE \
    { 0, 0 }
#define NOTHING \
    { MINUS, ONE } /* -0 */
#define LEAST NEGATIVE_OF(-127)
enum { A_NAN = 0x7fc00000 };
static const known cases[] = {
    {"a tie goes to the even float below", 0x3f800000, {POWER_OF(-24)}, 0x3f800000},
    {"a tie goes to the even float above", 0x3f800001, {POWER_OF(-24)}, 0x3f800002},
    {"the same of a negative sum", 0xbf800001, {NEGATIVE_OF(-24)}, 0xbf800002},
    {"a tie within a chain, below", 0, {{ONE, ONE}, NONE, POWER_OF(-24)}, 0x3f800000},
    {"a tie within a chain, above", 0, {{ONE, ONE}, NONE, POWER_OF(-23), NONE, POWER_OF(-24)}, 0x3f800002},
    {"a chain goes upwards", 0, {POWER_OF(-24), NONE, POWER_OF(-24), NONE, {ONE, ONE}}, 0x3f800001},
    {"the odd chain, too", 0, {NONE, POWER_OF(-24), NONE, POWER_OF(-24), NONE, {ONE, ONE}}, 0x3f800001},
    {"even and odd elements are summed apart", 0, {{ONE, ONE}, POWER_OF(-24), NONE, POWER_OF(-24)}, 0x3f800001},
    {"also the other way round", 0, {POWER_OF(-24), {ONE, ONE}, POWER_OF(-24)}, 0x3f800001},
    {"neighbours are not summed first", 0, {{ONE, ONE}, NONE, POWER_OF(-24), POWER_OF(-24)}, 0x3f800000},
    {"the sum before comes last", 0x3f800000, {POWER_OF(-24), POWER_OF(-24)}, 0x3f800001},
    {"what is multiplied is not rounded", 0x00000000, {{0x3f81, 0x3f81}, {0xbf80, 0x3f82}}, 0x38800000},
    {"a subnormal left operand counts as 0", 0x3f800000, {{0x007f, POWER(126)}}, 0x3f800000},
    {"a subnormal right operand counts as 0", 0x3f800000, {{POWER(126), 0x807f}}, 0x3f800000},
    {"a subnormal sum before counts as 0", 0x007fffff, {NONE}, 0},
    {"it counts as 0 before something is added", 0x00400000, {{POWER(-63), POWER(-63)}}, 0x00800000},
    {"the smallest operands count", 0, {{0x0080, ONE}}, 0x00800000},
    {"a subnormal product alone is 0", 0, {POWER_OF(-127)}, 0},
    {"a subnormal product within a sum counts", 0, {POWER_OF(-126), NONE, POWER_OF(-130)}, 0x00880000},
    {"two subnormal products are 0 and 0", 0, {POWER_OF(-127), NONE, POWER_OF(-127)}, 0},
    {"a subnormal step is 0", 0, {{POWER(-126), 0x3fc0}, NONE, NEGATIVE_OF(-126), NONE, POWER_OF(-126)}, 0x00800000},
    {"a subnormal sum of even and odd is 0", 0x00800000, {{POWER(-126), 0x3fc0}, NEGATIVE_OF(-126)}, 0x00800000},
    {"a subnormal sum at last is 0", 0x00c00000, {NEGATIVE_OF(-126)}, 0},
    {"and keeps its sign", 0x80c00000, {POWER_OF(-126)}, 0x80000000},
    {"so does a step", 0x80000000, {LEAST, LEAST, NOTHING, NOTHING, NOTHING, NOTHING}, 0x80000000},
    {"a chain begins with 0, not with -0", 0x80000000, {NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING}, 0},
    {"1 - 1 is 0, not -0", 0x80000000, {{ONE, ONE}, {ONE, ONE | MINUS}}, 0},
    {"the largest float stays", 0x7f7fffff, {POWER_OF(102)}, 0x7f7fffff},
    {"half a unit more is infinite", 0x7f7fffff, {POWER_OF(103)}, 0x7f800000},
    {"a product may overflow", 0, {{POWER(127), 0xc000}}, 0xff800000},
    {"what has overflowed stays so", 0xff7fffff, {{POWER(127), POWER(1)}, {MINUS | POWER(127), ONE}}, 0x7f800000},
    {"infinity less infinity, in a chain", 0, {{0x7f80, ONE}, NONE, {0xff80, ONE}}, A_NAN},
    {"infinity less infinity, even and odd", 0, {{0x7f80, ONE}, {0xff80, ONE}}, A_NAN},
    {"infinity less infinity, at last", 0x7f800000, {{0xff80, ONE}}, A_NAN},
    {"infinity times 0", 0, {{0x7f80, 0}}, A_NAN},
    {"infinity times what counts as 0", 0, {{0x7f80, 0x0001}}, A_NAN},
    {"a NaN to the left", 0, {NONE, {0x7fc0, ONE}}, A_NAN},
    {"a NaN to the right, times 0", 0, {{0, 0xff81}}, A_NAN},
    {"a NaN of the smallest bits in the sum", 0x7f800001, {NONE}, A_NAN},
};
/* The emulation assumes here what the manual does not say in these words: see EMULATED_TINY. */
static const known smallest[] = {
    {"2^-126 - 2^-151 rounds to 2^-126", 0, {POWER_OF(-126), NONE, NEGATIVE_OF(-151)}, 0x00800000},
    {"2^-126 - 2^-152 rounds to 2^-126", 0, {POWER_OF(-126), NONE, NEGATIVE_OF(-152)}, 0x00800000},
    {"2^-126 - 2^-150 is subnormal", 0, {POWER_OF(-126), NONE, NEGATIVE_OF(-150)}, 0},
    {"so is 2^-126 - 1.0078125 * 2^-151", 0, {POWER_OF(-126), NONE, {POWER(-75), MINUS | 0x1981}}, 0},
    {"-2^-126 + 2^-151 rounds to -2^-126", 0, {NEGATIVE_OF(-126), NONE, POWER_OF(-151)}, 0x80800000},
};
typedef void multiply(product *p);
static void check_known(const known *table, size_t n, multiply *run) {
    for (size_t i = 0; i < n; i++) {
        product p;
        memset(&p, 0, sizeof p);
        p.rows = p.columns = 1, p.depth = 3;
        p.c[0][0] = float_of_bits(table[i].c);
        for (int k = 0; k < 6; k++) p.a[0][k] = table[i].element[k].a, p.b[k / 2][k % 2] = table[i].element[k].b;
        run(&p);
        CHECKF(same(p.c[0][0], float_of_bits(table[i].want)), "%s: %08x, not %08x", table[i].what,
               (unsigned)bits_of_float(p.c[0][0]), (unsigned)table[i].want);
    }
}
#define CHECK_KNOWN(table, run) check_known(table, sizeof table / sizeof *table, run)
static void test_known(void) {
    ask();
    CHECK_KNOWN(cases, emulate);
    CHECK_KNOWN(smallest, emulate);
    CHECK_KNOWN(cases, step_by_step); /* the other way to compute them knows them, too */
    CHECK_KNOWN(smallest, step_by_step);
}

/* ---- what lies behind the rows and columns of a tile that is written */
static int is_zero_behind(int t, int rows, int colsb) {
    int others = 0;
    for (int i = 0; i < 16 * 64; i++)
        others += (i / 64 >= rows || i % 64 >= colsb) && emulated_amx.tile[t][i / 64][i % 64];
    return !others;
}
static void test_partial(void) {
    ask();
    for (int i = 0; i < 30; i++) {
        product p;
        unsigned char byte[64];
        draw_product(&p, ORDINARY, 0);
        configure(byte, p.rows, p.depth, p.columns);
        emulated_tile_loadconfig(byte);
        CHECK(is_zero_behind(C, 0, 0) && is_zero_behind(A, 0, 0) && is_zero_behind(B, 0, 0));
        memset(emulated_amx.tile, 0xaa, sizeof emulated_amx.tile); /* which no instruction leaves there */
        emulated_tile_loadd(A, p.a, 64);
        emulated_tile_loadd(B, p.b, 64);
        CHECK(is_zero_behind(A, p.rows, 4 * p.depth) && is_zero_behind(B, p.depth, 4 * p.columns));
        CHECK(!memcmp(emulated_amx.tile[A][p.rows - 1], p.a[p.rows - 1], (size_t)(4 * p.depth)));
        emulated_tile_dpbf16ps(C, A, B);
        CHECK(is_zero_behind(C, p.rows, 4 * p.columns));
        memset(emulated_amx.tile, 0xaa, sizeof emulated_amx.tile);
        emulated_tile_zero(C);
        CHECK(is_zero_behind(C, 0, 0));
        emulated_tile_loadconfig(byte); /* clears all */
        CHECK(is_zero_behind(A, 0, 0) && is_zero_behind(B, 0, 0));
        emulated_tile_release();
    }
}

/* ---- what is refused, and why */
enum { CONFIGURE, ZERO, LOAD, STORE, MULTIPLY };
typedef struct refusal {
    int what, t, a, b;     /* after the configuration, with these tiles */
    const char *why;       /* NULL: it is taken */
    int byte[3], value[3]; /* of the configuration, which else has tiles 0 to 2 of 16 rows and columns; byte 0 counts */
} refusal;
static const refusal refusals[] = {
    {MULTIPLY, 0, 1, 2, NULL, {0}, {1}},
    {CONFIGURE, 0, 0, 0, "palette", {0}, {0}},
    {CONFIGURE, 0, 0, 0, "palette", {0}, {2}},
    {CONFIGURE, 0, 0, 0, "reserved", {0, 1}, {1, 3}},
    {CONFIGURE, 0, 0, 0, "reserved", {0, 15}, {1, 1}},
    {CONFIGURE, 0, 0, 0, "reserved", {0, 32}, {1, 64}},
    {CONFIGURE, 0, 0, 0, "reserved", {0, 47}, {1, 1}},
    {CONFIGURE, 0, 0, 0, "reserved", {0, 56}, {1, 16}},
    {CONFIGURE, 0, 0, 0, "16 rows of 64 bytes", {0, 48}, {1, 17}},
    {CONFIGURE, 0, 0, 0, "16 rows of 64 bytes", {0, 16}, {1, 65}},
    {CONFIGURE, 0, 0, 0, "16 rows of 64 bytes", {0, 17}, {1, 1}},
    {CONFIGURE, 0, 0, 0, "rows without bytes", {0, 55}, {1, 1}},
    {CONFIGURE, 0, 0, 0, "rows without bytes", {0, 30}, {1, 4}},
    {CONFIGURE, 0, 0, 0, NULL, {0, 30, 55}, {1, 4, 1}},
    {ZERO, 3, 0, 0, "this tile is not configured", {0}, {1}},
    {LOAD, 3, 0, 0, "this tile is not configured", {0}, {1}},
    {STORE, 7, 0, 0, "this tile is not configured", {0}, {1}},
    {LOAD, 8, 0, 0, "0 to 7", {0}, {1}},
    {LOAD, 0, 0, 0, "multiple of 4", {0, 16}, {1, 62}},
    {STORE, 1, 0, 0, "multiple of 4", {0, 18}, {1, 2}},
    {MULTIPLY, 0, 1, 3, "this tile is not configured", {0}, {1}},
    {MULTIPLY, 3, 1, 2, "this tile is not configured", {0}, {1}},
    {MULTIPLY, 0, 0, 2, "the same", {0}, {1}},
    {MULTIPLY, 0, 1, 1, "the same", {0}, {1}},
    {MULTIPLY, 2, 1, 2, "the same", {0}, {1}},
    {MULTIPLY, 0, 1, 2, "other rows", {0, 48}, {1, 15}},
    {MULTIPLY, 0, 1, 2, "other rows", {0, 49}, {1, 8}},
    {MULTIPLY, 0, 1, 2, "other columns", {0, 16}, {1, 60}},
    {MULTIPLY, 0, 1, 2, "other columns", {0, 20}, {1, 32}},
    {MULTIPLY, 0, 1, 2, "pairs", {0, 18}, {1, 60}},
    {MULTIPLY, 0, 1, 2, "pairs", {0, 50}, {1, 15}},
    {MULTIPLY, 0, 1, 2, NULL, {0, 18, 50}, {1, 60, 15}},
};
static void check_refused(const refusal *r, const unsigned char *byte, const char *why) {
    static float data[16][16];
    fault = NULL;
    if (!setjmp(at_fault)) {
        if (byte) emulated_tile_loadconfig(byte);
        switch (r->what) {
        case ZERO: emulated_tile_zero(r->t); break;
        case LOAD: emulated_tile_loadd(r->t, data, 64); break;
        case STORE: emulated_tile_stored(r->t, data, 64); break;
        case MULTIPLY: emulated_tile_dpbf16ps(r->t, r->a, r->b); break;
        default: break;
        }
    }
    CHECKF(why ? fault && strstr(fault, why) : !fault, "refused for \"%s\", not \"%s\"", fault ? fault : "nothing",
           why ? why : "nothing");
}
static void test_refused(void) {
    int permitted = emulated_tiles_permitted;
    uint64_t bits = 0;
    unsigned char byte[64];
    configure(byte, 16, 16, 16);
    emulated_tiles_permitted = 0;
    CHECK(ATTN__ARCH_PRCTL(0x1022, &bits) == 0 && !(bits >> 17));
    check_refused(&refusals[0], byte, "permission");
    CHECK(ATTN__ARCH_PRCTL(1, &bits) == -22);
    unsetenv("EMULATED_AMX");
    CHECK(ATTN__ARCH_PRCTL(0x1021, &bits) == 0 && !(bits >> 17));
    CHECK(ATTN__ARCH_PRCTL(0x1023, (void *)18) == -22);
    ask();
    CHECK(ATTN__ARCH_PRCTL(0x1021, &bits) == 0 && bits >> 18 == 1);
    CHECK(ATTN__ARCH_PRCTL(0x1022, &bits) == 0 && bits >> 18 == 1);
    for (int what = ZERO; what <= MULTIPLY; what++) {
        const refusal r = {what, 0, 1, 2, NULL, {0}, {0}};
        check_refused(&r, NULL, "the tiles are not configured");
    }
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        configure(byte, 16, 16, 16);
        for (int n = 0; n < 3; n++)
            if (n == 0 || r->byte[n]) byte[r->byte[n]] = (unsigned char)r->value[n];
        check_refused(r, byte, r->why);
        emulated_tile_release();
    }
    emulated_tiles_permitted = permitted;
}

/* ---- the caller's modes of arithmetic neither matter nor change */
static void in_mode(int rounding, const char *what) {
    for (int kind = 0; kind < KINDS; kind++) {
        product want, got;
        draw_product(&want, kind, 1);
        got = want;
        emulate(&want);
        fesetround(rounding);
        feclearexcept(FE_ALL_EXCEPT);
        emulate(&got);
        int after = fegetround(), raised = fetestexcept(FE_ALL_EXCEPT);
        fesetround(FE_TONEAREST);
        CHECKF(after == rounding && !raised, "%s: mode %d, not %d; flags %x", what, after, rounding, (unsigned)raised);
        check_same(&got, &want, what);
    }
}
static void test_modes(void) {
    ask();
    in_mode(FE_TONEAREST, "to nearest");
#ifdef FE_UPWARD
    in_mode(FE_UPWARD, "upwards");
#endif
#ifdef FE_DOWNWARD
    in_mode(FE_DOWNWARD, "downwards");
#endif
#ifdef FE_TOWARDZERO
    in_mode(FE_TOWARDZERO, "towards 0");
#endif
#ifdef __SSE2__
    unsigned usual = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(usual | 0x8040); /* subnormals are flushed */
    in_mode(FE_TONEAREST, "subnormals flushed");
    CHECK((__builtin_ia32_stmxcsr() & 0x8040) == 0x8040);
    __builtin_ia32_ldmxcsr(usual);
#endif
}

/* ---- the counters; tiles belong to a thread */
static void *of_another_thread(void *seen) {
    unsigned char byte[64];
    int *configured = (int *)seen;
    configure(byte, 1, 1, 1);
    configured[0] = emulated_amx.configured;
    emulated_tile_loadconfig(byte);
    configured[1] = emulated_tiles_configured;
    emulated_tile_release();
    return NULL;
}
static void test_counters(void) {
    unsigned char byte[64];
    product p;
    pthread_t thread;
    int seen[2] = {-1, -1}, before = emulated_tiles_configured;
    unsigned long long products = emulated_tile_products;
    ask();
    CHECK(before == 0); /* what ran before has released its tiles */
    draw_product(&p, ORDINARY, 1);
    for (int i = 0; i < 5; i++) emulate(&p);
    CHECK(emulated_tile_products == products + 5);
    configure(byte, 2, 2, 2);
    emulated_tile_loadconfig(byte);
    emulated_tile_loadconfig(byte);
    CHECK(emulated_tiles_configured == 1);
    if (CHECK(!pthread_create(&thread, NULL, of_another_thread, seen))) pthread_join(thread, NULL);
    CHECK(seen[0] == 0 && seen[1] == 2);
    CHECK(emulated_tiles_configured == 1);
    emulated_tile_release();
    emulated_tile_release();
    CHECK(emulated_tiles_configured == 0);
}
static const char no_tiles[] = "this machine has no AMX: the emulation is not compared with it";
#endif

/* ---- the hardware */
#if defined(__x86_64__) && defined(__linux__) && ((defined(__clang__) && __clang_major__ >= 12) || __GNUC__ >= 11)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((target("amx-tile,amx-bf16"))) static void run(product *p) {
    unsigned char byte[64];
    configure(byte, p->rows, p->depth, p->columns);
    __asm__ volatile("" : : "r"(byte), "r"(p) : "memory"); /* gcc 12 takes 8 of the 64 bytes for all that is read */
    _tile_loadconfig(byte);
    _tile_loadd(0, p->c, 64);
    _tile_loadd(1, p->a, 64);
    _tile_loadd(2, p->b, 64);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, p->c, 64);
    _tile_release();
    __asm__ volatile("" : : "r"(p) : "memory");
}
static int has_tiles(void) { /* bf16 and tiles, and the permission to use them, which this process asks for */
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return 0;
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}
static void test_hardware(void) {
    if (!has_tiles()) {
        test_skip(no_tiles);
        return;
    }
    ask();
    CHECK_KNOWN(cases, run);
    CHECK_KNOWN(smallest, run);
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 2000; i++) {
            product got, want;
            draw_product(&got, kind, i % 4);
            want = got;
            run(&got);
            emulate(&want);
            check_same(&got, &want, kinds[kind]);
        }
}
#elif defined(__GNUC__) && !defined(_WIN32)
static void test_hardware(void) { test_skip(no_tiles); }
#endif

#if defined(__GNUC__) && !defined(_WIN32)
const test_case suite_amx[] = {
    {"amx.exact", test_exact},       {"amx.steps", test_steps},       {"amx.known", test_known},
    {"amx.partial", test_partial},   {"amx.refused", test_refused},   {"amx.modes", test_modes},
    {"amx.counters", test_counters}, {"amx.hardware", test_hardware}, {0, 0}};
#else
static void nothing(void) { test_skip("the emulation of AMX is for gcc and clang"); }
const test_case suite_amx[] = {{"amx.nothing", nothing}, {0, 0}};
#endif
