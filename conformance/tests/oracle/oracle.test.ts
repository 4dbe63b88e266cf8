/**
 * The oracle equals published vectors (numerics.md §11.2 and the sections named below), and its parts agree with each
 * other.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SCALAR_FORMATS, type ScalarLayout } from "../../../src/formats/scalar.js";
import { patternFor } from "../../arbitraries/patterns.js";
import { philox4x32, random8, random16 } from "../../oracle/core/philox.js";
import {
  bitsOf,
  div,
  divide,
  F16,
  FLT_MAX,
  fma,
  fromBits,
  mul,
  ofNumber,
  roundToNearest,
  sub,
} from "../../oracle/core/rational.js";
import {
  decode,
  encode,
  encodeByCarry,
  maxCode,
  type OverflowName,
  type RoundingName,
  type Step,
  steps,
} from "../../oracle/core/scalar.js";
import {
  E8M0_RULES,
  e8m0Reciprocal,
  globalEncodeScale,
  scaleFromAmax,
  twoLevel,
} from "../../oracle/core/scale.js";
import { packNibbles, swizzledOffset, swizzleScales, unpackNibbles } from "../../oracle/layout/layout.js";
import { rht16 } from "../../oracle/quantize/hadamard.js";
import { draws } from "../harness/draws.js";

const { e2m1, e2m3, e3m2, e4m3, e5m2, e8m0, bf16, f16, e4m3fnuz } = SCALAR_FORMATS;
const ROUNDINGS: readonly RoundingName[] = [
  "tiesToEven",
  "tiesToAway",
  "towardZero",
  "towardPositive",
  "towardNegative",
  "toOdd",
];
const OVERFLOWS: readonly OverflowName[] = ["saturate", "nonfinite", "propagate"];

const anyBits = fc.integer({ min: 0, max: 0xffffffff });
const anyF32 = anyBits.map(fromBits);
const anyInteger: fc.Arbitrary<ScalarLayout> = fc
  .tuple(fc.nat(6), fc.integer({ min: -8, max: 40 }), fc.constantFrom("integer", "symmetric"))
  .map(([mantissaBits, bias, specials]) => ({
    ...{ exponentBits: 1, signed: true, subnormals: true },
    ...{ mantissaBits, bias, specials },
  }));
const anyFloat: fc.Arbitrary<ScalarLayout> = fc
  .record({
    exponentBits: fc.integer({ min: 1, max: 6 }),
    mantissaBits: fc.integer({ min: 0, max: 4 }),
    bias: fc.integer({ min: -8, max: 40 }),
    signed: fc.boolean(),
    subnormals: fc.boolean(),
    specials: fc.constantFrom("finite", "nanOnly", "ieee", "fnuz"),
  } as const)
  .filter(({ specials, mantissaBits }) => specials !== "ieee" || mantissaBits > 0)
  .filter(({ specials, signed, subnormals }) => specials !== "fnuz" || (signed && subnormals));
const anyLayout = fc.oneof({ weight: 5, arbitrary: anyFloat }, anyInteger);

function hex(value: number, digits = 8): string {
  return value.toString(16).toUpperCase().padStart(digits, "0");
}

function encodeNearest(x: number, layout: ScalarLayout, overflow: OverflowName = "saturate"): number {
  return encode(bitsOf(x), layout, "tiesToEven", overflow);
}

/** The code of a bit pattern by a table of steps. */
function lookUp(table: readonly Step[], bits: number): number | undefined {
  return table.findLast(({ first }) => first <= bits)?.code;
}

describe("f32 arithmetic", () => {
  it("multiplies and divides as Math.fround of the f64 result, whose double rounding is harmless", () => {
    fc.assert(
      fc.property(anyF32, anyF32, (a, b) => {
        expect(mul(a, b)).toBe(Math.fround(a * b));
        expect(div(a, b)).toBe(Math.fround(a / b));
        expect(sub(a, b)).toBe(Math.fround(a - b));
      }),
      { numRuns: draws(2000) },
    );
  });

  it("rounds a multiply-add once, where rounding the product first loses it", () => {
    const x = 1 + 2 ** -12;
    expect(fma(x, x, -(1 + 2 ** -11))).toBe(2 ** -24);
    expect(sub(mul(x, x), 1 + 2 ** -11)).toBe(0);
    expect(fma(-1, 0, 0)).toBe(0);
    expect(fma(-1, 0, -0)).toBe(-0);
    expect(fma(Number.POSITIVE_INFINITY, 0, 1)).toBeNaN();
  });

  it("keeps subnormals and the sign of an underflow", () => {
    expect(bitsOf(div(1, FLT_MAX))).toBe(0x00200000);
    expect(mul(fromBits(0x80000001), 0.25)).toBe(-0);
  });

  it("rounds to f16 with one rounding and overflows to infinity from 65520", () => {
    expect(roundToNearest(divide(ofNumber(1), ofNumber(3)), F16)).toBe(0x555 / 0x1000);
    expect(roundToNearest(ofNumber(65519.996), F16)).toBe(65504);
    expect(roundToNearest(ofNumber(65520), F16)).toBe(Number.POSITIVE_INFINITY);
  });
});

