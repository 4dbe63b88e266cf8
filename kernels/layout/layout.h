// Conversion between layouts of block scales. layout.gen.h has the launchers of transposes and axis swaps.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/layout/placement.h"

namespace lockstep {

// Copies scales of `bytes` bytes (1 or 4) from one layout to another with the same numbers of lines and blocks. Padding
// is set to zero.
struct RelayoutParams {
  ScalePlacement from;
  ScalePlacement to;
  int bytes;
};

cudaError_t launchRelayout(const RelayoutParams& params, cudaStream_t stream);

}  // namespace lockstep
