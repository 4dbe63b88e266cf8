// Computes the stored scale of a block and the multiplier of its elements from the amax of the block. Every step is one
// rounded f32 operation, and the order of the steps is part of the definition (docs/numerics.md §2.3, §3.1, §4.1,
// §5.1).
#pragma once

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/minifloat.cuh"

namespace lockstep {

// The largest finite value of a wide type. It replaces an f32 block scale that overflows.
__host__ __device__ inline float largestWide(Wide type) {
  return floatOf(type == Wide::kF32 ? 0x7f7fffff : type == Wide::kBf16 ? 0x7f7f0000 : 0x477fe000);
}

// Returns max / amax. First, an amax below `epsilon` is replaced by `epsilon`. The scale is 1 if amax is then 0,
// infinite or NaN. An infinite quotient becomes `overflow`. With `pow2`, the result is rounded down to a power of two.
__host__ __device__ inline float scaleFromAmax(float amax, float max, bool pow2, float epsilon, float overflow) {
  const float infinity = floatOf(0x7f800000);
  if (amax < epsilon) amax = epsilon;
  if (!(amax > 0 && amax < infinity)) return 1;
  float scale = max / amax;
  if (scale == infinity) scale = overflow;
  return pow2 ? floatOf(bitsOf(scale) & 0xff800000) : scale;
}

// NVFP4's encode scale S_enc of a tensor with this amax; `max` is 6 * 448, or 6 * 256.
__host__ __device__ inline float globalScale(float amax, float max) {
  const float largest = floatOf(0x7f7fffff);
  float scale = max / amax;
  if (scale > largest) scale = largest;
  return amax == 0 || scale == 0 ? 1 : scale;
}

// The e8m0 code 127 + ceil(log2 p), clamped to [0, 254], for p not negative. The addition increments the exponent field
// if the mantissa is not 0. An exponent field of 0 is incremented if p is above 2^-127.
__host__ __device__ inline uint32_t e8m0Up(float p) {
  const uint32_t bits = bitsOf(p);
  const uint32_t code = (bits + (bits < 0x00800000 ? 0x003fffff : 0x007fffff)) >> 23;
  return code < 254 ? code : 254;
}

// The e8m0 code 127 + floor(log2 r) - maxExponent, clamped to [0, 254], where the bits of r are the bits of amax plus `carry`;
// infinity gives 254. Below 2^-126, only the binade from 2^-127 matters; its mantissas have one bit less, so the carry is halved.
__host__ __device__ inline uint32_t e8m0Exponent(float amax, uint32_t carry, int maxExponent) {
  const uint32_t bits = bitsOf(amax);
  if (bits == 0x7f800000) return 254;
  const int code = static_cast<int>((bits + (bits < 0x00800000 ? carry >> 1 : carry)) >> 23) - maxExponent;
  return code < 0 ? 0 : code < 254 ? code : 254;
}

// The e8m0 code 127 + floor(log2 amax) - maxExponent, at least 0; infinity gives 254.
__host__ __device__ inline uint32_t e8m0Floor(float amax, int maxExponent) {
  const int field = static_cast<int>(bitsOf(amax) >> 23);
  if (field == 255) return 254;
  return field > maxExponent ? field - maxExponent : 0;
}

// The number that a rule adds to the bits of an amax before e8m0Exponent reads its exponent, for elements of format `word`.
__host__ __device__ inline uint32_t carryOf(ScaleRule rule, uint32_t word) {
  switch (rule) {
    case ScaleRule::kE8m0Ceil:
      return 0x007fffff;
    case ScaleRule::kE8m0Even:
      return 0x00400000 >> mantissaBits(word);
    case ScaleRule::kE8m0EvenShort:
      return magnitudeBits(word) == 5 ? 0x00080000 : 0x00200000;
    default:
      return 0;
  }
}

// 2^(127 - code). Code 254 gives a subnormal; code 255 gives the same value.
__host__ __device__ inline float e8m0Reciprocal(uint32_t code) {
  return floatOf(code >= 254 ? 0x00400000 : (254 - code) << 23);
}

// An NVFP4 block scale as an e4m3 code, and the multiplier of the block's elements.
struct TwoLevel {
  uint32_t code;
  float multiplier;
};

// The multiplier of the elements of a block: 1 / (scale * decode), at most FLT_MAX. `scale` is the decoded block scale,
// and `decode` is 1 / S_enc.
__host__ __device__ inline float twoLevelMultiplier(float scale, float decode) {
  const int32_t quotient = static_cast<int32_t>(bitsOf(1.0f / (scale * decode)));
  return floatOf(quotient < 0x7f7fffff ? quotient : 0x7f7fffff);
}

// The block scale amax * (encode * fl(1/6)), rounded to e4m3 and at most 448, where fl rounds to f32. `encode` is the
// tensor's S_enc (globalScale); `decode` is 1 / encode.
__host__ __device__ inline TwoLevel twoLevel(float amax, float encode, float decode) {
  const float raw = amax * (encode * floatOf(0x3e2aaaab));
  // Adding c rounds to e4m3; c is 2^20 times the power of two at or below `raw`, but at least 2^20 * 2^-6
  // (assembly/cast/encoder.ts).
  int32_t a = static_cast<int32_t>(bitsOf(raw));
  if (a > 0x43e00000) a = 0x43e00000;
  const int32_t e = (a > 0x3c800000 ? a : 0x3c800000) & 0x7f800000;
  const int32_t c = e + (20 << 23);
  const float y = floatOf(a) + floatOf(c);
  const int32_t code = static_cast<int32_t>(bitsOf(y)) - c + (e >> 20) - 968;
  const float scale = y - floatOf(c);
  return {static_cast<uint32_t>(code > 0 ? code : 0), twoLevelMultiplier(scale, decode)};
}

}  // namespace lockstep
