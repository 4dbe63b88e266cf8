// LayerNorm and RMSNorm over the rows of a matrix, and their gradients (docs/numerics.md 7.1).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/contract.gen.h"
#include "kernels/quantize-tensor.h"

namespace lockstep {

struct NormParams {
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  // [columns] each; null where there is no beta.
  const void* gamma = nullptr;
  const void* beta = nullptr;
  Wide parameterType = Wide::kF32;
  void* out = nullptr;
  Wide outType = Wide::kF32;
  // Becomes the largest magnitude of the results before they are rounded, NaN ignored. May be null.
  float* amax = nullptr;
  // One for each row; null makes it RMSNorm.
  float* mean = nullptr;
  float* rstd = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  float epsilon = 0;
  bool zeroCentered = false;
};

// The codes of the norm's f32 values by the scale given, rowwise alone, and 1 / scale beside each copy that the target
// names; the amax is the values'. `source.out`, its `amax`, and what the target says of its source and of `noop`, are not used.
struct NormQuantizeParams {
  NormParams source;
  QuantizeTensorParams target;
};

// dx, dgamma and dbeta from the gradient of `out` and what the forward pass read and saved.
struct NormBackwardParams {
  const void* grad = nullptr;
  Wide gradType = Wide::kF32;
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  const void* gamma = nullptr;
  Wide parameterType = Wide::kF32;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  void* dx = nullptr;
  Wide dxType = Wide::kF32;
  // [columns] each; null where there is no beta.
  void* dgamma = nullptr;
  void* dbeta = nullptr;
  Wide gradientType = Wide::kF32;
  // What the sums of column-sum.h need.
  float* workspace = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  bool zeroCentered = false;
};

cudaError_t launchNorm(const NormParams& p, cudaStream_t stream);

// Fails with cudaErrorInvalidValue without a rowwise copy or a scale, and for another word than e4m3 and e5m2.
cudaError_t launchNormQuantize(const NormQuantizeParams& p, cudaStream_t stream);

cudaError_t launchNormBackward(const NormBackwardParams& p, cudaStream_t stream);

}  // namespace lockstep
