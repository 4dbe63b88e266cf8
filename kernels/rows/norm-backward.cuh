// The gradient of the norms, for rows in shared memory. A chunk is 32 rows. A cluster of blocks processes a chunk, and
// each block has some of the columns. x and grad are read once, both for dx and for the chunk's column sums.
//
// Warp roles in a block: one warp fetches rows into the slots of a ring (kernels/device/ring.cuh), kSumWarps warps
// reduce along rows, and the other threads, called result threads, compute dx. A result thread keeps the column sums of
// its own columns in registers. The sum along a row is passed from block to block in ascending order of columns,
// through distributed shared memory.
#pragma once

#include "kernels/device/pdl.cuh"
#include "kernels/device/ring.cuh"
#include "kernels/rows/column-sum.h"
#include "kernels/rows/norm.cuh"
#include "kernels/rows/norm.gen.h"

namespace lockstep {

// The number of warps that reduce along rows.
constexpr int kSumWarps = 6;
// The number of threads of a block that do not compute dx: the warps that reduce along rows, and the one that fetches.
constexpr int kOtherThreads = (kSumWarps + 1) * kLanes;
// The maximum number of threads of a block that compute dx (result threads).
constexpr int kMaxResultThreads = 512;

// Shared memory through which the warps of a block and the blocks of its cluster communicate. `filled`, `summed` and
// `emptied` have one mbarrier per slot.
struct Ring {
  uint64_t filled[kMaxSlots];
  uint64_t summed[kMaxSlots];
  uint64_t emptied[kMaxSlots];
  // For each row of the ring: the mbarrier that signals the partial sums from the preceding block, and these sums by
  // lane.
  uint64_t carried[kMaxRows];
  float2 carries[kMaxRows][kLanes];
  // (center, scale) of each row: its mean (0 for RMSNorm) and 1 / standard deviation.
  float2 statistics[kMaxRows];
  // (a, b) of each row: the means over the row of d (0 for RMSNorm) and of d * y, where d = grad * gamma and y = (x -
  // center) * scale.
  float2 means[kMaxRows];
};

// The rows and columns that a block processes: columns [offset, offset + width) of several units of rows. A unit is a
// chunk of 32 rows or, if no column sums are wanted, the rows of a slot of the ring buffer.
template <Wide type>
struct Share {
  using Storage = typename WideOf<type>::Storage;

  Ring& ring;
  RingShape shape;
  float* gamma;
  // Each slot of the ring buffer holds `group` rows of x, then `group` rows of grad.
  Storage* slots;
  int offset;
  int width;
  int64_t rows;
  int64_t unit;

  __device__ Storage* x(int slot) const { return slots + slot * 2 * shape.group * shape.columns; }
  __device__ Storage* grad(int slot) const { return x(slot) + shape.group * shape.columns; }

