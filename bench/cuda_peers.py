#!/usr/bin/env python3
"""attn_cuda.cuh beside PyTorch's attention on the same GPU: scaled_dot_product_attention with its flash, cuDNN and
efficient backends, and eager additive attention. `make bench-cuda` runs this where PyTorch sees a device.

All of a row read the same inputs and take their samples in turn, so that clocks drift for all alike: CUDA events around
calls that take some milliseconds together, medians. First each result is held against float64 on a part of the row;
who is wrong is not timed. Backward is the backward alone. A causal row counts half the operations.

Where these backends have no such option, flex_attention takes part, compiled (softcap, window). With dropout each drops
other weights: PyTorch's results are checked without it and timed with it."""
import argparse
import ctypes
import glob
import json
import math
import os
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = os.path.dirname(os.path.abspath(__file__))



def library():
    """The one that ATTN_CUDA_LIBRARY names, that of `make bench-cuda`, or the newest of `make cuda-device-build`."""
    built = os.path.join(HERE, os.pardir, "build", "cuda")
    carried = sorted(glob.glob(os.path.join(built, "device-*", "libattn_cuda.so")), key=os.path.getmtime)
    found = [p for p in (os.environ.get("ATTN_CUDA_LIBRARY"), os.path.join(built, "libattn_cuda.so"), *carried[::-1])
             if p and os.path.exists(p)]
    if not found:
        sys.exit("cuda_peers: no libattn_cuda.so in build/cuda: make bench-cuda or make cuda-device-build")
    return ctypes.CDLL(os.path.abspath(found[0]))


LIB = library()
F32, BF16 = 0, 2  # attn_type
SAMPLES, SAMPLE, WARM = 15, 5e-3, 3
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}


class Job(ctypes.Structure):  # cuda_job of cuda.cu
    _fields_ = [(n, ctypes.c_int32) for n in
                "batch heads heads_kv queries keys d d_v causal align window type score precision".split()] + [
        ("softcap", ctypes.c_float), ("dropout", ctypes.c_float)] + [
        (n, ctypes.c_void_p) for n in "q k v w_v bias out stats d_out dq dk dv d_w_v workspace".split()] + [
        ("workspace_bytes", ctypes.c_size_t), ("stream", ctypes.c_void_p)]


LIB.cuda_job_workspace.restype = ctypes.c_size_t
LIB.cuda_job_error.restype = LIB.cuda_job_explain.restype = ctypes.c_char_p


SCALED_DOT, ADDITIVE = (ctypes.c_int32 * 2).in_dll(LIB, "cuda_job_scores")


# ---- the rows, as in cuda.cu
class Row:
    def __init__(self, name, batch, heads, heads_kv, queries, keys, d, causal=False, backward=False, decode=False,
                 additive=False, f32=False, d_v=0, window=0, softcap=0.0, bias=False, dropout=0.0,
                 one_sweep=False):
        self.name, self.batch, self.heads, self.heads_kv = name, batch, heads, heads_kv
        self.queries, self.keys, self.d, self.causal, self.backward = queries, keys, d, causal, backward
        self.decode, self.additive, self.f32 = decode, additive, f32 or additive
        self.d_v, self.window, self.softcap, self.bias, self.dropout = d_v or d, window, softcap, bias, dropout
        self.one_sweep = one_sweep  # ATTN_PRECISION_FAST, which is 1: dq's additions in any order, as others have them
        seen = window - window * (window - 1) / 2 / queries if window else keys / 2 if causal else keys
        pairs = batch * heads * queries * seen  # seen: keys of a query, on average
        if decode:
            self.work, self.unit = 2 * batch * heads_kv * keys * d * 2 / 1e9, "GB/s"
        elif additive:
            self.work, self.unit = pairs * d / 1e9, "G tanh/s"
        else:
            each = 6 * d + 4 * self.d_v if backward else 2 * d + 2 * self.d_v
            self.work, self.unit = pairs * each / 1e12, "TFLOP/s"


