/**
 * All public modules, with a row for each form that has operations of its own. Laws that hold for every module test every row, or
 * every row with a trait, so a new module is under them by its row. `conformance/tests/laws/every-module-has-a-row.test.ts`
 * fails on a public module without a row and on a trait that is wrong.
 */
import type { Backend } from "../../../../src/backends/backend.js";
import { activation } from "../../../../src/functional/elementwise.js";
import { CausalLM } from "../../../../src/models/causal-lm.js";
import type { CausalLMConfig } from "../../../../src/models/config/config.js";
import { DotProductAttention } from "../../../../src/modules/dot-product-attention.js";
import { Embedding } from "../../../../src/modules/embedding.js";
import { GroupedLinear } from "../../../../src/modules/grouped-linear.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { MoELayer } from "../../../../src/modules/moe-layer.js";
import { MultiheadAttention } from "../../../../src/modules/multihead-attention.js";
import { LayerNorm, type NormModule, RMSNorm } from "../../../../src/modules/norm.js";
import { normalInit } from "../../../../src/modules/parameter.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { orDispose } from "../../../../src/tensor/scope.js";
import type { Shape } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { type ModuleInput, type ModuleRow, type ModuleSettings, type ModuleSizes, row } from "./row.js";

const BASE_OPTIONS = ["dtype", "random"] as const;
const GROUP_OPTIONS = ["group", "sequenceParallel"] as const;
const GROUPED_OPTIONS = [
  ...BASE_OPTIONS,
  ...(["bias", "initMethod", "fuseWgradAccumulation", "saveOriginalInput", "delayWgradCompute"] as const),
];
const PARALLEL_OPTIONS = [...GROUP_OPTIONS, "overlap"] as const;
const LINEAR_OPTIONS = [
  ...GROUPED_OPTIONS,
  ...PARALLEL_OPTIONS,
  "parallelMode",
  "pieces",
  "parametersSplit",
] as const;
const NORM_OPTIONS = ["eps", "zeroCenteredGamma"] as const;
const MLP_OPTIONS = [
  ...GROUPED_OPTIONS,
  ...PARALLEL_OPTIONS,
  ...NORM_OPTIONS,
  ...(["normalization", "activation", "outputLayerInitMethod"] as const),
];
const ATTENTION_OPTIONS = [
  ...(["initMethod", "outputLayerInitMethod", "bias", "fuseWgradAccumulation"] as const),
  ...(["normalization", "zeroCenteredGamma"] as const),
];
const WEIGHT_CALL_OPTIONS = ["isFirstMicrobatch", "skipFp8WeightUpdate"] as const;

const COMPOSED_REASON = "its layers run one after the other, and each has its state when a later one refuses";
const BRANCHES_REASON = "a product quantizes its gradient only if it is required, and others draw after it";
const COUNTS_REASON = "the host reads how many tokens each expert has";

const matrixInput = (rows: number, columns: number): readonly ModuleInput[] => [{ shape: [rows, columns] }];
/** Positions of two sequences, [S, B, ...], if there is an even number of rows. */
const sequenceShape = (rows: number): readonly [length: number, batch: number] =>
  rows % 2 === 0 ? [rows / 2, 2] : [rows, 1];
const heads = (features: number): number => (features % 32 === 0 ? features / 32 : 1);
/** The rows of each expert: most of them, some, and none. */
const expertRows = (rows: number, experts: number): readonly number[] =>
  Array.from({ length: experts }, (_, i) => {
    const lastExpertRows = experts === 1 ? 0 : rows >> 2;
    return i === 0 ? rows - lastExpertRows : i === experts - 1 ? lastExpertRows : 0;
  });
const rowCount = (x: Variable): number => x.shape.slice(0, -1).reduce((a, b) => a * b, 1);
const firstVariable = ([x]: readonly Variable[]): Variable => x as Variable;

const firstTensor = (x: readonly Variable[]): Tensor => firstVariable(x).value as Tensor;

const LINEAR_PRODUCT = { weight: "weight", bias: "bias" } as const;
const NORM_NAMES = ["", "layerNormWeight", "layerNormBias"] as const;

