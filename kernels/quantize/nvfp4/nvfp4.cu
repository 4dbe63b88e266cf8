// NVFP4 quantization of the rowwise copy, the columnwise copy or both. Each thread block processes several 128 x 64
// tiles of a vertical strip (strips.cuh), one after the other. The tile is in shared memory, double-buffered for 16-bit
// types. It is read along rows for the rowwise copy and along columns for the columnwise one.
#include "kernels/quantize/nvfp4/nvfp4.h"

#include "kernels/quantize/hadamard/hadamard.cuh"
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/nvfp4/part.cuh"
#include "kernels/quantize/nvfp4/strips.cuh"
#include "kernels/quantize/nvfp4/transform.cuh"
#include "kernels/quantize/taken.h"

namespace lockstep {

namespace {

// The maximum of non-negative values over the lanes whose indices differ only in bits `first` to 16.
__device__ float maxAcross(float value, int first) {
  uint32_t largest = bitsOf(value);
  for (int step = 16; step >= first; step /= 2) largest = max(largest, __shfl_xor_sync(kFullMask, largest, step));
  return floatOf(largest);
}

// As maxAcross, for two values.
template <Wide type>
__device__ void maxAcross(float& a, float& b, int first) {
  if constexpr (type == Wide::kBf16) {
    uint32_t largest = highLanes(bitsOf(a), bitsOf(b));
    for (int step = 16; step >= first; step /= 2)
      largest = __vmaxu2(largest, __shfl_xor_sync(kFullMask, largest, step));
    a = lowOf<type>(largest);
    b = highOf<type>(largest);
  } else {
    a = maxAcross(a, first);
    b = maxAcross(b, first);
  }
}

// The scales of one row in kJoinedTiles adjacent tiles, 4 bytes for each tile.
using WideWord = uint4;

// max |x| of the 16x16 blocks of a tile, NaN ignored. quantizeRows computes it for quantizeColumns. A negative sign (-0
// included) says that the block may contain NaN.
using SquareAmaxes = float[kFp4Rows / kFp4Block][kFp4Columns / kFp4Block];

// A thread's two blocks of a row, after canonicalizeNaN.
template <Wide type>
struct RowBlocks {
  Fp4Block<type> x[2];
  float amaxes[2];
  float bounds[2];

