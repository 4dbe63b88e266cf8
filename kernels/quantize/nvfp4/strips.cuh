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
constexpr int kJoinedTiles = 4;

// Whether kJoinedTiles tiles can be stored together. Rows of scales must be aligned for it, there must be no partial tiles,
// and the columnwise scales of adjacent tiles must be a constant distance apart, which they are not in the swizzled
// layout.
inline bool canJoinTiles(const QuantizeNvfp4Params& p) {
  const ScalePlacement& to = p.rowwise.scales;
  return p.rowwise.codes != nullptr && !to.swizzled && to.blockStride == 1 && to.lineStride % (4 * kJoinedTiles) == 0 &&
         !p.columnwise.scales.swizzled && p.columns % (kJoinedTiles * kFp4Columns) == 0 && p.rows % kFp4Rows == 0;
}

// Describes how the source is divided into `stripCount` vertical strips, each `tilesWide` tiles wide. `blocksPerStrip` thread
// blocks share a strip: each of them processes every `blocksPerStrip`-th row of tiles.
struct Strips {
  int tilesWide;
  uint32_t stripCount;
  uint32_t blocksPerStrip;
  bool rowWords;
  bool columnWords;
  // steps[0] leads to the next tile of the same row of tiles, steps[1] to the first tile of the thread block's next row
  // of tiles, which is further up.
  Step steps[2];

  Strips(const QuantizeNvfp4Params& p, int tilesWide, uint32_t stripCount, uint32_t blocksPerStrip)
      : tilesWide(tilesWide),
        stripCount(stripCount),
        blocksPerStrip(blocksPerStrip),
        rowWords(hasScaleWords(p.rowwise.scales)),
        columnWords(hasScaleWords(p.columnwise.scales)),
        steps{stepRight(p), stepUp(p, tilesWide, int64_t{blocksPerStrip})} {}

  // The step to the next tile. `remaining` is the number of tiles that the thread block has to process after this one.
  __device__ const Step& step(int remaining) const { return steps[remainingInRow(remaining) == 0]; }

  // The number of the `remaining` tiles that are in the current row of tiles.
  __device__ int remainingInRow(int remaining) const { return remaining & (tilesWide - 1); }

 private:
  static Step stepRight(const QuantizeNvfp4Params& p) {
    return {kFp4Columns,
            {kFp4Columns / 8, 0},
            {kFp4Columns * p.rows / 8, scaleOffset(p.columnwise.scales, kFp4Columns, 0)}};
  }

  // The step from the last tile of a row of tiles to the first tile of the thread block's next row of tiles, which is
  // further up.
  static Step stepUp(const QuantizeNvfp4Params& p, int64_t tilesWide, int64_t blocksPerStrip) {
    const Step step = stepRight(p);
    const int64_t columnsBack = tilesWide - 1;
    const int64_t elements = blocksPerStrip * kFp4Rows * p.columns + columnsBack * step.elements;
    return {-elements,
            {-elements / 8, -blocksPerStrip * scaleOffset(p.rowwise.scales, kFp4Rows, 0)},
            {-blocksPerStrip * kFp4Rows / 8 - columnsBack * step.columnwise.words,
             -blocksPerStrip * scaleOffset(p.columnwise.scales, 0, kFp4Rows / kFp4Block) -
                 columnsBack * step.columnwise.scales}};
  }
};

// The output position of a thread's first block of a copy: the index of its word of codes and of its scale. It advances
// from tile to tile.
struct OutputPosition {
  int64_t word;
  int64_t scale;
  // The number of elements of the thread's two blocks that are inside the source, in the current tile.
  int inside;
  // The same number in each later tile.
  int laterInside;

  __device__ void advance(const Distance& step) {
    word += step.words;
    scale += step.scales;
    inside = laterInside;
  }
};

// Returns the number of the `maxCount` elements from `first` on that are below `length`.
__device__ inline int countBelow(int64_t length, int64_t first, int maxCount) {
  return static_cast<int>(min(max(length - first, int64_t{0}), int64_t{maxCount}));
}

__device__ inline OutputPosition rowPosition(const QuantizeNvfp4Params& p, int64_t row, int64_t column) {
  const int inside = keep(countBelow(p.columns, column, 2 * kFp4Block));
  return {(row * p.columns + column) / 8, scaleOffset(p.rowwise.scales, row, column / kFp4Block),
          row < p.rows ? inside : 0, inside};
}

__device__ inline OutputPosition columnPosition(const QuantizeNvfp4Params& p, int64_t row, int64_t column) {
  const int laterInside = keep(column < p.columns ? 2 * kFp4Block : 0);
  return {(column * p.rows + row) / 8, scaleOffset(p.columnwise.scales, column, row / kFp4Block),
          min(countBelow(p.rows, row, 2 * kFp4Block), laterInside), laterInside};
}

}  // namespace lockstep
