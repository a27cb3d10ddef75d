/* Every primitive of attn_cuda.cuh's section >>hw against what is computed by hand here, in plain loops.

   Under g++ with the emulator in place of the hardware this tests the emulator, in all its timings; compiled by nvcc
   (as hw_conformance.cu) it tests the same claims on a device, so that both are known to mean the same. */
#define ATTN__CUDA_KEEP /* the macros that kernels are written with */
#ifdef __CUDACC__
#define ATTN_CUDA_IMPLEMENTATION
#include "../../attn_cuda.cuh"
#else
#include "device.cc"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <utility>
#include <vector>

namespace hw = attn__hw;

static int checks, failures;
static bool has_mma = true, has_wgmma = true; /* the device */
static void check(bool ok, const char *what, double got, double want) {
    checks++;
    if (ok) return;
    if (failures++ < 20) printf("FAIL %s: got %.9g, want %.9g\n", what, got, want);
}

static uint32_t state = 1;
static float draw() {
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)(state >> 8 & 0xffff) / 32768.0f - 1.0f;
}

/* memory that host and device both see, at one address */
static void *memory(size_t bytes) {
#ifdef ATTN_CUDA_HW_HEADER
    return aligned_alloc(1024, (bytes + 1023) / 1024 * 1024);
#else
    void *p = NULL;
    if (cudaHostAlloc(&p, bytes, cudaHostAllocMapped) == cudaSuccess) return p;
    printf("FAIL no %zu bytes of pinned memory\n", bytes);
    exit(1);
#endif
}
/* memory of the device alone, and what lies there; the emulator has one kind of memory */
static void *plain_memory(const void *from, size_t bytes) {
#ifdef ATTN_CUDA_HW_HEADER
    return memcpy(memory(bytes), from, bytes);
#else
    void *p = NULL;
    check(cudaMalloc(&p, bytes) == cudaSuccess && cudaMemcpy(p, from, bytes, cudaMemcpyDefault) == cudaSuccess,
          "plain memory", 0, 0);
    return p;
#endif
}
static void fetch(void *to, const void *from, size_t bytes) {
#ifdef ATTN_CUDA_HW_HEADER
    memcpy(to, from, bytes);
#else
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault) == cudaSuccess, "copied from the device", 0, 0);
#endif
}
template <class T> static T *array_of(size_t n) {
    T *p = (T *)memory(n * sizeof(T));
    memset((void *)p, 0, n * sizeof(T));
    return p;
}
template <class K, class P> static bool run(K kernel, int threads, size_t shared, const P &p, int blocks = 1) {
    cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    const int error = (int)ATTN__LAUNCH(kernel, blocks, threads, shared, 0, p);
#ifdef ATTN_CUDA_HW_HEADER
    if (error) printf("%s\n", attn_emu::last_error.c_str());
    return error == 0;
#else
    const cudaError_t after = error ? (cudaError_t)error : cudaDeviceSynchronize();
    if (after != cudaSuccess) printf("%s\n", cudaGetErrorString(after));
    return after == cudaSuccess;
#endif
}
/* 16-bit floats in double: `bits` of fraction, exponents from `least`, infinity from `most` on */
static uint16_t round_16(double x, int bits, int least, double most) {
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    int e;
    if (isnan(x)) return 0x7fff;
    x = fabs(x);
    if (x == 0) return sign;
    frexp(x, &e);
    if (e - 1 < least) e = least + 1;
    const double unit = ldexp(1.0, e - 1 - bits), units = nearbyint(x / unit);
    if (units * unit >= most) return (uint16_t)(sign | ((1 << (15 - bits)) - 1) << bits);
    return (uint16_t)(sign | (((e - 1 - least) << bits) + (int)units));
}
static double value_16(uint16_t h, int bits, int least) {
    const int e = (h & 0x7fff) >> bits, fraction = h & ((1 << bits) - 1);
    const double x = e ? ldexp(fraction + (1 << bits), e - 1 + least - bits) : ldexp(fraction, least - bits);
    return h & 0x8000 ? -x : x;
}
template <class T> static uint16_t to_16(float x) {
    return T::is_bf16 ? round_16(x, 7, -126, ldexp(1.0, 128)) : round_16(x, 10, -14, 65536);
}
template <class T> static double of_16(uint16_t x) { return T::is_bf16 ? value_16(x, 7, -126) : value_16(x, 10, -14); }
/* 16-bit numbers of few bits, so that sums of products are exact in any order */
template <class T> static uint16_t *numbers(size_t n) {
    uint16_t *x = array_of<uint16_t>(n);
    for (size_t i = 0; i < n; i++) x[i] = to_16<T>((float)(int)(draw() * 15.0f));
    return x;
}

/* ---- warps and barriers */
struct small_params {
    float *x;
    uint32_t *bits;
};

ATTN__KERNEL(64, 1) void lanes_kernel(ATTN__PARAM small_params p) {
    const int t = hw::thread(), l = hw::lane();
    p.x[t] = hw::shfl((float)t, (l * 7 + 3) % 32);
    p.x[64 + t] = hw::shfl_xor((float)t, 5);
    p.x[128 + t] = (float)hw::warp();
    p.bits[t] = hw::ballot(l % 3 == 0);
    p.bits[64 + t] = (hw::any(t == 40) ? 1u : 0u) | (hw::any(l < 0) ? 2u : 0u);
    p.bits[128 + t] = (uint32_t)hw::barrier_or(1, 64, t == 63) | (uint32_t)hw::barrier_or(1, 64, false) << 1;
    p.bits[192 + t] = (uint32_t)hw::ctz(0x80000000u | 5u << l);
    p.bits[256 + t] = (uint32_t)hw::popc(0x80000001u << l);
}
static void test_lanes() {
    const small_params p = {array_of<float>(192), array_of<uint32_t>(320)};
    check(run(lanes_kernel, 64, 0, p), "lanes kernel", 0, 0);
    for (int t = 0; t < 64; t++) {
        const int first = t / 32 * 32, l = t % 32;
        uint32_t thirds = 0;
        for (int i = 0; i < 32; i += 3) thirds |= 1u << i;
        check(p.x[t] == (float)(first + (l * 7 + 3) % 32), "shfl", p.x[t], first + (l * 7 + 3) % 32);
        check(p.x[64 + t] == (float)(first + (l ^ 5)), "shfl_xor", p.x[64 + t], first + (l ^ 5));
        check(p.x[128 + t] == (float)(t / 32), "warp", p.x[128 + t], t / 32);
        check(p.bits[t] == thirds, "ballot", p.bits[t], thirds);
        check(p.bits[64 + t] == (t >= 32 ? 1u : 0u), "any", p.bits[64 + t], t >= 32);
        check(p.bits[128 + t] == 1u, "barrier_or", p.bits[128 + t], 1);
        check(p.bits[192 + t] == (uint32_t)l, "ctz", p.bits[192 + t], l);
        check(p.bits[256 + t] == (l ? 1u : 2u), "popc", p.bits[256 + t], l ? 1 : 2);
    }
}

