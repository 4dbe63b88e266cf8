// The approximate instructions of a GPU's special-function unit, to the bit (numerics.md §7.11). Arguments and results are bit
// patterns, so that NaN keeps its bits. ex2 and tanh are in core/special-functions.ts; this file evaluates the quadratics of all
// others in 64-bit integers.
import { SpecialFunction } from "../contract";
import { ex2 as ex2Ftz, tanh } from "./special-functions";
import { LG2, QUADRATIC_ROWS, QUADRATICS, RCP, RSQRT, SINE, SQRT_EVEN, SQRT_ODD } from "./special-rows.gen";

const NAN: u32 = 0x7fffffff;
const INFINITE: u32 = 0x7f800000;
const SIGN: u32 = 0x80000000;
const HIDDEN: u32 = 0x800000;
/** The significand of fl(1 / 2π), whose biased exponent is 124. */
const TURNS: u64 = 0xa2f983;

/** The square of y, which has 17 bits, from truncated partial products. */
function square(y: u32): i64 {
  let sum: u32 = 0;
  for (let i = 2; i < 17; i++) sum += (y >> (18 - i)) & (0 - ((y >> i) & 1));
  return sum >> 1;
}

/** T(a) of the quadratic at an offset of QUADRATICS. */
function quadratic(offset: usize, a: u32): i64 {
  const table = QUADRATICS + offset;
  const xBits = load<u32>(table, 4);
  const row = QUADRATIC_ROWS + ((<usize>(load<u32>(table) + (a >> xBits))) << 4);
  const y = a & ((1 << xBits) - 1);
  const c0 = (<i64>load<i32>(row)) << load<u32>(table, 12);
  const linear = (<i64>load<i32>(row, 4) * <i64>y) << load<u32>(table, 16);
  const squared = (<i64>load<i32>(row, 8) * square(y << load<u32>(table, 8))) << load<u32>(table, 20);
  return c0 + linear + squared + <i64>load<i32>(table, 24);
}

/** z 2^(exponent - 150) as f32 bits, where z is from 2^23 to 2^24. Subnormal results are zero. */
function pack(sign: u32, exponent: i32, z: u32): u32 {
  const biased = exponent - 1 + <i32>(z >> 23);
  if (biased <= 0) return sign;
  return sign | (biased >= 255 ? INFINITE : ((<u32>(exponent - 1)) << 23) + z);
}

/** v / 2^fractionBits as f32 bits, truncated. v is not negative. */
function normalize(v: i64, fractionBits: i32): u32 {
  if (v === 0) return 0;
  const lead = 63 - <i32>clz(v);
  const significand = <u32>(lead > 23 ? v >> (lead - 23) : v << (23 - lead));
  return ((<u32>(126 + lead - fractionBits)) << 23) + significand;
}

function rcpFtz(x: u32): u32 {
  const sign = x & SIGN;
  const exponent = (x >> 23) & 0xff;
  if (exponent === 0) return sign | INFINITE;
  if (exponent === 255) return sign;
  return pack(sign, 253 - <i32>exponent, <u32>(quadratic(RCP, x & 0x7fffff) >> 15));
}

function rsqrtFtz(x: u32): u32 {
  if ((x & INFINITE) === 0) return (x & SIGN) | INFINITE;
  if (x >= SIGN) return NAN;
  if (x === INFINITE) return 0;
  const e = <i32>(x >> 23) - 127;
  const g = (x & 0x7fffff) + ((<u32>e & 1) << 23);
  // powers of 4 are exact
  const z = g === 0 ? 1 << 24 : <u32>(quadratic(RSQRT, g) >> 16);
  return pack(0, 126 - (e >> 1), z);
}

function sqrtFtz(x: u32): u32 {
  if ((x & INFINITE) === 0) return x & SIGN;
  if (x >= SIGN) return NAN;
  if (x === INFINITE) return x;
  const e = <i32>(x >> 23) - 127;
  const f = x & 0x7fffff;
  const z = (e & 1) !== 0 ? quadratic(SQRT_ODD, f) >> 16 : quadratic(SQRT_EVEN, f) >> 17;
  return pack(0, 127 + (e >> 1), <u32>z);
}

function lg2Ftz(x: u32): u32 {
  if ((x & INFINITE) === 0) return SIGN | INFINITE;
  if (x >= SIGN) return NAN;
  if (x === INFINITE) return x;
  const fraction = x === 0x3f800000 ? 0 : quadratic(LG2, x & 0x7fffff) >> 2;
  const sum = fraction + ((<i64>(x >> 23) - 127) << 36);
  return sum < 0 ? SIGN | normalize(~sum, 36) : normalize(sum, 36);
}

/**
 * sin for `quarter` 0, cos for 1. The product with 1 / 2π is truncated. Products below 2^-25 count as 0, and so do subnormal
 * ones.
 */
