// The gradients of queries on Hopper's tensor cores (docs/numerics.md §10.6). A block of threads has a tile of queries of one
// sequence and head. One producer warp copies keys and values, and each consumer warpgroup computes 64 rows.
#pragma once

#include "kernels/attention/hopper/rows.cuh"
#include "kernels/attention/hopper/tile.cuh"
#include "kernels/device/tensor-map.cuh"
#include "kernels/device/wgmma.cuh"

namespace lockstep {

// The sizes of a kernel of gradients of queries.
template <Wide type_, int width_, int valueWidth_, int keys_>
struct QueryGradShape {
  static constexpr Wide kType = type_;
  static constexpr int kWidth = width_;
  static constexpr int kValueWidth = valueWidth_;
  // keys of a block
  static constexpr int kKeys = keys_;
  static constexpr int kConsumers = 2;
  static constexpr int kRows = 64 * kConsumers;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kChunks = (kWidth + kChunkColumns - 1) / kChunkColumns;
  static constexpr int kValueChunks = (kValueWidth + kChunkColumns - 1) / kChunkColumns;
  static constexpr int kStages = kChunks + kValueChunks <= 4 ? 2 : 1;
  static constexpr int kRowChunk = kRows * kChunkPitch;
  static constexpr int kKeyChunk = kKeys * kChunkPitch;
  static constexpr int kRowBytes = (kChunks + kValueChunks) * kRowChunk;
  static constexpr int kKeyBytes = kChunks * kKeyChunk;
  static constexpr int kValueBytes = kValueChunks * kKeyChunk;
  static constexpr int kBarriers = 1 + 4 * kStages;
  static constexpr int kBytes = kSwizzleBytes + kRowBytes + kStages * (kKeyBytes + kValueBytes) + 8 * kBarriers;
  // The number of columns of dq that are computed at a time.
  static constexpr int kPart = kWidth <= 128 ? kWidth : kWidth % 128 == 0 ? 128 : 64;
};

struct QueryGradMaps {
  CUtensorMap queries;
  CUtensorMap grads;
  CUtensorMap keys;
  CUtensorMap values;
};

template <typename Shape, bool kDetailed>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    queryGradKernel(const __grid_constant__ AttentionBackwardParams p, int32_t* list,
                    const __grid_constant__ QueryGradMaps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Wide kType = Shape::kType;
  constexpr int kKeys = Shape::kKeys;
  extern __shared__ Bytes16 memory[];
  const uint32_t base = (sharedAddress(memory) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  const uint32_t queryTile = base;
  const uint32_t gradTile = queryTile + Shape::kChunks * Shape::kRowChunk;
  const uint32_t keyTiles = queryTile + Shape::kRowBytes;
  const uint32_t valueTiles = keyTiles + Shape::kStages * Shape::kKeyBytes;
  auto* barriers = reinterpret_cast<uint64_t*>(
      reinterpret_cast<uint8_t*>(memory) + (valueTiles - sharedAddress(memory)) + Shape::kStages * Shape::kValueBytes);
  uint64_t* const rowsFull = barriers;
  uint64_t* const keysFull = barriers + 1;
  uint64_t* const keysFree = keysFull + Shape::kStages;
  uint64_t* const valuesFull = keysFree + Shape::kStages;
  uint64_t* const valuesFree = valuesFull + Shape::kStages;

  const AttentionRule& rule = p.rule;
  const int tiles = (rule.queries + Shape::kRows - 1) / Shape::kRows;
  const int item = static_cast<int>(blockIdx.x) / tiles;
  // under a causal mask, tiles of later queries see more keys, so they start first
  const int tile = tiles - 1 - static_cast<int>(blockIdx.x) % tiles;
  const int batch = item / rule.heads;
  const int head = item % rule.heads;
  const Sequence sequence = sequenceOf(rule, batch);
  const int first = tile * Shape::kRows;
  const int rows = min(Shape::kRows, sequence.queries - first);
  if (rows <= 0) return;
  const int beginKey = firstKeyOf(rule, positionOf(rule, sequence, first));
  const int endKey = endKeyOf(rule, sequence, positionOf(rule, sequence, first + rows - 1));
  const int firstBlock = beginKey / kKeys;
  const int lastBlock = endKey > beginKey ? (endKey + kKeys - 1) / kKeys : firstBlock;

  if (threadIdx.x == 0) {
    __mbarrier_init(rowsFull, 1);
#pragma unroll
    for (int s = 0; s < Shape::kStages; ++s) {
      __mbarrier_init(keysFull + s, 1);
      __mbarrier_init(valuesFull + s, 1);
      __mbarrier_init(keysFree + s, Shape::kConsumers);
      __mbarrier_init(valuesFree + s, Shape::kConsumers);
    }
    showInitialized();
  }
  __syncthreads();

  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x != 0) return;
    const int row = sequence.firstQuery + first;
    const int batchOfTensor = rule.cumulative ? 0 : batch;
    arriveExpecting(rowsFull, Shape::kRowBytes);
    copyTile<Shape::kChunks>(&maps.queries, rowsFull, queryTile, Shape::kRowChunk, head, row, batchOfTensor);
    copyTile<Shape::kValueChunks>(&maps.grads, rowsFull, gradTile, Shape::kRowChunk, head, row, batchOfTensor);
    const int keyHead = keyHeadOf(rule, head);
    StagePosition<Shape::kStages> position;
    for (int block = firstBlock; block < lastBlock; ++block) {
      const int key = sequence.firstKey + block * kKeys;
      awaitPhase(keysFree + position.stage, position.parity ^ 1);
      arriveExpecting(keysFull + position.stage, Shape::kKeyBytes);
      copyTile<Shape::kChunks>(&maps.keys, keysFull + position.stage, keyTiles + position.stage * Shape::kKeyBytes,
                               Shape::kKeyChunk, keyHead, key, batchOfTensor);
      awaitPhase(valuesFree + position.stage, position.parity ^ 1);
      arriveExpecting(valuesFull + position.stage, Shape::kValueBytes);
      copyTile<Shape::kValueChunks>(&maps.values, valuesFull + position.stage,
                                    valueTiles + position.stage * Shape::kValueBytes, Shape::kKeyChunk, keyHead, key,
                                    batchOfTensor);
      position.next();
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int consumer = group - 1;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int column = thread % 4 * 2;
  const int row = consumer * 64 + thread / 32 * 16 + thread % 32 / 4;
  const RowPosition positions[2] = {{first + row, head}, {first + row + 8, head}};
  QueryPair<kDetailed> queries(p.rule, p.random, sequence, positions);
  float minusLse[2];
  float minusDelta[2];
  bool isBlind = false;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int i = min(first + row + 8 * h, sequence.queries - 1);
    const int64_t statistic = statisticOf(rule, sequence, head, i);
    const float lse = p.lse[statistic];
    minusLse[h] = -(lse * kLog2EFloat);
    minusDelta[h] = -reinterpret_cast<const float*>(p.workspace)[statistic];
    if (lse != -__builtin_huge_valf()) continue;
    queries.keys[h].end = 0;
    isBlind = true;
  }
  // the keys that all rows of the tile see; empty if a row sees no key
  const bool anyBlind = anyOf(isBlind, 1 + consumer);
  const int commonBegin = firstKeyOf(rule, positionOf(rule, sequence, first + rows - 1));
  const int commonEnd = anyBlind ? 0 : endKeyOf(rule, sequence, positionOf(rule, sequence, first));
  const float factor = scoreFactor(rule);
  float sums[Shape::kWidth / 2];
#pragma unroll
  for (int i = 0; i < Shape::kWidth / 2; ++i) sums[i] = 0;
  bool isLeft = false;
  const uint32_t ownQueries = queryTile + consumer * 64 * kChunkPitch;
  const uint32_t ownGrads = gradTile + consumer * 64 * kChunkPitch;
  const auto release = [&](uint64_t* barrier) {
    if (thread == 0) __mbarrier_arrive(barrier);
  };

  awaitPhase(rowsFull, 0);
  StagePosition<Shape::kStages> position;
  for (int block = firstBlock; block < lastBlock; ++block) {
    const int start = block * kKeys;
    const uint32_t keyTile = keyTiles + position.stage * Shape::kKeyBytes;
    float scores[kKeys / 2];
    float grads[kKeys / 2];
    awaitPhase(keysFull + position.stage, position.parity);
    beginWgmma();
    startRowsByRows<kType, kKeys, Shape::kWidth>(scores, ownQueries, Shape::kRowChunk, keyTile, Shape::kKeyChunk);
    commitWgmma();
    awaitPhase(valuesFull + position.stage, position.parity);
    beginWgmma();
    startRowsByRows<kType, kKeys, Shape::kValueWidth>(
        grads, ownGrads, Shape::kRowChunk, valueTiles + position.stage * Shape::kValueBytes, Shape::kKeyChunk);
    commitWgmma();
    awaitWgmma<1>();
    pinRegisters(scores);
    const bool isCommon = start >= commonBegin && start + kKeys <= commonEnd && rule.mask == nullptr;
    uint32_t factors[kKeys / kWgmmaDepth][4];
    if (!kDetailed && isCommon) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) scores[i] = ex2(__fmaf_rn(scores[i], factor, minusLse[i / 2 % 2]));
      awaitWgmma<0>();
      pinRegisters(grads);
      release(valuesFree + position.stage);
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) scores[i] *= grads[i] + minusDelta[i / 2 % 2];
    } else {
      awaitWgmma<0>();
      pinRegisters(grads);
      release(valuesFree + position.stage);
      uint32_t shown[2];
      queries.template show<kKeys>(start + column, shown);
      queries.template differentiate<kKeys>(scores, grads, start + column, shown, factor, minusLse, minusDelta);
      isLeft |= guardRows<kType, Shape::kChunks, kKeys>(keyTile, sequence.keys - start, thread, 1 + consumer);
    }
    packAccumulators<kType, kKeys>(scores, factors);
