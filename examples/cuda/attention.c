/* The one file with the implementation of attn.h, told that arrays may lie on a device. */
#define ATTN_CUDA
#define ATTN_IMPLEMENTATION
#include "../../attn.h"
