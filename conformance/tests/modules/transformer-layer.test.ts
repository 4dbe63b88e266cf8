/** TransformerLayer: forward and backward equal the composition of its layers, under every recipe; and refusals. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { ArgumentError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import type { TransformerLayerOptions } from "../../../src/modules/attention/transformer-options.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import { MultiheadAttention } from "../../../src/modules/multihead-attention.js";
import { LayerNorm } from "../../../src/modules/norm.js";
import { recompute } from "../../../src/modules/recompute.js";
import { TransformerLayer } from "../../../src/modules/transformer-layer.js";
import { tensor } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../src/recipes/block-scaled.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { expectSame } from "../harness/drawn-tensor.js";
import { testInScope, useBackend } from "../harness/suite.js";
import { fill, waves } from "./attention/drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [LENGTH, BATCH, HIDDEN, FFN, HEADS] = [16, 2, 64, 128, 4];

const RECIPES: Readonly<Record<string, () => Recipe | undefined>> = {
  none: () => undefined,
  delayed: () => new DelayedScaling(),
  current: () => new Float8CurrentScaling(),
  block: () => new Float8BlockScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
  nvfp4: () => new NVFP4BlockScaling({ disableStochasticRounding: true }),
};

const FORMS: Readonly<Record<string, TransformerLayerOptions>> = {
  "an encoder": {},
  "a decoder": { layerType: "decoder", normalization: "RMSNorm", activation: "swiglu" },
  "attention and MLP in parallel": { parallelAttentionMlp: true, bias: false, activation: "relu" },
  "a norm of the result": { outputLayernorm: true, activation: "geglu" },
  "residuals from norms": { applyResidualConnectionPostLayernorm: true, layerType: "decoder" },
};

const NO_DROPOUT = { attentionDropout: 0, hiddenDropout: 0 } as const;

/** The layers of a form, created one by one. */
function layersOf(options: TransformerLayerOptions) {
  const { activation, bias, normalization, outputLayernorm = false } = options;
  const sharedOptions = { attentionDropout: 0, bias, normalization };
  const self = new MultiheadAttention(backend(), HIDDEN, HEADS, {
    ...sharedOptions,
    inputLayernorm: !outputLayernorm,
  });
  const cross = {
    ...sharedOptions,
    inputLayernorm: true,
    attentionType: "cross",
    attnMaskType: "no_mask",
  } as const;
  const inter =
    options.layerType === "decoder" ? new MultiheadAttention(backend(), HIDDEN, HEADS, cross) : undefined;
  const mlp = new LayerNormMLP(backend(), HIDDEN, FFN, { activation, bias, normalization });
  const last = outputLayernorm ? new LayerNorm(backend(), HIDDEN) : undefined;
  return { self, inter, mlp, last, all: [self, inter, mlp, last].filter((module) => module !== undefined) };
}

function byHand(
  options: TransformerLayerOptions,
  { self, inter, mlp, last }: ReturnType<typeof layersOf>,
  x: Variable,
  memory: Variable,
): Variable {
  const { add } = functional;
  if (options.parallelAttentionMlp) return add(x, add(self.forward(x), mlp.forward(x)));
  if (options.applyResidualConnectionPostLayernorm) {
    const [selfResult, normResult] = self.forwardWithNorm(x);
    const [interResult, otherNormed] = (inter as MultiheadAttention).forwardWithNorm(
      add(normResult, selfResult),
      {
        encoderOutput: memory,
      },
    );
    const [mlpResult, last] = mlp.forwardWithNorm(add(otherNormed, interResult));
    return add(last, mlpResult);
  }
  let y = add(x, self.forward(x));
  if (inter) y = add(y, inter.forward(y, { encoderOutput: memory }));
  const out = add(y, mlp.forward(y));
  return last ? last.forward(out) : out;
}

const CASES = Object.keys(FORMS).flatMap((form) =>
  Object.keys(RECIPES)
    // every form in high precision and under MXFP8, every recipe of an encoder
    .filter((recipe) => form === "an encoder" || recipe === "none" || recipe === "mxfp8")
    .map((recipe) => [form, recipe] as const),
);

describe("TransformerLayer is the composition of its layers, forward and backward", () => {
  it.each(CASES)("%s, recipe %s", (form, recipeName) => {
    using _scope = new Scope();
    const options = FORMS[form] as TransformerLayerOptions;
    const module = new TransformerLayer(backend(), HIDDEN, FFN, HEADS, { ...NO_DROPOUT, ...options });
    const layers = layersOf(options);
    fill(5, module);
    fill(5, ...layers.all);
    const leaves = [0, 1].map(() =>
      [1, 2].map((seed) => new Variable(waves(backend(), seed, [LENGTH, BATCH, HIDDEN]), true)),
    ) as [[Variable, Variable], [Variable, Variable]];
    const isDecoder = options.layerType === "decoder";
    const run = (body: () => Variable): Variable => {
      const recipe = RECIPES[recipeName]?.();
      return recipe ? autocast({ recipe }, body) : body();
    };
    const call = isDecoder ? { encoderOutput: leaves[0][1] } : {};
    const out = run(() => module.forward(leaves[0][0], call));
    const expected = run(() => byHand(options, layers, ...leaves[1]));
    expectSame("result", out.tensor, expected.tensor);
    const grad = waves(backend(), 3, [LENGTH, BATCH, HIDDEN]);
    out.backward(grad);
    expected.backward(grad);
    for (const i of isDecoder ? [0, 1] : [0])
      expectSame(`input ${i}`, leaves[0][i]?.grad, leaves[1][i]?.grad);
    const hand = layers.all.flatMap((layer) => layer.parameters());
    expect(module.parameters().length).toBe(hand.length);
    for (const [i, parameter] of module.parameters().entries())
      expectSame(`parameter ${i}`, parameter.grad, hand[i]?.grad);
    for (const pair of leaves) for (const leaf of pair) leaf.zeroGrad();
    for (const layer of [module, ...layers.all]) layer.dispose();
  });
});

