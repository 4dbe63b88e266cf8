// Sums of squares of lists of tensors, and the clip factor. pieceKernel sums pieces of 4096 elements, one warp per piece.
// totalKernel adds the sums of a tensor's pieces with one warp. clipKernel adds the sums of all tensors.
#include "kernels/update/grad-norm.gen.h"

#include <vector>

#include "kernels/device/device.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/update/square-piece.h"
#include "kernels/update/tensor-list.cuh"

namespace lockstep {

namespace {

constexpr int kWarps = 4;
// The number of elements per lane that are loaded before the first is added.
constexpr int kDepth = 16;

// Sums the squares of one piece of 4096 elements per warp. The threads of the warp are the lanes of the sum.
template <Wide type>
__device__ void sumPiece(const PieceSumsParams& p, uint32_t tile) {
  const int64_t piece = static_cast<int64_t>(tile) * kWarps + threadIdx.x / kLanes;
  const int64_t first = piece * kSquarePiece;
  if (first >= p.count) return;
  const auto* x = static_cast<const typename WideOf<type>::Storage*>(p.x) + first;
  const int count = static_cast<int>(min(p.count - first, kSquarePiece));
  float sum = 0;
  const auto add = [&](auto element) {
    const float value = WideOf<type>::load(element);
    sum += value * value;
  };
  if constexpr (sizeof(*x) == 4) {
    walkLanes<kDepth>(count, [&](int i) { return x[i]; }, add);
  } else {
    // Of each 64 elements a thread loads two neighbours. Shuffles then give each lane l its own elements, l and l + 32.
    const auto* pairs = reinterpret_cast<const uint32_t*>(x);
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int whole = count / (2 * kLanes) * (2 * kLanes);
    walkLanes<kDepth>(
        whole / 2, [&](int i) { return pairs[i]; },
        [&](uint32_t pair) {
          const int shift = lane % 2 * 16;
          add(static_cast<uint16_t>(__shfl_sync(kFullMask, pair, lane / 2) >> shift));
          add(static_cast<uint16_t>(__shfl_sync(kFullMask, pair, kLanes / 2 + lane / 2) >> shift));
        });
    for (int i = whole + lane; i < count; i += kLanes) add(x[i]);
  }
  sum = foldLanes(sum);
  if (threadIdx.x % kLanes == 0) p.sums[piece] = sum;
}

template <typename List>
__global__ void __launch_bounds__(kWarps* kLanes) pieceKernel(const __grid_constant__ List list) {
  const auto [index, tile] = tileOfBlock(list);
  const PieceSumsParams& p = list.rows[index];
  switch (p.xType) {
    case Wide::kF32:
      return sumPiece<Wide::kF32>(p, tile);
    case Wide::kBf16:
      return sumPiece<Wide::kBf16>(p, tile);
    case Wide::kF16:
      return sumPiece<Wide::kF16>(p, tile);
  }
}

// Returns the sum of `count` terms to every thread of the warp.
__device__ float sumOf(const float* terms, int64_t count) {
  float sum = 0;
  walkLanes<kDepth>(count, [&](int64_t i) { return terms[i]; }, [&](float term) { sum += term; });
  return foldLanes(sum);
}

template <typename List>
__global__ void __launch_bounds__(kLanes) totalKernel(const __grid_constant__ List list) {
  const SumPiecesParams& p = list.rows[blockIdx.x];
  const float sum = sumOf(p.sums, p.count);
  if (threadIdx.x == 0) *p.out = sum;
}

__global__ void __launch_bounds__(kLanes) clipKernel(const ClipFactorParams p) {
  const float norm = __fsqrt_rn(sumOf(p.sums, p.count));
  const float ratio = p.maxNorm / (norm + 1e-6f);
  if (threadIdx.x != 0) return;
  *p.norm = norm;
  *p.factor = ratio > 1.0f ? 1.0f : ratio;
}

// Appends the parameters of a tensor.
constexpr auto kAdd = [](auto& list, const auto& tensor) {
  list.rows[list.size] = tensor;
  return true;
};

template <int capacity>
cudaError_t launchPieces(std::span<const PieceSumsParams> tensors, cudaStream_t stream) {
  using List = TensorList<PieceSumsParams, capacity>;
  return launchLists<List>(
      tensors, [](const PieceSumsParams& p) { return ceilDivide(squarePieces(p.count), int64_t{kWarps}); }, kAdd,
      [&](const List& list, uint32_t tiles) { pieceKernel<<<tiles, kWarps * kLanes, 0, stream>>>(list); });
}

template <int capacity>
cudaError_t launchTotals(std::span<const SumPiecesParams> tensors, cudaStream_t stream) {
  using List = TensorList<SumPiecesParams, capacity>;
  return launchLists<List>(
      tensors, [](const SumPiecesParams&) { return int64_t{1}; }, kAdd,
      [&](const List& list, uint32_t tiles) { totalKernel<<<tiles, kLanes, 0, stream>>>(list); });
}

}  // namespace

cudaError_t launchPieceSums(const PieceSumsParams& p, cudaStream_t stream) {
  return launchPieces<kFewTensors>({&p, 1}, stream);
}

cudaError_t launchSumPieces(const SumPiecesParams& p, cudaStream_t stream) {
  return launchTotals<kFewTensors>({&p, 1}, stream);
}

cudaError_t launchSquareSum(std::span<const SquareSumParams> tensors, cudaStream_t stream) {
  std::vector<PieceSumsParams> pieces;
  std::vector<SumPiecesParams> totals;
  for (const SquareSumParams& p : tensors) {
    pieces.push_back({p.x, p.xType, p.count, p.workspace});
    totals.push_back({p.workspace, squarePieces(p.count), p.out});
  }
  const bool isShort = tensors.size() <= static_cast<size_t>(kFewTensors);
  const cudaError_t error =
      isShort ? launchPieces<kFewTensors>(pieces, stream) : launchPieces<kManyTensors>(pieces, stream);
  if (error != cudaSuccess) return error;
  return isShort ? launchTotals<kFewTensors>(totals, stream) : launchTotals<kManyTensors>(totals, stream);
}

cudaError_t launchClipFactor(const ClipFactorParams& p, cudaStream_t stream) {
  clipKernel<<<1, kLanes, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace lockstep
