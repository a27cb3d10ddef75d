"""Tests of examples/python/attn.py against NumPy in float64, and against PyTorch where it is installed. Each function
test_NAME is a test; `python3 tests/bindings.py` runs all, with names those. tests/bindings.sh calls it.

The bounds are those that attn.h states: 4e-6 V (1 + S) for a result, see ATTN_SCORE_LIST; 1e-6 (3e-6 for parameters)
times the sum of absolute terms for a gradient, which for these sizes is below TERMS times the largest of them."""
import base64
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback
import warnings
import xml.etree.ElementTree
import zlib

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
BINDING = os.path.join(HERE, os.pardir, "examples", "python")
HEADER = os.path.join(HERE, os.pardir, "attn.h")
sys.path.insert(0, BINDING)
import attn

try:
    import torch
except ImportError:
    torch = None

RNG = np.random.default_rng(20)


class Skipped(Exception):
    pass


def draw(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def near(what, got, want, bound):
    got, want = (np.asarray(x.detach() if hasattr(x, "detach") else x, "float64") for x in (got, want))
    assert got.shape == want.shape, f"{what}: shape {got.shape}, not {want.shape}"
    assert np.array_equal(np.isnan(got), np.isnan(want)), f"{what}: NaN at other places"
    infinite, finite = np.isinf(want), np.isfinite(want)
    assert np.array_equal(got[infinite], want[infinite]), f"{what}: infinities at other places"
    error = np.abs(got[finite] - want[finite]).max(initial=0)
    assert error <= bound, f"{what}: off by {error:.3g}, at most {bound:.3g}"


def same(what, got, want):
    assert got.dtype == want.dtype and got.shape == want.shape, f"{what}: {got.dtype} {got.shape}"
    assert got.tobytes() == want.tobytes(), f"{what}: other bits"


def raises(kind, call, *texts):
    try:
        call()
    except kind as error:
        for text in texts:
            assert text in str(error), f"{text!r} is not in {str(error)!r}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def softmax(s, sink=None):
    """Softmax of the last axis in float64 and its logarithmic mass; a row of -inf has weights 0."""
    top = s.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    mass = np.exp(s - top)
    total = mass.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink.astype("float64")[:, None, None] - top)
    with np.errstate(divide="ignore"):
        return mass / np.where(total == 0, 1, total), (np.log(total) + top)[..., 0]


def heads(x, count):
    """Key heads repeated to as many as there are query heads."""
    return np.repeat(x.astype("float64"), count // x.shape[1], axis=1)


def dots(q, k, scale=None):
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    return scale * np.einsum("bhid,bhjd->bhij", q.astype("float64"), heads(k, q.shape[1]))


def distances(q, k):
    """|q - k| of all pairs."""
    return np.sqrt(((q.astype("float64")[:, :, :, None] - heads(k, q.shape[1])[:, :, None]) ** 2).sum(-1))


def attend(s, v, **options):
    w, lse = softmax(s, **options)
    return w @ heads(v, s.shape[1]), w, lse


def check(r, s, v, **options):
    """Results against those of the scores s, to the bound that attn.h states."""
    out, w, lse = attend(s, v, **options)
    finite = np.abs(s[np.isfinite(s)]).max(initial=0)
    near("out", r.out, out, 4e-6 * np.abs(v).max(initial=0) * (1 + finite))
    near("weights", r.weights, w, 4e-6 * (1 + finite))
    near("lse", r.lse, lse, 4e-6 * (1 + finite) + 1e-6)


WANTED = dict(weights=True, lse=True)


def test_scores():
    q, k, v = draw(2, 4, 5, 8), draw(2, 2, 7, 8), draw(2, 2, 7, 3)
    u = distances(q, k) / 3
    with np.errstate(divide="ignore"):
        kernels = {"gaussian": -u * u / 2, "boxcar": np.log((u <= 1) * 1.0),
                   "epanechnikov": np.log(np.maximum(0, 1 - u * u)), "triangular": np.log(np.maximum(0, 1 - u))}
    for name, s in kernels.items():
        r = attn.forward(q, k, v, score=name, sigma=3, **WANTED)
        near(name, r.weights, softmax(s)[0], 2e-5)
        near(name, r.out, attend(s, v)[0], 5e-5)
    check(attn.forward(q, k, v, **WANTED), dots(q, k), v)
    check(attn.forward(q, k, v, scale=0.25, **WANTED), dots(q, k, 0.25), v)
    check(attn.forward(q, k, v, scale=0, **WANTED), dots(q, k, 0), v)
    check(attn.forward(q, k, v, score="dot", **WANTED), dots(q, k, 1), v)
    check(attn.forward(q, k, v, score="constant", **WANTED), dots(q, k, 0), v)
    norms = np.linalg.norm(q, axis=-1)[..., None] * np.linalg.norm(heads(k, 4), axis=-1)[:, :, None]
    check(attn.forward(q, k, v, score="cosine", scale=2, **WANTED), dots(q, k, 2) / norms, v)
    m = draw(8, 6)
    k6 = draw(2, 2, 7, 6)
    s = np.einsum("bhic,cd,bhjd->bhij", q.astype("float64"), m, heads(k6, 4))
    check(attn.forward(q, k6, v, score="bilinear", bilinear=m, **WANTED), s, v)
    w_q, w_k, w_v, b = draw(10, 8), draw(10, 6), draw(10), draw(10)
    inside = (q.astype("float64") @ w_q.T)[:, :, :, None] + (heads(k6, 4) @ w_k.T)[:, :, None] + b
    r = attn.forward(q, k6, v, score="additive", w_q=w_q, w_k=w_k, w_v=w_v, hidden_bias=b, **WANTED)
    out, w, _ = attend(np.tanh(inside) @ w_v, v)
    terms = 1 + np.abs(w_v).sum() * (2 + np.abs(inside).max())
    near("additive", r.out, out, 4e-6 * np.abs(v).max() * terms)
    near("additive", r.weights, w, 4e-6 * terms)
    given = draw(2, 4, 5, 7)
    check(attn.forward(None, None, v, score="given", given_scores=given, **WANTED), given.astype("float64"), v)
    near("raw scores", attn.scores(q, k), dots(q, k), 4e-6 * 10)
    near("weights alone", attn.weights(q, k), softmax(dots(q, k))[0], 4e-6 * 10)
    near("output alone", attn.attention(q, k, v), attend(dots(q, k), v)[0], 4e-6 * 30)


def test_options():
    q, k, v = draw(2, 4, 5, 8), draw(2, 2, 7, 8), draw(2, 2, 7, 3)
    s, i, j = dots(q, k), np.arange(5)[:, None], np.arange(7)
    only = lambda allowed, s=s: np.where(allowed, s, -np.inf)
    check(attn.forward(q, k, v, causal=True, align="bottom_right", **WANTED), only(j <= i + 2), v)
    check(attn.forward(q, k, v, causal=True, align="top_left", **WANTED), only(j <= i), v)
    check(attn.forward(q, k, v, align="positions", positions=[3, 0], causal=True, **WANTED),
          only(j <= i + np.array([3, 0]).reshape(2, 1, 1, 1)), v)
    check(attn.forward(q, k, v, window=(1, None), align="top_left", **WANTED), only(j >= i - 1), v)
    check(attn.forward(q, k, v, window=(1, 2), align="top_left", **WANTED), only((j >= i - 1) & (j <= i + 2)), v)
    lengths = np.array([0, 4], "int32")
    r = attn.forward(q, k, v, key_lengths=lengths, **WANTED)
    check(r, only(j < lengths.reshape(2, 1, 1, 1)), v)
    assert not r.out[0].any() and np.isneginf(r.lse[0]).all(), "a row without a key"
    assert np.isnan(attn.attention(q, k, v, key_lengths=lengths, empty="nan")[0]).all(), "empty='nan'"
    allowed = RNG.random((4, 5, 7)) < 0.6
    check(attn.forward(q, k, v, mask=allowed, **WANTED), only(allowed), v)
    bias, slopes, sink = draw(5, 7), np.float32([0.5, 0.25, 0.1, 0]), draw(4)
    check(attn.forward(q, k, v, bias=bias, **WANTED), s + bias, v)
    check(attn.forward(q, k, v, alibi=slopes, align="top_left", **WANTED),
          s - slopes[:, None, None] * np.abs(i - j), v)
    check(attn.forward(q, k, v, softcap=0.5, **WANTED), 0.5 * np.tanh(s / 0.5), v)
    check(attn.forward(q, k, v, sink=sink, **WANTED), s, v, sink=sink)
    sigmas = np.float32([1, 2, 3, 4])
    near("sigma per head", attn.weights(q, k, score="gaussian", sigma=sigmas),
         softmax(-(distances(q, k) / sigmas[:, None, None]) ** 2 / 2)[0], 1e-4)
    kept = attn.dropout_mask((2, 4, 5, 7), 0.5, seed=9)
    assert 0.3 < kept.mean() < 0.7, "dropout_mask"
    w = attn.weights(q, k, dropout=0.5, seed=9, weights_after_dropout=True)
    near("dropout", w, softmax(s)[0] * kept * 2, 1e-4)
    assert np.array_equal(attn.mask((2, 4, 5, 7), causal=True, align="top_left", mask=allowed),
                          np.broadcast_to((j <= i) & allowed, (2, 4, 5, 7))), "mask"


def test_shapes():
    """With fewer axes: the same bits as with all four."""
    q, k, v = draw(3, 1, 5, 8), draw(3, 1, 7, 8), draw(3, 1, 7, 2)
    wanted = dict(WANTED, stats=True)
    allowed, bias = RNG.random((3, 5, 7)) < 0.7, draw(3, 5, 7)
    full = attn.forward(q, k, v, mask=allowed[:, None], bias=bias[:, None], key_lengths=[7, 5, 6], **wanted)
    flat = attn.forward(q[:, 0], k[:, 0], v[:, 0], mask=allowed, bias=bias, key_lengths=[7, 5, 6], **wanted)
    one = attn.forward(q[1, 0], k[1, 0], v[1, 0], mask=allowed[1], bias=bias[1], key_lengths=5, **wanted)
    for name in ("out", "weights", "lse", "stats"):
        same(name, getattr(flat, name), getattr(full, name)[:, 0])
        same(name, getattr(one, name), getattr(full, name)[1, 0])
    d_out = draw(3, 1, 5, 2)
    g4 = attn.backward(full, d_out, d_bias=True)
    g3 = attn.backward(flat, d_out[:, 0], d_bias=True)
    g2 = attn.backward(one, d_out[1, 0], d_bias=True)
    for name in ("dq", "dk", "dv", "d_bias"):
        same(name, getattr(g3, name), getattr(g4, name)[:, 0])
        same(name, getattr(g2, name), getattr(g4, name)[1, 0])
    assert np.array_equal(attn.mask((3, 5, 7), mask=allowed), allowed), "a mask of three axes"
    assert attn.attention(q[:, :, :0], k, v).shape == (3, 1, 0, 2), "no query"
    assert not attn.attention(q, k[:, :, :0], v[:, :, :0]).any(), "no key"
    near("lists", attn.attention([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0], [3.0]], scale=0), [[2.0]], 1e-6)


def packed():
    """Three sequences of 3, 4 and 3 rows, and two rows that belong to none of them."""
    return ([draw(1, 2, 12, 4) for _ in range(3)], np.array([0, 3, 7]), np.array([3, 4, 3], "int32"))


