/** Every number of a result can be read back from the JSON that a command prints. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { toJson } from "../../../src/cli/session.js";

const { MAX_SAFE_INTEGER: safe } = Number;

const number = fc.oneof(
  fc.double(),
  fc.constantFrom(0, -0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
  fc.bigInt({ min: -(2n ** 64n), max: 2n ** 64n }),
  fc
    .constantFrom(-1n, 0n, 1n)
    .chain((offset) => fc.constantFrom(BigInt(safe) + offset, -BigInt(safe) + offset)),
);

/** Parses the JSON form of a number as its original type. */
function restoreNumbers(value: unknown, original: unknown): unknown {
  return typeof original === "bigint" ? BigInt(value as string | number) : Number(value);
}

it("numbers and integers equal the numbers of the result", () => {
  fc.assert(
    fc.property(fc.array(number), fc.dictionary(fc.string(), number), (numbers, fields) => {
      const json = JSON.parse(toJson({ list: numbers, fields })) as {
        readonly list: readonly unknown[];
        readonly fields: Readonly<Record<string, unknown>>;
      };
      expect(json.list.map((element, i) => restoreNumbers(element, numbers[i]))).toEqual(numbers);
      for (const [name, value] of Object.entries(fields))
        expect(restoreNumbers(json.fields[name], value)).toEqual(value);
      for (const element of json.list)
        if (typeof element === "number") expect(Object.is(element, -0)).toBe(false);
    }),
    // an integer below -2^53
    { examples: [[[-9007199254740993n], {}]] },
  );
});
