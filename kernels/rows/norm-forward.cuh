// The forward pass of the norms. `Results` stores the results, as values or as codes. Warp roles in a block: one warp
// fetches rows into the slots of a ring (kernels/device/ring.cuh), so that each row is read once; kForwardSumWarps
// warps compute the statistics, one row per warp; the other threads, called result threads, compute the results and
// keep the parameters of their columns in registers. If there is a counter (NormParams::tickets), blocks draw the
// numbers of their slots from it. This balances the load, because some multiprocessors have less memory bandwidth than
// others. Rows for which there is no such ring are computed by `normKernel`, one warp per row, from global memory.
#pragma once

#include <algorithm>

#include "kernels/device/pdl.cuh"
#include "kernels/device/ring.cuh"
#include "kernels/rows/norm-statistics.cuh"

namespace lockstep {

// The maximum number of warps per block of normKernel.
constexpr int kMaxWarps = 12;

// The number of warps that compute statistics.
constexpr int kForwardSumWarps = 8;
// The number of threads of a block that do not compute results: the warps that compute statistics, and the one that
// fetches.
constexpr int kForwardOtherThreads = (kForwardSumWarps + 1) * kLanes;
// The maximum number of threads of a block that compute results (result threads).
constexpr int kForwardResultThreads = 512;

// The maximum number of bytes of a slot of the ring buffer, if the slot holds several rows.
constexpr int64_t kForwardSlotBytes = 32 * 1024;
// The minimum number of slots per multiprocessor. With fewer, a slot gets fewer rows, so that the load stays balanced.
constexpr int64_t kForwardMinSlots = 4;

constexpr int64_t kNoRow = -1;
// The maximum number of rows, so that slot numbers of the ring buffer fit in 32 bits.
constexpr int64_t kForwardMostRows = INT64_C(1) << 31;

// The maximum number of slots of a ring buffer, and of rows per slot.
constexpr int kForwardSlots = 16;
constexpr int kForwardGroup = 8;

// Shared memory through which the warps of a block communicate. `filled`, `summed` and `emptied` have one mbarrier per
// slot.
struct ForwardRing {
  // The first row in each slot of the ring buffer; kNoRow marks the end of the block's slots.
  int64_t rows[kForwardSlots];
  uint64_t filled[kForwardSlots];
  uint64_t summed[kForwardSlots];
  uint64_t emptied[kForwardSlots];
  Statistics statistics[kForwardSlots * kForwardGroup];
};

struct ForwardShape {
  int slots;
  // The number of rows per slot of the ring.
  int group;
  // `across` result threads compute one row, and `down` rows are computed at the same time.
  int across;
  int down;
};

// Determines which slots a block fills; one warp calls it. If the ring has n slots, the first n numbers of a block are
// blockIdx.x, blockIdx.x + gridDim.x and so on. The block draws all later numbers from the counter `tickets`; without a
// counter it continues with stride gridDim.x. The counter is 0 before and after the kernel: each block draws exactly
// one number beyond the last slot, and the last of these draws wraps the counter to 0.
class SlotNumbers {
 public:
  __device__ SlotNumbers(const NormParams& p, const ForwardShape& shape)
      : tickets_(p.tickets),
        all_(static_cast<uint32_t>(ceilDivide(p.rows, shape.group))),
        number_(blockIdx.x),
        first_(gridDim.x * shape.slots),
        left_(tickets_ == nullptr || all_ <= first_ ? INT32_MAX : shape.slots - 1) {}

  // The number of the current slot of rows, and whether there are rows for it.
  __device__ uint32_t number() const { return number_; }
  __device__ bool exists() const { return number_ < all_; }

  // Draws the number of the next slot of rows from the counter, unless that number is determined without it. The drawn
  // number is used after the current slot has been fetched.
  __device__ void prepareNext() {
    if (left_ == 0 && threadIdx.x % kLanes == 0) ticket_ = atomicInc(tickets_, all_ - first_ + gridDim.x - 1);
  }

  // Advances to the next slot of rows.
  __device__ void next() {
    if (left_ == 0) {
      number_ = first_ + __shfl_sync(kFullMask, ticket_, 0);
    } else {
      number_ += gridDim.x;
      --left_;
    }
  }

