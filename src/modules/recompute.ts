/** Activations that are computed again in the backward pass rather than kept. */
import { currentRegion, runRegion } from "../autocast/autocast.js";
import { callable } from "../options.js";
import { gradEnabled, unrecorded, withGrad } from "../tape/grad-mode.js";
import type { Value } from "../tape/value.js";
import {
  capture,
  differentiable,
  runBackward,
  Variable,
  type VariableLike,
  variable,
} from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { adopt, Scope } from "../tensor/scope.js";
import { currentPhase, type HeldCalls, type RecomputePhase, runPhase } from "./recompute-phase.js";

/**
 * `body` of `inputs`, keeping nothing but these: the backward pass computes it a second time, in the autocast region of the
 * first, with what the layers in it quantized with the first time, and records no amax again; so the gradients have the bits
 * that they have without. `body` must do the same both times. Parameters of modules in it and what it captures get their
 * gradients too. The result requires a gradient where that of `body` does: where it was computed from an input, a parameter or
 * a captured value that requires one. Otherwise nothing is kept.
 *
 * @throws `ArgumentError` for what is no function or no tensor, `DisposedError` for a tensor that was disposed of; what the
 * body throws goes through.
 */
export function recompute(
  body: (...inputs: Variable[]) => Variable,
  ...inputs: readonly VariableLike[]
): Variable {
  callable("recompute", "body", body);
  const given = inputs.map((each) => variable(each));
  if (!gradEnabled()) return unkept(body, given);
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
      const made = around ? runPhase(phase, first) : adopting(calls, () => runPhase(phase, first));
      return {
        results: [made.value],
        requiresGrad: made.requiresGrad,
        captured,
        // those of a pass that is computed again are owned by the region around
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

/** What is not recorded is not gone back through: it is a part of the pass around, if there is one. */
function unkept(body: (...inputs: Variable[]) => Variable, given: readonly Variable[]): Variable {
  using scope = new Scope();
  const result = capture(variable(body(...given)));
  scope.keep(result.value);
  return result;
}

/** Runs `body`; what layers hold meanwhile belongs to the scope around, after an exception too. */
function adopting<R>(calls: HeldCalls, body: () => R): R {
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
