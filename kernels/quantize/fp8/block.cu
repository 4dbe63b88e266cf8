// Block-scaled FP8 quantization. A thread block quantizes one 128 x 128 tile. It loads the tile into registers once, reduces row
// amaxes by warp shuffles and column amaxes through shared memory, and then encodes both copies.
#include "kernels/quantize/block.gen.h"

#include "kernels/core/scale.cuh"
#include "kernels/quantize/code-tile.cuh"
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/scaler.cuh"
#include "kernels/quantize/taken.h"
#include "kernels/quantize/tile-sums.cuh"

namespace lockstep {

namespace {

// Shared memory of a tile: for each warp the amaxes of its part of each column, then the factors of the columns.
struct Shared {
  alignas(16) float columns[kTileWarps][kTile];
  alignas(16) float factors[kTile];
  float warps[kTileWarps];
  CodeTile tile;
};

template <Wide type, uint32_t formatWord, bool anyRule>
__device__ ScaleOf<anyRule> blockScale(const QuantizeBlockParams& p, float amax) {
  const float largest = largestElement<formatWord>(p.word);
  if constexpr (anyRule) {
    return generalScale<type>(p, amax, largest, largestWide(type));
  } else {
    return {scaleFromAmax(amax, largest, p.pow2, p.epsilon, largestWide(p.xType))};
  }
}

// Stores the scale if the block is inside the tensor.
template <bool anyRule>
__device__ void storeScale(const ScalePlacement& to, int64_t line, int64_t block, const ScaleOf<anyRule>& scale) {
  if (line < to.lines && block < to.blocks) static_cast<float*>(to.data)[scaleOffset(to, line, block)] = scale.stored();
}

// One step of a butterfly reduction that halves `count` maxima. Two lanes whose indices differ in the bit `mask` exchange values.
// The lower lane keeps the maxima of both lanes for the first half of the values, the upper lane for the second half.
template <int count>
__device__ void exchangeMaxima(float* values, int mask) {
  const bool upper = threadIdx.x & mask;
#pragma unroll
  for (int i = 0; i < count / 2; ++i) {
    const float ownMaximum = upper ? values[i + count / 2] : values[i];
    const float sentMaximum = upper ? values[i] : values[i + count / 2];
    values[i] = fmaxf(ownMaximum, __shfl_xor_sync(kFullMask, sentMaximum, mask));
  }
}

// Returns the amax of row lane / 2 of the thread's rows, reduced over all threads that share the rows. `values` holds
// this thread's maxima of its rows.
template <int rows>
__device__ float rowAmax(float (&values)[rows]) {
  exchangeMaxima<rows>(values, rows);
  exchangeMaxima<rows / 2>(values, rows / 2);
  exchangeMaxima<rows / 4>(values, rows / 4);
  if constexpr (rows == 16) exchangeMaxima<2>(values, 2);
  return fmaxf(values[0], __shfl_xor_sync(kFullMask, values[0], 1));
}

// Returns the maximum over the warps of the block. Synchronises the block.
__device__ float tileAmax(Shared& shared, float largest) {
  const uint32_t warpAmax = __reduce_max_sync(kFullMask, bitsOf(largest));
  if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = floatOf(warpAmax);
  __syncthreads();
  float largestOfTile = 0;
#pragma unroll
  for (int i = 0; i < kTileWarps; ++i) largestOfTile = fmaxf(largestOfTile, shared.warps[i]);
  return largestOfTile;
}

// Writes the warp's amaxes of its columns to shared memory, for columnScales. `values` holds the thread's maxima of its
// columns.
template <Wide type>
__device__ void shareColumns(Shared& shared, float (&values)[TileThread<type>::kWidth]) {
  using Thread = TileThread<type>;
  int column = Thread::column();
  if constexpr (Thread::kWidth == 8) {
    exchangeMaxima<8>(values, 16);
    if (threadIdx.x & 16) column += 4;
  }
  *reinterpret_cast<float4*>(shared.columns[threadIdx.x / 32] + column) =
      make_float4(values[0], values[1], values[2], values[3]);
}

// Computes the scales of the tile's columns from the amaxes in shared memory, stores them, and leaves the factors of the
// elements in `shared.factors`. Synchronises the block.
template <Wide type, uint32_t formatWord, bool anyRule>
__device__ void columnScales(Shared& shared, const QuantizeBlockParams& p, const TileOrigin& origin) {
  __syncthreads();
  const int column = threadIdx.x;
  if (column < kTile) {
    float amax = 0;
#pragma unroll
    for (int i = 0; i < kTileWarps; ++i) amax = fmaxf(amax, shared.columns[i][column]);
    const auto scale = blockScale<type, formatWord, anyRule>(p, amax);
    shared.factors[column] = scale.factor;
    storeScale(p.columnwise.scales, origin.column + column, origin.row / kTile, scale);
  }
  __syncthreads();
}

// Computes and stores the scale of one row, the thread's row number lane / 2, or of the whole tile if blocks are
// square. Returns the factor of its elements.
template <Wide type, uint32_t formatWord, bool anyRule>
__device__ float rowScales(Shared& shared, const QuantizeBlockParams& p, const TileOrigin& origin,
                           float (&maxima)[TileThread<type>::kRows]) {
  using Thread = TileThread<type>;
  if (!p.square && p.rowwise.codes == nullptr) return 1;
  const float amax = rowAmax(maxima);
  const int64_t block = origin.column / kTile;
  if (p.square) {
    const auto scale = blockScale<type, formatWord, anyRule>(p, tileAmax(shared, amax));
    if (threadIdx.x == 0) {
      if (p.rowwise.codes != nullptr) storeScale(p.rowwise.scales, origin.row / kTile, block, scale);
      if (p.columnwise.codes != nullptr) storeScale(p.columnwise.scales, block, origin.row / kTile, scale);
    }
    return scale.factor;
  }
  const auto scale = blockScale<type, formatWord, anyRule>(p, amax);
  if (threadIdx.x % 2 == 0) storeScale(p.rowwise.scales, origin.row + Thread::row(Thread::lane() / 2), block, scale);
  return scale.factor;
}

// A thread block quantizes one tile, which it reads once into registers. It encodes the two copies one after the other.
template <Wide type, uint32_t formatWord, bool wholeChunks, bool withSums, bool anyRule>
__global__ void __launch_bounds__(kTileThreads, type == Wide::kF32 ? 2 : 3) quantizeTiles(const QuantizeBlockParams p) {
  using Thread = TileThread<type>;
  __shared__ SumsFirst<Shared, withSums> memory;
  Shared& shared = memory.rest;
  if (isNoop(p.noop)) return;
  const uint32_t tileColumns = static_cast<uint32_t>(ceilDivide(p.columns, kTile));
  const TileOrigin origin = {p.rows, p.columns, int64_t{blockIdx.x / tileColumns} * kTile,
                             int64_t{blockIdx.x % tileColumns} * kTile};
  Bytes16 chunks[Thread::kRows];
  loadChunks<type, wholeChunks>(p.x, origin, chunks);
  if constexpr (withSums) sumTile<type>(memory.values, chunks, origin, p.chunkSums);

  // fmaxf ignores NaN
  float rowMaxima[Thread::kRows] = {};
  float columnMaxima[Thread::kWidth] = {};
#pragma unroll
  for (int i = 0; i < Thread::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < Thread::kWidth; ++j) {
      const float magnitude = fabsf(element<type>(chunks[i], j));
      rowMaxima[i] = fmaxf(rowMaxima[i], magnitude);
      columnMaxima[j] = fmaxf(columnMaxima[j], magnitude);
    }
  }
  const bool columnBlocks = p.columnwise.codes != nullptr && !p.square;
  if (columnBlocks) shareColumns<type>(shared, columnMaxima);

