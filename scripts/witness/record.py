"""Shared parts of the scripts that record witnesses: layouts, inputs and vector files. A witness is an independent
implementation, whose results the tests compare with ours.

Layouts are read from src/formats/scalar.ts, so no number is written twice.
"""

import json
import re
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "conformance" / "vectors"
SPECIALS = [0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x00400000, 0x00400001, 0x00200000, 0x7F7FFFFF]
NON_NUMBERS = [0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FC12345, 0x7FFFFFFF]
LINE = 160
SMALLEST_F32 = Fraction(2) ** -149


@dataclass(frozen=True)
class Layout:
    """A scalar format, with the fields of ScalarLayout in src/formats/scalar.ts."""

    exponentBits: int
    mantissaBits: int
    bias: int
    specials: str
    signed: bool = True
    subnormals: bool = True

    @property
    def bits(self):
        return self.signed + self.exponentBits + self.mantissaBits

    @property
    def codes(self):
        """The number of finite non-negative codes. They are the codes 0 to codes - 1."""
        below_sign = 1 << (self.exponentBits + self.mantissaBits)
        return below_sign - {"nanOnly": 1, "ieee": 1 << self.mantissaBits}.get(self.specials, 0)

    def value(self, code):
        """The exact value of a finite, non-negative code."""
        field, fraction = divmod(code, 1 << self.mantissaBits)
        if not (self.subnormals and field == 0):
            fraction += 1 << self.mantissaBits
        elif field == 0:
            field = 1
        return fraction * Fraction(2) ** (field - self.bias - self.mantissaBits)

    @property
    def max(self):
        return self.value(self.codes - 1)


def scalar_formats():
    """The rows of SCALAR_FORMATS in src/formats/scalar.ts, by name."""
    source = (ROOT / "src" / "formats" / "scalar.ts").read_text()
    rows = re.findall(r"^  (\w+): row\(([^)]*)\)", source, re.MULTILINE)
    if not rows:
        raise SystemExit("src/formats/scalar.ts: no rows of the form 'name: row(…)' found")
    return {name: Layout(*json.loads(f"[{values}]")) for name, values in rows}


class Xorshift32:
    """Marsaglia's xorshift32 with shifts 13, 17, 5."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self):
        x = self.state
        x ^= x << 13 & 0xFFFFFFFF
        x ^= x >> 17
        x ^= x << 5 & 0xFFFFFFFF
        self.state = x
        return x


def f32_bits(value):
    """The bit pattern of a value that f32 represents exactly; None for a value above the largest f32."""
    if value >= 2**128:
        return None
    rounded = np.float32(float(value))
    if Fraction(float(rounded)) != value:
        raise ValueError(f"{value} is not an f32")
    return int(rounded.view(np.uint32))


def sample_codes(layout, count, draw):
    """All codes if they are few; else the first and last ones, some at binade boundaries, and pseudo-random ones."""
    if layout.codes <= count:
        return range(layout.codes)
    chosen = {*range(4), *range(layout.codes - 4, layout.codes)}
    binade = 1 << layout.mantissaBits
    chosen |= {edge + step for edge in (binade, 2 * binade) for step in (-1, 0, 1)}
    while len(chosen) < count:
        code = draw() % layout.codes
        chosen |= {code} if draw() % 4 else {code - code % binade, max(code - code % binade - 1, 0)}
    return sorted(code for code in chosen if code < layout.codes)


def boundaries(layout, count, draw):
    """The values of codes, and the midpoint between each value and the next.

    After the largest value comes the one that a larger exponent range would have.
    """
    codes = sample_codes(layout, count, draw)
    pairs = [(layout.value(code), layout.value(code + 1)) for code in codes]
    return [low for low, _ in pairs] + [pairs[-1][1]], [(low + high) / 2 for low, high in pairs]


def edge_inputs(layout, codes=256, random=512, seed=0x9E3779B9):
    """f32 bit patterns, ascending and distinct, near the points where rounding to a layout changes its result.

    They are: the values of at most `codes` codes, and the midpoints above them, in both signs; the f32 neighbours of each
    midpoint, in alternating signs; zeros, f32 subnormals, infinities and NaNs of several payloads; some powers of two;
    `random` random patterns, half of them uniform, half with an exponent near the layout's range.
    """
    draw = Xorshift32(seed)
    values, midpoints = boundaries(layout, codes, draw)
    exact = [bits for bits in map(f32_bits, values + midpoints) if bits is not None]
    near = [bits + step for bits in map(f32_bits, midpoints) if bits for step in (-1, 1)]
    lowest = f32_bits(layout.value(1 if layout.subnormals else 0)) >> 23
    highest = f32_bits(layout.max) >> 23
    span = range(max(lowest - 4, 0), min(highest + 4, 255))
    powers = [exponent << 23 for exponent in sorted({*span[:: 1 + len(span) // 48], *range(0, 255, 16)})]
    patterns = {bits | sign for bits in exact + SPECIALS + NON_NUMBERS for sign in (0, 1 << 31)}
    patterns |= {bits | (at % 2) << 31 for at, bits in enumerate(near + powers)}
    for at in range(random):
        bits = draw()
        if at % 2:
            first = max(lowest - 2, 0)
            field = first + draw() % (min(highest + 2, 254) - first + 1)
            bits = bits & 0x807FFFFF | field << 23
        patterns.add(bits)
    return np.array(sorted(patterns), dtype=np.uint32)


def magnitude(inputs):
    return inputs & np.uint32(0x7FFFFFFF)


def is_nan(inputs):
    return magnitude(inputs) > 0x7F800000


def decode_codes(layout, count=640, seed=0x2545F491):
    """All codes of a layout; for a wide layout a pseudo-random sample, and the first and last codes of each sign."""
    if layout.bits <= 8:
        return np.arange(1 << layout.bits, dtype=np.uint32)
    draw, size = Xorshift32(seed), 1 << layout.bits
    ends = {0, 1, size // 2 - 1, size // 2, size // 2 + 1, size - 1, layout.codes - 1, layout.codes, layout.codes + 1}
    sample = ends | {draw() % size for _ in range(count)}
    return np.array(sorted(code for code in sample if code < size), dtype=np.uint32)


def hex_lines(words, digits):
    """Words as hexadecimal numbers of a fixed number of digits, joined and split into lines."""
    text = "".join(f"{int(word):0{digits}x}" for word in words)
    width = LINE // digits * digits
    return [text[at : at + width] for at in range(0, len(text), width)]


def code_digits(layout):
    return (layout.bits + 3) // 4


def encoding(layout, function, rounding, overflow, outputs, nan="class"):
    """One column of a table: the codes that a witness gave for the table's inputs."""
    head = {"function": function, "rounding": rounding, "overflow": overflow, "nan": nan}
    return {**head, "outputs": hex_lines(outputs, code_digits(layout))}


