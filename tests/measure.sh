# measure.sh - two versions of the headers side by side: their text, and what a compiler makes of it. `make measure
# [REF=<commit>] [TO=<commit>]`; without REF the last commit, without TO the working tree. What is counted how:
# tests/measure.c and, for the walks, tests/walks.sh. PAIRS=N: so many compilations of each for the times, 0: no times.
# WORDS=N: the N words that private names of attn.h are made of most often, how often each stands there, and those that
# are new since REF. POSIX sh, C, and git.
: "${CC:=cc}" "${PAIRS:=5}" "${WORDS:=0}"
dir=build/measure
tool=$dir/measure
set -- "${1:-HEAD}" "$2"
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
names_of() { # names_of FILE: its private names, each once
    tr -c 'A-Za-z0-9_' '\n' <"$1" | grep -E '^(attn|ATTN)__[A-Za-z0-9]' | sort -u
}
words_of() { # words_of FILE: what these are made of: "HOW-OFTEN WORD"
    names_of "$1" | sed 's/^[a-zA-Z]*__//' | tr 'A-Z_' 'a-z\n' | grep '[a-z]' | sort | uniq -c | sort -k1,1nr -k2
}
banner='^/[*] -----* >>' # of a room
names() { # of attn.h: what a reader has to learn
    for side in a b; do
        names_of $dir/$side/attn.h >$dir/$side/names
        words_of $dir/$side/attn.h >$dir/$side/words
        awk '/^\/\* -+ >>/ { on = />>kernels-vector/ } on && /^# *define/' $dir/$side/attn.h >$dir/$side/vocabulary
    done
    row "attn.h: rooms" $(grep -c "$banner" $dir/a/attn.h) $(grep -c "$banner" $dir/b/attn.h)
    row "attn.h: #defines of the vector kernels" $(wc -l <$dir/a/vocabulary) $(wc -l <$dir/b/vocabulary)
    row "attn.h: private names" $(wc -l <$dir/a/names) $(wc -l <$dir/b/names)
    row "attn.h: words that these are made of" $(wc -l <$dir/a/words) $(wc -l <$dir/b/words)
}
list_words() {
    echo "words of private names, by the number of names:"
    head -n "$WORDS" $dir/b/words | awk '{ printf "%s %d  ", $2, $1 } END { print "" }' | fold -s -w 120
    for side in a b; do awk '{ print $2 }' $dir/$side/words | sort >$dir/$side/sorted; done
    echo "new:  $(comm -13 $dir/a/sorted $dir/b/sorted | tr '\n' ' ')" | fold -s -w 120
    echo "gone: $(comm -23 $dir/a/sorted $dir/b/sorted | tr '\n' ' ')" | fold -s -w 120
}
sums() { # sums FILE: bytes of machine code in an object, by what its functions' names say; `steering`: the others
    nm -S --size-sort -t d "$1" | awk '$3 !~ /[tT]/ { next }
        $4 ~ /_(avx2|avx512|portable|neon)([.]|$)/ && $4 ~ /dots|skinny/ { few += $2 }
        { match($4, /_(avx2|avx512|portable|neon|scalar)([.]|$)/)
          set = RSTART ? substr($4, RSTART + 1) : "steering"; sub(/[.].*/, "", set); sum[set] += $2 }
        END { print "dots, skinny (vectors)\t" few + 0
              for (n = split("avx2 avx512 neon portable scalar steering", name, " "); n; n--)
                  if (sum[name[n]]) print name[n] "\t" sum[name[n]] }'
}
object_size() { # object_size DIRECTORY: of code and constants
    (cd "$1" && $CC -O2 -x c -DATTN_IMPLEMENTATION -c attn.h -o attn.o) >&2 &&
        size "$1/attn.o" | awk 'NR == 2 { print $1 + $2 }'
}

b=${2:-"this tree"}
printf '%-60s %12s %12s %8s\n' "" "$1" "$b" "ratio"
for header in attn.h attn_cuda.cuh; do texts $header || exit 1; done
names
compile="$CC -O2 -x c -DATTN_IMPLEMENTATION -c attn.h"
row "attn.h: bytes of text and data at -O2" "$(object_size $dir/a)" "$(object_size $dir/b)"
for side in a b; do sums $dir/$side/attn.o >$dir/$side/sums; done
while IFS='	' read -r what size; do
    row "attn.h: bytes of code, $what" "$(awk -F'\t' -v what="$what" '$1 == what { print $2 }' $dir/a/sums)" "$size"
done <$dir/b/sums
echo "attn.h, walks of $1:" && sh tests/walks.sh $dir/a/attn.h $dir/a
echo "attn.h, walks of $b:" && sh tests/walks.sh $dir/b/attn.h $dir/b
if [ "$PAIRS" != 0 ]; then
    times=$($tool time "$PAIRS" $dir/a $dir/b $compile -o attn.o) || exit 1
    set -- $times
    printf '%-60s %12s %12s %8s  %s\n' "attn.h: user seconds of compiling at -O2" "$1" "$2" "$3" \
        "medians of $PAIRS; of the ratios"
    echo "$compile; $($CC --version | head -n 1)"
fi
[ "$WORDS" = 0 ] || list_words
