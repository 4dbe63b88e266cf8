"""Records the results of PyTorch's operators on a GPU, for the models of the referee.

    python3 scripts/witness/torch_operators.py FOLDER [NAME ...]

records all calls, or those of the parts (elementwise, reductions, …) and operators that are named. operators.json has the
versions, and for each call the schema, the arguments, and the dtype, shape and SHA-256 of each result. All NaNs of a result are
replaced by one NaN before it is hashed. elementwise.npz and the like have the first elements of each result. The arguments are
computed from integers (`words`), so that a test in another language computes the same ones.
"""

import hashlib
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

NAMES = {
    torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e8m0fnu: "F8_E8M0", torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL", torch.uint8: "U8", torch.float64: "F64",
    torch.uint64: "U64",
}  # fmt: skip
DTYPES = {name: dtype for dtype, name in NAMES.items()}
EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3e-39, -1e-45, 6e-8, -6e-8, 65504.0, 65520.0, 448.0, 464.0, 465.0, 57344.0, 61440.0, 1e5, -1e5,
    88.5, -88.5, 104.0, -104.0, 3.3e38, -3.3e38, 1.1754944e-38, float("inf"), float("-inf"), float("nan"), 20.0, 9.0, 5.0,
]  # fmt: skip
STORED = 4096


def words(seed: int, count: int) -> torch.Tensor:
    """A permutation of the 32-bit integers, applied to consecutive ones, as I64."""
    mask = 0xFFFFFFFF
    x = (torch.arange(count, device="cuda") + (seed * 0x9E3779B9 & mask)) & mask
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * factor & mask
    return x ^ (x >> 16)


