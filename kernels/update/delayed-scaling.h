// Updates the amax histories and scales of delayed scaling (docs/numerics.md 2.2).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

struct UpdateScalesParams {
  // [length, count]; length is at least 1.
  float* amaxHistory = nullptr;
  // [count].
  float* scale = nullptr;
  int64_t length = 0;
  int64_t count = 0;
  // The value that the amax maps to after scaling.
  float scaledMax = 0;
  // Use the most recent amax; otherwise the largest of the history.
  bool mostRecent = false;
};

cudaError_t launchUpdateScales(const UpdateScalesParams& p, cudaStream_t stream);

}  // namespace lockstep
