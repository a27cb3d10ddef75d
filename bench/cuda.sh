# cuda.sh - `make bench-cuda`: where VENV or the python3 at hand has a PyTorch that sees the device, cuda_peers.py: ours
# and those of cuDNN and PyTorch in turn. Elsewhere cuda.cu, ours alone. Built for the device at hand. POSIX sh.
. tests/items.sh
. tests/cuda/nvcc.sh
: "${VENV:=.venv-peers}" "${COMMIT:=unknown}"
export COMMIT

say() { echo "$@" >&2; }    # what --markdown prints is a file
device_here || { say "bench-cuda: skipped ($no_device)"; exit 0; }
flags="$NVCC_FLAGS $(code_for "$device")"
must() { "$@" >"$cuda/bench.log" 2>&1 || { cat "$cuda/bench.log" >&2; say "bench-cuda: failed: $*"; exit 1; }; }
python=
for name in "$VENV/bin/python" python3 python; do
    have "$name" || continue
    "$name" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null && { python=$name; break; }
done
say "$device_name, commit $COMMIT, nvcc $("$NVCC" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p');" \
    "compiling takes minutes"
must "$NVCC" $flags -Xcompiler -fPIC -c examples/cuda/kernels.cu -o "$cuda/kernels.o"
must $CC -O2 -fPIC -c examples/cuda/attention.c -o "$cuda/attention.o"
if [ -z "$python" ]; then
    say "bench-cuda: no PyTorch that sees the device, neither in $VENV (VENV=...) nor in python3: ours alone"
    must "$NVCC" $flags bench/cuda.cu "$cuda/kernels.o" "$cuda/attention.o" -o "$cuda/bench"
    exec "$cuda/bench" "$@"
fi
must "$NVCC" $flags -shared -Xcompiler -fPIC -DCUDA_BENCH_LIBRARY bench/cuda.cu "$cuda/kernels.o" "$cuda/attention.o" \
    -o "$cuda/libattn_cuda.so"
ATTN_CUDA_LIBRARY=${ATTN_CUDA_LIBRARY:-$cuda/libattn_cuda.so} exec "$python" bench/cuda_peers.py "$@"
