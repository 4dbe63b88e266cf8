// Row-wise losses and their gradients: softmax cross-entropy of logits, and mean squared error (docs/numerics.md 7.4, 7.7).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

struct CrossEntropyParams {
  const void* logits = nullptr;
  Wide type = Wide::kF32;
  // One value per row. A row whose target equals `ignore` has zero loss and zero gradient.
  const int32_t* targets = nullptr;
  // Results, one value per row: the loss, the largest logit, and the sum of e^(logit - maximum).
  float* loss = nullptr;
  float* maximum = nullptr;
  float* total = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  float smoothing = 0;
  int32_t ignore = 0;
};

// Computes dx. `grad` is the gradient of each row's loss; `maximum` and `total` are those of the forward pass. The columns
// are those of the classes from `first` on.
struct CrossEntropyBackwardParams {
  const float* grad = nullptr;
  const void* logits = nullptr;
  Wide type = Wide::kF32;
  const int32_t* targets = nullptr;
  const float* maximum = nullptr;
  const float* total = nullptr;
  void* dx = nullptr;
  Wide dxType = Wide::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t first = 0;
  // The number of all classes.
  int64_t classes = 0;
  float smoothing = 0;
  int32_t ignore = 0;
};

// Two matrices of the same shape.
struct MsePair {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  const void* target = nullptr;
  Wide targetType = Wide::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
};

struct MseParams : MsePair {
  // One value per row.
  float* loss = nullptr;
};

// Computes dx. `grad` is the gradient of each row's loss.
struct MseBackwardParams : MsePair {
  const float* grad = nullptr;
  void* dx = nullptr;
  Wide dxType = Wide::kF32;
};

cudaError_t launchCrossEntropy(const CrossEntropyParams& p, cudaStream_t stream);
cudaError_t launchCrossEntropyBackward(const CrossEntropyBackwardParams& p, cudaStream_t stream);
cudaError_t launchMse(const MseParams& p, cudaStream_t stream);
cudaError_t launchMseBackward(const MseBackwardParams& p, cudaStream_t stream);

}  // namespace lockstep
