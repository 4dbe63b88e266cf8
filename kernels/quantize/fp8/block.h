// Block-scaled FP8 (docs/numerics.md 3): codes with f32 scales for blocks of 1x128 or 128x128 elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/layout/placement.h"

namespace lockstep {

struct QuantizeBlockParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  // A rule with f32 scales.
  ScaleRule rule = ScaleRule::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  // The format word of a signed format of 8 bits.
  uint32_t word = 0;
  // Whether blocks have 128x128 elements; otherwise 1x128.
  bool square = false;
  // The rowwise codes, [rows, columns]; null if they are not wanted.
  uint8_t* rowwise = nullptr;
  ScalePlacement rowwiseScales;
  // The columnwise codes, [columns, rows], or [rows, columns] if `inPlace`; null if they are not wanted.
  uint8_t* columnwise = nullptr;
  ScalePlacement columnwiseScales;
  bool inPlace = false;
  bool pow2 = true;
  float epsilon = 0;
  // If not null, receives the column sums of each 32 rows (kernels/rows/column-sum.h), [chunks, columns]. The source
  // must then have a 16-bit type.
  float* chunkSums = nullptr;
  // If not null and the value is exactly 1, nothing is written.
  const float* noop = nullptr;
  // The sum of the bits of ElementScaling by which elements are scaled. 0 is one multiplication, the only scaling of kF32.
  uint32_t scaling = 0;
};

// Returns cudaErrorInvalidValue for another format, rule or scaling, and for column sums of f32 or under another rule than
// kF32.
cudaError_t launchQuantizeBlock(const QuantizeBlockParams& params, cudaStream_t stream);

}  // namespace lockstep
