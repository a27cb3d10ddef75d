# items.sh - sourced by the scripts beside it. A script is a list of items. `sh SCRIPT` runs them all, two at
# a time (JOBS), and sums up; `sh SCRIPT ITEM` runs one. The item "word:a:b" is the call `item_word a b`. POSIX sh.

: "${CC:=cc}"
out=build
mkdir -p "$out"

# The machine's own fused multiply-add: the emulated one takes minutes under sanitizers.
FMA=; ! grep -qw fma /proc/cpuinfo 2>/dev/null || FMA=-mfma

# What an item prints: one line per result, the reason of a failure indented below it.
ok()      { printf 'ok      %s\n' "$*"; }
skipped() { printf 'skipped %s\n' "$*"; }
failed()  { # failed NAME [FILE with the reason]
    printf 'FAILED  %s\n' "$1"
    if [ -s "${2:-}" ]; then head -n 25 "$2" | sed 's/^/        /'; fi
    return 1
}
have()    { command -v "$1" >/dev/null 2>&1; }

# The newest clang here; clang-19 where there is none so new, for the reason of what is skipped.
newest_clang() {
    for version in 26 25 24 23 22 21 20 19; do
        if have clang-$version; then echo clang-$version; return; fi
    done
    echo clang-19
}
oldest_clang() {
    for version in 13 14 15 16 17 18; do
        if have clang-$version; then echo clang-$version; return; fi
    done
    echo clang-14
}
# The newest clang that links for WASI, or nothing.
wasm_clang() {
    for version in 26 25 24 23 22 21 20 19 18 17 16 15 14; do
        have clang-$version && echo 'int main(void) { return 0; }' |
            clang-$version --target=wasm32-wasi --sysroot=/usr -x c - -o "$out/wasm.$$" 2>/dev/null &&
            rm -f "$out/wasm.$$" && echo clang-$version && return
    done
}
# What runs a program built for WASI: wasmtime, its package for Python, node; "twice": as on a machine without a fused
# multiply-add, where a relaxed one rounds twice. Nothing where it is not here.
wasm_engine() { # wasm_engine wasmtime|node [twice]
    relaxed=--experimental-wasm-relaxed-simd        # node before 21
    case $1$2 in
        node*) have node && node --no-warnings -e 'require("wasi")' 2>/dev/null || return
               node $relaxed -e 0 2>/dev/null || relaxed=
               echo "node --no-warnings $relaxed ${2:+--no-enable-fma3} tests/wasi.js" ;;
        wasmtime) if have wasmtime; then echo wasmtime
                  elif python3 -c 'import wasmtime' 2>/dev/null; then echo python3 tests/wasi.py; fi ;;
        *) ! python3 -c 'import wasmtime' 2>/dev/null || echo python3 tests/wasi.py --twice ;;
    esac
}

# try NAME COMMAND...: ok when the command succeeds, else failed with what it said.
try() {
    try_name=$1; shift
    log=$(mktemp "$out/log.XXXXXX")
    if "$@" >"$log" 2>&1; then ok "$try_name"; else failed "$try_name" "$log"; fi
    try_status=$?
    rm -f "$log"
    return $try_status
}

# each_suite PROGRAM OPTIONS...: the suites of a test program, but those that WITHOUT names, two at a time. It fails
# where one of them does, and where the program names none.
each_suite() {
    listed=$("$1" --list | sed 's/\..*//' | uniq | grep -vxF "${WITHOUT:-none}") ||
        { echo "$1 lists no suite"; return 1; }
    printf '%s\n' "$listed" | xargs -P "${JOBS:-2}" -I SUITE sh -c \
        'said=$("$@" 2>&1); status=$?; printf "%s\n" "$said"; [ $status = 0 ] || exit 255' sh "$@" --suite SUITE
}
# With BUILDS=few kernels that are emulated, or compiled without what makes them fast, run the suites that are quick there.
# `make test` runs all suites on what kernels the machine has, `make golden` compares the bits of these, gradients too.
quick="main special properties errors isa softmax products mha pieces"
left_out_suites() { [ "${BUILDS:-}" != few ] || sh tests/suites.sh | grep -vxF "$(echo $quick | tr ' ' '\n')"; }
passed_in() { awk '/ passed, / { n += $1 } END { print n + 0 }' "$1"; }     # a file with what such programs said

# What the suites share, in files of its own: the reference, and how calls are built and compared (Makefile: HARNESS).
harness="ref cases grads"
# compile_harness PREFIX COMPILER FLAGS...: PREFIX.ref.o and the others, named in harness_objects
compile_harness() {
    harness_prefix=$1 harness_objects=; shift
    for file in $harness; do
        "$@" -c tests/$file.c -o "$harness_prefix.$file.o" || return
        harness_objects="$harness_objects $harness_prefix.$file.o"
    done
}

# The implementation as plain cc -O2 compiles it, for all that only link it, and the seconds of a processor that it took.
# Two items at a time may each compile it.
plain=$out/plain-${CC##*/}.o
plain_object() {
    [ -n "$(find attn.h tests/attn.c -newer "$plain" 2>&1)" ] || return 0
    CC="$CC" sh -c '$CC -O2 -c tests/attn.c -o "$0" && times' "$plain.$$" >"$plain.$$.times" || return 1
    tail -n 1 "$plain.$$.times" | awk '{ split($1, t, /[ms]/); print 60 * t[1] + t[2] }' >"$plain.seconds"
    rm "$plain.$$.times"
    mv "$plain.$$" "$plain"
}

is_cc() { [ "$(readlink -f "$(command -v "$1")")" = "$(readlink -f "$(command -v "$CC")")" ]; } # by another name

# The lines of one item come out together, and an item that says nothing has failed. What it took goes into a file.
one_item() {
    began=$(date +%s 2>/dev/null)
    lines=$(IFS=:; set -- $1; word=$1; shift; unset IFS; "item_$word" "$@")
    times >"$out/took.$$"                       # the last line: what all that ran for this item took of processors
    [ -z "$began" ] || awk -v wall="$(($(date +%s) - began))" -v item="$1" '
        { split($1, own, /[ms]/); split($2, kernel, /[ms]/) }
        END { printf "%d s %s (%d s of a processor)\n", wall, item, 60 * (own[1] + kernel[1]) + own[2] + kernel[2] }
        ' "$out/took.$$" >>"$out/$(basename "$0" .sh).times"
    rm -f "$out/took.$$"
    case $lines in *ok*|*skipped*|*FAILED*) ;; *) lines=$(failed "$1 (it ended without a word)") ;; esac
    printf '%s\n' "$lines"
    case $lines in FAILED*|*"
FAILED"*) return 1 ;; esac
}

all_items() {
    results=$out/$(basename "$0" .sh).results
    rm -f "$out/$(basename "$0" .sh).times"
    printf '%s\n' "$@" | xargs -P "${JOBS:-2}" -n 1 sh "$0" | tee "$results"
    if command -v summary >/dev/null 2>&1; then summary "$results"; fi
    awk '/^ok/ { passed++ } /^FAILED/ { failed++ } /^skipped/ { skipped++ }
         END { printf "%d passed, %d failed", passed, failed
               if (skipped) printf ", %d skipped", skipped
               print ""; exit failed > 0 || passed == 0 }' "$results"
}

# items ARGUMENT-OF-THE-SCRIPT NAME...: the last line of every script. A function `summary`, where there is
# one, is given the file of results before the sum.
items() {
    if [ -n "$1" ]; then one_item "$1"; else shift; all_items "$@"; fi
}
