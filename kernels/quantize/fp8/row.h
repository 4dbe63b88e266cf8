// FP8 with one f32 scale for each row, and in the columnwise copy for each column (docs/numerics.md §3.7).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

struct QuantizeRowParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  // A rule with f32 scales.
  ScaleRule rule = ScaleRule::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  // The format word of a signed format of 8 bits.
  uint32_t word = 0;
  // The rowwise codes, [rows, columns], and scales, [rows]; null if they are not wanted.
  uint8_t* rowwise = nullptr;
  float* rowwiseScales = nullptr;
  // The columnwise codes, [columns, rows], and scales, [columns]; null if they are not wanted.
  uint8_t* columnwise = nullptr;
  float* columnwiseScales = nullptr;
  // Memory for the amaxes of rows, [rows], if there is a rowwise copy, and behind them those of columns, [columns], if
  // there is a columnwise one.
  uint32_t* amaxes = nullptr;
  bool pow2 = false;
  float epsilon = 0;
  // If above 0, larger amaxes become this, rounded to the type of the source.
  float limit = 0;
  // If not null and the value is exactly 1, neither codes nor scales are written.
  const float* noop = nullptr;
  // The sum of the bits of ElementScaling by which elements are scaled. 0 is one multiplication, the only scaling of kF32.
  uint32_t scaling = 0;
};

// Returns cudaErrorInvalidValue for another format, rule or scaling.
cudaError_t launchQuantizeRow(const QuantizeRowParams& params, cudaStream_t stream);

}  // namespace lockstep
