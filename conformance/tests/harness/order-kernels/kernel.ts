/** Kernels that multiply matrices, each in its own order. They share no arithmetic with the search that identifies the order. */

import type { WideDType } from "../../../../src/tensor/shape.js";
import type { Supported } from "../../../arbitraries/supported.js";
import type { GemmCase, Subject } from "../../../index.js";
import { resultShape, resultType } from "../../../operations/gemm/case.js";
import { blocksOf, type OperandCase, oracleOperand, tileOf } from "../../../operations/gemm/operand.js";
import { fromBits } from "../../../oracle/core/rational.js";
import { type PlainTensor, wideValues } from "../../../values/plain.js";
import { rounded } from "../../../values/rounded.js";

export const { fround } = Math;

/** fma of f32 numbers: the f64 sum is rounded wrongly only if it is an exact tie of f32 and not exact itself. */
export function fma(a: number, b: number, c: number): number {
  const product = a * b;
  const sum = product + c;
  const nearest = fround(sum);
  if (!Number.isFinite(sum) || sum === nearest) return nearest;
  const addends = Math.abs(product) >= Math.abs(c) ? [product, c] : [c, product];
  const error = (addends[1] as number) - (sum - (addends[0] as number));
  if (error === 0) return nearest;
  const neighbour = 2 * sum - nearest;
  if (fround(neighbour) !== neighbour) return nearest;
  return error > 0 === neighbour > nearest ? neighbour : nearest;
}

/** One element to compute: the factors along K, the scales along K, and the element's row and column. */
export interface Element {
  readonly x: readonly number[];
  readonly w: readonly number[];
  readonly sx: (k: number) => number;
  readonly sw: (k: number) => number;
  readonly scaleX: number;
  readonly scaleW: number;
  readonly row: number;
  readonly column: number;
  readonly rows: number;
  readonly columns: number;
  readonly depth: number;
  readonly alpha: number;
  readonly beta: number;
  readonly c: number;
  readonly bias: number | undefined;
  readonly dtype: WideDType;
  /** The element at another row and column. */
  readonly at: (row: number, column: number) => Element;
}

/** A kernel: the sum, the epilogue, the cast, and what it supports. */
export interface OrderKernel {
  readonly name: string;
  readonly supported: Supported;
  readonly sum: (element: Element) => number;
  readonly epilogue?: (sum: number, element: Element) => number;
  /** Changes stored values after the cast. */
  readonly changeStored?: (values: Float32Array, elements: readonly Element[]) => void;
  readonly cast?: (value: number, dtype: WideDType) => number;
  readonly accumulator?: "f32" | "tensor-core" | "f64" | "hopper-fp8" | "hopper-fp8-fast";
}

/** The usual epilogue: fma of the factor and the addend, then the bias. */
export function usualEpilogue(sum: number, { alpha, scaleX, scaleW, beta, c, bias }: Element): number {
  const factor = fround(fround(alpha * scaleW) * scaleX);
  const value = beta === 0 ? fround(factor * sum) : fma(factor, sum, fround(beta * c));
  return bias === undefined ? value : fround(value + bias);
}

/** The scale of a line: the scale of the tensor, of the line, or 1. */
function lineScale({ source, scales }: OperandCase): (line: number) => number {
  const tile = tileOf(source);
  if (!scales || scales.codes.length === 0) return () => 1;
  if (tile === "tensor") return () => fromBits(scales.codes[0] as number);
  return tile === "1xK" ? (line) => fromBits(scales.codes[line] as number) : () => 1;
}

function createElements(input: GemmCase): readonly Element[] {
  const { a, b, alpha, beta, c, bias } = input;
  const [x, w] = [oracleOperand(b), oracleOperand(a)];
  const [rows, columns, depth] = [b.codes.matrix[0], a.codes.matrix[0], a.codes.matrix[1]];
  const [scaleX, scaleW] = [lineScale(b), lineScale(a)];
  const [addends, biases] = [c && wideValues(c), bias && wideValues(bias)];
  const blockScale = (operand: typeof x, source: OperandCase["source"], line: number) => (k: number) =>
    blocksOf(source) ? (operand.scale?.(line, k) ?? 1) : 1;
  const elements: Element[] = [];
  const at = (row: number, column: number): Element => elements[row * columns + column] as Element;
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++)
      elements.push({
        x: x.lines[row] as readonly number[],
        w: w.lines[column] as readonly number[],
        sx: blockScale(x, b.source, row),
        sw: blockScale(w, a.source, column),
        scaleX: scaleX(row),
        scaleW: scaleW(column),
        ...{ row, column, rows, columns, depth, at },
        alpha: fround(alpha),
        beta: c ? fround(beta ?? 1) : 0,
        c: addends?.[row * columns + column] ?? 0,
        bias: biases?.[column],
        dtype: resultType(input) as WideDType,
      });
  return elements;
}

/** A subject whose products the kernel computes. */
export function kernelSubject({ sum, epilogue = usualEpilogue, changeStored, cast }: OrderKernel): Subject {
  return {
    gemm(input) {
      const elements = createElements(input);
      const dtype = resultType(input) as WideDType;
      const values = elements.map((element) => epilogue(sum(element), element));
      const shape = resultShape(input);
      const out = rounded(
        dtype,
        shape,
        cast ? values.map((value) => cast(value, dtype)) : values,
      ) as PlainTensor<WideDType>;
      if (!changeStored) return { out };
      const storedValues = Float32Array.from(wideValues(out));
      changeStored(storedValues, elements);
      return { out: rounded(dtype, shape, Array.from(storedValues)) as typeof out };
    },
  };
}

/** A subject's fields: plain operands of one type and a result of another. */
export function plainFields(format: string, outDtype: string): Supported {
  return {
    "a.source.kind": ["plain"],
    "b.source.kind": ["plain"],
    "a.source.format": [format],
    "b.source.format": [format],
    outDtype: [outDtype],
    alpha: [1],
    c: [null],
    bias: [null],
  };
}

/** Fields of FP8 codes with f32 block scales: 1x128 for x and 128x128 for w. */
export const BLOCK_SCALED_FIELDS: Supported = {
  "a.source.kind": ["scaled"],
  "b.source.kind": ["scaled"],
  "a.source.format": ["e4m3"],
  "b.source.format": ["e4m3"],
  "a.source.tile": ["128x128"],
  "b.source.tile": ["1x128"],
  outDtype: ["f32"],
  alpha: [1],
  c: [null],
  bias: [null],
};
