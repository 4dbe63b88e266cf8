/** MoELayer equals its definition, token by token, with any number of experts, under every recipe. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { GroupedLinear } from "../../../src/modules/grouped-linear.js";
import { Linear } from "../../../src/modules/linear.js";
import { MoELayer, type MoELayerOptions } from "../../../src/modules/moe-layer.js";
import { constantInit } from "../../../src/modules/parameter.js";
import { recompute } from "../../../src/modules/recompute.js";
import { loadStateDictionary, stateDictionary } from "../../../src/modules/state-dictionary.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { covering, product } from "../../arbitraries/covering.js";
import { download, type PlainTensor, upload } from "../../values/plain.js";
import { sampleCases } from "../harness/draws.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../harness/recipes.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

/** Recipes under which the scales of a row do not depend on other rows. */
const ROWWISE: readonly string[] = ["bf16", "block", "mxfp8"];
const [HIDDEN, FFN] = [128, 128];

/** A layer whose weights are larger than the default ones, so that tokens have different experts. */
function layerOf(experts: number, options: MoELayerOptions): MoELayer {
  const layer = new MoELayer(backend(), HIDDEN, FFN, experts, { initMethod: constantInit(0), ...options });
  for (const [i, parameter] of layer.parameters().entries())
    (parameter.value as Tensor).write(drawnValues(1000 + i, parameter.shape).data);
  return layer;
}

interface Row {
  readonly recipe: string;
  readonly experts: number;
  readonly tokens: number;
  readonly topk: number;
  readonly activation: "swiglu" | "geglu" | "clamped" | "relu";
  readonly scoreFunction: "softmax" | "sigmoid" | "sqrtsoftplus";
  readonly recomputes: boolean;
}

const ROWS: readonly Row[] = covering(
  product({
    recipe: Object.keys(DETERMINISTIC_RECIPES),
    experts: [1, 4],
    tokens: [0, 1, 24],
    topk: [1, 2],
    activation: ["swiglu", "geglu", "clamped", "relu"],
    scoreFunction: ["softmax", "sigmoid", "sqrtsoftplus"],
    recomputes: [false, true],
  } as const).filter(({ experts, topk }) => topk <= experts),
  2,
);

const optionsOf = ({ topk, scoreFunction, activation }: Row): MoELayerOptions => ({
  ...{ topk, scoreFunction, scalingFactor: 1.5, bias: topk === 1 },
  ...(activation === "clamped" ? { activation: "swiglu", clamp: { limit: 0.5 } } : { activation }),
});

/** Runs the layer's parts one by one, with its parameters. */
function composition(
  layer: MoELayer,
  row: Pick<Row, "topk" | "scoreFunction" | "activation" | "experts">,
  x: Variable,
  routing: Omit<functional.RouterOptions, "topk"> = { scalingFactor: 1.5 },
): { readonly out: Variable; readonly logits: Variable } {
  const { topk, scoreFunction, activation } = row;
  const logits = autocast({ enabled: false }, () => layer.router.forward(x));
  const options = { ...routing, topk, scoreFunction };
  const { probs, topkIndices } = functional.fusedTopkWithScoreFunction(logits, options);
  const indices = { mapType: "index", numExperts: row.experts } as const;
  const { output, rowIdMap } = functional.moePermute(x, topkIndices, indices);
  const splits = [...rowIdMap.tokensPerExpert.dataSync()];
  const hidden = layer.fc1.forward(output, splits);
  const a =
    activation === "relu"
      ? functional.activation(hidden, "relu")
      : activation === "geglu"
        ? functional.gated(hidden, "gelu")
        : functional.gated(hidden, "silu", activation === "clamped" ? { clamp: { limit: 0.5 } } : {});
  const y = layer.fc2.forward(a, splits);
  const mergingProbs = functional.gather(probs, 1, topkIndices);
  return { out: functional.moeUnpermute(y, rowIdMap, { mergingProbs }), logits };
}

const takeGradients = (leaves: readonly Variable[]): readonly (PlainTensor | undefined)[] =>
  leaves.map((leaf) => {
    const grad = leaf.grad && download(leaf.grad);
    leaf.zeroGrad();
    return grad;
  });

