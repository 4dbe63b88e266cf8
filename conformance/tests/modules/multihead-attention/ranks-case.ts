/** Attention modules that are divided among ranks, as a model on one rank in plain arithmetic and in the library on all ranks. */
import { autocast } from "../../../../src/autocast.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import type { MultiheadAttentionOptions } from "../../../../src/modules/attention/multihead-options.js";
import { MultiheadAttention } from "../../../../src/modules/multihead-attention.js";
import { wideTensor } from "../../../../src/modules/parameter.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { type AttentionRecipe, AttentionScales } from "../../../oracle/training/attention-scales.js";
import { endPass, LinearModel, type ParameterModel, type Run } from "../../../oracle/training/linear.js";
import { cast, type Matrix } from "../../../oracle/training/matrix.js";
import { Tape, Value } from "../../../oracle/training/tape.js";
import { multihead, transformerLayer } from "../../../oracle/training/transformer.js";
import { libraryRecipe } from "../../harness/step/library-recipes.js";
import { ACTIVATIONS, RECIPES, type RecipeName } from "../../harness/step/options.js";
import { type HeldDimension, partOf, readMatrix } from "../tensor-parallel/ranks.js";

export interface RanksCase {
  /** A MultiheadAttention, or a TransformerLayer in one of its forms. */
  readonly module: "self" | "cross" | "layer" | "layer, norm of the result" | "layer, parallel";
  readonly recipe: RecipeName;
  /** Whether attention is quantized too, under a recipe with a scale for each tensor. */
  readonly attention: "wide" | "fp8Dpa" | "fp8Mha";
  readonly ranks: number;
  readonly sequence: boolean;
  readonly layout: "sbhd" | "bshd";
  /** The order of queries, keys and values in the weight. */
  readonly weights: "separate" | "fused" | "ordered";
  /** The number of heads of keys and values. */
  readonly groups: 2 | 4;
  readonly qkNorm: "none" | "LayerNorm" | "RMSNorm";
  readonly softmaxType: "vanilla" | "learnable";
  readonly drops: boolean;
  /** Whether attention has a window and a softcap. */
  readonly narrow: boolean;
  readonly bias: boolean;
  /** Whether the input of a MultiheadAttention is normalized. Layers normalize it in most forms. */
  readonly inputNorm: boolean;
  readonly dtype: "bf16" | "f32";
  readonly fuses: boolean;
  readonly checkpoints: boolean;
}

const SEED = 7n;
const [HEADS, HIDDEN, BATCH, LENGTH] = [4, 32, 2, 4];

/** Two steps if a recipe keeps state from step to step. */
const stepsOf = ({ recipe }: RanksCase): number => (RECIPES[recipe]?.kind === "delayed" ? 2 : 1);
/** The width of heads for which ranks divide a weight between blocks. */
function widthOf({ recipe, module, weights, groups }: RanksCase): number {
  if (RECIPES[recipe]?.kind !== "block") return 16;
  return module === "cross" && weights === "separate" && groups === 2 ? 128 : 64;
}
/** The recipe of attention, if it is quantized. */
function attentionRecipe({ attention, recipe }: RanksCase): AttentionRecipe | undefined {
  const model = RECIPES[recipe];
  if (attention === "wide" || model === undefined) return undefined;
  return model.kind === "delayed" || model.kind === "current" ? model : undefined;
}
/** FP8 attention has no softcap. */
const softcapOf = (ranksCase: RanksCase): number | undefined =>
  ranksCase.narrow && !attentionRecipe(ranksCase) ? 2 : undefined;
const ffnOf = ({ recipe }: RanksCase): number => (RECIPES[recipe]?.kind === "block" ? 256 : 64);
const isLayer = ({ module }: RanksCase): boolean => module.startsWith("layer");
const hasInputNorm = (ranksCase: RanksCase): boolean =>
  isLayer(ranksCase) ? ranksCase.module !== "layer, norm of the result" : ranksCase.inputNorm;
const isInterleaved = ({ weights }: RanksCase): boolean => weights === "fused";
/** Dropout before a residual draws random bits by the element's index among all rows. */
const hiddenDropoutOf = ({ drops, sequence }: RanksCase): number => (drops && !sequence ? 0.2 : 0);
const ACTIVATION = "swiglu";

/** A parameter: its name, its full shape, its division among ranks, and the number of pieces along the divided dimension. */
type Row = readonly [name: string, shape: readonly [number, number], held: HeldDimension, pieces: number];