#pragma unroll
    for (int part = 0; part < Shape::kWidth / Shape::kPart; ++part) {
      float chain[Shape::kPart / 2];
      beginWgmma();
      startRegistersByTile<kType, Shape::kPart, kKeys>(
          chain, factors, keyTile + part * (Shape::kPart / kChunkColumns) * Shape::kKeyChunk, Shape::kKeyChunk, false);
      commitWgmma();
      awaitWgmma<0>();
      pinRegisters(chain);
      if (part == Shape::kWidth / Shape::kPart - 1) release(keysFree + position.stage);
#pragma unroll
      for (int i = 0; i < Shape::kPart / 2; ++i) sums[part * Shape::kPart / 2 + i] += chain[i];
    }
    position.next();
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + 8 * h >= rows) continue;
    const int64_t line = queryRowOf(rule, sequence, first + row + 8 * h) * rule.heads + head;
    auto* to = static_cast<uint16_t*>(p.dq) + line * Shape::kWidth + column;
#pragma unroll
    for (int g = 0; g < Shape::kWidth / 8; ++g) {
      *reinterpret_cast<uint32_t*>(to + 8 * g) =
          packPair<kType>(sums[4 * g + 2 * h] * rule.scale, sums[4 * g + 2 * h + 1] * rule.scale);
    }
  }
  if (anyOf(isLeft, 1 + consumer) && thread == 0) leaveTile(list, item, rule.queries, first + consumer * 64);
#endif
}

}  // namespace lockstep
