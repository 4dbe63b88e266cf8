/**
 * Activations that a GPU moves to the host on its side stream change no bit, over several steps of several layers under every
 * recipe. Memory that a captured graph uses keeps its address.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { Backend } from "../../../src/backends/backend.js";
import { sigmoid } from "../../../src/functional/elementwise.js";
import { offloadActivations } from "../../../src/modules/offload-activations.js";
import { TransformerLayer } from "../../../src/modules/transformer-layer.js";
import { empty } from "../../../src/ops/create.js";
import { scaled } from "../../../src/ops/elementwise/operators.gen.js";
import { captureGraph } from "../../../src/ops/graph.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { drawnTensor, hashOf } from "../harness/drawn-tensor.js";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";
import { RECIPE_NAMES, RECIPES_UNDER_TEST, type RecipeName } from "../harness/training/run.js";

const LAYERS = 3;
const STEPS = 3;
const [FEATURES, HIDDEN, HEADS] = [64, 128, 4];
const SHAPE = [128, 1, FEATURES] as const;

type Call = (body: () => Variable) => Variable;

/** The hashes of the result and all gradients of each step, and the most blocks that were live after a forward pass. */
function train(backend: Backend, recipeName: RecipeName, call: Call) {
  using _ = new Scope();
  const random = new RandomState(3n);
  const layers = Array.from(
    { length: LAYERS },
    (_, i) =>
      new TransformerLayer(backend, FEATURES, HIDDEN, HEADS, {
        random,
        layerNumber: i + 1,
        hiddenDropout: 0,
      }),
  );
  const recipe = RECIPES_UNDER_TEST[recipeName]?.();
  const hashes: string[] = [];
  let blocks = 0;
  for (let step = 0; step < STEPS; step++) {
    using _step = new Scope();
    const x = new Variable(drawnTensor(backend, 1 + step, SHAPE, "bf16"), true);
    const y = autocast(recipe ? { recipe } : { enabled: false }, () =>
      layers.reduce((h, layer) => call(() => layer.forward(h)), x),
    );
    blocks = Math.max(blocks, backend.memoryUse().blocks);
    y.backward(drawnTensor(backend, 10 + step, SHAPE, "bf16"));
    const leaves = [x, ...layers.flatMap((layer) => layer.parameters())];
    hashes.push(...[y.tensor, ...leaves.map(({ grad }) => grad)].map(hashOf));
    for (const leaf of leaves) leaf.zeroGrad();
  }
  for (const layer of layers) layer.dispose();
  return { hashes, blocks };
}

describeOnGpu("activations on the host", () => {
  const { gpu, reference } = useGpu();

  describe("have the bits of a reference that keeps them", () => {
    it.each(RECIPE_NAMES)("under %s", (recipe) => {
      const kept = train(reference(), recipe, (body) => body());
      const offloaded = train(gpu(), recipe, (body) => offloadActivations(body, { minBytes: 1 }));
      expect(offloaded.hashes).toEqual(kept.hashes);
      expect(offloaded.blocks).toBeLessThan(train(gpu(), recipe, (body) => body()).blocks);
    });
  });

  it("stay on the GPU if a captured graph uses them", () => {
    using _ = new Scope();
    const x = new Variable(drawnTensor(gpu(), 1, [64, 64], "f32"), true);
    const hidden = sigmoid(x);
    const out = empty(gpu(), "f32", [64, 64]);
    const graph = captureGraph(gpu(), () => void scaled(hidden.tensor, 2, { out }));
    offloadActivations(() => sigmoid(hidden), { minBytes: 1 });
    drawnTensor(gpu(), 2, [64, 64], "f32"); // would reuse the memory of `hidden`
    graph.replay();
    expect(hashOf(out)).toBe(hashOf(scaled(sigmoid(x).tensor, 2)));
    graph.dispose();
  });

  it("are refused while a graph is captured", () => {
    using _ = new Scope();
    const x = new Variable(drawnTensor(gpu(), 1, [64, 64], "f32"), true);
    const offload = () => void offloadActivations(() => sigmoid(sigmoid(x)), { minBytes: 1 });
    expect(() => captureGraph(gpu(), offload)).toThrow(
      /a tensor is moved to the host while a graph is captured/,
    );
  });
});
