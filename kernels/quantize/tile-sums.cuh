// Column sums of each 32 rows of a tile that a block holds in registers, added in the order of
// kernels/rows/column-sum.h.
#pragma once

#include "kernels/device/pair.cuh"
#include "kernels/quantize/code-tile.cuh"
#include "kernels/rows/column-sum.h"

namespace lockstep {

// A tile of a 16-bit type in shared memory, two columns per 32-bit word. Threads exchange elements through it.
struct TileValues {
  alignas(16) uint32_t words[kTile][kTile / 2];
};

// The shared memory of a kernel. With `summed`, the kernel first computes sums in `values`; afterwards it uses the same
// memory as `rest`.
template <typename Rest, bool summed>
union SumsFirst {
  Rest rest;
  TileValues values;
};
template <typename Rest>
union SumsFirst<Rest, false> {
  Rest rest;
};

// Stores the column sums of each 32 rows (a chunk) of the tile in `sums`, [chunks, columns]. A thread sums one chunk of
// rows of two columns. Elements outside the source are 0, and adding 0 does not change a sum that started at +0.
// Synchronises the block before and after it reads `shared`.
template <Wide type>
__device__ inline void sumTile(TileValues& shared, const Bytes16 (&chunks)[TileThread<type>::kRows],
                               const TileOrigin& at, float* sums) {
  using Thread = TileThread<type>;
  constexpr int kPairs = kTile / 2;
  constexpr int kRows = static_cast<int>(kChunkRows);
  static_assert(Thread::kWidth == 8 && kTileThreads / kPairs * kRows == kTile);
#pragma unroll
  for (int i = 0; i < Thread::kRows; ++i) {
    *reinterpret_cast<Bytes16*>(&shared.words[Thread::row(i)][Thread::column() / 2]) = chunks[i];
  }
  __syncthreads();
  const int pair = threadIdx.x % kPairs;
  const int first = threadIdx.x / kPairs * kRows;
  float low = 0;
  float high = 0;
#pragma unroll 16
  for (int r = 0; r < kRows; ++r) {
    const uint32_t both = shared.words[first + r][pair];
    low += lowOf<type>(both);
    high += highOf<type>(both);
  }
  __syncthreads();
  const int64_t row = at.row + first;
  const int64_t column = at.column + 2 * pair;
  if (row >= at.rows) return;
  float* to = sums + row / kChunkRows * at.columns + column;
  if (column < at.columns) to[0] = low;
  if (column + 1 < at.columns) to[1] = high;
}

}  // namespace lockstep
