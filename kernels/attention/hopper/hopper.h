// Attention on Hopper's tensor cores. In a block whose keys are hidden from some queries, the tensor cores multiply the value of
// a hidden key by 0, which gives NaN if the value is not finite. Such tiles of 64 rows are left to the plain kernels: the
// launchers add them to a list (plain.h), whose first number must be 0 at the start.
#pragma once

#include "kernels/attention/calls.gen.h"
#include "kernels/attention/plain.h"

namespace lockstep {

// Whether the current GPU has Hopper's tensor cores, and a kernel supports the sizes and options.
bool isForHopper(const AttentionRule& rule);

// Computes out, lse and the largest logits. The list of tiles is the workspace.
cudaError_t launchHopperForward(const AttentionParams& p, cudaStream_t stream);

// Computes dq, dk and dv from the sums that sumDeltas (plain.h) writes.
cudaError_t launchHopperBackward(const AttentionBackwardParams& p, const TileLists& lists, cudaStream_t stream);

}  // namespace lockstep
