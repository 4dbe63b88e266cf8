/** Computes the sum of one element in exactly one order. */
import { floorLog2 } from "../explain/binary.js";
import { dotAdd, type Term } from "../explain/dot-add.js";
import { fma } from "../explain/exact.js";
import { mul, roundedTo } from "../explain/steps.js";
import type { Arithmetic, JoinName, Lanes, ScalingName, SummationOrder, Terms } from "./order.js";

const { fround } = Math;

type Add = (a: number, b: number) => number;

/** The addition of partial sums: in f64, in the narrow type, or in f32. */
function additionOf(arithmetic: Arithmetic): Add {
  if (arithmetic.kind === "double") return (a, b) => a + b;
  if (arithmetic.kind === "narrow") return (a, b) => roundedTo(fround(a + b), arithmetic.format);
  return (a, b) => fround(a + b);
}

/** Returns the sum of a list in the order of `join`. The sum of an empty list is 0. */
function joinSums(join: JoinName, sums: number[], add: Add): number {
  if (sums.length === 0) return 0;
  if (join === "ascending") return sums.reduce(add);
  if (join === "descending") return sums.reduceRight(add);
  const partialSums = [...sums];
  while (partialSums.length > 1) {
    const half = Math.ceil(partialSums.length / 2);
    const partner = (i: number): number => (join === "halves" ? i + half : 2 * i + 1);
    for (let i = 0; i < half; i++) {
      const first = partialSums[join === "halves" ? i : 2 * i] as number;
      const second = partialSums[partner(i)];
      partialSums[i] = second === undefined ? first : add(first, second);
    }
    partialSums.length = half;
  }
  return partialSums[0] as number;
}

/**
 * The factors of one element, and values derived from them. If the order applies scales first, the factors are multiplied by
 * their scales.
 */
class Factors {
  readonly depth: number;
  #terms: readonly Term[] | undefined;

  constructor(
    readonly x: ArrayLike<number>,
    readonly w: ArrayLike<number>,
    private readonly minExponents: readonly [number, number],
  ) {
    this.depth = x.length;
  }

  /** The products with the exponents by which a tensor core aligns them. */
  get terms(): readonly Term[] {
    this.#terms ??= Array.from({ length: this.depth }, (_, k) => {
      const [a, b] = [this.x[k] as number, this.w[k] as number];
      const value = a * b;
      if (value === 0 || !Number.isFinite(value)) return { value };
      const [ofX, ofW] = this.minExponents;
      return { value, exponent: Math.max(floorLog2(a), ofX) + Math.max(floorLog2(b), ofW) };
    });
    return this.#terms;
  }
}

/** Adds terms [from, to) with a stride to an accumulator. */
function chain(
  { kind, ...rule }: Arithmetic,
  factors: Factors,
  from: number,
  to: number,
  start: number,
): number {
  const { x, w } = factors;
  let c = start;
  if (kind === "fused") for (let k = from; k < to; k++) c = fma(x[k] as number, w[k] as number, c);
  else if (kind === "rounded")
    for (let k = from; k < to; k++) c = fround(c + fround((x[k] as number) * (w[k] as number)));
  else if (kind === "double") for (let k = from; k < to; k++) c += (x[k] as number) * (w[k] as number);
  else if ("format" in rule)
    for (let k = from; k < to; k++) c = roundedTo(fma(x[k] as number, w[k] as number, c), rule.format);
  else if ("rule" in rule)
    for (let k = from; k < to; k += rule.rule.step)
      c = dotAddOf(rule.rule, c, factors.terms.slice(k, Math.min(to, k + rule.rule.step)));
  return c;
}

/** A step of a tensor core. NaN and infinities add as in IEEE 754. */
function dotAddOf(rule: Parameters<typeof dotAdd>[0], c: number, terms: readonly Term[]): number {
  let areFinite = Number.isFinite(c);
  for (const { value } of terms) if (!Number.isFinite(value)) areFinite = false;
  return areFinite ? dotAdd(rule, c, terms).result : terms.reduce((sum, { value }) => sum + value, c);
}

/** Distributes terms [from, to) over lanes and joins their sums. The first lane begins at `start`. */
function laneSum(order: SummationOrder, factors: Factors, from: number, to: number, start: number): number {
  const { arithmetic } = order;
  const { count, run, join }: Lanes = order.lanes;
  if (count === 1) return chain(arithmetic, factors, from, to, start);
  const sums = new Array<number>(count).fill(0);
  sums[0] = start;
  for (let k = from, lane = 0; k < to; k += run, lane = (lane + 1) % count)
    sums[lane] = chain(arithmetic, factors, k, Math.min(to, k + run), sums[lane] as number);
  return joinSums(join, sums, additionOf(arithmetic));
}

/** numpy's recursion: 8 accumulators up to 128 terms, and halves that are multiples of 8. */
const NUMPY = { base: 128, lanes: 8 } as const;

