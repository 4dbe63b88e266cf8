/** The special-function unit of the reference gives the bits that an H100 and an H200 returned (numerics.md §7.11). */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { beforeAll, expect, it } from "vitest";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { sampled } from "../harness/draws.js";

interface Recorded {
  readonly ex2: { readonly hash: string };
  readonly tanh: { readonly binades: readonly { readonly exponent: number; readonly hash: string }[] };
  readonly inputs: readonly string[];
  readonly ex2Results: readonly string[];
  readonly tanhResults: readonly string[];
}

const RECORDED: Recorded = JSON.parse(
  readFileSync(new URL("../../vectors/special-functions.json", import.meta.url), "utf8"),
);
const COUNT = 2 ** 23;

let stems: Stems;
beforeAll(async () => {
  stems = await openStems("special");
});

const word = new Uint32Array(1);
const float = new Float32Array(word.buffer);

/** The result of a function for an input, both as f32 bits. */
function bitsOf(name: "ex2" | "tanh", input: number): number {
  word[0] = input;
  float[0] = stems.direct[name]?.(float[0] as number) as number;
  return Number.isNaN(float[0]) ? 0x7fffffff : (word[0] as number);
}

/** The hash of the results of all fractions, whose inputs `inputOf` returns as f32 bits. */
function hashOf(name: "ex2" | "tanh", inputOf: (fraction: number) => number): string {
  const results = Uint32Array.from({ length: COUNT }, (_, k) => bitsOf(name, inputOf(k)));
  return createHash("sha256").update(results).digest("hex");
}

it("gives the recorded results of special inputs", () => {
  for (const [name, results] of [
    ["ex2", RECORDED.ex2Results],
    ["tanh", RECORDED.tanhResults],
  ] as const) {
    const found = RECORDED.inputs.map((input) => bitsOf(name, Number.parseInt(input, 16)));
    expect(found, name).toEqual(results.map((text) => Number.parseInt(text, 16)));
  }
});

it("gives the recorded ex2 of k / 2^23 for all k below 2^23", () => {
  const inputOf = (k: number): number => {
    float[0] = k / COUNT;
    return word[0] as number;
  };
  expect(hashOf("ex2", inputOf)).toBe(RECORDED.ex2.hash);
});

it.each(sampled(RECORDED.tanh.binades))(
  "gives the recorded tanh of all inputs with exponent $exponent",
  (binade) => {
    expect(hashOf("tanh", (k) => binade.exponent * COUNT + k)).toBe(binade.hash);
  },
);
