// The position of a matrix in a larger one, which determines its random bits (docs/numerics.md, choice 6).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

// The position of a matrix in a larger one, [rows, columns]: row r is its row `row` + r, and column c its column `column` +
// c / width * stride + c % width. All are multiples of 16.
struct MatrixPart {
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t row = 0;
  uint64_t column = 0;
  // 0: the matrix is not part of a larger one.
  uint64_t width = 0;
  uint64_t stride = 0;
};

// Returns the index of an element of the part in the larger matrix, which may be stored transposed.
__host__ __device__ inline uint64_t indexInWhole(const MatrixPart& part, uint64_t row, uint64_t column,
                                                 bool transposed) {
  const uint64_t piece = column < part.width ? 0 : column / part.width;
  const uint64_t across = part.column + piece * part.stride + (column - piece * part.width);
  const uint64_t down = part.row + row;
  return transposed ? across * part.rows + down : down * part.columns + across;
}

}  // namespace lockstep
