/** Drawn layers that are divided among ranks, as a model on one rank in plain arithmetic and in the library on all ranks. */
import fc from "fast-check";
import { autocast } from "../../../../src/autocast.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import type { LinearCall } from "../../../../src/modules/linear/parts.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { wideTensor } from "../../../../src/modules/parameter.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import type { DivisionModel } from "../../../oracle/training/divided.js";
import { linear, mlp, normLinear } from "../../../oracle/training/layers.js";
import {
  type CallModel,
  endPass,
  LinearModel,
  type ParameterModel,
  type Run,
} from "../../../oracle/training/linear.js";
import { cast, type Matrix } from "../../../oracle/training/matrix.js";
import { Tape, Value } from "../../../oracle/training/tape.js";
import { libraryRecipe } from "../../harness/step/library-recipes.js";
import { ACTIVATIONS, RECIPES, type RecipeName, type StepActivation } from "../../harness/step/options.js";
import { type HeldDimension, partOf, readMatrix } from "./ranks.js";

export interface ParallelCase {
  readonly layer: "column" | "row" | "norm" | "mlp";
  readonly recipe: RecipeName;
  readonly ranks: number;
  readonly sequence: boolean;
  readonly overlap: boolean;
  readonly rows: number;
  readonly inFeatures: number;
  readonly outFeatures: number;
  /** The number of tensors that are concatenated along the columns of a column-parallel result. */
  readonly pieces: 1 | 3;
  readonly activation: StepActivation;
  readonly normalization: "LayerNorm" | "RMSNorm";
  readonly bias: boolean;
  readonly dtype: "bf16" | "f32";
  readonly fuses: boolean;
  readonly savesOriginal: boolean;
  /** Whether gradients of weights are computed after the backward pass. */
  readonly delays: boolean;
  /** How each step uses the weight: quantized for this call only, quantized and cached, or taken from the cache. */
  readonly calls: readonly ("alone" | "first" | "later" | "recomputed")[];
  /** Whether the weights change after the first step. */
  readonly rewrites: boolean;
  /** The rank whose rows and columns have an element of 1e4, if any. */
  readonly outlier: number | undefined;
  readonly seed: number;
}

/** For each quantizer, the multiple of a divided size with which no block crosses the boundary between ranks. */
const UNITS = { delayed: 16, current: 16, block: 128, mxfp8: 32, nvfp4: 16, custom: 32, none: 16 } as const;
const STEPS = 2;

const kindOf = (recipe: RecipeName) => RECIPES[recipe]?.kind ?? "none";

