/** The sum of one element of a product under each datapath (datapath.md §1, §2, §4). */
import type { DotAdd, PromotionName } from "../formats/datapath.js";
import { truncateTo } from "./binary.js";
import { accumulatorExponent, dotAdd } from "./dot-add.js";
import { type Dyadic, dyadic, dyadicText, fma, nearest, roundToF32, sumOf, times } from "./exact.js";
import { dequantized, type ExplainedFactor, type OperandReader } from "./operands.js";
import { add, type ExplainedStep, mul, Steps } from "./steps.js";

/** The product of two elements. */
export interface ExplainedProduct {
  /** The index along K. */
  readonly k: number;
  /** The element of x. */
  readonly x: ExplainedFactor;
  /** The element of w. */
  readonly w: ExplainedFactor;
  /** Exact in a tensor core, rounded to f32 in `fp32`. */
  readonly product: number;
}

/** A term of a step: a product, or the exact sum of a group of products. */
export interface ExplainedTerm {
  /** The products of the term. */
  readonly products: readonly ExplainedProduct[];
  /** The exact term. */
  readonly value: number;
  /** The exponent by which it is aligned. Absent if the term is zero and takes no part in the alignment. */
  readonly exponent?: number;
  /** The part of the term that the alignment keeps. */
  readonly kept: number;
  /** The part that the alignment cuts off: `value` is `kept` + `cut`. */
  readonly cut: number;
}

/** One step of a tensor core, which adds elements [from, to) of K to the accumulator. */
export interface ExplainedDotAdd {
  /** The first index along K. */
  readonly from: number;
  /** The index after the last one. */
  readonly to: number;
  /** The accumulator before the step, aligned as terms are. */
  readonly accumulator: {
    readonly value: number;
    readonly exponent: number;
    readonly kept: number;
    readonly cut: number;
  };
  /** The terms that are added to the accumulator. */
  readonly terms: readonly ExplainedTerm[];
  /** The largest exponent in the step. Absent for infinities and NaN. */
  readonly exponent?: number;
  /** Terms and accumulator are truncated to multiples of 2^grid. Absent for infinities and NaN. */
  readonly grid?: number;
  /** The exact sum of the kept parts. */
  readonly sum: number;
  /** The sum, truncated to the fraction bits of the accumulator. */
  readonly result: number;
  /** The exact sum of accumulator and terms before the alignment, as the nearest f64. */
  readonly exact: number;
  /** The partial sum along K after this step. */
  readonly total: number;
}

/** A chain of steps that starts from a zero accumulator, and how it is added to the total of its split. */
export interface ExplainedChain {
  /** The first index along K. */
  readonly from: number;
  /** The index after the last one. */
  readonly to: number;
  /** The steps in their order. */
  readonly dotAdds: readonly ExplainedDotAdd[];
  /** The accumulator after the last step. */
  readonly sum: number;
  /** How the chain is added to the total in f32. Absent if there is only one chain. */
  readonly promotion?: { readonly steps: readonly ExplainedStep[]; readonly total: number };
}

/** One split of K. */
export interface ExplainedSplit {
  /** The first index along K. */
  readonly from: number;
  /** The index after the last one. */
  readonly to: number;
  /** The chains in their order. */
  readonly chains: readonly ExplainedChain[];
  /** The sum of the split. */
  readonly sum: number;
}

/** How the sum along K is computed. */
export type ExplainedSum =
  | {
      readonly kind: "tensorCore";
      readonly splits: readonly ExplainedSplit[];
      /** The f32 additions of the splits. */
      readonly steps: readonly ExplainedStep[];
      readonly value: number;
    }
  | {
      /** Each product and each addition is rounded to f32; `total` is the partial sum. */
      readonly kind: "fp32";
      readonly products: readonly (ExplainedProduct & { readonly total: number })[];
      readonly value: number;
    }
  | {
      /** The exact sum is rounded once to f32; `total` is the rounded partial sum. */
      readonly kind: "exact";
      readonly products: readonly (ExplainedProduct & { readonly total: number })[];
      /** The exact sum as a string; absent for infinities and NaN. */
      readonly exact?: string;
      readonly value: number;
    };

