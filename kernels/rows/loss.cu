// Softmax cross-entropy. In the forward pass a warp computes each row. The backward pass is element-wise, with threads
// over columns and rows.
#include "kernels/rows/loss.gen.h"

#include "kernels/core/divisor.cuh"
#include "kernels/core/exponential.cuh"
#include "kernels/core/math.cuh"
#include "kernels/device/elements.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/rows/loss-row.cuh"

namespace lockstep {

namespace {

constexpr int kWarps = 4;

// One warp computes one row. Its threads are the lanes of the sums.
template <Wide type>
__global__ void __launch_bounds__(kWarps* kLanes) crossEntropyKernel(const CrossEntropyParams p) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
  if (row >= p.rows) return;
  const auto* x = static_cast<const typename WideOf<type>::Storage*>(p.logits) + row * p.columns;
  const float top = maximumOfRow<type>(x, p.columns, lane);
  const float total = totalOfRow<type>(x, p.columns, lane, top);
  const int32_t target = p.targets[row];
  float loss = kInfinity - kInfinity;
  if (target == p.ignore) {
    loss = 0;
  } else if (target >= 0 && target < p.columns) {
    const float own = loadElement(x, type, target) - top;
    const float distance = p.smoothing == 0 ? 0.0f : distanceOfRow<type>(x, p.columns, lane, top);
    loss = smoothedLoss(logarithm(total), own, distance, p.columns, p.smoothing);
  }
  if (lane == 0) {
    p.loss[row] = loss;
    p.maximum[row] = top;
    p.total[row] = total;
  }
}

// Values that all elements of a row share.
struct RowOfLogits {
  bool ignored;
  // The column of the target; the row may have no such column.
  int64_t target;
  float upstream;
  float maximum;
  float total;
};

__device__ RowOfLogits rowOfLogits(const CrossEntropyBackwardParams& p, int64_t row) {
  const int32_t target = p.targets[row];
  const bool known = target >= 0 && target < p.classes;
  return {target == p.ignore, target - p.first, known ? p.grad[row] : kInfinity - kInfinity, p.maximum[row],
          p.total[row]};
}

// If `width` is kPack, rows must start at multiples of 16 bytes.
template <int width>
__global__ void __launch_bounds__(kRowThreads) crossEntropyBackwardKernel(const CrossEntropyBackwardParams p) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
  if (column >= p.columns) return;
  const float off = p.smoothing / static_cast<float>(p.classes);
  const float on = 1.0f - p.smoothing + off;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < p.rows; row += step) {
    const RowOfLogits given = rowOfLogits(p, row);
    const int64_t first = row * p.columns + column;
    float values[width];
    loadElements(p.logits, p.logitsType, first, values);
#pragma unroll
    for (float& value : values) value -= given.maximum;
    exponentials<false>(values);
    Divisor(given.total).divide(values);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float difference = column + i == given.target ? values[i] - on : values[i] - off;
      values[i] = given.ignored ? 0.0f : difference * given.upstream;
    }
    storeElements(p.dx, p.dxType, first, values);
  }
}

}  // namespace

cudaError_t launchCrossEntropy(const CrossEntropyParams& p, cudaStream_t stream) {
  return withWide(p.logitsType, [&](auto type) {
    return launchBlocks(crossEntropyKernel<type.value>, ceilDivide(p.rows, kWarps), kWarps * kLanes, p, stream);
  });
}

cudaError_t launchCrossEntropyBackward(const CrossEntropyBackwardParams& p, cudaStream_t stream) {
  return withRows(p.rows, p.columns, [&](const RowGrid& grid, auto width) {
    crossEntropyBackwardKernel<width.value><<<grid.blocks, grid.threads, 0, stream>>>(p);
  });
}

}  // namespace lockstep
