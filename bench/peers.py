#!/usr/bin/env python3
"""attn.h beside its peers: PyTorch, onnxruntime, ggml, attention on OpenBLAS, plain loops: `make bench-peers` runs it.

Every contestant is a process of its own, forked with the inputs of the row in it, so that no thread pool disturbs
another and all read the same pages. They take their samples in turn. One thread: the process's CPU time, on one core;
more: the clock on the wall. Ratios are of medians. Errors are against float64, on some of the queries; gradients on
all of them, each held against the same gradient of the peer: the worst ratio counts. Of a row that trains, forward and
backward, the memory that each process took is told too. Rows with "stored as" have arrays of 16 bits, or keys and
values of 8: beside them are PyTorch's with 16, ggml's, and the same call of attn.h with floats (ratio: how much
faster). A peer that raises, dies or does not answer is named in its row, and the run goes on."""
import os

for name in ("OPENBLAS_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
    os.environ[name] = "1"  # the C peer has its own threads; NumPy computes the reference before anything is timed
os.environ["GGML_NO_BACKTRACE"] = "1"  # else it starts a debugger when it dies
import argparse
import collections
import ctypes
import json
import logging
import math
import signal
import statistics
import sys
import textwrap
import time
import numpy as np
from forked import Failed, Forked, Hung

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None
try:
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "build", "peers")
WITH_BIAS = ["PyTorch", "onnxruntime MHA", "onnxruntime Attention", "OpenBLAS flash", "OpenBLAS full"]
ATTENTION = WITH_BIAS + ["ggml"]
PROBES = ["read probe", "read probe, 2 streams", "read probe, 4 streams"]
PEERS = ("PyTorch", "onnxruntime", "OpenBLAS", "plain C")
JUDGED = PEERS + ("ggml",)  # those whose error ours is held against
SAMPLE, PAUSE, FEW, WRONG = 0.02, 0.01, 3, 1e-3
WRONG_OF = {"ggml": 0.2}  # with arrays of 16 bits: it adds up values of f16 as f16, over 32768 keys, too
TOO_SLOW = {1: 2, FEW: 1.3}  # after so many samples whoever is so much behind the best takes no more part
FAR = 4  # whoever is so many times further behind us than the row's bars ask runs first, alone: some need gigabytes
PICKS, MORE = 256, 32  # queries of each head whose error is looked at; so many, one after the other, of one-query rows


class Job(ctypes.Structure):  # work.h
    _fields_ = [("name", ctypes.c_char_p)] + [(n, ctypes.c_int32) for n in (
        "kind batch heads kv_heads queries keys d dv score causal window masked biased weighed projected").split()] + [
        ("dropout", ctypes.c_float), ("lengths", ctypes.c_void_p)] + [(n, ctypes.c_int32) for n in (
        "threads", "isa")] + [(n, ctypes.c_void_p) for n in (
        "q k v bias w_v w_q w_k hidden_bias d_out mask out weights stats "
        "d_q d_k d_v d_bias d_w_v d_w_q d_w_k d_hidden_bias loop").split()] + [
        ("type", ctypes.c_int32), ("k_scale", ctypes.c_void_p), ("v_scale", ctypes.c_void_p),
        ("precision", ctypes.c_int32), ("transposed", ctypes.c_int32)]


F16, BF16, I8, Q8_0 = 1, 2, 7, 100  # attn_type, and ggml's blocks


LIB = ctypes.CDLL(os.path.join(BUILD, "libpeers.so"))
LIB.table_row.restype = ctypes.POINTER(Job)
LIB.table_operations.restype = LIB.peak_count.restype = LIB.seconds.restype = ctypes.c_double
LIB.blas_name.restype = LIB.machine_name.restype = ctypes.c_char_p
try:
    GGML = ctypes.CDLL(os.path.join(BUILD, "libpeers_ggml.so"))
    GGML.ggml_name.restype = ctypes.c_char_p
except OSError:
    GGML = None


# ---- against whom (a prefix of names; "peers": the best of PEERS), how much faster on one thread and on two; who takes
# part. ggml has a bar of its own.
def peers(one, two):
    return {"peers": (one, two)}


def attention(one, two):
    return beside_ggml(1, peers(one, two))


def prefill(one, two):
    return {**attention(one, two), "attn.h on one thread": (None, 1.9)}


def decode(one, two):
    return {**attention(one, two), "read probe": (0.9, 0.9)}


def typed(of_f32):
    """Arrays of 16 or 8 bits: PyTorch's of 16, and the same call of ours with floats."""
    return {"PyTorch": (1, 1), "attn.h in f32": (of_f32, of_f32)}


def beside_ggml(least, bars):
    return {"ggml": (least, least), **bars}


def backward(least):
    return {"PyTorch": (least, least), "attn.h on one thread": (None, 1.85)}


