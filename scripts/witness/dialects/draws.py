"""The inputs of the recordings of packages: bit patterns computed only from integers, so that a replay draws the same ones.

conformance/tests/harness/dialects/draws.ts draws the same inputs: change both files together. Every case is drawn as f32 bit
patterns. The bf16 case is their upper halves. If a case is drawn for bf16, the lower halves are zero.
"""

import numpy as np

WORD = np.uint64(0xFFFFFFFF)
GOLDEN = np.uint32(0x9E3779B9)
SPREAD = np.uint32(0x85EBCA6B)

# the significands (23 bits) of the thresholds of scale rules
SIGNIFICANDS = [0x000000, 0x400000, 0x600000, 0x700000, 0x780000]
STEPS = [-2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 21, 22, 23, 24, 32, 48, 64]
AMAXES = 0x7F80
NAN, INFINITY = 0x7FC00000, 0x7F800000
SIGN = 0x80000000


def words(seed, count):
    """`count` random words: murmur3's finalizer of seed + i * 0x9e3779b9, for i from 0."""
    x = (np.uint64(seed) + np.arange(count, dtype=np.uint64) * np.uint64(GOLDEN)) & WORD
    x = ((x ^ (x >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & WORD
    x = ((x ^ (x >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & WORD
    return (x ^ (x >> np.uint64(16))).astype(np.uint32)


def below(amax, word, wide):
    """Patterns no larger than `amax`, in some binades below it: ties of 1 to 3 bits, their neighbours, zeros, and random ones."""
    near = (word >> 4) & 31
    binades = np.where(near < 16, near & 3, np.where(near < 28, near & 7, near - 10))
    exponent = np.maximum((amax >> 23).astype(np.int64) - binades, 0).astype(np.uint32)
    kind, bits, ulp = word & 15, word >> 9, np.uint32(1 if wide else 1 << 16)
    three, two, one = ((bits & 7) << 4) | 8, ((bits & 3) << 5) | 16, ((bits & 1) << 6) | 32
    tie = np.where((kind <= 3) | (kind == 8) | (kind == 9), three, np.where(kind == 7, two, one)) << 16
    any_bits = (word * SPREAD) & np.uint32(0x7FFFFF if wide else 0x7F0000)
    fraction = np.where(kind >= 12, any_bits, np.where((kind == 8) | (kind == 10), tie + ulp, tie))
    fraction = np.where((kind == 9) | (kind == 11), tie - ulp, fraction)
    pattern = np.where(kind == 0, 0, (exponent << 23) | fraction)
    return np.minimum(pattern, amax) | (word & np.uint32(SIGN))


def led(amaxes, columns, seed, wide):
    """One row for each of `amaxes`: the first element is the amax, and the others are no larger."""
    amax = np.repeat(amaxes.astype(np.uint32), columns)
    word = words(seed, amax.size)
    first = np.arange(amax.size) % columns == 0
    return np.where(first, amax | (word & np.uint32(SIGN)), below(amax, word, wide)).astype(np.uint32)


def step_amaxes():
    """Every exponent with the significands above, and their neighbours a few ulps away. All are finite."""
    rows = [(e << 23) + s + step for e in range(255) for s in SIGNIFICANDS for step in STEPS]
    return np.array([min(max(row, 0), 0x7F7FFFFF) for row in rows], dtype=np.uint32)


def bell(word, wide):
    """The centred sum of the four bytes of a word, divided by 128: nearly normal. 13 random low bits are added unless it is zero.
    """
    sums = sum(((word >> np.uint32(shift)) & np.uint32(0xFF)).astype(np.int32) for shift in (0, 8, 16, 24)) - 510
    pattern = (sums.astype(np.float32) / np.float32(128)).view(np.uint32)
    return np.where(sums == 0, pattern, pattern | ((word * SPREAD) >> np.uint32(19))).astype(np.uint32)


def outliers(word, wide):
    """As bell, but one element in 64 is about 5 to 12 binades larger."""
    pattern = bell(word, wide)
    large = (((word * GOLDEN) >> np.uint32(26)) == 0) & ((pattern & 0x7FFFFFFF) != 0)
    return np.where(large, pattern + ((5 + (word & 7)) << np.uint32(23)), pattern).astype(np.uint32)


def wide_values(word, wide):
    """Random signs and significands in 32 binades around 1."""
    binade = (word >> np.uint32(8)) & np.uint32(31)
    return ((word & np.uint32(SIGN)) | ((binade + 111) << np.uint32(23)) | ((word * SPREAD) & np.uint32(0x7FFFFF))).astype(np.uint32)


def zeros(word, wide):
    """Runs of 16: +0, -0, zeros of both signs, the smallest subnormal among zeros, ordinary values."""
    run = words(77, word.size // 16)[np.arange(word.size) // 16] % np.uint32(5)
    sign = word & np.uint32(SIGN)
    least = np.uint32(0x00010000)
    lone = np.where((word & 15) == 0, sign | least, sign)
    out = np.where(run == 0, 0, np.where(run == 1, SIGN, np.where(run == 2, sign, np.where(run == 3, lone, bell(word, wide)))))
    return out.astype(np.uint32)


def zero(word, wide):
    """Zeros of both signs."""
    return word & np.uint32(SIGN)


def tiny(word, wide):
    """Subnormals, and normal numbers up to 2^-120."""
    magnitude = (word & np.uint32(0x00FFFFFF)) + (((word >> np.uint32(24)) & np.uint32(3)) << np.uint32(23))
    return ((word & np.uint32(SIGN)) | magnitude).astype(np.uint32)


def huge(word, wide):
    """Values in the 16 binades below 2^128; one in 256 is the largest number."""
    exponent = np.uint32(239) + ((word >> np.uint32(8)) & np.uint32(15))
    pattern = (exponent << np.uint32(23)) | ((word * SPREAD) & np.uint32(0x7FFFFF))
    pattern = np.where((word & 0xFF) == 0, 0x7F7FFFFF, pattern)
    return ((word & np.uint32(SIGN)) | pattern).astype(np.uint32)


def salted(pick):
    """As bell, but one element in 256 is `pick` of the word."""

    def draw(word, wide):
        chosen = ((word * GOLDEN) >> np.uint32(24)) == 0
        return np.where(chosen, pick(word), bell(word, wide)).astype(np.uint32)

    return draw


VALUES = {
    "normal": (101, bell),
    "outliers": (102, outliers),
    "wide": (103, wide_values),
    "zeros": (104, zeros),
    "zero": (105, zero),
    "tiny": (106, tiny),
    "huge": (107, huge),
    "nan": (108, salted(lambda word: (word & np.uint32(SIGN)) | np.uint32(NAN))),
    "infinity": (109, salted(lambda word: (word & np.uint32(SIGN)) | np.uint32(INFINITY))),
}
SWEEPS = ["amax", "steps", "window"]


def draw(case, dtype, shape):
    """The u32 patterns of f32, the u16 patterns of bf16, or the bytes of a stored tensor. `amax`, `steps` and `window` have one
    row for each amax.
    """
    wide = dtype == "f32"
    if case == "amax":
        pattern = led(np.arange(AMAXES, dtype=np.uint32) << 16, shape[-1], 1, wide)
    elif case == "steps":
        pattern = led(step_amaxes(), shape[-1], 2, wide)
    elif case == "bytes":
        return (words(110, int(np.prod(shape))) & 0xFF).astype(np.uint8).reshape(shape)
    elif case == "window":
        pattern = led((np.arange(0x4400 - 0x3400, dtype=np.uint32) + 0x3400) << 16, shape[-1], 3, wide)
    else:
        seed, kind = VALUES["normal" if case == "ragged" else case]
        pattern = kind(words(seed, int(np.prod(shape))), wide)
    if not wide:
        pattern = (pattern >> 16).astype(np.uint16)
    return pattern.reshape(shape)


def rows(case):
    """The number of amaxes of a sweep."""
    return {"amax": AMAXES, "steps": 255 * len(SIGNIFICANDS) * len(STEPS), "window": 0x1000}[case]
