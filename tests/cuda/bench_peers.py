"""bench_peers.py - bench/cuda_peers.py where no device is. Rows that pretend: they are right, wrong, raise, die, hang
or take long, and the rest goes on, with all of it in the markdown. Then, where PyTorch is and ATTN_CUDA_LIBRARY names
the library of the emulator (build/cuda/libbench_emulated.so), rows of bench/cuda_rows.py, tiny."""
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import cuda_peers  # noqa: E402

checks = failures = 0


def check(fine, what):
    global checks, failures
    checks += 1
    if not fine:
        failures += 1
        print(f"FAIL {what}")


def row(name, ours=9.0, theirs=10.0, **other):
    return {"row": name, "unit": "TFLOP/s", "rate": {"attn_cuda": ours, "cuDNN": theirs, "a copy": 99.0},
            "error": {"attn_cuda": 1e-3, "cuDNN": 2e-3}, "wrong": {}, "absent": {}, "few": [], **other}


def pretend(*names):
    """What stands for cuda_rows.answer; a row does what it is called."""
    def process(pipe, texts, compiling):
        if "no start" in names:
            raise OSError("there is no library")
        pipe.send((("a device", "PyTorch 0"), list(names)))
        while True:
            name = names[pipe.recv()]
            if name == "raises":
                raise ValueError("an illegal access")
            if name == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if name == "stops all":
                os.kill(os.getppid(), signal.SIGTERM)
            if name in ("hangs", "takes long", "stops all"):
                time.sleep(60)
            wrong = {"rate": {"cuDNN": 10.0}, "error": {"cuDNN": 2e-3}, "wrong": {"attn_cuda": 0.5}}
            alone = {"rate": {"attn_cuda": 9.0}, "error": {"attn_cuda": 1e-3}, "absent": {"cuDNN": "no such shape"}}
            pipe.send(row(name, **(wrong if name == "wrong" else alone if name == "alone" else
                                   {"ours": 12.0} if name == "faster" else {})))
    return process


def run(arguments, *names, **limits):
    """Exit status, what the terminal and the file say, seconds."""
    before = {name: getattr(cuda_peers, name) for name in limits}
    for name, value in limits.items():
        setattr(cuda_peers, name, value)
    start, said = time.monotonic(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "gpu.md")
        with contextlib.redirect_stdout(said):
            status = cuda_peers.main([*arguments, "--markdown", path], pretend(*names) if names else cuda_peers.process)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        summary = subprocess.run(["awk", "-f", os.path.join(ROOT, "bench", "summary.awk"), path], check=True,
                                 capture_output=True, text=True).stdout
    for name, value in before.items():
        setattr(cuda_peers, name, value)
    return status, said.getvalue(), text, summary, time.monotonic() - start


def test_rows_that_misbehave():
    status, said, text, summary, _ = run([], "forward d64", "wrong", "raises", "dies", "hangs", "alone", "faster",
                                         LIMIT=1)
    check(status == 1, "a row that is wrong is no failure")
    for line in ("| forward d64 | TFLOP/s | 9.0 | cuDNN | 10.0 | 0.90 | 1.0e-03 | 2.0e-03 | slower |",
                 "|  |  |  | a copy | 99.0 | 0.09 |  |  |  |",
                 "| wrong | TFLOP/s | - | cuDNN | 10.0 | - | 5.0e-01 | 2.0e-03 | WRONG |",
                 "| raises | - | - | - | - | - | - | - | no result |",
                 "| alone | TFLOP/s | 9.0 | - | - | - | 1.0e-03 | - |  |",
                 "| faster | TFLOP/s | 12.0 | cuDNN | 10.0 | 1.20 | 1.0e-03 | 2.0e-03 |  |",
                 "No result: raises: ValueError: an illegal access.",
                 "No result: dies: its process was ended by SIGKILL.", "No result: hangs: no answer within 1 s.",
                 "cuDNN took no part in alone: no such shape.", "WRONG: attn_cuda in wrong, error 5.0e-01.",
                 "Slower than the best peer in 1 of 3 rows: forward d64 (0.90)."):
        check(line in text.splitlines(), f"the file does not say: {line}\n{text}")
    check("WRONG: attn_cuda, error 5.0e-01" in said and "cuDNN -" in said, said)
    check("3 rows right, 4 wrong or without a result" in said, said)
    for part in ("| forward, all keys seen | cuDNN | 0 of 1 | 0.90 | 0.90 (forward d64) | 0.90 (forward d64) |",
                 "Not compared: wrong; raises", "\na device; attn_cuda.cuh unknown, PyTorch 0; 2"):
        check(part in summary, f"the summary does not say: {part}\n{summary}")


def test_limits():
    status, said, text, _, took = run(["--seconds", "1"], "forward", "takes long", "backward")
    check(status == 0 and took < 6, f"status {status}, {took:.1f} s")
    check("Not measured, as the time was up: takes long, backward." in text and "| forward |" in text, text)
    status, said, text, _, _ = run([], "forward", "stops all", "backward")
    check(status == 1 and "| forward |" in text and "It ended early: it was stopped." in text, text)
    status, said, text, _, _ = run([], "no start")
    check(status == 1 and "It ended early: OSError: there is no library." in text, text)


def test_emulated():
    """Rows of each kind; then one that is wrong, by a library that is."""
    status, said, text, summary, _ = run(["--rows", "d128 2k", "k keys, d64", "8k window", "4k softcap", "4k bias",
                                          "4k dropout", "f32 d128", "one sweep", "h64 128", "chunk", "product"])
    right = said.count("attn_cuda ")
    check(status == 0 and right >= 26 and f"{right} rows right, 0 wrong or without a result" in said, said)
    check("cuDNN took no part in forward d128 2k" in text and "--flex" in text, text)
    check("| forward, f32 |" in summary and "| decode" in summary, summary)
    import torch
    import cuda_rows
    one = next(row for row in cuda_rows.all_rows() if row.name == "backward d128 2k causal")
    once = cuda_rows.Ours.backward
    for what, spoil in (("dk", lambda grads: grads[1].mul_(1.1)), ("dv", lambda grads: grads[2][-1, -1, 3, 5].fill_(
            float("nan"))), ("dq", lambda grads: grads[0][-1, -1, 0].add_(2.0))):
        def wrong(ours, spoil=spoil):
            grads = once(ours)
            with torch.no_grad():
                spoil(grads)
            return grads
        cuda_rows.Ours.backward = wrong
        found = cuda_rows.measure(one, False)
        check("attn_cuda" in found["wrong"] and "attn_cuda" not in found["rate"], f"a wrong {what} is not noticed")
    cuda_rows.Ours.backward = once


if __name__ == "__main__":
    os.environ.pop("COMMIT", None)
    test_rows_that_misbehave()
    test_limits()
    if os.environ.get("ATTN_CUDA_LIBRARY"):
        test_emulated()
    print(f"{checks} checks, {failures} failed")
    sys.exit(failures > 0)
