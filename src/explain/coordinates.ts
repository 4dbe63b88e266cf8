/** Checks coordinates of elements to explain. */
import { ArgumentError } from "../errors.js";
import { describe, elementAt, isArray, listLength } from "../options.js";
import type { Shape } from "../tensor/shape.js";

/** The number of indices that an error message shows. */
const MAX_SHOWN = 8;

/**
 * Returns the index of an element in row-major order. Throws `ArgumentError` unless `at` has one index for each dimension, from 0
 * and below its size.
 */
export function indexIn(caller: string, shape: Shape, at: unknown): number {
  const fail = (label: string): never => {
    throw new ArgumentError(`${caller}: at is ${label}; the shape is [${shape}]`);
  };
  if (!isArray(at)) return fail(`${describe(at)}, not a list of indices`);
  const count = listLength(at);
  // reads only the first elements, because the caller's array may have billions
  const read = Array.from({ length: Math.min(count, MAX_SHOWN) || 0 }, (_, i) =>
    elementAt(caller, "at", at, i),
  );
  const shown = `[${read.map(describe)}${count > MAX_SHOWN ? ",..." : ""}]`;
  if (count !== shape.length) return fail(`${shown}, ${count} indices for ${shape.length} dimensions`);
  let flat = 0;
  for (const [axis, size] of shape.entries()) {
    const index: unknown = axis < MAX_SHOWN ? read[axis] : elementAt(caller, "at", at, axis);
    if (typeof index !== "number" || !Number.isInteger(index) || index < 0 || index >= size)
      return fail(`${shown}; index ${axis} must be a whole number from 0 to ${size - 1}`);
    flat = flat * size + index;
  }
  return flat;
}
