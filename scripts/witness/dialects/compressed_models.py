"""Models of compressed-tensors' quantizers in numpy, from observation. T is the type of the input, f32 or bf16."""

import numpy as np

from floats import E2M1, E2M3, E4M3, amax, bf16, clip, f32, is_wide, log2, narrow, out, pack4, pattern16, pattern32, power, quiet, tiles, untile


def pieces(name, x, sweep):
    if name in ("ct-fp8-tensor",):
        return x[None, None]
    if name in ("ct-fp8-channel", "ct-int8-channel"):
        return tiles(x, 1, x.shape[1])
    if name == "ct-fp8-block":
        return tiles(x, 1, 32) if sweep else tiles(x, 128, 128)
    return tiles(x, 1, {"ct-nvfp4": 16, "ct-int4-group": 32 if sweep else 128}.get(name, 32))


def plain(name, half, encode, decode):
    """amax / half in T; x / scale in T; + 0 in T; clamp; round. A scale of zero becomes T's epsilon."""

    @quiet
    def model(pattern, per_row, sweep):
        x = f32(pattern)
        t = tiles(x, 1, x.shape[1]) if per_row else pieces(name, x, sweep)
        a = amax(amax(t))
        scale = narrow(pattern, a / np.float32(half))
        scale = np.where(scale == 0, np.float32(2.0**-23 if is_wide(pattern) else 2.0**-7), scale)[..., None, None]
        scaled = narrow(pattern, narrow(pattern, t / scale) + np.float32(0))
        codes = encode(scaled)
        values = narrow(pattern, decode(codes) * scale)
        stored = scale[..., 0, 0]
        return {"codes": untile(codes, x.shape), "weight_scale": out(pattern, stored), "values": out(pattern, untile(values, x.shape))}

    return model


def fp8(name):
    return plain(name, 448, lambda v: E4M3.encode(clip(v, -448, 448)), E4M3.decode)


def integer(name, bits):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def encode(v):
        return np.where(np.isnan(v), 0, np.rint(clip(v, low, high))).astype(np.int64)

    inner = plain(name, (2**bits - 1) / 2, encode, lambda c: c.astype(np.float32))

    def model(pattern, per_row, sweep):
        results = inner(pattern, per_row, sweep)
        codes = results["codes"]
        if bits == 4:
            eight = (codes + 8).reshape(codes.shape[0], -1, 8)
            results["codes"] = (eight << (4 * np.arange(8))).sum(-1).astype(np.uint32)
        else:
            results["codes"] = codes & 0xFF
        return results

    return model


def fp4(pattern, v):
    """Rounds to nearest even by comparisons, then multiplies by the sign of v, which is +0 for zeros. NaN gives 0, or 8 in a bf16
    tensor.
    """
    codes = E2M1.encode(clip(v, -6, 6))
    codes = np.where(np.isnan(v), 0 if is_wide(pattern) else 8, codes)
    return np.where(v == 0, 0, codes).astype(np.uint8)


@quiet
def nvfp4(pattern, per_row, sweep):
    x = f32(pattern)
    whole = amax(x)[:, None] if per_row else amax(x.reshape(-1)).reshape(1, 1)
    whole = np.maximum(whole, np.float32(2.0**-126))
    tensor = narrow(pattern, narrow(pattern, np.float32(1) / whole) * np.float32(2688))
    tensor = np.where(np.isfinite(tensor), tensor, np.float32(1))
    b = x.reshape(x.shape[0], -1, 16)
    scale = narrow(pattern, amax(b) / np.float32(6))
    s8 = E4M3.encode(clip(tensor * scale, -448, 448))
    s8 = np.where(s8 == 0, E4M3.encode(np.float32(0.125)), s8)
    s = E4M3.decode(s8)
    total = (s / tensor)[..., None]
    codes = fp4(pattern, b / total)
    values = pattern16(E2M1.decode(codes) * total)
    return {"codes": pack4(codes.reshape(x.shape)), "weight_scale": s8, "weight_global_scale": pattern32(tensor), "values": values.reshape(x.shape)}


def mx(elements):
    layout, offset, mantissa = {"mxfp4": (E2M1, 2, 1), "mxfp6": (E2M3, 2, 3), "mxfp8": (E4M3, 8, 1)}[elements]

    @quiet
    def model(pattern, per_row, sweep):
        x = f32(pattern)
        b = x.reshape(x.shape[0], -1, 32)
        a = amax(b)
        bits = pattern32(a).astype(np.int64)
        rounded = (bits + (1 << (23 - mantissa - 1))) & 0xFF800000
        p = rounded.astype(np.uint32).view(np.float32)
        byte = 127 + np.floor(log2(p)) - offset
        byte = np.where(np.isnan(a), 0, np.rint(clip(byte, 0, 255)))
        scale = power(byte - 127)
        if not is_wide(pattern):
            scale = bf16(scale)
        scaled = narrow(pattern, b / scale[..., None])
        if elements == "mxfp8":
            scaled = narrow(pattern, scaled + np.float32(0))
            codes = E4M3.encode(clip(scaled, -448, 448))
        elif elements == "mxfp6":
            codes = np.where(np.isnan(scaled), 0x20, E2M3.encode(clip(scaled, -7.5, 7.5)))
        else:
            codes = fp4(pattern, scaled)
        stored = np.where(np.isfinite(scale), 127 + np.floor(log2(scale)), 127).astype(np.int64) & 0xFF
        decoded = bf16(power(stored - 127))
        values = pattern16(layout.decode(codes) * decoded[..., None])
        codes = codes.reshape(x.shape)
        return {"codes": packed(elements, codes), "weight_scale": stored, "values": values.reshape(x.shape)}

    return model


def packed(elements, codes):
    if elements == "mxfp4":
        return pack4(codes)
    if elements == "mxfp8":
        return codes
    word = (codes.reshape(codes.shape[0], -1, 4).astype(np.int64) << (6 * np.arange(4))).sum(-1)
    return ((word[..., None] >> (8 * np.arange(3))) & 0xFF).reshape(codes.shape[0], -1)


def model(name, arguments):
    if name.startswith("ct-mx"):
        return mx(name[3:])
    return {"ct-nvfp4": nvfp4, "ct-int8-channel": integer(name, 8), "ct-int4-group": integer(name, 4)}.get(name) or fp8(name)
