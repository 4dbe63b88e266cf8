#include "kernels/quantize-nvfp4.h"

#include "kernels/hadamard.cuh"
#include "kernels/noop.cuh"
#include "kernels/nvfp4-codes.cuh"

namespace lockstep {

namespace {

constexpr uint32_t kWarp = 0xffffffffu;

// The largest of the values of lanes that differ in bits `first` to 16 of their number.
__device__ float maxAcross(float value, int first) {
  uint32_t largest = bitsOf(value);
  for (int step = 16; step >= first; step /= 2) largest = max(largest, __shfl_xor_sync(kWarp, largest, step));
  return floatOf(largest);
}

template <Wide type, bool stochastic>
__device__ uint2 codesOf(const Fp4Block<type>& x, float m, int64_t index, uint32_t copy, const RandomSource& random) {
  if constexpr (stochastic) {
    return encodeFp4(x, m, index, copy, random);
  } else {
    return encodeFp4(x, m);
  }
}

template <Wide type, bool stochastic>
__device__ void quantizeRows(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Origin& at,
                             const Nvfp4Levels& levels) {
  const Fp4Scales stored(p.rowwise.scales, at.row, at.column / kFp4Block);
  const Fp4RowItem item;
  const int64_t row = at.row + item.row;
  const int64_t column = at.column + item.block * kFp4Block;
  const int64_t index = row * p.columns + column;
  uint2 codes[2];
  TwoLevel scales[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Fp4Block<type> x = tile.rowBlock(item.row, item.block + i);
    float amax = x.amax();
    if (p.square) amax = maxAcross(amax, 2);
    scales[i] = twoLevel(amax, levels.encode, levels.decode);
    codes[i] = codesOf<type, stochastic>(x, scales[i].multiplier, index + i * kFp4Block, 0, p.random);
  }
  if (row >= p.rows || column >= p.columns) return;
  const bool both = column + kFp4Block < p.columns;
  storeFp4(p.rowwise.data, index, codes, both);
  stored.store(item.row, item.block, scales[0].code);
  if (both) stored.store(item.row, item.block + 1, scales[1].code);
}

template <Wide type, bool stochastic, bool transforms>
__device__ void quantizeColumns(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Origin& at,
                             const Nvfp4Levels& levels) {
  using Tile = Fp4Tile<type>;
  const Fp4Scales stored(p.columnwise.scales, at.column, at.row / kFp4Block);
#pragma unroll
  for (int pass = 0; pass < Tile::kPasses; ++pass) {
    const Fp4ColumnItem<type> item(pass);
    const int64_t row = at.row + item.line * kFp4Block;
    Fp4Block<type> x[Tile::kAcross];
    tile.columnBlocks(item.line, item.word, x);
    float square = 0;
    if (p.square) {
#pragma unroll
      for (int i = 0; i < Tile::kAcross; ++i) square = fmaxf(square, x[i].amax());
      square = maxAcross(square, Tile::kBelow);
    }
#pragma unroll
    for (int i = 0; i < Tile::kAcross; ++i) {
      const int64_t column = at.column + item.word * Tile::kAcross + i;
      if (row >= p.rows || column >= p.columns) break;
      if constexpr (transforms) hadamard(x[i].words, p.signs);
      const TwoLevel scale = twoLevel(p.square ? square : x[i].amax(), levels.encode, levels.decode);
      const int64_t index = column * p.rows + row;
      const uint2 codes = codesOf<type, stochastic>(x[i], scale.multiplier, index, 1, p.random);
      *reinterpret_cast<uint2*>(p.columnwise.data + (index >> 1)) = codes;
      stored.store(item.word * Tile::kAcross + i, item.line, scale.code);
    }
  }
}

template <Wide type, bool stochastic, bool transforms>
__global__ void __launch_bounds__(kFp4Threads) quantizeNvfp4(const QuantizeNvfp4Params p) {
  __shared__ Fp4Tile<type> tile;
  __shared__ Nvfp4Shared shared;
  if (isNoop(p.noop)) return;
  const Nvfp4Origin at(p.columns);
  tile.template start<false>(p.x, p.rows, p.columns, at.row, at.column);
  shared.start(p);
  tile.wait();
  if (p.rowwise.data != nullptr) quantizeRows<type, stochastic>(p, tile, at, shared.levels[0]);
  if (p.columnwise.data != nullptr) quantizeColumns<type, stochastic, transforms>(p, tile, at, shared.levels[1]);
}

// Whether a copy, if it is wanted, has an amax, and a scale for each block of its lines.
bool fits(const Nvfp4Copy& copy, int64_t lines, int64_t length) {
  return copy.data == nullptr ||
         (copy.amax != nullptr && copy.scales.lines == lines && copy.scales.blocks == length / kFp4Block);
}

}  // namespace

cudaError_t launchNvfp4Codes(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  const uint32_t tiles = nvfp4Tiles(p);
  withWide(p.type, [&](auto tag) {
    constexpr Wide type = tag.value;
    if constexpr (type == Wide::kBf16) {
      if (p.transforms && p.columnwise.data != nullptr) {
        if (p.stochastic) {
          quantizeNvfp4<type, true, true><<<tiles, kFp4Threads, 0, stream>>>(p);
        } else {
          quantizeNvfp4<type, false, true><<<tiles, kFp4Threads, 0, stream>>>(p);
        }
        return;
      }
    }
    if (p.stochastic) {
      quantizeNvfp4<type, true, false><<<tiles, kFp4Threads, 0, stream>>>(p);
    } else {
      quantizeNvfp4<type, false, false><<<tiles, kFp4Threads, 0, stream>>>(p);
    }
  });
  return cudaGetLastError();
}

cudaError_t launchQuantizeNvfp4(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  const bool transforms = p.transforms && p.columnwise.data != nullptr;
  if (p.rows % kFp4Block != 0 || p.columns % kFp4Block != 0 || !fits(p.rowwise, p.rows, p.columns) ||
      !fits(p.columnwise, p.columns, p.rows) || (transforms && (p.type != Wide::kBf16 || p.square)) ||
      (p.fourOverSix && (transforms || p.stochastic))) {
    return cudaErrorInvalidValue;
  }
  if (p.rowwise.data == nullptr && p.columnwise.data == nullptr) return cudaSuccess;
  for (const ScalePlacement& scales : {p.rowwise.scales, p.columnwise.scales}) {
    if (cudaError_t error = clearPadding(scales, p.noop, stream); error != cudaSuccess) return error;
  }
  if (cudaError_t error = launchNvfp4Amaxes(p, stream); error != cudaSuccess) return error;
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  return p.fourOverSix ? launchNvfp4FourOverSix(p, stream) : launchNvfp4Codes(p, stream);
}

}  // namespace lockstep
