// Elements of rows by index, and the gradient (docs/numerics.md 7.15). A thread computes one element.
#include "kernels/device/elements.cuh"
#include "kernels/rows/gather.gen.h"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
constexpr float kInfinity = __builtin_huge_valf();

__global__ void __launch_bounds__(kThreads) gatherKernel(const GatherParams p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.rows * p.count) return;
  const int64_t id = p.ids[i];
  const bool isColumn = id >= 0 && id < p.columns;
  const float value = isColumn ? loadElement(p.x, p.xType, i / p.count * p.columns + id) : kInfinity - kInfinity;
  storeElement(p.out, p.outType, i, value);
}

__global__ void __launch_bounds__(kThreads) gatherBackwardKernel(const GatherBackwardParams p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
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
  const int64_t blocks = ceilDivide(p.rows * p.count, kThreads);
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  if (blocks > 0) gatherKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t launchGatherBackward(const GatherBackwardParams& p, cudaStream_t stream) {
  const int64_t blocks = ceilDivide(p.rows * p.columns, kThreads);
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  if (blocks > 0) gatherBackwardKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace lockstep
