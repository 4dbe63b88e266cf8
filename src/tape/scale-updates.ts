/** Updates of delayed scales from the amaxes recorded in an autocast region or a backward pass. */
import { Scope } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";

/** The processes of a distributed run that reduce their amaxes: each f32 element becomes its maximum over the group. */
export interface AmaxReductionGroup {
  /** The number of members; a group of one reduces nothing. */
  readonly size: number;
  /**
   * Replaces each element by its maximum over all members. All members call it in the same order, with tensors of the same
   * shapes.
   */
  reduceMax(tensors: readonly Tensor<"f32">[]): void;
}

/** Scales computed from recorded amaxes. */
export interface DelayedScales {
  /**
   * The amaxes recorded since the last update, which the group reduces first; undefined where the recipe does not reduce them.
   */
  recorded(): Tensor<"f32"> | undefined;
  /** Computes new scales and moves the amaxes into the history. */
  update(): void;
}

/** The pending updates, each once, in the order of first use. */
export class ScaleUpdates {
  readonly #groups = new Map<DelayedScales, AmaxReductionGroup | undefined>();

  add(scales: DelayedScales, group: AmaxReductionGroup | undefined): void {
    if (!this.#groups.has(scales)) this.#groups.set(scales, group);
  }

  /** Reduces the amaxes with one call per group, then updates all scales. Afterwards nothing is pending. */
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
