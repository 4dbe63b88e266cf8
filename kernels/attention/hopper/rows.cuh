// A thread's two rows of a wgmma accumulator: the keys that they see, the options that change their scores, and their results. In
// each group of 8 keys the thread has keys `column` and column + 1.
#pragma once

#include "kernels/attention/hopper/softmax.cuh"
#include "kernels/attention/hopper/tile.cuh"
#include "kernels/attention/plain.h"
#include "kernels/attention/scores.cuh"
#include "kernels/attention/sequence.cuh"
#include "kernels/core/math.cuh"

namespace lockstep {

// The source of a block's keys for the copy engine: rows of the sequence, or pages.
template <int count>
struct KeyRows {
  const AttentionRule& rule;
  const Sequence& sequence;
  int first;

  __device__ KeyRows(const AttentionRule& p, const Sequence& s, int key) : rule(p), sequence(s), first(key) {}

  // Copies `chunks` chunks of the block's tile. All lanes of a warp call it.
  template <int chunks>
  __device__ void copy(const CUtensorMap* map, uint64_t* barrier, uint32_t to, int keyHead, int lane) const {
    const int step = rule.pages == nullptr ? count : min(count, rule.pageLength);
    for (int n = lane; n < count / step * chunks; n += kLanes) {
      const int c = n % chunks;
      const int row = n / chunks * step;
      const uint32_t target = to + c * count * kChunkPitch + row * kChunkPitch;
      if (rule.pages == nullptr) {
        const int item = rule.cumulative ? 0 : sequence.batch;
        copyBox(map, barrier, target, c * kChunkColumns, keyHead, sequence.firstKey + first, item);
        continue;
      }
      // a page number after the sequence's last page is replaced by the last one; its keys are hidden
      const int number = min((first + row) / rule.pageLength, rule.pagesOfSequence - 1);
      const int page = rule.pages[static_cast<int64_t>(sequence.batch) * rule.pagesOfSequence + number];
      copyBox(map, barrier, target, c * kChunkColumns, keyHead, (first + row) % rule.pageLength,
              min(max(page, 0), rule.pageCount - 1));
    }
  }
};

// A pair of a query and a key in the backward pass.
struct PairGrad {
  // the score z, and the product of gradient and value
  float score;
  float product;
  float minusLse;
  float minusDelta;
  float bounded = 0;
  bool isDropped = false;
  // the results: the gradient of the product of query and key, and the probability (0 if the key is dropped)
  float gradient = 0;
  float probability = 0;

  template <bool isDetailed>
  __device__ void differentiate(const AttentionRule& rule, float factor) {
    probability = ex2(__fmaf_rn(score, factor, minusLse));
    if constexpr (isDetailed) {
      gradient = probability * (isDropped ? minusDelta : __fmaf_rn(product, rule.keep, minusDelta));
      if (rule.softcap != 0) gradient *= __fmaf_rn(-bounded, bounded, 1.0f);
      if (isDropped) probability = 0;
    } else {
      gradient = probability * (product + minusDelta);
    }
  }
};

// Whether an option changes single scores, masks or probabilities, in addition to the window of visible keys.
__host__ __device__ inline bool hasElementOptions(const AttentionRule& rule) {
  return rule.mask != nullptr || rule.bias != nullptr || rule.slopes != nullptr || rule.softcap != 0 ||
         rule.threshold != 0;
}

// The query and the head of a row of a tile.
struct RowPosition {
  int query;
  int head;
};

// The rows of a block's tile. With `packs`, the tile has all queries of all heads: row r is query r / heads of head r % heads.
// Otherwise it has `rows` queries of one head.
template <bool packs, int rows>
struct TileRows {
  int batch;
  int firstQuery;
  // the first of `heads` heads
  int head;
  int heads;
  int queries;
  // With `packs`, each block of threads computes one split of the keys.
  int split = 0;
  int splits = 1;

  __device__ TileRows(const AttentionRule& rule, int block) : queries(rule.queries) {
    if constexpr (packs) {
      heads = rule.heads / rule.keyHeads;
      splits = splitsOf(rule);
      split = block % splits;
      block /= splits;
      batch = block / rule.keyHeads;
      head = block % rule.keyHeads * heads;
      firstQuery = 0;
    } else {
      const int tiles = (rule.queries + rows - 1) / rows;
      heads = 1;
      batch = block / tiles / rule.heads;
      head = block / tiles % rule.heads;
      // under a causal mask, tiles of later queries see more keys, so they start first
      firstQuery = (tiles - 1 - block % tiles) * rows;
    }
  }

  __device__ int queriesOfTile() const { return packs ? queries : rows; }
  // The number of rows that the copy engine writes.
  __device__ int boxRows() const { return packs ? queries * heads : rows; }
  __device__ RowPosition rowAt(int row) const {
    if constexpr (packs) return {row / heads, head + row % heads};
    return {firstQuery + row, head};
  }
};

// The queries of two rows of a tile. With `isDetailed`, there may be a mask, a bias, a softcap, slopes or dropout.
template <bool isDetailed>
struct QueryPair {
  const AttentionRule& rule;
  VisibleKeys keys[2];
  ScoreRow rows[2];
  Dropout dropout[2];

