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
function batchOf(seed: number, i: number): Float32Array {
  return Float32Array.from(words(seed + i, TOKENS * FEATURES), (word) => ((word | 0) / 2 ** 31) * 4 ** i);
}

/** A model, its inputs, and a step that stores its results in `y`, `dx` and the gradients of the parameters. */
function trained(backend: Backend, recipe: Recipe | undefined) {
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
  const set = (target: Tensor<"bf16">, values: Float32Array): void => {
    using _ = new Scope();
    const wide = tensor(backend, values, [TOKENS, FEATURES]);
    target.paste(encode(wide, { format: "bf16", overflow: "nonfinite" }) as Tensor<"bf16">, 0);
  };
  const step = (): readonly Tensor[] => {
    using scope = new Scope();
    const input = new Variable(x, true);
    const y = autocast({ recipe, enabled: recipe !== undefined }, () => model.forward(input));
    y.backward(dy);
    const grads = [input, ...model.parameters()].map((each) => {
      const { grad } = each;
      each.grad = undefined;
      return grad as Tensor;
    });
    return [scope.keep(y.tensor), ...grads];
  };
  return {
    step,
    feed(i: number): void {
      set(x, batchOf(1, i));
      set(dy, batchOf(1000, i));
    },
    /** The scales and histories of delayed scaling, as a checkpoint stores them. */
    scales: () => [...model.namedQuantizations()].map(([, each]) => each.snapshotSync()),
    [Symbol.dispose](): void {
      for (const each of [model, x, dy]) each.dispose();
    },
  };
}

/** Results, gradients and delayed scaling's state after a step, as plain data. */
function left(tensors: readonly Tensor[], model: ReturnType<typeof trained>) {
  const elements = tensors.map((each) => each.dataSync());
  for (const each of tensors) each.dispose();
  return { elements, scales: model.scales() };
}

/**
 * The outcome of each of `iterations` steps, for the model that runs them and for the one that replays them. `earlier` is the
 * number of steps before the capture. The first step creates the scales of delayed scaling, which a capture refuses.
 */
export function calledAndReplayed(
  backend: Backend,
  recipe: () => Recipe | undefined,
  iterations: number,
  earlier: 0 | 1 = 1,
) {
  using called = trained(backend, recipe());
  using replayed = trained(backend, recipe());
  for (const model of earlier === 0 ? [] : [called, replayed]) {
    model.feed(0);
    for (const each of model.step()) each.dispose();
  }
  using graph = captureGraph(backend, replayed.step);
  const results = Array.from({ length: iterations }, (_, i) => {
    for (const model of [called, replayed]) model.feed(i);
    const eager = left(called.step(), called);
    graph.replay();
    return {
      eager,
      again: left(
        graph.result.map((each) => each.clone()),
        replayed,
      ),
    };
  });
  for (const each of graph.result) each.dispose();
  return results;
}
