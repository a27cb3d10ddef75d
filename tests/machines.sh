# machines.sh - the same bits on every machine, with every compiler and set of flags at hand: `make check-machines`. It
# takes long; `make check` has a sample. What a machine or compiler here lacks is skipped, with its reason. A compiler
# that refuses flags under which it could not keep the bits (see SAME BITS in attn.h) has passed.
. tests/items.sh

dir=$out/machines
mkdir -p "$dir"
began=$(date +%s)
hash_of() { # of the results and gradients of calls with this storage type
    case $1 in f32) sed -n 1p tests/golden.txt ;; *) sed -n "s/^$1 //p" tests/golden.txt ;; esac
}
# every set of flags with arrays of floats; the first set with the other storage types too. The last two are what clang
# is asked for where it has the pragma.
: "${FLAGS:=-O2 -O3 -Ofast -ffast-math -ffinite-math-only -Ofast,-fno-finite-math-only -ffast-math,-fno-finite-math-only}"
[ -z "${WINEDEBUG:-}" ] && export WINEDEBUG=-all
export WINEPREFIX="$PWD/$dir/wine"

golden() { # golden NAME RUN COMPILER...: built with each set of flags, on each instruction set that it has
    name=$1 run=$2; shift 2
    have "$1" || { skipped "$name (no $1)"; return; }
    for word in $run; do have "$word" || { skipped "$name (no $word)"; return; }; break; done
    no_pragma=
    for flags in $FLAGS; do
        program=$dir/$(echo "$name$flags" | tr -c 'A-Za-z0-9\n' _).${EXTENSION:-exe}
        case $flags in -O*) all=$flags ;; *) all="-O2 $flags" ;; esac
        all=$(echo $all | tr , ' ')
        case $flags in *,*) [ -n "$no_pragma" ] && continue ;; esac
        if ! "$@" $all -w tests/golden.c -o "$program" -lm >"$program.log" 2>&1; then
            grep -q 'attn.h:.*add -fno-fast-math' "$program.log" && no_pragma=1
            if grep -q 'attn.h:.*add -fno-f[a-z-]*-math' "$program.log"; then ok "$name $flags: refused, as it says"
            else failed "$name $flags does not compile" "$program.log"; fi
            continue
        fi
        ran=
        types=f32
        [ "$flags" = "${FLAGS%% *}" ] && types="f32 f16 bf16 i8"
        for isa in scalar portable relaxed avx2 avx512 neon; do for type in $types; do
            $run "$program" --isa $isa --type $type --mixed --float-control "${CONTROL:-2}" >"$program.out" 2>"$program.log"
            status=$?
            case $(tr -d '\r' <"$program.out") in
                "$(hash_of $type) "*) ok "$name $flags $isa $type: equal" ;;
                *) [ $status = 3 ] && break
                   failed "$name $flags $isa $type: $(head -n 1 "$program.out")" "$program.log" ;;
            esac
            ran=1
        done; done
        [ -n "$ran" ] || failed "$name $flags: no instruction set ran" "$program.log"
        rm -f "$program"
    done
}
item_compiler() { golden "$1" "" "$1"; }
item_gcc() { # where it is none of those that carry a number
    version=$(gcc -dumpversion 2>/dev/null | sed 's/[.].*//')
    have "gcc-${version:-none}" && { skipped "gcc (it is gcc-$version)"; return; }
    item_compiler gcc
}
item_cross() { # item_cross NAME RUN COMPILER FLAG...
    name=$1 run=$2; shift 2
    golden "$name" "$run" "$@" -static
}
item_mingw32() {
    compiler=i686-w64-mingw32-gcc
    have $compiler || { skipped "mingw32 (no $compiler)"; return; }
    echo '#include <stdio.h>
int main(void) { return puts("ran") < 0; }' | $compiler -x c - -o "$dir/probe.exe"
    # one of its own: which of the two a wine makes first, the other kind's programs do not start in
    export WINEPREFIX="${WINEPREFIX}32"
    for wine in wine32 wine; do
        have $wine || continue
        case $($wine "$dir/probe.exe" 2>/dev/null) in
            ran*) item_cross mingw32 $wine $compiler -msse2 -mfpmath=sse; return ;;
        esac
    done
    skipped "mingw32 (no wine that runs 32-bit programs)"
}
item_clang_aarch64() {
    golden "$1 aarch64" qemu-aarch64 "$1" --target=aarch64-linux-gnu -static
}
item_zig() { # item_zig TARGET RUN; its -Ofast is -O3
    python3 -c 'import ziglang' 2>/dev/null || { skipped "zig $1 (no ziglang)"; return; }
    golden "zig $1" "$2" python3 -m ziglang cc -target "$1"
}
# What has no NEON: the portable kernels and the scalar ones.
item_no_neon() { # item_no_neon COMPILER FLAG...
    golden "aarch64 without NEON" qemu-aarch64 "$@" -static -DATTN_NO_NEON
}
# The kernels with a relaxed multiply-add have to run where that rounds once, and only there.
item_wasm() { # item_wasm ENGINE [twice]
    name="wasm, $1${2:+ that rounds twice}" compiler=$(wasm_clang) run=$(wasm_engine "$@")
    [ -n "$compiler" ] || { skipped "$name (no clang that builds for WASI)"; return; }
    [ -n "$run" ] || { skipped "$name (no $1)"; return; }
    set -- "$2" "$name" "$run" "$compiler" --target=wasm32-wasi --sysroot=/usr -msimd128
    twice=$1; shift
    [ -n "$twice" ] || CONTROL=0 golden "$1" "$2" "$3" "$4" "$5" -mno-simd128
    [ -n "$twice" ] || CONTROL=0 golden "$1 -msimd128" "$2" "$3" "$4" "$5" "$6"
    said=$(CONTROL=0 golden "$1 -mrelaxed-simd" "$2" "$3" "$4" "$5" "$6" -mrelaxed-simd)
    printf '%s\n' "$said"
    echo 'typedef float four __attribute__((vector_size(16)));
int main(void) { /* 1 + 2^-12, its square rounded, and whether that is all of it */
    volatile float x = 1.000244140625f;
    const four a = {x}, c = {-1.00048828125f};
    return __builtin_wasm_relaxed_madd_f32x4(a, a, c)[0] == 0;
}' | "$3" "$4" "$5" "$6" -mrelaxed-simd -x c - -o "$dir/once.$$.wasm"
    $2 "$dir/once.$$.wasm"
    case $?,$said in
        0,*" relaxed f32: equal"*) ok "$1: relaxed kernels, as a relaxed multiply-add rounds once" ;;
        1,*" relaxed "*) failed "$1: relaxed kernels, though a relaxed multiply-add rounds twice" ;;
        1,*" portable f32: equal"*) ok "$1: no relaxed kernels, as a relaxed multiply-add rounds twice" ;;
        *) failed "$1: the relaxed kernels" ;;
    esac
    rm -f "$dir/once.$$.wasm"
}
# The program and its script in one file; some versions leave a stack of 64 KiB, or a fetch that reads no file. None
# knows -Ofast.
item_emscripten() { # item_emscripten COMPILER
    for tool in "$1" node; do have "$tool" || { skipped "$1 (no $tool)"; return; }; done
    echo 'int main(void) { return 0; }' | "$1" -O2 -x c - -o "$dir/probe.js" >/dev/null 2>&1 ||
        { skipped "$1 (it compiles nothing here)"; return; }
    for simd in -mno-simd128 -msimd128; do
        FLAGS=$(echo $FLAGS | sed 's/ *-Ofast[^ ]*//g; s/^ *//') EXTENSION=js CONTROL=0 golden "$1 $simd" node \
            "$1" $simd -sSINGLE_FILE=1 -sEXIT_RUNTIME=1 -sALLOW_MEMORY_GROWTH=1 -sENVIRONMENT=node
    done
}
item_msvc_target() { # seen as clang-cl compiles it; nothing here can link or run it
    have "$1" || { skipped "$1 for MSVC's target (no $1)"; return; }
    sh tests/check.sh other_targets | grep -i 'msvc\|clang-cl'
}
item_dietlibc() {
    have diet || { skipped "dietlibc (no diet)"; return; }
    FLAGS="-O2 -O3" golden dietlibc "" diet gcc -include stdint.h
}
item_tcc() { FLAGS=-O2 CONTROL=0 golden tcc "" tcc; }
item_suites_aarch64() {
    for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
        have $tool || { skipped "all suites on AArch64 (no $tool)"; return; }
    done
    aarch64-linux-gnu-gcc -O2 -w -static tests/attn.c tests/main.c $(for s in $(sh tests/suites.sh); do
        [ "$s" = main ] || echo "tests/$s.c"; done) -o "$dir/suites" -lm -lpthread >"$dir/suites.log" 2>&1 ||
        { failed "the suites do not compile for AArch64" "$dir/suites.log"; return; }
    for suite in $(qemu-aarch64 "$dir/suites" --list | sed 's/\..*//' | uniq); do
        try "AArch64: suite $suite" qemu-aarch64 "$dir/suites" --suite "$suite" --isa neon
    done
}
summary() { echo "$(($(date +%s) - began)) seconds"; }

