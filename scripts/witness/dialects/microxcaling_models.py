"""A model in numpy of microxcaling's MX quantizer, from observation. T is the type of the input, f32 or bf16."""

import numpy as np

from floats import amax, clip, f32, is_wide, log2, narrow, out, power, quiet, tiles, untile

# exponent bits, mantissa bits including the sign and the implicit bit, the largest exponent, the largest number
ELEMENTS = {"e4m3": (4, 5, 8, 448.0), "e5m2": (5, 4, 15, 57344.0), "e3m2": (3, 4, 4, 28.0), "e2m3": (2, 5, 2, 7.5), "e2m1": (2, 3, 2, 6.0), "int8": (0, 8, 0, 127 / 64)}


def rounded(v, how, pattern):
    sign, magnitude = np.sign(v), np.abs(v)
    if how == "floor":
        return sign * np.floor(magnitude)
    up = np.floor(narrow(pattern, magnitude + np.float32(0.5)))
    if how == "even":
        tie = np.mod(narrow(pattern, magnitude - np.float32(0.5)), 2) == 0
        up = up - tie
    return narrow(pattern, sign * up)


def model(elements, how):
    exponent_bits, bits, emax, largest = ELEMENTS[elements]

    @quiet
    def run(pattern, per_row, sweep):
        x = f32(pattern)
        t = tiles(x, 1, 32)
        a = amax(amax(t))
        shared = np.floor(narrow(pattern, log2(np.where(a == 0, np.float32(2.0**-126), a)))) - emax
        shared = np.where(shared > 127, np.nan, np.where(shared < -127, -127, shared))
        scale = power(shared)[..., None, None]
        v = narrow(pattern, t / scale)
        if exponent_bits:
            private = np.floor(narrow(pattern, log2(np.where(v == 0, np.float32(1), np.abs(v)))))
            private = np.where(np.isnan(private), private, np.maximum(private, 2 - 2 ** (exponent_bits - 1)))
            step = np.where(np.isposinf(private), np.float32(np.inf), power(private))
        else:
            step = np.float32(1)
        units = narrow(pattern, narrow(pattern, v / step) * np.float32(2.0 ** (bits - 2)))
        whole = rounded(units, how, pattern)
        q = narrow(pattern, narrow(pattern, whole / np.float32(2.0 ** (bits - 2))) * step)
        q = clip(q, -largest, largest)
        q = np.where(np.isinf(v), v, q)
        return {"values": out(pattern, untile(narrow(pattern, q * scale), x.shape))}

    return run
