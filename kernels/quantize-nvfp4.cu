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

template <Wide type, bool stochastic>
__device__ uint2 codesOf(Fp4Block<type>& x, float bound, float m, int64_t index, uint32_t copy, const Philox& random) {
  if constexpr (stochastic) {
    return encodeFp4(x, m, index, copy, random);
  } else if constexpr (type == Wide::kBf16) {
    return encodeFp4(x, bound, m);
  } else {
    return encodeFp4(x, m);
  }
}

// Where a thread's blocks of a copy go, for tiles that follow each other up the source: the first one's element and
// scale, how far these are apart for two blocks of a tile, and how far for two tiles.
struct Places {
  int64_t element;
  int64_t scale;
  int64_t apart;
  int64_t scaleApart;
  int64_t step;
  int64_t scaleStep;
  // Whether the first block is in the source, for the lowest tile and for the others.
  bool isInside;
  bool isInsideAbove;

  __device__ void advance() {
    element -= step;
    scale -= scaleStep;
    isInside = isInsideAbove;
  }
};

// Blocks of a row. The scales of two blocks are one group of cuBLASLt's layout.
__device__ Places rowPlaces(const QuantizeNvfp4Params& p, int64_t row, int64_t column, int rowsOfStep) {
  const ScalePlacement& to = p.rowwise.scales;
  const int64_t tile = scaleOffset(to, kFp4Rows, 0);
  return {row * p.columns + column,
          scaleOffset(to, row, column / kFp4Block),
          kFp4Block,
          to.swizzled ? 1 : to.blockStride,
          rowsOfStep * p.columns,
          rowsOfStep / kFp4Rows * tile,
          row < p.rows && column < p.columns,
          column < p.columns};
}

// Blocks of two columns of 16, kApart from each other.
__device__ Places columnPlaces(const QuantizeNvfp4Params& p, int64_t row, int64_t column, int rowsOfStep) {
  constexpr int64_t kApart = Fp4ColumnItem<Wide::kBf16>::kApart;
  const ScalePlacement& to = p.columnwise.scales;
  const int64_t tile = scaleOffset(to, 0, kFp4Rows / kFp4Block);
  return {column * p.rows + row,
          scaleOffset(to, column, row / kFp4Block),
          kApart * p.rows,
          kApart * (to.swizzled ? 16 : to.lineStride),
          rowsOfStep,
          rowsOfStep / kFp4Rows * tile,
          row < p.rows && column < p.columns,
          column < p.columns};
}

// Whether four blocks of a row have their scales in a word.
__device__ bool hasScaleWords(const ScalePlacement& to, int64_t columns) {
  return columns % kFp4Columns == 0 && (to.swizzled || (to.blockStride == 1 && to.lineStride % 4 == 0));
}

__device__ void storeScale(const Nvfp4Copy& copy, int64_t at, uint32_t code) {
  static_cast<uint8_t*>(copy.scales.data)[at] = static_cast<uint8_t>(code);
}

template <Wide type, bool stochastic>
__device__ void quantizeRows(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Scaling& scaling,
                             int64_t firstColumn, const Places& places) {
  const Fp4RowItem item;
  Fp4Block<type> x[2];
  float amaxes[2];
  float bounds[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    x[i] = tile.rowBlock(item.row, item.block + i);
    amaxes[i] = x[i].settle(bounds[i]);
  }
  if (p.square) maxAcross<type>(amaxes[0], amaxes[1], 2);
  uint2 codes[2];
  TwoLevel scales[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    scales[i] = scaling.scale(0, amaxes[i]);
    const int64_t index = places.element + i * kFp4Block;
    codes[i] = codesOf<type, stochastic>(x[i], bounds[i], scales[i].multiplier, index, 0, p.random);
  }
  const int64_t column = firstColumn + item.block * kFp4Block;
  const uint32_t pair = scales[0].code | scales[1].code << 8;
  const uint32_t other = __shfl_xor_sync(kWarp, pair, 1);
  if (!places.isInside) return;
  const bool both = column + kFp4Block < p.columns;
  storeFp4(p.rowwise.data, places.element, codes, both);
  if (hasScaleWords(p.rowwise.scales, p.columns)) {
    if (item.block == 0) {
      *reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(p.rowwise.scales.data) + places.scale) = pair | other << 16;
    }
    return;
  }
  storeScale(p.rowwise, places.scale, scales[0].code);
  if (both) storeScale(p.rowwise, places.scale + places.scaleApart, scales[1].code);
}