/** The sum of terms [from, to) by recursive halves. */
function pairwiseSum(order: SummationOrder, factors: Factors, from: number, to: number): number {
  const { pairwise, arithmetic } = order;
  const n = to - from;
  if (!pairwise) return 0;
  const add = additionOf(arithmetic);
  const sumOfHalves = (middle: number): number =>
    add(pairwiseSum(order, factors, from, middle), pairwiseSum(order, factors, middle, to));
  if (pairwise.split === "numpy") {
    if (n > NUMPY.base) return sumOfHalves(from + Math.floor(n / 2) - (Math.floor(n / 2) % NUMPY.lanes));
    const lanesEnd = n < NUMPY.lanes ? from : to - (n % NUMPY.lanes);
    const lanes = { count: NUMPY.lanes, run: 1, join: "neighbours" } as const;
    return chain(arithmetic, factors, lanesEnd, to, laneSum({ ...order, lanes }, factors, from, lanesEnd, 0));
  }
  if (n <= pairwise.base) return chain(arithmetic, factors, from, to, 0);
  return sumOfHalves(
    from + (pairwise.split === "middle" ? Math.floor(n / 2) : 2 ** (Math.ceil(Math.log2(n)) - 1)),
  );
}

/** Adds the sum of a block to the total, with the scales of its terms. */
function addToTotal(scaling: ScalingName, sum: number, total: number, sx: number, sw: number): number {
  switch (scaling) {
    case "fmaOfProduct":
      return fma(sum, mul(sx, sw), total);
    case "addOfProduct":
      return fround(total + mul(sum, mul(sx, sw)));
    case "fmaInTurn":
      return fma(mul(sum, sx), sw, total);
    case "addInTurn":
      return fround(total + mul(mul(sum, sx), sw));
    case "addInTurnFromW":
      return fround(total + mul(mul(sum, sw), sx));
    case "elements":
      return fround(total + sum);
  }
}

/** The sum of one split: its blocks, each from zero, or one chain. */
function splitSum(
  order: SummationOrder,
  factors: Factors,
  scales: Terms["scales"],
  [from, to]: readonly [number, number],
  start: number,
): number {
  const { block, pairwise, scaling, arithmetic } = order;
  const sumOf = (begin: number, end: number, first: number): number => {
    if (!pairwise) return laneSum(order, factors, begin, end, first);
    const sum = pairwiseSum(order, factors, begin, end);
    return first === 0 ? sum : additionOf(arithmetic)(first, sum);
  };
  if (block === 0) return sumOf(from, to, start);
  let total = start;
  for (let k = from; k < to; k += block) {
    const sum = fround(sumOf(k, Math.min(to, k + block), 0));
    if (!scales || scaling === undefined || scaling === "elements") total = fround(total + sum);
    else {
      const block = Math.floor(k / scales.length);
      total = addToTotal(scaling, sum, total, scales.x[block] as number, scales.w[block] as number);
    }
  }
  return total;
}

/** The ranges of the splits of K. */
function rangesOf(depth: number, { count, tile }: SummationOrder["splits"]): (readonly [number, number])[] {
  if (count === 1) return [[0, depth]];
  const length = Math.ceil(Math.ceil(depth / tile) / count) * tile;
  return Array.from({ length: count }, (_, i): readonly [number, number] => [
    Math.min(depth, i * length),
    Math.min(depth, (i + 1) * length),
  ]).filter(([from, to]) => to > from);
}

/** Evaluates many orders on one element. */
export class Evaluator {
  readonly #plain: Factors;
  #scaled: Factors | undefined;

  constructor(private readonly terms: Terms) {
    this.#plain = new Factors(terms.x, terms.w, terms.minExponents);
  }

  /** The sum in this order, an f32 value. `start` is the first value of the accumulator of the first split. */
  sum(order: SummationOrder, start = 0): number {
    const { scales } = this.terms;
    const factors = order.scaling === "elements" ? this.#dequantized() : this.#plain;
    const sums = rangesOf(factors.depth, order.splits).map((range, i) =>
      splitSum(order, factors, scales, range, i === 0 ? start : 0),
    );
    return fround(joinSums(order.splits.join, sums, additionOf(order.arithmetic)));
  }

  #dequantized(): Factors {
    const { x, w, scales, minExponents } = this.terms;
    const scaledBy = (values: ArrayLike<number>, scales: ArrayLike<number>, length: number) =>
      Float64Array.from(values, (value, k) => mul(value, scales[Math.floor(k / length)] as number));
    this.#scaled ??= scales
      ? new Factors(scaledBy(x, scales.x, scales.length), scaledBy(w, scales.w, scales.length), [-126, -126])
      : new Factors(x, w, minExponents);
    return this.#scaled;
  }
}
