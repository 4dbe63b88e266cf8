// Column sums of a matrix. A chunk is 32 rows. The rows of a chunk are added in ascending order, and then the sums of
// the chunks in ascending order (docs/numerics.md §7.5).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// plain = columnSum(grad) and weighted = columnSum(grad * y), where y = rstd * (x - mean). Either result may be null.
// Without `weighted`, only grad is read.
struct ColumnSumParams {
  const void* grad = nullptr;
  Wide gradType = Wide::kF32;
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  // One value per row; a null mean means 0.
  const float* mean = nullptr;
  const float* rstd = nullptr;
  void* plain = nullptr;
  void* weighted = nullptr;
  Wide outType = Wide::kF32;
  // If not null, replaced by max |grad| if that is larger; NaN is ignored. Not used if `weighted` is wanted.
  float* amax = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  // Receives the column sums of each chunk of 32 rows: [chunks, columns] for each result that is not null.
  float* workspace = nullptr;
};

// The number of rows in a chunk. The columns of each chunk are summed first.
constexpr int64_t kChunkRows = 32;

__host__ __device__ constexpr int64_t chunksOf(int64_t rows) { return (rows + kChunkRows - 1) / kChunkRows; }

cudaError_t launchColumnSum(const ColumnSumParams& p, cudaStream_t stream);

// Adds column sums of chunks that are already in the workspace: first the sums of `weighted`, then the sums of `plain`.
cudaError_t launchChunkFold(const ColumnSumParams& p, cudaStream_t stream);

}  // namespace lockstep
