// Shared by the NVFP4 kernels: block scales, encoding to e2m1, and stores of codes and scales.
#pragma once

#include <algorithm>

#include "kernels/core/scale.cuh"
#include "kernels/device/pdl.cuh"
#include "kernels/quantize/nvfp4/nvfp4.h"
#include "kernels/quantize/nvfp4/tile.cuh"

namespace lockstep {

// S_enc of one copy, its reciprocal, and the tensor amax that S_enc is computed from.
struct Nvfp4Levels {
  float encode;
  float decode;
  float amax;
};

// The levels of both copies, in shared memory.
struct Nvfp4Shared {
  Nvfp4Levels levels[2];

  // All threads call it and must synchronise afterwards.
  __device__ void start(const QuantizeNvfp4Params& p) {
    if (threadIdx.x >= 2) return;
    const Nvfp4Copy& copy = threadIdx.x == 0 ? p.rowwise : p.columnwise;
    if (copy.data == nullptr) return;
    const float encode = globalScale(*copy.amax, 6 * p.e4m3Max);
    levels[threadIdx.x] = {encode, 1 / encode, *copy.amax};
  }
};

// Computes the scale and the multiplier of a block from its amax. In shared memory.
struct Nvfp4Scaling {
  // For each copy, the multiplier of the elements for each of the 128 possible scale codes.
  float multipliers[2][128];
  float factors[2];

  // All threads call it and must synchronise afterwards.
  __device__ void start(const QuantizeNvfp4Params& p) {
    const int copy = threadIdx.x / 128;
    const Nvfp4Copy& to = copy == 0 ? p.rowwise : p.columnwise;
    if (to.data == nullptr) return;
    const float encode = globalScale(*to.amax, 6 * p.e4m3Max);
    const uint32_t code = threadIdx.x % 128;
    multipliers[copy][code] = twoLevelMultiplier(decode(code, format::kE4m3), 1 / encode);
    // non-negative for any given amax, because negative scale codes have no multiplier in the table
    factors[copy] = fmaxf(encode * floatOf(0x3e2aaaab), 0.0f);
  }

  // Equals twoLevel of scale.cuh.
  __device__ TwoLevel scale(int copy, float amax) const {
    const uint32_t code = encodeNearest<format::kE4m3>(amax * factors[copy]);
    return {code, multipliers[copy][code]};
  }
};

// The first row and column of a tile.
struct Nvfp4Origin {
  int64_t row;
  int64_t column;

  __device__ Nvfp4Origin(uint32_t tile, int64_t columns) {
    const uint32_t across = static_cast<uint32_t>(ceilDivide(columns, kFp4Columns));
    row = int64_t{tile / across} * kFp4Rows;
    column = int64_t{tile % across} * kFp4Columns;
  }
};

// The grid size that fills the device with `onEach` blocks per multiprocessor; at most `blocks`.
inline uint32_t fillingGrid(int64_t blocks, int onEach) {
  int device = 0;
  int multiprocessors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  return static_cast<uint32_t>(std::min(blocks, int64_t{multiprocessors} * onEach));
}

inline uint32_t nvfp4Tiles(const QuantizeNvfp4Params& p) {
  return static_cast<uint32_t>(ceilDivide(p.rows, kFp4Rows) * ceilDivide(p.columns, kFp4Columns));
}

// The terms whose sum gives the magnitude code of e2m1, for a value that is neither negative nor NaN: 2x up to 2, then x + 2,
// then x / 2 + 4, up to 7. Each term is exact.
struct E2m1Terms {
  float upToTwo;
  float upToFour;
  float upToSix;

  __device__ explicit E2m1Terms(float x)
      : upToTwo(saturatedFma(x, 0.5f, 0.0f)),
        upToFour(saturatedFma(x, 0.5f, -1.0f)),
        upToSix(saturatedFma(x, 0.5f, -2.0f)) {}

