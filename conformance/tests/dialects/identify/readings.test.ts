/** The parts of `identifyDialect`: the codes that a rule can give to a number, and the interpretation of stored bytes. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  becomes,
  ELEMENT_OVERFLOWS,
  ELEMENT_ROUNDINGS,
  ELEMENT_ZEROS,
  type ElementRule,
} from "../../../../src/dialects/identify/elements.js";
import { identifyDialect } from "../../../../src/dialects/identify/identify.js";
import { type CodePacking, codeReadings, scaleReadings } from "../../../../src/dialects/identify/readings.js";
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, blockFormat } from "../../../../src/formats/block.js";
import { factsOf, isIntegral, valueOfCode } from "../../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "../../../../src/formats/scalar.js";
import { tensor } from "../../../../src/ops/create.js";
import { relayoutScales } from "../../../../src/ops/layout/layout.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { derivedSeed, draws, sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });
const FORMATS = ["e2m1", "e2m3", "e3m2", "e4m3", "e5m2", "int8", "s2f6", "int4"] as const;

/** The magnitudes of a format from 0 up, and the one that would follow the largest. */
function gridOf(format: ScalarFormat): readonly number[] {
  const values = Array.from({ length: factsOf(format).maxCode + 1 }, (_, code) => valueOfCode(format, code));
  const [secondToLast, lastValue] = values.slice(-2) as [number, number];
  return [...values, 2 * lastValue - secondToLast];
}

/** Whether a magnitude between two neighbours may round to the lower one, and to the upper one. */
function neighbours(
  rule: ElementRule,
  place: number,
  index: number,
  isNegative: boolean,
): [boolean, boolean] {
  const toUpper = (isUpper: boolean): [boolean, boolean] => [!isUpper, isUpper];
  switch (rule.rounding) {
    case "towardZero":
      return toUpper(false);
    case "awayFromZero":
      return toUpper(true);
    case "towardNegative":
      return toUpper(isNegative);
    case "towardPositive":
      return toUpper(!isNegative);
    case "stochastic":
      return [true, true];
    default: {
      if (place !== 0.5) return toUpper(place > 0.5);
      if (rule.rounding === "tiesToEven") return toUpper(index % 2 === 1);
      return toUpper(rule.rounding === "tiesToAway");
    }
  }
}

/** The codes that `value` may become: `index` and `place` locate its magnitude in the format's grid. */
function codesOf(
  format: ScalarFormat,
  rule: ElementRule,
  value: number,
  index: number,
  place: number,
): Set<number> {
  const { bits, maxCode, hasInfinity, hasNaN } = factsOf(format);
  const signBit = 2 ** (bits - 1);
  const { specials }: ScalarLayout = SCALAR_FORMATS[format];
  const isNegative = value < 0 || Object.is(value, -0);
  const lastCode = maxCode + (specials === "integer" && isNegative ? 1 : 0);
  // nothing past the largest number lies between two codes, so random bits have no effect there
  const appliedRule =
    index >= lastCode && rule.rounding === "stochastic" ? { ...rule, rounding: "tiesToEven" as const } : rule;
  const [roundsDown, roundsUp] =
    place === 0 ? [true, false] : neighbours(appliedRule, place, index, isNegative);
  const gridIndices = [...(roundsDown ? [index] : []), ...(roundsUp ? [index + 1] : [])];
  const zeroIsNegative = {
    kept: isNegative,
    addsZero: isNegative && value !== 0,
    plusZero: false,
    minusZero: isNegative || value === 0,
  }[rule.zero];
  const codes = gridIndices.flatMap((gridIndex) => {
    if (gridIndex > maxCode && rule.overflow === "nonfinite" && (hasInfinity || hasNaN))
      return Array.from({ length: 2 ** bits }, (_, code) => code).filter((code) => code % signBit > maxCode);
    const magnitudeCode = Math.min(gridIndex, lastCode);
    if (isIntegral(specials))
      return [isNegative && magnitudeCode > 0 ? 2 ** bits - magnitudeCode : magnitudeCode];
    return [magnitudeCode + ((magnitudeCode === 0 ? zeroIsNegative : isNegative) ? signBit : 0)];
  });
  return new Set(codes);
}

