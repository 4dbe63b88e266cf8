"""Answers in words and as plain data: how an element gets its bits, how dialects differ, and which one made codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from ._arrays import Direction, array_of, code_bits, command_words, index_text, one_direction, wide_array
from ._process import SERVER
from .operations import QuantizedTensor, gemm_request

# the numbers that JSON lacks, as results have them
_NUMBERS = {text: float(text) for text in ("NaN", "Infinity", "-Infinity", "-0")}


def _plain(value: Any) -> Any:
    """A result, in which the texts that stand for numbers are numbers."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Explanation:
    """How one element becomes its bits. `print` shows it step by step."""

    steps: Mapping[str, Any]
    """What the library's `explainQuantize` or `explainGemm` gives."""
    lines: Sequence[str] = field(repr=False)
    """The same in words."""

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

    `at` has an index for each dimension of `x`. `quantizer` and `options` are those of `quantize`, but `scales`; with a dialect the
    quantizer may be left out. `usage` is the copy, one.

    Raises `LockstepError` for an index outside of `x`, and as `quantize` does; `TypeError` for an index that is not of integers.
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

    `at` is the row of `x` and the row of `w`. Operands and options are those of `gemm`; `products="0,5"` puts all products of the
    steps with these k into the lines.

    Raises `LockstepError` for an index outside of the product, and as `gemm` does.
    """
    words, tensors, metadata = gemm_request(x, w, c=c, bias=bias, beta=beta, plan=plan, options=options)
    result = SERVER.run(["explain", "in", "--op=gemm", f"--at={index_text(at)}", *words], tensors, metadata).message["result"]
    return Explanation(_plain(result["explanation"]), result["text"])


@dataclass(frozen=True)
class Difference:
    """How two dialects differ on an array. It is true if they differ."""

    a: str
    b: str
    counts: Mapping[str, Mapping[str, int]]
    """For "scales", "codes" and "values": how many are "different", and "of" how many."""
    codes_of_equal_scales: int
    """Codes that differ although their scales are equal."""
    errors: Mapping[str, Mapping[str, float]]
    """For "a" and "b": the largest error, "max", and the signal to noise ratio in dB, "sqnr"."""
    settings: Mapping[str, Mapping[str, Any]]
    """For "a" and "b": the quantizer, its format, tile, scale rule and element scaling."""
    examples: Sequence[Mapping[str, Any]]
    """The first differences of each kind, with "words"."""

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
    """Says how two dialects differ on an array: in scales, codes, values, and errors. `lockstep dialects` lists dialects.

    `quantizer`, `format` and `tile` choose where the dialects have several; the default is the first that both have. `examples` is
    how many differences of each kind are explained.

    Raises `LockstepError` for a name that is no dialect, and for dialects that have no quantizer in common.
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
    """What made codes and scales, by exclusion. It is true if something explains every bit. `print` shows it in words."""

    dialects: Sequence[str]
    """The dialects that explain every bit. Several are the same on this array."""
    readings: Sequence[Mapping[str, Any]]
    """Every explanation: scale rule, roundings, packing and arrangement, with "words"."""
    excluded: Mapping[str, str]
    """Why each other dialect cannot have made them."""
    nearest: Mapping[str, Any] | None
    """Where nothing explains them all, what comes nearest."""
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
    """Finds which dialect, scale rule, rounding and layout made the codes and scales of `x`, by exclusion.

    `x` is finite. `codes` are unsigned integers or of ml_dtypes' types, two of 4 bits in a byte; `scales` are float32, bfloat16,
    float16, e8m0 or e4m3, the last two also as uint8, in any arrangement. `tensor_scale` is the scale or the amax of the whole, one
    float32, or of row-scaled NVFP4 the amaxes of the rows.

    Raises `LockstepError` for an `x` with NaN or infinities, and for codes and scales that cannot be those of `x`.
    """
    tensors = {"in/x": wide_array("x", x), "out/codes": code_bits("codes", codes), "out/scales": array_of(scales)}
    words = ["--tensor=x", "--codes=codes", "--scales=scales"]
    if tensor_scale is not None:
        tensors["out/whole"] = wide_array("tensor_scale", tensor_scale).reshape(-1)
        words.append("--tensor-scale=whole")
    result = _plain(SERVER.run(["identify", "in", "out", *words, *command_words({"quantizer": quantizer})], tensors).message["result"])
    excluded = {each["dialect"]: each["because"] for each in result["excluded"]}
    return Identification(result["dialects"], result["readings"], excluded, result.get("nearest"), result["words"])
