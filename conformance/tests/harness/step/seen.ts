/** Everything observable in a training step: matrices by name, with the same names for the library and the model. */
import type { Matrix } from "../../../oracle/training/matrix.js";

export type StepResults = ReadonlyMap<string, Matrix>;

/**
 * The first difference: its name, the element, and both values. Undefined if all bits are equal; all NaNs are equal.
 */
export function difference(actual: StepResults, expected: StepResults): string | undefined {
  const [actualNames, expectedNames] = [actual, expected].map((results) =>
    [...results.keys()].sort().join(", "),
  );
  if (actualNames !== expectedNames) return `there are ${actualNames}; there have to be ${expectedNames}`;
  for (const [name, { data, dtype }] of expected) {
    const actualMatrix = actual.get(name) as Matrix;
    if (actualMatrix.dtype !== dtype || actualMatrix.data.length !== data.length)
      return `${name} is ${actualMatrix.dtype} [${actualMatrix.data.length}]; it has to be ${dtype} [${data.length}]`;
    const index = data.findIndex((value, i) => !Object.is(value, actualMatrix.data[i]));
    if (index >= 0) {
      const count = data.filter((value, i) => !Object.is(value, actualMatrix.data[i])).length;
      return `${name}: ${count} of ${data.length} differ, first [${index}] is ${actualMatrix.data[index]}, expected ${data[index]}`;
    }
  }
  return undefined;
}