BARS = {
    "8x512 d64": prefill(1.1, 1.1),
    "8x512 d64 causal": prefill(1.25, 1.2),
    "8x2048 d64": prefill(1.1, 1.1),
    "8x2048 d64 causal": prefill(1.25, 1.2),
    "8x2048 d128": {**prefill(1.1, 1.1), "sgemm": (0.9, 0.9)},
    "8x2048 d128 causal": prefill(1.25, 1.2),
    "4x4096 d128 causal": prefill(1.15, 1.12),
    "window of 256, 4x8192 d64": attention(5, 5),
    "half of the keys padded, 8x2048 d64": attention(1.8, 1.8),
    "bool mask, 8x1024 d64": attention(1.2, 1.2),
    "float bias, 8x1024 d64": peers(1.2, 1.2),
    **{f"8x1024 d{d}": attention(1.1, 1.1) for d in (40, 65, 72, 96, 130)},
    "cross, 8x64 queries, 4096 keys d64": attention(1.1, 1.1),
    "8x64x64 d64": attention(1.4, 1.4),
    "1x16x16 d16": {"PyTorch": (5, None), "onnxruntime": (5, None), "OpenBLAS": (2.5, None), "ggml": (1, None),
                    "attn.h on one thread": (None, 0.95)},
    "one query, 8 heads, 4096 keys d128": decode(1, 1),
    "one query, 8 heads, 32768 keys d128": decode(1, 1),
    "one query, one head, 32768 keys d128": {"attn.h on one thread": (None, 1.7)},
    "one query, 32 heads on 8, 8192 keys d128": attention(1.8, 1.8),
    "8 queries, 32 heads on 8, 8192 keys d128": attention(1.2, 1.2),
    "weights returned, 8x512 d64": {"PyTorch eager": (1.2, 1.2)},  # OpenBLAS: for information
    "additive h128, 1024x1024, values 64": {"PyTorch eager": (20, 20), "PyTorch compiled": (10, 10),
                                            "plain C, vectorised": (5, 5), "plain C at -O2": (100, 100)},
    "Gaussian, 8x1024 d64": {"PyTorch": (3, 3), "attn.h's dot": (1 / 1.7, 1 / 1.7)},
    "masked softmax 4096x4096": peers(1.5, 1.5),
    "matrix products 32 x 128^3": peers(0.9, 0.9),
    **{f"matrix product {size}": peers(0.97, 0.97) for size in ("512^3", "1024^3", "2048^3")},
    "matrix product 128x512x512": peers(1, 1),
    **{f"matrix product {rows}": peers(0.9, 0.9) for rows in ("1x1024x1024", "16x1024x1024", "1x4096x4096")},
    **{f"matrix product {rows}x1024x1024, b transposed": peers(0.9, 0.9) for rows in (1, 8)},
    **{f"multi-head, {tokens}": peers(1, 1) for tokens in ("1x128 tokens of 512", "8x128 tokens of 512",
                                                           "1x1024 tokens of 1024")},
    "multi-head, one token of 1024": peers(1.1, 1.1),
    "multi-head, forward+backward, 8x128 tokens of 512": peers(1, 1),
    **{f"backward, {size}": backward(1.15) for size in ("8x512 d64", "8x2048 d64", "8x2048 d128")},
    **{f"backward, {size} causal": backward(1.35) for size in ("8x512 d64", "8x2048 d64", "8x2048 d128")},
    "backward, bias gradient too, 8x1024 d64": backward(3),
    "backward, dropout 0.1, 8x1024 d64": backward(2),
    "forward+backward, additive h128, 512x512": backward(15),
    **{f"stored as {t}: {n}, {h}, {s} keys d128": beside_ggml(1.3 if t == "q8_0" else 1.15,
                                                              typed(1.7 if n == "one query" and s == 32768 else 1))
       for t in ("f16", "bf16", "i8", "q8_0") for n in ("one query", "8 queries") for h in ("8 heads", "32 heads on 8")
       for s in (4096, 32768)},  # 1.7: what bounds it is the memory
    **{f"stored as {t}: 8x2048 d{d}": beside_ggml(1, typed(0.95)) for t in ("f16", "bf16", "q8_0") for d in (64, 128)},
    **{f"stored as bf16, and its products: {work}": typed(1.6) for work in (
        "8x512 d64", "8x512 d128", "8x2048 d64", "8x2048 d64 causal", "8x2048 d128", "8x2048 d128 causal",
        "4x4096 d128 causal", "1x8192 d64", "1x8192 d128", "32 heads on 8, 2048 d128 causal",
        "cross, 8x64 queries, 4096 keys d64", "cross, 8x64 queries, 4096 keys d128", "backward, 8x512 d64",
        "backward, 8x2048 d64", "backward, 8x2048 d64 causal", "backward, 8x2048 d128",
        "backward, 8x2048 d128 causal", "multi-head, 8x128 tokens of 512", "multi-head, 1x1024 tokens of 1024",
        "multi-head, one token of 1024")},
    **{f"stored as bf16, and its products: matrix product {size}": typed(2) for size in (
        "512^3", "128x512x512, b transposed", "16x1024x1024", "16x1024x1024, b transposed",
        "1x4096x4096, b transposed")},
    **{f"stored as i8, and its products: 8x2048 d{d}": typed(1.6) for d in (64, 128)},
    **{f"stored as bf16: matrix product {rows}x1024x1024": typed(2) for rows in (1, 16)},
    "stored as bf16: matrix product 1x1024x1024, b transposed": typed(2),
    "stored as i8: matrix product 1x1024x1024, b transposed": typed(1.7),
    "stored as i8: matrix product 16x1024x1024, b transposed": typed(1),
}
TAKES_PART = {  # where it is not all of ATTENTION
    "8x2048 d128": ATTENTION + ["sgemm of PyTorch", "sgemm of OpenBLAS"],
    "one query, 8 heads, 4096 keys d128": ATTENTION + PROBES,
    "one query, 8 heads, 32768 keys d128": ATTENTION + PROBES,
    "one query, one head, 32768 keys d128": [],
    "float bias, 8x1024 d64": WITH_BIAS,  # ggml's is of 16 bits
    "weights returned, 8x512 d64": ["PyTorch eager", "OpenBLAS full"],
    "additive h128, 1024x1024, values 64": ["PyTorch eager", "PyTorch compiled", "plain C, vectorised",
                                            "plain C at -O2"],
    "Gaussian, 8x1024 d64": ["PyTorch eager", "attn.h's dot"],
    "masked softmax 4096x4096": ["PyTorch eager"],
    **{name: ["PyTorch bmm", "OpenBLAS bmm"] for name in BARS if name.startswith("matrix product")},
    **{name: ["PyTorch's products and attention"] for name in BARS if name.startswith("multi-head")},
    "backward, bias gradient too, 8x1024 d64": ["PyTorch", "PyTorch eager"],
    "backward, dropout 0.1, 8x1024 d64": ["PyTorch", "PyTorch eager"],
    "forward+backward, additive h128, 512x512": ["PyTorch eager"],
}


class Row:
    """A line of work.h's table."""

    def __init__(self, i):
        self.job = LIB.table_row(i).contents
        for name, kind in Job._fields_:
            setattr(self, name, getattr(self.job, name))
        self.name, self.kind, self.operations = self.name.decode(), chr(self.kind or ord("f")), LIB.table_operations(i)
        gradients = self.kind in "gtn"  # of these inputs
        self.wanted = "q k v".split() + ["bias"] * self.biased + "w_v w_q w_k hidden_bias".split() * self.projected
        self.wanted = "q k v w_q w_k".split() if self.kind == "n" else self.wanted if gradients else []
        self.bars = {n: bar for n, bar in BARS[self.name].items() if n != "ggml" or GGML}
        self.of_peak = self.kind in "fgb" and self.score in (0, 5) and self.queries > 1  # nearly all is multiply-adds
        self.wrong = {F16: 1e-2, BF16: 5e-2, I8: 5e-2, Q8_0: 5e-2}.get(self.type, WRONG)
        torch_of = {"b": "PyTorch bmm", "m": "PyTorch's products and attention"}.get(self.kind, "PyTorch")
        typed = [torch_of] + ["ggml"] * ("ggml" in BARS[self.name]) + ["attn.h in f32"]
        self.peers = typed if self.type else TAKES_PART.get(self.name, ["PyTorch"] if gradients else ATTENTION)
        lengths = self.lengths and ctypes.cast(self.lengths, ctypes.POINTER(ctypes.c_int32))
        self.lengths = lengths and np.ctypeslib.as_array(lengths, (self.batch,))


def table():
    i = 0
    while LIB.table_row(i):
        yield Row(i)
        i += 1


# ---- inputs and what float64 makes of them
Data = collections.namedtuple("Data", "q k v bias mask w_v w_q w_k hidden_bias d_out lengths picks want more narrow",
                              defaults=[None])  # narrow: q, k, v and scales as the row stores them


