// Casts between the wide types (f32, bf16, f16) and the codes of any scalar format. 4-bit codes are packed two per
// byte; the low nibble holds the code with the even index. A code of up to 8 bits takes a byte, one of up to 16 bits a
// u16, and a wider one a u32. A range [begin, end) of 4-bit codes starts at an even index, and ends at an even index or
// at the end of the tensor.
//
// `word` is a format word (contract.ts). a ⊗ b is the f32 product of a and b, rounded once.

import { ElementScaling, Rounding } from "../contract";
import { Draws, fillRandom16 } from "../core/random";
import { asF32 } from "../core/wide";
import { At, ENCODER_BYTES, Loop, lastSeen, prepare, storageOf, takeWords } from "./encoder";
import { EXACT_LIMIT, encodeAligned, encodeEach, encodeMagic, pack } from "./exact";
import { BF16_LIMIT, encodeBf16, encodeGroups, metNaN } from "./fast";

/** The number of elements encoded at a time. A run that contains NaN is encoded twice, so a run is short. */
export const RUN: i32 = 2048;

/** The size in bytes of the buffer At.Codes of encodeRun. */
export const CODES_BYTES: usize = 8192;

/** Encodes one run by encodeGroups. Returns false if the run contains a NaN. */
function encodeFast<M, D>(encoder: usize, x: usize, dst: usize, count: i32, multipliers: usize): bool {
  const groups = count >> 4;
  if (load<u32>(encoder, At.Storage) !== 3)
    encodeGroups<M, u64, u32, D>(encoder, x, dst, groups, multipliers);
  else if (load<u32>(encoder, At.Shift) !== 20)
    encodeGroups<M, v128, u32, D>(encoder, x, dst, groups, multipliers);
  else encodeGroups<M, v128, u8, D>(encoder, x, dst, groups, multipliers);
  const divides = sizeof<D>() === 4 && (load<u32>(encoder, At.Scaling) & ElementScaling.Divides) !== 0;
  return !metNaN<M>(encoder, x, groups, multipliers, divides);
}

/**
 * Encodes up to RUN elements, a multiple of 16, scaled by the encoder's ElementScaling bits (Typed means bf16 here) and by
 * factors as in encodeRun<u32>. Returns false if the encoder has no loop for this scaling, or if the run contains a NaN; the
 * caller then uses the general path.
 */
export function encodeComputed(encoder: usize, x: usize, dst: usize, count: i32, factors: usize): bool {
  if (load<u32>(encoder, At.Loop) !== Loop.Fast) return false;
  return encodeFast<u32, u32>(encoder, x, dst, count, factors);
}

/**
 * Encodes one run of at most RUN elements by the encoder's SIMD loop. Returns false if the encoder has no SIMD loop, or if the
 * run contains a value that the loop encodes incorrectly. The caller then encodes the run again.
 */
function encodeBySimd<M>(encoder: usize, x: usize, dst: usize, count: i32, multipliers: usize): bool {
  switch (load<u32>(encoder, At.Loop)) {
    case Loop.Fast:
      return encodeFast<M, u8>(encoder, x, dst, count, multipliers);
    case Loop.Bf16:
      encodeBf16<M>(encoder, x, dst, count >> 4, multipliers);
      return lastSeen(encoder) <= BF16_LIMIT;
    case Loop.Magic:
      encodeMagic<M>(encoder, x, count, multipliers);
      break;
    case Loop.Aligned:
      encodeAligned<M>(encoder, x, count, multipliers);
      break;
    default:
      return false;
  }
  if (lastSeen(encoder) > EXACT_LIMIT - load<u32>(encoder, At.Floor)) return false;
  pack(load<usize>(encoder, At.Codes), dst, count, load<u32>(encoder, At.Storage));
  return true;
}

/**
 * Encodes `count` f32 values x[i] ⊗ multiplier to `dst`, which starts at a whole byte. M selects the multiplier at compile time.
 * M = u32: x[i] has the multiplier at index i >> s, where s is At.MultiplierShift, from 4 to 31. M = v128: x[i] has the
 * multiplier at index i. M = u8: there is no multiplier. If the rounding mode is Stochastic, At.Random has 16 bits per element,
 * or 32 after `takeWords`; the pointer is advanced to the last part of the run.
 */
