// A block works a chunk of 32 rows, two at a time in shared memory: x and grad are read once for dx and for the sums of
// the chunk down the columns, which a thread keeps for the columns that are its own.
#include <algorithm>

#include "kernels/column-sum.h"
#include "kernels/norm.cuh"
#include "kernels/norm.h"

namespace lockstep {

namespace {

constexpr int kRowsAtOnce = 2;
constexpr int kPacksOfThread = 4;
constexpr int kMostThreads = 512;
constexpr int kWarps = 8;

// What a row's elements share: dx = scale * (d + (y * -b - a)), y = (x - center) * scale.
struct RowTerms {
  float center;
  float scale;
  float a;
  float b;
};

// Sums along a row by a warp, from `x`, `grad` and `gamma`, which give elements by their index.
template <typename Index, typename X, typename Grad, typename Gamma>
__device__ RowTerms termsOf(const NormBackwardParams& p, int64_t row, X x, Grad grad, Gamma gamma) {
  const auto columns = static_cast<Index>(p.columns);
  const float length = static_cast<float>(p.columns);
  RowTerms terms{p.mean ? p.mean[row] : 0.0f, p.rstd[row], 0.0f, 0.0f};
  float sumD = 0;
  float sumDy = 0;
#pragma unroll 8
  for (Index i = static_cast<int>(threadIdx.x) % kLanes; i < columns; i += kLanes) {
    const float y = (x(i) - terms.center) * terms.scale;
    const float d = grad(i) * gamma(i);
    sumD += d;
    sumDy += d * y;
  }
  if (p.mean) terms.a = foldLanes(sumD) / length;
  terms.b = foldLanes(sumDy) / length;
  return terms;
}

// `type` is that of x and grad, `known` that of dx, or kAnyType. Rows are whole packs, at most kPacksOfThread for each
// thread. With `summed` the sums of a chunk are left in the workspace; without it a block works kRowsAtOnce rows.
template <Wide type, int known, bool summed>
__global__ void __launch_bounds__(kMostThreads) stagedKernel(const NormBackwardParams p, int multiprocessors) {
  constexpr int64_t kRows = summed ? kChunkRows : kRowsAtOnce;
  extern __shared__ Bytes16 shared[];
  __shared__ RowTerms termsOfRows[kRowsAtOnce];
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int packs = static_cast<int>(p.columns) / kPack;
  const int pitch = packs * (type == Wide::kF32 ? 2 : 1);
  const float shift = p.zeroCentered ? 1.0f : -0.0f;
  float* gamma = reinterpret_cast<float*>(shared);
  Bytes16* xs = shared + 2 * packs;
  Bytes16* grads = xs + kRowsAtOnce * pitch;
  const int64_t begin = blockIdx.x * kRows;
  const int count = static_cast<int>(min(kRows, p.rows - begin));
  const auto fetchBoth = [&](int r, int row, int pack) {
    fetch<type>(xs + r * pitch, p.x, begin + row, packs, pack);
    fetch<type>(grads + r * pitch, p.grad, begin + row, packs, pack);
  };
  for (int r = 0; r < kRowsAtOnce && r < count; ++r) {
    for (int pack = thread; pack < packs; pack += threads) fetchBoth(r, r, pack);
  }
  for (int i = thread; i < packs * kPack; i += threads) gamma[i] = loadElement(p.gamma, p.parameterType, i) + shift;
  float weighted[kPacksOfThread][kPack] = {};
  float plain[kPacksOfThread][kPack] = {};
  for (int first = 0; first < count; first += kRowsAtOnce) {
    awaitFetched();
    for (int r = turnOf(multiprocessors); r < kRowsAtOnce && first + r < count; r += threads / kLanes) {
      const Bytes16* x = xs + r * pitch;
      const Bytes16* grad = grads + r * pitch;
      const RowTerms terms = termsOf<int>(
          p, begin + first + r, [&](int i) { return loadElement(x, type, i); },
          [&](int i) { return loadElement(grad, type, i); }, [&](int i) { return gamma[i]; });
      if (thread % kLanes == 0) termsOfRows[r] = terms;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kPacksOfThread; ++k) {
      const int pack = thread + k * threads;
      if (pack >= packs) break;
      float g[kPack];
      loadElements(gamma, Wide::kF32, pack * kPack, g);
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        if (first + r >= count) break;
        const auto [center, scale, a, b] = termsOfRows[r];
        float x[kPack];
        float grad[kPack];
        loadElements(xs + r * pitch, type, pack * kPack, x);
        loadElements(grads + r * pitch, type, pack * kPack, grad);
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          const float y = (x[i] - center) * scale;
          if constexpr (summed) {
            weighted[k][i] += y * grad[i];
            plain[k][i] += grad[i];
          }
          x[i] = (grad[i] * g[i] + (y * -b - a)) * scale;
        }
        storeElements(p.dx, typeOr<known>(p.dxType), (begin + first + r) * p.columns + pack * kPack, x);
        if (first + kRowsAtOnce + r < count) fetchBoth(r, first + kRowsAtOnce + r, pack);
      }
    }
  }
  if constexpr (summed) {
    const int64_t chunks = gridDim.x;
#pragma unroll
    for (int k = 0; k < kPacksOfThread; ++k) {
      const int pack = thread + k * threads;
      if (pack >= packs) break;
      const int64_t at = blockIdx.x * p.columns + pack * kPack;
      storeElements(p.workspace, Wide::kF32, at, weighted[k]);
      if (p.dbeta) storeElements(p.workspace, Wide::kF32, chunks * p.columns + at, plain[k]);
    }
  }
}

