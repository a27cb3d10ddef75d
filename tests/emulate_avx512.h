/* emulate_avx512.h - AVX-512 for a machine without it, from SIMDe's portable functions: included before a
   copy of attn.h in which golden.sh has given every _mm512_ and __m512 the prefix simde and every target
   "avx512..." the name "avx2". Compiled with -mavx2 -mfma, so that a fused multiply-add is one. Below: what
   SIMDe 0.7.4 has not got. */
#include <immintrin.h>
#include <simde/x86/avx512.h>
#define EMULATED static __inline__ __attribute__((always_inline, unused))

EMULATED simde__m512 simde_mm512_mask_loadu_ps(simde__m512 source, simde__mmask16 mask, const void *p) {
    float lane[16];
    int i;
    simde_mm512_storeu_ps(lane, source);
    for (i = 0; i < 16; i++)
        if (mask >> i & 1) lane[i] = ((const float *)p)[i];
    return simde_mm512_loadu_ps(lane);
}
EMULATED simde__m512 simde_mm512_maskz_loadu_ps(simde__mmask16 mask, const void *p) {
    return simde_mm512_mask_loadu_ps(simde_mm512_setzero_ps(), mask, p);
}
EMULATED void simde_mm512_mask_storeu_ps(void *p, simde__mmask16 mask, simde__m512 x) {
    float lane[16];
    int i;
    simde_mm512_storeu_ps(lane, x);
    for (i = 0; i < 16; i++)
        if (mask >> i & 1) ((float *)p)[i] = lane[i];
}
EMULATED simde__m512 simde_mm512_cvtepi32_ps(simde__m512i x) {
    int32_t lane[16];
    float result[16];
    int i;
    simde_mm512_storeu_si512(lane, x);
    for (i = 0; i < 16; i++) result[i] = (float)lane[i];
    return simde_mm512_loadu_ps(result);
}
EMULATED simde__m512i simde_mm512_srai_epi32(simde__m512i x, unsigned count) {
    int32_t lane[16];
    int i;
    simde_mm512_storeu_si512(lane, x);
    for (i = 0; i < 16; i++) lane[i] >>= count;
    return simde_mm512_loadu_si512(lane);
}
#define EMULATED_WIDENED(name, vector, narrow) \
    EMULATED simde__m512i simde_mm512_##name(vector x) { \
        narrow from[16]; \
        int32_t to[16]; \
        int i; \
        __builtin_memcpy(from, &x, sizeof from); \
        for (i = 0; i < 16; i++) to[i] = from[i]; \
        return simde_mm512_loadu_si512(to); \
    }
EMULATED_WIDENED(cvtepu8_epi32, __m128i, uint8_t)
EMULATED_WIDENED(cvtepi8_epi32, __m128i, int8_t)
EMULATED_WIDENED(cvtepu16_epi32, __m256i, uint16_t)
#define EMULATED_NARROWED(name, vector, narrow) \
    EMULATED vector simde_mm512_##name(simde__m512i x) { \
        int32_t from[16]; \
        narrow to[16]; \
        vector result; \
        int i; \
        simde_mm512_storeu_si512(from, x); \
        for (i = 0; i < 16; i++) to[i] = (narrow)from[i]; \
        __builtin_memcpy(&result, to, sizeof to); \
        return result; \
    }
