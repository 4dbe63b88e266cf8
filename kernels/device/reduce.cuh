// The one order of every sum (docs/numerics.md 7.5): a warp is the 32 lanes, thread l adds elements l, l + 32, ...
// ascending, and then, for w = 16, 8, 4, 2, 1, lane l < w adds lane l + w.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

constexpr int kLanes = 32;

// The sum of the lanes, in every thread of the warp.
__device__ inline float foldLanes(float sum) {
#pragma unroll
  for (int w = kLanes / 2; w > 0; w /= 2) sum += __shfl_down_sync(0xffffffffu, sum, w);
  return __shfl_sync(0xffffffffu, sum, 0);
}

// Calls add(load(i)) for elements i = lane, lane + 32, ... below `count`, ascending; what `load` gives is read ahead.
template <int depth, typename Index, typename Load, typename Add>
__device__ inline void walkLanes(Index count, Load load, Add add) {
  Index i = static_cast<int>(threadIdx.x) % kLanes;
  Index batches = count / (depth * kLanes);
  if (batches > 0) {
    decltype(load(i)) ahead[depth];
#pragma unroll
    for (int k = 0; k < depth; ++k) ahead[k] = load(i + k * kLanes);
#pragma unroll 2
    for (; batches > 1; --batches) {
      decltype(load(i)) terms[depth];
#pragma unroll
      for (int k = 0; k < depth; ++k) terms[k] = ahead[k];
      i += depth * kLanes;
#pragma unroll
      for (int k = 0; k < depth; ++k) ahead[k] = load(i + k * kLanes);
#pragma unroll
      for (int k = 0; k < depth; ++k) add(terms[k]);
    }
#pragma unroll
    for (int k = 0; k < depth; ++k) add(ahead[k]);
    i += depth * kLanes;
  }
  for (; i < count; i += kLanes) add(load(i));
}

// The larger of the lanes, NaN ignored, in every thread of the warp.
__device__ inline float maximumOfLanes(float value) {
#pragma unroll
  for (int w = kLanes / 2; w > 0; w /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, w);
    value = value < other ? other : value;
  }
  return value;
}

}  // namespace lockstep
