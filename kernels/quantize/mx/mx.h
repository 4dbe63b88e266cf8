// MXFP8, MXFP6 and MXFP4 quantization (docs/numerics.md 4): one e8m0 scale per 32 elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/matrix-part.h"
#include "kernels/core/random.cuh"
#include "kernels/layout/placement.h"

namespace lockstep {

struct QuantizeMxParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  // Multiples of 32.
  int64_t rows = 0;
  int64_t columns = 0;
  // The format word of the elements: signed, at most 8 bits.
  uint32_t word = 0;
  // A rule with e8m0 scales.
  ScaleRule rule = ScaleRule::kE8m0Up;
  // Whether blocks have 32x32 elements; otherwise 1x32. The scale of a 32x32 block is stored for each of its 32 lines.
  bool square = false;
  // Whether elements are rounded stochastically; otherwise to nearest even.
  bool stochastic = false;
  RandomSource random;
  // With stochastic rounding: the matrix whose elements have the random bits of this one's.
  MatrixPart part;
  // If not null, each element of the copy is rounded by a word of its own, in the order of the codes (elementBits of
  // kernels/core/random.cuh).
  const uint32_t* rowwiseWords = nullptr;
  const uint32_t* columnwiseWords = nullptr;
  // The sum of the bits of ElementScaling by which elements are scaled, without kDivides. 0 is one multiplication.
  uint32_t scaling = 0;
  // The rowwise codes, [rows, columns]; null if they are not wanted.
  uint8_t* rowwise = nullptr;
  ScalePlacement rowwiseScales;
  // The columnwise codes, [rows, columns], or [columns, rows] for 4-bit codes; null if they are not wanted.
  uint8_t* columnwise = nullptr;
  ScalePlacement columnwiseScales;
  // If not null and the value is exactly 1, nothing is written.
  const float* noop = nullptr;
};

// Returns cudaErrorInvalidValue if sizes, format, rule or placements are not as described above.
cudaError_t launchQuantizeMx(const QuantizeMxParams& params, cudaStream_t stream);

// Validates as launchQuantizeMx does, and sets the padding of the scales to zero.
cudaError_t prepareQuantizeMx(const QuantizeMxParams& params, cudaStream_t stream);

// As launchQuantizeMx, for cases without a faster kernel. prepareQuantizeMx must be called first.
cudaError_t launchQuantizeMxAny(const QuantizeMxParams& params, cudaStream_t stream);

}  // namespace lockstep
