/* device.cu - fake.h on a real device: what the emulator runs, run there. Where memory lies is still what the table
   says, for all of it is pinned memory, which both sides use at one address; launches and allocations are counted on
   their way to the runtime. Run with CUDA_LAUNCH_BLOCKING=1: the suites read results when a call returns. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
extern "C" {
#include "fake.h"
}

struct range {
    const char *data;
    size_t bytes;
    int type;
};
static std::vector<range> ranges;
static int number_of(const char *variable) { return getenv(variable) ? atoi(getenv(variable)) : 0; }
static int elsewhere = number_of("FAKE_ELSEWHERE"), failing, highest, compiled = 90, query_error, processors, no_tma;
static fake_counts counts;

static cudaError_t watched_place(cudaPointerAttributes *attributes, const void *data) {
    memset(attributes, 0, sizeof *attributes);
    attributes->type = (cudaMemoryType)(fake_type_of(data) & 15);
    return (cudaError_t)query_error;
}
static cudaError_t watched_attribute(int *value, cudaDeviceAttr attribute, int device) {
    const cudaError_t error = cudaDeviceGetAttribute(value, attribute, device);
    if (attribute == cudaDevAttrComputeCapabilityMajor) *value = fake_arch() / 10;
    if (attribute == cudaDevAttrComputeCapabilityMinor) *value = fake_arch() % 10;
    if (attribute == cudaDevAttrMultiProcessorCount && processors) *value = processors;
    return error;
}
/* compiled_for as a build for less has it; of the other kernels nobody asks */
static cudaError_t watched_kernel(cudaFuncAttributes *attributes, const void *kernel) {
    if (!compiled) return cudaErrorNoKernelImageForDevice;
    const cudaError_t error = cudaFuncGetAttributes(attributes, kernel);
    if (attributes->maxThreadsPerBlock >= 128 && compiled < 90) attributes->maxThreadsPerBlock = 96;
    if (attributes->maxThreadsPerBlock >= 96 && compiled < 80) attributes->maxThreadsPerBlock = 64;
    return error;
}
#if CUDART_VERSION >= 12050
#define ENTRY_POINT cudaGetDriverEntryPointByVersion
#else
#define ENTRY_POINT cudaGetDriverEntryPoint
#endif
template <class... More> static cudaError_t watched_entry(const char *name, void **entry, More... more) {
    const cudaError_t error = ENTRY_POINT(name, entry, more...);
    if (no_tma) *entry = NULL;
    return error;
}
static cudaError_t watched_launch(const void *kernel, dim3 grid, dim3 threads, void **arguments, size_t shared,
                                  cudaStream_t stream) {
    counts.launches++;
    if (shared > counts.shared) counts.shared = shared;
    counts.blocks += (long)grid.x;
    counts.stream = stream;
    return cudaLaunchKernel(kernel, grid, threads, arguments, shared, stream);
}
static cudaError_t watched_allocate(void **block, size_t bytes, cudaStream_t stream) {
    *block = fake_allocate(bytes, stream);
    return *block ? cudaSuccess : cudaErrorMemoryAllocation;
}
static cudaError_t watched_release(void *block, cudaStream_t stream) {
    fake_release(block, stream);
    return cudaSuccess;
}

#define cudaPointerGetAttributes watched_place
#define cudaDeviceGetAttribute watched_attribute
#define cudaFuncGetAttributes watched_kernel
#define cudaGetDriverEntryPointByVersion watched_entry
#define cudaGetDriverEntryPoint watched_entry
#define cudaLaunchKernel watched_launch
#define cudaMallocAsync watched_allocate
#define cudaFreeAsync watched_release
#define ATTN_CUDA_SIMPLE fake_simple()
#define ATTN_CUDA_IMPLEMENTATION
#include "attn_cuda.cuh"
#undef cudaPointerGetAttributes
#undef cudaDeviceGetAttribute
#undef cudaFuncGetAttributes
#undef cudaGetDriverEntryPointByVersion
#undef cudaGetDriverEntryPoint
#undef cudaLaunchKernel
#undef cudaMallocAsync
#undef cudaFreeAsync

