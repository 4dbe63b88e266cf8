// What the parts of several ranks combine to, element by element, in the order in which they lie (docs/distributed.md).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// `ranks` parts of `count` elements. They lie `stride` elements apart from `parts` on; where `own` is set, the part at `ownAt`
// lies there, and the others without a gap. `out` may be `own`. Sums but the last are rounded to `sumType`: f32, or the
// type itself.
struct FoldParams {
  const void* parts = nullptr;
  int64_t stride = 0;
  const void* own = nullptr;
  int64_t ownAt = 0;
  int64_t ranks = 0;
  Wide type = Wide::kF32;
  Wide sumType = Wide::kF32;
  bool maximum = false;
  void* out = nullptr;
  int64_t count = 0;
};

cudaError_t launchFold(const FoldParams& p, cudaStream_t stream);

}  // namespace lockstep
