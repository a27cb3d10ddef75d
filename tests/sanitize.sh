# sanitize.sh - the suites under sanitizers. `make sanitize` runs all, `sh tests/sanitize.sh suite:clang:address`
# one of them.
. tests/items.sh
. tests/sanitizers.sh

dir=$out/sanitize
mkdir -p "$dir"

# The memory sanitizer misreads intrinsics, so it gets the scalar kernels and those of portable vectors.
flags_of() {
    case $1 in
        address) echo "$address_flags $FMA" ;;
        thread)  echo "-fsanitize=thread" ;;
        memory)  echo "-fsanitize=memory -fno-sanitize-recover=all $FMA" \
                      "-DATTN_NO_AVX2 -DATTN_NO_AVX512 -DATTN_NO_NEON" ;;
    esac
}
# The reference and the harness take half of the time, and what they do is no news, nor with BUILDS=few what the suites do
# themselves; but the memory sanitizer must know what they write, and two suites what they run under.
flags_of_harness() { case $1 in memory) echo "-O2 $(flags_of memory)" ;; *) echo -O2 ;; esac; }
watched() { case $1:${BUILDS:-} in address:few) echo main memory train_align ;; *) echo $suites ;; esac; }
without_harness() { sh tests/suites.sh | grep -vxF "$(echo $harness | tr ' ' '\n')"; }
# With BUILDS=few each suite runs where it is most likely to find something: threads under the thread sanitizer alone,
# and under the memory sanitizer, the slowest, only what is quick, and gradients.
suites_of() {
    case $1:${BUILDS:-} in
        thread:*)    echo main threads ;;
        memory:few)  echo $quick backward ;;
        address:few) without_harness | grep -vx threads ;;
        *)           without_harness ;;
    esac
}

all_suites() { # all_suites SANITIZER PROGRAM OPTIONS...
    of=$1; shift
    case $of:${BUILDS:-} in
        address:few) WITHOUT=$(echo $quick | tr ' ' '\n') each_suite "$@" &&
                         WITHOUT=$(left_out_suites) each_suite "$1" --without portable ;;
        *) each_suite "$@" ;;
    esac
}
item_suite() { # COMPILER SANITIZER
    name="$2 ($1)"; program=$dir/$2.$1
    have "$1" || { skipped "$name (no $1)"; return; }
    flags="-g1 -O1 -fno-omit-frame-pointer -DTEST_NO_SIGNALS $(flags_of "$2")"
    works "$program.try" "$1" $flags || { skipped "$name (this machine has no such sanitizer)"; return; }
    suites=$(suites_of "$2")
    watched=$(watched "$2")
    sources=$(for suite in $watched; do echo "tests/$suite.c"; done)
    objects=$(for suite in $suites; do case " $watched " in *" $suite "*) ;; *) echo "build/obj/$suite.o" ;; esac; done)
    case $2 in address) header=$(address_object_of "$1") ;; *) header=tests/attn.c ;; esac
    { [ "$2" != address ] || address_object "$1" $address_flags; } >"$program.log" 2>&1 &&
        compile_harness "$program" "$1" $(flags_of_harness "$2") >"$program.log" 2>&1 &&
        { [ -z "$objects" ] || make $objects; } >"$program.log" 2>&1 &&
        "$1" $flags "-DSUITES=$(echo $suites | sed 's/main//; s/[a-z_]*[a-z]/X(&)/g')" $sources $objects \
            "$header" $harness_objects -o "$program" -lm -lpthread >"$program.log" 2>&1 ||
        { failed "$name" "$program.log"; return; }
    # Kernels of portable vectors are those of other vectors, with other functions: one of both is enough. The scalar ones
    # are the slowest: under the address sanitizer they run quick suites alone; and what threads share does not depend on
    # kernels.
    less=
    case $2:${BUILDS:-} in
        address:few) less="--without portable,scalar" ;;
        thread:few|memory:few) less="--without scalar" ;;
    esac
    # strspn, which the programs in tests read long texts with, looks at the whole of them each time under sanitizers
    ASAN_OPTIONS=allocator_may_return_null=1:intercept_strspn=0 MSAN_OPTIONS=intercept_strspn=0 \
        all_suites "$2" "$program" $less >"$program.log" 2>&1 ||
        { failed "$name" "$program.log"; return; }
    ok "$name, $(echo $suites | wc -w) files: $(passed_in "$program.log") tests"
}

# Of addresses by clang first: the fuzzer has its object too, and the suites take less time than with gcc's.
some="suite:clang:address suite:clang:memory suite:clang:thread"
items "$1" $([ "${BUILDS:-}" = few ] && echo "$some" || echo "$some suite:gcc:address suite:gcc:thread")