 private:
  uint32_t* tickets_;
  uint32_t all_;
  uint32_t number_;
  // The smallest slot number that is drawn from the counter.
  uint32_t first_;
  // How many slot numbers after the current one are determined without the counter.
  int left_;
  uint32_t ticket_ = 0;
};

// Calls await(position) and then visit(position, row, count) for each slot of the ring buffer that this block fills
// with rows row, row + 1, ..., row + count - 1. After the last slot it calls both once more, with a count of 0.
template <typename Await, typename Visit>
__device__ void walkSlots(const ForwardShape& shape, const ForwardRing& ring, int64_t rows, Await await, Visit visit) {
  for (RingPosition position;; position.next(shape.slots)) {
    await(position);
    const int64_t row = ring.rows[position.slot];
    if (row == kNoRow) return visit(position, row, 0);
    visit(position, row, row + shape.group <= rows ? shape.group : static_cast<int>(rows - row));
  }
}

// Computes the results of rows whose statistics are known. Rows are whole packs. If `packs` is not 0, each thread has
// at most that many packs of a row and keeps the parameters of these columns in registers. If `packs` is 0, there may
// be any number of packs. Without `layer` (RMSNorm without beta) there is no mean and no beta.
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
      for (float& term : b[i]) term = -0.0f;  // adding -0 changes no value
      if (p.beta) loadElements(p.beta, parameterType, pack * kPack, b[i]);
    }
  };
  const auto work = [&](RingPosition position, int64_t row, int r, int i, int pack) {
    float y[kPack];
    loadElements(slots + (position.slot * shape.group + r) * columns, type, pack * kPack, y);
    const auto [center, scale] = ring.statistics[position.slot * shape.group + r];
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      if constexpr (layer) {
        y[k] = (y[k] - center) * scale * g[i][k] + b[i][k];
      } else {
        y[k] = y[k] * scale * g[i][k];
      }
    }
    results.store((row + r) * columns + pack * kPack, y);
  };
  if constexpr (packs > 0) {
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      if (used && mine + i * shape.across < all) keepParameters(i, mine + i * shape.across);
    }
  }
  const auto summed = [&](RingPosition position) { awaitPhase(ring.summed + position.slot, position.parity); };
  walkSlots(shape, ring, p.rows, summed, [&](RingPosition position, int64_t row, int count) {
    if (count == 0) return;
    if constexpr (packs > 0) {
      for (int r = down; r < count && used; r += shape.down) {
#pragma unroll
        for (int i = 0; i < packs; ++i) {
          const int pack = mine + i * shape.across;
          if (i == 0 || pack < all) work(position, row, r, i, pack);
        }
      }
    } else {
      // Rows that need more than two packs (of kPack elements) per result thread are too long to share a slot.
      constexpr int64_t kShortest = (2 * kForwardResultThreads + 1) * kPack * sizeof(typename WideOf<type>::Storage);
      static_assert(2 * kShortest > kForwardSlotBytes);
      for (int pack = mine; pack < all; pack += shape.across) {
        keepParameters(0, pack);
        work(position, row, 0, 0, pack);
      }
    }
    __syncwarp();
    if (thread % kLanes == 0) __mbarrier_arrive(ring.emptied + position.slot);
  });
}

