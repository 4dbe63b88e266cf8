/** Rows of modules, variables, their functions, optimizers, recipes and regions. */

import type { Backend } from "../../../../src/backends/backend.js";
import * as functional from "../../../../src/functional/index.js";
import { Embedding } from "../../../../src/modules/embedding.js";
import { GroupedLinear } from "../../../../src/modules/grouped-linear.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { LayerQuantization } from "../../../../src/modules/layer-quantization.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { MoELayer } from "../../../../src/modules/moe-layer.js";
import { LayerNorm, RMSNorm } from "../../../../src/modules/norm.js";
import { constantInit, Parameter } from "../../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { RotaryPositionEmbedding } from "../../../../src/modules/rotary-position-embedding.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { AdamW } from "../../../../src/optimizers/adamw.js";
import { GradScaler } from "../../../../src/optimizers/grad-scaler.js";
import { Muon } from "../../../../src/optimizers/muon.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import { Variable } from "../../../../src/tape/variable.js";
import { ATTENTION_NUMBERS, attentionOptions, projections, tokenOptions, tokens } from "./attention-calls.js";
import type { Row, Rows } from "./row.js";
import { ATTENTION_MODULE_ROWS } from "./rows-attention.js";
import { singleRankGroup } from "./rows-distributed.js";
import { SIZE, type World } from "./world.js";

const [ROWS, COLUMNS] = SIZE;

/** Options of every module, chosen so that no random numbers are needed. */
const moduleOptions = (w: World) =>
  ({ dtype: "bf16", random: w.random, initMethod: constantInit(0.5) }) as const;
const linearOptions = (w: World) =>
  ({
    ...{ ...moduleOptions(w), bias: true, fuseWgradAccumulation: false, saveOriginalInput: false },
    delayWgradCompute: false,
    ...{ ...sequenceOptions(w), parallelMode: "column" as const, pieces: 1, overlap: true },
    parametersSplit: ["first", "second"],
  }) as const;
const groupedOptions = (w: World) => ({
  ...{ ...moduleOptions(w), bias: true, fuseWgradAccumulation: false, saveOriginalInput: false },
  delayWgradCompute: false,
});
const moeOptions = (w: World) =>
  ({
    ...{
      ...groupedOptions(w),
      bias: false,
      topk: 2,
      numGroups: 2,
      groupTopk: 1,
      scoreFunction: "sigmoid" as const,
    },
    ...{ scalingFactor: 2, activation: "swiglu" as const, group: singleRankGroup(w) },
  }) as const;
const moeCallOptions = (w: World) => ({
  ...{ isFirstMicrobatch: true, skipFp8WeightUpdate: w.scalar(0) },
  expertBias: w.tensor("f32", [4]),
  tokenCounts: { sent: [ROWS, ROWS - 1, 0, 1], received: [ROWS, ROWS - 1, 0, 1] },
});
const COUNT_NUMBERS = { "call.tokenCounts.sent": "index", "call.tokenCounts.received": "index" } as const;
const sequenceOptions = (w: World) => ({ group: singleRankGroup(w), sequenceParallel: false }) as const;
const mlpOptions = (w: World) => {
  const { parallelMode: _, pieces: __, parametersSplit: ___, ...linearFields } = linearOptions(w);
  return { ...linearFields, outputLayerInitMethod: constantInit(0.25) };
};
const NORM = { eps: 1e-5, zeroCenteredGamma: true } as const;
const CALL = { fp8Output: false, fp8Grad: false, isFirstMicrobatch: true } as const;

const sizedModuleRow = (call: Row["calls"][0], ...sizes: readonly string[]): Row => ({
  calls: [call],
  numbers: Object.fromEntries([
    ...sizes.map((size) => [size, "count"] as const),
    ["options.eps", "atLeastZero"],
    ["options.pieces", "count"],
  ]),
});

/** The row of a method of a module. */
const methodRow = (make: (w: World) => Module, call: Row["calls"][0]): Row => ({
  calls: [call],
  self: (w) => w.own(make(w)),
});

const forwardCall = (w: World) => [w.tensor(), { ...CALL, skipFp8WeightUpdate: w.scalar(0) }];
const normCall = (w: World) => [
  w.tensor(),
  { ...CALL, skipFp8WeightUpdate: w.scalar(0), returnLayernormOutputGathered: true },
];

/** The rows of the methods that return more than `forward`. */
const extraResultRows = (name: string, make: (w: World) => Module): Rows => ({
  [`${name}.forwardWithBias`]: methodRow(make, forwardCall),
  [`${name}.forwardWithNorm`]: methodRow(make, normCall),
  [`${name}.forwardWithBiasAndNorm`]: methodRow(make, normCall),
});

