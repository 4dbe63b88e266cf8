/** The oracle of ex2 and tanh equals what the chips returned (numerics.md §7.11). */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { bitsOf, fromBits } from "../../oracle/core/rational.js";
import type { Quadratic, TanhBinade } from "../../oracle/core/special-function-tables.gen.js";
import { ex2, tanh } from "../../oracle/core/special-functions.js";
import { draws, IS_FULL, SEED } from "../harness/draws.js";

interface Recording {
  readonly ex2: Quadratic & { readonly hash: string };
  readonly tanh: { readonly binades: readonly (TanhBinade & { readonly hash: string })[] };
  readonly inputs: readonly string[];
  readonly ex2Results: readonly string[];
  readonly tanhResults: readonly string[];
}

const recording: Recording = JSON.parse(
  readFileSync(new URL("../../vectors/special-functions.json", import.meta.url), "utf8"),
);
const { binades } = recording.tanh;

const hex = (x: number): string =>
  (Number.isNaN(x) ? "7fffffff" : bitsOf(x).toString(16).padStart(8, "0")).toUpperCase();

/** The SHA-256 of f at 2^23 inputs, as the recording computes it. */
function hashOf(f: (x: number) => number, input: (k: number) => number): string {
  const results = new DataView(new ArrayBuffer(2 ** 25));
  for (let k = 0; k < 2 ** 23; k++) results.setFloat32(4 * k, f(input(k)), true);
  return createHash("sha256").update(results).digest("hex");
}

describe("recorded inputs", () => {
  it("have the recorded results", () => {
    const inputs = recording.inputs.map((bits) => fromBits(Number(`0x${bits}`)));
    expect(inputs.map((x) => hex(ex2(x)))).toEqual(recording.ex2Results);
    expect(inputs.map((x) => hex(tanh(x)))).toEqual(recording.tanhResults);
  });

  it("have the recorded hash, in [0, 1) of ex2", () => {
    expect(hashOf(ex2, (k) => k / 2 ** 23)).toBe(recording.ex2.hash);
  });

  const tested = IS_FULL ? binades : [binades[Math.abs(SEED) % binades.length]!];
  const omitted = binades.filter((binade) => !tested.includes(binade)).map(({ exponent }) => exponent);
  if (omitted.length > 0) process.stdout.write(`tanh: the exponents ${omitted.join(", ")} are not tested\n`);

  it.each(tested)("have the recorded hash, in the binade $exponent of tanh", ({ exponent, hash }) => {
    const inputs = new DataView(new ArrayBuffer(4));
    const input = (k: number): number => {
      inputs.setUint32(0, exponent * 2 ** 23 + k);
      return inputs.getFloat32(0);
    };
    expect(hashOf(tanh, input)).toBe(hash);
  });
});

describe("ex2", () => {
  it("is exact for every integer whose power of two is a normal number", () => {
    for (let n = -126; n <= 127; n++) expect(ex2(n)).toBe(2 ** n);
  });
});

describe("the relative error", () => {
  const magnitudes = fc.double({ min: 2 ** -20, max: 100, noNaN: true }).map(Math.fround);
  const errorOf = (x: number, truth: number): number => Math.abs(x - truth) / Math.abs(truth);

  it("of ex2 is below 2^-22, and of tanh below 2^-10.9", () => {
    fc.assert(
      fc.property(magnitudes, fc.boolean(), (magnitude, isNegative) => {
        const x = isNegative ? -magnitude : magnitude;
        expect(errorOf(ex2(x), 2 ** x)).toBeLessThan(2 ** -22);
        expect(errorOf(tanh(x), Math.tanh(x))).toBeLessThan(2 ** -10.9);
      }),
      { numRuns: draws(20_000) },
    );
  });
});
