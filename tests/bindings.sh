# bindings.sh - attn.h from other languages. `make test-bindings` runs all, `sh tests/bindings.sh rust` one item. PYTHON
# and VENV say where else to look for a Python, ZIG what to call: "python3 -m ziglang" where pip installed it.
. tests/items.sh

: "${ZIG:=zig}" "${VENV:=.venv-peers}"
dir=$out/bindings
mkdir -p "$dir"
export CC ATTN_CACHE="$PWD/$dir/cache" ATTN_COMMAND="$out/attn"

python_with() { # python_with STATEMENT...: a Python that can run the first; if there is none, the second; and so on
    for statement; do
        for python in ${PYTHON:-} python3 /usr/bin/python3 "$VENV/bin/python"; do
            "$python" -c "$statement" >/dev/null 2>&1 && echo "$python" && return
        done
    done
}

# What is written from the header is as the header says.
item_written() {
    have python3 || { skipped "declarations are those of attn.h (no python3)"; return; }
    try "declarations are those of attn.h" python3 examples/bindings.py --check
}
item_python() { # with PyTorch where it is, best one that has attention of its own, else with NumPy alone
    python=$(python_with "import numpy; from torch.nn.functional import scaled_dot_product_attention" \
                         "import numpy, torch" "import numpy")
    [ -n "$python" ] || { skipped "python (no Python with NumPy)"; return; }
    make build/attn >"$dir/command.log" 2>&1 || { failed "examples/attn.c" "$dir/command.log"; return; }
    "$python" tests/bindings.py || [ $? = 1 ] || failed "python: $python tests/bindings.py"
}
item_transformers() {
    python=$(python_with "import transformers, torch, numpy")
    [ -n "$python" ] || { skipped "python: Hugging Face models (no transformers)"; return; }
    "$python" -W ignore tests/bindings_transformers.py || [ $? = 1 ] ||
        failed "transformers: $python tests/bindings_transformers.py"
}
# The package, in a fresh virtual environment: what it needs comes from the registry that pip uses, and nothing else.
package_built() { # an sdist, a wheel from it; the same wheel from the repository, in which nothing is left
    ls -A examples/python | grep -v __pycache__ >"$dir/before"
    printf '#!/bin/sh\nexec %s "$@" -O0\n' "$CC" >"$dir/quick-cc" && chmod +x "$dir/quick-cc"  # half of the time
    CC=$PWD/$dir/quick-cc "$venv/bin/python" -m build --outdir "$dir/dist" examples/python &&
        CC=$PWD/$dir/quick-cc "$venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$dir/wheel" ./examples/python &&
        cmp "$dir"/dist/*.whl "$dir"/wheel/*.whl && ls -A examples/python | grep -v __pycache__ | cmp - "$dir/before"
}
package_used() { # with no compiler, and no folder for what is built
    "$venv/bin/pip" install --quiet --no-index --no-deps "$dir"/dist/*.whl &&
        CC=false ATTN_CACHE=/dev/null/none "$venv/bin/python" tests/hints.py
}
package_without_compiler() {
    ! CC=no-such-compiler "$venv/bin/pip" wheel --no-deps --wheel-dir "$dir/none" ./examples/python \
        >"$dir/none.log" 2>&1 && cat "$dir/none.log" &&
        grep -q "ImportError: .* the C compiler 'no-such-compiler', which does not run" "$dir/none.log"
}
item_package() {
    what="package: built, installed and used in a fresh virtual environment" venv=$dir/venv log=$dir/venv.log
    have python3 || { skipped "$what (no python3)"; return; }
    rm -rf "$venv" "$dir/dist" "$dir/wheel" "$dir/none"
    python3 -m venv "$venv" >"$log" 2>&1 || { skipped "$what (python3 makes none: $(tail -n 1 "$log"))"; return; }
    "$venv/bin/pip" install --quiet --retries 1 --timeout 20 build mypy numpy >"$log" 2>&1 ||
        { skipped "$what (pip gets nothing: $(tail -n 1 "$log"))"; return; }
    try "package: an sdist, and the same wheel from it and from the repository" package_built || return
    try "package: installed and used, without a compiler" package_used
    try "package: without a compiler it is not built, and says why" package_without_compiler
    try "package: its hints, by mypy --strict" "$venv/bin/mypy" --strict --cache-dir "$dir/mypy" \
        --python-executable "$venv/bin/python" tests/hints.py
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
items "$1" package python transformers written rust zig
