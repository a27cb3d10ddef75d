# wasm.sh - attn.h as WebAssembly beside another version of it, in node or wasmtime: bench/versions.c, each header with
# the kernels it chooses there. `make bench-wasm REF=<commit, tag or file>`. Four builds: without SIMD128; with it, the
# same bits as everywhere; with relaxed SIMD too, the same bits; with SIMD128 and ATTN_NO_EXACT_FMA. POSIX sh.
. tests/items.sh
old=$1; shift
compiler=$(wasm_clang)
[ -n "$compiler" ] || { echo "needs a clang that builds for WASI (Debian: clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32)"; exit 2; }
[ -n "$(wasm_engine wasmtime)$(wasm_engine node)" ] || { echo "needs wasmtime or node"; exit 2; }
dir=build/versions/wasm
mkdir -p $dir
for flags in -mno-simd128 -msimd128 "-msimd128 -mrelaxed-simd" "-msimd128 -DATTN_NO_EXACT_FMA"; do
    command="$compiler --target=wasm32-wasi --sysroot=/usr -O2 $flags"
    for name in old new again; do
        header=../attn.h
        [ $name = old ] && header=../$old
        $command -DVERSION_NAME=version_$name "-DVERSION_HEADER=\"$header\"" -c bench/version_shim.c \
            -o $dir/$name.o || exit
    done
    for engine in wasmtime node; do
        run=$(wasm_engine $engine)
        [ -n "$run" ] || { echo "no $engine"; continue; }
        $command "-DBENCH_FLAGS=\"$command, $engine\"" bench/versions.c $dir/old.o $dir/new.o $dir/again.o -lm \
            -o $dir/versions.wasm || exit
        $run $dir/versions.wasm --isa auto "$@" || exit
        echo
    done
done
