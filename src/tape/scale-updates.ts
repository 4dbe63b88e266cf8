/** New scales from the amaxes that a region, or a backward pass, has recorded. */
import { Scope } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";

/** Members of a run that share amaxes: tensor by tensor, each f32 element becomes the largest of the group's. */
export interface AmaxReductionGroup {
  /** How many members there are; with one, nothing is reduced. */
  readonly size: number;
  /**
   * Replaces each element by the largest that any member has in its place. Called by all members, in the same order with
   * tensors of the same shapes.
   */
  reduceMax(tensors: readonly Tensor<"f32">[]): void;
}

/** Scales that follow from amaxes. */
export interface DelayedScales {
  /** The amaxes recorded since the last update, to be reduced first; none where a recipe keeps them to itself. */
  recorded(): Tensor<"f32"> | undefined;
  /** New scales; the amaxes move into the history. */
  update(): void;
}

/** What is to be updated, each thing once, in the order it was first used. */
export class ScaleUpdates {
  readonly #groups = new Map<DelayedScales, AmaxReductionGroup | undefined>();

  add(scales: DelayedScales, group: AmaxReductionGroup | undefined): void {
    if (!this.#groups.has(scales)) this.#groups.set(scales, group);
  }

  /** Reduces, one call a group, then updates. Nothing is left to do afterwards. */
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
