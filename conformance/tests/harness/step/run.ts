/** Runs a plan with the library and with the model. */
import type { Backend } from "../../../../src/backends/backend.js";
import type { Matrix } from "../../../oracle/training/matrix.js";
import { StepLibrary } from "./library.js";
import { StepModel } from "./model.js";
import { EVALUATION, type StepPlan, stepActions } from "./plan.js";
import { difference, type StepResults } from "./seen.js";

/** The calls of a step; the call without gradients comes first. */
function stepCalls(plan: StepPlan, step: number): readonly number[] {
  const { calls, evaluated } = stepActions(plan, step);
  return [...(evaluated ? [EVALUATION] : []), ...calls.keys()];
}

/** The first difference between the library's and the model's run of a plan; undefined if there is none. */
export function firstDifference(backend: Backend, plan: StepPlan): string | undefined {
  using library = new StepLibrary(backend, plan);
  const model = new StepModel(plan, backend.datapath, library.random.offset);
  for (let step = 0; step < plan.steps; step++) {
    for (const call of stepCalls(plan, step)) {
      const mismatch = difference(library.microbatch(step, call), model.microbatch(step, call));
      if (mismatch) return `step ${step}, call ${call}: ${mismatch}`;
    }
    const mismatch = difference(library.step(step), model.step(step));
    if (mismatch) return `after step ${step}: ${mismatch}`;
    if (library.random.offset !== model.run.random.offset)
      return `${library.random.offset} draws; there have to be ${model.run.random.offset}`;
  }
  return undefined;
}

/** Everything observable in the model's run of a plan. */
export function modelResults(plan: StepPlan, family: Backend["datapath"]): StepResults {
  const model = new StepModel(plan, family, 0n);
  const results = new Map<string, Matrix>();
  for (let step = 0; step < plan.steps; step++) {
    for (const call of stepCalls(plan, step))
      for (const [name, x] of model.microbatch(step, call)) results.set(`${step} ${call} ${name}`, x);
    for (const [name, x] of model.step(step)) results.set(`${step} ${name}`, x);
  }
  return results;
}
