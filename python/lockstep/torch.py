"""PyTorch on a CPU with the bits of a GPU, and recorded runs of PyTorch that a CPU can judge. PyTorch has to be installed.

    with lockstep.torch.reference("h200") as mode, lockstep.torch.record("run"):
        model(x).backward()
    print(mode)             # which operators have the bits of an H200

`python -m lockstep replay run` computes each operation of a run again. docs/python.md has more.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ._arrays import to_torch
from ._digest import DeviceDigests, digest_of
from ._errors import LockstepError
from ._frames import FILE_DTYPES, Frame
from ._process import SERVER
from ._run_files import RunFolder, TensorType, argument_of, bytes_of, described_as, type_name, type_of
from .operations import info

__all__ = ["OperatorCount", "record", "reference"]

CHIPS = ("h200", "h100")
_OUTPUTS = ("whole", "sample", "hash", "digest")
# classes of tensors that run no operators of their own, and FakeTensor, whose operators have no values
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)
_active: list[TorchDispatchMode] = []


@dataclass(frozen=True)
class OperatorCount:
    """How often an operator ran in `reference`, and whether it has the bits of the chip."""

    name: str
    """The name of the operator and its overload: aten::add.Tensor."""
    count: int
    status: Literal["same", "unverified", "not modelled"]
    """same: a GPU confirmed the model, or the operator only moves bytes. unverified: there is a model, and no GPU was compared with
    it under these versions. not modelled: it ran as PyTorch runs it on a CPU."""
    reason: str
    """Why it is not modelled."""


class _Entered(TorchDispatchMode):
    """A mode that is listed while it is active."""

    def __enter__(self) -> Any:
        entered = super().__enter__()
        _active.append(self)
        return entered

    def __exit__(self, *exception: Any) -> None:
        _active.remove(self)
        super().__exit__(*exception)


def _tensors(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, (list, tuple)):
        return [each for value in values for each in _tensors(value)]
    if isinstance(values, dict):
        return _tensors(list(values.values()))
    return []


def _has_own_dispatch(types: Sequence[type]) -> bool:
    """Whether an operand is of a class that runs its operators itself, such as torchao's Float8TrainingTensor.

    A mode then returns NotImplemented, and sees the operators on plain tensors that the class runs.
    """
    return any(each.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl and each not in _PLAIN for each in types)


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that an operator writes, by its schema."""
    parameters = func._schema.arguments
    given = {**{each.name: value for each, value in zip(parameters, args, strict=False)}, **kwargs}
    return [
        tensor
        for each in parameters
        if each.alias_info is not None and each.alias_info.is_write
        for tensor in _tensors(given.get(each.name))
    ]


