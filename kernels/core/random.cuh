// The Philox 4x32-10 random number generator (Salmon et al., SC11). A draw is one output of the generator, 128 bits,
// which consecutive elements share. The random bits of an element depend only on its index, the source and the copy,
// and so not on the launch configuration (docs/numerics.md, choice 6).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

// A source of random bits. `seed` is the Philox key; `offset` increases with each quantization.
struct RandomSource {
  uint32_t seedLow = 0;
  uint32_t seedHigh = 0;
  uint32_t offsetLow = 0;
  uint32_t offsetHigh = 0;
};

// Generates the draws of one source. The constructor computes what all draws share: the round keys, and the product of
// the first round that involves only the offset.
class Philox {
 public:
  __host__ __device__ Philox(const RandomSource& source = {}) {
    for (uint32_t i = 0; i < kRounds; ++i) {
      keys0_[i] = source.seedLow + i * 0x9e3779b9u;
      keys1_[i] = source.seedHigh + i * 0xbb67ae85u;
    }
    const uint64_t product = static_cast<uint64_t>(kFactor1) * source.offsetLow;
    low_ = static_cast<uint32_t>(product);
    keys0_[0] ^= static_cast<uint32_t>(product >> 32);
    keys1_[0] ^= source.offsetHigh;
  }

  // The 128 bits of draw number `draw`, for copy 0 (rowwise) or 1 (columnwise).
  __host__ __device__ uint4 operator()(uint64_t draw, uint32_t copy) const {
    const uint64_t first = static_cast<uint64_t>(kFactor0) * static_cast<uint32_t>(draw);
    uint32_t c0 = static_cast<uint32_t>(draw >> 32) ^ copy << 31 ^ keys0_[0];
    uint32_t c1 = low_;
    uint32_t c2 = static_cast<uint32_t>(first >> 32) ^ keys1_[0];
    uint32_t c3 = static_cast<uint32_t>(first);
    for (int round = 1; round < kRounds; ++round) {
      const uint64_t p0 = static_cast<uint64_t>(kFactor0) * c0;
      const uint64_t p1 = static_cast<uint64_t>(kFactor1) * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ keys0_[round];
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ keys1_[round];
      c3 = static_cast<uint32_t>(p0);
    }
    return {c0, c1, c2, c3};
  }

 private:
  static constexpr int kRounds = 10;
  static constexpr uint32_t kFactor0 = 0xd2511f53u;
  static constexpr uint32_t kFactor1 = 0xcd9e8d57u;

  uint32_t keys0_[kRounds];
  uint32_t keys1_[kRounds];
  // The low half of the first round's product with the offset.
  uint32_t low_;
};

__host__ __device__ inline uint4 philox(uint64_t draw, uint32_t copy, const RandomSource& source) {
  return Philox(source)(draw, copy);
}

// The 16 bits of element i (0 to 7) of a draw that eight elements share.
__host__ __device__ inline uint32_t halfOf(const uint4& draw, int i) {
  const uint32_t low = i & 2 ? draw.y : draw.x;
  const uint32_t high = i & 2 ? draw.w : draw.z;
  const uint32_t word = i & 4 ? high : low;
  return i & 1 ? word >> 16 : word & 0xffffu;
}

// The functions below return the random bits of an element as a 32-bit number. The magnitude is rounded up if the sum of this
// number and the discarded fraction, in units of 2^-32, carries. A caller's random bits have this form too.

// The random bits of element i (0 to 7) of a cast; eight elements share a draw. The magnitude is rounded up if 16 bits of the
// draw are below the upper 16 bits of the fraction.
__host__ __device__ inline uint32_t castBits(const uint4& draw, int i) { return (0xffffu ^ halfOf(draw, i)) << 16; }

// The random bits of element i (0 to 15) of a quantization; sixteen elements share a draw. 8 bits are added to the upper 8 bits
// of the fraction.
__host__ __device__ inline uint32_t elementBits(const uint4& draw, int i) {
  const uint32_t low = i & 4 ? draw.y : draw.x;
  const uint32_t high = i & 4 ? draw.w : draw.z;
  const uint32_t word = i & 8 ? high : low;
  // elements take bytes 0, 2, 1 and 3 of 32 bits, in this order
  return word >> ((i & 1) * 16 + (i >> 1 & 1) * 8) << 24;
}

}  // namespace lockstep
