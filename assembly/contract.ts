// The enums and sizes that TypeScript, WebAssembly and CUDA share. Their numbers are the ABI. `npm run generate` copies
// them to src/formats/contract.gen.ts and kernels/core/contract.gen.h, so each is written once, here.
//
// The format word describes a scalar format in one integer:
//
//   bits  0-3   exponent bits, 1 to 8           bit  8      has a sign
//   bits  4-7   mantissa bits, 0 to 15          bit  9      exponent field 0 is zero and subnormals
//   bits 16-31  bias, two's complement          bits 10-12  Specials
//
// A code is sign | exponent field | mantissa field; in integers, a negative code is the two's complement of its magnitude's.
// Without subnormals, exponent field 0 is one more ordinary binade, and the format has no zero (e8m0).

/** The codes that are not finite numbers. */
export const enum Specials {
  /** None: every code is a finite number (OCP FP4 and FP6). */
  Finite = 0,
  /** NaN only: all ones below the sign bit (OCP e4m3, e8m0). */
  NanOnly = 1,
  /** The largest exponent field holds infinities and NaNs (IEEE 754). */
  Ieee = 2,
  /** One NaN, encoded as minus zero; a single zero and no infinities. */
  Fnuz = 3,
  /** None. Codes are two's complement, so that the least value is one step beyond the negated largest. */
  Integer = 4,
  /** As Integer, but encoding does not give the least value. */
  Symmetric = 5,
}

export const enum Rounding {
  TiesToEven = 0,
  TiesToAway = 1,
  TowardZero = 2,
  TowardPositive = 3,
  TowardNegative = 4,
  ToOdd = 5,
  Stochastic = 6,
}

export const enum Overflow {
  /** A value beyond the largest finite value becomes the largest finite value, with its sign. This includes infinity. */
  Saturate = 0,
  /** Round as if the exponent range were unbounded; results beyond the largest finite value become infinity, or NaN. */
  Nonfinite = 1,
  /** Finite values are treated as by Saturate, infinities as by Nonfinite. */
  Propagate = 2,
}

/** The wide types that quantizers read and dequantizers write. */
export const enum Wide {
  F32 = 0,
  Bf16 = 1,
  F16 = 2,
}

/**
 * How the amax of a block determines its stored scale and the multiplier of its elements. `max` is the largest finite element
 * value.
 */
export const enum ScaleRule {
  /** f32 scale: max / amax, optionally rounded down to a power of two (TransformerEngine recipe_common). */
  F32 = 0,
  /** e8m0 of amax times the f32 nearest to 1 / max, rounded up (TransformerEngine MXFP8). */
  E8m0Up = 1,
  /** e8m0 of 2^(floor(log2 amax) - floor(log2 max)) (OCP MX 1.0 §6.3). */
  E8m0Floor = 2,
  /** An e4m3 block scale and an f32 per-tensor scale (NVFP4). */
  TwoLevel = 3,
  /** As TwoLevel, but maps the amax of a block to 4 or to 6, whichever gives the smaller error (4over6). */
  FourOverSix = 4,
  /** e8m0 of 2^(ceil(log2 amax) - floor(log2 max)). */
  E8m0Ceil = 5,
  /** As E8m0Floor, but amax is first rounded to the mantissa bits of the element. */
  E8m0Even = 6,
  /**
   * As E8m0Floor, but amax is first rounded to one mantissa bit, or to three for elements of six bits. Beyond FLT_MAX, the scale
   * is 1 and the multiplier 0.
   */
  E8m0EvenShort = 7,
  /** e8m0 of amax / max, rounded up. */
  E8m0UpQuotient = 8,
  /** e8m0 of the f32 logarithm of amax / max, rounded up. Just above a power of two, the logarithm rounds to its exponent. */
  E8m0UpLog2 = 9,
  /** f32 scale: amax / max. */
  F32Quotient = 10,
  /** f32 scale: amax / max rounded to the type of the input. */
  F32QuotientTyped = 11,
  /** f32 scale: amax / max rounded up to a power of two. */
  F32QuotientUp = 12,
  /** As F32QuotientTyped, but a scale of 0 is replaced by the distance from 1 to the next number of the input type. */
  F32QuotientLeast = 13,
  /** As F32, but elements are multiplied by (1 / amax) * max. */
  F32Reciprocal = 14,
  /** e4m3 scale of amax / 6, at least 2^-6, without a per-tensor scale. */
  E4m3Quotient = 15,
  /** An e4m3 scale of (amax / 6) / t, at least 2^-6, where the per-tensor multiplier t is the tensor's amax / 2688. */
  TwoLevelQuotient = 16,
  /**
   * An e4m3 scale of amax / (6 * t), at least 2^-9, or 1 if it is 0, where the per-tensor multiplier t is the tensor's amax /
   * 2688.
   */
  TwoLevelProduct = 17,
  /**
   * An e4m3 scale of d * (amax / 6), or 0.125 if it is 0, where the per-tensor divisor d is (1 / the tensor's amax) * 2688.
   * Quotients and d are rounded to the input type.
   */
  TwoLevelDivisor = 18,
  /** As E8m0UpQuotient, with an amax of at least 10^-4. */
  E8m0UpLeast = 19,
  /** As F32QuotientLeast, but amax is divided by half of the distance between an integer format's least and largest values. */
  F32QuotientRange = 20,
  /**
   * As E8m0Floor, but log2 amax is rounded to f32 before it is rounded down. Just below a power of two, it rounds to the
   * exponent of that power. Codes below 0 wrap around modulo 256; their elements are 0.
   */
  E8m0FloorLog2 = 21,
  /** The least power of two that is at least amax / max and 2^-126. A quotient of 0 has the code 0, and its elements are 0. */
  E8m0UpNormal = 22,
  /**
   * amax / 6 as e4m3, rounded half up. A result of 256 or more becomes 448, and one below 2^-6 is at most 7 * 2^-9. The tensor
   * scale is 1, and elements of a block with scale 0 are 0.
   */
  E4m3HalfUp = 23,
  /**
   * A ue5m3 scale of amax / 6, without a per-tensor scale. The quotient is rounded to the input type and then to the nearest
   * ue5m3. Elements of a block with scale 0 are scaled as if the scale were 2^-23.
   */
  Ue5m3Quotient = 24,
}

