# device.sh - the GPU kernels on a device. `make cuda-device-build` is `device.sh build`: all programs for DEVICE_ARCH,
# here or on another machine, what is up to date skipped. `make test-cuda-run` is `device.sh run`: runs what was built,
# which may have been carried here (build/cuda/device-ARCH and this script's tests/ are enough), first what the rest
# stands on; a line for each step, and after one that fails where to look. `make test-cuda` is both. `make
# cuda-device-first` is `device.sh first`: the first ten minutes on a device. STEP_SECONDS limits every step. POSIX sh.
. tests/items.sh
. tests/cuda/nvcc.sh

MOST_MEGABYTES=48                               # of what is carried
MOST_SECONDS=480                                # of all steps
SUITES="forward special properties mha bmm pieces softmax"

build() {
    [ -n "$NVCC" ] || { skipped "make cuda-device-build ($WITHOUT_NVCC)"; return; }
    arch=${DEVICE_ARCH:-$(device_here && echo "$device")}
    arch=${arch:-90a}
    flags="$NVCC_FLAGS $(code_for "$arch")"
    case $("$NVCC" --help) in *--split-compile*) flags="$flags --split-compile=0" ;; esac
    start=$(date +%s)
    # a make of its own: one inside another that does not share its jobs would have one
    MAKEFLAGS='' make JOBS="$(getconf _NPROCESSORS_ONLN)" DEVICE_ARCH="$arch" NVCC="$NVCC" CC="${CC:-cc}" \
        NVCC_DEVICE_FLAGS="$flags" cuda-device-programs >"$cuda/device-build.log" 2>&1 ||
        { failed "programs for sm_$arch" "$cuda/device-build.log"; return 1; }
    dir=$cuda/device-$arch
    bytes=$(find "$dir" -type f -exec wc -c {} + | awk 'END { print $1 }')
    what="programs for sm_$arch in $dir: $(($(date +%s) - start)) s, $((bytes / 1048576)) MB"
    if [ "$bytes" -lt $((MOST_MEGABYTES * 1048576)) ]; then ok "$what"
    else failed "$what; at most $MOST_MEGABYTES MB are to be carried"; fi
}

# step NAME SECONDS HINT COMMAND...: a line; 1 where it failed. HINT is what to look at then. SECONDS is its limit: a
# kernel that waits for ever fails, and costs no other step its time. What could not have its whole limit is not begun.
step() {
    name=$1 limit=$2 hint=$3; shift 3
    [ -z "${STEP_SECONDS:-}" ] || limit=$STEP_SECONDS
    log=$dir/$(echo "$name" | tr -c 'a-zA-Z0-9\n' '-').log
    began=$(date +%s)
    [ $((deadline - began)) -ge "$limit" ] || { skipped "$name (not begun: the $MOST_SECONDS s are over)"; return 0; }
    timeout -k 5 "$limit" "$@" >"$log" 2>&1
    status=$?
    line="$name: $(tail -n 1 "$log" | cut -c1-80) ($(($(date +%s) - began)) s)"
    case $status in
        0)         ok "$line"; return 0 ;;
        124 | 137) line="$name: HANGS: not done after $limit s, it may wait for ever" ;;
        *)         line="$line, exit status $status" ;;
    esac
    failed "$line" "$log"
    echo "        look at: $hint"
    return 1
}
needs() { # needs TOOL STEP...: a step for which a tool is needed
    tool=$1; shift
    if have "$tool"; then step "$@"; else skipped "$1 (no $tool)"; fi
}
examples() {
    for name in quickstart compare generate train; do
        step "example $name" 30 "examples/cuda/$name; train captures a graph" "$dir/$name"
    done
}
rows() { # rows SECONDS ROW...: of the benchmark; its figures are in the log
    limit_of_row=$1; shift
    for row in "$@"; do
        step "bench: $row" "$limit_of_row" "bench/cuda.cu: a row that is wrong says so" "$dir/bench" --rows "$row"
    done
}
repeated() { # repeated REPEATS SECONDS
    step "repeated calls" 150 "$dir/repeat: a race, a capture that does not replay, or the stage that it names" \
        "$dir/repeat" "$1" "$2"
    sed -n 's/^host /        host/p' "$dir/repeated-calls.log" 2>/dev/null
}
# Does racecheck follow what stage 3 does with its slots, as a small program shows? Else hazards that it reports there
# say nothing, and the step is left out, by name.
follows_arrivals() {
    have compute-sanitizer || return 0
    timeout 60 compute-sanitizer --tool racecheck --error-exitcode 1 "$dir/arrives" >"$dir/arrives.log" 2>&1 && return 0
    skipped "racecheck of the fast stages (it reports hazards in tests/cuda/arrives.cu, which has none: $dir/arrives.log)"
    return 1
}
primitives() {
    step "primitives" 60 "section >>hw of attn_cuda.cuh, and no stage before that is right" "$dir/hw_conformance"
}

