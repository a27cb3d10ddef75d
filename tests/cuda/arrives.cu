/* What compute-sanitizer's racecheck makes of the way in which stage 3 frees a slot: all lanes of a warp have read it,
   meet, and one of them arrives at the barrier that its writer waits for. That is in order (bar.warp.sync, then an
   arrival that releases). A racecheck that reports hazards here would report them in stage 3, too: see device.sh. */
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>

static __device__ uint32_t address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
static __device__ void init(uint64_t *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(barrier)) : "memory");
}
static __device__ void arrive(uint64_t *barrier) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(address(barrier))
                 : "memory");
}
#if __CUDA_ARCH__ >= 900
#define TRY "try_wait"
#else
#define TRY "test_wait"
#endif
static __device__ void wait(uint64_t *barrier, int parity) {
    asm volatile("{ .reg .pred done; again%=: mbarrier." TRY ".parity.shared::cta.b64 done, [%0], %1;"
                 " @!done bra again%=; }" ::"r"(address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* Thread 0 writes numbers, one after the other, into one slot; the lanes of warp 1 add them up. */
static __global__ void slot_goes_round(int *sums) {
    __shared__ uint64_t full, empty;
    __shared__ volatile int slot;
    int sum = 0;
    if (threadIdx.x == 0) init(&full), init(&empty);
    __syncthreads();
    for (int n = 0; n < 8; n++) {
        if (threadIdx.x == 0) {
            wait(&empty, (n & 1) ^ 1);
            slot = n;
            arrive(&full);
        } else if (threadIdx.x >= 32) {
            wait(&full, n & 1);
            sum += slot;
            __syncwarp();
            if (threadIdx.x == 32) arrive(&empty);
        }
    }
    if (threadIdx.x >= 32) sums[threadIdx.x - 32] = sum;
}

int main() {
    int *sums, got[32] = {0}, wrong = 0;
    cudaMalloc(&sums, sizeof got);
    slot_goes_round<<<1, 64>>>(sums);
    const cudaError_t error = cudaMemcpy(got, sums, sizeof got, cudaMemcpyDeviceToHost);
    for (int lane = 0; lane < 32; lane++) wrong += got[lane] != 28;
    printf("%s, %d sums wrong\n", cudaGetErrorString(error), wrong);
    return error != cudaSuccess || wrong != 0;
}
