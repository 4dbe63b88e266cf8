// Philox 4x32-10 (Salmon et al., SC11), addressed by element (docs/numerics.md, choice 6).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

// The key is the seed; the offset counts quantizations.
struct RandomSource {
  uint32_t seedLow = 0;
  uint32_t seedHigh = 0;
  uint32_t offsetLow = 0;
  uint32_t offsetHigh = 0;
};

// The 128 bits that serve elements 8 * draw to 8 * draw + 7 of copy 0 (rowwise) or 1 (columnwise).
__host__ __device__ inline uint4 philox(uint64_t draw, uint32_t copy, const RandomSource& source) {
  uint32_t c0 = static_cast<uint32_t>(draw);
  uint32_t c1 = static_cast<uint32_t>(draw >> 32) | copy << 31;
  uint32_t c2 = source.offsetLow;
  uint32_t c3 = source.offsetHigh;
  uint32_t key0 = source.seedLow;
  uint32_t key1 = source.seedHigh;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xd2511f53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xcd9e8d57u) * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(p0);
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return {c0, c1, c2, c3};
}

// The 16 bits of element i of those eight.
__host__ __device__ inline uint32_t random16(const uint4& draw, int i) {
  const uint32_t low = i & 2 ? draw.y : draw.x;
  const uint32_t high = i & 2 ? draw.w : draw.z;
  const uint32_t word = i & 4 ? high : low;
  return i & 1 ? word >> 16 : word & 0xffffu;
}

}  // namespace lockstep