// `known` is the type of the parameters, or kAnyType. Results provides begin() and end(), which all threads call, and
// store(index, y), which stores a pack of kPack values or a single value.
template <Wide type, int known, int packs, typename Results>
__global__ void __launch_bounds__(kForwardResultThreads + kForwardOtherThreads, 1)
    ringNormKernel(const NormParams p, Results results, const ForwardShape shape) {
  using Storage = typename WideOf<type>::Storage;
  extern __shared__ Bytes16 shared[];
  ForwardRing& ring = *reinterpret_cast<ForwardRing*>(shared);
  auto* slots = reinterpret_cast<Storage*>(&ring + 1);
  const auto columns = static_cast<int>(p.columns);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  const int threads = static_cast<int>(blockDim.x) - kForwardOtherThreads;
  const auto slot = [&](RingPosition position) { return slots + position.slot * shape.group * columns; };
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
    const auto filled = [&](RingPosition position) { awaitPhase(ring.filled + position.slot, position.parity); };
    walkSlots(shape, ring, p.rows, filled, [&](RingPosition position, int64_t row, int count) {
      for (int r = 0; r < shape.group; ++r) {
        if (next == warp) {
          if (r < count) {
            Statistics statistics;
            if constexpr (type != Wide::kF32) {
              statistics = statisticsOfMatrices<type>(p, slot(position) + r * columns);
            } else {
              statistics = statisticsOf<type, int>(p, slot(position) + r * columns);
            }
            if (lane == 0) save(p, row + r, ring.statistics[position.slot * shape.group + r] = statistics);
          }
          if (lane == 0) __mbarrier_arrive(ring.summed + position.slot);
        }
        next = next + 1 == kForwardSumWarps ? 0 : next + 1;
      }
      __syncwarp();
      if (lane == 0) __mbarrier_arrive(ring.emptied + position.slot);
    });
  } else {
    RingPosition position;
    for (SlotNumbers numbers(p, shape);; numbers.next()) {
      uint64_t* filled = ring.filled + position.slot;
      awaitPhase(ring.emptied + position.slot, position.parity ^ 1);
      const int64_t row = numbers.exists() ? int64_t{numbers.number()} * shape.group : kNoRow;
      if (lane == 0) ring.rows[position.slot] = row;
      if (row != kNoRow) {
        fetchLines(filled, slot(position), columns, static_cast<const Storage*>(p.x) + row * columns, columns,
                   static_cast<int>(min(p.rows - row, int64_t{shape.group})), columns);
      }
      arriveFetched(filled);
      if (row == kNoRow) break;
      numbers.prepareNext();
      position.next(shape.slots);
    }
  }
  __syncwarp();
  results.end();
}

// One warp computes one row, which it reads from global memory. Its threads are the lanes of the sums.
template <Wide type, typename Results>
__global__ void __launch_bounds__(kMaxWarps* kLanes) normKernel(const NormParams p, Results results) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kMaxWarps;
  const float shift = p.zeroCentered ? 1.0f : -0.0f;
  results.begin();
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kMaxWarps + threadIdx.x / kLanes; row < p.rows; row += step) {
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
  // The number of slots is 0 if the ring kernel cannot be used: if there are no rows or columns, if the number of
  // columns is not a multiple of kPack, or if fewer than 2 slots fit in shared memory.
  ForwardShape shape;
  int packs;
  unsigned threads;
  int64_t bytes;
};

// Plans the ring buffer for rows that are whole packs (of kPack elements). At least two slots must fit in shared memory
// in addition to kReservedBytes and the ForwardRing.
inline ForwardPlan forwardPlan(int64_t rows, int64_t columns, int64_t elementBytes, int64_t sharedBytes,
                               int64_t multiprocessors) {
  const int64_t room = sharedBytes - kReservedBytes - static_cast<int64_t>(sizeof(ForwardRing));
  if (rows == 0 || rows > kForwardMostRows || columns == 0 || columns % kPack != 0 || columns > room) return {};
  const int64_t rowBytes = columns * elementBytes;
  const int64_t most = std::min<int64_t>(kForwardGroup, rows / (kForwardMinSlots * multiprocessors));
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
  return {{slots, group, across, down}, packs, threads, bytes};
}

template <Wide type, int known, int packs, typename Results>
void launchRing(const NormParams& p, const Results& results, const ForwardPlan& plan, cudaStream_t stream) {
  const auto kernel = ringNormKernel<type, known, packs, Results>;
  const int64_t most = residentBlocks(kernel, plan.threads, plan.bytes);
  const auto blocks = static_cast<unsigned>(std::min(ceilDivide(p.rows, plan.shape.group), most));
  launchPdl(kernel, blocks, plan.threads, static_cast<int>(plan.bytes), stream, p, results, plan.shape);
}

// Launches the ring kernel if there is a plan for these rows. Otherwise returns false.
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

// Launches normKernel. An empty tensor also has one block, which calls begin and end.
template <Wide type, typename Results>
void launchDirect(const NormParams& p, const Results& results, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(ceilDivide(p.rows, kMaxWarps), 1, 1 << 30));
  normKernel<type><<<blocks, kMaxWarps * kLanes, 0, stream>>>(p, results);
}

}  // namespace lockstep
