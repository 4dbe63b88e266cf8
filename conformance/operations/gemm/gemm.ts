/** The operation `gemm`: every pair of operands, every datapath, every epilogue. */

import type { Backend } from "../../../src/backends/backend.js";
import type { GemmOutDType } from "../../../src/backends/ops/gemm.js";
import { UnsupportedError } from "../../../src/errors.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import type { GeneralOperands, NamedOperands } from "../../../src/ops/gemm/named-operands.js";
import type { GemmInput } from "../../../src/ops/gemm/operand.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { isWide, type WideDType } from "../../../src/tensor/shape.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { div, fromBits, mul } from "../../oracle/core/rational.js";
import { amaxOf } from "../../oracle/core/scale.js";
import { RULES } from "../../oracle/elementwise/activation.js";
import { productRule } from "../../oracle/gemm/datapath.js";
import * as oracle from "../../oracle/gemm/gemm.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { Answer, Operation } from "../operation.js";
import { scalar } from "../quantize/quantize.js";
import { columnSums } from "../rows/norm.js";
import { gemmCase } from "./arbitrary.js";
import { directionsOf, type GemmCase, resultShape, resultType } from "./case.js";
import {
  multiplied,
  type OperandCase,
  oracleOperand,
  storedRows,
  storedShape,
  tileOf,
  uploadOperand,
} from "./operand.js";

export const gemmOperation: Operation<GemmCase> = {
  arbitrary: gemmCase(),
  run: runGemm,
  oracle(input) {
    const { gelu, geluInput, outScale } = input;
    const [shape, dtype] = [resultShape(input), resultType(input)];
    const values = products(input);
    const finish = (results: readonly number[]): Answer => ({
      out: rounded(dtype, shape, results, outScale),
      ...(isWide(dtype) ? {} : { amax: scalar(amaxOf(results)) }),
    });
    if (gelu) {
      const preGelu = rounded(preGeluType(input), shape, values);
      const results = Array.from(wideValues(preGelu), (x) => Math.fround(RULES.gelu.value(x)));
      return { ...finish(results), preGelu };
    }
    const pre = geluInput && wideValues(geluInput);
    const results = values.map((x, i) =>
      pre ? mul(Math.fround(RULES.gelu.derivative(pre[i] as number)), x) : x,
    );
    return { ...finish(results), ...biasGradients(input, results) };
  },
};

/** Runs the product on a backend; `named` names the two operands. */
export function runGemm(
  backend: Backend,
  input: GemmCase,
  named = (operands: GeneralOperands<GemmInput>): NamedOperands<GemmInput> => operands,
): Answer {
  const { a, b, c, bias, geluInput, accumulate, intoOut, outScale, layout, ...options } = input;
  const directions = directionsOf(layout);
  const uploaded = (x: PlainTensor<WideDType> | undefined) => x && upload(backend, x);
  const addend = uploaded(c);
  const fresh = () => new Tensor(backend, resultType(input), resultShape(input));
  const operands = {
    a: uploadOperand(backend, a, directions.a),
    b: uploadOperand(backend, b, directions.b),
    layout,
  };
  const result = gemm({
    ...named(operands),
    ...options,
    outScale,
    bias: uploaded(bias),
    geluInput: uploaded(geluInput),
    ...(accumulate ? { out: addend, accumulate } : { c: addend, out: intoOut ? fresh() : undefined }),
  });
  const { out, preGelu, biasGradient, amax } = result;
  return {
    out: download(out),
    ...(preGelu ? { preGelu: download(preGelu) } : {}),
    ...(biasGradient ? { biasGradient: download(biasGradient) } : {}),
    ...(amax ? { amax: download(amax) } : {}),
  };
}

/** The bias gradient: the column sums of the results if they are a gradient, else of b. */
function biasGradients(input: GemmCase, results: readonly number[]): Answer {
  const { a, b, layout, geluInput, biasGradient } = input;
  if (!biasGradient) return {};
  const type = resultType(input);
  const columns = a.codes.matrix[0];
  const rows = Array.from({ length: b.codes.matrix[0] }, (_, i) =>
    results.slice(i * columns, (i + 1) * columns),
  );
  const [summed, width] = geluInput
    ? [rows, columns]
    : [storedRows(b, directionsOf(layout).b), storedShape(b, directionsOf(layout).b).at(-1) ?? 0];
  const wide = (geluInput || b.source.kind !== "quantized") && isWide(type) ? type : "f32";
  return { biasGradient: rounded(wide, [width], columnSums(summed, width)) };
}

/** The f32 results before GELU and the cast. */
function products(input: GemmCase): number[] {
  const { a, b, alpha, beta, c, bias } = input;
  const sums = accumulators(input);
  const [columns, depth] = a.codes.matrix;
  const addends = c ? wideValues(c) : [];
  const biases = bias && depth > 0 ? wideValues(bias) : undefined;
  const task = {
    alpha: fullAlpha(alpha, a, b),
    beta: c ? Math.fround(beta ?? 1) : 0,
    split: typeof input.splitK === "number" && input.splitK > 1,
    hasLineScales: [a, b].some(({ source }) => tileOf(source) === "1xK"),
  };
  const [scaleA, scaleB] = [factorOf(a), factorOf(b)];
  const amaxes = rowAmaxes(input);
  return sums.map((acc, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const scales = { scaleA: scaleA(column), scaleB: scaleB(row), amaxes: amaxes?.(row, column) };
    return oracle.epilogue(acc, { ...task, ...scales, c: addends[i] ?? 0, bias: biases?.[column] });
  });
}