export function parallelCase(maxRanks: number, names: readonly RecipeName[]): fc.Arbitrary<ParallelCase> {
  return fc
    .record({
      layer: fc.constantFrom("column", "row", "norm", "mlp"),
      recipe: fc.constantFrom(...names),
      ranks: fc.oneof(
        { weight: 3, arbitrary: fc.integer({ min: 1, max: 3 }) },
        fc.integer({ min: 1, max: maxRanks }),
      ),
      sequence: fc.boolean(),
      overlap: fc.boolean(),
      rowUnits: fc.integer({ min: 1, max: 2 }),
      /** Whether the rows of a rank consist of complete blocks. Otherwise rows are gathered before they are quantized. */
      wholeRows: fc.boolean(),
      /** A number of rows of a rank that does not consist of complete blocks. */
      rowsOfRank: fc.integer({ min: 1, max: 12 }),
      across: fc.integer({ min: 1, max: 2 }),
      along: fc.integer({ min: 1, max: 2 }),
      pieces: fc.constantFrom<1 | 3>(1, 3),
      activation: fc.constantFrom(...(Object.keys(ACTIVATIONS) as StepActivation[])),
      normalization: fc.constantFrom("LayerNorm", "RMSNorm"),
      bias: fc.boolean(),
      dtype: fc.constantFrom("bf16", "f32"),
      fuses: fc.boolean(),
      savesOriginal: fc.boolean(),
      delays: fc.boolean(),
      calls: fc.array(fc.constantFrom("alone", "first", "later", "recomputed"), {
        minLength: STEPS,
        maxLength: STEPS,
      }),
      rewrites: fc.boolean(),
      outlier: fc.option(fc.nat(maxRanks - 1), { nil: undefined }),
      seed: fc.nat(),
    })
    .map(({ rowUnits, wholeRows, rowsOfRank, across: unitsAcross, along: unitsAlong, ...rest }) => {
      const kind = kindOf(rest.recipe);
      const unit = UNITS[kind];
      const ranks = kind === "block" ? Math.min(rest.ranks, 2) : rest.ranks;
      const wide = ranks * unit > 32;
      const rows = ranks * (wholeRows && unit <= 32 && !wide ? unit * rowUnits : rowsOfRank);
      const divides = rest.layer === "row" ? "in" : "out";
      // each piece is divided into complete blocks, which requires many columns
      const pieces = rest.layer === "row" || rest.layer === "mlp" || wide ? 1 : rest.pieces;
      const times = pieces > 1 ? pieces : unitsAcross;
      const [dividedSize, otherSize] = wide
        ? [unit * ranks, unit]
        : [unit * ranks * times, unit * unitsAlong];
      return {
        ...rest,
        ranks,
        rows,
        pieces,
        outlier: rest.outlier === undefined ? undefined : rest.outlier % ranks,
        savesOriginal: rest.savesOriginal && kind !== "delayed",
        dtype: kind === "nvfp4" ? "bf16" : rest.dtype,
        inFeatures: divides === "in" ? dividedSize : otherSize,
        outFeatures: divides === "in" ? otherSize : dividedSize,
      } as ParallelCase;
    });
}

/** The options of the call in a step. */
function callOf({ calls }: ParallelCase, step: number): { readonly isFirstMicrobatch?: boolean } {
  const call = calls[step];
  return call === "first" || call === "later" ? { isFirstMicrobatch: call === "first" } : {};
}

/** Whether a parameter is the weight of a linear product. */
const isWeight = (name: string): boolean => /^(weight|fc\dWeight)$/.test(name);

/** The number of tensors that are concatenated along the divided dimension. */
type Pieces = 1 | 2 | 3;

/** The parameters of a layer, and how each tensor is divided among ranks. */
interface Form {
  readonly pieces: Pieces;
  readonly x: HeldDimension;
  readonly out: HeldDimension;
  readonly outWidth: number;
  /** The shape of each parameter, in order, and how it is divided among ranks. */
  readonly parameters: readonly (readonly [
    name: string,
    shape: readonly [number, number],
    held: HeldDimension,
    by: Pieces,
  ])[];
}

/** The pieces of the columns of a layer's result. */
function resultPieces({ layer, pieces }: ParallelCase): 1 | 3 {
  return layer === "row" || layer === "mlp" ? 1 : pieces;
}

function formOf({
  pieces: columns,
  layer,
  sequence,
  inFeatures: k,
  outFeatures: n,
  activation,
  normalization,
  bias,
}: ParallelCase): Form {
  const flow: HeldDimension = sequence ? "rows" : "all";
  const gamma = ["layerNormWeight", [1, k], "all", 1] as const;
  const beta = ["layerNormBias", [1, k], "all", 1] as const;
  const norms: Form["parameters"] = normalization === "LayerNorm" ? [gamma, beta] : [gamma];
  const biased = (withBias: Form["parameters"]): Form["parameters"] =>
    bias ? withBias : withBias.filter(([name]) => !/^(bias|fc\dBias)$/.test(name));
  if (layer === "row")
    return {
      pieces: 1,
      x: "columns",
      out: flow,
      outWidth: n,
      parameters: biased([
        ["weight", [n, k], "columns", 1],
        ["bias", [1, n], "all", 1],
      ]),
    };
  if (layer === "mlp") {
    const pieces = ACTIVATIONS[activation].gated ? 2 : 1;
    return {
      pieces,
      x: flow,
      out: flow,
      outWidth: k,
      parameters: biased([
        ["fc1Weight", [pieces * n, k], "rows", pieces],
        ["fc1Bias", [1, pieces * n], "columns", pieces],
        ["fc2Weight", [k, n], "columns", 1],
        ["fc2Bias", [1, k], "all", 1],
        ...norms,
      ]),
    };
  }
  return {
    pieces: columns,
    x: flow,
    out: "columns",
    outWidth: n,
    parameters: biased([
      ["weight", [n, k], "rows", columns],
      ["bias", [1, n], "columns", columns],
      ...(layer === "norm" ? norms : []),
    ]),
  };
}

