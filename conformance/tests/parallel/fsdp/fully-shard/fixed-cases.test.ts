/** The law of sharded training in small fixed cases, one for each way to quantize a weight. */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../../src/backends/backend.js";
import { sampleCases } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { RECIPE_NAMES } from "../../../harness/training/run.js";
import type { Case } from "../case.js";
import { oneProcess, shardedRun } from "../runs.js";

const RANKS = 2;
const STEPS = 2;
const backends = useBackends(RANKS);

const PLAIN: Case = {
  ranks: RANKS,
  recipe: "bf16",
  dtype: "bf16",
  layers: ["linear"],
  width: 64,
  optimizer: "sgd",
  quantized: false,
  recomputes: false,
  microbatches: 1,
  caches: false,
  frozen: [],
  reduction: "sum",
  rowMultiple: 32,
  orders: [],
  evaluated: [],
};

const WAYS: Readonly<Record<string, Partial<Case>>> = {
  "in each call": { layers: ["linear", "bare"] },
  "in parts of blocks, which are gathered first": { rowMultiple: 1, width: 32 },
  "in each call, some without gradients": { layers: ["linear", "bare"], evaluated: [0, 1, 0] },
  "in each run of recompute": { layers: ["normed", "linear"], recomputes: true, microbatches: 2 },
  "once for two microbatches": { layers: ["linear", "bare"], microbatches: 2, caches: true },
  "once for two microbatches and both runs of recompute": {
    layers: ["mlp"],
    recomputes: true,
    microbatches: 2,
    caches: true,
  },
  "by the optimizer": { layers: ["linear", "bare"], quantized: true },
  "by the optimizer, in each run of recompute": { layers: ["normed"], quantized: true, recomputes: true },
  // a rowMultiple of 48 would cut blocks of 32, so fullyShard uses a common multiple
  "by the optimizer, in rows that divide and are divided by no block": {
    layers: ["bare"],
    quantized: true,
    rowMultiple: 48,
    width: 96,
  },
  "in another order": { layers: ["linear", "bare"], microbatches: 2, orders: [[0, 1], [1, 0], [1], [0]] },
  "where some are frozen": { layers: ["normed", "bare"], frozen: [false, true], evaluated: [1] },
};

describe("states of low precision", () => {
  const stateOptions = ["momentum of f16", "adamw of e4m3"] as const;
  it.each(stateOptions.flatMap((optimizer) => [1, 32].map((rowMultiple) => ({ optimizer, rowMultiple }))))(
    "of $optimizer, in multiples of $rowMultiple rows: are those of one process",
    async (changes) => {
      const testCase: Case = { ...PLAIN, layers: ["normed", "bare"], ...changes };
      expect(await shardedRun(backends, testCase, STEPS)).toEqual(
        await oneProcess(backends[0] as Backend, testCase, STEPS),
      );
    },
  );
});

describe.each(RECIPE_NAMES)("a sharded weight that is quantized under %s", (recipe) => {
  it.each(sampleCases(Object.entries(WAYS), 1, RECIPE_NAMES.indexOf(recipe)))(
    "%s: is that of one process",
    async (_way, changes) => {
      const testCase = {
        ...PLAIN,
        ...changes,
        recipe,
        quantized: changes.quantized === true && recipe !== "bf16",
      };
      expect(await shardedRun(backends, testCase, STEPS)).toEqual(
        await oneProcess(backends[0] as Backend, testCase, STEPS),
      );
    },
  );
});
