/* hw_conformance.cu - every function of attn_cuda.cuh's section >>hw on a real device: the tests of primitives.cc,
   which the emulator has passed, so that both are known to mean the same. What the device lacks is skipped by name.

       nvcc -O2 -std=c++17 -I. -gencode=arch=compute_90a,code=sm_90a tests/cuda/hw_conformance.cu -o hw_conformance */
#define ATTN_CUDA_HEAD_DIMS 64 /* the kernels of the header are not what is tested here */
#include "primitives.cc"
