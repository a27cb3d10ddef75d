/* attn_cuda.cuh - v0.2.0 - attn.h on NVIDIA GPUs: the same functions take device pointers - MIT or Unlicense
   SPDX-License-Identifier: MIT OR Unlicense

   HOW TO    In ONE .cu file, compiled by nvcc (C++17, sm_75 and up):

                 #define ATTN_CUDA_IMPLEMENTATION
                 #include "attn_cuda.cuh"

             and in the one C or C++ file that has the implementation of attn.h:

                 #define ATTN_CUDA
                 #define ATTN_IMPLEMENTATION
                 #include "attn.h"

             From then on attn_forward, attn_backward, attn_softmax, attn_scores, attn_bmm and attn_mha, with their
             gradients, take device pointers as well as host ones. Files that only call them need neither macro.

   WHERE     The arrays decide: all on the host (or pinned there), and the call runs on the CPU; all on one device, and
             it is enqueued on desc.stream. Managed memory counts for both, and runs on the device where nothing lies on
             the host. Arrays in two places are refused (ATTN_ERR_PLACE) with the field. The workspace lies where the
             arrays do. attn_workspace_size and the like look at the pointers too; where all are NULL they tell what is
             enough for either.
   STREAM    A call on the device returns when its work is enqueued: no synchronisation, and no allocation when the
             workspace is given; without it, cudaMallocAsync and cudaFreeAsync on the stream, or desc.allocator, whose
             memory must be the device's and stay there until the stream is done with it. So it can be captured in a
             graph; attn_cuda_prepare() once before a capture loads the kernels. What fails later shows at the caller's
             own synchronisation, as always.
   CONTENTS  of arrays on the device cannot be looked at: key_lengths and query_lengths are clamped to 0..Sk and 0..Sq,
             sigma_per_head is taken as it is. Everything else is checked as on the CPU.
   TYPES     Arrays of floats may be ATTN_F32, ATTN_F16 or ATTN_BF16, each as it likes (lse and stats are f32). All
             arithmetic is f32; a result is rounded once, when it is stored.
   BITS      The same from run to run, backward too: no atomics. Not those of the CPU, except for masks and dropout,
             which drops the very same weights.

   CONTENTS  search for ">>" and a name
       >>api        what a program calls                    >>mma        stage 2: tensor cores by mma.sync
       >>config     what can be set before the include      >>hopper     stage 3: wgmma and TMA
       >>platform   nvcc, or a stand-in for tests           >>additive   stage 4: additive scores, fused
       >>hw         the only place with PTX                 >>dispatch   which stage runs
       >>common     parameters, arrays, masks, dropout      >>host       what attn.h calls
       >>simple     stage 1: every option, every size       >>tail       clean-up
*/

/* --------------------------------------------------------------------------------------------------------- >>api */
#ifndef ATTN_CUDA_INCLUDED
#define ATTN_CUDA_INCLUDED

#ifdef ATTN_CUDA_IMPLEMENTATION
#  define ATTN__CUDA_SEAM
#endif
#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads all kernels onto the current device and asks for the shared memory they may use: what a first call would do, and
   a graph capture does not allow. Once per device and process is enough. err may be NULL. */
attn_status attn_cuda_prepare(attn_error *err);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_CUDA_INCLUDED */

#if defined(ATTN_CUDA_IMPLEMENTATION) && !defined(ATTN__CUDA_IMPLEMENTED)
#define ATTN__CUDA_IMPLEMENTED

/* ------------------------------------------------------------------------------------------------------ >>config */
#ifndef ATTN_CUDA_MAX_BLOCKS
#  define ATTN_CUDA_MAX_BLOCKS 65535        /* of a grid; blocks loop over what is left */
#endif

/* ---------------------------------------------------------------------------------------------------- >>platform
   Either CUDA, or what tests put in its place (see tests/cuda): the same names for the kernels and for the few functions
   of the runtime that >>host calls. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef ATTN_CUDA_HW_HEADER
#  include ATTN_CUDA_HW_HEADER
#else
#  include <cuda_runtime.h>
#  define ATTN__DEVICE        static __device__ __forceinline__
#  define ATTN__KERNEL(threads, blocks) static __global__ __launch_bounds__(threads, blocks)
#  define ATTN__PARAM         const __grid_constant__
#  define ATTN__SHARED(name)  extern __shared__ __align__(1024) unsigned char name[]
#  define ATTN__LAUNCH(kernel, grid, threads, shared, stream, params) \
    attn__gpu_launch((const void *)(kernel), grid, threads, shared, stream, &(params))
static cudaError_t attn__gpu_launch(const void *kernel, int grid, int threads, size_t shared, cudaStream_t stream,
                                    const void *params)
{
    void *arguments[1];
    cudaError_t error;
    arguments[0] = const_cast<void *>(params);
    error = cudaLaunchKernel(kernel, dim3((unsigned)grid), dim3((unsigned)threads), arguments, shared, stream);
    if (error != cudaSuccess) cudaGetLastError();           /* it is reported once, here */
    return error;
}
#endif