describe("encode", () => {
  const vectors = `
    00000000 00 00 0 00 0000   80000000 80 80 8 00 8000   3F800000 38 3C 2 7F 3F80   3F800001 38 3C 2 80 3F80
    3FA00000 3A 3D 2 80 3FA0   40200000 42 41 4 81 4020   40400000 44 42 5 81 4040   40A00000 4A 45 6 82 40A0
    40A00001 4A 45 7 82 40A0   3E800000 28 34 0 7D 3E80   3E800001 28 34 1 7E 3E80   BE800000 A8 B4 8 7D BE80
    43E80000 7E 5F 7 88 43E8   47700000 7E 7B 7 8F 4770   7F7FFFFF 7E 7B 7 FE 7F80   7F800000 7E 7B 7 FE 7F80
    7FC00000 7F 7F 7 FF 7FFF   FFC00000 7F 7F 7 FF 7FFF   00400000 00 00 0 00 0040   00400001 00 00 0 01 0040
    BA800000 80 94 8 75 BA80   BA800001 81 94 8 76 BA80`;

  it("gives the codes printed for e4m3, e5m2, e2m1, e8m0 (rounded up) and bf16", () => {
    const rows = vectors.trim().split(/\s{2,}/);
    expect(rows).toHaveLength(22);
    for (const row of rows) {
      const bits = Number.parseInt(row, 16);
      const boundsOf = (layout: ScalarLayout, digits: number) =>
        hex(encode(bits, layout, "tiesToEven", "saturate"), digits);
      const scale = hex(encode(bits, e8m0, "towardPositive", "saturate"), 2);
      const wide = hex(encode(bits, bf16, "tiesToEven", "nonfinite"), 4);
      expect(
        `${hex(bits)} ${boundsOf(e4m3, 2)} ${boundsOf(e5m2, 2)} ${boundsOf(e2m1, 1)} ${scale} ${wide}`,
      ).toBe(row);
    }
  });

  it("decides e2m1 at the midpoints, ties to the even code", () => {
    const points = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5];
    const above = points.map((x) => encodeNearest(fromBits(bitsOf(x) + 1), e2m1));
    const below = points.map((x) => encodeNearest(fromBits(bitsOf(x) - 1), e2m1));
    expect(points.map((x) => encodeNearest(x, e2m1))).toEqual([0, 2, 2, 4, 4, 6, 6]);
    expect(above).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(below).toEqual([0, 1, 2, 3, 4, 5, 6]);
  });

  it("overflows to infinity, or to NaN of the same sign where there is none", () => {
    expect(encodeNearest(-1000, e4m3, "nonfinite")).toBe(0xff);
    expect(encodeNearest(464, e4m3, "nonfinite")).toBe(0x7e);
    expect(encodeNearest(fromBits(bitsOf(464) + 1), e4m3, "nonfinite")).toBe(0x7f);
    expect(encodeNearest(-61440, e5m2, "nonfinite")).toBe(0xfc);
    expect(encodeNearest(-1000, e4m3fnuz, "nonfinite")).toBe(0x80);
    expect(encodeNearest(-1000, e3m2, "nonfinite")).toBe(0x3f);
    expect(encode(bitsOf(-1000), e4m3, "towardPositive", "nonfinite")).toBe(0xfe);
    expect(encode(bitsOf(1000), e4m3, "towardPositive", "nonfinite")).toBe(0x7f);
    expect(encode(bitsOf(1000), e4m3, "toOdd", "nonfinite")).toBe(0x7e);
    expect(encode(0xff800000, e4m3, "towardZero", "nonfinite")).toBe(0xff);
    expect(encode(0xff800000, e4m3, "towardZero", "saturate")).toBe(0xfe);
  });

  it("rounds |x| to e8m0, ties to the even code, saturating to FE or leaving for FF", () => {
    expect([1.5, -1.5, 3, -3].map((x) => encodeNearest(x, e8m0))).toEqual([0x80, 0x80, 0x80, 0x80]);
    expect(encode(bitsOf(-1.25), e8m0, "towardNegative", "saturate")).toBe(0x7f);
    expect(encode(bitsOf(FLT_MAX), e8m0, "towardPositive", "nonfinite")).toBe(0xff);
    expect(encode(bitsOf(FLT_MAX), e8m0, "towardZero", "nonfinite")).toBe(0xfe);
    expect(encode(bitsOf(FLT_MAX), e8m0, "toOdd", "nonfinite")).toBe(0xfe);
    expect(encode(0x7f800000, e8m0, "towardZero", "nonfinite")).toBe(0xff);
    expect(encode(0, e8m0, "towardPositive", "nonfinite")).toBe(0);
  });

  it("has one zero in fnuz formats, and the code of minus zero for NaN", () => {
    expect(encode(0x80000000, e4m3fnuz, "tiesToEven", "saturate")).toBe(0);
    expect(encode(0x80000001, e4m3fnuz, "tiesToEven", "saturate")).toBe(0);
    expect(encode(0x7fc00000, e4m3fnuz, "tiesToEven", "saturate")).toBe(0x80);
    expect(decode(0x80, e4m3fnuz)).toBeNaN();
  });

  it("returns every code that is a number to itself, under every rounding", () => {
    for (const layout of [e4m3, e5m2, e2m1, e2m3, e3m2, e8m0, e4m3fnuz, SCALAR_FORMATS.e3m4]) {
      const codes = 2 ** (layout.exponentBits + layout.mantissaBits + (layout.signed ? 1 : 0));
      for (let code = 0; code < codes; code++) {
        const value = decode(code, layout);
        if (!Number.isFinite(value)) continue;
        for (const rounding of ROUNDINGS)
          expect(encode(bitsOf(value), layout, rounding, "nonfinite")).toBe(code);
        expect(encode(bitsOf(value), layout, "stochastic", "nonfinite", 0)).toBe(code);
      }
    }
  });

  it("rounds stochastically up for exactly the random words below the dropped 16 bits", () => {
    const roundUp = (x: number, random: number) => encode(bitsOf(x), e2m1, "stochastic", "saturate", random);
    expect([roundUp(1.125, 0x3fff), roundUp(1.125, 0x4000)]).toEqual([3, 2]);
    expect([roundUp(-4.5, 0x3fff), roundUp(-4.5, 0x4000)]).toEqual([0xf, 0xe]);
    expect([roundUp(2 ** -17, 0), roundUp(2 ** -17, 1), roundUp(2 ** -18, 0)]).toEqual([1, 0, 0]);
    const roundBeyond = (random: number) => encode(bitsOf(456), e4m3, "stochastic", "nonfinite", random);
    expect([roundBeyond(0x3fff), roundBeyond(0x4000)]).toEqual([0x7f, 0x7e]);
    expect(encode(bitsOf(480), e4m3, "stochastic", "nonfinite", 0xffff)).toBe(0x7f);
  });
});

