// The forward pass of an attention on Hopper's tensor cores.
#pragma once

#include "kernels/attention/calls.gen.h"

namespace lockstep {

// Whether the current GPU has the tensor cores, and kernels exist for the sizes and options.
bool hopperAttends(const AttentionRule& rule);

// Computes the results of all tiles of 64 queries. Sets flag (b * heads + head) * ceil(queries / 64) + tile in the workspace to 1
// for a tile whose result is wrong, because a value that is not finite is hidden from some of its queries, and to 0 for the others.
cudaError_t launchHopperForward(const AttentionParams& p, cudaStream_t stream);

}  // namespace lockstep