  // Visits the rows that this block processes, in order. For each slot of the ring buffer it calls visit with the
  // slot's position, its first row and its number of rows. After each `unit` rows it calls finish with the first of
  // these rows.
  template <typename Visit, typename Finish>
  __device__ void walk(Visit visit, Finish finish) const {
    RingPosition position;
    const int64_t step = gridDim.x / shape.clusterSize * unit;
    for (int64_t begin = blockIdx.x / shape.clusterSize * unit; begin < rows; begin += step) {
      const int count = static_cast<int>(min(unit, rows - begin));
      for (int first = 0; first < count; first += shape.group) {
        visit(position, begin + first, min(shape.group, count - first));
        position.next(shape.slots);
      }
      finish(begin);
    }
  }
};

template <Wide type>
__device__ void fetchRows(const NormBackwardParams& p, const Share<type>& share) {
  using Storage = typename Share<type>::Storage;
  const RingShape& shape = share.shape;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const auto visit = [&](RingPosition position, int64_t row, int count) {
    uint64_t* filled = share.ring.filled + position.slot;
    awaitPhase(share.ring.emptied + position.slot, position.parity ^ 1);
    if (lane < count) {
      float2* statistics = share.ring.statistics + position.slot * shape.group + lane;
      if (p.mean) __pipeline_memcpy_async(&statistics->x, p.mean + row + lane, sizeof(float));
      __pipeline_memcpy_async(&statistics->y, p.rstd + row + lane, sizeof(float));
    }
    const auto fetch = [&](Storage* to, const void* matrix) {
      const Storage* from = static_cast<const Storage*>(matrix) + row * p.columns + share.offset;
      fetchLines(filled, to, shape.columns, from, p.columns, count, share.width);
    };
    fetch(share.x(position.slot), p.x);
    fetch(share.grad(position.slot), p.grad);
    arriveFetched(filled);
  };
  share.walk(visit, [](int64_t) {});
}

// Computes the means (a, b) of rows. Each of the kSumWarps warps calls it; rows are assigned to these warps
// round-robin. A warp receives the partial sums of a row from the preceding block of the cluster and sends its own to
// the next block. The last block sends the means to all blocks.
template <Wide type>
__device__ void sumRows(const NormBackwardParams& p, const Share<type>& share, int warp) {
  using Element = WideOf<type>;
  using Storage = typename Element::Storage;
  Ring& ring = share.ring;
  const int clusterSize = share.shape.clusterSize;
  const int clusterRank = static_cast<int>(blockIdx.x) % clusterSize;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const float length = static_cast<float>(p.columns);
  int next = 0;
  const auto sumRow = [&](RingPosition position, int r) {
    const int at = position.slot * share.shape.group + r;
    const Storage* x = share.x(position.slot) + r * share.shape.columns;
    const Storage* grad = share.grad(position.slot) + r * share.shape.columns;
    const auto [center, scale] = ring.statistics[at];
    float2 sums{0.0f, 0.0f};
    if (clusterRank > 0) {
      if (lane == 0) arriveExpecting(ring.carried + at, sizeof(ring.carries[at]));
      awaitPhaseOfCluster(ring.carried + at, position.parity);
      sums = ring.carries[at][lane];
    }
    struct Item {
      Storage x;
      Storage grad;
      float gamma;
    };
    const auto load = [&](int i) { return Item{x[i], grad[i], share.gamma[i]}; };
    walkLanes<8>(share.width, load, [&](Item item) {
      const float y = (Element::load(item.x) - center) * scale;
      const float d = Element::load(item.grad) * item.gamma;
      sums.x += d;
      sums.y += d * y;
    });
    uint64_t* summed = ring.summed + position.slot;
    if (clusterSize > 1 && lane == 0) arriveExpecting(summed, sizeof(float2));
    if (clusterRank + 1 < clusterSize)
      return sendPair(clusterRank + 1, &ring.carries[at][lane], ring.carried + at, sums);
    const float2 means{p.mean ? foldLanes(sums.x) / length : 0.0f, foldLanes(sums.y) / length};
    if (clusterSize > 1) {
      if (lane < clusterSize) sendPair(lane, ring.means + at, summed, means);
    } else if (lane == 0) {
      ring.means[at] = means;
      __mbarrier_arrive(summed);
    }
  };
  const auto visit = [&](RingPosition position, int64_t, int count) {
    awaitPhase(ring.filled + position.slot, position.parity);
    for (int r = 0; r < share.shape.group; ++r) {
      if (next == warp) {
        if (r < count) {
          sumRow(position, r);
        } else if (lane == 0) {
          __mbarrier_arrive(ring.summed + position.slot);
        }
      }
      next = next + 1 == kSumWarps ? 0 : next + 1;
    }
    __syncwarp();
    if (lane == 0) __mbarrier_arrive(ring.emptied + position.slot);
  };
  share.walk(visit, [](int64_t) {});
}

// Stores the column sums of a chunk of 32 rows. A cache hint keeps them in the L2 cache until the second kernel
// (foldKernel) reads them.
__device__ inline void keepSums(float* to, const float (&sums)[kPack]) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
#pragma unroll
  for (int i = 0; i < kPack; i += 4) {
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to + i), "f"(sums[i]),
                 "f"(sums[i + 1]), "f"(sums[i + 2]), "f"(sums[i + 3]), "l"(policy)
                 : "memory");
  }
}

