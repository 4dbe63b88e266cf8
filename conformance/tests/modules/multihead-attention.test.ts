/** MultiheadAttention: forward and backward equal the composition of its layers and operations; and refusals. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { ArgumentError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { l2Normalize } from "../../../src/modules/attention/head-norms.js";
import type {
  MultiheadAttentionCall,
  MultiheadAttentionOptions,
} from "../../../src/modules/attention/multihead-options.js";
import { LayerNormLinear } from "../../../src/modules/layer-norm-linear.js";
import { Linear } from "../../../src/modules/linear.js";
import type { Module } from "../../../src/modules/module.js";
import { MultiheadAttention } from "../../../src/modules/multihead-attention.js";
import { LayerNorm, RMSNorm } from "../../../src/modules/norm.js";
import { RotaryPositionEmbedding } from "../../../src/modules/rotary-position-embedding.js";
import { zeros } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { Float8BlockScaling, MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { expectSame } from "../harness/drawn-tensor.js";
import { testInScope, useBackend } from "../harness/suite.js";
import { fill, waves } from "./attention/drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [LENGTH, BATCH, HIDDEN, HEADS] = [16, 2, 64, 4];

interface Case {
  readonly name: string;
  readonly options: MultiheadAttentionOptions;
  readonly call?: MultiheadAttentionCall;
  readonly recipe?: Recipe;
}

const CASES: readonly Case[] = [
  { name: "separate weights", options: {} },
  { name: "fused weights in groups", options: { fuseQkvParams: true, numGqaGroups: 2 } },
  { name: "fused weights in order", options: { fuseQkvParams: true, qkvWeightInterleaved: false } },
  { name: "one head of keys", options: { numGqaGroups: 1, bias: false }, recipe: new MXFP8BlockScaling() },
  {
    name: "a norm of the input, bshd",
    options: { inputLayernorm: true, normalization: "RMSNorm", qkvFormat: "bshd", kvChannels: 16 },
    recipe: new Float8BlockScaling(),
  },
  { name: "norms of heads", options: { qkNormType: "RMSNorm" }, recipe: new Float8CurrentScaling() },
  {
    name: "norms of heads before the rotary embedding",
    options: { qkNormType: "LayerNorm", qkNormBeforeRope: true, numGqaGroups: 2 },
  },
  {
    name: "heads of length 1",
    options: { qkNormType: "L2Normalization", qkNormEps: 0.25, qkNormBeforeRope: true },
  },
  { name: "another tensor's keys", options: { attentionType: "cross" }, call: { attnMaskType: "no_mask" } },
  {
    name: "another tensor's keys in groups",
    options: { attentionType: "cross", inputLayernorm: true, fuseQkvParams: true, numGqaGroups: 2 },
  },
  { name: "a window and a softcap", options: { windowSize: [3, 0], softcap: 20, softmaxType: "off-by-one" } },
];

/** The layers of a module, created one by one. */
function layersOf({ options }: Case) {
  const { kvChannels: width = HIDDEN / HEADS, numGqaGroups: groups = HEADS, bias, normalization } = options;
  const [queries, keys] = [HEADS * width, groups * width];
  const isCross = options.attentionType === "cross";
  const features = isCross ? queries : queries + 2 * keys;
  const sharedOptions = { bias };
  const projection = options.inputLayernorm
    ? new LayerNormLinear(backend(), HIDDEN, features, { ...sharedOptions, normalization })
    : new Linear(backend(), HIDDEN, features, sharedOptions);
  const keyValue = isCross ? new Linear(backend(), HIDDEN, 2 * keys, sharedOptions) : undefined;
  const Norm = options.qkNormType === "RMSNorm" ? RMSNorm : LayerNorm;
  const hasParameters = options.qkNormType && options.qkNormType !== "L2Normalization";
  const headNorms = hasParameters ? [0, 1].map(() => new Norm(backend(), width, { eps: 1e-6 })) : [];
  const unit = { forward: (x: Variable) => l2Normalize(x, 0.25) };
  const norms = options.qkNormType === "L2Normalization" ? [unit, unit] : headNorms;
  const proj = new Linear(backend(), queries, HIDDEN, sharedOptions);
  const modules: Module[] = [projection, ...(keyValue ? [keyValue] : []), ...headNorms, proj];
  return { first: projection, keyValue, norms, proj, all: modules, width, groups };
}

/** The heads of queries, keys and values in x, in the order that TransformerEngine's names define. */
function headsOf(
  x: Variable,
  testCase: Case,
  groups: number,
  width: number,
  shares: readonly number[],
): Variable[] {
  const { fuseQkvParams = false, qkvWeightInterleaved = true } = testCase.options;
  const outer = x.shape.slice(0, 2);
  const total = shares.reduce((a, b) => a + b, 0);
  const isInterleaved = fuseQkvParams && qkvWeightInterleaved;
  const shape = isInterleaved ? [...outer, groups, total, width] : [...outer, total * groups, width];
  const reshaped = functional.reshape(x, shape);
  let begin = 0;
  return shares.map((share) => {
    const [from, to] = [begin, begin + share];
    begin = to;
    const thirds = isInterleaved
      ? functional.slice(reshaped, 3, from, to)
      : functional.slice(reshaped, 2, from * groups, to * groups);
    return functional.reshape(thirds, [...outer, share * groups, width]);
  });
}

