// Quantization of a gradient together with its column sums. A chunk is 32 rows. 16-bit inputs with a known scale are
// quantized and summed by chunks in one kernel; a second kernel adds up (folds) the sums of the chunks. If the scale
// depends on the amax of the whole tensor, the pass that computes the sums also computes the amax, and quantization
// follows.
#include "kernels/quantize/bias-grad-quantize.h"

#include "kernels/rows/column-sum.h"

namespace lockstep {

namespace {

template <typename Quantization>
ColumnSumParams sumOf(const Quantization& quantization, const BiasGradient& gradient) {
  ColumnSumParams sum{};
  sum.grad = quantization.x;
  sum.gradType = quantization.type;
  sum.plain = gradient.out;
  sum.outType = gradient.type;
  sum.rows = quantization.rows;
  sum.columns = quantization.columns;
  sum.workspace = gradient.chunkSums;
  return sum;
}

// Quantizes and sums in one kernel, except for f32: an f32 tile leaves no shared memory for the sums.
template <typename Quantization, typename Launch>
cudaError_t quantizeAndSum(Quantization quantization, const BiasGradient& gradient, Launch launch,
                           cudaStream_t stream) {
  const ColumnSumParams sum = sumOf(quantization, gradient);
  const bool together = quantization.type != Wide::kF32;
  quantization.noop = nullptr;
  quantization.chunkSums = together ? gradient.chunkSums : nullptr;
  if (cudaError_t error = launch(quantization, stream); error != cudaSuccess) return error;
  return together ? launchChunkFold(sum, stream) : launchColumnSum(sum, stream);
}

}  // namespace

cudaError_t launchBiasGradQuantizeTensor(const QuantizeTensorParams& quantization, const BiasGradient& gradient,
                                         cudaStream_t stream) {
  if (quantization.scale != nullptr || quantization.amax != nullptr) {
    return quantizeAndSum(quantization, gradient, launchQuantizeTensor, stream);
  }
  // the pass that computes the sums also computes the amax
  if (quantization.workspace == nullptr) return cudaErrorInvalidValue;
  if (cudaError_t error = cudaMemsetAsync(quantization.workspace, 0, sizeof(float), stream); error != cudaSuccess) {
    return error;
  }
  ColumnSumParams sum = sumOf(quantization, gradient);
  sum.amax = quantization.workspace;
  if (cudaError_t error = launchColumnSum(sum, stream); error != cudaSuccess) return error;
  QuantizeTensorParams cast = quantization;
  cast.amax = quantization.workspace;
  cast.noop = nullptr;
  cast.chunkSums = nullptr;
  return launchQuantizeTensor(cast, stream);
}

cudaError_t launchBiasGradQuantizeBlock(const QuantizeBlockParams& quantization, const BiasGradient& gradient,
                                        cudaStream_t stream) {
  return quantizeAndSum(quantization, gradient, launchQuantizeBlock, stream);
}

}  // namespace lockstep
