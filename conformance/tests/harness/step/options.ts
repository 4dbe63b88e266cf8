/** The options of a training step with their values. Cases are combinations of these. */
import type { ActivationName } from "../../../oracle/elementwise/activation.js";
import type { OptimizerModel } from "../../../oracle/training/optimizers.js";
import type { StepRecipe } from "../../../oracle/training/recipes.js";

const DELAYED = { kind: "delayed", algorithm: "max", scaling: "default", reduces: true } as const;
const NVFP4 = { kind: "nvfp4", rht: true, stochastic: true, square: true, fourOverSix: "none" } as const;
const BLOCK = { kind: "block", format: "E4M3", f32Scales: false, amaxEpsilon: 0, square: "w" } as const;

/** Recipes with default options, and with every option set. */
export const RECIPES = {
  none: undefined,
  delayed: { ...DELAYED, format: "HYBRID", margin: 0, length: 3 },
  "delayed, wide gradients": {
    ...DELAYED,
    format: "HYBRID",
    margin: 0,
    length: 2,
    override: "highPrecision",
  },
  "delayed, most recent": { ...DELAYED, format: "E4M3", margin: 2, length: 1, algorithm: "mostRecent" },
  current: { kind: "current", format: "HYBRID", pow2: false, amaxEpsilon: 0 },
  "current, dequantized": {
    ...{ kind: "current", format: "HYBRID", pow2: false, amaxEpsilon: 0 },
    override: "dequantized",
  },
  "current, E4M3": { kind: "current", format: "E4M3", pow2: true, amaxEpsilon: 4 },
  block: BLOCK,
  "block, wide gradients": { ...BLOCK, override: "highPrecision" },
  "block, f32 scales": { ...BLOCK, format: "HYBRID", f32Scales: true, amaxEpsilon: 1 },
  "block, square x": { ...BLOCK, square: "x" },
  "block, square gradients": { ...BLOCK, square: "grad" },
  "block, no squares": { ...BLOCK, square: "none" },
  mxfp8: { kind: "mxfp8", format: "E4M3", square: false },
  "mxfp8, square": { kind: "mxfp8", format: "HYBRID", square: true },
  "mxfp8, dequantized": { kind: "mxfp8", format: "E4M3", square: false, override: "dequantized" },
  nvfp4: NVFP4,
  "nvfp4, dequantized": { ...NVFP4, override: "dequantized" },
  "nvfp4, rht alone": { ...NVFP4, stochastic: false, square: false },
  "nvfp4, stochastic alone": { ...NVFP4, rht: false, square: false },
  "nvfp4, mse": { ...NVFP4, rht: false, stochastic: false, square: false, fourOverSix: "mse" },
  "nvfp4, row-scaled": { ...NVFP4, rht: false, stochastic: false, rowScaled: true },
  "nvfp4, mae": { ...NVFP4, rht: false, stochastic: false, fourOverSix: "mae" },
  custom: {
    kind: "custom",
    specs: {
      input: { quantizer: "mxfp8", format: "e5m2" },
      weight: { quantizer: "mxfp6", format: "e3m2", tile: "32x32" },
      output: { quantizer: "mxfp6", format: "e2m3" },
      gradOutput: { quantizer: "mxfp4" },
      gradInput: { quantizer: "mxfp8", format: "e4m3" },
    },
  },
  "custom, hybrid": {
    kind: "custom",
    specs: {
      input: {
        rowwise: { quantizer: "mxfp4" },
        columnwise: { quantizer: "mxfp8", format: "e4m3" },
        source: "rowwiseDequantized",
      },
      weight: {
        rowwise: { quantizer: "mxfp6", format: "e3m2" },
        columnwise: { quantizer: "mxfp8", format: "e5m2" },
        source: "original",
      },
      output: "identity",
      gradOutput: {
        rowwise: { quantizer: "mxfp8", format: "e5m2" },
        columnwise: { quantizer: "mxfp6", format: "e2m3" },
        source: "original",
      },
      gradInput: "identity",
    },
  },
  "custom, wide dgrad": {
    kind: "custom",
    specs: {
      input: { quantizer: "mxfp8", format: "e4m3" },
      weight: { rowwise: { quantizer: "mxfp8", format: "e4m3" }, columnwise: "identity", source: "original" },
      output: { quantizer: "mxfp8", format: "e4m3" },
      gradOutput: {
        rowwise: "identity",
        columnwise: { quantizer: "mxfp8", format: "e5m2" },
        source: "rowwiseDequantized",
      },
      gradInput: "identity",
    },
  },
  "custom, wide wgrad": {
    kind: "custom",
    specs: {
      input: {
        rowwise: { quantizer: "mxfp4" },
        columnwise: "identity",
        source: "rowwiseDequantized",
      },
      weight: {
        rowwise: { quantizer: "mxfp4" },
        columnwise: { quantizer: "mxfp8", format: "e4m3", tile: "32x32" },
        source: "rowwiseDequantized",
      },
      output: "identity",
      gradOutput: { rowwise: { quantizer: "mxfp4" }, columnwise: "identity", source: "original" },
      gradInput: "identity",
    },
  },
  "custom, wide": {
    kind: "custom",
    specs: {
      ...{ input: "identity", weight: "identity", output: "identity" },
      ...{ gradOutput: "identity", gradInput: "identity" },
    },
  },
} as const satisfies Record<string, StepRecipe | undefined>;

