// Embedding lookup and its gradient. The gradient adds the rows that share an id in a fixed order. First the positions
// are sorted by id, in ascending order for each id. Then each warp adds the rows of one id, in all or some of the
// columns. No element is updated by two threads.
#include "kernels/rows/embedding.gen.h"

#include "kernels/device/elements.cuh"
#include "kernels/device/reduce.cuh"

namespace lockstep {

namespace {

constexpr float kInfinity = __builtin_huge_valf();

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
// The number of table rows (ids) that a block of the sort kernel counts. Each thread counts the positions of one id.
constexpr int kGroup = kThreads;
// The number of consecutive positions whose ids a thread loads at once.
constexpr int kIds = 8;
constexpr int kTile = kThreads * kIds;
// The number of gradient rows that a thread loads before it adds the first.
constexpr int kAhead = 8;
// The number of ids that a warp processes, unless the grid would exceed its maximum height.
constexpr int kWarpIds = 8;

// If `width` is kPack, rows must start at multiples of 16 bytes.
template <int width>
__global__ void __launch_bounds__(kRowThreads) embeddingKernel(const EmbeddingParams p) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
  if (column >= p.columns) return;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t i = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; i < p.count; i += step) {
    const int32_t id = p.ids[i];
    float values[width];
#pragma unroll
    for (int k = 0; k < width; ++k) values[k] = id >= 0 && id < p.whole ? -0.0f : kInfinity - kInfinity;
    const int64_t row = id - p.first;
    if (row >= 0 && row < p.vocabulary) loadElements(p.table, p.tableType, row * p.columns + column, values);
    storeElements(p.out, p.outType, i * p.columns + column, values);
  }
}

// The workspace: one offset for each row of the table and one more, then positions. The positions whose ids have a row in the
// table are sorted by id. The positions for row v begin at offset v and end at offset v + 1.
__device__ uint32_t* startsOf(const EmbeddingBackwardParams& p) { return p.workspace; }
__device__ uint32_t* positionsOf(const EmbeddingBackwardParams& p) { return p.workspace + p.vocabulary + 1; }

// Loads the ids of a thread's positions in a tile, counted from p.first. Lower ids and positions past the end get -1.
__device__ void loadIds(const EmbeddingBackwardParams& p, int64_t tile, int32_t (&ids)[kIds]) {
  const int64_t firstOfThread = tile + static_cast<int>(threadIdx.x) * kIds;
  if (firstOfThread + kIds <= p.count) {
    const int4* quads = reinterpret_cast<const int4*>(p.ids + firstOfThread);
    const int4 low = quads[0];
    const int4 high = quads[1];
    ids[0] = low.x, ids[1] = low.y, ids[2] = low.z, ids[3] = low.w;
    ids[4] = high.x, ids[5] = high.y, ids[6] = high.z, ids[7] = high.w;
  } else {
#pragma unroll
    for (int k = 0; k < kIds; ++k) ids[k] = firstOfThread + k < p.count ? p.ids[firstOfThread + k] : -1;
  }
#pragma unroll
  for (int& id : ids) id = id < p.first ? -1 : id - p.first;
}

// Returns the sum of `value` over the threads before this one (exclusive prefix sum). `total` becomes the sum over all
// threads of the block, which must all call it.
__device__ int sumBefore(int value, int& total) {
  __shared__ int warpTotals[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  int upTo = value;
#pragma unroll
  for (int w = 1; w < kLanes; w *= 2) {
    const int below = __shfl_up_sync(kFullMask, upTo, w);
    if (lane >= w) upTo += below;
  }
  if (lane == kLanes - 1) warpTotals[warp] = upTo;
  __syncthreads();
  total = 0;
  int before = upTo - value;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += warpTotals[w];
    total += warpTotals[w];
  }
  __syncthreads();
  return before;
}

// A position in a tile whose id belongs to this block, and the index of that id in the block.
struct Hit {
  uint16_t position;
  uint16_t id;
};

