// The terms of the cross-entropy of a row: the maximum and two sums over its logits, computed by a warp whose threads are the
// lanes of the sums. Call them with all threads of the warp; all get the result.
#pragma once

#include "kernels/core/exponential.cuh"
#include "kernels/device/elements.cuh"
#include "kernels/device/reduce.cuh"

namespace lockstep {

constexpr float kInfinity = __builtin_huge_valf();

template <Wide type>
using LogitsOf = const typename WideOf<type>::Storage*;

// max(x) + 0, NaN ignored; -infinity if all are NaN.
template <Wide type>
__device__ float maximumOfRow(LogitsOf<type> x, int64_t columns, int lane) {
  float top = -kInfinity;
#pragma unroll 8
  for (int64_t i = lane; i < columns; i += kLanes) {
    const float value = loadElement(x, type, i);
    top = top < value ? value : top;
  }
  return maximumOfLanes(top) + 0.0f;
}

// sum(e^(x - maximum)).
template <Wide type>
__device__ float totalOfRow(LogitsOf<type> x, int64_t columns, int lane, float maximum) {
  float sum = 0;
#pragma unroll 4
  for (int64_t i = lane; i < columns; i += kLanes) {
    float power[1] = {loadElement(x, type, i) - maximum};
    exponentials<true>(power);
    sum += power[0];
  }
  return foldLanes(sum);
}

// sum(x - maximum).
template <Wide type>
__device__ float distanceOfRow(LogitsOf<type> x, int64_t columns, int lane, float maximum) {
  float sum = 0;
#pragma unroll 8
  for (int64_t i = lane; i < columns; i += kLanes) sum += loadElement(x, type, i) - maximum;
  return foldLanes(sum);
}

// The loss of a row whose target is one of `classes`, where `own` is x_t - maximum and `distance` sum(x - maximum).
__device__ inline float smoothedLoss(float logTotal, float own, float distance, int64_t classes, float smoothing) {
  const float value = logTotal - own;
  if (smoothing == 0) return value;
  const float uniform = logTotal - distance / static_cast<float>(classes);
  return (1.0f - smoothing) * value + smoothing * uniform;
}

}  // namespace lockstep
