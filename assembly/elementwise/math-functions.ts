// CUDA's math functions of one or two f32 as nvcc 13.0 compiles them, to the bit (docs/special-functions.md). Every operation is
// an f32 operation with one rounding, or an instruction of the special-function unit.
import { SpecialFunction } from "../contract";
import { ex2 } from "../core/special-functions";
import { specialFunction } from "../core/special-instructions";
import { fma32 } from "../gemm/datapath";

const NAN: u32 = 0x7fffffff;
const SIGN: u32 = 0x80000000;
const INFINITE: u32 = 0x7f800000;
const MIN_NORMAL = reinterpret<f32>(0x00800000);
const LN2 = reinterpret<f32>(0x3f317218);
const LOG2E = reinterpret<f32>(0x3fb8aa3b);
/** log2 e - fl(log2 e), as expf has it. */
const LOG2E_REST = reinterpret<f32>(0x32a57060);
const LOG2E_BY_252 = reinterpret<f32>(0x3bbb989d);
const TWICE_LOG2E = reinterpret<f32>(0x4038aa3b);

// Coefficients, the one of the highest power first.
const LOG = memory.data<u32>(
  [
    0xbe055027, 0x3e1039f6, 0xbdf8cdcc, 0x3e0f2955, 0xbe2ad8b9, 0x3e4ced0b, 0xbe7fff22, 0x3eaaaa78,
    0xbf000000,
  ],
  16,
);
const LOG2 = memory.data<u32>(
  [
    0x3dc6b27f, 0xbe2c7f30, 0x3e2fcf2a, 0xbe374e43, 0x3e520bf4, 0xbe763c8b, 0x3e93bf99, 0xbeb8aa49,
    0x3ef6384a, 0xbf38aa3b,
  ],
  16,
);
const TANH = memory.data<u32>([0x3c80f082, 0xbd563cae, 0x3e085941, 0xbeaaa9ed], 16);
const ERF = memory.data<u32>(
  [0x38b1e96a, 0xba574d20, 0x3baad5ea, 0xbcdc1be7, 0x3de718af, 0xbec093ac, 0x3e0375d3],
  16,
);
const ERFC = memory.data<u32>(
  [0x38eb4c3a, 0xbaae005b, 0x3c09919f, 0xbd24d99a, 0x3e235519, 0x3f69b4f9, 0x3f210a14],
  16,
);
const POWER_LOG = memory.data<u32>([0x3a2c32e4, 0x3b52e7db, 0x3c93bb73, 0x3df6384f], 16);
const POWER_EXP = memory.data<u32>(
  [0x391fcb8e, 0x3aaf85ed, 0x3c1d9856, 0x3d6357bb, 0x3e75fdec, 0x3f317218, 0x3f800000],
  16,
);
const COSINE = memory.data<u32>([0x37cbac00, 0xbab607ed, 0x3d2aaabb, 0xbeffffff], 16);
const SINE = memory.data<u32>([0xb94d4153, 0x3c0885e4, 0xbe2aaaa8], 16);
/** -π / 2 in three parts. */
const MINUS_HALF_PI = memory.data<u32>([0xbfc90fda, 0xb3a22168, 0xa7c234c5], 16);
/** 2 / π in units of 2^-192, the lowest word first. */
const TWO_BY_PI = memory.data<u32>(
  [0x3c439041, 0xdb629599, 0xf534ddc0, 0xfc2757d1, 0x4e441529, 0xa2f9836e],
  16,
);
/** π / 2 · 2^-64, rounded up to f64. */
const HALF_PI_SCALED = reinterpret<f64>(0x3bf921fb54442d19);

/** The polynomial of `count` coefficients at x, by Horner's rule with fused multiply-adds. */
function polynomial(table: usize, count: usize, x: f32): f32 {
  let sum = load<f32>(table);
  for (let i: usize = 1; i < count; i++) sum = fma32(sum, x, load<f32>(table + (i << 2)));
  return sum;
}

function expf(x: f32): f32 {
  const position = fma32(x, LOG2E_BY_252, 0.5);
  // a NaN becomes 0
  const clamped: f32 = position > 0 ? min<f32>(position, 1) : 0;
  const n = <f32>(floor(<f64>clamped * 252) - 126);
  const fraction = fma32(x, LOG2E_REST, fma32(x, LOG2E, -n));
  return ex2(fraction) * reinterpret<f32>((<u32>(<i32>n + 127)) << 23);
}

