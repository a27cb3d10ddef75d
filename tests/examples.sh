# examples.sh - runs the examples in NAMES, which `make examples` has built, from the top of the tree. Each
# checks itself and exits with 0 when it is content.
. tests/items.sh

# What a program is called with: where SVG files go.
arguments() {
    case $1 in
    textbook|heads|kernel_regression|fit_kernel) echo "$out/pictures" ;;
    attn) echo "--sample $out/pictures" ;;
    tiny_gpt) echo "--svg $out/pictures/tiny_gpt.svg" ;;
    esac
}

item_run() {
    log=$out/$1.log
    if "$out/$1" $(arguments "$1") >"$log" 2>&1; then ok "$1"; else failed "$1" "$log"; fi
}

# A program whose output is lost, because the disk is full or nobody has opened it, exits with 1. (train_align, which
# takes long, is asked by its suite.)
item_lost() {
    [ -c /dev/full ] || { skipped "lost output (no /dev/full)"; return; }
    wrong=$out/lost.log
    for name in $NAMES; do
        case $name in
        train_align) continue ;;
        tiny_gpt) set -- --steps 1 README.md ;;
        *) set -- $(arguments "$name") ;;
        esac
        "$out/$name" "$@" >/dev/full 2>/dev/null; status=$?
        [ $status = 1 ] || echo "$name on a full disk: exit status $status"
        [ "$name" = tiny_gpt ] && continue
        "$out/$name" "$@" >&- 2>/dev/null; status=$?
        [ $status = 1 ] || echo "$name without an output: exit status $status"
    done >"$wrong"
    if [ -s "$wrong" ]; then failed "lost output" "$wrong"; else ok "lost output"; fi
}

# What the command attn understands, where its results go, and what it says about a mistake: in its own words.
item_command() {
    dir=$out/command log=$out/command.log
    rm -rf "$dir"; mkdir -p "$dir"
    attn() { "$OLDPWD/$out/attn" "$@"; }
    npy() { # npy TYPE SHAPE: what stands in front of the numbers
        printf "\\223NUMPY\\001\\000\\166\\000%-117s\\n" "{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
    }
    says() { # says STATUS TEXT ARGUMENTS
        wanted=$1 text=$2; shift 2
        said=$(attn "$@" 2>&1 >/dev/null); status=$?
        case $said in *"$text"*) [ $status = "$wanted" ] && return ;; esac
        printf '%s\n' "attn $*: exit status $status, not $wanted with \"$text\":" "    $said"
    }
    same() { cmp "$1" "$2" >/dev/null 2>&1 || echo "$1 is not $2"; }
    cd "$dir" || return
    {
        attn --sample . >/dev/null
        set -- q.npy k.npy v.npy
        attn "$@" --score gaussian --out want.npy || echo "no output"
        attn "$@" --score=gaussian -o short.npy; same short.npy want.npy
        attn "$@" --score=GAUSSIAN --out=joined.npy; same joined.npy want.npy
        attn "$@" --score gaussian --out - >piped.npy; same piped.npy want.npy
        attn "$@" --svg=want.svg; attn "$@" --svg - >piped.svg; same piped.svg want.svg
        attn "$@" --causal --align top-left | grep -q '// masked' || echo "masked weights are not hatched"
        [ "$(attn -h)" = "$(attn --help)" ] && attn -h | grep -q -e '-o, --out FILE' || echo "no help"
        [ "$(attn --version)" = "attn $(sed -n '1s/.* v\([0-9.]*\) .*/\1/p' "$OLDPWD/attn.h")" ] || echo "no version"
        says 2 '--out and --weights would both be written to ./x.npy' "$@" --out x.npy --weights ./x.npy
        says 2 '--weights and --svg would both be written to -' "$@" --weights - --svg -
        says 2 'there is no option --weight: is --weights meant?' "$@" --weight w.npy
        says 2 'there is no option --is-causal: is --causal meant?' "$@" --is-causal
        says 2 'there is no option --query: is --query-starts meant?' "$@" --query q.npy
        says 2 'there is no option -x' "$@" -x
        says 2 '--causal takes no value' "$@" --causal=1
        says 2 'three files are needed' ''
        says 2 '--score: there is no scaled_dott: is scaled-dot meant?' "$@" --score scaled_dott
        says 1 '--align must be set where Sq != Sk: bottom-right (' "$@" --causal
        says 1 '--positions must be given for --align positions' "$@" --align positions
        says 2 '--window: -3 is not a whole number from -1 to' "$@" --window -3,0
        for wrong in 1 1,2,3 1, ,1 1,2x '' 1.5,2; do says 2 '--window: ' "$@" --window "$wrong"; done
        for option in --scale --sigma --softcap --dropout; do
            for wrong in '' x 1x ' 1' nan inf 1e39 1e-60 1,5; do
                says 2 "$option: $wrong is not a" "$@" $option "$wrong"
            done
        done
        for wrong in -1 18446744073709551616 '' 1x 1.5 ' 1' 0x10; do
            says 2 "--seed: $wrong is not a whole number from 0 to 18446744073709551615" "$@" --seed "$wrong"
        done
        says 0 '' "$@" --dropout 0.5 --seed 18446744073709551615
        says 2 '--dropout must be within 0..1' "$@" --dropout 1.5
        says 2 '--softcap must' "$@" --softcap -1
        says 2 '--key-lengths: 99999999999999999999 is not a' "$@" --key-lengths 99999999999999999999
        says 2 '--key-lengths:  is not a whole number' "$@" --key-lengths 3,,
        says 2 '--key-lengths: a number of more than 23 ch' "$@" --key-lengths 000000000000000000000031
        says 1 '3x: No such file' "$@" --key-lengths 3x
        says 1 '--key-lengths' "$@" --key-lengths 3,4
        says 1 '--mask.type must be u8, is f32' "$@" --mask q.npy
        says 1 'k.size[3] must equal q.size[3]: 4, is 7 (axes are counted as in [B,H,S,D])' q.npy w.npy v.npy
        npy '<i4' '1, 1' >i.npy; printf '\1\0\0\0' >>i.npy
        says 1 'none.npy: No such file or directory' none.npy none.npy none.npy
        says 1 'q.type must be f32, f16 or bf16, is i32' i.npy i.npy i.npy
        npy '<f8' '1, 1' >d.npy; printf '\0\0\0\0\0\0\360\077' >>d.npy         # 1.0
        says 0 'd.npy holds numbers of f64: they are rounded, all is computed in f32' d.npy d.npy d.npy
        [ "$(attn d.npy d.npy d.npy 2>&1 >/dev/null | wc -l)" = 1 ] || echo "f64 is not said once"
        says 1 "no/x.npy: it cannot be written: " "$@" --out no/x.npy
        [ -c /dev/full ] && for way in --out --svg; do
            says 1 '/dev/full: it cannot be written: No space left' "$@" $way /dev/full
            attn "$@" $way - 2>full.log >/dev/full; grep -q '^attn: standard output: it cannot be wr' full.log ||
                echo "a full disk behind $way - is not named"
        done
    } >"$OLDPWD/$log" 2>&1
    cd "$OLDPWD" || return
    if [ -s "$log" ]; then failed "command" "$log"; else ok "command"; fi
}