blocking() { CUDA_LAUNCH_BLOCKING=1; export CUDA_LAUNCH_BLOCKING; }     # the suites read what a call left behind
run_steps() {
    deadline=$(($(date +%s) + MOST_SECONDS))
    primitives || { echo "        the rest is not run"; return; }
    repeated 200 2
    blocking
    for arch in 75 80 90; do
        [ $arch -le "${device%a}" ] || continue
        step "calls of attn.h as sm_$arch" 90 "the stage of sm_$arch; FAKE_ARCH=75 takes stage 1 alone" \
            env FAKE_ARCH=$arch "$dir/emulated"
    done
    for stage in 2 3; do
        [ $stage = 2 ] || [ "${device%a}" = 90 ] || continue
        step "stage $stage against float64" 60 \
            "the first FAIL names shape and options: $dir/fast 12 1 \"stage $stage\"" "$dir/fast" 4 1 "stage $stage"
    done
    if [ -x "$dir/fast-plain" ]; then
        step "stage 2 against float64, built for sm_90 without a" 60 \
            "kernels of many queries: $dir/fast-plain 12 1 \"stage 2\"" "$dir/fast-plain" 4 1 "stage 2"
    else skipped "stage 2 against float64, built for sm_90 without a (only with DEVICE_ARCH=90a)"; fi
    for check in memcheck racecheck synccheck; do
        [ $check != racecheck ] || follows_arrivals || continue
        needs compute-sanitizer "$check of the fast stages" 90 \
            "the kernel that it names; slots and barriers of stage 3" \
            compute-sanitizer --tool $check --error-exitcode 1 "$dir/emulated" --filter emulated.fast_stages
    done
    examples
    if [ "$pageable" = 1 ]; then
        for suite in $SUITES; do
            step "the suite $suite, all arrays on the device" 60 "tests/$suite.c; stage 1" \
                env FAKE_ELSEWHERE=3 FAKE_SIMPLE=1 "$dir/suites" --isa scalar --filter "$suite."
        done
    else skipped "the suites $SUITES, all arrays on the device (it cannot read ordinary memory)"; fi
    unset CUDA_LAUNCH_BLOCKING
    rows 60 "forward d128" "backward d128 4k" "forward d64 8k" "forward d256 8k" "backward d64 4k" decode f32
}
# Where a device is at hand for minutes only: what tells most comes first, and nothing stops the rest.
first_steps() {
    deadline=$(($(date +%s) + MOST_SECONDS))
    rows 60 "forward d128 2k" "backward d128 2k"
    repeated 200 5
    primitives
    if [ -x "$dir/repeat-plain" ]; then
        step "built for sm_90 without a" 40 "device_of in attn_cuda.cuh: stage 3 must not run" \
            "$dir/repeat-plain" 4 1 plain
    else skipped "built for sm_90 without a (only with DEVICE_ARCH=90a)"; fi
    examples
    rows 100 "forward d128" "backward d128" "forward d64" decode "forward d256 8k" "backward d64 8k" \
        "backward d256 4k" f32 "additive forward"
}
# run TARGET STEPS: a function with steps, on the device here
run() {
    dir=$(find "$cuda" -maxdepth 1 -name 'device-*' -type d | head -n 1)
    device_here "${dir:-$cuda/device-none}/which" || {
        skipped "make $1: nothing was tested on a device ($no_device)"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    }
    dir=$cuda/device-$device
    [ -d "$dir" ] || { failed "nothing was built for sm_$device"; exit 1; }
    echo "device: $device_name, sm_$device"
    ($2) | tee "$cuda/device.results"
    awk '/^ok/ { passed++ } /^FAILED/ { failed++ } /^skipped/ { skipped++ }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit failed > 0 || passed == 0 }' \
        "$cuda/device.results"
}

case ${1:-} in
    build) build ;;
    run)   run test-cuda-run run_steps ;;
    first) MOST_SECONDS=560; run cuda-device-first first_steps ;;
    *)     build && run test-cuda run_steps ;;
esac
