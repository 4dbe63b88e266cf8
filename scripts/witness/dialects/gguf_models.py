"""Models in numpy of gguf-py's MXFP4 and NVFP4, from observation."""

import numpy as np

from floats import E2M1, E4M3, amax, f32, log2, pattern32, power, quiet, unpack4


def halves(codes):
    """Byte j of a block holds elements j and j + half."""
    half = codes.shape[-1] // 2
    return codes[..., :half] | (codes[..., half:] << 4)


def unhalve(packed):
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def doubled(byte):
    """2^(byte - 128): half the scale, because the table holds doubled values. Bytes 0 and 1 give exact subnormals."""
    return power(byte.astype(np.int64) - 128)


def values(codes, scale):
    decoded = np.where(codes == 8, np.float32(0), E2M1.decode(codes) * np.float32(2))
    return scale[..., None] * decoded


TABLE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)


def by_errors(b, scale):
    """The first code with the smallest f32 error. This rule decides if products overflow or errors round to the same number."""
    return np.argmin(np.abs(scale[:, None, None] * TABLE - b[..., None]), axis=-1).astype(np.uint8)


@quiet
def mxfp4(pattern, per_row, sweep):
    if pattern.dtype == np.uint8:
        blocks = pattern.reshape(pattern.shape[0], -1, 17)
        return {"values": pattern32(values(unhalve(blocks[..., 1:]), doubled(blocks[..., 0])))}
    x = f32(pattern)
    b = x.reshape(x.shape[0], -1, 32)
    a = amax(b)
    exponent = np.floor(log2(a)) - 2 + 127
    byte = np.where(a > 0, np.where(np.isfinite(exponent), exponent, 0), 0).astype(np.int64).astype(np.uint8)
    scale = doubled(byte) * np.float32(2)
    with_ties = E2M1.encode(b / scale[..., None], ties="down")
    codes = np.where(with_ties == 8, 0, with_ties).astype(np.uint8)
    odd = ~np.isfinite(a) | (byte >= 253)
    codes[odd] = by_errors(b[odd], doubled(byte[odd]))
    packed = halves(codes)
    return {"codes": packed.reshape(x.shape[0], -1), "scale": byte, "values": pattern32(values(codes, doubled(byte)))}


def ue4m3(x):
    """Rounds to 3 mantissa bits, ties up; values from 2^8 - 8 on give the last code. A subnormal result is at most 7 * 2^-9."""
    x = np.clip(x, 0, np.float32(448)).astype(np.float32)
    bits = x.view(np.uint32).astype(np.int64)
    field = ((bits >> 23) & 255) - 120
    rounded = ((field << 3) | ((bits >> 20) & 7)) + ((bits >> 19) & 1)
    small = np.clip((x * np.float32(512) + np.float32(0.5)).astype(np.int64), 0, 7)
    return np.where(x <= 0, 0, np.where(field <= 0, small, np.where(rounded >= 0x78, 0x7E, rounded))).astype(np.uint8)


@quiet
def nvfp4(pattern, per_row, sweep):
    if pattern.dtype == np.uint8:
        blocks = pattern.reshape(pattern.shape[0], -1, 36)
        byte = blocks[..., :4]
        body = byte & 0x7F
        magnitude = np.where(body == 0x7F, np.float32(480), E4M3.decode(body))
        scale = np.where((byte == 0) | (byte == 0x7F), np.float32(0), magnitude * np.float32(0.5)).astype(np.float32)
        codes = unhalve(blocks[..., 4:].reshape(*blocks.shape[:-1], 4, 8))
        return {"values": pattern32(values(codes, scale))}
    x = f32(pattern)
    return {"scale": ue4m3(amax(x.reshape(x.shape[0], -1, 16)) / np.float32(6))}


@quiet
def written_nvfp4(pattern, per_row, sweep):
    x = f32(pattern)
    b = x.reshape(x.shape[0], -1, 16)
    byte = ue4m3(amax(b) / np.float32(6))
    scale = (E4M3.decode(byte) * np.float32(0.5)).astype(np.float32)
    codes = np.concatenate([by_errors(part, scale.reshape(-1)[i : i + 4096]) for i, part in chunks(b.reshape(-1, 16), 4096)]).reshape(b.shape)
    packed = halves(codes)
    return {"codes": packed.reshape(x.shape[0], -1), "scale": byte, "values": pattern32(TABLE[codes] * scale[..., None])}


def chunks(array, size):
    return ((i, array[i : i + size]) for i in range(0, len(array), size))
