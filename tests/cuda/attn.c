/* attn.c - the implementation of attn.h for tests whose arrays may lie on the (emulated) device. */
#define ATTN_CUDA
#define ATTN_IMPLEMENTATION
#include "../../attn.h"
