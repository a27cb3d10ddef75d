"""attn.h for Python: attention on NumPy arrays and torch tensors, where they lie and without a copy.

    import numpy as np, attn
    q, k, v = (np.random.rand(2, 8, 100, 64).astype("float32") for _ in range(3))
    out = attn.attention(q, k, v, causal=True)              # the output
    r = attn.forward(q, k, v, causal=True, weights=True)    # several results: r.out, r.weights
    g = attn.backward(r, d_out=np.ones_like(r.out))         # g.dq, g.dk, g.dv
    attn.heatmap(r.weights[0])                              # a picture, inline in a notebook

SHAPES    q [B,H,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv]; without heads [B,S,D]; of one sequence [S,D]. Results have as
          many axes as q: weights are [B,H,Sq,Sk], [B,Sq,Sk] or [Sq,Sk], lse [B,H,Sq], [B,Sq] or [Sq].
ARRAYS    NumPy arrays and torch tensors in main memory, of any strides. float32, float16 and bfloat16 (torch's,
          ml_dtypes', or its bits as uint16); k, v and bmm's b also int8 with k_scale and v_scale; masks bool; lengths
          and positions int32 or int64. Lists and numbers become arrays of float32, int64 or bool; an array of another
          type is refused, for nothing is copied behind your back: x.astype("float32"). Results are of the kind and type
          of q; lse and stats are float32. New arrays hold zeros where a call writes nothing (rows of no sequence), lse
          minus infinity.
TORCH     attn.sdpa(q, k, v, is_causal=True) has the names of torch's scaled_dot_product_attention, and its place in
          torch's autograd and, from torch 2.4 on, in torch.compile (fullgraph=True, too), torch.func.grad and vmap. All
          other functions refuse a tensor that requires grad, except under torch.no_grad().
MODELS    attn.register_transformers() enters attn.h into Hugging Face transformers, as attn_implementation="attn".
DEVICES   sdpa, forward, attention, weights, scores, backward and explain take tensors on an NVIDIA GPU, too, all of a
          call there, masks and lengths included. It is enqueued on torch's current stream, and takes its memory from
          torch. The library with the kernels is the one that `make cuda-lib` builds: name it in ATTN_LIBRARY.
OPTIONS   every field of attn_desc under its name: attn.h says what it means. score="gaussian", align="bottom_right",
          empty="nan", isa="scalar", precision="fast" by their names in lower case; sigma: a number, or an array [H];
          window=(left, right), None where unbounded; threads: how many may run the call, else torch.get_num_threads()
          where torch is, else the processors of this process. A call of less than some 0.1 ms runs on one. The bits are
          the same.
RESULTS   out, lse, weights, scores, scores_softcap, scores_masked, stats: True makes an array, an array is written to.
ERRORS    attn.Error with the library's words: "k.size[3] must equal q.size[3]: 64, is 65".
FILES     pip install makes a package of this file, with attn.h and a library built from it. The file alone builds the
          library at the first import. ATTN_HEADER: attn.h, else beside this file or two folders above. ATTN_CACHE: the
          folder for what is built. CC: the compiler. ATTN_LIBRARY: a library that is there already, of this or a later
          version. attn_heatmap_html.h, the web page of a heatmap, lies beside this file or in ../web; without it all
          but Heatmap.html is there."""
# mypy: ignore-errors           (hints are for callers; inside, ctypes has none that would hold)
from __future__ import annotations

import base64
import ctypes
import difflib
import functools
import hashlib
import math
import operator
import os
import platform
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import zlib
from ctypes import (CFUNCTYPE, Structure, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p, sizeof)
from typing import TYPE_CHECKING, Any, Generic, Literal, Sequence, TypedDict, TypeVar, Union

import numpy as np

if TYPE_CHECKING:               # what hints need and a program does not
    from numpy.typing import NDArray
    from torch import Tensor    # type: ignore[import-not-found, unused-ignore]
    from typing_extensions import Unpack

    Array = Union[NDArray[Any], Tensor]
    Numbers = Union[Array, Sequence[Any], float, bool]
ArrayT = TypeVar("ArrayT", bound="Array")

__all__ = [
    "Error", "Heatmap", "Results", "alibi_slopes", "append", "attention", "backward", "best_isa", "bmm",
    "bmm_backward", "convert", "dropout_mask", "exp", "explain", "forward", "heatmap", "key_sums", "layout",
    "lengths_of", "log", "mask", "merge", "mha", "mha_backward", "quantize", "register_transformers", "rope",
    "rope_table", "scores", "sdpa", "softmax", "softmax_backward", "tanh", "version", "weights"]


def __dir__() -> list[str]:
    return __all__ + ["__all__", "__doc__", "__file__", "__name__", "__version__"]


# ---- written by ../bindings.py from attn.h
__version__ = "0.3.0"


class attn_error(Structure):
    _fields_ = [("status", c_int32), ("field", c_char_p), ("rule", c_char_p), ("got", c_int64), ("want", c_int64),
        ("has_numbers", c_int32), ("cuda", c_int32), ("place", c_int64 * 2), ("has_place", c_int32),
        ("has_type", c_int32), ("reserved2", c_int64)]


class attn_view(Structure):
    _fields_ = [("data", c_void_p), ("size", c_int64 * 4), ("stride", c_int64 * 4), ("type", c_int32),
        ("rank", c_int32)]


class attn_out(Structure):
    _fields_ = [("data", c_void_p), ("size", c_int64 * 4), ("stride", c_int64 * 4), ("type", c_int32),
        ("rank", c_int32)]


class attn_allocator(Structure):
    _fields_ = [("allocate", c_void_p), ("release", c_void_p), ("user", c_void_p)]


class attn_parallel(Structure):
    _fields_ = [("run", c_void_p), ("user", c_void_p), ("workers", c_int32)]


class attn_desc(Structure):
    _fields_ = [("struct_bytes", c_uint64), ("q", attn_view), ("k", attn_view), ("v", attn_view), ("out", attn_out),
        ("lse", attn_out), ("weights", attn_out), ("scores", attn_out), ("scores_softcap", attn_out),
        ("scores_masked", attn_out), ("score", c_int32), ("scale_set", c_int32), ("scale", c_float), ("sigma", c_float),
        ("sigma_per_head", attn_view), ("bilinear", attn_view), ("w_q", attn_view), ("w_k", attn_view),
        ("w_v", attn_view), ("hidden_bias", attn_view), ("given_scores", attn_view), ("softcap", c_float),
        ("bias", attn_view), ("alibi", attn_view), ("sink", attn_view), ("mask", attn_view), ("key_lengths", attn_view),
        ("query_lengths", attn_view), ("causal", c_int32), ("align", c_int32), ("positions", attn_view),
        ("window", c_int32), ("empty", c_int32), ("window_left", c_int64), ("window_right", c_int64),
        ("dropout", c_float), ("weights_after_dropout", c_int32), ("seed", c_uint64), ("dropout_origin", c_int64 * 4),
        ("isa", c_int32), ("reserved", c_int32), ("workspace", c_void_p), ("workspace_bytes", c_size_t),
        ("allocator", attn_allocator), ("parallel", attn_parallel), ("stats", attn_out), ("stream", c_void_p),
        ("k_scale", attn_view), ("v_scale", attn_view), ("precision", c_int32), ("reserved2", c_int32),
        ("query_starts", attn_view), ("key_starts", attn_view), ("page_table", attn_view), ("carry_in", attn_view),
        ("carry_out", attn_out), ("key_origin", c_int64), ("bias_index", attn_view)]


class attn_grad(Structure):
    _fields_ = [("struct_bytes", c_uint64), ("d_out", attn_view), ("d_weights", attn_view), ("d_lse", attn_view),
        ("dq", attn_out), ("dk", attn_out), ("dv", attn_out), ("d_given_scores", attn_out), ("d_bias", attn_out),
        ("d_bilinear", attn_out), ("d_w_q", attn_out), ("d_w_k", attn_out), ("d_w_v", attn_out),
        ("d_hidden_bias", attn_out), ("d_sigma", attn_out), ("d_scale", attn_out), ("d_sink", attn_out),
        ("d_alibi", attn_out), ("accumulate", c_uint32), ("reserved", c_int32), ("key_sums", attn_out),
        ("last_queries", c_int64)]


class attn_plan(Structure):
    _fields_ = [("workspace_bytes", c_size_t), ("phases", c_int32), ("isa", c_int32), ("tasks", c_int64 * 16),
        ("internal", c_int64 * 640)]


class attn_rope_desc(Structure):
    _fields_ = [("struct_bytes", c_uint64), ("base", c_double), ("scaling", c_int32), ("no_truncation", c_int32),
        ("factor", c_double), ("original_positions", c_int64), ("low_freq_factor", c_double),
        ("high_freq_factor", c_double), ("beta_fast", c_double), ("beta_slow", c_double),
        ("attention_factor", c_double), ("first_position", c_int64), ("factors", attn_view)]


class attn_mha_desc(Structure):
    _fields_ = [("struct_bytes", c_uint64), ("query", attn_view), ("key", attn_view), ("value", attn_view),
        ("w_query", attn_view), ("w_key", attn_view), ("w_value", attn_view), ("w_result", attn_view),
        ("b_query", attn_view), ("b_key", attn_view), ("b_value", attn_view), ("b_result", attn_view),
        ("out", attn_out), ("heads", c_int64), ("heads_kv", c_int64), ("attention", c_void_p), ("saved", c_void_p),
        ("saved_bytes", c_size_t)]


class attn_mha_grad(Structure):
    _fields_ = [("struct_bytes", c_uint64), ("d_out", attn_view), ("dquery", attn_out), ("dkey", attn_out),
        ("dvalue", attn_out), ("dw_query", attn_out), ("dw_key", attn_out), ("dw_value", attn_out),
        ("dw_result", attn_out), ("db_query", attn_out), ("db_key", attn_out), ("db_value", attn_out),
        ("db_result", attn_out), ("attention", c_void_p), ("accumulate", c_uint32), ("reserved", c_int32)]


class attn_writer(Structure):
    _fields_ = [("write", c_void_p), ("user", c_void_p)]


class attn_buffer(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t), ("length", c_size_t)]


class attn_heatmap(Structure):
    _fields_ = [("struct_bytes", c_uint64), ("values", attn_view), ("mask_of", c_void_p), ("title", c_char_p),
        ("x_label", c_char_p), ("y_label", c_char_p), ("x_ticks", c_void_p), ("y_ticks", c_void_p),
        ("panel_titles", c_void_p), ("colormap", c_int32), ("range_set", c_int32), ("range_min", c_float),
        ("range_max", c_float), ("width", c_int32), ("height", c_int32), ("ticks_on_top", c_int32),
        ("no_colorbar", c_int32), ("numbers", c_int32), ("terminal", c_int32), ("cell_titles", c_int32),
        ("mask", attn_view)]


class OptionsButScale(TypedDict, total=False):
    score: Literal["scaled_dot", "dot", "cosine", "bilinear", "additive", "gaussian", "boxcar", "epanechnikov",
        "triangular", "constant", "given"] | None
    sigma: Numbers | None
    sigma_per_head: Numbers | None
    bilinear: Numbers | None
    w_q: Numbers | None
    w_k: Numbers | None
    w_v: Numbers | None
    hidden_bias: Numbers | None
    given_scores: Numbers | None
    softcap: float | None
    bias: Numbers | None
    alibi: Numbers | None
    sink: Numbers | None
    mask: Numbers | None
    key_lengths: Numbers | None
    query_lengths: Numbers | None
    causal: bool | None
    align: Literal["unset", "bottom_right", "positions", "top_left"] | None
    positions: Numbers | None
    window: tuple[int | None, int | None] | None
    empty: Literal["zero", "nan", "uniform"] | None
    window_left: int | None
    window_right: int | None
    dropout: float | None
    weights_after_dropout: bool | None
    seed: int | None
    dropout_origin: Sequence[int] | None
    isa: Literal["auto", "scalar", "avx2", "avx512", "neon", "portable", "relaxed"] | None
    k_scale: Numbers | None
    v_scale: Numbers | None
    precision: Literal["f32", "fast"] | None
    query_starts: Numbers | None
    key_starts: Numbers | None
    page_table: Numbers | None
    carry_in: Numbers | None
    key_origin: int | None
    bias_index: Numbers | None
    threads: int | None


class Options(OptionsButScale, total=False):
    scale: float | None


class OptionsAndResults(Options, total=False):
    lse: bool | Array | None
    weights: bool | Array | None
    scores: bool | Array | None
    scores_softcap: bool | Array | None
    scores_masked: bool | Array | None
    stats: bool | Array | None
    carry_out: bool | Array | None


