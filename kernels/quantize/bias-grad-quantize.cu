// Quantization of a gradient together with its column sums. A chunk is 32 rows. 16-bit inputs with a known scale are
// quantized and summed by chunks in one kernel; a second kernel adds up (folds) the sums of the chunks. If the scale
// depends on the amax of the whole tensor, the pass that computes the sums also computes the amax, and quantization
// follows.
#include "kernels/quantize/bias-grad-quantize.gen.h"

#include "kernels/rows/column-sum.h"

namespace lockstep {

namespace {

template <typename Params>
ColumnSumParams sumOf(const Params& p) {
  ColumnSumParams sum{};
  sum.x = p.quantization.x;
  sum.xType = p.quantization.xType;
  sum.out = p.out;
  sum.outType = p.outType;
  sum.rows = p.quantization.rows;
  sum.columns = p.quantization.columns;
  sum.workspace = p.workspace;
  return sum;
}

// Quantizes and sums in one kernel, except for f32: an f32 tile leaves no shared memory for the sums.
template <typename Params, typename Launch>
cudaError_t quantizeAndSum(const Params& p, Launch launch, cudaStream_t stream) {
  const ColumnSumParams sum = sumOf(p);
  auto quantization = p.quantization;
  const bool together = quantization.xType != Wide::kF32;
  quantization.noop = nullptr;
  quantization.chunkSums = together ? p.workspace : nullptr;
  if (cudaError_t error = launch(quantization, stream); error != cudaSuccess) return error;
  return together ? launchChunkFold(sum, stream) : launchColumnSum(sum, stream);
}

}  // namespace

cudaError_t launchBiasGradQuantizeTensor(const BiasGradQuantizeTensorParams& p, cudaStream_t stream) {
  if (p.quantization.scale != nullptr || p.quantization.amax != nullptr) {
    return quantizeAndSum(p, launchQuantizeTensor, stream);
  }
  // the pass that computes the sums also computes the amax
  float* amax = p.workspace + chunksOf(p.quantization.rows) * p.quantization.columns;
  if (cudaError_t error = cudaMemsetAsync(amax, 0, sizeof(float), stream); error != cudaSuccess) return error;
  ColumnSumParams sum = sumOf(p);
  sum.amax = amax;
  if (cudaError_t error = launchColumnSum(sum, stream); error != cudaSuccess) return error;
  QuantizeTensorParams cast = p.quantization;
  cast.amax = amax;
  cast.noop = nullptr;
  return launchQuantizeTensor(cast, stream);
}

cudaError_t launchBiasGradQuantizeBlock(const BiasGradQuantizeBlockParams& p, cudaStream_t stream) {
  return quantizeAndSum(p, launchQuantizeBlock, stream);
}

}  // namespace lockstep
