# peers.sh - `make bench-peers`: sees that the peers are there, builds ours and the C ones, compares. The Python
# packages go into the virtual environment VENV. POSIX sh.
: "${CC:=cc}" "${VENV:=.venv-peers}" "${COMMIT:=unknown}"
dir=build/peers
mkdir -p $dir

python=$VENV/bin/python
skip() { echo "bench-peers: skipped ($1)"; exit 0; }
[ -x "$VENV/bin/pip" ] || python3 -m venv "$VENV" || skip "no Python 3 with venv"
"$python" -c 'import torch, onnxruntime, onnx, numpy' 2>/dev/null || {
    echo "bench-peers: installing PyTorch and onnxruntime into $VENV: some gigabytes"
    "$VENV/bin/pip" install --quiet torch onnxruntime onnx numpy || echo "bench-peers: not every package could be had"
}
"$python" -c 'import numpy' 2>/dev/null || skip "no NumPy in $VENV, and none could be installed: is there a network?"

blas() { echo 'char *openblas_get_config(void); int main(void) { return !openblas_get_config(); }' |
    $CC -x c - -o $dir/try -lopenblas 2>/dev/null; }
blas || { [ "$(id -u)" = 0 ] && { apt-get update && apt-get install -y libopenblas-dev; } >/dev/null 2>&1; }
blas || skip "no OpenBLAS: as root, with a network, Debian's libopenblas-dev is installed"

# Ours is built as a user would; the peers as well as the compiler can.
best="-O3 -march=native -ffinite-math-only -fassociative-math -fno-trapping-math -fno-signed-zeros -fno-math-errno"
$CC -O2 -shared -fPIC -x c -DATTN_IMPLEMENTATION attn.h -o $dir/libattn.so -lm &&
$CC $best -shared -fPIC bench/peers.c -o $dir/libpeers.so -L$dir -lattn -Wl,-rpath,'$ORIGIN' -lopenblas -lm -lpthread &&
$CC -O2 -shared -fPIC bench/loops.c -o $dir/libloop.so -lm &&
$CC -O3 -ffast-math -march=native -shared -fPIC bench/loops.c -o $dir/libloop_fast.so -lm &&
exec "$python" bench/peers.py --commit "$COMMIT" "$@"