describe("a TransformerLayer", () => {
  testInScope(
    "drops elements of the terms that it adds, the same in both runs of a recomputed region",
    () => {
      const run = (recomputes: boolean, training: boolean) => {
        using module = new TransformerLayer(backend(), HIDDEN, FFN, HEADS, {
          ...{ attentionDropout: 0.2, hiddenDropout: 0.3, random: new RandomState(9n) },
        });
        fill(5, module);
        const x = new Variable(waves(backend(), 1, [LENGTH, BATCH, HIDDEN]), true);
        const forward = (y: Variable): Variable => module.forward(y, { training });
        const out = recomputes ? recompute(forward, x) : forward(x);
        out.backward(waves(backend(), 2, out.shape));
        const values = [out.tensor, x.grad].map((tensor) =>
          [...(tensor as NonNullable<typeof x.grad>).dataSync()].join(),
        );
        x.zeroGrad();
        return values;
      };
      const droppedRun = run(false, true);
      expect(run(true, true)).toEqual(droppedRun);
      expect(run(false, false)).not.toEqual(droppedRun);
    },
  );

  testInScope(
    "with a probability of hiddenDropout is the composition with dropout, by draws in order",
    () => {
      const random = new RandomState(9n);
      using module = new TransformerLayer(backend(), HIDDEN, FFN, HEADS, {
        ...{ attentionDropout: 0, hiddenDropout: 0.3, random },
      });
      fill(5, module);
      const layers = layersOf({});
      fill(5, ...layers.all);
      const { offset } = random;
      const x = waves(backend(), 1, [LENGTH, BATCH, HIDDEN]);
      const out = module.forward(x);
      const drop = (y: Variable, i: bigint): Variable =>
        functional.dropout(y, { probability: 0.3, seed: 9n, offset: offset + i });
      const y = functional.add(x, drop(layers.self.forward(x), 0n));
      const expected = functional.add(y, drop(layers.mlp.forward(y), 1n));
      expectSame("result", out.tensor, expected.tensor);
      for (const layer of layers.all) layer.dispose();
    },
  );

  testInScope(
    "with a rate of dropped paths multiplies the terms that it adds by dropout of ones, by draws in order",
    () => {
      const random = new RandomState(9n);
      using module = new TransformerLayer(backend(), HIDDEN, FFN, HEADS, {
        ...{ attentionDropout: 0, hiddenDropout: 0.3, dropPathRate: 0.4, random },
      });
      fill(5, module);
      const layers = layersOf({});
      fill(5, ...layers.all);
      const { offset } = random;
      const x = waves(backend(), 1, [LENGTH, BATCH, HIDDEN]);
      const drop = (y: Variable, i: bigint): Variable => {
        const droppedResult = functional.dropout(y, { probability: 0.3, seed: 9n, offset: offset + 2n * i });
        const onesTensor = tensor(backend(), new Float32Array(LENGTH).fill(1), [LENGTH, 1, 1]);
        const paths = functional.dropout(onesTensor, {
          probability: 0.4,
          seed: 9n,
          offset: offset + 2n * i + 1n,
        });
        return functional.multiply(droppedResult, paths);
      };
      const out = module.forward(x);
      const y = functional.add(x, drop(layers.self.forward(x), 0n));
      expectSame("result", out.tensor, functional.add(y, drop(layers.mlp.forward(y), 1n)).tensor);
      const attentionResult = functional.add(x, layers.self.forward(x));
      const undroppedResult = functional.add(attentionResult, layers.mlp.forward(attentionResult));
      expectSame("without training", module.forward(x, { training: false }).tensor, undroppedResult.tensor);
      for (const layer of layers.all) layer.dispose();
    },
  );

  testInScope("of forms that exclude each other is refused, and so is a missing encoder output", () => {
    const make = (options: TransformerLayerOptions) => new TransformerLayer(backend(), 64, 64, 4, options);
    for (const invalidOptions of [
      { outputLayernorm: true },
      { applyResidualConnectionPostLayernorm: true },
      { layerType: "decoder" },
    ] as const)
      expect(() => make({ parallelAttentionMlp: true, ...invalidOptions })).toThrow(ArgumentError);
    using decoder = make({ layerType: "decoder", ...NO_DROPOUT });
    const x = waves(backend(), 1, [4, 1, 64]);
    expect(() => decoder.forward(x)).toThrow("encoderOutput");
    using encoder = make(NO_DROPOUT);
    expect(() => encoder.forward(x, { encoderOutput: x })).toThrow("encoderOutput");
  });
});