  // If `square`, `amaxes` are the amaxes of the 16x16 blocks that contain the two blocks. All threads of the block must construct
  // it.
  __device__ RowBlocks(const Fp4Tile<type>& tile, const Fp4RowItem<type>& item, bool square, SquareAmaxes& squares)
      : x{tile.rowBlock(item, 0), tile.rowBlock(item, 1)} {
    const bool hadNaN = canonicalizeNaN(x, amaxes, bounds);
    if (!square) return;
    maxAcross<type>(amaxes[0], amaxes[1], 2);
    if (threadIdx.x % 32 >= 2) return;
    for (int i = 0; i < 2; ++i) {
      squares[item.row / kFp4Block][item.block + i] = hadNaN ? -amaxes[i] : amaxes[i];
    }
  }
};

// Encodes and stores a thread's two blocks of copy 0 (rowwise) or 1 (columnwise). Returns the codes of its two scales in the low
// half, and the next lane's in the high half. All 32 lanes of the warp must call it.
template <Fp4Rounding rounding, bool fullTiles, Wide type>
__device__ uint32_t quantizeBlocks(const QuantizeNvfp4Params& p, const Nvfp4Copy& to, int copy,
                                   const Nvfp4Scaling& scaling, Fp4Block<type> (&x)[2], const float (&amaxes)[2],
                                   const float (&bounds)[2], const OutputPosition& position) {
  const TwoLevel scales[2] = {scaling.scale(copy, amaxes[0]), scaling.scale(copy, amaxes[1])};
  const uint32_t pair = scales[0].code | scales[1].code << 8;
  const uint32_t four = pair | __shfl_xor_sync(kFullMask, pair, 1) << 16;
  if (!fullTiles && position.inside == 0) return four;
  uint2 codes[2];
  // draws of full tiles have 32-bit numbers
  const int64_t block = fullTiles ? static_cast<uint32_t>(position.word) >> 1 : position.word >> 1;
  if constexpr (rounding == Fp4Rounding::kGiven) {
    const uint32_t* words = to.words + block * kFp4Block;
    codes[0] = encodeFp4(x[0], scales[0].multiplier, words);
    codes[1] = encodeFp4(x[1], scales[1].multiplier, position.inside > kFp4Block ? words + kFp4Block : nullptr);
  } else if constexpr (rounding == Fp4Rounding::kPart) {
    const int64_t first = drawInWhole(p.part, p.rows, p.columns, copy, block);
    const int64_t second = drawInWhole(p.part, p.rows, p.columns, copy, block + 1);
    codesOf<true>(x, bounds, scales, {first, second}, copy, p.random, codes);
  } else {
    codesOf<rounding == Fp4Rounding::kOwn>(x, bounds, scales, {block, block + 1}, copy, p.random, codes);
  }
  if constexpr (fullTiles) {
    storeFp4(to.codes, position.word, codes);
  } else {
    storeFp4(to.codes, position.word, codes, position.inside > kFp4Block);
  }
  return four;
}

// Stores the scales of a thread's two blocks. If `areWords`, the first of two lanes stores the scales of both, as a
// 32-bit word.
template <bool fullTiles>
__device__ void storeScales(const Nvfp4Copy& to, bool areWords, bool isFirst, const OutputPosition& position,
                            uint32_t four) {
  if (!fullTiles && position.inside == 0) return;
  uint8_t* scaleAddress = static_cast<uint8_t*>(to.scales.data) + position.scale;
  if (fullTiles || areWords) {
    if (isFirst) *reinterpret_cast<uint32_t*>(scaleAddress) = four;
    return;
  }
  scaleAddress[0] = static_cast<uint8_t>(four);
  if (position.inside > kFp4Block)
    scaleAddress[to.scales.swizzled ? 1 : to.scales.blockStride] = static_cast<uint8_t>(four >> 8);
}

template <Wide type, Fp4Rounding rounding, bool fullTiles>
__device__ void quantizeRows(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Scaling& scaling,
                             const Fp4RowItem<type>& item, const Strips& strips, int remainingInRow,
                             const OutputPosition& position, SquareAmaxes& squares) {
  __shared__ WideWord words[kFp4Rows];
  RowBlocks<type> blocks(tile, item, !fullTiles && p.square, squares);
  const uint32_t four =
      quantizeBlocks<rounding, fullTiles>(p, p.rowwise, 0, scaling, blocks.x, blocks.amaxes, blocks.bounds, position);
  const bool isFirst = item.block == 0;
  if (strips.tilesWide == 1) return storeScales<fullTiles>(p.rowwise, strips.rowWords, isFirst, position, four);
  if (!isFirst) return;
  reinterpret_cast<uint32_t*>(words + item.row)[kJoinedTiles - 1 - remainingInRow] = four;
  if (remainingInRow > 0) return;
  *reinterpret_cast<WideWord*>(static_cast<uint8_t*>(p.rowwise.scales.data) + position.scale) = words[item.row];
}

// Quantizes the columns of a tile. If blocks are square, quantizeRows must have run before.
template <Wide type, Fp4Rounding rounding, bool transforms, bool fullTiles>
__device__ void quantizeColumns(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Scaling& scaling,
                                const ColumnTransform<transforms && kHadamardByMma>& transform,
                                const Fp4ColumnItem<type>& item, const Strips& strips, const OutputPosition& position,
                                const SquareAmaxes& squares) {
  Fp4Block<type> x[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (transforms && kHadamardByMma) {
      x[i] = transform.block(tile, i);
    } else {
      x[i] = tile.columnBlock(item, i);
      if constexpr (transforms) hadamard(x[i].words, p.signs);
    }
  }
  float amaxes[2];
  float bounds[2];
  if (!fullTiles && !transforms && p.square) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float amax = squares[item.line + i][item.column / kFp4Block];
      amaxes[i] = bounds[i] = fabsf(amax);
      if (bitsOf(amax) >> 31 == 0) continue;
      bounds[i] = floatOf(0x7f800000u);
      x[i].removeNaN();
    }
  } else {
    canonicalizeNaN(x, amaxes, bounds);
  }
  const uint32_t four = quantizeBlocks<rounding, fullTiles>(p, p.columnwise, 1, scaling, x, amaxes, bounds, position);
  storeScales<fullTiles>(p.columnwise, strips.columnWords, item.line % 4 == 0, position, four);
}