/** The operands of one element: line `row` of x and line `column` of w. */
export interface Lines {
  readonly x: OperandReader;
  readonly w: OperandReader;
  readonly row: number;
  readonly column: number;
}

/** How chains and splits divide K. */
export interface Division {
  readonly rule: DotAdd;
  readonly promotion: PromotionName;
  readonly interval: number;
  readonly splits: number;
  readonly splitTile: number;
}

function productAt({ x, w, row, column }: Lines, k: number): ExplainedProduct {
  const [a, b] = [x.factor(row, k), w.factor(column, k)];
  return { k, x: a, w: b, product: a.value * b.value };
}

/** Computes the sum as a tensor core does. */
export function tensorCoreSum(lines: Lines, division: Division): ExplainedSum {
  const { splits, splitTile } = division;
  const { depth } = lines.x;
  const share = splits === 1 ? depth : Math.ceil(Math.ceil(depth / splitTile) / splits) * splitTile;
  const steps = new Steps();
  const parts: ExplainedSplit[] = [];
  let value = 0;
  for (let i = 0; i < splits; i++) {
    const before = value;
    // the first split's sum is the initial total
    const join = (partial: number): number => (i === 0 ? partial : add(before, partial));
    const part = splitSum(
      lines,
      division,
      [i, i + 1].map((at) => Math.min(depth, at * share)),
      join,
    );
    parts.push(part);
    value = i === 0 ? part.sum : steps.add("acc", `acc ⊕ split ${i}`, join(part.sum));
  }
  return { kind: "tensorCore", splits: parts, steps: steps.list, value };
}

/** Maps a partial sum within a chain or split to the partial sum along K. */
type Join = (partial: number) => number;

function splitSum(
  lines: Lines,
  { rule, promotion, interval }: Division,
  [from = 0, to = 0]: readonly number[],
  join: Join,
): ExplainedSplit {
  if (promotion === "none") {
    const only = chainSum(lines, rule, from, to, join);
    return { from, to, chains: [only], sum: only.sum };
  }
  const chains: ExplainedChain[] = [];
  let total = 0;
  for (let k = from; k < to; k += interval) {
    const before = total;
    const promote = (sum: number) => promoted(lines, promotion, { from: k, sum }, before);
    const totalOf: Join = (partial) => join(promote(partial).at(-1)?.value ?? before);
    const chain = chainSum(lines, rule, k, Math.min(to, k + interval), totalOf);
    const steps = promote(chain.sum);
    total = steps.at(-1)?.value ?? total;
    chains.push({ ...chain, promotion: { steps, total } });
  }
  return { from, to, chains, sum: total };
}

/** Adds a chain to the total. */
function promoted(
  { x, w, row, column }: Lines,
  promotion: Exclude<PromotionName, "none">,
  { from, sum }: Pick<ExplainedChain, "from" | "sum">,
  total: number,
): readonly ExplainedStep[] {
  const steps = new Steps();
  if (promotion === "add") {
    steps.add("total", "total ⊕ chain", add(total, sum));
    return steps.list;
  }
  const sX = steps.add("sX", "the scale of the block of x", x.scaleOf(row, from));
  const sW = steps.add("sW", "the scale of the block of w", w.scaleOf(column, from));
  if (promotion === "scaleProduct") {
    const s = steps.add("s", "sX ⊗ sW", mul(sX, sW));
    steps.add("total", "fma(chain, s, total)", fma(sum, s, total));
  } else {
    const t = steps.add("t", "chain ⊗ sX", mul(sum, sX));
    steps.add("total", "fma(t, sW, total)", fma(t, sW, total));
  }
  return steps.list;
}

