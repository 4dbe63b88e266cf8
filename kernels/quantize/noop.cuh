// The no-op flag: an f32 in device memory. If it is exactly 1, a quantizer writes nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/layout/placement.h"

namespace lockstep {

__device__ inline bool isNoop(const float* noop) { return noop != nullptr && *noop == 1; }

static __global__ void clearUnlessNoop(uint32_t* words, int64_t count, const float* noop) {
  if (isNoop(noop)) return;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) words[i] = 0;
}

// As clearPadding(scales, stream), but writes nothing if *noop is 1.
inline cudaError_t clearPadding(const ScalePlacement& scales, const float* noop, cudaStream_t stream) {
  if (noop == nullptr) return clearPadding(scales, stream);
  // A buffer with padding is a multiple of 4 bytes long, so it consists of whole 32-bit words.
  if (scales.clearBytes > 0) {
    clearUnlessNoop<<<256, 256, 0, stream>>>(static_cast<uint32_t*>(scales.data), scales.clearBytes / 4, noop);
  }
  return cudaGetLastError();
}

}  // namespace lockstep
