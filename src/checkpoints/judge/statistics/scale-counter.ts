/** Counts the scales of a weight. */

/** Statistics of the scales of a weight: the range of the finite scales, and how many scales have a property. */
export interface ScaleStatistics {
  /** The number of scales. */
  readonly count: number;
  /** The smallest finite scale; NaN if there is none. */
  readonly min: number;
  /** The largest finite scale; NaN if there is none. */
  readonly max: number;
  /** The number of scales that are 0 or -0. */
  readonly zero: number;
  /** The number of finite scales below 0. */
  readonly negative: number;
  /** The number of scales that are NaN or infinite. */
  readonly notFinite: number;
  /** The number of finite positive scales that are powers of two. */
  readonly powersOfTwo: number;
}

/** Counts scales by their values. The statistics do not depend on the order of the scales: -0 is below 0. */
export class ScaleCounter {
  #count = 0;
  #min = Number.POSITIVE_INFINITY;
  #max = Number.NEGATIVE_INFINITY;
  #zero = 0;
  #negative = 0;
  #notFinite = 0;
  #powersOfTwo = 0;
  #exponents = 0;

  /** Adds `count` scales of the same value. */
  add(value: number, count = 1): void {
    this.#count += count;
    if (!Number.isFinite(value)) {
      this.#notFinite += count;
      return;
    }
    // Math.min orders -0 before 0; a comparison would keep the first of the two
    this.#min = Math.min(this.#min, value);
    this.#max = Math.max(this.#max, value);
    if (value === 0) this.#zero += count;
    else if (value < 0) this.#negative += count;
    else if (isPowerOfTwo(value)) this.#powersOfTwo += count;
    if (isExponent(value)) this.#exponents += count;
  }

  /** Whether all scales are integers from 1 to 254. Such scales may be E8M0 bytes that were converted to numbers. */
  get areExponents(): boolean {
    return this.#count > 0 && this.#exponents === this.#count;
  }

  get statistics(): ScaleStatistics {
    const isEmpty = this.#max < this.#min;
    return {
      count: this.#count,
      min: isEmpty ? Number.NaN : this.#min,
      max: isEmpty ? Number.NaN : this.#max,
      zero: this.#zero,
      negative: this.#negative,
      notFinite: this.#notFinite,
      powersOfTwo: this.#powersOfTwo,
    };
  }
}

/** Whether a scale is an integer from 1 to 254, like an E8M0 byte that was converted to a number. */
export function isExponent(value: number): boolean {
  return Number.isInteger(value) && value > 0 && value < 255;
}

const WORD = new Uint32Array(1);
const FLOAT = new Float32Array(WORD.buffer);

/** Whether a positive f32 is a power of two. */
function isPowerOfTwo(value: number): boolean {
  FLOAT[0] = value;
  const word = WORD[0] ?? 0;
  const fraction = word & 0x7fffff;
  return word >= 0x800000 ? fraction === 0 : (fraction & (fraction - 1)) === 0;
}