// Computes dx = scale * (d + (y * -b - a)) of the rows in the ring, where y = (x - center) * scale and d = grad *
// gamma. The values (center, scale) and (a, b) of a row are in `ring`. If `summed`, also computes the column sums of
// grad and of y * grad of each chunk of rows. Called by the result threads.
template <Wide type, int known, bool summed>
__device__ void workRows(const NormBackwardParams& p, const Share<type>& share) {
  const Ring& ring = share.ring;
  const int mine = static_cast<int>(threadIdx.x) * kPack;
  const bool used = mine < share.width;
  float gamma[kPack] = {};
  float weighted[kPack] = {};
  float plain[kPack] = {};
  if (used) loadElements(share.gamma, Wide::kF32, mine, gamma);
  const auto visit = [&](RingPosition position, int64_t row, int count) {
    if (share.shape.clusterSize > 1) {
      awaitPhaseOfCluster(share.ring.summed + position.slot, position.parity);
    } else {
      awaitPhase(share.ring.summed + position.slot, position.parity);
    }
    int64_t to = row * p.columns + share.offset + mine;
    int from = mine;
    for (int r = 0; r < count && used; ++r) {
      const auto [center, scale] = ring.statistics[position.slot * share.shape.group + r];
      const auto [a, b] = ring.means[position.slot * share.shape.group + r];
      float x[kPack];
      float grad[kPack];
      loadElements(share.x(position.slot), type, from, x);
      loadElements(share.grad(position.slot), type, from, grad);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const float y = (x[i] - center) * scale;
        if constexpr (summed) {
          weighted[i] += y * grad[i];
          plain[i] += grad[i];
        }
        x[i] = (grad[i] * gamma[i] + (y * -b - a)) * scale;
      }
      storeElements(p.dx, typeOr<known>(p.dxType), to, x);
      from += share.shape.columns;
      to += p.columns;
    }
    __syncwarp();
    if (threadIdx.x % kLanes == 0) __mbarrier_arrive(share.ring.emptied + position.slot);
  };
  const auto finish = [&](int64_t begin) {
    if constexpr (summed) {
      const int64_t to = begin / kChunkRows * p.columns + share.offset + mine;
      if (used) keepSums(p.workspace + to, weighted);
      if (used && p.dbeta) keepSums(p.workspace + chunksOf(p.rows) * p.columns + to, plain);
#pragma unroll
      for (int i = 0; i < kPack; ++i) weighted[i] = plain[i] = 0;
    }
  };
  share.walk(visit, finish);
}

// `type` is the type of x and grad; `known` is the type of dx, or kAnyType. Rows are whole packs of kPack elements, at
// most one pack for each thread that computes dx. If `summed`, the column sums of each 32 rows are written to the
// workspace.
template <Wide type, int known, bool summed>
__global__ void __launch_bounds__(kMaxResultThreads + kOtherThreads)
    ringKernel(const NormBackwardParams p, const RingShape shape) {
  extern __shared__ Bytes16 shared[];
  Ring& ring = *reinterpret_cast<Ring*>(shared);
  float* gamma = reinterpret_cast<float*>(&ring + 1);
  auto* slots = reinterpret_cast<typename Share<type>::Storage*>(gamma + shape.columns);
  const int offset = static_cast<int>(blockIdx.x) % shape.clusterSize * shape.columns;
  const int width = min(shape.columns, static_cast<int>(p.columns) - offset);
  const Share<type> share{ring, shape, gamma, slots, offset, width, p.rows, summed ? kChunkRows : shape.group};
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x) - kOtherThreads;
  if (thread < shape.slots) {
    __mbarrier_init(ring.filled + thread, kLanes);
    __mbarrier_init(ring.summed + thread, shape.group);
    __mbarrier_init(ring.emptied + thread, threads / kLanes + kSumWarps);
    for (int r = 0; r < shape.group; ++r) __mbarrier_init(ring.carried + thread * shape.group + r, 1);
  }
  if (thread < kMaxRows) ring.statistics[thread].x = 0;
  awaitPrevious();
  const float shift = p.zeroCentered ? 1.0f : -0.0f;
  for (int i = thread; i < width; i += static_cast<int>(blockDim.x)) {
    gamma[i] = loadElement(p.gamma, p.gammaType, offset + i) + shift;
  }
  showInitialized();
  __syncthreads();
  syncCluster();
  letNextStart();
  const int other = thread - threads;
  if (other < 0) {
    workRows<type, known, summed>(p, share);
  } else if (other < kSumWarps * kLanes) {
    sumRows(p, share, other / kLanes);
  } else {
    fetchRows(p, share);
  }
  __syncwarp();
  syncCluster();
}

}  // namespace lockstep
