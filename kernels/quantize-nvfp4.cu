#include "kernels/quantize-nvfp4.h"

#include "kernels/fp4-transform.cuh"
#include "kernels/hadamard.cuh"
#include "kernels/noop.cuh"
#include "kernels/nvfp4-codes.cuh"

namespace lockstep {

namespace {

constexpr uint32_t kWarp = 0xffffffffu;

// The largest of the values, none negative, of lanes that differ in bits `first` to 16 of their number.
__device__ float maxAcross(float value, int first) {
  uint32_t largest = bitsOf(value);
  for (int step = 16; step >= first; step /= 2) largest = max(largest, __shfl_xor_sync(kWarp, largest, step));
  return floatOf(largest);
}

// The same of two values, which become those.
template <Wide type>
__device__ void maxAcross(float& a, float& b, int first) {
  if constexpr (type == Wide::kBf16) {
    uint32_t largest = highLanes(bitsOf(a), bitsOf(b));
    for (int step = 16; step >= first; step /= 2) largest = __vmaxu2(largest, __shfl_xor_sync(kWarp, largest, step));
    a = lowOf<type>(largest);
    b = highOf<type>(largest);
  } else {
    a = maxAcross(a, first);
    b = maxAcross(b, first);
  }
}

// How far blocks of a copy are from each other, in words of eight codes and in scales.
struct Distance {
  int64_t words;
  int64_t scales;
};

// Whether four blocks of a row have their scales in a word.
bool hasScaleWords(const ScalePlacement& to, int64_t columns) {
  return columns % kFp4Columns == 0 && (to.swizzled || (to.blockStride == 1 && to.lineStride % 4 == 0));
}

// Strips of the source, each of tiles that `each` blocks of threads take in turn.
struct Strips {
  uint32_t across;
  uint32_t each;
  bool scaleWords;
  // From one tile of a block of threads to its next: elements, and the blocks of either copy.
  int64_t elements;
  Distance rowwise;
  Distance columnwise;
  // From one block to the other that a thread has of a columnwise tile, Fp4ColumnItem::kApart columns.
  Distance apart;

  Strips(const QuantizeNvfp4Params& p, uint32_t across, uint32_t each)
      : across(across),
        each(each),
        scaleWords(hasScaleWords(p.rowwise.scales, p.columns)),
        elements(each * kFp4Rows * p.columns),
        rowwise{elements / 8, each * scaleOffset(p.rowwise.scales, kFp4Rows, 0)},
        columnwise{each * kFp4Rows / 8, each * scaleOffset(p.columnwise.scales, 0, kFp4Rows / kFp4Block)},
        apart{p.rows, scaleOffset(p.columnwise.scales, Fp4ColumnItem<Wide::kBf16>::kApart, 0)} {}
};

// Where a thread's first block of a copy goes, for tiles that follow each other up the source: its words and its scale.
struct Place {
  int64_t word;
  int64_t scale;
  // How many elements are in the source along the line, of the lowest tile and of the others.
  int inside;
  int insideAbove;

