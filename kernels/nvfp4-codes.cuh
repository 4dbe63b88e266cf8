// What NVFP4's quantizing kernels share: where the blocks of a tile go, and their codes.
#pragma once

#include "kernels/fp4-tile.cuh"
#include "kernels/quantize-nvfp4.h"
#include "kernels/scale.cuh"

namespace lockstep {

// S_enc of one copy, its reciprocal, and the amax that gives it.
struct Nvfp4Levels {
  float encode;
  float decode;
  float amax;
};

// The levels of the rowwise and the columnwise copy.
struct Nvfp4Shared {
  Nvfp4Levels levels[2];

  // Called by all threads, which then synchronise.
  __device__ void start(const QuantizeNvfp4Params& p) {
    if (threadIdx.x >= 2) return;
    const Nvfp4Copy& copy = threadIdx.x == 0 ? p.rowwise : p.columnwise;
    if (copy.data == nullptr) return;
    const float encode = globalScale(*copy.amax, 6 * p.e4m3Max);
    levels[threadIdx.x] = {encode, 1 / encode, *copy.amax};
  }
};

// Where a tile starts: the last tile first, for a pass over the source leaves its end in the cache.
struct Nvfp4Origin {
  int64_t row;
  int64_t column;

  __device__ explicit Nvfp4Origin(int64_t columns) {
    const uint32_t across = static_cast<uint32_t>(ceilDivide(columns, kFp4Columns));
    const uint32_t tile = gridDim.x - 1 - blockIdx.x;
    row = int64_t{tile / across} * kFp4Rows;
    column = int64_t{tile % across} * kFp4Columns;
  }
};

inline uint32_t nvfp4Tiles(const QuantizeNvfp4Params& p) {
  return static_cast<uint32_t>(ceilDivide(p.rows, kFp4Rows) * ceilDivide(p.columns, kFp4Columns));
}

// Codes of a block, nearest even.
template <Wide type>
__device__ inline uint2 encodeFp4(const Fp4Block<type>& x, float m) {
  const auto eight = [&](int i) {
    const auto four = [&](int j) {
      return encodeNearest4<format::kE2m1>(x[j] * m, x[j + 1] * m, x[j + 2] * m, x[j + 3] * m);
    };
    return four(i) | four(i + 4) << 16;
  };
  return make_uint2(eight(0), eight(8));
}

// encodeStochastic<kE2m1>, in units of 2^-16 of a code, before the shift by 16: the terms are those of magnitudeE2m1,
// only one of them not an integer, and sums with 2^7 are cut to such units.
__device__ inline uint32_t stochasticFp4(float x, uint32_t random16) {
  const float a = fabsf(fminf(x, 6.0f));
  const float upToTwo = saturatedFma(a, 0.5f, 0.0f);
  const float upToFour = saturatedFma(a, 0.5f, -1.0f);
  const float upToSix = saturatedFma(a, 0.5f, -2.0f);
  const float sum = __fadd_rz(__fmaf_rz(upToFour, 2.0f, __fmaf_rz(upToTwo, 4.0f, 128.0f)), upToSix);
  return bitsOf(sum) + (0xffffu ^ random16);
}

// Codes of a block whose first element has this index, a multiple of 16, in copy 0 or 1, stochastic.
template <Wide type>
__device__ inline uint2 encodeFp4(const Fp4Block<type>& x, float m, int64_t index, uint32_t copy,
                                  const RandomSource& random) {
  const auto eight = [&](int first) {
    const uint4 draw = philox(static_cast<uint64_t>(index + first) >> 3, copy, random);
    const auto sum = [&](int i) { return stochasticFp4(x[first + i] * m, lockstep::random16(draw, i)); };
    // bits 16 to 18 of a sum are the code: byte 2
    const auto four = [&](int i) {
      return __byte_perm(__byte_perm(sum(i), sum(i + 2), 0x0062), __byte_perm(sum(i + 4), sum(i + 6), 0x0062), 0x5410);
    };
    uint32_t signs = 0;
#pragma unroll
    for (int i = 7; i >= 0; --i) signs = __funnelshift_l(bitsOf(fminf(x[first + i], 6.0f)), signs, 4);
    return four(0) | four(1) << 4 | (signs & 0x88888888u);
  };
  return make_uint2(eight(0), eight(8));
}

// Writes the codes of two blocks that follow each other, the second where `both`.
__device__ inline void storeFp4(uint8_t* data, int64_t index, const uint2 (&codes)[2], bool both) {
  uint8_t* to = data + (index >> 1);
  if (both && index % 32 == 0) {
    *reinterpret_cast<uint4*>(to) = make_uint4(codes[0].x, codes[0].y, codes[1].x, codes[1].y);
  } else {
    *reinterpret_cast<uint2*>(to) = codes[0];
    if (both) *reinterpret_cast<uint2*>(to + 8) = codes[1];
  }
}

// The scales of one copy of a tile that starts at (line, block), blocks being a multiple of 4 there.
class Fp4Scales {
 public:
  __device__ Fp4Scales(const ScalePlacement& p, int64_t line, int64_t block)
      : to_(static_cast<uint8_t*>(p.data) + scaleOffset(p, p.swizzled ? line & ~int64_t{127} : line, block)),
        lineStride_(p.lineStride),
        blockStride_(p.blockStride),
        first_(static_cast<int>(line & 127)),
        swizzled_(p.swizzled) {}

  // Stores the scale of a block, line and block counted from where the tile starts.
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