// A warp works a row where it lies.
__global__ void __launch_bounds__(kWarps* kLanes) rowKernel(const NormBackwardParams p) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  const float shift = p.zeroCentered ? 1.0f : -0.0f;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes; row < p.rows; row += step) {
    const int64_t first = row * p.columns;
    const auto x = [&](int64_t i) { return loadElement(p.x, p.xType, first + i); };
    const auto grad = [&](int64_t i) { return loadElement(p.grad, p.gradType, first + i); };
    const auto gamma = [&](int64_t i) { return loadElement(p.gamma, p.parameterType, i) + shift; };
    const auto [center, scale, a, b] = termsOf<int64_t>(p, row, x, grad, gamma);
#pragma unroll 4
    for (int64_t i = static_cast<int>(threadIdx.x) % kLanes; i < p.columns; i += kLanes) {
      const float y = (x(i) - center) * scale;
      storeElement(p.dx, p.dxType, first + i, (grad(i) * gamma(i) + (y * -b - a)) * scale);
    }
  }
}

// Where chunks fill the device, their sums are formed beside dx; `summed` says so.
template <Wide type, int known>
void launchStaged(const NormBackwardParams& p, int64_t bytes, bool& summed, cudaStream_t stream) {
  const auto threads = static_cast<unsigned>(ceilDivide(p.columns, kPack * kPacksOfThread * kLanes) * kLanes);
  const auto chunks = static_cast<unsigned>(std::min<int64_t>(chunksOf(p.rows), INT32_MAX));
  const Residency residency = residencyOf(stagedKernel<type, known, true>, threads, bytes);
  summed = 2 * chunks >= residency.blocks;
  if (summed) {
    stagedKernel<type, known, true><<<chunks, threads, bytes, stream>>>(p, residency.multiprocessors);
  } else {
    residencyOf(stagedKernel<type, known, false>, threads, bytes);
    const auto blocks = static_cast<unsigned>(ceilDivide(p.rows, kRowsAtOnce));
    stagedKernel<type, known, false><<<blocks, threads, bytes, stream>>>(p, residency.multiprocessors);
  }
}

}  // namespace

cudaError_t launchNormBackward(const NormBackwardParams& p, cudaStream_t stream) {
  if (p.columns == 0) return cudaSuccess;
  const int64_t bytes = p.columns * (static_cast<int64_t>(sizeof(float)) + 2 * kRowsAtOnce * elementBytes(p.xType));
  bool summed = false;
  if (p.rows == 0) {
    // only sums of nothing
  } else if (p.xType == p.gradType && p.columns % kPack == 0 && p.columns <= kPack * kPacksOfThread * kMostThreads &&
             bytes <= kMostSharedBytes) {
    withWide(p.xType, [&](auto type) {
      if (p.dxType == p.xType) {
        launchStaged<type.value, static_cast<int>(type.value)>(p, bytes, summed, stream);
      } else {
        launchStaged<type.value, kAnyType>(p, bytes, summed, stream);
      }
    });
  } else {
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(ceilDivide(p.rows, kWarps), INT32_MAX));
    rowKernel<<<blocks, kWarps * kLanes, 0, stream>>>(p);
  }
  const ColumnSumParams sums{p.grad,  p.gradType, p.x,          p.xType, p.mean,    p.rstd,
                             p.dbeta, p.dgamma,   p.gradientType, p.rows, p.columns, p.workspace};
  return summed ? launchChunkFold(sums, stream) : launchColumnSum(sums, stream);
}

}  // namespace lockstep
