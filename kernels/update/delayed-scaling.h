// The update of delayed scaling's histories and scales (docs/numerics.md 2.2).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

struct UpdateScalesParams {
  // [length, count], length at least 1
  float* amaxHistory = nullptr;
  // [count]
  float* scale = nullptr;
  int64_t length = 0;
  int64_t count = 0;
  // What the amax shall become.
  float scaledMax = 0;
  // The amax is the one just recorded; otherwise the largest of the history.
  bool mostRecent = false;
};

cudaError_t launchUpdateScales(const UpdateScalesParams& p, cudaStream_t stream);

}  // namespace lockstep
