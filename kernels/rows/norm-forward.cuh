// The forward pass of the norms, wherever its results go. Rows run through a ring in shared memory and are read once: one
// warp fetches them, others form the sums of a row each, and the rest work the results, whose threads keep the parameters of
// their columns.
#pragma once

#include <algorithm>

#include "kernels/device/dependent.cuh"
#include "kernels/device/ring.cuh"
#include "kernels/rows/norm-statistics.cuh"

namespace lockstep {

// Warps of a block where rows lie.
constexpr int kMostWarps = 12;

// Of a block: warps that sum, and threads, at most, that work results.
constexpr int kForwardSumWarps = 8;
constexpr int kForwardOtherThreads = (kForwardSumWarps + 1) * kLanes;
constexpr int kForwardResultThreads = 512;

// Of a slot, if it holds several rows.
constexpr int64_t kForwardSlotBytes = 32 * 1024;
// Slots that a multiprocessor then gets, at least, for an even load.
constexpr int64_t kForwardTurns = 4;

// Rows of a slot from which on those of RMSNorm are not beside each other.
constexpr int kForwardApart = 4;

// Slots of a ring and rows of a slot, at most.
constexpr int kForwardSlots = 16;
constexpr int kForwardGroup = 8;

// What the warps of a block tell each other; a barrier for each slot.
struct ForwardRing {
  uint64_t filled[kForwardSlots];
  uint64_t summed[kForwardSlots];
  uint64_t emptied[kForwardSlots];
  Statistics statistics[kForwardSlots * kForwardGroup];
};

struct ForwardShape {
  int slots;
  // Rows of a slot.
  int group;
  // Threads that work a row, and rows that are worked at once.
  int across;
  int down;
  // From one row of a slot to the next: 1, or the number of blocks.
  int apart;
};

// Calls visit(turn, row, count) for the slots of this block: `count` rows from `row` on, shape.apart apart.
template <typename Visit>
__device__ void walkSlots(const ForwardShape& shape, int64_t rows, Visit visit) {
  Turn turn;
  const int64_t step = static_cast<int64_t>(gridDim.x) * shape.group;
  const int64_t last = static_cast<int64_t>(shape.group - 1) * shape.apart;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * (shape.apart == 1 ? shape.group : 1); row < rows; row += step) {
    visit(turn, row, row + last < rows ? shape.group : static_cast<int>(ceilDivide(rows - row, shape.apart)));
    turn.next(shape.slots);
  }
}

// The results of rows whose sums are known. Rows are whole packs, at most `packs` of each thread, which keeps their
// parameters; any number where that is 0. Without `layer` there is neither mean nor beta.
template <Wide type, int known, int packs, bool layer, typename Results>
__device__ void workNorms(const NormParams& p, Results& results, const ForwardShape& shape, ForwardRing& ring,
                          const typename WideOf<type>::Storage* slots) {
  const auto columns = static_cast<int>(p.columns);
  const int all = columns / kPack;
  const int thread = static_cast<int>(threadIdx.x);
  const int down = thread / shape.across;
  const int mine = thread - down * shape.across;
  const bool used = down < shape.down;
  const Wide parameterType = typeOr<known>(p.parameterType);
  constexpr int kKept = packs > 0 ? packs : 1;
  float g[kKept][kPack];
  float b[kKept][kPack];
  const auto keepParameters = [&](int i, int pack) {
    loadElements(p.gamma, parameterType, pack * kPack, g[i]);
    const float shift = p.zeroCentered ? 1.0f : -0.0f;
#pragma unroll
    for (float& factor : g[i]) factor += shift;
    if constexpr (layer) {
#pragma unroll
      for (float& term : b[i]) term = -0.0f;  // leaves every sum as it is
      if (p.beta) loadElements(p.beta, parameterType, pack * kPack, b[i]);
    }
  };
  const auto work = [&](Turn turn, int64_t row, int r, int i, int pack) {
    float y[kPack];
    loadElements(slots + (turn.slot * shape.group + r) * columns, type, pack * kPack, y);
    const auto [center, scale] = ring.statistics[turn.slot * shape.group + r];
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      if constexpr (layer) {
        y[k] = (y[k] - center) * scale * g[i][k] + b[i][k];
      } else {
        y[k] = y[k] * scale * g[i][k];
      }
    }
    results.store((row + r * shape.apart) * columns + pack * kPack, y);
  };
  if constexpr (packs > 0) {
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      if (used && mine + i * shape.across < all) keepParameters(i, mine + i * shape.across);
    }
  }
  walkSlots(shape, p.rows, [&](Turn turn, int64_t row, int count) {
    awaitPhase(ring.summed + turn.slot, turn.parity);
    if constexpr (packs > 0) {
      for (int r = down; r < count && used; r += shape.down) {
#pragma unroll
        for (int i = 0; i < packs; ++i) {
          const int pack = mine + i * shape.across;
          if (i == 0 || pack < all) work(turn, row, r, i, pack);
        }
      }
    } else {
      for (int pack = mine; pack < all; pack += shape.across) {
        keepParameters(0, pack);
        for (int r = 0; r < count; ++r) work(turn, row, r, 0, pack);
      }
    }
    __syncwarp();
    if (thread % kLanes == 0) __mbarrier_arrive(ring.emptied + turn.slot);
  });
}