function sine(x: u32, quarter: u32): u32 {
  const exponent = (x >> 23) & 0xff;
  if (exponent === 255) return NAN;
  const product = <u64>((x & 0x7fffff) | HIDDEN) * TURNS;
  const carry = <i32>(product >> 47);
  const shift = <i32>exponent + 124 - 127 + carry - 125;
  const p = <u32>(product >> (23 + carry));
  // |p| in units of 2^-25 turns, modulo one turn. A |p| below 2^-25 gives 0, and above 2^24 there is no fraction.
  let v: u32 = 0;
  if (exponent !== 0 && shift > -24 && shift < 25) v = (shift < 0 ? p >> -shift : p << shift) & 0x1ffffff;
  const q = (v >> 23) + quarter;
  const a = (v & 0x7fffff) ^ ((0 - (q & 1)) & 0x7fffff);
  const sign = (quarter === 0 ? x & SIGN : 0) ^ ((q & 2) << 30);
  return sign | normalize(quadratic(SINE, a), 37);
}

function float(x: u32): f32 {
  return reinterpret<f32>(x);
}

function bits(x: f32): u32 {
  return isNaN(x) ? NAN : reinterpret<u32>(x);
}

const isSubnormal = (x: u32): bool => (x & INFINITE) === 0;

/** x 2^24 of a subnormal x, as bits. */
const scaled = (x: u32): u32 => reinterpret<u32>(reinterpret<f32>(x) * 16777216);

function ex2(x: u32): u32 {
  if (!(float(x) < -126)) return bits(ex2Ftz(float(x)));
  const root = ex2Ftz(float(x) * 0.5);
  return bits(root * root);
}

function rcp(x: u32): u32 {
  const magnitude = x & ~SIGN;
  // 2^24 for subnormals, 1/4 above 2^126
  const factor: f32 = isSubnormal(x) ? 16777216 : magnitude > 0x7e800000 ? 0.25 : 1;
  return bits(factor * float(rcpFtz(reinterpret<u32>(factor * float(x)))));
}

/** A positive f32 that is not NaN, truncated to an f16 code. */
function truncateToF16(x: u32): u32 {
  const exponent = <i32>(x >> 23) - 112;
  if (exponent >= 31) return 31 << 10;
  if (exponent >= 1) return ((<u32>exponent) << 10) + ((x & 0x7fffff) >> 13);
  return exponent < -10 ? 0 : ((x & 0x7fffff) | HIDDEN) >> (14 - exponent);
}

function toF16(x: u32): u32 {
  return ((x & SIGN) >> 16) | truncateToF16(x & ~SIGN);
}

/**
 * The result of a special function, as bits of its type, for an argument as f32 bits. A result of 16 bits is in the lower half.
 */
export function specialFunction(kind: u32, x: u32): u32 {
  if ((x & ~SIGN) > INFINITE) return kind >= <u32>SpecialFunction.Ex2F16 ? 0x7fff : NAN;
  switch (kind) {
    case SpecialFunction.Ex2Ftz:
      return bits(ex2Ftz(float(x)));
    case SpecialFunction.Ex2:
      return ex2(x);
    case SpecialFunction.Lg2Ftz:
      return lg2Ftz(x);
    case SpecialFunction.Lg2:
      return isSubnormal(x) ? bits(float(lg2Ftz(scaled(x))) - 24) : lg2Ftz(x);
    case SpecialFunction.RcpFtz:
      return rcpFtz(x);
    case SpecialFunction.Rcp:
      return rcp(x);
    case SpecialFunction.RsqrtFtz:
      return rsqrtFtz(x);
    case SpecialFunction.Rsqrt:
      return isSubnormal(x) ? bits(float(rsqrtFtz(scaled(x))) * 4096) : rsqrtFtz(x);
    case SpecialFunction.SqrtFtz:
      return sqrtFtz(x);
    case SpecialFunction.Sqrt:
      return isSubnormal(x) ? bits(float(sqrtFtz(scaled(x))) * <f32>(1.0 / 4096)) : sqrtFtz(x);
    case SpecialFunction.SinFtz:
    case SpecialFunction.Sin:
      return sine(x, 0);
    case SpecialFunction.CosFtz:
    case SpecialFunction.Cos:
      return sine(x, 1);
    case SpecialFunction.Tanh:
      return bits(tanh(float(x)));
    case SpecialFunction.Ex2F16:
      return toF16(bits(ex2Ftz(float(x))));
    case SpecialFunction.TanhF16:
      return toF16(bits(tanh(float(x))));
    case SpecialFunction.Ex2Bf16:
      return bits(ex2Ftz(float(x))) >> 16;
    case SpecialFunction.TanhBf16:
      return bits(tanh(float(x))) >> 16;
    default:
      return NAN;
  }
}
