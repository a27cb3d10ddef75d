# emulated.sh - the kernels of attn_cuda.cuh on this machine's CPU, no CUDA needed: each in the emulator (emu.h), held
# against float64. `make test-cuda-emulated` builds and runs it all; `sh tests/cuda/emulated.sh program:emulated` one.
# FULL=1 takes minutes: every head size, more calls, each in all timings of the emulator, more suites.
. tests/items.sh

dir=$out/cuda${FULL:+-full}
items="program:emulated program:fast suite:special suite:mha program:primitives suite:bmm suite:pieces suite:softmax suite:entries python"
calls="6 2"                                 # of each kind, in so many timings
if [ -n "$FULL" ]; then items="suite:forward suite:properties $items"; calls="12 0"; fi

# A program of its own; its last line counts.
item_program() {
    "$dir/$1" $([ "$1" != fast ] || echo $calls) >"$dir/$1.log" 2>&1 || { failed "$1" "$dir/$1.log"; return; }
    grep -E '^    .*(descriptors|numbers|gradients)|calls, ' "$dir/$1.log" || true
    ok "$1: $(tail -n 1 "$dir/$1.log")"
}
# A suite of the CPU's tests, all of whose arrays lie on the device: there every instruction set would do the same.
item_suite() {
    FAKE_ELSEWHERE=3 FAKE_SIMPLE=1 "$dir/suites" --isa scalar --filter "$1." >"$dir/suite-$1.log" 2>&1 ||
        { failed "the suite $1 on the device" "$dir/suite-$1.log"; return; }
    ok "the suite $1 on the device: $(tail -n 1 "$dir/suite-$1.log")"
}

# attn.py on tensors of PyTorch.
item_python() {
    what="examples/python on tensors of the device"
    for python in ${PYTHON:-} python3 "${VENV:-.venv-peers}/bin/python"; do
        "$python" -c "import numpy, torch" >/dev/null 2>&1 || continue
        ATTN_LIBRARY="$dir/libattn_emulated.so" "$python" tests/cuda/torch_device.py >"$dir/python.log" 2>&1 ||
            { failed "$what" "$dir/python.log"; return; }
        ok "$what: $(tail -n 1 "$dir/python.log")"
        return
    done
    skipped "$what (no Python with PyTorch)"
}

items "$1" $items
