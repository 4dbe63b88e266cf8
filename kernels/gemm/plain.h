// Matrix products by plain f32 arithmetic: the datapath `fp32` (docs/datapath.md 4).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

struct GemmPlainParams {
  // Products of one shape: [batch, ...] of each of the following.
  int64_t batch = 1;
  // f32 [rows, depth] and [columns, depth], 16-byte aligned, and the elements from line to line, multiples of 4.
  const float* x = nullptr;
  const float* w = nullptr;
  int64_t xPitch = 0;
  int64_t wPitch = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  // f32 [rows, columns]: out[m, n] = the sum over k, ascending from +0, of fl(x[m, k] * w[n, k]), each sum rounded.
  float* out = nullptr;
  int64_t outPitch = 0;
};

cudaError_t launchGemmPlain(const GemmPlainParams& p, cudaStream_t stream);

}  // namespace lockstep