ENUMS = {
    "attn_status": {"ok": 0, "err_null": 1, "err_type": 2, "err_rank": 3, "err_size": 4, "err_stride": 5,
        "err_range": 6, "err_option": 7, "err_overflow": 8, "err_overlap": 9, "err_workspace": 10, "err_alloc": 11,
        "err_isa": 12, "err_write": 13, "err_place": 14, "err_cuda": 15},
    "attn_type": {"f32": 0, "f16": 1, "bf16": 2, "f64": 3, "u8": 4, "i32": 5, "i64": 6, "i8": 7},
    "attn_score": {"scaled_dot": 0, "dot": 1, "cosine": 2, "bilinear": 3, "additive": 4, "gaussian": 5, "boxcar": 6,
        "epanechnikov": 7, "triangular": 8, "constant": 9, "given": 10},
    "attn_align": {"unset": 0, "bottom_right": 1, "positions": 2, "top_left": 3},
    "attn_empty": {"zero": 0, "nan": 1, "uniform": 2},
    "attn_isa": {"auto": 0, "scalar": 1, "avx2": 2, "avx512": 3, "neon": 4, "portable": 5, "relaxed": 6},
    "attn_precision": {"f32": 0, "fast": 1},
    "attn_grad_bit": {"q": 1, "k": 2, "v": 4, "given_scores": 8, "bias": 16, "bilinear": 32, "w_q": 64, "w_k": 128,
        "w_v": 256, "hidden_bias": 512, "sigma": 1024, "scale": 2048, "sink": 4096, "alibi": 8192, "all": 16383},
    "attn_rope_scaling": {"plain": 0, "linear": 1, "ntk": 2, "yarn": 3, "llama3": 4},
    "attn_function": {"exp": 0, "log": 1, "tanh": 2},
    "attn_colormap": {"reds": 0, "viridis": 1, "grey": 2, "diverging": 3},
    "attn_terminal": {"truecolor": 0, "256": 1, "ascii": 2},
}
FUNCTIONS = {  # result, parameters
    "attn_view_f32": (attn_view, [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "attn_view_u8": (attn_view, [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "attn_view_i32": (attn_view, [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "attn_view_i64": (attn_view, [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "attn_out_f32": (attn_out, [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "attn_out_u8": (attn_out, [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "attn_view_typed": (attn_view, [c_int, c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "attn_out_typed": (attn_out, [c_int, c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "attn_view_bhsd": (attn_view, [c_void_p, c_int64, c_int64, c_int64, c_int64]),
    "attn_view_bshd": (attn_view, [c_void_p, c_int64, c_int64, c_int64, c_int64]),
    "attn_out_bhsd": (attn_out, [c_void_p, c_int64, c_int64, c_int64, c_int64]),
    "attn_out_bshd": (attn_out, [c_void_p, c_int64, c_int64, c_int64, c_int64]),
    "attn_view_qkv": (attn_view, [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "attn_view_rows": (attn_view, [c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64]),
    "attn_out_rows": (attn_out, [c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64]),
    "attn_view_slice": (attn_view, [attn_view, c_int, c_int64, c_int64]),
    "attn_out_slice": (attn_out, [attn_out, c_int, c_int64, c_int64]),
    "attn_view_swap": (attn_view, [attn_view, c_int, c_int]),
    "attn_view_of": (attn_view, [attn_out]),
    "attn_forward": (c_int, [c_void_p, c_void_p]),
    "attn_workspace_size": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attn_plan_forward": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attn_task": (None, [c_void_p, c_void_p, c_int32, c_int64, c_int32]),
    "attn_backward": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attn_backward_workspace_size": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "attn_plan_backward": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "attn_explain_backward": (c_size_t, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "attn_key_sums": (c_int, [c_void_p, c_int64, attn_out, c_void_p]),
    "attn_key_sums_workspace_size": (c_int, [c_void_p, c_int64, attn_out, c_void_p, c_void_p]),
    "attn_softmax_backward": (c_int, [attn_view, attn_view, attn_out, c_void_p, c_void_p]),
    "attn_softmax_backward_workspace_size": (c_int, [attn_view, attn_view, attn_out, c_void_p, c_void_p, c_void_p]),
    "attn_bmm_backward": (c_int, [attn_view, attn_view, attn_view, attn_out, attn_out, c_uint32, c_void_p, c_void_p]),
    "attn_bmm_backward_workspace_size": (c_int, [attn_view, attn_view, attn_view, attn_out, attn_out, c_void_p,
        c_void_p, c_void_p]),
    "attn_explain": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "attn_softmax": (c_int, [attn_view, attn_out, c_void_p, c_void_p]),
    "attn_softmax_workspace_size": (c_int, [attn_view, attn_out, c_void_p, c_void_p, c_void_p]),
    "attn_scores": (c_int, [attn_view, attn_view, attn_out, c_void_p, c_void_p]),
    "attn_mask": (c_int, [attn_out, c_void_p, c_void_p]),
    "attn_dropout_mask": (c_int, [attn_out, c_void_p, c_void_p]),
    "attn_merge": (c_int, [attn_view, attn_view, attn_view, attn_view, attn_out, attn_out, c_void_p]),
    "attn_merge_with": (c_int, [attn_view, attn_view, attn_view, attn_view, attn_out, attn_out, c_void_p, c_void_p]),
    "attn_bmm": (c_int, [attn_view, attn_view, attn_out, c_void_p, c_void_p]),
    "attn_bmm_workspace_size": (c_int, [attn_view, attn_view, attn_out, c_void_p, c_void_p, c_void_p]),
    "attn_convert": (c_int, [attn_view, attn_out, c_void_p]),
    "attn_convert_with": (c_int, [attn_view, attn_out, c_void_p, c_void_p]),
    "attn_quantize": (c_int, [attn_view, attn_out, attn_out, c_void_p]),
    "attn_quantize_with": (c_int, [attn_view, attn_out, attn_out, c_void_p, c_void_p]),
    "attn_unpack_q8_0": (c_int, [c_void_p, attn_out, attn_out, c_void_p]),
    "attn_lengths_of": (c_int, [attn_view, attn_out, c_void_p]),
    "attn_append": (c_int, [attn_view, attn_out, attn_view, c_void_p, c_void_p]),
    "attn_rope": (c_int, [attn_view, attn_view, attn_view, attn_view, c_uint32, attn_out, c_void_p]),
    "attn_rope_with": (c_int, [attn_view, attn_view, attn_view, attn_view, c_uint32, attn_out, c_void_p, c_void_p]),
    "attn_rope_table": (c_int, [attn_out, attn_out, c_void_p, c_void_p]),
    "attn_alibi_slopes": (c_int, [attn_out, c_void_p]),
    "attn_mha": (c_int, [c_void_p, c_void_p]),
    "attn_mha_workspace_size": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attn_mha_saved_size": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attn_mha_backward": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attn_mha_backward_workspace_size": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "attn_status_string": (c_char_p, [c_int]),
    "attn_error_string": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "attn_best_isa": (c_int, []),
    "attn_isa_string": (c_char_p, [c_int]),
    "attn_score_string": (c_char_p, [c_int]),
    "attn_enable_amx": (c_int, [c_void_p]),
    "attn_version": (c_int32, []),
    "attn_layout": (c_size_t, [c_void_p, c_size_t]),
    "attn_elementary": (c_int, [c_int, c_void_p, c_void_p, c_int64, c_int]),
    "attn_buffer_writer": (attn_writer, [c_void_p]),
    "attn_heatmap_ansi": (c_int, [c_void_p, attn_writer, c_void_p]),
    "attn_heatmap_svg": (c_int, [c_void_p, attn_writer, c_void_p]),
    "attn_heatmap_ppm": (c_int, [c_void_p, attn_writer, c_void_p]),
}
# ---- up to here
FUNCTIONS["attn_heatmap_html"] = FUNCTIONS["attn_heatmap_svg"]     # of attn_heatmap_html.h


class Error(ValueError):
    """What attn.h refuses. status: "err_size"; field: "k.size[3]"; rule: "must equal q.size[3]"; got, want: numbers;
    place: the indices of the element, or None."""

    def __init__(self, error: attn_error, arrays: dict[str, Any] | None = None) -> None:
        self.field = error.field.decode()
        text, self.rule = (_in_python(said).replace(self.field + '="', '"') for said in
                           (_text(lib.attn_error_string, byref(error)), error.rule.decode()))
        wrong = (arrays or {}).get(self.field.partition(".")[0])
        if error.has_type and wrong is not None:        # bool and uint8 are one type to the library
            text = text.rpartition(", is ")[0] + ", is " + _dtype(wrong)
        super().__init__(text)
        self.status = list(ENUMS["attn_status"])[error.status]
        self.got, self.want = (error.got, error.want) if error.has_numbers else (None, None)
        self.place = tuple(error.place[:error.has_place]) if error.has_place else None


def _text(function, *arguments):
    """What a function of the library writes into a buffer."""
    text = ctypes.create_string_buffer(function(*arguments, None, 0) + 1)
    function(*arguments, text, len(text))
    return text.value.decode()


_CHOICES = {"attn_score": "score", "attn_align": "align", "attn_empty": "empty", "attn_isa": "isa",
            "attn_precision": "precision", "attn_rope_scaling": "scaling", "attn_colormap": "colormap",
            "attn_terminal": "terminal"}


def _in_python(text):
    """C's names of choices as Python says them: align="top_left" for ATTN_ALIGN_TOP_LEFT, float32 for ATTN_F32."""
    words = {"ATTN_" + short.upper(): long for long, short in reversed(_TYPES.items())}
    words["ATTN_PART_KEYS"] = "256"
    for enum, names in ENUMS.items():
        if enum in _CHOICES:
            prefix = enum.replace("_scaling", "").upper()
            words.update({f"{prefix}_{name.upper()}": f'{_CHOICES[enum]}="{name}"' for name in names})
    return re.sub(r"ATTN_\w+", lambda found: words.get(found.group(), found.group()), text)


# ---- the library: that of the package, or built from the header; and held against what is written above
_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGED = os.path.join(_HERE, "libattn.so")       # hatch_build.py puts it there


def _header():
    places = [os.environ.get("ATTN_HEADER"), os.path.join(_HERE, "attn.h"), os.path.join(_HERE, "..", "..", "attn.h")]
    for path in filter(None, places):
        if os.path.isfile(path):
            return path
    raise ImportError("attn.h is neither beside attn.py nor two folders above: name it in ATTN_HEADER")


def _headers():
    """attn.h, and the web page of a heatmap where it is."""
    page = "attn_heatmap_html.h"
    places = [os.path.join(_HERE, page), os.path.join(_HERE, "..", "web", page)]
    return [_header()] + [path for path in places if os.path.isfile(path)][:1]


def _cache():
    default = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("ATTN_CACHE") or os.path.join(default, "attn")


# Compiled beside the header: threads that wait for the tasks of a call, which runs some of them itself. They are there
# for one call at a time; a call that comes meanwhile, from another thread of Python's, runs its own tasks alone.
_THREADS = r"""
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

typedef void (*task_fn)(void *arg, int64_t index, int32_t worker);
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    task_fn task;
    void *arg;
    int64_t next, count, unfinished; /* index to hand out next, how many there are, how many still run or wait */
    int32_t threads, workers;        /* how many threads wait; how many may work on this call, its own among them */
    int busy;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 0, 0, 0, 0};

static void take_tasks(int32_t worker) { /* called and left with the lock held */
    while (pool.next < pool.count) {
        const int64_t index = pool.next++;
        pthread_mutex_unlock(&pool.lock);
        pool.task(pool.arg, index, worker);
        pthread_mutex_lock(&pool.lock);
        if (--pool.unfinished == 0) pthread_cond_signal(&pool.done);
    }
}

static void *work(void *number) {
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        if ((intptr_t)number < pool.workers) take_tasks((int32_t)(intptr_t)number);
        pthread_cond_wait(&pool.wake, &pool.lock);
    }
    return 0;
}

#ifndef _WIN32
static void forget(void) { /* a child has none of the threads */
    pthread_mutex_init(&pool.lock, 0);
    pthread_cond_init(&pool.wake, 0);
    pthread_cond_init(&pool.done, 0);
    pool.threads = pool.workers = pool.busy = 0;
    pool.next = pool.count = 0;
}
#endif

static void start(int32_t threads) { /* as many as can be had; signals stay with Python's own */
#ifndef _WIN32
    static int watched;
    sigset_t all, old;
    if (!watched) watched = pthread_atfork(0, 0, forget) == 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
#endif
    pthread_t thread;
    while (pool.threads < threads && pthread_create(&thread, 0, work, (void *)(intptr_t)(pool.threads + 1)) == 0) {
        pthread_detach(thread);
        pool.threads++;
    }
#ifndef _WIN32
    pthread_sigmask(SIG_SETMASK, &old, 0);
#endif
}

void attn_python_run(void *workers, int64_t count, task_fn task, void *arg) { /* attn_parallel.run */
    int64_t i;
    pthread_mutex_lock(&pool.lock);
    if (pool.busy) {
        pthread_mutex_unlock(&pool.lock);
        for (i = 0; i < count; i++) task(arg, i, 0);
        return;
    }
    pool.busy = 1;
    start((int32_t)(intptr_t)workers - 1);
    pool.task = task, pool.arg = arg, pool.next = 0, pool.count = pool.unfinished = count;
    pool.workers = (int32_t)(intptr_t)workers;
    pthread_cond_broadcast(&pool.wake);
    take_tasks(0);
    while (pool.unfinished > 0) pthread_cond_wait(&pool.done, &pool.lock);
    pool.busy = 0;
    pthread_mutex_unlock(&pool.lock);
}
"""


def _built(headers=()):
    """The path of the library of headers and the threads, or of those alone. Its name has a hash of all and of the
    command, so that a change of any builds."""
    command = shlex.split(os.environ.get("CC", "cc")) + ["-O2", "-shared", "-fPIC", "-pthread", "-x", "c",
                                                        "-DATTN_IMPLEMENTATION", "-DATTN_HEATMAP_HTML_IMPLEMENTATION"]
    key = hashlib.sha256((_THREADS + " ".join(command + [platform.machine(), sys.platform])).encode())
    for header in headers:
        with open(header, "rb") as file:
            key.update(file.read())
    path = os.path.join(_cache(), f"libattn-{key.hexdigest()[:16]}.{'dll' if os.name == 'nt' else 'so'}")
    if os.path.exists(path):
        return path
    try:
        os.makedirs(_cache(), exist_ok=True)
        room = tempfile.TemporaryDirectory(dir=_cache())
    except OSError as error:
        raise ImportError(f"attn.py builds attn.h in the folder {_cache()}, which cannot be written to "
                          f"({error.strerror}): name another in ATTN_CACHE") from None
    with room as folder:
        fresh, source = os.path.join(folder, os.path.basename(path)), os.path.join(folder, "library.c")
        with open(source, "w", errors="surrogateescape") as file:   # a path may be no text
            for header in headers:                                  # of these the second has pictures alone
                include = f'#include "{os.path.abspath(header)}"\n'
                file.write(include if header == headers[0] else f"#ifndef ATTN_NO_HEATMAP\n{include}#endif\n")
            file.write(_THREADS)
        command += [source, "-o", fresh, "-lm"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except OSError as error:
            raise ImportError(f"attn.py builds attn.h with the C compiler '{command[0]}', which does not run "
                              f"({error.strerror}): install one, or name another in CC") from None
        if done.returncode:
            raise ImportError(f"'{command[0]}' could not build attn.h: {shlex.join(command)}\n{done.stdout[-2000:]}")
        os.replace(fresh, path)     # another process may build the same at the same time
    return path


def layout() -> dict[str, tuple[int, dict[str, tuple[int, int]]]]:
    """The library's own structures, from attn_layout: {structure: (size, {field: (offset, size)})}."""
    found = {}
    for line in _text(lib.attn_layout).splitlines():
        name, *numbers = line.split()
        if line.startswith(" "):
            fields[name] = tuple(map(int, numbers))
        else:
            fields = {}
            found[name] = (int(numbers[0]), fields)
    return found


def _check_layout():
    for name, (size, fields) in layout().items():
        ours = globals().get(name)
        if ours is None:
            continue                                        # of a later version
        grows = ours._fields_[0][0] == "struct_bytes"       # it says how much is there, so more may follow
        if sizeof(ours) > size or (sizeof(ours) < size and not grows):
            raise ImportError(f"the library's {name} has {size} bytes, that of attn.py {sizeof(ours)}: build it anew")
        for field, place in fields.items():
            mine = getattr(ours, field, None)
            if (mine is None and not grows) or (mine is not None and (mine.offset, mine.size) != place):
                raise ImportError(f"{name}.{field} lies elsewhere in the library: run bindings.py on its header")


def _opened():
    named = os.environ.get("ATTN_LIBRARY")
    if not named and not os.environ.get("ATTN_HEADER") and os.path.exists(_PACKAGED):
        try:
            return ctypes.CDLL(_PACKAGED)
        except OSError:
            pass                                    # of another system: what is built here will do
    return ctypes.CDLL(named or _built(_headers()))


def _declared(loaded):
    for name, (result, inside) in FUNCTIONS.items():
        if hasattr(loaded, name):       # a library may leave out gradients and pictures
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, inside
    return loaded


lib = _declared(_opened())
_check_layout()


def _call(name, *arguments):
    error = attn_error()
    if getattr(lib, name)(*arguments, byref(error)):
        arrays = {}
        for argument in arguments:
            arrays.update(getattr(getattr(argument, "_obj", argument), "kept", {}))
        raise Error(error, arrays)


# ---- arrays: NumPy's and torch's, as views of what they hold
_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint16": "bf16", "float64": "f64", "bool": "u8",
          "uint8": "u8", "int32": "i32", "int64": "i64", "int8": "i8"}


def _is_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _check_array(name, x):
    """Refuses an array of which something would be lost without a word: its gradient or tangent, mask or sign."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError(f"{name}: a masked array, whose mask would be lost: give {name}.filled(0), say, and the "
                            "option mask, True where a query may attend to a key")
    elif x.requires_grad and torch.is_grad_enabled():
        raise TypeError(f"{name} requires grad, which would be lost, as torch's autograd does not see this function: "
                        f"use attn.sdpa, or {name}.detach()")
    elif torch.autograd.forward_ad.unpack_dual(x).tangent is not None:
        raise TypeError(f"{name} carries a tangent, which would be lost: attn.h has no forward-mode derivatives")
    elif x.is_neg():
        raise TypeError(f"{name}: torch has only noted that its numbers are negated: give {name}.resolve_neg()")


def _is_on_device(x):
    return _is_torch(x) and x.device.type == "cuda"


def _stream(x):
    """torch's current stream on the device of a tensor, as a cudaStream_t."""
    return sys.modules["torch"].cuda.current_stream(x.device).cuda_stream


def _check_device(name, x, taken):
    """Refuses a tensor that does not lie where it can be used; taken: also on a device."""
    on_device = taken and _is_on_device(x)
    if x.layout is not sys.modules["torch"].strided or not (on_device or x.is_cpu):
        raise TypeError(f"{name}: {'this binding' if taken else 'this function'} takes dense tensors in main memory, "
                        f"not {x.layout} on {x.device}")
    if on_device and not hasattr(lib, "attn_cuda_prepare"):
        raise TypeError(f"{name} lies on {x.device}, for which this library has no kernels: name one that has them, "
                        "which `make cuda-lib` builds, in ATTN_LIBRARY")


def _is_array(x):
    return _is_torch(x) or isinstance(x, np.ndarray)


def _array(x):
    """x itself where it is an array; a list or a number as one."""
    if _is_array(x):
        return x
    x = np.asarray(x)
    return np.atleast_1d(x.astype({"f": "float32", "i": "int64"}.get(x.dtype.kind, x.dtype)))


def _dtype(x):
    return str(x.dtype).replace("torch.", "") if _is_torch(x) else x.dtype.name


@functools.lru_cache(maxsize=64)
def _type_of(dtype):
    """The attn_type of a dtype of NumPy or torch, or None."""
    name = _TYPES.get(dtype.name if isinstance(dtype, np.dtype) else str(dtype).replace("torch.", ""))
    return None if name is None else ENUMS["attn_type"][name]


def _view(name, x, kind=None, absent=(), device=False):
    """The attn_view of an array, or the attn_out: of one with more axes, of size 1, at the places `absent`. device: it
    may lie on one."""
    kind = kind or attn_view
    if not _is_array(x):
        raise TypeError(f"{name}: an array is needed, not {x!r:.60}" + (", for it is written to" * (kind is attn_out)))
    _check_array(name, x)
    element = _type_of(x.dtype)
    if element is None:
        raise TypeError(f"{name}: attn.h has no type {_dtype(x)}")
    if not isinstance(x, np.ndarray):
        _check_device(name, x, device)
        try:
            data, strides = x.data_ptr(), list(x.stride())
        except RuntimeError:
            raise TypeError(f"{name} is one of the tensors that stand for others within torch.func and torch.compile, "
                            "which attn.sdpa takes, and no other function does") from None
    else:
        if not x.dtype.isnative or not x.flags.aligned or any(n % x.itemsize for n in x.strides):
            raise TypeError(f"{name}: its numbers must be aligned and in the byte order of this machine")
        if kind is attn_out and not x.flags.writeable:
            raise TypeError(f"{name}: the array is read-only")
        data, strides = x.ctypes.data, [n // x.itemsize for n in x.strides]
    sizes = list(x.shape)
    for place in absent:
        sizes.insert(place, 1)
        strides.insert(place, 0)
    if not 1 <= len(sizes) <= 4:
        raise TypeError(f"{name}: attn.h takes 1 to 4 axes, not {len(sizes)}")
    view = kind(type=element, rank=len(sizes), data=data)
    view.size[:len(sizes)], view.stride[:len(sizes)] = sizes, strides
    view.kept = {name: x}           # it lives as long as the view
    return view


def _new(like, shape, dtype=None):
    """A new array of the kind and type of `like`, or of another type. It holds zeros, since the library writes no row
    that belongs to no entry."""
    if _is_torch(like):
        return like.new_zeros(tuple(shape), dtype=getattr(sys.modules["torch"], dtype) if dtype else like.dtype)
    return np.zeros(tuple(shape), dtype or like.dtype)


def _once(x):
    """What is broadcast in x, once."""
    return x[tuple(slice(0, 1) if n == 0 else slice(None) for n in (x.stride() if _is_torch(x) else x.strides))]


def _copy(x):
    """An array that later changes of x do not reach; what is broadcast lies in it once, as in x."""
    return _once(x).clone().expand(x.shape) if _is_torch(x) else np.broadcast_to(_once(x).copy(), x.shape)


# Axes of what follows q's number of axes: without batch or heads those letters are not there.
_AXES = {"q": "BHQD", "k": "BKSE", "v": "BKSV", "given_scores": "BHQS", "out": "BHQV", "lse": "BHQ", "stats": "BHQ2",
         "weights": "BHQS", "scores": "BHQS", "scores_softcap": "BHQS", "scores_masked": "BHQS", "mask": "BHQS",
         "bias": "BHQS", "k_scale": "BKS1", "v_scale": "BKS1", "carry_in": "BHQC", "carry_out": "BHQC", "x": "BHSD",
         "fresh": "BKSD", "cache": "BKSD", "key_sums": "BHS"}
_LEFT_OUT = {4: (), 3: (1,), 2: (0, 1)}
_NO_MASS = {"lse": ..., "stats": (..., 0), "carry_out": (..., -2)}   # f32; where a row without mass has -inf


def _of_grad(name):
    """The field of attn_desc, or of attn_mha_desc, that a gradient belongs to: d_bias is bias's, dq is q's."""
    return name[2:] if name.startswith("d_") else name[1:]


def _absent(name, x, axes):
    """Which axes the array of that field lacks, where q has so many."""
    letters = _AXES.get(name, _AXES.get(_of_grad(name), ""))
    missing = _LEFT_OUT.get(axes, ())
    return missing if letters and np.ndim(x) == len(letters) - len(missing) else ()


class Results(Generic[ArrayT]):
    """Arrays by the names that attn.h has for them."""

    def __init__(self, arrays, axes=4, **kept):
        self.__dict__.update(arrays)
        self._names, self._axes, self._kept = tuple(arrays), axes, kept

    def __getattr__(self, name: str) -> ArrayT:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"{name} is not among the results, which are {', '.join(self._names)}: {name}=True asks "
                             "for it")

    def __dir__(self):
        return self._names

    def __repr__(self) -> str:
        return "Results(%s)" % ", ".join(f"{name} {list(getattr(self, name).shape)}" for name in self._names)


_OPTIONS = list(OptionsButScale.__annotations__) + ["scale"]
_VIEWS = {name for name, kind in attn_desc._fields_ if kind is attn_view}
_RESULTS = [name for name, kind in attn_desc._fields_ if kind is attn_out]
_ELSEWHERE = {  # what other libraries call an option
    "attn_mask": "mask (bool) or bias (added to the scores)", "is_causal": "causal, with align where Sq != Sk",
    "dropout_p": "dropout", "softmax_scale": "scale", "enable_gqa": "in the shapes: k and v may have fewer heads",
    "key_padding_mask": "key_lengths, or mask with True where a query may attend", "window_size": "window",
    "alibi_slopes": "alibi", "logits_soft_cap": "softcap", "cu_seqlens_q": "query_starts, with query_lengths",
    "cu_seqlens_k": "key_starts, with key_lengths", "block_table": "page_table", "cache_seqlens": "key_lengths"}


def _unknown(kind, name, known):
    """The error for a name that attn.h does not have, with the one that is meant."""
    close = difflib.get_close_matches(name, known, 1)
    meant = f"that is {_ELSEWHERE[name]}" if name in _ELSEWHERE else f"is {close[0]} meant?" if close else ""
    return TypeError(f"attn.h has no {kind} {name!r}" + (": " + meant if meant else ""))


def _set_number(structure, name, value):
    """Sets a number that the field holds whole."""
    try:
        setattr(structure, name, value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is not a number of its kind") from None
    got = getattr(structure, name)
    if isinstance(got, int) and got != value:
        bits = 8 * getattr(type(structure), name).size
        raise ValueError(f"{name}: {value} does not fit into the {bits} bits of attn.h")


class _Descriptor:
    """attn_desc from arrays and options; it keeps what the structure points to."""

    def __init__(self, arrays=(), axes=4, recorded=False, **options):
        """recorded: backward reads the options again, so that those which say what is read where are copied."""
        self.recorded, self.threads = recorded, None
        arrays = {name: _array(x) for name, x in dict(arrays).items() if x is not None}
        if options.get("given_scores") is not None:
            options["given_scores"] = _array(options["given_scores"])
        first = arrays.get("q", options.get("given_scores"))
        self.c, self.kept = attn_desc(struct_bytes=sizeof(attn_desc)), {}
        self.c.kept = self.kept
        self.axes = axes if first is None else len(first.shape)
        for name, x in arrays.items():
            self.set_view(name, x)
        for name, value in options.items():
            if name not in _OPTIONS:
                raise _unknown("option", name, _OPTIONS)
            if value is not None:
                self.set_option(name, value)

    def set_view(self, name, x):
        x = _array(x)
        if self.recorded and _dtype(x) in ("bool", "uint8", "int32", "int64"):
            _check_array(name, x)       # before: a copy has no mask
            if _is_torch(x):
                _check_device(name, x, True)
            x = _copy(x)
        self.kept[name] = x
        setattr(self.c, name, _view(name, x, absent=_absent(name, x, self.axes), device=True))
        if _is_on_device(x):
            self.c.stream = _stream(x)

    def set_option(self, name, value):
        if name == "threads":
            self.set_threads(value)
        elif name == "window":
            self.set_window(value)
        elif name == "sigma" and np.ndim(value):
            self.set_view("sigma_per_head", value)
        elif name in _VIEWS:
            self.set_view(name, value)
        elif name == "dropout_origin":
            if np.shape(value) != (4,):
                raise TypeError(f"dropout_origin: {value!r} is not four numbers, of batch entry, head, query and key")
            try:
                self.c.dropout_origin[:] = [operator.index(n) for n in value]
            except TypeError:
                raise TypeError(f"dropout_origin: {value!r} are not all whole numbers") from None
        else:
            self.set_number(name, value)

    def set_number(self, name, value):
        if isinstance(value, str):
            names = ENUMS.get("attn_" + name)
            if names is None:
                raise TypeError(f"{name}: a number is needed, not {value!r}")
            if value not in names:
                raise ValueError(f"{name}: {value!r} is none of {', '.join(names)}")
            value = names[value]
        if _is_torch(value) or isinstance(value, (np.ndarray, np.generic)):
            _check_array(name, value)
            if value.size != 1 if isinstance(value, (np.ndarray, np.generic)) else value.numel() != 1:
                raise TypeError(f"{name}: one number is needed, not an array {list(value.shape)}")
            value = value.item()
        _set_number(self.c, name, value)
        if name == "scale":
            self.c.scale_set = 1

    def set_window(self, pair):
        if np.shape(pair) != (2,):
            n = pair if isinstance(pair, int) and pair > 1 else 16
            raise TypeError(f"window: {pair!r} is not a pair, how many keys to the left and to the right of its own a "
                            f"query may attend to, None where unbounded: ({n}, {n}) are {n} on either side, "
                            f"({n - 1}, 0) the last {n} up to its own")
        self.c.window = 1
        for name, n in zip(("window_left", "window_right"), pair):
            _set_number(self.c, name, -1 if n is None else n)

    def set_threads(self, workers):
        if not hasattr(workers, "__index__"):
            raise TypeError(f"threads: a number is needed, not {workers!r}")
        if not 1 <= workers <= _MOST_THREADS:
            raise ValueError(f"threads: must be within 1..{_MOST_THREADS}, is {workers}")
        self.threads = operator.index(workers)

    def work(self):
        """The multiply-adds of attention: for each key, and how many keys the arrays have."""
        sizes = self.sizes()
        numbers = sizes.get("D", 1) + sizes.get("V", 0) + 8 * self.c.w_v.size[0]
        return sizes.get("B", 0) * sizes.get("H", 0) * sizes.get("Q", 0) * numbers, sizes.get("S", 0)

    def sizes(self):
        """What the letters of the axes stand for."""
        sizes = {"1": 1, "2": 2}
        for name in ("v", "k", "q", "given_scores"):    # the batch is that of the queries: keys may be packed, or pages
            view = getattr(self.c, name)
            if view.rank:
                sizes.update(zip(_AXES[name], view.size))
        if self.c.page_table.rank and "S" in sizes:
            sizes["S"] *= self.c.page_table.size[1]
        if "V" in sizes:
            sizes["C"] = sizes["V"] + 2
        return sizes

    def add_results(self, wanted, sizes=None):
        """Arrays for the results that are wanted: those that are given, or new ones."""
        arrays, sizes = {}, sizes or self.sizes()
        like = next((self.kept[name] for name in ("q", "given_scores") if name in self.kept), None)
        for name, value in wanted.items():
            if value is None or value is False:
                continue
            if value is True:
                letters = [c for n, c in enumerate(_AXES[name]) if n not in _LEFT_OUT.get(self.axes, ())]
                missing = [c for c in letters if c not in sizes]
                if missing:
                    raise TypeError(f"{name} needs {'v' if set('VC') & set(missing) else 'q and k'}")
                value = _new(like, [sizes[c] for c in letters], "float32" if name in _NO_MASS else None)
                if name in _NO_MASS:
                    value[_NO_MASS[name]] = -np.inf
            arrays[name] = self.kept[name] = value
            setattr(self.c, name, _view(name, value, attn_out, _absent(name, value, self.axes), device=True))
        return arrays

    def run(self, name, *structures):
        """Calls that function. On a device the workspace is taken from torch, which keeps memory for what follows on
        the stream; attn.h would ask the CUDA runtime each time."""
        like = next((x for x in self.kept.values() if _is_on_device(x)), None)
        if like is not None:
            size = c_size_t()
            _call("attn_workspace_size" if name == "attn_forward" else name + "_workspace_size", byref(self.c),
                  *structures, byref(size))
            room = like.new_empty(size.value, dtype=sys.modules["torch"].uint8)
            self.c.workspace, self.c.workspace_bytes = room.data_ptr() if size.value else None, size.value
        try:
            self.call(name, byref(self.c), *structures, work=0 if like is not None else (
                _work(*self.work(), self.kept.get("key_lengths")) * (1 + 1.5 * len(structures))))
        finally:
            self.c.workspace, self.c.workspace_bytes = None, 0

    def call(self, name, *arguments, work=0):
        """Calls that function, of so many multiply-adds, with arguments of which one is this descriptor."""
        self.c.parallel = _parallel(self.threads, work)
        _call(name, *arguments)


# ---- threads
_MOST_THREADS = 1024
_WORTH = 1 << 21        # multiply-adds, a tenth of a millisecond: less is over before another thread is awake


@functools.lru_cache(maxsize=None)
def _spreads():
    """The address of attn_python_run. Another library (ATTN_LIBRARY) may lack it: then it is built alone. None: no
    compiler; calls run on one thread, with the same bits."""
    try:
        found = lib if hasattr(lib, "attn_python_run") else ctypes.CDLL(_built())
    except (ImportError, OSError):
        return None
    return ctypes.cast(found.attn_python_run, c_void_p).value


def _most_threads():
    """How many threads run a call that does not say: what torch uses, else the processors that this process may use."""
    torch = sys.modules.get("torch")
    if hasattr(torch, "get_num_threads"):
        return torch.get_num_threads()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _work(per_key, keys, lengths):
    """The multiply-adds of attention, but that no entry has more keys than key_lengths says."""
    if lengths is not None and per_key * keys >= _WORTH and 0 not in lengths.shape:
        keys = min(keys, int(lengths.max()))
    return per_key * keys


def _parallel(threads, work):
    """So many multiply-adds may run on several threads, where they are worth it."""
    workers = min(threads or _most_threads(), _MOST_THREADS) if work >= _WORTH else 1
    run = _spreads() if workers > 1 else None
    return attn_parallel(run=run, user=workers, workers=workers) if run else attn_parallel()


# ---- attention
def _split(options):
    """The results among the options, and the others."""
    return ({name: value for name, value in options.items() if name in _RESULTS},
            {name: value for name, value in options.items() if name not in _RESULTS})


def _described(q=None, k=None, v=None, **options):
    """The results of a call that has not run, with its descriptor."""
    results, options = _split(options)
    d = _Descriptor({"q": q, "k": k, "v": v}, recorded=True, **options)
    return Results(d.add_results(results), d.axes, desc=d, versions=_versions(d.kept))


def _versions(arrays):
    """How often torch has seen each tensor change that backward reads: of results these are out and stats."""
    return {name: x._version for name, x in arrays.items()
            if _is_torch(x) and not x.is_inference() and (name not in _RESULTS or name in ("out", "stats"))}


def _check_unchanged(results, arrays):
    """Refuses gradients of a call whose tensors hold something else by now. Of NumPy's arrays nobody can tell."""
    for name, version in results._kept["versions"].items():
        if arrays[name]._version != version:
            raise RuntimeError(f"{name} has been changed since the forward call, and its gradients would be wrong")


def forward(q: ArrayT | None, k: ArrayT | None, v: ArrayT | None = None, *, out: bool | Array | None = True,
            **options: Unpack[OptionsAndResults]) -> Results[ArrayT]:
    """Attention with the results that are asked for, as attributes: r.out [..,Sq,Dv], r.lse [..,Sq], r.weights,
    r.scores, r.scores_softcap, r.scores_masked [..,Sq,Sk], r.stats [..,Sq,2]. True makes an array, an array is written
    to. q and k are None where the option given_scores [..,Sq,Sk] stands for both."""
    r = _described(q, k, v, out=out, **options)
    r._kept["desc"].run("attn_forward")
    return r


# A call of the output alone leaves its descriptor, for most of a small call's time goes into making one. The next call
# whose arguments look the same (types, shapes and strides of arrays, values of the others) puts its arrays into a copy,
# and sizes and strides of tensors k and v, too: a cache is longer in each step of a decode.
_WORDS = c_uint64 * (sizeof(attn_desc) // 8)
_MOST_READY = 256
_GROWING = "k", "v"
_ready = {}     # what arguments look like: (descriptor, words of it for addresses, array to be made, threads, work)


def _address_of(x, head=object.__basicsize__):
    """x.ctypes.data, in a fifth of the time: it follows what all objects begin with, as NumPy's C headers say."""
    return c_void_p.from_address(id(x) + head).value


_SAMPLE = np.zeros(2)[1:]
if platform.python_implementation() != "CPython" or _address_of(_SAMPLE) != _SAMPLE.ctypes.data:
    _address_of = operator.attrgetter("ctypes.data")


def _is_transforming(torch):
    """Whether the call is within torch.func, which an older torch lacks."""
    active = getattr(torch._C, "_are_functorch_transforms_active", None)
    return active is not None and active()


def _looks(given):
    """What decides over the descriptor, and the addresses of the arrays (those of a cache with sizes and strides, as
    attn_view has them). None: the call must be looked at closely."""
    key, addresses, torch = [*given], [], sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if tensor and (torch.autograd.forward_ad._current_level >= 0 or _is_transforming(torch)):
        return None
    recorded, grows = tensor and torch.is_grad_enabled(), "page_table" not in given
    try:
        for name, x in given.items():
            kind = type(x)
            if kind is tensor:
                if (recorded and x.requires_grad) or not x.is_cpu or x.is_neg():
                    return None
                shape = x.shape
                if grows and name in _GROWING and len(shape) == 4:
                    key += shape[1], shape[3], x.dtype
                    addresses.append((x.data_ptr(), *shape, *x.stride()))
                else:
                    key += shape, x.stride(), x.dtype
                    addresses.append(x.data_ptr())
            elif kind is np.ndarray:
                key += x.shape, x.strides, x.dtype, x.flags.num
                addresses.append(_address_of(x))
            elif _is_array(x):      # of a subclass: a Parameter, say, or a masked array
                return None
            else:
                key += kind, x
    except RuntimeError:    # a tensor without memory of its own
        return None
    return tuple(key), addresses


def _again(given, looks):
    """The output by a descriptor that is ready. None: there is none, or the library refuses what an array holds, and
    the long way says so."""
    try:
        template, places, made, threads, per_key, keys = _ready[looks[0]]
    except (KeyError, TypeError):       # TypeError: nothing to look for, or a list
        return None
    words = _WORDS.from_buffer_copy(template)
    for place, address in zip(places, looks[1]):
        words[place] = address
    if made:
        like, is_like, shape, place = made
        like = given[like]
        if type(like) is np.ndarray:
            out = np.zeros(shape, like.dtype)
            words[place] = _address_of(out)
        else:
            out = sys.modules["torch"].zeros_like(like) if is_like else like.new_zeros(shape)   # that takes longer
            words[place] = out.data_ptr()
    else:
        out = given["out"]
    keys = given["v"].shape[2] if keys is None else keys
    if threads != 1 and per_key * keys >= _WORTH:
        attn_desc.from_buffer(words).parallel = _parallel(threads, _work(per_key, keys, given.get("key_lengths")))
    return None if lib.attn_forward(byref(words), None) else out


def _leave_ready(given, looks, d):
    """Keeps the descriptor of a call that has run, where all its arrays are the caller's, but for the output."""
    if not looks or d.c.dropout:        # each call of dropout has a seed of its own
        return
    places, made, (per_key, keys) = [], set(d.kept), d.work()
    for name, x in given.items():
        if _is_array(x):
            fields = [field for field, array in d.kept.items() if array is x and name in (field, "attn_mask", "sigma")]
            if len(fields) != 1:
                return
            place, grows = getattr(attn_desc, fields[0]).offset // 8, type(looks[1][len(places)]) is tuple
            places.append(slice(place, place + 9) if grows else place)
            keys = None if grows else keys
            made.remove(fields[0])
    if made - {"out"}:
        return
    like = "q" if "q" in d.kept else "given_scores"
    rows, out = d.kept[like], d.kept["out"]
    is_like = _is_torch(rows) and rows.shape == out.shape and rows.is_contiguous()
    try:
        hash(looks[0])
    except TypeError:
        return
    d.c.parallel.run, d.c.parallel.workers = None, 0    # each call says whether it is worth threads
    if len(_ready) >= _MOST_READY:
        _ready.clear()
    _ready[looks[0]] = (bytes(d.c), places, made and (like, is_like, tuple(out.shape), attn_desc.out.offset // 8),
                        d.threads, per_key, keys)


def _attended(given, looks, out=True, **arguments):
    """The output, the long way."""
    results, options = _split(arguments)
    d = _Descriptor({name: options.pop(name, None) for name in "qkv"}, **options)
    arrays = d.add_results(dict(results, out=out))
    d.run("attn_forward")
    _leave_ready(given, looks, d)
    return arrays["out"]


def attention(q: ArrayT | None, k: ArrayT | None, v: ArrayT, *, out: Array | None = None,
              **options: Unpack[OptionsAndResults]) -> ArrayT:
    """The output alone: [..,Sq,Dv]."""
    given = {"q": q, "k": k, "v": v, "out": True if out is None else out, **options}
    looks = _looks(given)
    found = _again(given, looks)
    return _attended(given, looks, **given) if found is None else found


def weights(q: ArrayT | None, k: ArrayT | None, **options: Unpack[Options]) -> ArrayT:
    """The weights alone: [..,Sq,Sk]."""
    return forward(q, k, out=False, weights=True, **options).weights


def scores(q: ArrayT | None, k: ArrayT | None, **options: Unpack[Options]) -> ArrayT:
    """The raw scores of all pairs, scale included, before masks: [..,Sq,Sk]."""
    return forward(q, k, out=False, scores=True, **options).scores


def _gradients(structure, owners, wanted, accumulate, axes=0, like=None):
    """The attn_grad or attn_mha_grad of the gradients wanted, which keeps what it points to, and their arrays."""
    grad, arrays = structure(struct_bytes=sizeof(structure)), {}
    grad.kept = {}
    fields = [field for field in structure._fields_ if field[0] != "key_sums"]      # a function of its own
    results = [name for name, kind in fields if kind is attn_out]
    known = [name for name, kind in fields if kind in (attn_out, attn_view)]
    for name in [*wanted, *accumulate]:
        if name not in known:
            raise _unknown("gradient", name, known)
    for name, value in wanted.items():
        if value is None or value is False:
            continue
        if name in results:
            if value is True:
                if name in accumulate:
                    raise TypeError(f"{name}: accumulate needs the array that it is added to, not True")
                owner = owners.get(_of_grad(name))
                if owner is None and name == "d_sigma":
                    owner = owners.get("sigma_per_head")
                if owner is None and name not in ("d_sigma", "d_scale"):
                    raise TypeError(f"{name}: there is no {_of_grad(name)}")
                value = _new(like, [1], "float32") if owner is None else _new(owner, owner.shape)
            arrays[name] = value
        value = grad.kept[name] = value if name in results else _array(value)
        setattr(grad, name, _view(name, value, attn_out if name in results else attn_view, _absent(name, value, axes),
                                  device=True))
    for name in accumulate:
        if name not in results:
            raise _unknown("gradient", name, results)
    grad.accumulate = sum(1 << results.index(name) for name in accumulate)
    return grad, arrays


def backward(results: Results[ArrayT], d_out: Numbers | None = None, *, d_weights: Numbers | None = None,
             d_lse: Numbers | None = None, dq: bool | Array | None = True, dk: bool | Array | None = True,
             dv: bool | Array | None = True, accumulate: Sequence[str] = (),
             **others: bool | Array | None) -> Results[ArrayT]:
    """The gradients of a loss, from its gradients with respect to r.out, r.weights and r.lse, where r is what forward
    returned. Attributes dq, dk, dv, and those asked for: d_bias, d_sigma, d_w_q, ... each shaped like what it belongs
    to (d_scale, and d_sigma without sigma_per_head: [1]). q, k, v, out and options of floats are read again here, as
    they are by then (a torch tensor that has changed since is refused); of lengths, starts, positions, pages and masks
    forward has kept a copy. accumulate: names of those that are added to the arrays
    given for them. It is faster where forward was asked for stats=True."""
    if not isinstance(results, Results) or "desc" not in results._kept:
        raise TypeError("results: what attn.forward returned is needed, which knows its inputs and options")
    d = results._kept["desc"]
    _check_unchanged(results, d.kept)
    for name in "qkv":
        if name in d.kept and _dtype(d.kept[name]) == "int8":
            raise TypeError(f"{name} is int8: attn.h has no gradients of a call with int8 keys or values")
    wanted = {name: value for name, value in dict(dq=dq, dk=dk, dv=dv).items()
              if value is not True or _of_grad(name) in d.kept}
    wanted.update(others, d_out=d_out, d_weights=d_weights, d_lse=d_lse)
    like = d.kept.get("q", d.kept.get("given_scores"))
    grad, arrays = _gradients(attn_grad, d.kept, wanted, accumulate, d.axes, like)
    d.run("attn_backward", byref(grad))
    return Results(arrays, d.axes)


def key_sums(results: Results[ArrayT], last_queries: int = 0, *, out: ArrayT | None = None) -> ArrayT:
    """What each key got of the attention, from what forward returned: the sum of the weights over the queries, or over
    the last so many of each entry, without the weights themselves. [B,H,Sk], float32; out: where it goes. It is faster
    where forward was asked for stats=True; out=False spares forward its own output. q, k and options of floats are read
    again here, as they are by then."""
    if not isinstance(results, Results) or "desc" not in results._kept:
        raise TypeError("results: what attn.forward returned is needed, which knows its inputs and options")
    d = results._kept["desc"]
    _check_unchanged(results, d.kept)
    rows, keys, table = d.kept.get("q", d.kept.get("given_scores")), d.kept.get("k"), d.kept.get("page_table")
    size = rows.shape[-1] if keys is None else keys.shape[-2] * (1 if table is None else table.shape[-1])
    batch = (rows if keys is None else keys if table is None else table).shape[0]
    if out is None:
        out = _new(rows, {4: [batch, *rows.shape[1:2]], 3: [batch], 2: []}[d.axes] + [size], "float32")
    grad = attn_grad(struct_bytes=sizeof(attn_grad), last_queries=last_queries)
    grad.key_sums = _view("key_sums", out, attn_out, _absent("key_sums", out, d.axes), device=True)
    d.run("attn_backward", byref(grad))
    return out


def explain(q: Array | None, k: Array | None, v: Array | None = None, **options: Unpack[OptionsAndResults]) -> str:
    """How attn.h runs the call of these arrays, or why it refuses it: a sentence."""
    results, others = _split(options)
    d = _Descriptor({"q": q, "k": k, "v": v}, **others)
    try:
        d.add_results(dict(results, **{"out" if v is not None else "weights": True}))
    except TypeError:
        pass                        # the sentence says what lacks
    return _in_python(_text(lib.attn_explain, byref(d.c)))


# ---- torch's autograd, torch.compile and torch.func: two operators that torch knows by name
_GRADIENTS = {_of_grad(name): name for name, kind in attn_grad._fields_ if kind is attn_out}
_GRADIENTS["sigma_per_head"] = "d_sigma"
_functions = {}
_CALL = "Tensor[] tensors, Scalar[] numbers, str[] words, str[] names"


def _given(tensors, numbers, words, names):
    """What sdpa was given, from what torch lets an operator have: the names are those of the tensors, then those of the
    numbers (one that is there several times has a tuple of them), then those of the words."""
    found = dict(zip(names, tensors))
    for name, value in zip(names[len(tensors):], [*numbers, *words]):
        value = int(value) if name == "seed" else value
        found[name] = found[name] + (value,) if name in found else (value,)
    return {name: x[0] if type(x) is tuple and len(x) == 1 else x for name, x in found.items()}


def _operate(tensors, numbers, words, names):
    r = forward(**dict(dict.fromkeys("qkv"), **_given(tensors, numbers, words, names)), stats=True)
    return r.out, r.stats


def _shapes(tensors, numbers, words, names):
    """What _operate returns, without numbers in it."""
    found = dict(zip(names, tensors))
    rows = found.get("q", found.get("given_scores"))
    return (rows.new_empty((*rows.shape[:-1], found["v"].shape[-1])),
            rows.new_empty((*rows.shape[:-1], 2), dtype=sys.modules["torch"].float32))


def _operate_backward(d_out, out, stats, tensors, numbers, words, names, needed):
    options = _given(tensors, numbers, words, names)
    names = [name for name, needs_it in zip(names, needed) if needs_it]
    r = _described(out=out, stats=stats, **options)
    wanted = dict(dict.fromkeys(("dq", "dk", "dv"), False), **{_GRADIENTS[name]: True for name in names})
    found = backward(r, d_out, **wanted)
    # the gradient of a number is [1] and float32
    return [getattr(found, _GRADIENTS[name]).reshape(options[name].shape).to(options[name].dtype) for name in names]


def _gradient_shapes(d_out, out, stats, tensors, numbers, words, names, needed):
    return [x.new_empty(x.shape) for x, needs_it in zip(tensors, needed) if needs_it]


def _each(torch, function, results):
    """Under vmap: one call after the other."""
    def part(x, dim, i):
        if isinstance(x, (list, tuple)) and isinstance(dim, (list, tuple)):
            return [part(*pair, i) for pair in zip(x, dim)]
        return x if dim is None else x.select(dim, i)

    def call(info, dims, *arguments):
        calls = [function(*(part(x, dim, i) for x, dim in zip(arguments, dims))) for i in range(info.batch_size)]
        stacked = [torch.stack(x) for x in zip(*calls)]
        return results(stacked), results([0] * len(stacked))
    return call


def _operator(torch, name, function, fake, schema, results):
    """An operator attn::name of torch's, as it was made and as it is called."""
    made = torch.library.custom_op("attn::" + name, function, mutates_args=(), schema=schema)
    made.register_fake(fake)
    if hasattr(made, "register_vmap"):      # since 2.5; before torch does the same, with a warning
        made.register_vmap(_each(torch, made, results))
    return made, getattr(torch.ops.attn, name).default


def _with_context(torch, function):
    """As PyTorch before 2.0 wants it: forward is given the context."""
    if hasattr(torch.autograd.Function, "setup_context"):
        return function
    compute, keep = function.forward, function.setup_context

    def forward(ctx, *inputs):
        output = compute(*inputs)
        keep(ctx, inputs, output)
        return output
    function.forward = staticmethod(forward)
    return function


def _of_autograd(torch, attention, gradients):
    """The function that autograd and torch.func see, of the two operators."""
    class Gradients(torch.autograd.Function):
        """An operation that autograd sees: otherwise a second derivative would not be refused, but left out."""
        generate_vmap_rule = True

        @staticmethod
        def forward(options, needed, d_out, out, stats, *tensors):
            return tuple(gradients(d_out, out, stats, tensors, *options, needed))

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, *_):
            raise RuntimeError("attn.sdpa has no second derivative: its gradients cannot be differentiated again")

    class Attention(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(options, *tensors):
            return attention(tensors, *options)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.options = inputs[0]
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(*output, *inputs[1:])

        @staticmethod
        def backward(ctx, d_out, _):
            needed, (out, stats, *tensors) = list(ctx.needs_input_grad[1:]), ctx.saved_tensors
            found = iter(Gradients.apply(ctx.options, needed, d_out, out, stats, *tensors))
            return (None,) + tuple([next(found) if needs_it else None for needs_it in needed])

        @staticmethod
        def jvp(ctx, *_):
            raise RuntimeError("attn.sdpa has no forward-mode derivatives")

    _with_context(torch, Gradients)
    return _with_context(torch, Attention)


def _enter_torch():
    """Makes sdpa known to torch, once. torch.compile and torch.export see two operators, attn::sdpa with a formula for
    its gradients and attn::sdpa_backward; autograd and torch.func see a function that calls them. PyTorch before 2.4
    has no such operators, and gradients alone."""
    if _functions:
        return
    import torch
    if not hasattr(torch.library, "custom_op"):
        if _is_compiling():
            raise RuntimeError(f"attn.sdpa is compiled with PyTorch 2.4 or later, not {torch.__version__}")
        _functions["sdpa"] = _of_autograd(torch, _operate, _operate_backward)
        return
    made, attention = _operator(torch, "sdpa", _operate, _shapes, f"({_CALL}) -> (Tensor, Tensor)", tuple)
    _, gradients = _operator(torch, "sdpa_backward", _operate_backward, _gradient_shapes,
                             f"(Tensor d_out, Tensor out, Tensor stats, {_CALL}, bool[] needed) -> Tensor[]", list)

    def keep(ctx, inputs, output):
        _functions["sdpa"].setup_context(ctx, (inputs[1:], *inputs[0]), output)

    def derive(ctx, d_out, _):
        needed, (out, stats, *tensors) = list(ctx.needs_input_grad[0]), ctx.saved_tensors
        found = iter(gradients(d_out, out, stats, tensors, *ctx.options, needed))
        return ([next(found) if needs_it else None for needs_it in needed], *(None if x else [] for x in ctx.options))

    made.register_autograd(derive, setup_context=keep)
    _functions["sdpa"] = _of_autograd(torch, attention, gradients)


_enter_torch._dynamo_marked_constant = True     # torch.compile calls it and does not look inside


def _is_compiling():
    return getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", bool)()     # bool() is False


def _seen(torch, given):
    """Whether torch has to see the call: something differentiates, compiles or maps it."""
    tensors = [x for x in given.values() if _is_torch(x)]
    return (_is_compiling() or _is_transforming(torch) or
            any(type(x) not in (torch.Tensor, torch.nn.Parameter) for x in tensors) or
            torch.is_grad_enabled() and any(x.requires_grad for x in tensors))


def _set(given, name, value, by):
    if given.get(name) is not None:
        raise TypeError(f"{by} sets {name}, which is given, too")
    given[name] = value


def _tensor(torch, name, x):
    """An array or a list as a tensor of its own, which no later change of it reaches."""
    if _is_compiling():
        return torch.as_tensor(x).clone()
    x = _array(x)
    _check_array(name, x)
    kept = np.array(_once(x), order="C")     # an array also where x has no axes, unlike copy()
    if _dtype(x) in ("uint16", "bfloat16"):
        return torch.from_numpy(kept.view("int16")).view(torch.bfloat16).expand(x.shape)
    return torch.from_numpy(kept).expand(x.shape)


def _recorded(torch, given):
    """What sdpa computes where torch is to see it."""
    tensors, numbers, words = {}, [], []
    for name, x in given.items():
        if _is_torch(x):
            if x.requires_grad and name not in _GRADIENTS:
                raise TypeError(f"{name} requires grad, and attn.h has no gradient of it: give {name}.detach()")
            tensors[name] = x
        elif name in ("q", "k", "v", "given_scores"):
            raise TypeError(f"{name} must be a torch tensor, as something else is one that torch differentiates, "
                            "compiles or maps")
        elif name in _VIEWS or isinstance(x, np.ndarray) or (name == "sigma" and isinstance(x, (list, tuple))):
            tensors[name] = _tensor(torch, name, x)
        elif isinstance(x, str):
            words.append((name, x))
        elif name == "seed" and x >= 2**63:     # no number of torch's
            words.append((name, str(x)))
        else:
            for n in x if isinstance(x, (list, tuple)) else [x]:
                numbers.append((name, -1 if n is None else n.item() if isinstance(n, np.generic) else n))
    kinds = int, float, *(getattr(torch, kind) for kind in ("SymInt", "SymFloat") if hasattr(torch, kind))
    for name, n in numbers:
        if not isinstance(n, kinds):
            raise TypeError(f"{name}: {given[name]!r} is not a number of its kind")
    names = [*tensors, *[name for name, _ in numbers], *[name for name, _ in words]]
    _enter_torch()
    options = [n for _, n in numbers], [word for _, word in words], names
    if _is_compiling():
        return torch.ops.attn.sdpa(list(tensors.values()), *options)[0]
    return _functions["sdpa"].apply(options, *tensors.values())[0]


def _translated(given, attn_mask, dropout_p, is_causal, enable_gqa):
    """What sdpa was given, under the names of attn.h."""
    for name in given:
        if name in _RESULTS:
            raise TypeError(f"{name}: attn.sdpa gives the output alone; attn.forward has the other results")
        if name not in _OPTIONS and name not in ("q", "k", "v"):
            raise _unknown("option", name, _OPTIONS)
    given = {name: x for name, x in given.items() if x is not None}
    for name in ("q", "k", "v", "given_scores"):
        if name in given:
            given[name] = _array(given[name])
    if attn_mask is not None:
        attn_mask = _array(attn_mask)
        kind = _dtype(attn_mask)
        if kind not in ("bool", "float32", "float16", "bfloat16"):
            raise TypeError("attn_mask: bool (True where a query may attend) or float32, float16 or bfloat16 (added "
                            f"to the scores), not {kind}")
        _set(given, "mask" if kind == "bool" else "bias", attn_mask, "attn_mask")
    if is_causal:
        _set(given, "causal", True, "is_causal")
        _set(given, "align", "top_left", "is_causal")
    if dropout_p:
        _set(given, "dropout", dropout_p, "dropout_p")
    if "q" in given and "k" in given and len(given["q"].shape) == 4 == len(given["k"].shape) and not enable_gqa:
        heads, shared = given["q"].shape[1], given["k"].shape[1]
        if shared != 1 and shared != heads:     # "in" goes wrong with numbers that torch.compile leaves open
            raise TypeError(f"q has {heads} heads and k {shared}: enable_gqa=True lets heads of q share those of k")
    return given


def sdpa(q: ArrayT | None, k: ArrayT | None, v: ArrayT, *, attn_mask: Numbers | None = None, dropout_p: float = 0.0,
         is_causal: bool = False, scale: float | Array | None = None, enable_gqa: bool = False,
         **options: Unpack[OptionsButScale]) -> ArrayT:
    """torch.nn.functional.scaled_dot_product_attention by attn.h, under the same names; every other option of attn.h
    goes with them. torch's autograd differentiates it, once, not twice: by q, k, v, a float attn_mask, and each option
    that attn_grad has a gradient of (bias, sink, alibi, scale, sigma, w_q, ...). NumPy arrays give the output alone.
    attn_mask: bool, True where a query may attend, or floats that are added to the scores. is_causal is top-left, as
    there; for bottom-right: causal=True, align="bottom_right". The two may be given together here. enable_gqa: k and v
    may have fewer heads than q; without it they may have one for all. dropout_p: which weights are dropped comes from
    torch's generator (torch.manual_seed; np.random.seed for NumPy arrays), or from the option seed. A row that may
    attend to nothing is zeros, and adds 0 to the gradients; PyTorch does so since 2.5, before it was NaN. Tensors
    on a GPU: see DEVICES, above."""
    asked = {"q": q, "k": k, "v": v, **options}
    if attn_mask is not None:
        asked["attn_mask"] = attn_mask
    if scale is not None:
        asked["scale"] = scale
    if is_causal or enable_gqa:
        asked[None] = is_causal, enable_gqa     # no option has that name
    looks = None if dropout_p or _is_compiling() else _looks(asked)
    found = _again(asked, looks) if looks else None
    if found is not None:
        return found
    given = {**options, "q": q, "k": k, "v": v, "scale": scale}
    given = _translated(given, attn_mask, dropout_p, is_causal, enable_gqa)
    torch = sys.modules["torch"] if any(_is_torch(x) for x in given.values()) else None
    seen = torch is not None and _seen(torch, given)
    drops = given.get("dropout", 0)
    if (_is_torch(drops) or drops) and "seed" not in given:
        seed = torch.randint(2**63 - 1, ()) if torch else np.random.randint(2**63 - 1, dtype="int64")
        given["seed"] = seed if seen else int(seed)     # to torch it is no number yet
    try:
        if seen:
            return _recorded(torch, given)
        return _attended(asked, looks, **given)
    except Error as error:
        field = error.field.partition(".")[0]
        if attn_mask is not None and field in ("mask", "bias") and field not in options:    # its name here
            error.args = (error.args[0].replace(field, "attn_mask", 1),)
            error.field = error.field.replace(field, "attn_mask", 1)
        raise


# ---- Hugging Face transformers: its attention function, and its masks as options
def _mask_kinds(their, torch):
    """What the mask functions of transformers are, by their code: closures made by one function share it."""
    none = torch.zeros(1, 1)
    made = {"causal": their.causal_mask_function, "all": their.bidirectional_mask_function,
            "and": their.and_masks(their.causal_mask_function), "window": their.sliding_window_overlay(1),
            "sides": their.sliding_window_bidirectional_overlay(1), "packed": their.packed_sequence_mask_function(none),
            "moved": their.remap_positions_for_packed_sequence(their.causal_mask_function, none)}
    return {function.__code__: kind for kind, function in made.items()}


def _mask_parts(function, kinds):
    """The functions that must all allow a pair, each as its kind (None: not known) and what it encloses."""
    code = getattr(function, "__code__", None)
    kind = kinds.get(code)
    inside = dict(zip(code.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()))) if kind else {}
    if kind == "and":
        return [part for each in inside["mask_functions"] for part in _mask_parts(each, kinds)]
    if kind == "moved":         # positions of packed sequences: those of one sequence are as far apart as its rows
        return _mask_parts(inside["mask_function"], kinds)
    return [(kind, inside)]


def _padding_options(torch, padding, keys):
    """The options for keys that are not padding: padding [B,n], the keys from n on are not there."""
    padding = torch.nn.functional.pad(padding, (0, keys - padding.shape[1]))
    begins = padding[:, 0].int() + (padding[:, 1:] & ~padding[:, :-1]).sum(-1)
    if begins.max() > 1:        # with holes
        return {"mask": padding[:, None, None]}
    starts, lengths = padding.int().argmax(-1), padding.sum(-1)
    options = {"key_starts": starts} if starts.any() else {}
    if (starts + lengths < keys).any():
        options["key_lengths"] = lengths
    return options


def _mask_options(torch, parts, batch, queries, keys, offset, padding, device):
    """The options that say what those functions and the padding do, of queries from key `offset` on; None: there are
    none."""
    left, right, options = math.inf, math.inf, {}
    for kind, inside in parts:
        if kind == "causal":
            right = 0
        elif kind == "window":
            left = min(left, inside["sliding_window"] - 1)
        elif kind == "sides":
            left, right = (min(n, inside["sliding_window"]) for n in (left, right))
        elif kind == "packed" and batch == 1 and padding is None and queries == keys:
            lengths = torch.bincount(inside["packed_sequence_mask"][0])
            starts = lengths.cumsum(0) - lengths
            options.update(query_starts=starts, query_lengths=lengths, key_starts=starts, key_lengths=lengths)
        elif kind != "all":
            return None
    if padding is not None and not (padding.all() and min(keys, offset + queries + right) <= padding.shape[1]):
        options.update(_padding_options(torch, padding, keys))
    left, right = left if left < offset + queries - 1 else None, right if offset + right < keys - 1 else None
    if right == 0:
        options["causal"], right = True, None
    if (left, right) != (None, None):
        options["window"] = left, right
    if "causal" in options or "window" in options:
        starts = options.get("key_starts")
        if "query_starts" in options or (offset == 0 and starts is None):
            options["align"] = "top_left"
        elif offset == keys - queries and "key_lengths" not in options:
            options["align"] = "bottom_right"
        else:
            options["align"] = "positions"
            options["positions"] = torch.full([batch], offset, device=device) if starts is None else offset - starts
    return options


@functools.lru_cache(maxsize=None)
def _for_transformers():
    """The two functions that register_transformers enters."""
    import torch
    from transformers import masking_utils as their
    kinds = _mask_kinds(their, torch)
    described = {getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "requires_grad",
                                                                  "is_cuda", "layout")}
    described |= {torch.Tensor.size, torch.Tensor.dim, torch.Tensor.is_floating_point, torch.Tensor.__len__}
    moved = {"__getitem__", "bool", "clone", "contiguous", "detach", "expand", "to"}    # still the same mask, or a part

    class Mask(torch.Tensor):
        """A mask that options stand for. A model may look at its shape and hand it on, or a part of it; any use of its
        elements is refused: a model that adds or fills would be wrong without a word, since True allows a pair here."""

        @classmethod
        def of(cls, shape, device, options, asked=None, made=None):
            mask = torch.Tensor._make_subclass(cls, torch.zeros((), dtype=torch.bool, device=device).expand(shape))
            mask.options, mask.asked, mask.made = options, asked, made
            return mask

        @classmethod
        def __torch_function__(cls, function, types, given=(), named=None):
            if function in described:
                with torch._C.DisableTorchFunctionSubclass():
                    return function(*given, **(named or {}))
            if function.__name__ in moved and type(given[0]) is cls:
                made = function(given[0].dense(), *given[1:], **(named or {}))
                if made.dtype == torch.bool:
                    return cls.of(made.shape, made.device, {"mask": made}, made=made)
            raise RuntimeError(f"the model uses its attention mask itself ({function.__name__}), and does not only "
                               "hand it on to transformers' AttentionInterface: attn.h cannot stand in for it")

        def dense(self):
            if self.made is None:
                self.made = their.sdpa_mask(**self.asked)
            return self.made

        __hash__ = object.__hash__

        def __repr__(self, **_):
            return "attn.Mask"

    def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=their.causal_mask_function,
             attention_mask=None, allow_is_causal_skip=True, allow_is_bidirectional_skip=False, device="cpu", **others):
        asked = dict(others, batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                     kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask, device=device,
                     allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        if _is_compiling():
            return their.sdpa_mask(**asked)
        asked["q_offset"] = q_offset = int(q_offset)        # that of a static cache is a tensor, which will change
        padding = None if attention_mask is None else attention_mask[:, kv_offset:kv_offset + kv_length]
        options = _mask_options(torch, _mask_parts(mask_function, kinds), batch_size, q_length, kv_length,
                                q_offset - kv_offset, padding, device)
        if options == {} and q_length == 1 and (allow_is_causal_skip or allow_is_bidirectional_skip):
            return None         # of more queries None would leave to the layer whether it is causal
        made = Mask.of((batch_size, 1, q_length, kv_length), device, options, asked)
        if options is None:
            made.options = {"mask": made.dense()}
        return made

    # what is passed on to every layer and decides nothing in it: positions are in q and k, a window in the mask
    harmless = {"position_ids", "cache_position", "position_embeddings", "cu_seq_lens_q", "cu_seq_lens_k",
                "sliding_window"}

    def attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, softcap=None,
               s_aux=None, position_bias=None, output_attentions=False, **others):
        rows, keys, options = query.shape[2], key.shape[2], {"scale": scaling}
        for name, x in others.items():
            if name not in harmless and isinstance(x, torch.Tensor):
                raise TypeError(f"{name}: attn.h does not know what the model's attention does with it")
        if type(attention_mask) is Mask:
            if attention_mask.shape[2:] != (rows, keys) or output_attentions:
                attention_mask = attention_mask.dense()
        if type(attention_mask) is Mask:
            options.update(attention_mask.options)
        elif attention_mask is not None:
            attention_mask = attention_mask[..., :keys]
            options["mask" if attention_mask.dtype == torch.bool else "bias"] = attention_mask
        elif rows > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal):
            options["causal"], options["align"] = True, "top_left"
        if softcap:
            options["softcap"] = softcap
        if s_aux is not None:
            options["sink"] = s_aux if torch.is_grad_enabled() else s_aux.detach()      # then it is no Parameter
        if position_bias is not None:
            bias = options.get("bias")
            options["bias"] = position_bias if bias is None else position_bias + bias
        given = {"q": query, "k": key, "v": value, **options}
        if rows > 1 and not dropout and not _seen(torch, given):
            out = query.new_empty((query.shape[0], rows, query.shape[1], value.shape[3]))
            attention(**given, out=out.transpose(1, 2))     # transformers wants queries before heads
        else:       # of one query that is the same
            out = sdpa(**given, dropout_p=dropout, enable_gqa=True).transpose(1, 2).contiguous()
        if not output_attentions:
            return out, None
        with torch.no_grad():       # with a dense mask: packed sequences have no weights
            return out, weights(query, key, **options)

    return attend, mask


def register_transformers(name: str = "attn") -> None:
    """Enters attn.h into Hugging Face transformers, under that name: AutoModel.from_pretrained(..,
    attn_implementation="attn"). A model's grouped heads, softcap, sinks, position bias and dropout, gradients and
    caches are taken as they are, and what it passes beyond that is refused; causal masks, windows, padding at either
    end and packed sequences become options of attn.h, without a mask of all pairs, which other masks remain. With
    output_attentions=True in a call the weights come too, before dropout and without a gradient."""
    try:
        import transformers
    except ImportError:
        raise ImportError("attn.register_transformers needs the package transformers, which is not installed: pip "
                          "install transformers") from None
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        functions = _for_transformers()
    except (ImportError, AttributeError) as error:
        raise ImportError(f"attn.register_transformers does not fit transformers {transformers.__version__}: it needs "
                          f"version 5.24 or one like it ({error})") from None
    for interface, function in zip((AttentionInterface, AttentionMaskInterface), functions):
        interface.register(name, function)


# ---- the pieces
def softmax(x: ArrayT, *, out: ArrayT | None = None, **options: Unpack[Options]) -> ArrayT:
    """Masked softmax over the last axis of x: [n], [Sq,Sk], [B,Sq,Sk] or [B,H,Sq,Sk]; out may be x itself."""
    x = _array(x)
    out = _new(x, x.shape) if out is None else out
    d = _Descriptor(**options)
    d.call("attn_softmax", _view("x", x), _view("out", out, attn_out), byref(d.c), work=16 * math.prod(x.shape))
    return out


def softmax_backward(x: ArrayT, d_out: Numbers, *, dx: ArrayT | None = None, **options: Unpack[Options]) -> ArrayT:
    """The gradient with respect to x of softmax(x, **options), from that with respect to its result; all of x's
    shape."""
    x, d_out = _array(x), _array(d_out)
    dx = _new(x, x.shape) if dx is None else dx
    d = _Descriptor(**options)
    d.call("attn_softmax_backward", _view("x", x), _view("d_out", d_out), _view("dx", dx, attn_out), byref(d.c),
           work=16 * math.prod(x.shape))
    return dx


def _mask(function, shape, options):
    mask = np.zeros(tuple(shape), bool)
    d = _Descriptor(axes=mask.ndim, **options)
    d.call(function, _view("mask", mask, attn_out, _absent("mask", mask, mask.ndim)), byref(d.c))
    return mask


def mask(shape: Sequence[int], **options: Unpack[Options]) -> NDArray[np.bool_]:
    """Which pairs the options allow: a bool array of that shape, [B,H,Sq,Sk], [B,Sq,Sk] or [Sq,Sk]."""
    return _mask("attn_mask", shape, options)


def dropout_mask(shape: Sequence[int], dropout: float, seed: int = 0, *,
                 dropout_origin: Sequence[int] | None = None) -> NDArray[np.bool_]:
    """Which weights dropout keeps: a bool array of that shape, [B,H,Sq,Sk], [B,Sq,Sk] or [Sq,Sk]."""
    return _mask("attn_dropout_mask", shape, dict(dropout=dropout, seed=seed, dropout_origin=dropout_origin))


def merge(out_a: ArrayT, lse_a: ArrayT, out_b: ArrayT, lse_b: ArrayT) -> tuple[ArrayT, ArrayT]:
    """Attention over two disjoint sets of keys from that over each: (out [..,Sq,Dv], lse [..,Sq])."""
    out_a, lse_a, out_b, lse_b = map(_array, (out_a, lse_a, out_b, lse_b))
    out, lse = _new(out_a, out_a.shape), _new(lse_a, lse_a.shape)
    axes = len(out_a.shape)
    views = [_view(name, x, absent=_absent(name, x, axes)) for name, x in
             (("out", out_a), ("lse", lse_a), ("out", out_b), ("lse", lse_b))]
    views += [_view(name, x, attn_out, _absent(name, x, axes)) for name, x in (("out", out), ("lse", lse))]
    _call("attn_merge", *views)
    return out, lse


def bmm(a: ArrayT, b: ArrayT, *, out: ArrayT | None = None, **options: Unpack[Options]) -> ArrayT:
    """Batched matrix product: [..,M,K] times [..,K,N] is [..,M,N], 2 to 4 axes; axes before the last two broadcast.
    b may be int8, with k_scale: bmm(x, codes.swapaxes(-1, -2), k_scale=scales) of what quantize made of weights."""
    a, b = _array(a), _array(b)
    if out is None and min(len(a.shape), len(b.shape)) > 1:
        batch = np.broadcast_shapes(tuple(a.shape)[:-2], tuple(b.shape)[:-2])
        out = _new(a, batch + (a.shape[-2], b.shape[-1]))
    elif out is None:
        raise TypeError("bmm: matrices are needed, of 2 to 4 axes")
    d = _Descriptor(**options)
    d.call("attn_bmm", _view("a", a), _view("b", b), _view("out", out, attn_out), byref(d.c),
           work=math.prod(out.shape) * a.shape[-1])
    return out


def bmm_backward(a: ArrayT, b: ArrayT, d_out: Numbers, **options: Unpack[Options]) -> tuple[ArrayT, ArrayT]:
    """The gradients of bmm(a, b): (da, db), shaped like a and b."""
    a, b, d_out = _array(a), _array(b), _array(d_out)
    da, db = _new(a, a.shape), _new(b, b.shape)
    d = _Descriptor(**options)
    d.call("attn_bmm_backward", _view("a", a), _view("b", b), _view("d_out", d_out), _view("da", da, attn_out),
           _view("db", db, attn_out), 0, byref(d.c), work=2 * math.prod(d_out.shape) * a.shape[-1])
    return da, db


def convert(x: Array, dtype: str, *, out: Array | None = None) -> Any:
    """x as another type ("float32", "float16", "bfloat16", "float64"), each number rounded once, to nearest even. NumPy
    alone has no bfloat16: there its bits come as uint16."""
    x = _array(x)
    if out is None:
        name = "uint16" if dtype == "bfloat16" and not _is_torch(x) else dtype
        out = _new(x, x.shape, name)
    _call("attn_convert", _view("x", x), _view("out", out, attn_out))
    return out


def quantize(x: Array, block: int | None = None, scale_dtype: str = "float32") -> tuple[Any, Any]:
    """Rows as codes, for k, v and weights: (codes int8 [B,H,S,D], scales [B,H,S,1], or [B,H,S,ceil(D/32)] with
    block=32). The options k_scale and v_scale take the scales."""
    x = _array(x)
    if block not in (None, 32):
        raise ValueError("block: a scale for each row (None) or for each 32 numbers of it (32)")
    codes = _new(x, x.shape, "int8")
    scale = _new(x, tuple(x.shape)[:-1] + (-(-x.shape[-1] // 32) if block else 1,), scale_dtype)
    axes = len(x.shape)
    _call("attn_quantize", _view("x", x, absent=_absent("k", x, axes)),
          _view("codes", codes, attn_out, _absent("k", codes, axes)),
          _view("scale", scale, attn_out, _absent("k_scale", scale, axes)))
    return codes, scale


# ---- sequences
def lengths_of(offsets: ArrayT, dtype: str = "int32") -> ArrayT:
    """The lengths [B] of sequences that lie between offsets [B+1], the cu_seqlens of other libraries."""
    offsets = _array(offsets)
    lengths = _new(offsets, (max(offsets.shape[0] - 1, 0),), dtype)
    _call("attn_lengths_of", _view("offsets", offsets), _view("lengths", lengths, attn_out))
    return lengths


def alibi_slopes(heads: int) -> NDArray[np.float32]:
    """The slopes [heads] of ALiBi (Press et al. 2022), for the option alibi."""
    slopes = np.zeros(heads, "float32")
    _call("attn_alibi_slopes", _view("slopes", slopes, attn_out))
    return slopes


def append(fresh: Array, cache: Array, lengths: Numbers, **options: Unpack[Options]) -> None:
    """Writes new rows of k or v, fresh [B,Hkv,n,D], after those that cache [B,Hkv,S,D] holds, lengths [B] of each
    entry; both without heads, [B,n,D], or of one sequence, [n,D]. Options: query_lengths, query_starts, key_starts,
    page_table; k_scale or v_scale, which are written too, of a cache of int8."""
    fresh, lengths = _array(fresh), _array(lengths)
    for name in ("k_scale", "v_scale"):
        if options.get(name) is not None:
            _view(name, options[name], attn_out)        # refuses what cannot be written
    axes = len(fresh.shape)
    d = _Descriptor(axes=axes, **options)
    d.call("attn_append", _view("fresh", fresh, absent=_absent("fresh", fresh, axes)),
           _view("cache", cache, attn_out, _absent("cache", cache, axes)), _view("lengths", lengths), byref(d.c))


def rope_table(positions: int, size: int, *, base: float = 0,
               scaling: Literal["plain", "linear", "ntk", "yarn", "llama3"] = "plain",
               factors: Numbers | None = None, **fields: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Tables for rope: (cosines, sines), float32 [positions, size/2]; size: R, how many columns are turned. scaling:
    "plain", "linear", "ntk", "yarn" or "llama3"; fields: those of attn_rope_desc that it uses (factor,
    original_positions, low_freq_factor, high_freq_factor, beta_fast, beta_slow, attention_factor, no_truncation) and
    first_position. factors: [size/2], what each frequency of "plain" is divided by."""
    known = [name for name, _ in attn_rope_desc._fields_]
    for name in fields:
        if name not in known:
            raise _unknown("number of rotary positions", name, known)
    if scaling not in ENUMS["attn_rope_scaling"]:
        raise ValueError(f"scaling: {scaling!r} is none of {', '.join(ENUMS['attn_rope_scaling'])}")
    if size % 2:
        raise ValueError(f"size: must be even, is {size}")
    d = attn_rope_desc(struct_bytes=sizeof(attn_rope_desc), base=base, scaling=ENUMS["attn_rope_scaling"][scaling])
    for name, value in fields.items():
        _set_number(d, name, value)
    if factors is not None:
        factors = np.asarray(factors, "float32")
        d.factors = _view("factors", factors)
    cosines, sines = (np.zeros((positions, size // 2), "float32") for _ in range(2))
    _call("attn_rope_table", _view("cosines", cosines, attn_out), _view("sines", sines, attn_out), byref(d))
    return cosines, sines


def rope(x: ArrayT, cos: Numbers, sin: Numbers, *, positions: Numbers | None = None, interleaved: bool = False,
         inverse: bool = False, out: ArrayT | None = None) -> ArrayT:
    """x [B,H,S,D], [B,S,D] or [S,D] with its first columns turned by rotary positions, two for each column of the
    tables; a new array, or out, which may be x. positions: [B] of each entry's first row, or [B,S]; None: rows 0, 1, ..
    of the tables."""
    x, cos, sin = _array(x), _array(cos), _array(sin)
    out, axes = _new(x, x.shape) if out is None else out, len(x.shape)
    at = attn_view()
    if positions is not None:
        positions = _array(positions)
        at = _view("positions", positions)
    _call("attn_rope", _view("x", x, absent=_absent("x", x, axes)), _view("cos", cos), _view("sin", sin), at,
          interleaved + 2 * inverse, _view("out", out, attn_out, _absent("x", out, axes)))
    return out


def _mha_work(inputs, heads):
    """The multiply-adds of multi-head attention: of its products with matrices and of all pairs."""
    rows = lambda x: math.prod(x.shape[:2])
    query, key = inputs["query"], inputs.get("key", inputs["query"])
    work = sum(math.prod(w.shape) * rows(inputs.get(name[2:], key if name != "w_result" else query))
               for name, w in inputs.items() if name[:2] == "w_")
    return work + 2 * rows(query) * key.shape[1] * inputs["w_query"].shape[0]


def mha(query: ArrayT, w_query: Numbers, w_key: Numbers, w_value: Numbers, w_result: Numbers | None = None, *,
        heads: int, heads_kv: int = 0, key: Numbers | None = None, value: Numbers | None = None,
        b_query: Numbers | None = None, b_key: Numbers | None = None, b_value: Numbers | None = None,
        b_result: Numbers | None = None, out: bool | Array | None = True, saved: bool = False,
        **options: Unpack[OptionsAndResults]) -> Results[ArrayT]:
    """Multi-head attention with its projections: query [B,Sq,Eq], key [B,Sk,Ek] (None: query), value [B,Sk,Ev] (None:
    key); w_query [H*D,Eq], w_key [Hkv*D,Ek], w_value [Hkv*Dv,Ev], w_result [Eo,H*Dv] (None: the heads side by side),
    biases [out] or None, as PyTorch's nn.Linear stores them. r.out [B,Sq,Eo], r.weights [B,H,Sq,Sk], r.lse [B,H,Sq].
    saved: r keeps projections and attention, too, which mha_backward computes again otherwise; the same bits. An array
    that changes before then makes gradients of neither."""
    inputs = dict(query=query, key=key, value=value, w_query=w_query, w_key=w_key, w_value=w_value, w_result=w_result,
                  b_query=b_query, b_key=b_key, b_value=b_value, b_result=b_result)
    inputs = {name: _array(x) for name, x in inputs.items() if x is not None}
    results, others = _split(options)
    d = _Descriptor(recorded=True, **others)
    if query is None:
        raise TypeError("query: an array is needed, not None")
    d.kept["q"] = query = inputs["query"]       # new arrays are like it
    keys = inputs.get("key", query)
    value_rows = inputs["w_value"].shape[0] // max(heads_kv or heads, 1) * heads
    sizes = {"B": query.shape[0], "H": heads, "Q": query.shape[1], "S": keys.shape[1], "2": 2}
    inside = d.add_results(results, sizes)
    if out is True:
        columns = inputs["w_result"].shape[0] if w_result is not None else value_rows
        out = _new(query, (query.shape[0], query.shape[1], columns))
    m = attn_mha_desc(struct_bytes=sizeof(attn_mha_desc), heads=heads, heads_kv=heads_kv,
                      attention=ctypes.addressof(d.c))
    for name, x in inputs.items():
        setattr(m, name, _view(name, x))
    m.out = _view("out", out, attn_out)
    m.kept = dict(inputs, out=out)
    work = _mha_work(inputs, heads)
    if saved:
        size = c_size_t()
        _call("attn_mha_saved_size", byref(m), byref(size))
        m.memory = np.empty(size.value, "uint8")
        m.saved, m.saved_bytes = m.memory.ctypes.data, size.value
    d.call("attn_mha", byref(m), work=work)
    return Results(dict(out=out, **inside), desc=d, mha=m, inputs=inputs, work=work,
                   versions=_versions(dict(inputs, **d.kept)))


def mha_backward(results: Results[ArrayT], d_out: Numbers, *, accumulate: Sequence[str] = (),
                 **wanted: bool | Array | None) -> Results[ArrayT]:
    """The gradients of mha, from that with respect to r.out [B,Sq,Eo]: by default of all that went in (dquery, dw_key,
    db_result, ...); with names only of those (dquery=True, dw_query=an array)."""
    if not isinstance(results, Results) or "mha" not in results._kept:
        raise TypeError("results: what attn.mha returned is needed, which knows its inputs and options")
    inputs = results._kept["inputs"]
    _check_unchanged(results, dict(inputs, **results._kept["desc"].kept))
    wanted = wanted or {"d" + name: True for name in inputs}
    grad, arrays = _gradients(attn_mha_grad, inputs, dict(wanted, d_out=d_out), accumulate)
    results._kept["desc"].call("attn_mha_backward", byref(results._kept["mha"]), byref(grad),
                               work=2.5 * results._kept["work"])
    return Results(arrays)


# ---- small things
def _elementary(function, x):
    _check_array("x", x)
    x = np.ascontiguousarray(x, "float32")
    y = np.zeros_like(x)
    if lib.attn_elementary(ENUMS["attn_function"][function], x.ctypes.data, y.ctypes.data, x.size, 0):
        raise RuntimeError("attn_elementary failed")
    return y


def exp(x: Numbers) -> NDArray[np.float32]:
    """exp of each number as attn.h computes it, float32."""
    return _elementary("exp", x)


def log(x: Numbers) -> NDArray[np.float32]:
    """log of each number as attn.h computes it, float32."""
    return _elementary("log", x)


def tanh(x: Numbers) -> NDArray[np.float32]:
    """tanh of each number as attn.h computes it, float32."""
    return _elementary("tanh", x)


def best_isa() -> str:
    """The instruction set that runs unless the option isa names another: "avx2"."""
    return lib.attn_isa_string(lib.attn_best_isa()).decode()


def version() -> tuple[int, int, int]:
    """The library's version: (0, 3, 0)."""
    number = lib.attn_version()
    return number // 10000, number // 100 % 100, number % 100


# ---- pictures
_WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)


_INLINE = 4096      # cells that a notebook is given as shapes; more are given as an image


def _png(ppm):
    """The PNG file of what a PPM file holds."""
    _, size, _, pixels = ppm.split(b"\n", 3)
    width, height = map(int, size.split())
    rows = np.zeros((height, 1 + 3 * width), "uint8")       # a row begins with its filter: none
    rows[:, 1:] = np.frombuffer(pixels, "uint8").reshape(height, 3 * width)
    chunk = lambda kind, data: (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b""))


class Heatmap:
    """A picture of an array: inline in a notebook, in the terminal when printed; svg(), html(), ansi(), png(), ppm(),
    save(path)."""

    def __init__(self, values: Numbers, **fields: Any) -> None:
        self.values, self.mask = _array(values), None
        values = self.values
        if not 2 <= len(values.shape) <= 4:
            raise TypeError(f"a heatmap has 2 to 4 axes, not {len(values.shape)}")
        self.c, self.kept = attn_heatmap(struct_bytes=sizeof(attn_heatmap), values=_view("values", values)), []
        shape = tuple(values.shape)
        panels = int(np.prod(shape[:-2], dtype=int))
        counts = {"x_ticks": shape[-1], "y_ticks": shape[-2], "panel_titles": panels}
        types = dict(attn_heatmap._fields_[2:])
        for name, value in fields.items():
            if name == "range":
                self.c.range_set, (self.c.range_min, self.c.range_max) = 1, value
            elif name in counts:
                setattr(self.c, name, self._strings(name, value, counts[name]))
            elif name == "mask":
                self.mask = self._mask(value, shape)
                self.c.mask = _view("mask", self.mask)
            elif types.get(name) is c_char_p:
                setattr(self.c, name, value.encode())
            elif types.get(name) is c_int32:
                setattr(self.c, name, self._number(name, value))
            else:
                raise _unknown("field of a heatmap", name, [*types, "range"])

    def _mask(self, mask, shape):
        mask = np.asarray(_array(mask))
        if mask.dtype not in (np.bool_, np.uint8):
            raise TypeError(f"mask: of type {mask.dtype}; bool or uint8 is needed, false where a cell is masked")
        try:
            return np.broadcast_to(mask, shape)
        except ValueError:
            raise ValueError(f"mask: shape {mask.shape} does not fit {shape}, that of the values") from None

    def _number(self, name, value):
        names = ENUMS.get("attn_" + name, {})
        if isinstance(value, str) and value not in names:
            raise ValueError(f"{name}: {value!r} is none of {', '.join(names) or 'a number'}")
        return names.get(value, value)

    def _strings(self, name, texts, count):
        if len(texts) != count:
            raise ValueError(f"{name}: {count} texts are needed, {len(texts)} are given")
        strings = (c_char_p * count)(*[str(text).encode() for text in texts])
        self.kept.append(strings)
        return ctypes.addressof(strings)

    def _written(self, function, c=None):
        pieces = []
        write = _WRITE(lambda user, data, count: pieces.append(ctypes.string_at(data, count)) or 0)
        _call(function, byref(c or self.c), attn_writer(write=ctypes.cast(write, c_void_p)))
        return b"".join(pieces)

    def svg(self) -> str:
        """A whole SVG file, as text."""
        return self._written("attn_heatmap_svg").decode()

    def ppm(self) -> bytes:
        """A whole PPM file (P6): cells and colour bar, without text."""
        return self._written("attn_heatmap_ppm")

    def png(self) -> bytes:
        """A whole PNG file: cells and colour bar, without text."""
        return _png(self.ppm())

    def html(self) -> str:
        """A whole web page that loads nothing: all panels, each as cells or lines, with every value."""
        if not hasattr(lib, "attn_heatmap_html"):       # another library (ATTN_LIBRARY): one that has it is built
            headers = _headers()
            if len(headers) < 2:
                raise ImportError("attn_heatmap_html.h is neither beside attn.py nor in ../web")
            lib.attn_heatmap_html = _declared(ctypes.CDLL(_built(headers))).attn_heatmap_html
        return self._written("attn_heatmap_html").decode()

    def ansi(self, terminal: Literal["truecolor", "256", "ascii"] = "truecolor") -> str:
        """Lines for a terminal."""
        self.c.terminal = self._number("terminal", terminal)
        return self._written("attn_heatmap_ansi").decode()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the kind of file that the name ends in: .svg, .html (a web page), .png or .ppm (without text)."""
        kinds = {".svg": self.svg, ".html": self.html, ".png": self.png, ".ppm": self.ppm}
        ending = os.path.splitext(os.fspath(path))[1].lower()
        if ending not in kinds:
            raise ValueError(f"{os.fspath(path)!r}: a heatmap is saved as {', '.join(kinds)}")
        data = kinds[ending]()
        with open(path, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)

    def _repr_svg_(self) -> str:
        flags = _dtype(self.values) in ("bool", "uint8")
        values = np.asarray(self.values if flags else convert(self.values, "float32"))
        seen = values if self.mask is None else values[self.mask != 0]
        finite = seen[np.isfinite(seen)]
        if values.size <= _INLINE or self.c.numbers or finite.size == 0 or finite.min() == finite.max():
            return self.svg()
        return self._svg_of_images(values, finite)

    def _svg_of_images(self, values, finite):
        """The SVG file with an image for the cells of each panel: that of a map of one colour, whose cells are taken
        out. Eight panels of 512 x 512 would have more than 100 MB."""
        c = attn_heatmap.from_buffer_copy(self.c)
        if not c.range_set:
            c.range_set, c.range_min, c.range_max = 1, finite.min(), finite.max()
            if c.colormap == ENUMS["attn_colormap"]["diverging"]:
                c.range_max = abs(finite).max()
                c.range_min = -c.range_max
        nan = np.isnan(values if self.mask is None else values[self.mask != 0]).any()   # then it is explained, too
        flat = np.broadcast_to(np.float32(np.nan if nan else c.range_min), values.shape)
        c.values = _view("values", flat)
        text = self._written("attn_heatmap_svg", c).decode()
        panels = iter(values.reshape(-1, *values.shape[-2:]))
        masks = iter([] if self.mask is None else self.mask.reshape(-1, *values.shape[-2:]))

        def image(found):
            panel, mask = next(panels), next(masks, None)
            # the frame's line runs through the middle of the pixels around the cells
            x, y, width, height = (int(n) for n in re.findall(r'\b(?:x|y|width|height)="(-?\d+)', found.group(1)))
            cells = attn_heatmap.from_buffer_copy(c)
            cells.values, cells.no_colorbar = _view("values", panel), 1
            if mask is not None:
                cells.mask = _view("mask", mask)
            cells.height, cells.width = (min(n, 32767) for n in panel.shape)
            data = base64.b64encode(_png(self._written("attn_heatmap_ppm", cells))).decode()
            return (f'<image x="{x + 1}" y="{y + 1}" width="{width - 1}" height="{height - 1}" style="image-rendering: '
                    f'pixelated" preserveAspectRatio="none" href="data:image/png;base64,{data}"/>\n{found.group(1)}')

        cells, frame = '<g shape-rendering="crispEdges".*?</g>\n', '(<rect [^>]*fill="none"[^>]*>)'
        return re.sub(cells + frame, image, text, flags=re.S)

    def __str__(self) -> str:
        return self.ansi()


def heatmap(values: Numbers, **fields: Any) -> Heatmap:
    """A picture of [rows,cols], of a row of panels [cols,rows,cols] or of a grid of them, so of weights [B,H,Sq,Sk] as
    they are. Fields of attn_heatmap: title, x_label, y_label, x_ticks and y_ticks (a text per column and row),
    panel_titles, colormap ("reds", "viridis", "grey", or "diverging" for both signs), range=(low, high), width, height,
    ticks_on_top, no_colorbar, numbers, mask (bool or uint8, broadcast to the values, as attn.mask makes it; where it is
    false, cells are hatched)."""
    return Heatmap(values, **fields)
