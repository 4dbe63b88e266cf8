/** Each parameter's gradient is the derivative of the loss, in every recorded family. */
import { expect, it } from "vitest";
import { reshape } from "../../../src/functional/layout.js";
import { crossEntropyLoss } from "../../../src/functional/loss.js";
import { type CausalLM, loadCausalLM } from "../../../src/models/index.js";
import type { Parameter } from "../../../src/modules/parameter.js";
import { tensor } from "../../../src/ops/create.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import type { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { readWitness, WITNESS_NAMES } from "../models/witnesses.js";

const backend = useBackend();
/**
 * The step lengths, the largest first. Rounding errors are about 1e-6. A large step may send a token to another expert, where the
 * loss jumps.
 */
const CHANGES = [4e-3, 1e-3, 2e-4];

/** The loss of a model that predicts each token of a text from those before it. */
function lossOf(model: CausalLM, text: Int32Array): Variable {
  const count = text.length - 1;
  const ids = tensor(backend(), text.slice(0, -1), [1, count], "i32");
  const logits = reshape(model.forward(ids), [count, model.config.vocabSize]);
  return crossEntropyLoss(logits, tensor(backend(), text.slice(1), [count], "i32"));
}

/** The loss after a step of this length along a direction. The parameter is as before afterwards. */
function lossAfter(model: CausalLM, text: Int32Array, parameter: Parameter, step: Float32Array): number {
  using _scope = new Scope();
  const value = parameter.tensor;
  const original = value.dataSync().slice() as Float32Array;
  const write = (elements: Float32Array) =>
    value.paste(tensor(backend(), elements, [elements.length], "f32"), 0);
  write(original.map((element, i) => element + (step[i] as number)));
  const loss = noGrad(() => lossOf(model, text).tensor.dataSync()[0] as number);
  write(original);
  return loss;
}

it.each(sampleCases(WITNESS_NAMES))("%s", async (name) => {
  const { path, tokens } = await readWitness(name);
  using model = await loadCausalLM(backend(), path, { dtype: "f32" });
  const gradients = new Map<string, Float32Array>();
  {
    using _scope = new Scope();
    lossOf(model, tokens).backward();
    for (const [parameterName, parameter] of model.namedParameters()) {
      if (parameter.grad) gradients.set(parameterName, parameter.grad.dataSync().slice() as Float32Array);
      parameter.zeroGrad();
    }
  }
  const parameters = [...model.namedParameters()];
  const missing = parameters
    .filter(([parameterName]) => !gradients.has(parameterName))
    .map(([parameterName]) => parameterName);
  expect(missing.filter((parameterName) => !/e_score_correction_bias|experts\./.test(parameterName))).toEqual(
    [],
  );

  const kinds = new Set<string>();
  for (const [parameterName, parameter] of parameters) {
    const gradient = gradients.get(parameterName);
    const kind = parameterName.replaceAll(/\.\d+\./g, ".");
    if (!gradient || kinds.has(kind)) continue;
    kinds.add(kind);
    const slope = Math.hypot(...gradient);
    const isSlope = (distance: number): boolean => {
      const step = gradient.map((element) => (element * distance) / slope ** 2);
      const lossAbove = lossAfter(model, tokens, parameter, step);
      const lossBelow = lossAfter(
        model,
        tokens,
        parameter,
        step.map((element) => -element),
      );
      return Math.abs((lossAbove - lossBelow) / (2 * distance) - 1) < 0.02;
    };
    expect(CHANGES.some(isSlope), parameterName).toBe(true);
  }
  expect(kinds.size).toBeGreaterThan(10);
});
