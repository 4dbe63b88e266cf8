/** `toEqual` takes arrays of numbers for equal if and only if all elements are the same. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { draws } from "../harness/draws.js";
import { equalNumbers } from "../harness/equality.js";

const numbers = fc.array(
  fc.oneof(fc.constantFrom(0, -0, Number.NaN, Number.POSITIVE_INFINITY, 1), fc.float()),
  {
    minLength: 1,
    maxLength: 5,
  },
);
type Numbers = readonly number[] | Float32Array | Float64Array;

const kinds: readonly ((values: readonly number[]) => Numbers)[] = [
  (values) => values.slice(),
  (values) => Float32Array.from(values),
  (values) => Float64Array.from(values),
];

const areSame = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((element, i) => Object.is(element, b[i]));

it("arrays of numbers are equal if all elements are the same, and are left to vitest otherwise", () => {
  fc.assert(
    fc.property(
      numbers,
      numbers,
      fc.boolean(),
      fc.constantFrom(...kinds),
      (a, otherNumbers, isSame, make) => {
        const b = isSame ? a : otherNumbers;
        expect(equalNumbers(make(a), make(b))).toBe(areSame(a, b) ? true : undefined);
        const expectation = () => expect({ of: [make(a)] }).toEqual({ of: [make(b)] });
        if (areSame(a, b)) expectation();
        else expect(expectation).toThrow();
      },
    ),
    { numRuns: draws(1000, 100) },
  );
});

it("other values and parts of larger arrays are left to vitest", () => {
  const bytes = Uint8Array.of(1, 2, 3, 1, 2);
  expect(equalNumbers(bytes.subarray(0, 2), bytes.subarray(3))).toBe(true);
  expect(equalNumbers(bytes, Int8Array.from(bytes))).toBeUndefined();
  for (const value of [[], [undefined], ["1"], [1n], new DataView(bytes.buffer), 1, null])
    expect(equalNumbers(value, value)).toBeUndefined();
});
