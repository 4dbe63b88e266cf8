// MXFP8, MXFP6 and MXFP4 quantization (docs/numerics.md 4): one e8m0 scale per 32 elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/random.cuh"
#include "kernels/layout/placement.h"

namespace lockstep {

struct QuantizeMxParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  // Multiples of 32.
  int64_t rows = 0;
  int64_t columns = 0;
  // The element format: signed, at most 8 bits.
  uint32_t word = 0;
  // kE8m0Up or kE8m0Floor.
  ScaleRule rule = ScaleRule::kE8m0Up;
  // Use 32x32 blocks, whose scale is stored once per line; otherwise 1x32.
  bool square = false;
  // Round elements stochastically; otherwise to nearest even.
  bool stochastic = false;
  RandomSource random;
  // Codes, [rows, columns]; null if the copy is not wanted.
  uint8_t* rowwise = nullptr;
  ScalePlacement rowwiseScales;
  // Codes, [rows, columns], or [columns, rows] for 4-bit codes; null if the copy is not wanted.
  uint8_t* columnwise = nullptr;
  ScalePlacement columnwiseScales;
  // If it holds exactly 1, nothing is written. May be null.
  const float* noop = nullptr;
};

// Returns cudaErrorInvalidValue if sizes, format, rule or placements are not as described above.
cudaError_t launchQuantizeMx(const QuantizeMxParams& params, cudaStream_t stream);

// Validates as launchQuantizeMx does and zeroes the padding of the scales.
cudaError_t prepareQuantizeMx(const QuantizeMxParams& params, cudaStream_t stream);

// As launchQuantizeMx, for cases that have no faster kernel. Call prepareQuantizeMx first.
cudaError_t launchQuantizeMxAny(const QuantizeMxParams& params, cudaStream_t stream);

}  // namespace lockstep
