/** Everything observable in a training step: matrices by name, with the same names for the library and the model. */
import type { Matrix } from "../../../oracle/training/matrix.js";

export type Seen = ReadonlyMap<string, Matrix>;

/**
 * The first difference: its name, the element, and both values. Undefined if all bits are equal; all NaNs are equal.
 */
export function difference(actual: Seen, expected: Seen): string | undefined {
  const [ours, theirs] = [actual, expected].map((seen) => [...seen.keys()].sort().join(", "));
  if (ours !== theirs) return `there are ${ours}; there have to be ${theirs}`;
  for (const [name, { data, dtype }] of expected) {
    const actualMatrix = actual.get(name) as Matrix;
    if (actualMatrix.dtype !== dtype || actualMatrix.data.length !== data.length)
      return `${name} is ${actualMatrix.dtype} [${actualMatrix.data.length}]; it has to be ${dtype} [${data.length}]`;
    const at = data.findIndex((value, i) => !Object.is(value, actualMatrix.data[i]));
    if (at >= 0) {
      const count = data.filter((value, i) => !Object.is(value, actualMatrix.data[i])).length;
      return `${name}: ${count} of ${data.length} differ, first [${at}] is ${actualMatrix.data[at]}, expected ${data[at]}`;
    }
  }
  return undefined;
}
