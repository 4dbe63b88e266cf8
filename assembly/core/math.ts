// Transcendental functions. They are evaluated in f64 with `+ - * /` only, without fused multiply-adds, and rounded once to f32.
// The error is below 0.51 ulp (docs/accuracy.md), also for subnormal results.
//
// The polynomials are minimax fits, computed by the Remez exchange on the interval named at each table. The tables hold
// coefficients as f64 bit patterns in ascending order of their powers; the comment after each is its decimal value. They are
// read from memory because engines rebuild v128 literals inside loops.

// 2^f = 1 + f q(f) for |f| <= 1/2. q is fitted to (2^f - 1) / f within 2^-32.5, so that 2^f - 1 is accurate relative to
// its own magnitude near 0.
const EXP2 = memory.data<u64>(
  [
    0x3fe62e42fef95ec2, // 0.6931471805537159
    0x3fcebfbe045f90ba, // 0.24022650922336714
    0x3fac6b08dc5e381b, // 0.05550410928763957
    0x3f83b2a1b6d1ac24, // 0.009618056670850868
    0x3f55d874c7a0209e, // 0.0013333454539879229
    0x3f244400329185f6, // 0.0001546144715432321
    0x3ef00dc4e519a938, // 0.000015310083034605573
    0x4090000000000000, // 1024
    0xc08ff80000000000, // -1023
    0x43380000000003ff, // 1.5 * 2^52 + 1023
    0x3ff0000000000000, // 1
  ],
  16,
);

// ln m = s p(s^2) with s = (m - 1) / (m + 1), for m in [sqrt(1/2), sqrt(2)); the error is below 2^-37.7.
const LOG = memory.data<u64>(
  [
    0x4000000000004a19, // 2.000000000008424
    0x3fe555554dad28f2, // 0.6666666524045282
    0x3fd999a9c8d66d4d, // 0.4000038586907138
    0x3fd2432c0e5fd678, // 0.2853498592734023
    0x3fce3af8a0ba5c58, // 0.23617465827985273
  ],
  16,
);

// erf x = x p(x^2) for |x| < 1; the error is below 2^-34.8.
const ERF = memory.data<u64>(
  [
    0x3ff20dd7504007e6, // 1.1283791670580228
    0xbfd8127465fb983c, // -0.3761263843465519
    0x3fbce2f0798ae81f, // 0.1128378197417139
    0xbf9b829a7a5e0219, // -0.026865400046064723
    0x3f75628edef9b63e, // 0.005220945443949852
    0xbf4bcbe9a8871160, // -0.000848282900783686
    0x3f1d82692098d811, // 0.00011256949087443147
    0xbee43840579efd47, // -0.000009641519444046827
  ],
  16,
);

// erf x = 1 - 2^p(x) for 1 <= x <= 4; the error in erf is below 2^-34.9.
const ERFC = memory.data<u64>(
  [
    0x3f31d1c45186e371, // 0.00027190249377500366
    0xbffa13014e49a3e7, // -1.6296399171935663
    0xbfed3bb45b8bbd4e, // -0.9135381496434236
    0xbfc4059252664510, // -0.1564200308171526
    0x3fa29f32b6d98db6, // 0.03637083513310861
    0xbf78d9a6ff74a13e, // -0.006066944442217724
    0x3f44decb0fa9194f, // 0.0006369105825079576
    0xbf00696cbd736cdf, // -0.00003130305383943778
  ],
  16,
);

const LOG2E = reinterpret<f64>(0x3ff71547652b82fe); // 1.4426950408889634
const LN2 = reinterpret<f64>(0x3fe62e42fefa39ef); // 0.6931471805599453
const ROOT_HALF: u64 = 0x3fe6a09e667f3bcd; // 0.7071067811865476

/**
 * 2^t in two f64 lanes. t is clamped to [-1023, 1024]; 2^-1023 becomes 0 in f32 and 2^1024 infinity. NaN propagates.
 * Adding 1.5 * 2^52 + 1023 rounds t to an integer n, ties to odd. The low bits of the sum hold n + 1023, the exponent
 * field of 2^n.
 */
export function exp2x2(t: v128): v128 {
  t = f64x2.pmin(t, v128.load64_splat(EXP2, 56));
  t = f64x2.pmax(t, v128.load64_splat(EXP2, 64));
  const magic = v128.load64_splat(EXP2, 72);
  const n = f64x2.add(t, magic);
  const f = f64x2.sub(t, f64x2.sub(n, magic));
  let p = v128.load64_splat(EXP2, 48);
  p = f64x2.add(f64x2.mul(p, f), v128.load64_splat(EXP2, 40));
  p = f64x2.add(f64x2.mul(p, f), v128.load64_splat(EXP2, 32));
  p = f64x2.add(f64x2.mul(p, f), v128.load64_splat(EXP2, 24));
  p = f64x2.add(f64x2.mul(p, f), v128.load64_splat(EXP2, 16));
  p = f64x2.add(f64x2.mul(p, f), v128.load64_splat(EXP2, 8));
  p = f64x2.add(f64x2.mul(p, f), v128.load64_splat(EXP2, 0));
  p = f64x2.add(f64x2.mul(p, f), v128.load64_splat(EXP2, 80));
  return f64x2.mul(p, i64x2.shl(n, 52));
}

