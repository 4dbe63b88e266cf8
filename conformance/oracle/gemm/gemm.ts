/** Matrix products under a datapath, in exact integers, written from datapath.md. */
import type { DotAdd, StagingName } from "../../../src/formats/datapath.js";
import {
  add,
  bf16,
  F32,
  f32,
  fma,
  mul,
  ofNumber,
  powerOfTwo,
  rational,
  roundToNearest,
  times,
} from "../core/rational.js";
import {
  dyadic,
  exponentOf,
  type Factor,
  product,
  special,
  step,
  sum,
  toFactor,
  zeroExponent,
} from "./step.js";

/**
 * An operand: lines of decoded elements along K. `minExponent` is the exponent of the smallest normal number of the
 * element format.
 */
export interface OracleOperand {
  readonly lines: readonly (readonly number[])[];
  readonly minExponent: number;
  readonly scale?: ((line: number, k: number) => number) | undefined;
  /** The same exponent for the format of the scales. */
  readonly scaleMinExponent?: number;
}

export interface OracleTask {
  readonly x: OracleOperand;
  readonly w: OracleOperand;
  readonly rule: "exact" | "fp32" | DotAdd;
  readonly staging: StagingName;
  /** How the sum of a chain (`interval` elements along K) is added to the total; "none" means a single chain. */
  readonly promotion: "none" | "add" | "scaleProduct" | "scaleChain";
  readonly interval: number;
  readonly splits: number;
  readonly splitTile: number;
}

const TF32 = { ...F32, fractionBits: 10 };

/** One element as a factor of the datapath. */
function factor(task: OracleTask, operand: OracleOperand, line: number, k: number): Factor {
  const q = operand.lines[line]?.[k] as number;
  const s = operand.scale?.(line, k) ?? 1;
  const ofZero = zeroExponent(task.rule);
  const plainFactor = (value: number): Factor => toFactor(value, exponentOf(value, -126, ofZero));
  switch (task.staging) {
    case "bf16": {
      // the product of a code and a scale is exact in f64
      const value = Math.fround(q * s);
      return plainFactor(Number.isFinite(value) ? withSignOf(bf16(ofNumber(value)), value) : value);
    }
    case "tf32":
      return plainFactor(Number.isFinite(q) ? withSignOf(roundToNearest(ofNumber(q), TF32), q) : q);
    case "grouped":
      return toFactor(q * s, exponentOf(s, operand.scaleMinExponent ?? -126, 0));
    default: {
      const isUnscaled = task.staging === "plain";
      const value = isUnscaled ? q : q * s;
      if (!Number.isFinite(value)) return toFactor(value, 0);
      const exponent = exponentOf(q, operand.minExponent, ofZero);
      if (isUnscaled) return toFactor(value, exponent);
      return toFactor(value, exponent + exponentOf(s, operand.scaleMinExponent ?? -126, 0));
    }
  }
}

function withSignOf(value: number, signSource: number): number {
  return value === 0 ? signSource * 0 : value;
}

/** The factors of two lines, one of each operand. */
interface Lines {
  readonly x: readonly Factor[];
  readonly w: readonly Factor[];
}

/** The factors [first, last) of a line, padded with zeros to a full step. */
function stepFactors(line: readonly Factor[], rule: DotAdd, begin: number, end: number): readonly Factor[] {
  const zero = toFactor(0, zeroExponent(rule));
  return Array.from({ length: rule.step }, (_, n) => (begin + n < end ? line[begin + n] : undefined) ?? zero);
}

function chain(rule: DotAdd, { x, w }: Lines, begin: number, end: number): number {
  let c = 0;
  for (let k = begin; k < end; k += rule.step)
    c = step(rule, c, stepFactors(x, rule, k, x.length), stepFactors(w, rule, k, w.length));
  return c;
}

/** The sum of one split, k from `begin` to `end` - 1: its chains, added in f32. */
function splitSum(
  task: OracleTask,
  rule: DotAdd,
  [i, j]: readonly [number, number],
  lines: Lines,
  [begin, end]: readonly [number, number],
): number {
  if (task.promotion === "none") return chain(rule, lines, begin, end);
  let total = 0;
  for (let k = begin; k < end; k += task.interval) {
    const c = chain(rule, lines, k, Math.min(end, k + task.interval));
    const sX = task.x.scale?.(i, k) ?? 1;
    const sW = task.w.scale?.(j, k) ?? 1;
    if (task.promotion === "add") total = add(total, c);
    else if (task.promotion === "scaleProduct") total = fma(c, mul(sX, sW), total);
    else total = fma(mul(c, sX), sW, total);
  }
  return total;
}

function scaleElement(operand: OracleOperand, line: number, k: number): readonly [q: number, s: number] {
  return [operand.lines[line]?.[k] as number, operand.scale?.(line, k) ?? 1];
}

