/** A whole training step is that of a model in plain arithmetic, to the bit: every pair of options, numbers drawn anew. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { splitmix32 } from "./arbitraries/random.js";
import { pairwise } from "./harness/step/cover.js";
import { StepLibrary } from "./harness/step/library.js";
import { StepModel } from "./harness/step/model.js";
import { OPTIONS } from "./harness/step/options.js";
import { planOf, type StepPlan } from "./harness/step/plan.js";
import { difference } from "./harness/step/seen.js";
import { useBackend } from "./harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });

/** Where a plan's run in the library leaves the model, if anywhere. */
function departure(plan: StepPlan): string | undefined {
  using library = new StepLibrary(backend(), plan);
  const model = new StepModel(plan, "exact", library.random.offset);
  for (let step = 0; step < plan.steps; step++) {
    for (const [call] of plan.calls.entries()) {
      const found = difference(library.microbatch(step, call), model.microbatch(step, call));
      if (found) return `step ${step}, call ${call}: ${found}`;
    }
    const found = difference(library.step(step), model.step(step));
    if (found) return `after step ${step}: ${found}`;
    if (library.random.offset !== model.run.random.offset)
      return `${library.random.offset} draws; there have to be ${model.run.random.offset}`;
  }
  return undefined;
}

const [drawSeed] = fc.sample(fc.noBias(fc.nat()), 1) as [number];
const next = splitmix32(drawSeed);
const rows = pairwise(OPTIONS, (n) => next() % n);

describe(`a training step, cases drawn from ${drawSeed}`, () => {
  it.each(
    rows
      .map((options, i) => ({ i, options }))
      .slice(Number(process.env.FROM ?? 0), Number(process.env.TO ?? 1e9)),
  )("$i: $options.layer under $options.recipe", ({ options, i }) => {
    const plan = planOf(
      options,
      (drawSeed + 7919 * i) >>> 1,
      i % 3 === 0 || options.recipe === "delayed" ? 2 : 1,
    );
    expect(departure(plan), JSON.stringify(plan)).toBe(undefined);
  });
});
