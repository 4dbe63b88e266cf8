// Per-tensor FP8 quantization. Without a scale or amax argument, tensorAmax first computes the amax by an atomic maximum.
// quantizeFlat produces only a rowwise copy and treats the tensor as one-dimensional. quantizeTiled produces a columnwise copy or
// column sums. One block of it processes one 128 x 128 tile, whose codes it transposes in shared memory.
#include "kernels/quantize/tensor.gen.h"

#include <algorithm>

#include "kernels/core/scale.cuh"
#include "kernels/quantize/amax-out.cuh"
#include "kernels/quantize/code-tile.cuh"
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/scaler.cuh"
#include "kernels/quantize/taken.h"
#include "kernels/quantize/tile-sums.cuh"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
// The number of chunks of 16 bytes that a thread loads before it uses the first.
constexpr int kChunks = 4;

// Returns the larger of `largest` and the magnitudes in a chunk of 16 bytes. fmaxf ignores NaN.
template <Wide type>
__device__ float largestOf(const Bytes16& chunk, float largest) {
#pragma unroll
  for (int i = 0; i < TileThread<type>::kWidth; ++i) largest = fmaxf(largest, fabsf(element<type>(chunk, i)));
  return largest;
}

// Returns the index of this thread's first 16-byte chunk. Its next chunks are kThreads chunks apart.
__device__ int64_t firstChunk(int64_t block) { return block * (kThreads * kChunks) + threadIdx.x; }

// Loads this thread's 16-byte chunks. Chunks beyond the last one are 0.
__device__ void loadChunks(const void* x, int64_t chunks, int64_t first, Bytes16 (&loaded)[kChunks]) {
  const Bytes16* from = static_cast<const Bytes16*>(x);
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    loaded[i] = {};
    if (first + i * kThreads < chunks) loaded[i] = from[first + i * kThreads];
  }
}

// Returns the index of this thread's element after the last whole 16-byte chunk, or `count` if it has none.
template <Wide type>
__device__ int64_t leftover(int64_t count) {
  constexpr int kWidth = TileThread<type>::kWidth;
  return blockIdx.x == 0 && threadIdx.x < count % kWidth ? count / kWidth * kWidth + threadIdx.x : count;
}

template <Wide type>
__device__ float elementAt(const void* x, int64_t index) {
  return WideOf<type>::load(static_cast<const typename WideOf<type>::Storage*>(x)[index]);
}

template <Wide type>
__global__ void __launch_bounds__(kThreads) tensorAmax(const void* x, int64_t count, float* amaxOut) {
  Bytes16 chunks[kChunks];
  loadChunks(x, count / TileThread<type>::kWidth, firstChunk(blockIdx.x), chunks);
  float largest = 0;
#pragma unroll
  for (const Bytes16& chunk : chunks) largest = largestOf<type>(chunk, largest);
  if (const int64_t i = leftover<type>(count); i < count) largest = fmaxf(largest, fabsf(elementAt<type>(x, i)));
  raiseAmax(amaxOut, largest);
}

// Returns the scale of the tensor. The first thread of the grid also stores its inverse, 1 / scale, for each copy.
template <uint32_t formatWord>
__device__ float tensorScale(const QuantizeTensorParams& p) {
  const float largest = largestElement<formatWord>(p.word);
  const float scale =
      p.scale != nullptr ? *p.scale : scaleFromAmax(*p.amax, largest, p.pow2, p.epsilon, largestWide(Wide::kF32));
  if (blockIdx.x == 0 && threadIdx.x == 0) storeInverse(p, scale);
  return scale;
}

// Returns the factor of the tensor's elements. With `anyRule`, the scale rule may be any; otherwise it is kF32.
template <Wide type, uint32_t formatWord, bool anyRule>
__device__ float tensorFactor(const QuantizeTensorParams& p) {
  if constexpr (anyRule) {
    if (p.scale == nullptr) {
      const ScaleOf<true> scale =
          generalScale<type>(p, *p.amax, largestElement<formatWord>(p.word), largestWide(Wide::kF32));
      if (blockIdx.x == 0 && threadIdx.x == 0) storeScaleInv(p, scale.stored());
      return scale.factor;
    }
  }
  return tensorScale<formatWord>(p);
}

// Produces only a rowwise copy. The first block processes the end of the tensor, which the preceding amax pass leaves in the L2
// cache.
template <Wide type, uint32_t formatWord, bool anyRule>
__global__ void __launch_bounds__(kThreads) quantizeFlat(const QuantizeTensorParams p) {
  using Thread = TileThread<type>;
  if (isNoop(p.noop)) return;
  const int64_t count = p.rows * p.columns;
  const int64_t wholeChunks = count / Thread::kWidth;
  const int64_t first = firstChunk(gridDim.x - 1 - blockIdx.x);
  Bytes16 chunks[kChunks];
  loadChunks(p.x, wholeChunks, first, chunks);
  const float scale = tensorFactor<type, formatWord, anyRule>(p);
  const Scaler<type, anyRule> scaler{p.scaling};
  const bool wantsAmax = p.amaxOut != nullptr;
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int64_t index = first + i * kThreads;
    uint32_t codes[Thread::kWords];
    encodeChunk<type, formatWord>(chunks[i], [&](float x, int) { return scaler(x, scale); }, p.word, codes);
    if (index < wholeChunks) storeCodes(p.rowwise + index * Thread::kWidth, codes, Thread::kWidth, true);
    if (wantsAmax) largest = largestOf<type>(chunks[i], largest);
  }
  if (const int64_t i = leftover<type>(count); i < count) {
    const float x = elementAt<type>(p.x, i);
    p.rowwise[i] = static_cast<uint8_t>(encodeElement<formatWord>(scaler(x, scale), p.word));
    largest = fmaxf(largest, fabsf(x));
  }
  if (wantsAmax) raiseAmax(p.amaxOut, largest);
}

