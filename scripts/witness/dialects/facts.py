"""A description of each dialect. Its model computes the described steps and gives the package's bits in all recorded cases.

T is the type of the input (f32 or bf16). fl rounds to f32 and flT to T (each step of a bf16 expression is computed in f32 and
rounded to bf16). n/x of a number and a tensor is fl(fl(1/x)*n), as PyTorch divides. e4m3(x) rounds to nearest, ties to even;
values beyond 448 and infinities give 448, NaN gives NaN. bits(x) is the f32 pattern. log2 of f32 is the exact logarithm rounded
to f32.
"""

LOW_FIRST = "two codes in a byte, the even column in the low nibble"
RNE = "to nearest, ties to even"
PLAIN_MX = "E8M0 [rows, K/32], axis last, plain (not swizzled)"

TORCHAO_SCALE = {
    "floor": "byte = clamp(E - emax, -127, 128) + 127, E = exponent field of bits(amax) - 127; scale byte 0 for subnormal amax",
    "ceil": "as floor, with E + 1 where the 23 fraction bits are not all zero (a subnormal amax gives E = -126)",
    "even": "as floor, on bits(amax) + 2^(22 - m) with the fraction cut; m = mantissa bits of the element (e4m3 3, e5m2 2, e2m3 3, e3m2 2, e2m1 1)",
    "rceil": "d = fl(amax / max); byte = clamp(ceil(fl(log2(d))), -127, 127) + 127; 254 for infinite d, 255 for NaN",
}


def torchao_mx(elements, rule):
    fp8 = elements in ("e4m3", "e5m2")
    if rule == "rceil":
        codes = "v = fl(x * r), r = 2^(127 - byte), but r = 1 for byte 0; clamp(v, -max, max); cast"
    else:
        codes = "v = fl(x / s), s = max(2^(byte - 127), 2^-126); " + ("clamp(v, -max, max); cast" if fp8 else "cast saturates")
    return {
        "scale": TORCHAO_SCALE[rule] + ". amax and x are widened to f32 first; emax: e4m3 8, e5m2 15, e2m3 2, e3m2 4, e2m1 2",
        "codes": f"{codes} {RNE}",
        "layout": f"{PLAIN_MX}; " + (LOW_FIRST if elements == "e2m1" else "one code in a byte (FP6 in the low six bits)"),
        "dequantize": "flT(T(code) * flT(2^(byte - 127))), 2^-127 for byte 0 (the quantizer used 2^-126, or 1 for rceil)",
        "zero": "byte 0; codes keep the sign of zero",
        "nan": "amax NaN gives byte 255; the NaN element is the NaN code, others are " + ("NaN" if rule == "rceil" else "x / NaN-pattern scale: 0x7F800000 as a scale, so zero with x's sign") + ("" if fp8 else ". FP4 and FP6 have no NaN: its code is cut from the bits of the NaN and means nothing"),
        "infinity": ("byte 254" if rule == "rceil" else "byte 255 - emax") + "; infinity becomes the largest code, finite elements of the block zero",
        "ragged": "K must be a multiple of 32 (AssertionError)",
    }


def torchao_nvfp4(two_level):
    return {
        "scale": ("t = fl(amax(tensor) / 2688), f32; s8 = e4m3(clamp(fl(fl(amax16 / 6) / t), 2^-6, 448))" if two_level else "s8 = e4m3(clamp(fl(amax16 / 6), 2^-6, 448))") + "; x widened to f32 first, true divisions",
        "codes": ("r = fl(fl(1 / t) / s8)" if two_level else "r = fl(1 / s8)") + f"; v = clamp(fl(x * r), -6, 6); cast {RNE}",
        "layout": f"e4m3 [rows, K/16], plain unless asked (is_swizzled_scales); {LOW_FIRST}" + ("; per_tensor_scale f32 []: a multiplier" if two_level else ""),
        "dequantize": "flT(fl(code * fl(t * s8)))" if two_level else "flT(fl(code * s8))",
        "zero": "block: s8 = 2^-6 (0x08), codes keep the sign" + ("; an all-zero tensor gives t = 0 and NaN scales (0x7F), codes 0x4 or 0xC" if two_level else ""),
        "nan": "s8 NaN in its block" + (" and t NaN, so in all" if two_level else "") + "; codes mean nothing",
        "infinity": "t infinite: NaN scale in its block, s8 = 2^-6 elsewhere, values NaN" if two_level else "s8 = 448, infinity becomes 6",
        "ragged": "K must be a multiple of 16 (AssertionError)",
    }


