# measure.sh - two versions of the headers side by side: their text, and what a compiler makes of it. `make measure
# REF=<commit> [TO=<commit>]`; without TO the working tree. What is counted how: tests/measure.c. PAIRS=N: so many
# compilations of each for the times. POSIX sh, C, and git.
: "${CC:=cc}" "${PAIRS:=5}"
dir=build/measure
tool=$dir/measure
[ -n "$1" ] || { echo "usage: make measure REF=<commit> [TO=<commit>] [PAIRS=5]"; exit 2; }
mkdir -p $dir/a $dir/b || exit 1
rm -f $dir/[ab]/*

take() { # take DIRECTORY COMMIT: both headers; without a commit those of the working tree
    for header in attn.h attn_cuda.cuh; do
        if [ -n "$2" ]; then git show "$2:$header" >"$1/$header"; else cat $header >"$1/$header"; fi ||
            { echo "measure: no $header in ${2:-the working tree}"; exit 1; }
    done
}
take $dir/a "$1"
take $dir/b "$2"
$CC -O2 tests/measure.c -o $tool || exit 1

row() { # row NAME A B [WHERE A] [WHERE B]: with the ratio
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" | awk -F'\t' '{
        ratio = $2 > 0 ? sprintf("%.3f", $3 / $2) : "-"; where = $4 == $5 ? $4 : $4 ", " $5
        printf "%-60s %12s %12s %8s  %s\n", $1, $2, $3, ratio, where }'
}
texts() { # texts HEADER: the tool names each number; a colon begins what the longest function is called
    for side in a b; do
        $tool text $dir/$side/"$1" >$dir/$side/text || { echo "measure: $1 cannot be read"; exit 1; }
    done
    paste -d '\t' $dir/a/text $dir/b/text | while IFS='	' read -r a b; do
        what=${a#* }
        where_a= where_b=
        case $a in *:*) where_a=${a##*: } where_b=${b##*: } what=${what%%:*} ;; esac
        row "$1: $what" "${a%% *}" "${b%% *}" "$where_a" "$where_b"
    done
}
object_size() { # object_size DIRECTORY: of code and constants
    (cd "$1" && $CC -O2 -x c -DATTN_IMPLEMENTATION -c attn.h -o attn.o) >&2 &&
        size "$1/attn.o" | awk 'NR == 2 { print $1 + $2 }'
}

b=${2:-"this tree"}
printf '%-60s %12s %12s %8s\n' "" "$1" "$b" "ratio"
for header in attn.h attn_cuda.cuh; do texts $header || exit 1; done
compile="$CC -O2 -x c -DATTN_IMPLEMENTATION -c attn.h"
row "attn.h: bytes of text and data at -O2" "$(object_size $dir/a)" "$(object_size $dir/b)"
times=$($tool time "$PAIRS" $dir/a $dir/b $compile -o attn.o) || exit 1
set -- $times
printf '%-60s %12s %12s %8s  %s\n' "attn.h: user seconds of compiling at -O2" "$1" "$2" "$3" \
    "medians of $PAIRS; of the ratios"
echo "$compile; $($CC --version | head -n 1)"
