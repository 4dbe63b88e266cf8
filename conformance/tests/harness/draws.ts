/**
 * How many inputs and cases the tests draw, and from which seed. `npm test` draws about an eighth of the full number and finishes
 * in minutes; `LOCKSTEP_TESTS=full` draws all. `RUNS` is the number of inputs of the laws that take it; `SEED` changes all draws.
 */
import * as fc from "fast-check";

/** Whether this run draws the full number of inputs and cases. */
export const IS_FULL = process.env.LOCKSTEP_TESTS === "full";

/** A short run draws one of this many. */
const SHARE = 8;

/** The seed of all draws of a test. Default 1. */
export const SEED = Number(process.env.SEED ?? 1);

// draws without an explicit seed follow SEED too, if it is set
if (process.env.SEED !== undefined) fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: SEED });

/** The number of draws of a test that has `full` of them in a full run: in a short run an eighth, and at least `least`. */
export function draws(full: number, least = 3): number {
  return IS_FULL ? full : Math.min(full, Math.max(least, Math.ceil(full / SHARE)));
}

/** The number of draws: `RUNS`, or `draws(full)` if it is not set. */
export function drawsOr(full: number): number {
  return Number(process.env.RUNS ?? draws(full));
}

/** The seed of a test that has one of its own: `seed`, or another one for each `SEED`. */
export function seeded(seed: number): number {
  return process.env.SEED === undefined ? seed : (seed + Math.imul(SEED, 0x9e3779b1)) | 0;
}

/**
 * The cases that this run tests: all in a full run; else an eighth of them, at least `least`, which `SEED` and `salt` choose.
 * They stay in order.
 */
export function sampled<T>(cases: readonly T[], least = 3, salt = 0): readonly T[] {
  const count = draws(cases.length, least);
  if (count === cases.length) return cases;
  const subsets = fc.shuffledSubarray([...cases.keys()], { minLength: count, maxLength: count });
  const [indices] = fc.sample(subsets, { numRuns: 1, seed: seeded(cases.length + 1000 * salt) }) as [
    number[],
  ];
  return indices.toSorted((a, b) => a - b).map((i) => cases[i] as T);
}