EMULATED_NARROWED(cvtepi32_epi16, __m256i, uint16_t)
EMULATED_NARROWED(cvtepi32_epi8, __m128i, int8_t)
EMULATED simde__m512 simde_mm512_cvtph_ps(__m256i x) {
    float lane[16];
    _mm256_storeu_ps(lane, _mm256_cvtph_ps(_mm256_castsi256_si128(x)));
    _mm256_storeu_ps(lane + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
    return simde_mm512_loadu_ps(lane);
}
EMULATED __m256i simde_emulated_cvtps_ph(simde__m512 x) {
    float lane[16];
    simde_mm512_storeu_ps(lane, x);
    return _mm256_set_m128i(_mm256_cvtps_ph(_mm256_loadu_ps(lane + 8), 0), _mm256_cvtps_ph(_mm256_loadu_ps(lane), 0));
}
#define simde_mm512_maskz_cvtps_ph(mask, x, rounding) \
    simde_emulated_cvtps_ph(x)                          /* 0, to the nearest, is all that is asked for */
#define simde_mm512_reduce_ps(x, to) emulated_reduce(x) /* 1, less its floor, is all that is asked for */
EMULATED simde__m512 emulated_reduce(simde__m512 x) {
    float lane[16];
    int i;
    simde_mm512_storeu_ps(lane, x);
    for (i = 0; i < 16; i++) { /* the difference is rounded down, too: below 0 by less than 2^-25 it is not 1 */
        float x = lane[i], n = __builtin_floorf(x), f = x - n;
        if ((double)f + (double)n > (double)x) f = __builtin_nextafterf(f, 0);
        lane[i] = __builtin_isinf(x) ? 0 : f;
    }
    return simde_mm512_loadu_ps(lane);
}
#undef simde_mm512_scalef_ps
#define simde_mm512_scalef_ps emulated_scalef /* SIMDe takes a subnormal exponent for 0 */
EMULATED simde__m512 emulated_scalef(simde__m512 x, simde__m512 y) {
    float lane[16], exponent[16];
    int i;
    simde_mm512_storeu_ps(lane, x);
    simde_mm512_storeu_ps(exponent, y);
    for (i = 0; i < 16; i++) {
        float n = __builtin_floorf(exponent[i]);
        if (n != n) lane[i] = n;
        else lane[i] = __builtin_ldexpf(lane[i], n < -300 ? -300 : n > 300 ? 300 : (int)n);
    }
    return simde_mm512_loadu_ps(lane);
}
EMULATED simde__mmask16 simde_mm512_testn_epi32_mask(simde__m512i a, simde__m512i b) {
    uint32_t x[16], y[16];
    unsigned mask = 0;
    int i;
    simde_mm512_storeu_si512(x, a);
    simde_mm512_storeu_si512(y, b);
    for (i = 0; i < 16; i++) mask |= (unsigned)!(x[i] & y[i]) << i;
    return (simde__mmask16)mask;
}

/* Pairs of bf16, as Intel's manual has them, whatever the CPU's modes are: two multiply-adds, the odd half's first,
   each rounded to nearest even, with subnormals taken and left as 0. A CPU that has the instruction gives the same bits
   (Zen 4: of 32 million pairs, subnormal and infinite ones among them, all; a NaN may be another one). */
EMULATED float emulated_flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? x * 0 : x; }
EMULATED float emulated_of_bf16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return emulated_flushed(x);
}
EMULATED float emulated_multiply_add(uint16_t a, uint16_t b, float c) {
    double x = (double)emulated_of_bf16(a) * (double)emulated_of_bf16(b); /* exact */
    float sum = __builtin_fmaf(emulated_of_bf16(a), emulated_of_bf16(b), emulated_flushed(c));
    return __builtin_fabs(x + (double)c) < 0x1p-126 ? sum * 0 : emulated_flushed(sum);
}
#define simde_mm512_dpbf16_ps emulated_dpbf16
#define simde__m512bh simde__m512
EMULATED simde__m512 emulated_dpbf16(simde__m512 sums, simde__m512 a, simde__m512 b) {
    float lane[16];
    uint16_t x[32], y[32];
    int i;
    simde_mm512_storeu_ps(lane, sums);
    simde_mm512_storeu_ps(x, a);
    simde_mm512_storeu_ps(y, b);
    for (i = 0; i < 16; i++) {
        lane[i] = emulated_multiply_add(x[2 * i + 1], y[2 * i + 1], lane[i]);
        lane[i] = emulated_multiply_add(x[2 * i], y[2 * i], lane[i]);
    }
    return simde_mm512_loadu_ps(lane);
}
EMULATED simde__m512i simde_mm512_cvtne2ps_pbh(simde__m512 high, simde__m512 low) {
    uint32_t from[32];
    uint16_t to[32];
    int i;
    simde_mm512_storeu_ps(from, low);
    simde_mm512_storeu_ps(from + 16, high);
    for (i = 0; i < 32; i++) {
        uint32_t x = from[i], a = x & 0x7fffffffu;
        if (a > 0x7f800000u) to[i] = (uint16_t)(x >> 16 | 0x40);
        else to[i] = a < 0x800000u ? (uint16_t)(x >> 16 & 0x8000u) : (uint16_t)((x + 0x7fffu + (x >> 16 & 1u)) >> 16);
    }
    return simde_mm512_loadu_si512(to);
}
/* Nothing is read where the mask has a 0. */
#define simde_mm512_maskz_loadu_epi16 emulated_maskz_loadu_epi16
EMULATED simde__m512i emulated_maskz_loadu_epi16(uint32_t mask, const void *from) {
    uint16_t half[32];
    int i;
    for (i = 0; i < 32; i++) {
        half[i] = 0;
        if (mask >> i & 1) __builtin_memcpy(half + i, (const char *)from + 2 * i, 2);
    }
    return simde_mm512_loadu_si512(half);
}
#define simde_mm512_permutexvar_epi16 emulated_permutexvar_epi16
EMULATED simde__m512i emulated_permutexvar_epi16(simde__m512i index, simde__m512i x) {
    uint16_t at[32], from[32], to[32];
    int i;
    simde_mm512_storeu_si512(at, index);
    simde_mm512_storeu_si512(from, x);
    for (i = 0; i < 32; i++) to[i] = from[at[i] & 31];
    return simde_mm512_loadu_si512(to);
}
#define simde_mm512_srai_epi16 emulated_srai_epi16
EMULATED simde__m512i emulated_srai_epi16(simde__m512i x, unsigned count) {
    int16_t half[32];
    int i;
    simde_mm512_storeu_si512(half, x);
    for (i = 0; i < 32; i++) half[i] = (int16_t)(half[i] >> count);
    return simde_mm512_loadu_si512(half);
}