# A checkpoint of tiny_gpt is taken as it was written and in no other way.
item_checkpoint() {
    log=$out/checkpoint.log file=$out/tiny_gpt.checkpoint bad=$out/tiny_gpt.damaged
    train() { "$out/tiny_gpt" --steps "$1" --checkpoint "$2" README.md >"$log" 2>&1; }
    put() { cp "$file" "$bad"; printf "$2" | dd of="$bad" bs=1 seek="$1" conv=notrunc 2>/dev/null; }
    refused() { # WHAT STATUS STEPS FILE
        train "$3" "$4"; status=$?
        [ $status = "$2" ] || { echo "$1: exit status $status"; head -n 3 "$log"; }
    }
    rm -f "$file"
    {
        train 1 "$file" && train 1 "$file" && grep -q 'going on from' "$log" || head -n 3 "$log"
        refused "other steps" 1 2 "$file"
        size=$(wc -c <"$file")
        put "$((size))" x; refused "a byte too many" 1 1 "$bad"
        dd if="$file" of="$bad" bs="$((size - 1))" count=1 2>/dev/null; refused "a byte too few" 1 1 "$bad"
        put 32 '\377\377\377\377\377\377\377\377'; refused "step -1" 1 1 "$bad"
        put 32 '\002\002\002\002\002\002\002\002'; refused "a step beyond the last" 1 1 "$bad"
        put 40 '\377\377\377\377'; refused "a power that is no number" 1 1 "$bad"
        put 48 '\377\377\377\377'; refused "a parameter that is no number" 1 1 "$bad"
        put "$((size - 4))" '\377\377\177\377'; refused "a square below 0" 1 1 "$bad"
        refused "a long path" 2 1 "$(printf '%05000d' 0)"
        for steps in 0 -1 5k '' 99999999999; do
            refused "$steps steps" 2 "$steps" "$file"
            grep -q "^tiny_gpt: --steps: $steps is not a whole number" "$log" || echo "$steps steps are not named"
        done
    } >"$out/checkpoints.log"
    if [ -s "$out/checkpoints.log" ]; then failed "checkpoints" "$out/checkpoints.log"; else ok "checkpoints"; fi
}