/* threads 0..63 write and arrive, 64..127 wait for them; three rounds, so that a stale round shows */
ATTN__KERNEL(128, 1) void barrier_kernel(ATTN__PARAM small_params p) {
    ATTN__SHARED(shared);
    float *x = (float *)shared;
    const int t = hw::thread();
    for (int round = 0; round < 3; round++) {
        if (t < 64) {
            x[t] = (float)(round * 100 + t);
            hw::barrier_arrive(2, 128);
            hw::barrier_sync(3, 128);
        } else {
            hw::barrier_sync(2, 128);
            p.x[round * 64 + t - 64] = x[127 - t];
            hw::barrier_arrive(3, 128);
        }
    }
    hw::sync();
    p.bits[t] = (uint32_t)x[(t * 5) % 64];
}
static void test_barriers() {
    const small_params p = {array_of<float>(192), array_of<uint32_t>(128)};
    check(run(barrier_kernel, 128, 256, p), "barrier kernel", 0, 0);
    for (int i = 0; i < 192; i++)
        check(p.x[i] == (float)(i / 64 * 100 + 63 - i % 64), "named barriers", p.x[i], i / 64 * 100 + 63 - i % 64);
    for (int t = 0; t < 128; t++) check(p.bits[t] == (uint32_t)(200 + t * 5 % 64), "sync", p.bits[t], 200 + t * 5 % 64);
}

/* ---- the grid; 16 bytes, 8 and one word of shared memory */
ATTN__KERNEL(64, 1) void grid_kernel(ATTN__PARAM small_params p) {
    ATTN__SHARED(shared);
    const int t = hw::thread(), n = hw::block() * hw::threads() + t;
    const uint32_t base = hw::shared_address(shared);
    uint32_t four[4], two[2];
    const uint32_t own = (uint32_t)(1000 * hw::block() + t), pair[2] = {own, own + 1};
    if (t < 32) hw::store_shared(base + (uint32_t)t * 4, own);
    else if (t % 2 == 0) hw::store_shared(base + (uint32_t)t * 4, pair);
    hw::sync();
    hw::load_shared(four, base + (uint32_t)(t / 4 * 16));
    hw::load_shared(two, base + (uint32_t)(t / 2 * 8));
    p.x[n] = (float)hw::blocks();
    p.bits[n] = four[t % 4];
    p.bits[3 * 64 + n] = hw::load_shared_word(base + (uint32_t)(63 - t) * 4);
    p.bits[6 * 64 + n] = two[t % 2];
}
static void test_grid() {
    const small_params p = {array_of<float>(192), array_of<uint32_t>(576)};
    check(run(grid_kernel, 64, 256, p, 3), "grid kernel", 0, 0);
    for (int n = 0; n < 192; n++) {
        const uint32_t own = (uint32_t)(n / 64 * 1000 + n % 64), across = (uint32_t)(n / 64 * 1000 + 63 - n % 64);
        check(p.x[n] == 3.0f, "blocks", p.x[n], 3);
        check(p.bits[n] == own, "store_shared, load_shared", p.bits[n], own);
        check(p.bits[192 + n] == across, "load_shared_word", p.bits[192 + n], across);
        check(p.bits[384 + n] == own, "load_shared, 8 bytes", p.bits[384 + n], own);
    }
}

/* ---- one instruction each */
struct math_params {
    const float *x;
    float *y;
    uint32_t *bits;
};
ATTN__KERNEL(256, 1) void math_kernel(ATTN__PARAM math_params p) {
    const int t = hw::thread();
    const float x = p.x[t];
    p.y[t] = hw::ex2(x);
    p.y[256 + t] = hw::lg2(x);
    p.y[512 + t] = hw::rcp(x);
    p.y[768 + t] = hw::fma(x, x, -1.0f);
#if ATTN__HAVE_MMA
    p.bits[t] = hw::pack<hw::bf16>(x, -x);
    p.bits[256 + t] = hw::pack<hw::f16>(x, -x);
    const uint32_t word = (uint32_t)t * 0x01000193u, base = 0x43004300u, of_f16 = 0x64006400u; /* all codes in byte 0 */
    p.bits[768 + t] =
        hw::subtract_halves<hw::bf16>(hw::and_or(word, 0x007f007fu, base), hw::and_or(word, 0x00800080u, base));
    p.bits[1024 + t] =
        hw::subtract_halves<hw::f16>(hw::and_or(word, 0x007f007fu, of_f16), hw::and_or(word, 0x00800080u, of_f16));
#endif
    p.bits[512 + t] = hw::to_bf16(x) | (uint32_t)hw::to_f16(x) << 16;
    p.y[1280 + t] = hw::from_bf16(hw::to_bf16(x));
    p.y[1536 + t] = hw::from_f16(hw::to_f16(x));
}
static void test_math() {
    float *x = array_of<float>(256);
    const math_params p = {x, array_of<float>(1792), array_of<uint32_t>(1280)};
    for (int i = 0; i < 256; i++) x[i] = draw() * (i % 2 ? 1.0f : 30.0f);
    x[0] = -INFINITY, x[1] = INFINITY, x[2] = NAN, x[3] = 0.0f, x[4] = 70000.0f, x[5] = 1e-7f, x[6] = -1e-5f,
    x[7] = 65519.0f;
    check(run(math_kernel, 256, 0, p), "math kernel", 0, 0);
    for (int i = 0; i < 256; i++) {
        const double v = x[i];
        const struct {
            const char *name;
            double want, relative;
        } row[4] = {{"ex2", exp2(v), 4e-7},
                    {"lg2", log2(v), 1e-6},
                    {"rcp", 1.0 / v, 3e-7},
                    {"fma", (double)fmaf(x[i], x[i], -1.0f), 0}};
        for (int k = 0; k < 4; k++) {
            const double got = p.y[256 * k + i], want = row[k].want;
            check((isnan(want) && isnan(got)) || got == want || (isinf(want) && got == want) ||
                      fabs(got - want) <= row[k].relative * fabs(want) + (k == 1   ? 3e-7
                                                                          : k == 0 ? 2e-38
                                                                                   : 0),
                  row[k].name, got, want);
        }
        for (int k = 0; k < (has_mma ? 2 : 0); k++) {
            const uint32_t want = k ? to_16<hw::f16>(x[i]) | (uint32_t)to_16<hw::f16>(-x[i]) << 16
                                    : to_16<hw::bf16>(x[i]) | (uint32_t)to_16<hw::bf16>(-x[i]) << 16;
            const uint32_t got = p.bits[256 * k + i];
            check(isnan(x[i]) ? (got & 0x7f807f80u) != 0 : got == want, k ? "pack f16" : "pack bf16", got, want);
        }
        for (int k = 0; k < (has_mma ? 2 : 0); k++) { /* the codes in bytes 0 and 2 of a word */
            const uint32_t word = (uint32_t)i * 0x01000193u;
            const float low = (float)(int8_t)word, high = (float)(int8_t)(word >> 16);
            const uint32_t want = k ? to_16<hw::f16>(low) | (uint32_t)to_16<hw::f16>(high) << 16
                                    : to_16<hw::bf16>(low) | (uint32_t)to_16<hw::bf16>(high) << 16;
            const uint32_t got = p.bits[768 + 256 * k + i];
            check(got == want, k ? "subtract_halves f16" : "subtract_halves bf16", got, want);
        }
        if (isnan(x[i])) continue;
        const uint16_t b = to_16<hw::bf16>(x[i]), h = to_16<hw::f16>(x[i]);
        check(p.bits[512 + i] == (b | (uint32_t)h << 16), "to_bf16, to_f16", p.bits[512 + i], b | (uint32_t)h << 16);
        check((b & 0x7fff) == 0x7f80 ? isinf(p.y[1280 + i]) : p.y[1280 + i] == of_16<hw::bf16>(b), "from_bf16",
              p.y[1280 + i], of_16<hw::bf16>(b));
        check((h & 0x7fff) == 0x7c00 ? isinf(p.y[1536 + i]) : p.y[1536 + i] == of_16<hw::f16>(h), "from_f16",
              p.y[1536 + i], of_16<hw::f16>(h));
    }
}

