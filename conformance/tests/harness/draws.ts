/**
 * The number of inputs and cases that the tests draw, and the seed. `npm test` draws one of 32 inputs of a law and tests one of
 * 64 cases of a table; `LOCKSTEP_TESTS=full` draws and tests all. `RUNS` sets the number of inputs of the laws that read it;
 * `SEED` changes all draws.
 */
import * as fc from "fast-check";
import { afterAll } from "vitest";
import { IS_FULL } from "./full.js";

/** A short run draws one of this many inputs of a law. */
const INPUT_SHARE = 32;
/** A short run tests one of this many cases of a table. */
const CASE_SHARE = 64;

/** The seed of all draws of a test. Default 1. */
export const SEED = Number(process.env.SEED ?? 1);

// draws without an explicit seed follow SEED too, if it is set
if (process.env.SEED !== undefined) fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: SEED });

/** The number of inputs that fast-check draws for a property by default. */
const DEFAULT_RUNS = 100;
if (!IS_FULL) fc.configureGlobal({ ...fc.readConfigureGlobal(), numRuns: draws(DEFAULT_RUNS) });

/** The number of draws of a test: `fullCount` in a full run; a 32nd of it, but at least `minimum`, in a short run. */
export function draws(fullCount: number, minimum = 2): number {
  return reducedCount(fullCount, INPUT_SHARE, minimum);
}

function reducedCount(fullCount: number, divisor: number, minimum: number): number {
  return IS_FULL ? fullCount : Math.min(fullCount, Math.max(minimum, Math.ceil(fullCount / divisor)));
}

/** The number of draws: `RUNS`, or `draws(full)` if it is not set. */
export function drawsOr(fullCount: number): number {
  return Number(process.env.RUNS ?? draws(fullCount));
}

/** The seed of a test that states a seed: `seed`, or a seed derived from `seed` and `SEED` if `SEED` is set. */
export function derivedSeed(seed: number): number {
  return process.env.SEED === undefined ? seed : (seed + Math.imul(SEED, 0x9e3779b1)) | 0;
}

/** The numbers of cases in the tables of one test file. */
interface Sampling {
  readonly testedCases: number;
  readonly allCases: number;
}

declare module "vitest" {
  interface TaskMeta {
    /** The cases of the tables that a file samples. */
    sampling?: Sampling;
  }
}

/** The counts of the current file. Global, because vitest evaluates this setup file again for each test file of a worker. */
const counts = globalThis as typeof globalThis & { lockstepSampling?: Sampling };

counts.lockstepSampling = { testedCases: 0, allCases: 0 };
// biome-ignore lint/correctness/noEmptyPattern: vitest requires an object pattern as first parameter
afterAll(({}, file) => {
  if (counts.lockstepSampling) file.meta.sampling = counts.lockstepSampling;
});

/**
 * The cases that this run tests: all in a full run; else one of 64, at least `minimum`, which `SEED` and `salt` choose. They stay
 * in order.
 */
export function sampleCases<T>(cases: readonly T[], minimum = 2, salt = 0): readonly T[] {
  const count = reducedCount(cases.length, CASE_SHARE, minimum);
  const { testedCases, allCases } = counts.lockstepSampling ?? { testedCases: 0, allCases: 0 };
  counts.lockstepSampling = { testedCases: testedCases + count, allCases: allCases + cases.length };
  if (count === cases.length) return cases;
  const subsets = fc.shuffledSubarray([...cases.keys()], { minLength: count, maxLength: count });
  const [indices] = fc.sample(subsets, { numRuns: 1, seed: derivedSeed(cases.length + 1000 * salt) }) as [
    number[],
  ];
  return indices.toSorted((a, b) => a - b).map((i) => cases[i] as T);
}
