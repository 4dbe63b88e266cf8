// The order of additions of every sum (docs/numerics.md §7.5). The 32 threads of a warp are the 32 lanes of a sum. Lane
// l adds elements l, l + 32, ... in ascending order. Then, for w = 16, 8, 4, 2, 1, lane l < w adds lane l + w.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/device.cuh"

namespace lockstep {

constexpr int kLanes = 32;

// Returns the sum of the 32 lanes to every thread of the warp.
__device__ inline float foldLanes(float sum) {
#pragma unroll
  for (int w = kLanes / 2; w > 0; w /= 2) sum += __shfl_down_sync(kFullMask, sum, w);
  return __shfl_sync(kFullMask, sum, 0);
}

// Calls add(load(i)) for the elements i = lane, lane + 32, ... below `count`, in ascending order. `depth` loads are issued before
// the first addition.
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

// Returns the maximum of the 32 lanes, NaN ignored, to every thread of the warp.
__device__ inline float maximumOfLanes(float value) {
#pragma unroll
  for (int w = kLanes / 2; w > 0; w /= 2) {
    const float other = __shfl_xor_sync(kFullMask, value, w);
    value = value < other ? other : value;
  }
  return value;
}

}  // namespace lockstep
