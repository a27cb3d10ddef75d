# build.sh - page.html with attn.h inside, as WebAssembly in base64: one file, build/attn.html; and threads.c, which
# threads.js runs. `make web` runs both, `sh examples/web/build.sh page` one.
. tests/items.sh

dir=$out/web
mkdir -p "$dir"

# A clang that links for WASI, with the C library and the builtins that come apart from it.
compile() { # compile NAME COMPILER FLAG...: NAME.wasm
    name=$1 compiler=$2; shift 2
    set -- "$compiler" --target=wasm32-wasi --sysroot=/usr -O2 -msimd128 "$@"
    "$@" -w -Dmain=golden_main -c tests/golden.c -o "$dir/golden.o" &&
        "$@" -Wall -Wextra -Werror -c examples/web/chapter.c -o "$dir/chapter.o" &&
        "$@" -mexec-model=reactor -Wl,-s "$dir/golden.o" "$dir/chapter.o" -lm -o "$dir/$name.wasm"
}
# What it takes, by Debian's names, as far as it is not here.
lacking() {
    version=$(newest_clang) version=${version#clang-}
    have clang-$version || printf ' clang-%s' "$version"
    have wasm-ld-$version || have wasm-ld || printf ' lld-%s' "$version"
    [ -d /usr/include/wasm32-wasi ] || printf ' wasi-libc'
    [ -n "$(find /usr/lib/llvm-$version/ -name 'libclang_rt.builtins-wasm32.a' 2>/dev/null)" ] ||
        printf ' libclang-rt-%s-dev-wasm32' "$version"
}
put_together() { # the page's lines, with what stands for the programs and the hash replaced
    hash=$(sed -n 1p tests/golden.txt)
    while IFS= read -r line; do
        case $line in
            *@plain.wasm@*|*@relaxed.wasm@*) name=${line#*@}; name=${name%%@*}
                printf '%s' "${line%%@*}"; base64 <"$dir/$name" | tr -d '\n'; printf '%s\n' "${line##*@}" ;;
            *@GOLDEN@*) printf '%s\n' "${line%%@GOLDEN@*}$hash${line#*@GOLDEN@}" ;;
            *) printf '%s\n' "$line" ;;
        esac
    done <examples/web/page.html >"$out/attn.html"
}
item_page() {
    compiler=$(wasm_clang)
    [ -n "$compiler" ] || { skipped "build/attn.html (no clang that builds for WASI; missing packages:$(lacking))"
                         return; }
    try "examples/web/chapter.c for WebAssembly" compile plain "$compiler" || return
    try "examples/web/chapter.c for WebAssembly with relaxed SIMD" compile relaxed "$compiler" -mrelaxed-simd || return
    try "build/attn.html" put_together
}

item_threads() {
    compiler=$(wasm_clang) run=$(wasm_engine node)
    [ -n "$compiler" ] || { skipped "build/web/threads.wasm (no clang that builds for WASI)"; return; }
    try "examples/web/threads.c for WebAssembly" $compiler --target=wasm32-unknown-unknown -nostdlib -O2 -Wall -Wextra \
        -Werror -msimd128 -mrelaxed-simd -matomics -mbulk-memory -Wl,--no-entry,--import-memory,--shared-memory \
        -Wl,--max-memory=$((640 << 16)),--export=__stack_pointer examples/web/threads.c -o "$dir/threads.wasm" || return
    [ -n "$run" ] || { skipped "threads that share a memory (no node)"; return; }
    try "threads that share a memory" ${run% *} examples/web/threads.js "$dir/threads.wasm"
}

items "$1" page threads
