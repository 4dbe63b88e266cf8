/** Activation checkpointing: activations are recomputed in the backward pass instead of being kept in memory. */
import { currentRegion, runRegion } from "../autocast.js";
import { callable } from "../options.js";
import { runBackward } from "../tape/backward.js";
import { capture, differentiable, type VariableLike, variableOf } from "../tape/differentiable.js";
import { gradEnabled, unrecorded, withGrad } from "../tape/grad-mode.js";
import { membersOf, type Value } from "../tape/value.js";
import { Variable } from "../tape/variable.js";
import { adopt, Scope } from "../tensor/scope.js";
import { currentPhase, type RecomputeCalls, type RecomputePhase, runPhase } from "./recompute-phase.js";

/**
 * Computes `body(...inputs)` and keeps only the inputs, as `torch.utils.checkpoint` does. The backward pass runs `body` a
 * second time.
 *
 * The second run uses the autocast region, the scales and the cached weights of the first run and does not record amaxes again.
 * The gradients are therefore bitwise equal to the gradients without recomputation. `body` must do the same in both runs.
 * Parameters of modules and captured variables get their gradients too. The result requires a gradient if the result of `body`
 * does, that is, if it was computed from an input, a parameter or a captured variable that requires one. Otherwise nothing is
 * kept.
 *
 * @throws `ArgumentError` if `body` is not a function or an input is not a tensor, `DisposedError` for a disposed tensor.
 * Errors of the body propagate.
 */
export function recompute(
  body: (...inputs: Variable[]) => Variable,
  ...inputs: readonly VariableLike[]
): Variable {
  callable("recompute", "body", body);
  const variables = inputs.map((input, i) => variableOf("recompute", `inputs[${i}]`, input));
  if (!gradEnabled()) return unrecordedCall(body, variables);
  const region = currentRegion();
  const outerPhase = currentPhase();
  const calls: RecomputeCalls = new Map();
  const phase: RecomputePhase = outerPhase ? { ...outerPhase, next: calls } : { pass: "first", calls };
  const leaves = (): Variable[] =>
    variables.map(({ value, requiresGrad }) => new Variable(value, requiresGrad));
  const [result] = differentiable(
    variables,
    () => {
      const capturedVariables = new Set<Variable>();
      const runForward = (): Variable =>
        unrecorded(capturedVariables, () => capture(requireResult(body(...leaves()))));
      const result = outerPhase
        ? runPhase(phase, runForward)
        : adoptHeldValues(calls, () => runPhase(phase, runForward));
      return {
        results: [result.value],
        requiresGrad: result.requiresGrad,
        captured: capturedVariables,
        // in the second run of an outer region, that region owns these values
        saved: outerPhase ? [] : callValues(calls),
        quantized: { gradOutput: true },
        backward: ([grad], pass) => {
          if (!grad) return [];
          const inputs = leaves();
          const runAgain = (): Variable =>
            runPhase({ pass: "again", calls }, () => withGrad(() => requireResult(body(...inputs))));
          runBackward(runRegion(region, runAgain), grad, pass, { boundary: capturedVariables });
          return inputs.map((leaf) => pass.gradients.take(leaf));
        },
      };
    },
    true,
  );
  return result as Variable;
}

function requireResult(result: VariableLike): Variable {
  return variableOf("recompute", "the result of body", result);
}

/**
 * Runs `body` without a graph node, for calls with gradients off. An outer recomputed region still sees the variables that
 * `body` captures.
 */
function unrecordedCall(body: (...inputs: Variable[]) => Variable, inputs: readonly Variable[]): Variable {
  using scope = new Scope();
  const result = capture(requireResult(body(...inputs)));
  scope.keep(result.value);
  return result;
}

/** Runs `body`. Afterwards, also if it throws, the open scope owns the tensors that layers keep for the second run. */
function adoptHeldValues<R>(calls: RecomputeCalls, body: () => R): R {
  try {
    return body();
  } finally {
    for (const value of callValues(calls)) for (const member of membersOf(value)) adopt(member);
  }
}

function callValues(calls: RecomputeCalls): readonly Value[] {
  return [...calls.values()].flat().flatMap(({ values }) => values);
}
