# sanitizers.sh - sourced after items.sh by sanitize.sh and fuzz.sh: attn.h under the sanitizers of addresses and
# undefined behaviour, compiled once for both. POSIX sh.

address_flags="-fsanitize=address,undefined -fno-sanitize-recover=all"

# Not every machine has every sanitizer's library, or can run it.
works() { # works PROGRAM COMPILER FLAGS...
    try=$1; shift
    have "$1" && printf 'int main(void) { return 0; }' | "$@" -x c - -o "$try" 2>/dev/null && "$try"
}
# Loops stay loops: unrolled, with a branch for each thing that the sanitizers look at, they take clang six minutes.
address_object_of() { echo "$out/attn.address.$(basename "$1").o"; }
address_object() { # address_object COMPILER FLAGS...
    object=$(address_object_of "$1")
    [ -n "$(find attn.h -newer "$object" 2>&1)" ] || return 0
    case $1 in *clang*) rolled="-fno-unroll-loops -fno-vectorize" ;; *) rolled= ;; esac
    mkdir -p "$object.$$"
    sed 's/_Pragma("clang loop unroll(full)")//' attn.h >"$object.$$/attn.h"
    "$@" -g1 -O1 -fno-omit-frame-pointer $FMA $rolled -x c -DATTN_IMPLEMENTATION -c "$object.$$/attn.h" \
        -o "$object.$$/attn.o" && mv "$object.$$/attn.o" "$object"
    status=$?
    rm -r "$object.$$"
    return $status
}