/* ---- rounded operations, of which none is fused with another; 16 and 8 bytes of global memory */
struct rounded_params {
    const float *x;
    float *y;
    double *z;
    uint32_t *bits;
};
ATTN__KERNEL(64, 1) void rounded_kernel(ATTN__PARAM rounded_params p) {
    const int t = hw::thread();
    const float a = p.x[t], b = p.x[64 + t];
    uint32_t four[4];
    p.y[t] = hw::add(hw::mul(a, b), -p.x[128 + t]);
    p.y[64 + t] = hw::div(a, b);
    p.z[t] = hw::add(hw::mul((double)a / 3, (double)b / 7), 1.0);
    p.z[64 + t] = hw::div((double)a, (double)b);
    hw::load_global(four, p.bits + 4 * t);
    const uint32_t two[2] = {four[3], four[0]};
    hw::store_global(p.bits + 256 + 4 * t, four);
    hw::store_global(p.bits + 512 + 2 * t, two);
}
static void test_rounded() {
    float *x = array_of<float>(192);
    const rounded_params p = {x, array_of<float>(128), array_of<double>(128), array_of<uint32_t>(640)};
    for (int i = 0; i < 64; i++) {
        volatile float a = draw(), b = draw() + 2.0f, product = a * b;
        x[i] = a, x[64 + i] = b, x[128 + i] = product; /* a fused multiply-add would find what rounding lost */
    }
    for (int i = 0; i < 256; i++) p.bits[i] = (uint32_t)i * 2654435761u;
    check(run(rounded_kernel, 64, 0, p), "rounded kernel", 0, 0);
    for (int i = 0; i < 64; i++) {
        volatile float quotient = x[i] / x[64 + i];
        volatile double product = ((double)x[i] / 3) * ((double)x[64 + i] / 7), sum = product + 1.0;
        volatile double wide = (double)x[i] / (double)x[64 + i];
        check(p.y[i] == 0.0f, "mul, add", p.y[i], 0);
        check(p.y[64 + i] == quotient, "div", p.y[64 + i], quotient);
        check(p.z[i] == sum, "mul, add of doubles", p.z[i], sum);
        check(p.z[64 + i] == wide, "div of doubles", p.z[64 + i], wide);
        for (int j = 0; j < 4; j++)
            check(p.bits[256 + 4 * i + j] == p.bits[4 * i + j], "load_global, store_global", p.bits[256 + 4 * i + j],
                  p.bits[4 * i + j]);
        check(p.bits[512 + 2 * i] == p.bits[4 * i + 3] && p.bits[513 + 2 * i] == p.bits[4 * i], "store_global, 8 bytes",
              p.bits[512 + 2 * i], p.bits[4 * i + 3]);
    }
}

/* ---- cp.async: groups that land in order, chunks that are not read, and such of which a part is */
struct copy_params {
    const float *from;
    float *to;
};
ATTN__KERNEL(32, 1) void copy_kernel(ATTN__PARAM copy_params p) {
#if ATTN__HAVE_MMA
    ATTN__SHARED(shared);
    const int l = hw::lane();
    const uint32_t base = hw::shared_address(shared);
    for (int group = 0; group < 3; group++) {
        hw::cp_async(base + (uint32_t)(group * 32 + l) * 16, p.from + (group * 32 + l) * 4, l % 5 != 0);
        hw::cp_async_commit();
    }
    hw::cp_async_wait<1>();
    hw::sync_warp();
    for (int i = 0; i < 8; i++) p.to[i * 32 + l] = ((const float *)shared)[i * 32 + l];
    hw::cp_async_wait<0>();
    hw::sync_warp();
    for (int i = 8; i < 12; i++) p.to[i * 32 + l] = ((const float *)shared)[i * 32 + l];
    hw::cp_async_part(base + (uint32_t)(96 + l) * 16, p.from + (96 + l) * 4, l % 9 * 2);
    hw::cp_async_commit();
    hw::cp_async_wait<0>();
    hw::sync_warp();
    for (int i = 12; i < 16; i++) p.to[i * 32 + l] = ((const float *)shared)[i * 32 + l];
#else
    (void)p;
#endif
}
static void test_copies() {
    float *from = array_of<float>(512);
    const copy_params p = {from, array_of<float>(512)};
    for (int i = 0; i < 512; i++) from[i] = draw();
    check(run(copy_kernel, 32, 2048, p), "copy kernel", 0, 0);
    for (int i = 0; i < 384; i++) {
        const float want = i / 4 % 32 % 5 ? from[i] : 0.0f;
        check(p.to[i] == want, "cp.async", p.to[i], want);
    }
    for (int i = 0; i < 256; i++) {
        const uint16_t got = ((const uint16_t *)(p.to + 384))[i], read = ((const uint16_t *)(from + 384))[i];
        const uint16_t want = i % 8 < i / 8 % 9 ? read : 0;
        check(got == want, "cp.async of a part", got, want);
    }
}

/* ---- ldmatrix and mma: a product C 16x8 = A 16x16 . B 16x8, A row-major, B stored by columns and (transposed)
   by rows */
struct mma_params {
    const uint16_t *a, *b_columns, *b_rows;
    float *c;
};
template <class T> ATTN__KERNEL(32, 1) void mma_kernel(ATTN__PARAM mma_params p) {
#if ATTN__HAVE_MMA
    ATTN__SHARED(shared);
    uint16_t *s = (uint16_t *)shared;
    const int l = hw::lane();
    uint32_t a[4], b[4], bt[4];
    float c[4], d[4];
    for (int i = l; i < 256; i += 32) s[i] = p.a[i];
    for (int i = l; i < 128; i += 32) s[256 + i] = p.b_columns[i], s[384 + i] = p.b_rows[i];
    hw::sync_warp();
    const uint32_t base = hw::shared_address(shared);
    hw::ldmatrix(a, base + (uint32_t)((l % 16) * 16 + l / 16 * 8) * 2);
    hw::ldmatrix(b, base + 512 + (uint32_t)(l % 8 * 16 + l / 8 % 2 * 8) * 2);
    hw::ldmatrix_transposed(bt, base + 768 + (uint32_t)(l % 16 * 8) * 2);
    for (int i = 0; i < 4; i++) c[i] = d[i] = 0.5f;
    hw::mma<T>(c, a, b[0], b[1]);
    hw::mma<T>(d, a, bt[0], bt[1]);
    for (int i = 0; i < 4; i++) {
        const int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
        p.c[row * 8 + column] = c[i];
        p.c[128 + row * 8 + column] = d[i];
    }
#else
    (void)p;
#endif
}
template <class T> static void test_mma() {
    uint16_t *a = numbers<T>(256), *b = numbers<T>(128), *by_column = array_of<uint16_t>(128);
    const mma_params p = {a, by_column, b, array_of<float>(256)};
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < 8; n++) by_column[n * 16 + k] = b[k * 8 + n];
    check(run(mma_kernel<T>, 32, 1024, p), "mma kernel", 0, 0);
    for (int i = 0; i < 128; i++) {
        double want = 0.5;
        for (int k = 0; k < 16; k++) want += (double)of_16<T>(a[i / 8 * 16 + k]) * of_16<T>(b[k * 8 + i % 8]);
        check(p.c[i] == want, "ldmatrix, mma", p.c[i], want);
        check(p.c[128 + i] == want, "ldmatrix transposed, mma", p.c[128 + i], want);
    }
}

