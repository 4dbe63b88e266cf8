"""Small floats in numpy, as bit patterns. The models of the packages use them. Independent of torch."""

import numpy as np

U32 = np.uint32
NAN32 = U32(0x7FC00000)


def f32(pattern):
    """The values of f32 (u32) or bf16 (u16) patterns as float32."""
    wide = pattern.astype(U32) << U32(16) if pattern.dtype == np.uint16 else pattern
    return np.ascontiguousarray(wide).view(np.float32)


def pattern32(value):
    bits = np.ascontiguousarray(value, dtype=np.float32).view(U32)
    return np.where(np.isnan(value), NAN32, bits)


def bf16(value):
    """float32 rounded to bf16, ties to even, still float32."""
    value = np.asarray(value, dtype=np.float32)
    bits = np.ascontiguousarray(value).view(U32)
    rounded = (bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1))) & U32(0xFFFF0000)
    return np.where(np.isnan(value), value, rounded.view(np.float32))


def pattern16(value):
    return (pattern32(bf16(value)) >> U32(16)).astype(np.uint16)


class Float:
    """A float with `exponent` and `mantissa` bits. `largest` is its largest finite code, and `nan` the code of its NaN, if it has
    one.
    """

    def __init__(self, exponent, mantissa, bias, largest, nan=None, infinity=None):
        self.mantissa, self.bias, self.largest, self.nan, self.infinity = mantissa, bias, largest, nan, infinity
        self.sign = 1 << (exponent + mantissa)
        codes = np.arange(self.sign)
        field, fraction = codes >> mantissa, codes & ((1 << mantissa) - 1)
        self.values = np.ldexp((fraction + (field > 0) * (1 << mantissa)).astype(np.float64), np.maximum(field, 1) - bias - mantissa)
        self.max = self.values[largest]

    def encode(self, value, ties="even", saturate=True):
        """Codes, rounded to nearest. `ties`: even, away or down (toward zero). Larger values give the largest code, or infinity
        or NaN.
        """
        magnitude = np.abs(np.asarray(value, dtype=np.float64))
        nan = np.isnan(magnitude)
        magnitude = np.where(nan, 0, magnitude)
        _, exponent = np.frexp(np.minimum(magnitude, 1e300))
        step = np.ldexp(1.0, np.maximum(exponent - 1, 1 - self.bias) - self.mantissa)
        units = np.where(np.isinf(magnitude), 0, magnitude) / step
        whole = {"even": np.rint, "away": lambda u: np.floor(u + 0.5), "down": lambda u: np.ceil(u - 0.5)}[ties](units)
        rounded = np.where(np.isinf(magnitude), np.inf, whole * step)
        over = rounded > self.max
        code = np.searchsorted(self.values[: self.largest + 1], np.minimum(rounded, self.max)).astype(np.int64)
        beyond = self.infinity if self.infinity is not None else self.nan
        code = np.where(over, self.largest if saturate else beyond, code)
        if self.nan is not None:
            code = np.where(nan, self.nan, code)
        sign = np.signbit(np.asarray(value)) & True
        return (code | np.where(sign, self.sign, 0)).astype(np.uint8)

    def decode(self, code):
        code = np.asarray(code).astype(np.int64)
        magnitude = self.values[code & (self.sign - 1)]
        body = code & (self.sign - 1)
        if self.nan is not None:
            magnitude = np.where(body > self.largest, np.nan, magnitude)
        if self.infinity is not None:
            magnitude = np.where(body == self.infinity, np.inf, magnitude)
        value = np.where(code & self.sign, -magnitude, magnitude).astype(np.float32)
        if self.nan is None:
            return value
        payload = np.where(code & self.sign, U32(0xFFF00000), U32(0x7FF00000)).view(np.float32)
        return np.where(np.isnan(value), payload, value)


E4M3 = Float(4, 3, 7, 0x7E, nan=0x7F)
E5M2 = Float(5, 2, 15, 0x7B, nan=0x7F, infinity=0x7C)
E3M2 = Float(3, 2, 3, 0x1F)
E2M3 = Float(2, 3, 1, 0x1F)
E2M1 = Float(2, 1, 1, 0x7)


def pack4(codes):
    """Packs two codes in each byte, the even element in the low nibble."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)


def unpack4(packed):
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def blocks(x, size):
    return x.reshape(*x.shape[:-1], -1, size)


def first_nan(preferred, other, result):
    """`result`, where an operand that is NaN replaces it: `preferred`, or else `other`."""
    preferred, other = np.broadcast_to(preferred, result.shape), np.broadcast_to(other, result.shape)
    return np.where(np.isnan(preferred), preferred, np.where(np.isnan(other), other, result))


def amax(x, axis=-1):
    """The largest magnitude. NaN if any element is NaN."""
    return np.max(np.abs(x), axis=axis)


def is_wide(pattern):
    """Whether a case is f32."""
    return pattern.dtype == np.uint32


def narrow(pattern, value):
    """Rounds to the case's type; the value stays float32."""
    value = np.asarray(value, dtype=np.float32)
    return value if is_wide(pattern) else bf16(value)


def out(pattern, value):
    return pattern32(value) if is_wide(pattern) else pattern16(value)


def clip(value, low, high):
    """Clamps; NaN stays NaN."""
    return np.where(np.isnan(value), value, np.clip(value, np.float32(low), np.float32(high)))


def power(exponent):
    """2^exponent in f32, for integer exponents; NaN for NaN."""
    exponent = np.asarray(exponent, dtype=np.float64)
    return np.where(np.isnan(exponent), np.nan, np.ldexp(1.0, np.clip(np.nan_to_num(exponent), -400, 400).astype(np.int64))).astype(np.float32)


def log2(value):
    """log2 in f32: the exact logarithm, rounded."""
    return np.log2(np.asarray(value, dtype=np.float64)).astype(np.float32)


def tiles(x, rows, columns):
    """The tiles of rows x columns of a matrix padded with zeros: [m, n, rows, columns]."""
    height, width = -x.shape[0] % rows, -x.shape[1] % columns
    x = np.pad(x, ((0, height), (0, width)))
    return x.reshape(x.shape[0] // rows, rows, -1, columns).swapaxes(1, 2)


def untile(tiled, shape):
    """The matrix of these tiles, without the padding."""
    m, n, rows, columns = tiled.shape
    return tiled.swapaxes(1, 2).reshape(m * rows, n * columns)[: shape[0], : shape[1]]


def quiet(model):
    """Wraps a model: overflows and NaNs give no warnings."""

    def run(*arguments):
        with np.errstate(all="ignore"):
            return model(*arguments)

    return run
