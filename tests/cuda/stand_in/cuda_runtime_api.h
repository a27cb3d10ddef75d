/* cuda_runtime_api.h - what stands in for the runtime in a program whose device is the emulator: the few functions that
   examples/mpi/ring.c calls. Plain C. */
#ifndef ATTN_STAND_IN_RUNTIME_H
#define ATTN_STAND_IN_RUNTIME_H

#include "../fake.h"
#include <string.h>

typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorLaunchFailure = 719 };
enum { cudaMemcpyDefault = 4 };

static inline cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int device) { return device; /* there is but device 0 */ }
static inline cudaError_t cudaMalloc(void **block, size_t bytes) {
    *block = fake_allocate(bytes, NULL);
    return *block ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaFree(void *block) {
    fake_release(block, NULL);
    return cudaSuccess;
}
static inline cudaError_t cudaMemset(void *to, int byte, size_t bytes) {
    memset(to, byte, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceSynchronize(void) {
    return fake_failure()[0] ? cudaErrorLaunchFailure : cudaSuccess;
}
static inline const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorLaunchFailure ? fake_failure() : error ? "an error" : "no error";
}

#endif
