// Mean squared error. In the forward pass a warp computes each row. The backward pass is element-wise, with threads
// over columns and rows.
#include "kernels/device/elements.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/rows/loss.gen.h"

namespace lockstep {

namespace {

constexpr int kWarps = 4;
// The number of elements per lane that are loaded before the first is added.
constexpr int kDepth = 8;

// One warp computes one row. Its threads are the lanes of the sum.
template <Wide type, Wide targetType>
__global__ void __launch_bounds__(kWarps* kLanes) mseKernel(const MseParams p) {
  using X = WideOf<type>;
  using Target = WideOf<targetType>;
  struct Pair {
    typename X::Storage x;
    typename Target::Storage target;
  };
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
  if (row >= p.rows) return;
  const auto* x = static_cast<const typename X::Storage*>(p.x) + row * p.columns;
  const auto* target = static_cast<const typename Target::Storage*>(p.target) + row * p.columns;
  float sum = 0;
  walkLanes<kDepth>(
      p.columns, [&](int64_t i) { return Pair{x[i], target[i]}; },
      [&](Pair pair) {
        const float difference = X::load(pair.x) - Target::load(pair.target);
        sum += difference * difference;
      });
  sum = foldLanes(sum);
  if (threadIdx.x % kLanes == 0) p.loss[row] = sum / static_cast<float>(p.columns);
}

// If `width` is kPack, rows must start at multiples of 16 bytes.
template <int width>
__global__ void __launch_bounds__(kRowThreads) mseBackwardKernel(const MseBackwardParams p) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
  if (column >= p.columns) return;
  const float share = 2.0f / static_cast<float>(p.columns);
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < p.rows; row += step) {
    const float upstream = p.grad[row];
    const int64_t first = row * p.columns + column;
    float values[width];
    float targets[width];
    loadElements(p.x, p.xType, first, values);
    loadElements(p.target, p.targetType, first, targets);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = (values[i] - targets[i]) * share * upstream;
    storeElements(p.dx, p.dxType, first, values);
  }
}

}  // namespace

cudaError_t launchMse(const MseParams& p, cudaStream_t stream) {
  return withWide(p.xType, [&](auto type) {
    return withWide(p.targetType, [&](auto targetType) {
      return launchBlocks(mseKernel<type.value, targetType.value>, ceilDivide(p.rows, kWarps), kWarps * kLanes, p,
                          stream);
    });
  });
}

cudaError_t launchMseBackward(const MseBackwardParams& p, cudaStream_t stream) {
  return withRows(p.rows, p.columns, [&](const RowGrid& grid, auto width) {
    mseBackwardKernel<width.value><<<grid.blocks, grid.threads, 0, stream>>>(p);
  });
}

}  // namespace lockstep
