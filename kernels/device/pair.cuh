// Two 16-bit wide values packed in a 32-bit word, the first in the low half: conversion, and maxima of their magnitudes.
#pragma once

#include <cstdint>

#include "kernels/core/minifloat.cuh"
#include "kernels/device/device.cuh"

namespace lockstep {

// The larger value of each lane. If one operand is NaN, the result is the other.
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

// The larger of `largest` and the magnitudes of a pair, lane by lane; NaN is ignored.
template <Wide type>
__device__ inline uint32_t raiseToPair(uint32_t largest, uint32_t pair) {
  return maxOfPairs<type>(largest, pair & 0x7fff7fffu);
}

// The value of larger magnitude in each lane, with an unspecified sign; NaN if either operand is NaN.
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

// The smaller value of each lane, with NaN handled as in maxOfPairs.
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

// Loads four 8x8 matrices of 16-bit values from shared memory, transposed (ldmatrix.trans). Lane i passes the address of row i
// % 8 of matrix i / 8. From each matrix a lane receives the values in column lane / 4 of rows lane % 4 * 2 and lane % 4 * 2 +
// 1. Call it with the full warp.
__device__ inline void loadDown(const void* row, uint32_t* x) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// Takes the bits in mask `of` from a and the others from b.
__device__ inline uint32_t mergeBits(uint32_t of, uint32_t a, uint32_t b) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(result) : "r"(of), "r"(a), "r"(b));
  return result;
}

// The low lanes of two pairs, and their high lanes.
__device__ inline uint32_t lowLanes(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ inline uint32_t highLanes(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

}  // namespace lockstep
