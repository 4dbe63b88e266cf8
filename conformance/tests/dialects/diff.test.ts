/** `diffDialects` counts and explains the differences between two dialects, and agrees with `dequantizeAs`. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { dequantizeAs } from "../../../src/dialects/dequantize.js";
import { diffDialects } from "../../../src/dialects/diff.js";
import { numberText } from "../../../src/dialects/plain.js";
import { quantizerOf } from "../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "../../../src/dialects/table.js";
import { ArgumentError } from "../../../src/errors.js";
import {
  type BlockFormatName,
  blockFormat,
  blocksIn,
  type Tile,
  tileSize,
} from "../../../src/formats/block.js";
import { valueOfCode } from "../../../src/formats/derive.js";
import { FORMAT_ALIASES } from "../../../src/formats/scalar.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { fromBytes, tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import { storageBits, WIDE_DTYPES } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });
const SIZE = [32, 64] as const;

const quantizersOf = (name: DialectName): readonly BlockFormatName[] => {
  const { forms }: Dialect = DIALECTS[name];
  return forms.map(({ quantizer }) => quantizer);
};
/** Pairs of dialects with a common quantizer, format and tile. */
const PAIRS = DIALECT_NAMES.flatMap((a) =>
  DIALECT_NAMES.filter((b) => quantizersOf(a).some((name) => quantizersOf(b).includes(name))).map(
    (b) => [a, b] as const,
  ),
);

/** Pairs of dialects of NVFP4, whose scale of the tensor is an amax, a factor, a divisor or 1. */
const TENSOR_PAIRS = PAIRS.filter(
  ([a, b]) => quantizersOf(a)[0] === "nvfp4" && (b === "te" || b === "ct-nvfp4"),
);

interface Drawn {
  readonly pair: readonly [DialectName, DialectName];
  readonly seed: number;
  readonly dtype: "f32" | "bf16";
  readonly examples: number | undefined;
}

/** Bit patterns of any kind: finite, infinite, NaN, subnormal, and zeros. */
function drawPatterns(seed: number, dtype: "f32" | "bf16"): Tensor {
  const next = splitmix32(seed);
  const patterns = Uint32Array.from({ length: SIZE[0] * SIZE[1] }, () => {
    const word = next();
    return word % 5 === 0 ? word : (((word >>> 8) % 2 ** 23) + ((120 + (word % 10)) << 23)) >>> 0;
  });
  if (dtype === "f32") return fromBytes(backend(), new Uint8Array(patterns.buffer), SIZE, "f32");
  const halves = Uint16Array.from(patterns, (word) => word >>> 16);
  return fromBytes(backend(), new Uint8Array(halves.buffer), SIZE, "bf16");
}

/** The number of equal elements. */
const equalCount = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Array.from(a, (element, i) => Number(Object.is(element, b[i]))).reduce((sum, element) => sum + element, 0);

/** One side of a difference, as numbers. */
interface Numbers {
  readonly codes: readonly number[];
  readonly scales: ArrayLike<number>;
  readonly tensorScale: number | undefined;
  readonly values: Float32Array;
}

/** The index of the scale of each element: a line of scales belongs to one row, or to all rows of a tile. */
function scaleIndices(tile: Tile, scales: number): readonly number[] {
  const [height, width] = tileSize(tile);
  const scalesPerRow = blocksIn(SIZE[1], width);
  const tileRows = scales === scalesPerRow * SIZE[0] ? 1 : height;
  return Array.from({ length: SIZE[0] * SIZE[1] }, (_, i) => {
    const [row, column] = [Math.floor(i / SIZE[1]), i % SIZE[1]];
    return scales === 1 ? 0 : Math.floor(row / tileRows) * scalesPerRow + Math.floor(column / width);
  });
}

