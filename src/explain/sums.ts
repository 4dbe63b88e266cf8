/** The sum of one element of a product, by every datapath (datapath.md §1, §2, §4). */
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
  /** In a tensor core it is exact, in `fp32` rounded to f32. */
  readonly product: number;
}

/** A term of a step: a product, or the exact sum of a group of products. */
export interface ExplainedTerm {
  /** The products of the term. */
  readonly products: readonly ExplainedProduct[];
  /** The exact term. */
  readonly value: number;
  /** The exponent by which it is aligned. Absent if it is zero and does not count. */
  readonly exponent?: number;
  /** What is left of it after the alignment, and what is cut. */
  readonly kept: number;
  /** What the alignment cuts: `value` is `kept` + `cut`. */
  readonly cut: number;
}

/** One step of a tensor core: elements [from, to) of K are added to the accumulator. */
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
  /** The terms that are added to it. */
  readonly terms: readonly ExplainedTerm[];
  /** The largest exponent of a term. Absent for infinities and NaN. */
  readonly exponent?: number;
  /** The exponent of the grid to whose multiples everything is truncated. Absent for infinities and NaN. */
  readonly grid?: number;
  /** The exact sum of what is kept. */
  readonly sum: number;
  /** The sum, truncated to the fraction bits of the accumulator. */
  readonly result: number;
  /** The exact sum of accumulator and terms, before anything is cut, as the nearest f64. */
  readonly exact: number;
  /** The sum along K up to the end of this step: that of the product whose operands are 0 from there on. */
  readonly total: number;
}

/** A chain of steps from an accumulator of zero, and how it joins the total of its split. */
export interface ExplainedChain {
  /** The first index along K. */
  readonly from: number;
  /** The index after the last one. */
  readonly to: number;
  /** The steps in their order. */
  readonly dotAdds: readonly ExplainedDotAdd[];
  /** The accumulator after the last step. */
  readonly sum: number;
  /** How the chain is added to the total in f32. Absent if there is one chain alone. */
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

/** How the sum along K is made. */
export type ExplainedSum =
  | {
      readonly kind: "tensorCore";
      readonly splits: readonly ExplainedSplit[];
      /** The additions of splits, in f32. */
      readonly steps: readonly ExplainedStep[];
      readonly value: number;
    }
  | {
      /** Each product and each addition is rounded to f32; `total` is the sum up to there. */
      readonly kind: "fp32";
      readonly products: readonly (ExplainedProduct & { readonly total: number })[];
      readonly value: number;
    }
  | {
      /** The exact sum is rounded once to f32; `total` is the rounded sum up to there. */
      readonly kind: "exact";
      readonly products: readonly (ExplainedProduct & { readonly total: number })[];
      /** The exact sum as text; absent for infinities and NaN. */
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

/** The sum by a tensor core. */
export function tensorCoreSum(lines: Lines, division: Division): ExplainedSum {
  const { splits, splitTile } = division;
  const { depth } = lines.x;
  const share = splits === 1 ? depth : Math.ceil(Math.ceil(depth / splitTile) / splits) * splitTile;
  const steps = new Steps();
  const parts: ExplainedSplit[] = [];
  let value = 0;
  for (let i = 0; i < splits; i++) {
    const before = value;
    // the first split is the sum that others are added to
    const join = (own: number): number => (i === 0 ? own : add(before, own));
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

/** What a sum of its own contributes to: the sum along K up to there. */
type Join = (own: number) => number;

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
    const totalOf: Join = (own) => join(promote(own).at(-1)?.value ?? before);
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
    const made = dotAddStep(lines, rule, c, k, Math.min(to, k + rule.step));
    dotAdds.push({ ...made, total: join(made.result) });
    c = made.result;
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
  const own = truncateTo(c, grid);
  const terms = plain.map(({ group, value, exponent: own }) => {
    const kept = truncateTo(value, grid);
    const term = { products: group, value, kept, cut: value - kept };
    return own === undefined ? term : { ...term, exponent: own };
  });
  const ofC = accumulatorExponent(c, rule.zeroAccumulator);
  const accumulator = { value: c, exponent: ofC, kept: own, cut: c - own };
  const exact = nearest(sumOf([c, ...plain.map(({ value }) => value)].map(dyadic)));
  return { from, to, accumulator, terms, exponent, grid, sum, result, exact };
}

/** The exact sum of a group, and the exponent by which it is aligned: that of its first product. */
function termOf(group: readonly ExplainedProduct[]): { readonly value: number; readonly exponent?: number } {
  const value = group.reduce((sum, { product }) => sum + product, 0);
  const [first] = group;
  const isZero = group.every(({ product }) => product === 0);
  const [a, b] = [first?.x.exponent, first?.w.exponent];
  return isZero || a === undefined || b === undefined ? { value } : { value, exponent: a + b };
}

/** Products rounded to f32, added in ascending k. */
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

/** The exact sum of elements with their scales, rounded once. */
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