/** The values of a matrix. One value of a chosen rank is far larger than all others. */
function values(
  { seed, outlier, ranks }: ParallelCase,
  number: number,
  [rows, columns]: readonly [number, number],
  dtype: "bf16" | "f32",
): Matrix {
  const data = normal({ seed: BigInt(seed), offset: BigInt(number) }, rows * columns, 0.5);
  if (outlier !== undefined && rows % ranks === 0 && columns % ranks === 0) {
    const row = (outlier * rows) / ranks;
    data[row * columns + (outlier * columns) / ranks] = 1e4;
  }
  return cast({ data, shape: [rows, columns], dtype: "f32" }, dtype);
}

const dividedBy = ({ ranks, sequence }: ParallelCase, mode: "column" | "row", pieces = 1): DivisionModel => ({
  ranks,
  mode,
  pieces,
  sequence,
});

/** All visible results: the result and the gradients of each step, as full tensors. */
export type FullResults = ReadonlyMap<
  string,
  { readonly x: Matrix; readonly held: HeldDimension; readonly pieceCount: Pieces }
>;

/** The expected results, from the model on one rank. Its products use the plans that the divided layer declares. */
export function modelResults(parallelCase: ParallelCase, family: Run["family"]): FullResults {
  const { layer, ranks, sequence, rows, activation, bias, dtype, fuses, recipe } = parallelCase;
  const form = formOf(parallelCase);
  const results = new Map<string, { x: Matrix; held: HeldDimension; pieceCount: Pieces }>();
  const run: Run = {
    family,
    random: { seed: BigInt(parallelCase.seed), offset: layer === "mlp" ? 2n : 1n },
    recipe: undefined,
    usedSlots: { forward: new Set(), backward: new Set() },
  };
  const parameters = new Map<string, ParameterModel>();
  form.parameters.forEach(([name, shape], i) => {
    parameters.set(
      name,
      new Value(
        values(
          { ...parallelCase, outlier: name.includes("eight") ? parallelCase.outlier : undefined },
          i,
          shape,
          dtype,
        ),
        true,
      ),
    );
  });
  const parameterOf = (name: string): ParameterModel => parameters.get(name) as ParameterModel;
  const linearOf = (prefix: string, mode: "column" | "row", pieces = 1): LinearModel => {
    const parameterName = (label: string): string => (prefix ? prefix + label : label.toLowerCase());
    const weight = parameterOf(parameterName("Weight"));
    if (fuses)
      weight.mainGrad = { ...weight.wide, dtype: "f32", data: new Float32Array(weight.wide.data.length) };
    const division = ranks > 1 ? dividedBy(parallelCase, mode, pieces) : undefined;
    return new LinearModel(weight, bias ? parameterOf(parameterName("Bias")) : undefined, fuses, division);
  };
  const normOf = () => ({
    gamma: parameterOf("layerNormWeight"),
    beta: parameters.get("layerNormBias"),
    eps: 1e-5,
    zeroCenteredGamma: false,
    ranks: sequence ? ranks : 1,
  });
  const act = ACTIVATIONS[activation];
  const apply = ((): ((tape: Tape, x: Value, call: CallModel) => Value) => {
    if (layer === "mlp") {
      const modelParts = {
        norm: normOf(),
        fc1: linearOf("fc1", "column", form.pieces),
        fc2: linearOf("fc2", "row"),
        act,
      };
      return (tape, x, call) => mlp(run, tape, x, modelParts, call);
    }
    if (layer === "norm") {
      const modelParts = { norm: normOf(), layer: linearOf("", "column", form.pieces) };
      return (tape, x, call) => normLinear(run, tape, x, modelParts, call, false)[0] as Value;
    }
    const ownLinear = linearOf("", layer, form.pieces);
    return (tape, x, call) => linear(run, tape, x, ownLinear, call);
  })();
  for (let step = 0; step < STEPS; step++) {
    const tape = new Tape();
    run.recipe = RECIPES[recipe];
    const x = new Value(values(parallelCase, 100 + step, [rows, parallelCase.inFeatures], dtype), true);
    const y = apply(tape, x, callOf(parallelCase, step));
    run.recipe = undefined;
    endPass(run, "forward");
    tape.backward(y, values(parallelCase, 200 + step, [rows, form.outWidth], dtype));
    endPass(run, "backward");
    const see = (name: string, matrix: Matrix, heldDimension: HeldDimension, pieceCount: Pieces): unknown =>
      results.set(`${step} ${name}`, { x: matrix, held: heldDimension, pieceCount });
    see("result", y.wide, form.out, resultPieces(parallelCase));
    see("dx", x.grad as Matrix, form.x, 1);
    for (const [name, , heldDimension, pieceCount] of form.parameters) {
      const { grad, mainGrad } = parameterOf(name);
      if (grad) see(`${name} grad`, grad, heldDimension, pieceCount);
      if (mainGrad)
        see(`${name} mainGrad`, { ...mainGrad, data: mainGrad.data.slice() }, heldDimension, pieceCount);
      parameterOf(name).grad = undefined;
    }
    if (parallelCase.rewrites)
      form.parameters.forEach(([name, shape], i) => {
        if (isWeight(name)) parameterOf(name).data = values(parallelCase, 300 + i, shape, dtype);
      });
  }
  return results;
}

