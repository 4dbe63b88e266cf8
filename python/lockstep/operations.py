"""Casts, quantizers and matrix products on arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ._arrays import (
    CODE_DTYPES,
    FLOAT4,
    WIDE,
    Direction,
    WideDType,
    array_of,
    bits_of,
    command_words,
    directions,
    wide_array,
)
from ._errors import LockstepError
from ._frames import FILE_DTYPES, Frame
from ._process import SERVER

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
    """Codes and scales of an array, with the settings that produced them."""

    shape: tuple[int, ...]
    """The shape of the array that was quantized."""
    settings: Mapping[str, Any]
    """The quantizer and all options that affect bits, as in file metadata."""
    rowwise: Copy | None = None
    """The copy whose blocks lie along the last dimension."""
    columnwise: Copy | None = None
    """The copy whose blocks lie along the rows."""
    amax: np.ndarray | None = None
    """fp8-delayed: the largest magnitude, [1]."""
    _recipe: str = field(default="", repr=False)

    def dequantize(self, dtype: WideDType = "float32", *, dialect: str | None = None) -> np.ndarray:
        """The values, as `lockstep.dequantize` returns them."""
        return dequantize(self, dtype, dialect=dialect)

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


SCALES = {"mxfp8": "e8m0", "mxfp6": "e8m0", "mxfp4": "e8m0", "mxint8": "e8m0", "nvfp4": "e4m3"}


def output(frame: Frame, name: str) -> np.ndarray:
    """A tensor of an answer. Raises `LockstepError` if command-line options produced another one."""
    if name in frame.tensors:
        return frame.tensors[name]
    raise LockstepError("ARGUMENT", f"the answer has {', '.join(frame.tensors) or 'no tensor'}, not {name}; leave out options that choose tensors")


def quantize(
    x: ArrayLike,
    quantizer: str | None = None,
    *,
    usage: Direction | Sequence[Direction] = "rowwise",
    scales: Literal["logical", "padded", "swizzled"] = "logical",
    **options: Any,
) -> QuantizedTensor:
    """Quantizes an array [..., K], whose leading dimensions are flattened into rows.

    `quantizer` is fp8-current, fp8-delayed, fp8-block, fp8-row, mxfp8, mxfp6, mxfp4, nvfp4 or another one of `lockstep
    quantize`; with `dialect` it may be omitted. `usage` is "rowwise", "columnwise", or a sequence of both. `options` are those
    of `lockstep quantize`, with underscores: format="e5m2", tile="32x32", pow2_scales=True, amax_epsilon=1e-12, scale=2.0,
    rht=True, stochastic=True, seed=1, four_over_six=True. Stochastic rounding uses 8 random bits for each element, so its mean
    is biased toward zero by less than 1/256 of the distance between two codes. The input is float32, bfloat16 or float16;
    float64 is rounded to float32 first.

    Raises `LockstepError` for a shape that the blocks do not divide, and for options that do not exist or exclude each other.
    """
    array = wide_array("x", x)
    chosen = {"quantizer": quantizer, "usage": ",".join(directions(usage)), "scales": scales, **options}
    frame = SERVER.run(["quantize", "in", "-o", "out", *command_words(chosen)], {"in/x": array})
    recipe = frame.metadata.get("out/lockstep.x")
    if recipe is None:
        raise LockstepError("ARGUMENT", "no tensor was quantized; leave out options that choose tensors")
    settings = json.loads(recipe)

    def copy(direction: str) -> Copy | None:
        data = frame.tensors.get(f"out/x.{direction}.data")
        if data is None:
            return None
        scale = frame.tensors[f"out/x.{direction}.scale_inv"]
        return Copy(
            _typed(data, settings["format"]),
            _typed(scale, SCALES.get(settings["quantizer"], "")),
            frame.tensors.get(f"out/x.{direction}.amax"),
        )

    return QuantizedTensor(
        array.shape, settings, copy("rowwise"), copy("columnwise"), frame.tensors.get("out/x.amax"), recipe
    )


def dequantize(q: QuantizedTensor, dtype: WideDType = "float32", *, dialect: str | None = None) -> np.ndarray:
    """The values of a quantized tensor: code * scale, rounded once to `dtype`.

    With `dialect`, the values that its library computes, rounded to its type and then to `dtype`. Raises `LockstepError` for a
    dialect that does not have the quantizer.
    """
    if not isinstance(q, QuantizedTensor):
        raise TypeError(f"q is {type(q).__name__}; it must be a QuantizedTensor, which lockstep.quantize gives")
    tensors, metadata = q._tensors("in/x")
    words = command_words({"dtype": _wide_name(dtype), "dialect": dialect})
    return output(SERVER.run(["dequantize", "in", "-o", "out", *words], tensors, metadata), "out/x")


def _wide_name(dtype: str) -> str:
    if isinstance(dtype, str) and dtype in WIDE:
        return WIDE[dtype]
    raise LockstepError("DTYPE", f"dtype is {dtype!r}; it must be {', '.join(WIDE)}")


def encode(x: ArrayLike, format: str, **options: Any) -> np.ndarray:
    """The codes of values in a scalar format such as "e4m3" or "e2m1".

    `options` are those of `lockstep encode`: rounding="towardZero", overflow="nonfinite", seed=1, offset=0. Codes have their
    ml_dtypes type, except e2m1 (uint8, two per byte, the even element in the low nibble) and tf32 (uint32).
    """
    words = command_words({"format": format, **options})
    frame = SERVER.run(["encode", "in", "-o", "out", *words], {"in/x": wide_array("x", x)})
    return _typed(output(frame, "out/x"), frame.message["result"]["format"])


def decode(codes: ArrayLike, format: str) -> np.ndarray:
    """The float32 values of codes of a scalar format, as `encode` returns them. Exact.

    Codes are unsigned integers of the format's size (int8 and PyTorch tensors are accepted too), or its ml_dtypes type. 4-bit
    codes are two per byte, the even element in the low nibble, or `float4_e2m1fn`, one in each element.

    Raises `LockstepError` for codes of another type, such as values in float32.
    """
    array = array_of(codes)
    frame = SERVER.run(["decode", "in", "-o", "out", *command_words({"format": format})], {"in/x": bits_of(array)})
    result = frame.message["result"]
    expected = FLOAT4 if result["format"] == "e2m1" else CODE_DTYPES.get(result["format"])
    if "x" in result["decoded"] and (array.dtype.kind == "u" or array.dtype in (np.dtype(np.int8), expected)):
        return output(frame, "out/x")
    size = {"tf32": 32, "bf16": 16, "f16": 16}.get(result["format"], 8)
    raise LockstepError(
        "DTYPE",
        f"codes are {array.dtype}; those of {result['format']} are uint{size}{'' if expected is None else f' or {expected}'}",
    )


@dataclass(frozen=True)
class Product:
    """A matrix product."""

    d: np.ndarray
    """The result, [M, N]."""
    amax: np.ndarray | None
    """For an 8-bit result: the largest magnitude before it was rounded, [1]."""
    plan: Mapping[str, Any]
    """The plan of the sums. Pass it as `plan=` to repeat them."""


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
    split_accumulator=True, split_k=2, out_dtype="bf16", alpha=0.5. `c` [M, N] is multiplied by `beta` and added; `bias` [N] is
    added to every row.
    """
    words, tensors, metadata = gemm_request(x, w, c=c, bias=bias, beta=beta, plan=plan, options=options)
    frame = SERVER.run(["gemm", "in", "-o", "out", *words], tensors, metadata)
    d = _typed(output(frame, "out/d"), str(options.get("out_dtype", "")))
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
    """Compares arrays, or arrays by name, bit by bit. NaNs of wide types are equal to each other.

    Raises `LockstepError` for arrays of two types of which files lack one, such as `float6_e2m3fn`.
    """
    sides = [{str(name): array_of(array) for name, array in (side if isinstance(side, Mapping) else {"x": side}).items()} for side in (a, b)]
    tensors = {}
    for path, own, other in zip("ab", sides, reversed(sides), strict=True):
        for name, array in own.items():
            tensors[f"{path}/{name}"] = _stored(name, array, other.get(name))
    result = SERVER.run(["compare", "a", "b"], tensors).message["result"]
    return Comparison(result["equal"], result["tensors"])


def _stored(name: str, array: np.ndarray, other: np.ndarray | None) -> np.ndarray:
    """Returns an array in a type that files have. Other arrays become bits, which are comparable only with the same type."""
    if array.dtype in FILE_DTYPES.values() and (other is None or other.dtype in FILE_DTYPES.values()):
        return array
    if other is not None and other.dtype != array.dtype:
        raise LockstepError("DTYPE", f"{name} is {array.dtype} and {other.dtype}; view both as unsigned integers")
    return array.view(np.uint8) if array.dtype == FLOAT4 else bits_of(array)


def info() -> Mapping[str, Any]:
    """The version, and the available backends."""
    return SERVER.run(["info"]).message["result"]