def narrowed(kind, a):
    """Floats as f16 or bf16 (its bits), to nearest even."""
    if kind == F16:
        return a.astype(np.float16)
    bits = a.view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(a):
    return a.astype(np.float32) if a.dtype == np.float16 else (a.astype(np.uint32) << 16).view(np.float32)


def q8_0(a):
    """Floats as ggml's blocks, each an f16 scale and 32 codes, 34 bytes; and what they hold."""
    groups = a.reshape(*a.shape[:-1], -1, 32)
    scale = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    codes, scale = np.rint(groups / scale).astype(np.int8), scale.astype(np.float16)
    return np.concatenate([scale.view(np.uint8), codes.view(np.uint8)], -1), (codes * widened(scale)).reshape(a.shape)


def stored(r, q, k, v):
    """The arrays as the row stores them; q, k and v become what they hold."""
    if r.type == Q8_0:
        (k, k_values), (v, v_values) = q8_0(k), q8_0(v)
        return {"q": q, "k": k, "v": v}, [q, k_values, v_values]
    if r.type != I8:
        narrow = {n: narrowed(r.type, a) for n, a in zip("qkv", (q, k, v)) if a is not None}
        return narrow, [widened(narrow[n]) if n in narrow else None for n in "qkv"]
    narrow = {"q": narrowed(BF16, q) if r.precision else q}
    values = [widened(narrow["q"]) if r.precision else q]
    for n, a in zip("kv", (k, v)):
        if a is None:  # of a product
            values.append(None)
            continue
        scale = np.abs(a).max(-1, keepdims=True) / np.float32(127)
        narrow[n], narrow[n + "_scale"] = np.rint(a / scale).astype(np.int8), scale
        values.append(narrow[n].astype(np.float32) * scale)
    return narrow, values


def inputs(r):
    random = np.random.default_rng(1)
    normal = lambda *shape: random.standard_normal(shape, np.float32)
    mask = random.random((r.queries, r.keys)) < 0.5 if r.masked else None
    if r.kind == "s":
        q, k, v = normal(r.queries, r.keys), None, None
    elif r.kind == "b":
        q, v = normal(r.heads, r.queries, r.d), None
        k = normal(r.heads, r.keys, r.d) if r.transposed else normal(r.heads, r.d, r.keys)
    elif r.kind in "mn":
        q, (k, v) = normal(r.batch, r.queries, r.d), (normal(r.d, r.d) / np.float32(math.sqrt(r.d)) for _ in "kv")
    else:
        q = normal(r.batch, r.heads, r.queries, r.d)
        k, v = normal(r.batch, r.kv_heads, r.keys, r.d), normal(r.batch, r.kv_heads, r.keys, r.dv)
    narrow = None
    if r.type:
        narrow, (q, k, v) = stored(r, q, k, v)
    bias = normal(r.heads, r.queries, r.keys) if r.biased else None
    w_v, w_q, w_k, hidden_bias, d_out = normal(r.d) if r.score == 4 else None, None, None, None, None
    if r.projected:
        w_q, w_k = (normal(r.d, r.d) / np.float32(math.sqrt(r.d)) for _ in "qk")
        if r.type:
            narrow.update(w_q=narrowed(r.type, w_q), w_k=narrowed(r.type, w_k))
            w_q, w_k = widened(narrow["w_q"]), widened(narrow["w_k"])
        hidden_bias = normal(r.d)
    if r.wanted:
        d_out = normal(*q.shape[:-1], r.dv)
        d_out = widened(narrowed(r.type, d_out)) if r.type else d_out
    picks = np.unique(np.linspace(0, r.queries - 1, PICKS).astype(int))
    data = Data(q, k, v, bias, mask, w_v, w_q, w_k, hidden_bias, d_out, r.lengths, picks, None, None, narrow)
    if r.wanted:  # under dropout everyone has a mask, and so a result, of his own
        return data if r.dropout else data._replace(want=reference_gradients(r, data))
    if r.queries > 1 or r.kind in "bm":
        return data._replace(want=reference(r, data))
    more = normal(r.batch, r.heads, MORE, r.d)
    if r.type in (F16, BF16):
        more = widened(narrowed(r.type, more))
    return data._replace(more=more, want=reference(r, data._replace(q=more, picks=range(MORE))))


def allowed(r, x, rows):
    """The mask of some queries as data, [B or 1, 1, rows, Sk], or None: what peers without the option are given."""
    i, j = np.asarray(rows)[:, None], np.arange(r.keys)
    allow = np.ones((1, 1, len(i), r.keys), bool)
    if r.causal:
        allow = allow & (j <= i)
    if r.window:
        allow = allow & (j >= i - r.window)
    if r.masked:
        allow = allow & x.mask[rows]
    if r.lengths is not None:
        allow = allow & (j < x.lengths[:, None, None, None])
    return None if allow.all() else allow


def multi_head(x, w_query, w_key, w_value, w_result, heads):
    """Of x [B,S,E], as torch.nn.MultiheadAttention has it, without biases."""
    q, k, v = ((x @ w.T).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for w in (w_query, w_key, w_value))
    s = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape) @ w_result.T


