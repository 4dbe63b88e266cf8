// Codes of eight bits in bf16, sixteen at a time. Under most scales, the word of a code is the sum of what its two halves stand
// for: the lower half gives the lower byte and a part of the upper one, the upper half with the sign the rest of that. Magnitudes
// below 8, of which many are subnormal, have tables of their own. `fold` finds out up to which magnitude that holds. Codes above,
// such as NaN, take the whole table.

/** Byte offsets of the fields of a folded table. Each of the first five has 16 bytes, the others one. */
export const enum At {
  /** The lower byte of a word, and a part of the upper one, by the lower half of a code. */
  Low = 0,
  High = 16,
  /** As Low and High, of magnitudes below 8. */
  SmallLow = 32,
  SmallHigh = 48,
  /** What the upper half of a code adds to the upper byte. */
  Upper = 64,
  /** 15 and 16, which loops load, because V8 rebuilds `v128` literals in every iteration. */
  Half = 80,
  LeastTwice = 81,
  /** Twice the number of magnitudes from 8 on that the tables give. */
  Span = 82,
  /** Twice the largest magnitude that the tables give. */
  LastTwice = 83,
  /** Whether the tables of magnitudes below 8 hold. */
  Small = 84,
  /** The least magnitude that the tables do not give: 8 to 128. */
  Limit = 85,
}

/** The least magnitude that has no table of its own. */
const LEAST: usize = 8;

/** Sixteen words of the table, for the codes from 16 * row on. */
function lowWords(words: usize, row: usize): v128 {
  const at = words + (row << 6);
  return i16x8.narrow_i32x4_u(v128.load(at), v128.load(at, 16));
}

function highWords(words: usize, row: usize): v128 {
  const at = words + (row << 6);
  return i16x8.narrow_i32x4_u(v128.load(at, 32), v128.load(at, 48));
}

/** The lower bytes of the words of a row. */
function lowBytes(words: usize, row: usize): v128 {
  const mask = i16x8.splat(0xff);
  return i8x16.narrow_i16x8_u(v128.and(lowWords(words, row), mask), v128.and(highWords(words, row), mask));
}

function highBytes(words: usize, row: usize): v128 {
  return i8x16.narrow_i16x8_u(i16x8.shr_u(lowWords(words, row), 8), i16x8.shr_u(highWords(words, row), 8));
}

/** Folds a table of 256 codes: their words, which are u16 in u32. */
export function fold(words: usize, folded: usize): void {
  // magnitudes 8 to 15 are in the first row, the other lower halves in the second one
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
    const word = load<u32>(words + (((row << 4) + LEAST) << 2));
    store<u8>(folded + row, (word >> 8) - i8x16.extract_lane_u(first, 8), At.Upper);
  }
  let limit: u32 = 128;
  for (let row: usize = 8; row-- > 0; ) {
    let others = othersOf(words, folded, At.Low, row) | othersOf(words, folded, At.Low, row | 8);
    if (row === 0) others &= 0xff00;
    if (others) limit = <u32>(row << 4) + ctz(others);
  }
  const small = othersOf(words, folded, At.SmallLow, 0) | othersOf(words, folded, At.SmallLow, 8);
  store<u8>(folded, 15, At.Half);
  store<u8>(folded, 2 * LEAST, At.LeastTwice);
  store<u8>(folded, 2 * (limit - <u32>LEAST), At.Span);
  store<u8>(folded, 2 * (limit - 1), At.LastTwice);
  store<u8>(folded, (small & 0xff) === 0, At.Small);
  store<u8>(folded, limit, At.Limit);
}

/** The bits of the codes of a row that the two tables at `halves`, Low or SmallLow, do not give. */
function othersOf(words: usize, folded: usize, halves: usize, row: usize): u32 {
  const tables = folded + halves;
  const high = i8x16.add(v128.load(tables, At.High), v128.load8_splat(folded + row, At.Upper));
  const isLow = i8x16.eq(lowBytes(words, row), v128.load(tables, At.Low));
  const isHigh = i8x16.eq(highBytes(words, row), high);
  return <u32>i8x16.bitmask(v128.not(v128.and(isLow, isHigh)));
}

/** Whether a folded table gives most codes. */
export function isFolded(folded: usize): bool {
  return load<u8>(folded, At.Limit) > 64;
}
