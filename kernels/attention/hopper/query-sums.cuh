// The gradients of queries as sums of terms, one for each block of keys, in ascending order (docs/numerics.md §10.6). A block of
// threads computes the terms of one block of keys. For each tile of 64 queries it loads the f32 sum of the earlier terms from
// memory, adds its own and stores the sum, after the block of threads with the previous keys has stored its sum.
#pragma once

#include "kernels/attention/hopper/launch.h"
#include "kernels/attention/hopper/rows.cuh"
#include "kernels/attention/hopper/tile.cuh"

namespace lockstep {

// The flag of a tile that is left to the plain kernel.
constexpr uint32_t kLeftTile = 0x80000000u;

// The number of key heads whose blocks of threads begin together. With more heads, blocks wait less for each other; with fewer,
// more queries are shared in the cache.
constexpr int kHeadsTogether = 32;

// The item (a sequence and a head of keys) and the block of keys of a block of threads.
struct KeyTile {
  int item;
  int tile;
};

// Under a causal mask, later blocks of keys have fewer queries. Each block of threads waits for the previous block of keys of its
// head. So the blocks of a head that run together also end together, and the next ones would begin by waiting. Therefore the even
// heads are ahead of the odd heads by about half of the blocks of a head that run together: while one half waits, the other
// computes.
inline int leadOf(const AttentionRule& rule, int64_t items, int64_t tiles, int multiprocessors) {
  // a lead of n blocks pays off only if a head has at least n times this many blocks of keys
  constexpr int64_t kTilesOfLead = 5;
  const int64_t together = std::min<int64_t>(kHeadsTogether, items);
  if (rule.right < 0 || rule.left >= 0 || together < 2) return 0;
  const int64_t lead = ceilDivide(6 * multiprocessors, 10 * together);
  return kTilesOfLead * lead <= tiles ? static_cast<int>(lead) : 0;
}

// Each block of threads takes the next key tile when it begins, so a term waits only for terms of earlier blocks. The
// blocks of keys of a head begin in ascending order. In phase n, the even heads take block n and the odd heads block n - lead.
__device__ inline KeyTile takeKeyTile(const QuerySums& sums, int items, int tiles) {
  __shared__ int ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(sums.ticket, 1);
  __syncthreads();
  const int first = ticket / (kHeadsTogether * tiles) * kHeadsTogether;
  const int together = min(kHeadsTogether, items - first);
  const int even = (together + 1) / 2;
  int number = ticket - first * tiles;
  // only even heads
  if (number < even * sums.lead) return {first + 2 * (number % even), number / even};
  number -= even * sums.lead;
  // all heads
  const int common = tiles - sums.lead;
  if (number < together * common) {
    const int placeInGroup = number % together;
    const int tile = number / together;
    return placeInGroup < even ? KeyTile{first + 2 * placeInGroup, tile + sums.lead}
                               : KeyTile{first + 2 * (placeInGroup - even) + 1, tile};
  }
  // only odd heads
  number -= together * common;
  const int odd = together - even;
  return {first + 2 * (number % odd) + 1, common + number / odd};
}

// Flags of a term. kHasTerm: the block has a term for the tile. Without the flag for storing, the sum after this term is final.
constexpr uint32_t kHasTerm = 1;
constexpr uint32_t kHasSum = 2;
constexpr uint32_t kIsStored = 4;

// A tile of 64 queries of a sequence and head, the blocks of keys [begin, end) that at least one of its queries sees, and its
// position.
struct QueryTile {
  int first;
  int begin;
  int end;
  uint32_t* count;
  float* sum;

  template <typename Shape>
  __device__ static QueryTile at(const AttentionRule& rule, const QuerySums& sums, const Sequence& sequence, int head,
                                 int step) {
    constexpr int kKeys = Shape::kRows;
    constexpr int kQueries = Shape::kQueries;
    QueryTile tile;
    tile.first = step * kQueries;
    const int last = min(tile.first + kQueries, sequence.queries) - 1;
    const int beginKey = firstKeyOf(rule, positionOf(rule, sequence, tile.first));
    const int endKey = endKeyOf(rule, sequence, positionOf(rule, sequence, last));
    tile.begin = beginKey / kKeys;
    tile.end = endKey > beginKey ? (endKey + kKeys - 1) / kKeys : tile.begin;
    const int tiles = (rule.queries + kQueries - 1) / kQueries;
    const int64_t slot = (static_cast<int64_t>(sequence.batch) * rule.heads + head) * tiles + step;
    tile.count = sums.counts + slot;
    tile.sum = sums.sums + slot * kQueries * Shape::kWidth;
    return tile;
  }

