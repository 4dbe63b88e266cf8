"""Records the results of gfloat, in all its rounding and both its overflow modes, for named, P3109 and pseudo-random layouts.

gfloat accepts a layout as numbers, so the random layouts show that no result depends on a format's name.
"""

from importlib.metadata import version

import gfloat
import numpy as np
from gfloat import Domain, FormatInfo, RoundMode, Signedness, formats

import philox
import record

ROUNDINGS = {
    "tiesToEven": RoundMode.TiesToEven,
    "tiesToAway": RoundMode.TiesToAway,
    "towardZero": RoundMode.TowardZero,
    "towardPositive": RoundMode.TowardPositive,
    "towardNegative": RoundMode.TowardNegative,
    "stochastic": RoundMode.StochasticFastest,
}
OWN = {
    "e4m3": formats.format_info_ocp_e4m3,
    "e5m2": formats.format_info_ocp_e5m2,
    "e2m1": formats.format_info_ocp_e2m1,
    "e2m3": formats.format_info_ocp_e2m3,
    "e3m2": formats.format_info_ocp_e3m2,
    "e8m0": formats.format_info_ocp_e8m0,
    "bf16": formats.format_info_bfloat16,
    "f16": formats.format_info_binary16,
}
P3109 = [(3, 2, True), (4, 2, True), (6, 3, True), (6, 4, True), (8, 7, True), (8, 3, False), (8, 4, False), (8, 8, False)]
SEED, OFFSET = 0x0123456789ABCDEF, 0xFEDCBA9876543210
ORIGIN = {
    "project": "gfloat",
    "version": version("gfloat"),
    "how": "scripts/witness/gfloat_vectors.py: round_ndarray in float64, encode_ndarray, decode_float",
    "stochastic": "RoundMode.StochasticFastest with srbits = 0xffff - random, srnumbits = 16",
}


def format_info(layout):
    high_nans = {"nanOnly": 1, "ieee": (1 << layout.mantissaBits) - 1}.get(layout.specials, 0)
    return FormatInfo(
        "layout",
        k=layout.bits,
        precision=layout.mantissaBits + 1,
        bias=layout.bias,
        is_signed=layout.signed,
        domain=Domain.Extended if layout.specials == "ieee" else Domain.Finite,
        has_nz=layout.signed and layout.specials != "fnuz",
        num_high_nans=high_nans,
        has_subnormals=layout.subnormals,
        is_twos_complement=False,
    )


def p3109(k, precision, signed):
    """The P3109 formats without infinities.

    Those with them have one infinity above the finite codes, which no layout here can describe.
    """
    signedness = Signedness.Signed if signed else Signedness.Unsigned
    info = formats.format_info_p3109(k, precision, signedness, Domain.Finite)
    layout = record.Layout(info.expBits, precision - 1, info.bias, "fnuz" if signed else "nanOnly", signed)
    return layout, info


def random_layouts(count, seed=0xC0FFEE11):
    """Random layouts that fit a format word and whose values fit f32, in the order in which the generator draws
    them.
    """
    draw, found = record.Xorshift32(seed), []
    while len(found) < count:
        exponent, mantissa, signed = 1 + draw() % 8, max(draw() % 13 - 2, 0), draw() % 4 > 0
        specials = ["finite", "nanOnly", "ieee", "fnuz"][draw() % 4]
        subnormals = mantissa > 0 or draw() % 2 == 0
        bias = (1 << exponent - 1) - 1 + draw() % 41 - 20
        layout = record.Layout(exponent, mantissa, bias, specials, signed, subnormals)
        few = exponent + mantissa < 2 or (specials == "ieee" and (mantissa == 0 or exponent == 1))
        unlike = specials == "fnuz" and not (signed and subnormals)
        if few or unlike or layout.bits > 16:
            continue
        smallest = layout.value(1 if subnormals else 0)
        if smallest >= record.SMALLEST_F32 and layout.max < 2**128:
            found.append(layout)
    return found


def answerable(layout, inputs):
    """The inputs that gfloat accepts: NaN only if the format has one, no sign for unsigned formats, and nothing
    below the smallest value of a format without zero.
    """
    keep, omitted = np.ones(len(inputs), dtype=bool), []
    if layout.specials == "finite":
        keep &= ~record.is_nan(inputs)
        omitted.append("NaN")
    if not layout.signed:
        keep &= inputs < 1 << 31
        omitted.append("negative inputs")
    if not layout.subnormals:
        keep &= record.magnitude(inputs) >= record.f32_bits(layout.value(0))
        omitted.append("magnitudes below the smallest value")
    return inputs[keep], ", ".join(omitted) or None


