# library.sh - `make cuda-lib`: attn.h and its kernels as one shared library, build/cuda/libattn.so, which
# examples/python takes by ATTN_LIBRARY. For DEVICE_ARCH or the device here; without either, for sm_80 and sm_90a. POSIX sh.
. tests/items.sh
. tests/cuda/nvcc.sh

if [ -z "$NVCC" ]; then skipped "make cuda-lib ($WITHOUT_NVCC)"; exit 0; fi
arch=${DEVICE_ARCH:-$(device_here && echo "$device")}
code=
for each in ${arch:-80 90a}; do code="$code $(code_for "$each")"; done
"$NVCC" $NVCC_FLAGS $code ${HEAD_DIMS:+-DATTN_CUDA_HEAD_DIMS=$HEAD_DIMS} -Xcompiler -fPIC -c examples/cuda/kernels.cu \
    -o "$cuda/lib-kernels.o" >"$cuda/lib.log" 2>&1 &&
    ${CC:-cc} -O2 -fPIC -c examples/cuda/attention.c -o "$cuda/lib-attention.o" >>"$cuda/lib.log" 2>&1 &&
    "$NVCC" -shared "$cuda/lib-kernels.o" "$cuda/lib-attention.o" -o "$cuda/libattn.so" >>"$cuda/lib.log" 2>&1 ||
    { failed "make cuda-lib" "$cuda/lib.log"; exit 1; }
ok "$cuda/libattn.so, for sm_$(echo "${arch:-80 90a}" | sed 's/ / and sm_/g')"
