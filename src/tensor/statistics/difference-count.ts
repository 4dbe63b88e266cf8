/** Counts of elements that differ, without their errors. */
import { codesOf, eachDiffering } from "./differing.js";
import { compareBits, type ElementType, f32Rank, NAN_RANK, tableOf } from "./elements.js";
import { widePair } from "./wide.js";

/** The first element that differs. */
export interface FirstDifference {
  /** The index of the element, in row-major order. */
  readonly index: number;
  /** The codes of both sides, as unsigned integers. */
  readonly a: bigint;
  readonly b: bigint;
}

/**
 * Counts the elements of two sequences that differ, chunk by chunk, as `Comparison` does. Packed codes are unpacked before.
 */
export class DifferenceCount {
  #different = 0;
  #nans = 0;
  #first: FirstDifference | undefined;
  #offset = 0;

  constructor(private readonly type: ElementType) {}

  /** The number of elements that differ. Elements that are NaN in both are equal. */
  get different(): number {
    return this.#different;
  }

  /** The number of elements that are NaN in both with different bits. */
  get nansOfOtherBits(): number {
    return this.#nans;
  }

  get first(): FirstDifference | undefined {
    return this.#first;
  }

  /** Skips `count` elements that are equal. */
  skip(count: number): void {
    this.#offset += count;
  }

  /** Adds the next elements of both sides, as bytes, little endian. */
  add(a: Uint8Array, b: Uint8Array): void {
    const unit = (compareBits(this.type) / 8) as 1 | 2 | 4 | 8;
    const { areNaN, codes } = pairsOf(this.type, a, b);
    eachDiffering(a, b, unit, (i) => {
      if (areNaN(i)) {
        this.#nans++;
        return;
      }
      this.#different++;
      if (this.#first) return;
      const [x, y] = codes(i);
      this.#first = { index: this.#offset + i, a: x, b: y };
    });
    this.#offset += a.length / unit;
  }
}

/** Comparisons of the elements `i` of both sides. */
interface Pairs {
  readonly areNaN: (i: number) => boolean;
  readonly codes: (i: number) => readonly [bigint, bigint];
}

function pairsOf(type: ElementType, a: Uint8Array, b: Uint8Array): Pairs {
  const ranks = tableOf(type)?.ranks;
  if (!ranks && type !== "f32") {
    const pair = widePair(type, a, b);
    return { areNaN: (i) => pair(i).areBothNaN, codes: (i) => pair(i).codes };
  }
  const bits = compareBits(type);
  const [x, y] = [codesOf(a, bits), codesOf(b, bits)];
  const isNaNCode = ranks
    ? (code: number) => ranks[code] === NAN_RANK
    : (code: number) => f32Rank(code | 0) === NAN_RANK;
  return {
    areNaN: (i) => isNaNCode(x[i] as number) && isNaNCode(y[i] as number),
    codes: (i) => [BigInt(x[i] as number), BigInt(y[i] as number)],
  };
}
