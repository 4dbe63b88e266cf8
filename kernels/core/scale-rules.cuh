// Scale rules and element scalings of libraries other than TransformerEngine, selected at run time. Every step is one rounded f32
// operation, as in assembly/core/scale.ts and assembly/quantize/scaling.ts (docs/numerics.md §2.3, §3.6, §4.1, §5.11). `round`
// rounds an f32 to the type of the input.
#pragma once

#include "kernels/core/scale-kinds.h"
#include "kernels/core/scale.cuh"

namespace lockstep {

// A stored f32 scale, and the multiplier of the elements, or their divisor if the scaling has kDivides.
struct F32Scale {
  float stored;
  float factor;
};

// The distance from 1 to the next larger number of a wide type: 2^-23, 2^-7 or 2^-10.
__host__ __device__ constexpr float epsilonOf(Wide type) {
  return powerOfTwo(type == Wide::kF32 ? -23 : type == Wide::kBf16 ? -7 : -10);
}

// Half of the distance between the least and the largest value of an integer format; kF32QuotientRange maps an amax to it.
__host__ __device__ inline float halfRange(uint32_t word) {
  return static_cast<float>(maxCode(word) + maxNegative(word)) * 0.5f * decode(1, word);
}

// Returns amax / max for kF32Quotient and the rules that only round it differently. First, an amax below `epsilon` is replaced by
// `epsilon`.
template <typename Round>
__host__ __device__ inline float quotientScale(ScaleRule rule, float amax, float max, float epsilon, Wide type,
                                               Round round) {
  const float scale = (amax < epsilon ? epsilon : amax) / max;
  switch (rule) {
    case ScaleRule::kF32QuotientTyped:
      return round(scale);
    case ScaleRule::kF32QuotientLeast:
    case ScaleRule::kF32QuotientRange: {
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

// Returns (1 / amax) * max. First, an amax below `epsilon`, which is rounded to the type of the input, is replaced by `epsilon`.
// Returns 1 for an amax of 0.
template <typename Round>
__host__ __device__ inline float reciprocalScale(float amax, float max, float epsilon, Round round) {
  const float least = round(epsilon);
  if (amax < least) amax = least;
  return amax == 0 ? 1.0f : (1.0f / amax) * max;
}

// The scale of a block under any rule with f32 scales except kF32. `scaling` determines the factor of the elements.
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

// As e8m0Up, but from l, the f32 nearest to log2 p: 127 + ceil(l). l is k for p from 2^k up to 2^k * (1 + h ln 2), where h is
// half the distance from k to the next f32.
__host__ __device__ inline uint32_t e8m0UpLog2(float p) {
  const uint32_t bits = bitsOf(p);
  const int k = static_cast<int>(bits >> 23) - 127;
  // toward zero from a power of two, the spacing is the lower binade's
  const float magnitude = static_cast<float>(k < 0 ? -k : k) - (k < 0 ? 0.5f : 0.0f);
  const float binade = floatOf(bitsOf(magnitude) & 0x7f800000);
  const uint32_t margin = static_cast<uint32_t>(binade * 0.34657359f);
  const uint32_t code = (bits + (bits < 0x00800000 ? 0x003fffff - 11 : 0x007fffff - margin)) >> 23;
  return code < 254 ? code : 254;
}

// As e8m0Up, for amax / max. First, an amax below 10^-4 is replaced by 10^-4.
__host__ __device__ inline uint32_t e8m0UpLeast(float amax, float max) {
  return e8m0Up((amax < 1e-4f ? 1e-4f : amax) / max);
}

// The exponent field of p, rounded up to a power of two: 1 for all subnormals, 0 for zero, and at most 254.
__host__ __device__ inline uint32_t e8m0UpNormal(float p) {
  const uint32_t code = (bitsOf(p) + 0x007fffff) >> 23;
  return code < 254 ? code : 254;
}

// The e8m0 code 127 + floor(l) - maxExponent modulo 256, where l is the f32 nearest to log2 amax; 0 for zero, 254 for infinity. l
// is K for amax from 2^K * (1 - h ln 2) on, where h is half the distance from K to the previous f32.
__host__ __device__ inline uint32_t e8m0FloorLog2(float amax, int maxExponent) {
  uint32_t bits = bitsOf(amax);
  if (bits == 0) return 0;
  if (bits == 0x7f800000) return 254;
  // a subnormal amax is a whole multiple of 2^-149
  const int unit = bits < 0x00800000 ? -149 : 0;
  if (unit != 0) bits = bitsOf(static_cast<float>(bits));
  const int next = static_cast<int>(bits >> 23) + unit - 126;
  // toward zero from a power of two, the spacing is the lower binade's
  const float magnitude = static_cast<float>(next < 0 ? -next : next) - (next > 0 ? 0.5f : 0.0f);
  const float binade = floatOf(bitsOf(magnitude) & 0x7f800000);
  const uint32_t margin = static_cast<uint32_t>(binade * 0.69314718f);
  return static_cast<uint32_t>(static_cast<int>((bits + margin) >> 23) + unit - maxExponent) & 255;
}

// A stored e8m0 scale, and the multiplier of the elements.
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

// The scale of a block under kE8m0EvenShort. An amax that rounds to 2^128 gives the scale 1 and elements 0.
__host__ __device__ inline E8m0Scale e8m0EvenShort(float amax, uint32_t carry, int maxExponent, uint32_t scaling) {
  if (bitsOf(amax) + carry >= 0x7f800000) return {127, 0.0f};
  const uint32_t code = e8m0Exponent(amax, carry, maxExponent);
  return {code, e8m0Multiplier(code, scaling)};
}

// The number that is rounded to a code: x times `factor`, or x divided by it, depending on `scaling`. Adding -0 changes nothing.
template <typename Round>
__host__ __device__ inline float scaledBy(float x, float factor, uint32_t scaling, Round round) {
  if (has(scaling, ElementScaling::kBounded)) {
    const float bound = floatOf(0x7f400000);
    x = x > bound ? bound : x < -bound ? -bound : x;
  }
  float y = has(scaling, ElementScaling::kDivides) ? x / factor : x * factor;
  if (has(scaling, ElementScaling::kTyped)) y = round(y);
  return y + (has(scaling, ElementScaling::kAddsZero) ? 0.0f : -0.0f);
}

// Adjusts a scaled element so that rounding to nearest, ties to even, treats ties and zeros as `scaling` requires. `half` is half
// of the smallest value of the format. A tie has zeros in its last bits, and no code or other tie lies between it and its
// neighbours, whose last bits are ones.
__host__ __device__ inline float settled(float y, float half, uint32_t scaling) {
  // the neighbour of a quiet NaN may be a signaling one, which fminf does not ignore on every processor
  if (y != y) return y;
  uint32_t bits = bitsOf(y);
  if (y == 0) {
    if (has(scaling, ElementScaling::kMinusZero)) bits |= 0x80000000u;
  } else if (has(scaling, ElementScaling::kTiesToZero)) {
    bits -= ~bits & 1;
  } else if (has(scaling, ElementScaling::kTiesToAway) && (bits & 0x7fffffffu) != 0x7f800000u) {
    bits |= 1;
  }
  const float magnitude = floatOf(bits & 0x7fffffffu);
  return has(scaling, ElementScaling::kPlusZero) && magnitude <= half ? 0.0f : floatOf(bits);
}

// The stored per-tensor scale for this amax, under a rule for which hasTensorScale holds.
template <typename Round>
__host__ __device__ inline float tensorScale(ScaleRule rule, float amax, Round round) {
  if (hasNoTensorAmax(rule)) return 1;
  if (rule != ScaleRule::kTwoLevelDivisor) return amax / 2688;
  const float least = powerOfTwo(-126);
  const float divisor = round(round(1 / (amax < least ? least : amax)) * 2688);
  return divisor < floatOf(0x7f800000u) ? divisor : 1;
}

// A stored e4m3 or ue5m3 scale, and the multiplier of the elements, or their divisor if the scaling has kDivides.
struct Fp4Scale {
  uint32_t code;
  float factor;
};

// The e4m3 scale of a block before rounding. `t` is the per-tensor scale.
template <typename Round>
__host__ __device__ inline float rawE4m3Scale(ScaleRule rule, float amax, float t, Round round) {
  if (rule == ScaleRule::kTwoLevelProduct) {
    const float quotient = amax / (6 * t);
    return quotient == 0 ? 1 : quotient;
  }
  const float sixth = amax / 6;
  return rule == ScaleRule::kTwoLevelDivisor ? t * round(sixth) : sixth / t;
}

// The smallest normal numbers of the scale formats e4m3 and ue5m3, both with three mantissa bits.
constexpr float kE4m3Normal = powerOfTwo(-6);
constexpr float kUe5m3Normal = powerOfTwo(-14);

// Rounds a non-negative value, at most the largest one, to the scale format with this smallest normal number. -0 becomes +0.
__host__ __device__ inline float nearestScale(float value, float normal) {
  const int32_t bits = static_cast<int32_t>(bitsOf(value));
  const int32_t least = static_cast<int32_t>(bitsOf(normal));
  const int32_t binade = (bits > least ? bits : least) & 0x7f800000;
  const float power = floatOf(static_cast<uint32_t>(binade + (20 << 23)));
  return value + power - power;
}

// The code of a non-negative value that the scale format with this smallest normal number represents exactly.
__host__ __device__ inline uint32_t exactScale(float value, float normal) {
  return value < normal ? static_cast<uint32_t>(value * (8 / normal))
                        : (bitsOf(value) >> 20) - (bitsOf(normal) >> 20) + 8;
}

// The scale of a block under kE4m3HalfUp. A scale of 0 gets a factor that makes the elements 0.
__host__ __device__ inline Fp4Scale e4m3HalfUp(float amax, uint32_t scaling) {
  const float sixth = amax / 6;
  const float raw = sixth > 448 ? 448 : sixth;
  uint32_t code;
  if (raw < powerOfTwo(-6)) {
    code = static_cast<uint32_t>(raw * 512 + 0.5f);
    if (code > 7) code = 7;
  } else {
    code = ((bitsOf(raw) + 0x00080000) >> 20) - (120 << 3);
    if (code > 0x77) code = 0x7e;
  }
  const float scale = code < 8 ? static_cast<float>(code) / 512 : floatOf((code + (120 << 3)) << 20);
  if (has(scaling, ElementScaling::kDivides)) return {code, code == 0 ? floatOf(0x7f800000u) : scale};
  return {code, code == 0 ? 0 : 1 / scale};
}

// The scale of a block under a rule for which hasTensorScale holds. `t` is the per-tensor scale. A NaN scale has a NaN factor.
template <typename Round>
__host__ __device__ inline Fp4Scale e4m3Scale(ScaleRule rule, uint32_t scaling, float amax, float t, Round round) {
  if (rule == ScaleRule::kE4m3HalfUp) return e4m3HalfUp(amax, scaling);
  const float raw = rawE4m3Scale(rule, amax, t, round);
  if (raw != raw) return {0x7f, floatOf(0x7fffffffu)};
  const bool isDivisor = rule == ScaleRule::kTwoLevelDivisor;
  const float least = isDivisor ? 0 : powerOfTwo(rule == ScaleRule::kTwoLevelProduct ? -9 : -6);
  const float bounded = raw < least ? least : raw;
  float scale = nearestScale(bounded > 448 ? 448 : bounded, kE4m3Normal);
  if (isDivisor && scale == 0) scale = 0.125f;
  const uint32_t code = exactScale(scale, kE4m3Normal);
  if (!isDivisor && rule != ScaleRule::kTwoLevelProduct) return {code, 1 / t / scale};
  const float whole = isDivisor ? scale / t : scale * t;
  return {code, has(scaling, ElementScaling::kDivides) ? whole : 1 / whole};
}

// The scale of a block under kUe5m3Quotient.
template <typename Round>
__host__ __device__ inline Fp4Scale ue5m3Scale(uint32_t scaling, float amax, Round round) {
  const float sixth = round(amax / 6);
  const float scale = nearestScale(sixth > 114688 ? 114688 : sixth, kUe5m3Normal);
  const float divisor = scale == 0 ? powerOfTwo(-23) : scale;
  return {exactScale(scale, kUe5m3Normal), has(scaling, ElementScaling::kDivides) ? divisor : 1 / divisor};
}

// The scale of a block under a rule for which hasTensorScale or hasUe5m3Scales holds. The latter have no per-tensor scale `t`.
template <typename Round>
__host__ __device__ inline Fp4Scale fp4Scale(ScaleRule rule, uint32_t scaling, float amax, const float* t,
                                             Round round) {
  if (hasUe5m3Scales(rule)) return ue5m3Scale(scaling, amax, round);
  return e4m3Scale(rule, scaling, amax, *t, round);
}

}  // namespace lockstep
