/* elementary.h - how far a float is from exp, log or tanh in double precision. */
#ifndef ATTN_ELEMENTARY_H
#define ATTN_ELEMENTARY_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { ELEMENTARY_EXP, ELEMENTARY_LOG, ELEMENTARY_TANH, ELEMENTARY_COUNT };
static const char *const elementary_names[ELEMENTARY_COUNT] = {"exp", "log", "tanh"};

static inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The function in double precision. Where a term or two of its series are exact to more than a double's precision,
   or it has reached its limit, these stand for the slower library function. */
static inline double elementary_exact(int function, double x) {
    double magnitude = fabs(x);
    if (function == ELEMENTARY_EXP) {
        if (magnitude < 0x1p-30) return 1 + x;
        return x > 200 ? 0x1p200 : x < -200 ? 0x1p-200 : exp(x);
    }
    if (function == ELEMENTARY_TANH) {
        if (magnitude < 0x1p-14) return x - x * x * x / 3;
        return magnitude > 30 ? copysign(1, x) : tanh(x);
    }
    return isnan(x) || x < 0 ? NAN : log(x);
}

/* The distance between the floats around x. */
static inline double elementary_unit(double x) {
    uint64_t bits;
    double power;
    memcpy(&bits, &x, sizeof bits);
    bits &= (uint64_t)0x7ff << 52; /* the exponent alone: 2^e */
    memcpy(&power, &bits, sizeof power);
    return (power < 0x1p-126 ? 0x1p-126 : power) * 0x1p-23;
}

/* The distance in units of the last place of the exact value, as a float has them; 2^128 stands for infinity. An exp
   below 2^-126 must be 0 (just above it may). */
static inline double elementary_ulps(int function, float x, float got) {
    double want = elementary_exact(function, (double)x), result = (double)got;
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf(want)) return result == want ? 0 : INFINITY;
    if (want > 0x1p128) want = 0x1p128;
    if (isinf(got)) result = copysign(0x1p128, result);
    double unit = elementary_unit(want);
    if (function == ELEMENTARY_EXP && want < 0x1p-126 + 2 * unit && got == 0) return 0;
    if (function == ELEMENTARY_EXP && want < 0x1p-126 - 2 * unit) return INFINITY;
    return fabs(result - want) / unit;
}

/* A NaN, but not the one that results have. */
static inline int elementary_odd_nan(float got) { return isnan(got) && bits_of_float(got) != 0x7fc00000u; }

#endif
