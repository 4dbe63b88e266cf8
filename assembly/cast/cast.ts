// Casts between the wide types and codes of any scalar format. Codes of up to 4 bits are packed two per byte, the even
// index in the low nibble; codes of up to 8 bits take a byte, of up to 16 bits a u16, and wider ones a u32. Ranges
// [begin, end) of 4-bit codes start at an even index, and end at an even index or at the end of the tensor.

import { Rounding } from "../contract";
import { fillRandom16 } from "../core/random";
import { asF32 } from "../core/wide";
import { At, ENCODER_BYTES, Loop, lastSeen, prepare, storageOf } from "./encoder";
import { EXACT_LIMIT, encodeAligned, encodeEach, encodeMagic, pack } from "./exact";
import { BF16_LIMIT, encodeBf16, encodeGroups, metNaN } from "./fast";

/** Elements per run. A run that contains NaN is encoded again, so it should be short. */
const RUN: i32 = 2048;

/** Bytes of the `codes` buffer of encodeRun. */
export const CODES_BYTES: usize = 8192;

/**
 * Encodes one run of at most RUN elements by the encoder's SIMD loop. Returns false if the loop met a value that it
 * cannot encode.
 */
function encodeBySimd<M>(
  x: usize,
  dst: usize,
  count: i32,
  encoder: usize,
  multipliers: usize,
  shift: i32,
  random: usize,
  codes: usize,
): bool {
  const storage = load<u32>(encoder, At.Storage);
  switch (load<u32>(encoder, At.Loop)) {
    case Loop.Fast:
      if (storage !== 3) encodeGroups<M, u64, u32>(x, dst, count >> 4, encoder, multipliers, shift - 4);
      else if (load<u32>(encoder, At.Shift) !== 20)
        encodeGroups<M, v128, u32>(x, dst, count >> 4, encoder, multipliers, shift - 4);
      else encodeGroups<M, v128, u8>(x, dst, count >> 4, encoder, multipliers, shift - 4);
      return !metNaN<M>(x, count >> 4, encoder, multipliers, shift - 4);
    case Loop.Bf16:
      encodeBf16<M>(x, dst, count >> 4, encoder, multipliers, shift - 4);
      return lastSeen(encoder) <= BF16_LIMIT;
    case Loop.Magic:
      encodeMagic<M>(x, codes, count, encoder, multipliers, shift, random);
      break;
    case Loop.Aligned:
      encodeAligned<M>(x, codes, count, encoder, multipliers, shift, random);
      break;
    default:
      return false;
  }
  if (lastSeen(encoder) > EXACT_LIMIT - load<u32>(encoder, At.Floor)) return false;
  pack(codes, dst, count, storage);
  return true;
}

/**
 * Encodes `count` f32 values x[i] ⊗ multiplier to `dst`, which starts at a whole byte. M = u32: the multiplier of x[i]
 * has index i >> shift, 4 <= shift <= 31. M = v128: it has index i. M = u8: there is no multiplier. `random` holds 16
 * bits per element if rounding is Stochastic. `codes` is scratch of CODES_BYTES.
 */
export function encodeRun<M>(
  x: usize,
  dst: usize,
  count: i32,
  encoder: usize,
  multipliers: usize,
  shift: i32,
  random: usize,
  codes: usize,
): void {
  const storage = load<u32>(encoder, At.Storage);
  for (let i = 0; i < count; ) {
    const left = min(count - i, RUN);
    const whole = left & -16;
    const run = whole > 0 ? whole : left;
    const m = multipliers + ((sizeof<M>() === 16 ? <usize>i : <usize>i >> shift) << 2);
    const from = x + ((<usize>i) << 2);
    const to = dst + (((<usize>i) << storage) >> 3);
    const draws = random + ((<usize>i) << 1);
    if (whole === 0 || !encodeBySimd<M>(from, to, run, encoder, m, shift, draws, codes)) {
      encodeEach<M>(from, codes, run, encoder, m, shift, draws);
      pack(codes, to, run, storage);
    }
    i += run;
  }
}

/**
 * dst[i] = the code of f32(src[i]) ⊗ scale, with one rounding, for i in [begin, end). `srcType` is a Wide, `rounding` a
 * Rounding, `overflow` an Overflow. Stochastic rounding draws by seed, offset, copy (0 or 1) and i, and requires that
 * `begin` is a multiple of 8. Indices must be below 2^32.
 */
export function encode(
  src: usize,
  srcType: u32,
  dst: usize,
  word: u32,
  rounding: i32,
  overflow: i32,
  scale: f32,
  seedLo: u32,
  seedHi: u32,
  offsetLo: u32,
  offsetHi: u32,
  copy: u32,
  scratch: usize,
  begin: u32,
  end: u32,
): void {
  prepare(scratch, word, rounding, overflow, storageOf(word));
  encodeRange(src, srcType, dst, scale, seedLo, seedHi, offsetLo, offsetHi, copy, scratch, begin, end);
}

/** As `encode`, one element at a time. The SIMD loops are measured and tested against this function. */
export function encodeScalar(
  src: usize,
  srcType: u32,
  dst: usize,
  word: u32,
  rounding: i32,
  overflow: i32,
  scale: f32,
  seedLo: u32,
  seedHi: u32,
  offsetLo: u32,
  offsetHi: u32,
  copy: u32,
  scratch: usize,
  begin: u32,
  end: u32,
): void {
  prepare(scratch, word, rounding, overflow, storageOf(word));
  store<u32>(scratch, Loop.Scalar, At.Loop);
  encodeRange(src, srcType, dst, scale, seedLo, seedHi, offsetLo, offsetHi, copy, scratch, begin, end);
}

/** `encode` with the encoder at the start of `scratch`. */
function encodeRange(
  src: usize,
  srcType: u32,
  dst: usize,
  scale: f32,
  seedLo: u32,
  seedHi: u32,
  offsetLo: u32,
  offsetHi: u32,
  copy: u32,
  scratch: usize,
  begin: u32,
  end: u32,
): void {
  const multiplier = scratch + ENCODER_BYTES;
  const codes = multiplier + 16;
  const buffer = codes + CODES_BYTES;
  const random = buffer + RUN * 4;
  const storage = load<u32>(scratch, At.Storage);
  const stochastic = load<i32>(scratch, At.Rounding) === Rounding.Stochastic;
  store<f32>(multiplier, scale);
  for (let i = begin; i < end; i += RUN) {
    const count = <i32>min<u32>(end - i, RUN);
    if (stochastic) fillRandom16(random, i, count, seedLo, seedHi, offsetLo, offsetHi, copy);
    const x = asF32(src, srcType, i, count, buffer);
    const to = dst + <usize>(((<u64>i) << storage) >> 3);
    if (scale === 1.0) encodeRun<u8>(x, to, count, scratch, 0, 31, random, codes);
    else encodeRun<u32>(x, to, count, scratch, multiplier, 31, random, codes);
  }
}
