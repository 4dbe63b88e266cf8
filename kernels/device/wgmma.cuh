// Products of tiles in shared memory by Hopper's wgmma. A tile of 16-bit elements consists of chunks of 64 columns; a chunk is
// 128 bytes a row, swizzled as the tensor copy engine's 128-byte mode writes it, and begins at a multiple of 1024 bytes.
#pragma once

#include "kernels/device/wgmma.gen.cuh"

namespace lockstep {

// The columns of a chunk, the bytes of its rows, and the bytes of eight rows, after which the swizzling repeats.
constexpr int kChunkColumns = 64;
constexpr int kChunkPitch = 128;
constexpr int kSwizzleBytes = 1024;
// The depth of one instruction.
constexpr int kWgmmaDepth = 16;

// The descriptor of a matrix in shared memory. `leading` is the number of bytes between chunks, for instructions that read
// columns of several chunks.
__device__ inline uint64_t matrixDescriptor(uint32_t address, uint32_t leading) {
  constexpr uint64_t kSwizzled128 = 1ull << 62;
  constexpr uint64_t kStride = static_cast<uint64_t>(kSwizzleBytes / 16) << 32;
  return kSwizzled128 | kStride | static_cast<uint64_t>((leading & 0x3ffff) >> 4) << 16 | (address & 0x3ffff) >> 4;
}

// Orders accesses to the registers of accumulators and operands before the instructions that follow.
__device__ inline void beginWgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commitWgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `pending` groups are incomplete.
template <int pending>
__device__ inline void awaitWgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Keeps the compiler from moving accesses to the registers across this point.
template <int count>
__device__ inline void pinRegisters(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

template <int count>
__device__ inline void pinRegisters(uint32_t (&operands)[count][4]) {
#pragma unroll
  for (int k = 0; k < count; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(operands[k][i])::"memory");
  }
}

// Starts d = a * b^T for 64 rows of tile `a` and `columns` rows of tile `b`, whose rows are `depth` elements. `aChunk` and
// `bChunk` are the bytes of their chunks.
template <Wide type, int columns, int depth>
__device__ inline void startRowsByRows(float (&d)[columns / 2], uint32_t a, uint32_t aChunk, uint32_t b,
                                       uint32_t bChunk) {
#pragma unroll
  for (int k = 0; k < depth / kWgmmaDepth; ++k) {
    const int chunk = k / 4;
    const int within = k % 4 * 32;
    Wgmma<type, columns, false>::multiply(d, matrixDescriptor(a + chunk * aChunk + within, 0),
                                          matrixDescriptor(b + chunk * bChunk + within, 0), k != 0);
  }
}

// Starts d += a * b for 64 rows of registers `a` and `columns` columns of tile `b`, which has `depth` rows. Without `adds`, the
// sum begins at zero.
template <Wide type, int columns, int depth>
__device__ inline void startRegistersByTile(float (&d)[columns / 2], const uint32_t (&a)[depth / kWgmmaDepth][4],
                                            uint32_t b, uint32_t bChunk, bool adds = true) {
#pragma unroll
  for (int k = 0; k < depth / kWgmmaDepth; ++k) {
    Wgmma<type, columns, true>::multiply(d, a[k], matrixDescriptor(b + k * kWgmmaDepth * kChunkPitch, bChunk),
                                         adds || k != 0);
  }
}

// Starts d = a^T * b for 64 columns of tile `a` and `columns` columns of tile `b`, which have `depth` rows. `bChunk` is the bytes
// of a chunk of b.
template <Wide type, int columns, int depth>
__device__ inline void startColumnsByTile(float (&d)[columns / 2], uint32_t a, uint32_t b, uint32_t bChunk) {
#pragma unroll
  for (int k = 0; k < depth / kWgmmaDepth; ++k) {
    const int rows = k * kWgmmaDepth * kChunkPitch;
    Wgmma<type, columns, true>::template multiply<true>(d, matrixDescriptor(a + rows, 0),
                                                        matrixDescriptor(b + rows, bChunk), k != 0);
  }
}

// Two values rounded and packed, the first in the low half.
template <Wide type>
__device__ inline uint32_t packPair(float low, float high) {
  uint32_t pair;
  if constexpr (type == Wide::kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// Rounds the accumulators of 64 rows and `columns` columns to the left operand of a product over the columns.
template <Wide type, int columns>
__device__ inline void packAccumulators(const float (&d)[columns / 2], uint32_t (&a)[columns / kWgmmaDepth][4]) {
#pragma unroll
  for (int k = 0; k < columns / kWgmmaDepth; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[k][i] = packPair<type>(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
    }
  }
  // the conversions may not follow the start of a product that overwrites the accumulators
  pinRegisters(a);
}

}  // namespace lockstep
