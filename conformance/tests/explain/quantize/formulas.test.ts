/**
 * Each number in the explanation of a quantization is the value of its formula, and the last ones equal the operation's code,
 * scale and value: for every quantizer and dialect, with amaxes at the thresholds of scales.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { dequantizeAs } from "../../../../src/dialects/dequantize.js";
import { quantizerOf } from "../../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect } from "../../../../src/dialects/table.js";
import type { ScaleCandidate } from "../../../../src/explain/four-over-six.js";
import { QuantizeExplainer, type QuantizeExplanation } from "../../../../src/explain/quantize.js";
import type { ExplainedStep } from "../../../../src/explain/steps.js";
import { BLOCK_FORMAT_NAMES, blockFormat } from "../../../../src/formats/block.js";
import { SCALAR_FORMATS } from "../../../../src/formats/scalar.js";
import { copyGeometry } from "../../../../src/tensor/geometry.js";
import { codePlace, linePlace, scaleIndex } from "../../../../src/tensor/places.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { DIRECTIONS } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { asMatrix, type WideDType } from "../../../../src/tensor/shape.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { words } from "../../../arbitraries/random.js";
import { QUANTIZERS, sourceTypes } from "../../../arbitraries/specs.js";
import { type QuantizeCase, quantizeCase, runQuantizer } from "../../../operations/quantize/quantize.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { FLT_MAX, fromBits } from "../../../oracle/core/rational.js";
import { decode, encode, maxCode } from "../../../oracle/core/scalar.js";
import { download, fromCodes, type PlainTensor, upload } from "../../../values/plain.js";
import { bitsOf } from "../../../values/values.js";
import { scaledSpecs } from "../../arbitraries/scaled-specs.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { evaluate, roundTo } from "../formulas.js";

const backend = useBackend();

/** Amaxes at thresholds: limits of f32, powers of two, the largest codes of formats, and the neighbours of these. */
const EDGES = [
  ...[0, 1, 3, 0x00400000, 0x007fffff, 0x00800000, 0x00800001, 0x01000000, 0x7e800000, 0x7f000000],
  ...[0x7f7fffff, 0x7f800000, 0x7fc00000, 0x38d1b717, 0x38d1b718, 0x2b8cbccc, 0x2b8cbccd],
  ...[1, 1.25, 1.5, 1.75, 6, 7, 7.5, 28, 120, 127, 127.5, 128, 240, 256, 448, 464, 480, 2688, 57344, 61440]
    .map((value) => bitsOf(value))
    .flatMap((bits) => [bits - 1, bits, bits + 1]),
] as const;

/**
 * Values whose runs of 16 contain a threshold, sometimes scaled by a power of two, as the largest magnitude, and fractions of it.
 */
function drawEdges(dtype: WideDType, shape: readonly number[], seed: number): PlainTensor<WideDType> {
  const count = shape.reduce((a, b) => a * b, 1);
  const draws = words(seed, count + Math.ceil(count / 16));
  const isMixed = seed % 2 === 0;
  const codes = Array.from({ length: count }, (_, i) => {
    const run = Math.floor(i / 16);
    const [elementDraw, runDraw] = [draws[i] as number, draws[count + (isMixed ? run : 0)] as number];
    const edge = EDGES[runDraw % EDGES.length] as number;
    const power = (runDraw >>> 8) % 3 === 0 ? 2 ** (((runDraw >>> 12) % 40) - 20) : 1;
    const largest = Math.fround(fromBits(edge) * power);
    const isLargest = i % 16 === (runDraw >>> 20) % 16;
    const fraction = elementDraw % 5 === 0 ? (elementDraw >>> 8) / 2 ** 24 : ((elementDraw >>> 8) % 33) / 32;
    const value = Math.fround(isLargest ? largest : largest * fraction);
    return bitsOf(elementDraw % 2 === 0 ? value : -value);
  });
  return encodeNumbers(dtype, shape, codes);
}

/** The tensor of the f32 numbers that have these bits, rounded to `dtype`. */
function encodeNumbers(
  dtype: WideDType,
  shape: readonly number[],
  bits: readonly number[],
): PlainTensor<WideDType> {
  if (dtype === "f32") return fromCodes("f32", shape, bits);
  return fromCodes(
    dtype,
    shape,
    bits.map((pattern) => encode(pattern, SCALAR_FORMATS[dtype], "tiesToEven", "nonfinite", 0)),
  );
}

/** Formulas in words that do not compute a number from numbers of the explanation. */
const UNSHOWN = /^sum of errors with raw = /;

