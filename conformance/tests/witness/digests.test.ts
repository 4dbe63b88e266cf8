/** The digests of CUDA's conversion headers over all f32 inputs equal the digests of the oracle's step function. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { type OverflowName, type RoundingName, type Step, steps } from "../../oracle/core/scalar.js";

interface Run {
  readonly format: ScalarFormat;
  readonly rounding: RoundingName;
  readonly overflow: OverflowName;
  readonly chunks: readonly (readonly [chunk: number, d1: number, d2: number])[];
}

const FILES = ["cuda-digests.json", "cuda-digests-directed.json"];
const CHUNK = 2 ** 24;
const F32_INFINITY = 0x7f800000;
/**
 * Chunks with zero and f32 subnormals, the two sides of one, values past the largest f16 and e5m2, and both chunks that
 * contain NaNs.
 */
const SAMPLE = [0x00, 0x3f, 0x40, 0xc7, 0x7f, 0xff];
const MULTIPLIERS = [0x7feb352d, 0x846ca68b] as const;

/** The sums modulo 2^32 of the digest's weights over the first n patterns of a chunk, for n = 0 to 2^24. */
function weightSums(chunk: number, k: number): Uint32Array {
  const sums = new Uint32Array(CHUNK + 1);
  let sum = 0;
  for (let index = 0; index < CHUNK; index++) {
    let x = chunk * CHUNK + index;
    x = Math.imul(x ^ (x >>> 16), k);
    sum = (sum + ((x ^ (x >>> 15)) | 1)) | 0;
    sums[index + 1] = sum;
  }
  return sums;
}

/** The steps of one chunk, with positions relative to it. NaNs of 16-bit formats have the code 0xffff. */
function stepsWithin(steps: readonly Step[], chunk: number, wide: boolean): Step[] {
  const start = chunk * CHUNK;
  const index = steps.findLastIndex(({ first }) => first <= start);
  return steps
    .slice(index)
    .filter(({ first }) => first < start + CHUNK)
    .map(({ first, code }) => ({
      first: Math.max(first - start, 0),
      code: wide && first % 2 ** 31 > F32_INFINITY ? 0xffff : code,
    }));
}

function digest(includedSteps: readonly Step[], sums: Uint32Array): number {
  return includedSteps.reduce((sum, { first, code }, i) => {
    const weight = (sums[includedSteps[i + 1]?.first ?? CHUNK] ?? 0) - (sums[first] ?? 0);
    return (sum + Math.imul(code + 1, weight)) >>> 0;
  }, 0);
}

describe("the oracle's step function gives the digests of CUDA's conversions", () => {
  const runs = FILES.flatMap((file): readonly Run[] => {
    const text = readFileSync(new URL(`../../vectors/${file}`, import.meta.url), "utf8");
    return JSON.parse(text).runs;
  });
  const functions = runs.map((run) => ({
    run,
    steps: steps(SCALAR_FORMATS[run.format], run.rounding, run.overflow),
    wide: SCALAR_FORMATS[run.format].mantissaBits > 4,
  }));
  for (const chunk of SAMPLE) {
    it(`for all 2^24 inputs of chunk ${chunk}, in each of ${runs.length} conversions`, () => {
      const sums = MULTIPLIERS.map((k) => weightSums(chunk, k));
      const actual = functions.map(({ run, steps, wide }) => {
        const includedSteps = stepsWithin(steps, chunk, wide);
        return { ...run, chunks: [[chunk, ...sums.map((weights) => digest(includedSteps, weights))]] };
      });
      expect(actual).toEqual(runs.map((run) => ({ ...run, chunks: [run.chunks[chunk]] })));
    });
  }
});
