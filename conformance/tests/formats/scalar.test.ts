/** The table of scalar formats equals published values. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import {
  derive,
  factsOf,
  formatWord,
  resolveFormat,
  SCALAR_FORMAT_NAMES,
  valueOfCode,
} from "../../../src/formats/derive.js";
import {
  FORMAT_ALIASES,
  SCALAR_FORMATS,
  type ScalarFormat,
  type ScalarLayout,
} from "../../../src/formats/scalar.js";
import { scalarLayout } from "../../arbitraries/formats.js";
import { decode } from "../../oracle/core/scalar.js";
import { derivedSeed, draws } from "../harness/draws.js";

interface PublishedLimits {
  readonly source: string;
  readonly max: number;
  readonly minNormal: number;
  readonly minPositive: number;
  readonly infinity: boolean;
  /** The number of NaN codes. */
  readonly nans: number;
}

const OFP8 = "OCP 8-bit Floating Point Specification (OFP8) 1.0, table 2";
const MX_ELEMENTS = "OCP Microscaling Formats (MX) 1.0, §5.3";
const MX_SCALES = "OCP Microscaling Formats (MX) 1.0, §5.4";
const ML_DTYPES = "ml_dtypes, finfo";
const IEEE = "IEEE 754-2019, table 3.5";

/** The values as published; powers of two are written as such. */
const PUBLISHED: Readonly<Record<ScalarFormat, PublishedLimits>> = {
  e4m3: { source: OFP8, max: 448, minNormal: 2 ** -6, minPositive: 2 ** -9, infinity: false, nans: 2 },
  e5m2: { source: OFP8, max: 57344, minNormal: 2 ** -14, minPositive: 2 ** -16, infinity: true, nans: 6 },
  e2m1: { source: MX_ELEMENTS, max: 6, minNormal: 1, minPositive: 0.5, infinity: false, nans: 0 },
  e2m3: { source: MX_ELEMENTS, max: 7.5, minNormal: 1, minPositive: 0.125, infinity: false, nans: 0 },
  e3m2: { source: MX_ELEMENTS, max: 28, minNormal: 0.25, minPositive: 0.0625, infinity: false, nans: 0 },
  e8m0: {
    source: MX_SCALES,
    max: 2 ** 127,
    minNormal: 2 ** -127,
    minPositive: 2 ** -127,
    infinity: false,
    nans: 1,
  },
  e4m3fnuz: {
    source: ML_DTYPES,
    max: 240,
    minNormal: 2 ** -7,
    minPositive: 2 ** -10,
    infinity: false,
    nans: 1,
  },
  e5m2fnuz: {
    source: ML_DTYPES,
    max: 57344,
    minNormal: 2 ** -15,
    minPositive: 2 ** -17,
    infinity: false,
    nans: 1,
  },
  e3m4: { source: ML_DTYPES, max: 15.5, minNormal: 0.25, minPositive: 2 ** -6, infinity: true, nans: 30 },
  e4m3ieee: {
    source: ML_DTYPES,
    max: 240,
    minNormal: 2 ** -6,
    minPositive: 2 ** -9,
    infinity: true,
    nans: 14,
  },
  bf16: {
    source: ML_DTYPES,
    max: (2 - 2 ** -7) * 2 ** 127,
    minNormal: 2 ** -126,
    minPositive: 2 ** -133,
    infinity: true,
    nans: 254,
  },
  f16: {
    source: IEEE,
    max: 65504,
    minNormal: 2 ** -14,
    minPositive: 2 ** -24,
    infinity: true,
    nans: 2046,
  },
  tf32: {
    source: "IEEE 754-2019, §3.3, with emax 127 and 11 digits",
    max: (2 - 2 ** -10) * 2 ** 127,
    minNormal: 2 ** -126,
    minPositive: 2 ** -136,
    infinity: true,
    nans: 2046,
  },
  int8: {
    source: "C23, int8_t; the smallest normal is the value of the highest bit",
    max: 127,
    minNormal: 64,
    minPositive: 1,
    infinity: false,
    nans: 0,
  },
  s2f6: {
    source: "OCP MX 1.0, INT8 with an implicit scale of 2^-6",
    max: 127 / 64,
    minNormal: 1,
    minPositive: 2 ** -6,
    infinity: false,
    nans: 0,
  },
  ue5m3: {
    source: "CUDA 13.5, cuda_fp8.h; AMD Quark 0.13, BaseFP8_E5M3",
    max: 114688,
    minNormal: 2 ** -14,
    minPositive: 2 ** -17,
    infinity: false,
    nans: 1,
  },
  int4: {
    source: "ONNX IR 10, INT4; the smallest normal is the value of the highest bit of a magnitude",
    max: 7,
    minNormal: 4,
    minPositive: 1,
    infinity: false,
    nans: 0,
  },
};

