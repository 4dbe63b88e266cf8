// Sums down the columns of a matrix: rows ascending in chunks of 32, chunks ascending (docs/numerics.md 7.5).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// plain = columnSum(grad) and weighted = columnSum(grad * y), y = rstd * (x - mean). Either result may be null; without
// `weighted` nothing but grad is read.
struct ColumnSumParams {
  const void* grad = nullptr;
  Wide gradType = Wide::kF32;
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  // One for each row; a null mean is one of 0.
  const float* mean = nullptr;
  const float* rstd = nullptr;
  void* plain = nullptr;
  void* weighted = nullptr;
  Wide outType = Wide::kF32;
  // Raised to max |grad|, NaN ignored. May be null; not used where `weighted`.
  float* amax = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  // A sum for each chunk and column, [chunks, columns] for each result that is not null.
  float* workspace = nullptr;
};

// Rows whose sum is formed before it joins the total of a column.
constexpr int64_t kChunkRows = 32;

__host__ __device__ constexpr int64_t chunksOf(int64_t rows) { return (rows + kChunkRows - 1) / kChunkRows; }

cudaError_t launchColumnSum(const ColumnSumParams& p, cudaStream_t stream);

// Only adds the chunks whose sums lie in the workspace, those of `weighted` before those of `plain`.
cudaError_t launchChunkFold(const ColumnSumParams& p, cudaStream_t stream);

}  // namespace lockstep
