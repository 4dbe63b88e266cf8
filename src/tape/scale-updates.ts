/** Updates of delayed scales from the amaxes recorded in an autocast region or in a backward pass. */
import type { AmaxReductionGroup } from "../quantizers/shard.js";
import { Scope } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";

/** The delayed scales of one pass of a layer, computed from recorded amaxes. */
export interface DelayedScales {
  /**
   * Returns the amaxes recorded since the last update, for the group to reduce. Returns undefined if the recipe does not reduce
   * amaxes or the state was replaced.
   */
  recorded(): Tensor<"f32"> | undefined;
  /** Computes new scales and moves the amaxes into the history. */
  update(): void;
}

/** The pending updates in the order of first use. Each is listed once. */
export class ScaleUpdates {
  readonly #groups = new Map<DelayedScales, AmaxReductionGroup | undefined>();

  add(scales: DelayedScales, group: AmaxReductionGroup | undefined): void {
    if (!this.#groups.has(scales)) this.#groups.set(scales, group);
  }

  /** Reduces the amaxes with one call per group and then updates all scales. Afterwards nothing is pending. */
  run(): void {
    const pending = [...this.#groups];
    this.#groups.clear();
    using _ = new Scope();
    for (const group of new Set(pending.map(([, each]) => each))) {
      if (!group || group.size < 2) continue;
      const rows = pending.flatMap(([scales, each]) => (each === group ? (scales.recorded() ?? []) : []));
      if (rows.length > 0) group.reduceMax(rows);
    }
    for (const [scales] of pending) scales.update();
  }
}
