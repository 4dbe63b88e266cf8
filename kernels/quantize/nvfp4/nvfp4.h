// NVFP4 (docs/numerics.md 5): e4m3 scales for 16 elements, under one f32 amax for the tensor.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/random.cuh"
#include "kernels/layout/placement.h"

namespace lockstep {

// One copy: packed codes of lines along the blocks, their scales, and the tensor's amax.
struct Nvfp4Copy {
  // Null where the copy is not wanted.
  uint8_t* data = nullptr;
  ScalePlacement scales;
  float* amax = nullptr;
  // The amax to store and use in place of the source's own. May be null.
  const float* givenAmax = nullptr;
};

struct QuantizeNvfp4Params {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  // Multiples of 16.
  int64_t rows = 0;
  int64_t columns = 0;
  // [rows, columns], and [columns, rows].
  Nvfp4Copy rowwise;
  Nvfp4Copy columnwise;
  // 16x16 blocks, whose scale is stored for each line; 1x16 otherwise.
  bool square = false;
  // Columnwise values are transformed first; bit i of `signs` negates row i of 16. bf16 alone.
  bool transforms = false;
  uint32_t signs = 0;
  // Round elements stochastically, else to nearest.
  bool stochastic = false;
  Philox random;
  // Choose each block's scale for a largest code of 6 or 4 by the smaller error, squared or absolute.
  bool fourOverSix = false;
  bool squaredError = false;
  // The largest block scale: 448 or 256.
  float e4m3Max = 448;
  // Nothing is written where this holds exactly 1. May be null.
  const float* noop = nullptr;
};

// Fails with cudaErrorInvalidValue for sizes or placements that are not as described, for a transform of another type,
// and for 4over6 with a transform or stochastic rounding.
cudaError_t launchQuantizeNvfp4(const QuantizeNvfp4Params& params, cudaStream_t stream);

// The passes of it: amaxes, and then codes and scales, without and with 4over6. Rows is Codes for less than 2^32 blocks
// of 1x16 without a columnwise copy.
cudaError_t launchNvfp4Amaxes(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4Codes(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4Rows(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4FourOverSix(const QuantizeNvfp4Params& params, cudaStream_t stream);

}  // namespace lockstep