def poisoned(call):
    """What the call gives where every array that numpy.empty or torch makes without filling it holds NaN."""
    places, nan = [(np, "empty"), (np, "empty_like")], np.nan
    places += [(torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")] if torch else []
    olds = [getattr(*place) for place in places]

    def filled(old):
        def make(*a, **b):
            x = old(*a, **b)
            floats = x.is_floating_point() if hasattr(x, "data_ptr") else x.dtype.kind == "f"
            x[...] = nan if floats else 1
            return x
        return make
    for place, old in zip(places, olds):
        setattr(*place, filled(old))
    try:
        return call()
    finally:
        for place, old in zip(places, olds):
            setattr(*place, old)


def test_unwritten():
    """Rows that belong to no sequence hold zeros, minus infinity for their mass, and no gradient comes from them."""
    (q, k, v), starts, lengths = packed()
    where = dict(query_starts=starts, key_starts=starts, query_lengths=lengths, key_lengths=lengths)
    results = ("out", "lse", "stats", "carry_out")
    for convert in (np.asarray, *([torch.from_numpy] if torch else [])):
        a = [convert(x) for x in (q, k, v)]
        r = poisoned(lambda: attn.forward(*a, **where, lse=True, stats=True))
        d_out = draw(1, 2, 12, 4)
        g = poisoned(lambda: attn.backward(r, convert(d_out)))
        for n, count in zip(starts, lengths):
            rows = slice(n, n + count)
            part = [x[:, :, rows] for x in (q, k, v, d_out)]
            near("out", r.out[:, :, rows], attend(dots(*part[:2]), part[2])[0], 4e-6 * 30)
            for name, want in zip(("dq", "dk", "dv"), gradients(*part, dots(*part[:2]))):
                near(name, getattr(g, name)[:, :, rows], want, 1e-6 * TERMS)
        for name, x in (("out", r.out), ("dq", g.dq), ("dk", g.dk), ("dv", g.dv)):
            assert (x[:, :, 10:] == 0).all(), f"{name} of rows of no sequence: {x[:, :, 10:]}"
        assert (r.lse[:, :, 10:] == -np.inf).all() and (r.stats[:, :, 10:, 0] == -np.inf).all()
        assert (r.stats[:, :, 10:, 1] == 0).all()
        carry = poisoned(lambda: attn.forward(*a, **where, out=False, carry_out=True)).carry_out[:, :, 10:]
        assert (carry[..., 4] == -np.inf).all() and not carry[..., [0, 1, 2, 3, 5]].any(), carry
        assert not poisoned(lambda: attn.attention(*a, **where))[:, :, 10:].any()
        assert not poisoned(lambda: attn.sdpa(*a, **where))[:, :, 10:].any()
    if torch is None:
        return
    layer = torch.nn.Linear(4, 12)      # its gradients are those of the rows that the loss has
    x = torch.from_numpy(draw(1, 2, 12, 4))
    poisoned(lambda: attn.sdpa(*layer(x).chunk(3, -1), **where)[:, :, :10].sum().backward())
    got = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    wide = layer.double()
    parts = [torch.nn.functional.softmax(0.5 * a @ b.mT, -1) @ c for a, b, c in
             (wide(x[:, :, n:n + m].double()).chunk(3, -1) for n, m in zip(starts, lengths))]
    sum(part.sum() for part in parts).backward()
    for name, a, p in zip(("weight", "bias"), got, layer.parameters()):
        near("gradient of a layer's " + name, a, p.grad, 1e-6 * TERMS)


def test_recorded():
    """What options say where forward is called counts for backward too, whatever becomes of their arrays."""
    def arrays(kind):
        (q, k, v), starts, lengths = packed()
        pool = draw(6, 2, 4, 4)
        pages = np.array([[3, 1], [0, 2], [5, 4]], "int32")
        allowed = np.ascontiguousarray(RNG.random((3, 1, 5, 8)) < 0.7)
        fresh = draw(3, 2, 5, 4), draw(3, 2, 8, 4), draw(3, 2, 8, 4)
        several = np.array([4, 5, 6])
        return [kind(x) for x in fresh], {
            "key_lengths": dict(key_lengths=kind(several)), "query_lengths": dict(query_lengths=kind(several - 2)),
            "positions": dict(positions=kind(several), align="positions", causal=True),
            "mask": dict(mask=kind(allowed)), "a broadcast mask": dict(mask=kind(allowed[:1, :, :1]))}, (
            [kind(x) for x in (q, k, v)], dict(zip(
                ("query_starts", "key_starts", "query_lengths", "key_lengths"), map(kind, (starts, starts, lengths,
                                                                                          lengths + 0)))))
    for kind in (np.asarray, *([torch.from_numpy] if torch else [])):
        state = RNG.bit_generator.state
        qkv, cases, many = arrays(kind)
        cases = {name: (qkv, options) for name, options in cases.items()}
        cases["starts"] = many
        for name, (a, options) in cases.items():
            d_out = kind(draw(*a[0].shape[:3], a[2].shape[3]))
            want = attn.backward(attn.forward(*a, **options), d_out)
            r = attn.forward(*a, **options)
            for x in options.values():
                if hasattr(x, "shape"):
                    x[...] = ~x if "ool" in str(x.dtype) else x - 1
            got = attn.backward(r, d_out)
            for which in ("dq", "dk", "dv"):
                near(f"{name}: {which}", getattr(got, which), getattr(want, which), 0)
        RNG.bit_generator.state = state
    view = np.broadcast_to(np.array([True, False]), (3, 1, 1000, 2))
    copy = attn._copy(view)
    assert np.array_equal(copy, view) and copy.strides[2] == 0, "what is broadcast is copied once"
    if torch is None:
        return
    q, k, v = tensor(1, 2, 3, 8), tensor(1, 2, 4, 8), tensor(1, 2, 4, 8)
    for name, change in (("k", k), ("out", None), ("sink", None)):
        options = dict(sink=tensor(2)) if name == "sink" else {}
        r = attn.forward(q, k, v, **options)
        change = k if name == "k" else r.out if name == "out" else options["sink"]
        change.add_(1)
        raises(RuntimeError, lambda: attn.backward(r, q), f"{name} has been changed since the forward call")
    r = attn.forward(q, k, v, weights=True, lse=True)
    want = attn.backward(r, q).dq
    r.weights.zero_(), r.lse.zero_()
    assert attn.backward(r, q).dq.equal(want), "what backward does not read may change"
    lengths = np.array([2])
    leaf = q.clone().requires_grad_()
    want, = torch.autograd.grad(attn.sdpa(leaf, k, v, key_lengths=lengths.copy()).sum(), leaf)
    out = attn.sdpa(leaf, k, v, key_lengths=lengths)
    lengths += 2
    assert torch.autograd.grad(out.sum(), leaf)[0].equal(want), "sdpa with lengths of NumPy's"


def test_strides():
    """Views of larger arrays, turned, reversed and broadcast: the same bits as copies; results go where they belong."""
    q, k, v = draw(2, 5, 4, 8).transpose(0, 2, 1, 3), draw(2, 4, 8, 7).transpose(0, 1, 3, 2)[:, :, ::-1], draw(7, 6)
    v = np.broadcast_to(v[::-1, ::2], (2, 4, 7, 3))
    room = np.full((2, 9, 4, 3), 7, "float32")
    out = room.transpose(0, 2, 1, 3)[:, :, ::2][:, :, ::-1]
    copies = [np.ascontiguousarray(x) for x in (q, k, v)]
    want = attn.forward(*copies, weights=True)
    r = attn.forward(q, k, v, out=out, weights=True)
    assert r.out is out, "the array that was given"
    same("out", np.ascontiguousarray(out), want.out)
    same("weights", r.weights, want.weights)
    assert (room[:, 1::2] == 7).all(), "what lies between the rows of the output"
    d_out = draw(2, 3, 4, 5).transpose(0, 2, 3, 1)
    got, copied = attn.backward(r, d_out), attn.backward(want, np.ascontiguousarray(d_out))
    for name in ("dq", "dk", "dv"):
        same(name, getattr(got, name), getattr(copied, name))


def rounded(x, kind):
    """x rounded to float16, or to bfloat16 as bits."""
    if kind == "float16":
        return x.astype("float16")
    bits = x.view("uint32").astype("uint64")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")


def widened(x):
    return (x.astype("uint32") << 16).view("float32") if x.dtype == np.uint16 else x.astype("float32")


def test_types():
    """16 bits: the bits of the same call with floats, each result rounded once. int8: codes times scales."""
    arrays = draw(2, 4, 5, 8), draw(2, 2, 7, 8), draw(2, 2, 7, 3)
    for kind in ("float16", "bfloat16"):
        short = [rounded(x, kind) for x in arrays]
        floats = [widened(x) for x in short]
        r, want = attn.forward(*short, **WANTED), attn.forward(*floats, **WANTED)
        same(kind + " out", r.out, rounded(want.out, kind))
        same(kind + " weights", r.weights, rounded(want.weights, kind))
        same(kind + " lse", r.lse, want.lse)
        same(kind, attn.convert(arrays[0], kind), short[0])
        same(kind, attn.convert(short[0], "float32"), floats[0])
        try:
            import ml_dtypes
        except ImportError:
            continue
        if kind == "bfloat16":
            typed = attn.attention(*[x.view(ml_dtypes.bfloat16) for x in short])
            assert typed.dtype == ml_dtypes.bfloat16, "bfloat16 of ml_dtypes"
            same("ml_dtypes", typed.view("uint16"), r.out)
    q, k, v = draw(2, 4, 5, 64), draw(2, 2, 7, 64), draw(2, 2, 7, 64)
    for block in (None, 32):
        (kc, ks), (vc, vs) = attn.quantize(k, block), attn.quantize(v, block)
        wide = [np.repeat(s, 64 // s.shape[-1], -1) * c.astype("float32") for c, s in ((kc, ks), (vc, vs))]
        assert np.abs(wide[0] - k).max() <= ks.max() * 0.51, "codes are off by at most half a step"
        same("int8", attn.attention(q, kc, vc, k_scale=ks, v_scale=vs), attn.attention(q, *wide))


def gradients(q, k, v, d_out, s):
    """Of sum(out * d_out), for scaled dot product attention with the scores s: by q, k, v and s, in float64."""
    w, _ = softmax(s)
    d_w = d_out.astype("float64") @ np.swapaxes(v, -1, -2)
    d_s = w * (d_w - (w * d_w).sum(-1, keepdims=True))
    scale = 1 / np.sqrt(q.shape[-1])
    return (scale * d_s @ k.astype("float64"), scale * np.swapaxes(d_s, -1, -2) @ q.astype("float64"),
            np.swapaxes(w, -1, -2) @ d_out.astype("float64"), d_s)


TERMS = 200     # what the sums of absolute terms below stay under


def test_rope():
    x, size = draw(2, 3, 7, 12), 8
    for options in ({}, {"scaling": "linear", "factor": 2}, {"base": 5e5, "first_position": 3}):
        cosines, sines = attn.rope_table(20, size, **options)
        first = options.get("first_position", 0)
        frequency = (options.get("base") or 1e4) ** (-np.arange(size // 2) * 2 / size) / options.get("factor", 1)
        angle = (np.arange(20) + first)[:, None] * frequency
        near("cosines", cosines, np.cos(angle), 1e-7)
        near("sines", sines, np.sin(angle), 1e-7)
    for positions in (None, np.array([4, 9], "int32"), np.arange(14).reshape(2, 7)):
        rows = np.arange(7) if positions is None else positions
        rows = rows[:, None] + np.arange(7) if rows.shape == (2,) else np.broadcast_to(rows, (2, 7))
        c, s = (t[rows][:, None].astype("float64") for t in (cosines, sines))
        for interleaved in (False, True):
            pairs = (slice(0, 8, 2), slice(1, 8, 2)) if interleaved else (slice(0, 4), slice(4, 8))
            a, b = (x[..., p].astype("float64") for p in pairs)
            want = x.astype("float64")
            want[..., pairs[0]], want[..., pairs[1]] = a * c - b * s, b * c + a * s
            how = dict(positions=positions, interleaved=interleaved)
            got = attn.rope(x, cosines, sines, **how)
            near("rope", got, want, 2e-6)
            near("rope, back", attn.rope(got, cosines, sines, inverse=True, **how), x, 2e-6)
            there = x.copy()
            attn.rope(there, cosines, sines, out=there, **how)
            same("rope, in place", there, got)
    error = raises(attn.Error, lambda: attn.rope(x, cosines, sines, positions=np.array([4, 14])), "at [1]")
    assert error.place == (1,) and error.field == "positions", error.place
    raises(attn.Error, lambda: attn.rope_table(4, 8, factor=2), "factor")
    raises(TypeError, lambda: attn.rope_table(4, 8, faktor=2), "faktor")
    for each, linear in zip(attn.rope_table(9, 8, factors=[2] * 4), attn.rope_table(9, 8, scaling="linear", factor=2)):
        same("factors", each, linear)
    same("slopes of ALiBi", attn.alibi_slopes(6), np.array([.25, .0625, .015625, .00390625, .5, .125], "float32"))
    full = attn.rope(x, cosines, sines, positions=[4, 9])
    same("without heads", attn.rope(x[:, 1], cosines, sines, positions=[4, 9]), full[:, 1])
    same("of one sequence", attn.rope(x[1, 1], cosines, sines, positions=9), full[1, 1])
    same("of one sequence, by row", attn.rope(x[1, 1], cosines, sines, positions=[list(range(9, 16))]), full[1, 1])
    there = x[:, 1].copy()
    assert attn.rope(there, cosines, sines, positions=[4, 9], out=there) is there
    same("without heads, in place", there, full[:, 1])


def test_append():
    offsets = np.array([0, 3, 3, 8])
    lengths = attn.lengths_of(offsets)
    assert lengths.tolist() == [3, 0, 5] and lengths.dtype == np.int32
    fresh, cache = draw(1, 2, 8, 33), np.zeros((3, 2, 9, 33), "float16")
    held = np.array([0, 2, 4])
    attn.append(fresh, cache, held, query_lengths=lengths, query_starts=offsets[:3])
    want = np.zeros_like(cache)
    for b in range(3):
        want[b, :, held[b]:held[b] + lengths[b]] = fresh[0, :, offsets[b]:offsets[b + 1]]
    same("append", cache, want)
    pool, scale = np.zeros((6, 2, 4, 33), "int8"), np.zeros((6, 2, 4, 2), "float32")
    pages = np.array([[3, 1, 0], [2, 2, 2], [5, 4, 0]], "int32")
    attn.append(fresh, pool, held, query_lengths=lengths, query_starts=offsets[:3], page_table=pages, k_scale=scale)
    codes, scales = attn.quantize(fresh, 32)
    for b in range(3):
        for i in range(lengths[b]):
            at = pages[b, (held[b] + i) // 4], slice(None), (held[b] + i) % 4
            same("codes", pool[at], codes[0, :, offsets[b] + i])
            same("scales", scale[at], scales[0, :, offsets[b] + i])
    raises(attn.Error, lambda: attn.append(fresh, cache, held + 9, query_starts=offsets[:3]), "lengths")
    flat, one = np.zeros((3, 9, 33), "float32"), np.zeros((9, 33), "float32")
    attn.append(np.ascontiguousarray(fresh[0, 0, :6].reshape(3, 2, 33)), flat, held)
    attn.append(fresh[0, 0, 4:6], one, 4)
    same("without heads, of one sequence", one, flat[2])
    assert np.array_equal(one[4:6], fresh[0, 0, 4:6]) and not one[:4].any() and not one[6:].any()
    raises(TypeError, lambda: attn.append(fresh, cache.tolist(), held), "cache: an array is needed, not [[[[")
    raises(TypeError, lambda: attn.append(codes, pool, held, k_scale=[1.0]), "k_scale: an array is needed, not [1.0], ")
    raises(attn.Error, lambda: attn.lengths_of(np.array([3, 1])), "descend")


def test_gradients():
    q, k, v, d_out, bias = draw(2, 3, 5, 8), draw(2, 3, 7, 8), draw(2, 3, 7, 4), draw(2, 3, 5, 4), draw(3, 1, 7)
    allowed = np.arange(7) <= np.arange(5)[:, None] + 2
    raw = dots(q, k)
    want = gradients(q, k, v, d_out, np.where(allowed, raw + bias, -np.inf))
    options = dict(causal=True, align="bottom_right", bias=bias)
    r = attn.forward(q, k, v, stats=True, **options)
    g = attn.backward(r, d_out, d_bias=True, d_scale=True)
    for name, x in zip(("dq", "dk", "dv"), want):
        near(name, getattr(g, name), x, 1e-6 * TERMS)
    near("d_bias", g.d_bias, want[3].sum((0, 2))[:, None], 3e-6 * TERMS)
    near("d_scale", g.d_scale, [(want[3] * raw).sum() * np.sqrt(8)], 3e-6 * TERMS * 8)
    again = attn.backward(attn.forward(q, k, v, **options), d_out)
    same("without stats", again.dq, g.dq)
    start = draw(2, 3, 7, 4)
    added = attn.backward(r, d_out, dq=False, dk=False, dv=start.copy(), accumulate=["dv"])
    assert added._names == ("dv",), "only what was asked for"
    near("dv added", added.dv, start + want[2], 1e-6 * TERMS)
    # sigma: against differences in float64
    f = lambda sigma: (attend(-(distances(q, k) / sigma) ** 2 / 2, v)[0] * d_out).sum()
    r = attn.forward(q, k, v, score="gaussian", sigma=2)
    near("d_sigma", attn.backward(r, d_out, d_sigma=True).d_sigma, [(f(2 + 1e-5) - f(2 - 1e-5)) / 2e-5], 3e-6 * TERMS)
    d_lse = draw(2, 3, 5)
    r = attn.forward(q, k, v, lse=True)
    near("d_lse", attn.backward(r, d_lse=d_lse, dv=False).dq,
         np.einsum("bhi,bhij,bhjd->bhid", d_lse, softmax(raw)[0], k.astype("float64")) / np.sqrt(8), 1e-6 * TERMS)


def test_key_sums():
    q, k, v = draw(2, 4, 9, 8), draw(2, 2, 13, 8), draw(2, 2, 13, 5)
    for kind in (np.asarray, *([torch.from_numpy] if torch else [])):
        r = attn.forward(kind(q), kind(k), kind(v), causal=True, align="bottom_right", weights=True, stats=True)
        got, last = attn.key_sums(r), attn.key_sums(r, 3, out=kind(np.empty((2, 4, 13), "float32")))
        assert type(got) is type(r.weights) and got.shape == (2, 4, 13)
        near("key_sums", got, r.weights.sum(-2), 2e-6)
        near("key_sums of the last queries", last, r.weights[:, :, -3:].sum(-2), 2e-6)
        r = attn.forward(kind(q), kind(k), None, out=False, lse=True, causal=True, align="bottom_right")
        same("without stats", np.asarray(attn.key_sums(r)), np.asarray(got))
        r = attn.forward(kind(q[0]), kind(k[0, :1].repeat(4, 0)), None, out=False, weights=True)
        near("without a batch", attn.key_sums(r), r.weights.sum(-2), 2e-6)
    pages = k.reshape(2, 2, 13, 8)
    table = np.array([[1], [0]], "int32")
    r = attn.forward(q, pages, None, out=False, lse=True, page_table=table)
    near("pages", attn.key_sums(r), attn.weights(q, k[::-1].copy()).sum(-2), 2e-6)
    raises(attn.Error, lambda: attn.key_sums(r, -1), "last_queries")
    raises(TypeError, lambda: attn.key_sums(q), "attn.forward")
    raises(TypeError, lambda: attn.backward(r, d_lse=q[..., 0], key_sums=True), "key_sums")


def test_pieces():
    x, d_out = draw(2, 3, 5, 7), draw(2, 3, 5, 7)
    w, _ = softmax(x.astype("float64"))
    near("softmax", attn.softmax(x), w, 4e-6 * 6)
    near("softmax of one row", attn.softmax(x[0, 0, 0]), w[0, 0, 0], 4e-6 * 6)
    near("softmax with lengths", attn.softmax(x, key_lengths=[3, 7])[0, ..., :3],
         softmax(x[0, ..., :3].astype("float64"))[0], 4e-6 * 6)
    in_place = x.copy()
    assert attn.softmax(in_place, out=in_place) is in_place
    same("softmax in place", in_place, attn.softmax(x))
    near("softmax_backward", attn.softmax_backward(x, d_out), w * (d_out - (w * d_out).sum(-1, keepdims=True)), 1e-4)
    a, b = draw(2, 1, 4, 6), draw(3, 6, 5)
    near("bmm", attn.bmm(a, b), a.astype("float64") @ b, 4e-6 * 20)
    near("bmm of a turned array", attn.bmm(a, np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)),
         a.astype("float64") @ b, 4e-6 * 20)
    d = draw(2, 3, 4, 5)
    da, db = attn.bmm_backward(a, b, d)
    near("da", da, (d.astype("float64") @ b.swapaxes(1, 2)).sum(1, keepdims=True), 3e-6 * TERMS)
    near("db", db, (a.astype("float64").swapaxes(2, 3) @ d).sum(0), 3e-6 * TERMS)
    q, k, v = draw(2, 3, 5, 8), draw(2, 3, 7, 8), draw(2, 3, 7, 4)
    both = attn.forward(q, k, v, lse=True)
    parts = [attn.forward(q, k[:, :, n], v[:, :, n], lse=True) for n in (slice(0, 3), slice(3, 7))]
    out, lse = attn.merge(parts[0].out, parts[0].lse, parts[1].out, parts[1].lse)
    near("merged out", out, both.out, 1e-5)
    near("merged lse", lse, both.lse, 1e-5)
    y = draw(100) * 3
    near("exp", attn.exp(y) / np.exp(y.astype("float64")), np.ones(100), 3e-7)
    near("log", attn.log(np.abs(y)), np.log(np.abs(y).astype("float64")), 1e-6)
    near("tanh", attn.tanh(y), np.tanh(y.astype("float64")), 3e-7)


def heads_of(x, w, b, count):
    y = x.astype("float64") @ w.T.astype("float64") + b
    return y.reshape(x.shape[0], x.shape[1], count, -1).transpose(0, 2, 1, 3)


def reference_mha(p):
    """Two heads of queries that share one of keys."""
    q, k, v = (heads_of(p["query" if n == "query" else "key"], p["w_" + n], p["b_" + n], 2 if n == "query" else 1)
               for n in ("query", "key", "value"))
    out, w, _ = attend(dots(q, k), v)
    return out.transpose(0, 2, 1, 3).reshape(*p["query"].shape[:2], -1) @ p["w_result"].T + p["b_result"], w


def test_mha():
    p = dict(query=draw(2, 5, 6), key=draw(2, 7, 4), w_query=draw(8, 6), w_key=draw(4, 4), w_value=draw(3, 4),
             w_result=draw(5, 6), b_query=draw(8), b_key=draw(4), b_value=draw(3), b_result=draw(5))
    r = attn.mha(**p, heads=2, heads_kv=1, weights=True)
    out, w = reference_mha(p)
    near("out", r.out, out, 1e-4)
    near("weights", r.weights, w, 1e-5)
    d_out = draw(2, 5, 5)
    g = attn.mha_backward(r, d_out)
    for name in p:      # each gradient along a random direction, against differences in float64
        step = draw(*p[name].shape).astype("float64")
        at = lambda t: (reference_mha(dict(p, **{name: p[name] + t * step}))[0] * d_out).sum()
        got = (getattr(g, "d" + name) * step).sum()
        near("d" + name, got, (at(1e-5) - at(-1e-5)) / 2e-5, 1e-3)
    some = attn.mha_backward(r, d_out, dw_key=True)
    assert some._names == ("dw_key",)
    same("alone", some.dw_key, g.dw_key)
    kept = attn.mha(**p, heads=2, heads_kv=1, weights=True, saved=True)
    same("out, saved", kept.out, r.out)
    for _ in range(2):
        again = attn.mha_backward(kept, d_out)
        for name in p:
            same("d" + name + ", saved", getattr(again, "d" + name), getattr(g, "d" + name))
    kept._kept["mha"].memory[:] = 0
    raises(attn.Error, lambda: attn.mha_backward(kept, d_out), "saved must be what attn_mha left there")
    raises(attn.Error, lambda: attn.mha(**p, heads=2, heads_kv=1, stats=True, saved=True), "stats must be absent")
    alone = attn.mha(p["query"], draw(8, 6), draw(8, 6), np.zeros((8, 6), "float32"), heads=2)
    near("self-attention without a last product", alone.out, np.zeros((2, 5, 8)), 0)


def test_threads():
    q, k, v = draw(2, 8, 200, 32), draw(2, 8, 200, 32), draw(2, 8, 200, 32)
    one, four = attn.forward(q, k, v, causal=True), attn.forward(q, k, v, causal=True, threads=4)
    same("out", four.out, one.out)
    d_out = draw(2, 8, 200, 32)
    for name in ("dq", "dk", "dv"):
        same(name, getattr(attn.backward(four, d_out), name), getattr(attn.backward(one, d_out), name))
    same("isa", attn.attention(q, k, v, causal=True, isa="scalar"), one.out)
    # C's threads run the tasks, as many as there are processors, or as torch says; and none where a call is small
    asked, run, count = [], attn.attn_parallel, [3]
    wide, most = draw(1, 8, 200, 32), attn._most_threads
    spy = lambda **fields: asked.append(fields.get("workers", 1)) or run(**fields)
    attn.attn_parallel, attn._most_threads = spy, lambda: count[0]
    try:
        calls = {"attention": lambda **o: attn.attention(q, k, v, **o), "sdpa": lambda **o: attn.sdpa(q, k, v, **o),
                 "forward": lambda **o: attn.forward(q, k, v, **o),
                 "softmax": lambda **o: attn.softmax(draw(512, 512), **o),
                 "bmm": lambda **o: attn.bmm(draw(200, 200), draw(200, 200), **o),
                 "bmm_backward": lambda **o: attn.bmm_backward(draw(200, 200), draw(200, 200), draw(200, 200), **o),
                 "mha": lambda **o: attn.mha(draw(1, 200, 64), *[draw(64, 64) for _ in range(4)], heads=2, **o)}
        for name, call in calls.items():
            for _ in range(2):          # the second has a descriptor ready
                for options, want in (({}, 3), (dict(threads=2), 2), (dict(threads=1), 1)):
                    asked.clear()
                    call(**options)
                    assert (asked or [1])[-1] == want, f"{name} {options}: {asked}"
        for _ in range(2):
            asked.clear()
            attn.attention(q[:, :, :1, :], k, v, threads=4)
            room, keys = draw(1, 8, 1, 32), draw(1, 8, 40000, 32)
            attn.attention(room, keys, keys, threads=4, key_lengths=np.array([100]))
            assert not any(n > 1 for n in asked), f"small calls: {asked}"
    finally:
        attn.attn_parallel, attn._most_threads = run, most
    if torch is not None:
        assert attn._most_threads() == torch.get_num_threads()
    status, text = child("import os, attn\nassert attn._most_threads() == len(os.sched_getaffinity(0)), 'processors'")
    assert not hasattr(os, "sched_getaffinity") or status == 0, text


def test_again():
    """A call that looks like one before has its descriptor ready: the same bits, and nothing else of that call."""
    def fresh(call):
        attn._ready.clear()
        return call()
    kinds = [np.asarray] + ([torch.from_numpy] if torch else [])
    for kind in kinds:
        x = [kind(draw(2, 4, 6, 8)) for _ in range(9)]
        wide = kind(draw(2, 6, 4, 16)[..., ::2] if kind is np.asarray else draw(2, 6, 4, 8))
        turned = wide.swapaxes(1, 2)
        lengths, bias, allowed = kind(np.array([3, 6])), kind(draw(6, 6)), kind(RNG.random((6, 6)) < 0.8)
        half = [kind(rounded(draw(2, 4, 6, 8), "float16")) for _ in range(3)]
        calls = [lambda f, a=a, o=o: f(*a, **o) for a in (x[:3], x[3:6], [x[0]] * 3, [turned, x[1], x[2]], half,
                                                        [y[0] for y in x[:3]], [y[0, 0] for y in x[6:]])
                 for o in ({}, dict(causal=True), dict(causal=1), dict(scale=0.5), dict(scale=kind(np.float32([0.5]))),
                           dict(score="gaussian", sigma=2.0), dict(sink=kind(draw(4))), dict(threads=2))
                 if len(a[0].shape) == 4 or "sink" not in o]
        calls += [lambda f, o=o: f(*x[:3], **o) for o in (
            dict(key_lengths=lengths), dict(key_lengths=[3, 6]), dict(key_lengths=(3, 6)), dict(key_lengths=(6, 3)),
            dict(bias=bias), dict(mask=allowed), dict(window=(1, None), align="top_left"),
            dict(score="gaussian", sigma=kind(np.float32([1, 2, 3, 4]))), dict(dropout=0.5, seed=3),
            dict(dropout=0.5, seed=4))]
        for f in (attn.attention, attn.sdpa):
            wants = [fresh(lambda: call(f)) for call in calls]
            attn._ready.clear()
            for _ in range(3):
                for call, want in zip(calls, wants):
                    near("again", call(f), want, 0)
            assert attn._ready, "none is ready"
        for o in (dict(attn_mask=allowed), dict(attn_mask=bias), dict(is_causal=True), dict(attn_mask=bias, scale=0.5)):
            want = fresh(lambda: attn.sdpa(*x[:3], **o))
            near("again, as torch says it", attn.sdpa(*x[:3], **o), want, 0)
        out = kind(np.zeros((2, 4, 6, 8), "float32"))
        for a in (x[:3], x[3:6]):
            assert attn.attention(*a, out=out) is out
            near("out", out, fresh(lambda: attn.attention(*a)), 0)
        # what arrays hold is looked at each time, and errors are the same
        where = kind(np.array([3, 6]))
        for call in (lambda: attn.attention(*x[:3], key_lengths=where), lambda: attn.sdpa(*x[:3], key_lengths=where)):
            where[1] = 6
            call(), call()
            where[1] = 7
            error = raises(attn.Error, call, "key_lengths")
            assert error.place == (1,)
    for _ in range(2):      # flags of an array count, too
        target = np.zeros((2, 4, 6, 8), "float32")
        attn.attention(*[draw(2, 4, 6, 8) for _ in range(3)], out=target)
        target.flags.writeable = False
        raises(TypeError, lambda: attn.attention(*[draw(2, 4, 6, 8) for _ in range(3)], out=target), "read-only")
        masked = np.ma.masked_array(target, target > 0)
        raises(TypeError, lambda: attn.attention(masked, target, target), "masked array")
    target = np.zeros((2, 4, 6, 8), "float32")
    masked = np.ma.masked_array(np.ones((6, 6), bool), np.eye(6))
    lengths = np.ma.masked_array([3, 6], [False, True])
    for f in (attn.attention, attn.forward, attn.sdpa):     # forward copies such options: the copy would have no mask
        for name, x in dict(mask=masked, key_lengths=lengths).items():
            f(target, target, target, **{name: x.data})
            raises(TypeError, lambda: f(target, target, target, **{name: x}), name, "masked array")
    for size in range(1, 2 * attn._MOST_READY):
        attn.attention(target[0, 0, :1], *[np.zeros((size, 8), "float32")] * 2)
    assert len(attn._ready) <= attn._MOST_READY, "they are not kept without end"
    if torch is not None:       # a cache that grows has one descriptor, and what does not fit is refused as ever
        attn._ready.clear()
        row = tensor(2, 4, 1, 8)
        for size in (5, 6, 0, 40, 5000, 7):
            for cache in (tensor(2, 2, size, 8), tensor(2, size, 2, 8).transpose(1, 2)):
                near("a cache that grows", attn.attention(row, cache, cache), attn.forward(row, cache, cache).out, 0)
        assert len(attn._ready) == 1, "a descriptor for each length"
        for same_heads in (tensor(2, 4, 7, 8), tensor(2, 4, 9, 8)):
            attn.sdpa(row, same_heads, same_heads)
            raises(TypeError, lambda: attn.sdpa(row, cache, cache), "q has 4 heads and k 2")
            raises(attn.Error, lambda: attn.sdpa(row, same_heads, same_heads[:, :, :5]), "v.size[2]")
            raises(attn.Error, lambda: attn.sdpa(row, same_heads[:1], same_heads[:1]), "k.size[0]")
    if torch is None:
        return
    q, k, v = tensor(1, 2, 3, 8), tensor(1, 2, 4, 8), tensor(1, 2, 4, 8)
    leaf = q.clone().requires_grad_()
    for f in (attn.attention, attn.sdpa):
        want = f(q, k, v)
        with torch.no_grad():
            assert f(leaf, k, v).equal(want)
    raises(TypeError, lambda: attn.attention(leaf, k, v), "q requires grad")
    assert attn.sdpa(leaf, k, v).requires_grad, "sdpa has forgotten the gradient"
    for kind in (torch.nn.Parameter, lambda x: x.as_subclass(type("Sub", (torch.Tensor,), {}))):
        several = [kind(tensor(1, 2, 3, 8)) for _ in range(3)]      # alike, each with its own memory
        with torch.no_grad():
            for x in several + several:
                for f in (attn.attention, attn.sdpa):
                    near("a subclass", f(x, k, v), f(x.detach().clone().as_subclass(torch.Tensor), k, v), 0)
    negated = torch.view_as_complex(tensor(1, 2, 3, 8, 2)).conj().imag
    attn.attention(torch.view_as_complex(tensor(1, 2, 3, 8, 2)).imag, k, v)
    raises(TypeError, lambda: attn.attention(negated, k, v), "q.resolve_neg()")


def test_lifetimes():
    """What must hold whatever else Python does: in processes of their own, as memory is what breaks."""
    head = ("import atexit, multiprocessing, signal, threading, numpy as np, attn\n"
            "q = np.random.default_rng(1).random((1, 8, 2000, 64), 'float32')\n"
            "want, got = attn.attention(q, q, q), np.full_like(q, 7)\n"
            "threaded = lambda: attn.attention(q, q, q, threads=2, out=got)\n"
            "def check(): assert np.array_equal(got, want), 'tasks were left out'\n")
    interrupted = ("signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
                   "threaded()\n"
                   "for attempt in range(100):\n"          # one may come before the call begins or after it ends
                   "    got[:] = 7\n"
                   "    try: signal.setitimer(signal.ITIMER_REAL, 0.01); threaded(); signal.pause()\n"
                   "    except KeyboardInterrupt:\n"
                   "        if (got != 7).any(): break\n"
                   "check()\n")
    several = ("outs = [np.full_like(q, 7) for _ in range(4)]\n"      # one has the threads, the others run alone
               "call = lambda x: threading.Thread(target=lambda: attn.attention(q, q, q, threads=2, out=x))\n"
               "callers = [call(x) for x in outs]\n"
               "[t.start() for t in callers]; [t.join() for t in callers]\n"
               "for got in outs: check()\n")
    forked = ("threaded()\ndef child(n): got[:] = n; threaded(); check(); return n\n"
              "with multiprocessing.get_context('fork').Pool(2) as pool: assert pool.map(child, [3, 4]) == [3, 4]\n")
    lists = ("n = 200000; cache, zeros = np.zeros((n, 1, 2, 1), 'float32'), np.zeros(n, 'int64')\n"
             "attn.append(np.ones((n, 1, 1, 1), 'float32'), cache, zeros, query_lengths=[1]*n)\n"
             "assert cache[:, 0, 0].all() and not cache[:, 0, 1].any()\n")
    cases = {"several callers": several, "at exit": "atexit.register(lambda: (threaded(), check()))\n", "lists": lists}
    if hasattr(os, "fork"):
        cases.update(interrupted=interrupted, forked=forked)
    for name, code in cases.items():
        done = subprocess.run([sys.executable, "-c", head + code], cwd=BINDING, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        assert done.returncode == 0 and not done.stdout, f"{name}: {done.returncode}, {done.stdout}"


def test_errors():
    q, k, v = draw(1, 1, 2, 8), draw(1, 1, 3, 8), draw(1, 1, 3, 8)
    error = raises(attn.Error, lambda: attn.attention(q, k[..., :7], v), "k.size[3] must equal q.size[3]: 8, is 7")
    assert (error.status, error.field, error.rule) == ("err_size", "k.size[3]", "must equal q.size[3]")
    assert (error.got, error.want) == (7, 8)
    raises(attn.Error, lambda: attn.attention(q, k, v, causal=True), "align")
    for options in (dict(causal=2**32), dict(window=(2**64, 0)), dict(seed=2**64), dict(seed=-1)):
        raises(ValueError, lambda: attn.attention(q, k, v, **options), "does not fit into the")
    raises(ValueError, lambda: attn.rope_table(4, 8, first_position=2**64), "first_position: 18446744073709551616 does")
    raises(TypeError, lambda: attn.backward(attn.forward(q, k, v), q, accumulate=["d_out"]), "no gradient 'd_out'")
    raises(TypeError, lambda: attn.bmm(q[0, 0, 0], k[0, 0, 0]), "of 2 to 4 axes")
    raises(attn.Error, lambda: attn.mha(q[0], *[np.zeros((8, 8), "float32")] * 3, heads=0), "heads")
    keys, values = draw(1, 1, 300, 8), draw(1, 1, 300, 8)
    carry = attn.forward(q, keys[:, :, :256], values[:, :, :256], out=False, carry_out=True).carry_out
    rest = attn.attention(q, keys[:, :, 256:], values[:, :, 256:], carry_in=carry, key_origin=256)
    same("in parts", rest, attn.attention(q, keys, values))
    raises(attn.Error, lambda: attn.attention(q, k, v, dropout=2), "dropout must be within 0..1")
    raises(attn.Error, lambda: attn.attention(q, k, v, isa=99), "isa")
    raises(attn.Error, lambda: attn.attention(q, k, v, out=q), "overlap")
    raises(ValueError, lambda: attn.attention(q, k, v, score="dots"), "'dots' is none of scaled_dot, dot, cosine")
    raises(TypeError, lambda: attn.attention(q, k, v, casual=True), "no option 'casual': is causal meant?")
    for name in ("nonsense", "attn_mask", "workspace_bytes", "reserved"):       # whatever the value
        raises(TypeError, lambda: attn.attention(q, k, v, **{name: None}), f"no option '{name}'")
    raises(TypeError, lambda: attn.attention(q, k, v, attn_mask=q), "that is mask (bool) or bias")
    raises(TypeError, lambda: attn.attention(q, k, v, window=16), "(16, 16) are 16 on either side, (15, 0) the last 16")
    raises(TypeError, lambda: attn.attention(q, k, v, window=(1, 2, 3)), "window: (1, 2, 3) is not a pair")
    raises(TypeError, lambda: attn.attention(q, k, v, causal=0.5), "causal: 0.5 is not a number of its kind")
    raises(TypeError, lambda: attn.attention(q, k, v, dropout="half"), "dropout: a number is needed, not 'half'")
    raises(TypeError, lambda: attn.attention(q, k, v, threads="all"), "threads: a number is needed")
    for threads in (-4, 0, 2**40):
        for call in (attn.attention, attn.forward, attn.sdpa, lambda *a, **b: attn.softmax(q, **b),
                     lambda *a, **b: attn.bmm(q, k.swapaxes(2, 3), **b)):
            raises(ValueError, lambda: call(q, k, v, threads=threads), f"threads: must be within 1..1024, is {threads}")
    for name, call in {
            "out": lambda x: attn.attention(q, k, v, out=x), "lse": lambda x: attn.forward(q, k, v, lse=x),
            "dk": lambda x: attn.backward(attn.forward(q, k, v), q, dk=x),
            "dx": lambda x: attn.softmax_backward(q, q, dx=x),
            "to": lambda x: attn.convert(q, "float16", out=x)}.items():
        raises(TypeError, lambda: call([1.0]), ": an array is needed, not [1.0], for it is written to")
    raises(TypeError, lambda: attn.mha(None, q, q, q, heads=1), "query: an array is needed")
    for results in (q, attn.Results({})):
        raises(TypeError, lambda: attn.backward(results, q), "results: what attn.forward returned is needed")
        raises(TypeError, lambda: attn.mha_backward(results, q), "results: what attn.mha returned is needed")
    raises(TypeError, lambda: attn.attention(q, k, v, dropout=0.5, dropout_origin=3), "dropout_origin: 3 is not four")
    raises(TypeError, lambda: attn.attention(q, k, v, scale=[1.0, 2.0]), "scale: [1.0, 2.0] is not a number")
    raises(TypeError, lambda: attn.attention(q, k, v, scale=np.ones(2)), "scale: one number is needed, not an array")
    for kind in ("uint8", "bool", "uint16", "int8"):
        raises(attn.Error, lambda: attn.attention(q, k, v, key_lengths=np.ones(1, kind)),
               f"key_lengths.type must be int32 or int64, is {kind}")
        for what in (lambda x: attn.softmax(x), lambda x: attn.mha(x[0], k[0, 0], k[0, 0], k[0, 0], heads=1)):
            if kind != "uint16":        # which are numbers: the bits of bfloat16
                error = raises(attn.Error, lambda: what(q.astype(kind)), "or bfloat16, is " + kind)
    codes, scales = attn.quantize(k)
    r = attn.forward(q, codes, v, k_scale=scales)
    for wanted in ({}, dict(dk=False), dict(dk=False, dv=False)):
        raises(TypeError, lambda: attn.backward(r, q, **wanted), "k is int8: attn.h has no gradients of a call")
    same("a number as an array", attn.attention(q, k, v, scale=np.float32(0.5), causal=np.array(False)),
         attn.attention(q, k, v, scale=0.5))
    masked = np.ma.masked_array(q, q > 0)
    for call in (lambda: attn.attention(masked, k, v), lambda: attn.exp(masked), lambda: attn.heatmap(masked[0, 0])):
        raises(TypeError, call, "a masked array, whose mask would be lost")
    raises(AttributeError, lambda: attn.forward(q, k, v, lse=True).weights, "weights is not among", "out, lse")
    raises(TypeError, lambda: attn.rope_table(4, 8, faktor=2), "is factor meant?")
    raises(ValueError, lambda: attn.rope_table(4, 8, scaling="yearn"), "'yearn' is none of plain")
    raises(TypeError, lambda: attn.forward(q, k, out=True), "out needs v")
    raises(TypeError, lambda: attn.attention(q.astype("complex64"), k, v), "q: attn.h has no type complex64")
    raises(attn.Error, lambda: attn.attention(q.astype("int32"), k, v), "q.type")
    swapped = q.astype(q.dtype.newbyteorder())
    raises(TypeError, lambda: attn.attention(swapped, k, v), "byte order")
    fixed = np.zeros((1, 1, 2, 8), "float32")
    fixed.flags.writeable = False
    raises(TypeError, lambda: attn.attention(q, k, v, out=fixed), "out: the array is read-only")
    r = attn.forward(q, k, v)
    raises(TypeError, lambda: attn.backward(r, r.out, d_bias=True), "d_bias: there is no bias")
    for value in (True, None):
        raises(TypeError, lambda: attn.backward(r, r.out, d_biases=value), "no gradient 'd_biases': is d_bias meant?")
    raises(TypeError, lambda: attn.backward(r, r.out, accumulate=["d_q"]), "no gradient 'd_q'")
    raises(TypeError, lambda: attn.backward(r, r.out, accumulate=["dq"]), "dq: accumulate needs the array")
    raises(ValueError, lambda: attn.heatmap(q[0, 0], x_ticks=["a"]), "x_ticks: 8 texts are needed, 1 are given")
    assert "kernels " + attn.best_isa() in attn.explain(q, k, v), "explain"
    assert "must equal q.size[3]" in attn.explain(q, k[..., :7], v), "explain what is refused"
    assert attn.explain(q, k, v, lse=True).startswith("scaled dot product"), "of a call with other results, too"


def test_words():
    """What C calls ATTN_ALIGN_TOP_LEFT is align="top_left" in an error, "top_left" where it is about align."""
    q, k, v = draw(1, 1, 2, 8), draw(1, 1, 3, 8), draw(1, 1, 3, 8)
    error = raises(attn.Error, lambda: attn.attention(q, k, v, causal=True), 'align must be set', '"bottom_right" (the')
    assert "ATTN" not in str(error) + error.rule and 'align="' not in str(error), error
    raises(attn.Error, lambda: attn.attention(q, k, v, positions=[1]), 'align must be "positions" where')
    raises(attn.Error, lambda: attn.attention(q, k, v, score="given"), 'q must be absent for score="given"')
    raises(attn.Error, lambda: attn.attention(q.astype("int32"), k, v), "q.type must be float32, float16 or bfloat16")
    raises(attn.Error, lambda: attn.attention(q, k, v, mask=k[0, 0, :2, :3]), "mask.type must be bool")
    raises(attn.Error, lambda: attn.rope_table(4, 8, scaling="linear", factor=2, beta_fast=3), "beta_fast")
    assert 'align="top_left"' in attn.explain(q, k, v, causal=True), attn.explain(q, k, v, causal=True)
    with open(HEADER) as header:
        rules = " ".join(re.findall(r'"((?:must|counts) [^"]*)"', header.read()))
    said = set(re.findall(r"\bATTN_(?!GRAD_|ROPE_x)\w+", rules))     # bits are set by other means
    assert said >= {"ATTN_F32", "ATTN_I8", "ATTN_ALIGN_POSITIONS", "ATTN_ROPE_YARN"}, said
    left = {word for word in said if attn._in_python(word) == word}
    assert not left, f"{left} have no word in Python"


def test_public():
    """dir() lists what is public, each with a word about it and hints for every argument."""
    assert set(attn.__all__) <= set(dir(attn)) and "np" not in dir(attn) and "ctypes" not in dir(attn), dir(attn)
    for name in attn.__all__:
        what = getattr(attn, name)
        assert what.__doc__, f"{name} says nothing"
        if callable(what) and not isinstance(what, type):
            code, hints = what.__code__, what.__annotations__
            count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 8)
            lacking = set(code.co_varnames[:count]) - set(hints)
            assert not lacking and "return" in hints, f"{name}: no hint for {lacking or 'its result'}"
    public = {name for name, x in vars(attn).items() if getattr(x, "__module__", "") == "attn" and callable(x)
              and not re.match("_|attn_|Options|ArrayT", name)}
    assert public == set(attn.__all__), public ^ set(attn.__all__)
    with open(HEADER) as header:
        assert f"v{attn.__version__} " in header.readline(), attn.__version__
    assert ".".join(map(str, attn.version())) == attn.__version__


def test_heatmap():
    w = np.float32([[0, 1], [0.25, 0.5], [1, 0]])
    picture = attn.heatmap(w, title="<weights>", x_ticks=["a", "b"], y_ticks="xyz", colormap="viridis", range=(0, 1))
    root = xml.etree.ElementTree.fromstring(picture._repr_svg_())
    assert root.tag.endswith("svg") and "<weights>" in "".join(root.itertext()), "an SVG file with its title"
    colours = re.findall(r'fill="(#[0-9a-f]{6})"', picture.svg())
    assert {"#440154", "#fde725"} <= set(colours), f"the ends of viridis: {sorted(set(colours))}"
    ppm = picture.ppm()
    width, height = map(int, re.match(rb"P6\n(\d+) (\d+)\n255\n", ppm).groups())
    assert len(ppm) == len(b"P6\n%d %d\n255\n" % (width, height)) + 3 * width * height, "a PPM file"
    page = picture.html()
    assert page.startswith("<!DOCTYPE html>") and "<title>&#60;weights&#62;</title>" in page, "a page with its title"
    assert base64.b64encode(np.ascontiguousarray(w, "<f4").tobytes()).decode().strip("=") in page, "and the numbers"
    lines = attn.heatmap(w).ansi("ascii").splitlines()
    assert lines[0].startswith("0") and "@@" in lines[0].split()[-1], lines[0]
    assert str(picture).count("\x1b[") > 6, "colours in a terminal"
    with tempfile.TemporaryDirectory() as folder:
        for name, want in (("w.svg", picture.svg().encode()), ("w.ppm", ppm), ("w.HTML", page.encode()),
                           ("w.png", picture.png())):
            picture.save(os.path.join(folder, name))
            with open(os.path.join(folder, name), "rb") as file:
                assert file.read() == want, name
        for name in ("w.jpg", "w", "w.svg.gz"):
            raises(ValueError, lambda: picture.save(os.path.join(folder, name)), name, ".svg, .html, .png, .ppm")
        assert not os.path.exists(os.path.join(folder, "w.jpg")), "what is refused writes no file"
    assert np.array_equal(pixels_of_png(picture.png()), np.frombuffer(ppm[-3 * width * height:], "uint8").reshape(
        height, width, 3)), "PNG and PPM are one picture"
    raises(attn.Error, lambda: attn.heatmap(w, width=3).svg(), "width")
    raises(ValueError, lambda: attn.heatmap(w, colormap="jet"), "'jet' is none of reds, viridis, grey, diverging")
    raises(TypeError, lambda: attn.heatmap(w, titel="w"), "no field of a heatmap 'titel': is title meant?")


def pixels_of_png(data):
    width, height, *kind = struct.unpack(">IIBBBBB", data[16:29])
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and kind == [8, 2, 0, 0, 0], "a PNG file of 8 bits a colour"
    at, chunks = 8, {}
    while at < len(data):
        (size,), name = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
        chunks[name] = data[at + 8:at + 8 + size]
        assert zlib.crc32(name + chunks[name]) == int.from_bytes(data[at + 8 + size:at + 12 + size], "big"), name
        at += 12 + size
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), "uint8").reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any() and b"IEND" in chunks
    return rows[:, 1:].reshape(height, width, 3)


def elements(svg, tag):
    return [e.attrib for e in xml.etree.ElementTree.fromstring(svg).iter() if e.tag.endswith("}" + tag)]


def test_inline():
    """In a notebook more than 4096 cells are images, with the cells of the SVG file at their places."""
    w = draw(2, 3, 40, 50)
    w[1, 0, :3, :4] = np.nan
    for values, fields in ((w, {}), (w, dict(range=(-1, 2), title="<t>", no_colorbar=True)), (w[0], dict(width=300)),
                           (w + 1, dict(colormap="diverging")), (w > 0, {}),
                           (w.astype("float16"), dict(y_ticks=list(range(40)), ticks_on_top=True)),
                           (rounded(w, "bfloat16"), dict(panel_titles=list("abcdef"), colormap="grey"))):
        picture = attn.heatmap(values, **fields)
        plain, inline = picture.svg(), picture._repr_svg_()
        assert "<image" not in plain
        images = elements(inline, "image")
        assert len(images) == np.prod(values.shape[:-2]) and len(inline) < len(plain) / 2
        for tag in ("text", "path", "stop"):
            assert elements(inline, tag) == elements(plain, tag), f"{tag} is elsewhere"
        size = tuple(int(elements(plain, "rect")[0][name]) for name in ("height", "width"))
        canvas = np.zeros(size, int)
        for rect in elements(plain, "rect"):
            if re.fullmatch("#[0-9a-f]{6}", rect["fill"]):
                x, y, width, height = (int(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
                canvas[y:y + height, x:x + width] = int(rect["fill"][1:], 16)
        for place in images:
            cells = pixels_of_png(base64.b64decode(place["href"].partition(",")[2])).astype(int) @ [65536, 256, 1]
            x, y, width, height = (int(place[name]) for name in ("x", "y", "width", "height"))
            assert cells.shape == (40, 50)
            i, j = (np.arange(n) * extent // n for n, extent in ((40, height), (50, width)))    # where a cell begins
            assert width >= 50 and np.array_equal(cells, canvas[y + i[:, None], x + j]), f"{fields}: colours of cells"
    small = attn.heatmap(w[0, 0])
    assert small._repr_svg_() == small.svg(), "few cells are shapes"
    one = attn.heatmap(np.ones((100, 100), "float32"))
    assert one._repr_svg_() == one.svg(), "and so are many of one colour"
    assert len(attn.heatmap(attn.softmax(draw(8, 512, 512)))._repr_svg_()) < 8e6, "8 heads of 512 x 512"


def test_masked_cells():
    """They are hatched, in a notebook's images too, and what they hold changes nothing."""
    w = draw(2, 70, 80)
    kept = np.tri(70, 80, dtype=bool)
    other = np.where(kept, w, np.nan)
    for picture, same in ((attn.heatmap(w, mask=kept), attn.heatmap(other, mask=kept.astype("uint8"))),
                          (attn.heatmap(w[0, :9, :9], mask=kept[:9, :9]),
                           attn.heatmap(other[0, :9, :9], mask=kept[:9, :9]))):
        for draw_it in ("svg", "_repr_svg_", "png", "ansi"):
            assert getattr(picture, draw_it)() == getattr(same, draw_it)(), f"{draw_it}: what is masked is seen"
        assert "url(#attn-masked)" in picture.svg() and "// masked" in picture.ansi("ascii")
        assert "NaN" not in same._repr_svg_() and "masked" in same._repr_svg_()
    images = elements(attn.heatmap(w, mask=kept)._repr_svg_(), "image")
    assert len(images) == 2
    for image in images:
        cells = pixels_of_png(base64.b64decode(image["href"].partition(",")[2])).astype(int) @ [65536, 256, 1]
        assert set(cells[~kept]) == {0xffffff, 0x999999} and 0x999999 not in cells[kept], "hatched"
    raises(TypeError, lambda: attn.heatmap(w, mask=w), "mask: of type float32")
    raises(ValueError, lambda: attn.heatmap(w, mask=kept[:3]), "mask: shape (3, 80) does not fit (2, 70, 80)")


CALL = "import attn; print(attn.attention([[1.0]], [[1.0]], [[3.0]])[0, 0])"   # one key: its value, 3.0


def child(code, **environment):
    """What a new Python says that imports attn.py: (exit status, text)."""
    done = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1])\n" + code, BINDING],
                          env=dict(os.environ, **environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    return done.returncode, done.stdout


def test_build():
    """Built once, again when the header changes, and with a clear word where that is not possible."""
    with tempfile.TemporaryDirectory() as folder:
        header, compiler, said = (os.path.join(folder, name) for name in ("attn.h", "compiler", "said"))
        with open(HEADER) as source, open(header, "w") as copy:
            copy.write(source.read())
        with open(compiler, "w") as script:     # a compiler that is quick: it copies what was built before
            script.write(f'#!/bin/sh\necho "$@" >>"{said}"\nwhile [ "$1" != -o ]; do shift; done\n'
                         f'cp "{attn.lib._name}" "$2"\n')
        os.chmod(compiler, 0o755)
        cache = os.path.join(folder, "cache")
        use = dict(ATTN_CACHE=cache, ATTN_HEADER=header, CC=compiler, ATTN_LIBRARY="")
        for change, builds in (("", 1), ("", 1), ("/* changed */\n", 2)):
            with open(header, "a") as file:
                file.write(change)
            status, text = child(CALL, **use)
            assert (status, text) == (0, "3.0\n"), text
            with open(said) as file:
                assert len(file.readlines()) == builds, f"built {builds} times"
        assert len(os.listdir(cache)) == 2, "nothing but libraries in the cache"
        status, text = child("import attn", **dict(use, CC="no-such-compiler", ATTN_CACHE=folder))
        assert status and "'no-such-compiler', which does not run" in text, text
        status, text = child("import attn", **dict(use, CC="false", ATTN_CACHE=folder))
        assert status and "'false' could not build attn.h" in text, text
        status, text = child("import attn", **dict(use, ATTN_CACHE="/dev/null/none"))
        assert status and "/dev/null/none, which cannot be written to" in text and "ATTN_CACHE" in text, text
        # a package has its library; where that does not load, it is built
        package = os.path.join(folder, "package", "attn")
        os.makedirs(package)
        shutil.copy(os.path.join(BINDING, "attn.py"), os.path.join(package, "__init__.py"))
        shutil.copy(header, package)
        own = os.path.join(package, "libattn.so")
        where = f"sys.path.insert(0, {os.path.dirname(package)!r})\n{CALL}; print(attn.lib._name)"
        for fill, compiles in ((shutil.copy, False), (lambda _, to: open(to, "w").close(), True)):
            fill(attn.lib._name, own)
            status, text = child(where, ATTN_CACHE=cache, ATTN_HEADER="", ATTN_LIBRARY="",
                                 CC=compiler if compiles else "false")
            assert status == 0 and text.startswith("3.0\n") and (own in text) != compiles, text


def library(folder, change):
    """A library from the header with something changed in it: a pair of a pattern and what it becomes."""
    header, result = os.path.join(folder, "attn.h"), os.path.join(folder, "changed.so")
    with open(HEADER) as source, open(header, "w") as copy:
        text, count = re.subn(change[0], change[1], source.read(), flags=re.M)
        assert count, change
        copy.write(text)
    subprocess.run([os.environ.get("CC", "cc"), "-O0", "-w", "-shared", "-fPIC", "-x", "c", "-DATTN_IMPLEMENTATION",
                    "-DATTN_NO_SIMD", header, "-o", result, "-lm"], check=True)
    return result


def test_layout():
    """A later library, whose descriptors have grown, is taken; one whose fields have moved is refused."""
    with tempfile.TemporaryDirectory() as folder:
        ends = r"^\} attn_(desc|grad|mha_desc|mha_grad|heatmap);"
        grown = library(folder, (ends, r"int64_t grown[6] ATTN__0;\n\g<0>"))
        status, text = child(CALL, ATTN_LIBRARY=grown)
        assert (status, text) == (0, "3.0\n"), text
        # it has no web page of a heatmap: that is taken from a library of ours
        status, text = child("import attn; assert not hasattr(attn.lib, 'attn_heatmap_html')\n"
                             "print(attn.heatmap([[1.0, 2.0]]).html()[:15])", ATTN_LIBRARY=grown)
        assert (status, text) == (0, "<!DOCTYPE html>\n"), text
        status, text = child("import attn; attn._headers = lambda: []\nattn.heatmap([[1.0, 2.0]]).html()",
                             ATTN_LIBRARY=grown)
        assert status and "ImportError: attn_heatmap_html.h is neither beside attn.py nor in ../web" in text, text
        # it has no threads of ours: they are built beside it, and without a compiler one thread does it
        for compiler in (os.environ.get("CC", "cc"), "no-such-compiler"):
            status, text = child("import numpy as np, attn; q = np.random.rand(1, 4, 200, 64).astype('float32')\n"
                                 "assert np.array_equal(attn.attention(q, q, q, threads=2), attn.attention(q, q, q, "
                                 "threads=1)); print(attn._spreads() is None)", ATTN_LIBRARY=grown, CC=compiler,
                                 ATTN_CACHE=os.path.join(folder, compiler.replace("/", "_")))
            assert (status, text) == (0, f"{compiler == 'no-such-compiler'}\n"), text
        moved = library(folder, (r"^    float softcap ATTN__0;", r"    float moved ATTN__0, more ATTN__0;\n\g<0>"))
        status, text = child("import attn", ATTN_LIBRARY=moved)
        assert status and re.search(r"ImportError: attn_desc\.\w+ lies elsewhere", text), text


def need_torch(sdpa=False):
    """PyTorch's own attention, where a test compares with it."""
    if torch is None:
        raise Skipped("no PyTorch; VENV=FOLDER or PYTHON=PATH names a Python that has it")
    own = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if sdpa and own is None:
        raise Skipped(f"PyTorch {torch.__version__} has no scaled_dot_product_attention")
    return own


def tensor(*shape):
    return torch.from_numpy(draw(*shape))


def test_torch():
    sdpa = need_torch(sdpa=True)
    q, k, v = tensor(2, 4, 6, 8), tensor(2, 4, 6, 8), tensor(2, 4, 6, 3)
    near("out", attn.attention(q, k, v), sdpa(q, k, v), 2e-5)
    near("causal", attn.attention(q, k, v, causal=True), sdpa(q, k, v, is_causal=True), 2e-5)
    allowed = torch.from_numpy(RNG.random((6, 6)) < 0.7) | torch.eye(6, dtype=torch.bool)
    near("mask", attn.attention(q, k, v, mask=allowed), sdpa(q, k, v, attn_mask=allowed), 2e-5)
    shared = tensor(2, 2, 6, 8)
    near("grouped heads", attn.attention(q, shared, shared), sdpa(q, shared, shared, enable_gqa=True), 2e-5)
    out = torch.zeros(2, 6, 4, 3).transpose(1, 2)
    assert attn.attention(q, k, v, out=out) is out
    near("a turned output", out, sdpa(q, k, v), 2e-5)
    for dtype, bound in ((torch.float16, 2e-2), (torch.bfloat16, 1e-1)):
        got = attn.attention(q.to(dtype), k.to(dtype), v.to(dtype))
        assert got.dtype == dtype, got.dtype
        near(str(dtype), got.float(), sdpa(q, k, v), bound)
    assert attn.convert(q, "bfloat16").equal(q.bfloat16()), "convert"
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    d_out = tensor(2, 4, 6, 3)
    sdpa(*leaves, is_causal=True).backward(d_out.double())
    g = attn.backward(attn.forward(q, k, v, causal=True), d_out)
    for name, leaf in zip(("dq", "dk", "dv"), leaves):
        near(name, getattr(g, name), leaf.grad, 1e-6 * TERMS)
    linear = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x, weight, bias = tensor(2, 5, 16), linear.in_proj_weight.detach(), linear.in_proj_bias.detach()
    got = attn.mha(x, *weight.chunk(3), linear.out_proj.weight.detach(), heads=4, b_query=bias[:16], b_key=bias[16:32],
                   b_value=bias[32:], b_result=linear.out_proj.bias.detach()).out
    near("MultiheadAttention", got, linear(x, x, x, need_weights=False)[0].detach(), 2e-5)


def test_shared_arrays():
    """Results have the batch of the queries and the keys of an entry, wherever the keys lie."""
    q, k, v = draw(2, 3, 4, 8), draw(2, 3, 6, 8), draw(2, 3, 6, 5)
    r = attn.forward(q, k, v, weights=True, lse=True)
    pools = [np.ascontiguousarray(x.reshape(2, 3, 3, 2, -1).transpose(0, 2, 1, 3, 4)).reshape(6, 3, 2, -1)[::-1]
             for x in (k, v)]
    table = np.array([[5, 4, 3], [2, 1, 0]], "int32")
    paged = attn.forward(q, *pools, weights=True, lse=True, page_table=table)
    packed = [np.concatenate(list(x), 1)[None] for x in (k, v)]
    starts, lengths = np.array([0, 6], "int64"), np.array([6, 6], "int64")
    for name in "out", "lse", "weights":
        same(f"in pages: {name}", getattr(paged, name), getattr(r, name))
    same("packed keys", attn.attention(q, *packed, key_starts=starts, key_lengths=lengths), r.out)


def test_torch_refused():
    """A gradient is never lost without a word: every function but sdpa refuses a tensor that requires one, by name."""
    need_torch()
    q, k, v = tensor(1, 2, 3, 8), tensor(1, 2, 4, 8), tensor(1, 2, 4, 8)
    leaf = lambda x: x.clone().requires_grad_()
    r, ones = attn.forward(q, k, v), torch.ones(8, 8)
    for name, call in {
            "q": lambda: attn.attention(leaf(q), k, v), "v": lambda: attn.forward(q, k, leaf(v)),
            "k": lambda: attn.weights(q, leaf(k)), "bias": lambda: attn.scores(q, k, bias=leaf(q[0, 0, :, :4])),
            "sink": lambda: attn.attention(q, k, v, sink=leaf(q[0, 0, 0, :2])),
            "scale": lambda: attn.attention(q, k, v, scale=leaf(q[0, 0, 0, 0])),
            "sigma": lambda: attn.attention(q, k, v, score="gaussian", sigma=leaf(q[0, 0, 0, 0])),
            "x": lambda: attn.softmax(leaf(q)), "d_out": lambda: attn.backward(r, leaf(v[:, :, :3])),
            "out": lambda: attn.attention(q, k, v, out=leaf(v[:, :, :3])), "a": lambda: attn.bmm(leaf(q), q.mT),
            "query": lambda: attn.mha(leaf(q[0]), ones, ones, ones, heads=2),
            "w_key": lambda: attn.mha(q[0], ones, leaf(ones), ones, heads=2)}.items():
        raises(TypeError, call, f"{name} requires grad", f"use attn.sdpa, or {name}.detach()")
    raises(TypeError, lambda: attn.tanh(leaf(q)), "x requires grad")
    raises(TypeError, lambda: attn.heatmap(leaf(q[0, 0])), "values requires grad")
    with torch.no_grad():
        out = attn.attention(leaf(q), k, v)
        assert out.equal(r.out) and not out.requires_grad
    raises(TypeError, lambda: attn.attention(q.to_sparse(), k, v), "q: this binding takes dense tensors")
    raises(TypeError, lambda: attn.attention(torch.empty(1, 1, 2, 8, device="meta"), k, v), "on meta")
    on_device, attn._is_on_device = attn._is_on_device, lambda x: True
    attn._ready.clear()     # where no tensor on a device ever leads
    try:
        raises(TypeError, lambda: attn.sdpa(q, k, v), "q lies on cpu, for which this library has no kernels", "make")
    finally:
        attn._is_on_device = on_device
    with torch.autograd.forward_ad.dual_level(), warnings.catch_warnings():
        warnings.simplefilter("ignore")             # PyTorch warns of itself
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        for call in (attn.attention, attn.sdpa):
            raises(TypeError, lambda: call(dual, k, v), "q carries a tangent, which would be lost")
    negated = torch.view_as_complex(tensor(1, 2, 3, 8, 2)).conj().imag
    raises(TypeError, lambda: attn.attention(negated, k, v), "q.resolve_neg()")


def differentiate(reference, inputs, **options):
    """sdpa and every gradient of it against those of the reference, by torch's autograd in float64."""
    inputs = {name: x.detach().requires_grad_() for name, x in inputs.items()}
    doubles = {name: x.detach().double().requires_grad_() for name, x in inputs.items()}
    out, want = attn.sdpa(**dict(dict.fromkeys("qk"), **inputs), **options), reference(**doubles)
    d_out = tensor(*want.shape)
    near("out", out, want, 1e-4)
    out.backward(d_out)
    want.backward(d_out.double())
    for name, x in inputs.items():
        assert x.grad.dtype == x.dtype, f"{name}: a gradient of {x.grad.dtype}"
        near("gradient of " + name, x.grad, doubles[name].grad, 3e-6 * TERMS)


def torch_attend(s, v, sink=None, kept=1):
    if sink is not None:
        s = torch.cat([s, sink[:, None, None].expand(*s.shape[:3], 1)], -1)
    return (s.softmax(-1)[..., :v.shape[2]] * kept) @ v.repeat_interleave(s.shape[1] // v.shape[1], 1)


def torch_dots(q, k, scale=None):
    return (q.shape[-1] ** -0.5 if scale is None else scale) * q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT


def test_sdpa_gradients():
    """Of q, k, v and every parameter, against float64."""
    need_torch()
    q, k, v = tensor(2, 4, 5, 8), tensor(2, 2, 7, 8), tensor(2, 2, 7, 3)
    i, j, qkv = torch.arange(5)[:, None], torch.arange(7), dict(q=q, k=k, v=v)
    hidden = lambda s, allowed: s.masked_fill(~allowed, -np.inf)
    differentiate(lambda q, k, v: torch_attend(hidden(torch_dots(q, k), j <= i), v), qkv, is_causal=True,
                  enable_gqa=True)
    differentiate(lambda q, k, v: torch_attend(hidden(torch_dots(q, k), j <= i + 2), v), qkv, causal=True,
                  align="bottom_right", enable_gqa=True, threads=2)
    differentiate(lambda attn_mask, sink, scale, alibi, **a: torch_attend(
        torch_dots(a["q"], a["k"], scale) + attn_mask - alibi[:, None, None] * (i - j).abs(), a["v"], sink),
        dict(qkv, attn_mask=tensor(2, 1, 1, 7), sink=tensor(4), scale=torch.tensor(0.3), alibi=tensor(4)),
        enable_gqa=True, align="top_left")
    kept = torch.from_numpy(attn.dropout_mask((2, 4, 5, 7), 0.4, seed=11)) / 0.6
    differentiate(lambda q, k, v: torch_attend(torch_dots(q, k), v, kept=kept), qkv, dropout_p=0.4, seed=11,
                  enable_gqa=True)
    k6 = tensor(2, 2, 7, 6)
    differentiate(lambda q, k, v, bilinear: torch_attend(torch_dots(q @ bilinear, k, 1), v),
                  dict(q=q, k=k6, v=v, bilinear=tensor(8, 6)), score="bilinear", enable_gqa=True)
    differentiate(lambda q, k, v, w_q, w_k, w_v, hidden_bias: torch_attend(torch.tanh(
        (q @ w_q.mT)[:, :, :, None] + (k.repeat_interleave(2, 1) @ w_k.mT)[:, :, None] + hidden_bias) @ w_v, v),
        dict(q=q, k=k6, v=v, w_q=tensor(10, 8), w_k=tensor(10, 6), w_v=tensor(10), hidden_bias=tensor(10)),
        score="additive", enable_gqa=True)
    square = lambda q, k: ((q[:, :, :, None] - k.repeat_interleave(2, 1)[:, :, None]) ** 2).sum(-1)
    for sigma in (torch.tensor(2.0), torch.tensor([1.0, 2, 3, 4])):
        differentiate(lambda q, k, v, sigma: torch_attend(-square(q, k) / (
            2 * sigma.reshape(-1, 1, 1) ** 2), v), dict(qkv, sigma=sigma), score="gaussian", enable_gqa=True)
    differentiate(lambda v, given_scores: torch_attend(given_scores, v), dict(v=v, given_scores=tensor(2, 4, 5, 7)),
                  score="given")
    # of fewer axes; of what is not asked for there is none
    flat = {name: x[:, 0].detach().requires_grad_() for name, x in qkv.items()}
    out = attn.sdpa(flat["q"], flat["k"].detach(), flat["v"])
    out.sum().backward()        # whose gradient is one number, of stride 0
    assert flat["k"].grad is None and out.shape == (2, 5, 3) and flat["q"].grad.shape == (2, 5, 8)
    w = torch_dots(q[:, :1], k[:, :1]).softmax(-1)
    near("gradient of v", flat["v"].grad, w[:, 0].sum(1)[..., None].expand(2, 7, 3), 1e-5)


def test_sdpa():
    """Against PyTorch's own: the same call, the same output and gradients."""
    own = need_torch(sdpa=True)
    turned = lambda *shape: tensor(*shape).transpose(1, 2)          # stored as [B,S,H,D]
    q, k, v = turned(2, 6, 4, 8), turned(2, 6, 4, 8), turned(2, 6, 4, 3)
    allowed = torch.from_numpy(RNG.random((6, 6)) < 0.7)
    allowed[2] = False                              # a row that may attend to nothing; before 2.5 that was NaN there
    allowed[2, 0] = own(q, k, v, attn_mask=allowed & False).isnan().any()
    shared, longer = turned(2, 6, 2, 8), turned(2, 9, 4, 8)
    for a, options in (((q, k, v), {}), ((q, k, v), dict(is_causal=True)), ((q, k, v), dict(scale=0.25)),
                       ((q, longer, longer), dict(is_causal=True)), ((longer, k, v), dict(is_causal=True)),
                       ((q, k, v), dict(attn_mask=allowed)), ((q, k, v), dict(attn_mask=tensor(4, 6, 6))),
                       ((q, shared, shared), dict(enable_gqa=True)), ((q, shared[:, :1], shared[:, :1]), {}),
                       ((q[0], k[0], v[0]), {})):
        leaves = [x.detach().requires_grad_() for x in a]
        doubles = [x.detach().double().requires_grad_() for x in a]
        out = attn.sdpa(*leaves, **options)
        want = own(*doubles, **{n: x.double() if n == "attn_mask" and x.is_floating_point() else x
                                for n, x in options.items()})
        d_out = tensor(*want.shape)
        out.backward(d_out)
        want.backward(d_out.double())
        near(f"{list(options)}", out, want, 2e-5)
        for name, x, y in zip("qkv", leaves, doubles):
            near(f"{list(options)}: gradient of {name}", x.grad, y.grad, 1e-6 * TERMS)
    with torch.no_grad():
        out = attn.sdpa(*[x.detach().requires_grad_() for x in (q, k, v)])
        assert not out.requires_grad
        near("without grad", out, own(q, k, v), 2e-5)
    for dtype, bound in ((torch.float16, 4e-3), (torch.bfloat16, 3e-2)):
        leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
        doubles = [x.detach().double().requires_grad_() for x in leaves]
        out, want = attn.sdpa(*leaves), own(*doubles)
        out.sum().backward()
        want.sum().backward()
        near(f"{dtype}", out.float(), want, bound)
        for name, x, y in zip("qkv", leaves, doubles):
            assert x.grad.dtype == dtype
            near(f"{dtype}: gradient of {name}", x.grad.float(), y.grad, bound * 4)


def test_sdpa_behaviour():
    need_torch()
    q, k, v = (tensor(1, 2, 40, 8).requires_grad_() for _ in range(3))
    # dropout: torch's generator says what is dropped
    drop = lambda: attn.sdpa(q, k, v, dropout_p=0.5)
    torch.manual_seed(5)
    first, second = drop(), drop()
    torch.manual_seed(5)
    assert drop().equal(first) and not first.equal(second), "the same seed, the same output; the next call has another"
    assert attn.sdpa(q, k, v, dropout_p=0.5, seed=3).equal(attn.sdpa(q, k, v, dropout_p=0.5, seed=3))
    from torch.utils.checkpoint import checkpoint
    gradient = lambda call: torch.autograd.grad(call(), (q, k, v), torch.ones(1, 2, 40, 8))
    for plain, again in zip(*(gradient(call) for call in (
            lambda: (torch.manual_seed(6), drop())[1],
            lambda: (torch.manual_seed(6), checkpoint(lambda *_: drop(), q, k, v, use_reentrant=False))[1]))):
        assert plain.equal(again), "computed again under a checkpoint"
    # once, not twice
    (dq,) = torch.autograd.grad(attn.sdpa(q, k, v).sum(), q, create_graph=True)
    raises(RuntimeError, lambda: dq.square().sum().backward(), "attn.sdpa has no second derivative")
    # what was changed in the meantime is noticed by torch
    values = v.detach().clone().requires_grad_()
    out = attn.sdpa(q, k, values * 1)
    out.sum().backward()
    raises(RuntimeError, lambda: out.sum().backward(), "second time")
    held = v.detach() * 1
    out = attn.sdpa(q, k, held)
    held.zero_()
    raises(RuntimeError, lambda: out.sum().backward(), "modified by an inplace operation")
    # what is refused
    leaf = lambda *shape: tensor(*shape).requires_grad_()
    for kind, options, words in (
            (TypeError, dict(softcap=leaf()), "softcap requires grad, and attn.h has no gradient of it"),
            (TypeError, dict(weights=True), "weights: attn.sdpa gives the output alone"),
            (TypeError, dict(nonsense=None), "no option 'nonsense'"),
            (TypeError, dict(attn_mask=torch.ones(40, 40).int()), "to the scores), not int32"),
            (TypeError, dict(attn_mask=torch.ones(40, 40), bias=torch.ones(40, 40)), "attn_mask sets bias"),
            (TypeError, dict(is_causal=True, align="bottom_right"), "is_causal sets align"),
            (attn.Error, dict(dropout_p=1.5), "dropout must be within 0..1")):
        raises(kind, lambda: attn.sdpa(q, k, v, **options), words)
    three = leaf(1, 3, 40, 8)
    raises(TypeError, lambda: attn.sdpa(q, three, three), "q has 2 heads and k 3", "enable_gqa=True")
    raises(attn.Error, lambda: attn.sdpa(q.double(), k, v), "q.type must be float32")
    raises(TypeError, lambda: attn.sdpa(q.detach().numpy(), k, v), "q must be a torch tensor")


def test_compile():
    """torch.compile, as a whole graph too: the bits of the same call without it, and those of its gradients."""
    need_torch()
    if not hasattr(torch.library, "custom_op"):
        raise Skipped(f"PyTorch {torch.__version__} has no torch.library.custom_op")
    q, k, v, lengths = tensor(2, 4, 6, 8), tensor(2, 4, 6, 8), tensor(2, 4, 6, 3), np.array([3, 5])
    scale, counts, allowed = torch.tensor(0.3), torch.tensor([3, 5]), torch.from_numpy(RNG.random((6, 6)) < 0.7)
    cases = {
        "alone": lambda q, k, v: attn.sdpa(q, k, v),
        "causal": lambda q, k, v: attn.sdpa(q * 2, k, v, is_causal=True) + 1,
        "grouped": lambda q, k, v: attn.sdpa(q, k[:, :2], v[:, :2], enable_gqa=True, scale=0.25),
        "words": lambda q, k, v: attn.sdpa(q, k, v, score="gaussian", sigma=2.0, window=(3, None), align="top_left"),
        "lengths of NumPy's": lambda q, k, v: attn.sdpa(q, k, v, key_lengths=lengths),
        "lengths": lambda q, k, v: attn.sdpa(q, k, v, key_lengths=counts, attn_mask=allowed),
        "a list": lambda q, k, v: attn.sdpa(q, k, v, key_lengths=[3, 5], scale=scale),
        "dropout": lambda q, k, v: attn.sdpa(q, k, v, dropout_p=0.5, seed=2**64 - 1),
        "torch's generator": lambda q, k, v: attn.sdpa(q, k, v, dropout_p=0.5)}

    def ran(call, needed=True):
        torch.manual_seed(3)
        leaves = [x.clone().requires_grad_(needed) for x in (q, k, v)]
        out = call(*leaves)
        if needed:
            out.square().sum().backward()
        return [out.detach()] + [x.grad for x in leaves if needed]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # PyTorch warns of itself
        for name, call in cases.items():
            torch._dynamo.reset()
            compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
            for needed in (True, False) if name in ("alone", "causal") else (True,):
                for got, want in zip(ran(compiled, needed), ran(call, needed)):
                    assert got.equal(want), f"{name}: other bits"
        torch._dynamo.reset()
        compiled = torch.compile(cases["alone"], fullgraph=True, backend="aot_eager")
        for shape in ((1, 2, 3, 8), (1, 2, 4, 8), (2, 4, 5, 8), (3, 6, 4, 8)):
            x = tensor(*shape)
            assert compiled(x, x, x).equal(attn.sdpa(x, x, x)), "of several lengths"
        raises(Exception, lambda: compiled(q, k[..., :7], v), "k.size[3] must equal q.size[3]: 8, is 7")


def test_transforms():
    """torch.func takes sdpa, or is refused in one sentence; the other functions refuse it."""
    need_torch()
    if not hasattr(torch.library, "custom_op"):
        raise Skipped(f"PyTorch {torch.__version__} has no torch.library.custom_op")
    q, k, v = tensor(2, 4, 6, 8), tensor(2, 4, 6, 8), tensor(2, 4, 6, 3)
    two, loss = torch.stack([q, q + 1]), lambda q: attn.sdpa(q, k, v).square().sum()
    leaf = two.clone().requires_grad_()
    want, = torch.autograd.grad(loss(leaf[0]) + loss(leaf[1]), leaf)
    func = torch.func
    assert func.grad(loss)(q).equal(want[0]), "grad"
    assert func.vmap(lambda q: attn.sdpa(q, k, v))(two)[1].equal(attn.sdpa(q + 1, k, v)), "vmap"
    moved = func.vmap(lambda q: attn.sdpa(q, k, v, key_lengths=[3, 5]), in_dims=2, out_dims=1)(two.movedim(0, 2))
    assert moved[:, 1].equal(attn.sdpa(q + 1, k, v, key_lengths=[3, 5])), "vmap of another axis"
    assert func.vmap(func.grad(loss))(two).equal(want), "vmap of grad"
    assert func.grad(lambda x: func.vmap(loss)(x).sum())(two).equal(want), "grad of vmap"
    drop = lambda randomness: func.vmap(lambda q: attn.sdpa(q, k, v, dropout_p=0.5), randomness=randomness)(
        torch.stack([q, q]))
    once = drop("same")
    assert once[0].equal(once[1]), "one seed for all"
    each = drop("different")
    assert not each[0].equal(each[1]), "a seed for each"
    raises(RuntimeError, lambda: func.grad(lambda x: func.grad(loss)(x).sum())(q), "attn.sdpa has no second derivative")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raises(RuntimeError, lambda: func.jvp(loss, (q,), (q,)), "attn.sdpa has no forward-mode derivatives")
    attn.sdpa(q, k, v)      # its descriptor is ready, and does not serve what torch.func wraps
    assert func.grad(loss)(q).equal(want[0]), "grad after a call"
    assert func.vmap(lambda q: attn.sdpa(q, k, v))(two)[1].equal(attn.sdpa(q + 1, k, v)), "vmap after a call"
    whole = lambda x: attn.sdpa(x["q"], k, v, sigma=np.array(2.0), score="gaussian").square().sum()
    assert func.grad(whole)({"q": q})["q"].equal(func.grad(lambda q: attn.sdpa(
        q, k, v, sigma=2.0, score="gaussian").square().sum())(q)), "an option without axes"
    for call in (attn.attention, attn.forward):
        raises(TypeError, lambda: func.vmap(lambda q: call(q, k, v))(two), "q is one of the tensors that stand")
        raises(TypeError, lambda: func.grad(lambda q: call(q, k, v).sum())(q), "q requires grad")


def test_sdpa_numpy():
    """With NumPy arrays: PyTorch's names, no gradient, no torch."""
    q, k, v = draw(2, 4, 6, 8), draw(2, 2, 6, 8), draw(2, 2, 6, 3)
    causal = attn.sdpa(q, k, v, is_causal=True, enable_gqa=True)
    same("is_causal", causal, attn.attention(q, k, v, causal=True))
    same("attn_mask", attn.sdpa(q, k, v, attn_mask=np.tri(6, dtype=bool), enable_gqa=True), causal)
    for wrong in (draw(6, 5), draw(6, 5) > 0):
        error = raises(attn.Error, lambda: attn.sdpa(q, k, v, attn_mask=wrong, enable_gqa=True), "attn_mask.size[1] ")
        assert error.field == "attn_mask.size[1]", error.field
    bias = draw(6, 6)
    same("attn_mask of floats", attn.sdpa(q, k, v, attn_mask=bias, scale=0.5, enable_gqa=True),
         attn.attention(q, k, v, bias=bias, scale=0.5))
    for _ in range(2):
        np.random.seed(1)
        seed = np.random.randint(2**63 - 1, dtype="int64")
        np.random.seed(1)
        same("dropout", attn.sdpa(q, k, v, dropout_p=0.5, enable_gqa=True),
             attn.attention(q, k, v, dropout=0.5, seed=seed))
    raises(TypeError, lambda: attn.sdpa(q, k, v), "q has 4 heads and k 2")
    np.random.seed(1)
    state = np.random.get_state()[2]
    attn.sdpa(q, k, v, dropout=0, enable_gqa=True)
    assert np.random.get_state()[2] == state, "no seed is drawn where nothing is dropped"
    status, text = child("import attn; attn.sdpa([[1.0]], [[1.0]], [[3.0]]); print('torch' in sys.modules)")
    assert (status, text) == (0, "False\n"), text


def command(folder, text, **arrays):
    """Runs the command examples/attn.c in a folder, after saving arrays there: (exit status, what it said)."""
    for name, x in arrays.items():
        np.save(os.path.join(folder, name + ".npy"), x)
    done = subprocess.run([os.path.abspath(os.environ["ATTN_COMMAND"])] + text.split(), cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def test_command():
    """examples/attn.c on files of NumPy's, and what it says about files and options that it cannot take."""
    if "ATTN_COMMAND" not in os.environ:
        raise Skipped("ATTN_COMMAND does not name the program")
    with tempfile.TemporaryDirectory() as folder:
        load = lambda name: np.load(os.path.join(folder, name + ".npy"))
        run = lambda text, **arrays: command(folder, text, **arrays)
        q, k, v, allowed = draw(2, 3, 5, 8), draw(2, 3, 7, 8), draw(2, 3, 7, 4), RNG.random((3, 5, 7)) < 0.8
        said = run("q.npy k.npy v.npy --out o.npy --weights w.npy --lse l.npy --scores s.npy --mask m.npy --svg w.svg"
                   " --scale 0.5", q=q, k=np.asfortranarray(k), v=v.astype(">f4"), m=allowed)
        assert said == (0, ""), said
        want = attend(np.where(allowed, dots(q, k, 0.5), -np.inf), v)
        for name, x in zip("owl", want):
            near(name, load(name), x, 1e-4)
        near("scores", load("s"), dots(q, k, 0.5), 1e-5)
        picture = xml.etree.ElementTree.parse(os.path.join(folder, "w.svg")).getroot()
        assert picture.tag.endswith("svg") and "Queries" in "".join(picture.itertext())
        # fewer axes, and the other types
        batch = [x[:, 0] for x in (q, k, v)]
        assert run("q.npy k.npy v.npy --weights w.npy --mask m.npy --causal --align bottom-right --window 3,-1",
                   **dict(zip("qkv", (x.astype("float64") for x in batch))), m=allowed[:2])[0] == 0
        i, j = np.arange(5)[:, None] + 2, np.arange(7)
        near("without heads", load("w"), softmax(np.where(allowed[:2] & (j <= i) & (j >= i - 3), dots(
            *(x[:, None] for x in batch[:2]))[:, 0], -np.inf))[0], 1e-4)
        half = [x[0, 0].astype("float16") for x in (q, k, v)]
        assert run("q.npy k.npy v.npy --out o.npy --score gaussian --sigma 2", **dict(zip("qkv", half)))[0] == 0
        same("f16, one sequence", load("o"), attn.attention(*half, score="gaussian", sigma=2))
        assert run("- - v.npy --out o.npy --score given --given-scores s.npy", s=dots(q, k)[0, 0])[0] == 0
        near("given scores", load("o"), softmax(dots(q, k)[0, 0])[0] @ half[2].astype("float64"), 1e-4)
        # sequences of unequal length, side by side and as pages
        packed, starts, lengths = [x[:1, :, [0, 1, 2, 3, 4, 0, 1, 2]] for x in (k, k, v)], (0, 3), (3, 5)
        where = "--query-starts 0,3 --key-starts a.npy --query-lengths 3,5 --key-lengths l.npy"
        said = run("q.npy k.npy v.npy --out o.npy --causal --align top-left " + where,
                   **dict(zip("qkv", packed), a=np.array(starts), l=np.array(lengths, "int32")))
        assert said == (0, ""), said
        for n, m in zip(starts, lengths):
            part = [x[:, :, n:n + m] for x in packed]
            near("packed", load("o")[:, :, n:n + m], attend(np.where(np.tri(m, dtype=bool), dots(*part[:2]), -np.inf),
                                                            part[2])[0], 1e-4)
        pools = [np.ascontiguousarray(x[:, :, :6].reshape(2, 3, 3, 2, -1).transpose(0, 2, 1, 3, 4)).reshape(
            6, 3, 2, -1)[::-1] for x in (k, v)]
        said = run("q.npy k.npy v.npy --weights w.npy --page-table p.npy --key-lengths 6,4", q=q, k=pools[0],
                   v=pools[1], p=np.array([[5, 4, 3], [2, 1, 0]], "int32"))
        assert said == (0, ""), said
        near("pages", load("w"), softmax(np.where(np.arange(6) < np.reshape([6, 4], (2, 1, 1, 1)), dots(
            q, k[:, :, :6]), -np.inf))[0], 1e-4)
        # drawn, explained, refused
        run("q.npy k.npy v.npy --out o.npy", **dict(zip("qkv", half)))
        status, text = run("q.npy k.npy v.npy")
        assert status == 0 and "columns: Keys" in text and "@@" in text, text
        status, text = run("q.npy k.npy v.npy --explain")
        assert status == 0 and "5 queries x 7 keys" in text, text
        np.save(os.path.join(folder, "n.npy"), q.astype("complex64"))
        np.save(os.path.join(folder, "t.npy"), half[1][:, :7])
        with open(os.path.join(folder, "q.npy"), "rb") as whole, open(os.path.join(folder, "cut.npy"), "wb") as cut:
            cut.write(whole.read()[:-1])
        for arguments, code, words in (
                ("q.npy t.npy v.npy", 1, "k.size[3] must equal q.size[3]: 8, is 7"),
                ("q.npy none.npy v.npy", 1, "none.npy: No such file or directory"),
                ("n.npy k.npy v.npy", 1, "n.npy: a type"),
                ("cut.npy k.npy v.npy", 1, "cut.npy: the file ends too early"),
                ("w.svg k.npy v.npy", 1, "w.svg: no .npy file"),
                ("q.npy k.npy v.npy --scale x", 2, "--scale: x is not a number"),
                ("q.npy k.npy v.npy --score dots", 2, "--score: there is no dots"),
                ("q.npy k.npy v.npy --window 3", 2, "--window: 3 is not two whole numbers"),
                ("q.npy k.npy v.npy --out no/o.npy", 1, "no/o.npy: it cannot be written"),
                ("q.npy k.npy", 2, "three files are needed"), ("q.npy k.npy v.npy v.npy", 2, "one file too many"),
                ("q.npy k.npy v.npy --casual", 2, "there is no option --casual"),
                ("q.npy k.npy v.npy --out", 2, "--out: FILE is missing")):
            status, text = run(arguments)
            assert status == code and words in text, f"{arguments}: {status}, {text}"


def main(names, tests=globals()):
    failed = 0
    for name in names or [n[5:] for n in tests if n.startswith("test_")]:
        try:
            tests["test_" + name]()
            print(f"ok      python: {name}", flush=True)
        except Skipped as reason:
            print(f"skipped python: {name} ({reason})")
        except Exception:
            failed = 1
            print(f"FAILED  python: {name}\n" + re.sub("^", "        ", traceback.format_exc().rstrip(), flags=re.M))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
