// A gradient in FP8 and the sums down its columns, a bias gradient (docs/numerics.md 2, 3 and 7.5), from one pass over it
// where codes or scales need no other.
#pragma once

#include <cuda_runtime.h>

#include "kernels/quantize/block.h"
#include "kernels/quantize/tensor.h"

namespace lockstep {

// [columns], and where a sum for each chunk and column (kernels/rows/column-sum.h) lies meanwhile.
struct BiasGradient {
  void* out = nullptr;
  Wide type = Wide::kF32;
  float* chunkSums = nullptr;
};

// What launchQuantizeTensor and launchQuantizeBlock do, and fail as, with gradient = columnSum(x). `chunkSums` and `noop` of
// the quantization are not used.
cudaError_t launchBiasGradQuantizeTensor(const QuantizeTensorParams& quantization, const BiasGradient& gradient,
                                         cudaStream_t stream);
cudaError_t launchBiasGradQuantizeBlock(const QuantizeBlockParams& quantization, const BiasGradient& gradient,
                                        cudaStream_t stream);

}  // namespace lockstep
