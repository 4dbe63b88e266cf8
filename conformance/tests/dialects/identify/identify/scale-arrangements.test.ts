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
const up = (size: number, multiple: number): number => Math.ceil(size / multiple) * multiple;

/** The rows and columns of a buffer for `down` lines of `across` scales, and whether it holds the transpose. */
const BUFFERS: readonly (readonly [
  ScaleArrangement,
  (down: number, across: number) => readonly [number, number],
  boolean,
])[] = [
  ["plain", (down, across) => [down, across], false],
  ["transposed", (down, across) => [across, down], true],
  ["padded", (down, across) => [up(down, 128), up(across, 4)], false],
  ["padded", (down, across) => [down, up(across, 4)], false],
  ["padded, transposed", (down, across) => [across, up(down, 4)], true],
];

describe.each(sampleCases(BUFFERS))("scales %s, buffer %#", (arrangement, sizeOf, isTransposed) => {
  it("are read in the order of blocks", () => {
    const size = fc.integer({ min: 2, max: 150 });
    fc.assert(
      fc.property(size, fc.integer({ min: 2, max: 13 }), (down, across) => {
        using _scope = new Scope();
        const [rows, columns] = sizeOf(down, across);
        const scales = Uint8Array.from({ length: down * across }, (_, i) => (i * 7) % 251);
        const stored = new Uint8Array(rows * columns).fill(252);
        for (const [at, scale] of scales.entries()) {
          const [i, j] = [Math.floor(at / across), at % across];
          stored[isTransposed ? j * columns + i : i * columns + j] = scale;
        }
        const readings = scaleReadings(tensor(backend(), stored, [rows, columns], "u8"), "mxfp8", "1x32", [
          down,
          32 * across,
        ]);
        const matches = readings.filter(({ form }) => form === "scale");
        // an unpadded buffer is a plain or a transposed one
        const isPadded = rows * columns > down * across;
        const name = isPadded ? arrangement : isTransposed ? "transposed" : "plain";
        expect(matches.map((match) => [match.arrangement, [...match.scales]])).toContainEqual([
          name,
          [...scales],
        ]);
      }),
      { numRuns: draws(60) },
    );
  });
});

it("f32 scales are those of e8m0 for each power of two that it has, and for nothing else", () => {
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
  for (const other of [0, -1, 2 ** -128, 2 ** 128, Number.NaN, 3, 1 + 2 ** -23])
    expect(codesOf(other)).toEqual([]);
});

/** Numbers over many binades, so that neighbouring blocks have different scales. */
function drawn(size: readonly [number, number], dtype: "f32" | "bf16" = "f32"): Tensor<"f32" | "bf16"> {
  const next = splitmix32(9);
  const words = Uint16Array.from({ length: size[0] * size[1] }, (_, i) => {
    const exponent = 120 + ((Math.floor(i / 16) * 5) % 9);
    return (next() % 2) * 2 ** 15 + exponent * 2 ** 7 + (next() % 2 ** 7);
  });
  if (dtype === "bf16") return tensor(backend(), words, size, "bf16");
  return tensor(backend(), new Float32Array(Uint32Array.from(words, (word) => word << 16).buffer), size);
}

describe("the place of a scale that differs", () => {
  const CASES: readonly (readonly [DialectName, readonly [number, number], (at: number) => string])[] = [
    ["ct-mxfp8", [4, 128], (at) => `of the block at [${Math.floor(at / 4)}, ${(at % 4) * 32}]`],
    ["torchao-nvfp4", [16, 64], (at) => `of the block at [${Math.floor(at / 4)}, ${(at % 4) * 16}]`],
    ["ct-fp8-block", [256, 384], (at) => `of the block at [${Math.floor(at / 3) * 128}, ${(at % 3) * 128}]`],
    ["fbgemm-fp8", [8, 32], (at) => `of row ${at}`],
    ["modelopt-fp8", [4, 32], () => "of the tensor"],
  ];

  it.each(sampleCases(CASES))("%s: is that of its first element", (dialect, size, placeOf) => {
    using _scope = new Scope();
    const x = drawn(size);
    const quantized = quantizerOf({ dialect }).quantize(x);
    const { spec } = quantized;
    const { data, scaleInv } = quantized.copy("rowwise");
    const stored = scaleInv.dataSync();
    for (const at of sampleCases([...stored.keys()], 4)) {
      const other = stored.slice() as Float32Array | Uint8Array;
      other[at] = other instanceof Float32Array ? (other[at] as number) * 1.5 : (other[at] as number) ^ 1;
      const scales =
        other instanceof Float32Array
          ? tensor(backend(), other, scaleInv.shape)
          : tensor(backend(), other, scaleInv.shape, scaleInv.dtype as "e8m0");
      const { nearest } = identifyDialect(x, { codes: data, scales, quantizer: spec.quantizer });
      expect(nearest?.words).toContain(`that ${placeOf(at)} is `);
    }
  });
});