  // The bits of 2^23 plus the code, rounded to nearest even.
  __device__ uint32_t nearest() const {
    return bitsOf(__fmaf_rn(upToFour, 2.0f, __fmaf_rn(upToTwo, 4.0f, 8388608.0f)) + upToSix);
  }
};

// The bits of 2^23 plus the magnitude code of e2m1 for a value in [0, 7), rounded to nearest even: the minimum of 2x, x + 2 and
// x / 2 + 4, each rounded once.
__device__ inline uint32_t leastE2m1(float x) {
  const uint32_t upToTwo = bitsOf(__fmaf_rn(x, 2.0f, 8388608.0f));
  const uint32_t upToFour = bitsOf(x + 8388610.0f);
  const uint32_t upToSix = bitsOf(__fmaf_rn(x, 0.5f, 8388612.0f));
  return min(min(upToTwo, upToFour), upToSix);
}

// Clamps the magnitudes of a block to a value whose multiple is 6 or slightly less, and which encodes to code 7.
__device__ inline void limitFp4(Fp4Block<Wide::kBf16>& x, float m) {
  const uint32_t limit = min(bitsOf(6 / m), 0x7f7fffffu) >> 16;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t lowered = minOfPairs<Wide::kBf16>(x.words[i] & 0x7fff7fffu, limit << 16 | limit);
    x.words[i] = lowered | (x.words[i] & 0x80008000u);
  }
}

// Prepares blocks for encodeLimitedFp4. canonicalizeNaN must have processed them and given these bounds.
template <Wide type, int count>
__device__ inline void limitFp4(Fp4Block<type> (&x)[count], const float (&bounds)[count],
                                const TwoLevel (&scales)[count]) {
  if constexpr (type == Wide::kBf16) {
    bool isBeyond = false;
#pragma unroll
    for (int i = 0; i < count; ++i) isBeyond = isBeyond || !(bounds[i] * scales[i].multiplier < 7);
    if (!isBeyond) return;
#pragma unroll
    for (int i = 0; i < count; ++i) limitFp4(x[i], scales[i].multiplier);
  }
}

// Encodes such a block, rounding to nearest even.
__device__ inline uint2 encodeLimitedFp4(const Fp4Block<Wide::kBf16>& x, float m) {
  const auto eight = [&](int first) {
    // the last subtraction removes the bits of 2^23 that each term carries
    uint32_t codes = 0;
#pragma unroll
    for (int i = 7; i >= 0; --i) codes = codes * 16 + leastE2m1(fabsf(x[first + i]) * m);
    return (codes - 0x4b000000u * 0x11111111u) | (x.signs(first) & 0x88888888u);
  };
  return make_uint2(eight(0), eight(8));
}

// Encodes a block processed by canonicalizeNaN, rounding to nearest even.
template <Wide type>
__device__ inline uint2 encodeFp4(const Fp4Block<type>& x, float m) {
  const auto eight = [&](int first) {
    // the last subtraction removes the bits of 2^23 that each term carries
    uint32_t codes = 0;
#pragma unroll
    for (int i = 7; i >= 0; --i) codes = codes * 16 + E2m1Terms(fabsf(x[first + i]) * m).nearest();
    return (codes - 0x4b000000u * 0x11111111u) | (x.signs(first) & 0x88888888u);
  };
  return make_uint2(eight(0), eight(8));
}

// Stochastic rounding adds random bits to pairs of codes in f16. A magnitude times 2^-14, truncated to f16, has the e2m1 code
// in units of 2^-9 as its bits: f16 values are evenly spaced below 2^-14, as e2m1 codes are below 1, and their spacing doubles
// with each binade, as that of e2m1 does. The eight random bits are added to the upper eight of the nine bits below a code.
constexpr uint32_t kLargestFp4Pair = 7u << 9 | 7u << 25;

// Prepares blocks processed by canonicalizeNaN, and their multipliers, for encodeFp4: one factor of each product x * m is
// multiplied by 2^-14. It is m if that stays normal, else x, whose elements that matter are then large.
template <Wide type, int count>
__device__ inline void lowerFp4(Fp4Block<type> (&x)[count], float (&multipliers)[count]) {
  constexpr float kLeast = 1.0f / (1ull << 50) / (1ull << 50);
  bool isAnyLess = false;
#pragma unroll
  for (float m : multipliers) isAnyLess = isAnyLess || m < kLeast;
  if (!isAnyLess) {
#pragma unroll
    for (float& m : multipliers) m *= powerOfTwo(-14);
    return;
  }
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (multipliers[i] < kLeast) {
      x[i].shrink();
    } else {
      multipliers[i] *= powerOfTwo(-14);
    }
  }
}