function exactDot({ x, w }: OracleTask, i: number, j: number, depth: number): number {
  const factors = Array.from(
    { length: depth },
    (_, k) => [...scaleElement(x, i, k), ...scaleElement(w, j, k)] as const,
  );
  const nonFinite = special(factors.map(([q, s, r, t]) => q * s * (r * t)));
  if (nonFinite !== undefined) return nonFinite;
  const { significand, exponent } = sum(
    factors.map(([q, s, r, t]) => product(product(dyadic(q), dyadic(s)), product(dyadic(r), dyadic(t)))),
  );
  return f32(times(rational(significand), powerOfTwo(exponent)));
}

function f32Dot({ x, w }: OracleTask, i: number, j: number, depth: number): number {
  let total = 0;
  for (let k = 0; k < depth; k++)
    total = add(total, mul(mul(...scaleElement(x, i, k)), mul(...scaleElement(w, j, k))));
  return total;
}

/** The sum of one element under the rule of a tensor core: its splits, added in f32. */
function splitDot(task: OracleTask, rule: DotAdd, index: readonly [number, number], lines: Lines): number {
  const { splits, splitTile } = task;
  const depth = lines.x.length;
  const share = splits === 1 ? depth : Math.ceil(Math.ceil(depth / splitTile) / splits) * splitTile;
  const partialSums = Array.from({ length: splits }, (_, s) =>
    splitSum(task, rule, index, lines, [s * share, Math.min(depth, (s + 1) * share)]),
  );
  return partialSums.reduce((a, b) => add(a, b));
}

/** D[i][j] = the sum over k of x[i][k] * w[j][k] under the rule of the task, as f32 values. */
export function gemm(task: OracleTask): number[][] {
  const depth = task.x.lines[0]?.length ?? 0;
  const { rule } = task;
  const isStepped = rule !== "exact" && rule !== "fp32";
  const [x, w] = [task.x, task.w].map((operand) =>
    operand.lines.map((line, i) => (isStepped ? line.map((_, k) => factor(task, operand, i, k)) : [])),
  ) as [Factor[][], Factor[][]];
  return x.map((ofX, i) =>
    w.map((ofW, j) => {
      if (rule === "exact") return exactDot(task, i, j, depth);
      if (rule === "fp32") return f32Dot(task, i, j, depth);
      return splitDot(task, rule, [i, j], { x: ofX, w: ofW });
    }),
  );
}

export interface EpilogueTask {
  readonly alpha: number;
  readonly scaleA: number;
  readonly scaleB: number;
  readonly beta: number;
  readonly c: number;
  readonly bias: number | undefined;
  readonly split: boolean;
  /** Whether an operand has line scales. scaleA and scaleB are then the scales of this element's lines. */
  readonly hasLineScales?: boolean;
  /** The line amaxes of an element, for row-scaled NVFP4. Otherwise amaxes are part of `alpha`. */
  readonly amaxes?: RowAmaxes | undefined;
}

/** The amaxes that multiply a sum after its scales and alpha (numerics.md §5.10). */
export interface RowAmaxes {
  /** The amax of D's row (a row of cuBLASLt's B); `column` is the amax of D's column (a row of A). */
  readonly row: number;
  readonly column: number;
  /** Whether D has several rows and several columns, each with its own amax. */
  readonly scalesBoth: boolean;
  /** The rounding to D's type that precedes the addition of C; the identity for f32 and 8-bit results. */
  readonly round: (x: number) => number;
}

/** The f32 result from an accumulator, before it is rounded to D's type. */
export function epilogue(acc: number, task: EpilogueTask): number {
  if (task.amaxes) return amaxEpilogue(acc, task, task.amaxes);
  if (task.hasLineScales) return lineScaledEpilogue(acc, task);
  const { alpha, scaleA, scaleB, beta, c, bias, split } = task;
  const s = mul(mul(alpha, scaleA), scaleB);
  const withC = (): number => (split ? fma(beta, c, mul(s, acc)) : fma(s, acc, mul(beta, c)));
  const withoutC = (): number => (split ? mul(s, acc) : fma(s, acc, 0));
  const x = beta === 0 ? withoutC() : withC();
  return bias === undefined ? x : add(x, bias);
}

/** The epilogue of cuBLASLt with vector scales (datapath.md §2): the scales multiply the sum, then alpha does. */
function lineScaledEpilogue(acc: number, { alpha, scaleA, scaleB, beta, c, bias }: EpilogueTask): number {
  const scaledSum = mul(mul(acc, scaleA), scaleB);
  const x = alpha === 1 && beta === 0 ? scaledSum : fma(scaledSum, alpha, beta === 0 ? 0 : mul(beta, c));
  return bias === undefined ? x : add(x, bias);
}

/**
 * The epilogue of TransformerEngine for row-scaled NVFP4, which starts from an f32 product without C and bias (numerics.md
 * §5.10).
 */
function amaxEpilogue(
  acc: number,
  task: EpilogueTask,
  { row, column, scalesBoth, round }: RowAmaxes,
): number {
  const p = epilogue(acc, { ...task, amaxes: undefined, beta: 0, bias: undefined });
  const scaledProduct = scalesBoth ? mul(mul(p, row), column) : mul(p, mul(row, column));
  const x = task.bias === undefined ? scaledProduct : add(scaledProduct, task.bias);
  return task.beta === 0 ? x : add(mul(task.beta, task.c), round(x));
}
