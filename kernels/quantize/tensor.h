// Per-tensor FP8 quantization (docs/numerics.md 2): all codes share one scale.
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
  // Codes, [rows, columns], and their transpose; null if a copy is not wanted. 1 / scale is stored once per copy.
  uint8_t* rowwise = nullptr;
  uint8_t* columnwise = nullptr;
  float* rowwiseScaleInv = nullptr;
  float* columnwiseScaleInv = nullptr;
  // The scale. If null, it is computed from `amax`; if that is null too, from the source's own amax, which is kept in
  // `workspace`.
  const float* scale = nullptr;
  const float* amax = nullptr;
  float* workspace = nullptr;
  bool pow2 = false;
  float epsilon = 0;
  // Raised to max |x|. May be null.
  float* amaxOut = nullptr;
  // Receives the column sums of each 32 rows (kernels/rows/column-sum.h), [chunks, columns]. Requires a 16-bit source type. May
  // be null.
  float* chunkSums = nullptr;
  // If it holds exactly 1, nothing is written. May be null.
  const float* noop = nullptr;
};

// Returns cudaErrorInvalidValue for another format, without any copy, if `scale`, `amax` and `workspace` are all null, and for
// column sums of f32.
cudaError_t launchQuantizeTensor(const QuantizeTensorParams& params, cudaStream_t stream);

}  // namespace lockstep