def decoding(layout, function, codes, values):
    """The f32 bits that a witness gave for codes."""
    return {"function": function, "codes": hex_lines(codes, code_digits(layout)), "values": hex_lines(values, 8)}


def difference(layout, bits, rounding, overflow, witness, lockstep, why):
    """An input for which the witness has another convention, with both results."""
    digits = code_digits(layout)
    return {
        "input": f"{bits:08x}",
        "rounding": rounding,
        "overflow": overflow,
        "witness": f"{int(witness):0{digits}x}",
        "lockstep": f"{lockstep:0{digits}x}",
        "why": why,
    }


def nan_difference(layout, cast, rounding, overflow):
    """The difference for a negative NaN, if the witness gives it another code than Lockstep. `cast` converts f32 bits to codes.
    """
    bits, below_sign = 0xFFC00000, 1 << layout.bits - layout.signed
    answer = int(cast(np.array([bits], dtype=np.uint32))[0])
    lockstep = below_sign if layout.specials == "fnuz" else below_sign - 1
    if answer == lockstep:
        return []
    return [difference(layout, bits, rounding, overflow, answer, lockstep, "NaN: another NaN there")]


def table(layout, inputs, encode, decode=None, differences=(), omitted=None, name=None, random=None):
    """All results of one witness for one layout. `name` is its name in src/formats/scalar.ts, if it has one there."""
    rows = {
        "format": name,
        "layout": None if name else asdict(layout),
        "omitted": omitted,
        "inputs": hex_lines(inputs, 8),
        "random": random,
        "encode": encode,
        "decode": decode,
        "differences": list(differences) or None,
    }
    return {key: value for key, value in rows.items() if value is not None}


def write(file, origin, tables):
    """Writes conformance/vectors/FILE and prints the size of its contents."""
    VECTORS.mkdir(parents=True, exist_ok=True)
    path = VECTORS / file
    path.write_text(json.dumps({"origin": origin, "tables": tables}, indent=0, ensure_ascii=False) + "\n")
    answers = sum(len("".join(row["inputs"])) // 8 * len(row["encode"]) for row in tables)
    print(f"{file}: {len(tables)} tables, {answers} encodings, {path.stat().st_size // 1024} KiB")
