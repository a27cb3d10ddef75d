"""attn.h for Python: attention on NumPy arrays and torch tensors, where they lie and without a copy.

    import numpy as np, attn                                # builds the library once, with cc, into a cache
    q, k, v = (np.random.rand(2, 8, 100, 64).astype("float32") for _ in range(3))
    out = attn.attention(q, k, v, causal=True)              # the output
    r = attn.forward(q, k, v, causal=True, weights=True)    # several results: r.out, r.weights
    g = attn.backward(r, d_out=np.ones_like(r.out))         # g.dq, g.dk, g.dv
    attn.heatmap(r.weights[0])                              # a picture, inline in a notebook

SHAPES    q [B,H,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv]; without heads [B,S,D]; of one sequence [S,D]. Results have as
          many axes as q: weights are [B,H,Sq,Sk], [B,Sq,Sk] or [Sq,Sk], lse [B,H,Sq], [B,Sq] or [Sq].
ARRAYS    NumPy arrays and torch tensors in main memory, of any strides. float32, float16 and bfloat16 (torch's,
          ml_dtypes', or its bits as uint16); k and v also int8 with k_scale and v_scale; masks bool; lengths and
          positions int32 or int64. Lists and numbers become arrays of float32, int64 or bool; an array of another type
          is refused, for nothing is copied behind your back: x.astype("float32"). Results are of the kind and type of
          q; lse and stats are float32. torch's autograd does not see them.
OPTIONS   every field of attn_desc under its name: attn.h says what it means. score="gaussian", align="bottom_right",
          empty="nan", isa="scalar", precision="fast" by their names in lower case; sigma: a number, or an array [H];
          window=(left, right), None where unbounded; threads: how many run the call.
RESULTS   out, lse, weights, scores, scores_softcap, scores_masked, stats: True makes an array, an array is written to.
ERRORS    attn.Error with the library's words: "k.size[3] must equal q.size[3]: 64, is 65".
FILES     ATTN_HEADER: attn.h, else beside this file or two folders above. ATTN_CACHE: the folder for what is built.
          CC: the compiler. ATTN_LIBRARY: a library that is there already, of this or a later version."""
import ctypes
import hashlib
import itertools
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from ctypes import (CFUNCTYPE, Structure, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p, sizeof)

import numpy as np


# ---- written by ../bindings.py from attn.h
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
        ("query_starts", attn_view), ("key_starts", attn_view), ("page_table", attn_view)]


class attn_grad(Structure):
    _fields_ = [("struct_bytes", c_uint64), ("d_out", attn_view), ("d_weights", attn_view), ("d_lse", attn_view),
        ("dq", attn_out), ("dk", attn_out), ("dv", attn_out), ("d_given_scores", attn_out), ("d_bias", attn_out),
        ("d_bilinear", attn_out), ("d_w_q", attn_out), ("d_w_k", attn_out), ("d_w_v", attn_out),
        ("d_hidden_bias", attn_out), ("d_sigma", attn_out), ("d_scale", attn_out), ("d_sink", attn_out),
        ("d_alibi", attn_out), ("accumulate", c_uint32), ("reserved", c_int32)]


class attn_plan(Structure):
    _fields_ = [("workspace_bytes", c_size_t), ("phases", c_int32), ("isa", c_int32), ("tasks", c_int64 * 16),
        ("internal", c_int64 * 512)]


class attn_rope_desc(Structure):
    _fields_ = [("struct_bytes", c_uint64), ("base", c_double), ("scaling", c_int32), ("no_truncation", c_int32),
        ("factor", c_double), ("original_positions", c_int64), ("low_freq_factor", c_double),
        ("high_freq_factor", c_double), ("beta_fast", c_double), ("beta_slow", c_double),
        ("attention_factor", c_double), ("first_position", c_int64)]


class attn_mha_desc(Structure):
    _fields_ = [("struct_bytes", c_uint64), ("query", attn_view), ("key", attn_view), ("value", attn_view),
        ("w_query", attn_view), ("w_key", attn_view), ("w_value", attn_view), ("w_result", attn_view),
        ("b_query", attn_view), ("b_key", attn_view), ("b_value", attn_view), ("b_result", attn_view),
        ("out", attn_out), ("heads", c_int64), ("heads_kv", c_int64), ("attention", c_void_p)]


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
        ("no_colorbar", c_int32), ("numbers", c_int32), ("terminal", c_int32), ("cell_titles", c_int32)]