/** Whether an operand has one amax for each line. */
function isRowScaled({ source }: OperandCase): boolean {
  return source.kind === "quantized" && source.spec.rowScaled;
}

/** The amaxes of an element's lines, where an operand has line amaxes (numerics.md §5.10). */
function rowAmaxes(input: GemmCase): ((row: number, column: number) => oracle.RowAmaxes) | undefined {
  const { a, b } = input;
  if (!isRowScaled(a) && !isRowScaled(b)) return undefined;
  const of = (operand: OperandCase, line: number): number =>
    operand.amax ? fromBits(operand.amax.codes[isRowScaled(operand) ? line : 0] as number) : 1;
  const both = [a, b].every((operand) => isRowScaled(operand) && operand.codes.matrix[0] > 1);
  const type = productType(input);
  const round = (x: number): number =>
    isWide(type) ? (wideValues(rounded(type, [1], [x], 1) as PlainTensor<WideDType>)[0] as number) : x;
  return (row, column) => ({ row: of(b, row), column: of(a, column), scalesBoth: both, round });
}

/** The type to which the product itself is rounded, before GELU or its derivative. */
function productType(input: GemmCase): GemmOutDType {
  const { gelu, geluInput } = input;
  if (geluInput) return "f32";
  return gelu ? preGeluType(input) : resultType(input);
}

/** The type of the argument of GELU. */
function preGeluType(input: GemmCase): WideDType {
  const dtype = resultType(input);
  return input.auxDtype ?? input.bias?.dtype ?? (isWide(dtype) ? dtype : "bf16");
}

/** The scale of an operand's line: the line scale, or else the tensor scale. */
export function factorOf({ source, scales }: OperandCase): (line: number) => number {
  const tile = tileOf(source);
  if (!scales || scales.codes.length === 0) return () => 1;
  if (tile === "tensor") return () => fromBits(scales.codes[0] as number);
  return tile === "1xK" ? (line) => fromBits(scales.codes[line] as number) : () => 1;
}

/** The divisor of a tensor's NVFP4 amax (numerics.md §5.10, §5.11). */
function divisorOf({ scaleRule, e4m3Max }: QuantizeSpec): number {
  return scaleRule === "twoLevel" ? 6 * e4m3Max : 1;
}

/** alpha times the operands' NVFP4 factors (numerics.md §5.10). */
function fullAlpha(alpha: number, ...operands: readonly OperandCase[]): number {
  const outside = operands.some(isRowScaled);
  const factors = operands.flatMap(({ source, amax }) =>
    amax && source.kind === "quantized"
      ? [{ amax: outside ? 1 : fromBits(amax.codes[0] as number), divisor: divisorOf(source.spec) }]
      : [],
  );
  const scaled = factors.reduce((product, { amax }) => mul(product, amax), Math.fround(alpha));
  if (factors.length === 0) return scaled;
  return mul(
    scaled,
    div(
      1,
      factors.reduce((product, { divisor }) => product * divisor, 1),
    ),
  );
}

/** The sums along K by the datapath. Each distinct line is multiplied only once. */
function accumulators({ a, b, datapath, useSplitAccumulator, splitK }: GemmCase): number[] {
  const serving = productRule(datapath, multiplied(b), multiplied(a), useSplitAccumulator);
  const splits = splitK === "auto" ? 1 : splitK;
  if (!serving || (splits > 1 && serving.splitTile === 0))
    throw new UnsupportedError("gemm", `datapath.md has no ${datapath} rule for these operands`);
  const [x, w] = [distinct(oracleOperand(b)), distinct(oracleOperand(a))];
  const sums = oracle.gemm({ ...serving, splits, x: x.operand, w: w.operand });
  return x.places.flatMap((i) => w.places.map((j) => sums[i]?.[j] as number));
}

/** The distinct lines of an operand (by elements and scales), and the index among them for each line. */
function distinct(operand: oracle.OracleOperand) {
  const { lines, scale } = operand;
  const kept = new Map<string, number>();
  const firsts: number[] = [];
  const places = lines.map((line, i) => {
    const key = line.map((x, k) => `${Object.is(x, -0) ? "-0" : x}*${scale?.(i, k) ?? 1}`).join();
    const firstIndex = kept.get(key);
    if (firstIndex !== undefined) return firstIndex;
    kept.set(key, firsts.length);
    return firsts.push(i) - 1;
  });
  const only: oracle.OracleOperand = {
    ...operand,
    lines: firsts.map((i) => lines[i] as readonly number[]),
    ...(scale ? { scale: (line, k) => scale(firsts[line] as number, k) } : {}),
  };
  return { operand: only, places };
}
