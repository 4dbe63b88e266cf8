// The steps of a cross-entropy whose columns are divided among ranks. A warp reads each row of logits; a thread computes each
// loss.
#include "kernels/rows/loss-parts.gen.h"

#include "kernels/core/math.cuh"
#include "kernels/rows/loss-row.cuh"

namespace lockstep {

namespace {

constexpr int kWarps = 4;

__device__ int64_t rowOfWarp() { return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes; }

__device__ int laneOfThread() { return static_cast<int>(threadIdx.x) % kLanes; }

template <Wide type, typename Params>
__device__ LogitsOf<type> rowOf(const Params& p, int64_t row) {
  return static_cast<LogitsOf<type>>(p.logits) + row * p.columns;
}

template <Wide type>
__global__ void __launch_bounds__(kWarps* kLanes) lossMaximumKernel(const LossMaximumParams p) {
  const int64_t row = rowOfWarp();
  if (row >= p.rows) return;
  const float top = maximumOfRow<type>(rowOf<type>(p, row), p.columns, laneOfThread());
  if (laneOfThread() == 0) p.maximum[row] = top;
}

template <Wide type>
__global__ void __launch_bounds__(kWarps* kLanes) lossSumsKernel(const LossSumsParams p) {
  const int lane = laneOfThread();
  const int64_t row = rowOfWarp();
  if (row >= p.rows) return;
  const LogitsOf<type> x = rowOf<type>(p, row);
  const float top = p.maximum[row];
  const float total = totalOfRow<type>(x, p.columns, lane, top);
  const float distance = p.smooths ? distanceOfRow<type>(x, p.columns, lane, top) : 0.0f;
  if (lane != 0) return;
  const int64_t place = p.targets[row] - p.first;
  p.sums[row] = total;
  p.sums[p.rows + row] = place >= 0 && place < p.columns ? loadElement(x, type, place) - top : -0.0f;
  if (p.smooths) p.sums[2 * p.rows + row] = distance;
}

__global__ void __launch_bounds__(kItemThreads) lossOfSumsKernel(const LossOfSumsParams p) {
  const int64_t row = itemIndex();
  if (row >= p.rows) return;
  const int32_t target = p.targets[row];
  float loss = kInfinity - kInfinity;
  if (target == p.ignore) {
    loss = 0;
  } else if (target >= 0 && target < p.classes) {
    const float distance = p.smoothing == 0 ? 0.0f : p.sums[2 * p.rows + row];
    loss = smoothedLoss(logarithm(p.sums[row]), p.sums[p.rows + row], distance, p.classes, p.smoothing);
  }
  p.loss[row] = loss;
}

}  // namespace

cudaError_t launchLossMaximum(const LossMaximumParams& p, cudaStream_t stream) {
  return withWide(p.logitsType, [&](auto type) {
    return launchBlocks(lossMaximumKernel<type.value>, ceilDivide(p.rows, kWarps), kWarps * kLanes, p, stream);
  });
}

cudaError_t launchLossSums(const LossSumsParams& p, cudaStream_t stream) {
  return withWide(p.logitsType, [&](auto type) {
    return launchBlocks(lossSumsKernel<type.value>, ceilDivide(p.rows, kWarps), kWarps * kLanes, p, stream);
  });
}

cudaError_t launchLossOfSums(const LossOfSumsParams& p, cudaStream_t stream) {
  return launchItems(lossOfSumsKernel, p.rows, p, stream);
}

}  // namespace lockstep