def floats(kind: str, seed: int, count: int) -> torch.Tensor:
    """F32 numbers with random signs and mantissas. The exponent of `normal` and `positive` is the number of ones in 8 random bits, less 7."""
    x = words(seed, count)
    bits = (x >> 23) & 255
    if kind in ("normal", "positive"):
        exponent = 120 + sum((bits >> i) & 1 for i in range(8))
    else:
        exponent = 111 + (bits & 31)
    sign = torch.zeros_like(x) if kind == "positive" else x & 0x80000000
    result = (sign | (exponent << 23) | (x & 0x7FFFFF)).to(torch.int32).view(torch.float32)
    if kind == "edges":
        places = torch.arange(0, count, 16, device="cuda")
        result[places] = torch.tensor(EDGES, device="cuda")[(places // 16) % len(EDGES)]
    return result


def doubles_of(x: torch.Tensor, seed: int) -> torch.Tensor:
    """F64 numbers with random mantissas: F32 numbers times 1 + w / 2^32, where the words w are drawn from another seed."""
    factor = 1 + words(seed + 1000, x.numel()).double() * 2.0**-32
    return x.double() * factor


class Draw:
    def __init__(self, dtype: str, shape: list[int], seed: int = 1, kind: str = "normal", high: int = 0, transposed: bool = False):
        self.row = {"dtype": dtype, "shape": shape, "seed": seed, "kind": kind}
        if high:
            self.row["high"] = high
        if transposed:
            self.row["transposed"] = True

    def tensor(self) -> torch.Tensor:
        row = self.row
        count = int(np.prod(row["shape"], dtype=np.int64))
        if row["kind"] == "index":
            x = (words(row["seed"], count) % row["high"]).to(DTYPES[row["dtype"]])
        elif row["kind"] == "bool":
            x = (words(row["seed"], count) & 1).bool()
        elif row["dtype"] == "F64":
            x = doubles_of(floats(row["kind"], row["seed"], count), row["seed"])
        else:
            x = floats(row["kind"], row["seed"], count).to(DTYPES[row["dtype"]])
        x = x.reshape(row["shape"])
        return x.transpose(-1, -2) if row.get("transposed") else x


CALLS: list[dict[str, Any]] = []


def call(schema: str, *args: Any, **kwargs: Any) -> None:
    CALLS.append({"schema": schema, "args": list(args), "kwargs": kwargs})


WIDE = ["F32", "BF16", "F16"]


def elementwise() -> None:
    for dtype in WIDE:
        for shape in ([64, 1024], [1003]):
            x = Draw(dtype, shape, 1, "edges")
            y = Draw(dtype, shape, 2, "edges")
            for name in (
                "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "sigmoid", "silu", "relu",
                "abs", "neg", "reciprocal", "sign", "floor", "ceil", "round", "trunc", "square", "isnan", "softplus", "mish", "log_sigmoid_forward",
                "hardswish", "hardsigmoid", "elu", "leaky_relu", "frac", "erfc", "sgn", "logical_not",
            ):  # fmt: skip
                call(f"aten::{name}", x)
            call("aten::gelu", x)
            call("aten::gelu", x, approximate="tanh")
            for p in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 1.5, 0.25, 7):
                call("aten::pow.Tensor_Scalar", x, p)
            call("aten::pow.Scalar", 10000.0, x)
            call("aten::pow.Scalar", 2, x)
            call("aten::pow.Tensor_Tensor", x, y)
            for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "minimum", "eq.Tensor", "lt.Tensor", "fmod.Tensor", "remainder.Tensor",
                         "atan2", "hypot", "logaddexp", "fmax", "fmin", "copysign.Tensor"):  # fmt: skip
                call(f"aten::{name}", x, y)
            for s in (0.3, -1.7, 3, 1e-8):
                call("aten::add.Tensor", x, s)
                call("aten::sub.Tensor", x, s)
                call("aten::rsub.Scalar", x, s)
                call("aten::mul.Tensor", x, s)
                call("aten::div.Tensor", x, s)
                call("aten::lt.Scalar", x, s)
            for alpha in (0.1, -2, 3.7):
                call("aten::add.Tensor", x, y, alpha=alpha)
                call("aten::sub.Tensor", x, y, alpha=alpha)
                call("aten::add.Scalar", x, 0.7, alpha)
            call("aten::lerp.Scalar", x, y, 0.1)
            call("aten::lerp.Scalar", x, y, 0.9)
            call("aten::lerp.Tensor", x, y, Draw(dtype, shape, 3, "positive"))
            call("aten::addcmul", x, y, Draw(dtype, shape, 3), value=0.3)
            call("aten::addcmul", x, y, Draw(dtype, shape, 3))
            call("aten::addcdiv", x, y, Draw(dtype, shape, 3), value=-0.3)
            call("aten::clamp", x, -0.5, 0.7)
            call("aten::clamp_min", x, 0.1)
            call("aten::where.self", Draw("BOOL", shape, 4, "bool"), x, y)
            call("aten::threshold_backward", y, x, 0)
            call("aten::silu_backward", y, x)
            call("aten::sigmoid_backward", y, Draw(dtype, shape, 3, "positive"))
            call("aten::tanh_backward", y, Draw(dtype, shape, 3))
            call("aten::gelu_backward", y, x)
            call("aten::gelu_backward", y, x, approximate="tanh")
            call("aten::glu", Draw(dtype, [32, 64], 1, "edges"))
            call("aten::masked_fill.Scalar", x, Draw("BOOL", shape, 4, "bool"), 0.3)
            for to in (*WIDE, "F8_E4M3", "F8_E5M2", "F8_E8M0", "F64", "I32", "I64"):
                if to != dtype and not (to in ("I32", "I64")):
                    call("aten::_to_copy", x, dtype=to)
        for other in WIDE:
            if other != dtype:
                call("aten::add.Tensor", Draw(dtype, [64, 64], 1, "wide"), Draw(other, [64, 64], 2, "wide"))
                call("aten::mul.Tensor", Draw(dtype, [64, 64], 1, "wide"), Draw(other, [64, 1], 2, "wide"))
                call("aten::div.Tensor", Draw(dtype, [64, 64], 1, "wide"), Draw(other, [], 2, "wide"))
        call("aten::mul.Tensor", Draw(dtype, [64, 64], 1, "wide"), Draw(dtype, [], 2, "wide"))
    for dtype in ("F8_E4M3", "F8_E5M2", "F8_E8M0"):
        call("aten::_to_copy", Draw("U8", [256], 1, "index", 256), dtype="F32")
        for to in WIDE:
            call("aten::_to_copy", Draw(dtype, [4096], 5, "wide"), dtype=to)
    for dtype in ("I32", "I64"):
        for to in WIDE:
            call("aten::_to_copy", Draw(dtype, [4096], 5, "index", 2**31 - 1), dtype=to)