/** Whether a parameter is the weight of a linear product. */
const isWeight = (name: string): boolean =>
  /(^|\.)(weight|fc\dWeight)$/.test(name) && !/[nN]orm\./.test(name);

function parametersOf(ranksCase: RanksCase): readonly Row[] {
  const width = widthOf(ranksCase);
  const [queries, keys] = [HEADS * width, ranksCase.groups * width];
  const prefix = isLayer(ranksCase) ? "selfAttention." : "";
  const hasNorm = hasInputNorm(ranksCase);
  const projection = (name: string, features: number, pieces: number, withNorm: boolean): Row[] => [
    [`${prefix}${name}.weight`, [features, HIDDEN], "rows", pieces],
    ...(ranksCase.bias ? [[`${prefix}${name}.bias`, [1, features], "columns", pieces] as const] : []),
    ...(withNorm
      ? ([
          [`${prefix}${name}.layerNormWeight`, [1, HIDDEN], "all", 1],
          [`${prefix}${name}.layerNormBias`, [1, HIDDEN], "all", 1],
        ] as const)
      : []),
  ];
  const pieces = (count: number): number => (isInterleaved(ranksCase) ? 1 : count);
  const isCross = ranksCase.module === "cross";
  const firsts = isCross
    ? [
        ...projection(hasNorm ? "layernormQuery" : "queryLayer", queries, 1, hasNorm),
        ...projection("keyValue", 2 * keys, pieces(2), false),
      ]
    : projection(hasNorm ? "layernormQkv" : "qkv", queries + 2 * keys, pieces(3), hasNorm);
  const headNorms = ranksCase.qkNorm === "none" ? [] : ["qNorm", "kNorm"];
  const mlp: readonly Row[] = [
    ["layernormMlp.fc1Weight", [2 * ffnOf(ranksCase), HIDDEN], "rows", 2],
    ...(ranksCase.bias ? [["layernormMlp.fc1Bias", [1, 2 * ffnOf(ranksCase)], "columns", 2] as const] : []),
    ["layernormMlp.fc2Weight", [HIDDEN, ffnOf(ranksCase)], "columns", 1],
    ...(ranksCase.bias ? [["layernormMlp.fc2Bias", [1, HIDDEN], "all", 1] as const] : []),
    ["layernormMlp.layerNormWeight", [1, HIDDEN], "all", 1],
    ["layernormMlp.layerNormBias", [1, HIDDEN], "all", 1],
  ];
  return [
    ...firsts,
    ...headNorms.flatMap((name): Row[] => [
      [`${prefix}${name}.weight`, [1, width], "all", 1],
      ...(ranksCase.qkNorm === "LayerNorm" ? [[`${prefix}${name}.bias`, [1, width], "all", 1] as const] : []),
    ]),
    ...(ranksCase.softmaxType === "learnable"
      ? [[`${prefix}coreAttention.softmaxOffset`, [1, HEADS], "columns", 1] as const]
      : []),
    [`${prefix}proj.weight`, [HIDDEN, queries], "columns", 1],
    ...(ranksCase.bias ? [[`${prefix}proj.bias`, [1, HIDDEN], "all", 1] as const] : []),
    ...(isLayer(ranksCase) ? mlp : []),
    ...(ranksCase.module === "layer, norm of the result"
      ? ([
          ["layernorm.weight", [1, HIDDEN], "all", 1],
          ["layernorm.bias", [1, HIDDEN], "all", 1],
        ] as const)
      : []),
  ];
}

const typeOf = (ranksCase: RanksCase, name: string): "bf16" | "f32" =>
  name.endsWith("softmaxOffset") ? "f32" : ranksCase.dtype;

/** The values of tensor number `number`. */
function values(number: number, [rows, columns]: readonly [number, number], dtype: "bf16" | "f32"): Matrix {
  const data = normal({ seed: SEED, offset: BigInt(number) }, rows * columns, 0.5);
  return cast({ data, shape: [rows, columns], dtype: "f32" }, dtype);
}

const INPUT = [LENGTH * BATCH, HIDDEN] as const;
/** The numbers of the values of a step: the input, the source of keys and values, the gradient. */
const NUMBERS = { x: 100, memory: 200, grad: 300 } as const;

/** A result: the full tensor, its division among ranks, and its pieces. */
interface Whole {
  readonly x: Matrix;
  readonly heldDimension: HeldDimension;
  readonly pieces: number;
}