// Produces a columnwise copy, with or without a rowwise one, or any copies together with column sums (`withSums`). Each
// block processes one tile. The first block processes the last tile, which the amax pass leaves in the L2 cache.
template <Wide type, uint32_t formatWord, bool wholeChunks, bool withSums, bool anyRule>
__global__ void __launch_bounds__(kTileThreads, type == Wide::kF32        ? 2
                                                : withSums && wholeChunks ? 4
                                                                          : 3)
    quantizeTiled(const QuantizeTensorParams p) {
  using Thread = TileThread<type>;
  __shared__ SumsFirst<CodeTile, withSums> memory;
  CodeTile& tile = memory.rest;
  if (isNoop(p.noop)) return;
  const uint32_t tileColumns = static_cast<uint32_t>(ceilDivide(p.columns, kTile));
  const uint32_t block = gridDim.x - 1 - blockIdx.x;
  const TileOrigin origin = {p.rows, p.columns, int64_t{block / tileColumns} * kTile,
                             int64_t{block % tileColumns} * kTile};
  Bytes16 chunks[Thread::kRows];
  loadChunks<type, wholeChunks>(p.x, origin, chunks);
  const float scale = tensorFactor<type, formatWord, anyRule>(p);
  const Scaler<type, anyRule> scaler{p.scaling};
  if constexpr (withSums) sumTile<type>(memory.values, chunks, origin, p.chunkSums);
  float largest = 0;
#pragma unroll
  for (int pass = 0; pass < Thread::kPasses; ++pass) {
    uint32_t codes[4][Thread::kWords];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Bytes16& chunk = chunks[4 * pass + i];
      encodeChunk<type, formatWord>(chunk, [&](float x, int) { return scaler(x, scale); }, p.word, codes[i]);
      if (p.rowwise != nullptr) storeRow<type, wholeChunks>(p.rowwise, origin, 4 * pass + i, codes[i]);
      if (p.amaxOut != nullptr) largest = largestOf<type>(chunk, largest);
    }
    putTransposed<type>(tile, pass, codes);
  }
  __syncthreads();
  if (!withSums || p.columnwise != nullptr) storeColumns(p.columnwise, origin, tile);
  if (p.amaxOut != nullptr) raiseAmax(p.amaxOut, largest);
}

// The grid of kernels that treat the tensor as one-dimensional. An empty tensor also has one block, which writes 1 /
// scale.
template <Wide type>
uint32_t flatBlocks(int64_t count) {
  const int64_t chunks = count / TileThread<type>::kWidth;
  return static_cast<uint32_t>(std::max<int64_t>(ceilDivide(chunks, kThreads * kChunks), 1));
}

template <Wide type, uint32_t formatWord, bool withSums, bool anyRule>
void quantizeTiles(const QuantizeTensorParams& p, int64_t tiles, cudaStream_t stream) {
  const uint32_t blocks = static_cast<uint32_t>(tiles);
  if (p.columns % TileThread<type>::kWidth == 0) {
    quantizeTiled<type, formatWord, true, withSums, anyRule><<<blocks, kTileThreads, 0, stream>>>(p);
  } else {
    quantizeTiled<type, formatWord, false, withSums, anyRule><<<blocks, kTileThreads, 0, stream>>>(p);
  }
}

template <Wide type, uint32_t formatWord, bool anyRule>
void quantize(const QuantizeTensorParams& p, cudaStream_t stream) {
  const int64_t tiles = ceilDivide(p.rows, kTile) * ceilDivide(p.columns, kTile);
  if constexpr (type != Wide::kF32 && !anyRule) {
    if (p.chunkSums != nullptr && tiles > 0) return quantizeTiles<type, formatWord, true, false>(p, tiles, stream);
  }
  if (p.columnwise == nullptr || tiles == 0) {
    quantizeFlat<type, formatWord, anyRule><<<flatBlocks<type>(p.rows * p.columns), kThreads, 0, stream>>>(p);
  } else {
    quantizeTiles<type, formatWord, false, anyRule>(p, tiles, stream);
  }
}

template <Wide type, uint32_t formatWord>
void quantize(const QuantizeTensorParams& p, cudaStream_t stream) {
  if (p.rule == ScaleRule::kF32) {
    quantize<type, formatWord, false>(p, stream);
  } else {
    quantize<type, formatWord, true>(p, stream);
  }
}

template <Wide type>
void quantize(const QuantizeTensorParams& p, cudaStream_t stream) {
  switch (p.word) {
    case format::kE4m3:
      return quantize<type, format::kE4m3>(p, stream);
    case format::kE5m2:
      return quantize<type, format::kE5m2>(p, stream);
    default:
      return quantize<type, kAnyWord, true>(p, stream);
  }
}

}  // namespace

cudaError_t launchQuantizeTensor(const QuantizeTensorParams& params, cudaStream_t stream) {
  QuantizeTensorParams p = params;
  if (!isTaken(p)) return cudaErrorInvalidValue;
  const bool needsAmax = p.scale == nullptr && p.amax == nullptr;
  if (needsAmax) {
    if (cudaError_t error = cudaMemsetAsync(p.workspace, 0, sizeof(float), stream); error != cudaSuccess) return error;
    p.amax = p.workspace;
  }
  withWide(p.xType, [&](auto type) {
    constexpr Wide kType = type.value;
    const int64_t count = p.rows * p.columns;
    if (needsAmax) tensorAmax<kType><<<flatBlocks<kType>(count), kThreads, 0, stream>>>(p.x, count, p.workspace);
    quantize<kType>(p, stream);
  });
  return cudaGetLastError();
}

}  // namespace lockstep