/** Computes each step, and returns the names with their values. */
function follow(steps: readonly ExplainedStep[], start: ReadonlyMap<string, number>): Map<string, number> {
  const names = new Map(start);
  for (const { name, formula, value } of steps) {
    if (!UNSHOWN.test(formula)) {
      const expected = evaluate(formula, names);
      if (!Object.is(expected, value) && !(expected === 0 && value === 0))
        expect(`${name} = ${formula} = ${value}`).toBe(`${name} = ${formula} = ${expected}`);
    }
    names.set(name, value);
  }
  return names;
}

/** Fails unless each number of an explanation follows from earlier ones. */
function requireConsistent(explanation: QuantizeExplanation, callerScale: number): void {
  const { spec, dtype, block, tensorAmax, tensorScale, scale, scaled, rounding, code, dequantized, error } =
    explanation;
  const layout = SCALAR_FORMATS[spec.format];
  const max = decode(maxCode(layout), layout);
  const minimum = layout.specials === "integer" ? max + decode(1, layout) : max;
  const start = new Map<string, number>([
    ...([
      ["FLT_MAX", FLT_MAX],
      ["max", max],
      ["half", (max + minimum) / 2],
      ["given", callerScale],
      ["epsilon", Math.fround(spec.amaxEpsilon)],
      ["limit", roundTo(Math.fround(spec.amaxLimit), dtype)],
      [
        "largest",
        spec.tile === "tensor" || dtype === "f32" ? FLT_MAX : dtype === "bf16" ? fromBits(0x7f7f0000) : 65504,
      ],
      ["amax", block?.amax.value ?? 0],
      ["G", tensorAmax?.value ?? 0],
      ["t", tensorScale?.value ?? 1],
    ] as const),
  ]);
  if (tensorScale) expect(follow(tensorScale.steps, start).get("t")).toBe(tensorScale.value);
  const scaleValues = follow(scale.steps, start);
  const expectedScale =
    scale.dtype === "f32" ? fromBits(scale.code) : decode(scale.code, SCALAR_FORMATS[scale.dtype]);
  expect(scale.value).toBe(expectedScale);
  for (const name of ["s", "SF"]) if (scaleValues.has(name)) expect(scaleValues.get(name)).toBe(scale.value);
  const value = explanation.transform?.value ?? explanation.input;
  const elementValues = new Map([
    ["d", scale.value],
    ...scaleValues,
    ["s", scale.value],
    ["x", value],
  ] as const);
  const lastValues = follow(scaled.steps, elementValues);
  expect(scaled.steps.length > 0 ? lastValues.get("y") : value).toBe(scaled.value);
  expect(rounding.value).toBe(scaled.value);
  expect(rounding.code).toBe(code);
  expect(rounding.result).toBe(decode(code, layout));
  if (scale.candidates) {
    const [six, four] = scale.candidates as readonly [ScaleCandidate, ScaleCandidate];
    const chosenTrial = four.error < six.error ? four : six;
    expect([six.maps, four.maps]).toEqual([6, 4]);
    expect({ code: scale.code, value: scale.value, m: scaleValues.get("m") }).toEqual({
      code: chosenTrial.code,
      value: chosenTrial.scale,
      m: chosenTrial.multiplier,
    });
  }
  const names = new Map([...start, ["q", rounding.result], ["s", scale.value], ["SF", scale.value]] as const);
  names.set("f", scale.value);
  expect(follow(dequantized.steps, names).get("value")).toBe(dequantized.value);
  const isSame = dequantized.value === value;
  expect(error.absolute).toBe(isSame ? 0 : dequantized.value - value);
  expect(error.relative).toBe(isSame ? 0 : Math.abs(dequantized.value - value) / Math.abs(value));
}

/** Fails unless the amax of a block is the largest magnitude in it, at its first position in row-major order. */
function requireAmax(
  { block, transform }: QuantizeExplanation,
  x: PlainTensor<WideDType>,
  values: readonly number[],
): void {
  if (!block || transform) return;
  const [rows, columns] = asMatrix(x.shape);
  let [largestAmax, largestPosition]: [number, readonly [number, number] | undefined] = [0, undefined];
  for (let row = block.top; row < Math.min(block.bottom, rows); row++)
    for (let column = block.left; column < block.right; column++) {
      const magnitude = Math.abs(values[row * columns + column] as number);
      if (magnitude > largestAmax) [largestAmax, largestPosition] = [magnitude, [row, column]];
    }
  expect([block.amax.value, block.amax.at]).toEqual([largestAmax, largestPosition]);
}

const valuesOf = (x: PlainTensor<WideDType>): number[] =>
  Array.from(x.codes, (code) => (x.dtype === "f32" ? fromBits(code) : decode(code, SCALAR_FORMATS[x.dtype])));