class reference(_Entered):  # noqa: N801 - it is called like a function
    """A context in which operators on CPU tensors have the bits of a GPU, where the table of `lockstep operators` has a model.

    Other operators run as they do; `operators()` lists all that ran, and `print(mode)` prints the list. `chip` is "h200" or
    "h100". The models are of PyTorch 2.11. Enter `reference` before `record`.

    Raises `LockstepError` for another chip.
    """

    def __init__(self, chip: str = "h200") -> None:
        if chip not in CHIPS:
            raise LockstepError("ARGUMENT", f"chip is {chip!r}; it must be one of {', '.join(CHIPS)}")
        super().__init__()
        self.chip = chip
        self._rows = {row["name"]: row for row in SERVER.run(["operators"]).message["result"]["operators"]}
        self._counts: dict[tuple[str, str, str], int] = {}

    def __enter__(self) -> reference:
        if any(isinstance(mode, record) for mode in _active):
            raise LockstepError("ARGUMENT", "reference is entered inside of record, which would record other results; enter reference first")
        return super().__enter__()

    def operators(self) -> list[OperatorCount]:
        """The operators that ran, in the order in which they first ran."""
        return [OperatorCount(name, count, status, reason) for (name, status, reason), count in self._counts.items()]  # type: ignore[arg-type]

    def __str__(self) -> str:
        rows = self.operators()
        width = max((len(row.name) for row in rows), default=0)
        lines = [f"{row.name.ljust(width)}  {row.count:5}  {row.status}{': ' if row.reason else ''}{row.reason}" for row in rows]
        return "\n".join(lines)

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if _has_own_dispatch(types):
            return NotImplemented
        kwargs = dict(kwargs or {})
        call = _gpu_call(func.name(), args, kwargs)
        name = call.name
        row = self._row(name)
        reason = ""
        if row is None:
            reason = "the table has no such operator"
        elif not all(type(each) in (torch.Tensor, torch.nn.Parameter) and each.device.type == "cpu" for each in _tensors([args, kwargs])):
            reason = "an operand is not a plain tensor on the CPU"
        elif row["kind"] == "computes":
            # the operands are read before the operator may overwrite one of them
            answer = self._apply(call)
            reason = answer.message["result"].get("reason", "")
            if not reason:
                is_witnessed = self._is_witnessed(answer.message["result"]["witness"])
                self._count(name, "same" if is_witnessed else "unverified", "")
                return self._with_bits(func, args, kwargs, _results(answer)[: call.outputs])
        self._count(name, "not modelled" if reason else "same", reason)
        return func(*args, **kwargs)

    def _row(self, name: str) -> Mapping[str, Any] | None:
        if name in self._rows:
            return self._rows[name]
        row = self._rows.get(re.sub(r"_(?=\.|$)", "", name))
        return row if row is not None and row["inPlace"] else None

    def _is_witnessed(self, witness: Mapping[str, Any] | None) -> bool:
        return witness is not None and witness["chip"] == self.chip and f"{torch.__version__}.".startswith(f"{witness['torch']}.")

    def _count(self, name: str, status: str, reason: str) -> None:
        key = (name, status, reason)
        self._counts[key] = self._counts.get(key, 0) + 1

    def _apply(self, call: _Call) -> Frame:
        """The answer of `lockstep apply`: results and their witness, or the reason why there is no model."""
        tensors: dict[str, np.ndarray] = {"in/none": np.zeros(0, np.uint8)}

        def tensor(x: torch.Tensor) -> Mapping[str, Any]:
            dtype = str(type_name(x.dtype))
            if dtype not in FILE_DTYPES:
                return {"other": f"a tensor of {x.dtype}"}
            key = str(len(tensors))
            tensors[f"in/{key}"] = np.frombuffer(bytes_of(x), np.uint8).view(FILE_DTYPES[dtype]).reshape(x.shape)
            return {**described_as(x), "tensor": key, "shape": list(x.shape)}

        operation = {
            "schema": call.name,
            "args": argument_of(list(call.args), tensor),
            "kwargs": {key: argument_of(each, tensor) for key, each in call.kwargs.items()},
        }
        return SERVER.run(["apply", "in", "-o", "out"], tensors, {"in/operation": json.dumps(operation)})

    def _with_bits(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: list[torch.Tensor]) -> Any:
        """Runs the operator for its strides and for what it writes in place, then replaces the bits of its results."""
        try:
            own = func(*args, **kwargs)
        except (RuntimeError, NotImplementedError):
            # the CPU has no such operator
            if any(str(each.type) == "int" for each in func._schema.returns):
                raise  # the models give tensors only
            if func._schema.returns:
                return results[0] if len(results) == 1 else results
            own = None
        targets = _tensors(own) if func._schema.returns else _written(func, args, kwargs)
        for target, result in zip(targets, results, strict=True):
            target.copy_(result.view_as(target))
        return own


@dataclass(frozen=True)
class _Call:
    """An operator and its arguments."""

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    outputs: int | None = None
    """The number of outputs that are used, where it is not all."""


def _gpu_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Call:
    """The call that a GPU runs where a CPU runs this one.

    `scaled_dot_product_attention` has other operators on a GPU. There it prefers cuDNN, then flash attention, as far as `sdpa_kernel` and the
    flags of `torch.backends.cuda` allow them.
    """
    if name != "aten::_scaled_dot_product_flash_attention_for_cpu":
        return _Call(name, args, kwargs)
    query, key, value, *options = args
    dropout_p, is_causal = [*options, *(0.0, False)[len(options) :]]
    mask, scale = kwargs.get("attn_mask"), {"scale": kwargs.get("scale")}
    if torch.backends.cuda.cudnn_sdp_enabled():
        return _Call("aten::_scaled_dot_product_cudnn_attention", [query, key, value, mask, True, dropout_p, is_causal], scale, 2)
    if mask is None and (not is_causal or query.shape[-2] == key.shape[-2]):
        return _Call("aten::_scaled_dot_product_flash_attention", [query, key, value, dropout_p, is_causal], scale, 2)
    # with a mask, or with causal queries that do not fit the keys, a GPU has no flash attention
    return _Call(name, args, kwargs)


