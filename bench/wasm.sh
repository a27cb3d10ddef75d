# wasm.sh - attn.h as WebAssembly beside another version of it, in node or wasmtime: bench/versions.c, each header with
# the kernels it chooses there. `make bench-wasm REF=<commit, tag or file>`. Three builds: without SIMD128; with it,
# the same bits as everywhere; with it and ATTN_NO_EXACT_FMA. POSIX sh.
. tests/items.sh
old=$1; shift
compiler=$(wasm_clang)
[ -n "$compiler" ] || { echo "needs a clang that builds for WASI (Debian: clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32)"; exit 2; }
if have wasmtime; then run=wasmtime; elif have node; then run="node --no-warnings tests/wasi.js"
else echo "needs wasmtime or node"; exit 2; fi
dir=build/versions/wasm
mkdir -p $dir
for flags in -mno-simd128 -msimd128 "-msimd128 -DATTN_NO_EXACT_FMA"; do
    command="$compiler --target=wasm32-wasi --sysroot=/usr -O2 $flags"
    for name in old new again; do
        header=../attn.h
        [ $name = old ] && header=../$old
        $command -DVERSION_NAME=version_$name "-DVERSION_HEADER=\"$header\"" -c bench/version_shim.c \
            -o $dir/$name.o || exit
    done
    $command "-DBENCH_FLAGS=\"$command, ${run%% *}\"" bench/versions.c $dir/old.o $dir/new.o $dir/again.o -lm \
        -o $dir/versions.wasm || exit
    $run $dir/versions.wasm --isa auto "$@" || exit
    echo
done
