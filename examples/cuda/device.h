/* device.h - what the programs beside it share: memory of the device, and giving up with a reason. Plain C. */
#ifndef EXAMPLES_DEVICE_H
#define EXAMPLES_DEVICE_H

#include "../../attn_cuda.cuh"
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void must_cuda(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
static inline void must_attn(attn_status status, const attn_error *err, const char *what) {
    char text[256];
    if (status == ATTN_OK) return;
    attn_error_string(err, text, sizeof text);
    printf("%s: %s\n", what, text);
    exit(1);
}

/* Memory on the device; with what `from` holds, where it is given. */
static inline void *on_device(const void *from, size_t bytes) {
    void *p = NULL;
    must_cuda(cudaMalloc(&p, bytes ? bytes : 1), "cudaMalloc");
    if (from) must_cuda(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice), "copying to the device");
    return p;
}
/* Waits for what was enqueued before. */
static inline void to_host(void *to, const void *from, size_t bytes) {
    must_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from the device");
}

/* Reproducible numbers of mean 0 and variance 1. */
static inline void fill_random(float *x, size_t n) {
    static uint32_t state = 1;
    size_t i;
    for (i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = ((float)(state >> 8) / 8388608.0f - 1) * 1.7320508f;
    }
}
static inline float *random_floats(size_t n) {
    float *x = (float *)malloc(n * sizeof *x);
    if (!x) exit(1);
    fill_random(x, n);
    return x;
}

#endif
