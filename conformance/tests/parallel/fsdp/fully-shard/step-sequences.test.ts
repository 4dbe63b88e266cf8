/**
 * Training with sharded parameters over different steps: weights that stay cached, skipped updates, gradients that are kept,
 * another recipe, loaded state. Every pair of options has a case.
 */
import * as fc from "fast-check";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Backend } from "../../../../../src/backends/backend.js";
import { pairwise, product, tuplesAmong } from "../../../../arbitraries/covering.js";
import { splitmix32 } from "../../../../arbitraries/random.js";
import { sampleCases } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { RECIPE_NAMES } from "../../../harness/training/run.js";
import type { Case, Turn } from "../case.js";
import { oneProcess, shardedRun } from "../runs.js";

const RANKS = 3;
const STEPS = 4;
const backends = useBackends(RANKS);

const [seed] = fc.sample(fc.noBias(fc.nat()), { numRuns: 1 }) as [number];

const TURNS = {
  synced: [false, true],
  first: [undefined, undefined, true, false],
  skip: [undefined, undefined, 0, 1],
  otherRecipe: [false, false, false, true],
  end: ["step", "step", "noop", "scaled", "clipped", "none"],
  zeroes: [true, false],
  state: ["kept", "saved", "loaded"],
} as const satisfies { readonly [K in keyof Turn]: readonly Turn[K][] };

/** Every combination of these has a case. */
const LAYERS = product({
  recipe: RECIPE_NAMES,
  layer: ["linear", "normed", "mlp"],
  quantized: [false, true],
} as const).filter(({ recipe, quantized }) => recipe !== "bf16" || !quantized);

/** Every pair of these has a case. */
const CASES = {
  ranks: [2, RANKS],
  dtype: ["f32", "bf16"],
  optimizer: ["sgd", "momentum", "adamw"],
  recomputes: [false, true],
  microbatches: [1, 2],
  frozen: [[], [false, true], [true, false, false]],
  reduction: ["sum", "mean"],
  rowMultiple: [1, 16, 32],
  orders: [[], [[0], [], [1, 0]]],
  evaluated: [[], [0]],
  delays: [undefined, "pass", "layers", "step"],
} as const;

const next = splitmix32(seed);
const draw = (bound: number): number => next() % bound;
const settings = pairwise(TURNS, draw);

/** A sequence of turns. It begins with a step whose state later turns can load. */
function turnsFrom(i: number): readonly Turn[] {
  const firstStep = settings[(3 * i) % settings.length] as Turn;
  const laterSteps = [1, 2, 3].map((offset) => settings[(3 * i + offset) % settings.length] as Turn);
  return [{ ...firstStep, state: "saved" }, ...laterSteps];
}

const cases = pairwise(CASES, draw);
const rows = LAYERS.map(({ layer, ...row }, i) => {
  const { dtype: drawnDtype, ...options } = cases[i % cases.length] as (typeof cases)[number];
  // the Hadamard transform accepts only bf16
  const dtype = row.recipe === "nvfp4" ? "bf16" : drawnDtype;
  const testCase: Case = {
    ...{ ...options, ...row, dtype, layers: [layer, "bare"], width: 32, caches: false },
    settings: turnsFrom(i),
  };
  return { i, given: testCase };
});

/** The ranks' run has the states of one process's run. */
async function equalsOneProcess(testCase: Case, steps = STEPS): Promise<void> {
  const shardedTexts = await shardedRun(backends, testCase, steps);
  const expected = await oneProcess(backends[0] as Backend, testCase, steps);
  expect(shardedTexts, JSON.stringify(testCase)).toEqual(expected);
}

describe(`sharded training over ${STEPS} steps, cases drawn from ${seed}`, () => {
  // a layer warns that its recipe changes
  beforeEach(() => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    return () => warn.mockRestore();
  });

  it("has a case for every pair of options, of a case or of a step", () => {
    expect(cases.length).toBeLessThanOrEqual(rows.length);
    const laterSteps = rows.flatMap(({ given: testCase }) =>
      (testCase.settings ?? []).slice(1).map((settings) => ({ ...settings })),
    );
    const pairs = [...tuplesAmong(settings, 2)].filter((pair) => !tuplesAmong(laterSteps, 2).has(pair));
    expect(pairs).toEqual([]);
  });

  it("a cached weight whose input needs a gradient only in a later step is quantized again, as in one process", async () => {
    const stepSettings = {
      synced: true,
      otherRecipe: false,
      end: "step",
      zeroes: true,
      state: "kept",
    } as const;
    const testCase: Case = {
      ...{ ranks: 2, recipe: "block", dtype: "f32", layers: ["linear", "bare"], width: 32, optimizer: "sgd" },
      ...{ quantized: false, recomputes: false, microbatches: 2, caches: false, frozen: [true] },
      ...{ reduction: "sum", rowMultiple: 32, orders: [[0], [], [1, 0]], evaluated: [] },
      settings: [
        { ...stepSettings, first: undefined, skip: 0 },
        { ...stepSettings, first: false, skip: undefined },
      ],
    };
    await equalsOneProcess(testCase, 2);
  });

  it.each(["sgd", "adamw"] as const)(
    "a call of backwardDw of one layer reduces no gradient to which a call of another layer adds, under %s",
    async (optimizer) => {
      const testCase: Case = {
        ...{
          ranks: 3,
          recipe: "bf16",
          dtype: "bf16",
          layers: ["linear", "bare", "mlp"],
          width: 32,
          optimizer,
        },
        ...{ quantized: false, recomputes: false, microbatches: 2, caches: false, frozen: [] },
        ...{ reduction: "sum", rowMultiple: 1, orders: [], evaluated: [], delays: "layers" },
      };
      await equalsOneProcess(testCase, 3);
    },
  );

  it("the last call of backwardDw reduces, if some passes use no weight that has a gradient", async () => {
    const stepSettings = {
      ...{ first: undefined, skip: undefined, otherRecipe: false, synced: false, zeroes: true },
      ...({ end: "step", state: "kept" } as const),
    };
    const testCase: Case = {
      ...{
        ranks: 2,
        recipe: "bf16",
        dtype: "bf16",
        layers: ["linear", "bare"],
        width: 32,
        optimizer: "adamw",
      },
      ...{ quantized: false, recomputes: true, microbatches: 2, caches: false, frozen: [false, true] },
      ...{ reduction: "mean", rowMultiple: 16, orders: [[0], [], [1, 0]], evaluated: [], delays: "step" },
      settings: [stepSettings],
    };
    await equalsOneProcess(testCase, 3);
  });

  it("a weight is not prefetched by rows if a new recipe has blocks that cross ranks", async () => {
    const stepSettings = {
      ...{ synced: true, first: undefined, skip: undefined },
      end: "step",
      zeroes: true,
    } as const;
    const testCase: Case = {
      ...{ ranks: 2, recipe: "block", dtype: "f32", layers: ["linear", "bare"], width: 32, optimizer: "sgd" },
      ...{ quantized: false, recomputes: true, microbatches: 1, caches: false, frozen: [] },
      ...{ reduction: "sum", rowMultiple: 1, orders: [], evaluated: [0] },
      settings: [true, false].map((otherRecipe) => ({ ...stepSettings, otherRecipe, state: "kept" })),
    };
    await equalsOneProcess(testCase, 2);
  });

  it.each(sampleCases(rows, Math.ceil(rows.length / 3)))(
    "$i: $given.recipe, $given.layers on $given.ranks ranks",
    ({ given: testCase }) => equalsOneProcess(testCase),
  );
});
