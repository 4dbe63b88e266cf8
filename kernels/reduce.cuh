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
