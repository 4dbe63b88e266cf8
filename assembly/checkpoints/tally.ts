// What a conversion of stored weights changed: the number of values that are not the ones before, the largest difference, the
// largest difference relative to the value before, the number of finite values that became NaN or infinite, and the sums of
// squares of the finite differences and of the values before them, in two lanes each, whose last bits depend on the order of
// elements. Values before and after are f64, and exact. A difference is rounded to f64 once, and so is a quotient of two; the
// largest of them depends on no order.

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
 * A factor f for which difference > f * magnitude holds wherever the rounded quotient of the two is above `relative`, and fails
 * wherever it equals a power of two, as it does for all values that become zero.
 */
export function boundOf(relative: f64): f64 {
  const mantissa = reinterpret<u64>(relative) & 0x000fffffffffffff;
  return mantissa === 0 ? relative : relative * (1 - 2 ** -51);
}

/** The larger one of `relative` and the quotient of a difference and a magnitude, where that is above `bound`. */
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

/** Adds two f64 sums to those at an address. */
export function addTo(address: usize, sums: v128): void {
  v128.store(address, f64x2.add(v128.load(address), sums));
}
