/**
 * `sample` chooses the token that numerics.md §7.18 defines, computed here in integers and fractions, and rows are independent.
 */
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { openBackend } from "../../../src/backends/open.js";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import { type SampleOptions, sample } from "../../../src/models/sampling.js";
import { tensor } from "../../../src/ops/create.js";
import { philox4x32 } from "../../oracle/core/philox.js";
import { softmax } from "../../oracle/rows/softmax.js";
import { numberBetween } from "../arbitraries/share.js";
import { draws } from "../harness/draws.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

interface Choice {
  readonly temperature: number;
  readonly topK?: number | undefined;
  readonly topP?: number | undefined;
  readonly seed: bigint;
  readonly offset: bigint;
}

const fround = Math.fround;

/** The exact product of two non-negative f64, rounded to f64: their integers and exponents are multiplied, and Number rounds. */
function product(x: number, y: bigint): number {
  let exponent = 0;
  let integer = x;
  while (!Number.isInteger(integer)) {
    integer *= 2;
    exponent++;
  }
  return Number(BigInt(integer) * y) / 2 ** exponent;
}

const isRefused = (row: readonly number[]): boolean =>
  row.some(Number.isNaN) || !Number.isFinite(Math.max(...row));

/** The shares of tokens as integers, the likeliest first and at most `topK`; undefined for a row that is refused. */
function orderOf(row: readonly number[], { temperature, topK }: Omit<Choice, "topP">) {
  if (isRefused(row)) return undefined;
  const shares = softmax(row, row.length, fround(1 / fround(temperature)));
  if (shares.some(Number.isNaN)) return undefined;
  return shares
    .map((share, index) => ({ q: BigInt(Math.floor(share * 4294967296)), index }))
    .sort((a, b) => (a.q === b.q ? a.index - b.index : a.q > b.q ? -1 : 1))
    .slice(0, topK ?? row.length);
}

const sumOf = (tokens: readonly { readonly q: bigint }[]): bigint =>
  tokens.reduce((sum, { q }) => sum + q, 0n);

/** The token by the definition; undefined for a row that is refused. */
function oracle(row: readonly number[], choice: Choice): number | undefined {
  const { temperature, topP, seed, offset } = choice;
  if (temperature === 0) return isRefused(row) ? undefined : row.indexOf(Math.max(...row));
  const order = orderOf(row, choice);
  if (order === undefined) return undefined;
  const targetMass = product(topP ?? 1, sumOf(order));
  let count = order.length;
  if (topP !== undefined && topP < 1) while (Number(sumOf(order.slice(0, count - 1))) >= targetMass) count--;
  const candidates = order.slice(0, count).sort((a, b) => a.index - b.index);
  const mask = 0xffffffffn;
  const counter = [0n, 0n, offset & mask, offset >> 32n] as const;
  const [w0, w1] = philox4x32(counter, [seed & mask, seed >> 32n]);
  const point = ((w0 * 2n ** 32n + w1) * sumOf(candidates)) / 2n ** 64n;
  return candidates.find((_, i) => sumOf(candidates.slice(0, i + 1)) > point)?.index;
}

const logit = fc.oneof(
  numberBetween(-20, 20),
  fc.constantFrom(0, -0, 1, 2, 2, Number.NEGATIVE_INFINITY),
  fc.float({ noNaN: true, noDefaultInfinity: true }),
);
const choice = fc.record({
  temperature: fc.oneof(fc.constant(0), fc.constantFrom(1, 0.7, 2 ** -20, 2 ** 20), numberBetween(0.05, 4)),
  topK: fc.option(fc.integer({ min: 1, max: 40 }), { nil: undefined }),
  topP: fc.option(fc.oneof(numberBetween(1e-9, 1), fc.double({ min: 1e-9, max: 1, noNaN: true })), {
    nil: undefined,
  }),
  seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  offset: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
});
/** Of four equal tokens, the first has half the probability of the first two together, and these have half of the total. */
const SHARE_OF_TWO: Choice = { temperature: 1, topK: 2, topP: 0.5, seed: 0n, offset: 1n };
/** Rows of any logits, and rows whose logits are near each other, so that many tokens have a share of the probability. */
const row = (columns: number) =>
  fc
    .constantFrom(logit, numberBetween(-1, 1), fc.float({ min: -1, max: 1, noNaN: true }))
    .chain((element) => fc.array(element, { minLength: columns, maxLength: columns }));

/** The codes of numbers that bf16 represents. */
function bf16Codes(...values: readonly number[]): Uint16Array {
  return Uint16Array.from(new Uint32Array(Float32Array.from(values).buffer), (bits) => bits >>> 16);
}

async function sampleRows(
  rows: readonly (readonly number[])[],
  choices: readonly Choice[],
): Promise<number[]> {
  const [{ temperature, topK, topP } = { temperature: 0 }] = choices;
  const columns = rows[0]?.length ?? 0;
  using logits = tensor(backend, Float32Array.from(rows.flat()), [rows.length, columns]);
  const options: SampleOptions = {
    temperature,
    topK,
    topP,
    draws: choices.map(({ seed, offset }) => ({ seed, offset })),
  };
  return [...(await sample(logits, options))];
}