const groupedCall = (): Row => ({
  ...methodRow(
    (w) => new GroupedLinear(w.backend, 3, COLUMNS, 32, groupedOptions(w)),
    (w) => [w.tensor(), [ROWS - 1, 0, 1], { isFirstMicrobatch: true, skipFp8WeightUpdate: w.scalar(0) }],
  ),
  numbers: { mSplits: "index" },
});

const leafVariable = (w: World): Variable => {
  const variable = new Variable(w.tensor("bf16"), true);
  w.own({ dispose: () => variable.zeroGrad() });
  return variable;
};

const DELAYED_SNAPSHOT = {
  forward: { scale: new Float32Array(3), amaxHistory: new Float32Array(6) },
  backward: { scale: new Float32Array(2), amaxHistory: new Float32Array(4) },
};

const parameterMap = (w: World): ReadonlyMap<string, Parameter> =>
  new Map([["p", w.own(new Parameter(w.tensor("f32")))]]);

function stepRow(make: (w: World, backend: Backend) => { step(): void; dispose(): void }): Row {
  return {
    calls: [(w) => [{ gradScale: w.scalar(), noop: w.scalar(1) }]],
    self: (w) => w.own(make(w, w.backend)),
    survivesDispose: true,
  };
}

export function trainedLinear(w: World): Linear {
  const layer = w.own(new Linear(w.backend, COLUMNS, 32, { initMethod: constantInit(0.5) }));
  layer.forward(w.tensor()).backward(w.tensor("bf16", [ROWS, 32]));
  return layer;
}

const leafLayer = (w: World): Linear => w.own(new Linear(w.backend, COLUMNS, 32));

const yarn = {
  kind: "yarn",
  factor: 4,
  originalMaxPositionEmbeddings: 64,
  betaFast: 32,
  betaSlow: 1,
  attentionFactor: 1,
  truncate: true,
} as const;

const MOE_NUMBERS = {
  "options.numOutTokens": "index",
  "options.numExperts": "index",
  "options.alignSize": "count",
} as const;

const SGD_NUMBERS = {
  "options.learningRate": "atLeastZero",
  "options.momentum": "atLeastZero",
  "options.dampening": "finite",
  "options.weightDecay": "atLeastZero",
  "options.groups.learningRate": "atLeastZero",
  "options.groups.momentum": "atLeastZero",
  "options.groups.dampening": "finite",
  "options.groups.weightDecay": "atLeastZero",
} as const;

const SGD_GROUP = { parameters: "*", learningRate: 1, momentum: 0.5, dampening: 0, weightDecay: 1 } as const;
const ADAMW_GROUP = {
  ...{ parameters: "*", learningRate: 1, beta1: 0.5, beta2: 0.5 },
  ...{ eps: 1, weightDecay: 1, decoupled: false },
} as const;

const MUON_NUMBERS = {
  "options.learningRate": "atLeastZero",
  "options.momentum": "rate",
  "options.weightDecay": "atLeastZero",
  "options.steps": "count",
  "options.eps": "atLeastZero",
  "options.coefficients": "finite",
  "options.groups.learningRate": "atLeastZero",
  "options.groups.momentum": "rate",
  "options.groups.weightDecay": "atLeastZero",
  "options.groups.steps": "count",
  "options.groups.eps": "atLeastZero",
  "options.groups.coefficients": "finite",
} as const;

const MUON_GROUP = {
  ...{ parameters: "*", learningRate: 1, momentum: 0.5, nesterov: true, weightDecay: 1 },
  ...{ coefficients: "simple", steps: 1, eps: 1, dtype: "bf16", datapath: "hopper" },
  adjustLearningRate: "matchRmsAdamW",
} as const;

