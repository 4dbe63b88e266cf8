// Per-tensor FP8 quantization (docs/numerics.md 2): all codes share one scale. Comments say "1 / scale" for what is stored,
// which other rules than kF32 compute without that division.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

struct QuantizeTensorParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  // A rule with f32 scales. A given scale is the multiplier that kF32 would compute, under any rule.
  ScaleRule rule = ScaleRule::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  // The format word of a signed format of 8 bits; fused kernels write e4m3 and e5m2.
  uint32_t word = 0;
  // The sum of the bits of ElementScaling by which elements are scaled. 0 is one multiplication, the only scaling of kF32.
  uint32_t scaling = 0;
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
// `workspace` are all null, if rule and scaling are not as described above, or if column sums of an f32 source or under
// another rule than kF32 are wanted.
cudaError_t launchQuantizeTensor(const QuantizeTensorParams& params, cudaStream_t stream);

}  // namespace lockstep
