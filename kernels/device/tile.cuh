// A tile of a matrix in shared memory, which threads read along its columns: 128 bytes of each row, and 4 bytes of
// padding per row. With the padding, accesses along rows and along columns are free of bank conflicts.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/device.cuh"

namespace lockstep {

constexpr int kTileBytes = 128;
constexpr int kTilePitch = kTileBytes / 4 + 1;

// Writes 16 bytes in one access; the compiler splits some plain stores.
__device__ inline void store16(void* to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Fills `tileRows` rows of a tile with bytes [firstByte, firstByte + 128) of the rows from `firstRow` on. The matrix
// has rows of `pitch` bytes. Bytes outside the matrix are left undefined. If the pitch is not a multiple of 16, rows
// are read one Unit at a time. All kTileThreads threads of the block must call it and synchronise
// afterwards.
template <typename Unit, int tileRows>
__device__ void loadTile(uint32_t* tile, const void* matrix, int64_t rows, int64_t pitch, int64_t firstRow,
                         int64_t firstByte) {
  const uint8_t* from = static_cast<const uint8_t*>(matrix) + firstRow * pitch + firstByte;
  const int bytesLeft = static_cast<int>(min(pitch - firstByte, static_cast<int64_t>(kTileBytes)));
  const int rowsLeft = static_cast<int>(min(rows - firstRow, static_cast<int64_t>(tileRows)));
  if (pitch % 16 == 0) {
    constexpr int kLoads = tileRows * (kTileBytes / 16) / kTileThreads;
    Bytes16 loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int chunk = threadIdx.x + i * kTileThreads;
      const int row = chunk / (kTileBytes / 16);
      const int byte = chunk % (kTileBytes / 16) * 16;
      if (row < rowsLeft && byte < bytesLeft) loaded[i] = *reinterpret_cast<const Bytes16*>(from + row * pitch + byte);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int chunk = threadIdx.x + i * kTileThreads;
      uint32_t* to = tile + chunk / (kTileBytes / 16) * kTilePitch + chunk % (kTileBytes / 16) * 4;
#pragma unroll
      for (int word = 0; word < 4; ++word) to[word] = loaded[i].words[word];
    }
  } else {
    constexpr int kUnits = kTileBytes / sizeof(Unit);
    for (int i = threadIdx.x; i < tileRows * kUnits; i += kTileThreads) {
      const int row = i / kUnits;
      const int unit = i % kUnits;
      if (row >= rowsLeft || unit * static_cast<int>(sizeof(Unit)) >= bytesLeft) continue;
      reinterpret_cast<Unit*>(tile + row * kTilePitch)[unit] = reinterpret_cast<const Unit*>(from + row * pitch)[unit];
    }
  }
}

}  // namespace lockstep
