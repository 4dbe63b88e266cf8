// FP8 quantization with one scale per row and per column, in two passes over tiles of 128 x 128 elements. The first computes the
// amaxes of rows and columns; the second encodes both copies. A maximum does not depend on the order, so tiles combine their
// amaxes by atomic maxima on the bits.
#include "kernels/quantize/row.gen.h"

#include "kernels/core/scale.cuh"
#include "kernels/quantize/code-tile.cuh"
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/scaler.cuh"
#include "kernels/quantize/taken.h"

namespace lockstep {

namespace {

__device__ inline TileOrigin tileOf(const QuantizeRowParams& p) {
  const uint32_t tileColumns = static_cast<uint32_t>(ceilDivide(p.columns, kTile));
  return {p.rows, p.columns, int64_t{blockIdx.x / tileColumns} * kTile, int64_t{blockIdx.x % tileColumns} * kTile};
}

__device__ inline uint32_t* columnAmaxes(const QuantizeRowParams& p) {
  return p.workspace + (p.rowwise.codes == nullptr ? 0 : p.rows);
}

template <Wide type, bool wholeChunks>
__global__ void __launch_bounds__(kTileThreads) raiseAmaxes(const QuantizeRowParams p) {
  using Thread = TileThread<type>;
  __shared__ uint32_t rows[kTile];
  __shared__ uint32_t columns[kTile];
  if (isNoop(p.noop)) return;
  const int line = threadIdx.x % kTile;
  (threadIdx.x < kTile ? rows : columns)[line] = 0;
  const TileOrigin origin = tileOf(p);
  Bytes16 chunks[Thread::kRows];
  loadChunks<type, wholeChunks>(p.x, origin, chunks);
  __syncthreads();

  // fmaxf ignores NaN; non-negative floats have the same order as their bits
  float ofColumns[Thread::kWidth] = {};
#pragma unroll
  for (int i = 0; i < Thread::kRows; ++i) {
    float ofRow = 0;
#pragma unroll
    for (int j = 0; j < Thread::kWidth; ++j) {
      const float magnitude = fabsf(element<type>(chunks[i], j));
      ofRow = fmaxf(ofRow, magnitude);
      ofColumns[j] = fmaxf(ofColumns[j], magnitude);
    }
    if (p.rowwise.codes != nullptr) atomicMax(rows + Thread::row(i), bitsOf(ofRow));
  }
  if (p.columnwise.codes != nullptr) {
#pragma unroll
    for (int j = 0; j < Thread::kWidth; ++j) atomicMax(columns + Thread::column() + j, bitsOf(ofColumns[j]));
  }
  __syncthreads();
  if (threadIdx.x < kTile) {
    if (p.rowwise.codes != nullptr && origin.row + line < p.rows)
      atomicMax(p.workspace + origin.row + line, rows[line]);
  } else if (p.columnwise.codes != nullptr && origin.column + line < p.columns) {
    atomicMax(columnAmaxes(p) + origin.column + line, columns[line]);
  }
}

template <Wide type, uint32_t formatWord, bool anyRule>
__device__ ScaleOf<anyRule> lineScale(const QuantizeRowParams& p, uint32_t bits) {
  const float largest = largestElement<formatWord>(p.word);
  float amax = floatOf(bits);
  if (p.limit > 0) amax = fminf(amax, rounded<type>(p.limit));
  if constexpr (anyRule) {
    return generalScale<type>(p, amax, largest, largestWide(type));
  } else {
    return {scaleFromAmax(amax, largest, p.pow2, p.epsilon, largestWide(p.xType))};
  }
}

struct Shared {
  float rows[kTile];
  alignas(16) float columns[kTile];
  CodeTile tile;
};

// Writes the factors of the tile's rows and columns to shared memory. The first tile of a line also stores the line's scale.
// Synchronises the block.
template <Wide type, uint32_t formatWord, bool anyRule>
__device__ void lineScales(Shared& shared, const QuantizeRowParams& p, const TileOrigin& origin) {
  const int line = threadIdx.x % kTile;
  if (threadIdx.x < kTile) {
    const int64_t row = origin.row + line;
    if (p.rowwise.codes != nullptr && row < p.rows) {
      const auto scale = lineScale<type, formatWord, anyRule>(p, p.workspace[row]);
      shared.rows[line] = scale.factor;
      if (origin.column == 0) p.rowwise.scales[row] = scale.stored();
    }
  } else {
    const int64_t column = origin.column + line;
    if (p.columnwise.codes != nullptr && column < p.columns) {
      const auto scale = lineScale<type, formatWord, anyRule>(p, columnAmaxes(p)[column]);
      shared.columns[line] = scale.factor;
      if (origin.row == 0) p.columnwise.scales[column] = scale.stored();
    }
  }
  __syncthreads();
}

template <Wide type, uint32_t formatWord, bool wholeChunks, bool anyRule>
__global__ void __launch_bounds__(kTileThreads) encodeLines(const QuantizeRowParams p) {
  using Thread = TileThread<type>;
  __shared__ Shared shared;
  if (isNoop(p.noop)) return;
  const TileOrigin origin = tileOf(p);
  Bytes16 chunks[Thread::kRows];
  loadChunks<type, wholeChunks>(p.x, origin, chunks);
  lineScales<type, formatWord, anyRule>(shared, p, origin);

  const Scaler<type, anyRule> scaler{p.scaling};
  if (p.rowwise.codes != nullptr) {
#pragma unroll
    for (int i = 0; i < Thread::kRows; ++i) {
      const float factor = shared.rows[Thread::row(i)];
      uint32_t codes[Thread::kWords];
      encodeChunk<type, formatWord>(chunks[i], [&](float x, int) { return scaler(x, factor); }, p.word, codes);
      storeRow<type, wholeChunks>(p.rowwise.codes, origin, i, codes);
    }
  }
  if (p.columnwise.codes == nullptr) return;
  float factors[Thread::kWidth];
#pragma unroll
  for (int j = 0; j < Thread::kWidth; ++j) factors[j] = shared.columns[Thread::column() + j];
#pragma unroll
  for (int pass = 0; pass < Thread::kPasses; ++pass) {
    uint32_t codes[4][Thread::kWords];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      encodeChunk<type, formatWord>(
          chunks[4 * pass + i], [&](float x, int j) { return scaler(x, factors[j]); }, p.word, codes[i]);
    putTransposed<type>(shared.tile, pass, codes);
  }
  __syncthreads();
  storeColumns(p.columnwise.codes, origin, shared.tile);
}

template <Wide type, uint32_t formatWord, bool wholeChunks>
void encode(const QuantizeRowParams& p, uint32_t tiles, cudaStream_t stream) {
  if (p.rule != ScaleRule::kF32) {
    encodeLines<type, formatWord, wholeChunks, true><<<tiles, kTileThreads, 0, stream>>>(p);
  } else {
    encodeLines<type, formatWord, wholeChunks, false><<<tiles, kTileThreads, 0, stream>>>(p);
  }
}

template <Wide type, bool wholeChunks>
void quantize(const QuantizeRowParams& p, uint32_t tiles, cudaStream_t stream) {
  raiseAmaxes<type, wholeChunks><<<tiles, kTileThreads, 0, stream>>>(p);
  switch (p.word) {
    case format::kE4m3:
      return encode<type, format::kE4m3, wholeChunks>(p, tiles, stream);
    case format::kE5m2:
      return encode<type, format::kE5m2, wholeChunks>(p, tiles, stream);
    default:
      encodeLines<type, kAnyWord, wholeChunks, true><<<tiles, kTileThreads, 0, stream>>>(p);
  }
}

}  // namespace

cudaError_t launchQuantizeRow(const QuantizeRowParams& p, cudaStream_t stream) {
  if (!isTaken(p)) return cudaErrorInvalidValue;
  const int64_t tiles = ceilDivide(p.rows, kTile) * ceilDivide(p.columns, kTile);
  const int64_t lines = (p.rowwise.codes == nullptr ? 0 : p.rows) + (p.columnwise.codes == nullptr ? 0 : p.columns);
  if (tiles == 0 || lines == 0) return cudaSuccess;
  const cudaError_t error = cudaMemsetAsync(p.workspace, 0, lines * sizeof(uint32_t), stream);
  if (error != cudaSuccess) return error;
  withWide(p.xType, [&](auto type) {
    const uint32_t count = static_cast<uint32_t>(tiles);
    if (p.columns % TileThread<type.value>::kWidth == 0) {
      quantize<type.value, true>(p, count, stream);
    } else {
      quantize<type.value, false>(p, count, stream);
    }
  });
  return cudaGetLastError();
}

}  // namespace lockstep
