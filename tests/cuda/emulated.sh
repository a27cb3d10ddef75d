# emulated.sh - the kernels of attn_cuda.cuh on this machine's CPU, no CUDA needed: each in the emulator (emu.h), held
# against float64. `make test-cuda-emulated` builds and runs it all; `sh tests/cuda/emulated.sh program:emulated` one.
# FULL=1 takes minutes: every head size, more calls, each in all timings of the emulator, more suites.
. tests/items.sh
. tests/cuda/sanitizers.sh

dir=$out/cuda${FULL:+-full}
items="program:fast sanitized program:emulated suite:special suite:mha program:primitives program:trimmed uneven
       suite:bmm suite:pieces suite:softmax suite:entries suite:properties python peers ring steps:run steps:first"
calls="3 2" sanitized="1 1"                 # of each kind, in so many timings
if [ -n "$FULL" ]; then items="suite:forward $items"; calls="12 0" sanitized="2 2"; fi

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
# Where kernels have columns that are no multiple of 32, those of codes and of one sweep for all gradients are left out;
# and heads of 32 beside those of 64 have kernels for plain calls of many rows alone. Gradients of heads of 160 take the
# kernel of 192.
item_uneven() {
    for calls in "2 1 forward" "1 1 backward" "1 2 decode"; do
        kind=${calls##* }
        "$dir/uneven" ${calls% *} "stage 2 $kind" >"$dir/uneven.log" 2>&1 ||
            { failed "kernels of 32 to 160 columns, $kind" "$dir/uneven.log"; return; }
        ok "kernels of 32 to 160 columns, $kind: $(tail -n 1 "$dir/uneven.log")"
    done
}
# One call of each kind, so each kernel, where a byte beside an array and a load that is not aligned are errors.
item_sanitized() {
    name="each kernel under the sanitizers of addresses and undefined behaviour"
    flags=$(sanitizers) || { skipped "$name ($CXX links none)"; return; }
    make "$dir/sanitized" CXX="$CXX" SANITIZERS="$flags" FULL="$FULL" >"$dir/sanitized.log" 2>&1 &&
        ASAN_OPTIONS=detect_leaks=0 "$dir/sanitized" $sanitized >"$dir/sanitized.log" 2>&1 ||
        { failed "$name" "$dir/sanitized.log"; return; }
    ok "$name: $(tail -n 1 "$dir/sanitized.log")"
}

# What runs on a device, with programs that only pretend: one that fails and one that waits for ever are told apart, and
# take no other step's time.
stubs() { # stubs TARGET FAILING HANGING: what device.sh says, its exit status last
    (cd "$here" && export PATH="$PWD/bin:$PATH" FAILING="$2" HANGING="$3" STEP_SECONDS=3
     sh tests/cuda/device.sh "$1"; echo "exit $?") >"$here/said" 2>&1
}
says()    { grep -Eq "$1" "$here/said" || { echo "not said: $1"; cat "$here/said"; return 1; }; }
says_no() { ! grep -E "$1" "$here/said"; }
pretend() { # pretend TARGET
    stubs "$1" '' '' && says '^exit 0$' && says '^ok .*bench: decode: fine' && says_no '^FAILED' || return 1
    stubs "$1" train '' && says '^exit 1$' && says '^FAILED  example train: broken \(. s\), exit status 3$' &&
        says ' 1 failed' && says '^ok .*bench: decode: fine' || return 1
    stubs "$1" '' train && says '^exit 1$' && says '^FAILED  example train: HANGS: not done after 3 s' &&
        says ' 1 failed' && says '^ok .*bench: decode: fine' || return 1
    stubs "$1" repeat hw_conformance && says '^FAILED  primitives: HANGS' && says '^exit 1$' || return 1
    if [ "$1" = first ]; then says '^FAILED  repeated calls: broken' && says '^ok .*bench: f32'; else
        says 'the rest is not run' && says_no '^ok' && stubs run compute-sanitizer '' &&
            says '^skipped racecheck of the fast stages' && says '^FAILED  memcheck of the fast stages'; fi
}
item_steps() { # item_steps TARGET
    here=$dir/stubs-$1
    rm -rf "$here"
    mkdir -p "$here/build/cuda/device-90a" "$here/bin"
    ln -s "$PWD/tests" "$here/tests"
    cat >"$here/bin/compute-sanitizer" <<'END'
#!/bin/sh
case " $FAILING " in *" ${0##*/} "*) echo broken; exit 3 ;; esac
case " $HANGING " in *" ${0##*/} "*) exec sleep 60 ;; esac
echo fine
END
    chmod +x "$here/bin/compute-sanitizer"
    for program in arrives hw_conformance fast emulated suites quickstart compare generate train bench repeat repeat-plain fast-plain; do
        cp "$here/bin/compute-sanitizer" "$here/build/cuda/device-90a/$program"
    done
    printf '#!/bin/sh\necho 90a 1 pretended\n' >"$here/build/cuda/device-90a/which"
    chmod +x "$here/build/cuda/device-90a/which"
    try "device.sh $1: steps that pass, fail and hang" pretend "$1"
}

with_torch() { # the Python that has PyTorch, or nothing
    for python in ${PYTHON:-} python3 "${VENV:-.venv-peers}/bin/python"; do
        "$python" -c "import numpy, torch" >/dev/null 2>&1 && { echo "$python"; return; }
    done
}
# attn.py on tensors of PyTorch.
item_python() {
    what="examples/python on tensors of the device"
    python=$(with_torch)
    [ -n "$python" ] || { skipped "$what (no Python with PyTorch)"; return; }
    ATTN_LIBRARY="$dir/libattn_emulated.so" "$python" tests/cuda/torch_device.py >"$dir/python.log" 2>&1 ||
        { failed "$what" "$dir/python.log"; return; }
    ok "$what: $(tail -n 1 "$dir/python.log")"
}
# One sequence over processes, each of which has its keys on a device.
item_ring() { sh tests/mpi.sh "emulated:$dir/fast.o"; }
# The benchmark beside PyTorch: what becomes of rows that are wrong, die or hang; its rows, tiny, where PyTorch is.
item_peers() {
    what="bench/cuda_peers.py"
    python=$(with_torch)
    have "${python:-python3}" || { skipped "$what (no python3)"; return; }
    ATTN_CUDA_LIBRARY=${python:+$dir/libbench_emulated.so} "${python:-python3}" tests/cuda/bench_peers.py \
        >"$dir/peers.log" 2>&1 || { failed "$what" "$dir/peers.log"; return; }
    ok "$what: $(tail -n 1 "$dir/peers.log")"
    [ -n "$python" ] || skipped "the rows of $what (no Python with PyTorch)"
}

items "$1" $items
