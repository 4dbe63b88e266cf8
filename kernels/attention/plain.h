// The plain kernels of attention. They support every option on every GPU, and they compute the tiles that the tensor-core
// kernels cannot compute exactly.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/calls.gen.h"

namespace lockstep {

// The rows of a tile that a tensor-core kernel may leave to the plain kernels.
constexpr int kTileRows = 64;

// `list`, if not null, selects the tiles of 64 queries or keys of a sequence and head to compute: the number of tiles, then (b *
// heads + head) * ceil(rows / 64) + tile for each.

// Sets lse and the largest logits to minus infinity. The forward pass begins with this launch.
cudaError_t fillStatistics(const AttentionParams& p, cudaStream_t stream);

// Computes out, lse and the largest logits.
cudaError_t attendPlain(const AttentionParams& p, const int32_t* list, cudaStream_t stream);

// A split record of a row has the outputs, then kSplitNumbers numbers: the scaled maximum, the sum, the maximum, and 1 if the
// split has a visible key.
constexpr int kSplitNumbers = 4;

// The number of splits of the keys; 1 without splits.
__host__ __device__ inline int splitsOf(const AttentionRule& rule) {
  return rule.splitKeys == 0 ? 1 : (rule.keys + rule.splitKeys - 1) / rule.splitKeys;
}

// The start of the outputs or split records in the workspace: after the list of tiles. The list has room for every tile of every
// split.
__host__ __device__ inline float* partialsOf(const AttentionParams& p) {
  const int64_t tiles =
      static_cast<int64_t>(p.rule.batch) * p.rule.heads * ((p.rule.queries + kTileRows - 1) / kTileRows);
  const int64_t list = 1 + tiles * splitsOf(p.rule);
  return reinterpret_cast<float*>(p.workspace + (list + 3) / 4 * 4);
}

// The workspace of the backward pass: the list of query tiles and the list of key tiles, after the sums of gradient times result.
struct TileLists {
  int32_t* queries;
  int32_t* keys;
  int32_t* end;
};

// The number of tiles of all sequences and heads.
template <typename Number>
Number tilesOf(const AttentionRule& rule, int32_t heads, int32_t rows) {
  return static_cast<Number>(rule.batch) * heads * static_cast<Number>((int64_t{rows} + kTileRows - 1) / kTileRows);
}

inline TileLists tileListsOf(const AttentionBackwardParams& p) {
  const AttentionRule& rule = p.rule;
  int32_t* const queries = p.workspace + static_cast<int64_t>(rule.statisticBatches) * rule.heads * rule.queries;
  int32_t* const keys = queries + 1 + tilesOf<int64_t>(rule, rule.heads, rule.queries);
  return {queries, keys, keys + 1 + tilesOf<int64_t>(rule, rule.keyHeads, rule.keys)};
}

// An upper bound on the number of 32-bit words that the backward pass uses in the workspace; in f64, because sizes are arbitrary.
// The sums of gradients of queries and their counts follow the lists (hopper/launch.h).
inline double backwardNumbers(const AttentionBackwardParams& p) {
  const AttentionRule& rule = p.rule;
  const auto queryTiles = tilesOf<double>(rule, rule.heads, rule.queries);
  const double deltas = static_cast<double>(rule.statisticBatches) * rule.heads * rule.queries;
  const double lists = deltas + 1 + queryTiles + 1 + tilesOf<double>(rule, rule.keyHeads, rule.keys);
  return p.sumsQueries ? lists + 1 + queryTiles + 3 + queryTiles * kTileRows * rule.width : lists;
}

// Merges the split records of all rows, and writes out, lse and the largest logits. Record `split` of a row is at (row * splits
// + split) * (valueWidth + kSplitNumbers), where `row` is the index of the row in lse.
cudaError_t mergeSplits(const AttentionParams& p, cudaStream_t stream);

// Writes the sum of gradient times result of each row to the workspace. The backward pass begins with this launch.
cudaError_t sumDeltas(const AttentionBackwardParams& p, cudaStream_t stream);

// Computes dq from the sums that sumDeltas writes.
cudaError_t differentiateQueries(const AttentionBackwardParams& p, const int32_t* list, cudaStream_t stream);

// Computes dk and dv from the same sums. `list` selects tiles of 64 keys, and its heads are key-value heads.
cudaError_t differentiateKeys(const AttentionBackwardParams& p, const int32_t* list, cudaStream_t stream);

// Computes the gradients of the bias and of the sinks, if they are not null.
cudaError_t differentiateBias(const AttentionBackwardParams& p, cudaStream_t stream);
cudaError_t differentiateSinks(const AttentionBackwardParams& p, cudaStream_t stream);

}  // namespace lockstep
