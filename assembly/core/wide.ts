// The wide types f32, bf16 and f16. Loading converts exactly to f32; storing rounds once, to nearest even. Overflow
// gives infinity; NaN is stored as 0x7fff in the 16-bit types.
import { Wide } from "../contract";

/** Bytes of one element of a Wide type. */
export function wideBytes(type: u32): usize {
  return type === Wide.F32 ? 4 : 2;
}

/** The largest finite value of a Wide type. */
export function largestWide(type: u32): f32 {
  return reinterpret<f32>(type === Wide.F32 ? 0x7f7fffff : type === Wide.Bf16 ? 0x7f7f0000 : 0x477fe000);
}

/** Element `index` of an array of a Wide type, as f32. */
export function loadWide(pointer: usize, type: u32, index: usize): f32 {
  if (type === Wide.F32) return load<f32>(pointer + (index << 2));
  const code: u32 = load<u16>(pointer + (index << 1));
  if (type === Wide.Bf16) return reinterpret<f32>(code << 16);
  return f32x4.extract_lane(decodeF16(i32x4.splat(code)), 0);
}

/** Rounds `value` to a Wide type and writes it as element `index`. */
export function storeWide(pointer: usize, type: u32, index: usize, value: f32): void {
  if (type === Wide.F32) store<f32>(pointer + (index << 2), value);
  else store<u16>(pointer + (index << 1), i32x4.extract_lane(encode(type, f32x4.splat(value)), 0));
}

/** `value` rounded to a Wide type and converted back to f32. */
export function roundWide(type: u32, value: f32): f32 {
  return f32x4.extract_lane(roundFour(type, f32x4.splat(value)), 0);
}

/** Four values rounded to a Wide type and converted back to f32. */
export function roundFour(type: u32, values: v128): v128 {
  if (type === Wide.F32) return values;
  const codes = encode(type, values);
  return type === Wide.Bf16 ? i32x4.shl(codes, 16) : decodeF16(codes);
}

/** Writes elements [index, index + count) of an array of a Wide type to `destination` as f32. */
export function widen(source: usize, type: u32, index: usize, count: usize, destination: usize): void {
  source += index * wideBytes(type);
  if (type === Wide.F32) {
    memory.copy(destination, source, count << 2);
    return;
  }
  const vectorCount = count & ~7;
  for (let i: usize = 0; i < vectorCount; i += 8) {
    const codes = v128.load(source + (i << 1));
    const low = i32x4.extend_low_i16x8_u(codes);
    const high = i32x4.extend_high_i16x8_u(codes);
    v128.store(destination + (i << 2), type === Wide.Bf16 ? i32x4.shl(low, 16) : decodeF16(low));
    v128.store(destination + (i << 2), type === Wide.Bf16 ? i32x4.shl(high, 16) : decodeF16(high), 16);
  }
  for (let i = vectorCount; i < count; i++) store<f32>(destination + (i << 2), loadWide(source, type, i));
}

/**
 * Returns a pointer to elements [index, index + count) as f32. It points into the array if that is f32, else to the
 * converted elements in `buffer`.
 */
export function asF32(source: usize, type: u32, index: usize, count: usize, buffer: usize): usize {
  if (type === Wide.F32) return source + (index << 2);
  widen(source, type, index, count, buffer);
  return buffer;
}

/**
 * Rounds `count` f32 values at `source` to a Wide type and stores them as elements [index, index + count) of an array.
 */
export function narrow(source: usize, destination: usize, type: u32, index: usize, count: usize): void {
  destination += index * wideBytes(type);
  if (type === Wide.F32) {
    memory.copy(destination, source, count << 2);
    return;
  }
  const vectorCount = count & ~7;
  for (let i: usize = 0; i < vectorCount; i += 8) {
    const low = encode(type, v128.load(source + (i << 2)));
    const high = encode(type, v128.load(source + (i << 2), 16));
    v128.store(destination + (i << 1), i16x8.narrow_i32x4_u(low, high));
  }
  for (let i = vectorCount; i < count; i++) storeWide(destination, type, i, load<f32>(source + (i << 2)));
}

/** The f32 values of four binary16 codes. */
function decodeF16(codes: v128): v128 {
  // The shifted code is an f32 that is 2^112 times too small, also for a binary16 subnormal. Hence one exact product
  // serves all values.
  const field = i32x4.shl(v128.and(codes, i32x4.splat(0x7fff)), 13);
  const magnitude = f32x4.mul(field, i32x4.splat(0x77800000)); // 2^112
  const special = v128.and(f32x4.ge(magnitude, f32x4.splat(65536)), i32x4.splat(0x7f800000));
  return v128.or(v128.or(magnitude, special), i32x4.shl(v128.and(codes, i32x4.splat(0x8000)), 16));
}

/** Rounds four f32 values to codes of a 16-bit Wide type. */
function encode(type: u32, values: v128): v128 {
  const nan = i32x4.gt_s(v128.and(values, i32x4.splat(0x7fffffff)), i32x4.splat(0x7f800000));
  const codes = type === Wide.Bf16 ? roundAt(values, 16) : encodeF16(values);
  return v128.bitselect(i32x4.splat(0x7fff), codes, nan);
}

/** Divides four f32 bit patterns by 2^shift, to nearest even; a carry out of the mantissa increments the exponent. */
function roundAt(bits: v128, shift: i32): v128 {
  const odd = v128.and(i32x4.shr_u(bits, shift), i32x4.splat(1));
  const half = i32x4.splat((1 << (shift - 1)) - 1);
  return i32x4.shr_u(i32x4.add(i32x4.add(bits, half), odd), shift);
}

/** Rounds four f32 values, none of them NaN, to binary16 codes. */
function encodeF16(values: v128): v128 {
  const magnitude = v128.and(values, i32x4.splat(0x7fffffff));
  const normal = roundAt(i32x4.sub(magnitude, i32x4.splat(0x38000000)), 13);
  // Below 2^-14, adding 1/2 rounds to the spacing of binary16 subnormals, because the ulp of 1/2 is 2^-24.
  const small = i32x4.sub(f32x4.add(magnitude, f32x4.splat(0.5)), i32x4.splat(0x3f000000));
  const finite = v128.bitselect(small, normal, i32x4.lt_s(magnitude, i32x4.splat(0x38800000)));
  const codes = i32x4.min_s(finite, i32x4.splat(0x7c00));
  return v128.or(codes, v128.and(i32x4.shr_u(values, 16), i32x4.splat(0x8000)));
}

/** `x`, with every NaN replaced by 0x7fffffff. */
export function canonical(x: f32): f32 {
  return isNaN(x) ? reinterpret<f32>(0x7fffffff) : x;
}

/** As `canonical`, for four lanes. */
export function canonicalFour(x: v128): v128 {
  return v128.bitselect(x, i32x4.splat(0x7fffffff), v128.eq<f32>(x, x));
}
