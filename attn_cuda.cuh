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
    cudaError_t error = cudaSuccess;
    arguments[0] = const_cast<void *>(params);
    if (shared > 48 * 1024)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error == cudaSuccess)
        error = cudaLaunchKernel(kernel, dim3((unsigned)grid), dim3((unsigned)threads), arguments, shared, stream);
    if (error != cudaSuccess) cudaGetLastError();           /* it is reported once, here */
    return error;
}
#endif

/* ---------------------------------------------------------------------------------------------------------- >>hw
   The hardware, as small functions: the only place with PTX. A compiler that knows no CUDA takes the same names from
   ATTN_CUDA_HW_HEADER, which emulates them; so the kernels below run, and are tested, without a GPU. */
#ifndef ATTN_CUDA_HW_HEADER
#include <cuda.h>           /* types only: CUtensorMap; nothing of libcuda is linked */

#define ATTN__UNROLL _Pragma("unroll")
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

namespace attn__hw {

struct f16  { static const bool is_bf16 = false; };         /* the two 16-bit types, as template arguments */
struct bf16 { static const bool is_bf16 = true; };
typedef CUtensorMap tensor_map;

/* ---- who am I */
ATTN__DEVICE int thread()  { return (int)threadIdx.x; }
ATTN__DEVICE int threads() { return (int)blockDim.x; }
ATTN__DEVICE int block()   { return (int)blockIdx.x; }
ATTN__DEVICE int blocks()  { return (int)gridDim.x; }
ATTN__DEVICE int lane()    { return (int)(threadIdx.x % 32); }
ATTN__DEVICE int warp()    { return __shfl_sync(0xffffffffu, (int)(threadIdx.x / 32), 0); } /* known to be uniform */

/* ---- barriers of the block (0) and of `count` of its threads (1..15); arrive does not wait */
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

/* ---- the lanes of a warp, all 32 of them */
template <class T> ATTN__DEVICE T shfl(T x, int source) { return __shfl_sync(0xffffffffu, x, source); }
template <class T> ATTN__DEVICE T shfl_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
ATTN__DEVICE uint32_t ballot(bool vote) { return __ballot_sync(0xffffffffu, vote); }
ATTN__DEVICE bool any(bool vote) { return __any_sync(0xffffffffu, vote) != 0; }
ATTN__DEVICE void sync_warp() { __syncwarp(); }

/* ---- one instruction each: 2 ulp or so, numbers below 2^-126 are 0 */
ATTN__DEVICE float ex2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
ATTN__DEVICE float lg2(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
ATTN__DEVICE float rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
/* within 2^-11 */
ATTN__DEVICE float tanh_approx(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
ATTN__DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }

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
/* two numbers in one register (sm_80) */
template <class T> ATTN__DEVICE uint32_t pack(float low, float high)
{
    uint32_t r;
    if (T::is_bf16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* ---- shared memory. Words that TMA or wgmma will read: store_shared by all, fence_async by all, a barrier; then. */
ATTN__DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
ATTN__DEVICE void store_shared(uint32_t address, uint32_t value)
{
    asm volatile("st.shared.b32 [%0], %1;" :: "r"(address), "r"(value) : "memory");
}
ATTN__DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- cp.async (sm_80): 16 bytes from global to shared memory, or 16 zero bytes and nothing is read */
ATTN__DEVICE void copy16(uint32_t to, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
ATTN__DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> ATTN__DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

/* ---- tensor cores of a warp (sm_80). With g = lane/4, t = lane%4, element pairs in one register low half first:
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
template <class T> ATTN__DEVICE void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if (T::is_bf16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
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
                 "@!done bra.uni AGAIN; }" :: "r"(shared_address(bar)), "r"(parity) : "memory");
}

/* ---- TMA (sm_90): one thread moves a box of 64 columns and some rows, which lies in shared memory as rows of 128
   bytes whose 16-byte chunks are exchanged: chunk ^= row % 8. Outside the tensor it reads 0 and writes nothing. */
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

/* A tensor of 16-bit elements with axes column, row, head, batch; boxes of 64 columns and `rows` rows. On the host;
   0 = fine, else the tensor cannot be described (alignment, strides) or the driver has no TMA. */
inline int tensor_map_make(tensor_map *map, void *base, const int64_t (&size)[4], const int64_t (&stride)[4],
                           int rows)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                  const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                  CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    void *encode = NULL;
    cudaDriverEntryPointQueryResult found;
    cuuint64_t sizes[4], strides[3];
    const cuuint32_t box[4] = {64, (cuuint32_t)rows, 1, 1}, steps[4] = {1, 1, 1, 1};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found) !=
            cudaSuccess || !encode) {
        cudaGetLastError();                     /* the caller's next check is not to find this one */
        return 1;
    }
    for (int i = 0; i < 4; i++) {
        if (size[i] <= 0 || (i && stride[i] < 0)) return 1;
        sizes[i] = (cuuint64_t)size[i];
        if (i) strides[i - 1] = (cuuint64_t)stride[i] * 2;
    }
    return ((encode_fn)encode)(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, base, sizes, strides, box, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS;
}

/* ---- tensor cores of a warpgroup of 128 threads (sm_90a): asynchronous; D 64xN (+)= A 64x16 . B 16xN, by groups.
   Warp w holds rows 16w.. of D: d[4j], d[4j+1] (g, 8j+2t..), d[4j+2], d[4j+3] (g+8, 8j+2t..); A in registers is as for
   mma. Operands in shared memory are descriptors of tiles as TMA lays them; a transposed one has its rows along k.
   fence before the first wgmma of a group; keep(registers) before it and after the wait, so that the compiler leaves
   the registers alone in between. */
template <int N> ATTN__DEVICE void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> ATTN__DEVICE void registers_fewer() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
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
#define ATTN__REGS16 ATTN__R0
#define ATTN__ACC16 ATTN__D8(0)
#define ATTN__REGS32 ATTN__REGS16 ", " ATTN__R1
#define ATTN__ACC32 ATTN__ACC16, ATTN__D8(8)
#define ATTN__REGS48 ATTN__REGS32 ", " ATTN__R2
#define ATTN__ACC48 ATTN__ACC32, ATTN__D8(16)
#define ATTN__REGS64 ATTN__REGS48 ", " ATTN__R3
#define ATTN__ACC64 ATTN__ACC48, ATTN__D8(24)
#define ATTN__REGS80 ATTN__REGS64 ", " ATTN__R4
#define ATTN__ACC80 ATTN__ACC64, ATTN__D8(32)
#define ATTN__REGS96 ATTN__REGS80 ", " ATTN__R5
#define ATTN__ACC96 ATTN__ACC80, ATTN__D8(40)
#define ATTN__REGS112 ATTN__REGS96 ", " ATTN__R6
#define ATTN__ACC112 ATTN__ACC96, ATTN__D8(48)
#define ATTN__REGS128 ATTN__REGS112 ", " ATTN__R7
#define ATTN__ACC128 ATTN__ACC112, ATTN__D8(56)
#define ATTN__REGS144 ATTN__REGS128 ", " ATTN__R8
#define ATTN__ACC144 ATTN__ACC128, ATTN__D8(64)
#define ATTN__REGS160 ATTN__REGS144 ", " ATTN__R9
#define ATTN__ACC160 ATTN__ACC144, ATTN__D8(72)
#define ATTN__REGS176 ATTN__REGS160 ", " ATTN__R10
#define ATTN__ACC176 ATTN__ACC160, ATTN__D8(80)
#define ATTN__REGS192 ATTN__REGS176 ", " ATTN__R11
#define ATTN__ACC192 ATTN__ACC176, ATTN__D8(88)
#define ATTN__REGS208 ATTN__REGS192 ", " ATTN__R12
#define ATTN__ACC208 ATTN__ACC192, ATTN__D8(96)
#define ATTN__REGS224 ATTN__REGS208 ", " ATTN__R13
#define ATTN__ACC224 ATTN__ACC208, ATTN__D8(104)
#define ATTN__REGS240 ATTN__REGS224 ", " ATTN__R14
#define ATTN__ACC240 ATTN__ACC224, ATTN__D8(112)
#define ATTN__REGS256 ATTN__REGS240 ", " ATTN__R15
#define ATTN__ACC256 ATTN__ACC240, ATTN__D8(120)

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
ATTN__WGMMA(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
ATTN__WGMMA(80, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
ATTN__WGMMA(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
ATTN__WGMMA(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
ATTN__WGMMA(176, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
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

/* --------------------------------------------------------------------------------------------------------- >>mma
   Stage 2: 16-bit types on the tensor cores of a warp. */

/* ---- tiles in shared memory, as TMA lays them: panels of 64 columns, one after the other; in a panel rows of 128 bytes
   whose eight 16-byte chunks are exchanged by the row's number, so that neither rows nor columns meet in one bank. */
ATTN__DEVICE uint32_t chunk_of(int row, int chunk, int rows)    /* chunk: 8 columns; rows: of the whole tile */
{
    return (uint32_t)(chunk / 8 * rows * 128 + row * 128 + ((chunk % 8) ^ (row % 8)) * 16);
}
/* The same tile for wgmma (its start 1024-byte aligned, in 1/16 of bytes), and what to add to get to the next 16 columns
   or, where the operand is transposed, rows. */
ATTN__DEVICE uint64_t wgmma_tile(uint32_t address, int rows)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(rows * 128 >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}
ATTN__DEVICE uint64_t wgmma_along(int k, int rows) { return (uint64_t)(k / 4 * (rows * 128 >> 4) + k % 4 * 2); }
ATTN__DEVICE uint64_t wgmma_down(int k) { return (uint64_t)(k * (16 * 128 >> 4)); }

} /* namespace attn__gpu */
#endif /* ATTN_CUDA_IMPLEMENTATION */
