// The mean and the reciprocal standard deviation of a row. One warp computes them; its threads are the lanes of the
// sums.
#pragma once

#include "kernels/rows/norm.cuh"
#include "kernels/rows/norm.gen.h"

namespace lockstep {

struct Statistics {
  float center;
  float scale;
};

// Returns the statistics of the row at `x`. `Index` is the type of element indices.
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

// Returns the sum of the 32 lanes of a sum to every thread, if thread t has lane 8 (t % 4) + t / 4. These are the lanes
// of walkMatrices.
__device__ inline float foldMatrixLanes(float sum) {
#pragma unroll
  for (const int step : {2, 1, 16, 8, 4}) sum += __shfl_xor_sync(kFullMask, sum, step);
  return sum;
}

// Calls add(x[i]) for the elements of lane 8 (t % 4) + t / 4 of a sum, where t is the thread's index in the warp.
// ldmatrix gives the elements to the threads in this order. x has `columns` 16-bit values, a multiple of 8, in shared
// memory.
template <Wide type, typename Add>
__device__ inline void walkMatrices(int columns, const void* x, Add add) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int row = lane % 8;
  // rows 2c and 2c + 1 of matrix j of loadDown start at elements 64j + 8c and 64j + 32 + 8c
  const auto* from = static_cast<const uint16_t*>(x) + row / 2 * 8 + row % 2 * 32 + lane / 8 * 64;
  int i = 0;
  const auto eight = [&](const uint32_t(&words)[4]) {
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

// As statisticsOf, for a row of 16-bit values in shared memory. The number of columns is a multiple of 8.
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

__device__ inline void save(const NormParams& p, int64_t row, Statistics statistics) {
  if (p.mean) p.mean[row] = statistics.center;
  p.rstd[row] = statistics.scale;
}

}  // namespace lockstep
