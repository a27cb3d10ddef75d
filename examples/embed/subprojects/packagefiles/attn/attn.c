#define ATTN_IMPLEMENTATION
#include "attn.h"
