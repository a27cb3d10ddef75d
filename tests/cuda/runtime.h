/* runtime.h - what stands in for the CUDA runtime where the kernels run in the emulator: the few functions that
   attn_cuda.cuh calls, on ordinary memory. Which addresses are a device's is a table that the tests fill. It is the
   ATTN_CUDA_HW_HEADER of those builds. */
#ifndef ATTN_FAKE_RUNTIME_H
#define ATTN_FAKE_RUNTIME_H

#include "emu.h"
#include <map>
#include <set>

typedef int cudaError_t;
typedef void *cudaStream_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };
enum { cudaErrorStubLibrary = 34, cudaErrorInsufficientDriver = 35, cudaErrorDevicesUnavailable = 46 };
enum { cudaErrorNoDevice = 100, cudaErrorInvalidDevice = 101, cudaErrorNoKernelImageForDevice = 209 };
enum { cudaErrorSystemDriverMismatch = 803, cudaErrorCompatNotSupportedOnDevice = 804 };
enum { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2, cudaMemoryTypeManaged = 3 };
struct cudaPointerAttributes {
    int type, device;
};
struct cudaFuncAttributes {
    int maxThreadsPerBlock;
};

extern "C" {
#include "fake.h"
}
cudaError_t fake_query_error(void);
cudaError_t fake_error(cudaError_t error); /* keeps it for cudaGetLastError */
cudaError_t fake_set_device(int device);

static inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *data) {
    attn_emu::count.places++, attn_emu::count.calls++;
    attributes->type = fake_type_of(data) & 15;
    attributes->device = fake_type_of(data) >> 4;
    return fake_error(fake_query_error());
}
static inline cudaError_t cudaGetLastError(void) {
    attn_emu::count.calls++;
    return fake_last_error();
}
static inline const char *cudaGetErrorString(cudaError_t error) {
    return error == 719 ? attn_emu::last_error.c_str() : error ? "an error" : "no error";
}
static inline cudaError_t cudaGetDevice(int *device) {
    attn_emu::count.calls++;
    *device = fake_device();
    return cudaSuccess;
}
enum {
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrComputeCapabilityMinor,
    cudaDevAttrMaxSharedMemoryPerBlockOptin,
    cudaDevAttrMultiProcessorCount
};
static inline cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    const int arch = device == FAKE_OLD_DEVICE ? 75 : fake_arch();
    const int of[4] = {arch / 10, arch % 10, arch == 90 ? 227 * 1024 : 99 * 1024, fake_processors()};
    attn_emu::count.facts++, attn_emu::count.calls++;
    *value = of[attribute];
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int device) {
    attn_emu::count.calls++;
    return fake_set_device(device);
}
static inline cudaError_t cudaMallocAsync(void **block, size_t bytes, cudaStream_t stream) {
    attn_emu::count.calls++;
    *block = fake_allocate(bytes, stream);
    return *block ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t) {
    attn_emu::count.calls++;
    memset(to, byte, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaFreeAsync(void *block, cudaStream_t stream) {
    attn_emu::count.calls++;
    fake_release(block, stream);
    return cudaSuccess;
}
inline std::set<const void *> fake_loaded, fake_launched; /* kernels */
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel) {
    attn_emu::count.calls++;
    fake_loaded.insert(kernel);
    attributes->maxThreadsPerBlock = fake_compiled() == 90 ? 128 : fake_compiled() == 80 ? 96 : 64;
    return fake_error(fake_compiled() ? 0 : (int)cudaErrorNoKernelImageForDevice);
}

/* A kernel may have more than 48 KB of shared memory on a device once it is said how much. */
inline std::map<std::pair<const void *, int>, size_t> fake_allowed;
enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
static inline cudaError_t cudaFuncSetAttribute(const void *kernel, int, int bytes) {
    attn_emu::count.allowances++, attn_emu::count.calls++;
    fake_allowed[{kernel, fake_device()}] = (size_t)bytes;
    return cudaSuccess;
}
template <class P>
int fake_launch(void (*kernel)(P), int grid, int threads, size_t shared, cudaStream_t stream, const P &p) {
    const void *const function = (const void *)kernel;
    attn_emu::count.calls++;
    fake_launched.insert(function);
    if (shared > 48 * 1024 && fake_allowed[{function, fake_device()}] < shared)
        return fake_error(cudaErrorInvalidValue);
    return attn_emu::launch_kernel(kernel, grid, threads, shared, stream, p);
}
#undef ATTN__LAUNCH
#define ATTN__LAUNCH(...) fake_launch(__VA_ARGS__)

#endif