def torchao_fp8(rows):
    return {
        "scale": "s = f32(flT(amax / 448)): the division is rounded to T, the scale kept as f32",
        "codes": "e4m3(clamp(fl(f32(x) / s), -448, 448))",
        "layout": "e4m3 [rows, K]; scale f32 " + ("[rows, 1]" if rows else "[1, 1]") + ", a multiplier",
        "dequantize": "flT(fl(code * s))",
        "zero": "s = 0: all codes NaN (0 / 0)", "nan": "s NaN, all codes NaN", "infinity": "s infinite: infinity gives NaN, others zero",
        "overflow": "a subnormal s rounds: codes may saturate at 448",
    }


CT_ZERO_POINT = "; the zero point +0 is added, so -0 becomes +0"


def ct(name):
    mx = {"ct-mxfp4": (2, 1), "ct-mxfp6": (2, 3), "ct-mxfp8": (8, 1)}
    if name in mx:
        offset, m = mx[name]
        return {
            "scale": f"p = pattern(amax in T) + half a unit of {m} mantissa bit(s), fraction cut (a power of two, or 0, or infinity); byte = clamp(127 + log2(p) - {offset}, 0, 255) (0 for p = 0)" + (": FP4's width for e4m3, so amax in [448 * 2^k, 512 * 2^k) takes 2^(k+1)" if name == "ct-mxfp8" else ""),
            "codes": "v = flT(x / 2^(byte - 127))" + (CT_ZERO_POINT + "; e4m3(clamp(v, -448, 448))" if name == "ct-mxfp8" else "; clamp; cast " + RNE + ("; -0 gives 0x20" if name == "ct-mxfp6" else "; -0 gives 0x0, a negative that rounds to zero 0x8")),
            "layout": ("weight e4m3 [N, K]" if name == "ct-mxfp8" else "weight_packed u8 [N, 3K/4]: four codes little-endian in three bytes" if name == "ct-mxfp6" else f"weight_packed u8 [N, K/2]: {LOW_FIRST}") + "; weight_scale U8 [N, K/32], plain",
            "dequantize": "bf16(code * bf16(2^(byte - 127))), always bf16",
            "zero": "byte 0", "nan": "byte 0 or 127, as the NaN's payload falls out of PyTorch's vector or scalar code: promise nothing; FP4's code of NaN is 0 (f32) or 8 (bf16), FP6's 0x20",
            "infinity": "scale 2^128 is infinite, its byte is written as 127: infinity gives " + ("NaN" if name == "ct-mxfp8" else "0 (f32) or 8 (bf16)" if name == "ct-mxfp4" else "0x20") + ", others zero",
            "ragged": "K must be a multiple of 32",
        }
    if name == "ct-nvfp4":
        return {
            "scale": "a = max(amax(tensor), 2^-126) in T; g = flT(flT(1 / a) * 2688), 1 where not finite, kept as f32; s8 = e4m3(clamp(fl(g * flT(amax16 / 6)), -448, 448)); a zero s8 becomes 0.125 (0x20)",
            "codes": f"v = fl(x / fl(s8 / g)); clamp(v, -6, 6); cast {RNE}; -0 gives 0x0, a negative that rounds to zero 0x8",
            "layout": f"weight_packed u8 [N, K/2]: {LOW_FIRST}; weight_scale e4m3 [N, K/16], plain; weight_global_scale f32 [1], a DIVISOR",
            "dequantize": "bf16(fl(code * fl(s8 / g))), always bf16",
            "zero": "zero block: s8 = 0.125; zero tensor: g = fl(2^126 * 2688), infinite, so 1", "nan": "g = 1, the block's s8 NaN, codes 0 (f32) or 8 (bf16)",
            "infinity": "g = 0: the block's scale NaN, other blocks 0.125, all values NaN", "ragged": "K must be a multiple of 16",
        }
    if name.startswith("ct-int"):
        eight = name == "ct-int8-channel"
        return {
            "scale": f"s = flT(amax / {127.5 if eight else 7.5}) in T (half of the range, not its largest code); 0 becomes T's epsilon (2^-23 or 2^-7)",
            "codes": "v = flT(flT(x / s) + 0); clamp(v, " + ("-128, 127" if eight else "-8, 7") + "); round half to even; so the largest of a row lands on 127.5 and is clamped" * eight,
            "layout": "weight int8 [N, K]; weight_scale T [N, 1]" if eight else "weight_packed int32 [N, K/8]: code + 8 in eight nibbles, low first; weight_scale T [N, K/128]",
            "dequantize": "flT(code * s)", "zero": "s = epsilon", "nan": "s NaN, codes 0", "infinity": "s infinite, codes 0, values NaN",
        }
    return {
        "scale": "s = flT(amax / 448) in T, stored in T; 0 becomes T's epsilon (2^-23 or 2^-7)",
        "codes": f"v = flT(x / s){CT_ZERO_POINT}; e4m3(clamp(v, -448, 448)): a bf16 input is rounded to bf16 before e4m3",
        "layout": {"ct-fp8-tensor": "weight e4m3 [N, K]; weight_scale T [1]", "ct-fp8-channel": "weight e4m3 [N, K]; weight_scale T [N, 1]", "ct-fp8-block": "weight e4m3 [N, K]; weight_scale T [ceil(N/128), ceil(K/128)], padded with zeros"}[name] + ", a multiplier",
        "dequantize": "flT(code * s)", "zero": "s = epsilon, codes 0x00", "nan": "s NaN, all codes NaN", "infinity": "s infinite: infinity gives NaN, others 0x00",
    }


