// Elements of rows by index, and the gradient (docs/numerics.md 7.15). A thread computes one element.
#include "kernels/device/elements.cuh"
#include "kernels/rows/gather.gen.h"

namespace lockstep {

namespace {

constexpr float kInfinity = __builtin_huge_valf();

__global__ void __launch_bounds__(kItemThreads) gatherKernel(const GatherParams p) {
  const int64_t i = itemIndex();
  if (i >= p.rows * p.count) return;
  const int64_t id = p.ids[i];
  const bool isColumn = id >= 0 && id < p.columns;
  const float value = isColumn ? loadElement(p.x, p.xType, i / p.count * p.columns + id) : kInfinity - kInfinity;
  storeElement(p.out, p.outType, i, value);
}

__global__ void __launch_bounds__(kItemThreads) gatherBackwardKernel(const GatherBackwardParams p) {
  const int64_t i = itemIndex();
  if (i >= p.rows * p.columns) return;
  const int64_t row = i / p.columns;
  const int64_t column = i - row * p.columns;
  float sum = 0.0f;
  for (int64_t k = row * p.count; k < (row + 1) * p.count; ++k) {
    if (p.ids[k] == column) sum += loadElement(p.grad, p.gradType, k);
  }
  storeElement(p.out, p.outType, i, sum);
}

}  // namespace

cudaError_t launchGather(const GatherParams& p, cudaStream_t stream) {
  return launchItems(gatherKernel, p.rows * p.count, p, stream);
}

cudaError_t launchGatherBackward(const GatherBackwardParams& p, cudaStream_t stream) {
  return launchItems(gatherBackwardKernel, p.rows * p.columns, p, stream);
}

}  // namespace lockstep
