// The scale rules and element scalings of other libraries than TransformerEngine, which a kernel reads at run time. Every
// step is one rounded f32 operation, as in assembly/core/scale.ts and assembly/quantize/scaling.ts (docs/numerics.md §2.3,
// §3.6, §4.1). `round` rounds an f32 to the type of the input.
#pragma once

#include "kernels/core/scale-kinds.h"
#include "kernels/core/scale.cuh"

namespace lockstep {

// A stored f32 scale, and the number that elements are multiplied by, or divided by if their scaling divides.
struct F32Scale {
  float stored;
  float factor;
};

// The distance from 1 to the next number of a wide type: 2^-23, 2^-7 or 2^-10.
__host__ __device__ constexpr float epsilonOf(Wide type) {
  return powerOfTwo(type == Wide::kF32 ? -23 : type == Wide::kBf16 ? -7 : -10);
}

// Returns amax / max as `rule` has it, one of kF32Quotient. First, an amax below `epsilon` is replaced by `epsilon`.
template <typename Round>
__host__ __device__ inline float quotientScale(ScaleRule rule, float amax, float max, float epsilon, Wide type,
                                               Round round) {
  const float scale = (amax < epsilon ? epsilon : amax) / max;
  switch (rule) {
    case ScaleRule::kF32QuotientTyped:
      return round(scale);
    case ScaleRule::kF32QuotientLeast: {
      const float typed = round(scale);
      return typed == 0 ? epsilonOf(type) : typed;
    }
    case ScaleRule::kF32QuotientUp: {
      const uint32_t power = (bitsOf(scale) + 0x007fffff) & 0x7f800000;
      return floatOf(power < 0x00800000 ? 0x00800000 : power > 0x7f000000 ? 0x7f000000 : power);
    }
    default:
      return scale;
  }
}

// Returns (1 / amax) * max, where an amax below `epsilon`, rounded to the type of the input, is replaced by it; 1 for 0.
template <typename Round>
__host__ __device__ inline float reciprocalScale(float amax, float max, float epsilon, Round round) {
  const float least = round(epsilon);
  if (amax < least) amax = least;
  return amax == 0 ? 1.0f : (1.0f / amax) * max;
}

// The scale of a block by any rule with f32 scales except kF32, for elements that are scaled as `scaling` says.
template <typename Round>
__host__ __device__ inline F32Scale f32Scale(ScaleRule rule, uint32_t scaling, float amax, float max, float epsilon,
                                             Wide type, Round round) {
  if (rule == ScaleRule::kF32Reciprocal) {
    const float factor = reciprocalScale(amax, max, epsilon, round);
    return {1.0f / factor, factor};
  }
  const float scale = quotientScale(rule, amax, max, epsilon, type, round);
  return {scale, has(scaling, ElementScaling::kDivides) ? scale : 1.0f / scale};
}

// As e8m0Up, of the f32 nearest to log2 p. That is k for p from 2^k up to 2^k * (1 + h ln 2), where h is half the distance
// from k to the next f32.
__host__ __device__ inline uint32_t e8m0UpLog2(float p) {
  const uint32_t bits = bitsOf(p);
  const int k = static_cast<int>(bits >> 23) - 127;
  // towards zero from a power of two, the distance is that of the binade below
  const float magnitude = static_cast<float>(k < 0 ? -k : k) - (k < 0 ? 0.5f : 0.0f);
  const float binade = floatOf(bitsOf(magnitude) & 0x7f800000);
  const uint32_t same = static_cast<uint32_t>(binade * 0.34657359f);
  const uint32_t code = (bits + (bits < 0x00800000 ? 0x003fffff - 11 : 0x007fffff - same)) >> 23;
  return code < 254 ? code : 254;
}

// A stored e8m0 scale, and the number that elements are multiplied by.
struct E8m0Scale {
  uint32_t code;
  float multiplier;
};

// The multiplier of the elements of a block with this scale.
__host__ __device__ inline float e8m0Multiplier(uint32_t code, uint32_t scaling) {
  const float multiplier = e8m0Reciprocal(code);
  if (has(scaling, ElementScaling::kFromNormal)) return code == 0 ? powerOfTwo(126) : multiplier;
  return has(scaling, ElementScaling::kUnlessLeast) && code == 0 ? 1.0f : multiplier;
}

// The scale of a block by kE8m0EvenShort. An amax that is rounded to 2^128 gives the scale 1 and elements that are 0.
__host__ __device__ inline E8m0Scale e8m0EvenShort(float amax, uint32_t carry, int maxExponent, uint32_t scaling) {
  if (bitsOf(amax) + carry >= 0x7f800000) return {127, 0.0f};
  const uint32_t code = e8m0Exponent(amax, carry, maxExponent);
  return {code, e8m0Multiplier(code, scaling)};
}

// What is rounded to a code: x times its factor or divided by it, as `scaling` says. Adding -0 changes nothing.
template <typename Round>
__host__ __device__ inline float scaledBy(float x, float factor, uint32_t scaling, Round round) {
  float y = has(scaling, ElementScaling::kDivides) ? x / factor : x * factor;
  if (has(scaling, ElementScaling::kTyped)) y = round(y);
  return y + (has(scaling, ElementScaling::kAddsZero) ? 0.0f : -0.0f);
}

}  // namespace lockstep