describe("decode", () => {
  it("knows the published limits", () => {
    const limits = [e4m3, e5m2, e2m1, e2m3, e3m2, f16].map((layout) => decode(maxCode(layout), layout));
    expect(limits).toEqual([448, 57344, 6, 7.5, 28, 65504]);
    expect([0, 1, 2, 3, 4, 5, 6, 7].map((code) => decode(code, e2m1))).toEqual([0, 0.5, 1, 1.5, 2, 3, 4, 6]);
    expect(decode(0xfc, e5m2)).toBe(Number.NEGATIVE_INFINITY);
    expect(decode(0xff, e4m3)).toBeNaN();
    expect(decode(0x8, e2m1)).toBe(-0);
  });

  it("has no zero in e8m0: code 0 is 2^-127", () => {
    expect([0, 1, 127, 254].map((code) => hex(bitsOf(decode(code, e8m0))))).toEqual([
      "00400000",
      "00800000",
      "3F800000",
      "7F000000",
    ]);
    expect(decode(255, e8m0)).toBeNaN();
    expect(e8m0Reciprocal(0)).toBe(2 ** 127);
    expect(bitsOf(e8m0Reciprocal(254))).toBe(0x00400000);
  });
});

describe("steps", () => {
  it("agree with encode at each step, just before it, and anywhere, for any layout", () => {
    const setting = fc.tuple(anyLayout, fc.constantFrom(...ROUNDINGS), fc.constantFrom(...OVERFLOWS));
    fc.assert(
      fc.property(setting, fc.array(anyBits), ([layout, rounding, overflow], patterns) => {
        const table = steps(layout, rounding, overflow);
        const edges = table.flatMap(({ first }) => [first, Math.max(first - 1, 0)]);
        for (const bits of [...edges, ...patterns, 0xffffffff]) {
          expect(lookUp(table, bits), hex(bits)).toBe(encode(bits, layout, rounding, overflow));
        }
      }),
      { numRuns: draws(60) },
    );
  });

  it("ascend strictly from pattern 0 and change the code each time, for a 16-bit format", () => {
    const table = steps(f16, "tiesToEven", "nonfinite");
    expect(table[0]).toEqual({ first: 0, code: 0 });
    expect(table).toHaveLength(2 * 0x7c01 + 2);
    expect(table.every(({ first }, i) => i === 0 || first > (table[i - 1]?.first ?? 0))).toBe(true);
  });
});

