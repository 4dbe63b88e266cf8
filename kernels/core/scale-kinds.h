// The types of scales under each rule, and the bits of element scalings.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// Whether a rule gives f32 scales.
__host__ __device__ constexpr bool hasF32Scales(ScaleRule rule) {
  return rule == ScaleRule::kF32 || rule == ScaleRule::kF32QuotientRange ||
         (rule >= ScaleRule::kF32Quotient && rule <= ScaleRule::kF32Reciprocal);
}

// Whether a rule has e4m3 scales and a per-tensor scale that is not an amax.
__host__ __device__ constexpr bool hasTensorScale(ScaleRule rule) {
  return rule == ScaleRule::kE4m3HalfUp || (rule >= ScaleRule::kE4m3Quotient && rule <= ScaleRule::kTwoLevelDivisor);
}

// Whether the per-tensor scale is 1 under a rule, whatever the amax.
__host__ __device__ constexpr bool hasNoTensorAmax(ScaleRule rule) {
  return rule == ScaleRule::kE4m3Quotient || rule == ScaleRule::kE4m3HalfUp;
}

// Whether a rule gives ue5m3 scales.
__host__ __device__ constexpr bool hasUe5m3Scales(ScaleRule rule) { return rule == ScaleRule::kUe5m3Quotient; }

// Whether a rule gives e8m0 scales.
__host__ __device__ constexpr bool hasE8m0Scales(ScaleRule rule) {
  return !hasF32Scales(rule) && !hasTensorScale(rule) && !hasUe5m3Scales(rule) && rule != ScaleRule::kTwoLevel &&
         rule != ScaleRule::kFourOverSix;
}

// Whether `scaling`, a sum of bits of ElementScaling, contains this bit. Elements of scaling 0 are multiplied once.
__host__ __device__ constexpr bool has(uint32_t scaling, ElementScaling bit) {
  return (scaling & static_cast<uint32_t>(bit)) != 0;
}

// Whether rule and scaling are valid for FP4 in blocks of 16, other than TransformerEngine's rule.
__host__ __device__ constexpr bool isNvfp4Rule(ScaleRule rule, uint32_t scaling) {
  constexpr uint32_t kBits =
      static_cast<uint32_t>(ElementScaling::kDivides) | static_cast<uint32_t>(ElementScaling::kAddsZero) |
      static_cast<uint32_t>(ElementScaling::kTiesToZero) | static_cast<uint32_t>(ElementScaling::kPlusZero);
  return (hasTensorScale(rule) || hasUe5m3Scales(rule)) && (scaling & ~kBits) == 0;
}

}  // namespace lockstep
