# mutants.sh - breaks attn.h in one place after the other (mutate.c) and runs the suites on each: a mutant that
# no test notices is a hole in the tests, or changes nothing. `make mutants` takes PER_SECTION mutants of each
# section, two at a time; `sh tests/mutants.sh mutant:NUMBER:SECTION` one of the last list. With SINCE=<commit> they
# lie in lines added since then. ISA=neon breaks each operation of NEON's vocabulary instead and runs the suites of
# kernels in emulation, with what NEON_CC compiles.
# tests/mutants.txt explains those that survive: "section: key" on a line, the reason on the next, indented.
. tests/items.sh
. tests/emulate.sh

dir=$out/mutants
mkdir -p "$dir"
: "${NEON_CC:=aarch64-linux-gnu-gcc}"
objects_of() { # DIRECTORY
    for suite in $(sh tests/suites.sh); do echo "$1/$suite.o"; done
}

# The machine's own fused multiply-add, where it has one, spares the suites the exact emulation of it; but where kernels
# are broken, that of the portable ones has to be there.
fma_of() { [ "$1" != kernels-vector ] && grep -qw fma /proc/cpuinfo 2>/dev/null && echo -mfma; }
# NDEBUG: an assertion carries the name of the file, and no two objects would be the same
# -O2: with less memory.stack fails on the unbroken header, too, and every mutant would pass for noticed
compiler_of() { # NEON: types of one size pass for each other, so that more mutants compile
    if [ "$1" = kernels-neon ]; then echo "$NEON_CC -O1 -w -DNDEBUG -static -flax-vector-conversions"
    elif emulates "$1"; then echo "$(emulator) $EMULATION -DNDEBUG"; else echo "$CC -O2 -w -DNDEBUG $(fma_of "$1")"; fi
}
# The vector kernels are tried on all instruction sets: on AVX-512 and AMX emulated where this machine has no AMX.
emulates() { [ "$1" = kernels-vector ] && ! grep -qw amx_bf16 /proc/cpuinfo && [ -z "$(why_no_emulation)" ]; }
isas_of() { case $1 in kernels-vector) echo portable avx2 avx512 ;; kernels-neon) echo neon ;; *) echo scalar ;; esac; }

plant() { # plant DIRECTORY SECTION: a tree with the header on standard input
    mkdir -p "$1/tests"
    cp tests/attn.c tests/golden.c "$1/tests"
    cat >"$1/attn.h"
    if emulates "$2"; then mv "$1/attn.h" "$1/plain.h"; emulate "$1/plain.h" "$1/attn.h"; fi
}
build() { # build DIRECTORY SECTION
    $(compiler_of "$2") -c "$1/tests/attn.c" -o "$1/attn.o" 2>"$1/log"
}
# Most of what NEON's vocabulary has twice is read in one of two ways only: seen sooner than by compiling it.
same_text() { # same_text DIRECTORY SECTION
    [ "$2" = kernels-neon ] || return 1
    $(compiler_of "$2") -E -P "$1/tests/attn.c" >"$1/text" 2>/dev/null && cmp -s "$1/text" "$dir/$2/text"
}
link() { # link DIRECTORY SECTION
    case $2 in
        kernels-neon) $NEON_CC -static "$1/attn.o" $(objects_of "$dir/neon-obj") -o "$1/run" -lm -lpthread 2>"$1/log" ;;
        *) $CC "$1/attn.o" $(objects_of "$out/obj") -o "$1/run" -lm -lpthread 2>"$1/log" ;;
    esac
}

# noticed COMMAND...: does a suite fail? Stops at the first failure; a mutant may loop for ever or eat all memory.
noticed() {
    ( ulimit -t "${SECONDS_OF_CPU:-100}"; ulimit -v 8000000; ulimit -c 0; "$@" --verbose 2>&1; echo "exit $?" ) |
        awk '/^FAILED|^exit [^0]/ { bad = 1; exit } END { exit !bad }'
}
# (it is given --verbose, too, and says all there is to say without) Compiled at -O1, the stack's test would fail.
suites_in_emulation() { emulated_suites "$1" && WITHOUT=memory each_suite "$1" --isa avx2; }
noticed_by_suites() { # DIRECTORY SECTION; the suites that are near to the mutant, or quick, come first
    if emulates "$2"; then SECONDS_OF_CPU=400 noticed suites_in_emulation "$1/run"; return; fi
    if [ "$2" = kernels-neon ]; then
        for suite in isa types bmm softmax mha pieces properties; do
            noticed qemu-aarch64 "$1/run" --isa neon --filter "$suite." && return
        done
        return 1
    fi
    case $2 in
        call|validate)  first="errors. parts." ;;
        gradients)      first="backward. softmax. mha." ;;
        arrays|entries) first="entries. generator. types." ;;
        forward)        first="properties. parts." ;;
        sequences)      first="sequence." ;;
        products)       first="bmm. products. mha. backward." ;;
        *)              first= ;;
    esac
    for suite in $first; do noticed "$1/run" --filter "$suite" && return; done
    noticed "$1/run"
}
noticed_by_amx() { # DIRECTORY: what no suite noticed, those on AMX may, emulated where this machine has none
    if grep -qw amx_bf16 /proc/cpuinfo; then noticed "$1/run" --isa avx512 --amx --suite precision; return; fi
    emulates kernels-vector && plant "$1/amx" kernels-vector <"$1/attn.h" && build "$1/amx" kernels-vector &&
        link "$1/amx" kernels-vector && SECONDS_OF_CPU=400 noticed emulated_amx_suites "$1/amx/run"
}
golden_differs() { # golden_differs DIRECTORY SECTION: what no suite noticed, the golden hash may
    $(compiler_of "$2") -DGOLDEN_LINKED "$1/tests/golden.c" "$1/attn.o" -o "$1/golden" -lm 2>"$1/log" || return 0
    case $2 in kernels-neon) emulator=qemu-aarch64 ;; *) emulator= ;; esac
    for isa in $(isas_of "$2"); do
        found=$( ( ulimit -t 100; $emulator "$1/golden" --isa "$isa" --mixed ) 2>&1 | cut -d' ' -f1-2)
        case $found in "this build"|"$(sed -n 1p tests/golden.txt)") ;; *) return 0 ;; esac
    done
    return 1
}

