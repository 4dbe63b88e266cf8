/** Input that users type into the playground: numbers, lines, distributions, and the address. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { drawNumbers } from "../../../playground/src/data/distribution.js";
import { bitsOf, floatOf, parseLines, parseNumber } from "../../../playground/src/data/numbers.js";
import { readParams, writeParams } from "../../../playground/src/params.js";
import { exactly } from "../../../playground/src/words.js";
import { draws } from "../harness/draws.js";

const anyBits = fc.integer({ min: 0, max: 2 ** 32 - 1 });

describe("a number", () => {
  it("is read from every text that String() gives for a number", () => {
    fc.assert(
      fc.property(fc.double(), (x) => {
        expect(parseNumber(Object.is(x, -0) ? "-0" : String(x))).toBe(x);
      }),
    );
  });

  it("is the f32 with the bits that are typed, and has these bits", () => {
    fc.assert(
      fc.property(anyBits, (bits) => {
        const typedNumber = parseNumber(`0x${bits.toString(16).padStart(8, "0")}`) as number;
        expect(typedNumber).toBe(floatOf(bits));
        if (!Number.isNaN(typedNumber)) expect(bitsOf(typedNumber)).toBe(bits);
      }),
    );
  });

  it("may be a power, a product or a quotient of others", () => {
    fc.assert(
      fc.property(fc.integer({ min: -149, max: 127 }), fc.integer({ min: 1, max: 999 }), (power, factor) => {
        expect(parseNumber(`2^${power}`)).toBe(2 ** power);
        expect(parseNumber(`−${factor} * 2^${power}`)).toBe(-factor * 2 ** power);
        expect(parseNumber(`1/${factor}`)).toBe(1 / factor);
      }),
    );
  });

  it.each(["", "-", "1..2", "0x12", "0x123456789", "1+1", "two", "1 2", "^2", "2^", "1/", "*1", "2^0.5"])(
    "is not %j",
    (text) => expect(parseNumber(text)).toBeUndefined(),
  );

  it("is written with all of its digits", () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (x) => {
        const text = exactly(x, 2000).replace("−", "-");
        expect(Number(text)).toBe(x);
        // the decimal expansion of a binary fraction is finite, and its last digit is 5
        const [, fraction = ""] = text.split(".");
        if (fraction !== "") expect(fraction).toMatch(/5$/);
      }),
    );
    expect(exactly(Math.fround(0.3))).toBe("0.300000011920928955078125");
    expect(exactly(2 ** -149, 20)).toBe("0.000000000000000000…");
  });
});

describe("lines of numbers", () => {
  it("are a matrix, whatever stands between the numbers", () => {
    const lines = fc.array(fc.array(fc.float({ noNaN: true }), { minLength: 1, maxLength: 9 }), {
      minLength: 1,
      maxLength: 9,
    });
    fc.assert(
      fc.property(
        lines,
        fc.constantFrom(" ", ", ", ";", "\t"),
        fc.constantFrom("\n", "\r\n", "\n\n"),
        (rows, areSeparate, end) => {
          const columns = Math.max(...rows.map((row) => row.length));
          const expected = rows.flatMap((row) => [
            ...row,
            ...new Array<number>(columns - row.length).fill(0),
          ]);
          const text = rows
            .map((row) => row.map((x) => (Object.is(x, -0) ? "-0" : x)).join(areSeparate))
            .join(end);
          expect(parseLines(text)).toEqual({
            rows: rows.length,
            columns,
            values: Float32Array.from(expected),
          });
        },
      ),
    );
  });

  it.each([
    ["", /Paste numbers/],
    ["1 2\n3 x", /“x” in row 2/],
    ["1 ".repeat(513), /1 rows of up to 513/],
  ])("report the fault of %j", (text, message) => expect(parseLines(text)).toMatch(message));
});

describe("a distribution", () => {
  it("gives the same numbers for the same text, size and seed, and others for another seed", () => {
    const texts = fc.constantFrom(
      "normal(0, 1)",
      "uniform",
      "student(3, 2)",
      "lognormal(0, 2)",
      "normal + outliers(5%, 9)",
    );
    fc.assert(
      fc.property(
        texts,
        fc.integer({ min: 8, max: 200 }),
        fc.bigInt({ min: 0n, max: 2n ** 53n }),
        (text, count, seed) => {
          const numbers = drawNumbers(text, count, seed);
          expect(numbers).toHaveLength(count);
          expect(drawNumbers(text, count, seed)).toEqual(numbers);
          expect(drawNumbers(text, count, seed + 1n)).not.toEqual(numbers);
        },
      ),
      { numRuns: draws(30) },
    );
  });

  it("has the requested mean, deviation, range and outliers", () => {
    const count = 2 ** 16;
    const momentsOf = (text: string) => {
      const numbers = drawNumbers(text, count, 7n) as Float32Array;
      const mean = numbers.reduce((sum, x) => sum + x, 0) / count;
      return {
        drawn: numbers,
        mean,
        deviation: Math.sqrt(numbers.reduce((sum, x) => sum + (x - mean) ** 2, 0) / count),
      };
    };
    const normal = momentsOf("normal(3, 0.5)");
    expect(normal.mean).toBeCloseTo(3, 1);
    expect(normal.deviation).toBeCloseTo(0.5, 1);
    // the variance of Student's t is degrees / (degrees - 2)
    expect(momentsOf("student(10, 2)").deviation).toBeCloseTo(2 * Math.sqrt(10 / 8), 1);
    const { drawn: samples } = momentsOf("uniform(2, 4) + outliers(1%, 100)");
    expect(Math.min(...samples)).toBeGreaterThanOrEqual(2);
    expect(samples.filter((x) => x > 4).length / count).toBeCloseTo(0.01, 2);
    expect(Array.from(drawNumbers("ramp(-1, 1)", 5, 0n) as Float32Array)).toEqual([-1, -0.5, 0, 0.5, 1]);
    expect(Array.from(drawNumbers("first(448, 0.5)", 3, 0n) as Float32Array)).toEqual([448, 0.5, 0.5]);
  });

  it.each([
    "",
    "gauss(1)",
    "normal(a)",
    "normal(inf)",
    "normal(1",
    "normal + normal",
    "a + b + c",
    "constructor()",
  ])("is not %j", (text) =>
    expect(drawNumbers(text, 4, 1n)).toMatch(/is not a distribution.*normal\(mean, deviation\)/),
  );
});

describe("the address", () => {
  it("holds every parameter that differs from its default, and no other", () => {
    const defaults = readParams("");
    const names = Object.keys(defaults) as (keyof typeof defaults)[];
    const changes = fc.dictionary(fc.constantFrom(...names), fc.string({ unit: "grapheme" }));
    fc.assert(
      fc.property(changes, (changedBytes) => {
        const params = { ...defaults, ...changedBytes };
        expect(readParams(writeParams(params))).toEqual(params);
        expect(readParams(`${writeParams(params)}&unknown=1`)).toEqual(params);
      }),
    );
    expect(writeParams(defaults)).toBe("#");
  });
});
