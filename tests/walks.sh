# walks.sh - how far a reader walks through attn.h who follows a call: an f32 causal forward pass, one query over a
# paged int8 cache with 32 heads on 8, the gradients of the first. `make measure` prints it of two versions, `sh
# tests/walks.sh FILE` of one. Needs gcc and binutils. POSIX sh.
#
# The functions of FILE that run are those that -finstrument-functions sees at -O0. A step is a function's first call,
# from the function that made it, and a jump one of more than 500 lines between the two definitions. Of two functions
# that are first called one after the other, back: the second is defined above the first; a change of room: they are in
# different rooms (banners `>>name`). All pairs: jumps among all pairs of caller and callee, each once.
: "${CC:=gcc}"
header=$1 dir=${2:-build/walks}
[ -f "$header" ] || { echo "usage: sh tests/walks.sh FILE [FOLDER]"; exit 2; }
mkdir -p "$dir" || exit 1
case $header in /*) ;; *) header=$PWD/$header ;; esac
$CC -O0 -g -w -no-pie -finstrument-functions -finstrument-functions-exclude-file-list=/include/ \
    -DATTN_FILE="\"$header\"" -DWALK_HEADER="\"$header\"" tests/walk.c -o "$dir/walk" -lm || exit 1
for call in forward paged backward; do
    "$dir/walk" $call >"$dir/pairs" || { cat "$dir/pairs"; exit 1; }
    awk '{ print $2 }' "$dir/pairs" | sort -u >"$dir/addresses"
    addr2line -e "$dir/walk" -f <"$dir/addresses" | paste - - | paste "$dir/addresses" - >"$dir/$call.functions"
    awk -v call="$call" '
        function far(a, b) { return a > b + 500 || b > a + 500 }
        FILENAME ~ /attn[.]h$/ { if (/^\/[*] ----+ >>/) at[++rooms] = FNR; next }
        FILENAME ~ /functions$/ { if (split($0, part, "/attn[.]h:") > 1) line[$1] = part[2] + 0; next }
        $2 in line {
            here = line[$2]
            jump = $1 in line && far(line[$1], here)
            pairs += jump
            if (seen[$2]++) next
            for (room = rooms; room > 1 && at[room] > here; room--) { }
            functions++; jumps += jump; back += before > here; changes += before && last != room
            before = here; last = room
        }
        END { printf "%s: %d functions, %d jumps, %d back, %d changes of room; all pairs: %d jumps\n",
              call, functions, jumps, back, changes, pairs }' "$header" "$dir/$call.functions" "$dir/pairs"
done