ENUMS = {
    "attn_status": {"ok": 0, "err_null": 1, "err_type": 2, "err_rank": 3, "err_size": 4, "err_stride": 5,
        "err_range": 6, "err_option": 7, "err_overflow": 8, "err_overlap": 9, "err_workspace": 10, "err_alloc": 11,
        "err_isa": 12, "err_write": 13, "err_place": 14, "err_cuda": 15},
    "attn_type": {"f32": 0, "f16": 1, "bf16": 2, "f64": 3, "u8": 4, "i32": 5, "i64": 6, "i8": 7},
    "attn_score": {"scaled_dot": 0, "dot": 1, "cosine": 2, "bilinear": 3, "additive": 4, "gaussian": 5, "boxcar": 6,
        "epanechnikov": 7, "triangular": 8, "constant": 9, "given": 10},
    "attn_align": {"unset": 0, "bottom_right": 1, "positions": 2, "top_left": 3},
    "attn_empty": {"zero": 0, "nan": 1, "uniform": 2},
    "attn_isa": {"auto": 0, "scalar": 1, "avx2": 2, "avx512": 3, "neon": 4, "portable": 5},
    "attn_precision": {"f32": 0, "fast": 1},
    "attn_grad_bit": {"q": 1, "k": 2, "v": 4, "given_scores": 8, "bias": 16, "bilinear": 32, "w_q": 64, "w_k": 128,
        "w_v": 256, "hidden_bias": 512, "sigma": 1024, "scale": 2048, "sink": 4096, "alibi": 8192, "all": 16383},
    "attn_rope_scaling": {"plain": 0, "linear": 1, "ntk": 2, "yarn": 3, "llama3": 4},
    "attn_function": {"exp": 0, "log": 1, "tanh": 2},
    "attn_colormap": {"reds": 0, "viridis": 1, "grey": 2},
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
    "attn_bmm": (c_int, [attn_view, attn_view, attn_out, c_void_p, c_void_p]),
    "attn_bmm_workspace_size": (c_int, [attn_view, attn_view, attn_out, c_void_p, c_void_p, c_void_p]),
    "attn_convert": (c_int, [attn_view, attn_out, c_void_p]),
    "attn_quantize": (c_int, [attn_view, attn_out, attn_out, c_void_p]),
    "attn_unpack_q8_0": (c_int, [c_void_p, attn_out, attn_out, c_void_p]),
    "attn_lengths_of": (c_int, [attn_view, attn_out, c_void_p]),
    "attn_append": (c_int, [attn_view, attn_out, attn_view, c_void_p, c_void_p]),
    "attn_rope": (c_int, [attn_view, attn_view, attn_view, attn_view, c_uint32, attn_out, c_void_p]),
    "attn_rope_table": (c_int, [attn_out, attn_out, c_void_p, c_void_p]),
    "attn_mha": (c_int, [c_void_p, c_void_p]),
    "attn_mha_workspace_size": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attn_mha_backward": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attn_mha_backward_workspace_size": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "attn_status_string": (c_char_p, [c_int]),
    "attn_error_string": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "attn_best_isa": (c_int, []),
    "attn_isa_string": (c_char_p, [c_int]),
    "attn_score_string": (c_char_p, [c_int]),
    "attn_version": (c_int32, []),
    "attn_layout": (c_size_t, [c_void_p, c_size_t]),
    "attn_elementary": (c_int, [c_int, c_void_p, c_void_p, c_int64, c_int]),
    "attn_buffer_writer": (attn_writer, [c_void_p]),
    "attn_heatmap_ansi": (c_int, [c_void_p, attn_writer, c_void_p]),
    "attn_heatmap_svg": (c_int, [c_void_p, attn_writer, c_void_p]),
    "attn_heatmap_ppm": (c_int, [c_void_p, attn_writer, c_void_p]),
    "attn_heatmap_html": (c_int, [c_void_p, attn_writer, c_void_p]),
}
# ---- up to here


class Error(ValueError):
    """What attn.h refuses. status: "err_size"; field: "k.size[3]"; rule: "must equal q.size[3]"; got, want: numbers;
    place: the indices of the element, or None."""

    def __init__(self, error):
        size = lib.attn_error_string(byref(error), None, 0) + 1
        text = ctypes.create_string_buffer(size)
        lib.attn_error_string(byref(error), text, size)
        super().__init__(text.value.decode())
        self.status = list(ENUMS["attn_status"])[error.status]
        self.field, self.rule = error.field.decode(), error.rule.decode()
        self.got, self.want = (error.got, error.want) if error.has_numbers else (None, None)
        self.place = tuple(error.place[:error.has_place]) if error.has_place else None


# ---- the library: built from the header, and held against what is written above
def _header():
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.environ.get("ATTN_HEADER"), os.path.join(here, "attn.h"), os.path.join(here, "..", "..", "attn.h")]
    for path in filter(None, places):
        if os.path.isfile(path):
            return path
    raise ImportError("attn.h is neither beside attn.py nor two folders above: name it in ATTN_HEADER")


