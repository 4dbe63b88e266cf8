// A warp works a row, its threads the 32 lanes of the sums. Rows that are not too long are kept in shared memory: read
// once, the next row's elements following into the place of each as it is used up.
#include "kernels/norm.h"

#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <type_traits>

#include "kernels/elements.cuh"
#include "kernels/reduce.cuh"

namespace lockstep {

namespace {

// Shared memory that a warp, or a block of several with short rows, takes at most.
constexpr int64_t kStagedBytes = 48 * 1024;
constexpr int64_t kBlockBytes = 12 * 1024;
constexpr int kMostWarps = 8;

// Shared memory of a multiprocessor of sm_90, and what each block takes of it beside its own. The forward pass leaves
// some to the cache, for gamma and beta; the backward pass needs it for its two matrices.
constexpr int64_t kSharedBytes = 228 * 1024;
constexpr int64_t kForwardBytes = 164 * 1024;
constexpr int64_t kReservedBytes = 1024;

constexpr int kAnyType = -1;

// `known` where a kernel was compiled for one type, else the type given.
template <int known>
__device__ Wide typeOr(Wide given) {
  return known == kAnyType ? given : static_cast<Wide>(known);
}

// How a row is walked: by packs in shared memory, or by single elements where it lies. `depth` reads are in flight.
template <bool staged>
struct Walk {
  using Index = std::conditional_t<staged, int, int64_t>;
  static constexpr int width = staged ? kPack : 1;
  static constexpr int depth = staged ? 2 : 8;
};

// Rows of a grid of warps: the first of this warp, and the distance to the next.
struct WarpRows {
  int warp = static_cast<int>(threadIdx.x) / kLanes;
  int lane = static_cast<int>(threadIdx.x) % kLanes;
  int64_t step = static_cast<int64_t>(gridDim.x) * (blockDim.x / kLanes);
  int64_t first = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kLanes) + warp;
};

// Starts to copy a pack of a row of `matrix` to its place in `stage`.
template <Wide type>
__device__ void fetch(Bytes16* stage, const void* matrix, int64_t row, int packs, int pack) {
  constexpr int pieces = type == Wide::kF32 ? 2 : 1;
  const Bytes16* source = static_cast<const Bytes16*>(matrix) + row * packs * pieces;
#pragma unroll
  for (int i = pack * pieces; i < (pack + 1) * pieces; ++i) {
    __pipeline_memcpy_async(stage + i, source + i, sizeof(Bytes16));
  }
}

// Waits until the warp sees what its threads fetched.
__device__ void awaitFetched() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncwarp();
}

template <Wide type, int parameter, bool staged>
__global__ void __launch_bounds__(kMostWarps* kLanes) normKernel(const NormParams p) {
  using Way = Walk<staged>;
  using Index = typename Way::Index;
  extern __shared__ Bytes16 stages[];
  const WarpRows rows;
  const Wide parameterType = typeOr<parameter>(p.parameterType);
  const auto columns = static_cast<Index>(p.columns);
  const Index packs = columns / Way::width;
  const float length = static_cast<float>(p.columns);
  const float shift = p.zeroCentered ? 1.0f : -0.0f;
  Bytes16* stage = stages + rows.warp * (p.columns * (type == Wide::kF32 ? 4 : 2) / 16);
  if constexpr (staged) {
    if (rows.first < p.rows) {
      for (int i = rows.lane; i < packs; i += kLanes) fetch<type>(stage, p.x, rows.first, packs, i);
    }
  }
  for (int64_t row = rows.first; row < p.rows; row += rows.step) {
    const void* x;
    if constexpr (staged) {
      awaitFetched();
      x = stage;
    } else {
      x = static_cast<const typename WideOf<type>::Storage*>(p.x) + row * p.columns;
    }
    float center = 0;
    if (p.mean) {
      float sum = 0;
#pragma unroll 16
      for (Index i = rows.lane; i < columns; i += kLanes) sum += loadElement(x, type, i);
      center = foldLanes(sum) / length;
    }
    float sum = 0;
#pragma unroll 16
    for (Index i = rows.lane; i < columns; i += kLanes) {
      const float away = loadElement(x, type, i) - center;
      sum += away * away;
    }
    const float scale = 1.0f / __fsqrt_rn(foldLanes(sum) / length + p.epsilon);
    if (rows.lane == 0) {
      if (p.mean) p.mean[row] = center;
      p.rstd[row] = scale;
    }
    __syncwarp();
    for (Index base = rows.lane; base < packs; base += Way::depth * kLanes) {
      float y[Way::depth][Way::width];
      float g[Way::depth][Way::width];
      float b[Way::depth][Way::width];
#pragma unroll
      for (int d = 0; d < Way::depth; ++d) {
        const Index pack = base + d * kLanes;
        if (pack >= packs) break;
        loadElements(x, type, pack * Way::width, y[d]);
        loadElements(p.gamma, parameterType, pack * Way::width, g[d]);
        if (p.beta) {
          loadElements(p.beta, parameterType, pack * Way::width, b[d]);
        } else {
#pragma unroll
          for (float& term : b[d]) term = -0.0f;  // leaves every sum as it is
        }
      }
#pragma unroll
      for (int d = 0; d < Way::depth; ++d) {
        const Index pack = base + d * kLanes;
        if (pack >= packs) break;
#pragma unroll
        for (int i = 0; i < Way::width; ++i) y[d][i] = (y[d][i] - center) * scale * (g[d][i] + shift) + b[d][i];
        storeElements(p.out, p.outType, row * p.columns + pack * Way::width, y[d]);
        if constexpr (staged) {
          if (row + rows.step < p.rows) fetch<type>(stage, p.x, row + rows.step, packs, pack);
        }
      }
    }
  }
}