const indexDraws = fc.array(fc.nat(1 << 20), { minLength: 4, maxLength: 4 });

function compareCase(drawnCase: QuantizeCase, seed: number, drawnIndices: readonly number[]): void {
  using _scope = new Scope();
  const { spec, random, scaleLayout } = drawnCase;
  const x = drawEdges(drawnCase.x.dtype, drawnCase.x.shape, seed);
  const [rows, columns] = asMatrix(x.shape);
  if (rows * columns === 0) return;
  const answer = runQuantizer(backend(), drawnCase, (quantizer) => quantizer.quantize(upload(backend(), x)));
  const values = valuesOf(x);
  for (const direction of DIRECTIONS.filter((name) => drawnCase.usage[name])) {
    const data = answer[`${direction}.data`] as PlainTensor;
    const scales = answer[`${direction}.scaleInv`] as PlainTensor;
    const geometry = copyGeometry(spec, [rows, columns], direction, scaleLayout);
    const bits = direction === "rowwise" ? drawnCase.randomBits : drawnCase.randomBitsColumnwise;
    const scale = Math.fround(drawnCase.scale);
    const context = { direction, random, randomBits: bits?.data as Uint32Array | undefined, scale };
    const explainer = new QuantizeExplainer(x, spec, context);
    for (const drawnIndex of drawnIndices) {
      const [row, column] = [Math.floor(drawnIndex / columns) % rows, drawnIndex % columns];
      const explanation = explainer.explain(row, column);
      requireStored(explanation, { data, scales, geometry }, row, column);
      requireConsistent(explanation, scale);
      requireAmax(explanation, x, values);
    }
  }
}

interface StoredCopy {
  readonly data: PlainTensor;
  readonly scales: PlainTensor;
  readonly geometry: ReturnType<typeof copyGeometry>;
}

/** Fails unless the code and the scale of an explanation are stored for element [row, column]. */
function requireStored(
  { code, scale, spec }: QuantizeExplanation,
  { data, scales, geometry }: StoredCopy,
  row: number,
  column: number,
): void {
  const [codeRow, codeColumn] = codePlace(geometry, row, column);
  expect(code).toBe(data.codes[codeRow * (data.shape[1] as number) + codeColumn]);
  const storedScale = scales.codes[scaleIndex(spec, geometry, linePlace(geometry, row, column))] as number;
  if (scale.dtype === "f32" && Number.isNaN(scale.value)) expect(fromBits(storedScale)).toBeNaN();
  else expect(scale.code).toBe(storedScale);
}

/** One spec for each rule of each quantizer that computes scales of blocks or of tensors. */
const RULES = BLOCK_FORMAT_NAMES.filter((name) => blockFormat(name).scaleSource !== "given").flatMap(
  (name) => [...new Map(scaledSpecs(name).map((spec) => [`${name}, ${spec.scaleRule}`, spec]))],
);

/** Fails unless explanations of the rows of `amaxes` have the stored codes and scales, and each number follows. */
function compareRows(spec: QuantizeSpec, dtype: WideDType, amaxes: readonly number[]): void {
  using _scope = new Scope();
  const columns = 128;
  const numbers = amaxes.flatMap((amax) =>
    Array.from({ length: columns }, (_, i) => (i === 3 ? amax : -amax / 2)),
  );
  const shape = [amaxes.length, columns] as const;
  const x = encodeNumbers(dtype, shape, numbers.map(bitsOf));
  const layout = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;
  const rowwiseCopy = new SpecQuantizer(spec, layout).quantize(upload(backend(), x)).copy("rowwise");
  const geometry = copyGeometry(spec, shape, "rowwise", "logical");
  const copy = { data: download(rowwiseCopy.data), scales: download(rowwiseCopy.scaleInv), geometry };
  const explainer = new QuantizeExplainer(x, spec, { direction: "rowwise" });
  for (const row of amaxes.keys()) {
    const explanation = explainer.explain(row, 3);
    requireStored(explanation, copy, row, 3);
    requireConsistent(explanation, 1);
  }
}

describe("an explanation shows formulas with their values at every threshold of the amax", () => {
  const amaxes = EDGES.map(fromBits).filter(Number.isFinite);
  const blockRules = RULES.filter(([, { quantizer }]) => blockFormat(quantizer).scaleSource === "blocks");
  const tensorRules = RULES.filter(([, { quantizer }]) => {
    const { scaleSource, tensorAmax } = blockFormat(quantizer);
    return scaleSource === "whole" || tensorAmax;
  });

  it.each(sampleCases(blockRules, 10))("of a block: %s", (_, spec) => {
    for (const dtype of sourceTypes(spec)) compareRows(spec, dtype, amaxes);
  });

  it.each(tensorRules)("of a tensor: %s", (_, spec) => {
    for (const dtype of sourceTypes(spec)) for (const amax of amaxes) compareRows(spec, dtype, [amax]);
  });
});