function makeLayer(
  parallelCase: ParallelCase,
  group: ProcessGroup,
): Module & { forward(x: Variable, call?: LinearCall): Variable } {
  const {
    layer,
    pieces,
    inFeatures,
    outFeatures,
    sequence,
    overlap,
    activation,
    normalization,
    bias,
    dtype,
    fuses,
    savesOriginal,
    delays,
  } = parallelCase;
  const { parameters } = formOf(parallelCase);
  const weights = parameters.filter(([name]) => /^(weight|fc\dWeight)$/.test(name));
  let parameterCount = 0;
  const initMethod = (random: RandomState): Float32Array => {
    random.next();
    const [name, shape] = weights[parameterCount++] as Form["parameters"][number];
    return values(
      parallelCase,
      parameters.findIndex(([parameterName]) => parameterName === name),
      shape,
      dtype,
    ).data;
  };
  const options = {
    ...{
      group,
      sequenceParallel: sequence,
      overlap,
      bias,
      dtype,
      initMethod,
      random: new RandomState(BigInt(parallelCase.seed)),
    },
    ...{ fuseWgradAccumulation: fuses, saveOriginalInput: savesOriginal },
    delayWgradCompute: delays,
  };
  if (layer === "mlp")
    return new LayerNormMLP(group.backend, inFeatures, outFeatures, {
      ...options,
      outputLayerInitMethod: initMethod,
      activation,
      normalization,
    });
  if (layer === "norm")
    return new LayerNormLinear(group.backend, inFeatures, outFeatures, {
      ...options,
      parallelMode: "column",
      pieces,
      normalization,
    });
  return new Linear(group.backend, inFeatures, outFeatures, { ...options, parallelMode: layer, pieces });
}

type NamedTensors = readonly (readonly [name: string, x: Tensor, shape: readonly [number, number]])[];

/** Runs the program of one rank. The promise resolves when the results have been read. */
export function resultsOfRank(
  parallelCase: ParallelCase,
  group: ProcessGroup,
): Promise<ReadonlyMap<string, Matrix>> {
  return readAll(program(parallelCase, group));
}

