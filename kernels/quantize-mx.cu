#include "kernels/quantize-mx.h"

#include <algorithm>

#include "kernels/device.cuh"
#include "kernels/noop.cuh"
#include "kernels/pair.cuh"
#include "kernels/scale.cuh"

namespace lockstep {

namespace {

constexpr uint32_t kWarp = 0xffffffffu;
constexpr int kBlock = 32;
constexpr int kThreads = 256;
// What a thread block of quantizeRows covers: a warp has 8 elements a lane of one row at a time.
constexpr int kSpan = 256;
constexpr int kRowsOfWarp = 4;
// What a thread block of quantizeBlocks covers: a warp has 4 columns a lane of 32 rows.
constexpr int kStripThreads = 128;
constexpr int kStripColumns = 128;
constexpr int kStripRows = kStripThreads / 32 * kBlock;

// Two values of bf16, by lanes.
__device__ uint32_t raise(uint32_t largest, uint32_t pair) { return raiseToPair<Wide::kBf16>(largest, pair); }
__device__ uint32_t larger(uint32_t a, uint32_t b) { return maxOfPairs<Wide::kBf16>(a, b); }
__device__ float low(uint32_t pair) { return lowOf<Wide::kBf16>(pair); }
__device__ float high(uint32_t pair) { return highOf<Wide::kBf16>(pair); }

// MXFP8 rounds its scales up, the others down (numerics.md 4.1).
__host__ __device__ constexpr ScaleRule ruleOf(uint32_t word) {
  return magnitudeBits(word) == 7 ? ScaleRule::kE8m0Up : ScaleRule::kE8m0Floor;
}

template <uint32_t word>
__device__ uint32_t scaleOf(float amax) {
  constexpr float kReciprocal = 1.0f / decode(maxCode(word), word);
  constexpr int kMaxExponent = static_cast<int>(maxCode(word) >> mantissaBits(word)) - exponentBias(word);
  return ruleOf(word) == ScaleRule::kE8m0Up ? e8m0Up(amax * kReciprocal) : e8m0Floor(amax, kMaxExponent);
}

// Rowwise 1x32 blocks; four lanes share one.
template <uint32_t word>
__global__ void __launch_bounds__(kThreads) quantizeRows(const QuantizeMxParams p) {
  if (isNoop(p.noop)) return;
  const uint32_t across = static_cast<uint32_t>(ceilDivide(p.columns, kSpan));
  const int lane = threadIdx.x % 32;
  const int64_t column = int64_t{blockIdx.x % across} * kSpan + lane * 8;
  const int64_t firstRow = int64_t{blockIdx.x / across} * kBlock + threadIdx.x / 32 * kRowsOfWarp;
  const bool inside = column < p.columns;
  const int64_t first = firstRow * p.columns + column;
  const uint16_t* from = static_cast<const uint16_t*>(p.x) + first;
  Bytes16 x[kRowsOfWarp] = {};
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    if (inside) x[i] = *reinterpret_cast<const Bytes16*>(from + i * p.columns);
  }
  // two rows at a time, one a lane of the pair
  uint32_t largest[kRowsOfWarp / 2];
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; i += 2) {
    uint32_t a = 0;
    uint32_t b = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      a = raise(a, x[i].words[j]);
      b = raise(b, x[i + 1].words[j]);
    }
    uint32_t both = larger(lowLanes(a, b), highLanes(a, b));
    both = larger(both, __shfl_xor_sync(kWarp, both, 1));
    largest[i / 2] = larger(both, __shfl_xor_sync(kWarp, both, 2));
  }
  if (!inside) return;
  uint8_t* scales = static_cast<uint8_t*>(p.rowwiseScales.data) + scaleOffset(p.rowwiseScales, 0, column / kBlock);
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const uint32_t code = scaleOf<word>(i % 2 == 0 ? low(largest[i / 2]) : high(largest[i / 2]));
    const float m = e8m0Reciprocal(code);
    const uint32_t(&w)[4] = x[i].words;
    const uint32_t a = encodeNearest4<word>(low(w[0]) * m, high(w[0]) * m, low(w[1]) * m, high(w[1]) * m);
    const uint32_t b = encodeNearest4<word>(low(w[2]) * m, high(w[2]) * m, low(w[3]) * m, high(w[3]) * m);
    const int64_t index = first + i * p.columns;
    if constexpr (storageBits(word) == 8) {
      *reinterpret_cast<uint2*>(p.rowwise + index) = make_uint2(a, b);
    } else {
      *reinterpret_cast<uint32_t*>(p.rowwise + index / 2) = a | b << 16;
    }
    // an offset is the sum of a line's and a block's
    if (lane % 4 == 0) scales[scaleOffset(p.rowwiseScales, firstRow + i, 0)] = static_cast<uint8_t>(code);
  }
}

