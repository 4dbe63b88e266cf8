// The per-tensor outputs of a quantization other than its codes: the amax and 1 / scale.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/minifloat.cuh"
#include "kernels/device/device.cuh"
#include "kernels/quantize/tensor.gen.h"

namespace lockstep {

// Sets *amaxOut to the maximum of *amaxOut and of a magnitude with the bits `largest`.
__device__ inline void raiseBits(float* amaxOut, uint32_t largest) {
  // Magnitudes have the same order as their bits. The value read here may be outdated, but then it is too small.
  int* bits = reinterpret_cast<int*>(amaxOut);
  if (static_cast<int>(largest) > __ldcg(bits)) atomicMax(bits, static_cast<int>(largest));
}

// Sets *amaxOut to the maximum of *amaxOut and of `largest` over all threads of the block. `largest` must not be
// negative. NaN counts as larger than all other values.
__device__ inline void raiseAmax(float* amaxOut, float largest) {
  __shared__ uint32_t warps[32];
  const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
  const uint32_t ofWarp = __reduce_max_sync(kFullMask, bitsOf(largest));
  if (thread % 32 == 0) warps[thread / 32] = ofWarp;
  __syncthreads();
  if (thread != 0) return;
  uint32_t ofBlock = 0;
  for (int i = 0; i < blockDim.x * blockDim.y / 32; ++i) ofBlock = max(ofBlock, warps[i]);
  raiseBits(amaxOut, ofBlock);
}

// As raiseAmax, over the threads of a warp and without shared memory. All 32 lanes of the warp must call it; blocks are
// one-dimensional.
__device__ inline void raiseAmaxByWarp(float* amaxOut, float largest) {
  const uint32_t ofWarp = __reduce_max_sync(kFullMask, bitsOf(largest));
  if (threadIdx.x % 32 == 0) raiseBits(amaxOut, ofWarp);
}

// Replaces `largest` by the magnitude of a value if that is larger; NaN is ignored.
template <int width>
__device__ inline void raiseTo(float& largest, const float (&values)[width]) {
#pragma unroll
  for (int i = 0; i < width; ++i) largest = fmaxf(largest, fabsf(values[i]));
}

// Stores the scale of each copy.
__device__ inline void storeScaleInv(const QuantizeTensorParams& p, float scale) {
  if (p.rowwiseScaleInv != nullptr) *p.rowwiseScaleInv = scale;
  if (p.columnwiseScaleInv != nullptr) *p.columnwiseScaleInv = scale;
}

// Stores 1 / scale for each copy.
__device__ inline void storeInverse(const QuantizeTensorParams& p, float scale) {
  if (p.rowwiseScaleInv != nullptr) *p.rowwiseScaleInv = 1 / scale;
  if (p.columnwiseScaleInv != nullptr) *p.columnwiseScaleInv = 1 / scale;
}

}  // namespace lockstep