describe.each(FORMATS)("a number as a code of %s", (format) => {
  it.each(sampleCases(ELEMENT_ROUNDINGS, 2, FORMATS.indexOf(format)))(
    "rounded by %s becomes the codes of the rule and no other",
    (rounding) => {
      const grid = gridOf(format);
      const { bits, maxCode } = factsOf(format);
      const step = maxCode > 40 ? 7 : 1;
      const indices = grid
        .map((_, index) => index)
        .filter((i) => i % step === 0 || i < 3 || i >= maxCode - 1);
      for (const zero of ELEMENT_ZEROS)
        for (const overflow of ELEMENT_OVERFLOWS)
          for (const index of indices)
            for (const place of index > maxCode ? [0] : [0, 0.25, 0.5, 0.75])
              for (const sign of [1, -1]) {
                const lowerMagnitude = grid[index] as number;
                const value =
                  sign * (lowerMagnitude + place * ((grid[index + 1] ?? lowerMagnitude) - lowerMagnitude));
                const rule = { rounding, zero, overflow };
                const expected = codesOf(format, rule, value, index, place);
                const acceptedCodes = Array.from({ length: 2 ** bits }, (_, code) => code).filter((code) =>
                  becomes(format, rule, value, code),
                );
                expect(acceptedCodes, JSON.stringify({ ...rule, value })).toEqual(
                  [...expected].sort((a, b) => a - b),
                );
              }
    },
  );
});

const OF_BYTES = BLOCK_FORMAT_NAMES.filter((name) => BLOCK_FORMATS[name].padding === "tiles");

it("every layout of scales is read: the reading has the scales of the logical layout", () => {
  const cases = fc.constantFrom(...OF_BYTES).chain((quantizer) =>
    fc.record({
      quantizer: fc.constant(quantizer),
      tile: fc.constantFrom(...BLOCK_FORMATS[quantizer].tiles),
      rows: fc.integer({ min: 2, max: 300 }),
      scalesPerRow: fc.integer({ min: 2, max: 13 }),
      layout: fc.constantFrom("logical", "padded", "swizzled"),
    } as const),
  );
  fc.assert(
    fc.property(cases, ({ quantizer, tile, rows, scalesPerRow, layout }) => {
      using _scope = new Scope();
      const size = [rows, 32 * scalesPerRow] as const;
      const x = tensor(
        backend(),
        Float32Array.from({ length: size[0] * size[1] }, (_, i) => 2 ** ((i * 7) % 12) + i / size[1]),
        size,
      );
      const usage = { rowwise: true, columnwise: false, scaleLayout: layout } as const;
      const quantizedTensor = new SpecQuantizer(makeSpec(quantizer, { tile }), usage).quantize(x);
      const logical = [...(relayoutScales(quantizedTensor, "rowwise", "logical").dataSync() as Uint8Array)];
      const arrangement = layout === "logical" ? "plain" : layout;
      const readings = scaleReadings(quantizedTensor.copy("rowwise").scaleInv, quantizer, tile, size);
      const matches = readings.filter(
        (reading) => reading.arrangement === arrangement && reading.form === "scale",
      );
      expect(matches.map(({ scales }) => [...scales])).toContainEqual(logical);
    }),
    { numRuns: draws(60) },
  );
});

it("scales of another type are read only where every number of it is a scale", () => {
  using _scope = new Scope();
  const count = 32 * 4;
  const bytes = new Uint8Array(count).fill(0x38);
  const storedScales: Readonly<Record<string, Tensor>> = {
    e8m0: tensor(backend(), bytes, [32, 4], "e8m0"),
    e4m3: tensor(backend(), bytes, [32, 4], "e4m3"),
    u8: tensor(backend(), bytes, [32, 4], "u8"),
    powers: tensor(backend(), new Float32Array(count).fill(0.25), [32, 4]),
    numbers: tensor(backend(), new Float32Array(count).fill(0.3), [32, 4]),
  };
  const WANTED = {
    mxfp8: ["e8m0", "u8", "powers"],
    nvfp4: ["e4m3", "u8"],
  } as const;
  for (const [quantizer, expected] of Object.entries(WANTED) as [keyof typeof WANTED, readonly string[]][]) {
    const tile = blockFormat(quantizer).tiles[0] ?? "tensor";
    const columns = 4 * (quantizer === "mxfp8" ? 32 : 16);
    const matches = Object.entries(storedScales).filter(
      ([, scaleTensor]) => scaleReadings(scaleTensor, quantizer, tile, [32, columns]).length > 0,
    );
    expect(matches.map(([name]) => name)).toEqual(expected);
  }
});