// The 32 rows of four columns that one lane has.
struct Strip {
  uint2 x[kBlock];
  int64_t row;
  int64_t column;
  bool inside;
};

template <uint32_t word>
__device__ uint32_t encodeRow(const uint2& x, const float (&m)[4]) {
  return encodeNearest4<word>(low(x.x) * m[0], high(x.x) * m[1], low(x.y) * m[2], high(x.y) * m[3]);
}

// Codes down a strip that are stored as it lies.
template <uint32_t word>
__device__ void storeStrip(const Strip& s, uint8_t* data, int64_t columns, const float (&m)[4]) {
  uint8_t* to = data + s.row * columns + s.column;
#pragma unroll
  for (int r = 0; r < kBlock; ++r) *reinterpret_cast<uint32_t*>(to + r * columns) = encodeRow<word>(s.x[r], m);
}

// Codes of 4 bits down a strip, stored transposed: 16 bytes a column.
template <uint32_t word>
__device__ void storeTransposed(const Strip& s, uint8_t* data, int64_t rows, const float (&m)[4]) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const auto x = [&](int r) {
      const uint32_t pair = c < 2 ? s.x[r].x : s.x[r].y;
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

// The rowwise copy of a strip; eight lanes share a block. `tile` is the amax of a square block, in both lanes.
template <uint32_t word>
__device__ void quantizeStripRows(const QuantizeMxParams& p, const Strip& s, uint32_t tile) {
  const int lane = threadIdx.x % 32;
  const int64_t first = s.row * p.columns + s.column;
  // the scales of every eighth row, from the lane's own on
  uint32_t kept[kBlock / 8];
#pragma unroll
  for (int r = 0; r < kBlock; r += 2) {
    uint32_t both = tile;
    if (!p.square) {
      const uint32_t a = raise(s.x[r].x & 0x7fff7fffu, s.x[r].y);
      const uint32_t b = raise(s.x[r + 1].x & 0x7fff7fffu, s.x[r + 1].y);
      both = larger(lowLanes(a, b), highLanes(a, b));
      both = larger(both, __shfl_xor_sync(kWarp, both, 1));
      both = larger(both, __shfl_xor_sync(kWarp, both, 2));
      both = larger(both, __shfl_xor_sync(kWarp, both, 4));
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
        *reinterpret_cast<uint32_t*>(p.rowwise + index) = codes;
      } else {
        *reinterpret_cast<uint16_t*>(p.rowwise + index / 2) = static_cast<uint16_t>(codes);
      }
    }
  }
  if (!s.inside) return;
  uint8_t* scales = static_cast<uint8_t*>(p.rowwiseScales.data);
#pragma unroll
  for (int i = 0; i < kBlock / 8; ++i) {
    const int64_t at = scaleOffset(p.rowwiseScales, s.row + 8 * i + lane % 8, s.column / kBlock);
    scales[at] = static_cast<uint8_t>(kept[i]);
  }
}

