/** `identifyDialect` reads scales in every arrangement, finds every power of two, and names the positions of blocks. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { identifyDialect } from "../../../../../src/dialects/identify/identify.js";
import { type ScaleArrangement, scaleReadings } from "../../../../../src/dialects/identify/readings.js";
import { quantizerOf } from "../../../../../src/dialects/quantizer-of.js";
import type { DialectName } from "../../../../../src/dialects/table.js";
import { ShapeError } from "../../../../../src/errors.js";
import { castTo, encode } from "../../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../../src/ops/create.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";
import { splitmix32 } from "../../../../arbitraries/random.js";
import { draws, sampleCases } from "../../../harness/draws.js";
import { IS_FULL } from "../../../harness/full.js";
import { useBackend } from "../../../harness/suite.js";

const backend = useBackend({ threads: 1 });
const roundUp = (size: number, multiple: number): number => Math.ceil(size / multiple) * multiple;

/**
 * The rows and columns of a buffer for `scaleRows` lines of `scaleColumns` scales, and whether the buffer holds the transpose.
 */
const BUFFERS: readonly (readonly [
  ScaleArrangement,
  (scaleRows: number, scaleColumns: number) => readonly [number, number],
  boolean,
])[] = [
  ["plain", (scaleRows, scaleColumns) => [scaleRows, scaleColumns], false],
  ["transposed", (scaleRows, scaleColumns) => [scaleColumns, scaleRows], true],
  ["padded", (scaleRows, scaleColumns) => [roundUp(scaleRows, 128), roundUp(scaleColumns, 4)], false],
  ["padded", (scaleRows, scaleColumns) => [scaleRows, roundUp(scaleColumns, 4)], false],
  ["padded, transposed", (scaleRows, scaleColumns) => [scaleColumns, roundUp(scaleRows, 4)], true],
];

describe.each(sampleCases(BUFFERS))("scales %s, buffer %#", (arrangement, sizeOf, isTransposed) => {
  it("are read in the order of blocks", () => {
    const size = fc.integer({ min: 2, max: 150 });
    fc.assert(
      fc.property(size, fc.integer({ min: 2, max: 13 }), (scaleRows, scaleColumns) => {
        using _scope = new Scope();
        const [rows, columns] = sizeOf(scaleRows, scaleColumns);
        const scales = Uint8Array.from({ length: scaleRows * scaleColumns }, (_, i) => (i * 7) % 251);
        const storedScales = new Uint8Array(rows * columns).fill(252);
        for (const [index, scale] of scales.entries()) {
          const [i, j] = [Math.floor(index / scaleColumns), index % scaleColumns];
          storedScales[isTransposed ? j * columns + i : i * columns + j] = scale;
        }
        const readings = scaleReadings(
          tensor(backend(), storedScales, [rows, columns], "u8"),
          "mxfp8",
          "1x32",
          [scaleRows, 32 * scaleColumns],
        );
        const matches = readings.filter(({ form }) => form === "scale");
        // an unpadded buffer is a plain or a transposed one
        const isPadded = rows * columns > scaleRows * scaleColumns;
        const name = isPadded ? arrangement : isTransposed ? "transposed" : "plain";
        expect(matches.map((reading) => [reading.arrangement, [...reading.scales]])).toContainEqual([
          name,
          [...scales],
        ]);
      }),
      { numRuns: draws(60) },
    );
  });
});

it("f32 scales are read as e8m0 codes exactly if they are powers of two in the range of e8m0", () => {
  using _scope = new Scope();
  const codesOf = (value: number): readonly number[][] =>
    scaleReadings(
      tensor(backend(), new Float32Array(8).fill(value), [4, 2]),
      "mxfp8",
      "1x32",
      [4, 64],
    ).flatMap(({ arrangement, form, scales }) =>
      arrangement === "plain" && form === "scale" ? [[...scales]] : [],
    );
  for (let code = 0; code < 255; code++)
    expect(codesOf(2 ** (code - 127))).toEqual([new Array(8).fill(code)]);
  for (const otherScale of [0, -1, 2 ** -128, 2 ** 128, Number.NaN, 3, 1 + 2 ** -23])
    expect(codesOf(otherScale)).toEqual([]);
});

/** Numbers over many binades, so that neighbouring blocks have different scales. */
function drawMatrix(size: readonly [number, number], dtype: "f32" | "bf16" = "f32"): Tensor<"f32" | "bf16"> {
  const next = splitmix32(9);
  const bf16Bits = Uint16Array.from({ length: size[0] * size[1] }, (_, i) => {
    const exponent = 120 + ((Math.floor(i / 16) * 5) % 9);
    return (next() % 2) * 2 ** 15 + exponent * 2 ** 7 + (next() % 2 ** 7);
  });
  if (dtype === "bf16") return tensor(backend(), bf16Bits, size, "bf16");
  return tensor(backend(), new Float32Array(Uint32Array.from(bf16Bits, (word) => word << 16).buffer), size);
}

