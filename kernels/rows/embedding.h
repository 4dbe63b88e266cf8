// Embedding lookup, and the gradient of the table (docs/numerics.md 7.8).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// The table may be a part of a whole one: an id of another part gives a row of -0.
struct EmbeddingParams {
  // [vocabulary, columns]: the rows of the ids from `first` on
  const void* table = nullptr;
  Wide tableType = Wide::kF32;
  // [count].
  const int32_t* ids = nullptr;
  // [count, columns]
  void* out = nullptr;
  Wide outType = Wide::kF32;
  int64_t count = 0;
  int64_t vocabulary = 0;
  int64_t first = 0;
  // The number of all ids.
  int64_t whole = 0;
  int64_t columns = 0;
};

// `count` must be below 2^32.
struct EmbeddingBackwardParams {
  // [count, columns]
  const void* grad = nullptr;
  Wide gradType = Wide::kF32;
  const int32_t* ids = nullptr;
  // [vocabulary, columns]: the rows of the ids from `first` on
  void* out = nullptr;
  Wide outType = Wide::kF32;
  // Workspaces. `positions` receives the positions whose id has a row, sorted by id. `starts` receives vocabulary + 1
  // offsets: the positions of row v are positions[starts[v]] to positions[starts[v + 1] - 1].
  uint32_t* positions = nullptr;
  uint32_t* starts = nullptr;
  int64_t count = 0;
  int64_t vocabulary = 0;
  int32_t first = 0;
  int64_t columns = 0;
};

cudaError_t launchEmbedding(const EmbeddingParams& p, cudaStream_t stream);
cudaError_t launchEmbeddingBackward(const EmbeddingBackwardParams& p, cudaStream_t stream);

}  // namespace lockstep