async function readAll(tensors: NamedTensors): Promise<ReadonlyMap<string, Matrix>> {
  const matrices = new Map<string, Matrix>();
  for (const [name, x, shape] of tensors) matrices.set(name, await readMatrix(x, shape));
  for (const [, x] of tensors) x.dispose();
  return matrices;
}

function program(parallelCase: ParallelCase, group: ProcessGroup): NamedTensors {
  const { dtype, rows, inFeatures, fuses, recipe, ranks, sequence } = parallelCase;
  const form = formOf(parallelCase);
  const { backend, rank } = group;
  using scope = new Scope();
  using layer = makeLayer(parallelCase, group);
  const part = (x: Matrix, heldDimension: HeldDimension, pieceCount: number): Matrix =>
    partOf(x, heldDimension, { ranks, mode: "column", pieces: pieceCount, sequence }, rank);
  const upload = (x: Matrix): Tensor<WideDType> => wideTensor(backend, x.data, x.shape, dtype);
  const named = layer.namedParameters();
  form.parameters.forEach(([name, shape, heldDimension, pieceCount], i) => {
    const parameter = named.get(name);
    if (!parameter) throw new Error(`there is no ${name}`);
    if (isWeight(name)) {
      if (fuses)
        parameter.mainGrad = wideTensor(
          backend,
          new Float32Array(parameter.tensor.size),
          parameter.shape,
          "f32",
        ) as Tensor<"f32">;
      return;
    }
    const outlier = name.includes("eight") ? parallelCase.outlier : undefined;
    using ownValues = upload(
      part(values({ ...parallelCase, outlier }, i, shape, dtype), heldDimension, pieceCount),
    );
    parameter.tensor.write(ownValues.dataSync());
  });
  // another custom recipe would drop the cached weights
  const ownRecipe = libraryRecipe(RECIPES[recipe]);
  const tensors: (readonly [string, Tensor, readonly [number, number]])[] = [];
  const keepTensor = (name: string, x: Tensor): void => {
    const [columns, ...leading] = [...x.shape].reverse();
    tensors.push([name, x, [leading.reduce((a, b) => a * b, 1), columns as number]]);
  };
  for (let step = 0; step < STEPS; step++) {
    using inner = new Scope();
    const x = new Variable(
      upload(part(values(parallelCase, 100 + step, [rows, inFeatures], dtype), form.x, 1)),
      true,
    );
    const forward = (input: Variable): Variable => layer.forward(input, callOf(parallelCase, step));
    const y = autocast(ownRecipe ? { recipe: ownRecipe } : { enabled: false }, () =>
      parallelCase.calls[step] === "recomputed" ? recompute(forward, x) : forward(x),
    );
    y.backward(
      upload(
        part(
          values(parallelCase, 200 + step, [rows, form.outWidth], dtype),
          form.out,
          resultPieces(parallelCase),
        ),
      ),
    );
    if (parallelCase.delays) layer.backwardDw();
    const see = (name: string, tensor: Tensor | undefined): void => {
      if (tensor) keepTensor(`${step} ${name}`, inner.keep(tensor.clone()));
    };
    see("result", y.tensor);
    see("dx", x.grad);
    for (const [name] of form.parameters) {
      const parameter = named.get(name);
      see(`${name} grad`, parameter?.grad);
      see(`${name} mainGrad`, parameter?.mainGrad);
      parameter?.zeroGrad();
    }
    x.zeroGrad();
    if (parallelCase.rewrites)
      form.parameters.forEach(([name, shape, heldDimension, pieceCount], i) => {
        if (!isWeight(name)) return;
        named
          .get(name)
          ?.tensor.paste(
            upload(part(values(parallelCase, 300 + i, shape, dtype), heldDimension, pieceCount)),
            0,
          );
      });
  }
  for (const [, x] of tensors) scope.keep(x);
  return tensors;
}
