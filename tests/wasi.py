"""wasi.py - runs a program built for WASI in wasmtime: python3 tests/wasi.py [--twice] PROGRAM ARGUMENTS...
--twice: the machine counts as one without a fused multiply-add, so that a relaxed one rounds twice."""
import platform
import sys

import wasmtime

words = sys.argv[1:]
config = wasmtime.Config()
config.wasm_relaxed_simd = True
if words[0] == "--twice":
    words.pop(0)
    config.target = platform.machine() + "-unknown-linux-gnu"  # the oldest machine of this kind
linker = wasmtime.Linker(wasmtime.Engine(config))
linker.define_wasi()
store = wasmtime.Store(linker.engine)
wasi = wasmtime.WasiConfig()
wasi.argv = words
wasi.inherit_stdout()
wasi.inherit_stderr()
store.set_wasi(wasi)
try:
    program = linker.instantiate(store, wasmtime.Module.from_file(linker.engine, words[0]))
    program.exports(store)["_start"](store)
except wasmtime.ExitTrap as ended:
    sys.exit(ended.code)
