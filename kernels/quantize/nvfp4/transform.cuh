// Column blocks of a tile, with the random Hadamard transform applied (docs/numerics.md 5.5).
#pragma once

#include "kernels/quantize/hadamard/mma.cuh"
#include "kernels/quantize/nvfp4/tile.cuh"

namespace lockstep {

// Transforms the column blocks of a warp, eight columns and every other block at a time, through the warp's own shared memory.
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

  // Transformed block `i` of this lane's item.
  __device__ Fp4Block<Wide::kBf16> block(const Tile& tile, int i) const {
    const Bytes16* from = tile.chunks + i * kFp4Block * Tile::kChunks;
    __syncwarp();
    // rows four blocks further have their chunks swizzled with those four apart
    matrix_.transform(from + from_, buffer_ + to_);
    matrix_.transform(from + (from_ ^ 4) + kFp4Rows / 2 * Tile::kChunks, buffer_ + (to_ ^ 4) + kRows / 2);
    __syncwarp();
    Fp4Block<Wide::kBf16> block;
    loadDown(buffer_ + block_, block.words);
    loadDown(buffer_ + block_ + 8, block.words + 4);
    return block;
  }

 private:
  // Rows of a warp's buffer, which holds four blocks one below the other.
  static constexpr int kRows = kFp4Rows / 2;

  // Rows are swizzled among eight as a tile's chunks are.
  __device__ static int at(int row) { return row ^ (row >> 4 << 1 & 7); }

  HadamardMatrix matrix_;
  Bytes16* buffer_;
  int from_;
  int to_;
  int block_;
};

// Specialisation for GPUs without the tensor-core step, and for no transform.
template <>
class ColumnTransform<false> {
 public:
  __device__ explicit ColumnTransform(uint32_t) {}
};

}  // namespace lockstep
