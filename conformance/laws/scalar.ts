/** Helpers for laws about scalars: encoding through a subject, and the neighbours of a number in a layout. */
import type * as fc from "fast-check";
import { derive } from "../../src/formats/derive.js";
import type { ScalarLayout } from "../../src/formats/scalar.js";
import { scalarLayout } from "../arbitraries/formats.js";
import type { EncodeCase } from "../operations/cast/encode.js";
import type { Subject } from "../operations/operations.js";
import { MismatchError } from "../values/difference.js";
import { fromCodes, unpack } from "../values/plain.js";
import { fromBits, magnitudeOf, storageBitsOf } from "../values/values.js";

const NO_RANDOM = { seed: 0n, offset: 0n };

type How = Pick<EncodeCase, "rounding" | "overflow"> & Partial<Pick<EncodeCase, "random">>;

/** The code of each f32 bit pattern, from the subject. */
export async function codesOf(
  subject: Subject,
  layout: ScalarLayout,
  patterns: readonly number[],
  how: How,
): Promise<number[]> {
  const padded = [...patterns, ...(patterns.length % 2 === 1 ? [0] : [])];
  const input = {
    x: fromCodes("f32", [padded.length], padded),
    format: layout,
    random: NO_RANDOM,
    scale: 1,
    ...how,
  };
  const answer = await subject.encode?.(input);
  const codes = answer?.codes?.codes;
  if (!codes) return [];
  const each = storageBitsOf(layout) === 4 ? unpack(Uint8Array.from(codes)) : codes;
  return Array.from(each.subarray(0, patterns.length));
}

/** Throws `MismatchError` unless `condition` is true. */
export function require(condition: boolean, describe: () => string): void {
  if (!condition) throw new MismatchError(describe());
}

/** Prints an f32 as value and bit pattern. */
export const show = (bits: number): string => `${fromBits(bits)} (0x${bits.toString(16).padStart(8, "0")})`;

/** A layout together with bit patterns aimed at it. */
export function layoutWith<T>(
  more: (layout: ScalarLayout) => fc.Arbitrary<T>,
): fc.Arbitrary<{ layout: ScalarLayout; drawn: T }> {
  return scalarLayout().chain((layout) => more(layout).map((drawn) => ({ layout, drawn })));
}

/** The two values of a layout next to |x| and the code of the lower one. Undefined if x lies outside the range. */
export function neighbours(
  x: number,
  layout: ScalarLayout,
): { low: number; below: number; above: number } | undefined {
  const { maxCode } = derive(layout);
  const a = Math.abs(x);
  if (!(a >= magnitudeOf(0, layout) && a <= magnitudeOf(maxCode, layout))) return undefined;
  let [low, high] = [0, maxCode];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (magnitudeOf(middle, layout) <= a) low = middle;
    else high = middle - 1;
  }
  return { low, below: magnitudeOf(low, layout), above: magnitudeOf(low + 1, layout) };
}
