// The plain kernels of attention. They compute every option on every GPU. They also compute the tiles that the kernels of tensor
// cores cannot compute exactly.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/calls.gen.h"

namespace lockstep {

// The rows of a tile that the kernels of tensor cores may leave to the plain ones.
constexpr int kTileRows = 64;

// `list`, if not null, says which tiles of 64 queries or keys of a sequence and head are computed: the number of tiles, then
// (b * heads + head) * ceil(rows / 64) + tile for each.

// Sets lse and the largest logits to minus infinity. The forward pass begins with it.
cudaError_t fillStatistics(const AttentionParams& p, cudaStream_t stream);

// Computes out, lse and the largest logits.
cudaError_t attendPlain(const AttentionParams& p, const int32_t* list, cudaStream_t stream);

// Writes the sum of gradient times result of each row to the workspace. The backward pass begins with it.
cudaError_t sumDeltas(const AttentionBackwardParams& p, cudaStream_t stream);

// Computes dq from the sums that sumDeltas writes.
cudaError_t differentiateQueries(const AttentionBackwardParams& p, const int32_t* list, cudaStream_t stream);

// Computes dk and dv from the same sums. A tile has 64 keys, and a list counts heads of keys.
cudaError_t differentiateKeys(const AttentionBackwardParams& p, const int32_t* list, cudaStream_t stream);

// Computes the gradients of the bias and of the sinks, if they are not null.
cudaError_t differentiateBias(const AttentionBackwardParams& p, cudaStream_t stream);
cudaError_t differentiateSinks(const AttentionBackwardParams& p, cudaStream_t stream);

}  // namespace lockstep
