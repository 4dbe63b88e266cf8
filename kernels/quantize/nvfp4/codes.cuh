// Shared by the NVFP4 kernels: block scales, encoding to e2m1, and stores of codes and scales. S_enc is the encode
// scale of a tensor (docs/numerics.md §5.1).
#pragma once

#include <algorithm>

#include "kernels/core/scale.cuh"
#include "kernels/device/pdl.cuh"
#include "kernels/quantize/nvfp4/nvfp4.h"
#include "kernels/quantize/nvfp4/tile.cuh"

namespace lockstep {

// The S_enc of one copy, its reciprocal, and the tensor's amax.
struct Nvfp4Levels {
  float encode;
  float decode;
  float amax;
};

// The Nvfp4Levels of both copies, rowwise first, in shared memory.
struct Nvfp4Shared {
  Nvfp4Levels levels[2];

  // Computes the levels, by two threads. All threads of the block may call it, and all must synchronise afterwards.
  __device__ void start(const QuantizeNvfp4Params& p) {
    if (threadIdx.x >= 2) return;
    const Nvfp4Copy& copy = threadIdx.x == 0 ? p.rowwise : p.columnwise;
    if (copy.codes == nullptr) return;
    const float encode = globalScale(*copy.amax, 6 * p.e4m3Max);
    levels[threadIdx.x] = {encode, 1 / encode, *copy.amax};
  }
};

// A table in shared memory from which `scale` reads the scale code of a block and the multiplier of its elements, given
// the block's amax. `start` fills it.
struct Nvfp4Scaling {
  // For each copy, the multiplier of the elements for each of the 128 scale codes.
  float multipliers[2][128];
  // For each copy, the factor that converts a block's amax to its unrounded scale.
  float factors[2];

  // Fills the table. All threads of the block must call it and synchronise afterwards.
  __device__ void start(const QuantizeNvfp4Params& p) {
    const int copy = threadIdx.x / 128;
    const Nvfp4Copy& to = copy == 0 ? p.rowwise : p.columnwise;
    if (to.codes == nullptr) return;
    const float encode = globalScale(*to.amax, 6 * p.e4m3Max);
    const uint32_t code = threadIdx.x % 128;
    multipliers[copy][code] = twoLevelMultiplier(decode(code, format::kE4m3), 1 / encode);
    // The factor is not negative, whatever amax is given, because the table has no multipliers for negative scale
    // codes.
    factors[copy] = fmaxf(encode * floatOf(0x3e2aaaab), 0.0f);
  }

  // Returns the same as twoLevel of scale.cuh.
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

// Returns the grid size that fills the device with `onEach` blocks per multiprocessor, but at most `blocks`.
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

// The terms whose sum is the magnitude code of x in e2m1, for x not negative and not NaN. The code is 2x for x up to 2,
// x + 2 up to 4, x / 2 + 4 up to 6, and 7 above. Each term is exact.
struct E2m1Terms {
  float upToTwo;
  float upToFour;
  float upToSix;

  __device__ explicit E2m1Terms(float x)
      : upToTwo(saturatedFma(x, 0.5f, 0.0f)),
        upToFour(saturatedFma(x, 0.5f, -1.0f)),
        upToSix(saturatedFma(x, 0.5f, -2.0f)) {}

