/** Finite inputs for which a package gives bits that it does not define, or none. */

/** Which inputs they are, and why. */
export interface Undecided {
  /** Tensors whose stored scale of the tensor is at most this. */
  readonly tensorScale?: number;
  /** Rows whose amax is at least this. */
  readonly amax?: number;
  /** Matrices of at most so many columns. */
  readonly columns?: number;
  /** The reason. */
  readonly because: string;
}

/** Whether the package does not define the codes of a row with that amax, under that stored scale of the tensor. */
export function isUndecided(limits: Undecided, tensorScale: number, amax: number): boolean {
  return (
    (limits.tensorScale !== undefined && tensorScale <= limits.tensorScale) ||
    (limits.amax !== undefined && amax >= limits.amax)
  );
}