/** The logarithm to base 2, or to base e with `natural`. */
function logarithm(x: f32, natural: bool): f32 {
  const isSmall = x < MIN_NORMAL;
  const scaled: f32 = isSmall ? x * 8388608 : x;
  if (scaled === 0) return -Infinity;
  const bits = reinterpret<u32>(scaled);
  if (bits >= INFINITE) return bits === INFINITE ? Infinity : NaN;
  const field = (bits - (natural ? 0x3f2aaaab : 0x3f3504f3)) & 0xff800000;
  const n = <f32>((<i32>field >> 23) - (isSmall ? 23 : 0));
  const m: f32 = reinterpret<f32>(bits - field) - 1;
  if (natural) return fma32(n, LN2, fma32(m * polynomial(LOG, 9, m), m, m));
  return n + fma32(m, LOG2E, m * (m * polynomial(LOG2, 10, m)));
}

function rcp(x: f32): f32 {
  return reinterpret<f32>(specialFunction(SpecialFunction.RcpFtz, reinterpret<u32>(x)));
}

function tanhf(x: f32): f32 {
  const a = abs(x);
  if (a >= reinterpret<f32>(0x3f19999a)) {
    const isOne = a >= reinterpret<f32>(0x41102cb4);
    return copysign<f32>(isOne ? 1 : fma32(rcp(ex2(a * TWICE_LOG2E) + 1), -2, 1), x);
  }
  const square = x * x;
  return fma32(fma32(polynomial(TANH, 4, square), square, 0), x, x);
}

function erff(x: f32): f32 {
  const a = abs(x);
  if (!(a >= reinterpret<f32>(0x3f8060fe))) return fma32(polynomial(ERF, 7, x * x), x, x);
  return copysign<f32>(1 - ex2(fma32(polynomial(ERFC, 7, a), -a, -a)), x);
}

/** x · 2 / π modulo 4 in units of 2^-62, without its sign, for the bits of a finite x from 2^16 on. */
function quarters(x: u32): u64 {
  const shift = ((x >> 23) & 255) - 128;
  const last = <i32>(6 - (shift >> 5));
  const significand = <u64>((x << 8) | SIGN);
  let carry: u64 = 0;
  let upper: u64 = 0;
  let below: u64 = 0;
  for (let i = 0; i <= last; i++) {
    let sum = carry;
    if (i < 6) sum += <u64>load<u32>(TWO_BY_PI + ((<usize>i) << 2)) * significand;
    below = upper & 0xffffffff;
    upper = (upper >> 32) | (sum << 32);
    carry = sum >> 32;
  }
  const rest = shift & 31;
  return (upper << rest) | (below >> (32 - rest));
}

/** sin x for `quarter` 0, cos x for 1. */
function sine(x: f32, quarter: i32): f32 {
  if (!(abs(x) < Infinity)) return NaN;
  let q: i32;
  let t: f32;
  if (abs(x) < 105615) {
    q = <i32>nearest(x * reinterpret<f32>(0x3f22f983));
    t = x;
    for (let i: usize = 0; i < 3; i++) t = fma32(<f32>q, load<f32>(MINUS_HALF_PI + (i << 2)), t);
  } else {
    const angle = quarters(reinterpret<u32>(x));
    const fraction = <i64>(angle << 2);
    const isUpper = fraction < 0;
    q = <i32>(angle >> 62) + <i32>isUpper;
    // the complement is 2^-62 quarters smaller than the difference from a quarter
    t = <f32>(<f64>(isUpper ? ~fraction : fraction) * HALF_PI_SCALED);
    if (isUpper !== x < 0) t = -t;
    if (x < 0) q = -q;
  }
  return wave(q + quarter, t);
}

/** The sine of t plus q right angles, for |t| of up to about π / 4. */
function wave(q: i32, t: f32): f32 {
  const square = t * t;
  const isCosine = (q & 1) !== 0;
  const base: f32 = isCosine ? 1 : t;
  const p = isCosine ? polynomial(COSINE, 4, square) : polynomial(SINE, 3, square);
  const y = fma32(p, fma32(square, base, 0), base);
  return (q & 2) !== 0 ? fma32(y, -1, 0) : y;
}

function flushed(x: f32): f32 {
  return abs(x) < MIN_NORMAL ? copysign<f32>(0, x) : x;
}

