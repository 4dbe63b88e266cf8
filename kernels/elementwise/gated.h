// Gated activations and their gradients (docs/numerics.md 7.2).
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// Forward: from x[rows, 2 columns] = a | g, out[rows, columns] = act(min(a, limit)) * (clamp(g, +-limit) + offset). Backward:
// from grad[rows, columns], out[rows, 2 columns] = dA | dG.
struct GatedParams {
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  const void* grad = nullptr;
  Wide gradType = Wide::kF32;
  void* out = nullptr;
  Wide outType = Wide::kF32;
  Activation kind = Activation::kGelu;
  // The factor of a in the logistic function of silu and qgelu.
  float alpha = 1;
  // The defaults clamp nothing and leave every gate unchanged.
  float limit = INFINITY;
  float offset = -0.0f;
  int64_t rows = 0;
  int64_t columns = 0;
};

cudaError_t launchGated(const GatedParams& p, cudaStream_t stream);
cudaError_t launchGatedBackward(const GatedParams& p, cudaStream_t stream);

}  // namespace lockstep
