// LayerNorm and RMSNorm over the rows of a matrix, and their gradients (docs/numerics.md 7.1).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

struct NormParams {
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  // One value per column; beta may be null.
  const void* gamma = nullptr;
  const void* beta = nullptr;
  Wide parameterType = Wide::kF32;
  void* out = nullptr;
  Wide outType = Wide::kF32;
  // If not null, set to the largest magnitude of the results as they are stored, NaN ignored.
  float* amax = nullptr;
  // Results, one value per row. If `mean` is null, the norm is RMSNorm.
  float* mean = nullptr;
  float* rstd = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  float epsilon = 0;
  bool zeroCentered = false;
  // If not null, a counter through which blocks share their work. It must be 0, is 0 again afterwards, and must not be
  // used by another kernel at the same time.
  uint32_t* tickets = nullptr;
};

cudaError_t launchNorm(const NormParams& p, cudaStream_t stream);

}  // namespace lockstep
