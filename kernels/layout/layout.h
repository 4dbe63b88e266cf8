// Operations that rearrange data without changing a value: transposes, axis swaps, and conversion between layouts of block
// scales.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/layout/placement.h"

namespace lockstep {

// Transposes each matrix of x[batch, rows, columns] to out[batch, columns, rows], for elements of 4, 8, 16 or 32 bits.
// 4-bit elements are packed two per byte; rows and columns must then be even.
struct TransposeParams {
  const void* x;
  void* out;
  int bits;
  int64_t rows;
  int64_t columns;
  int64_t batch = 1;
};

cudaError_t launchTranspose(const TransposeParams& params, cudaStream_t stream);

// out[o, j, m, i] = x[o, i, m, j] for x[outer, p, middle, q] and out[outer, q, middle, p], where an element is `unit`
// contiguous bytes. The largest power of two up to 16 that divides `unit` must divide both addresses.
struct SwapAxesParams {
  const void* x;
  void* out;
  int64_t outer;
  int64_t p;
  int64_t middle;
  int64_t q;
  int64_t unit;
};

cudaError_t launchSwapAxes(const SwapAxesParams& params, cudaStream_t stream);

// Copies scales of `bytes` bytes (1 or 4) from one layout to another with the same numbers of lines and blocks. Padding
// is set to zero.
struct RelayoutParams {
  ScalePlacement from;
  ScalePlacement to;
  int bytes;
};

cudaError_t launchRelayout(const RelayoutParams& params, cudaStream_t stream);

}  // namespace lockstep
