// One kernel sums the chunks of 32 rows, all at once, into the workspace; another adds them in order.
#include "kernels/column-sum.h"

#include <algorithm>

#include "kernels/elements.cuh"

namespace lockstep {

namespace {

constexpr int kChunkThreads = 128;
constexpr int kFoldColumns = 32;
constexpr int kFoldThreads = 256;
constexpr int kFoldLoads = 32;
constexpr int kFoldRows = kFoldLoads * kFoldThreads / kFoldColumns;
constexpr int kAnyType = -1;

// `known` is the type of grad and x, or kAnyType.
template <int known, bool weighted, int width>
__global__ void __launch_bounds__(kChunkThreads) chunkKernel(const ColumnSumParams p) {
  const Wide gradType = known == kAnyType ? p.gradType : static_cast<Wide>(known);
  const Wide xType = known == kAnyType ? p.xType : static_cast<Wide>(known);
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kChunkThreads + threadIdx.x) * width;
  if (column >= p.columns) return;
  const int64_t chunks = chunksOf(p.rows);
  for (int64_t chunk = blockIdx.y; chunk < chunks; chunk += gridDim.y) {
    const int64_t first = chunk * kChunkRows;
    const int count = static_cast<int>(p.rows - first < kChunkRows ? p.rows - first : kChunkRows);
    float plain[width] = {};
    float product[width] = {};
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const int64_t row = first + i;
      float grad[width];
      loadElements(p.grad, gradType, row * p.columns + column, grad);
      if constexpr (weighted) {
        float x[width];
        loadElements(p.x, xType, row * p.columns + column, x);
        const float mean = p.mean ? p.mean[row] : 0.0f;
        const float rstd = p.rstd[row];
#pragma unroll
        for (int j = 0; j < width; ++j) product[j] += (x[j] - mean) * rstd * grad[j];
      }
#pragma unroll
      for (int j = 0; j < width; ++j) plain[j] += grad[j];
    }
    float* sums = p.workspace;
    if constexpr (weighted) {
      storeElements(sums, Wide::kF32, chunk * p.columns + column, product);
      sums += chunks * p.columns;
    }
    if (p.plain) storeElements(sums, Wide::kF32, chunk * p.columns + column, plain);
  }
}

// The block row says which result: the weighted sums lie first. All warps of a block bring the sums of its columns, the
// next ones while the first warp adds.
__global__ void __launch_bounds__(kFoldThreads) foldKernel(const ColumnSumParams p) {
  __shared__ float stage[kFoldRows][kFoldColumns];
  const int lane = static_cast<int>(threadIdx.x) % kFoldColumns;
  const int warp = static_cast<int>(threadIdx.x) / kFoldColumns;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kFoldColumns + lane;
  const int64_t chunks = chunksOf(p.rows);
  const float* sums = p.workspace + blockIdx.y * chunks * p.columns + column;
  float loaded[kFoldLoads];
  const auto load = [&](int64_t first) {
#pragma unroll
    for (int i = 0; i < kFoldLoads; ++i) {
      const int64_t chunk = first + warp * kFoldLoads + i;
      if (chunk < chunks && column < p.columns) loaded[i] = sums[chunk * p.columns];
    }
  };
  float total = 0;
  load(0);
  for (int64_t first = 0; first < chunks; first += kFoldRows) {
#pragma unroll
    for (int i = 0; i < kFoldLoads; ++i) stage[warp * kFoldLoads + i][lane] = loaded[i];
    __syncthreads();
    load(first + kFoldRows);
    if (warp == 0) {
      const int count = static_cast<int>(min(chunks - first, static_cast<int64_t>(kFoldRows)));
#pragma unroll 16
      for (int i = 0; i < count; ++i) total += stage[i][lane];
    }
    __syncthreads();
  }
  if (warp == 0 && column < p.columns) {
    storeElement(p.weighted && blockIdx.y == 0 ? p.weighted : p.plain, p.outType, column, total);
  }
}

template <int known, int width>
void sumChunks(const ColumnSumParams& p, cudaStream_t stream) {
  const auto across = static_cast<unsigned>(ceilDivide(p.columns, kChunkThreads * width));
  const dim3 blocks(across, static_cast<unsigned>(std::min<int64_t>(chunksOf(p.rows), 65535)));
  if (p.weighted) {
    chunkKernel<known, true, width><<<blocks, kChunkThreads, 0, stream>>>(p);
  } else {
    chunkKernel<known, false, width><<<blocks, kChunkThreads, 0, stream>>>(p);
  }
}

}  // namespace

cudaError_t launchColumnSum(const ColumnSumParams& p, cudaStream_t stream) {
  if (p.columns == 0) return cudaSuccess;
  if (p.rows > 0) {
    if (p.weighted && p.xType != p.gradType) {
      sumChunks<kAnyType, 1>(p, stream);
    } else {
      withWide(p.gradType, [&](auto type) {
        constexpr int known = static_cast<int>(type.value);
        if (p.columns % kPack == 0) {
          sumChunks<known, kPack>(p, stream);
        } else {
          sumChunks<known, 1>(p, stream);
        }
      });
    }
  }
  return launchChunkFold(p, stream);
}

cudaError_t launchChunkFold(const ColumnSumParams& p, cudaStream_t stream) {
  if (p.columns == 0) return cudaSuccess;
  const unsigned results = p.weighted && p.plain ? 2 : 1;
  const dim3 blocks(static_cast<unsigned>(ceilDivide(p.columns, kFoldColumns)), results);
  foldKernel<<<blocks, kFoldThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace lockstep