def encode(info, inputs, rounding, overflow, random=None):
    with np.errstate(invalid="ignore"):
        values = inputs.view(np.float32).astype(np.float64)
    bits = {} if random is None else {"srbits": 0xFFFF - random, "srnumbits": 16}
    rounded = gfloat.round_ndarray(info, values, ROUNDINGS[rounding], overflow == "saturate", **bits)
    return gfloat.encode_ndarray(info, rounded)


def columns(layout, info, inputs, roundings, random=None):
    for overflow in ["saturate"] if layout.specials == "finite" else ["saturate", "nonfinite"]:
        for rounding in roundings:
            codes = encode(info, inputs, rounding, overflow, random)
            yield record.encoding(layout, str(ROUNDINGS[rounding]), rounding, overflow, codes)


def fixed(layout, info, codes, patterns, name=None, differences=()):
    """Records the deterministic roundings, and decoding."""
    inputs, omitted = answerable(layout, record.edge_inputs(layout, codes, patterns))
    encoded = list(columns(layout, info, inputs, [rounding for rounding in ROUNDINGS if rounding != "stochastic"]))
    sample = record.decode_codes(layout, count=96)
    with np.errstate(all="ignore"):
        values = np.array([gfloat.decode_float(info, int(code)).fval for code in sample], dtype=np.float32)
    decoded = record.decoding(layout, "decode_float", sample, values.view(np.uint32))
    return record.table(layout, inputs, encoded, decoded, differences, omitted, name)


def beside(layout, code, word):
    """The f32 bits of the value at `word` / 2^16 of the way from a code to the next."""
    low, high = layout.value(code), layout.value(code + 1)
    with np.errstate(over="ignore"):
        return int(np.float32(float(low + (high - low) * word / 2**16)).view(np.uint32))


def stochastic(layout, info, name=None, count=96, seed=0x5EED5EED):
    """Records stochastic rounding.

    Three of four inputs are at the threshold of the random word drawn for them: one step below it, at it, one step
    above it.
    """
    draw, words = record.Xorshift32(seed), [philox.random16(SEED, OFFSET, at) for at in range(count)]
    others, omitted = answerable(layout, record.edge_inputs(layout, 8, 16))
    inputs = []
    for at, word in enumerate(words):
        aimed = beside(layout, draw() % layout.codes, min(max(word + at % 4 - 1, 0), 0xFFFF))
        sign = draw() & 0x80000000 if layout.signed else 0
        inputs.append(others[draw() % len(others)] if at % 4 == 3 else aimed | sign)
    inputs, random = np.array(inputs, dtype=np.uint32), np.array(words, dtype=np.int64)
    drawn = {"seed": f"{SEED:016x}", "offset": f"{OFFSET:016x}", "words": record.hex_lines(words, 4)}
    encoded = list(columns(layout, info, inputs, ["stochastic"], random))
    return record.table(layout, inputs, encoded, None, (), omitted, name, drawn)


def nan_differences(layout, info):
    """The inputs on which the NaN codes differ: gfloat always writes the last code; Lockstep writes the
    positive NaN, and for an overflow the NaN of the input's sign.
    """
    rows = [(0x7FC00000, "NaN: the last code there, the positive one here"), (0x447A0000, "overflow: as for NaN")]
    for bits, why in rows:
        answer = encode(info, np.array([bits], dtype=np.uint32), "tiesToEven", "nonfinite")[0]
        yield record.difference(layout, bits, "tiesToEven", "nonfinite", answer, 0x7F, why)


def named(name, layout):
    info = OWN.get(name) or format_info(layout)
    differences = nan_differences(layout, info) if name == "e4m3" else ()
    return [fixed(layout, info, 32, 64, name, differences), stochastic(layout, info, name)]


def unnamed(layout, info):
    return [fixed(layout, info, 20, 40), stochastic(layout, info)]


def main():
    formats, wide = record.scalar_formats(), ("bf16", "f16", "tf32")
    narrow = [table for name, layout in formats.items() if name not in wide for table in named(name, layout)]
    record.write("gfloat-named.json", ORIGIN, narrow)
    record.write("gfloat-wide.json", ORIGIN, [table for name in wide for table in named(name, formats[name])])
    record.write("gfloat-p3109.json", ORIGIN, [table for row in P3109 for table in unnamed(*p3109(*row))])
    layouts = random_layouts(10)
    record.write("gfloat-layouts.json", ORIGIN, [table for row in layouts for table in unnamed(row, format_info(row))])


if __name__ == "__main__":
    main()
