"""A model in numpy of AMD Quark's AMDFP4, from observation."""

import numpy as np

from floats import E2M1, Float, amax, f32, narrow, pack4, pattern32, quiet

UE5M3 = Float(5, 3, 15, 0xFE, nan=0xFF)


@quiet
def amdfp4(pattern, per_row, sweep):
    x = f32(pattern)
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % 16)))
    b = padded.reshape(x.shape[0], -1, 16)
    raw = narrow(pattern, amax(b) / np.float32(6))
    # a NaN keeps its exponent, truncated to five bits, and no mantissa
    stored = np.where(np.isnan(raw), 0xF8, UE5M3.encode(np.abs(raw))).astype(np.uint8)
    scale = UE5M3.decode(stored)
    divisor = np.where(scale == 0, np.float32(2**-23), scale)[..., None]
    quotient = b / divisor
    finite = E2M1.encode(quotient)
    # NaN and infinities are kept; the packed bits are the lowest exponent bit and the highest mantissa bit
    codes = np.where(np.isinf(quotient), 6 | (np.signbit(quotient) * 8), np.where(finite == 8, 0, finite))
    codes = np.where(np.isnan(quotient), 7 | (np.signbit(quotient) * 8), codes).astype(np.uint8)
    values = E2M1.decode(codes) * scale[..., None]
    flat = lambda array: array.reshape(x.shape[0], -1)[:, : x.shape[1]]
    return {"codes": pack4(flat(codes)), "scale": stored, "values": pattern32(flat(values))}
