// The Philox 4x32-10 random number generator (Salmon et al., SC11). The random bits of an element depend only on its
// index, the seed, the offset and the copy, so they do not depend on the number of threads (docs/numerics.md, choice
// 6). A draw is one output of the generator, 128 bits, which consecutive elements share. The key is the seed. The
// counter of draw d has four words: d; the copy (0 rowwise, 1 columnwise) in the top bit; the low and the high word of
// the offset.

/** The inputs that determine the random bits of all elements. */
@unmanaged
export class Draws {
  seedLo: u32;
  seedHi: u32;
  offsetLo: u32;
  offsetHi: u32;
  /** 0 rowwise, 1 columnwise. */
  copy: u32;
}

const M0: u32 = 0xd2511f53;
const M1: u32 = 0xcd9e8d57;
const WEYL0: u32 = 0x9e3779b9;
const WEYL1: u32 = 0xbb67ae85;
const ROUNDS: i32 = 10;

/** Computes the four draws from `draw` on, whose top bit is the copy, and stores them at `dst`, 64 bytes. */
export function philox4(draws: Draws, draw: u64, dst: usize): void {
  const m0 = i32x4.splat(M0);
  const m1 = i32x4.splat(M1);
  const c0 = <u32>draw;
  const c1 = <u32>(draw >> 32);
  let key0 = draws.seedLo;
  let key1 = draws.seedHi;
  let x = i32x4.add(i32x4.splat(c0), i32x4(0, 1, 2, 3));
  // a true comparison is -1, so subtracting it adds the carry of the low word
  let y = i32x4.sub(i32x4.splat(c1), i32x4.lt_u(x, i32x4.splat(c0)));
  let z = i32x4.splat(draws.offsetLo);
  let w = i32x4.splat(draws.offsetHi);
  for (let r = 0; r < ROUNDS; ++r) {
    const x01 = i64x2.extmul_low_i32x4_u(x, m0);
    const x23 = i64x2.extmul_high_i32x4_u(x, m0);
    const z01 = i64x2.extmul_low_i32x4_u(z, m1);
    const z23 = i64x2.extmul_high_i32x4_u(z, m1);
    x = v128.xor(v128.xor(i32x4.shuffle(z01, z23, 1, 3, 5, 7), y), i32x4.splat(key0));
    y = i32x4.shuffle(z01, z23, 0, 2, 4, 6);
    z = v128.xor(v128.xor(i32x4.shuffle(x01, x23, 1, 3, 5, 7), w), i32x4.splat(key1));
    w = i32x4.shuffle(x01, x23, 0, 2, 4, 6);
    key0 += WEYL0;
    key1 += WEYL1;
  }
  const xy01 = i32x4.shuffle(x, y, 0, 4, 1, 5);
  const xy23 = i32x4.shuffle(x, y, 2, 6, 3, 7);
  const zw01 = i32x4.shuffle(z, w, 0, 4, 1, 5);
  const zw23 = i32x4.shuffle(z, w, 2, 6, 3, 7);
  v128.store(dst, i64x2.shuffle(xy01, zw01, 0, 2));
  v128.store(dst, i64x2.shuffle(xy01, zw01, 1, 3), 16);
  v128.store(dst, i64x2.shuffle(xy23, zw23, 0, 2), 32);
  v128.store(dst, i64x2.shuffle(xy23, zw23, 1, 3), 48);
}

/**
 * Writes the 16 random bits of each of the elements [first, first + count) to `dst`, as u16. Eight
 * elements share a draw, so `first` is a multiple of 8. The function may write up to 31 values more.
 */
export function fillRandom16(draws: Draws, dst: usize, first: u32, count: i32): void {
  const copy = (<u64>draws.copy) << 63;
  for (let i = 0; i < count; i += 32) {
    philox4(draws, <u64>((first + i) >> 3) | copy, dst + ((<usize>i) << 1));
  }
}

/**
 * Writes sixteen u16 to `dst`, one for each byte of a draw, in element order. The upper byte of each is 255 - byte, its
 * lower byte 0xff.
 */
function spread8(draw: v128, dst: usize): void {
  const inverted = v128.not(draw);
  const ones = i8x16.splat(-1);
  v128.store(dst, i8x16.shuffle(ones, inverted, 0, 16, 0, 18, 0, 17, 0, 19, 0, 20, 0, 22, 0, 21, 0, 23));
  v128.store(dst, i8x16.shuffle(ones, inverted, 0, 24, 0, 26, 0, 25, 0, 27, 0, 28, 0, 30, 0, 29, 0, 31), 16);
}

/**
 * Writes a u16 for each of the elements [first, first + count). The encoding loops round up if the u16
 * is below a 16-bit fraction. It is below the fraction exactly if the element's 8 random bits plus the upper 8 bits of
 * the fraction are at least 2^8, which is the rule for 8 random bits. Sixteen elements share a draw, so `first` is a
 * multiple of 16. The function may write up to 63 values more.
 */
export function fillRandom8(draws: Draws, dst: usize, first: u32, count: i32): void {
  fillRandom8From(draws, dst, <u64>first >> 4, count);
}

/** As `fillRandom8`, but starts at draw `draw`. The elements belong to a larger matrix, so `draw` may exceed 32 bits. */
export function fillRandom8From(draws: Draws, dst: usize, draw: u64, count: i32): void {
  const copy = (<u64>draws.copy) << 63;
  for (let i = 0; i < count; i += 64) {
    const to = dst + ((<usize>i) << 1);
    // The draws are stored in the upper half of the output. Each is read before it is overwritten.
    const source = to + 64;
    philox4(draws, (draw + (<u64>i >> 4)) | copy, source);
    for (let k: usize = 0; k < 4; ++k) spread8(v128.load(source + (k << 4)), to + (k << 5));
  }
}