template <Wide type, bool stochastic, bool transforms>
__device__ void quantizeColumns(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Scaling& scaling,
                                const ColumnTransform<transforms && kHadamardByMma>& transform, int64_t firstRow,
                                const Places& places) {
  using Tile = Fp4Tile<type>;
#pragma unroll
  for (int pass = 0; pass < Tile::kPasses; ++pass) {
    const Fp4ColumnItem<type> item(pass);
    Fp4Block<type> x[Tile::kAcross];
    float amaxes[Tile::kAcross];
    float bounds[Tile::kAcross];
#pragma unroll
    for (int i = 0; i < Tile::kAcross; ++i) {
      if constexpr (transforms && kHadamardByMma) {
        x[i] = transform.block(tile, i);
      } else {
        x[i] = tile.columnBlock(item, i);
        if constexpr (transforms) hadamard(x[i].words, p.signs);
      }
      amaxes[i] = x[i].settle(bounds[i]);
    }
    if (p.square) {
      amaxes[0] = maxAcross(fmaxf(amaxes[0], amaxes[Tile::kAcross - 1]), Tile::kBelow);
      amaxes[Tile::kAcross - 1] = amaxes[0];
    }
    // columns are a multiple of 16, and in a second pass lines are four further
    if (!places.isInside || (pass != 0 && firstRow + item.line * kFp4Block >= p.rows)) continue;
    const int64_t element = places.element + pass * 4 * kFp4Block;
    const int64_t scaleAt =
        places.scale + (p.columnwise.scales.swizzled ? pass * 512 : pass * 4 * p.columnwise.scales.blockStride);
#pragma unroll
    for (int i = 0; i < Tile::kAcross; ++i) {
      const TwoLevel scale = scaling.scale(1, amaxes[i]);
      const int64_t index = element + i * places.apart;
      const uint2 codes = codesOf<type, stochastic>(x[i], bounds[i], scale.multiplier, index, 1, p.random);
      *reinterpret_cast<uint2*>(p.columnwise.data + (index >> 1)) = codes;
      storeScale(p.columnwise, scaleAt + i * places.scaleApart, scale.code);
    }
  }
}

// Tiles in flight: one is loaded while another is quantized. Blocks of the kernel on a multiprocessor.
template <Wide type>
constexpr int kStages = type == Wide::kF32 ? 1 : 2;
template <Wide type, bool stochastic, bool transforms>
constexpr int kResident = type == Wide::kF32 ? 3 : stochastic || transforms ? 4 : 5;

// Blocks go up strips of the source, `across` of them: what the pass before read last is still in the cache.
template <Wide type, bool stochastic, bool transforms>
__global__ void __launch_bounds__(kFp4Threads, (kResident<type, stochastic, transforms>))
    quantizeNvfp4(const QuantizeNvfp4Params p, uint32_t across) {
  __shared__ Fp4Tile<type> stages[kStages<type>];
  __shared__ Nvfp4Scaling scaling;
  if (isNoop(p.noop)) return;
  const int64_t column = int64_t{blockIdx.x % across} * kFp4Columns;
  const int step = static_cast<int>(gridDim.x / across) * kFp4Rows;
  int64_t row = (ceilDivide(p.rows, kFp4Rows) - 1 - blockIdx.x / across) * kFp4Rows;
  typename Fp4Tile<type>::Loader loader(p.x, p.rows, p.columns, row, column, step);
  int stage = 0;
  if (row >= 0) loader.start(stages[stage]);
  waitForPrevious();
  scaling.start(p);
  const ColumnTransform<transforms && kHadamardByMma> transform(p.signs);
  const Fp4RowItem rowItem;
  const Fp4ColumnItem<type> columnItem(0);
  Places rowwise = rowPlaces(p, row + rowItem.row, column + rowItem.block * kFp4Block, step);
  Places columnwise = columnPlaces(p, row + columnItem.line * kFp4Block, column + columnItem.column, step);
#pragma unroll 1
  for (; row >= 0; row -= step) {
    // and for all threads to have read the tile before
    Fp4Tile<type>::wait();
    if (kStages<type> == 2 && row >= step) loader.start(stages[stage ^ 1]);
    const Fp4Tile<type>& tile = stages[stage];
    if (p.rowwise.data != nullptr) {
      quantizeRows<type, stochastic>(p, tile, scaling, column, rowwise);
      rowwise.advance();
    }
    if (p.columnwise.data != nullptr) {
      quantizeColumns<type, stochastic, transforms>(p, tile, scaling, transform, row, columnwise);
      columnwise.advance();
    }
    if constexpr (kStages<type> == 2) {
      stage ^= 1;
    } else {
      __syncthreads();
      if (row >= step) loader.start(stages[stage]);
    }
  }
}

template <Wide type, bool stochastic, bool transforms>
void launchStrips(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  const uint32_t across = static_cast<uint32_t>(ceilDivide(p.columns, kFp4Columns));
  const int64_t tiles = ceilDivide(p.rows, kFp4Rows) * across;
  // about three times what is resident, for an even load
  const int64_t each = ceilDivide(fillingGrid(tiles, 3 * kResident<type, stochastic, transforms>), across);
  launchEarly(quantizeNvfp4<type, stochastic, transforms>, static_cast<uint32_t>(across * each), kFp4Threads, stream, p,
              across);
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
