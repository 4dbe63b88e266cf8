// Codes of eight bits in bf16, sixteen at a time. Under most scales, magnitudes of a float format that are eight codes apart have
// words that are a constant apart, so that the table of 256 codes follows from 16 of its entries. `fold` finds out up to which
// magnitude that holds. Codes above, such as NaN, take the whole table.

/** Byte offsets of the fields of a folded table. */
const enum At {
  /** The lower and the upper bytes of 16 words: those of magnitudes 0 to 7, and those of 8 to 15 less a step. */
  Low = 0,
  High = 16,
  /** 0xff for each of the 16 whose value changes, else 0. */
  Changed = 32,
  /** An eighth of the difference between words eight magnitudes apart, a u8. */
  Step = 48,
  /** The least magnitude that the 16 words do not give, a u8: 0 to 128. */
  Limit = 49,
}

/** The bit of a code that is its sign. */
const SIGN: u8 = 0x80;

/** Folds tables of 256 codes: their words, of which the lower halves count, and a byte for each code that changes. */
export function fold(words: usize, changed: usize, folded: usize): void {
  const step = load<u32>(words, 16 << 2) - load<u32>(words, 8 << 2);
  for (let i: usize = 0; i < 16; ++i) {
    const word = load<u32>(words + (i << 2)) - (i < 8 ? 0 : step);
    store<u8>(folded + i, word, At.Low);
    store<u8>(folded + i, word >> 8, At.High);
    store<u8>(folded + i, load<u8>(changed + i), At.Changed);
  }
  store<u8>(folded, step >> 3, At.Step);
  let limit: u32 = 0;
  if ((step & 7) === 0 && step < 2048) while (limit < 128 && isGiven(words, changed, step, limit)) ++limit;
  store<u8>(folded, limit, At.Limit);
}

/** Whether the entries of a magnitude, of both signs, follow from those of one of the first 16. */
function isGiven(words: usize, changed: usize, step: u32, magnitude: u32): bool {
  const from = magnitude < 8 ? <usize>magnitude : 8 + <usize>(magnitude & 7);
  const octaves = magnitude < 8 ? 0 : (magnitude >> 3) - 1;
  const word = (load<u32>(words + (from << 2)) + octaves * step) & 0xffff;
  const change = load<u8>(changed + from);
  const negative = <usize>magnitude | SIGN;
  return (
    (load<u32>(words + ((<usize>magnitude) << 2)) & 0xffff) === word &&
    (load<u32>(words + (negative << 2)) & 0xffff) === (word ^ 0x8000) &&
    load<u8>(changed + <usize>magnitude) === change &&
    load<u8>(changed + negative) === change
  );
}

/** Whether a folded table gives most codes. */
export function isFolded(folded: usize): bool {
  return load<u8>(folded, At.Limit) > 64;
}

/** Whether a folded table gives all sixteen codes. */
export function gives(folded: usize, codes: v128): bool {
  const magnitudes = v128.and(codes, i8x16.splat(0x7f));
  return !v128.any_true(i8x16.ge_u(magnitudes, v128.load8_splat(folded, At.Limit)));
}

/** Writes the words of sixteen codes that a folded table gives. Returns how many change. */
export function putFolded(codes: v128, folded: usize, dst: usize): u32 {
  const octaves = v128.and(codes, i8x16.splat(0x78));
  // bit 3 is set if any bit of the octave is
  const upper = v128.and(i8x16.ne(octaves, i8x16.splat(0)), i8x16.splat(8));
  const entries = v128.or(v128.and(codes, i8x16.splat(7)), upper);
  const low = i8x16.swizzle(v128.load(folded, At.Low), entries);
  const high = v128.xor(
    i8x16.swizzle(v128.load(folded, At.High), entries),
    v128.and(codes, i8x16.splat(<i8>SIGN)),
  );
  const step = v128.load8_splat(folded, At.Step);
  const first = i8x16.shuffle(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const second = i8x16.shuffle(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  v128.store(dst, i16x8.add(first, i16x8.extmul_low_i8x16_u(octaves, step)));
  v128.store(dst, i16x8.add(second, i16x8.extmul_high_i8x16_u(octaves, step)), 16);
  return popcnt(<u32>i8x16.bitmask(i8x16.swizzle(v128.load(folded, At.Changed), entries)));
}
