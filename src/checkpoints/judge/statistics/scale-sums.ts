/** Sums over the blocks that have the same scale byte. The statistics of a weight are computed from them. */
import type { ByteScales } from "../../stored/byte-scales.js";
import { scaleOf } from "../../stored/scales.js";
import { SUM } from "./sum-indices.js";

/** The sums over the blocks under one scale byte that have a nonzero code. */
export interface ScaleSums {
  readonly byte: number;
  /** The number of blocks whose sum of squares is finite. */
  readonly blocks: number;
  /** The number of blocks whose sum of squares is infinite. */
  readonly infinite: number;
  /**
   * `y` and `yy`: the sums over `blocks` of d and of d^2, where d is the log RMS of a block's codes minus `firstY`. All bytes
   * have the same `firstY`.
   */
  readonly firstY: number;
  readonly y: number;
  readonly yy: number;
  /** The sum of the squares of codes, and their largest magnitude. */
  readonly squares: number;
  readonly amax: number;
}

/** The indices of the sums of a `Correlation`. */
const PAIRS = { count: 0, firstX: 1, firstY: 2, x: 3, y: 4, xx: 5, yy: 6, xy: 7 } as const;

/** Adds the sums of blocks of a matrix to `sums`, which has the order of `SUM`. */
export function addScaleSums(
  sums: Float64Array,
  scaleSums: readonly ScaleSums[],
  scales: ByteScales,
  matrix: number,
): void {
  const values = scales.valuesOf(matrix);
  const add = (index: number, value: number): void => {
    sums[index] = (sums[index] as number) + value;
  };
  for (const entry of scaleSums) {
    const value = values[entry.byte] as number;
    const blocks = entry.blocks + entry.infinite;
    if (entry.blocks > 0 && value > 0 && value < Number.POSITIVE_INFINITY)
      addPairs(sums.subarray(SUM.pairs), Math.log2(value), entry);
    add(SUM.nonzero, blocks);
    if (value === 0) add(SUM.zeroScaled, blocks);
    const readings = [
      [SUM.amax, scaleOf(scales, value)],
      [SUM.inverseAmax, scaleOf(scales, 1 / value)],
    ] as const;
    for (const [index, scale] of readings) {
      const magnitude = Math.abs(scale);
      if (!(magnitude < Number.POSITIVE_INFINITY)) continue;
      if (entry.amax * magnitude > (sums[index] as number)) sums[index] = entry.amax * magnitude;
      add(index + 1, entry.squares * magnitude * magnitude);
    }
  }
}

/** Adds pairs that have the same x. */
function addPairs(sums: Float64Array, x: number, { blocks, firstY, y, yy }: ScaleSums): void {
  const isFirst = sums[PAIRS.count] === 0;
  if (isFirst) sums.set([x, firstY], PAIRS.firstX);
  const dx = x - (sums[PAIRS.firstX] as number);
  // the sums of another matrix have another `firstY`
  const shift = firstY - (sums[PAIRS.firstY] as number);
  const dy = y + blocks * shift;
  const dyy = yy + 2 * shift * y + blocks * shift * shift;
  for (const [index, increment] of [
    [PAIRS.count, blocks],
    [PAIRS.x, blocks * dx],
    [PAIRS.y, dy],
    [PAIRS.xx, blocks * dx * dx],
    [PAIRS.yy, dyy],
    [PAIRS.xy, dx * dy],
  ] as const)
    sums[index] = (sums[index] as number) + increment;
}