ROWS = [[1, 1], [3, 1], [7, 3], [5, 8], [64, 31], [300, 32], [33, 33], [64, 64], [5, 100], [512, 128], [2, 255], [16, 256], [16, 500], [4096, 512], [9, 513], [8, 1000], [2, 1024],
        [256, 1024], [4, 1536], [2, 2048], [1024, 2048], [64, 2049], [4, 4096], [600, 4096], [1, 5000], [8, 8192], [128, 8192], [3, 14336], [2, 50257], [16, 50257], [1, 131072], [2, 1048576],
        [4, 65536], [40000, 16], [100000, 5]]  # fmt: skip
COLUMNS = [[2, 1], [3, 5], [8, 8], [33, 3], [64, 64], [100, 100], [128, 256], [512, 768], [1000, 1], [1024, 4096], [4096, 128], [4096, 1024], [5000, 33], [8192, 64], [16384, 16], [8192, 4096],
           [65536, 4], [3, 4096], [256, 1000], [2048, 2]]  # fmt: skip


def reductions() -> None:
    for dtype in WIDE:
        small = dtype == "F16"
        for rows in ROWS[:: 2 if small else 1]:
            x = Draw(dtype, rows, 1)
            call("aten::sum.dim_IntList", x, [1])
            call("aten::mean.dim", x, [1])
            call("aten::linalg_vector_norm", x, 2, [1])
            if not small:
                call("aten::sum", x)
                call("aten::mean", x)
                call("aten::linalg_vector_norm", x)
                call("aten::amax", x, [1])
                call("aten::var_mean.correction", x, [1], correction=1)
                call("aten::logsumexp", x, [1])
                call("aten::max.dim", x, 1)
                call("aten::linalg_vector_norm", x, 1, [1])
            if dtype != "F32":
                call("aten::sum.dim_IntList", x, [1], dtype="F32")
                call("aten::mean.dim", x, [1], dtype="F32")
                call("aten::linalg_vector_norm", x, 2, [1], dtype="F32")
        for columns in COLUMNS[:: 2 if small else 1]:
            x = Draw(dtype, columns, 1)
            call("aten::sum.dim_IntList", x, [0])
            call("aten::mean.dim", x, [0])
            if not small:
                call("aten::linalg_vector_norm", x, 2, [0])
                call("aten::var_mean.correction", x, [0], correction=1)
                call("aten::amax", x, [0])
            if dtype != "F32":
                call("aten::sum.dim_IntList", x, [0], dtype="F32")
        for shape, dims in (([4, 8, 16], [0, 1]), ([4, 8, 16], [1, 2]), ([4, 8, 16], [0, 2]), ([2, 4, 128, 64], [2]), ([2, 4, 128, 64], [0, 2]), ([8, 512, 1024], [0, 1]), ([2, 64, 32, 32], [0, 2, 3])):
            call("aten::sum.dim_IntList", Draw(dtype, shape, 1), dims)
            call("aten::sum.dim_IntList", Draw(dtype, shape, 1), dims, True)
        for shape in ([64], [1000], [4, 128], [3, 5000], [4, 70000]):
            call("aten::cumsum", Draw(dtype, shape, 1), -1)
    for count in (1, 100, 1024, 4096, 65536, 1_000_000, 16_777_216):
        call("aten::sum", Draw("F32", [count], 3))
        call("aten::mean", Draw("F32", [count], 3))
        call("aten::linalg_vector_norm", Draw("BF16", [count], 3))
        call("aten::linalg_vector_norm", Draw("F32", [count], 3))