/** The results of the model on one rank, whose products use the plans that the divided modules declare. */
export function modelResults(ranksCase: RanksCase): ReadonlyMap<string, Whole> {
  const rows = parametersOf(ranksCase);
  const { ranks, sequence } = ranksCase;
  const parameters = new Map<string, ParameterModel>(
    rows.map(([name, shape], i) => [name, new Value(values(i, shape, typeOf(ranksCase, name)), true)]),
  );
  const prefix = isLayer(ranksCase) ? "selfAttention." : "";
  const parameterOf = (name: string): ParameterModel | undefined => parameters.get(name);
  const linearAt = (name: string, mode: "column" | "row", kind = "Weight"): LinearModel | undefined => {
    const called = (label: string): string =>
      kind === "fc" ? name + label : `${name}.${label.toLowerCase()}`;
    const weight = parameterOf(called("Weight"));
    if (!weight) return undefined;
    if (ranksCase.fuses)
      weight.mainGrad = { ...weight.wide, dtype: "f32", data: new Float32Array(weight.wide.data.length) };
    const pieces = rows.find(([parameterName]) => parameterName === called("Weight"))?.[3] ?? 1;
    const division = ranks > 1 ? { ranks, mode, pieces: mode === "row" ? 1 : pieces, sequence } : undefined;
    return new LinearModel(weight, parameterOf(called("Bias")), ranksCase.fuses, division);
  };
  const normAt = (gamma: string, beta: string, eps: number, normRanks: number) => {
    const weight = parameterOf(gamma);
    return (
      weight && { gamma: weight, beta: parameterOf(beta), eps, zeroCenteredGamma: false, ranks: normRanks }
    );
  };
  const gradRanks = sequence ? ranks : 1;
  const inner = (name: string) => normAt(`${name}.layerNormWeight`, `${name}.layerNormBias`, 1e-5, gradRanks);
  const headNorm = (name: string) => normAt(`${prefix}${name}.weight`, `${prefix}${name}.bias`, 1e-6, ranks);
  const firstName = ["layernormQkv", "qkv", "layernormQuery", "queryLayer"].find((name) =>
    parameterOf(`${prefix}${name}.weight`),
  );
  const plainRecipe = attentionRecipe(ranksCase);
  const attention = {
    core: {
      ...{ layout: ranksCase.layout, batch: BATCH, length: LENGTH, heads: HEADS, groups: ranksCase.groups },
      width: widthOf(ranksCase),
      causal: true,
      window: ranksCase.narrow ? ([2, 0] as const) : ([-1, 0] as const),
      softcap: softcapOf(ranksCase),
    },
    attentionDropout: ranksCase.drops ? 0.3 : 0,
    interleaved: isInterleaved(ranksCase),
    norm: inner(`${prefix}${firstName}`),
    first: linearAt(`${prefix}${firstName}`, "column") as LinearModel,
    keyValue: linearAt("keyValue", "column"),
    qNorm: headNorm("qNorm"),
    kNorm: headNorm("kNorm"),
    sinks: parameterOf(`${prefix}coreAttention.softmaxOffset`),
    proj: linearAt(`${prefix}proj`, "row") as LinearModel,
    fp8: plainRecipe && {
      ...{ scales: new AttentionScales(plainRecipe), mha: ranksCase.attention === "fp8Mha" },
      ...{ ranks, sequence: sequence && ranks > 1 },
    },
  };
  const mlpNorm = inner("layernormMlp");
  const layer = mlpNorm && {
    attention,
    mlp: {
      norm: mlpNorm,
      fc1: linearAt("layernormMlp.fc1", "column", "fc") as LinearModel,
      fc2: linearAt("layernormMlp.fc2", "row", "fc") as LinearModel,
      act: ACTIVATIONS[ACTIVATION],
    },
    hiddenDropout: hiddenDropoutOf(ranksCase),
    parallel: ranksCase.module === "layer, parallel",
    last: normAt("layernorm.weight", "layernorm.bias", 1e-5, gradRanks),
  };
  const run: Run = {
    family: "hopper",
    random: { seed: SEED, offset: BigInt(rows.filter(([name]) => isWeight(name)).length) },
    recipe: undefined,
    usedSlots: { forward: new Set(), backward: new Set() },
  };
  const results = new Map<string, Whole>();
  const flow: HeldDimension = sequence ? "rows" : "all";
  for (let step = 0; step < stepsOf(ranksCase); step++) {
    const tape = new Tape();
    run.recipe = RECIPES[ranksCase.recipe];
    const x = new Value(values(NUMBERS.x + step, INPUT, ranksCase.dtype), true);
    const memory =
      ranksCase.module === "cross"
        ? new Value(values(NUMBERS.memory + step, INPUT, ranksCase.dtype), true)
        : undefined;
    const y = layer
      ? transformerLayer(run, tape, x, layer, {})
      : multihead(run, tape, x, memory, attention, {});
    run.recipe = undefined;
    const { forward, backward } = attention.fp8?.scales ?? {};
    if (forward) run.usedSlots.forward.add(forward);
    if (backward) run.usedSlots.backward.add(backward);
    endPass(run, "forward");
    tape.backward(y, values(NUMBERS.grad + step, INPUT, ranksCase.dtype));
    endPass(run, "backward");
    results.set(`${step} result`, { x: y.wide, heldDimension: flow, pieces: 1 });
    results.set(`${step} dx`, { x: x.grad as Matrix, heldDimension: flow, pieces: 1 });
    if (memory) results.set(`${step} dmemory`, { x: memory.grad as Matrix, heldDimension: flow, pieces: 1 });
    for (const [name, , heldDimension, pieces] of rows) {
      const parameter = parameterOf(name) as ParameterModel;
      const { grad, mainGrad } = parameter;
      if (grad) results.set(`${step} ${name} grad`, { x: grad, heldDimension: heldDimension, pieces });
      if (mainGrad)
        results.set(`${step} ${name} mainGrad`, {
          x: { ...mainGrad, data: mainGrad.data.slice() },
          heldDimension: heldDimension,
          pieces,
        });
      parameter.grad = undefined;
    }
  }
  return results;
}