describe("Philox", () => {
  it("gives the known answers", () => {
    const philoxWords = philox4x32([0n, 0n, 0n, 0n], [0n, 0n]).map((value) => hex(Number(value)));
    expect(philoxWords).toEqual(["6627E8D5", "E169C58D", "BC57AC4C", "9B00DBD8"]);
    const seededWords = philox4x32([4n, 0n, 5n, 0n], [0x89abcdefn, 0x01234567n]).map((value) =>
      hex(Number(value)),
    );
    expect(seededWords).toEqual(["F1DC0B27", "647B63F3", "470C0344", "AD3423DD"]);
  });

  it("uses each draw for eight elements, low halves first, and other draws for each copy", () => {
    const firstBits = [0n, 1n, 2n, 3n, 4n, 5n, 6n, 7n].map((index) => hex(random16(0n, 0n, 0, index), 4));
    expect(firstBits).toEqual(["E8D5", "6627", "C58D", "E169", "AC4C", "BC57", "DBD8", "9B00"]);
    const farWords = philox4x32([1n, 0x80000001n, 7n, 9n], [2n, 3n]);
    expect(random16(0x3_0000_0002n, 0x9_0000_0007n, 1, ((1n << 32n) + 1n) * 8n + 5n)).toBe(
      Number(farWords[2] >> 16n),
    );
  });
});

describe("a quantizer's random bits", () => {
  const bytes = Array.from({ length: 256 }, (_, byte) => byte);
  const magnitude = (x: number, byte: number) => encodeByCarry(bitsOf(x), e2m1, byte);

  it("are bytes 0, 2, 1 and 3 of a word for each four of sixteen elements of a draw", () => {
    const randomBytes = Array.from({ length: 16 }, (_, i) => hex(random8(0n, 0n, 0, BigInt(i)), 2)).join(" ");
    expect(randomBytes).toBe("D5 27 E8 66 8D 69 C5 E1 4C 57 AC BC D8 00 DB 9B");
    const farWords = philox4x32([1n, 0x80000001n, 7n, 9n], [2n, 3n]);
    const index = ((1n << 32n) + 1n) * 16n + 10n;
    expect(random8(0x3_0000_0002n, 0x9_0000_0007n, 1, index)).toBe(Number((farWords[2] >> 8n) & 0xffn));
  });

  it("decide by their carry with the bits of the significand that are cut off", () => {
    // the significand shifted to e2m1's position, in integers; PTX says that cvt.rs of Blackwell adds the random bits
    // there
    const shiftSignificand = (bits: number, byte: number): number => {
      const sign = bits >= 0x8000_0000 ? 8 : 0;
      const magnitudeBits = bits % 0x8000_0000;
      if (magnitudeBits > 0x7f80_0000) return 7;
      const field = Math.floor(magnitudeBits / 2 ** 23);
      const significand = BigInt((magnitudeBits % 2 ** 23) + (field === 0 ? 0 : 2 ** 23));
      const binade = Math.max(field, 127);
      const fixed = (significand << 8n) >> BigInt(22 + binade - Math.max(field, 1));
      const code = Number((fixed + BigInt(byte)) >> 8n) + 2 * (binade - 127);
      return sign + Math.min(code, 7);
    };
    fc.assert(
      fc.property(patternFor(e2m1), fc.nat(255), (bits, byte) => {
        expect(encodeByCarry(bits, e2m1, byte)).toBe(shiftSignificand(bits, byte));
      }),
      { numRuns: draws(3000) },
    );
  });

  it("leave values that have a code unchanged, including zeros, infinities and NaN", () => {
    for (const byte of bytes) {
      for (let code = 0; code < 16; code++) {
        const value = code === 8 ? 0x8000_0000 : bitsOf(decode(code, e2m1));
        expect(encodeByCarry(value, e2m1, byte)).toBe(code);
      }
      expect(
        [0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xffc0_0000].map((x) => encodeByCarry(x, e2m1, byte)),
      ).toEqual([7, 15, 7, 7]);
    }
  });

  it("round up for n of the 256 byte values, the largest ones, if a value is n/256 of the way to the next code", () => {
    const steps = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
    fc.assert(
      fc.property(fc.nat(6), fc.nat(2 ** 16 - 1), fc.boolean(), (code, fraction, minus) => {
        const [lower, next] = [steps[code] as number, steps[code + 1] as number];
        const x = lower + ((next - lower) * fraction) / 2 ** 16;
        const roundedUp = bytes.map((byte) => (magnitude(minus ? -x : x, byte) % 8) - code);
        const expected = Math.floor(fraction / 256);
        expect(roundedUp).toEqual(bytes.map((byte) => Number(byte >= 256 - expected)));
      }),
      { numRuns: draws(500) },
    );
  });
});

