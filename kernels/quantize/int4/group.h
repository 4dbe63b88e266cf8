// INT4 with one f32 scale for each group of a line (docs/numerics.md §3.9): two codes in a byte, the even element in the low
// nibble.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/layout/placement.h"

namespace lockstep {

struct QuantizeGroupParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  // A rule with f32 scales.
  ScaleRule rule = ScaleRule::kF32;
  // Multiples of 32.
  int64_t rows = 0;
  int64_t columns = 0;
  // The format word of int4.
  uint32_t word = 0;
  // The number of elements of a group: 32, 64 or 128. The last group of a line may be shorter.
  uint32_t length = 0;
  // The rowwise codes, [rows, columns]; null if they are not wanted.
  uint8_t* rowwise = nullptr;
  ScalePlacement rowwiseScales;
  // The columnwise codes, [columns, rows]; null if they are not wanted.
  uint8_t* columnwise = nullptr;
  ScalePlacement columnwiseScales;
  // Always false: scales of integers are not rounded to powers of two.
  bool pow2 = false;
  float epsilon = 0;
  // If not null and the value is exactly 1, nothing is written.
  const float* noop = nullptr;
  // The sum of the bits of ElementScaling by which elements are scaled. 0 is one multiplication, the only scaling of kF32.
  uint32_t scaling = 0;
};

// Returns cudaErrorInvalidValue for another format, rule, scaling or size.
cudaError_t launchQuantizeGroup(const QuantizeGroupParams& params, cudaStream_t stream);

}  // namespace lockstep
