// A tensor times a scalar, element by element (docs/numerics.md 7.11).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// Both tensors have `count` elements; `out` may alias x.
struct ScaledParams {
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  float factor = 1;
  void* out = nullptr;
  Wide outType = Wide::kF32;
  int64_t count = 0;
};

cudaError_t launchScaled(const ScaledParams& p, cudaStream_t stream);

}  // namespace lockstep
