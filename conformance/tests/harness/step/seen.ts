/** What can be seen of a training step: matrices by name, the same names on both sides. */
import type { Matrix } from "../../../oracle/training/matrix.js";

export type Seen = ReadonlyMap<string, Matrix>;

/** Where two sides differ: the first name, the element, both values. Undefined where all bits agree, NaN as a class. */
export function difference(actual: Seen, expected: Seen): string | undefined {
  const [ours, theirs] = [actual, expected].map((seen) => [...seen.keys()].sort().join(", "));
  if (ours !== theirs) return `there are ${ours}; there have to be ${theirs}`;
  for (const [name, { data, dtype }] of expected) {
    const found = actual.get(name) as Matrix;
    if (found.dtype !== dtype || found.data.length !== data.length)
      return `${name} is ${found.dtype} [${found.data.length}]; it has to be ${dtype} [${data.length}]`;
    const at = data.findIndex((value, i) => !Object.is(value, found.data[i]));
    if (at >= 0) {
      const count = data.filter((value, i) => !Object.is(value, found.data[i])).length;
      return `${name}: ${count} of ${data.length} differ, first [${at}] is ${found.data[at]}, expected ${data[at]}`;
    }
  }
  return undefined;
}
