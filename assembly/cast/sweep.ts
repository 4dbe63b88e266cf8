// Digests of an encoding: all 2^32 f32 bit patterns are encoded, and their codes are reduced to two 32-bit sums
// (`lockstep sweep`).

import { Rounding } from "../contract";
import { Draws, fillRandom16 } from "../core/random";
import { CODES_BYTES, encodeRun } from "./cast";
import { At, ENCODER_BYTES, prepare, storageOf } from "./encoder";

const MIX0: u32 = 0x7feb352d;
const MIX1: u32 = 0x846ca68b;

/** Bit patterns per block. The range of `sweep` counts blocks. */
const BLOCK: i32 = 0x10000;
/** The number of bit patterns encoded at a time. */
const RUN: i32 = 4096;

/** dst[i] = the u32 first + i; `count` is a multiple of four. */
function fillPatterns(dst: usize, first: u32, count: i32): void {
  let v = i32x4.add(i32x4.splat(first), i32x4(0, 1, 2, 3));
  const four = i32x4.splat(4);
  for (let i = 0; i < count; i += 4) {
    v128.store(dst + ((<usize>i) << 2), v);
    v = i32x4.add(v, four);
  }
}

/**
 * (code + 1) * (mix | 1), where mix is as in `sweep`. `folded` is the bit pattern after the first step of mix, which is the same
 * for both sums.
 */
function term(code: v128, folded: v128, k: v128, one: v128): v128 {
  const x = i32x4.mul(folded, k);
  return i32x4.mul(i32x4.add(code, one), v128.or(v128.xor(x, i32x4.shr_u(x, 15)), one));
}

/** Adds the terms of `count` codes of type C to the two sums at `sums`. Each sum has four lanes. */
function addTerms<C>(codes: usize, first: u32, count: i32, sums: usize): void {
  const one = i32x4.splat(1);
  const k0 = i32x4.splat(MIX0);
  const k1 = i32x4.splat(MIX1);
  const four = i32x4.splat(4);
  let index = i32x4.add(i32x4.splat(first), i32x4(0, 1, 2, 3));
  let sum0 = v128.load(sums);
  let sum1 = v128.load(sums, 16);
  for (let i = 0; i < count; i += 4) {
    const p = codes + <usize>i * sizeof<C>();
    const code =
      sizeof<C>() === 1
        ? i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(v128.load32_zero(p)))
        : sizeof<C>() === 2
          ? v128.load16x4_u(p)
          : v128.load(p);
    const folded = v128.xor(index, i32x4.shr_u(index, 16));
    sum0 = i32x4.add(sum0, term(code, folded, k0, one));
    sum1 = i32x4.add(sum1, term(code, folded, k1, one));
    index = i32x4.add(index, four);
  }
  v128.store(sums, sum0);
  v128.store(sums, sum1, 16);
}

function sumLanes(p: usize): u32 {
  return load<u32>(p) + load<u32>(p, 4) + load<u32>(p, 8) + load<u32>(p, 12);
}

/** The arguments of `sweep`. */
@unmanaged
class SweepTask {
  draws: Draws;
  word: u32;
  rounding: i32;
  overflow: i32;
  out: usize;
}

/**
 * Encodes the bit patterns of blocks [begin, end), 2^16 patterns each. For k = MIX0 and k = MIX1, it sums (code(i) + 1)
 * * (mix(i, k) | 1) modulo 2^32 over these patterns i, where mix is x ^= x >>> 16, x *= k, x ^= x >>> 15. It adds the
 * two sums atomically to the u32 pair at `out`. In formats stored in 16 bits NaN counts as code 0xFFFF. Stochastic
 * rounding takes the random bits of element i for pattern i.
 */
export function sweep(task: SweepTask, scratch: usize, begin: u32, end: u32): void {
  const word = task.word;
  const isStochastic = task.rounding === Rounding.Stochastic;
  const out = task.out;
  const sums = scratch + ENCODER_BYTES;
  const buffer = sums + 32;
  const patterns = buffer + CODES_BYTES;
  const codes = patterns + RUN * 4;
  const random = codes + RUN * 4;
  const storage = max<u32>(storageOf(word), 3);
  prepare(scratch, word, task.rounding, task.overflow, storage);
  store<usize>(scratch, buffer, At.Codes);
  memory.fill(sums, 0, 32);
  for (let block = begin; block < end; ++block) {
    for (let run = 0; run < BLOCK; run += RUN) {
      const first = (block << 16) + run;
      fillPatterns(patterns, first, RUN);
      if (isStochastic) fillRandom16(task.draws, random, first, RUN);
      store<usize>(scratch, random, At.Random);
      encodeRun<u8>(scratch, patterns, codes, RUN, 0);
      if (storage === 3) addTerms<u8>(codes, first, RUN, sums);
      else if (storage === 4) {
        if ((first & 0x7fffffff) >= 0x7f800000) markNaNs(codes, first, RUN);
        addTerms<u16>(codes, first, RUN, sums);
      } else addTerms<u32>(codes, first, RUN, sums);
    }
  }
  atomic.add<u32>(out, sumLanes(sums));
  atomic.add<u32>(out, sumLanes(sums + 16), 4);
}

/** Sets the 16-bit codes of a run of NaN patterns to 0xFFFF. If the first pattern is infinity, its code stays. */
function markNaNs(codes: usize, first: u32, count: i32): void {
  const skipped = (first & 0x7fffffff) === 0x7f800000 ? 2 : 0;
  memory.fill(codes + skipped, 0xff, <usize>count * 2 - skipped);
}
