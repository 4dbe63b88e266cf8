// NVFP4 quantization (docs/numerics.md 5): e4m3 scales for blocks of 16 elements, under one f32 amax per tensor.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/random.cuh"
#include "kernels/layout/placement.h"

namespace lockstep {

// One copy: packed codes of lines along the blocks, their scales, and the tensor's amax.
struct Nvfp4Copy {
  // Null if the copy is not wanted.
  uint8_t* data = nullptr;
  ScalePlacement scales;
  float* amax = nullptr;
  // The amax to store and use instead of the source's own. May be null.
  const float* givenAmax = nullptr;
};

struct QuantizeNvfp4Params {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  // Multiples of 16.
  int64_t rows = 0;
  int64_t columns = 0;
  // Codes for [rows, columns], and for the transpose, [columns, rows].
  Nvfp4Copy rowwise;
  Nvfp4Copy columnwise;
  // Use 16x16 blocks, whose scale is stored once per line; otherwise 1x16.
  bool square = false;
  // Apply the random Hadamard transform to columnwise values first; bit i of `signs` negates row i of every 16. bf16 only.
  bool transforms = false;
  uint32_t signs = 0;
  // Round elements stochastically; otherwise to nearest even.
  bool stochastic = false;
  Philox random;
  // 4over6: choose each block's scale for a largest code of 6 or 4, by the smaller squared or absolute error.
  bool fourOverSix = false;
  bool squaredError = false;
  // The largest block scale: 448 or 256.
  float e4m3Max = 448;
  // If it holds exactly 1, nothing is written. May be null.
  const float* noop = nullptr;
};

// Returns cudaErrorInvalidValue if sizes or placements are not as described, for a transform of a type other than bf16, and for
// 4over6 with a transform or stochastic rounding.
cudaError_t launchQuantizeNvfp4(const QuantizeNvfp4Params& params, cudaStream_t stream);

// The passes of launchQuantizeNvfp4: first the amaxes, then codes and scales, with separate kernels for 4over6 and for rows
// only. The latter handles 1x16 blocks without a columnwise copy, below 2^32 blocks.
cudaError_t launchNvfp4Amaxes(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4Codes(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4Rows(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4FourOverSix(const QuantizeNvfp4Params& params, cudaStream_t stream);

}  // namespace lockstep
