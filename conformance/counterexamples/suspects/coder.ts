/** The types of a coder, which turns a scaled value into a code, and of the element it encodes. */
import type { RandomBits } from "../../../src/explain/rounding.js";

/** A way to turn a scaled value into a code. The first one is correct, and its words are empty. */
export interface Coder {
  readonly words: string;
  readonly of: (value: number, element: CodedElement) => number;
}

/** The element whose scaled value is encoded. */
export interface CodedElement {
  /** The number that was scaled. */
  readonly x: number;
  /** The sign bit of the scaled number, also of a NaN. */
  readonly isNegative: boolean;
  /** The index of its random bits. */
  readonly index: number;
  /** The random bits at an index: the caller's, or drawn. */
  readonly bitsOf: (index: number) => RandomBits;
}
