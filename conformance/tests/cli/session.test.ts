/** Every number of a result can be read back from the JSON that a command prints. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { toJson } from "../../../src/cli/session.js";

const { MAX_SAFE_INTEGER: safe } = Number;

const number = fc.oneof(
  fc.double(),
  fc.constantFrom(0, -0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
  fc.bigInt({ min: -(2n ** 64n), max: 2n ** 64n }),
  fc.constantFrom(-1n, 0n, 1n).chain((by) => fc.constantFrom(BigInt(safe) + by, -BigInt(safe) + by)),
);

/** Parses the JSON form of a number as its original type. */
function restored(value: unknown, before: unknown): unknown {
  return typeof before === "bigint" ? BigInt(value as string | number) : Number(value);
}

it("numbers and integers are equal to those of the result", () => {
  fc.assert(
    fc.property(fc.array(number), fc.dictionary(fc.string(), number), (list, fields) => {
      const json = JSON.parse(toJson({ list, fields })) as {
        readonly list: readonly unknown[];
        readonly fields: Readonly<Record<string, unknown>>;
      };
      expect(json.list.map((each, i) => restored(each, list[i]))).toEqual(list);
      for (const [name, value] of Object.entries(fields))
        expect(restored(json.fields[name], value)).toEqual(value);
      for (const each of json.list) if (typeof each === "number") expect(Object.is(each, -0)).toBe(false);
    }),
    // an integer below -2^53
    { examples: [[[-9007199254740993n], {}]] },
  );
});
