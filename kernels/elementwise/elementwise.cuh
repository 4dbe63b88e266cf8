// Element-wise operations that are limited by memory bandwidth: they read and write each element once. A thread issues
// all its loads before its first store.
#pragma once

#include "kernels/device/elements.cuh"

namespace lockstep {

constexpr int kElementThreads = 256;
// The number of elements that a thread loads before its first store. A store must not come earlier, because `out` may
// alias an input.
constexpr int kElementDepth = 16;
constexpr int kElementTile = kElementThreads * kElementDepth;
// The number of elements per access if any type is f32. The 16-byte accesses of neighbouring threads are then
// contiguous.
constexpr int kQuad = 4;

// Loads elements [index, index + kQuad); `index` is a multiple of kQuad.
__device__ inline void loadElements(const void* source, Wide type, int64_t index, float (&values)[kQuad]) {
  if (type == Wide::kF32) {
    const float4 quad = *reinterpret_cast<const float4*>(static_cast<const float*>(source) + index);
    values[0] = quad.x, values[1] = quad.y, values[2] = quad.z, values[3] = quad.w;
  } else {
    const ushort4 codes = *reinterpret_cast<const ushort4*>(static_cast<const uint16_t*>(source) + index);
    const uint16_t bits[kQuad] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int i = 0; i < kQuad; ++i) values[i] = type == Wide::kBf16 ? bf16ToFloat(bits[i]) : halfToFloat(bits[i]);
  }
}

// Stores the values, each rounded once.
__device__ inline void storeElements(void* target, Wide type, int64_t index, const float (&values)[kQuad]) {
  if (type == Wide::kF32) {
    storeBytes16(static_cast<float*>(target) + index, __float_as_uint(values[0]), __float_as_uint(values[1]),
                 __float_as_uint(values[2]), __float_as_uint(values[3]));
  } else {
    const bool bf16 = type == Wide::kBf16;
    const uint32_t low = bf16 ? bf16Pair(values[0], values[1]) : halfPair(values[0], values[1]);
    const uint32_t high = bf16 ? bf16Pair(values[2], values[3]) : halfPair(values[2], values[3]);
    *reinterpret_cast<uint2*>(static_cast<uint16_t*>(target) + index) = make_uint2(low, high);
  }
}

// Computes and stores all elements. Value::read(p, index, values) computes the results at [index, index + width).
// Params has count, out and outType.
template <typename Value, int width, typename Params>
__global__ void __launch_bounds__(kElementThreads) elementKernel(const Params p) {
  constexpr int kPacks = kElementDepth / width;
  constexpr int kStep = kElementThreads * width;
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * kElementTile;
  if (tile + kElementTile <= p.count) {
    float values[kPacks][width];
    const int64_t first = tile + threadIdx.x * width;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) Value::read(p, first + k * kStep, values[k]);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) storeElements(p.out, p.outType, first + k * kStep, values[k]);
  } else {
    for (int64_t i = tile + threadIdx.x; i < p.count; i += kElementThreads) {
      float values[1];
      Value::read(p, i, values);
      storeElement(p.out, p.outType, i, values[0]);
    }
  }
}

// Launches elementKernel. Value::kWide says whether an input is f32.
template <typename Value, typename Params>
void launchElements(const Params& p, cudaStream_t stream) {
  if (p.count == 0) return;
  const auto blocks = static_cast<unsigned>(ceilDivide(p.count, kElementTile));
  if (Value::kWide || p.outType == Wide::kF32) {
    elementKernel<Value, kQuad><<<blocks, kElementThreads, 0, stream>>>(p);
  } else if constexpr (!Value::kWide) {
    elementKernel<Value, kPack><<<blocks, kElementThreads, 0, stream>>>(p);
  }
}

}  // namespace lockstep
