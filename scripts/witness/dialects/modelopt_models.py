"""Models in numpy of ModelOpt's quantizers, from observation. T is the type of the input, f32 or bf16."""

import numpy as np

from floats import E2M1, E4M3, amax, clip, f32, log2, narrow, out, pack4, pattern32, power, quiet, tiles, untile


def fp8(name):
    @quiet
    def model(pattern, per_row, sweep):
        x = f32(pattern)
        if name == "modelopt-fp8-block":
            t = tiles(x, 1, 32) if sweep else tiles(x, 128, 128)
        else:
            t = tiles(x, 1, x.shape[1]) if per_row else x[None, None]
        exact = amax(amax(t)) / np.float32(448)
        scale = exact if name == "modelopt-fp8" else narrow(pattern, exact)
        wide = scale[..., None, None]
        codes = E4M3.encode(narrow(pattern, t / wide))
        values = narrow(pattern, E4M3.decode(codes) * narrow(pattern, wide))
        key = "weight_scale" if name == "modelopt-fp8" else "scale"
        return {"codes": untile(codes, x.shape), key: pattern32(scale) if name == "modelopt-fp8" else out(pattern, scale), "values": out(pattern, untile(values, x.shape))}

    return model


@quiet
def nvfp4(pattern, per_row, sweep):
    x = f32(pattern)
    b = tiles(x, 1, 16)
    whole = amax(x)[:, None] if per_row else amax(x.reshape(-1)).reshape(1, 1)
    second = whole / np.float32(2688)
    scale = amax(amax(b)) / (np.float32(6) * second)
    scale = np.where(scale == 0, np.float32(1), scale)
    s8 = E4M3.encode(clip(scale, 2.0**-9, 448))
    total = (E4M3.decode(s8) * second)[..., None, None]
    scaled = b / total
    codes = np.where(np.isnan(scaled), 7, E2M1.encode(np.abs(scaled))) + np.where(scaled < 0, 8, 0)
    decoded = np.where(codes == 8, np.float32(0), E2M1.decode(codes))
    padded = untile(codes, (x.shape[0], codes.shape[1] * 16)).astype(np.uint8)
    return {"codes": pack4(padded), "weight_scale": s8, "weight_scale_2": pattern32(second), "values": out(pattern, untile(decoded * total, x.shape))}


@quiet
def mxfp8(pattern, per_row, sweep):
    x = f32(pattern)
    b = tiles(x, 1, 32)
    descale = amax(amax(b)) / np.float32(448)
    exponent = np.where(descale > 0, np.ceil(log2(descale)), -127)
    byte = np.clip(exponent, -127, 127) + 127
    codes = E4M3.encode(clip(b * power(127 - byte)[..., None, None], -448, 448))
    values = E4M3.decode(codes) * power(byte - 127)[..., None, None]
    return {"codes": untile(codes, x.shape), "weight_scale": byte, "values": out(pattern, untile(values, x.shape))}


@quiet
def mxfp4(pattern, per_row, sweep):
    x = f32(pattern)
    b = tiles(x, 1, 32)
    descale = amax(amax(b)) / np.float32(6)
    raw = log2(descale)
    exponent = np.ceil(np.where(np.isnan(raw), raw, np.maximum(raw, np.float32(-127))))
    scale = np.where(np.isposinf(exponent), np.float32(np.inf), power(exponent))[..., None, None]
    scaled = b / scale
    magnitude = E2M1.encode(np.abs(scaled), ties="down")
    magnitude = np.where(np.isnan(scaled), 0, magnitude)
    sign = np.where(scaled > 0, 0, 8)
    codes = (magnitude | sign).astype(np.uint8)
    byte = np.where(np.isfinite(exponent), exponent + 127, 0).astype(np.int64)
    values = E2M1.decode(codes) * power(byte - 127)[..., None, None]
    return {"codes": pack4(untile(codes, x.shape)), "weight_scale": byte, "values": out(pattern, untile(values, x.shape))}


@quiet
def int8_row(pattern, per_row, sweep):
    x = f32(pattern)
    scale = narrow(pattern, amax(x)[:, None] / np.float32(127))
    scaled = narrow(pattern, x / scale)
    codes = np.where(np.isnan(scaled), 0, clip(np.rint(scaled), -128, 127)).astype(np.int64)
    values = narrow(pattern, codes.astype(np.float32) * scale)
    return {"codes": codes & 0xFF, "scale": out(pattern, scale), "values": out(pattern, values)}


@quiet
def int4_block(pattern, per_row, sweep):
    x = f32(pattern)
    x = np.pad(x, ((0, x.shape[0] % 2), (0, 0)))
    b = tiles(x, 1, 32 if sweep else 128)
    scale = amax(amax(b)) / np.float32(7)
    scaled = b / scale[..., None, None]
    codes = untile(np.where(np.isnan(scaled), 0, clip(np.rint(scaled), -8, 7)).astype(np.int64) & 15, x.shape)
    return {"codes": codes[::2] | codes[1::2] << 4, "weight_scale": pattern32(scale)}


MODELS = {"modelopt-int4-block": int4_block, "modelopt-nvfp4": nvfp4, "modelopt-mxfp8": mxfp8, "modelopt-mxfp4": mxfp4, "modelopt-int8-row": int8_row}


def model(name):
    return MODELS.get(name) or fp8(name)
