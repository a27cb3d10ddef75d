# device.sh - the GPU kernels on a device. `make cuda-device-build` is `device.sh build`: all programs for DEVICE_ARCH,
# here or on another machine, what is up to date skipped. `make test-cuda-run` is `device.sh run`: runs what was built,
# which may have been carried here (build/cuda/device-ARCH and this script's tests/ are enough), first what the rest
# stands on; a line for each step, and after the first that fails where to look. `make test-cuda` is both. POSIX sh.
. tests/items.sh
. tests/cuda/nvcc.sh

MOST_MEGABYTES=60                               # of what is carried
MOST_SECONDS=480                                # of all steps
SUITES="forward special properties mha bmm pieces softmax"

build() {
    [ -n "$NVCC" ] || { skipped "make cuda-device-build ($WITHOUT_NVCC)"; return; }
    arch=${DEVICE_ARCH:-$(device_here && echo "$device")}
    arch=${arch:-90a}
    flags="$NVCC_FLAGS $(code_for "$arch")"
    case $("$NVCC" --help) in *--split-compile*) flags="$flags --split-compile=0" ;; esac
    start=$(date +%s)
    make JOBS="$(getconf _NPROCESSORS_ONLN)" DEVICE_ARCH="$arch" NVCC="$NVCC" NVCC_DEVICE_FLAGS="$flags" \
        cuda-device-programs >"$cuda/device-build.log" 2>&1 ||
        { failed "programs for sm_$arch" "$cuda/device-build.log"; return 1; }
    dir=$cuda/device-$arch
    bytes=$(find "$dir" -type f -perm -u+x -exec wc -c {} + | awk 'END { print $1 }')
    what="programs for sm_$arch in $dir: $(($(date +%s) - start)) s, $((bytes / 1048576)) MB"
    if [ "$bytes" -lt $((MOST_MEGABYTES * 1048576)) ]; then ok "$what"
    else failed "$what; at most $MOST_MEGABYTES MB are to be carried"; fi
}

# step NAME HINT COMMAND...: HINT is what to look at where it fails. The time that is left limits it.
step() {
    name=$1 hint=$2; shift 2
    log=$dir/$(echo "$name" | tr -c 'a-zA-Z0-9\n' '-').log
    began=$(date +%s)
    left=$((deadline - began))
    [ $left -gt 0 ] || { skipped "$name (the $MOST_SECONDS s are over)"; return; }
    timeout $left "$@" >"$log" 2>&1
    status=$?
    line="$name: $(tail -n 1 "$log" | cut -c1-80) ($(($(date +%s) - began)) s)"
    if [ $status = 0 ]; then ok "$line"; return; fi
    if [ $status = 124 ]; then skipped "$name (it took longer than what was left of $MOST_SECONDS s)"; return; fi
    failed "$line" "$log"
    echo "        look at: $hint; the rest is not run"
    exit 1
}
needs() { # needs TOOL STEP...: a step for which a tool is needed
    tool=$1; shift
    if have "$tool"; then step "$@"; else skipped "$1 (no $tool)"; fi
}

blocking() { CUDA_LAUNCH_BLOCKING=1; export CUDA_LAUNCH_BLOCKING; }     # the suites read what a call left behind
run_steps() {
    deadline=$(($(date +%s) + MOST_SECONDS))
    step "primitives" "section >>hw of attn_cuda.cuh, and no stage before that is right" "$dir/hw_conformance"
    blocking
    for arch in 75 80 90; do
        [ $arch -le "${device%a}" ] || continue
        step "calls of attn.h as sm_$arch" "the stage of sm_$arch; FAKE_ARCH=75 takes stage 1 alone" \
            env FAKE_ARCH=$arch "$dir/emulated"
    done
    for stage in 2 3; do
        [ $stage = 2 ] || [ "${device%a}" = 90 ] || continue
        step "stage $stage against float64" "the first FAIL names shape and options: $dir/fast 12 1 \"stage $stage\"" \
            "$dir/fast" 4 1 "stage $stage"
    done
    for check in memcheck racecheck synccheck; do
        needs compute-sanitizer "$check of the fast stages" "the kernel that it names; slots and barriers of stage 3" \
            compute-sanitizer --tool $check --error-exitcode 1 "$dir/emulated" --filter emulated.fast_stages
    done
    for name in quickstart compare train; do
        step "example $name" "examples/cuda/$name; train captures a graph" "$dir/$name"
    done
    if [ "$pageable" = 1 ]; then
        for suite in $SUITES; do
            step "the suite $suite, all arrays on the device" "tests/$suite.c; stage 1" \
                env FAKE_ELSEWHERE=3 FAKE_SIMPLE=1 "$dir/suites" --isa scalar --filter "$suite."
        done
    else skipped "suites of the CPU with all arrays on the device (it cannot read ordinary memory)"; fi
    unset CUDA_LAUNCH_BLOCKING
    for row in "forward d128" "backward d128 4k" "forward d64 8k" "forward d256 8k" "backward d64 4k" decode f32; do
        step "bench: $row" "bench/cuda.cu: a row that is wrong says so" "$dir/bench" --rows "$row"
    done
}
run() {
    dir=$(find "$cuda" -maxdepth 1 -name 'device-*' -type d | head -n 1)
    device_here "${dir:-$cuda/device-none}/which" || {
        skipped "make test-cuda-run: nothing was tested on a device ($no_device)"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    }
    dir=$cuda/device-$device
    [ -d "$dir" ] || { failed "nothing was built for sm_$device"; exit 1; }
    echo "device: $device_name, sm_$device"
    (run_steps) | tee "$cuda/device.results"
    awk '/^ok/ { passed++ } /^FAILED/ { failed++ } /^skipped/ { skipped++ }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit failed > 0 || passed == 0 }' \
        "$cuda/device.results"
}

case ${1:-} in
    build) build ;;
    run)   run ;;
    *)     build && run ;;
esac