  const Scaler<type, anyRule> scaler{p.scaling};
  const float factor = rowScales<type, formatWord, anyRule>(shared, p, origin, rowMaxima);
  if (p.rowwise.codes != nullptr) {
#pragma unroll
    for (int i = 0; i < Thread::kRows; ++i) {
      const float rowFactor = __shfl_sync(kFullMask, factor, 2 * i, Thread::kLanes);
      uint32_t codes[Thread::kWords];
      encodeChunk<type, formatWord>(chunks[i], [&](float x, int) { return scaler(x, rowFactor); }, p.word, codes);
      storeRow<type, wholeChunks>(p.rowwise.codes, origin, i, codes);
    }
  }
  if (p.columnwise.codes == nullptr) return;

  if (columnBlocks) columnScales<type, formatWord, anyRule>(shared, p, origin);
  float factors[Thread::kWidth];
#pragma unroll
  for (int j = 0; j < Thread::kWidth; ++j) factors[j] = p.square ? factor : shared.factors[Thread::column() + j];
#pragma unroll
  for (int pass = 0; pass < Thread::kPasses; ++pass) {
    uint32_t codes[4][Thread::kWords];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      encodeChunk<type, formatWord>(
          chunks[4 * pass + i], [&](float x, int j) { return scaler(x, factors[j]); }, p.word, codes[i]);
      if (p.inPlace) storeRow<type, wholeChunks>(p.columnwise.codes, origin, 4 * pass + i, codes[i]);
    }
    if (!p.inPlace) putTransposed<type>(shared.tile, pass, codes);
  }
  if (p.inPlace) return;
  __syncthreads();
  storeColumns(p.columnwise.codes, origin, shared.tile);
}