// `known` is the type of the parameters, or kAnyType. Results has begin() and end(), which all threads call, and
// store(index, y), which takes a pack or one.
template <Wide type, int known, int packs, typename Results>
__global__ void __launch_bounds__(kForwardResultThreads + kForwardOtherThreads)
    ringNormKernel(const NormParams p, Results results, const ForwardShape shape) {
  using Storage = typename WideOf<type>::Storage;
  extern __shared__ Bytes16 shared[];
  ForwardRing& ring = *reinterpret_cast<ForwardRing*>(shared);
  auto* slots = reinterpret_cast<Storage*>(&ring + 1);
  const auto columns = static_cast<int>(p.columns);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  const int threads = static_cast<int>(blockDim.x) - kForwardOtherThreads;
  const auto slot = [&](Turn turn) { return slots + turn.slot * shape.group * columns; };
  if (thread < shape.slots) {
    __mbarrier_init(ring.filled + thread, kLanes);
    __mbarrier_init(ring.summed + thread, shape.group);
    __mbarrier_init(ring.emptied + thread, threads / kLanes + kForwardSumWarps);
  }
  showInitialized();
  awaitPrevious();
  __syncthreads();
  letNextStart();
  results.begin();
  if (thread < threads) {
    if (p.mean || p.beta) {
      workNorms<type, known, packs, true>(p, results, shape, ring, slots);
    } else {
      workNorms<type, known, packs, false>(p, results, shape, ring, slots);
    }
  } else if (thread < threads + kForwardSumWarps * kLanes) {
    const int warp = (thread - threads) / kLanes;
    int next = 0;
    walkSlots(shape, p.rows, [&](Turn turn, int64_t row, int count) {
      awaitPhase(ring.filled + turn.slot, turn.parity);
      for (int r = 0; r < shape.group; ++r) {
        if (next == warp) {
          if (r < count) {
            Statistics found;
            if constexpr (type != Wide::kF32) {
              found = statisticsOfMatrices<type>(p, slot(turn) + r * columns);
            } else {
              found = statisticsOf<type, int>(p, slot(turn) + r * columns);
            }
            if (lane == 0) save(p, row + r * shape.apart, ring.statistics[turn.slot * shape.group + r] = found);
          }
          if (lane == 0) __mbarrier_arrive(ring.summed + turn.slot);
        }
        next = next + 1 == kForwardSumWarps ? 0 : next + 1;
      }
      __syncwarp();
      if (lane == 0) __mbarrier_arrive(ring.emptied + turn.slot);
    });
  } else {
    walkSlots(shape, p.rows, [&](Turn turn, int64_t row, int count) {
      uint64_t* filled = ring.filled + turn.slot;
      awaitPhase(ring.emptied + turn.slot, turn.parity ^ 1);
      fetchLines(filled, slot(turn), columns, static_cast<const Storage*>(p.x) + row * columns,
                 static_cast<int64_t>(shape.apart) * columns, count, columns);
      arriveFetched(filled);
    });
  }
  __syncwarp();
  results.end();
}

