/** Sums along K in several orders, written as kernels write them. */
import { type Element, fma, fround } from "./kernel.js";

/** A range of K. */
export type Range = readonly [from: number, to: number];

/** One accumulator and fused multiply-adds. */
export function fmaChain({ x, w }: Element, [from, to]: Range, start = 0, step = 1): number {
  let acc = start;
  for (let k = from; k < to; k += step) acc = fma(x[k] as number, w[k] as number, acc);
  return acc;
}

/** One accumulator; products are rounded before they are added. */
export function mulAddChain({ x, w }: Element, [from, to]: Range, start = 0): number {
  let acc = start;
  for (let k = from; k < to; k++) {
    const product = fround((x[k] as number) * (w[k] as number));
    acc = fround(acc + product);
  }
  return acc;
}

export const fullRange = ({ depth }: Element): Range => [0, depth];

/** The ranges of a split-K. Splits are multiples of the tile. */
export function ranges(depth: number, count: number, tile: number): Range[] {
  const length = Math.ceil(Math.ceil(depth / tile) / count) * tile;
  const splitRanges: Range[] = [];
  for (let from = 0; from < depth; from += length) splitRanges.push([from, Math.min(depth, from + length)]);
  return splitRanges;
}

export function sumInOrder(sums: readonly number[]): number {
  let total = sums[0] ?? 0;
  for (const sum of sums.slice(1)) total = fround(total + sum);
  return total;
}

/** A shuffle tree: lane i adds lane i + n / 2, then n / 4, and so on. */
export function shuffleDown(sums: readonly number[]): number {
  const lanes = [...sums];
  for (let offset = lanes.length / 2; offset >= 1; offset /= 2)
    for (let i = 0; i < offset; i++) lanes[i] = fround((lanes[i] as number) + (lanes[i + offset] as number));
  return lanes[0] ?? 0;
}

/** A horizontal add: neighbours first. */
export function horizontalAdd(sums: readonly number[]): number {
  let lanes = [...sums];
  while (lanes.length > 1) {
    const pairSums: number[] = [];
    for (let i = 0; i < lanes.length; i += 2)
      pairSums.push(fround((lanes[i] as number) + (lanes[i + 1] as number)));
    lanes = pairSums;
  }
  return lanes[0] ?? 0;
}

/** Accumulators that take `run` consecutive elements in turn. */
export function laneSums(
  element: Element,
  count: number,
  run = 1,
  [from, to]: Range = fullRange(element),
): number[] {
  const lanes = new Array<number>(count).fill(0);
  for (let k = from; k < to; k++) {
    const lane = Math.floor((k - from) / run) % count;
    lanes[lane] = fma(element.x[k] as number, element.w[k] as number, lanes[lane] as number);
  }
  return lanes;
}

/** Recursive halves of rounded products. */
export function cascadeSum(terms: readonly number[]): number {
  if (terms.length === 0) return 0;
  if (terms.length === 1) return terms[0] as number;
  const half = Math.floor(terms.length / 2);
  return fround(cascadeSum(terms.slice(0, half)) + cascadeSum(terms.slice(half)));
}

export const roundedProducts = ({ x, w }: Element): number[] =>
  x.map((value, k) => fround(value * (w[k] as number)));

/** numpy's pairwise sum: eight accumulators up to 128 terms, then halves that are multiples of eight. */
export function numpySum(terms: readonly number[]): number {
  const n = terms.length;
  if (n < 8) return terms.reduce((sum, term) => fround(sum + term), 0);
  if (n > 128) {
    let half = Math.floor(n / 2);
    half -= half % 8;
    return fround(numpySum(terms.slice(0, half)) + numpySum(terms.slice(half)));
  }
  const lanes = terms.slice(0, 8);
  let i = 8;
  for (; i < n - (n % 8); i += 8)
    for (let j = 0; j < 8; j++) lanes[j] = fround((lanes[j] as number) + (terms[i + j] as number));
  const pair = (a: number, b: number): number => fround((lanes[a] as number) + (lanes[b] as number));
  let sum = fround(fround(pair(0, 1) + pair(2, 3)) + fround(pair(4, 5) + pair(6, 7)));
  for (; i < n; i++) sum = fround(sum + (terms[i] as number));
  return sum;
}

/** Chains of a block that start at zero. */
export function blockSums(element: Element, block: number, chain = fmaChain): number {
  let total = 0;
  for (let k = 0; k < element.depth; k += block)
    total = fround(total + chain(element, [k, Math.min(element.depth, k + block)]));
  return total;
}

const flooredExponent = (value: number, minimum: number): number =>
  value === 0 ? Number.NEGATIVE_INFINITY : Math.max(minimum, Math.floor(Math.log2(Math.abs(value))));

/** Truncates toward zero to a multiple of 2^grid. */
const truncate = (value: number, grid: number): number => {
  const half = Math.trunc(grid / 2);
  return Math.trunc(value / 2 ** half / 2 ** (grid - half)) * 2 ** half * 2 ** (grid - half);
};

/** The steps of a tensor core over a range (datapath.md §1), for finite operands. */
export function tensorCore(
  { x, w }: Element,
  [from, to]: Range,
  rule: { readonly step: number; readonly align: number; readonly bits: number; readonly least: number },
  start = 0,
): number {
  let accumulator = start;
  for (let k = from; k < to; k += rule.step) {
    const terms: number[] = [];
    let maxExponent = accumulator === 0 ? -133 : Math.max(-126, flooredExponent(accumulator, -126));
    for (let i = k; i < Math.min(to, k + rule.step); i++) {
      const [a, b] = [x[i] as number, w[i] as number];
      terms.push(a * b);
      maxExponent = Math.max(maxExponent, flooredExponent(a, rule.least) + flooredExponent(b, rule.least));
    }
    if (![accumulator, ...terms].every(Number.isFinite)) {
      accumulator = terms.reduce((sum, term) => sum + term, accumulator);
      continue;
    }
    const grid = maxExponent - rule.align;
    const sum = terms.reduce((total, term) => total + truncate(term, grid), truncate(accumulator, grid));
    accumulator = sum === 0 ? 0 : truncate(sum, Math.max(-126, flooredExponent(sum, -126)) - rule.bits);
    if (Math.abs(sum) >= 2 ** 128)
      accumulator = sum > 0 ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  }
  return accumulator;
}

/** Hopper's steps of bf16 and f16, and of FP8. */
export const HALF = (least: number) => ({ step: 16, align: 25, bits: 23, least });
export const FP8 = { step: 32, align: 13, bits: 13, least: -6 };

/** Kahan's compensated sum in f32. */
export function kahan(terms: readonly number[]): number {
  let [sum, compensation] = [0, 0];
  for (const term of terms) {
    const corrected = fround(term - compensation);
    const total = fround(sum + corrected);
    compensation = fround(fround(total - sum) - corrected);
    sum = total;
  }
  return sum;
}
