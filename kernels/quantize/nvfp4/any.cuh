// Kernels for FP4 quantization under scale rules of libraries other than TransformerEngine (docs/numerics.md §5.11), with an amax
// for each line (§5.9), and with ue5m3 scales (§5.12). A warp quantizes 16 rows of 32 columns, one column per lane. Tests run
// these kernels on a CPU as well (conformance/tests/stand-in/warp.h).
#pragma once

#include "kernels/device/device.cuh"
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/nvfp4/nvfp4.h"
#include "kernels/quantize/scaler.cuh"

namespace lockstep {

namespace nvfp4any {

constexpr int kBlock = 16;
constexpr int kColumns = 32;
// The number of warps of a thread block. They quantize consecutive groups of rows.
constexpr int kWarps = 4;

// Replaces the amaxes of the copies by per-tensor scales. One thread calls it.
template <Wide type>
__global__ void storeTensorScales(const QuantizeNvfp4Params p) {
  if (isNoop(p.noop)) return;
  const auto scale = [&](const Nvfp4Copy& copy) {
    const bool reads = copy.codes != nullptr && !hasNoTensorAmax(p.rule);
    return tensorScale(p.rule, reads ? *copy.amax : 0.0f, rounded<type>);
  };
  const float rowwise = scale(p.rowwise);
  const float columnwise = scale(p.columnwise);
  if (p.rowwise.codes != nullptr) *p.rowwise.amax = rowwise;
  if (p.columnwise.codes != nullptr) *p.columnwise.amax = columnwise;
}

// Returns the e2m1 code nearest to x, ties to even; larger values saturate, and NaN becomes 7.
__device__ inline uint32_t codeOf(float x) {
  constexpr uint32_t kOne = 0x3f800000u;
  const float bounded = fminf(x, 6.0f);
  const float a = fminf(fabsf(bounded), 6.0f);
  const uint32_t binade = bitsOf(a) < kOne ? kOne : bitsOf(a) & 0x7f800000u;
  // adding a power of two rounds to a multiple of half the binade
  const uint32_t power = binade + (22u << 23);
  const uint32_t steps = bitsOf(a + floatOf(power)) - power;
  return (((binade - kOne) >> 22) + steps) | (bitsOf(bounded) >> 28 & 8);
}

// One step of a butterfly reduction. Two lanes whose indices differ in the bit `mask` combine their `count` values; the lane
// without the bit keeps the first half of the results, and the other the second half.
template <int count, typename Combine>
__device__ inline void halve(uint32_t (&values)[kBlock], int mask, Combine combine) {
  const bool isUpper = (threadIdx.x & mask) != 0;
#pragma unroll
  for (int i = 0; i < count / 2; ++i) {
    const uint32_t kept = isUpper ? values[i + count / 2] : values[i];
    const uint32_t sent = isUpper ? values[i] : values[i + count / 2];
    values[i] = combine(kept, __shfl_xor_sync(kFullMask, sent, mask));
  }
}

__device__ inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Reduces each values[i] to its maximum over 16 lanes. values[0] becomes the maximum for i = lane % 16.
__device__ inline void maximaAcross(uint32_t (&values)[kBlock]) {
  halve<16>(values, 8, larger);
  halve<8>(values, 4, larger);
  halve<4>(values, 2, larger);
  halve<2>(values, 1, larger);
}

// Packs the codes of each 8 lanes into words. codes[0] and codes[1] become the words for i = lane % 8 * 2 and i + 1.
__device__ inline void packAcross(uint32_t (&codes)[kBlock]) {
  const auto both = [](uint32_t a, uint32_t b) { return a | b; };
#pragma unroll
  for (int i = 0; i < kBlock; ++i) codes[i] <<= threadIdx.x % 8 * 4;
  halve<16>(codes, 4, both);
  halve<8>(codes, 2, both);
  halve<4>(codes, 1, both);
}

// The 16 elements of a lane's column, and their position in the matrix.
template <Wide type>
struct Column {
  float x[kBlock];
  int64_t row;
  int64_t column;
  bool inside;

  // The largest magnitude, NaN ignored, as bits.
  __device__ uint32_t amax() const {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) largest = larger(largest, magnitudeOf(x[i]));
    return largest;
  }
};

// The code of an element of a block with this factor.
template <Wide type>
__device__ uint32_t codeOf(const QuantizeNvfp4Params& p, float x, float factor) {
  const Scaler<type, true> scaled{p.scaling};
  return codeOf(settled(scaled(x, factor), 0.25f, p.scaling));
}

// The scale of a block with this amax in this line.
template <Wide type>
__device__ Fp4Scale scaleOf(const QuantizeNvfp4Params& p, const Nvfp4Copy& to, int64_t line, uint32_t amax) {
  if (p.rowScaled) {
    const float encode = globalScale(to.amax[line], 6 * p.e4m3Max);
    const TwoLevel scale = twoLevel(floatOf(amax), encode, 1 / encode);
    return {scale.code, scale.multiplier};
  }
  return fp4Scale(p.rule, p.scaling, floatOf(amax), to.amax, rounded<type>);
}

__device__ inline void storeScale(const ScalePlacement& to, int64_t line, int64_t block, uint32_t code) {
  static_cast<uint8_t*>(to.data)[scaleOffset(to, line, block)] = static_cast<uint8_t>(code);
}

// Writes the rowwise copy. `amax`: the amax of this column's block in row lane % 16.
template <Wide type>
__device__ void quantizeRows(const QuantizeNvfp4Params& p, const Column<type>& c, uint32_t amax) {
  const int lane = threadIdx.x % 32;
  const Fp4Scale scale = scaleOf<type>(p, p.rowwise, c.row + lane % kBlock, amax);
  uint32_t codes[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    const float factor = __shfl_sync(kFullMask, scale.factor, (lane & kBlock) + i);
    codes[i] = codeOf<type>(p, c.x[i], factor);
  }
  packAcross(codes);
  if (!c.inside) return;
  storeScale(p.rowwise.scales, c.row + lane % kBlock, c.column / kBlock, scale.code);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row = c.row + lane % 8 * 2 + i;
    *reinterpret_cast<uint32_t*>(p.rowwise.codes + (row * p.columns + c.column / 8 * 8) / 2) = codes[i];
  }
}

