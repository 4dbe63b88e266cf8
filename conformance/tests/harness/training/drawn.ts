/** Small training runs with random models, recipes and optimizers. */
import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import { mseLoss } from "../../../../src/functional/loss.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { wideTensor } from "../../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { type Layer, Sequential } from "../../../../src/modules/sequential.js";
import { AdamW } from "../../../../src/optimizers/adamw.js";
import type { Optimizer } from "../../../../src/optimizers/optimizer.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { collectState, RECIPES_UNDER_TEST, type RecipeName } from "./run.js";

const ROWS = 32;
const FEATURES = 32;

const LAYERS = ["linear", "bare", "norm", "mlp"] as const;
const ADAMW = { learningRate: 0.01, weightDecay: 0.01 };
const OPTIMIZERS = {
  sgd: (module: Module) => new SGD(module, { learningRate: 0.1 }),
  momentum: (module: Module) => new SGD(module, { learningRate: 0.1, momentum: 0.9 }),
  adamw: (module: Module) => new AdamW(module, ADAMW),
  "momentum of bf16": (module: Module) =>
    new SGD(module, { learningRate: 0.1, momentum: 0.9, momentumDtype: "bf16", masterWeightDtype: "f16" }),
  "adamw with remainders": (module: Module) => new AdamW(module, { ...ADAMW, storeParamRemainders: true }),
  "adamw of e4m3": (module: Module) =>
    new AdamW(module, { ...ADAMW, expAvgDtype: "e4m3", expAvgSqDtype: "f16", masterWeightDtype: "f16" }),
} as const;

/** The model, recipe and optimizer of a run. */
export interface DrawnPlan {
  readonly recipe: RecipeName;
  readonly layers: readonly (typeof LAYERS)[number][];
  readonly optimizer: keyof typeof OPTIMIZERS;
  readonly dtype: "bf16" | "f32";
  /** Whether weights are stored quantized from the start. */
  readonly quantizesWeights: boolean;
  readonly seed: bigint;
}

export function drawnPlans(recipe: RecipeName): fc.Arbitrary<DrawnPlan> {
  return fc.record({
    recipe: fc.constant(recipe),
    layers: fc.array(fc.constantFrom(...LAYERS), { minLength: 1, maxLength: 3 }),
    optimizer: fc.constantFrom(...(Object.keys(OPTIMIZERS) as (keyof typeof OPTIMIZERS)[])),
    dtype: fc.constantFrom("bf16", "f32"),
    quantizesWeights: recipe === "bf16" ? fc.constant(false) : fc.boolean(),
    seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  });
}

/** A run of a plan, initialized from `seed`. */
export class DrawnRun {
  readonly random: RandomState;
  readonly model: Sequential;
  readonly optimizer: Optimizer;

  constructor(
    readonly backend: Backend,
    readonly plan: DrawnPlan,
    seed = plan.seed,
  ) {
    this.random = new RandomState(seed);
    const recipe = RECIPES_UNDER_TEST[plan.recipe]?.();
    const make = (): Sequential => new Sequential(backend, ...plan.layers.map((kind) => this.#layer(kind)));
    this.model = quantizedModelInit({ enabled: plan.quantizesWeights, ...(recipe ? { recipe } : {}) }, make);
    this.optimizer = OPTIMIZERS[plan.optimizer](this.model);
  }

  #layer(kind: DrawnPlan["layers"][number]): Layer {
    const { backend, random } = this;
    const options = { dtype: this.plan.dtype, random };
    switch (kind) {
      case "linear":
        return new Linear(backend, FEATURES, FEATURES, options);
      case "bare":
        return new Linear(backend, FEATURES, FEATURES, { ...options, bias: false });
      case "norm":
        return new LayerNormLinear(backend, FEATURES, FEATURES, options);
      default:
        return new LayerNormMLP(backend, FEATURES, 2 * FEATURES, { ...options, activation: "swiglu" });
    }
  }

  /** The loss of step `step`; inputs and targets are derived from its number. */
  loss(step: number): Variable {
    const { backend, plan, model } = this;
    // the Hadamard transform of NVFP4 takes bf16 only
    const dtype = plan.recipe === "nvfp4" ? "bf16" : plan.dtype;
    const drawInput = (seed: bigint) =>
      wideTensor(
        backend,
        normal({ seed, offset: BigInt(step) }, ROWS * FEATURES, 1),
        [ROWS, FEATURES],
        dtype,
      );
    return mseLoss(model.forward(drawInput(1n)), drawInput(2n));
  }

  /** Runs steps [begin, end). Returns the loss of each step and a hash of all state after it. */
  train(begin: number, end: number): readonly string[] {
    return Array.from({ length: end - begin }, (_, i) => {
      using _scope = new Scope();
      const recipe = RECIPES_UNDER_TEST[this.plan.recipe]?.();
      const region = recipe ? { recipe } : { enabled: false };
      const loss = autocast(region, () => this.loss(begin + i));
      loss.backward();
      this.optimizer.step();
      this.optimizer.zeroGrad();
      return `${loss.tensor.dataSync()} ${this.state()}`;
    });
  }

  /** A hash of all state that affects later steps. */
  state(): string {
    const { seed, offset } = this.random;
    const hash = createHash("sha256").update(`${seed} ${offset}`);
    for (const { steps } of this.optimizer.slots.values()) hash.update(`${steps} `);
    for (const [name, bytes] of collectState(this)) hash.update(name).update(bytes);
    return hash.digest("hex");
  }

  dispose(): void {
    this.optimizer.dispose();
    this.model.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