// `known` is the type of both grad and x, or kAnyType.
template <int known, int parameter, bool staged>
__global__ void __launch_bounds__(kMostWarps* kLanes) normBackwardKernel(const NormBackwardParams p) {
  using Way = Walk<staged>;
  using Index = typename Way::Index;
  static_assert(known != kAnyType || !staged);
  extern __shared__ Bytes16 stages[];
  const WarpRows rows;
  const Wide xType = typeOr<known>(p.xType);
  const Wide gradType = typeOr<known>(p.gradType);
  const Wide parameterType = typeOr<parameter>(p.parameterType);
  const auto columns = static_cast<Index>(p.columns);
  const Index packs = columns / Way::width;
  const float length = static_cast<float>(p.columns);
  const float shift = p.zeroCentered ? 1.0f : -0.0f;
  Bytes16* xStage = stages + 2 * rows.warp * (p.columns * (xType == Wide::kF32 ? 4 : 2) / 16);
  Bytes16* gradStage = xStage + p.columns * (xType == Wide::kF32 ? 4 : 2) / 16;
  const auto fetchBoth = [&](int64_t row, int pack) {
    if constexpr (staged) {
      fetch<static_cast<Wide>(known)>(xStage, p.x, row, packs, pack);
      fetch<static_cast<Wide>(known)>(gradStage, p.grad, row, packs, pack);
    }
  };
  if constexpr (staged) {
    if (rows.first < p.rows) {
      for (int i = rows.lane; i < packs; i += kLanes) fetchBoth(rows.first, i);
    }
  }
  for (int64_t row = rows.first; row < p.rows; row += rows.step) {
    const void* x = staged ? xStage : p.x;
    const void* grad = staged ? gradStage : p.grad;
    const int64_t first = row * p.columns;
    const Index start = staged ? 0 : static_cast<Index>(first);
    const float center = p.mean ? p.mean[row] : 0.0f;
    const float scale = p.rstd[row];
    if constexpr (staged) awaitFetched();
    float sumD = 0;
    float sumDy = 0;
#pragma unroll 8
    for (Index i = rows.lane; i < columns; i += kLanes) {
      const float y = (loadElement(x, xType, start + i) - center) * scale;
      const float d = loadElement(grad, gradType, start + i) * (loadElement(p.gamma, parameterType, i) + shift);
      sumD += d;
      sumDy += d * y;
    }
    const float a = p.mean ? foldLanes(sumD) / length : 0.0f;
    const float b = foldLanes(sumDy) / length;
    __syncwarp();
    for (Index base = rows.lane; base < packs; base += Way::depth * kLanes) {
      float y[Way::depth][Way::width];
      float d[Way::depth][Way::width];
      float g[Way::depth][Way::width];
#pragma unroll
      for (int k = 0; k < Way::depth; ++k) {
        const Index pack = base + k * kLanes;
        if (pack >= packs) break;
        loadElements(x, xType, start + pack * Way::width, y[k]);
        loadElements(grad, gradType, start + pack * Way::width, d[k]);
        loadElements(p.gamma, parameterType, pack * Way::width, g[k]);
      }
#pragma unroll
      for (int k = 0; k < Way::depth; ++k) {
        const Index pack = base + k * kLanes;
        if (pack >= packs) break;
#pragma unroll
        for (int i = 0; i < Way::width; ++i) {
          const float standard = (y[k][i] - center) * scale;
          y[k][i] = (d[k][i] * (g[k][i] + shift) + (standard * -b - a)) * scale;
        }
        storeElements(p.dx, p.dxType, first + pack * Way::width, y[k]);
        if (staged && row + rows.step < p.rows) fetchBoth(row + rows.step, pack);
      }
    }
  }
}

