/* attn_cuda.cuh - v0.3.0 - attn.h on NVIDIA GPUs: the same functions take device pointers - MIT or Unlicense
   SPDX-License-Identifier: MIT OR Unlicense

   HOW TO    In ONE .cu file, compiled by nvcc (12.0 and up, C++17, sm_75 and up):

                 #define ATTN_CUDA_IMPLEMENTATION
                 #include "attn_cuda.cuh"

             and in the one C or C++ file that has the implementation of attn.h:

                 #define ATTN_CUDA
                 #define ATTN_IMPLEMENTATION
                 #include "attn.h"

             From then on attn_forward, attn_softmax, attn_scores, attn_mask, attn_dropout_mask, attn_merge, attn_bmm,
             attn_mha and the gradients take device pointers as well as host ones, and so does what a cache on the
             device needs: attn_append, attn_rope, attn_rope_table, attn_convert, attn_quantize, attn_unpack_q8_0, and
             those of these names that end in _with. All other functions take host pointers only. Files that only call
             them need neither macro. Stage 1 runs every call, in f32; stages 2 (mma.sync) and 3 (wgmma and TMA) are
             faster and run what they cover, f16 and bf16, stage 2 f32, too: attn_explain tells.

   NVCC      takes minutes for each architecture; with --split-compile=0, where nvcc --help has it, as many processors
             as there are share them. It takes less where these are defined before that include, or by -D:
             ATTN_CUDA_HEAD_DIMS 64, 128 (sizes; others take the next), ATTN_CUDA_F16 0, ATTN_CUDA_BF16 0,
             ATTN_CUDA_F32 0 (a type less), ATTN_CUDA_GRADIENTS 0 (the forward alone). What was left out runs in stage
             1, of which nothing is left out, and attn_explain tells. Where stage 3 is to have fewer sizes than stage
             2, ATTN_CUDA_HOPPER_DIMS are these.

   WHERE     If all arrays are on the host (pinned or not), the call runs on the CPU; if all are on one device, it is
             enqueued on desc.stream. Managed memory fits either: it runs on the device unless another array is on the
             host. Arrays in two places are refused (ATTN_ERR_PLACE, naming the field). The workspace lies where the
             arrays do. attn_workspace_size and the like look at the pointers too. Where all arrays are there, they say
             what the call needs, to the byte (the forward of stage 3 at most 512, where no entries are packed, nothing
             is int8 and there is no bias, mask or dropout; else 4 bytes for 32 rows of v, and of a mask a bit for each
             pair that it tells apart, and two for each tile of 128 queries and 64 keys). Where some are NULL, that is
             enough for the same call with fewer queries or keys, too, where the arrays are aligned to 16 bytes; if all
             are, it is enough for either place. It then grows with B, H, Sq and Sk; a head size that a faster stage
             covers may need more than a larger one that none does.
   STREAM    A call on the device returns when its work is enqueued, without synchronisation. With a workspace it
             allocates nothing, so it can be captured in a graph: attn_cuda_prepare() once before the capture loads the
             kernels. Without one it uses cudaMallocAsync and cudaFreeAsync on the stream, or desc.allocator, whose
             memory must be the device's and stay there until the stream is done with it. Later errors of kernels show
             at the caller's next synchronisation. Calls without options are enqueued on the stream that
             attn_cuda_use_stream was told by their thread, else on the default stream.
   PLANS     A call asks the runtime where its arrays lie and for tensor maps, a thread's first also what the device can
             do. With a plan (attn_plan_forward, attn_plan_backward) that is done once, and each run launches kernels
             and does nothing else (where tasks differ in length, or a decode has its keys cut, counters are set to 0,
             and int8 keys and values in stage 3 need new maps). On a device a plan has one phase of one task, of none
             where no result has an element:
                 attn_plan_forward(&desc, &plan, &err);                     // loads the kernels, enqueues nothing
                 attn_task(&plan, workspace, 0, 0, 0);                      // as often as you like
             A run has the bits of the call. It is enqueued on the desc.stream of the plan, and may be captured without
             attn_cuda_prepare. workspace: plan.workspace_bytes of the device's memory, another block for each run if
             you like. Addresses, sizes, strides, options (a seed, too) and the stream are the plan's. What the arrays
             hold may change from run to run, here lengths, starts, page tables and positions, too: a decode whose
             cache grows has arrays for all keys there will be, or a page table, and key_lengths that grow. Where the
             array itself moves, as a new cache does, it needs a new plan. What a launch cannot do shows in
             cudaGetLastError, for a task returns nothing. Arrays in managed memory alone are a plan of the CPU's.
   NaN, INF  As in attn.h, with one exception, in stages 2 and 3: a key that nothing masks and whose k is infinite has
             weight 0 in rows where that makes the score -inf; if its v is not finite either, these may be NaN. A decode
             that reads codes as they are (TYPES) takes an infinite scale for NaN.
   UNMAPPED  All of k and v must be readable: stages 2 and 3 also read excluded keys, in whole tiles (without influence
             on results). In pages, stages 2 and 3 look up the keys from the first to the last that some row of a tile
             may attend to; all keys, where codes in pages become numbers in the workspace first, or where stage 3 has
             a bias, a mask or dropout. All of a mask and of a bias must be readable, too: stage 3 looks through the
             whole mask first, and its forward reads the bias of whole tiles.
   UNCHECKED What lengths, starts, page tables, positions and sigma_per_head hold on a device is not checked:
             query_starts and key_starts are clamped to 0..Sq and 0..Sk, lengths to 0 and what is left from there,
             pages to those of the pool; sigma_per_head is used as it is. Where packed entries share rows (keys, too,
             where there are gradients of them), these, and rows of entries behind them, may hold anything or not be
             written. ATTN_ALIGN_UNSET is top-left in each entry. attn_append leaves out rows that have no room,
             and those whose page is none; for attn_rope positions are clamped to the rows of the tables, and what
             factors of attn_rope_table hold is used as it is. All else is checked as on the CPU.
   SEQUENCES Starts run in all stages, forward (2: of head sizes up to 192); with a mask or a bias in stages 1 and 2.
             Gradients are stage 3's, too, and stage 2's where it finds them in one sweep (BITS), of head sizes above
             192 where there are stats; of packed keys with a length for each query, and where d_scale or d_alibi is
             wanted, stage 1's.
             Pages, forward, are stage 1's and, where keys have no starts, stage 2's; of a multiple of 8 rows stage 3's,
             too (of int8: TYPES). Both are in attn_mask. Keys in parts, forward, are stage 1's; gradients of them are
             refused (ATTN_ERR_PLACE). Parts have the bound of one call, not its bits. An entry has the bits of a call
             of its own in the same stage, where stage 2 takes tiles of as many rows for both and cuts the keys of
             neither (that forward, too, which finds stats for gradients); keys in pages those of as many keys side by
             side. In the backward that is so of dq, dk, dv, d_given_scores and the d_bias of a bias that differs by
             entry; not of dv where rows outside of the entry add to it, under ATTN_EMPTY_UNIFORM. What entries share is
             summed over the batch, always in the same order. Rows outside of entries may be read. Stage 1 looks for the
             entry of a block from the first on, so there thousands of short entries take their time, and so do packed
             keys with a length for each query; stages 2 and 3 look it up.
   TYPES     Arrays of floats may be ATTN_F32, ATTN_F16 or ATTN_BF16, independently (lse and stats are f32); k and v
             also ATTN_I8: in stage 1 the bits are those of the floats that these stand for, in stages 2 and 3 those of
             numbers of the type of q, in stage 2 by its kernels with options. It makes these numbers tile by tile,
             where codes lie in rows of whole 16 bytes and no weights or scores are wanted; on sm_90 it has such calls
             of less than 256 rows (queries times heads of a group). Otherwise, and for stage 3, numbers are made first,
             in the workspace, in pages only where both k and v are ATTN_I8. Up to 64 rows stage 2 multiplies codes as
             they are, where both k and v have rows of whole 16 bytes, without starts, a mask, a bias, dropout, softcap,
             ALiBi, weights, scores or a scale that is not positive, by a kernel of a multiple of 32 columns
             (ATTN_CUDA_HEAD_DIMS). It rounds no numbers, but weights times scales, to bf16 (of f16 in two parts), so
             its bits are its own: the same in pages and side by side. Sums of q times codes must not overflow.
             All arithmetic is f32; a result is rounded once, when it is stored. In stages 2 and 3 weights and the
             gradients of scores are rounded to the type of q, too, before they are multiplied by v, d_out, k and q.
             Tensor cores take f16 and bf16 directly, whatever desc.precision is. Of f32 (q, k, v, results and gradients
             alike, from sm_80 on, in heads of up to 128 numbers, with starts 64, as far as ATTN_CUDA_HEAD_DIMS has 64
             and 128; without weights or scores as results) stage 2 splits each number into two parts of 11 bits, which
             have some 22 of its 24 bits together, and a product into three of these parts, which are summed in f32:
             within the bounds of attn.h, but not the bits of stage 1. Of numbers below 2^-102 what is below 2^-136 is
             lost; results within 2^-20 of the largest float may be infinite. Where products of whole floats are needed,
             `#define ATTN_CUDA_F32 0` before the include above leaves all f32 to stage 1.
             attn_bmm, attn_bmm_backward and the layers of attn_mha, with their gradients, are products of whole floats
             in stage 1. With ATTN_PRECISION_FAST those whose factors are both f16, both bf16 or both f32 are made by
             the tensor cores of a warp (mma.sync), from sm_80 on, where each factor lies in lines of neighbours, along
             k or across it, whose starts are aligned to 16 bytes; of f32 with more than 64 rows and columns on sm_80,
             90 and 10x alone, where three products of parts take less time than one of f32. Sums are f32 and rounded
             once, with scale, bias and what they are added to; tensor cores may cut them off: of n terms of 16 bits
             they are within n units of 2^-23 of the absolute sum. Of f32, in parts as above, chains of at most 16
             terms, each of one entry of the batch, are added one after the other: 21 units of 2^-24, and one for each.
             The layers of attn_mha then have arrays of 16 bits between them, q, k, v, what w_result multiplies, and the
             gradients of these, where query, key, value and all weights have one type of 16 bits (without w_result out
             or d_out, too), on any device, so that attention takes the tensor cores, too. They are f32 otherwise.
             Where layers of attn_mha_backward share an input of 16 bits, its gradient is rounded after each layer.
   BITS      The same from run to run, backward too: no sum depends on who comes first, but for ATTN_PRECISION_FAST.
             Of f16 and bf16 stage 3 finds dq in the sweep over keys and queries that finds dk and dv, five products in
             place of seven (attn_explain_backward tells), and so does stage 2, but where ATTN_CUDA_HEAD_DIMS has a size
             below 128 for them that is no multiple of 32. The floats of dq are summed in the workspace, for each row as
             many as the kernel has columns, in stage 3 and above 128 a multiple of 64, in the order of the keys: blocks
             take turns. With ATTN_PRECISION_FAST they do not wait, and dq is a sum in any order: the same bound, but
             not the same bits from run to run.
             Bits are different from the CPU's, except attn_bmm without ATTN_PRECISION_FAST, masks, dropout masks,
             conversion, codes, what is appended and rotary positions with their tables, which are identical. They
             depend on which stage runs (attn_explain tells), and so on the device and on which results are asked for;
             where stage 2 cuts the keys into parts, on the number of multiprocessors, too.
             With ATTN_PRECISION_FAST each element of attn_bmm is still a sum in one order: its bits are the same in
             each run, and depend on nothing but its row of a, its column of b, whether tensor cores make them and
             whether there are at most 64 rows (of all batch entries that share b together, where they lie so) or
             columns, of which warps have shares along k.
   TRIED     On an NVIDIA H200 and an H100 (stages 1 and 3, and stage 2 compiled for sm_90), on no other GPU so far, and
             in an emulator of what the kernels use of one (make test-cuda-emulated). In the emulator alone: f32 in
             stage 2; the forward of stage 2 as it is now; products of matrices by tensor cores; gradients in one sweep
             (of packed documents in stage 2, too), of entries that are not packed in stages 2 and 3, d_bias, d_scale,
             d_sink, d_alibi in stages 2 and 3, and the order of queries in others, as they are now; pages and masks
             that empty tiles in stage 3, its forward with a bias, a mask or dropout as it is now, dropout with starts
             in stages 2 and 3; keys in parts; weights and scores as results of stages 2 and 3; codes and decodes in
             stage 2, how results of 16 bits are stored, and the kernels of a cache, as they are now. Its speed:
             bench/README.md.

   CONTENTS  search for ">>" and a name
       >>api        what a program calls                    >>mma        stage 2: tensor cores by mma.sync
       >>config     what can be set before the include      >>hopper     stage 3: wgmma and TMA
       >>platform   nvcc, or a stand-in for tests           >>dispatch   which stage runs
       >>hw         the only place with PTX                 >>host       what attn.h calls
       >>common     parameters, numbers, arrays             >>tail       clean-up
       >>options    what has them, reach, masks, dropout
       >>rows       scores, masses; products; the pieces
       >>cache      conversion, codes, new rows, rotary positions
       >>tiled      stage 1: every option, every size, f32
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

/* Loads all kernels onto the current device: what a first call would do, and a graph capture may not allow. Once per
   device and process is enough. err may be NULL. */
attn_status attn_cuda_prepare(attn_error *err);
/* The cudaStream_t on which calls of this thread without options are enqueued from now on: attn_merge, attn_convert,
   attn_quantize, attn_unpack_q8_0, attn_rope and attn_rope_table. NULL, as at first: the default stream. With options
   (attn_merge_with, attn_convert_with, ...) it is theirs. */
void attn_cuda_use_stream(void *stream);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_CUDA_INCLUDED */

#if defined(ATTN_CUDA_IMPLEMENTATION) && !defined(ATTN__CUDA_IMPLEMENTED)
#define ATTN__CUDA_IMPLEMENTED

/* ------------------------------------------------------------------------------------------------------ >>config */
#ifndef ATTN_CUDA_HEAD_DIMS
#  define ATTN_CUDA_HEAD_DIMS 32, 64, 96, 128, 192, 256    /* ascending; others take the next, or stage 1. Beside 64 and
                                                              128 those of 32 and 96 are for plain calls of many rows;
                                                              options, a decode, weights take the next */
#endif
#ifndef ATTN_CUDA_HOPPER_DIMS
#  define ATTN_CUDA_HOPPER_DIMS ATTN_CUDA_HEAD_DIMS     /* the same of stage 3, which has 64, 96, 128, 192 and 256: each
                                                           of these takes the next (up to the largest of stage 2) */
#endif
/* What stages 2 and 3 have kernels of; 0: calls that need them are stage 1's (NVCC, above). */
#ifndef ATTN_CUDA_F16
#  define ATTN_CUDA_F16 1
#endif
#ifndef ATTN_CUDA_BF16
#  define ATTN_CUDA_BF16 1
#endif
#ifndef ATTN_CUDA_GRADIENTS
#  define ATTN_CUDA_GRADIENTS 1
#endif
#ifndef ATTN_CUDA_F32
#  define ATTN_CUDA_F32 1                   /* 0: stage 1 alone takes f32 (TYPES), and stage 2 has less to compile */
#endif
#ifndef ATTN_CUDA_MAX_BLOCKS
#  define ATTN_CUDA_MAX_BLOCKS 65535        /* of a grid; blocks loop over what is left */
#endif

#ifndef ATTN_CUDA_SIMPLE
#  define ATTN_CUDA_SIMPLE 0                /* 1: stage 1 does everything, to hold the others against it */
#endif

/* ---------------------------------------------------------------------------------------------------- >>platform
   Either CUDA, or what tests put in its place (see tests/cuda): the same names for the kernels and for the few
   functions of the runtime that >>host calls. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef ATTN_CUDA_HW_HEADER
#  include ATTN_CUDA_HW_HEADER
#else
#  include <cuda_runtime.h>
#  define ATTN__DEVICE        static __device__ __forceinline__
#  define ATTN__BOTH          static __host__ __device__ __forceinline__
#  define ATTN__KERNEL(threads, blocks) static __global__ __launch_bounds__(threads, blocks)
#  define ATTN__PARAM         const __grid_constant__
#  define ATTN__SHARED(name)  extern __shared__ __align__(1024) unsigned char name[]
#  define ATTN__LAUNCH(kernel, grid, threads, shared, stream, params) \
    attn__gpu_launch((const void *)(kernel), grid, threads, shared, stream, &(params))
static cudaError_t attn__gpu_launch(const void *kernel, int grid, int threads, size_t shared, cudaStream_t stream,
                                    const void *params)
{
    void *arguments[1];
    arguments[0] = const_cast<void *>(params);
    return cudaLaunchKernel(kernel, dim3((unsigned)grid), dim3((unsigned)threads), arguments, shared, stream);
}
#endif

#ifndef ATTN__BOTH              /* for the host too */
#  define ATTN__BOTH ATTN__DEVICE
#endif

/* ---------------------------------------------------------------------------------------------------------- >>hw
   The hardware, as small functions: the only place with PTX. A compiler that knows no CUDA takes the same names from
   ATTN_CUDA_HW_HEADER, which emulates them; so the kernels below run, and are tested, without a GPU.
       Who has to call a function together is said in front of it: "a warp" is all of its 32 lanes, at one place in the
   program; "a warpgroup" is each of its four warps so, but no warp waits for another. Where a lane does not come, the
   others wait for ever. A function of which nothing is said is a thread's own. */
#ifndef ATTN_CUDA_HW_HEADER
#include <cuda.h>           /* types only: CUtensorMap; nothing of libcuda is linked */
#if CUDART_VERSION < 12000
#  error "attn_cuda.cuh needs CUDA 12.0 or later"
#endif

#define ATTN__UNROLL _Pragma("unroll")
#define ATTN__PRAGMA(text) _Pragma(#text)
#define ATTN__UNROLL_BY(n) ATTN__PRAGMA(unroll n)
#define ATTN__LOOP _Pragma("unroll 1")      /* not unrolled: it would cost registers */
/* What the compilation for one architecture has. On the host everything, so that kernels have their names. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#  define ATTN__HAVE_MMA 1
#else
#  define ATTN__HAVE_MMA 0
#endif
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#  define ATTN__HAVE_WGMMA 1
#else
#  define ATTN__HAVE_WGMMA 0
#endif
/* The largest heads of which stage 2 has kernels of large tiles there (most_large_tiles) */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#  define ATTN__LARGE_TILES 64
#else
#  define ATTN__LARGE_TILES 256
#endif

namespace attn__hw {

/* types of numbers, as template arguments */
struct f16  { static const bool is_bf16 = false, is_f32 = false; };
struct bf16 { static const bool is_bf16 = true, is_f32 = false; };
struct f32  { static const bool is_bf16 = false, is_f32 = true; };
typedef CUtensorMap tensor_map;

/* ---- who am I */
ATTN__DEVICE int thread()  { return (int)threadIdx.x; }
ATTN__DEVICE int threads() { return (int)blockDim.x; }
ATTN__DEVICE int block()   { return (int)blockIdx.x; }
ATTN__DEVICE int blocks()  { return (int)gridDim.x; }
ATTN__DEVICE int lane()    { return (int)(threadIdx.x % 32); }
/* The same, and what follows from it is computed again each time: the compiler keeps none of it in registers. */
ATTN__DEVICE int lane_anew() { int l = lane(); asm volatile("" : "+r"(l)); return l; }
ATTN__DEVICE int thread_anew() { int t = thread(); asm volatile("" : "+r"(t)); return t; }
ATTN__DEVICE int anew(int x) { asm volatile("" : "+r"(x)); return x; }
ATTN__DEVICE void *anew(void *x) { asm volatile("" : "+l"(x)); return x; }
/* The body of a kernel that this architecture cannot have or does not need. Were it launched all the same, that is an
   error (cudaErrorLaunchFailure), not results that nobody wrote. */
ATTN__DEVICE void missing() { asm volatile("trap;"); }
/* A warp: a number that is the same in all lanes, so that the compiler knows it is; arithmetic on it is done once per
   warp. warp() is one of these: a lane alone must not ask for it. */
template <class T> ATTN__DEVICE T uniform(T x) { return __shfl_sync(0xffffffffu, x, 0); }
ATTN__DEVICE int warp()    { return uniform((int)(threadIdx.x / 32)); }

/* ---- a warp, at each of these: it comes as one, and counts as 32 that have arrived. Barriers of the block (0: all of
   its warps come) and of `count` of its threads (1..15); arrive does not wait for the other warps. */
ATTN__DEVICE void sync() { __syncthreads(); }
ATTN__DEVICE void barrier_sync(int id, int count)
{
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(count) : "memory");
}
ATTN__DEVICE void barrier_arrive(int id, int count)
{
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(count) : "memory");
}

/* bar.sync; then true where any of the threads votes so */
ATTN__DEVICE bool barrier_or(int id, int count, bool vote)
{
    int result;
    asm volatile("{ .reg .pred in, out; setp.ne.s32 in, %3, 0; bar.red.or.pred out, %1, %2, in; "
                 "selp.s32 %0, 1, 0, out; }"
                 : "=r"(result) : "r"(id), "r"(count), "r"((int)vote) : "memory");
    return result != 0;
}

/* ---- a warp: what its lanes tell one another */
template <class T> ATTN__DEVICE T shfl(T x, int source) { return __shfl_sync(0xffffffffu, x, source); }
template <class T> ATTN__DEVICE T shfl_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
ATTN__DEVICE uint32_t ballot(bool vote) { return __ballot_sync(0xffffffffu, vote); }
ATTN__DEVICE bool any(bool vote) { return __any_sync(0xffffffffu, vote) != 0; }
ATTN__DEVICE void sync_warp() { __syncwarp(); }
/* A warp: true in exactly one of its lanes, the same one each time (sm_90). Unlike lane() == 0 it tells the compiler
   that one thread goes on, which then needs no loop over lanes around TMA. */
ATTN__DEVICE bool elect()
{
    uint32_t result;
    asm volatile("{ .reg .pred one; elect.sync _|one, 0xffffffff; selp.u32 %0, 1, 0, one; }" : "=r"(result));
    return result != 0;
}
ATTN__DEVICE int ctz(uint32_t x) { return __ffs((int)x) - 1; }      /* the 0 bits below the lowest 1; x is not 0 */
ATTN__DEVICE int popc(uint32_t x) { return __popc(x); }             /* the 1 bits */

/* ---- one instruction each: 2 ulp or so, numbers below 2^-126 are 0 */
ATTN__DEVICE float ex2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
ATTN__DEVICE float lg2(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
ATTN__DEVICE float rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
/* within 2^-11 */
ATTN__DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
/* x a + b, and -inf where b is, whatever x is: in the register of x, of which there are many at once */
ATTN__DEVICE void biased(float &x, float a, float b)
{
    asm("{\n .reg .pred p;\n setp.neu.f32 p, %2, 0fFF800000;\n selp.f32 %0, %0, 0f00000000, p;\n"
        " fma.rn.f32 %0, %0, %1, %2;\n}" : "+f"(x) : "f"(a), "f"(b));
}
/* rounded, never part of a fused multiply-add */
ATTN__DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
ATTN__DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
ATTN__DEVICE float div(float a, float b) { return __fdiv_rn(a, b); }
ATTN__DEVICE double mul(double a, double b) { return __dmul_rn(a, b); }
ATTN__DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
ATTN__DEVICE double div(double a, double b) { return __ddiv_rn(a, b); }

/* ---- 16-bit floats, rounded to nearest even */
ATTN__DEVICE float from_f16(uint16_t h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
ATTN__DEVICE uint16_t to_f16(float f) { uint16_t h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
ATTN__DEVICE float from_bf16(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }
ATTN__DEVICE uint16_t to_bf16(float f)          /* by hand: the instruction is there from sm_80 on */
{
    const uint32_t u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* four of the eight bytes of a and, from number 4 on, b: their numbers are the digits of `which`, the lowest first */
ATTN__DEVICE uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which) { return __byte_perm(a, b, which); }
/* the upper half of a product; one instruction with the lower one */
ATTN__DEVICE uint32_t multiply_high(uint32_t a, uint32_t b) { return __umulhi(a, b); }
/* of two pairs of 16-bit integers the larger ones; one instruction on sm_90 */
ATTN__DEVICE uint32_t larger_halves(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }
/* of two pairs of signed ones the smaller; the same */
ATTN__DEVICE uint32_t smaller_halves(uint32_t a, uint32_t b) { return __vmins2(a, b); }
/* two numbers in one register (sm_80) */
template <class T> ATTN__DEVICE uint32_t pack(float low, float high)
{
    uint32_t r;
    if (T::is_bf16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
/* (a & b) | c as one instruction: with two constants the compiler would take two */
ATTN__DEVICE uint32_t and_or(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
/* a - b of each half, rounded to nearest even (sm_80, where bf16 has a fused multiply-add alone) */
template <class T> ATTN__DEVICE uint32_t subtract_halves(uint32_t a, uint32_t b)
{
    uint32_t r;
    if (T::is_bf16) asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(b), "r"(0xbf80bf80u), "r"(a));
    else asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* ---- shared memory. Words that TMA or wgmma will read: store_shared by all, fence_async by all, a barrier; then. */
ATTN__DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
ATTN__DEVICE void store_shared(uint32_t address, uint32_t value)
{
    asm volatile("st.shared.b32 [%0], %1;" :: "r"(address), "r"(value) : "memory");
}
ATTN__DEVICE void store_shared(uint32_t address, const uint32_t (&r)[2])    /* 8 bytes, aligned */
{
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"(address), "r"(r[0]), "r"(r[1]) : "memory");
}
ATTN__DEVICE void store_shared(uint32_t address, const uint32_t (&r)[4])    /* 16 bytes, aligned */
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
ATTN__DEVICE void load_shared(uint32_t (&r)[4], uint32_t address)          /* 16 bytes, aligned */
{
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
ATTN__DEVICE void load_shared(uint32_t (&r)[2], uint32_t address)          /* 8 bytes, aligned */
{
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address) : "memory");
}
ATTN__DEVICE uint32_t load_shared_word(uint32_t address)
{
    uint32_t r;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
    return r;
}
ATTN__DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- global memory, 16 or 8 bytes at once, aligned to so many */
ATTN__DEVICE void load_global(uint32_t (&r)[4], const void *from)
{
    const uint4 x = *(const uint4 *)from;
    r[0] = x.x, r[1] = x.y, r[2] = x.z, r[3] = x.w;
}
ATTN__DEVICE void store_global(void *to, const uint32_t (&r)[4]) { *(uint4 *)to = make_uint4(r[0], r[1], r[2], r[3]); }
ATTN__DEVICE void store_global(void *to, const uint32_t (&r)[2]) { *(uint2 *)to = make_uint2(r[0], r[1]); }

/* ---- cp.async (sm_80): 16 bytes from global to shared memory, both aligned to 16, of which the first `bytes` are read
   and the others are zeros; all or none: of none `from` may be anywhere */
ATTN__DEVICE void cp_async_part(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
ATTN__DEVICE void cp_async(uint32_t to, const void *from, bool inside) { cp_async_part(to, from, inside ? 16 : 0); }
ATTN__DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> ATTN__DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

/* ---- a warp: its tensor cores (sm_80). With g = lane/4, t = lane%4, element pairs in one register low half first:
       A 16x16   a0 (g, 2t..)  a1 (g+8, 2t..)  a2 (g, 2t+8..)  a3 (g+8, 2t+8..)
       B 16x8    b0 (2t.., g)  b1 (2t+8.., g)
       D 16x8    d0 (g, 2t)  d1 (g, 2t+1)  d2 (g+8, 2t)  d3 (g+8, 2t+1)
   ldmatrix: four 8x8 matrices; lane 8m+r gives the address of row r of matrix m; a lane gets of each (g, 2t..), or of
   the transposed one. */
ATTN__DEVICE void ldmatrix(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
ATTN__DEVICE void ldmatrix_transposed(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
#define ATTN__MMA(type) \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 " \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <class T> ATTN__DEVICE void mma(float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if (T::is_bf16) ATTN__MMA("bf16");
    else ATTN__MMA("f16");
}
/* The same of floats, of which it reads the sign, the exponent and the first 10 bits of the fraction (tf32). A register
   has one number: A 16x8  a0 (g, t)  a1 (g+8, t)  a2 (g, t+4)  a3 (g+8, t+4);  B 8x8  b0 (t, g)  b1 (t+4, g). */
ATTN__DEVICE void mma_tf32(float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- mbarriers (sm_90): 8 bytes of shared memory. A phase ends when `arrivals` have arrived and all bytes that were
   announced have landed; wait(parity) goes on once the phase of that parity has ended, so the first wait for a slot
   that starts out free is with parity 1. */
ATTN__DEVICE void mbarrier_init(uint64_t *bar, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(bar)), "r"(arrivals) : "memory");
}
ATTN__DEVICE void mbarrier_fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
ATTN__DEVICE void mbarrier_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(shared_address(bar)) : "memory");
}
ATTN__DEVICE void mbarrier_expect(uint64_t *bar, uint32_t bytes) {          /* arrives, and announces bytes */
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared_address(bar)), "r"(bytes) : "memory");
}
ATTN__DEVICE void mbarrier_wait(uint64_t *bar, int parity)
{
    asm volatile("{ .reg .pred done;\n"
                 "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN; }" :: "r"(shared_address(bar)), "r"(parity) : "memory");
}

/* ---- a warp: stmatrix (sm_90), what ldmatrix would load into r, with the same addresses */
ATTN__DEVICE void stmatrix(uint32_t address, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

/* ---- TMA (sm_90): one thread moves a box of 64 columns and some rows, which lies in shared memory as rows of 128
   bytes whose 16-byte chunks are exchanged: chunk ^= row % 8. Outside the tensor it reads 0 and writes nothing; but a
   box that is stored must not begin in front of the tensor: that is an illegal instruction. */
ATTN__DEVICE void tma_load(void *to, const tensor_map *map, uint64_t *bar, int c0, int c1, int c2, int c3)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];"
                 :: "r"(shared_address(to)), "l"(map), "r"(shared_address(bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}
ATTN__DEVICE void tma_store(const tensor_map *map, const void *from, int c0, int c1, int c2, int c3)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
                 :: "l"(map), "r"(shared_address(from)), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
ATTN__DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> ATTN__DEVICE void tma_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory");
}

/* Contiguous bytes from global to shared memory, which the barrier counts as it does those of tma_load. Both addresses
   and the size are multiples of 16. */
ATTN__DEVICE void cp_async_bulk(void *to, const void *from, uint32_t bytes, uint64_t *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(bar)) : "memory");
}

/* On the host: the driver's function that makes a tensor map; NULL if the driver has none. */
typedef CUresult (*tensor_map_encoder_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                          const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                                          CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                          CUtensorMapFloatOOBfill);
inline tensor_map_encoder_fn tensor_map_encoder()
{
    void *encode = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                               cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &found);
#endif
    if (error == cudaSuccess) return (tensor_map_encoder_fn)encode;
    cudaGetLastError();                         /* the caller's next check is not to find this one */
    return NULL;
}

/* A tensor of 16-bit elements with four axes, the first one columns; boxes of 64 columns, `along` of the second axis
   and `across` of the third, whose rows go along first. On the host; 0 = fine, else the tensor cannot be described
   (alignment, strides) or `encode` is NULL. */
inline int tensor_map_make(tensor_map_encoder_fn encode, tensor_map *map, void *base, const int64_t (&size)[4],
                           const int64_t (&stride)[4], int along, int across = 1)
{
    cuuint64_t sizes[4], strides[3];
    const cuuint32_t box[4] = {64, (cuuint32_t)along, (cuuint32_t)across, 1}, steps[4] = {1, 1, 1, 1};
    if (!encode) return 1;
    for (int i = 0; i < 4; i++) {
        if (size[i] <= 0 || (i && stride[i] <= 0)) return 1;
        sizes[i] = (cuuint64_t)size[i];
        if (i) strides[i - 1] = (cuuint64_t)stride[i] * 2;
    }
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, base, sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS;
}

/* Adds 1 to a counter in global memory that all blocks share; what it was before. */
ATTN__DEVICE int take_one(int *counter) { return atomicAdd(counter, 1); }

/* One thread waits until a count in global memory has a value, and lets the blocks that wait for the next one go on.
   What any thread of a block wrote or added in global memory, before a barrier or an mbarrier at which the publisher
   met it, is seen by those who met the one who waited, after that. For causality order in PTX's memory model is
   transitive over scopes: the barrier orders it before the publisher's fence (cta), the fence before the count, and the
   count that ld.acquire reads before what comes after it (gpu). */
ATTN__DEVICE void wait_for_count(const int *counter, int value)
{
    int now;
    do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    while (now < value);
}
ATTN__DEVICE void publish_count(int *counter, int value)
{
    asm volatile("fence.acq_rel.gpu;\n"
                 "st.relaxed.gpu.global.s32 [%0], %1;" :: "l"(counter), "r"(value) : "memory");
}
/* Where nobody waits, but the last of some blocks is to see what all have written: adds 1, as take_one does, and orders
   what comes before and after it as publish_count and wait_for_count do. */
ATTN__DEVICE int publish_one(int *counter)
{
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

/* A number in global memory, or four neighbours, aligned to 16 bytes, grow by x; each addition is whole, their order is
   nobody's (four: sm_90; before CUDA 12.1 no instruction for them). */
ATTN__DEVICE void add_to_global(float *to, float x)
{
    asm volatile("red.global.add.f32 [%0], %1;" :: "l"(to), "f"(x) : "memory");
}
ATTN__DEVICE void add_to_global(float *to, const float (&x)[4])
{
#if CUDART_VERSION >= 12010
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
#else
    ATTN__UNROLL for (int i = 0; i < 4; i++) add_to_global(to + i, x[i]);
#endif
}

/* ---- a warpgroup, at each of these but keep: registers that it hands over, and its tensor cores (sm_90a):
   asynchronous; D 64xN (+)= A 64x16 . B 16xN, by groups.
   Warp w holds rows 16w.. of D: d[4j], d[4j+1] (g, 8j+2t..), d[4j+2], d[4j+3] (g+8, 8j+2t..); A in registers is as for
   mma. Operands in shared memory are descriptors of tiles as TMA lays them; a transposed one has its rows along k.
   fence before the first wgmma of a group; keep(registers) before it and after the wait, so that the compiler leaves
   the registers alone in between. */
template <int N> ATTN__DEVICE void setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> ATTN__DEVICE void setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
ATTN__DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ATTN__DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> ATTN__DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
template <int N> ATTN__DEVICE void wgmma_keep(float (&d)[N])
{
    ATTN__UNROLL for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i]) :: "memory");
}
template <int N> ATTN__DEVICE void wgmma_keep(uint32_t (&a)[N])
{
    ATTN__UNROLL for (int i = 0; i < N; i++) asm volatile("" : "+r"(a[i]) :: "memory");
}
template <int M, int N> ATTN__DEVICE void wgmma_keep(uint32_t (&a)[M][N])
{
    ATTN__UNROLL for (int i = 0; i < M; i++) wgmma_keep(a[i]);
}

/* An asm statement must name each register by a literal number. These are lists of them: ATTN__REGSn names the n/2 of
   an accumulator of n columns, ATTN__ACCn binds them to d[0..n/2). */
#define ATTN__R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ATTN__R1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define ATTN__R2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define ATTN__R3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define ATTN__R4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define ATTN__R5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define ATTN__R6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define ATTN__R7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define ATTN__R8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define ATTN__R9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define ATTN__R10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define ATTN__R11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define ATTN__R12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define ATTN__R13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define ATTN__R14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define ATTN__R15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define ATTN__D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
                    "+f"(d[i + 6]), "+f"(d[i + 7])
#define ATTN__D32(i) ATTN__D8(i), ATTN__D8(i + 8), ATTN__D8(i + 16), ATTN__D8(i + 24)
#define ATTN__REGS32 ATTN__R0 ", " ATTN__R1
#define ATTN__ACC32 ATTN__D8(0), ATTN__D8(8)
#define ATTN__REGS64 ATTN__R0 ", " ATTN__R1 ", " ATTN__R2 ", " ATTN__R3
#define ATTN__ACC64 ATTN__D32(0)
#define ATTN__REGS96 ATTN__REGS64 ", " ATTN__R4 ", " ATTN__R5
#define ATTN__ACC96 ATTN__ACC64, ATTN__D8(32), ATTN__D8(40)
#define ATTN__REGS128 ATTN__REGS96 ", " ATTN__R6 ", " ATTN__R7
#define ATTN__ACC128 ATTN__ACC64, ATTN__D32(32)
#define ATTN__REGS192 ATTN__REGS128 ", " ATTN__R8 ", " ATTN__R9 ", " ATTN__R10 ", " ATTN__R11
#define ATTN__ACC192 ATTN__ACC128, ATTN__D32(64)
#define ATTN__REGS256 ATTN__REGS128 ", " ATTN__R8 ", " ATTN__R9 ", " ATTN__R10 ", " ATTN__R11 ", " ATTN__R12 ", " \
                      ATTN__R13 ", " ATTN__R14 ", " ATTN__R15
#define ATTN__ACC256 ATTN__ACC128, ATTN__D32(64), ATTN__D32(96)

template <int N> struct wgmma_n;
/* o0.. are the numbers of the operands that follow the accumulator */
#define ATTN__WGMMA_SS(N, type, o0, o1, o2, o3, o4) \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " o2 ", 0; " \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" ATTN__REGS##N "}, " \
                 o0 ", " o1 ", p, 1, 1, " o3 ", " o4 "; }" \
                 : ATTN__ACC##N : "l"(a), "l"(b), "r"((int)accumulate), "n"(TransposeA), "n"(TransposeB))
#define ATTN__WGMMA_RS(N, type, o0, o1, o2, o3, o4, o5, o6) \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " o5 ", 0; " \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" ATTN__REGS##N "}, " \
                 "{" o0 ", " o1 ", " o2 ", " o3 "}, " o4 ", p, 1, 1, " o6 "; }" \
                 : ATTN__ACC##N : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)accumulate), \
                   "n"(TransposeB))
#define ATTN__WGMMA(N, o0, o1, o2, o3, o4, o5, o6) \
template <> struct wgmma_n<N> { \
    template <class T, int TransposeA, int TransposeB> \
    ATTN__DEVICE void ss(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate) { \
        if (T::is_bf16) ATTN__WGMMA_SS(N, "bf16", o0, o1, o2, o3, o4); \
        else ATTN__WGMMA_SS(N, "f16", o0, o1, o2, o3, o4); \
    } \
    template <class T, int TransposeB> \
    ATTN__DEVICE void rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate) { \
        if (T::is_bf16) ATTN__WGMMA_RS(N, "bf16", o0, o1, o2, o3, o4, o5, o6); \
        else ATTN__WGMMA_RS(N, "f16", o0, o1, o2, o3, o4, o5, o6); \
    } \
};
ATTN__WGMMA(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
ATTN__WGMMA(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
ATTN__WGMMA(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
ATTN__WGMMA(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
ATTN__WGMMA(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
ATTN__WGMMA(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
template <class T, int N, bool TransposeA, bool TransposeB>
ATTN__DEVICE void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate)
{
    wgmma_n<N>::template ss<T, TransposeA, TransposeB>(d, a, b, accumulate);
}
template <class T, int N, bool TransposeB>
ATTN__DEVICE void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate)
{
    wgmma_n<N>::template rs<T, TransposeB>(d, a, b, accumulate);
}

} /* namespace attn__hw */
#endif /* ATTN_CUDA_HW_HEADER */

/* ------------------------------------------------------------------------------------------------------ >>common
   What all stages share: the parameters of a call, arrays of any type and strides. */
namespace attn__gpu {
namespace hw = attn__hw;

/* One call, as attn.h has resolved it. In a backward call `out` and `stats` are those that the forward left. All
   kernels take this and what their stage adds to it, 4 KB at most. */
struct params : attn__call {
    void    *workspace;                     /* the stage's part of it */
};

/* And what stage 1 needs beyond. The kernels of stages 2 and 3 do not take it: they have tensor maps to take. */
struct tiled_params : params {
    /* What meets in a score: q and k themselves or, in the workspace, what becomes of them: q M for bilinear scores,
       the projections for additive ones. A head's keys are found at key_head(): heads share them unless they are
       projected head by head. size_u is the length of these vectors. */
    attn__array query, key;
    int64_t  size_u, key_heads;
    int64_t  key_page;                      /* rows of a page of `key`; 0: it does not lie in pages */
    attn__array stored_k, stored_k_scale;   /* k as the caller has it, where `k` is floats in the workspace instead */
    float   *query_norm, *key_norm;         /* cosine: 1/|q| [B,H,Sq], 1/|k| [B,Hkv,Sk] */
    float   *covered;                       /* [B,Sk]  1: some query may attend to the key, 0: it must not be read */

    /* backward: per row [B,H,Sq] what its scores are taken relative to, 1/mass (-0: no mass; -1: no mass, and
       ATTN_EMPTY_UNIFORM; +0: packed, and of no entry), what is subtracted from the gradient of a weight, and the row's
       part of some gradients */
    float   *row_base, *row_inverse, *row_shift, *row_scale, *row_sigma, *row_sink, *row_alibi;
    float   *row_vector;                    /* [B,H,Sq,size_u]  bilinear: dL/d(q M); additive: dL/d(W_q q) */
    float   *row_tanh;                      /* [B,H,Sq,h]  dL/dw_v of each row */
    float   *key_vector;                    /* [B,key_heads,Sk,h]  dL/d(W_k k) */
    float   *key_reached;                   /* [B,key_heads,Sk]  1: some row with mass attends to it; -0: none; +0:
                                               packed, and of no entry */
};
static_assert(sizeof(tiled_params) <= 4096, "kernel parameters fit in 4 KB");

/* arch: 75, 80, ..; 0: no device. shared_bytes: the most that one block may have. processors: how many multiprocessors
   there are. encode: makes tensor maps; NULL where the driver has none, or the device. */
struct maps_made;
struct device {
    int arch = 0, shared_bytes = 0, processors = 0;
    int compiled = 0;           /* the newest instructions of this program's kernels that the device takes: 75, 80, 90
                                   (sm_90a); 0: it takes none of them */
    int known = 0;              /* 1 + its number, where nothing of this need be asked again */
    hw::tensor_map_encoder_fn encode = {};
    maps_made *maps = NULL;     /* of one call, so that each is made once; NULL: none is kept */
};

/* Where kernels are launched. A call has the device allow a kernel its shared memory, then launches it. With a plan
   these are apart: PREPARE loads the kernels and has them allowed, once; each RUN launches them. */
struct queue {
    enum action { CALL, PREPARE, RUN } does;
    cudaStream_t stream;
    int device;                 /* its number, of kernels that have to be allowed their memory */
    queue(cudaStream_t to, action what = CALL, int number = 0) : does(what), stream(to), device(number) {}
};
/* What a thread has been allowed: of a kernel and a device always the same. Where another has its place, a kernel takes
   the next one that is free; else two kernels of a call would be allowed their memory in each. */
struct allowance { const void *kernel; int device, bytes; };
static thread_local allowance allowed[64];
static allowance &allowance_of(const void *kernel, int device)
{
    const unsigned first = (unsigned)((uintptr_t)kernel / 16) + (unsigned)device;
    for (unsigned i = 0; i < 64; i++) {
        allowance &a = allowed[(first + i) % 64];
        if (!a.kernel || (a.kernel == kernel && a.device == device)) return a;
    }
    return allowed[first % 64];
}
template <class P>
int launch(void (*kernel)(P), int grid, int threads, size_t shared, const queue &to, const P &p)
{
    cudaFuncAttributes loaded;
    const allowance wanted = {(const void *)kernel, to.device, (int)shared};
    allowance &had = allowance_of(wanted.kernel, to.device);
    const bool large = shared > 48 * 1024 && to.does != queue::RUN;
    const bool asks = large && (to.does == queue::PREPARE || memcmp(&had, &wanted, sizeof wanted) != 0);
    int error = to.does == queue::PREPARE ? (int)cudaFuncGetAttributes(&loaded, wanted.kernel) : 0;
    if (!error && asks) error = (int)cudaFuncSetAttribute(wanted.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                          wanted.bytes);
    if (!error && asks) had = wanted;
    if (!error && to.does != queue::PREPARE)
        error = (int)ATTN__LAUNCH(kernel, grid, threads, shared, to.stream, p);
    if (error && to.does != queue::RUN) cudaGetLastError(); /* it is reported once, here; of a run by nobody else */
    if (error != (int)cudaErrorInvalidValue || asks || !large) return error;
    had = allowance();                                      /* since then the device was reset */
    return launch(kernel, grid, threads, shared, to, p);
}
inline int clear_bytes(void *at, size_t bytes, const queue &to)
{
    const int error = to.does == queue::PREPARE ? 0 : (int)cudaMemsetAsync(at, 0, bytes, to.stream);
    if (error && to.does != queue::RUN) cudaGetLastError();         /* as in launch */
    return error;
}
inline int blocks_for(int64_t tasks) { return (int)(tasks < ATTN_CUDA_MAX_BLOCKS ? tasks : ATTN_CUDA_MAX_BLOCKS); }
/* Kernels whose task is a warp's, of so many in a block */
enum { WARPS = 4 };
template <class P> cudaError_t run(void (*kernel)(P), int64_t tasks, const queue &stream, const P &p)
{
    if (tasks <= 0) return cudaSuccess;
    return (cudaError_t)launch(kernel, blocks_for((tasks + WARPS - 1) / WARPS), 32 * WARPS, 0, stream, p);
}
ATTN__DEVICE int64_t first_task() { return (int64_t)hw::block() * WARPS + hw::warp(); }
ATTN__DEVICE int64_t all_tasks() { return (int64_t)hw::blocks() * WARPS; }

ATTN__DEVICE int64_t key_head(const tiled_params &p, int64_t h) { return h / (p.heads / p.key_heads); }

/* Where all entries of a batch are packed into one, so are the arrays of the workspace: how many they have along their
   first axis, and which of it is an entry's. */
ATTN__BOTH int64_t batch_of_rows(const params &p) { return p.packed_queries ? 1 : p.batch; }
ATTN__BOTH int64_t batch_of_keys(const params &p) { return p.packed_keys ? 1 : p.batch; }
ATTN__DEVICE int64_t row_batch(const params &p, int64_t b) { return p.packed_queries ? 0 : b; }
ATTN__DEVICE int64_t key_batch(const params &p, int64_t b) { return p.packed_keys ? 0 : b; }
ATTN__DEVICE int64_t first_row(const params &p, int64_t b, int64_t h)       /* of a head, among all in the workspace */
{
    return (row_batch(p, b) * p.heads + h) * p.queries;
}
ATTN__DEVICE int64_t first_key(const params &p, int64_t b, int64_t heads, int64_t h)        /* of so many heads */
{
    return (key_batch(p, b) * heads + h) * p.keys;
}

/* ---- numbers */
ATTN__DEVICE uint32_t bits_of(float x) { uint32_t b; memcpy(&b, &x, sizeof b); return b; }
ATTN__DEVICE float float_of(uint32_t b) { float x; memcpy(&x, &b, sizeof x); return x; }
ATTN__DEVICE float infinity() { return float_of(0x7f800000u); }
ATTN__DEVICE bool is_nan(float x) { return (bits_of(x) & 0x7fffffffu) > 0x7f800000u; }
ATTN__DEVICE bool is_none(float x) { return bits_of(x) == 0xff800000u; }              /* -inf: excluded */
ATTN__DEVICE bool is_finite(float x) { return (bits_of(x) & 0x7f800000u) != 0x7f800000u; }
ATTN__DEVICE float quiet(float x) { return is_nan(x) ? float_of(0x7fc00000u) : x; }   /* the one NaN of results */
ATTN__DEVICE float magnitude(float x) { return float_of(bits_of(x) & 0x7fffffffu); }
ATTN__DEVICE int least(int a, int b) { return a < b ? a : b; }
ATTN__DEVICE int most(int a, int b) { return a > b ? a : b; }
ATTN__DEVICE int64_t clamp(int64_t x, int64_t least, int64_t most) { return x < least ? least : x > most ? most : x; }

const float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

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
ATTN__BOTH int64_t place(const attn__array &a, int64_t b, int64_t h, int64_t i, int64_t x)
{
    return b * a.stride[0] + h * a.stride[1] + i * a.stride[2] + x * a.stride[3];
}
ATTN__BOTH attn__array packed(float *data, int64_t h, int64_t i, int64_t x)         /* [.,h,i,x] */
{
    const attn__array a = {data, {h * i * x, i * x, x, 1}, ATTN_F32, 4};
    return a;
}
ATTN__BOTH attn__array rows_of(const params &p, float *data, int64_t x)             /* [B,H,Sq,x] of the workspace */
{
    attn__array a = packed(data, p.heads, p.queries, x);
    if (p.packed_queries) a.stride[0] = 0;
    return a;
}
ATTN__BOTH attn__array keys_of(const params &p, float *data, int64_t h, int64_t x)  /* [B,h,Sk,x] */
{
    attn__array a = packed(data, h, p.keys, x);
    if (p.packed_keys) a.stride[0] = 0;
    return a;
}
ATTN__DEVICE float widened(int32_t type, uint16_t half)
{
    return type == ATTN_BF16 ? hw::from_bf16(half) : hw::from_f16(half);
}
ATTN__DEVICE float load_at(const attn__array &a, int64_t at)
{
    if (a.type == ATTN_F32) return ((const float *)a.data)[at];
    return widened(a.type, ((const uint16_t *)a.data)[at]);
}
ATTN__DEVICE float load(const attn__array &a, int64_t b, int64_t h, int64_t i, int64_t x)
{
    return load_at(a, place(a, b, h, i, x));
}
ATTN__DEVICE int64_t load_integer(const attn__array &a, int64_t b, int64_t i)
{
    const int64_t at = place(a, b, 0, i, 0);
    return a.type == ATTN_I32 ? (int64_t)((const int32_t *)a.data)[at] : ((const int64_t *)a.data)[at];
}
ATTN__DEVICE uint16_t narrowed(int32_t type, float value)
{
    if (type == ATTN_BF16) return is_nan(value) ? 0x7fc0 : hw::to_bf16(value);
    return is_nan(value) ? 0x7e00 : hw::to_f16(value);
}
ATTN__DEVICE void store_at(const attn__array &a, int64_t at, float value)
{
    if (a.type == ATTN_F32) ((float *)a.data)[at] = quiet(value);
    else ((uint16_t *)a.data)[at] = narrowed(a.type, value);
}
ATTN__DEVICE void store(const attn__array &a, int64_t b, int64_t h, int64_t i, int64_t x, float value)
{
    store_at(a, place(a, b, h, i, x), value);
}

/* A gradient: written, or added to what is there. */
ATTN__DEVICE void store_gradient(const params &p, const attn__array &a, uint32_t bit, int64_t b, int64_t h, int64_t i,
                                 int64_t x, float value)
{
    store(a, b, h, i, x, p.accumulate & bit ? load(a, b, h, i, x) + value : value);
}

/* ----------------------------------------------------------------------------------------------------- >>options
   What a call may ask for beside q, k, v and out: which stages have it (ATTN__OPTION_LIST), and what it does to the
   keys that a query may attend to (reach_in), to a score (softcapped, mask_scores), to a weight (kept_of_four). It is
   said once: a stage hands over the pairs of queries and keys that one of its threads has. */

/* ---- which stages have an option. Stage 1 has all; lengths, causal, window, positions, sinks are in every stage. */
enum {
    IN_STAGE_2 = 1, IN_STAGE_3 = 2,
    EXTRA = 4,                  /* there it is the kernels' with Extra */
    ANY_PAIR = 8,               /* it may exclude any pair, so all tiles are edges */
    EACH_HEAD = 16,             /* it has a number for each head, and stage 3 takes one for a tile */
    EACH_PAIR = 32              /* it has a number for each pair; stage 3 has kernels of their own for these */
};

/* X(does a call ask for it, which faster stages have it and its marks, why a stage without it does not run) */
#define ATTN__OPTION_LIST(X) \
    X(p.page && p.key_starts.rank, 0, "keys in pages have starts") \
    X(p.page, IN_STAGE_2 | IN_STAGE_3, "") \
    X(p.is_backward && p.packed_keys && p.key_lengths.rank != 1, 0, \
      "gradients of packed keys with a length for each query") \
    X(has_starts(p) && (p.mask.rank || p.bias.rank), IN_STAGE_2, "bias or mask where entries have starts") \
    X(p.carry_in.rank || p.carry_out.rank || p.key_origin, 0, "keys come in parts") \
    X(!is_16_bit(p.q) && !(ATTN_CUDA_F32 && p.q.type == ATTN_F32), 0, "q, k, v are not all f16 or all bf16") \
    X(!meets_q(p, p.k) || (p.v.rank && !meets_q(p, p.v)), 0, "q, k, v are not of one type") \
    X(p.q.type == ATTN_F32, IN_STAGE_2, "q, k, v are not all f16 or all bf16") \
    X(p.q.type == ATTN_F32 && wants_pairs(p), 0, "weights or scores of f32") \
    X(p.k.type == ATTN_I8, IN_STAGE_2, "keys and values of 8 bits are read as they are") \
    X(are_for_tiles(p), IN_STAGE_2 | EXTRA, "keys or values of 8 bits become numbers tile by tile") \
    X(p.score != ATTN_SCORE_SCALED_DOT && p.score != ATTN_SCORE_DOT, 0, "the score is not a dot product") \
    X(wants_pairs(p) && (p.ragged || p.page), 0, \
      "weights or scores of entries with starts, or over keys in pages") \
    X(p.empty == ATTN_EMPTY_UNIFORM, 0, "empty rows are to be uniform") \
    X(p.mask.rank, IN_STAGE_2 | IN_STAGE_3 | EXTRA | EACH_HEAD | EACH_PAIR | ANY_PAIR, "") \
    X(p.bias.rank, IN_STAGE_2 | IN_STAGE_3 | EXTRA | EACH_HEAD | EACH_PAIR | ANY_PAIR, "") \
    X(p.dropout != 0.0f, IN_STAGE_2 | IN_STAGE_3 | EXTRA | EACH_HEAD | EACH_PAIR, "") \
    X(p.softcap != 0.0f, IN_STAGE_2 | IN_STAGE_3 | EXTRA, "") \
    X(p.alibi.rank, IN_STAGE_2 | IN_STAGE_3 | EXTRA | EACH_HEAD, "") \
    X(!(p.scale > 0.0f), IN_STAGE_2 | IN_STAGE_3 | EXTRA, "") \
    X(p.is_backward && wants_more_gradients(p), 0, \
      "there are d_weights, or more is wanted than dq, dk, dv, d_bias, d_scale, d_sink, d_alibi") \
    X(has_starts(p) && wants_pair_sums(p), 0, "d_bias, d_scale or d_alibi where entries have starts") \
    X(wants_pair_sums(p), IN_STAGE_2 | IN_STAGE_3 | EXTRA, "")

/* A type of k and v: ATTN_I8, of which stage 2 makes numbers tile by tile */
enum { CODES_FOR_TILES = -1 };
ATTN__BOTH bool are_for_tiles(const params &p) { return p.k.type == CODES_FOR_TILES || p.v.type == CODES_FOR_TILES; }
ATTN__BOTH bool has_starts(const params &p) { return p.query_starts.rank || p.key_starts.rank; }
/* Are there results with a number for each pair? (Of a backward they are not.) */
ATTN__BOTH bool wants_pairs(const params &p)
{
    return p.weights.rank || p.scores.rank || p.scores_softcap.rank || p.scores_masked.rank;
}
ATTN__BOTH bool is_16_bit(const attn__array &a) { return a.type == ATTN_F16 || a.type == ATTN_BF16; }
ATTN__BOTH bool meets_q(const params &p, const attn__array &a)      /* codes of 8 bits: see reads_codes */
{
    return a.type == p.q.type || ((a.type == ATTN_I8 || a.type == CODES_FOR_TILES) && is_16_bit(p.q));
}
/* Does a backward want gradients to which every pair of a query and a key adds a term? (A forward's are not set.) */
ATTN__BOTH bool wants_pair_sums(const params &p)
{
    return p.is_backward && (p.d_bias.rank || p.d_scale.rank || p.d_alibi.rank);
}
/* Has a backward more of attn.h's gradients than d_out, d_lse, dq, dk, dv, d_sink and these? */
ATTN__BOTH bool wants_more_gradients(const params &p)
{
    int count = 0;
#define ATTN__X(gradient, shape, axes, flags, owner) count += p.gradient.rank != 0;
    ATTN__GRAD_LIST(ATTN__X)
#undef ATTN__X
    return count > (p.d_out.rank != 0) + (p.d_lse.rank != 0) + (p.dq.rank != 0) + (p.dk.rank != 0) + (p.dv.rank != 0) +
                       (p.d_sink.rank != 0) + (p.d_bias.rank != 0) + (p.d_scale.rank != 0) + (p.d_alibi.rank != 0);
}

/* Does a call ask for an option with one of these marks, and none of the others? */
ATTN__BOTH bool asks(const params &p, int marks, int others = 0)
{
#define ATTN__X(asked, has, why) if (((has) & marks) && !((has) & others) && (asked)) return true;
    ATTN__OPTION_LIST(ATTN__X)
#undef ATTN__X
    return false;
}

/* Does anything but lengths, causal and window shape the scores? */
ATTN__BOTH bool has_extra(const params &p) { return asks(p, EXTRA); }
/* NULL, or what a call asks for and a stage does not have */
inline const char *lacking(const params &p, int stage)
{
#define ATTN__X(asked, has, why) if (!((has) & stage) && (asked)) return why;
    ATTN__OPTION_LIST(ATTN__X)
#undef ATTN__X
    return NULL;
}

/* ---- which keys a query may attend to, as far as lengths, causal and window say: first <= j < last */
struct reach { int64_t position, first, last; };

ATTN__DEVICE int64_t add_clamped(int64_t a, int64_t b)         /* positions may be anything; sums stop at the ends */
{
    if (b > 0 && a > INT64_MAX - b) return INT64_MAX;
    if (b < 0 && a < -INT64_MAX - b) return -INT64_MAX;
    return a + b;
}

/* The rows of the arrays that a batch entry has: from its first one to before its end. A reach is in rows of arrays,
   too; positions, lengths and what dropout counts are an entry's own, from its first query and key on. */
struct entry { int64_t row0, rows_end, key0, keys_end; };

ATTN__DEVICE entry whole_entry(const params &p)
{
    const entry e = {0, p.queries, 0, p.keys};
    return e;
}
ATTN__DEVICE reach reach_in(const params &p, const entry &e, int64_t b, int64_t i)
{
    reach r;
    const int64_t own = i - e.row0, rows = e.rows_end - e.row0, keys = e.keys_end - e.key0;
    int64_t key_length = keys, query_length = rows, end;
    if (p.key_lengths.rank) key_length = clamp(load_integer(p.key_lengths, b, i), 0, keys);
    if (p.query_lengths.rank) query_length = clamp(load_integer(p.query_lengths, b, 0), 0, rows);
    r.position = own;
    if (p.align == ATTN_ALIGN_BOTTOM_RIGHT) r.position = own + key_length - query_length;
    else if (p.align == ATTN_ALIGN_POSITIONS)
        r.position = add_clamped(load_integer(p.positions, b, i), p.positions.rank == 2 ? 0 : own);
    r.position = add_clamped(r.position, -p.key_origin);            /* counted from the call's first key */
    r.first = add_clamped(r.position, -p.left);
    if (r.first < 0) r.first = 0;
    r.last = own >= 0 && own < query_length ? key_length : 0;
    end = p.right == INT64_MAX ? INT64_MAX - 1 : add_clamped(r.position, p.right);
    if (end < r.last) r.last = end < 0 ? 0 : end + 1;
    if (r.first >= r.last) r.first = r.last = 0;
    else r.first += e.key0, r.last += e.key0;
    r.position = add_clamped(r.position, e.key0);
    return r;
}

/* ---- starts and pages. What they hold is not checked, but no row outside of the arrays is read. */
ATTN__DEVICE int64_t first_row_in(const params &p, int64_t b)
{
    return p.query_starts.rank ? clamp(load_integer(p.query_starts, b, 0), 0, p.queries) : 0;
}
ATTN__DEVICE int64_t first_key_in(const params &p, int64_t b)
{
    return p.key_starts.rank ? clamp(load_integer(p.key_starts, b, 0), 0, p.keys) : 0;
}
ATTN__DEVICE entry entry_of(const params &p, int64_t b)
{
    entry e = whole_entry(p);
    if (!p.ragged && !p.page) return e;
    e.row0 = first_row_in(p, b);
    e.key0 = first_key_in(p, b);
    if (p.packed_queries && p.query_lengths.rank)
        e.rows_end = e.row0 + clamp(load_integer(p.query_lengths, b, 0), 0, p.queries - e.row0);
    if (p.page && !p.pool) e.keys_end = e.key0;
    return e;
}

/* The same of many rows of an entry, for row_in: what they have in common is found once, and a row needs few
   instructions of 32 bits. The entry's row i is at `position` + i and may attend to its keys [low + i, high + i), of so
   many that it has. Of its `rows` the first `queries` have keys. per_row: there is a length or a position for each
   query, so that this holds of row `own` alone. */
struct entry_reach {
    int     low, high, keys, queries, rows;
    int64_t position;
    bool    per_row;
};
ATTN__DEVICE entry_reach entry_reach_of(const params &p, const entry &e, int64_t b, int own = 0)
{
    const int64_t far = 1ll << 30;      /* sizes are below: beyond it is so for every row, and sums fit in 32 bits */
    const int keys = (int)(e.keys_end - e.key0);
    const int64_t row = clamp(e.row0 + own, 0, p.queries - 1);         /* an entry may have none */
    entry_reach r;
    r.rows = (int)(e.rows_end - e.row0);
    r.per_row = p.key_lengths.rank == 2 || (p.align == ATTN_ALIGN_POSITIONS && p.positions.rank == 2);
    r.keys = p.key_lengths.rank ? (int)clamp(load_integer(p.key_lengths, b, row), 0, keys) : keys;
    r.queries = p.query_lengths.rank ? (int)clamp(load_integer(p.query_lengths, b, 0), 0, r.rows) : r.rows;
    r.position = p.align == ATTN_ALIGN_BOTTOM_RIGHT ? r.keys - r.queries : 0;
    if (p.align == ATTN_ALIGN_POSITIONS)
        r.position = add_clamped(load_integer(p.positions, b, row), p.positions.rank == 2 ? -own : 0);
    r.low = (int)(p.left == INT64_MAX ? -far : clamp(add_clamped(r.position, -p.left), -far, far));
    r.high = (int)clamp(p.right == INT64_MAX ? far : add_clamped(add_clamped(r.position, p.right), 1), -far, far);
    return r;
}

/* Behind the last key that the entry has: as many as the largest of its lengths, or all to the end */
ATTN__DEVICE int64_t end_of_length(const params &p, const entry &e, int64_t b)     /* of one for all queries */
{
    return e.key0 + clamp(load_integer(p.key_lengths, b, 0), 0, e.keys_end - e.key0);
}
ATTN__DEVICE int64_t keys_end_of(const params &p, const entry &e, int64_t b)
{
    const int64_t most = e.keys_end - e.key0;
    int64_t rows = e.rows_end - e.row0, keys = 0;
    if (!p.key_lengths.rank || !p.ragged) return e.keys_end;
    if (p.key_lengths.rank == 1) return end_of_length(p, e, b);
    if (p.query_lengths.rank) rows = clamp(load_integer(p.query_lengths, b, 0), 0, rows);
    if (!p.key_lengths.stride[2] && rows > 1) rows = 1;         /* all the same */
    for (int64_t i = e.row0; i < e.row0 + rows; i++) {
        const int64_t n = clamp(load_integer(p.key_lengths, b, i), 0, most);
        keys = n > keys ? n : keys;
    }
    return e.key0 + keys;
}

/* Where the rows of a key lie: in a pool, row `row` of page `page`. Of a key that no query may attend to the page table
   is not read. */
struct piece { int64_t page, row; };
ATTN__DEVICE piece piece_of(const params &p, int64_t page, int64_t b, int64_t j, bool reads)
{
    piece at = {key_batch(p, b), j};
    if (!page) return at;
    at.page = reads ? clamp(load_integer(p.page_table, b, j / page), 0, p.pool - 1) : 0;
    at.row = j % page;
    return at;
}

/* An element of k or v, which may be a code of 8 bits with a scale of its row, or of 32 of its numbers */
ATTN__DEVICE float load_stored(const attn__array &a, const attn__array *scale, const piece &at, int64_t h, int64_t x)
{
    const int64_t n = place(a, at.page, h, at.row, x);
    if (!scale) return load_at(a, n);
    return (float)((const int8_t *)a.data)[n] * load(*scale, at.page, h, at.row, scale->stride[3] ? x / 32 : 0);
}

/* ---- what becomes of a score: softcap, then masks, bias and ALiBi. -inf: excluded; nothing is read for such a pair */
ATTN__BOTH bool is_distance(int32_t score)       /* the kernels that look at |q - k| */
{
    return score >= ATTN_SCORE_GAUSSIAN && score <= ATTN_SCORE_TRIANGULAR;
}

/* slope: the derivative of the softcap */
struct softened { float score, slope; };
ATTN__DEVICE softened softcapped(const params &p, float score)
{
    softened s = {score, 1.0f};
    if (p.softcap == 0.0f || ((is_distance(p.score) || p.score == ATTN_SCORE_GIVEN) && is_none(score))) return s;
    s.score = p.softcap * tanhf(score / p.softcap);
    const float y = s.score / p.softcap;
    s.slope = hw::fma(-y, y, 1.0f);
    return s;
}

/* The same of the raw scores of the faster stages, which are scaled, too. A division costs more than tanh, so there is
   one for all pairs. */
ATTN__DEVICE float inverse_softcap(const params &p)
{
    return p.softcap == 0.0f ? 0.0f : fminf(1.0f / p.softcap, 3.4028235e38f);
}
template <int N> ATTN__DEVICE void scale_scores(float (&s)[N], const params &p)
{
    ATTN__UNROLL for (int j = 0; j < N; j++) s[j] *= p.scale;
}
template <int N> ATTN__DEVICE void soften_scores(float (&s)[N], float (&slope)[N], const params &p, float inverse)
{
    ATTN__UNROLL for (int j = 0; j < N; j++) slope[j] = 1.0f;
    if (p.softcap == 0.0f) return;
    ATTN__UNROLL for (int j = 0; j < N; j++) {
        const float t = tanhf(s[j] * inverse);
        s[j] = p.softcap * t;
        slope[j] = 1.0f - t * t;
    }
}
template <int N> ATTN__DEVICE void softcap_scores(float (&s)[N], float (&slope)[N], const params &p, float inverse)
{
    scale_scores(s, p);
    soften_scores(s, slope, p, inverse);
}

ATTN__DEVICE float distance_of(const reach &r, int64_t j)      /* |p - j| */
{
    return (float)(r.position > j ? (uint64_t)r.position - (uint64_t)j : (uint64_t)j - (uint64_t)r.position);
}

/* p - j, rounded, so that differences from it by less than a tile are exact where distances are below 2^24 */
ATTN__DEVICE float signed_distance(int64_t position, int64_t j)
{
    reach r;
    r.position = position;
    return position < j ? -distance_of(r, j) : distance_of(r, j);
}

/* Where the pairs of a thread, one or an accumulator of them (>>mma), lie in an array that has a number for each: the
   first column of its two rows, and from a column to the next. */
struct pair_places { int64_t row[2], step; };
/* All loads are issued before one is used. */
template <class Stored, int N, class F>
ATTN__DEVICE void load_pairs(float (&b)[N], const float (&s)[N], const attn__array &a, const pair_places &at, F widened)
{
    constexpr int two = N > 1 ? 2 : 1;
    ATTN__UNROLL for (int e = 0; e < two; e++) {
        const Stored *from = (const Stored *)a.data + at.row[e];
        ATTN__UNROLL for (int j = 2 * e; j < N; j += 4, from += 8 * at.step)
            ATTN__UNROLL for (int x = 0; x < two; x++) b[j + x] = is_none(s[j + x]) ? 0.0f : widened(from[x * at.step]);
    }
}
template <int N>
ATTN__DEVICE void load_numbers(float (&b)[N], const float (&s)[N], const attn__array &a, const pair_places &at,
                               bool is_mask)
{
    if (is_mask) load_pairs<uint8_t>(b, s, a, at, [](uint8_t m) { return m ? 0.0f : -infinity(); });
    else if (a.type == ATTN_F32) load_pairs<float>(b, s, a, at, [](float x) { return x; });
    else if (a.type == ATTN_BF16) load_pairs<uint16_t>(b, s, a, at, hw::from_bf16);
    else load_pairs<uint16_t>(b, s, a, at, hw::from_f16);
}

/* The same in two steps, so that products run while the numbers come: as they are stored, two of a row in one, each in
   32 bits, so that none is waited for; then as floats. in: a bit for each of a thread's columns (see columns_below), in
   each of its rows; what has none is not read. */
template <class Stored, int N>
ATTN__DEVICE void read_pairs(uint64_t (&to)[N], const attn__array &a, const pair_places &at, const uint32_t (&in)[2])
{
    static_assert(N <= 32, "a bit for each of 2 * N / 2 columns");
    const Stored *const from[2] = {(const Stored *)a.data + at.row[0], (const Stored *)a.data + at.row[1]};
    ATTN__UNROLL for (int n = 0; n < N; n++) {
        const Stored *const first = from[n % 2] + n / 2 * 8 * at.step;
        const uint32_t exist = in[n % 2] >> n / 2 * 2;
        to[n] = exist & 1 ? first[0] : 0;
        to[n] |= (uint64_t)(exist & 2 ? first[at.step] : 0) << 32;
    }
}
template <int N>
ATTN__DEVICE void read_floats(uint64_t (&to)[N], const attn__array &a, const pair_places &at, const uint32_t (&in)[2])
{
    if (a.type == ATTN_F32) read_pairs<uint32_t>(to, a, at, in);
    else read_pairs<uint16_t>(to, a, at, in);
}
/* in 16 bits they are of type T. Both are found and one is taken, so that no branch comes between. */
template <class T> ATTN__DEVICE void widen_pair(float *b, uint64_t two, bool is_f32)
{
    ATTN__UNROLL for (int x = 0; x < 2; x++) {
        const uint32_t number = (uint32_t)(two >> 32 * x);
        const float of_half = T::is_bf16 ? hw::from_bf16((uint16_t)number) : hw::from_f16((uint16_t)number);
        b[x] = is_f32 ? float_of(number) : of_half;
    }
}

/* What becomes of a score at a distance of p - j, with any sign; slope: of its head */
ATTN__DEVICE void add_alibi(float &score, float slope, float distance)
{
    if (!is_none(score)) score = hw::fma(-slope, magnitude(distance), score);
}

/* Scores behind the softcap. exclude(): what reaches exclude. Arrays: there may be numbers for each pair; read(b, a,
   is_mask): those of such an array, of a mask 0 or -inf. add_distances(): add_alibi for each, if there is ALiBi. */
template <bool Arrays, int N, class Exclude, class Read, class Distances>
ATTN__DEVICE void mask_scores(float (&s)[N], const params &p, Exclude exclude, Read read, Distances add_distances)
{
    float b[N];
    exclude();
    if (Arrays && p.mask.rank) {
        read(b, p.mask, true);
        ATTN__UNROLL for (int j = 0; j < N; j++) s[j] = is_none(b[j]) ? b[j] : s[j];
    }
    if (Arrays && p.bias.rank) {
        read(b, p.bias, false);
        ATTN__UNROLL for (int j = 0; j < N; j++) s[j] = is_none(b[j]) ? b[j] : s[j] + b[j];     /* not NaN of +inf */
    }
    add_distances();
}

/* With Extra: raw scores as they reach the softmax. */
template <bool Arrays, int N, class Exclude, class Read, class Distances>
ATTN__DEVICE void shape_scores(float (&s)[N], float (&slope)[N], const params &p, float inverse, Exclude exclude,
                               Read read, Distances add_distances)
{
    softcap_scores(s, slope, p, inverse);
    mask_scores<Arrays>(s, p, exclude, read, add_distances);
}

/* Of one pair, in reach; add_distance(score) */
template <class F>
ATTN__DEVICE float mask_pair(const params &p, int64_t b, int64_t h, int64_t i, int64_t j, float score, F add_distance)
{
    float s[1] = {score};
    const auto read = [&](float (&x)[1], const attn__array &a, bool is_mask) {
        const pair_places at = {{place(a, b, h, i, j), 0}, 0};
        load_numbers(x, s, a, at, is_mask);
    };
    mask_scores<true>(s, p, [] {}, read, [&] { add_distance(s[0]); });
    return s[0];
}
ATTN__DEVICE float mask(const params &p, const reach &r, int64_t b, int64_t h, int64_t i, int64_t j, float score)
{
    if (j < r.first || j >= r.last || is_none(score)) return -infinity();
    return mask_pair(p, b, h, i, j, score, [&](float &s) {
        if (p.alibi.rank) add_alibi(s, load(p.alibi, 0, h, 0, 0), distance_of(r, j));
    });
}
/* Do mask and bias let a pair in reach be? */
ATTN__DEVICE bool is_let(const params &p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return !is_none(mask_pair(p, b, h, i, j, 0.0f, [](float) {}));
}

/* ---- dropout: Philox4x32-10, the counter (j/4, i, h, b), so that a weight's fate depends on nothing else. Which of
   four neighbouring columns are kept, those of one counter: a bit each. Unrolled: faster, where registers suffice. */
template <bool Unrolled = false>
ATTN__DEVICE uint32_t kept_of_four(const params &p, int64_t b, int64_t h, int64_t i, uint32_t four)
{
    uint32_t x[4] = {four, (uint32_t)i + p.origin[2], (uint32_t)h + p.origin[1], (uint32_t)b + p.origin[0]};
    uint32_t key0 = (uint32_t)p.seed, key1 = (uint32_t)(p.seed >> 32);
    const auto one_round = [&] {
        const uint32_t left = 0xD2511F53u, right = 0xCD9E8D57u;
        const uint32_t high[2] = {hw::multiply_high(right, x[2]) ^ x[1], hw::multiply_high(left, x[0]) ^ x[3]};
        x[1] = right * x[2];
        x[3] = left * x[0];
        x[0] = high[0] ^ key0;
        x[2] = high[1] ^ key1;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    };
    if constexpr (Unrolled) {
        ATTN__UNROLL for (int round = 0; round < 10; round++) one_round();
    } else {
        ATTN__LOOP for (int round = 0; round < 10; round++) one_round();
    }
    const uint32_t last = (uint32_t)(p.drop_below - 1);         /* of the dropped: in 32 bits, for 2^32, too */
    const uint32_t kept = (x[0] > last ? 1u : 0u) | (x[1] > last ? 2u : 0u) | (x[2] > last ? 4u : 0u) |
                          (x[3] > last ? 8u : 0u);
    return p.drop_below ? kept : 15u;
}
ATTN__DEVICE bool is_kept(const params &p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const uint32_t column = (uint32_t)j + p.origin[3];
    return kept_of_four(p, b, h, i, column / 4u) >> column % 4u & 1;
}

/* What dropout multiplies a weight by. */
ATTN__DEVICE float keep_factor(const params &p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return p.dropout == 0.0f ? 1.0f : is_kept(p, b, h, i, j) ? p.keep_scale : 0.0f;
}

/* Which keys from key0 on, 64 at most, are kept of some rows: a bit each. Four that have a counter in common are one
   thread's of `threads`: the others' bits are 0. What rows of one head have in common in the first rounds, 3 of 20
   products, the compiler computes once. */
template <int Keys, bool Unrolled, int Rows>
ATTN__DEVICE void kept_keys(uint64_t (&kept)[Rows], const params &p, int b, const int (&h)[Rows], const int (&i)[Rows],
                            int key0, int thread, int threads)
{
    const uint32_t column = (uint32_t)key0 + p.origin[3], before = column % 4u;
    ATTN__UNROLL for (int e = 0; e < Rows; e++) kept[e] = 0;
    ATTN__LOOP for (uint32_t n = (uint32_t)thread; 4 * n < Keys + before; n += (uint32_t)threads)
        ATTN__UNROLL for (int e = 0; e < Rows; e++) {
            const uint64_t four = kept_of_four<Unrolled>(p, b, h[e], i[e], (column + 4 * n) / 4u);
            kept[e] |= n == 0 ? four >> before : four << (4 * n - before);
        }
}

/* -------------------------------------------------------------------------------------------------------- >>rows
   What a row is: its scores, its mass, what is saved of it for the gradients. And what comes before and after the pairs
   of queries and keys: norms, products with parameters; the pieces of attention. A task of the kernels here is a
   warp's: an element or 32 of them, a key, a row. */

/* ---- products and sums: projections, the pieces, gradients of parameters
   as attn.h has them, but y stands for batch[1]/out_batch[1] heads, and b may be absent: ones. */
struct product : attn__matmul {
    attn__array row_flag, depth_flag;   /* (b,h,r), (b,h,k): 0 = not read, counts as 0. Absent: all are read */
    int64_t a_shares;                   /* so many heads share one of a */
    int32_t by_warp;                    /* a warp per element, its lanes along k; else a lane per element */
    int32_t partial;                    /* rows whose flag is +0 are not written */
};

ATTN__DEVICE bool is_flagged(const attn__array &flag, int64_t b, int64_t h, int64_t i)
{
    return !flag.rank || !(load(flag, b, h, i, 0) <= 0.0f);             /* a NaN is a flag */
}

/* Is all of a column of a zero? Then what it would meet does not count where that is not finite. */
ATTN__DEVICE bool is_skipped(const product &m, int64_t b, int64_t h, int64_t k)
{
    for (int64_t r = 0; r < m.rows; r++)
        if (load(m.a, b, h / m.a_shares, r, k) != 0.0f) return false;
    return true;
}

/* An element's sum of every `step`-th term from `start` on, over the heads and batch entries that it is a sum of */
ATTN__DEVICE float sum_of_terms(const product &m, int64_t x, int64_t y, int64_t r, int64_t c, int64_t start,
                                int64_t step)
{
    const int64_t group = m.batch[1] / m.out_batch[1], end = m.out_batch[0] == 1 ? m.batch[0] : x + 1;
    chains sum = no_terms();
    for (int64_t b = m.out_batch[0] == 1 ? 0 : x; b < end; b++)
        for (int64_t h = y * group; h < (y + 1) * group; h++) {
            if (!is_flagged(m.row_flag, b, h, r)) continue;
            for (int64_t k = start; k < m.depth; k += step) {
                float right = 1.0f;
                if (!is_flagged(m.depth_flag, b, h, k)) continue;
                if (m.b.rank) right = load(m.b, b, h / m.b_shares, k, c);
                if (m.skip && !(magnitude(right) < infinity()) && is_skipped(m, b, h, k)) continue;
                add(sum, load(m.a, b, h / m.a_shares, r, k), right);
            }
        }
    return total(sum);
}
/* What a sum becomes before it is stored */
ATTN__DEVICE float result_of_sum(const product &m, int64_t x, int64_t y, int64_t r, int64_t c, float sum)
{
    float value = sum * m.scale;
    if (m.bias.rank) value += load(m.bias, 0, 0, 0, c);
    return m.adds ? value + load(m.out, x, y, r, c) : value;
}
ATTN__DEVICE void store_product(const product &m, int64_t x, int64_t y, int64_t r, int64_t c, float sum)
{
    if (m.partial && bits_of(load(m.row_flag, x, y * (m.batch[1] / m.out_batch[1]), r, 0)) == 0) return;
    store(m.out, x, y, r, c, result_of_sum(m, x, y, r, c, sum));
}

ATTN__KERNEL(32 * WARPS, 1) void multiply(ATTN__PARAM product m)
{
    const int64_t lanes = m.by_warp ? 32 : 1, elements = m.out_batch[0] * m.out_batch[1] * m.rows * m.columns;
    for (int64_t task = first_task() * (32 / lanes); task < elements; task += all_tasks() * (32 / lanes)) {
        const int64_t element = task + (m.by_warp ? 0 : hw::lane()), c = element % m.columns;
        const int64_t r = element / m.columns % m.rows, batch = element / m.columns / m.rows;
        const int64_t y = batch % m.out_batch[1], x = batch / m.out_batch[1];
        float value = 0.0f;
        if (element < elements) value = sum_of_terms(m, x, y, r, c, m.by_warp ? hw::lane() : 0, lanes);
        if (m.by_warp) value = warp_sum(value);
        if (element < elements && (!m.by_warp || hw::lane() == 0)) store_product(m, x, y, r, c, value);
    }
}

/* ---- what is prepared */

/* Which keys may some query attend to? All, where scores of all keys are results. */
ATTN__KERNEL(32 * WARPS, 1) void cover_keys(ATTN__PARAM tiled_params p)
{
    const int64_t keys = batch_of_keys(p) * p.keys;
    for (int64_t n = first_task(); n < keys; n += all_tasks()) {
        const int64_t j = n % p.keys, b0 = n / p.keys, end = p.packed_keys ? p.batch : b0 + 1;
        bool covered = false;
        for (int64_t b = b0; b < end; b++) {
            const entry e = entry_of(p, b);
            if (p.scores.rank || p.scores_softcap.rank)
                covered = covered || (e.key0 <= j && j < keys_end_of(p, e, b));
            for (int64_t i0 = e.row0; i0 < e.rows_end; i0 += 32) {
                const int64_t i = i0 + hw::lane();
                reach r;
                r.first = r.last = 0;
                if (i < e.rows_end) r = reach_in(p, e, b, i);
                covered = covered || (r.first <= j && j < r.last);
            }
        }
        const bool any = hw::ballot(covered) != 0;
        if (hw::lane() == 0) p.covered[n] = any ? 1.0f : 0.0f;
    }
}

/* k or v as rows of numbers side by side, in the workspace: before what does not read them piece by piece. */
struct unpacking { tiled_params p; attn__array from, scale, to; int64_t columns; };
ATTN__KERNEL(32 * WARPS, 1) void unpack(ATTN__PARAM unpacking m)
{
    const tiled_params &p = m.p;
    const int64_t rows = batch_of_keys(p) * p.heads_kv * p.keys;
    for (int64_t n = first_task(); n < rows; n += all_tasks()) {
        const int64_t j = n % p.keys, h = n / p.keys % p.heads_kv, b = n / p.keys / p.heads_kv;
        if (p.covered && p.covered[b * p.keys + j] == 0.0f) continue;
        const piece at = piece_of(p, p.page, b, j, true);
        for (int64_t c = hw::lane(); c < m.columns; c += 32)
            store(m.to, b, h, j, c, load_stored(m.from, m.scale.rank ? &m.scale : NULL, at, h, c));
    }
}

/* 1/|x|, without overflow or underflow on the way; 0 for the zero vector */
ATTN__DEVICE float inverse_norm(const attn__array &a, int64_t b, int64_t h, int64_t i, int64_t size)
{
    chains sum = no_terms();
    float largest = 0.0f;
    for (int64_t c = 0; c < size; c++) {
        const float x = magnitude(load(a, b, h, i, c));
        if (!(x < infinity())) return x - x;                    /* NaN */
        largest = x > largest ? x : largest;
    }
    uint32_t exponent = bits_of(largest) >> 23;
    if (exponent == 0) return 0.0f;                             /* zero, or so small that 1/|x| is no float */
    exponent = exponent > 252 ? 252 : exponent;
    const float scale = float_of((254u - exponent) << 23);      /* largest * scale is in [1,2), or near it */
    for (int64_t c = 0; c < size; c++) {
        const float x = load(a, b, h, i, c) * scale;
        add(sum, x, x);
    }
    return scale / sqrtf(total(sum));
}

ATTN__KERNEL(32 * WARPS, 1) void find_norms(ATTN__PARAM tiled_params p)
{
    const int64_t q = batch_of_rows(p) * p.heads * p.queries, all = q + batch_of_keys(p) * p.heads_kv * p.keys;
    for (int64_t n = first_task() * 32 + hw::lane(); n < all; n += all_tasks() * 32) {
        if (n < q) {
            const int64_t i = n % p.queries, h = n / p.queries % p.heads, b = n / p.queries / p.heads;
            p.query_norm[n] = inverse_norm(p.q, b, h, i, p.size_q);
        } else {
            const int64_t k = n - q, j = k % p.keys, h = k / p.keys % p.heads_kv, b = k / p.keys / p.heads_kv;
            p.key_norm[k] = p.covered[b * p.keys + j] != 0.0f ? inverse_norm(p.k, b, h, j, p.size_k) : 0.0f;
        }
    }
}

/* ---- a row and its scores */
struct row {
    int64_t b, h, hkv, i;
    int64_t n;                  /* among all rows [B,H,Sq] */
    int64_t row0, key0;         /* of its batch entry */
    reach   r;
    float   width;              /* distance kernels: sigma^2 */
};

/* qk: what a raw score is made from: q.k, |q - k|^2, the cosine, the sum over tanh or the given score */
ATTN__DEVICE float score_of(const params &p, const row &w, float qk)
{
    float u2, weight;
    if (p.score == ATTN_SCORE_CONSTANT) return 0.0f;
    if (p.score == ATTN_SCORE_GAUSSIAN) return qk * (-0.5f / w.width);
    if (p.score == ATTN_SCORE_GIVEN && is_none(qk)) return qk;          /* excluded, whatever scale and softcap are */
    if (p.score == ATTN_SCORE_GIVEN && p.softcap != 0.0f && is_none(p.scale * qk)) return -3.40282347e38f;
    if (!is_distance(p.score)) return p.scale * qk;
    u2 = qk / w.width;
    if (p.score == ATTN_SCORE_BOXCAR) weight = 1.0f;
    else weight = 1.0f - (p.score == ATTN_SCORE_TRIANGULAR ? sqrtf(u2) : u2);
    return u2 <= 1.0f ? logf(weight) : is_nan(u2) ? u2 : -infinity();
}

/* ---- the mass of a row: its maximum and the sum of e^(score - maximum) */
struct mass { float top, sum; };

ATTN__DEVICE float larger(float a, float b) { return b <= a ? a : b; }
ATTN__DEVICE float weight_of(float score, float base, float inverse)
{
    const float w = expf(score - base) * inverse;
    return w < 1.17549435e-38f ? 0.0f : w;
}

/* What turns a score into a weight, e^(score - base) * inverse; the sink is in it. */
struct norm {
    float base, inverse, lse;
    float sink;                 /* the sink's own weight */
    bool  empty;                /* no mass at all */
};
ATTN__DEVICE norm norm_of(const params &p, const row &w, mass m)
{
    norm n;
    float share = 1.0f;
    n.base = is_none(m.top) ? 0.0f : m.top;
    n.sink = 0.0f;
    if (p.sink.rank && !is_none(load(p.sink, 0, w.h, 0, 0))) {
        const float sink = load(p.sink, 0, w.h, 0, 0), top = larger(m.top, sink), own = expf(sink - top);
        share = expf(m.top - top);
        m.sum = hw::fma(m.sum, share, own);
        m.top = top;
        n.sink = own / m.sum;
    }
    n.empty = m.sum == 0.0f;
    n.inverse = n.empty ? 0.0f : share / m.sum;
    n.lse = n.empty ? -infinity() : m.top + logf(m.sum);
    return n;
}

/* ---- the backward
   What is saved of a row: base and inverse as in norm_of, and shift, which is subtracted from the gradient of a weight:
   the row's sum of weight times gradient, less the gradient of its lse. */
struct saved { float base, inverse, shift; };

ATTN__DEVICE bool has_mass(float inverse) { return !(inverse <= 0.0f); }       /* NaN is mass too */

/* What one query and one key leave to the gradients. */
struct slope {
    bool  counts;               /* not excluded */
    float weight;               /* after dropout */
    float masked, raw;          /* dL/d(masked score), dL/d(raw score) */
    float qk;                   /* as score_of takes it */
};
ATTN__DEVICE slope no_slope()
{
    slope s;
    s.counts = false;
    s.weight = s.masked = s.raw = s.qk = 0.0f;
    return s;
}

/* qk: as score_of takes it; by_out: the gradient of the output times the value */
ATTN__DEVICE slope slope_from(const params &p, const row &w, saved of, int64_t j, float qk, float by_out)
{
    slope s = no_slope();
    float score, keep, d_weight = 0.0f;
    s.qk = qk;
    const softened soft = softcapped(p, score_of(p, w, qk));
    score = mask(p, w.r, w.b, w.h, w.i, j, soft.score);
    if (is_none(score)) return s;
    s.counts = true;
    s.weight = weight_of(score, of.base, of.inverse);
    keep = keep_factor(p, w.b, w.h, w.i - w.row0, j - w.key0);
    if (p.d_out.rank) d_weight = by_out * keep;
    if (p.d_weights.rank) d_weight += load(p.d_weights, w.b, w.h, w.i, j) * (p.weights_after_dropout ? keep : 1.0f);
    s.masked = s.weight * (d_weight - of.shift);
    s.raw = s.masked * soft.slope;
    s.weight = keep == 0.0f ? 0.0f : s.weight * keep;        /* dropped: 0, were it NaN */
    return s;
}

/* Distance kernels: dL/d(raw score) as the factor of key - query in the query's gradient. */
ATTN__DEVICE float pull_of(const params &p, const row &w, const slope &s)
{
    if (p.score == ATTN_SCORE_GAUSSIAN) return s.raw / w.width;
    if (p.score == ATTN_SCORE_EPANECHNIKOV) return 2.0f * s.raw / (w.width * (1.0f - s.qk / w.width));
    const float u = sqrtf(s.qk / w.width);
    return p.score == ATTN_SCORE_BOXCAR || u == 0.0f ? 0.0f : s.raw / (w.width * (u * (1.0f - u)));
}
ATTN__BOTH bool has_vectors(int32_t score)       /* whose gradient goes on to queries and keys */
{
    return score != ATTN_SCORE_BOXCAR && score != ATTN_SCORE_CONSTANT && score != ATTN_SCORE_GIVEN;
}

/* delta: the row's sum of weight times gradient */
ATTN__DEVICE void save_row(const tiled_params &p, const row &w, norm of, float delta)
{
    const float lse = p.d_lse.rank && !of.empty ? load(p.d_lse, w.b, w.h, w.i, 0) : 0.0f;
    p.row_base[w.n] = of.base;
    p.row_inverse[w.n] = has_mass(of.inverse) ? of.inverse : of.empty && p.empty == ATTN_EMPTY_UNIFORM ? -1.0f : -0.0f;
    p.row_shift[w.n] = delta - lse;
    p.row_sink[w.n] = of.sink == 0.0f ? 0.0f : of.sink * (lse - delta);
}
ATTN__DEVICE saved saved_of(const tiled_params &p, const row &w)
{
    saved s;
    s.base = p.row_base[w.n];
    s.inverse = p.row_inverse[w.n];
    s.shift = p.row_shift[w.n];
    return s;
}

ATTN__BOTH bool wants_of_rows(const params &p)   /* more of a row than that */
{
    return (p.dq.rank && has_vectors(p.score)) || p.d_bilinear.rank || p.d_w_q.rank || p.d_w_v.rank ||
           p.d_hidden_bias.rank || p.d_given_scores.rank || p.d_scale.rank || p.d_sigma.rank || p.d_alibi.rank;
}

/* ---- the pieces: masks as data, two attentions into one */
struct marking { params p; attn__array out; int64_t batch; int32_t dropout; };  /* out: u8; batch: of the picture */
/* May query i attend to key j? With starts a picture of one batch entry shows all of them. */
ATTN__DEVICE bool is_marked(const params &p, int64_t pictures, int64_t picture, int64_t h, int64_t i, int64_t j)
{
    const int64_t end = pictures == 1 ? p.batch : picture + 1;
    for (int64_t b = picture; b < end; b++) {
        const entry e = entry_of(p, b);
        if (i < e.row0 || i >= e.rows_end || j < e.key0 || j >= keys_end_of(p, e, b)) continue;
        return !is_none(mask(p, reach_in(p, e, b, i), b, h, i, j, 0.0f));
    }
    return false;
}

ATTN__KERNEL(32 * WARPS, 1) void mark(ATTN__PARAM marking m)
{
    const params &p = m.p;
    const int64_t elements = m.batch * p.heads * p.queries * p.keys;
    for (int64_t n = first_task() * 32 + hw::lane(); n < elements; n += all_tasks() * 32) {
        const int64_t j = n % p.keys, i = n / p.keys % p.queries, h = n / p.keys / p.queries % p.heads;
        const int64_t b = n / p.keys / p.queries / p.heads;
        const bool on = m.dropout ? is_kept(p, b, h, i, j) : is_marked(p, m.batch, b, h, i, j);
        ((uint8_t *)m.out.data)[place(m.out, b, h, i, j)] = on;
    }
}

struct merging { attn__array out_a, lse_a, out_b, lse_b, out, lse; int64_t batch, heads, queries, size; };
ATTN__KERNEL(32 * WARPS, 1) void merge(ATTN__PARAM merging m)
{
    const int64_t rows = m.batch * m.heads * m.queries;
    for (int64_t n = first_task(); n < rows; n += all_tasks()) {
        const int64_t i = n % m.queries, h = n / m.queries % m.heads, b = n / m.queries / m.heads;
        const float a = load(m.lse_a, b, h, i, 0), c = load(m.lse_b, b, h, i, 0), top = larger(a, c);
        const float base = is_none(top) ? 0.0f : top, by_a = expf(a - base), by_b = expf(c - base), sum = by_a + by_b;
        for (int64_t x = hw::lane(); x < m.size; x += 32) {        /* a part without mass contributes nothing, no NaN */
            float both = 0.0f;
            if (!is_none(a)) both = load(m.out_a, b, h, i, x) * by_a;
            if (!is_none(c)) both = hw::fma(load(m.out_b, b, h, i, x), by_b, both);
            store(m.out, b, h, i, x, sum == 0.0f ? 0.0f : both / sum);
        }
        if (m.lse.rank && hw::lane() == 0) store(m.lse, b, h, i, 0, sum == 0.0f ? -infinity() : top + logf(sum));
    }
}

/* ------------------------------------------------------------------------------------------------------- >>cache
   What stands around attention where a cache lives on the device: conversion, codes of 8 bits, new rows of a cache,
   rotary positions. All of it moves memory and computes little. A warp moves rows, some lanes one of them: a lane has a
   piece of it, eight neighbours, in each of four passes, all of which are loaded before one is used. The bits are those
   of attn.h. */
enum { PIECE = 8, PASSES = 4 };
/* How rows are read. WHOLE_: they are whole pieces, wide where they are read and where they are written (is_wide), of
   numbers of 16 bits or 32. The compiler then knows it: halves take half of the registers, so that more warps wait for
   memory at once. ANY_ROWS: as it comes. */
enum { ANY_ROWS, WHOLE_HALVES, WHOLE_FLOATS };

/* A piece as it is stored: floats, or halves, the first one low. */
struct words { uint32_t word[2][4]; };
template <int Rows> ATTN__DEVICE bool has_floats(int32_t type)
{
    return Rows == ANY_ROWS ? type == ATTN_F32 : Rows == WHOLE_FLOATS;
}
/* `count` elements from `at` on; the others are 0. wide: whole pieces lie side by side, aligned to 16 bytes. */
template <int Rows> ATTN__DEVICE void load_words(words &s, const attn__array &a, int64_t at, int count, bool wide)
{
    const bool whole = (Rows != ANY_ROWS || wide) && count == PIECE, floats = has_floats<Rows>(a.type);
    ATTN__UNROLL for (int j = 0; j < 8; j++) s.word[j / 4][j % 4] = 0;
    if (whole && floats) {
        hw::load_global(s.word[0], (const float *)a.data + at);
        hw::load_global(s.word[1], (const float *)a.data + at + 4);
    } else if (whole) {
        hw::load_global(s.word[0], (const uint16_t *)a.data + at);
    } else if (Rows != ANY_ROWS) {
        return;
    } else if (floats) {
        ATTN__UNROLL for (int j = 0; j < PIECE; j++)
            if (j < count) s.word[j / 4][j % 4] = ((const uint32_t *)a.data)[at + j * a.stride[3]];
    } else {
        ATTN__UNROLL for (int j = 0; j < PIECE; j++)
            if (j < count)
                s.word[0][j / 2] |= (uint32_t)((const uint16_t *)a.data)[at + j * a.stride[3]] << 16 * (j % 2);
    }
}
template <int Rows> ATTN__DEVICE void numbers_of(float (&x)[PIECE], const words &s, int32_t type)
{
    if (has_floats<Rows>(type))
        ATTN__UNROLL for (int j = 0; j < PIECE; j++) x[j] = float_of(s.word[j / 4][j % 4]);
    else if (type == ATTN_BF16)
        ATTN__UNROLL for (int j = 0; j < PIECE; j++) x[j] = hw::from_bf16((uint16_t)(s.word[0][j / 2] >> 16 * (j % 2)));
    else
        ATTN__UNROLL for (int j = 0; j < PIECE; j++) x[j] = hw::from_f16((uint16_t)(s.word[0][j / 2] >> 16 * (j % 2)));
}
/* Is one of them a NaN? Its exponent is full and its fraction is not 0, so that adding what a full exponent and no
   fraction lack, less 1, carries into the sign. */
template <int Rows> ATTN__DEVICE bool has_nan(const words &s, int32_t type)
{
    const bool floats = has_floats<Rows>(type);
    const uint32_t size = floats ? 0x7fffffffu : 0x7fff7fffu;
    const uint32_t more = floats ? 0x7fffffu : type == ATTN_BF16 ? 0x7f007fu : 0x3ff03ffu;
    uint32_t found = 0;
    ATTN__UNROLL for (int j = 0; j < 4; j++) found |= (s.word[0][j] & size) + more;
    if (floats)
        ATTN__UNROLL for (int j = 0; j < 4; j++) found |= (s.word[1][j] & size) + more;
    return (found & ~size) != 0;
}
/* Two numbers become halves. Where there is an instruction for both, a NaN is any. */
template <class T> ATTN__DEVICE uint32_t halves_of(int32_t type, float low, float high)
{
#if ATTN__HAVE_MMA
    (void)type;
    return hw::pack<T>(low, high);
#else
    return narrowed(type, low) | (uint32_t)narrowed(type, high) << 16;
#endif
}
ATTN__DEVICE words words_of(const float (&x)[PIECE], int32_t type)
{
    words s;
    ATTN__UNROLL for (int j = 0; j < 8; j++) s.word[j / 4][j % 4] = 0;
    if (type == ATTN_F32) {
        ATTN__UNROLL for (int j = 0; j < 8; j++) s.word[j / 4][j % 4] = bits_of(quiet(x[j]));
        return s;
    }
    if (type == ATTN_BF16)
        ATTN__UNROLL for (int j = 0; j < 4; j++) s.word[0][j] = halves_of<hw::bf16>(type, x[2 * j], x[2 * j + 1]);
    else
        ATTN__UNROLL for (int j = 0; j < 4; j++) s.word[0][j] = halves_of<hw::f16>(type, x[2 * j], x[2 * j + 1]);
    if (has_nan<WHOLE_HALVES>(s, type))
        ATTN__UNROLL for (int j = 0; j < 4; j++)
            s.word[0][j] = narrowed(type, x[2 * j]) | (uint32_t)narrowed(type, x[2 * j + 1]) << 16;
    return s;
}
template <int Rows>
ATTN__DEVICE void store_words(const attn__array &a, int64_t at, int count, bool wide, const words &s)
{
    const bool whole = (Rows != ANY_ROWS || wide) && count == PIECE;
    if (whole && a.type == ATTN_F32) {
        hw::store_global((float *)a.data + at, s.word[0]);
        hw::store_global((float *)a.data + at + 4, s.word[1]);
    } else if (whole) {
        hw::store_global((uint16_t *)a.data + at, s.word[0]);
    } else if (Rows != ANY_ROWS) {
        return;
    } else if (a.type == ATTN_F32) {
        ATTN__UNROLL for (int j = 0; j < PIECE; j++)
            if (j < count) ((uint32_t *)a.data)[at + j * a.stride[3]] = s.word[j / 4][j % 4];
    } else {
        ATTN__UNROLL for (int j = 0; j < PIECE; j++)
            if (j < count)
                ((uint16_t *)a.data)[at + j * a.stride[3]] = (uint16_t)(s.word[0][j / 2] >> 16 * (j % 2));
    }
}
/* a / b, of numbers that are not negative; nearly always they have 32 bits, which take a fifth of the instructions */
ATTN__DEVICE int64_t quotient(int64_t a, int64_t b)
{
    return ((uint64_t)a | (uint64_t)b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* ---- rows from one array to another: numbers become numbers, or codes and scales */
struct storing {
    attn__array from, to, scale;
    /* Of a cache: row i of entry b goes behind those that the entry holds. lengths.rank 0: row i becomes row i. */
    attn__array lengths, query_lengths, query_starts, key_starts, page_table;
    int64_t batch, heads, rows, columns;        /* of `from`; packed, batch is the number of entries */
    int64_t room;                               /* rows that an entry may have in `to` */
    int64_t page, pool;                         /* rows of a page, pages; 0: `to` does not lie in pages */
    int64_t pieces, parts;                      /* of a row; parts_of_row */
    int32_t packed_from, packed_to;             /* all entries one after the other */
    int32_t from_wide, to_wide;                 /* see load_words */
    int32_t lanes, lane_bits;                   /* so many lanes share a row: 2^lane_bits */
    int32_t by_row;                             /* a scale is of a whole row, else of 32 of its numbers */
};
/* What a task is: so many rows, and where lanes have more pieces than in their passes a part of one. */
ATTN__BOTH int64_t pieces_of_task(const storing &m) { return (int64_t)PASSES * m.lanes; }
inline int64_t parts_of_row(const storing &m)
{
    return m.by_row ? 1 : (m.pieces + pieces_of_task(m) - 1) / pieces_of_task(m);
}

/* Entry b: its first row in `from`, where it goes in the entry's own rows, and how many there are. All integers are
   loaded before one is used: those that a call does not have (rank 0) are lengths, and not used. */
struct new_rows { int64_t from, to, count; };
ATTN__DEVICE new_rows new_rows_of(const storing &m, int64_t b)
{
    new_rows e = {0, 0, m.rows};
    if (!m.lengths.rank) return e;
    const int64_t length = load_integer(m.lengths, b, 0), count = load_integer(m.query_lengths, b, 0);
    const int64_t from = load_integer(m.query_starts, b, 0), to = load_integer(m.key_starts, b, 0);
    if (m.query_starts.rank) e.from = clamp(from, 0, m.rows);
    e.count = m.rows - e.from;
    if (m.query_lengths.rank) e.count = clamp(count, 0, e.count);
    if (m.key_starts.rank) e.to = clamp(to, 0, m.room);
    e.to += clamp(length, 0, m.room - e.to);
    if (e.count > m.room - e.to) e.count = m.room - e.to;
    return e;
}

/* A warp, of packed rows: which entry has the group-th group of rows, those of all entries counted one after the other,
   and which of the entry's it is; false: there are fewer. */
ATTN__DEVICE bool find_group(const storing &m, int64_t &group, int64_t &b, new_rows &e)
{
    const int bits = 5 - m.lane_bits, lane = hw::lane();        /* a group is 2^bits rows */
    for (int64_t b0 = 0; b0 < m.batch; b0 += 32) {
        new_rows rows = {0, 0, 0};
        if (b0 + lane < m.batch) rows = new_rows_of(m, b0 + lane);
        const int64_t own = (rows.count + (1 << bits) - 1) >> bits;
        int64_t end = own;                      /* of the entry's groups: their number and that of those before */
        for (int step = 1; step < 32; step *= 2) {
            const int64_t before = hw::shfl(end, (lane - step) & 31);
            if (lane >= step) end += before;
        }
        const uint32_t beyond = hw::ballot(group < end);
        if (beyond) {
            const int first = hw::ctz(beyond);
            b = b0 + first;
            group -= hw::shfl(end - own, first);
            e.from = hw::shfl(rows.from, first);
            e.to = hw::shfl(rows.to, first);
            e.count = hw::shfl(rows.count, first);
            return true;
        }
        group -= hw::shfl(end, 31);
    }
    return false;
}

/* A lane's row in each of the arrays; its pieces in the passes are `lanes` apart. */
struct moved {
    int64_t from, to, scale;
    bool    there;
};
/* Row i of an entry's new ones; there: has it a place? A page that is none is no place. */
ATTN__DEVICE moved find_row(const storing &m, int64_t b, int64_t h, const new_rows &e, int64_t i)
{
    int64_t row = e.to + i, to_b = m.packed_to ? 0 : b;
    moved at = {0, 0, 0, i < e.count};
    if (!at.there) return at;
    if (m.page) {
        const int64_t n = quotient(row, m.page);
        to_b = load_integer(m.page_table, b, n);
        row -= n * m.page;
        at.there = to_b >= 0 && to_b < m.pool;
    }
    at.from = place(m.from, m.packed_from ? 0 : b, h, e.from + i, 0);
    at.to = place(m.to, to_b, h, row, 0);
    at.scale = place(m.scale, to_b, h, row, 0);
    return at;
}
/* Those from piece `piece` on: how many numbers each has; and what they are. A lane that has none loads nothing. */
template <int Rows>
ATTN__DEVICE void load_pieces(const storing &m, const moved &at, int64_t piece, words (&s)[PASSES],
                              int (&count)[PASSES])
{
    const int64_t from = at.from + piece * PIECE * m.from.stride[3], step = m.lanes * PIECE * m.from.stride[3];
    const int left = at.there ? (int)clamp(m.columns - piece * PIECE, 0, PASSES * 32 * PIECE) : 0;
    ATTN__UNROLL for (int u = 0; u < PASSES; u++) {
        count[u] = least(most(left - u * m.lanes * PIECE, 0), PIECE);
        load_words<Rows>(s[u], m.from, from + u * step, count[u], m.from_wide);
    }
}

/* The bits of the largest magnitude of each piece; infinity's or above where one is not finite. */
template <int Rows>
ATTN__DEVICE void find_largest(const storing &m, const words (&s)[PASSES], uint32_t (&largest)[PASSES])
{
    ATTN__UNROLL for (int u = 0; u < PASSES; u++) {
        uint32_t found = 0;
        if (has_floats<Rows>(m.from.type)) {
            ATTN__UNROLL for (int j = 0; j < PIECE; j++) {
                const uint32_t size = s[u].word[j / 4][j % 4] & 0x7fffffffu;
                found = size > found ? size : found;
            }
        } else {
            ATTN__UNROLL for (int j = 0; j < 4; j++) found = hw::larger_halves(found, s[u].word[0][j] & 0x7fff7fffu);
            const uint32_t low = found & 0xffffu, high = found >> 16;
            found = bits_of(widened(m.from.type, (uint16_t)(low > high ? low : high)));
        }
        largest[u] = found > largest[u] ? found : largest[u];
    }
}
/* A warp: over what shares a scale, all that lanes have of a row, or four neighbours' pieces */
ATTN__DEVICE void share_largest(const storing &m, uint32_t (&largest)[PASSES])
{
    const int lanes = m.by_row ? m.lanes : least(m.lanes, 4), scales = m.by_row ? 1 : PASSES;
    for (int u = 1; m.by_row && u < PASSES; u++) largest[0] = largest[u] > largest[0] ? largest[u] : largest[0];
    for (int step = 1; step < lanes; step *= 2)
        ATTN__UNROLL for (int u = 0; u < PASSES; u++)
            if (u < scales) {
                const uint32_t other = hw::shfl_xor(largest[u], step);
                largest[u] = other > largest[u] ? other : largest[u];
            }
}
/* A scale as it is stored, and then read. */
ATTN__DEVICE float scale_of(int32_t type, uint32_t largest)
{
    float scale = hw::div(float_of(largest), 127.0f);
    if (type == ATTN_F16 && scale > 65504.0f) scale = 65504.0f;
    if (largest >= 0x7f800000u) scale = float_of(0x7fc00000u);
    return type == ATTN_F16 ? hw::from_f16(narrowed(type, scale)) : scale;
}
/* What divides by a scale. The power of 2 of a small one, and with it that of each number, is moved to where neither
   the reciprocal is too large nor what the quotient leaves too small; no scale is so large that it would matter. Then
   the quotient has the bits of a division, or what both round to is 0. Where there is no scale, codes are 0. */
struct divisor { float factor, scale, reciprocal; uint32_t codes; };
ATTN__DEVICE divisor divisor_of(float scale)
{
    divisor d = {1.0f, scale, 0.0f, 0xffffffffu};
    if (scale < 0x1p-60f) d.factor = 0x1p64f;
    if (!(scale > 0.0f)) d.scale = 1.0f, d.codes = 0;
    d.scale = hw::mul(d.scale, d.factor);
    d.reciprocal = hw::div(1.0f, d.scale);
    return d;
}
/* x / d, but for quotients so small that their code is 0. A product with the rounded reciprocal is off by two units of
   its last place at most. What it leaves of x corrects it twice: to one unit, then to the nearest number. */
ATTN__DEVICE float divided(float x, const divisor &d)
{
    const float of = hw::mul(x, d.factor);
    float q = hw::mul(of, d.reciprocal);
    ATTN__UNROLL for (int n = 0; n < 2; n++) q = hw::fma(hw::fma(-d.scale, q, of), d.reciprocal, q);
    return q;
}
ATTN__DEVICE uint32_t code_of(float x, const divisor &d)
{
    const float exact = divided(x, d);
    const float within = exact > 127.0f ? 127.0f : exact < -127.0f ? -127.0f : exact;
    return bits_of(hw::add(within, 12582912.0f)) & 255;         /* rounded to whole numbers by 1.5 * 2^23 */
}
template <int Rows>
ATTN__DEVICE void store_codes(const storing &m, int64_t at, int count, const words &s, const divisor &d)
{
    uint8_t *const to = (uint8_t *)m.to.data + at;
    uint32_t code[2] = {0, 0};
    float x[PIECE];
    numbers_of<Rows>(x, s, m.from.type);
    ATTN__UNROLL for (int j = 0; j < PIECE; j++) code[j / 4] |= code_of(x[j], d) << 8 * (j % 4);
    ATTN__UNROLL for (int j = 0; j < 2; j++) code[j] &= d.codes;
    if ((Rows != ANY_ROWS || m.to_wide) && count == PIECE) hw::store_global(to, code);
    else if (Rows == ANY_ROWS)
        ATTN__UNROLL for (int j = 0; j < PIECE; j++)
            if (j < count) to[j * m.to.stride[3]] = (uint8_t)(code[j / 4] >> 8 * (j % 4));
}

template <int Rows> ATTN__DEVICE void convert_pieces(const storing &m, const moved &at, int64_t piece)
{
    const int64_t to = at.to + piece * PIECE * m.to.stride[3], step = m.lanes * PIECE * m.to.stride[3];
    words s[PASSES];
    int count[PASSES];
    float x[PIECE];
    load_pieces<Rows>(m, at, piece, s, count);
    ATTN__UNROLL for (int u = 0; u < PASSES; u++) {
        if (m.from.type != m.to.type || has_nan<Rows>(s[u], m.from.type)) {
            numbers_of<Rows>(x, s[u], m.from.type);
            s[u] = words_of(x, m.to.type);
        }
        store_words<Rows>(m.to, to + u * step, count[u], m.to_wide, s[u]);
    }
}
/* A row that no registers hold is read twice. */
template <int Rows> ATTN__DEVICE void quantize_pieces(const storing &m, const moved &at, int64_t piece)
{
    const int64_t all = pieces_of_task(m), end = m.by_row ? m.pieces : 0;
    const int64_t to = at.to + piece * PIECE * m.to.stride[3], step = m.lanes * PIECE * m.to.stride[3];
    uint32_t largest[PASSES] = {};
    divisor divisors[PASSES];
    words s[PASSES];
    int count[PASSES];
    load_pieces<Rows>(m, at, piece, s, count);
    find_largest<Rows>(m, s, largest);
    for (int64_t x = all; x < end; x += all) {
        load_pieces<Rows>(m, at, piece + x, s, count);
        find_largest<Rows>(m, s, largest);
    }
    share_largest(m, largest);
    if (all < end) load_pieces<Rows>(m, at, piece, s, count);
    ATTN__UNROLL for (int u = 0; u < PASSES; u++) {
        const int64_t n = piece + u * m.lanes;
        if (u > 0 && m.by_row) {
            divisors[u] = divisors[0];
            continue;
        }
        const float scale = scale_of(m.scale.type, largest[u]);
        divisors[u] = divisor_of(scale);
        if (m.by_row ? at.there && n == 0 : count[u] > 0 && n % 4 == 0)
            store_at(m.scale, at.scale + n / 4 * m.scale.stride[3], scale);
    }
    for (int64_t x = 0;;) {
        ATTN__UNROLL for (int u = 0; u < PASSES; u++)
            store_codes<Rows>(m, to + x * PIECE * m.to.stride[3] + u * step, count[u], s[u], divisors[u]);
        if ((x += all) >= end) break;
        load_pieces<Rows>(m, at, piece + x, s, count);
    }
}

/* Packed rows are looked for in their entries; others are counted through all entries, for these may be short. */
template <bool Quantizes, int Rows>
ATTN__KERNEL(32 * WARPS, Rows != WHOLE_HALVES ? 5 : Quantizes ? 6 : 8) void store_rows(ATTN__PARAM storing m)
{
    const int64_t parts = m.parts, rows = m.batch * m.rows;
    const int each = 32 >> m.lane_bits, own_row = hw::lane() >> m.lane_bits, own_piece = hw::lane() & (m.lanes - 1);
    for (int64_t task = first_task();; task += all_tasks()) {
        int64_t n = parts == 1 ? task : quotient(task, parts), group = quotient(n, m.heads), b = 0;
        const int64_t part = task - n * parts, h = n - group * m.heads;
        int64_t i = group * each;
        new_rows e = {0, 0, 0};
        if (m.packed_from ? !find_group(m, group, b, e) : i >= rows) return;
        moved at = {0, 0, 0, false};
        if (m.packed_from) {
            at = find_row(m, b, h, e, group * each + own_row);
        } else if ((i += own_row) < rows) {
            b = quotient(i, m.rows);
            at = find_row(m, b, h, new_rows_of(m, b), i - b * m.rows);
        }
        if (Quantizes) quantize_pieces<Rows>(m, at, part * pieces_of_task(m) + own_piece);
        else convert_pieces<Rows>(m, at, part * pieces_of_task(m) + own_piece);
    }
}

/* Conversion from doubles, and to them; a task is 32 numbers. */
struct converting { attn__array from, to; int64_t size[4]; };
/* The float next to a double; rounding it to fewer bits rounds the double once: to odd. */
ATTN__DEVICE float float_to_odd(double x)
{
    const float close = (float)x;
    const double back = (double)close;
    uint32_t bits = bits_of(close);
    uint64_t from, to;
    memcpy(&from, &x, sizeof from);
    memcpy(&to, &back, sizeof to);
    if ((bits & 0x7f800000u) == 0x7f800000u && (from >> 52 & 0x7ff) != 0x7ff) return float_of(bits - 1);
    if (from == to || (bits & 0x7f800000u) == 0x7f800000u) return close;
    if (from << 1 < to << 1) bits--;                            /* towards 0, then the last bit set */
    return float_of(bits | 1u);
}
ATTN__KERNEL(32 * WARPS, 1) void convert_doubles(ATTN__PARAM converting m)
{
    const int64_t elements = m.size[0] * m.size[1] * m.size[2] * m.size[3];
    for (int64_t n = first_task() * 32 + hw::lane(); n < elements; n += all_tasks() * 32) {
        const int64_t r = quotient(n, m.size[3]), g = quotient(r, m.size[2]), b = quotient(g, m.size[1]);
        const int64_t x = n - r * m.size[3], i = r - g * m.size[2], h = g - b * m.size[1];
        const int64_t from = place(m.from, b, h, i, x), to = place(m.to, b, h, i, x);
        if (m.to.type == ATTN_F64) {
            const double number = m.from.type == ATTN_F64 ? ((const double *)m.from.data)[from]
                                                          : (double)load_at(m.from, from);
            ((double *)m.to.data)[to] = number == number ? number : (double)float_of(0x7fc00000u);
        } else {
            const double number = ((const double *)m.from.data)[from];
            store_at(m.to, to, m.to.type == ATTN_F32 ? (float)number : float_to_odd(number));
        }
    }
}

/* ggml's q8_0; a task is a block: a scale of 16 bits, then 32 codes, a lane's each. */
struct unpacking_blocks { const uint8_t *blocks; attn__array codes, scale; int64_t size[4]; };  /* size[3]: blocks */
ATTN__KERNEL(32 * WARPS, 1) void unpack_blocks(ATTN__PARAM unpacking_blocks m)
{
    const int64_t blocks = m.size[0] * m.size[1] * m.size[2] * m.size[3];
    for (int64_t n = first_task(); n < blocks; n += all_tasks()) {
        const uint8_t *const block = m.blocks + n * 34;
        const int64_t r = quotient(n, m.size[3]), g = quotient(r, m.size[2]), b = quotient(g, m.size[1]);
        const int64_t x = n - r * m.size[3], i = r - g * m.size[2], h = g - b * m.size[1];
        ((uint8_t *)m.codes.data)[place(m.codes, b, h, i, x * 32 + hw::lane())] = block[2 + hw::lane()];
        if (hw::lane() == 0)
            store(m.scale, b, h, i, x, hw::from_f16((uint16_t)(block[0] | block[1] << 8)));
    }
}

/* ---- rotary positions */
struct rotating {
    attn__array x, cosines, sines, positions, out;
    int64_t batch, heads, rows;
    int64_t table, pairs, rest;         /* rows of the tables; numbers behind the pairs, which are copied */
    int64_t pair_pieces, pieces;        /* eight pairs each, of a row; and with those of 16 numbers behind them */
    int64_t parts, head_groups, tasks;  /* see below */
    int32_t lanes, lane_bits;           /* so many lanes share a row: 2^lane_bits */
    int32_t x_wide, out_wide, table_wide;
    int32_t interleaved, inverse;
};
/* Where the numbers of a piece stand in their row: two runs of up to eight, so many. */
struct piece_columns { int64_t column[2]; int count[2]; };
ATTN__DEVICE piece_columns columns_of(const rotating &m, int64_t piece)
{
    const bool pairs = piece < m.pair_pieces;
    const int64_t first = piece * PIECE, rest = 2 * (piece - m.pair_pieces) * PIECE;
    piece_columns c;
    if (pairs && !m.interleaved) {
        c.column[0] = first, c.column[1] = m.pairs + first;
        c.count[0] = c.count[1] = (int)clamp(m.pairs - first, 0, PIECE);
    } else {
        const int64_t count = clamp(pairs ? 2 * (m.pairs - first) : m.rest - rest, 0, 2 * PIECE);
        c.column[0] = pairs ? 2 * first : 2 * m.pairs + rest, c.column[1] = c.column[0] + PIECE;
        c.count[0] = (int)clamp(count, 0, PIECE), c.count[1] = (int)count - c.count[0];
    }
    return c;
}
ATTN__DEVICE void rotate_pair(float &a, float &b, float cosine, float sine)
{
    const float x = a, y = b;
    a = hw::add(hw::mul(x, cosine), -hw::mul(y, sine));
    b = hw::add(hw::mul(y, cosine), hw::mul(x, sine));
}
ATTN__DEVICE void rotate_piece(float (&x)[2][PIECE], bool interleaved, const float (&cosine)[PIECE],
                               const float (&sine)[PIECE])
{
    if (interleaved)
        ATTN__UNROLL for (int j = 0; j < PIECE; j++)
            rotate_pair(x[j / 4][2 * j % 8], x[j / 4][2 * j % 8 + 1], cosine[j], sine[j]);
    else
        ATTN__UNROLL for (int j = 0; j < PIECE; j++) rotate_pair(x[0][j], x[1][j], cosine[j], sine[j]);
}

/* A task is some rows, counted through all entries, of a few heads, for which the tables are read once. More heads
   would cost registers, and so warps that wait for memory. */
template <int Rows> constexpr int rotated_heads = Rows == WHOLE_HALVES ? 4 : 2;
template <int Rows> ATTN__KERNEL(32 * WARPS, Rows == ANY_ROWS ? 4 : 5) void rotate(ATTN__PARAM rotating m)
{
    constexpr int Heads = rotated_heads<Rows>;
    const int64_t rows = m.batch * m.rows;
    const int each = 32 >> m.lane_bits, own_row = hw::lane() >> m.lane_bits, own_piece = hw::lane() & (m.lanes - 1);
    for (int64_t task = first_task(); task < m.tasks; task += all_tasks()) {
        const int64_t n = m.parts == 1 ? task : quotient(task, m.parts), group = quotient(n, m.head_groups);
        const int64_t h0 = (n - group * m.head_groups) * Heads;
        const int64_t piece = (task - n * m.parts) * m.lanes + own_piece, row = group * each + own_row;
        words table[2], s[Heads][2];
        float cosine[PIECE], sine[PIECE], x[2][PIECE];
        int64_t from[2], to[2];
        if (row >= rows || piece >= m.pieces) continue;
        const int64_t b = quotient(row, m.rows), i = row - b * m.rows;
        const bool pairs = piece < m.pair_pieces;
        const piece_columns c = columns_of(m, piece);
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            from[e] = place(m.x, b, h0, i, c.column[e]);
            to[e] = place(m.out, b, h0, i, c.column[e]);
        }
        ATTN__UNROLL for (int u = 0; u < Heads; u++)
            ATTN__UNROLL for (int e = 0; e < 2; e++)
                load_words<Rows>(s[u][e], m.x, from[e] + u * m.x.stride[1], h0 + u < m.heads ? c.count[e] : 0,
                                 m.x_wide);
        if (pairs) {
            const int64_t position = !m.positions.rank ? i :
                add_clamped(load_integer(m.positions, b, i), m.positions.rank == 1 ? i : 0);
            const int64_t at = clamp(position, 0, m.table - 1);
            const int count = (int)clamp(m.pairs - piece * PIECE, 0, PIECE);
            constexpr int Table = Rows == ANY_ROWS ? ANY_ROWS : WHOLE_FLOATS;
            load_words<Table>(table[0], m.cosines, place(m.cosines, 0, 0, at, piece * PIECE), count, m.table_wide);
            load_words<Table>(table[1], m.sines, place(m.sines, 0, 0, at, piece * PIECE), count, m.table_wide);
            numbers_of<WHOLE_FLOATS>(cosine, table[0], ATTN_F32);
            numbers_of<WHOLE_FLOATS>(sine, table[1], ATTN_F32);
            ATTN__UNROLL for (int j = 0; j < PIECE; j++) sine[j] = m.inverse ? -sine[j] : sine[j];
        }
        ATTN__UNROLL for (int u = 0; u < Heads; u++) {
            if (h0 + u >= m.heads) break;
            ATTN__UNROLL for (int e = 0; e < 2; e++) numbers_of<Rows>(x[e], s[u][e], m.x.type);
            if (pairs) rotate_piece(x, m.interleaved, cosine, sine);
            ATTN__UNROLL for (int e = 0; e < 2; e++)
                store_words<Rows>(m.out, to[e] + u * m.out.stride[1], c.count[e], m.out_wide,
                                  words_of(x[e], m.out.type));
        }
    }
}
template <int Rows> cudaError_t rotate_rows(rotating &m, const queue &stream)
{
    const int64_t each = 32 >> m.lane_bits;
    m.parts = (m.pieces + m.lanes - 1) / m.lanes;
    m.head_groups = (m.heads + rotated_heads<Rows> - 1) / rotated_heads<Rows>;
    m.tasks = (m.batch * m.rows + each - 1) / each * m.head_groups * m.parts;
    return run(rotate<Rows>, m.tasks, stream, m);
}

/* Tables for them, of up to 64 pairs, in doubles that are never fused, as in attn.h; a task is 32 of their numbers. */
struct tabling {
    attn__array cosines, sines, factors;
    double  frequency[64], factor;
    int64_t rows, pairs, first;
};
/* Cosine and sine of an angle from 0 to 2^26; of any other one those of 0. */
ATTN__DEVICE void cosine_and_sine(double angle, double &cosine, double &sine)
{
    const double quarter[4] = {1.570796325802803, 9.920935739593517e-10, 5.721188709663575e-18, 1.6446256936324258e-26};
    const double of_c[] = {1.0/20922789888000.0, 1.0/87178291200.0, 1.0/479001600.0, 1.0/3628800.0, 1.0/40320.0,
                           1.0/720.0, 1.0/24.0, 0.5, 1.0};
    const double of_s[] = {1.0/355687428096000.0, 1.0/1307674368000.0, 1.0/6227020800.0, 1.0/39916800.0, 1.0/362880.0,
                           1.0/5040.0, 1.0/120.0, 1.0/6.0, 1.0};
    double c = of_c[0], s = of_s[0];
    angle = angle >= 0.0 && angle <= 67108864.0 ? angle : 0.0;
    const int64_t k = (int64_t)hw::add(hw::mul(angle, 0.6366197723675814), 0.5);
    double r = angle;
    ATTN__UNROLL for (int i = 0; i < 4; i++) r = hw::add(r, -hw::mul((double)k, quarter[i]));
    const double r2 = hw::mul(r, r);
    ATTN__UNROLL for (int i = 1; i < 9; i++) {
        c = hw::add(of_c[i], -hw::mul(c, r2));
        s = hw::add(of_s[i], -hw::mul(s, r2));
    }
    s = hw::mul(s, r);
    cosine = k & 1 ? -s : c;
    sine = k & 1 ? c : s;
    if (k & 2) cosine = -cosine, sine = -sine;
}
ATTN__KERNEL(32 * WARPS, 1) void make_tables(ATTN__PARAM tabling m)
{
    for (int64_t n = first_task() * 32 + hw::lane(); n < m.rows * m.pairs; n += all_tasks() * 32) {
        const int64_t i = quotient(n, m.pairs), x = n - i * m.pairs;
        double w = m.frequency[x], cosine, sine;
        if (m.factors.rank) w = hw::div(w, (double)load(m.factors, 0, 0, 0, x));
        cosine_and_sine(hw::mul((double)(m.first + i), w), cosine, sine);
        store(m.cosines, 0, 0, i, x, (float)hw::mul(cosine, m.factor));
        store(m.sines, 0, 0, i, x, (float)hw::mul(sine, m.factor));
    }
}

/* ------------------------------------------------------------------------------------------------------- >>tiled
   Stage 1: every score, option, size and stride in f32, in tiles of 64 queries (16 where there are no more) by 64 keys.
   A block has 16 by 16 threads: thread (ty,tx) has the queries ty, ty + 16, .. and the keys tx, tx + 16, .. of a tile,
   and the columns tx, tx + 16, .. of a result.

   The forward goes over the keys once, as FlashAttention does: a softmax relative to the maximum so far, its weights in
   shared memory, from where they meet the values. Where weights are results they hold the scores until the row is done;
   weights of 16 bits cannot, and their scores are computed again.

   The backward has a kernel for what belongs to rows, which goes over the keys, and one for what belongs to keys, which
   goes over the queries. Both compute a tile's scores again, and from them the gradients dS of the raw scores.

   A weight or gradient of -0 stands for an excluded pair: it keeps out what it would meet, be that NaN or infinite; one
   that merely vanishes is +0. So the rows of a tile are looked at while they are copied; where a number in them is not
   finite, a slower loop passes over the excluded pairs. */
enum { TILED_THREADS = 256, TILED_KEYS = 64, TILED_DEPTH = 32, TILED_COLUMNS = 8, TILED_SPAN = 16 * TILED_COLUMNS };

/* ---- tiles in shared memory. A line holds one component of all vectors of a tile, those of one thread side by side:
   vector i at i % 16 * N + i / 16 of 16 N. Its length is 4 more, so that a warp's lanes, which write eight lines, meet
   in no bank. */
template <int N> constexpr int tiled_line = 16 * N + 4;
template <int N> ATTN__DEVICE int tiled_place(int i) { return i % 16 * N + i / 16; }

template <int R, bool Grad = false> struct tiled_room {         /* R: queries of a thread; Grad: for gradients */
    union {
        struct { float query[TILED_DEPTH][tiled_line<R>], key[TILED_DEPTH][tiled_line<4>], w[TILED_DEPTH]; } pair;
        float rows[TILED_DEPTH][TILED_SPAN];        /* what weights or gradients multiply */
    };
    float weight[TILED_KEYS * tiled_line<R>];
    reach reaches[16 * R];                          /* of each query */
    bool  reached[TILED_KEYS];                      /* each key of the tile, by some query */
    piece pieces[Grad ? 1 : TILED_KEYS];            /* where its rows lie, if in pages */
    bool  query_clear[16 * R], key_clear[TILED_KEYS];       /* additive scores */
    mass  masses[16 * R];
    saved rows_saved[16 * R];                       /* its inverse is -1 where a row has no mass */
};
struct tiled_grad_room : tiled_room<4, true> {
    float slope[TILED_KEYS * tiled_line<4>];
    float delta[64];                                /* a row's sum of weight times gradient */
    float alibi[4][TILED_THREADS];                  /* a row's gradient of ALiBi, a thread's part */
};
static_assert(sizeof(tiled_grad_room) <= 64 * 1024, "what a block may have on sm_75");
ATTN__BOTH bool is_additive(const params &p) { return p.score == ATTN_SCORE_ADDITIVE; }
struct tiled_tile {
    int64_t b, h, i0, j0;
    int64_t first, last;                            /* the keys that its queries reach */
    entry   e;                                      /* without queries behind those that it has tiles of */
    bool    all;                                    /* scores of the other keys are results, too */
    bool    clear;                                  /* additive: all vectors */
};
ATTN__DEVICE tiled_tile tile_at(const params &p, int64_t b, int64_t h)
{
    const tiled_tile t = {b, h, 0, 0, 0, 0, whole_entry(p), false, false};
    return t;
}

/* Where in `weight` and `slope` a thread has its r-th query and k-th key: a line per key, or per query. */
template <int R, bool PerKey> ATTN__DEVICE int tiled_slot(int r, int k)
{
    const int ty = hw::thread() / 16, tx = hw::thread() % 16;
    return PerKey ? (tx + 16 * k) * tiled_line<R> + ty * R + r : (ty + 16 * r) * tiled_line<4> + tx * 4 + k;
}

/* N numbers of this thread that lie side by side, 16-byte aligned; eight: in two halves of a line of TILED_SPAN */
struct alignas(16) four { float x[4]; };
template <int N> ATTN__DEVICE void read_line(float (&x)[N], const float *from)
{
    if (N < 4) x[0] = from[0];
    ATTN__UNROLL
    for (int n = 0; n < N / 4; n++) {
        const four f = *(const four *)(from + n * (TILED_SPAN / 2));
        ATTN__UNROLL
        for (int i = 0; i < 4; i++) x[4 * n + i] = f.x[i];
    }
}
template <int R, int N> ATTN__DEVICE void set_zero(float (&x)[R][N])
{
    ATTN__UNROLL
    for (int r = 0; r < R; r++)
        ATTN__UNROLL
        for (int k = 0; k < N; k++) x[r][k] = 0.0f;
}
template <int R, int N> ATTN__DEVICE void add_part(float (&x)[R][N], const float (&part)[R][N])
{
    ATTN__UNROLL
    for (int r = 0; r < R; r++)
        ATTN__UNROLL
        for (int k = 0; k < N; k++) x[r][k] += part[r][k];
}

/* Rows of an array: those from first to before last are read, the others are zeros; each times its factor. */
struct tiled_source {
    attn__array a;
    int64_t b, h, first, last;
    const float *factor;                            /* NULL: ones */
    const bool  *reads;                             /* NULL: all of these; else of TILED_KEYS rows from i0 on */
    const piece *pieces;                            /* NULL: they do not lie in pages; else of the same rows */
    const attn__array *scale;                       /* of codes of 8 bits; NULL: none are */
};

/* to[n * Along] = column c of row i + n * Down of those from i0 on, plus `addend`; of columns beyond the last one 0.
   Returns whether one of the numbers is not finite, or so large that a difference might not be. */
template <int Steps, int Down, int Along, class Read>
ATTN__DEVICE bool tiled_copy_as(float *to, const tiled_source &s, int64_t i0, int i, int64_t c, bool inside,
                                float addend, Read read)
{
    const int from = (int)clamp(s.first - i0, 0, 64), end = inside ? (int)clamp(s.last - i0, 0, 64) : 0;
    const int64_t step = Down * s.a.stride[2];
    int64_t at = place(s.a, s.b, s.h, i0 + i, c);
    bool nonfinite = false;
    ATTN__UNROLL_BY(4)
    for (int n = 0; n < Steps; n++, i += Down, at += step) {
        float x = 0.0f;
        if (i >= from && i < end && (!s.reads || s.reads[i])) {
            x = read(i, at) + addend;
            if (s.factor) x *= s.factor[i0 + i];
        }
        nonfinite = nonfinite || !(magnitude(x) < 8.5e37f);
        to[n * Along] = x;
    }
    return nonfinite;
}
template <int Steps, int Down, int Along>
ATTN__DEVICE bool tiled_copy(float *to, const tiled_source &s, int64_t i0, int i, int64_t c, bool inside,
                             float addend = 0.0f)
{
    const void *const data = s.a.data;
    const bool bf16 = s.a.type == ATTN_BF16;
    if (s.a.type == ATTN_F32 && !s.pieces)
        return tiled_copy_as<Steps, Down, Along>(to, s, i0, i, c, inside, addend,
                                                 [=](int, int64_t at) { return ((const float *)data)[at]; });
    if (s.pieces || s.scale)
        return tiled_copy_as<Steps, Down, Along>(to, s, i0, i, c, inside, addend, [&](int n, int64_t) {
            piece at = {s.b, i0 + n};
            if (s.pieces) at = s.pieces[n];
            return load_stored(s.a, s.scale, at, s.h, c);
        });
    return tiled_copy_as<Steps, Down, Along>(to, s, i0, i, c, inside, addend, [=](int, int64_t at) {
        const uint16_t half = ((const uint16_t *)data)[at];
        return bf16 ? hw::from_bf16(half) : hw::from_f16(half);
    });
}

/* Which of TILED_DEPTH components this thread copies: a warp writes eight lines of four vectors. */
ATTN__DEVICE int tiled_component() { return hw::thread() % 8 + hw::thread() / 32 % 4 * 8; }
/* Components u0.. of the 16 N vectors from i0 on, of `size` that there are, into lines; returns as tiled_copy. */
template <int N>
ATTN__DEVICE bool tiled_vectors(float *lines, const tiled_source &s, int64_t i0, int64_t u0, int64_t size,
                                float addend = 0.0f)
{
    const int u = tiled_component(), at = hw::thread() % 32 / 8 + hw::thread() / 128 * 4;
    return tiled_copy<2 * N, 8 / N, 8>(lines + u * tiled_line<N> + at, s, i0, at / N + at % N * 16, u0 + u,
                                       u0 + u < size, addend);
}

/* Columns c0.. of `Count` rows, the first-th of those from i0 on and the next, those of one thread side by side */
template <int Count>
ATTN__DEVICE bool tiled_rows(float *rows, const tiled_source &s, int64_t i0, int first, int64_t c0, int64_t columns)
{
    const int c = hw::thread() % TILED_SPAN, i = hw::thread() / TILED_SPAN;
    return tiled_copy<Count / 2, 2, 2 * TILED_SPAN>(rows + i * TILED_SPAN + c / 64 * 64 + c % 16 * 4 + c / 16 % 4, s,
                                                    i0, first + i, c0 + c, c0 + c < columns);
}

/* ---- sums over the lines of a tile: N vectors of the left by C columns of the right for this thread. add(n, c, l, r)
   gets the numbers of each line. */
template <int Depth, int N, int C, int Unroll, class F>
ATTN__DEVICE void tiled_lines(const float *left, const float *right, int right_line, F add)
{
    left += hw::thread() / 16 * N;
    right += hw::thread() % 16 * 4;
    ATTN__UNROLL_BY(Unroll)
    for (int d = 0; d < Depth; d++) {
        float l[N], r[C];
        read_line<N>(l, left + d * tiled_line<N>);
        read_line<C>(r, right + d * right_line);
        ATTN__UNROLL
        for (int n = 0; n < N; n++)
            ATTN__UNROLL
            for (int c = 0; c < C; c++) add(n, c, l[n], r[c]);
    }
}
template <int Depth, int C, int N, int W>
ATTN__DEVICE void tiled_products(float (&sum)[N][W], const float *left, const float *right, int right_line)
{
    tiled_lines<Depth, N, C, 4>(left, right, right_line, [&](int n, int c, float l, float r) {
        sum[n][c] = hw::fma(l, r, sum[n][c]);
    });
}

/* squares of differences */
template <int Depth, int N>
ATTN__DEVICE void tiled_distances(float (&sum)[N][4], const float *left, const float *right)
{
    tiled_lines<Depth, N, 4, 4>(left, right, tiled_line<4>, [&](int n, int c, float l, float r) {
        const float apart = l - r;
        sum[n][c] = hw::fma(apart, apart, sum[n][c]);
    });
}

/* Products with what is right less what is this thread's own, the columns of its N vectors (zeros for plain products).
   Guarded: passing over excluded pairs, which is rare and to be short. */
template <int Depth, int N, bool Guarded>
ATTN__DEVICE void tiled_pulls(float (&sum)[N][TILED_COLUMNS], const float (&own)[N][TILED_COLUMNS], const float *left,
                              const float *right)
{
    tiled_lines<Depth, N, TILED_COLUMNS, Guarded ? 1 : 4>(left, right, TILED_SPAN, [&](int n, int c, float l, float r) {
        if (!Guarded || bits_of(l) != 0x80000000u) sum[n][c] = hw::fma(l, r - own[n][c], sum[n][c]);
    });
}

/* Results of N vectors by any number of columns, as they grow from tile to tile: in registers where there are no more
   than TILED_SPAN columns, else in the workspace, every thread's numbers in its own places. */
template <int N> struct tiled_sums {
    float  sum[N][TILED_COLUMNS];
    float *memory;
};
ATTN__BOTH int64_t tiled_floats(int64_t columns, int n)     /* of a block in the workspace */
{
    return columns > TILED_SPAN ? (columns + TILED_SPAN - 1) / TILED_SPAN * n * TILED_COLUMNS * TILED_THREADS : 0;
}
template <int N> ATTN__DEVICE float &tiled_memory_at(const tiled_sums<N> &s, int64_t c0, int n, int x)
{
    return s.memory[(c0 / TILED_SPAN * N * TILED_COLUMNS + n * TILED_COLUMNS + x) * TILED_THREADS + hw::thread()];
}

/* with(c0, sum) for the columns from c0 on, which may change them */
template <int N, class F> ATTN__DEVICE void tiled_each(tiled_sums<N> &s, int64_t columns, F with)
{
    ATTN__LOOP
    for (int64_t c0 = 0; c0 < columns; c0 += TILED_SPAN) {
        ATTN__UNROLL
        for (int n = 0; columns > TILED_SPAN && n < N; n++)
            ATTN__UNROLL
            for (int x = 0; x < TILED_COLUMNS; x++) s.sum[n][x] = tiled_memory_at(s, c0, n, x);
        with(c0, s.sum);
        ATTN__UNROLL
        for (int n = 0; columns > TILED_SPAN && n < N; n++)
            ATTN__UNROLL
            for (int x = 0; x < TILED_COLUMNS; x++) tiled_memory_at(s, c0, n, x) = s.sum[n][x];
    }
}
template <int N> ATTN__DEVICE void tiled_start(tiled_sums<N> &s, int64_t columns, float *memory)
{
    s.memory = memory;
    set_zero<N>(s.sum);
    tiled_each<N>(s, columns, [](int64_t, float (&sum)[N][TILED_COLUMNS]) { set_zero<N>(sum); });
}

/* with(n, c, value) for each column c of each vector n. The loop over a vector's columns is one, for the code would be
   long: they wait in `rows`, each thread's in its own places. */
template <int N, class F>
ATTN__DEVICE void tiled_finish(tiled_sums<N> &sums, float (&rows)[TILED_DEPTH][TILED_SPAN], int64_t columns, F with)
{
    float *const mine = rows[0] + hw::thread();
    hw::sync();                                     /* everybody is done with the rows */
    tiled_each<N>(sums, columns, [&](int64_t c0, float (&sum)[N][TILED_COLUMNS]) {
        ATTN__UNROLL
        for (int n = 0; n < N; n++) {
            ATTN__UNROLL
            for (int x = 0; x < TILED_COLUMNS; x++) mine[x * TILED_THREADS] = sum[n][x];
            ATTN__LOOP
            for (int x = 0; x < TILED_COLUMNS; x++) {
                const int64_t c = c0 + hw::thread() % 16 + 16 * x;
                if (c < columns) with(n, c, mine[x * TILED_THREADS]);
            }
        }
    });
}

/* The columns from c0 on of the N vectors of this thread, from i0 on. Returns whether one is not finite. */
template <int N>
ATTN__DEVICE bool tiled_own(float (&own)[N][TILED_COLUMNS], float (&rows)[TILED_DEPTH][TILED_SPAN],
                            const tiled_source &s, int64_t i0, int64_t c0, int64_t columns)
{
    float *const mine = rows[0] + hw::thread();
    bool nonfinite = false;
    hw::sync();                                     /* everybody is done with the rows */
    ATTN__UNROLL
    for (int n = 0; n < N; n++) {
        const int64_t i = i0 + hw::thread() / 16 + 16 * n;
        ATTN__LOOP
        for (int x = 0; x < TILED_COLUMNS; x++) {
            const int64_t c = c0 + hw::thread() % 16 + 16 * x;
            const bool there = i >= s.first && i < s.last && c < columns && (!s.reads || s.reads[i - i0]);
            mine[x * TILED_THREADS] = there ? load(s.a, s.b, s.h, i, c) : 0.0f;
        }
        ATTN__UNROLL
        for (int x = 0; x < TILED_COLUMNS; x++) {
            own[n][x] = mine[x * TILED_THREADS];
            nonfinite = nonfinite || !(magnitude(own[n][x]) < 8.5e37f);
        }
    }
    return nonfinite;
}

/* Adds to the sums what the tile's weights or gradients (`left`: Lines lines) make of the rows of a source from i0 on.
   pulls: of their differences from this thread's own vectors, own_i on. */
template <int Lines, int N>
ATTN__DEVICE void tiled_add(tiled_sums<N> &sums, const float *left, float (&rows)[TILED_DEPTH][TILED_SPAN],
                            const tiled_source &source, int64_t i0, int64_t columns, bool pulls,
                            const tiled_source &own, int64_t own_i)
{
    constexpr int depth = Lines < TILED_DEPTH ? Lines : (int)TILED_DEPTH;
    tiled_each<N>(sums, columns, [&](int64_t c0, float (&whole)[N][TILED_COLUMNS]) {
        float mine[N][TILED_COLUMNS], sum[N][TILED_COLUMNS];        /* sum: of this tile, for what is long */
        bool nonfinite = false;
        set_zero<N>(mine);
        set_zero<N>(sum);
        if (pulls) nonfinite = tiled_own<N>(mine, rows, own, own_i, c0, columns);
        ATTN__LOOP
        for (int line = 0; line < Lines; line += depth) {
            const float *const from = left + line * tiled_line<N>;
            hw::sync();                             /* the rows are free, the weights are there */
            const bool some = tiled_rows<depth>(rows[0], source, i0, line, c0, columns) || nonfinite;
            if (hw::barrier_or(0, TILED_THREADS, some)) tiled_pulls<depth, N, true>(sum, mine, from, rows[0]);
            else if (pulls) tiled_pulls<depth, N, false>(sum, mine, from, rows[0]);
            else if (columns - c0 > TILED_SPAN / 2)
                tiled_products<depth, TILED_COLUMNS>(sum, from, rows[0], TILED_SPAN);
            else tiled_products<depth, TILED_COLUMNS / 2>(sum, from, rows[0], TILED_SPAN);
        }
        add_part<N>(whole, sum);
    });
}

/* ---- additive scores. The special-function unit is what limits them, one tanh per query, key and hidden unit. With
   e^2q and e^2k at hand, once per vector,

       tanh(q + k) = 1 - 2 / (e^2q e^2k + 1)

   and two units share one reciprocal: w/x + v/y = (w y + v x) / (x y). So half as much of it is left, and the error is
   that of the reciprocal. Products that would overflow show in the vectors: a tile with a number beyond CLEAR in
   them takes tanh itself. */
ATTN__BOTH float additive_clear() { return 10.5f; }        /* e^4x, four of them in one product, is below 2^127 */

/* What is in params.workspace. Additive scores: e^2(q + b) [B,H,Sq,h], e^2k [B,key_heads,Sk,h], and per vector:
   is it clear? Then the tiled_sums that registers do not hold, of all blocks. */
struct tiled_memory { float *query, *key, *query_clear, *key_clear, *sums; };
ATTN__BOTH tiled_memory tiled_memory_of(const tiled_params &p)
{
    const bool additive = p.score == ATTN_SCORE_ADDITIVE;
    const int64_t rows = additive ? batch_of_rows(p) * p.heads * p.queries : 0;
    const int64_t keys = additive ? batch_of_keys(p) * p.key_heads * p.keys : 0;
    tiled_memory m;
    m.query = (float *)p.workspace;
    m.key = m.query + rows * p.size_u;
    m.query_clear = m.key + keys * p.size_u;
    m.key_clear = m.query_clear + rows;
    m.sums = m.key_clear + keys;
    return m;
}

/* What no query or key needs counts as 0: padding does not tell how the tile's other pairs are computed. A row of
   packed queries may be several entries', and scores that are results are those of all rows. */
ATTN__KERNEL(32 * WARPS, 1) void additive_prepare(ATTN__PARAM tiled_params p)
{
    const tiled_memory m = tiled_memory_of(p);
    const bool each = p.packed_queries || p.scores.rank || p.scores_softcap.rank;
    const int64_t rows = batch_of_rows(p) * p.heads * p.queries, all = rows + batch_of_keys(p) * p.key_heads * p.keys;
    for (int64_t n = first_task(); n < all; n += all_tasks()) {
        const bool query = n < rows;
        const int64_t k = n - rows, b = query ? n / p.queries / p.heads : k / p.keys / p.key_heads;
        reach of = {0, 0, 0};
        if (query && !each) of = reach_in(p, entry_of(p, b), b, n % p.queries);
        const bool read = query ? each || of.first < of.last : p.covered[b * p.keys + k % p.keys] != 0.0f;
        bool beyond = false;
        for (int64_t u = hw::lane(); u < p.size_u; u += 32) {
            float x = 0.0f;
            if (read && query) {
                const int64_t h = n / p.queries % p.heads;
                x = load(p.query, b, h, n % p.queries, u) +
                    (p.hidden_bias.rank ? load(p.hidden_bias, 0, h, 0, u) : 0.0f);
            } else if (read) x = load(p.key, b, k / p.keys % p.key_heads, k % p.keys, u);
            beyond = beyond || !(magnitude(x) <= additive_clear());
            (query ? m.query + n * p.size_u : m.key + k * p.size_u)[u] = expf(x + x);
        }
        beyond = hw::any(beyond);
        if (hw::lane() == 0) (query ? m.query_clear + n : m.key_clear + k)[0] = beyond ? 0.0f : 1.0f;
    }
}

/* Which vectors of the tile's rows and keys are clear? Are all? A barrier, too. */
template <int R, bool G>
ATTN__DEVICE bool additive_is_clear(const tiled_params &p, tiled_room<R, G> &s, const tiled_tile &t)
{
    const tiled_memory m = tiled_memory_of(p);
    const int64_t i = t.i0 + hw::thread(), j = t.j0 + hw::thread();
    bool query = true, key = true;
    if (hw::thread() < 16 * R) {
        if (i < t.e.rows_end) query = m.query_clear[first_row(p, t.b, t.h) + i] != 0.0f;
        s.query_clear[tiled_place<R>(hw::thread())] = query;
    }
    if (hw::thread() < TILED_KEYS) {
        if (j < t.e.keys_end) key = m.key_clear[first_key(p, t.b, p.key_heads, key_head(p, t.h)) + j] != 0.0f;
        s.key_clear[tiled_place<4>(hw::thread())] = key;
    }
    return !hw::barrier_or(0, TILED_THREADS, !query || !key);
}

/* Where the rows of the tile's keys lie, those that are read: from first to before last */
template <int R, bool G>
ATTN__DEVICE void tiled_find(const params &p, tiled_room<R, G> &s, const tiled_tile &t, int64_t first, int64_t last)
{
    const int64_t j = t.j0 + hw::thread();
    if (G || !p.page || hw::thread() >= TILED_KEYS) return;
    s.pieces[hw::thread()] = piece_of(p, p.page, t.b, j, first <= j && j < last);
}

/* Of what belongs to keys, what the tile's queries reach. Between these may lie keys that none does, where each has a
   position of its own. */
template <int R, bool G> ATTN__DEVICE void tiled_look(const params &p, tiled_room<R, G> &s, const tiled_tile &t)
{
    const int64_t j = t.j0 + hw::thread();
    bool reached = false;
    tiled_find<R>(p, s, t, t.all ? t.e.key0 : t.first, t.all ? t.e.keys_end : t.last);
    if (p.positions.rank < 2 || hw::thread() >= TILED_KEYS) return;
    ATTN__LOOP
    for (int i = 0; i < 16 * R; i++) reached = reached || (s.reaches[i].first <= j && j < s.reaches[i].last);
    s.reached[hw::thread()] = reached;
}
template <int R, bool G>
ATTN__DEVICE tiled_source tiled_keys(const tiled_params &p, const tiled_room<R, G> &s, const tiled_tile &t,
                                     const attn__array &a, int64_t h)
{
    tiled_source keys = {a, t.b, h, t.first, t.last, NULL, p.positions.rank < 2 ? NULL : s.reached, NULL, NULL};
    if (!G && p.key_page) keys.pieces = s.pieces;
    if (!G && p.k_scale.rank) keys.scale = &p.k_scale;
    return keys;
}
template <int R, bool G>
ATTN__DEVICE tiled_source tiled_values(const params &p, const tiled_room<R, G> &s, const tiled_tile &t)
{
    tiled_source values = {p.v, t.b, t.h / (p.heads / p.heads_kv), t.first, t.last, NULL,
                           p.positions.rank < 2 ? NULL : s.reached, NULL, NULL};
    if (!G && p.page) values.pieces = s.pieces;
    if (!G && p.v_scale.rank) values.scale = &p.v_scale;
    return values;
}
ATTN__DEVICE tiled_source tiled_queries(const tiled_tile &t, const attn__array &a)
{
    const tiled_source queries = {a, t.b, t.h, 0, t.e.rows_end, NULL, NULL, NULL, NULL};
    return queries;
}

/* Components u0.. of the tile's queries and keys into shared memory; additive scores: of e^2x where all are clear. */
template <int R, bool G>
ATTN__DEVICE void tiled_load(const tiled_params &p, tiled_room<R, G> &s, const tiled_tile &t, int64_t u0)
{
    const int64_t u = u0 + tiled_component();
    tiled_source query = tiled_queries(t, p.query), key = tiled_keys(p, s, t, p.key, key_head(p, t.h));
    float addend = 0.0f;
    hw::sync();                                     /* everybody is done with what is there */
    if (t.all) {
        key.first = t.e.key0;
        key.last = t.e.keys_end;
        key.reads = NULL;
    }
    if (p.score == ATTN_SCORE_COSINE) {
        query.factor = p.query_norm + first_row(p, t.b, t.h);
        key.factor = p.key_norm + first_key(p, t.b, p.heads_kv, key.h);
    }
    if (is_additive(p) && t.clear) {
        const tiled_memory m = tiled_memory_of(p);
        query.a = rows_of(p, m.query, p.size_u);
        key.a = keys_of(p, m.key, p.key_heads, p.size_u);
    } else if (is_additive(p) && p.hidden_bias.rank && u < p.size_u) addend = load(p.hidden_bias, 0, t.h, 0, u);
    tiled_vectors<R>(s.pair.query[0], query, t.i0, u0, p.size_u, addend);
    tiled_vectors<4>(s.pair.key[0], key, t.j0, u0, p.size_u);
    if (is_additive(p) && hw::thread() < TILED_DEPTH)
        s.pair.w[hw::thread()] = u0 + hw::thread() < p.size_u ? load(p.w_v, 0, t.h, 0, u0 + hw::thread()) : 0.0f;
    hw::sync();
}

/* part + two units of a pair whose vectors are clear: of e^2q and e^2k, w / (e^2q e^2k + 1) */
ATTN__DEVICE float additive_pair(float q0, float q1, float k0, float k1, float w0, float w1, float part)
{
    const float x = hw::fma(q0, k0, 1.0f), y = hw::fma(q1, k1, 1.0f);
    return hw::fma(hw::fma(w0, y, w1 * x), hw::rcp(x * y), part);
}

/* Additive scores of TILED_DEPTH units: of clear pairs the sums of w / (e^2q e^2k + 1), `total` being that of w; of
   others the sums of w tanh(q + k). */
template <int R, bool G>
ATTN__DEVICE void additive_units(const tiled_room<R, G> &s, float (&part)[R][4], float &total)
{
    const float *const query = s.pair.query[0] + hw::thread() / 16 * R;
    const float *const key = s.pair.key[0] + hw::thread() % 16 * 4;
    for (int u = 0; u < TILED_DEPTH; u += 2) {
        const float w0 = s.pair.w[u], w1 = s.pair.w[u + 1];
        float q0[R], q1[R], k0[4], k1[4];
        read_line<R>(q0, query + u * tiled_line<R>);
        read_line<R>(q1, query + (u + 1) * tiled_line<R>);
        read_line<4>(k0, key + u * tiled_line<4>);
        read_line<4>(k1, key + (u + 1) * tiled_line<4>);
        total += w0 + w1;
        ATTN__UNROLL
        for (int r = 0; r < R; r++)
            ATTN__UNROLL
            for (int k = 0; k < 4; k++) part[r][k] = additive_pair(q0[r], q1[r], k0[k], k1[k], w0, w1, part[r][k]);
    }
}

/* The same where some vectors are not clear: of the vectors themselves; clear pairs get the same bits. */
ATTN__DEVICE float additive_beyond(float q0, float q1, float k0, float k1, float w0, float w1, bool clear,
                                   int64_t units, float part)
{
    const bool both = units > 1;                    /* beyond the last unit there are zeros, not e^0 */
    if (clear)
        return additive_pair(expf(q0 + q0), both ? expf(q1 + q1) : 0.0f, expf(k0 + k0), both ? expf(k1 + k1) : 0.0f,
                             w0, w1, part);
    if (units > 0) part = hw::fma(w0, tanhf(q0 + k0), part);
    return both ? hw::fma(w1, tanhf(q1 + k1), part) : part;
}
/* This is long, so it is there once, and the sums of the thread's pairs wait where its scores will be. */
template <bool PerKey, int R, bool G>
ATTN__DEVICE void additive_units_beyond(tiled_room<R, G> &s, int64_t units, float (&part)[R][4], float &total)
{
    const int ty = hw::thread() / 16, tx = hw::thread() % 16;
    for (int u = 0; u < TILED_DEPTH; u += 2) total += s.pair.w[u] + s.pair.w[u + 1];
    ATTN__LOOP
    for (int n = 0; n < 4 * R; n++) {
        const int r = n / 4, k = n % 4;
        const bool clear = s.query_clear[ty * R + r] && s.key_clear[tx * 4 + k];
        float sum = 0.0f;
        ATTN__LOOP
        for (int u = 0; u < TILED_DEPTH; u += 2)
            sum = additive_beyond(s.pair.query[u][ty * R + r], s.pair.query[u + 1][ty * R + r],
                                  s.pair.key[u][tx * 4 + k], s.pair.key[u + 1][tx * 4 + k], s.pair.w[u],
                                  s.pair.w[u + 1], clear, units - u, sum);
        s.weight[tiled_slot<R, PerKey>(r, k)] = sum;
    }
    ATTN__UNROLL
    for (int n = 0; n < 4 * R; n++) part[n / 4][n % 4] = s.weight[tiled_slot<R, PerKey>(n / 4, n % 4)];
}

/* To where this thread has them in shared memory, for the loops that follow are long and go over keys one by one. */
template <bool PerKey, int R> ATTN__DEVICE void tiled_put(float *to, const float (&x)[R][4])
{
    ATTN__UNROLL
    for (int r = 0; r < R; r++)
        ATTN__UNROLL
        for (int k = 0; k < 4; k++) to[tiled_slot<R, PerKey>(r, k)] = x[r][k];
}

/* ---- scores
   What the tile's queries and keys make of each other, into s.weight: q.k, the cosine, w_v.tanh(..), |q-k|^2, the given
   score; where there is no such query or key, anything. */
template <bool PerKey, int R, bool G>
ATTN__DEVICE void tiled_given(const params &p, tiled_room<R, G> &s, const tiled_tile &t)
{
    ATTN__LOOP
    for (int r = 0; r < R; r++)
        ATTN__LOOP
        for (int k = 0; k < 4; k++) {
            const int64_t i = t.i0 + hw::thread() / 16 + 16 * r, j = t.j0 + hw::thread() % 16 + 16 * k;
            const reach reach = s.reaches[hw::thread() / 16 + 16 * r];
            const bool there = p.score == ATTN_SCORE_GIVEN && i < t.e.rows_end && j < t.e.keys_end &&
                               (t.all || (reach.first <= j && j < reach.last));
            s.weight[tiled_slot<R, PerKey>(r, k)] = there ? load(p.given_scores, t.b, t.h, i, j) : 0.0f;
        }
}
template <bool PerKey, int R, bool G>
ATTN__DEVICE void tiled_qk(const tiled_params &p, tiled_room<R, G> &s, tiled_tile &t)
{
    float qk[R][4], total = 0.0f;                   /* total: of w_v */
    hw::sync();                                     /* everybody is done with the tile before */
    tiled_look<R>(p, s, t);
    if (p.score == ATTN_SCORE_GIVEN || p.score == ATTN_SCORE_CONSTANT) {
        tiled_given<PerKey, R>(p, s, t);
        return;
    }
    set_zero<R>(qk);
    if (is_additive(p)) t.clear = additive_is_clear<R>(p, s, t);
    ATTN__LOOP
    for (int64_t u0 = 0; u0 < p.size_u; u0 += TILED_DEPTH) {
        float part[R][4];
        tiled_load(p, s, t, u0);
        set_zero<R>(part);
        if (is_additive(p) && t.clear) additive_units<R>(s, part, total);
        else if (is_additive(p)) additive_units_beyond<PerKey, R>(s, p.size_u - u0, part, total);
        else if (is_distance(p.score)) tiled_distances<TILED_DEPTH>(part, s.pair.query[0], s.pair.key[0]);
        else tiled_products<TILED_DEPTH, 4>(part, s.pair.query[0], s.pair.key[0], tiled_line<4>);
        add_part<R>(qk, part);
    }
    ATTN__UNROLL
    for (int r = 0; is_additive(p) && r < R; r++)
        ATTN__UNROLL
        for (int k = 0; k < 4; k++)
            if (t.clear || (s.query_clear[hw::thread() / 16 * R + r] && s.key_clear[hw::thread() % 16 * 4 + k]))
                qk[r][k] = hw::fma(-2.0f, qk[r][k], total);
    tiled_put<PerKey, R>(s.weight, qk);
}

/* How many tiles of so many queries, or of keys, a head has: of one batch entry or, where these are packed, at most of
   all. An entry's tiles begin at its first query and key; what lies in front of it has tiles, too, where that is not
   another entry's, for there are results of it. */
ATTN__BOTH int64_t tiles_of(int64_t count, int size, const attn__array &starts, int64_t entries)
{
    return (count + size - 1) / size + (entries ? entries : starts.rank ? 1 : 0);
}
ATTN__BOTH int64_t tiles_of_head(const params &p, int rows)
{
    return tiles_of(p.queries, rows, p.query_starts, p.packed_queries ? p.batch : 0);
}
ATTN__BOTH int64_t tiles_of_keys(const params &p)
{
    return tiles_of(p.keys, TILED_KEYS, p.key_starts, p.packed_keys ? p.batch : 0);
}

/* The n-th of them in entry b, or in all, without queries or keys where there is no such tile */
struct tiled_span { int64_t b, first, end; };       /* first to before `end`, but for no more than a tile has */
template <bool Keys> ATTN__DEVICE tiled_span nth_span(const params &p, int64_t b, int64_t n, int size)
{
    const bool packed = (Keys ? p.packed_keys : p.packed_queries) != 0;
    for (b = packed ? 0 : b; b < p.batch; b++) {
        const entry e = entry_of(p, b);
        const int64_t start = Keys ? e.key0 : e.row0, in_front = packed ? 0 : (start + size - 1) / size;
        const int64_t end = !Keys ? e.rows_end : packed ? keys_end_of(p, e, b) : p.keys;
        const tiled_span in = {b, n * size, start}, own = {b, start + (n - in_front) * size, end};
        if (n < in_front) return in;
        if (!packed || own.first < end) return own;
        n -= (end - start + size - 1) / size;
    }
    const tiled_span none = {0, 0, 0};
    return none;
}
ATTN__DEVICE tiled_tile tile_of_entry(const params &p, int64_t b, int64_t h)
{
    tiled_tile t = tile_at(p, b, h);
    if (!p.ragged && !p.page) return t;
    t.e = entry_of(p, b);
    t.e.keys_end = keys_end_of(p, t.e, b);
    return t;
}

/* The n-th tile of queries of all heads */
ATTN__DEVICE tiled_tile nth_tile(const params &p, int64_t n, int rows)
{
    const int64_t tiles = tiles_of_head(p, rows), h = n / tiles % p.heads;
    const tiled_span s = nth_span<false>(p, n / tiles / p.heads, n % tiles, rows);
    tiled_tile t = s.first < s.end ? tile_of_entry(p, s.b, h) : tile_at(p, s.b, h);
    t.i0 = s.first;
    t.e.rows_end = s.end;
    return t;
}

/* f() for each tile of queries of entry t.b */
template <class F> ATTN__DEVICE void each_tile_of_rows(const params &p, tiled_tile &t, F f)
{
    ATTN__LOOP
    for (t.i0 = p.packed_queries ? t.e.row0 : 0; t.i0 < (p.packed_queries ? t.e.rows_end : p.queries);
         t.i0 = t.i0 + 64 < t.e.rows_end ? t.i0 + 64 : t.e.rows_end) {
        if (!p.packed_queries) t.e.rows_end = t.i0 < t.e.row0 ? t.e.row0 : p.queries;
        f();
    }
}

/* Which keys each query of the tile reaches, and all of them */
template <int R, bool G> ATTN__DEVICE void tiled_reach(const params &p, tiled_room<R, G> &s, tiled_tile &t)
{
    hw::sync();
    if (hw::thread() < 16 * R) {
        reach r;
        r.position = r.first = r.last = 0;
        if (t.i0 + hw::thread() < t.e.rows_end) r = reach_in(p, t.e, t.b, t.i0 + hw::thread());
        s.reaches[hw::thread()] = r;
    }
    hw::sync();
    t.first = p.keys;
    t.last = 0;
    ATTN__LOOP
    for (int i = 0; i < 16 * R; i++) {
        if (s.reaches[i].first >= s.reaches[i].last) continue;
        t.first = s.reaches[i].first < t.first ? s.reaches[i].first : t.first;
        t.last = s.reaches[i].last > t.last ? s.reaches[i].last : t.last;
    }
}

/* f() for each tile of keys between `first` and `last`; an entry's tiles begin at its first key */
template <class F> ATTN__DEVICE void each_tile(tiled_tile &t, int64_t first, int64_t last, F f)
{
    ATTN__LOOP
    for (t.j0 = t.e.key0 + (first - t.e.key0) / TILED_KEYS * TILED_KEYS; t.j0 < last; t.j0 += TILED_KEYS) f();
}
template <int R, bool G>
ATTN__DEVICE row tiled_row(const params &p, const tiled_room<R, G> &s, const tiled_tile &t, int local)
{
    row w;
    w.b = t.b;
    w.h = t.h;
    w.hkv = t.h / (p.heads / p.heads_kv);
    w.i = t.i0 + local;
    w.n = first_row(p, t.b, t.h) + w.i;
    w.row0 = t.e.row0;
    w.key0 = t.e.key0;
    w.r = s.reaches[local];
    w.width = p.sigma_per_head.rank ? load(p.sigma_per_head, 0, t.h, 0, 0) : p.sigma;
    w.width *= w.width;
    return w;
}

/* with(r, k, w, j) for each pair of the tile that this thread has, its r-th query and k-th key: w.i and j, which may be
   beyond the last ones. These loops are not unrolled, for what they do is long; so it works on numbers in shared
   memory, where each thread has those of its own pairs. */
template <int R, bool G, class F>
ATTN__DEVICE void each_pair(const params &p, const tiled_room<R, G> &s, const tiled_tile &t, F with)
{
    ATTN__LOOP
    for (int r = 0; r < R; r++) {
        const row w = tiled_row<R>(p, s, t, hw::thread() / 16 + 16 * r);
        ATTN__LOOP
        for (int k = 0; k < 4; k++) with(r, k, w, t.j0 + hw::thread() % 16 + 16 * k);
    }
}

/* Over the 16 threads that have one row; all get the same bits. */
ATTN__DEVICE float row_sum(float x)
{
    for (int step = 8; step > 0; step /= 2) x += hw::shfl_xor(x, step);
    return hw::shfl(x, hw::lane() / 16 * 16);
}
ATTN__DEVICE float row_top(float x)
{
    for (int step = 8; step > 0; step /= 2) x = larger(x, hw::shfl_xor(x, step));
    return hw::shfl(x, hw::lane() / 16 * 16);
}

/* The masked scores of the tile into s.weight, and those that are results to where they go; results: false where a pass
   before has done that. */
template <int R, bool G>
ATTN__DEVICE void tiled_scores(const tiled_params &p, tiled_room<R, G> &s, tiled_tile &t, bool results)
{
    tiled_qk<true, R>(p, s, t);
    each_pair<R>(p, s, t, [&](int r, int k, const row &w, int64_t j) {
        float &slot = s.weight[tiled_slot<R, true>(r, k)];
        const float score = score_of(p, w, slot), soft = softcapped(p, score).score;
        const bool inside = w.i < t.e.rows_end && j < t.e.keys_end;
        slot = inside ? mask(p, w.r, w.b, w.h, w.i, j, soft) : -infinity();
        if (!results || !inside) return;
        if (p.scores.rank) store(p.scores, w.b, w.h, w.i, j, score);
        if (p.scores_softcap.rank) store(p.scores_softcap, w.b, w.h, w.i, j, soft);
        if (p.scores_masked.rank) store(p.scores_masked, w.b, w.h, w.i, j, slot);
        if (p.weights.rank && p.weights.type == ATTN_F32) store(p.weights, w.b, w.h, w.i, j, slot);
    });
}

/* A row's mass as far as one thread has it; rest: what the sum is too large by */
struct tiled_mass { float top, sum, rest; };
/* The scores in s.weight become weights relative to the maximum so far; m: that maximum, and what this thread's keys
   add to the mass. rescale: what earlier sums are to be multiplied by. */
template <int R, bool G> ATTN__DEVICE void tiled_softmax(tiled_room<R, G> &s, tiled_mass (&m)[R], float (&rescale)[R])
{
    ATTN__UNROLL
    for (int r = 0; r < R; r++) {
        const float before = m[r].top;
        ATTN__UNROLL
        for (int k = 0; k < 4; k++) m[r].top = larger(m[r].top, s.weight[tiled_slot<R, true>(r, k)]);
        m[r].top = row_top(m[r].top);
        const float base = is_none(m[r].top) ? 0.0f : m[r].top;
        rescale[r] = is_none(before) ? 1.0f : expf(before - m[r].top);
        float sum = 0.0f;
        ATTN__UNROLL
        for (int k = 0; k < 4; k++) {
            float &slot = s.weight[tiled_slot<R, true>(r, k)];
            const bool none = is_none(slot);
            const float weight = weight_of(slot, base, 1.0f);
            slot = none ? -0.0f : weight;
            sum += none ? 0.0f : weight;
        }
        if (sum == 0.0f && rescale[r] == 1.0f) continue;    /* which tiles it meets depends on the rows beside it */
        /* Kahan's sum, for rows may be long */
        const float before_sum = m[r].sum * rescale[r], part = sum - m[r].rest * rescale[r];
        m[r].sum = before_sum + part;
        m[r].rest = (m[r].sum - before_sum) - part;
    }
}
template <int R> ATTN__DEVICE void no_masses(tiled_mass (&m)[R])
{
    ATTN__UNROLL
    for (int r = 0; r < R; r++) {
        m[r].top = -infinity();
        m[r].sum = m[r].rest = 0.0f;
    }
}

/* The masses of the rows, from what each thread has of them, into s.masses */
template <int R, bool G> ATTN__DEVICE void tiled_masses(tiled_room<R, G> &s, const tiled_mass (&m)[R])
{
    ATTN__UNROLL
    for (int r = 0; r < R; r++) {
        const mass row = {m[r].top, row_sum(m[r].sum)};
        if (hw::thread() % 16 == 0) s.masses[hw::thread() / 16 + 16 * r] = row;
    }
    hw::sync();
}

/* What dropout leaves of a weight that is not excluded: 0 where it drops it, were it NaN */
ATTN__DEVICE float kept(const params &p, const row &w, int64_t j, float weight)
{
    const float keep = keep_factor(p, w.b, w.h, w.i - w.row0, j - w.key0);
    return keep == 0.0f ? 0.0f : weight * keep;
}

/* ---- the forward */

/* How many columns a row sums over its keys, for out or for what is carried on */
ATTN__BOTH int64_t tiled_outputs(const params &p) { return p.out.rank || p.carry_out.rank ? p.size_v : 0; }

/* The tile's rows go on from what the call before left of them: their outputs, not yet divided, maxima and sums. */
template <int R>
ATTN__DEVICE void tiled_resume(const params &p, const tiled_tile &t, int64_t columns, tiled_mass (&m)[R],
                               tiled_sums<R> &out)
{
    const int64_t i0 = t.i0 + hw::thread() / 16;
    ATTN__UNROLL
    for (int r = 0; r < R; r++) {
        if (i0 + 16 * r >= t.e.rows_end) continue;
        m[r].top = load(p.carry_in, t.b, t.h, i0 + 16 * r, p.size_v);
        if (hw::thread() % 16 == 0) m[r].sum = load(p.carry_in, t.b, t.h, i0 + 16 * r, p.size_v + 1);
    }
    tiled_each<R>(out, columns, [&](int64_t c0, float (&sum)[R][TILED_COLUMNS]) {
        ATTN__UNROLL
        for (int r = 0; r < R; r++)
            ATTN__UNROLL
            for (int x = 0; x < TILED_COLUMNS; x++) {
                const int64_t c = c0 + hw::thread() % 16 + 16 * x;
                if (i0 + 16 * r < t.e.rows_end && c < columns)
                    sum[r][x] = load(p.carry_in, t.b, t.h, i0 + 16 * r, c);
            }
    });
}

/* What becomes of each row's mass: log-sum-exp, stats, and what turns scores into weights. */
template <int R> ATTN__DEVICE void tiled_rows_end(const params &p, tiled_room<R> &s, const tiled_tile &t)
{
    if (hw::thread() < 16 * R) {
        const row w = tiled_row<R>(p, s, t, hw::thread());
        const mass m = s.masses[hw::thread()];
        const norm of = norm_of(p, w, m);
        saved &to = s.rows_saved[hw::thread()];
        to.base = of.base;
        to.inverse = of.empty ? -1.0f : m.sum == 0.0f ? 0.0f : of.inverse;      /* a sink alone, which may be NaN */
        if (p.lse.rank && w.i < t.e.rows_end) store(p.lse, w.b, w.h, w.i, 0, of.lse);
        if (p.stats.rank && w.i < t.e.rows_end) store(p.stats, w.b, w.h, w.i, 0, m.top);
        if (p.stats.rank && w.i < t.e.rows_end) store(p.stats, w.b, w.h, w.i, 1, m.sum);
        if (p.carry_out.rank && w.i < t.e.rows_end) store(p.carry_out, w.b, w.h, w.i, p.size_v, m.top);
        if (p.carry_out.rank && w.i < t.e.rows_end) store(p.carry_out, w.b, w.h, w.i, p.size_v + 1, m.sum);
    }
    hw::sync();
}

/* Rows without mass, and ATTN_EMPTY_UNIFORM: the weights of the tile for the mean of all values */
ATTN__DEVICE float uniform_weight(const tiled_tile &t) { return 1.0f / (float)(t.e.keys_end - t.e.key0); }
template <int R> ATTN__DEVICE void tiled_uniform(const params &p, tiled_room<R> &s, const tiled_tile &t)
{
    hw::sync();                                     /* everybody is done with the weights of the tile before */
    tiled_find<R>(p, s, t, t.e.key0, t.e.keys_end);
    each_pair<R>(p, s, t, [&](int r, int k, const row &w, int64_t j) {
        const bool counts = s.rows_saved[w.i - t.i0].inverse < 0.0f && w.i < t.e.rows_end && j < t.e.keys_end;
        s.weight[tiled_slot<R, true>(r, k)] = counts ? kept(p, w, j, uniform_weight(t)) : -0.0f;
    });
}

/* The weights of the tile as results, from the scores that are in their place or, where these are not floats, made once
   more. visited: it has such. */
template <int R>
ATTN__DEVICE void tiled_weights(const tiled_params &p, const tiled_room<R> &s, const tiled_tile &t, bool visited)
{
    each_pair<R>(p, s, t, [&](int r, int k, const row &w, int64_t j) {
        const saved of = s.rows_saved[w.i - t.i0];
        const bool uniform = of.inverse < 0.0f && p.empty == ATTN_EMPTY_UNIFORM;
        float score = -infinity(), weight = 0.0f;
        if (w.i >= t.e.rows_end || j >= t.e.keys_end) return;
        if (visited && p.weights.type == ATTN_F32) score = load(p.weights, w.b, w.h, w.i, j);
        else if (visited) score = s.weight[tiled_slot<R, true>(r, k)];
        if (of.inverse < 0.0f && p.empty == ATTN_EMPTY_NAN) weight = float_of(0x7fc00000u);
        else if (uniform) weight = uniform_weight(t);
        else if (!is_none(score)) weight = weight_of(score, of.base, of.inverse);
        if (p.weights_after_dropout && (uniform || !is_none(score))) weight = kept(p, w, j, weight);
        store(p.weights, w.b, w.h, w.i, j, weight);
    });
}

/* Of the tile's rows, the results that belong to keys of no entry */
template <int R> ATTN__DEVICE void tiled_outside(const params &p, const tiled_tile &t)
{
    if (!p.ragged || p.packed_queries || p.packed_keys) return;     /* there are none */
    ATTN__LOOP
    for (int r = 0; r < R; r++) {
        const int64_t i = t.i0 + hw::thread() / 16 + 16 * r;
        for (int64_t j = hw::thread() % 16; i < t.e.rows_end && j < p.keys; j += 16) {
            if (j >= t.e.key0 && j < t.e.keys_end) continue;
            if (p.weights.rank) store(p.weights, t.b, t.h, i, j, 0.0f);
            if (p.scores.rank) store(p.scores, t.b, t.h, i, j, -infinity());
            if (p.scores_softcap.rank) store(p.scores_softcap, t.b, t.h, i, j, -infinity());
            if (p.scores_masked.rank) store(p.scores_masked, t.b, t.h, i, j, -infinity());
            if (p.is_backward && p.d_given_scores.rank) store(p.d_given_scores, t.b, t.h, i, j, 0.0f);
        }
    }
}

/* The scores of the tile become weights relative to the largest so far, and what was summed before, too. */
template <int R>
ATTN__DEVICE void tiled_become_weights(const params &p, tiled_room<R> &s, const tiled_tile &t, int64_t columns,
                                       tiled_mass (&m)[R], tiled_sums<R> &out)
{
    float rescale[R];
    tiled_softmax<R>(s, m, rescale);
    if (p.dropout != 0.0f)
        each_pair<R>(p, s, t, [&](int r, int k, const row &w, int64_t j) {
            float &slot = s.weight[tiled_slot<R, true>(r, k)];
            if (bits_of(slot) != 0x80000000u) slot = kept(p, w, j, slot);
        });
    tiled_each<R>(out, columns, [&](int64_t, float (&sum)[R][TILED_COLUMNS]) {
        ATTN__UNROLL
        for (int r = 0; r < R; r++)
            ATTN__UNROLL
            for (int x = 0; x < TILED_COLUMNS; x++) sum[r][x] *= rescale[r];
    });
}

/* What the forward goes over the keys for */
enum tiled_pass { OUTPUTS, UNIFORM, WEIGHTS };
template <int R> ATTN__DEVICE bool tiled_has_uniform(const params &p, const tiled_room<R> &s, int64_t columns)
{
    if (p.empty != ATTN_EMPTY_UNIFORM || columns <= 0) return false;
    return hw::barrier_or(0, TILED_THREADS, hw::thread() < 16 * R && s.rows_saved[hw::thread()].inverse < 0.0f);
}
template <int R> ATTN__KERNEL(TILED_THREADS, 1) void tiled_forward(ATTN__PARAM tiled_params p)
{
    ATTN__SHARED(memory);
    tiled_room<R> &s = *(tiled_room<R> *)memory;
    const int64_t all = batch_of_rows(p) * p.heads * tiles_of_head(p, 16 * R), columns = tiled_outputs(p);
    float *const workspace = tiled_memory_of(p).sums + hw::block() * tiled_floats(columns, R);
    for (int64_t task = hw::block(); task < all; task += hw::blocks()) {
        tiled_tile t = nth_tile(p, task, 16 * R);
        if (t.i0 >= t.e.rows_end) continue;
        tiled_sums<R> out;
        tiled_mass m[R];
        tiled_source values;
        t.all = p.scores.rank || p.scores_softcap.rank;
        const bool every = t.all || p.scores_masked.rank;
        tiled_reach<R>(p, s, t);
        tiled_start<R>(out, columns, workspace);
        no_masses<R>(m);
        if (p.carry_in.rank) tiled_resume<R>(p, t, columns, m, out);
        ATTN__LOOP
        for (int pass = OUTPUTS; pass <= WEIGHTS; pass++) {         /* a loop, for the text of a tile is long */
            const bool whole = pass != OUTPUTS || every;
            if (pass == UNIFORM && !tiled_has_uniform<R>(p, s, columns)) continue;
            if (pass == WEIGHTS && !p.weights.rank) continue;
            values = tiled_values(p, s, t);
            if (pass == UNIFORM) values.first = t.e.key0, values.last = t.e.keys_end, values.reads = NULL;
            each_tile(t, whole ? t.e.key0 : t.first, whole ? t.e.keys_end : t.last, [&] {
                const bool visited = t.j0 < t.last && t.j0 + TILED_KEYS > t.first;
                if (pass == OUTPUTS || (pass == WEIGHTS && visited && p.weights.type != ATTN_F32))
                    tiled_scores<R>(p, s, t, pass == OUTPUTS);
                if (pass == WEIGHTS) return tiled_weights<R>(p, s, t, visited);
                if (pass == UNIFORM) tiled_uniform<R>(p, s, t);
                else tiled_become_weights<R>(p, s, t, columns, m, out);
                tiled_add<TILED_KEYS, R>(out, s.weight, s.rows, values, t.j0, columns, false, values, 0);
            });
            if (pass != OUTPUTS) continue;
            tiled_masses<R>(s, m);
            tiled_rows_end<R>(p, s, t);
        }
        tiled_outside<R>(p, t);
        tiled_finish<R>(out, s.rows, columns, [&](int r, int64_t c, float value) {
            const int local = hw::thread() / 16 + 16 * r;
            const float inverse = s.rows_saved[local].inverse;
            if (t.i0 + local >= t.e.rows_end) return;
            if (p.carry_out.rank) store(p.carry_out, t.b, t.h, t.i0 + local, c, value);
            if (!p.out.rank) return;
            if (inverse >= 0.0f || is_nan(inverse)) value *= inverse;       /* else: zeros, or ATTN_EMPTY_UNIFORM's */
            else if (p.empty == ATTN_EMPTY_NAN) value = float_of(0x7fc00000u);
            store(p.out, t.b, t.h, t.i0 + local, c, value);
        });
    }
}

/* ---- the backward */

/* The gradients of the tile's weights into s.slope, as far as they come from the output */
template <bool PerKey> ATTN__DEVICE void tiled_d_weights(const params &p, tiled_grad_room &s, const tiled_tile &t)
{
    const tiled_source outs = tiled_queries(t, p.d_out);
    const tiled_source values = tiled_values(p, s, t);
    float d_weight[4][4];
    set_zero<4>(d_weight);
    ATTN__LOOP
    for (int64_t c0 = 0; p.d_out.rank && c0 < p.size_v; c0 += TILED_DEPTH) {
        float part[4][4];
        hw::sync();                                 /* everybody is done with the vectors */
        tiled_vectors<4>(s.pair.query[0], outs, t.i0, c0, p.size_v);
        tiled_vectors<4>(s.pair.key[0], values, t.j0, c0, p.size_v);
        hw::sync();
        set_zero<4>(part);
        tiled_products<TILED_DEPTH, 4>(part, s.pair.query[0], s.pair.key[0], tiled_line<4>);
        add_part<4>(d_weight, part);
    }
    tiled_put<PerKey, 4>(s.slope, d_weight);
}

/* with(r, k, w, j, slope) for each pair of the tile; what its rows have saved is in s.rows_saved. */
template <bool PerKey, class F>
ATTN__DEVICE void tiled_slopes(const tiled_params &p, tiled_grad_room &s, tiled_tile &t, F with)
{
    tiled_qk<PerKey, 4>(p, s, t);
    tiled_d_weights<PerKey>(p, s, t);
    each_pair<4>(p, s, t, [&](int r, int k, const row &w, int64_t j) {
        const float qk = s.weight[tiled_slot<4, PerKey>(r, k)], d_weight = s.slope[tiled_slot<4, PerKey>(r, k)];
        const saved of = s.rows_saved[w.i - t.i0];
        const bool inside = w.r.first <= j && j < w.r.last && has_mass(of.inverse);
        with(r, k, w, j, inside ? slope_from(p, w, of, j, qk, d_weight) : no_slope());
    });
}

/* What a pair's gradient is when it meets a key, or a query: of the raw score or, of distances, as pull_of has it. */
ATTN__DEVICE float factor_of(const params &p, const row &w, const slope &x)
{
    return !x.counts ? -0.0f : (is_distance(p.score) ? pull_of(p, w, x) : x.raw) + 0.0f;
}

/* Additive scores. With r = 1/(e^2q e^2k + 1) = (1 - tanh)/2, for a unit

       d(W_q q + b) = 4 scale w sum over keys of dS (r - r^2)        dw = scale (sum of dS - 2 sum of dS r)

   and likewise for keys; two units share one reciprocal. These sums grow in the workspace tile by tile, each number in
   the hands of one thread, so that h may be anything.

   Sums over the other side of the tile, for 4 vectors and 2 units of this thread: dS (r - r^2), and of rows dS r. */
template <bool Keys, bool Clear>
ATTN__DEVICE void additive_sums(const tiled_grad_room &s, float (&slopes)[4][2], float (&quotients)[4][2])
{
    const int ty = hw::thread() / 16, tx = hw::thread() % 16, others = 64;
    float own[4][2];
    ATTN__UNROLL
    for (int n = 0; n < 4; n++)
        ATTN__UNROLL
        for (int x = 0; x < 2; x++) {
            own[n][x] = (Keys ? s.pair.key : s.pair.query)[tx + 16 * x][ty * 4 + n];
            slopes[n][x] = quotients[n][x] = 0.0f;
        }
    for (int o = 0; o < others; o++) {
        const int at = o % 16 * 4 + o / 16;
        const float other0 = Keys ? s.pair.query[tx][at] : s.pair.key[tx][at];
        const float other1 = Keys ? s.pair.query[tx + 16][at] : s.pair.key[tx + 16][at];
        ATTN__UNROLL
        for (int n = 0; n < 4; n++) {
            const float ds = s.slope[o * tiled_line<4> + ty * 4 + n];
            float r[2];
            if (Clear) {                            /* an excluded pair adds 0, for all numbers are finite */
                const float x = hw::fma(own[n][0], other0, 1.0f), y = hw::fma(own[n][1], other1, 1.0f);
                const float inverse = hw::rcp(x * y);
                r[0] = y * inverse;
                r[1] = x * inverse;
            } else {
                if (bits_of(ds) == 0x80000000u) continue;
                r[0] = hw::fma(-0.5f, tanhf(own[n][0] + other0), 0.5f);
                r[1] = hw::fma(-0.5f, tanhf(own[n][1] + other1), 0.5f);
            }
            ATTN__UNROLL
            for (int x = 0; x < 2; x++) {
                slopes[n][x] = hw::fma(ds, hw::fma(-r[x], r[x], r[x]), slopes[n][x]);
                if (!Keys) quotients[n][x] = hw::fma(ds, r[x], quotients[n][x]);
            }
        }
    }
}

/* The tile's part of what belongs to its rows, or to its keys, from dS in s.slope. vector and quotient point to the
   first of them, or are NULL. */
template <bool Keys>
ATTN__DEVICE void additive_add(const tiled_params &p, tiled_grad_room &s, const tiled_tile &t, float *vector,
                               float *quotient)
{
    const int ty = hw::thread() / 16, tx = hw::thread() % 16;
    const int64_t count = Keys ? t.e.keys_end - t.j0 : t.e.rows_end - t.i0;
    for (int64_t u0 = 0; u0 < p.size_u; u0 += TILED_DEPTH) {
        float slopes[4][2], quotients[4][2];
        tiled_load(p, s, t, u0);
        if (t.clear) additive_sums<Keys, true>(s, slopes, quotients);
        else additive_sums<Keys, false>(s, slopes, quotients);
        ATTN__UNROLL
        for (int n = 0; n < 4; n++)
            ATTN__UNROLL
            for (int x = 0; x < 2; x++) {
                const int64_t u = u0 + tx + 16 * x, at = (ty + 16 * n) * p.size_u + u;
                if (u >= p.size_u || ty + 16 * n >= count) continue;
                if (vector && slopes[n][x] != 0.0f)         /* 0 is not to meet a w that is not finite */
                    vector[at] = hw::fma(4.0f * p.scale * s.pair.w[tx + 16 * x], slopes[n][x], vector[at]);
                if (quotient) quotient[at] += quotients[n][x];
            }
    }
}

/* Sets what belongs to the tile's rows to 0, by the threads that will add to it. */
ATTN__DEVICE void additive_clear_rows(const tiled_params &p, const tiled_tile &t, float *vector, float *quotient)
{
    const int ty = hw::thread() / 16, tx = hw::thread() % 16;
    for (int64_t u = tx; u < p.size_u; u += 16)
        ATTN__UNROLL
        for (int r = 0; r < 4; r++) {
            const int64_t at = (ty + 16 * r) * p.size_u + u;
            if (t.i0 + ty + 16 * r >= t.e.rows_end) continue;
            if (vector) vector[at] = 0.0f;
            if (quotient) quotient[at] = 0.0f;
        }
}

/* What was saved of the tile's rows; a barrier has to come before it is used. */
ATTN__DEVICE void tiled_recall(const tiled_params &p, tiled_grad_room &s, const tiled_tile &t)
{
    saved of = {0.0f, 0.0f, 0.0f};
    if (hw::thread() >= 64) return;
    if (t.i0 + hw::thread() < t.e.rows_end) of = saved_of(p, tiled_row<4>(p, s, t, hw::thread()));
    s.rows_saved[hw::thread()] = of;
}

/* What this thread has in `from`, added by rows */
ATTN__DEVICE void add_slots(float (&sum)[4], const float *from)
{
    ATTN__UNROLL
    for (int r = 0; r < 4; r++)
        ATTN__UNROLL
        for (int k = 0; k < 4; k++) sum[r] += from[tiled_slot<4, true>(r, k)];
}

/* The rows' masses, as the forward saved them, or again; what turns scores into weights is saved without a shift. */
ATTN__DEVICE void tiled_weighing(const tiled_params &p, tiled_grad_room &s, tiled_tile &t)
{
    tiled_mass m[4];
    no_masses<4>(m);
    each_tile(t, t.first, p.stats.rank ? 0 : t.last, [&] {
        float rescale[4];
        tiled_scores<4>(p, s, t, false);
        tiled_softmax<4>(s, m, rescale);
    });
    tiled_masses<4>(s, m);
    if (hw::thread() < 64) {
        const row w = tiled_row<4>(p, s, t, hw::thread());
        if (p.stats.rank && w.i < t.e.rows_end) {
            s.masses[hw::thread()].top = load(p.stats, w.b, w.h, w.i, 0);
            s.masses[hw::thread()].sum = load(p.stats, w.b, w.h, w.i, 1);
        }
        const norm of = norm_of(p, w, s.masses[hw::thread()]);
        s.rows_saved[hw::thread()].base = of.base;
        s.rows_saved[hw::thread()].inverse = of.inverse;
        s.rows_saved[hw::thread()].shift = 0.0f;
    }
    hw::sync();
}

/* What is saved of rows. */
ATTN__KERNEL(TILED_THREADS, 1) void tiled_grad_rows(ATTN__PARAM tiled_params p)
{
    ATTN__SHARED(memory);
    tiled_grad_room &s = *(tiled_grad_room *)memory;
    const int64_t all = batch_of_rows(p) * p.heads * tiles_of_head(p, 64);
    /* the sum of weight times gradient is the output times its gradient */
    const bool by_out = !p.d_weights.rank && (!p.d_out.rank || (p.out.rank && p.out.type == ATTN_F32));
    for (int64_t task = hw::block(); task < all; task += hw::blocks()) {
        tiled_tile t = nth_tile(p, task, 64);
        if (t.i0 >= t.e.rows_end) continue;
        float delta[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        tiled_reach<4>(p, s, t);
        tiled_weighing(p, s, t);
        each_tile(t, t.first, by_out ? 0 : t.last, [&] {
            tiled_slopes<true>(p, s, t, [&](int r, int k, const row &, int64_t, const slope &x) {
                s.slope[tiled_slot<4, true>(r, k)] = x.masked;
            });
            add_slots(delta, s.slope);
        });
        ATTN__UNROLL
        for (int r = 0; r < 4; r++) {
            const int local = hw::thread() / 16 + 16 * r;
            const bool reads = by_out && p.d_out.rank && t.i0 + local < t.e.rows_end &&
                               has_mass(s.rows_saved[local].inverse);
            for (int64_t c = hw::thread() % 16; reads && c < p.size_v; c += 16)
                delta[r] = hw::fma(load(p.d_out, t.b, t.h, t.i0 + local, c), load(p.out, t.b, t.h, t.i0 + local, c),
                                   delta[r]);
            delta[r] = row_sum(delta[r]);
            if (hw::thread() % 16 == 0) s.delta[local] = delta[r];
        }
        hw::sync();
        if (hw::thread() >= 64) continue;
        const row w = tiled_row<4>(p, s, t, hw::thread());
        if (w.i < t.e.rows_end) save_row(p, w, norm_of(p, w, s.masses[hw::thread()]), s.delta[hw::thread()]);
    }
}

/* A row's sums over its keys, as far as this thread has them: of slopes, and the gradient of scale (of distances:
   sigma) */
struct tiled_row_sums { float slopes[4], shape[4]; };
/* A pair's part of them */
ATTN__DEVICE float shape_of(const params &p, const row &w, const slope &x)
{
    if (!x.counts || p.score == ATTN_SCORE_BOXCAR) return 0.0f;
    return is_distance(p.score) ? pull_of(p, w, x) * (x.qk / sqrtf(w.width)) : x.raw * x.qk;
}

/* The end of a row's gradients. vector, quotient: of additive scores, the first of the tile */
ATTN__DEVICE void tiled_finish_row(const tiled_params &p, const row &w, int local, float slopes, float shape,
                                   float alibi, const float *vector, float *quotient)
{
    if (hw::thread() % 16 == 0) {
        p.row_scale[w.n] = is_distance(p.score) ? 0.0f : shape;
        p.row_sigma[w.n] = is_distance(p.score) ? shape : 0.0f;
        p.row_alibi[w.n] = alibi;
    }
    for (int64_t u = hw::thread() % 16; is_additive(p) && u < p.size_u; u += 16) {
        const int64_t at = local * p.size_u + u;
        if (quotient) quotient[at] = p.scale * hw::fma(-2.0f, quotient[at], slopes);
        if (p.dq.rank && !p.w_q.rank) store_gradient(p, p.dq, ATTN_GRAD_Q, w.b, w.h, w.i, u, vector[at]);
    }
}

/* A number of a row's gradient: of q, or of q M where scores are bilinear. */
ATTN__DEVICE void tiled_finish_query(const tiled_params &p, const row &w, bool alive, float by_scale, int64_t c,
                                     float value)
{
    if (p.row_vector) p.row_vector[w.n * p.size_u + c] = value;
    if (!p.dq.rank || p.score == ATTN_SCORE_BILINEAR) return;               /* not yet */
    if (p.score == ATTN_SCORE_COSINE) {                                     /* only what is not along q */
        const float norm = p.query_norm[w.n];
        value = alive ? norm * hw::fma(-by_scale, load(p.q, w.b, w.h, w.i, c) * norm, value) : 0.0f;
    }
    store_gradient(p, p.dq, ATTN_GRAD_Q, w.b, w.h, w.i, c, is_distance(p.score) ? value : p.scale * value);
}

/* What belongs to queries: dq or what belongs to prepared queries, given scores, a row's part of scale, sigma and
   ALiBi. */
ATTN__KERNEL(TILED_THREADS, 1) void tiled_grad_queries(ATTN__PARAM tiled_params p)
{
    ATTN__SHARED(memory);
    tiled_grad_room &s = *(tiled_grad_room *)memory;
    const int64_t all = batch_of_rows(p) * p.heads * tiles_of_head(p, 64);
    const int64_t columns = !is_additive(p) && has_vectors(p.score) && (p.dq.rank || p.row_vector) ? p.size_u : 0;
    const bool all_given = p.d_given_scores.rank && !(p.accumulate & ATTN_GRAD_GIVEN_SCORES);
    float *const workspace = tiled_memory_of(p).sums + hw::block() * tiled_floats(columns, 4);
    for (int64_t task = hw::block(); task < all; task += hw::blocks()) {
        tiled_tile t = nth_tile(p, task, 64);
        if (t.i0 >= t.e.rows_end) continue;
        const int64_t row0 = (first_row(p, t.b, t.h) + t.i0) * p.size_u;
        float *const vector = is_additive(p) && p.row_vector ? p.row_vector + row0 : NULL;
        float *const quotient = p.row_tanh ? p.row_tanh + row0 : NULL;
        tiled_sums<4> dq;
        tiled_row_sums sums = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
        tiled_reach<4>(p, s, t);
        tiled_recall(p, s, t);
        const tiled_source queries = tiled_queries(t, p.query);
        tiled_source keys = tiled_keys(p, s, t, p.key, key_head(p, t.h));
        if (p.key_norm) keys.factor = p.key_norm + first_key(p, t.b, p.heads_kv, keys.h);
        tiled_start<4>(dq, columns, workspace);
        if (is_additive(p)) additive_clear_rows(p, t, vector, quotient);
        for (int r = 0; r < 4; r++) s.alibi[r][hw::thread()] = 0.0f;
        each_tile(t, all_given ? t.e.key0 : t.first, all_given ? t.e.keys_end : t.last, [&] {
            tiled_slopes<true>(p, s, t, [&](int r, int k, const row &w, int64_t j, const slope &x) {
                const int slot = tiled_slot<4, true>(r, k);
                s.slope[slot] = factor_of(p, w, x);
                s.weight[slot] = shape_of(p, w, x);
                if (p.alibi.rank && x.counts)
                    s.alibi[r][hw::thread()] = hw::fma(-x.masked, distance_of(w.r, j), s.alibi[r][hw::thread()]);
                if (p.d_given_scores.rank && w.i < t.e.rows_end && j < t.e.keys_end && (all_given || x.counts))
                    store_gradient(p, p.d_given_scores, ATTN_GRAD_GIVEN_SCORES, w.b, w.h, w.i, j, x.raw * p.scale);
            });
            add_slots(sums.shape, s.weight);
            if (is_additive(p)) add_slots(sums.slopes, s.slope);
            if (vector || quotient) additive_add<false>(p, s, t, vector, quotient);
            tiled_add<TILED_KEYS, 4>(dq, s.slope, s.rows, keys, t.j0, columns, is_distance(p.score), queries, t.i0);
        });
        if (all_given) tiled_outside<4>(p, t);
        ATTN__UNROLL
        for (int r = 0; r < 4; r++) {
            const int local = hw::thread() / 16 + 16 * r;
            const row w = tiled_row<4>(p, s, t, local);
            sums.slopes[r] = row_sum(sums.slopes[r]);
            sums.shape[r] = row_sum(sums.shape[r]);
            const float alibi = row_sum(s.alibi[r][hw::thread()]);
            if (w.i < t.e.rows_end)
                tiled_finish_row(p, w, local, sums.slopes[r], sums.shape[r], alibi, vector, quotient);
        }
        tiled_finish<4>(dq, s.rows, columns, [&](int r, int64_t c, float value) {
            const row w = tiled_row<4>(p, s, t, hw::thread() / 16 + 16 * r);
            const bool alive = has_mass(s.rows_saved[w.i - t.i0].inverse);
            if (w.i < t.e.rows_end) tiled_finish_query(p, w, alive, sums.shape[r], c, value);
        });
    }
}

/* Behind the last key of the tile that has gradients, be they 0 because it is in no entry */
ATTN__DEVICE int64_t written_keys_end(const params &p, const tiled_tile &t)
{
    return p.packed_keys ? t.e.keys_end : t.j0 < t.e.key0 ? t.e.key0 : p.keys;
}

/* The gradients of the tile's keys. */
ATTN__DEVICE void tiled_finish_keys(const tiled_params &p, tiled_grad_room &s, const tiled_tile &t, int64_t hkv,
                                    int64_t columns, tiled_sums<4> &dk)
{
    const int64_t first = first_key(p, t.b, p.heads_kv, hkv), key = t.j0 + hw::thread() / 16;
    const int64_t end = written_keys_end(p, t);
    const bool cosine = p.score == ATTN_SCORE_COSINE;
    float along[4] = {0.0f, 0.0f, 0.0f, 0.0f}, size[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    /* cosine: only what is not along k; a key that nobody attends to is not read */
    const auto unit = [&](int64_t j, int64_t c) { return load(p.k, t.b, hkv, j, c) * p.key_norm[first + j]; };
    tiled_finish<4>(dk, s.rows, cosine ? columns : 0, [&](int n, int64_t c, float value) {
        const int64_t j = key + 16 * n;
        if (j >= end || value == 0.0f) return;
        size[n] += magnitude(value);
        along[n] = hw::fma(value, unit(j, c), along[n]);
    });
    ATTN__UNROLL
    for (int n = 0; n < 4; n++) {
        along[n] = row_sum(along[n]);
        size[n] = row_sum(size[n]);
    }
    tiled_finish<4>(dk, s.rows, columns, [&](int n, int64_t c, float value) {
        const int64_t j = key + 16 * n;
        if (j >= end) return;
        if (cosine && size[n] != 0.0f) value = p.key_norm[first + j] * hw::fma(-along[n], unit(j, c), value);
        store_gradient(p, p.dk, ATTN_GRAD_K, t.b, hkv, j, c, is_distance(p.score) ? value : p.scale * value);
    });
}

/* Additive scores: what belongs to the tile's keys, of all heads that have keys of their own, starts as 0; grows by a
   tile of queries; is the gradient of the keys where these are not projected. */
ATTN__DEVICE void additive_clear_keys(const tiled_params &p, const tiled_tile &t, int64_t hkv)
{
    const int64_t heads = p.key_heads / p.heads_kv, end = written_keys_end(p, t);
    for (int64_t head = hkv * heads; head < (hkv + 1) * heads; head++)
        for (int64_t j = t.j0 + hw::thread() / 16; j < t.j0 + TILED_KEYS && j < end; j += 16) {
            const int64_t key = first_key(p, t.b, p.key_heads, head) + j;
            if (hw::thread() % 16 == 0) p.key_reached[key] = -0.0f;
            for (int64_t u = hw::thread() % 16; u < p.size_u; u += 16) p.key_vector[key * p.size_u + u] = 0.0f;
        }
}
ATTN__DEVICE void additive_add_keys(const tiled_params &p, tiled_grad_room &s, const tiled_tile &t)
{
    const int64_t key = first_key(p, t.b, p.key_heads, key_head(p, t.h)) + t.j0;
    const int own = hw::thread() % 16 * 4 + hw::thread() / 16;
    additive_add<true>(p, s, t, p.key_vector + key * p.size_u, NULL);
    hw::sync();                                     /* the slopes are there, were there no units */
    for (int i = 0; hw::thread() < TILED_KEYS && i < 64; i++)
        if (bits_of(s.slope[i * tiled_line<4> + own]) != 0x80000000u) p.key_reached[key + hw::thread()] = 1.0f;
}
ATTN__DEVICE void additive_finish_keys(const tiled_params &p, const tiled_tile &t, int64_t hkv)
{
    const int64_t end = written_keys_end(p, t);
    for (int64_t j = t.j0 + hw::thread() / 16; j < t.j0 + TILED_KEYS && j < end; j += 16)
        for (int64_t u = hw::thread() % 16; p.dk.rank && !p.w_k.rank && u < p.size_u; u += 16)
            store_gradient(p, p.dk, ATTN_GRAD_K, t.b, hkv, j, u,
                           p.key_vector[(first_key(p, t.b, p.key_heads, hkv) + j) * p.size_u + u]);
}

/* The weights of the tile, after dropout, and what its pairs' gradients are, a line per query. */
ATTN__DEVICE void tiled_pairs(const tiled_params &p, tiled_grad_room &s, tiled_tile &t)
{
    tiled_recall(p, s, t);
    tiled_slopes<false>(p, s, t, [&](int r, int k, const row &w, int64_t j, const slope &x) {
        const int slot = tiled_slot<4, false>(r, k);
        float weight = x.counts ? x.weight : -0.0f;
        if (s.rows_saved[w.i - t.i0].inverse < 0.0f && w.i < t.e.rows_end && j < t.e.keys_end)  /* ATTN_EMPTY_UNIFORM */
            weight = kept(p, w, j, uniform_weight(t));
        s.weight[slot] = weight;
        s.slope[slot] = factor_of(p, w, x);
    });
}

/* What belongs to keys, of all heads that share them: dk, or what belongs to prepared keys, and dv. */
ATTN__KERNEL(TILED_THREADS, 1) void tiled_grad_keys(ATTN__PARAM tiled_params p)
{
    ATTN__SHARED(memory);
    tiled_grad_room &s = *(tiled_grad_room *)memory;
    const int64_t tiles = tiles_of_keys(p), all = batch_of_keys(p) * p.heads_kv * tiles;
    const int64_t group = p.heads / p.heads_kv;
    const int64_t columns_v = p.dv.rank && p.d_out.rank ? p.size_v : 0;
    const int64_t columns_k = !is_additive(p) && p.dk.rank ? p.size_u : 0;
    const int64_t pulled = has_vectors(p.score) ? columns_k : 0;        /* the gradients of the others are 0 */
    const int64_t floats_v = tiled_floats(p.size_v, 4);
    float *const workspace = tiled_memory_of(p).sums + hw::block() * (floats_v + tiled_floats(p.size_u, 4));
    for (int64_t task = hw::block(); task < all; task += hw::blocks()) {
        const int64_t hkv = task / tiles % p.heads_kv;
        const tiled_span of = nth_span<true>(p, task / tiles / p.heads_kv, task % tiles, TILED_KEYS);
        if (of.first >= of.end) continue;
        tiled_tile t = tile_of_entry(p, of.b, 0);
        t.j0 = of.first;
        tiled_sums<4> dk, dv;
        tiled_start<4>(dv, p.dv.rank ? p.size_v : 0, workspace);
        tiled_start<4>(dk, columns_k, workspace + floats_v);
        if (p.key_vector) additive_clear_keys(p, t, hkv);
        const bool some = (columns_v || pulled || p.key_vector) && t.e.key0 <= t.j0 && t.j0 < t.e.keys_end;
        for (t.h = hkv * group; some && t.h < (hkv + 1) * group; t.h++)
            each_tile_of_rows(p, t, [&] {
                tiled_source queries = tiled_queries(t, p.query);
                tiled_reach<4>(p, s, t);
                if (p.empty != ATTN_EMPTY_UNIFORM && (t.first >= t.j0 + TILED_KEYS || t.last <= t.j0)) return;
                const tiled_source outs = tiled_queries(t, p.d_out), keys = tiled_keys(p, s, t, p.key, hkv);
                if (p.query_norm) queries.factor = p.query_norm + first_row(p, t.b, t.h);
                tiled_pairs(p, s, t);
                tiled_add<64, 4>(dv, s.weight, s.rows, outs, t.i0, columns_v, false, keys, t.j0);
                tiled_add<64, 4>(dk, s.slope, s.rows, queries, t.i0, pulled, is_distance(p.score), keys, t.j0);
                if (p.key_vector) additive_add_keys(p, s, t);
            });
        tiled_finish<4>(dv, s.rows, p.dv.rank ? p.size_v : 0, [&](int n, int64_t c, float value) {
            const int64_t j = t.j0 + hw::thread() / 16 + 16 * n;
            if (j < written_keys_end(p, t)) store_gradient(p, p.dv, ATTN_GRAD_V, t.b, hkv, j, c, value);
        });
        if (is_additive(p)) additive_finish_keys(p, t, hkv);
        else tiled_finish_keys(p, s, t, hkv, columns_k, dk);
    }
}

/* The elements of d_bias that the block has summed, each in its pair's place; along an axis of size 1 all in one. */
ATTN__DEVICE void tiled_finish_bias(const params &p, tiled_grad_room &s, const float (&sum)[4][4], int64_t b,
                                    int64_t h, int64_t i0, int64_t j0)
{
    const int rows = p.bias_size[2] == 1 ? 1 : 64, columns = p.bias_size[3] == 1 ? 1 : (int)TILED_KEYS;
    hw::sync();
    tiled_put<false, 4>(s.slope, sum);
    hw::sync();
    for (int n = hw::thread(); n < rows * columns; n += TILED_THREADS) {
        const int row0 = n / columns, key0 = n % columns;
        chains total_of = no_terms();
        if (i0 + row0 >= p.bias_size[2] || j0 + key0 >= p.bias_size[3]) continue;
        for (int i = row0; i < (rows == 1 ? 64 : row0 + 1); i++)
            for (int j = key0; j < (columns == 1 ? (int)TILED_KEYS : key0 + 1); j++)
                add(total_of, s.slope[i * tiled_line<4> + j % 16 * 4 + j / 16], 1.0f);
        store_gradient(p, p.d_bias, ATTN_GRAD_BIAS, b, h, i0 + row0, j0 + key0, total(total_of));
    }
}

/* d_bias: a block has the tile of elements, or the row or column of them, that a tile of pairs adds to; it goes over
   all pairs that do. */
ATTN__KERNEL(TILED_THREADS, 1) void tiled_grad_bias(ATTN__PARAM tiled_params p)
{
    ATTN__SHARED(memory);
    tiled_grad_room &s = *(tiled_grad_room *)memory;
    const int64_t *size = p.bias_size;
    const int64_t tiles_i = (size[2] + 63) / 64, tiles_j = (size[3] + 63) / 64;
    const int64_t all = size[0] * size[1] * tiles_i * tiles_j;
    const int64_t end_b = size[0] == 1 ? p.batch : 1, end_h = size[1] == 1 ? p.heads : 1;   /* so many are added */
    const bool rows = size[2] == 1, columns = size[3] == 1;
    for (int64_t task = hw::block(); task < all; task += hw::blocks()) {
        const int64_t j0 = task % tiles_j * TILED_KEYS, i0 = task / tiles_j % tiles_i * 64;
        const int64_t h0 = task / tiles_j / tiles_i % size[1], b0 = task / tiles_j / tiles_i / size[1];
        float sum[4][4];
        set_zero<4>(sum);
        for (int64_t b = b0; b < b0 + end_b; b++) {
            tiled_tile t = tile_of_entry(p, b, h0);
            for (; t.h < h0 + end_h; t.h++)
                for (t.i0 = rows ? t.e.row0 : i0; t.i0 < (rows ? t.e.rows_end : i0 + 1); t.i0 += 64) {
                    tiled_reach<4>(p, s, t);
                    tiled_recall(p, s, t);
                    ATTN__LOOP
                    for (t.j0 = columns ? t.e.key0 : j0; t.j0 < (columns ? t.last : j0 + 1); t.j0 += TILED_KEYS) {
                        if (t.first >= t.j0 + TILED_KEYS || t.last <= t.j0) continue;
                        tiled_slopes<true>(p, s, t, [&](int r, int k, const row &, int64_t, const slope &x) {
                            s.slope[tiled_slot<4, true>(r, k)] = x.masked;
                        });
                        ATTN__UNROLL
                        for (int r = 0; r < 4; r++)
                            ATTN__UNROLL
                            for (int k = 0; k < 4; k++) sum[r][k] += s.slope[tiled_slot<4, true>(r, k)];
                    }
                }
        }
        tiled_finish_bias(p, s, sum, b0, h0, i0, j0);
    }
}

/* ---- matrix products with many elements: a block has 64 rows by 64 columns of a result. An element of one head is
   summed as `multiply` does, so it has the same bits. */
struct tiled_multiply_room {
    float left[TILED_DEPTH][tiled_line<4>], right[TILED_DEPTH][tiled_line<4>];
    bool  row_reads[64];
};

/* Their sum over one head of a batch entry. Returns whether a number on the right is not finite, or nearly so. */
ATTN__DEVICE bool tiled_multiply_head(const product &m, tiled_multiply_room &s, int64_t b, int64_t h, int64_t r0,
                                      int64_t c0, float (&sum)[4][4])
{
    const tiled_source left = {m.a, b, h / m.a_shares, 0, m.rows, NULL, m.row_flag.rank ? s.row_reads : NULL,
                               NULL, NULL};
    const attn__array columns = {m.b.data, {m.b.stride[0], m.b.stride[1], m.b.stride[3], m.b.stride[2]}, m.b.type, 4};
    const tiled_source right = {columns, b, h / m.b_shares, 0, m.columns, NULL, NULL, NULL, NULL};
    bool nonfinite = false;
    ATTN__LOOP
    for (int64_t k0 = 0; k0 < m.depth; k0 += 64) {                  /* a chain */
        float part[4][4];
        set_zero<4>(part);
        ATTN__LOOP
        for (int64_t k = k0; k < k0 + 64 && k < m.depth; k += TILED_DEPTH) {
            hw::sync();                             /* everybody is done with what is there */
            tiled_vectors<4>(s.left[0], left, r0, k, m.depth);
            nonfinite = tiled_vectors<4>(s.right[0], right, c0, k, m.depth) || nonfinite;
            hw::sync();
            tiled_products<TILED_DEPTH, 4>(part, s.left[0], s.right[0], tiled_line<4>);
        }
        add_part<4>(sum, part);
    }
    return nonfinite;
}

ATTN__KERNEL(TILED_THREADS, 1) void tiled_multiply(ATTN__PARAM product m)
{
    ATTN__SHARED(memory);
    tiled_multiply_room &s = *(tiled_multiply_room *)memory;
    const int64_t tiles_r = (m.rows + 63) / 64, tiles_c = (m.columns + 63) / 64;
    const int64_t all = m.out_batch[0] * m.out_batch[1] * tiles_r * tiles_c, group = m.batch[1] / m.out_batch[1];
    for (int64_t task = hw::block(); task < all; task += hw::blocks()) {
        const int64_t c0 = task % tiles_c * 64, r0 = task / tiles_c % tiles_r * 64;
        const int64_t y = task / tiles_c / tiles_r % m.out_batch[1], x = task / tiles_c / tiles_r / m.out_batch[1];
        const int64_t end = m.out_batch[0] == 1 ? m.batch[0] : x + 1;
        float sum[4][4];
        bool nonfinite = false;
        set_zero<4>(sum);
        hw::sync();
        if (m.row_flag.rank && hw::thread() < 64)
            s.row_reads[hw::thread()] = r0 + hw::thread() < m.rows && is_flagged(m.row_flag, x, y, r0 + hw::thread());
        for (int64_t b = m.out_batch[0] == 1 ? 0 : x; b < end; b++)
            for (int64_t h = y * group; h < (y + 1) * group; h++)
                nonfinite = tiled_multiply_head(m, s, b, h, r0, c0, sum) || nonfinite;
        const bool again = hw::barrier_or(0, TILED_THREADS, nonfinite && m.skip);   /* some terms may not count */
        const int64_t own_r = r0 + hw::thread() / 16, own_c = c0 + hw::thread() % 16;
        ATTN__UNROLL
        for (int n = 0; n < 16; n++) {
            const int64_t r = own_r + n / 4 * 16, c = own_c + n % 4 * 16;
            const bool reads = !m.row_flag.rank || s.row_reads[r - r0];
            if (!again && r < m.rows && c < m.columns) store_product(m, x, y, r, c, reads ? sum[n / 4][n % 4] : 0.0f);
        }
        ATTN__LOOP
        for (int n = 0; again && n < 16; n++) {
            const int64_t r = own_r + n / 4 * 16, c = own_c + n % 4 * 16;
            if (r < m.rows && c < m.columns) store_product(m, x, y, r, c, sum_of_terms(m, x, y, r, c, 0, 1));
        }
    }
}

/* --------------------------------------------------------------------------------------------------------- >>mma
   Stage 2: 16-bit types, and f32 in parts, on the tensor cores of a warp, sm_80 and up; its tiles, its softmax and its
   guarded products serve stage 3 too.

   A warp has 16 rows of a product, or two blocks of 16. In an accumulator of 16 rows and N columns a thread holds rows
   g and g+8 (g = lane/4), of each 8 columns the two at 2t (t = lane%4): s[4j], s[4j+1] of row g, s[4j+2], s[4j+3] of
   row g+8, columns 8j+2t and 8j+2t+1. "Its two rows" below are these. Two such blocks of 8 columns are, packed, the
   left operand of the next product: weights need not leave the registers.

   D of a kernel and of a tile counts columns of 16 bits. A row of f32 has half as many numbers: its kernels are those
   of twice the head size, and to copy its rows p.q, p.k, p.v, p.d_out, p.size_q and p.size_v count halves, too
   (as_halves). */
template <class T> constexpr int halves_each = T::is_f32 ? 2 : 1;

/* ---- tiles in shared memory, as TMA lays them: panels of 64 columns, one after the other; in a panel rows of 128
   bytes whose eight 16-byte chunks are exchanged by the row's number, so that neither rows nor columns meet in one
   bank. */
ATTN__DEVICE uint32_t chunk_of(int row, int chunk, int rows)    /* chunk: 8 columns; rows: of the whole tile */
{
    return (uint32_t)(chunk / 8 * rows * 128 + row * 128 + ((chunk % 8) ^ (row % 8)) * 16);
}
template <int Rows, int Columns> constexpr int tile_bytes = Rows * ((Columns + 63) / 64) * 128;
/* The same tile for wgmma (its start 1024-byte aligned; in units of 16 bytes), and what to add for the next 16 columns
   or, where the operand is transposed, rows: the low half of a descriptor. The high half is the same for all tiles. */
ATTN__DEVICE uint32_t wgmma_tile(uint32_t address, int rows)
{
    return (address & 0x3ffff) >> 4 | (uint32_t)(rows * 128 >> 4) << 16;
}
ATTN__DEVICE uint32_t tile_address(uint32_t tile) { return (tile & 0x3fff) << 4; }
ATTN__DEVICE uint32_t wgmma_along(int k, int rows) { return (uint32_t)(k / 4 * (rows * 128 >> 4) + k % 4 * 2); }
ATTN__DEVICE uint32_t wgmma_down(int k) { return (uint32_t)(k * (16 * 128 >> 4)); }
ATTN__DEVICE uint64_t wgmma_desc(uint32_t tile) { return tile | (uint64_t)(1024 >> 4) << 32 | 1ull << 62; }

/* The threads that copy a tile, and their barrier: a block or, where each warp has tiles of its own, a warp. */
template <int Threads, bool Anew = false> ATTN__DEVICE int tile_thread()
{
    if (Anew) return Threads == 32 ? hw::lane_anew() : hw::thread_anew();
    return Threads == 32 ? hw::lane() : hw::thread();
}
template <int Threads> ATTN__DEVICE void sync_tile()
{
    if (Threads == 32) hw::sync_warp();
    else hw::sync();
}

/* Starts to copy a tile of D columns; row_at(r) is where a row lies, NULL for a row of zeros. Of D columns `columns`
   exist, the others are zeros. */
template <int D, int Rows, int Threads, class F>
ATTN__DEVICE void copy_tile(uint32_t tile, const void *somewhere, int64_t columns, F row_at)
{
    ATTN__LOOP for (int n = tile_thread<Threads>(); n < Rows * (D / 8); n += Threads) {
        const int row = n / (D / 8), chunk = n % (D / 8);
        const uint16_t *from = row_at(row);
        const bool inside = from && chunk * 8 < columns;
        hw::cp_async(tile + chunk_of(row, chunk, Rows), inside ? from + chunk * 8 : somewhere, inside);
    }
}
ATTN__DEVICE const uint16_t *row_of(const attn__array &a, int64_t b, int64_t h, int64_t i)
{
    return (const uint16_t *)a.data + place(a, b, h, i, 0);
}

/* Operands of mma from such a tile. Left: rows row.., columns 16k... Right: two blocks of 8 columns of the product,
   r[0] and r[1], r[2] and r[3]; their numbers lie along rows of the tile (rows n.., columns 16k..), or down its columns
   (rows 16k.., columns n..). Anew: registers are few. */
template <bool Anew = false>
ATTN__DEVICE void load_left(uint32_t (&a)[4], uint32_t tile, int rows, int row, int k)
{
    const int l = Anew ? hw::lane_anew() : hw::lane();
    hw::ldmatrix(a, tile + chunk_of(row + l % 16, 2 * k + l / 16, rows));
}
template <bool Anew = false>
ATTN__DEVICE void load_right(uint32_t (&b)[4], uint32_t tile, int rows, int n, int k)
{
    const int l = Anew ? hw::lane_anew() : hw::lane();
    hw::ldmatrix(b, tile + chunk_of(n + l % 8 + l / 16 * 8, 2 * k + l / 8 % 2, rows));
}
/* The same by a lane's address for the first of a tile's operands, n rows and 16k columns further; or n columns and 16k
   rows. A tile's start is aligned, so what exchanges chunks can be exchanged in the address. */
ATTN__DEVICE uint32_t left_address(uint32_t tile, int rows, int row, int l)
{
    return tile + chunk_of(row + l % 16, l / 16, rows);
}
ATTN__DEVICE uint32_t right_address(uint32_t tile, int rows, int l)
{
    return tile + chunk_of(l % 8 + l / 16 * 8, l / 8 % 2, rows);
}
ATTN__DEVICE void load_along(uint32_t (&r)[4], uint32_t address, int rows, int n, int k)
{
    hw::ldmatrix(r, (address ^ k % 4 * 32) + k / 4 * rows * 128 + n * 128);
}
ATTN__DEVICE uint32_t down_address(uint32_t tile, int rows, int l) { return tile + chunk_of(l % 16, l / 16, rows); }
ATTN__DEVICE void load_down(uint32_t (&r)[4], uint32_t address, int rows, int n, int k)
{
    hw::ldmatrix_transposed(r, (address ^ n / 8 % 8 * 16) + n / 64 * rows * 128 + k * 16 * 128);
}

ATTN__DEVICE void load_left_down(uint32_t (&a)[4], uint32_t tile, int rows, int column, int k)  /* its rows: column.. */
{
    const int l = hw::lane();
    hw::ldmatrix_transposed(a, tile + chunk_of(16 * k + l % 8 + l / 16 * 8, column / 8 + l / 8 % 2, rows));
}

/* The numbers of a warp with one block of 16 rows as those of a warp with several */
template <class Number, int N> ATTN__DEVICE Number (&one_block(Number (&of)[N]))[1][N]
{
    return reinterpret_cast<Number (&)[1][N]>(of);
}

/* columns 16k.. of an accumulator as a left operand */
template <class T> ATTN__DEVICE void pack_left(uint32_t (&a)[4], const float *s, int k)
{
    ATTN__UNROLL for (int i = 0; i < 4; i++) a[i] = hw::pack<T>(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
}

/* ---- the NaN guard: products d += s . tile, where s has weights, or gradients of scores, and an excluded pair has to
   keep out the numbers it is multiplied by. 0 times a number that is not finite is NaN, so a factor of 0 alone does
   not. An excluded pair has +0; one that is not excluded but vanishes has -0, which lets NaN through as any other
   number does (softmax_tile, drop_tile, pair_grad). A tile is nonfinite where some number of it is not finite.
       Where to look: only tiles at the edge of a mask have excluded pairs. There the forward looks at the tile of V
   (has_nonfinite; in stage 3 hopper_look). The backward need not: it has the products of all these rows, and where a
   row is nonfinite, so are its products (any_nonfinite). Stage 3 has looked beforehand (hopper_grad_prepare).
       What to do: where a pair that is not excluded has such a number as a factor, d becomes NaN (mark_nonfinite; in
   the forward of stage 3, where reaches alone exclude pairs and no weight is -0, mark_where; in the backward, where
   pairs lie in shared memory in 16 bits, mark_half). Then the product has zeros in place of these numbers:
   clear_nonfinite puts them into the tile, or, in stage 2's backward of up to 128 columns and for dq, add_product into
   its registers. A nonfinite tile at an edge is rare: this code is to be short and to cost the loops no
   registers. */
struct alignas(16) eight_halves { uint32_t pair[4]; };
template <class T> ATTN__DEVICE float half_of(uint32_t pair, int n)
{
    const uint16_t x = (uint16_t)(pair >> 16 * n);
    return T::is_bf16 ? hw::from_bf16(x) : hw::from_f16(x);
}

/* Which of two halves are not finite: the sign bits of those, into which an exponent of ones carries; or all bits. */
template <class T> ATTN__DEVICE uint32_t nonfinite_signs(uint32_t x)
{
    return ((x & 0x7fff7fffu) + (T::is_bf16 ? 0x00800080u : 0x04000400u)) & 0x80008000u;
}
/* A float that is not finite, or rounds to infinity where it is split (see split) */
ATTN__DEVICE bool has_no_parts(uint32_t x) { return (x & 0x7fffffffu) >= 0x7f7ff000u; }
template <class T> ATTN__DEVICE uint32_t halves_not_finite(uint32_t x)
{
    if (T::is_f32) return has_no_parts(x) ? ~0u : 0u;
    return (nonfinite_signs<T>(x) >> 15) * 0xffffu;
}

/* Threads of number `thread` of `threads` look at their share of a tile, so many chunks at once, or put zeros there. Of
   halves without their signs the largest tells. */
template <class T, int Rows, int D, int AtOnce = 1>
ATTN__DEVICE bool has_nonfinite(uint32_t tile, int thread, int threads)
{
    uint32_t r[AtOnce][4] = {}, largest = 0;
    ATTN__LOOP for (int first = thread; first < Rows * (D / 8); first += AtOnce * threads) {
        ATTN__UNROLL for (int k = 0; k < AtOnce; k++) {
            const int n = first + k * threads;
            if (n < Rows * (D / 8)) hw::load_shared(r[k], tile + chunk_of(n / (D / 8), n % (D / 8), Rows));
        }
        ATTN__UNROLL for (int i = 0; i < 4 * AtOnce; i++) {
            const uint32_t x = r[i / 4][i % 4];
            if (T::is_f32) largest = largest > (x & 0x7fffffffu) ? largest : x & 0x7fffffffu;
            else largest = hw::larger_halves(largest, x & 0x7fff7fffu);
        }
    }
    return T::is_f32 ? has_no_parts(largest) : nonfinite_signs<T>(largest) != 0;
}
template <class T, int Rows, int D> ATTN__DEVICE void clear_nonfinite(uint32_t tile, int thread, int threads)
{
    uint32_t r[4];
    ATTN__LOOP for (int n = thread; n < Rows * (D / 8); n += threads) {
        const uint32_t at = tile + chunk_of(n / (D / 8), n % (D / 8), Rows);
        hw::load_shared(r, at);
        ATTN__UNROLL for (int i = 0; i < 4; i++) {
            const uint32_t nonfinite = halves_not_finite<T>(r[i]);
            if (nonfinite) hw::store_shared(at + 4 * i, r[i] & ~nonfinite);
        }
    }
}

/* d 16xN becomes NaN where a pair that counts has what is not finite as a factor, in rows [first, last) of a tile of
   K, from a column on: find(key, counts) tells of a thread's two rows. One key after the other: this is rare, and must
   not cost the loop around it registers. */
template <class T, int N, int K, class F>
ATTN__DEVICE void mark_where(float (&d)[N / 2], uint32_t tile, int first, int last, F find, int column = 0)
{
    ATTN__LOOP for (int key = most(first, 0); key < least(last, K); key++) {
        bool counts[2];
        find(key, counts);
        ATTN__UNROLL for (int j = 0; j < N / 8; j++) {
            const uint32_t two = hw::load_shared_word(tile + chunk_of(key, column / 8 + j, K) + hw::lane() % 4 * 4);
            const uint32_t nonfinite = nonfinite_signs<T>(two) >> 15;
            ATTN__UNROLL for (int x = 0; x < 4; x++)
                if (counts[x / 2] && (nonfinite >> 16 * (x % 2) & 1)) d[4 * j + x] = float_of(0x7fc00000u);
        }
    }
}

/* The weights of a key in a thread's two rows, of s (16 rows, K columns) */
template <int K> ATTN__DEVICE void weights_of_key(float (&weight)[2], const float (&s)[K / 2], int key)
{
    weight[0] = weight[1] = 0.0f;
    ATTN__UNROLL for (int j = 0; j < K / 2; j++)
        if (j / 4 == key / 8 && j % 2 == key % 2) weight[j / 2 % 2] = s[j];
    ATTN__UNROLL for (int e = 0; e < 2; e++) weight[e] = hw::shfl(weight[e], hw::lane() / 4 * 4 + key % 8 / 2);
}
/* The same for the weights s: a pair counts whose weight is not +0. */
template <class T, int N, int K>
ATTN__DEVICE void mark_nonfinite(float (&d)[N / 2], const float (&s)[K / 2], uint32_t tile, int first, int last)
{
    mark_where<T, N, K>(d, tile, first, last, [&](int key, bool (&counts)[2]) {
        float weight[2];
        weights_of_key<K>(weight, s, key);
        ATTN__UNROLL for (int e = 0; e < 2; e++) counts[e] = bits_of(weight[e]) != 0;
    });
}
/* Of f32 such numbers are multiplied as they are, so that d has what f32 makes of them. all: of pairs with +0, too. */
template <int N, int K>
ATTN__DEVICE void add_without_parts(float (&d)[N / 2], const float (&s)[K / 2], uint32_t tile, int first, int last,
                                    bool all)
{
    const int t = hw::lane_anew() % 4;
    ATTN__LOOP for (int key = most(first, 0); key < least(last, K); key++) {
        float weight[2];
        weights_of_key<K>(weight, s, key);
        ATTN__UNROLL for (int j = 0; j < N / 8; j++) {
            uint32_t two[2];
            hw::load_shared(two, tile + chunk_of(key, 2 * j + t / 2, K) + t % 2 * 8);
            ATTN__UNROLL for (int x = 0; x < 4; x++) {
                const bool counts = has_no_parts(two[x % 2]) && (all || bits_of(weight[x / 2]) != 0);
                d[4 * j + x] = hw::fma(counts ? weight[x / 2] : 0.0f, counts ? float_of(two[x % 2]) : -0.0f,
                                       d[4 * j + x]);
            }
        }
    }
}

/* ---- f32 on tensor cores, which read 11 bits of a number: x is the sum of what they have of it, rounded, and of what
   is left, of which they miss the last bit at most (and what is below 2^-136). So a product is three of theirs; that of
   both rests, 2^-22 of it or less, is left out. The two small ones are summed apart, and so is each tile: tensor cores
   need not round their sums to nearest, so chains are short. Rounded by integers: one instruction more than cvt.rna,
   whose lower bits the manual leaves open.
       What has_no_parts becomes NaN. The products of rows then are made again without tensor cores (any_nonfinite
   finds them); in sums of weighted rows these numbers are kept out of the tile and added alone (add_without_parts). */
ATTN__DEVICE void split(uint32_t x, uint32_t &large, uint32_t &small)
{
    large = (x + 0x1000u) & 0xffffe000u;
    small = bits_of(float_of(x) - float_of(large));
}
/* large + small += a . b, of which a is split */
ATTN__DEVICE void mma_parts(float *large, float *small, const uint32_t (&a)[2][4], uint32_t b0, uint32_t b1)
{
    uint32_t b[2][2];
    split(b0, b[0][0], b[1][0]);
    split(b1, b[0][1], b[1][1]);
    hw::mma_tf32(small, a[1], b[0][0], b[0][1]);
    hw::mma_tf32(small, a[0], b[1][0], b[1][1]);
    hw::mma_tf32(large, a[0], b[0][0], b[0][1]);
}
/* product_of_rows of f32. The 16 bytes of a chunk are four numbers, so ldmatrix gives a lane column t of each. */
template <int N, int D, int RowsA, bool Anew>
ATTN__DEVICE void product_of_floats(float (&s)[N / 2], uint32_t left, int row, uint32_t right)
{
    float small[N / 2];
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) s[j] = small[j] = 0.0f;
    ATTN__UNROLL for (int k = 0; k < D / 16; k++) {
        uint32_t x[4], a[2][4], b[4];
        load_left<Anew>(x, left, RowsA, row, k);
        ATTN__UNROLL for (int i = 0; i < 4; i++) split(x[i], a[0][i], a[1][i]);
        ATTN__UNROLL for (int n = 0; n < N; n += 16) {
            load_right<Anew>(b, right, N, n, k);
            mma_parts(s + n / 2, small + n / 2, a, b[0], b[1]);
            mma_parts(s + n / 2 + 4, small + n / 2 + 4, a, b[2], b[3]);
        }
    }
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) s[j] += small[j];
}
/* Those of its products that are not finite, without tensor cores: rare and short */
template <int N, int D, int RowsA>
ATTN__DEVICE void product_without_parts(float (&s)[N / 2], uint32_t left, int row, uint32_t right)
{
    const int lane = hw::lane_anew(), g = lane / 4, t = lane % 4;
    float sum[N / 2];
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) sum[j] = 0.0f;
    ATTN__LOOP for (int c = 0; c < D / 2; c++) {
        float x[2];
        ATTN__UNROLL for (int e = 0; e < 2; e++)
            x[e] = float_of(hw::load_shared_word(left + chunk_of(row + g + 8 * e, c / 4, RowsA) + c % 4 * 4));
        ATTN__UNROLL for (int j = 0; j < N / 4; j++) {
            const int n = j / 2 * 8 + t * 2 + j % 2;
            const float y = float_of(hw::load_shared_word(right + chunk_of(n, c / 4, N) + c % 4 * 4));
            ATTN__UNROLL for (int e = 0; e < 2; e++) {
                float &to = sum[j / 2 * 4 + 2 * e + j % 2];
                to = hw::fma(x[e], y, to);
            }
        }
    }
    ATTN__UNROLL for (int j = 0; j < N / 2; j++)
        if (has_no_parts(bits_of(s[j]))) s[j] = sum[j];
}
/* add_weighted of f32. Columns 2t and 2t+1 of the weights are columns t and t+4 of a left operand, if the rows of the
   tile are taken in this order, too. */
template <int N, int K, bool NonFinite, bool Apart>
ATTN__DEVICE void add_weighted_floats(float (&d)[N / 2], const float (&s)[K / 2], uint32_t tile)
{
    const int lane = hw::lane_anew(), g = lane / 4, t = lane % 4;
    const uint32_t first = tile + g % 4 * 4, at[2] = {first + chunk_of(2 * t, g / 4, K),
                                                      first + chunk_of(2 * t + 1, g / 4, K)};
    uint32_t a[K / 8][2][4];
    ATTN__UNROLL for (int j = 0; j < K / 2; j++)
        split(bits_of(s[j]), a[j / 4][0][j % 2 * 2 + j / 2 % 2], a[j / 4][1][j % 2 * 2 + j / 2 % 2]);
    ATTN__UNROLL for (int n = 0; n < N; n += 8) {
        float large[4] = {0.0f, 0.0f, 0.0f, 0.0f}, small[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        ATTN__UNROLL for (int k = 0; k < K / 8; k++) {
            uint32_t b[2];
            ATTN__UNROLL for (int i = 0; i < 2; i++) {
                b[i] = hw::load_shared_word((at[i] ^ n / 4 % 8 * 16) + k * 1024 + n / 32 * K * 128);
                if (NonFinite) b[i] &= ~halves_not_finite<hw::f32>(b[i]);
            }
            mma_parts(large, small, a[k], b[0], b[1]);
        }
        ATTN__UNROLL for (int x = 0; x < 4; x++) d[n / 2 + x] += large[x] + small[x];
        if (Apart && n % 32 == 24) hw::sync_warp();     /* so that not all loads come first, which takes registers */
    }
}

/* d 16xN of each of `Blocks` += its left operand . rows 16k.. of a tile, from a column on (from: down_address);
   NonFinite: as if it had zeros where it is not finite. An operand on the right is loaded once for all. */
template <class T, int N, bool NonFinite, int Blocks>
ATTN__DEVICE void add_product(float (&d)[Blocks][N / 2], const uint32_t (&a)[Blocks][4], uint32_t from, int rows,
                              int column, int k)
{
    uint32_t b[4];
    ATTN__UNROLL for (int n = 0; n < N; n += 16) {
        load_down(b, from, rows, column + n, k);
        ATTN__UNROLL for (int i = 0; i < 4 * NonFinite; i++) b[i] &= ~halves_not_finite<T>(b[i]);
        ATTN__UNROLL for (int r = 0; r < Blocks; r++) {
            hw::mma<T>(d[r] + n / 2, a[r], b[0], b[1]);
            hw::mma<T>(d[r] + n / 2 + 4, a[r], b[2], b[3]);
        }
    }
}

/* d 16xN += the weights s (16 rows, K columns) . a tile of K rows and N columns, for each block of 16 rows; NonFinite:
   as above */
template <class T, int N, int K, bool NonFinite, bool Apart = true, bool Anew = false, int Blocks>
ATTN__DEVICE void add_weighted(float (&d)[Blocks][N / 2], const float (&s)[Blocks][K / 2], uint32_t tile)
{
    if constexpr (T::is_f32) {
        ATTN__UNROLL for (int r = 0; r < Blocks; r++) add_weighted_floats<N, K, NonFinite, Apart>(d[r], s[r], tile);
        return;
    }
    const uint32_t from = down_address(tile, K, Anew ? hw::lane_anew() : hw::lane());
    ATTN__UNROLL for (int k = 0; k < K / 16; k++) {
        uint32_t a[Blocks][4];
        ATTN__UNROLL for (int r = 0; r < Blocks; r++) pack_left<T>(a[r], s[r], k);
        add_product<T, N, NonFinite>(d, a, from, K, 0, k);
    }
}

/* The same; if the tile is nonfinite, with the guard. */
template <class T, int N, int K>
ATTN__DEVICE void add_tile(float (&d)[N / 2], const float (&s)[K / 2], uint32_t tile, bool nonfinite)
{
    if (nonfinite) {
        if constexpr (T::is_f32) add_without_parts<N, K>(d, s, tile, 0, K, false);
        else mark_nonfinite<T, N, K>(d, s, tile, 0, K);
        add_weighted<T, N, K, true>(one_block(d), one_block(s), tile);
    } else add_weighted<T, N, K, false>(one_block(d), one_block(s), tile);
}

/* The forward's, for all threads that use the tile (a block's by barrier 1): out += weights . a tile of V, whose keys
   [first, last) some row may attend to; edge: not every row; busy: how many of this warp's blocks of 16 rows have any.
   In f32 it looks at all tiles. */
template <class T, int D, int Keys, int Threads, bool Anew, int Blocks>
ATTN__DEVICE void add_values(float (&out)[Blocks][D / halves_each<T> / 2], const float (&s)[Blocks][Keys / 2],
                             uint32_t tile, bool edge, int busy, int first, int last)
{
    constexpr int columns = D / halves_each<T>;
    const bool looks = edge || T::is_f32;
    bool nonfinite = looks && has_nonfinite<T, Keys, D>(tile, tile_thread<Threads>(), Threads);
    if (looks) nonfinite = Threads == 32 ? hw::any(nonfinite) : hw::barrier_or(1, Threads, nonfinite);
    if (nonfinite) {
        ATTN__UNROLL for (int r = 0; r < Blocks; r++) {
            if (r >= busy) continue;
            if constexpr (T::is_f32) add_without_parts<columns, Keys>(out[r], s[r], tile, first, last, !edge);
            else mark_nonfinite<T, D, Keys>(out[r], s[r], tile, first, last);
        }
        sync_tile<Threads>();
        clear_nonfinite<T, Keys, D>(tile, tile_thread<Threads>(), Threads);
        sync_tile<Threads>();
    }
    if (busy) add_weighted<T, columns, Keys, false, false, Anew>(out, s, tile);
}

/* Is one of a warp's products infinite or NaN? If a row on the left or the right is nonfinite, one is. */
template <int N> ATTN__DEVICE bool any_nonfinite(const float (&s)[N])
{
    float zero = 0.0f;
    ATTN__UNROLL for (int j = 0; j < N; j++) zero = hw::fma(s[j], 0.0f, zero);
    return hw::any(is_nan(zero));
}

/* s 16xN = rows row.. of a tile of RowsA . transposed tile of N rows, over D columns. Of several blocks of 16 rows each
   lies RowsA / Blocks after the one before; an operand on the right is loaded once for all. */
template <class T, int N, int D, int RowsA, bool Anew = false, int Blocks>
ATTN__DEVICE void product_of_blocks(float (&s)[Blocks][N / 2], uint32_t left, int row, uint32_t right)
{
    if constexpr (T::is_f32) {
        ATTN__UNROLL for (int r = 0; r < Blocks; r++)
            product_of_floats<N, D, RowsA, Anew>(s[r], left, row + r * (RowsA / Blocks), right);
    } else {
        const int lane = Anew ? hw::lane_anew() : hw::lane();
        const uint32_t from = left_address(left, RowsA, row, lane), other = right_address(right, N, lane);
        ATTN__UNROLL for (int j = 0; j < N / 2; j++)
            ATTN__UNROLL for (int r = 0; r < Blocks; r++) s[r][j] = 0.0f;
        ATTN__UNROLL for (int k = 0; k < D / 16; k++) {
            uint32_t a[Blocks][4], b[4];
            ATTN__UNROLL for (int r = 0; r < Blocks; r++) load_along(a[r], from, RowsA, r * (RowsA / Blocks), k);
            ATTN__UNROLL for (int n = 0; n < N; n += 16) {
                load_along(b, other, N, n, k);
                ATTN__UNROLL for (int r = 0; r < Blocks; r++) {
                    hw::mma<T>(s[r] + n / 2, a[r], b[0], b[1]);
                    hw::mma<T>(s[r] + n / 2 + 4, a[r], b[2], b[3]);
                }
            }
        }
    }
}
template <class T, int N, int D, int RowsA, bool Anew = false>
ATTN__DEVICE void product_of_rows(float (&s)[N / 2], uint32_t left, int row, uint32_t right)
{
    product_of_blocks<T, N, D, RowsA, Anew>(one_block(s), left, row, right);
}

/* any_nonfinite of these products; those of f32 then are what f32 makes of them */
template <class T, int N, int D, int RowsA>
ATTN__DEVICE bool mend_nonfinite(float (&s)[N / 2], uint32_t left, int row, uint32_t right)
{
    const bool nonfinite = any_nonfinite(s);
    if constexpr (T::is_f32)
        if (nonfinite) product_without_parts<N, D, RowsA>(s, left, row, right);
    return nonfinite;
}

/* ---- rows of a call, and which of them a tile has. Where few queries share keys, the heads of a group stand in one
   tile: row r is query r/pack of head r%pack; else pack is 1. Keys count from the entry's first one on, so that its
   tiles of keys, and with them the bits of its results, are those of a call of its own. */
struct tile_row {               /* small, for a thread keeps two of them through its loop */
    int     b, h, i;            /* i: in the arrays */
    int     first, last;        /* the keys it may attend to; first is -1 where the entry does not have the row */
    int64_t position;
};
ATTN__DEVICE tile_row row_at(const params &p, const entry &e, int64_t b, int64_t group, int pack, int row)
{
    tile_row r;
    r.b = (int)b;
    r.h = (int)(group * pack + row % pack);
    r.i = (int)(row / pack);
    r.first = r.last = 0;
    r.position = 0;
    if (r.i >= e.rows_end) r.first = -1;
    else {
        const reach w = reach_in(p, e, b, r.i);
        r.first = (int)(w.first - e.key0);
        r.last = (int)(w.last - e.key0);
        r.position = add_clamped(w.position, -e.key0);
        if (w.first >= w.last) r.first = r.last = 0;
    }
    return r;
}
/* own: a row as the entry counts; so does i of the result */
ATTN__DEVICE tile_row row_in(const params &p, const entry_reach &many, int64_t b, int own)
{
    const entry_reach e = many.per_row && own < many.rows ? entry_reach_of(p, entry_of(p, b), b, own) : many;
    const int inside = least(own, e.queries);   /* rows after the last have no keys */
    tile_row r = {(int)b, 0, own, most(e.low + inside, 0),
                  own >= 0 && own < e.queries ? least(e.keys, e.high + inside) : 0, add_clamped(e.position, own)};
    if (r.first >= r.last) r.first = r.last = 0;
    if (own >= e.rows) r.first = -1;
    return r;
}
ATTN__DEVICE bool is_inside(const tile_row &r) { return r.first >= 0; }

/* Tiles of packed entries begin at their first rows, or keys, so which entry the n-th of all is of, and with which row
   of the arrays it begins, stands in a table. So does how many there are: the host knows at most how many. */
struct packed_tile { int entry, row; };
struct packed_tiles {
    int         *count, *first; /* of all, NULL: none are packed; of each entry the number of its first one */
    packed_tile *tiles;
};
struct tile_table {
    params       p;
    packed_tiles to;
    int          rows, most;
    bool         keys;
};
ATTN__BOTH int64_t most_packed_tiles(const params &p, int64_t rows, bool keys)
{
    return ((keys ? p.keys : p.queries) + rows - 1) / rows + p.batch;
}
struct row_span { int first, end; };            /* in the arrays */
ATTN__DEVICE row_span rows_of_entry(const params &p, int64_t b, bool keys)
{
    const entry e = entry_of(p, b);
    if (!keys) return {(int)e.row0, (int)e.rows_end};
    return {(int)e.key0, (int)(p.packed_keys ? keys_end_of(p, e, b) : p.keys)};
}
ATTN__KERNEL(32 * WARPS, 1) void find_packed_tiles(ATTN__PARAM tile_table m)
{
    const auto tiles_of = [&](const row_span &s) { return (s.end - s.first + m.rows - 1) / m.rows; };
    for (int64_t b = first_task(); b <= m.p.batch; b += all_tasks()) {
        int first = 0;                      /* entries that share rows may come to more than there is room for */
        for (int64_t other = hw::lane(); other < b; other += 32)
            first = least(first + least(tiles_of(rows_of_entry(m.p, other, m.keys)), m.most), m.most);
        for (int step = 16; step > 0; step /= 2) first = least(first + hw::shfl_xor(first, step), m.most);
        if (b == m.p.batch) {
            if (hw::lane() == 0) *m.to.count = first;
            continue;
        }
        const row_span own = rows_of_entry(m.p, b, m.keys);
        if (hw::lane() == 0) m.to.first[b] = first;
        for (int n = hw::lane(); n < tiles_of(own) && first + n < m.most; n += 32)
            m.to.tiles[first + n] = {(int)b, own.first + n * m.rows};
    }
}
/* How many tiles there are, and tasks of so many heads */
ATTN__DEVICE int packed_count(const packed_tiles &of, int otherwise) { return of.count ? *of.count : otherwise; }
ATTN__DEVICE int packed_tasks(const packed_tiles &of, int heads, int otherwise)
{
    return of.count ? *of.count * heads : otherwise;
}

/* What the rows of a tile have together: some row may attend to keys [first, last), all of them to [from, to). */
struct tile_reach { int first, last, from, to; };
ATTN__DEVICE tile_reach no_rows() { return {0x7fffffff, 0, 0, 0x7fffffff}; }
ATTN__DEVICE tile_reach reach_of_row(const tile_row &r)
{
    tile_reach t = no_rows();
    if (is_inside(r) && r.first < r.last) t.first = r.first, t.last = r.last;
    if (is_inside(r)) t.from = r.first, t.to = r.last;
    return t;
}
ATTN__DEVICE void join(tile_reach &t, const tile_reach &u)
{
    t.first = least(t.first, u.first);
    t.last = most(t.last, u.last);
    t.from = most(t.from, u.from);
    t.to = least(t.to, u.to);
}

/* Do some rows, but not all, attend to some of these keys? */
ATTN__DEVICE bool is_edge(const tile_reach &t, int first_key, int last_key)
{
    return first_key < t.from || last_key > t.to;
}

/* over the lanes of a warp, then over the warps of a block through shared memory (one tile_reach per warp) */
ATTN__DEVICE tile_reach join_warp(tile_reach t)
{
    for (int step = 16; step > 0; step /= 2) {
        tile_reach u;
        u.first = hw::shfl_xor(t.first, step);
        u.last = hw::shfl_xor(t.last, step);
        u.from = hw::shfl_xor(t.from, step);
        u.to = hw::shfl_xor(t.to, step);
        join(t, u);
    }
    return t;
}
ATTN__DEVICE tile_reach join_block(tile_reach t, tile_reach *shared)
{
    t = join_warp(t);
    const int warp = hw::warp();                    /* all lanes ask, before one writes */
    if (hw::lane() == 0) shared[warp] = t;
    hw::sync();
    for (int w = 0; w < hw::threads() / 32; w++) join(t, shared[w]);
    return t;
}

/* ---- scores and softmax of a tile, in a thread's two rows. Scores are in units in which `scale` makes them powers of
   2; with Extra they have met p.scale before. */
template <bool Extra> ATTN__DEVICE float scale_of(const params &p) { return Extra ? LOG2E : p.scale * LOG2E; }
/* What makes such a score one of attn.h's */
template <bool Extra> ATTN__DEVICE float unit_of(const params &p) { return Extra ? 1.0f : p.scale; }

/* A thread has two columns of each 8: a bit for each of them that is among the first n columns, from its own first one
   on. */
template <int N> ATTN__DEVICE uint32_t columns_below(int n)
{
    static_assert(N <= 128, "32 columns of a thread");
    n = least(most(n, 0), N);
    const int bits = n / 8 * 2 + least(n % 8, 2);
    return bits < 32 ? (1u << bits) - 1 : ~0u;
}
/* Those of a tile, from a thread's own first column on, that a row may attend to */
template <int N> ATTN__DEVICE uint32_t columns_in_reach(const tile_row &r, int column)
{
    return columns_below<N>(r.last - column) & ~columns_below<N>(r.first - column);
}
/* Four bits at a time: of more the compiler makes seven predicates at once, and where no register is free it has no
   place for those in use. Then ptxas ends with an error, in the kernel of large tiles from sm_100 on. */
template <int N, bool Edge>
ATTN__DEVICE void mask_tile(float (&s)[N / 2], const tile_row (&rows)[2], int key0)
{
    const int column = key0 + hw::lane() % 4 * 2;
    ATTN__UNROLL for (int e = 0; e < 2 * Edge; e++) {
        uint32_t in = columns_in_reach<N>(rows[e], column);
        ATTN__UNROLL for (int j = 0; j < N / 4; j++) {
            if (j > 0 && j % 4 == 0) in = (uint32_t)hw::anew((int)(in >> 4));
            if (!(in >> j % 4 & 1)) s[j / 2 * 4 + 2 * e + j % 2] = -infinity();
        }
    }
}
struct alibi_row { float slope; int64_t position; };
ATTN__DEVICE alibi_row alibi_of(const params &p, const tile_row &r)
{
    return {load(p.alibi, 0, r.h, 0, 0), r.position};
}

/* Where a thread's pairs are in an array, `column` being its first */
ATTN__DEVICE pair_places places_in(const attn__array &a, const tile_row (&rows)[2], int column)
{
    pair_places at;
    ATTN__UNROLL for (int e = 0; e < 2; e++) at.row[e] = place(a, rows[e].b, rows[e].h, rows[e].i, column);
    at.step = a.stride[3];
    return at;
}

/* Scores behind the softcap; exclude, read: see mask_scores. alibi_at(e): of a thread's rows. */
template <int N, bool Arrays, class Exclude, class Read, class F>
ATTN__DEVICE void mask_rows(float (&s)[N / 2], const params &p, int key0, Exclude exclude, Read read, F alibi_at)
{
    const int column = key0 + hw::lane() % 4 * 2;
    const auto add_distances = [&] {
        ATTN__UNROLL for (int e = 0; e < 2 * (p.alibi.rank != 0); e++) {
            const alibi_row of = alibi_at(e);
            const float from = signed_distance(of.position, column);
            ATTN__UNROLL for (int j = 2 * e; j < N / 2; j += 4)
                ATTN__UNROLL for (int x = j; x < j + 2; x++)
                    add_alibi(s[x], of.slope, from - (float)(x / 4 * 8 + x % 2));
        }
    };
    mask_scores<Arrays>(s, p, exclude, read, add_distances);
}
/* Of a tile. PerPair: there may be a mask or a bias, and then tiles are edges. Starts: keys count from the entry's
   first one, columns of these arrays do not. */
template <int N, bool Edge, bool PerPair, bool Starts = false, class F>
ATTN__DEVICE void mask_rows_of_tile(float (&s)[N / 2], const params &p, const tile_row (&rows)[2], int key0, F alibi_at)
{
    const auto read = [&](float (&b)[N / 2], const attn__array &a, bool is_mask) {
        const int first = Starts ? (int)first_key_in(p, rows[0].b) : 0;
        load_numbers(b, s, a, places_in(a, rows, first + key0 + hw::lane() % 4 * 2), is_mask);
    };
    mask_rows<N, Edge && PerPair>(s, p, key0, [&] { mask_tile<N, Edge>(s, rows, key0); }, read, alibi_at);
}
template <int N, bool Edge, bool PerPair, bool Starts = false, class F>
ATTN__DEVICE void shape_tile(float (&s)[N / 2], float (&slope)[N / 2], const params &p, const tile_row (&rows)[2],
                             int key0, F alibi_at)
{
    softcap_scores(s, slope, p, inverse_softcap(p));
    mask_rows_of_tile<N, Edge, PerPair, Starts>(s, p, rows, key0, alibi_at);
}

/* Which of the keys from key0 on are kept of a thread's two rows: bit c of column c of its own. Its four threads share
   the work. Keys and rows count from the entry's first ones, rows[].i from the arrays'. Starts: there may be some. */
template <int N, bool Starts>
ATTN__DEVICE void kept_in_tile(uint64_t (&kept)[2], const params &p, const tile_row (&rows)[2], int key0)
{
    const int t = hw::lane() % 4, row0 = Starts ? (int)first_row_in(p, rows[0].b) : 0;
    uint64_t own[2];
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        uint64_t row[1];
        kept_keys<N, false>(row, p, rows[e].b, {rows[e].h}, {rows[e].i - row0}, key0, t, 4), own[e] = row[0];
        own[e] |= hw::shfl_xor(own[e], 1);
        own[e] |= hw::shfl_xor(own[e], 2);
        kept[e] = own[e] >> 2 * t;
    }
}

/* The same of a thread's own columns, a bit for each (columns_below). Where counters begin with the tile, of each
   thread's four bits two are its own and two another's of the row's: they are exchanged all at once. */
template <int N, bool Unrolled>
ATTN__DEVICE void kept_columns(uint32_t (&kept)[2], const params &p, const tile_row (&rows)[2], int key0)
{
    const int t = hw::lane() % 4, row0 = (int)first_row_in(p, rows[0].b);
    const uint32_t column = (uint32_t)key0 + p.origin[3];
    kept[0] = kept[1] = 0;
    if (column % 4 == 0) {
        ATTN__LOOP for (int k = 0; k < N / 16; k++)
            ATTN__UNROLL for (int e = 0; e < 2; e++)
                kept[e] |= kept_of_four<Unrolled>(p, rows[e].b, rows[e].h, rows[e].i - row0,
                                                  (column + (uint32_t)(16 * k + 4 * t)) / 4)
                           << 4 * k;
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const int from = hw::lane() - t + t / 2;
            const uint32_t even = hw::shfl(kept[e], from), odd = hw::shfl(kept[e], from + 2);
            kept[e] = (even >> t % 2 * 2 & 0x33333333u) | (odd >> t % 2 * 2 & 0x33333333u) << 2;
        }
        return;
    }
    ATTN__LOOP for (int first = 0; first < N; first += 64) {
        uint64_t of_tile[2];
        kept_in_tile<64, true>(of_tile, p, rows, key0 + first);
        ATTN__UNROLL for (int j = 0; j < 8; j++)
            ATTN__UNROLL for (int e = 0; e < 2; e++)
                kept[e] |= (uint32_t)(of_tile[e] >> 8 * j & 3) << (2 * j + first / 4);
    }
}

struct row_pair { float top[2], mass[2]; };     /* so far: the largest score, and this thread's part of the mass */
ATTN__DEVICE row_pair no_keys()
{
    row_pair r;
    r.top[0] = r.top[1] = -infinity();
    r.mass[0] = r.mass[1] = 0.0f;
    return r;
}

/* The largest score of a row may have no float that is the same in powers of 2: so it is where a bias of the lowest
   float masks all keys. Then scores are taken relative to it first. */
template <int N>
ATTN__DEVICE void shift_row(float (&s)[N / 2], int e, float top, float before, float scale, float &base, float &rescale)
{
    const bool shifts = magnitude(base) == infinity();
    ATTN__UNROLL for (int j = 0; j < N / 2; j++)
        if (j / 2 % 2 == e && shifts) s[j] -= top;
    if (shifts) rescale = hw::ex2((before - top) * scale), base = 0.0f;
}

/* s becomes weights relative to the new maximum; what was summed before is to be multiplied by `rescale`. Marks: an
   excluded pair has the weight +0, one that merely vanishes -0. Any: scores may be of any size (shift_row). */
template <int N, bool Marks, bool Any>
ATTN__DEVICE void softmax_tile(float (&s)[N / 2], row_pair &r, float scale, float (&rescale)[2])
{
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        float top = r.top[e], base, sum = 0.0f;
        ATTN__UNROLL for (int j = 0; j < N / 8; j++) top = fmaxf(top, fmaxf(s[4 * j + 2 * e], s[4 * j + 2 * e + 1]));
        top = fmaxf(top, hw::shfl_xor(top, 1));
        top = fmaxf(top, hw::shfl_xor(top, 2));
        base = is_none(top) ? 0.0f : top * scale;
        rescale[e] = hw::ex2(hw::fma(r.top[e], scale, 0.0f) - base);     /* 1 where nothing grew: rounded as base is */
        if (Any && hw::any(magnitude(base) == infinity())) shift_row<N>(s, e, top, r.top[e], scale, base, rescale[e]);
        ATTN__UNROLL for (int j = 0; j < N / 8; j++)
            ATTN__UNROLL for (int x = 4 * j + 2 * e; x < 4 * j + 2 * e + 2; x++) {
                const bool none = is_none(s[x]);
                s[x] = hw::ex2(hw::fma(s[x], scale, -base));
                if (Marks && s[x] == 0.0f && !none) s[x] = -0.0f;
                sum += s[x];
            }
        r.top[e] = top;
        r.mass[e] = hw::fma(r.mass[e], rescale[e], sum);
    }
}
template <int N, bool Starts>
ATTN__DEVICE void drop_tile(float (&s)[N / 2], const params &p, const tile_row (&rows)[2], int key0)
{
    uint64_t kept[2];
    if (p.dropout == 0.0f) return;
    kept_in_tile<N, Starts>(kept, p, rows, key0);
    ATTN__UNROLL for (int j = 0; j < N / 2; j++)
        if (s[j] != 0.0f)                                       /* -0: dropped, but not excluded */
            s[j] = kept[j / 2 % 2] >> (j / 4 * 8 + j % 2) & 1 ? s[j] * p.keep_scale : -0.0f;
}
template <int N> ATTN__DEVICE void rescale_rows(float (&d)[N / 2], const float (&rescale)[2])
{
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) d[j] *= rescale[j / 2 % 2];
}

/* A row's end, from its largest score and its mass relative to that: writes log-sum-exp and stats, returns what the sum
   of weighted values is to be multiplied by: +0 where it has no values, -0 where they vanish beside the sink. One
   thread of a row is its `writer`. */
ATTN__DEVICE float finish_row(const params &p, const tile_row &r, float top, float mass, bool writer)
{
    float all = mass, lse, base = top, factor;
    if (mass == 0.0f) base = -infinity();
    if (writer && p.stats.rank) {
        store(p.stats, r.b, r.h, r.i, 0, base);
        store(p.stats, r.b, r.h, r.i, 1, mass);
    }
    if (p.sink.rank) {
        const float sink = load(p.sink, 0, r.h, 0, 0), larger = base >= sink ? base : sink;             /* NaN: sink */
        if (!is_none(larger)) {
            factor = is_none(base) ? 0.0f : hw::ex2((base - larger) * LOG2E);
            all = mass * factor + hw::ex2((sink - larger) * LOG2E);
            lse = larger + hw::lg2(all) * LN2;
            if (writer && p.lse.rank) store(p.lse, r.b, r.h, r.i, 0, lse);
            factor = mass == 0.0f ? 0.0f : factor / all;
            return mass != 0.0f && factor == 0.0f ? -0.0f : factor;
        }
    }
    lse = all == 0.0f ? -infinity() : base + hw::lg2(all) * LN2;
    if (writer && p.lse.rank) store(p.lse, r.b, r.h, r.i, 0, lse);
    if (all == 0.0f) return p.empty == ATTN_EMPTY_NAN ? float_of(0x7fc00000u) : 0.0f;
    return 1.0f / all;
}

/* Two neighbours of a result of 16 bits; NaN as `store` has it. hw::pack makes 0x7fff of NaN, a signed integer larger
   than those of all numbers. */
template <class T> ATTN__DEVICE uint32_t pack_result(float x, float y)
{
    return hw::smaller_halves(hw::pack<T>(x, y), T::is_bf16 ? 0x7fc07fc0u : 0x7e007e00u);
}

/* Is row e of d times its factor finite, and the factor not 0? */
template <int N> ATTN__DEVICE bool is_plain_row(const float (&d)[N], int e, float factor)
{
    float zero = factor * 0.0f;
    ATTN__UNROLL for (int j = 0; j < N; j++)
        if (j / 2 % 2 == e) zero = hw::fma(d[j], 0.0f, zero);
    return factor != 0.0f && !is_nan(zero);
}
/* Rows of factor * d, those below `count`; adds: to what is there. Gradient: else a row whose factor is +0 has no
   values, so 0 times infinity is 0. Each step by itself: together they would be long for each column. The forward's
   plain rows have a way of their own, without which its kernel of 128 columns spills registers on sm_86. */
template <class T, int D, bool Gradient>
ATTN__DEVICE void store_rows(const attn__array &out, const float (&d)[D / 2], const tile_row (&rows)[2], int64_t count,
                             int64_t columns, const float (&factor)[2], bool adds)
{
    const bool is_float = T::is_f32 || out.type == ATTN_F32;
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        if (rows[e].i >= count || (!Gradient && !is_inside(rows[e]))) continue;
        const int64_t at = place(out, rows[e].b, rows[e].h, rows[e].i, hw::lane() % 4 * 2);
        float *const floats = (float *)out.data + at;
        uint16_t *const halves = (uint16_t *)out.data + at;
        const bool none = !Gradient && bits_of(factor[e]) == 0;
        const bool plain = !Gradient && !is_float && is_plain_row(d, e, factor[e]);
        float own[D / 4];
        ATTN__UNROLL for (int n = 0; n < D / 4; n++)
            own[n] = none ? 0.0f : hw::mul(d[4 * (n / 2) + 2 * e + n % 2], factor[e]);
        const auto each = [&](auto step) {
            ATTN__UNROLL for (int j = 0; j < D / 8; j++)
                if (j * 8 < (int)columns) step(j * 8, own[2 * j], own[2 * j + 1]);
        };
        if (adds && is_float) each([&](int c, float &x, float &y) { x += floats[c], y += floats[c + 1]; });
        if (is_float) each([&](int c, float x, float y) { floats[c] = quiet(x), floats[c + 1] = quiet(y); });
        if constexpr (!T::is_f32) {
            if (adds && !is_float)
                each([&](int c, float &x, float &y) {
                    const uint32_t two = *(const uint32_t *)(halves + c);
                    x += half_of<T>(two, 0);
                    y += half_of<T>(two, 1);
                });
            if (plain) each([&](int c, float x, float y) { *(uint32_t *)(halves + c) = hw::pack<T>(x, y); });
            else if (!is_float)
                each([&](int c, float x, float y) { *(uint32_t *)(halves + c) = pack_result<T>(x, y); });
        }
    }
}

/* Two neighbours of a row */
template <class T> ATTN__DEVICE void store_two(const attn__array &out, int64_t at, float x, float y, bool adds)
{
    if (T::is_f32 || out.type == ATTN_F32) {
        float *const to = (float *)out.data + at;
        if (adds) x += to[0], y += to[1];
        to[0] = quiet(x), to[1] = quiet(y);
    } else if constexpr (!T::is_f32) {
        uint32_t *const to = (uint32_t *)((uint16_t *)out.data + at);
        const uint32_t two = adds ? *to : 0;
        if (adds) x += half_of<T>(two, 0), y += half_of<T>(two, 1);
        *to = pack_result<T>(x, y);
    }
}
/* The same through shared memory, where a warp has `room` for its 16 rows, warp_room<D> bytes: lanes that have
   neighbours of a row go to memory together, and loops are short to compile. (Stage 3 has no such room, and kernels
   that have no register to spare keep to the first way.) 32 bytes are exchanged by their row, so that lanes do not meet
   in a bank. */
template <int D> constexpr int warp_room = 16 * ((D + 31) / 32 * 128);
template <class T, int D, bool Gradient>
ATTN__DEVICE void store_rows(const attn__array &out, const float (&d)[D / 2], const tile_row (&rows)[2], int64_t count,
                             int64_t columns, const float (&factor)[2], bool adds, uint32_t room)
{
    constexpr uint32_t row_bytes = warp_room<D> / 16;
    const int l = hw::lane_anew(), end = least((int)columns, D);
    int64_t at[2];                                      /* -1: not stored */
    hw::sync_warp();                                    /* what was there is behind it */
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        const bool stores = rows[e].i < count && (Gradient || is_inside(rows[e]));
        const uint32_t row = room + (l / 4 + 8 * e) * row_bytes + l % 4 * 8;
        at[e] = stores ? place(out, rows[e].b, rows[e].h, rows[e].i, 0) : -1;
        ATTN__UNROLL for (int j = 0; j < D / 8; j++) {
            const uint32_t two[2] = {bits_of(d[4 * j + 2 * e]), bits_of(d[4 * j + 2 * e + 1])};
            hw::store_shared(row + (j / 4 * 128 + (j % 4 ^ l / 4 % 4) * 32), two);
        }
    }
    hw::sync_warp();
    ATTN__LOOP for (int row = 0; row < 8; row++) {
        uint32_t two[2][(D + 63) / 64][2];
        ATTN__UNROLL for (int e = 0; e < 2; e++)
            ATTN__UNROLL for (int k = 0; k < (D + 63) / 64; k++)
                if (64 * k + 2 * l < D)
                    hw::load_shared(two[e][k], room + (row + 8 * e) * row_bytes + k * 256 + (l * 8 ^ row % 4 * 32));
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const int64_t to = hw::shfl(at[e], row * 4);
            const float times = hw::shfl(factor[e], row * 4);
            const bool none = !Gradient && bits_of(times) == 0;
            const auto number = [&](uint32_t x) { return none ? 0.0f : hw::mul(float_of(x), times); };
            ATTN__UNROLL for (int k = 0; k < (D + 63) / 64; k++) {
                const int c = 64 * k + 2 * l;
                if (to >= 0 && c < end) store_two<T>(out, to + c, number(two[e][k][0]), number(two[e][k][1]), adds);
            }
        }
    }
}

/* Scores of the keys from key0 on become weights. PerPair: not by a reach alone may pairs be excluded. */
template <int N, bool Extra, bool Edge, bool PerPair, bool Starts = false, class F>
ATTN__DEVICE void softmax_keys(float (&s)[N / 2], row_pair &soft, const params &p, const tile_row (&rows)[2], int key0,
                               float scale, float (&rescale)[2], F alibi_at)
{
    float slope[N / 2];
    if (Extra) shape_tile<N, Edge, PerPair, Starts>(s, slope, p, rows, key0, alibi_at);
    else mask_tile<N, Edge>(s, rows, key0);
    softmax_tile<N, Edge && PerPair, Extra>(s, soft, scale, rescale);
}

/* What the block's rows may attend to, of which this thread has two. */
ATTN__DEVICE tile_reach reach_of_block(const tile_row (&rows)[2], tile_reach *reaches)
{
    tile_reach all = reach_of_row(rows[0]);
    join(all, reach_of_row(rows[1]));
    return join_block(all, reaches);
}

/* Rows of one head, from row0 on, into shared memory; zeros where they are not from `first` to before `last`. Across:
   threads side by side in a row, each of which stays in its columns of all panels; 0 where registers are few, with far
   more instructions. */
template <int D> constexpr int copy_across = D <= 16 ? 2 : D <= 32 ? 4 : 8;
struct row_place { const uint16_t *from; bool inside; };
/* place_of(r, row): where the thread's row `row` + r of the tile lies; r grows by Threads / Across. */
template <int D, int Rows, int Threads, int Across, bool Anew, class F>
ATTN__DEVICE void copy_across_rows(uint32_t to, int64_t columns, F place_of)
{
    const int thread = tile_thread<Threads, Anew>(), row = thread / Across, column = thread % Across * 8;
    const uint32_t at = to + chunk_of(row, column / 8, Rows);
    ATTN__UNROLL for (int r = 0; r < Rows; r += Threads / Across) {
        const row_place place = place_of(r, row);
        const uint16_t *const from = place.from + column;
        const uint32_t exchanged = r % 8 * 16;          /* chunk_of's: row and r have no bit in common */
        ATTN__UNROLL for (int c = 0; c < D; c += Across * 8)
            if (c + Across * 8 <= D || column + c < D)
                hw::cp_async(((at + r * 128) ^ exchanged) + c / 64 * Rows * 128, from + c,
                             place.inside && column + c < columns);
    }
}
template <int D, int Rows, int Threads, int Across = copy_across<D>, bool Anew = false, class Number>
ATTN__DEVICE void copy_rows(uint32_t to, const attn__array &a, int64_t columns, int64_t b, int64_t h, Number row0,
                            Number first, Number last)
{
    if constexpr (Across > 0) {
        const uint16_t *next = row_of(a, b, h, row0 + tile_thread<Threads, Anew>() / Across);
        copy_across_rows<D, Rows, Threads, Across, Anew>(to, columns, [&](int r, int row) {
            const row_place place = {next, row0 + row + r >= first && row0 + row + r < last};
            next += Threads / Across * a.stride[2];
            return place;
        });
    } else {
        copy_tile<D, Rows, Threads>(to, a.data, columns, [&](int r) {
            const Number row = row0 + r;
            return row >= first && row < last ? row_of(a, b, h, row) : NULL;
        });
    }
}

/* ---- keys in pages. A warp copies at most 32 rows of a tile, and each of its lanes knows of one where it lies:
   lane l of the l-th, as copy_across_rows counts them. Lanes look their rows up in the page table while the warp has
   other things to do, a tile ahead, and tell the others when it copies. Of a key that no query may attend to the table
   is not read: it has page -1, and is copied as zeros. Without pages an entry's keys are a page. */
struct paged_row { int page, row; };
template <int Rows, int Threads, int Across> ATTN__DEVICE int row_of_lane(int l)
{
    constexpr int at_once = 32 / Across;
    static_assert(Rows <= Threads && 32 % Across == 0, "a lane has one row, whose threads are all of one warp");
    const int warp = Threads == 32 ? 0 : hw::warp();
    return warp * at_once + l % at_once + l / at_once * (Threads / Across);
}
/* Where key j of entry b lies: some query may attend to keys first <= j < last. whole: the page that an entry is. */
ATTN__DEVICE paged_row find_paged_row(const params &p, int b, int j, int first, int last, int whole)
{
    paged_row at = {j >= first && j < last ? whole : -1, j};
    const int page = (int)p.page;
    if (!page || at.page < 0) return at;
    at.page = (int)clamp(load_integer(p.page_table, b, j / page), 0, p.pool - 1);
    at.row = j % page;
    return at;
}
/* Rows of one head into shared memory, `own` being the lane's */
template <int D, int Rows, int Threads, int Across = copy_across<D>, bool Anew = false>
ATTN__DEVICE void copy_paged_rows(uint32_t to, const attn__array &a, int64_t columns, const paged_row &own)
{
    const int lane = hw::lane_anew();
    copy_across_rows<D, Rows, Threads, Across, Anew>(to, columns, [&](int r, int) {
        const int l = r / (Threads / Across) * (32 / Across) + lane / Across;
        const int page = hw::shfl(own.page, l), row = hw::shfl(own.row, l);
        const row_place place = {row_of(a, page, 0, row), page >= 0};
        return place;
    });
}

/* A scale of codes as it is stored, in f32 or f16; the number that it is */
ATTN__DEVICE uint32_t load_scale(const attn__array &a, int64_t at)
{
    return a.type == ATTN_F32 ? ((const uint32_t *)a.data)[at] : ((const uint16_t *)a.data)[at];
}
ATTN__DEVICE float scale_of_codes(uint32_t stored, int32_t type)
{
    return type == ATTN_F32 ? float_of(stored) : hw::from_f16((uint16_t)stored);
}

/* ---- codes of 8 bits, in a decode, where a warp has tiles of its own. Codes are integers, which f16 and bf16 have
   exactly: a lane reads words of four and makes operands of the products of them, in its registers. Scales
   meet what these products are made of: sums over the columns of a scale on their way to a score, and weights on their
   way to these columns of the result; in f32, so nothing is rounded but the weights, once.
       In a product's sum over k the order of columns is free. Of 32 columns (16 bytes of a row of Q, 8 of one of K) a
   lane has 8 neighbours, which are its operands of two products: of four columns 0 and 2 stand in one register, 1 and 3
   in the other, for so a word has them. order_queries brings a row of Q to this order. Of V a lane reads columns 4g to
   4g+3 of 32: the j-th block of 8 columns of a product has columns 4g + j. So a lane's sums are of 8 neighbours;
   order_columns brings them to the usual order at the end. */
enum { NUMBERS, CODES, CODES_IN_GROUPS };      /* what K and V are: codes have a scale for a row, or each 32 columns */
template <int D> constexpr int codes_across = D <= 32 ? 2 : D <= 64 ? 4 : D <= 128 ? 8 : 16;
template <int Keys, int D, int Kind> struct code_tile {
    static constexpr int across = codes_across<D>, at_once = 32 / across;       /* pieces of 16 codes, and rows */
    static constexpr int pieces = Keys / at_once, bytes = Keys * across * 16;   /* pieces of a lane */
    static constexpr int groups = Kind == CODES_IN_GROUPS ? D / 32 : 1, scale_bytes = groups * Keys * 4;
    static_assert(Kind == NUMBERS || D % 32 == 0, "whole groups");
};
/* Where column 16 * piece of a row lies in a tile of codes. The pieces of a row are exchanged, so that eight rows that
   follow one another (of K) do not meet in a bank, nor every other of eight (of V). */
template <int D> ATTN__DEVICE uint32_t exchange_of(int row)
{
    return (uint32_t)(row / 2 % 4 * 32 ^ (codes_across<D> >= 8 ? row % 2 * 64 : 0));
}
template <int D> ATTN__DEVICE uint32_t code_at(int row, int piece)
{
    return (uint32_t)(row * codes_across<D> + piece) * 16 ^ exchange_of<D>(row);
}
/* Starts to copy a head's tile of codes. own: as in copy_paged_rows, without pages, too; lane l has row l. straight:
   all rows are there, at equal distances. */
template <int Keys, int D>
ATTN__DEVICE void copy_codes(uint32_t to, const attn__array &a, int h, int64_t columns, const paged_row &own,
                             bool straight)
{
    typedef code_tile<Keys, D, CODES> tile;
    const int lane = hw::lane_anew(), row = lane / tile::across, column = lane % tile::across * 16;
    const int64_t of_lane = place(a, most(own.page, 0), h, own.row, 0);
    const uint32_t at = to + code_at<D>(row, lane % tile::across);
    const auto copy = [&](int i, int64_t from, bool inside) {
        const uint32_t exchanged = exchange_of<D>(i * tile::at_once);       /* has no bit in common with the row's */
        hw::cp_async((at ^ exchanged) + i * 512, (const int8_t *)a.data + from + column, inside && column < columns);
    };
    if (straight) {
        const int64_t from = hw::shfl(of_lane, row), step = tile::at_once * a.stride[2];
        ATTN__UNROLL for (int i = 0; i < tile::pieces; i++) copy(i, from + i * step, true);
    } else {
        ATTN__UNROLL for (int i = 0; i < tile::pieces; i++) {
            const int l = i * tile::at_once + row;
            copy(i, hw::shfl(of_lane, l), hw::shfl(own.page, l) >= 0);
        }
    }
}
/* Scales of the lane's row, as they are stored, in f32 or f16. They stay in registers until the tile before is used up,
   for then there is room: at [group][key]. Where a tile has 16 keys, two lanes have a key's groups in turn. An infinite
   scale becomes NaN, for its codes have both signs, or are 0. */
template <int Keys, int Groups> struct code_scales {
    static constexpr int all = Groups * Keys, at_once = 32 / Keys;      /* groups */
    uint32_t of[(all + 31) / 32];
};
template <int Keys, int Groups>
ATTN__DEVICE void load_scales(code_scales<Keys, Groups> &s, const attn__array &a, int h, int64_t columns,
                              const paged_row &own)
{
    typedef code_scales<Keys, Groups> scales;
    const int first = Keys == 32 ? 0 : hw::lane_anew() / Keys;
    const int64_t at = place(a, own.page, h, own.row, 0);
    ATTN__UNROLL for (int i = 0; i * 32 < scales::all; i++) {
        const int u = i * scales::at_once + first;
        s.of[i] = 0;
        if (own.page < 0 || u >= Groups || u * 32 >= columns) continue;
        s.of[i] = load_scale(a, at + u * a.stride[3]);
    }
}
template <int Keys, int Groups>
ATTN__DEVICE void store_scales(uint32_t to, const code_scales<Keys, Groups> &s, int32_t type)
{
    const int lane = hw::lane_anew();
    ATTN__UNROLL for (int i = 0; i * 32 < code_scales<Keys, Groups>::all; i++) {
        const float x = scale_of_codes(s.of[i], type);
        if (i * 32 + lane < code_scales<Keys, Groups>::all)
            hw::store_shared(to + (i * 32 + lane) * 4, bits_of(hw::fma(x, 0.0f, x)));
    }
}
/* The codes in bytes 0 and 2 of a word as two numbers: what is in the lowest bits of 128 (f16: of 1024) counts 1, so 7
   bits are added to it, of which the same with the sign bit, which counts 128, is subtracted. */
template <class T> ATTN__DEVICE uint32_t numbers_of_codes(uint32_t codes)
{
    const uint32_t base = T::is_bf16 ? 0x43004300u : 0x64006400u;
    return hw::subtract_halves<T>(hw::and_or(codes, 0x007f007fu, base), hw::and_or(codes, 0x00800080u, base));
}
/* A block's rows of Q as product_of_codes reads them: 16 bytes are a lane's left operand, those of two rows and their
   columns 0 2 1 3 4 6 5 7 lie where these rows were. */
template <int D> ATTN__DEVICE void order_queries(uint32_t q)
{
    ATTN__LOOP for (int n = hw::thread(); n < 8 * (D / 8); n += hw::threads()) {
        uint32_t r[2][4], at[2];
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            at[e] = q + chunk_of(n / (D / 8) + 8 * e, n % (D / 8), 16);
            hw::load_shared(r[e], at[e]);
        }
        ATTN__UNROLL for (int i = 0; i < 2; i++) {
            uint32_t left[4];
            ATTN__UNROLL for (int x = 0; x < 4; x++)
                left[x] = hw::pick_bytes(r[x % 2][2 * i], r[x % 2][2 * i + 1], x / 2 ? 0x7632u : 0x5410u);
            hw::store_shared(at[i], left);
        }
    }
    hw::sync();
}
/* s 16xKeys = rows of Q, ordered . a transposed tile of codes times their scales */
template <class T, int D, int Keys, int Groups>
ATTN__DEVICE void product_of_codes(float (&s)[Keys / 2], uint32_t q, uint32_t codes, uint32_t scales)
{
    constexpr int of_scale = D / 32 / Groups;                       /* parts of 32 columns that have a scale together */
    const int lane = hw::lane_anew(), g = lane / 4, t = lane % 4;
    const uint32_t at = codes + code_at<D>(g, t / 2) + t % 2 * 8, of_keys = scales + t * 8;
    float sum[Keys / 2];
    constexpr int at_once = D > 192 ? 1 : D / 32;                   /* beside 256 columns registers are few */
    ATTN__UNROLL_BY(at_once)
    for (int u = 0; u < D / 32; u++) {
        uint32_t left[2][4];
        ATTN__UNROLL for (int i = 0; i < 2; i++) hw::load_shared(left[i], q + chunk_of(g + 8 * i, 4 * u + t, 16));
        ATTN__UNROLL for (int n = 0; n < Keys / 8; n++) {
            uint32_t four[2], scale[2];
            hw::load_shared(four, (at ^ u * 32) + n * 8 * codes_across<D> * 16);
            ATTN__UNROLL for (int x = 4 * n; x < 4 * n + 4 && u % of_scale == 0; x++) sum[x] = 0.0f;
            ATTN__UNROLL for (int i = 0; i < 2; i++)
                hw::mma<T>(sum + 4 * n, left[i], numbers_of_codes<T>(four[i]), numbers_of_codes<T>(four[i] >> 8));
            if ((u + 1) % of_scale != 0) continue;
            hw::load_shared(scale, of_keys + (u / of_scale * Keys + n * 8) * 4);
            ATTN__UNROLL for (int x = 4 * n; x < 4 * n + 4; x++)
                s[x] = hw::fma(sum[x], float_of(scale[x % 2]), u < of_scale ? 0.0f : s[x]);
        }
    }
}
/* Weights times scales as left operands of bf16, which has numbers of any size; where those of the call are more exact,
   in two parts. */
template <class T, int Parts>
ATTN__DEVICE void pack_in_parts(uint32_t (&a)[Parts][4], float (&w)[8])
{
    ATTN__UNROLL for (int part = 0; part < Parts; part++) {
        pack_left<T>(a[part], w, 0);
        ATTN__UNROLL for (int x = 0; x < 8 && part + 1 < Parts; x++) w[x] -= half_of<T>(a[part][x / 2], x % 2);
    }
}
/* out += weights . a tile of codes times their scales. edge: pairs may be excluded, which keep out a scale that is not
   finite (the NaN guard). Elsewhere a weight of +0 has merely vanished. */
template <class T, int D, int Keys, int Groups>
ATTN__DEVICE void add_codes(float (&out)[D / 2], const float (&s)[Keys / 2], uint32_t codes, uint32_t scales, bool edge)
{
    constexpr int of_scale = D / 32 / Groups, parts = T::is_bf16 ? 1 : 2;
    const int lane = hw::lane_anew(), g = lane / 4, t = lane % 4;
    const uint32_t of_keys = scales + t * 8;
    ATTN__UNROLL for (int k = 0; k < Keys / 16; k++) {
        uint32_t a[parts][4];
        ATTN__UNROLL for (int u = 0; u < D / 32; u++) {
            uint32_t four[4];
            if (u % of_scale == 0) {
                uint32_t scale[2][2];
                float w[8];
                ATTN__UNROLL for (int n = 0; n < 2; n++)
                    hw::load_shared(scale[n], of_keys + (u / of_scale * Keys + 16 * k + 8 * n) * 4);
                ATTN__UNROLL for (int x = 0; x < 8; x++) {
                    const float weight = s[8 * k + x];
                    w[x] = edge && bits_of(weight) == 0 ? 0.0f : weight * float_of(scale[x / 4][x % 2]);
                }
                pack_in_parts<hw::bf16>(a, w);
            }
            ATTN__UNROLL for (int i = 0; i < 4; i++) {
                const uint32_t at = code_at<D>(2 * t + i % 2, g / 4) ^ u * 32;
                four[i] = hw::load_shared_word(codes + g % 4 * 4 + at + (16 * k + i / 2 * 8) * codes_across<D> * 16);
            }
            ATTN__UNROLL for (uint32_t j = 0; j < 4; j++) {
                const uint32_t of_j = 0x4400u + j * 0x1111u;       /* a byte of two words, for two keys */
                const uint32_t b0 = numbers_of_codes<hw::bf16>(hw::pick_bytes(four[0], four[1], of_j));
                const uint32_t b1 = numbers_of_codes<hw::bf16>(hw::pick_bytes(four[2], four[3], of_j));
                ATTN__UNROLL for (int part = 0; part < parts; part++)
                    hw::mma<hw::bf16>(out + 16 * u + 4 * j, a[part], b0, b1);
            }
        }
    }
}
/* A warp's sums as add_codes leaves them become those of the usual columns, by way of its slots. */
template <int D> ATTN__DEVICE void order_columns(float (&out)[D / 2], unsigned char *slots)
{
    const int g = hw::lane() / 4, t = hw::lane() % 4;
    float *const own = (float *)slots;
    hw::sync_warp();
    ATTN__UNROLL for (int j = 0; j < D / 2; j++)
        own[(g + j / 2 % 2 * 8) * D + j / 16 * 32 + t * 8 + j % 2 * 4 + j / 4 % 4] = out[j];
    hw::sync_warp();
    ATTN__UNROLL for (int j = 0; j < D / 2; j++)
        out[j] = own[(g + j / 2 % 2 * 8) * D + j / 4 * 8 + t * 2 + j % 2];
}

/* ---- codes of 8 bits of which tiles of numbers are made, the type's nearest to a code times its scale: where kernels
   with Extra go over keys, whatever they do with these. A piece is 16 codes. They are copied to where their numbers
   will be, into the first half of that, and the thread that copied them makes these when the copy has ended: no other
   thread is waited for, and no shared memory is needed for codes. A warp has the rows that its lanes have looked up
   (copy_paged_rows); lanes side by side have the pieces of one. Two lanes' pieces have a scale together, so a lane has
   one of every other of their pieces, and tells it to these two. */
template <int D, int Rows, int Threads> struct made_tile {
    static constexpr int across = copy_across<D / 2>, at_once = 32 / across;        /* pieces of a row; rows */
    static constexpr int in_row = (D / 16 + across - 1) / across, rows = Rows * 32 / Threads;
    static constexpr int pieces = rows / at_once * in_row;                          /* of a lane */
    static_assert(rows % at_once == 0, "a warp's lanes have rows alike");
    uint32_t scale[(pieces + 1) / 2];           /* of the pieces under way, as they are stored */
};
/* A lane's n-th piece: the x-th, which may be beyond the last, of the warp's l-th row; `at`: where its numbers are. */
struct code_piece { int l, x; uint32_t at; };
template <int D, int Rows, int Threads> ATTN__DEVICE code_piece piece_of(int n, int lane)
{
    typedef made_tile<D, Rows, Threads> made;
    const int l = n / made::in_row * made::at_once + lane / made::across;
    const int x = n % made::in_row * made::across + lane % made::across;
    return {l, x, chunk_of(row_of_lane<Rows, Threads, copy_across<D>>(l), 2 * x, Rows)};
}
/* Starts to copy a tile of codes of a head, and loads their scales, which are load(page, row, group). */
template <int D, int Rows, int Threads, class F>
ATTN__DEVICE void copy_pieces(made_tile<D, Rows, Threads> &made, uint32_t to, const attn__array &a, int64_t columns,
                              const paged_row &own, F load)
{
    constexpr int pieces = made_tile<D, Rows, Threads>::pieces;
    const int lane = hw::lane_anew();
    ATTN__UNROLL for (int n = 0; n < pieces; n++) {
        const code_piece t = piece_of<D, Rows, Threads>(n, lane);
        const int page = hw::shfl(own.page, t.l), row = hw::shfl(own.row, t.l);
        const bool exists = t.x * 16 < (int)columns;
        if (t.x >= D / 16) continue;
        hw::cp_async(to + t.at, (const int8_t *)a.data + place(a, page, 0, row, t.x * 16), page >= 0 && exists);
        if (!exists) hw::cp_async(to + (t.at ^ 16), a.data, false);     /* zeros, whatever the scale beside them is */
    }
    ATTN__UNROLL for (int n = 0; n < pieces; n += 2) {
        const code_piece t = piece_of<D, Rows, Threads>(n + lane / 16, lane % 16 * 2);
        const int page = hw::shfl(own.page, t.l % 32), row = hw::shfl(own.row, t.l % 32);
        const bool inside = n + lane / 16 < pieces && page >= 0 && t.x * 16 < (int)columns;
        made.scale[n / 2] = inside ? load(page, row, t.x / 2) : 0;
    }
}
/* four codes times their scale */
template <class T> ATTN__DEVICE void make_numbers(uint32_t (&to)[2], uint32_t codes, float scale)
{
    const float base = 8388608.0f;      /* 2^23, whose lowest bit counts 1 */
    ATTN__UNROLL for (int i = 0; i < 2; i++) {
        float x[2];
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const uint32_t which = 0x7650u + (uint32_t)(2 * i + e);     /* the byte in the place of the lowest one */
            x[e] = float_of(hw::pick_bytes(codes ^ 0x80808080u, bits_of(base), which)) - (base + 128.0f);
        }
        to[i] = hw::pack<T>(hw::mul(x[0], scale), hw::mul(x[1], scale));
    }
}
template <class T, int D, int Rows, int Threads>
ATTN__DEVICE void make_pieces(const made_tile<D, Rows, Threads> &made, uint32_t tile, int32_t type, int64_t columns)
{
    const int lane = hw::lane_anew();
    ATTN__UNROLL for (int n = 0; n < made_tile<D, Rows, Threads>::pieces; n++) {
        const code_piece t = piece_of<D, Rows, Threads>(n, lane);
        const float scale = scale_of_codes(hw::shfl(made.scale[n / 2], n % 2 * 16 + lane / 2), type);
        uint32_t codes[4], numbers[2][4], two[2];
        if (t.x * 16 >= (int)columns) continue;
        hw::load_shared(codes, tile + t.at);
        ATTN__UNROLL for (int i = 0; i < 4; i++) {
            make_numbers<T>(two, codes[i], scale);
            numbers[i / 2][i % 2 * 2] = two[0];
            numbers[i / 2][i % 2 * 2 + 1] = two[1];
        }
        hw::store_shared(tile + t.at, numbers[0]);
        hw::store_shared(tile + (t.at ^ 16), numbers[1]);
    }
}

/* What the sums of the thread's rows are to be multiplied by; writes log-sum-exp and stats. Of the four threads that
   have the same two rows each finds one's. */
ATTN__DEVICE void finish_rows(const params &p, const tile_row (&rows)[2], const row_pair &soft, float unit,
                              float (&factor)[2])
{
    const int l = hw::lane_anew(), e = l % 2;
    const tile_row own = e ? rows[1] : rows[0];
    float of_own = 0.0f;
    if (is_inside(own))
        of_own = finish_row(p, own, (e ? soft.top[1] : soft.top[0]) * unit, e ? soft.mass[1] : soft.mass[0], l % 4 < 2);
    ATTN__UNROLL for (int n = 0; n < 2; n++) factor[n] = hw::shfl(of_own, l / 4 * 4 + n);
}
template <class T, int D, class... Room>
ATTN__DEVICE void store_out(const params &p, const float (&out)[D / 2], const tile_row (&rows)[2], const row_pair &soft,
                            float unit, Room... room)
{
    float factor[2];
    finish_rows(p, rows, soft, unit, factor);
    if (p.out.rank)
        store_rows<T, D, false>(p.out, out, rows, p.queries, p.size_v / halves_each<T>, factor, false, room...);
}

/* of a row's four threads */
ATTN__DEVICE void join_masses(row_pair &soft)
{
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        soft.mass[e] += hw::shfl_xor(soft.mass[e], 1);
        soft.mass[e] += hw::shfl_xor(soft.mass[e], 2);
    }
}

/* ---- the forward. A block goes over the keys that its rows may attend to, `Keys` at a time. K and V tiles have two
   slots each: while one is used the next is under way. Tiles of more than 8 KB have one each: that of V is under way
   while scores are found, the next of K while values are weighted. Where there are few blocks, the keys are split: each
   part leaves its sums in the workspace, and merge_row adds them in their order. In a decode the block that leaves the
   last part of a tile of rows does that, and nobody waits; of more rows its warps would take too long, so merge_splits
   has a warp for each, and where there are no registers (mma_merges).
       WarpsKV is 1: four warps go over the same tiles together, and each has `RowBlocks` blocks of 16 rows. What it
   loads of K and V at a time (512 bytes, four clocks of shared memory) makes two products for each block, and two are
   four clocks of an A100's tensor cores: with one block these wait for shared memory, with two it has half the traffic.
   The blocks of a warp lie 64 rows apart, so that all warps have rows where only the first 64 exist.
       WarpsKV is more, for a decode, which has at most 16 rows, with codes some tiles of 16: so many warps, or two,
   have the same rows and split their keys. Each takes every warps_kv-th tile, copies it into slots of its own and waits
   for no other; at the end merge_warps adds their sums in their order. A slot is copied into as soon as its product is
   done, so the next two tiles are under way (task_keys::depth: but where numbers may be made of codes).
       Codes, in a decode: K and V are codes of 8 bits, and behind their slots lie the scales of a tile of each. */
/* Keys of a tile, and blocks of rows. A multiprocessor has registers for two blocks of threads. Shared memory of one:
   48 KB with D up to 64, twice into the 100 KB of sm_86, sm_89 and sm_120; with D 128 64 KB, twice into an A100's 164
   KB, or 48 KB with one block of 16 rows (mma_small_shape); with D 256 64 KB. Sums of more columns, and options, leave
   no registers for a second block of rows; options take code, too, so their tiles are smaller. */
template <int D, bool Extra>
constexpr int mma_keys = D <= 64 ? 64 : Extra ? (D <= 192 ? 32 : 16) : D <= 128 ? 64 : 32;
template <int D, bool Extra> constexpr int mma_row_blocks = !Extra && D <= 128 ? 2 : 1;
/* Of a decode, which memory limits: two blocks of a multiprocessor, with three tiles of each warp under way, wait for
   some 96 KB at once; bandwidth times latency is 25 KB on an H200, and more when memory is busy. Numbers take 54 to 72
   KB of shared memory: two blocks fit on an A100, three on an H100. Where two blocks of four warps do not fit, they
   have two warps, and 34 or 36 KB. A lane looks up a row of a tile, so tiles of codes have at most 32 keys; with many
   sums, or some scales for a row, there are no registers for so many. */
template <int D, int Kind = NUMBERS> constexpr int mma_decode_keys = D <= (Kind == CODES ? 128 : 64) ? 32 : 16;
template <int D> constexpr int mma_decode_warps = D <= 128 ? 4 : 2;
/* Blocks of a multiprocessor that there are to be registers for. Weights in two parts (add_codes) take some. */
template <class T, int D, bool Extra, int WarpsKV, int Kind>
constexpr int mma_blocks = WarpsKV == 1 || Extra ? 1 : Kind == CODES && !T::is_bf16 && D == 128 ? 2 : 3;
/* Does the block of a decode that leaves the last part merge them? Beside 256 columns and options it has no registers
   for that. */
template <int D, bool Extra> constexpr bool mma_merges = D <= 192 || !Extra;
/* Does a decode with options make numbers of codes? Beside 256 columns it has no registers for that. */
template <int D> constexpr bool mma_decode_makes = D <= 192;
template <int WarpsKV> constexpr int mma_threads = WarpsKV > 1 ? 32 * WarpsKV : 128;
template <int D, int Keys, int WarpsKV = 1, int Kind = NUMBERS, int RowBlocks = 1> struct mma_shape {
    typedef code_tile<Keys, D, Kind> tile;
    static constexpr int kind = Kind, row_blocks = RowBlocks;
    static constexpr bool codes = Kind != NUMBERS;
    static constexpr int threads = mma_threads<WarpsKV>, tile_threads = threads / WarpsKV;
    static constexpr int apart = tile_threads / 32 * 16, rows = RowBlocks * apart;     /* apart: blocks of a warp */
    static constexpr int slot = codes ? tile::bytes : tile_bytes<Keys, D>;
    static constexpr bool one_slot = slot > 8192;
    static_assert(!one_slot || (WarpsKV == 1 && !codes), "a decode counts copies into two slots");
    static constexpr int scales = codes ? tile::scale_bytes : 0;
    static constexpr int all_slots = (one_slot ? 2 : 4) * slot;
    static constexpr int copied = all_slots + 2 * scales, summed = (D / 2 + 4) * 32 * 4;     /* merge_warps */
    static constexpr int most = codes && copied < summed ? summed : copied;
    static constexpr int slots = codes ? (most + 255) / 256 * 256 : most;       /* of the threads that share tiles */
    static_assert(!codes || (slot % 256 == 0 && tile_bytes<rows, D> % 256 == 0), "code_at exchanges within 256 bytes");
    static constexpr int shared_bytes = tile_bytes<rows, D> + WarpsKV * slots + threads / 32 * 16;
};
template <int D, int Kind = NUMBERS>
using mma_decode_shape = mma_shape<D, mma_decode_keys<D, Kind>, mma_decode_warps<D>, Kind>;
template <int D, bool Extra>
using mma_tile_shape = mma_shape<D, mma_keys<D, Extra>, 1, NUMBERS, mma_row_blocks<D, Extra>>;
/* Where these do not fit, or tiles of so many rows are few */
template <int D, bool Extra>
using mma_small_shape = mma_shape<D, mma_keys<D, Extra>, 1, NUMBERS, D <= 64 ? mma_row_blocks<D, Extra> : 1>;
/* Rows of a tile of a decode, and the most that read codes as they are. Tiles of the same keys run beside each other,
   so memory is read once for them: four read 4 bytes for each code from L2; numbers that are made first take as many of
   memory, where they are written and read again. Computed, not measured. */
enum { MMA_DECODE_ROWS = 16, MMA_CODE_ROWS = 4 * MMA_DECODE_ROWS };
enum { MMA_STARTS = 192 };      /* the largest head size whose kernels have registers for starts */
struct mma_work {
    params  p;
    int32_t pack, splits;       /* heads in a tile; parts of the keys */
    int64_t groups, tiles;      /* heads/pack; tiles of rows per group */
    int64_t rows;               /* of a tile */
    int64_t columns;            /* D of the kernel */
    packed_tiles packed;        /* of queries */
    float  *sums, *tops;        /* splits > 1: per group, split and row: D sums; largest score and mass */
    int    *counts;             /* of a decode: per tile of rows the parts that are there; 0 at first */
};

/* A row of a tile, where its keys are not asked for */
ATTN__DEVICE tile_row bare_row(const mma_work &m, const entry &in, int b, int group, int row)
{
    return {b, group * m.pack + row % m.pack, row / m.pack, row < in.rows_end * m.pack ? 0 : -1, 0, 0};
}
/* What a part of the keys leaves for merge_row, of the thread's rows from `at` on. */
template <int D>
ATTN__DEVICE void leave_sums(const mma_work &m, int64_t at, const float (&out)[D / 2], const tile_row (&rows)[2],
                             const row_pair &soft, float unit)
{
    ATTN__UNROLL for (int e = 0; e < 2; e++, at += 8) {
        if (!is_inside(rows[e])) continue;
        ATTN__UNROLL for (int j = 0; j < D / 8; j++)
            ATTN__UNROLL for (int x = 0; x < 2; x++)
                m.sums[at * D + j * 8 + hw::lane() % 4 * 2 + x] = out[4 * j + 2 * e + x];
        const uint32_t top_and_mass[2] = {bits_of(soft.top[e] * unit), bits_of(soft.mass[e])};
        if (hw::lane() % 4 == 0) hw::store_global(m.tops + 2 * at, top_and_mass);
    }
}

/* The results of the thread's rows, or where their keys are split what merge_row makes them of. */
template <class T, int D, class... Room>
ATTN__DEVICE void end_of_rows(const mma_work &m, int64_t at, const float (&out)[D / 2], const tile_row (&rows)[2],
                              const row_pair &soft, float unit, Room... room)
{
    if (m.splits == 1) store_out<T, D>(m.p, out, rows, soft, unit, room...);
    else leave_sums<D>(m, at, out, rows, soft, unit);
}

/* The tiles of keys that a block goes over; parts begin at the same keys for all rows. */
struct tile_range { int first, end; };
ATTN__DEVICE tile_range tiles_of(const mma_work &m, const tile_reach &all, int64_t keys_of_entry, int split, int keys)
{
    tile_range t = {all.last > 0 ? all.first / keys : 0, (all.last + keys - 1) / keys};
    if (m.splits == 1) return t;
    const int part = (int)((keys_of_entry + (int64_t)keys * m.splits - 1) / ((int64_t)keys * m.splits));
    t.first = most(t.first, split * part);
    t.end = least(t.end, (split + 1) * part);
    return t;
}

/* Of warps that went over different keys of the same rows: the first one's sums become those of all. A lane has the
   same rows and columns in each warp, and leaves its numbers in the slots of its warp. */
template <int D, int Bytes>
ATTN__DEVICE void merge_warps(float (&out)[D / 2], row_pair &soft, float scale, unsigned char *slots)
{
    static_assert((D / 2 + 4) * 32 * (int)sizeof(float) <= Bytes, "the slots of a warp hold its numbers");
    const int warps = hw::threads() / 32;
    const auto left_by = [&](int warp) { return (float *)(slots + warp * Bytes) + hw::lane(); };
    float *const own = left_by(hw::warp());
    hw::sync_warp();                                    /* its slots are free */
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        own[32 * e] = soft.top[e];
        own[32 * (2 + e)] = soft.mass[e];
    }
    ATTN__UNROLL for (int j = 0; j < D / 2; j++) own[32 * (4 + j)] = out[j];
    hw::sync();
    if (hw::warp() != 0) return;
    float factor[2], base[2];
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        const float before = soft.top[e];
        for (int w = 1; w < warps; w++) soft.top[e] = fmaxf(soft.top[e], left_by(w)[32 * e]);
        base[e] = is_none(soft.top[e]) ? 0.0f : soft.top[e];
        factor[e] = hw::ex2((before - base[e]) * scale);
        soft.mass[e] *= factor[e];
    }
    rescale_rows<D>(out, factor);
    ATTN__LOOP for (int w = 1; w < warps; w++) {
        const float *const part = left_by(w);
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            factor[e] = hw::ex2((part[32 * e] - base[e]) * scale);
            soft.mass[e] = hw::fma(part[32 * (2 + e)], factor[e], soft.mass[e]);
        }
        ATTN__UNROLL for (int j = 0; j < D / 2; j++)
            out[j] = hw::fma(part[32 * (4 + j)], factor[j / 2 % 2], out[j]);
    }
}

/* Queries of `pack` heads, one head's after the other's of the same query. */
template <int D, int Rows, int Threads>
ATTN__DEVICE void copy_packed(uint32_t to, const mma_work &m, int b, int group, int row0, int rows_end)
{
    copy_tile<D, Rows, Threads>(to, m.p.q.data, m.p.size_q, [&](int r) {
        const int row = row0 + r, i = row / m.pack;
        return i < rows_end ? row_of(m.p.q, b, group * m.pack + row % m.pack, i) : NULL;
    });
}

/* The rows of a warp. A thread knows its own, two of each block of 16; or, where all that is asked of them is which
   keys they may attend to, a lane knows one, for registers are few, and tells the others at an edge. */
template <int RowBlocks, bool ByLane> struct rows_of_warp {
    static constexpr bool by_lane = ByLane;
    static constexpr int known = ByLane ? 1 : 2 * RowBlocks;
    tile_row of[known];
};
/* Which row of the warp's tile the n-th is that this thread knows */
template <class Rows> ATTN__DEVICE int known_row(int n, int apart, int blocks)
{
    const int l = hw::lane();
    return Rows::by_lane ? l / 16 % blocks * apart + l % 16 : n / 2 * apart + l / 4 + n % 2 * 8;
}
/* This thread's two of block r */
template <class Rows> ATTN__DEVICE void two_rows(tile_row (&two)[2], const Rows &rows, int r)
{
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        two[e] = rows.of[Rows::by_lane ? 0 : 2 * r + e];
        if (!Rows::by_lane) continue;
        two[e].first = hw::shfl(rows.of[0].first, 16 * r + hw::lane() / 4 + 8 * e);
        two[e].last = hw::shfl(rows.of[0].last, 16 * r + hw::lane() / 4 + 8 * e);
    }
}

/* Scores of the keys from key0 on become weights, and the sums so far are brought to the new maximum. r: which of the
   warp's blocks of 16 rows. */
template <int Columns, bool Extra, bool Starts, int Keys, class Rows>
ATTN__DEVICE void mma_softmax(const params &p, float (&s)[Keys / 2], float (&out)[Columns / 2], row_pair &soft,
                              const Rows &rows, int r, int key0, bool edge)
{
    const float scale = scale_of<Extra>(p), top[2] = {soft.top[0], soft.top[1]};
    tile_row two[2];
    const auto alibi_at = [&](int e) { return alibi_of(p, two[e]); };
    float rescale[2];
    if (!Rows::by_lane) two_rows(two, rows, r);
    if (edge) {
        if (Rows::by_lane) two_rows(two, rows, r);
        softmax_keys<Keys, Extra, true, true, Starts>(s, soft, p, two, key0, scale, rescale, alibi_at);
    } else softmax_keys<Keys, Extra, false, true, Starts>(s, soft, p, two, key0, scale, rescale, alibi_at);
    if (Extra) drop_tile<Keys, Starts>(s, p, two, key0);
    if (hw::any(soft.top[0] != top[0] || soft.top[1] != top[1])) rescale_rows<Columns>(out, rescale);   /* else 1 */
}

/* An array that begins with a row of a head */
template <bool MayBeCodes> ATTN__DEVICE attn__array from_row(const attn__array &a, int b, int h, int64_t row)
{
    attn__array head = a;
    if (MayBeCodes && a.type == CODES_FOR_TILES) head.data = (void *)((char *)a.data + place(a, b, h, row, 0));
    else head.data = (void *)row_of(a, b, h, row);
    head.data = hw::anew(head.data);                        /* else parts of the sum may be kept instead */
    return head;
}

/* K or V of a task: the head that its tiles are copied from, and their slots */
template <class Scales> struct tiled_head {
    attn__array a;                              /* from the entry's first row on; rank 0: not asked for */
    const attn__array &scale;
    const int64_t &columns;                     /* read where it is needed: registers are few */
    uint32_t slots, made;                       /* made: the scales of the tile in use, with codes */
    Scales   scales;                            /* of the tile that is copied next, or under way */
};
template <int D, int Keys, class Shape, bool Codes = Shape::codes> struct task_scales {
    typedef made_tile<D, Keys, Shape::tile_threads> type;
};
template <int D, int Keys, class Shape> struct task_scales<D, Keys, Shape, true> {
    typedef code_scales<Keys, Shape::tile::groups> type;
};
/* The keys of a task, as the threads go over them that share slots: tile n has keys n * Keys and those after it, and
   the one after it is n + step. */
template <int D, bool Extra, int Keys, int WarpsKV, int Kind, int RowBlocks, bool Floats> struct task_keys {
    typedef mma_shape<D, Keys, WarpsKV, Kind, RowBlocks> shape;
    static constexpr int keys = Keys, size = D;
    /* Does it make numbers of codes, tile by tile? */
    static constexpr bool makes = Extra && !Floats && (WarpsKV == 1 || mma_decode_makes<D>);
    /* Tiles of K and V under way. With two, a warp's slot is copied into as soon as its product is done. What makes
       numbers of codes has registers for the scales of one. */
    static constexpr int depth = WarpsKV > 1 && !makes ? 2 : 1;
    typedef typename task_scales<D, Keys, shape>::type scales;
    static constexpr bool extra = Extra, by_lane = !Extra && WarpsKV == 1;      /* of rows: rows_of_warp */
    /* Registers do not keep what tells of rows while keys are read: it is found again. */
    static constexpr bool bare = by_lane || (WarpsKV > 1 && mma_merges<D, Extra>);
    /* No register is to keep addresses from tile to tile. */
    static constexpr bool tight = (RowBlocks > 1 && D > 64) || (Extra && WarpsKV == 1 && D > 192);
    /* Are rows in pages looked up ahead, and is there another way to copy rows side by side? Beside sums of 256 columns
       there are no registers for that, in some kernels. */
    static constexpr bool ahead = D <= 192 || ((WarpsKV > 1) != Extra && Kind != CODES_IN_GROUPS && !Floats);
    const params &p;
    int        b, head, step, key0;
    tile_reach reach;                           /* of all rows of the block */
    tile_range tiles;
    paged_row  own;                             /* the lane's row of the tile that is copied next */
    tiled_head<scales> k, v;
};
/* The compiler does not see what all lanes have alike: of each exchange between lanes in the loop over tiles it makes a
   second text, for warps that have diverged. So a decode has these bounds as one lane has them; tiles of a block have
   no registers for that. */
template <class Task> ATTN__DEVICE int bound_of_tiles(int x)
{
    return Task::shape::tile_threads == 32 ? hw::uniform(x) : x;
}
template <class Task>
ATTN__DEVICE Task keys_of_task(const mma_work &m, int b, int group, const entry &in, const tile_reach &of_block,
                               int split, int step, uint32_t slots)
{
    const auto bound = [](int x) { return bound_of_tiles<Task>(x); };
    const tile_reach reach = {bound(of_block.first), bound(of_block.last), bound(of_block.from), bound(of_block.to)};
    typedef typename Task::shape shape;
    constexpr bool codes = shape::codes;
    const params &p = m.p;
    const int head = group * m.pack / (int)(p.heads / p.heads_kv), batch = p.page ? 0 : b;
    const int64_t keys_of_entry = m.splits > 1 && p.packed_keys ? keys_end_of(p, in, b) - in.key0 : p.keys;
    const uint32_t scales = slots + shape::all_slots;
    Task t = {p, b, head, step, (int)in.key0, reach, tiles_of(m, reach, keys_of_entry, split, Task::keys), {-1, 0},
              {codes ? p.k : from_row<Task::makes>(p.k, batch, head, in.key0), p.k_scale, p.size_q, slots, scales, {}},
              {codes ? p.v : from_row<Task::makes>(p.v, batch, head, in.key0), p.v_scale, p.size_v,
               slots + shape::all_slots / 2, scales + shape::scales, {}}};
    if (!p.out.rank) t.v.a.rank = 0;                    /* log-sum-exp or stats alone */
    t.tiles.first = bound(t.tiles.first);
    t.tiles.end = bound(t.tiles.end);
    return t;
}
template <class Task> ATTN__DEVICE void find_rows(Task &t, int n)
{
    typedef typename Task::shape shape;
    constexpr int D = Task::size, Keys = Task::keys, across = shape::codes ? codes_across<D> : copy_across<D>;
    const int l = hw::lane_anew(), row = shape::codes ? l % Keys : row_of_lane<Keys, shape::tile_threads, across>(l);
    const int key = n * Keys + row;
    t.own = find_paged_row(t.p, hw::anew(t.b), key, t.reach.first, t.reach.last, shape::codes ? t.b : 0);
}
template <class Task> ATTN__DEVICE void look_ahead(Task &t, int n)
{
    if (Task::ahead && (Task::shape::codes || t.p.page || (Task::makes && are_for_tiles(t.p)))) find_rows(t, n);
}
template <class Task> ATTN__DEVICE uint32_t slot_of(const Task &t, uint32_t slots, int n)
{
    return slots + (!Task::shape::one_slot && n & t.step ? Task::shape::slot : 0);
}
/* Starts to copy tile n of t.k or t.v. With codes the one two tiles before is used up, and the scales of the one before
   have arrived. */
template <class Task, class Scales> ATTN__DEVICE void copy_keys(Task &t, tiled_head<Scales> &from, int n)
{
    typedef typename Task::shape shape;
    constexpr int D = Task::size, Keys = Task::keys, sharing = shape::tile_threads;
    const bool any = n < t.tiles.end && from.a.rank;
    const uint32_t to = slot_of(t, from.slots, n);
    if (any && !Task::ahead) find_rows(t, n);
    if constexpr (shape::codes) {
        if (from.a.rank) store_scales(from.made, from.scales, from.scale.type);
        if (any) {
            const bool inside = n * Keys >= t.reach.first && (n + 1) * Keys <= t.reach.last;
            const bool straight = Task::ahead && !t.p.page && inside;
            copy_codes<Keys, D>(to, from.a, t.head, from.columns, t.own, straight);
            load_scales(from.scales, from.scale, t.head, from.columns, t.own);
        }
    } else if (any) {
        constexpr int across = copy_across<D>;
        if (Task::makes && from.a.type == CODES_FOR_TILES)
            copy_pieces(from.scales, to, from.a, from.columns, t.own, [&](int page, int row, int group) {
                return load_scale(from.scale, place(from.scale, t.p.page ? page : t.b, t.head, t.key0 + row, group));
            });
        else if (!Task::ahead || t.p.page)
            copy_paged_rows<D, Keys, sharing, across, Task::tight>(to, from.a, from.columns, t.own);
        else
            copy_rows<D, Keys, sharing, across, Task::tight>(to, from.a, from.columns, 0, 0, n * Keys, t.reach.first,
                                                             t.reach.last);
    }
    hw::cp_async_commit();
}
/* Tile n of t.k or t.v, whose copy has ended, becomes numbers. */
template <class T, class Task, class Scales> ATTN__DEVICE void make_keys(Task &t, tiled_head<Scales> &from, int n)
{
    if constexpr (Task::makes)
        if (from.a.rank && from.a.type == CODES_FOR_TILES)
            make_pieces<T>(from.scales, slot_of(t, from.slots, n), from.scale.type, from.columns);
}
/* What is copied before the first tile's scores are found */
template <class Task> ATTN__DEVICE void copy_first(Task &t, int first)
{
    ATTN__UNROLL for (int n = 0; n < Task::depth; n++) {
        copy_keys(t, t.k, first + n * t.step);
        if (Task::shape::one_slot) continue;
        copy_keys(t, t.v, first + n * t.step);
        look_ahead(t, first + (n + 1) * t.step);
    }
}
/* What is copied while the scores of tile n are found, or its values weighted: into a slot that all threads have left.
   Where two tiles are under way it is the one that this thread's warp leaves, so products come first. */
template <class Task> ATTN__DEVICE void copy_beside_scores(Task &t, int n)
{
    if (Task::shape::one_slot) copy_keys(t, t.v, n), look_ahead(t, n + t.step);
    else copy_keys(t, t.k, n + Task::depth * t.step);
}
template <class Task> ATTN__DEVICE void copy_beside_values(Task &t, int n)
{
    constexpr int depth = Task::depth;
    if (Task::shape::one_slot) copy_keys(t, t.k, n + t.step);
    else copy_keys(t, t.v, n + depth * t.step), look_ahead(t, n + (depth + 1) * t.step);
}
/* The products of tile n, once its copy has ended: scores of a warp's blocks of rows, the first from row0 on; out +=
   weights . values. */
template <class T, class Task, int Blocks, int N>
ATTN__DEVICE void scores_of_tile(Task &t, float (&s)[Blocks][N], uint32_t q, int row0, int n, int busy)
{
    typedef typename Task::shape shape;
    constexpr bool anew = Task::tight || T::is_f32;
    const uint32_t tile = slot_of(t, t.k.slots, n);
    if (Task::depth == 1) copy_beside_scores(t, n);
    if constexpr (shape::codes)
        product_of_codes<T, Task::size, Task::keys, shape::tile::groups>(s[0], q, tile, t.k.made);
    else if (busy) product_of_blocks<T, Task::keys, Task::size, shape::rows, anew>(s, q, row0, tile);
    if constexpr (T::is_f32)
        if (busy) mend_nonfinite<T, Task::keys, Task::size, shape::rows>(s[0], q, row0, tile);
    if (Task::depth == 2) hw::sync_warp(), copy_beside_scores(t, n);
}
template <class T, class Task, int Blocks, int N, int M>
ATTN__DEVICE void values_of_tile(Task &t, float (&out)[Blocks][M], const float (&s)[Blocks][N], int n, bool edge,
                                 int busy)
{
    typedef typename Task::shape shape;
    constexpr int D = Task::size, Keys = Task::keys;
    const uint32_t tile = slot_of(t, t.v.slots, n);
    if (Task::depth == 1) copy_beside_values(t, n);
    if constexpr (shape::codes) {
        constexpr int groups = shape::tile::groups;
        constexpr bool always = !Task::ahead;               /* one copy of it, where registers are few */
        if (t.v.a.rank && (always || edge)) add_codes<T, D, Keys, groups>(out[0], s[0], tile, t.v.made, edge);
        else if (t.v.a.rank) add_codes<T, D, Keys, groups>(out[0], s[0], tile, t.v.made, false);
    } else if (t.v.a.rank)
        add_values<T, D, Keys, shape::tile_threads, Task::tight>(out, s, tile, edge, busy, t.reach.first - n * Keys,
                                                                 t.reach.last - n * Keys);
    if (Task::depth == 2) hw::sync_warp(), copy_beside_values(t, n);
}

/* Kernels of large heads and of codes have no registers for starts. */
template <int D, int Kind> constexpr bool mma_starts = D <= MMA_STARTS && Kind == NUMBERS;
template <int D, int Kind> ATTN__DEVICE entry entry_of_kernel(const params &p, int b)
{
    return mma_starts<D, Kind> ? entry_of(p, b) : whole_entry(p);
}
/* Each tile of rows has a number. Codes have no starts, and where no register is free, the compiler is told. */
struct mma_tile { int b, group, first_row; };
template <int Kind> ATTN__DEVICE bool has_packed(const mma_work &m)
{
    return Kind != CODES_IN_GROUPS && m.packed.count;
}
template <int Kind> ATTN__DEVICE int tiles_of_group(const mma_work &m)
{
    return has_packed<Kind>(m) ? packed_count(m.packed, (int)m.tiles) : (int)m.tiles;
}
template <class Shape> ATTN__DEVICE mma_tile tile_of(const mma_work &m, int number)
{
    const int tiles = tiles_of_group<Shape::kind>(m), tile = tiles - 1 - number % tiles, groups = (int)m.groups;
    int b = number / tiles / groups, first_row = tile * Shape::rows;
    if (has_packed<Shape::kind>(m)) b = m.packed.tiles[tile].entry, first_row = m.packed.tiles[tile].row * m.pack;
    return {b, number / tiles % groups, first_row};
}
/* The results of a warp's rows. What their task is, is found again. */
template <class T, class Task, int RowBlocks, int N, class Rows>
ATTN__DEVICE void end_of_warp(const mma_work &m, int number, int row0, const float (&out)[RowBlocks][N],
                              const row_pair (&soft)[RowBlocks], const Rows &rows, uint32_t room)
{
    typedef typename Task::shape shape;
    const mma_tile tile = tile_of<shape>(m, number / m.splits);
    const entry in = entry_of_kernel<Task::size, shape::kind>(m.p, tile.b);
    const int64_t part = (row_batch(m.p, tile.b) * m.groups + tile.group) * m.splits + number % m.splits;
    ATTN__UNROLL for (int r = 0; r < RowBlocks; r++) {
        const int row = hw::anew(tile.first_row + row0 + r * shape::apart) + hw::lane() / 4;
        tile_row ends[2];
        if constexpr (Task::bare) {
            ends[0] = bare_row(m, in, tile.b, tile.group, row);
            ends[1] = bare_row(m, in, tile.b, tile.group, row + 8);
        } else two_rows(ends, rows, r);
        const int64_t at = part * m.p.queries * m.pack + row;
        const float unit = unit_of<Task::extra>(m.p);
        if constexpr (T::is_f32 || shape::codes || (RowBlocks > 1 && N > 32))       /* no register to spare */
            end_of_rows<T, 2 * N>(m, at, out[r], ends, soft[r], unit);
        else end_of_rows<T, 2 * N>(m, at, out[r], ends, soft[r], unit, room);
    }
}

/* The rows of the warp whose first is `at`; what those of the block may attend to */
template <int RowBlocks, class Rows>
ATTN__DEVICE tile_reach find_rows_of(Rows &rows, const mma_work &m, const entry &in, const mma_tile &tile, int at,
                                     int apart, tile_reach *reaches)
{
    tile_reach reach = no_rows();
    ATTN__UNROLL for (int n = 0; n < Rows::known; n++) {
        rows.of[n] = row_at(m.p, in, tile.b, tile.group, m.pack, at + known_row<Rows>(n, apart, RowBlocks));
        join(reach, reach_of_row(rows.of[n]));
    }
    return join_block(reach, reaches);
}
/* The keys of a task, from tile `first` on, each warp's own where they split them */
template <class T, class Task, int Blocks, int N, class Rows>
ATTN__DEVICE void go_over_keys(Task &t, float (&out)[Blocks][N], row_pair (&soft)[Blocks], const Rows &rows, uint32_t q,
                               int row0, int first, int busy)
{
    typedef typename Task::shape shape;
    constexpr int Keys = Task::keys, left = shape::one_slot ? 0 : 2 * Task::depth - 1;     /* that may be under way */
    const bool always_edge = Task::extra && asks(t.p, ANY_PAIR);
    for (int n = first; n < t.tiles.end; n += t.step) {
        const bool edge = always_edge || n * Keys < t.reach.from || (n + 1) * Keys > t.reach.to;
        float s[Blocks][Keys / 2];
        hw::cp_async_wait<left>();                      /* K of this tile */
        make_keys<T>(t, t.k, n);
        sync_tile<shape::tile_threads>();
        scores_of_tile<T>(t, s, q, row0, n, busy);
        ATTN__UNROLL for (int r = 0; r < Blocks; r++)
            if (r < busy)
                mma_softmax<2 * N, Task::extra, mma_starts<Task::size, Task::shape::kind>, Keys>(
                    t.p, s[r], out[r], soft[r], rows, r, n * Keys, edge);
        hw::cp_async_wait<left>();                      /* V of this tile */
        make_keys<T>(t, t.v, n);
        sync_tile<shape::tile_threads>();
        values_of_tile<T>(t, out, s, n, edge, busy);
    }
    hw::cp_async_wait<0>();
}

/* A task: a block's tile of rows (>>mma: rows of a call), and part of their keys. */
template <class T, int D, bool Extra, int Keys, int WarpsKV, int Kind, int RowBlocks>
ATTN__DEVICE void mma_forward_task(const mma_work &m, unsigned char *shared, int number)
{
    typedef task_keys<D, Extra, Keys, WarpsKV, Kind, RowBlocks, T::is_f32> task;
    typedef typename task::shape shape;
    typedef rows_of_warp<RowBlocks, task::by_lane> warp_rows;
    constexpr int whole = tile_bytes<shape::rows, D>, columns = D / halves_each<T>;
    const params &p = m.p;
    const mma_tile tile = tile_of<shape>(m, number / m.splits);
    const int warps_kv = WarpsKV > 1 ? hw::threads() / 32 : 1, warp_kv = WarpsKV > 1 ? hw::warp() : 0;
    const int row0 = WarpsKV > 1 ? 0 : hw::warp() * 16, at = tile.first_row + row0;
    const uint32_t q = hw::shared_address(shared), slots = q + whole + warp_kv * shape::slots;
    const entry in = entry_of_kernel<D, Kind>(p, tile.b);
    warp_rows rows;
    const tile_reach reach = find_rows_of<RowBlocks>(rows, m, in, tile, at, shape::apart,
                                                     (tile_reach *)(shared + whole + warps_kv * shape::slots));
    task t = keys_of_task<task>(m, tile.b, tile.group, in, reach, number % m.splits, warps_kv, slots);
    row_pair soft[RowBlocks];
    float out[RowBlocks][columns / 2];
    int busy = 0;                                       /* blocks of this warp that have any rows */

    const int first = t.tiles.first + warp_kv;
    look_ahead(t, first);
    if (WarpsKV == 1 || hw::warp() < 2)
        copy_packed<D, shape::rows, WarpsKV == 1 ? 128 : 64>(q, m, tile.b, tile.group, tile.first_row,
                                                             (int)in.rows_end);
    if (WarpsKV > 1) hw::cp_async_commit();
    copy_first(t, first);
    if (WarpsKV > 1) hw::cp_async_wait<2 * task::depth>(), hw::sync();     /* Q, of which each warp reads all */
    if constexpr (shape::codes) order_queries<D>(q);
    ATTN__UNROLL for (int r = 0; r < RowBlocks; r++) {
        busy += at + r * shape::apart < in.rows_end * m.pack;
        soft[r] = no_keys();
        ATTN__UNROLL for (int j = 0; j < columns / 2; j++) out[r][j] = 0.0f;
    }
    if (RowBlocks > 1 && D > 96) busy = hw::uniform(busy);  /* a number: else predicates are kept, or registers spill */
    go_over_keys<T>(t, out, soft, rows, q, row0, first, busy);
    ATTN__UNROLL for (int r = 0; r < RowBlocks; r++) join_masses(soft[r]);
    if constexpr (WarpsKV > 1) merge_warps<D, shape::slots>(out[0], soft[0], scale_of<Extra>(p), shared + whole);
    if constexpr (shape::codes)
        if (warp_kv == 0) order_columns<D>(out[0], shared + whole);
    if constexpr (WarpsKV == 1) hw::sync();             /* tiles are behind all warps */
    static_assert(WarpsKV > 1 ? warp_room<columns> <= shape::slots : 4 * warp_room<columns> <= shape::shared_bytes,
                  "store_rows has room");
    if (warp_kv == 0)                                   /* it has the sums of all */
        end_of_warp<T, task>(m, hw::anew(number), WarpsKV > 1 ? 0 : hw::thread_anew() / 32 * 16, out, soft, rows,
                             q + (WarpsKV > 1 ? whole : hw::thread_anew() / 32 * warp_room<columns>));
    hw::sync();                                         /* Q and the slots are free again */
}

/* Four neighbours of a row of results; two of 16 bits are aligned. */
ATTN__DEVICE void store_in_row(const attn__array &out, int64_t at, const float (&x)[4])
{
    if (out.type == ATTN_F32) {
        ATTN__UNROLL for (int j = 0; j < 4; j++) ((float *)out.data)[at + j] = quiet(x[j]);
    } else {
        ATTN__UNROLL for (int j = 0; j < 4; j += 2)
            *(uint32_t *)((uint16_t *)out.data + at + j) =
                out.type == ATTN_BF16 ? pack_result<hw::bf16>(x[j], x[j + 1]) : pack_result<hw::f16>(x[j], x[j + 1]);
    }
}
/* A warp makes of a row's parts, in the order of their keys, what one part would have come to. A lane looks at the
   scale of one of 32 parts; then it has four columns side by side of eight parts under way. Parts without a key add
   0. */
ATTN__DEVICE void merge_row(const mma_work &m, const entry &in, int b, int group, int row)
{
    enum { AT_ONCE = 8, EACH = 4 };
    const params &p = m.p;
    const tile_row r = bare_row(m, in, b, group, row);
    const int64_t step = p.queries * m.pack, array = row_batch(p, b) * m.groups + group;
    const int64_t first = array * m.splits * step + row;
    const int size = p.out.rank ? (int)p.size_v : 0;
    const auto left_by = [&](int s) { return m.tops + 2 * (first + s * step); };
    float top = -infinity();
    ATTN__LOOP for (int s = hw::lane(); s < m.splits; s += 32)
        if (left_by(s)[1] != 0.0f) top = fmaxf(top, left_by(s)[0]);
    for (int mask = 16; mask; mask /= 2) top = fmaxf(top, hw::shfl_xor(top, mask));
    int c = EACH * hw::lane();
    do {
        float mass = 0.0f, sum[EACH] = {};
        ATTN__LOOP for (int s0 = 0; s0 < m.splits; s0 += 32) {
            const float own = s0 + hw::lane() < m.splits ? left_by(s0 + hw::lane())[1] : 0.0f;
            const float scale = own != 0.0f ? hw::ex2((left_by(s0 + hw::lane())[0] - top) * LOG2E) : 0.0f;
            const uint32_t some = hw::ballot(own != 0.0f);
            ATTN__LOOP for (int s = s0; s < least(s0 + 32, m.splits); s += AT_ONCE) {
                eight_halves part[AT_ONCE];
                ATTN__UNROLL for (int n = 0; n < AT_ONCE; n++) {
                    part[n] = eight_halves();
                    if (some >> (s - s0 + n) & 1 && c < size)
                        part[n] = *(const eight_halves *)(m.sums + (first + (s + n) * step) * m.columns + c);
                }
                ATTN__UNROLL for (int n = 0; n < AT_ONCE; n++) {
                    const float factor = hw::shfl(scale, s - s0 + n);
                    mass += hw::shfl(own, s - s0 + n) * factor;
                    ATTN__UNROLL for (int j = 0; j < EACH; j++) sum[j] += float_of(part[n].pair[j]) * factor;
                }
            }
        }
        const float factor = finish_row(p, r, top, mass, c == 0);
        ATTN__UNROLL for (int j = 0; j < EACH; j++) sum[j] = bits_of(factor) == 0 ? 0.0f : sum[j] * factor;
        if (c < size) store_in_row(p.out, place(p.out, r.b, r.h, r.i, c), sum);
        c += 32 * EACH;
    } while (hw::any(c < size));
}
/* Has this block left the last of a tile's parts? All threads, after a barrier behind what they have left */
ATTN__DEVICE bool leaves_last(const mma_work &m, int tile)
{
    return hw::barrier_or(0, hw::threads(), hw::thread() == 0 && hw::publish_one(m.counts + tile) == m.splits - 1);
}
/* Each warp every so many of a tile's rows */
template <int Rows> ATTN__DEVICE void merge_rows(const mma_work &m, const entry &in, const mma_tile &tile)
{
    const int end = least(tile.first_row + Rows, (int)in.rows_end * m.pack);
    ATTN__LOOP for (int row = tile.first_row + hw::warp(); row < end; row += hw::threads() / 32)
        merge_row(m, in, tile.b, tile.group, row);
}

template <class T, int D, bool Extra, int Keys, int WarpsKV, int Kind, int RowBlocks>
ATTN__KERNEL(mma_threads<WarpsKV>, (mma_blocks<T, D, Extra, WarpsKV, Kind>))
void mma_forward_kernel(ATTN__PARAM mma_work m)
{
#if ATTN__HAVE_MMA
    if constexpr (RowBlocks == 1 || D <= ATTN__LARGE_TILES) {
        ATTN__SHARED(shared);
        typedef mma_shape<D, Keys, WarpsKV, Kind, RowBlocks> shape;
        const auto tasks = [&] { return (int)batch_of_rows(m.p) * (int)m.groups * tiles_of_group<Kind>(m) * m.splits; };
        for (int task = hw::block(); task < tasks(); task += hw::blocks()) {    /* causal: those with most keys first */
            mma_forward_task<T, D, Extra, Keys, WarpsKV, Kind, RowBlocks>(m, shared, task);
            if constexpr (WarpsKV > 1 && mma_merges<D, Extra>)
                if (m.counts && leaves_last(m, hw::anew(task) / m.splits)) {
                    const mma_tile again = tile_of<shape>(m, hw::anew(task) / m.splits);
                    merge_rows<shape::rows>(m, entry_of_kernel<D, Kind>(m.p, again.b), again);
                }
        }
    } else hw::missing();
#else
    hw::missing();
#endif
}

/* A warp per row */
ATTN__KERNEL(32 * WARPS, 1) void merge_splits(ATTN__PARAM mma_work m)
{
#if ATTN__HAVE_MMA
    const params &p = m.p;
    const int64_t tasks = m.packed.count ? packed_count(m.packed, 0) * m.rows : p.queries * m.pack;
    const int64_t all = batch_of_rows(p) * m.groups * tasks;
    for (int64_t task = first_task(); task < all; task += all_tasks()) {
        int64_t row = task % tasks, b = task / tasks / m.groups;
        if (m.packed.count) {
            const packed_tile tile = m.packed.tiles[row / m.rows];
            b = tile.entry;
            row = (int64_t)tile.row * m.pack + row % m.rows;
        }
        const entry in = entry_of(p, b);
        if (row < in.rows_end * m.pack) merge_row(m, in, (int)b, (int)(task / tasks % m.groups), (int)row);
    }
#else
    hw::missing();
#endif
}

/* What turns a row's scores into weights, e^(score - base) * inverse, from its stats; no mass: 0. sink: its weight */
struct row_norm { float base, inverse, sink; };
ATTN__DEVICE row_norm norm_of_row(const params &p, int64_t b, int64_t h, int64_t i)
{
    const float top = load(p.stats, b, h, i, 0), sum = load(p.stats, b, h, i, 1);
    const float sink = p.sink.rank ? load(p.sink, 0, h, 0, 0) : -infinity(), larger = sink > top ? sink : top;
    if (sum == 0.0f) return {0.0f, 0.0f, is_none(sink) ? 0.0f : 1.0f};
    const float of_sink = is_none(sink) ? 0.0f : hw::ex2((sink - larger) * LOG2E);
    const float inverse = 1.0f / (sum * hw::ex2((top - larger) * LOG2E) + of_sink);
    return {larger, inverse, of_sink * inverse};
}

/* ---- weights and scores as results, each a number for every pair. The forward, of this stage or of stage 3, goes
   before and leaves the stats of rows; then a block multiplies a tile of rows by tiles of keys once more and writes
   what comes of it, each number once. Memory limits that, so a lane writes 16 bytes at a time: lanes of a row exchange
   their columns, of which each has two of every eight. Tiles that no row attends to are filled without a product. */
enum { OF_RAW, OF_SOFTCAP, OF_MASKED, OF_WEIGHTS, PAIR_ARRAYS };
template <int D> struct weights_shape {
    static constexpr int rows = 64, threads = 128, keys = D <= 128 ? 64 : 32;
    static constexpr int shared_bytes = tile_bytes<rows, D> + 2 * tile_bytes<keys, D> + threads / 32 * 16;
};
struct weights_work {
    params  p;
    int32_t parts, steps;       /* of the keys, each a block's; scores are wanted as they are after so many of above */
    int32_t wide;               /* a bit for each array: its rows take 16 bytes at a time */
};
ATTN__BOTH const attn__array &pair_array(const params &p, int which)
{
    return which == OF_RAW ? p.scores : which == OF_SOFTCAP ? p.scores_softcap
           : which == OF_MASKED ? p.scores_masked : p.weights;
}

/* Lanes whose numbers differ in a bit exchange: then that bit of a lane says which of the two both its numbers are, and
   the first one is of the lane without the bit. */
template <class X> ATTN__DEVICE void exchange(X &first, X &second, int bit)
{
    const bool has = (hw::lane() & bit) != 0;
    const X other = hw::shfl_xor(has ? first : second, bit);
    if (has) first = other;
    else second = other;
}
/* A tile of numbers x of a warp's rows and the keys from key0 on, of `keys` */
template <int N>
ATTN__DEVICE void store_wide(const attn__array &a, const float (&x)[N / 2], const tile_row (&rows)[2], int key0)
{
    const int t = hw::lane() % 4;
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        const int64_t at = place(a, rows[e].b, rows[e].h, rows[e].i, key0);
        const bool inside = is_inside(rows[e]);
        if (a.type == ATTN_F32) {
            float *const to = (float *)a.data + at + t % 2 * 8 + t / 2 * 4;
            ATTN__UNROLL for (int j = 0; j < N / 8; j += 2) {
                uint32_t w[4];
                ATTN__UNROLL for (int i = 0; i < 4; i++) w[i] = bits_of(x[4 * (j + i / 2) + 2 * e + i % 2]);
                exchange(w[0], w[2], 1), exchange(w[1], w[3], 1);
                if (inside) hw::store_global(to + 8 * j, w);
            }
        } else {
            uint16_t *const to = (uint16_t *)a.data + at + t * 8;
            ATTN__UNROLL for (int j = 0; j < N / 8; j += 4) {
                uint32_t w[4];
                ATTN__UNROLL for (int i = 0; i < 4; i++) {
                    const float low = x[4 * (j + i) + 2 * e], high = x[4 * (j + i) + 2 * e + 1];
                    w[i] = a.type == ATTN_BF16 ? hw::pack<hw::bf16>(low, high) : hw::pack<hw::f16>(low, high);
                }
                exchange(w[0], w[1], 1), exchange(w[2], w[3], 1);
                exchange(w[0], w[2], 2), exchange(w[1], w[3], 2);
                if (inside) hw::store_global(to + 8 * j, w);
            }
        }
    }
}
template <int N>
ATTN__DEVICE void store_pairs(const attn__array &a, const float (&x)[N / 2], const tile_row (&rows)[2], int key0,
                              int keys, bool wide)
{
    bool nan = false;                               /* which has one form, and is rare */
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) nan = nan || is_nan(x[j]);
    if (wide && key0 + N <= keys && !hw::any(nan)) return store_wide<N>(a, x, rows, key0);
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        const int column = key0 + hw::lane() % 4 * 2;
        const int64_t at = place(a, rows[e].b, rows[e].h, rows[e].i, column);
        if (!is_inside(rows[e])) continue;
        ATTN__UNROLL for (int j = 0; j < N / 4; j++) {
            const int c = j / 2 * 8 + j % 2;
            if (column + c < keys) store_at(a, at + c * a.stride[3], x[j / 2 * 4 + 2 * e + j % 2]);
        }
    }
}

/* Masked scores of the keys from key0 on become weights. none: of the thread's rows what an excluded pair has */
template <int N>
ATTN__DEVICE void weigh_tile(float (&s)[N / 2], const params &p, const tile_row (&rows)[2], const row_norm (&of)[2],
                             const float (&none)[2], int key0)
{
    const bool drops = p.weights_after_dropout && p.dropout != 0.0f;
    uint64_t kept[2] = {~0ull, ~0ull};
    if (drops) kept_in_tile<N, false>(kept, p, rows, key0);
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) {
        const int e = j / 2 % 2;
        float w = hw::ex2((s[j] - of[e].base) * LOG2E) * of[e].inverse;
        if (w < 1.17549435e-38f) w = 0.0f;
        if (w > 1.0f) w = 1.0f;                         /* stage 3 has found the row's maximum by other products */
        if (drops) w = kept[e] >> (j / 4 * 8 + j % 2) & 1 ? w * p.keep_scale : 0.0f;
        s[j] = is_none(s[j]) ? none[e] : w;
    }
}

/* Scores take the step that makes them those of the array `which`. */
template <int N>
ATTN__DEVICE void next_scores(float (&s)[N / 2], const params &p, const tile_row (&rows)[2], int key0, bool edge,
                              int which)
{
    const bool extra = has_extra(p);                /* asked here: to write the numbers takes longer than options do */
    if (which == OF_RAW) scale_scores(s, p);
    if (extra && which == OF_SOFTCAP) {
        float slope[N / 2];
        soften_scores(s, slope, p, inverse_softcap(p));
    }
    if (which == OF_MASKED && (extra || edge))
        mask_rows_of_tile<N, true, true>(s, p, rows, key0, [&](int e) { return alibi_of(p, rows[e]); });
}

template <class T, int D>
ATTN__DEVICE void mma_weights_task(const weights_work &m, unsigned char *shared, int b, int h, int first_row, int part)
{
    typedef weights_shape<D> shape;
    constexpr int keys = shape::keys, slot = tile_bytes<keys, D>, whole = tile_bytes<shape::rows, D>;
    const params &p = m.p;
    const uint32_t q = hw::shared_address(shared), k = q + whole;
    const int row0 = hw::warp() * 16, g = hw::lane() / 4, head_kv = h / (int)(p.heads / p.heads_kv);
    const bool busy = first_row + row0 < p.queries;
    tile_row rows[2];
    row_norm of[2];
    float none[2];
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        rows[e] = row_at(p, whole_entry(p), b, h, 1, first_row + row0 + g + 8 * e);
        of[e] = row_norm();
        none[e] = 0.0f;
        if (!p.weights.rank || !is_inside(rows[e])) continue;
        of[e] = norm_of_row(p, b, h, rows[e].i);
        const bool empty = of[e].inverse == 0.0f && !(p.sink.rank && !is_none(load(p.sink, 0, h, 0, 0)));
        if (empty && p.empty == ATTN_EMPTY_NAN) none[e] = float_of(0x7fc00000u);
    }
    tile_reach all = reach_of_block(rows, (tile_reach *)(shared + whole + 2 * slot));
    if (p.scores.rank || p.scores_softcap.rank) all.first = 0, all.last = (int)p.keys;     /* of all keys */
    const int tiles = ((int)p.keys + keys - 1) / keys, each = (tiles + m.parts - 1) / m.parts;
    const int begin = part * each, end = least(begin + each, tiles), first = all.last > 0 ? all.first / keys : 0;
    const int last = least(end, (all.last + keys - 1) / keys);
    const auto copy_keys = [&](int n) {
        if (n < last)
            copy_rows<D, keys, shape::threads>(k + n % 2 * slot, p.k, p.size_q, b, head_kv, n * keys, all.first,
                                               all.last);
        hw::cp_async_commit();
    };
    copy_rows<D, shape::rows, shape::threads>(q, p.q, p.size_q, b, h, first_row, 0, (int)p.queries);
    copy_keys(most(begin, first));
    for (int n = begin; n < end; n++) {
        const bool reached = n >= first && n < last, edge = n * keys < all.from || (n + 1) * keys > all.to;
        float s[keys / 2];
        if (reached) {
            hw::cp_async_wait<0>();
            hw::sync();
            copy_keys(n + 1);
        }
        if (!busy) continue;
        if (reached) product_of_rows<T, keys, D, shape::rows>(s, q, row0, k + n % 2 * slot);
        else ATTN__UNROLL for (int j = 0; j < keys / 2; j++) s[j] = -infinity();
        ATTN__LOOP for (int which = OF_RAW; which < m.steps; which++) {        /* one copy of what is long */
            const attn__array &to = pair_array(p, which);
            if (reached) next_scores<keys>(s, p, rows, n * keys, edge, which);
            if (which == OF_WEIGHTS) weigh_tile<keys>(s, p, rows, of, none, n * keys);
            if (to.rank) store_pairs<keys>(to, s, rows, n * keys, (int)p.keys, m.wide >> which & 1);
        }
    }
    hw::cp_async_wait<0>();
    hw::sync();                                     /* the tiles are free again */
}

template <class T, int D>
ATTN__KERNEL(weights_shape<D>::threads, 3) void mma_weights(ATTN__PARAM weights_work m)
{
#if ATTN__HAVE_MMA
    ATTN__SHARED(shared);
    const int rows = weights_shape<D>::rows, tiles = (int)((m.p.queries + rows - 1) / rows);
    const int heads = (int)m.p.heads, tasks = (int)m.p.batch * heads * tiles * m.parts;
    for (int task = hw::block(); task < tasks; task += hw::blocks()) {
        const int tile = task / m.parts;
        mma_weights_task<T, D>(m, shared, tile / tiles / heads, tile / tiles % heads, tile % tiles * rows,
                               task % m.parts);
    }
#else
    hw::missing();
#endif
}

/* packed: 1 << packed heads of a group stand in one tile, whose rows are these heads' of one query, then of the next;
   they count as one head here. tiles: of rows per head. section: heads worked on together, so that what they share
   stays in the L2 cache. */
struct task_order { int tiles, section, packed; };
/* Where a task is, whose rows are queries or keys. Heads come in sections; in a section first those tiles of all its
   heads that with causal masks have most to do: the last queries, the first keys. */
struct tile_task { int b, h, head_kv, first_row; };     /* of packed heads the first, and rows of all of them */
template <bool Keys>
ATTN__DEVICE tile_task task_at(const params &p, const task_order &o, const packed_tiles &table, int task, int rows,
                               int packed = 0)
{
    const int tiles = packed_count(table, o.tiles);
    const int heads = (int)(Keys ? p.heads_kv : p.heads) >> packed;
    const int all = (int)(Keys ? batch_of_keys(p) : batch_of_rows(p)) * heads;
    const int first = task / (o.section * tiles) * o.section, inside = task - first * tiles;
    const int many = least(all - first, o.section), tile = inside / many, head = first + inside - tile * many;
    tile_task t;
    t.b = head / heads;
    t.h = (head - t.b * heads) << packed;
    t.head_kv = Keys ? t.h : t.h / (int)(p.heads / p.heads_kv);
    t.first_row = Keys ? tile : tiles - 1 - tile;
    if (!table.count) t.first_row *= rows;
    else {
        const packed_tile of_entry = table.tiles[t.first_row];
        t.b = of_entry.entry;
        t.first_row = of_entry.row;
    }
    return t;
}

/* The same of keys, but the first of them as the entry counts */
ATTN__DEVICE tile_task keys_of_entry(const params &p, const task_order &o, const packed_tiles &table, int task,
                                     int rows)
{
    tile_task t = task_at<true>(p, o, table, task, rows);
    if (table.count) t.first_row -= rows_of_entry(p, t.b, true).first;
    return t;
}

ATTN__DEVICE int take_ticket(int *tickets) { return hw::shfl(hw::lane() == 0 ? hw::take_one(tickets) : 0, 0); }

/* ---- the backward: a kernel for the gradients of keys and values goes over the queries and, where heads share keys,
   over these heads. It has the weights again from what the forward left of each row, and finds dq in the same sweep,
   where blocks share sums (add_to_dq): the kernel with options finds those of the gradients that are wanted. Of f32,
   and where columns are no multiple of 32 (mma_has_all), another one goes over the keys for gradients of queries. */
/* Sums of dq in the workspace: tiles of so many rows and columns, whose numbers are as accumulators have them: of 16
   rows and 8 columns a thread has four, 128 threads 64 rows, or 32 and half of the columns, then the next 8 columns. A
   thread's four lie side by side (apart 1: sm_90 adds four neighbours at once), or each among those of all threads
   (apart 128: a warp adds to neighbours). */
struct dq_layout { int16_t rows, columns, apart; };      /* short: kernel parameters have 4 KB */
struct grad_work {
    params  p;
    int64_t padded;             /* queries, rounded up to whole tiles; rows beyond the last have no keys */
    float  *base, *inverse, *shift;     /* [B,H,padded]  largest score, 1/mass, what gradients lose */
    int    *first, *last;               /* [B,padded]  keys of a row */
    tile_reach *reaches;                /* [B,padded/queries]  of the tiles of queries that the keys' kernel takes */
    packed_tiles rows, keys;    /* where entries are packed: tiles of GRAD_ROWS queries, of which these arrays have
                                   one after the other; of block_keys keys */
    int    *tickets;            /* see take_ticket; NULL: none */
    int    *turns;              /* [B,H,padded/dq.rows]  see add_to_dq, keep_turns; NULL: none */
    task_order order;
    dq_layout dq;
    int16_t block_keys;         /* keys of a block that takes queries tile by tile */
    float   unit;               /* of base: LOG2E (powers of 2) for kernels whose scores are scaled products; else 1 */
};
enum { GRAD_ROWS = 128 };       /* queries are padded to so many in stage 3; of a packed entry in all stages */

/* An entry in these arrays, its first row as they count, and in those of the call: its queries, its keys, and how many
   queries it has here, with those of its last tile that are not its own. starts: false in kernels that no entries with
   starts come to and that have no register for it. The keys' batch is found where it is used (key_batch): the producer
   of stage 3 has no register for that, either. */
struct grad_entry {
    int      b, row_batch, padded_row, padded_key;
    row_span rows, keys;
    int      queries;
};
ATTN__DEVICE grad_entry grad_entry_of(const grad_work &m, int b, bool starts = true)
{
    grad_entry e = {b, b, 0, 0, {0, (int)m.p.queries}, {0, (int)m.p.keys}, (int)m.padded};
    if (!starts || !m.p.ragged) return e;
    e.rows = rows_of_entry(m.p, b, false), e.keys = rows_of_entry(m.p, b, true);
    if (m.keys.count) e.padded_key = m.keys.first[b] * m.block_keys;
    if (!m.rows.count) return e;
    e.row_batch = 0, e.padded_row = m.rows.first[b] * GRAD_ROWS;
    e.queries = least((e.rows.end - e.rows.first + GRAD_ROWS - 1) / GRAD_ROWS * GRAD_ROWS,
                      (int)m.padded - e.padded_row);
    return e;
}
/* Rows of an entry, or its keys, become those of the arrays; those that it does not have, no rows. */
ATTN__DEVICE void own_places(const params &p, tile_row (&rows)[2], bool keys)
{
    const row_span own = rows_of_entry(p, rows[0].b, keys);
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        rows[e].i += own.first;
        if (rows[e].i >= own.end) rows[e].i = (int)(keys ? p.keys : p.queries);
    }
}
/* Of an entry's queries from `first` on, where they are relative to a key: a lane has those of query lane and lane +
   32. */
template <int N, int Room>
ATTN__DEVICE void find_distances(float (&from)[Room], const params &p, int b, int first, int key)
{
    const entry own = entry_of(p, b);
    ATTN__UNROLL for (int w = 0; w < (N + 31) / 32; w++) {
        const int row = least(first + hw::lane() + 32 * w + (int)own.row0, (int)own.rows_end - 1);
        from[w] = signed_distance(add_clamped(reach_in(p, own, b, row).position, -own.key0), key);
    }
}
enum { MMA_GRAD_THREADS = 128 };
/* Where d_sink is wanted, a row's part of it: [B,H,padded], behind `shift` (kernel parameters have no room for it) */
ATTN__DEVICE float *sinks_of(const grad_work &m) { return m.shift + batch_of_rows(m.p) * m.p.heads * m.padded; }
/* N numbers of an array, from number From on */
template <int From, int N, int M> ATTN__DEVICE float (&numbers_from(float (&of)[M]))[N]
{
    return reinterpret_cast<float (&)[N]>(of[From]);
}
/* Where two share the sums of so many columns (two warps, or consumers of stage 3: 0 and 1), each has whole panels of
   64, for a product of wgmma cannot go from one to a part of the next, and half of the panel in the middle. Where both
   begin; where a thread's number j is, which has its lane's 2 beside it. */
template <int Columns> struct half_columns {
    static constexpr int whole = Columns / 128 * 64, rest = Columns % 128 / 2, all = whole + rest, numbers = all / 2;
    ATTN__DEVICE int first(int which) { return which * (Columns - whole); }
    ATTN__DEVICE int first_of_rest(int which) { return whole + which * rest; }
    ATTN__DEVICE int column(int which, int j)
    {
        return j < whole / 2 ? first(which) + j / 4 * 8 : first_of_rest(which) + (j - whole / 2) / 4 * 8;
    }
    ATTN__DEVICE bool has(int which, int column)
    {
        const int in_whole = column - first(which), in_rest = column - first_of_rest(which);
        return (in_whole >= 0 && in_whole < whole) || (in_rest >= 0 && in_rest < rest);
    }
};
/* As many at a time as no register is spilled for, on any architecture; extras take some registers too. All: of the
   kernel of all sums, of which two blocks fit into the 100 KB of sm_86 with D 64. splits: sums of 16 keys would not fit
   into a warp's registers. Then two warps have the same keys, each the scores of a part of a tile's queries and half of
   the columns of dk and dv, and tiles lie in shared memory part by part. For 256 columns the 100 KB have no room for
   all of v, so warps hold its last panel as left operands. */
template <int D, bool Extra, bool All = false> struct grad_shape {
    static constexpr bool splits = All && D > 128;
    static constexpr int rows = 64, threads = splits ? 2 * MMA_GRAD_THREADS : MMA_GRAD_THREADS;
    static constexpr int keys = D <= (Extra ? 64 : 128) ? 64 : D <= 192 ? 32 : 16;          /* for 64 queries */
    static constexpr bool direct = All && D == (Extra ? 256 : 128);     /* has no register for a `room` (store_rows) */
    static constexpr int queries = All ? 32 : D <= 32 ? 64 : D > 192 || D == 128 ? 16 : 32; /* for 64 keys */
    static constexpr int part = splits ? queries / 2 : queries, parts = queries / part, slots = splits ? 1 : 2;
    static constexpr int held = splits && D > 192 ? 64 : 0;                     /* columns of v */
    static constexpr int of_part = 5 * part * 4, values = parts * of_part;      /* a slot of base .. last */
    static constexpr int whole = tile_bytes<rows, D>, moving = tile_bytes<queries, D>;
    static constexpr int fixed = 2 * whole - tile_bytes<rows, held>;
    static constexpr int shared_queries = 2 * whole + 4 * tile_bytes<keys, D> + 4 * 16;
    static constexpr int pairs = 2 * whole + 2 * tile_bytes<keys, D>, elements = rows * keys * 4;
    static constexpr int shared_pairs = pairs > elements ? pairs : elements;
    static constexpr int gradients = All ? tile_bytes<rows, 64> + 16 : 0;       /* of scores; weights; a ticket */
    static constexpr int shared_keys = fixed + slots * (2 * moving + values) + gradients;
};
/* Has it a kernel of all sums? That is the only one then. Above 128 columns it has whole panels. */
template <class T, int D> constexpr bool mma_has_all = !T::is_f32 && (D > 128 || D % 32 == 0);
template <int D> constexpr int grad_size = D > 128 ? (D + 63) / 64 * 64 : D;

/* One load if the address is 16-byte aligned, else four */
ATTN__DEVICE void load_16_bytes(uint32_t (&w)[4], const void *from)
{
    if ((uintptr_t)from % 16) {
        ATTN__UNROLL for (int i = 0; i < 4; i++) w[i] = ((const uint32_t *)from)[i];
    } else {
        const eight_halves x = *(const eight_halves *)from;
        ATTN__UNROLL for (int i = 0; i < 4; i++) w[i] = x.pair[i];
    }
}

/* A lane's part of d_out . out of a row: 8 columns of each 32. Both loads are issued before either is used. */
template <class T> ATTN__DEVICE float dot_of_lane(const params &p, int64_t b, int64_t h, int64_t i)
{
    const auto half = [](const uint32_t (&pair)[4], int j) { return half_of<T>(pair[j / 2], j % 2); };
    float sum = 0.0f;
    for (int64_t c = hw::lane() % 4 * 8; c < p.size_v / halves_each<T>; c += 32) {
        eight_halves d_out[halves_each<T>];
        ATTN__UNROLL for (int j = 0; j < halves_each<T>; j++)
            d_out[j] = ((const eight_halves *)(row_of(p.d_out, b, h, i) + c * halves_each<T>))[j];
        const int64_t at = place(p.out, b, h, i, c);
        uint32_t w[2][4];
        float out[8];
        if (T::is_f32 || p.out.type == ATTN_F32) {
            ATTN__UNROLL for (int j = 0; j < 2; j++) load_16_bytes(w[j], (const float *)p.out.data + at + 4 * j);
            ATTN__UNROLL for (int j = 0; j < 8; j++) out[j] = float_of(w[j / 4][j % 4]);
        } else {
            load_16_bytes(w[0], (const uint16_t *)p.out.data + at);
            ATTN__UNROLL for (int j = 0; j < 8; j++) out[j] = half(w[0], j);
        }
        ATTN__UNROLL for (int j = 0; j < 8; j++) {
            const float x = T::is_f32 ? float_of(d_out[j / 4 % halves_each<T>].pair[j % 4]) : half(d_out[0].pair, j);
            sum = hw::fma(x, out[j], sum);
        }
    }
    return sum;
}
struct row_grad { float base, inverse, shift; };
ATTN__DEVICE row_grad row_grad_of(const grad_work &m, int64_t n) { return {m.base[n], m.inverse[n], m.shift[n]}; }
/* d_out . out of 32 rows from `first` to before `end`: each lane has a row's, four lanes share its columns. */
ATTN__DEVICE float dots_of_rows(const params &p, int64_t b, int64_t h, int64_t first, int64_t end)
{
    const int32_t type = p.d_out.type;
    float of_lane = 0.0f;
    ATTN__LOOP for (int part = 0; part < 4; part++) {
        const int64_t row = first + part * 8 + hw::lane() / 4;
        float sum = 0.0f;
        if (row < end)
            sum = type == ATTN_BF16 ? dot_of_lane<hw::bf16>(p, b, h, row)
                  : type == ATTN_F16 ? dot_of_lane<hw::f16>(p, b, h, row) : dot_of_lane<hw::f32>(p, b, h, row);
        sum += hw::shfl_xor(sum, 1);
        sum += hw::shfl_xor(sum, 2);
        sum = hw::shfl(sum, hw::lane() % 8 * 4);
        if (hw::lane() / 8 == part) of_lane = sum;
    }
    return of_lane;
}

/* What the kernels of gradients need of 32 rows of a head, the n-th of them all: a lane has a row, and returns what it
   has stored of it. Of head 0 also which keys rows and tiles of `Queries` rows may attend to. behind: rows behind a
   packed entry's last have a shift, too. Stage 3 learns from it alone that d_out is not finite there. Stage 2 sees that
   in its products, and a shift that is NaN by `out` alone would get into its sums. */
template <int Queries> ATTN__DEVICE row_grad prepare_rows(const grad_work &m, int64_t n, bool behind)
{
    const params &p = m.p;
    const int64_t parts = m.padded / 32, h = n / parts % p.heads, padded = n % parts * 32;
    int64_t b = n / parts / p.heads, first = padded;
    if (m.rows.count) {
        const packed_tile tile = m.rows.tiles[padded / GRAD_ROWS];
        b = tile.entry;
        first = tile.row + padded % GRAD_ROWS;
    } else first += first_row_in(p, b);
    const int64_t i = first + hw::lane();
    const entry own = entry_of(p, b);
    const tile_row r = row_at(p, own, b, h, 1, (int)i);
    /* what is beyond the last query has weight 0, whatever ALiBi makes of its score. The shift of rows without mass
       shows whether d_out is finite, too, for 0 times infinity is NaN */
    row_grad g = {is_inside(r) ? 0.0f : infinity(), 0.0f,
                  dots_of_rows(p, b, h, first, behind ? p.queries : own.rows_end)};
    if (is_inside(r)) {
        const row_norm of = norm_of_row(p, b, h, i);
        g.base = of.base * m.unit;
        g.inverse = of.inverse;
        const float d_lse = p.d_lse.rank ? load(p.d_lse, b, h, i, 0) : 0.0f;
        g.shift -= d_lse;
        const float lost = of.inverse == 0.0f ? d_lse : -g.shift;       /* without keys d_out has no influence */
        if (p.d_sink.rank) sinks_of(m)[n * 32 + hw::lane()] = of.sink == 0.0f ? 0.0f : of.sink * lost;
    }
    m.base[n * 32 + hw::lane()] = g.base;
    m.inverse[n * 32 + hw::lane()] = g.inverse;
    m.shift[n * 32 + hw::lane()] = g.shift;
    if (h != 0) return g;
    const int64_t at = row_batch(p, b) * m.padded + padded;
    m.first[at + hw::lane()] = r.first;
    m.last[at + hw::lane()] = r.last;
    for (int64_t tile = 0; tile < 32; tile += Queries) {
        tile_reach t = no_rows();
        if ((padded + tile) % Queries != 0) break;      /* the first rows of the tile do it */
        for (int row = hw::lane(); row < Queries; row += 32)
            join(t, reach_of_row(row_at(p, own, b, 0, 1, (int)(first + tile) + row)));
        t = join_warp(t);
        if (hw::lane() == 0) m.reaches[(at + tile) / Queries] = t;
    }
    return g;
}
/* The ticket and turns are 0 before the kernel that takes them: of 32 rows the turn of their tile. So are the parts of
   d_sink that no row has. */
template <int Queries> ATTN__DEVICE void clear_counts(const grad_work &m, int64_t n)
{
    if (n == 0 && hw::lane() == 0 && m.tickets) *m.tickets = 0;
    if (hw::lane() == 0 && m.turns) m.turns[n * 32 / Queries] = 0;
    if (m.p.d_sink.rank) sinks_of(m)[n * 32 + hw::lane()] = 0.0f;
}
template <int Queries> ATTN__KERNEL(32 * WARPS, 1) void mma_grad_prepare(ATTN__PARAM grad_work m)
{
    const int64_t parts = m.padded / 32, all = batch_of_rows(m.p) * m.p.heads * parts;
    for (int64_t n = first_task(); n < all; n += all_tasks()) {
        clear_counts<Queries>(m, n);
        if (n % parts * 32 / GRAD_ROWS < packed_count(m.rows, INT32_MAX)) prepare_rows<Queries>(m, n, false);
    }
}

/* d_sink: a block has a head, each of its threads every 128th row, in one order. Rows in front of padded entries, which
   prepare_rows does not come to, are empty rows: a sink that is not -inf has all of their mass. */
ATTN__KERNEL(128, 1) void sum_sinks(ATTN__PARAM grad_work m)
{
    ATTN__SHARED(shared);
    const params &p = m.p;
    float *const of_warps = (float *)shared;
    for (int h = hw::block(); h < (int)p.heads; h += hw::blocks()) {
        const bool in_front = p.d_lse.rank && !p.packed_queries && !is_none(load(p.sink, 0, h, 0, 0));
        float sum = 0.0f;
        for (int64_t b = 0; b < batch_of_rows(p); b++)
            for (int64_t i = hw::thread(); i < m.padded; i += 128) sum += sinks_of(m)[(b * p.heads + h) * m.padded + i];
        for (int64_t b = 0; in_front && b < p.batch; b++)
            for (int64_t i = hw::thread(); i < first_row_in(p, b); i += 128) sum += load(p.d_lse, b, h, i, 0);
        for (int step = 16; step > 0; step /= 2) sum += hw::shfl_xor(sum, step);
        if (hw::lane() == 0) of_warps[hw::thread() / 32] = sum;
        hw::sync();
        sum = of_warps[0] + of_warps[1] + (of_warps[2] + of_warps[3]);
        if (hw::thread() == 0) store_gradient(p, p.d_sink, ATTN_GRAD_SINK, 0, h, 0, 0, sum);
        hw::sync();                                     /* before the next head's */
    }
}

/* Of a pair, from its score and the gradient of its weight as it met the values: the weight as it met them, and the
   gradient of the raw score. slope: softcap's derivative; keep: what dropout multiplies the weight by. Edge: it may be
   excluded; then both are +0, and -0 where they merely vanish. Else, with Any: by a score of -inf, where all numbers
   but those of v are finite. Extra: scores and g.base may be of any size, so their difference is found first. */
template <bool Edge, bool Extra, bool Any = false>
ATTN__DEVICE void pair_grad(const row_grad &g, bool reached, float scale, float slope, float keep, float &weight,
                            float &gradient)
{
    float score = weight, d_weight = gradient, w;
    if (Edge) {
        weight = gradient = 0.0f;
        if (!reached || g.inverse == 0.0f) return;
    }
    if (Edge && is_none(score)) return;
    w = hw::ex2(Extra ? (score - g.base) * scale : hw::fma(score, scale, -g.base)) * g.inverse;
    if (keep == 0.0f) d_weight = 0.0f;                          /* dropped: neither excluded nor read */
    gradient = w * (d_weight * keep - g.shift) * slope;
    if (Any && !Edge && is_none(score)) gradient = 0.0f;        /* v may be infinite */
    weight = keep == 0.0f ? 0.0f : w * keep;
    if (Edge && gradient == 0.0f) gradient = -0.0f;
    if (Edge && weight == 0.0f) weight = -0.0f;
}

/* A thread's two rows: i and i + 8. */
ATTN__DEVICE void set_places(tile_row (&rows)[2], int b, int h, int i)
{
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        rows[e].b = b;
        rows[e].h = h;
        rows[e].i = i + 8 * e;
    }
}
template <class T, int D, class... Room>
ATTN__DEVICE void store_dq(const params &p, const float (&dq)[D / 2], const tile_row (&rows)[2], Room... room)
{
    const float factor[2] = {p.scale, p.scale};
    store_rows<T, D, true>(p.dq, dq, rows, p.queries, p.size_q / halves_each<T>, factor,
                           (p.accumulate & ATTN_GRAD_Q) != 0, room...);
}
/* room: the warp's place in shared memory (store_rows), or nothing */
template <class T, int D, int DV, class... Room>
ATTN__DEVICE void store_dk_dv(const params &p, const float (&dk)[D / 2], const float (&dv)[DV / 2],
                              const tile_row (&rows)[2], Room... room)
{
    const float factor[2] = {p.scale, p.scale}, one[2] = {1.0f, 1.0f};
    if (p.dk.rank)
        store_rows<T, D, true>(p.dk, dk, rows, p.keys, p.size_q / halves_each<T>, factor,
                               (p.accumulate & ATTN_GRAD_K) != 0, room...);
    if (p.dv.rank)
        store_rows<T, DV, true>(p.dv, dv, rows, p.keys, p.size_v / halves_each<T>, one,
                                (p.accumulate & ATTN_GRAD_V) != 0, room...);
}
/* A half of the columns of such rows */
template <class T, int Columns, class... Room>
ATTN__DEVICE void store_half(const params &p, const attn__array &to, const float (&d)[half_columns<Columns>::numbers],
                             const tile_row (&keys)[2], int64_t columns, float factor, bool adds, int which,
                             Room... room)
{
    typedef half_columns<Columns> half;
    const float factors[2] = {factor, factor};
    const auto from = [&](int column) {
        attn__array a = to;
        a.data = (char *)a.data + column * (a.type == ATTN_F32 ? 4 : 2);
        return a;
    };
    auto &numbers = const_cast<float (&)[half::numbers]>(d);
    if constexpr (half::whole != 0)
        store_rows<T, half::whole, true>(from(half::first(which)), numbers_from<0, half::whole / 2>(numbers), keys,
                                         p.keys, columns - half::first(which), factors, adds, room...);
    if constexpr (half::rest != 0)
        store_rows<T, half::rest, true>(from(half::first_of_rest(which)),
                                        numbers_from<half::whole / 2, half::rest / 2>(numbers), keys, p.keys,
                                        columns - half::first_of_rest(which), factors, adds, room...);
}
template <class T, int D, int DV, class... Room>
ATTN__DEVICE void store_halves(const params &p, const float (&dk)[half_columns<D>::numbers],
                               const float (&dv)[half_columns<DV>::numbers], const tile_row (&rows)[2], int which,
                               Room... room)
{
    const bool adds_k = (p.accumulate & ATTN_GRAD_K) != 0, adds_v = (p.accumulate & ATTN_GRAD_V) != 0;
    if (p.dk.rank) store_half<T, D>(p, p.dk, dk, rows, p.size_q, p.scale, adds_k, which, room...);
    if (p.dv.rank) store_half<T, DV>(p, p.dv, dv, rows, p.size_v, 1.0f, adds_v, which, room...);
}

/* Behind: gradients of scores behind the softcap, not of the raw ones. */
template <int N, bool Extra, bool Edge, bool Behind = false>
ATTN__DEVICE void grads_of_keys(float (&s)[N / 2], float (&ds)[N / 2], const params &p, const tile_row (&rows)[2],
                                const row_grad (&grads)[2], int key0, float scale)
{
    const int column = key0 + hw::lane() % 4 * 2;
    float slope[N / 2];
    uint64_t kept[2] = {~0ull, ~0ull};
    if (Extra) shape_tile<N, Edge, true>(s, slope, p, rows, key0, [&](int e) { return alibi_of(p, rows[e]); });
    if (Extra && p.dropout != 0.0f) kept_in_tile<N, false>(kept, p, rows, key0);
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) {
        const int e = j / 2 % 2, c = j / 4 * 8 + j % 2;
        if (Extra)
            pair_grad<Edge, true>(grads[e], true, scale, Behind ? 1.0f : slope[j],
                                  kept[e] >> c & 1 ? p.keep_scale : 0.0f, s[j], ds[j]);
        else
            pair_grad<Edge, false>(grads[e], column + c >= rows[e].first && column + c < rows[e].last, scale, 1.0f,
                                   1.0f, s[j], ds[j]);
    }
}

/* Of a warp's 16 rows and a tile of keys: raw scores, and the gradients of weights. Returns whether some key may not be
   finite. */
template <class T, int D, int Rows, int Keys>
ATTN__DEVICE bool scores_of_keys(float (&s)[Keys / 2], float (&ds)[Keys / 2], uint32_t q, uint32_t d_out, uint32_t k,
                                 uint32_t v)
{
    const int row0 = hw::warp() * 16;
    product_of_rows<T, Keys, D, Rows, T::is_f32>(s, q, row0, k);
    product_of_rows<T, Keys, D, Rows>(ds, d_out, row0, v);
    const bool nonfinite = mend_nonfinite<T, Keys, D, Rows>(s, q, row0, k);
    if (T::is_f32) mend_nonfinite<T, Keys, D, Rows>(ds, d_out, row0, v);
    return nonfinite;
}

/* dq of the `tile`-th rows of a head. */
template <class T, int D, bool Extra>
ATTN__DEVICE void mma_grad_queries_task(const grad_work &m, unsigned char *shared, int b, int h, int first_row)
{
    typedef grad_shape<D, Extra> shape;
    constexpr int keys = shape::keys, slot = tile_bytes<keys, D>, whole = tile_bytes<shape::rows, D>;
    constexpr int columns = D / halves_each<T>;
    const params &p = m.p;
    const uint32_t q = hw::shared_address(shared), d_out = q + whole, k = d_out + whole, v = k + 2 * slot;
    tile_reach *reaches = (tile_reach *)(shared + 2 * whole + 4 * slot);
    const int row0 = hw::warp() * 16, g = hw::lane() / 4;
    const float scale = scale_of<Extra>(p);
    const bool always_edge = Extra && asks(p, ANY_PAIR);
    const int head_kv = h / (int)(p.heads / p.heads_kv);
    tile_row rows[2];
    row_grad grads[2];
    float dq[columns / 2];
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        const int i = first_row + row0 + g + 8 * e;
        rows[e] = row_at(p, entry_of(p, b), b, h, 1, i);
        grads[e] = row_grad_of(m, (b * p.heads + h) * m.padded + i);
    }
    const tile_reach all = reach_of_block(rows, reaches);
    int n = all.last > 0 ? all.first / keys : 0;
    const int end = (all.last + keys - 1) / keys;
    const auto copy_keys = [&](int number) {
        if (number < end) {
            copy_rows<D, keys, shape::threads, 0>(k + number % 2 * slot, p.k, p.size_q, b, head_kv, number * keys,
                                               all.first, all.last);
            copy_rows<D, keys, shape::threads, 0>(v + number % 2 * slot, p.v, p.size_v, b, head_kv, number * keys,
                                               all.first, all.last);
        }
        hw::cp_async_commit();
    };
    copy_rows<D, shape::rows, shape::threads, 0>(q, p.q, p.size_q, b, h, first_row, 0, (int)p.queries);
    copy_rows<D, shape::rows, shape::threads, 0>(d_out, p.d_out, p.size_v, b, h, first_row, 0, (int)p.queries);
    copy_keys(n);
    ATTN__UNROLL for (int j = 0; j < columns / 2; j++) dq[j] = 0.0f;

    for (; n < end; n++) {
        const bool edge = always_edge || n * keys < all.from || (n + 1) * keys > all.to;
        float s[keys / 2], ds[keys / 2];
        hw::cp_async_wait<0>();
        hw::sync();
        copy_keys(n + 1);
        const bool nonfinite =
            scores_of_keys<T, D, shape::rows, keys>(s, ds, q, d_out, k + n % 2 * slot, v + n % 2 * slot);
        if (Extra || edge || nonfinite)             /* one copy of what is long */
            grads_of_keys<keys, Extra, true>(s, ds, p, rows, grads, n * keys, scale);
        else grads_of_keys<keys, Extra, false>(s, ds, p, rows, grads, n * keys, scale);
        add_tile<T, columns, keys>(dq, ds, k + n % 2 * slot, nonfinite);
    }
    hw::cp_async_wait<0>();
    hw::sync();                                     /* the tiles are free */
    static_assert(4 * warp_room<columns> <= shape::shared_queries, "store_rows has room");
    if constexpr (T::is_f32) store_dq<T, columns>(p, dq, rows);
    else store_dq<T, columns>(p, dq, rows, q + hw::warp() * warp_room<columns>);
    hw::sync();                                     /* and again */
}

template <class T, int D, bool Extra>
ATTN__KERNEL(MMA_GRAD_THREADS, 1) void mma_grad_queries(ATTN__PARAM grad_work m)
{
#if ATTN__HAVE_MMA
    ATTN__SHARED(shared);
    const int rows = grad_shape<D, Extra>::rows, tiles = (int)((m.p.queries + rows - 1) / rows);
    const int heads = (int)m.p.heads, tasks = (int)m.p.batch * heads * tiles;
    for (int task = hw::block(); task < tasks; task += hw::blocks())
        mma_grad_queries_task<T, D, Extra>(m, shared, task / tiles / heads, task / tiles % heads,
                                           (tiles - 1 - task % tiles) * rows);
#else
    hw::missing();
#endif
}

/* Does some pair of a tile count, whose queries have this reach and whose keys are these? */
ATTN__DEVICE bool has_pairs(const tile_reach &r, int first_key, int last_key)
{
    return r.first < last_key && r.last > first_key;
}

/* ---- d_bias, d_scale, d_alibi: sums over pairs. A block has a tile of their elements (along an axis of size 1: all
   that adds to one) and goes over the tiles of pairs that add to it. Where there are few tiles of elements, so that few
   blocks would run, each has a part of these tiles, and sum_pairs adds the parts. The order is always the same. Scores
   and their gradients are made again: for each of the three two products beside the sweep's five. */
enum { PAIR_TASKS = 1024, LEAST_PAIR_TILES = 64 };  /* so many tasks, but of no fewer tiles */
enum pair_term { OF_BIAS, OF_SCALE, OF_ALIBI };
struct pairs_work {
    grad_work   g;
    attn__array to;             /* the gradient */
    int64_t     size[4];        /* [B,H,Sq,Sk], or 1 */
    int         tiles[4];       /* of the gradient */
    int         added[4];       /* tiles of pairs that add to each, along an axis */
    int64_t     parts;          /* of a tile's sums */
    int64_t     most_parts;     /* and how many it would have at most, with fewer tiles beside it */
    int64_t     part_tiles;     /* tiles of pairs that a part has */
    int         reach_rows;     /* of a tile in g.reaches */
    pair_term   of;
    uint32_t    bit;            /* ATTN_GRAD_.. */
    float      *sums;           /* [size,parts]; unused where there is one part */
};
static_assert(sizeof(pairs_work) <= 4096, "kernel parameters fit in 4 KB");
ATTN__BOTH int64_t pair_tasks(const pairs_work &m)
{
    return (int64_t)m.tiles[0] * m.tiles[1] * m.tiles[2] * m.tiles[3] * m.parts;
}
ATTN__BOTH int64_t pair_elements(const pairs_work &m) { return m.size[0] * m.size[1] * m.size[2] * m.size[3]; }

/* A tile of pairs, the n-th of those that add to a tile of elements: an axis has many of these, or many of those. */
struct pairs_at { int at[4]; };
ATTN__DEVICE pairs_at pairs_at_tile(const pairs_work &m, int64_t tile, int64_t n)
{
    pairs_at t;
    ATTN__UNROLL for (int axis = 3; axis >= 0; axis--) {
        const int64_t other_tiles = quotient(tile, m.tiles[axis]), other_added = quotient(n, m.added[axis]);
        t.at[axis] = (int)(tile - other_tiles * m.tiles[axis] + (n - other_added * m.added[axis]));
        tile = other_tiles, n = other_added;
    }
    return t;
}
template <int Rows> ATTN__DEVICE tile_reach reach_of_rows(const pairs_work &m, int b, int first_row)
{
    const int each = m.reach_rows, padded = (int)m.g.padded;
    tile_reach t = no_rows();
    for (int row = first_row; row < first_row + Rows; row += each)
        join(t, m.g.reaches[(int64_t)b * (padded / each) + row / each]);
    return t;
}

/* From gradients of scores behind the softcap: what pairs add. raw: their products. An excluded pair adds nothing,
   whatever its product is. */
template <int N>
ATTN__DEVICE void add_pairs(float (&sum)[N / 2], const float (&ds)[N / 2], float (&raw)[N / 2], const pairs_work &m,
                            const tile_row (&rows)[2], int key0)
{
    const params &p = m.g.p;
    const int column = key0 + hw::lane() % 4 * 2;
    float factor[N / 2], slope[N / 2];
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) factor[j] = m.of == OF_SCALE ? raw[j] : 1.0f;
    if (m.of == OF_SCALE) {
        softcap_scores(raw, slope, p, inverse_softcap(p));
        ATTN__UNROLL for (int j = 0; j < N / 2; j++) factor[j] *= slope[j];
    }
    if (m.of == OF_ALIBI) {
        const float from[2] = {signed_distance(rows[0].position, column), signed_distance(rows[1].position, column)};
        ATTN__UNROLL for (int j = 0; j < N / 2; j++)
            factor[j] = -magnitude(from[j / 2 % 2] - (float)(j / 4 * 8 + j % 2));
    }
    ATTN__UNROLL for (int j = 0; j < N / 2; j++)
        if (bits_of(ds[j]) != 0) sum[j] = hw::fma(ds[j], factor[j], sum[j]);
}
/* Over a warp's 16 rows, into the first; over the columns of a row, into the first. All threads get these sums. */
template <int N> ATTN__DEVICE void add_rows(float (&sum)[N / 2])
{
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) {
        if (j / 2 % 2 == 1) continue;
        sum[j] += sum[j + 2];
        for (int step = 4; step < 32; step *= 2) sum[j] += hw::shfl_xor(sum[j], step);
    }
}
template <int N> ATTN__DEVICE void add_columns(float (&sum)[N / 2])
{
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        ATTN__UNROLL for (int j = 2 * e + 1; j < N / 2; j++)
            if (j / 2 % 2 == e) sum[2 * e] += sum[j];
        for (int step = 1; step < 4; step *= 2) sum[2 * e] += hw::shfl_xor(sum[2 * e], step);
    }
}
/* What the block has summed, an element in each pair's place; along an axis of size 1 all in one. */
template <int Keys>
ATTN__DEVICE void finish_pairs(const pairs_work &m, float *shared, float (&sum)[Keys / 2], const pairs_at &t,
                               int64_t part)
{
    const bool one_row = m.size[2] == 1, one_key = m.size[3] == 1;
    const int g = hw::lane() / 4, l = hw::lane() % 4, rows = one_row ? 1 : 64, keys = one_key ? 1 : Keys;
    if (one_row) add_rows<Keys>(sum);
    if (one_key) add_columns<Keys>(sum);
    hw::sync();                                         /* nobody reads the tiles any more */
    ATTN__UNROLL for (int j = 0; j < Keys / 2; j++) {
        const int e = j / 2 % 2, row = one_row ? hw::warp() : hw::warp() * 16 + g + 8 * e;
        const bool has_row = !one_row || (g == 0 && e == 0), has_key = !one_key || (l == 0 && j / 4 == 0 && j % 2 == 0);
        if (has_row && has_key) shared[row * Keys + (one_key ? 0 : j / 4 * 8 + 2 * l + j % 2)] = sum[j];
    }
    hw::sync();                                         /* all warps' sums are there */
    for (int n = hw::thread(); n < rows * keys; n += MMA_GRAD_THREADS) {
        const int64_t i = t.at[2] * 64 + n / keys, j = t.at[3] * Keys + n % keys;
        const int64_t element = ((t.at[0] * m.size[1] + t.at[1]) * m.size[2] + i) * m.size[3] + j;
        float all = shared[n / keys * Keys + n % keys];
        for (int w = 1; w < 4 && one_row; w++) all += shared[w * Keys + n % keys];
        if (i >= m.size[2] || j >= m.size[3]) continue;
        if (m.parts == 1) store_gradient(m.g.p, m.to, m.bit, t.at[0], t.at[1], i, j, all);
        else m.sums[element * m.parts + part] = all;
    }
}
template <class T, int D>
ATTN__DEVICE void mma_grad_pairs_task(const pairs_work &m, unsigned char *shared, int64_t tile, int64_t part)
{
    typedef grad_shape<D, true> shape;
    constexpr int keys = shape::keys, whole = tile_bytes<shape::rows, D>;
    const params &p = m.g.p;
    const uint32_t q = hw::shared_address(shared), d_out = q + whole, k = d_out + whole, v = k + tile_bytes<keys, D>;
    const int64_t all = (int64_t)m.added[0] * m.added[1] * m.added[2] * m.added[3];
    const int queries = (int)p.queries, count = (int)p.keys;
    const int64_t from = part * m.part_tiles, end = from + m.part_tiles < all ? from + m.part_tiles : all;
    float sum[keys / 2] = {};
    for (int64_t n = from, next; n < end; n = next) {
        const pairs_at t = pairs_at_tile(m, tile, n);
        const int b = t.at[0], h = t.at[1], i0 = t.at[2] * shape::rows, j0 = t.at[3] * keys;
        const int head_kv = h / (int)(p.heads / p.heads_kv);
        float s[keys / 2], ds[keys / 2], raw[keys / 2];
        tile_row rows[2];
        row_grad grads[2];
        const tile_reach reach = reach_of_rows<shape::rows>(m, b, i0);
        next = n + 1;
        if (!has_pairs(reach, j0, j0 + keys)) {         /* nor before the first key, nor behind the last */
            const bool before = reach.first < reach.last && j0 < reach.first;
            if (m.added[3] > 1) next = n + (before ? reach.first / keys : m.added[3]) - t.at[3];
            continue;
        }
        hw::sync();                                     /* all are done with what is there */
        copy_rows<D, shape::rows, shape::threads, copy_across<D>>(q, p.q, p.size_q, b, h, i0, 0, queries);
        copy_rows<D, shape::rows, shape::threads, copy_across<D>>(d_out, p.d_out, p.size_v, b, h, i0, 0, queries);
        copy_rows<D, keys, shape::threads, copy_across<D>>(k, p.k, p.size_q, b, head_kv, j0, 0, count);
        copy_rows<D, keys, shape::threads, copy_across<D>>(v, p.v, p.size_v, b, head_kv, j0, 0, count);
        hw::cp_async_commit();
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const int i = i0 + hw::warp() * 16 + hw::lane() / 4 + 8 * e;
            rows[e] = row_at(p, entry_of(p, b), b, h, 1, i);
            grads[e] = row_grad_of(m.g, (b * p.heads + h) * m.g.padded + i);
        }
        hw::cp_async_wait<0>();
        hw::sync();                                     /* all threads' copies have come */
        scores_of_keys<T, D, shape::rows, keys>(s, ds, q, d_out, k, v);
        ATTN__UNROLL for (int j = 0; j < keys / 2; j++) raw[j] = s[j];
        grads_of_keys<keys, true, true, true>(s, ds, p, rows, grads, j0, scale_of<true>(p));
        add_pairs<keys>(sum, ds, raw, m, rows, j0);
    }
    finish_pairs<keys>(m, (float *)shared, sum, pairs_at_tile(m, tile, 0), part);
}
template <class T, int D> ATTN__KERNEL(MMA_GRAD_THREADS, 1) void mma_grad_pairs(ATTN__PARAM pairs_work m)
{
#if ATTN__HAVE_MMA
    ATTN__SHARED(shared);
    const int64_t tasks = pair_tasks(m);
    for (int64_t task = hw::block(); task < tasks; task += hw::blocks())
        mma_grad_pairs_task<T, D>(m, shared, task / m.parts, task % m.parts);
#else
    hw::missing();
#endif
}
/* A warp has an element, each of its lanes every 32nd part. */
ATTN__KERNEL(32 * WARPS, 1) void sum_pairs(ATTN__PARAM pairs_work m)
{
    for (int64_t n = first_task(); n < pair_elements(m); n += all_tasks()) {
        const int64_t j = n % m.size[3], i = n / m.size[3] % m.size[2], h = n / m.size[3] / m.size[2] % m.size[1];
        const int64_t b = n / m.size[3] / m.size[2] / m.size[1];
        float sum = 0.0f;
        for (int64_t part = hw::lane(); part < m.parts; part += 32) sum += m.sums[n * m.parts + part];
        sum = warp_sum(sum);
        if (hw::lane() == 0) store_gradient(m.g.p, m.to, m.bit, b, h, i, j, sum);
    }
}

/* Moving tiles come head by head; of a head so many. */
struct moving_tile { int head, part; };
/* Goes on from `t`, a tile at a time or `step` of them, to the first that found(part) is true of; t.head is `end` where
   there is none. */
template <class F> ATTN__DEVICE void next_tile(moving_tile &t, int end, int parts, int step, F found)
{
    for (; t.head < end; t.head++, t.part = 0)
        for (; t.part < parts; t.part += step)
            if (found(t.part)) return;
}

/* Which keys a tile of an entry's queries may attend to */
template <int Queries>
ATTN__DEVICE const tile_reach &reach_of_part(const grad_work &m, int batch, int padded_row, int part)
{
    return m.reaches[(int64_t)batch * ((int)m.padded / Queries) + padded_row / Queries + part];
}

/* Five numbers of each query of a tile, array by array: what row_grad has, and which keys it reaches. b, i0: in these
   arrays. */
template <int Queries, int Threads>
ATTN__DEVICE void copy_numbers(uint32_t to, const grad_work &m, int b, int h, int i0)
{
    const int64_t row = (b * m.p.heads + h) * m.padded + i0, reach = b * m.padded + i0;
    for (int n = hw::thread(); n < 5 * Queries / 4; n += Threads) {
        const int which = n / (Queries / 4), at = n % (Queries / 4) * 4;
        const void *from = which == 0 ? (const void *)(m.base + row + at)
                           : which == 1 ? (const void *)(m.inverse + row + at)
                           : which == 2 ? (const void *)(m.shift + row + at)
                           : which == 3 ? (const void *)(m.first + reach + at)
                                        : (const void *)(m.last + reach + at);
        hw::cp_async(to + n * 16, from, true);
    }
}

/* shape_tile of keys by queries: the queries from i0 on, of one head, whose numbers are in `numbers`; keys key0 and
   key0 + 8. */
template <int N>
ATTN__DEVICE void shape_queries(float (&s)[N / 2], float (&slope)[N / 2], const params &p, uint32_t numbers, int b,
                                int h, int i0, int key0)
{
    const int column = hw::lane() % 4 * 2, g = hw::lane() / 4;
    const auto exclude = [&] {
        ATTN__UNROLL for (int j = 0; j < N / 2; j++) {
            const int c = column + j / 4 * 8 + j % 2, key = key0 + j / 2 % 2 * 8;
            const int first = (int)hw::load_shared_word(numbers + (3 * N + c) * 4);
            const int last = (int)hw::load_shared_word(numbers + (4 * N + c) * 4);
            if (key < first || key >= last) s[j] = -infinity();
        }
    };
    const auto read = [&](float (&x)[N / 2], const attn__array &a, bool is_mask) {
        pair_places at;
        const int64_t i = i0 + column + first_row_in(p, b), key = key0 + first_key_in(p, b);    /* as arrays count */
        ATTN__UNROLL for (int e = 0; e < 2; e++) at.row[e] = place(a, b, h, i, key + 8 * e);
        at.step = a.stride[2];
        load_numbers(x, s, a, at, is_mask);
    };
    const auto add_distances = [&] {
        if (!p.alibi.rank) return;
        const float slope_of_head = load(p.alibi, 0, h, 0, 0);
        float from[(N + 31) / 32];
        find_distances<N>(from, p, b, i0, key0 - g);
        ATTN__UNROLL for (int j = 0; j < N / 2; j++) {
            const int c = column + j / 4 * 8 + j % 2;
            add_alibi(s[j], slope_of_head, hw::shfl(from[j / 16], c % 32) - (float)(g + j / 2 % 2 * 8));
        }
    };
    shape_scores<true>(s, slope, p, inverse_softcap(p), exclude, read, add_distances);
}

/* Which of the 16 keys of a warp are kept of each query: a lane has those of query lane % N, in kept[1] of query 32 +
   lane. */
template <int N, bool Unrolled = false>
ATTN__DEVICE void kept_of_queries(uint32_t (&kept)[(N + 31) / 32], const params &p, int b, int h, int i0, int key0)
{
    constexpr int lanes = N < 32 ? 32 / N : 1, words = (N + 31) / 32;       /* lanes share a query */
    int heads[words], rows[words];
    uint64_t of_query[words];
    ATTN__UNROLL for (int w = 0; w < words; w++) heads[w] = h, rows[w] = i0 + 32 * w + hw::lane() % N;
    kept_keys<16, Unrolled>(of_query, p, b, heads, rows, key0, lanes == 1 ? 0 : hw::lane() / N, lanes);
    ATTN__UNROLL for (int w = 0; w < words; w++) {
        kept[w] = (uint32_t)of_query[w];
        if (lanes == 2) kept[w] |= hw::shfl_xor(kept[w], 16);
    }
}

/* pair_grad of keys by queries, see shape_queries. */
template <int N, bool Extra, bool Edge>
ATTN__DEVICE void grads_of_queries(float (&s)[N / 2], float (&ds)[N / 2], const params &p, uint32_t numbers, int b,
                                   int h, int i0, int key0, float scale)
{
    const bool drops = Extra && p.dropout != 0.0f;
    float slope[N / 2];
    uint32_t kept[(N + 31) / 32] = {};
    if (Extra) shape_queries<N>(s, slope, p, numbers, b, h, i0, key0);
    if (drops) kept_of_queries<N>(kept, p, b, h, i0, key0 - hw::lane() / 4);
    ATTN__UNROLL for (int j = 0; j < N / 4; j++) {
        const int c = j / 2 * 8 + hw::lane() % 4 * 2 + j % 2;
        const auto number = [&](int which) { return hw::load_shared_word(numbers + (which * N + c) * 4); };
        const row_grad of = {float_of(number(0)), float_of(number(1)), float_of(number(2))};
        const int first = Extra ? 0 : (int)number(3), last = Extra ? 0 : (int)number(4);
        const uint32_t keeps = drops ? hw::shfl(kept[j / 8], c % 32) >> hw::lane() / 4 : ~0u;
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const int x = j / 2 * 4 + 2 * e + j % 2, key = key0 + 8 * e;
            pair_grad<Edge, Extra>(of, Extra || (key >= first && key < last), scale, Extra ? slope[x] : 1.0f,
                            !Extra ? 1.0f : keeps >> 8 * e & 1 ? p.keep_scale : 0.0f, s[x], ds[x]);
        }
    }
}

/* Where the tiles of a block of keys and the numbers of its queries are */
struct grad_tiles { uint32_t k, v, q, d_out, rows; };
template <class Shape> ATTN__DEVICE grad_tiles grad_tiles_in(uint32_t shared, int slot)
{
    constexpr uint32_t moving = Shape::moving;
    const uint32_t q = shared + Shape::fixed, d_out = q + Shape::slots * moving, rows = d_out + Shape::slots * moving;
    return {shared, shared + Shape::whole, q + slot * moving, d_out + slot * moving, rows + slot * Shape::values};
}
/* The tiles of queries that such a block takes: of the heads that share its keys one after the other, of each from the
   last to the first. Packs: entries may be packed, of which b is one; padded_row: its first in these arrays. */
template <int Queries, bool Packs> struct moving_queries {
    const grad_work &m;
    int b, padded_row, first_key, last_key, group, parts;
};
template <int Queries, bool Packs> ATTN__DEVICE int batch_of(const moving_queries<Queries, Packs> &q)
{
    return Packs && q.m.rows.count ? 0 : q.b;
}
template <int Queries, bool Packs> ATTN__DEVICE int row_of_tile(const moving_queries<Queries, Packs> &q, moving_tile t)
{
    return (q.parts - 1 - t.part) * Queries;
}
template <int Queries, bool Packs>
ATTN__DEVICE const tile_reach &reach_of_tile(const moving_queries<Queries, Packs> &q, int part)
{
    return reach_of_part<Queries>(q.m, batch_of(q), q.padded_row, q.parts - 1 - part);
}
template <int Queries, bool Packs>
ATTN__DEVICE moving_tile next_of(const moving_queries<Queries, Packs> &q, moving_tile t)
{
    next_tile(t, q.group, q.parts, 1, [&](int part) {
        return has_pairs(reach_of_tile(q, part), q.first_key, q.last_key);
    });
    return t;
}
/* A tile of queries and of d_out, from row i0 of the arrays on, and their numbers, which are at `batch` and `padded` in
   their own. Rows behind a packed entry's last come along: they have no keys (prepare_rows), and what is not finite
   there the guard keeps out, as with every excluded pair. */
template <int D, class Shape, int Across>
ATTN__DEVICE void copy_moving(const grad_tiles &to, const grad_work &m, int b, int h, int i0, int batch, int padded)
{
    const params &p = m.p;
    const int end = (int)p.queries;
    copy_rows<D, Shape::queries, Shape::threads, Across>(to.q, p.q, p.size_q, b, h, i0, 0, end);
    copy_rows<D, Shape::queries, Shape::threads, Across>(to.d_out, p.d_out, p.size_v, b, h, i0, 0, end);
    copy_numbers<Shape::queries, Shape::threads>(to.rows, m, batch, h, padded);
}
/* A warp's scores, its 16 keys from row0 on by the queries from i0 on, become weights, and ds the gradients of scores.
   Returns whether some q or k, some d_out or v may not be finite. */
struct nonfinite_tiles { bool q, d_out; };
template <class T, int D, bool Extra, int Queries, int Rows>
ATTN__DEVICE nonfinite_tiles weigh_queries(float (&s)[Queries / 2], float (&ds)[Queries / 2], const params &p,
                                           const grad_tiles &at, int b, int h, int i0, int first_key, int row0,
                                           bool edge)
{
    const int key0 = first_key + row0 + hw::lane() / 4;
    const float scale = scale_of<Extra>(p);
    nonfinite_tiles nonfinite;
    nonfinite.q = mend_nonfinite<T, Queries, D, Rows>(s, at.k, row0, at.q);
    nonfinite.d_out = mend_nonfinite<T, Queries, D, Rows>(ds, at.v, row0, at.d_out);
    if (Extra || edge || nonfinite.q || nonfinite.d_out)
        grads_of_queries<Queries, Extra, true>(s, ds, p, at.rows, b, h, i0, key0, scale);
    else grads_of_queries<Queries, Extra, false>(s, ds, p, at.rows, b, h, i0, key0, scale);
    return nonfinite;
}

/* ---- dq in the sweep of dk and dv: five products for seven. A block has 64 keys, so what its tiles give is a part of
   dq. Its warps leave the gradients of their scores, keys by queries, in shared memory; then each multiplies those of
   all keys by columns of k, for 16 of the queries, and adds what it has to the sums in the workspace (dq_layout), which
   store_dq_sums stores. The parts of a tile of queries are added from its first keys to its last, so that dq has the
   same bits in each run (with ATTN_PRECISION_FAST whoever comes first adds; m.turns is NULL). Its count in m.turns says
   whose turn it is: of so many tiles of keys the parts are in. The first part is stored, for nothing is there yet.
   Nobody waits for ever, however few blocks run at once: blocks take tasks by tickets, in an order which has a head's
   first keys first, so who waits, waits for a task that was taken before, and the earliest one that is not done never
   waits. And hardly anybody waits for long: all begin with the last queries, so after the first tiles each is a step
   behind the keys before its own. */
template <class T, int Queries, int Rows>
ATTN__DEVICE void leave_scores(uint32_t to, const float (&s)[Queries / 2], int row0, int chunk)
{
    const int l = hw::lane(), key = row0 + l / 4;
    ATTN__UNROLL for (int j = 0; j < Queries / 2; j += 2)
        hw::store_shared(to + chunk_of(key + j / 2 % 2 * 8, chunk + j / 4, Rows) + l % 4 * 4,
                         hw::pack<T>(s[j], s[j + 1]));
}
/* A pair that is excluded keeps k out by the NaN guard. Of all others of a key that is not finite the gradient is NaN,
   for its score is not finite either; so is then dq, and k may have zeros there. But with a softcap that score is
   finite, and the gradient -0: then mark_gradients. */
template <class T, int N, int Rows, bool NonFinite>
ATTN__DEVICE void product_of_gradients(float (&dq)[N / 2], uint32_t gradients, uint32_t k, int query, int column)
{
    ATTN__UNROLL for (int j = 0; j < N / 2; j++) dq[j] = 0.0f;
    ATTN__UNROLL for (int i = 0; i < Rows / 16; i++) {
        uint32_t a[4];
        load_left_down(a, gradients, Rows, query, i);
        add_product<T, N, NonFinite>(one_block(dq), one_block(a), down_address(k, Rows, hw::lane()), Rows, column, i);
    }
}
/* down: so many warps have the same columns. */
template <class T, int N, int Rows>
ATTN__DEVICE void mark_gradients(float (&dq)[N / 2], uint32_t gradients, uint32_t k, int down)
{
    const int thread = hw::thread_anew(), warp = thread / 32, g = thread % 32 / 4;
    const auto find = [&](int key, bool (&counts)[2]) {
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const uint32_t two = hw::load_shared_word(gradients + chunk_of(key, warp % down * 2 + e, Rows) + g / 2 * 4);
            counts[e] = (two >> 16 * (g % 2) & 0xffff) != 0;
        }
    };
    mark_where<T, N, Rows>(dq, k, 0, Rows, find, warp / down * N);
}
/* The guard where gradients of scores lie in shared memory, keys by queries, in 16 bits: of a thread's keys, key and
   key + 8, and its half of the columns of a tile in parts. They are for d_out, too: where it is not finite, neither are
   they, but where a pair is excluded; weights may vanish in 16 bits. */
template <class T, int Columns, int Part, int Rows>
ATTN__DEVICE void mark_half(float (&d)[half_columns<Columns>::numbers], uint32_t gradients, int key, uint32_t tile,
                            int parts, int which)
{
    typedef half_columns<Columns> half;
    ATTN__LOOP for (int n = 0; n < parts; n++, tile += tile_bytes<Part, Columns>) {
        const auto find = [&](int row, bool (&counts)[2]) {
            const int query = n * Part + row;
            ATTN__UNROLL for (int e = 0; e < 2; e++) {
                const uint32_t two = hw::load_shared_word(gradients + chunk_of(key + 8 * e, query / 8, Rows) +
                                                          query % 8 / 2 * 4);
                counts[e] = (two >> 16 * (query % 2) & 0xffff) != 0;
            }
        };
        if constexpr (half::whole != 0)
            mark_where<T, half::whole, Part>(numbers_from<0, half::whole / 2>(d), tile, 0, Part, find,
                                             half::first(which));
        if constexpr (half::rest != 0)
            mark_where<T, half::rest, Part>(numbers_from<half::whole / 2, half::rest / 2>(d), tile, 0, Part, find,
                                            half::first_of_rest(which));
    }
}
/* Numbers to the sums, or the first that are there: each of 128 threads has one among 128 neighbours, then the next; or
   a thread has four neighbours. */
template <int N> ATTN__DEVICE void add_parts(float *to, const float (&part)[N], bool first)
{
    if (first) ATTN__UNROLL for (int j = 0; j < N; j++) to[j * 128] = part[j];
    else ATTN__UNROLL for (int j = 0; j < N; j++) hw::add_to_global(to + j * 128, part[j]);
}
ATTN__DEVICE void add_part(float *to, const float (&part)[4], bool first)
{
    const uint32_t bits[4] = {bits_of(part[0]), bits_of(part[1]), bits_of(part[2]), bits_of(part[3])};
    if (first) hw::store_global(to, bits);
    else hw::add_to_global(to, part);
}
/* Where a thread has its numbers in a tile of sums. dq_layout is of 128 threads; of 256 two have what one has there,
   half of its columns each. */
template <int D, class Shape> ATTN__DEVICE int place_in_sums()
{
    if (!Shape::splits) return hw::thread();
    const int thread = hw::thread_anew(), warp = thread / 32;
    return warp / 2 % 2 * (D / 32 * 512) + (warp / 4 * 2 + warp % 2) * 32 + thread % 32;
}
/* Adds the block's part of a tile of queries, the tile-th of all; the gradients are in shared memory. nonfinite: some
   key may be so. found() is called when all warps have their parts and (Shape::splits) none reads shared memory. */
template <class T, int D, bool Extra, class Shape, class F>
ATTN__DEVICE void add_to_dq(const grad_work &m, uint32_t tile, int turn, uint32_t gradients, uint32_t k, bool nonfinite,
                            F found)
{
    constexpr int down = Shape::queries / 16, columns = D * down / (Shape::threads / 32);     /* of a warp */
    const int warp = (Shape::splits ? hw::thread_anew() : hw::thread()) / 32, query = warp % down * 16;
    const int column = warp / down * columns;
    float dq[columns / 2];
    if (nonfinite) {
        product_of_gradients<T, columns, Shape::rows, true>(dq, gradients, k, query, column);
        if (Extra) mark_gradients<T, columns, Shape::rows>(dq, gradients, k, down);
    } else product_of_gradients<T, columns, Shape::rows, false>(dq, gradients, k, query, column);
    float *const to = (float *)m.p.workspace + (int64_t)tile * (Shape::queries * D) + place_in_sums<D, Shape>();
    if (m.turns && hw::thread() == 0) hw::wait_for_count(m.turns + tile, turn);
    if (m.turns || Shape::splits) hw::sync();           /* it is this block's turn */
    found();
    add_parts(to, dq, m.turns && turn == 0);
}
/* The number of a tile of Rows queries in m.turns and among the sums of dq; padded_row: its first one's in base, .. */
template <int Rows> ATTN__DEVICE uint32_t dq_tile(const grad_work &m, int b, int h, int padded_row)
{
    const uint32_t head = (uint32_t)b * (uint32_t)m.p.heads + (uint32_t)h;      /* fast_covers: it fits */
    return head * ((uint32_t)m.padded / Rows) + (uint32_t)padded_row / Rows;
}

/* All: dq, too; with options what is wanted of the three. */
template <class T, int D, bool Extra, bool All>
ATTN__DEVICE void mma_grad_keys_task(const grad_work &m, unsigned char *shared, int b, int head_kv, int first_key)
{
    typedef grad_shape<D, Extra, All> shape;
    constexpr bool chooses = All && Extra;
    constexpr int queries = shape::queries, columns = D / halves_each<T>;
    constexpr int across = D <= 192 ? copy_across<D> : D / 8;                   /* no spill on sm_120 */
    const params &p = m.p;
    const uint32_t k = hw::shared_address(shared), gradients = k + shape::shared_keys - shape::gradients;
    const bool adds = All && (!chooses || p.dq.rank);
    const grad_entry own = grad_entry_of(m, b, All);    /* its rows and keys are counted from its first ones on */
    const int last_key = first_key + shape::rows, at_key = own.keys.first + first_key;
    const int group = (int)(p.heads / p.heads_kv), padded_row = own.padded_row;
    const moving_queries<queries, All> moving = {m, b, padded_row, first_key, last_key, group, own.queries / queries};
    float dk[columns / 2], dv[columns / 2];
    const auto copy_queries = [&](moving_tile t, int to) {
        const int h = head_kv * group + t.head, i0 = row_of_tile(moving, t);
        if (t.head < group)
            copy_moving<D, shape, across>(grad_tiles_in<shape>(k, to), m, b, h, own.rows.first + i0, batch_of(moving),
                                          padded_row + i0);
        hw::cp_async_commit();
    };
    copy_rows<D, shape::rows, shape::threads>(k, p.k, p.size_q, b, head_kv, at_key, 0, own.keys.end);
    copy_rows<D, shape::rows, shape::threads>(k + shape::whole, p.v, p.size_v, b, head_kv, at_key, 0, own.keys.end);
    moving_tile at = next_of(moving, {0, 0}), following;
    copy_queries(at, 0);
    ATTN__UNROLL for (int j = 0; j < columns / 2; j++) dk[j] = dv[j] = 0.0f;
    hw::cp_async_wait<0>(), hw::sync();
    for (int now = 0; at.head < group; at = following, now ^= 1) {
        const tile_reach reach = reach_of_tile(moving, at.part);
        const bool edge = reach.from > first_key || reach.to < last_key;         /* without options */
        const grad_tiles tiles = grad_tiles_in<shape>(k, now);
        const int h = head_kv * group + at.head, i0 = row_of_tile(moving, at), row0 = hw::warp() * 16;
        float s[queries / 2], ds[queries / 2];
        following = next_of(moving, {at.head, at.part + 1});
        copy_queries(following, now ^ 1);
        product_of_rows<T, queries, D, shape::rows>(s, tiles.k, row0, tiles.q);
        product_of_rows<T, queries, D, shape::rows>(ds, tiles.v, row0, tiles.d_out);
        const nonfinite_tiles nonfinite = weigh_queries<T, D, Extra, queries, shape::rows>(
            s, ds, p, tiles, b, h, i0, first_key, row0, edge);
        if (adds) leave_scores<T, queries, shape::rows>(gradients, ds, hw::thread() / 32 * 16, 0);
        if (!chooses || p.dv.rank) add_tile<T, columns, queries>(dv, s, tiles.d_out, nonfinite.d_out);
        if (!chooses || p.dk.rank) add_tile<T, columns, queries>(dk, ds, tiles.q, nonfinite.q);
        const uint32_t tile = dq_tile<queries>(m, batch_of(moving), h, padded_row + i0);
        const int turn = first_key / shape::rows - reach.first / shape::rows;
        if constexpr (All)
            if (adds)
                add_to_dq<T, D, Extra, shape>(m, tile, turn, gradients, k,
                                              hw::barrier_or(1, shape::threads, nonfinite.q), [] {});
        hw::cp_async_wait<0>(), hw::sync();             /* the next tile is there, this one free; all have added */
        if (All && m.turns && hw::thread() == 0) hw::publish_count(m.turns + tile, turn + 1);
    }
    tile_row keys[2];
    set_places(keys, b, head_kv, first_key + hw::warp() * 16 + hw::lane() / 4);
    if (All) own_places(p, keys, true);
    static_assert(4 * warp_room<columns> <= shape::shared_keys - shape::gradients, "store_rows has room");
    if constexpr (shape::direct) store_dk_dv<T, columns, columns>(p, dk, dv, keys);
    else store_dk_dv<T, columns, columns>(p, dk, dv, keys, k + hw::warp() * warp_room<columns>);
    hw::sync();                                     /* the tiles are free again */
}

/* From here to mma_grad_halves_task: the same of more than 128 columns (grad_shape: splits). Of queries there is one
   tile, in whose place the next one comes as soon as all warps have q of it behind them, and d_out: other products run
   meanwhile. */
template <int D, class Shape>
ATTN__DEVICE void copy_parts(uint32_t to, const params &p, const attn__array &a, int64_t columns, int b, int h, int i0)
{
    static_assert(Shape::threads == Shape::queries * 8, "eight threads copy a row");
    const int thread = hw::thread_anew(), row = thread / 8, column = thread % 8 * 8, part = row / Shape::part;
    const uint32_t at = to + part * (Shape::moving / Shape::parts) +
                        chunk_of(row % Shape::part, column / 8, Shape::part);
    const uint16_t *const from = row_of(a, b, h, i0 + row) + column;
    const bool inside = i0 + row < (int)p.queries;
    ATTN__UNROLL for (int c = 0; c < D; c += 64)
        hw::cp_async(at + c / 64 * (Shape::part * 128), from + c, inside && column + c < columns);
}
/* q of a tile, unless there is none, and the numbers of its rows; d_out. first_head: of those that share the keys;
   first_row: the entry's */
template <int D, class Shape, class Moving>
ATTN__DEVICE void copy_q(const grad_tiles &to, const Moving &of, int first_head, int first_row, moving_tile t)
{
    const params &p = of.m.p;
    const int h = first_head + t.head, i0 = row_of_tile(of, t), padded = of.padded_row + i0;
    if (t.head < of.group) {
        copy_parts<D, Shape>(to.q, p, p.q, p.size_q, of.b, h, first_row + i0);
        ATTN__LOOP for (int n = 0; n < Shape::parts; n++)
            copy_numbers<Shape::part, Shape::threads>(to.rows + n * Shape::of_part, of.m, batch_of(of), h,
                                                      padded + n * Shape::part);
    }
    hw::cp_async_commit();
}
template <int D, class Shape, class Moving>
ATTN__DEVICE void copy_d_out(const grad_tiles &to, const Moving &of, int first_head, int first_row, moving_tile t)
{
    const params &p = of.m.p;
    if (t.head < of.group)
        copy_parts<D, Shape>(to.d_out, p, p.d_out, p.size_v, of.b, first_head + t.head, first_row + row_of_tile(of, t));
    hw::cp_async_commit();
}
/* A warp's part of a tile of queries */
template <class Shape> ATTN__DEVICE grad_tiles part_of(const grad_tiles &t, int part)
{
    const uint32_t to = part * (Shape::moving / Shape::parts);
    return {t.k, t.v, t.q + to, t.d_out + to, t.rows + part * Shape::of_part};
}
/* v . d_out^T, of a part, with the last panel of v in registers */
template <class T, int D, class Shape, int Held>
ATTN__DEVICE void product_of_held(float (&ds)[Shape::part / 2], const grad_tiles &part, int row0,
                                  const uint32_t (&held)[Held][4])
{
    const uint32_t from = right_address(part.d_out, Shape::part, hw::lane());
    uint32_t b[4];
    product_of_rows<T, Shape::part, D - Shape::held, Shape::rows>(ds, part.v, row0, part.d_out);
    ATTN__UNROLL for (int k = 0; k < Shape::held / 16; k++)
        ATTN__UNROLL for (int n = 0; n < Shape::part; n += 16) {
            load_along(b, from, Shape::part, n, (D - Shape::held) / 16 + k);
            hw::mma<T>(ds + n / 2, held[k], b[0], b[1]);
            hw::mma<T>(ds + n / 2 + 4, held[k], b[2], b[3]);
        }
}
/* d += pairs . a tile, for a warp's keys from row0 on and its half of the columns. Pairs are the weights or the
   gradients of scores that all have left, keys by queries, from a chunk on. */
template <class T, int D, class Shape>
ATTN__DEVICE void add_half(float (&d)[half_columns<D>::numbers], uint32_t pairs, int chunk, uint32_t tile, int row0,
                           int which)
{
    typedef half_columns<D> half;
    constexpr int rows = Shape::part, bytes = Shape::moving / Shape::parts;
    const uint32_t from = down_address(tile, rows, hw::lane()), whole = from + half::first(which) / 64 * (rows * 128);
    const uint32_t rest = (from ^ which * (half::rest * 2)) + half::whole / 64 * (rows * 128);
    ATTN__UNROLL for (int k = 0; k < Shape::parts; k++) {
        uint32_t a[4];
        load_left(a, pairs, Shape::rows, row0, chunk / 2 + k);
        add_product<T, half::whole, false>(one_block(numbers_from<0, half::whole / 2>(d)), one_block(a),
                                           whole + k * bytes, rows, 0, 0);
        if constexpr (half::rest != 0)
            add_product<T, half::rest, false>(one_block(numbers_from<half::whole / 2, half::rest / 2>(d)),
                                              one_block(a), rest + k * bytes, rows, 0, 0);
    }
}
/* The NaN guard of both such products, for all threads. Rare. */
template <class T, int D, class Shape>
ATTN__DEVICE void guard_moving(float (&dk)[half_columns<D>::numbers], float (&dv)[half_columns<D>::numbers],
                               uint32_t pairs, const grad_tiles &tiles, int row0, int which)
{
    const int key = row0 + hw::lane() / 4;
    mark_half<T, D, Shape::part, Shape::rows>(dk, pairs, key, tiles.q, Shape::parts, which);
    mark_half<T, D, Shape::part, Shape::rows>(dv, pairs, key, tiles.d_out, Shape::parts, which);
    hw::sync();
    ATTN__LOOP for (int n = 0; n < Shape::parts; n++) {
        const grad_tiles part = part_of<Shape>(tiles, n);
        clear_nonfinite<T, Shape::part, D>(part.q, hw::thread(), Shape::threads);
        clear_nonfinite<T, Shape::part, D>(part.d_out, hw::thread(), Shape::threads);
    }
    hw::sync();
}
/* Of a tile of queries from i0 on: each warp leaves the weights of its keys and its part of the queries in `pairs`, and
   the gradients of scores. Returns when all have, whether some number of q, k, d_out or v may not be finite. */
template <class T, int D, bool Extra, class Shape, int Held>
ATTN__DEVICE bool leave_pairs(const params &p, const grad_tiles &tiles, uint32_t pairs, const uint32_t (&held)[Held][4],
                              int b, int h, int i0, int first_key, bool edge)
{
    constexpr int rows = Shape::rows, part = Shape::part;
    const int row0 = hw::warp() % 4 * 16, which = hw::warp() / 4;
    const grad_tiles of_part = part_of<Shape>(tiles, which);
    float s[part / 2], ds[part / 2];
    product_of_rows<T, part, D, rows>(s, of_part.k, row0, of_part.q);
    hw::cp_async_wait<0>(), hw::sync();                 /* d_out is there */
    product_of_held<T, D, Shape>(ds, of_part, row0, held);
    const nonfinite_tiles nonfinite = weigh_queries<T, D, Extra, part, rows>(
        s, ds, p, of_part, b, h, i0 + which * part, first_key, row0, edge);
    leave_scores<T, part, rows>(pairs, ds, row0, which * (part / 8));
    leave_scores<T, part, rows>(pairs, s, row0, (Shape::parts + which) * (part / 8));
    return hw::barrier_or(1, Shape::threads, nonfinite.q || nonfinite.d_out);
}
template <class T, int D, bool Extra>
ATTN__DEVICE void mma_grad_halves_task(const grad_work &m, unsigned char *shared, int b, int head_kv, int first_key)
{
    typedef grad_shape<D, Extra, true> shape;
    constexpr int rows = shape::rows, held = shape::held / 16, queries = shape::queries;
    const params &p = m.p;
    const grad_tiles tiles = grad_tiles_in<shape>(hw::shared_address(shared), 0);
    const uint32_t pairs = tiles.k + shape::shared_keys - shape::gradients;
    const grad_entry own = grad_entry_of(m, b);
    const int group = (int)(p.heads / p.heads_kv), first_head = head_kv * group, first_row = own.rows.first;
    const int last_key = first_key + rows, at_key = own.keys.first + first_key;
    const moving_queries<queries, true> moving = {m, b, own.padded_row, first_key, last_key, group,
                                                  own.queries / queries};
    float dk[half_columns<D>::numbers], dv[half_columns<D>::numbers];
    uint32_t of_v[held ? held : 1][4];
    copy_rows<D, rows, shape::threads>(tiles.k, p.k, p.size_q, b, head_kv, at_key, 0, own.keys.end);
    copy_rows<D, rows, shape::threads>(tiles.v, p.v, p.size_v, b, head_kv, at_key, 0, own.keys.end);
    moving_tile at = next_of(moving, {0, 0}), following;
    if (held) {                                         /* it comes where q will be */
        hw::cp_async_commit(), hw::cp_async_wait<0>(), hw::sync();
        ATTN__UNROLL for (int k = 0; k < held; k++)
            load_left(of_v[k], tiles.v, rows, hw::warp() % 4 * 16, D / 16 - held + k);
        hw::sync();
    }
    copy_q<D, shape>(tiles, moving, first_head, first_row, at);
    copy_d_out<D, shape>(tiles, moving, first_head, first_row, at);
    ATTN__UNROLL for (int j = 0; j < half_columns<D>::numbers; j++) dk[j] = dv[j] = 0.0f;
    hw::cp_async_wait<1>(), hw::sync();
    for (; at.head < group; at = following) {
        const tile_reach reach = reach_of_tile(moving, at.part);
        const bool edge = reach.from > first_key || reach.to < last_key;
        const int h = first_head + at.head, i0 = row_of_tile(moving, at);
        following = next_of(moving, {at.head, at.part + 1});
        const bool nonfinite =
            leave_pairs<T, D, Extra, shape>(p, tiles, pairs, of_v, b, h, i0, first_key, edge);
        const int row0 = hw::warp() % 4 * 16, which = hw::warp() / 4;
        if (nonfinite) guard_moving<T, D, shape>(dk, dv, pairs, tiles, row0, which);
        if (!Extra || p.dk.rank) add_half<T, D, shape>(dk, pairs, 0, tiles.q, row0, which);
        hw::sync();                                     /* q is behind all */
        copy_q<D, shape>(tiles, moving, first_head, first_row, following);
        if (!Extra || p.dv.rank) add_half<T, D, shape>(dv, pairs, queries / 8, tiles.d_out, row0, which);
        const auto go_on = [&] { copy_d_out<D, shape>(tiles, moving, first_head, first_row, following); };
        const uint32_t tile = dq_tile<queries>(m, batch_of(moving), h, own.padded_row + i0);
        const int turn = first_key / rows - reach.first / rows;
        if (!Extra || p.dq.rank) add_to_dq<T, D, Extra, shape>(m, tile, turn, pairs, tiles.k, nonfinite, go_on);
        else hw::sync(), go_on();
        hw::cp_async_wait<1>(), hw::sync();             /* q is there; all have added */
        if (m.turns && hw::thread() == 0) hw::publish_count(m.turns + tile, turn + 1);
    }
    tile_row keys[2];
    set_places(keys, b, head_kv, first_key + hw::warp() % 4 * 16 + hw::lane() / 4);
    own_places(p, keys, true);
    static_assert(8 * warp_room<half_columns<D>::whole> <= shape::shared_keys - shape::gradients, "there is room");
    if constexpr (shape::direct) store_halves<T, D, D>(p, dk, dv, keys, hw::warp() / 4);
    else
        store_halves<T, D, D>(p, dk, dv, keys, hw::warp() / 4,
                              tiles.k + hw::warp() * warp_room<half_columns<D>::whole>);
    hw::sync();                                     /* the tiles are free again */
}

template <class T, int D, bool Extra, bool All>
ATTN__KERNEL((grad_shape<D, Extra, All>::threads), 1) void mma_grad_keys(ATTN__PARAM grad_work m)
{
#if ATTN__HAVE_MMA
    typedef grad_shape<D, Extra, All> shape;
    ATTN__SHARED(shared);
    const int all = (int)(batch_of_keys(m.p) * m.p.heads_kv) * m.order.tiles;
    const int tasks = packed_tasks(m.keys, (int)m.p.heads_kv, all);
    const uint32_t word = hw::shared_address(shared) + shape::shared_keys - 16;
    const auto ticket = [&] {                           /* the block's */
        if (hw::thread() == 0) hw::store_shared(word, (uint32_t)hw::take_one(m.tickets));
        hw::sync();
        return (int)hw::load_shared_word(word);
    };
    const bool ordered = All && m.turns;                /* who begins first, has the first task */
    for (int task = ordered ? ticket() : hw::block(); task < tasks; task = ordered ? ticket() : task + hw::blocks()) {
        const tile_task t = keys_of_entry(m.p, m.order, m.keys, task, shape::rows);
        if constexpr (shape::splits) mma_grad_halves_task<T, D, Extra>(m, shared, t.b, t.h, t.first_row);
        else mma_grad_keys_task<T, D, Extra, All>(m, shared, t.b, t.h, t.first_row);
    }
#else
    hw::missing();
#endif
}

/* Without turns the workspace's sums of dq are zeros before that kernel; after it they are stored, four numbers by a
   thread. */
ATTN__KERNEL(128, 1) void clear_dq_sums(ATTN__PARAM grad_work m)
{
    const int64_t all = batch_of_rows(m.p) * m.p.heads * m.padded * m.dq.columns;
    for (int64_t n = (int64_t)hw::block() * 128 + hw::thread(); n < all; n += (int64_t)hw::blocks() * 128)
        ((float *)m.p.workspace)[n] = 0.0f;
}
/* Of entries that are not packed: zeros for the rows and keys in front of their first ones, 32 of a head by a warp */
ATTN__BOTH int64_t tasks_in_front(const params &p)
{
    return p.batch * (p.heads + 2 * p.heads_kv) * (((p.queries > p.keys ? p.queries : p.keys) + 31) / 32);
}
ATTN__KERNEL(32 * WARPS, 1) void clear_in_front(ATTN__PARAM params p)
{
    const int64_t all = tasks_in_front(p), heads = p.heads + 2 * p.heads_kv, parts = all / p.batch / heads;
    for (int64_t n = first_task(); n < all; n += all_tasks()) {
        const int64_t b = n / parts / heads, of = n / parts % heads;
        const bool keys = of >= p.heads, values = of >= p.heads + p.heads_kv;
        const int64_t h = of - (keys ? p.heads : 0) - (values ? p.heads_kv : 0);
        const int64_t first = n % parts * 32, end = rows_of_entry(p, b, keys).first;
        const attn__array &a = values ? p.dv : keys ? p.dk : p.dq;
        const uint32_t bit = values ? ATTN_GRAD_V : keys ? ATTN_GRAD_K : ATTN_GRAD_Q;
        if (!a.rank || (keys ? p.packed_keys : p.packed_queries)) continue;
        for (int64_t i = first; i < end && i < first + 32; i++)
            for (int64_t c = hw::lane(); c < (values ? p.size_v : p.size_q); c += 32)
                store_gradient(p, a, bit, b, h, i, c, 0.0f);
    }
}
/* A tile of a head's sums: its rows in the arrays, of which those from `end` on are not its entry's */
ATTN__DEVICE row_span rows_of_dq_tile(const grad_work &m, int b, int tile)
{
    const int each = GRAD_ROWS / m.dq.rows;
    if (!m.rows.count) return {(int)first_row_in(m.p, b) + tile * m.dq.rows, (int)m.p.queries};
    if (tile / each >= *m.rows.count) return {0, 0};
    const packed_tile of = m.rows.tiles[tile / each];
    return {of.row + tile % each * m.dq.rows, rows_of_entry(m.p, of.entry, false).end};
}
template <class T> ATTN__KERNEL(128, 1) void store_dq_sums(ATTN__PARAM grad_work m)
{
#if ATTN__HAVE_MMA
    const params &p = m.p;
    const dq_layout &of = m.dq;
    const int lanes = of.columns * of.rows / 4, down = of.rows / 16, l = hw::lane();
    const int row = hw::warp() % down * 16 + l / 4, column0 = hw::warp() / down * (lanes / 16) + l % 4 * 2;
    const int64_t tiles = m.padded / of.rows, all = batch_of_rows(p) * p.heads * tiles * lanes;
    for (int64_t n = (int64_t)hw::block() * 128 + hw::thread(); n < all; n += (int64_t)hw::blocks() * 128) {
        const int64_t tile = n / lanes, b = tile / tiles / p.heads, h = tile / tiles % p.heads;
        const int column = (int)(n % lanes) / 128 * 8 + column0, thread = hw::thread();
        const float *const from = (const float *)p.workspace + 4 * (n - thread) + (of.apart == 1 ? 4 * thread : thread);
        const bool some = !m.turns || m.turns[tile] != 0;           /* else no keys had a part */
        const row_span rows = rows_of_dq_tile(m, (int)b, (int)(tile % tiles));
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const int64_t i = rows.first + row + 8 * e, at = place(p.dq, b, h, i, column);
            const float *const two = from + 2 * e * of.apart;
            if (i >= rows.end || column >= p.size_q) continue;
            float x = (some ? two[0] : 0.0f) * p.scale, y = (some ? two[of.apart] : 0.0f) * p.scale;
            if (p.accumulate & ATTN_GRAD_Q) x += load_at(p.dq, at), y += load_at(p.dq, at + 1);
            if (p.dq.type == ATTN_F32) store_at(p.dq, at, x), store_at(p.dq, at + 1, y);
            else *(uint32_t *)((uint16_t *)p.dq.data + at) = pack_result<T>(x, y);
        }
    }
#else
    hw::missing();
#endif
}

/* ---- the host's side of stage 2 */
template <int D> struct head_size { static constexpr int value = D; };
template <int... Sizes> struct head_sizes {};
/* Calls f(head_size<D>()) with the first D that is not below `size`; false where there is none. */
template <class F> bool with_head_size(int64_t, head_sizes<>, F) { return false; }
template <int D, int... More, class F> bool with_head_size(int64_t size, head_sizes<D, More...>, F f)
{
    if (size > D) return with_head_size(size, head_sizes<More...>(), f);
    f(head_size<D>());
    return true;
}
typedef head_sizes<ATTN_CUDA_HEAD_DIMS> mma_head_sizes;
template <int... Sizes> constexpr int largest_of(head_sizes<Sizes...>)
{
    int largest = 0;
    ((largest = Sizes > largest ? Sizes : largest), ...);
    return largest;
}
/* Head size 32 has kernels for plain calls of many rows alone, if there is 64, and 96, if there is 128. A decode waits
   for memory, and tiles of 96 columns take as much shared memory as those of 128; other calls are few. */
template <int... Sizes> constexpr bool has_size(int size, head_sizes<Sizes...>) { return ((Sizes == size) || ...); }
template <int D> constexpr int mma_whole = D == 32 && has_size(64, mma_head_sizes())    ? 64
                                           : D == 96 && has_size(128, mma_head_sizes()) ? 128 : D;
template <int D> constexpr bool mma_is_whole = mma_whole<D> == D;
/* f(the D of kernels of 16 bits), whole: for any call */
template <class F> bool with_16_bit_size(int64_t size, bool whole, F f)
{
    return with_head_size(size, mma_head_sizes(), [&](auto d) {
        constexpr int D = decltype(d)::value;
        if constexpr (mma_is_whole<D>) f(d);
        else if (whole) f(head_size<mma_whole<D>>());
        else f(d);
    });
}
/* The same for the D of f32, of which a row has half as many numbers: there are kernels for 64 and 128 of them, those
   with Extra alone. */
template <class F> bool with_f32_size(int64_t, head_sizes<>, F) { return false; }
template <int D, int... More, class F> bool with_f32_size(int64_t size, head_sizes<D, More...>, F f)
{
    if constexpr (ATTN_CUDA_F32 && (D == 64 || D == 128)) {
        if (size <= D) {
            f(head_size<2 * D>());
            return true;
        }
    }
    return with_f32_size(size, head_sizes<More...>(), f);
}

/* Can rows be moved 16 bytes at a time? */
inline bool has_aligned_rows(const attn__array &a, int64_t batch, int64_t heads, int64_t rows)
{
    const int64_t size[3] = {batch, heads, rows}, in_16_bytes = a.type == ATTN_I8 ? 16 : a.type == ATTN_F32 ? 4 : 8;
    if (a.stride[3] != 1 || (uintptr_t)a.data % 16) return false;
    for (int i = 0; i < 3; i++)
        if (size[i] > 1 && a.stride[i] % in_16_bytes) return false;
    return true;
}

inline bool has_aligned_keys(const params &p, const attn__array &a)
{
    return has_aligned_rows(a, p.page ? p.pool : p.batch, p.heads_kv, p.page ? p.page : p.keys);
}

/* Queries of an entry; of packed ones, which the host does not know, the mean */
inline int64_t queries_of_entry(const params &p)
{
    return p.packed_queries && p.batch ? (p.queries + p.batch - 1) / p.batch : p.queries;
}
/* The heads of a group, in a tile of `rows` rows, if they fit there. Tiles of packed queries begin with a query. */
inline int32_t heads_in_tile(const params &p, int rows)
{
    const int32_t pack = queries_of_entry(p) < rows ? (int32_t)(p.heads / p.heads_kv) : 1;
    return p.packed_queries && MMA_DECODE_ROWS % pack != 0 ? 1 : pack;
}
/* Are its rows those of a decode, which are one tile? */
inline bool has_few_rows(const params &p)
{
    return is_16_bit(p.q) && p.heads > 0 &&
           queries_of_entry(p) * heads_in_tile(p, MMA_DECODE_ROWS + 1) <= MMA_DECODE_ROWS;
}

inline int64_t larger_head(const params &p) { return p.size_v > p.size_q ? p.size_v : p.size_q; }
inline bool has_codes(const params &p) { return p.k.type == ATTN_I8 || p.v.type == ATTN_I8; }
/* Codes of 8 bits that stage 2 can copy, 16 at a time */
inline bool has_pieces(const params &p, const attn__array &a, int64_t columns)
{
    return a.type == ATTN_I8 && columns % 16 == 0 && has_aligned_keys(p, a);
}
/* Can it make numbers of what k and v have of them tile by tile? */
inline bool tiles_take_codes(const params &p)
{
    const auto fit = [&](const attn__array &a, int64_t columns) {
        return a.type != ATTN_I8 || has_pieces(p, a, columns);
    };
    return has_codes(p) && is_16_bit(p.q) && !p.is_backward && !wants_pairs(p) && fit(p.k, p.size_q) &&
           fit(p.v, p.size_v);
}
/* Are both codes that its decode reads as they are? */
inline bool reads_codes(const params &p)
{
    bool whole_groups = false;
    with_16_bit_size(larger_head(p), true, [&](auto d) { whole_groups = decltype(d)::value % 32 == 0; });
    return is_16_bit(p.q) && whole_groups && !p.is_backward && !has_extra(p) && !has_starts(p) && !wants_pairs(p) &&
           p.heads_kv > 0 && p.queries * (p.heads / p.heads_kv) <= MMA_CODE_ROWS &&
           has_pieces(p, p.k, p.size_q) && (!p.v.rank || has_pieces(p, p.v, p.size_v));
}

/* May a result be written two columns at a time, in type `type` or float? */
inline bool has_paired_rows(const attn__array &a, int32_t type, int64_t batch, int64_t heads, int64_t rows)
{
    const int64_t size[3] = {batch, heads, rows};
    if (!a.rank) return true;
    if (a.stride[3] != 1 || (a.type != type && a.type != ATTN_F32)) return false;
    if (a.type == ATTN_F32) return true;
    if ((uintptr_t)a.data % 4) return false;
    for (int i = 0; i < 3; i++)
        if (size[i] > 1 && a.stride[i] % 2) return false;
    return true;
}

/* What both fast stages ask of a call: NULL, or the first that it lacks */
#define ATTN__WANT(condition, text) if (!(condition)) return text
inline const char *fast_covers(const params &p, int stage)
{
    ATTN__WANT(ATTN_CUDA_F16 || p.q.type != ATTN_F16, "compiled without kernels of f16 (ATTN_CUDA_F16)");
    ATTN__WANT(ATTN_CUDA_BF16 || p.q.type != ATTN_BF16, "compiled without kernels of bf16 (ATTN_CUDA_BF16)");
    if (const char *const why = lacking(p, stage)) return why;
    ATTN__WANT(p.batch > 0 && p.heads > 0 && p.queries > 0 && p.keys > 0 && p.size_q > 0 && (!p.page || p.pool > 0),
               "a size is 0");
    ATTN__WANT(p.keys < 1 << 30 && p.queries < 1 << 30 && p.pool < 1 << 30 && p.page < 1 << 30 &&
               p.heads < 1 << 25,                                       /* rows have 32 bits, packed too */
               "a size is beyond 2^30, or there are 2^25 heads");
    ATTN__WANT(p.batch * p.heads * ((p.keys + p.queries) / 64 + 2) <= INT32_MAX - ATTN_CUDA_MAX_BLOCKS,
               "more than 2^31 tiles of rows");
    ATTN__WANT((p.k.type != ATTN_I8 && p.v.type != ATTN_I8) || reads_codes(p),
               "k or v has 8 bits, in rows that are not of whole 16 bytes, and they lie in pages");
    ATTN__WANT(p.size_q % 8 == 0 && p.size_v % 8 == 0, "a head size is no multiple of 8");
    ATTN__WANT(has_aligned_rows(p.q, p.batch, p.heads, p.queries) &&
               has_aligned_keys(p, p.k) && (!p.v.rank || has_aligned_keys(p, p.v)),
               "rows of q, k, v are not 16-byte aligned");
    ATTN__WANT(has_paired_rows(p.out, p.q.type, p.batch, p.heads, p.queries),
               "out is not in rows of the type of q or f32");
    return NULL;
}
static const char *fast_covers_backward(const params &p)
{
    ATTN__WANT(ATTN_CUDA_GRADIENTS, "compiled without kernels of gradients (ATTN_CUDA_GRADIENTS)");
    ATTN__WANT(p.d_out.rank && p.out.rank && p.v.rank, "there is no d_out and out");
    ATTN__WANT(p.d_out.type == p.q.type && has_aligned_rows(p.d_out, p.batch, p.heads, p.queries),
               "d_out is not in 16-byte aligned rows of the type of q");
    ATTN__WANT(has_paired_rows(p.dq, p.q.type, p.batch, p.heads, p.queries) &&
               has_paired_rows(p.dk, p.q.type, p.batch, p.heads_kv, p.keys) &&
               has_paired_rows(p.dv, p.q.type, p.batch, p.heads_kv, p.keys),
               "dq, dk, dv are not in rows of the type of q or f32");
    return NULL;
}
/* Does a call need nothing but the kernels of plain tiles? Those of gradients find all of them. */
inline bool is_plain_call(const params &p)
{
    const bool finds_all = !p.is_backward || (p.dq.rank && (p.dk.rank || p.dv.rank));
    return finds_all && !has_extra(p) && !has_few_rows(p) && p.k.type != ATTN_I8;
}
/* f(its type) for a call of 16 bits; f(its type, the D of its kernels) for any, false where there are none. fast_covers
   refuses types that were left out. */
template <class F> int with_type(int32_t its_type, F f)
{
    if constexpr (ATTN_CUDA_BF16)
        if (its_type == ATTN_BF16) return f(hw::bf16());
    if constexpr (ATTN_CUDA_F16) return f(hw::f16());
    return (int)cudaErrorInvalidValue;
}
template <class F> void each_type(F f)
{
    if constexpr (ATTN_CUDA_BF16) f(hw::bf16());
    if constexpr (ATTN_CUDA_F16) f(hw::f16());
}
/* whole: kernels for any call; else those that this one needs. */
template <class F> bool with_shape(const params &p, F f, bool whole = false)
{
    if (p.q.type == ATTN_F32)
        return with_f32_size(larger_head(p), mma_head_sizes(), [&](auto d) { f(hw::f32(), d); });
    return with_16_bit_size(larger_head(p), whole || !is_plain_call(p), [&](auto d) {
        with_type(p.q.type, [&](auto type) { f(type, d); return 0; });
    });
}
template <class F> cudaError_t with_kernels(const params &p, F f, bool whole = false)
{
    int error = 0;
    with_shape(p, [&](auto type, auto d) { error = f(type, d); }, whole);
    return (cudaError_t)error;
}
/* A call of type T as its kernels see it (see halves_each) */
template <class T> params as_halves(params p)
{
    attn__array *const arrays[4] = {&p.q, &p.k, &p.v, &p.d_out};
    for (attn__array *a : arrays)
        for (int i = 0; i < 3; i++) a->stride[i] *= halves_each<T>;
    p.size_q *= halves_each<T>;
    p.size_v *= halves_each<T>;
    return p;
}

static const char *mma_covers_as(const params &p, const device &d, bool backward, int stage)
{
    const char *why = fast_covers(p, stage);
    bool fits = false;
    if (!why && backward) why = fast_covers_backward(p);
    ATTN__WANT(d.arch >= 80, "the device is older than sm_80");
    ATTN__WANT(d.compiled >= 80, "compiled without sm_80: add -gencode=arch=compute_80,code=compute_80");
    if (why) return why;
    ATTN__WANT(with_shape(p, [&](auto type, auto size) {
        constexpr int D = decltype(size)::value;
        constexpr bool all = mma_has_all<decltype(type), D>;
        typedef grad_shape<all ? grad_size<D> : D, false, all> shape;
        fits = mma_small_shape<D, false>::shared_bytes <= d.shared_bytes &&
               (!backward || (shape::shared_keys <= d.shared_bytes &&
                              (all || shape::shared_queries <= d.shared_bytes)));
    }), "a head size is beyond those that were compiled");
    ATTN__WANT(fits, "the device has too little shared memory");
    return NULL;
}

/* The table of packed tiles: its bytes, its parts, its launch */
inline int64_t table_bytes(const params &p, int64_t rows, bool keys)
{
    const int64_t tiles = most_packed_tiles(p, rows, keys) * (int64_t)sizeof(packed_tile);
    return ((p.batch + 2) / 2 * 8 + tiles + 255) / 256 * 256;
}
inline packed_tiles table_at(const params &p, void *at)
{
    int *const words = (int *)at;
    const packed_tiles t = {words, words + 1, (packed_tile *)(void *)(words + (p.batch + 2) / 2 * 2)};
    return t;
}
inline int fill_table(const params &p, const packed_tiles &to, int rows, bool keys, const queue &stream)
{
    const tile_table m = {p, to, rows, (int)most_packed_tiles(p, rows, keys), keys};
    return (int)run(find_packed_tiles, p.batch + 1, stream, m);
}

/* Does stage 2 find gradients by the kernel of all sums? */
inline bool mma_sweeps_once(const params &p)
{
    bool once = false;
    with_shape(p, [&](auto type, auto d) {
        once = mma_has_all<decltype(type), decltype(d)::value>;
    });
    return once;
}
/* Has its kernel of the forward starts? */
static bool mma_has_starts(const params &p)
{
    bool starts = false;
    with_shape(p, [&](auto, auto size) { starts = mma_starts<decltype(size)::value, NUMBERS>; });
    return starts;
}
/* Why it does not take entries with starts; NULL: it does. */
static const char *mma_lacks_starts(const params &p, bool backward)
{
    ATTN__WANT(mma_has_starts(p) || backward,
               "entries with starts, and kernels for a head size above 192 (of f32: 64)");
    ATTN__WANT(mma_has_starts(p) || p.stats.rank,
               "entries with starts without stats, and kernels for a head size above 192 (of f32: 64)");
    ATTN__WANT(!backward || mma_sweeps_once(p),
               "gradients of entries with starts, and kernels of f32, or of columns that are no multiple of 32");
    return NULL;
}
static const char *mma_covers(const params &p, const device &d, bool backward)
{
    const char *const reason = mma_covers_as(p, d, backward, IN_STAGE_2);
    return reason || !has_starts(p) ? reason : mma_lacks_starts(p, backward);
}

/* into a multiprocessor: it has 1 KB more than a block may have, and reserves 1 KB for each block */
inline bool fits_twice(int shared_bytes, const device &dev)
{
    return 2 * (shared_bytes + 1024) <= dev.shared_bytes + 1024;
}

/* Tiles of so many rows, or those of a decode, if it may be one. Returns how many there are, for each of which a block
   is. */
inline int64_t lay_rows(mma_work &m, const params &p, int rows, bool may_decode)
{
    const int64_t queries = queries_of_entry(p);
    m.pack = heads_in_tile(p, rows);
    m.groups = p.heads / m.pack;
    m.rows = (may_decode && has_few_rows(p)) || p.k.type == ATTN_I8 ? MMA_DECODE_ROWS : rows;
    m.tiles = (queries * m.pack + m.rows - 1) / m.rows;
    return p.batch * m.groups * m.tiles;
}
/* Of heads above 64 a build for sm_90a has kernels of small tiles alone, for calls of many rows are stage 3's. */
inline int most_large_tiles(const device &dev) { return dev.compiled >= 90 ? 64 : 256; }
/* How many rows tiles have: as many as a kernel can, where two such blocks fit into a multiprocessor and there are two
   for each; few are better in more, smaller ones.
       How many parts the keys are cut into: as many as leave no processor more than two blocks, which all fit there at
   once (a block more would begin when others have ended, and take as long as they did), none below 256 keys. All but
   `p`. */
template <int D> mma_work mma_plan(const params &p, const device &dev)
{
    typedef mma_tile_shape<D, false> large;
    typedef mma_small_shape<D, false> small;
    const bool plain = is_16_bit(p.q) && !has_extra(p);
    const int64_t most_blocks = 2 * (int64_t)dev.processors;
    const int64_t most_parts = (p.packed_keys ? p.keys / p.batch : p.keys) / 256;
    mma_work m;
    const bool may_decode = mma_decode_makes<D> || !are_for_tiles(p);
    int64_t blocks = lay_rows(m, p, plain ? large::rows : mma_tile_shape<D, true>::rows, may_decode);
    if (plain && large::rows != small::rows &&
        (D > most_large_tiles(dev) || blocks < most_blocks || !fits_twice(large::shared_bytes, dev)))
        blocks = lay_rows(m, p, small::rows, may_decode);
    m.packed = packed_tiles();
    if (p.packed_queries) m.tiles = most_packed_tiles(p, m.rows / m.pack, false);
    int64_t parts = most_blocks / blocks;
    if (parts > most_parts) parts = most_parts;
    m.splits = parts > 1 ? (int32_t)parts : 1;
    m.columns = D;
    m.sums = m.tops = NULL;
    m.counts = NULL;
    return m;
}

/* So many tiles of a decode have a count, where its blocks merge parts. Of more parts one block would read for longer
   than the second kernel, whose blocks share them, takes to begin: computed, not measured. */
enum { MOST_MERGED = 36 };
template <int D> int64_t counts_of(const params &p, const mma_work &m)
{
    const bool merges = has_extra(p) ? mma_merges<D, true> : mma_merges<D, false>;
    const bool few = m.splits > 1 && m.splits <= MOST_MERGED;
    return merges && few && m.rows == MMA_DECODE_ROWS ? batch_of_rows(p) * m.groups * m.tiles : 0;
}
/* A backward call as its forward sees it: sums over pairs do not shape scores (has_extra). */
static params forward_of(params p)
{
    p.d_bias.rank = p.d_scale.rank = p.d_alibi.rank = 0;
    return p;
}
/* Bytes for the parts: of this call, or what mma_plan can come to for it and any smaller one. Where that splits at all,
   there are two blocks per processor at most, so half as many tiles of rows; but of packed entries, whose number of
   tiles is that of their mean length, each may have one more. */
static int64_t mma_forward_workspace(const params &p, const device &dev, bool smaller)
{
    const int64_t parts = p.keys / 256, rows = batch_of_rows(p) * p.heads * p.queries;
    const int64_t of_group = queries_of_entry(p) * (p.heads / p.heads_kv);
    const int64_t tiles = 2 * (int64_t)dev.processors, more = p.packed_queries ? p.batch * p.heads : 0;
    const int64_t most_counts = (tiles < rows ? tiles : rows) + more;
    int64_t bytes = 0;
    with_shape(p, [&](auto type, auto d) {
        constexpr int D = decltype(d)::value, columns = D / halves_each<decltype(type)>;
        constexpr int most_rows = mma_small_shape<D, false>::rows;      /* large tiles are never split */
        const int64_t in_blocks = 2 * (int64_t)dev.processors * (of_group < most_rows ? of_group : most_rows);
        const int64_t most = rows * parts < in_blocks ? rows * parts : in_blocks;
        const mma_work m = mma_plan<D>(p, dev);
        if (smaller ? parts > 1 : m.splits > 1)
            bytes = (smaller ? most : rows * m.splits) * (columns + 2) * (int64_t)sizeof(float) +
                    (smaller ? most_counts : counts_of<D>(p, m)) * (int64_t)sizeof(int);
    }, smaller);
    if (p.packed_queries) bytes += table_bytes(p, 1, false);
    return bytes;
}

/* Shape: of a block, which in a decode may have fewer warps than the kernel's WarpsKV. */
template <class T, int D, bool Extra, int Keys, int WarpsKV, class Shape>
int mma_forward_run(const mma_work &m, int grid, const queue &stream)
{
    return launch(mma_forward_kernel<T, D, Extra, Keys, WarpsKV, Shape::kind, Shape::row_blocks>, grid, Shape::threads,
                  Shape::shared_bytes, stream, m);
}
template <class T, int D, bool Extra, int Kind>
int mma_decode_launch(const mma_work &m, const device &dev, int grid, const queue &stream)
{
    typedef mma_decode_shape<D, Kind> shape;
    constexpr int keys = mma_decode_keys<D, Kind>, warps = mma_decode_warps<D>;
    static_assert(shape::rows == MMA_DECODE_ROWS, "a warp's rows");
    return fits_twice(shape::shared_bytes, dev)
               ? mma_forward_run<T, D, Extra, keys, warps, shape>(m, grid, stream)
               : mma_forward_run<T, D, Extra, keys, warps, mma_shape<D, keys, 2, Kind>>(m, grid, stream);
}
template <class T, int D, bool Extra>
int mma_forward_launch(const mma_work &m, const device &dev, int grid, const queue &stream)
{
    const bool in_groups = m.p.k_scale.stride[3] || (m.p.v.rank && m.p.v_scale.stride[3]);
    constexpr bool decodes = !T::is_f32 && mma_is_whole<D>;     /* f32 has one kernel, whatever the rows */
    if constexpr (!Extra && D % 32 == 0 && decodes) {
        if (m.p.k.type == ATTN_I8)
            return in_groups ? mma_decode_launch<T, D, Extra, CODES_IN_GROUPS>(m, dev, grid, stream)
                             : mma_decode_launch<T, D, Extra, CODES>(m, dev, grid, stream);
    }
    if constexpr (decodes)
        if (m.rows == MMA_DECODE_ROWS) return mma_decode_launch<T, D, Extra, NUMBERS>(m, dev, grid, stream);
    typedef mma_tile_shape<D, Extra> large;
    typedef mma_small_shape<D, Extra> small;
    return m.rows == large::rows ? mma_forward_run<T, D, Extra, mma_keys<D, Extra>, 1, large>(m, grid, stream)
                                 : mma_forward_run<T, D, Extra, mma_keys<D, Extra>, 1, small>(m, grid, stream);
}
template <class T, int D> int mma_forward_as(const params &p, const device &dev, const queue &stream)
{
    mma_work m = mma_plan<D>(p, dev);
    m.p = as_halves<T>(p);
    m.columns = D / halves_each<T>;
    const int64_t rows = batch_of_rows(p) * p.heads * p.queries;
    const int grid = blocks_for(batch_of_rows(p) * m.groups * m.tiles * m.splits);
    int error = 0;
    if (p.packed_queries) {
        m.packed = table_at(p, p.workspace);
        error = fill_table(p, m.packed, (int)(m.rows / m.pack), false, stream);
    }
    m.sums = (float *)(void *)((char *)p.workspace + (p.packed_queries ? table_bytes(p, 1, false) : 0));
    m.tops = m.sums + rows * m.splits * m.columns;
    if (const int64_t counts = counts_of<D>(p, m)) {
        m.counts = (int *)(void *)(m.tops + 2 * rows * m.splits);
        if (!error) error = clear_bytes(m.counts, (size_t)counts * sizeof(int), stream);
    }
    if (!error && !has_extra(p)) error = mma_forward_launch<T, D, T::is_f32>(m, dev, grid, stream);
    else if constexpr (mma_is_whole<D>)
        if (!error) error = mma_forward_launch<T, D, true>(m, dev, grid, stream);
    m.p = p;
    if (!error && m.splits > 1 && !m.counts)
        error = run(merge_splits, m.packed.count ? m.groups * m.tiles * m.rows : rows, stream, m);
    return error;
}
typedef cudaError_t forward_fn(const params &p, const device &dev, const queue &stream);
static cudaError_t mma_forward_rows(const params &p, const device &dev, const queue &stream)
{
    return with_kernels(p, [&](auto type, auto d) {
        return mma_forward_as<decltype(type), decltype(d)::value>(p, dev, stream);
    });
}

/* Weights need stats: these lie in the workspace, in front of what the forward has there, where the call has none. */
inline int64_t stats_bytes(const params &p)
{
    if (!p.weights.rank || p.stats.rank) return 0;
    return (batch_of_rows(p) * p.heads * p.queries * 2 * (int64_t)sizeof(float) + 255) / 256 * 256;
}
template <class T, int D> int mma_weights_run(const params &p, const device &dev, const queue &stream)
{
    typedef weights_shape<D> shape;
    const int64_t blocks = p.batch * p.heads * ((p.queries + shape::rows - 1) / shape::rows);
    const int64_t wanted = 4 * (int64_t)dev.processors, tiles = (p.keys + shape::keys - 1) / shape::keys;
    const int64_t parts = blocks >= wanted ? 1 : (wanted + blocks - 1) / blocks;
    weights_work m = {p, (int32_t)(parts < tiles ? parts : tiles), 0, 0};
    for (int which = OF_RAW; which < PAIR_ARRAYS; which++) {
        const attn__array &a = pair_array(p, which);
        if (!a.rank) continue;
        m.steps = which + 1;
        m.wide |= has_aligned_rows(a, p.batch, p.heads, p.queries) << which;
    }
    return launch(mma_weights<T, D>, blocks_for(blocks * m.parts), shape::threads, shape::shared_bytes, stream, m);
}
/* A forward's results, by `rows` those that rows have */
static cudaError_t forward_with_pairs(const params &p, forward_fn *rows, const device &dev, const queue &stream)
{
    cudaError_t error = cudaSuccess;
    if (stats_bytes(p) > 0) {
        params with_stats = p;
        with_stats.stats = rows_of(p, (float *)p.workspace, 2);
        with_stats.workspace = (char *)p.workspace + stats_bytes(p);
        return forward_with_pairs(with_stats, rows, dev, stream);
    }
    if (p.out.rank || p.lse.rank || p.stats.rank) error = rows(p, dev, stream);
    if (error != cudaSuccess || !wants_pairs(p)) return error;
    return with_kernels(p, [&](auto type, auto d) {
        typedef decltype(type) T;
        constexpr int D = decltype(d)::value;
        if constexpr (T::is_f32) return (int)cudaErrorInvalidValue;     /* no stage but the first covers it */
        else if constexpr (mma_is_whole<D>) return mma_weights_run<T, D>(p, dev, stream);
        else return (int)cudaErrorInvalidValue;
    }, true);
}
static cudaError_t mma_forward(const params &p, const device &dev, const queue &stream)
{
    return forward_with_pairs(p, mma_forward_rows, dev, stream);
}

/* Do tasks differ in length, so that tickets pay (next_task)? What their counters take of a workspace */
enum { TICKET_BYTES = 256 };
inline bool has_unequal_tasks(const params &p)
{
    return p.left != INT64_MAX || p.right != INT64_MAX || p.key_lengths.rank || p.query_lengths.rank ||
           has_starts(p) || p.mask.rank;
}

/* Blocks that run at the same time are to find the moving tiles in the L2 cache. Where all tasks are alike, those of
   one head come one after the other; but many heads side by side where blocks take turns, so that fewer wait for turns
   at the same rows: twice as many as the cache has room for, since few blocks of a head are then a step apart, and read
   the same rows while these are there. (Computed, tests/cuda/schedule.py: where a part is seen in 1.5 times a step,
   causal sweeps of heads of 64 then lose 4 % of their time in place of 8.) */
inline task_order task_order_of(const params &p, bool keys, int rows, int packed = 0, bool turns = false)
{
    const int64_t group = (p.heads / p.heads_kv) >> packed, cache = (turns ? 64 : 32) << 20;
    const int64_t row_bytes = (p.size_q + p.size_v) * 2 + (turns ? p.size_q * (int64_t)sizeof(float) : 0);
    const int64_t queries = p.packed_queries ? p.queries / p.batch + 1 : p.queries;         /* of an entry */
    const int64_t fit = keys ? cache / (queries * group * row_bytes) : cache / (p.keys * row_bytes) * group;
    const int64_t all = keys ? batch_of_keys(p) * p.heads_kv : batch_of_rows(p) * (p.heads >> packed);
    task_order o;
    o.packed = packed;
    o.tiles = (int)(((keys ? p.keys : p.queries << packed) + rows - 1) / rows);
    if (keys ? p.packed_keys : p.packed_queries) o.tiles = (int)most_packed_tiles(p, rows, keys);
    o.section = (int)(fit < 1 ? 1 : fit < all ? fit : all);
    if (!has_unequal_tasks(p) && !turns) o.section = keys ? 1 : (int)group;
    return o;
}
/* Queries, rounded up to whole tiles; of packed entries, at most */
inline int64_t padded_queries(const params &p, int rows)
{
    return p.packed_queries ? most_packed_tiles(p, GRAD_ROWS, false) * GRAD_ROWS : (p.queries + rows - 1) / rows * rows;
}
/* What the backward has in the workspace: grad_work's arrays, then stats where the call has none; what the forward that
   finds these needs, and later the sums of dq, come behind. Returns the bytes up to there; at: NULL, or where the
   workspace is. Rows are padded to tiles of `rows`; a block of the keys' kernel has `keys` and takes `queries` at a
   time, once: and finds dq, if that is wanted. */
static int64_t grad_layout(const params &p, int rows, int keys, int queries, bool once, unsigned char *at, grad_work *m)
{
    const bool ordered = once && p.dq.rank && p.precision != ATTN_PRECISION_FAST;
    const bool tickets = ordered || (rows == GRAD_ROWS && has_unequal_tasks(p));        /* these in stage 3 alone */
    const int64_t padded = padded_queries(p, rows), batch = batch_of_rows(p), heads = batch * p.heads;
    const int64_t of_row = heads * padded * 4;
    const int64_t sizes[11] = {of_row, of_row, p.d_sink.rank ? 2 * of_row : of_row, batch * padded * 4,
                               batch * padded * 4, batch * (padded / queries) * (int64_t)sizeof(tile_reach),
                               tickets ? TICKET_BYTES : 0, ordered ? heads * (padded / queries) * 4 : 0,
                               p.packed_queries ? table_bytes(p, GRAD_ROWS, false) : 0,
                               p.packed_keys ? table_bytes(p, keys, true) : 0,
                               p.stats.rank ? 0 : heads * p.queries * 8};
    unsigned char *places[12];
    int64_t sum = 0;
    for (int i = 0; i < 12; i++) {
        places[i] = at ? at + sum : NULL;
        if (i < 11) sum += (sizes[i] + 255) / 256 * 256;
    }
    if (m) {
        m->p = p;
        m->rows = p.packed_queries ? table_at(p, places[8]) : packed_tiles();
        m->keys = p.packed_keys ? table_at(p, places[9]) : packed_tiles();
        m->padded = padded;
        m->base = (float *)places[0], m->inverse = (float *)places[1], m->shift = (float *)places[2];
        m->first = (int *)places[3], m->last = (int *)places[4];
        m->reaches = (tile_reach *)places[5];
        m->tickets = tickets ? (int *)places[6] : NULL;
        m->turns = ordered ? (int *)places[7] : NULL;
        m->dq = dq_layout();
        m->block_keys = (int16_t)keys;
        if (!p.stats.rank) {
            const int64_t of_entry = p.packed_queries ? 0 : p.heads * p.queries * 2;
            const attn__array stats = {places[10], {of_entry, p.queries * 2, 2, 1}, ATTN_F32, 4};
            m->p.stats = stats;
        }
        m->p.workspace = places[11];
    }
    return sum;
}
/* Of the sums of dq, which come in the place of what the forward needs */
inline int64_t dq_bytes(const params &p, int rows, int columns)
{
    return !p.dq.rank ? 0 : batch_of_rows(p) * p.heads * padded_queries(p, rows) * columns * (int64_t)sizeof(float);
}
/* What one of the gradients to which all pairs add is made of, and what the parts of their sums take */
static pairs_work pairs_plan(const params &p, pair_term of, int keys_of_tile)
{
    const int64_t pairs[4] = {p.batch, p.heads, p.queries, p.keys}, of_tile[4] = {1, 1, 64, keys_of_tile};
    pairs_work m;
    int64_t added = 1;
    m.to = of == OF_BIAS ? p.d_bias : of == OF_SCALE ? p.d_scale : p.d_alibi;
    m.bit = of == OF_BIAS ? ATTN_GRAD_BIAS : of == OF_SCALE ? ATTN_GRAD_SCALE : ATTN_GRAD_ALIBI;
    m.of = of;
    for (int axis = 0; axis < 4; axis++) {
        const int tiles = (int)((pairs[axis] + of_tile[axis] - 1) / of_tile[axis]);
        m.size[axis] = of == OF_BIAS ? p.bias_size[axis] : of == OF_ALIBI && axis == 1 ? p.heads : 1;
        m.tiles[axis] = m.size[axis] == 1 ? 1 : tiles;
        m.added[axis] = tiles / m.tiles[axis];
        added *= m.added[axis];
    }
    const int64_t tiles = (int64_t)m.tiles[0] * m.tiles[1] * m.tiles[2] * m.tiles[3];
    const int64_t wanted = (PAIR_TASKS + tiles - 1) / tiles;
    m.most_parts = (added + LEAST_PAIR_TILES - 1) / LEAST_PAIR_TILES;
    const int64_t parts = wanted < m.most_parts ? wanted : m.most_parts;
    m.part_tiles = (added + parts - 1) / parts;
    m.parts = (added + m.part_tiles - 1) / m.part_tiles;
    return m;
}
/* What a call takes, and any smaller one, which may have more parts. It does not grow with queries times keys: fewer
   than PAIR_TASKS tiles have parts, fewer than 2 * PAIR_TASKS in all, each of 64 by 64 elements at most. */
static int64_t pair_sums_bytes(const params &p)
{
    const int64_t limit = 2 * (int64_t)PAIR_TASKS * 64 * 64;
    int64_t most = 0;
    with_shape(p, [&](auto, auto d) {
        for (int of = OF_BIAS; of <= OF_ALIBI; of++) {
            const pairs_work m = pairs_plan(p, (pair_term)of, grad_shape<decltype(d)::value, true>::keys);
            const int64_t sums = !m.to.rank || m.most_parts == 1 ? 0 : pair_elements(m) * m.most_parts;
            if (sums > most) most = sums < limit ? sums : limit;
        }
    });
    return most * (int64_t)sizeof(float);
}
static int64_t mma_workspace(const params &p, const device &dev, bool backward, bool smaller)
{
    int64_t bytes = backward && p.stats.rank ? 0 : mma_forward_workspace(forward_of(p), dev, smaller);
    if (!backward) return bytes + stats_bytes(p);
    with_shape(p, [&](auto type, auto d) {
        constexpr int D = decltype(d)::value;
        constexpr bool once = mma_has_all<decltype(type), D>;
        typedef grad_shape<once ? grad_size<D> : D, false, once> shape;         /* of queries as many with extras */
        if (once && bytes < dq_bytes(p, shape::rows, grad_size<D>)) bytes = dq_bytes(p, shape::rows, grad_size<D>);
        if (bytes < pair_sums_bytes(p)) bytes = pair_sums_bytes(p);
        bytes += grad_layout(p, shape::rows, shape::rows, shape::queries, once, NULL, NULL);
    }, smaller);
    return bytes;
}

/* Stats by a forward, where the call has none */
static int find_stats(const grad_work &m, forward_fn *forward, const device &dev, const queue &stream)
{
    if (!forward) return 0;
    params stats_alone = forward_of(m.p);
    stats_alone.out.rank = stats_alone.lse.rank = 0;
    return (int)forward(stats_alone, dev, stream);
}
/* What rows leave in the first kernel is all that d_sink is made of. */
static int find_sinks(const grad_work &m, const queue &stream)
{
    return m.p.d_sink.rank ? launch(sum_sinks, blocks_for(m.p.heads), 128, 16, stream, m) : 0;
}
/* The gradients to which all pairs add, one after the other; what parts have lies in the place of dq's sums, which are
   stored by then. */
static int find_pair_sums(const params &p, const grad_work &g, int reach_rows, const queue &stream)
{
    if (!wants_pair_sums(p)) return 0;
    return (int)with_kernels(p, [&](auto type, auto d) {
        typedef grad_shape<decltype(d)::value, true> shape;
        int error = 0;
        for (int of = OF_BIAS; of <= OF_ALIBI && !error; of++) {
            pairs_work m = pairs_plan(p, (pair_term)of, shape::keys);
            m.g = g;
            m.reach_rows = reach_rows;
            m.sums = (float *)g.p.workspace;
            if (!m.to.rank) continue;
            if constexpr (ATTN_CUDA_GRADIENTS && mma_is_whole<decltype(d)::value>)
                error = launch(mma_grad_pairs<decltype(type), decltype(d)::value>, blocks_for(pair_tasks(m)),
                               shape::threads, shape::shared_pairs, stream, m);
            if (!error && m.parts > 1) error = (int)run(sum_pairs, pair_elements(m), stream, m);
        }
        return error;
    });
}
/* Before the gradients of what lies behind */
static int clear_fronts(const params &p, const queue &stream)
{
    if (!has_starts(p) || (p.packed_queries && p.packed_keys)) return 0;
    return (int)run(clear_in_front, tasks_in_front(p), stream, p);
}
static int fill_tables(const grad_work &m, const queue &stream)
{
    const int error = m.rows.count ? fill_table(m.p, m.rows, GRAD_ROWS, false, stream) : 0;
    return !error && m.keys.count ? fill_table(m.p, m.keys, m.block_keys, true, stream) : error;
}
/* All gradients by the kernel that `sums` launches */
template <class T, class F> int sweep_once(const grad_work &m, const queue &stream, F sums)
{
    const int64_t numbers = batch_of_rows(m.p) * m.p.heads * m.padded * m.dq.columns;
    int error = m.turns ? 0 : launch(clear_dq_sums, blocks_for((numbers + 511) / 512), 128, 0, stream, m);
    if (!error) error = sums();
    return error ? error : launch(store_dq_sums<T>, blocks_for((numbers / 4 + 127) / 128), 128, 0, stream, m);
}
template <class T, int D, bool Extra, bool All> int mma_grad_keys_run(const grad_work &m, const queue &stream)
{
    typedef grad_shape<D, Extra, All> shape;
    return launch(mma_grad_keys<T, D, Extra, All>, blocks_for(batch_of_keys(m.p) * m.p.heads_kv * m.order.tiles),
                  shape::threads, shape::shared_keys, stream, m);
}
template <class T, int D, bool Extra, bool Once>
int mma_backward_as(const params &p, const device &dev, const queue &stream)
{
    typedef grad_shape<D, Extra, Once> shape;
    grad_work m;
    grad_layout(p, shape::rows, shape::rows, shape::queries, Once, (unsigned char *)p.workspace, &m);
    int error = find_stats(m, p.stats.rank ? NULL : mma_forward, dev, stream);
    if (!error) error = clear_fronts(p, stream);
    m.p = as_halves<T>(m.p);
    m.unit = Extra ? 1.0f : LOG2E;
    m.order = task_order_of(p, true, shape::rows, 0, m.turns != NULL);
    if (!error) error = fill_tables(m, stream);
    if (!error) error = run(mma_grad_prepare<shape::queries>, batch_of_rows(p) * p.heads * m.padded / 32, stream, m);
    if (!error) error = find_sinks(m, stream);
    if constexpr (Once) {
        const dq_layout dq = {shape::queries, D, 128};
        m.dq = dq;
        const auto sums = [&] { return mma_grad_keys_run<T, D, Extra, true>(m, stream); };
        if (!error && p.dq.rank) error = sweep_once<T>(m, stream, sums);
        else if (!error && (p.dk.rank || p.dv.rank)) error = sums();
    } else {
        m.order.section = 1;
        if (!error && p.dq.rank)
            error = launch(mma_grad_queries<T, D, Extra>, blocks_for(p.batch * p.heads * m.padded / shape::rows),
                           shape::threads, shape::shared_queries, stream, m);
        if (!error && (p.dk.rank || p.dv.rank)) error = mma_grad_keys_run<T, D, Extra, false>(m, stream);
    }
    return error ? error : find_pair_sums(p, m, shape::queries, stream);
}
static cudaError_t mma_backward(const params &p, const device &dev, const queue &stream)
{
    return with_kernels(p, [&](auto type, auto d) {
        typedef decltype(type) T;
        constexpr int D = decltype(d)::value;
        constexpr bool all = mma_has_all<T, D>;
        constexpr int size = all ? grad_size<D> : D;
        /* where there is a kernel of all sums, the one with options finds some of them alone, too */
        const bool whole = !all || (p.dq.rank && (p.dk.rank || p.dv.rank)), plain = whole && !has_extra(p);
        if constexpr (ATTN_CUDA_GRADIENTS)
            if (plain) return mma_backward_as<T, size, T::is_f32, all>(p, dev, stream);
        if constexpr (ATTN_CUDA_GRADIENTS && mma_is_whole<D>)
            return mma_backward_as<T, size, true, all>(p, dev, stream);
        return (int)cudaErrorInvalidValue;
    });
}

/* ---- products of matrices, where ATTN_PRECISION_FAST allows tensor cores: those of two numbers of 16 bits are exact,
   those of f32 are made of parts (mma_parts); sums are f32. A block has a tile of the result, each of its four warps a
   quarter of it. Tiles of both operands come by cp.async, into slots, all but one of which are on their way.
       With few rows or columns a product is read more than it is computed: the larger factor's numbers come from memory
   for few products each. Then tiles are small, so that many multiprocessors read at once; slots are deep, so that each
   of these waits for much; and a warp has the whole tile, but of each slot its share along k. Their sums are added at
   the end.
       An element's whole sum, over the batch and along k, has one of these two orders (has_few says which), and no
   other, whatever the other rows and columns are.
       An operand lies in lines, in which its numbers are neighbours: a row of a (a column of b) is a line along k; or
   a line has the numbers of one k. Lines are aligned to 16 bytes. */
enum { MULTIPLY_FEW = 64, MULTIPLY_BAND = 8 };      /* rows or columns that are few; see multiply_tile_of */
template <class T, int Size> struct multiply_shape {
    static constexpr bool is_f32 = T::is_f32;
    static constexpr int size = Size, threads = 128, blocks = is_f32 && Size > 32 ? 3 : 2;
    static constexpr int stages = Size > 64 ? 3 : Size > 32 ? 4 : 6;
    static constexpr int cuts = Size > 32 ? 1 : 4, side = cuts > 1 ? Size : Size / 2;   /* side: of a warp's part */
    static constexpr int number = is_f32 ? 4 : 2, chunk = 16 / number;                  /* bytes; numbers in 16 bytes */
    static constexpr int share = 4 * chunk, depth = cuts * share;   /* along k, of a warp and of a slot: two mma each */
    static constexpr int operand_bytes = Size * depth * number, shared_bytes = stages * 2 * operand_bytes;
    static constexpr int line = side + 8;           /* floats of a row of results on their way */
    static_assert(threads / 32 * 16 * line * 4 <= shared_bytes, "results have room where operands were");
};
struct multiply_operand {
    const char *data;
    int64_t     batch[2], stride;                   /* bytes between entries of the batch, and from line to line */
    bool        along;                              /* lines go along k */
};
struct multiply_work : product {
    multiply_operand left, right;
    int64_t tiles_r, tiles_c, tasks;
    bool    wide;                                   /* four neighbours of the result can be stored at once */
};
/* A tile of the result, and the batch entries that are summed there */
struct multiply_tile { int64_t x, y, r0, c0, first_b, end_b, first_h, end_h; };

/* Blocks that run at a time have tiles near each other, a band of rows by some columns, so that operands are still in
   the second cache. */
ATTN__DEVICE multiply_tile multiply_tile_of(const multiply_work &m, int64_t task, int size)
{
    const int64_t of_entry = m.tiles_r * m.tiles_c, entry = task / of_entry, n = task % of_entry;
    const int64_t of_band = MULTIPLY_BAND * m.tiles_c, band = n / of_band * MULTIPLY_BAND;
    const int64_t rows = clamp(m.tiles_r - band, 0, MULTIPLY_BAND), group = m.batch[1] / m.out_batch[1];
    multiply_tile t;
    t.x = entry / m.out_batch[1], t.y = entry % m.out_batch[1];
    t.r0 = (band + n % of_band % rows) * size, t.c0 = n % of_band / rows * size;
    t.first_b = m.out_batch[0] == 1 ? 0 : t.x, t.end_b = m.out_batch[0] == 1 ? m.batch[0] : t.x + 1;
    t.first_h = t.y * group, t.end_h = t.first_h + group;
    return t;
}

/* A tile of an operand in shared memory: lines of chunks of 16 bytes, of which two that are short share 128 bytes. */
template <class Shape, bool Along> struct operand_tile {
    static constexpr int lines = Along ? Shape::size : Shape::depth;
    static constexpr int chunks = (Along ? Shape::depth : Shape::size) / Shape::chunk, together = chunks < 8 ? 2 : 1;
    static constexpr int step = Shape::threads / chunks;        /* lines that a block copies at a time */
    static_assert(chunks * together >= 8 && step / together % 8 == 0, "further lines lie alike");
};
/* Where a chunk lies. Floats of a line across k are loaded one by one, by a warp of four lines: these lie in every
   second row, so that they do not meet in one bank. */
template <class Shape, bool Along> ATTN__DEVICE uint32_t operand_chunk(int line, int chunk)
{
    typedef operand_tile<Shape, Along> tile;
    const int row = Shape::is_f32 && !Along ? line / 8 * 8 + line % 4 * 2 + line / 4 % 2 : line;
    return chunk_of(row / tile::together, row % tile::together * tile::chunks + chunk, tile::lines / tile::together);
}
/* What a thread copies of a tile: a chunk of a line, and of those so many lines further. Where that begins, in the tile
   of x0 and a batch entry's first k: */
template <class Shape, bool Along>
ATTN__DEVICE const char *first_part(const multiply_operand &o, int64_t b, int64_t h, int64_t x0)
{
    typedef operand_tile<Shape, Along> tile;
    const int64_t line = hw::thread() / tile::chunks, at = hw::thread() % tile::chunks * 16;
    return o.data + b * o.batch[0] + h * o.batch[1] + (Along ? x0 + line : line) * o.stride +
           (Along ? at : x0 * Shape::number + at);
}
/* Starts to copy a tile, of which `sizes` along the result and `depths` along k exist: the others are zeros. */
template <class Shape, bool Along>
ATTN__DEVICE void copy_operand(uint32_t to, const char *from, int64_t stride, int sizes, int depths)
{
    typedef operand_tile<Shape, Along> tile;
    const int line = hw::thread() / tile::chunks, chunk = hw::thread() % tile::chunks, lines = Along ? sizes : depths;
    const int bytes = most(least((Along ? depths : sizes) * Shape::number - chunk * 16, 16), 0);
    to += operand_chunk<Shape, Along>(line, chunk);
    ATTN__UNROLL for (int i = 0; i < tile::lines / tile::step; i++)
        hw::cp_async_part(to + i * (tile::step / tile::together) * 128, from + i * tile::step * stride,
                          line + i * tile::step < lines ? bytes : 0);
}
/* Operands of mma, 16 numbers along the result and 32 bytes of them along k, as load_left and load_right have them:
   this lane's address for the first of a tile's rows, or columns, from x on and from k on; and the i-th along the
   result and n-th along k, from there. Floats across k: a lane has lines t and t+4, which lie in rows 2t and 2t+1. */
template <class Shape, bool Along, bool Right> ATTN__DEVICE uint32_t operand_address(uint32_t tile, int x, int k)
{
    const int l = hw::lane(), first = l / 8 % 2, second = l / 16;
    const int of_x = Right ? second : first, of_k = Right ? first : second;
    if (Along) return tile + operand_chunk<Shape, Along>(x + of_x * 8 + l % 8, k / Shape::chunk + of_k);
    if (Shape::is_f32) return tile + operand_chunk<Shape, Along>(k + l % 4, x / 4 + l / 16) + l / 4 % 4 * 4;
    return tile + operand_chunk<Shape, Along>(k + of_k * 8 + l % 8, x / 8 + of_x);
}
template <class Shape, bool Along, bool Right>
ATTN__DEVICE void load_operand(uint32_t (&r)[4], uint32_t address, int i, int n)
{
    typedef operand_tile<Shape, Along> tile;
    const int line = Along ? i * 16 : n * 2 * Shape::chunk, chunk = Along ? n * 2 : i * 16 / Shape::chunk;
    const uint32_t at = (address ^ chunk % 8 * 16) + (chunk / 8 * tile::lines + line) / tile::together * 128;
    if constexpr (Along) hw::ldmatrix(r, at);
    else if constexpr (!Shape::is_f32) hw::ldmatrix_transposed(r, at);
    else
        ATTN__UNROLL for (int e = 0; e < 4; e++) {
            const int x = Right ? e / 2 : e % 2, fourth = Right ? e % 2 : e / 2;
            r[e] = hw::load_shared_word((at ^ (x * 32 + fourth * 16)) + fourth * 128);
        }
}

/* A warp's part of a tile, in accumulators of 16 rows and 8 columns */
template <class Shape> struct multiply_sums { float of[Shape::side / 16][Shape::side / 8][4]; };
template <class T, class Shape, bool AlongA, bool AlongB>
ATTN__DEVICE void add_products(multiply_sums<Shape> &sum, uint32_t left, uint32_t right)
{
    ATTN__UNROLL for (int k = 0; k < 2; k++) {
        uint32_t a[Shape::side / 16][4], b[4];
        ATTN__UNROLL for (int i = 0; i < Shape::side / 16; i++) load_operand<Shape, AlongA, false>(a[i], left, i, k);
        ATTN__UNROLL for (int j = 0; j < Shape::side / 8; j += 2) {
            load_operand<Shape, AlongB, true>(b, right, j / 2, k);
            ATTN__UNROLL for (int i = 0; i < Shape::side / 16; i++) {
                hw::mma<T>(sum.of[i][j], a[i], b[0], b[1]);
                hw::mma<T>(sum.of[i][j + 1], a[i], b[2], b[3]);
            }
        }
    }
}
/* The same of f32 (see split): in a chain of 16 products what is small comes first, so that two sums alone are cut off
   by what is large. */
template <class Shape, bool AlongA, bool AlongB>
ATTN__DEVICE void add_products_of_floats(multiply_sums<Shape> &sum, uint32_t left, uint32_t right)
{
    uint32_t x[4], a[Shape::side / 16][2][2][4], b[2][2][4];        /* k, large and small, of a lane */
    ATTN__UNROLL for (int n = 0; n < Shape::side / 16 * 2; n++) {
        load_operand<Shape, AlongA, false>(x, left, n / 2, n % 2);
        ATTN__UNROLL for (int e = 0; e < 4; e++) split(x[e], a[n / 2][n % 2][0][e], a[n / 2][n % 2][1][e]);
    }
    ATTN__UNROLL for (int j = 0; j < Shape::side / 16; j++) {
        ATTN__UNROLL for (int k = 0; k < 2; k++) {
            load_operand<Shape, AlongB, true>(x, right, j, k);
            ATTN__UNROLL for (int e = 0; e < 4; e++) split(x[e], b[k][0][e], b[k][1][e]);
        }
        ATTN__UNROLL for (int n = 0; n < Shape::side / 16 * 2; n++) {
            const uint32_t (&own)[2][2][4] = a[n / 2];
            const int at = n % 2 * 2;
            float chain[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            ATTN__UNROLL for (int k = 0; k < 2; k++) {
                hw::mma_tf32(chain, own[k][1], b[k][0][at], b[k][0][at + 1]);
                hw::mma_tf32(chain, own[k][0], b[k][1][at], b[k][1][at + 1]);
            }
            ATTN__UNROLL for (int k = 0; k < 2; k++)
                hw::mma_tf32(chain, own[k][0], b[k][0][at], b[k][0][at + 1]);
            ATTN__UNROLL for (int e = 0; e < 4; e++) sum.of[n / 2][2 * j + n % 2][e] += chain[e];
        }
    }
}
template <class T, class Shape, bool AlongA, bool AlongB>
ATTN__DEVICE void multiply_entries(const multiply_work &m, const multiply_tile &t, uint32_t slots, int row, int column,
                                   int share, multiply_sums<Shape> &sum)
{
    constexpr uint32_t slot = 2 * Shape::operand_bytes, end = Shape::stages * slot;
    const int rows = (int)clamp(m.rows - t.r0, 0, Shape::size), columns = (int)clamp(m.columns - t.c0, 0, Shape::size);
    const uint32_t left = operand_address<Shape, AlongA, false>(slots, row, share);
    const uint32_t right = operand_address<Shape, AlongB, true>(slots + Shape::operand_bytes, column, share);
    int64_t steps = (t.end_b - t.first_b) * (t.end_h - t.first_h) * ((m.depth + Shape::depth - 1) / Shape::depth);
    int64_t b = t.first_b, h = t.first_h, k = 0, to_copy = steps;       /* of the next tiles, */
    const char *a_part = first_part<Shape, AlongA>(m.left, b, h, t.r0);
    const char *b_part = first_part<Shape, AlongB>(m.right, b, h, t.c0);
    uint32_t to = slots, from = 0;                                      /* into this slot */
    const auto copy_next = [&]() {
        if (to_copy-- > 0) {
            const int depths = (int)clamp(m.depth - k, 0, Shape::depth);
            copy_operand<Shape, AlongA>(to, a_part, m.left.stride, rows, depths);
            copy_operand<Shape, AlongB>(to + Shape::operand_bytes, b_part, m.right.stride, columns, depths);
            a_part += Shape::depth * (AlongA ? Shape::number : m.left.stride);
            b_part += Shape::depth * (AlongB ? Shape::number : m.right.stride);
            to = to + slot == slots + end ? slots : to + slot;
            k += Shape::depth;
            if (k >= m.depth) {
                k = 0;
                if (++h == t.end_h) h = t.first_h, b++;
                a_part = first_part<Shape, AlongA>(m.left, b, h, t.r0);
                b_part = first_part<Shape, AlongB>(m.right, b, h, t.c0);
            }
        }
        hw::cp_async_commit();                      /* of nothing, too: groups are counted */
    };
    ATTN__LOOP for (int n = 1; n < Shape::stages; n++) copy_next();
    ATTN__LOOP for (; steps > 0; steps--) {
        hw::cp_async_wait<Shape::stages - 2>();     /* these tiles have come, */
        hw::sync();                                 /* and all have read the slot that is filled next */
        copy_next();
        if constexpr (T::is_f32) add_products_of_floats<Shape, AlongA, AlongB>(sum, left + from, right + from);
        else add_products<T, Shape, AlongA, AlongB>(sum, left + from, right + from);
        from = from + slot == end ? 0 : from + slot;
    }
}

/* Four neighbours in a row of the result, of their sums. A sum that is not finite is made again, without tensor cores,
   where a factor may not count (skip) or had no parts: this is rare. */
ATTN__DEVICE void store_four(const multiply_work &m, const multiply_tile &t, int64_t r, int64_t c, float *sum)
{
    const int count = r < m.rows ? (int)clamp(m.columns - c, 0, 4) : 0;
    const bool again = m.skip || m.a.type == ATTN_F32;
    uint32_t w[4], halves[4];
    ATTN__LOOP for (int i = 0; again && i < count; i++)
        if (!is_finite(sum[i])) sum[i] = sum_of_terms(m, t.x, t.y, r, c + i, 0, 1);
    ATTN__UNROLL for (int i = 0; i < 4; i++)
        if (i < count) sum[i] = quiet(result_of_sum(m, t.x, t.y, r, c + i, sum[i]));
    if (count < 4 || !m.wide) {
        ATTN__LOOP for (int i = 0; i < count; i++) store(m.out, t.x, t.y, r, c + i, sum[i]);
        return;
    }
    ATTN__UNROLL for (int i = 0; i < 4; i++) w[i] = bits_of(sum[i]);
    const int64_t at = place(m.out, t.x, t.y, r, c);
    if (m.out.type == ATTN_F32) return hw::store_global((float *)m.out.data + at, w);
    ATTN__UNROLL for (int i = 0; i < 4; i++) halves[i] = narrowed(m.out.type, float_of(w[i]));
    const uint32_t pairs[2] = {halves[0] | halves[1] << 16, halves[2] | halves[3] << 16};
    hw::store_global((uint16_t *)m.out.data + at, pairs);
}
/* Sums become results by way of shared memory, sixteen rows at a time: there a lane finds neighbours; and, where warps
   have shares of a tile, the sums of the others, which it adds in their order. */
template <class Shape>
ATTN__DEVICE void store_sums(const multiply_work &m, const multiply_tile &t, const multiply_sums<Shape> &sum,
                             float *rooms, int row, int column)
{
    constexpr int line = Shape::line, fours = Shape::side / 4, size = 16 * line;
    constexpr int threads = Shape::cuts > 1 ? Shape::threads : 32;      /* that store what lies in one room */
    float *const own = rooms + hw::warp() * size, *const from = Shape::cuts > 1 ? rooms : own;
    ATTN__LOOP for (int i = 0; i < Shape::side / 16; i++) {         /* one text for all rows: it is long */
        ATTN__UNROLL for (int n = 0; n < Shape::side / 16; n++) {
            if (n != i) continue;
            ATTN__UNROLL for (int j = 0; j < Shape::side / 8; j++)
                ATTN__UNROLL for (int x = 0; x < 4; x++)
                    own[(hw::lane() / 4 + x / 2 * 8) * line + 8 * j + hw::lane() % 4 * 2 + x % 2] = sum.of[n][j][x];
        }
        sync_tile<threads>();
        ATTN__LOOP for (int n = tile_thread<threads>(); n < 16 * fours; n += threads) {
            float *const four = from + n / fours * line + n % fours * 4;
            ATTN__UNROLL for (int k = 4; k < 4 * Shape::cuts; k++) four[k % 4] += four[k / 4 * size + k % 4];
            store_four(m, t, t.r0 + row + 16 * i + n / fours, t.c0 + column + n % fours * 4, four);
        }
        sync_tile<threads>();
    }
}

template <class T, int Size, bool AlongA, bool AlongB>
ATTN__KERNEL((multiply_shape<T, Size>::threads), (multiply_shape<T, Size>::blocks))
void mma_multiply(ATTN__PARAM multiply_work m)
{
#if ATTN__HAVE_MMA
    typedef multiply_shape<T, Size> shape;
    ATTN__SHARED(shared);
    const int warp = hw::warp(), share = shape::cuts > 1 ? warp * shape::share : 0;
    const int row = shape::cuts > 1 ? 0 : warp % 2 * shape::side;
    const int column = shape::cuts > 1 ? 0 : warp / 2 * shape::side;
    for (int64_t task = hw::block(); task < m.tasks; task += hw::blocks()) {
        const multiply_tile t = multiply_tile_of(m, task, Size);
        multiply_sums<shape> sum = {};
        multiply_entries<T, shape, AlongA, AlongB>(m, t, hw::shared_address(shared), row, column, share, sum);
        hw::sync();                                 /* all have read the tiles */
        store_sums(m, t, sum, (float *)(void *)shared, row, column);
        hw::sync();                                 /* the slots are free again */
    }
#else
    (void)m;
    hw::missing();
#endif
}

/* Its kernel, by which operands have lines along k: bit 1 for a, bit 0 for b */
typedef void multiply_kernel(multiply_work);
template <class T, int Size> multiply_kernel *multiply_kernel_of(int along)
{
    multiply_kernel *const kernels[4] = {mma_multiply<T, Size, false, false>, mma_multiply<T, Size, false, true>,
                                         mma_multiply<T, Size, true, false>, mma_multiply<T, Size, true, true>};
    return kernels[along];
}
template <class T, int Size> int multiply_run(multiply_work &m, const queue &stream)
{
    typedef multiply_shape<T, Size> shape;
    m.tiles_r = (m.rows + Size - 1) / Size;
    m.tiles_c = (m.columns + Size - 1) / Size;
    m.tasks = m.out_batch[0] * m.out_batch[1] * m.tiles_r * m.tiles_c;
    return launch(multiply_kernel_of<T, Size>(2 * m.left.along + m.right.along), blocks_for(m.tasks), shape::threads,
                  shape::shared_bytes, stream, m);
}
/* Does an operand lie in lines? a: its axes are those of the batch, the one of the result, of so many numbers, and k. A
   line of one number has no stride. */
inline bool is_operand(multiply_operand &o, attn__array a, const product &m, int64_t size)
{
    const int64_t number = a.type == ATTN_F32 ? 4 : 2;
    attn__array down = attn__transposed(a);
    if (m.depth == 1) a.stride[3] = 1;
    if (size == 1) down.stride[3] = 1;
    o.along = has_aligned_rows(a, m.batch[0], m.batch[1], size);
    o.data = (const char *)a.data;
    for (int i = 0; i < 2; i++) o.batch[i] = m.batch[i] > 1 ? a.stride[i] * number : 0;
    o.stride = (o.along ? size : m.depth) > 1 ? (o.along ? a : down).stride[2] * number : 0;
    return o.along || has_aligned_rows(down, m.batch[0], m.batch[1], m.depth);
}
inline bool has_few(const product &m) { return m.rows <= MULTIPLY_FEW || m.columns <= MULTIPLY_FEW; }
/* Does f32 gain by tensor cores? They make three products for each of its own: sm_80, 90 and 10x multiply f32 itself
   far more slowly, other devices about as fast as they make one. Of few rows or columns memory's speed counts. */
inline bool floats_gain(const product &m, const device &d)
{
    return has_few(m) || d.arch == 80 || d.arch == 90 || d.arch / 10 == 10;
}
/* What tensor cores take of a product that may be theirs; false: stage 1's */
inline bool is_for_tensor_cores(multiply_work &m, const device &d)
{
    const int32_t type = m.a.type;
    if (!m.fast || !m.b.rank || m.b.type != type || d.arch < 80 || d.compiled < 80 || ATTN_CUDA_SIMPLE ||
        !(type == ATTN_F16 ? ATTN_CUDA_F16 : type == ATTN_BF16 ? ATTN_CUDA_BF16
          : type == ATTN_F32 ? ATTN_CUDA_F32 && floats_gain(m, d) : false))
        return false;
    m.wide = has_aligned_rows(m.out, m.out_batch[0], m.out_batch[1], m.rows);
    return is_operand(m.left, m.a, m, m.rows) && is_operand(m.right, attn__transposed(m.b), m, m.columns);
}
/* Of few rows or columns the smallest tiles; else the largest where each processor has one. (f32 has none of these: it
   sums in more registers.) */
static cudaError_t multiply_by_tensor_cores(multiply_work &m, const device &d, const queue &stream)
{
    const int64_t elements = m.out_batch[0] * m.out_batch[1] * m.rows * m.columns;
    const bool large = elements >= (int64_t)d.processors * 128 * 128;
    const auto run = [&](auto type) {
        typedef decltype(type) T;
        if (has_few(m)) return multiply_run<T, 32>(m, stream);
        if constexpr (!T::is_f32)
            if (large) return multiply_run<T, 128>(m, stream);
        return multiply_run<T, 64>(m, stream);
    };
    if (elements == 0) return cudaSuccess;
    if constexpr (ATTN_CUDA_F32)
        if (m.a.type == ATTN_F32) return (cudaError_t)run(hw::f32());
    return (cudaError_t)with_type(m.a.type, run);
}
template <class F> void each_multiply_kernel(F f)
{
    const auto of_type = [&](auto type) {
        typedef decltype(type) T;
        for (int along = 0; along < 4; along++) {
            f((const void *)multiply_kernel_of<T, 32>(along));
            f((const void *)multiply_kernel_of<T, 64>(along));
            if constexpr (!T::is_f32) f((const void *)multiply_kernel_of<T, 128>(along));
        }
    };
    each_type(of_type);
    if constexpr (ATTN_CUDA_F32) of_type(hw::f32());
}

/* ------------------------------------------------------------------------------------------------------ >>hopper
   Stage 3: sm_90a. One warpgroup of a block is its producer. In the forward its warps have a part each: one thread of
   warp 0 starts the TMA loads (hopper_load), warp 1 finds the next task and what its rows may attend to
   (hopper_describe), the others look through tiles of V (hopper_look). The other warpgroups, its consumers, two or
   three, have 64 rows each and multiply by wgmma. Tiles of Q, K, V stand in shared memory as in stage 2; a slot goes
   round: the producer waits until it is empty and fills it, the consumers wait until it is full and release it. While a
   consumer's products run it weighs the scores of the tile before, and consumers take turns to issue theirs, so that
   one computes weights while another has the tensor cores. Who waits for whom, in tiles 0, 1, ..:
       producer    K0  Q     K1    V0    K2    V1    K3 ..    each into its slot, when all consumers have released it
       consumer 0  QK0 | softmax 0 | QK1 PV0 | softmax 1 | QK2 PV1 | softmax 2 | ..
       consumer 1       QK0 | softmax 0 | QK1 PV0 | softmax 1 | QK2 PV1 | ..
   A pair QK(j+1) PV(j) waits for its turn (TURN), for K(j+1) and for V(j); the softmax waits for QK(j+1), then releases
   K(j+1); when PV(j) is done too, V(j) is released, and what PV summed is scaled to the new maximum. A consumer passes
   the last tiles where its own rows end before those of the others (pass_tiles). Tiles that a mask empties are nobody's
   (tile_from). */
/* A block starts with as many registers for each thread as the 65536 of a multiprocessor allow, in eights: 168 of 384
   threads (make check-cuda looks at it). setmaxnreg gives consumers what the producer gives back: more than that they
   would wait for for ever. */
template <int Threads, int Consumers> constexpr bool registers_suffice(int consumer, int producer)
{
    return consumer % 8 == 0 && producer % 8 == 0 && producer >= 24 && consumer <= 256 &&
           Consumers * 128 * consumer + (Threads - Consumers * 128) * producer <= 65536 / Threads / 8 * 8 * Threads;
}

/* Head sizes that kernels are compiled for: of queries and keys, and of values. All: with Extra, too; where not, the
   next larger pair has Extra. */
template <int QK, int V, bool All = true> struct head_pair {
    static constexpr int qk = QK, v = V;
    static constexpr int panels_qk = (QK + 63) / 64 * 64;       /* columns in shared memory, where those behind are 0 */
    static constexpr bool all = All;
};
/* Extra: what shapes all scores. Pairs: numbers for each pair (EACH_PAIR); a tile's biases wait in shared memory. */
template <class Heads, bool Extra, bool Pairs = false> struct hopper_shape {
    static constexpr int qk = Heads::qk, v = Heads::v;
    static constexpr bool extra = Extra, pairs = Pairs;
    static_assert(!Extra || !Pairs, "registers suffice for one of them");
    static constexpr int consumers = qk <= 64 && !Extra && !Pairs ? 3 : 2;
    static constexpr int rows = 64 * consumers, threads = 128 * (consumers + 1);
    static constexpr int keys = Pairs ? (qk <= 128 && v <= 128 ? 128 : 64)
                                : v <= (Extra ? 64 : 128) ? 128 : v <= 192 && !Extra ? 96 : 64;
    static constexpr int biases = Pairs ? rows * keys * 4 : 0;
    static constexpr int slot_q = tile_bytes<rows, qk>, slot_k = tile_bytes<keys, qk>, slot_v = tile_bytes<keys, v>;
    static constexpr int description = (3 + consumers) * 16 + rows * (Extra ? 16 : 8); /* see describe_task */
    static constexpr int others = 2 * (slot_k + slot_v) + biases + 20 * 8 + 2 * description;
    static constexpr int q_slots = others + 2 * slot_q <= 227 * 1024 ? 2 : 1;
    static constexpr int shared_bytes = others + q_slots * slot_q;
    static_assert(shared_bytes <= 227 * 1024, "a block fits in the shared memory of an sm_90");
    static constexpr int registers_consumer = consumers == 3 ? 160 : 232, registers_producer = consumers == 3 ? 32 : 40;
    static_assert(registers_suffice<threads, consumers>(registers_consumer, registers_producer), "see there");
};

/* With Pairs: what hopper_pairs_prepare finds; and whether all rows of the bias are in 16-byte aligned chunks. The mask
   lies in words, one for each of the four threads that have a row of a tile of 128 keys: a bit for each of a thread's
   columns (columns_below) that it lets be. So many words from a batch entry, a head, a row to the next: 0 where they
   have the same. */
enum { WORD_KEYS = 128 };
struct hopper_pairs {
    uint32_t *mask;
    int64_t   batch, head, row;
    int      *nonfinite;        /* [B,heads_kv,parts]  of 32 rows of v, four parts for each 128; B: of the arrays */
    bool      by_chunks;
};
ATTN__BOTH int64_t parts_of_keys(const params &p) { return (p.keys + WORD_KEYS - 1) / WORD_KEYS * (WORD_KEYS / 32); }
/* The flags in hopper_pairs */
ATTN__BOTH int64_t flags_of_arrays(const params &p) { return batch_of_keys(p) * p.heads_kv * parts_of_keys(p); }
/* The words of a mask, all or from one to the next of `axis`: 0 batch entries, 1 heads, 2 rows */
ATTN__BOTH int64_t mask_words(const params &p, int axis = -1)
{
    const int64_t *const stride = p.mask.stride, tiles = parts_of_keys(p) / (WORD_KEYS / 32);
    const int64_t size[3] = {stride[0] ? p.batch : 1, stride[1] ? p.heads : 1, stride[2] ? p.queries : 1};
    int64_t words = p.mask.rank ? 4 * tiles : 0;
    for (int i = 2; i > axis; i--) words *= size[i];
    return axis < 0 || size[axis] > 1 ? words : 0;
}
/* What a mask says of tiles of 128 queries and so many keys: a bit for each that it lets some pair of through (some),
   and of whose pairs it lets all (whole). 32 tiles of keys have a word; each tile of queries has `words` of them,
   behind those of the one before, of its head, of its batch; of_..: from one to the next, 0 where the mask has one for
   all. */
struct mask_tiles {
    uint32_t *some, *whole;     /* NULL: no mask */
    int       heads, parts, words, keys;        /* heads of the mask, tiles of its rows */
    int       of_batch, of_head, of_part;
};
struct hopper_work {
    params p;
    task_order order;           /* see grad_work */
    int    tasks;               /* of all blocks */
    int   *tickets;             /* see next_task */
    packed_tiles packed;        /* of queries */
    mask_tiles let;
    int    box;                 /* rows of K and V that TMA loads at once: a tile's, or some of a page's */
    bool   by_tma;              /* out is written by TMA */
    hopper_pairs pairs;
    hw::tensor_map q, k, v, out;
};
static_assert(sizeof(hopper_work) <= 4096, "kernel parameters fit in 4 KB");
enum { TURN = 1, GUARD = 4 };   /* numbers of barriers: TURN + consumer, GUARD */
enum { LOOKERS = 2 };           /* warps of hopper_look */
enum { MASK_ROWS = 128, MASK_TILE_KEYS = 64 };  /* of a tile, where a mask is looked at */
const uint32_t NO_TASK = ~0u;   /* in place of a description's batch */

/* Where the words of a head's tile of queries begin, that of row first_row */
ATTN__DEVICE int mask_words_at(const mask_tiles &let, int b, int h, int first_row)
{
    return b * let.of_batch + h * let.of_head + first_row / MASK_ROWS * let.of_part;
}
ATTN__DEVICE bool has_zero(uint32_t bytes) { return ((bytes - 0x01010101u) & ~bytes & 0x80808080u) != 0; }

/* Finds these bits. A block has a tile of queries and 512 columns, in which each warp has a fourth of the rows and each
   lane 16 columns, read at once where they lie so. */
struct mask_work {
    params     p;
    mask_tiles to;
};
ATTN__KERNEL(32 * WARPS, 1) void find_mask_tiles(ATTN__PARAM mask_work m)
{
    constexpr int rows = MASK_ROWS / WARPS, ahead = 8;
    ATTN__SHARED(shared);
    const uint32_t votes = hw::shared_address(shared);
    const attn__array &mask = m.p.mask;
    const mask_tiles &to = m.to;
    const int warp = hw::warp(), lanes = to.keys / 16, tiles = 32 / lanes;      /* of a tile; of 512 columns */
    const int spans = to.words * lanes, lines = (int)(mask.stride[2] ? m.p.queries : 1);
    const int64_t all = (mask.stride[0] ? m.p.batch : 1) * to.heads * to.parts * spans;
    for (int64_t n = hw::block(); n < all; n += hw::blocks()) {
        const int64_t tile = n / spans;
        const int span = (int)(n - tile * spans), column = span * 512 + hw::lane() * 16;
        const int64_t head = tile / to.parts, at = place(mask, head / to.heads, head % to.heads, 0, column);
        const uint8_t *const from = (const uint8_t *)mask.data + at;
        const int count = least((int)m.p.keys - column, 16);
        const int first = (int)(tile - head * to.parts) * MASK_ROWS + warp * rows;
        const int end = least(first + rows, lines);
        const bool wide = count == 16 && mask.stride[3] == 1 && mask.stride[2] % 16 == 0 && (uintptr_t)from % 16 == 0;
        bool some = false, lacks = false;       /* a pair is let through, one is not */
        ATTN__LOOP for (int i = first; i < end && hw::any(!(some && lacks)); i += ahead) {
            eight_halves x[ahead];
            if (wide) {
                ATTN__UNROLL for (int r = 0; r < ahead; r++)    /* the last row again, where there are no more */
                    x[r] = *(const eight_halves *)(from + least(i + r, end - 1) * mask.stride[2]);
                ATTN__UNROLL for (int r = 0; r < ahead; r++)
                    ATTN__UNROLL for (int k = 0; k < 4; k++) {
                        some = some || x[r].pair[k];
                        lacks = lacks || has_zero(x[r].pair[k]);
                    }
            } else
                ATTN__LOOP for (int r = i; r < least(i + ahead, end); r++)
                    ATTN__LOOP for (int k = 0; k < count; k++) {
                        const bool is_let = from[r * mask.stride[2] + k * mask.stride[3]];
                        some = some || is_let;
                        lacks = lacks || !is_let;
                    }
        }
        const uint32_t of_some = hw::ballot(some), of_lacks = hw::ballot(lacks);
        if (hw::lane() < 2)
            hw::store_shared(votes + (warp * 2 + hw::lane()) * 4, hw::lane() == 0 ? of_some : of_lacks);
        hw::sync();
        if (warp == 0) {
            uint32_t any_some = 0, any_lacks = 0;
            for (int w = 0; w < WARPS; w++) {
                any_some |= hw::load_shared_word(votes + w * 8);
                any_lacks |= hw::load_shared_word(votes + w * 8 + 4);
            }
            const int before = hw::lane() * lanes % 32, own = (1 << lanes) - 1;
            some = hw::lane() < tiles && (any_some >> before & own);
            lacks = (any_lacks >> before & own) != 0;
            const uint32_t let = hw::ballot(some), whole = hw::ballot(some && !lacks);
            const int64_t byte = tile * to.words * 4 + (span * tiles) / 8 + hw::lane();
            if (hw::lane() < tiles / 8) {
                ((uint8_t *)to.some)[byte] = (uint8_t)(let >> 8 * hw::lane());
                ((uint8_t *)to.whole)[byte] = (uint8_t)(whole >> 8 * hw::lane());
            }
        }
        hw::sync();
    }
}

/* A block's first task is that of its number (with turns a ticket, too). Where tasks differ in length (tickets: a
   counter, 0 before the kernel) it then takes the next one that nobody has, so that all blocks end at about the same
   time; else every blocks()-th. */
ATTN__DEVICE int next_task(int *tickets, int task) { return hw::blocks() + (tickets ? take_ticket(tickets) : task); }

/* What a block's warps need to know of a task, found by one of them while the task before runs: batch, head, first row,
   slope of ALiBi (16 bytes), the tile_reach of all rows, those of each consumer's, where the entry's keys begin and the
   tile's words of mask_tiles (16 bytes), then first and last of each row; with Extra then each row's position. */
template <int Rows> constexpr int description_entry = 32 + Rows / 64 * 16;
template <int Rows> constexpr int description_rows = description_entry<Rows> + 16;      /* where rows begin */
/* Of a description, what all rows may attend to, or those of a consumer: 0, 1, .. */
ATTN__DEVICE tile_reach read_reach(uint32_t description, int consumer = -1)
{
    uint32_t of_tile[4];
    hw::load_shared(of_tile, description + 32 + consumer * 16);
    return {(int)of_tile[0], (int)of_tile[1], (int)of_tile[2], (int)of_tile[3]};
}

template <int Rows, bool Extra>
ATTN__DEVICE void describe_task(const params &p, const mask_tiles &let, const tile_task &t, int packed,
                                uint32_t description)
{
    constexpr int of_rows = description_rows<Rows>;
    const auto store_words = [&](uint32_t to, const int (&words)[4]) {
        ATTN__UNROLL for (int i = 0; i < 4; i++)
            if (hw::lane() == 0) hw::store_shared(to + i * 4, (uint32_t)words[i]);
    };
    const entry entry_rows = entry_of(p, t.b);
    const float slope = Extra && p.alibi.rank ? load(p.alibi, 0, t.h, 0, 0) : 0.0f;
    store_words(description, {t.b, t.h, t.first_row, (int)bits_of(slope)});
    const int words = let.some ? mask_words_at(let, t.b, t.h, t.first_row) : 0;
    store_words(description + description_entry<Rows>, {(int)entry_rows.key0, words, 0, 0});
    const entry_reach entry = entry_reach_of(p, entry_rows, t.b);
    const int first_row = t.first_row - ((int)entry_rows.row0 << packed) + hw::lane();
    ATTN__LOOP for (int consumer = 0; consumer < Rows / 64; consumer++) {
        tile_reach own = no_rows();
        ATTN__LOOP for (int half = 0; half < 2; half++) {
            const int r = consumer * 64 + half * 32;
            const uint32_t of_row = description + of_rows + (r + hw::lane()) * 8;
            const tile_row row = row_in(p, entry, t.b, (first_row + r) >> packed);
            hw::store_shared(of_row, (uint32_t)row.first);
            hw::store_shared(of_row + 4, (uint32_t)row.last);
            if (Extra) hw::store_shared(of_row + Rows * 8, (uint32_t)row.position);
            if (Extra) hw::store_shared(of_row + Rows * 8 + 4, (uint32_t)(row.position >> 32));
            join(own, reach_of_row(row));
        }
        own = join_warp(own);
        store_words(description + 32 + consumer * 16, {own.first, own.last, own.from, own.to});
    }
    hw::sync_warp();
    tile_reach all = no_rows();
    for (int consumer = 0; consumer < Rows / 64; consumer++) join(all, read_reach(description, consumer));
    store_words(description + 16, {all.first, all.last, all.from, all.to});
}

/* A consumer reads its rows there: a thread's two, from the row0-th on. */
template <int Rows> ATTN__DEVICE void read_rows(uint32_t description, int row0, tile_row (&rows)[2])
{
    uint32_t of_task[4], of_row[2];
    hw::load_shared(of_task, description);
    set_places(rows, (int)of_task[0], (int)of_task[1], (int)of_task[2] + row0);
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        hw::load_shared(of_row, description + description_rows<Rows> + (row0 + 8 * e) * 8);
        rows[e].first = (int)of_row[0];
        rows[e].last = (int)of_row[1];
    }
}
/* What ALiBi needs of a row: the slope of its head, and where the query is. */
template <int Rows> ATTN__DEVICE alibi_row read_alibi(uint32_t description, int row)
{
    uint32_t position[2];
    hw::load_shared(position, description + description_rows<Rows> + Rows * 8 + row * 8);
    return {float_of(hw::load_shared_word(description + 12)), (int64_t)((uint64_t)position[1] << 32 | position[0])};
}

/* Rows of one head into shared memory, which the barrier waits for */
template <int Rows, int D>
ATTN__DEVICE void load_tile(unsigned char *to, const hw::tensor_map *map, uint64_t *bar, int first, int h, int b)
{
    for (int c = 0; c < (D + 63) / 64; c++) hw::tma_load(to + c * Rows * 128, map, bar, c * 64, first, h, b);
}

/* The barriers of slots that go round: `full`, where one thread arrives and announces the bytes, and `empty`, where
   each warp that uses a slot does (a warp, for it reads some of a tile by loads of its own). By one thread of the
   block. */
ATTN__DEVICE void init_slots(uint64_t *full, uint64_t *empty, int slots, int users)
{
    for (int i = 0; i < slots; i++) {
        hw::mbarrier_init(full + i, 1);
        hw::mbarrier_init(empty + i, users);
    }
}

/* The NaN guard (>>mma) of a tile that all consumers have in common, after each has marked its sums: */
template <class T, int D, int K> ATTN__DEVICE void clear_slot(uint32_t tile)
{
    const int thread = hw::thread() - 128, many = hw::threads() - 128;
    hw::barrier_sync(GUARD, many);
    clear_nonfinite<T, K, D>(tile, thread, many);
    hw::fence_async();
    hw::barrier_sync(GUARD, many);
}
template <class T, int D, int K>
ATTN__DEVICE void guard_slot(float (&d)[D / 2], const float (&s)[K / 2], uint32_t tile)
{
    const int thread = hw::thread() - 128, many = hw::threads() - 128;
    if (!hw::barrier_or(GUARD, many, has_nonfinite<T, K, D>(tile, thread, many))) return;
    mark_nonfinite<T, D, K>(d, s, tile, 0, K);
    clear_slot<T, D, K>(tile);
}

/* Starts d = 64 rows of a tile of Rows rows and D columns . the N rows of another, transposed. */
template <class T, int Rows, int N, int D>
ATTN__DEVICE void start_product(float (&d)[N / 2], uint32_t left, uint32_t right)
{
    hw::wgmma_keep(d);
    hw::wgmma_fence();
    ATTN__UNROLL for (int k = 0; k < D / 16; k++)
        hw::wgmma<T, N, false, false>(d, wgmma_desc(left + wgmma_along(k, Rows)),
                                      wgmma_desc(right + wgmma_along(k, N)), k != 0);
    hw::wgmma_commit();
}

/* The same with the left operand in registers (load_left): the tensor cores read that much less of shared memory. */
template <class T, int N, int D>
ATTN__DEVICE void start_product(float (&d)[N / 2], uint32_t (&left)[D / 16][4], uint32_t right)
{
    hw::wgmma_keep(d);
    hw::wgmma_keep(left);
    hw::wgmma_fence();
    ATTN__UNROLL for (int k = 0; k < D / 16; k++)
        hw::wgmma<T, N, false>(d, left[k], wgmma_desc(right + wgmma_along(k, N)), k != 0);
    hw::wgmma_commit();
}

/* Shared memory of a block: slots of Q, two each of K and V, two of describe_task's, and for each of these a barrier
   that it is full and one that it is empty, for V one that it has been looked through, too.
       Where there is room for two slots of Q, the next task's is there before this one ends, and results leave by way
   of the slot of their own task, each warp's 16 rows where its rows of Q were: it is free when TMA has read them, a
   while into the next task (release_results). */
struct hopper_places {
    unsigned char *q, *k, *v, *biases, *descriptions;
    uint64_t *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty, *v_looked, *task_full, *task_empty;
    uint32_t nonfinite;         /* a word for each slot of V: the number, from 1 on, of the last nonfinite tile in it */
};
template <class Shape> ATTN__DEVICE hopper_places hopper_places_in(unsigned char *shared)
{
    hopper_places at;
    at.q = shared;
    at.k = at.q + Shape::q_slots * Shape::slot_q;
    at.v = at.k + 2 * Shape::slot_k;
    at.biases = at.v + 2 * Shape::slot_v;
    at.k_full = (uint64_t *)(at.biases + Shape::biases);
    at.k_empty = at.k_full + 2;
    at.v_full = at.k_full + 4;
    at.v_empty = at.k_full + 6;
    at.v_looked = at.k_full + 8;
    at.task_full = at.k_full + 10;
    at.task_empty = at.k_full + 12;
    at.q_full = at.k_full + 14;
    at.q_empty = at.k_full + 16;
    at.nonfinite = hw::shared_address(at.k_full + 18);
    at.descriptions = (unsigned char *)(at.k_full + 20);
    return at;
}
template <class Shape> ATTN__DEVICE void init_places(const hopper_places &at)
{
    constexpr int warps = 4 * Shape::consumers;
    if (hw::thread() < 2) hw::store_shared(at.nonfinite + 4 * hw::thread(), 0);
    if (hw::thread() == 0) {
        init_slots(at.q_full, at.q_empty, Shape::q_slots, warps);
        init_slots(at.k_full, at.k_empty, 2, warps);
        init_slots(at.v_full, at.v_empty, 2, warps + LOOKERS);
        for (int i = 0; i < 2; i++) {
            hw::mbarrier_init(at.task_full + i, 32);            /* each lane has written some of it */
            hw::mbarrier_init(at.task_empty + i, warps + LOOKERS + 1);
            hw::mbarrier_init(at.v_looked + i, LOOKERS);
        }
        hw::mbarrier_fence_init();
    }
    hw::sync();
}
template <class Shape> ATTN__DEVICE uint32_t description_of(const hopper_places &at, uint32_t started)
{
    return hw::shared_address(at.descriptions) + started % 2 * Shape::description;
}

/* Waits for the description of a block's next task; where it is, or 0 if there is no more task. */
template <class Shape> ATTN__DEVICE uint32_t await_task(const hopper_places &at, uint32_t started)
{
    const uint32_t description = description_of<Shape>(at, started);
    hw::mbarrier_wait(at.task_full + started % 2, started / 2 & 1);
    return hw::load_shared_word(description) == NO_TASK ? 0 : description;
}

/* From the n-th tile of keys on, the first that a mask lets some pair of through, or `end`. All warps go over tiles by
   this, so that they agree. A tile that is left out would change nothing: its weights are 0, and no maximum grows. */
template <class Shape> ATTN__DEVICE int tile_from(const hopper_work &m, uint32_t description, int n, int end)
{
    if (!Shape::pairs || !m.let.some) return n;
    constexpr int each = Shape::keys / MASK_TILE_KEYS;
    const uint32_t *const words = m.let.some + hw::load_shared_word(description + description_entry<Shape::rows> + 4);
    for (int bit = n * each; bit < end * each; bit = bit / 32 * 32 + 32) {
        const uint32_t left = words[bit / 32] >> bit % 32;
        if (left) return least((bit + hw::ctz(left)) / each, end);
    }
    return end;
}
/* Does a mask let all of a tile through, so that it need not be read? */
template <class Shape> ATTN__DEVICE bool is_whole(const hopper_work &m, uint32_t description, int n)
{
    if (!Shape::pairs || !m.let.some) return false;
    const uint32_t words = hw::load_shared_word(description + description_entry<Shape::rows> + 4);
    constexpr uint32_t each = Shape::keys / MASK_TILE_KEYS, all = (1u << each) - 1;
    return (m.let.whole[words + n * each / 32] >> n * each % 32 & all) == all;
}

/* The tiles of keys that some row of a task attends to, from the first that is not empty on */
struct key_tiles { int first, end; };
template <class Shape> ATTN__DEVICE key_tiles tiles_of(const hopper_work &m, uint32_t description)
{
    constexpr int keys = Shape::keys;
    const tile_reach all = read_reach(description);
    const int end = (all.last + keys - 1) / keys;
    return {tile_from<Shape>(m, description, all.last > 0 ? all.first / keys : 0, end), end};
}

/* The producer's warpgroup has three kinds of warps. Warp 1 says what the tasks are. */
template <class Shape> ATTN__DEVICE void hopper_describe(const hopper_work &m, const hopper_places &at)
{
    const auto is_task = [&](int n) { return n < packed_tasks(m.packed, (int)m.p.heads, m.tasks); };
    int task = hw::block();
    const bool any = is_task(task);                 /* packed entries may have less than the host knows */
    if (!any && hw::lane() == 0) hw::store_shared(description_of<Shape>(at, 0), NO_TASK);
    if (!any) hw::mbarrier_arrive(at.task_full);
    for (uint32_t started = 0; is_task(task); started++) {
        hw::mbarrier_wait(at.task_empty + started % 2, (started / 2 & 1) ^ 1);
        if (started) task = next_task(m.tickets, task);
        const uint32_t description = description_of<Shape>(at, started);
        if (is_task(task))
            describe_task<Shape::rows, Shape::extra>(
                m.p, m.let, task_at<false>(m.p, m.order, m.packed, task, Shape::rows, m.order.packed), m.order.packed,
                description);
        else if (hw::lane() == 0) hw::store_shared(description, NO_TASK);
        hw::mbarrier_arrive(at.task_full + started % 2);
    }
}

/* Q of a task, when its slot is empty; any: there are keys for it. */
template <class Shape>
ATTN__DEVICE void load_queries(const hopper_work &m, const hopper_places &at, uint32_t description, uint32_t started,
                               bool any)
{
    uint32_t words[4];                      /* batch, head, first row */
    hw::load_shared(words, description);
    const int task[3] = {(int)words[0], (int)words[1], (int)words[2]};
    const uint32_t slot = started % Shape::q_slots;
    const int packed = m.order.packed, query = task[2] >> packed;
    hw::mbarrier_wait(at.q_empty + slot, (started / Shape::q_slots & 1) ^ 1);
    if (!any) hw::mbarrier_arrive(at.q_full + slot);
    else hw::mbarrier_expect(at.q_full + slot, Shape::slot_q);
    if (any)
        load_tile<Shape::rows, Shape::qk>(at.q + slot * Shape::slot_q, &m.q, at.q_full + slot,
                                          packed ? task[1] : query, packed ? query : task[1],
                                          (int)row_batch(m.p, task[0]));
}

/* Rows of K and V that lie side by side, a tile's or in pages some of it, where TMA finds them: first row, head, batch
   entry or page. */
struct key_box { int first, head, batch; };
/* Each lane's of the n-th tile; all: of the entry. In pages: one that no row of the task reaches is not looked up but
   is behind the pool, where TMA reads 0. */
template <class Shape>
ATTN__DEVICE key_box find_box(const hopper_work &m, uint32_t description, const key_box &all, int n)
{
    const params &p = m.p;
    const int page = (int)p.page, row = hw::lane() % (Shape::keys / m.box) * m.box, j = n * Shape::keys + row;
    if (!page) return {all.first + n * Shape::keys, all.head, all.batch};
    const tile_reach reach = read_reach(description);       /* anew: a producer has few registers */
    if (j + m.box <= reach.first || j >= reach.last) return {0, all.head, (int)p.pool};
    return {j % page, all.head, (int)clamp(load_integer(p.page_table, all.batch, j / page), 0, p.pool - 1)};
}
/* A tile of K or V: by one thread; or by a warp, a box by each lane. */
template <int Rows, int D, bool Boxes>
ATTN__DEVICE void load_boxes(unsigned char *to, const hw::tensor_map *map, uint64_t *bar, const key_box &at, int box)
{
    const int row = Boxes ? hw::lane() * box : 0;
    if (row == 0) hw::mbarrier_expect(bar, tile_bytes<Rows, D>);
    if (Boxes) hw::sync_warp();             /* no bytes before they are announced */
    if (row < Rows) load_tile<Rows, D>(to + row * 128, map, bar, at.first, at.head, at.batch);
}

/* The loads of a task: K of the first tile, Q, then K of each tile and V of the one before. By one thread; or where a
   tile comes in boxes of pages, by a warp. `tile`: so many tiles before in this block's life; returns those after. */
template <class Shape, bool Boxes>
ATTN__DEVICE uint32_t load_task(const hopper_work &m, const hopper_places &at, uint32_t description, uint32_t started,
                                uint32_t tile)
{
    constexpr int keys = Shape::keys;
    const bool leads = !Boxes || hw::lane() == 0;
    const key_tiles of = tiles_of<Shape>(m, description);
    const int head = (int)hw::load_shared_word(description + 4) / (int)(m.p.heads / m.p.heads_kv);
    const key_box all = {(int)hw::load_shared_word(description + description_entry<Shape::rows>), head,
                         (int)key_batch(m.p, (int)hw::load_shared_word(description))};
    key_box before = all;
    for (int n = of.first, none = 1;; none = 0, n = tile_from<Shape>(m, description, n + 1, of.end), tile++) {
        const uint32_t now = tile % 2, last = (tile - 1) % 2;
        const key_box own = find_box<Shape>(m, description, all, n);
        if (n < of.end) {
            hw::mbarrier_wait(at.k_empty + now, (tile / 2 & 1) ^ 1);
            load_boxes<keys, Shape::qk, Boxes>(at.k + now * Shape::slot_k, &m.k, at.k_full + now, own, m.box);
        }
        if (!none) {
            hw::mbarrier_wait(at.v_empty + last, ((tile - 1) / 2 & 1) ^ 1);
            load_boxes<keys, Shape::v, Boxes>(at.v + last * Shape::slot_v, &m.v, at.v_full + last, before, m.box);
        } else if (leads) load_queries<Shape>(m, at, description, started, of.first < of.end);
        if (n >= of.end) break;
        before = own;
    }
    if (Boxes) hw::sync_warp();                                         /* by all lanes */
    if (leads) hw::mbarrier_arrive(at.task_empty + started % 2);        /* it is read for all tiles */
    return tile;
}
/* Warp 0 starts the loads of all tasks. */
template <class Shape> ATTN__DEVICE void hopper_load(const hopper_work &m, const hopper_places &at)
{
    uint32_t tile = 0, started = 0;         /* tiles of K and V, tasks: so many before in this block's life */
    for (uint32_t description; (description = await_task<Shape>(at, started)) != 0; started++) {
        hw::sync_warp();
        if (m.box < Shape::keys) tile = load_task<Shape, true>(m, at, description, started, tile);
        else {
            const bool elected = hw::elect();
            if (elected) tile = load_task<Shape, false>(m, at, description, started, tile);
            tile = hw::shfl(tile, hw::ctz(hw::ballot(elected)));
        }
    }
}

/* Does the n-th tile of keys have pairs that are excluded? */
template <class Shape>
ATTN__DEVICE bool is_guarded(const hopper_work &m, uint32_t description, const tile_reach &all, int n)
{
    if (is_edge(all, n * Shape::keys, (n + 1) * Shape::keys)) return true;
    return Shape::pairs && asks(m.p, ANY_PAIR) && (m.p.bias.rank || !is_whole<Shape>(m, description, n));
}

/* Warps 2 and 3 look through the tiles of V at an edge (the NaN guard, >>mma), so that the consumers need not. They say
   of every tile that they are done with it, and so stay beside the others. With Pairs all tiles may be at an edge, and
   what is in them has been found before: of 32 rows a flag. A tile of an entry may begin and end within such a part. */
ATTN__DEVICE const int *flags_of_values(const hopper_work &m, uint32_t description)
{
    const params &p = m.p;
    const int64_t b = key_batch(p, (int)hw::load_shared_word(description)), h = hw::load_shared_word(description + 4);
    return m.pairs.nonfinite + (b * p.heads_kv + h / (p.heads / p.heads_kv)) * parts_of_keys(p);
}
template <class Shape>
ATTN__DEVICE bool is_flagged_tile(const hopper_work &m, const int *flags, uint32_t description, int n)
{
    const int first = (int)hw::load_shared_word(description + description_entry<Shape::rows>) + n * Shape::keys;
    const int part = first / 32 + hw::lane(), end = least(first + Shape::keys, (int)m.p.keys);
    return hw::any(part * 32 < end && flags[part]);
}
template <class T, class Shape> ATTN__DEVICE void hopper_look(const hopper_work &m, const hopper_places &at)
{
    constexpr int keys = Shape::keys, threads = 32 * LOOKERS;
    const bool elected = hw::lane() == 0;
    uint32_t tile = 0, started = 0;         /* as hopper_load counts */
    for (uint32_t description; (description = await_task<Shape>(at, started)) != 0; started++) {
        const tile_reach all = read_reach(description);
        const key_tiles of = tiles_of<Shape>(m, description);
        const int *const flags = Shape::pairs ? flags_of_values(m, description) : NULL;
        for (int n = of.first; n < of.end; n = tile_from<Shape>(m, description, n + 1, of.end), tile++) {
            const uint32_t slot = tile % 2;
            hw::mbarrier_wait(at.v_full + slot, tile / 2 & 1);
            bool nonfinite = false;
            if constexpr (Shape::pairs) nonfinite = is_flagged_tile<Shape>(m, flags, description, n);
            else if (is_guarded<Shape>(m, description, all, n))
                nonfinite = has_nonfinite<T, keys, Shape::v, 4>(hw::shared_address(at.v) + slot * Shape::slot_v,
                                                                hw::thread() - (128 - threads), threads);
            if (nonfinite)
                hw::store_shared(at.nonfinite + 4 * slot, tile + 1);
            hw::sync_warp();
            if (elected) hw::mbarrier_arrive(at.v_looked + slot);
            if (elected) hw::mbarrier_arrive(at.v_empty + slot);
        }
        hw::sync_warp();
        if (elected) hw::mbarrier_arrive(at.task_empty + started % 2);
    }
}

/* A warp's 16 rows of factor * d by TMA, which reads them from shared memory, `from` (of a tile of Rows rows), while
   the next task runs; along, across: where they begin on the map's second and third axis */
template <class T, int D, int Rows>
ATTN__DEVICE void store_tile(const params &p, const hw::tensor_map &map, unsigned char *from, const float (&d)[D / 2],
                             const tile_row (&rows)[2], const float (&factor)[2], int along, int across)
{
    const int l = hw::lane();
    const auto of = [&](int j, int e) { return bits_of(factor[e]) == 0 ? 0.0f : hw::mul(d[j], factor[e]); };
    ATTN__UNROLL for (int k = 0; k < D / 16; k++) {
        uint32_t a[4];
        ATTN__UNROLL for (int i = 0; i < 4; i++)
            a[i] = pack_result<T>(of(8 * k + 2 * i, i % 2), of(8 * k + 2 * i + 1, i % 2));
        hw::stmatrix(hw::shared_address(from) + chunk_of(l % 16, 2 * k + l / 16, Rows), a);
    }
    hw::fence_async();
    hw::sync_warp();
    if (hw::elect()) {
        for (int c = 0; c < (D + 63) / 64; c++)
            hw::tma_store(&map, from + c * Rows * 128, c * 64, along, across, (int)row_batch(p, rows[0].b));
        hw::tma_store_commit();
    }
}

/* The slot of Q that a task's results went through is free when TMA has read them: asked by the thread that started
   that, a while later. */
ATTN__DEVICE void release_results(uint64_t *q_empty)
{
    if (hw::elect()) {
        hw::tma_store_wait_read<0>();
        hw::mbarrier_arrive(q_empty);
    }
}

/* What a consumer has in registers: scores of a tile, which become weights, and these once more as left operands; its
   sums, and what they are to be multiplied by, from tile to tile and at the end; its two rows of the task, and their
   softmax so far. With Pairs a bit for each of a thread's columns (columns_below): whether the mask lets a pair be, and
   whether dropout keeps its weight. */
template <class Shape> struct hopper_registers {
    float    s[Shape::keys / 2], out[Shape::v / 2], rescale[2], factor[2];
    uint32_t weights[Shape::keys / 16][4];
    tile_row rows[2];
    row_pair soft;
    uint32_t let[2], kept[2];
};

/* Which consumer, the first of a thread's two rows; descriptors of Q, K and V in slot 0. Of its task: the descriptor of
   its Q, where its description is, which keys its own rows may attend to. */
struct hopper_consumer {
    int        number, row0;
    bool       elected;         /* releases what its warp has done with */
    float      scale;
    uint32_t   q0, q, k, v, biases, description;        /* biases: of the warp's 16 rows */
    tile_reach own;
    const void *bias;           /* of the warp's first row */
};
template <class Shape> ATTN__DEVICE hopper_consumer hopper_consumer_of(const params &p, const hopper_places &at)
{
    hopper_consumer c;
    c.number = hw::warp() / 4 - 1;
    c.row0 = c.number * 64 + hw::thread() % 128 / 32 * 16 + hw::lane() / 4;
    c.elected = hw::lane() == 0;
    c.scale = Shape::pairs && p.bias.rank ? LOG2E : scale_of<Shape::extra>(p);
    c.biases = hw::shared_address(at.biases) + (uint32_t)(hw::warp() - 4) * (Shape::biases / Shape::rows * 16);
    c.q = c.q0 = wgmma_tile(hw::shared_address(at.q) + (uint32_t)c.number * 64 * 128, Shape::rows);
    c.k = wgmma_tile(hw::shared_address(at.k), Shape::keys);
    c.v = wgmma_tile(hw::shared_address(at.v), Shape::keys);
    return c;
}

/* Starts s = Q . K^T. */
template <class T, class Shape>
ATTN__DEVICE void start_scores(const hopper_consumer &c, uint32_t slot, hopper_registers<Shape> &r)
{
    /* the largest kernels have no registers for descriptors of Q that stay there from tile to tile */
    const uint32_t left = (Shape::extra || Shape::pairs) && Shape::qk > 128 ? hw::uniform(c.q) : c.q;
    start_product<T, Shape::rows, Shape::keys, Shape::qk>(r.s, left, c.k + slot * (Shape::slot_k >> 4));
}

/* Starts out += weights . V. */
template <class T, class Shape>
ATTN__DEVICE void start_values(const hopper_consumer &c, uint32_t slot, hopper_registers<Shape> &r)
{
    const uint32_t right = c.v + slot * (Shape::slot_v >> 4);
    hw::wgmma_keep(r.out);
    hw::wgmma_keep(r.weights);
    hw::wgmma_fence();
    ATTN__UNROLL for (int k = 0; k < Shape::keys / 16; k++)
        hw::wgmma<T, Shape::v, true>(r.out, r.weights[k], wgmma_desc(right + wgmma_down(k)), true);
    hw::wgmma_commit();
}

/* With Pairs, biases of a warp's 16 rows and a tile of keys, as they are stored (Stored: in 16 or 32 bits), into shared
   memory, where they lie in chunks as in a tile of 16 rows (chunk_of); add_biases waits for them. bias: the first of
   these rows. What does not exist is not read. */
template <int Keys, class Stored>
ATTN__DEVICE void copy_biases(uint32_t to, const hopper_work &m, const void *bias, const tile_row &row, int key0)
{
    constexpr int of_chunk = 16 / (int)sizeof(Stored), chunks = Keys / of_chunk, of_word = 4 / (int)sizeof(Stored);
    const params &p = m.p;
    const attn__array &a = p.bias;
    const int lane = hw::lane_anew(), rows = least(16, (int)p.queries - row.i + lane / 4), columns = (int)p.keys - key0;
    const Stored *const from = (const Stored *)bias + key0 * a.stride[3];
    if (m.pairs.by_chunks && (columns >= Keys || columns % of_chunk == 0)) {
        const int r0 = lane / chunks, column = lane % chunks * of_chunk;
        const uint32_t at = to + chunk_of(r0, lane % chunks, 16);
        const Stored *next = from + r0 * a.stride[2] + column;
        ATTN__UNROLL for (int r = 0; r < 16; r += 32 / chunks, next += 32 / chunks * a.stride[2])
            hw::cp_async((at ^ r % 8 * 16) + r * 128, next, r < rows - r0 && column < columns);
        return;
    }
    ATTN__LOOP for (int n = lane; n < 16 * Keys / of_word; n += 32) {
        const int r = n / (Keys / of_word), c = n % (Keys / of_word) * of_word;
        uint32_t word = 0;
        for (int x = 0; x < of_word && r < rows && c + x < columns; x++)
            word |= (uint32_t)from[r * a.stride[2] + (c + x) * a.stride[3]] << 16 * x;
        hw::store_shared(to + chunk_of(r, c / of_chunk, 16) + c % of_chunk * (int)sizeof(Stored), word);
    }
}
/* The n-th tile's: what is asked of memory before its scores are multiplied, and which weights are kept, found while
   they are. */
template <class Shape>
ATTN__DEVICE void fetch_pairs(const hopper_work &m, const hopper_consumer &c, int n, hopper_registers<Shape> &r)
{
    if constexpr (Shape::pairs) {
        constexpr int keys = Shape::keys;
        const params &p = m.p;
        if (p.bias.rank) {
            if (p.bias.type == ATTN_F32) copy_biases<keys, uint32_t>(c.biases, m, c.bias, r.rows[0], n * keys);
            else copy_biases<keys, uint16_t>(c.biases, m, c.bias, r.rows[0], n * keys);
            hw::cp_async_commit();
        }
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const tile_row &row = r.rows[e];
            const int64_t at = row.b * m.pairs.batch + row.h * m.pairs.head + row.i * m.pairs.row;
            r.let[e] = ~0u;
            if (p.mask.rank && row.i < p.queries)
                r.let[e] = m.pairs.mask[at + n * keys / WORD_KEYS * 4 + hw::lane() % 4] >> n * keys % WORD_KEYS / 4;
        }
    }
}
template <class Shape> ATTN__DEVICE void find_kept(const params &p, int n, hopper_registers<Shape> &r)
{
    if constexpr (Shape::pairs)
        if (p.dropout != 0.0f) kept_columns<Shape::keys, Shape::v <= 128>(r.kept, p, r.rows, n * Shape::keys);
}

/* Scores, of which only products are known, with their biases */
template <class T, class Shape>
ATTN__DEVICE void add_biases(const params &p, const hopper_consumer &c, hopper_registers<Shape> &r)
{
    constexpr int keys = Shape::keys;
    const int l = hw::lane();
    const float scale = p.scale;
    hw::cp_async_wait<0>();
    hw::sync_warp();
    if (p.bias.type == ATTN_F32)
        ATTN__UNROLL for (int j = 0; j < keys / 4; j++) {
            uint32_t two[2];
            hw::load_shared(two, c.biases + chunk_of(l / 4 + j % 2 * 8, j / 2 * 2 + l % 4 / 2, 16) + l % 2 * 8);
            hw::biased(r.s[2 * j], scale, float_of(two[0]));
            hw::biased(r.s[2 * j + 1], scale, float_of(two[1]));
        }
    else
        ATTN__UNROLL for (int k = 0; k < keys / 16; k++) {
            uint32_t four[4];
            load_left(four, c.biases, 16, 0, k);
            ATTN__UNROLL for (int i = 0; i < 4; i++) {
                hw::biased(r.s[8 * k + 2 * i], scale, half_of<T>(four[i], 0));
                hw::biased(r.s[8 * k + 2 * i + 1], scale, half_of<T>(four[i], 1));
            }
        }
    hw::sync_warp();
}

/* Scores of such a tile become weights. The sums of kept ones are multiplied by what is due for it at the end
   (finish_softmax). */
template <class T, class Shape>
ATTN__DEVICE void softmax_pairs(const hopper_work &m, const hopper_consumer &c, int n, int next,
                                hopper_registers<Shape> &r)
{
    constexpr int keys = Shape::keys;
    const params &p = m.p;
    if (p.bias.rank) add_biases<T>(p, c, r);
    const uint32_t whole = keys == 128 ? ~0u : (1u << keys / 4) - 1;
    if (is_edge(c.own, n * keys, (n + 1) * keys) || hw::any((r.let[0] & r.let[1] & whole) != whole)) {
        const int column = n * keys + hw::lane() % 4 * 2;
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const uint32_t in = columns_in_reach<keys>(r.rows[e], column) & r.let[e];
            ATTN__UNROLL for (int j = 0; j < keys / 4; j++)
                if (!(in >> j & 1)) r.s[j / 2 * 4 + 2 * e + j % 2] = -infinity();
        }
    }
    if (next >= 0) fetch_pairs(m, c, next, r);
    softmax_tile<keys, false, true>(r.s, r.soft, c.scale, r.rescale);
    if (p.dropout == 0.0f) return;
    ATTN__UNROLL for (int j = 0; j < keys / 2; j++)
        r.s[j] = r.kept[j / 2 % 2] >> (j / 4 * 2 + j % 2) & 1 ? r.s[j] : 0.0f;
}

/* Scores of the n-th tile of keys become weights; next: the tile after it, -1 where there is none. */
template <class T, class Shape>
ATTN__DEVICE void hopper_softmax(const hopper_work &m, const hopper_consumer &c, int n, int next,
                                 hopper_registers<Shape> &r)
{
    constexpr int keys = Shape::keys;
    const params &p = m.p;
    const auto alibi_at = [&](int e) { return read_alibi<Shape::rows>(c.description, c.row0 + 8 * e); };
    if constexpr (Shape::pairs) softmax_pairs<T>(m, c, n, next, r);
    else if (is_edge(c.own, n * keys, (n + 1) * keys))
        softmax_keys<keys, Shape::extra, true, false>(r.s, r.soft, p, r.rows, n * keys, c.scale, r.rescale, alibi_at);
    else softmax_keys<keys, Shape::extra, false, false>(r.s, r.soft, p, r.rows, n * keys, c.scale, r.rescale, alibi_at);
}

/* The NaN guard of a tile of V at an edge of the task's, which all consumers come to; `now`: tiles before this one in
   the block's life. */
template <class T, class Shape>
ATTN__DEVICE void guard_values(const hopper_work &m, const hopper_places &at, const hopper_consumer &c, int n,
                               uint32_t now, hopper_registers<Shape> &r)
{
    constexpr int keys = Shape::keys, D = Shape::v;
    const params &p = m.p;
    const tile_reach all = read_reach(c.description);
    if (!is_guarded<Shape>(m, c.description, all, n)) return;
    hw::mbarrier_wait(at.v_looked + now % 2, now / 2 & 1);
    if (hw::load_shared_word(at.nonfinite + now % 2 * 4) != now + 1) return;
    const uint32_t values = hw::shared_address(at.v) + now % 2 * Shape::slot_v;
    mark_where<T, D, keys>(r.out, values, all.first - n * keys, all.last - n * keys, [&](int key, bool (&counts)[2]) {
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const tile_row &row = r.rows[e];
            counts[e] = n * keys + key >= row.first && n * keys + key < row.last;
            if (Shape::pairs && counts[e]) counts[e] = is_let(p, row.b, row.h, row.i, n * keys + key);
        }
    });
    clear_slot<T, D, keys>(values);
}

/* Tiles of keys that the other consumers still have, and this one's rows do not attend to */
template <class T, class Shape>
ATTN__DEVICE void pass_tiles(const hopper_work &m, const hopper_places &at, const hopper_consumer &c, int n, int end,
                             uint32_t &tile, hopper_registers<Shape> &r)
{
    n = tile_from<Shape>(m, c.description, n, end);
    ATTN__LOOP for (; n < end; n = tile_from<Shape>(m, c.description, n + 1, end), tile++) {
        const uint32_t slot = tile % 2, phase = tile / 2 & 1;
        hw::barrier_sync(TURN + c.number, 256);
        hw::barrier_arrive(TURN + (c.number + 1) % Shape::consumers, 256);
        hw::mbarrier_wait(at.k_full + slot, phase);
        hw::sync_warp();                        /* before a lane that still waits misses the phase */
        if (c.elected) hw::mbarrier_arrive(at.k_empty + slot);
        hw::mbarrier_wait(at.v_full + slot, phase);
        guard_values<T>(m, at, c, n, tile, r);
        hw::sync_warp();
        if (c.elected) hw::mbarrier_arrive(at.v_empty + slot);
    }
}

/* The end of a consumer's rows: log-sum-exp, stats, what their sums are to be multiplied by. Those of packed heads are
   each head's again. */
template <class Shape>
ATTN__DEVICE void finish_softmax(const hopper_work &m, hopper_registers<Shape> &r)
{
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        r.rows[e].h += r.rows[e].i & ((1 << m.order.packed) - 1);
        r.rows[e].i >>= m.order.packed;
    }
    join_masses(r.soft);
    finish_rows(m.p, r.rows, r.soft, Shape::pairs && m.p.bias.rank ? 1.0f : unit_of<Shape::extra>(m.p), r.factor);
    if (Shape::pairs && m.p.keep_scale != 0.0f)         /* 0: all are dropped, but rows have values */
        ATTN__UNROLL for (int e = 0; e < 2; e++) r.factor[e] *= m.p.keep_scale;
}

/* Are some of a warp's 16 rows another packed entry's? TMA would write all of them. */
ATTN__DEVICE bool has_others(const params &p, const tile_row (&rows)[2])
{
    bool others = false;
    ATTN__UNROLL for (int e = 0; e < 2; e++) others = others || (rows[e].i < p.queries && !is_inside(rows[e]));
    return hw::any(others);
}

/* Then out; `places`: its warp's 16 rows in the slot of Q; h, i: where the first of them was, before that. */
template <class T, class Shape>
ATTN__DEVICE void hopper_store(const hopper_work &m, unsigned char *places, const hopper_registers<Shape> &r, int h,
                               int i)
{
    const int packed = m.order.packed, query = i >> packed;
    if (!m.p.out.rank) return;
    if (Shape::q_slots < 2 || !m.by_tma || has_others(m.p, r.rows))
        store_rows<T, Shape::v, false>(m.p.out, r.out, r.rows, m.p.queries, m.p.size_v, r.factor, false);
    else
        store_tile<T, Shape::v, Shape::rows>(m.p, m.out, places, r.out, r.rows, r.factor, packed ? h : query,
                                             packed ? query : h);
}

/* The weights as left operands. */
template <class T, class Shape> ATTN__DEVICE void pack_weights(hopper_registers<Shape> &r)
{
    ATTN__UNROLL for (int k = 0; k < Shape::keys / 16; k++) pack_left<T>(r.weights[k], r.s, k);
}

/* The tiles of keys of a task, at least one: `tile` is the number of the first, then of the one after the last. The
   product of a tile's scores runs beside that of the values before, and the other consumer's softmax beside both. */
template <class T, class Shape>
ATTN__DEVICE void hopper_tiles(const hopper_work &m, const hopper_places &at, const hopper_consumer &c, int first,
                               int end, uint32_t started, uint32_t &tile, hopper_registers<Shape> &r)
{
    const params &p = m.p;
    const int own_end = most(first + 1, least(end, (c.own.last + Shape::keys - 1) / Shape::keys));
    const auto after = [&](int n) {                         /* the next tile, or -1 */
        n = tile_from<Shape>(m, c.description, n + 1, own_end);
        return n < own_end ? n : -1;
    };
    fetch_pairs(m, c, first, r);
    hw::mbarrier_wait(at.k_full + tile % 2, tile / 2 & 1);
    start_scores<T>(c, hw::uniform(tile % 2), r);
    find_kept(p, first, r);
    if (Shape::q_slots == 2 && started) release_results(at.q_empty + (started - 1) % 2);
    hw::wgmma_wait<0>();
    hw::wgmma_keep(r.s);
    if (c.elected) hw::mbarrier_arrive(at.k_empty + tile % 2);
    int n = after(first);
    hopper_softmax<T>(m, c, first, n, r);
    pack_weights<T>(r);
    guard_values<T>(m, at, c, first, tile, r);
    ATTN__LOOP for (int next; n >= 0; n = next) {
        const uint32_t before = tile++, slot = hw::uniform(tile % 2);
        next = after(n);
        hw::barrier_sync(TURN + c.number, 256);
        hw::mbarrier_wait(at.k_full + tile % 2, tile / 2 & 1);
        start_scores<T>(c, slot, r);
        hw::mbarrier_wait(at.v_full + before % 2, before / 2 & 1);
        start_values<T>(c, 1 - slot, r);
        hw::barrier_arrive(TURN + (c.number + 1) % Shape::consumers, 256);
        find_kept(p, n, r);
        hw::wgmma_wait<1>();
        hw::wgmma_keep(r.s);
        if (c.elected) hw::mbarrier_arrive(at.k_empty + tile % 2);
        hopper_softmax<T>(m, c, n, next, r);
        hw::wgmma_wait<0>();
        hw::wgmma_keep(r.out);
        hw::wgmma_keep(r.weights);
        if (c.elected) hw::mbarrier_arrive(at.v_empty + before % 2);
        rescale_rows<Shape::v>(r.out, r.rescale);
        pack_weights<T>(r);
        guard_values<T>(m, at, c, n, tile, r);
    }
    hw::sync_warp();
    if (Shape::q_slots == 1 && c.elected) hw::mbarrier_arrive(at.q_empty);
    hw::mbarrier_wait(at.v_full + tile % 2, tile / 2 & 1);
    start_values<T>(c, hw::uniform(tile % 2), r);
    finish_softmax(m, r);              /* beside the last product */
    hw::wgmma_wait<0>();
    hw::wgmma_keep(r.out);
    if (c.elected) hw::mbarrier_arrive(at.v_empty + tile % 2);
    tile++;
    pass_tiles<T>(m, at, c, own_end, end, tile, r);
}

/* A consumer: a warpgroup with 64 rows of each task. Extra: softcap, ALiBi or a scale that is not positive; Pairs: a
   bias, a mask or dropout. */
template <class T, class Shape>
ATTN__DEVICE void hopper_multiply(const hopper_work &m, const hopper_places &at)
{
    constexpr int q_slots = Shape::q_slots;
    hopper_consumer c = hopper_consumer_of<Shape>(m.p, at);
    uint32_t tile = 0;                      /* as hopper_load counts */
    if (c.number == Shape::consumers - 1) hw::barrier_arrive(TURN, 256);       /* the first turn goes to consumer 0 */
    for (uint32_t started = 0; (c.description = await_task<Shape>(at, started)) != 0; started++) {
        hopper_registers<Shape> r;
        const uint32_t slot = hw::uniform(started % q_slots);
        const key_tiles of = tiles_of<Shape>(m, c.description);
        c.q = c.q0 + slot * (Shape::slot_q >> 4);
        c.own = read_reach(c.description, c.number);
        read_rows<Shape::rows>(c.description, c.row0, r.rows);
        if (Shape::pairs && m.p.bias.rank) {
            const int64_t at = place(m.p.bias, r.rows[0].b, r.rows[0].h, r.rows[0].i - hw::lane() / 4, 0);
            c.bias = (const uint8_t *)m.p.bias.data + at * (m.p.bias.type == ATTN_F32 ? 4 : 2);
        }
        r.soft = no_keys();
        ATTN__UNROLL for (int j = 0; j < Shape::v / 2; j++) r.out[j] = 0.0f;
        hw::mbarrier_wait(at.q_full + slot, started / q_slots & 1);
        const int h = r.rows[0].h, i = r.rows[0].i - hw::lane() / 4;
        if (of.first < of.end) hopper_tiles<T>(m, at, c, of.first, of.end, started, tile, r);
        else {
            finish_softmax(m, r);
            hw::sync_warp();
            if (q_slots == 1 && c.elected) hw::mbarrier_arrive(at.q_empty);
            if (q_slots == 2 && started) release_results(at.q_empty + 1 - slot);
        }
        hw::sync_warp();
        if (c.elected) hw::mbarrier_arrive(at.task_empty + started % 2);
        hopper_store<T>(m, at.q + slot * Shape::slot_q + (hw::warp() - 4) * 16 * 128, r, h, i);
    }
    if (hw::elect()) hw::tma_store_wait_read<0>();
}

/* Is some number of 32 rows from `first` on not finite, row_at(i) being where one lies? Four lanes have a row. */
template <class T, class F>
ATTN__DEVICE bool has_nonfinite_rows(int64_t columns, int64_t first, int64_t rows, F row_at)
{
    uint32_t nonfinite = 0;
    for (int64_t i = first + hw::lane() / 4; i < first + 32 && i < rows; i += 8) {
        const eight_halves *from = (const eight_halves *)row_at(i);
        for (int c = hw::lane() % 4; c < (int)columns / 8; c += 4) {
            const eight_halves x = from[c];
            ATTN__UNROLL for (int j = 0; j < 4; j++) nonfinite |= nonfinite_signs<T>(x.pair[j]);
        }
    }
    return hw::any(nonfinite != 0);
}

/* With Pairs, what is found before, in one launch: a warp has 32 rows of v, or a row of a tile of the mask. */
ATTN__DEVICE void mask_words_of(const hopper_work &m, int64_t n)
{
    const params &p = m.p;
    const int64_t tiles = parts_of_keys(p) / 4;
    const int64_t rows = m.pairs.row ? p.queries : 1, heads = m.pairs.head ? p.heads : 1;
    const int64_t i = n / tiles % rows, h = n / tiles / rows % heads, b = n / tiles / rows / heads;
    const int key0 = (int)(n % tiles) * WORD_KEYS, column = key0 + hw::lane() * 4;
    const uint8_t *const from = (const uint8_t *)p.mask.data + place(p.mask, b, h, i, column);
    const int t = hw::lane() % 4;
    uint32_t let[4], word = 0;          /* the y-th of each lane's four columns, a bit for each lane */
    ATTN__UNROLL for (int y = 0; y < 4; y++) let[y] = hw::ballot(column + y < p.keys && from[y * p.mask.stride[3]]);
    ATTN__UNROLL for (int y = 0; y < 4; y++) {
        uint32_t bits = let[y] >> t / 2 & 0x55555555u;
        if (y / 2 == t % 2) word |= bits << y % 2;
    }
    if (hw::lane() < 4) m.pairs.mask[n * 4 + t] = word;
}
template <class T> ATTN__KERNEL(32 * WARPS, 1) void hopper_pairs_prepare(ATTN__PARAM hopper_work m)
{
    const params &p = m.p;
    const int64_t parts = parts_of_keys(p), of_values = flags_of_arrays(p), words = mask_words(p) / 4;
    for (int64_t n = first_task(); n < of_values + words; n += all_tasks()) {
        if (n >= of_values) mask_words_of(m, n - of_values);
        else {
            const int b = (int)(n / parts / p.heads_kv), h = (int)(n / parts % p.heads_kv);
            const bool any = has_nonfinite_rows<T>(p.size_v, n % parts * 32, p.keys, [&](int64_t i) {
                const paged_row at = find_paged_row(p, b, (int)i, 0, (int)p.keys, b);
                return row_of(p.v, at.page, h, at.row);
            });
            if (hw::lane() == 0) m.pairs.nonfinite[n] = any;
        }
    }
}

template <class T, class Shape>
ATTN__KERNEL(Shape::threads, 1) void hopper_forward_kernel(ATTN__PARAM hopper_work m)
{
#if ATTN__HAVE_WGMMA
    ATTN__SHARED(shared);
    const hopper_places at = hopper_places_in<Shape>(shared);
    init_places<Shape>(at);
    if (hw::warp() < 4) {
        hw::setmaxnreg_dec<Shape::registers_producer>();
        if (hw::warp() == 0) hopper_load<Shape>(m, at);
        else if (hw::warp() == 1) hopper_describe<Shape>(m, at);
        else hopper_look<T, Shape>(m, at);
    } else {
        hw::setmaxnreg_inc<Shape::registers_consumer>();
        hopper_multiply<T, Shape>(m, at);
    }
#else
    hw::missing();
#endif
}

/* ---- the backward, as in stage 2, in one sweep. A block has fixed keys, which stay in shared memory while tiles of 64
   queries pass through it, of the heads that share these keys, head after head. Of both there is what makes the scores
   (q, k) and what makes the gradients of the weights (d_out, v: `dp`, for their product is dP):
       s = k . q^T    ds = v . d_out^T    then    dv += s . d_out    dk += ds . q    dq = ds^T . k
   Of heads of up to 128 columns a block has 128 keys, 64 per consumer. A consumer's products run one after the other,
   the other consumer's beside them. Sums of more columns would not fit into its registers: then both consumers have the
   same 64 keys, each s and ds of half of a tile's queries, which it leaves in shared memory for both; and each has half
   of the columns of dk, dv and dq. */
/* the flags of a tile, by the producer; from bit TURN_AT on its turn */
enum { EDGE = 1, NONFINITE_MOVING = 2, NONFINITE_DP = 4, LAST = 8, NONFINITE_INSIDE = 16, TURN_AT = 5 };
enum { GRAD_MOVING = 64, GRAD_THREADS = 384 };  /* of all kernels: rows of a moving tile; threads of a block */
enum { GRAD_WORDS = 32 };       /* bytes of the producer's words on a moving tile: see hopper_grad_load */
/* Do both consumers have the same keys, and each half of the columns? How many keys a block has. Of how many queries a
   consumer has scores at a time, for numbers of each pair take registers: a part of a tile. Tiles lie in shared memory
   part by part, and boxes of TMA are parts of q and d_out. */
constexpr bool splits_columns(int qk) { return qk > 128; }
constexpr int grad_keys(int qk) { return splits_columns(qk) ? 64 : 128; }
constexpr int grad_part(bool pairs, int qk) { return splits_columns(qk) || (pairs && qk > 64) ? 32 : GRAD_MOVING; }
/* Extra, Pairs: see hopper_shape. */
template <class Heads, bool Extra = false, bool Pairs = false> struct hopper_grad_shape {
    static constexpr int qk = Heads::qk, v = Heads::v;
    static constexpr bool extra = Extra, pairs = Pairs, splits = splits_columns(qk);
    static constexpr int consumers = 2, rows = grad_keys(qk), moving = GRAD_MOVING;
    static constexpr int part = grad_part(Pairs, qk), parts = moving / part;
    static constexpr int columns_dq = Heads::panels_qk;
    typedef half_columns<columns_dq> half_dq;
    static constexpr int sums = splits ? half_columns<qk>::numbers : qk / 2;            /* of dk, in a thread */
    static constexpr int sums_values = splits ? half_columns<v>::numbers : v / 2;
    static constexpr int whole = tile_bytes<rows, qk>, fixed_bytes = whole + tile_bytes<rows, v>;
    static constexpr int slot_part = tile_bytes<part, qk>, slot_part_dp = tile_bytes<part, v>;
    static constexpr int slot = parts * slot_part, slot_dp = parts * slot_part_dp;
    static constexpr int of_moving = moving * 20;                                       /* load_rows */
    static constexpr int left = tile_bytes<rows, moving>, gradients = (splits ? 2 : 1) * left;  /* leave_gradients */
    static constexpr int others = 2 * (slot + slot_dp + gradients + of_moving + GRAD_WORDS + 16) + 16 * 8;
    /* where there is room for two, the next task's fixed rows are there before this one ends */
    static constexpr int fixed_slots = others + 2 * fixed_bytes <= 227 * 1024 ? 2 : 1;
    static constexpr int shared_bytes = others + fixed_slots * fixed_bytes;
    static constexpr bool most_sums = qk > (splits ? 192 : 64) && !Pairs;
    static constexpr int registers_consumer = most_sums ? 232 : 224, registers_producer = most_sums ? 40 : 56;
    static_assert(registers_suffice<GRAD_THREADS, consumers>(registers_consumer, registers_producer), "see there");
    static_assert(shared_bytes <= 227 * 1024, "a block fits in the shared memory of an sm_90");
};
struct hopper_grad_work {
    grad_work g;
    int32_t tasks;              /* of all blocks of a kernel */
    int64_t padded_keys;        /* keys, rounded up as queries are */
    mask_tiles let;
    int    *nonfinite;          /* of 32 queries: NONFINITE_MOVING of q, _DP of d_out; then of 32 keys: _MOVING, and
                                   _INSIDE of those before the end of their length */
    hw::tensor_map q, k, v, d_out;
};
static_assert(sizeof(hopper_grad_work) <= 4096, "kernel parameters fit in 4 KB");
/* Do the consumers hold their fixed rows of k and v in registers, as left operands? Where that fits beside the sums and
   what Pairs take. A product of two tiles in shared memory reads all that this can give. With held rows the sweep of
   head size 64 keeps it busy for 90 % of the time of its products (110 % without); with Pairs that of 128, whose parts
   have 32 queries, for 115 %, that of 256 for 128 %: computed, not measured. */
template <class Shape> constexpr bool holds_fixed = !Shape::pairs && Shape::qk <= 64 && Shape::v <= 64;

/* Where in `nonfinite` a head is, of an entry of the arrays */
ATTN__DEVICE int64_t nonfinite_at(const hopper_grad_work &m, bool keys, int64_t b, int64_t h)
{
    const params &p = m.g.p;
    const int64_t parts_q = m.g.padded / 32, parts_k = m.padded_keys / 32;
    return keys ? batch_of_rows(p) * p.heads * parts_q + (b * p.heads_kv + h) * parts_k : (b * p.heads + h) * parts_q;
}

/* The flags of rows from row `first` of a head on, `head` in `nonfinite` */
template <int Rows> ATTN__DEVICE int nonfinite_of(const hopper_grad_work &m, int64_t head, int first)
{
    int flags = 0;
    ATTN__UNROLL for (int i = 0; i < Rows / 32; i++) flags |= m.nonfinite[head + first / 32 + i];
    return flags;
}

/* No query may attend to a key from here on. With a length for each query there may be more of them. */
ATTN__DEVICE int64_t end_of_numbers(const params &p, int64_t b)
{
    const entry e = entry_of(p, b);
    return p.key_lengths.rank == 1 ? end_of_length(p, e, b) : e.keys_end;
}

/* May some number of 32 rows of q be not finite? Not where a row has mass: all its scores would be infinite or NaN. Is
   some number of d_out? It makes its row's shift so. Both hold of rows behind a packed entry's last, too. */
ATTN__DEVICE int nonfinite_queries(const row_grad &g, bool is_query)
{
    const bool q = is_query && (g.inverse == 0.0f || !is_finite(g.inverse) || !is_finite(g.base));
    return hw::any(q) * NONFINITE_MOVING + hw::any(!is_finite(g.shift)) * NONFINITE_DP;
}

/* What comes before the products, all in one launch: of 32 rows each, a warp's, first of queries, then of keys. Nobody
   need look at v: it makes gradients of scores, and these are 0 where a pair is excluded. */
template <class T> ATTN__KERNEL(32 * WARPS, 1) void hopper_grad_prepare(ATTN__PARAM hopper_grad_work m)
{
    const params &p = m.g.p;
    const int64_t of_queries = nonfinite_at(m, true, 0, 0), all = nonfinite_at(m, true, batch_of_keys(p), 0);
    for (int64_t n = first_task(); n < all; n += all_tasks()) {
        const bool keys = n >= of_queries;
        if (!keys) clear_counts<GRAD_MOVING>(m.g, n);
        const int64_t heads = keys ? p.heads_kv : p.heads, rows = keys ? p.keys : p.queries;
        const int64_t parts = (keys ? m.padded_keys : m.g.padded) / 32, part = keys ? n - of_queries : n;
        const int64_t b = part / parts / heads, h = part / parts % heads;
        const packed_tiles &packed = keys ? m.g.keys : m.g.rows;
        const int of_tile = keys ? m.g.block_keys : (int)GRAD_ROWS;
        int64_t first = part % parts * 32, entry = b;
        if (packed.count) {
            if (first / of_tile >= *packed.count) continue;
            const packed_tile tile = packed.tiles[first / of_tile];
            first = tile.row + first % of_tile, entry = tile.entry;
        } else if (p.ragged) first += rows_of_entry(p, b, keys).first;
        int flags = keys ? 0 : nonfinite_queries(prepare_rows<GRAD_MOVING>(m.g, n, true), first + hw::lane() < rows);
        const auto has_nonfinite = [&](int64_t end) {
            return has_nonfinite_rows<T>(p.size_q, first, end, [&](int64_t i) {
                return row_of(keys ? p.k : p.q, b, h, i);
            });
        };
        if (keys || p.softcap != 0.0f)              /* that makes scores finite */
            flags |= has_nonfinite(rows) * NONFINITE_MOVING;
        if (keys && flags) flags |= has_nonfinite(end_of_numbers(p, entry)) * NONFINITE_INSIDE;
        if (hw::lane() == 0) m.nonfinite[n] = flags;
    }
}

/* The moving tiles of a task, of the heads one after the other, as the producer goes over them. They come from the last
   to the first: see keep_turns. */
struct grad_walk {
    tile_task   task;           /* its first key: of the entry's own */
    grad_entry  entry;
    int         nonfinite;      /* flags of its keys */
    moving_tile at;             /* the first of 32 tiles of a head */
    int         end, parts;     /* one past the last head; tiles of a head */
    uint32_t    tiles;          /* a bit for each of these 32 that is still to come */
    int         flags;          /* of tile part + lane */
};
/* The moving tile that comes in this place */
ATTN__DEVICE int tile_in_place(const grad_walk &w, int part) { return w.parts - 1 - part; }

/* What a mask says of each lane's tile of queries, the part-th and on: a word for 32 tiles of its keys */
template <class Shape>
ATTN__DEVICE const uint32_t *mask_of_tile(const hopper_grad_work &m, const grad_walk &w, int part)
{
    const int row = tile_in_place(w, least(part + hw::lane_anew(), w.parts - 1)) * Shape::moving;
    return m.let.some + mask_words_at(m.let, w.task.b, w.at.head, row);
}
/* Does it let some pair through, of these queries and the n-th tile of Shape::rows keys? */
template <class Shape> ATTN__DEVICE bool is_let_tile(const uint32_t *words, int n)
{
    constexpr int many = Shape::rows / MASK_TILE_KEYS, in_word = 32 / many;
    return words[n / in_word] >> n % in_word * many & ((1u << many) - 1);
}
/* Of a tile of queries: which of the blocks that add to dq is that of the n-th keys? The mask leaves some out. */
template <class Shape>
ATTN__DEVICE int turn_of_keys(const hopper_grad_work &m, const grad_walk &w, int part, int first, int n)
{
    if (!Shape::pairs || !m.let.some) return n - first;
    const uint32_t *const words = mask_of_tile<Shape>(m, w, part);
    constexpr int many = Shape::rows / MASK_TILE_KEYS, in_word = 32 / many;
    int turn = 0;
    ATTN__LOOP for (int at = first / in_word; at <= n / in_word; at++) {
        uint32_t some = words[at];
        for (int i = 1; i < many; i++) some |= words[at] >> i;
        some &= ~0u / ((1u << many) - 1);                                   /* a tile's first bit */
        if (at == first / in_word) some &= ~0u << first % in_word * many;
        if (at == n / in_word) some &= (1u << n % in_word * many) - 1;
        turn += hw::popc(some);
    }
    return turn;
}

/* Each lane looks at one of 32 tiles; goes on, head after head, until one of them has a key in reach. */
template <class Shape> ATTN__DEVICE void find_tiles(const hopper_grad_work &m, grad_walk &w)
{
    w.tiles = 0;
    next_tile(w.at, w.end, w.parts, 32, [&](int first) {
        w.tiles = ~0u;
        if (Shape::pairs && m.let.some)
            w.tiles = hw::ballot(is_let_tile<Shape>(mask_of_tile<Shape>(m, w, first), w.task.first_row / Shape::rows));
        if (!w.tiles) return false;
        const int in_place = least(first + hw::lane(), w.parts - 1), part = tile_in_place(w, in_place);
        const int first_key = w.task.first_row, last_key = first_key + Shape::rows, batch = w.entry.row_batch;
        const int padded = w.entry.padded_row + part * Shape::moving;
        const tile_reach r = m.g.reaches[(batch * m.g.padded + padded) / GRAD_MOVING];
        w.flags = nonfinite_of<Shape::moving>(m, nonfinite_at(m, false, batch, w.at.head), padded);
        if (((w.flags | w.nonfinite) != 0) | (r.from > first_key) | (r.to < last_key)) w.flags |= EDGE;
        /* nothing is read for queries that there are not */
        if (Shape::pairs && (part + 1) * Shape::moving > (int)m.g.p.queries) w.flags |= EDGE;
        w.flags |= w.nonfinite & NONFINITE_INSIDE;
        w.flags |= turn_of_keys<Shape>(m, w, first, r.first / Shape::rows, first_key / Shape::rows) * (1 << TURN_AT);
        w.tiles &= hw::ballot(in_place == first + hw::lane() && has_pairs(r, first_key, last_key));
        return w.tiles != 0;
    });
}
template <class Shape>
ATTN__DEVICE grad_walk walk_of(const hopper_grad_work &m, int task)
{
    const params &p = m.g.p;
    const int group = (int)(p.heads / p.heads_kv);
    grad_walk w;
    w.task = keys_of_entry(p, m.g.order, m.g.keys, task, Shape::rows);
    w.entry = grad_entry_of(m.g, w.task.b);
    w.nonfinite = nonfinite_of<Shape::rows>(m, nonfinite_at(m, true, key_batch(p, w.entry.b), w.task.h),
                                            w.entry.padded_key + w.task.first_row);
    w.at.head = w.task.head_kv * group;
    w.at.part = 0;
    w.end = w.at.head + group;
    w.parts = w.entry.queries / Shape::moving;
    find_tiles<Shape>(m, w);
    return w;
}

/* A part of a moving tile: the tile's slots; descriptors of the part; where the numbers of its queries, the producer's
   words on the tile and what consumers leave of the tile are; the part's first row in the tile. */
struct grad_tile {
    uint32_t slot, phase, moving, moving_dp, values, words, gradients;
    int      first;
};

/* Where the queries of a part are, relative to a thread's first key: a lane has those of query lane and lane + 32. */
struct query_positions { float slope, from[2]; };
template <class Shape>
ATTN__DEVICE query_positions positions_of_tile(const params &p, uint32_t of_task, const grad_tile &t, int row0)
{
    const int b = (int)hw::load_shared_word(of_task), first_key = (int)hw::load_shared_word(of_task + 8) + row0;
    const int first = (int)hw::load_shared_word(t.words + 4) + t.first;
    query_positions at = {float_of(hw::load_shared_word(t.words + 8)), {0.0f, 0.0f}};
    find_distances<Shape::part>(at.from, p, b, first, first_key - hw::lane() / 4);
    return at;
}

/* With Pairs, what a part's pairs have: a bit for each that the mask lets be; numbers as they are stored; which weights
   are kept (see kept_of_queries). */
template <class Shape> struct grad_pairs {
    uint32_t let, kept[Shape::part / 32];
    uint64_t numbers[Shape::part / 4];
};

/* Where a part's pairs are: a thread's first key and first query, the head of the queries; in: a bit for each query in
   whose reach a key is, for both of its keys. */
struct pair_tile {
    int      b, h, key, query;
    uint32_t in[2];
};
ATTN__DEVICE pair_places places_in(const attn__array &a, const pair_tile &t)
{
    pair_places at;
    ATTN__UNROLL for (int e = 0; e < 2; e++) at.row[e] = place(a, t.b, t.h, t.query, t.key + 8 * e);
    at.step = a.stride[2];
    return at;
}
/* From the words of its task and its own */
template <class Shape> ATTN__DEVICE pair_tile pair_tile_of(uint32_t of_task, const grad_tile &tile, int row0)
{
    const int columns = hw::lane() % 4 * 2;
    pair_tile t;
    t.b = (int)hw::load_shared_word(of_task);
    t.h = (int)hw::load_shared_word(tile.words + 16);
    t.key = (int)hw::load_shared_word(of_task + 8) + row0;
    t.query = (int)hw::load_shared_word(tile.words + 4) + tile.first + columns;
    t.in[0] = t.in[1] = (1u << Shape::part / 4) - 1;
    if (!(hw::load_shared_word(tile.words) & EDGE)) return t;
    t.in[0] = t.in[1] = 0;
    ATTN__UNROLL for (int j = 0; j < Shape::part / 8; j++) {
        uint32_t first[2], last[2];
        hw::load_shared(first, tile.values + (3 * Shape::moving + j * 8 + columns) * 4);
        hw::load_shared(last, tile.values + (4 * Shape::moving + j * 8 + columns) * 4);
        ATTN__UNROLL for (int x = 0; x < 4; x++) {
            const int key = t.key + x / 2 * 8;
            t.in[x / 2] |= (key >= (int)first[x % 2] && key < (int)last[x % 2] ? 1u : 0u) << (2 * j + x % 2);
        }
    }
    return t;
}

/* In two steps, each beside products: reads the mask; then tells what it lets be, reads the bias, finds the kept. */
template <class Shape> ATTN__DEVICE void read_mask(grad_pairs<Shape> &pairs, const params &p, const pair_tile &t)
{
    if (p.mask.rank) read_pairs<uint8_t>(pairs.numbers, p.mask, places_in(p.mask, t), t.in);
}
template <class Shape> ATTN__DEVICE void finish_pairs(grad_pairs<Shape> &pairs, const params &p, const pair_tile &t)
{
    pairs.let = ~0u;
    if (p.mask.rank) {
        pairs.let = 0;
        ATTN__UNROLL for (int j = 0; j < Shape::part / 2; j++)
            pairs.let |= ((uint32_t)(pairs.numbers[j / 2] >> j % 2 * 32) ? 1u : 0u) << j;
    }
    if (p.bias.rank) read_floats(pairs.numbers, p.bias, places_in(p.bias, t), t.in);
    if (p.dropout != 0.0f)
        kept_of_queries<Shape::part, true>(pairs.kept, p, t.b, t.h, t.query - hw::lane() % 4 * 2,
                                           t.key - hw::lane() / 4);
}

/* What dropout multiplies four weights of a part by, of columns 8j.. */
template <class Shape>
ATTN__DEVICE void keep_four(float (&keep)[4], const params &p, const grad_pairs<Shape> &pairs, int j)
{
    if (p.dropout == 0.0f) return;
    ATTN__UNROLL for (int x = 0; x < 4; x++) {
        const uint32_t kept = hw::shfl(pairs.kept[j / 4], j % 4 * 8 + hw::lane() % 4 * 2 + x % 2) >>
                              (hw::lane() / 4 + x / 2 * 8);
        keep[x] = kept & 1 ? p.keep_scale : 0.0f;
    }
}

/* With Extra: four raw scores, of columns column + 8j..; pair_grad excludes. */
template <class T, class Shape>
ATTN__DEVICE void shape_four(float (&s)[4], float (&slope)[4], const params &p, float inverse,
                             const query_positions &at, const grad_pairs<Shape> &pairs, int j, int column)
{
    const auto read = [&](float (&b)[4], const attn__array &a, bool is_mask) {
        ATTN__UNROLL for (int x = 0; x < 4; x++) b[x] = pairs.let >> (4 * j + x) & 1 ? 0.0f : -infinity();
        ATTN__UNROLL for (int x = 0; x < 4 * !is_mask; x += 2)
            widen_pair<T>(b + x, pairs.numbers[2 * j + x / 2], a.type == ATTN_F32);
    };
    shape_scores<Shape::pairs>(s, slope, p, inverse, [] {}, read, [&] {
        ATTN__UNROLL for (int x = 0; x < 4 * (p.alibi.rank != 0); x++) {
            const float from = hw::shfl(at.from[j / 4], (j * 8 + column + x % 2) % 32);
            add_alibi(s[x], at.slope, from - (float)(hw::lane() / 4 + x / 2 * 8));
        }
    });
}

/* s and ds of a tile become weights and the gradients of scores. A thread's two keys are first_key, +8; the queries'
   numbers are at `values`. */
template <class T, class Shape, bool Edge>
ATTN__DEVICE void grads_of_tile(float (&s)[Shape::part / 2], float (&ds)[Shape::part / 2], const params &p,
                                int first_key, uint32_t values, const query_positions &at,
                                const grad_pairs<Shape> &pairs)
{
    constexpr bool extra = Shape::extra;
    const float scale = scale_of<extra>(p), inverse = extra ? inverse_softcap(p) : 0.0f;
    const int column = hw::lane() % 4 * 2;
    /* Beside all sums of heads of 128 columns hardly a register is free: the compiler needs none more where the edge's
       columns come from the last to the first, and where it can't read ahead. */
    constexpr bool few_registers = Edge && Shape::qk > 96;
    ATTN__UNROLL for (int n = 0; n < Shape::part / 8; n++) {
        const int j = few_registers ? Shape::part / 8 - 1 - n : n;
        uint32_t of[3][2] = {}, reach[2][2] = {};           /* base, inverse, shift of two queries; first, last */
        bool reached[4];
        float slope[4] = {1.0f, 1.0f, 1.0f, 1.0f}, keep[4] = {1.0f, 1.0f, 1.0f, 1.0f};
        float four[4] = {s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3]};
        if (few_registers) hw::sync_warp();
        if (extra) shape_four<T, Shape>(four, slope, p, inverse, at, pairs, j, column);
        if (Shape::pairs) keep_four<Shape>(keep, p, pairs, j);
        ATTN__UNROLL for (int i = 0; i < (Edge ? 2 : 0); i++)
            hw::load_shared(reach[i], values + ((3 + i) * Shape::moving + j * 8 + column) * 4);
        ATTN__UNROLL for (int x = 0; x < 4; x++) {
            const int key = first_key + x / 2 * 8;
            reached[x] = key >= (int)reach[0][x % 2] && key < (int)reach[1][x % 2];
        }
        ATTN__UNROLL for (int i = 0; i < 3; i++)
            hw::load_shared(of[i], values + (i * Shape::moving + j * 8 + column) * 4);
        ATTN__UNROLL for (int x = 0; x < 4; x++) {
            const row_grad g = {float_of(of[0][x % 2]), float_of(of[1][x % 2]), float_of(of[2][x % 2])};
            s[4 * j + x] = four[x];
            pair_grad<Edge, extra, Shape::pairs>(g, reached[x], scale, slope[x], keep[x], s[4 * j + x], ds[4 * j + x]);
        }
    }
}

/* Shared memory of a block: two slots or one of fixed rows; two slots each of moving tiles, of what comes with these,
   of what consumers leave for one another (leave_gradients), of numbers of the queries, of words on the moving tile and
   on a task (batch, NO_TASK after the last; head; first key; NO_TILES, NONFINITE); the barriers. */
template <class Shape> struct grad_places {
    unsigned char *fixed, *tile_moving, *tile_dp, *gradients, *of_rows, *words;
    uint32_t tasks;
    uint64_t *fixed_full, *fixed_empty, *moving_full, *moving_empty, *dp_full, *left, *turn, *added;
};
template <class Shape> ATTN__DEVICE grad_places<Shape> grad_places_in(unsigned char *shared)
{
    grad_places<Shape> at;
    at.fixed = shared;
    at.tile_moving = at.fixed + Shape::fixed_slots * Shape::fixed_bytes;
    at.tile_dp = at.tile_moving + 2 * Shape::slot;
    at.gradients = at.tile_dp + 2 * Shape::slot_dp;
    at.of_rows = at.gradients + 2 * Shape::gradients;
    at.words = at.of_rows + 2 * Shape::of_moving;
    at.tasks = hw::shared_address(at.words) + 2 * GRAD_WORDS;
    at.fixed_full = (uint64_t *)(at.words + 2 * GRAD_WORDS + 2 * 16);
    at.fixed_empty = at.fixed_full + Shape::fixed_slots;
    at.moving_full = at.fixed_empty + Shape::fixed_slots;
    at.moving_empty = at.moving_full + 2;
    at.dp_full = at.moving_full + 4;
    at.left = at.moving_full + 6;
    at.turn = at.left + 2;
    at.added = at.turn + 2;
    return at;
}

/* The numbers of so many queries from the entry's row `first` on, array by array, which the barrier waits for */
template <int Rows>
ATTN__DEVICE void load_rows(unsigned char *to, const hopper_grad_work &m, uint64_t *bar, const grad_entry &e, int head,
                            int first)
{
    const int64_t row = (e.row_batch * m.g.p.heads + head) * m.g.padded + e.padded_row + first;
    const int64_t reach = e.row_batch * m.g.padded + e.padded_row + first;
    hw::cp_async_bulk(to, m.g.base + row, Rows * 4, bar);
    hw::cp_async_bulk(to + Rows * 4, m.g.inverse + row, Rows * 4, bar);
    hw::cp_async_bulk(to + Rows * 8, m.g.shift + row, Rows * 4, bar);
    hw::cp_async_bulk(to + Rows * 12, m.g.first + reach, Rows * 4, bar);
    hw::cp_async_bulk(to + Rows * 16, m.g.last + reach, Rows * 4, bar);
}

/* The producer's start of a task: its words, and the loads of its fixed rows. */
enum { NO_TILES = 1, NONFINITE = 2 };           /* of the last of these words */
template <class Shape>
ATTN__DEVICE void load_fixed(const hopper_grad_work &m, const grad_places<Shape> &at, const grad_walk &w,
                             uint32_t started)
{
    const int b = w.task.b, h = w.task.h, key = w.task.first_row, none = w.tiles == 0 ? NO_TILES : 0;
    const uint32_t to = started % Shape::fixed_slots, words = at.tasks + started % 2 * 16;
    unsigned char *const fixed = at.fixed + to * Shape::fixed_bytes;
    uint64_t *const full = at.fixed_full + to;
    hw::mbarrier_wait(at.fixed_empty + to, (started / Shape::fixed_slots & 1) ^ 1);
    hw::store_shared(words, (uint32_t)b);
    hw::store_shared(words + 4, (uint32_t)h);
    hw::store_shared(words + 8, (uint32_t)key);
    hw::store_shared(words + 12, (uint32_t)(none | (w.nonfinite ? NONFINITE : 0)));
    if (none) hw::mbarrier_arrive(full);
    else hw::mbarrier_expect(full, Shape::fixed_bytes);
    if (none) return;
    const int first = key + w.entry.keys.first, batch = key_batch(m.g.p, w.entry.b);
    load_tile<Shape::rows, Shape::qk>(fixed, &m.k, full, first, h, batch);
    load_tile<Shape::rows, Shape::v>(fixed + Shape::whole, &m.v, full, first, h, batch);
}

/* Its elected thread, for the tile-th moving tile, which begins at row `first` of its entry */
template <class Shape>
ATTN__DEVICE void load_moving(const hopper_grad_work &m, const grad_places<Shape> &at, const grad_entry &entry,
                              int tile, int first, int head, uint32_t flags)
{
    typedef Shape shape;
    const int to = tile % 2, row = entry.rows.first + first, batch = entry.row_batch;
    uint64_t *full = at.moving_full + to, *dp_full = at.dp_full + to;
    hw::mbarrier_wait(at.moving_empty + to, (tile / 2 & 1) ^ 1);
    const uint32_t words = hw::shared_address(at.words) + to * GRAD_WORDS;
    hw::store_shared(words, flags);
    hw::store_shared(words + 4, (uint32_t)first);
    if (shape::extra && m.g.p.alibi.rank) hw::store_shared(words + 8, bits_of(load(m.g.p.alibi, 0, head, 0, 0)));
    hw::store_shared(words + 12, dq_tile<shape::moving>(m.g, batch, head, entry.padded_row + first));
    if (shape::pairs) hw::store_shared(words + 16, (uint32_t)head);
    hw::mbarrier_expect(full, shape::slot + shape::of_moving);
    ATTN__LOOP for (int n = 0; n < shape::parts; n++)
        load_tile<shape::part, shape::qk>(at.tile_moving + to * shape::slot + n * shape::slot_part, &m.q, full,
                                          row + n * shape::part, head, batch);
    load_rows<shape::moving>(at.of_rows + to * shape::of_moving, m, full, entry, head, first);
    hw::mbarrier_expect(dp_full, shape::slot_dp);
    ATTN__LOOP for (int n = 0; n < shape::parts; n++)
        load_tile<shape::part, shape::v>(at.tile_dp + to * shape::slot_dp + n * shape::slot_part_dp, &m.d_out, dp_full,
                                         row + n * shape::part, head, batch);
}

/* The producer: goes over the moving tiles of its tasks, starts their loads, and leaves the consumers their flags. */
template <class Shape>
ATTN__DEVICE void hopper_grad_load(const hopper_grad_work &m, const grad_places<Shape> &at)
{
    typedef Shape shape;
    const int tasks = packed_tasks(m.g.keys, (int)m.g.p.heads_kv, m.tasks);
    const bool ordered = m.g.turns != NULL;               /* who begins first, has the first task */
    int task = ordered ? take_ticket(m.g.tickets) : hw::block(), tile = 0;
    uint32_t started = 0;                   /* tasks before this one in this block's life, as `tile` counts tiles */
    for (; task < tasks; started++, task = ordered ? take_ticket(m.g.tickets) : next_task(m.g.tickets, task)) {
        grad_walk w = walk_of<shape>(m, task);
        if (hw::elect()) load_fixed(m, at, w, started);
        ATTN__LOOP for (; w.tiles; tile++) {
            const int next = hw::ctz(w.tiles), head = w.at.head;
            const int first = tile_in_place(w, w.at.part + next) * shape::moving;
            uint32_t flags = (uint32_t)hw::shfl(w.flags, next);
            w.tiles &= w.tiles - 1;
            if (!w.tiles) {
                w.at.part += 32;
                find_tiles<shape>(m, w);
                if (!w.tiles) flags |= LAST;
            }
            if (hw::elect()) load_moving(m, at, w.entry, tile, first, head, flags);
            hw::sync_warp();
        }
    }
    if (hw::elect()) {
        const uint32_t to = started % shape::fixed_slots;
        hw::mbarrier_wait(at.fixed_empty + to, (started / shape::fixed_slots & 1) ^ 1);
        hw::store_shared(at.tasks + started % 2 * 16, NO_TASK);
        hw::mbarrier_arrive(at.fixed_full + to);
        if (ordered) {
            hw::mbarrier_wait(at.moving_empty + tile % 2, (tile / 2 & 1) ^ 1);
            hw::store_shared(hw::shared_address(at.words) + tile % 2 * GRAD_WORDS, NO_TASK);
            hw::mbarrier_arrive(at.moving_full + tile % 2);
        }
    }
}

/* ---- dq. What a block's tiles give is a part of dq; blocks add their parts in the workspace when it is their turn,
   and store_dq_sums stores the sums. Both consumers leave the gradients of their scores, keys by queries, in shared
   memory; then each multiplies all of them by half of the columns of k. Of a tile of 64 queries the workspace has eight
   columns, then the next eight: of each four numbers of every thread of a consumer, as they are in its accumulator. */

/* Turns are stage 2's (add_to_dq): a block does its tasks in the order in which it took their tickets.
       The consumers do not wait for global memory: two warps of the producer's do it for them, which go from tile to
   tile as they do. One tells them by an mbarrier when it is their turn; it may be a tile ahead of them. The other sees
   by a second mbarrier that they have added, and counts. */
template <class Shape, class F>
ATTN__DEVICE void each_turn(const hopper_grad_work &m, const grad_places<Shape> &at, F f)
{
    for (uint32_t tile = 0;; tile++) {
        const uint32_t slot = tile % 2, phase = tile / 2 & 1, words = hw::shared_address(at.words) + slot * GRAD_WORDS;
        hw::mbarrier_wait(at.moving_full + slot, phase);
        const uint32_t flags = hw::load_shared_word(words);
        if (flags == NO_TASK) break;
        int *const count = m.g.turns + hw::load_shared_word(words + 12);
        hw::mbarrier_arrive(at.moving_empty + slot);
        f(count, (int)(flags >> TURN_AT), slot, phase);
    }
}
template <class Shape> ATTN__DEVICE void keep_turns(const hopper_grad_work &m, const grad_places<Shape> &at)
{
    const int warp = hw::warp();
    if (!m.g.turns || warp > 2 || hw::lane() != 0) return;
    if (warp == 1) each_turn(m, at, [&](const int *count, int turn, uint32_t slot, uint32_t phase) {
        hw::wait_for_count(count, turn);
        hw::mbarrier_wait(at.added + slot, phase ^ 1);      /* the turn of two tiles before is over */
        hw::mbarrier_arrive(at.turn + slot);
    });
    else each_turn(m, at, [&](int *count, int turn, uint32_t slot, uint32_t phase) {
        hw::mbarrier_wait(at.added + slot, phase);
        hw::publish_count(count, turn + 1);
    });
}

/* Of numbers of k that are not finite the block has zeros, so that pairs that are excluded add nothing to dq, and it
   has the same bits whatever lies there. Where a pair is not excluded they make its score infinite or NaN: this one is
   made without tensor cores. (Then its row has no finite weights, or this pair none: zeros do for dq, too; but see
   mark_dq.) Rare.
   f(column, number) with each number of a key, unless it is behind the end */
template <class T, class F>
ATTN__DEVICE void each_number(const params &p, const uint32_t (&task)[4], int key, F f)
{
    const int64_t row_of_key = entry_of(p, task[0]).key0 + key;
    if (row_of_key >= end_of_numbers(p, task[0])) return;
    const uint16_t *const row = row_of(p.k, key_batch(p, task[0]), task[1], row_of_key);
    ATTN__LOOP for (int c = 0; c < (int)p.size_q; c++) f(c, half_of<T>(row[c], 0));
}
template <class T>
ATTN__DEVICE bool is_nonfinite_key(const params &p, const uint32_t (&task)[4], int key)
{
    bool some = false;
    each_number<T>(p, task, key, [&](int, float number) { some = some || !is_finite(number); });
    return some;
}
/* A thread's scores of such keys, of `key` and key + 8: in full, for with a zero in place of a number the others may
   have made NaN of what is infinite, or lack what makes it NaN. */
template <class T, class Shape>
ATTN__DEVICE void make_nonfinite_scores(float (&s)[Shape::part / 2], const params &p, const uint32_t (&task)[4],
                                        int key, uint32_t moving)
{
    ATTN__UNROLL for (int e = 0; e < 2; e++) {
        if (!is_nonfinite_key<T>(p, task, key + 8 * e)) continue;
        ATTN__UNROLL for (int j = 0; j < Shape::part / 4; j++) s[j / 2 * 4 + 2 * e + j % 2] = 0.0f;
        each_number<T>(p, task, key + 8 * e, [&](int c, float number) {
            ATTN__UNROLL for (int j = 0; j < Shape::part / 4; j++) {
                const int query = j / 2 * 8 + hw::lane() % 4 * 2 + j % 2;
                const uint32_t q = hw::load_shared_word(moving + chunk_of(query, c / 8, Shape::part) + c % 8 / 2 * 4);
                float &score = s[j / 2 * 4 + 2 * e + j % 2];
                score = hw::fma(half_of<T>(q, c % 2), number, score);
            }
        });
    }
}

/* What a consumer has in registers: its sums; s and ds of a part of a tile, which become weights and gradients of
   scores, and these once more as left operands; fixed rows as left operands (holds_fixed). */
template <class Shape> struct grad_registers {
    float     sum[Shape::sums], sum_values[Shape::sums_values], s[Shape::part / 2], ds[Shape::part / 2];
    uint32_t  weights[Shape::part / 16][4], gradients[Shape::part / 16][4];
    uint32_t  held[Shape::qk / 16][4], held_dp[Shape::v / 16][4];
    grad_pairs<Shape> pairs;
};

/* Which consumer; descriptors of the moving tiles in slot 0. Of its task: the slot of its fixed rows, descriptors of
   these, where its words are. */
struct grad_consumer {
    int      number;
    bool     elected;           /* releases what its warp has done with */
    uint32_t moving, moving_dp, slot, fixed, fixed_dp, task;
};
/* The first of a warp's keys, of the block's, and of a thread's two */
template <class Shape> ATTN__DEVICE int warp_row()
{
    return (int)(((uint32_t)hw::warp() - 4) % (Shape::rows / 16) * 16);
}
template <class Shape> ATTN__DEVICE int grad_row()
{
    const uint32_t thread = ((uint32_t)hw::thread_anew() - 128) % (2 * Shape::rows);
    return (int)(thread / 32 * 16 + thread % 32 / 4);
}
template <class Shape> ATTN__DEVICE grad_consumer grad_consumer_of(const grad_places<Shape> &at)
{
    grad_consumer c;
    c.number = hw::warp() / 4 - 1;
    c.elected = hw::lane() == 0;
    c.moving = wgmma_tile(hw::shared_address(at.tile_moving), Shape::part);
    c.moving_dp = c.moving + (2 * Shape::slot >> 4);
    c.slot = c.fixed = c.fixed_dp = c.task = 0;
    return c;
}

/* Where a consumer's thread has its numbers of a tile of dq */
template <class Shape> ATTN__DEVICE float *dq_part(const hopper_grad_work &m, uint32_t tile)
{
    return (float *)m.g.p.workspace + (int64_t)tile * (Shape::moving * Shape::columns_dq) + hw::thread_anew() % 128 * 4;
}

/* The address of its task's fixed rows */
template <class Shape> ATTN__DEVICE uint32_t fixed_rows(const grad_places<Shape> &at, const grad_consumer &c)
{
    return hw::shared_address(at.fixed) + c.slot * Shape::fixed_bytes;
}
template <class Shape>
ATTN__DEVICE void set_task(const grad_places<Shape> &at, uint32_t started, grad_consumer &c)
{
    c.slot = Shape::fixed_slots == 1 ? 0 : hw::uniform(started % Shape::fixed_slots);
    c.fixed = wgmma_tile(fixed_rows(at, c) + (Shape::splits ? 0 : (uint32_t)c.number * 64 * 128), Shape::rows);
    c.fixed_dp = c.fixed + (Shape::whole >> 4);
    c.task = at.tasks + started % 2 * 16;
}

/* Of the tile-th of a block's life */
template <class Shape>
ATTN__DEVICE grad_tile grad_tile_at(const grad_places<Shape> &at, const grad_consumer &c, uint32_t tile, int part = 0)
{
    grad_tile t;
    t.first = part * Shape::part;
    t.slot = tile % 2;
    t.phase = tile / 2 & 1;
    t.moving = c.moving + t.slot * (Shape::slot >> 4) + part * (Shape::slot_part >> 4);
    t.moving_dp = c.moving_dp + t.slot * (Shape::slot_dp >> 4) + part * (Shape::slot_part_dp >> 4);
    t.values = hw::shared_address(at.of_rows) + t.slot * Shape::of_moving + t.first * 4;
    t.words = hw::shared_address(at.words) + t.slot * GRAD_WORDS;
    t.gradients = hw::shared_address(at.gradients) + t.slot * Shape::gradients;
    return t;
}

/* The start of a task, whose fixed rows have come: what is held of them; sums of nothing. */
template <class Shape>
ATTN__DEVICE void start_grads(const grad_places<Shape> &at, const grad_consumer &c, grad_registers<Shape> &r)
{
    const auto hold = [&](auto &left, uint32_t tile) {
        ATTN__UNROLL for (int k = 0; k < (int)(sizeof left / sizeof *left); k++)
            load_left(left[k], tile, Shape::rows, warp_row<Shape>(), k);
    };
    if (holds_fixed<Shape>) hold(r.held, fixed_rows(at, c)), hold(r.held_dp, fixed_rows(at, c) + Shape::whole);
    ATTN__UNROLL for (int j = 0; j < Shape::sums; j++) r.sum[j] = 0.0f;
    ATTN__UNROLL for (int j = 0; j < Shape::sums_values; j++) r.sum_values[j] = 0.0f;
}

/* Is s of a tile started while the one before is still at work? Where there are registers for it. */
template <class Shape> constexpr bool starts_early = Shape::qk <= 96;
/* Starts s of a part, and ds, as soon as each has come. */
template <class T, class Shape>
ATTN__DEVICE void start_scores(const grad_places<Shape> &at, const grad_consumer &c, const grad_tile &t,
                               grad_registers<Shape> &r)
{
    hw::mbarrier_wait(at.moving_full + t.slot, t.phase);
    if constexpr (holds_fixed<Shape>) start_product<T, Shape::part, Shape::qk>(r.s, r.held, t.moving);
    else start_product<T, Shape::rows, Shape::part, Shape::qk>(r.s, c.fixed, t.moving);
}
template <class T, class Shape>
ATTN__DEVICE void start_dp(const grad_places<Shape> &at, const grad_consumer &c, const grad_tile &t,
                           grad_registers<Shape> &r)
{
    hw::mbarrier_wait(at.dp_full + t.slot, t.phase);
    if constexpr (holds_fixed<Shape>) start_product<T, Shape::part, Shape::v>(r.ds, r.held_dp, t.moving_dp);
    else start_product<T, Shape::rows, Shape::part, Shape::v>(r.ds, c.fixed_dp, t.moving_dp);
}

/* Both, and their end; where a part's queries are, for ALiBi. */
template <class T, class Shape>
ATTN__DEVICE query_positions grad_products(const params &p, const grad_places<Shape> &at, const grad_consumer &c,
                                           const grad_tile &t, grad_registers<Shape> &r)
{
    query_positions at_part = {};
    pair_tile of_pairs = {};
    if (!starts_early<Shape>) start_scores<T, Shape>(at, c, t, r);
    if (Shape::extra && p.alibi.rank) at_part = positions_of_tile<Shape>(p, c.task, t, grad_row<Shape>());
    if constexpr (Shape::pairs) {
        of_pairs = pair_tile_of<Shape>(c.task, t, grad_row<Shape>());
        read_mask<Shape>(r.pairs, p, of_pairs);
    }
    start_dp<T, Shape>(at, c, t, r);
    if constexpr (Shape::pairs) finish_pairs<Shape>(r.pairs, p, of_pairs);
    hw::wgmma_wait<0>();
    hw::wgmma_keep(r.s);
    hw::wgmma_keep(r.ds);
    return at_part;
}

/* From these the weights and the gradients of scores, as left operands. At an edge with the NaN guard (>>mma), for
   which guard_halves comes later where consumers split columns. */
template <class T, class Shape>
ATTN__DEVICE void grad_weights(const params &p, const grad_consumer &c, const grad_tile &t, uint32_t flags,
                               const query_positions &at_part, grad_registers<Shape> &r)
{
    constexpr int part = Shape::part;
    const auto pack = [&] {
        ATTN__UNROLL for (int k = 0; k < part / 16; k++) {
            pack_left<T>(r.weights[k], r.s, k);
            pack_left<T>(r.gradients[k], r.ds, k);
        }
    };
    if (flags & EDGE) {
        const uint32_t moving = tile_address(t.moving), moving_dp = tile_address(t.moving_dp);
        const int first_key = (int)hw::load_shared_word(c.task + 8) + grad_row<Shape>();
        if (flags & NONFINITE_INSIDE) {
            uint32_t of_task[4];
            hw::load_shared(of_task, c.task);
            make_nonfinite_scores<T, Shape>(r.s, p, of_task, first_key, moving);
        }
        grads_of_tile<T, Shape, true>(r.s, r.ds, p, first_key, t.values, at_part, r.pairs);
        if constexpr (!Shape::splits) {
            if (flags & NONFINITE_DP) guard_slot<T, Shape::v, part>(r.sum_values, r.s, moving_dp);
            if (flags & NONFINITE_MOVING) guard_slot<T, Shape::qk, part>(r.sum, r.ds, moving);
        }
        pack();
    } else {
        grads_of_tile<T, Shape, false>(r.s, r.ds, p, 0, t.values, at_part, r.pairs);
        pack();
    }
}

/* What a product that runs reads and writes stays where it is. */
template <class Shape> ATTN__DEVICE void keep_grads(grad_registers<Shape> &r)
{
    hw::wgmma_keep(r.sum), hw::wgmma_keep(r.sum_values);
    if (!Shape::splits) hw::wgmma_keep(r.gradients), hw::wgmma_keep(r.weights);
}
/* Starts dv += weights . moving_dp and dk += gradients . moving. */
template <class T, class Shape> ATTN__DEVICE void add_grads(const grad_tile &t, grad_registers<Shape> &r)
{
    keep_grads(r);
    hw::wgmma_fence();
    ATTN__UNROLL for (int k = 0; k < Shape::part / 16; k++)
        hw::wgmma<T, Shape::v, true>(r.sum_values, r.weights[k], wgmma_desc(t.moving_dp + wgmma_down(k)), true);
    ATTN__UNROLL for (int k = 0; k < Shape::part / 16; k++)
        hw::wgmma<T, Shape::qk, true>(r.sum, r.gradients[k], wgmma_desc(t.moving + wgmma_down(k)), true);
    hw::wgmma_commit();
}

/* The gradients of scores to where both consumers read them, and where they split columns the weights, behind them */
template <class Shape>
ATTN__DEVICE void leave_gradients(const grad_places<Shape> &at, const grad_consumer &c, const grad_tile &t,
                                  const grad_registers<Shape> &r)
{
    const int lane = Shape::splits ? hw::lane_anew() : hw::lane();
    const int row = warp_row<Shape>() + lane % 16, chunk = t.first / 8 + lane / 16;
    ATTN__UNROLL for (int k = 0; k < Shape::part / 16; k++) {
        const uint32_t to = t.gradients + chunk_of(row, chunk + 2 * k, Shape::rows);
        hw::stmatrix(to, r.gradients[k]);
        if (Shape::splits) hw::stmatrix(to + Shape::left, r.weights[k]);
    }
    hw::fence_async();
    hw::sync_warp();
    if (c.elected) hw::mbarrier_arrive(at.left + t.slot);
}
/* d += 16 columns of a left operand . 16 rows of a tile of Rows: this consumer's half of its columns */
template <class T, int Columns, int Rows, bool TransposeA>
ATTN__DEVICE void multiply_half(float (&d)[half_columns<Columns>::numbers], uint64_t left, uint32_t right, int consumer,
                                bool adds)
{
    typedef half_columns<Columns> half;
    if constexpr (half::whole != 0)
        hw::wgmma<T, half::whole, TransposeA, true>(
            numbers_from<0, half::whole / 2>(d), left,
            wgmma_desc(right + wgmma_along(half::first(consumer) / 16, Rows)), adds);
    if constexpr (half::rest != 0)
        hw::wgmma<T, half::rest, TransposeA, true>(
            numbers_from<half::whole / 2, half::rest / 2>(d), left,
            wgmma_desc(right + wgmma_along(half::first_of_rest(consumer) / 16, Rows)), adds);
}
/* Starts dv and dk of these columns, of all queries. */
template <class T, class Shape>
ATTN__DEVICE void add_halves(const grad_places<Shape> &at, const grad_consumer &c, uint32_t tile,
                             grad_registers<Shape> &r)
{
    constexpr int rows = Shape::rows, part = Shape::part;
    keep_grads(r);
    hw::wgmma_fence();
    ATTN__UNROLL for (int k = 0; k < Shape::moving / 16; k++) {
        const grad_tile t = grad_tile_at(at, c, tile, k * 16 / part);
        const uint32_t down = wgmma_down(k % (part / 16)), left = wgmma_tile(t.gradients, rows) + wgmma_along(k, rows);
        multiply_half<T, Shape::v, part, false>(r.sum_values, wgmma_desc(left + (Shape::left >> 4)),
                                                t.moving_dp + down, c.number, true);
        multiply_half<T, Shape::qk, part, false>(r.sum, wgmma_desc(left), t.moving + down, c.number, true);
    }
    hw::wgmma_commit();
}
/* The NaN guard there, when both have left what they have */
template <class T, class Shape, int Columns>
ATTN__DEVICE void guard_half(float (&d)[half_columns<Columns>::numbers], uint32_t gradients, uint32_t tile,
                             int consumer)
{
    constexpr int part = Shape::part, bytes = tile_bytes<part, Columns>;
    const int thread = hw::thread() - 128, many = hw::threads() - 128;
    bool some = false;
    ATTN__LOOP for (int n = 0; n < Shape::parts; n++)
        some = has_nonfinite<T, part, Columns>(tile + n * bytes, thread, many) || some;
    if (!hw::barrier_or(GUARD, many, some)) return;
    mark_half<T, Columns, part, Shape::rows>(d, gradients, grad_row<Shape>(), tile, Shape::parts, consumer);
    ATTN__LOOP for (int n = 0; n < Shape::parts; n++) clear_slot<T, Columns, part>(tile + n * bytes);
}
template <class T, class Shape>
ATTN__DEVICE void guard_halves(const grad_consumer &c, const grad_tile &first, uint32_t flags, grad_registers<Shape> &r)
{
    const int consumer = hw::anew(c.number);            /* what is made of it is not kept */
    if (flags & NONFINITE_DP)
        guard_half<T, Shape, Shape::v>(r.sum_values, first.gradients, tile_address(first.moving_dp), consumer);
    if (flags & NONFINITE_MOVING)
        guard_half<T, Shape, Shape::qk>(r.sum, first.gradients, tile_address(first.moving), consumer);
}
/* The start of dq, when both have left theirs, with this consumer's columns of k; and its sum to those in the
   workspace. */
template <class T, class Shape>
ATTN__DEVICE void start_dq(const grad_places<Shape> &at, const grad_consumer &c, const grad_tile &t,
                           float (&dq)[Shape::half_dq::numbers])
{
    constexpr int rows = Shape::rows;
    const uint32_t right = wgmma_tile(fixed_rows(at, c), rows), left = wgmma_tile(t.gradients, rows);
    hw::wgmma_keep(dq);
    hw::wgmma_fence();
    ATTN__UNROLL for (int k = 0; k < rows / 16; k++)
        multiply_half<T, Shape::columns_dq, rows, true>(dq, wgmma_desc(left + wgmma_down(k)), right + wgmma_down(k),
                                                        c.number, k != 0);
    hw::wgmma_commit();
}
/* Its sums to those of the workspace, where this thread has four numbers of each eight columns; first: stored there */
template <class Shape>
ATTN__DEVICE void add_dq(float *to, const float (&dq)[Shape::half_dq::numbers], int consumer, bool first)
{
    ATTN__UNROLL for (int j = 0; j < Shape::half_dq::numbers; j += 4) {
        const float four[4] = {dq[j], dq[j + 1], dq[j + 2], dq[j + 3]};
        const int column = Shape::half_dq::column(consumer, j);
        const bool exists = Shape::qk == Shape::columns_dq || column < Shape::qk;   /* the last panel of 96 has 32 */
        if (exists) add_part(to + column * Shape::moving, four, first);
    }
}
/* A softcap makes scores of infinite keys finite, and their gradients -0: what was added becomes NaN where such a pair
   is not excluded. One key after the other: rare. */
template <class T, class Shape>
ATTN__DEVICE void mark_dq(float *to, const params &p, const grad_consumer &c, uint32_t gradients)
{
    uint32_t task[4], found = 0;
    hw::load_shared(task, c.task);
    const int query = hw::warp() % 4 * 16 + hw::lane() / 4, own = hw::lane() % 4 * 2;
    ATTN__LOOP for (int key = 0; key < Shape::rows; key++) {
        bool counts[2];
        if (key % 32 == 0)                              /* each lane looks at one of 32 */
            found = hw::ballot(is_nonfinite_key<T>(p, task, (int)task[2] + key + hw::lane()));
        if (!(found >> key % 32 & 1)) continue;
        ATTN__UNROLL for (int e = 0; e < 2; e++) {
            const uint32_t two = hw::load_shared_word(gradients + chunk_of(key, query / 8 + e, Shape::rows) +
                                                      query % 8 / 2 * 4);
            counts[e] = (two >> 16 * (query % 2) & 0xffff) != 0;
        }
        each_number<T>(p, task, (int)task[2] + key, [&](int column, float number) {
            const int x = column % 8 - own;
            if (is_finite(number) || x / 2 || x < 0 || !Shape::half_dq::has(c.number, column)) return;
            ATTN__UNROLL for (int e = 0; e < 2; e++)
                if (counts[e])
                    hw::add_to_global(to + column / 8 * (Shape::moving * 8) + 2 * e + x, float_of(0x7fc00000u));
        });
    }
}
/* When it is the block's turn, and that it is over */
template <class T, class Shape>
ATTN__DEVICE void finish_dq(const hopper_grad_work &m, const grad_places<Shape> &at, const grad_consumer &c,
                            const grad_tile &t, uint32_t flags, uint32_t place,
                            const float (&dq)[Shape::half_dq::numbers])
{
    const params &p = m.g.p;
    float *const to = dq_part<Shape>(m, place);
    if (m.g.turns) hw::mbarrier_wait(at.turn + t.slot, t.phase);
    if (p.dq.rank) {
        add_dq<Shape>(to, dq, c.number, m.g.turns && flags >> TURN_AT == 0);
        if (Shape::extra && (flags & NONFINITE_INSIDE) && p.softcap != 0.0f) mark_dq<T, Shape>(to, p, c, t.gradients);
    }
    hw::sync_warp();
    if (m.g.turns && c.elected) hw::mbarrier_arrive(at.added + t.slot);
}

/* What came with a tile is done with. */
template <class Shape>
ATTN__DEVICE void release_tile(const grad_places<Shape> &at, const grad_consumer &c, const grad_tile &t)
{
    hw::sync_warp();
    if (c.elected) hw::mbarrier_arrive(at.moving_empty + t.slot);
}

/* A tile, part by part: its products, what it adds to the sums, and dq. True if it is the last of its task. With
   starts_early s of the tile is there already: that of the next tile is started before what this one adds to dq, which
   needs what both consumers leave, so that one may be half a tile ahead, and while it is at work with its numbers, the
   tensor cores have products of the other. (After the last tile it is s of this one again, which nobody reads, and
   whose slot may be filled meanwhile: the compiler lets products run beside other work only where they are started on
   every way.) dq is found, and not added, where it isn't wanted: calls for dk and dv alone are rare. */
template <class T, class Shape>
ATTN__DEVICE bool grads_of_moving(const hopper_grad_work &m, const grad_places<Shape> &at, const grad_consumer &c,
                                  uint32_t tile, grad_registers<Shape> &r)
{
    constexpr bool early = starts_early<Shape>;
    static_assert(!early || Shape::parts == 1, "s of the next tile has a place");
    const params &p = m.g.p;
    const grad_tile t = grad_tile_at(at, c, tile);
    uint32_t flags = 0;
    float dq[Shape::half_dq::numbers];
    ATTN__LOOP for (int n = 0; n < Shape::parts; n++) {
        const grad_tile part = grad_tile_at(at, c, tile, n);
        const query_positions at_part = grad_products<T>(p, at, c, part, r);
        grad_weights<T>(p, c, part, hw::load_shared_word(t.words), at_part, r);
        leave_gradients(at, c, part, r);
        if (p.dk.rank || p.dv.rank) add_grads<T>(part, r);
        flags = hw::load_shared_word(t.words);
        if (early) start_scores<T>(at, c, grad_tile_at(at, c, tile + !(flags & LAST)), r);
        hw::wgmma_wait<early>();
        keep_grads(r);
    }
    const uint32_t place = hw::load_shared_word(t.words + 12);
    release_tile(at, c, t);
    hw::mbarrier_wait(at.left + t.slot, t.phase);
    start_dq<T>(at, c, t, dq);
    hw::wgmma_wait<0>();
    hw::wgmma_keep(dq);
    if (early) hw::wgmma_keep(r.s);
    if (early && holds_fixed<Shape>) hw::wgmma_keep(r.held);
    finish_dq<T>(m, at, c, t, flags, place, dq);
    return (flags & LAST) != 0;
}
/* The same where consumers split columns, each with its part of the tile. What dq comes to is added while products for
   dv and dk run, which are found, too, where they aren't wanted. */
template <class T, class Shape>
ATTN__DEVICE bool halves_of_moving(const hopper_grad_work &m, const grad_places<Shape> &at, const grad_consumer &c,
                                   uint32_t tile, grad_registers<Shape> &r)
{
    static_assert(Shape::parts == Shape::consumers, "each has its part");
    const grad_tile part = grad_tile_at(at, c, tile, c.number);
    const query_positions at_part = grad_products<T>(m.g.p, at, c, part, r);
    const uint32_t flags = hw::load_shared_word(part.words), place = hw::load_shared_word(part.words + 12);
    float dq[Shape::half_dq::numbers];
    grad_weights<T>(m.g.p, c, part, flags, at_part, r);
    leave_gradients(at, c, part, r);
    hw::mbarrier_wait(at.left + part.slot, part.phase);
    if (flags & EDGE) guard_halves<T>(c, grad_tile_at(at, c, tile), flags, r);
    start_dq<T>(at, c, part, dq);
    add_halves<T>(at, c, tile, r);
    hw::wgmma_wait<1>();
    hw::wgmma_keep(dq);
    finish_dq<T>(m, at, c, part, flags, place, dq);
    hw::wgmma_wait<0>();
    keep_grads(r);
    release_tile(at, c, part);
    return (flags & LAST) != 0;
}

/* A consumer: a warpgroup with 64 rows of each task. */
template <class T, class Shape>
ATTN__DEVICE void hopper_grad_multiply(const hopper_grad_work &m, const grad_places<Shape> &at)
{
    const params &p = m.g.p;
    grad_consumer c = grad_consumer_of(at);
    uint32_t tile = 0;                      /* as the producer counts */
    for (uint32_t started = 0;; started++) {
        grad_registers<Shape> r;
        uint32_t of_task[4];                /* the producer's words: load_fixed */
        set_task(at, started, c);
        hw::mbarrier_wait(at.fixed_full + c.slot, started / Shape::fixed_slots & 1);
        hw::load_shared(of_task, c.task);
        if (of_task[0] == NO_TASK) break;
        if (of_task[3] & NONFINITE) clear_slot<T, Shape::qk, Shape::rows>(fixed_rows(at, c));
        start_grads(at, c, r);
        if constexpr (starts_early<Shape>)
            if (!(of_task[3] & NO_TILES)) {
                start_scores<T>(at, c, grad_tile_at(at, c, tile), r);
                hw::wgmma_wait<0>();
                hw::wgmma_keep(r.s);
            }
        ATTN__LOOP for (bool last = (of_task[3] & NO_TILES) != 0; !last; tile++) {
            if constexpr (Shape::splits) last = halves_of_moving<T>(m, at, c, tile, r);
            else last = grads_of_moving<T>(m, at, c, tile, r);
        }
        tile_row keys[2];
        hw::load_shared(of_task, c.task);
        set_places(keys, (int)of_task[0], (int)of_task[1], (int)of_task[2] + grad_row<Shape>());
        if (p.ragged) own_places(p, keys, true);
        hw::sync_warp();
        if (c.elected) hw::mbarrier_arrive(at.fixed_empty + c.slot);
        if constexpr (Shape::splits) store_halves<T, Shape::qk, Shape::v>(p, r.sum, r.sum_values, keys, c.number);
        else store_dk_dv<T, Shape::qk, Shape::v>(p, r.sum, r.sum_values, keys);
    }
}

template <class T, class Shape>
ATTN__KERNEL(GRAD_THREADS, 1) void hopper_grad_kernel(ATTN__PARAM hopper_grad_work m)
{
#if ATTN__HAVE_WGMMA
    typedef Shape shape;
    ATTN__SHARED(shared);
    const grad_places<shape> at = grad_places_in<shape>(shared);
    if (hw::thread() == 0) {
        init_slots(at.fixed_full, at.fixed_empty, shape::fixed_slots, 4 * shape::consumers);
        init_slots(at.moving_full, at.moving_empty, 2, 4 * shape::consumers + 2 * (m.g.turns != NULL));
        init_slots(at.turn, at.added, 2, 4 * shape::consumers);
        for (int n = 0; n < 2; n++) {
            hw::mbarrier_init(at.dp_full + n, 1);                   /* their slots are empty when the tile's is */
            hw::mbarrier_init(at.left + n, 4 * shape::consumers * (shape::splits ? 1 : shape::parts));
        }
        hw::mbarrier_fence_init();
    }
    hw::sync();
    if (hw::warp() < 4) {
        hw::setmaxnreg_dec<shape::registers_producer>();
        if (hw::warp() == 0) hopper_grad_load(m, at);
        else keep_turns(m, at);
    } else {
        hw::setmaxnreg_inc<shape::registers_consumer>();
        hopper_grad_multiply<T>(m, at);
    }
#else
    hw::missing();
#endif
}

/* Calls f with every kernel of stage 2, for attn_cuda_prepare. */
template <class T, int D, bool Extra, class F> void each_mma_kernel_as(F f)
{
    constexpr int keys = mma_keys<D, Extra>, warps = mma_decode_warps<D>, groups = CODES_IN_GROUPS;
    constexpr bool whole = mma_is_whole<D>;
    f((const void *)mma_forward_kernel<T, D, Extra, keys, 1, NUMBERS, mma_tile_shape<D, Extra>::row_blocks>);
    f((const void *)mma_forward_kernel<T, D, Extra, keys, 1, NUMBERS, mma_small_shape<D, Extra>::row_blocks>);
    if constexpr (whole) f((const void *)mma_forward_kernel<T, D, Extra, mma_decode_keys<D>, warps, NUMBERS, 1>);
    if constexpr (whole && !Extra && D % 32 == 0) {
        f((const void *)mma_forward_kernel<T, D, Extra, mma_decode_keys<D, CODES>, warps, CODES, 1>);
        f((const void *)mma_forward_kernel<T, D, Extra, mma_decode_keys<D, groups>, warps, groups, 1>);
    }
    if constexpr (whole && !Extra) f((const void *)mma_weights<T, D>);
    if constexpr (ATTN_CUDA_GRADIENTS) {
        constexpr bool all = mma_has_all<T, D>;
        constexpr int size = all ? grad_size<D> : D;
        if constexpr (!all) f((const void *)mma_grad_queries<T, D, Extra>);
        f((const void *)mma_grad_keys<T, size, Extra, all>);
        f((const void *)mma_grad_prepare<grad_shape<size, Extra, all>::queries>);
        if constexpr (Extra) f((const void *)mma_grad_pairs<T, D>);
    }
}
template <class F> void each_mma_kernel(head_sizes<>, F f)
{
    f((const void *)merge_splits);
    f((const void *)find_packed_tiles);
    if constexpr (ATTN_CUDA_GRADIENTS) {
        f((const void *)clear_dq_sums);
        f((const void *)clear_in_front);
        f((const void *)sum_sinks);
        f((const void *)sum_pairs);
        each_type([&](auto type) { f((const void *)store_dq_sums<decltype(type)>); });
    }
}
template <int D, int... More, class F> void each_mma_kernel(head_sizes<D, More...>, F f)
{
    each_type([&](auto type) {
        each_mma_kernel_as<decltype(type), D, false>(f);
        if constexpr (mma_is_whole<D>) each_mma_kernel_as<decltype(type), D, true>(f);
    });
    with_f32_size(D, head_sizes<D>(), [&](auto d) {
        constexpr int halves = decltype(d)::value;
        f((const void *)mma_forward_kernel<hw::f32, halves, true, mma_keys<halves, true>, 1, NUMBERS, 1>);
        if constexpr (ATTN_CUDA_GRADIENTS) {
            f((const void *)mma_grad_queries<hw::f32, halves, true>);
            f((const void *)mma_grad_keys<hw::f32, halves, true, false>);
            f((const void *)mma_grad_prepare<grad_shape<halves, false>::queries>);
            f((const void *)mma_grad_pairs<hw::f32, halves>);
        }
    });
    each_mma_kernel(head_sizes<More...>(), f);
}

/* ---- the host's side of stage 3 */
template <class... Heads> struct head_pairs {};
typedef head_pairs<head_pair<64, 64>, head_pair<96, 96, false>, head_pair<128, 128>, head_pair<192, 128>,
                   head_pair<192, 192, false>, head_pair<256, 256>> hopper_heads;
/* Does stage 3's `size` take one of these? 128 takes those of 96 with options, too. largest: stage 2's, which stage 3
   does not go beyond. */
template <int... Sizes> constexpr bool takes_one_of(int size, int largest, head_sizes<Sizes...>)
{
    const int smaller = size <= 64 ? 0 : size <= 128 ? 64 : size - 64;
    return ((Sizes > smaller && Sizes <= size && Sizes <= largest) || ...);
}
template <class Heads>
constexpr bool has_heads = takes_one_of(Heads::qk, largest_of(mma_head_sizes()), head_sizes<ATTN_CUDA_HOPPER_DIMS>());
/* f(the first of these that a call fits in); false where there is none */
template <class F> bool with_heads(const params &, head_pairs<>, F) { return false; }
template <class Heads, class... More, class F> bool with_heads(const params &p, head_pairs<Heads, More...>, F f)
{
    if (!has_heads<Heads> || p.size_q > Heads::qk || p.size_v > Heads::v || (has_extra(p) && !Heads::all))
        return with_heads(p, head_pairs<More...>(), f);
    if constexpr (has_heads<Heads>) f(Heads());
    return true;
}

template <class T, class Heads, class F> void each_hopper_gradient(F f)
{
    f((const void *)hopper_grad_kernel<T, hopper_grad_shape<Heads>>);
    if constexpr (Heads::all) {
        f((const void *)hopper_grad_kernel<T, hopper_grad_shape<Heads, true>>);
        f((const void *)hopper_grad_kernel<T, hopper_grad_shape<Heads, true, true>>);
    }
}
template <class F> void each_hopper_kernel(head_pairs<>, F f)
{
    each_type([&](auto type) {
        typedef decltype(type) T;
        f((const void *)hopper_pairs_prepare<T>);
        if constexpr (ATTN_CUDA_GRADIENTS) f((const void *)hopper_grad_prepare<T>);
    });
    f((const void *)find_mask_tiles);
}
template <class Heads, class... More, class F> void each_hopper_kernel(head_pairs<Heads, More...>, F f)
{
    each_type([&](auto type) {
        typedef decltype(type) T;
        if constexpr (has_heads<Heads>) {
            f((const void *)hopper_forward_kernel<T, hopper_shape<Heads, false>>);
            if constexpr (Heads::all) {
                f((const void *)hopper_forward_kernel<T, hopper_shape<Heads, true>>);
                f((const void *)hopper_forward_kernel<T, hopper_shape<Heads, false, true>>);
            }
            if constexpr (ATTN_CUDA_GRADIENTS) each_hopper_gradient<T, Heads>(f);
        }
    });
    each_hopper_kernel(head_pairs<More...>(), f);
}

/* The arrays of a call that TMA moves, and their maps: what of, where it lies, for tiles of how many rows, of how many
   heads in them (task_order), whether the driver made it. Most: of each input of a backward, which may need three
   more for the forward that finds its stats. A plan keeps them, as bytes: what it lies in is not aligned. */
enum mapped { MAP_Q, MAP_K, MAP_V, MAP_D_OUT, MAP_OUT };
struct map_made {
    const void   *data;
    uint8_t       of, rows, packed, fine;
    unsigned char map[sizeof(hw::tensor_map)];
};
enum { MOST_MAPS = 7 };
struct maps_made {
    map_made made[MOST_MAPS];
    int      count = 0;
};
inline const attn__array &array_of(const params &p, mapped of)
{
    return of == MAP_Q ? p.q : of == MAP_K ? p.k : of == MAP_V ? p.v : of == MAP_D_OUT ? p.d_out : p.out;
}

/* Makes one; true = fine. An axis of one element may have any stride. */
inline bool make_map(const params &p, const device &d, mapped of, int rows, int packed, hw::tensor_map *map)
{
    const attn__array &a = array_of(p, of);
    const bool of_keys = of == MAP_K || of == MAP_V;
    const int row = packed ? 2 : 1, head = 3 - row;             /* where there are more heads, these come first */
    int64_t size[4] = {of == MAP_Q || of == MAP_K ? p.size_q : p.size_v, 0, 0,
                       of_keys ? batch_of_keys(p) : batch_of_rows(p)}, stride[4] = {1};
    size[row] = of_keys ? p.keys : p.queries;
    if (of_keys && p.page) size[row] = p.page, size[3] = p.pool;
    size[head] = of_keys ? p.heads_kv : p.heads;
    stride[row] = a.stride[2];
    stride[head] = a.stride[1];
    stride[3] = a.stride[0];
    for (int i = 1; i < 4; i++)
        if (size[i] == 1) stride[i] = (size[0] + 7) / 8 * 8;
    return hw::tensor_map_make(d.encode, map, a.data, size, stride, packed ? 1 << packed : rows,
                               packed ? rows >> packed : 1) == 0;
}

/* The same, but what the call or its plan has made before is not made again. */
inline bool map_rows(const params &p, const device &d, mapped of, int rows, hw::tensor_map *map, int packed = 0)
{
    maps_made *const all = d.maps;
    const void *const data = array_of(p, of).data;
    for (int i = 0; all && i < all->count; i++) {
        const map_made &m = all->made[i];
        if (m.of != of || m.data != data || m.rows != rows || m.packed != packed) continue;
        memcpy(map, m.map, sizeof *map);
        return m.fine;
    }
    const bool fine = make_map(p, d, of, rows, packed, map);
    if (all && all->count < MOST_MAPS) {
        map_made &m = all->made[all->count++];
        m.data = data;
        m.of = (uint8_t)of, m.rows = (uint8_t)rows, m.packed = (uint8_t)packed, m.fine = fine;
        memcpy(m.map, map, sizeof *map);
    }
    return fine;
}

/* Rows of K and V that TMA loads at once, of a tile of so many keys: in pages, a power of 2 that divides the page */
inline int rows_of_box(const params &p, int keys)
{
    int rows = 8;               /* the least: rows stand in shared memory in eights */
    if (!p.page) return keys;
    while (keys % (2 * rows) == 0 && p.page % (2 * rows) == 0) rows *= 2;
    return rows;
}

/* Does the driver make a map? Where there are no data yet, it is taken to: see hopper_workspace. */
inline bool can_map(const params &p, const device &d, mapped of, int rows, int packed = 0)
{
    hw::tensor_map map;
    return !array_of(p, of).data || map_rows(p, d, of, rows, &map, packed);
}

/* f(the shape of a block of the forward) */
template <class F> bool with_hopper_shape(const params &p, F f)
{
    return with_heads(p, hopper_heads(), [&](auto heads) {
        typedef decltype(heads) Heads;
        if (asks(p, EACH_PAIR)) f(hopper_shape<Heads, false, Heads::all>());
        else if (has_extra(p)) f(hopper_shape<Heads, Heads::all>());
        else f(hopper_shape<Heads, false>());
    });
}

/* How many heads, as a power of 2, stand in one tile of the forward's: as many as leave the fewest tiles, where these
   still fill the device, and heads do not differ. A warp's 16 rows are at most those of one query. */
inline int hopper_packed(const params &p, const device &d, int rows)
{
    const int64_t group = p.heads / p.heads_kv, heads = p.batch * p.heads;
    if (p.packed_queries) return 0;
    const auto tiles = [&](int packed) { return (heads >> packed) * (((p.queries << packed) + rows - 1) / rows); };
    int best = 0;
    for (int packed = 1; packed <= 4 && group % (1 << packed) == 0 && !asks(p, EACH_HEAD); packed++)
        if (tiles(packed) < tiles(best) && tiles(packed) >= d.processors) best = packed;
    return best;
}
/* Has a call options of both kinds? The forward has kernels for one of them, the backward's have both. */
static bool has_both_kinds(const params &p) { return asks(p, EACH_PAIR) && asks(p, EXTRA, EACH_PAIR); }
static const char *hopper_covers(const params &p, const device &d, bool backward)
{
    ATTN__WANT(d.arch == 90, "the device is not sm_90");
    ATTN__WANT(d.compiled >= 90, "compiled without sm_90a: add -gencode=arch=compute_90a,code=sm_90a");
    if (const char *const why = mma_covers_as(p, d, backward, IN_STAGE_3)) return why;
    ATTN__WANT(with_heads(p, hopper_heads(), [](auto) {}), "a head size beyond those of ATTN_CUDA_HOPPER_DIMS");
    ATTN__WANT(!backward || p.stats.rank || !has_both_kinds(p) || !has_starts(p) || mma_has_starts(p),
               "stats of entries with starts, for which stage 2 has no kernel of this head size");
    ATTN__WANT(backward || !has_both_kinds(p),
               "softcap, ALiBi or a scale that is not positive beside a bias, a mask or dropout");
    ATTN__WANT(!p.bias.rank || p.bias.type == ATTN_F32 || p.bias.type == p.q.type,
               "the bias is neither f32 nor of the type of q");
    ATTN__WANT(p.out.rank, "no out is wanted");
    const int64_t queries = queries_of_entry(p);
    ATTN__WANT(queries >= 64, "few queries: split keys and packed heads are better");
    ATTN__WANT(backward || p.keys < 1024 || 2 * p.batch * p.heads * ((queries + 127) / 128) >= d.processors,
               "few blocks of queries: split keys fill the device");
    ATTN__WANT(p.size_v > 0, "the values have no columns");
    ATTN__WANT(p.page % 8 == 0, "pages of a number of rows that is not a multiple of 8");
    ATTN__WANT(!p.page || p.pool > 0, "the pool has no page");
    ATTN__WANT(d.encode, "the driver has no TMA");
    int rows = 0, keys = 0;
    with_hopper_shape(p, [&](auto shape) {
        typedef decltype(shape) Shape;
        rows = backward ? grad_part(asks(p, EACH_PAIR), Shape::qk) : Shape::rows;
        keys = backward ? grad_keys(Shape::qk) : rows_of_box(p, Shape::keys);
    });
    ATTN__WANT(can_map(p, d, MAP_Q, rows, backward ? 0 : hopper_packed(p, d, rows)) && can_map(p, d, MAP_K, keys) &&
               can_map(p, d, MAP_V, keys) && (!backward || can_map(p, d, MAP_D_OUT, rows)),
               "the driver makes no tensor map of q, k, v or d_out (a stride that is not positive, or too large)");
    return NULL;
}

/* With Pairs: of the workspace, and what lies there, found */
inline int64_t pairs_bytes(const params &p)
{
    const int64_t flags = (flags_of_arrays(p) * (int64_t)sizeof(int) + 255) / 256 * 256;
    return flags + (mask_words(p) * (int64_t)sizeof(uint32_t) + 255) / 256 * 256;
}
template <class T> int find_pairs(hopper_work &m, char *at, const queue &stream)
{
    const params &p = m.p;
    const int64_t flags = flags_of_arrays(p);
    m.pairs.nonfinite = (int *)(void *)at;
    m.pairs.mask = (uint32_t *)(void *)(at + (flags * (int64_t)sizeof(int) + 255) / 256 * 256);
    m.pairs.batch = mask_words(p, 0), m.pairs.head = mask_words(p, 1), m.pairs.row = mask_words(p, 2);
    m.pairs.by_chunks = p.bias.rank && has_aligned_rows(p.bias, p.batch, p.heads, p.queries);
    return (int)run(hopper_pairs_prepare<T>, flags + mask_words(p) / 4, stream, m);
}
/* What a mask says of tiles: its bytes, its parts, its launch */
static int64_t mask_layout(const params &p, void *at, mask_tiles *to)
{
    mask_tiles let = mask_tiles();
    if (to) *to = let;
    if (!p.mask.rank) return 0;
    let.keys = MASK_TILE_KEYS;
    let.heads = (int)(p.mask.stride[1] ? p.heads : 1);
    let.parts = (int)(p.mask.stride[2] ? (p.queries + MASK_ROWS - 1) / MASK_ROWS : 1);
    let.words = (int)((p.keys + 32 * let.keys - 1) / (32 * let.keys));
    let.of_part = p.mask.stride[2] ? let.words : 0;
    let.of_head = p.mask.stride[1] ? let.parts * let.words : 0;
    let.of_batch = p.mask.stride[0] ? let.heads * let.parts * let.words : 0;
    const int64_t words = (p.mask.stride[0] ? p.batch : 1) * let.heads * let.parts * let.words;
    if (to) let.some = (uint32_t *)at, let.whole = let.some + words, *to = let;
    return (words * 2 * (int64_t)sizeof(uint32_t) + 255) / 256 * 256;
}
inline int fill_mask_tiles(const params &p, const mask_tiles &to, const queue &stream)
{
    const mask_work m = {p, to};
    const int64_t words = to.whole - to.some;
    return launch(find_mask_tiles, blocks_for(words * (to.keys / 16)), 32 * WARPS, WARPS * 8, stream, m);
}

/* Where in the workspace the forward has the table of packed tiles, for the smallest there are; with Pairs the flags of
   V and what a mask says of pairs; what it says of tiles. A counter of tickets comes first. */
struct forward_layout { int64_t table, pairs, tiles, bytes; };
static forward_layout hopper_forward_layout(const params &p)
{
    forward_layout at;
    at.table = has_unequal_tasks(p) ? TICKET_BYTES : 0;
    at.pairs = at.table + (p.packed_queries ? table_bytes(p, 128, false) : 0);
    at.tiles = at.pairs + (asks(p, EACH_PAIR) ? pairs_bytes(p) : 0);
    at.bytes = at.tiles + (asks(p, EACH_PAIR) ? mask_layout(p, NULL, NULL) : 0);
    return at;
}
template <class T, class Shape>
int hopper_forward_as(const params &p, const device &dev, const queue &stream)
{
    hopper_work m;
    m.p = p;
    const int packed = hopper_packed(p, dev, Shape::rows);
    m.order = task_order_of(p, false, Shape::rows, packed);
    m.box = rows_of_box(p, Shape::keys);
    if (!map_rows(p, dev, MAP_Q, Shape::rows, &m.q, packed) || !map_rows(p, dev, MAP_K, m.box, &m.k) ||
        !map_rows(p, dev, MAP_V, m.box, &m.v))
        return (int)cudaErrorInvalidValue;                      /* hopper_covers has made these maps */
    m.by_tma = Shape::q_slots == 2 && p.out.rank && p.out.type == p.q.type &&
               has_aligned_rows(p.out, p.batch, p.heads, p.queries) && map_rows(p, dev, MAP_OUT, 16, &m.out, packed);
    m.tasks = (int)(batch_of_rows(p) * p.heads >> packed) * m.order.tiles;
    m.tickets = has_unequal_tasks(p) && m.tasks > dev.processors ? (int *)p.workspace : NULL;
    int error = m.tickets ? clear_bytes(m.tickets, sizeof(int), stream) : 0;
    char *const workspace = (char *)p.workspace;
    const forward_layout at = hopper_forward_layout(p);
    m.packed = packed_tiles(), m.pairs = hopper_pairs(), m.let = mask_tiles();
    if (p.packed_queries && !error) {
        m.packed = table_at(p, workspace + at.table);
        error = fill_table(p, m.packed, Shape::rows, false, stream);
    }
    if (Shape::pairs && !error) {
        error = find_pairs<T>(m, workspace + at.pairs, stream);
        mask_layout(p, workspace + at.tiles, &m.let);
        if (m.let.some && !error) error = fill_mask_tiles(p, m.let, stream);
    }
    if (error) return error;
    return launch(hopper_forward_kernel<T, Shape>, m.tasks < dev.processors ? m.tasks : dev.processors, Shape::threads,
                  Shape::shared_bytes, stream, m);
}
static cudaError_t hopper_forward_rows(const params &p, const device &dev, const queue &stream)
{
    int error = 0;
    with_hopper_shape(p, [&](auto shape) {
        typedef decltype(shape) Shape;
        error = with_type(p.q.type, [&](auto type) {
            return hopper_forward_as<decltype(type), Shape>(p, dev, stream);
        });
    });
    return (cudaError_t)error;
}
static cudaError_t hopper_forward(const params &p, const device &dev, const queue &stream)
{
    return forward_with_pairs(p, hopper_forward_rows, dev, stream);
}

/* Keys of a block of the backward, and columns of the sums of dq in the workspace */
struct grad_sizes { int keys, columns; };
inline grad_sizes grad_sizes_of(const params &p)
{
    grad_sizes sizes = {GRAD_ROWS, 0};
    with_heads(p, hopper_heads(), [&](auto heads) {
        typedef decltype(heads) Heads;
        sizes = {grad_keys(Heads::qk), Heads::panels_qk};
    });
    return sizes;
}
static int64_t hopper_grad_layout(const params &p, unsigned char *at, hopper_grad_work *m)
{
    const int keys = grad_sizes_of(p).keys;
    const int64_t tiles_k = p.packed_keys ? most_packed_tiles(p, keys, true) : (p.keys + keys - 1) / keys;
    const int64_t rows = batch_of_rows(p) * p.heads * padded_queries(p, GRAD_ROWS) +
                         batch_of_keys(p) * p.heads_kv * tiles_k * keys;
    const int64_t flags = (rows / 32 * (int64_t)sizeof(int) + 255) / 256 * 256;
    const int64_t bytes = flags + mask_layout(p, at ? at + flags : NULL, m ? &m->let : NULL);
    const int64_t all = bytes + grad_layout(p, GRAD_ROWS, keys, GRAD_MOVING, true, at ? at + bytes : NULL,
                                            m ? &m->g : NULL);
    if (m) {
        m->nonfinite = (int *)(void *)at;
        m->padded_keys = tiles_k * keys;
    }
    return all;
}

/* With few keys or queries, and without data for arrays of which there is no tensor map, stage 2 runs: what is enough
   for smaller calls is enough for that. */
static int64_t hopper_workspace(const params &p, const device &dev, bool backward, bool smaller)
{
    const int64_t of_stage_2 = smaller ? mma_workspace(p, dev, backward, true) : 0;
    int64_t bytes = backward ? hopper_grad_layout(p, NULL, NULL) : 0, behind = 0;      /* that: first stats, then dq */
    const params forward = forward_of(p);
    if (!backward || !p.stats.rank) behind = hopper_forward_layout(forward).bytes;
    if (backward && !p.stats.rank && (smaller || hopper_covers(forward, dev, false)) &&
        behind < mma_forward_workspace(forward, dev, smaller))
        behind = mma_forward_workspace(forward, dev, smaller);
    if (backward) {
        const int64_t sums = dq_bytes(p, GRAD_ROWS, grad_sizes_of(p).columns);
        if (behind < sums) behind = sums;
    }
    if (backward && behind < pair_sums_bytes(p)) behind = pair_sums_bytes(p);
    bytes += behind + (backward ? 0 : stats_bytes(p));
    return bytes > of_stage_2 ? bytes : of_stage_2;
}

/* Stage 2's where stage 3 has none. Where entries have starts, few queries are no reason: it has to take them, too. */
static forward_fn *forward_for_stats(const params &p, const device &dev)
{
    const bool as_stage_2 = has_both_kinds(p) || (!has_starts(p) && hopper_covers(forward_of(p), dev, false));
    return as_stage_2 ? mma_forward : hopper_forward;
}
template <class T, class Heads, bool Extra, bool Pairs>
int hopper_backward_as(const params &p, const device &dev, const queue &stream)
{
    typedef hopper_grad_shape<Heads, Extra, Pairs> shape;
    hopper_grad_work m;
    int error;
    hopper_grad_layout(p, (unsigned char *)p.workspace, &m);
    if (!map_rows(p, dev, MAP_Q, shape::part, &m.q) || !map_rows(p, dev, MAP_D_OUT, shape::part, &m.d_out) ||
        !map_rows(p, dev, MAP_K, shape::rows, &m.k) || !map_rows(p, dev, MAP_V, shape::rows, &m.v))
        return (int)cudaErrorInvalidValue;                      /* hopper_covers has made these maps */
    m.g.unit = Extra ? 1.0f : LOG2E;
    error = find_stats(m.g, p.stats.rank ? NULL : forward_for_stats(p, dev), dev, stream);
    if (!error) error = fill_tables(m.g, stream);
    if (!error) error = clear_fronts(p, stream);
    if (m.let.some && !error) error = fill_mask_tiles(p, m.let, stream);
    if (!error) {
        const int64_t parts = (batch_of_rows(p) * p.heads * m.g.padded +
                               batch_of_keys(p) * p.heads_kv * m.padded_keys) / 32;
        error = run(hopper_grad_prepare<T>, parts, stream, m);
    }
    if (!error) error = find_sinks(m.g, stream);
    const dq_layout dq = {GRAD_MOVING, Heads::panels_qk, 1};
    const auto sums = [&] {
        m.g.order = task_order_of(p, true, shape::rows, 0, m.g.turns != NULL);
        m.tasks = (int)(batch_of_keys(p) * p.heads_kv) * m.g.order.tiles;
        return launch(hopper_grad_kernel<T, shape>, m.tasks < dev.processors ? m.tasks : dev.processors, GRAD_THREADS,
                      shape::shared_bytes, stream, m);
    };
    m.g.dq = dq;
    if (!error && p.dq.rank) error = sweep_once<T>(m.g, stream, sums);
    else if (!error && (p.dk.rank || p.dv.rank)) error = sums();
    return error ? error : find_pair_sums(p, m.g, GRAD_MOVING, stream);
}
static cudaError_t hopper_backward(const params &p, const device &dev, const queue &stream)
{
    int error = 0;
    with_heads(p, hopper_heads(), [&](auto heads) {
        typedef decltype(heads) Heads;
        error = with_type(p.q.type, [&](auto type) {
            typedef decltype(type) T;
            if constexpr (ATTN_CUDA_GRADIENTS) {
                constexpr bool extra = Heads::all;
                return asks(p, EACH_PAIR) ? hopper_backward_as<T, Heads, extra, extra>(p, dev, stream)
                       : has_extra(p)     ? hopper_backward_as<T, Heads, extra, false>(p, dev, stream)
                                          : hopper_backward_as<T, Heads, false, false>(p, dev, stream);
            }
            return (int)cudaErrorInvalidValue;
        });
    });
    return (cudaError_t)error;
}

} /* namespace attn__gpu */

/* ---------------------------------------------------------------------------------------------------- >>dispatch
   Which stage runs: the strongest one that covers the call on this device. */
namespace attn__gpu {

/* The kernels that do the work. Shared memory in KB, of head sizes 64, 128 and 256 where it depends on them; "all" is
   the barrier of the block, a name in capitals a named one (bar.sync), "mbarrier" one that TMA or cp.async completes.
   Registers: the most that a thread has on any architecture (nvcc 13.0); 255 is the limit.

       kernel                  threads  shared memory  barriers                      registers  FlashAttention's
       tiled_forward           256      23 (16 rows)   all                           228        forward, in f32
                                        38 (64 rows)
       tiled_grad_rows         256      58             all                           221        dot_do_o
       tiled_grad_queries      256      58             all                           240        dQ
       tiled_grad_keys         256      58             all                           255        dK, dV
       tiled_grad_bias         256      58             all                           217
       tiled_multiply          256      17             all                           168
       mma_forward_kernel      128      48, 64, 64     all, 1 (NaN guard)            255        FA2 forward
         with options          128      40, 48, 64
         of a decode           128, 64  66, 68, 72     all                           255        Flash-Decoding
           with codes          128, 64  35, 69, 41     all                           255
       mma_multiply            128      96, 32, 48     all                           244           (matrix products)
       merge_splits            128      none           none                          96         combine; a decode's
                                                                                                parts its last block
       mma_grad_keys           128      41, 73         all, 1 (NaN guard)            255        FA2 backward
         above 128 columns     256      97             all, 1                        255
       mma_grad_queries        128      64, 96         all                           255        dQ: f32, or columns not
                                                                                                32, 64, 96, ..
       mma_grad_pairs          128      32, 48, 80     all                           255        d_bias (and d_scale,
                                                                                                d_alibi)
       sum_pairs               128      none           none                          55
       clear_dq_sums           128      none           none                          22
       store_dq_sums           128      none           none                          54         convert dQ
       the four of f32         128      45 to 97       all, 1 (NaN guard)            255        in three TF32 products
       hopper_forward_kernel   512, 384 115, 194, 194  16 or 18 mbarriers, TURN      160 / 32   FA3 forward
         of 192 and 128, 192   384      210, 194       (the ping-pong), GUARD        232 / 40
         with options          384      100, 132, 196  (NaN guard)                   232 / 40
           of 192 and 128      384      180
           for each pair       384      68, 132, 196
       hopper_grad_kernel      384      131, 227, 227  14 or 16 mbarriers, GUARD     224 / 56,  FA3 backward
         of 192 and 128, 192   384      195, 227                                     232 / 40
       store_rows              128      none           none                          96         append to a cache
       rotate                  128      none           none                          113        rotary

   mma_multiply has 96 KB for tiles of 32 by 32 elements (few rows or columns), 32 for 64 by 64, 48 for 128 by 128.
   mma_forward_kernel has tiles of 128 rows; with options or head sizes above 128 of 64, and with head sizes above 64
   where a multiprocessor does not hold two blocks of 64 KB, or has no two of 128 rows: then 48 KB. Of a decode it has
   two warps with head sizes above 128, else four, or two and 34 or 36 KB (with codes 36) where two blocks of four
   do not fit; there it has at most 168 registers without options, so that an H100 holds three blocks (two of the
   kernel of f16, 128 columns and codes with a scale for each row). Codes with a scale for 32 have 36, 38 and 42 KB.
   "224 / 56": setmaxnreg gives so many to a thread of a consumer and of the producer. hopper_forward_kernel has three
   consumers, 512 threads and 160 registers with head sizes up to 64 and no options, else two. */

/* A device may run what was compiled for an older one, where kernels of newer instructions have no body. This one's
   greatest number of threads tells which it is: 128 for sm_90a, 96 from sm_80 on, else 64. */
ATTN__KERNEL(ATTN__HAVE_WGMMA ? 128 : ATTN__HAVE_MMA ? 96 : 64, 1) void compiled_for(ATTN__PARAM int nothing)
{
    (void)nothing;
}

/* What a thread knows of devices, which do not change. What could not be found is asked again. */
static thread_local device known_devices[8];
static device device_of(int number)
{
    cudaFuncAttributes compiled;
    device d = known_devices[number & 7];
    int major = 0, minor = 0;
    if (d.known == number + 1) return d;
    d = device();
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, number) == cudaSuccess &&
        cudaDeviceGetAttribute(&d.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, number) == cudaSuccess &&
        cudaDeviceGetAttribute(&d.processors, cudaDevAttrMultiProcessorCount, number) == cudaSuccess) {
        d.arch = major * 10 + minor;
        if (cudaFuncGetAttributes(&compiled, (const void *)compiled_for) == cudaSuccess)
            d.compiled = compiled.maxThreadsPerBlock >= 128 ? 90 : compiled.maxThreadsPerBlock >= 96 ? 80 : 75;
        if (d.arch == 90) d.encode = hw::tensor_map_encoder();
    }
    if (!d.compiled) cudaGetLastError();                    /* it shows when kernels are launched */
    else if (d.encode || d.arch != 90) d.known = number + 1, known_devices[number & 7] = d;
    return d;
}

/* What a stage says of itself. covers: NULL, or why not. workspace: bytes at params.workspace, 256-byte aligned;
   smaller: enough for the same call with fewer queries or keys too, and for arrays that are not there yet. */
struct stage {
    const char *name;
    const char *(*covers)(const params &p, const device &d, bool backward);
    int64_t     (*workspace)(const params &p, const device &d, bool backward, bool smaller);
    cudaError_t (*forward)(const params &p, const device &d, const queue &stream);
    cudaError_t (*backward)(const params &p, const device &d, const queue &stream);
};
static const char *tiled_covers(const params &, const device &, bool) { return NULL; }
static int64_t tiled_workspace(const params &p, const device &, bool backward, bool);
static cudaError_t tiled_forward_run(const params &p, const device &, const queue &stream);
static cudaError_t tiled_backward_run(const params &p, const device &, const queue &stream);

/* The strongest last. */
static const stage stages[] = {
    {"stage 1, tiles of f32", tiled_covers, tiled_workspace, tiled_forward_run, tiled_backward_run},
    {"stage 2, mma.sync", mma_covers, mma_workspace, mma_forward, mma_backward},
    {"stage 3, wgmma", hopper_covers, hopper_workspace, hopper_forward, hopper_backward}};
static int stage_count() { return ATTN_CUDA_SIMPLE ? 1 : (int)(sizeof stages / sizeof *stages); }

/* How a fast stage is to have codes of 8 bits. The decode of stage 2 reads them (reads_codes); else its kernels with
   Extra make numbers of tiles (tiles_take_codes); where they cannot, and in stage 3, k and v become numbers of the type
   of q in front of what the stage needs of the workspace, and no longer lie in pages. Stage 3 with numbers multiplies
   more than twice as fast, but reads and writes five bytes for one: of 256 rows of a head on, that is the lesser time
   (computed, not measured). Stage 2 would gain by numbers, too, of some 600 rows on, but has no memory for them. */
enum { MOST_ROWS_OF_CODES = 256 };
static int64_t become_halves(const params &p, attn__array &a, attn__array &scale, int64_t columns, char *at)
{
    if (a.type != ATTN_I8 || !is_16_bit(p.q) || p.is_backward) return 0;
    a = keys_of(p, (float *)(void *)at, p.heads_kv, columns);
    a.type = p.q.type;
    scale = attn__array();
    return (batch_of_keys(p) * p.heads_kv * p.keys * columns * 2 + 255) / 256 * 256;
}
/* k and v become numbers. Returns the bytes for them; at: NULL where there is no workspace yet. */
static int64_t make_halves(params &p, char *at)
{
    const int64_t of_k = become_halves(p, p.k, p.k_scale, p.size_k, at);
    const int64_t bytes = of_k + become_halves(p, p.v, p.v_scale, p.size_v, at ? at + of_k : NULL);
    if (bytes) p.page = p.pool = 0, p.page_table = attn__array();
    return bytes;
}
inline bool has_few_rows_of_codes(const params &p)
{
    return p.heads > 0 && queries_of_entry(p) * (p.heads / p.heads_kv) < MOST_ROWS_OF_CODES;
}
/* Can numbers be made first? Of both in pages, or none. */
inline bool can_be_numbers(const params &p)
{
    return !p.page || (p.pool && p.k.type == ATTN_I8 && (!p.v.rank || p.v.type == ATTN_I8));
}
/* Makes p what stage s is given. Returns the bytes for numbers. */
static int64_t hand_over_codes(params &p, const stage &s, const device &d, char *at)
{
    if (!has_codes(p) || reads_codes(p)) return 0;
    if (tiles_take_codes(p)) {
        params tiles = p;
        for (attn__array *const a : {&tiles.k, &tiles.v})
            if (a->type == ATTN_I8) a->type = CODES_FOR_TILES;
        if (s.forward == mma_forward || !can_be_numbers(p) ||
            (has_few_rows_of_codes(p) && !mma_covers(tiles, d, false))) {       /* which stage 3 does not take */
            p = tiles;
            return 0;
        }
    }
    return can_be_numbers(p) ? make_halves(p, at) : 0;
}
/* NULL, or why it cannot */
static const char *covers(const stage &s, const params &p, const device &d, bool backward)
{
    if (!has_codes(p)) return s.covers(p, d, backward);
    params own = p;
    hand_over_codes(own, s, d, NULL);
    return s.covers(own, d, backward);
}

static const stage &stage_for(const params &p, const device &d, bool backward)
{
    int i = stage_count() - 1;
    while (i > 0 && covers(stages[i], p, d, backward)) i--;
    return stages[i];
}
} /* namespace attn__gpu */

/* -------------------------------------------------------------------------------------------------------- >>host
   What attn.h calls, with descriptors that it has checked and resolved. Nothing here waits for the device. */
namespace attn__gpu {

static attn_status report(cudaError_t error, attn_error *err)
{
    const attn_status status = error == cudaSuccess ? ATTN_OK : ATTN_ERR_CUDA;
    if (err) {
        memset(err, 0, sizeof *err);
        err->status = status;
        err->field = status ? "the CUDA runtime" : "";
        err->rule = status ? cudaGetErrorString(error) : "";
        err->cuda = (int32_t)error;
    }
    return status;
}
#define ATTN__CUDA_TRY(call) \
    do { const cudaError_t attn__e = (cudaError_t)(call); if (attn__e != cudaSuccess) return attn__e; } while (0)

/* The device that an array lies on is the current one as long as this lives. known: its number, -1: that is asked. */
struct device_guard {
    int before, now;
    explicit device_guard(const void *data, int known = -1) : before(0), now(0)
    {
        cudaPointerAttributes attributes;
        if (cudaGetDevice(&before) != cudaSuccess) before = 0;
        now = before;
        if (known >= 0) now = known;
        else if (data && cudaPointerGetAttributes(&attributes, data) != cudaSuccess) cudaGetLastError();
        else if (data && (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged) &&
                 attributes.device >= 0)                    /* of other memory there is no such number, and managed */
            now = attributes.device;                        /* memory may be the host's, -1, or nobody's, -2 */
        if (now != before && cudaSetDevice(now) != cudaSuccess) {
            cudaGetLastError();
            now = before;
        }
    }
    ~device_guard() { if (now != before) cudaSetDevice(before); }
};

/* ---- calls become parameters */
static tiled_params params_of(const attn__call &c)
{
    tiled_params p;
    static_cast<attn__call &>(p) = c;
    memset((char *)&p + sizeof c, 0, sizeof p - sizeof c);
    if (c.is_backward) {
        p.out = c.saved_out;
        p.stats = c.saved_stats;
    }
    p.query = p.q;
    p.key = p.k;
    p.key_page = p.page;
    p.size_u = p.score == ATTN_SCORE_ADDITIVE ? p.hidden : p.size_k;
    p.key_heads = p.w_k.rank == 3 ? p.heads : p.heads_kv;
    return p;
}

/* ---- the workspace: a first call with base NULL counts its bytes, a second one hands them out */
struct arena { char *base; int64_t used; };
static float *allocate(arena &r, int64_t count, bool wanted = true)
{
    float *at = (float *)(void *)(r.base + r.used);
    if (!wanted) return NULL;
    r.used += (count * 4 + 255) / 256 * 256;
    return r.base ? at : (float *)1;        /* not NULL: it is there */
}
static int64_t lay_out(tiled_params &p, char *base)
{
    arena r;
    const int64_t rows = batch_of_rows(p) * p.heads * p.queries, all_keys = batch_of_keys(p) * p.keys;
    const int64_t keys = all_keys * p.key_heads;
    const bool cosine = p.score == ATTN_SCORE_COSINE, additive = p.score == ATTN_SCORE_ADDITIVE;
    const bool bilinear = p.score == ATTN_SCORE_BILINEAR;
    r.base = base;
    r.used = 0;
    p.covered = allocate(r, all_keys, cosine || additive);
    if (p.covered && (p.page || p.k.type == ATTN_I8)) {
        p.stored_k = p.k;
        p.stored_k_scale = p.k_scale;
        p.key = p.k = keys_of(p, allocate(r, all_keys * p.heads_kv * p.size_k), p.heads_kv, p.size_k);
        p.k_scale = attn__array();
        p.key_page = 0;
    }
    p.query_norm = allocate(r, rows, cosine);
    p.key_norm = allocate(r, all_keys * p.heads_kv, cosine);
    if (bilinear || p.w_q.rank) p.query = rows_of(p, allocate(r, rows * p.size_u), p.size_u);
    if (p.w_k.rank) p.key = keys_of(p, allocate(r, keys * p.size_u), p.key_heads, p.size_u);
    if (!p.is_backward) return r.used;
    p.row_base = allocate(r, 7 * rows);
    p.row_inverse = p.row_base + rows;
    p.row_shift = p.row_inverse + rows;
    p.row_scale = p.row_shift + rows;
    p.row_sigma = p.row_scale + rows;
    p.row_sink = p.row_sigma + rows;
    p.row_alibi = p.row_sink + rows;
    p.row_vector = allocate(r, rows * p.size_u, (bilinear && (p.dq.rank || p.d_bilinear.rank)) ||
                            (additive && (p.dq.rank || p.d_w_q.rank || p.d_hidden_bias.rank)));
    p.row_tanh = allocate(r, rows * p.size_u, p.d_w_v.rank != 0);
    p.key_vector = allocate(r, keys * p.size_u, additive && (p.dk.rank || p.d_w_k.rank));
    p.key_reached = allocate(r, keys, p.key_vector != NULL);
    return r.used;
}

/* ---- launches */
/* Absent a: ones on the left, which are ones on the right of what is transposed. */
static product product_of(attn__matmul m)
{
    product d = product();
    if (!m.a.rank) {
        const int64_t rows = m.rows;
        m.a = attn__transposed(m.b);
        m.b = attn__array();
        m.out = attn__transposed(m.out);
        m.rows = m.columns;
        m.columns = rows;
    }
    static_cast<attn__matmul &>(d) = m;
    d.a_shares = 1;
    return d;
}
static product product_of(const params &p, attn__array a, attn__array b, attn__array out, int64_t rows, int64_t columns,
                          int64_t depth)
{
    attn__matmul m = attn__matmul();
    m.a = a;
    m.b = b;
    m.out = out;
    m.batch[0] = m.out_batch[0] = batch_of_rows(p);
    m.batch[1] = m.out_batch[1] = p.heads;
    m.rows = rows;
    m.columns = columns;
    m.depth = depth;
    m.b_shares = 1;
    m.scale = 1.0f;
    return product_of(m);
}

/* Are tiles worth it, a quarter full at least? They have no depth flags, and row flags only where a result is not a sum
   over heads or batch. */
static bool is_for_tiles(const product &m, int64_t elements, int64_t tiles)
{
    const bool is_sum = m.out_batch[0] != m.batch[0] || m.out_batch[1] != m.batch[1];
    return tiles >= 16 && elements >= tiles * 1024 && m.b.rank && !m.depth_flag.rank &&
           (!m.row_flag.rank || !is_sum);
}

/* in_order: an element's bits do not depend on how many there are, so on other rows and batch entries */
static cudaError_t run(product m, const queue &stream, bool in_order = false)
{
    const int64_t elements = m.out_batch[0] * m.out_batch[1] * m.rows * m.columns;
    const int64_t tiles = m.out_batch[0] * m.out_batch[1] * ((m.rows + 63) / 64) * ((m.columns + 63) / 64);
    m.by_warp = !in_order && elements < 16384;
    if (elements == 0) return cudaSuccess;      /* heads that are none share nothing */
    if (is_for_tiles(m, elements, tiles))
        return (cudaError_t)launch(tiled_multiply, blocks_for(tiles), TILED_THREADS, sizeof(tiled_multiply_room),
                                   stream, m);
    return run(multiply, m.by_warp ? elements : (elements + 31) / 32, stream, m);
}

/* Norms and projections: what a score needs of queries and keys before they meet. */
static cudaError_t prepare(const tiled_params &p, const queue &stream)
{
    const int64_t rows = batch_of_rows(p) * p.heads * p.queries, keys = batch_of_keys(p) * p.heads_kv * p.keys;
    if (p.covered) ATTN__CUDA_TRY(run(cover_keys, batch_of_keys(p) * p.keys, stream, p));
    if (p.stored_k.rank) {
        const unpacking m = {p, p.stored_k, p.stored_k_scale, p.k, p.size_k};
        ATTN__CUDA_TRY(run(unpack, keys, stream, m));
    }
    if (p.query_norm) ATTN__CUDA_TRY(run(find_norms, (rows + keys + 31) / 32, stream, p));
    if (p.w_q.rank || p.bilinear.rank)
        ATTN__CUDA_TRY(run(product_of(p, p.q, p.w_q.rank ? attn__transposed(p.w_q) : p.bilinear, p.query, p.queries,
                                      p.size_u, p.size_q), stream, true));
    if (p.w_k.rank) {
        product m = product_of(p, p.k, attn__transposed(p.w_k), p.key, p.keys, p.hidden, p.size_k);
        m.batch[0] = m.out_batch[0] = batch_of_keys(p);
        m.batch[1] = m.out_batch[1] = p.key_heads;
        if (p.heads_kv) m.a_shares = p.key_heads / p.heads_kv;
        m.row_flag = packed(p.covered, 1, p.keys, 1);
        m.row_flag.stride[1] = 0;
        ATTN__CUDA_TRY(run(m, stream, true));
    }
    return cudaSuccess;
}

/* ---- stage 1: a block per tile of 64 queries, or keys; forward of 16 queries where there are no more */
static bool tiled_few(const params &p) { return p.queries <= 16; }
static int64_t tiled_tasks(const params &p, int rows = 64)
{
    return batch_of_rows(p) * p.heads * tiles_of_head(p, rows);
}
static int64_t tiled_key_tasks(const params &p) { return batch_of_keys(p) * p.heads_kv * tiles_of_keys(p); }
/* What stage 1 is given is all of a call's. */
static const tiled_params &all_of(const params &p) { return static_cast<const tiled_params &>(p); }
static int64_t tiled_workspace(const params &call, const device &, bool backward, bool)
{
    const tiled_params &p = all_of(call);
    const int64_t columns = backward ? p.size_u : tiled_outputs(p);
    const int n = backward || !tiled_few(p) ? 4 : 1;
    int64_t sums = blocks_for(tiled_tasks(p, 16 * n)) * tiled_floats(columns, n);
    const int64_t of_keys = blocks_for(tiled_key_tasks(p)) * (tiled_floats(p.size_u, 4) + tiled_floats(p.size_v, 4));
    tiled_params start = p;
    start.workspace = NULL;
    if (backward && of_keys > sums) sums = of_keys;
    return (int64_t)(uintptr_t)(tiled_memory_of(start).sums + sums);
}
typedef void tiled_kernel(tiled_params);
static cudaError_t tiled_run(tiled_kernel *kernel, size_t room, int64_t tasks, const tiled_params &p,
                             const queue &stream)
{
    if (tasks == 0) return cudaSuccess;
    return (cudaError_t)launch(kernel, blocks_for(tasks), TILED_THREADS, room, stream, p);
}

/* Norms, projections and, of additive scores, e^2x of them */
static cudaError_t tiled_prepare(const tiled_params &p, const queue &stream)
{
    ATTN__CUDA_TRY(prepare(p, stream));
    if (p.score != ATTN_SCORE_ADDITIVE) return cudaSuccess;
    return run(additive_prepare, batch_of_rows(p) * p.heads * p.queries + batch_of_keys(p) * p.key_heads * p.keys,
               stream, p);
}
static cudaError_t tiled_forward_run(const params &call, const device &, const queue &stream)
{
    const tiled_params &p = all_of(call);
    ATTN__CUDA_TRY(tiled_prepare(p, stream));
    if (tiled_few(p)) return tiled_run(tiled_forward<1>, sizeof(tiled_room<1>), tiled_tasks(p, 16), p, stream);
    return tiled_run(tiled_forward<4>, sizeof(tiled_room<4>), tiled_tasks(p), p, stream);
}

/* The gradient of a parameter: what rows (or keys) left behind, a [r][k], times what it met there. */
static product parameter_of(const tiled_params &p, attn__array a, attn__array b, attn__array out, bool per_head,
                            int64_t rows, int64_t columns, uint32_t bit)
{
    product m = product_of(p, a, b, out, rows, columns, p.queries);
    m.out_batch[0] = 1;
    m.out_batch[1] = per_head ? p.heads : 1;
    m.depth_flag = rows_of(p, p.row_inverse, 1);
    m.adds = (p.accumulate & bit) != 0;
    return m;
}

/* The gradients of queries and keys that are prepared for the score, from what rows and keys left. */
static cudaError_t finish_inputs(const tiled_params &p, const queue &stream)
{
    const bool vectors = has_vectors(p.score), bilinear = p.score == ATTN_SCORE_BILINEAR;
    const attn__array row_vector = rows_of(p, p.row_vector, p.size_u);
    const attn__array key_vector = keys_of(p, p.key_vector, p.key_heads, p.size_u);
    product m;
    if (p.dq.rank && (!vectors || bilinear || p.w_q.rank)) {
        m = product_of(p, row_vector, bilinear ? attn__transposed(p.bilinear) : p.w_q, p.dq, p.queries, p.size_q,
                       vectors ? p.size_u : 0);
        m.row_flag = rows_of(p, p.row_inverse, 1);
        m.partial = 1;
        m.scale = bilinear ? p.scale : 1.0f;
        m.adds = (p.accumulate & ATTN_GRAD_Q) != 0;
        ATTN__CUDA_TRY(run(m, stream, true));
    }
    if (p.dk.rank && p.w_k.rank) {
        m = product_of(p, key_vector, p.w_k, p.dk, p.keys, p.size_k, p.size_u);
        m.batch[0] = m.out_batch[0] = batch_of_keys(p);
        m.batch[1] = p.key_heads;
        m.out_batch[1] = p.heads_kv;
        m.row_flag = keys_of(p, p.key_reached, p.key_heads, 1);
        m.partial = 1;
        m.adds = (p.accumulate & ATTN_GRAD_K) != 0;
        ATTN__CUDA_TRY(run(m, stream, true));
    }
    return cudaSuccess;
}

/* And those of what else a score is made of. */
static cudaError_t finish_backward(const tiled_params &p, const queue &stream)
{
    const attn__array row_vector = rows_of(p, p.row_vector, p.size_u), none = attn__array();
    const attn__array row_tanh = rows_of(p, p.row_tanh, p.size_u);
    const attn__array key_vector = keys_of(p, p.key_vector, p.key_heads, p.size_u);
    product m;
    ATTN__CUDA_TRY(finish_inputs(p, stream));
    if (p.d_bilinear.rank) {
        m = parameter_of(p, attn__transposed(p.q), row_vector, p.d_bilinear, p.d_bilinear.rank == 3, p.size_q, p.size_k,
                         ATTN_GRAD_BILINEAR);
        m.scale = p.scale;
        ATTN__CUDA_TRY(run(m, stream));
    }
    if (p.d_w_q.rank)
        ATTN__CUDA_TRY(run(parameter_of(p, attn__transposed(row_vector), p.q, p.d_w_q, p.d_w_q.rank == 3, p.hidden,
                                        p.size_q, ATTN_GRAD_W_Q), stream));
    if (p.d_w_k.rank) {
        m = parameter_of(p, attn__transposed(key_vector), p.k, p.d_w_k, p.d_w_k.rank == 3, p.hidden, p.size_k,
                         ATTN_GRAD_W_K);
        m.batch[0] = batch_of_keys(p);
        m.batch[1] = p.key_heads;
        if (p.heads_kv) m.b_shares = p.key_heads / p.heads_kv;
        m.depth = p.keys;
        m.depth_flag = keys_of(p, p.key_reached, p.key_heads, 1);
        ATTN__CUDA_TRY(run(m, stream));
    }
    if (p.d_w_v.rank)
        ATTN__CUDA_TRY(run(parameter_of(p, attn__transposed(row_tanh), none, attn__transposed(p.d_w_v),
                                        p.d_w_v.rank == 2, p.hidden, 1, ATTN_GRAD_W_V), stream));
    if (p.d_hidden_bias.rank)
        ATTN__CUDA_TRY(run(parameter_of(p, attn__transposed(row_vector), none, attn__transposed(p.d_hidden_bias),
                                        p.d_hidden_bias.rank == 2, p.hidden, 1, ATTN_GRAD_HIDDEN_BIAS), stream));
    const struct { float *row; attn__array out; bool per_head; uint32_t bit; } sums[4] = {
        {p.row_sigma, p.d_sigma, p.sigma_per_head.rank != 0, ATTN_GRAD_SIGMA},
        {p.row_scale, p.d_scale, false, ATTN_GRAD_SCALE},
        {p.row_sink, p.d_sink, true, ATTN_GRAD_SINK},
        {p.row_alibi, p.d_alibi, true, ATTN_GRAD_ALIBI}};
    for (int i = 0; i < 4; i++) {
        if (!sums[i].out.rank) continue;
        m = parameter_of(p, attn__transposed(rows_of(p, sums[i].row, 1)), none, sums[i].out,
                         sums[i].per_head, 1, 1, sums[i].bit);
        m.depth_flag = none;
        ATTN__CUDA_TRY(run(m, stream));
    }
    return cudaSuccess;
}

/* Packed: no tile comes to rows and keys of no entry. +0 says so, and adds nothing: a product, the sum of nothing. */
static cudaError_t clear(float *data, int64_t count, const queue &stream)
{
    product m = product();
    m.out = packed(data, 1, 1, count);
    m.batch[0] = m.batch[1] = m.out_batch[0] = m.out_batch[1] = m.rows = 1;
    m.columns = count;
    return run(m, stream);
}
static cudaError_t tiled_backward_run(const params &call, const device &, const queue &stream)
{
    const tiled_params &p = all_of(call);
    const size_t room = sizeof(tiled_grad_room);
    ATTN__CUDA_TRY(tiled_prepare(p, stream));
    if (p.packed_queries) ATTN__CUDA_TRY(clear(p.row_base, 7 * p.heads * p.queries, stream));
    if (p.packed_keys && p.key_reached) ATTN__CUDA_TRY(clear(p.key_reached, p.key_heads * p.keys, stream));
    ATTN__CUDA_TRY(tiled_run(tiled_grad_rows, room, tiled_tasks(p), p, stream));
    if (wants_of_rows(p)) ATTN__CUDA_TRY(tiled_run(tiled_grad_queries, room, tiled_tasks(p), p, stream));
    if (p.dv.rank || p.key_vector || p.dk.rank)
        ATTN__CUDA_TRY(tiled_run(tiled_grad_keys, room, tiled_key_tasks(p), p, stream));
    if (p.d_bias.rank) {
        const int64_t *size = p.bias_size, tasks = size[0] * size[1] * ((size[2] + 63) / 64) * ((size[3] + 63) / 64);
        ATTN__CUDA_TRY(tiled_run(tiled_grad_bias, room, tasks, p, stream));
    }
    return finish_backward(p, stream);
}

template <class C> const void *some_data(const C *c)     /* attn__call or attn_desc */
{
    const void *of[6] = {c->q.data, c->given_scores.data, c->out.data, c->lse.data, c->weights.data, c->v.data};
    for (int i = 0; i < 6; i++)
        if (of[i]) return of[i];
    return NULL;
}

/* The errors of a runtime that finds no device or no driver for it: then no array can be on one. (InvalidValue: what it
   says of memory that it does not know, or said before CUDA 11.) After all others nothing can be told. */
static bool means_no_device(cudaError_t error)
{
    switch ((int)error) {
    case cudaErrorInvalidValue: case cudaErrorNoDevice: case cudaErrorInsufficientDriver: case cudaErrorStubLibrary:
    case cudaErrorDevicesUnavailable: case cudaErrorSystemDriverMismatch: case cudaErrorCompatNotSupportedOnDevice:
        return true;
    default: return false;
    }
}
} /* namespace attn__gpu */

/* bit 0: the host; a bit per device, the last one for all beyond */
extern "C" int attn__cuda_place(const void *data, attn_error *err)
{
    cudaPointerAttributes attributes;
    const cudaError_t error = cudaPointerGetAttributes(&attributes, data);
    if (error != cudaSuccess) {
        cudaGetLastError();
        if (attn__gpu::means_no_device(error)) return 1;
        attn__gpu::report(error, err);      /* a kernel before was at fault, this process is a fork's child, ... */
        return 0;
    }
    if (attributes.type == cudaMemoryTypeManaged) return -1;
    if (attributes.type != cudaMemoryTypeDevice) return 1;
    return 2 << (attributes.device < ATTN__PLACE_NUMBERS ? attributes.device : ATTN__PLACE_NUMBERS);
}

namespace attn__gpu {
/* What a plan keeps of its device behind the call. */
struct plan_kept {
    maps_made    maps;
    device       dev;
    cudaStream_t stream;
    int          number, stage;                             /* of the device; in `stages` */
};
static_assert(sizeof(plan_kept) <= ATTN__CUDA_KEPT, "a plan has room for it");
/* A call on its device: what is found of that once, and the stage that runs. */
struct device_call {
    device_guard guard;
    maps_made maps;
    device dev;
    tiled_params p;
    const bool backward;
    const stage *runs;
    explicit device_call(const attn__call *c) :
        guard(some_data(c), c->on_device - 2), dev(device_of(guard.now)), p(params_of(*c)),
        backward(c->is_backward != 0)
    {
        dev.maps = &maps;
        runs = &stage_for(p, dev, backward);
    }
    device_call(const attn__call *c, plan_kept &k) :
        guard(NULL, k.number), dev(k.dev), p(params_of(*c)), backward(c->is_backward != 0), runs(stages + k.stage)
    {
        dev.maps = &k.maps;
    }
    bool is_fast() const { return runs->covers != tiled_covers; }
    int64_t bytes(bool smaller) const
    {
        tiled_params own = p;
        int64_t bytes = lay_out(own, NULL);
        const tiled_params with_codes = own;
        if (is_fast()) bytes += hand_over_codes(own, *runs, dev, NULL);
        int64_t of_stage = runs->workspace(own, dev, backward, smaller);
        if (smaller && are_for_tiles(own) && dev.compiled >= 90 && can_be_numbers(p) && !has_few_rows_of_codes(p)) {
            params numbers = with_codes;                        /* with fewer keys it is stage 3's */
            const int64_t first = make_halves(numbers, NULL) + hopper_workspace(numbers, dev, backward, true);
            of_stage = of_stage > first ? of_stage : first;
        }
        if (smaller && has_starts(p) && mma_lacks_starts(own, backward)) {      /* with fewer rows it is stage 1's */
            const int64_t of_tiles = tiled_workspace(own, dev, backward, true);
            of_stage = of_stage > of_tiles ? of_stage : of_tiles;
        }
        bytes += of_stage;
        return bytes ? bytes + 256 : 0;
    }
    cudaError_t unpack_codes(const queue &stream)       /* at the front of the stage's part of the workspace */
    {
        if (!has_codes(p)) return cudaSuccess;
        unpacking of_k = {p, p.k, p.k_scale, p.k, p.size_k}, of_v = {p, p.v, p.v_scale, p.v, p.size_v};
        const int64_t rows = batch_of_keys(p) * p.heads_kv * p.keys;
        const int64_t bytes = hand_over_codes(p, *runs, dev, (char *)p.workspace);
        if (!bytes) return cudaSuccess;
        p.workspace = (char *)p.workspace + bytes;
        of_k.to = p.k;
        of_v.to = p.v;
        if (of_k.to.type != of_k.from.type) ATTN__CUDA_TRY(attn__gpu::run(unpack, rows, stream, of_k));
        if (of_v.to.type != of_v.from.type) ATTN__CUDA_TRY(attn__gpu::run(unpack, rows, stream, of_v));
        return cudaSuccess;
    }
    cudaError_t run(void *workspace, cudaStream_t to, queue::action does = queue::CALL)
    {
        char *const base = (char *)(((uintptr_t)workspace + 255) / 256 * 256);
        const queue stream(to, does, guard.now);
        p.workspace = base + lay_out(p, base);
        if (is_fast()) ATTN__CUDA_TRY(unpack_codes(stream));
        return (backward ? runs->backward : runs->forward)(p, dev, stream);
    }
    /* All that its kernels need but a workspace: what would lie there has addresses that nobody uses. */
    cudaError_t keep(plan_kept *k, cudaStream_t stream)
    {
        ATTN__CUDA_TRY(run((void *)256, stream, queue::PREPARE));
        k->maps = maps;
        k->dev = dev;
        k->stream = stream;
        k->number = guard.now;
        k->stage = (int)(runs - stages);
        return cudaSuccess;
    }
};

/* Are the arrays there that a stage is chosen by? */
static bool has_data(const params &p, bool backward)
{
    const attn__array *const of[8] = {&p.q, &p.k, &p.v, &p.out, &p.d_out, &p.dq, &p.dk, &p.dv};
    for (int i = 0; i < (backward ? 8 : 4); i++)
        if (of[i]->rank && !of[i]->data) return false;
    return true;
}
static attn_status run_device_call(void *call, const attn_desc *d, void *workspace, attn_error *err)
{
    return report(((device_call *)call)->run(workspace, (cudaStream_t)d->stream), err);
}
} /* namespace attn__gpu */

extern "C" int64_t attn__cuda_bytes(const attn__call *c)
{
    attn__gpu::device_call call(c);
    return call.bytes(!attn__gpu::has_data(call.p, call.backward));
}

extern "C" attn_status attn__cuda_run(const attn__call *c, void *workspace, void *stream, attn_error *err)
{
    return attn__gpu::report(attn__gpu::device_call(c).run(workspace, (cudaStream_t)stream), err);
}

extern "C" attn_status attn__cuda_plan(const attn__call *c, void *stream, void *room, size_t *bytes, attn_error *err)
{
    attn__gpu::device_call call(c);
    attn__gpu::plan_kept kept;
    *bytes = (size_t)call.bytes(false);
    const attn_status status = attn__gpu::report(call.keep(&kept, (cudaStream_t)stream), err);
    if (status == ATTN_OK) memcpy(room, &kept, sizeof kept);
    return status;
}

extern "C" void attn__cuda_task(const attn__call *c, const void *room, void *workspace)
{
    attn__gpu::plan_kept kept;
    memcpy(&kept, room, sizeof kept);
    attn__gpu::device_call(c, kept).run(workspace, kept.stream, attn__gpu::queue::RUN);
}

extern "C" attn_status attn__cuda_call(const attn__call *c, const attn_desc *d, attn__cuda_memory *with_memory,
                                       attn_error *err)
{
    attn__gpu::device_call call(c);
    return with_memory(attn__gpu::run_device_call, &call, d, call.bytes(false), c->on_device, NULL, err);
}

/* n = 0: the stage that runs; then the stronger ones and why not these, the next first; NULL beyond the last one. */
extern "C" const char *attn__cuda_stage(const attn__call *c, int n, const char **why)
{
    attn__gpu::device_call call(c);
    const attn__gpu::stage *s = call.runs + n;
    if (s >= attn__gpu::stages + attn__gpu::stage_count()) return NULL;
    *why = attn__gpu::covers(*s, call.p, call.dev, call.backward);
    if (!call.backward || *why) return s->name;
    if (s->backward == attn__gpu::hopper_backward)
        return "stage 3, wgmma, gradients in one sweep";
    if (s->backward == attn__gpu::mma_backward && attn__gpu::mma_sweeps_once(call.p))
        return "stage 2, mma.sync, gradients in one sweep";
    return s->name;
}

/* mask[b,h,i,j] of so many: what c allows, or what its dropout keeps */
extern "C" attn_status attn__cuda_mask(const attn__call *c, const attn__array *mask, const int64_t *size, int dropout,
                                       void *stream, attn_error *err)
{
    const attn__gpu::device_guard guard(mask->data);
    attn__gpu::marking m;
    m.p = attn__gpu::params_of(*c);
    m.batch = size[0];
    if (!m.p.ragged) m.p.batch = m.batch;
    m.p.heads = size[1];
    m.p.queries = size[2];
    m.p.keys = size[3];
    m.out = *mask;
    m.dropout = dropout;
    const int64_t elements = size[0] * size[1] * size[2] * size[3];
    return attn__gpu::report(attn__gpu::run(attn__gpu::mark, (elements + 31) / 32, (cudaStream_t)stream, m), err);
}

/* ---- calls without options, and what stands around attention */
namespace attn__gpu {
static thread_local void *stream_of_thread;
/* Do whole pieces of its rows lie side by side, aligned to 16 bytes (codes: to 8)? */
static bool is_wide(const attn__array &a)
{
    const int64_t bytes = a.type == ATTN_F32 ? 4 : a.type == ATTN_I8 ? 1 : 2, aligned = a.type == ATTN_I8 ? 8 : 16;
    bool wide = a.stride[3] == 1 && (uintptr_t)a.data % (uintptr_t)aligned == 0;
    for (int i = 0; i < 3; i++) wide = wide && a.stride[i] * bytes % aligned == 0;
    return wide;
}
static int rows_are(const attn__array &from, bool whole)
{
    return !whole ? ANY_ROWS : from.type == ATTN_F32 ? WHOLE_FLOATS : WHOLE_HALVES;
}
template <class M> void share_rows(M &m, int64_t pieces)        /* a lane for each, or 32 */
{
    m.lane_bits = 0;
    while (m.lane_bits < 5 && 1 << m.lane_bits < pieces) m.lane_bits++;
    m.lanes = 1 << m.lane_bits;
}
static attn_status run_storing(storing &m, int64_t groups, cudaStream_t stream, int on_device, attn_error *err)
{
    m.by_row = m.scale.rank && groups == 1;
    m.pieces = (m.columns + PIECE - 1) / PIECE;
    if (m.by_row && !m.pieces) m.pieces = 1;            /* a scale without codes */
    share_rows(m, (m.pieces + PASSES - 1) / PASSES);
    if (m.scale.rank && !m.by_row && m.lanes < 4) share_rows(m, m.pieces < 4 ? m.pieces : 4);
    m.parts = parts_of_row(m);
    m.from_wide = is_wide(m.from);
    m.to_wide = is_wide(m.to);
    if (!m.batch || !m.heads || !m.rows || !m.pieces || !m.room) return report(cudaSuccess, err);
    const int64_t each = 32 >> m.lane_bits;
    const int64_t row_groups = m.packed_from ? m.rows / each + m.batch : (m.batch * m.rows + each - 1) / each;
    const device_guard guard(m.columns ? m.to.data : m.scale.data, on_device - 2);
    void (*const kernels[2][3])(storing) = {
        {store_rows<false, ANY_ROWS>, store_rows<false, WHOLE_HALVES>, store_rows<false, WHOLE_FLOATS>},
        {store_rows<true, ANY_ROWS>, store_rows<true, WHOLE_HALVES>, store_rows<true, WHOLE_FLOATS>}};
    const int how = rows_are(m.from, m.columns % PIECE == 0 && m.from_wide && m.to_wide);
    return report(run(kernels[m.scale.rank != 0][how], row_groups * m.heads * m.parts, stream, m), err);
}
/* Integers that a call has, or others in their place: of rank 0, but they can be read. */
static attn__array given_or(attn__array a, const attn__array &others)
{
    if (a.rank) return a;
    a = others;
    a.rank = 0;
    return a;
}
/* All rows of from, to and scale */
static storing storing_of(const attn__array *a, const int64_t *size)
{
    storing m = storing();
    m.from = a[0];
    m.to = a[1];
    m.batch = size[0];
    m.heads = size[1];
    m.rows = m.room = size[2];
    m.columns = size[3];
    return m;
}
} /* namespace attn__gpu */

void attn_cuda_use_stream(void *stream) { attn__gpu::stream_of_thread = stream; }
extern "C" void *attn__cuda_stream(void) { return attn__gpu::stream_of_thread; }

/* a: out_a, lse_a, out_b, lse_b, out, lse */
extern "C" attn_status attn__cuda_merge(const attn__array *a, const int64_t *size, void *stream, attn_error *err)
{
    const attn__gpu::device_guard guard(a[4].data);
    const attn__gpu::merging m = {a[0], a[1], a[2], a[3], a[4], a[5], size[0], size[1], size[2], size[3]};
    return attn__gpu::report(attn__gpu::run(attn__gpu::merge, m.batch * m.heads * m.queries,
                                            (cudaStream_t)stream, m), err);
}

/* a: from, to */
extern "C" attn_status attn__cuda_convert(const attn__array *a, const int64_t *size, void *stream, int on_device,
                                          attn_error *err)
{
    if (a[0].type == ATTN_F64 || a[1].type == ATTN_F64) {
        const attn__gpu::device_guard guard(a[1].data, on_device - 2);
        const attn__gpu::converting m = {a[0], a[1], {size[0], size[1], size[2], size[3]}};
        const int64_t elements = size[0] * size[1] * size[2] * size[3];
        return attn__gpu::report(attn__gpu::run(attn__gpu::convert_doubles, (elements + 31) / 32, (cudaStream_t)stream,
                                                m), err);
    }
    attn__gpu::storing m = attn__gpu::storing_of(a, size);
    return attn__gpu::run_storing(m, 0, (cudaStream_t)stream, on_device, err);
}

/* a: from, codes, scale */
extern "C" attn_status attn__cuda_quantize(const attn__array *a, const int64_t *size, int64_t groups, void *stream,
                                           int on_device, attn_error *err)
{
    attn__gpu::storing m = attn__gpu::storing_of(a, size);
    m.scale = a[2];
    return attn__gpu::run_storing(m, groups, (cudaStream_t)stream, on_device, err);
}

/* a: codes, scale */
extern "C" attn_status attn__cuda_unpack_q8_0(const void *blocks, const attn__array *a, const int64_t *size,
                                              attn_error *err)
{
    const attn__gpu::device_guard guard(a[0].data);
    const attn__gpu::unpacking_blocks m = {(const uint8_t *)blocks, a[0], a[1], {size[0], size[1], size[2],
                                                                                size[3] / 32}};
    return attn__gpu::report(attn__gpu::run(attn__gpu::unpack_blocks, size[0] * size[1] * size[2] * m.size[3],
                                            (cudaStream_t)attn__gpu::stream_of_thread, m), err);
}

/* a: fresh, cache, lengths, query_lengths, query_starts, key_starts, page_table, two that one of is the last, scale */
extern "C" attn_status attn__cuda_append(const attn__array *a, const attn_desc *desc, int on_device, attn_error *err)
{
    const attn_view &scale = desc->v_scale.rank ? desc->v_scale : desc->k_scale;
    attn__gpu::storing m = attn__gpu::storing_of(a, desc->q.size);
    m.scale = a[9];
    m.lengths = a[2];
    m.query_lengths = attn__gpu::given_or(a[3], m.lengths);
    m.query_starts = attn__gpu::given_or(a[4], m.lengths);
    m.key_starts = attn__gpu::given_or(a[5], m.lengths);
    m.page_table = a[6];
    m.batch = desc->key_lengths.size[0];
    m.packed_from = desc->q.size[0] == 1 && m.batch != 1;
    m.packed_to = desc->k.size[0] == 1;
    m.room = desc->k.size[2];
    if (m.page_table.rank) {
        m.page = m.room;
        m.pool = desc->k.size[0];
        m.room = m.pool ? m.page * desc->page_table.size[1] : 0;
    }
    return attn__gpu::run_storing(m, scale.size[3], (cudaStream_t)desc->stream, on_device, err);
}

/* a: x, cosines, sines, positions, out; table: the size of cosines */
extern "C" attn_status attn__cuda_rope(const attn__array *a, const int64_t *size, const int64_t *table, uint32_t flags,
                                       void *stream, int on_device, attn_error *err)
{
    attn__gpu::rotating m = attn__gpu::rotating();
    m.x = a[0];
    m.cosines = a[1];
    m.sines = a[2];
    m.positions = a[3];
    m.out = a[4];
    m.batch = size[0];
    m.heads = size[1];
    m.rows = size[2];
    m.table = table[0];
    m.pairs = table[1];
    m.rest = size[3] - 2 * m.pairs;
    m.pair_pieces = (m.pairs + 7) / 8;
    m.pieces = m.pair_pieces + (m.rest + 15) / 16;
    attn__gpu::share_rows(m, m.pieces);
    m.x_wide = m.pairs % 8 == 0 && attn__gpu::is_wide(m.x);
    m.out_wide = m.pairs % 8 == 0 && attn__gpu::is_wide(m.out);
    m.table_wide = attn__gpu::is_wide(m.cosines) && attn__gpu::is_wide(m.sines);
    m.interleaved = (flags & ATTN_ROPE_INTERLEAVED) != 0;
    m.inverse = (flags & ATTN_ROPE_INVERSE) != 0;
    if (size[0] * size[1] * size[2] * size[3] == 0) return attn__gpu::report(cudaSuccess, err);
    const attn__gpu::device_guard guard(m.out.data, on_device - 2);
    const attn__gpu::queue queue((cudaStream_t)stream);
    cudaError_t error;
    switch (attn__gpu::rows_are(m.x, m.rest % 8 == 0 && m.x_wide && m.out_wide && m.table_wide)) {
    case attn__gpu::WHOLE_HALVES: error = attn__gpu::rotate_rows<attn__gpu::WHOLE_HALVES>(m, queue); break;
    case attn__gpu::WHOLE_FLOATS: error = attn__gpu::rotate_rows<attn__gpu::WHOLE_FLOATS>(m, queue); break;
    default: error = attn__gpu::rotate_rows<attn__gpu::ANY_ROWS>(m, queue);
    }
    return attn__gpu::report(error, err);
}

/* a: cosines, sines, factors; size: of these tables, 64 pairs at most */
extern "C" attn_status attn__cuda_rope_table(const attn__array *a, const double *frequencies, const int64_t *size,
                                             int64_t first_position, double factor, attn_error *err)
{
    const attn__gpu::device_guard guard(a[0].data);
    attn__gpu::tabling m = attn__gpu::tabling();
    m.cosines = a[0];
    m.sines = a[1];
    m.factors = a[2];
    memcpy(m.frequency, frequencies, (size_t)size[1] * sizeof *frequencies);
    m.factor = factor;
    m.rows = size[0];
    m.pairs = size[1];
    m.first = first_position;
    return attn__gpu::report(attn__gpu::run(attn__gpu::make_tables, (m.rows * m.pairs + 31) / 32,
                                            (cudaStream_t)attn__gpu::stream_of_thread, m), err);
}

extern "C" attn_status attn__cuda_matmul(const attn__matmul *m, void *stream, int on_device, attn_error *err)
{
    const attn__gpu::device_guard guard(m->out.data, on_device - 2);
    const bool in_order = m->column_tiles != 0;                     /* the chains of attn_bmm, its very bits */
    const attn__gpu::device dev = m->fast ? attn__gpu::device_of(guard.now) : attn__gpu::device();
    attn__gpu::multiply_work w = attn__gpu::multiply_work();
    static_cast<attn__gpu::product &>(w) = attn__gpu::product_of(*m);
    const cudaError_t error = attn__gpu::is_for_tensor_cores(w, dev)
                                  ? attn__gpu::multiply_by_tensor_cores(w, dev, (cudaStream_t)stream)
                                  : attn__gpu::run(w, (cudaStream_t)stream, in_order);
    return attn__gpu::report(error, err);
}

extern "C" void *attn__cuda_allocate(const attn_desc *d, size_t bytes, int on_device)  /* for the default stream, too */
{
    const attn__gpu::device_guard guard(attn__gpu::some_data(d), on_device - 2);
    void *block = NULL;
    if (cudaMallocAsync(&block, bytes, (cudaStream_t)d->stream) == cudaSuccess) return block;
    cudaGetLastError();
    return NULL;
}
extern "C" void attn__cuda_release(void *block, void *stream, int on_device)
{
    const attn__gpu::device_guard guard(block, on_device - 2);
    if (cudaFreeAsync(block, (cudaStream_t)stream) != cudaSuccess) cudaGetLastError();
}

namespace attn__gpu {
static cudaError_t load_kernels()
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaSuccess;
    const auto load = [&](auto... kernels) {
        const void *const all[] = {(const void *)kernels...};
        for (size_t i = 0; i < sizeof all / sizeof *all && error == cudaSuccess; i++)
            error = cudaFuncGetAttributes(&attributes, all[i]);
    };
    load(compiled_for, multiply, tiled_multiply, cover_keys, unpack, find_norms, additive_prepare, tiled_forward<1>,
         tiled_forward<4>, tiled_grad_rows, tiled_grad_queries, tiled_grad_keys, tiled_grad_bias, mark, merge,
         convert_doubles, unpack_blocks, make_tables, rotate<ANY_ROWS>, rotate<WHOLE_HALVES>, rotate<WHOLE_FLOATS>,
         (const void *)store_rows<false, ANY_ROWS>, (const void *)store_rows<true, ANY_ROWS>,
         (const void *)store_rows<false, WHOLE_HALVES>, (const void *)store_rows<true, WHOLE_HALVES>,
         (const void *)store_rows<false, WHOLE_FLOATS>, (const void *)store_rows<true, WHOLE_FLOATS>);
    each_mma_kernel(mma_head_sizes(), load);
    each_multiply_kernel(load);
    each_hopper_kernel(hopper_heads(), load);
    if (error != cudaSuccess) cudaGetLastError();           /* it is reported once, by who calls */
    return error;
}
} /* namespace attn__gpu */

attn_status attn_cuda_prepare(attn_error *err) { return attn__gpu::report(attn__gpu::load_kernels(), err); }

/* -------------------------------------------------------------------------------------------------------- >>tail */
#undef ATTN__CUDA_TRY
#undef ATTN__OPTION_LIST
#undef ATTN__VIEW_LIST
#undef ATTN__OWNERS
#undef ATTN__GRAD_LIST
#undef ATTN__NUMBERS
#undef ATTN__SCORE_NUMBERS
#undef ATTN__MAY_ALIAS
#undef ATTN__CUDA_SEAM
#ifndef ATTN__CUDA_KEEP         /* tests write kernels too */
#  undef ATTN__DEVICE
#  undef ATTN__BOTH
#  undef ATTN__KERNEL
#  undef ATTN__PARAM
#  undef ATTN__SHARED
#  undef ATTN__UNROLL
#  undef ATTN__UNROLL_BY
#  undef ATTN__PRAGMA
#  undef ATTN__LOOP
#  undef ATTN__WANT
#  undef ATTN__LAUNCH
#endif
#endif /* ATTN_CUDA_IMPLEMENTATION */