x86_64=
[ "$(uname -m)" != x86_64 ] || x86_64=zig:x86_64-linux-musl
items "$1" compiler:gcc-11 compiler:gcc-12 compiler:gcc-13 compiler:gcc-14 compiler:gcc-15 compiler:gcc-16 \
    gcc compiler:clang-13 compiler:clang-14 compiler:clang-15 compiler:clang-16 compiler:clang-19 compiler:clang-22 \
    compiler:clang-23 $x86_64 zig:x86_64-windows-gnu:wine zig:aarch64-linux-musl:qemu-aarch64 tcc dietlibc \
    compiler:musl-gcc cross:aarch64:qemu-aarch64:aarch64-linux-gnu-gcc no_neon:aarch64-linux-gnu-gcc \
    clang_aarch64:clang-14 clang_aarch64:clang-16 clang_aarch64:clang-19 clang_aarch64:clang-22 \
    cross:armhf:qemu-arm:arm-linux-gnueabihf-gcc cross:i386:qemu-i386:i686-linux-gnu-gcc:-msse2:-mfpmath=sse \
    cross:riscv64:qemu-riscv64:riscv64-linux-gnu-gcc cross:s390x:qemu-s390x:s390x-linux-gnu-gcc \
    cross:s390x_z14:qemu-s390x:s390x-linux-gnu-gcc:-march=z14 \
    cross:ppc64le:qemu-ppc64le:powerpc64le-linux-gnu-gcc:-mcpu=power8 \
    cross:mingw64:wine:x86_64-w64-mingw32-gcc mingw32 wasm:wasmtime wasm:wasmtime:twice wasm:node wasm:node:twice \
    emscripten:emcc \
    msvc_target:clang suites_aarch64