export const MODULE_ROWS: Rows = {
  Embedding: sizedModuleRow(
    (w) => [w.backend, 8, 16, { ...moduleOptions(w), ...sequenceOptions(w) }],
    "vocabulary",
    "features",
  ),
  Linear: sizedModuleRow((w) => [w.backend, 16, 32, linearOptions(w)], "inFeatures", "outFeatures"),
  GroupedLinear: sizedModuleRow(
    (w) => [w.backend, 2, 16, 32, groupedOptions(w)],
    ...["numGemms", "inFeatures", "outFeatures"],
  ),
  MoELayer: {
    calls: [
      (w) => [w.backend, 16, 16, 4, { ...moeOptions(w), clamp: { limit: 7, alpha: 1.5, offset: 1 } }],
      (w) => [
        w.backend,
        16,
        16,
        4,
        { ...moduleOptions(w), topk: 1, scoreFunction: "softmax", usePreSoftmax: true, activation: "geglu" },
      ],
    ],
    numbers: {
      ...{ hidden: "count", ffnHidden: "count", numExperts: "count" },
      ...{ "options.topk": "count", "options.numGroups": "count", "options.groupTopk": "count" },
      "options.scalingFactor": "finite",
      "options.clamp.limit": "atLeastZero",
      "options.clamp.alpha": "finite",
      "options.clamp.offset": "finite",
    },
  },
  LayerNorm: sizedModuleRow(
    (w) => [w.backend, 16, { dtype: "f32", random: w.random, ...NORM, ...sequenceOptions(w) }],
    "features",
  ),
  RMSNorm: sizedModuleRow(
    (w) => [w.backend, 16, { dtype: "f32", random: w.random, ...NORM, ...sequenceOptions(w) }],
    "features",
  ),
  LayerNormLinear: sizedModuleRow(
    (w) => [w.backend, 16, 32, { ...linearOptions(w), ...NORM, normalization: "RMSNorm" }],
    "inFeatures",
    "outFeatures",
  ),
  LayerNormMLP: sizedModuleRow(
    (w) => [w.backend, 16, 32, { ...mlpOptions(w), ...NORM, normalization: "RMSNorm", activation: "swiglu" }],
    "hidden",
    "ffnHidden",
  ),
  ...ATTENTION_MODULE_ROWS,
  ...extraResultRows("LayerNormMLP", (w) => new LayerNormMLP(w.backend, COLUMNS, 32, mlpOptions(w))),
  stateDictionary: { calls: [(w) => [leafLayer(w)]] },
  loadStateDictionary: {
    calls: [
      (w) => [
        leafLayer(w),
        new Map([
          ["weight", w.tensor("bf16", [32, COLUMNS])],
          ["bias", w.tensor("bf16", [32])],
        ]),
      ],
    ],
  },
  Sequential: { calls: [(w) => [w.backend, (x: Variable) => x]] },
  "Embedding.forward": methodRow(
    (w) => new Embedding(w.backend, 8, 16, moduleOptions(w)),
    (w) => [w.tensor("i32", [4])],
  ),
  "Linear.forward": methodRow((w) => new Linear(w.backend, COLUMNS, 32, linearOptions(w)), forwardCall),
  "Linear.forwardWithBias": methodRow(
    (w) => new Linear(w.backend, COLUMNS, 32, linearOptions(w)),
    forwardCall,
  ),
  "GroupedLinear.forward": groupedCall(),
  "GroupedLinear.forwardWithBias": groupedCall(),
  "MoELayer.forward": {
    ...methodRow(
      (w) => new MoELayer(w.backend, COLUMNS, 32, 4, moeOptions(w)),
      (w) => [w.tensor(), moeCallOptions(w)],
    ),
    numbers: COUNT_NUMBERS,
  },
  "MoELayer.exchangeCounts": {
    ...methodRow(
      (w) => new MoELayer(w.backend, COLUMNS, 32, 4, moeOptions(w)),
      (w) => [w.tensor(), { expertBias: w.tensor("f32", [4]) }],
    ),
  },
  "MoELayer.forwardWithLoss": {
    ...methodRow(
      (w) => new MoELayer(w.backend, COLUMNS, 32, 4, moeOptions(w)),
      (w) => [w.tensor(), 0.5, moeCallOptions(w)],
    ),
    numbers: { coeff: "finite", ...COUNT_NUMBERS },
  },
  "functional.allToAll": {
    calls: [(w) => [w.tensor(), singleRankGroup(w), { sent: [ROWS], received: [ROWS] }]],
    numbers: { "rows.sent": "index", "rows.received": "index" },
  },
  "LayerNorm.forward": methodRow(
    (w) => new LayerNorm(w.backend, COLUMNS),
    (w) => [w.tensor()],
  ),
  "NormModule.forward": methodRow(
    (w) => new RMSNorm(w.backend, COLUMNS),
    (w) => [w.tensor()],
  ),
  "RMSNorm.forward": methodRow(
    (w) => new RMSNorm(w.backend, COLUMNS),
    (w) => [w.tensor()],
  ),
  "LayerNormLinear.forward": methodRow(
    (w) => new LayerNormLinear(w.backend, COLUMNS, 32, linearOptions(w)),
    forwardCall,
  ),
  ...extraResultRows("LayerNormLinear", (w) => new LayerNormLinear(w.backend, COLUMNS, 32, linearOptions(w))),
  "LayerNormMLP.forward": methodRow(
    (w) => new LayerNormMLP(w.backend, COLUMNS, 32, mlpOptions(w)),
    forwardCall,
  ),
  "Sequential.forward": methodRow(
    (w) => new Sequential(w.backend, new Linear(w.backend, COLUMNS, 32, linearOptions(w))),
    (w) => [w.tensor(), { isFirstMicrobatch: true, skipFp8WeightUpdate: w.scalar(0) }],
  ),
  setLayerRecipes: {
    calls: [(w) => [leafLayer(w), [{ layers: "linear", recipe: new MXFP8BlockScaling() }]]],
  },
  Inspector: {
    calls: [
      (w) => [
        leafLayer(w),
        [
          {
            layers: ["linear"],
            enabled: true,
            LogTensorStats: { tensors: ["input"], stats: ["amax"], startStep: 0, endStep: 8, freq: 2 },
            DisableFP8GEMM: { gemms: ["fprop"] },
            FakeQuant: { gemms: ["dgrad"], tensors: ["weight"] },
            PerTensorScaling: { gemms: ["wgrad"], tensors: ["gradOutput"] },
          },
        ],
        { step: 0 },
      ],
      (w) => [leafLayer(w), [{ layers: ["linear"], DisableFP8Layer: {} }]],
    ],
    numbers: {
      "rules.0.LogTensorStats.startStep": "index",
      "rules.0.LogTensorStats.endStep": "count",
      "rules.0.LogTensorStats.freq": "count",
      "options.step": "index",
    },
  },
  LayerQuantization: { calls: [(w) => [leafLayer(w).weight, { random: w.random, name: "layer" }]] },
  "LayerQuantization.calibrate": {
    calls: [(w) => [w.tensor()]],
    self: (w) => w.own(new LayerQuantization(leafLayer(w).weight)),
  },
  "LayerQuantization.restore": {
    calls: [() => [DELAYED_SNAPSHOT]],
    self: (w) => w.own(new LayerQuantization(leafLayer(w).weight)),
    survivesDispose: true,
  },
  defaultRandom: { calls: [(w) => [w.backend]] },
  manualSeed: { calls: [(w) => [w.backend, 0n]] },
  onMetaDevice: { calls: [() => [() => 0]] },
  constantInit: { calls: [() => [0.5]], numbers: { value: "any" } },
  normalInit: { calls: [() => [0.5]], numbers: { std: "atLeastZero" } },
  Parameter: {
    calls: [(w) => [w.tensor("bf16"), new Float32Array(ROWS * COLUMNS), w.scalar()]],
  },
  Variable: { calls: [(w) => [w.tensor("bf16"), true]], anyType: ["value"] },
  "Variable.backward": {
    calls: [(w) => [w.tensor("bf16", [ROWS * COLUMNS])]],
    self: (w) => functional.reshape(leafVariable(w), [ROWS * COLUMNS]),
    survivesDispose: true,
  },
  "Variable.registerPostAccumulateGradHook": {
    calls: [() => [() => {}]],
    self: leafVariable,
    survivesDispose: true,
  },
  "Parameter.registerPostAccumulateGradHook": {
    calls: [() => [() => {}]],
    self: (w) => trainedLinear(w).weight,
    survivesDispose: true,
  },
  "Parameter.backward": {
    calls: [(w) => [w.tensor("bf16", [ROWS * COLUMNS])]],
    self: (w) => functional.reshape(leafVariable(w), [ROWS * COLUMNS]),
    survivesDispose: true,
  },
  differentiable: {
    calls: [(w) => [[leafVariable(w)], () => ({ results: [w.tensor()], backward: () => [] })]],
  },
  "functional.add": { calls: [(w) => [w.tensor(), w.tensor()]] },
  "functional.multiply": { calls: [(w) => [w.tensor(), w.tensor()]] },
  "functional.divide": { calls: [(w) => [w.tensor(), w.tensor()]] },
  "functional.exp": { calls: [(w) => [w.tensor()]] },
  "functional.rsqrt": { calls: [(w) => [w.tensor()]] },
  "functional.where": { calls: [(w) => [w.tensor(), w.tensor(), w.tensor()]] },
  "functional.cast": { calls: [(w) => [w.tensor(), "f32"]] },
  "functional.dropout": {
    calls: [(w) => [w.tensor(), { probability: 0.5, seed: 1n, offset: 2n }]],
    numbers: { "options.probability": "rate" },
  },
  "functional.softmax": { calls: [(w) => [w.tensor(), { dim: 0 }]] },
  "functional.cumsum": { calls: [(w) => [w.tensor(), 0, { reverse: true }]] },
  "functional.gather": {
    calls: [(w) => [w.tensor(), -1, w.tensor("i32", [ROWS, 3])]],
  },
  "functional.moePermute": {
    calls: [
      (w) => [w.tensor(), w.tensor("i32", [ROWS, 4]), { mapType: "mask", numOutTokens: 200, alignSize: 16 }],
      (w) => [w.tensor(), w.tensor("i32", [ROWS, 2]), { mapType: "index", numExperts: 5 }],
    ],
    numbers: MOE_NUMBERS,
  },
  "functional.moePermuteWithProbs": {
    calls: [
      (w) => [
        ...[w.tensor(), w.tensor("f32", [ROWS, 4]), w.tensor("i32", [ROWS, 4])],
        { mapType: "mask", numOutTokens: 200, alignSize: 16 },
      ],
      (w) => [
        ...[w.tensor(), w.tensor("f32", [ROWS, 2]), w.tensor("i32", [ROWS, 2])],
        { mapType: "index", numExperts: 5 },
      ],
    ],
    numbers: MOE_NUMBERS,
  },
  "functional.sqrtSoftplus": { calls: [(w) => [w.tensor()]] },
  "functional.fusedTopkWithScoreFunction": {
    calls: [
      (w) => [
        w.tensor(),
        {
          ...{ topk: 4, numGroups: 4, groupTopk: 2, scoreFunction: "sigmoid", scalingFactor: 2 },
          expertBias: w.tensor("f32", [COLUMNS]),
        },
      ],
      (w) => [w.tensor(), { topk: 3, scoreFunction: "softmax", usePreSoftmax: true }],
    ],
    numbers: {
      "options.topk": "count",
      "options.numGroups": "count",
      "options.groupTopk": "count",
      "options.scalingFactor": "finite",
    },
  },
  "functional.fusedComputeScoreForMoeAuxLoss": {
    calls: [(w) => [w.tensor(), { topk: 3, scoreFunction: "sqrtsoftplus" }]],
    numbers: { "options.topk": "count" },
  },
  "functional.fusedMoeAuxLoss": {
    calls: [
      (w) => [
        w.tensor(),
        w.tensor("f32", [COLUMNS]),
        { totalNumTokens: 100, numExperts: 64, topk: 2, coeff: 0.5 },
      ],
    ],
    numbers: {
      "options.totalNumTokens": "count",
      "options.numExperts": "count",
      "options.topk": "count",
      "options.coeff": "finite",
    },
  },
  "functional.moeUnpermute": {
    calls: [
      (w) => [
        w.tensor(),
        {
          rows: w.tensor("i32", [7, 2]),
          sources: w.tensor("i32", [ROWS]),
          tokensPerExpert: w.tensor("i32", [4]),
        },
        { mergingProbs: w.tensor("f32", [7, 2]) },
      ],
    ],
  },
  "functional.moeSortChunksByIndex": {
    calls: [(w) => [w.tensor(), [ROWS - 1, 0, 1], [2, 0, 1]]],
    numbers: { splitSizes: "index", sortedIndices: "index" },
  },
  "functional.moeSortChunksByIndexWithProbs": {
    calls: [(w) => [w.tensor(), w.tensor("f32", [ROWS]), [ROWS - 1, 0, 1], [2, 0, 1]]],
    numbers: { splitSizes: "index", sortedIndices: "index" },
  },
  "functional.padding": {
    calls: [(w) => [w.tensor(), [ROWS - 1, 0, 1], 16]],
    numbers: { mSplits: "index", alignSize: "count" },
  },
  "functional.unpadding": {
    calls: [(w) => [w.tensor(), [ROWS - 17, 0, 1], 16]],
    numbers: { mSplits: "index", alignSize: "count" },
  },
  "functional.sum": {
    calls: [(w) => [w.tensor(), { dim: -1, keepdim: true }], (w) => [w.tensor(), { dim: [0, 1] }]],
  },
  "functional.mean": {
    calls: [(w) => [w.tensor(), { dim: -1, keepdim: true }], (w) => [w.tensor(), { dim: [0, 1] }]],
  },
  "functional.expand": { calls: [(w) => [w.tensor("bf16", [2, 1]), [3, 2, 4]]] },
  "functional.sigmoid": { calls: [(w) => [w.tensor()]] },
  "functional.reshape": { calls: [(w) => [w.tensor(), [COLUMNS, ROWS]]] },
  "functional.slice": {
    calls: [(w) => [w.tensor(), 0, 1, 3]],
    numbers: { start: "integer", end: "integer" },
  },
  "functional.concatenate": { calls: [(w) => [[w.tensor(), w.tensor()], 1]] },
  "functional.split": {
    calls: [(w) => [w.tensor(), [ROWS - 1, 1], 0]],
    numbers: { splitSizes: "integer" },
  },
  "functional.transpose": {
    calls: [(w) => [w.tensor(), 0, -1]],
    numbers: { dim0: "integer", dim1: "integer" },
  },
  "functional.permute": { calls: [(w) => [w.tensor(), [1, 0]]], numbers: { dims: "integer" } },
  "functional.activation": { calls: [(w) => [w.tensor(), "gelu"]] },
  "functional.gated": {
    calls: [(w) => [w.tensor(), "silu", { clamp: { limit: 7, alpha: 1.5, offset: 1 } }]],
    numbers: {
      "options.clamp.limit": "atLeastZero",
      "options.clamp.alpha": "finite",
      "options.clamp.offset": "finite",
    },
  },
  "functional.embedding": { calls: [(w) => [w.tensor(), w.tensor("i32", [4]), sequenceOptions(w)]] },
  RotaryPositionEmbedding: {
    calls: [
      (w) => [
        w.backend,
        16,
        {
          rotaryPercent: 0.5,
          seqLenInterpolationFactor: 2,
          pretrainedMaxPositionEmbeddings: 4,
          rotaryBase: 10000,
          interleaved: true,
          scaling: {
            kind: "llama3" as const,
            factor: 8,
            lowFreqFactor: 1,
            highFreqFactor: 4,
            originalMaxPositionEmbeddings: 64,
          },
        },
      ],
      (w) => [w.backend, 16, { scaling: { kind: "linear" as const, factor: 2 } }],
      (w) => [w.backend, 4, { scaling: { kind: "factors" as const, factors: [1, 2] } }],
      (w) => [w.backend, 16, { scaling: yarn }],
    ],
    numbers: {
      dim: "count",
      "options.rotaryPercent": "share",
      "options.seqLenInterpolationFactor": "count",
      "options.pretrainedMaxPositionEmbeddings": "count",
      "options.rotaryBase": "above",
      "options.scaling.factor": "above",
      "options.scaling.factors.0": "above",
      "options.scaling.factors.1": "above",
      "options.scaling.lowFreqFactor": "above",
      "options.scaling.highFreqFactor": "above",
      "options.scaling.originalMaxPositionEmbeddings": "count",
      "options.scaling.betaFast": "above",
      "options.scaling.betaSlow": "above",
      "options.scaling.attentionFactor": "atLeastZero",
    },
  },
  "RotaryPositionEmbedding.forward": {
    calls: [() => [4, 2]],
    self: (w) => new RotaryPositionEmbedding(w.backend, 16),
    survivesDispose: true,
    numbers: { maxSeqLen: "index", offset: "index" },
  },
  "functional.rotaryEmbedding": {
    calls: [
      (w) => [
        w.tensor("bf16", [2, 3, 4, 16]),
        w.tensor("f32", [7, 8]),
        w.tensor("f32", [7, 8]),
        { layout: "bshd", interleaved: true, startPositions: w.tensor("i32", [2]) },
      ],
      (w) => [
        w.tensor("bf16", [6, 4, 16]),
        w.tensor("f32", [7, 8]),
        w.tensor("f32", [7, 8]),
        { layout: "thd", cuSeqlens: w.tensor("i32", [3]) },
      ],
    ],
  },
  "functional.crossEntropyLoss": {
    calls: [
      (w) => [w.tensor(), w.tensor("i32", [ROWS]), { smoothing: 0.5, ignore: 1, group: singleRankGroup(w) }],
    ],
    numbers: { "options.smoothing": "share", "options.ignore": "int32" },
  },
  "functional.mseLoss": { calls: [(w) => [w.tensor(), w.tensor()]] },
  "functional.dotProductAttention": {
    calls: [(w) => [w.tensor("bf16", [2, 4, 48]), { heads: 2, causal: false }]],
    numbers: { "options.heads": "count" },
  },
  "functional.attention": {
    calls: [
      (w) => [...projections(w), { ...attentionOptions(w), cpGroup: singleRankGroup(w), cpCommType: "p2p" }],
      (w) => [...tokens(w), tokenOptions(w)],
    ],
    numbers: ATTENTION_NUMBERS,
  },
  offloadActivations: {
    calls: [(w) => [() => new Variable(w.tensor()), { minBytes: 1 }]],
    numbers: { "options.minBytes": "count" },
  },
  recompute: { calls: [(w) => [(x: Variable) => x, w.tensor()]], anyType: ["inputs"] },
  SGD: {
    calls: [
      (w) => [
        parameterMap(w),
        { learningRate: 1, momentum: 0.5, dampening: 0, weightDecay: 1, nesterov: true },
      ],
      (w) => [parameterMap(w), { learningRate: 1, momentum: 0.5, dampening: 0.5 }],
      (w) => [parameterMap(w), { learningRate: 1, storeParamRemainders: true }],
      (w) => [
        parameterMap(w),
        { learningRate: 1, momentum: 0.5, momentumDtype: "e4m3", masterWeightDtype: "f16" },
      ],
      (w) => [parameterMap(w), { learningRate: 1, groups: [{ ...SGD_GROUP, nesterov: true }] }],
    ],
    numbers: SGD_NUMBERS,
  },
  AdamW: {
    calls: [
      (w) => [
        parameterMap(w),
        { learningRate: 1, beta1: 0.5, beta2: 0.5, eps: 1, weightDecay: 1, decoupled: false },
      ],
      (w) => [parameterMap(w), { learningRate: 1, groups: [ADAMW_GROUP] }],
      (w) => [parameterMap(w), { learningRate: 1, storeParamRemainders: true }],
      (w) => [
        parameterMap(w),
        { learningRate: 1, expAvgDtype: "f16", expAvgSqDtype: "e4m3", masterWeightDtype: "f16" },
      ],
    ],
    numbers: {
      "options.groups.learningRate": "atLeastZero",
      "options.groups.beta1": "rate",
      "options.groups.beta2": "rate",
      "options.groups.eps": "atLeastZero",
      "options.groups.weightDecay": "atLeastZero",
      "options.learningRate": "atLeastZero",
      "options.beta1": "rate",
      "options.beta2": "rate",
      "options.eps": "atLeastZero",
      "options.weightDecay": "atLeastZero",
    },
  },
  Muon: {
    calls: [
      (w) => {
        const { parameters: _, ...options } = MUON_GROUP;
        return [parameterMap(w), options];
      },
      (w) => [parameterMap(w), { learningRate: 1, coefficients: [[1, 2, 3]], steps: 1 }],
      (w) => [parameterMap(w), { learningRate: 1, groups: [MUON_GROUP] }],
      (w) => [parameterMap(w), { learningRate: 1, groups: [{ parameters: "*", coefficients: [[1, 2, 3]] }] }],
    ],
    numbers: MUON_NUMBERS,
  },
  learningRateSchedule: {
    calls: [
      () => [
        {
          ...{ learningRate: 1, minLearningRate: 0, warmupSteps: 2, decaySteps: 4, totalSteps: 8 },
          decay: "linear",
        },
      ],
    ],
    numbers: {
      "options.learningRate": "atLeastZero",
      "options.minLearningRate": "atLeastZero",
      "options.warmupSteps": "index",
      "options.decaySteps": "index",
      "options.totalSteps": "count",
    },
  },
  "Optimizer.step": stepRow((w) => new SGD(trainedLinear(w), { learningRate: 1 })),
  "SGD.step": stepRow((w) => new SGD(trainedLinear(w), { learningRate: 1, momentum: 0.5 })),
  "AdamW.step": stepRow((w) => new AdamW(trainedLinear(w), { learningRate: 1 })),
  "Muon.step": stepRow(
    (w) => new Muon(new Map([["weight", trainedLinear(w).weight]]), { learningRate: 1, steps: 1 }),
  ),
  castMasterWeights: {
    calls: [
      (w) => [
        [quantizedModelInit({ recipe: new Float8CurrentScaling() }, () => leafLayer(w)).weight],
        [w.tensor("f32", [32, COLUMNS])],
        { throughModelDtype: true, noop: w.tensor("f32", [1]) },
      ],
    ],
  },
  GradScaler: {
    calls: [() => [{ initScale: 2, growthFactor: 2, backoffFactor: 0.5, growthInterval: 1 }]],
    numbers: {
      "options.initScale": "above",
      "options.growthFactor": "above",
      "options.backoffFactor": "rate",
      "options.growthInterval": "count",
    },
  },
  "GradScaler.scale": {
    calls: [(w) => [w.tensor("f32", [1])]],
    self: () => new GradScaler(),
    isUnbound: true,
    survivesDispose: true,
  },
  "GradScaler.step": {
    calls: [(w) => [w.own(new SGD(trainedLinear(w), { learningRate: 1 })), { maxNorm: 1 }]],
    self: () => new GradScaler(),
    isUnbound: true,
    survivesDispose: true,
    numbers: { "options.maxNorm": "atLeastZero" },
  },
  clipGradNorm: { calls: [(w) => [trainedLinear(w), 1]], numbers: { maxNorm: "atLeastZero" } },
};

