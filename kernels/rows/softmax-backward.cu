// The gradient of softmax. A team is a group of threads that computes one row. If rows are whole packs, fit in shared
// memory, and y and its gradient have the same type, stagedKernel copies each row to shared memory and computes there.
// Otherwise plainKernel reads a row twice from global memory, with one warp per row.
#include <cuda_pipeline_primitives.h>

#include "kernels/device/elements.cuh"
#include "kernels/rows/softmax.cuh"

namespace lockstep {

namespace {

__device__ float gradientOf(const SoftmaxBackwardParams& p, float output, float gradOutput, float total) {
  return p.scale * (output * (gradOutput - total));
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
  const auto* outputs = reinterpret_cast<const Storage*>(y);
  const auto* grads = reinterpret_cast<const Storage*>(grad);
  const auto product = [&](int i) { return Element::load(outputs[i]) * Element::load(grads[i]); };
  const float total = team.sum(length, product, [](float term) { return term; });
  for (int pack = team.rank; pack < columns / kPack; pack += size) {
    float values[kPack] = {};
    if (pack * kPack < length) {
      float gradOutput[kPack];
      loadElements(y, type, pack * kPack, values);
      loadElements(grad, type, pack * kPack, gradOutput);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        values[i] = pack * kPack + i < length ? gradientOf(p, values[i], gradOutput[i], total) : 0.0f;
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
  const auto output = [&](int64_t i) { return loadElement(p.y, yType, first + i); };
  const auto gradOutput = [&](int64_t i) { return loadElement(p.grad, gradType, first + i); };
  const auto product = [&](int64_t i) { return output(i) * gradOutput(i); };
  const float total = team.sum(length, product, [](float term) { return term; });
#pragma unroll 4
  for (int64_t i = team.rank; i < p.columns; i += kLanes) {
    const float value = i < length ? gradientOf(p, output(i), gradOutput(i), total) : 0.0f;
    storeElement(p.dx, p.dxType, first + i, value);
  }
}

// Launches stagedKernel if it supports these rows. Otherwise returns false.
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
