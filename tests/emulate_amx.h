/* emulate_amx.h - AMX's tiles of bf16 for any machine: the six instructions as functions, as Intel's manual has them.
   Included before a copy of attn.h in which emulate.sh has put calls of them in place of the instructions, and by
   tests/amx.c, which compares them with the hardware where there is one. For gcc and clang.

   Each thread has eight tiles of its own. What the hardware answers with a fault ends the program with a sentence, and
   so does a tile that is configured before the permission was asked for. Two counters are for tests:
       extern unsigned long long emulated_tile_products __attribute__((weak));  of the whole program so far
       extern int emulated_tiles_configured __attribute__((weak));              threads that hold a configuration
   where &emulated_tile_products is NULL in a program without emulation. */
#ifndef ATTN_EMULATE_AMX_H
#define ATTN_EMULATE_AMX_H

#include <fenv.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMULATED_TILE static __inline__ __attribute__((unused))
#ifndef EMULATED_FAULT /* may return by longjmp, but not as a function does */
#define EMULATED_FAULT(instruction, why) \
    do { \
        fprintf(stderr, "emulated %s: %s\n", instruction, why); \
        abort(); \
    } while (0)
#endif
#define EMULATED_DEMAND(condition, instruction, why) \
    do { \
        if (!(condition)) EMULATED_FAULT(instruction, why); \
    } while (0)

enum { EMULATED_TILES = 8, EMULATED_ROWS = 16, EMULATED_BYTES = 64 };

__attribute__((weak)) unsigned long long emulated_tile_products;
__attribute__((weak)) int emulated_tiles_configured;
__attribute__((weak)) int emulated_tiles_permitted;

static __thread struct {
    int configured, rows[EMULATED_TILES], colsb[EMULATED_TILES];
    unsigned char tile[EMULATED_TILES][EMULATED_ROWS][EMULATED_BYTES];
} emulated_amx;

/* ---- the kernel of Linux, as attn.h asks it by arch_prctl: has the CPU AMX (0x1021; where EMULATED_AMX is set in the
   environment), are its tiles permitted (0x1022), a request for them (0x1023: for state 18). */
#define ATTN__ARCH_PRCTL(request, value) emulated_arch_prctl(request, value)
EMULATED_TILE long emulated_arch_prctl(int64_t request, void *value) {
    const uint64_t amx = (uint64_t)1 << 18, there = getenv("EMULATED_AMX") ? amx : 0;
    if (request == 0x1023 && there && value == (void *)18)
        __atomic_store_n(&emulated_tiles_permitted, 1, __ATOMIC_RELAXED);
    else if (request == 0x1021) *(uint64_t *)value = 7 | there;
    else if (request == 0x1022)
        *(uint64_t *)value = 7 | (__atomic_load_n(&emulated_tiles_permitted, __ATOMIC_RELAXED) ? amx : 0);
    else return -22;
    return 0;
}

/* from how many columns and rows on a call takes AMX: where EMULATED_AMX is few, from the first */
EMULATED_TILE int emulated_least(int least) {
    const char *amx = getenv("EMULATED_AMX");
    return amx && !strcmp(amx, "few") ? 1 : least;
}