describe("published limits", () => {
  for (const name of SCALAR_FORMAT_NAMES) {
    const { source, max, minNormal, minPositive, infinity, nans } = PUBLISHED[name];

    it(`${name} has the limits of ${source}`, () => {
      expect(factsOf(name)).toMatchObject({
        max,
        minNormal,
        minPositive,
        hasInfinity: infinity,
        hasNaN: nans > 0,
      });
    });

    it(`${name}: every code has the oracle's value, whatever the bits above it`, () => {
      const { bits } = factsOf(name);
      for (let code = 0; code < 2 ** bits; code++) {
        const expected = decode(code, SCALAR_FORMATS[name]);
        if (!Object.is(valueOfCode(name, code), expected))
          expect([code, valueOfCode(name, code)]).toEqual([code, expected]);
      }
      expect(valueOfCode(name, 2 ** bits + 1)).toBe(decode(1, SCALAR_FORMATS[name]));
    });

    it(`${name}: all codes decoded in one call have the same values`, () => {
      const { bits, maxCode, maxExponent } = factsOf(name);
      const values = Array.from({ length: 2 ** bits }, (_, code) => decode(code, SCALAR_FORMATS[name]));
      const finiteValues = values.filter(Number.isFinite);
      expect(finiteValues.reduce((largest, value) => Math.max(largest, value))).toBe(max);
      expect(finiteValues.reduce((min, value) => (value > 0 ? Math.min(min, value) : min), max)).toBe(
        minPositive,
      );
      expect(values.filter(Number.isNaN)).toHaveLength(nans);
      expect(values.includes(Infinity)).toBe(infinity);
      expect(values[maxCode]).toBe(max);
      expect(Math.floor(Math.log2(max))).toBe(maxExponent);
    });
  }

  it("storage is 4, 8, 16 or 32 bits a code, and 6-bit codes take a byte", () => {
    const bits = Object.fromEntries(SCALAR_FORMAT_NAMES.map((name) => [name, factsOf(name).storageBits]));
    expect(bits).toMatchObject({ e2m1: 4, e2m3: 8, e3m2: 8, e4m3: 8, e8m0: 8, bf16: 16, f16: 16, tf32: 32 });
  });
});

describe("names", () => {
  it("every alias gives the format that it names", () => {
    for (const [alias, format] of Object.entries(FORMAT_ALIASES)) expect(resolveFormat(alias)).toBe(format);
  });

  it.each([
    ["torch.float8_e4m3fn", "e4m3"],
    ["torch.float8_e5m2", "e5m2"],
    ["torch.float8_e4m3fnuz", "e4m3fnuz"],
    ["torch.float8_e8m0fnu", "e8m0"],
    ["torch.float4_e2m1fn_x2", "e2m1"],
    ["float8_e4m3", "e4m3ieee"],
    ["float6_e2m3fn", "e2m3"],
    ["F8_E4M3", "e4m3"],
    ["F8_E5M2", "e5m2"],
    ["BF16", "bf16"],
    ["float16", "f16"],
  ] as const)("%s is %s", (alias, format) => expect(resolveFormat(alias)).toBe(format));

  it("no alias hides a format, and none is inherited", () => {
    for (const name of SCALAR_FORMAT_NAMES) expect(resolveFormat(name)).toBe(name);
    for (const name of ["", "toString", "constructor", "__proto__", "f32"])
      expect(() => resolveFormat(name)).toThrow(ArgumentError);
  });
});

describe("format words", () => {
  const E4M3: ScalarLayout = SCALAR_FORMATS.e4m3;

  it.each([
    ["no exponent", { exponentBits: 0 }],
    ["nine exponent bits", { exponentBits: 9, mantissaBits: 0 }],
    ["half an exponent bit", { exponentBits: 2.5 }],
    ["a negative mantissa", { mantissaBits: -1 }],
    ["sixteen mantissa bits", { exponentBits: 1, mantissaBits: 16, signed: false }],
    ["seventeen bits", { exponentBits: 8, mantissaBits: 8, bias: 127 }],
    ["a bias that is no integer", { bias: 7.5 }],
    ["a bias that is none", { bias: Number.NaN }],
    ["ieee without a mantissa", { mantissaBits: 0, specials: "ieee" }],
    ["ieee with one exponent bit", { exponentBits: 1, specials: "ieee" }],
    ["fnuz without a sign", { signed: false, specials: "fnuz" }],
    ["fnuz without a zero", { subnormals: false, specials: "fnuz" }],
    ["nothing but zero and NaN", { exponentBits: 1, mantissaBits: 0, specials: "nanOnly" }],
    ["values beyond the largest f32", { bias: -113 }],
    ["values below the smallest f32", { bias: 148 }],
  ] as const)("%s is refused, with the layout and the reason", (_, fields) => {
    expect(() => formatWord({ ...E4M3, ...fields })).toThrow(ArgumentError);
    expect(() => formatWord({ ...E4M3, ...fields })).toThrow(/^format e.*m.*: \S/);
  });

  it("the largest and the smallest bias that f32 allows are accepted", () => {
    expect(derive({ ...E4M3, bias: -112 }).max).toBe(1.75 * 2 ** 127);
    expect(derive({ ...E4M3, bias: 147 }).minPositive).toBe(2 ** -149);
  });

  it("every layout's values fit f32, in as many bits as it says", () => {
    fc.assert(
      fc.property(scalarLayout(), (layout) => {
        const { max, minPositive, bits, storageBits, maxCode } = derive(layout);
        expect([Math.fround(max), Math.fround(minPositive)]).toEqual([max, minPositive]);
        expect(minPositive).toBeGreaterThan(0);
        expect(storageBits).toBeGreaterThanOrEqual(bits);
        expect(maxCode).toBeLessThan(2 ** bits);
      }),
      { numRuns: draws(2000), seed: derivedSeed(18) },
    );
  });

  it("two different layouts have different words", () => {
    fc.assert(
      fc.property(scalarLayout(), scalarLayout(), (a, b) => {
        expect(formatWord(a) === formatWord(b)).toBe(
          JSON.stringify(sortedFields(a)) === JSON.stringify(sortedFields(b)),
        );
      }),
      { numRuns: draws(1000), seed: derivedSeed(19) },
    );
    expect(new Set(SCALAR_FORMAT_NAMES.map((name) => factsOf(name).word)).size).toBe(
      SCALAR_FORMAT_NAMES.length,
    );
  });
});

function sortedFields(layout: ScalarLayout): [string, unknown][] {
  return Object.entries(layout).sort(([a], [b]) => (a < b ? -1 : 1));
}
