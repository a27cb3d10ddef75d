"""torch_device.py - attn.py on tensors of a device: against PyTorch in float64, forward and backward, on the current
stream, with memory of torch's own. ATTN_LIBRARY names the library: build/cuda/libattn.so (make cuda-lib) for a GPU, or
build/cuda/libattn_emulated.so, whose device is the emulator; there ordinary tensors stand for those of a device, as two
functions of attn.py are told."""
import contextlib
import ctypes
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import attn  # noqa: E402

EMULATED = hasattr(attn.lib, "fake_everything")
DEVICE = "cpu" if EMULATED else "cuda"
checks = failures = 0


class Counts(ctypes.Structure):         # fake_counts of fake.h
    _fields_ = [(name, ctypes.c_long) for name in ("allocations", "releases", "launches", "blocks")] + [
        ("shared", ctypes.c_size_t), ("stream", ctypes.c_void_p), ("device", ctypes.c_int)]


def check(fine, what):
    global checks, failures
    checks += 1
    if not fine:
        failures += 1
        print(f"FAIL {what}")


def near(what, got, want, bound):
    apart = (got.detach().double().cpu() - want.detach().double().cpu()).abs().max().item()
    check(got.shape == want.shape and apart <= bound, f"{what}: {apart:.3g} apart, at most {bound:.3g}")


def refused(what, error, call, words):
    try:
        call()
    except error as found:
        check(words in str(found), f"{what}: {found}; not: {words}")
    else:
        check(False, f"{what} was not refused")


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=torch.float64).to(dtype).to(DEVICE)


def begin_emulation():
    lib = attn.lib
    lib.fake_stream.restype, lib.fake_counted.restype = ctypes.c_void_p, Counts
    lib.fake_range.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    lib.fake_everything(2)
    attn._is_on_device = attn._is_torch
    attn._stream = lambda x: lib.fake_stream()


def test_results():
    """Against torch's own attention of the same numbers in float64, and each gradient of it."""
    own = torch.nn.functional.scaled_dot_product_attention
    for dtype, bound in (torch.float32, 2e-5), (torch.bfloat16, 0.05), (torch.float16, 0.01):
        for options in {}, {"is_causal": True}, {"attn_mask": "bool"}, {"attn_mask": "float"}, {"scale": 0.3}:
            q, k, v = draw(2, 4, 70, 64, dtype=dtype), draw(2, 2, 70, 64, dtype=dtype), draw(2, 2, 70, 64, dtype=dtype)
            options = dict(options)
            if options.get("attn_mask") == "bool":
                options["attn_mask"] = torch.rand(70, 70).to(DEVICE) < 0.7
            if options.get("attn_mask") == "float":
                options["attn_mask"] = draw(70, 70, dtype=dtype)
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            doubles = [x.double().requires_grad_() for x in (q, k, v)]
            shared = [doubles[0], *(x.repeat_interleave(2, 1) for x in doubles[1:])]
            exact = {name: x.double() if name == "attn_mask" and x.is_floating_point() else x
                     for name, x in options.items()}
            out, want = attn.sdpa(*leaves, enable_gqa=True, **options), own(*shared, **exact)
            d_out = torch.randn_like(want)
            out.backward(d_out.to(dtype))
            want.backward(d_out.to(dtype).double())
            what = f"{dtype}, {', '.join(options) or 'no options'}"
            check(out.device == q.device and out.dtype == dtype, f"{what}: out is {out.dtype} on {out.device}")
            near(f"{what}: out", out, want, bound)
            for name, leaf, double in zip("qkv", leaves, doubles):
                near(f"{what}: d{name}", leaf.grad, double.grad, bound * 4)
    for dtype, words in (torch.float32, "stage 1"), (torch.bfloat16, "on the device, stage"):
        said = attn.explain(*[draw(1, 2, 9, 64, dtype=dtype) for _ in "qkv"])
        check(words in said, f"explain: {said}")