describe("the place of a scale that differs", () => {
  const CASES: readonly (readonly [DialectName, readonly [number, number], (index: number) => string])[] = [
    ["ct-mxfp8", [4, 128], (index) => `of the block at [${Math.floor(index / 4)}, ${(index % 4) * 32}]`],
    ["torchao-nvfp4", [16, 64], (index) => `of the block at [${Math.floor(index / 4)}, ${(index % 4) * 16}]`],
    [
      "ct-fp8-block",
      [256, 384],
      (index) => `of the block at [${Math.floor(index / 3) * 128}, ${(index % 3) * 128}]`,
    ],
    ["fbgemm-fp8", [8, 32], (index) => `of row ${index}`],
    ["modelopt-fp8", [4, 32], () => "of the tensor"],
  ];

  it.each(sampleCases(CASES))("%s: is that of its first element", (dialect, size, placeOf) => {
    using _scope = new Scope();
    const x = drawMatrix(size);
    const quantizedTensor = quantizerOf({ dialect }).quantize(x);
    const { spec } = quantizedTensor;
    const { data, scaleInv } = quantizedTensor.copy("rowwise");
    const storedScales = scaleInv.dataSync();
    for (const index of sampleCases([...storedScales.keys()], 4)) {
      const alteredScales = storedScales.slice() as Float32Array | Uint8Array;
      alteredScales[index] =
        alteredScales instanceof Float32Array
          ? (alteredScales[index] as number) * 1.5
          : (alteredScales[index] as number) ^ 1;
      const scales =
        alteredScales instanceof Float32Array
          ? tensor(backend(), alteredScales, scaleInv.shape)
          : tensor(backend(), alteredScales, scaleInv.shape, scaleInv.dtype as "e8m0");
      const { nearest } = identifyDialect(x, { codes: data, scales, quantizer: spec.quantizer });
      expect(nearest?.words).toContain(`that ${placeOf(index)} is `);
    }
  });
});

describe.each(["torchao-mxfp4-rceil", "modelopt-mxfp4"] as const)("%s", (dialect) => {
  it("excludes the other dialects for the same reasons however its scales lie", () => {
    using _scope = new Scope();
    const x = drawMatrix([128, 256]);
    const excludedBy = (scaleLayout: "logical" | "padded" | "swizzled") => {
      const { data, scaleInv } = quantizerOf({ dialect, scaleLayout }).quantize(x).copy("rowwise");
      return identifyDialect(x, { codes: data, scales: scaleInv }).excluded;
    };
    const expectedExclusions = excludedBy("logical");
    expect(expectedExclusions.some(({ because }) => because.startsWith("the code at"))).toBe(true);
    for (const layout of ["padded", "swizzled"] as const)
      expect(excludedBy(layout)).toEqual(expectedExclusions);
  });
});

/** The products of an element and its scale that a kernel may round, and the words that report them. */
const PRODUCTS = {
  "x / s": (x: number, scale: number) => Math.fround(x / scale),
  "x * (1 / s)": (x: number, scale: number) => Math.fround(x * Math.fround(1 / scale)),
} as const;

describe.each(sampleCases(Object.entries(PRODUCTS), 1))("elements %s", (formula, multiply) => {
  it.each([
    ["bf16", "tiesToAway", "half away from zero"],
    ["bf16", "towardZero", "toward zero"],
    ["f32", "tiesToAway", "half away from zero"],
    ["f32", "towardZero", "toward zero"],
  ] as const)(
    "of %s, rounded %s, are identified, and not reported as random rounding",
    (dtype, rounding, words) => {
      using _scope = new Scope();
      const size = [128, IS_FULL ? 512 : 128] as const;
      for (const isTyped of dtype === "bf16" ? [false, true] : [false]) {
        const x = drawMatrix(size, dtype);
        const { scaleInv } = quantizerOf({ dialect: "fbgemm-fp8" }).quantize(x).copy("rowwise");
        const scales = scaleInv.dataSync() as Float32Array;
        const wideValues = castTo(x, "f32").dataSync() as Float32Array;
        const exact = wideValues.map((value, i) =>
          multiply(value, scales[Math.floor(i / size[1])] as number),
        );
        const products = tensor(backend(), exact, size);
        const codes = encode(isTyped ? castTo(products, "bf16") : products, { format: "e4m3", rounding });
        const storedTensors = { codes, scales: scaleInv, quantizer: "fp8-row" } as const;
        const elementTrials = identifyDialect(x, storedTensors).readings.flatMap(({ elements }) => elements);
        expect(elementTrials.map((trial) => trial.rounding)).not.toContain("stochastic");
        const descriptions = elementTrials.map((trial) => trial.words);
        const typeNote = isTyped ? ", rounded to bf16" : "";
        // data that cannot distinguish products are explained by the first one, and data without ties by a rule of the tables
        const formulas = Object.keys(PRODUCTS).slice(0, 1 + Object.keys(PRODUCTS).indexOf(formula));
        const expected = formulas.map((elementFormula) => `elements ${elementFormula}${typeNote}, ${words}`);
        if (isTyped || rounding === "towardZero")
          expect(expected).toEqual(expect.arrayContaining(descriptions));
        expect(descriptions.length).toBeGreaterThan(0);
      }
    },
  );
});

it("a matrix that is not whole groups has no reading by them", () => {
  using _scope = new Scope();
  const x = drawMatrix([4, 48]);
  const codes = tensor(backend(), new Uint8Array(4 * 24), [4, 24], "u8");
  const scales = tensor(backend(), new Uint8Array(8).fill(127), [4, 2], "u8");
  expect(() => identifyDialect(x, { codes, scales })).toThrow(ShapeError);
  expect(() => identifyDialect(x, { codes, scales })).toThrow(/fit no quantizer of a \[4,48\] matrix/);
});