def _cache():
    default = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("ATTN_CACHE") or os.path.join(default, "attn")


def _built():
    """The path of the library. Its name has a hash of the header and the command, so that a change of either builds."""
    header = _header()
    command = shlex.split(os.environ.get("CC", "cc")) + ["-O2", "-shared", "-fPIC", "-x", "c", "-DATTN_IMPLEMENTATION"]
    with open(header, "rb") as file:
        key = hashlib.sha256(file.read() + " ".join(command + [platform.machine(), sys.platform]).encode())
    path = os.path.join(_cache(), f"libattn-{key.hexdigest()[:16]}.{'dll' if os.name == 'nt' else 'so'}")
    if os.path.exists(path):
        return path
    os.makedirs(_cache(), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_cache()) as folder:
        fresh = os.path.join(folder, os.path.basename(path))
        command += [header, "-o", fresh, "-lm"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except OSError as error:
            raise ImportError(f"attn.py builds attn.h with the C compiler '{command[0]}', which does not run "
                              f"({error.strerror}): install one, or name another in CC") from None
        if done.returncode:
            raise ImportError(f"'{command[0]}' could not build attn.h: {shlex.join(command)}\n{done.stdout[-2000:]}")
        os.replace(fresh, path)     # another process may build the same at the same time
    return path


def layout():
    """The library's own structures, from attn_layout: {structure: (size, {field: (offset, size)})}."""
    text = ctypes.create_string_buffer(lib.attn_layout(None, 0) + 1)
    lib.attn_layout(text, len(text))
    found = {}
    for line in text.value.decode().splitlines():
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


def _load():
    loaded = ctypes.CDLL(os.environ.get("ATTN_LIBRARY") or _built())
    for name, (result, inside) in FUNCTIONS.items():
        if hasattr(loaded, name):       # a library may leave out gradients and pictures
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, inside
    return loaded


lib = _load()
_check_layout()


def _call(name, *arguments):
    error = attn_error()
    if getattr(lib, name)(*arguments, byref(error)):
        raise Error(error)


# ---- arrays: NumPy's and torch's, as views of what they hold
_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint16": "bf16", "float64": "f64", "bool": "u8",
          "uint8": "u8", "int32": "i32", "int64": "i64", "int8": "i8"}


def _is_torch(x):
    return hasattr(x, "data_ptr")


def _array(x):
    """x itself where it is an array; a list or a number as one."""
    if _is_torch(x) or isinstance(x, np.ndarray):
        return x
    x = np.asarray(x)
    return np.atleast_1d(x.astype({"f": "float32", "i": "int64"}.get(x.dtype.kind, x.dtype)))


def _dtype(x):
    return str(x.dtype).replace("torch.", "") if _is_torch(x) else x.dtype.name


def _view(name, x, kind=None, absent=()):
    """The attn_view of an array, or the attn_out: of one with more axes, of size 1, at the places `absent`."""
    kind = kind or attn_view
    if _dtype(x) not in _TYPES:
        raise TypeError(f"{name}: attn.h has no type {_dtype(x)}")
    if _is_torch(x):
        if x.device.type != "cpu":
            raise TypeError(f"{name}: this binding takes tensors in main memory, not on {x.device}")
        data, strides = x.data_ptr(), list(x.stride())
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
    view = kind(type=ENUMS["attn_type"][_TYPES[_dtype(x)]], rank=len(sizes), data=data)
    view.size[:len(sizes)], view.stride[:len(sizes)] = sizes, strides
    return view


def _empty(like, shape, dtype=None):
    """A new array of the kind and type of `like`, or of another type."""
    if _is_torch(like):
        return like.new_empty(tuple(shape), dtype=getattr(sys.modules["torch"], dtype) if dtype else like.dtype)
    return np.empty(tuple(shape), dtype or like.dtype)


# Axes of what follows q's number of axes: without batch or heads those letters are not there.
_AXES = {"q": "BHQD", "k": "BKSE", "v": "BKSV", "given_scores": "BHQS", "out": "BHQV", "lse": "BHQ", "stats": "BHQ2",
         "weights": "BHQS", "scores": "BHQS", "scores_softcap": "BHQS", "scores_masked": "BHQS", "mask": "BHQS",
         "bias": "BHQS", "k_scale": "BKS1", "v_scale": "BKS1"}
_LEFT_OUT = {4: (), 3: (1,), 2: (0, 1)}


def _of_grad(name):
    """The field of attn_desc, or of attn_mha_desc, that a gradient belongs to: d_bias is bias's, dq is q's."""
    return name[2:] if name.startswith("d_") else name[1:]


