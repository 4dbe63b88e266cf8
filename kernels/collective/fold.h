// Combines arrays of several ranks, called parts, element by element in ascending order of ranks (docs/distributed.md).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// The parts of `ranks` ranks have `count` elements each. Part i starts i * stride elements after `parts`. If `own` is
// not null, it is part `ownAt`, and `parts` holds only the others, one after the other. `out` may alias `own`. All sums
// except the last are rounded to `sumType`, which is f32 or `type`. If `maximum`, computes maxima instead of sums.
// If `factor` is not 1, a sum is rounded to `type`, multiplied by it and rounded again.
struct FoldParams {
  const void* parts = nullptr;
  int64_t stride = 0;
  const void* own = nullptr;
  int64_t ownAt = 0;
  int64_t ranks = 0;
  Wide type = Wide::kF32;
  Wide sumType = Wide::kF32;
  bool maximum = false;
  float factor = 1;
  void* out = nullptr;
  int64_t count = 0;
};

cudaError_t launchFold(const FoldParams& p, cudaStream_t stream);

}  // namespace lockstep
