// Column sums in two kernels. A chunk is 32 rows. The first kernel sums the columns of each chunk in parallel and
// writes these chunk sums to the workspace. The second kernel (the fold) adds them in ascending order.
#include "kernels/rows/column-sum.h"

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "kernels/device/pdl.cuh"
#include "kernels/device/elements.cuh"
#include "kernels/quantize/amax-out.cuh"

namespace lockstep {

namespace {

constexpr int kChunkThreads = 128;
constexpr int kQuad = 4;

// The number of blocks that the second kernel (the fold) aims for, as long as each has at least kLeastFoldColumns
// columns.
constexpr int kFoldBlocks = 256;
constexpr int kFoldThreads = 256;
constexpr int kMaxFoldColumns = 128;
constexpr int kLeastFoldColumns = 8;

// The number of chunk sums that the second kernel (the fold) loads per pipeline stage. A block has two stages in shared
// memory.
constexpr int kStage = 8192;
constexpr int kAnyType = -1;

// The results of chunkKernel. kPlain: sums of grad. kWeighted: also sums of grad times the normalised input. kMeasured:
// sums and the amax of grad.
enum class Chunks { kPlain, kWeighted, kMeasured };

// `known` is the type of grad and x if the kernel was compiled for one type, else kAnyType.
template <int known, Chunks what, int width>
__global__ void __launch_bounds__(kChunkThreads) chunkKernel(const ColumnSumParams p) {
  constexpr bool weighted = what == Chunks::kWeighted;
  constexpr bool measured = what == Chunks::kMeasured;
  const Wide gradType = known == kAnyType ? p.xType : static_cast<Wide>(known);
  const Wide xType = known == kAnyType ? p.inputType : static_cast<Wide>(known);
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kChunkThreads + threadIdx.x) * width;
  if (!measured && column >= p.columns) return;
  float largest = 0;
  const int64_t chunks = column < p.columns ? chunksOf(p.rows) : 0;
  for (int64_t chunk = blockIdx.y; chunk < chunks; chunk += gridDim.y) {
    const int64_t first = chunk * kChunkRows;
    const int count = static_cast<int>(p.rows - first < kChunkRows ? p.rows - first : kChunkRows);
    float plain[width] = {};
    float product[width] = {};
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const int64_t row = first + i;
      float grad[width];
      loadElements(p.x, gradType, row * p.columns + column, grad);
      if constexpr (weighted) {
        float x[width];
        loadElements(p.input, xType, row * p.columns + column, x);
        const float mean = p.mean ? p.mean[row] : 0.0f;
        const float rstd = p.rstd[row];
#pragma unroll
        for (int j = 0; j < width; ++j) product[j] += (x[j] - mean) * rstd * grad[j];
      }
#pragma unroll
      for (int j = 0; j < width; ++j) plain[j] += grad[j];
      if constexpr (measured) raiseTo(largest, grad);
    }
    float* sums = p.workspace;
    if constexpr (weighted) {
      storeElements(sums, Wide::kF32, chunk * p.columns + column, product);
      sums += chunks * p.columns;
    }
    if (p.out) storeElements(sums, Wide::kF32, chunk * p.columns + column, plain);
  }
  if constexpr (measured) raiseAmax(p.amax, largest);
}

// Starts asynchronous copies of column sums of chunks of 32 rows to shared memory: `columns` columns (a power of two)
// starting at `column`, of kStage / columns chunks starting at `first`. One copy has `width` values.
template <int width>
__device__ void fetchSums(float* stage, const float* sums, const ColumnSumParams& p, int columns, int64_t column,
                          int64_t first) {
  const int64_t chunks = chunksOf(p.rows);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * width; i < kStage; i += kFoldThreads * width) {
    const int64_t chunk = first + i / static_cast<unsigned>(columns);
    const int64_t at = column + i % static_cast<unsigned>(columns);
    if (chunk < chunks && at < p.columns) {
      __pipeline_memcpy_async(stage + i, sums + chunk * p.columns + at, width * sizeof(float));
    }
  }
  __pipeline_commit();
}