def softmaxes() -> None:
    for dtype in WIDE:
        for rows in ROWS:
            if rows[0] * rows[1] > 4_000_000:
                continue
            x, y, g = Draw(dtype, rows, 1, "wide" if rows[1] % 2 else "normal"), Draw(dtype, rows, 2, "positive"), Draw(dtype, rows, 3)
            for name in ("_softmax", "_log_softmax"):
                call(f"aten::{name}", x, 1, False)
                if dtype == "F16" and rows[0] < 1000:
                    call(f"aten::{name}", x, 1, True)
                call(f"aten::{name}_backward_data", g, y, 1, dtype)
        for columns in COLUMNS[::3]:
            call("aten::_softmax", Draw(dtype, columns, 1), 0, False)
            call("aten::_log_softmax", Draw(dtype, columns, 1), 0, False)
        for n, c in ((1, 10), (32, 10), (33, 100), (128, 1000), (2048, 512), (4096, 50), (16, 50257)):
            x, t = Draw(dtype, [n, c], 1), Draw("I64", [n], 2, "index", c)
            for reduction in (0, 1, 2):
                call("aten::nll_loss_forward", x, t, None, reduction, -100)
            call("aten::nll_loss_backward", Draw(dtype, [], 3), x, t, None, 1, -100, Draw("F32" if dtype == "F32" else dtype, [], 4, "positive"))


def norms() -> None:
    for dtype in WIDE:
        for rows in ROWS:
            if rows[0] * rows[1] > 4_000_000 or rows[1] > 60_000:
                continue
            m, n = rows
            x, w, b, g = Draw(dtype, rows, 1), Draw(dtype, [n], 2), Draw(dtype, [n], 3), Draw(dtype, rows, 4)
            mean, rstd = Draw("F32", [m, 1], 5), Draw("F32", [m, 1], 6, "positive")
            call("aten::native_layer_norm", x, [n], w, b, 1e-5)
            call("aten::native_layer_norm", x, [n], None, None, 1e-5)
            call("aten::_fused_rms_norm", x, [n], w, 1e-5)
            call("aten::_fused_rms_norm", x, [n], None, 1e-6)
            if dtype != "F16":
                call("aten::native_layer_norm_backward", g, x, [n], mean, rstd, w, b, [True, True, True])
                call("aten::_fused_rms_norm_backward", g, x, [n], rstd, w, [True, True])


def lookups() -> None:
    for dtype in WIDE:
        for n, v, d in ((16, 10, 8), (64, 100, 64), (1000, 100, 33), (4096, 1000, 768), (3000, 50, 128), (20000, 7, 16), (4096, 50257, 256)):
            call("aten::embedding", Draw(dtype, [v, d], 1), Draw("I64", [n], 2, "index", v))
            call("aten::embedding_dense_backward", Draw(dtype, [n, d], 1), Draw("I64", [n], 2, "index", v), v, -1, False)
        call("aten::gather", Draw(dtype, [64, 100], 1), 1, Draw("I64", [64, 7], 2, "index", 100))
        call("aten::index_select", Draw(dtype, [64, 100], 1), 0, Draw("I64", [33], 2, "index", 64))
        call("aten::index.Tensor", Draw(dtype, [64, 100], 1), [Draw("I64", [33], 2, "index", 64)])
        call("aten::index_put", Draw(dtype, [64, 10], 1), [Draw("I64", [500], 2, "index", 64)], Draw(dtype, [500, 10], 3), True)
        call("aten::topk", Draw(dtype, [64, 100], 1), 5)
        call("aten::argmax", Draw(dtype, [64, 100], 1), 1)
        for shape in ([1000], [64, 1024], [3, 100_000]):
            call("aten::native_dropout", Draw(dtype, shape, 1), 0.1, True)
            call("aten::native_dropout", Draw(dtype, shape, 1), 0.5, True)
            call("aten::rand", shape, dtype=dtype, device="cuda")
            call("aten::randn", shape, dtype=dtype, device="cuda")
        call("aten::bernoulli.p", Draw(dtype, [1000], 1), 0.3)


PRODUCTS = [[16, 16, 16], [8, 8, 32], [1, 64, 256], [3, 24, 40], [64, 64, 64], [128, 128, 128], [128, 64, 2048], [256, 256, 256], [256, 1024, 512], [512, 512, 512], [1, 4096, 4096], [4, 4096, 4096], [16, 4096, 4096],
            [32, 1024, 1024], [64, 4096, 1024], [100, 300, 200], [128, 4096, 4096], [1024, 1024, 1024], [2048, 2048, 2048], [4096, 4096, 4096], [128, 128, 16384], [64, 64, 65536], [1, 50257, 768], [512, 50304, 768],
            [4096, 14336, 4096], [4096, 4096, 14336], [8192, 64, 64], [17, 33, 129], [768, 3072, 1024], [1024, 768, 3072]]  # fmt: skip


