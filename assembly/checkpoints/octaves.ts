// Converts 8-bit codes to bf16, sixteen at a time, by tables of half codes. Under most scales the word of a code is a sum: the
// lower half of the code determines the lower byte and a part of the upper byte; the upper half, with the sign, determines the
// rest of the upper byte. Magnitudes below 8, many of which are subnormal, have separate tables. `fold` determines up to which
// magnitude the tables hold. Larger codes, such as NaN, use the full table.

/** Byte offsets of the fields of a folded table. The first five fields have 16 bytes, the others one. */
export const enum At {
  /** The lower byte of a word, and a part of its upper byte, indexed by the lower half of a code. */
  Low = 0,
  High = 16,
  /** As Low and High, for magnitudes below 8. */
  SmallLow = 32,
  SmallHigh = 48,
  /** The term that the upper half of a code adds to the upper byte. */
  Upper = 64,
  /** The constants 15 and 16. Loops load them, because V8 rebuilds `v128` literals in every iteration. */
  Half = 80,
  LeastTwice = 81,
  /** Twice the number of magnitudes, counted from 8, that the tables cover. */
  Span = 82,
  /** Twice the largest magnitude that the tables cover. */
  LastTwice = 83,
  /** Whether the tables cover magnitudes below 8. */
  Small = 84,
  /** The least magnitude that the tables do not cover: 8 to 128. */
  Limit = 85,
}

/** The least magnitude that is not in the separate tables. */
const FIRST_FOLDED: usize = 8;

/** The words of codes 16 * row to 16 * row + 7. */
function lowWords(words: usize, row: usize): v128 {
  const at = words + (row << 6);
  return i16x8.narrow_i32x4_u(v128.load(at), v128.load(at, 16));
}

function highWords(words: usize, row: usize): v128 {
  const at = words + (row << 6);
  return i16x8.narrow_i32x4_u(v128.load(at, 32), v128.load(at, 48));
}

/** The lower bytes of the words of codes 16 * row to 16 * row + 15. */
function lowBytes(words: usize, row: usize): v128 {
  const mask = i16x8.splat(0xff);
  return i8x16.narrow_i16x8_u(v128.and(lowWords(words, row), mask), v128.and(highWords(words, row), mask));
}

function highBytes(words: usize, row: usize): v128 {
  return i8x16.narrow_i16x8_u(i16x8.shr_u(lowWords(words, row), 8), i16x8.shr_u(highWords(words, row), 8));
}

/** Folds a table of 256 words, each a u16 stored in a u32. */
export function fold(words: usize, folded: usize): void {
  // Low and High take magnitudes 8 to 15 from the first row, and the other lower halves from the second
  const first = highBytes(words, 0);
  const second = highBytes(words, 1);
  const step = i8x16.extract_lane_u(second, 8) - i8x16.extract_lane_u(first, 8);
  const halves = i64x2.shuffle(lowBytes(words, 1), lowBytes(words, 0), 0, 3);
  const highs = i64x2.shuffle(i8x16.sub(second, i8x16.splat(<i8>step)), first, 0, 3);
  v128.store(folded, halves, At.Low);
  v128.store(folded, highs, At.High);
  v128.store(folded, lowBytes(words, 0), At.SmallLow);
  v128.store(folded, first, At.SmallHigh);
  for (let row: usize = 0; row < 16; ++row) {
    const word = load<u32>(words + (((row << 4) + FIRST_FOLDED) << 2));
    store<u8>(folded + row, (word >> 8) - i8x16.extract_lane_u(first, 8), At.Upper);
  }
  let limit: u32 = 128;
  for (let row: usize = 8; row-- > 0; ) {
    let missing = missingCodes(words, folded, At.Low, row) | missingCodes(words, folded, At.Low, row | 8);
    if (row === 0) missing &= 0xff00;
    if (missing) limit = <u32>(row << 4) + ctz(missing);
  }
  const small = missingCodes(words, folded, At.SmallLow, 0) | missingCodes(words, folded, At.SmallLow, 8);
  store<u8>(folded, 15, At.Half);
  store<u8>(folded, 2 * FIRST_FOLDED, At.LeastTwice);
  store<u8>(folded, 2 * (limit - <u32>FIRST_FOLDED), At.Span);
  store<u8>(folded, 2 * (limit - 1), At.LastTwice);
  store<u8>(folded, (small & 0xff) === 0, At.Small);
  store<u8>(folded, limit, At.Limit);
}

/**
 * For each of the sixteen codes of a row, a bit that is set if the tables at `halves` (Low or SmallLow) do not give the code's
 * word.
 */
function missingCodes(words: usize, folded: usize, halves: usize, row: usize): u32 {
  const tables = folded + halves;
  const high = i8x16.add(v128.load(tables, At.High), v128.load8_splat(folded + row, At.Upper));
  const isLow = i8x16.eq(lowBytes(words, row), v128.load(tables, At.Low));
  const isHigh = i8x16.eq(highBytes(words, row), high);
  return <u32>i8x16.bitmask(v128.not(v128.and(isLow, isHigh)));
}

/** Whether a folded table covers most codes. */
export function isFolded(folded: usize): bool {
  return load<u8>(folded, At.Limit) > 64;
}