/* ---- configuration: byte 0 the palette, from byte 16 on the bytes of a row, from byte 48 on the rows of each tile */
EMULATED_TILE void emulated_tile_release(void) {
    if (emulated_amx.configured) __atomic_fetch_sub(&emulated_tiles_configured, 1, __ATOMIC_RELAXED);
    memset(&emulated_amx, 0, sizeof emulated_amx);
}
EMULATED_TILE void emulated_tile_loadconfig(const void *configuration) {
    unsigned char byte[64];
    int t, colsb, rows;
    memcpy(byte, configuration, sizeof byte);
    EMULATED_DEMAND(__atomic_load_n(&emulated_tiles_permitted, __ATOMIC_RELAXED), "ldtilecfg",
                    "nobody has asked for the permission to use tiles");
    EMULATED_DEMAND(byte[0] == 1, "ldtilecfg", "the palette is not 1");
    for (t = 1; t < 64; t++)
        EMULATED_DEMAND(!byte[t] || (t >= 16 && t < 32) || (t >= 48 && t < 56), "ldtilecfg",
                        "a byte that is reserved, or the row to start with, is not 0");
    for (t = 0; t < EMULATED_TILES; t++) {
        colsb = byte[16 + 2 * t] | byte[17 + 2 * t] << 8;
        rows = byte[48 + t];
        EMULATED_DEMAND(colsb <= EMULATED_BYTES && rows <= EMULATED_ROWS, "ldtilecfg",
                        "a tile has more than 16 rows of 64 bytes");
        EMULATED_DEMAND(!colsb == !rows, "ldtilecfg", "a tile has rows without bytes, or bytes without rows");
    }
    emulated_tile_release(); /* the data of all tiles becomes 0 */
    __atomic_fetch_add(&emulated_tiles_configured, 1, __ATOMIC_RELAXED);
    emulated_amx.configured = 1;
    for (t = 0; t < EMULATED_TILES; t++) {
        emulated_amx.colsb[t] = byte[16 + 2 * t] | byte[17 + 2 * t] << 8;
        emulated_amx.rows[t] = byte[48 + t];
    }
}
EMULATED_TILE void emulated_tile_demand(int t, const char *instruction) {
    EMULATED_DEMAND(emulated_amx.configured, instruction, "the tiles are not configured");
    EMULATED_DEMAND(t >= 0 && t < EMULATED_TILES, instruction, "there are tiles 0 to 7 only");
    EMULATED_DEMAND(emulated_amx.rows[t], instruction, "this tile is not configured");
    EMULATED_DEMAND(emulated_amx.colsb[t] % 4 == 0, instruction, "the bytes of this tile's rows are no multiple of 4");
}

/* ---- moving: what lies behind the rows and bytes of a tile that is written becomes 0 */
EMULATED_TILE void emulated_tile_zero(int t) {
    emulated_tile_demand(t, "tilezero");
    memset(emulated_amx.tile[t], 0, sizeof emulated_amx.tile[t]);
}
EMULATED_TILE void emulated_tile_loadd(int t, const void *base, ptrdiff_t stride) {
    int row;
    emulated_tile_demand(t, "tileloadd");
    memset(emulated_amx.tile[t], 0, sizeof emulated_amx.tile[t]);
    for (row = 0; row < emulated_amx.rows[t]; row++)
        memcpy(emulated_amx.tile[t][row], (const char *)base + row * stride, (size_t)emulated_amx.colsb[t]);
}
EMULATED_TILE void emulated_tile_stored(int t, void *base, ptrdiff_t stride) {
    int row;
    emulated_tile_demand(t, "tilestored");
    for (row = 0; row < emulated_amx.rows[t]; row++)
        memcpy((char *)base + row * stride, emulated_amx.tile[t][row], (size_t)emulated_amx.colsb[t]);
}

/* ---- the product. Every step is a sum in double precision, rounded to a float: to the nearest, ties to even, what is
   then below 2^-126 to a 0 of its sign. That is the fused multiply-add of floats: a product of two of bf16 has 16 bits,
   a float 24, and where their sum needs more than a double's 53, one of them is so small that it is rounded away.
   EMULATED_TINY assumes that, as elsewhere on these machines (MXCSR.FTZ), a result is small or not after rounding to
   24 bits: just below 2^-126 it makes a difference. */
