/** The products of a linear layer, each operand read from its rowwise or columnwise copy (numerics.md §6). */
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { div, f32, mul, powerOfTwo, rational, times } from "../core/rational.js";
import { type FactorType, productRule } from "../gemm/datapath.js";
import { epilogue, gemm, type OracleOperand, type RowAmaxes } from "../gemm/gemm.js";
import type { Usage } from "../layout/layout.js";
import { exponentOf, type Matrix, rowsOf } from "./matrix.js";

/** One operand as lines along K. */
export interface Operand {
  readonly lines: readonly (readonly number[])[];
  readonly format: ScalarFormat | "f32";
  /** The block scales: their shape, which determines the datapath, and a function that returns the scale of an element. */
  readonly blocks?: {
    readonly shared: NonNullable<FactorType["scales"]>;
    readonly scale: (line: number, k: number) => number;
  };
  /** The tensor scale; per-tensor FP8 only. */
  readonly factor?: number;
  /** NVFP4 only: the amax of the tensor or of each line, and the largest product of a code's value and a scale. */
  readonly global?: { readonly amax: number | readonly number[]; readonly divisor: number };
}

/** The options of a product, and the tensors that are added to it. */
export interface ProductOptionsModel {
  readonly family: DatapathFamily;
  readonly split: boolean;
  /** One element per column. */
  readonly bias?: ArrayLike<number> | undefined;
  /** The f32 matrix that is added. */
  readonly addend?: Matrix | undefined;
}

/** A wide matrix as an operand, read in one direction. */
export function wideOperand(x: Matrix, usage: Usage): Operand {
  const rows = rowsOf(x);
  return { lines: usage === "rowwise" ? rows : transposeRows(rows, x.shape[1]), format: x.dtype };
}

function transposeRows<T>(rows: readonly (readonly T[])[], columns: number): T[][] {
  return Array.from({ length: columns }, (_, j) => rows.map((row) => row[j] as T));
}

/** The f32 results before rounding to a type: D[i][j] is the product of line i of b and line j of a. */
export function product(
  a: Operand,
  b: Operand,
  { family, split, bias, addend }: ProductOptionsModel,
): number[][] {
  const sums = accumulators(a, b, family, split);
  const factors = {
    alpha: globalFactor(a, b),
    scaleA: a.factor ?? 1,
    scaleB: b.factor ?? 1,
    beta: addend ? 1 : 0,
    split: false,
  };
  const columns = a.lines.length;
  const factor = mul(mul(factors.alpha, factors.scaleA), factors.scaleB);
  const amaxes = lineAmaxes(a, b);
  if (amaxes)
    return sums.map((row, i) =>
      row.map((acc, j) => {
        const c = addend?.data[i * columns + j] ?? 0;
        return epilogue(acc, { ...factors, c, bias: bias?.[j], amaxes: amaxes(i, j) });
      }),
    );
  // without an addend, each operation is exact in f64 before its only rounding, or double rounding is harmless
  if (!addend)
    return sums.map((row) =>
      row.map((acc, j) => {
        const scaledSum = Math.fround(factor * acc) + 0;
        return bias ? Math.fround(scaledSum + (bias[j] as number)) : scaledSum;
      }),
    );
  return sums.map((row, i) =>
    row.map((acc, j) =>
      epilogue(acc, { ...factors, c: addend?.data[i * columns + j] ?? 0, bias: bias?.[j] }),
    ),
  );
}

/** The NVFP4 factor of both operands (numerics.md §5.10). */
function globalFactor(...operands: readonly Operand[]): number {
  const globals = operands.flatMap(({ global }) => global ?? []);
  if (globals.length === 0) return 1;
  const isOutside = globals.some(({ amax }) => typeof amax !== "number");
  const amaxes = globals.reduce((product, { amax }) => (isOutside ? 1 : mul(product, amax as number)), 1);
  return mul(
    amaxes,
    div(
      1,
      globals.reduce((product, { divisor }) => product * divisor, 1),
    ),
  );
}

/** The line amaxes of an element where an operand has several. Addends are f32, so nothing is rounded before them. */
function lineAmaxes(a: Operand, b: Operand): ((row: number, column: number) => RowAmaxes) | undefined {
  const amaxesOf = ({ global }: Operand): readonly number[] => [global?.amax ?? 1].flat();
  if ([a, b].every(({ global }) => typeof (global?.amax ?? 1) === "number")) return undefined;
  const [columns, rows] = [amaxesOf(a), amaxesOf(b)];
  const areMatrices = columns.length > 1 && rows.length > 1;
  const amaxAt = (amaxes: readonly number[], line: number) =>
    (amaxes.length > 1 ? amaxes[line] : amaxes[0]) as number;
  return (row, column) => ({
    row: amaxAt(rows, row),
    column: amaxAt(columns, column),
    scalesBoth: areMatrices,
    round: (x) => x,
  });
}