/** A sum of bits: the scaling of an element to the range of its format, other than by one multiplication. */
export const enum ElementScaling {
  /** The element is divided by the stored scale. */
  Divides = 1,
  /** The result is rounded to the type of the input. */
  Typed = 2,
  /** Zero is added, so that minus zero becomes zero. */
  AddsZero = 4,
  /** The multiplier of an e8m0 scale of 2^-127 is 2^126. */
  FromNormal = 8,
  /** The multiplier of an e8m0 scale of 2^-127 is 1. */
  UnlessLeast = 16,
  /** A tie goes to the code nearer to zero. */
  TiesToZero = 32,
  /** Elements that round to zero become plus zero. */
  PlusZero = 64,
  /** Plus zero becomes minus zero. */
  MinusZero = 128,
  /** Magnitudes above 1.5 * 2^127 are clamped to it before scaling. */
  Bounded = 256,
  /** A tie goes to the code farther from zero. */
  TiesToAway = 512,
}

export const enum Activation {
  Gelu = 0,
  Relu = 1,
  Silu = 2,
  Qgelu = 3,
  Srelu = 4,
  Sigmoid = 5,
}

/**
 * The approximate instructions of a GPU's special-function unit (numerics.md §7.11), and CUDA's math functions
 * (docs/special-functions.md). Ftz: subnormals count as zero. Fast: as -use_fast_math compiles the function.
 */
export const enum SpecialFunction {
  Ex2Ftz = 0,
  Ex2 = 1,
  Lg2Ftz = 2,
  Lg2 = 3,
  RcpFtz = 4,
  Rcp = 5,
  RsqrtFtz = 6,
  Rsqrt = 7,
  SqrtFtz = 8,
  Sqrt = 9,
  SinFtz = 10,
  Sin = 11,
  CosFtz = 12,
  Cos = 13,
  Tanh = 14,
  Ex2F16 = 15,
  TanhF16 = 16,
  Ex2Bf16 = 17,
  TanhBf16 = 18,
  Expf = 19,
  ExpfFast = 20,
  Logf = 21,
  LogfFast = 22,
  Log2f = 23,
  Tanhf = 24,
  Erff = 25,
  ErffFast = 26,
  Sqrtf = 27,
  Sinf = 28,
  Cosf = 29,
  Divide = 30,
  DivideFast = 31,
  Powf = 32,
  PowfFast = 33,
}

/**
 * The algorithm of a matrix product: the function that computes a step, and the packed form of its operands. A step of
 * a tensor core truncates its terms to a grid of F alignment bits and the sum to P fraction bits (docs/datapath.md §1).
 */
export const enum Kernel {
  /** The definition, for any datapath and any operands. The SIMD kernels are tested against it. */
  Scalar = 0,
  /** F = P = 13, for operands of at most 5 significant bits and exponents -15 to 16. Computes in f32x4. */
  Narrow = 1,
  /** F at most 25 and P = 23, for operands with any exponents, but no groups (Staging.Grouped). Computes in f64x2. */
  Wide = 2,
  /** acc = fl(acc + fl(a * b)) in f32, in ascending order of k; fl rounds to f32. */
  Plain = 3,
  /** The infinitely precise sum, rounded to f32 once. */
  Exact = 4,
}

/**
 * A chain is the sum of the steps in one `interval` of k, computed in one accumulator. At its end it is added to the
 * total, as follows.
 */
export const enum Promotion {
  /** There is one chain, which is the total. */
  None = 0,
  /** total = total + chain. */
  Add = 1,
  /** total = fma(chain, sX * sW, total). */
  ScaleProduct = 2,
  /** total = fma(chain * sX, sW, total). */
  ScaleChain = 3,
}

/**
 * How a decoded element q with block scale s becomes an operand, and which exponent its products have. e(x) is the
 * exponent of x.
 */
export const enum Staging {
  /** The operand is q; a scale is applied by the promotion. */
  Plain = 0,
  /** The operand is q * s rounded to bf16. */
  Bf16 = 1,
  /** The operand is q rounded to ten fraction bits. */
  Tf32 = 2,
  /** The operand is q * s, its exponent e(q) + e(s). */
  Scaled = 3,
  /** The operand is q * s, its exponent e(s). The products of a group are summed exactly before they are aligned. */
  Grouped = 4,
}

/** Sentinels of a matrix product's task (gemm/task.ts). */
export const enum GemmTask {
  /** The exponent of a zero operand: smaller than that of any other operand. */
  NoExponent = -16384,
}
