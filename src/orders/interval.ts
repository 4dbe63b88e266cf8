/**
 * The interval that holds an element under every order of summation. The first-order part is sharp: for m terms no partial sum
 * is beyond the m largest terms of one sign, and the i-th smallest partial sum of any binary tree has at most i + 1 terms.
 */
import { floorLog2 } from "../explain/binary.js";
import { roundedTo } from "../explain/steps.js";
import type { WideDType } from "../tensor/shape.js";
import { ACCUMULATORS, type AccumulatorName, type AccumulatorRow, F32_UNIT } from "./accumulators.js";
import type { EpilogueOperands } from "./epilogues.js";
import type { Terms } from "./order.js";

/** The values that an element may have. */
export interface ElementInterval {
  /** The smallest value, after the cast. NaN if `special` is present. */
  readonly low: number;
  /** The largest value, after the cast. NaN if `special` is present. */
  readonly high: number;
  /** Whether the element is NaN or infinite whatever the order. */
  readonly special?: "NaN" | "Infinity" | "-Infinity";
  /** Whether some order may overflow, so that infinities and NaN are also possible. */
  readonly overflows: boolean;
  /** The exact value before all roundings, as far as f64 holds it. */
  readonly exact: number;
  /** The width before the cast to the result's type. */
  readonly width: number;
  /** The sum of the magnitudes of the terms and addends. */
  readonly magnitude: number;
}

const MAX_F32 = (2 - 2 ** -23) * 2 ** 127;
/** The smallest positive f32: a rounded product below the normal range errs by at most half of it. */
const LEAST_F32 = 2 ** -149;
const F32_MIN_EXPONENT = -126;

/** The exact products of an element with their scales, and whether a scale adds roundings. */
function productsOf({ x, w, scales }: Terms): { readonly products: Float64Array; readonly scaled: boolean } {
  let scaled = false;
  const products = Float64Array.from(x, (value, k) => {
    const product = value * (w[k] as number);
    if (!scales) return product;
    const block = Math.floor(k / scales.length);
    scaled = true;
    return product * ((scales.x[block] as number) * (scales.w[block] as number));
  });
  return { products, scaled };
}

/** A sum in f64 with compensation. */
function compensatedSum(values: ArrayLike<number>): number {
  let [sum, remainder] = [0, 0];
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    const next = sum + value;
    const part = next - sum;
    remainder += sum - (next - part) + (value - part);
    sum = next;
  }
  return sum + remainder;
}

const f64 = new Float64Array(1);
const f64Words = new Uint32Array(f64.buffer);
const lowestOfWord = (word: number): number => 31 - Math.clz32(word & -word);

/** The exponent of the lowest bit that is set; Infinity for zero. */
function lowestBitOf(value: number): number {
  if (value === 0) return Number.POSITIVE_INFINITY;
  f64[0] = value;
  const [low, high] = [f64Words[0] as number, f64Words[1] as number];
  const fraction = high & 0xfffff;
  const zeros = low !== 0 ? lowestOfWord(low) : fraction !== 0 ? 32 + lowestOfWord(fraction) : 52;
  return floorLog2(value) - 52 + zeros;
}

/** The exponent of the lowest bit that is set in any of the values; Infinity if all are zero. */
function lowestBit(values: Float64Array): number {
  return values.reduce((minimum, value) => Math.min(minimum, lowestBitOf(value)), Number.POSITIVE_INFINITY);
}

/** largest[m]: the sum of the m largest magnitudes of one sign, the larger of both signs. */
function largestSums(values: Float64Array): Float64Array {
  const count = values.length;
  const sortedValues = values.slice().sort();
  const sums = new Float64Array(count + 1);
  let [positiveSum, negativeSum] = [0, 0];
  for (let m = 1; m <= count; m++) {
    positiveSum += Math.max(0, sortedValues[count - m] as number);
    negativeSum += Math.max(0, -(sortedValues[m - 1] as number));
    sums[m] = Math.max(positiveSum, negativeSum);
  }
  return sums;
}

/** The largest error of one addition whose result is at most `size`: half a unit of the last place, or the row's unit. */
function errorOf({ unit, nearest }: AccumulatorRow, size: number): number {
  if (size === 0) return 0;
  return nearest ? unit * 2 ** Math.max(floorLog2(size), F32_MIN_EXPONENT) : unit * size;
}

