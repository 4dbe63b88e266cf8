// MXFP8, MXFP6 and MXFP4 (docs/numerics.md 4): e8m0 scales for 32 elements.
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
  // The elements: a signed format of up to 8 bits.
  uint32_t word = 0;
  // kE8m0Up or kE8m0Floor.
  ScaleRule rule = ScaleRule::kE8m0Up;
  // 32x32 blocks, whose scale is stored for each line; 1x32 otherwise.
  bool square = false;
  // Round elements stochastically, else to nearest.
  bool stochastic = false;
  RandomSource random;
  // Codes, [rows, columns]; null where the copy is not wanted.
  uint8_t* rowwise = nullptr;
  ScalePlacement rowwiseScales;
  // Codes, [rows, columns], or [columns, rows] where they take 4 bits; null where the copy is not wanted.
  uint8_t* columnwise = nullptr;
  ScalePlacement columnwiseScales;
  // Nothing is written where this holds exactly 1. May be null.
  const float* noop = nullptr;
};

// Fails with cudaErrorInvalidValue for sizes, a word, a rule or placements that are not as described.
cudaError_t launchQuantizeMx(const QuantizeMxParams& params, cudaStream_t stream);

// Fails as launchQuantizeMx; clears the padding of the scales.
cudaError_t prepareQuantizeMx(const QuantizeMxParams& params, cudaStream_t stream);

// The same as launchQuantizeMx for whatever that has no faster kernel for, once all is prepared.
cudaError_t launchQuantizeMxAny(const QuantizeMxParams& params, cudaStream_t stream);

}  // namespace lockstep
