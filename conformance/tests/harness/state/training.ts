/** Small training runs whose bits are all compared. */
import { createHash } from "node:crypto";
import type { Backend } from "../../../../src/backends/backend.js";
import {
  CustomRecipe,
  DelayedScaling,
  Float8BlockScaling,
  Float8CurrentScaling,
  Float8CurrentScalingQuantizer,
  functional,
  Linear,
  type LinearOptions,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
  normal,
  RandomState,
  type Recipe,
  Scope,
  SGD,
  type Tensor,
  type Variable,
} from "../../../../src/index.js";
import { wideTensor } from "../../../../src/modules/parameter.js";
import { linearQuantization, toPlainState } from "./world.js";

/** The size of matrices; every format accepts it. */
export const FEATURES = 128;

/** Every recipe; histories are short enough to fill up within a few steps. */
export const RECIPES = {
  delayed: () => new DelayedScaling({ amaxHistoryLen: 3 }),
  current: () => new Float8CurrentScaling(),
  block: () => new Float8BlockScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
  nvfp4: () => new NVFP4BlockScaling(),
  custom: () => new CustomRecipe({ quantizerFactory: currentQuantizer }),
} as const satisfies Record<string, () => Recipe>;

export type RecipeName = keyof typeof RECIPES;
export const RECIPE_NAMES = Object.keys(RECIPES) as readonly RecipeName[];

/** The quantizer of `Float8CurrentScaling` for a role. */
export function currentQuantizer(role: string): Float8CurrentScalingQuantizer {
  return new Float8CurrentScalingQuantizer({
    format: role === "gradOutput" || role === "gradInput" ? "e5m2" : "e4m3",
  });
}

/** Approximately normal values; each `number` gives another matrix. */
export function drawMatrix(backend: Backend, number: number, size = FEATURES, std = 1): Tensor<"bf16"> {
  const values = normal({ seed: 5n, offset: BigInt(number) }, size * size, std);
  return wideTensor(backend, values, [size, size], "bf16") as Tensor<"bf16">;
}

export function createLinear(
  backend: Backend,
  seed: number,
  options: LinearOptions = {},
  size = FEATURES,
): Linear {
  return new Linear(backend, size, size, { random: new RandomState(BigInt(seed)), ...options });
}

/** A short hash of the bytes; undefined if there are none. */
export function digest(data: ArrayBufferView | undefined): string | undefined {
  if (!data) return undefined;
  const { buffer, byteOffset, byteLength } = data;
  return createHash("sha256")
    .update(new Uint8Array(buffer, byteOffset, byteLength))
    .digest("hex");
}

/** All observable state of layers: quantization states, and the bits of parameters and gradients. */
export function layerStates(layers: readonly Linear[]) {
  return layers.map((layer) => ({
    state: toPlainState(linearQuantization(layer).snapshotSync()),
    parameters: layer.parameters().map((parameter) => digest(parameter.tensor.dataSync())),
    gradients: layer.parameters().map((parameter) => digest(parameter.grad?.dataSync())),
  }));
}

/** A network of two layers that is trained step by step. */
export class Learner {
  readonly layers: readonly [Linear, Linear];
  readonly #optimizer: SGD;
  #steps = 0;

  constructor(
    readonly backend: Backend,
    seed: number,
    options: LinearOptions = {},
  ) {
    this.layers = [createLinear(backend, seed, options), createLinear(backend, seed + 1, options)];
    const parameters = this.layers.flatMap((layer, i) =>
      [...layer.namedParameters()].map(([name, parameter]) => [`${i}.${name}`, parameter] as const),
    );
    this.#optimizer = new SGD(new Map(parameters), { learningRate: 0.1 });
  }

  /** The loss: the squared error between the input and the result of `forward`. */
  loss(forward: (x: Tensor, layers: readonly [Linear, Linear]) => Variable): Variable {
    const x = drawMatrix(this.backend, this.#steps++);
    return functional.mseLoss(forward(x, this.layers), x);
  }

  learn(loss: Variable): number {
    const [value] = loss.tensor.dataSync();
    loss.backward();
    this.#optimizer.step();
    this.#optimizer.zeroGrad();
    return value as number;
  }

  dispose(): void {
    this.#optimizer.dispose();
    for (const layer of this.layers) layer.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Runs `body` in a scope, which disposes of its tensors. */
export function scopedRun<T>(body: () => T): T {
  using _scope = new Scope();
  return body();
}
