"""The rows of cuda_peers.py: their inputs, who takes part, float64, time. All of it happens in a process of its own,
which cuda_peers.py makes, asks for one row after the other and ends; a row is answered by a dictionary.

ATTN_CUDA_LIBRARY names the library that has our kernels. That of the emulator, build/cuda/libbench_emulated.so, is for
trials: its device is this machine's CPU, every row is a tiny one, and times mean nothing."""
import contextlib
import ctypes
import glob
import math
import os
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = os.path.dirname(os.path.abspath(__file__))


def library():
    """The one that ATTN_CUDA_LIBRARY names, that of `make bench-cuda`, or that of `make cuda-device-build`, for this
    device where there are several."""
    named = os.environ.get("ATTN_CUDA_LIBRARY")
    built = os.path.join(HERE, os.pardir, "build", "cuda")
    found = [named] if named else [os.path.join(built, "libattn_cuda.so")]
    if not named and torch.cuda.is_available():
        arch = "{}{}".format(*torch.cuda.get_device_capability())
        found += [os.path.join(built, f"device-{arch}{a}", "libattn_cuda.so") for a in ("a", "")]
    if not named:
        found += sorted(glob.glob(os.path.join(built, "device-*", "libattn_cuda.so")))
    there = [path for path in found if os.path.exists(path)]
    if not there:
        raise OSError(f"no {named or 'libattn_cuda.so in build/cuda'}: make bench-cuda or make cuda-device-build")
    return ctypes.CDLL(os.path.abspath(there[0]))


class Job(ctypes.Structure):  # cuda_job of cuda.cu
    _fields_ = [(n, ctypes.c_int32) for n in
                "batch heads heads_kv queries keys d d_v causal align window type score precision".split()] + [
        ("softcap", ctypes.c_float), ("dropout", ctypes.c_float)] + [
        (n, ctypes.c_void_p) for n in "q k v w_v bias out stats d_out dq dk dv d_w_v d_bias workspace".split()] + [
        ("workspace_bytes", ctypes.c_size_t), ("stream", ctypes.c_void_p)]


LIB = library()
LIB.cuda_job_workspace.restype = ctypes.c_size_t
LIB.cuda_job_error.restype = LIB.cuda_job_explain.restype = ctypes.c_char_p
SCALED_DOT, ADDITIVE = (ctypes.c_int32 * 2).in_dll(LIB, "cuda_job_scores")
EMULATED = hasattr(LIB, "fake_everything")
if EMULATED:
    LIB.fake_stream.restype = ctypes.c_void_p
    LIB.fake_everything(2)  # every array counts as the device's
    torch.set_num_threads(1)
DEVICE = "cpu" if EMULATED else "cuda"

F32, F16, BF16 = 0, 1, 2  # attn_type
BOTTOM_RIGHT = 1  # attn_align
# A sample takes so many seconds, and all rounds of a row together about ROW_SECONDS: LEAST to MOST of them. Who is FAR
# times slower than the best peer after the first calls, at most WARM, takes no part in the rounds.
SAMPLE, ROW_SECONDS, FAR = 4e-3, 0.5, 1.4
WARM, LEAST, MOST = (1, 1, 1) if EMULATED else (20, 5, 25)
ELEMENTS = 1 << 24  # of scores that float64 has at a time
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "PyTorch flash": SDPBackend.FLASH_ATTENTION,
            "PyTorch efficient": SDPBackend.EFFICIENT_ATTENTION}
OURS, COPY, FLEX, EAGER = "attn_cuda", "a copy", "FlexAttention", "PyTorch eager"