  __device__ QueryPair(const AttentionRule& p, const RandomSource& random, const Sequence& sequence,
                       const RowPosition (&positions)[2])
      : rule(p) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // a row after the last query computes a result that is not stored, from the mask and bias of the last query
      const int i = min(positions[h].query, max(sequence.queries - 1, 0));
      const int head = positions[h].head;
      if constexpr (isDetailed) {
        keys[h] = visibleKeysOf(p, sequence, head, i);
        rows[h] = scoreRowOf(p, sequence, head, i);
        dropout[h] = dropoutOf(p, random, sequence, head, i);
      } else {
        const int t = positionOf(p, sequence, i);
        keys[h] = {firstKeyOf(p, t), endKeyOf(p, sequence, t), nullptr};
      }
    }
  }

  // Writes which keys of a block are visible: bit 2 * i + c for key column + 8 * i + c.
  template <int count>
  __device__ void show(int column, uint32_t (&shown)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t bits = 0;
#pragma unroll
      for (int i = 0; i < count / 8; ++i) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int key = column + 8 * i + c;
          const bool isShown = isDetailed ? keys[h](key) : key >= keys[h].begin && key < keys[h].end;
          bits |= static_cast<uint32_t>(isShown) << (2 * i + c);
        }
      }
      shown[h] = bits;
    }
  }

  // Replaces the products of visible keys by scores.
  template <int count>
  __device__ void changeScores(float (&scores)[count / 2], int column, const uint32_t (&shown)[2]) const {
    if (!lockstep::changesScores(rule)) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < count / 8; ++i) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[4 * i + 2 * h + c];
          float bounded;
          if (shown[h] >> (2 * i + c) & 1) score = scoreOf(rule, rows[h], column + 8 * i + c, score, bounded);
        }
      }
    }
  }

  // Replaces the products of queries and keys by their gradients (docs/numerics.md §10.6). `grads` has the products of gradients
  // and values.
  template <int count>
  __device__ void differentiate(float (&scores)[count / 2], const float (&grads)[count / 2], int column,
                                const uint32_t (&shown)[2], float factor, const float (&minusLse)[2],
                                const float (&minusDelta)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint4 draw;
#pragma unroll
      for (int i = 0; i < count / 8; ++i) {
        if (isDetailed && rule.threshold != 0 && i % 4 == 0) draw = dropout[h].draw(column + 8 * i);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[4 * i + 2 * h + c];
          const int key = column + 8 * i + c;
          const bool isShown = shown[h] >> (2 * i + c) & 1;
          PairGrad pair{score, grads[4 * i + 2 * h + c], minusLse[h], minusDelta[h]};
          if (isDetailed && isShown) {
            pair.score = scoreOf(rule, rows[h], key, score, pair.bounded);
            pair.isDropped = rule.threshold != 0 && dropout[h].drops(draw, key);
          }
          pair.template differentiate<isDetailed>(rule, factor);
          score = isShown ? pair.gradient : 0.0f;
        }
      }
    }
  }

  // Replaces the probabilities of dropped keys by 0.
  template <int count>
  __device__ void drop(float (&powers)[count / 2], int column) const {
    if (rule.threshold == 0) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint4 draw;
#pragma unroll
      for (int i = 0; i < count / 8; ++i) {
        // four groups of keys share a draw
        if (i % 4 == 0) draw = dropout[h].draw(column + 8 * i);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (dropout[h].drops(draw, column + 8 * i + c)) powers[4 * i + 2 * h + c] = 0;
        }
      }
    }
  }
};

// Writes the results of a thread's two rows (docs/numerics.md §10.4). `out` has their outputs before the division.
template <typename Shape>
__device__ inline void finishRows(const AttentionParams& p, const Sequence& sequence, const RowPosition (&positions)[2],
                                  int column, const float (&maximum)[2], const float (&largest)[2],
                                  const float (&sums)[2], float (&out)[Shape::kValueWidth / 2]) {
  constexpr float kInfinity = __builtin_huge_valf();
  constexpr auto kLn2Float = static_cast<float>(kLn2);
  const AttentionRule& rule = p.rule;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const auto [i, head] = positions[h];
    const bool exists = i < sequence.queries;
    float total = sums[h];
    float scaled = largest[h];
    float decay = 1;
    if (rule.sinks != nullptr) {
      const float sink = rule.sinks[head] * kLog2EFloat;
      const float larger = sink > scaled ? sink : scaled;
      decay = ex2(scaled - baseOf(larger));
      total = total * decay + ex2(sink - baseOf(larger));
      scaled = larger;
    }
    const bool isEmpty = total == 0 || !exists;
    const float factor = rule.keep / total;
    // rows between the sequences of a layout without padding belong to no sequence
    if (exists || (i < rule.queries && !rule.cumulative)) {
      const int64_t row = queryRowOf(rule, sequence, i) * rule.heads + head;
      auto* to = static_cast<uint16_t*>(p.out) + row * Shape::kValueWidth + column;
#pragma unroll
      for (int g = 0; g < Shape::kValueWidth / 8; ++g) {
        float values[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float value = out[4 * g + 2 * h + c];
          if (rule.sinks != nullptr) value = value * decay + 0.0f;
          values[c] = isEmpty ? 0.0f : value * factor;
        }
        *reinterpret_cast<uint32_t*>(to + 8 * g) = packPair<Shape::kType>(values[0], values[1]);
      }
      if (column == 0) {
        p.lse[statisticOf(rule, sequence, head, i)] =
            isEmpty ? -kInfinity : __fmaf_rn(scaled, kLn2Float, logarithm(total));
      }
    }
    if (p.maxLogits == nullptr) continue;
    float logit = exists ? maximum[h] * logitFactor(rule) + 0.0f : -kInfinity;
    if constexpr (!Shape::kPacks) {
      // all rows of the warp belong to one head
#pragma unroll
      for (int w = 16; w > 0; w /= 2) logit = fmaxf(logit, __shfl_xor_sync(kFullMask, logit, w));
      if (threadIdx.x % 32 == 0) raiseTo(p.maxLogits + head, logit);
    } else if (exists && column == 0) {
      raiseTo(p.maxLogits + head, logit);
    }
  }
}

}  // namespace lockstep
