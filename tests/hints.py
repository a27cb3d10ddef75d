"""A program that uses the package, as a type checker sees it and as it runs: tests/bindings.sh does both, mypy --strict
with a complaint expected where the line says so."""
from __future__ import annotations

import importlib.metadata
import os
import sys

import numpy as np
from numpy.typing import NDArray

import attn

Floats = NDArray[np.float32]


def draw(*shape: int) -> Floats:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def use() -> None:
    q, k, v = draw(2, 4, 5, 8), draw(2, 2, 7, 8), draw(2, 2, 7, 3)
    r = attn.forward(q, k, v, causal=True, align="bottom_right", window=(3, None), key_lengths=[7, 6], weights=True,
                     sink=np.zeros(4, np.float32), scale=None, threads=2)
    out: Floats = r.out
    w: Floats = r.weights
    g = attn.backward(r, d_out=np.ones_like(out), d_sink=True)
    d_sink: Floats = g.d_sink
    assert out.shape == g.dq.shape[:3] + (3,) and w.shape == (2, 4, 5, 7) and d_sink.shape == (4,)
    again: Floats = attn.sdpa(q, k, v, is_causal=True, enable_gqa=True, softcap=3.0)
    assert again.tobytes() == attn.attention(q, k, v, causal=True, align="top_left", softcap=3).tobytes()
    allowed: NDArray[np.bool_] = attn.mask((5, 7), causal=True, align="top_left")
    assert allowed.sum() == 15 and attn.softmax(draw(5, 7), mask=allowed).shape == (5, 7)
    codes, scale = attn.quantize(k)
    assert attn.attention(q, codes, v, k_scale=scale).dtype == np.float32
    cosines, sines = attn.rope_table(10, 8, base=5e5)
    assert attn.rope(q, cosines, sines, positions=[1, 2]).shape == q.shape
    assert attn.mha(q[0], draw(8, 8), draw(8, 8), draw(8, 8), heads=2, saved=True).out.shape == (4, 5, 8)
    assert attn.heatmap(w[0], title="weights").svg().startswith("<svg")
    try:
        attn.attention(q, k[..., :7], v)
    except attn.Error as error:
        field: str = error.field
        assert field == "k.size[3]"


def mistakes(q: Floats) -> None:
    attn.attention(q, q, q, casual=True)  # type: ignore[call-arg]
    attn.attention(q, q, q, align="top-left")  # type: ignore[arg-type]
    attn.attention(q, q, q, window=16)  # type: ignore[arg-type]
    attn.attention(q, q, q, attn_mask=q)  # type: ignore[call-arg]
    attn.sdpa(q, q, q, dropout_p="half")  # type: ignore[arg-type]
    text: str = attn.forward(q, q, q).out  # type: ignore[assignment]
    number: int = attn.explain(q, q, q)  # type: ignore[assignment]
    attn.rope_table(4, 8, scaling="yearn")  # type: ignore[arg-type]
    print(text, number)


if __name__ == "__main__":
    use()
    here = os.path.dirname(os.path.abspath(attn.__file__))
    assert here.startswith(sys.prefix), f"{here} is not in {sys.prefix}"
    assert importlib.metadata.version("attn-h") == attn.__version__ == ".".join(map(str, attn.version()))
    print("attn", attn.__version__, "uses", *(name for name in ("libattn.so", "attn.h")
                                             if os.path.exists(os.path.join(here, name))))
