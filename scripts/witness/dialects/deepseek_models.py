"""Models in numpy of block FP8 in DeepGEMM's torch functions and transformers' converter, and of gpt-oss's MXFP4 in transformers.
"""

import numpy as np

from floats import E2M1, E4M3, amax, clip, f32, log2, out, pack4, pattern16, pattern32, power, quiet, tiles, unpack4, untile

LEAST = np.float32(1e-4)


def rounded_up(scale):
    """The smallest power of two that is at least the scale, from 2^-126 to 2^127. NaN gives 2^127."""
    bits = pattern32(scale).astype(np.int64)
    exponent = ((bits >> 23) & 255) + ((bits & 0x7FFFFF) > 0)
    return power(np.clip(exponent, 1, 254) - 127)


def deepgemm(rows, columns, swept, ue8m0):
    @quiet
    def model(pattern, per_row, sweep):
        x = f32(pattern)
        t = tiles(x, 1, swept) if sweep else tiles(x, rows, columns)
        a = amax(amax(t))
        scale = np.where(np.isnan(a), a, np.maximum(a, LEAST)) / np.float32(448)
        if ue8m0:
            scale = rounded_up(scale)
        codes = E4M3.encode(t * (np.float32(1) / scale)[..., None, None])
        return {"codes": untile(codes, x.shape), "sf": pattern32(scale)}

    return model


@quiet
def deepgemm_fp4(pattern, per_row, sweep):
    x = f32(pattern)
    t = tiles(x, 1, 32)
    a = amax(amax(t))
    scale = rounded_up(np.where(np.isnan(a), a, np.maximum(a, LEAST)) / np.float32(6))
    scaled = t * (np.float32(1) / scale)[..., None, None]
    magnitude = np.where(np.isnan(scaled), 0, E2M1.encode(np.abs(scaled), ties="down"))
    codes = (magnitude | np.where((scaled < 0) & (magnitude > 0), 8, 0)).astype(np.uint8)
    values = pattern32(E2M1.decode(codes) * scale[..., None, None])
    return {"codes": pack4(untile(codes, x.shape)), "sf": pattern32(scale), "values": untile(values, x.shape)}


@quiet
def gptoss(pattern, per_row, sweep):
    blocks = pattern.reshape(pattern.shape[0], -1, 17)
    codes = unpack4(blocks[..., 1:])
    values = np.ldexp(E2M1.decode(codes).astype(np.float64), blocks[..., 0, None].astype(np.int64) - 127)
    return {"values": pattern16(values.astype(np.float32))}


def transformers(scale_fmt):
    @quiet
    def model(pattern, per_row, sweep):
        x = f32(pattern)
        t = tiles(x, 1, 32) if sweep else tiles(x, 128, 128)
        a = amax(amax(t))
        positive = a > 0
        forward = np.where(positive, (np.float32(1) / np.where(positive, a, np.float32(1))) * np.float32(448), np.float32(1)).astype(np.float32)
        inverse = np.float32(1) / forward
        if scale_fmt == "ue8m0":
            exponent = np.ceil(log2(np.where(np.isnan(inverse), inverse, np.maximum(inverse, np.float32(2.0**-126)))))
            byte = np.where(np.isnan(exponent), 255, np.clip(np.nan_to_num(exponent, nan=0, posinf=999) + 127, 0, 255)).astype(np.int64)
            stored, inverse = byte, np.where(byte == 255, np.float32(np.nan), power(byte - 127))
            forward = np.float32(1) / inverse
        else:
            stored = pattern32(inverse)
        codes = E4M3.encode(clip(t * forward[..., None, None], -448, 448))
        values = E4M3.decode(codes) * inverse[..., None, None]
        return {"codes": untile(codes, x.shape), "weight_scale_inv": stored, "values": out(pattern, untile(values, x.shape))}

    return model
