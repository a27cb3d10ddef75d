/* The one file for nvcc: the kernels. Every program in this directory links it. */
#define ATTN_CUDA_IMPLEMENTATION
#include "../../attn_cuda.cuh"
