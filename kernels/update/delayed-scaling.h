// Updates the amax histories and scales of delayed scaling (docs/numerics.md 2.2).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

struct UpdateScalesParams {
  // [length, count]: one column per tensor. `length` is at least 1.
  float* amaxHistory = nullptr;
  // One scale per tensor.
  float* scale = nullptr;
  int64_t length = 0;
  int64_t count = 0;
  // The value to which a scale maps its amax.
  float scaledMax = 0;
  // Whether to use the most recent amax; otherwise the largest one of the history.
  bool mostRecent = false;
};

cudaError_t launchUpdateScales(const UpdateScalesParams& p, cudaStream_t stream);

}  // namespace lockstep
