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
