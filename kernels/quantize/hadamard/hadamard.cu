// Writes the transform of the transpose of a bf16 matrix. A thread block loads a 128 x 64 tile to shared memory. Each
// thread transforms two blocks of 16 elements of a column.
#include "kernels/quantize/hadamard.gen.h"
#include "kernels/quantize/hadamard/hadamard.cuh"
#include "kernels/quantize/nvfp4/tile.cuh"

namespace lockstep {

namespace {

using Tile = Fp4Tile<Wide::kBf16>;

template <bool ragged>
__global__ void __launch_bounds__(kFp4Threads) hadamardColumns(const HadamardParams p) {
  __shared__ Tile tile;
  const uint32_t across = static_cast<uint32_t>(ceilDivide(p.columns, kFp4Columns));
  const int64_t firstRow = int64_t{blockIdx.x / across} * kFp4Rows;
  const int64_t firstColumn = int64_t{blockIdx.x % across} * kFp4Columns;
  if constexpr (ragged) {
    tile.fill(p.x, p.rows, p.columns, firstRow, firstColumn);
  } else {
    Tile::Loader(p.x, p.rows, p.columns, firstRow, firstColumn).start(tile, 0);
  }
  tile.wait();
  const Fp4ColumnItem<Wide::kBf16> item;
  const int64_t column = firstColumn + item.column;
  Fp4Block<Wide::kBf16> x[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) x[i] = tile.columnBlock(item, i);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row = firstRow + (item.line + i) * kFp4Block;
    if (row >= p.rows || column >= p.columns) break;
    uint32_t(&y)[8] = x[i].words;
    hadamard(y, p.signs);
    uint4* to = reinterpret_cast<uint4*>(p.out + column * p.rows + row);
    to[0] = make_uint4(y[0], y[1], y[2], y[3]);
    to[1] = make_uint4(y[4], y[5], y[6], y[7]);
  }
}

}  // namespace

cudaError_t launchHadamard(const HadamardParams& p, cudaStream_t stream) {
  if (p.rows % kFp4Block != 0) return cudaErrorInvalidValue;
  const int64_t tiles = ceilDivide(p.rows, kFp4Rows) * ceilDivide(p.columns, kFp4Columns);
  if (tiles == 0) return cudaSuccess;
  if (p.columns % Tile::kWidth == 0) {
    hadamardColumns<false><<<static_cast<uint32_t>(tiles), kFp4Threads, 0, stream>>>(p);
  } else {
    hadamardColumns<true><<<static_cast<uint32_t>(tiles), kFp4Threads, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace lockstep
