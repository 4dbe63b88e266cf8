/** The interval of an element contains the result of every order, and no more than rounding explains. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { EpilogueOperands } from "../../../src/orders/epilogues.js";
import { contains, intervalOf } from "../../../src/orders/interval.js";
import type { Terms } from "../../../src/orders/order.js";
import { splitmix32 } from "../../index.js";
import { draws } from "../harness/draws.js";
import { fma } from "../harness/order-kernels/kernel.js";

const { fround } = Math;
const PLAIN: EpilogueOperands = { alpha: 1, scaleX: 1, scaleW: 1, beta: 0, addend: 0, dtype: "f32" };

/** Random f32 values: a mantissa in [0, 1) of random sign, times 2^-spread to 2^spread. */
const randomLine = (next: () => number, depth: number, spread: number): Float64Array =>
  Float64Array.from({ length: depth }, () => {
    const sign = next() % 2 === 0 ? 1 : -1;
    return fround(sign * (next() / 2 ** 32) * 2 ** ((next() % (2 * spread + 1)) - spread));
  });

/** A sum by a random binary tree; a leaf is a rounded product, or is fused into its partner. */
function randomTree(next: () => number, x: Float64Array, w: Float64Array): number {
  const sums: number[] = [];
  const remaining = Array.from(x.keys());
  const takeRandom = (from: number[]): number => from.splice(next() % from.length, 1)[0] as number;
  while (remaining.length > 0 || sums.length > 1) {
    const choice = next() % 3;
    if (remaining.length > 0 && (choice === 0 || sums.length === 0)) {
      const k = takeRandom(remaining);
      sums.push(fround((x[k] as number) * (w[k] as number)));
    } else if (remaining.length > 0 && choice === 1) {
      const k = takeRandom(remaining);
      sums.push(fma(x[k] as number, w[k] as number, takeRandom(sums)));
    } else if (sums.length > 1) sums.push(fround(takeRandom(sums) + takeRandom(sums)));
  }
  return sums[0] ?? 0;
}

describe("intervalOf", () => {
  it("contains the sum of every binary tree, with products rounded or fused", () => {
    const shape = fc.record({
      seed: fc.nat(),
      depth: fc.integer({ min: 1, max: 60 }),
      spread: fc.constantFrom(0, 3, 40, 73),
    });
    fc.assert(
      fc.property(shape, ({ seed, depth, spread }) => {
        const next = splitmix32(seed);
        const terms: Terms = {
          x: randomLine(next, depth, spread),
          w: randomLine(next, depth, spread),
          minExponents: [-126, -126],
        };
        const interval = intervalOf(terms, PLAIN, "f32");
        for (let tree = 0; tree < 20; tree++) {
          const sum = randomTree(next, terms.x as Float64Array, terms.w as Float64Array);
          expect(contains(interval, sum), `${sum} in ${interval.low} to ${interval.high}`).toBe(true);
        }
      }),
      { numRuns: draws(400) },
    );
  });

  it("is one value where all partial sums are exact", () => {
    const integers = fc.array(fc.integer({ min: -200, max: 200 }), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(integers, (values) => {
        const terms: Terms = { x: values, w: values.map((value) => -value), minExponents: [-126, -126] };
        const exactSum = values.reduce((sum, value) => sum - value * value, 0);
        for (const accumulator of ["f32", "f64"] as const) {
          const { low, high } = intervalOf(terms, PLAIN, accumulator);
          expect([low, high]).toEqual([exactSum, exactSum]);
        }
      }),
      { numRuns: draws(200) },
    );
  });

  it("is reached: some order errs by a quarter of what is allowed", () => {
    // each 1 is lost against 2^24, one after another, or not at all
    const x = [2 ** 24, ...new Array<number>(64).fill(1)];
    const terms: Terms = { x, w: x.map(() => 1), minExponents: [-126, -126] };
    const { low, exact } = intervalOf(terms, PLAIN, "f32");
    const worst = x.reduce((sum, value) => fround(sum + value), 0);
    expect(exact - worst).toBe(64);
    expect(exact - low).toBeLessThanOrEqual(4 * 64);
  });

  it("says which NaN and infinities every order gives", () => {
    const special = (...x: number[]) =>
      intervalOf({ x, w: x.map(() => 1), minExponents: [-126, -126] }, PLAIN, "f32").special;
    expect(special(1, Number.NaN)).toBe("NaN");
    expect(special(Infinity, -Infinity)).toBe("NaN");
    expect(special(1, -Infinity)).toBe("-Infinity");
    expect(special(1, 2)).toBeUndefined();
    const product = intervalOf({ x: [0], w: [Infinity], minExponents: [-126, -126] }, PLAIN, "f32");
    expect([contains(product, Number.NaN), contains(product, 0)]).toEqual([true, false]);
  });

  it("allows infinities only where some order overflows", () => {
    const largeValue = 2 ** 127;
    const rangeOf = (x: number[]) =>
      intervalOf({ x, w: x.map(() => 1), minExponents: [-126, -126] }, PLAIN, "f32");
    expect(contains(rangeOf([largeValue, largeValue, -largeValue]), Infinity)).toBe(true);
    expect(contains(rangeOf([largeValue, largeValue, -largeValue]), largeValue)).toBe(true);
    expect(contains(rangeOf([largeValue, -largeValue, 1]), Infinity)).toBe(false);
  });

  it("casts both ends to the type of the result", () => {
    const terms: Terms = { x: [1, 2 ** -9, 2 ** -9], w: [1, 1, 1], minExponents: [-126, -126] };
    for (const [dtype, value] of [
      ["bf16", 1],
      ["f16", 1 + 2 ** -8],
    ] as const) {
      const { low, high } = intervalOf(terms, { ...PLAIN, dtype }, "f32");
      expect([low, high]).toEqual([value, value]);
    }
  });
});
