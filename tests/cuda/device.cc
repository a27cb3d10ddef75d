/* device.cc - attn_cuda.cuh compiled by an ordinary C++ compiler: kernels run in the emulator. */
#include <stdio.h>
#include <stdlib.h>
#define ATTN_CUDA_HW_HEADER "tests/cuda/runtime.h"
#define ATTN_CUDA_SIMPLE fake_simple()
#define ATTN_CUDA_IMPLEMENTATION
#include "../../attn_cuda.cuh"

struct range {
    const char *data;
    size_t bytes;
    int type;
};
static std::vector<range> ranges;
static int number_of(const char *variable) { return getenv(variable) ? atoi(getenv(variable)) : 0; }
static int elsewhere = number_of("FAKE_ELSEWHERE"), failing, arch = 90, compiled = 90, current, query_error, last_error,
           processors;
static fake_counts counts;
static attn_emu::counters before;

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
    void *block = failing ? NULL : malloc(bytes);
    attn_emu::last_stream = stream;
    counts.device = current;
    if (!block) return NULL;
    memset(block, 0xff, bytes);
    counts.allocations++;
    fake_range(block, bytes, cudaMemoryTypeDevice + 16 * current);
    return block;
}
void fake_release(void *block, void *stream) {
    counts.releases++;
    attn_emu::last_stream = stream;
    counts.device = current;
    for (size_t i = ranges.size(); block && i-- > 0;)
        if (ranges[i].data == block) ranges.erase(ranges.begin() + (long)i);
    free(block);
}
void fake_fail_allocations(int fail) { failing = fail; }
void fake_fail_queries(int error) { query_error = error; }
cudaError_t fake_query_error(void) { return query_error; }
cudaError_t fake_error(cudaError_t error) {
    if (error) last_error = error;
    return error;
}
int fake_last_error(void) {
    const int error = last_error;
    last_error = 0;
    return error;
}
int fake_device(void) { return current; }
cudaError_t fake_set_device(int device) {
    if (device < 0 || device > 7) {
        counts.refused++;
        return fake_error(cudaErrorInvalidDevice);
    }
    current = device;
    return cudaSuccess;
}
void fake_forget(void) {
    memset(&counts, 0, sizeof counts);
    attn_emu::count.shared = 0;
    attn_emu::last_stream = NULL;
    before = attn_emu::count;
}
fake_counts fake_counted(void) {
    fake_counts now = counts;
    now.launches = (long)(attn_emu::count.launches - before.launches);
    now.stream = attn_emu::last_stream;
    now.shared = (size_t)attn_emu::count.shared;
    now.blocks = (long)(attn_emu::count.blocks - before.blocks);
    now.places = (long)(attn_emu::count.places - before.places);
    now.facts = (long)(attn_emu::count.facts - before.facts);
    now.drivers = (long)(attn_emu::count.drivers - before.drivers);
    now.allowances = (long)(attn_emu::count.allowances - before.allowances);
    now.maps = (long)(attn_emu::count.maps - before.maps);
    now.calls = (long)(attn_emu::count.calls - before.calls);
    now.loads = (long)(attn_emu::count.tma - before.tma);
    return now;
}
void fake_reset_device(void) { fake_allowed.clear(); }
void fake_forget_loaded(void) { fake_loaded.clear(); }
int fake_not_loaded(int *all) {
    int missing = 0;
    for (const void *kernel : fake_launched) missing += !fake_loaded.count(kernel);
    *all = (int)fake_launched.size();
    return missing;
}
static void forget_devices(void) {
    for (attn__gpu::device &known : attn__gpu::known_devices) known = attn__gpu::device();
}
void fake_set_arch(int number) { arch = number, forget_devices(); }
int fake_arch(void) { return arch; }
void fake_set_compiled(int newest) { compiled = newest, forget_devices(); }
int fake_compiled(void) { return compiled; }
void fake_set_processors(int number) { processors = number, forget_devices(); }
int fake_processors(void) { return processors ? processors : 4; }
void fake_set_tma(int has_tma) { attn_emu::driver_has_tma = has_tma != 0, forget_devices(); }
int fake_simple(void) {
    static const int simple = number_of("FAKE_SIMPLE");
    return simple;
}
void *fake_stream(void) {
    static int stream;
    return &stream;
}
int fake_timings(void) { return attn_emu::timing_count; }
void fake_timing(int index, unsigned long long seed) { attn_emu::set_timing(index, seed); }
void fake_together(int blocks) { attn_emu::together = blocks; }
const char *fake_failure(void) { return attn_emu::last_error.c_str(); }
const char *fake_timing_name(void) {
    static std::string name;
    name = attn_emu::now_timing.name + std::string(attn_emu::lanes_downwards ? ", lanes from 31 to 0" : "");
    return name.c_str();
}
int fake_summary(void) {
    const attn_emu::counters &n = attn_emu::count;
    printf("emulated: %lld launches, of %lld the lanes run from the last to the first\n", (long long)n.launches,
           (long long)n.downwards);
    printf("emulated: %lld mma, %lld ldmatrix, %lld cp.async, %lld wgmma, %lld TMA, %lld stmatrix\n", (long long)n.mma,
           (long long)n.ldmatrix, (long long)n.copies, (long long)n.wgmma, (long long)n.tma, (long long)n.stmatrix);
    if (n.ldmatrix_conflicts) printf("FAIL ldmatrix, stmatrix: rows that share banks\n");
    const bool one_way = n.launches && (!n.downwards || n.downwards == n.launches);
    if (one_way) printf("FAIL lanes of a warp ran in one direction alone\n");
    return !n.ldmatrix_conflicts && !one_way;
}
void *fake_share(size_t bytes) { return malloc(bytes); }
void fake_unshare(void *block) { free(block); }
