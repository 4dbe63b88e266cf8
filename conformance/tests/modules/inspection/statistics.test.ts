/** Statistics of every quantizer equal plain arithmetic on the values before and after quantization. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BLOCK_FORMAT_NAMES, type BlockFormatName } from "../../../../src/formats/block.js";
import {
  decode,
  encode,
  factsOf,
  hadamard,
  type QuantizedTensor,
  type Quantizer,
  Scope,
  type Tensor,
  tensor,
  transpose,
  type WideDType,
} from "../../../../src/index.js";
import { readCopy } from "../../../../src/modules/inspection/copy-values.js";
import {
  requiredReads,
  STATISTIC_NAMES,
  type StatisticName,
  TensorStatistics,
} from "../../../../src/modules/inspection/statistics.js";
import { quantizerNamed } from "../../../../src/quantizers/named.js";
import { DIRECTIONS, type Direction } from "../../../../src/tensor/quantized.js";
import { numberBetween } from "../../arbitraries/share.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();
const SHAPE = [48, 128] as const;
const COUNT = SHAPE[0] * SHAPE[1];

/** Each quantizer by name, NVFP4 also with the transform, and formats under a scale that is too large. */
const CASES: readonly (readonly [name: BlockFormatName, options: Readonly<Record<string, unknown>>])[] = [
  ...BLOCK_FORMAT_NAMES.map((name) => [name, {}] as const),
  ["nvfp4", { rht: true }],
  ["nvfp4", { tile: "16x16" }],
  ["mxfp8", { tile: "32x32", format: "e5m2" }],
  ["mxfp8", { scaleRule: "e8m0Floor" }],
];

/** Magnitudes over many binades, zeros, and elements far above the others. */
const element = fc.oneof(
  { weight: 6, arbitrary: numberBetween(-2, 2) },
  { weight: 2, arbitrary: fc.float({ min: -2, max: 2, noNaN: true }) },
  { weight: 2, arbitrary: fc.float({ min: Math.fround(-1e-6), max: Math.fround(1e-6), noNaN: true }) },
  { weight: 1, arbitrary: fc.constantFrom(0, -0, 3e4, -3e4, 1e-30) },
);
const values = fc.array(element, { minLength: 97, maxLength: 97 });

function quantizerOf(name: BlockFormatName, options: Readonly<Record<string, unknown>>): Quantizer {
  const scale = name === "fp8-delayed" ? { scale: tensor(backend(), [64]) } : {};
  return quantizerNamed(name, { ...options, ...scale }).setUsage({ rowwise: true, columnwise: true });
}

/** The values of a matrix in the order of its rows. `isTransposed` says that it is stored by columns. */
function rowsOf(x: Tensor<"f32">, isTransposed: boolean): number[] {
  return [...(isTransposed ? (transpose(x) as Tensor<"f32">) : x).dataSync()];
}

/** The values before and after quantization, and the values of the codes without scales. */
function plainValues(
  quantizedTensor: QuantizedTensor,
  direction: Direction,
  x: Tensor<WideDType>,
): { readonly source: number[]; readonly codes: number[]; readonly decoded: number[] | undefined } {
  const copy = quantizedTensor.copy(direction);
  const isTransformed = quantizedTensor.spec.rht && direction === "columnwise";
  const codes = rowsOf(decode(copy.data), copy.geometry.data === "transposed");
  if (isTransformed) return { source: rowsOf(decode(hadamard(x)), true), codes, decoded: undefined };
  const source = [...(x.dtype === "f32" ? (x as Tensor<"f32">) : decode(x)).dataSync()];
  const only = quantizedTensor
    .share()
    .updateUsage({ [direction === "rowwise" ? "columnwise" : "rowwise"]: false });
  const decodedValues = [...(only.dequantize("f32") as Tensor<"f32">).dataSync()];
  return { source, codes: codes.slice(0, source.length), decoded: decodedValues };
}

