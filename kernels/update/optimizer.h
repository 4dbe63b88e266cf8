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
  // If not null, receives the new parameter, rounded to `copyType`.
  void* copy = nullptr;
  Wide copyType = Wide::kBf16;
  // A factor of the gradient in device memory; null means 1.
  const float* gradScale = nullptr;
  // A flag in device memory. If not null and exactly 1, nothing is written.
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
  // Whether this is the first step, which does not read m.
  bool first = false;
};

struct AdamwParams : StepParams {
  float* m = nullptr;
  float* v = nullptr;
  float beta1 = 0;
  float beta2 = 0;
  // correction1 is 1 - beta1^step, and correction2 is 1 - beta2^step.
  float correction1 = 1;
  float correction2 = 1;
  float epsilon = 0;
  // Whether weight decay is applied to the parameter directly (AdamW) instead of being added to the gradient.
  bool decoupled = true;
};

cudaError_t launchSgd(const SgdParams& p, cudaStream_t stream);
cudaError_t launchAdamw(const AdamwParams& p, cudaStream_t stream);

}  // namespace lockstep
