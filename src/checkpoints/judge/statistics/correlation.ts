/** The correlation of two series, one pair at a time. */
export class Correlation {
  /** Sums of differences from the first pair, so that equal numbers have no spread. */
  readonly #sums: Float64Array;

  /** `sums` has the layout of assembly/checkpoints/statistics.ts. Default: no pairs. */
  constructor(sums: Float64Array = new Float64Array(8)) {
    this.#sums = sums;
  }

  /** Adds a pair. Ignores pairs that are not finite. */
  add(x: number, y: number): void {
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    const [count = 0, firstX = 0, firstY = 0] = this.#sums;
    if (count === 0) this.#sums.set([x, y], 1);
    const [dx, dy] = count === 0 ? [0, 0] : [x - firstX, y - firstY];
    [1, 0, 0, dx, dy, dx * dx, dy * dy, dx * dy].forEach((each, i) => {
      this.#sums[i] = (this.#sums[i] as number) + each;
    });
  }

  /** The number of pairs. */
  get count(): number {
    return this.#sums[0] as number;
  }

  /** Pearson's coefficient; 0 if one of the series is constant. */
  get coefficient(): number {
    const [count = 0, , , x = 0, y = 0, xx = 0, yy = 0, xy = 0] = this.#sums;
    if (count === 0) return 0;
    const spread = Math.sqrt(Math.max(0, xx - (x * x) / count) * Math.max(0, yy - (y * y) / count));
    return spread > 0 ? (xy - (x * y) / count) / spread : 0;
  }

  /** The coefficient in standard errors, by Student's t. */
  get significance(): number {
    const r = Math.max(-0.999999, Math.min(0.999999, this.coefficient));
    return this.count > 2 ? r * Math.sqrt((this.count - 2) / (1 - r * r)) : 0;
  }
}
