/**
 * Sequences of different steps equal the model in plain arithmetic: cached weights, skipped updates, kept gradients, another
 * recipe, evaluation in between, loaded state. Every pair of options has a case.
 */
import * as fc from "fast-check";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { pairwise, tuplesAmong } from "../../arbitraries/covering.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { sampleCases } from "../harness/draws.js";
import {
  MICROBATCHES,
  type MicrobatchCall,
  type RecipeName,
  type StepActions,
  type StepOptions,
} from "../harness/step/options.js";
import { createPlan, type StepPlan } from "../harness/step/plan.js";
import { firstDifference } from "../harness/step/run.js";
import { useBackend } from "../harness/suite.js";

const STEPS = 4;
const [seed] = fc.sample(fc.noBias(fc.nat()), { numRuns: 1 }) as [number];
const next = splitmix32(seed);
const draw = (n: number): number => next() % n;

/** Calls that use a cached weight if an earlier step has cached one. */
const LATER: Readonly<Record<string, readonly MicrobatchCall[]>> = {
  "not first": [{ isFirstMicrobatch: false }],
  "not first, rewritten": [{ isFirstMicrobatch: false, rewritten: true }, { isFirstMicrobatch: false }],
  "a flag alone": [{ skip: 1 }, { skip: 0, rewritten: true }, { skip: 1, rewritten: true }],
  "first, with a flag": [{ isFirstMicrobatch: true, skip: 1, rewritten: true }],
  "not first, with a flag": [{ isFirstMicrobatch: false, skip: 0, rewritten: true }],
};

const TURNS = {
  calls: [...Object.values(MICROBATCHES), ...Object.values(LATER)],
  stepping: ["plain", "clipped", "noop", "scaled", "none"],
  zeroes: [true, false],
  evaluated: [undefined, {}, { isFirstMicrobatch: false }, { isFirstMicrobatch: true }],
  isOther: [false, true],
  state: ["kept", "saved", "loaded"],
} as const;

const CASES = {
  recipe: ["delayed", "current", "block", "mxfp8"],
  variant: [0, 1],
  layer: ["linear", "normLinear", "between", "mlp of gelu"],
  wrap: ["plain", "recompute", "twice"],
  bias: [true, false],
  parameters: ["bf16", "f32", "f16"],
  input: ["bf16", "f32"],
  start: ["variable", "constant", "embedding"],
  frozen: ["nothing", "weights", "drawn", "weights, late"],
  fuses: [false, true],
  optimizer: ["SGD with momentum", "SGD of Nesterov", "AdamW"],
  loss: ["gradient", "mse"],
} as const;

/** Another recipe whose blocks fit the same sizes. */
const OTHERS: Readonly<Record<(typeof CASES)["recipe"][number], readonly RecipeName[]>> = {
  delayed: ["delayed", "delayed, most recent", "current"],
  current: ["current, E4M3", "delayed"],
  block: ["block", "block, no squares"],
  mxfp8: ["mxfp8, square", "delayed, most recent"],
};

const turns = pairwise(TURNS, draw);

function turnsFrom(i: number, recipe: (typeof CASES)["recipe"][number]): readonly StepActions[] {
  return Array.from({ length: STEPS }, (_, step) => {
    const { isOther: usesOtherRecipe, ...actions } = turns[
      (STEPS * i + step) % turns.length
    ] as (typeof turns)[number];
    const otherRecipes = OTHERS[recipe];
    const otherRecipe = usesOtherRecipe ? otherRecipes[(i + step) % otherRecipes.length] : undefined;
    // the first step has a state that later turns can load
    return { ...actions, recipe: otherRecipe, state: step === 0 ? "saved" : actions.state };
  });
}

const REST = {
  ...{ around: "nothing", nested: false, normalization: "LayerNorm", zeroCenteredGamma: false, eps: 1e-5 },
  ...{
    savesOriginal: false,
    delays: false,
    microbatches: "alone",
    stepping: "plain",
    causal: true,
    values: "ordinary",
  },
} as const;

const rows = pairwise(CASES, draw).map((row, i) => {
  const plan = createPlan({ ...REST, ...row } as StepOptions, (seed + 7919 * i) >>> 1, STEPS);
  const stepPlan: StepPlan = { ...plan, actions: turnsFrom(i, row.recipe) };
  return { ...row, i, stepPlan };
});

describe(`${STEPS} steps of a layer, cases drawn from ${seed}`, () => {
  const backend = useBackend({ threads: 1, datapath: "exact" });

  // a layer warns that its recipe changes
  beforeEach(() => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    return () => warn.mockRestore();
  });

  it("has every pair of options of a step", () => {
    const drawnActions = rows.flatMap(({ stepPlan }) => stepPlan.actions ?? []);
    const pairs = (
      actionPairs: readonly Pick<StepActions, "calls" | "stepping" | "zeroes" | "evaluated">[],
    ) =>
      tuplesAmong(
        actionPairs.map(({ calls, stepping, zeroes, evaluated }) => ({ calls, stepping, zeroes, evaluated })),
        2,
      );
    expect([...pairs(turns)].filter((pair) => !pairs(drawnActions).has(pair))).toEqual([]);
  });

  it.each(sampleCases(rows, Math.ceil(rows.length / 3)))("$i: $layer under $recipe", ({ stepPlan }) => {
    expect(firstDifference(backend(), stepPlan), JSON.stringify(stepPlan)).toBe(undefined);
  });
});
