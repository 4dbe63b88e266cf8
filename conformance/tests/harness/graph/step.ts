/** Training steps of two equal models with changing inputs: one runs its steps, the other replays a captured step. */
import { autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { encode } from "../../../../src/ops/cast/cast.js";
import { empty, tensor } from "../../../../src/ops/create.js";
import { captureGraph } from "../../../../src/ops/graph.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { words } from "../../../arbitraries/random.js";

const [TOKENS, FEATURES, HIDDEN] = [128, 128, 256] as const;

/** The values of batch `i`. They grow with each batch, so that scales change. */
function batchValues(seed: number, i: number): Float32Array {
  return Float32Array.from(words(seed + i, TOKENS * FEATURES), (word) => ((word | 0) / 2 ** 31) * 4 ** i);
}

/** A model, its inputs, and a step that stores its results in `y`, `dx` and the gradients of the parameters. */
function createTrainer(backend: Backend, recipe: Recipe | undefined) {
  const random = new RandomState(7n);
  const model = new Sequential(
    backend,
    new LayerNormLinear(backend, FEATURES, FEATURES, { random }),
    new LayerNormMLP(backend, FEATURES, HIDDEN, { random }),
  );
  const [x, dy] = [0, 1].map(() => empty(backend, "bf16", [TOKENS, FEATURES])) as [
    Tensor<"bf16">,
    Tensor<"bf16">,
  ];
  const setValues = (target: Tensor<"bf16">, values: Float32Array): void => {
    using _ = new Scope();
    const f32Values = tensor(backend, values, [TOKENS, FEATURES]);
    target.paste(encode(f32Values, { format: "bf16", overflow: "nonfinite" }) as Tensor<"bf16">, 0);
  };
  const step = (): readonly Tensor[] => {
    using scope = new Scope();
    const input = new Variable(x, true);
    const y = autocast({ recipe, enabled: recipe !== undefined }, () => model.forward(input));
    y.backward(dy);
    const grads = [input, ...model.parameters()].map((leaf) => {
      const { grad } = leaf;
      leaf.grad = undefined;
      return grad as Tensor;
    });
    return [scope.keep(y.tensor), ...grads];
  };
  return {
    step,
    feed(i: number): void {
      setValues(x, batchValues(1, i));
      setValues(dy, batchValues(1000, i));
    },
    /** The scales and histories of delayed scaling, as a checkpoint stores them. */
    scales: () => [...model.namedQuantizations()].map(([, quantization]) => quantization.snapshotSync()),
    [Symbol.dispose](): void {
      for (const resource of [model, x, dy]) resource.dispose();
    },
  };
}

/** Results, gradients and delayed scaling's state after a step, as plain data. */
function plainOutcome(tensors: readonly Tensor[], model: ReturnType<typeof createTrainer>) {
  const elements = tensors.map((x) => x.dataSync());
  for (const x of tensors) x.dispose();
  return { elements, scales: model.scales() };
}

/**
 * The outcome of each of `iterations` steps, for the model that runs them and for the one that replays them. `warmupSteps` is the
 * number of steps before the capture. The first step creates the scales of delayed scaling, which a capture refuses.
 */
export function compareCallsWithReplays(
  backend: Backend,
  recipe: () => Recipe | undefined,
  iterations: number,
  warmupSteps: 0 | 1 = 1,
) {
  using eagerTrainer = createTrainer(backend, recipe());
  using replayTrainer = createTrainer(backend, recipe());
  for (const model of warmupSteps === 0 ? [] : [eagerTrainer, replayTrainer]) {
    model.feed(0);
    for (const result of model.step()) result.dispose();
  }
  using graph = captureGraph(backend, replayTrainer.step);
  const results = Array.from({ length: iterations }, (_, i) => {
    for (const model of [eagerTrainer, replayTrainer]) model.feed(i);
    const eager = plainOutcome(eagerTrainer.step(), eagerTrainer);
    graph.replay();
    return {
      eager,
      again: plainOutcome(
        graph.result.map((result) => result.clone()),
        replayTrainer,
      ),
    };
  });
  for (const result of graph.result) result.dispose();
  return results;
}