template <Wide type, uint32_t formatWord, bool withSums, bool anyRule>
void quantize(const QuantizeBlockParams& p, uint32_t tiles, cudaStream_t stream) {
  if (p.columns % TileThread<type>::kWidth == 0) {
    quantizeTiles<type, formatWord, true, withSums, anyRule><<<tiles, kTileThreads, 0, stream>>>(p);
  } else {
    quantizeTiles<type, formatWord, false, withSums, anyRule><<<tiles, kTileThreads, 0, stream>>>(p);
  }
}

template <Wide type, uint32_t formatWord>
void quantize(const QuantizeBlockParams& p, uint32_t tiles, cudaStream_t stream) {
  if (p.rule != ScaleRule::kF32) return quantize<type, formatWord, false, true>(p, tiles, stream);
  if constexpr (type != Wide::kF32) {
    if (p.chunkSums != nullptr) return quantize<type, formatWord, true, false>(p, tiles, stream);
  }
  quantize<type, formatWord, false, false>(p, tiles, stream);
}

template <Wide type>
void quantize(const QuantizeBlockParams& p, uint32_t tiles, cudaStream_t stream) {
  switch (p.word) {
    case format::kE4m3:
      return quantize<type, format::kE4m3>(p, tiles, stream);
    case format::kE5m2:
      return quantize<type, format::kE5m2>(p, tiles, stream);
    default:
      return quantize<type, kAnyWord, false, true>(p, tiles, stream);
  }
}

}  // namespace

cudaError_t launchQuantizeBlock(const QuantizeBlockParams& p, cudaStream_t stream) {
  if (!isTaken(p)) return cudaErrorInvalidValue;
  for (const ScalePlacement* scales : {&p.rowwise.scales, &p.columnwise.scales}) {
    if (cudaError_t error = clearPadding(*scales, p.noop, stream); error != cudaSuccess) return error;
  }
  const int64_t tiles = ceilDivide(p.rows, kTile) * ceilDivide(p.columns, kTile);
  if (tiles == 0) return cudaSuccess;
  withWide(p.xType, [&](auto type) { quantize<type.value>(p, static_cast<uint32_t>(tiles), stream); });
  return cudaGetLastError();
}

}  // namespace lockstep
