"""The files of a recorded run: arguments as JSON, the tensors by the hashes of their bytes, and the log."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ._errors import LockstepError

# PyTorch's types by name, with the types of safetensors
FILE_TYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float4_e2m1fn_x2": "F4",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
}
_LOG_FORMAT = "torch.utils._debug_mode.DebugMode.logs"


def type_name(dtype: torch.dtype) -> str | None:
    """The name of a type in safetensors files; None if they have none."""
    return FILE_TYPES.get(str(dtype).removeprefix("torch."))


def bytes_of(x: torch.Tensor) -> bytes:
    """The bytes of a tensor in row-major order, without gaps."""
    flat = x.detach().contiguous().reshape(-1)
    if flat.numel() == 0:
        return b""
    return flat.view(torch.uint8).cpu().numpy().tobytes()


def shape_of(x: torch.Tensor | TensorType) -> list[int]:
    """The shape in files. Two elements of float4_e2m1fn_x2 are one in PyTorch."""
    shape = list(x.shape)
    if str(x.dtype) == "torch.float4_e2m1fn_x2" and shape:
        shape[-1] *= 2
    return shape


class TensorType(NamedTuple):
    """The log entry of a tensor that is not stored."""

    dtype: torch.dtype
    shape: torch.Size
    strides: tuple[int, ...] | None
    """None for a tensor in row-major order without gaps."""
    layout: torch.layout


def type_of(x: torch.Tensor) -> TensorType:
    """The log entry of a tensor that is not stored."""
    is_strided = x.layout == torch.strided
    return TensorType(x.dtype, x.shape, None if not is_strided or x.is_contiguous() else x.stride(), x.layout)


def described_as(x: torch.Tensor | TensorType) -> dict[str, Any]:
    """The dtype and the shape of a tensor, and its strides unless it is in row-major order without gaps."""
    own = type_of(x) if isinstance(x, torch.Tensor) else x
    strides = {} if own.strides is None else {"strides": list(own.strides)}
    return {"dtype": str(type_name(own.dtype)), "shape": shape_of(own), **strides}


def argument_of(x: Any, tensor: Callable[[Any], Mapping[str, Any]]) -> Any:
    """An argument as JSON. `tensor` gives the reference to a tensor."""
    if isinstance(x, (torch.Tensor, TensorType)):
        return tensor(x) if type_name(x.dtype) and x.layout == torch.strided else {"other": f"a tensor of {x.dtype}, {x.layout}"}
    # a dictionary is already JSON; no operator has one as an argument
    if x is None or isinstance(x, (bool, str, int, dict)):
        return x
    if isinstance(x, float):
        return x if math.isfinite(x) else {"float": str(x)}
    if isinstance(x, torch.dtype):
        name = type_name(x)
        return {"dtype": name} if name else {"other": str(x)}
    if isinstance(x, (list, tuple)):
        return [argument_of(each, tensor) for each in x]
    return {"other": str(x)[:200]}


class RunFolder:
    """Writes a run. Tensors go to a temporary file as they come; `close` writes log.json and tensors.safetensors."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if any((self.folder / name).exists() for name in ("log.json", "tensors.safetensors", "contract.json")):
            raise LockstepError("FILE", f"{self.folder} has a recorded run; give an empty folder")
        self._data = open(self.folder / "tensors.part", "wb")  # noqa: SIM115 - closed by close
        self._header: dict[str, Any] = {}
        self._end = 0
        self._logs: list[dict[str, Any]] = []
        self._hashed: list[dict[str, Any]] = []

    def store(self, name: str, dtype: str, shape: list[int], data: bytes) -> None:
        """Adds a tensor, unless the file has one of this name."""
        if name in self._header:
            return
        end = self._end + len(data)
        self._header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [self._end, end]}
        self._data.write(data)
        self._end = end

    def reference(self, x: torch.Tensor, stored: str = "whole", samples: int = 0, place: int = 0) -> dict[str, Any]:
        """Describes a tensor, and stores all of it, a sample, or only the hash of its bytes. `place` is the operator's position
        in the log.
        """
        data = bytes_of(x)
        digest = hashlib.sha256(data).hexdigest()
        # equal bytes are stored once
        name = digest[:32]
        described: dict[str, Any] = {**described_as(x), "sha256": digest}
        dtype, shape = described["dtype"], described["shape"]
        if stored == "whole":
            self.store(name, dtype, shape, data)
            return {**described, "tensor": name}
        self._hashed.append(described)
        if stored == "sample" and dtype != "F4" and x.numel() > 0:
            indices = sample_of(place, x.numel(), samples)
            flat = x.detach().reshape(-1)[torch.tensor(indices, device=x.device)]
            own = f"{name}.sample.{place}"
            self.store(own, dtype, [len(indices)], bytes_of(flat))
            described["sample"] = {"indices": indices, "tensor": own}
        return described

    def add(self, entry: Mapping[str, Any]) -> None:
        """Adds an entry to the log."""
        self._logs.append(dict(entry))

    def close(self, contract: Mapping[str, Any]) -> None:
        """Writes the files of the run."""
        # an output recorded as a hash only is in the file if it was also an input of another operation
        for described in self._hashed:
            if described["sha256"][:32] in self._header:
                described["tensor"] = described["sha256"][:32]
        self._data.close()
        header = json.dumps(self._header or {"__metadata__": {}}, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        part = self.folder / "tensors.part"
        with open(self.folder / "tensors.safetensors", "wb") as file, open(part, "rb") as data:
            file.write(len(header).to_bytes(8, "little") + header)
            shutil.copyfileobj(data, file)
        part.unlink()
        log = {"format": _LOG_FORMAT, "version": 1, "logs": self._logs}
        (self.folder / "log.json").write_text(json.dumps(log, allow_nan=False, separators=(",", ":")) + "\n", encoding="utf-8")
        (self.folder / "contract.json").write_text(json.dumps(contract, indent=2) + "\n", encoding="utf-8")


def sample_of(seed: int, count: int, samples: int) -> list[int]:
    """Ascending indices of distinct elements. The same operation of another run has the same indices."""
    if samples >= count:
        return list(range(count))
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, count, (samples,), generator=generator)
    return sorted(set(drawn.tolist()))