it("one over a power of two is a power of two, and over NaN nothing", () => {
  using _scope = new Scope();
  const readings = (code: number) =>
    scaleReadings(
      tensor(backend(), new Uint8Array(8).fill(120).fill(code, 3, 4), [4, 2], "e8m0"),
      "mxfp8",
      "1x32",
      [4, 64],
    ).filter(({ form, arrangement }) => form === "reciprocal" && arrangement === "plain");
  expect(readings(254).map(({ scales }) => [...scales])).toEqual([[134, 134, 134, 0, 134, 134, 134, 134]]);
  expect(readings(255)).toEqual([]);
});

it.each(FORMATS)("bytes without a type are codes of %s only if each has as few bits", (format) => {
  using _scope = new Scope();
  const { bits } = factsOf(format);
  const formatsOf = (byteValue: number): readonly ScalarFormat[] =>
    codeReadings(tensor(backend(), new Uint8Array(64).fill(byteValue, 5, 6), [2, 32], "u8"), [2, 32]).map(
      (row) => row.format,
    );
  expect(formatsOf(2 ** bits - 1)).toContain(format);
  if (bits < 8) expect(formatsOf(2 ** bits)).not.toContain(format);
});

/** The byte of two codes of four bits. */
const pair = (low: number | undefined, high: number | undefined): number => (low ?? 0) | ((high ?? 0) << 4);
/** The bytes of a block whose first half is in the low nibbles. */
const halvesOf = (block: readonly number[]): number[] =>
  Array.from({ length: block.length / 2 }, (_, i) => pair(block[i], block[i + block.length / 2]));

/** Each packing: the number of codes that a line has a multiple of, their bits, and the bytes of that many codes. */
const PACKINGS: Readonly<
  Record<CodePacking, readonly [block: number, bits: number, (codes: readonly number[]) => readonly number[]]>
> = {
  "byte each": [1, 8, (codes) => codes],
  "low nibble first": [2, 4, ([a, b]) => [pair(a, b)]],
  "high nibble first": [2, 4, ([a, b]) => [pair(b, a)]],
  "halves of 32": [32, 4, halvesOf],
  "halves of 16": [16, 4, halvesOf],
  "eight in a word, plus 8": [
    8,
    4,
    (codes) => [0, 2, 4, 6].map((i) => pair(((codes[i] ?? 0) + 8) % 16, ((codes[i + 1] ?? 0) + 8) % 16)),
  ],
  "six bits": [
    4,
    6,
    (codes) => {
      const word = codes.reduce((sum, code, i) => sum + code * 64 ** i, 0);
      return [0, 8, 16].map((bit) => (word >> bit) & 255);
    },
  ],
};

