// Swaps two axes of an array whose elements are runs of bytes. A run is moved in grains; a grain is the widest access
// that divides a run. Each thread moves kMoves grains, and neighbouring threads write neighbouring grains. Indices are
// divided in 32 bits if they fit.
#include "kernels/device/device.cuh"
#include "kernels/layout/layout.gen.h"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
// The number of grains (accesses) that a thread moves. It loads all of them before its first store.
constexpr int kMoves = 4;
constexpr int64_t kTile = kThreads * kMoves;

// The sizes of the array. A run has `length` grains (units of one access), and `total` is the number of grains of all
// runs.
template <typename Index>
struct Sizes {
  Index p;
  Index middle;
  Index q;
  Index length;
  Index total;
};

// Returns the index in the source of the grain (unit of one access) that has index `index` in the output.
template <typename Index>
__device__ Index sourceOf(const Sizes<Index>& s, Index index) {
  const Index run = index / s.length;
  const Index line = run / s.p;
  const Index plane = line / s.middle;
  const Index outer = plane / s.q;
  const Index i = run - line * s.p;
  const Index m = line - plane * s.middle;
  const Index j = plane - outer * s.q;
  return (((outer * s.p + i) * s.middle + m) * s.q + j) * s.length + (index - run * s.length);
}

template <typename Grain, typename Index>
__global__ void __launch_bounds__(kThreads) swapKernel(const Grain* x, Grain* out, const Sizes<Index> sizes) {
  const Index first = static_cast<Index>(blockIdx.x) * kTile + threadIdx.x;
  Grain grains[kMoves];
#pragma unroll
  for (int k = 0; k < kMoves; ++k) {
    const Index index = first + k * kThreads;
    if (index < sizes.total) grains[k] = x[sourceOf(sizes, index)];
  }
#pragma unroll
  for (int k = 0; k < kMoves; ++k) {
    const Index index = first + k * kThreads;
    if (index < sizes.total) out[index] = grains[k];
  }
}

template <typename Grain, typename Index>
void launchSwap(const SwapAxesParams& s, int64_t total, cudaStream_t stream) {
  const Sizes<Index> sizes = {static_cast<Index>(s.p), static_cast<Index>(s.middle), static_cast<Index>(s.q),
                              static_cast<Index>(s.unit / sizeof(Grain)), static_cast<Index>(total)};
  const auto blocks = static_cast<unsigned>(ceilDivide(total, kTile));
  swapKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const Grain*>(s.x), static_cast<Grain*>(s.out), sizes);
}

template <typename Grain>
cudaError_t launchGrains(const SwapAxesParams& s, int64_t bytes, cudaStream_t stream) {
  const int64_t total = bytes / static_cast<int64_t>(sizeof(Grain));
  if (ceilDivide(total, kTile) > INT32_MAX) return cudaErrorInvalidValue;
  // The limit is INT32_MAX and not 2^32, because the threads of the last block compute indices beyond `total`, which
  // must not overflow.
  if (total <= INT32_MAX) {
    launchSwap<Grain, uint32_t>(s, total, stream);
  } else {
    launchSwap<Grain, uint64_t>(s, total, stream);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchSwapAxes(const SwapAxesParams& s, cudaStream_t stream) {
  const int64_t bytes = s.outer * s.p * s.middle * s.q * s.unit;
  if (bytes == 0) return cudaSuccess;
  if (s.middle == 1 && (s.unit == 1 || s.unit == 2 || s.unit == 4)) {
    return launchTranspose({s.x, s.out, static_cast<int32_t>(8 * s.unit), s.p, s.q, s.outer}, stream);
  }
  if (s.unit % 16 == 0) return launchGrains<uint4>(s, bytes, stream);
  if (s.unit % 8 == 0) return launchGrains<uint2>(s, bytes, stream);
  if (s.unit % 4 == 0) return launchGrains<uint32_t>(s, bytes, stream);
  if (s.unit % 2 == 0) return launchGrains<uint16_t>(s, bytes, stream);
  return launchGrains<uint8_t>(s, bytes, stream);
}

}  // namespace lockstep