# A number of a command line is taken whole, or refused by name; nothing is written then. (attn's: the item command.)
item_numbers() {
    log=$out/numbers.log
    refused() { # PROGRAM OPTION VALUE ARGUMENTS
        program=$1 option=$2 value=$3; shift 3
        said=$("$out/$program" "$@" 2>"$log"); status=$?
        [ $status = 2 ] && [ -z "$said" ] && grep -q "^$program: $option: $value is not a" "$log" ||
            echo "$program, $option '$value': exit status $status: $(head -n 1 "$log")"
    }
    {
        for value in '' x 1x -1 0 1.5 ' 1' 99999999999999999999; do
            refused align --max-words "$value" --max-words "$value"
            refused tiny_gpt --steps "$value" --steps "$value"
            [ "$value" = 0 ] || refused train_align --steps "$value" --steps "$value"
            refused out_of_core KEYS "$value" "$value"
            refused out_of_core MEGABYTES "$value" 64 "$value"
        done
        for value in '' x 1x -1 0 nan inf 1e39 1e-50; do refused align --sharpness "$value" --sharpness "$value"; done
    } >"$out/numbers.wrong"
    if [ -s "$out/numbers.wrong" ]; then failed "numbers" "$out/numbers.wrong"; else ok "numbers"; fi
}

# A model that tiny_gpt exports is read by generate, whole or not at all, and in no other way than as a list of sizes.
item_model() {
    model=$out/tiny_gpt.model bad=$out/tiny_gpt.bad log=$out/model.log
    write() { "$out/generate" --tokens 40 "$@" "$model" 'static int' '/* The ' 2>"$log" | sed '/^----$/,$d'; }
    refused() { # WHAT STATUS ARGUMENTS
        what=$1 wanted=$2; shift 2
        "$out/generate" "$@" >"$log" 2>&1; status=$?
        [ $status = "$wanted" ] || { echo "$what: exit status $status"; head -n 3 "$log"; }
    }
    put() { cp "$model" "$bad"; printf "$2" | dd of="$bad" bs=1 seek="$1" conv=notrunc 2>/dev/null; }
    {
        "$out/tiny_gpt" --steps 1 --export "$model" README.md >"$log" 2>&1 || head -n 3 "$log"
        write >"$out/model.text"
        [ -s "$out/model.text" ] || { echo "no text"; head -n 3 "$log"; }
        write --page 16 --batch 1 --threads 2 | cmp "$out/model.text" -
        size=$(wc -c <"$model")
        put "$size" x; refused "a byte too many" 1 "$bad"
        dd if="$model" of="$bad" bs="$((size - 1))" count=1 2>/dev/null; refused "a byte too few" 1 "$bad"
        put 0 '\000\000\000\000'; refused "a width of 0" 1 "$bad"
        put 12 '\003\000\000\000'; refused "heads that do not divide the width" 1 "$bad"
        put 20 '\000\000\000\200'; refused "a vocabulary of -2^31" 1 "$bad"
        put 20 '\000\377\377\377'; refused "an output of its own that is not there" 1 "$bad"
        refused "no such file" 1 "$out/none"
        refused "an empty prompt" 1 "$model" ''
        refused "a prompt that is too long" 1 "$model" "$(printf '%0300d' 0)"
        refused "too many tokens" 1 --tokens 256 "$model" 'for'
        for wrong in '--cache f16' '--weights 8' '--temperature -1' '--temperature 1e-40' '--temperature 101' \
            '--temperature 1x' '--temperature nan' '--tokens 0' '--tokens 5k' '--page -1' '--batch 65' '--threads x' \
            '--seed -1' '--seed 18446744073709551616' '--what 1'; do
            refused "$wrong" 2 $wrong "$model"
            grep -q "^generate: .*${wrong%% *}" "$log" || echo "$wrong is not named"
            "$out/generate" $wrong "$model" 2>/dev/null | grep . && echo "$wrong: something on standard output"
        done
        refused "--measure with more" 2 --measure 1 "$model"
        for last in --seed --tokens; do
            refused "$last at the end" 2 "$model" for $last
            grep -q "^generate: $last: its value is missing" "$log" || echo "$last at the end is not named"
        done
    } >"$out/models.log"
    if [ -s "$out/models.log" ]; then failed "models" "$out/models.log"; else ok "models"; fi
}

mkdir -p "$out/pictures"

items "$1" $(for name in $NAMES; do echo "run:$name"; done) lost checkpoint model numbers command