  // The flags of the term of a block; 0 if it has no term.
  __device__ uint32_t roleOf(int block) const {
    if (block < begin || block >= end) return 0;
    return kHasTerm | (block != begin ? kHasSum : 0) | (block + 1 < end ? kIsStored : 0);
  }
};

// Counts a term whose sum was stored.
__device__ inline void countTerm(uint32_t* count) {
  if (count == nullptr) return;
  __threadfence();
  atomicAdd(count, 1u);
}

// Two buffers of tile sums in shared memory, used alternately, and their barriers.
constexpr int kSumStages = 2;
using SumPosition = StagePosition<kSumStages>;

struct SumStages {
  float4* sums;
  // signals that the sum is loaded, or that the memory is free for the first term
  uint64_t* loaded;
  // signals that the consumers have added the term
  uint64_t* added;
  // signals that the result is stored
  uint64_t* freed;
};
constexpr int kSumBarriers = 3 * kSumStages;

// Loads the sum of each tile. One thread calls it.
template <typename Shape>
__device__ inline void loadSum(const QueryTile& tile, int block, const SumStages& stages, SumPosition& position) {
  const uint32_t role = tile.roleOf(block);
  if (role == 0) return;
  constexpr int kBytes = Shape::kSumBytes;
  uint64_t* const loaded = stages.loaded + position.stage;
  awaitPhase(stages.freed + position.stage, position.parity ^ 1);
  if (role & kHasSum) {
    const auto before = static_cast<uint32_t>(block - tile.begin);
    uint32_t count;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(tile.count) : "memory");
    } while ((count & ~kLeftTile) < before);
    // the copy engine reads what other blocks of threads have written
    asm volatile("fence.proxy.async;" ::: "memory");
    arriveExpecting(loaded, kBytes);
    copyBytes(loaded, stages.sums + position.stage * (kBytes / sizeof(float4)), tile.sum, kBytes);
  } else {
    __mbarrier_arrive(loaded);
  }
  position.next();
}

// Stores the sum of each tile and counts its terms. One thread calls it.
template <typename Shape>
__device__ inline void storeSum(const QueryTile& tile, int block, const SumStages& stages, SumPosition& position,
                                uint32_t*& uncounted) {
  const uint32_t role = tile.roleOf(block);
  if (role == 0) return;
  constexpr int kBytes = Shape::kSumBytes;
  awaitPhase(stages.added + position.stage, position.parity);
  if (role & kIsStored) {
    storeBytes(tile.sum, stages.sums + position.stage * (kBytes / sizeof(float4)), kBytes);
    awaitStores<1>();
    countTerm(uncounted);
    uncounted = tile.count;
    awaitStoreReads();
  }
  __mbarrier_arrive(stages.freed + position.stage);
  position.next();
}

// Replaces QueryTerms in kernels that do not compute the gradients of queries.
struct NoQueryTerms {
  __device__ NoQueryTerms(int, int) {}
};

// Leaves a tile of queries to the plain kernel, unless another block of threads has done so.
__device__ inline void leaveQueries(const QueryTile& tile, int32_t* list, int item, int rows) {
  const bool isNew = (atomicOr(tile.count, kLeftTile) & kLeftTile) == 0;
  if (isNew) leaveTile(list, item, rows, tile.first);
}

// The terms of a block of threads: the product of the factors of both consumers (64 queries by all keys of the block) and the
// keys. Each consumer computes one chunk of columns.
template <typename Shape>
struct QueryTerms {
  static constexpr int kColumns = kChunkColumns;
  static_assert(Shape::kWidth == Shape::kConsumers * kColumns);

  int consumer;
  int thread;
  bool hasNonFiniteKeys = false;
  // two tiles of factors are used alternately
  uint32_t buffer = 0;
  uint32_t bufferParity = 0;
  SumPosition position;
  float term[kColumns / 2];

  __device__ QueryTerms(int number, int threadOfGroup) : consumer(number), thread(threadOfGroup) {}

  // Zeroes the rows of keys after the last one. All threads of the consumer call it.
  __device__ void guardKeys(uint32_t keyTile, int rows) {
    const bool isFound = guardRows<Shape::kType, Shape::kChunks, Shape::kRows>(keyTile, rows, thread, 1 + consumer);
    hasNonFiniteKeys = anyOf(isFound, 1 + consumer);
  }

