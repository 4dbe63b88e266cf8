// What crosses a boundary. The numbers below are the ABI: `npm run generate` copies them to
// src/formats/contract.gen.ts and kernels/core/contract.gen.h, so each is written once, here.
//
// The format word describes a scalar format in one integer:
//
//   bits  0-3   exponent bits, 1 to 8           bit  8      has a sign
//   bits  4-7   mantissa bits, 0 to 15          bit  9      exponent field 0 is zero and subnormals
//   bits 16-31  bias, two's complement          bits 10-11  Specials
//
// A code is sign | exponent field | mantissa field. Without subnormals, exponent field 0 is one more
// ordinary binade, and the format has no zero (e8m0).

/** Which codes are not finite numbers. */
export const enum Specials {
  /** None: every code is a finite number (OCP FP4 and FP6). */
  Finite = 0,
  /** NaN only: all ones below the sign bit (OCP e4m3, e8m0). */
  NanOnly = 1,
  /** The largest exponent field holds infinities and NaNs (IEEE 754). */
  Ieee = 2,
  /** One NaN, encoded as minus zero; a single zero and no infinities. */
  Fnuz = 3,
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
  /** Values beyond the largest finite one become it, infinities included. */
  Saturate = 0,
  /** Round as if the exponent range were unbounded; results beyond the largest finite value become infinity, or NaN. */
  Nonfinite = 1,
}

/** The wide types that quantizers read and dequantizers write. */
export const enum Wide {
  F32 = 0,
  Bf16 = 1,
  F16 = 2,
}

/** How a block's amax becomes its stored scale and the multiplier of its elements. */
export const enum ScaleRule {
  /** f32 scale: max / amax, optionally cut to a power of two (TransformerEngine recipe_common). */
  F32 = 0,
  /** e8m0 of amax * fl(1/max), rounded up (TransformerEngine MXFP8). */
  E8m0Up = 1,
  /** e8m0 of floor(log2 amax) - emax (OCP MX 1.0 §6.3). */
  E8m0Floor = 2,
  /** e4m3 under a per-tensor f32 factor (NVFP4). */
  TwoLevel = 3,
  /** As TwoLevel, choosing between a block maximum of 4 and of 6 by the smaller error (4over6). */
  FourOverSix = 4,
}

export const enum Activation {
  Gelu = 0,
  Relu = 1,
  Silu = 2,
  Qgelu = 3,
  Srelu = 4,
  Sigmoid = 5,
}

/** The algorithm of a matrix product: its step function, and the packed form of the operands that it reads. */
export const enum Kernel {
  /** The definition: any datapath, any operands. The SIMD kernels are tested against it. */
  Scalar = 0,
  /** Operands of at most 5 significant bits and exponents -16 to 16, F = P = 13, in f32x4. */
  Narrow = 1,
  /** F at most 25 and P = 23, no groups, in f64x2. */
  Wide = 2,
  /** acc = fl(acc + fl(a * b)) in f32, k ascending. */
  Plain = 3,
  /** The infinitely precise sum, rounded once. */
  Exact = 4,
}

/** What happens to the accumulator after each `interval` of k, when a chain of steps ends and is added to the total. */
export const enum Promotion {
  /** One chain: the total is the chain. */
  None = 0,
  /** total = total + chain. */
  Add = 1,
  /** total = fma(chain, sX * sW, total). */
  ScaleProduct = 2,
  /** total = fma(chain * sX, sW, total). */
  ScaleChain = 3,
}

/** How a decoded element q with block scale s becomes an operand, and which exponent its products have. */
export const enum Staging {
  /** The operand is q; a scale is applied by the promotion. */
  Plain = 0,
  /** q * s rounded to bf16. */
  Bf16 = 1,
  /** q rounded to ten fraction bits. */
  Tf32 = 2,
  /** q * s, exponent e(q) + e(s). */
  Scaled = 3,
  /** q * s, exponent e(s): products of one group are summed exactly before they are aligned. */
  Grouped = 4,
}

/** The size of a quantization's task block (quantize/task.ts). */
export const enum QuantizeTask {
  /** Bytes of the block. */
  Bytes = 200,
}

/** Sizes and sentinels of a matrix product's task block (gemm/task.ts). */
export const enum GemmTask {
  /** Bytes of the block. */
  Bytes = 384,
  /** The exponent of a zero operand, smaller than that of any other term. */
  NoExponent = -16384,
}
