# device.sh - `make test-cuda`: the GPU kernels on a device. Every primitive (hw_conformance.cu), the suite that the
# emulator runs too, suites of the CPU with all arrays on the device, the examples. Where there is no device nothing
# is tested, and that is what it says. POSIX sh.
. tests/items.sh
. tests/cuda/nvcc.sh

SUITES="forward special properties mha bmm pieces softmax"
EXAMPLES="quickstart compare train"
dir=$cuda/device
mkdir -p "$dir"
export FULL=1

compiled() { # compiled OBJECT COMMAND...
    "$@" >"$dir/compile.log" 2>&1 || { failed "compiling for sm_$device: $*" "$dir/compile.log"; return 1; }
}
build() {
    flags="$NVCC_FLAGS $(code_for "$device")"
    echo "compiling for sm_$device: minutes"
    compiled "$NVCC" $flags tests/cuda/hw_conformance.cu -o "$dir/hw_conformance" &&
    compiled "$NVCC" $flags -c tests/cuda/device.cu -o "$dir/device.o" &&
    compiled $CC -O2 -I. -c tests/cuda/attn.c -o "$dir/attn.o" &&
    compiled $CC -O2 -I. -c tests/cuda/emulated.c -o "$dir/emulated.o" || return 1
    compiled "$NVCC" $flags -c examples/cuda/kernels.cu -o "$dir/kernels.o" || return 1
    for name in $EXAMPLES; do
        compiled "$NVCC" $flags examples/cuda/$name.c* examples/cuda/attention.c "$dir/kernels.o" -o "$dir/$name" ||
            return 1
    done
    list=
    for suite in $SUITES ref; do
        compiled $CC -O2 -c "tests/$suite.c" -o "$dir/$suite.o" || return 1
        list="$list $dir/$suite.o"
    done
    compiled $CC -O2 -DTEST_MAPPED '-DSUITES=X(emulated)' -c tests/main.c -o "$dir/main_emulated.o" &&
    compiled $CC -O2 -DTEST_MAPPED "-DSUITES=$(for suite in $SUITES; do printf 'X(%s) ' "$suite"; done)" \
        -c tests/main.c -o "$dir/main_suites.o" &&
    compiled "$NVCC" "$dir/emulated.o" "$dir/main_emulated.o" "$dir/ref.o" "$dir/attn.o" "$dir/device.o" \
        -o "$dir/emulated" &&
    compiled "$NVCC" $list "$dir/main_suites.o" "$dir/attn.o" "$dir/device.o" -o "$dir/suites"
}

item_conformance() {
    if "$dir/hw_conformance" >"$dir/hw_conformance.log" 2>&1; then
        grep '^skipped' "$dir/hw_conformance.log"
        ok "$(tail -n 1 "$dir/hw_conformance.log")"
    else
        failed "hw_conformance" "$dir/hw_conformance.log"
    fi
}
# The suites read what a call left when it returns: launches must wait.
item_emulated() { # item_emulated ARCHITECTURE: the stages of a device of that architecture
    log=$dir/emulated.$1.log
    if FAKE_ARCH=$1 CUDA_LAUNCH_BLOCKING=1 "$dir/emulated" >"$log" 2>&1; then ok "as sm_$1: $(tail -n 1 "$log")"
    else failed "the emulator's suite as sm_$1" "$log"; fi
}
item_suite() { # all arrays are managed memory, and stage 1 keeps what these suites ask of bits
    log=$dir/suite-$1.log
    if FAKE_ELSEWHERE=3 FAKE_SIMPLE=1 CUDA_LAUNCH_BLOCKING=1 \
            "$dir/suites" --isa scalar --filter "$1." >"$log" 2>&1; then
        ok "the suite $1 with all arrays on the device: $(tail -n 1 "$log")"
    else
        failed "the suite $1 with all arrays on the device" "$log"
    fi
}
item_example() { # item_example NAME: it checks itself
    if "$dir/$1" >"$dir/$1.log" 2>&1; then ok "examples/cuda/$1"; else failed "examples/cuda/$1" "$dir/$1.log"; fi
}

emulated_as() { # what the device is, and what it can play: stages 1, 2, 3
    for arch in 75 80 90; do
        if [ "$arch" -le "${device%a}" ]; then echo $arch; fi
    done
}

if [ -n "$1" ]; then items "$1"; exit; fi
device_here || {
    skipped "make test-cuda: nothing was tested on a device ($no_device)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
echo "device: $device_name, sm_$device"
build || { echo "0 passed, 1 failed"; exit 1; }
suites=
if [ "$pageable" = 1 ]; then suites=$(for suite in $SUITES; do echo "suite:$suite"; done)
else skipped "suites of the CPU with all arrays on the device (it cannot read ordinary memory)"; fi
items "" conformance $(for arch in $(emulated_as); do echo "emulated:$arch"; done) $suites \
    $(for name in $EXAMPLES; do echo "example:$name"; done)