// The sum for two products, the first in the low lane, with signs in the top bits. Bytes 0 and 2 of `random` are the random
// bits.
__device__ inline uint32_t sumFp4(float low, float high, uint32_t random) {
  uint32_t pair;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  asm("min.xorsign.abs.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(kLargestFp4Pair));
  return pair + 2 * random;
}

// Packs the eight codes of four sums; those of the first sum are lowest.
__device__ inline uint32_t packFp4(const uint32_t (&sums)[4]) {
  uint32_t halves[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t bytes = __byte_perm(sums[2 * i], sums[2 * i + 1], 0x7531);
    const uint32_t codes = mergeBits(0x80808080u, bytes, bytes << 3);
    halves[i] = mergeBits(0xf000f000u, codes, codes << 4);
  }
  return __byte_perm(halves[0], halves[1], 0x7531);
}

// Encodes a block that lowerFp4 has prepared, with stochastic rounding.
template <Wide type>
__device__ inline uint2 encodeFp4(const Fp4Block<type>& x, float m, const uint4& drawn) {
  const auto eight = [&](int first, uint32_t fourBytes, uint32_t nextBytes) {
    uint32_t sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = i < 2 ? fourBytes : nextBytes;
      const uint32_t pair = __byte_perm(word, 0, i % 2 == 0 ? 0x4240 : 0x4341);
      sums[i] = sumFp4(x[first + 2 * i] * m, x[first + 2 * i + 1] * m, pair);
    }
    return packFp4(sums);
  };
  return make_uint2(eight(0, drawn.x, drawn.y), eight(8, drawn.z, drawn.w));
}

// Encodes blocks of copy 0 or 1. canonicalizeNaN must have processed them and given these bounds. `draws` are their draw
// numbers.
template <bool stochastic, Wide type, int count>
__device__ inline void codesOf(Fp4Block<type> (&x)[count], const float (&bounds)[count],
                               const TwoLevel (&scales)[count], const int64_t (&draws)[count], uint32_t copy,
                               const Philox& random, uint2 (&codes)[count]) {
  if constexpr (stochastic) {
    float multipliers[count];
    uint4 drawn[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      multipliers[i] = scales[i].multiplier;
      drawn[i] = random(static_cast<uint64_t>(draws[i]), copy);
    }
    lowerFp4(x, multipliers);
#pragma unroll
    for (int i = 0; i < count; ++i) codes[i] = encodeFp4(x[i], multipliers[i], drawn[i]);
  } else {
    limitFp4(x, bounds, scales);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if constexpr (type == Wide::kBf16) {
        codes[i] = encodeLimitedFp4(x[i], scales[i].multiplier);
      } else {
        codes[i] = encodeFp4(x[i], scales[i].multiplier);
      }
    }
  }
}

// Writes the codes of one block, or of two consecutive ones if `both`, from word `word` on.
__device__ inline void storeFp4(uint8_t* data, int64_t word, const uint2 (&codes)[2], bool both) {
  uint8_t* to = data + word * 4;
  if (both && word % 4 == 0) {
    *reinterpret_cast<uint4*>(to) = make_uint4(codes[0].x, codes[0].y, codes[1].x, codes[1].y);
  } else {
    *reinterpret_cast<uint2*>(to) = codes[0];
    if (both) *reinterpret_cast<uint2*>(to + 8) = codes[1];
  }
}

// Stores the scales of one copy of a tile that starts at (line, block), where `block` is a multiple of 4.
class Fp4Scales {
 public:
  __device__ Fp4Scales(const ScalePlacement& p, int64_t line, int64_t block)
      : to_(static_cast<uint8_t*>(p.data) + scaleOffset(p, p.swizzled ? line & ~int64_t{127} : line, block)),
        lineStride_(p.lineStride),
        blockStride_(p.blockStride),
        first_(static_cast<int>(line & 127)),
        swizzled_(p.swizzled) {}

  // Stores the scale of a block; line and block are relative to the tile.
  __device__ void store(int line, int block, uint32_t code) const {
    const int64_t linear = line * lineStride_ + block * blockStride_;
    const int l = first_ + line;
    const int64_t at = swizzled_ ? block / 4 * 512 + l % 32 * 16 + l / 32 * 4 + block % 4 : linear;
    to_[at] = static_cast<uint8_t>(code);
  }

 private:
  uint8_t* to_;
  int64_t lineStride_;
  int64_t blockStride_;
  int first_;
  bool swizzled_;
};

}  // namespace lockstep
