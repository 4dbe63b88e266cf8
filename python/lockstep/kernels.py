"""Tests of kernels: a function is compared with the reference on inputs that likely mistakes get wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from ._any_order import ACCUMULATORS, ORDERS, judge, one_of
from ._arrays import CODE_DTYPES, DIRECTIONS, FLOAT4, WIDE, Direction, WideDType, array_of, bits_of, one_direction
from ._conversation import Raised, converse
from ._errors import LockstepError
from ._frames import Frame
from .operations import SCALES, quantize

Kernel = Callable[..., Any]
_PARTS = ("data", "scaleInv", "amax")


class KernelMismatch(AssertionError):
    """A kernel returned other bits than the reference, or failed.

    The message names the mistake if it is a known one, and explains the first wrong element. `failure` has the counterexample,
    its seed and path, and under "found" the simplified input as a string, the mistakes and the explanation. If the kernel
    raised an exception, it is the cause of this one, and `failure` has the "input" as drawn.
    """

    def __init__(self, message: str, failure: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.failure = failure

    def __reduce__(self) -> tuple[type, tuple[str, Mapping[str, Any]]]:
        return type(self), (str(self), self.failure)


class Agreement(int):
    """The number of inputs on which a kernel is right.

    `notes` lists inputs that were not drawn, results that were not compared, and rules that divide 0 by 0 for a block of
    zeros. With order="any" it says which order was found, or that results were held to intervals.
    """

    notes: tuple[str, ...] = ()


def assert_kernel(
    kernel: Kernel,
    quantizer: str | None = None,
    *,
    usage: Direction | Sequence[Direction] = "rowwise",
    dtypes: WideDType | Sequence[WideDType] = ("float32",),
    runs: int = 100,
    seed: int = 1,
    nonfinite: bool | None = None,
    empty: bool = False,
    order: str = "reference",
    **options: Any,
) -> Agreement:
    """Compares a quantizer with the reference, bit by bit, and returns the number of inputs.

    `kernel` receives a matrix [M, K], where M is any number from 1 and K a multiple of the block, and returns (codes, scales)
    of the copy that `usage` names, rowwise or columnwise. NVFP4 also returns the amax, or the tensor scale that its dialect
    stores. 4-bit codes are two per byte, the even element in the low nibble. Unsigned integers, ml_dtypes floats and PyTorch
    tensors are all accepted. Codes have the shape that `lockstep.quantize` returns; scales may have extra dimensions of 1, or
    one dimension. float32 scales may have any type whose values float32 holds exactly.

    `quantizer` and `options` are those of `lockstep.quantize`: dialect="torchao-mxfp8-floor", format="e5m2", tile="32x32".
    With `dialect` the quantizer may be omitted. `dtypes` are the types of the inputs. `empty` adds matrices without columns.

    Inputs contain NaN and infinities, except for a dialect whose package treats them differently from docs/numerics.md; NaN
    codes are then equal whatever their signs. `nonfinite=True` draws them for any dialect, `nonfinite=False` for none. `notes`
    of the result, and the message of a failure, say what was omitted.

    With order="any" the kernel is a product instead: it receives x [M, K] and w [N, K] and returns x times the transpose of w,
    [M, N], summed in any order. Then there is no `quantizer`, and the options are `out_dtype` (default: the type of the inputs,
    float32 for FP8), `accumulator` (that of `lockstep conform`) and `operation`; "column_sum" is for a kernel that returns the
    sums of the columns of x. `dtypes` may also have float8_e4m3fn and float8_e5m2. The order is found by exclusion and every
    element held to it; without one, every element has to lie in the interval that contains all orders.

    Raises `KernelMismatch`, an AssertionError with a simplified failing input (its cause is the kernel's exception, if there
    was one), and `LockstepError` if there is nothing to check.
    """
    __tracebackhide__ = True
    if one_of("order", order, ORDERS) == "any":
        return _assert_any_order(kernel, quantizer, dtypes, runs, seed, **options)
    direction = one_direction(usage)
    # an array that every tile divides; its recorded settings determine the bits
    q = quantize(np.zeros((128, 128), ml_dtypes.bfloat16), quantizer, usage=direction, **options)
    dialect = options.get("dialect")
    supported = {
        "recipe": q._recipe,
        **({} if dialect is None else {"dialect": dialect}),
        **{f"usage.{each}": [each == direction] for each in DIRECTIONS},
        "scaleLayout": ["logical"],
        "x.dtype": _input_types(dtypes),
        "x.shape.length": [2],
        "records": [True],
        "noop": [None],
        **({} if empty else {"x.isEmpty": [False]}),
        **({} if nonfinite is None else dict.fromkeys(["x.hasNaN", "x.hasInfinity"], [True, False] if nonfinite else [False])),
    }
    name = getattr(kernel, "__name__", type(kernel).__name__)
    types = {"data": q.settings["format"], "scaleInv": SCALES.get(q.settings["quantizer"], "")}
    words = [f"--runs={runs}", f"--seed={seed}"]
    outcome = converse(name, {"quantize": supported}, partial(_answer, kernel, direction, types), words)
    title = f"{name} is not {dialect or quantizer}"
    if isinstance(outcome, Raised):
        raise _raised(title, outcome, seed) from outcome.error
    if "error" in outcome:
        raise LockstepError("ARGUMENT", outcome["error"])
    (law,) = outcome["laws"]
    notes = (*outcome.get("notes", ()), *law.get("notes", ()))
    if law.get("failure"):
        raise KernelMismatch(_describe(title, law["failure"], notes), law["failure"])
    agreement = Agreement(law["runs"])
    agreement.notes = notes + tuple(f"{each['count']} inputs were left out: {each['reason']}" for each in law["declined"])
    return agreement


def _raised(title: str, outcome: Raised, seed: int) -> KernelMismatch:
    """The failure of a kernel that raised an exception."""
    x = outcome.input
    what = f"{type(outcome.error).__name__}: {outcome.error}"
    failure = {"message": what, "input": x, "shrinks": 0, "seed": seed, "counterexample": f"x = {x.dtype} {list(x.shape)}"}
    message = f"{title}: it raised {what}\ninput, as it was drawn: {failure['counterexample']}\nseed {seed}"
    return KernelMismatch(message, failure)


def _assert_any_order(
    kernel: Kernel,
    quantizer: str | None,
    dtypes: str | Sequence[str],
    runs: int,
    seed: int,
    *,
    operation: str = "gemm",
    out_dtype: str | None = None,
    accumulator: str | None = None,
) -> Agreement:
    """Tests a product or a sum whose order is free, with inputs of each type."""
    __tracebackhide__ = True
    if quantizer is not None:
        raise LockstepError("ARGUMENT", f'order="any" is for products and sums, which have no quantizer; leave out {quantizer!r}')
    name = getattr(kernel, "__name__", type(kernel).__name__)
    types = [dtypes] if isinstance(dtypes, str) else list(dtypes)
    if not types:
        raise LockstepError("ARGUMENT", "dtypes is empty; it must have at least one type")
    if accumulator is not None:
        one_of("accumulator", accumulator, ACCUMULATORS)
    count, notes = 0, []
    for dtype in types:
        report = judge(kernel, name, operation, dtype, out_dtype, accumulator, runs, seed)
        title = f"{name} is no {operation} of {dtype} in any order"
        if isinstance(report, Raised):
            raise _raised(title, report, seed) from report.error
        if not report["ok"]:
            raise KernelMismatch("\n".join([title, *report["lines"], f"seed {seed}"]), report)
        count += report["runs"]
        notes += report["lines"]
    agreement = Agreement(count)
    agreement.notes = tuple(notes)
    return agreement


def _input_types(dtypes: WideDType | Sequence[WideDType]) -> list[str]:
    names = [dtypes] if isinstance(dtypes, str) else list(dtypes)
    for name in names:
        if name not in WIDE:
            raise LockstepError("ARGUMENT", f"dtypes has {name!r}; there are {', '.join(WIDE)}")
    if not names:
        raise LockstepError("ARGUMENT", f"dtypes is empty; it must have one of {', '.join(WIDE)}")
    return [WIDE[name] for name in names]


def _answer(kernel: Kernel, direction: str, types: Mapping[str, str], frame: Frame) -> dict[str, np.ndarray]:
    """The kernel's result for a case, as the tensors of its answer."""
    __tracebackhide__ = True
    given = kernel(frame.tensors["x"])
    parts = given if isinstance(given, (tuple, list)) else (given,)
    if len(parts) > len(_PARTS):
        raise TypeError(f"the kernel returned {len(parts)} arrays; codes, scales and for NVFP4 an amax are needed")
    arrays = [array_of(part) for part in parts]
    if any(array.dtype.kind == "O" for array in arrays):
        raise TypeError(f"the kernel returned {given!r}; codes, scales and for NVFP4 an amax are needed")
    answer = {}
    for part, array in zip(_PARTS, arrays, strict=False):
        name = f"{direction}.{part}"
        wanted = frame.message["outputs"].get(name, {"dtype": "F32", "shape": list(array.shape)})
        answer[name] = _part(part, array, wanted, types.get(part, ""))
    return answer


