// Transposes and conversion between scale layouts. A block of transposeTiles transposes one tile of one matrix. The
// tile is loaded to shared memory, and each thread transposes small squares of it in registers, so that both loads and
// stores are coalesced. moveScales uses one thread per scale.
#include "kernels/layout/layout.gen.h"

#include <algorithm>

#include "kernels/device/tile.cuh"

namespace lockstep {

namespace {

// Transposition in registers. A thread reads one 32-bit word of each of `kRows` rows. The words hold `kElements`
// columns; each column becomes kChunk words of an output row.
template <int bits>
struct RegisterTile {
  static constexpr int kElements = 32 / bits;
  static constexpr int kRows = bits == 4 ? 16 : 128 / bits;
  static constexpr int kChunk = kRows / kElements;
  static constexpr int kTileRows = 8 * kRows;
  // The number of neighbouring lanes that write consecutive words of the same output row. The other lanes of the warp
  // read other columns.
  static constexpr int kLanes = bits == 4 ? 4 : 32 / kRows;
};

template <int bytes>
struct UnitOf;
template <>
struct UnitOf<1> {
  using Type = uint8_t;
};
template <>
struct UnitOf<2> {
  using Type = uint16_t;
};
template <>
struct UnitOf<4> {
  using Type = uint32_t;
};
// The widest access that divides the length of every row.
template <int bits>
using Unit = typename UnitOf<(bits < 8 ? 1 : bits / 8)>::Type;

// Transposes a square in place: element j of word k becomes element k of word j. It exchanges quadrants of ever smaller
// squares.
template <int bits>
__device__ void transposeSquare(uint32_t (&words)[32 / bits]) {
#pragma unroll
  for (int step = 16 / bits; step >= 1; step /= 2) {
    const int shift = step * bits;
    const uint32_t low = 0xffffffffu / ((1u << shift) + 1);
#pragma unroll
    for (int k = 0; k < 32 / bits; ++k) {
      if (k & step) continue;
      const uint32_t a = words[k];
      const uint32_t b = words[k + step];
      words[k] = (a & low) | ((b & low) << shift);
      words[k + step] = ((a >> shift) & low) | (b & ~low);
    }
  }
}

__device__ void storeChunk(uint8_t* to, const uint32_t (&chunk)[4]) {
  store16(to, chunk[0], chunk[1], chunk[2], chunk[3]);
}

__device__ void storeChunk(uint8_t* to, const uint32_t (&chunk)[2]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(chunk[0], chunk[1]);
}

// Writes the first `rowsLeft` elements of a chunk of an output row; the others are outside the matrix.
template <int bits>
__device__ void storeUnits(uint8_t* to, const uint32_t (&chunk)[RegisterTile<bits>::kChunk], int64_t rowsLeft) {
  constexpr int kSize = sizeof(Unit<bits>);
#pragma unroll
  for (int byte = 0; byte < 4 * RegisterTile<bits>::kChunk; byte += kSize) {
    if (byte * 8 < rowsLeft * bits) {
      *reinterpret_cast<Unit<bits>*>(to + byte) = static_cast<Unit<bits>>(chunk[byte / 4] >> (byte % 4 * 8));
    }
  }
}

template <int bits>
__global__ void __launch_bounds__(kTileThreads) transposeTiles(TransposeParams p, uint32_t tilesAcross) {
  using T = RegisterTile<bits>;
  __shared__ uint32_t tile[T::kTileRows * kTilePitch];
  const int64_t firstRow = static_cast<int64_t>(blockIdx.x / tilesAcross) * T::kTileRows;
  const int64_t firstByte = static_cast<int64_t>(blockIdx.x % tilesAcross) * kTileBytes;
  const int64_t matrix = blockIdx.y * (p.rows * p.columns * bits / 8);
  const uint8_t* x = static_cast<const uint8_t*>(p.x) + matrix;
  loadTile<Unit<bits>, T::kTileRows>(tile, x, p.rows, p.columns * bits / 8, firstRow, firstByte);
  __syncthreads();

  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int group = lane % T::kLanes + T::kLanes * (warp % (8 / T::kLanes));
  const int word = lane / T::kLanes + 32 / T::kLanes * (warp / (8 / T::kLanes));
  uint32_t chunks[T::kElements][T::kChunk];
#pragma unroll
  for (int q = 0; q < T::kChunk; ++q) {
    uint32_t square[T::kElements];
#pragma unroll
    for (int k = 0; k < T::kElements; ++k) {
      square[k] = tile[(group * T::kRows + q * T::kElements + k) * kTilePitch + word];
    }
    transposeSquare<bits>(square);
#pragma unroll
    for (int j = 0; j < T::kElements; ++j) chunks[j][q] = square[j];
  }

  const int64_t row = firstRow + group * T::kRows;
  const int64_t column = (firstByte + word * 4) * 8 / bits;
  const int64_t pitch = p.rows * bits / 8;
  if (row >= p.rows) return;
  uint8_t* out = static_cast<uint8_t*>(p.out) + matrix + column * pitch + row * bits / 8;
  if (pitch % (4 * T::kChunk) == 0) {
#pragma unroll
    for (int j = 0; j < T::kElements; ++j) {
      if (column + j < p.columns) storeChunk(out + j * pitch, chunks[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < T::kElements; ++j) {
      if (column + j < p.columns) storeUnits<bits>(out + j * pitch, chunks[j], p.rows - row);
    }
  }
}

// Copies one scale per thread; neighbouring threads write neighbouring scales.
template <typename Scale>
__global__ void moveScales(ScalePlacement from, ScalePlacement to, bool linesFirst) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t inner = linesFirst ? to.lines : to.blocks;
  const int64_t outer = index / inner;
  if (outer >= (linesFirst ? to.blocks : to.lines)) return;
  const int64_t line = linesFirst ? index % inner : outer;
  const int64_t block = linesFirst ? outer : index % inner;
  static_cast<Scale*>(to.data)[scaleOffset(to, line, block)] =
      static_cast<const Scale*>(from.data)[scaleOffset(from, line, block)];
}

template <int bits>
cudaError_t launchTiles(TransposeParams p, cudaStream_t stream) {
  const int64_t across = ceilDivide(p.columns * bits, kTileBytes * 8);
  const int64_t tiles = across * ceilDivide(p.rows, RegisterTile<bits>::kTileRows);
  if (tiles > INT32_MAX) return cudaErrorInvalidValue;
  const int64_t bytes = p.rows * p.columns * bits / 8;
  for (; p.batch > 0; p.batch -= kMaxGridY) {
    const dim3 blocks(static_cast<uint32_t>(tiles), static_cast<uint32_t>(std::min(p.batch, kMaxGridY)));
    transposeTiles<bits><<<blocks, kTileThreads, 0, stream>>>(p, static_cast<uint32_t>(across));
    p.x = static_cast<const uint8_t*>(p.x) + kMaxGridY * bytes;
    p.out = static_cast<uint8_t*>(p.out) + kMaxGridY * bytes;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchTranspose(const TransposeParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  switch (p.bits) {
    case 4:
      return launchTiles<4>(p, stream);
    case 8:
      return launchTiles<8>(p, stream);
    case 16:
      return launchTiles<16>(p, stream);
    case 32:
      return launchTiles<32>(p, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launchRelayout(const RelayoutParams& p, cudaStream_t stream) {
  if (cudaError_t error = clearPadding(p.to, stream); error != cudaSuccess) return error;
  const int64_t scales = p.to.lines * p.to.blocks;
  if (scales == 0) return cudaSuccess;
  constexpr int kThreads = 256;
  const int64_t blocks = ceilDivide(scales, kThreads);
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  const bool linesFirst = !p.to.swizzled && p.to.lineStride < p.to.blockStride;
  if (p.unit == 1) {
    moveScales<uint8_t><<<static_cast<uint32_t>(blocks), kThreads, 0, stream>>>(p.from, p.to, linesFirst);
  } else {
    moveScales<uint32_t><<<static_cast<uint32_t>(blocks), kThreads, 0, stream>>>(p.from, p.to, linesFirst);
  }
  return cudaGetLastError();
}

}  // namespace lockstep
