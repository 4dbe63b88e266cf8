"""Records the results of ml_dtypes: casts from f32 to each of its small types, and every code decoded."""

from importlib.metadata import version

import ml_dtypes
import numpy as np

import record

TYPES = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e4m3fnuz": "float8_e4m3fnuz",
    "e5m2fnuz": "float8_e5m2fnuz",
    "e3m4": "float8_e3m4",
    "e4m3ieee": "float8_e4m3",
    "e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn",
    "e2m1": "float4_e2m1fn",
    "e8m0": "float8_e8m0fnu",
    "bf16": "bfloat16",
}
B11 = record.Layout(4, 3, 11, "fnuz")
ORIGIN = {
    "project": "ml_dtypes",
    "version": version("ml_dtypes"),
    "how": "scripts/witness/ml_dtypes_vectors.py: numpy astype from float32",
}


def cast(type, inputs):
    with np.errstate(all="ignore"):
        codes = inputs.view(np.float32).astype(type)
    return codes.view(np.uint16 if codes.itemsize == 2 else np.uint8)


def decode(type, codes):
    storage = np.uint16 if np.dtype(type).itemsize == 2 else np.uint8
    return codes.astype(storage).view(type).astype(np.float32).view(np.uint32)


def differs(layout, type, bits, rounding, overflow, lockstep, why):
    answer = cast(type, np.array([bits], dtype=np.uint32))[0]
    return record.difference(layout, bits, rounding, overflow, answer, lockstep, why)


def ordinary(name, layout, function, omitted=None, keep=None, rounding="tiesToEven", overflow="nonfinite", differences=()):
    type = getattr(ml_dtypes, function)
    inputs = record.edge_inputs(layout, codes=128, random=128)
    if keep is not None:
        inputs = inputs[keep(inputs)]
    encode = [record.encoding(layout, f"astype({function})", rounding, overflow, cast(type, inputs))]
    codes = record.decode_codes(layout)
    decoded = record.decoding(layout, f"{function}, astype(float32)", codes, decode(type, codes))
    if layout.specials != "finite":
        differences = [*differences, *record.nan_difference(layout, lambda bits: cast(type, bits), rounding, overflow)]
    return record.table(layout, inputs, encode, decoded, differences, omitted, name)


def finite(name, layout, function):
    """Records FP4 and FP6.

    ml_dtypes saturates them as Lockstep does, but turns a NaN into a zero of the opposite sign.
    """
    type, largest = getattr(ml_dtypes, function), layout.codes - 1
    differences = [
        differs(layout, type, bits, "tiesToEven", "saturate", largest, "NaN: a zero of the other sign there, the largest value here")
        for bits in (0x7FC00000, 0xFFC00000)
    ]
    keep = lambda inputs: ~record.is_nan(inputs)
    return ordinary(name, layout, function, "NaN inputs", keep, overflow="saturate", differences=differences)


def e8m0(layout):
    """Records e8m0.

    ml_dtypes rounds ties away from zero, and all values between 2^-127 and 2^-126 up; zero and negative inputs give
    NaN.
    """
    type = ml_dtypes.float8_e8m0fnu
    rows = [
        (0x00000000, "tiesToAway", 0x00, "zero: NaN there, the smallest code here"),
        (0xBF800000, "tiesToAway", 0x7F, "a negative input: NaN there, its magnitude here"),
        (0x00400001, "tiesToAway", 0x00, "between 2^-127 and 2^-126: always up there, to the nearest here"),
        (0x40400000, "tiesToEven", 0x80, "a tie goes away from zero there, so its casts are recorded as tiesToAway"),
    ]
    differences = [differs(layout, type, bits, rounding, "nonfinite", ours, why) for bits, rounding, ours, why in rows]
    keep = lambda inputs: record.is_nan(inputs) | (inputs == 0x00400000) | ((inputs >= 0x00800000) & (inputs < 1 << 31))
    omitted = "zero, negative numbers, and numbers below 2^-126 other than 2^-127"
    return ordinary("e8m0", layout, "float8_e8m0fnu", omitted, keep, "tiesToAway", differences=differences)


def main():
    formats = record.scalar_formats()
    eight = ["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e3m4", "e4m3ieee"]
    tables = [ordinary(name, formats[name], TYPES[name]) for name in eight]
    record.write("ml-dtypes-fp8.json", ORIGIN, [*tables, ordinary(None, B11, "float8_e4m3b11fnuz")])
    narrow = [finite(name, formats[name], TYPES[name]) for name in ("e2m3", "e3m2", "e2m1")]
    wide = [e8m0(formats["e8m0"]), ordinary("bf16", formats["bf16"], "bfloat16")]
    record.write("ml-dtypes-others.json", ORIGIN, narrow + wide)


if __name__ == "__main__":
    main()