  // Returns the bits of 2^23 plus the code, rounded to nearest even.
  __device__ uint32_t nearest() const {
    return bitsOf(__fmaf_rn(upToFour, 2.0f, __fmaf_rn(upToTwo, 4.0f, 8388608.0f)) + upToSix);
  }
};

// Returns the bits of 2^23 plus the magnitude code of x in e2m1, for x in [0, 7), rounded to nearest even. The code is
// the smallest of 2x, x + 2 and x / 2 + 4, each rounded once.
__device__ inline uint32_t leastE2m1(float x) {
  const uint32_t upToTwo = bitsOf(__fmaf_rn(x, 2.0f, 8388608.0f));
  const uint32_t upToFour = bitsOf(x + 8388610.0f);
  const uint32_t upToSix = bitsOf(__fmaf_rn(x, 0.5f, 8388612.0f));
  return min(min(upToTwo, upToFour), upToSix);
}

// Clamps the magnitudes of a block to 6 / m, rounded down to bf16. This value times m still encodes to code 7.
__device__ inline void limitFp4(Fp4Block<Wide::kBf16>& x, float m) {
  const uint32_t limit = min(bitsOf(6 / m), 0x7f7fffffu) >> 16;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t lowered = minOfPairs<Wide::kBf16>(x.words[i] & 0x7fff7fffu, limit << 16 | limit);
    x.words[i] = lowered | (x.words[i] & 0x80008000u);
  }
}

// Prepares blocks for encodeLimitedFp4, which needs products |x| * m below 7. canonicalizeNaN must have processed the
// blocks and given `bounds`.
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

// Encodes a block that limitFp4 has prepared, rounding to nearest even.
__device__ inline uint2 encodeLimitedFp4(const Fp4Block<Wide::kBf16>& x, float m) {
  const auto eight = [&](int first) {
    // each term carries the bits of 2^23; the last subtraction removes them
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
    // each term carries the bits of 2^23; the last subtraction removes them
    uint32_t codes = 0;
#pragma unroll
    for (int i = 7; i >= 0; --i) codes = codes * 16 + E2m1Terms(fabsf(x[first + i]) * m).nearest();
    return (codes - 0x4b000000u * 0x11111111u) | (x.signs(first) & 0x88888888u);
  };
  return make_uint2(eight(0), eight(8));
}

// Stochastic rounding works on pairs of f16. Multiply a magnitude by 2^-14 and truncate the product to f16. The bit
// pattern of this f16 is the e2m1 code, followed by nine fraction bits. This holds because f16 is evenly spaced below
// 2^-14, as e2m1 is below 1, and both spacings double with each binade above. The eight random bits are added to the
// upper eight of the nine fraction bits; a carry rounds the code up.
constexpr uint32_t kLargestFp4Pair = 7u << 9 | 7u << 25;

// Prepares blocks that canonicalizeNaN has processed, and their multipliers, for encodeFp4 with stochastic rounding. It
// multiplies one factor of each product x * m by 2^-14: m if m stays normal, else x. The bits that small elements of x
// lose then change no code: with so small an m, only large elements give a nonzero code.
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

// For stochastic rounding of two products x * m: converts `low` and `high` to e2m1 codes that are followed by fraction
// bits, and adds the random bits (bytes 0 and 2 of `random`) to the fraction bits; a carry rounds up. The signs are in
// the top bits of the two 16-bit results.
__device__ inline uint32_t sumFp4(float low, float high, uint32_t random) {
  uint32_t pair;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  asm("min.xorsign.abs.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(kLargestFp4Pair));
  return pair + 2 * random;
}

// Packs eight codes from four results of sumFp4, with the codes of elements 0 and 2, 4 and 6, 1 and 3, 5 and 7.
__device__ inline uint32_t packFp4(const uint32_t (&sums)[4]) {
  // each 32-bit word has one code in the upper half of each byte: word 0 has the even elements, word 1 the odd ones
  uint32_t codes[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t bytes = __byte_perm(sums[2 * i], sums[2 * i + 1], 0x7531);
    codes[i] = mergeBits(0x80808080u, bytes, bytes << 3);
  }
  return mergeBits(0x0f0f0f0fu, codes[0] >> 4, codes[1]);
}

// Encodes a block that lowerFp4 has prepared, with stochastic rounding.
template <Wide type>
__device__ inline uint2 encodeFp4(const Fp4Block<type>& x, float m, const uint4& drawn) {
  const auto eight = [&](int first, uint32_t fourBytes, uint32_t nextBytes) {
    uint32_t sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // elements 0 to 3 take bytes 0, 2, 1 and 3 of their word (random.cuh)
      const uint32_t pair = __byte_perm(i % 2 == 0 ? fourBytes : nextBytes, 0, i < 2 ? 0x4140 : 0x4342);
      const int element = first + i % 2 * 4 + i / 2;
      sums[i] = sumFp4(x[element] * m, x[element + 2] * m, pair);
    }
    return packFp4(sums);
  };
  return make_uint2(eight(0, drawn.x, drawn.y), eight(8, drawn.z, drawn.w));
}

// Encodes a block that canonicalizeNaN has processed, with stochastic rounding by one word per element. `words` may be null; then
// nothing is read.
template <Wide type>
__device__ inline uint2 encodeFp4(const Fp4Block<type>& x, float m, const uint32_t* words) {
  const auto eight = [&](int first) {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 7; i >= 0; --i) {
      const uint32_t random = words == nullptr ? 0 : words[first + i];
      codes = codes << 4 | encode(x[first + i] * m, format::kE2m1, Rounding::kStochastic, Overflow::kSaturate, random);
    }
    return codes;
  };
  return make_uint2(eight(0), eight(8));
}

// Encodes blocks of copy 0 (rowwise) or 1 (columnwise). canonicalizeNaN must have processed the blocks and given
// `bounds`. draws[i] is the Philox draw of block i.
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

// Writes the codes of two consecutive blocks, the first at a multiple of four words.
__device__ inline void storeFp4(uint8_t* data, int64_t word, const uint2 (&codes)[2]) {
  *reinterpret_cast<uint4*>(data + word * 4) = make_uint4(codes[0].x, codes[0].y, codes[1].x, codes[1].y);
}

// Writes the codes of one block or, if `both`, of two consecutive blocks. `word` is the index of the first 32-bit word
// in `data`.
__device__ inline void storeFp4(uint8_t* data, int64_t word, const uint2 (&codes)[2], bool both) {
  if (both && word % 4 == 0) return storeFp4(data, word, codes);
  uint8_t* to = data + word * 4;
  *reinterpret_cast<uint2*>(to) = codes[0];
  if (both) *reinterpret_cast<uint2*>(to + 8) = codes[1];
}

// Stores the scales of one copy of a tile. The first block of the tile is block `block` of line `line`; `block` is a
// multiple of 4.
class Fp4Scales {
 public:
  __device__ Fp4Scales(const ScalePlacement& p, int64_t line, int64_t block)
      : to_(static_cast<uint8_t*>(p.data) + scaleOffset(p, p.swizzled ? line & ~int64_t{127} : line, block)),
        lineStride_(p.lineStride),
        blockStride_(p.blockStride),
        first_(static_cast<int>(line & 127)),
        swizzled_(p.swizzled) {}

  // Stores the scale of a block. `line` and `block` are relative to the tile.
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
