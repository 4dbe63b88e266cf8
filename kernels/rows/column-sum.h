// Column sums of a matrix. A chunk is 32 rows. The rows of a chunk are added in ascending order, and then the sums of
// the chunks in ascending order (docs/numerics.md §7.5).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/rows/norm.gen.h"

namespace lockstep {

// The number of rows in a chunk. The columns of each chunk are summed first.
constexpr int64_t kChunkRows = 32;

__host__ __device__ constexpr int64_t chunksOf(int64_t rows) { return (rows + kChunkRows - 1) / kChunkRows; }

// Adds column sums of chunks that are already in the workspace: first the sums of `weighted`, then the sums of `out`.
cudaError_t launchChunkFold(const ColumnSumParams& p, cudaStream_t stream);

}  // namespace lockstep
