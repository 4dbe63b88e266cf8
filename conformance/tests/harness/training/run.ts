/** A training run that every backend can repeat: it starts from a seed, and each step returns a hash of all state. */
import { createHash } from "node:crypto";
import { type AutocastOptions, autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import { loadCheckpoint, saveCheckpoint } from "../../../../src/io/checkpoint.js";
import type { Module } from "../../../../src/modules/module.js";
import { clipGradNorm } from "../../../../src/optimizers/clip-grad-norm.js";
import type { Optimizer } from "../../../../src/optimizers/optimizer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { mlp } from "./mlp.js";
import { transformer } from "./transformer.js";

/** The recipes of the runs; bf16 means no recipe. */
export const RECIPES_UNDER_TEST = {
  bf16: undefined,
  delayed: () => new DelayedScaling({ amaxHistoryLen: 16 }),
  current: () => new Float8CurrentScaling(),
  block: () => new Float8BlockScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
  nvfp4: () => new NVFP4BlockScaling(),
} as const satisfies Record<string, (() => Recipe) | undefined>;

export type RecipeName = keyof typeof RECIPES_UNDER_TEST;
export const RECIPE_NAMES = Object.keys(RECIPES_UNDER_TEST) as readonly RecipeName[];

/** A training task: its model, data and optimizer. */
export interface Task {
  readonly model: Module;
  readonly optimizer: Optimizer;
  /** The loss of step `step`, f32 [1]. */
  loss(step: number): Variable;
  /** The maximum gradient norm, for clipping. Absent: no clipping. */
  readonly maxNorm?: number;
}

export const TASKS = { mlp, transformer } as const satisfies Record<
  string,
  (backend: Backend, random: RandomState) => Task
>;

export type TaskName = keyof typeof TASKS;

/** The number of recorded steps of each task. */
export const STEPS: Readonly<Record<TaskName, number>> = { mlp: 200, transformer: 50 };

const SEED = 20n;

/** A run in progress. */
export class TrainingRun {
  readonly random = new RandomState(SEED);
  readonly task: Task;
  readonly #recipe: Recipe | undefined;
  #step = 0;

  constructor(
    readonly backend: Backend,
    task: TaskName,
    recipe: RecipeName,
  ) {
    this.task = TASKS[task](backend, this.random);
    this.#recipe = RECIPES_UNDER_TEST[recipe]?.();
  }

  /** Writes a checkpoint of this run. */
  async save(path: string): Promise<void> {
    const { model: module, optimizer } = this.task;
    await saveCheckpoint(path, { module, optimizer, random: this.random, extra: { step: this.#step } });
  }

  /** Continues from a checkpoint, which another backend may have written. */
  async resume(path: string): Promise<void> {
    const { model: module, optimizer } = this.task;
    const extra = await loadCheckpoint(path, { module, optimizer, random: this.random });
    this.#step = (extra as { readonly step: number }).step;
  }

  /** Runs one step. Returns the loss, and a hash of the loss and of all state. */
  advance(): { readonly loss: number; readonly hash: string } {
    const { task } = this;
    using _ = new Scope();
    const options: AutocastOptions = this.#recipe ? { recipe: this.#recipe } : { enabled: false };
    const loss = autocast(options, () => task.loss(this.#step++));
    loss.backward();
    takeStep(task);
    const bits = loss.tensor.dataSync();
    const hash = createHash("sha256").update(asBytes(bits));
    for (const [name, bytes] of collectState(task)) hash.update(name).update(bytes);
    return { loss: (bits as Float32Array)[0] as number, hash: hash.digest("hex").slice(0, HASH_DIGITS) };
  }

  dispose(): void {
    this.task.optimizer.dispose();
    this.task.model.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The length of a hash in hexadecimal digits: 64 bits. */
const HASH_DIGITS = 16;

/** Updates the parameters, with gradient clipping if the task has a maximum norm. */
function takeStep({ optimizer, maxNorm }: Task): void {
  if (maxNorm === undefined) optimizer.step();
  else optimizer.step({ gradScale: clipGradNorm(optimizer, maxNorm).factor });
  optimizer.zeroGrad();
}

/** All state that affects later steps, except the random state: parameters, optimizer, scales and amaxes. */
export function collectState({
  model,
  optimizer,
}: Pick<Task, "model" | "optimizer">): readonly (readonly [name: string, bytes: Uint8Array])[] {
  const tensors = [...model.namedParameters()].flatMap(([name, { value }]) => {
    const members = value instanceof QuantizedTensor ? (value.members as readonly Tensor[]) : [value];
    return members.map((member) => [name, asBytes(member.dataSync())] as const);
  });
  const slots = [...optimizer.slots].flatMap(([name, { master, buffers }]) => [
    [`${name} master`, asBytes(master.dataSync())] as const,
    ...[...buffers].map(([buffer, x]) => [`${name} ${buffer}`, asBytes(x.dataSync())] as const),
  ]);
  const scales = [...model.namedQuantizations()].flatMap(([name, quantization]) => {
    const snapshot = quantization.snapshotSync();
    if (!snapshot) return [];
    return Object.entries(snapshot).flatMap(([pass, { scale, amaxHistory }]) => [
      [`${name} ${pass} scale`, asBytes(scale)] as const,
      [`${name} ${pass} amaxHistory`, asBytes(amaxHistory)] as const,
    ]);
  });
  return [...tensors, ...slots, ...scales];
}

function asBytes({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);
}
