// Blocks down the columns of a tile, transformed on the way (docs/numerics.md 5.5).
#pragma once

#include "kernels/fp4-tile.cuh"
#include "kernels/hadamard-mma.cuh"

namespace lockstep {

// Transforms the blocks that a warp has of tiles, eight columns at a time, by way of its own part of shared memory.
template <bool byMma>
class ColumnTransform {
 public:
  using Tile = Fp4Tile<Wide::kBf16>;

  __device__ explicit ColumnTransform(uint32_t signs) : matrix_(signs, 2, 8) {
    constexpr int kRows = kFp4Rows / 2;
    __shared__ Bytes16 buffers[kFp4Threads / 32 * kRows];
    const Fp4ColumnItem<Wide::kBf16> item(0);
    const int lane = threadIdx.x % 32;
    const int firstRow = item.line / Tile::kBelow * kRows;
    buffer_ = buffers;
    from_ = keep(Tile::at(firstRow + lane, item.column / 8));
    to_ = keep(threadIdx.x / 32 * kRows + at(lane));
    block_ = keep(threadIdx.x / 32 * kRows + at(item.firstRow() - firstRow));
  }

  // The block of this lane down column i of its item.
  __device__ Fp4Block<Wide::kBf16> block(const Tile& tile, int i) const {
    __syncwarp();
    // 32 rows further chunks are exchanged with those four apart
    matrix_.transform(tile.chunks + (from_ ^ i), buffer_ + to_);
    matrix_.transform(tile.chunks + (from_ ^ i ^ 4) + 32 * Tile::kChunks, buffer_ + (to_ ^ 4) + 32);
    __syncwarp();
    Fp4Block<Wide::kBf16> block;
    loadDown(buffer_ + block_, block.words);
    loadDown(buffer_ + block_ + 8, block.words + 4);
    return block;
  }

 private:
  // Rows are exchanged among eight as a tile's chunks are.
  __device__ static int at(int row) { return row ^ (row >> 4 << 1 & 7); }

  HadamardMatrix matrix_;
  Bytes16* buffer_;
  int from_;
  int to_;
  int block_;
};

// Where tensor cores have no step for it, or there is no transform.
template <>
class ColumnTransform<false> {
 public:
  __device__ explicit ColumnTransform(uint32_t) {}
};

}  // namespace lockstep