/** The module as a composition of operations. */
function byHand(
  testCase: Case,
  layers: ReturnType<typeof layersOf>,
  x: Variable,
  memory: Variable,
  rope: Rope,
) {
  const { first: projection, keyValue, norms, proj, width, groups } = layers;
  const share = HEADS / groups;
  const projectedInput = projection.forward(x);
  const [q, k, v] = keyValue
    ? [
        functional.reshape(projectedInput, [...projectedInput.shape.slice(0, 2), HEADS, width]),
        ...headsOf(keyValue.forward(memory), testCase, groups, width, [1, 1]),
      ]
    : headsOf(projectedInput, testCase, groups, width, [share, 1, 1]);
  const layout = testCase.options.qkvFormat === "bshd" ? ("bshd" as const) : ("sbhd" as const);
  const rotated = (y: Variable): Variable =>
    rope ? functional.rotaryEmbedding(y, rope.cos, rope.sin, { layout, interleaved: rope.interleaved }) : y;
  const rotatedHeads = ([q, k] as Variable[]).map((y, i) => {
    const norm = norms[i];
    if (!norm) return rotated(y);
    return testCase.options.qkNormBeforeRope ? rotated(norm.forward(y)) : norm.forward(rotated(y));
  }) as [Variable, Variable];
  const { windowSize, softcap, softmaxType } = testCase.options;
  const isCausal = testCase.call?.attnMaskType !== "no_mask";
  const out = functional.attention(...rotatedHeads, v as Variable, {
    layout,
    causal: isCausal,
    align: isCausal ? "start" : "end",
    ...(windowSize ? { window: windowSize } : {}),
    ...(softcap ? { softcap } : {}),
    ...(softmaxType === "off-by-one" ? { sinks: zeros(backend(), "f32", [HEADS]) } : {}),
  });
  return proj.forward(functional.reshape(out, [...out.shape.slice(0, 2), HEADS * width]));
}

type Rope = ReturnType<RotaryPositionEmbedding["forward"]> | undefined;

describe("MultiheadAttention is the composition of its layers and operations, forward and backward", () => {
  it.each(CASES)("$name", (testCase) => {
    using _scope = new Scope();
    const module = new MultiheadAttention(backend(), HIDDEN, HEADS, {
      attentionDropout: 0,
      ...testCase.options,
    });
    const layers = layersOf(testCase);
    fill(7, module);
    fill(7, ...layers.all);
    const width = layers.width;
    const rope = testCase.options.qkNormBeforeRope
      ? new RotaryPositionEmbedding(backend(), width).forward(LENGTH)
      : undefined;
    const shape = testCase.options.qkvFormat === "bshd" ? [BATCH, LENGTH, HIDDEN] : [LENGTH, BATCH, HIDDEN];
    const leaves = [0, 1].map(() => [
      new Variable(waves(backend(), 1, shape), true),
      new Variable(waves(backend(), 2, shape), true),
    ]) as [[Variable, Variable], [Variable, Variable]];
    const grad = waves(backend(), 3, shape);
    const inRegion = (body: () => Variable): Variable =>
      testCase.recipe ? autocast({ recipe: testCase.recipe }, body) : body();
    const isCross = testCase.options.attentionType === "cross";
    const out = inRegion(() =>
      module.forward(leaves[0][0], {
        ...testCase.call,
        ...(isCross ? { encoderOutput: leaves[0][1] } : {}),
        ...(rope ? { rotaryPosEmb: rope } : {}),
      }),
    );
    const expected = inRegion(() => byHand(testCase, layers, ...leaves[1], rope));
    expectSame("result", out.tensor, expected.tensor);
    out.backward(grad);
    expected.backward(grad);
    for (const i of isCross ? [0, 1] : [0]) expectSame(`input ${i}`, leaves[0][i]?.grad, leaves[1][i]?.grad);
    const [ownParameters, hand] = [module.parameters(), layers.all.flatMap((layer) => layer.parameters())];
    expect(ownParameters.length).toBe(hand.length);
    for (const [i, parameter] of ownParameters.entries())
      expectSame(`parameter ${i}`, parameter.grad, hand[i]?.grad);
    for (const pair of leaves) for (const leaf of pair) leaf.zeroGrad();
    for (const layer of [module, ...layers.all]) layer.dispose();
  });
});

describe("a call of MultiheadAttention", () => {
  testInScope("of recomputed attention with dropout has the bits of a call that is not recomputed", () => {
    const results = [false, true].map((checkpointCoreAttention) => {
      using module = new MultiheadAttention(backend(), HIDDEN, HEADS, {
        attentionDropout: 0.3,
        random: new RandomState(5n),
      });
      fill(3, module);
      const x = new Variable(waves(backend(), 1, [LENGTH, BATCH, HIDDEN]), true);
      const out = module.forward(x, { checkpointCoreAttention });
      out.backward(waves(backend(), 2, out.shape));
      const values = [out.tensor, x.grad].map((tensor) => [
        ...(tensor as NonNullable<typeof x.grad>).dataSync(),
      ]);
      x.zeroGrad();
      return values;
    });
    expect(results[1]).toEqual(results[0]);
  });

  testInScope("without norm, encoder output or tensors of the mask is refused", () => {
    using module = new MultiheadAttention(backend(), HIDDEN, HEADS);
    const x = waves(backend(), 1, [LENGTH, BATCH, HIDDEN]);
    for (const call of [
      { encoderOutput: x },
      { attnMaskType: "padding" },
      { attnMaskType: "arbitrary" },
      { attnMaskType: "causal", windowSize: [2, 2] },
      { qkvFormat: "thd" },
      { coreAttentionBiasType: "post_scale_bias" },
    ] as const)
      expect(() => module.forward(x, call)).toThrow(ArgumentError);
    expect(() => module.forwardWithNorm(x)).toThrow("inputLayernorm");
    expect(() => new MultiheadAttention(backend(), 65, 4)).toThrow("kvChannels");
    expect(() => new MultiheadAttention(backend(), 64, 4, { numGqaGroups: 3 })).toThrow("numGqaGroups");
  });
});
