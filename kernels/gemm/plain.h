// Matrix products in plain f32 arithmetic: the datapath `fp32` (docs/datapath.md 4).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

struct GemmPlainParams {
  // Number of products of the same shape. All arrays below have a leading batch dimension.
  int64_t batch = 1;
  // f32 [rows, depth] and [columns, depth], aligned to 16 bytes. The pitches, in elements, are multiples of 4.
  const float* x = nullptr;
  const float* w = nullptr;
  int64_t xPitch = 0;
  int64_t wPitch = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  // f32 [rows, columns]. out[m, n] is the sum over k of x[m, k] * w[n, k], starting at +0, in ascending order of k.
  // Every product and every sum is rounded.
  float* out = nullptr;
  int64_t outPitch = 0;
};

cudaError_t launchGemmPlain(const GemmPlainParams& p, cudaStream_t stream);

}  // namespace lockstep
