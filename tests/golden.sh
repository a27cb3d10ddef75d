# golden.sh - the same bits from every way to compute them. `make golden` runs all, `sh tests/golden.sh ITEM`
# one build (build:gcc:-O0:--mixed). EMULATED=--mixed is the short way for AVX-512, BUILDS=few takes the extremes of
# the flags. The first line of golden.txt has the hashes of calls whose arrays are f32, all that other scripts ask for;
# those of a storage type stand after its name, and are computed in a sample of the ways. Prints hashes and number of
# ways.
. tests/items.sh
. tests/emulate.sh

dir=$out/golden
mkdir -p "$dir"
expected=$(sed -n 1p tests/golden.txt 2>/dev/null) # of the results, of the gradients
types="f16 bf16 i8 sequences index sums"
case $(uname -m) in aarch64) instruction_sets="scalar neon" ;; *) instruction_sets="scalar portable avx2 avx512" ;; esac

# run NAME PROGRAM OPTIONS...: every line it prints is one way
run() {
    way=$1; said=$dir/$(echo "$1" | tr ' ' _); shift
    "$@" >"$said.out" 2>&1
    case $? in
        0) ;;
        3) skipped "$way (not in this build or on this CPU)"; return ;;
        *) failed "$way" "$said.out"; return ;;
    esac
    [ -s "$said.out" ] || { failed "$way: no hash"; return; }
    if grep -v "^$expected " "$said.out" >"$said.wrong"; then failed "$way: not $expected" "$said.wrong"
    else ok "$way: $(wc -l <"$said.out") ways, $expected"; fi
}

# the other storage types: NAME PROGRAM INSTRUCTION-SETS; every call in another way, under a caller who rounds upwards
of_types() {
    of_f32=$expected
    case $3 in *avx512*)
        for type in amx amx-i8; do
            expected=$(sed -n "s/^$type //p" tests/golden.txt)
            for layout in packed strided reversed; do
                run "$1 avx512 $type $layout" "$2" --isa avx512 --type $type --layout $layout --workers 2
            done
        done ;;
    esac
    for type in $types; do
        expected=$(sed -n "s/^$type //p" tests/golden.txt)
        for isa in $3; do run "$1 $isa $type" "$2" --isa $isa --type $type --mixed --float-control 2; done
    done
    expected=$of_f32
}

# one build of golden.c, which holds the implementation: COMPILER FLAG[,FLAG...] WAYS
item_build() {
    name="$1 $2"; file=$dir/$(echo "$1$2" | tr -c 'A-Za-z0-9\n' _)
    have "$1" || { skipped "$name (no $1)"; return; }
    case $2 in -O*) flags=$(echo "$2" | tr , ' ') ;; *) flags="-O2 $2" ;; esac
    case $1 in clang*) flags="$flags -fno-finite-math-only" ;; esac     # what attn.h asks of clang under -Ofast
    case $1 in *++) flags="$flags -x c++" ;; esac
    linked=                                     # this one has been compiled already, or will be again
    [ "$2" != -O2 ] || ! is_cc "$1" || linked=$plain
    { [ -z "$linked" ] || plain_object; } >"$file.log" 2>&1 &&
        "$1" $flags -w ${linked:+-DGOLDEN_LINKED} tests/golden.c ${linked:+"$linked"} -o "$file" -lm >"$file.log" 2>&1 ||
        { failed "$name does not compile" "$file.log"; return; }
    for isa in $instruction_sets; do
        # without fused multiply-add in hardware this takes a minute
        ways=$3; case $isa:${BUILDS:-} in scalar:few|portable:few) ways=--mixed ;; esac
        run "$name $isa" "$file" --isa $isa $ways
    done
    case $2,$3 in
        -O2,--every) of_types "$name" "$file" "$instruction_sets" ;;
        -Ofast,-march=native,*) of_types "$name" "$file" "$(echo $instruction_sets | tr ' ' '\n' | tail -n 1)" ;;
    esac
}

item_emulated() { # COMPILER WAYS
    name="$1 avx512 emulated"; tree=$dir/$1
    lacks=$(why_no_emulation)
    [ -z "$lacks" ] || { skipped "$name ($lacks)"; return; }
    mkdir -p "$tree"
    { emulated_object &&
        "$1" -O1 -w -DGOLDEN_LINKED tests/golden.c "$emulated" -o "$tree/golden" -lm; } >"$tree/log" 2>&1 ||
        { failed "$name does not compile" "$tree/log"; return; }
    run "$name" "$tree/golden" --isa avx512 "$2"
    EMULATED_AMX=1 of_types "$name" "$tree/golden" avx512
}

summary() {
    awk -v hash="$expected" '/^ok/ { if (index($0, hash)) n += $(NF - 3); else types += $(NF - 3) }
        END { print hash, "from", n, "ways; those of other storage types from", types + 0 }' "$1"
}

[ -n "$expected" ] || { failed "tests/golden.txt is missing"; exit 1; }
builds="build:gcc:-O2:--every emulated:$(emulator | sed 's|.*/||'):${EMULATED:---every} build:clang:-O2:--mixed"
newest=$(newest_clang) fastest=-Ofast,-march=native
if [ "$BUILDS" = few ]; then
    builds="$builds build:gcc:-O0:--mixed build:gcc:$fastest:--mixed build:$newest:$fastest:--mixed
            build:g++:-std=c++20:--mixed"
else
    for compiler in gcc clang; do
        for flag in -O0 -O1 -O3 -Os -Ofast $fastest -march=native -std=c99 -std=c11 -std=c17; do
            builds="$builds build:$compiler:$flag:--mixed"
        done
    done
    for flag in $fastest -Ofast -O2,-ffast-math; do builds="$builds build:$newest:$flag:--mixed"; done
    for compiler in g++ clang++; do
        for flag in -std=c++11 -std=c++20; do builds="$builds build:$compiler:$flag:--mixed"; done
    done
fi
items "$1" $builds
