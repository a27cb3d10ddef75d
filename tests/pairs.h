/* pairs.h - the instructions for pairs of bf16 in plain C, and which of them ATTN_PRECISION_FAST uses here. */
#ifndef ATTN_PAIRS_H
#define ATTN_PAIRS_H

#include "cases.h"

/* Numbers, products and sums below 2^-126 count as 0. The product of two numbers of bf16 is exact. */
static inline float flushed(float x) { return fabsf(x) < ldexpf(1, -126) ? copysignf(0, x) : x; }
static inline float multiply_add(float a, float b, float c) {
    double product = (double)flushed(a) * (double)flushed(b), sum = product + (double)flushed(c);
    return fabs(sum) < ldexp(1, -126) ? copysignf(0, (float)sum) : flushed(fmaf(flushed(a), flushed(b), flushed(c)));
}
/* The vector unit: a lane has a pair of numbers, of which the odd one comes first. */
static inline float pair_sum(float sum, const float *a, const float *b) {
    return multiply_add(a[0], b[0], multiply_add(a[1], b[1], sum));
}
/* AMX: 32 numbers at a time, those of even places apart from those of odd ones. */
static inline float amx_sum(float sum, const float *a, const float *b) {
    float even = 0, odd = 0;
    for (int x = 0; x < 32; x += 2) {
        even = multiply_add(a[x], b[x], even);
        odd = multiply_add(a[x + 1], b[x + 1], odd);
    }
    return flushed(flushed(sum) + flushed(even + odd));
}

enum { NO_PAIRS, PAIRS_BY_VECTORS, PAIRS_BY_AMX };
static inline int pairs_on(int32_t isa) { /* as attn_explain has it, of a call that can have nothing against them */
    char text[1000] = "";
    attn_desc d = make_desc(1, 1, 1, 9, 8, 32, 32);
    d.q.type = d.k.type = d.v.type = ATTN_BF16;
    d.precision = ATTN_PRECISION_FAST;
    d.isa = isa;
    attn_explain(&d, text, sizeof text);
    return !strstr(text, "; scores and out by products of bf16") ? NO_PAIRS
           : strstr(text, "products of bf16, by AMX")            ? PAIRS_BY_AMX
                                                                 : PAIRS_BY_VECTORS;
}

#if defined(__GNUC__) && !defined(_WIN32) /* of emulate_amx.h */
extern unsigned long long emulated_tile_products __attribute__((weak));
extern int emulated_tiles_configured __attribute__((weak));
#endif
#endif