/** Statistics by their definitions. */
function expected(
  quantizedTensor: QuantizedTensor,
  direction: Direction,
  x: Tensor<WideDType>,
): Partial<Record<StatisticName, unknown>> {
  const { source, codes, decoded: decodedValues } = plainValues(quantizedTensor, direction, x);
  const magnitudes = source.map(Math.abs);
  const nonzero = magnitudes.filter((magnitude) => magnitude > 0);
  const sum = (terms: readonly number[]): number => terms.reduce((total, term) => total + term, 0);
  const mean = sum(source) / source.length;
  const squares = sum(source.map((value) => value * value));
  const scales = [...decodedScales(quantizedTensor, direction)].map((decodedScale) =>
    decodedScale === 0 ? null : Math.floor(Math.log2(decodedScale)),
  );
  const always = {
    amax: Math.max(...magnitudes),
    // the sign of a zero does not count
    min: Math.min(...source) + 0,
    max: Math.max(...source) + 0,
    mean,
    std: Math.sqrt(Math.max(0, squares / source.length - mean ** 2)),
    l1Norm: sum(magnitudes),
    l2Norm: Math.sqrt(squares),
    dynamicRange: Math.log2(Math.max(...nonzero)) - Math.log2(Math.min(...nonzero)),
    scales: [...new Set(scales)]
      .sort((a, b) => (a ?? -Infinity) - (b ?? -Infinity))
      .map((exponent) => [exponent, scales.filter((scale) => scale === exponent).length]),
  };
  if (!decodedValues) return always;
  const errors = sum(source.map((value, i) => (value - (decodedValues[i] as number)) ** 2));
  const { max } = factsOf(quantizedTensor.spec.format);
  // a code under a scale of 0 underflows
  const isOver = (value: number, i: number): boolean =>
    Math.abs(codes[i] as number) >= max &&
    decodedValues[i] !== 0 &&
    Math.abs(value) > Math.abs(decodedValues[i] as number);
  return {
    ...always,
    underflow: source.filter((value, i) => value !== 0 && decodedValues[i] === 0).length / source.length,
    overflow: source.filter(isOver).length / source.length,
    mse: errors / source.length,
    sqnr: 10 * Math.log10(squares / errors),
  };
}

/** The scales of a tensor in logical layout, which has no padding. */
function decodedScales(quantizedTensor: QuantizedTensor, direction: Direction): Float32Array {
  const { scaleInv } = quantizedTensor.copy(direction);
  return (scaleInv.dtype === "f32" ? (scaleInv as Tensor<"f32">) : decode(scaleInv)).dataSync();
}

function statisticsOf(
  quantizedTensor: QuantizedTensor,
  direction: Direction,
  x: Tensor<WideDType>,
): TensorStatistics {
  const statistics = new TensorStatistics();
  statistics.add(readCopy(quantizedTensor, direction, x, requiredReads(STATISTIC_NAMES)));
  return statistics;
}

describe.each(CASES)("%s %o", (name, options) => {
  it("has the statistics of its values and codes", () => {
    let overflows = 0;
    fc.assert(
      fc.property(values, fc.constantFrom("bf16", "f16"), (value, dtype) => {
        using _ = new Scope();
        const wide = tensor(
          backend(),
          Float32Array.from({ length: COUNT }, (_, i) => value[(i * 31) % 97] as number),
          SHAPE,
        );
        const x = encode(wide, { format: options.rht ? "bf16" : dtype }) as Tensor<WideDType>;
        const quantizedTensor = quantizerOf(name, options).quantize(x);
        for (const direction of DIRECTIONS) {
          const statistics = statisticsOf(quantizedTensor, direction, x);
          const plainStatistics = expected(quantizedTensor, direction, x);
          expect(statistics.values(Object.keys(plainStatistics) as StatisticName[])).toEqual(plainStatistics);
          expect(statistics.nonFinite).toBe(0);
          overflows += Number(plainStatistics.overflow ?? 0);
        }
      }),
      { numRuns: draws(16) },
    );
    if (options.scaleRule === "e8m0Floor") expect(overflows).toBeGreaterThan(0);
  });
});

