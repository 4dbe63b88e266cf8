"""Products and column sums with a free order of summation: the requests of a kernel's test, and the kernel's answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._arrays import CODE_DTYPES, WIDE, array_of
from ._conversation import Raised, converse
from ._errors import LockstepError
from ._frames import Frame

ORDERS = ("reference", "any")
ACCUMULATORS = ("f32", "tensor-core", "f64", "hopper-fp8", "hopper-fp8-fast")
OPERATIONS = ("gemm", "column_sum")
_FORMATS = {**WIDE, "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
_NAMES = {"gemm": "gemm", "column_sum": "columnSum"}


def one_of(name: str, value: object, allowed: Sequence[str]) -> str:
    """Returns `value` if it is in `allowed`. Otherwise raises `LockstepError` with the allowed values."""
    if isinstance(value, str) and value in allowed:
        return value
    raise LockstepError("ARGUMENT", f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


def judge(
    kernel: Callable[..., Any],
    name: str,
    operation: str,
    dtype: str,
    out_dtype: str | None,
    accumulator: str | None,
    runs: int,
    seed: int,
) -> Any:
    """Runs a kernel on inputs of one type. Returns the report of its operation, or the kernel's first exception."""
    __tracebackhide__ = True
    one_of("operation", operation, OPERATIONS)
    format = _FORMATS[one_of("dtypes", dtype, WIDE if operation == "column_sum" else _FORMATS)]
    result = WIDE[one_of("out_dtype", out_dtype or (dtype if dtype in WIDE else "float32"), WIDE)]
    supported = _products(format, result) if operation == "gemm" else {"x.dtype": [format], "outDtype": [result]}
    words = [f"--runs={runs}", f"--seed={seed}", "--order=any"]
    if accumulator is not None:
        words.append(f"--accumulator={accumulator}")

    def answer(frame: Frame) -> dict[str, np.ndarray]:
        __tracebackhide__ = True
        names = ("b.codes", "a.codes") if operation == "gemm" else ("x",)
        operands = [_operand(frame.tensors[each], format) for each in names]
        out = array_of(kernel(*operands))
        wanted = frame.message["outputs"]["out"]
        shape = tuple(wanted["shape"])
        if out.size == np.prod(shape, dtype=int):
            out = out.reshape(shape)
        if out.dtype.name not in WIDE or WIDE[out.dtype.name] != result:
            raise TypeError(f"the kernel returned {out.dtype}; out_dtype is {out_dtype or dtype}")
        return {"out": out}

    outcome = converse(name, {_NAMES[operation]: supported}, answer, words)
    if isinstance(outcome, Raised):
        return outcome
    if "error" in outcome:
        raise LockstepError("ARGUMENT", outcome["error"])
    return outcome["operations"][0]


def _products(format: str, result: str) -> dict[str, Any]:
    both = {f"{name}.source.{field}": [value] for name in "ab" for field, value in (("kind", "plain"), ("format", format))}
    return {
        **both,
        "layout": ["TN"],
        "a.lead": [1],
        "b.lead": [1],
        "alpha": [1],
        "c": [None],
        "bias": [None],
        "outDtype": [result],
    }


def _operand(codes: np.ndarray, format: str) -> np.ndarray:
    return codes.view(CODE_DTYPES[format]) if codes.dtype == np.uint8 else codes
