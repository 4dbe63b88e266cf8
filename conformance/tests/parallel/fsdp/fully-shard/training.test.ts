/** Training with sharded parameters gives the same bits as data parallelism and as one process. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../../src/backends/backend.js";
import { derivedSeed, draws } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { type Case, cases } from "../case.js";
import { copiedRun, oneProcess, shardedRun } from "../runs.js";

const MOST = 8;
const STEPS = 3;
const backends = useBackends(MOST);

/**
 * A quantized parameter under delayed scaling. Each rank records the amax of its rows; the maximum over ranks is the amax of the
 * full parameter.
 */
const CAST_BY_DELAYED_SCALES: Case = {
  ranks: 3,
  recipe: "delayed",
  dtype: "bf16",
  layers: ["mlp"],
  width: 64,
  optimizer: "sgd",
  quantized: true,
  recomputes: true,
  microbatches: 1,
  caches: true,
  frozen: [],
  reduction: "sum",
  rowMultiple: 1,
  orders: [],
  evaluated: [],
};

/** The table has so few rows that most ranks have none, because rows are distributed in multiples. */
const RANKS_WITHOUT_ROWS: Case = {
  ...CAST_BY_DELAYED_SCALES,
  ranks: 8,
  recipe: "current",
  layers: ["linear"],
  width: 32,
  optimizer: "momentum",
  quantized: false,
  recomputes: false,
  microbatches: 2,
  rowMultiple: 128,
};

/** A parameter that a pass inside noSync reaches, and the pass outside does not. */
const REACHED_WITHOUT_SYNC: Case = {
  ...CAST_BY_DELAYED_SCALES,
  ranks: 3,
  recipe: "mxfp8",
  layers: ["norm", "linear"],
  recomputes: false,
  microbatches: 2,
  caches: false,
  orders: [[4, 2, 4], [], [2, 3, 0, 1]],
  evaluated: [5, 0],
};

/** Passes without gradients, which need no columnwise codes, between passes that need them. */
const EVALUATED: Case = {
  ...CAST_BY_DELAYED_SCALES,
  ranks: 2,
  recipe: "mxfp8",
  layers: ["linear", "bare"],
  quantized: false,
  recomputes: false,
  caches: false,
  evaluated: [0, 1],
};

describe("fully sharded training", () => {
  it("has the losses, parameters, optimizer states and scales of one process that adds in rank order", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (testCase) => {
        const shardedTexts = await shardedRun(backends, testCase, STEPS);
        expect(shardedTexts).toEqual(await oneProcess(backends[0] as Backend, testCase, STEPS));
      }),
      {
        numRuns: draws(10),
        seed: 3,
        endOnFailure: true,
        examples: [[CAST_BY_DELAYED_SCALES], [RANKS_WITHOUT_ROWS], [REACHED_WITHOUT_SYNC], [EVALUATED]],
      },
    );
  });

  it("has the losses, parameters, optimizer states and scales of data parallelism", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (choices) => {
        // DataParallel throws if a pass does not reach a parameter
        const testCase = { ...choices, orders: [] };
        const shardedTexts = await shardedRun(backends, testCase, STEPS);
        expect(shardedTexts).toEqual(await copiedRun(backends, testCase, STEPS));
      }),
      { numRuns: draws(3, 1), seed: derivedSeed(8), endOnFailure: true },
    );
  });
});
