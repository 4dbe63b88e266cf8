// NVFP4 quantization of a rowwise copy only, in 1x16 blocks. A thread reads its blocks of 16 elements directly from global
// memory. Shared memory holds only the table of multipliers.
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/nvfp4/codes.cuh"
#include "kernels/quantize/nvfp4/nvfp4.h"
#include "kernels/quantize/nvfp4/part.cuh"

namespace lockstep {

namespace {

// The number of blocks of 16 elements that a thread quantizes at a time.
constexpr int kBlocks = 2;
// The number of thread blocks per multiprocessor.
template <Wide type, bool stochastic>
constexpr int kResident = type == Wide::kF32 ? 2
                          : stochastic       ? 3
                                             : 5;

template <Wide type>
__device__ void loadBlocks(const Bytes16* x, uint32_t count, int64_t first, Fp4Block<type> (&blocks)[kBlocks]) {
  constexpr int kChunks = Fp4Block<type>::kWords / 4;
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const int64_t block = first + i * kFp4Threads + threadIdx.x;
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const Bytes16 chunk = block >= 0 && block < count ? x[block * kChunks + j] : Bytes16{};
#pragma unroll
      for (int k = 0; k < 4; ++k) blocks[i].words[4 * j + k] = chunk.words[k];
    }
  }
}

// Quantizes only the rowwise copy. It starts at the end of the source, which the amax pass leaves in the L2 cache.
template <Wide type, Fp4Rounding rounding>
__global__ void __launch_bounds__(kFp4Threads, (kResident<type, rounding != Fp4Rounding::kNearest>))
    quantizeRowBlocks(const QuantizeNvfp4Params p, uint32_t count) {
  constexpr int kEach = kBlocks * kFp4Threads;
  __shared__ Nvfp4Scaling scaling;
  if (isNoop(p.noop)) return awaitPrevious();
  const Bytes16* x = static_cast<const Bytes16*>(p.x);
  const ScalePlacement to = p.rowwise.scales;
  const uint32_t across = static_cast<uint32_t>(p.columns / kFp4Block);
  const bool dense = !to.swizzled && to.blockStride == 1 && to.lineStride == across;
  const int64_t step = int64_t{gridDim.x} * kEach;
  int64_t first = (ceilDivide(count, kEach) - 1 - blockIdx.x) * kEach;
  Fp4Block<type> next[kBlocks];
  loadBlocks<type>(x, count, first, next);
  awaitPrevious();
  scaling.start(p);
  __syncthreads();
#pragma unroll 1
  for (; first >= 0; first -= step) {
    Fp4Block<type> blocks[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) blocks[i] = next[i];
    loadBlocks<type>(x, count, first - step, next);
    float amaxes[kBlocks];
    float bounds[kBlocks];
    canonicalizeNaN(blocks, amaxes, bounds);
    TwoLevel scales[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) scales[i] = scaling.scale(0, amaxes[i]);
    int64_t numbers[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) numbers[i] = first + i * kFp4Threads + threadIdx.x;
    uint2 codes[kBlocks];
    if constexpr (rounding == Fp4Rounding::kGiven) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const bool inside = numbers[i] < count;
        codes[i] =
            encodeFp4(blocks[i], scales[i].multiplier, inside ? p.rowwise.words + numbers[i] * kFp4Block : nullptr);
      }
    } else if constexpr (rounding == Fp4Rounding::kPart) {
      int64_t draws[kBlocks];
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) draws[i] = drawInWhole(p.part, p.rows, p.columns, 0, numbers[i]);
      codesOf<true>(blocks, bounds, scales, draws, 0, p.random, codes);
    } else {
      codesOf<rounding == Fp4Rounding::kOwn>(blocks, bounds, scales, numbers, 0, p.random, codes);
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const int64_t block = numbers[i];
      if (block >= count) continue;
      reinterpret_cast<uint2*>(p.rowwise.codes)[block] = codes[i];
      int64_t at = block;
      if (!dense) {
        const uint32_t row = static_cast<uint32_t>(block) / across;
        at = scaleOffset(to, row, static_cast<uint32_t>(block) - row * across);
      }
      static_cast<uint8_t*>(to.data)[at] = static_cast<uint8_t>(scales[i].code);
    }
  }
}

template <Wide type, Fp4Rounding rounding>
void launch(const QuantizeNvfp4Params& p, int64_t count, cudaStream_t stream) {
  const int64_t groups = ceilDivide(count, kBlocks * kFp4Threads);
  const uint32_t grid = fillingGrid(groups, kResident<type, rounding != Fp4Rounding::kNearest>);
  launchPdl(quantizeRowBlocks<type, rounding>, grid, kFp4Threads, 0, stream, p, static_cast<uint32_t>(count));
}

}  // namespace

cudaError_t launchNvfp4Rows(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  const int64_t count = p.rows * p.columns / kFp4Block;
  withWide(p.xType, [&](auto type) {
    withRounding(p, [&](auto rounding) { launch<type.value, rounding.value>(p, count, stream); });
  });
  return cudaGetLastError();
}

}  // namespace lockstep
