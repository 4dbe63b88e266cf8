"""A quantizer to MXFP8 (e4m3, blocks of 32) in numpy. Lockstep tests it by

lockstep conform --subject "python3 examples/subjects/mxfp8_numpy.py"
"""

import numpy as np
from frames import answer_cases


def quantize(_input, tensors, outputs):
    x = tensors["x"]
    per_block = (*x.shape[:-1], x.shape[-1] // 32)
    blocks = x.reshape(*per_block, 32)
    finite = np.where(np.isnan(blocks), 0, np.abs(blocks))
    amax = finite.max(axis=-1)
    # the smallest power of two by which the largest element fits into 448: its exponent, rounded up
    bits = (amax * np.float32(1 / 448)).view(np.uint32)
    field, fraction = bits >> 23, bits & 0x7FFFFF
    up = np.where(field == 0, fraction > 0x400000, fraction > 0)
    scales = np.minimum(field + up, 254).astype(np.uint8)
    codes = to_e4m3(np.ldexp(blocks, 127 - scales.astype(np.int32)[..., None]).astype(np.float32))
    return {
        "rowwise.data": codes.reshape(outputs["rowwise.data"]["shape"]),
        "rowwise.scaleInv": scales.reshape(outputs["rowwise.scaleInv"]["shape"]),
    }


def to_e4m3(x):
    """The codes of float32 values: ties to even; values beyond 448 become the largest code."""
    sign = (x.view(np.uint32) >> 24).astype(np.uint8) & 0x80
    a = np.minimum(np.where(np.isnan(x), 0, np.abs(x)), np.float32(448))
    exponent = np.maximum(np.where(a == 0, -6, np.frexp(a)[1] - 1), -6)
    steps = np.rint(np.ldexp(a, 3 - exponent)).astype(np.int32)
    code = ((exponent + 6) * 8 + steps).astype(np.uint8)
    return np.where(np.isnan(x), 0x7F, code | sign).astype(np.uint8)


SUPPORTED = {
    "spec.quantizer": ["mxfp8"],
    "spec.format": ["e4m3"],
    "spec.tile": ["1x32"],
    "spec.scaleRule": ["e8m0Up"],
    "spec.elementScaling": ["multiply"],
    "spec.stochastic": [False],
    "usage.rowwise": [True],
    "usage.columnwise": [False],
    "scaleLayout": ["logical"],
    "x.dtype": ["f32"],
    "noop": [None],
}

answer_cases("mxfp8 in numpy", {"quantize": (quantize, SUPPORTED)})