/** Kinds and positions of the examples: at most `most` of each kind, and one for each block. */
function examplesOf(
  a: Numbers,
  b: Numbers,
  scaleOf: readonly number[],
  maxPerKind: number,
): readonly unknown[] {
  const scalesSeen = new Set<number>();
  const counts = { scale: [] as unknown[], code: [] as unknown[], value: [] as unknown[] };
  for (const [i, scale] of scaleOf.entries()) {
    const isSame = (get: (side: Numbers) => unknown): boolean => Object.is(get(a), get(b));
    const [code, value] = [isSame(({ codes }) => codes[i]), isSame(({ values }) => values[i])];
    if (code && value) continue;
    const haveEqualScale = isSame(({ scales }) => scales[scale]) && isSame(({ tensorScale }) => tensorScale);
    const kind = !haveEqualScale ? "scale" : !code ? "code" : "value";
    if (counts[kind].length === maxPerKind || scalesSeen.has(scale)) continue;
    scalesSeen.add(scale);
    counts[kind].push([kind, Math.floor(i / SIZE[1]), i % SIZE[1]]);
  }
  return [...counts.scale, ...counts.code, ...counts.value];
}

/** The largest error and the signal-to-noise ratio, over elements where both numbers are finite. */
function errorsOf(x: Float32Array, values: Float32Array): { max: number; sqnr: number } {
  const pairs = Array.from(x, (element, i) => [element, values[i] as number] as const).filter((pair) =>
    pair.every(Number.isFinite),
  );
  const signal = pairs.reduce((sum, [element]) => sum + element ** 2, 0);
  const noise = pairs.reduce((sum, [element, value]) => sum + (value - element) ** 2, 0);
  const sqnr = noise === 0 ? Number.POSITIVE_INFINITY : 10 * Math.log10(signal / noise);
  return { max: Math.max(0, ...pairs.map(([element, value]) => Math.abs(value - element))), sqnr };
}

