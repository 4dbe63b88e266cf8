// Gated activations and their gradients (docs/numerics.md 7.2).
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// A row of x[rows, 2 columns] holds the values of a, then the values of g. Forward: out[rows, columns] = act(min(a, limit)) *
// (clamp(g, -limit, limit) + offset). Backward: from grad[rows, columns], a row of out[rows, 2 columns] gets the gradients of a,
// then the gradients of g.
// The launchers' parameters are in activation.gen.h.
struct GatedForm {
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  const void* grad = nullptr;
  Wide gradType = Wide::kF32;
  void* out = nullptr;
  Wide outType = Wide::kF32;
  // If not null: *amax is set to the largest magnitude of the results before they are rounded to outType; NaN is ignored.
  float* amax = nullptr;
  Activation kind = Activation::kGelu;
  // The factor of a in the logistic function of silu and qgelu.
  float alpha = 1;
  // The defaults clamp nothing: adding -0 changes no g.
  float limit = INFINITY;
  float offset = -0.0f;
  int64_t rows = 0;
  int64_t columns = 0;
};

}  // namespace lockstep
