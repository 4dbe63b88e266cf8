// Updates amax histories and scales. A slot is the column of the history and the scale that belong to one tensor.
// Threads with neighbouring x have neighbouring slots; threads along y share the rows of a slot's history.
#include "kernels/update/delayed-scaling.gen.h"

#include "kernels/core/scale.cuh"
#include "kernels/device/reduce.cuh"

namespace lockstep {

namespace {

constexpr int kSlots = 32;
constexpr int kRows = 32;
// History rows that a thread moves at a time. All their loads are issued before the first store.
constexpr int kDepth = 16;

__global__ void __launch_bounds__(kSlots* kRows) updateScalesKernel(const UpdateScalesParams p) {
  __shared__ float largest[kRows][kSlots + 1];
  __shared__ float newest[kSlots];
  const int column = static_cast<int>(threadIdx.x);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSlots;
  const bool present = first + column < p.count;
  float* history = p.amaxHistory + first + column;
  const float latest = present ? *history : 0.0f;
  // NaN != 0, so a NaN amax also rolls the history.
  const bool rolls = latest != 0;
  float amax = 0;
  for (int64_t tile = 0; tile < p.length; tile += kRows * kDepth) {
    float moved[kDepth];
    const auto rowOf = [&](int k) { return tile + k * kRows + threadIdx.y; };
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      moved[k] = present && rowOf(k) < p.length - 1 ? history[(rowOf(k) + 1) * p.count] : latest;
    }
    // All rows of this tile have been read. No other tile writes the rows that follow.
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const int64_t row = rowOf(k);
      if (!rolls || row >= p.length) continue;
      history[row * p.count] = row == 0 ? 0.0f : moved[k];
      if (moved[k] > amax) amax = moved[k];
    }
  }
  largest[threadIdx.y][column] = amax;
  if (threadIdx.y == 0) newest[column] = latest;
  __syncthreads();
  // from here on one warp computes each slot (the scale of one tensor); its lanes share the rows of the slot's history
  const int mine = static_cast<int>(threadIdx.y);
  amax = maximumOfLanes(largest[column][mine]);
  const int64_t slot = first + mine;
  if (column != 0 || slot >= p.count) return;
  const float infinity = floatOf(0x7f800000);
  const float largestFinite = floatOf(0x7f7fffff);
  // The previous scale may be infinite. An update makes it finite, even where it computes no new scale.
  if (fabsf(p.scale[slot]) == infinity) p.scale[slot] = largestFinite;
  if (newest[mine] == 0) return;
  if (p.mostRecent) amax = newest[mine];
  if (!(amax > 0 && amax < infinity)) return;
  const float quotient = p.scaledMax / amax;
  p.scale[slot] = quotient < infinity ? quotient : largestFinite;
}

}  // namespace

cudaError_t launchUpdateScales(const UpdateScalesParams& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((p.count + kSlots - 1) / kSlots);
  updateScalesKernel<<<blocks, dim3(kSlots, kRows), 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace lockstep