struct WarpGrid {
  unsigned blocks;
  unsigned threads;
  unsigned sharedBytes;
};

// As many warps as stay resident, or as there are rows; each has `staged` bytes of a multiprocessor's `shared` ones.
WarpGrid warpGrid(int64_t rows, int64_t staged, int64_t shared) {
  int device = 0;
  int multiprocessors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  const int64_t warps = staged == 0 ? 4 : std::clamp<int64_t>(kBlockBytes / staged, 1, kMostWarps);
  const int64_t fitting = shared / (warps * staged + kReservedBytes);
  const int64_t resident = std::min({fitting, 64 / warps, int64_t{32}});
  return {static_cast<unsigned>(std::min(ceilDivide(rows, warps), multiprocessors * resident)),
          static_cast<unsigned>(warps * kLanes), static_cast<unsigned>(warps * staged)};
}

// Bytes of `copies` rows to keep in shared memory, 0 where they do not fit it, or are no whole packs.
int64_t stagedBytes(int64_t columns, Wide type, int copies) {
  if (columns % kPack != 0 || columns > kStagedBytes) return 0;
  const int64_t bytes = columns * (type == Wide::kF32 ? 4 : 2) * copies;
  return bytes <= kStagedBytes ? bytes : 0;
}

}  // namespace

cudaError_t launchNorm(const NormParams& p, cudaStream_t stream) {
  if (p.rows == 0) return cudaSuccess;
  const int64_t staged = stagedBytes(p.columns, p.xType, 1);
  const WarpGrid grid = warpGrid(p.rows, staged, kForwardBytes);
  withWide(p.xType, [&](auto type) {
    if (staged == 0) {
      normKernel<type.value, kAnyType, false><<<grid.blocks, grid.threads, 0, stream>>>(p);
      return;
    }
    withWide(p.parameterType, [&](auto parameter) {
      constexpr int known = static_cast<int>(parameter.value);
      cudaFuncSetAttribute(normKernel<type.value, known, true>, cudaFuncAttributePreferredSharedMemoryCarveout,
                           static_cast<int>(100 * kForwardBytes / kSharedBytes));
      normKernel<type.value, known, true><<<grid.blocks, grid.threads, grid.sharedBytes, stream>>>(p);
    });
  });
  return cudaGetLastError();
}

cudaError_t launchNormBackward(const NormBackwardParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  const bool same = p.xType == p.gradType;
  const int64_t staged = same ? stagedBytes(p.columns, p.xType, 2) : 0;
  const WarpGrid grid = warpGrid(p.rows, staged, kSharedBytes);
  if (!same) {
    normBackwardKernel<kAnyType, kAnyType, false><<<grid.blocks, grid.threads, 0, stream>>>(p);
    return cudaGetLastError();
  }
  withWide(p.xType, [&](auto type) {
    constexpr int known = static_cast<int>(type.value);
    if (staged == 0) {
      normBackwardKernel<known, kAnyType, false><<<grid.blocks, grid.threads, 0, stream>>>(p);
      return;
    }
    withWide(p.parameterType, [&](auto parameter) {
      constexpr int given = static_cast<int>(parameter.value);
      normBackwardKernel<known, given, true><<<grid.blocks, grid.threads, grid.sharedBytes, stream>>>(p);
    });
  });
  return cudaGetLastError();
}

}  // namespace lockstep
