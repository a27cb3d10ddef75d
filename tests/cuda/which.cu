/* which.cu - device 0: its architecture as nvcc names it, whether it reads ordinary memory, its name. */
#include <cuda_runtime.h>
#include <stdio.h>

int main() {
    cudaDeviceProp d;
    const cudaError_t error = cudaGetDeviceProperties(&d, 0);
    if (error == cudaSuccess)
        printf("%d%s %d %s\n", d.major * 10 + d.minor, d.major == 9 ? "a" : "", d.pageableMemoryAccess, d.name);
    else printf("%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
