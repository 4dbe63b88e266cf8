// Softmax cross-entropy of logits whose columns ranks have parts of, in three steps (docs/numerics.md 7.4).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

struct PartOfLogits {
  const void* logits = nullptr;
  Wide type = Wide::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
};

struct LossMaximumParams : PartOfLogits {
  // One value per row.
  float* maximum = nullptr;
};

struct LossSumsParams : PartOfLogits {
  // One value per row. `maximum` is that of all classes.
  const int32_t* targets = nullptr;
  const float* maximum = nullptr;
  // The class of the first column.
  int64_t first = 0;
  // Whether there is a third row of sums, of logit - maximum.
  bool smooths = false;
  // [2 or 3, rows]: the sum of e^(logit - maximum), and logit - maximum of the target, or -0 if it has no column.
  float* sums = nullptr;
};

struct LossOfSumsParams {
  // The sums of all classes.
  const float* sums = nullptr;
  const int32_t* targets = nullptr;
  float* loss = nullptr;
  int64_t rows = 0;
  int64_t classes = 0;
  float smoothing = 0;
  int32_t ignore = 0;
};

cudaError_t launchLossMaximum(const LossMaximumParams& p, cudaStream_t stream);
cudaError_t launchLossSums(const LossSumsParams& p, cudaStream_t stream);
cudaError_t launchLossOfSums(const LossOfSumsParams& p, cudaStream_t stream);

}  // namespace lockstep
