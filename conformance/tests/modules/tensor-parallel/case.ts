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
import { type Held, partOf, readMatrix } from "./ranks.js";

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

export function parallelCase(most: number, names: readonly RecipeName[]): fc.Arbitrary<ParallelCase> {
  return fc
    .record({
      layer: fc.constantFrom("column", "row", "norm", "mlp"),
      recipe: fc.constantFrom(...names),
      ranks: fc.oneof(
        { weight: 3, arbitrary: fc.integer({ min: 1, max: 3 }) },
        fc.integer({ min: 1, max: most }),
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
      outlier: fc.option(fc.nat(most - 1), { nil: undefined }),
      seed: fc.nat(),
    })
    .map(({ rowUnits, wholeRows, rowsOfRank, across, along, ...rest }) => {
      const kind = kindOf(rest.recipe);
      const unit = UNITS[kind];
      const ranks = kind === "block" ? Math.min(rest.ranks, 2) : rest.ranks;
      const wide = ranks * unit > 32;
      const rows = ranks * (wholeRows && unit <= 32 && !wide ? unit * rowUnits : rowsOfRank);
      const divides = rest.layer === "row" ? "in" : "out";
      // each piece is divided into complete blocks, which requires many columns
      const pieces = rest.layer === "row" || rest.layer === "mlp" || wide ? 1 : rest.pieces;
      const times = pieces > 1 ? pieces : across;
      const [divided, other] = wide ? [unit * ranks, unit] : [unit * ranks * times, unit * along];
      return {
        ...rest,
        ranks,
        rows,
        pieces,
        outlier: rest.outlier === undefined ? undefined : rest.outlier % ranks,
        savesOriginal: rest.savesOriginal && kind !== "delayed",
        dtype: kind === "nvfp4" ? "bf16" : rest.dtype,
        inFeatures: divides === "in" ? divided : other,
        outFeatures: divides === "in" ? other : divided,
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
  readonly x: Held;
  readonly out: Held;
  readonly outWidth: number;
  /** The shape of each parameter, in order, and how it is divided among ranks. */
  readonly parameters: readonly (readonly [
    name: string,
    shape: readonly [number, number],
    held: Held,
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
  const flow: Held = sequence ? "rows" : "all";
  const gamma = ["layerNormWeight", [1, k], "all", 1] as const;
  const beta = ["layerNormBias", [1, k], "all", 1] as const;
  const norms: Form["parameters"] = normalization === "LayerNorm" ? [gamma, beta] : [gamma];
  const biased = (all: Form["parameters"]): Form["parameters"] =>
    bias ? all : all.filter(([name]) => !/^(bias|fc\dBias)$/.test(name));
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
    const at = (outlier * rows) / ranks;
    data[at * columns + (outlier * columns) / ranks] = 1e4;
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
export type Whole = ReadonlyMap<string, { readonly x: Matrix; readonly held: Held; readonly by: Pieces }>;

/** The expected results, from the model on one rank. Its products use the plans that the divided layer declares. */
export function modelled(drawn: ParallelCase, family: Run["family"]): Whole {
  const { layer, ranks, sequence, rows, activation, bias, dtype, fuses, recipe } = drawn;
  const form = formOf(drawn);
  const seen = new Map<string, { x: Matrix; held: Held; by: Pieces }>();
  const run: Run = {
    family,
    random: { seed: BigInt(drawn.seed), offset: layer === "mlp" ? 2n : 1n },
    recipe: undefined,
    usedSlots: { forward: new Set(), backward: new Set() },
  };
  const parameters = new Map<string, ParameterModel>();
  form.parameters.forEach(([name, shape], i) => {
    parameters.set(
      name,
      new Value(
        values({ ...drawn, outlier: name.includes("eight") ? drawn.outlier : undefined }, i, shape, dtype),
        true,
      ),
    );
  });
  const at = (name: string): ParameterModel => parameters.get(name) as ParameterModel;
  const linearOf = (prefix: string, mode: "column" | "row", pieces = 1): LinearModel => {
    const called = (label: string): string => (prefix ? prefix + label : label.toLowerCase());
    const weight = at(called("Weight"));
    if (fuses)
      weight.mainGrad = { ...weight.wide, dtype: "f32", data: new Float32Array(weight.wide.data.length) };
    const divided = ranks > 1 ? dividedBy(drawn, mode, pieces) : undefined;
    return new LinearModel(weight, bias ? at(called("Bias")) : undefined, fuses, divided);
  };
  const normOf = () => ({
    gamma: at("layerNormWeight"),
    beta: parameters.get("layerNormBias"),
    eps: 1e-5,
    zeroCenteredGamma: false,
    ranks: sequence ? ranks : 1,
  });
  const act = ACTIVATIONS[activation];
  const apply = ((): ((tape: Tape, x: Value, call: CallModel) => Value) => {
    if (layer === "mlp") {
      const parts = {
        norm: normOf(),
        fc1: linearOf("fc1", "column", form.pieces),
        fc2: linearOf("fc2", "row"),
        act,
      };
      return (tape, x, call) => mlp(run, tape, x, parts, call);
    }
    if (layer === "norm") {
      const parts = { norm: normOf(), layer: linearOf("", "column", form.pieces) };
      return (tape, x, call) => normLinear(run, tape, x, parts, call, false)[0] as Value;
    }
    const own = linearOf("", layer, form.pieces);
    return (tape, x, call) => linear(run, tape, x, own, call);
  })();
  for (let step = 0; step < STEPS; step++) {
    const tape = new Tape();
    run.recipe = RECIPES[recipe];
    const x = new Value(values(drawn, 100 + step, [rows, drawn.inFeatures], dtype), true);
    const y = apply(tape, x, callOf(drawn, step));
    run.recipe = undefined;
    endPass(run, "forward");
    tape.backward(y, values(drawn, 200 + step, [rows, form.outWidth], dtype));
    endPass(run, "backward");
    const see = (name: string, made: Matrix, held: Held, by: Pieces): unknown =>
      seen.set(`${step} ${name}`, { x: made, held, by });
    see("result", y.wide, form.out, resultPieces(drawn));
    see("dx", x.grad as Matrix, form.x, 1);
    for (const [name, , held, by] of form.parameters) {
      const { grad, mainGrad } = at(name);
      if (grad) see(`${name} grad`, grad, held, by);
      if (mainGrad) see(`${name} mainGrad`, { ...mainGrad, data: mainGrad.data.slice() }, held, by);
      at(name).grad = undefined;
    }
    if (drawn.rewrites)
      form.parameters.forEach(([name, shape], i) => {
        if (isWeight(name)) at(name).data = values(drawn, 300 + i, shape, dtype);
      });
  }
  return seen;
}

function makeLayer(
  drawn: ParallelCase,
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
  } = drawn;
  const { parameters } = formOf(drawn);
  const weights = parameters.filter(([name]) => /^(weight|fc\dWeight)$/.test(name));
  let made = 0;
  const initMethod = (random: RandomState): Float32Array => {
    random.next();
    const [name, shape] = weights[made++] as Form["parameters"][number];
    return values(
      drawn,
      parameters.findIndex(([each]) => each === name),
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
      random: new RandomState(BigInt(drawn.seed)),
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

type Kept = readonly (readonly [name: string, x: Tensor, shape: readonly [number, number]])[];

/** Runs the program of one rank. The promise resolves when the results have been read. */
export function ranked(drawn: ParallelCase, group: ProcessGroup): Promise<ReadonlyMap<string, Matrix>> {
  return readAll(program(drawn, group));
}

async function readAll(kept: Kept): Promise<ReadonlyMap<string, Matrix>> {
  const seen = new Map<string, Matrix>();
  for (const [name, x, shape] of kept) seen.set(name, await readMatrix(x, shape));
  for (const [, x] of kept) x.dispose();
  return seen;
}

function program(drawn: ParallelCase, group: ProcessGroup): Kept {
  const { dtype, rows, inFeatures, fuses, recipe, ranks, sequence } = drawn;
  const form = formOf(drawn);
  const { backend, rank } = group;
  using scope = new Scope();
  using layer = makeLayer(drawn, group);
  const part = (x: Matrix, held: Held, by: number): Matrix =>
    partOf(x, held, { ranks, mode: "column", pieces: by, sequence }, rank);
  const upload = (x: Matrix): Tensor<WideDType> => wideTensor(backend, x.data, x.shape, dtype);
  const named = layer.namedParameters();
  form.parameters.forEach(([name, shape, held, by], i) => {
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
    const outlier = name.includes("eight") ? drawn.outlier : undefined;
    using own = upload(part(values({ ...drawn, outlier }, i, shape, dtype), held, by));
    parameter.tensor.write(own.dataSync());
  });
  // another custom recipe would drop the cached weights
  const own = libraryRecipe(RECIPES[recipe]);
  const kept: (readonly [string, Tensor, readonly [number, number]])[] = [];
  const keep = (name: string, x: Tensor): void => {
    const [columns, ...leading] = [...x.shape].reverse();
    kept.push([name, x, [leading.reduce((a, b) => a * b, 1), columns as number]]);
  };
  for (let step = 0; step < STEPS; step++) {
    using inner = new Scope();
    const x = new Variable(
      upload(part(values(drawn, 100 + step, [rows, inFeatures], dtype), form.x, 1)),
      true,
    );
    const forward = (input: Variable): Variable => layer.forward(input, callOf(drawn, step));
    const y = autocast(own ? { recipe: own } : { enabled: false }, () =>
      drawn.calls[step] === "recomputed" ? recompute(forward, x) : forward(x),
    );
    y.backward(
      upload(part(values(drawn, 200 + step, [rows, form.outWidth], dtype), form.out, resultPieces(drawn))),
    );
    if (drawn.delays) layer.backwardDw();
    const see = (name: string, tensor: Tensor | undefined): void => {
      if (tensor) keep(`${step} ${name}`, inner.keep(tensor.clone()));
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
    if (drawn.rewrites)
      form.parameters.forEach(([name, shape, held, by], i) => {
        if (!isWeight(name)) return;
        named.get(name)?.tensor.paste(upload(part(values(drawn, 300 + i, shape, dtype), held, by)), 0);
      });
  }
  for (const [, x] of kept) scope.keep(x);
  return kept;
}
