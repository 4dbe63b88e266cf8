// Rearrangements that change no value: transposes, and block scales from one layout to another.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/layout/placement.h"

namespace lockstep {

// out [batch, columns, rows] = the transposes of x [batch, rows, columns], elements of 4, 8, 16 or 32 bits. With 4 bits, two
// to a byte, rows and columns are even.
struct TransposeParams {
  const void* x;
  void* out;
  int bits;
  int64_t rows;
  int64_t columns;
  int64_t batch = 1;
};

cudaError_t launchTranspose(const TransposeParams& params, cudaStream_t stream);

// out [outer, q, middle, p] = x [outer, p, middle, q], of runs of `unit` bytes. What power of two divides `unit`, up to 16,
// also divides the addresses.
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

// Scales of `bytes` bytes, 1 or 4, from one placement to another of as many lines and blocks. Padding becomes zero.
struct RelayoutParams {
  ScalePlacement from;
  ScalePlacement to;
  int bytes;
};

cudaError_t launchRelayout(const RelayoutParams& params, cudaStream_t stream);

}  // namespace lockstep
