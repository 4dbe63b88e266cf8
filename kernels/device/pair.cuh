// Two 16-bit wide values in a word, the first in the low half: their values and the largest of their magnitudes.
#pragma once

#include <cstdint>

#include "kernels/core/minifloat.cuh"
#include "kernels/device/device.cuh"

namespace lockstep {

// Lane by lane the larger value; that of `a` where `b` is NaN, and the other way round.
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

// `largest` raised to the magnitudes of a pair, NaN ignored.
template <Wide type>
__device__ inline uint32_t raiseToPair(uint32_t largest, uint32_t pair) {
  return maxOfPairs<type>(largest, pair & 0x7fff7fffu);
}

// Lane by lane the larger magnitude under some sign, NaN if either is.
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

// Lane by lane the smaller value, as maxOfPairs.
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

// The larger of the two lanes, in both.
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

// To bf16, nearest even; `a` in the low half.
__device__ inline uint32_t bf16Pair(float a, float b) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  return pair;
}

// Four 8x8 matrices of 16-bit values in shared memory, lane i giving where row i % 8 of the matrix i / 8 is. A lane
// gets of each the values in column lane / 4 of the rows lane % 4 * 2 and the one below. The whole warp calls.
__device__ inline void loadDown(const void* row, uint32_t* x) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// The bits `of` of a, and the others of b.
__device__ inline uint32_t mergeBits(uint32_t of, uint32_t a, uint32_t b) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(result) : "r"(of), "r"(a), "r"(b));
  return result;
}

// The low lanes of two pairs, and the high ones.
__device__ inline uint32_t lowLanes(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ inline uint32_t highLanes(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

}  // namespace lockstep
