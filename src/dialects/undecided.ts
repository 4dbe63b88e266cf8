/** Finite inputs for which a package's result is undefined. */

/** A class of inputs, and the reason. */
export interface Undecided {
  /** Tensors whose stored tensor scale is at most this. */
  readonly tensorScale?: number;
  /** Rows whose amax is at least this. */
  readonly amax?: number;
  /** Matrices with at most this many columns. */
  readonly columns?: number;
  /** The reason. */
  readonly because: string;
}

/** Whether the package leaves the codes of a row with this amax undefined under this tensor scale. */
export function isUndecided(limits: Undecided, tensorScale: number, amax: number): boolean {
  return (
    (limits.tensorScale !== undefined && tensorScale <= limits.tensorScale) ||
    (limits.amax !== undefined && amax >= limits.amax)
  );
}