/* ---------------------------------------------------------------------------------------------------------- >>hw */
#ifndef ATTN_CUDA_HW_HEADER
namespace attn__hw {
ATTN__DEVICE int thread() { return (int)threadIdx.x; }
ATTN__DEVICE int threads() { return (int)blockDim.x; }
ATTN__DEVICE int block() { return (int)blockIdx.x; }
ATTN__DEVICE int blocks() { return (int)gridDim.x; }
ATTN__DEVICE int lane() { return (int)threadIdx.x % 32; }
ATTN__DEVICE int warp() { return (int)threadIdx.x / 32; }
ATTN__DEVICE float shfl(float x, int from) { return __shfl_sync(0xffffffffu, x, from); }
ATTN__DEVICE float shfl_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
ATTN__DEVICE uint32_t ballot(bool x) { return __ballot_sync(0xffffffffu, x); }
ATTN__DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
ATTN__DEVICE float from_bf16(uint16_t x) { return __uint_as_float((uint32_t)x << 16); }
ATTN__DEVICE float from_f16(uint16_t x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
ATTN__DEVICE uint16_t to_f16(float x) { uint16_t y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
ATTN__DEVICE uint16_t to_bf16(float x)      /* by hand: the instruction is there from sm_80 on */
{
    const uint32_t b = __float_as_uint(x);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}
}
#endif

/* ------------------------------------------------------------------------------------------------------ >>common
   What all stages share: the parameters of a call, arrays of any type and strides, which keys a query may attend to,
   what is added to a score, dropout. */
namespace attn__gpu {
namespace hw = attn__hw;

/* An array as kernels see it: element (b,h,i,x) is b*stride[0] + h*stride[1] + i*stride[2] + x*stride[3] elements behind
   data. An axis that the array lacks, or along which it is broadcast, has stride 0. rank 0: absent. */
struct array {
    void   *data;
    int64_t stride[4];
    int32_t type, rank;
};

/* X(name, axes): the letters say which of (b,h,i,x) the axes of attn.h's view are, aligned at the last one. */
#define ATTN__INPUTS(X) \
    X(q, "bhix") X(k, "bhix") X(v, "bhix") X(sigma_per_head, "h") X(bilinear, "hix") X(w_q, "hix") X(w_k, "hix") \
    X(w_v, "hx") X(hidden_bias, "hx") X(given_scores, "bhix") X(bias, "bhix") X(alibi, "h") X(sink, "h") \
    X(mask, "bhix") X(key_lengths, "bi") X(query_lengths, "b") X(positions, "bi")
#define ATTN__RESULTS(X) \
    X(out, "bhix") X(lse, "bhi") X(stats, "bhix") X(weights, "bhix") X(scores, "bhix") X(scores_softcap, "bhix") \
    X(scores_masked, "bhix")
#define ATTN__GRADIENTS(X) \
    X(d_out, "bhix") X(d_weights, "bhix") X(d_lse, "bhi") X(dq, "bhix") X(dk, "bhix") X(dv, "bhix") \
    X(d_given_scores, "bhix") X(d_bias, "bhix") X(d_bilinear, "hix") X(d_w_q, "hix") X(d_w_k, "hix") X(d_w_v, "hx") \
    X(d_hidden_bias, "hx") X(d_sigma, "h") X(d_scale, "h") X(d_sink, "h") X(d_alibi, "h")

/* One call. All kernels take this. */
struct params {
#define ATTN__X(name, axes) array name;
    ATTN__INPUTS(ATTN__X)
    ATTN__RESULTS(ATTN__X)
    ATTN__GRADIENTS(ATTN__X)
#undef ATTN__X
    int64_t  batch, heads, heads_kv, queries, keys, size_q, size_k, size_v, hidden;
    int64_t  window_left, window_right;
    uint64_t seed, drop_below;              /* a weight whose random word is below this is dropped */
    uint32_t origin[4];                     /* of the random numbers: absolute (b,h,i,j) of element 0 */
    uint32_t accumulate;                    /* ATTN_GRAD_x bits */
    int32_t  score, causal, align, window, empty, weights_after_dropout, positions_per_query;
    float    scale, sigma, softcap, dropout, keep_scale;    /* keep_scale: 1/(1-dropout) */

    /* What meets in a score: q and k themselves or, in the workspace, what becomes of them: q M for bilinear scores, the
       projections for additive ones. A head's keys are found at key_head(): heads share them unless they are projected
       per head. size_u is the length of these vectors. */
    array    query, key;
    int64_t  size_u, key_heads;
    float   *query_norm, *key_norm;         /* cosine: 1/|q| [B,H,Sq], 1/|k| [B,Hkv,Sk] */

    /* backward: per row [B,H,Sq] the maximum, 1/mass (0: no mass; -1: no mass, and ATTN_EMPTY_UNIFORM), what is
       subtracted from the gradient of a weight, and the row's part of some gradients */
    float   *row_top, *row_inverse, *row_shift, *row_scale, *row_sigma, *row_sink, *row_alibi;
    float   *row_vector;                    /* [B,H,Sq,size_u]  bilinear: dL/d(q M); additive: dL/d(W_q q) */
    float   *row_tanh;                      /* [B,H,Sq,h]  dL/dw_v of each row */
    float   *key_vector;                    /* [B,key_heads,Sk,h]  dL/d(W_k k + b) */
    float   *key_met;                       /* [B,key_heads,Sk]  1: some row with mass attends to it */
    int64_t  bias_size[4];                  /* of d_bias, spread over (b,h,i,j); 1 where it is summed */
    void    *more;                          /* what a stage needs beyond */
};
static_assert(sizeof(params) <= 4096, "kernel parameters fit in 4 KB");

ATTN__DEVICE int64_t key_head(const params &p, int64_t h) { return h / (p.heads / p.key_heads); }

/* ---- numbers */
ATTN__DEVICE uint32_t bits_of(float x) { uint32_t b; memcpy(&b, &x, sizeof b); return b; }
ATTN__DEVICE float float_of(uint32_t b) { float x; memcpy(&x, &b, sizeof x); return x; }
ATTN__DEVICE float infinity() { return float_of(0x7f800000u); }
ATTN__DEVICE bool is_nan(float x) { return (bits_of(x) & 0x7fffffffu) > 0x7f800000u; }
ATTN__DEVICE bool is_none(float x) { return bits_of(x) == 0xff800000u; }              /* -inf: excluded */
ATTN__DEVICE float quiet(float x) { return is_nan(x) ? float_of(0x7fc00000u) : x; }   /* the one NaN of results */
ATTN__DEVICE float magnitude(float x) { return float_of(bits_of(x) & 0x7fffffffu); }

/* A sum that loses little to rounding: chains of 64 terms, then the sum of these. */
struct chains {
    float whole, part;
    int   terms;
};
ATTN__DEVICE chains no_terms() { chains s; s.whole = s.part = 0.0f; s.terms = 0; return s; }
ATTN__DEVICE void add(chains &s, float a, float b)
{
    s.part = hw::fma(a, b, s.part);
    if (++s.terms < 64) return;
    s.whole += s.part;
    s.part = 0.0f;
    s.terms = 0;
}
ATTN__DEVICE float total(const chains &s) { return s.whole + s.part; }

/* Over the lanes of a warp, in a fixed order; all lanes get the same bits. */
ATTN__DEVICE float warp_sum(float x)
{
    for (int step = 16; step > 0; step /= 2) x += hw::shfl_xor(x, step);
    return hw::shfl(x, 0);
}

/* ---- arrays */
ATTN__DEVICE int64_t place(const array &a, int64_t b, int64_t h, int64_t i, int64_t x)
{
    return b * a.stride[0] + h * a.stride[1] + i * a.stride[2] + x * a.stride[3];
}
ATTN__DEVICE float load_at(const array &a, int64_t at)
{
    if (a.type == ATTN_F32) return ((const float *)a.data)[at];
    const uint16_t half = ((const uint16_t *)a.data)[at];
    return a.type == ATTN_BF16 ? hw::from_bf16(half) : hw::from_f16(half);
}
ATTN__DEVICE float load(const array &a, int64_t b, int64_t h, int64_t i, int64_t x)
{
    return load_at(a, place(a, b, h, i, x));
}
ATTN__DEVICE int64_t load_integer(const array &a, int64_t b, int64_t i)
{
    const int64_t at = place(a, b, 0, i, 0);
    return a.type == ATTN_I32 ? (int64_t)((const int32_t *)a.data)[at] : ((const int64_t *)a.data)[at];
}
ATTN__DEVICE void store(const array &a, int64_t b, int64_t h, int64_t i, int64_t x, float value)
{
    const int64_t at = place(a, b, h, i, x);
    if (a.type == ATTN_F32) ((float *)a.data)[at] = quiet(value);
    else if (a.type == ATTN_BF16) ((uint16_t *)a.data)[at] = is_nan(value) ? 0x7fc0 : hw::to_bf16(value);
    else ((uint16_t *)a.data)[at] = is_nan(value) ? 0x7e00 : hw::to_f16(value);
}
/* A gradient: written, or added to what is there. */
ATTN__DEVICE void store_gradient(const params &p, const array &a, uint32_t bit, int64_t b, int64_t h, int64_t i,
                                 int64_t x, float value)
{
    store(a, b, h, i, x, p.accumulate & bit ? load(a, b, h, i, x) + value : value);
}

/* ---- which keys a query may attend to, as far as lengths, causal and window say: first <= j < last */
struct reach { int64_t position, first, last; };

ATTN__DEVICE int64_t clamp(int64_t x, int64_t least, int64_t most) { return x < least ? least : x > most ? most : x; }
ATTN__DEVICE int64_t add_clamped(int64_t a, int64_t b)         /* positions may be anything; sums stop at the ends */
{
    if (b > 0 && a > INT64_MAX - b) return INT64_MAX;
    if (b < 0 && a < -INT64_MAX - b) return -INT64_MAX;
    return a + b;
}

ATTN__DEVICE reach reach_of(const params &p, int64_t b, int64_t i)
{
    reach r;
    int64_t key_length = p.keys, query_length = p.queries, end;
    if (p.key_lengths.rank) key_length = clamp(load_integer(p.key_lengths, b, i), 0, p.keys);
    if (p.query_lengths.rank) query_length = clamp(load_integer(p.query_lengths, b, 0), 0, p.queries);
    r.position = i;
    if (p.align == ATTN_ALIGN_BOTTOM_RIGHT) r.position = i + key_length - query_length;
    else if (p.align == ATTN_ALIGN_POSITIONS)
        r.position = add_clamped(load_integer(p.positions, b, i), p.positions_per_query ? 0 : i);
    r.first = 0;
    r.last = i < query_length ? key_length : 0;
    if (p.window && p.window_left >= 0) {
        const int64_t start = add_clamped(r.position, -p.window_left);
        r.first = start > 0 ? start : 0;
    }
    end = p.causal ? r.position : INT64_MAX - 1;
    if (p.window && p.window_right >= 0) {
        const int64_t right = add_clamped(r.position, p.window_right);
        end = right < end ? right : end;
    }
    if (end < r.last) r.last = end < 0 ? 0 : end + 1;
    if (r.first >= r.last) r.first = r.last = 0;
    return r;
}

/* ---- what happens to a score: softcap, then bias, ALiBi and masks. -inf: excluded */
ATTN__DEVICE bool is_distance(int32_t score)       /* the kernels that look at |q - k| */
{
    return score >= ATTN_SCORE_GAUSSIAN && score <= ATTN_SCORE_TRIANGULAR;
}
ATTN__DEVICE float soften(const params &p, float score)
{
    if (p.softcap == 0.0f || (is_distance(p.score) && is_none(score))) return score;
    return p.softcap * tanhf(score / p.softcap);
}
ATTN__DEVICE float distance_of(const reach &r, int64_t j)      /* |p - j| */
{
    return (float)(r.position > j ? (uint64_t)r.position - (uint64_t)j : (uint64_t)j - (uint64_t)r.position);
}
ATTN__DEVICE float mask(const params &p, const reach &r, int64_t b, int64_t h, int64_t i, int64_t j, float score)
{
    if (j < r.first || j >= r.last || is_none(score)) return -infinity();
    if (p.mask.rank && !((const uint8_t *)p.mask.data)[place(p.mask, b, h, i, j)]) return -infinity();
    if (p.bias.rank) {
        const float bias = load(p.bias, b, h, i, j);
        if (is_none(bias)) return bias;
        score += bias;
    }
    if (p.alibi.rank) score = hw::fma(-load(p.alibi, 0, h, 0, 0), distance_of(r, j), score);
    return score;
}

/* ---- dropout: Philox4x32-10, the counter (j/4, i, h, b), so that a weight's fate depends on nothing else */
ATTN__DEVICE bool is_kept(const params &p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const uint32_t column = (uint32_t)j + p.origin[3];
    uint32_t x[4] = {column / 4u, (uint32_t)i + p.origin[2], (uint32_t)h + p.origin[1], (uint32_t)b + p.origin[0]};
    uint32_t key0 = (uint32_t)p.seed, key1 = (uint32_t)(p.seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t left = (uint64_t)0xD2511F53u * x[0], right = (uint64_t)0xCD9E8D57u * x[2];
        x[0] = (uint32_t)(right >> 32) ^ x[1] ^ key0;
        x[2] = (uint32_t)(left >> 32) ^ x[3] ^ key1;
        x[1] = (uint32_t)right;
        x[3] = (uint32_t)left;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return (column % 4u < 2u ? column % 4u == 0u ? x[0] : x[1] : column % 4u == 2u ? x[2] : x[3]) >= p.drop_below;
}
/* What dropout multiplies a weight by. */
ATTN__DEVICE float keep_factor(const params &p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return p.dropout == 0.0f ? 1.0f : is_kept(p, b, h, i, j) ? p.keep_scale : 0.0f;
}