// A counting sort: writes the positions sorted by id, and for each id the offset of its first position.
__global__ void __launch_bounds__(kThreads) sortKernel(const EmbeddingBackwardParams p) {
  __shared__ uint32_t next[kGroup];
  __shared__ uint32_t base;
  __shared__ Hit hits[kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGroup;
  const int64_t named = min(p.vocabulary, int64_t{1} << 31) - first;
  // i32 ids cannot select rows from 2^31 on
  const uint32_t rows = named <= 0 ? 0 : static_cast<uint32_t>(min(named, int64_t{kGroup}));
  // A negative id maps to a number above any index of this block.
  const auto idOf = [&](int32_t id) { return static_cast<uint32_t>(id) - static_cast<uint32_t>(first); };
  next[thread] = 0;
  if (thread == 0) base = 0;
  __syncthreads();
  uint32_t below = 0;
  for (int64_t tile = 0; tile < p.count; tile += kTile) {
    int32_t ids[kIds];
    loadIds(p, tile, ids);
#pragma unroll
    for (int k = 0; k < kIds; ++k) {
      if (idOf(ids[k]) < rows) atomicAdd(&next[idOf(ids[k])], 1u);
      below += ids[k] >= 0 && ids[k] < first;
    }
  }
  atomicAdd(&base, below);
  __syncthreads();
  uint32_t start = base;
  for (int i = 0; i < thread; ++i) start += next[i];
  const uint32_t after = start + next[thread];
  __syncthreads();
  next[thread] = start;
  if (first + thread < p.vocabulary) startsOf(p)[first + thread] = start;
  if (first + thread == p.vocabulary - 1) startsOf(p)[p.vocabulary] = after;
  for (int64_t tile = 0; tile < p.count; tile += kTile) {
    int32_t ids[kIds];
    loadIds(p, tile, ids);
    int found = 0;
#pragma unroll
    for (int k = 0; k < kIds; ++k) found += idOf(ids[k]) < rows;
    if (__syncthreads_or(found) == 0) continue;
    int total;
    int place = sumBefore(found, total);
#pragma unroll
    for (int k = 0; k < kIds; ++k) {
      const uint32_t id = idOf(ids[k]);
      if (id < rows) hits[place++] = {static_cast<uint16_t>(thread * kIds + k), static_cast<uint16_t>(id)};
    }
    __syncthreads();
    // A single warp writes the positions, so that positions of the same id stay in order.
    for (int i = thread; thread < kLanes && i - thread < total; i += kLanes) {
      const Hit hit = i < total ? hits[i] : Hit{0, static_cast<uint16_t>(kGroup + thread)};
      const unsigned same = __match_any_sync(kFullMask, hit.id);
      const unsigned before = same & ((1u << thread) - 1);
      const uint32_t to = i < total ? next[hit.id] : 0;
      __syncwarp();
      if (i < total) positionsOf(p)[to + __popc(before)] = static_cast<uint32_t>(tile) + hit.position;
      if (i < total && before == 0) next[hit.id] = to + __popc(same);
      __syncwarp();
    }
  }
}

// Adds kAhead rows of the gradient, at the positions first, first + 1, ... below `count`. Each lane holds one
// position.
template <Wide type, int width>
__device__ void addRows(const EmbeddingBackwardParams& p, uint32_t position, int64_t column, int first, int count,
                        float (&sums)[width]) {
  float terms[kAhead][width];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int64_t row = __shfl_sync(kFullMask, position, first + i);
    loadElements(p.grad, type, row * p.columns + column, terms[i]);
  }
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    // adding +0 does not change a sum that started at +0
#pragma unroll
    for (int j = 0; j < width; ++j) sums[j] += first + i < count ? terms[i][j] : 0.0f;
  }
}

// A warp adds the gradient rows of some ids, which are a grid stride apart, in some columns. If `width` is kPack, rows
// must start at multiples of 16 bytes.
template <Wide type, int width>
__global__ void __launch_bounds__(kThreads) sumKernel(const EmbeddingBackwardParams p) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t own = (static_cast<int64_t>(blockIdx.x) * kLanes + lane) * width;
  // threads past the last column read the first column
  const int64_t column = own < p.columns ? own : 0;
  const int64_t warp = static_cast<int64_t>(blockIdx.y) * kWarps + threadIdx.y;
  const int64_t warps = static_cast<int64_t>(gridDim.y) * kWarps;
  for (int64_t first = warp; first < p.vocabulary; first += warps * kLanes) {
    const int64_t known = min(first + lane * warps, p.vocabulary - 1);
    const uint32_t knownBegin = startsOf(p)[known];
    const uint32_t knownEnd = startsOf(p)[known + 1];
    for (int k = 0; k < kLanes && first + k * warps < p.vocabulary; ++k) {
      const int64_t end = __shfl_sync(kFullMask, knownEnd, k);
      float sums[width] = {};
      for (int64_t i = __shfl_sync(kFullMask, knownBegin, k); i < end; i += kLanes) {
        const int count = static_cast<int>(min(end - i, int64_t{kLanes}));
        const uint32_t position = positionsOf(p)[i + min(lane, count - 1)];
        for (int j = 0; j < count; j += kAhead) addRows<type>(p, position, column, j, count, sums);
      }
      if (own < p.columns) storeElements(p.out, p.outType, (first + k * warps) * p.columns + column, sums);
    }
  }
}

template <int width>
void sumRows(const EmbeddingBackwardParams& p, cudaStream_t stream) {
  const auto across = static_cast<unsigned>(ceilDivide(p.columns, kLanes * width));
  const auto down = static_cast<unsigned>(std::min<int64_t>(ceilDivide(p.vocabulary, kWarps * kWarpIds), kMaxGridY));
  withWide(p.gradType, [&](auto type) {
    sumKernel<type.value, width><<<dim3(across, down), dim3(kLanes, kWarps), 0, stream>>>(p);
  });
}

}  // namespace

cudaError_t launchEmbedding(const EmbeddingParams& p, cudaStream_t stream) {
  return withRows(p.count, p.columns, [&](const RowGrid& grid, auto width) {
    embeddingKernel<width.value><<<grid.blocks, grid.threads, 0, stream>>>(p);
  });
}

cudaError_t launchEmbeddingBackward(const EmbeddingBackwardParams& p, cudaStream_t stream) {
  if (p.vocabulary == 0 || p.columns == 0) return cudaSuccess;
  sortKernel<<<static_cast<unsigned>(ceilDivide(p.vocabulary, kGroup)), kThreads, 0, stream>>>(p);
  if (p.columns % kPack == 0) {
    sumRows<kPack>(p, stream);
  } else {
    sumRows<1>(p, stream);
  }
  return cudaGetLastError();
}

}  // namespace lockstep