// Any copies, from one read of the input.
template <uint32_t word>
__global__ void __launch_bounds__(kStripThreads, storageBits(word) == 8 ? 4 : 3)
    quantizeStrips(const QuantizeMxParams p) {
  if (isNoop(p.noop)) return;
  const uint32_t across = static_cast<uint32_t>(ceilDivide(p.columns, kStripColumns));
  Strip s;
  s.column = int64_t{blockIdx.x % across} * kStripColumns + threadIdx.x % 32 * 4;
  s.row = int64_t{blockIdx.x / across} * kStripRows + threadIdx.x / 32 * kBlock;
  if (s.row >= p.rows) return;
  s.inside = s.column < p.columns;
  const uint16_t* from = static_cast<const uint16_t*>(p.x) + s.row * p.columns + s.column;
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    s.x[r] = s.inside ? *reinterpret_cast<const uint2*>(from + r * p.columns) : make_uint2(0, 0);
  }
  uint32_t largest[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    largest[0] = raise(largest[0], s.x[r].x);
    largest[1] = raise(largest[1], s.x[r].y);
  }
  if (p.square) {
    uint32_t tile = maxOfLanes<Wide::kBf16>(larger(largest[0], largest[1]));
#pragma unroll
    for (int step = 1; step < 8; step *= 2) tile = larger(tile, __shfl_xor_sync(kWarp, tile, step));
    largest[0] = tile;
    largest[1] = tile;
  }
  if (p.columnwise != nullptr && s.inside) {
    float m[4];
    uint8_t* scales = static_cast<uint8_t*>(p.columnwiseScales.data);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const uint32_t code = scaleOf<word>(c % 2 == 0 ? low(largest[c / 2]) : high(largest[c / 2]));
      m[c] = e8m0Reciprocal(code);
      scales[scaleOffset(p.columnwiseScales, s.column + c, s.row / kBlock)] = static_cast<uint8_t>(code);
    }
    if constexpr (storageBits(word) == 8) {
      storeStrip<word>(s, p.columnwise, p.columns, m);
    } else {
      storeTransposed<word>(s, p.columnwise, p.rows, m);
    }
  }
  if (p.rowwise != nullptr) quantizeStripRows<word>(p, s, largest[0]);
}

template <uint32_t word>
void quantize(const QuantizeMxParams& p, cudaStream_t stream) {
  if (p.columnwise == nullptr && !p.square) {
    const int64_t tiles = ceilDivide(p.columns, kSpan) * (p.rows / kBlock);
    quantizeRows<word><<<static_cast<uint32_t>(tiles), kThreads, 0, stream>>>(p);
  } else {
    const int64_t tiles = ceilDivide(p.columns, kStripColumns) * ceilDivide(p.rows, kStripRows);
    quantizeStrips<word><<<static_cast<uint32_t>(tiles), kStripThreads, 0, stream>>>(p);
  }
}

// Whether a copy, if there is one, has a scale for each of `lines` lines of `blocks` blocks.
bool fits(const void* copy, const ScalePlacement& scales, int64_t lines, int64_t length) {
  return copy == nullptr || (scales.lines == lines && scales.blocks == length / kBlock);
}

}  // namespace

cudaError_t launchQuantizeMx(const QuantizeMxParams& p, cudaStream_t stream) {
  const bool isRule = p.rule == ScaleRule::kE8m0Up || p.rule == ScaleRule::kE8m0Floor;
  if (p.rows % kBlock != 0 || p.columns % kBlock != 0 || !isSigned(p.word) || storageBits(p.word) > 8 || !isRule ||
      !fits(p.rowwise, p.rowwiseScales, p.rows, p.columns) ||
      !fits(p.columnwise, p.columnwiseScales, p.columns, p.rows)) {
    return cudaErrorInvalidValue;
  }
  for (const ScalePlacement& scales : {p.rowwiseScales, p.columnwiseScales}) {
    if (cudaError_t error = clearPadding(scales, p.noop, stream); error != cudaSuccess) return error;
  }
  if (p.rows == 0 || p.columns == 0 || (p.rowwise == nullptr && p.columnwise == nullptr)) return cudaSuccess;
  if (p.type != Wide::kBf16 || p.stochastic || p.rule != ruleOf(p.word)) return launchQuantizeMxAny(p, stream);
  switch (p.word) {
    case format::kE4m3:
      quantize<format::kE4m3>(p, stream);
      break;
    case format::kE5m2:
      quantize<format::kE5m2>(p, stream);
      break;
    case format::kE2m3:
      quantize<format::kE2m3>(p, stream);
      break;
    case format::kE3m2:
      quantize<format::kE3m2>(p, stream);
      break;
    case format::kE2m1:
      quantize<format::kE2m1>(p, stream);
      break;
    default:
      return launchQuantizeMxAny(p, stream);
  }
  return cudaGetLastError();
}

}  // namespace lockstep
