/** Activations that are computed again in the backward pass rather than kept. */
import { currentRegion, runRegion } from "../autocast/autocast.js";
import { gradEnabled, unrecorded, withGrad } from "../tape/grad-mode.js";
import { differentiable, goBackFrom, Variable, type VariableLike, variable } from "../tape/variable.js";
import { adopt } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";
import { currentPhase, type RecomputePhase, runPhase, type Stash } from "./recompute-phase.js";

/**
 * `body` of `inputs`, keeping nothing but these: the backward pass computes it a second time, in the autocast region of the
 * first, with the scales of the first under delayed scaling, and records no amax again; so the gradients have the bits that
 * they have without. `body` must do the same both times. Parameters of modules in it get their gradients too.
 */
export function recompute(
  body: (...inputs: Variable[]) => Variable,
  ...inputs: readonly VariableLike[]
): Variable {
  const given = inputs.map(variable);
  const around = currentPhase();
  // what is not recorded is not gone back through from here: it belongs to the region around
  if (around && !gradEnabled()) return body(...given);
  const region = currentRegion();
  const stash: Stash = new Map();
  const phase: RecomputePhase = around ? { ...around, next: stash } : { pass: "first", stash };
  const [result] = differentiable(
    given,
    () => {
      const constants = given.map((each) => each.detach());
      const first = adopting(stash, () => runPhase(phase, () => unrecorded(() => body(...constants))));
      return {
        results: [first.value],
        saved: scalesIn(stash),
        quantized: { taken: true },
        backward: ([grad], pass) => {
          if (!grad) return [];
          const leaves = given.map(({ value, requiresGrad }) => new Variable(value, requiresGrad));
          const again = (): Variable =>
            runPhase({ pass: "again", stash }, () => withGrad(() => body(...leaves)));
          goBackFrom(runRegion(region, again), grad, pass);
          return leaves.map((leaf) => pass.gradients.take(leaf));
        },
      };
    },
    gradEnabled(),
  );
  return result as Variable;
}

/** Runs `body`; what that puts into the stash belongs to the scope around, after an exception too. */
function adopting<R>(stash: Stash, body: () => R): R {
  try {
    return body();
  } finally {
    for (const scale of scalesIn(stash)) adopt(scale);
  }
}

function scalesIn(stash: Stash): readonly Tensor<"f32">[] {
  return [...stash.values()].flat();
}
