# peers.sh - `make bench-peers`: sees that the peers are there, builds ours and the C ones, compares. The Python
# packages go into the virtual environment VENV. POSIX sh.
: "${CC:=cc}" "${VENV:=.venv-peers}" "${COMMIT:=unknown}"
dir=build/peers
mkdir -p $dir

python=$VENV/bin/python
skip() { echo "bench-peers: skipped ($1)"; exit 0; }
[ -x "$VENV/bin/pip" ] || python3 -m venv "$VENV" || skip "no Python 3 with venv"
"$python" -c 'import torch, onnxruntime, onnx, numpy' 2>/dev/null || {
    echo "bench-peers: installing PyTorch and onnxruntime into $VENV: some gigabytes" >&2
    "$VENV/bin/pip" install --quiet torch onnxruntime onnx numpy ||
        echo "bench-peers: not every package could be had" >&2
}
"$python" -c 'import numpy' 2>/dev/null || skip "no NumPy in $VENV, and none could be installed: is there a network?"

blas() { echo 'char *openblas_get_config(void); int main(void) { return !openblas_get_config(); }' |
    $CC -x c - -o $dir/try -lopenblas 2>/dev/null; }
blas || { [ "$(id -u)" = 0 ] && { apt-get update && apt-get install -y libopenblas-dev; } >/dev/null 2>&1; }
blas || skip "no OpenBLAS: as root, with a network, Debian's libopenblas-dev is installed"

# ggml's CPU backend is in the source package of llama-cpp-python. It is built in VENV, once, with threads of its own.
ggml=$VENV/ggml
ggml_fetch() { # into $ggml/source; the package leaves out a file that ggml's CMakeLists.txt asks for, an empty one does
    rm -rf "$ggml" && mkdir -p "$ggml/source" &&
        "$VENV/bin/pip" download --no-deps --no-binary llama-cpp-python --dest "$ggml" llama-cpp-python &&
        tar -xzf "$ggml"/*.tar.gz -C "$ggml/source" --strip-components=4 --wildcards '*/vendor/llama.cpp/ggml/*' &&
        : >"$ggml/source/ggml.pc.in"
}
ggml_build() { # Release is -O3, NATIVE -march=native
    PATH=$PATH:$VENV/bin
    command -v cmake || "$VENV/bin/pip" install cmake || return
    cmake -S "$ggml/source" -B "$ggml/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_OPENMP=OFF \
        -DGGML_LLAMAFILE=ON -DGGML_CCACHE=OFF -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
        -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF &&
        cmake --build "$ggml/build" --target ggml-cpu --parallel "${JOBS:-2}"
}
ggml_link() {
    package=$(basename "$ggml"/*.tar.gz .tar.gz | sed 's/-\([0-9.]*\)$/ \1/; s/_/-/g')
    $CC -O2 -shared -fPIC "-DGGML_PACKAGE=\"$package\"" -I "$ggml/source/include" bench/peers_ggml.c \
        -o $dir/libpeers_ggml.so "$ggml"/build/src/libggml-cpu.a "$ggml"/build/src/libggml-base.a -lstdc++ -lm -lpthread
}
rm -f $dir/libpeers_ggml.so
[ -f "$ggml/build/src/libggml-cpu.a" ] || {
    echo "bench-peers: building ggml in $ggml: minutes" >&2
    { ggml_fetch && ggml_build; } >$dir/ggml.log 2>&1
} && ggml_link >>$dir/ggml.log 2>&1 ||
    echo "bench-peers: without ggml, $dir/ggml.log says why: $(tail -n 1 $dir/ggml.log)" >&2

# Ours is built as a user would; the peers as well as the compiler can. AVX2=1: ours, PyTorch and OpenBLAS do without
# AVX-512, as on a machine that has none; the others do not ask.
machine=native without=
if [ -n "${AVX2:-}" ]; then
    machine=x86-64-v3 without=-DATTN_NO_AVX512
    export OPENBLAS_CORETYPE=Haswell MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2
fi
best="-O3 -march=$machine -ffinite-math-only -fassociative-math -fno-trapping-math -fno-signed-zeros -fno-math-errno"
$CC -O2 -shared -fPIC -x c -DATTN_IMPLEMENTATION $without attn.h -o $dir/libattn.so -lm &&
$CC $best -shared -fPIC bench/peers.c -o $dir/libpeers.so -L$dir -lattn -Wl,-rpath,'$ORIGIN' -lopenblas -lm -lpthread &&
$CC -O2 -shared -fPIC bench/loops.c -o $dir/libloop.so -lm &&
$CC -O3 -ffast-math -march=$machine -shared -fPIC bench/loops.c -o $dir/libloop_fast.so -lm &&
exec "$python" bench/peers.py --commit "$COMMIT" "$@"