def all_rows():
    for backward in (False, True):
        for d in (64, 128, 256):
            for causal in (False, True):
                for s in (2048, 4096, 8192, 16384, 32768):
                    name = f"{'backward' if backward else 'forward'} d{d} {s // 1024}k{' causal' if causal else ''}"
                    yield Row(name, max(1, 16384 // s), 2048 // d, 2048 // d, s, s, d, causal, backward)
    yield Row("forward d96 4k", 4, 21, 21, 4096, 4096, 96)
    yield Row("forward d192 4k", 4, 10, 10, 4096, 4096, 192)
    yield Row("forward d128 512 rows", 32, 16, 16, 512, 512, 128)
    for backward in (False, True):
        for d, causal in ((64, False), (128, True)):
            name = f"{'backward' if backward else 'forward'} f32 d{d} 2k{' causal' if causal else ''}"
            yield Row(name, 4, 16, 16, 2048, 2048, d, causal, backward, f32=True)
    for backward in (False, True):
        name = "backward" if backward else "forward"
        yield Row(f"{name} d192 v128 4k causal", 4, 16, 16, 4096, 4096, 192, True, backward, d_v=128)
        yield Row(f"{name} d128 8k window 1k", 2, 16, 16, 8192, 8192, 128, True, backward, window=1024)
        yield Row(f"{name} d128 4k softcap", 4, 16, 16, 4096, 4096, 128, backward=backward, softcap=2.0)
        yield Row(f"{name} d128 4k bias", 4, 16, 16, 4096, 4096, 128, backward=backward, bias=True)
        yield Row(f"{name} d128 4k dropout", 4, 16, 16, 4096, 4096, 128, backward=backward, dropout=0.1)
    for d in (64, 96, 128):
        yield Row(f"backward d{d} 4k, one sweep", 4, 2048 // d, 2048 // d, 4096, 4096, d, backward=True, one_sweep=True)
    for batch, kv, group, keys in ((1, 8, 4, 65536), (8, 8, 4, 8192), (32, 8, 4, 8192), (128, 8, 4, 1024),
                                   (32, 32, 1, 2048), (32, 8, 8, 8192)):
        name = f"decode {batch} x {kv * group}/{kv} heads, {keys // 1024}k keys"
        yield Row(name, batch, kv * group, kv, 1, keys, 128, decode=True)
    for backward in (False, True):
        for h in (64, 128, 256):
            for s in (128, 512, 1024):
                yield Row(f"additive {'backward' if backward else 'forward'} h{h} {s}", 1, 16, 16, s, s, h,
                          backward=backward, additive=True)


# ---- contestants: each has forward() and, after it, backward(), which gives dq, dk, dv
class Ours:
    def __init__(self, row, q, k, v, d_out, w_v, bias):
        self.out = torch.full_like(d_out, math.nan)
        self.stats = torch.empty(*q.shape[:3], 2, device="cuda")
        self.grads = [torch.full_like(x, math.nan) for x in (q, k, v)]
        self.held = (q, k, v, d_out, w_v, bias)
        job = self.job = Job(row.batch, row.heads, row.heads_kv, row.queries, row.keys, row.d, row.d_v,
                             int(row.causal), 0, row.window, F32 if row.f32 else BF16,
                             ADDITIVE if row.additive else SCALED_DOT, int(row.one_sweep), row.softcap, row.dropout)
        for name, x in (("q", q), ("k", k), ("v", v), ("w_v", w_v), ("bias", bias), ("out", self.out),
                        ("stats", self.stats), ("d_out", d_out), ("dq", self.grads[0]), ("dk", self.grads[1]),
                        ("dv", self.grads[2])):
            setattr(job, name, x.data_ptr() if x is not None else None)
        job.stream = torch.cuda.current_stream().cuda_stream
        size = max(LIB.cuda_job_workspace(ctypes.byref(job), b) for b in range(1 + row.backward))
        self.workspace = torch.empty(size + 256, dtype=torch.uint8, device="cuda")
        job.workspace, job.workspace_bytes = self.workspace.data_ptr(), self.workspace.numel()
        self.name = "attn_cuda"

    def run(self, backward):
        if LIB.cuda_job_run(ctypes.byref(self.job), int(backward)):
            raise RuntimeError(LIB.cuda_job_error().decode())

    def forward(self):
        self.run(False)
        return self.out

    def backward(self):
        self.run(True)
        return self.grads


class Torch:
    dropout = 0.0  # until its results are checked

    def __init__(self, name, row, q, k, v, d_out, attention):
        self.name, self.attention, self.d_out = name, attention, d_out
        self.inputs = [x.detach().requires_grad_(row.backward) for x in (q, k, v)]
        self.out = None

    def forward(self):
        self.out = self.attention(*self.inputs, self.dropout)
        return self.out

    def backward(self):
        return torch.autograd.grad(self.out, self.inputs, self.d_out, retain_graph=True)


def flex(row):
    from torch._functorch import config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    config.donated_buffer = False  # a backward is run many times after one forward
    compiled = torch.compile(flex_attention, dynamic=False)
    if row.window:
        mask = create_block_mask(lambda b, h, i, j: (j <= i) & (j > i - row.window), None, None, row.queries, row.keys)
        return lambda q, k, v, dropout: compiled(q, k, v, block_mask=mask)
    return lambda q, k, v, dropout: compiled(
        q, k, v, score_mod=lambda s, b, h, i, j: row.softcap * torch.tanh(s / row.softcap))


def contestants(row, q, k, v, d_out, w_v, bias):
    yield "attn_cuda", lambda: Ours(row, q, k, v, d_out, w_v, bias)
    if row.window or row.softcap:
        yield "flex", lambda: Torch("flex", row, q, k, v, d_out, flex(row))
        return
    if row.additive:
        def eager(q, k, v, dropout):
            scores = torch.tanh(q[:, :, :, None] + k[:, :, None]) @ w_v
            return torch.softmax(scores, -1) @ v
        yield "eager", lambda: Torch("eager", row, q, k, v, d_out, eager)
        return
    for name, backend in BACKENDS.items():
        def attention(q, k, v, dropout, backend=backend):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=row.causal,
                                                      enable_gqa=row.heads != row.heads_kv)
        yield name, lambda name=name, attention=attention: Torch(name, row, q, k, v, d_out, attention)


# ---- float64: one head, its last queries (their output and dq) and, where there are few queries, dk and dv
def kept(row, rows):
    """What dropout multiplies the weights of these queries of the last head by."""
    keep = torch.empty(rows.stop - rows.start, row.keys, dtype=torch.uint8)
    if LIB.cuda_job_keep(ctypes.c_float(row.dropout), row.batch - 1, row.heads - 1, rows.start, keep.shape[0], 0,
                         row.keys, ctypes.c_void_p(keep.data_ptr())):
        raise RuntimeError(LIB.cuda_job_error().decode())
    return keep.to("cuda").double() / (1 - row.dropout)


def reference(row, q, k, v, d_out, w_v, bias, dropped):
    few = min(row.queries, 64)
    h, hk = row.heads - 1, row.heads_kv - 1
    rows = slice(0, row.queries) if row.backward and row.queries <= 2048 else slice(row.queries - few, row.queries)
    q1 = q[-1, h, rows].double().requires_grad_(row.backward)
    k1, v1 = (x[-1, hk].double().requires_grad_(row.backward) for x in (k, v))
    if row.additive:
        scores = torch.cat([torch.tanh(part[:, None] + k1) @ w_v.double() for part in q1.split(32)])
    else:
        scores = q1 @ k1.T / math.sqrt(row.d)
    if row.softcap:
        scores = row.softcap * torch.tanh(scores / row.softcap)
    if bias is not None:
        scores = scores + bias[rows].double()
    i, j = (torch.arange(n, device="cuda") for n in (row.queries, row.keys))
    if row.causal:
        scores = scores.masked_fill(j[None] > i[rows, None], -math.inf)
    if row.window:
        scores = scores.masked_fill(j[None] <= i[rows, None] - row.window, -math.inf)
    weights = torch.softmax(scores, -1)
    out = (weights * kept(row, rows) if dropped else weights) @ v1
    if not row.backward:
        return rows, out, None
    grads = torch.autograd.grad(out, (q1, k1, v1), d_out[-1, h, rows].double())
    whole = rows == slice(0, row.queries) and row.heads == row.heads_kv
    return rows, out.detach(), grads if whole else grads[:1]


def error_of(row, contestant, want):
    def relative(got, x):
        return ((got.double() - x).norm() / x.norm().clamp_min(1e-300)).item()
    rows, out, grads = want
    errors = [relative(contestant.forward()[-1, -1, rows].detach(), out)]
    if row.backward:
        got = contestant.backward()
        parts = (got[0][-1, -1, rows], got[1][-1, -1], got[2][-1, -1])
        errors += [relative(g.detach(), x) for g, x in zip(parts, grads)]
    return max(errors) if all(e == e for e in errors) else math.nan


def seconds(call, calls):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3 / calls


def run_row(row, as_json):
    def draw(*shape):
        x = torch.randn(*shape, device="cuda")
        return x if row.f32 else x.bfloat16()
    q, d_out = (draw(row.batch, row.heads, row.queries, d) for d in (row.d, row.d_v))
    k, v = (draw(row.batch, row.heads_kv, row.keys, d) for d in (row.d, row.d_v))
    w_v = torch.randn(row.d, device="cuda") if row.additive else None
    bias = draw(row.queries, row.keys) if row.bias else None
    inputs = (q, k, v, d_out, w_v, bias)
    want = reference(row, *inputs, row.dropout > 0)
    want_of_peers = reference(row, *inputs, False) if row.dropout else want
    bound = 1e-4 if row.f32 else 2e-2 if row.backward else 1e-2
    taking_part, wrong, times = [], [], {}
    for name, make in contestants(row, *inputs):
        try:
            contestant = make()
            error = error_of(row, contestant, want if name == "attn_cuda" else want_of_peers)
            contestant.dropout = row.dropout
            contestant.forward()  # what its backward goes back through
        except Exception as problem:  # a backend that does not take the row, a compiler that is not there
            text = (str(problem) or repr(problem)).splitlines()[0][:90]
            print(f"    {row.name}: {name} does not take part: {text}", file=sys.stderr)
            torch.cuda.empty_cache()
            continue
        if not error <= bound:
            wrong.append((contestant.name, error))
            continue
        taking_part.append((contestant, contestant.backward if row.backward else contestant.forward, error))
    calls = {}
    with torch.set_grad_enabled(row.backward):  # already while warming up: what is compiled depends on it
        for contestant, call, _ in taking_part:
            seconds(call, WARM)
            calls[contestant.name] = max(1, math.ceil(SAMPLE / seconds(call, WARM)))
            times[contestant.name] = []
        for _ in range(SAMPLES):
            for contestant, call, _ in taking_part:
                times[contestant.name].append(seconds(call, calls[contestant.name]))
    medians = {name: statistics.median(t) for name, t in times.items()}
    peers = {name: t for name, t in medians.items() if name != "attn_cuda"}
    ratio = min(peers.values()) / medians["attn_cuda"] if peers and "attn_cuda" in medians else None
    if as_json:
        print(json.dumps({"row": row.name, "unit": row.unit, "ratio": ratio, "wrong": dict(wrong),
                          "ms": {n: t * 1e3 for n, t in medians.items()},
                          "rate": {n: row.work / t for n, t in medians.items()},
                          "error": {c.name: e for c, _, e in taking_part}}), flush=True)
    else:
        rates = "  ".join(f"{n} {row.work / t:.1f}" for n, t in medians.items())
        print(f"{row.name:36} {row.unit:8} {rates}" + (f"  ours {ratio:.2f}x the best peer" if ratio else "") +
              "".join(f"  WRONG: {n}, error {e:.1e}" for n, e in wrong), flush=True)
    return not any(name == "attn_cuda" for name, _ in wrong) and "attn_cuda" in medians


def matmul_rate():
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    seconds(lambda: a @ b, WARM)
    return 2 * 8192 ** 3 / statistics.median(seconds(lambda: a @ b, 10) for _ in range(5)) / 1e12


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="", help="those whose name contains this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"bf16 matmul {matmul_rate():.0f} TFLOP/s before", file=sys.stderr if options.json else sys.stdout)
    fine = [run_row(row, options.json) for row in all_rows() if options.rows in row.name]
    print(f"bf16 matmul {matmul_rate():.0f} TFLOP/s after; {sum(fine)} rows right, {len(fine) - sum(fine)} wrong",
          file=sys.stderr if options.json else sys.stdout)
    sys.exit(not fine or not all(fine))


if __name__ == "__main__":
    main()
