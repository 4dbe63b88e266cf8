// 128 rows of 64 elements in shared memory, read as blocks of 16: along the rows by one thread for two blocks, down the
// columns by one thread for one or two columns.
#pragma once

#include "kernels/device.cuh"
#include "kernels/pair.cuh"

namespace lockstep {

constexpr int kFp4Rows = 128;
constexpr int kFp4Columns = 64;
constexpr int kFp4Threads = 256;
constexpr int kFp4Block = 16;

// A value that the compiler keeps, for it seems to come from another lane, and does not compute anew for each tile. The
// whole warp calls.
__device__ inline int keep(int value) { return __shfl_sync(0xffffffffu, value, threadIdx.x % 32); }

// 16 elements of a line.
template <Wide type>
struct Fp4Block {
  static constexpr int kWords = kFp4Block * sizeof(typename WideOf<type>::Storage) / 4;
  uint32_t words[kWords];

  __device__ float operator[](int i) const {
    if constexpr (type == Wide::kF32) {
      return floatOf(words[i]);
    } else {
      return i % 2 == 0 ? lowOf<type>(words[i / 2]) : highOf<type>(words[i / 2]);
    }
  }

  // max |x|, NaN if there is one. Not of f32.
  __device__ float largest() const {
    uint32_t pair = words[0];
#pragma unroll
    for (int i = 1; i < kWords; ++i) pair = maxOfMagnitudes<type>(pair, words[i]);
    pair = maxOfMagnitudes<type>(pair, __byte_perm(pair, pair, 0x1032));
    return highOf<type>(pair & 0x7fff7fffu);
  }

  // max |x|, NaN ignored. Each NaN becomes infinity, which has the same code.
  __device__ float removeNaN() {
    if constexpr (type == Wide::kF32) {
      float largest = 0;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        largest = fmaxf(largest, fabsf(floatOf(words[i])));
        words[i] = bitsOf(fminf(floatOf(words[i]), floatOf(0x7f800000u)));
      }
      return largest;
    } else {
      uint32_t largest = 0;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        largest = raiseToPair<type>(largest, words[i]);
        words[i] = minOfPairs<type>(words[i], type == Wide::kBf16 ? 0x7f807f80u : 0x7c007c00u);
      }
      return lowOf<type>(maxOfLanes<type>(largest));
    }
  }

  // The same. The whole warp calls.
  __device__ float settle() {
    if constexpr (type != Wide::kF32) {
      const float amax = largest();
      if (!__any_sync(0xffffffffu, amax != amax)) return amax;
    }
    return removeNaN();
  }

  // The sign bits of eight elements from `first` on, in the places of their codes, among other bits.
  __device__ uint32_t signs(int first) const {
    if constexpr (type == Wide::kF32) {
      uint32_t signs = 0;
#pragma unroll
      for (int i = 7; i >= 0; --i) signs = __funnelshift_l(words[first + i], signs, 4);
      return signs;
    } else {
      const uint32_t* x = words + first / 2;
      const uint32_t left = __byte_perm(x[0], x[1], 0x7351);
      const uint32_t right = __byte_perm(x[2], x[3], 0x7351);
      return mergeBits(0x0f0f0f0fu, lowLanes(left, right) >> 4, highLanes(left, right));
    }
  }
};

// The same of blocks that one thread has. `bounds` are max |x| after it, but not of f32.
template <Wide type, int count>
__device__ inline void settle(Fp4Block<type> (&x)[count], float (&amaxes)[count], float (&bounds)[count]) {
  if constexpr (type != Wide::kF32) {
    bool hasNaN = false;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      amaxes[i] = bounds[i] = x[i].largest();
      hasNaN = hasNaN || amaxes[i] != amaxes[i];
    }
    if (!__any_sync(0xffffffffu, hasNaN)) return;
#pragma unroll
    for (int i = 0; i < count; ++i) bounds[i] = fminf(bounds[i], floatOf(0x7f800000u));
  }
#pragma unroll
  for (int i = 0; i < count; ++i) amaxes[i] = x[i].removeNaN();
}

template <Wide type>
struct Fp4RowItem;
template <Wide type>
struct Fp4ColumnItem;

template <Wide type>
struct Fp4Tile {
  using Storage = typename WideOf<type>::Storage;
  // Chunks of 16 bytes in a row, and elements of one.
  static constexpr int kChunks = kFp4Columns * sizeof(Storage) / 16;
  static constexpr int kWidth = 16 / sizeof(Storage);
  // Blocks that one thread reads down the columns at once, passes over the tile that takes, and lanes below each other.
  static constexpr int kAcross = 4 / sizeof(Storage);
  static constexpr int kPasses = 2 / kAcross;
  static constexpr int kBelow = 2 * kAcross;

  Bytes16 chunks[kFp4Rows * kChunks];

  // Chunks are exchanged in their row so that no access of a warp meets a bank twice.
  __device__ static int at(int row, int chunk) {
    return row * kChunks + (chunk ^ ((row ^ (row >> 4) * (8 / kBelow) ^ (chunk >> 3) * 4) & 7));
  }

  // What a thread loads of tiles that follow each other up a matrix.
  class Loader {
   public:
    // For [rows, columns], whose rows are whole chunks, from the tile at (firstRow, firstColumn) on, `step` elements
    // apart. The whole warp calls.
    __device__ Loader(const void* x, int64_t rows, int64_t columns, int64_t firstRow, int64_t firstColumn, int64_t step)
        : columns_(columns), step_(step), to_(keep(16 * at(threadIdx.x / kChunks, threadIdx.x % kChunks))) {
      const int64_t row = firstRow + threadIdx.x / kChunks;
      const int64_t column = firstColumn + threadIdx.x % kChunks * kWidth;
      from_ = static_cast<const Storage*>(x) + row * columns + column;
      atEnd_ = column < columns ? static_cast<int>(min(rows - row, int64_t{kFp4Rows})) : 0;
      above_ = column < columns ? kFp4Rows : 0;
    }