describe("scales from amaxes", () => {
  it("divides the largest value by amax, as printed, with and without powers of two", () => {
    const globalAndBlock = (max: number, amax: number) =>
      [false, true].map((pow2) =>
        hex(bitsOf(scaleFromAmax(amax, { max, pow2, epsilon: 0, overflow: FLT_MAX }))),
      );
    expect(globalAndBlock(448, 1)).toEqual(["43E00000", "43800000"]);
    expect(globalAndBlock(448, 3)).toEqual(["43155555", "43000000"]);
    expect(globalAndBlock(448, 448)).toEqual(["3F800000", "3F800000"]);
    expect(globalAndBlock(448, Math.fround(1e-38))).toEqual(["7F7FFFFF", "7F000000"]);
    expect(globalAndBlock(57344, 1000)).toEqual(["42656042", "42000000"]);
    for (const amax of [0, Number.POSITIVE_INFINITY, Number.NaN])
      expect(globalAndBlock(448, amax)).toEqual(["3F800000", "3F800000"]);
  });

  it("rounds MXFP8 exponents up, as printed", () => {
    const roundedScale = (amax: number) => {
      const { stored, multiplier } = E8M0_RULES.e8m0Up(amax, e4m3);
      return `${hex(stored, 2)} ${hex(bitsOf(multiplier))}`;
    };
    expect(hex(bitsOf(div(1, 448)))).toBe("3B124925");
    expect(hex(bitsOf(div(1, 57344)))).toBe("37924925");
    expect([0, 1, 448].map(roundedScale)).toEqual(["00 7F000000", "77 43800000", "7F 3F800000"]);
    expect([fromBits(bitsOf(448) + 1), Math.fround(5e-37)].map(roundedScale)).toEqual([
      "80 3F000000",
      "00 7F000000",
    ]);
    expect([FLT_MAX, Number.POSITIVE_INFINITY].map(roundedScale)).toEqual(["F7 03800000", "FE 00400000"]);
  });

  it("rounds the exponents of MXFP6 and MXFP4 down, and clamps them", () => {
    const codes = [0, 7.5, 8, 2 ** -149, Number.POSITIVE_INFINITY].map(
      (amax) => E8M0_RULES.e8m0Floor(amax, e2m3).stored,
    );
    expect(codes).toEqual([0, 127, 128, 0, 254]);
    expect(E8M0_RULES.e8m0Floor(28, e3m2).stored).toBe(127);
    expect(E8M0_RULES.e8m0Floor(FLT_MAX, e2m1).stored).toBe(252);
  });

  it("rounds exponents up, to even and to a short mantissa, as worked out on paper", () => {
    const codes = (rule: keyof typeof E8M0_RULES, amaxes: readonly number[], element = e4m3) =>
      amaxes.map((amax) => E8M0_RULES[rule](amax, element).stored - 127);
    expect(codes("e8m0Ceil", [256, 257, 448, 512, FLT_MAX, 2 ** -149, 0])).toEqual([
      0, 1, 1, 1, 120, -127, -127,
    ]);
    expect(codes("e8m0Even", [256, 479, 480, 496, 511], e4m3)).toEqual([0, 0, 0, 1, 1]);
    expect(codes("e8m0Even", [4, 6.9, 7, 7.9], e2m1)).toEqual([0, 0, 1, 1]);
    expect(codes("e8m0EvenShort", [447, 448, 480])).toEqual([0, 1, 1]);
    expect(codes("e8m0EvenShort", [1.9, 7.5, 7.75], e2m3)).toEqual([-2, 0, 1]);
    expect(E8M0_RULES.e8m0EvenShort(FLT_MAX, e4m3)).toEqual({ stored: 127, multiplier: 0 });
    expect(codes("e8m0UpQuotient", [448, fromBits(bitsOf(448) + 1)])).toEqual([0, 1]);
    expect(codes("e8m0Up", [fromBits(bitsOf(448 * 2 ** -3) + 1)])).toEqual([-2]);
    for (const rule of ["e8m0Ceil", "e8m0Even"] as const)
      expect(codes(rule, [Number.POSITIVE_INFINITY])).toEqual([127]);
  });

  it("gives NVFP4's two scales as printed, including underflow to scale 0", () => {
    const roundTrip = (g: number) => {
      const { stored, multiplier } = twoLevel(6.5, g);
      return [hex(bitsOf(globalEncodeScale(g))), hex(stored, 2), hex(bitsOf(multiplier))].join(" ");
    };
    expect(roundTrip(6.5)).toBe("43CEC4EC 7E 3F6C4EC4");
    expect(roundTrip(100)).toBe("41D70A3D 5F 3F656041");
    expect(roundTrip(1e7)).toBe("398CEDBA 00 7F7FFFFF");
    expect([0, Number.POSITIVE_INFINITY].map((g) => globalEncodeScale(g))).toEqual([1, 1]);
  });
});