def modelopt(name):
    if name.startswith("modelopt-fp8"):
        f32_scale = name == "modelopt-fp8"
        return {
            "scale": "s = fl(f32(amax) / 448), f32 []" if f32_scale else "s = flT(amax / 448) in T",
            "codes": "e4m3(flT(x / s)): rounded to T first, no clamp (PyTorch 2.15 casts beyond 448 and infinities to 448; before 2.12 they were NaN)",
            "layout": "e4m3 [N, K]; scale " + ("[], f32" if f32_scale else "[ceil(N/128), ceil(K/128)], T, padded with zeros" if "block" in name else "[], T"),
            "dequantize": "flT(code * flT(s))", "zero": "s = 0: all codes NaN", "nan": "s NaN, all codes NaN", "infinity": "s infinite: infinity gives NaN, others zero",
        }
    return {
        "modelopt-nvfp4": {
            "scale": "s2 = fl(f32(amax(tensor)) / 2688); q = fl(f32(amax16) / fl(6 * s2)), 0 becomes 1; s8 = e4m3(clamp(q, 2^-9, 448))",
            "codes": f"v = fl(f32(x) / fl(s8 * s2)); cast {RNE}; -0 gives 0x0, a negative that rounds to zero 0x8; beyond 6: 6",
            "layout": f"u8 [N, K/2]: {LOW_FIRST}; weight_scale e4m3 [N, K/16], plain; weight_scale_2 f32 [], a MULTIPLIER",
            "dequantize": "flT(fl(code * fl(s8 * s2))); code 0x8 reads as +0",
            "zero": "zero block: s8 = 1 (0x38); zero tensor: s2 = 0, s8 NaN, codes 7", "nan": "s2 NaN: all scales NaN, all codes 7", "infinity": "s2 infinite: the block's s8 NaN, others 1; finite elements 0, values NaN",
            "ragged": "K is padded to a multiple of 16; 200 columns raise RuntimeError in dequantize (the padded values do not fit the shape)",
        },
        "modelopt-mxfp8": {
            "scale": "d = fl(f32(amax) / 448); byte = clamp(ceil(fl(log2(d))), -127, 127) + 127; 0 where not d > 0",
            "codes": "e4m3(clamp(fl(x * 2^(127 - byte)), -448, 448)), 2^127 for byte 0",
            "layout": "e4m3 [N, K]; weight_scale U8 [N, ceil(K/32)], plain", "dequantize": "flT(fl(code * 2^(byte - 127)))",
            "zero": "byte 0; codes keep the sign", "nan": "byte 0, the NaN element NaN, others saturate by 2^127", "infinity": "byte 254, infinity 448", "ragged": "padded with zeros, codes cut back",
        },
        "modelopt-mxfp4": {
            "scale": "d = fl(f32(amax) / 6); e = ceil(max(fl(log2(d)), -127)); byte = e + 127",
            "codes": "v = fl(x / 2^e); to nearest, ties TOWARDS ZERO; +0, -0 and what is not > 0 have the sign bit: +0 gives 0x8; beyond 6: 6",
            "layout": f"u8 [N, K/2]: {LOW_FIRST}; weight_scale U8 [N*K/32, 1]", "dequantize": "flT(fl(code * 2^(byte - 127))), -0 for 0x8",
            "zero": "byte 0, codes 0x8", "nan": "byte 0, codes 0x8", "infinity": "byte 0 (the cast of infinity to u8), codes 0x0 or 0x8",
        },
        "modelopt-int4-block": {
            "scale": "s = fl(f32(amax) / 7), f32; before an export, a calibrated amax of 0 becomes 7, and one below 2^-126 becomes 2^-126",
            "codes": "clamp(rint(fl(f32(x) / s)), -8, 7), two's complement", "layout": "u8 [N/2, K]: two codes in a byte, the even ROW in the low nibble; scale f32 [N, K/128]",
            "dequantize": "not in the package",
            "zero": "s = 0, codes 0 (0 / 0 is NaN)", "nan": "s NaN, codes 0", "infinity": "s infinite, codes 0 (infinity / infinity is NaN)",
            "ragged": "K must be a multiple of the block (NotImplementedError), N even (AssertionError)",
        },
        "modelopt-int8-row": {
            "scale": "s = flT(amax / 127) in T", "codes": "clamp(rint(flT(x / s)), -128, 127)", "layout": "int8 [N, K]; scale T [N, 1]", "dequantize": "flT(code * s)",
            "zero": "s = 0, codes 0", "nan": "s NaN, codes 0", "infinity": "s infinite, codes 0, values NaN",
        },
    }[name]