function equalsComposition(row: Row): void {
  using _scope = new Scope();
  const recipe = DETERMINISTIC_RECIPES[row.recipe]?.();
  const layers = [layerOf(row.experts, optionsOf(row)), layerOf(row.experts, optionsOf(row))] as const;
  for (let step = 0; step < 2; step++) {
    using _step = new Scope();
    const x = new Variable(upload(backend(), drawnValues(step, [row.tokens, HIDDEN])), true);
    const dy = upload(backend(), drawnValues(50 + step, [row.tokens, HIDDEN]));
    const region = (body: () => Variable): Variable => (recipe ? autocast({ recipe }, body) : body());
    const [firstLayer, secondLayer] = layers;
    const y = region(() =>
      row.recomputes
        ? recompute((input) => firstLayer.forward(functional.reshape(input, input.shape)), x)
        : firstLayer.forward(x),
    );
    y.backward(dy);
    const gradients = takeGradients([x, ...firstLayer.parameters()]);
    const expected = region(() => composition(secondLayer, row, x).out);
    expect(download(y.tensor)).toEqual(download(expected.tensor));
    expected.backward(dy);
    expect(gradients).toEqual(takeGradients([x, ...secondLayer.parameters()]));
  }
  for (const layer of layers) layer.dispose();
}

describe("the layer is its router, its experts and their weighted sum", () => {
  it.each(sampleCases(ROWS.map((row, i) => [`${i}: ${JSON.stringify(row)}`, row] as const)))(
    "%s",
    (_, row) => {
      equalsComposition(row);
    },
  );
});

describe("a token's bits do not depend on other tokens", () => {
  it.each(sampleCases(ROWWISE, 1))("under %s", (name) => {
    using _scope = new Scope();
    const recipe = DETERMINISTIC_RECIPES[name]?.();
    using layer = layerOf(4, { topk: 2 });
    const allValues = drawnValues(9, [24, HIDDEN]);
    const run = (x: Tensor) =>
      noGrad(() => (recipe ? autocast({ recipe }, () => layer.forward(x)) : layer.forward(x)));
    const together = run(upload(backend(), allValues));
    for (const token of [0, 7, 23]) {
      const singleToken = run(upload(backend(), allValues).slice(token * HIDDEN, [1, HIDDEN]));
      expect(download(singleToken.tensor)).toEqual(
        download(together.tensor.slice(token * HIDDEN, [1, HIDDEN])),
      );
    }
  });
});

const ROUTINGS = covering(
  product({
    scoreFunction: ["softmax", "sigmoid", "sqrtsoftplus"],
    topk: [1, 2],
    usePreSoftmax: [false, true],
    isGrouped: [false, true],
    isBiased: [false, true],
    scalingFactor: [1, 1.5],
    shape: [[2, 8], [1], [0]],
  } as const).filter(
    ({ scoreFunction, usePreSoftmax, isBiased }) => !(scoreFunction === "softmax" ? isBiased : usePreSoftmax),
  ),
  2,
);

/** The options of a layer, and of its calls, with a routing. */
function optionsWith({ isGrouped, isBiased, shape: _, ...choices }: (typeof ROUTINGS)[number]) {
  return {
    options: { ...choices, ...(isGrouped ? { numGroups: 2, groupTopk: 1 } : {}) },
    bias: isBiased ? { expertBias: tensor(backend(), [0.5, 0, -0.25, 1], [4]) } : {},
  };
}

it("exchanged counts are those of the router with the same options and bias", async () => {
  for (const routing of ROUTINGS) {
    using _scope = new Scope();
    const { options, bias } = optionsWith(routing);
    using layer = layerOf(4, { ...options, activation: "relu" });
    const x = upload(backend(), drawnValues(3, [...routing.shape, HIDDEN]));
    const logits = noGrad(() => layer.router.forward(functional.reshape(x, [x.size / HIDDEN, HIDDEN])));
    const { tokensPerExpert } = functional.fusedTopkWithScoreFunction(logits, { ...options, ...bias });
    const expected = [...tokensPerExpert.dataSync()];
    const { sent, received: receivedCounts } = await layer.exchangeCounts(x, bias);
    expect([sent, receivedCounts], JSON.stringify(routing)).toEqual([expected, expected]);
  }
});