  // Writes the consumer's factors, 64 rows of keys and 64 columns of queries, to a chunk of shared memory (wgmma.cuh).
  __device__ void writeFactors(const uint32_t (&factors)[4][4], uint32_t tiles, uint64_t* full) const {
    const int lane = thread % kLanes;
    const int row = thread / kLanes * 16 + lane / 8 % 2 * 8 + lane % 8;
    const uint32_t line = tiles + buffer * Shape::kFactorBytes + (consumer * 64 + row) * kChunkPitch;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t unit = static_cast<uint32_t>(2 * k + lane / 16) ^ static_cast<uint32_t>(row % 8);
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(line + unit * 16),
                   "r"(factors[k][0]), "r"(factors[k][1]), "r"(factors[k][2]), "r"(factors[k][3])
                   : "memory");
    }
    // makes the factors visible to the tensor cores
    showInitialized();
    __syncwarp();
    if (lane == 0) __mbarrier_arrive(full + buffer);
  }

  // Starts the product when both consumers have written their factors. The consumers then write the other tile. They write this
  // tile again only after both have finished this product, because each awaits the other's factors in between.
  __device__ void start(uint32_t tiles, uint64_t* full, uint32_t keyTile) {
    const uint32_t factorTile = tiles + buffer * Shape::kFactorBytes;
    awaitPhase(full + buffer, bufferParity);
    bufferParity ^= buffer;
    buffer ^= 1;
    beginWgmma();
    startColumnsByTile<Shape::kType, kColumns, Shape::kRows>(term, factorTile, keyTile + consumer * Shape::kRowChunk,
                                                             Shape::kRowChunk);
    commitWgmma();
  }

  // Adds the consumer's part of the term of a step to the sum of its tile. The last term completes dq.
  __device__ void finish(const AttentionBackwardParams& p, const Sequence& sequence, int head, int step, uint32_t role,
                         const SumStages& stages) {
    pinRegisters(term);
    if (role == 0) return;
    add(p, sequence, head, step, role, stages);
    __syncwarp();
    if (thread % kLanes == 0) __mbarrier_arrive(stages.added + position.stage);
    position.next();
  }

  __device__ void add(const AttentionBackwardParams& p, const Sequence& sequence, int head, int step, uint32_t role,
                      const SumStages& stages) {
    constexpr int kGroups = kColumns / 8;
    // the number of groups that are loaded before the first is added
    constexpr int kAhead = 4;
    constexpr int kSum = Shape::kSumBytes / static_cast<int>(sizeof(float4));
    float4* const sum = stages.sums + position.stage * kSum + consumer * kColumns * Shape::kQueries / 4 + thread;
    awaitPhase(stages.loaded + position.stage, position.parity);
#pragma unroll
    for (int first = 0; first < kGroups; first += kAhead) {
      float4 before[kAhead];
#pragma unroll
      for (int g = 0; g < kAhead; ++g) {
        before[g] = role & kHasSum ? sum[(first + g) * kGroupThreads] : float4{0, 0, 0, 0};
      }
#pragma unroll
      for (int g = 0; g < kAhead; ++g) {
        float* const group = term + 4 * (first + g);
        group[0] = before[g].x + group[0];
        group[1] = before[g].y + group[1];
        group[2] = before[g].z + group[2];
        group[3] = before[g].w + group[3];
      }
    }
    if (role & kIsStored) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        sum[g * kGroupThreads] = {term[4 * g], term[4 * g + 1], term[4 * g + 2], term[4 * g + 3]};
      }
      // makes the sums visible to the copy engine
      showInitialized();
    } else {
      complete(p, sequence, head, step);
    }
  }

  // Writes dq.
  __device__ void complete(const AttentionBackwardParams& p, const Sequence& sequence, int head, int step) const {
    const AttentionRule& rule = p.rule;
    const int row = step * Shape::kQueries + thread / 32 * 16 + thread % 32 / 4;
    const int64_t line = queryRowOf(rule, sequence, row) * rule.heads + head;
    const int64_t next = 8 * rule.queryStep * rule.heads * Shape::kWidth;
    uint16_t* const to = static_cast<uint16_t*>(p.dq) + line * Shape::kWidth + consumer * kColumns + thread % 4 * 2;
#pragma unroll
    for (int g = 0; g < kColumns / 8; ++g) {
      const uint32_t pairs[2] = {packPair<Shape::kType>(term[4 * g] * rule.scale, term[4 * g + 1] * rule.scale),
                                 packPair<Shape::kType>(term[4 * g + 2] * rule.scale, term[4 * g + 3] * rule.scale)};
      if (row < sequence.queries) *reinterpret_cast<uint32_t*>(to + 8 * g) = pairs[0];
      if (row + 8 < sequence.queries) *reinterpret_cast<uint32_t*>(to + next + 8 * g) = pairs[1];
    }
  }
};

}  // namespace lockstep
