// Quantizes a gradient to FP8 and computes its column sums, the bias gradient (docs/numerics.md 2, 3 and 7.5). One pass over
// the gradient does both unless the scale needs a pass of its own.
#pragma once

#include <cuda_runtime.h>

#include "kernels/quantize/block.h"
#include "kernels/quantize/tensor.h"

namespace lockstep {

// The result, [columns], and a workspace for the sum of each chunk and column (kernels/rows/column-sum.h).
struct BiasGradient {
  void* out = nullptr;
  Wide type = Wide::kF32;
  float* chunkSums = nullptr;
};

// As launchQuantizeTensor and launchQuantizeBlock, with the same errors, and gradient = columnSum(x). The fields `chunkSums`
// and `noop` of the quantization are ignored.
cudaError_t launchBiasGradQuantizeTensor(const QuantizeTensorParams& quantization, const BiasGradient& gradient,
                                         cudaStream_t stream);
cudaError_t launchBiasGradQuantizeBlock(const QuantizeBlockParams& quantization, const BiasGradient& gradient,
                                        cudaStream_t stream);

}  // namespace lockstep