type Shapes = Readonly<Record<string, Shape>>;
type ParameterShapes = (sizes: ModuleSizes, settings: ModuleSettings) => Shapes;
const productShapes = (
  weight: string,
  bias: string,
  [to, from]: readonly [number, number],
  hasBias = true,
): Shapes => ({
  [weight]: [to, from],
  ...(hasBias ? { [bias]: [to] } : {}),
});
const normShapes = (
  names: readonly [string, string],
  features: number,
  normalization = "LayerNorm",
): Shapes => ({
  [names[0]]: [features],
  ...(normalization === "LayerNorm" ? { [names[1]]: [features] } : {}),
});
const layerNorm: ParameterShapes = ({ from }, { normalization }) =>
  normShapes(["layerNormWeight", "layerNormBias"], from, normalization);
const mlpShapes =
  (ownActivation?: string): ParameterShapes =>
  (sizes, settings) => {
    const { from, middle } = sizes;
    const isGated = (ownActivation ?? settings.activation) === "swiglu";
    return {
      ...layerNorm(sizes, settings),
      ...productShapes("fc1Weight", "fc1Bias", [isGated ? 2 * middle : middle, from], settings.bias),
      ...productShapes("fc2Weight", "fc2Bias", [from, middle], settings.bias),
    };
  };

const linear = {
  takes: LINEAR_OPTIONS,
  call: [...WEIGHT_CALL_OPTIONS, "fp8Output", "fp8Grad"],
  ...{ quantizes: true, rowwise: true, lastBiases: ["bias"] },
  sizes: { inFeatures: "from", outFeatures: "to" },
  parameters: ({ from, to }: ModuleSizes, { bias }: ModuleSettings) =>
    productShapes("weight", "bias", [to, from], bias),
} as const;
const normLinear = {
  ...linear,
  parameters: (sizes: ModuleSizes, settings: ModuleSettings) => ({
    ...layerNorm(sizes, settings),
    ...linear.parameters(sizes, settings),
  }),
  takes: [...LINEAR_OPTIONS, ...NORM_OPTIONS, "normalization"],
  // the norm needs an unquantized gradient
  call: [...WEIGHT_CALL_OPTIONS, "fp8Output"],
  inputs: (module: LayerNormLinear, rows: number) => matrixInput(rows, module.inFeatures),
} as const;
const makeNormLinear = (b: Backend, { from, to }: ModuleSizes, settings: ModuleSettings) =>
  new LayerNormLinear(b, from, to, settings);

const mlp = {
  takes: MLP_OPTIONS,
  call: [...WEIGHT_CALL_OPTIONS, "fp8Output"],
  ...{ quantizes: true, rowwise: true, lastBiases: ["fc2Bias"] },
  sizes: { hidden: "from", ffnHidden: "middle" },
  inputs: (module: LayerNormMLP, rows: number) => matrixInput(rows, module.hidden),
} as const;
const makeMLP = (b: Backend, { from, middle }: ModuleSizes, settings: ModuleSettings) =>
  new LayerNormMLP(b, from, middle, settings);
const makeGatedMLP = (b: Backend, sizes: ModuleSizes, settings: ModuleSettings) =>
  makeMLP(b, sizes, { ...settings, activation: "swiglu" });
const mlpProducts =
  (halves: number) =>
  ({ from, middle }: ModuleSizes) => [
    { weight: "fc1Weight", bias: "fc1Bias", predecessors: NORM_NAMES, from, to: halves * middle },
    {
      ...{ weight: "fc2Weight", bias: "fc2Bias", from: middle, to: from },
      predecessors: [...NORM_NAMES, "fc1Weight", "fc1Bias"],
    },
  ];
const runMLP = {
  run: (module: LayerNormMLP, x: readonly Variable[], call: object) => [
    module.forward(firstVariable(x), call),
  ],
  withBias: (module: LayerNormMLP, x: readonly Variable[], call: object) => {
    const [out, bias] = module.forwardWithBias(firstVariable(x), call);
    return { out, biases: bias ? [bias] : [] };
  },
};
const runWithNorm = {
  run: (module: LayerNormLinear | LayerNormMLP, x: readonly Variable[], call: object) =>
    module.forwardWithNorm(firstVariable(x), call),
  withBias: (module: LayerNormLinear | LayerNormMLP, x: readonly Variable[], call: object) => {
    const [out, bias, norm] = module.forwardWithBiasAndNorm(firstVariable(x), call);
    return { out, biases: bias ? [bias] : [], norm };
  },
};

const norm = {
  takes: [...BASE_OPTIONS, ...NORM_OPTIONS, ...GROUP_OPTIONS],
  ...{ call: [], quantizes: false, rowwise: true },
  sizes: { features: "from" },
  inputs: (module: NormModule, rows: number) => matrixInput(rows, module.features),
  run: (module: NormModule, x: readonly Variable[]) => [module.forward(firstVariable(x))],
} as const;

