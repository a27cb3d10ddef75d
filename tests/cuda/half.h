/* half.h - f16 and bf16 as the tests have them: a double rounded to nearest even, and back. */
#ifndef ATTN_HALF_H
#define ATTN_HALF_H

#include "../../attn.h"
#include <math.h>
#include <string.h>

static inline double round_to(double x, int32_t type) {
    int exponent, least = type == ATTN_F16 ? -14 : -126, bits = type == ATTN_F16 ? 10 : 7;
    if (type == ATTN_F32) return (double)(float)x;
    if (x == 0 || !isfinite(x)) return x;
    frexp(x, &exponent);
    exponent = exponent - 1 < least ? least : exponent - 1;
    double quantum = ldexp(1, exponent - bits), rounded = nearbyint(x / quantum) * quantum;
    return fabs(rounded) > (type == ATTN_F16 ? 65504.0 : ldexp(255.0, 120)) ? copysign(INFINITY, x) : rounded;
}
static inline uint16_t to_16(double x, int32_t type) {
    float f = (float)round_to(x, type);
    uint32_t bits;
    int exponent;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(x)) return type == ATTN_F16 ? 0x7e01 : 0x7fc1;
    if (type == ATTN_BF16) return (uint16_t)(bits >> 16);
    if (isinf(f)) return (uint16_t)(bits >> 16 & 0x8000) | 0x7c00;
    frexp(x, &exponent);
    double size = fabs((double)f);
    if (size < ldexp(1, -14)) return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)ldexp(size, 24));
    return (uint16_t)((bits >> 16 & 0x8000) | (((bits & 0x7fffffff) >> 13) - (112u << 10)));
}
static inline double from_16(uint16_t h, int32_t type) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    if (type == ATTN_F16) {
        int exponent = h >> 10 & 31;
        double x = exponent == 31 ? (h & 1023 ? NAN : INFINITY)
                                  : ldexp(exponent ? (h & 1023) + 1024 : h & 1023, (exponent ? exponent : 1) - 25);
        return h & 0x8000 ? -x : x;
    }
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

#endif
