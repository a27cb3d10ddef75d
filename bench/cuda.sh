# cuda.sh - `make bench-cuda`: builds bench/cuda.cu for the device at hand and runs it; then, where VENV or the
# python3 at hand has a PyTorch that sees the device, bench/cuda_peers.py: ours and PyTorch's kernels in turn. POSIX sh.
. tests/items.sh
. tests/cuda/nvcc.sh
: "${VENV:=.venv-peers}" "${COMMIT:=unknown}"

device_here || { echo "bench-cuda: skipped ($no_device)"; exit 0; }
flags="$NVCC_FLAGS $(code_for "$device")"
must() { "$@" >"$cuda/bench.log" 2>&1 || { cat "$cuda/bench.log"; echo "bench-cuda: failed: $*"; exit 1; }; }
release=$("$NVCC" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
echo "$device_name, commit $COMMIT, nvcc $release; compiling takes minutes"
must "$NVCC" $flags -Xcompiler -fPIC -c examples/cuda/kernels.cu -o "$cuda/kernels.o"
must $CC -O2 -fPIC -c examples/cuda/attention.c -o "$cuda/attention.o"
must "$NVCC" $flags bench/cuda.cu "$cuda/kernels.o" "$cuda/attention.o" -o "$cuda/bench"
"$cuda/bench" "$@" || exit 1

python=
for name in "$VENV/bin/python" python3 python; do
    have "$name" || continue
    "$name" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null && { python=$name; break; }
done
[ -n "$python" ] || {
    echo "bench-cuda: no PyTorch that sees the device, neither in $VENV (VENV=...) nor in python3: ours alone"; exit 0; }
must "$NVCC" $flags -shared -Xcompiler -fPIC -DCUDA_BENCH_LIBRARY bench/cuda.cu "$cuda/kernels.o" "$cuda/attention.o" \
    -o "$cuda/libattn_cuda.so"
exec "$python" bench/cuda_peers.py "$@"
