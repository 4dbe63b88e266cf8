// The forward pass of the norms, wherever its results go. A block works a group of rows, kept in shared memory and read
// once, the next group's elements following into the place of each as it is used up. Each row's sums are formed by one
// warp, all warps work the results.
#pragma once

#include <algorithm>

#include "kernels/norm.cuh"
#include "kernels/norm.h"

namespace lockstep {

// Warps of a block at most, and packs of a row for each of its threads.
constexpr int kMostWarps = 12;
constexpr int kPacksOfThread = 2;
constexpr int kSchedulers = 4;

// Shared memory that the rows of a group take, if there are several.
constexpr int64_t kGroupBytes = 72 * 1024;

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

__device__ inline void save(const NormParams& p, int64_t row, Statistics found) {
  if (p.mean) p.mean[row] = found.center;
  p.rstd[row] = found.scale;
}

struct Group {
  int64_t first;
  int count;
};

// What this block works of the rows from `begin` to `end`: `rows` rows, or as few as let the blocks work all of them.
template <int rows>
__device__ Group groupOf(int64_t begin, int64_t end) {
  const int64_t blocks = gridDim.x;
  int64_t share = rows;
#pragma unroll
  for (int fewer = rows - 1; fewer > 0; --fewer) {
    if (fewer * blocks >= end - begin) share = fewer;
  }
  const int64_t first = begin + blockIdx.x * share;
  return {first, static_cast<int>(max(min(end - first, share), int64_t{0}))};
}

// `known` is the type of the parameters, or kAnyType. Rows are whole packs. Results has begin() and end(), which all
// threads call, and store(index, y), which takes a pack or one.
template <Wide type, int known, int rows, typename Results>
__global__ void __launch_bounds__(kMostWarps* kLanes)
    stagedNormKernel(const NormParams p, Results results, int multiprocessors) {
  extern __shared__ Bytes16 stages[];
  __shared__ Statistics statistics[rows];
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int packs = static_cast<int>(p.columns) / kPack;
  constexpr int kPieces = type == Wide::kF32 ? 2 : 1;
  const int pitch = packs * kPieces;
  const Wide parameterType = typeOr<known>(p.parameterType);
  const float shift = p.zeroCentered ? 1.0f : -0.0f;
  const int64_t step = static_cast<int64_t>(gridDim.x) * rows;
  results.begin();
  Group next = groupOf<rows>(0, p.rows);
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    if (r >= next.count) break;
    for (int i = thread; i < packs; i += threads) fetch<type>(stages + r * pitch, p.x, next.first + r, packs, i);
  }
  for (int64_t begin = 0; begin < p.rows; begin += step) {
    const auto [first, count] = next;
    next = groupOf<rows>(begin + step, p.rows);
    awaitFetched();
    for (int r = turnOf(multiprocessors); r < count; r += threads / kLanes) {
      const Statistics found = statisticsOf<type, int>(p, stages + r * pitch);
      if (thread % kLanes == 0) save(p, first + r, statistics[r] = found);
    }
    __syncthreads();
    for (int pack = thread; pack < packs; pack += threads) {
      float g[kPack];
      float b[kPack];
      Bytes16 x[rows][kPieces];
      loadElements(p.gamma, parameterType, pack * kPack, g);
      if (p.beta) {
        loadElements(p.beta, parameterType, pack * kPack, b);
      } else {
#pragma unroll
        for (float& term : b) term = -0.0f;  // leaves every sum as it is
      }
#pragma unroll
      for (int i = 0; i < rows * kPieces; ++i) {
        x[i / kPieces][i % kPieces] = stages[i / kPieces * pitch + pack * kPieces + i % kPieces];
      }
#pragma unroll
      for (float& factor : g) factor += shift;
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (r >= count) break;
        float y[kPack];
        loadElements(x[r], type, 0, y);
        const auto [center, scale] = statistics[r];
#pragma unroll
        for (int i = 0; i < kPack; ++i) y[i] = (y[i] - center) * scale * g[i] + b[i];
        results.store((first + r) * p.columns + pack * kPack, y);
        if (r < next.count) fetch<type>(stages + r * pitch, p.x, next.first + r, packs, pack);
      }
    }
  }
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

template <Wide type, int known, int rows, typename Results>
void launchStaged(const NormParams& p, const Results& results, cudaStream_t stream) {
  const int64_t bytes = rows * p.columns * elementBytes(type);
  int64_t warps = std::clamp<int64_t>(ceilDivide(p.columns, kPack * kPacksOfThread * kLanes), 1, kMostWarps);
  if (warps > kSchedulers) warps -= warps % kSchedulers;
  const auto kernel = stagedNormKernel<type, known, rows, Results>;
  const Residency residency = residencyOf(kernel, warps * kLanes, bytes);
  const auto blocks = static_cast<unsigned>(std::min(ceilDivide(p.rows, rows), residency.blocks));
  kernel<<<blocks, warps * kLanes, bytes, stream>>>(p, results, residency.multiprocessors);
}

// Works rows that are whole packs and fit shared memory beside what the kernel declares; false for others.
template <Wide type, int known, typename Results>
bool tryStaged(const NormParams& p, const Results& results, cudaStream_t stream) {
  const int64_t room = limitsOfDevice().sharedBytes - kReservedBytes;
  if (p.columns % kPack != 0 || p.columns > room) return false;
  const int64_t bytes = p.columns * elementBytes(type);
  if (4 * bytes <= kGroupBytes) {
    launchStaged<type, known, 4>(p, results, stream);
  } else if (2 * bytes <= kGroupBytes) {
    launchStaged<type, known, 2>(p, results, stream);
  } else if (bytes <= room) {
    launchStaged<type, known, 1>(p, results, stream);
  } else {
    return false;
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
