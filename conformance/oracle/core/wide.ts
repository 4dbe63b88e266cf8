/**
 * Real functions in fixed-point arithmetic, with an error below 2^-100 relative to every result that f32 can hold. They are the
 * truth against which accuracy is measured. A Real is a bigint in units of 2^-256; the smallest positive f32 is 2^107 units.
 */
export type Real = bigint;

const BITS = 256n;
const ONE: Real = 1n << BITS;
const LN2 = 2n * atanhOfInverse(3n);
const PI = 4n * (4n * atanOfInverse(5n) - atanOfInverse(239n)); // Machin's formula
const ROOT_PI = squareRoot(PI);

/** The exact value of a finite f32, or of an f64 that is a multiple of 2^-256. */
export function real(x: number): Real {
  let units = x;
  let shift = BITS;
  for (; shift > 0n && !Number.isInteger(units); shift--) units *= 2;
  return BigInt(units) << shift;
}

export function multiply(a: Real, b: Real): Real {
  return (a * b) >> BITS;
}

function divide(a: Real, b: Real): Real {
  return (a << BITS) / b;
}

/** e^x; 0 below x = -200 and e^200 above x = 200. Both results are beyond the range of f32. */
export function exp(x: Real): Real {
  if (x < -200n * ONE) return 0n;
  if (x > 200n * ONE) return exp(200n * ONE);
  const n = (x + LN2 / 2n) / LN2;
  const r = (x - n * LN2) >> 16n;
  let term = ONE;
  let sum = 0n;
  for (let k = 1n; term !== 0n && term !== -1n; k++) {
    sum += term;
    term = multiply(term, r) / k;
  }
  for (let k = 0; k < 16; k++) sum = multiply(sum, sum);
  return n < 0n ? sum >> -n : sum << n;
}

/** tanh x: (1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x. */
export function tanh(x: Real): Real {
  if (x < 0n) return -tanh(-x);
  const e = exp(-2n * x);
  return divide(ONE - e, ONE + e);
}

/** 1 / (1 + e^-x). */
export function sigmoid(x: Real): Real {
  if (x < -200n * ONE) return 0n;
  return divide(ONE, ONE + exp(-x));
}

/** The natural logarithm of x > 0. The f64 logarithm is refined by Halley's iteration with exp. */
export function log(x: Real): Real {
  const length = BigInt(x.toString(2).length);
  const shift = length - BITS;
  const mantissa = shift < 0n ? x << -shift : x >> shift; // in [1/2, 1)
  let y = real(Math.log(Number(mantissa >> (BITS - 60n)) / 2 ** 60));
  for (let k = 0; k < 2; k++) {
    const e = exp(y);
    y += 2n * divide(mantissa - e, mantissa + e);
  }
  return y + shift * LN2;
}

/** The error function: 2 / (sqrt(pi) e^(x^2)) times the sum of 2^k x^(2k+1) / (1 3 5 ... (2k+1)). */
export function erf(x: Real): Real {
  if (x < 0n) return -erf(-x);
  if (x > 13n * ONE) return ONE;
  const square = multiply(x, x);
  let term = x;
  let sum = 0n;
  for (let k = 3n; term !== 0n; k += 2n) {
    sum += term;
    term = (2n * multiply(term, square)) / k;
  }
  return divide(2n * sum, multiply(exp(square), ROOT_PI));
}

/** The smallest number that rounds to infinity: the largest f32 plus half a unit of its last place. */
const OVERFLOW = real(2 ** 128 - 2 ** 103);

/** The distance of the f32 `actual` from `truth`, in units of the last place of an f32 of that magnitude. */
export function ulpsApart(actual: number, truth: Real): number {
  const magnitude = truth < 0n ? -truth : truth;
  if (magnitude >= OVERFLOW && actual === (truth < 0n ? -1 : 1) / 0) return 0;
  if (!Number.isFinite(actual)) return Number.POSITIVE_INFINITY;
  const length = BigInt(magnitude.toString(2).length);
  const lowest = BITS - 149n;
  const last = length - 24n > lowest ? length - 24n : lowest;
  const difference = real(actual) > truth ? real(actual) - truth : truth - real(actual);
  return Number((difference << 32n) >> last) / 2 ** 32;
}

function atanOfInverse(n: bigint): Real {
  return inverseSeries(n, -1n);
}

function atanhOfInverse(n: bigint): Real {
  return inverseSeries(n, 1n);
}

/** The series of atan (sign -1) or atanh (sign 1) at 1/n: the sum of sign^k / ((2k + 1) n^(2k + 1)). */
function inverseSeries(n: bigint, sign: bigint): Real {
  let power = (ONE << 32n) / n;
  let sum = 0n;
  for (let k = 1n, s = 1n; power !== 0n; k += 2n, s *= sign) {
    sum += (s * power) / k;
    power /= n * n;
  }
  return sum >> 32n;
}

function squareRoot(x: Real): Real {
  const target = x << BITS;
  let y = 2n * ONE;
  for (;;) {
    const next = (y + target / y) >> 1n;
    if (next >= y) return y;
    y = next;
  }
}