function chainSum(lines: Lines, rule: DotAdd, from: number, to: number, join: Join): ExplainedChain {
  const dotAdds: ExplainedDotAdd[] = [];
  let c = 0;
  for (let k = from; k < to; k += rule.step) {
    const dotAddResult = dotAddStep(lines, rule, c, k, Math.min(to, k + rule.step));
    dotAdds.push({ ...dotAddResult, total: join(dotAddResult.result) });
    c = dotAddResult.result;
  }
  return { from, to, dotAdds, sum: c };
}

function dotAddStep(
  lines: Lines,
  rule: DotAdd,
  c: number,
  from: number,
  to: number,
): Omit<ExplainedDotAdd, "total"> {
  const products = Array.from({ length: to - from }, (_, i) => productAt(lines, from + i));
  const wild = [c, ...products.map(({ product }) => product)].filter((value) => !Number.isFinite(value));
  const groups: ExplainedProduct[][] = [];
  for (let i = 0; i < products.length; i += rule.group) groups.push(products.slice(i, i + rule.group));
  if (wild.length > 0) {
    // NaN, or infinities of both signs, give NaN; otherwise the infinity wins
    const result = wild.reduce((sum, value) => sum + value);
    const terms = groups.map((group) => {
      const value = group.reduce((sum, { product }) => sum + product, 0);
      return { products: group, value, kept: value, cut: 0 };
    });
    const accumulator = { value: c, exponent: 0, kept: c, cut: 0 };
    return { from, to, accumulator, terms, sum: result, result, exact: result };
  }
  const plain = groups.map((group) => ({ group, ...termOf(group) }));
  const { exponent, grid, sum, result } = dotAdd(rule, c, plain);
  const keptOfC = truncateTo(c, grid);
  const terms = plain.map(({ group, value, exponent: termExponent }) => {
    const kept = truncateTo(value, grid);
    const term = { products: group, value, kept, cut: value - kept };
    return termExponent === undefined ? term : { ...term, exponent: termExponent };
  });
  const ofC = accumulatorExponent(c, rule.zeroAccumulator);
  const accumulator = { value: c, exponent: ofC, kept: keptOfC, cut: c - keptOfC };
  const exact = nearest(sumOf([c, ...plain.map(({ value }) => value)].map(dyadic)));
  return { from, to, accumulator, terms, exponent, grid, sum, result, exact };
}

/** The exact sum of a group, and the exponent by which it is aligned: the exponent of its first product. */
function termOf(group: readonly ExplainedProduct[]): { readonly value: number; readonly exponent?: number } {
  const value = group.reduce((sum, { product }) => sum + product, 0);
  const [first] = group;
  const isZero = group.every(({ product }) => product === 0);
  const [a, b] = [first?.x.exponent, first?.w.exponent];
  return isZero || a === undefined || b === undefined ? { value } : { value, exponent: a + b };
}

/** Adds products rounded to f32 in ascending k. */
export function fp32Sum(lines: Lines): ExplainedSum {
  let total = 0;
  const products = Array.from({ length: lines.x.depth }, (_, k) => {
    const { x, w } = productAt(lines, k);
    const product = mul(dequantized(x), dequantized(w));
    total = add(total, product);
    return { k, x, w, product, total };
  });
  return { kind: "fp32", products, value: total };
}

/** The exact sum of scaled elements, rounded once. */
export function exactSum(lines: Lines): ExplainedSum {
  let exact: Dyadic = { significand: 0n, exponent: 0 };
  // the sum of infinities and NaN
  let wild: number | undefined;
  const products = Array.from({ length: lines.x.depth }, (_, k) => {
    const { x, w } = productAt(lines, k);
    const parts = [x.element, x.scale ?? 1, w.element, w.scale ?? 1] as const;
    const product = parts[0] * parts[1] * (parts[2] * parts[3]);
    if (parts.every(Number.isFinite)) exact = sumOf([exact, parts.map(dyadic).reduce(times)]);
    else wild = (wild ?? product) + (wild === undefined ? 0 : product);
    return { k, x, w, product, total: wild ?? roundToF32(exact) };
  });
  if (wild !== undefined) return { kind: "exact", products, value: wild };
  return { kind: "exact", products, exact: dyadicText(exact), value: roundToF32(exact) };
}
