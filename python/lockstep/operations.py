"""Casts, quantizers and matrix products on arrays."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from ._errors import LockstepError
from ._process import SERVER

WideDType = Literal["float32", "bfloat16", "float16"]
Direction = Literal["rowwise", "columnwise"]

# one code in each element
CODE_DTYPES: dict[str, np.dtype] = {
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "e3m4": np.dtype(ml_dtypes.float8_e3m4),
    "e4m3ieee": np.dtype(ml_dtypes.float8_e4m3),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
}
_WIDE = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def array_of(x: ArrayLike) -> np.ndarray:
    """An array of what numpy, ml_dtypes, PyTorch, JAX or any library with DLPack gives. float64 becomes float32."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        if str(x.dtype) == "torch.bfloat16":
            # numpy has no bfloat16 of its own, so PyTorch cannot give it one
            return x.contiguous().view(sys.modules["torch"].int16).numpy().view(ml_dtypes.bfloat16)
        return array_of(x.numpy())
    if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray) and not hasattr(x, "__array__"):
        return array_of(np.from_dlpack(x))
    array = np.asarray(x)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def wide_array(name: str, x: ArrayLike) -> np.ndarray:
    """An array of float32, bfloat16 or float16. Raises `LockstepError` for another one; `name` is what its message calls it."""
    array = array_of(x)
    if array.dtype.name in _WIDE:
        return array
    raise LockstepError("DTYPE", f"{name} is {array.dtype}; it must be float32, bfloat16 or float16")


def bits_of(x: ArrayLike) -> np.ndarray:
    """Codes as unsigned integers, those of `float4_e2m1fn` two per byte."""
    array = array_of(x)
    if array.dtype == ml_dtypes.float4_e2m1fn:
        codes = array.view(np.uint8)
        return codes[..., 0::2] | codes[..., 1::2] << 4
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32}.get(array.dtype.itemsize, array.dtype))


