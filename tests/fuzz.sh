# fuzz.sh - tests/fuzz.c under the address and undefined-behaviour sanitizers, where this machine has them:
# `sh tests/fuzz.sh SECONDS [FIRST RUN]`. The runs are others each time unless the first one is given. clang comes
# first, for it sees more: pointers that leave their array, and what is added to NULL.
. tests/items.sh

seconds=${1:-60} seed=${2:-$(date +%s)00000}
dir=$out/fuzz
mkdir -p "$dir"

works() { # works COMPILER FLAGS...
    have "$1" && printf 'int main(void) { return 0; }' | "$@" -x c - -o "$dir/try" 2>/dev/null && "$dir/try"
}
# Loops stay loops: unrolled, with a branch for each thing that the sanitizers look at, they take clang six minutes.
build() { # build COMPILER FLAGS...: fuzz.c itself may wrap around, for it also looks at what is far too large
    compiler=$1; shift
    case $compiler in *clang*) rolled="-fno-unroll-loops -fno-vectorize" ;; *) rolled= ;; esac
    FMA=; grep -qw fma /proc/cpuinfo 2>/dev/null && FMA=-mfma
    sed 's/_Pragma("clang loop unroll(full)")//' attn.h >"$dir/attn.h"
    "$compiler" -g1 -O1 -fno-omit-frame-pointer $FMA $rolled "$@" -x c -DATTN_IMPLEMENTATION -c "$dir/attn.h" \
        -o "$dir/attn.o" & first=$!
    "$compiler" -g1 -O1 -fno-omit-frame-pointer "$@" ${1:+-fno-sanitize=undefined} -fwrapv -c tests/fuzz.c \
        -o "$dir/fuzz.o" && "$compiler" -O2 -fwrapv -c tests/ref.c -o "$dir/ref.o" && wait $first &&
        "$compiler" "$@" "$dir/attn.o" "$dir/fuzz.o" "$dir/ref.o" -o "$program" -lm
}

flags="-fsanitize=address,undefined"
if works clang $flags; then compiler=clang
elif works "$CC" $flags; then compiler=$CC
elif works gcc $flags; then compiler=gcc
else compiler=$CC flags=; echo "this machine has no sanitizers: without"
fi
program=$dir/fuzz.$(basename "$compiler")
if [ -n "$(find attn.h tests/*.[ch] examples/web/*.h -newer "$program" 2>&1)" ]; then
    build "$compiler" $flags >"$dir/log" 2>&1 ||
        { failed "tests/fuzz.c with $compiler" "$dir/log"; echo "0 passed, 1 failed"; exit 1; }
fi
echo "$compiler ${flags%% *}, $seconds seconds"
exec "$program" --seconds "$seconds" --seed "$seed"
