"""Tests of kernels: a function is held to the reference on inputs that are aimed at likely mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np

from ._errors import LockstepError
from ._frames import read_frame, write_frame
from ._process import start
from .operations import WideDType, array_of, bits_of, quantize

_DTYPES: Mapping[str, str] = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_DIRECTIONS = ("rowwise", "columnwise")

Kernel = Callable[[np.ndarray], Any]


class KernelMismatch(AssertionError):
    """A kernel gave other bits than the reference, or failed.

    The message names the mistake, where it is a known one, and explains the first wrong element. `failure` has the counterexample,
    its seed and path, and under "found" the simpler input as text, the mistakes and the explanation.
    """

    def __init__(self, message: str, failure: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.failure = failure


def assert_kernel(
    kernel: Kernel,
    quantizer: str,
    *,
    usage: Literal["rowwise", "columnwise"] = "rowwise",
    dtypes: Sequence[WideDType] = ("float32",),
    runs: int = 100,
    seed: int = 1,
    **options: Any,
) -> int:
    """Holds a quantizer to the reference, bit by bit, and returns the number of inputs that it was given.

    `kernel` gets a matrix [M, K], where M may be any number, and returns (codes, scales) of the copy that `usage` names, rowwise or
    columnwise; NVFP4 returns (codes, scales, amax). Codes of 4 bits are two per byte, the even element in the low nibble. Any unsigned integers, floats of
    ml_dtypes or PyTorch tensors will do, of the shapes that `lockstep.quantize` gives.

    `quantizer` and `options` are those of `lockstep.quantize`: dialect="torchao-mxfp8-floor", format="e5m2", tile="32x32". `dtypes`
    are the types of the inputs.

    Raises `KernelMismatch`, an AssertionError with the smallest input that was found, and `LockstepError` if there is nothing to
    check.
    """
    if usage not in _DIRECTIONS:
        raise LockstepError("ARGUMENT", f"usage is {usage!r}; it must be rowwise or columnwise")
    for dtype in dtypes:
        if dtype not in _DTYPES:
            raise LockstepError("ARGUMENT", f"dtypes has {dtype!r}; there are {', '.join(_DTYPES)}")
    # an array that every tile divides; what is recorded of it says what decides bits
    recipe = quantize(np.zeros((128, 128), ml_dtypes.bfloat16), quantizer, usage=[usage], **options)._recipe
    supported = {
        "recipe": recipe,
        **{f"usage.{each}": [each == usage] for each in _DIRECTIONS},
        "scaleLayout": ["logical"],
        "x.dtype": [_DTYPES[dtype] for dtype in dtypes],
        "x.shape.length": [2],
        "records": [True],
        "noop": [None],
    }
    names = [f"{usage}.{part}" for part in ("data", "scaleInv", "amax")]
    name = getattr(kernel, "__name__", type(kernel).__name__)
    report = _converse(name, {"quantize": supported}, lambda inputs: _results(kernel(inputs["x"]), names), runs, seed)
    if "error" in report:
        raise LockstepError("ARGUMENT", report["error"])
    (law,) = report["laws"]
    failure = law.get("failure")
    if failure:
        raise KernelMismatch(_describe(name, quantizer, failure), failure)
    return law["runs"]


def _results(given: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    parts = given if isinstance(given, (tuple, list)) else (given,)
    if len(parts) > len(names):
        raise TypeError(f"the kernel returned {len(parts)} arrays; codes, scales and for NVFP4 an amax are needed")
    arrays = [array_of(part) for part in parts]
    for array in arrays:
        if array.dtype.kind == "O":
            raise TypeError(f"the kernel returned {given!r}; codes, scales and for NVFP4 an amax are needed")
    return {name: array if array.dtype == np.float32 else bits_of(array) for name, array in zip(names, arrays, strict=False)}


def _converse(
    name: str,
    operations: Mapping[str, Any],
    answer: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    runs: int,
    seed: int,
) -> Mapping[str, Any]:
    """Answers the cases of a conformance run in a child process, and returns its report."""
    process = start("conform", "--subject", "-", f"--runs={runs}", f"--seed={seed}", "--quiet")
    try:
        while True:
            frame = read_frame(process.stdout)  # type: ignore[arg-type]
            if frame is None:
                raise LockstepError("BACKEND", f"the conformance run ended with status {process.wait()}")
            kind = frame.message["type"]
            if kind == "report":
                return frame.message
            if kind == "hello":
                reply: dict[str, Any] = {"protocol": 1, "name": name, "operations": operations}
                tensors: dict[str, np.ndarray] = {}
            else:
                reply, tensors = {"id": frame.message["id"]}, {}
                try:
                    tensors = answer(frame.tensors)
                except Exception as error:  # noqa: BLE001 - whatever the kernel raises is its answer
                    reply["error"] = f"{type(error).__name__}: {error}"
            write_frame(process.stdin, reply, tensors)  # type: ignore[arg-type]
    finally:
        for stream in (process.stdin, process.stdout):
            stream.close()  # type: ignore[union-attr]
        process.kill()
        process.wait()


def _describe(name: str, quantizer: str, failure: Mapping[str, Any]) -> str:
    found = failure.get("found") or {}
    mistakes = found.get("mistakes", [])
    return "\n".join(
        [
            f"{name} is not {quantizer}: {found.get('message', failure['message'])}",
            *(f"{'or' if i else 'looks like'}: {each}" for i, each in enumerate(mistakes)),
            f"input, after {failure['shrinks']} steps of shrinking: {found.get('text', failure['counterexample'])}",
            *found.get("explanation", []),
            f"seed {failure['seed']}, path {failure['path']}",
        ]
    )
