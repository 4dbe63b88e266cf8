// Helpers shared by the kernels that stage operands of a matrix product.
#pragma once

#include "kernels/core/minifloat.cuh"
#include "kernels/device/device.cuh"
#include "kernels/gemm/operand.h"

namespace lockstep {

constexpr int kStagingThreads = 256;

// The bit of a format word that says that the format is signed.
constexpr uint32_t kScaleSign = 0x100;
// The format word of UE4M3 scales: e4m3 whose sign is ignored.
constexpr uint32_t kUe4m3 = format::kE4m3 & ~kScaleSign;

__device__ inline float decodeScale(uint32_t word, uint32_t bits) {
  if (word == 0) return floatOf(bits);
  if (word == format::kE8m0) return decodeTo<format::kE8m0>(bits);
  return word == kUe4m3 ? decodeTo<format::kE4m3>(bits & 0x7f) : decode(bits, word);
}

// Rounds `value` to ten fraction bits, to nearest even. Overflow gives infinity.
__device__ inline float roundToTf32(float value) {
  const uint32_t bits = bitsOf(value);
  return value != value ? value : floatOf((bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000);
}

__device__ inline uint32_t toBf16Pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Whether the block length is a power of two and a multiple of `group`, and K is a multiple of `group`. Each group of
// `group` consecutive elements then has a single scale.
inline bool hasWholeGroups(const GemmOperandParams& p, uint32_t group) {
  const uint32_t length = p.scales.length;
  return p.scales.data && p.scales.lineShift == 0 && p.depth % group == 0 && length % group == 0 &&
         (length & (length - 1)) == 0;
}

inline uint32_t shiftOf(uint32_t powerOfTwo) {
  uint32_t shift = 0;
  while (1u << shift < powerOfTwo) ++shift;
  return shift;
}

}  // namespace lockstep