def deepseek(kind, ue8m0):
    if kind == "transformers":
        step = "; ue8m0: byte of 2^ceil(fl(log2(max(fl(1 / f), 2^-126)))), stored as E8M0, f = fl(1 / 2^(byte - 127))" if ue8m0 else "; stored weight_scale_inv = fl(1 / f), f32"
        return {
            "scale": "f = fl(fl(1 / amax) * 448) in f32, 1 for a zero block" + step, "codes": "e4m3(clamp(fl(f32(x) * f), -448, 448))",
            "layout": "weight e4m3 [N, K]; weight_scale_inv [N/128, K/128], a MULTIPLIER in spite of its name; a shape that the block does not divide is left unquantized, silently",
            "dequantize": "flT(fl(code * scale)); the block is derived from the shapes", "zero": "scale 1", "nan": "scale NaN (E8M0 0xFF), codes NaN", "infinity": "f = 0, scale infinite (f32): infinity gives NaN, others 0" if not ue8m0 else "scale 0xFF: all codes NaN",
        }
    if kind == "fp4":
        return {
            "scale": "s = fl(max(amax, 1e-4) / 6), then the least power of two no less (by bits; exponent field clamped to 1..254), f32",
            "codes": "v = fl(x * fl(1 / s)); to nearest, ties TOWARDS ZERO; zeros have no sign", "layout": f"int8 [M, K/2]: {LOW_FIRST}; sf f32 [M, K/32] (or packed E8M0)",
            "dequantize": "fl(code * s), f32", "zero": "s = 2^-15 (1e-4 / 6 rounded up)", "nan": "s = 2^127, codes 0", "infinity": "s = 2^127, infinity 6", "ragged": "padded with zeros",
        }
    return {
        "scale": "s = fl(max(f32(amax), fl(1e-4)) / 448)" + ("; then the least power of two no less, by bits; exponent field clamped to 1..254" if ue8m0 else "") + ", f32, stored as it is",
        "codes": "e4m3(fl(f32(x) * fl(1 / s))): times the rounded reciprocal, not divided; no clamp before the cast",
        "layout": ("sf f32 [M, ceil(K/128)]" if kind == "token" else "sf f32 [ceil(N/128), ceil(K/128)]") + ", padded with zeros", "dequantize": "none given",
        "zero": "s of amax 1e-4; codes keep the sign", "nan": "s = 2^127: the NaN element NaN, others by 2^-127" if ue8m0 else "s NaN, all codes NaN",
        "infinity": "s = 2^127, infinity 448" if ue8m0 else "s infinite: infinity gives NaN (inf * 0), others zero",
    }


