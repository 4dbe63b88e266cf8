/** What a way to make codes is, and the element that it is for. */
import type { RandomBits } from "../../../src/explain/rounding.js";

/** How a scaled value becomes a code. The first one is right, and has no words. */
export interface Coder {
  readonly words: string;
  readonly of: (value: number, element: CodedElement) => number;
}

/** The element whose scaled value becomes a code. */
export interface CodedElement {
  /** The number that was scaled. */
  readonly x: number;
  /** The sign bit of the number that was scaled, also that of NaN. */
  readonly isNegative: boolean;
  /** The index of its random bits. */
  readonly index: number;
  /** The random bits of an index, of the call or drawn. */
  readonly bitsOf: (index: number) => RandomBits;
}
