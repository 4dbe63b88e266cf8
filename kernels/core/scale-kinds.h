// What kind of scales a rule gives, and which bits an element scaling has.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// Whether a rule gives f32 scales.
__host__ __device__ constexpr bool hasF32Scales(ScaleRule rule) {
  return rule == ScaleRule::kF32 || (rule >= ScaleRule::kF32Quotient && rule <= ScaleRule::kF32Reciprocal);
}

// Whether a rule gives e8m0 scales.
__host__ __device__ constexpr bool hasE8m0Scales(ScaleRule rule) {
  return !hasF32Scales(rule) && rule != ScaleRule::kTwoLevel && rule != ScaleRule::kFourOverSix;
}

// Whether `scaling`, a sum of bits of ElementScaling, has this bit. The sum 0 is one multiplication.
__host__ __device__ constexpr bool has(uint32_t scaling, ElementScaling bit) {
  return (scaling & static_cast<uint32_t>(bit)) != 0;
}

}  // namespace lockstep
