// Per-tensor FP8 (docs/numerics.md 2): one scale for all codes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

struct QuantizeTensorParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  // e4m3 or e5m2.
  uint32_t word = 0;
  // Codes, [rows, columns], and their transpose; null where a copy is not wanted. Each copy has 1 / scale beside it.
  uint8_t* rowwise = nullptr;
  uint8_t* columnwise = nullptr;
  float* rowwiseScaleInv = nullptr;
  float* columnwiseScaleInv = nullptr;
  // The scale. Where it is null it is made from `amax`, and where that is null from the source's own amax, kept in
  // `workspace`.
  const float* scale = nullptr;
  const float* amax = nullptr;
  float* workspace = nullptr;
  bool pow2 = false;
  float epsilon = 0;
  // Raised to max |x|. May be null.
  float* amaxRecord = nullptr;
  // Takes the sums of 32 rows of each column (kernels/rows/column-sum.h), [chunks, columns], of a type of 16 bits. May be null.
  float* chunkSums = nullptr;
  // Nothing is written where this holds exactly 1. May be null.
  const float* noop = nullptr;
};

// Fails with cudaErrorInvalidValue for another word, without any copy, without `scale`, `amax` and `workspace`, and for sums
// of f32.
cudaError_t launchQuantizeTensor(const QuantizeTensorParams& params, cudaStream_t stream);

}  // namespace lockstep
