# nvcc.sh - attn_cuda.cuh as users compile it, for every architecture that it knows; no GPU needed.
#   sh tests/cuda/nvcc.sh build     one object for all of them, without a warning; what it costs   (make cuda)
#   sh tests/cuda/nvcc.sh check     architecture by architecture: no kernel may spill registers, no wgmma may be
#                                   serialised                                                     (make check-cuda)
# ARCHS="80 90a" takes some; NVCC=... another compiler; FLAGS=... more of them.
task=$1; shift
dir=build/cuda
mkdir -p "$dir"
: "${NVCC:=nvcc}" "${ARCHS:=75 80 86 89 90a 100 120}"
if ! command -v "$NVCC" >/dev/null 2>&1; then
    if [ -x /usr/local/cuda/bin/nvcc ]; then NVCC=/usr/local/cuda/bin/nvcc
    else echo "no nvcc: nothing was compiled"; echo "0 passed, 0 failed, 1 skipped"; exit 0; fi
fi
flags="-std=c++17 -O3 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror -I. $FLAGS"
printf '#define ATTN_CUDA_IMPLEMENTATION\n#include "attn_cuda.cuh"\n' >"$dir/attn_cuda.cu"
seconds() { awk '/^user/ { printf "%.0f", $2 }' "$1"; }
"$NVCC" --version | tail -n 2 | head -n 1

if [ "$task" = build ]; then
    targets=
    for arch in $ARCHS; do targets="$targets -gencode=arch=compute_$arch,code=sm_$arch"; done
    ( time -p "$NVCC" $flags $targets -c "$dir/attn_cuda.cu" -o "$dir/attn_cuda.o" ) >"$dir/build.log" 2>&1 ||
        { cat "$dir/build.log"; echo "0 passed, 1 failed"; exit 1; }
    echo "sm_$(echo $ARCHS | sed 's/ /, sm_/g'): $(seconds "$dir/build.log") s of CPU," \
         "an object of $(($(wc -c <"$dir/attn_cuda.o") / 1024)) KB"
    echo "1 passed, 0 failed"
    exit 0
fi

passed=0 failed=0
for arch in $ARCHS; do
    log=$dir/sm_$arch.log
    ( time -p "$NVCC" $flags -Xptxas -v -gencode=arch=compute_$arch,code=sm_$arch -cubin "$dir/attn_cuda.cu" \
        -o "$dir/sm_$arch.cubin" ) >"$log" 2>&1 || { cat "$log"; failed=$((failed + 1)); continue; }
    # "Function properties for NAME" is followed by "N bytes stack frame, N bytes spill stores, N bytes spill loads"
    if awk '/Function properties for/ { name = $NF }
            /bytes spill stores/ { kernels++; if ($5 + $9 > 0) { print "        " name ": " $0; bad = 1 } }
            /C75(07|08|10|12|13|14)/ || /wgmma.*serializ/ { print "        " $0; bad = 1 }
            END { exit bad || !kernels }' "$log"
    then
        passed=$((passed + 1))
        echo "ok      sm_$arch: $(grep -c 'bytes spill stores' "$log") kernels without spilled registers," \
             "at most $(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$log" | sort -n | tail -n 1) registers," \
             "$(seconds "$log") s of CPU, $(($(wc -c <"$dir/sm_$arch.cubin") / 1024)) KB"
    else
        failed=$((failed + 1))
        echo "FAILED  sm_$arch"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