it("errors of a transformed copy are those of the transformed values", () => {
  using _ = new Scope();
  const wide = tensor(
    backend(),
    Float32Array.from({ length: COUNT }, (_, i) => Math.sin(i) * 3),
    SHAPE,
  );
  const x = encode(wide, { format: "bf16" }) as Tensor<"bf16">;
  const quantizedTensor = quantizerOf("nvfp4", { rht: true }).quantize(x);
  const { mse, sqnr, underflow } = statisticsOf(quantizedTensor, "columnwise", x).values([
    "mse",
    "sqnr",
    "underflow",
  ]);
  const source = rowsOf(decode(hadamard(x)), true);
  const { amax, scaleInv, data } = quantizedTensor.copy("columnwise");
  const codes = rowsOf(decode(data), true);
  const scales = rowsOf(decode(scaleInv), true);
  const level = (amax as Tensor<"f32">).dataSync()[0] as number;
  const decodedValues = codes.map((code, i) => {
    const [row, column] = [Math.floor(i / SHAPE[1]), i % SHAPE[1]];
    const scale = scales[Math.floor(row / 16) * SHAPE[1] + column] as number;
    const factor = Math.fround(Math.fround(scale * level) * Math.fround(1 / 2688));
    return Math.fround(code * factor);
  });
  const errors = source.reduce((sum, value, i) => sum + (value - (decodedValues[i] as number)) ** 2, 0);
  const squares = source.reduce((sum, value) => sum + value * value, 0);
  expect({ mse, sqnr }).toEqual({ mse: errors / COUNT, sqnr: 10 * Math.log10(squares / errors) });
  expect(underflow).toBe(source.filter((value, i) => value !== 0 && decodedValues[i] === 0).length / COUNT);
});

it.each(["padded", "swizzled"] as const)(
  "the histogram of scales leaves out the padding of %s scales",
  (scaleLayout) => {
    using _ = new Scope();
    const x = tensor(
      backend(),
      Float32Array.from({ length: 20 * 96 }, (_, i) => 2 ** (i % 40)),
      [20, 96],
    );
    const scalesOf = (layout: "logical" | "padded" | "swizzled") => {
      const quantizer = quantizerNamed("mxfp8", { scaleLayout: layout });
      return statisticsOf(quantizer.quantize(x), "rowwise", x).values(["scales"]);
    };
    expect(scalesOf(scaleLayout)).toEqual(scalesOf("logical"));
  },
);

it("NaN and infinities are counted and left out", () => {
  using _ = new Scope();
  const x = tensor(backend(), [NaN, Infinity, -Infinity, 0.5, -2, 0, 1, 4], [1, 8]);
  const quantizedTensor = quantizerOf("fp8-delayed", {}).quantize(x);
  const statistics = statisticsOf(quantizedTensor, "rowwise", x);
  expect(statistics).toMatchObject({ elements: 8, nonFinite: 3 });
  expect(statistics.values(["amax", "min", "max", "mean", "l1Norm", "dynamicRange", "mse"])).toEqual({
    ...{ amax: 4, min: -2, max: 4, mean: 3.5 / 5, l1Norm: 7.5, dynamicRange: 3, mse: 0 },
  });
});

it("an empty tensor and a tensor of zeros have no dynamic range", () => {
  using _ = new Scope();
  const zero = tensor(backend(), new Float32Array(32), [1, 32]);
  const quantizedTensor = quantizerOf("mxfp8", {}).quantize(zero);
  expect(
    statisticsOf(quantizedTensor, "rowwise", zero).values([
      "amax",
      "dynamicRange",
      "underflow",
      "overflow",
      "mse",
    ]),
  ).toEqual({
    ...{ amax: 0, dynamicRange: 0, underflow: 0, overflow: 0, mse: 0 },
  });
});
