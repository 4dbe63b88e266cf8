// The tiles that a block of threads of quantizeNvfp4 takes, and where their blocks go.
#pragma once

#include "kernels/quantize/nvfp4/codes.cuh"
#include "kernels/quantize/nvfp4/tile.cuh"

namespace lockstep {

// How far blocks of a copy are from each other, in words of eight codes and in scales.
struct Distance {
  int64_t words;
  int64_t scales;
};

// Whether any four blocks of a line have their scales in a word.
inline bool hasScaleWords(const ScalePlacement& to) {
  return to.blocks % 4 == 0 && (to.swizzled || (to.blockStride == 1 && to.lineStride % 4 == 0));
}

// From one tile of a block of threads to its next: elements, and the blocks of either copy.
struct Step {
  int64_t elements;
  Distance rowwise;
  Distance columnwise;
};

// Tiles beside each other whose scales a thread stores together, which are 4 bytes of a row in one of them.
constexpr int kWide = 4;

// Whether that is possible: in rows of scales that are aligned for it, without ragged tiles, and where the scales of tiles
// beside each other are one distance apart in the columnwise copy, which swizzled ones are not.
inline bool canBeWide(const QuantizeNvfp4Params& p) {
  const ScalePlacement& to = p.rowwise.scales;
  return p.rowwise.data != nullptr && !to.swizzled && to.blockStride == 1 && to.lineStride % (4 * kWide) == 0 &&
         !p.columnwise.scales.swizzled && p.columns % (kWide * kFp4Columns) == 0 && p.rows % kFp4Rows == 0;
}

// Strips of the source, `wide` tiles across, that `each` blocks of threads take in turn.
struct Strips {
  int wide;
  uint32_t across;
  uint32_t each;
  bool rowWords;
  bool columnWords;
  // To a tile beside, and to the first one of those above.
  Step steps[2];

  Strips(const QuantizeNvfp4Params& p, int wide, uint32_t across, uint32_t each)
      : wide(wide),
        across(across),
        each(each),
        rowWords(hasScaleWords(p.rowwise.scales)),
        columnWords(hasScaleWords(p.columnwise.scales)),
        steps{beside(p), above(p, wide, int64_t{each})} {}

  // From a tile to the next one, of which `left` follow it.
  __device__ const Step& step(int left) const { return steps[beside(left) == 0]; }

  // How many of those are beside it.
  __device__ int beside(int left) const { return left & (wide - 1); }

 private:
  static Step beside(const QuantizeNvfp4Params& p) {
    return {kFp4Columns,
            {kFp4Columns / 8, 0},
            {kFp4Columns * p.rows / 8, scaleOffset(p.columnwise.scales, kFp4Columns, 0)}};
  }

  // From the last one of those beside each other.
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

// Where a thread's first block of a copy goes, for tiles that follow each other: its words and its scale.
struct Place {
  int64_t word;
  int64_t scale;
  // How many elements are in the source along the line, of the first tile and of the others.
  int inside;
  int insideOthers;

  __device__ void advance(const Distance& step) {
    word += step.words;
    scale += step.scales;
    inside = insideOthers;
  }
};

// How many of `most` elements from `first` on are within `length`.
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
