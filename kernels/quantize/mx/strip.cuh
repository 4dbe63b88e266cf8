// MX quantization of a strip: 32 rows of 128 bf16 columns, by one warp. A lane has all 32 rows of four columns, so columnwise
// blocks need no communication between lanes.
#pragma once

#include "kernels/core/scale.cuh"
#include "kernels/device/pair.cuh"
#include "kernels/quantize/mx/mx.h"

namespace lockstep {

constexpr int kBlock = 32;
constexpr int kStripColumns = 128;

// Returns, for each half of a 32-bit word, the larger of `largest` and the magnitude of the bf16 value there.
__device__ inline uint32_t raise(uint32_t largest, uint32_t pair) { return raiseToPair<Wide::kBf16>(largest, pair); }
__device__ inline uint32_t larger(uint32_t a, uint32_t b) { return maxOfPairs<Wide::kBf16>(a, b); }
__device__ inline float low(uint32_t pair) { return lowOf<Wide::kBf16>(pair); }
__device__ inline float high(uint32_t pair) { return highOf<Wide::kBf16>(pair); }

// MXFP8 rounds its scales up; the other formats round them down (docs/numerics.md 4.1).
__host__ __device__ constexpr ScaleRule ruleOf(uint32_t word) {
  return magnitudeBits(word) == 7 ? ScaleRule::kE8m0Up : ScaleRule::kE8m0Floor;
}

template <uint32_t word>
__device__ inline uint32_t scaleOf(float amax) {
  constexpr float kReciprocal = 1.0f / decode(maxCode(word), word);
  constexpr int kMaxExponent = static_cast<int>(maxCode(word) >> mantissaBits(word)) - exponentBias(word);
  return ruleOf(word) == ScaleRule::kE8m0Up ? e8m0Up(amax * kReciprocal) : e8m0Floor(amax, kMaxExponent);
}

// The four columns of a strip (32 rows by 128 columns) that belong to one lane. x[r] is row r of them, in registers or
// in shared memory.
template <typename Rows>
struct Strip {
  Rows x;
  int64_t row;
  int64_t column;
  bool inside;
};

template <uint32_t word>
__device__ inline uint32_t encodeRow(const uint2& x, const float (&m)[4]) {
  return encodeNearest4<word>(low(x.x) * m[0], high(x.x) * m[1], low(x.y) * m[2], high(x.y) * m[3]);
}

// Writes the columnwise codes of a strip of 32 rows by 128 columns, without transposing them.
template <uint32_t word, typename Rows>
__device__ inline void storeStrip(const Strip<Rows>& s, uint8_t* data, int64_t columns, const float (&m)[4]) {
  uint8_t* to = data + s.row * columns + s.column;
#pragma unroll
  for (int r = 0; r < kBlock; ++r) *reinterpret_cast<uint32_t*>(to + r * columns) = encodeRow<word>(s.x[r], m);
}

// Writes the columnwise 4-bit codes of a strip of 32 rows by 128 columns, transposed: 16 bytes per column.
template <uint32_t word, typename Rows>
__device__ inline void storeTransposed(const Strip<Rows>& s, uint8_t* data, int64_t rows, const float (&m)[4]) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const auto x = [&](int r) {
      const uint2 row = s.x[r];
      const uint32_t pair = c < 2 ? row.x : row.y;
      return (c % 2 == 0 ? low(pair) : high(pair)) * m[c];
    };
    const auto eight = [&](int r) {
      return encodeNearest4<word>(x(r), x(r + 1), x(r + 2), x(r + 3)) |
             encodeNearest4<word>(x(r + 4), x(r + 5), x(r + 6), x(r + 7)) << 16;
    };
    *reinterpret_cast<uint4*>(data + ((s.column + c) * rows + s.row) / 2) =
        make_uint4(eight(0), eight(8), eight(16), eight(24));
  }
}

