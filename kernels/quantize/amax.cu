// The largest magnitude of a tensor. A maximum does not depend on the order, so blocks combine their results by an
// atomic maximum on the bits.
#include "kernels/cast/cast.gen.h"

#include "kernels/device/eight.cuh"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
// The number of blocks to launch per multiprocessor. On a GPU with 2048 threads per multiprocessor, all of them are
// resident.
constexpr int kResident = 8;
// 16-byte loads that a thread issues before it uses the first.
constexpr int kLoads = 4;

// Returns the larger of `largest` and the magnitude of `word`, NaN ignored. `word` is an f32, or two bf16 or f16, each
// of which has its own maximum. `largest` is never NaN.
template <Wide type>
__device__ inline uint32_t raise(uint32_t largest, uint32_t word) {
  uint32_t result;
  if constexpr (type == Wide::kF32) {
    result = bitsOf(fmaxf(floatOf(largest), fabsf(floatOf(word))));
  } else if constexpr (type == Wide::kBf16) {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(largest), "r"(word & 0x7fff7fffu));
  } else {
    asm("max.f16x2 %0, %1, %2;" : "=r"(result) : "r"(largest), "r"(word & 0x7fff7fffu));
  }
  return result;
}

template <Wide type>
__global__ void __launch_bounds__(kThreads) amaxKernel(const AmaxParams p) {
  constexpr int kWidth = type == Wide::kF32 ? 4 : 8;
  const auto* from = static_cast<const Bytes<16>*>(p.x);
  const int64_t packs = p.count / kWidth;
  const int64_t step = static_cast<int64_t>(gridDim.x) * (kThreads * kLoads);
  uint32_t largest[kLoads] = {};
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads * kLoads) + threadIdx.x; i < packs; i += step) {
    Bytes<16> loaded[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      // a load beyond the end repeats the thread's first load, which does not change the maximum
      loaded[k] = Bytes<16>::load(from + (i + k * kThreads < packs ? i + k * kThreads : i));
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
#pragma unroll
      for (int w = 0; w < 4; ++w) largest[k] = raise<type>(largest[k], loaded[k].words[w]);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < p.count % kWidth) {
    const auto* x = static_cast<const typename WideOf<type>::Storage*>(p.x);
    if constexpr (type == Wide::kF32) {
      largest[0] = raise<type>(largest[0], bitsOf(x[packs * kWidth + threadIdx.x]));
    } else {
      largest[0] = raise<type>(largest[0], x[packs * kWidth + threadIdx.x]);
    }
  }

  float amax = 0;
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    if constexpr (type == Wide::kF32) {
      amax = fmaxf(amax, floatOf(largest[k]));
    } else {
      amax = fmaxf(amax, WideOf<type>::load(static_cast<uint16_t>(largest[k])));
      amax = fmaxf(amax, WideOf<type>::load(static_cast<uint16_t>(largest[k] >> 16)));
    }
  }
  // non-negative floats have the same order as their bits
  const uint32_t ofWarp = __reduce_max_sync(kFullMask, bitsOf(amax));
  __shared__ uint32_t ofWarps[kThreads / 32];
  if (threadIdx.x % 32 == 0) ofWarps[threadIdx.x / 32] = ofWarp;
  __syncthreads();
  if (threadIdx.x < 32) {
    const uint32_t ofBlock = __reduce_max_sync(kFullMask, threadIdx.x < kThreads / 32 ? ofWarps[threadIdx.x] : 0);
    if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(p.out), ofBlock);
  }
}

}  // namespace

cudaError_t launchAmax(const AmaxParams& p, cudaStream_t stream) {
  if (const cudaError_t error = cudaMemsetAsync(p.out, 0, sizeof(float), stream); error != cudaSuccess) return error;
  if (p.count == 0) return cudaSuccess;
  int device = 0;
  int multiprocessors = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
      error != cudaSuccess) {
    return error;
  }
  const int64_t width = p.xType == Wide::kF32 ? 4 : 8;
  const int64_t neededBlocks = ceilDivide(p.count, width * kThreads * kLoads);
  const int64_t blocks = neededBlocks < multiprocessors * kResident ? neededBlocks : multiprocessors * kResident;
  withWide(p.xType,
           [&](auto type) { amaxKernel<type.value><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(p); });
  return cudaGetLastError();
}

}  // namespace lockstep