def _absent(name, x, axes):
    """Which axes the array of that field lacks, where q has so many."""
    letters = _AXES.get(name, _AXES.get(_of_grad(name), ""))
    missing = _LEFT_OUT.get(axes, ())
    return missing if letters and len(x.shape) == len(letters) - len(missing) else ()


class Results:
    """Arrays by the names that attn.h has for them."""

    def __init__(self, arrays, axes=4, **kept):
        self.__dict__.update(arrays)
        self._names, self._axes, self._kept = tuple(arrays), axes, kept

    def __repr__(self):
        return "Results(%s)" % ", ".join(f"{name} {list(getattr(self, name).shape)}" for name in self._names)


_PLAIN = {c_float, c_int32, c_int64, c_uint64}
_NUMBERS = {name for name, kind in attn_desc._fields_ if kind in _PLAIN} - {"struct_bytes", "scale_set"}
_VIEWS = {name for name, kind in attn_desc._fields_ if kind is attn_view}
_RESULTS = [name for name, kind in attn_desc._fields_ if kind is attn_out]


class _Descriptor:
    """attn_desc from arrays and options; it keeps what the structure points to."""

    def __init__(self, arrays=(), axes=4, **options):
        arrays = {name: _array(x) for name, x in dict(arrays).items() if x is not None}
        if options.get("given_scores") is not None:
            options["given_scores"] = _array(options["given_scores"])
        first = arrays.get("q", options.get("given_scores"))
        self.c, self.kept = attn_desc(struct_bytes=sizeof(attn_desc)), {}
        self.axes = axes if first is None else len(first.shape)
        for name, x in arrays.items():
            self.set_view(name, x)
        for name, value in options.items():
            if value is not None:
                self.set_option(name, value)

    def set_view(self, name, x):
        x = self.kept[name] = _array(x)
        setattr(self.c, name, _view(name, x, absent=_absent(name, x, self.axes)))

    def set_option(self, name, value):
        if name == "threads":
            self.set_threads(value)
        elif name == "window":
            left, right = (-1 if n is None else n for n in value)
            self.c.window, self.c.window_left, self.c.window_right = 1, left, right
        elif name == "sigma" and np.ndim(value):
            self.set_view("sigma_per_head", value)
        elif name in _VIEWS:
            self.set_view(name, value)
        elif name == "dropout_origin":
            self.c.dropout_origin[:] = value
        elif name in _NUMBERS:
            if isinstance(value, str):
                names = ENUMS.get("attn_" + name, {})
                if value not in names:
                    raise ValueError(f"{name}: {value!r} is none of {', '.join(names) or 'a number'}")
                value = names[value]
            setattr(self.c, name, value)
            if name == "scale":
                self.c.scale_set = 1
        else:
            raise TypeError(f"attn.h has no option {name!r}")

    def set_threads(self, workers):
        if workers > 1:
            self.kept["run"] = run = _RUN(lambda user, count, task, arg: _spread(workers, count, task, arg))
            self.c.parallel = attn_parallel(run=ctypes.cast(run, c_void_p), workers=workers)

    def sizes(self):
        """What the letters of the axes stand for."""
        sizes = {"1": 1, "2": 2}
        for name in ("given_scores", "q", "k", "v"):
            view = getattr(self.c, name)
            if view.rank:
                sizes.update(zip(_AXES[name], view.size))
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
                    raise TypeError(f"{name} needs {'v' if 'V' in missing else 'q and k'}")
                value = _empty(like, [sizes[c] for c in letters], "float32" if name in ("lse", "stats") else None)
            arrays[name] = self.kept[name] = value
            setattr(self.c, name, _view(name, value, attn_out, _absent(name, value, self.axes)))
        return arrays


# ---- threads: the library hands out tasks, a pool of Python's runs them (ctypes lets other threads run meanwhile)
_TASK = CFUNCTYPE(None, c_void_p, c_int64, c_int32)
_RUN = CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p)
_pools = {}


def _spread(workers, count, task, arg):
    run, following = _TASK(task), itertools.count()

    def work(worker):
        for index in following:
            if index >= count:
                return
            run(arg, index, worker)

    if workers not in _pools:
        _pools[workers] = ThreadPoolExecutor(workers)
    list(_pools[workers].map(work, range(workers)))


# ---- attention
def _split(options):
    """The results among the options, and the others."""
    return ({name: value for name, value in options.items() if name in _RESULTS},
            {name: value for name, value in options.items() if name not in _RESULTS})