/** a^y for positive finite a and y that is not 0. */
function positivePower(a: f32, y: f32): f32 {
  const isSmall = a < MIN_NORMAL;
  const bits = reinterpret<u32>(isSmall ? a * 16777216 : a);
  const field = (bits - 0x3f3504f3) & 0xff800000;
  const n = <f32>((<i32>field >> 23) - (isSmall ? 24 : 0));
  const significand = reinterpret<f32>(bits - field);
  const m: f32 = significand - 1;
  // high + low is log2 a
  const inverse = rcp(significand + 1);
  const q: f32 = (m + m) * inverse;
  const square = q * q;
  const difference: f32 = m - q;
  const rest: f32 = inverse * fma32(-q, m, difference + difference);
  const p: f32 = polynomial(POWER_LOG, 4, square) * square;
  const first = fma32(q, LOG2E, n);
  let tail = fma32(rest, LOG2E, fma32(q, LOG2E, n - first));
  tail = fma32(q, reinterpret<f32>(0x32a55e34), tail);
  tail = fma32(p, q, fma32(p * 3, rest, tail));
  const high: f32 = first + tail;
  const low: f32 = tail - (high - first);
  // 2^(k + fraction)
  const t: f32 = high * y;
  if (abs(t) > 152) return t < 0 ? 0 : Infinity;
  const k = nearest(t);
  const fraction = fma32(low, y, fma32(high, y, -t)) + (t - k);
  const up = k > 0;
  const scaled: f32 = polynomial(POWER_EXP, 7, fraction) * reinterpret<f32>(up ? 0x7f000000 : 0x02000000);
  return scaled * reinterpret<f32>((<u32>(<i32>k + (up ? 0 : 250))) << 23);
}

function powf(x: f32, y: f32): f32 {
  if (x === 1 || y === 0) return 1;
  if (isNaN(x) || isNaN(y)) return NaN;
  const isOdd = abs<f32>(y - trunc<f32>(y * 0.5) * 2) === 1;
  const a = abs(x);
  if (a === 0 || a === Infinity) {
    const magnitude: f32 = (a === 0) === y < 0 ? Infinity : 0;
    return isOdd ? copysign<f32>(magnitude, x) : magnitude;
  }
  if (x === -1 && abs(y) === Infinity) return 1;
  if (x < 0 && floor(y) !== y) return NaN;
  const power = positivePower(a, y);
  return x < 0 && isOdd ? -power : power;
}

/** The result of the function `kind` of two arguments, as bits, for arguments as bits. */
export function mathFunctionOfTwo(kind: u32, x: u32, y: u32): u32 {
  const result = resultOfTwo(kind, reinterpret<f32>(x), reinterpret<f32>(y));
  return isNaN(result) ? NAN : reinterpret<u32>(result);
}

function resultOfTwo(kind: u32, x: f32, y: f32): f32 {
  switch (kind) {
    case SpecialFunction.Divide:
      return x / y;
    case SpecialFunction.DivideFast:
      return flushed(flushed(x) * rcp(y));
    case SpecialFunction.Powf:
      return powf(x, y);
    case SpecialFunction.PowfFast:
      return ex2(flushed(y) * reinterpret<f32>(specialFunction(SpecialFunction.Lg2Ftz, reinterpret<u32>(x))));
    default:
      return NaN;
  }
}

/** The result of the function `kind`, as bits, for an argument as bits. */
export function mathFunction(kind: u32, x: u32): u32 {
  const y = resultOf(kind, reinterpret<f32>(x));
  return isNaN(y) ? NAN : reinterpret<u32>(y);
}

function resultOf(kind: u32, x: f32): f32 {
  switch (kind) {
    case SpecialFunction.Expf:
      return expf(x);
    case SpecialFunction.ExpfFast:
      return ex2(x * LOG2E);
    case SpecialFunction.Logf:
      return logarithm(x, true);
    case SpecialFunction.LogfFast:
      return reinterpret<f32>(specialFunction(SpecialFunction.Lg2Ftz, reinterpret<u32>(x))) * LN2;
    case SpecialFunction.Log2f:
      return logarithm(x, false);
    case SpecialFunction.Tanhf:
      return tanhf(x);
    case SpecialFunction.Erff:
      return erff(x);
    case SpecialFunction.ErffFast:
      return erff(flushed(x));
    case SpecialFunction.Sqrtf:
      return sqrt(x);
    case SpecialFunction.Sinf:
      return sine(x, 0);
    case SpecialFunction.Cosf:
      return sine(x, 1);
    default:
      return NaN;
  }
}
