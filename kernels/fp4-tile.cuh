// 128 rows of 64 elements in shared memory, read as blocks of 16: along the rows by one thread for two blocks, down the
// columns by one thread for the one or two columns that share a word.
#pragma once

#include "kernels/device.cuh"
#include "kernels/pair.cuh"

namespace lockstep {

constexpr int kFp4Rows = 128;
constexpr int kFp4Columns = 64;
constexpr int kFp4Threads = 256;
constexpr int kFp4Block = 16;

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

  // max |x|, NaN ignored. Each NaN becomes infinity, which has the same code, and raises `bound`, max |x| otherwise.
  __device__ float settle(float& bound) {
    if constexpr (type == Wide::kF32) {
      float largest = 0;
      bound = 0;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        largest = fmaxf(largest, fabsf(floatOf(words[i])));
        words[i] = bitsOf(fminf(floatOf(words[i]), floatOf(0x7f800000u)));
        bound = fmaxf(bound, fabsf(floatOf(words[i])));
      }
      return largest;
    } else {
      uint32_t largest = words[0];
#pragma unroll
      for (int i = 1; i < kWords; ++i) largest = maxOfMagnitudes<type>(largest, words[i]);
      largest = maxOfMagnitudes<type>(largest, __byte_perm(largest, largest, 0x1032)) & 0x7fffu;
      bound = lowOf<type>(largest);
      if (bound == bound) return bound;
      bound = floatOf(0x7f800000u);
      largest = 0;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        largest = raiseToPair<type>(largest, words[i]);
        words[i] = minOfPairs<type>(words[i], type == Wide::kBf16 ? 0x7f807f80u : 0x7c007c00u);
      }
      return lowOf<type>(maxOfLanes<type>(largest));
    }
  }

  __device__ float settle() {
    float bound;
    return settle(bound);
  }
};

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

  // Starts to fill the tile whose first element is (firstRow, firstColumn) of a [rows, columns] matrix; 0 outside of
  // that. Rows are whole chunks, unless `ragged`.
  template <bool ragged>
  __device__ void start(const void* x, int64_t rows, int64_t columns, int64_t firstRow, int64_t firstColumn) {
    constexpr int kStep = kFp4Threads / kChunks;
    const int chunk = threadIdx.x % kChunks;
    const int row = threadIdx.x / kChunks;
    const int64_t column = firstColumn + chunk * kWidth;
    const int rowsLeft = column < columns ? static_cast<int>(min(rows - firstRow, int64_t{kFp4Rows})) : 0;
    const Storage* from = static_cast<const Storage*>(x) + (firstRow + row) * columns + column;
    const int64_t step = kStep * columns;
#pragma unroll
    for (int i = 0; i < kFp4Rows / kStep; ++i) {
      const bool inside = row + i * kStep < rowsLeft;
      Bytes16* to = chunks + at(row + i * kStep, chunk);
      const Storage* source = from + i * step;
      if constexpr (!ragged) {
        // of 0 bytes none is read, and 16 zeros are written
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                     "l"(source), "r"(inside ? 16 : 0)
                     : "memory");
      } else {
#pragma unroll 1
        for (int j = 0; j < kWidth; ++j) {
          reinterpret_cast<Storage*>(to)[j] = inside && column + j < columns ? source[j] : Storage{0};
        }
      }
    }
  }

  // Ends a group of started copies, and waits for all groups but the last one.
  __device__ static void endGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  __device__ static void waitForEarlierGroups() {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
  }

  // Waits for what this thread started, and for the other threads of the block.
  __device__ static void wait() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }

  // Block `block` of a row.
  __device__ Fp4Block<type> rowBlock(int row, int block) const {
    constexpr int kOfBlock = kFp4Block / kWidth;
    Fp4Block<type> result;
#pragma unroll
    for (int i = 0; i < kOfBlock; ++i) {
      const Bytes16 chunk = chunks[at(row, block * kOfBlock + i)];
#pragma unroll
      for (int j = 0; j < 4; ++j) result.words[4 * i + j] = chunk.words[j];
    }
    return result;
  }

  // The blocks down the columns of word `word`, from row 16 * line on.
  __device__ void columnBlocks(int line, int word, Fp4Block<type> (&blocks)[kAcross]) const {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(chunks);
    const int first = at(line * kFp4Block, word / 4) * 4 + word % 4;
    uint32_t down[kFp4Block];
#pragma unroll
    for (int i = 0; i < kFp4Block; ++i) down[i] = words[(first ^ (i & 7) * 4) + i * kChunks * 4];
#pragma unroll
    for (int i = 0; i < Fp4Block<type>::kWords; ++i) {
      if constexpr (kAcross == 1) {
        blocks[0].words[i] = down[i];
      } else {
        blocks[0].words[i] = lowLanes(down[2 * i], down[2 * i + 1]);
        blocks[1].words[i] = highLanes(down[2 * i], down[2 * i + 1]);
      }
    }
  }
};

// Which two row blocks are this thread's: a warp has 16 rows, two lanes a row. Blocks are `block` and `block` + 1.
struct Fp4RowItem {
  int row = threadIdx.x / 2;
  int block = threadIdx.x % 2 * 2;
};

// Which column blocks are this thread's: a warp has all 16 columns of kBelow 16x16 blocks, lanes below each other
// first.
template <Wide type>
struct Fp4ColumnItem {
  using Tile = Fp4Tile<type>;
  // Block line of the tile, and word of its rows.
  int line;
  int word;

  __device__ explicit Fp4ColumnItem(int pass)
      : line((pass * 2 + threadIdx.x / 128) * Tile::kBelow + threadIdx.x % Tile::kBelow),
        word(threadIdx.x / 32 % 4 * (32 / Tile::kBelow) + threadIdx.x % 32 / Tile::kBelow) {}
};

}  // namespace lockstep
