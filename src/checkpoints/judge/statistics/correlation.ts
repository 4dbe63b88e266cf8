/**
 * The sums by index: 0 is the number of pairs, 1 and 2 are the first pair, 3 and 4 are the sums of the differences from the first
 * pair, 5 and 6 are the sums of the squares of these differences, 7 is the sum of their products.
 */
type Sums = Record<0 | 1 | 2 | 3 | 4 | 5 | 6 | 7, number>;

/** Accumulates the correlation of two series, one pair at a time. */
export class Correlation {
  /** Sums of differences from the first pair, so that series of equal numbers have a variance of exactly 0. */
  readonly #sums: Float64Array;

  /** `sums` has the layout of assembly/checkpoints/statistics.ts. Default: no pairs. */
  constructor(sums: Float64Array = new Float64Array(8)) {
    this.#sums = sums;
  }

  /** Adds a pair. Ignores pairs that are not finite. */
  add(x: number, y: number): void {
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    const sums = this.#sums as Float64Array & Sums;
    if (sums[0] === 0) {
      sums[1] = x;
      sums[2] = y;
    }
    const [dx, dy] = [x - sums[1], y - sums[2]];
    sums[0]++;
    sums[3] += dx;
    sums[4] += dy;
    sums[5] += dx * dx;
    sums[6] += dy * dy;
    sums[7] += dx * dy;
  }

  /** The number of pairs. */
  get count(): number {
    return this.#sums[0] as number;
  }

  /** Pearson's coefficient; 0 if one of the series is constant. */
  get coefficient(): number {
    const [count = 0, , , x = 0, y = 0, xx = 0, yy = 0, xy = 0] = this.#sums;
    if (count === 0) return 0;
    const deviationProduct = Math.sqrt(Math.max(0, xx - (x * x) / count) * Math.max(0, yy - (y * y) / count));
    return deviationProduct > 0 ? (xy - (x * y) / count) / deviationProduct : 0;
  }

  /** The number of standard errors by which the coefficient differs from 0 (Student's t). */
  get significance(): number {
    const r = Math.max(-0.999999, Math.min(0.999999, this.coefficient));
    return this.count > 2 ? r * Math.sqrt((this.count - 2) / (1 - r * r)) : 0;
  }
}
