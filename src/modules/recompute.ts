/** Activation checkpointing: activations are recomputed in the backward pass rather than kept. */
import { currentRegion, runRegion } from "../autocast/autocast.js";
import { callable } from "../options.js";
import { runBackward } from "../tape/backward.js";
import { capture, differentiable, type VariableLike, variable } from "../tape/differentiable.js";
import { gradEnabled, unrecorded, withGrad } from "../tape/grad-mode.js";
import type { Value } from "../tape/value.js";
import { Variable } from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { adopt, Scope } from "../tensor/scope.js";
import { currentPhase, type HeldCalls, type RecomputePhase, runPhase } from "./recompute-phase.js";

/**
 * Computes `body(...inputs)` and keeps only the inputs, as `torch.utils.checkpoint` does. The backward pass runs `body` a
 * second time, in the autocast region of the first run and with the same scales and cached weights; amaxes are not recorded
 * again, so the gradients are bitwise equal to those without recomputation. `body` must do the same both times. Module
 * parameters and captured variables get their gradients too. The result requires a gradient if that of `body` does, that is, if
 * an input, a parameter or a captured variable it was computed from requires one. Otherwise nothing is kept.
 *
 * @throws `ArgumentError` if `body` is not a function or an input not a tensor, `DisposedError` for a tensor that was disposed
 * of; errors of the body propagate.
 */
export function recompute(
  body: (...inputs: Variable[]) => Variable,
  ...inputs: readonly VariableLike[]
): Variable {
  callable("recompute", "body", body);
  const given = inputs.map((each) => variable(each));
  if (!gradEnabled()) return unrecordedCall(body, given);
  const region = currentRegion();
  const around = currentPhase();
  const calls: HeldCalls = new Map();
  const phase: RecomputePhase = around ? { ...around, next: calls } : { pass: "first", calls };
  const leaves = (): Variable[] => given.map(({ value, requiresGrad }) => new Variable(value, requiresGrad));
  const [result] = differentiable(
    given,
    () => {
      const captured = new Set<Variable>();
      const first = (): Variable => unrecorded(captured, () => capture(variable(body(...leaves()))));
      const made = around ? runPhase(phase, first) : adoptingValues(calls, () => runPhase(phase, first));
      return {
        results: [made.value],
        requiresGrad: made.requiresGrad,
        captured,
        // in a second pass, the surrounding region owns them
        saved: around ? [] : valuesIn(calls),
        quantized: { gradOutput: true },
        backward: ([grad], pass) => {
          if (!grad) return [];
          const inputs = leaves();
          const again = (): Variable =>
            runPhase({ pass: "again", calls }, () => withGrad(() => variable(body(...inputs))));
          runBackward(runRegion(region, again), grad, pass, captured);
          return inputs.map((leaf) => pass.gradients.take(leaf));
        },
      };
    },
    true,
  );
  return result as Variable;
}

/**
 * Runs `body` without a node of its own, where gradients are off. A surrounding recomputed region still sees what it captures.
 */
function unrecordedCall(body: (...inputs: Variable[]) => Variable, given: readonly Variable[]): Variable {
  using scope = new Scope();
  const result = capture(variable(body(...given)));
  scope.keep(result.value);
  return result;
}

/** Runs `body`, also when it throws, such that the surrounding scope owns the values that its layers hold. */
function adoptingValues<R>(calls: HeldCalls, body: () => R): R {
  try {
    return body();
  } finally {
    for (const value of valuesIn(calls))
      for (const member of value instanceof QuantizedTensor ? value.members : [value]) adopt(member);
  }
}

function valuesIn(calls: HeldCalls): readonly Value[] {
  return [...calls.values()].flat().flatMap(({ values }) => values);
}