describe.each(["torchao-mxfp4-rceil", "modelopt-mxfp4"] as const)("%s", (dialect) => {
  it("excludes the other dialects for the same reasons however its scales lie", () => {
    using _scope = new Scope();
    const x = drawn([128, 256]);
    const excludedBy = (scaleLayout: "logical" | "padded" | "swizzled") => {
      const { data, scaleInv } = quantizerOf({ dialect, scaleLayout }).quantize(x).copy("rowwise");
      return identifyDialect(x, { codes: data, scales: scaleInv }).excluded;
    };
    const plain = excludedBy("logical");
    expect(plain.some(({ because }) => because.startsWith("the code at"))).toBe(true);
    for (const layout of ["padded", "swizzled"] as const) expect(excludedBy(layout)).toEqual(plain);
  });
});

/** The products of an element and its scale that a kernel may round, and the words that report them. */
const PRODUCTS = {
  "x / s": (x: number, s: number) => Math.fround(x / s),
  "x * (1 / s)": (x: number, s: number) => Math.fround(x * Math.fround(1 / s)),
} as const;

describe.each(sampleCases(Object.entries(PRODUCTS), 1))("elements %s", (formula, of) => {
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
        const x = drawn(size, dtype);
        const { scaleInv } = quantizerOf({ dialect: "fbgemm-fp8" }).quantize(x).copy("rowwise");
        const scales = scaleInv.dataSync() as Float32Array;
        const wide = castTo(x, "f32").dataSync() as Float32Array;
        const exact = wide.map((value, i) => of(value, scales[Math.floor(i / size[1])] as number));
        const products = tensor(backend(), exact, size);
        const codes = encode(isTyped ? castTo(products, "bf16") : products, { format: "e4m3", rounding });
        const stored = { codes, scales: scaleInv, quantizer: "fp8-row" } as const;
        const elementTrials = identifyDialect(x, stored).readings.flatMap(({ elements }) => elements);
        expect(elementTrials.map((each) => each.rounding)).not.toContain("stochastic");
        const descriptions = elementTrials.map((each) => each.words);
        const typed = isTyped ? ", rounded to bf16" : "";
        // data that cannot distinguish products are explained by the first one, and data without ties by a rule of the tables
        const all = Object.keys(PRODUCTS).slice(0, 1 + Object.keys(PRODUCTS).indexOf(formula));
        const expected = all.map((each) => `elements ${each}${typed}, ${words}`);
        if (isTyped || rounding === "towardZero")
          expect(expected).toEqual(expect.arrayContaining(descriptions));
        expect(descriptions.length).toBeGreaterThan(0);
      }
    },
  );
});

it("a matrix that is not whole groups has no reading by them", () => {
  using _scope = new Scope();
  const x = drawn([4, 48]);
  const codes = tensor(backend(), new Uint8Array(4 * 24), [4, 24], "u8");
  const scales = tensor(backend(), new Uint8Array(8).fill(127), [4, 2], "u8");
  expect(() => identifyDialect(x, { codes, scales })).toThrow(ShapeError);
  expect(() => identifyDialect(x, { codes, scales })).toThrow(/fit no quantizer of a \[4,48\] matrix/);
});