def forward(q, k, v=None, *, out=True, **options):
    """Attention with the results that are asked for, as attributes: r.out [..,Sq,Dv], r.lse [..,Sq], r.weights,
    r.scores, r.scores_softcap, r.scores_masked [..,Sq,Sk], r.stats [..,Sq,2]. True makes an array, an array is written
    to. q and k are None where the option given_scores [..,Sq,Sk] stands for both."""
    results, options = _split(options)
    d = _Descriptor({"q": q, "k": k, "v": v}, **options)
    arrays = d.add_results(dict(out=out, **results))
    _call("attn_forward", byref(d.c))
    return Results(arrays, d.axes, desc=d)


def attention(q, k, v, **options):
    """The output alone: [..,Sq,Dv]."""
    return forward(q, k, v, **options).out


def weights(q, k, **options):
    """The weights alone: [..,Sq,Sk]."""
    return forward(q, k, out=False, weights=True, **options).weights


def scores(q, k, **options):
    """The raw scores of all pairs, scale included, before masks: [..,Sq,Sk]."""
    return forward(q, k, out=False, scores=True, **options).scores


def _gradients(structure, owners, wanted, accumulate, axes=0, like=None):
    """The attn_grad or attn_mha_grad of the gradients wanted, which keeps what it points to, and their arrays."""
    grad, arrays = structure(struct_bytes=sizeof(structure)), {}
    grad.kept = []
    results = [name for name, kind in structure._fields_ if kind is attn_out]
    for name, value in wanted.items():
        if value is None or value is False:
            continue
        if name not in dict(structure._fields_):
            raise TypeError(f"attn.h has no gradient {name!r}")
        if name in results:
            if value is True:
                owner = owners.get(_of_grad(name))
                if owner is None and name == "d_sigma":
                    owner = owners.get("sigma_per_head")
                if owner is None and name not in ("d_sigma", "d_scale"):
                    raise TypeError(f"{name}: there is no {_of_grad(name)}")
                value = _empty(like, [1], "float32") if owner is None else _empty(owner, owner.shape)
            arrays[name] = value
        value = _array(value)
        grad.kept.append(value)
        setattr(grad, name, _view(name, value, attn_out if name in results else attn_view, _absent(name, value, axes)))
    grad.accumulate = sum(1 << results.index(name) for name in accumulate)
    return grad, arrays


def backward(results, d_out=None, *, d_weights=None, d_lse=None, dq=True, dk=True, dv=True, accumulate=(), **others):
    """The gradients of a loss, from its gradients with respect to r.out, r.weights and r.lse, where r is what forward
    returned. Attributes dq, dk, dv, and those asked for: d_bias, d_sigma, d_w_q, ... each shaped like what it belongs
    to (d_scale, and d_sigma without sigma_per_head: [1]). accumulate: names of those that are added to the arrays
    given for them. It is faster where forward was asked for stats=True."""
    d = results._kept["desc"]
    wanted = {name: value for name, value in dict(dq=dq, dk=dk, dv=dv).items()
              if value is not True or _of_grad(name) in d.kept}
    wanted.update(others, d_out=d_out, d_weights=d_weights, d_lse=d_lse)
    like = d.kept.get("q", d.kept.get("given_scores"))
    grad, arrays = _gradients(attn_grad, d.kept, wanted, accumulate, d.axes, like)
    _call("attn_backward", byref(d.c), byref(grad))
    return Results(arrays, d.axes)


def explain(q, k, v=None, **options):
    """How attn.h runs the call of these arrays, or why it refuses it: a sentence."""
    d = _Descriptor({"q": q, "k": k, "v": v}, **options)
    try:
        d.add_results({"out" if v is not None else "weights": True})
    except TypeError:
        pass                        # the sentence says what lacks
    text = ctypes.create_string_buffer(lib.attn_explain(byref(d.c), None, 0) + 1)
    lib.attn_explain(byref(d.c), text, len(text))
    return text.value.decode()


# ---- the pieces
def softmax(x, *, out=None, **options):
    """Masked softmax over the last axis of x: [n], [Sq,Sk], [B,Sq,Sk] or [B,H,Sq,Sk]; out may be x itself."""
    x = _array(x)
    out = _empty(x, x.shape) if out is None else out
    d = _Descriptor(**options)
    _call("attn_softmax", _view("x", x), _view("out", out, attn_out), byref(d.c))
    return out


def softmax_backward(x, d_out, *, dx=None, **options):
    """The gradient with respect to x of softmax(x, **options), from that with respect to its result; all of x's
    shape."""
    x, d_out = _array(x), _array(d_out)
    dx = _empty(x, x.shape) if dx is None else dx
    d = _Descriptor(**options)
    _call("attn_softmax_backward", _view("x", x), _view("d_out", d_out), _view("dx", dx, attn_out), byref(d.c))
    return dx