function accumulators(a: Operand, b: Operand, family: DatapathFamily, splitAccumulator: boolean): number[][] {
  if (family === "exact") return exactSums(a, b);
  if (family === "fp32") return f32Sums(a, b);
  const rule = productRule(family, factorType(b), factorType(a), splitAccumulator);
  if (!rule) throw new RangeError(`datapath.md has no ${family} rule for these operands`);
  return gemm({ ...rule, splits: 1, x: oracleOperand(b), w: oracleOperand(a) });
}

function factorType({ format, blocks }: Operand): FactorType {
  return blocks ? { format, scales: blocks.shared } : { format };
}

const SCALE_EXPONENTS = { e8m0: -127, e4m3: -6, ue5m3: -14, f32: -126 };

function oracleOperand({ lines, format, blocks }: Operand): OracleOperand {
  const minExponent = format === "f32" ? -126 : 1 - SCALAR_FORMATS[format].bias;
  if (!blocks) return { lines, minExponent };
  return { lines, minExponent, scale: blocks.scale, scaleMinExponent: SCALE_EXPONENTS[blocks.shared.format] };
}

/** Elements times their block scales; f64 represents these products exactly. */
function scaledLines({ lines, blocks }: Operand): readonly (readonly number[])[] {
  return blocks ? lines.map((line, i) => line.map((q, k) => q * blocks.scale(i, k))) : lines;
}

/** Elements as integers, in units of 2^-shift. */
function toFixedPoint(lines: readonly (readonly number[])[]) {
  const shift = Math.max(0, ...lines.map((line) => Math.max(0, ...line.map(fractionBits))));
  const maximum = Math.max(0, ...lines.map((line) => Math.max(0, ...line.map(Math.abs)))) * 2 ** shift;
  return { shift, most: maximum, lines: lines.map((line) => line.map((x) => x * 2 ** shift)) };
}

/** The number of fraction bits of a finite number. */
function fractionBits(x: number): number {
  if (x === 0) return 0;
  let bits = Math.max(0, 20 - exponentOf(x));
  while (bits > 0 && Number.isInteger(x * 2 ** (bits - 1))) bits--;
  while (!Number.isInteger(x * 2 ** bits)) bits++;
  return bits;
}

/** Exact sums, each rounded once. Computed in f64 if all integers fit, else in bigints. */
function exactSums(a: Operand, b: Operand): number[][] {
  const [w, x] = [scaledLines(a), scaledLines(b)];
  if (![...w, ...x].every((line) => line.every(Number.isFinite)))
    return x.map((row) => w.map((line) => wildDot(row, line)));
  const [xFixed, wFixed] = [toFixedPoint(x), toFixedPoint(w)];
  const shift = xFixed.shift + wFixed.shift;
  const depth = x[0]?.length ?? 0;
  if (xFixed.most * wFixed.most * Math.max(depth, 1) < 2 ** 53) {
    const unit = 2 ** -shift;
    return xFixed.lines.map((row) => wFixed.lines.map((line) => Math.fround(dot(row, line) * unit) + 0));
  }
  const unit = powerOfTwo(-shift);
  const [rows, columns] = [xFixed, wFixed].map(({ lines }) => lines.map((line) => line.map(BigInt))) as [
    bigint[][],
    bigint[][],
  ];
  return rows.map((row) =>
    columns.map((line) =>
      f32(times(rational(row.reduce((total, q, k) => total + q * (line[k] as bigint), 0n)), unit)),
    ),
  );
}

function dot(x: readonly number[], w: readonly number[]): number {
  let total = 0;
  for (let k = 0; k < x.length; k++) total += (x[k] as number) * (w[k] as number);
  return total;
}

/**
 * The dot product of lines with infinities or NaN: the infinity if all infinities agree, else NaN. Lines whose elements are
 * finite are summed as usual.
 */
function wildDot(x: readonly number[], w: readonly number[]): number {
  const nonFiniteTerms = x.map((q, k) => q * (w[k] as number)).filter((term) => !Number.isFinite(term));
  if (nonFiniteTerms.length > 0) return nonFiniteTerms.reduce((a, b) => a + b);
  const single = (line: readonly number[]): Operand => ({ lines: [line], format: "f32" });
  return exactSums(single(w), single(x))[0]?.[0] as number;
}

function f32Sums(a: Operand, b: Operand): number[][] {
  const f = Math.fround;
  const [w, x] = [a, b].map((each) => scaledLines(each).map((line) => line.map(f))) as [
    number[][],
    number[][],
  ];
  return x.map((row) =>
    w.map((line) => row.reduce((total, q, k) => f(total + f(q * (line[k] as number))), 0)),
  );
}
