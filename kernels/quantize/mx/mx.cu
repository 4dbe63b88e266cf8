// MX quantization of bf16 with rounding to nearest. quantizeRows computes only a rowwise copy, in 1x32 blocks, eight elements of
// a row per lane. All other combinations use quantizeStrips, in which a warp quantizes a strip of 32 rows by 128 columns
// (strip.cuh). any.cu has the kernels for other types, stochastic rounding, and other scale rules and scalings.
#include "kernels/quantize/mx/mx.h"

#include <algorithm>

#include "kernels/core/scale-rules.cuh"
#include "kernels/device/device.cuh"
#include "kernels/quantize/mx/strip.cuh"
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/taken.h"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
// The number of columns of a block of quantizeRows. Each lane of a warp has 8 elements of a row.
constexpr int kSpan = 256;
constexpr int kRowsOfWarp = 4;
// The number of threads per block of quantizeStrips, and the number of rows that the block quantizes. Each warp has a strip of 32
// rows; the strips of a block are consecutive.
constexpr int kStripThreads = 128;
constexpr int kStripRows = kStripThreads / 32 * kBlock;

// Quantizes rowwise in 1x32 blocks. Four lanes share a block.
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
  // packs the maxima of two rows into one 32-bit word, so that one shuffle reduces both
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
    both = larger(both, __shfl_xor_sync(kFullMask, both, 1));
    largest[i / 2] = larger(both, __shfl_xor_sync(kFullMask, both, 2));
  }
  if (!inside) return;
  uint8_t* scales = static_cast<uint8_t*>(p.rowwise.scales.data) + scaleOffset(p.rowwise.scales, 0, column / kBlock);
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const uint32_t code = scaleOf<word>(i % 2 == 0 ? low(largest[i / 2]) : high(largest[i / 2]));
    const float m = e8m0Reciprocal(code);
    const uint32_t(&w)[4] = x[i].words;
    const uint32_t a = encodeNearest4<word>(low(w[0]) * m, high(w[0]) * m, low(w[1]) * m, high(w[1]) * m);
    const uint32_t b = encodeNearest4<word>(low(w[2]) * m, high(w[2]) * m, low(w[3]) * m, high(w[3]) * m);
    const int64_t index = first + i * p.columns;
    if constexpr (storageBits(word) == 8) {
      *reinterpret_cast<uint2*>(p.rowwise.codes + index) = make_uint2(a, b);
    } else {
      *reinterpret_cast<uint32_t*>(p.rowwise.codes + index / 2) = a | b << 16;
    }
    // the scale's offset is the sum of a line offset and a block offset
    if (lane % 4 == 0) scales[scaleOffset(p.rowwise.scales, firstRow + i, 0)] = static_cast<uint8_t>(code);
  }
}

// Writes the rowwise copy, the columnwise copy or both, and reads the input once.
template <uint32_t word>
__global__ void __launch_bounds__(kStripThreads, storageBits(word) == 8 ? 4 : 3)
    quantizeStrips(const QuantizeMxParams p) {
  if (isNoop(p.noop)) return;
  const uint32_t across = static_cast<uint32_t>(ceilDivide(p.columns, kStripColumns));
  Strip<uint2[kBlock]> s;
  s.column = int64_t{blockIdx.x % across} * kStripColumns + threadIdx.x % 32 * 4;
  s.row = int64_t{blockIdx.x / across} * kStripRows + threadIdx.x / 32 * kBlock;
  if (s.row >= p.rows) return;
  s.inside = s.column < p.columns;
  const uint16_t* from = static_cast<const uint16_t*>(p.x) + s.row * p.columns + s.column;
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    s.x[r] = s.inside ? *reinterpret_cast<const uint2*>(from + r * p.columns) : make_uint2(0, 0);
  }
  quantizeStrip<word>(p, s);
}

template <uint32_t word>
void quantize(const QuantizeMxParams& p, cudaStream_t stream) {
  if (p.columnwise.codes == nullptr && !p.square) {
    const int64_t tiles = ceilDivide(p.columns, kSpan) * (p.rows / kBlock);
    quantizeRows<word><<<static_cast<uint32_t>(tiles), kThreads, 0, stream>>>(p);
  } else {
    const int64_t tiles = ceilDivide(p.columns, kStripColumns) * ceilDivide(p.rows, kStripRows);
    quantizeStrips<word><<<static_cast<uint32_t>(tiles), kStripThreads, 0, stream>>>(p);
  }
}

}  // namespace

cudaError_t prepareQuantizeMx(const QuantizeMxParams& p, cudaStream_t stream) {
  if (!isTaken(p)) return cudaErrorInvalidValue;
  for (const ScalePlacement& scales : {p.rowwise.scales, p.columnwise.scales}) {
    if (cudaError_t error = clearPadding(scales, p.noop, stream); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launchQuantizeMx(const QuantizeMxParams& p, cudaStream_t stream) {
  if (cudaError_t error = prepareQuantizeMx(p, stream); error != cudaSuccess) return error;
  if (p.rows == 0 || p.columns == 0 || (p.rowwise.codes == nullptr && p.columnwise.codes == nullptr))
    return cudaSuccess;
  if (p.xType != Wide::kBf16 || p.stochastic || p.rule != ruleOf(p.word) || p.scaling != 0) {
    return launchQuantizeMxAny(p, stream);
  }
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
