// A tile of 128 rows by 64 columns in shared memory, read as blocks of 16 elements along rows or along columns. Each
// thread processes two consecutive blocks.
#pragma once

#include "kernels/device/device.cuh"
#include "kernels/device/pair.cuh"

namespace lockstep {

constexpr int kFp4Rows = 128;
constexpr int kFp4Columns = 64;
constexpr int kFp4Threads = 256;
constexpr int kFp4Block = 16;

// Returns its argument through a shuffle, so that the compiler keeps the value in a register instead of recomputing it for each
// tile. All 32 lanes of the warp must call it.
__device__ inline int keep(int value) { return __shfl_sync(kFullMask, value, threadIdx.x % 32); }

// 16 consecutive elements of a row or a column.
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

  // Returns max |x|, or NaN if an element is NaN. Not for f32.
  __device__ float largest() const {
    uint32_t pair = words[0];
#pragma unroll
    for (int i = 1; i < kWords; ++i) pair = maxOfMagnitudes<type>(pair, words[i]);
    pair = maxOfMagnitudes<type>(pair, __byte_perm(pair, pair, 0x1032));
    return highOf<type>(pair & 0x7fff7fffu);
  }

  // Returns max |x|, NaN ignored, and replaces each NaN by infinity, which encodes to the same code.
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

  // Replaces each NaN by infinity and returns max |x|, NaN ignored, as removeNaN does. It skips the replacement if no
  // lane of the warp has a NaN. All 32 lanes of the warp must call it.
  __device__ float canonicalizeNaN() {
    if constexpr (type != Wide::kF32) {
      const float amax = largest();
      if (!__any_sync(kFullMask, amax != amax)) return amax;
    }
    return removeNaN();
  }

  // Multiplies the elements by 2^-14. Subnormal results are rounded to nearest.
  __device__ void shrink() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (type == Wide::kF32) {
        words[i] = bitsOf(floatOf(words[i]) * powerOfTwo(-14));
      } else if constexpr (type == Wide::kBf16) {
        // an fma with -0 instead of a product, because mul.bf16x2 needs sm_90
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(words[i]) : "r"(0x38803880u), "r"(0x80008000u));
      } else {
        asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(words[i]) : "r"(0x04000400u));
      }
    }
  }

  // Returns the sign bits of eight elements, starting at `first`, at the sign positions of their codes. The other bits
  // are unspecified.
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

// As Fp4Block::canonicalizeNaN, for the blocks of one thread. amaxes[i] is max |x|, NaN ignored. bounds[i] is max |x|
// after the replacement (not for f32). Returns whether the warp may have had a NaN.
template <Wide type, int count>
__device__ inline bool canonicalizeNaN(Fp4Block<type> (&x)[count], float (&amaxes)[count], float (&bounds)[count]) {
  if constexpr (type != Wide::kF32) {
    bool hasNaN = false;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      amaxes[i] = bounds[i] = x[i].largest();
      hasNaN = hasNaN || amaxes[i] != amaxes[i];
    }
    if (!__any_sync(kFullMask, hasNaN)) return false;
#pragma unroll
    for (int i = 0; i < count; ++i) bounds[i] = fminf(bounds[i], floatOf(0x7f800000u));
  }
#pragma unroll
  for (int i = 0; i < count; ++i) amaxes[i] = x[i].removeNaN();
  return true;
}

template <Wide type>
struct Fp4RowItem;
template <Wide type>
struct Fp4ColumnItem;

template <Wide type>
struct Fp4Tile {
  using Storage = typename WideOf<type>::Storage;
  // The number of 16-byte chunks per row.
  static constexpr int kChunks = kFp4Columns * sizeof(Storage) / 16;
  // The number of elements in a 16-byte chunk.
  static constexpr int kWidth = 16 / sizeof(Storage);

  Bytes16 chunks[kFp4Rows * kChunks];

  // Returns the index of a 16-byte chunk in `chunks`. Chunks are permuted (swizzled) within their row, so that the
  // accesses of a warp have no bank conflicts.
  __device__ static int at(int row, int chunk) {
    return row * kChunks + (chunk ^ ((row ^ row / (2 * kFp4Block) * 2 ^ chunk / 8 * 4) & 7));
  }

  // Loads one thread's chunks of successive tiles of a matrix. Only the first of these tiles may extend beyond the
  // bottom of the matrix.
  class Loader {
   public:
    // The matrix is [rows, columns], and its rows are whole chunks. The first tile is that at (firstRow, firstColumn).
    // All 32 lanes of the warp must construct it.
    __device__ Loader(const void* x, int64_t rows, int64_t columns, int64_t firstRow, int64_t firstColumn)
        : columns_(columns), to_(keep(16 * at(threadIdx.x / kChunks, threadIdx.x % kChunks))) {
      const int64_t row = firstRow + threadIdx.x / kChunks;
      const int64_t column = firstColumn + threadIdx.x % kChunks * kWidth;
      from_ = static_cast<const Storage*>(x) + row * columns + column;
      atEnd_ = column < columns ? static_cast<int>(min(rows - row, int64_t{kFp4Rows})) : 0;
      others_ = column < columns ? kFp4Rows : 0;
    }