export type RecipeName = keyof typeof RECIPES;

export const ACTIVATIONS = {
  gelu: { kind: "gelu", gated: false },
  qgelu: { kind: "qgelu", gated: false },
  relu: { kind: "relu", gated: false },
  srelu: { kind: "srelu", gated: false },
  silu: { kind: "silu", gated: false },
  glu: { kind: "sigmoid", gated: true },
  geglu: { kind: "gelu", gated: true },
  qgeglu: { kind: "qgelu", gated: true },
  reglu: { kind: "relu", gated: true },
  sreglu: { kind: "srelu", gated: true },
  swiglu: { kind: "silu", gated: true },
} as const satisfies Record<string, { readonly kind: ActivationName; readonly gated: boolean }>;

export type StepActivation = keyof typeof ACTIVATIONS;

const SGD = {
  kind: "SGD",
  learningRate: 0.25,
  weightDecay: 0,
  momentum: 0,
  dampening: 0,
  nesterov: false,
} as const;
const ADAM = {
  kind: "AdamW",
  learningRate: 0.125,
  weightDecay: 0.0625,
  beta1: 0.9,
  beta2: 0.99,
  eps: 1e-6,
  decoupled: true,
} as const;

export const OPTIMIZERS = {
  SGD,
  "SGD with momentum": { ...SGD, momentum: 0.5, dampening: 0.25, weightDecay: 0.125 },
  "SGD of Nesterov": { ...SGD, momentum: 0.75, nesterov: true },
  AdamW: ADAM,
  "Adam with L2": { ...ADAM, decoupled: false },
  "SGD with momentum of f16": { ...SGD, momentum: 0.5, momentumDtype: "f16", masterWeightDtype: "f16" },
  "SGD with momentum of e4m3": { ...SGD, momentum: 0.75, nesterov: true, momentumDtype: "e4m3" },
  "AdamW of bf16": { ...ADAM, expAvgDtype: "bf16", expAvgSqDtype: "bf16" },
  "AdamW of f16 and e4m3": {
    ...{ ...ADAM, decoupled: false },
    ...{ expAvgDtype: "f16", expAvgSqDtype: "e4m3", masterWeightDtype: "f16" },
  },
  "SGD with remainders": { ...SGD, momentum: 0.5, momentumDtype: "bf16", storeParamRemainders: true },
  "AdamW with remainders": { ...ADAM, expAvgDtype: "e4m3", storeParamRemainders: true },
  "AdamW of e4m3 and f16": { ...ADAM, expAvgDtype: "e4m3", expAvgSqDtype: "f16" },
} as const satisfies Record<string, OptimizerModel>;