export function encodeRun<M>(encoder: usize, x: usize, dst: usize, count: i32, multipliers: usize): void {
  const storage = load<u32>(encoder, At.Storage);
  const shift = load<i32>(encoder, At.MultiplierShift);
  const random = load<usize>(encoder, At.Random);
  const randomShift = load<u32>(encoder, At.RandomShift);
  for (let i = 0; i < count; ) {
    const remaining = min(count - i, RUN);
    const vectorCount = remaining & -16;
    const run = vectorCount > 0 ? vectorCount : remaining;
    const m = multipliers + ((sizeof<M>() === 16 ? <usize>i : <usize>i >> shift) << 2);
    const from = x + ((<usize>i) << 2);
    const to = dst + (((<usize>i) << storage) >> 3);
    store<usize>(encoder, random + ((<usize>i) << randomShift), At.Random);
    if (vectorCount === 0 || !encodeBySimd<M>(encoder, from, to, run, m)) {
      encodeEach<M>(encoder, from, run, m);
      pack(load<usize>(encoder, At.Codes), to, run, storage);
    }
    i += run;
  }
}

/** The arguments of `encode` and `encodeScalar`. */
@unmanaged
class EncodeTask {
  draws: Draws;
  src: usize;
  srcType: u32;
  dst: usize;
  word: u32;
  rounding: i32;
  overflow: i32;
  scale: f32;
}

/** The arguments of `encodeByWords`. */
@unmanaged
class EncodeByWordsTask {
  src: usize;
  srcType: u32;
  dst: usize;
  word: u32;
  overflow: i32;
  scale: f32;
  words: usize;
}

/**
 * dst[i] = the code of f32(src[i]) ⊗ scale, for i in [begin, end); the product is rounded to the format once. `srcType`
 * is a Wide, `rounding` a Rounding, `overflow` an Overflow. Stochastic rounding reads the random bits of element i
 * (core/random.ts); `begin` must then be a multiple of 8. Indices must be below 2^32.
 */
export function encode(task: EncodeTask, scratch: usize, begin: u32, end: u32): void {
  prepare(scratch, task.word, task.rounding, task.overflow, storageOf(task.word));
  encodeRange(task, scratch, begin, end);
}

/**
 * As `encode`, with stochastic rounding by the caller's random bits: one u32 per element, at the element's index in `words`. The
 * magnitude is rounded up if the sum of the word and the discarded fraction, in units of 2^-32, carries.
 */
export function encodeByWords(task: EncodeByWordsTask, scratch: usize, begin: u32, end: u32): void {
  prepare(scratch, task.word, Rounding.Stochastic, task.overflow, storageOf(task.word));
  takeWords(scratch);
  const multiplier = scratch + ENCODER_BYTES;
  const codes = multiplier + 16;
  const buffer = codes + CODES_BYTES;
  const storage = load<u32>(scratch, At.Storage);
  store<f32>(multiplier, task.scale);
  store<usize>(scratch, codes, At.Codes);
  for (let i = begin; i < end; i += RUN) {
    const count = <i32>min<u32>(end - i, RUN);
    const x = asF32(task.src, task.srcType, i, count, buffer);
    const to = task.dst + <usize>(((<u64>i) << storage) >> 3);
    store<usize>(scratch, task.words + ((<usize>i) << 2), At.Random);
    encodeRun<u32>(scratch, x, to, count, multiplier);
  }
}

/** As `encode`, but one element at a time. Tests and benchmarks compare the SIMD loops with this function. */
export function encodeScalar(task: EncodeTask, scratch: usize, begin: u32, end: u32): void {
  prepare(scratch, task.word, task.rounding, task.overflow, storageOf(task.word));
  store<u32>(scratch, Loop.Scalar, At.Loop);
  encodeRange(task, scratch, begin, end);
}

/** As `encode`. The prepared encoder is at the start of `scratch`. */
function encodeRange(task: EncodeTask, scratch: usize, begin: u32, end: u32): void {
  const multiplier = scratch + ENCODER_BYTES;
  const codes = multiplier + 16;
  const buffer = codes + CODES_BYTES;
  const random = buffer + RUN * 4;
  const storage = load<u32>(scratch, At.Storage);
  const stochastic = task.rounding === Rounding.Stochastic;
  const scale = task.scale;
  store<f32>(multiplier, scale);
  store<usize>(scratch, codes, At.Codes);
  for (let i = begin; i < end; i += RUN) {
    const count = <i32>min<u32>(end - i, RUN);
    if (stochastic) fillRandom16(task.draws, random, i, count);
    const x = asF32(task.src, task.srcType, i, count, buffer);
    const to = task.dst + <usize>(((<u64>i) << storage) >> 3);
    store<usize>(scratch, random, At.Random);
    if (scale === 1.0) encodeRun<u8>(scratch, x, to, count, 0);
    else encodeRun<u32>(scratch, x, to, count, multiplier);
  }
}