def _mask(function, shape, options):
    mask = np.empty(tuple(shape), bool)
    d = _Descriptor(axes=mask.ndim, **options)
    _call(function, _view("mask", mask, attn_out, _absent("mask", mask, mask.ndim)), byref(d.c))
    return mask


def mask(shape, **options):
    """Which pairs the options allow: a bool array of that shape, [B,H,Sq,Sk], [B,Sq,Sk] or [Sq,Sk]."""
    return _mask("attn_mask", shape, options)


def dropout_mask(shape, dropout, seed=0, **options):
    """Which weights dropout keeps: a bool array of that shape, [B,H,Sq,Sk], [B,Sq,Sk] or [Sq,Sk]."""
    return _mask("attn_dropout_mask", shape, dict(options, dropout=dropout, seed=seed))


def merge(out_a, lse_a, out_b, lse_b):
    """Attention over two disjoint sets of keys from that over each: (out [..,Sq,Dv], lse [..,Sq])."""
    out_a, lse_a, out_b, lse_b = map(_array, (out_a, lse_a, out_b, lse_b))
    out, lse = _empty(out_a, out_a.shape), _empty(lse_a, lse_a.shape)
    axes = len(out_a.shape)
    views = [_view(name, x, absent=_absent(name, x, axes)) for name, x in
             (("out", out_a), ("lse", lse_a), ("out", out_b), ("lse", lse_b))]
    views += [_view(name, x, attn_out, _absent(name, x, axes)) for name, x in (("out", out), ("lse", lse))]
    _call("attn_merge", *views)
    return out, lse


def bmm(a, b, *, out=None, **options):
    """Batched matrix product: [..,M,K] times [..,K,N] is [..,M,N], 2 to 4 axes; axes before the last two broadcast."""
    a, b = _array(a), _array(b)
    if out is None:
        batch = np.broadcast_shapes(tuple(a.shape)[:-2], tuple(b.shape)[:-2])
        out = _empty(a, batch + (a.shape[-2], b.shape[-1]))
    _call("attn_bmm", _view("a", a), _view("b", b), _view("out", out, attn_out), byref(_Descriptor(**options).c))
    return out


def bmm_backward(a, b, d_out, **options):
    """The gradients of bmm(a, b): (da, db), shaped like a and b."""
    a, b, d_out = _array(a), _array(b), _array(d_out)
    da, db = _empty(a, a.shape), _empty(b, b.shape)
    _call("attn_bmm_backward", _view("a", a), _view("b", b), _view("d_out", d_out), _view("da", da, attn_out),
          _view("db", db, attn_out), 0, byref(_Descriptor(**options).c))
    return da, db


def convert(x, dtype, *, out=None):
    """x as another type ("float32", "float16", "bfloat16", "float64"), each number rounded once, to nearest even. NumPy
    alone has no bfloat16: there its bits come as uint16."""
    x = _array(x)
    if out is None:
        name = "uint16" if dtype == "bfloat16" and not _is_torch(x) else dtype
        out = _empty(x, x.shape, name)
    _call("attn_convert", _view("x", x), _view("out", out, attn_out))
    return out