def command_words(options: Mapping[str, Any]) -> list[str]:
    """Options of the command line: True is a flag, None and False are left out, underscores are dashes."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        option = f"--{name.replace('_', '-')}"
        words.append(option if value is True else f"{option}={value}")
    return words


@dataclass(frozen=True)
class Copy:
    """One copy of a quantized matrix: its codes, and its scales."""

    data: np.ndarray
    """The codes. Those of e2m1 are uint8, two per byte, the even element in the low nibble."""
    scale_inv: np.ndarray
    """The scales: value = code * scale."""
    amax: np.ndarray | None = None
    """NVFP4: the largest magnitude of the whole tensor, [1]."""


@dataclass(frozen=True)
class QuantizedTensor:
    """Codes and scales of an array, and how they were made."""

    shape: tuple[int, ...]
    """The shape of the array that was quantized."""
    settings: Mapping[str, Any]
    """The quantizer and all options that decide bits, as the metadata of files have them."""
    rowwise: Copy | None = None
    """The copy whose blocks lie along the last dimension."""
    columnwise: Copy | None = None
    """The copy whose blocks lie along the rows."""
    amax: np.ndarray | None = None
    """fp8-delayed: the largest magnitude, [1]."""
    _recipe: str = field(default="", repr=False)

    def dequantize(self, dtype: WideDType = "float32") -> np.ndarray:
        """The values: code * scale, rounded once to `dtype`."""
        return dequantize(self, dtype)

    def _tensors(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        tensors = {}
        for direction in ("rowwise", "columnwise"):
            copy: Copy | None = getattr(self, direction)
            if copy is None:
                continue
            tensors[f"{name}.{direction}.data"] = copy.data.view(np.uint8)
            scale = copy.scale_inv
            tensors[f"{name}.{direction}.scale_inv"] = scale if scale.dtype == np.float32 else scale.view(np.uint8)
            if copy.amax is not None:
                tensors[f"{name}.{direction}.amax"] = copy.amax
        if self.amax is not None:
            tensors[f"{name}.amax"] = self.amax
        folder, _, own = name.rpartition("/")
        return tensors, {f"{folder}/lockstep.{own}": self._recipe}


def _typed(codes: np.ndarray, name: str) -> np.ndarray:
    dtype = CODE_DTYPES.get(name)
    return codes.view(dtype) if dtype is not None and codes.dtype.itemsize == dtype.itemsize else codes


_SCALES = {"mxfp8": "e8m0", "mxfp6": "e8m0", "mxfp4": "e8m0", "nvfp4": "e4m3"}


def quantize(
    x: ArrayLike,
    quantizer: str,
    *,
    usage: Sequence[Direction] = ("rowwise",),
    scales: Literal["logical", "padded", "swizzled"] = "logical",
    **options: Any,
) -> QuantizedTensor:
    """Quantizes an array [..., K], whose leading dimensions are flattened into rows.

    `quantizer` is fp8-current, fp8-delayed, fp8-block, mxfp8, mxfp6, mxfp4 or nvfp4. `options` are those of `lockstep quantize`,
    with underscores: format="e5m2", tile="32x32", pow2_scales=True, amax_epsilon=1e-12, scale=2.0, rht=True, stochastic=True,
    seed=1, four_over_six=True. Stochastic rounding has 8 random bits for each element, so its mean is too close to zero by less
    than 1/256 of the distance between two codes. The input is float32, bfloat16 or float16; float64 is rounded to float32 first.

    Raises `LockstepError` for a shape that the blocks do not divide and for options that do not exist or do not go together.
    """
    array = wide_array("x", x)
    chosen = {"quantizer": quantizer, "usage": ",".join(usage), "scales": scales, **options}
    frame = SERVER.run(["quantize", "in", "-o", "out", *command_words(chosen)], {"in/x": array})
    recipe = frame.metadata["out/lockstep.x"]
    settings = json.loads(recipe)

    def copy(direction: str) -> Copy | None:
        data = frame.tensors.get(f"out/x.{direction}.data")
        if data is None:
            return None
        scale = frame.tensors[f"out/x.{direction}.scale_inv"]
        return Copy(
            _typed(data, settings["format"]),
            _typed(scale, _SCALES.get(settings["quantizer"], "")),
            frame.tensors.get(f"out/x.{direction}.amax"),
        )

    return QuantizedTensor(
        array.shape, settings, copy("rowwise"), copy("columnwise"), frame.tensors.get("out/x.amax"), recipe
    )


def dequantize(q: QuantizedTensor, dtype: WideDType = "float32") -> np.ndarray:
    """The values of a quantized tensor: code * scale, rounded once to `dtype`."""
    tensors, metadata = q._tensors("in/x")
    frame = SERVER.run(["dequantize", "in", "-o", "out", f"--dtype={_wide_name(dtype)}"], tensors, metadata)
    return frame.tensors["out/x"]


def _wide_name(dtype: str) -> str:
    if dtype in _WIDE:
        return _WIDE[dtype]
    raise LockstepError("DTYPE", f"dtype is {dtype!r}; it must be {', '.join(_WIDE)}")


def encode(x: ArrayLike, format: str, **options: Any) -> np.ndarray:
    """The codes of values, in a scalar format such as "e4m3" or "e2m1".

    `options` are those of `lockstep encode`: rounding="towardZero", overflow="nonfinite", seed=1, offset=0. Codes have the type of
    ml_dtypes; those of e2m1 are uint8, two per byte, the even element in the low nibble, those of tf32 uint32.
    """
    frame = SERVER.run(["encode", "in", "-o", "out", *command_words({"format": format, **options})], {"in/x": wide_array("x", x)})
    return _typed(frame.tensors["out/x"], format)


def decode(codes: ArrayLike, format: str) -> np.ndarray:
    """The float32 values of codes of a scalar format, as `encode` gives them. Exact."""
    array = array_of(codes)
    plain = array.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[array.dtype.itemsize])
    if format in ("bf16", "f16"):
        return array.view(CODE_DTYPES[format]).astype(np.float32)
    return SERVER.run(["decode", "in", "-o", "out", f"--format={format}"], {"in/x": plain}).tensors["out/x"]


@dataclass(frozen=True)
class Product:
    """A matrix product."""

    d: np.ndarray
    """The result, [M, N]."""
    amax: np.ndarray | None
    """With an 8-bit result: the largest magnitude before it was rounded, [1]."""
    plan: Mapping[str, Any]
    """How the sums were computed. `plan=` of a later call computes by it."""


def gemm_request(
    x: ArrayLike | QuantizedTensor,
    w: ArrayLike | QuantizedTensor,
    *,
    c: ArrayLike | None,
    bias: ArrayLike | None,
    beta: float,
    plan: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> tuple[list[str], dict[str, np.ndarray], dict[str, str]]:
    """The options of a product on the command line, and the tensors and metadata of its frame."""
    tensors: dict[str, np.ndarray] = {}
    metadata: dict[str, str] = {}
    for name, operand in (("x", x), ("w", w)):
        if isinstance(operand, QuantizedTensor):
            parts, recipe = operand._tensors(f"in/{name}")
            tensors.update(parts)
            metadata.update(recipe)
        else:
            tensors[f"in/{name}"] = array_of(operand)
    words = command_words(options)
    if c is not None:
        tensors["in/c"] = array_of(c)
        words.append(f"--beta={beta}")
    if bias is not None:
        tensors["in/bias"] = array_of(bias)
        words.append("--bias")
    if plan is not None:
        metadata["plan.json"] = json.dumps(plan)
        words.append("--plan=plan.json")
    return words, tensors, metadata


def gemm(
    x: ArrayLike | QuantizedTensor,
    w: ArrayLike | QuantizedTensor,
    *,
    c: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    beta: float = 1.0,
    plan: Mapping[str, Any] | None = None,
    **options: Any,
) -> Product:
    """x [M, K] times the transpose of w [N, K], summed as a tensor core sums.

    Operands are arrays or quantized tensors with a rowwise copy. `options` are those of `lockstep gemm`: datapath="hopper",
    split_accumulator=True, split_k=2, out_dtype="bf16", alpha=0.5. `c` [M, N] is multiplied by `beta` and added, `bias` [N] is added
    to every row.
    """
    words, tensors, metadata = gemm_request(x, w, c=c, bias=bias, beta=beta, plan=plan, options=options)
    frame = SERVER.run(["gemm", "in", "-o", "out", *words], tensors, metadata)
    d = _typed(frame.tensors["out/d"], str(options.get("out_dtype", "")))
    return Product(d, frame.tensors.get("out/d.amax"), frame.message["result"]["plan"])


@dataclass(frozen=True)
class Comparison:
    """The outcome of `compare`. It is true if all tensors are equal."""

    equal: bool
    tensors: Sequence[Mapping[str, Any]]
    """For each tensor: status, the number of different elements, and the first difference."""

    def __bool__(self) -> bool:
        return self.equal


def compare(a: Mapping[str, ArrayLike] | ArrayLike, b: Mapping[str, ArrayLike] | ArrayLike) -> Comparison:
    """Compares arrays, or arrays by name, bit by bit. NaNs of wide types are equal to each other."""
    sides = [side if isinstance(side, Mapping) else {"x": side} for side in (a, b)]
    tensors = {
        f"{path}/{name}": array_of(array) for path, side in zip("ab", sides, strict=True) for name, array in side.items()
    }
    result = SERVER.run(["compare", "a", "b"], tensors).message["result"]
    return Comparison(result["equal"], result["tensors"])


def info() -> Mapping[str, Any]:
    """The version, and the backends that are there."""
    return SERVER.run(["info"]).message["result"]
