"""Converts arrays of other libraries to numpy, arrays to bits, and options to command-line words."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from ._errors import LockstepError

WideDType = Literal["float32", "bfloat16", "float16"]
Direction = Literal["rowwise", "columnwise"]
DIRECTIONS = ("rowwise", "columnwise")

FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)

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
WIDE = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}

# PyTorch types that numpy() refuses, with integer types of the same size
_OF_TORCH = {
    "bfloat16": ("int16", np.dtype(ml_dtypes.bfloat16)),
    "float8_e4m3fn": ("uint8", np.dtype(ml_dtypes.float8_e4m3fn)),
    "float8_e5m2": ("uint8", np.dtype(ml_dtypes.float8_e5m2)),
    "float8_e4m3fnuz": ("uint8", np.dtype(ml_dtypes.float8_e4m3fnuz)),
    "float8_e5m2fnuz": ("uint8", np.dtype(ml_dtypes.float8_e5m2fnuz)),
    "float8_e8m0fnu": ("uint8", np.dtype(ml_dtypes.float8_e8m0fnu)),
    "float4_e2m1fn_x2": ("uint8", FLOAT4),
}
_UNSIGNED = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32)}


def array_of(x: ArrayLike) -> np.ndarray:
    """Converts an array from numpy, ml_dtypes, PyTorch, JAX or any library with DLPack. float64 becomes float32.

    PyTorch's `float4_e2m1fn_x2` becomes `float4_e2m1fn` with twice the last dimension. Raises `LockstepError` for anything
    that is not an array: lists of different lengths, and tensors without memory.
    """
    if hasattr(x, "detach"):
        return _of_torch(x)
    try:
        if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray) and not hasattr(x, "__array__"):
            return array_of(np.from_dlpack(x))
        array = np.asarray(x)
    except (ValueError, BufferError) as error:
        raise LockstepError("SHAPE", f"{type(x).__name__} is no array: {error}") from error
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _of_torch(x: Any) -> np.ndarray:
    name = str(x.dtype).removeprefix("torch.")
    try:
        x = x.detach().cpu()
        if name not in _OF_TORCH:
            return array_of(x.numpy())
        integer, dtype = _OF_TORCH[name]
        if dtype == FLOAT4 and x.ndim == 0:
            raise LockstepError("SHAPE", "a float4_e2m1fn_x2 tensor has no dimension; it must have at least one")
        # view() to a type of the same size comes first, because PyTorch 2.8 and later cannot copy float4_e2m1fn_x2
        bits = x.view(getattr(sys.modules["torch"], integer)).contiguous().numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise LockstepError("DTYPE", f"the PyTorch tensor of {name} gives no array: {error}") from error
    return unpacked(bits) if dtype == FLOAT4 else bits.view(dtype)


def unpacked(packed: np.ndarray) -> np.ndarray:
    """Unpacks float4 codes, two to a byte with the even element in the low nibble, to one code in each element."""
    pairs = np.stack([packed & 15, packed >> 4], axis=-1)
    return pairs.reshape(*packed.shape[:-1], 2 * packed.shape[-1]).view(FLOAT4)


def wide_array(name: str, x: ArrayLike) -> np.ndarray:
    """Converts to an array of float32, bfloat16 or float16. Raises `LockstepError` for other types, with `name` in its message."""
    array = array_of(x)
    if array.dtype.name in WIDE:
        return array
    raise LockstepError("DTYPE", f"{name} is {array.dtype}; it must be float32, bfloat16 or float16")


def bits_of(x: ArrayLike) -> np.ndarray:
    """The bits of elements as unsigned integers. `float4_e2m1fn` codes become two per byte, the even element in the low nibble.

    Raises `LockstepError` for an odd last dimension of `float4_e2m1fn`, and for elements that are not of one, two or four
    bytes.
    """
    array = array_of(x)
    if array.dtype == FLOAT4:
        if array.ndim == 0 or array.shape[-1] % 2:
            raise LockstepError(
                "SHAPE", f"float4 codes have the shape {list(array.shape)}, and two share a byte; make the last dimension even"
            )
        codes = array.view(np.uint8)
        return codes[..., 0::2] | codes[..., 1::2] << 4
    if array.dtype.kind not in "iufV" or array.dtype.itemsize not in _UNSIGNED:
        raise LockstepError("DTYPE", f"an array is {array.dtype}; elements must be numbers of one, two or four bytes")
    return np.ascontiguousarray(array).reshape(array.shape).view(_UNSIGNED[array.dtype.itemsize])


def code_bits(name: str, x: ArrayLike) -> np.ndarray:
    """As `bits_of`, for codes: integers, or floating point of at most eight bits. `name` names them in messages.

    Raises `LockstepError` for values: float32, bfloat16, float16 and bool.
    """
    array = array_of(x)
    if array.dtype.kind in "iu" or (array.dtype.kind in "fV" and array.dtype.itemsize == 1):
        return bits_of(array)
    raise LockstepError(
        "DTYPE", f"{name} is {array.dtype}; give codes as unsigned integers or in a type of ml_dtypes of at most 8 bits"
    )


def to_torch(x: ArrayLike) -> Any:
    """Converts an array to a PyTorch tensor with the same bits, for types that numpy or ml_dtypes and PyTorch share.

    `float4_e2m1fn` becomes `float4_e2m1fn_x2`, with half the last dimension. Raises `LockstepError` for a type that PyTorch
    lacks.
    """
    import torch

    array = array_of(x)
    names = {dtype: (name, integer) for name, (integer, dtype) in _OF_TORCH.items()}
    if array.dtype not in names:
        try:
            return torch.from_numpy(np.array(array))
        except TypeError as error:
            raise LockstepError("DTYPE", f"PyTorch has no {array.dtype}; view it as unsigned integers") from error
    name, integer = names[array.dtype]
    bits = bits_of(array).astype(integer, copy=True) if integer == "uint8" else bits_of(array).view(np.int16).copy()
    return torch.from_numpy(bits).view(getattr(torch, name))


def directions(usage: str | Sequence[str]) -> tuple[Direction, ...]:
    """The directions in `usage`: "rowwise", "columnwise", or a sequence of them. Raises `LockstepError` for anything else."""
    names = tuple(usage.split(",")) if isinstance(usage, str) else tuple(usage) if isinstance(usage, Sequence) else ()
    if names and all(name in DIRECTIONS for name in names):
        return names  # type: ignore[return-value]
    raise LockstepError("ARGUMENT", f"usage is {usage!r}; it must be rowwise, columnwise, or a sequence of them")


def one_direction(usage: str | Sequence[str]) -> Direction:
    """As `directions`, for exactly one direction."""
    names = directions(usage)
    if len(names) == 1:
        return names[0]
    raise LockstepError("ARGUMENT", f"usage is {usage!r}; it must be one of rowwise and columnwise")


def index_text(at: Sequence[int]) -> str:
    """Formats an index for the command line. Raises `TypeError` unless it is a sequence of integers."""
    if isinstance(at, str) or not isinstance(at, (Sequence, np.ndarray)):
        raise TypeError(f"at is {at!r}; it must be a sequence of integers, one for each dimension: (0, 3)")
    try:
        return ",".join(str(operator.index(each)) for each in at)
    except TypeError:
        raise TypeError(f"at is {at!r}; each index must be an integer") from None


# command-line options that are parameters here, or that name files
_NOT_OPTIONS = frozenset(
    ["output", "o", "force", "json", "quiet", "help", "h", "version", "tensor", "tensors", "codes", "tensor_scale", "random_bits", "op"]
)


def command_words(options: Mapping[str, Any]) -> list[str]:
    """Converts options to command-line words: True is a flag, None and False are omitted, underscores become dashes."""
    words = []
    for name, value in options.items():
        if name.replace("-", "_") in _NOT_OPTIONS:
            raise LockstepError("ARGUMENT", f"{name} is no option here; leave it out")
        if value is None or value is False or (isinstance(value, np.bool_) and not value):
            continue
        option = f"--{name.replace('_', '-')}"
        words.append(option if isinstance(value, (bool, np.bool_)) else f"{option}={value}")
    return words