    // Starts the asynchronous load of the next tile. Elements outside the matrix become 0. The tile after that is
    // `step` elements further in the matrix.
    __device__ void start(Fp4Tile& tile, int64_t step) {
      constexpr int kStep = kFp4Threads / kChunks;
#pragma unroll
      for (int i = 0; i < kFp4Rows / kStep; ++i) {
        // the byte offset of this thread's chunk i: 16 * at(row + i * kStep, chunk)
        char* to = tile.bytes() + (to_ ^ 16 * (at(i * kStep, 0) % kChunks)) + 16 * i * kStep * kChunks;
        // with 0 source bytes, the copy reads nothing and writes 16 zeros
        asm volatile(
            "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
            "l"(from_ + i * kStep * columns_), "r"(i * kStep < atEnd_ ? 16 : 0)
            : "memory");
      }
      from_ += step;
      atEnd_ = others_;
    }

   private:
    const Storage* from_;
    int64_t columns_;
    // The byte offset in the tile of this thread's first 16-byte chunk.
    int to_;
    // The number of rows from this thread's first row to the end of the matrix, at most the rows of a tile: in the next tile
    // (atEnd_), and in the tiles after it (others_).
    int atEnd_;
    int others_;
  };

  // Fills the tile with the 128 x 64 elements at (firstRow, firstColumn) of a [rows, columns] matrix. Elements outside
  // the matrix become 0.
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

  // Waits for this thread's asynchronous loads, then synchronises the block.
  __device__ static void wait() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }

  __device__ char* bytes() { return reinterpret_cast<char*>(chunks); }
  __device__ const char* bytes() const { return reinterpret_cast<const char*>(chunks); }

  // Returns row block `i` (0 or 1) of a thread.
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

  // Returns column block `i` (0 or 1) of a thread. All 32 lanes of the warp must call it.
  __device__ Fp4Block<type> columnBlock(const Fp4ColumnItem<type>& item, int i) const {
    const int byte = item.byte + 16 * i * kFp4Block * kChunks;
    Fp4Block<type> block;
    if constexpr (type == Wide::kF32) {
#pragma unroll
      for (int j = 0; j < kFp4Block; ++j) {
        block.words[j] = *reinterpret_cast<const uint32_t*>(bytes() + (byte ^ 16 * (j & 7)) + 16 * j * kChunks);
      }
    } else {
      __syncwarp();
      loadDown(bytes() + byte, block.words);
      loadDown(bytes() + byte + 16 * 8 * kChunks, block.words + 4);
    }
    return block;
  }
};

// The two row blocks of a thread: blocks `block` and `block` + 1 of row `row`. Two lanes share a row, so a warp covers
// 16 rows. The first block starts at byte offset `byte` of the tile. All 32 lanes of the warp must construct it.
template <Wide type>
struct Fp4RowItem {
  int row = threadIdx.x / 2;
  int block = threadIdx.x % 2 * 2;
  int byte = keep(16 * Fp4Tile<type>::at(row, (block * kFp4Block) / Fp4Tile<type>::kWidth));
};

// The two column blocks of a thread: blocks `line` and `line` + 1 of column `column`, counted from the top. Four lanes
// share a column, so a warp covers eight whole columns. All 32 lanes of the warp must construct it.
template <Wide type>
struct Fp4ColumnItem {
  using Tile = Fp4Tile<type>;
  int line = threadIdx.x % 4 * 2;
  int column = threadIdx.x / 4;
  // The byte offset in the tile from which this lane reads (f32), or whose address it passes to loadDown.
  int byte = keep(type == Wide::kF32 ? 16 * Tile::at(line * kFp4Block, column / 4) + column % 4 * 4
                                     : 16 * Tile::at(firstRow(2 * kFp4Block), column / 8));

  // Returns the tile row whose address this lane passes to the first loadDown (ldmatrix.x4). The four lanes of a column
  // read four blocks, which start `blockDistance` rows apart. Matrix j holds rows 2j and 2j + 1 of each of these blocks. Lanes
  // 8j to 8j + 7 pass the addresses of its 8 rows.
  __device__ static int firstRow(int blockDistance) {
    const int lane = threadIdx.x % 32;
    return lane % 8 / 2 * blockDistance + lane / 8 * 2 + lane % 2;
  }
};

}  // namespace lockstep
