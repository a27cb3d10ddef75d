# sanitize.sh - the suites under sanitizers. `make sanitize` runs all, `sh tests/sanitize.sh suite:gcc:address`
# one of them.
. tests/items.sh

dir=$out/sanitize
mkdir -p "$dir"

# The memory sanitizer misreads intrinsics, so it gets the scalar kernels. The machine's own fused multiply-add: the
# emulated one takes minutes here.
FMA=; grep -qw fma /proc/cpuinfo 2>/dev/null && FMA=-mfma
flags_of() {
    case $1 in
        address) echo "-fsanitize=address,undefined -fno-sanitize-recover=all $FMA" ;;
        thread)  echo "-fsanitize=thread -DSUITES=X(threads)" ;;
        memory)  echo "-fsanitize=memory -fno-sanitize-recover=all -DATTN_NO_SIMD $FMA" ;;
    esac
}
# The reference takes half of the time, and the other suites' use of it is no news; the memory sanitizer must know what
# it writes.
flags_of_reference() { case $1 in memory) echo "-O2 $(flags_of memory)" ;; *) echo -O2 ;; esac; }
suites_of() { case $1 in thread) echo main threads ;; *) sh tests/suites.sh | grep -v '^ref$' ;; esac; }

# Not every machine has every sanitizer's library, or can run it.
works() {
    printf 'int main(void) { return 0; }' | "$@" -x c - -o "$program.try" 2>/dev/null && "$program.try"
}

item_suite() { # COMPILER SANITIZER
    name="$2 ($1)"; program=$dir/$2.$1
    have "$1" || { skipped "$name (no $1)"; return; }
    flags="-g -O1 -fno-omit-frame-pointer -DTEST_NO_SIGNALS $(flags_of "$2")"
    works "$1" $flags || { skipped "$name (this machine has no such sanitizer)"; return; }
    sources=$(for suite in $(suites_of "$2") attn; do echo "tests/$suite.c"; done)
    "$1" $(flags_of_reference "$2") -c tests/ref.c -o "$program.ref.o" >"$program.log" 2>&1 &&
        "$1" $flags $sources "$program.ref.o" -o "$program" -lm -lpthread >"$program.log" 2>&1 ||
        { failed "$name" "$program.log"; return; }
    ASAN_OPTIONS=allocator_may_return_null=1 "$program" >"$program.log" 2>&1 ||
        { failed "$name" "$program.log"; return; }
    ok "$name: $(tail -n 1 "$program.log")"
}

items "$1" suite:gcc:address suite:clang:memory suite:gcc:thread suite:clang:thread