  __device__ void advance(const Distance& step) {
    word -= step.words;
    scale -= step.scales;
    inside = insideAbove;
  }
};

// How many of `most` elements from `first` on are within `length`.
__device__ int within(int64_t length, int64_t first, int most) {
  return static_cast<int>(min(max(length - first, int64_t{0}), int64_t{most}));
}

__device__ Place rowPlace(const QuantizeNvfp4Params& p, int64_t row, int64_t column) {
  const int inside = keep(within(p.columns, column, 2 * kFp4Block));
  return {(row * p.columns + column) / 8, scaleOffset(p.rowwise.scales, row, column / kFp4Block),
          row < p.rows ? inside : 0, inside};
}

__device__ Place columnPlace(const QuantizeNvfp4Params& p, int64_t row, int64_t column) {
  const int above = keep(column < p.columns ? kFp4Rows : 0);
  return {(column * p.rows + row) / 8, scaleOffset(p.columnwise.scales, column, row / kFp4Block),
          min(within(p.rows, row, kFp4Rows), above), above};
}

__device__ void storeScale(const Nvfp4Copy& copy, int64_t at, uint32_t code) {
  static_cast<uint8_t*>(copy.scales.data)[at] = static_cast<uint8_t>(code);
}

template <Wide type, bool stochastic>
__device__ void quantizeRows(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Scaling& scaling,
                             const Fp4RowItem<type>& item, const Strips& strips, const Place& place) {
  Fp4Block<type> x[2] = {tile.rowBlock(item, 0), tile.rowBlock(item, 1)};
  float amaxes[2];
  float bounds[2];
  settle(x, amaxes, bounds);
  if (p.square) maxAcross<type>(amaxes[0], amaxes[1], 2);
  const TwoLevel scales[2] = {scaling.scale(0, amaxes[0]), scaling.scale(0, amaxes[1])};
  if constexpr (!stochastic) limitFp4(x, bounds, scales);
  uint2 codes[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    codes[i] = codesOf<stochastic>(x[i], scales[i].multiplier, place.word + 2 * i, 0, p.random);
  }
  const uint32_t pair = scales[0].code | scales[1].code << 8;
  const uint32_t other = __shfl_xor_sync(kWarp, pair, 1);
  if (place.inside == 0) return;
  const bool both = place.inside > kFp4Block;
  storeFp4(p.rowwise.data, place.word, codes, both);
  if (strips.scaleWords) {
    if (item.block == 0) {
      *reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(p.rowwise.scales.data) + place.scale) = pair | other << 16;
    }
    return;
  }
  storeScale(p.rowwise, place.scale, scales[0].code);
  const int64_t apart = p.rowwise.scales.swizzled ? 1 : p.rowwise.scales.blockStride;
  if (both) storeScale(p.rowwise, place.scale + apart, scales[1].code);
}

template <Wide type, bool stochastic, bool transforms>
__device__ void quantizeColumns(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Scaling& scaling,
                                const ColumnTransform<transforms && kHadamardByMma>& transform,
                                const Fp4ColumnItem<type>& item, int pass, const Distance& apart, const Place& place) {
  constexpr int kAcross = Fp4Tile<type>::kAcross;
  Fp4Block<type> x[kAcross];
#pragma unroll
  for (int i = 0; i < kAcross; ++i) {
    if constexpr (transforms && kHadamardByMma) {
      x[i] = transform.block(tile, i);
    } else {
      x[i] = tile.columnBlock(item, i);
      if constexpr (transforms) hadamard(x[i].words, p.signs);
    }
  }
  float amaxes[kAcross];
  float bounds[kAcross];
  settle(x, amaxes, bounds);
  if (p.square) {
    amaxes[0] = maxAcross(fmaxf(amaxes[0], amaxes[kAcross - 1]), Fp4Tile<type>::kBelow);
    amaxes[kAcross - 1] = amaxes[0];
  }
  // columns are a multiple of 16, and in a second pass lines are four further
  if (place.inside <= pass * 4 * kFp4Block) return;
  const int64_t first = place.word + pass * 4 * kFp4Block / 8;
  const int64_t scaleAt =
      place.scale + (p.columnwise.scales.swizzled ? pass * 512 : pass * 4 * p.columnwise.scales.blockStride);
  TwoLevel scales[kAcross];
#pragma unroll
  for (int i = 0; i < kAcross; ++i) scales[i] = scaling.scale(1, amaxes[i]);
  if constexpr (!stochastic) limitFp4(x, bounds, scales);
#pragma unroll
  for (int i = 0; i < kAcross; ++i) {
    const int64_t word = first + i * apart.words;
    const uint2 codes = codesOf<stochastic>(x[i], scales[i].multiplier, word, 1, p.random);
    *reinterpret_cast<uint2*>(p.columnwise.data + word * 4) = codes;
    storeScale(p.columnwise, scaleAt + i * apart.scales, scales[i].code);
  }
}

// Tiles in flight: one is loaded while another is quantized. Blocks of the kernel on a multiprocessor.
template <Wide type>
constexpr int kStages = type == Wide::kF32 ? 1 : 2;
template <Wide type>
constexpr int kResident = type == Wide::kF32 ? 3 : 4;

// Blocks go up strips of the source, `across` of them: what the pass before read last is still in the cache.
template <Wide type, bool stochastic, bool transforms>
__global__ void __launch_bounds__(kFp4Threads, kResident<type>)
    quantizeNvfp4(const QuantizeNvfp4Params p, const Strips strips) {
  __shared__ Fp4Tile<type> stages[kStages<type>];
  __shared__ Nvfp4Scaling scaling;
  if (isNoop(p.noop)) return awaitPrevious();
  const int64_t column = int64_t{blockIdx.x % strips.across} * kFp4Columns;
  const uint32_t lowest = static_cast<uint32_t>(ceilDivide(p.rows, kFp4Rows)) - 1 - blockIdx.x / strips.across;
  const int64_t row = int64_t{lowest} * kFp4Rows;
  typename Fp4Tile<type>::Loader loader(p.x, p.rows, p.columns, row, column, strips.elements);
  int stage = 0;
  loader.start(stages[stage]);
  awaitPrevious();
  scaling.start(p);
  const ColumnTransform<transforms && kHadamardByMma> transform(p.signs);
  const Fp4RowItem<type> rowItem;
  Place rowwise = rowPlace(p, row + rowItem.row, column + rowItem.block * kFp4Block);
  // of the first and of the last pass
  const Fp4ColumnItem<type> columnItems[] = {Fp4ColumnItem<type>(0), Fp4ColumnItem<type>(Fp4Tile<type>::kPasses - 1)};
  Place columnwise = columnPlace(p, row + columnItems[0].line * kFp4Block, column + columnItems[0].column);
#pragma unroll 1
  for (int above = static_cast<int>(lowest / strips.each); above >= 0; --above) {
    // and for all threads to have read the tile before
    Fp4Tile<type>::wait();
    if (kStages<type> == 2 && above > 0) loader.start(stages[stage ^ 1]);
    const Fp4Tile<type>& tile = stages[stage];
    if (p.rowwise.data != nullptr) {
      quantizeRows<type, stochastic>(p, tile, scaling, rowItem, strips, rowwise);
      rowwise.advance(strips.rowwise);
    }
    if (p.columnwise.data != nullptr) {
#pragma unroll
      for (int pass = 0; pass < Fp4Tile<type>::kPasses; ++pass) {
        quantizeColumns<type, stochastic, transforms>(p, tile, scaling, transform, columnItems[pass], pass,
                                                      strips.apart, columnwise);
      }
      columnwise.advance(strips.columnwise);
    }
    if constexpr (kStages<type> == 2) {
      stage ^= 1;
    } else {
      __syncthreads();
      if (above > 0) loader.start(stages[stage]);
    }
  }
}

template <Wide type, bool stochastic, bool transforms>
void launchStrips(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  const uint32_t across = static_cast<uint32_t>(ceilDivide(p.columns, kFp4Columns));
  const int64_t tiles = ceilDivide(p.rows, kFp4Rows) * across;
  // about three times what is resident, for an even load
  const uint32_t each = static_cast<uint32_t>(ceilDivide(fillingGrid(tiles, 3 * kResident<type>), across));
  launchDependent(quantizeNvfp4<type, stochastic, transforms>, across * each, kFp4Threads, 0, stream, p,
                  Strips(p, across, each));
}

// Whether a copy, if it is wanted, has an amax, and a scale for each block of its lines.
bool fits(const Nvfp4Copy& copy, int64_t lines, int64_t length) {
  return copy.data == nullptr ||
         (copy.amax != nullptr && copy.scales.lines == lines && copy.scales.blocks == length / kFp4Block);
}

}  // namespace

cudaError_t launchNvfp4Codes(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  if (p.columnwise.data == nullptr && !p.square && p.rows * p.columns / kFp4Block <= UINT32_MAX) {
    return launchNvfp4Rows(p, stream);
  }
  withWide(p.type, [&](auto tag) {
    constexpr Wide type = tag.value;
    if constexpr (type == Wide::kBf16) {
      if (p.transforms && p.columnwise.data != nullptr) {
        p.stochastic ? launchStrips<type, true, true>(p, stream) : launchStrips<type, false, true>(p, stream);
        return;
      }
    }
    p.stochastic ? launchStrips<type, true, false>(p, stream) : launchStrips<type, false, false>(p, stream);
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
