# mutants.sh - plants one fault after the other into attn_cuda.cuh (mutants.txt) and runs its kernels in the emulator:
# each must be noticed, some of them under sanitizers alone. `make test-cuda-mutants`; `sh tests/cuda/mutants.sh
# mutant:NUMBER` plants one of them.
. tests/items.sh
. tests/cuda/sanitizers.sh

dir=$out/cuda/mutants
mkdir -p "$dir"
: "${CXX:=c++}"
grep -v '^#' tests/cuda/mutants.txt >"$dir/list"

# Without a fault the same calls pass, else each fault would be noticed: of each kind of calls once, to the last, where a
# fault ends most of them early.
limit=300                               # seconds of a processor
item_sound() { limit=1500; item_mutant "$1" sound; }
item_mutant() { # NUMBER [sound [again]]
    here=$dir/$1$2$3 number=$1
    sound=${2:-faulty}
    name=$(sed -n "$1p" "$dir/list" | cut -f1)
    mkdir -p "$here/tests/cuda"
    cp attn.h "$here"
    cp tests/cuda/*.cc tests/cuda/*.h "$here/tests/cuda"
    sed -n "$1p" "$dir/list" | cut -f2- |
        sed 's|^MMA |/^.. -.*>>mma/,/^.. -.*>>hopper/|; s|^HOPPER |/^.. -.*>>hopper/,/^.. -.*>>dispatch/|' >"$here/fault.sed"
    sed -f "$here/fault.sed" attn_cuda.cuh >"$here/attn_cuda.cuh"
    if cmp -s attn_cuda.cuh "$here/attn_cuda.cuh"; then failed "changes nothing: $name"; return; fi
    [ -z "$2" ] || cp attn_cuda.cuh "$here"
    source=device       # stage 1, and which stage runs, are tested with the calls of attn.h
    others=$(for file in cuda/emulated cuda/main-emulated cuda/attn $(printf 'obj/%s ' $harness); do
        echo "$PWD/build/$file.o"; done)
    case $name in
        "stage 2, l"*)      dims=128,256 ;;     # head size 128 is what differs
        *"no whole groups") dims=48,80 ;;
        *"heads of 32"*)    dims=32,64 ;;
        *"of 160 columns"*) dims=64,160 ;;
        *"of 192 columns"*) dims=64,192 ;;
        "stage 2 entries, backward"*|"stage 2 entries,"*"bias and mask"*|*"tiles, entries"*) dims=64,128 ;;    # others are stage 1's
        "dispatch"*)            dims=64,128,256 ;;
        *)                  dims=64,256 ;;
    esac
    optimize=-O0                                    # compiling takes longer than running
    types="-DATTN_CUDA_BF16=0 -DATTN_CUDA_F32=0"    # one type shows a fault that names none
    case $name in *f32*|*F32*) types=-DATTN_CUDA_BF16=0 ;; *bf16*) types=-DATTN_CUDA_F32=0 ;; esac
    flags=
    case $name in
        "products"*) set -- --first --filter emulated.products; flags=-DATTN_CUDA_MAX_BLOCKS=5 ;;
        "stage 1"*)  set -- --first --filter emulated.tiles ;;
        "cache"*)    set -- --first --filter emulated.cache ;;
        "dispatch"*) set -- --first --filter emulated.fast ;;
        "errors"*)   set -- --first --filter emulated.lost_device ;;
        "devices"*)  set -- --first --filter emulated.several_devices ;;
        *"sums over pairs"*) source=fast; others=; set -- 6 3 "${name%%:*}" ;;      # the longest calls
        *"a scale of 0"*|*"last query have weight"*) source=fast; others=; set -- 60 2 "${name%%:*}" ;;     # few show it
        *"weights, decode"*) source=fast; others=; set -- 60 4 "${name%%:*}" ;;     # few have parts and no stats
        *)           source=fast; others=; set -- 15 4 "${name%%:*}" ;;
    esac
    case $name in                                   # here running does
        "stage 1"*|"cache"*|"errors"*) optimize=-O1 types="-DATTN_CUDA_F16=0 $types -DATTN_CUDA_F32=0" ;;
        "products"*|"dispatch"*) optimize=-O1 types= ;;
        "devices"*) types="-DATTN_CUDA_F16=0 -DATTN_CUDA_F32=0" ;;  # bf16: where an older device has another stage
    esac
    case $name in *"under the sanitizers"*)
        flags=$(sanitizers) || { skipped "$name ($CXX has none)"; return; }
        set -- 12 2 "${name%%:*}" ;;                # which take several times as long
    esac
    flags="$optimize $FMA -ffp-contract=off -w $flags $types -DATTN_CUDA_HEAD_DIMS=$dims"
    flags="$flags -DATTN_CUDA_HOPPER_DIMS=64,96,128,192,256"
    (cd "$here" && $CXX -std=c++17 $flags -I. "tests/cuda/$source.cc" $others \
        -o faulty) >"$here/log" 2>&1 || { failed "does not compile: $name" "$here/log"; return; }
    # A fault may make a kernel wait for ever or read what is not there: also noticed, but what takes too long is held
    # against the same calls without a fault.
    ran=0
    (ulimit -t $limit; ulimit -c 0; "$here/faulty" "$@") >"$here/log" 2>&1 || ran=$?
    if [ $sound = sound ]; then
        if [ $ran = 0 ]; then ok "without a fault: ${name%%:*}"; else failed "without a fault: ${name%%:*}" "$here/log"; fi
    elif [ $ran = 0 ]; then failed "not noticed: $name"
    elif [ $ran = 137 ] && ! (item_mutant "$number" sound again) >/dev/null; then failed "takes too long with and without: $name"
    else ok "noticed: $name ($(sed -n -e 's/^FAIL //p' -e 's/^    [^ ]*\.[ch]:[0-9]*: //p' "$here/log" | head -n 1 | cut -c1-90))"
         rm -rf "$here"; fi
}

items "$1" $(awk -F: '!seen[$1]++ { print "sound:" NR }  { print "mutant:" NR }' "$dir/list")
