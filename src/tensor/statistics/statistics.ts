/** Statistics of the differences of two tensors: counts by cause, distances in units of the last place, errors. */

/**
 * Why an element differs. `scale`: its block has another scale. `tie`: the scaled value lies halfway between the two codes.
 * `offByOne`: the codes are neighbours. `signOfZero`: both are zero. `nan`: one of them is NaN. `wrong`: anything else.
 */
export const CAUSES = ["scale", "tie", "offByOne", "signOfZero", "nan", "wrong"] as const;
/** Why an element differs: the first of these causes that applies. */
export type Cause = (typeof CAUSES)[number];

/** The number of elements whose codes are from `from` to `to` units of the last place apart, inclusive. */
export interface UlpBucket {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

/** The differences of `b` from `a`, the reference. Elements that are NaN in both are equal. */
export interface ErrorStatistics {
  readonly elements: number;
  /** The number of elements that differ. Zeros of different sign differ. */
  readonly different: number;
  /** The number of elements that are NaN in both tensors with different bits. */
  readonly nansOfOtherBits: number;
  /** The number of differing elements by cause. */
  readonly causes: Readonly<Record<Cause, number>>;
  /**
   * The differing elements without those where one side is NaN, by the number of codes from one to the other. Buckets are 0
   * (zeros
   * of different sign), 1, 2, 3 to 4, 5 to 8 and so on; empty ones are absent.
   */
  readonly ulps: readonly UlpBucket[];
  /** The largest number of codes from one side to the other; NaN is not counted. */
  readonly maxUlp: number;
  /** The largest |b - a|; NaN is not counted. */
  readonly maxAbsError: number;
  /** The largest |b - a| / |a|; infinite where only b is not 0, or only one of both is infinite. NaN is not counted. */
  readonly maxRelError: number;
  /**
   * The signal to quantization noise ratio, 10 log10(Σ a² / Σ (b - a)²) dB, over elements that are finite in both. Infinite
   * without
   * noise.
   */
  readonly sqnr: number;
}

/** Buckets: 0, then for each k from 0 the distances above 2^(k-1) up to 2^k. */
const BUCKETS = 66;

/** Returns the bucket of a distance, an integer from 0. */
function bucketOf(ulp: number): number {
  if (ulp <= 0) return 0;
  if (ulp <= 0x7fffffff) return 33 - Math.clz32(ulp - 1);
  return 1 + Math.ceil(Math.log2(ulp));
}

/** Indices of `CAUSES`. */
export const SCALE: number = CAUSES.indexOf("scale");
export const TIE: number = CAUSES.indexOf("tie");
const ONE: number = CAUSES.indexOf("offByOne");
const SIGN: number = CAUSES.indexOf("signOfZero");
const NAN: number = CAUSES.indexOf("nan");
const WRONG: number = CAUSES.indexOf("wrong");

/** The indices of sums in the array of a collector. */
const SIGNAL = 0;
const NOISE = 1;
const MAX_ABS = 2;
const MAX_REL = 3;
const MAX_ULP = 4;

/** Collects the statistics of pairs of elements. Each pair is passed once, to one of its methods. */
export class StatisticsCollector {
  readonly #sums = new Float64Array(5);
  readonly #buckets = new Float64Array(BUCKETS);
  readonly #causes = new Float64Array(CAUSES.length);
  #equal = 0;
  #nans = 0;

  /** Adds `count` elements that are equal, with the sum of the squares of the finite ones. */
  equal(count: number, squares: number): void {
    this.#equal += count;
    this.#sums[SIGNAL] = (this.#sums[SIGNAL] as number) + squares;
  }

  /** Adds an element that is NaN in both with different bits. */
  otherNaN(): void {
    this.#nans++;
  }

  /**
   * Adds an element that differs. `ulp` is the distance between the codes; it is ignored if one is NaN. `knownCause` is the cause
   * if it is `scale` or `tie`, else -1. Causes are indices of `CAUSES`. Returns the cause.
   */
  different(a: number, b: number, ulp: number, knownCause: number): number {
    const cause =
      Number.isNaN(a) || Number.isNaN(b)
        ? NAN
        : knownCause >= 0
          ? knownCause
          : ulp === 0
            ? SIGN
            : ulp === 1
              ? ONE
              : WRONG;
    this.#causes[cause] = (this.#causes[cause] as number) + 1;
    if (cause === NAN) return cause;
    const sums = this.#sums;
    const error = a === b ? 0 : Math.abs(b - a);
    if (error > (sums[MAX_ABS] as number)) sums[MAX_ABS] = error;
    const relative = error === 0 || error === Infinity ? error : error / Math.abs(a);
    if (relative > (sums[MAX_REL] as number)) sums[MAX_REL] = relative;
    if (ulp > (sums[MAX_ULP] as number)) sums[MAX_ULP] = ulp;
    const square = error * error;
    if (Number.isFinite(a) && Number.isFinite(b)) {
      sums[SIGNAL] = (sums[SIGNAL] as number) + a * a;
      sums[NOISE] = (sums[NOISE] as number) + square;
    }
    const bucket = bucketOf(ulp);
    this.#buckets[bucket] = (this.#buckets[bucket] as number) + 1;
    return cause;
  }

  /** Returns the collected statistics. */
  result(): ErrorStatistics {
    const sum = (index: number): number => this.#sums[index] as number;
    const counts = CAUSES.map((cause, i) => [cause, this.#causes[i] as number] as const);
    const causes = Object.fromEntries(counts) as Record<Cause, number>;
    const different = counts.reduce((total, [, count]) => total + count, 0);
    return {
      elements: this.#equal + this.#nans + different,
      different,
      nansOfOtherBits: this.#nans,
      causes,
      ulps: [...this.#buckets].flatMap((count, i) => (count > 0 ? [{ ...rangeOf(i), count }] : [])),
      maxUlp: sum(MAX_ULP),
      maxAbsError: sum(MAX_ABS),
      maxRelError: sum(MAX_REL),
      sqnr: sum(NOISE) === 0 ? Infinity : 10 * Math.log10(sum(SIGNAL) / sum(NOISE)),
    };
  }
}

function rangeOf(bucket: number): { readonly from: number; readonly to: number } {
  if (bucket < 2) return { from: bucket, to: bucket };
  return { from: 2 ** (bucket - 2) + 1, to: 2 ** (bucket - 1) };
}
