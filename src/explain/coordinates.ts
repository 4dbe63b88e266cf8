/** Coordinates of elements that are to be explained. */
import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";
import type { Shape } from "../tensor/shape.js";

/**
 * Returns the index of an element in row-major order. Throws `ArgumentError` unless `at` has one index for each dimension, from 0
 * and below its size.
 */
export function indexIn(user: string, shape: Shape, at: unknown): number {
  const fail = (what: string): never => {
    throw new ArgumentError(`${user}: at is ${what}; the shape is [${shape}]`);
  };
  if (!Array.isArray(at)) return fail(`${describe(at)}, not a list of indices`);
  if (at.length !== shape.length)
    return fail(`[${at.map(describe)}], ${at.length} indices for ${shape.length} dimensions`);
  let index = 0;
  for (const [axis, size] of shape.entries()) {
    const own: unknown = at[axis];
    if (typeof own !== "number" || !Number.isInteger(own) || own < 0 || own >= size)
      return fail(`[${at.map(describe)}]; index ${axis} must be a whole number from 0 to ${size - 1}`);
    index = index * size + own;
  }
  return index;
}
