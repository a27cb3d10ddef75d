# bindings.sh - attn.h from other languages. `make test-bindings` runs all, `sh tests/bindings.sh rust` one item. PYTHON
# and VENV say where else to look for a Python, ZIG what to call: "python3 -m ziglang" where pip installed it.
. tests/items.sh

: "${ZIG:=zig}" "${VENV:=.venv-peers}"
dir=$out/bindings
mkdir -p "$dir"
export CC ATTN_CACHE="$dir/cache" ATTN_COMMAND="$out/attn"

python_with() { # python_with MODULE...: the first Python that has all of them
    for python in ${PYTHON:-} python3 /usr/bin/python3 "$VENV/bin/python"; do
        "$python" -c "import $(echo "$@" | tr ' ' ',')" >/dev/null 2>&1 && echo "$python" && return
    done
}

# What is written from the header is as the header says.
item_written() {
    have python3 || { skipped "declarations are those of attn.h (no python3)"; return; }
    try "declarations are those of attn.h" python3 examples/bindings.py --check
}
item_python() { # with PyTorch's where it is, else with NumPy's alone
    python=$(python_with numpy torch)
    : "${python:=$(python_with numpy)}"
    [ -n "$python" ] || { skipped "python (no Python with NumPy)"; return; }
    make build/attn >"$dir/command.log" 2>&1 || { failed "examples/attn.c" "$dir/command.log"; return; }
    "$python" tests/bindings.py || [ $? = 1 ] || failed "python: $python tests/bindings.py"
}
rust_program() { # the library without optimisation, which takes less time than what would be compiled
    $CC -O0 -c -x c -DATTN_IMPLEMENTATION attn.h -o "$dir/rust.o" &&
        MAKEFLAGS= rustc --edition 2021 -O -D warnings examples/rust/main.rs -C link-args="$dir/rust.o -lgcc" \
            -o "$dir/rust" && "$dir/rust"
}
item_rust() {
    have rustc || { skipped "rust (no rustc)"; return; }
    try "rust: $(rustc --version | cut -d ' ' -f 1,2)" rust_program
}
zig_program() {
    export ZIG_GLOBAL_CACHE_DIR="$PWD/$dir/zig" ZIG_LOCAL_CACHE_DIR="$PWD/$dir/zig"
    $ZIG translate-c -lc attn.h >"$dir/attn.zig" &&
        $ZIG cc -O0 -c -x c -DATTN_IMPLEMENTATION attn.h -o "$dir/zig.o" &&
        $ZIG build-exe -lc "$dir/zig.o" --dep attn -Mroot=examples/zig/main.zig -Mattn="$dir/attn.zig" \
            --name attention -femit-bin="$dir/attention" && "$dir/attention"
}
item_zig() {
    $ZIG version >/dev/null 2>&1 || { skipped "zig (no $ZIG)"; return; }
    try "zig $($ZIG version)" zig_program
}
items "$1" written python rust zig