const dotProduct = {
  ...{ takes: [...BASE_OPTIONS, ...GROUP_OPTIONS], call: [], quantizes: false, rowwise: false, sizes: {} },
  ...{ leavesResults: true, attends: true },
  inputs: (
    { numAttentionHeads, numGqaGroups, widths: [keys, values] }: DotProductAttention,
    rows: number,
  ) => [
    { shape: [...sequenceShape(rows), numAttentionHeads, keys] },
    { shape: [...sequenceShape(rows), numGqaGroups, keys] },
    { shape: [...sequenceShape(rows), numGqaGroups, values] },
  ],
  run: (module: DotProductAttention, [q, k, v]: readonly Variable[]) => [
    module.forward(q as Variable, k as Variable, v as Variable),
  ],
} as const;

const multihead = {
  ...{
    takes: [...BASE_OPTIONS, ...GROUP_OPTIONS, ...ATTENTION_OPTIONS],
    call: WEIGHT_CALL_OPTIONS,
    quantizes: true,
    rowwise: false,
  },
  ...{ composed: COMPOSED_REASON, leavesResults: true, attends: true, lastBiases: ["proj.bias"] },
  sizes: { hiddenSize: "from" },
  inputs: ({ hiddenSize, attentionType }: MultiheadAttention, rows: number) =>
    Array.from({ length: attentionType === "cross" ? 2 : 1 }, () => ({
      shape: [...sequenceShape(rows), hiddenSize],
    })),
  run: (module: MultiheadAttention, [x, encoderOutput]: readonly Variable[], call: object) => [
    module.forward(x as Variable, encoderOutput ? { ...call, encoderOutput } : call),
  ],
  withBias: (module: MultiheadAttention, [x, encoderOutput]: readonly Variable[], call: object) => {
    const callOptions = encoderOutput ? { ...call, encoderOutput } : call;
    const [out, bias] = module.forwardWithBias(x as Variable, callOptions);
    return { out, biases: bias ? [bias] : [] };
  },
} as const;

const transformer = {
  takes: [...BASE_OPTIONS, ...GROUP_OPTIONS, ...ATTENTION_OPTIONS, "activation"],
  ...{
    call: WEIGHT_CALL_OPTIONS,
    quantizes: true,
    rowwise: false,
    composed: COMPOSED_REASON,
    leavesResults: true,
  },
  attends: true,
  sizes: { hiddenSize: "from", ffnHiddenSize: "middle" },
  inputs: ({ hiddenSize, layerType }: TransformerLayer, rows: number) =>
    Array.from({ length: layerType === "decoder" ? 2 : 1 }, () => ({
      shape: [...sequenceShape(rows), hiddenSize],
    })),
  run: (module: TransformerLayer, [x, encoderOutput]: readonly Variable[], call: object) => [
    module.forward(x as Variable, encoderOutput ? { ...call, encoderOutput } : call),
  ],
} as const;
const NO_DROPOUT = { attentionDropout: 0, hiddenDropout: 0 } as const;

/** A language model of one layer. */
const config = ({ from, to, middle }: ModuleSizes): CausalLMConfig => {
  const headDim = from / heads(from);
  const rotary = { dim: headDim - (headDim % 2), base: 100 };
  const attention = {
    ...{ heads: heads(from), keyValueHeads: 1, headDim, inputBias: true, outputBias: false },
    ...{ headNorms: true, rotary },
  };
  const feedForward = {
    ...{ kind: "dense" as const, intermediateSize: middle, activation: "silu" as const, bias: false },
  };
  return {
    ...{ modelType: "llama", vocabSize: to, hiddenSize: from, maxPositionEmbeddings: 64, rmsNormEps: 0.01 },
    ...{ tieWordEmbeddings: false, eosTokenIds: [], layers: [{ attention, feedForward }] },
  };
};