// Tiles in shared memory. With two, one is loaded while the other is quantized.
template <Wide type>
constexpr int kStages = type == Wide::kF32 ? 1 : 2;
// The number of blocks per multiprocessor.
template <Wide type>
constexpr int kResident = type == Wide::kF32 ? 3 : 4;

// Each block processes a vertical strip of tiles from the bottom of the source to its top, because the amax pass leaves
// the bottom in the L2 cache. `fullTiles` says that isWhole holds.
template <Wide type, Fp4Rounding rounding, bool transforms, bool fullTiles>
__global__ void __launch_bounds__(kFp4Threads, kResident<type>)
    quantizeNvfp4(const QuantizeNvfp4Params p, const __grid_constant__ Strips strips) {
  __shared__ Fp4Tile<type> stages[kStages<type>];
  __shared__ Nvfp4Scaling scaling;
  __shared__ SquareAmaxes squares;
  if (isNoop(p.noop)) return awaitPrevious();
  const int64_t column = int64_t{blockIdx.x % strips.stripCount} * (strips.tilesWide * kFp4Columns);
  const uint32_t lowest = static_cast<uint32_t>(ceilDivide(p.rows, kFp4Rows)) - 1 - blockIdx.x / strips.stripCount;
  const int64_t row = int64_t{lowest} * kFp4Rows;
  typename Fp4Tile<type>::Loader loader(p.x, p.rows, p.columns, row, column);
  int remaining = static_cast<int>(lowest / strips.blocksPerStrip + 1) * strips.tilesWide - 1;
  int stage = 0;
  loader.start(stages[stage], strips.step(remaining).elements);
  awaitPrevious();
  scaling.start(p);
  const ColumnTransform<transforms && kHadamardByMma> transform(p.signs);
  const Fp4RowItem<type> rowItem;
  OutputPosition rowwise = rowPosition(p, row + rowItem.row, column + rowItem.block * kFp4Block);
  const Fp4ColumnItem<type> columnItem;
  OutputPosition columnwise = columnPosition(p, row + columnItem.line * kFp4Block, column + columnItem.column);
#pragma unroll 1
  for (; remaining >= 0; --remaining) {
    const Step& step = strips.step(remaining);
    // also waits until all threads have finished with the previous tile
    Fp4Tile<type>::wait();
    if (kStages<type> == 2 && remaining > 0) loader.start(stages[stage ^ 1], strips.step(remaining - 1).elements);
    const Fp4Tile<type>& tile = stages[stage];
    if (fullTiles || p.rowwise.codes != nullptr) {
      quantizeRows<type, rounding, fullTiles>(p, tile, scaling, rowItem, strips, strips.remainingInRow(remaining),
                                              rowwise, squares);
      rowwise.advance(step.rowwise);
    } else if (!transforms && p.square) {
      RowBlocks<type>(tile, rowItem, p.square, squares);
    }
    if (fullTiles || p.columnwise.codes != nullptr) {
      if (!fullTiles && !transforms && p.square) __syncthreads();
      quantizeColumns<type, rounding, transforms, fullTiles>(p, tile, scaling, transform, columnItem, strips,
                                                             columnwise, squares);
      columnwise.advance(step.columnwise);
    }
    if constexpr (kStages<type> == 2) {
      stage ^= 1;
    } else {
      __syncthreads();
      if (remaining > 0) loader.start(stages[stage], strips.step(remaining - 1).elements);
    }
  }
}