/** e^x in four f32 lanes. */
export function exp4(x: v128): v128 {
  const scale = f64x2.splat(LOG2E);
  const low = exp2x2(f64x2.mul(f64x2.promote_low_f32x4(x), scale));
  const high = exp2x2(f64x2.mul(f64x2.promote_low_f32x4(highHalf(x)), scale));
  return join(low, high);
}

/** Moves lanes 2 and 3 to lanes 0 and 1. */
export function highHalf(x: v128): v128 {
  return v128.shuffle<i64>(x, x, 1, 1);
}

/** Rounds the two f64 lanes of `low`, then the two of `high`, to four f32 lanes. */
export function join(low: v128, high: v128): v128 {
  return v128.shuffle<i64>(f32x4.demote_f64x2_zero(low), f32x4.demote_f64x2_zero(high), 0, 2);
}

/** 2^t of one f64, bitwise equal to a lane of `exp2x2`. @tested */
export function exp2(t: f64): f64 {
  return f64x2.extract_lane(exp2x2(f64x2.splat(t)), 0);
}

/** e^x. @tested */
export function exp(x: f32): f32 {
  return <f32>exp2(<f64>x * LOG2E);
}

/** 1 / (1 + e^-x). @tested */
export function sigmoid(x: f32): f32 {
  return <f32>(1.0 / (1.0 + exp2(<f64>x * -LOG2E)));
}

/** Natural logarithm: -infinity for +0 and -0, NaN for negative x. */
export function log(x: f32): f32 {
  if (!(x > 0)) return x === 0 ? -Infinity : NaN;
  if (x === Infinity) return x;
  return <f32>logOf(x);
}

/** Natural logarithm of a finite positive f64 that is not subnormal. */
function logOf(x: f64): f64 {
  const bits = reinterpret<u64>(x);
  const n = <i32>(<i64>(bits - ROOT_HALF) >> 52);
  const m = reinterpret<f64>(bits - ((<u64>n) << 52));
  const s = (m - 1.0) / (m + 1.0);
  return <f64>n * LN2 + s * polynomial(LOG, 4, s * s);
}

/** sqrt(log(1 + e^x)) in f64. */
function rootOfSoftplus(x: f64): f64 {
  if (x > 20.0) return sqrt(x);
  const e = exp2(x * LOG2E);
  if (e > 0.25) return sqrt(logOf(1.0 + e));
  const s = e / (2.0 + e);
  return sqrt(s * polynomial(LOG, 4, s * s));
}

/** sqrt(log(1 + e^x)). */
export function sqrtSoftplus(x: f32): f32 {
  return <f32>rootOfSoftplus(x);
}

/** The derivative of sqrt(log(1 + e^x)): the logistic function divided by twice the root; 0 where the root is 0. */
export function sqrtSoftplusDerivative(x: f32): f32 {
  const root = rootOfSoftplus(x);
  if (root === 0) return 0;
  return <f32>(1.0 / (1.0 + exp2(<f64>x * -LOG2E)) / (2.0 * root));
}

/** Hyperbolic tangent: (1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x; x - x^3 / 3 for |x| below 2^-10. @tested */
export function tanh(x: f32): f32 {
  const a: f64 = abs(<f64>x);
  if (a < 0.0009765625) return <f32>(<f64>x * (1.0 - a * a * 0.3333333333333333));
  const e = exp2(a * (-2.0 * LOG2E));
  return <f32>copysign<f64>((1.0 - e) / (1.0 + e), x);
}

/** The error function. @tested */
export function erf(x: f32): f32 {
  const a: f64 = abs(<f64>x);
  if (a < 1.0) return <f32>(<f64>x * polynomial(ERF, 7, a * a));
  return <f32>copysign<f64>(1.0 - exp2(polynomial(ERFC, 7, a > 4.0 ? 4.0 : a)), x);
}

/** The polynomial of degree `degree` whose coefficients are at `table`, by Horner's rule. */
function polynomial(table: usize, degree: usize, x: f64): f64 {
  let sum = load<f64>(table + (degree << 3));
  while (degree > 0) {
    degree--;
    sum = sum * x + load<f64>(table + (degree << 3));
  }
  return sum;
}
