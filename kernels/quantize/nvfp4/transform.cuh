// Column blocks of a tile, with the random Hadamard transform applied (docs/numerics.md 5.5).
#pragma once

#include "kernels/quantize/hadamard/mma.cuh"
#include "kernels/quantize/nvfp4/tile.cuh"

namespace lockstep {

// Transforms the column blocks of a warp, which has eight columns of a tile. block(tile, i) transforms blocks i, i + 2,
// i + 4 and i + 6 of each column, through shared memory that belongs to the warp.
template <bool byMma>
class ColumnTransform {
 public:
  using Tile = Fp4Tile<Wide::kBf16>;

  __device__ explicit ColumnTransform(uint32_t signs) : matrix_(signs, 2, 8) {
    __shared__ Bytes16 buffers[kFp4Threads / 32 * kRows];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    buffer_ = buffers;
    from_ = keep(Tile::at(lane / kFp4Block * 2 * kFp4Block + lane % kFp4Block, warp));
    to_ = keep(warp * kRows + at(lane));
    block_ = keep(warp * kRows + at(Fp4ColumnItem<Wide::kBf16>::firstRow(kFp4Block)));
  }

  // Returns transformed block `i` (0 or 1) of this lane.
  __device__ Fp4Block<Wide::kBf16> block(const Tile& tile, int i) const {
    const Bytes16* from = tile.chunks + i * kFp4Block * Tile::kChunks;
    __syncwarp();
    // 64 rows further down, the swizzle of Fp4Tile::at differs in bit 2 of the chunk's index
    matrix_.transform(from + from_, buffer_ + to_);
    matrix_.transform(from + (from_ ^ 4) + kFp4Rows / 2 * Tile::kChunks, buffer_ + (to_ ^ 4) + kRows / 2);
    __syncwarp();
    Fp4Block<Wide::kBf16> block;
    loadDown(buffer_ + block_, block.words);
    loadDown(buffer_ + block_ + 8, block.words + 4);
    return block;
  }

 private:
  // The number of rows of a warp's buffer, which holds four blocks vertically.
  static constexpr int kRows = kFp4Rows / 2;

  // The index of a row in the buffer. Rows are permuted within groups of eight, so that accesses have no bank
  // conflicts.
  __device__ static int at(int row) { return row ^ (row >> 4 << 1 & 7); }

  HadamardMatrix matrix_;
  Bytes16* buffer_;
  int from_;
  int to_;
  int block_;
};

// Does nothing: for GPUs without the tensor-core step, and for kernels without a transform.
template <>
class ColumnTransform<false> {
 public:
  __device__ explicit ColumnTransform(uint32_t) {}
};

}  // namespace lockstep