void fake_everything(int type) {
    ranges.clear();
    elsewhere = type;
}
void fake_range(const void *data, size_t bytes, int type) { ranges.push_back(range{(const char *)data, bytes, type}); }
int fake_type_of(const void *data) {
    for (size_t i = ranges.size(); i-- > 0;)
        if ((const char *)data >= ranges[i].data && (const char *)data < ranges[i].data + ranges[i].bytes)
            return ranges[i].type;
    return elsewhere;
}

/* Garbage, as a device's memory would be. */
void *fake_allocate(size_t bytes, void *stream) {
    void *block = NULL;
    counts.stream = stream;
    if (failing || cudaMallocAsync(&block, bytes, (cudaStream_t)stream) != cudaSuccess) return NULL;
    if (cudaMemsetAsync(block, 0xff, bytes, (cudaStream_t)stream) != cudaSuccess) return NULL;
    counts.allocations++;
    fake_range(block, bytes, cudaMemoryTypeDevice);
    return block;
}
void fake_release(void *block, void *stream) {
    counts.releases++;
    counts.stream = stream;
    cudaFreeAsync(block, (cudaStream_t)stream);
}
void fake_fail_allocations(int fail) { failing = fail; }
void fake_fail_queries(int error) { query_error = error; }
int fake_last_error(void) { return (int)cudaGetLastError(); }
int fake_device(void) { return -1; }
void fake_forget(void) { memset(&counts, 0, sizeof counts); }
void fake_reset_device(void) {}
void fake_forget_loaded(void) {}
int fake_not_loaded(int *all) { return *all = 0; } /* nobody counts on a device */
fake_counts fake_counted(void) { return counts; }

/* A device of less than this one's architecture can be played; one of more cannot. */
static int real_arch(void) {
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    return major * 10 + minor;
}
static void forget_devices(void) {
    for (attn__gpu::device &known : attn__gpu::known_devices) known = attn__gpu::device();
}
void fake_set_arch(int arch) { highest = arch, forget_devices(); }
int fake_arch(void) {
    if (!highest) highest = number_of("FAKE_ARCH"); /* for a whole run */
    return highest && highest < real_arch() && highest < 90 ? highest : real_arch(); /* wgmma: sm_90 alone */
}
void fake_set_compiled(int newest) { compiled = newest, forget_devices(); }
int fake_compiled(void) { return compiled; }
void fake_set_processors(int number) { processors = number, forget_devices(); }
int fake_processors(void) {
    int number = 0;
    cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, 0);
    return processors ? processors : number;
}
void fake_set_tma(int has_tma) { no_tma = !has_tma, forget_devices(); }
int fake_simple(void) {
    static const int simple = number_of("FAKE_SIMPLE");
    return simple;
}
void *fake_stream(void) {
    static cudaStream_t stream;
    if (!stream) cudaStreamCreate(&stream);
    return stream;
}

/* There is one timing: the device's own. */
int fake_timings(void) { return 1; }
void fake_timing(int, unsigned long long) {}
void fake_together(int) {}
const char *fake_failure(void) {
    const cudaError_t error = cudaDeviceSynchronize();
    return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

const char *fake_timing_name(void) { return "on the device"; }
int fake_summary(void) { return 1; }

void *fake_share(size_t bytes) {
    void *p = NULL;
    const cudaError_t error = cudaHostAlloc(&p, bytes, cudaHostAllocMapped);
    if (error != cudaSuccess) printf("cudaHostAlloc: %s\n", cudaGetErrorString(error));
    return error == cudaSuccess ? p : NULL;
}
void fake_unshare(void *block) {
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) printf("the device: %s\n", cudaGetErrorString(error));
    cudaFreeHost(block);
}
/* The memory of tests/main.c. */
extern "C" void *test_map(size_t bytes) { return fake_share(bytes); }
extern "C" void test_unmap(void *p) { fake_unshare(p); }
