// Accumulators of wgmma whose rows are keys and whose columns are queries, in the backward pass of attention.
#pragma once

#include "kernels/attention/hopper/rows.cuh"

namespace lockstep {

// The statistics of the queries of a step, in shared memory.
template <int count>
struct QueryStatistics {
  // -lse * log2(e), and minus the sum of gradient times result
  float minusLse[count];
  float minusDelta[count];
  // not 0 if a query sees no key
  uint32_t anyBlind;
  // flags of the step's term (roleOf in query-sums.cuh)
  uint32_t role;
  uint32_t padding[2];

  // Writes the statistics of queries [first, first + count). Statistics after the last query are 0. All lanes of a warp call it.
  __device__ void fill(const AttentionBackwardParams& p, const Sequence& sequence, int head, int first, int lane) {
    bool isBlind = false;
    for (int n = lane; n < count; n += 32) {
      const int i = first + n;
      float lse = 0;
      float delta = 0;
      if (i < sequence.queries) {
        const int64_t statistic = statisticOf(p.rule, sequence, head, i);
        lse = p.lse[statistic];
        delta = reinterpret_cast<const float*>(p.workspace)[statistic];
      }
      isBlind |= lse == -__builtin_huge_valf();
      minusLse[n] = -(lse * kLog2EFloat);
      minusDelta[n] = -delta;
    }
    const bool hasBlind = __any_sync(kFullMask, isBlind);
    if (lane == 0) anyBlind = hasBlind;
  }
};

// Replaces the products of keys and queries by probabilities, and the products of values and gradients by the gradients of the
// products of keys and queries. The thread has keys `key` and key + 8. In group i of 8 queries it has queries query + 8 * i and
// the next one, whose statistics are at column + 8 * i and the next index.
template <bool isDetailed, int count>
__device__ inline void differentiateColumns(const AttentionBackwardParams& p, const Sequence& sequence, int head,
                                            int query, int key, const QueryStatistics<count>& statistics, int column,
                                            float factor, float (&scores)[count / 2], float (&grads)[count / 2]) {
  const AttentionRule& rule = p.rule;
#pragma unroll
  for (int i = 0; i < count / 8; ++i) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int index = query + 8 * i + c;
      const int clamped = min(index, sequence.queries - 1);
      const float minusLse = statistics.minusLse[8 * i + column + c];
      const bool hasKeys = index < sequence.queries && minusLse != __builtin_huge_valf();
      const int t = positionOf(rule, sequence, clamped);
      VisibleKeys visible{firstKeyOf(rule, t), endKeyOf(rule, sequence, t), nullptr};
      ScoreRow row;
      Dropout dropout;
      if constexpr (isDetailed) {
        visible = visibleKeysOf(rule, sequence, head, clamped);
        row = scoreRowOf(rule, sequence, head, clamped);
        if (rule.threshold != 0) dropout = dropoutOf(rule, p.random, sequence, head, clamped);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float& score = scores[4 * i + 2 * h + c];
        float& grad = grads[4 * i + 2 * h + c];
        const int j = key + 8 * h;
        const bool isShown = hasKeys && visible(j);
        PairGrad pair{score, grad, minusLse, statistics.minusDelta[8 * i + column + c]};
        if (isDetailed && isShown) {
          pair.score = scoreOf(rule, row, j, score, pair.bounded);
          pair.isDropped = rule.threshold != 0 && dropout.drops(j);
        }
        pair.template differentiate<isDetailed>(rule, factor);
        score = isShown ? pair.probability : 0.0f;
        grad = isShown ? pair.gradient : 0.0f;
      }
    }
  }
}

// Writes the sums of keys `key` and key + 8, each times `factor`. Only `count` keys exist from `key` on.
template <Wide type, int width>
__device__ inline void storeKeys(const AttentionRule& rule, const Sequence& sequence, int keyHead, int key, int count,
                                 int column, const float (&sums)[width / 2], float factor, void* to) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (8 * h >= count) continue;
    const int64_t line = keyRowOf(rule, sequence, key + 8 * h) * rule.keyHeads + keyHead;
    auto* row = static_cast<uint16_t*>(to) + line * width + column;
#pragma unroll
    for (int g = 0; g < width / 8; ++g) {
      *reinterpret_cast<uint32_t*>(row + 8 * g) =
          packPair<type>(sums[4 * g + 2 * h] * factor, sums[4 * g + 2 * h + 1] * factor);
    }
  }
}

}  // namespace lockstep
