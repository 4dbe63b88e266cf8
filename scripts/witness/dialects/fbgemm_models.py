"""Models in numpy of FBGEMM's FP8 quantizers on a CPU, from observation."""

import numpy as np

from floats import E4M3, amax, f32, narrow, pattern32, quiet, tiles, untile

LEAST = np.float32(1e-12)


def over(pattern, t, upper):
    """The factor 448 / amax: the amax is clamped in the input's type, and its reciprocal times 448 is rounded to f32; infinity
    becomes 1.
    """
    a = amax(amax(t))
    least = narrow(pattern, LEAST)
    a = np.where(np.isnan(a), a, np.maximum(a, least))
    if upper is not None:
        a = np.where(np.isnan(a), a, np.minimum(a, narrow(pattern, np.float32(upper))))
    factor = (np.float32(1) / a) * np.float32(448)
    return np.where(np.isposinf(factor), np.float32(1), factor)


def model(shape, upper):
    @quiet
    def run(pattern, per_row, sweep):
        x = f32(pattern)
        t = tiles(x, 1, x.shape[1]) if shape is None else tiles(x, 1, 32) if sweep else tiles(x, *shape)
        factor = over(pattern, t, upper)
        codes = E4M3.encode(t * factor[..., None, None])
        return {"codes": untile(codes, x.shape), "scale": pattern32(np.float32(1) / factor)}

    return run


def row(upper):
    return model(None, upper)


block = model((128, 128), None)
