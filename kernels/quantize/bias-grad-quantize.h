// Quantizes a gradient to FP8 and computes its column sums, the bias gradient (docs/numerics.md §2, §3 and §7.5). One
// pass over the gradient does both, unless the input is f32 or the scale needs the amax of the tensor first.
#pragma once

#include <cuda_runtime.h>

#include "kernels/quantize/fp8/block.h"
#include "kernels/quantize/fp8/tensor.h"

namespace lockstep {

// The bias gradient, [columns], and a workspace for the column sums of each 32 rows (kernels/rows/column-sum.h).
struct BiasGradient {
  void* out = nullptr;
  Wide type = Wide::kF32;
  float* chunkSums = nullptr;
};

// As launchQuantizeTensor and launchQuantizeBlock, with the same errors. They also compute gradient = columnSum(x). The
// fields `chunkSums` and `noop` of the quantization are ignored.
cudaError_t launchBiasGradQuantizeTensor(const QuantizeTensorParams& quantization, const BiasGradient& gradient,
                                         cudaStream_t stream);
cudaError_t launchBiasGradQuantizeBlock(const QuantizeBlockParams& quantization, const BiasGradient& gradient,
                                        cudaStream_t stream);

}  // namespace lockstep
