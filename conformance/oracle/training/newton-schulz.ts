/** The Newton–Schulz iteration and Muon (numerics.md §9.4 and §9.5), by products of single elements. */
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import { add, div, mul, sub } from "../core/rational.js";
import { productRule } from "../gemm/datapath.js";
import { epilogue, gemm } from "../gemm/gemm.js";
import type { WideName } from "../quantize/quantize.js";
import { gradNorm } from "../update/grad-norm.js";
import { sgd } from "../update/optimizer.js";
import { cast, type Matrix, matrix, rowsOf } from "./matrix.js";

type Row = readonly [number, number, number];

const MIN_EXPONENTS = { f32: -126, bf16: -126, f16: -14 } as const;

/** The sets of TransformerEngine 2.20.2, each as one string of numbers. */
const SETS = {
  simple: "3.4445 -4.7750 2.0315",
  quintic:
    "4.0848 -6.8946 2.9270 3.9505 -6.3029 2.6377 3.7418 -5.5913 2.3037 2.8769 -3.1427 1.2046 2.8366 -3.0525 1.2012",
  polar_express:
    "8.2051 -22.9019 16.4607 4.0664 -2.8612 0.5184 3.9096 -2.8234 0.5250 3.2856 -2.4153 0.4853 2.2779 -1.6198 0.3985 1.8726 -1.2307 0.3585 1.8564 -1.2132 0.3568 1.8750 -1.2500 0.3750",
  cans: "8.4703 -25.1081 18.6293 4.1828 -3.1087 0.5806 3.9619 -2.9541 0.5630 3.2866 -2.4647 0.5074 2.2737 -1.6447 0.4162",
  aol: "4.0098 -7.0585 2.4635 3.4585 -5.5479 2.5959 2.7573 -3.2939 1.4254 2.7215 -3.0494 1.3169",
} as const;

export type SetName = keyof typeof SETS;
export const SET_NAMES = Object.keys(SETS) as readonly SetName[];

/** The coefficients of `steps` steps of a set. */
export function stepCoefficients(set: SetName, steps: number): Row[] {
  const numbers = SETS[set].split(" ").map(Number);
  const count = numbers.length / 3;
  const isLastRepeated = set === "polar_express" || set === "cans";
  return Array.from({ length: steps }, (_, step) => {
    const index = isLastRepeated && step >= count ? count - 1 : step % count;
    const [a, b, c] = numbers.slice(3 * index);
    return [a, b, c] as Row;
  });
}

export interface IterationModel {
  readonly coefficients: readonly Row[];
  readonly eps: number;
  readonly dtype: WideName;
  /** The backend's datapath; f32 is multiplied by `fp32` under all but `exact`. */
  readonly datapath: DatapathFamily;
}

type Lines = readonly (readonly number[])[];

const transposed = (lines: Lines, length: number): number[][] =>
  Array.from({ length }, (_, j) => lines.map((line) => line[j] as number));

export function newtonSchulz(x: Matrix, { coefficients, eps, dtype, datapath }: IterationModel): Matrix {
  const [rows, columns] = x.shape;
  const divisor = add(gradNorm([[...x.data]], 1).norm, Math.fround(eps));
  const normalized = matrix(x.shape, dtype, (i, j) => div(x.data[i * columns + j] as number, divisor));
  const isTall = rows > columns;
  let lines: Lines = isTall ? transposed(rowsOf(normalized), columns) : rowsOf(normalized);
  const [height, width] = isTall ? [columns, rows] : [rows, columns];
  const family = dtype === "f32" && datapath !== "exact" ? "fp32" : datapath;
  for (const row of coefficients) {
    const [a, b, c] = row.map(Math.fround) as [number, number, number];
    const join = { family, dtype };
    const gram = product(lines, lines, { ...join, alpha: 1, beta: 0 });
    const polynomial = product(gram, gram, { ...join, alpha: c, beta: b, addend: gram });
    const weights = transposed(lines, width);
    lines = product(polynomial, weights, { ...join, alpha: 1, beta: a, addend: lines });
  }
  const result = isTall ? transposed(lines, rows) : lines;
  return matrix(isTall ? [width, height] : [height, width], dtype, (i, j) => result[i]?.[j] as number);
}

interface Join {
  readonly family: DatapathFamily;
  readonly dtype: WideName;
  readonly alpha: number;
  readonly beta: number;
  readonly addend?: Lines;
}

/** alpha · x · wᵀ + beta · addend, rounded to `dtype`. */
function product(x: Lines, w: Lines, { family, dtype, alpha, beta, addend }: Join): number[][] {
  const format = { format: dtype };
  const rule = productRule(family, format, format, false);
  if (!rule) throw new RangeError(`datapath.md has no ${family} rule for ${dtype}`);
  const minExponent = MIN_EXPONENTS[dtype];
  const sums = gemm({ ...rule, splits: 1, x: { lines: x, minExponent }, w: { lines: w, minExponent } });
  const element = (i: number, j: number): number =>
    epilogue(sums[i]?.[j] as number, {
      ...{ alpha, beta, scaleA: 1, scaleB: 1, bias: undefined, split: false },
      c: addend?.[i]?.[j] ?? 0,
    });
  return rowsOf(matrix([x.length, w.length], dtype, element));
}

export interface MuonModel extends IterationModel {
  readonly learningRate: number;
  readonly momentum: number;
  readonly nesterov: boolean;
  readonly weightDecay: number;
  readonly adjustLearningRate: "original" | "matchRmsAdamW";
}

/** One step: the new f32 master and momentum buffer. `gradScale` is 1 if absent. */
export function muon(
  state: { readonly p: Matrix; readonly m: Matrix; readonly grad: Matrix; readonly gradScale?: number },
  options: MuonModel,
): { readonly p: Matrix; readonly m: Matrix } {
  const { p, m, grad, gradScale = 1 } = state;
  const { momentum, adjustLearningRate, learningRate, weightDecay } = options;
  const [rows, columns] = p.shape;
  const rule = { dampening: 0, first: false, learningRate: 1, weightDecay: 0, momentum };
  const nesterov = options.nesterov && Math.fround(momentum) !== 0;
  const newMomentum = Array.from(m.data, (previousMomentum, i) =>
    sgd({ ...rule, nesterov, g: mul(grad.data[i] as number, gradScale), p: 0, m: previousMomentum }),
  );
  const direction = { ...p, data: Float32Array.from(newMomentum, (each) => each.p) };
  const orthogonal = newtonSchulz(cast(direction, "f32"), options);
  const ratio = columns === 0 ? 1 : rows / columns;
  const factor = Math.fround(
    adjustLearningRate === "original"
      ? Math.sqrt(Math.max(1, ratio))
      : 0.2 * Math.sqrt(Math.max(rows, columns)),
  );
  const [rate, decay] = [Math.fround(learningRate), Math.fround(weightDecay)];
  const data = p.data.map((parameter, i) => {
    const update = mul(orthogonal.data[i] as number, -factor);
    return sub(parameter, mul(rate, decay === 0 ? update : add(update, mul(decay, parameter))));
  });
  return { p: { ...p, data }, m: { ...m, data: Float32Array.from(newMomentum, (each) => each.m) } };
}
