// Cumulative sums of rows (docs/numerics.md 7.19). A warp loads and stores 32 elements of a row at a time. All of its lanes add
// the same elements in order, and each lane keeps the sum that ends with its element.
#include "kernels/device/elements.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/rows/cumsum.gen.h"

namespace lockstep {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kLanes;

__global__ void __launch_bounds__(kThreads) cumsumKernel(const CumsumParams p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
  if (row >= p.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sum = 0.0f;
  for (int64_t first = 0; first < p.columns; first += kLanes) {
    const int64_t i = first + lane;
    const int64_t index = row * p.columns + (p.reverse ? p.columns - 1 - i : i);
    const float x = i < p.columns ? loadElement(p.x, p.xType, index) : 0.0f;
    float sumOfLane = 0.0f;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      sum += __shfl_sync(kFullMask, x, k);
      if (k == lane) sumOfLane = sum;
    }
    if (i < p.columns) storeElement(p.out, p.outType, index, sumOfLane);
  }
}

}  // namespace

cudaError_t launchCumsum(const CumsumParams& p, cudaStream_t stream) {
  return launchBlocks(cumsumKernel, ceilDivide(p.rows, kWarps), kThreads, p, stream);
}

}  // namespace lockstep
