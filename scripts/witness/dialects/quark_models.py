"""AMD Quark's AMDFP4 in numpy, as observed."""

import numpy as np

from floats import E2M1, Float, amax, f32, narrow, out, pack4, quiet

UE5M3 = Float(5, 3, 15, 0xFE, nan=0xFF)


@quiet
def amdfp4(pattern, per_row, sweep):
    x = f32(pattern)
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % 16)))
    b = padded.reshape(x.shape[0], -1, 16)
    raw = narrow(pattern, amax(b) / np.float32(6))
    stored = UE5M3.encode(np.abs(raw))
    scale = UE5M3.decode(stored)
    divisor = np.where(scale == 0, np.float32(2**-23), scale)[..., None]
    codes = E2M1.encode(b / divisor)
    values = E2M1.decode(codes) * divisor
    flat = lambda array: array.reshape(x.shape[0], -1)[:, : x.shape[1]]
    return {"codes": pack4(flat(codes)), "scale": stored, "values": out(pattern, flat(values))}
