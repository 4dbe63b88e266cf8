// The tally of a conversion of stored weights: the number of values that changed, the largest difference, the largest difference
// relative to the original value, the number of finite values that became NaN or infinite, and the sums of squares of the finite
// differences and of their original values. Each of these sums has two lanes, and its last bits depend on the order of elements.
// Values are exact in f64. A difference and a quotient are each rounded to f64 once, so their maxima do not depend on the order.

/** Byte offsets of the fields of a tally. All are f64. */
export const enum TallyAt {
  Changed = 0,
  Max = 8,
  Relative = 16,
  NotFinite = 24,
  Noise = 32,
  Signal = 48,
}

/**
 * Returns a factor f such that difference > f * magnitude holds if the rounded quotient difference / magnitude exceeds
 * `relative`. It does not hold if the quotient equals `relative` and `relative` is a power of two, as for all values that become
 * zero (quotient 1).
 */
export function boundOf(relative: f64): f64 {
  const mantissa = reinterpret<u64>(relative) & 0x000fffffffffffff;
  return mantissa === 0 ? relative : relative * (1 - 2 ** -51);
}

/** The larger of `relative` and difference / magnitude. Divides only if difference > bound * magnitude. */
export function largerQuotient(relative: f64, bound: f64, difference: f64, magnitude: f64): f64 {
  if (!(difference > bound * magnitude)) return relative;
  const quotient = difference / magnitude;
  return quotient > relative ? quotient : relative;
}

/** Adds the squares of four f32 to two f64 sums. */
export function addSquares(sums: v128, four: v128): v128 {
  const low = f64x2.promote_low_f32x4(four);
  const high = f64x2.promote_low_f32x4(i64x2.shuffle(four, four, 1, 1));
  return f64x2.add(sums, f64x2.add(f64x2.mul(low, low), f64x2.mul(high, high)));
}

/** Adds two f64 sums to the two at an address. */
export function addTo(address: usize, sums: v128): void {
  v128.store(address, f64x2.add(v128.load(address), sums));
}
