// Gated activations and their gradients (docs/numerics.md 7.2).
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// x[rows, 2 columns] = a | g and out[rows, columns] = act(min(a, limit)) * (clamp(g, +-limit) + offset); backward, from
// grad[rows, columns], out[rows, 2 columns] = dA | dG.
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
  // Without a clamp infinity, and the offset that leaves every gate as it is.
  float limit = INFINITY;
  float offset = -0.0f;
  int64_t rows = 0;
  int64_t columns = 0;
};

cudaError_t launchGated(const GatedParams& p, cudaStream_t stream);
cudaError_t launchGatedBackward(const GatedParams& p, cudaStream_t stream);

}  // namespace lockstep
