/** The number of inputs that tests draw, and their seed: `RUNS` and `SEED` of the environment. */
import * as fc from "fast-check";

/** The seed of all draws of a test. Default 1. */
export const SEED = Number(process.env.SEED ?? 1);

// draws without an explicit seed follow SEED too, if it is set
if (process.env.SEED !== undefined) fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: SEED });

/** The number of draws: `RUNS`, or `runs` if it is not set. */
export function drawsOr(runs: number): number {
  return Number(process.env.RUNS ?? runs);
}

/** The seed of a test with its own default: `own` unless `SEED` is set, else a combination of both. */
export function seeded(seed: number): number {
  return process.env.SEED === undefined ? seed : (seed + Math.imul(SEED, 0x9e3779b1)) | 0;
}
