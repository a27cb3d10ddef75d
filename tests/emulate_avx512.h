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
EMULATED simde__m512i simde_mm512_cvtepu8_epi32(__m128i x) {
    uint8_t byte[16];
    int32_t lane[16];
    int i;
    _mm_storeu_si128((__m128i *)(void *)byte, x);
    for (i = 0; i < 16; i++) lane[i] = byte[i];
    return simde_mm512_loadu_si512(lane);
}
EMULATED simde__m512i simde_mm512_cvtepi8_epi32(__m128i x) {
    int8_t byte[16];
    int32_t lane[16];
    int i;
    _mm_storeu_si128((__m128i *)(void *)byte, x);
    for (i = 0; i < 16; i++) lane[i] = byte[i];
    return simde_mm512_loadu_si512(lane);
}
EMULATED simde__m512i simde_mm512_cvtepu16_epi32(__m256i x) {
    uint16_t half[16];
    int32_t lane[16];
    int i;
    _mm256_storeu_si256((__m256i *)(void *)half, x);
    for (i = 0; i < 16; i++) lane[i] = half[i];
    return simde_mm512_loadu_si512(lane);
}
EMULATED __m256i simde_mm512_cvtepi32_epi16(simde__m512i x) {
    int32_t lane[16];
    uint16_t half[16];
    int i;
    simde_mm512_storeu_si512(lane, x);
    for (i = 0; i < 16; i++) half[i] = (uint16_t)lane[i];
    return _mm256_loadu_si256((const __m256i *)(const void *)half);
}
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
    simde_emulated_cvtps_ph(x) /* 0, to the nearest, is all that is asked for */
EMULATED simde__mmask16 simde_mm512_testn_epi32_mask(simde__m512i a, simde__m512i b) {
    uint32_t x[16], y[16];
    unsigned mask = 0;
    int i;
    simde_mm512_storeu_si512(x, a);
    simde_mm512_storeu_si512(y, b);
    for (i = 0; i < 16; i++) mask |= (unsigned)!(x[i] & y[i]) << i;
    return (simde__mmask16)mask;
}