describe("the Hadamard transform", () => {
  it("gives the printed answer for 1 .. 16", () => {
    const y = rht16(Array.from({ length: 16 }, (_, i) => i + 1)).map((bits) => fromBits(bits * 0x10000));
    expect(y).toEqual([
      -15.5, -7.5, 7.5, -0.5, 7.5, -0.5, -15.5, 8.5, 8.5, 16.5, 1.5, 1.5, 1.5, -2.5, 10.5, -17.5,
    ]);
  });

  it("drops what is 25 bits below the largest product, where an exact sum would round up", () => {
    const x = new Array<number>(16).fill(0);
    [x[0], x[1], x[2]] = [1, 2 ** -8, 2 ** -26];
    expect(rht16(x, false)[0]).toBe(bitsOf(0.25) >>> 16);
    x[2] = 2 ** -20;
    expect(rht16(x, false)[0]).toBe((bitsOf(0.25) >>> 16) + 1);
  });

  it("gives infinities for one infinity, NaN for two of opposite sign, and +0 for zeros", () => {
    const x = new Array<number>(16).fill(-0);
    expect(rht16(x)).toEqual(new Array(16).fill(0));
    x[0] = Number.POSITIVE_INFINITY;
    expect(rht16(x)).toEqual(new Array(16).fill(0x7f80));
    x[1] = Number.NEGATIVE_INFINITY;
    expect(rht16(x, false)[0]).toBe(0x7fff);
    expect(rht16(x, false)[1]).toBe(0x7f80);
  });
});

describe("layouts", () => {
  it("swizzles 128x4 as printed", () => {
    const positions = [
      [0, 0],
      [0, 3],
      [0, 4],
      [1, 0],
      [31, 3],
      [32, 0],
      [127, 7],
      [128, 0],
    ] as const;
    expect(positions.map(([i, j]) => swizzledOffset(i, j, 8))).toEqual([0, 3, 512, 16, 499, 4, 1023, 1024]);
  });

  it("transposes MX columnwise scales while swizzling, and pads with zeros", () => {
    const logical = { values: [1, 2, 3, 4, 5, 6], shape: [2, 3] } as const;
    const swizzled = swizzleScales(logical, { quantizer: "mxfp8" }, "columnwise");
    expect(swizzled.shape).toEqual([4, 128]);
    expect([0, 1, 2, 16, 17, 32, 33].map((index) => swizzled.values[index])).toEqual([1, 4, 0, 2, 5, 3, 6]);
    expect(swizzled.values).toHaveLength(512);
  });

  it("puts the even nibble low", () => {
    expect([...packNibbles(Uint8Array.of(0, 8, 9, 1))]).toEqual([0x80, 0x19]);
    expect([...unpackNibbles(Uint8Array.of(0x80, 0x19))]).toEqual([0, 8, 9, 1]);
  });
});
