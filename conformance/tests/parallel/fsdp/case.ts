/** Small networks that are trained with sharded parameters, with data parallelism, and by one process. */
import * as fc from "fast-check";
import type { Backend } from "../../../../src/backends/backend.js";
import {
  AdamW,
  autocast,
  Embedding,
  encode,
  Float8CurrentScaling,
  functional,
  LayerNorm,
  LayerNormLinear,
  LayerNormMLP,
  Linear,
  type LinearCall,
  Module,
  noGrad,
  normal,
  type Optimizer,
  quantizedModelInit,
  RandomState,
  type Recipe,
  recompute,
  Scope,
  SGD,
  type Tensor,
  tensor,
  type Variable,
  type WideDType,
  zeros,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { RECIPE_NAMES, RECIPES_UNDER_TEST, type RecipeName } from "../../harness/training/run.js";

const LAYERS = ["linear", "bare", "norm", "normed", "mlp"] as const;
const ROWS = 32;
const VOCABULARY = 11;

/** The way in which the passes of one step run, and the actions after them. */
export interface Turn {
  /** Whether each pass reduces its gradients. Otherwise the last pass of a step reduces the gradients of all. */
  readonly synced: boolean;
  /** `isFirstMicrobatch` of the first pass. If it is set, it is false in the other passes. */
  readonly first: boolean | undefined;
  /** The value of the flag `skipFp8WeightUpdate` of all passes except the first. */
  readonly skip: 0 | 1 | undefined;
  /** Whether the passes run under another recipe, or outside of one. */
  readonly otherRecipe: boolean;
  readonly end: "step" | "noop" | "scaled" | "clipped" | "none";
  readonly zeroes: boolean;
  /** Whether all state is saved after the step, or restored from the last save. */
  readonly state: "kept" | "saved" | "loaded";
}

/** The default turn: weights are cached if the case says so. */
const PLAIN: Turn = {
  ...{ synced: false, first: undefined, skip: undefined, otherRecipe: false },
  ...{ end: "step", zeroes: true, state: "kept" },
};

export function turnOf({ settings = [] }: Case, step: number): Turn {
  return settings[step % Math.max(settings.length, 1)] ?? PLAIN;
}

const ADAMW = { learningRate: 0.01, weightDecay: 0.01 };
const OPTIMIZERS = {
  sgd: (model: Module) => new SGD(model, { learningRate: 0.1 }),
  momentum: (model: Module) => new SGD(model, { learningRate: 0.1, momentum: 0.9 }),
  "momentum of f16": (model: Module) =>
    new SGD(model, { learningRate: 0.1, momentum: 0.9, momentumDtype: "f16", masterWeightDtype: "f16" }),
  adamw: (model: Module) => new AdamW(model, ADAMW),
  "adamw with remainders": (model: Module) => new AdamW(model, { ...ADAMW, storeParamRemainders: true }),
  "adamw of e4m3": (model: Module) =>
    new AdamW(model, { ...ADAMW, expAvgDtype: "e4m3", expAvgSqDtype: "f16", masterWeightDtype: "f16" }),
} as const;

export interface Case {
  readonly ranks: number;
  /** The number of ranks that have the same rows. If it is set, `fullyShard` takes a mesh. */
  readonly replicate?: number;
  readonly recipe: RecipeName;
  readonly dtype: "f32" | "bf16";
  readonly layers: readonly (typeof LAYERS)[number][];
  /** The number of rows of the hidden weights. It need not be divisible by the number of ranks. */
  readonly width: number;
  readonly optimizer: keyof typeof OPTIMIZERS;
  /** Whether weights are stored in quantized form. */
  readonly quantized: boolean;
  readonly recomputes: boolean;
  readonly microbatches: number;
  /** Whether quantized weights are cached over the microbatches of a step. */
  readonly caches: boolean;
  readonly frozen: readonly boolean[];
  readonly reduction: "sum" | "mean";
  readonly rowMultiple: number;
  /** The layers that a pass calls, in order. Passes take turns. If empty, each pass calls all layers in order. */
  readonly orders: readonly (readonly number[])[];
  /** The layers that are called between the steps, without a backward pass. */
  readonly evaluated: readonly number[];
  /** Whether the gradients of the weights of linear layers are added to an f32 `mainGrad`. Default false. */
  readonly fuses?: boolean;
  /**
   * When `backwardDw` computes gradients of weights: after each pass, of the model or of one layer after another, or after all
   * passes of a step. Default: it does not.
   */
  readonly delays?: "pass" | "layers" | "step" | undefined;
  /** The actions of the steps, cyclically. Default: each step updates all parameters and releases their gradients. */
  readonly settings?: readonly Turn[];
}

const ORDER = fc.array(fc.nat(5), { maxLength: 4 });

export const cases: fc.Arbitrary<Case> = fc
  .record({
    ranks: fc.integer({ min: 1, max: 8 }),
    recipe: fc.constantFrom(...RECIPE_NAMES),
    dtype: fc.constantFrom("f32", "bf16"),
    layers: fc.array(fc.constantFrom(...LAYERS), { minLength: 1, maxLength: 2 }),
    width: fc.constantFrom(32, 64, 96, 160),
    optimizer: fc.constantFrom(
      "sgd",
      "momentum",
      "adamw",
      "momentum of f16",
      "adamw with remainders",
      "adamw of e4m3",
    ),
    quantized: fc.boolean(),
    recomputes: fc.boolean(),
    microbatches: fc.integer({ min: 1, max: 2 }),
    caches: fc.boolean(),
    frozen: fc.array(fc.boolean(), { maxLength: 3 }),
    reduction: fc.constantFrom("sum", "mean"),
    rowMultiple: fc.constantFrom(1, 16, 32, 128),
    orders: fc.array(ORDER, { maxLength: 3 }),
    evaluated: ORDER,
    fuses: fc.boolean(),
    delays: fc.constantFrom(undefined, "pass", "layers", "step"),
  } as const)
  .map((choices) => ({
    ...choices,
    // the Hadamard transform accepts only bf16
    dtype: choices.recipe === "nvfp4" ? "bf16" : choices.dtype,
    quantized: choices.quantized && choices.recipe !== "bf16",
  }));

/** A network of an embedding, layers of the drawn kinds, and an output layer. */
class Network extends Module {
  readonly #table: Embedding;
  readonly layers: readonly (Linear | LayerNormLinear | LayerNormMLP | LayerNorm)[];
  readonly #given: Case;

  constructor(backend: Backend, testCase: Case) {
    super(backend);
    const options = { dtype: testCase.dtype, random: new RandomState(5n) };
    const { width, fuses = false, delays } = testCase;
    const linear = { ...options, fuseWgradAccumulation: fuses, delayWgradCompute: delays !== undefined };
    this.#given = testCase;
    this.#table = this.addModule("table", new Embedding(backend, VOCABULARY, width, options));
    this.layers = testCase.layers.map((kind, i) => {
      const layer =
        kind === "norm"
          ? new LayerNorm(backend, width, options)
          : kind === "normed"
            ? new LayerNormLinear(backend, width, width, linear)
            : kind === "mlp"
              ? new LayerNormMLP(backend, width, 64, { ...linear, activation: "swiglu" })
              : new Linear(backend, width, width, { ...linear, bias: kind === "linear" });
      return this.addModule(`layer${i}`, layer);
    });
  }

  forward(ids: Tensor, call: LinearCall, order: readonly number[]): Variable {
    let x = this.#table.forward(ids);
    const layers = order.map((i) => this.layers[i % this.layers.length]);
    for (const layer of layers.length > 0 ? layers : this.layers) {
      if (!layer) continue;
      const run = (input: Variable): Variable =>
        layer instanceof LayerNorm ? layer.forward(input) : layer.forward(input, call);
      x = this.#given.recomputes ? recompute(run, x) : run(x);
    }
    return x;
  }
}

/** The network, the optimizer and the recipe of one rank. */
export class Replica {
  readonly model: Network;
  readonly #recipes: readonly (Recipe | undefined)[];

  constructor(
    readonly backend: Backend,
    readonly given: Case,
  ) {
    const make = RECIPES_UNDER_TEST[given.recipe];
    // a quantized weight has the codes of one recipe; in one process, a rank cannot read a history before all ranks have
    // reduced it
    const isFixed = given.quantized || given.recipe === "delayed";
    this.#recipes = [make?.(), isFixed ? undefined : new Float8CurrentScaling({ pow2Scales: true })];
    this.model = quantizedModelInit(
      { enabled: given.quantized, ...(make ? { recipe: make() } : {}) },
      () => new Network(backend, given),
    );
    const { frozen } = given;
    for (const [i, parameter] of this.model.parameters().entries())
      parameter.requiresGrad = frozen[i] !== true;
  }

  /** Creates the optimizer, and the `mainGrad` of each weight that has one. Call it after `fullyShard`. */
  optimizer(): Optimizer {
    const { optimizer } = this.given;
    for (const parameter of this.model.parameters())
      if (parameter.fusesAccumulation)
        parameter.mainGrad = persistent(zeros(this.backend, "f32", parameter.shape));
    return OPTIMIZERS[optimizer](this.model);
  }

  /** Returns the options of a call in the pass with this index in the step. */
  #call(step: number, index: number): LinearCall {
    const { first, skip } = turnOf(this.given, step);
    if (this.given.settings === undefined) return this.given.caches ? { isFirstMicrobatch: index === 0 } : {};
    if (index === 0) return first === undefined ? {} : { isFirstMicrobatch: first };
    if (skip !== undefined) return { skipFp8WeightUpdate: tensor(this.backend, [skip]) };
    return first === undefined ? {} : { isFirstMicrobatch: false };
  }

  /** Runs the forward and backward pass of microbatch `number`, which has this index in the step. Returns the loss. */
  pass(step: number, number: number, index: number): Tensor<WideDType> {
    using scope = new Scope();
    const { backend, given: testCase } = this;
    const seed = 1000 * step + number;
    const ids = Int32Array.from({ length: ROWS }, (_, i) => (i * (seed + 3) + seed) % VOCABULARY);
    const target = drawTensor(backend, BigInt(seed), [ROWS, testCase.width], testCase.dtype);
    const order = this.#orderOf(step, index);
    const call = this.#call(step, index);
    const forward = (): Variable => this.model.forward(tensor(backend, ids, [ROWS], "i32"), call, order);
    const loss = autocast(this.#region(step), () => functional.mseLoss(forward(), target));
    // an order may consist of frozen layers only
    if (loss.requiresGrad) loss.backward();
    return scope.keep(loss.tensor.clone());
  }

  /** The order of the layers in the pass with this index in the step, which is equal on all ranks. */
  #orderOf(step: number, index: number): readonly number[] {
    const { orders, microbatches } = this.given;
    return orders[(step * microbatches + index) % Math.max(orders.length, 1)] ?? [];
  }

  /** The number of calls of `backwardDw` that compute all gradients of weights that the passes of a step leave out. */
  delayedCalls(step: number): number {
    const { layers } = this.model;
    const orders = Array.from({ length: this.given.microbatches }, (_, index) => this.#orderOf(step, index));
    const calledLayers = orders.map((order) => order.map((i) => i % layers.length));
    const counts = layers.map((layer, i) => {
      const isDelayed = layer
        .parameters()
        .some((parameter) => parameter.delayedGradients && parameter.requiresGrad);
      return isDelayed ? calledLayers.filter((order) => order.length === 0 || order.includes(i)).length : 0;
    });
    return Math.max(...counts);
  }

  /** Computes the gradients of weights that the oldest pass has left out, if there are any. */
  backwardDw(): void {
    const modules = this.given.delays === "layers" ? [...this.model.layers].reverse() : [this.model];
    for (const module of modules)
      if (module.parameters().some(({ delayedGradients }) => delayedGradients?.isWaiting))
        module.backwardDw();
  }

  #region(step: number) {
    const recipe = this.#recipes[turnOf(this.given, step).otherRecipe ? 1 : 0];
    return recipe ? { recipe } : { enabled: false };
  }

  /** Returns the result of some layers without gradients. The input is the same in each call. */
  evaluate(step: number): Tensor {
    using scope = new Scope();
    const { backend, given: testCase } = this;
    const ids = tensor(backend, new Int32Array(ROWS).fill(1), [ROWS], "i32");
    const out = noGrad(() =>
      autocast(this.#region(step), () => this.model.forward(ids, {}, testCase.evaluated)),
    );
    return scope.keep(out.tensor.clone());
  }
}

function drawTensor(
  backend: Backend,
  seed: bigint,
  shape: readonly [number, number],
  dtype: WideDType,
): Tensor<WideDType> {
  const x = tensor(backend, normal({ seed, offset: 0n }, shape[0] * shape[1], 1), shape);
  return dtype === "f32" ? x : (encode(x, { format: "bf16" }) as Tensor<WideDType>);
}
