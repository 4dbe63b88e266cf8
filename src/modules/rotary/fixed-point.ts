/**
 * Functions of real numbers in fixed-point arithmetic: bigints in units of 2^-320. Errors are below 2^-150, so that a result
 * that is rounded to f64 or f32 is the nearest number.
 */

/** A number in units of 2^-320. */
export type Fixed = bigint;

const BITS = 320n;
const ONE: Fixed = 1n << BITS;
const LN2: Fixed = 2n * inverseSeries(3n, 1n);
/** π. */
export const PI: Fixed = 4n * (4n * inverseSeries(5n, -1n) - inverseSeries(239n, -1n)); // Machin's formula
const HALF_PI = PI / 2n;

const view = new DataView(new ArrayBuffer(8));

/** Returns the value of a finite number, exactly if it is a multiple of 2^-320. */
export function fixed(x: number): Fixed {
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const exponent = (bits >> 52n) & 0x7ffn;
  const fraction = bits & ((1n << 52n) - 1n);
  const magnitude = exponent === 0n ? fraction : fraction + (1n << 52n);
  const shift = BITS - 1074n + (exponent === 0n ? 0n : exponent - 1n);
  const value = shift < 0n ? magnitude >> -shift : magnitude << shift;
  return bits >> 63n ? -value : value;
}

/** Returns a number that rounds to f32, or another type of at most 50 bits, as the exact value does. */
export function toOdd(x: Fixed): number {
  const magnitude = x < 0n ? -x : x;
  const extra = BigInt(magnitude.toString(2).length) - 52n;
  if (extra <= 0n) return Number(x) * 2 ** -Number(BITS);
  const top = magnitude >> extra;
  const odd = top << extra === magnitude ? top : top | 1n;
  return Number(x < 0n ? -odd : odd) * 2 ** Number(extra - BITS);
}

/** Returns the nearest f64 of a number of magnitude 2^-700 to 2^700. */
export function toNumber(x: Fixed): number {
  return Number(x) * 2 ** -Number(BITS);
}

/** Returns x * numerator / denominator. */
export function ratio(x: Fixed, numerator: bigint, denominator: bigint): Fixed {
  return (x * numerator) / denominator;
}

/** Returns the natural logarithm of x > 0. */
export function log(x: Fixed): Fixed {
  const exponent = BigInt(x.toString(2).length) - 1n - BITS;
  const mantissa = exponent < 0n ? x << -exponent : x >> exponent;
  const t = ((mantissa - ONE) << BITS) / (mantissa + ONE);
  const square = multiply(t, t);
  let power = t;
  let sum = 0n;
  for (let k = 1n; power !== 0n; k += 2n) {
    sum += power / k;
    power = multiply(power, square);
  }
  return 2n * sum + exponent * LN2;
}

/** Returns e^x. */
export function exp(x: Fixed): Fixed {
  const n = (x + LN2 / 2n) / LN2;
  const r = x - n * LN2;
  let term = ONE;
  let sum = 0n;
  for (let k = 1n; term !== 0n && term !== -1n; k++) {
    sum += term;
    term = multiply(term, r) / k;
  }
  return n < 0n ? sum >> -n : sum << n;
}

/** Returns the cosine and the sine of x. */
export function cosSin(x: Fixed): readonly [cos: Fixed, sin: Fixed] {
  const half = HALF_PI / 2n;
  const n = (x + (x < 0n ? -half : half)) / HALF_PI;
  const r = x - n * HALF_PI;
  const square = multiply(r, r);
  const cos = alternatingSeries(ONE, square, 1n);
  const sin = alternatingSeries(r, square, 2n);
  switch (((n % 4n) + 4n) % 4n) {
    case 0n:
      return [cos, sin];
    case 1n:
      return [-sin, cos];
    case 2n:
      return [-cos, -sin];
    default:
      return [sin, -cos];
  }
}

/**
 * Returns a sum of terms with alternating signs. Each term is the previous one times `square` / (k (k + 1)), for k =
 * `firstIndex`, `firstIndex` + 2, ...
 */
function alternatingSeries(term: Fixed, square: Fixed, firstIndex: bigint): Fixed {
  let sum = 0n;
  for (let k = firstIndex, summand = term; summand !== 0n && summand !== -1n; k += 2n) {
    sum += summand;
    summand = -multiply(summand, square) / (k * (k + 1n));
  }
  return sum;
}

function multiply(a: Fixed, b: Fixed): Fixed {
  return (a * b) >> BITS;
}

/** The sum of sign^k / ((2k + 1) n^(2k + 1)): the inverse tangent (-1) or hyperbolic tangent (1) of 1 / n. */
function inverseSeries(n: bigint, sign: bigint): Fixed {
  let power = (ONE << 32n) / n;
  let sum = 0n;
  for (let k = 1n, s = 1n; power !== 0n; k += 2n, s *= sign) {
    sum += (s * power) / k;
    power /= n * n;
  }
  return sum >> 32n;
}
