#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// out[0] = max |x|, NaN ignored; 0 for an empty tensor.
struct AmaxParams {
  const void* x;
  Wide xType;
  float* out;
  int64_t count;
};

cudaError_t launchAmax(const AmaxParams& params, cudaStream_t stream);

}  // namespace lockstep
