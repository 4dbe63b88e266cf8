/**
 * The delayed-scaling state of one layer or attention: its scales, and the history of amaxes from which they are computed
 * (numerics.md §2.2).
 */

import type { Backend } from "../backends/backend.js";
import { factsOf } from "../formats/derive.js";
import { tensor } from "../ops/create.js";
import { requireNoCapture } from "../ops/graph.js";
import { updateScales } from "../ops/update/delayed-scaling.js";
import type { DelayedScaling } from "../recipes/per-tensor.js";
import { FORMATS, type Pass } from "../recipes/table.js";
import type { DelayedScales } from "../tape/scale-updates.js";
import { orDispose } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";
import { persistent } from "./parameter.js";

/** The scales and amaxes of one pass, as stored in a checkpoint. n is the number of tensors of the pass that have a scale. */
export interface DelayedSnapshot {
  /** The scale of each tensor, [n]. */
  readonly scale: Float32Array;
  /** The amaxes of the last steps, [length, n]. */
  readonly amaxHistory: Float32Array;
}

/**
 * The delayed-scaling state of one pass (forward or backward) with n tensors: `scale` [n], initially 1, and `amaxHistory`
 * [length, n]. Quantizers record the amaxes of the current step in row 0. A "slot" is the index of a tensor in 0..n-1.
 */
export class DelayedState implements DelayedScales {
  readonly scale: Tensor<"f32">;
  readonly amaxHistory: Tensor<"f32">;
  /** One-element views of `scale`, which the quantizers hold. */
  readonly scales: readonly Tensor<"f32">[];
  /** One-element views of row 0 of `amaxHistory`, which the quantizers hold. */
  readonly amaxes: readonly Tensor<"f32">[];
  readonly #formatMax: number;
  #version = 0;

  constructor(
    backend: Backend,
    readonly recipe: DelayedScaling,
    { pass, slots }: { readonly pass: Pass; readonly slots: number },
    snapshot?: DelayedSnapshot,
  ) {
    requireNoCapture(backend, "the first step under delayed scaling", "scales and amaxes");
    const length = recipe.amaxHistoryLen;
    const rows = new Float32Array(length * slots);
    // if the stored history is longer or shorter, as many of its first rows as fit are kept
    if (snapshot) rows.set(snapshot.amaxHistory.subarray(0, rows.length));
    this.#formatMax = factsOf(FORMATS[recipe.format][pass]).max;
    [this.scale, this.amaxHistory] = orDispose((created) => {
      const scale = persistent(tensor(backend, snapshot?.scale ?? new Float32Array(slots).fill(1)));
      created.push(scale);
      return [scale, persistent(tensor(backend, rows, [length, slots]))];
    });
    const createView = (tensor: Tensor<"f32">, i: number): Tensor<"f32"> => persistent(tensor.view(i, [1]));
    this.scales = Array.from({ length: slots }, (_, i) => createView(this.scale, i));
    this.amaxes = Array.from({ length: slots }, (_, i) => createView(this.amaxHistory, i));
  }

  /** Whether the layer has freed this state and uses another one. Updates of a freed state do nothing. */
  get isDisposed(): boolean {
    return this.scale.disposed;
  }

  recorded(): Tensor<"f32"> | undefined {
    if (this.isDisposed) return undefined;
    return this.recipe.reduceAmax ? this.amaxHistory.view(0, this.scale.shape) : undefined;
  }

  /** The number of updates of the scales so far. */
  get version(): number {
    return this.#version;
  }

  update(): void {
    if (this.isDisposed) return;
    this.#version++;
    const { amaxComputeAlgo, scalingFactorComputeAlgo, margin } = this.recipe;
    if (typeof amaxComputeAlgo === "function" || scalingFactorComputeAlgo) {
      this.#updateOnHost();
      return;
    }
    const { amaxHistory, scale } = this;
    updateScales({ amaxHistory, scale, formatMax: this.#formatMax, margin, algorithm: amaxComputeAlgo });
  }

  /**
   * Updates the state on the host if the recipe has a custom function. The history of every slot is rolled, as in
   * TransformerEngine.
   */
  #updateOnHost(): void {
    const slots = this.scale.size;
    const history = this.amaxHistory.dataSync().slice();
    const length = history.length / slots;
    const amaxes = new Float32Array(slots);
    for (let slot = 0; slot < slots; slot++) {
      const column = Float32Array.from({ length }, (_, row) => history[row * slots + slot] as number);
      amaxes[slot] = this.#amaxOf(column);
      const rolledColumn = [...column.subarray(1), column[0] as number];
      rolledColumn[0] = 0;
      for (let row = 0; row < length; row++) history[row * slots + slot] = rolledColumn[row] as number;
    }
    this.#updateScales(amaxes);
    this.amaxHistory.write(history);
  }

  #amaxOf(column: Float32Array): number {
    const { amaxComputeAlgo: algorithm } = this.recipe;
    if (typeof algorithm === "function") return algorithm(column);
    return algorithm === "max" ? column.reduce((a, b) => Math.max(a, b)) : (column[0] as number);
  }

  /**
   * Computes the scale of each slot from its amax, by the recipe's custom function or by the operation `updateScales`.
   */
  #updateScales(amaxes: Float32Array): void {
    const { scale, recipe } = this;
    const [formatMax, { margin, scalingFactorComputeAlgo: algorithm }] = [this.#formatMax, recipe];
    if (algorithm) {
      scale.write(
        scale
          .dataSync()
          .map((slotScale, slot) => algorithm(amaxes[slot] as number, slotScale, formatMax, recipe)),
      );
      return;
    }
    using amaxHistory = tensor(scale.backend, amaxes, [1, amaxes.length]);
    updateScales({ amaxHistory, scale, formatMax, margin, algorithm: "mostRecent" });
  }

  snapshotSync(): DelayedSnapshot {
    return { scale: this.scale.dataSync(), amaxHistory: this.amaxHistory.dataSync() };
  }

  dispose(): void {
    for (const view of [...this.scales, ...this.amaxes]) view.dispose();
    this.scale.dispose();
    this.amaxHistory.dispose();
  }
}