def multi_head_gradients(x, heads):
    """Of x [B,S,E], here q, and of the matrices of queries, keys, values, here k, and results, here v."""
    q, w_query, w_key, w_value, w_result, d_out = (a.astype(float) for a in (x.q, x.w_q, x.w_k, x.k, x.v, x.d_out))
    split = lambda a: a.reshape(*q.shape[:2], heads, -1).swapaxes(1, 2)
    join = lambda a: a.swapaxes(1, 2).reshape(-1, q.shape[-1])
    queries, keys, values = (split(q @ w.T) for w in (w_query, w_key, w_value))
    scale = 1 / math.sqrt(queries.shape[-1])
    p = queries @ keys.swapaxes(2, 3) * scale
    p = np.exp(p - p.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    above = split(d_out @ w_result)
    d_values, d_p = p.swapaxes(2, 3) @ above, above @ values.swapaxes(2, 3)
    d_scores = p * (d_p - (p * d_p).sum(-1, keepdims=True)) * scale
    d_q, d_k, d_v = (join(a) for a in (d_scores @ keys, d_scores.swapaxes(2, 3) @ queries, d_values))
    rows = q.reshape(-1, q.shape[-1])
    return {"q": (d_q @ w_query + d_k @ w_key + d_v @ w_value).reshape(q.shape), "w_q": d_q.T @ rows, "w_k": d_k.T @ rows,
            "k": d_v.T @ rows, "v": d_out.reshape(rows.shape).T @ join(p @ values)}


def reference(r, x):
    if r.kind == "b":
        return x.q[:, x.picks].astype(float) @ (x.k.swapaxes(1, 2) if r.transposed else x.k).astype(float)
    if r.kind == "s":
        s = np.where(x.mask[x.picks], x.q[x.picks].astype(float), -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True)
    if r.kind == "m":
        return multi_head(*(a.astype(float) for a in (x.q, x.w_q, x.w_k, x.k, x.v)), r.heads)[:, x.picks]
    allow, out = allowed(r, x, x.picks), np.empty((r.batch, r.heads, len(x.picks), r.dv))
    for b in range(r.batch):
        for h in range(r.heads):
            g = h * r.kv_heads // r.heads
            q, k, v = (a.astype(float) for a in (x.q[b, h, x.picks], x.k[b, g], x.v[b, g]))
            out[b, h] = reference_weights(r, x, q, k, h, x.picks, allow is not None and allow[b % len(allow), 0]) @ v
    return out


def reference_weights(r, x, q, k, h, rows, allow):
    if r.score == 4:
        s = np.stack([np.tanh(row + k) @ x.w_v.astype(float) for row in q])
    elif r.score == 5:
        s = -0.5 * ((q * q).sum(-1)[:, None] + (k * k).sum(-1) - 2 * q @ k.T)
    else:
        s = q @ k.T / math.sqrt(r.d)
    if r.biased:
        s = s + x.bias[h, rows]
    if allow is not False:
        s = np.where(allow, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def reference_gradients(r, x, kept=None):
    """kept: which weights dropout keeps, [B,H,Sq,Sk]."""
    if r.kind == "n":
        return multi_head_gradients(x, r.heads)
    allow, g = allowed(r, x, range(r.queries)), {n: np.zeros(getattr(x, n).shape) for n in r.wanted}
    project = lambda a, w, bias: a @ w.astype(float).T + bias if r.projected else a
    for b in range(r.batch):
        for h in range(r.heads):
            q, k, v, d_out = (a[b, h].astype(float) for a in (x.q, x.k, x.v, x.d_out))
            left, right = project(q, x.w_q, x.hidden_bias), project(k, x.w_k, 0)
            p = reference_weights(r, x, left, right, h, slice(None), allow is not None and allow[b % len(allow), 0])
            keep = 1 if kept is None else kept[b, h] / (1 - r.dropout)
            g["v"][b, h] = (p * keep).T @ d_out
            above = d_out @ v.T * keep
            d_score = p * (above - (p * above).sum(-1, keepdims=True))
            if r.biased:
                g["bias"][h] += d_score
            if r.score == 4:
                d_left, d_right = np.zeros_like(left), np.zeros_like(right)
                for i, row in enumerate(left):
                    t = np.tanh(row + right)
                    g["w_v"] += d_score[i] @ t
                    inner = d_score[i][:, None] * (1 - t * t) * x.w_v
                    d_left[i] = inner.sum(0)
                    d_right += inner
                g["q"][b, h], g["k"][b, h] = d_left @ x.w_q, d_right @ x.w_k
                g["w_q"] += d_left.T @ q
                g["w_k"] += d_right.T @ k
                g["hidden_bias"] += d_left.sum(0)
            else:
                g["q"][b, h], g["k"][b, h] = d_score @ k / math.sqrt(r.d), d_score.T @ q / math.sqrt(r.d)
    return g


# ---- contestants: each prepares a row and returns run(count) -> seconds, and the output where there is one to check:
# an array; the gradients, by input, and the weights that dropout kept (None: it has none)
class Unable(Failed):
    """It has no such thing."""


def native(function, start="start", score=None, loop=None):
    def prepare(r, x, threads, wall):
        shape = {"s": (r.queries, r.keys), "b": (r.heads, r.queries, r.keys)}.get(r.kind, x.q.shape[:-1] + (r.dv,))
        out, weights = np.zeros(shape, np.float32), None
        if r.weighed:
            weights = np.zeros(x.q.shape[:-1] + (r.keys,), np.float32)
        gradients = {n: np.zeros(getattr(x, n).shape, np.float32) for n in r.wanted}
        stats = np.zeros(x.q.shape[:-1] + (2,), np.float32) if r.wanted else None
        mask = x.mask
        if r.window and start == "start":  # the C peer, like the others, has no window
            mask = np.ascontiguousarray(allowed(r, x, range(r.queries))[0, 0])
        job = Job.from_buffer_copy(r.job)
        job.threads, job.score = threads, r.score if score is None else score
        job.type = job.precision = 0  # floats
        for name, a in dict(x._asdict(), mask=mask, out=out, weights=weights, stats=stats,
                            **{f"d_{n}": a for n, a in gradients.items()}).items():
            if hasattr(job, name) and a is not None:
                setattr(job, name, a.ctypes.data)
        if loop:
            job.loop = ctypes.cast(ctypes.CDLL(os.path.join(BUILD, loop)).additive_loop, ctypes.c_void_p)
        if getattr(LIB, start)(ctypes.byref(job)):
            raise Unable("attn.h refused the call")
        call, keep = ctypes.cast(getattr(LIB, function), ctypes.c_void_p), (job, mask, weights, stats)
        run = lambda count: LIB.seconds(call, ctypes.byref(keep[0]), count, wall)
        return run, lambda: (gradients, attn_kept(r)) if gradients else out
    return prepare


def attn_f32(r, x, threads, wall):
    names = ("multi_head_call", "multi_head_start") if r.kind in "mn" else ("attn_call", "attn_start")
    return native(*names)(r, x, threads, wall)


def attn_typed(r, x, threads, wall):
    """attn.h with the arrays as the row stores them."""
    if not r.type:
        return attn_f32(r, x, threads, wall)
    out = np.zeros(x.q.shape[:-1] + (r.keys if r.kind == "b" else r.dv,), x.narrow["q"].dtype)
    job, more = Job.from_buffer_copy(r.job), {}
    job.threads, job.out = threads, out.ctypes.data
    gradients = {n: np.zeros_like(x.narrow[n]) for n in r.wanted}
    if gradients:
        more = {"d_out": narrowed(r.type, x.d_out), "stats": np.zeros(x.q.shape[:-1] + (2,), np.float32)}
    for name, a in {**x.narrow, **more, **{f"d_{n}": a for n, a in gradients.items()}}.items():
        setattr(job, name, a.ctypes.data)
    start, function = (LIB.multi_head_start, LIB.multi_head_call) if r.kind == "m" else (LIB.typed_start, LIB.attn_call)
    if start(ctypes.byref(job)):
        raise Unable("attn.h refused the call")
    call, keep = ctypes.cast(function, ctypes.c_void_p), (job, x, more, out)
    def run(count):
        if x.more is not None and r.type in (F16, BF16):  # another query may have been put into q
            x.narrow["q"][:] = narrowed(r.type, x.q)
        return LIB.seconds(call, ctypes.byref(keep[0]), count, wall)
    if gradients:
        return run, lambda: ({n: widened(a) for n, a in gradients.items()}, None)
    return run, lambda: out if out.dtype == np.float32 else widened(out)


def attn_kept(r):
    if not r.dropout:
        return None
    kept = np.empty((r.batch, r.heads, r.queries, r.keys), np.uint8)
    LIB.attn_kept(ctypes.byref(r.job), kept.ctypes.data_as(ctypes.c_void_p))
    return kept


def timed(call, wall):
    clock = time.perf_counter if wall else time.process_time
    last = []
    def run(count):
        start = clock()
        for _ in range(count):
            last[:] = call(),
        return clock() - start
    return run, last


def pytorch(build):
    def prepare(r, x, threads, wall):
        if not torch:
            raise Unable("not installed")
        torch.set_num_threads(threads)
        torch.set_grad_enabled(bool(r.wanted))
        x = Data(*(torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in x))
        if r.type:
            return torch_typed(r, x, build, wall)
        forward = build(r, x)
        call, kept = torch_gradients(r, x, forward) if r.wanted else (forward, None)
        run, last = timed(call, wall)
        if not r.wanted:
            return run, lambda: last[0].numpy()
        return run, lambda: ({n: a.numpy() for n, a in zip(r.wanted, last[0])}, kept)
    return prepare


def torch_typed(r, x, build, wall):
    """Of 8 bits it has none; there it reads the same numbers as bf16."""
    kind = torch.float16 if r.type == F16 else torch.bfloat16
    narrow = x._replace(**{n: getattr(x, n).to(kind) for n in ("q", "k", "v", "w_q", "w_k", "d_out")
                          if getattr(x, n) is not None})
    forward = build(r, narrow)
    run, last = timed(torch_gradients(r, narrow, forward)[0] if r.wanted else forward, wall)
    def with_q(count):
        if x.more is not None:
            narrow.q[:] = x.q.to(kind)
        return run(count)
    if r.wanted:
        return run, lambda: ({n: a.float().numpy() for n, a in zip(r.wanted, last[0])}, None)
    return with_q, lambda: last[0].float().numpy()


def torch_gradients(r, x, forward):
    """The backward pass of one graph, again and again; or forward and backward. And the weights that dropout kept:
    what attention makes of a unit matrix under the same seed."""
    inputs, kept = [getattr(x, n).requires_grad_() for n in r.wanted], None
    if r.kind in "tn":
        return lambda: torch.autograd.grad(forward(), inputs, x.d_out), None
    if r.dropout:
        torch.manual_seed(1)
        with torch.no_grad():
            kept = forward(torch.eye(r.keys).expand(r.batch, r.heads, -1, -1)).numpy() != 0
        torch.manual_seed(1)
    out = forward()
    return lambda: torch.autograd.grad(out, inputs, x.d_out, retain_graph=True), kept


def torch_sdpa(r, x):
    arrays = x._replace(**{n: a.numpy() for n, a in (("mask", x.mask), ("lengths", x.lengths)) if a is not None})
    causal = bool(r.causal and not r.window)
    allow = None if causal else allowed(r, arrays, range(r.queries))
    mask = torch.from_numpy(allow) if allow is not None else x.bias
    return lambda v=x.v: F.scaled_dot_product_attention(x.q, x.k, v, attn_mask=mask, is_causal=causal,
                                                        dropout_p=r.dropout, enable_gqa=r.heads != r.kv_heads)


def torch_multi_head(r, x):
    def call():
        q, k, v = ((x.q @ w.T).view(r.batch, r.queries, r.heads, -1).transpose(1, 2) for w in (x.w_q, x.w_k, x.k))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.q.shape) @ x.v.T
    return call


def torch_eager(r, x):
    if r.kind == "s":
        excluded = ~x.mask
        return lambda: x.q.masked_fill(excluded, -math.inf).softmax(-1)
    if r.projected:
        return lambda: torch_additive(F.linear(x.q[0, 0], x.w_q, x.hidden_bias), F.linear(x.k[0, 0], x.w_k),
                                      x.v[0, 0], x.w_v)[None, None]
    if r.score == 4:
        return lambda: torch_additive(x.q[0, 0], x.k[0, 0], x.v[0, 0], x.w_v)[None, None]
    if r.wanted:
        bias = 0 if x.bias is None else x.bias
        return lambda v=x.v: F.dropout((x.q @ x.k.mT / math.sqrt(r.d) + bias).softmax(-1), r.dropout) @ v
    if r.score == 5:
        return lambda: (torch.cdist(x.q, x.k).square() * -0.5).softmax(-1) @ x.v
    return lambda: (x.q @ x.k.mT / math.sqrt(r.d)).softmax(-1) @ x.v


def torch_additive(q, k, v, w):
    return (torch.tanh(q[:, None] + k[None]) @ w).softmax(-1) @ v


def torch_compiled(r, x):
    call = torch.compile(torch_additive)
    return lambda: call(x.q[0, 0], x.k[0, 0], x.v[0, 0], x.w_v)[None, None]


def torch_sgemm(r, x):
    a, b, c = (torch.ones(2048, 2048) for _ in range(3))
    return lambda: torch.mm(a, b, out=c)


def onnx_session(node, feeds, opset, threads):
    """A session of one node whose inputs are bound once; returns the call and the output."""
    if not onnxruntime:
        raise Unable("not installed")
    types = {np.dtype(np.float32): 1, np.dtype(np.int32): 6, np.dtype(np.int64): 7, np.dtype(bool): 9}
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [value(n, types[a.dtype], a.shape) for n, a in feeds.items()],
                                   [value("out", 1, None)])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[
        onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        binding = session.io_binding()
        for n, a in feeds.items():
            binding.bind_cpu_input(n, a)
        binding.bind_output("out")
        session.run_with_iobinding(binding)
    except Exception as e:
        raise Unable(str(e).strip().splitlines()[-1][:100])
    return lambda: session.run_with_iobinding(binding), lambda: binding.copy_outputs_to_cpu()[0]


def onnx_mha(r, x, threads, wall):
    if r.kv_heads != r.heads:
        raise Unable("has no grouped heads")
    merge = lambda a: np.ascontiguousarray(a.transpose(0, 2, 1, 3)).reshape(r.batch, a.shape[2], -1)
    feeds = {"q": merge(x.q), "k": merge(x.k), "v": merge(x.v)}
    allow = None if r.causal and not r.window else allowed(r, x, range(r.queries))
    if r.lengths is not None:
        feeds["lengths"], allow = x.lengths, None
    elif allow is not None:
        feeds["bias"] = np.where(allow, np.float32(0), np.float32(-1e30))
    elif r.biased:
        feeds["bias"] = x.bias[None]
    names = [n if n in feeds else "" for n in ("q", "k", "v", "", "lengths", "bias")]
    node = onnx.helper.make_node("MultiHeadAttention", names, ["out"], domain="com.microsoft", num_heads=r.heads,
                                 unidirectional=int(r.causal and not r.window))
    call, out = onnx_session(node, feeds, 17, threads)
    shape = (r.batch, r.queries, r.heads, r.dv)
    return timed(call, wall)[0], lambda: out().reshape(shape).transpose(0, 2, 1, 3)


def onnx_attention(r, x, threads, wall):
    feeds = {"q": x.q, "k": x.k, "v": x.v}
    allow = None if r.causal and not r.window else allowed(r, x, range(r.queries))
    if allow is not None:
        feeds["mask"] = np.ascontiguousarray(np.broadcast_to(allow, (len(allow), 1, r.queries, r.keys)))
    elif r.biased:
        feeds["mask"] = x.bias[None]
    node = onnx.helper.make_node("Attention", list(feeds), ["out"], is_causal=int(r.causal and not r.window))
    call, out = onnx_session(node, feeds, 23, threads)
    return timed(call, wall)[0], out


def ggml(r, x, threads, wall):
    """Its codes of 8 bits have a scale for each 32; where the row's have one for all, it reads blocks of the same
    numbers."""
    if not GGML:
        raise Unable("could not be built")
    allow, job, mask = allowed(r, x, range(r.queries)), Job.from_buffer_copy(r.job), None
    out = np.zeros((r.batch, r.queries, r.heads, r.dv), np.float32)
    k, v = (x.narrow["k"], x.narrow["v"]) if r.type else (x.k, x.v)
    if r.type == I8:
        (k, _), (v, _) = q8_0(x.k), q8_0(x.v)
    if allow is not None:
        mask = np.where(allow, np.float16(0), np.float16(-np.inf))
    job.threads = threads
    for name, a in {"q": x.q, "k": k, "v": v, "out": out}.items():
        setattr(job, name, a.ctypes.data)
    if GGML.ggml_start(ctypes.byref(job), None if mask is None else mask.ctypes.data_as(ctypes.c_void_p),
                       0 if mask is None else len(mask)):
        raise Unable("ggml refused the call")
    call, keep = ctypes.cast(GGML.ggml_call, ctypes.c_void_p), (job, k, v, mask)
    def run(count):
        taken = LIB.seconds(call, ctypes.byref(keep[0]), count, wall)
        GGML.ggml_rest()
        return taken
    return run, lambda: out.transpose(0, 2, 1, 3)


CONTESTANTS = {
    "attn.h": attn_typed,
    "attn.h in f32": attn_f32,
    "attn.h on one thread": native("attn_call", "attn_start"),
    "attn.h's dot": native("attn_call", "attn_start", score=0),
    "PyTorch": pytorch(torch_sdpa),
    "PyTorch eager": pytorch(torch_eager),
    "PyTorch compiled": pytorch(torch_compiled),
    "PyTorch's products and attention": pytorch(torch_multi_head),
    "PyTorch bmm": pytorch(lambda r, x: lambda: torch.bmm(x.q, x.k.mT if r.transposed else x.k)),
    "onnxruntime MHA": onnx_mha,
    "onnxruntime Attention": onnx_attention,
    "ggml": ggml,
    "OpenBLAS flash": native("blas_flash"),
    "OpenBLAS full": native("blas_full"),
    "OpenBLAS bmm": native("blas_bmm"),
    "plain C, vectorised": native("plain_loop", loop="libloop_fast.so"),
    "plain C at -O2": native("plain_loop", loop="libloop.so"),
    "read probe": native("read_probe_1"),
    "read probe, 2 streams": native("read_probe_2"),
    "read probe, 4 streams": native("read_probe_4"),
    "peak": native("peak_probe"),
    "sgemm of PyTorch": pytorch(torch_sgemm),
    "sgemm of OpenBLAS": native("blas_sgemm"),
}


# ---- a contestant's process: prepares, then runs as often as it is told
def spread(threads):
    """A core for each of the threads that have worked most so far, whoever's they are."""
    def worked(thread):
        with open(f"/proc/self/task/{thread}/schedstat") as f:
            return int(f.read().split()[0])
    busiest = sorted(map(int, os.listdir("/proc/self/task")), key=worked)[-threads:]
    for thread, core in zip(busiest, sorted(os.sched_getaffinity(0))):
        os.sched_setaffinity(thread, {core})


def errors_of(r, x, run, out, wrong):
    """Mean and maximum, by gradient or of the output."""
    if r.wanted:
        got, kept = out()
        pairs = {f"d_{n}": (got[n], a) for n, a in (x.want or reference_gradients(r, x, kept)).items()}
    else:
        pairs = {"out": (outputs(x, run, out), x.want)}
    errors = {}
    for n, (a, want) in pairs.items():
        difference = np.abs(a - want)
        errors[n] = float(difference.mean()), float(difference.max())
        if not errors[n][1] < wrong * np.abs(want).max():
            raise Unable(f"another result ({n}: error {errors[n][1]:.1e})")
    return errors


def outputs(x, run, out):
    """The rows that are in x.want."""
    if x.more is None:
        return out()[..., x.picks, :]
    rows = []
    for i in range(MORE):  # q is read in place; this process's pages are its own
        x.q[:] = x.more[:, :, i:i + 1]
        run(1)
        rows.append(np.array(out()))
    return np.concatenate(rows, 2)


def memory(*fields):
    """Of this process, in bytes."""
    with open("/proc/self/status") as f:
        found = dict(line.split(":", 1) for line in f)
    return [int(found[n].split()[0]) * 1024 for n in fields]


def contestant(pipe, name, r, x, threads, wall):
    before, = memory("RssAnon")
    if not wall:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    run, out = CONTESTANTS[name](r, x, threads, wall)
    each, errors = run(1), None
    most, files = memory("VmHWM", "RssFile")  # the most since the fork; less the code that was read meanwhile
    taken = max(0, most - files - before)
    if wall:
        spread(threads)
    if each < 0.2:
        each = run(1)
    if name in ("attn.h", "attn.h in f32") or name.startswith(JUDGED):
        errors = errors_of(r, x, run, out, WRONG_OF.get(name, r.wrong) if r.type else r.wrong)
    pipe.send((each, errors, taken))
    while True:
        count = pipe.recv()
        if each < SAMPLE:
            run(1)
        pipe.send(run(count) / count)


class Contest:
    """One row on so many threads: all who can take part, their samples and errors. absent: who cannot, and why; failed:
    what became of those who could have. Whoever does not answer within limit seconds is in hung, and not asked again on
    so many threads."""

    def __init__(self, r, x, threads, samples, budget, limit, hung):
        self.row, self.threads, self.times, self.errors, self.memory = r, threads, {}, {}, {}
        self.absent, self.failed, self.limit, self.hung, self.processes = {}, {}, limit, hung, {}
        ctypes.CDLL(None).malloc_trim(0)  # memory that is free but held would not be seen when it is taken again
        wall = threads > 1
        own = ["attn.h"] + (["attn.h on one thread"] if wall and "attn.h on one thread" in r.bars else [])
        try:
            for name in own + ["peak"] * r.of_peak + r.peers:
                self.enter(name, x, 1 if name == "attn.h on one thread" else threads, wall)
            self.take_samples(samples, budget, wall)
        finally:
            for name in list(self.processes):
                self.leave(name)

    def enter(self, name, x, threads, wall):
        def start(limit):
            if (name, self.threads) in self.hung:
                raise Failed(f"not asked again: {self.hung[name, self.threads]}")
            self.processes[name] = Forked(contestant, name, self.row, x, threads, wall)
            return self.processes[name].hear(limit)
        answer = self.told(name, start)
        if not answer:
            return
        self.times[name], self.errors[name], self.memory[name] = [answer[0]], *answer[1:]
        asked = max(bars[wall] or 1 for bars in self.row.bars.values())
        if name in self.row.peers and answer[0] > FAR * asked * self.times.get("attn.h", answer)[0]:
            self.run_alone(name)

    def told(self, name, ask, *question):
        """The answer, or None: then it is out."""
        try:
            return ask(*question, self.limit)
        except Unable as e:
            self.absent[name] = str(e)
        except Failed as e:
            self.failed[name] = " ".join(str(e).replace("|", "/").split())[:100]  # a cell of a table
            if isinstance(e, Hung):
                self.hung[name, self.threads] = f"{e} in {self.row.name}"
        self.leave(name)
        for figures in self.times, self.errors, self.memory:
            figures.pop(name, None)

    def leave(self, name):
        if name in self.processes:
            self.processes.pop(name).end()

    def run_alone(self, name):
        count, samples = self.count(name), []
        while len(samples) < FEW and name in self.processes:
            samples.append(self.told(name, self.processes[name].ask, count))
        if name in self.processes:
            self.times[name] = samples
            self.leave(name)

    def count(self, name):
        return max(1, round(SAMPLE / self.times[name][0]))

    def take_samples(self, samples, budget, wall):
        counts = {n: self.count(n) for n in self.processes}
        for n in self.processes:
            self.times[n] = []
        end, taken, order = time.monotonic() + budget, 0, list(self.processes)
        while taken < samples and (taken < FEW or time.monotonic() < end):
            for name in order:
                sample = self.told(name, self.processes[name].ask, counts[name])
                if sample is not None:
                    self.times[name].append(sample)
                if wall:
                    time.sleep(PAUSE)  # pools that still spin go to sleep
            taken += 1
            if taken in TOO_SLOW:
                rates, behind = {n: self.rate(n) for n in self.times}, TOO_SLOW[taken]
                keep = {"attn.h", "peak"}.union(*({n for n in group if rates[n] * behind > max(map(rates.get, group))}
                                                  for group in map(self.group, self.row.bars)))
                for name in self.processes.keys() - keep:
                    self.leave(name)
            order = [n for n in order[1:] + order[:1] if n in self.processes]

    def time(self, name):
        return statistics.median(self.times[name])

    def rate(self, name):
        operations = {"sgemm": 2.0 * 2048**3, "peak": LIB.peak_count(self.threads)}
        return operations.get(name.split()[0], self.row.operations) / self.time(name)

    def group(self, prefix):
        return [n for n in self.times if n.startswith(PEERS if prefix == "peers" else prefix) and n != "attn.h"]


# ---- the report
def worst(pairs):
    """The largest of the means and of the maxima of several results."""
    return [max(column) for column in zip(*pairs.values())]


def judge(contest, threads):
    """The row with its bars: it holds when all of them do."""
    r, times, errors = contest.row, contest.times, contest.errors
    row = {"row": r.name, "threads": threads, "bars": []}
    if "attn.h" in times and "peak" in times:
        row.update(of_peak=contest.rate("attn.h") / contest.rate("peak"))
    if "attn.h" in times:
        row.update(seconds=contest.time("attn.h"), samples=len(times["attn.h"]), errors=worst(errors["attn.h"]),
                   others={n: contest.time(n) / contest.time("attn.h") for n in times if n != "attn.h"},
                   their_errors={n: worst(e) for n, e in errors.items() if e and n != "attn.h"})
        if r.wanted:
            row.update(gradient_errors={n: e for n, e in errors.items() if e})
        if r.kind == "t":
            row.update(memory=contest.memory)
    for prefix, bars in r.bars.items():
        if bars[threads > 1] is None:
            continue
        bar = {"bar": bars[threads > 1], "against": prefix, "ratio": None, "short": ["absent"]}
        row["bars"].append(bar)
        group = contest.group(prefix)
        if "attn.h" not in times or not group:
            continue
        best = max(group, key=contest.rate)
        bar.update(against=best, ratio=contest.rate("attn.h") / contest.rate(best))
        bar["short"] = ["time"] * (bar["ratio"] < bar["bar"])
        if "peak" in times and best.startswith(JUDGED) and bar["short"]:
            bar["short"].append(f"(takes {bar['bar'] * contest.rate(best) / contest.rate('peak'):.0%} of peak)")
        if best.startswith(JUDGED):
            # ggml's result is f32; of 16-bit arrays ours would have the bits of the call with floats there
            ours = errors.get("attn.h in f32") if best == "ggml" and r.type in (F16, BF16) else errors["attn.h"]
            ratios = {n: [a / b for a, b in zip(e, errors[best][n])] for n, e in (ours or errors["attn.h"]).items()}
            mean, largest = worst(ratios)
            bar.update(mean_error=mean, max_error=largest)
            bar["short"] += ["mean"] * (mean > 1) + ["max"] * (largest > 1.5)
    row["holds"] = not any(bar["short"] for bar in row["bars"])
    row["failed"] = contest.failed
    return row


def show(row, style):
    """A line per bar."""
    time = f"{row['seconds'] * 1e3:.4g} ms" if "seconds" in row else "-"
    first = [row["row"], str(row["threads"]), time, f"{row['of_peak']:.0%}" if "of_peak" in row else "-"]
    failed = "".join(f" ({name}: {what})" for name, what in row["failed"].items())
    number = lambda x: "-" if x is None else f"{x:.2f}"
    for bar in row["bars"]:
        cells = first + [number(bar["ratio"]), f"{bar['bar']:.3g}", bar["against"], number(bar.get("mean_error")),
                         number(bar.get("max_error")),
                         (" ".join(["SHORT:"] + bar["short"]) if bar["short"] else "holds") + failed]
        if style == "markdown":
            print("| " + " | ".join(cells) + " |", flush=True)
        else:
            print("{:40} {:1} {:>8} {:>4} {:>6} {:>5} {:22} {:>4} {:>4} {}".format(*cells), flush=True)
        first, failed = ["", "", "", ""], ""


def machine(commit):
    versions = [f"NumPy {np.__version__}", f"PyTorch {torch.__version__}" if torch else "no PyTorch",
                f"onnxruntime {onnxruntime.__version__}" if onnxruntime else "no onnxruntime",
                GGML.ggml_name().decode() if GGML else "no ggml"]
    blas = " ".join(LIB.blas_name().decode().split()[:2])
    isa = ["", "scalar", "AVX2", "AVX-512", "NEON", "portable", "relaxed"][LIB.attn_best_isa()]
    here = f"{LIB.machine_name().decode()}, {isa}, {os.cpu_count()} cores"
    return f"{here}; attn.h {commit}, {', '.join(versions)}, {blas}"


# ---- what a call from Python costs, beside torch's own: microseconds on one thread, the least of many
CALL_SHAPES = ([1, 8, 1, 64], [1, 8, 64, 64])
CALL_BOUNDS = {"attn.attention": 8, "attn.sdpa": 12}  # microseconds beside what the library takes, without gradients


def call_costs():
    """Rows of what is called, on arrays of what shape, how long it took, and of that without the library's own time."""
    sys.path.insert(0, os.path.join(BUILD, os.pardir, os.pardir, "examples", "python"))
    import attn

    def least(call, calls=200, times=20):
        call()
        best = math.inf
        for _ in range(times):
            start = time.thread_time()
            for _ in range(calls):
                call()
            best = min(best, (time.thread_time() - start) / calls * 1e6)
        return best

    for shape in CALL_SHAPES:
        numbers = [np.random.default_rng(1).standard_normal(shape).astype("float32") for _ in range(4)]
        d, out = attn._Descriptor(dict(zip("qkv", numbers))), {"out": numbers[3]}
        d.add_results(out)
        alone = least(lambda: attn.lib.attn_forward(ctypes.byref(d.c), None))
        kinds = {"NumPy": numbers}
        if torch:
            torch.set_num_threads(1)
            kinds["torch"] = [torch.from_numpy(x) for x in numbers]
            q, k, v, _ = kinds["torch"]
            own = F.scaled_dot_product_attention
            yield "torch's scaled_dot_product_attention", shape, least(lambda: own(q, k, v)), None
        for kind, (q, k, v, out) in kinds.items():
            calls = {"attn.attention": lambda: attn.attention(q, k, v, out=out, threads=1),
                     "attn.sdpa": lambda: attn.sdpa(q, k, v, threads=1)}
            for name, call in calls.items():
                taken = least(call)
                # of a larger call so small a difference drowns in what the caches do
                yield f"{name} from {kind}", shape, taken, (taken - alone, CALL_BOUNDS[name]) if alone < 20 else None


def show_call_costs(style):
    """Whether all are within their bounds."""
    within = True
    for name, shape, taken, more in call_costs():
        held = more is None or more[0] <= more[1]
        within = within and held
        if style == "json":
            print(json.dumps({"call": name, "shape": shape, "us": taken, "beside_library": more and more[0],
                              "bar": more and more[1], "holds": held}), flush=True)
            continue
        said = f"a call of {name}, {shape}: {taken:.1f} us"
        said += f", {more[0]:.1f} of them beside the library's (at most {more[1]}): " if more else ""
        print(said + ("" if more is None else "holds" if held else "SHORT"), flush=True)
    return within


LEGEND = """What `make bench-peers ARGS="{}"` printed. Of peak: multiply-adds done over those that a probe made beside
the row. Ratio: the peer's time over ours, medians of one run. Errors: ours over that peer's, against float64. The read
probe is the best of one, two and four streams. "Stored as": arrays of 16 bits, or keys and values of 8, beside
PyTorch's with 16, ggml's, and our own floats; "and its products": with ATTN_PRECISION_FAST. ggml's queries and results
are f32, and of 8 bits it reads blocks of 32 with a scale each (q8_0). A row holds when every ratio reaches its bar, our
mean error is at most the peer's and our largest at most 1.5 times its."""


def arguments(o):
    """As they were given, but for the commit."""
    given = sys.argv[1:]
    return " ".join(a for i, a in enumerate(given) if "--commit" not in given[max(0, i - 1):i + 1])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", default="", help="only rows whose name contains this")
    options.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    options.add_argument("--samples", type=int, default=15)
    options.add_argument("--budget", type=float, default=4, help="seconds of samples per row and number of threads")
    options.add_argument("--limit", type=float, default=300, help="seconds in which a peer has to answer")
    options.add_argument("--markdown", dest="style", action="store_const", const="markdown")
    options.add_argument("--json", dest="style", action="store_const", const="json")
    options.add_argument("--commit", default="unknown")
    o = options.parse_args()
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the processes are ended then, too
    title = machine(o.commit)
    heads = "work, f32 where nothing is said|threads|attn.h|of peak|ratio|bar|against|mean error|max error|".split("|")
    if o.style == "json":
        print(json.dumps({"machine": title}))
    elif o.style == "markdown":
        print(f"# attn.h beside its peers: {title.split(';')[0]}\n\n{textwrap.fill(LEGEND.format(arguments(o)), 120)}"
              f"\n\n{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    else:
        print(f"{title}\nwork, threads, time of attn.h, its share of the multiply-adds that the machine can make, how "
              "much faster than\nthe best of them, the bar, who that is, mean and maximum of our error against float64 "
              "over theirs")
    rows, absent, hung = [], {}, {}
    for r in table():
        if o.rows not in r.name:
            continue
        x = inputs(r)
        for threads in o.threads:
            contest = Contest(r, x, threads, o.samples, o.budget, o.limit, hung)
            row = judge(contest, threads)
            if not row["bars"]:
                continue
            rows.append(row)
            for name, why in contest.absent.items():
                absent.setdefault((name, why), []).append(r.name)
            if o.style == "json":
                print(json.dumps(row), flush=True)
            else:
                show(row, o.style)
        del x  # the next row's inputs need its room
    held = sum(row["holds"] for row in rows)
    behind = [bar for row in rows for bar in row["bars"] if bar["bar"] >= 1 and not (bar["ratio"] or 0) >= 1]
    if o.style != "json":
        for (name, why), names in absent.items():
            print(f"absent: {name}: {why}: {', '.join(dict.fromkeys(names))}")
        for row in rows:
            if "memory" in row:
                sizes = ", ".join(f"{n} {bytes / 1e6:.2f} MB" for n, bytes in row["memory"].items())
                print(f"memory beyond the inputs, at its peak: {row['row']}, threads {row['threads']}: {sizes}")
    costs = o.rows in "call" and not show_call_costs(o.style)
    print(f"{held} of {len(rows)} rows hold")
    return 1 if held < len(rows) - 3 or behind or costs else 0


if __name__ == "__main__":
    sys.exit(main())
