/* fast.cu with few head sizes, for a build whose kernels of stage 2 are all there (a list has a comma, where nvcc
   splits an option). */
#define ATTN_CUDA_HEAD_DIMS 64, 128
#include "fast.cu"
