// The forward pass of attention on Hopper's tensor cores. wgmma is the datapath `hopper-half` (docs/datapath.md), so every
// element equals the plain kernel's. A block of threads computes a tile of queries of one sequence and head: one producer warp
// copies keys and values, and each consumer warpgroup computes 64 rows. While a consumer computes the probabilities of a block
// of keys, its tensor cores add the values of the previous block.
#pragma once

#include "kernels/attention/hopper/softmax.cuh"
#include "kernels/attention/hopper/splits.cuh"
#include "kernels/attention/hopper/rows.cuh"
#include "kernels/attention/hopper/tile.cuh"
#include "kernels/device/tensor-map.cuh"
#include "kernels/device/wgmma.cuh"

namespace lockstep {

// The sizes of a forward kernel. With `packs`, a tile has the queries of all heads that share keys, so that the keys are read
// only once: for few queries and many keys.
template <Wide type_, int width_, int valueWidth_, int keys_, bool packs_>
struct ForwardShape {
  static constexpr Wide kType = type_;
  static constexpr int kWidth = width_;
  static constexpr int kValueWidth = valueWidth_;
  // keys of a block
  static constexpr int kKeys = keys_;
  static constexpr bool kPacks = packs_;
  static constexpr int kConsumers = kPacks ? 1 : 2;
  static constexpr int kRows = 64 * kConsumers;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kStages = kPacks && kWidth <= 128 ? 3 : 2;
  // Whether consumers take turns: one starts its products while another computes probabilities.
  static constexpr bool kAlternates = !kPacks;
  static constexpr int kChunks = (kWidth + kChunkColumns - 1) / kChunkColumns;
  static constexpr int kValueChunks = (kValueWidth + kChunkColumns - 1) / kChunkColumns;
  // bytes of a chunk of queries, and of a chunk of keys or values
  static constexpr int kQueryChunk = kRows * kChunkPitch;
  static constexpr int kKeyChunk = kKeys * kChunkPitch;
  static constexpr int kQueryBytes = kChunks * kQueryChunk;
  static constexpr int kKeyBytes = kChunks * kKeyChunk;
  static constexpr int kValueBytes = kValueChunks * kKeyChunk;
  static constexpr int kBarriers = 1 + 4 * kStages;
  static constexpr int kBytes = kSwizzleBytes + kQueryBytes + kStages * (kKeyBytes + kValueBytes) + 8 * kBarriers;
};

struct ForwardMaps {
  CUtensorMap queries;
  CUtensorMap keys;
  CUtensorMap values;
};

// The options of a forward kernel: windows only; windows and splits of the keys; or all options.
enum class ForwardOptions { kWindows, kSplits, kAll };

template <typename Shape, ForwardOptions kOptions>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    forwardKernel(const __grid_constant__ AttentionParams p, const __grid_constant__ ForwardMaps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Wide kType = Shape::kType;
  constexpr int kKeys = Shape::kKeys;
  constexpr bool kDetailed = kOptions == ForwardOptions::kAll;
  constexpr bool kSplits = kOptions != ForwardOptions::kWindows;
  extern __shared__ Bytes16 memory[];
  const uint32_t base = (sharedAddress(memory) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  const uint32_t queryTile = base;
  const uint32_t keyTiles = queryTile + Shape::kQueryBytes;
  const uint32_t valueTiles = keyTiles + Shape::kStages * Shape::kKeyBytes;
  auto* barriers = reinterpret_cast<uint64_t*>(
      reinterpret_cast<uint8_t*>(memory) + (valueTiles - sharedAddress(memory)) + Shape::kStages * Shape::kValueBytes);
  uint64_t* const queriesFull = barriers;
  uint64_t* const keysFull = barriers + 1;
  uint64_t* const keysFree = keysFull + Shape::kStages;
  uint64_t* const valuesFull = keysFree + Shape::kStages;
  uint64_t* const valuesFree = valuesFull + Shape::kStages;

  const AttentionRule& rule = p.rule;
  const TileRows<Shape::kPacks, Shape::kRows> tile(rule, static_cast<int>(blockIdx.x));
  const int batch = tile.batch;
  const Sequence sequence = sequenceOf(rule, batch);
  const int first = tile.firstQuery;
  const int queryCount = max(min(tile.queriesOfTile(), sequence.queries - first), 0);
  if (queryCount == 0 && rule.cumulative) return;
  const bool isEmpty = queryCount == 0;
  int beginKey = isEmpty ? 0 : firstKeyOf(rule, positionOf(rule, sequence, first));
  int endKey = isEmpty ? 0 : endKeyOf(rule, sequence, positionOf(rule, sequence, first + queryCount - 1));
  if constexpr (Shape::kPacks && kSplits) {
    if (rule.splitKeys != 0) {
      const int64_t begin = int64_t{tile.split} * rule.splitKeys;
      beginKey = static_cast<int>(max(int64_t{beginKey}, begin));
      endKey = static_cast<int>(min(int64_t{endKey}, begin + rule.splitKeys));
    }
  }
  const int firstBlock = beginKey / kKeys;
  const int lastBlock = endKey > beginKey ? (endKey + kKeys - 1) / kKeys : firstBlock;

  if (threadIdx.x == 0) {
    __mbarrier_init(queriesFull, 1);
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

  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 0) {
    if constexpr (!Shape::kPacks) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x >= kLanes) return;
    const int lane = static_cast<int>(threadIdx.x);
    const int queryRow = sequence.firstQuery + first;
    const int batchOfTensor = rule.cumulative ? 0 : batch;
    if (lane == 0) {
      arriveExpecting(queriesFull, Shape::kChunks * tile.boxRows() * kChunkPitch);
      copyTile<Shape::kChunks>(&maps.queries, queriesFull, queryTile, Shape::kQueryChunk, tile.head, queryRow,
                               batchOfTensor);
    }
    const int keyHead = keyHeadOf(rule, tile.head);
    StagePosition<Shape::kStages> position;
    for (int block = firstBlock; block < lastBlock; ++block) {
      const KeyRows<kKeys> keys(rule, sequence, block * kKeys);
      awaitPhase(keysFree + position.stage, position.parity ^ 1);
      if (lane == 0) arriveExpecting(keysFull + position.stage, Shape::kKeyBytes);
      __syncwarp();
      keys.template copy<Shape::kChunks>(&maps.keys, keysFull + position.stage,
                                         keyTiles + position.stage * Shape::kKeyBytes, keyHead, lane);
      awaitPhase(valuesFree + position.stage, position.parity ^ 1);
      if (lane == 0) arriveExpecting(valuesFull + position.stage, Shape::kValueBytes);
      __syncwarp();
      keys.template copy<Shape::kValueChunks>(&maps.values, valuesFull + position.stage,
                                              valueTiles + position.stage * Shape::kValueBytes, keyHead, lane);
      position.next();
    }
    return;
  }

  if constexpr (!Shape::kPacks) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int consumer = group - 1;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int column = thread % 4 * 2;
  // this thread's first row in the tile
  const int row = consumer * 64 + thread / 32 * 16 + thread % 32 / 4;
  const RowPosition positions[2] = {tile.rowAt(row), tile.rowAt(row + 8)};
  const QueryPair<kDetailed> queries(p.rule, p.random, sequence, positions);
  // the keys that all rows of the tile see
  const int commonBegin = firstKeyOf(rule, positionOf(rule, sequence, first + max(queryCount, 1) - 1));
  const int commonEnd = endKeyOf(rule, sequence, positionOf(rule, sequence, first));
  const float factor = scoreFactor(rule);
  const auto isCommon = [&](int start) {
    return start >= commonBegin && start + kKeys <= commonEnd && rule.mask == nullptr;
  };

  float out[Shape::kValueWidth / 2];
#pragma unroll
  for (int i = 0; i < Shape::kValueWidth / 2; ++i) out[i] = 0;
  float scores[kKeys / 2];
  uint32_t factors[kKeys / kWgmmaDepth][4];
  RowPair state;
  state.open();
  // nonzero if a row has a visible key in the split
  [[maybe_unused]] uint32_t seen[2] = {};
  float decay[2];
  bool isLeft = false;

  const uint32_t ownQueries = queryTile + consumer * 64 * kChunkPitch;
  const auto startScores = [&](int stage) {
    beginWgmma();
    startRowsByRows<kType, kKeys, Shape::kWidth>(scores, ownQueries, Shape::kQueryChunk,
                                                 keyTiles + stage * Shape::kKeyBytes, Shape::kKeyChunk);
    commitWgmma();
  };
  const auto startValues = [&](int stage) {
    startRegistersByTile<kType, Shape::kValueWidth, kKeys>(out, factors, valueTiles + stage * Shape::kValueBytes,
                                                           Shape::kKeyChunk);
    commitWgmma();
  };
  const auto release = [&](uint64_t* barrier) {
    if (thread == 0) __mbarrier_arrive(barrier);
  };
  // Replaces the block's scores by probabilities.
  const auto computeProbabilities = [&](int block) {
    const int start = block * kKeys;
    if (!kDetailed && isCommon(start)) {
      const uint32_t unusedMask[2] = {};
      addScores<false, kKeys>(state, scores, unusedMask, factor, decay);
      if constexpr (kSplits) seen[0] = seen[1] = 1;
      return;
    }
    uint32_t shown[2];
    queries.template show<kKeys>(start + column, shown);
    if constexpr (kDetailed) queries.template changeScores<kKeys>(scores, start + column, shown);
    if constexpr (kSplits) {
      seen[0] |= shown[0];
      seen[1] |= shown[1];
    }
    addScores<true, kKeys>(state, scores, shown, factor, decay);
    if constexpr (kDetailed) queries.template drop<kKeys>(scores, start + column);
  };
  // Prepares the values of a block in which some rows do not see all keys: zeroes the rows after the last key. If a value is not
  // finite, leaves the tile to the plain kernel.
  const auto prepareValues = [&](int block, int stage) {
    const int start = block * kKeys;
    if (isCommon(start)) return;
    isLeft |= guardRows<kType, Shape::kValueChunks, kKeys>(valueTiles + stage * Shape::kValueBytes,
                                                           sequence.keys - start, thread, 1 + consumer);
  };

  // Computes blocks [begin, end) of keys, at least one. `out` must be 0 at the start.
  StagePosition<Shape::kStages> position;
  const auto attend = [&](int begin, int end) {
    if constexpr (Shape::kAlternates) {
      if (begin + 1 < end) openTurns<Shape::kConsumers>(consumer);
    }
    awaitPhase(keysFull + position.stage, position.parity);
    startScores(position.stage);
    awaitWgmma<0>();
    pinRegisters(scores);
    release(keysFree + position.stage);
    computeProbabilities(begin);
    packAccumulators<kType, kKeys>(scores, factors);
    for (int block = begin + 1; block < end; ++block) {
      const StagePosition<Shape::kStages> previous = position;
      position.next();
      awaitPhase(keysFull + position.stage, position.parity);
      if constexpr (Shape::kAlternates) awaitTurn(consumer);
      startScores(position.stage);
      awaitPhase(valuesFull + previous.stage, previous.parity);
      prepareValues(block - 1, previous.stage);
      beginWgmma();
      startValues(previous.stage);
      if constexpr (Shape::kAlternates) passTurn<Shape::kConsumers>(consumer, block + 1 == end);
      awaitWgmma<1>();
      pinRegisters(scores);
      release(keysFree + position.stage);
      computeProbabilities(block);
      awaitWgmma<0>();
      pinRegisters(out);
      release(valuesFree + previous.stage);
#pragma unroll
      for (int i = 0; i < Shape::kValueWidth / 2; ++i) out[i] *= decay[i / 2 % 2];
      packAccumulators<kType, kKeys>(scores, factors);
    }
    awaitPhase(valuesFull + position.stage, position.parity);
    prepareValues(end - 1, position.stage);
    beginWgmma();
    startValues(position.stage);
    awaitWgmma<0>();
    pinRegisters(out);
    release(valuesFree + position.stage);
    position.next();
  };

  awaitPhase(queriesFull, 0);
  if (kSplits && rule.splitKeys != 0) {
    SplitTotals<Shape> totals(p, sequence, positions, column);
    if constexpr (Shape::kPacks) {
      if (firstBlock < lastBlock) attend(firstBlock, lastBlock);
      totals.store(tile.split, tile.splits, seen, state, out);
    } else {
      const int blocks = rule.splitKeys / kKeys;
      for (int begin = firstBlock; begin < lastBlock;) {
        const int end = min(lastBlock, (begin / blocks + 1) * blocks);
        attend(begin, end);
        totals.merge(seen, state, out);
        begin = end;
      }
      totals.restore(out);
      finishRows<Shape>(p, sequence, positions, column, totals.largest, totals.scaled, totals.total, out);
    }
  } else {
    if (firstBlock < lastBlock) attend(firstBlock, lastBlock);
    const float sums[2] = {state.total(0), state.total(1)};
    finishRows<Shape>(p, sequence, positions, column, state.maximum, state.scaled, sums, out);
  }
  if (anyOf(isLeft, 1 + consumer) && thread == 0) {
    for (int head = tile.head; head < tile.head + tile.heads; ++head) {
      leaveTile(p.workspace, batch * rule.heads + head, rule.queries, first + consumer * 64);
    }
  }
#endif
}

}  // namespace lockstep
