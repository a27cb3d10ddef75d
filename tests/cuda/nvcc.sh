# nvcc.sh - sourced after items.sh: which nvcc, for which architectures, and which device there is. POSIX sh.

NVCC=${NVCC:-$(for nvcc in nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
                   if have "$nvcc"; then echo "$nvcc"; break; fi
               done)}
CUOBJDUMP=${CUOBJDUMP:-$(for dump in cuobjdump "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump"; do
                             if have "$dump"; then echo "$dump"; break; fi
                         done)}
WITHOUT_CUOBJDUMP="no cuobjdump on the PATH, in CUDA_HOME or in /usr/local/cuda; CUOBJDUMP=... names one"
ARCHS=${ARCHS:-75 80 86 89 90a 100 120}
WITHOUT_NVCC="no nvcc on the PATH, in CUDA_HOME or in /usr/local/cuda; NVCC=... names one"
NVCC_FLAGS="-O3 -std=c++17 -I. -Xfatbin -compress-all"    # else small objects are not compressed, and sizes mean little
NVCC_WARNINGS="-Werror all-warnings -Xcompiler -Wall,-Wextra"
# What ptxas -v says of kernels; its (C75..) are for check.sh to judge.
PTXAS_FACTS="^ptxas info +: (\(C75|[0-9]+ bytes gmem|Compiling entry|Function properties|Used |Compile time)"
PTXAS_FACTS="$PTXAS_FACTS|bytes stack frame"

cuda=$out/cuda
mkdir -p "$cuda"

code_for() { echo "-gencode=arch=compute_$1,code=sm_$1"; }    # -arch would compile for compute_90 beside sm_90a

# The implementation alone, as a program has it in one of its files.
cuda_implementation() { printf '#define ATTN_CUDA_IMPLEMENTATION\n#include "attn_cuda.cuh"\n'; }

# device_here [PROGRAM]: sets `device` to the architecture of device 0 (90a, 80, ..), `device_name`, `pageable` to 1 where
# it reads ordinary memory too; else `no_device` to why there is none. PROGRAM: which.cu, compiled before.
device_here() {
    device=; device_name=; no_device=
    which=${1:-$cuda/which}
    if [ -z "${1:-}" ]; then
        [ -n "$NVCC" ] || { no_device=$WITHOUT_NVCC; return 1; }
        "$NVCC" -o "$which" tests/cuda/which.cu >"$which.log" 2>&1 || { no_device="nvcc cannot link a program"; return 1; }
    fi
    [ -x "$which" ] || { no_device="$which was not built: make cuda-device-build"; return 1; }
    found=$("$which") || { no_device="there is no device: $found"; return 1; }
    device=${found%% *}; found=${found#* }; pageable=${found%% *}; device_name=${found#* }
}
