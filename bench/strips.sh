# strips.sh - what compilers make of the innermost loops, where nearly all time goes: the strips of the product kernels.
# `make bench-strips` compiles attn.h with each compiler at hand and prints, for every strip (rows x vectors):
# multiply-adds (FMA), instructions, moves between vector registers and vectors kept on the stack in its loop; for NEON
# also the FMA a cycle that llvm-mca finds for two processors. A loop of 12 FMA or more fails with more than 2.3
# instructions for an FMA or below 90 % of the FMA that the processor can do; a narrower one, for what is left over, with
# more than 8 instructions beside those that each step must have: R*N FMA, R numbers of A and N vectors of B. Either
# fails with a move or a spill.
. tests/items.sh

dir=$out/strips
mkdir -p "$dir"
mca=$(for version in 22 21 20 19 18 17 16 15 14; do have llvm-mca-$version && echo llvm-mca-$version && break; done)

# LLVM 19 has both processors hand out 8 micro-operations a cycle; LLVM 22 takes 3 for the older one, and then measures
# nothing but that. So the number is given.
mca_rate() { # mca_rate STRIP DISASSEMBLY CPU FMA: multiply-adds a cycle
    awk -v TEXT="$1" -f bench/strips.awk "$2" >"$dir/loop.s"
    $mca -mtriple=aarch64-linux-gnu -mcpu="$3" -dispatch=8 -iterations=200 "$dir/loop.s" 2>/dev/null |
        awk -v fma="$4" '/^Total Cycles/ { printf "%.2f", 200 * fma / $3 }'
}
strips_of() { # strips_of MACHINE OBJDUMP COMPILER...: a line per strip
    machine=$1 objdump=$2; shift 2
    name=$(echo "$1" | sed 's/aarch64-linux-gnu-//')
    "$@" -O2 -w -c tests/attn.c -o "$dir/attn.o" || { failed "$name $machine does not compile"; return; }
    $objdump -d --no-show-raw-insn "$dir/attn.o" >"$dir/attn.s"
    awk -f bench/strips.awk "$dir/attn.s" >"$dir/table"
    [ -s "$dir/table" ] || { failed "$name $machine: no strip was found"; return; }
    while read -r strip fma all moves stack; do
        rates= bad=
        if [ "$fma" -lt 12 ]; then
            rows=${strip%%x*} vecs=${strip#*x} vecs=${vecs%%_*}
            most=$((fma + fma / vecs + fma / rows + 8))
        else most=$((23 * fma / 10)); fi
        if [ "$machine" = aarch64 ] && [ -n "$mca" ] && [ "$fma" -ge 12 ]; then
            for cpu in neoverse-n1:2 neoverse-v1:4; do
                rate=$(mca_rate "$strip" "$dir/attn.s" ${cpu%:*} "$fma")
                rates="$rates, ${cpu%:*} ${rate:-?} of ${cpu#*:}"
                awk "BEGIN { exit !(${rate:-0} < 0.9 * ${cpu#*:}) }" && bad=1
            done
        fi
        if [ "$moves" != 0 ] || [ "$stack" != 0 ] || [ "$all" -gt $most ]; then bad=1; fi
        line=$(printf '%-10s %-12s %2d FMA %3d instructions %2d moves %2d spills%s' "$name" "$strip" "$fma" "$all" \
            "$moves" "$stack" "$rates")
        if [ -n "$bad" ]; then failed "$line"; else ok "$line"; fi
    done <"$dir/table"
}
item_strips() { # item_strips MACHINE COMPILER
    case $2 in
        clang*) arm="$2 --target=aarch64-linux-gnu -isystem /usr/aarch64-linux-gnu/include" ;;
        *) arm=aarch64-linux-gnu-$2 ;;
    esac
    case $1 in
        x86)
            case $(uname -m) in x86_64) ;; *) skipped "$2 x86 (not x86-64)"; return ;; esac
            have "$2" || { skipped "$2 x86 (no $2)"; return; }
            strips_of x86 objdump "$2" ;;
        aarch64)
            for tool in ${arm%% *} aarch64-linux-gnu-objdump; do
                have $tool || { skipped "$2 aarch64 (no $tool)"; return; }
            done
            [ -n "$mca" ] || skipped "FMA a cycle of $2 (no llvm-mca)"
            strips_of aarch64 aarch64-linux-gnu-objdump $arm ;;
    esac
}
dir=$dir/$(echo "${1:-all}" | tr -c 'a-z0-9\n' _)
mkdir -p "$dir"
items "$1" $(for machine in x86 aarch64; do for compiler in gcc gcc-11 gcc-13 gcc-14 gcc-15 gcc-16 \
    clang-13 clang-14 clang-16 clang-19 clang-22 clang-23; do echo strips:$machine:$compiler; done; done)