/** A rank's part of a full tensor. */
export function partOn(
  { ranks, sequence }: RanksCase,
  { x, heldDimension: ranksCase, pieces }: Whole,
  rank: number,
): Matrix {
  return partOf(x, ranksCase, { ranks, mode: "column", pieces, sequence }, rank);
}

function makeModule(ranksCase: RanksCase, group: ProcessGroup, initMethod: () => Float32Array) {
  const options: MultiheadAttentionOptions = {
    ...(ranksCase.ranks > 1 ? { group, sequenceParallel: ranksCase.sequence } : {}),
    ...{
      dtype: ranksCase.dtype,
      bias: ranksCase.bias,
      numGqaGroups: ranksCase.groups,
      kvChannels: widthOf(ranksCase),
    },
    ...{ fuseQkvParams: ranksCase.weights !== "separate", qkvWeightInterleaved: isInterleaved(ranksCase) },
    ...(ranksCase.qkNorm === "none" ? {} : { qkNormType: ranksCase.qkNorm }),
    ...(ranksCase.narrow ? { windowSize: [2, 0] as const, softcap: softcapOf(ranksCase) } : {}),
    ...{ softmaxType: ranksCase.softmaxType, attentionDropout: ranksCase.drops ? 0.3 : 0 },
    ...{ fuseWgradAccumulation: ranksCase.fuses, random: new RandomState(SEED) },
    initMethod: (random) => {
      random.next();
      return initMethod();
    },
    outputLayerInitMethod: (random) => {
      random.next();
      return initMethod();
    },
  };
  const { backend } = group;
  if (!isLayer(ranksCase))
    return new MultiheadAttention(backend, HIDDEN, HEADS, {
      ...options,
      qkvFormat: ranksCase.layout,
      inputLayernorm: ranksCase.inputNorm,
      attentionType: ranksCase.module === "cross" ? "cross" : "self",
    });
  return new TransformerLayer(backend, HIDDEN, ffnOf(ranksCase), HEADS, {
    ...options,
    ...{
      attnInputFormat: ranksCase.layout,
      hiddenDropout: hiddenDropoutOf(ranksCase),
      activation: ACTIVATION,
    },
    parallelAttentionMlp: ranksCase.module === "layer, parallel",
    outputLayernorm: ranksCase.module === "layer, norm of the result",
  });
}

type NamedTensors = readonly (readonly [name: string, x: Tensor, shape: readonly [number, number]])[];

/** Runs the program of one rank. The promise resolves when the results have been read. */
export async function rankResults(
  ranksCase: RanksCase,
  group: ProcessGroup,
): Promise<ReadonlyMap<string, Matrix>> {
  const tensors = program(ranksCase, group);
  const matrices = new Map<string, Matrix>();
  for (const [name, x, shape] of tensors) matrices.set(name, await readMatrix(x, shape));
  for (const [, x] of tensors) x.dispose();
  return matrices;
}