# ---- the rows, as in cuda.cu; those that tell most come first
class Row:
    def __init__(self, name, batch, heads, heads_kv, queries, keys, d, causal=False, backward=False, decode=False,
                 additive=False, f32=False, d_v=0, window=0, softcap=0.0, bias=False, dropout=0.0,
                 one_sweep=False, chunk=False, d_bias=False):
        self.name, self.batch, self.heads, self.heads_kv = name, batch, heads, heads_kv
        self.queries, self.keys, self.d, self.causal, self.backward = queries, keys, d, causal, backward
        self.decode, self.additive, self.f32 = decode, additive, f32 or additive
        self.d_v, self.window, self.softcap, self.bias, self.dropout = d_v or d, window, softcap, bias, dropout
        self.one_sweep = one_sweep  # ATTN_PRECISION_FAST, which is 1: dq's additions in any order, as others have them
        self.chunk = chunk  # the last query sees all keys
        self.d_bias = d_bias
        if EMULATED:
            self.shrink()
        self.count_work()

    def shrink(self):
        self.batch, self.heads, self.heads_kv = 1, self.heads // self.heads_kv, 1
        self.queries, self.keys = min(self.queries, 40), 70 if self.queries < self.keys else 40
        self.window = min(self.window, 16)

    def count_work(self):
        half = self.causal and not self.chunk
        seen = self.window - self.window * (self.window - 1) / 2 / self.queries if self.window else \
            self.keys / 2 if half else self.keys  # keys of a query, on average
        pairs = self.batch * self.heads * self.queries * seen
        if self.decode:
            self.work, self.unit = 2 * self.batch * self.heads_kv * self.keys * self.d * 2 / 1e9, "GB/s"
        elif self.additive:
            self.work, self.unit = pairs * self.d / 1e9, "G tanh/s"
        else:
            each = 6 * self.d + 4 * self.d_v if self.backward else 2 * self.d + 2 * self.d_v
            self.work, self.unit = pairs * each / 1e12, "TFLOP/s"


class Product:
    """rows x 4096 numbers times 4096 columns of as many, ours with ATTN_PRECISION_FAST. As a row of attention has it: a
    is q, b k, one batch entry and one head."""
    backward, decode, dropout = False, False, 0.0

    def __init__(self, name, rows, kind):
        self.name, self.rows, self.kind, self.f32 = name, rows, kind, kind == "f32"
        self.columns = self.depth = 4096
        if EMULATED:
            self.rows, self.columns, self.depth = min(rows, 70), 72, 80
        few, number = rows <= 64, 4 if self.f32 else 2
        self.unit = "GB/s" if few else "TFLOP/s"
        self.work = self.columns * self.depth * (number / 1e9 if few else 2 * self.rows / 1e12)

    def inputs(self):
        kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[self.kind]
        return [torch.randn(1, 1, n, self.depth, device=DEVICE).to(kind) for n in (self.rows, self.columns)]

    def reference(self, a, b):
        return [torch.matmul(a[0, 0].double(), b[0, 0].double().T)]

    def contestants(self, a, b):
        yield OURS, lambda: OurProduct(self, a, b)
        yield "PyTorch matmul", lambda: TorchProduct(a, b)


