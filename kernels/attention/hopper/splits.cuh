// Splits of the keys on Hopper's tensor cores (docs/numerics.md §10.3).
#pragma once

#include "kernels/attention/hopper/rows.cuh"
#include "kernels/attention/plain.h"

namespace lockstep {

// The merged splits of a thread's two rows. Between merges, the outputs of rows are in the workspace.
template <typename Shape>
struct SplitTotals {
  static constexpr float kInfinity = __builtin_huge_valf();

  float* records;
  float* outputs[2];
  // the indices of the rows in lse; -1 for a row after the last query
  int64_t rows[2];
  int column;
  float scaled[2] = {-kInfinity, -kInfinity};
  float total[2] = {};
  float largest[2] = {-kInfinity, -kInfinity};
  bool isMerged[2] = {};

  __device__ SplitTotals(const AttentionParams& p, const Sequence& sequence, const RowPosition (&positions)[2],
                         int column)
      : records(partialsOf(p)), column(column) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool exists = positions[h].query < sequence.queries;
      rows[h] = exists ? statisticOf(p.rule, sequence, positions[h].head, positions[h].query) : -1;
      outputs[h] = records + rows[h] * Shape::kValueWidth + column;
    }
  }

  // Whether one of the four threads of row h has seen a visible key. Each thread has a quarter of the keys.
  __device__ bool hasSeenKey(int h, uint32_t seen) const {
    uint32_t seenByRow = seen | __shfl_xor_sync(kFullMask, seen, 1);
    seenByRow |= __shfl_xor_sync(kFullMask, seenByRow, 2);
    return seenByRow != 0 && rows[h] >= 0;
  }

  // Merges a split, and begins the next one.
  __device__ void merge(uint32_t (&seen)[2], RowPair& state, float (&out)[Shape::kValueWidth / 2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = state.total(h);
      if (!hasSeenKey(h, seen[h])) continue;
      largest[h] = fmaxf(largest[h], state.maximum[h]);
      const float larger = state.scaled[h] > scaled[h] ? state.scaled[h] : scaled[h];
      const float f = ex2(scaled[h] - baseOf(larger));
      const float g = ex2(state.scaled[h] - baseOf(larger));
      scaled[h] = larger;
      total[h] = total[h] * f + sum * g;
#pragma unroll
      for (int i = 0; i < Shape::kValueWidth / 8; ++i) {
        auto* sums = reinterpret_cast<float2*>(outputs[h] + 8 * i);
        const float2 earlier = isMerged[h] ? *sums : float2{0, 0};
        *sums = {earlier.x * f + out[4 * i + 2 * h] * g, earlier.y * f + out[4 * i + 2 * h + 1] * g};
      }
      isMerged[h] = true;
    }
    state.open();
    seen[0] = seen[1] = 0;
#pragma unroll
    for (int i = 0; i < Shape::kValueWidth / 2; ++i) out[i] = 0;
  }

  // Sets `out` to the totals. `out` must be 0 before.
  __device__ void restore(float (&out)[Shape::kValueWidth / 2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!isMerged[h]) continue;
#pragma unroll
      for (int i = 0; i < Shape::kValueWidth / 8; ++i) {
        const float2 value = *reinterpret_cast<const float2*>(outputs[h] + 8 * i);
        out[4 * i + 2 * h] = value.x;
        out[4 * i + 2 * h + 1] = value.y;
      }
    }
  }

  // Stores a split of each row for mergeSplits.
  __device__ void store(int split, int splits, const uint32_t (&seen)[2], const RowPair& state,
                        const float (&out)[Shape::kValueWidth / 2]) const {
    constexpr int64_t kRecord = Shape::kValueWidth + kSplitNumbers;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = state.total(h);
      const bool hasKeys = hasSeenKey(h, seen[h]);
      if (rows[h] < 0) continue;
      float* const record = records + (rows[h] * splits + split) * kRecord;
#pragma unroll
      for (int i = 0; i < Shape::kValueWidth / 8; ++i) {
        *reinterpret_cast<float2*>(record + column + 8 * i) = {out[4 * i + 2 * h], out[4 * i + 2 * h + 1]};
      }
      if (column != 0) continue;
      float* const numbers = record + Shape::kValueWidth;
      numbers[0] = state.scaled[h];
      numbers[1] = sum;
      numbers[2] = state.maximum[h];
      numbers[3] = hasKeys ? 1.0f : 0.0f;
    }
  }
};

}  // namespace lockstep
