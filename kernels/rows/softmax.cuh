// Shared by softmax and its gradient. A team is a group of threads that computes one row.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/device/device.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/rows/softmax.gen.h"

namespace lockstep {

// The number of threads per block for teams of `size` threads: several teams of one warp, or one larger team.
constexpr int threadsOf(int size) { return size == kLanes ? 256 : size; }

// Upper bound of the bytes of static shared memory of the kernels.
constexpr int64_t kDeclaredBytes = 256;

// A team of `size` threads. `rank` is this thread's index in the team, `number` the index of the team in the block.
template <int size>
struct Team {
  static constexpr int kWarps = size / kLanes;

  int rank = static_cast<int>(threadIdx.x) % size;
  int number = static_cast<int>(threadIdx.x) / size;
  int64_t row = static_cast<int64_t>(blockIdx.x) * (threadsOf(size) / size) + number;

  __device__ void synchronize() const {
    if constexpr (kWarps == 1) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  // Returns the maximum over all threads of the team, NaN ignored.
  __device__ float maximum(float value) const {
    value = maximumOfLanes(value);
    if constexpr (kWarps > 1) {
      __shared__ float ofWarps[kWarps];
      if (rank % kLanes == 0) ofWarps[rank / kLanes] = value;
      __syncthreads();
      value = maximumOfLanes(ofWarps[rank % kWarps]);
    }
    return value;
  }

  // Returns the sum of term(load(i)) over i < count to every thread of the team (the threads that share a row). The
  // first warp computes it. Loads are issued ahead of the additions.
  template <typename Index, typename Load, typename Term>
  __device__ float sum(Index count, Load load, Term term) const {
    constexpr int kAhead = kWarps == 1 ? 8 : 16;
    float lane = 0;
    if (rank < kLanes) {
      walkLanes<kAhead>(count, load, [&](float value) { lane += term(value); });
      lane = foldLanes(lane);
    }
    if constexpr (kWarps > 1) {
      __shared__ float total;
      if (rank == 0) total = lane;
      __syncthreads();
      lane = total;
    }
    return lane;
  }
};

// The number of elements of a row that are not masked.
template <typename Params>
__device__ int64_t lengthOf(const Params& p, int64_t row) {
  if (p.period == 0) return p.columns;
  return max(row % p.period + 1 + p.columns - p.period, int64_t{0});
}

// Calls `body` with a tag whose `value` is the number of threads that share a row (the team), for rows of `columns`
// elements.
template <typename Body>
auto withTeam(int64_t columns, Body body) {
  if (columns <= 1024) return body(std::integral_constant<int, kLanes>{});
  if (columns <= 2048) return body(std::integral_constant<int, 128>{});
  if (columns <= 8192) return body(std::integral_constant<int, 256>{});
  return body(std::integral_constant<int, 1024>{});
}

// Whether a block on the current device may use `bytes` of shared memory in addition to its static allocation.
inline bool fits(int64_t bytes) {
  int device = 0;
  int most = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes + kDeclaredBytes <= most;
}

// Launches one team of threads per row. `bytes` is the dynamic shared memory per team.
template <int size, typename Kernel, typename Params>
cudaError_t launchTeams(Kernel kernel, const Params& p, int64_t bytes, cudaStream_t stream) {
  constexpr int kThreads = threadsOf(size);
  const int64_t blocks = ceilDivide(p.rows, kThreads / size);
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  const auto shared = static_cast<int>(bytes * (kThreads / size));
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), kThreads, shared, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace lockstep
