// The forward pass of the norms, wherever its results go. Rows run through a ring in shared memory and are read once: one
// warp fetches them, others form the sums of a row each, and the rest work the results, whose threads keep the parameters of
// their columns.
#pragma once

#include <algorithm>

#include "kernels/dependent.cuh"
#include "kernels/norm.cuh"
#include "kernels/norm.h"
#include "kernels/ring.cuh"

#ifndef NORM_SUM_WARPS
#define NORM_SUM_WARPS 6
#endif
#ifndef NORM_RESULT_THREADS
#define NORM_RESULT_THREADS 512
#endif
#ifndef NORM_SLOT_BYTES
#define NORM_SLOT_BYTES 8192
#endif
#ifndef NORM_BLOCKS
#define NORM_BLOCKS 1
#endif
#ifndef NORM_RANGE
#define NORM_RANGE 0
#endif
#ifndef NORM_MATRIX
#define NORM_MATRIX 1
#endif
#ifndef NORM_SLOTS
#define NORM_SLOTS 32
#endif

namespace lockstep {

// Warps of a block where rows lie.
constexpr int kMostWarps = 12;

// Of a block: warps that sum, and threads, at most, that work results.
constexpr int kForwardSumWarps = NORM_SUM_WARPS;
constexpr int kForwardOtherThreads = (kForwardSumWarps + 1) * kLanes;
constexpr int kForwardResultThreads = NORM_RESULT_THREADS;

// Of a slot, if it holds several rows.
constexpr int64_t kForwardSlotBytes = NORM_SLOT_BYTES;

struct Statistics {
  float center;
  float scale;
};

// The statistics of a row by a warp, its threads the lanes of the sums; `Index` counts the elements at `x`.
template <Wide type, typename Index>
__device__ Statistics statisticsOf(const NormParams& p, const void* x) {
  using Element = WideOf<type>;
  const auto columns = static_cast<Index>(p.columns);
  const float length = static_cast<float>(p.columns);
  const auto load = [&](Index i) { return static_cast<const typename Element::Storage*>(x)[i]; };
  Statistics result{};
  float sum = 0;
  if (p.mean) {
    walkLanes<16>(columns, load, [&](auto element) { sum += Element::load(element); });
    result.center = foldLanes(sum) / length;
    sum = 0;
  }
  walkLanes<16>(columns, load, [&](auto element) {
    const float away = Element::load(element) - result.center;
    sum += away * away;
  });
  result.scale = 1.0f / __fsqrt_rn(foldLanes(sum) / length + p.epsilon);
  return result;
}

// The sum of the lanes, in every thread of a warp whose thread t is lane 8 (t % 4) + t / 4.
__device__ inline float foldMatrixLanes(float sum) {
#pragma unroll
  for (const int step : {2, 1, 16, 8, 4}) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

// Calls add(x[i]) for the elements of those lanes, 16-bit ones in shared memory; `columns` is a multiple of 8.
template <Wide type, typename Add>
__device__ inline void walkMatrices(int columns, const void* x, Add add) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int row = lane % 8;
  // rows 2c and 2c + 1 of matrix j are elements 8c on of the 64j and the 64j + 32 ones
  const auto* from = static_cast<const uint16_t*>(x) + row / 2 * 8 + row % 2 * 32 + lane / 8 * 64;
  int i = 0;
  const auto eight = [&](const uint32_t (&words)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      add(lowOf<type>(words[k]));
      add(highOf<type>(words[k]));
    }
  };
#pragma unroll 2
  for (; i + 512 <= columns; i += 512) {
    uint32_t words[2][4];
    loadDown(from + i, words[0]);
    loadDown(from + i + 256, words[1]);
    eight(words[0]);
    eight(words[1]);
  }
  const auto* elements = static_cast<const typename WideOf<type>::Storage*>(x);
  for (i += lane % 4 * 8 + lane / 4; i < columns; i += kLanes) add(WideOf<type>::load(elements[i]));
}

// The same of a row in shared memory.
template <Wide type>
__device__ Statistics statisticsOfMatrices(const NormParams& p, const void* x) {
  const auto columns = static_cast<int>(p.columns);
  const float length = static_cast<float>(p.columns);
  Statistics result{};
  float sum = 0;
  if (p.mean) {
    walkMatrices<type>(columns, x, [&](float element) { sum += element; });
    result.center = foldMatrixLanes(sum) / length;
    sum = 0;
    walkMatrices<type>(columns, x, [&](float element) {
      const float away = element - result.center;
      sum += away * away;
    });
  } else {
    walkMatrices<type>(columns, x, [&](float element) { sum += element * element; });
  }
  result.scale = 1.0f / __fsqrt_rn(foldMatrixLanes(sum) / length + p.epsilon);
  return result;
}

__device__ inline void save(const NormParams& p, int64_t row, Statistics found) {
  if (p.mean) p.mean[row] = found.center;
  p.rstd[row] = found.scale;
}

// Slots of a ring, and rows in it, at most.
constexpr int kForwardSlots = 32;
constexpr int kForwardRows = 64;

