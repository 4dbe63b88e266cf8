/** The random bits on the host equal the oracle's Philox and have the required properties. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { normal, permutation, randomWords } from "../../../src/random.js";
import { philox4x32 } from "../../oracle/core/philox.js";
import { draws } from "../harness/draws.js";

const WORD = 0xffff_ffffn;
const u64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const draw = fc.record({ seed: u64, offset: u64 });

/** The words of a draw by the definition of Philox. */
function halvesOf(seed: bigint, offset: bigint, count: number): number[] {
  const key = [seed & WORD, seed >> 32n] as const;
  const blocks = Array.from({ length: Math.ceil(count / 4) }, (_, i) =>
    philox4x32([BigInt(i), 0n, offset & WORD, offset >> 32n], key),
  );
  return blocks.flat().slice(0, count).map(Number);
}

describe("random words", () => {
  it("are Philox 4x32-10, block by block", () => {
    fc.assert(
      fc.property(draw, fc.nat(70), (state, count) => {
        expect([...randomWords(state, count)]).toEqual(halvesOf(state.seed, state.offset, count));
      }),
      { numRuns: draws(300) },
    );
  });
});

describe("normal", () => {
  it("is the sum of twelve 16-bit halves, centred, scaled and rounded once", () => {
    fc.assert(
      fc.property(
        draw,
        fc.nat(20),
        fc.double({ min: 2 ** -20, max: 4, noNaN: true }),
        (state, count, std) => {
          const halves = halvesOf(state.seed, state.offset, count * 6).flatMap((bits) => [
            bits & 0xffff,
            bits >>> 16,
          ]);
          const sums = Array.from({ length: count }, (_, i) =>
            halves.slice(12 * i, 12 * i + 12).reduce((sum, half) => sum + half, 0),
          );
          const expected = sums.map((sum) => Math.fround((sum - 6 * 0xffff) * (std / 2 ** 16)));
          expect([...normal(state, count, std)]).toEqual(expected);
        },
      ),
      { numRuns: draws(200) },
    );
  });

  it("draws on block after block, however many values there are", () => {
    const count = 5001;
    const state = { seed: 7n, offset: 3n };
    const halves = new Uint16Array(randomWords(state, count * 6).buffer, 0, count * 12);
    const sums = Array.from({ length: count }, (_, i) =>
      halves.subarray(12 * i, 12 * i + 12).reduce((sum, half) => sum + half, 0),
    );
    expect([...normal(state, count, 1)]).toEqual(sums.map((sum) => (sum - 6 * 0xffff) / 2 ** 16));
  });

  it("has the moments of a standard normal, within five standard errors", () => {
    const count = 100_000;
    const values = [...normal({ seed: 1n, offset: 0n }, count, 1)];
    const mean = values.reduce((sum, x) => sum + x, 0) / count;
    const variance = values.reduce((sum, x) => sum + x * x, 0) / count;
    expect(Math.abs(mean)).toBeLessThan(5 / Math.sqrt(count));
    expect(Math.abs(variance - 1)).toBeLessThan(5 * Math.sqrt(2 / count));
  });
});

/** The exchanges of a shuffle, from the last position to the first. A word that would favour the first positions is left out. */
function shuffleByDefinition(
  draws: readonly number[] | Uint32Array,
  count: number,
): { order: number[]; remaining: number } {
  const order = Array.from({ length: count }, (_, i) => i);
  let usedDraws = 0;
  for (let remainingPositions = count; remainingPositions > 1; remainingPositions--) {
    while ((draws[usedDraws] as number) >= Math.floor(2 ** 32 / remainingPositions) * remainingPositions)
      usedDraws++;
    const position = (draws[usedDraws++] as number) % remainingPositions;
    [order[remainingPositions - 1], order[position]] = [
      order[position] as number,
      order[remainingPositions - 1] as number,
    ];
  }
  return { order, remaining: usedDraws - Math.max(0, count - 1) };
}

describe("permutation", () => {
  it("exchanges each position, from the last one on, with an earlier one or itself, by the words of the draw", () => {
    fc.assert(
      fc.property(draw, fc.nat(50), (state, count) => {
        const { order } = shuffleByDefinition(halvesOf(state.seed, state.offset, count + 8), count);
        expect([...permutation(state, count)]).toEqual(order);
      }),
    );
  });

  it("leaves out words that would favour some positions", () => {
    const [state, count] = [{ seed: 5n, offset: 2n }, 400_000];
    const { order, remaining } = shuffleByDefinition(randomWords(state, count + 100), count);
    expect(remaining).toBeGreaterThan(0);
    const actual = permutation(state, count);
    expect(actual.length).toBe(count);
    expect(order.findIndex((index, i) => index !== actual[i])).toBe(-1);
  });

  it("contains every number once", () => {
    fc.assert(
      fc.property(draw, fc.nat(300), (state, count) => {
        const sortedValues = permutation(state, count).toSorted();
        expect([...sortedValues]).toEqual(Array.from({ length: count }, (_, i) => i));
      }),
    );
  });

  it("is each of the six orders of three as often, within five standard errors", () => {
    const rounds = 12_000;
    const counts = new Map<string, number>();
    for (let i = 0; i < rounds; i++) {
      const order = permutation({ seed: 9n, offset: BigInt(i) }, 3).join("");
      counts.set(order, (counts.get(order) ?? 0) + 1);
    }
    expect(counts.size).toBe(6);
    const deviation = 5 * Math.sqrt(rounds * (1 / 6) * (5 / 6));
    for (const count of counts.values()) expect(Math.abs(count - rounds / 6)).toBeLessThan(deviation);
  });

  it("refuses invalid counts", () => {
    for (const count of [-1, 1.5, Number.NaN, 2 ** 32])
      expect(() => permutation({ seed: 0n, offset: 0n }, count)).toThrow("whole number");
  });
});
