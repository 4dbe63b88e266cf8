/** Statistics of the differences that a conversion makes. */

/** Counts elements whose values changed, and sums their differences. */
export class Changes {
  elements = 0;
  /** The number of elements whose value changed. */
  changed = 0;
  /** The largest magnitude of a difference. */
  max = 0;
  /** The largest relative change: the magnitude of a difference divided by the magnitude of the value before the conversion. */
  relative = 0;
  /** The number of finite values that became NaN or infinite. */
  notFinite = 0;
  /** The sum of the squares of the finite differences. */
  noise = 0;
  /** The sum of the squares of the finite values before the conversion; 0 if the caller knows that no value changes. */
  signal = 0;

  /**
   * Adds `count` elements with the same value before the conversion and the same value after it. A NaN that stays NaN is
   * unchanged.
   */
  add(before: number, after: number, count = 1): void {
    this.elements += count;
    if (before === after || (Number.isNaN(before) && Number.isNaN(after))) {
      if (Number.isFinite(before)) this.signal += count * before * before;
      return;
    }
    this.changed += count;
    const difference = Math.abs(before - after);
    if (difference > this.max) this.max = difference;
    const relative = before === 0 ? Number.POSITIVE_INFINITY : difference / Math.abs(before);
    if (relative > this.relative) this.relative = relative;
    if (Number.isFinite(before) && !Number.isFinite(after)) this.notFinite += count;
    if (Number.isFinite(difference)) {
      this.noise += count * difference * difference;
      this.signal += count * before * before;
    }
  }

  /**
   * Adds nonzero codes that have one finite scale before the conversion and one scale after it. Takes the number of codes, the
   * sum of their squares and their largest magnitude. Products of codes and scales are exact. The codes are not counted as
   * elements.
   */
  addMany(
    { count, squares, max }: { readonly count: number; readonly squares: number; readonly max: number },
    before: number,
    after: number,
  ): void {
    this.signal += squares * before * before;
    if (before === after) return;
    const difference = Math.abs(before - after);
    this.changed += count;
    this.max = Math.max(this.max, max * difference);
    const relative = before === 0 ? Number.POSITIVE_INFINITY : difference / Math.abs(before);
    this.relative = Math.max(this.relative, relative);
    this.noise += squares * difference * difference;
  }

  /** The ratio of signal to noise in decibels, over finite differences; infinite without noise. */
  get sqnr(): number {
    return this.noise === 0 ? Number.POSITIVE_INFINITY : 10 * Math.log10(this.signal / this.noise);
  }
}
