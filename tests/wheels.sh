# wheels.sh - `make wheels`: wheels of examples/python that run on any Linux of 2014 or later, for x86-64 and AArch64,
# into build/wheels. Their library is compiled by attn.py with zig, which brings the old C library (as a program, or
# as the package ziglang of VENV or python3); each wheel is tried: here by pip, the other one's library in qemu, where
# there is one with AArch64's C library.
. tests/items.sh

dir=$out/wheels
rm -rf "$dir"; mkdir -p "$dir"
python=python3
[ -x "$VENV/bin/python" ] && python=$(cd "$VENV" && pwd)/bin/python
if have zig; then zig=zig
elif "$python" -m ziglang version >/dev/null 2>&1; then zig="$python -m ziglang"
else zig=; fi

wheel() { # wheel MACHINE: prints its name
    built=$(ATTN_CACHE=$dir PYTHONPATH=examples/python "$python" -c '
import os, sys, attn
os.environ["CC"] = sys.argv[1]      # attn.py itself is used with the library of the usual compiler
print(attn._built(attn._headers()))' "$zig cc -target $1-linux-gnu.2.17") &&
        cp "$built" "$dir/libattn-$1.so" &&
        "$python" tests/wheel.py "$dir/libattn-$1.so" "manylinux2014_$1" "$dir"
}
tried_here() { # installed by pip into a folder, and used far from this tree
    "$python" -m pip install --quiet --no-deps --no-index --target "$dir/installed" "$1" &&
        (cd / && PYTHONPATH=$OLDPWD/$dir/installed "$python" -c '
import numpy as np, attn
q = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
out = attn.attention(q, q, q)
assert out.shape == q.shape and np.isfinite(out).all()
assert attn.lib._name.endswith("installed/attn/libattn.so"), attn.lib._name
assert attn._spreads() and hasattr(attn.lib, "attn_python_run"), "it has no threads of its own"')
}
tried_in_qemu() { # the library that is in the wheel: a program of AArch64 calls it
    aarch64-linux-gnu-gcc -O2 tests/embed.c "$dir/libattn-aarch64.so" -lm -o "$dir/embed" &&
        LD_LIBRARY_PATH=$dir qemu-aarch64 -L /usr/aarch64-linux-gnu "$dir/embed"
}
item_wheel() { # wheel MACHINE
    name=$(wheel "$1" 2>"$dir/$1.log") || { failed "wheel for $1" "$dir/$1.log"; return; }
    ok "wheel: $name"
    if [ "$1" = "$(uname -m)" ]; then try "wheel for $1, installed and called here" tried_here "$name"
    elif have aarch64-linux-gnu-gcc && have qemu-aarch64; then try "library for $1, called in qemu" tried_in_qemu
    else skipped "wheel for $1: not called (no aarch64-linux-gnu-gcc, or no qemu-aarch64)"; fi
}
[ -n "$zig" ] || { skipped "wheels (no zig: pip install ziglang into VENV)"; exit 0; }
items "$1" wheel:x86_64 wheel:aarch64
