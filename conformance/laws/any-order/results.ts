/** The answers of a subject as elements with their terms, which a verdict needs. */
import type { EpilogueOperands } from "../../../src/orders/epilogues.js";
import type { JudgedResult } from "../../../src/orders/judge.js";
import type { Terms } from "../../../src/orders/order.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { type GemmCase, resultType } from "../../operations/gemm/case.js";
import { factorOf } from "../../operations/gemm/gemm.js";
import { blocksOf, type OperandCase, oracleOperand } from "../../operations/gemm/operand.js";
import type { Answer } from "../../operations/operation.js";
import type { Cases } from "../../operations/operations.js";
import { type PlainTensor, wideValues } from "../../values/plain.js";
import type { Drawn } from "./draw.js";

/** The exponent of the smallest normal f32, for elements whose scales are already multiplied. */
const F32_MIN_EXPONENT = -126;

/** The lines of an operand, and its f32 scales along K. */
interface Lines {
  readonly lines: readonly Float64Array[];
  readonly minExponent: number;
  readonly scales?: { readonly length: number; readonly of: (line: number) => readonly number[] };
}

/** The lines of an operand. Scales that are powers of two are multiplied exactly; f32 scales of blocks are kept apart. */
function linesOf(operand: OperandCase): Lines {
  const { lines, minExponent, scale } = oracleOperand(operand);
  const blocks = blocksOf(operand.source);
  const depth = operand.codes.matrix[1];
  if (!scale || !blocks) return { lines: lines.map((line) => Float64Array.from(line)), minExponent };
  if (blocks.format !== "f32")
    return {
      lines: lines.map((line, i) => Float64Array.from(line, (value, k) => value * scale(i, k))),
      minExponent: F32_MIN_EXPONENT,
    };
  const count = Math.ceil(depth / blocks.length);
  const lineOf = (line: number): readonly number[] =>
    Array.from({ length: count }, (_, block) => scale(line, block * blocks.length));
  return {
    lines: lines.map((line) => Float64Array.from(line)),
    minExponent,
    scales: { length: blocks.length, of: lineOf },
  };
}

/** The scales along K of a pair of lines. */
function scalesOf(x: Lines, w: Lines, row: number, column: number): Terms["scales"] {
  const length = x.scales?.length ?? w.scales?.length;
  if (length === undefined) return undefined;
  const count = Math.ceil((x.lines[0]?.length ?? 0) / length);
  const ones = new Array<number>(count).fill(1);
  return { length, x: x.scales?.of(row) ?? ones, w: w.scales?.of(column) ?? ones };
}

/** The elements of a product. */
export function productResult({ input, flavour }: Drawn<GemmCase>, answer: Answer): JudgedResult {
  const { a, b, alpha, beta, c, bias } = input;
  const [x, w] = [linesOf(b), linesOf(a)];
  const [scaleX, scaleW] = [factorOf(b), factorOf(a)];
  const [rows, columns] = [x.lines.length, w.lines.length];
  const actual = wideValues(answer.out as PlainTensor<WideDType>);
  const [addends, biases] = [c && wideValues(c), bias && wideValues(bias)];
  const dtype = resultType(input) as WideDType;
  const elements = Array.from(actual, (value, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const scales = scalesOf(x, w, row, column);
    const terms: Terms = {
      x: x.lines[row] as Float64Array,
      w: w.lines[column] as Float64Array,
      minExponents: [x.minExponent, w.minExponent],
      ...(scales ? { scales } : {}),
    };
    const operands: EpilogueOperands = {
      alpha: Math.fround(alpha),
      scaleX: scaleX(row),
      scaleW: scaleW(column),
      beta: c ? Math.fround(beta ?? 1) : 0,
      addend: addends?.[i] ?? 0,
      bias: biases?.[column],
      dtype,
    };
    return { terms, operands, actual: value };
  });
  return { rows, columns, elements, isOrdinary: flavour === "normal" };
}

/** The elements of column sums: products with 1. */
export function sumResult({ input, flavour }: Drawn<Cases["columnSum"]>, answer: Answer): JudgedResult {
  const { x, outDtype } = input;
  const [rows, columns] = x.matrix;
  const values = wideValues(x);
  const w = new Float64Array(rows).fill(1);
  const actual = wideValues(answer.out as PlainTensor<WideDType>);
  const operands = { alpha: 1, scaleX: 1, scaleW: 1, beta: 0, addend: 0, dtype: outDtype };
  const elements = Array.from(actual, (value, column) => {
    const line = Float64Array.from({ length: rows }, (_, k) => values[k * columns + column] as number);
    const terms: Terms = { x: line, w, minExponents: [F32_MIN_EXPONENT, F32_MIN_EXPONENT] };
    return { terms, operands, actual: value };
  });
  return { rows: 1, columns, elements, isOrdinary: flavour === "normal" };
}
