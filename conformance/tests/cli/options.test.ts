/** Numeric options: the parsed number of a string, or an error. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { float32, integer, parseOptions, positiveFloat32, u64, value } from "../../../src/cli/options.js";
import { ArgumentError } from "../../../src/errors.js";

/** The value of an option after parsing a string, in two words or in one; undefined if it is refused. */
function parsedBy<T>(parse: (text: string) => T, fallback: T, text: string): readonly unknown[] {
  const table = { x: value<T>({ placeholder: "X", help: "x", parse, fallback }) };
  return [["--x", text], [`--x=${text}`]].map((args) => {
    try {
      return parseOptions(table, args).values.x;
    } catch (error) {
      if (error instanceof ArgumentError) return undefined;
      throw error;
    }
  });
}

const texts = (x: number): readonly string[] =>
  Object.is(x, -0) ? ["-0", "-0.0", "-0e5", "-1e-400"] : [String(x), x.toExponential(), x.toPrecision(30)];

it("a number is rounded to f32 and keeps the sign of zero; what f32 lacks is refused", () => {
  const number = fc.oneof(fc.double(), fc.float(), fc.constantFrom(0, -0, 2 ** 128, -(2 ** 128), 1e-46));
  fc.assert(
    fc.property(number, (x) => {
      for (const text of texts(x)) {
        const f32Value = Math.fround(x);
        const expected = Number.isFinite(f32Value) ? f32Value : undefined;
        expect(parsedBy(float32, 1, text)).toEqual([expected, expected]);
        const positiveOrNone = f32Value > 0 ? expected : undefined;
        expect(parsedBy(positiveFloat32, 1, text)).toEqual([positiveOrNone, positiveOrNone]);
      }
    }),
    { examples: [[-0]] },
  );
  for (const text of ["", " ", "one", "1x", "NaN", "Infinity"])
    expect(parsedBy(float32, 1, text)).toEqual([undefined, undefined]);
});

it("an integer is exact, decimal or hexadecimal, within its range", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -1n, max: 2n ** 64n + 1n }), fc.nat(100), fc.nat(100), (x, min, count) => {
      const expected = x >= 0n && x < 2n ** 64n ? x : undefined;
      for (const text of x < 0n
        ? [`${x}`]
        : [`${x}`, `0x${x.toString(16)}`, `0X${x.toString(16).toUpperCase()}`])
        expect(parsedBy(u64, 0n, text)).toEqual([expected, expected]);
      const byte = Number(x % 256n);
      const isWithin = byte >= min && byte <= min + count;
      const valueWithin = isWithin ? byte : undefined;
      expect(parsedBy(integer(min, min + count), 0, `${byte}`)).toEqual([valueWithin, valueWithin]);
    }),
  );
});