def gptoss():
    return {
        "scale": "not quantized here: transformers only reads it on a CPU", "codes": LOW_FIRST,
        "layout": "blocks U8 [E, N, K/32, 16], scales U8 [E, N, K/32]; the result is transposed to [E, K, N]",
        "dequantize": "ldexp(code, scale - 127), rounded to bf16: exact but for underflow; 255 is 2^128, so 0.5 and 1 with it are 2^127 and infinity and zero stays zero; code 0x8 is -0",
    }


def fbgemm(kind):
    return {
        "scale": "a = max(amax, 1e-12) in T (and min(a, ub) with an upper bound); f = fl(fl(1 / f32(a)) * 448), infinity becomes 1; the scale returned is fl(1 / f), f32",
        "codes": "e4m3(fl(f32(x) * f)), no clamp before the cast", "layout": "e4m3 [M, K]; scale f32 " + ("[M]" if kind == "row" else "[ceil(M/128), ceil(K/128)]") + ", a multiplier", "dequantize": "none on a CPU",
        "zero": "f = 448e12", "nan": "all NaN", "infinity": "f = 0: infinity gives NaN, others zero, the scale is infinite",
    }


def gguf(kind):
    if kind == "mxfp4":
        return {
            "scale": "byte = u8(floor(fl(log2(amax))) - 2 + 127), 0 for amax 0; wraps below 2 * 2^-127; log2 in f32 rounds amax = 2^k(1 - 2^-24) up to k for large |k|", "codes": "nearest of the 16 values, ties to the lower index: towards zero; -0 and what rounds to zero give 0x0; code 0x8 never",
            "layout": "17 bytes: byte, then 16 bytes; byte j holds elements j (low) and j + 16 (high)", "dequantize": "fl(2^(byte - 128) * doubled table): the table is {0,1,2,3,4,6,8,12} and its negatives",
            "zero": "byte 0, codes 0", "nan": "byte 0; codes are 0 where |x| is too large for f32 errors to differ", "infinity": "the cast of infinity to u8: 0",
        }
    if kind == "ggml-nvfp4":
        return {
            "scale": "as gguf-nvfp4", "codes": "the first of the 16 values with the least f32 error |value * scale - x|: ties towards zero, no 0x8; from some 2^33 scales on, errors of several values are equal, and the first has the code",
            "layout": "36 bytes for 64 elements: four scales, then 4 x 8 bytes; byte j of 8 holds elements j (low) and j + 8 (high)", "dequantize": "fl(0.5 * e4m3(scale) * doubled table)",
            "zero": "scale 0, codes 0",
        }
    return {
        "scale": "ue4m3(fl(amax / 6)): bits half UP at 3 mantissa bits, subnormals floor(fl(fl(512x) + 0.5)) up to 7 (never the least normal); from 248 on 0x7E, so 0x78 to 0x7D are never given", "codes": "not in gguf-py: NVFP4 is only read",
        "layout": "36 bytes for 64 elements: four scales, then 4 x 8 bytes; byte j of 8 holds elements j (low) and j + 8 (high)", "dequantize": "fl(0.5 * e4m3(scale without sign) * doubled table); scale bytes 0x00 and 0x7F read as 0; 0x80 as 0, 0xFF as 480/2",
        "zero": "scale 0",
    }


