// Copies a range of a dimension of one tensor into a range of the same dimension of another. The bytes are moved in
// grains: a grain is the widest access to which all offsets are aligned. Each thread moves kMoves grains, and
// neighbouring threads write neighbouring grains. Indices are divided in 32 bits if they fit.
#include "kernels/device/device.cuh"
#include "kernels/layout/copy-slice.gen.h"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
// The number of grains that a thread moves. It loads all of them before its first store.
constexpr int kMoves = 4;
constexpr int64_t kTile = kThreads * kMoves;

// Sizes and offsets, in bytes or in grains. A run is the part of the output for one outer index: it is contiguous.
template <typename Index>
struct Runs {
  // The size of a run, and of the part of the input from which the run is read. The part has the same size, or is one slice,
  // which is repeated.
  Index length;
  Index period;
  // The distances between runs, and the offset of the first one.
  Index xPitch;
  Index xFirst;
  Index outPitch;
  Index outFirst;
  // The size of all runs.
  Index total;
};

template <typename Grain, typename Index>
__global__ void __launch_bounds__(kThreads) copyKernel(const Grain* x, Grain* out, const Runs<Index> runs) {
  const Index first = static_cast<Index>(blockIdx.x) * kTile + threadIdx.x;
  Grain grains[kMoves];
#pragma unroll
  for (int k = 0; k < kMoves; ++k) {
    const Index index = first + k * kThreads;
    const Index run = index / runs.length;
    const Index offset = index - run * runs.length;
    const Index source = runs.period == runs.length ? offset : offset % runs.period;
    if (index < runs.total) grains[k] = x[run * runs.xPitch + runs.xFirst + source];
  }
#pragma unroll
  for (int k = 0; k < kMoves; ++k) {
    const Index index = first + k * kThreads;
    const Index run = index / runs.length;
    if (index < runs.total) out[run * runs.outPitch + runs.outFirst + (index - run * runs.length)] = grains[k];
  }
}

template <typename Grain, typename Index>
void launchRuns(const CopySliceParams& p, const Runs<int64_t>& bytes, cudaStream_t stream) {
  const auto grains = [](int64_t size) { return static_cast<Index>(size / static_cast<int64_t>(sizeof(Grain))); };
  const Runs<Index> runs = {grains(bytes.length),   grains(bytes.period),   grains(bytes.xPitch), grains(bytes.xFirst),
                            grains(bytes.outPitch), grains(bytes.outFirst), grains(bytes.total)};
  const auto blocks = static_cast<unsigned>(ceilDivide(static_cast<int64_t>(runs.total), kTile));
  copyKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const Grain*>(p.x), static_cast<Grain*>(p.out), runs);
}

template <typename Grain>
cudaError_t launchGrains(const CopySliceParams& p, const Runs<int64_t>& bytes, cudaStream_t stream) {
  const int64_t size = sizeof(Grain);
  if (ceilDivide(bytes.total / size, kTile) > INT32_MAX) return cudaErrorInvalidValue;
  // The limit is INT32_MAX and not 2^32, because the threads of the last block compute indices beyond `total`, which
  // must not overflow.
  const bool isSmall = p.outer * bytes.outPitch / size <= INT32_MAX && p.outer * bytes.xPitch / size <= INT32_MAX;
  if (isSmall) {
    launchRuns<Grain, uint32_t>(p, bytes, stream);
  } else {
    launchRuns<Grain, uint64_t>(p, bytes, stream);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchCopySlice(const CopySliceParams& p, cudaStream_t stream) {
  const int64_t length = p.count * p.unit;
  if (p.outer * length == 0) return cudaSuccess;
  const Runs<int64_t> bytes = {length,
                               p.xLength == 1 ? p.unit : length,
                               p.xLength * p.unit,
                               p.xFirst * p.unit,
                               p.outLength * p.unit,
                               p.outFirst * p.unit,
                               p.outer * length};
  const int64_t alignment = bytes.length | bytes.period | bytes.xPitch | bytes.xFirst | bytes.outPitch | bytes.outFirst;
  if (alignment % 16 == 0) return launchGrains<uint4>(p, bytes, stream);
  if (alignment % 8 == 0) return launchGrains<uint2>(p, bytes, stream);
  if (alignment % 4 == 0) return launchGrains<uint32_t>(p, bytes, stream);
  if (alignment % 2 == 0) return launchGrains<uint16_t>(p, bytes, stream);
  return launchGrains<uint8_t>(p, bytes, stream);
}

}  // namespace lockstep
