// The order in which the thread blocks of quantizeNvfp4 process tiles, and the output positions of each tile.
#pragma once

#include "kernels/quantize/nvfp4/codes.cuh"
#include "kernels/quantize/nvfp4/tile.cuh"

namespace lockstep {

// The distance between two blocks of a copy: in 32-bit words of eight codes, and in scales.
struct Distance {
  int64_t words;
  int64_t scales;
};

// Whether the scales of each aligned group of four blocks of a line form an aligned 32-bit word.
inline bool hasScaleWords(const ScalePlacement& to) {
  return to.blocks % 4 == 0 && (to.swizzled || (to.blockStride == 1 && to.lineStride % 4 == 0));
}

// The step from a tile to the one that the same thread block processes next: in elements of the source, and in outputs
// of either copy.
struct Step {
  int64_t elements;
  Distance rowwise;
  Distance columnwise;
};

// The number of horizontally adjacent tiles whose row scales a thread stores together. A tile has 4 bytes of scales per
// row.
constexpr int kWide = 4;

// Whether kWide tiles can be stored together. Rows of scales must be aligned for it, there must be no partial tiles,
// and the columnwise scales of adjacent tiles must be a constant distance apart, which they are not in the swizzled
// layout.
inline bool canBeWide(const QuantizeNvfp4Params& p) {
  const ScalePlacement& to = p.rowwise.scales;
  return p.rowwise.codes != nullptr && !to.swizzled && to.blockStride == 1 && to.lineStride % (4 * kWide) == 0 &&
         !p.columnwise.scales.swizzled && p.columns % (kWide * kFp4Columns) == 0 && p.rows % kFp4Rows == 0;
}

// Describes how the source is divided into `across` vertical strips, each `wide` tiles wide. `each` thread blocks share
// a strip: each of them processes every `each`-th row of tiles.
struct Strips {
  int wide;
  uint32_t across;
  uint32_t each;
  bool rowWords;
  bool columnWords;
  // steps[0] leads to the next tile of the same row of tiles, steps[1] to the first tile of the thread block's next row
  // of tiles, which is further up.
  Step steps[2];

  Strips(const QuantizeNvfp4Params& p, int wide, uint32_t across, uint32_t each)
      : wide(wide),
        across(across),
        each(each),
        rowWords(hasScaleWords(p.rowwise.scales)),
        columnWords(hasScaleWords(p.columnwise.scales)),
        steps{beside(p), above(p, wide, int64_t{each})} {}

  // The step to the next tile. `left` is the number of tiles that the thread block still has to process after this one.
  __device__ const Step& step(int left) const { return steps[beside(left) == 0]; }

  // The number of the `left` remaining tiles that are in the current row of tiles.
  __device__ int beside(int left) const { return left & (wide - 1); }

 private:
  static Step beside(const QuantizeNvfp4Params& p) {
    return {kFp4Columns,
            {kFp4Columns / 8, 0},
            {kFp4Columns * p.rows / 8, scaleOffset(p.columnwise.scales, kFp4Columns, 0)}};
  }

  // The step from the last tile of a row of tiles to the first tile of the thread block's next row of tiles, which is
  // further up.
  static Step above(const QuantizeNvfp4Params& p, int64_t wide, int64_t each) {
    const Step step = beside(p);
    const int64_t back = wide - 1;
    const int64_t elements = each * kFp4Rows * p.columns + back * step.elements;
    return {-elements,
            {-elements / 8, -each * scaleOffset(p.rowwise.scales, kFp4Rows, 0)},
            {-each * kFp4Rows / 8 - back * step.columnwise.words,
             -each * scaleOffset(p.columnwise.scales, 0, kFp4Rows / kFp4Block) - back * step.columnwise.scales}};
  }
};

// The output position of a thread's first block of a copy: the index of its word of codes and of its scale. It advances
// from tile to tile.
struct Place {
  int64_t word;
  int64_t scale;
  // The number of elements of the thread's two blocks that are inside the source, in the current tile.
  int inside;
  // The same number in each later tile.
  int insideOthers;

  __device__ void advance(const Distance& step) {
    word += step.words;
    scale += step.scales;
    inside = insideOthers;
  }
};

// Returns the number of the `most` elements from `first` on that are below `length`.
__device__ inline int within(int64_t length, int64_t first, int most) {
  return static_cast<int>(min(max(length - first, int64_t{0}), int64_t{most}));
}

__device__ inline Place rowPlace(const QuantizeNvfp4Params& p, int64_t row, int64_t column) {
  const int inside = keep(within(p.columns, column, 2 * kFp4Block));
  return {(row * p.columns + column) / 8, scaleOffset(p.rowwise.scales, row, column / kFp4Block),
          row < p.rows ? inside : 0, inside};
}

__device__ inline Place columnPlace(const QuantizeNvfp4Params& p, int64_t row, int64_t column) {
  const int others = keep(column < p.columns ? 2 * kFp4Block : 0);
  return {(column * p.rows + row) / 8, scaleOffset(p.columnwise.scales, column, row / kFp4Block),
          min(within(p.rows, row, 2 * kFp4Block), others), others};
}

}  // namespace lockstep
