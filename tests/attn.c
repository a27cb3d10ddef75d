/* The implementation, compiled once: everything else in tests/ uses the API only and is linked with this. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
