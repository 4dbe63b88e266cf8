"""Answers in words and as plain data: how an element gets its bits, how dialects differ, and which dialect produced codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from ._arrays import Direction, array_of, code_bits, command_words, index_text, one_direction, wide_array
from ._process import SERVER
from .operations import QuantizedTensor, gemm_request

# numbers that JSON lacks, by the strings that stand for them
_NUMBERS = {text: float(text) for text in ("NaN", "Infinity", "-Infinity", "-0")}


def _plain(value: Any) -> Any:
    """Replaces the strings that stand for numbers by numbers."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Explanation:
    """An explanation of how one element gets its bits. `print` shows it step by step."""

    steps: Mapping[str, Any]
    """The result of the library's `explainQuantize` or `explainGemm`."""
    lines: Sequence[str] = field(repr=False)
    """The explanation in words."""

    def __str__(self) -> str:
        return "\n".join(self.lines)


def explain(
    x: ArrayLike,
    quantizer: str | None = None,
    at: Sequence[int] | None = None,
    *,
    usage: Direction | Sequence[Direction] = "rowwise",
    **options: Any,
) -> Explanation:
    """Explains how one element of a quantization becomes its code: amax, each step of the scale, rounding, tie, and error.

    `at` has an index for each dimension of `x`. `quantizer` and `options` are those of `quantize`, except `scales`; with a
    dialect the quantizer may be omitted. `usage` is one direction.

    Raises `LockstepError` for an index out of range, and as `quantize` does; `TypeError` for an index that is not made of
    integers.
    """
    chosen = {"at": index_text(at), "quantizer": quantizer, "usage": one_direction(usage), **options}
    result = SERVER.run(["explain", "in", *command_words(chosen)], {"in/x": wide_array("x", x)}).message["result"]
    return Explanation(_plain(result["explanation"]), result["text"])


def explain_gemm(
    x: ArrayLike | QuantizedTensor,
    w: ArrayLike | QuantizedTensor,
    at: tuple[int, int],
    *,
    c: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    beta: float = 1.0,
    plan: Mapping[str, Any] | None = None,
    **options: Any,
) -> Explanation:
    """Explains one element of a product: each step of the datapath, what the alignment cuts, chains, splits, scales and the cast.

    `at` is the row of `x` and the row of `w`. Operands and options are those of `gemm`; `products="0,5"` also prints all
    products of the steps that contain these k.

    Raises `LockstepError` for an index out of range, and as `gemm` does.
    """
    words, tensors, metadata = gemm_request(x, w, c=c, bias=bias, beta=beta, plan=plan, options=options)
    result = SERVER.run(["explain", "in", "--op=gemm", f"--at={index_text(at)}", *words], tensors, metadata).message["result"]
    return Explanation(_plain(result["explanation"]), result["text"])


@dataclass(frozen=True)
class Difference:
    """The differences between two dialects on an array. It is true if there are any."""

    a: str
    b: str
    counts: Mapping[str, Mapping[str, int]]
    """For "scales", "codes" and "values": the number of "different" ones, and the total as "of"."""
    codes_of_equal_scales: int
    """The number of codes that differ although their scales are equal."""
    errors: Mapping[str, Mapping[str, float]]
    """For "a" and "b": the largest error, "max", and the signal-to-noise ratio in dB, "sqnr"."""
    settings: Mapping[str, Mapping[str, Any]]
    """For "a" and "b": the quantizer, its format, tile, scale rule and element scaling."""
    examples: Sequence[Mapping[str, Any]]
    """The first differences of each kind, each with "words"."""

    def __bool__(self) -> bool:
        return any(each["different"] > 0 for each in self.counts.values())

    def __str__(self) -> str:
        counted = ", ".join(f"{each['different']} of {each['of']} {name}" for name, each in self.counts.items())
        return "\n".join([f"{self.a} and {self.b}: {counted} differ", *(each["words"] for each in self.examples)])


def diff(
    x: ArrayLike,
    a: str,
    b: str,
    *,
    quantizer: str | None = None,
    format: str | None = None,
    tile: str | None = None,
    examples: int = 2,
) -> Difference:
    """Compares two dialects on an array: scales, codes, values, and errors. `lockstep dialects` lists dialects.

    `quantizer`, `format` and `tile` choose if the dialects have several; the default is the first that both have. `examples`
    is the number of explained differences of each kind.

    Raises `LockstepError` for an unknown dialect, and for dialects without a common quantizer.
    """
    chosen = {"quantizer": quantizer, "format": format, "tile": tile, "examples": str(examples)}
    frame = SERVER.run(["diff", a, b, "in", *command_words(chosen)], {"in/x": wide_array("x", x)})
    (only,) = _plain(frame.message["result"]["tensors"])
    return Difference(
        a,
        b,
        {name: only[name] for name in ("scales", "codes", "values")},
        only["codesOfEqualScales"],
        only["errors"],
        {"a": only["a"], "b": only["b"]},
        only["examples"],
    )


@dataclass(frozen=True)
class Identification:
    """What produced codes and scales, by exclusion. It is true if something explains every bit. `print` shows it in words."""

    dialects: Sequence[str]
    """The dialects that explain every bit. If there are several, they are equal on this array."""
    readings: Sequence[Mapping[str, Any]]
    """Every explanation: scale rule, roundings, packing and arrangement, with "words"."""
    excluded: Mapping[str, str]
    """The contradiction for each other dialect."""
    nearest: Mapping[str, Any] | None
    """The closest explanation, if none explains every bit."""
    words: str

    def __bool__(self) -> bool:
        return len(self.readings) > 0

    def __str__(self) -> str:
        return self.words


def identify(
    x: ArrayLike,
    codes: ArrayLike,
    scales: ArrayLike,
    *,
    tensor_scale: ArrayLike | None = None,
    quantizer: str | None = None,
) -> Identification:
    """Identifies the dialect, scale rule, rounding and layout that produced the codes and scales of `x`, by exclusion.

    `x` is finite. `codes` are unsigned integers or ml_dtypes types, with two 4-bit codes to a byte; `scales` are float32,
    bfloat16, float16, e8m0 or e4m3, the last two also as uint8, in any arrangement. `tensor_scale` is the scale or the amax of
    the tensor, one float32; for row-scaled NVFP4 it is the amaxes of the rows.

    Raises `LockstepError` for an `x` with NaN or infinities, and for codes and scales whose shape does not fit `x`.
    """
    tensors = {"in/x": wide_array("x", x), "out/codes": code_bits("codes", codes), "out/scales": array_of(scales)}
    words = ["--tensor=x", "--codes=codes", "--scales=scales"]
    if tensor_scale is not None:
        tensors["out/whole"] = wide_array("tensor_scale", tensor_scale).reshape(-1)
        words.append("--tensor-scale=whole")
    result = _plain(SERVER.run(["identify", "in", "out", *words, *command_words({"quantizer": quantizer})], tensors).message["result"])
    excluded = {each["dialect"]: each["because"] for each in result["excluded"]}
    return Identification(result["dialects"], result["readings"], excluded, result.get("nearest"), result["words"])
