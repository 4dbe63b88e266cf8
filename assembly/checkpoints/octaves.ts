// Codes of eight bits in bf16, sixteen at a time. Under most scales, the word of a code is the sum of what its two halves stand
// for: the lower half gives the lower byte and a part of the upper one, the upper half with the sign the rest of that. Magnitudes
// below 8, of which many are subnormal, have tables of their own. `fold` finds out up to which magnitude that holds. Codes above,
// such as NaN, take the whole table.

/** Byte offsets of the fields of a folded table. Each of the first seven has 16 bytes, the others one. */
export const enum At {
  /** The lower byte of a word, and a part of the upper one, by the lower half of a code. */
  Low = 0,
  High = 16,
  /** 0xff for each lower half whose codes change, else 0. */
  Changed = 32,
  /** As Low, High and Changed, of magnitudes below 8. */
  SmallLow = 48,
  SmallHigh = 64,
  SmallChanged = 80,
  /** What the upper half of a code adds to the upper byte. */
  Upper = 96,
  /** 15 and 16, which loops load, because V8 rebuilds `v128` literals in every iteration. */
  Half = 112,
  LeastTwice = 113,
  /** Twice the number of magnitudes from 8 on that the tables give. */
  Span = 114,
  /** Twice the largest magnitude that the tables give. */
  LastTwice = 115,
  /** Whether the tables of magnitudes below 8 hold. */
  Small = 116,
  /** How many of sixteen codes from 8 on change: 0 or 16, or 1 if that depends on the codes. */
  Each = 117,
  /** The least magnitude that the tables do not give: 8 to 128. */
  Limit = 118,
}

/** The least magnitude that has no table of its own. */
const LEAST: usize = 8;

/** Sixteen words of a whole table, those of codes from 16 * row on. */
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

/** Folds tables of 256 codes: their words, which are u16 in u32, and a byte for each code that changes. */
export function fold(words: usize, changed: usize, folded: usize): void {
  // magnitudes 8 to 15 are in the first row, those of the other lower halves in the second one
  const first = highBytes(words, 0);
  const second = highBytes(words, 1);
  const step = i8x16.extract_lane_u(second, 8) - i8x16.extract_lane_u(first, 8);
  const halves = i64x2.shuffle(lowBytes(words, 1), lowBytes(words, 0), 0, 3);
  const highs = i64x2.shuffle(i8x16.sub(second, i8x16.splat(<i8>step)), first, 0, 3);
  const changes = i64x2.shuffle(v128.load(changed, 16), v128.load(changed), 0, 3);
  v128.store(folded, halves, At.Low);
  v128.store(folded, highs, At.High);
  v128.store(folded, changes, At.Changed);
  v128.store(folded, lowBytes(words, 0), At.SmallLow);
  v128.store(folded, first, At.SmallHigh);
  v128.store(folded, v128.load(changed), At.SmallChanged);
  for (let row: usize = 0; row < 16; ++row) {
    const word = load<u32>(words + (((row << 4) + LEAST) << 2));
    store<u8>(folded + row, (word >> 8) - i8x16.extract_lane_u(first, 8), At.Upper);
  }
  let limit: u32 = 128;
  for (let row: usize = 8; row-- > 0; ) {
    let others =
      othersOf(words, changed, folded, At.Low, row) | othersOf(words, changed, folded, At.Low, row | 8);
    if (row === 0) others &= 0xff00;
    if (others) limit = <u32>(row << 4) + ctz(others);
  }
  const small =
    othersOf(words, changed, folded, At.SmallLow, 0) | othersOf(words, changed, folded, At.SmallLow, 8);
  const count = popcnt(<u32>i8x16.bitmask(changes));
  store<u8>(folded, 15, At.Half);
  store<u8>(folded, 2 * LEAST, At.LeastTwice);
  store<u8>(folded, 2 * (limit - <u32>LEAST), At.Span);
  store<u8>(folded, 2 * (limit - 1), At.LastTwice);
  store<u8>(folded, (small & 0xff) === 0, At.Small);
  store<u8>(folded, count % 16 === 0 ? count : 1, At.Each);
  store<u8>(folded, limit, At.Limit);
}

/** The bits of the codes of a row that the three tables at `halves`, Low or SmallLow, do not give. */
function othersOf(words: usize, changed: usize, folded: usize, halves: usize, row: usize): u32 {
  const tables = folded + halves;
  const high = i8x16.add(v128.load(tables, At.High), v128.load8_splat(folded + row, At.Upper));
  const isLow = i8x16.eq(lowBytes(words, row), v128.load(tables, At.Low));
  const isHigh = i8x16.eq(highBytes(words, row), high);
  const isChanged = i8x16.eq(v128.load(changed + (row << 4)), v128.load(tables, At.Changed));
  return <u32>i8x16.bitmask(v128.not(v128.and(v128.and(isLow, isHigh), isChanged)));
}

/** Whether a folded table gives most codes. */
export function isFolded(folded: usize): bool {
  return load<u8>(folded, At.Limit) > 64;
}

/** Whether some of the codes from 8 on change, and others do not, so that they are counted one by one. */
export function isMixed(folded: usize): bool {
  return load<u8>(folded, At.Each) === 1;
}
