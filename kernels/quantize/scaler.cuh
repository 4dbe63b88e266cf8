// Scales elements to the range of their format (docs/numerics.md §3.6).
#pragma once

#include "kernels/core/scale-rules.cuh"
#include "kernels/device/device.cuh"

namespace lockstep {

// Scales elements of type `type`: by one multiplication or, if `anyRule`, by the bits of ElementScaling in `scaling`.
template <Wide type, bool anyRule>
struct Scaler {
  uint32_t scaling;

  // The number that is rounded to the code of x. `factor` is the factor of its block.
  __device__ float operator()(float x, float factor) const {
    if constexpr (anyRule) {
      return scaledBy(x, factor, scaling, rounded<type>);
    } else {
      return x * factor;
    }
  }
};

// Returns the bits of |x|, or 0 for NaN.
__device__ inline uint32_t magnitudeOf(float x) {
  const uint32_t bits = bitsOf(x) & 0x7fffffffu;
  return bits > 0x7f800000u ? 0 : bits;
}

// The scale of a block or tensor under TransformerEngine's rule: elements are multiplied by `factor`.
template <bool anyRule>
struct ScaleOf {
  float factor;

  __device__ float stored() const { return 1 / factor; }
};
// The scale under any other rule with f32 scales.
template <>
struct ScaleOf<true> {
  float factor;
  float scale;

  __device__ float stored() const { return scale; }
};

// The scale of a block or tensor under any rule. `p`: the parameters of its quantization. Under kF32, a scale that overflows
// becomes `overflow`.
template <Wide type, typename Params>
__device__ inline ScaleOf<true> generalScale(const Params& p, float amax, float max, float overflow) {
  if (p.rule == ScaleRule::kF32) {
    const float factor = scaleFromAmax(amax, max, p.pow2, p.epsilon, overflow);
    return {factor, 1 / factor};
  }
  if (p.rule == ScaleRule::kF32QuotientRange) max = halfRange(p.word);
  const F32Scale scale = f32Scale(p.rule, p.scaling, amax, max, p.epsilon, type, rounded<type>);
  return {scale.factor, scale.stored};
}

}  // namespace lockstep
