// The sum of two tensors, element by element (docs/numerics.md 7.10).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// All tensors have `count` elements; `out` may alias x or y.
struct AddParams {
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  const void* y = nullptr;
  Wide yType = Wide::kF32;
  void* out = nullptr;
  Wide outType = Wide::kF32;
  int64_t count = 0;
};

cudaError_t launchAdd(const AddParams& p, cudaStream_t stream);

}  // namespace lockstep
