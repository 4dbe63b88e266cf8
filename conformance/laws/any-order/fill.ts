/** Values that make orders of summation visible, and mistakes that tolerances hide. */
import { factsOf, valueOfCode } from "../../../src/formats/derive.js";
import type { ScalarFormat } from "../../../src/formats/scalar.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { bitsOf } from "../../values/values.js";

/** The type of the elements of an operand. */
export type ElementFormat = ScalarFormat | "f32";

/** A generator of the lines of both operands. */
export interface Values {
  /** Numbers from 0 to below 1. */
  readonly uniform: () => number;
  readonly normal: () => number;
  /** A number from 0 to below `count`. */
  readonly below: (count: number) => number;
}

/** The random numbers of a seed. */
export function valuesOf(seed: number): Values {
  const next = splitmix32(seed);
  const uniform = (): number => next() / 2 ** 32;
  const normal = (): number => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return { uniform, normal, below: (count) => next() % Math.max(1, count) };
}

/** The finite codes from zero on, in the order of their values. */
const codes = new Map<
  ScalarFormat,
  { readonly values: readonly number[]; readonly codes: readonly number[] }
>();

function positiveCodes(format: ScalarFormat) {
  const cached = codes.get(format);
  if (cached) return cached;
  const { bits } = factsOf(format);
  const pairs = Array.from({ length: 2 ** bits }, (_, code) => [valueOfCode(format, code), code] as const)
    .filter(([value]) => Number.isFinite(value) && (value > 0 || Object.is(value, 0)))
    .sort(([a], [b]) => a - b);
  const table = { values: pairs.map(([value]) => value), codes: pairs.map(([, code]) => code) };
  codes.set(format, table);
  return table;
}

/**
 * The code of a neighbour of a number, mostly the nearest. A number beyond the largest value gets the code of the largest value.
 */
export function codeOf(format: ElementFormat, value: number): number {
  if (format === "f32") return bitsOf(Math.fround(value));
  const table = positiveCodes(format);
  let [low, high] = [0, table.values.length - 1];
  const magnitude = Math.abs(value);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((table.values[middle] as number) <= magnitude) low = middle;
    else high = middle - 1;
  }
  const next = table.values[low + 1];
  if (next !== undefined && next - magnitude < magnitude - (table.values[low] as number)) low++;
  const signBit = 2 ** (factsOf(format).bits - 1);
  return (table.codes[low] as number) + (value < 0 ? signBit : 0);
}

/** The smallest normal exponent of a format. */
function minExponentOf(format: ElementFormat): number {
  return format === "f32" ? -126 : Math.log2(factsOf(format).minNormal);
}

function maxExponentOf(format: ElementFormat): number {
  return format === "f32" ? 127 : factsOf(format).maxExponent;
}

/** A row of `FLAVOURS`: the lines of an operand. `side` is 0 for x and 1 for w. */
type Fill = (values: Values, depth: number, format: ElementFormat, side: 0 | 1) => number[];

const each =
  (of: (values: Values, format: ElementFormat) => number): Fill =>
  (values, depth, format) =>
    Array.from({ length: depth }, () => of(values, format));

/** The sum of a few values at the ends of K and of blocks, which is exact in every order. */
const sparse: Fill = (values, depth, _format, side) => {
  const line = new Array<number>(depth).fill(0);
  const ends = [depth - 1, 0, depth - 2, depth - (depth % 32) - 1, depth - (depth % 128), depth >> 1];
  for (const index of side === 0 ? ends : [])
    if (index >= 0 && index < depth) line[index] = 1 + values.below(3);
  return side === 0 ? line : line.map(() => 1 - 2 * values.below(2));
};

/** A second half that cancels the first, so that the sum consists of rounding errors, and one more element. */
const cancelling: Fill = (values, depth, _format, side) => {
  const half = Math.floor(depth / 2);
  const first = Array.from({ length: half }, () => values.normal());
  const second = side === 0 ? first.map((value) => -value) : first;
  const middle = depth % 2 === 0 ? [] : [values.normal() / 16];
  return [...first, ...second, ...middle];
};

/** The kinds of lines, each under the name that a report prints. */
export const FLAVOURS = {
  normal: each(({ normal }) => normal()),
  integers: each(({ below }) => below(7) - 3),
  sparse,
  ranges: each(({ normal, below }) => normal() * 2 ** (below(13) - 6)),
  cancelling,
  positive: each(({ uniform }) => 0.5 + uniform()),
  ones: each(() => 1),
  /** Products below the normal range of f32, or elements below the normal range of a narrow format. */
  tiny: each(({ normal }, format) => normal() * 2 ** Math.max(minExponentOf(format) + 1, -68)),
  /** Products near the largest number of the result's type. */
  large: each(({ normal }, format) => normal() * 2 ** Math.min(maxExponentOf(format) - 6, 58)),
} as const satisfies Record<string, Fill>;

/** The name of a kind of lines. */
export type FlavourName = keyof typeof FLAVOURS;

/** The kinds in the order in which runs take them. Kinds that distinguish orders are more frequent. */
export const FLAVOUR_RUNS: readonly FlavourName[] = [
  "normal",
  "integers",
  "ranges",
  "normal",
  "sparse",
  "positive",
  "normal",
  "tiny",
  "cancelling",
  "normal",
  "large",
  "ones",
];
