# build.sh - page.html with attn.h inside, as WebAssembly in base64: one file, build/attn.html. `make web` runs it.
. tests/items.sh

dir=$out/web
mkdir -p "$dir"

# A clang that links for WASI, with the C library and the builtins that come apart from it.
compile() { # compile COMPILER: chapter.wasm
    set -- "$1" --target=wasm32-wasi --sysroot=/usr -O2 -msimd128
    "$@" -w -Dmain=golden_main -c tests/golden.c -o "$dir/golden.o" &&
        "$@" -Wall -Wextra -Werror -c examples/web/chapter.c -o "$dir/chapter.o" &&
        "$@" -mexec-model=reactor -Wl,-s "$dir/golden.o" "$dir/chapter.o" -lm -o "$dir/chapter.wasm"
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
put_together() { # the page's lines, with what stands for the program and the hash replaced
    hash=$(sed -n 1p tests/golden.txt)
    while IFS= read -r line; do
        case $line in
            *@WASM@*) printf '%s' "${line%%@WASM@*}"; base64 <"$dir/chapter.wasm" | tr -d '\n'
                      printf '%s\n' "${line#*@WASM@}" ;;
            *@GOLDEN@*) printf '%s\n' "${line%%@GOLDEN@*}$hash${line#*@GOLDEN@}" ;;
            *) printf '%s\n' "$line" ;;
        esac
    done <examples/web/page.html >"$out/attn.html"
}
item_page() {
    compiler=$(wasm_clang)
    [ -n "$compiler" ] || { skipped "build/attn.html (no clang that builds for WASI; missing packages:$(lacking))"
                         return; }
    try "examples/web/chapter.c for WebAssembly" compile "$compiler" || return
    try "build/attn.html" put_together
}

items "$1" page