export const MODULES: Readonly<Record<string, ModuleRow>> = {
  Linear: row(Linear, {
    ...linear,
    make: (b, { from, to }, settings) => new Linear(b, from, to, settings),
    inputs: (module, rows) => matrixInput(rows, module.inFeatures),
    run: (module, x, call) => [module.forward(firstVariable(x), call)],
    withBias: (module, x, call) => {
      const [out, bias] = module.forwardWithBias(firstVariable(x), call);
      return { out, biases: bias ? [bias] : [] };
    },
    products: ({ from, to }) => [{ ...LINEAR_PRODUCT, from, to, predecessors: [""] }],
  }),
  LayerNormLinear: row(LayerNormLinear, {
    ...normLinear,
    make: makeNormLinear,
    run: (module, x, call) => [module.forward(firstVariable(x), call)],
    withBias: (module, x, call) => {
      const [out, bias] = module.forwardWithBias(firstVariable(x), call);
      return { out, biases: bias ? [bias] : [] };
    },
    products: ({ from, to }) => [{ ...LINEAR_PRODUCT, from, to, predecessors: NORM_NAMES }],
  }),
  "LayerNormLinear, with the norm": row(LayerNormLinear, {
    ...{ ...normLinear, ...runWithNorm, operationsOf: "LayerNormLinear" },
    make: makeNormLinear,
  }),
  LayerNormMLP: row(LayerNormMLP, {
    ...{ ...mlp, ...runMLP, make: makeMLP },
    ...{ products: mlpProducts(1), parameters: mlpShapes() },
  }),
  "LayerNormMLP, gated": row(LayerNormMLP, {
    ...{ ...mlp, ...runMLP },
    make: makeGatedMLP,
    ...{ products: mlpProducts(2), parameters: mlpShapes("swiglu") },
  }),
  "LayerNormMLP, with the norm": row(LayerNormMLP, {
    ...mlp,
    ...runWithNorm,
    make: makeMLP,
    operationsOf: "LayerNormMLP",
  }),
  GroupedLinear: row(GroupedLinear, {
    ...{ takes: GROUPED_OPTIONS, call: WEIGHT_CALL_OPTIONS, quantizes: true, rowwise: true },
    ...{ operationsOf: "Linear", branches: BRANCHES_REASON, lastBiases: ["bias0", "bias1", "bias2"] },
    sizes: { inFeatures: "from", outFeatures: "to" },
    make: (b, { from, to }, settings) => new GroupedLinear(b, 3, from, to, settings),
    parameters: ({ from, to }, { bias }) =>
      Object.assign({}, ...[0, 1, 2].map((i) => productShapes(`weight${i}`, `bias${i}`, [to, from], bias))),
    inputs: (module, rows) => matrixInput(rows, module.inFeatures),
    run: (module, x, call) => [
      module.forward(firstVariable(x), expertRows(rowCount(firstVariable(x)), module.numGemms), call),
    ],
    withBias: (module, x, call) => {
      const [out, biases] = module.forwardWithBias(
        firstVariable(x),
        expertRows(rowCount(firstVariable(x)), module.numGemms),
        call,
      );
      return { out, biases };
    },
  }),
  MoELayer: row(MoELayer, {
    ...{
      takes: [...GROUPED_OPTIONS, "activation", "group"],
      call: WEIGHT_CALL_OPTIONS,
      quantizes: true,
      rowwise: true,
    },
    sizes: { hidden: "from", ffnHidden: "middle" },
    ...{ composed: COMPOSED_REASON, leavesResults: true },
    ...{ readsHost: COUNTS_REASON, edges: true, branches: BRANCHES_REASON, routerWeights: ["router.weight"] },
    make: (b, { from, middle }, settings) => new MoELayer(b, from, middle, 3, { ...settings, topk: 2 }),
    inputs: (module, rows) => matrixInput(rows, module.hidden),
    run: (module, x, call) => [module.forward(firstVariable(x), call)],
  }),
  LayerNorm: row(LayerNorm, {
    ...norm,
    make: (b, { from }, settings) => new LayerNorm(b, from, settings),
    parameters: ({ from }) => normShapes(["weight", "bias"], from),
  }),
  RMSNorm: row(RMSNorm, {
    ...norm,
    make: (b, { from }, settings) => new RMSNorm(b, from, settings),
    parameters: ({ from }) => normShapes(["weight", ""], from, "RMSNorm"),
  }),
  Embedding: row(Embedding, {
    takes: [...BASE_OPTIONS, ...GROUP_OPTIONS, "initMethod"],
    ...{ call: [], quantizes: false, rowwise: true, takesNumbers: true, std: 0.02 },
    sizes: { vocabulary: "to", features: "from" },
    make: (b, { from, to }, settings) => new Embedding(b, to, from, settings),
    parameters: ({ from, to }) => ({ weight: [to, from] }),
    inputs: (module, rows) => [{ shape: [rows], ids: module.vocabulary }],
    run: (module, x) => [module.forward(firstTensor(x))],
  }),
  DotProductAttention: row(DotProductAttention, {
    ...{ ...dotProduct, hasNoParameters: true },
    make: (b, { from }, settings) => new DotProductAttention(b, heads(from), from / heads(from), settings),
  }),
  "DotProductAttention, with a learnable sink": row(DotProductAttention, {
    ...dotProduct,
    make: (b, { from }, settings) =>
      new DotProductAttention(b, heads(from), from / heads(from), { ...settings, softmaxType: "learnable" }),
  }),
  MultiheadAttention: row(MultiheadAttention, {
    ...multihead,
    make: (b, { from }, settings) =>
      new MultiheadAttention(b, from, heads(from), { ...settings, attentionDropout: 0 }),
  }),
  "MultiheadAttention of another sequence, with a norm": row(MultiheadAttention, {
    ...multihead,
    make: (b, { from }, settings) =>
      new MultiheadAttention(b, from, heads(from), {
        ...{ ...settings, attentionDropout: 0, attentionType: "cross", inputLayernorm: true },
      }),
    branches: BRANCHES_REASON,
  }),
  TransformerLayer: row(TransformerLayer, {
    ...transformer,
    make: (b, { from, middle }, settings) =>
      new TransformerLayer(b, from, middle, heads(from), { ...settings, ...NO_DROPOUT }),
  }),
  "TransformerLayer, a decoder": row(TransformerLayer, {
    ...transformer,
    make: (b, { from, middle }, settings) =>
      new TransformerLayer(b, from, middle, heads(from), {
        ...settings,
        ...NO_DROPOUT,
        layerType: "decoder",
      }),
    branches: BRANCHES_REASON,
  }),
  Sequential: row(Sequential, {
    ...{
      takes: LINEAR_OPTIONS,
      call: [...WEIGHT_CALL_OPTIONS, "fp8Grad"],
      quantizes: true,
      rowwise: true,
      sizes: {},
      composed: COMPOSED_REASON,
      leavesResults: true,
    },
    make: (b, { from, to }, settings) =>
      orDispose((modules) => {
        const linearLayer = new Linear(b, from, to, settings);
        modules.push(linearLayer);
        const normLayer = makeNorm(b, to, settings);
        return new Sequential(b, linearLayer, (x) => activation(x, "gelu"), normLayer);
      }),
    inputs: (module, rows) => matrixInput(rows, module.parameters()[0]?.shape[1] ?? 0),
    run: (module, x, call) => [module.forward(firstVariable(x), call)],
  }),
  CausalLM: row(CausalLM, {
    ...{
      takes: [...BASE_OPTIONS, "initMethod"],
      call: ["isFirstMicrobatch"],
      quantizes: true,
      rowwise: false,
      takesNumbers: true,
      std: 0.02,
    },
    ...{
      sizes: {},
      composed: COMPOSED_REASON,
      branches: BRANCHES_REASON,
      leavesResults: true,
      attends: true,
    },
    make: (b, sizes, { dtype = "bf16", random = new RandomState(0n), initMethod = normalInit(0.02) }) =>
      CausalLM.of(b, { config: config(sizes), dtype, random, recipe: undefined, initMethod }),
    inputs: (module, rows) => [{ shape: sequenceShape(rows).toReversed(), ids: module.config.vocabSize }],
    run: (module, x, call) => [module.forward(firstTensor(x), call)],
  }),
};

/** The norm after a layer, with the same dtype. */
function makeNorm(b: Backend, features: number, { dtype, random }: ModuleSettings): LayerNorm {
  return new LayerNorm(b, features, { dtype, random });
}

/** The names of the rows for which `holds`. */
export function modulesWhere(holds: (row: ModuleRow) => boolean): readonly string[] {
  return Object.keys(MODULES).filter((name) => holds(moduleRow(name)));
}

export function moduleRow(name: string): ModuleRow {
  const match = MODULES[name];
  if (!match) throw new RangeError(`no row has the name ${name}`);
  return match;
}

/** A module that was created elsewhere, with its inputs; undefined for a class without a row. */
export function wrapModule(module: Module) {
  for (const candidate of Object.values(MODULES)) {
    const wrapped = candidate.wrap(module);
    if (wrapped) return wrapped;
  }
  return undefined;
}
