"""Models in numpy of torchao's quantizers, from observation: each step, its order and its type."""

import numpy as np

from floats import E2M1, E2M3, E3M2, E4M3, E5M2, U32, amax, blocks, f32, first_nan, narrow, out, pack4, pattern32, unpack4

ELEMENTS = {"e4m3": (E4M3, 8, 3), "e5m2": (E5M2, 15, 2), "e2m3": (E2M3, 2, 3), "e3m2": (E3M2, 4, 2), "e2m1": (E2M1, 2, 1)}
F32_MIN = np.float32(2.0**-126)


def scale_of(byte):
    """2^(byte - 127) in f32, NaN for 255."""
    value = np.ldexp(np.float32(1), byte.astype(np.int32) - 127).astype(np.float32)
    return np.where(byte == 255, np.float32(np.nan), value)


def log2_ceil(descale):
    """ceil of log2, where log2 is first rounded to f32."""
    with np.errstate(all="ignore"):
        return np.ceil(np.log2(descale.astype(np.float64)).astype(np.float32))


def rceil(a, largest):
    descale = a / np.float32(largest)
    biased = np.clip(log2_ceil(descale), -127, 127) + 127
    byte = np.where(np.isnan(descale), 255, np.where(np.isinf(descale), 254, np.nan_to_num(biased))).astype(np.int64)
    factor = np.where(byte == 255, np.float32(np.nan), np.where(byte == 254, np.float32(2.0**-127), np.where(byte == 0, np.float32(1), scale_of(254 - byte))))
    return byte, factor


def pow2_rules(a, rule, emax, mantissa):
    bits = a.view(U32).astype(np.int64)
    nan = np.isnan(a)
    if rule == "even":
        bits = (bits + (1 << (23 - mantissa - 1))) & 0x1FF800000
        bits &= 0xFFFFFFFF
    exponent = ((bits >> 23) & 255) - 127
    if rule == "ceil":
        exponent = exponent + ((bits & 0x7FFFFF) > 0)
    byte = np.clip(exponent - emax, -127, 128) + 127
    byte = np.where(nan, 255, byte)
    scale = (byte.astype(U32) << U32(23)).view(np.float32)
    scale = np.where(np.isnan(scale), scale, np.maximum(scale, F32_MIN))
    return byte, scale


def mx_model(elements, rule):
    layout, emax, mantissa = ELEMENTS[elements]

    def model(pattern, per_row, sweep):
        with np.errstate(all="ignore"):
            x = blocks(f32(pattern), 32)
            a = amax(x)
            if rule == "rceil":
                byte, factor = rceil(a, layout.max)
                scaled = first_nan(factor[..., None], x, x * factor[..., None])
            else:
                byte, scale = pow2_rules(a, rule, emax, mantissa)
                scaled = x / scale[..., None]
            saturate = True
            if layout in (E4M3, E5M2) or rule == "rceil":
                scaled = np.where(np.isnan(scaled), scaled, np.clip(scaled, np.float32(-layout.max), np.float32(layout.max)))
            codes = layout.encode(scaled, saturate=saturate)
            if layout in (E2M1, E2M3, E3M2):
                codes = sub_byte_nan(layout, codes, scaled)
            decoded = layout.decode(codes)
            values = narrow(pattern, decoded * narrow(pattern, scale_of(byte)[..., None]))
            codes = codes.reshape(pattern.shape)
            return {"codes": pack4(codes) if elements == "e2m1" else codes, "scale": byte.astype(np.uint8), "values": out(pattern, values).reshape(pattern.shape)}

    return model


def sub_byte_nan(layout, codes, scaled):
    """The code of a NaN. Comparisons with NaN are false, so it is treated as a normal number: shifted and truncated to a byte."""
    bits = scaled.view(U32)
    nan = np.isnan(scaled)
    shift = 23 - layout.mantissa
    magnitude = (bits & U32(0x7FFFFFFF)).astype(np.int64)
    moved = magnitude + ((layout.bias - 127) << 23) + ((1 << (shift - 1)) - 1) + ((magnitude >> shift) & 1)
    low = (moved >> shift) & 0xFF
    sign = np.where(bits >> U32(31), layout.sign, 0)
    return np.where(nan, (low | sign) & 0xFF, codes).astype(np.uint8)


def nvfp4_model(two_level):
    def model(pattern, per_row, sweep):
        with np.errstate(all="ignore"):
            x = f32(pattern)
            b = blocks(x, 16)
            a = amax(b)
            scale = a / np.float32(6)
            results = {}
            if two_level:
                whole = amax(x, -1)[:, None] if per_row else amax(x.reshape(-1)).reshape(1, 1)
                tensor = (whole / np.float32(2688)).astype(np.float32)
                results["per_tensor_scale"] = pattern32(tensor)
                scale = np.where((tensor == 0) & (scale == 0), -np.float32(np.nan), scale / tensor)
            clamped = np.where(np.isnan(scale), scale, np.clip(scale, np.float32(2.0**-6), np.float32(448)))
            codes8 = E4M3.encode(clamped)
            s8 = E4M3.decode(codes8)
            factor = ((np.float32(1) / tensor) / s8 if two_level else np.float32(1) / s8).astype(np.float32)
            scaled = first_nan(factor[..., None], b, b * factor[..., None])
            scaled = np.where(np.isnan(scaled), scaled, np.clip(scaled, np.float32(-6), np.float32(6)))
            codes = sub_byte_nan(E2M1, E2M1.encode(scaled), scaled)
            total = (tensor * s8 if two_level else s8).astype(np.float32)
            packed = pack_wrapping(codes.reshape(pattern.shape))
            values = E2M1.decode(unpack4(packed).reshape(b.shape)) * total[..., None]
            return {**results, "codes": packed, "scale": codes8, "values": out(pattern, values).reshape(pattern.shape)}

    return model


def pack_wrapping(codes):
    return (codes[..., 0::2] | (codes[..., 1::2].astype(np.int64) << 4)).astype(np.uint8)


def fp8_model(rows):
    def model(pattern, per_row, sweep):
        with np.errstate(all="ignore"):
            x = f32(pattern)
            a = amax(x)[:, None] if rows or per_row else amax(x.reshape(-1)).reshape(1, 1)
            scale = narrow(pattern, a / np.float32(448))
            scaled = x / scale
            scaled = np.where(np.isnan(scaled), scaled, np.clip(scaled, np.float32(-448), np.float32(448)))
            codes = E4M3.encode(scaled)
            values = E4M3.decode(codes) * scale
            return {"codes": codes, "scale": pattern32(scale), "values": out(pattern, values)}

    return model