def products() -> None:
    for dtype in ("BF16", "F16", "F32"):
        for m, n, k in PRODUCTS[:: 1 if dtype == "BF16" else 2]:
            if dtype == "F32" and m * n * k > 2**31:
                continue
            a, b = Draw(dtype, [m, k], 1), Draw(dtype, [k, n], 2)
            call("aten::mm", a, b)
            call("aten::mm", a, Draw(dtype, [n, k], 2, transposed=True))
            call("aten::mm", Draw(dtype, [k, m], 1, transposed=True), b)
            call("aten::addmm", Draw(dtype, [n], 3), a, Draw(dtype, [n, k], 2, transposed=True))
            if m * n <= 2**20:
                call("aten::addmm", Draw(dtype, [m, n], 3), a, b, beta=0.5, alpha=2.0)
                if dtype != "F32":
                    call("aten::mm.dtype", a, b, "F32")
        for batch, m, n, k in ((2, 8, 8, 16), (16, 64, 64, 64), (32, 128, 128, 64), (32, 128, 64, 128), (8, 512, 512, 128), (8, 512, 128, 512), (64, 1, 128, 64), (4, 17, 33, 20)):
            call("aten::bmm", Draw(dtype, [batch, m, k], 1), Draw(dtype, [batch, k, n], 2))
            call("aten::bmm", Draw(dtype, [batch, m, k], 1), Draw(dtype, [batch, n, k], 2, transposed=True))
    for m, n, k in ((16, 16, 32), (64, 64, 128), (128, 128, 256), (256, 512, 1024), (16, 4096, 4096), (1024, 1024, 1024), (512, 2048, 4096), (128, 128, 16384)):
        for x, w in (("F8_E4M3", "F8_E4M3"), ("F8_E5M2", "F8_E4M3")):
            a, b = Draw(x, [m, k], 1), Draw(w, [n, k], 2, transposed=True)
            for fast in (True, False):
                for out in ("BF16", "F32"):
                    scales = Draw("F32", [], 3, "positive"), Draw("F32", [], 4, "positive")
                    call("aten::_scaled_mm", a, b, *scales, out_dtype=out, use_fast_accum=fast)
                scales = Draw("F32", [m, 1], 3, "positive"), Draw("F32", [1, n], 4, "positive")
                call("aten::_scaled_mm", a, b, *scales, out_dtype="BF16", use_fast_accum=fast)
            call("aten::_scaled_mm", a, b, Draw("F32", [], 3, "positive"), Draw("F32", [], 4, "positive"), Draw("BF16", [n], 5), None, "BF16", True)
            if k % 128 == 0:
                outer = Draw("F32", [k // 128, m], 3, "positive", transposed=True)
                call("aten::_scaled_mm", a, b, outer, Draw("F32", [n // 128, k // 128], 4, "positive", transposed=True), out_dtype="BF16")
                call("aten::_scaled_mm", a, b, outer, Draw("F32", [k // 128, n], 4, "positive"), out_dtype="BF16")
    for e, m, n, k in ((2, 64, 64, 64), (4, 256, 128, 128), (8, 2048, 512, 256)):
        offs = {"offs": {"list": [(i + 1) * m // e for i in range(e)], "dtype": "I32"}}
        call("aten::_grouped_mm", Draw("BF16", [m, k], 1), Draw("BF16", [e, n, k], 2, transposed=True), **offs)
        call("aten::_scaled_grouped_mm", Draw("F8_E4M3", [m, k], 1), Draw("F8_E4M3", [e, n, k], 2, transposed=True), Draw("F32", [m], 3, "positive"), Draw("F32", [e, n], 4, "positive"),
             out_dtype="BF16", use_fast_accum=True, **offs)  # fmt: skip


def attention() -> None:
    for b, h, tq, tk, d in ((1, 1, 16, 16, 64), (1, 2, 64, 64, 64), (2, 4, 128, 128, 64), (1, 2, 100, 100, 128), (1, 2, 256, 256, 128), (1, 1, 1, 300, 128), (1, 1, 1024, 1024, 64), (1, 2, 129, 257, 96), (1, 1, 64, 64, 32)):
        for dtype in ("BF16", "F16"):
            q, k, v = (Draw(dtype, [b, h, t, d], seed) for t, seed in ((tq, 1), (tk, 2), (tk, 3)))
            for causal in (False, True):
                call("aten::_scaled_dot_product_flash_attention", q, k, v, 0.0, causal)
                call("aten::_scaled_dot_product_efficient_attention", q, k, v, None, True, 0.0, causal)
                call("aten::_scaled_dot_product_cudnn_attention", q, k, v, None, True, 0.0, causal)
                call("aten::_scaled_dot_product_attention_math", q, k, v, None, 0.0, causal)


def optimizers() -> None:
    for dtype in ("F32", "BF16"):
        for n in (33, 1000, 70_000):
            p, g, m, v, mx = (Draw(dtype, [n], seed) for seed in (1, 2, 3, 4, 5))
            v = Draw(dtype, [n], 4, "positive")
            for step in (1.0, 7.0, 1000.0):
                for amsgrad, maximize in ((False, False), (True, True)):
                    call("aten::_fused_adamw_", [p], [g], [m], [v], [mx] if amsgrad else [], [{"list": step, "dtype": "F32"}], lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=amsgrad, maximize=maximize)
                    call("aten::_fused_adam_", [p], [g], [m], [v], [mx] if amsgrad else [], [{"list": step, "dtype": "F32"}], lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=amsgrad, maximize=maximize)
            for momentum, nesterov, first in ((0.0, False, True), (0.9, False, True), (0.9, True, False), (0.9, False, False)):
                call("aten::_fused_sgd_", [p], [g], [m] if momentum else [], weight_decay=0.01, momentum=momentum, lr=0.1, dampening=0.1 if not nesterov else 0.0, nesterov=nesterov, maximize=False, is_first_step=first)
            q = Draw(dtype, [n], 6)
            call("aten::_foreach_norm.Scalar", [p, g], 2)
            call("aten::_foreach_mul.Scalar", [p, g], 0.9)
            call("aten::_foreach_add.List", [p, g], [m, q], alpha=0.1)
            call("aten::_foreach_addcmul.Scalar", [v], [g], [g], 0.001)
            call("aten::_foreach_addcdiv.ScalarList", [p], [m], [v], [-0.001])
            call("aten::_foreach_lerp.Scalar", [m], [g], 0.1)
            call("aten::_foreach_sqrt", [v])
            call("aten::_foreach_div.ScalarList", [v], [0.0316])
    call("aten::_foreach_norm.Scalar", [Draw("F32", [n], n) for n in (5, 1000, 65536, 65537, 1_000_000)], 2)
    call("aten::_foreach_norm.Scalar", [Draw("BF16", [n], n) for n in (5, 1000, 65536, 65537, 1_000_000)], 2)


VOLUMES = [[3, 5, 7], [8, 33, 64], [16, 100, 96], [2, 300, 1000], [64, 7, 513], [1, 2048, 130], [5, 1, 9], [7, 64, 1, 30], [9, 4, 5, 6], [4, 1024, 512], [300, 2, 3000],
           [2, 70001, 3], [130, 4098], [1000, 48]]  # fmt: skip


def volumes() -> None:
    """Reductions over subsets of dimensions, also of tensors with special numbers."""
    for dtype in WIDE:
        for shape in VOLUMES:
            for mask in range(1, 2 ** len(shape), 2 if len(shape) > 3 else 1):
                kind, keepdim = ("wide", "normal", "edges")[mask % 3], mask % 3 == 0
                dims = [dim for dim in range(len(shape)) if mask >> dim & 1]
                x, y = Draw(dtype, shape, 1, kind), Draw(dtype, shape, 2, kind)
                call("aten::sum.dim_IntList", x, dims, keepdim)
                call("aten::mean.dim", y, dims, keepdim)
                call("aten::var_mean.correction", x, dims, correction=0, keepdim=keepdim)
                call("aten::amax", y, dims, keepdim)
                call("aten::logsumexp", y, dims, keepdim)
                for order in (1, 2):
                    call("aten::linalg_vector_norm", x, order, dims, keepdim)
                if mask in (1, 2, 4):
                    call("aten::cumsum", Draw(dtype, shape, 2), dims[0])
                    call("aten::cumsum", Draw(dtype, shape, 2, "edges"), dims[0])
                    call("aten::max.dim", Draw(dtype, shape, 1, "edges"), dims[0], keepdim)


def overloads() -> None:
    """Overloads that programs call less often."""
    for dtype in WIDE:
        x, y = Draw(dtype, [64, 1024], 1, "edges"), Draw(dtype, [64, 1024], 2, "edges")
        for number in (0.3, -1.7, 3):
            for name in ("sub", "mul", "div", "copysign", "fmod", "remainder"):
                call(f"aten::{name}.Scalar", x, number)
        call("aten::rsub.Tensor", x, y)
        for name in ("eq", "ne", "le", "gt", "ge"):
            for number in (0.3, 1, 3.3e38):
                call(f"aten::{name}.Scalar", x, number)
            call(f"aten::{name}.Tensor", x, y)
    for dtype in ("F32", "BF16"):
        for n in (33, 1000, 70_000):
            p, g, m, q = (Draw(dtype, [n], seed) for seed in (1, 2, 3, 6))
            v, number = Draw(dtype, [n], 4, "positive"), Draw(dtype, [], 7)
            for name in ("mul", "add", "div"):
                call(f"aten::_foreach_{name}.Scalar", [p, g], 0.3)
                call(f"aten::_foreach_{name}.ScalarList", [p, g], [0.3, -1.7])
                call(f"aten::_foreach_{name}.List", [p, g], [m, q])
                call(f"aten::_foreach_{name}.Tensor", [p, g], number)
            call("aten::_foreach_lerp.ScalarList", [m, g], [g, p], [0.1, 0.9])
            call("aten::_foreach_addcmul.ScalarList", [v, p], [g, g], [g, m], [0.001, 0.3])
            call("aten::_foreach_addcdiv.Scalar", [p, g], [m, q], [v, v], -0.001)


def doubles() -> None:
    """Operators of F64 tensors."""
    for shape in ([64, 1024], [1003]):
        x, y = Draw("F64", shape, 1, "edges"), Draw("F64", shape, 2, "edges")
        for name in ("abs", "neg", "reciprocal", "sign", "floor", "ceil", "round", "trunc", "square", "isnan", "frac", "logical_not"):
            call(f"aten::{name}", x)
        for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "minimum", "fmax", "fmin", "eq.Tensor", "lt.Tensor", "ge.Tensor"):
            call(f"aten::{name}", x, y)
            for dtype in WIDE:
                if "." in name and name[:2] not in ("eq", "lt", "ge"):
                    call(f"aten::{name}", x, Draw(dtype, shape, 2, "edges"))
                    call(f"aten::{name}", Draw(dtype, shape, 2, "edges"), x)
                    call(f"aten::{name}", Draw(dtype, shape, 2, "edges"), Draw("F64", [], 5))
        for number in (0.3, -1.7, 448.0, 1e-12):
            for name in ("add.Tensor", "sub.Tensor", "rsub.Scalar", "mul.Tensor", "div.Tensor", "lt.Scalar", "ge.Scalar"):
                call(f"aten::{name}", x, number)
        call("aten::clamp", x, -0.5, 0.7)
        call("aten::clamp", x, 1e-12)
        call("aten::clamp_min", x, 0.1)
        for to in WIDE:
            call("aten::_to_copy", x, dtype=to)
        call("aten::full_like", x, 0.3)
        call("aten::where.self", Draw("BOOL", shape, 4, "bool"), x, y)


def maxima() -> None:
    """Maxima whose input has zeros of both signs, or lies in another order."""
    for dtype in WIDE:
        for shape in ([64, 1024], [1003], [3, 5, 7], [2048, 4096]):
            for kind in ("edges", "normal"):
                call("aten::max", Draw(dtype, shape, 1, kind))
                if len(shape) > 1:
                    call("aten::max", Draw(dtype, shape, 1, kind, transposed=True))
                    for dim in (0, -1):
                        call("aten::amax", Draw(dtype, shape, 1, kind, transposed=True), [dim], True)
    for count in (1, 2, 33, 300):
        for seed in (1, 2, 3):
            zeros = [-0.0 if word & 1 else 0.0 for word in words(seed, count).tolist()]
            call("aten::max", {"list": zeros, "dtype": "F32"})
            call("aten::amax", {"list": zeros, "dtype": "F32"}, [0])


def device_value(x: Any) -> Any:
    if isinstance(x, Draw):
        return x.tensor()
    if isinstance(x, dict):
        return torch.tensor(x["list"], dtype=DTYPES[x["dtype"]], device="cuda")
    if isinstance(x, list):
        return [device_value(each) for each in x]
    if isinstance(x, str) and x in DTYPES:
        return DTYPES[x]
    return x


def as_json(x: Any) -> Any:
    if isinstance(x, Draw):
        return x.row
    if isinstance(x, list):
        return [as_json(each) for each in x]
    return x


def tensors(x: Any) -> list[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, (list, tuple)):
        return [each for value in x for each in tensors(value)]
    return []


def canonical(x: torch.Tensor) -> torch.Tensor:
    """The tensor in which all NaNs are replaced by the NaN whose bits except the sign are ones."""
    integers = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
    if x.dtype not in integers or x.numel() == 0:
        return x
    words = x.reshape(-1).view(integers[x.dtype]).clone()
    words[x.reshape(-1).isnan()] = torch.iinfo(words.dtype).max
    return words.view(x.dtype).reshape(x.shape)


def operator(schema: str) -> Any:
    name, _, overload = schema.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, name)
    return getattr(packet, overload or "default")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    parts = []
    for part in (elementwise, reductions, softmaxes, norms, lookups, products, attention, optimizers, volumes, overloads, doubles, maxima):
        first = len(CALLS)
        part()
        parts.append((part.__name__, first))
    selected = sys.argv[2:]
    stored: dict[str, dict[str, np.ndarray]] = {name: {} for name, _ in parts}
    rows = []
    last = parts[0][0]
    start = time.monotonic()
    for i, each in enumerate(CALLS):
        part_name = next(name for name, first in reversed(parts) if i >= first)
        if part_name != last:
            save(folder, rows, stored, last)
            print(last, f"{time.monotonic() - start:.1f} s", flush=True)
            last = part_name
        if selected and part_name not in selected and not any(each["schema"].startswith(f"aten::{name}") for name in selected):
            continue
        row = {"schema": each["schema"], "args": as_json(each["args"]), "kwargs": {k: as_json(v) for k, v in each["kwargs"].items()}}
        rows.append(row)
        try:
            args, kwargs = device_value(each["args"]), {k: device_value(v) for k, v in each["kwargs"].items()}
            torch.manual_seed(7)
            result = operator(each["schema"])(*args, **kwargs)
            torch.cuda.synchronize()
            changed = [y for x in args[:6] for y in tensors(x)] if each["schema"].endswith("_") else []
            outputs = []
            for j, out in enumerate([*tensors(result), *changed]):
                host = canonical(out.detach().contiguous()).cpu()
                raw = host.reshape(-1).view(torch.uint8).numpy() if host.numel() else np.zeros(0, np.uint8)
                name = NAMES.get(out.dtype, str(out.dtype))
                outputs.append({"dtype": name, "shape": list(out.shape), "sha256": hashlib.sha256(raw.tobytes()).hexdigest()})
                size = host.element_size()
                stored[part_name][f"{i}/{j}"] = raw[: STORED * size]
            row["outputs"] = outputs
            row["id"] = i
        except Exception as error:  # noqa: BLE001 - a call that PyTorch refuses is recorded with its error
            row["error"] = str(error).splitlines()[0][:200]
            if not isinstance(error, (RuntimeError, NotImplementedError)):
                traceback.print_exc()
    save(folder, rows, stored, last)
    print(len(rows), "calls,", sum("error" in row for row in rows), "errors")


def save(folder: Path, rows: list[dict[str, Any]], stored: dict[str, dict[str, np.ndarray]], part: str) -> None:
    """Writes the rows so far, and the first elements of the results of a part."""
    head = {
        "origin": f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
        "chip": torch.cuda.get_device_name(),
        "processors": torch.cuda.get_device_properties(0).multi_processor_count,
    }
    lines = ",\n".join(json.dumps(row) for row in rows)
    (folder / "operators.json").write_text(json.dumps(head)[:-1] + ',"calls":[\n' + lines + "\n]}\n")
    np.savez_compressed(folder / f"{part}.npz", **stored[part])


if __name__ == "__main__":
    main()
