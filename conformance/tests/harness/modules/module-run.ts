/** A module of the table in training, and its bits. */
import type { Backend } from "../../../../src/backends/backend.js";
import type { Module } from "../../../../src/modules/module.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { AdamW } from "../../../../src/optimizers/adamw.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { createInputs, inputsWithGradients, step } from "./calls.js";
import type { BuiltModule, ModuleRow } from "./row.js";

/** Every recipe accepts these sizes. */
const SIZES = { rows: 32, from: 128, to: 128, middle: 128 };

/** The elements of a tensor, once all ranks have run the step that computes it. */
async function elementsOf(x: Tensor): Promise<readonly number[]> {
  return Array.from((await x.data()) as Float32Array | Uint16Array);
}

/** A module with an optimizer. `prepare` is called before the optimizer is created. */
export class ModuleRun {
  readonly random: RandomState;
  readonly built: BuiltModule;
  readonly optimizer: AdamW;

  constructor(
    readonly backend: Backend,
    row: ModuleRow,
    seed: bigint,
    prepare: (module: Module) => void = () => {},
  ) {
    this.random = new RandomState(seed);
    this.built = row.build(backend, SIZES, { random: this.random });
    prepare(this.built.module);
    this.optimizer = new AdamW(this.built.module, { learningRate: 0.01 });
  }

  /** The state that a checkpoint saves. */
  get state() {
    return { module: this.built.module, optimizer: this.optimizer, random: this.random };
  }

  /** Runs a step. Returns the result and the gradients of the inputs, which the caller disposes of. */
  train(number: number, recipe: Recipe | undefined): readonly Tensor[] {
    using _scope = new Scope();
    const inputs = createInputs(this.backend, this.built, { rows: SIZES.rows, seed: 10 + number });
    const result = step(this.built, inputs, recipe, { seed: 20 + number });
    const gradients = inputsWithGradients(inputs).flatMap(({ grad }) => grad ?? []);
    const answers = [result.tensor, ...gradients].map((each) => persistent(each.clone()));
    for (const each of inputs) each.zeroGrad();
    this.optimizer.step();
    this.optimizer.zeroGrad();
    return answers;
  }

  /** The stored elements of parameters, masters and buffers of the optimizer, by name. */
  async elements(): Promise<readonly (readonly [name: string, elements: readonly number[]])[]> {
    const named = [...this.optimizer.slots].flatMap(([name, { parameter, master, buffers }]) => [
      [name, parameter.tensor] as const,
      [`${name} master`, master] as const,
      ...[...buffers].map(([buffer, x]) => [`${name} ${buffer}`, x] as const),
    ]);
    return Promise.all(named.map(async ([name, x]) => [name, await elementsOf(x)] as const));
  }

  /** The scales and amaxes of all layers, as JSON. */
  scales(): string {
    const snapshots = [...this.built.module.namedQuantizations()].map(([name, each]) => [
      name,
      each.snapshotSync(),
    ]);
    return JSON.stringify(snapshots, (_, value) => (ArrayBuffer.isView(value) ? `${value}` : value));
  }

  dispose(): void {
    this.optimizer.dispose();
    this.built.module.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The elements of tensors, which are disposed of. */
export async function readAll(tensors: readonly Tensor[]): Promise<readonly (readonly number[])[]> {
  const elements = await Promise.all(tensors.map(elementsOf));
  for (const each of tensors) each.dispose();
  return elements;
}
