// Optimizer steps, element by element and in place (docs/numerics.md 9).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// Parameters common to all optimizers. All arrays have `count` elements.
struct StepParams {
  const void* grad = nullptr;
  Wide gradType = Wide::kF32;
  float* parameter = nullptr;
  // Receives the new parameter, rounded to its type; null if not wanted.
  void* copy = nullptr;
  Wide copyType = Wide::kBf16;
  // Multiplies the gradient; null means 1.
  const float* gradScale = nullptr;
  // If it holds 1, nothing is written; null means 0.
  const float* noop = nullptr;
  float learningRate = 0;
  float weightDecay = 0;
  int64_t count = 0;
};

struct SgdParams : StepParams {
  // Null means no momentum.
  float* m = nullptr;
  float momentum = 0;
  // 1 - dampening
  float undamped = 1;
  bool nesterov = false;
  // First step: m is not read.
  bool first = false;
};

struct AdamwParams : StepParams {
  float* m = nullptr;
  float* v = nullptr;
  float beta1 = 0;
  float beta2 = 0;
  // 1 - beta^step
  float correction1 = 1;
  float correction2 = 1;
  float epsilon = 0;
  // Weight decay is applied to the parameter directly, not added to the gradient (AdamW).
  bool decoupled = true;
};

cudaError_t launchSgd(const SgdParams& p, cudaStream_t stream);
cudaError_t launchAdamw(const AdamwParams& p, cudaStream_t stream);

}  // namespace lockstep