describe("the result and the loss are those of the router's functions with the same options", () => {
  it.each(ROUTINGS.map((routing) => [JSON.stringify(routing), routing] as const))("%s", (_, routing) => {
    using _scope = new Scope();
    const { shape } = routing;
    const { options, bias } = optionsWith(routing);
    using layer = layerOf(4, { ...options, activation: "relu" });
    const tokens = shape.reduce<number>((a, b) => a * b, 1);
    const x = new Variable(upload(backend(), drawnValues(3, [...shape, HIDDEN])), true);
    const { output, auxLoss, tokensPerExpert } = layer.forwardWithLoss(x, 0.25, bias);
    expect(output.shape).toEqual([...shape, HIDDEN]);
    const rows = functional.reshape(x, [tokens, HIDDEN]);
    const row = { ...options, experts: 4, activation: "relu" } as const;
    const { out, logits } = composition(layer, row, rows, { ...options, ...bias });
    const routed = functional.fusedTopkWithScoreFunction(logits, { ...options, ...bias });
    expect(download(tokensPerExpert.tensor)).toEqual(download(routed.tokensPerExpert));
    const { topk, scoreFunction } = options;
    const { scores } = functional.fusedComputeScoreForMoeAuxLoss(logits, { topk, scoreFunction });
    const lossOptions = { totalNumTokens: Math.max(tokens, 1), numExperts: 4, topk, coeff: 0.25 };
    const loss = functional.fusedMoeAuxLoss(scores, routed.tokensPerExpert, lossOptions);
    expect(download(auxLoss.tensor)).toEqual(download(loss.tensor));
    expect(download(output.tensor)).toEqual(download(functional.reshape(out, output.shape).tensor));
    const leaves = [x, ...layer.parameters()];
    auxLoss.backward();
    const ofLoss = takeGradients(leaves);
    loss.backward();
    expect(ofLoss).toEqual(takeGradients(leaves));
    const plainResult = layer.forward(x, bias);
    expect(download(plainResult.tensor)).toEqual(download(output.tensor));
  });
});

testInScope("a state dictionary moves a layer's weights to another layer", () => {
  using firstLayer = layerOf(2, { topk: 1, activation: "relu" });
  using secondLayer = new MoELayer(backend(), HIDDEN, FFN, 2, { topk: 1, activation: "relu" });
  const state = stateDictionary(firstLayer);
  expect([...state.keys()]).toEqual([
    "router.weight",
    ...["fc1", "fc2"].flatMap((name) => [
      `${name}.weight0`,
      `${name}.weight1`,
      `${name}.bias0`,
      `${name}.bias1`,
    ]),
  ]);
  loadStateDictionary(secondLayer, state);
  const x = upload(backend(), drawnValues(4, [5, HIDDEN]));
  expect(download(secondLayer.forward(x).tensor)).toEqual(download(firstLayer.forward(x).tensor));
});

testInScope("a bias of experts moves tokens to them", () => {
  using layer = layerOf(3, { topk: 1, scoreFunction: "sigmoid" });
  const x = upload(backend(), drawnValues(5, [6, HIDDEN]));
  const expertBias = tensor(backend(), [0, 9, 0], [3]);
  const { tokensPerExpert } = layer.forwardWithLoss(x, 1, { expertBias });
  expect([...tokensPerExpert.tensor.dataSync()]).toEqual([0, 6, 0]);
});

it("without a graph, only the results stay", () => {
  const layer = layerOf(3, { topk: 2 });
  const x = upload(backend(), drawnValues(6, [4, HIDDEN]));
  const blocksBefore = backend().memoryUse().blocks;
  const { output, auxLoss, tokensPerExpert } = noGrad(() => layer.forwardWithLoss(x, 1));
  expect(backend().memoryUse().blocks).toBe(blocksBefore + 3);
  for (const variable of [output, auxLoss, tokensPerExpert]) variable.tensor.dispose();
  for (const disposable of [x, layer]) disposable.dispose();
});

testInScope("options and inputs that do not fit are refused, and keep no memory", () => {
  const blocksBefore = backend().memoryUse().blocks;
  const make = (options: MoELayerOptions) => new MoELayer(backend(), HIDDEN, FFN, 4, options);
  expect(() => make({ topk: 5 })).toThrow(ArgumentError);
  expect(() => make({ topk: 2, numGroups: 3, groupTopk: 1 })).toThrow(ArgumentError);
  expect(() => make({ topk: 2, activation: "geglu", clamp: { limit: 1 } })).toThrow(ArgumentError);
  expect(backend().memoryUse().blocks).toBe(blocksBefore);
  using layer = make({ topk: 2 });
  expect(layer.fc1).toBeInstanceOf(GroupedLinear);
  expect(layer.router).toBeInstanceOf(Linear);
  expect(() => layer.forward(empty(backend(), "bf16", [4, 64]))).toThrow(ShapeError);
  const short = empty(backend(), "f32", [3]);
  expect(() => layer.forward(empty(backend(), "bf16", [4, HIDDEN]), { expertBias: short })).toThrow();
});
