// Casts between the wide types (f32, bf16, f16) and the codes of any scalar format. 4-bit codes are packed two per
// byte; the low nibble holds the code with the even index. A code of up to 8 bits takes a byte, one of up to 16 bits a
// u16, and a wider one a u32. A range [begin, end) of 4-bit codes starts at an even index, and ends at an even index or
// at the end of the tensor.
//
// `word` is a format word (contract.ts). a ⊗ b is the f32 product of a and b, rounded once.

import { ElementScaling, Rounding } from "../contract";
import { fillRandom16 } from "../core/random";
import { asF32 } from "../core/wide";
import { At, ENCODER_BYTES, Loop, lastSeen, prepare, storageOf, takeWords } from "./encoder";
import { EXACT_LIMIT, encodeAligned, encodeEach, encodeMagic, pack } from "./exact";
import { BF16_LIMIT, encodeBf16, encodeGroups, metNaN } from "./fast";

/** The number of elements encoded at a time. A run that contains NaN is encoded twice, so a run is short. */
export const RUN: i32 = 2048;

/** The size in bytes of the `codes` buffer of encodeRun. */
export const CODES_BYTES: usize = 8192;

/** Encodes one run by encodeGroups. Returns false if it met NaN. */
function encodeFast<M, D>(
  x: usize,
  dst: usize,
  count: i32,
  encoder: usize,
  multipliers: usize,
  shift: i32,
  scaling: u32,
): bool {
  const groups = count >> 4;
  const blockShift = shift - 4;
  if (load<u32>(encoder, At.Storage) !== 3)
    encodeGroups<M, u64, u32, D>(x, dst, groups, encoder, multipliers, blockShift, scaling);
  else if (load<u32>(encoder, At.Shift) !== 20)
    encodeGroups<M, v128, u32, D>(x, dst, groups, encoder, multipliers, blockShift, scaling);
  else encodeGroups<M, v128, u8, D>(x, dst, groups, encoder, multipliers, blockShift, scaling);
  return !metNaN<M>(x, groups, encoder, multipliers, blockShift, (scaling & ElementScaling.Divides) !== 0);
}

/**
 * Encodes up to RUN elements, a multiple of 16, scaled by the ElementScaling bits in `scaling` (Typed means bf16 here). `shift`
 * is as in encodeRun<u32>. Returns false if the encoder has no loop for this scaling, or if the loop met NaN; the caller then
 * uses the general path.
 */
export function encodeComputed(
  x: usize,
  dst: usize,
  count: i32,
  encoder: usize,
  factors: usize,
  shift: i32,
  scaling: u32,
): bool {
  if (load<u32>(encoder, At.Loop) !== Loop.Fast) return false;
  return encodeFast<u32, u32>(x, dst, count, encoder, factors, shift, scaling);
}

/**
 * Encodes one run of at most RUN elements by the encoder's SIMD loop. Returns false if the encoder has no SIMD loop, or
 * if the loop met a value that it encodes incorrectly. The caller then encodes the run again.
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
      return encodeFast<M, u8>(x, dst, count, encoder, multipliers, shift, 0);
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
 * Encodes `count` f32 values x[i] ⊗ multiplier to `dst`, which starts at a whole byte. M selects the multiplier at
 * compile time. M = u32: x[i] has the multiplier at index i >> shift, and 4 <= shift <= 31. M = v128: x[i] has the
 * multiplier at index i. M = u8: there is no multiplier. `random` holds 16 bits per element if the rounding mode is
 * Stochastic, or 32 bits after `takeWords`. `codes` is scratch memory of CODES_BYTES bytes.
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
    const remaining = min(count - i, RUN);
    const vectorCount = remaining & -16;
    const run = vectorCount > 0 ? vectorCount : remaining;
    const m = multipliers + ((sizeof<M>() === 16 ? <usize>i : <usize>i >> shift) << 2);
    const from = x + ((<usize>i) << 2);
    const to = dst + (((<usize>i) << storage) >> 3);
    const draws = random + ((<usize>i) << load<u32>(encoder, At.RandomShift));
    if (vectorCount === 0 || !encodeBySimd<M>(from, to, run, encoder, m, shift, draws, codes)) {
      encodeEach<M>(from, codes, run, encoder, m, shift, draws);
      pack(codes, to, run, storage);
    }
    i += run;
  }
}

/**
 * dst[i] = the code of f32(src[i]) ⊗ scale, for i in [begin, end); the product is rounded to the format once. `srcType`
 * is a Wide, `rounding` a Rounding, `overflow` an Overflow. Stochastic rounding reads the random bits of element i for
 * this seed, offset and copy (0 or 1; core/random.ts); `begin` must then be a multiple of 8. Indices must be below
 * 2^32.
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

/**
 * As `encode`, with stochastic rounding by the caller's random bits: one u32 per element, at the element's index in `words`. The
 * magnitude is rounded up if the sum of the word and the discarded fraction, in units of 2^-32, carries.
 */
export function encodeByWords(
  src: usize,
  srcType: u32,
  dst: usize,
  word: u32,
  overflow: i32,
  scale: f32,
  words: usize,
  scratch: usize,
  begin: u32,
  end: u32,
): void {
  prepare(scratch, word, Rounding.Stochastic, overflow, storageOf(word));
  takeWords(scratch);
  const multiplier = scratch + ENCODER_BYTES;
  const codes = multiplier + 16;
  const buffer = codes + CODES_BYTES;
  const storage = load<u32>(scratch, At.Storage);
  store<f32>(multiplier, scale);
  for (let i = begin; i < end; i += RUN) {
    const count = <i32>min<u32>(end - i, RUN);
    const x = asF32(src, srcType, i, count, buffer);
    const to = dst + <usize>(((<u64>i) << storage) >> 3);
    encodeRun<u32>(x, to, count, scratch, multiplier, 31, words + ((<usize>i) << 2), codes);
  }
}

/** As `encode`, but one element at a time. Tests and benchmarks compare the SIMD loops with this function. */
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

/** As `encode`. The prepared encoder is at the start of `scratch`. */
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