const splitProduct = { useSplitAccumulator: true };
const PRODUCTS = {
  fprop: splitProduct,
  dgrad: splitProduct,
  wgrad: splitProduct,
  backwardOverride: "dequantized",
} as const;
const RECIPES = {
  DelayedScaling,
  Float8CurrentScaling,
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
  StandardRecipe: MXFP8BlockScaling,
} as const;

const processGroup = { size: 2, reduceMax: () => undefined };

/** All options of a region. */
function regionOptions({ backend }: World) {
  return {
    recipe: new DelayedScaling(),
    enabled: true,
    calibrating: false,
    amaxReductionGroup: processGroup,
    backend,
  };
}

const FP8_ATTENTION = { fp8Dpa: true, fp8Mha: true } as const;
const NO_FP8_ATTENTION = { fp8Dpa: false, fp8Mha: false } as const;

export const RECIPE_ROWS: Rows = {
  DelayedScaling: {
    calls: [
      () => [
        {
          ...PRODUCTS,
          ...FP8_ATTENTION,
          format: "HYBRID",
          margin: 1,
          amaxHistoryLen: 4,
          amaxComputeAlgo: "max",
          scalingFactorComputeAlgo: () => 1,
          reduceAmax: true,
        },
      ],
    ],
    numbers: { "options.margin": "integer", "options.amaxHistoryLen": "count" },
  },
  Float8CurrentScaling: {
    calls: [() => [{ ...PRODUCTS, ...FP8_ATTENTION, format: "HYBRID", pow2Scales: true, amaxEpsilon: 0 }]],
    numbers: { "options.amaxEpsilon": "atLeastZero" },
  },
  Float8BlockScaling: {
    calls: [
      () => [
        {
          ...PRODUCTS,
          ...NO_FP8_ATTENTION,
          format: "E4M3",
          useF32Scales: true,
          amaxEpsilon: 0,
          xBlockScalingDim: 1,
          wBlockScalingDim: 2,
          gradBlockScalingDim: 1,
        },
      ],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero" },
  },
  MXFP8BlockScaling: {
    calls: [() => [{ ...PRODUCTS, ...FP8_ATTENTION, format: "E4M3", enable2dQuantization: true }]],
  },
  NVFP4BlockScaling: {
    calls: [
      () => [
        {
          ...PRODUCTS,
          ...NO_FP8_ATTENTION,
          format: "E2M1",
          disableRht: true,
          disableStochasticRounding: true,
          disable2dQuantization: true,
          fourOverSix: "weights",
          e4m3Use256: "weights",
          fourOverSixErrMode: "mae",
          rowScaledActivation: true,
        },
      ],
    ],
  },
  CustomRecipe: { calls: [() => [{ ...PRODUCTS, quantizerFactory: () => new MXFP8Quantizer() }]] },
  "CustomRecipe.quantizer": {
    calls: [() => ["input"]],
    self: () => new CustomRecipe({ quantizerFactory: () => new MXFP8Quantizer() }),
    survivesDispose: true,
  },
  ...Object.fromEntries(
    Object.entries(RECIPES).flatMap(([name, Recipe]) =>
      ["qparams", "elementFormat"].map((method): [string, Row] => [
        `${name}.${method}`,
        { calls: [() => ["weight"]], self: () => new Recipe(), survivesDispose: true },
      ]),
    ),
  ),
  passOf: { calls: [() => ["weight"]] },
  checkRecipeSupport: { calls: [(w) => [new MXFP8BlockScaling(), w.backend]] },
  getDefaultRecipe: { calls: [(w) => [w.backend]] },
  autocast: {
    calls: [(w) => [regionOptions(w), () => 1]],
  },
  autocastScope: {
    calls: [(w) => [regionOptions(w)]],
  },
  quantizedModelInit: {
    calls: [
      () => [{ recipe: new DelayedScaling(), enabled: true, preserveHighPrecisionInitVal: false }, () => 1],
    ],
  },
  noGrad: { calls: [() => [() => 1]] },
};
