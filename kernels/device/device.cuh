// Conversions and type dispatch for the wide types f32, bf16 and f16, shared by all kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// 16 bytes, the widest memory access of a thread.
struct alignas(16) Bytes16 {
  uint32_t words[4];
};

// The number of threads of a block that processes one tile of a matrix (tile.cuh, code-tile.cuh).
constexpr int kTileThreads = 256;

// The mask of warp-wide shuffles, votes and reductions in which all 32 lanes take part.
constexpr uint32_t kFullMask = 0xffffffffu;

// The largest gridDim.y and gridDim.z.
constexpr int64_t kMaxGridY = 65535;

__host__ __device__ constexpr int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Launches `kernel` with `blocks` blocks of `threads` threads, or nothing without blocks.
template <typename Params>
cudaError_t launchBlocks(void (*kernel)(Params), int64_t blocks, int threads, const Params& p, cudaStream_t stream) {
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  if (blocks > 0) kernel<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(p);
  return cudaGetLastError();
}

// The number of threads of a block whose threads compute one item each.
constexpr int kItemThreads = 256;

// The item that this thread computes. Threads of the last block may have an item beyond the last one.
__device__ inline int64_t itemIndex() { return static_cast<int64_t>(blockIdx.x) * kItemThreads + threadIdx.x; }

// Launches `kernel` with a thread for each of `items` items.
template <typename Params>
cudaError_t launchItems(void (*kernel)(Params), int64_t items, const Params& p, cudaStream_t stream) {
  return launchBlocks(kernel, ceilDivide(items, kItemThreads), kItemThreads, p, stream);
}

// Converts f16 bits to f32. The conversion is exact; every NaN becomes the canonical NaN.
__device__ inline float halfToFloat(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// Converts f32 to f16 bits: round to nearest even, overflow to infinity.
__device__ inline uint16_t floatToHalf(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

__device__ inline float bf16ToFloat(uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }

// Converts f32 to bf16 bits: round to nearest even, overflow to infinity, every NaN becomes 0x7fff.
__device__ inline uint16_t floatToBf16(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// The storage type of a Wide, and its conversions from and to f32.
template <Wide type>
struct WideOf;
template <>
struct WideOf<Wide::kF32> {
  using Storage = float;
  __device__ static float load(Storage x) { return x; }
  __device__ static Storage store(float x) { return x; }
};
template <>
struct WideOf<Wide::kBf16> {
  using Storage = uint16_t;
  __device__ static float load(Storage x) { return bf16ToFloat(x); }
  __device__ static Storage store(float x) { return floatToBf16(x); }
};
template <>
struct WideOf<Wide::kF16> {
  using Storage = uint16_t;
  __device__ static float load(Storage x) { return halfToFloat(x); }
  __device__ static Storage store(float x) { return floatToHalf(x); }
};

// `value` rounded to a wide type, as f32.
template <Wide type>
__device__ inline float rounded(float value) {
  return WideOf<type>::load(WideOf<type>::store(value));
}

// Calls `body` with a tag whose constant `value` is `type`: withWide(type, [&](auto tag) { kernel<tag.value>... }).
template <Wide type>
struct WideTag {
  static constexpr Wide value = type;
};
template <typename Body>
auto withWide(Wide type, Body body) {
  switch (type) {
    case Wide::kBf16:
      return body(WideTag<Wide::kBf16>{});
    case Wide::kF16:
      return body(WideTag<Wide::kF16>{});
    default:
      return body(WideTag<Wide::kF32>{});
  }
}

}  // namespace lockstep
