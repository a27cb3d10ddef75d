# emulated.sh - the kernels of attn_cuda.cuh on this machine's CPU, no CUDA needed: each in the emulator (emu.h), held
# against float64. `make test-cuda-emulated` builds and runs it all; `sh tests/cuda/emulated.sh program:emulated` one.
. tests/items.sh

dir=$out/cuda

# A program of its own; its last line counts.
item_program() {
    "$dir/$1" >"$dir/$1.log" 2>&1 || { failed "$1" "$dir/$1.log"; return; }
    grep -E '^    .*(descriptors|numbers|gradients)|calls, ' "$dir/$1.log" || true
    ok "$1: $(tail -n 1 "$dir/$1.log")"
}
# A suite of the CPU's tests, all of whose arrays lie on the device: there every instruction set would do the same.
item_suite() {
    "$dir/suites" --isa scalar --filter "$1." >"$dir/suite-$1.log" 2>&1 ||
        { failed "the suite $1 on the device" "$dir/suite-$1.log"; return; }
    ok "the suite $1 on the device: $(tail -n 1 "$dir/suite-$1.log")"
}

items "$1" program:primitives program:fast program:emulated suite:forward suite:special suite:properties suite:mha suite:bmm suite:pieces suite:softmax
