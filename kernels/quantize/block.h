// Block-scaled FP8 (docs/numerics.md 3): f32 scales for 1x128 or 128x128 blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/layout/placement.h"

namespace lockstep {

struct QuantizeBlockParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  // e4m3 or e5m2.
  uint32_t word = 0;
  // 128x128 blocks; 1x128 otherwise.
  bool square = false;
  // Codes, [rows, columns]; null where the copy is not wanted.
  uint8_t* rowwise = nullptr;
  ScalePlacement rowwiseScales;
  // Codes, [columns, rows], or [rows, columns] where `inPlace`; null where the copy is not wanted.
  uint8_t* columnwise = nullptr;
  ScalePlacement columnwiseScales;
  bool inPlace = false;
  bool pow2 = true;
  float epsilon = 0;
  // Takes the sums of 32 rows of each column (kernels/rows/column-sum.h), [chunks, columns], of a type of 16 bits. May be null.
  float* chunkSums = nullptr;
  // Nothing is written where this holds exactly 1. May be null.
  const float* noop = nullptr;
};

// Fails with cudaErrorInvalidValue for another word, and for sums of f32.
cudaError_t launchQuantizeBlock(const QuantizeBlockParams& params, cudaStream_t stream);

}  // namespace lockstep
