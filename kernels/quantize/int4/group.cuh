// The kernels for INT4 in groups, one for each copy. Tests run them on a CPU as well (conformance/tests/stand-in/warp.h).
#pragma once

#include "kernels/core/formats.gen.h"
#include "kernels/device/device.cuh"
#include "kernels/quantize/group.gen.h"
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/scaler.cuh"

namespace lockstep {

namespace int4group {

// The number of adjacent elements of a lane, whose codes fill one 32-bit word.
constexpr int kWidth = 8;
// The number of columns of a row that a warp quantizes, a multiple of every group size.
constexpr int kAcross = 32 * kWidth;
constexpr int kWarps = 4;
// The number of rows of a column whose codes a lane stores at once.
constexpr int kDown = 32;

// Returns the two's complement code of x rounded to an integer from -8 to 7, ties to even, in the low four bits. NaN becomes
// 0.
__device__ inline uint32_t codeOf(float x) {
  const float bounded = x != x ? 0.0f : fminf(fmaxf(x, -8.0f), 7.0f);
  // the ulp of 1.5 * 2^23 is 1, and its last four bits are zeros
  return bitsOf(bounded + 12582912.0f) & 15;
}

// The scale of a group; `amax` is the bit pattern of its amax.
template <Wide type>
__device__ ScaleOf<true> scaleOf(const QuantizeGroupParams& p, uint32_t amax) {
  return generalScale<type>(p, floatOf(amax), 7.0f, largestWide(type));
}

__device__ inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

__device__ inline void storeScale(const ScalePlacement& to, int64_t line, int64_t block, const ScaleOf<true>& scale) {
  static_cast<float*>(to.data)[scaleOffset(to, line, block)] = scale.stored();
}

// Writes the rowwise copy. A warp quantizes 256 columns of a row; each lane has eight elements of one group. `across`: warps per
// row.
template <Wide type>
__global__ void __launch_bounds__(kWarps * 32) quantizeRows(const QuantizeGroupParams p, uint32_t across) {
  if (isNoop(p.noop)) return;
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t row = warp / across;
  if (row >= p.rows) return;
  const int64_t column = warp % across * kAcross + threadIdx.x % 32 * kWidth;
  const bool inside = column < p.columns;
  const auto* from = static_cast<const typename WideOf<type>::Storage*>(p.x) + row * p.columns + column;
  float x[kWidth];
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    x[i] = inside ? WideOf<type>::load(from[i]) : 0;
    amax = larger(amax, magnitudeOf(x[i]));
  }
  const int lanes = static_cast<int>(p.length) / kWidth;
  for (int step = lanes / 2; step > 0; step /= 2) amax = larger(amax, __shfl_xor_sync(kFullMask, amax, step));
  if (!inside) return;
  const ScaleOf<true> scale = scaleOf<type>(p, amax);
  const Scaler<type, true> scaled{p.scaling};
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) codes |= codeOf(scaled(x[i], scale.factor)) << 4 * i;
  *reinterpret_cast<uint32_t*>(p.rowwise.codes + (row * p.columns + column) / 2) = codes;
  if (column % p.length == 0) storeScale(p.rowwise.scales, row, column / p.length, scale);
}

// Writes the columnwise copy. A lane quantizes one group of a column. `across`: warps per row of groups.
template <Wide type>
__global__ void __launch_bounds__(kWarps * 32) quantizeColumns(const QuantizeGroupParams p, uint32_t across) {
  if (isNoop(p.noop)) return;
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t block = warp / across;
  const int64_t first = block * p.length;
  if (first >= p.rows) return;
  const int64_t column = warp % across * 32 + threadIdx.x % 32;
  const int64_t left = p.rows - first;
  const int rows = static_cast<int>(left < p.length ? left : p.length);
  const auto* x = static_cast<const typename WideOf<type>::Storage*>(p.x) + first * p.columns + column;
  uint32_t amax = 0;
  for (int r = 0; r < rows; ++r) amax = larger(amax, magnitudeOf(WideOf<type>::load(x[r * p.columns])));
  const ScaleOf<true> scale = scaleOf<type>(p, amax);
  storeScale(p.columnwise.scales, column, block, scale);
  const Scaler<type, true> scaled{p.scaling};
  uint8_t* to = p.columnwise.codes + (column * p.rows + first) / 2;
  for (int r = 0; r < rows; r += kDown) {
    uint32_t words[kDown / kWidth] = {};
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const float value = WideOf<type>::load(x[(r + i) * p.columns]);
      words[i / kWidth] |= codeOf(scaled(value, scale.factor)) << i % kWidth * 4;
    }
    *reinterpret_cast<uint4*>(to + r / 2) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Warps per row, and thread blocks, of a kernel.
inline uint32_t warpsAcross(const QuantizeGroupParams& p, bool isRowwise) {
  return static_cast<uint32_t>(ceilDivide(p.columns, isRowwise ? kAcross : 32));
}
inline int64_t blocksOf(const QuantizeGroupParams& p, bool isRowwise) {
  const int64_t down = isRowwise ? p.rows : ceilDivide(p.rows, static_cast<int64_t>(p.length));
  return ceilDivide(down * warpsAcross(p, isRowwise), kWarps);
}

}  // namespace int4group

}  // namespace lockstep