describe("diffDialects", () => {
  it("counts what quantizing and dequantizing by both gives, for any input and any two dialects", () => {
    const cases = fc.record<Drawn>({
      pair: fc.constantFrom(...PAIRS),
      seed: fc.nat(),
      dtype: fc.constantFrom("f32", "bf16"),
      examples: fc.constantFrom(undefined, 0, 1, 3),
    });
    fc.assert(
      fc.property(cases, ({ pair: [a, b], seed, dtype, examples }) => {
        using _scope = new Scope();
        const x = drawPatterns(seed, dtype);
        const diff = diffDialects(x, { a, b, examples });
        const { quantizer, format, tile } = diff.a;
        expect(quantizersOf(a).find((name) => quantizersOf(b).includes(name))).toBe(quantizer);
        const resultOf = (dialect: DialectName): Numbers => {
          const quantizedTensor = quantizerOf({ dialect, quantizer, format, tile }).quantize(x);
          const { data, scaleInv, amax } = quantizedTensor.copy("rowwise");
          const bytes = Array.from(data.dataSync() as Uint8Array);
          return {
            codes: storageBits(data.dtype) === 4 ? bytes.flatMap((byte) => [byte & 15, byte >> 4]) : bytes,
            scales: scaleInv.dataSync() as Float32Array,
            tensorScale: amax && Number(amax.dataSync()[0]),
            values: dequantizeAs(quantizedTensor, { dialect, dtype: "f32" }).dataSync() as Float32Array,
          };
        };
        const [resultA, resultB] = [resultOf(a), resultOf(b)];
        const scaleOf = scaleIndices(tile, resultA.scales.length);
        const count = (elements: ArrayLike<number>, otherElements: ArrayLike<number>) => ({
          different: elements.length - equalCount(elements, otherElements),
          of: elements.length,
        });
        expect(diff.scales).toEqual(count(resultA.scales, resultB.scales));
        expect(diff.values).toEqual(count(resultA.values, resultB.values));
        expect(diff.codes).toEqual(count(resultA.codes, resultB.codes));
        const codesOfEqualScales = scaleOf.filter(
          (scale, i) =>
            resultA.codes[i] !== resultB.codes[i] &&
            Object.is(resultA.scales[scale], resultB.scales[scale]) &&
            Object.is(resultA.tensorScale, resultB.tensorScale),
        );
        expect(diff.codesOfEqualScales).toBe(codesOfEqualScales.length);
        const values = castTo(x as Tensor<"f32">, "f32").dataSync() as Float32Array;
        for (const [side, result] of [[diff.errors.a, resultA] as const, [diff.errors.b, resultB] as const]) {
          const { max, sqnr } = errorsOf(values, result.values);
          expect(side.max).toBe(max);
          if (Number.isFinite(sqnr)) expect(side.sqnr).toBeCloseTo(sqnr, 6);
          else expect(side.sqnr).toBe(sqnr);
        }
        if (a === b)
          expect([diff.codes.different, diff.scales.different, diff.values.different]).toEqual([0, 0, 0]);
        const positions = diff.examples.map(({ kind, at }) => [kind, ...at]);
        expect(positions).toEqual(examplesOf(resultA, resultB, scaleOf, examples ?? 2));
        for (const { at, x: element, a: explainedA, b: explainedB, words } of diff.examples) {
          const i = at[0] * SIZE[1] + at[1];
          expect(element).toBe(values[i]);
          const { scale } = blockFormat(quantizer);
          for (const [side, result] of [[explainedA, resultA] as const, [explainedB, resultB] as const]) {
            const storedScale = result.scales[scaleOf[i] as number] as number;
            expect(side).toEqual({
              code: result.codes[i],
              value: result.values[i],
              // a scale has no sign: the code 0x80 of e4m3 does not occur
              scale: scale === "f32" ? storedScale : valueOfCode(scale, storedScale),
            });
          }
          expect(words).toContain(`[${at.join(", ")}]: x = ${numberText(element)}`);
          for (const { value } of [explainedA, explainedB]) expect(words).toContain(numberText(value));
        }
      }),
      {
        numRuns: draws(200, TENSOR_PAIRS.length + 4),
        examples: TENSOR_PAIRS.map((pair, seed): [Drawn] => [
          { pair, seed, dtype: "f32", examples: undefined },
        ]),
      },
    );
  });

  it("explains the scale of a block whose largest element lies between two rules", () => {
    using _scope = new Scope();
    const x = tensor(backend(), new Float32Array(32 * 32).fill(500), [32, 32]);
    const { scales, codes, examples, errors } = diffDialects(x, { a: "te", b: "torchao-mxfp8-floor" });
    expect([scales, codes]).toEqual([
      { different: 32, of: 32 },
      { different: 1024, of: 1024 },
    ]);
    expect(errors.a).toEqual({ max: 12, sqnr: 20 * Math.log10(500 / 12) });
    expect(errors.b.max).toBe(52);
    expect(examples[0]?.words).toBe(
      "[0, 0]: x = 500; te has the scale 2 (the least power of two from amax * fl(1 / max)): code 0x78, value 512; torchao-mxfp8-floor has the scale 1 (2^(floor(log2 amax) - emax)): code 0x7e, the largest, value 448",
    );
  });

  it("says of either sign that a code is the largest, and of no other", () => {
    using _scope = new Scope();
    const x = tensor(backend(), new Float32Array(32 * 32).fill(-500), [32, 32]);
    const { examples } = diffDialects(x, { a: "te", b: "torchao-mxfp8-floor" });
    expect(examples[0]?.words).toContain("code 0xf8, value -512");
    expect(examples[0]?.words).toContain("code 0xfe, the largest, value -448");
  });

  it("explains equal codes that two libraries read as other values", () => {
    using _scope = new Scope();
    const x = tensor(backend(), new Float32Array(32 * 32).fill(3), [32, 32]);
    const { codes, values } = diffDialects(x, { a: "modelopt-fp8", b: "torchao-fp8-tensor" });
    expect(codes.different).toBe(0);
    expect(values.different).toBe(0);
    const halfway = castTo(tensor(backend(), new Float32Array(32 * 32).fill(3.0078125), [32, 32]), "bf16");
    const diff = diffDialects(halfway, { a: "modelopt-fp8", b: "torchao-fp8-tensor" });
    expect(diff.scales.different).toBe(1);
  });

  it("takes a format by any of its names", () => {
    using _scope = new Scope();
    const x = drawPatterns(4, "f32");
    const options = { a: "te", b: "torchao-mxfp8-floor", quantizer: "mxfp8" } as const;
    const aliases = Object.entries(FORMAT_ALIASES).flatMap(([alias, format]) =>
      format === "e5m2" ? [alias] : [],
    );
    expect(aliases.length).toBeGreaterThan(0);
    for (const format of aliases)
      expect(diffDialects(x, { ...options, format: format as "e5m2" })).toEqual(
        diffDialects(x, { ...options, format: "e5m2" }),
      );
  });

  it.each([
    [
      { a: "ct-mxfp8", b: "ct-nvfp4" },
      /ct-mxfp8 and ct-nvfp4 do not both have a quantizer; ct-mxfp8 has mxfp8/,
    ],
    [{ a: "te", b: "ct-mxfp8", format: "e5m2" }, /do not both have a format "?e5m2/],
    [{ a: "te", b: "ct-mxfp8", tile: "32x32" }, /do not both have a tile "?32x32/],
    [{ a: "te", b: "ct-mxfp8", quantizer: "nvfp4" }, /do not both have a quantizer "?nvfp4/],
  ] as const)("refuses %j", (options, message) => {
    using _scope = new Scope();
    const x = tensor(backend(), new Float32Array(32 * 32), [32, 32]);
    expect(() => diffDialects(x, options)).toThrow(ArgumentError);
    expect(() => diffDialects(x, options)).toThrow(message);
  });
});

it.each([
  [0, "0"],
  [-0, "-0"],
  [512, "512"],
  [1024, "2^10"],
  [-(2 ** 20), "-2^20"],
  [2 ** -10, "2^-10"],
  [2 ** -9, "0.001953125"],
  [1025, "1025"],
  [Number.POSITIVE_INFINITY, "Infinity"],
  [Number.NaN, "NaN"],
])("the number %d is written %s", (value, text) => expect(numberText(value)).toBe(text));

describe("dequantizeAs", () => {
  const rowOf = (name: DialectName): Dialect => DIALECTS[name];
  const NO_VALUES = DIALECT_NAMES.filter((name) => (DIALECTS[name] as Dialect).values === undefined);

  it("is dequantize where a dialect gives no values", () => {
    expect(NO_VALUES).toContain("te");
    for (const dialect of NO_VALUES) {
      using _scope = new Scope();
      const quantizedTensor = quantizerOf({ dialect }).quantize(drawPatterns(1, "bf16"));
      expect(dequantizeAs(quantizedTensor, { dialect, dtype: "f32" }).dataSync()).toEqual(
        quantizedTensor.dequantize("f32").dataSync(),
      );
    }
  });

  it("rounds to the type of the dialect's values before it converts them", () => {
    using _scope = new Scope();
    const x = tensor(
      backend(),
      Float32Array.from({ length: 1024 }, (_, i) => 1 + i / 1024),
      [32, 32],
    );
    const quantizedTensor = quantizerOf({ dialect: "ct-nvfp4" }).quantize(x);
    const values = dequantizeAs(quantizedTensor, { dialect: "ct-nvfp4" });
    expect(values.dtype).toBe("bf16");
    const wideTensor = dequantizeAs(quantizedTensor, { dialect: "ct-nvfp4", dtype: "f32" });
    expect(wideTensor.dataSync()).toEqual(castTo(values, "f32").dataSync());
    expect(wideTensor.dataSync()).not.toEqual(quantizedTensor.dequantize("f32").dataSync());
  });

  it("gives values in the dialect's type or in the source's type, rounded once more to a requested type", () => {
    const wideDtype = fc.constantFrom(...WIDE_DTYPES);
    const source = fc.constantFrom("f32", "bf16");
    const names = DIALECT_NAMES.filter((name) => !NO_VALUES.includes(name));
    expect(names.length).toBeGreaterThan(0);
    fc.assert(
      fc.property(
        fc.constantFrom(...names),
        source,
        wideDtype,
        fc.nat(),
        (dialect, dtype, requestedDtype, seed) => {
          using _scope = new Scope();
          const type = rowOf(dialect).values?.type;
          const quantizedTensor = quantizerOf({ dialect }).quantize(drawPatterns(seed, dtype));
          const values = dequantizeAs(quantizedTensor, { dialect });
          expect(values.dtype).toBe(type === "source" ? dtype : type);
          const otherTensor = dequantizeAs(quantizedTensor, { dialect, dtype: requestedDtype });
          expect(otherTensor.dtype).toBe(requestedDtype);
          expect(otherTensor.dataSync()).toEqual(castTo(values, requestedDtype).dataSync());
        },
      ),
    );
  });

  it("reads the rowwise copy if a tensor has both copies", () => {
    for (const dialect of DIALECT_NAMES) {
      using _scope = new Scope();
      // magnitudes decrease along rows, so that blocks of columns have different scales
      const x = tensor(
        backend(),
        Float32Array.from({ length: SIZE[0] * SIZE[1] }, (_, i) => Math.sin(i) / 2 ** (i % 9)),
        SIZE,
      );
      const values = (columnwise: boolean) =>
        dequantizeAs(quantizerOf({ dialect, columnwise }).quantize(x), { dialect }).dataSync();
      expect(values(true), dialect).toEqual(values(false));
    }
  });

  it("has no minus zero if a library has none, in either half of a byte, and no other value changes", () => {
    const names = DIALECT_NAMES.filter((name) => rowOf(name).values?.plusZero);
    expect(names.length).toBeGreaterThan(0);
    for (const dialect of names) {
      using _scope = new Scope();
      const smallValues = [-0, -1e-9, 0, 1, -2, -1e-9, -0];
      const x = tensor(
        backend(),
        Float32Array.from({ length: SIZE[0] * SIZE[1] }, (_, i) => smallValues[i % 7] as number),
        SIZE,
      );
      // quantizers that never give minus zero are compared too
      const spec = { ...quantizerOf({ dialect }).spec, elementScaling: "multiply" } as const;
      const quantizer = new SpecQuantizer(spec, {
        rowwise: true,
        columnwise: false,
        scaleLayout: "logical",
      }).quantize(x);
      const codes = quantizer.dequantize("f32").dataSync() as Float32Array;
      expect(
        codes.some((value) => Object.is(value, -0)),
        dialect,
      ).toBe(true);
      const values = dequantizeAs(quantizer, { dialect, dtype: "f32" }).dataSync() as Float32Array;
      expect(
        values.some((value) => Object.is(value, -0)),
        dialect,
      ).toBe(false);
      expect(values.map(Math.sign), dialect).toEqual(codes.map((value) => Math.sign(value) + 0));
    }
  });

  it("rounds scales to the type of the values where a library does", () => {
    const names = DIALECT_NAMES.filter((name) => rowOf(name).values?.typedScale);
    expect(names.length).toBeGreaterThan(0);
    for (const dialect of names) {
      using _scope = new Scope();
      const x = castTo(
        tensor(
          backend(),
          Float32Array.from({ length: SIZE[0] * 128 }, (_, i) => Math.sin(i)),
          [SIZE[0], 128],
        ),
        "bf16",
      );
      const quantizedTensor = quantizerOf({ dialect }).quantize(x);
      const values = dequantizeAs(quantizedTensor, { dialect, dtype: "f32" }).dataSync();
      expect(values, dialect).not.toEqual(castTo(quantizedTensor.dequantize("bf16"), "f32").dataSync());
    }
  });

  it("reads the columnwise copy where there is no other, and swizzled scales", () => {
    for (const dialect of ["modelopt-nvfp4", "modelopt-fp8", "torchao-mxfp4-floor"] as const) {
      using _scope = new Scope();
      const x = drawPatterns(2, "bf16");
      const { quantizer } = DIALECTS[dialect].forms[0];
      const isBytes = blockFormat(quantizer).scale !== "f32";
      const options = {
        dialect,
        columnwise: true,
        rowwise: false,
        scaleLayout: isBytes ? "swizzled" : "logical",
      } as const;
      const quantizedTensor = quantizerOf(options).quantize(x);
      const logical = quantizerOf({ ...options, scaleLayout: "logical" }).quantize(x);
      expect(dequantizeAs(quantizedTensor, { dialect }).dataSync()).toEqual(
        dequantizeAs(logical, { dialect }).dataSync(),
      );
    }
  });

  it("refuses a tensor of a quantizer that the dialect does not have", () => {
    using _scope = new Scope();
    const quantizedTensor = quantizerOf({ dialect: "ct-mxfp8" }).quantize(drawPatterns(3, "f32"));
    expect(() => dequantizeAs(quantizedTensor, { dialect: "ct-nvfp4" })).toThrow(
      /the dialect ct-nvfp4 has no quantizer mxfp8/,
    );
  });
});