item_mutant() { # NUMBER SECTION
    here=$dir/$1
    key=$(awk -F'\t' -v n="$1" '$1 == n { print $2 ": " $3 }' "$dir/list")
    if grep -qxF -e "$key" tests/mutants.txt; then ok "explained: $key"; return; fi
    "$out/mutate" attn.h write "$1" | plant "$here" "$2"
    if same_text "$here" "$2"; then ok "same code: $key"
    elif ! build "$here" "$2"; then ok "does not compile: $key"
    elif cmp -s "$here/attn.o" "$dir/$2/attn.o"; then ok "same code: $key"
    elif ! link "$here" "$2"; then ok "does not link: $key"
    elif noticed_by_suites "$here" "$2"; then ok "killed: $key"
    elif golden_differs "$here" "$2"; then ok "killed by the golden hash: $key"
    elif [ "$2" != kernels-neon ] && noticed_by_amx "$here"; then ok "killed: $key"
    else failed "survived: $key"; fi
    rm -rf "$here"
}

summary() {
    awk 'function say(n, what) { printf "%d %s\n", n, what }
         / killed: /    { killed++ }    / killed by the golden hash: / { golden++ }
         / explained: / { explained++ } / survived: /                  { survived++ }
         / same code: / { same++ }      / does not (compile|link): /   { none++ }
         END { say(killed + golden + explained + survived, "mutants, of which")
               say(killed, "killed by the suites"); say(golden, "killed by the golden hash alone")
               say(explained, "survive and are explained"); say(survived, "survive")
               say(same, "others changed no code"); say(none, "others did not compile") }' "$1"
}

# The unbroken header: its objects are compared with, and its suites must pass.
unbroken() { # unbroken SECTION
    plant "$dir/$1" "$1" <attn.h
    same_text "$dir/$1" "$1"
    build "$dir/$1" "$1" && link "$dir/$1" "$1" || { failed "the unbroken header ($1)" "$dir/$1/log"; return 1; }
    ! noticed_by_suites "$dir/$1" "$1" || { failed "the suites on the unbroken header ($1)"; return 1; }
    ! golden_differs "$dir/$1" "$1" || failed "the golden hash of the unbroken header ($1)" "$dir/$1/log"
}
if [ -z "$1" ] && [ "${ISA:-}" = neon ]; then
    for tool in $NEON_CC qemu-aarch64; do have $tool || { skipped "NEON (no $tool)"; exit; }; break; done
    mkdir -p "$dir/neon-obj"
    for suite in $(sh tests/suites.sh); do
        echo "$NEON_CC -O1 -w -c tests/$suite.c -o $dir/neon-obj/$suite.o"
    done | xargs -P 2 -I COMMAND sh -c COMMAND || exit 1
    "$out/mutate" attn.h list 1000 | grep "	kernels-neon	" >"$dir/list"
    unbroken kernels-neon || exit 1
elif [ -z "$1" ]; then
    each=${PER_SECTION:-36}
    { if [ -n "${SINCE:-}" ]; then git diff -U0 "$SINCE" -- attn.h | "$out/mutate" attn.h list "$each" added
      else "$out/mutate" attn.h list "$each"; fi; } | grep -v "	kernels-neon	" >"$dir/list"
    grep -qw amx_bf16 /proc/cpuinfo || emulates kernels-vector || skipped "AVX-512 ($(why_no_emulation))"
    for section in $(cut -f2 "$dir/list" | sort -u); do
        case $section in
            kernels-vector|forward) unbroken "$section" || exit 1 ;;
            *) plant "$dir/$section" "$section" <attn.h; build "$dir/$section" "$section" ;;
        esac
    done
fi
items "$1" $(awk -F'\t' '{ print "mutant:" $1 ":" $2 }' "$dir/list")