def _part(part: str, array: np.ndarray, wanted: Mapping[str, Any], code: str) -> np.ndarray:
    """One array of an answer, converted to the expected type and shape if that preserves its meaning."""
    shape = tuple(wanted["shape"])
    is_float = array.dtype.kind in "fV"
    if wanted["dtype"] == "F32":
        # float32 holds the scales of narrower types exactly
        array = array.astype(np.float32) if is_float else array
    else:
        expected = FLOAT4 if code == "e2m1" else CODE_DTYPES.get(code)
        if is_float and array.dtype.itemsize == 1 and array.dtype != expected:
            raise TypeError(f"the kernel's {part} is {array.dtype}; it must be {expected or wanted['dtype']} or uint8")
        array = array if array.dtype == np.float32 else bits_of(array)
    sizes = [size for size in array.shape if size != 1]
    if part != "data" and array.size == math.prod(shape) and (len(sizes) <= 1 or sizes == [size for size in shape if size != 1]):
        return array.reshape(shape)
    return array


def _describe(title: str, failure: Mapping[str, Any], notes: Sequence[str]) -> str:
    found = failure.get("found") or {}
    mistakes = found.get("mistakes", [])
    return "\n".join(
        [
            f"{title}: {found.get('message', failure['message'])}",
            *(f"{'or' if i else 'looks like'}: {each}" for i, each in enumerate(mistakes)),
            *(f"seen: {each}" for each in found.get("observations", [])),
            f"input, after {failure['shrinks']} steps of shrinking: {found.get('text', failure['counterexample'])}",
            *found.get("explanation", []),
            *(f"note: {each}" for each in notes),
            f"seed {failure['seed']}, path {failure['path']}",
        ]
    )