// What the warps of a block tell each other; a barrier for each slot.
struct ForwardRing {
  uint64_t filled[kForwardSlots];
  uint64_t summed[kForwardSlots];
  uint64_t emptied[kForwardSlots];
  Statistics statistics[kForwardRows];
};

struct ForwardShape {
  int slots;
  // Rows of a slot.
  int group;
  // Threads that work a row, and rows that are worked at once.
  int across;
  int down;
};

// Calls visit(turn, row, count) for the slots of this block: `count` rows from `row` on, stepOfRows() apart.
#if NORM_RANGE == 0
__device__ inline int64_t stepOfRows() { return 1; }
template <typename Visit>
__device__ void walkSlots(const ForwardShape& shape, int64_t rows, Visit visit) {
  Turn turn;
  const int64_t step = static_cast<int64_t>(gridDim.x) * shape.group;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * shape.group; row < rows; row += step) {
    visit(turn, row, static_cast<int>(min(rows - row, int64_t{shape.group})));
    turn.next(shape.slots);
  }
}
#elif NORM_RANGE == 1
__device__ inline int64_t stepOfRows() { return 1; }
template <typename Visit>
__device__ void walkSlots(const ForwardShape& shape, int64_t rows, Visit visit) {
  Turn turn;
  const int64_t each = rows / gridDim.x;
  const int64_t more = rows - each * gridDim.x;
  const int64_t first = blockIdx.x * each + min(int64_t{blockIdx.x}, more);
  const int64_t end = first + each + (blockIdx.x < more);
  for (int64_t row = first; row < end; row += shape.group) {
    visit(turn, row, static_cast<int>(min(end - row, int64_t{shape.group})));
    turn.next(shape.slots);
  }
}
#else
__device__ inline int64_t stepOfRows() { return gridDim.x; }
template <typename Visit>
__device__ void walkSlots(const ForwardShape& shape, int64_t rows, Visit visit) {
  Turn turn;
  const int64_t step = gridDim.x;
  for (int64_t row = blockIdx.x; row < rows; row += step * shape.group) {
    visit(turn, row, static_cast<int>(min(ceilDivide(rows - row, step), int64_t{shape.group})));
    turn.next(shape.slots);
  }
}
#endif

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
    results.store((row + r * stepOfRows()) * columns + pack * kPack, y);
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
            if constexpr (NORM_MATRIX && type != Wide::kF32) {
              found = statisticsOfMatrices<type>(p, slot(turn) + r * columns);
            } else {
              found = statisticsOf<type, int>(p, slot(turn) + r * columns);
            }
            if (lane == 0) save(p, row + r * stepOfRows(), ring.statistics[turn.slot * shape.group + r] = found);
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
      fetchLines(filled, slot(turn), columns, static_cast<const Storage*>(p.x) + row * columns, stepOfRows() * columns,
                 count, columns);
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

template <Wide type, int known, int packs, typename Results>
cudaError_t launchRing(const NormParams& p, const Results& results, const ForwardShape& shape, unsigned threads,
                       int64_t bytes, cudaStream_t stream) {
  const auto kernel = ringNormKernel<type, known, packs, Results>;
  const Residency residency = residencyOf(kernel, threads, bytes);
  const auto blocks = static_cast<unsigned>(std::min(NORM_RANGE == 0 ? ceilDivide(p.rows, shape.group) : p.rows, residency.blocks));
  return launchDependent(kernel, blocks, threads, static_cast<int>(bytes), stream, p, results, shape);
}

// Works rows that are whole packs of which two fit shared memory; false for others.
template <Wide type, int known, typename Results>
bool tryStaged(const NormParams& p, const Results& results, cudaStream_t stream) {
  const int64_t room = (limitsOfDevice().sharedBytes + kReservedBytes) / NORM_BLOCKS - kReservedBytes -
                       static_cast<int64_t>(sizeof(ForwardRing)) - 512;
  if (p.columns % kPack != 0 || p.columns > room) return false;
  const int64_t rowBytes = p.columns * elementBytes(type);
  int group = 1;
  while (group < 8 && 2 * group * rowBytes <= kForwardSlotBytes) group *= 2;
  const int slots = static_cast<int>(std::min<int64_t>(room / (group * rowBytes), std::min({kForwardSlots, kForwardRows / group, NORM_SLOTS})));
  if (slots < 2) return false;
  const auto all = static_cast<int>(p.columns / kPack);
  const int packs = static_cast<int>(ceilDivide(all, kForwardResultThreads));
  const int across = packs <= 2 ? static_cast<int>(ceilDivide(all, packs)) : kForwardResultThreads;
  const int down = packs == 1 ? std::min(group, kForwardResultThreads / across) : 1;
  const auto threads = static_cast<unsigned>(ceilDivide(across * down, kLanes) * kLanes + kForwardOtherThreads);
  const ForwardShape shape{slots, group, across, down};
  const int64_t bytes = static_cast<int64_t>(sizeof(ForwardRing)) + slots * group * rowBytes;
  if (packs == 1) {
    launchRing<type, known, 1>(p, results, shape, threads, bytes, stream);
  } else if (packs == 2) {
    launchRing<type, known, 2>(p, results, shape, threads, bytes, stream);
  } else {
    launchRing<type, known, 0>(p, results, shape, threads, bytes, stream);
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
