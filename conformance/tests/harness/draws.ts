/** How many inputs tests draw, and from which seed: `RUNS` and `SEED` of the environment. */
import * as fc from "fast-check";

/** The seed of all draws of a test. Default 1. */
export const SEED = Number(process.env.SEED ?? 1);

// draws without a seed of their own follow SEED too, if it is set
if (process.env.SEED !== undefined) fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: SEED });

/** The number of draws: `RUNS`, or `runs` if it is not set. */
export function drawsOr(runs: number): number {
  return Number(process.env.RUNS ?? runs);
}

/** The seed of a test that has one of its own: `own`, or another one for each `SEED`. */
export function seeded(own: number): number {
  return process.env.SEED === undefined ? own : (own + Math.imul(SEED, 0x9e3779b1)) | 0;
}