describe("sample", () => {
  it("chooses the token of the definition, or refuses the row", async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 60 }).chain(row), choice, async (logits, options) => {
        const roundedLogits = logits.map(fround);
        const expected = oracle(roundedLogits, options);
        if (expected === undefined)
          await expect(sampleRows([roundedLogits], [options])).rejects.toThrow(ArgumentError);
        else expect(await sampleRows([roundedLogits], [options])).toEqual([expected]);
      }),
      { numRuns: draws(2000), examples: [[[0, 0, 0, 0], SHARE_OF_TWO]] },
    );
  });

  it("refuses a row of which no logit is a number to compare, and takes the only number of a row", async () => {
    const infinite = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, Number.NaN];
    const temperature = fc.constantFrom(0, 1);
    const rows = fc.array(
      fc.oneof(
        { weight: 9, arbitrary: fc.constantFrom(...infinite) },
        { weight: 1, arbitrary: fc.constant(-3e38) },
      ),
      { minLength: 1, maxLength: 4 },
    );
    const alike = fc
      .tuple(fc.constantFrom(...infinite, -3e38), fc.integer({ min: 1, max: 40 }))
      .map(([value, length]) => new Array<number>(length).fill(value));
    await fc.assert(
      fc.asyncProperty(fc.oneof(rows, alike), temperature, async (row, temperature) => {
        const logits = row.map(fround);
        const choices = { temperature, seed: 0n, offset: 0n };
        const expected = oracle(logits, choices);
        const sampled = sampleRows([logits], [choices]);
        if (expected === undefined) await expect(sampled).rejects.toThrow(ArgumentError);
        else expect(await sampled).toEqual([expected]);
      }),
      {
        numRuns: draws(500, 20),
        examples: infinite.flatMap((value) => [[[value], 0] as [number[], number], [[value, value], 1]]),
      },
    );
  });

  it("takes no token after the first ones whose share is exactly topP", async () => {
    const nearValues = fc.constantFrom(fc.constantFrom(0, 1), numberBetween(-1, 1));
    const rows = nearValues.chain((element) => fc.array(element, { minLength: 2, maxLength: 12 }));
    const form = choice.filter(({ temperature }) => temperature > 0);
    await fc.assert(
      fc.asyncProperty(
        rows,
        form,
        fc.nat(11),
        fc.constantFrom(-1, 0, 0, 1),
        async (row, choices, position, ulps) => {
          const logits = row.map(fround);
          const order = orderOf(logits, choices) ?? [];
          const share = Number(sumOf(order.slice(0, 1 + (position % order.length)))) / Number(sumOf(order));
          const options = { ...choices, topP: Math.min(1, share * (1 + ulps * 2 ** -52)) };
          expect(await sampleRows([logits], [options])).toEqual([oracle(logits, options)]);
        },
      ),
      {
        numRuns: draws(2000),
        examples: [
          [[0, 0], { temperature: 1, topK: undefined, topP: undefined, seed: 0n, offset: 1n }, 0, 0],
        ],
      },
    );
  });

  it("gives each row its token, whatever the other rows and their draws are", async () => {
    const finite = fc.array(numberBetween(-9, 9), { minLength: 33, maxLength: 33 });
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(finite, choice), { minLength: 1, maxLength: 5 }),
        choice,
        async (batch, { temperature, topK, topP }) => {
          const choices = batch.map(([, ownChoices]) => ({ ...ownChoices, temperature, topK, topP }));
          const rows = batch.map(([logits]) => logits);
          const tokens = await sampleRows(rows, choices);
          for (const [i, logits] of rows.entries())
            expect(await sampleRows([logits], [choices[i] as Choice])).toEqual([tokens[i]]);
        },
      ),
      { numRuns: draws(200) },
    );
  });

  it("draws tokens as often as their probabilities say", async () => {
    const logits = [0, Math.log(2), Math.log(5), Number.NEGATIVE_INFINITY];
    const rows = new Array(4000).fill(logits) as number[][];
    const choices = rows.map((_, i) => ({ temperature: 1, seed: 7n, offset: BigInt(i) }));
    const tokens = await sampleRows(rows, choices);
    const counts = logits.map((_, token) => tokens.filter((sampledToken) => sampledToken === token).length);
    // five standard deviations
    for (const [token, share] of [1 / 8, 2 / 8, 5 / 8, 0].entries())
      expect(Math.abs((counts[token] as number) - 4000 * share)).toBeLessThanOrEqual(
        5 * Math.sqrt(4000 * share * (1 - share)),
      );
  });

  it("chooses from bf16 logits of any rank by their values", async () => {
    using logits = tensor(backend, bf16Codes(1, 3, 2, 5, 4, 5), [1, 2, 3], "bf16");
    expect([...(await sample(logits))]).toEqual([1, 0]);
    const once = { seed: 1n, offset: 0n };
    expect([...(await sample(logits, { temperature: 1, topK: 1, draws: [once, once] }))]).toEqual([1, 0]);
  });

  it("refuses rows without logits, and another number of draws than rows", async () => {
    using emptyLogits = tensor(backend, new Float32Array(), [2, 0]);
    await expect(sample(emptyLogits)).rejects.toThrow(ShapeError);
    using twoRows = tensor(backend, new Float32Array(6), [2, 3]);
    await expect(sample(twoRows, { temperature: 1 })).rejects.toThrow(/there are 0 draws and 2 rows/);
    await expect(sample(twoRows, { temperature: 2 ** -21 })).rejects.toThrow(/temperature/);
    await expect(sample(twoRows, { topP: 1.5 })).rejects.toThrow(/topP/);
  });
});