it("codes in every packing are read, of a matrix or its transpose, if its lines consist of whole blocks", () => {
  const cases = fc.record({
    packing: fc.constantFrom(...(Object.keys(PACKINGS) as CodePacking[])),
    blocks: fc.integer({ min: 1, max: 7 }),
    lines: fc.integer({ min: 1, max: 7 }),
    isTransposed: fc.boolean(),
    seed: fc.nat(1000),
  });
  fc.assert(
    fc.property(cases, ({ packing, blocks, lines, isTransposed, seed }) => {
      using _scope = new Scope();
      const [block, bits, pack] = PACKINGS[packing];
      const width = block * blocks;
      // the orientation of a square matrix is unknown
      fc.pre(width !== lines);
      const storedCodes = Array.from({ length: lines * width }, (_, i) => ((i + seed) * 37) % 2 ** bits);
      const bytes = Uint8Array.from(
        Array.from({ length: lines * blocks }, (_, i) =>
          pack(storedCodes.slice(block * i, block * (i + 1))),
        ).flat(),
      );
      const isWord = packing === "eight in a word, plus 8";
      const shape = [lines, bytes.length / lines / (isWord ? 4 : 1)];
      const codes = isWord
        ? tensor(backend(), new Int32Array(bytes.buffer), shape, "i32")
        : tensor(backend(), bytes, shape, "u8");
      const size = isTransposed ? ([width, lines] as const) : ([lines, width] as const);
      const expected = isTransposed
        ? Array.from(
            { length: lines * width },
            (_, i) => storedCodes[(i % lines) * width + Math.floor(i / lines)],
          )
        : storedCodes;
      const readings = codeReadings(codes, size).filter((reading) => reading.transposed === isTransposed);
      const codesOf = (name: CodePacking) =>
        readings.filter((reading) => reading.packing === name).map((reading) => [...reading.codes]);
      expect(codesOf(packing)).toContainEqual(expected);
      for (const name of ["halves of 16", "halves of 32"] as const)
        if (width % PACKINGS[name][0] !== 0) expect(codesOf(name)).toEqual([]);
    }),
    { numRuns: draws(1000, 200), seed: derivedSeed(148) },
  );
});

/** Numbers over all binades, so that each block has a different scale. */
const ordinary = (rows: number, columns: number): Tensor =>
  tensor(
    backend(),
    Float32Array.from({ length: rows * columns }, (_, i) => Math.sin(i) * 2 ** ((i >> 4) % 7)),
    [rows, columns],
  );

it("the option quantizer restricts the readings to that quantizer", () => {
  using _scope = new Scope();
  const x = ordinary(4, 64);
  const quantizer = new SpecQuantizer(makeSpec("mxfp8", { format: "e4m3" }), {
    rowwise: true,
    columnwise: false,
    scaleLayout: "logical",
  });
  const { data, scaleInv } = quantizer.quantize(x).copy("rowwise");
  const codes = tensor(backend(), (data.dataSync() as Uint8Array).slice(), [4, 64], "u8");
  const storedTensors = { codes, scales: scaleInv };
  const identification = identifyDialect(x, storedTensors);
  expect(identifyDialect(x, { ...storedTensors, quantizer: "mxfp8" })).toEqual(identification);
  expect(identification.readings.map(({ quantizer }) => quantizer)).toContain("mxfp8");
  expect(() => identifyDialect(x, { ...storedTensors, quantizer: "nvfp4" })).toThrow(/fit no quantizer/);
});

it.each([
  ["as the rule stores it", (amax: number) => amax],
  ["reciprocal", (amax: number) => 1 / amax],
  ["decode scale", (amax: number) => amax / 2688],
  ["encode scale", (amax: number) => 2688 / amax],
] as const)(
  "the form in which an NVFP4 tensor's second scale is stored is identified: %s",
  (form, convert) => {
    using _scope = new Scope();
    const x = ordinary(16, 64);
    const quantizer = new SpecQuantizer(makeSpec("nvfp4", {}), {
      rowwise: true,
      columnwise: false,
      scaleLayout: "logical",
    });
    const { data, scaleInv, amax } = quantizer.quantize(x).copy("rowwise");
    const storedScale = Math.fround(convert(Number(amax?.dataSync()[0])));
    const formOf = (value: number) =>
      identifyDialect(x, {
        codes: data,
        scales: scaleInv,
        tensorScale: tensor(backend(), Float32Array.of(value), [1]),
      });
    // other rules may have the same block scales under another tensor scale
    const formsOf = (value: number) =>
      formOf(value).readings.flatMap(({ scaleRule, tensorScale }) =>
        scaleRule === "twoLevel" ? [tensorScale] : [],
      );
    expect([...new Set(formsOf(storedScale))]).toEqual([form]);
    expect(formsOf(Math.fround(storedScale * 1.5))).toEqual([]);
  },
);
