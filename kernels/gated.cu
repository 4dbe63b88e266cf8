#include "kernels/gated.h"

#include "kernels/activation.h"
#include "kernels/elements.cuh"
#include "kernels/math.cuh"

namespace lockstep {

namespace {

// NaN passes both bounds.
__device__ float atMost(float x, float high) { return high < x ? high : x; }
__device__ float atLeast(float x, float low) { return x < low ? low : x; }

__device__ float gateOf(const GatedParams& p, float g) { return atLeast(atMost(g, p.limit), -p.limit) + p.offset; }

template <int width>
__device__ void forward(const GatedParams& p, Activation kind, int64_t row, int64_t column) {
  const int64_t first = 2 * row * p.columns + column;
  float a[width];
  float g[width];
  loadElements(p.x, p.xType, first, a);
  loadElements(p.x, p.xType, first + p.columns, g);
#pragma unroll
  for (int i = 0; i < width; ++i) a[i] = activate(kind, p.alpha, atMost(a[i], p.limit)) * gateOf(p, g[i]);
  storeElements(p.out, p.outType, row * p.columns + column, a);
}

template <int width>
__device__ void backward(const GatedParams& p, Activation kind, int64_t row, int64_t column) {
  const int64_t first = 2 * row * p.columns + column;
  float a[width];
  float g[width];
  float grad[width];
  loadElements(p.x, p.xType, first, a);
  loadElements(p.x, p.xType, first + p.columns, g);
  loadElements(p.grad, p.gradType, row * p.columns + column, grad);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float bounded = atMost(a[i], p.limit);
    const float dA = differentiate(kind, p.alpha, bounded) * grad[i] * gateOf(p, g[i]);
    const float dG = activate(kind, p.alpha, bounded) * grad[i];
    a[i] = a[i] > p.limit ? 0.0f : dA;
    g[i] = g[i] < -p.limit || g[i] > p.limit ? 0.0f : dG;
  }
  storeElements(p.out, p.outType, first, a);
  storeElements(p.out, p.outType, first + p.columns, g);
}

template <bool isBackward, int width>
__device__ void work(const GatedParams& p, Activation kind) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
  if (column >= p.columns) return;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < p.rows; row += step) {
    if constexpr (isBackward) {
      backward<width>(p, kind, row, column);
    } else {
      forward<width>(p, kind, row, column);
    }
  }
}

// `kind` is known when compiled, so that the loops hold one curve. Halves start on 16 bytes.
template <Activation kind, bool isBackward>
__global__ void __launch_bounds__(kRowThreads) gatedKernel(const GatedParams p) {
  work<isBackward, kPack>(p, kind);
}

template <bool isBackward>
__global__ void __launch_bounds__(kRowThreads) raggedGatedKernel(const GatedParams p) {
  work<isBackward, 1>(p, p.kind);
}

template <bool isBackward>
cudaError_t launch(const GatedParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  if (p.columns % kPack != 0) {
    const RowGrid grid = rowGrid(p.rows, p.columns);
    raggedGatedKernel<isBackward><<<grid.blocks, grid.threads, 0, stream>>>(p);
    return cudaGetLastError();
  }
  const RowGrid grid = rowGrid(p.rows, p.columns / kPack);
  withActivation(p.kind, [&](auto kind) {
    gatedKernel<kind.value, isBackward><<<grid.blocks, grid.threads, 0, stream>>>(p);
  });
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchGated(const GatedParams& p, cudaStream_t stream) { return launch<false>(p, stream); }

cudaError_t launchGatedBackward(const GatedParams& p, cudaStream_t stream) { return launch<true>(p, stream); }

}  // namespace lockstep