// Adds the column sums of chunks of 32 rows in ascending order, one column per thread. blockIdx.y selects the result;
// the weighted sums come first in the workspace. While the next stage is copied to shared memory, threads add the
// current one.
__global__ void __launch_bounds__(kFoldThreads) foldKernel(const ColumnSumParams p, int columns) {
  extern __shared__ float stages[];
  const int64_t chunks = chunksOf(p.rows);
  const int64_t column = static_cast<int64_t>(blockIdx.x) * columns;
  const float* sums = p.workspace + blockIdx.y * chunks * p.columns;
  const int thread = static_cast<int>(threadIdx.x);
  const int rows = kStage / columns;
  const auto fetch = [&](int64_t first) {
    float* stage = stages + (first / rows % 2) * kStage;
    if (p.columns % kQuad == 0) {
      fetchSums<kQuad>(stage, sums, p, columns, column, first);
    } else {
      fetchSums<1>(stage, sums, p, columns, column, first);
    }
  };
  letNextStart();
  awaitPrevious();
  fetch(0);
  float total = 0;
  for (int64_t first = 0; first < chunks; first += rows) {
    fetch(first + rows);
    __pipeline_wait_prior(1);
    __syncthreads();
    if (thread < columns) {
      const float* stage = stages + (first / rows % 2) * kStage + thread;
      const int count = static_cast<int>(min(chunks - first, static_cast<int64_t>(rows)));
#pragma unroll 32
      for (int i = 0; i < count; ++i) total += stage[i * columns];
    }
    __syncthreads();
  }
  if (thread < columns && column + thread < p.columns) {
    storeElement(p.weighted && blockIdx.y == 0 ? p.weighted : p.out, p.outType, column + thread, total);
  }
}

template <int known, int width>
cudaError_t sumChunks(const ColumnSumParams& p, cudaStream_t stream) {
  const auto across = static_cast<unsigned>(ceilDivide(p.columns, kChunkThreads * width));
  const dim3 blocks(across, static_cast<unsigned>(std::min<int64_t>(chunksOf(p.rows), kMaxGridY)));
  if (p.weighted) {
    chunkKernel<known, Chunks::kWeighted, width><<<blocks, kChunkThreads, 0, stream>>>(p);
  } else if (p.amax) {
    chunkKernel<known, Chunks::kMeasured, width><<<blocks, kChunkThreads, 0, stream>>>(p);
  } else {
    chunkKernel<known, Chunks::kPlain, width><<<blocks, kChunkThreads, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchColumnSum(const ColumnSumParams& p, cudaStream_t stream) {
  if (p.columns == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  if (p.rows > 0 && p.weighted && p.inputType != p.xType) {
    error = sumChunks<kAnyType, 1>(p, stream);
  } else if (p.rows > 0) {
    error = withWide(p.xType, [&](auto type) {
      constexpr int known = static_cast<int>(type.value);
      return p.columns % kPack == 0 ? sumChunks<known, kPack>(p, stream) : sumChunks<known, 1>(p, stream);
    });
  }
  return error == cudaSuccess ? launchChunkFold(p, stream) : error;
}

cudaError_t launchChunkFold(const ColumnSumParams& p, cudaStream_t stream) {
  if (p.columns == 0) return cudaSuccess;
  const unsigned results = p.weighted && p.out ? 2 : 1;
  int columns = kMaxFoldColumns;
  while (columns > kLeastFoldColumns && ceilDivide(p.columns, columns) * results < kFoldBlocks) columns /= 2;
  constexpr int kBytes = 2 * kStage * sizeof(float);
  const dim3 blocks(static_cast<unsigned>(ceilDivide(p.columns, columns)), results);
  return launchPdl(foldKernel, blocks, kFoldThreads, kBytes, stream, p, columns);
}

}  // namespace lockstep
