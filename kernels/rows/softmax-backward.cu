// The gradient of softmax. Rows of whole packs, y and its gradient of one type, are copied to shared memory and worked there
// by teams; others are read twice, by a warp each.
#include <cuda_pipeline_primitives.h>

#include "kernels/device/elements.cuh"
#include "kernels/rows/softmax.cuh"

namespace lockstep {

namespace {

__device__ float gradientOf(const SoftmaxRows& p, float share, float slope, float total) {
  return p.scale * (share * (slope - total));
}

template <Wide type, int size>
__global__ void __launch_bounds__(threadsOf(size)) stagedKernel(const SoftmaxBackwardParams p) {
  using Element = WideOf<type>;
  using Storage = typename Element::Storage;
  extern __shared__ Bytes16 stages[];
  const Team<size> team;
  if (team.row >= p.rows) return;
  const auto columns = static_cast<int>(p.columns);
  const auto length = static_cast<int>(lengthOf(p, team.row));
  constexpr int kOfPiece = sizeof(Bytes16) / sizeof(Storage);
  const int pieces = columns / kOfPiece;
  Bytes16* y = stages + team.number * 2 * pieces;
  Bytes16* grad = y + pieces;
  const Bytes16* givenY = static_cast<const Bytes16*>(p.y) + team.row * pieces;
  const Bytes16* givenGrad = static_cast<const Bytes16*>(p.grad) + team.row * pieces;
  for (int i = team.rank; i * kOfPiece < length; i += size) {
    __pipeline_memcpy_async(y + i, givenY + i, sizeof(Bytes16));
    __pipeline_memcpy_async(grad + i, givenGrad + i, sizeof(Bytes16));
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  team.synchronize();
  const auto* shares = reinterpret_cast<const Storage*>(y);
  const auto* slopes = reinterpret_cast<const Storage*>(grad);
  const auto product = [&](int i) { return Element::load(shares[i]) * Element::load(slopes[i]); };
  const float total = team.sum(length, product, [](float term) { return term; });
  for (int pack = team.rank; pack < columns / kPack; pack += size) {
    float values[kPack] = {};
    if (pack * kPack < length) {
      float slope[kPack];
      loadElements(y, type, pack * kPack, values);
      loadElements(grad, type, pack * kPack, slope);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        values[i] = pack * kPack + i < length ? gradientOf(p, values[i], slope[i], total) : 0.0f;
      }
    }
    storeElements(p.dx, p.dxType, team.row * columns + pack * kPack, values);
  }
}

template <Wide gradType, Wide yType>
__global__ void __launch_bounds__(threadsOf(kLanes)) plainKernel(const SoftmaxBackwardParams p) {
  const Team<kLanes> team;
  if (team.row >= p.rows) return;
  const int64_t length = lengthOf(p, team.row);
  const int64_t first = team.row * p.columns;
  const auto share = [&](int64_t i) { return loadElement(p.y, yType, first + i); };
  const auto slope = [&](int64_t i) { return loadElement(p.grad, gradType, first + i); };
  const auto product = [&](int64_t i) { return share(i) * slope(i); };
  const float total = team.sum(length, product, [](float term) { return term; });
#pragma unroll 4
  for (int64_t i = team.rank; i < p.columns; i += kLanes) {
    const float value = i < length ? gradientOf(p, share(i), slope(i), total) : 0.0f;
    storeElement(p.dx, p.dxType, first + i, value);
  }
}

// Works rows as stagedKernel can; false for others.
template <Wide type>
bool tryStaged(const SoftmaxBackwardParams& p, cudaStream_t stream, cudaError_t& error) {
  const int64_t bytes = p.columns * static_cast<int64_t>(2 * sizeof(typename WideOf<type>::Storage));
  if (p.columns % kPack != 0 || !fits(bytes)) return false;
  error = withTeam(p.columns, [&](auto team) {
    constexpr int kSize = team.value;
    return launchTeams<kSize>(stagedKernel<type, kSize>, p, bytes, stream);
  });
  return true;
}

}  // namespace

cudaError_t launchSoftmaxBackward(const SoftmaxBackwardParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  return withWide(p.gradType, [&](auto grad) {
    cudaError_t error = cudaSuccess;
    if (p.gradType == p.yType && tryStaged<grad.value>(p, stream, error)) return error;
    return withWide(p.yType,
                    [&](auto y) { return launchTeams<kLanes>(plainKernel<grad.value, y.value>, p, 0, stream); });
  });
}

}  // namespace lockstep
