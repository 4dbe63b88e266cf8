// Two 16-bit wide values packed in 32 bits, the first in the low half. The halves are called lanes. Conversion, and
// maxima of their magnitudes.
#pragma once

#include <cstdint>

#include "kernels/core/minifloat.cuh"
#include "kernels/device/device.cuh"

namespace lockstep {

// The larger value of each lane. If one value is NaN, the result is the other.
template <Wide type>
__device__ inline uint32_t maxOfPairs(uint32_t a, uint32_t b) {
  uint32_t result;
  if constexpr (type == Wide::kBf16) {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("max.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
}

// In each lane, the larger of `largest` and the magnitude of `pair`; NaN is ignored.
template <Wide type>
__device__ inline uint32_t raiseToPair(uint32_t largest, uint32_t pair) {
  return maxOfPairs<type>(largest, pair & 0x7fff7fffu);
}

// In each lane, the value of larger magnitude, with an unspecified sign; NaN if either value is NaN.
template <Wide type>
__device__ inline uint32_t maxOfMagnitudes(uint32_t a, uint32_t b) {
  uint32_t result;
  if constexpr (type == Wide::kBf16) {
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
}

// The smaller value of each lane. If one value is NaN, the result is the other.
template <Wide type>
__device__ inline uint32_t minOfPairs(uint32_t a, uint32_t b) {
  uint32_t result;
  if constexpr (type == Wide::kBf16) {
    asm("min.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("min.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
}

// The larger of the two lanes, stored in both.
template <Wide type>
__device__ inline uint32_t maxOfLanes(uint32_t pair) {
  return maxOfPairs<type>(pair, __byte_perm(pair, pair, 0x1032));
}

template <Wide type>
__device__ inline float lowOf(uint32_t pair) {
  if constexpr (type == Wide::kBf16) {
    return floatOf(pair << 16);
  } else {
    return halfToFloat(static_cast<uint16_t>(pair));
  }
}

template <Wide type>
__device__ inline float highOf(uint32_t pair) {
  if constexpr (type == Wide::kBf16) {
    return floatOf(pair & 0xffff0000u);
  } else {
    return halfToFloat(static_cast<uint16_t>(pair >> 16));
  }
}

// Rounds two values to bf16, to nearest even; `a` is in the low half.
__device__ inline uint32_t bf16Pair(float a, float b) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  return pair;
}

// Loads four 8x8 matrices of 16-bit values from shared memory, transposed (ldmatrix.x4.trans). Lane i of the warp
// passes the address of row i % 8 of matrix i / 8. From each matrix a lane receives two values of column lane / 4:
// those in rows 2 * (lane % 4) and 2 * (lane % 4) + 1. All 32 lanes of the warp must call it.
__device__ inline void loadDown(const void* row, uint32_t* x) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// Takes bits from a where `mask` has ones, and from b elsewhere.
__device__ inline uint32_t mergeBits(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(result) : "r"(mask), "r"(a), "r"(b));
  return result;
}

// lowLanes packs the low lanes of two pairs, highLanes their high lanes.
__device__ inline uint32_t lowLanes(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ inline uint32_t highLanes(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

}  // namespace lockstep
