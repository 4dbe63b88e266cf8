// A fixed-point accumulator that holds the exact sum of all products of two operands. It consists of signed i64 limbs
// of 32 bits each; the upper half of a limb collects carries until `carry` propagates them. An operand has at most 29
// significant bits (an 8-bit element with an f32 scale) and an exponent from -165 to 137. Therefore LIMBS limbs hold
// the sum of 2^30 products, and the two lowest limbs stay zero.

import { exponentOf, pow2 } from "./datapath";

const LIMBS: usize = 26;
/** The lowest bit of the lowest limb has the value 2^-LOWEST. */
const LOWEST: i32 = 464;

export function clearSum(limbs: usize): void {
  memory.fill(limbs, 0, LIMBS << 3);
}

/** The upper 29 bits of an operand's significand; the lower bits are zero. */
function significandOf(x: f64): u64 {
  return ((reinterpret<u64>(x) & 0x000fffffffffffff) | 0x0010000000000000) >> 24;
}

/** Adds the exact product of two finite, nonzero operands. */
export function addProduct(limbs: usize, x: f64, w: f64): void {
  const bit = exponentOf(x) + exponentOf(w) - 56 + LOWEST;
  const shift = <u64>(bit & 31);
  const product = significandOf(x) * significandOf(w);
  const low = <i64>((product << shift) & 0xffffffff);
  const middle = <i64>((product >> (32 - shift)) & 0xffffffff);
  const high = <i64>((product >> 32) >> (32 - shift));
  const sign = (reinterpret<i64>(x) ^ reinterpret<i64>(w)) >> 63;
  const limb = limbs + ((<usize>(bit >> 5)) << 3);
  store<i64>(limb, load<i64>(limb) + ((low ^ sign) - sign));
  store<i64>(limb, load<i64>(limb, 8) + ((middle ^ sign) - sign), 8);
  store<i64>(limb, load<i64>(limb, 16) + ((high ^ sign) - sign), 16);
}

/**
 * Propagates carries, so that every limb is in [0, 2^32 - 1]. Returns the carry out of the top limb: 0, or -1 for a
 * negative sum.
 */
function carry(limbs: usize): i64 {
  let carryIn: i64 = 0;
  for (let limb = limbs; limb < limbs + (LIMBS << 3); limb += 8) {
    const value = load<i64>(limb) + carryIn;
    store<i64>(limb, value & 0xffffffff);
    carryIn = value >> 32;
  }
  return carryIn;
}

function negate(limbs: usize): void {
  for (let limb = limbs; limb < limbs + (LIMBS << 3); limb += 8) store<i64>(limb, -load<i64>(limb));
}

/**
 * Returns the sum, rounded to odd at 53 significant bits. Rounding this result to f32 gives the f32 nearest to the
 * exact sum. Overwrites the limbs.
 */
export function sumToOdd(limbs: usize): f64 {
  const negative = carry(limbs) < 0;
  if (negative) {
    negate(limbs); // the limbs then hold the magnitude; the carry out of the top limb, 2^(32 * LIMBS), is the sign
    carry(limbs);
  }
  let top = LIMBS - 1;
  while (top > 1 && load<u64>(limbs + (top << 3)) === 0) top--;
  const head = limbs + (top << 3);
  const upper = (load<u64>(head) << 32) | load<u64>(head - 8);
  if (upper === 0) return 0;
  const lower = load<u64>(head - 16) << 32;
  const lead = clz(upper);
  const bits = (upper << lead) | ((lower >> 1) >> (63 - lead));
  let dropped = (bits & 0x7ff) | (lower << lead);
  for (let i: usize = 0; i < top - 2; i++) dropped |= load<u64>(limbs + (i << 3));
  const magnitude =
    <f64>((bits >> 11) | <u64>(dropped !== 0)) * pow2(<i32>(top << 5) - 32 + 11 - <i32>lead - LOWEST);
  return negative ? -magnitude : magnitude;
}