/** The calls of the layers in the microbatches before each optimizer step; `rewritten` changes the weights before the call. */
export interface MicrobatchCall {
  readonly isFirstMicrobatch?: boolean;
  readonly skip?: 0 | 1;
  readonly rewritten?: boolean;
}

export const MICROBATCHES = {
  alone: [{}],
  two: [{ isFirstMicrobatch: true }, { isFirstMicrobatch: false, rewritten: true }],
  "two anew": [{ isFirstMicrobatch: true }, { isFirstMicrobatch: true, rewritten: true }],
  "uncached between": [...[{ isFirstMicrobatch: true }, { rewritten: true }], { isFirstMicrobatch: false }],
  "kept by a flag": [{ isFirstMicrobatch: true }, { skip: 1, rewritten: true }],
  "renewed by a flag": [{ isFirstMicrobatch: true }, { skip: 0, rewritten: true }],
} as const satisfies Record<string, readonly MicrobatchCall[]>;

/** The actions of a step in addition to its microbatches. */
export interface StepActions {
  readonly calls: readonly MicrobatchCall[];
  readonly stepping: "plain" | "clipped" | "noop" | "scaled" | "none";
  readonly zeroes: boolean;
  /** A call of all layers without gradients, before the microbatches. */
  readonly evaluated: MicrobatchCall | undefined;
  /** The recipe of the microbatches and of the call without gradients; undefined for the plan's recipe. */
  readonly recipe: RecipeName | undefined;
  /** Whether all state is saved after the step, or restored from the last save. */
  readonly state: "kept" | "saved" | "loaded";
}

const MLP_LAYERS = Object.keys(ACTIVATIONS).map(
  (activation) => `mlp of ${activation}` as `mlp of ${StepActivation}`,
);

/** Every option with its values. A case has one value of each. */
export const OPTIONS = {
  recipe: ["none", "delayed", "current", "block", "mxfp8", "nvfp4", "custom"],
  /** The index of the recipe in its class. */
  variant: [0, 1, 2, 3, 4, 5, 6],
  /** The precision in which gradients are computed, unless the recipe determines it. */
  override: ["none", "highPrecision", "dequantized"],
  layer: [
    ...(["linear", "norm", "normLinear", "returned", "attention", "between"] as const),
    ...(["activation of silu", "activation of srelu", "gate of glu", "gate of swiglu"] as const),
    ...MLP_LAYERS,
  ],
  wrap: ["plain", "residual", "recompute", "twice"],
  around: ["nothing", "before", "behind", "both"],
  nested: [false, true],
  normalization: ["LayerNorm", "RMSNorm"],
  zeroCenteredGamma: [false, true],
  eps: [1e-5, 0.25],
  bias: [true, false],
  parameters: ["bf16", "f32", "f16"],
  input: ["bf16", "f32", "f16"],
  start: ["constant", "variable", "embedding"],
  frozen: [
    "nothing",
    "weights",
    "biases",
    "norms",
    "all but weights",
    "all but biases",
    "all but norms",
    "drawn",
    "weights, late",
  ],
  fuses: [false, true],
  savesOriginal: [false, true],
  /** Whether gradients of weights are computed after the backward pass. */
  delays: [false, true],
  microbatches: Object.keys(MICROBATCHES) as readonly (keyof typeof MICROBATCHES)[],
  optimizer: Object.keys(OPTIMIZERS) as readonly (keyof typeof OPTIMIZERS)[],
  stepping: ["plain", "clipped", "noop", "scaled"],
  loss: ["gradient", "crossEntropy", "smoothed", "mse"],
  causal: [true, false],
  values: ["ordinary", "outliers", "zeros"],
} as const;

/** One value of each option. */
export type StepOptions = { readonly [O in keyof typeof OPTIONS]: (typeof OPTIONS)[O][number] };
