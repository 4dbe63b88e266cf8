// What a per-tensor quantization leaves beside its codes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/minifloat.cuh"
#include "kernels/quantize/tensor.h"

namespace lockstep {

// Raises *record to the largest magnitude among the block's threads. NaN bits of a record are above all others.
__device__ inline void raiseRecord(float* record, float largest) {
  __shared__ uint32_t warps[32];
  const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
  const uint32_t ofWarp = __reduce_max_sync(0xffffffffu, bitsOf(largest));
  if (thread % 32 == 0) warps[thread / 32] = ofWarp;
  __syncthreads();
  if (thread != 0) return;
  uint32_t ofBlock = 0;
  for (int i = 0; i < blockDim.x * blockDim.y / 32; ++i) ofBlock = max(ofBlock, warps[i]);
  // magnitudes order as their bits do; a stale record is only smaller
  int* bits = reinterpret_cast<int*>(record);
  if (static_cast<int>(ofBlock) > __ldcg(bits)) atomicMax(bits, static_cast<int>(ofBlock));
}

// Raises `largest` to the magnitudes of values, NaN ignored.
template <int width>
__device__ inline void raiseTo(float& largest, const float (&values)[width]) {
#pragma unroll
  for (int i = 0; i < width; ++i) largest = fmaxf(largest, fabsf(values[i]));
}

// Beside each copy.
__device__ inline void storeInverse(const QuantizeTensorParams& p, float scale) {
  if (p.rowwiseScaleInv != nullptr) *p.rowwiseScaleInv = 1 / scale;
  if (p.columnwiseScaleInv != nullptr) *p.columnwiseScaleInv = 1 / scale;
}

}  // namespace lockstep