def _results(answer: Frame) -> list[torch.Tensor]:
    return [to_torch(answer.tensors[f"out/{i}"]) for i in range(len(answer.tensors))]


class record(_Entered):  # noqa: N801 - it is called like a function
    """A context that records every operator that PyTorch runs in it, as a run in `folder`, for `lockstep replay`.

    `log.json` is a log of PyTorch's DebugMode, in which each operator also has its arguments, and each output a digest of 64 bits.
    An operator that returns or writes no tensor is left out. One that draws random numbers has the state of the CUDA generator.
    `tensors.safetensors` has whole inputs, and of outputs all elements, `samples` elements of each, or none but the SHA-256:
    `outputs` is "whole", "sample" or "hash". Every operator then waits for the device, so a recorded step is slow. With "digest" no
    tensor is stored but those of the operators whose places in the log are in `operations`: the digests are computed on the device,
    and nothing waits. Views, whose bytes are those of an input, have none. `contract.json` has the chip, the versions and the
    settings that decide bits. The files are written at the end, also if the body raised.

    Raises `LockstepError` for another value of `outputs`, for operations without "digest", and for a folder that has a run already.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        outputs: Literal["whole", "sample", "hash", "digest"] = "whole",
        samples: int = 1024,
        operations: Sequence[int] = (),
    ) -> None:
        if outputs not in _OUTPUTS:
            raise LockstepError("ARGUMENT", f"outputs is {outputs!r}; it must be one of {', '.join(_OUTPUTS)}")
        if samples < 1:
            raise LockstepError("ARGUMENT", f"samples is {samples}; it must be at least 1")
        if len(operations) > 0 and outputs != "digest":
            raise LockstepError("ARGUMENT", f'operations chooses whole tensors where outputs is "digest"; outputs is {outputs!r}')
        super().__init__()
        self.folder = Path(folder)
        self._stored = outputs
        self._samples = samples
        self._whole = frozenset(operations)
        self._files: RunFolder | None = None
        self._contract: dict[str, Any] = {}

    def __enter__(self) -> record:
        self._files = RunFolder(self.folder)
        self._digests = DeviceDigests()
        self._entries: list[_Entry] = []
        chips = [mode.chip for mode in _active if isinstance(mode, reference)]
        self._contract = contract_of(chips[-1] if chips else None)
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        files, self._files = self._files, None
        if files is not None:
            digests = self._digests.read()
            for entry in self._entries:
                files.add(_logged(entry, digests))
            files.close(self._contract)

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if _has_own_dispatch(types):
            return NotImplemented
        kwargs = kwargs or {}
        files = self._files
        if files is None or any(_is_fake(each) for each in _tensors([args, kwargs])):
            return func(*args, **kwargs)
        is_stored = self._stored != "digest" or len(self._entries) in self._whole
        given = shown = _typed(args), _typed(kwargs)
        if is_stored:
            # the operator may overwrite its inputs
            with _disable_current_modes():
                given = argument_of(list(args), files.reference), {name: argument_of(each, files.reference) for name, each in kwargs.items()}
        generator = generator_state(func, args, kwargs)
        result = func(*args, **kwargs)
        written = _tensors(result) if func._schema.returns else _written(func, args, kwargs)
        outputs = [each for each in written if type_name(each.dtype)]
        if not outputs:
            return result
        if is_stored:
            with _disable_current_modes():
                found = [self._stored_output(files, each) for each in outputs]
        else:
            is_view = _returns_view(func)
            found = [(type_of(each), None if is_view else self._digests.add(each)) for each in outputs]
        self._entries.append(_Entry(func, given, shown, _typed(result), found, generator))
        return result

    def _stored_output(self, files: RunFolder, x: torch.Tensor) -> Mapping[str, Any]:
        stored = "whole" if self._stored == "digest" else self._stored
        described = files.reference(x, stored, self._samples, len(self._entries))
        described["digest"] = digest_of(bytes_of(x))
        return described


@dataclass(frozen=True)
class _Entry:
    """An operator that ran, as it is written at the end."""

    func: Any
    given: tuple[Any, Any]
    """Arguments by position and by name: as JSON, or with the types of tensors."""
    shown: tuple[Any, Any]
    result: Any
    outputs: list[Any]
    """Outputs as JSON, or the type of each with the number of its digest, which a view lacks."""
    generator: Mapping[str, Any] | None
    """The state of the CUDA generator before the operator, if it draws from one."""


def _logged(entry: _Entry, digests: list[str]) -> dict[str, Any]:
    """An entry of a log."""
    args, kwargs = entry.shown
    outputs = [
        each if isinstance(each, dict) else described_as(each[0]) if each[1] is None else {**described_as(each[0]), "digest": digests[each[1]]}
        for each in entry.outputs
    ]
    return {
        "type": "op",
        "op_name": entry.func.__qualname__,
        "args_str": ", ".join(_shown(each) for each in args),
        "kwargs_str": "".join(f", {name}={_shown(each)}" for name, each in kwargs.items()),
        "call_depth": 0,
        "log": None,
        "output_str": f"  ->  {_shown(entry.result)}",
        "stack_trace": None,
        "fwd_stack_trace": None,
        "lockstep": {
            "schema": entry.func.name(),
            "args": argument_of(list(entry.given[0]), described_as),
            "kwargs": {name: argument_of(each, described_as) for name, each in entry.given[1].items()},
            "outputs": outputs,
            **({} if entry.generator is None else {"generator": entry.generator}),
        },
    }


def generator_state(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The seed and the offset of the CUDA generator from which an operator will draw. None if it draws from none, and while a
    CUDA graph is captured, which has its own state."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return None
    generator = _cuda_generator(args, kwargs)
    if generator is None:
        return None
    try:
        return {"seed": str(generator.initial_seed()), "offset": generator.get_offset()}
    except RuntimeError:
        return None


def _cuda_generator(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The generator in the arguments, or the default one of their device; None if it is not of CUDA."""
    generator = kwargs.get("generator")
    if generator is not None:
        return generator if generator.device.type == "cuda" else None
    tensors = _tensors([args, kwargs])
    device = torch.device(tensors[0].device if tensors else kwargs.get("device") or "cpu")
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