// Writes the rowwise copy of a strip of 32 rows by 128 columns. Eight lanes share an MX block. If blocks are square,
// `tile` holds the amax of the 32x32 block in both halves.
template <uint32_t word, typename Rows>
__device__ inline void quantizeStripRows(const QuantizeMxParams& p, const Strip<Rows>& s, uint32_t tile) {
  const int lane = threadIdx.x % 32;
  const int64_t first = s.row * p.columns + s.column;
  // scale codes of rows lane % 8, lane % 8 + 8, ..., which this lane will store
  uint32_t kept[kBlock / 8];
#pragma unroll
  for (int r = 0; r < kBlock; r += 2) {
    uint32_t both = tile;
    if (!p.square) {
      const uint32_t a = raise(s.x[r].x & 0x7fff7fffu, s.x[r].y);
      const uint32_t b = raise(s.x[r + 1].x & 0x7fff7fffu, s.x[r + 1].y);
      both = larger(lowLanes(a, b), highLanes(a, b));
      both = larger(both, __shfl_xor_sync(kFullMask, both, 1));
      both = larger(both, __shfl_xor_sync(kFullMask, both, 2));
      both = larger(both, __shfl_xor_sync(kFullMask, both, 4));
      both = larger(both, 0);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t code = scaleOf<word>(i == 0 ? low(both) : high(both));
      if ((r + i) % 8 == lane % 8) kept[(r + i) / 8] = code;
      const float m = e8m0Reciprocal(code);
      const uint32_t codes = encodeRow<word>(s.x[r + i], {m, m, m, m});
      const int64_t index = first + (r + i) * p.columns;
      if (!s.inside) continue;
      if constexpr (storageBits(word) == 8) {
        *reinterpret_cast<uint32_t*>(p.rowwise.codes + index) = codes;
      } else {
        *reinterpret_cast<uint16_t*>(p.rowwise.codes + index / 2) = static_cast<uint16_t>(codes);
      }
    }
  }
  if (!s.inside) return;
  uint8_t* scales = static_cast<uint8_t*>(p.rowwise.scales.data);
#pragma unroll
  for (int i = 0; i < kBlock / 8; ++i) {
    const int64_t at = scaleOffset(p.rowwise.scales, s.row + 8 * i + lane % 8, s.column / kBlock);
    scales[at] = static_cast<uint8_t>(kept[i]);
  }
}

// Writes the rowwise copy, the columnwise copy or both of a strip of 32 rows by 128 columns. All 32 lanes of the warp
// must call it.
template <uint32_t word, typename Rows>
__device__ inline void quantizeStrip(const QuantizeMxParams& p, const Strip<Rows>& s) {
  uint32_t largest[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    largest[0] = raise(largest[0], s.x[r].x);
    largest[1] = raise(largest[1], s.x[r].y);
  }
  if (p.square) {
    uint32_t tile = maxOfLanes<Wide::kBf16>(larger(largest[0], largest[1]));
#pragma unroll
    for (int step = 1; step < 8; step *= 2) tile = larger(tile, __shfl_xor_sync(kFullMask, tile, step));
    largest[0] = tile;
    largest[1] = tile;
  }
  if (p.columnwise.codes != nullptr && s.inside) {
    float m[4];
    uint8_t* scales = static_cast<uint8_t*>(p.columnwise.scales.data);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const uint32_t code = scaleOf<word>(c % 2 == 0 ? low(largest[c / 2]) : high(largest[c / 2]));
      m[c] = e8m0Reciprocal(code);
      scales[scaleOffset(p.columnwise.scales, s.column + c, s.row / kBlock)] = static_cast<uint8_t>(code);
    }
    if constexpr (storageBits(word) == 8) {
      storeStrip<word>(s, p.columnwise.codes, p.columns, m);
    } else {
      storeTransposed<word>(s, p.columnwise.codes, p.rows, m);
    }
  }
  if (p.rowwise.codes != nullptr) quantizeStripRows<word>(p, s, largest[0]);
}

}  // namespace lockstep