def dense(backward, d, s, causal):
    name = f"{'backward' if backward else 'forward'} d{d} {s // 1024}k{' causal' if causal else ''}"
    return Row(name, max(1, 16384 // s), 2048 // d, 2048 // d, s, s, d, causal, backward)


def dense_rows(backward):
    for d in (128, 64, 256):
        for s in (2048, 8192, 4096, 16384):
            for causal in (False, True):
                yield dense(backward, d, s, causal)


def decodes():
    for batch, kv, group, keys, d in ((1, 8, 4, 65536, 128), (32, 8, 4, 8192, 128), (8, 8, 4, 8192, 128),
                                      (128, 8, 4, 1024, 128), (32, 32, 1, 2048, 128), (32, 8, 8, 8192, 128),
                                      (32, 8, 4, 8192, 64), (32, 8, 4, 8192, 256)):
        name = f"decode {batch} x {kv * group}/{kv} heads, {keys // 1024}k keys" + (f", d{d}" if d != 128 else "")
        yield Row(name, batch, kv * group, kv, 1, keys, d, decode=True)


def options():
    for backward in (False, True):
        name = "backward" if backward else "forward"
        yield Row(f"{name} d192 v128 4k causal", 4, 16, 16, 4096, 4096, 192, True, backward, d_v=128)
        yield Row(f"{name} d128 4k bias", 4, 16, 16, 4096, 4096, 128, backward=backward, bias=True)
        if backward:
            yield Row(f"{name} d128 4k bias with its gradient", 4, 16, 16, 4096, 4096, 128, backward=True, bias=True,
                      d_bias=True)
        yield Row(f"{name} d128 4k dropout", 4, 16, 16, 4096, 4096, 128, backward=backward, dropout=0.1)
        yield Row(f"{name} d128 8k window 1k", 2, 16, 16, 8192, 8192, 128, True, backward, window=1024)
        yield Row(f"{name} d128 4k softcap", 4, 16, 16, 4096, 4096, 128, backward=backward, softcap=2.0)
        for d, causal in ((64, False), (128, True)):
            yield Row(f"{name} f32 d{d} 2k{' causal' if causal else ''}", 4, 16, 16, 2048, 2048, d, causal, backward,
                      f32=True)


def all_rows():
    yield from dense_rows(False)
    yield Row("forward d128 512 rows", 32, 16, 16, 512, 512, 128)
    yield from dense_rows(True)
    yield from decodes()
    for d in (64, 96, 128):
        yield Row(f"backward d{d} 4k, one sweep", 4, 2048 // d, 2048 // d, 4096, 4096, d, backward=True, one_sweep=True)
    yield from options()
    for size in (16, 4096):
        for kind in ("bf16", "f16", "f32"):
            yield Product(f"product {kind} {size} x 4096 x 4096", size, kind)
    yield Row("forward d96 4k", 4, 21, 21, 4096, 4096, 96)
    yield Row("forward d192 4k", 4, 10, 10, 4096, 4096, 192)
    yield Row("forward d128 chunk of 512 in 16k", 1, 32, 32, 512, 16384, 128, True, chunk=True)
    for backward in (False, True):
        for h in (64, 128, 256):
            for s in (128, 512, 1024):
                yield Row(f"additive {'backward' if backward else 'forward'} h{h} {s}", 1, 16, 16, s, s, h,
                          backward=backward, additive=True)
    for backward in (False, True):
        for d in (128, 64, 256):
            for causal in (False, True):
                yield dense(backward, d, 32768, causal)


# ---- who takes part: each has forward() and, after it, backward(), which gives dq, dk, dv, called within around()
class Contestant:
    dropout = 0.0  # until results are checked: each drops other weights
    around = staticmethod(contextlib.nullcontext)


class Ours(Contestant):
    def __init__(self, row, q, k, v, d_out, w_v, bias):
        self.out = torch.full_like(d_out, math.nan)
        self.stats = torch.empty(*q.shape[:3], 2, device=DEVICE)
        self.grads = [torch.full_like(x, math.nan) for x in (q, k, v)]
        self.held = (q, k, v, d_out, w_v, bias)
        self.d_bias = torch.empty_like(bias) if row.d_bias else None
        job = self.job = Job(row.batch, row.heads, row.heads_kv, row.queries, row.keys, row.d, row.d_v,
                             int(row.causal), BOTTOM_RIGHT * row.chunk, row.window, F32 if row.f32 else BF16,
                             ADDITIVE if row.additive else SCALED_DOT, int(row.one_sweep), row.softcap, row.dropout)
        for name, x in (("q", q), ("k", k), ("v", v), ("w_v", w_v), ("bias", bias), ("out", self.out),
                        ("stats", self.stats), ("d_out", d_out), ("dq", self.grads[0]), ("dk", self.grads[1]),
                        ("dv", self.grads[2]), ("d_bias", self.d_bias)):
            setattr(job, name, x.data_ptr() if x is not None else None)
        job.stream = LIB.fake_stream() if EMULATED else torch.cuda.current_stream().cuda_stream
        size = max(LIB.cuda_job_workspace(ctypes.byref(job), b) for b in range(1 + row.backward))
        self.workspace = torch.empty(size + 256, dtype=torch.uint8, device=DEVICE)
        job.workspace, job.workspace_bytes = self.workspace.data_ptr(), self.workspace.numel()

    def run(self, backward):
        if LIB.cuda_job_run(ctypes.byref(self.job), int(backward)):
            raise RuntimeError(LIB.cuda_job_error().decode())

    def forward(self):
        self.run(False)
        return self.out

    def backward(self):
        self.run(True)
        return self.grads


class OurProduct(Contestant):
    def __init__(self, row, a, b):
        self.out = torch.full((1, 1, row.rows, row.columns), math.nan, dtype=a.dtype, device=DEVICE)
        self.held = a, b
        stream = LIB.fake_stream() if EMULATED else torch.cuda.current_stream().cuda_stream
        self.arguments = ([{"bf16": BF16, "f16": F16, "f32": F32}[row.kind]] +
                          [ctypes.c_int64(n) for n in (row.rows, row.columns, row.depth)] +
                          [ctypes.c_void_p(x) for x in (a.data_ptr(), b.data_ptr(), self.out.data_ptr(), stream)])

    def forward(self):
        if LIB.cuda_job_product(*self.arguments):
            raise RuntimeError(LIB.cuda_job_error().decode())
        return self.out


class TorchProduct(Contestant):
    """f32 is no TF32, as PyTorch has it."""

    def __init__(self, a, b):
        self.a, self.b = a, b.mT

    def forward(self):
        return torch.matmul(self.a, self.b)


class Torch(Contestant):
    def __init__(self, row, q, k, v, d_out, bias, attention, backend=None):
        self.attention, self.d_out = attention, d_out
        if backend is not None:
            self.around = lambda: sdpa_kernel(backend)  # which costs the host more than a call may
        self.inputs = [x.detach().requires_grad_(row.backward) for x in (q, k, v) + ((bias,) if row.d_bias else ())]
        self.out = None

    def forward(self):
        self.out = self.attention(*self.inputs[:3], self.dropout, *self.inputs[3:])
        return self.out

    def backward(self):
        return torch.autograd.grad(self.out, self.inputs, self.d_out, retain_graph=True)


class Copy(Contestant):
    """Reads and writes as many bytes as k and v have, which a decode reads: what the memory gives."""

    def __init__(self, k):
        self.k, self.to = k, torch.empty_like(k)

    def forward(self):
        return self.to.copy_(self.k)


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


def not_compiled():
    raise RuntimeError("it is compiled, which takes long: --flex")


def eager(w_v):
    return lambda q, k, v, dropout: torch.softmax(torch.tanh(q[:, :, :, None] + k[:, :, None]) @ w_v, -1) @ v


def sdpa(row, bias):
    if row.chunk:
        from torch.nn.attention.bias import causal_lower_right
        bias = causal_lower_right(row.queries, row.keys)

    causal, gqa = row.causal and not row.chunk, row.heads != row.heads_kv
    return lambda q, k, v, dropout, bias=bias: F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=causal, enable_gqa=gqa)


def contestants(row, compiling, q, k, v, d_out, w_v, bias):
    """Names, and what makes them."""
    def pytorch(attention, backend=None):
        return lambda: Torch(row, q, k, v, d_out, bias, attention(), backend)
    yield OURS, lambda: Ours(row, q, k, v, d_out, w_v, bias)
    if row.window or row.softcap:
        yield FLEX, pytorch(lambda: flex(row)) if compiling else not_compiled
    elif row.additive:
        yield EAGER, pytorch(lambda: eager(w_v))
    else:
        for name, backend in BACKENDS.items():
            yield name, pytorch(lambda: sdpa(row, bias), backend)
    if row.decode:
        yield COPY, lambda: Copy(k)


# ---- float64: out and gradients of the last head, some queries at a time
def kept(row, rows):
    """What dropout multiplies the weights of these queries of the last head by."""
    keep = torch.empty(rows.stop - rows.start, row.keys, dtype=torch.uint8)
    if LIB.cuda_job_keep(ctypes.c_float(row.dropout), row.batch - 1, row.heads - 1, rows.start, keep.shape[0], 0,
                         row.keys, ctypes.c_void_p(keep.data_ptr())):
        raise RuntimeError(LIB.cuda_job_error().decode())
    return keep.to(DEVICE).double() / (1 - row.dropout)


def weights_of(row, rows, q1, k1, w_v, bias):
    if row.additive:
        scores = torch.tanh(q1[:, None] + k1) @ w_v.double()
    else:
        scores = q1 @ k1.T / math.sqrt(row.d)
    if row.softcap:
        scores = row.softcap * torch.tanh(scores / row.softcap)
    if bias is not None:
        scores = scores + bias[rows].double()
    i = torch.arange(rows.start, rows.stop, device=DEVICE)[:, None] + (row.keys - row.queries if row.chunk else 0)
    j = torch.arange(row.keys, device=DEVICE)[None]
    if row.causal:
        scores = scores.masked_fill(j > i, -math.inf)
    if row.window:
        scores = scores.masked_fill(j <= i - row.window, -math.inf)
    return torch.softmax(scores, -1)


def reference(row, q, k, v, d_out, w_v, bias, dropped):
    """[out] or, of a backward, [out, dq, dk, dv]."""
    k1, v1 = (x[-1, -1].double().requires_grad_(row.backward) for x in (k, v))
    outs, dqs, dk, dv = [], [], torch.zeros_like(k1), torch.zeros_like(v1)
    step = max(1, ELEMENTS // (row.keys * (row.d if row.additive else 1)))
    for first in range(0, row.queries, step):
        rows = slice(first, min(row.queries, first + step))
        q1 = q[-1, -1, rows].double().requires_grad_(row.backward)
        weights = weights_of(row, rows, q1, k1, w_v, bias)
        out = (weights * kept(row, rows) if dropped else weights) @ v1
        outs.append(out.detach())
        if row.backward:
            grads = torch.autograd.grad(out, (q1, k1, v1), d_out[-1, -1, rows].double())
            dqs.append(grads[0])
            dk, dv = dk + grads[1], dv + grads[2]
    return [torch.cat(outs)] + ([torch.cat(dqs), dk, dv] if row.backward else [])


def error_of(row, one, want):
    """Of all that is found the largest, relative to the norm of what it should be."""
    with one.around():
        got = [one.forward()] + (list(one.backward()) if row.backward else [])
    errors = [((x[-1, -1].detach().double() - y).norm() / y.norm().clamp_min(1e-300)).item() for x, y in zip(got, want)]
    return max(errors) if all(e == e for e in errors) else math.nan


# ---- time
class Clock:  # of the emulator; that of a device is torch.cuda.Event
    def __init__(self, enable_timing):
        self.now = 0.0

    def record(self):
        self.now = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.now - self.now) * 1e3


def seconds(call, calls):
    start, end = ((Clock if EMULATED else torch.cuda.Event)(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3 / calls


def sample(row, one, calls):
    with one.around():
        return seconds(one.backward if row.backward else one.forward, calls)


def times_of(row, taking_part):
    """Seconds of a call of each, medians of rounds in which all take a sample in turn; and who took no part in them."""
    first = {}
    for name, one in taking_part.items():
        first[name] = sample(row, one, max(1, min(WARM, math.ceil(SAMPLE / sample(row, one, 1)))))
    peers = [t for name, t in first.items() if name not in (OURS, COPY)]
    far = [name for name, t in first.items() if name not in (OURS, COPY) and t > FAR * min(peers)]
    counts = {name: max(1, math.ceil(SAMPLE / t)) for name, t in first.items() if name not in far}
    rounds = ROW_SECONDS / sum(n * first[name] for name, n in counts.items())
    samples = {name: [] for name in counts}
    for _ in range(1 + max(LEAST, min(MOST, int(rounds)))):
        for name, n in counts.items():
            samples[name].append(sample(row, taking_part[name], n))
    return {name: statistics.median(samples[name][1:]) if name in samples else t for name, t in first.items()}, far


# ---- a row
def draw(row, *shape):
    x = torch.randn(*shape, device=DEVICE)
    return x if row.f32 else x.bfloat16()


def inputs_of(row):
    q, d_out = (draw(row, row.batch, row.heads, row.queries, d) for d in (row.d, row.d_v))
    k, v = (draw(row, row.batch, row.heads_kv, row.keys, d) for d in (row.d, row.d_v))
    w_v = torch.randn(row.d, device=DEVICE) if row.additive else None
    return q, k, v, d_out, w_v, draw(row, row.queries, row.keys) if row.bias else None


def synchronize():
    if not EMULATED:
        torch.cuda.synchronize()


def check(row, name, make, want, found):
    """Whose calls are to be timed; None where they cannot be or are wrong, and `found` says why."""
    try:
        one = make()
        if name != COPY:
            found["error"][name] = error_of(row, one, want)
            one.dropout = row.dropout
            with one.around():
                one.forward()  # what its backward goes back through
        synchronize()
    except Exception as problem:  # a backend that does not take the row, a compiler that is not there
        found["absent"][name] = (str(problem) or repr(problem)).splitlines()[0][:160].rstrip(".")
        try:
            synchronize()
            torch.cuda.empty_cache()
        except Exception as lasting:  # nothing on this device works any more: this process is to be another
            raise RuntimeError(f"{name}: {str(lasting).splitlines()[0]}") from None
        return None
    bound = 1e-4 if row.f32 else 2e-2 if row.backward else 1e-2
    if name != COPY and not found["error"][name] <= bound:  # a NaN is not
        found["wrong"][name] = found["error"].pop(name)
        return None
    return one


def measure(row, compiling):
    found = {"row": row.name, "unit": row.unit, "rate": {}, "error": {}, "wrong": {}, "absent": {}, "few": []}
    product = isinstance(row, Product)
    inputs = row.inputs() if product else inputs_of(row)
    want = row.reference(*inputs) if product else reference(row, *inputs, row.dropout > 0)
    of_peers = reference(row, *inputs, False) if row.dropout else want
    taking_part = {}
    with torch.set_grad_enabled(row.backward):  # already at the first call: what is compiled depends on it
        for name, make in row.contestants(*inputs) if product else contestants(row, compiling, *inputs):
            one = check(row, name, make, want if name == OURS else of_peers, found)
            if one:
                taking_part[name] = one
        if taking_part:
            times, found["few"] = times_of(row, taking_part)
            found["rate"] = {name: row.work / t for name, t in times.items()}
    return found


def matmul_rate():
    a, b = (torch.randn(8192, 8192, device=DEVICE).bfloat16() for _ in range(2))
    seconds(lambda: a @ b, 20)  # the clocks warm
    return 2 * 8192 ** 3 / statistics.median(seconds(lambda: a @ b, 10) for _ in range(5)) / 1e12


def machine():
    """In words, and a product's speed beside which all others may be read."""
    cudnn = torch.backends.cudnn.version() or 0
    about = f"PyTorch {torch.__version__}, cuDNN {cudnn // 10000}.{cudnn // 100 % 100}"
    if EMULATED:
        return "an emulated device", about
    try:
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], timeout=20,
                                capture_output=True, text=True, check=True).stdout.split()[0]
        about += f", driver {driver}"
    except (OSError, IndexError, subprocess.SubprocessError):
        pass
    return torch.cuda.get_device_name(), f"{about}, bf16 products of 8192 x 8192 matrices {matmul_rate():.0f} TFLOP/s"


def answer(pipe, texts, compiling):
    """Which machine, which rows, then each row that is asked for, by its number."""
    torch.manual_seed(1)
    x = torch.ones(2, 2, device=DEVICE, requires_grad=True)
    torch.autograd.grad((x @ x).sum(), x)  # the first one loads modules, which may take longer than a row
    rows = [row for row in all_rows() if not texts or any(text in row.name for text in texts)]
    pipe.send((machine(), [row.name for row in rows]))
    while True:
        pipe.send(measure(rows[pipe.recv()], compiling))