function program(ranksCase: RanksCase, group: ProcessGroup): NamedTensors {
  const { backend, rank } = group;
  const rows = parametersOf(ranksCase);
  const valuesOf = (name: string): Matrix => {
    const i = rows.findIndex(([parameterName]) => parameterName === name);
    return values(i, (rows[i] as Row)[1], typeOf(ranksCase, name));
  };
  const weights = rows.map(([name]) => name).filter(isWeight);
  let count = 0;
  using scope = new Scope();
  using module = makeModule(ranksCase, group, () => valuesOf(weights[count++] as string).data);
  const named = module.namedParameters();
  if (
    [...named.keys()].sort().join() !==
    rows
      .map(([name]) => name)
      .toSorted()
      .join()
  )
    throw new Error(`the module has ${[...named.keys()]}; the model has ${rows.map(([name]) => name)}`);
  const partShape = ([, shape, heldDimension, pieces]: Row): readonly [number, number] =>
    partOn(
      ranksCase,
      { x: { data: new Float32Array(shape[0] * shape[1]), shape, dtype: "f32" }, heldDimension, pieces },
      rank,
    ).shape;
  for (const row of rows) {
    const [name, , heldDimension, pieces] = row;
    const parameter = named.get(name);
    if (!parameter) continue;
    if (isWeight(name)) {
      if (ranksCase.fuses)
        parameter.mainGrad = wideTensor(
          backend,
          new Float32Array(parameter.tensor.size),
          parameter.shape,
          "f32",
        ) as Tensor<"f32">;
      continue;
    }
    const part = partOn(ranksCase, { x: valuesOf(name), heldDimension, pieces }, rank);
    using ownValues = wideTensor(backend, part.data, parameter.shape, typeOf(ranksCase, name));
    parameter.tensor.write(ownValues.dataSync());
  }
  const flow: HeldDimension = ranksCase.sequence ? "rows" : "all";
  const upload = (number: number): Tensor => {
    const part = partOn(
      ranksCase,
      { x: values(number, INPUT, ranksCase.dtype), heldDimension: flow, pieces: 1 },
      rank,
    );
    const [firstSize, secondSize] = ranksCase.layout === "sbhd" ? [LENGTH, BATCH] : [BATCH, LENGTH];
    const shape = [ranksCase.sequence ? firstSize / ranksCase.ranks : firstSize, secondSize, HIDDEN];
    return wideTensor(backend, part.data, shape, ranksCase.dtype);
  };
  const recipe = libraryRecipe(
    RECIPES[ranksCase.recipe],
    attentionRecipe(ranksCase) ? ranksCase.attention : "wide",
  );
  const tensors: (readonly [string, Tensor, readonly [number, number]])[] = [];
  for (let step = 0; step < stepsOf(ranksCase); step++) {
    using inner = new Scope();
    const x = new Variable(upload(NUMBERS.x + step), true);
    const memory =
      ranksCase.module === "cross" ? new Variable(upload(NUMBERS.memory + step), true) : undefined;
    const call = {
      checkpointCoreAttention: ranksCase.checkpoints,
      ...(memory ? { encoderOutput: memory } : {}),
      ...(ranksCase.module === "cross" ? { attnMaskType: "causal" as const } : {}),
    };
    const y = autocast(recipe ? { recipe } : { enabled: false }, () => module.forward(x, call));
    y.backward(upload(NUMBERS.grad + step));
    const see = (name: string, tensor: Tensor | undefined, shape: readonly [number, number]): void => {
      if (tensor) tensors.push([`${step} ${name}`, inner.keep(tensor.clone()), shape]);
    };
    const flattenRows = ({ shape }: Tensor): readonly [number, number] => [
      (shape[0] as number) * (shape[1] as number),
      HIDDEN,
    ];
    see("result", y.tensor, flattenRows(y.tensor));
    see("dx", x.grad, flattenRows(y.tensor));
    see("dmemory", memory?.grad, flattenRows(y.tensor));
    for (const row of rows) {
      const parameter = named.get(row[0]);
      see(`${row[0]} grad`, parameter?.grad, partShape(row));
      see(`${row[0]} mainGrad`, parameter?.mainGrad, partShape(row));
      parameter?.zeroGrad();
    }
    x.zeroGrad();
    memory?.zeroGrad();
  }
  for (const [, x] of tensors) scope.keep(x);
  return tensors;
}
