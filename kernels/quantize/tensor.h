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
  // The format word of e4m3 or e5m2.
  uint32_t word = 0;
  // The rowwise codes, [rows, columns], and the columnwise codes, [columns, rows]; null if not wanted. 1 / scale is
  // stored once for each copy.
  uint8_t* rowwise = nullptr;
  uint8_t* columnwise = nullptr;
  float* rowwiseScaleInv = nullptr;
  float* columnwiseScaleInv = nullptr;
  // The scale. If it is null, it is computed from `amax`. If that is null too, the amax of the source is computed in
  // `workspace` first.
  const float* scale = nullptr;
  const float* amax = nullptr;
  float* workspace = nullptr;
  bool pow2 = false;
  float epsilon = 0;
  // If not null, replaced by max |x| if that is larger; NaN is ignored.
  float* amaxOut = nullptr;
  // If not null, receives the column sums of each 32 rows (kernels/rows/column-sum.h), [chunks, columns]. The source
  // must then have a 16-bit type.
  float* chunkSums = nullptr;
  // If not null and the value is exactly 1, nothing is written.
  const float* noop = nullptr;
};

// Returns cudaErrorInvalidValue if the format is neither e4m3 nor e5m2, if no copy is wanted, if `scale`, `amax` and
// `workspace` are all null, or if column sums of an f32 source are wanted.
cudaError_t launchQuantizeTensor(const QuantizeTensorParams& params, cudaStream_t stream);

}  // namespace lockstep