def _typed(x: Any) -> Any:
    """An argument with the types of its tensors in their place."""
    if isinstance(x, torch.Tensor):
        return type_of(x)
    if isinstance(x, (list, tuple)):
        return [_typed(each) for each in x]
    if isinstance(x, dict):
        return {name: _typed(each) for name, each in x.items()}
    return x


def _is_fake(x: torch.Tensor) -> bool:
    return x.device.type == "meta" or isinstance(x, FakeTensor)


@lru_cache(maxsize=None)
def _returns_view(func: Any) -> bool:
    """Whether the results of an operator are views, which have the bytes of an input."""
    aliases = [each.alias_info for each in func._schema.returns]
    return func.name() == "aten::_unsafe_view" or any(each is not None and not each.is_write for each in aliases)


def _shown(x: Any) -> str:
    if isinstance(x, (torch.Tensor, TensorType)):
        return f"t: {str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
    if isinstance(x, (list, tuple)):
        return f"[{', '.join(_shown(each) for each in x)}]"
    return str(x)[:200]


def contract_of(chip: str | None) -> dict[str, Any]:
    """The contract of a run on this machine; `chip` is the chip of `reference`, if it computes the run."""
    if chip is None and torch.cuda.is_available():
        device = torch.cuda.get_device_name().lower()
        found = next((each for each in CHIPS if each in device), device)
    else:
        found = chip
    return {
        "format": "lockstep.contract",
        "version": 1,
        "chip": found,
        "computed_by": "device" if chip is None else "reference",
        "versions": {
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda,
            "driver": _driver() if chip is None else None,
            "cublas": _version_of("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12") if chip is None else None,
            "lockstep": info()["version"],
        },
        "settings": {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "allow_bf16_reduced_precision_reduction": _flag("allow_bf16_reduced_precision_reduction"),
            "allow_fp16_reduced_precision_reduction": _flag("allow_fp16_reduced_precision_reduction"),
            "allow_fp16_accumulation": _flag("allow_fp16_accumulation"),
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
            "NVIDIA_TF32_OVERRIDE": os.environ.get("NVIDIA_TF32_OVERRIDE"),
        },
    }


def _flag(name: str) -> bool | None:
    try:
        value = getattr(torch.backends.cuda.matmul, name)
    except (AttributeError, RuntimeError):
        return None
    # PyTorch returns a pair where splits of K have a flag too
    return bool(value[0] if isinstance(value, tuple) else value)


def _driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    match = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return match and match[1]


def _version_of(*names: str) -> str | None:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