describe("an explanation of 4over6 has the scale for 6 where both have the same error", () => {
  const choices = (["mae", "mse"] as const).flatMap((fourOverSix) =>
    ([448, 256] as const).map((e4m3Max) => ({ fourOverSix, e4m3Max })),
  );
  it.each(choices)("$fourOverSix, at most $e4m3Max", (choice) => {
    using _scope = new Scope();
    const spec = makeSpec("nvfp4", choice);
    const [rows, columns] = [24, 64];
    const patterns = words(choice.e4m3Max, rows * columns);
    // under the amax 7 of the tensor, both scales of a block are codes, and the elements are codes under both
    const numbers = Array.from(patterns, (word, i) => {
      const block = Math.floor(i / 16);
      const amax = block === 0 ? 7 : ([7, 4, 5][block % 3] as number) / 2 ** (block % 7);
      return i % 16 === 5 ? amax : amax * ([0, 0.25, 0.5, 1, -0.25, -0.5, -1][word % 7] as number);
    });
    const x = fromCodes("f32", [rows, columns], numbers.map(bitsOf));
    const layout = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;
    const rowwiseCopy = new SpecQuantizer(spec, layout).quantize(upload(backend(), x)).copy("rowwise");
    const geometry = copyGeometry(spec, [rows, columns], "rowwise", "logical");
    const copy = { data: download(rowwiseCopy.data), scales: download(rowwiseCopy.scaleInv), geometry };
    const explainer = new QuantizeExplainer(x, spec, { direction: "rowwise" });
    let ties = 0;
    for (let index = 3; index < rows * columns; index += 16) {
      const [row, column] = [Math.floor(index / columns), index % columns];
      const explanation = explainer.explain(row, column);
      requireStored(explanation, copy, row, column);
      requireConsistent(explanation, 1);
      const [six, four] = explanation.scale.candidates as readonly [ScaleCandidate, ScaleCandidate];
      if (six.error === four.error && six.code !== four.code) ties++;
    }
    expect(ties).toBeGreaterThan(0);
  });
});

describe("an explanation shows formulas with their values, and what the operation makes of edges", () => {
  it.each(sampleCases(QUANTIZERS, 4))("%s", (name) => {
    fc.assert(
      fc.property(quantizeCase([name]), fc.nat(), indexDraws, (drawnCase, seed, drawnIndices) =>
        compareCase({ ...drawnCase, noop: undefined }, seed, drawnIndices),
      ),
      { numRuns: draws(40) },
    );
  });
});

/** Every dialect with each of its quantizers, formats and tiles. */
const FORMS = DIALECT_NAMES.flatMap((dialect) =>
  (DIALECTS[dialect] as Dialect).forms.flatMap(({ quantizer, formats, tiles }) => {
    const { elements: drawnIndices, tiles: allTiles } = blockFormat(quantizer);
    return (tiles ?? allTiles).flatMap((tile) =>
      (formats ?? drawnIndices).map((format) => ({ dialect, quantizer, format, tile })),
    );
  }),
);

describe("an explanation under a dialect shows formulas with their values, and the dialect's values of edges", () => {
  it.each(sampleCases(FORMS, 4))("$dialect, $quantizer, $format, $tile", ({ dialect, ...form }) => {
    const dtypes = fc.constantFrom("f32", "bf16", "f16");
    fc.assert(
      fc.property(fc.nat(), dtypes, indexDraws, (seed, dtype, drawnIndices) => {
        using _scope = new Scope();
        const x = drawEdges(dtype, [32, 128], seed);
        const quantizedTensor = quantizerOf({ dialect, ...form }).quantize(upload(backend(), x));
        const values = download(dequantizeAs(quantizedTensor, { dialect, dtype: "f32" })).codes;
        const rule = (DIALECTS[dialect] as Dialect).values;
        const explainer = new QuantizeExplainer(x, quantizedTensor.spec, {
          direction: "rowwise",
          values: rule,
        });
        for (const drawnIndex of drawnIndices) {
          const explanation = explainer.explain(Math.floor(drawnIndex / 128) % 32, drawnIndex % 128);
          const value = fromBits(values[drawnIndex % 4096] as number);
          expect(explanation.dequantized.value).toBe(value);
          requireConsistent(explanation, 1);
          requireAmax(explanation, x, valuesOf(x));
        }
      }),
      // the amax of the block is less than a dialect's epsilon, which has another value in bf16
      { numRuns: draws(4), examples: [[168903589, "bf16", [0, 0, 0, 0]]] },
    );
  });
});
