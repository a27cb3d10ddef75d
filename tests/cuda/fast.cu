/* fast.cu - the tests of fast.cc on a device, and the kernels for the other suites there. Run with
   CUDA_LAUNCH_BLOCKING=1: results are read when a call returns. */
#include "fast.cc"
