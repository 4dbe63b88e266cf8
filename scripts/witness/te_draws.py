"""The inputs of the recordings of TransformerEngine: bit patterns computed in integers only, so that a replay draws the same.

conformance/tests/harness/te/draws.ts draws the same inputs: change both files together.
"""

import numpy as np

WORD = np.uint64(0xFFFFFFFF)

# bit patterns of f32; the upper half of each is the bf16 pattern, and f16 has its own table
SPECIALS = [0x00000000, 0x80000000, 0x00010000, 0x807F0000, 0x00800000, 0x7F7F0000, 0xFF7F0000, 0x3F800000]
NON_NUMBERS = [0x7F800000, 0xFF800000, 0x7FC00000]
HALF_SPECIALS = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00]
HALF_NON_NUMBERS = [0x7C00, 0xFC00, 0x7E00]


def words(seed, count):
    """`count` random words: murmur3's finalizer of seed + i * 0x9e3779b9, for i from 0."""
    x = (np.uint64(seed) + np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B9)) & WORD
    for factor, shift in ((0x85EBCA6B, 13), (0xC2B2AE35, 16)):
        x ^= x >> np.uint64(16 if shift == 13 else 13)
        x = (x * np.uint64(factor)) & WORD
    return (x ^ (x >> np.uint64(16))).astype(np.uint32)


def f32_to_bf16(bits):
    """Rounds to nearest, ties to even. The input has no NaN."""
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)


def bell(word):
    """Nearly normal values of standard deviation 1.15, exact in f32 and f16: the centred sum of the four bytes
    of a word, divided by 128.
    """
    sums = sum(((word >> shift) & 0xFF).astype(np.int32) for shift in (0, 8, 16, 24)) - 510
    return sums.astype(np.float32) / np.float32(128)


def wide(word, dtype):
    """Values with random sign, significand and exponent, in sixteen binades around 1."""
    binade, sign = (word >> 8) & 15, word >> 31
    if dtype == "f16":
        return ((sign << 15) | ((binade + 7) << 10) | ((word >> 16) & 0x3FF)).astype(np.uint16)
    high = (sign << 15) | ((binade + 119) << 7) | ((word >> 16) & 0x7F)
    if dtype == "bf16":
        return high.astype(np.uint16)
    return (high << 16) | ((word * np.uint32(0x85EBCA6B)) >> 16)


def edges(word, dtype, rows, columns):
    """Any bit patterns: special and ordinary values mixed, and 128x128 tiles with values of one kind."""
    half, bf16 = dtype == "f16", dtype == "bf16"
    shift = 0 if half or not bf16 else 16
    table = np.array((HALF_SPECIALS + HALF_NON_NUMBERS) if half else (SPECIALS + NON_NUMBERS), dtype=np.uint32)
    table = (table >> shift).astype(np.uint32)
    ordinary = wide(word, dtype).astype(np.uint32)
    mixed = word * np.uint32(0x9E3779B1)
    pattern = mixed if dtype == "f32" else mixed >> 16
    kind = word & 7
    out = np.where(kind == 0, table[(word >> 3) % len(table)], np.where(kind <= 2, pattern, ordinary))
    row, column = np.divmod(np.arange(rows * columns), columns)
    tile = ((row >> 7) * 5 + (column >> 7) * 3) % 8
    sign = (word >> 31) << (15 if half or bf16 else 31)
    nan, largest = table[10], table[5]
    out = np.where(tile == 1, sign, out)
    out = np.where(tile == 2, nan, out)
    out = np.where(tile == 4, sign | (word & 3), out)
    out = np.where(tile == 5, sign | largest, out)
    out = np.where(tile == 7, np.where((row & 127) + (column & 127) == 0, table[8], ordinary), out)
    return out.astype(np.uint32 if dtype == "f32" else np.uint16)


def signs(word, rows, columns, dtype):
    """Rows with equally many +2^k and -2^k, so that their mean is 0 and their norm exact.

    The number of columns is a multiple of 16.
    """
    row, column = np.divmod(np.arange(rows * columns), columns)
    first = word[row * columns]
    mask = 1 + (first >> 4) % 15
    odd = np.array([bin(i).count("1") & 1 for i in range(16)], dtype=np.uint32)[column & 15 & mask]
    exponent = 125 + first % 5
    bits = ((odd << 31) | (exponent << 23)).astype(np.uint32)
    return bits if dtype == "f32" else (bits >> 16).astype(np.uint16)


def draw(kind, dtype, seed, shape):
    """The u16 or u32 bit patterns of a tensor of shape `shape`.

    Its kind is bell, small (a sixteenth of bell), wide, edges or signs.
    """
    count = int(np.prod(shape))
    columns = shape[-1]
    word = words(seed, count)
    if kind == "wide":
        return wide(word, dtype).reshape(shape)
    if kind == "edges":
        return edges(word, dtype, count // columns, columns).reshape(shape)
    if kind == "signs":
        return signs(word, count // columns, columns, dtype).reshape(shape)
    value = bell(word) * np.float32(1 / 16 if kind == "small" else 1)
    if dtype == "f16":
        return value.astype(np.float16).view(np.uint16).reshape(shape)
    bits = value.view(np.uint32)
    return (bits if dtype == "f32" else f32_to_bf16(bits)).reshape(shape)