/** The largest error of products that are rounded to f32 before they are added. */
function errorOfProducts(magnitudes: Float64Array): number {
  // a product of at most 24 bits is exact
  const inexact = magnitudes.filter((size) => size > 2 ** (lowestBitOf(size) + 24));
  const subnormalProducts = magnitudes.filter((size) => lowestBitOf(size) < -149);
  return F32_UNIT * compensatedSum(inexact) + (LEAST_F32 / 2) * subnormalProducts.length;
}

/**
 * The largest error of the sum of these terms under any order. `minimumTerm` is the size by which a tensor core aligns the
 * smallest product.
 */
function errorOfSum(row: AccumulatorRow, products: Float64Array, scaled: boolean, minimumTerm = 0): number {
  const magnitudes = products.map(Math.abs);
  const total = compensatedSum(magnitudes);
  const grid = lowestBit(products);
  const isExact = (size: number): boolean => grid >= -149 && size <= 2 ** (grid + row.exactBits);
  const ofProducts = row.roundsProducts ? errorOfProducts(magnitudes) : 0;
  const ofScales = scaled
    ? 4 * F32_UNIT * total * (1 + products.length * row.unit) + LEAST_F32 * products.length
    : 0;
  const count = magnitudes.filter((size) => size > 0).length;
  const sums = largestSums(products);
  const largestTerm = row.nearest ? 0 : Math.max(sums[1] ?? 0, minimumTerm);
  let error = ofProducts + ofScales;
  for (let m = row.nearest ? 2 : 1; m <= count; m++) {
    const size = Math.max(sums[m] as number, largestTerm) + error;
    if (!(error === 0 && isExact(size))) error += errorOf(row, size);
  }
  if (!row.nearest) error += 2 * count * LEAST_F32;
  return error;
}

/** A row with promotion: chains of `promotion` terms by the row, and then additions in f32. */
function errorOfPromoted(
  row: AccumulatorRow,
  products: Float64Array,
  scaled: boolean,
  minimumTerm: number,
): number {
  const { promotion } = row;
  if (promotion === 0) return errorOfSum(row, products, scaled, minimumTerm);
  let error = 0;
  for (let k = 0; k < products.length; k += promotion)
    error += errorOfSum(row, products.slice(k, k + promotion), scaled, minimumTerm);
  return error + errorOfSum(ACCUMULATORS.f32, products, false);
}

/**
 * A bound for the differences between orders in an element: the magnitude of its products, relative to its value. 0 if every
 * partial sum is exact in f32, so that all orders agree.
 */
export function conditionOf(terms: Terms, value: number): number {
  const { products } = productsOf(terms);
  const magnitude = products.reduce((sum, product) => sum + Math.abs(product), 0);
  if (!(magnitude > 2 ** (lowestBit(products) + 24) && magnitude <= MAX_F32)) return 0;
  return magnitude / Math.max(Math.abs(value), Number.MIN_VALUE);
}

/** Returns the NaN or infinity that every order gives; undefined if all terms and addends are finite. */
function specialOf(products: Float64Array, addends: readonly number[]): ElementInterval["special"] {
  let sum = 0;
  for (const value of [...products, ...addends]) if (!Number.isFinite(value)) sum += value;
  if (Number.isFinite(sum)) return undefined;
  if (Number.isNaN(sum)) return "NaN";
  return sum > 0 ? "Infinity" : "-Infinity";
}

const SPECIAL = { low: Number.NaN, high: Number.NaN, width: 0, magnitude: Number.POSITIVE_INFINITY } as const;

/**
 * The interval of an element. Under the declared accumulator, it contains the value of every order of summation, with products
 * rounded or fused, and of every order of the epilogue's operations.
 */