/* Of floats: C 16x8 = A 16x8 . B 8x8. Only the first 10 bits of a fraction count: the others are ones here. */
struct tf32_params {
    const uint32_t *a, *b; /* rows of A; columns of B */
    float *c;
};
ATTN__KERNEL(32, 1) void tf32_kernel(ATTN__PARAM tf32_params p) {
#if ATTN__HAVE_MMA
    const int l = hw::lane(), g = l / 4, t = l % 4;
    const uint32_t a[4] = {p.a[g * 8 + t], p.a[g * 8 + 64 + t], p.a[g * 8 + t + 4], p.a[g * 8 + 64 + t + 4]};
    float c[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    hw::mma_tf32(c, a, p.b[g * 8 + t], p.b[g * 8 + t + 4]);
    for (int i = 0; i < 4; i++) p.c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = c[i];
#else
    (void)p;
#endif
}
static void test_mma_tf32() {
    uint32_t *a = array_of<uint32_t>(128), *b = array_of<uint32_t>(64);
    const tf32_params p = {a, b, array_of<float>(128)};
    const auto value = [](uint32_t x) { /* as it is read */
                                        float f;
                                        x &= 0xffffe000u;
                                        memcpy(&f, &x, 4);
                                        return (double)f;
    };
    for (int i = 0; i < 192; i++) {
        const float f = (float)(i * 37 % 101 - 50) / 32; /* sums of products have no more bits than a float */
        uint32_t &x = i < 128 ? a[i] : b[i - 128];
        memcpy(&x, &f, 4);
        x |= 0x1fffu;
    }
    check(run(tf32_kernel, 32, 1024, p), "mma_tf32 kernel", 0, 0);
    for (int i = 0; i < 128; i++) {
        double want = 0.5;
        for (int k = 0; k < 8; k++) want += value(a[i / 8 * 8 + k]) * value(b[i % 8 * 8 + k]);
        check(p.c[i] == want, "mma_tf32", p.c[i], want);
    }
}

/* ---- stmatrix: gives back what ldmatrix took, from places in another order */
struct stmatrix_params {
    const uint16_t *from;
    uint16_t *to;
};
ATTN__KERNEL(32, 1) void stmatrix_kernel(ATTN__PARAM stmatrix_params p) {
#if ATTN__HAVE_WGMMA
    ATTN__SHARED(shared);
    uint16_t *s = (uint16_t *)shared;
    const int l = hw::lane();
    const uint32_t base = hw::shared_address(shared);
    uint32_t a[4];
    for (int i = l; i < 256; i += 32) s[i] = p.from[i];
    hw::sync_warp();
    hw::ldmatrix(a, base + (uint32_t)l * 16);
    hw::stmatrix(base + 512 + (uint32_t)((l + 9) % 32) * 16, a);
    hw::sync_warp();
    for (int i = l; i < 256; i += 32) p.to[i] = s[256 + i];
#else
    (void)p;
#endif
}
static void test_stmatrix() {
    const stmatrix_params p = {numbers<hw::f16>(256), array_of<uint16_t>(256)};
    check(run(stmatrix_kernel, 32, 1024, p), "stmatrix kernel", 0, 0);
    for (int i = 0; i < 256; i++) {
        const int row = (i / 8 + 9) % 32;
        check(p.to[row * 8 + i % 8] == p.from[i], "stmatrix", p.to[row * 8 + i % 8], p.from[i]);
    }
}

/* ---- mbarriers and TMA: tiles come in through two slots, are changed and go out again. The first begins 3 rows in
   front of the tensor: such a load reads zeros there, such a store is an illegal instruction and is not done. */
struct tma_params {
    hw::tensor_map in, out;
    int tiles, rows, packed;
    uint16_t *seen;
};
ATTN__BOTH int first_row_of(int tile, bool packed) { return tile / 2 * (packed ? 32 : 64) - 3; }
ATTN__KERNEL(160, 1) void tma_kernel(ATTN__PARAM tma_params p) {
#if ATTN__HAVE_WGMMA
    ATTN__SHARED(shared);
    uint64_t *full = (uint64_t *)(shared + 2 * 8192), *empty = full + 2;
    const int t = hw::thread();
    if (t == 0) {
        for (int s = 0; s < 2; s++) hw::mbarrier_init(full + s, 1), hw::mbarrier_init(empty + s, 1);
        hw::mbarrier_fence_init();
    }
    hw::sync();
    if (t >= 128) {
        if (t == 128)
            for (int i = 0; i < p.tiles; i++) {
                hw::mbarrier_wait(empty + i % 2, i / 2 % 2 ^ 1);
                hw::mbarrier_expect(full + i % 2, 64 * 128);
                const int first = first_row_of(i, p.packed);
                hw::tma_load(shared + i % 2 * 8192, &p.in, full + i % 2, i % 2 * 64, p.packed ? 0 : first,
                             p.packed ? first : 1, 0);
            }
        return;
    }
    for (int i = 0; i < p.tiles; i++) {
        unsigned char *slot = shared + i % 2 * 8192;
        hw::mbarrier_wait(full + i % 2, i / 2 % 2);
        for (int k = t; k < 64 * 32; k += 128) { /* words: row k/32, columns 2(k%32).. */
            const uint32_t chunk = (uint32_t)(k % 32 / 4) ^ (uint32_t)(k / 32 % 8),
                           at = (uint32_t)(k / 32 * 128) + chunk * 16 + (uint32_t)(k % 4) * 4;
            uint32_t word;
            memcpy(&word, slot + at, 4);
            p.seen[(i * 64 + k / 32) * 64 + k % 32 * 2] = (uint16_t)word;
            p.seen[(i * 64 + k / 32) * 64 + k % 32 * 2 + 1] = (uint16_t)(word >> 16);
            hw::store_shared(hw::shared_address(slot) + at, word ^ 0x00010001u);
        }
        hw::fence_async();
        hw::barrier_sync(1, 128);
        if (t == 0) {
            const int first = first_row_of(i, p.packed);
            if (first >= 0) hw::tma_store(&p.out, slot, i % 2 * 64, p.packed ? 0 : first, p.packed ? first : 1, 0);
            hw::tma_store_commit();
            hw::tma_store_wait_read<0>();
            hw::mbarrier_arrive(empty + i % 2);
        }
    }
#else
    (void)p;
#endif
}
/* Rows of a head one after the other, or rows of all heads side by side ([B,S,H,D]: a row's stride is larger than a
   head's); in memory that the host sees too, or the device's own. packed: boxes of the rows of both heads in turns. */
static void test_tma(bool side_by_side, bool plain, bool packed = false) {
    const int columns = 104, rows = 150, heads = 2; /* ragged in both directions */
    const size_t bytes = (size_t)heads * rows * columns * 2;
    uint16_t *in = array_of<uint16_t>(bytes / 2), *out = array_of<uint16_t>(bytes / 2);
    const int64_t of_row = side_by_side ? heads * columns : columns, of_head = side_by_side ? columns : rows * columns;
    int64_t size[4] = {columns, rows, heads, 1}, stride[4] = {1, of_row, of_head, (int64_t)bytes / 2};
    const int along = packed ? heads : 64, across = packed ? 32 : 1;
    tma_params p;
    if (packed) std::swap(size[1], size[2]), std::swap(stride[1], stride[2]);
    p.tiles = 6, p.rows = rows, p.packed = packed;
    p.seen = array_of<uint16_t>(6 * 64 * 64);
    for (int i = 0; i < heads * rows * columns; i++) in[i] = (uint16_t)(draw() * 30000.0f), out[i] = 0xabcd;
    void *in_there = plain ? plain_memory(in, bytes) : in, *out_there = plain ? plain_memory(out, bytes) : out;
    check(hw::tensor_map_make(hw::tensor_map_encoder(), &p.in, in_there, size, stride, along, across) == 0 &&
              hw::tensor_map_make(hw::tensor_map_encoder(), &p.out, out_there, size, stride, along, across) == 0,
          "tensor maps", 1, 0);
    check(run(tma_kernel, 160, 2 * 8192 + 32, p), plain ? "TMA kernel" : "TMA kernel, pinned memory", 0, 0);
    if (plain) fetch(out, out_there, bytes);
    for (int i = 0; i < 6; i++)
        for (int r = 0; r < 64; r++)
            for (int c = 0; c < 64; c++) {
                const int row = first_row_of(i, packed) + (packed ? r / heads : r), column = i % 2 * 64 + c;
                const int head = packed ? r % heads : 1;
                const bool inside = row >= 0 && row < rows && column < columns;
                const uint16_t want = inside ? in[head * of_head + row * of_row + column] : 0,
                               got = p.seen[(i * 64 + r) * 64 + c];
                check(got == want, "TMA load, swizzle", got, want);
            }
    for (int i = 0; i < heads * rows * columns; i++) {
        const int head = side_by_side ? i / columns % heads : i / columns / rows;
        const int row = side_by_side ? i / columns / heads : i / columns % rows;
        const bool stored = row >= first_row_of(2, packed) && (packed ? row < first_row_of(6, packed) : head == 1);
        const uint16_t want = stored ? in[i] ^ 1 : 0xabcd;
        check(out[i] == want, "TMA store", out[i], want);
    }
}

/* ---- cp.async.bulk: a round has two pieces, which one barrier counts; one lane starts both */
struct bulk_params {
    const uint32_t *from;
    uint32_t *seen, *elected;
};
ATTN__KERNEL(64, 1) void bulk_kernel(ATTN__PARAM bulk_params p) {
#if ATTN__HAVE_WGMMA
    ATTN__SHARED(shared);
    uint64_t *bar = (uint64_t *)(shared + 1024);
    const int t = hw::thread();
    if (t == 0) hw::mbarrier_init(bar, 1), hw::mbarrier_fence_init();
    hw::sync();
    for (int round = 0; round < 3; round++) {
        const bool elected = hw::elect();
        if (t < 32) p.elected[round] = hw::ballot(elected);
        if (t < 32 && elected) {
            hw::mbarrier_expect(bar, 16 + 256);
            hw::cp_async_bulk(shared + 512, p.from + round * 68 + 64, 16, bar);
            hw::cp_async_bulk(shared + 16, p.from + round * 68, 256, bar);
        }
        hw::mbarrier_wait(bar, round % 2);
        memcpy(p.seen + round * 68 + t, shared + 16 + t * 4, 4);
        if (t < 4) memcpy(p.seen + round * 68 + 64 + t, shared + 512 + t * 4, 4);
        hw::sync();
    }
#else
    (void)p;
#endif
}
static void test_bulk() {
    uint32_t *from = array_of<uint32_t>(204);
    const bulk_params p = {from, array_of<uint32_t>(204), array_of<uint32_t>(3)};
    for (uint32_t i = 0; i < 204; i++) from[i] = i * 2654435761u;
    check(run(bulk_kernel, 64, 1024 + 8, p), "cp.async.bulk kernel", 0, 0);
    for (uint32_t i = 0; i < 204; i++) check(p.seen[i] == from[i], "cp.async.bulk", p.seen[i], from[i]);
    for (int i = 0; i < 3; i++) {
        const uint32_t lanes = p.elected[i];
        check(lanes && !(lanes & (lanes - 1)) && lanes == p.elected[0], "elect", lanes, p.elected[0]);
    }
}

/* ---- additions of many blocks to the same numbers: none is lost */
ATTN__KERNEL(64, 1) void additions_kernel(ATTN__PARAM small_params p) {
    const int t = hw::thread();
    hw::add_to_global(p.x + 64 + t % 16, (float)(t + 1));
#if ATTN__HAVE_WGMMA
    const float four[4] = {1.0f, 2.0f, (float)t, -1.0f};
    hw::add_to_global(p.x + t % 16 * 4, four);
#endif
}
static void test_additions() {
    small_params p = small_params();
    p.x = array_of<float>(80);
    for (int i = 0; i < 80; i++) p.x[i] = (float)i;
    check(run(additions_kernel, 64, 0, p, 8), "additions kernel", 0, 0);
    for (int i = 0; i < 16; i++) {
        const float each = (float)(4 * i + 100); /* of threads i, +16, +32, +48 */
        check(p.x[64 + i] == 64 + i + 8 * each, "addition of one number", p.x[64 + i], 64 + i + 8 * each);
    }
    for (int i = 0; has_wgmma && i < 64; i++) {
        const float each[4] = {4, 8, (float)(4 * (i / 4) + 96), -4}; /* of threads i/4, +16, +32, +48 */
        check(p.x[i] == (float)i + 8 * each[i % 4], "addition to global memory", p.x[i], i + 8 * each[i % 4]);
    }
}

/* ---- counts that blocks wait for: each block takes its turn at numbers that all have, in their order */
struct count_params {
    float *x;
    int *count, turn; /* turn: of block 0; the others come before it where it is the last */
};
ATTN__KERNEL(64, 1) void counts_kernel(ATTN__PARAM count_params p) {
    const int t = hw::thread(), turn = (hw::block() + p.turn) % hw::blocks();
    if (t == 0) hw::wait_for_count(p.count, turn);
    hw::sync();
    p.x[t] = p.x[t] * 3.0f + (float)(turn + t % 5);
    hw::sync();
    if (t == 63) hw::publish_count(p.count, turn + 1);
}
static void test_counts() {
    const int blocks = 8;
    const count_params p = {array_of<float>(64), array_of<int>(1), 0};
    check(run(counts_kernel, 64, 0, p, blocks), "kernel with counts", 0, 0);
    check(p.count[0] == blocks, "count", p.count[0], blocks);
    for (int t = 0; t < 64; t++) {
        float want = 0.0f;
        for (int turn = 0; turn < blocks; turn++) want = want * 3.0f + (float)(turn + t % 5);
        check(p.x[t] == want, "numbers that blocks had in turn", p.x[t], want);
    }
}

/* ---- a count by which the last block sees what all have written */
ATTN__KERNEL(64, 1) void last_kernel(ATTN__PARAM count_params p) {
    const int t = hw::thread();
    float *const own = p.x + 64 + 128 * hw::block();
    const uint32_t two[2] = {attn__gpu::bits_of((float)(hw::block() + 3 * t)), attn__gpu::bits_of((float)(t % 7))};
    hw::store_global(own + 2 * t, two);
    hw::sync();
    if (!hw::barrier_or(0, 64, t == 0 && hw::publish_one(p.count) == hw::blocks() - 1)) return;
    float sum = 0.0f;
    for (int b = 0; b < hw::blocks(); b++) /* what another thread wrote */
        sum += p.x[64 + 128 * b + 2 * (63 - t)] + 1000.0f * p.x[64 + 128 * b + 2 * (63 - t) + 1];
    p.x[t] += sum;
}
static void test_last() {
    const int blocks = 8;
    const count_params p = {array_of<float>(64 + 128 * blocks), array_of<int>(1), 0};
    check(run(last_kernel, 64, 0, p, blocks), "kernel with a last block", 0, 0);
    check(p.count[0] == blocks, "count of blocks", p.count[0], blocks);
    for (int t = 0; t < 64; t++) {
        const float want = (float)(28 + blocks * (3 * (63 - t) + 1000 * ((63 - t) % 7)));
        check(p.x[t] == want, "numbers that the last block found", p.x[t], want);
    }
}

/* ---- wgmma: C 64xN = A 64xK . B KxN, K = 128: A from shared memory (both majors) and from registers, B in both
   majors. The tiles are written by hand as TMA would. */
struct wgmma_params {
    const uint16_t *a, *b;
    float *c;
};
template <class T, int N, int Form> ATTN__KERNEL(128, 1) void wgmma_kernel(ATTN__PARAM wgmma_params p) {
#if ATTN__HAVE_WGMMA
    constexpr bool a_transposed = Form & 1, b_transposed = (Form & 2) != 0, a_registers = (Form & 4) != 0;
    constexpr int column0 = Form & 8 ? 64 - N : 0; /* B is the end of a panel */
    constexpr int K = 128, padded = (N + 63) / 64 * 64;
    ATTN__SHARED(shared);
    const int t = hw::thread(), l = hw::lane(), w = t / 32;
    const uint32_t at_a = hw::shared_address(shared), at_b = at_a + 64 * K * 2;
    /* element (row, column) of a tile of `rows` rows: panels of 64 columns, rows of 128 bytes, chunks exchanged */
    const auto at = [](int row, int column, int rows) {
        return (uint32_t)(column / 64 * rows * 128 + row * 128 + ((column % 64 / 8) ^ (row % 8)) * 16 + column % 8 * 2);
    };
    const auto pair = [](uint16_t low, uint16_t high) { return low | (uint32_t)high << 16; };
    for (int i = t; i < 64 * K / 2; i += 128) {
        if (a_transposed) { /* rows along k, columns along m */
            const int k = i / 32, m = i % 32 * 2;
            hw::store_shared(at_a + at(k, m, K), pair(p.a[m * K + k], p.a[(m + 1) * K + k]));
        } else {
            const int m = i / (K / 2), k = i % (K / 2) * 2;
            hw::store_shared(at_a + at(m, k, 64), pair(p.a[m * K + k], p.a[m * K + k + 1]));
        }
    }
    for (int i = t; i < N * K / 2; i += 128) {
        if (b_transposed) {
            const int k = i / (N / 2), n = i % (N / 2) * 2;
            hw::store_shared(at_b + at(k, column0 + n, K), pair(p.b[k * N + n], p.b[k * N + n + 1]));
        } else {
            const int n = i / (K / 2), k = i % (K / 2) * 2;
            hw::store_shared(at_b + at(n, k, N), pair(p.b[k * N + n], p.b[(k + 1) * N + n]));
        }
    }
    (void)padded;
    hw::fence_async();
    hw::sync();
    float c[N / 2];
    uint32_t a[K / 16][4];
    for (int i = 0; i < N / 2; i++) c[i] = 1e30f; /* the first product must not add to it */
    ATTN__UNROLL for (int k = 0; k < K / 16; k++) ATTN__UNROLL for (int i = 0; i < 4; i++) {
        const int row = w * 16 + l / 4 + i % 2 * 8, column = k * 16 + l % 4 * 2 + i / 2 * 8;
        a[k][i] = pair(p.a[row * K + column], p.a[row * K + column + 1]);
    }
    const uint32_t d_a = attn__gpu::wgmma_tile(at_a, a_transposed ? K : 64),
                   d_b = attn__gpu::wgmma_tile(at_b, b_transposed ? K : N) + attn__gpu::wgmma_along(column0 / 16, K);
    hw::wgmma_keep(c);
    hw::wgmma_keep(a);
    hw::wgmma_fence();
    ATTN__UNROLL for (int k = 0; k < K / 16; k++) {
        const uint64_t b =
            attn__gpu::wgmma_desc(d_b + (b_transposed ? attn__gpu::wgmma_down(k) : attn__gpu::wgmma_along(k, N)));
        if (a_registers) hw::wgmma<T, N, b_transposed>(c, a[k], b, k != 0);
        else
            hw::wgmma<T, N, a_transposed, b_transposed>(
                c,
                attn__gpu::wgmma_desc(d_a + (a_transposed ? attn__gpu::wgmma_down(k) : attn__gpu::wgmma_along(k, 64))),
                b, k != 0);
        if (k == 3) { /* two groups in flight */
            hw::wgmma_commit();
            hw::wgmma_fence();
        }
    }
    hw::wgmma_commit();
    hw::wgmma_wait<1>();
    hw::wgmma_wait<0>();
    hw::wgmma_keep(c);
    ATTN__UNROLL for (int j = 0; j < N / 8; j++) ATTN__UNROLL for (int i = 0; i < 4; i++)
        p.c[(w * 16 + l / 4 + i / 2 * 8) * N + j * 8 + l % 4 * 2 + i % 2] = c[4 * j + i];
#else
    (void)p;
#endif
}
template <class T, int N, int Form> static void test_wgmma() {
    const int K = 128;
    const uint16_t *a = numbers<T>(64 * K), *b = numbers<T>((size_t)K * N);
    const wgmma_params p = {a, b, array_of<float>((size_t)64 * N)};
    check(run(wgmma_kernel<T, N, Form>, 128, 64 * K * 2 + K * ((N + 63) / 64 * 64) * 2, p), "wgmma kernel", 0, 0);
    for (int i = 0; i < 64 * N; i++) {
        double want = 0;
        for (int k = 0; k < K; k++) want += (double)of_16<T>(a[i / N * K + k]) * of_16<T>(b[k * N + i % N]);
        check(p.c[i] == want, Form & 4 ? "wgmma, A in registers" : "wgmma", p.c[i], want);
    }
}
template <class T, int N> static void test_wgmma_forms() {
    test_wgmma<T, N, 0>();
    test_wgmma<T, N, 4>();
    if (N % 64) return; /* a transposed B comes in panels of 64 columns */
    test_wgmma<T, N, 1>();
    test_wgmma<T, N % 64 ? 64 : N, 2>();
    test_wgmma<T, N % 64 ? 64 : N, 3>();
    test_wgmma<T, N % 64 ? 64 : N, 6>();
}

/* ---- registers handed from one warpgroup to the two others, as stage 3 does; numbers must survive it */
ATTN__KERNEL(384, 1) void registers_kernel(ATTN__PARAM small_params p) {
#if ATTN__HAVE_WGMMA
    const int t = hw::thread();
    if (t < 128) {
        hw::setmaxnreg_dec<24>();
        p.x[t] = (float)t;
    } else {
        hw::setmaxnreg_inc<240>();
        float x[160];
        ATTN__UNROLL for (int i = 0; i < 160; i++) x[i] = p.x[384 + (t + i) % 384];
        hw::barrier_sync(1, 256);
        float sum = 0.0f;
        ATTN__UNROLL for (int i = 159; i >= 0; i--) sum = hw::fma(sum, 0.5f, x[i]);
        p.x[t] = sum;
    }
#else
    (void)p;
#endif
}
static void test_registers() {
    const small_params p = {array_of<float>(768), NULL};
    for (int i = 0; i < 384; i++) p.x[384 + i] = draw();
    check(run(registers_kernel, 384, 0, p), "registers kernel", 0, 0);
    for (int t = 0; t < 384; t++) {
        float want = 0.0f;
        for (int i = 159; i >= 0; i--) want = fmaf(want, 0.5f, p.x[384 + (t + i) % 384]);
        if (t < 128) want = (float)t;
        check(p.x[t] == want, "setmaxnreg", p.x[t], want);
    }
}

/* ---- what the emulator must refuse: each kernel has one fault, which it names */
#ifdef ATTN_CUDA_HW_HEADER
struct fault_params {
    int fault, lonely;
    uint16_t *memory;
    hw::tensor_map map;
};
ATTN__KERNEL(128, 1) void fault_kernel(ATTN__PARAM fault_params p) {
    ATTN__SHARED(shared);
    uint64_t *bar = (uint64_t *)(shared + 16384);
    const int t = hw::thread();
    const uint32_t base = hw::shared_address(shared);
    const uint64_t tile = attn__gpu::wgmma_desc(attn__gpu::wgmma_tile(base, 64));
    float c[32];
    if (t == 0 && p.fault != 3) hw::mbarrier_init(bar, 1);
    if (t == 0 && p.fault != 2) hw::mbarrier_fence_init();
    hw::sync();
    switch (p.fault) {
    case 0:
        if (t != 5) hw::sync();
        break;
    case 1: hw::mbarrier_wait(bar, 0); break;
    case 2:
        if (t == 0) hw::tma_load(shared, &p.map, bar, 0, 0, 0, 0);
        break;
    case 3:
        if (t == 0) hw::mbarrier_arrive(bar);
        break;
    case 4:
        if (t % 32 == 3) hw::ballot(true);
        else hw::shfl(t, 0);
        break;
    case 5: hw::store_shared(base + 17000, 0); break;
    case 6:
        if (t == 0) hw::cp_async(base + 8, p.memory, true);
        break;
    case 7:
        hw::wgmma_fence();
        hw::store_shared(base + (uint32_t)t * 4, 0);
        hw::sync();
        hw::wgmma<hw::bf16, 64, false, false>(c, tile, tile, false);
        hw::wgmma_commit();
        hw::wgmma_wait<0>();
        break;
    case 8: hw::wgmma<hw::bf16, 64, false, false>(c, tile, tile, false); break;
    case 9:
        if (t == 0) {
            hw::mbarrier_expect(bar, 8192);
            hw::tma_load(shared + 128, &p.map, bar, 0, 0, 0, 0);
        }
        break;
    case 10:
        if (t == 0) {
            hw::mbarrier_expect(bar, 4096);
            hw::tma_load(shared, &p.map, bar, 0, 0, 0, 0);
        }
        hw::mbarrier_wait(bar, 0);
        break;
    case 11:
        if (t < 64) hw::barrier_sync(1, 64);
        else hw::barrier_sync(1, 128);
        break;
    case 12:
        if (t == 0) {
            hw::mbarrier_expect(bar, 8192);
            hw::tma_load(shared, &p.map, bar, 0, 0, 0, 0);
        }
        break;
    case 13:
        if (t == 0) {
            hw::tma_store(&p.map, shared, 0, 0, 0, 0);
            hw::tma_store_commit();
        }
        break;
    case 14:
        if (t == 0) hw::cp_async_bulk(shared, p.memory, 24, bar);
        break;
    case 15: {
        uint32_t two[2];
        hw::load_shared(two, base + 4);
        break;
    }
    case 16: hw::uniform(t / 8); break;
    case 17:
    case 18:
        hw::store_shared(base + (uint32_t)t * 4, 0);
        hw::sync();
        if (t == 0) {
            hw::mbarrier_expect(bar, p.fault == 17 ? 512 : 8192);
            if (p.fault == 17) hw::cp_async_bulk(shared, p.memory, 512, bar);
            else hw::tma_load(shared, &p.map, bar, 0, 0, 0, 0);
        }
        hw::mbarrier_wait(bar, 0);
        break;
    case 19: hw::setmaxnreg_inc<256>(); break; /* 128 threads start with 255 */
    case 20: hw::setmaxnreg_dec<256>(); break;
    case 21:
        if (t == 0) hw::tma_store(&p.map, shared, 0, -3, 0, 0);
        break;
    case 22: /* all warps but one */
        if (t < 96) hw::wgmma_fence();
        break;
    case 23: /* the same number of them, in another order */
        if (t < 96) hw::wgmma_fence(), hw::wgmma_commit();
        else hw::wgmma_commit(), hw::wgmma_fence();
        break;
    case 24:
        if (t < 96) hw::setmaxnreg_dec<64>();
        break;
    case 25: hw::barrier_sync(1, t % 32 ? 128 : 64); break;
    }
}
/* A function after the other that all lanes of a warp have to call; `comes`: does this lane? */
static const char *const collectives[] = {"uniform",
                                          "warp",
                                          "sync",
                                          "barrier_sync",
                                          "barrier_arrive",
                                          "barrier_or",
                                          "shfl",
                                          "shfl_xor",
                                          "ballot",
                                          "any",
                                          "sync_warp",
                                          "elect",
                                          "ldmatrix",
                                          "stmatrix",
                                          "mma",
                                          "ldmatrix_transposed",
                                          "setmaxnreg_inc",
                                          "setmaxnreg_dec",
                                          "wgmma_fence",
                                          "wgmma_commit",
                                          "wgmma_wait",
                                          "wgmma",
                                          "wgmma, A in registers",
                                          "mma_tf32"};
ATTN__KERNEL(128, 1) void lonely_kernel(ATTN__PARAM fault_params p) {
    ATTN__SHARED(shared);
    const uint32_t base = hw::shared_address(shared), row = base + (uint32_t)hw::lane() * 16;
    const uint64_t tile = attn__gpu::wgmma_desc(attn__gpu::wgmma_tile(base, 64));
    const bool comes = hw::thread() != p.lonely;
    uint32_t a[4] = {0, 0, 0, 0};
    float c[32] = {0};
    if (p.fault == 21 || p.fault == 22) hw::wgmma_fence();
    if (!comes) return;
    switch (p.fault) {
    case 0: hw::uniform(1); break;
    case 1: hw::warp(); break;
    case 2: hw::sync(); break;
    case 3: hw::barrier_sync(1, 128); break;
    case 4: hw::barrier_arrive(1, 128); break;
    case 5: hw::barrier_or(1, 128, true); break;
    case 6: hw::shfl(1, 0); break;
    case 7: hw::shfl_xor(1, 1); break;
    case 8: hw::ballot(true); break;
    case 9: hw::any(true); break;
    case 10: hw::sync_warp(); break;
    case 11: hw::elect(); break;
    case 12: hw::ldmatrix(a, row); break;
    case 13: hw::stmatrix(row, a); break;
    case 14: hw::mma<hw::bf16>(c, a, 0, 0); break;
    case 15: hw::ldmatrix_transposed(a, row); break;
    case 16: hw::setmaxnreg_inc<256>(); break;
    case 17: hw::setmaxnreg_dec<64>(); break;
    case 18: hw::wgmma_fence(); break;
    case 19: hw::wgmma_commit(); break;
    case 20: hw::wgmma_wait<0>(); break;
    case 21: hw::wgmma<hw::bf16, 64, false, false>(c, tile, tile, false); break;
    case 22: hw::wgmma<hw::bf16, 64, false>(c, a, tile, false); break;
    case 23: hw::mma_tf32(c, a, 0, 0); break;
    }
}
static void test_lonely() {
    fault_params p = fault_params();
    for (p.fault = 0; p.fault < (int)(sizeof collectives / sizeof collectives[0]); p.fault++) {
        p.lonely = 37;
        const int error = ATTN__LAUNCH(lonely_kernel, 1, 128, 16384, NULL, p);
        const bool found = attn_emu::last_error.find("deadlock") != std::string::npos &&
                           attn_emu::last_error.find("the other lanes of the warp") != std::string::npos;
        if (!found) printf("%s without a lane: \"%s\"\n", collectives[p.fault], attn_emu::last_error.c_str());
        check(error != 0 && found, collectives[p.fault], error, 719);
    }
}
static void test_faults(int mode) {
    static const char *const says[] = {"deadlock",
                                       "deadlock",
                                       "initialised without a fence",
                                       "never initialised",
                                       "the warp diverged",
                                       "shared address 17000",
                                       "not 16-byte aligned",
                                       "without a proxy fence",
                                       "no wgmma.fence",
                                       "not 1024-byte aligned",
                                       "deadlock",
                                       "others wait there",
                                       "still under way",
                                       "before its TMA stores",
                                       "cp.async.bulk: an address or a size",
                                       "not 8-byte aligned",
                                       "the lanes do not agree",
                                       "cp.async.bulk lands at shared address",
                                       "TMA load lands at shared address",
                                       "more registers",
                                       "the other direction",
                                       "in front of the tensor",
                                       "warp 3 did not come to wgmma.fence",
                                       "the warpgroup diverged",
                                       "warp 3 did not come to setmaxnreg.dec",
                                       "barrier_sync: the lanes do not agree"};
    fault_params p = fault_params();
    const int64_t size[4] = {64, 64, 1, 1}, stride[4] = {1, 64, 4096, 4096};
    p.memory = array_of<uint16_t>(4096);
    hw::tensor_map_make(hw::tensor_map_encoder(), &p.map, p.memory, size, stride, 64);
    for (p.fault = 0; p.fault < (int)(sizeof says / sizeof says[0]); p.fault++) {
        const bool late_only = p.fault == 12 || p.fault == 13; /* done at once, there is nothing to see */
        if (late_only && attn_emu::timings[mode].tma != attn_emu::LATE) continue;
        const int error = ATTN__LAUNCH(fault_kernel, 1, 128, 16384 + 8, NULL, p);
        const bool found =
            attn_emu::last_error.find(says[p.fault]) != std::string::npos ||
            (p.fault == 11 && attn_emu::last_error.find("deadlock") != std::string::npos); /* who comes first */
        if (!found) printf("fault %d: \"%s\"\n", p.fault, attn_emu::last_error.c_str());
        check(error != 0 && found, says[p.fault], error, 719);
    }
}
/* Blocks that are alive together go on in any order. Where the first waits for the last one, all three have to be alive
   at once; if they are not, that is a deadlock, which is reported. */
static void test_together() {
    for (int together = 1; together <= 8; together++) {
        attn_emu::together = together;
        test_counts();
        test_last();
        const count_params p = {array_of<float>(64), array_of<int>(1), 1}; /* the last block has the first turn */
        const int error = ATTN__LAUNCH(counts_kernel, 3, 64, 0, NULL, p);
        const bool found = attn_emu::last_error.find("a count in global memory to go from 0 to 1") != std::string::npos;
        check((error != 0) == (together < 3) && found == (together < 3), "blocks alive together", error, together);
    }
    attn_emu::together = 0;
}
/* The lanes of a warp run in both directions: the last one to write is the last or the first. */
ATTN__KERNEL(32, 1) void last_lane_kernel(ATTN__PARAM small_params p) { p.x[0] = (float)hw::lane(); }
static void test_directions() {
    const small_params p = {array_of<float>(1), NULL};
    bool seen[2] = {false, false};
    for (int i = 0; i < 64; i++) {
        check(run(last_lane_kernel, 32, 0, p) && (p.x[0] == 0.0f || p.x[0] == 31.0f), "last lane", p.x[0], 31);
        seen[p.x[0] == 31.0f] = true;
    }
    check(seen[0] && seen[1], "lanes in both directions", seen[0] + seen[1], 2);
}
#endif

static void all(int mode) {
    test_lanes();
    test_barriers();
    test_grid();
    test_math();
    test_rounded();
    test_counts();
    test_additions();
    test_last();
    if (has_mma) {
        test_copies();
        test_mma<hw::bf16>();
        test_mma<hw::f16>();
        test_mma_tf32();
    }
    if (has_wgmma) {
        test_registers();
        test_stmatrix();
        for (int side_by_side = 0; side_by_side < 2; side_by_side++)
            test_tma(side_by_side, true), test_tma(side_by_side, false), test_tma(side_by_side, true, true);
        test_bulk();
        test_wgmma_forms<hw::bf16, 64>();
        test_wgmma_forms<hw::f16, 64>();
        test_wgmma_forms<hw::bf16, 96>();
        test_wgmma_forms<hw::bf16, 128>();
        test_wgmma_forms<hw::f16, 128>();
        test_wgmma_forms<hw::bf16, 192>();
        test_wgmma_forms<hw::f16, 192>();
        test_wgmma_forms<hw::bf16, 256>();
        test_wgmma<hw::bf16, 32, 3>();
        test_wgmma<hw::f16, 32, 11>();
        test_wgmma<hw::bf16, 32, 11>();
    }
#ifdef ATTN_CUDA_HW_HEADER
    test_faults(mode);
    test_lonely();
    test_directions();
    test_together();
#else
    (void)mode;
#endif
}

int main() {
#ifdef ATTN_CUDA_HW_HEADER
    for (int mode = 0; mode < attn_emu::timing_count; mode++) {
        const int before = checks, failed = failures;
        attn_emu::set_timing(mode, 7);
        all(mode);
        printf("%-26s %7d checks, %d failed\n", attn_emu::timings[mode].name, checks - before, failures - failed);
    }
#else
    cudaDeviceProp here;
    if (cudaGetDeviceProperties(&here, 0) != cudaSuccess) {
        printf("skipped: there is no device\n");
        return 77;
    }
    has_mma = here.major >= 8;
    has_wgmma = here.major == 9;
    if (!has_mma) printf("skipped: cp.async, ldmatrix, mma, packing: not on this device\n");
    if (!has_wgmma) printf("skipped: stmatrix, mbarriers, TMA, cp.async.bulk, wgmma: not on this device\n");
    all(0);
    printf("%s, ", here.name);
#endif
    printf("primitives: %d checks, %d failed\n", checks, failures);
    return failures != 0 || checks == 0;
}
