// Rows of tokens that are sorted by their experts (docs/numerics.md §7.16).
#include "kernels/device/elements.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/rows/expert-rows.gen.h"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
// The number of threads of a block that writes the rows of one expert. It is large because there are few such blocks.
constexpr int kPlaceThreads = 1024;

// The index of entry i among the entries that can name the expert of this block: all entries of an index map, one column of a
// mask map.
__device__ int64_t entryAt(const RowIdMapParams& p, int64_t i) {
  return p.indices ? i : i * p.width + static_cast<int64_t>(blockIdx.x);
}

// Whether entry i is one of the `count` entries and names the expert of this block.
__device__ bool isNamed(const RowIdMapParams& p, int64_t i, int64_t count) {
  if (i >= count) return false;
  const int32_t value = p.routingMap[entryAt(p, i)];
  return p.indices ? value == static_cast<int32_t>(blockIdx.x) : value != 0;
}

__device__ int64_t entriesOf(const RowIdMapParams& p) { return p.indices ? p.tokens * p.width : p.tokens; }

// A block counts the entries of one expert.
__global__ void __launch_bounds__(kThreads) countKernel(const RowIdMapParams p) {
  __shared__ uint32_t total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  const int64_t count = entriesOf(p);
  uint32_t named = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) named += isNamed(p, i, count) ? 1 : 0;
  atomicAdd(&total, named);
  __syncthreads();
  if (threadIdx.x == 0) p.workspace[blockIdx.x] = total;
}

// A block writes the rows of one expert's entries, in ascending order. Each warp has consecutive entries, which it reads twice:
// it counts the named ones, waits for the counts of the warps before it, and then writes the rows.
__global__ void __launch_bounds__(kPlaceThreads) placeKernel(const RowIdMapParams p) {
  constexpr int kPlaceWarps = kPlaceThreads / kLanes;
  __shared__ int64_t start;
  __shared__ int64_t warpCounts[kPlaceWarps];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  if (threadIdx.x == 0) {
    int64_t first = 0;
    for (unsigned expert = 0; expert < blockIdx.x; ++expert) {
      first += ceilDivide(p.workspace[expert], p.align) * p.align;
    }
    const int64_t end = first + ceilDivide(p.workspace[blockIdx.x], p.align) * p.align;
    p.tokensPerExpert[blockIdx.x] = static_cast<int32_t>(min(end, p.total) - min(first, p.total));
    start = first;
  }
  const int64_t count = entriesOf(p);
  const int64_t share = ceilDivide(count, kPlaceThreads) * kLanes;
  const int64_t begin = warp * share;
  const int64_t end = min(begin + share, count);
  uint32_t named = 0;
#pragma unroll 8
  for (int64_t i = begin + lane; i < end; i += kLanes) named += isNamed(p, i, count) ? 1 : 0;
  named = __reduce_add_sync(kFullMask, named);
  if (lane == 0) warpCounts[warp] = named;
  __syncthreads();
  int64_t next = start;
  for (int w = 0; w < warp; ++w) next += warpCounts[w];
#pragma unroll 8
  for (int64_t tile = begin; tile < end; tile += kLanes) {
    const int64_t i = tile + lane;
    const bool isMine = isNamed(p, i, end);
    const uint32_t ballot = __ballot_sync(kFullMask, isMine);
    const int64_t row = next + __popc(ballot & ((1u << lane) - 1));
    next += __popc(ballot);
    if (isMine && row < p.total) {
      const int64_t entry = entryAt(p, i);
      p.rows[entry] = static_cast<int32_t>(row);
      p.sources[row] = static_cast<int32_t>(entry);
    }
  }
}

// If `width` is kPack, rows must start at multiples of 16 bytes.
template <int width>
__global__ void __launch_bounds__(kRowThreads) takeRowsKernel(const TakeRowsParams p) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
  if (column >= p.columns) return;
  const int64_t limit = p.rows * p.period;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t i = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; i < p.count; i += step) {
    const int64_t source = p.sources[i];
    float values[width] = {};
    if (source >= 0 && source < limit) {
      loadElements(p.x, p.xType, source / p.period * p.columns + column, values);
      if (p.weights != nullptr) {
        const float weight = loadElement(p.weights, p.weightsType, source);
#pragma unroll
        for (float& value : values) value *= weight;
      }
    }
    storeElements(p.out, p.outType, i * p.columns + column, values);
  }
}

template <int width>
__global__ void __launch_bounds__(kRowThreads) combineRowsKernel(const CombineRowsParams p) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
  if (column >= p.columns) return;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t t = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; t < p.tokens; t += step) {
    float sums[width] = {};
    for (int64_t entry = t * p.width; entry < (t + 1) * p.width; ++entry) {
      const int64_t row = p.rows[entry];
      if (row < 0 || row >= p.limit) continue;
      float values[width];
      loadElements(p.x, p.xType, row * p.columns + column, values);
      const float weight = p.weights == nullptr ? 1.0f : loadElement(p.weights, p.weightsType, entry);
#pragma unroll
      for (int k = 0; k < width; ++k) sums[k] = __fadd_rn(sums[k], __fmul_rn(values[k], weight));
    }
    storeElements(p.out, p.outType, t * p.columns + column, sums);
  }
}

// A warp computes one dot product.
__global__ void __launch_bounds__(kThreads) rowDotsKernel(const RowDotsParams p) {
  const int64_t entry = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
  if (entry >= p.tokens * p.width) return;
  const int64_t row = p.rows[entry];
  float sum = 0.0f;
  if (row >= 0 && row < p.limit) {
    const int64_t first = entry / p.width * p.columns;
    const auto product = [&](int64_t i) {
      return __fmul_rn(loadElement(p.grad, p.gradType, first + i), loadElement(p.x, p.xType, row * p.columns + i));
    };
    walkLanes<8>(p.columns, product, [&](float term) { sum = __fadd_rn(sum, term); });
  }
  sum = foldLanes(sum);
  if (threadIdx.x % kLanes == 0) storeElement(p.out, p.outType, entry, sum);
}

}  // namespace

cudaError_t launchRowIdMap(const RowIdMapParams& p, cudaStream_t stream) {
  // the bytes of the integer -1
  constexpr int kNone = 0xff;
  cudaError_t error = cudaMemsetAsync(p.rows, kNone, p.tokens * p.width * sizeof(int32_t), stream);
  if (error == cudaSuccess) error = cudaMemsetAsync(p.sources, kNone, p.total * sizeof(int32_t), stream);
  if (error != cudaSuccess || p.experts == 0) return error;
  const auto blocks = static_cast<unsigned>(p.experts);
  countKernel<<<blocks, kThreads, 0, stream>>>(p);
  placeKernel<<<blocks, kPlaceThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t launchTakeRows(const TakeRowsParams& p, cudaStream_t stream) {
  return withRows(p.count, p.columns, [&](const RowGrid& grid, auto width) {
    takeRowsKernel<width.value><<<grid.blocks, grid.threads, 0, stream>>>(p);
  });
}

cudaError_t launchCombineRows(const CombineRowsParams& p, cudaStream_t stream) {
  return withRows(p.tokens, p.columns, [&](const RowGrid& grid, auto width) {
    combineRowsKernel<width.value><<<grid.blocks, grid.threads, 0, stream>>>(p);
  });
}

cudaError_t launchRowDots(const RowDotsParams& p, cudaStream_t stream) {
  return launchBlocks(rowDotsKernel, ceilDivide(p.tokens * p.width, kWarps), kThreads, p, stream);
}

}  // namespace lockstep