export function intervalOf(
  terms: Terms,
  operands: EpilogueOperands,
  accumulator: AccumulatorName,
): ElementInterval {
  const row: AccumulatorRow = ACCUMULATORS[accumulator];
  const { products, scaled } = productsOf(terms);
  const { alpha, scaleX, scaleW, beta, addend, bias, dtype } = operands;
  const factor = alpha * scaleX * scaleW;
  const scaledAddend = beta === 0 ? 0 : beta * addend;
  const special = specialOf(products, [factor, scaledAddend, bias ?? 0]);
  const exactSum = compensatedSum(products);
  const exact = exactSum * factor + scaledAddend + (bias ?? 0);
  if (special !== undefined)
    return {
      ...SPECIAL,
      special: factor < 0 ? negatedSpecial(special, scaledAddend, bias) : special,
      overflows: false,
      exact,
    };
  // the accumulator may begin at the bias or at the addend
  const starts = factor === 1 ? [scaledAddend, bias ?? 0].filter((value) => value !== 0) : [];
  const summands = Float64Array.of(...products, ...starts);
  const minimumTerm = 2 ** (terms.minExponents[0] + terms.minExponents[1]);
  const errorOfTerms = errorOfPromoted(row, summands, scaled, minimumTerm);
  const magnitude = compensatedSum(products.map(Math.abs));
  const sizes = magnitude * Math.abs(factor) + Math.abs(scaledAddend) + Math.abs(bias ?? 0);
  const steps = [alpha !== 1, scaleX !== 1, scaleW !== 1].filter((differs) => differs).length * 2;
  const ofFactors = steps * F32_UNIT * 1.01 * (magnitude + errorOfTerms) * Math.abs(factor);
  const additions = Number(beta !== 0) * (Number(beta !== 1) + 1) + Number(bias !== undefined);
  const isFree = errorOfTerms === 0 && steps === 0 && additionsAreExact(exact, products, starts);
  const ofAdditions = isFree ? 0 : additions * F32_UNIT * 1.01 * (sizes + errorOfTerms * Math.abs(factor));
  const underflowError = steps + additions > 0 ? LEAST_F32 * (steps + additions) * (1 + Math.abs(factor)) : 0;
  const error = errorOfTerms * Math.abs(factor) + ofFactors + ofAdditions + (isFree ? 0 : underflowError);
  // f64 gives the exact value only to its own precision
  const slack = error === 0 ? 0 : 2 ** -50 * (Math.abs(exact) + error) + 2 ** -90 * sizes;
  const [minimum, maximum] = [exact - error - slack, exact + error + slack];
  const largest = (largestSums(products).at(-1) ?? 0) + errorOfTerms;
  const scaledLargest = largest * Math.abs(factor) + Math.abs(scaledAddend) + Math.abs(bias ?? 0);
  const overflows = Math.max(largest, scaledLargest) > MAX_F32;
  const [low] = castBounds(minimum, dtype);
  const [, high] = castBounds(maximum, dtype);
  return { low, high, overflows, exact, width: maximum - minimum, magnitude: sizes };
}

/** The smallest and the largest result of a cast from f32, or directly from f64. */
function castBounds(value: number, dtype: WideDType): readonly [low: number, high: number] {
  const casts = [roundedTo(Math.fround(value), dtype), roundedTo(value, dtype)] as const;
  return [Math.min(...casts), Math.max(...casts)];
}

/** Whether f32 holds every sum of the terms and addends. */
function additionsAreExact(exact: number, products: Float64Array, starts: readonly number[]): boolean {
  const terms = Float64Array.of(...products, ...starts);
  return Math.fround(exact) === exact && compensatedSum(terms.map(Math.abs)) <= 2 ** (lowestBit(terms) + 24);
}

/** The special value after a negative factor; addends keep their sign. */
function negatedSpecial(
  special: NonNullable<ElementInterval["special"]>,
  scaledAddend: number,
  bias: number | undefined,
): NonNullable<ElementInterval["special"]> {
  if (special === "NaN" || !Number.isFinite(scaledAddend + (bias ?? 0))) return special;
  return special === "Infinity" ? "-Infinity" : "Infinity";
}

/** Whether the interval contains a value. NaN equals NaN, and zeros of either sign are equal. */
export function contains(interval: ElementInterval, value: number): boolean {
  if (interval.special !== undefined) return Object.is(value, Number(interval.special));
  if (interval.overflows && !Number.isFinite(value)) return true;
  return value >= interval.low && value <= interval.high;
}
