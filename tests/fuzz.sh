# fuzz.sh - tests/fuzz.c under the address and undefined-behaviour sanitizers, where this machine has them:
# `sh tests/fuzz.sh SECONDS [FIRST RUN]`. The runs are others each time unless the first one is given. clang comes
# first, for it sees more: pointers that leave their array, and what is added to NULL.
. tests/items.sh
. tests/sanitizers.sh

seconds=${1:-60} seed=${2:-$(date +%s)00000}
dir=$out/fuzz
mkdir -p "$dir"

# fuzz.c itself may wrap around, for it also looks at what is far too large
build() { # build COMPILER FLAGS...
    compiler=$1; shift
    address_object "$compiler" "$@" & first=$!
    "$compiler" -g1 -O1 -fno-omit-frame-pointer "$@" ${1:+-fno-sanitize=undefined} -fwrapv -c tests/fuzz.c \
        -o "$dir/fuzz.o" &&
        compile_harness "$dir/fuzz" "$compiler" -O2 -fwrapv && wait $first &&
        "$compiler" "$@" "$(address_object_of "$compiler")" "$dir/fuzz.o" $harness_objects -o "$program" -lm
}

flags=$address_flags
if works "$dir/try" clang $flags; then compiler=clang
elif works "$dir/try" "$CC" $flags; then compiler=$CC
elif works "$dir/try" gcc $flags; then compiler=gcc
else compiler=$CC flags=; echo "this machine has no sanitizers: without"
fi
program=$dir/fuzz.$(basename "$compiler")
if [ -n "$(find attn.h tests/*.[ch] examples/web/*.h -newer "$program" 2>&1)" ]; then
    build "$compiler" $flags >"$dir/log" 2>&1 ||
        { failed "tests/fuzz.c with $compiler" "$dir/log"; echo "0 passed, 1 failed"; exit 1; }
fi
echo "$compiler ${flags%% *}, $seconds seconds"
exec "$program" --seconds "$seconds" --seed "$seed"
