// The rows of a sequence in the tensors, and the keys that a query sees (docs/numerics.md §10.1).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/calls.gen.h"

namespace lockstep {

// Sequence `batch`: its queries begin at row `firstQuery` of the layout, its keys at row `firstKey`.
struct Sequence {
  int32_t batch;
  int32_t firstQuery;
  int32_t queries;
  int32_t firstKey;
  int32_t keys;
};

// Sets the first row and the number of rows of sequence b. Values outside the tensor are clamped to it.
__device__ inline void setRows(const int32_t* lengths, const int32_t* starts, bool isCumulative, int32_t b,
                               int32_t rows, int32_t& first, int32_t& count) {
  first = 0;
  count = rows;
  if (lengths == nullptr) return;
  count = lengths[b];
  if (isCumulative) {
    first = starts != nullptr ? starts[b] : count;
    count = static_cast<int32_t>(static_cast<uint32_t>(lengths[b + 1]) - static_cast<uint32_t>(count));
  }
  first = min(max(first, 0), rows);
  count = min(max(count, 0), rows - first);
}

__device__ inline Sequence sequenceOf(const AttentionRule& p, int32_t b) {
  Sequence s;
  s.batch = b;
  setRows(p.queryLengths, p.queryStarts, p.cumulative, b, p.queries, s.firstQuery, s.queries);
  setRows(p.keyLengths, p.keyStarts, p.cumulative, b, p.keys, s.firstKey, s.keys);
  return s;
}

// The head of keys and values for query head `head`.
__device__ inline int32_t keyHeadOf(const AttentionRule& p, int32_t head) {
  return static_cast<int32_t>(static_cast<int64_t>(head) * p.keyHeads / p.heads);
}

// The position of query i among the keys.
__device__ inline int32_t positionOf(const AttentionRule& p, const Sequence& s, int32_t i) {
  return p.alignsEnd ? i + s.keys - s.queries : i;
}

// The first key in the window of a query at t.
__device__ inline int32_t firstKeyOf(const AttentionRule& p, int32_t t) {
  return p.left < 0 ? 0 : static_cast<int32_t>(max(int64_t{0}, static_cast<int64_t>(t) - p.left));
}

// One more than the last key in the window of a query at t.
__device__ inline int32_t endKeyOf(const AttentionRule& p, const Sequence& s, int32_t t) {
  if (p.right < 0) return s.keys;
  const int64_t end = max(int64_t{0}, static_cast<int64_t>(t) + p.right + 1);
  return static_cast<int32_t>(min(static_cast<int64_t>(s.keys), end));
}

// The row index of query i in q, out and their gradients.
__device__ inline int64_t queryRowOf(const AttentionRule& p, const Sequence& s, int32_t i) {
  return s.batch * p.queryBatch + (static_cast<int64_t>(s.firstQuery) + i) * p.queryStep;
}

// The row index of key j in k, v and their gradients. A page outside the pool is replaced by the nearest one.
__device__ inline int64_t keyRowOf(const AttentionRule& p, const Sequence& s, int32_t j) {
  const int32_t row = s.firstKey + j;
  if (p.pages == nullptr) return s.batch * p.keyBatch + row * p.keyStep;
  const int32_t page = p.pages[static_cast<int64_t>(s.batch) * p.pagesOfSequence + row / p.pageLength];
  return static_cast<int64_t>(min(max(page, 0), p.pageCount - 1)) * p.pageLength + row % p.pageLength;
}

// The index of query i of a head in lse and the other statistics of rows.
__device__ inline int64_t statisticOf(const AttentionRule& p, const Sequence& s, int32_t head, int32_t i) {
  const int64_t b = p.statisticBatches > 1 ? s.batch : 0;
  return (b * p.heads + head) * p.queries + s.firstQuery + i;
}

// The index of the pair (query i, key 0) in a tensor [batches, heads, queries, keys] whose first dimensions may be 1.
__device__ inline int64_t pairIndexOf(const AttentionRule& p, int32_t batches, int32_t heads, int32_t b, int32_t head,
                                      int32_t i) {
  const int64_t plane = static_cast<int64_t>(batches > 1 ? b : 0) * heads + (heads > 1 ? head : 0);
  return (plane * p.queries + i) * p.keys;
}

// The keys that a query of a head sees: keys [begin, end), without the keys that the mask hides. `mask` is the query's row of the
// mask, or null.
struct VisibleKeys {
  int32_t begin;
  int32_t end;
  const uint8_t* mask;

  __device__ bool operator()(int32_t j) const { return j >= begin && j < end && (mask == nullptr || mask[j] == 0); }
};

__device__ inline VisibleKeys visibleKeysOf(const AttentionRule& p, const Sequence& s, int32_t head, int32_t i) {
  const int32_t t = positionOf(p, s, i);
  const uint8_t* mask = p.mask;
  if (mask != nullptr) mask += pairIndexOf(p, p.maskBatches, p.maskHeads, s.batch, head, i);
  return {firstKeyOf(p, t), endKeyOf(p, s, t), mask};
}

}  // namespace lockstep
