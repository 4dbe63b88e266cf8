/** A model of delayed scaling in plain numbers: scales, and the amaxes from which they are computed. */

import { fromBits } from "../core/rational.js";
import { updateScale } from "../update/delayed-scaling.js";

/** Examples of custom amax algorithms, by name. */
export type CallerAlgorithm = "oldest" | "doubled";

export interface DelayedModel {
  readonly kind: "delayed";
  readonly format: "E4M3" | "HYBRID";
  readonly margin: number;
  readonly length: number;
  readonly algorithm: "max" | "mostRecent" | CallerAlgorithm;
  /** The scaling function: the default, or a custom one that returns the mean of the old scale and the amax. */
  readonly scaling: "default" | "mean";
  readonly reduces: boolean;
}

/** A snapshot of scales and amaxes: `history[row][slot]`. */
export interface SlotsSnapshot {
  readonly scale: readonly number[];
  readonly history: readonly (readonly number[])[];
}

const FORMAT_MAX = { e4m3: 448, e5m2: 57344 };

/** The largest magnitude of bf16 codes, NaN ignored. */
export function amaxOf(codes: Iterable<number>): number {
  let largest = 0;
  for (const code of codes) {
    const magnitude = code & 0x7fff;
    if (magnitude <= 0x7f80 && magnitude > largest) largest = magnitude;
  }
  return fromBits(largest * 0x10000);
}

/** The amax that a custom algorithm computes from a history, row 0 first. */
function callersAmax(algorithm: CallerAlgorithm, column: readonly number[]): number {
  return algorithm === "oldest" ? (column[1] ?? (column[0] as number)) : 2 * Math.max(...column);
}

export class Slots {
  scale: number[];
  history: number[][];
  /** True after the layer has replaced this state. */
  replaced = false;

  constructor(
    readonly recipe: DelayedModel,
    readonly format: "e4m3" | "e5m2",
    count: number,
    from?: SlotsSnapshot,
  ) {
    this.scale = from ? [...from.scale] : new Array<number>(count).fill(1);
    this.history = Array.from({ length: recipe.length }, (_, row) =>
      from?.history[row] ? [...from.history[row]] : new Array<number>(count).fill(0),
    );
  }

  get recorded(): number[] {
    return this.history[0] as number[];
  }

  record(slot: number, amax: number): void {
    this.recorded[slot] = Math.max(this.recorded[slot] as number, amax);
  }

  snapshot(): SlotsSnapshot {
    return { scale: [...this.scale], history: this.history.map((row) => [...row]) };
  }

  update(): void {
    const { algorithm, scaling } = this.recipe;
    const onHost = scaling !== "default" || (algorithm !== "max" && algorithm !== "mostRecent");
    for (let slot = 0; slot < this.scale.length; slot++) {
      const column = this.history.map((row) => row[slot] as number);
      const scale = this.scale[slot] as number;
      const updatedSlots = onHost ? this.#updatedOnHost(column, scale) : this.#updated(column, scale);
      this.scale[slot] = updatedSlots.scale;
      updatedSlots.history.forEach((amax, row) => {
        (this.history[row] as number[])[slot] = amax;
      });
    }
  }

  #updated(history: readonly number[], scale: number) {
    const { margin } = this.recipe;
    const algorithm = this.recipe.algorithm === "max" ? "max" : "mostRecent";
    return updateScale({ history, scale }, { formatMax: FORMAT_MAX[this.format], margin, algorithm });
  }

  /** The update with custom functions. Unlike the default, it rolls a slot whose latest amax is 0. */
  #updatedOnHost(column: readonly number[], scale: number) {
    const { algorithm } = this.recipe;
    const [newestAmax = 0, ...olderAmaxes] = column;
    const rolledColumn = [...olderAmaxes, newestAmax];
    rolledColumn[0] = 0;
    const amax =
      algorithm === "max"
        ? Math.max(...column)
        : algorithm === "mostRecent"
          ? newestAmax
          : callersAmax(algorithm, column);
    return { history: rolledColumn, scale: this.#scaleFor(amax, scale) };
  }

  #scaleFor(amax: number, scale: number): number {
    if (this.recipe.scaling === "mean") return Math.fround((scale + Math.min(amax, 1024)) / 2);
    const { margin } = this.recipe;
    const options = { formatMax: FORMAT_MAX[this.format], margin, algorithm: "mostRecent" } as const;
    return updateScale({ history: [Math.fround(amax)], scale }, options).scale;
  }
}
