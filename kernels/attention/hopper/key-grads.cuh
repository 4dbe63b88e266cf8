// The gradients of keys and values on Hopper's tensor cores (docs/numerics.md §10.6). With kAddsQueries, the kernel also adds up
// the gradients of queries. A block of threads has a tile of keys of one sequence and head, and iterates over the queries of all
// heads that use these keys. One producer warp copies queries and gradients, and a second one the statistics of queries. With
// kAddsQueries, a third loads sums of gradients of queries, and a fourth stores them. Each consumer warpgroup computes 64 keys.
// Products are transposed, so that the rows of accumulators are keys.
#pragma once

#include <type_traits>

#include "kernels/attention/hopper/columns.cuh"
#include "kernels/attention/hopper/query-sums.cuh"
#include "kernels/attention/hopper/tile.cuh"
#include "kernels/device/tensor-map.cuh"
#include "kernels/device/wgmma.cuh"

namespace lockstep {

// The sizes of a kernel of gradients of keys. With `adds_`, it computes the gradients of queries too.
template <Wide type_, int width_, int valueWidth_, bool adds_ = false>
struct KeyGradShape {
  static constexpr Wide kType = type_;
  static constexpr int kWidth = width_;
  static constexpr int kValueWidth = valueWidth_;
  // queries of a step
  static constexpr int kQueries = 64;
  static constexpr int kConsumers = 2;
  // The sums of wide heads do not fit in the registers of one warpgroup. With kShares, two consumers share the same rows: the
  // first computes the gradients of values, the second the gradients of keys.
  static constexpr bool kShares = kWidth + kValueWidth > 384;
  static constexpr int kRows = kShares ? 64 : 64 * kConsumers;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kChunks = (kWidth + kChunkColumns - 1) / kChunkColumns;
  static constexpr int kValueChunks = (kValueWidth + kChunkColumns - 1) / kChunkColumns;
  static constexpr bool kAddsQueries = adds_;
  static constexpr int kStages = kChunks + kValueChunks <= 4 && !kAddsQueries ? 3 : 2;
  static constexpr int kRowChunk = kRows * kChunkPitch;
  static constexpr int kQueryChunk = kQueries * kChunkPitch;
  static constexpr int kRowBytes = (kChunks + kValueChunks) * kRowChunk;
  static constexpr int kQueryBytes = kChunks * kQueryChunk;
  static constexpr int kGradBytes = kValueChunks * kQueryChunk;
  static constexpr int kStageBytes = kQueryBytes + kGradBytes;
  // with kAddsQueries, the factors of two steps, and sums of tiles of queries
  static constexpr int kFactorBytes = kRows * kChunkPitch;
  static constexpr int kSumBytes = kQueries * kWidth * static_cast<int>(sizeof(float));
  static constexpr int kTermBytes = kAddsQueries ? 2 * kFactorBytes + kSumStages * kSumBytes : 0;
  static constexpr int kBarriers = 1 + 2 * kStages + (kAddsQueries ? 2 + kSumBarriers : 0);
  static constexpr int kBytes = kSwizzleBytes + kRowBytes + kTermBytes +
                                kStages * (kStageBytes + static_cast<int>(sizeof(QueryStatistics<kQueries>))) +
                                8 * kBarriers;
  static_assert(kBytes <= 227 * 1024);
};

struct KeyGradMaps {
  CUtensorMap keys;
  CUtensorMap values;
  CUtensorMap queries;
  CUtensorMap grads;
};

// The queries that see a key of a tile: positions [begin, end) of the sequence.
struct QueryRange {
  int begin;
  int end;
};

__device__ inline QueryRange queriesOfKeys(const AttentionRule& rule, const Sequence& sequence, int firstKey,
                                           int lastKey) {
  const int64_t shift = positionOf(rule, sequence, 0);
  const int64_t begin = rule.right < 0 ? 0 : int64_t{firstKey} - rule.right - shift;
  const int64_t end = rule.left < 0 ? sequence.queries : int64_t{lastKey} + rule.left - shift + 1;
  return {static_cast<int>(max(begin, int64_t{0})), static_cast<int>(min(end, int64_t{sequence.queries}))};
}

template <typename Shape, bool kDetailed>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    keyGradKernel(const __grid_constant__ AttentionBackwardParams p, int32_t* list, int32_t* queryList,
                  const QuerySums querySums, const __grid_constant__ KeyGradMaps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Wide kType = Shape::kType;
  constexpr int kQueries = Shape::kQueries;
  using Statistics = QueryStatistics<kQueries>;
  extern __shared__ Bytes16 memory[];
  const uint32_t base = (sharedAddress(memory) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  const uint32_t keyTile = base;
  const uint32_t valueTile = keyTile + Shape::kChunks * Shape::kRowChunk;
  const uint32_t stages = keyTile + Shape::kRowBytes;
  const uint32_t factorTiles = stages + Shape::kStages * Shape::kStageBytes;
  uint8_t* const termMemory = reinterpret_cast<uint8_t*>(memory) + (factorTiles - sharedAddress(memory));
  auto* statistics = reinterpret_cast<Statistics*>(termMemory + Shape::kTermBytes);
  auto* const rowsFull = reinterpret_cast<uint64_t*>(statistics + Shape::kStages);
  uint64_t* const full = rowsFull + 1;
  uint64_t* const free = full + Shape::kStages;
  // with kAddsQueries: the factors of a step are complete, in each of their two tiles
  uint64_t* const factorsFull = free + Shape::kStages;
  uint64_t* const sumBarriers = factorsFull + 2;
  const SumStages sumStages{reinterpret_cast<float4*>(termMemory + 2 * Shape::kFactorBytes), sumBarriers,
                            sumBarriers + kSumStages, sumBarriers + 2 * kSumStages};

  if (threadIdx.x == 0) {
    __mbarrier_init(rowsFull, 1);
#pragma unroll
    for (int s = 0; s < Shape::kStages; ++s) {
      // arrivals: one for the copies, and one from each lane that writes statistics
      __mbarrier_init(full + s, 1 + kLanes);
      __mbarrier_init(free + s, Shape::kConsumers);
    }
    if constexpr (Shape::kAddsQueries) {
      // arrivals: one from each warp of the consumers
      __mbarrier_init(factorsFull, Shape::kConsumers * kGroupThreads / kLanes);
      __mbarrier_init(factorsFull + 1, Shape::kConsumers * kGroupThreads / kLanes);
#pragma unroll
      for (int s = 0; s < kSumStages; ++s) {
        __mbarrier_init(sumStages.loaded + s, 1);
        __mbarrier_init(sumStages.added + s, Shape::kConsumers * kGroupThreads / kLanes);
        __mbarrier_init(sumStages.freed + s, 1);
      }
    }
    showInitialized();
  }
  __syncthreads();

  const AttentionRule& rule = p.rule;
  const int tiles = (rule.keys + Shape::kRows - 1) / Shape::kRows;
  KeyTile keys{static_cast<int>(blockIdx.x) / tiles, static_cast<int>(blockIdx.x) % tiles};
  if constexpr (Shape::kAddsQueries) keys = takeKeyTile(querySums, rule.batch * rule.keyHeads, tiles);
  const auto [item, tile] = keys;
  const int batch = item / rule.keyHeads;
  const int keyHead = item % rule.keyHeads;
  const Sequence sequence = sequenceOf(rule, batch);
  const int first = tile * Shape::kRows;
  const int rows = min(Shape::kRows, sequence.keys - first);
  if (rows <= 0) return;
  const int heads = rule.heads / rule.keyHeads;
  const QueryRange range = queriesOfKeys(rule, sequence, first, first + rows - 1);
  const int firstStep = range.begin / kQueries;
  const int lastStep = range.end > range.begin ? (range.end + kQueries - 1) / kQueries : firstStep;

  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    const int warp = static_cast<int>(threadIdx.x) / kLanes;
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int batchOfTensor = rule.cumulative ? 0 : batch;
    if constexpr (Shape::kAddsQueries) {
      if (warp > 1 && lane == 0) {
        SumPosition position;
        uint32_t* uncounted = nullptr;
        for (int head = keyHead * heads; head < (keyHead + 1) * heads; ++head) {
          for (int step = firstStep; step < lastStep; ++step) {
            const QueryTile target = QueryTile::at<Shape>(rule, querySums, sequence, head, step);
            if (warp == 2) {
              loadSum<Shape>(target, tile, sumStages, position);
            } else {
              storeSum<Shape>(target, tile, sumStages, position, uncounted);
            }
          }
        }
        if (warp == 3) {
          awaitStores<0>();
          countTerm(uncounted);
        }
      }
    }
    if (warp > 1 || (warp == 0 && lane != 0)) return;
    if (warp == 0) {
      arriveExpecting(rowsFull, Shape::kRowBytes);
      const int key = sequence.firstKey + first;
      copyTile<Shape::kChunks>(&maps.keys, rowsFull, keyTile, Shape::kRowChunk, keyHead, key, batchOfTensor);
      copyTile<Shape::kValueChunks>(&maps.values, rowsFull, valueTile, Shape::kRowChunk, keyHead, key, batchOfTensor);
    }
    StagePosition<Shape::kStages> position;
    for (int head = keyHead * heads; head < (keyHead + 1) * heads; ++head) {
      for (int step = firstStep; step < lastStep; ++step) {
        awaitPhase(free + position.stage, position.parity ^ 1);
        if (warp == 0) {
          const uint32_t queryTile = stages + position.stage * Shape::kStageBytes;
          const int row = sequence.firstQuery + step * kQueries;
          arriveExpecting(full + position.stage, Shape::kStageBytes);
          copyTile<Shape::kChunks>(&maps.queries, full + position.stage, queryTile, Shape::kQueryChunk, head, row,
                                   batchOfTensor);
          copyTile<Shape::kValueChunks>(&maps.grads, full + position.stage, queryTile + Shape::kQueryBytes,
                                        Shape::kQueryChunk, head, row, batchOfTensor);
        } else {
          statistics[position.stage].fill(p, sequence, head, step * kQueries, lane);
          if constexpr (Shape::kAddsQueries) {
            if (lane == 0) {
              statistics[position.stage].role =
                  QueryTile::at<Shape>(rule, querySums, sequence, head, step).roleOf(tile);
            }
          }
          __mbarrier_arrive(full + position.stage);
        }
        position.next();
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int consumer = group - 1;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int column = thread % 4 * 2;
  const int ownRow = Shape::kShares ? 0 : consumer * 64;
  const int row = ownRow + thread / 32 * 16 + thread % 32 / 4;
  const float factor = scoreFactor(rule);
  // with kShares, keySums are this consumer's sums: of keys or of values
  float keySums[Shape::kWidth / 2];
  float valueSums[Shape::kShares ? 1 : Shape::kValueWidth / 2];
#pragma unroll
  for (int i = 0; i < Shape::kWidth / 2; ++i) keySums[i] = 0;
#pragma unroll
  for (int i = 0; i < (Shape::kShares ? 1 : Shape::kValueWidth / 2); ++i) valueSums[i] = 0;
  bool isLeft = false;
  const uint32_t ownKeys = keyTile + ownRow * kChunkPitch;
  const uint32_t ownValues = valueTile + ownRow * kChunkPitch;

  awaitPhase(rowsFull, 0);
  [[maybe_unused]] std::conditional_t<Shape::kAddsQueries, QueryTerms<Shape>, NoQueryTerms> terms(consumer, thread);
  if constexpr (Shape::kAddsQueries) terms.guardKeys(keyTile, rows);
  StagePosition<Shape::kStages> position;
  for (int head = keyHead * heads; head < (keyHead + 1) * heads; ++head) {
    for (int step = firstStep; step < lastStep; ++step) {
      const uint32_t queryTile = stages + position.stage * Shape::kStageBytes;
      const uint32_t gradTile = queryTile + Shape::kQueryBytes;
      const Statistics& queryStatistics = statistics[position.stage];
      float scores[kQueries / 2];
      float grads[kQueries / 2];
      awaitPhase(full + position.stage, position.parity);
      beginWgmma();
      startRowsByRows<kType, kQueries, Shape::kWidth>(scores, ownKeys, Shape::kRowChunk, queryTile, Shape::kQueryChunk);
      commitWgmma();
      beginWgmma();
      startRowsByRows<kType, kQueries, Shape::kValueWidth>(grads, ownValues, Shape::kRowChunk, gradTile,
                                                           Shape::kQueryChunk);
      commitWgmma();
      awaitWgmma<1>();
      pinRegisters(scores);
      const int start = step * kQueries;
      uint32_t powers[kQueries / kWgmmaDepth][4];
      uint32_t factors[kQueries / kWgmmaDepth][4];
      // whether all queries of the step see all keys of the tile
      const bool isCommon = start + kQueries <= sequence.queries && !queryStatistics.anyBlind && rule.mask == nullptr &&
                            firstKeyOf(rule, positionOf(rule, sequence, start + kQueries - 1)) <= first &&
                            endKeyOf(rule, sequence, positionOf(rule, sequence, start)) >= first + Shape::kRows;
      if (!kDetailed && isCommon) {
#pragma unroll
        for (int i = 0; i < kQueries / 8; ++i) {
          const float2 minusLse = *reinterpret_cast<const float2*>(queryStatistics.minusLse + 8 * i + column);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            scores[4 * i + 2 * h] = ex2(__fmaf_rn(scores[4 * i + 2 * h], factor, minusLse.x));
            scores[4 * i + 2 * h + 1] = ex2(__fmaf_rn(scores[4 * i + 2 * h + 1], factor, minusLse.y));
          }
        }
        packAccumulators<kType, kQueries>(scores, powers);
        awaitWgmma<0>();
        pinRegisters(grads);
#pragma unroll
        for (int i = 0; i < kQueries / 8; ++i) {
          const float2 minusDelta = *reinterpret_cast<const float2*>(queryStatistics.minusDelta + 8 * i + column);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            grads[4 * i + 2 * h] = scores[4 * i + 2 * h] * (grads[4 * i + 2 * h] + minusDelta.x);
            grads[4 * i + 2 * h + 1] = scores[4 * i + 2 * h + 1] * (grads[4 * i + 2 * h + 1] + minusDelta.y);
          }
        }
      } else {
        awaitWgmma<0>();
        pinRegisters(grads);
        differentiateColumns<kDetailed, kQueries>(p, sequence, head, start + column, first + row, queryStatistics,
                                                  column, factor, scores, grads);
        packAccumulators<kType, kQueries>(scores, powers);
        const int count = sequence.queries - start;
        isLeft |= guardRows<kType, Shape::kChunks, kQueries>(queryTile, count, thread, 1 + consumer);
        isLeft |= guardRows<kType, Shape::kValueChunks, kQueries>(gradTile, count, thread, 1 + consumer);
        if constexpr (Shape::kAddsQueries) {
          if (terms.hasNonFiniteKeys && thread == 0) {
            leaveQueries(QueryTile::at<Shape>(rule, querySums, sequence, head, step), queryList,
                         batch * rule.heads + head, rule.queries);
          }
        }
      }
      packAccumulators<kType, kQueries>(grads, factors);
      if constexpr (Shape::kAddsQueries) {
        terms.writeFactors(factors, factorTiles, factorsFull);
        const uint32_t role = queryStatistics.role;
        beginWgmma();
        startRegistersByTile<kType, Shape::kValueWidth, kQueries>(valueSums, powers, gradTile, Shape::kQueryChunk);
        startRegistersByTile<kType, Shape::kWidth, kQueries>(keySums, factors, queryTile, Shape::kQueryChunk);
        commitWgmma();
        terms.start(factorTiles, factorsFull, keyTile);
        awaitWgmma<1>();
        pinRegisters(valueSums);
        pinRegisters(keySums);
        if (thread == 0) __mbarrier_arrive(free + position.stage);
        awaitWgmma<0>();
        terms.finish(p, sequence, head, step, role, sumStages);
      } else if constexpr (Shape::kShares) {
        static_assert(Shape::kWidth == Shape::kValueWidth);
#pragma unroll
        for (int k = 0; k < kQueries / kWgmmaDepth; ++k) {
#pragma unroll
          for (int i = 0; i < 4; ++i) factors[k][i] = consumer == 0 ? powers[k][i] : factors[k][i];
        }
        pinRegisters(factors);
        beginWgmma();
        startRegistersByTile<kType, Shape::kWidth, kQueries>(keySums, factors, consumer == 0 ? gradTile : queryTile,
                                                             Shape::kQueryChunk);
        commitWgmma();
        awaitWgmma<0>();
      } else {
        beginWgmma();
        startRegistersByTile<kType, Shape::kValueWidth, kQueries>(valueSums, powers, gradTile, Shape::kQueryChunk);
        startRegistersByTile<kType, Shape::kWidth, kQueries>(keySums, factors, queryTile, Shape::kQueryChunk);
        commitWgmma();
        awaitWgmma<0>();
        pinRegisters(valueSums);
      }
      if constexpr (!Shape::kAddsQueries) {
        pinRegisters(keySums);
        if (thread == 0) __mbarrier_arrive(free + position.stage);
      }
      position.next();
    }
  }
  if (!Shape::kShares || consumer == 1) {
    storeKeys<kType, Shape::kWidth>(rule, sequence, keyHead, first + row, rows - row, column, keySums, rule.scale,
                                    p.dk);
  }
  if constexpr (Shape::kShares) {
    if (consumer == 0) {
      storeKeys<kType, Shape::kWidth>(rule, sequence, keyHead, first + row, rows - row, column, keySums, rule.keep,
                                      p.dv);
    }
  } else {
    storeKeys<kType, Shape::kValueWidth>(rule, sequence, keyHead, first + row, rows - row, column, valueSums, rule.keep,
                                         p.dv);
  }
  // with kShares, both consumers have the same rows
  const bool isReported = !Shape::kShares || consumer == 0;
  if (anyOf(isLeft, 1 + consumer) && thread == 0 && isReported) leaveTile(list, item, rule.keys, first + ownRow);
#endif
}

}  // namespace lockstep