// A warp works a row where it lies, its threads the 32 lanes of the sums.
template <Wide type, typename Results>
__global__ void __launch_bounds__(kMostWarps* kLanes) normKernel(const NormParams p, Results results) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kMostWarps;
  const float shift = p.zeroCentered ? 1.0f : -0.0f;
  results.begin();
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kMostWarps + threadIdx.x / kLanes; row < p.rows; row += step) {
    const void* x = static_cast<const typename WideOf<type>::Storage*>(p.x) + row * p.columns;
    const auto [center, scale] = statisticsOf<type, int64_t>(p, x);
    if (lane == 0) save(p, row, {center, scale});
#pragma unroll 8
    for (int64_t i = lane; i < p.columns; i += kLanes) {
      const float g = loadElement(p.gamma, p.parameterType, i) + shift;
      const float b = p.beta ? loadElement(p.beta, p.parameterType, i) : -0.0f;
      const float y[1] = {(loadElement(x, type, i) - center) * scale * g + b};
      results.store(row * p.columns + i, y);
    }
  }
  results.end();
}

struct ForwardPlan {
  // Without slots where rows do not fit.
  ForwardShape shape;
  int packs;
  unsigned threads;
  int64_t bytes;
};

// For rows that are whole packs of which two fit shared memory beside what kernels declare.
inline ForwardPlan forwardPlan(int64_t rows, int64_t columns, int64_t elementBytes, int64_t sharedBytes,
                               int64_t multiprocessors) {
  const int64_t room = sharedBytes - kReservedBytes - static_cast<int64_t>(sizeof(ForwardRing));
  if (rows == 0 || columns == 0 || columns % kPack != 0 || columns > room) return {};
  const int64_t rowBytes = columns * elementBytes;
  const int64_t most = std::min<int64_t>(kForwardGroup, rows / (kForwardTurns * multiprocessors));
  const int64_t slotBytes = std::min(kForwardSlotBytes, room / 2);
  int group = 1;
  while (2 * group <= most && 2 * group * rowBytes <= slotBytes) group *= 2;
  const auto slots = static_cast<int>(std::min<int64_t>(room / (group * rowBytes), kForwardSlots));
  if (slots < 2) return {};
  const auto all = static_cast<int>(columns / kPack);
  const auto packs = static_cast<int>(ceilDivide(all, kForwardResultThreads));
  const int across = packs <= 2 ? static_cast<int>(ceilDivide(all, packs)) : kForwardResultThreads;
  const int down = packs == 1 ? std::min(group, kForwardResultThreads / across) : 1;
  const auto threads = static_cast<unsigned>(ceilDivide(across * down, kLanes) * kLanes + kForwardOtherThreads);
  const int64_t bytes = static_cast<int64_t>(sizeof(ForwardRing)) + slots * group * rowBytes;
  return {{slots, group, across, down, 1}, packs, threads, bytes};
}

template <Wide type, int known, int packs, typename Results>
void launchRing(const NormParams& p, const Results& results, const ForwardPlan& plan, cudaStream_t stream) {
  const auto kernel = ringNormKernel<type, known, packs, Results>;
  const int64_t most = residentBlocks(kernel, plan.threads, plan.bytes);
  ForwardShape shape = plan.shape;
  const auto blocks = static_cast<int>(std::min(ceilDivide(p.rows, shape.group), most));
  // no block then has more than one row more than another, which measured faster where sums are of one pass
  if (p.mean == nullptr && shape.group >= kForwardApart) shape.apart = blocks;
  launchDependent(kernel, static_cast<unsigned>(blocks), plan.threads, static_cast<int>(plan.bytes), stream, p, results,
                  shape);
}

// Works rows that have a plan; false where there is none.
template <Wide type, int known, typename Results>
bool tryRing(const NormParams& p, const Results& results, cudaStream_t stream) {
  const ForwardPlan plan =
      forwardPlan(p.rows, p.columns, elementBytes(type), limitsOfDevice().sharedBytes, multiprocessors());
  if (plan.shape.slots == 0) return false;
  if (plan.packs == 1) {
    launchRing<type, known, 1>(p, results, plan, stream);
  } else if (plan.packs == 2) {
    launchRing<type, known, 2>(p, results, plan, stream);
  } else {
    launchRing<type, known, 0>(p, results, plan, stream);
  }
  return true;
}

// One block where there are no rows, for what begin and end do.
template <Wide type, typename Results>
void launchWhereRowsLie(const NormParams& p, const Results& results, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(ceilDivide(p.rows, kMostWarps), 1, 1 << 30));
  normKernel<type><<<blocks, kMostWarps * kLanes, 0, stream>>>(p, results);
}

}  // namespace lockstep