def triton(elements):
    largest, ties = {"e2m1": (6, "half AWAY from zero"), "e4m3": (448, "half to even"), "e5m2": (57344, "half to even")}[elements]
    return {
        "scale": f"byte = exponent field of q = fl(f32(amax) / {largest}) rounded up by bits, (q + 0x7FFFFF) >> 23: 1 for subnormal q, 0 for 0",
        "codes": f"v = fl(x * 2^(127 - byte)), x * 0 for byte 0; clamped to the largest, {ties}; zeros keep their sign",
        "layout": f"u8 [N, K/2]: {LOW_FIRST}; scale U8 [N, K/32]" if elements == "e2m1" else "[N, K]; scale U8 [N, ceil(K/32)]",
        "dequantize": "code * the f32 of the bits byte << 23 (0 for byte 0), rounded to the type asked for", "zero": "byte 0; codes keep the sign",
        "nan": "byte 255 or less, by the bits of the NaN", "infinity": "byte 255, multiplier 0: infinity gives NaN",
    }


def ocp(elements, rounding):
    how = {"nearest": "half AWAY from zero (its default)", "even": "half to even", "floor": "towards zero"}[rounding]
    return {
        "scale": "e = floor(flT(log2(amax))) - emax (amax 0 counts as 2^-126): log2 is rounded to T before floor, so f32 amax just below 2^k, and in bf16 many, take k; e > 127 gives NaN, e < -127 gives -127. emax: e4m3 8, e5m2 15, e3m2 4, e2m3 2, e2m1 2, int8 0",
        "codes": f"v = flT(x / 2^e); p = max(floor(flT(log2|v|)), least exponent of the element); q = flT(v / 2^p * 2^m) rounded {how}, back; clamp to the largest. int8 is sign-magnitude, steps of 2^-6, at most 127/64. No codes are given, only values",
        "layout": "values in T; blocks of 32 along the axis, padded with zeros", "dequantize": "flT(q * 2^e)",
        "zero": "e = -127 or so, values +0 (times the sign 0: -0 becomes +0)", "nan": "the whole block NaN", "infinity": "e > 127: the whole block NaN",
    }


def quark():
    return {
        "scale": "s = flT(amax / 6) in T, as unsigned e5m3 (bias 15, to nearest even, up to 114688)",
        "codes": f"v = fl(x / s), or fl(x / 2^-23) where s is 0; {RNE}; what is rounded to zero gives 0x0",
        "layout": f"weight u8 [N, K/2]: {LOW_FIRST}; weight_scale u8 [N, K/16], plain",
        "dequantize": "code * s in f32", "zero": "byte 0",
        "nan": "byte 0xf8 (65536), a NaN's code 7 and its sign", "infinity": "byte 0xfe, the code 6 of infinity", "ragged": "K must be a multiple of 16",
    }
