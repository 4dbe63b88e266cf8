/** The correlation of two series of numbers that come one pair at a time. */
export class Correlation {
  #count = 0;
  #meanX = 0;
  #meanY = 0;
  #xx = 0;
  #yy = 0;
  #xy = 0;

  /** Adds a pair. Pairs that are not finite are left out. */
  add(x: number, y: number): void {
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    this.#count++;
    const [dx, dy] = [x - this.#meanX, y - this.#meanY];
    this.#meanX += dx / this.#count;
    this.#meanY += dy / this.#count;
    this.#xx += dx * (x - this.#meanX);
    this.#yy += dy * (y - this.#meanY);
    this.#xy += dx * (y - this.#meanY);
  }

  get count(): number {
    return this.#count;
  }

  /** Pearson's coefficient; 0 if one of the series is constant. */
  get coefficient(): number {
    const spread = Math.sqrt(this.#xx * this.#yy);
    return spread > 0 ? this.#xy / spread : 0;
  }

  /** The coefficient in standard errors, by Student's t. */
  get significance(): number {
    const r = Math.max(-0.999999, Math.min(0.999999, this.coefficient));
    return this.#count > 2 ? r * Math.sqrt((this.#count - 2) / (1 - r * r)) : 0;
  }
}