// Writes the columnwise copy. `amax`: the amax of the lane's block.
template <Wide type>
__device__ void quantizeColumns(const QuantizeNvfp4Params& p, const Column<type>& c, uint32_t amax) {
  if (!c.inside) return;
  const Fp4Scale scale = scaleOf<type>(p, p.columnwise, c.column, amax);
  uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < kBlock; ++i) words[i / 8] |= codeOf<type>(p, c.x[i], scale.factor) << i % 8 * 4;
  storeScale(p.columnwise.scales, c.column, c.row / kBlock, scale.code);
  *reinterpret_cast<uint2*>(p.columnwise.codes + (c.column * p.rows + c.row) / 2) = make_uint2(words[0], words[1]);
}

// Loads the lane's column. `across`: thread blocks per row of blocks. Rows below the last one are not loaded.
template <Wide type>
__device__ Column<type> columnOf(const QuantizeNvfp4Params& p, uint32_t across) {
  Column<type> c;
  c.row = (int64_t{blockIdx.x / across} * kWarps + threadIdx.x / 32) * kBlock;
  c.column = int64_t{blockIdx.x % across} * kColumns + threadIdx.x % 32;
  c.inside = c.column < p.columns;
  if (c.row >= p.rows) return c;
  const auto* from = static_cast<const typename WideOf<type>::Storage*>(p.x) + c.row * p.columns + c.column;
#pragma unroll
  for (int i = 0; i < kBlock; ++i) c.x[i] = c.inside ? WideOf<type>::load(from[i * p.columns]) : 0;
  return c;
}

// The amax of this column's block in row lane % 16. Call with the full warp.
template <Wide type>
__device__ uint32_t rowAmax(const Column<type>& c) {
  uint32_t magnitudes[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) magnitudes[i] = magnitudeOf(c.x[i]);
  maximaAcross(magnitudes);
  return magnitudes[0];
}

// Sets the amaxes of lines to zero. The thread clears line `index` of each copy.
__device__ inline void clearLineAmaxes(const QuantizeNvfp4Params& p, int64_t index) {
  if (isNoop(p.noop)) return;
  if (p.rowwise.codes != nullptr && index < p.rows) p.rowwise.amax[index] = 0;
  if (p.columnwise.codes != nullptr && index < p.columns) p.columnwise.amax[index] = 0;
}

// Computes the amaxes of lines, which must be zero before, by atomic maxima: a maximum does not depend on the order, and
// magnitudes are ordered like their bits.
template <Wide type>
__global__ void __launch_bounds__(kWarps * 32) raiseLineAmaxes(const QuantizeNvfp4Params p, uint32_t across) {
  if (isNoop(p.noop)) return;
  const int lane = threadIdx.x % 32;
  const Column<type> c = columnOf<type>(p, across);
  if (c.row >= p.rows) return;
  if (p.rowwise.codes != nullptr) {
    const uint32_t half = rowAmax(c);
    const uint32_t largest = larger(half, __shfl_xor_sync(kFullMask, half, kBlock));
    if (lane < kBlock) atomicMax(reinterpret_cast<uint32_t*>(p.rowwise.amax + c.row + lane), largest);
  }
  if (p.columnwise.codes == nullptr || !c.inside) return;
  atomicMax(reinterpret_cast<uint32_t*>(p.columnwise.amax + c.column), c.amax());
}

// Quantizes with the per-tensor scales of storeTensorScales, or with the line amaxes of raiseLineAmaxes.
template <Wide type>
__global__ void __launch_bounds__(kWarps * 32) quantizeAny(const QuantizeNvfp4Params p, uint32_t across) {
  if (isNoop(p.noop)) return;
  const Column<type> c = columnOf<type>(p, across);
  if (c.row >= p.rows) return;
  uint32_t ofColumn = c.amax();
  uint32_t ofRow = 0;
  if (p.square) {
    for (int step = kBlock / 2; step > 0; step /= 2) {
      ofColumn = larger(ofColumn, __shfl_xor_sync(kFullMask, ofColumn, step));
    }
    ofRow = ofColumn;
  } else if (p.rowwise.codes != nullptr) {
    ofRow = rowAmax(c);
  }
  if (p.rowwise.codes != nullptr) quantizeRows<type>(p, c, ofRow);
  if (p.columnwise.codes != nullptr) quantizeColumns<type>(p, c, ofColumn);
}

// Thread blocks of quantizeAny per row of blocks, and in total.
inline uint32_t blocksAcross(const QuantizeNvfp4Params& p) {
  return static_cast<uint32_t>(ceilDivide(p.columns, kColumns));
}
inline uint32_t blocksOf(const QuantizeNvfp4Params& p) {
  return blocksAcross(p) * static_cast<uint32_t>(ceilDivide(p.rows, kWarps * kBlock));
}

}  // namespace nvfp4any

}  // namespace lockstep