def test_inference():
    """Packed entries have the numbers of calls of their own, and their gradients; keys in pages and codes those of keys that are not."""
    q, k, v = draw(1, 4, 20, 64), draw(1, 2, 30, 64), draw(1, 2, 30, 64)
    ints = lambda *x: torch.tensor(x, dtype=torch.int32).to(DEVICE)
    leaves, d_out = [x.clone().requires_grad_() for x in (q, k, v)], draw(1, 4, 20, 64)
    options = {"enable_gqa": True, "causal": True, "align": "bottom_right"}
    out = attn.sdpa(*leaves, query_starts=ints(0, 12), query_lengths=ints(12, 8), key_starts=ints(0, 17),
                    key_lengths=ints(17, 13), **options)
    out.backward(d_out)
    for rows, keys in (slice(0, 12), slice(0, 17)), (slice(12, 20), slice(17, 30)):
        own = [x[:, :, part].clone().requires_grad_() for x, part in ((q, rows), (k, keys), (v, keys))]
        own_out = attn.sdpa(*own, **options)
        own_out.backward(d_out[:, :, rows])
        check(torch.equal(out[:, :, rows], own_out), f"the entry of rows {rows.start} to {rows.stop}")
        for leaf, one, part in zip(leaves, own, (rows, keys, keys)):
            check(torch.equal(leaf.grad[:, :, part], one.grad), f"a gradient of the rows {part.start} to {part.stop}")
    pages = [x[0].reshape(2, 6, 5, 64).transpose(0, 1)[[3, 1, 5, 0, 4, 2]] for x in (k, v)]
    table = ints(3, 1, 5, 0, 4, 2).reshape(1, 6)
    check(torch.equal(attn.attention(q, *pages, page_table=table), attn.attention(q, k, v)), "keys in pages")
    codes, scale = (x.to(DEVICE) for x in (torch.randint(-127, 128, (1, 2, 30, 64), dtype=torch.int8),
                                           torch.rand(1, 2, 30, 2) * 0.02))
    floats = codes.float() * scale.repeat_interleave(32, 3)
    check(torch.equal(attn.attention(q, codes, v, k_scale=scale), attn.attention(q, floats, v)), "codes")


def test_stream_and_memory():
    q, k, v = (draw(1, 2, 40, 16).requires_grad_() for _ in "qkv")
    if EMULATED:
        attn.lib.fake_forget()
        attn.sdpa(q, k, v, bilinear=draw(16, 16), score="bilinear").sum().backward()
        count = attn.lib.fake_counted()
        check(count.launches > 0 and count.stream == attn.lib.fake_stream(), "launches are on the current stream")
        check(count.allocations == 0, f"{count.allocations} allocations, which are torch's to make")
        return
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        torch.cuda._sleep(10**8)                # what comes before on the stream is waited for
        late = q.detach() * 2
        out = attn.sdpa(late, k, v)
    other.synchronize()
    near("another stream", out, attn.sdpa(q.detach() * 2, k, v), 0)


def test_refused():
    q, k, v = (draw(2, 2, 5, 4) for _ in "qkv")
    if not EMULATED:                            # there the device's tensors are in main memory
        refused("softmax", TypeError, lambda: attn.softmax(q), "x: this function takes dense tensors in main memory")
    lengths = torch.tensor([3, 5], dtype=torch.int32)
    with contextlib.ExitStack() as ends:
        if EMULATED:
            attn.lib.fake_range(lengths.data_ptr(), 8, 0)
            ends.callback(attn.lib.fake_everything, 2)
        refused("lengths on the host", attn.Error, lambda: attn.attention(q, k, v, key_lengths=lengths),
                "key_lengths must lie on the device, where the call runs")


if __name__ == "__main__":
    if not EMULATED and not (hasattr(attn.lib, "attn_cuda_prepare") and torch.cuda.is_available()):
        sys.exit("ATTN_LIBRARY names no library with kernels, or PyTorch sees no device")
    if EMULATED:
        begin_emulation()
    torch.manual_seed(1)
    for test in test_results, test_inference, test_stream_and_memory, test_refused:
        test()
    print(f"{checks - failures} of {checks} checks of PyTorch {torch.__version__} "
          + ("in the emulator" if EMULATED else f"on {torch.cuda.get_device_name()}"))
    sys.exit(failures > 0)