// Whether both copies consist of full tiles with 1x16 blocks, the scales are stored as words, and the draws of random bits have
// 32-bit numbers.
bool isWhole(const QuantizeNvfp4Params& p, const Strips& strips) {
  return p.rowwise.codes != nullptr && p.columnwise.codes != nullptr && !p.square && p.rows % kFp4Rows == 0 &&
         p.columns % kFp4Columns == 0 && strips.rowWords && strips.columnWords &&
         p.rows * p.columns / kFp4Block <= UINT32_MAX;
}

template <Wide type, Fp4Rounding rounding, bool transforms>
void launchStrips(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  const int64_t tiles = ceilDivide(p.rows, kFp4Rows) * ceilDivide(p.columns, kFp4Columns);
  // about three times the number of resident blocks, for load balance
  constexpr int kBlocks = 3 * kResident<type>;
  const int tilesWide =
      canJoinTiles(p) && fillingGrid(tiles / kJoinedTiles, kBlocks) < tiles / kJoinedTiles ? kJoinedTiles : 1;
  const uint32_t stripCount = static_cast<uint32_t>(ceilDivide(p.columns, tilesWide * kFp4Columns));
  const uint32_t blocksPerStrip =
      static_cast<uint32_t>(ceilDivide(fillingGrid(tiles / tilesWide, kBlocks), stripCount));
  const Strips strips(p, tilesWide, stripCount, blocksPerStrip);
  constexpr bool kIsFast = type == Wide::kBf16 && (rounding == Fp4Rounding::kNearest || rounding == Fp4Rounding::kOwn);
  if constexpr (kIsFast) {
    if (isWhole(p, strips)) {
      launchPdl(quantizeNvfp4<type, rounding, transforms, true>, stripCount * blocksPerStrip, kFp4Threads, 0, stream, p,
                strips);
      return;
    }
  }
  launchPdl(quantizeNvfp4<type, rounding, transforms, false>, stripCount * blocksPerStrip, kFp4Threads, 0, stream, p,
            strips);
}

}  // namespace

cudaError_t launchNvfp4Codes(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  if (p.columnwise.codes == nullptr && !p.square && p.rows * p.columns / kFp4Block <= UINT32_MAX) {
    return launchNvfp4Rows(p, stream);
  }
  withWide(p.xType, [&](auto tag) {
    withRounding(p, [&](auto rounding) {
      constexpr Wide type = tag.value;
      if constexpr (type == Wide::kBf16) {
        if (p.transforms && p.columnwise.codes != nullptr) return launchStrips<type, rounding.value, true>(p, stream);
      }
      launchStrips<type, rounding.value, false>(p, stream);
    });
  });
  return cudaGetLastError();
}

cudaError_t launchQuantizeNvfp4(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  if (!isTaken(p)) return cudaErrorInvalidValue;
  if (p.rowwise.codes == nullptr && p.columnwise.codes == nullptr) return cudaSuccess;
  for (const ScalePlacement& scales : {p.rowwise.scales, p.columnwise.scales}) {
    if (cudaError_t error = clearPadding(scales, p.noop, stream); error != cudaSuccess) return error;
  }
  if (p.rule != ScaleRule::kTwoLevel || p.scaling != 0) return launchNvfp4Any(p, stream);
  if (p.rowScaled) return launchNvfp4RowScaled(p, stream);
  if (cudaError_t error = launchNvfp4Amaxes(p, stream); error != cudaSuccess) return error;
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  return p.fourOverSix ? launchNvfp4FourOverSix(p, stream) : launchNvfp4Codes(p, stream);
}

}  // namespace lockstep
