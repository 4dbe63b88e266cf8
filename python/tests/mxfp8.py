"""A quantizer to MXFP8 (e4m3, blocks of 32 along rows) in numpy, and copies of it with one mistake each."""

import ml_dtypes
import numpy as np


def scales_of(blocks):
    """The e8m0 codes of the smallest powers of two under which the largest elements fit into 448."""
    magnitudes = np.where(np.isnan(blocks), 0, np.abs(blocks))
    ratio = magnitudes.max(axis=-1, initial=0) * np.float32(1 / 448)
    field, fraction = ratio.view(np.uint32) >> 23, ratio.view(np.uint32) & 0x7FFFFF
    up = np.where(field == 0, fraction > 0x400000, fraction > 0)
    return np.minimum(field + up, 254).astype(np.uint8)


def codes_of(blocks, scales):
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.ldexp(blocks, 127 - scales.astype(np.int32)[..., None]).astype(np.float32)
        codes = np.clip(scaled, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return np.where(np.isnan(blocks), 0x7F, codes).astype(np.uint8)


def quantize(x, scales_of=scales_of, codes_of=codes_of):
    blocks = x.astype(np.float32).reshape(x.shape[0], -1, 32)
    scales = scales_of(blocks)
    return codes_of(blocks, scales).reshape(x.shape), scales


def floor_scales(x):
    """The scale of OCP MX: 2^(floor(log2 amax) - 8)."""

    def scales(blocks):
        magnitudes = np.where(np.isnan(blocks), 0, np.abs(blocks)).max(axis=-1, initial=0)
        field = (magnitudes.view(np.uint32) >> 23).astype(np.int32)
        return np.where(field == 255, 254, np.maximum(field - 8, 0)).astype(np.uint8)

    return quantize(x, scales_of=scales)


def truncated(x):
    """Elements rounded toward zero."""

    def toward_zero(blocks, scales):
        codes = codes_of(blocks, scales)
        values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        is_above = np.abs(np.ldexp(values, scales.astype(np.int32)[..., None] - 127)) > np.abs(blocks)
        return codes - is_above.astype(np.uint8)

    return quantize(x, codes_of=toward_zero)


def loses_sign_of_zero(x):
    return quantize(x, codes_of=lambda blocks, scales: codes_of(blocks + np.float32(0), scales))


def raises(x):
    raise RuntimeError("out of registers")


def wrong_shape(x):
    codes, scales = quantize(x)
    return codes.T, scales