#define EMULATED_TINY (0x1p-126 - 0x1p-151)
EMULATED_TILE __attribute__((always_inline)) double emulated_float(double sum) {
    return (double)(float)(sum * (__builtin_fabs(sum) < EMULATED_TINY ? 0.0 : 1.0));
}
EMULATED_TILE double emulated_bf16_at(const unsigned char *place) { /* subnormals count as 0 */
    uint16_t half;
    uint32_t bits;
    float x;
    memcpy(&half, place, sizeof half);
    bits = (uint32_t)(half & 0x7f80 ? half : half & 0x8000) << 16;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}
/* What is emulated is compiled with -O1. This loop is worth vectors. */
#ifdef __clang__
#define EMULATED_FAST
#define EMULATED_COLUMNS(n) _Pragma("clang loop vectorize(enable)") for (n = 0; n < EMULATED_ROWS; n++)
#else
#define EMULATED_FAST , optimize("O3")
#define EMULATED_COLUMNS(n) for (n = 0; n < EMULATED_ROWS; n++)
#endif
/* A row of the sums, [column], from pairs of the left operand, [depth][2], and those of the right one,
   [depth][2][column]. Even and odd elements are summed apart. Not inlined: all of it runs in the modes of arithmetic
   that the caller has set. */
__attribute__((noinline, unused EMULATED_FAST)) static void emulated_row(float *sums, double (*a)[2],
                                                                         double (*b)[2][EMULATED_ROWS], int depth) {
    double even[EMULATED_ROWS] = {0}, odd[EMULATED_ROWS] = {0};
    int k, n;
    for (k = 0; k < depth; k++) {
        const double x = a[k][0], y = a[k][1];
        EMULATED_COLUMNS(n) even[n] = emulated_float(x * b[k][0][n] + even[n]);
        EMULATED_COLUMNS(n) odd[n] = emulated_float(y * b[k][1][n] + odd[n]);
    }
    EMULATED_COLUMNS(n)
    sums[n] = (float)emulated_float(emulated_float(even[n] + odd[n]) + emulated_float((double)sums[n]));
}
EMULATED_TILE void emulated_tile_dpbf16ps(int c, int a, int b) {
    const int *rows = emulated_amx.rows, *colsb = emulated_amx.colsb;
    double left[EMULATED_ROWS][2], right[EMULATED_ROWS][2][EMULATED_ROWS];
    float sums[EMULATED_ROWS][EMULATED_ROWS];
    fenv_t callers; /* MXCSR does not matter, nor is it changed */
    int m, k, n;
    emulated_tile_demand(c, "tdpbf16ps");
    emulated_tile_demand(a, "tdpbf16ps");
    emulated_tile_demand(b, "tdpbf16ps");
    EMULATED_DEMAND(c != a && c != b && a != b, "tdpbf16ps", "two of the tiles are the same");
    EMULATED_DEMAND(rows[c] == rows[a], "tdpbf16ps", "the sums have other rows than the left operand");
    EMULATED_DEMAND(colsb[c] == colsb[b], "tdpbf16ps", "the sums have other columns than the right operand");
    EMULATED_DEMAND(colsb[a] / 4 == rows[b], "tdpbf16ps", "the left operand's pairs are not the right operand's rows");
    __atomic_fetch_add(&emulated_tile_products, 1, __ATOMIC_RELAXED);
    memcpy(sums, emulated_amx.tile[c], sizeof sums);
    memset(emulated_amx.tile[c], 0, sizeof emulated_amx.tile[c]);
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    for (k = 0; k < rows[b]; k++)
        for (n = 0; n < 2 * EMULATED_ROWS; n++)
            right[k][n % 2][n / 2] = emulated_bf16_at(&emulated_amx.tile[b][k][2 * n]);
    for (m = 0; m < rows[c]; m++) {
        for (k = 0; k < 2 * rows[b]; k++) left[k / 2][k % 2] = emulated_bf16_at(&emulated_amx.tile[a][m][2 * k]);
        emulated_row(sums[m], left, right, rows[b]);
        memcpy(emulated_amx.tile[c][m], sums[m], (size_t)colsb[c]);
    }
    fesetenv(&callers);
}

#endif
