// Softmax over the rows of a batch of matrices, and its gradient (docs/numerics.md 7.9).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

struct SoftmaxRows {
  // Total number of rows of all matrices.
  int64_t rows = 0;
  int64_t columns = 0;
  // The number of rows per matrix under the causal mask; 0 if nothing is masked.
  int64_t period = 0;
  float scale = 1;
};

struct SoftmaxParams : SoftmaxRows {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  void* out = nullptr;
  Wide outType = Wide::kF32;
};

struct SoftmaxBackwardParams : SoftmaxRows {
  const void* grad = nullptr;
  Wide gradType = Wide::kF32;
  // The output of softmax.
  const void* y = nullptr;
  Wide yType = Wide::kF32;
  void* dx = nullptr;
  Wide dxType = Wide::kF32;
};

cudaError_t launchSoftmax(const SoftmaxParams& p, cudaStream_t stream);
cudaError_t launchSoftmaxBackward(const SoftmaxBackwardParams& p, cudaStream_t stream);

}  // namespace lockstep