def quantize(x, block=None, scale_dtype="float32"):
    """Rows as codes, for k and v: (codes int8 [B,H,S,D], scales [B,H,S,1], or [B,H,S,ceil(D/32)] with block=32). The
    options k_scale and v_scale take the scales."""
    x = _array(x)
    if block not in (None, 32):
        raise ValueError("block: a scale for each row (None) or for each 32 numbers of it (32)")
    codes = _empty(x, x.shape, "int8")
    scale = _empty(x, tuple(x.shape)[:-1] + (-(-x.shape[-1] // 32) if block else 1,), scale_dtype)
    axes = len(x.shape)
    _call("attn_quantize", _view("x", x, absent=_absent("k", x, axes)),
          _view("codes", codes, attn_out, _absent("k", codes, axes)),
          _view("scale", scale, attn_out, _absent("k_scale", scale, axes)))
    return codes, scale


# ---- sequences
def lengths_of(offsets, dtype="int32"):
    """The lengths [B] of sequences that lie between offsets [B+1], the cu_seqlens of other libraries."""
    offsets = _array(offsets)
    lengths = _empty(offsets, (max(offsets.shape[0] - 1, 0),), dtype)
    _call("attn_lengths_of", _view("offsets", offsets), _view("lengths", lengths, attn_out))
    return lengths


def append(fresh, cache, lengths, **options):
    """Writes new rows of k or v, fresh [B,Hkv,n,D], behind those that cache [B,Hkv,S,D] holds, lengths [B] of each
    entry. Options: query_lengths, query_starts, key_starts, page_table; k_scale or v_scale, which are written too, of a
    cache of int8."""
    fresh, lengths = _array(fresh), _array(lengths)
    for name in ("k_scale", "v_scale"):
        if options.get(name) is not None:
            _view(name, options[name], attn_out)        # refuses what cannot be written
    _call("attn_append", _view("fresh", fresh), _view("cache", cache, attn_out), _view("lengths", lengths),
          byref(_Descriptor(**options).c))


def rope_table(positions, size, *, base=0, scaling="plain", **fields):
    """Tables for rope: (cosines, sines), float32 [positions, size/2]; size: R, how many columns are turned. scaling:
    "plain", "linear", "ntk", "yarn" or "llama3"; fields: those of attn_rope_desc that it uses (factor,
    original_positions, low_freq_factor, high_freq_factor, beta_fast, beta_slow, attention_factor, no_truncation) and
    first_position."""
    known = dict(attn_rope_desc._fields_)
    for name in fields:
        if name not in known:
            raise TypeError(f"attn_rope_desc has no field {name!r}")
    if size % 2:
        raise ValueError(f"size: must be even, is {size}")
    d = attn_rope_desc(struct_bytes=sizeof(attn_rope_desc), base=base,
                       scaling=ENUMS["attn_rope_scaling"][scaling], **fields)
    cosines, sines = (np.empty((positions, size // 2), "float32") for _ in range(2))
    _call("attn_rope_table", _view("cosines", cosines, attn_out), _view("sines", sines, attn_out), byref(d))
    return cosines, sines


def rope(x, cos, sin, *, positions=None, interleaved=False, inverse=False, out=None):
    """x [B,H,S,D] with its first columns turned by rotary positions, two for each column of the tables; a new array, or
    out, which may be x. positions: [B] of each entry's first row, or [B,S]; None: rows 0, 1, .. of the tables."""
    x, cos, sin = _array(x), _array(cos), _array(sin)
    out = _empty(x, x.shape) if out is None else out
    at = attn_view()
    if positions is not None:
        positions = _array(positions)
        at = _view("positions", positions)
    _call("attn_rope", _view("x", x), _view("cos", cos), _view("sin", sin), at, interleaved + 2 * inverse,
          _view("out", out, attn_out))
    return out


def mha(query, w_query, w_key, w_value, w_result=None, *, heads, heads_kv=0, key=None, value=None, b_query=None,
        b_key=None, b_value=None, b_result=None, out=True, **options):
    """Multi-head attention with its projections: query [B,Sq,Eq], key [B,Sk,Ek] (None: query), value [B,Sk,Ev] (None:
    key); w_query [H*D,Eq], w_key [Hkv*D,Ek], w_value [Hkv*Dv,Ev], w_result [Eo,H*Dv] (None: the heads side by side),
    biases [out] or None, as PyTorch's nn.Linear stores them. r.out [B,Sq,Eo], r.weights [B,H,Sq,Sk], r.lse [B,H,Sq]."""
    inputs = dict(query=query, key=key, value=value, w_query=w_query, w_key=w_key, w_value=w_value, w_result=w_result,
                  b_query=b_query, b_key=b_key, b_value=b_value, b_result=b_result)
    inputs = {name: _array(x) for name, x in inputs.items() if x is not None}
    results, options = _split(options)
    d = _Descriptor(**options)
    d.kept["q"] = query = inputs["query"]       # new arrays are like it
    keys = inputs.get("key", query)
    value_rows = inputs["w_value"].shape[0] // (heads_kv or heads) * heads
    sizes = {"B": query.shape[0], "H": heads, "Q": query.shape[1], "S": keys.shape[1], "2": 2}
    inside = d.add_results(results, sizes)
    if out is True:
        columns = inputs["w_result"].shape[0] if w_result is not None else value_rows
        out = _empty(query, (query.shape[0], query.shape[1], columns))
    m = attn_mha_desc(struct_bytes=sizeof(attn_mha_desc), heads=heads, heads_kv=heads_kv,
                      attention=ctypes.addressof(d.c))
    for name, x in inputs.items():
        setattr(m, name, _view(name, x))
    m.out = _view("out", out, attn_out)
    _call("attn_mha", byref(m))
    return Results(dict(out=out, **inside), desc=d, mha=m, inputs=inputs)


def mha_backward(results, d_out, *, accumulate=(), **wanted):
    """The gradients of mha, from that with respect to r.out [B,Sq,Eo]: by default of all that went in (dquery, dw_key,
    db_result, ...); with names only of those (dquery=True, dw_query=an array)."""
    inputs = results._kept["inputs"]
    wanted = wanted or {"d" + name: True for name in inputs}
    grad, arrays = _gradients(attn_mha_grad, inputs, dict(wanted, d_out=d_out), accumulate)
    _call("attn_mha_backward", byref(results._kept["mha"]), byref(grad))
    return Results(arrays)


# ---- small things
def _elementary(function, x):
    x = np.ascontiguousarray(x, "float32")
    y = np.empty_like(x)
    if lib.attn_elementary(ENUMS["attn_function"][function], x.ctypes.data, y.ctypes.data, x.size, 0):
        raise RuntimeError("attn_elementary failed")
    return y


def exp(x):
    """exp of each number as attn.h computes it, float32."""
    return _elementary("exp", x)


def log(x):
    """log of each number as attn.h computes it, float32."""
    return _elementary("log", x)


def tanh(x):
    """tanh of each number as attn.h computes it, float32."""
    return _elementary("tanh", x)


def best_isa():
    """The instruction set that runs unless the option isa names another: "avx2"."""
    return lib.attn_isa_string(lib.attn_best_isa()).decode()


def version():
    """The library's version: (0, 3, 0)."""
    number = lib.attn_version()
    return number // 10000, number // 100 % 100, number % 100


# ---- pictures
_WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)


class Heatmap:
    """A picture of an array: inline in a notebook, in the terminal when printed; svg(), html(), ansi(), ppm(),
    save(path)."""

    def __init__(self, values, **fields):
        self.values = values = _array(values)
        if not 2 <= len(values.shape) <= 4:
            raise TypeError(f"a heatmap has 2 to 4 axes, not {len(values.shape)}")
        self.c, self.kept = attn_heatmap(struct_bytes=sizeof(attn_heatmap), values=_view("values", values)), []
        shape = tuple(values.shape)
        panels = int(np.prod(shape[:-2], dtype=int))
        counts = {"x_ticks": shape[-1], "y_ticks": shape[-2], "panel_titles": panels}
        types = dict(attn_heatmap._fields_)
        for name, value in fields.items():
            if name == "range":
                self.c.range_set, (self.c.range_min, self.c.range_max) = 1, value
            elif name in counts:
                setattr(self.c, name, self._strings(name, value, counts[name]))
            elif types.get(name) is c_char_p:
                setattr(self.c, name, value.encode())
            elif types.get(name) is c_int32:
                setattr(self.c, name, ENUMS["attn_" + name][value] if isinstance(value, str) else value)
            else:
                raise TypeError(f"a heatmap has no field {name!r}")

    def _strings(self, name, texts, count):
        if len(texts) != count:
            raise ValueError(f"{name}: {count} texts are needed, {len(texts)} are given")
        strings = (c_char_p * count)(*[str(text).encode() for text in texts])
        self.kept.append(strings)
        return ctypes.addressof(strings)

    def _written(self, function):
        pieces = []
        write = _WRITE(lambda user, data, count: pieces.append(ctypes.string_at(data, count)) or 0)
        _call(function, byref(self.c), attn_writer(write=ctypes.cast(write, c_void_p)))
        return b"".join(pieces)

    def svg(self):
        """A whole SVG file, as text."""
        return self._written("attn_heatmap_svg").decode()

    def ppm(self):
        """A whole PPM file (P6): cells and colour bar, as bytes."""
        return self._written("attn_heatmap_ppm")

    def html(self):
        """A whole web page that loads nothing: each cell's labels and value under the pointer, a picker of panels."""
        return self._written("attn_heatmap_html").decode()

    def ansi(self, terminal="truecolor"):
        """Lines for a terminal: "truecolor", "256" or "ascii"."""
        self.c.terminal = ENUMS["attn_terminal"][terminal]
        return self._written("attn_heatmap_ansi").decode()

    def save(self, path):
        """Writes an SVG file, or a web page or a PPM file where the name ends in .html or .ppm."""
        if str(path).endswith(".ppm"):
            data = self.ppm()
        else:
            data = (self.html() if str(path).endswith(".html") else self.svg()).encode()
        with open(path, "wb") as file:
            file.write(data)

    def _repr_svg_(self):
        return self.svg()

    def __str__(self):
        return self.ansi()


def heatmap(values, **fields):
    """A picture of [rows,cols], of a row of panels [cols,rows,cols] or of a grid of them, so of weights [B,H,Sq,Sk] as
    they are. Fields of attn_heatmap: title, x_label, y_label, x_ticks and y_ticks (a text per column and row),
    panel_titles, colormap ("reds", "viridis", "grey"), range=(low, high), width, height, ticks_on_top, no_colorbar,
    numbers."""
    return Heatmap(values, **fields)
