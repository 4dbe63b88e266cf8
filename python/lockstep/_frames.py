"""Frames of tensors for pipes: each is a length followed by a safetensors file (docs/protocol.md)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from ._errors import LockstepError

KEY = "lockstep"

FILE_DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "I16": np.dtype(np.int16),
    "U16": np.dtype(np.uint16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I32": np.dtype(np.int32),
    "U32": np.dtype(np.uint32),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "I64": np.dtype(np.int64),
    "U64": np.dtype(np.uint64),
}
_NAMES = {dtype: name for name, dtype in FILE_DTYPES.items()}


@dataclass(frozen=True)
class Frame:
    """A message with tensors and further metadata."""

    message: Any
    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]


def write_frame(
    stream: BinaryIO, message: Any, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes one frame. Arrays are not copied if they are in C order."""
    header: dict[str, Any] = {"__metadata__": {**(metadata or {}), KEY: json.dumps(message)}}
    arrays = [(name, np.ascontiguousarray(array).reshape(array.shape)) for name, array in tensors.items()]
    # wider elements first, so that all are aligned
    arrays.sort(key=lambda each: -each[1].itemsize)
    at = 0
    for name, array in arrays:
        if array.dtype not in _NAMES:
            raise LockstepError("DTYPE", f"{name} is {array.dtype}, which safetensors files do not have")
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    stream.write(struct.pack("<QQ", 8 + len(text) + at, len(text)) + text)
    for _, array in arrays:
        if array.nbytes > 0:
            stream.write(memoryview(array.reshape(-1).view(np.uint8)))
    stream.flush()


def read_frame(stream: BinaryIO) -> Frame | None:
    """Reads the next frame; None at the end of the stream. Arrays share the memory of the frame."""
    prefix = stream.read(8)
    if not prefix:
        return None
    (length,) = struct.unpack("<Q", prefix)
    payload = np.empty(length, np.uint8)
    view, at = memoryview(payload), 0
    while at < length:
        count = stream.readinto(view[at:])  # type: ignore[attr-defined]
        if not count:
            raise LockstepError("BACKEND", f"the stream ended after {at} of the {length} bytes of a frame")
        at += count
    (size,) = struct.unpack("<Q", payload[:8].tobytes())
    header = json.loads(payload[8 : 8 + size].tobytes())
    metadata = header.pop("__metadata__", {})
    message = json.loads(metadata.pop(KEY, "null"))
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        dtype = FILE_DTYPES.get(entry["dtype"])
        if dtype is None:
            raise LockstepError("DTYPE", f"{name} is {entry['dtype']}, which numpy does not have")
        part = payload[begin:end]
        if begin % dtype.itemsize:
            part = part.copy()
        tensors[name] = part.view(dtype).reshape(entry["shape"])
    return Frame(message, tensors, metadata)