    // Starts to fill a tile with the next one; 0 outside of the matrix.
    __device__ void start(Fp4Tile& tile) {
      constexpr int kStep = kFp4Threads / kChunks;
#pragma unroll
      for (int i = 0; i < kFp4Rows / kStep; ++i) {
        // as at(row + i * kStep, chunk)
        char* to = tile.bytes() + (to_ ^ 16 * (at(i * kStep, 0) % kChunks)) + 16 * i * kStep * kChunks;
        // of 0 bytes none is read, and 16 zeros are written
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                     "l"(from_ + i * kStep * columns_), "r"(i * kStep < atEnd_ ? 16 : 0)
                     : "memory");
      }
      from_ -= step_;
      atEnd_ = above_;
    }

   private:
    const Storage* from_;
    int64_t columns_;
    int64_t step_;
    // Byte of the tile where this thread's first chunk goes.
    int to_;
    // Rows from this thread's first one on in the next tile, and in those after it, or a tile's.
    int atEnd_;
    int above_;
  };

  // Fills the tile whose first element is (firstRow, firstColumn) of a [rows, columns] matrix; 0 outside of that.
  __device__ void fill(const void* x, int64_t rows, int64_t columns, int64_t firstRow, int64_t firstColumn) {
    constexpr int kStep = kFp4Threads / kChunks;
    const int chunk = threadIdx.x % kChunks;
    const int64_t column = firstColumn + chunk * kWidth;
#pragma unroll 1
    for (int row = threadIdx.x / kChunks; row < kFp4Rows; row += kStep) {
      const Storage* from = static_cast<const Storage*>(x) + (firstRow + row) * columns + column;
      Storage* to = reinterpret_cast<Storage*>(chunks + at(row, chunk));
#pragma unroll 1
      for (int i = 0; i < kWidth; ++i) to[i] = firstRow + row < rows && column + i < columns ? from[i] : Storage{0};
    }
  }

  // Waits for what this thread started, and for the other threads of the block.
  __device__ static void wait() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }

  __device__ char* bytes() { return reinterpret_cast<char*>(chunks); }
  __device__ const char* bytes() const { return reinterpret_cast<const char*>(chunks); }

  // Block `i` of an item.
  __device__ Fp4Block<type> rowBlock(const Fp4RowItem<type>& item, int i) const {
    constexpr int kOfBlock = kFp4Block / kWidth;
    Fp4Block<type> result;
#pragma unroll
    for (int k = 0; k < kOfBlock; ++k) {
      const Bytes16 chunk = *reinterpret_cast<const Bytes16*>(bytes() + (item.byte ^ 16 * (i * kOfBlock + k)));
#pragma unroll
      for (int j = 0; j < 4; ++j) result.words[4 * k + j] = chunk.words[j];
    }
    return result;
  }

  // The block down column i of an item. The whole warp calls.
  __device__ Fp4Block<type> columnBlock(const Fp4ColumnItem<type>& item, int i) const {
    Fp4Block<type> block;
    if constexpr (kAcross == 1) {
#pragma unroll
      for (int j = 0; j < kFp4Block; ++j) {
        block.words[j] = *reinterpret_cast<const uint32_t*>(bytes() + (item.byte ^ 16 * (j & 7)) + 16 * j * kChunks);
      }
    } else {
      const char* from = bytes() + (item.byte ^ 16 * i);
      __syncwarp();
      loadDown(from, block.words);
      loadDown(from + 16 * 8 * kChunks, block.words + 4);
    }
    return block;
  }
};

// Which two row blocks are this thread's: a warp has 16 rows, two lanes a row. Blocks are `block` and `block` + 1, and
// the first one starts at `byte` of a tile. The whole warp constructs it.
template <Wide type>
struct Fp4RowItem {
  int row = threadIdx.x / 2;
  int block = threadIdx.x % 2 * 2;
  int byte = keep(16 * Fp4Tile<type>::at(row, block * kFp4Block / Fp4Tile<type>::kWidth));
};

// Which column blocks are this thread's: a warp has all 16 columns of kBelow 16x16 blocks, lanes below each other
// first, and the second column of two is kApart from the first. The whole warp constructs it.
template <Wide type>
struct Fp4ColumnItem {
  using Tile = Fp4Tile<type>;
  static constexpr int kBelow = Tile::kBelow;
  static constexpr int kApart = 8;
  // Block line of the tile, and column of it.
  int line;
  int column;
  // Byte of the tile from which this lane reads, or of which it tells loadDown.
  int byte;

  __device__ explicit Fp4ColumnItem(int pass)
      : line((pass * 2 + threadIdx.x / 128) * kBelow + threadIdx.x % kBelow),
        column(threadIdx.x / 32 % 4 * kFp4Block + threadIdx.x % 32 / kBelow),
        byte(keep(Tile::kAcross == 1 ? 16 * Tile::at(line * kFp4Block, column / 4) + column % 4 * 4
                                     : 16 * Tile::at(firstRow(), column / 8))) {}

  // The first row of which this lane tells loadDown: rows 2j and 2j + 1 of the lines below each other are matrix j.
  __device__ int firstRow() const {
    const int lane = threadIdx.x % 32;
    return (line - lane % kBelow + lane % 8 / 2) * kFp4Block + lane / 8 * 2 + lane % 2;
  }
};

}  // namespace lockstep
