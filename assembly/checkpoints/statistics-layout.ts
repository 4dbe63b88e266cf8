// The memory that the functions of statistics.ts and nibble-blocks.ts share with their callers.

/** Byte offsets in the description of a kind of code. */
export const enum Kind {
  /** The f64 square of each of 256 codes; 0 for NaN. */
  Squares = 0,
  /** The f64 magnitude of each of 256 ranks. */
  Magnitudes = 2048,
  /** The ranks of codes of four bits, u8. */
  Ranks = 4096,
  /** The unit of the squares of codes of four bits, f64. */
  Unit = 4112,
  /** The mask of a code without its sign, the last rank that is not NaN, and the rank of the largest finite magnitude: u8. */
  Mask = 4120,
  LastNumber = 4121,
  Largest = 4122,
  /** Whether codes are integers, and whether the code 0x80 is NaN: u8. */
  IsInteger = 4123,
  IsUnsignedZero = 4124,
}

/** Byte offsets of the sums. All are f64. */
export const enum Sum {
  /** Four numbers of blocks: with a nonzero code; with the largest code; with a zero scale; with a NaN code. */
  Nonzero = 0,
  Full = 8,
  ZeroScaled = 16,
  WithNaN = 24,
  /** Two numbers of rows: with a nonzero code; with the largest code. */
  RowsNonzero = 32,
  RowsFull = 40,
  /**
   * The largest magnitude under the stored scales, then under reciprocal scales. The sum of squares of the values stands 8 bytes
   * after each.
   */
  Amax = 48,
  InverseAmax = 64,
  /** The correlation sums of log scale and log RMS of codes, over blocks. */
  Pairs = 80,
}

/**
 * Byte offsets of the sums over all blocks with the same scale byte, in 64 bytes. Logarithms are the log RMS of codes minus the
 * first one, which is stored after the entries and is NaN at the beginning.
 */
export const enum Entry {
  /** The f64 sums of the logarithms and of their squares. */
  Y = 0,
  /** The f64 number of blocks with a finite logarithm; the f64 sum of the squares of codes, or of the ranks of 4-bit codes. */
  Count = 16,
  /** The u32 largest rank, and the u32 number of blocks whose sum of squares is infinite. */
  Rank = 32,
  Infinite = 36,
  /** The u64 number of nonzero codes; only for codes of four bits. */
  Nonzero = 40,
}

/** The address of the first logarithm, after the entries of 256 bytes. */
export const FIRST: usize = 256 << 6;
