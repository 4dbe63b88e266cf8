// FP4 quantization under scale rules of libraries other than TransformerEngine, with an amax for each line, or with ue5m3 scales.
// One pass over the source computes the amaxes of the copies, one thread converts them to per-tensor scales, and a second pass
// computes codes and block scales. Without per-tensor scales, only the last pass runs.
#include "kernels/quantize/nvfp4/any.cuh"

#include <algorithm>

namespace lockstep {

namespace {

constexpr int kClearThreads = 256;

__global__ void clearAmaxes(const QuantizeNvfp4Params p) {
  nvfp4any::clearLineAmaxes(p, int64_t{blockIdx.x} * kClearThreads + threadIdx.x);
}

}  // namespace

cudaError_t launchNvfp4RowScaled(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  using namespace nvfp4any;
  const int64_t lines =
      std::max(p.rowwise.codes != nullptr ? p.rows : 0, p.columnwise.codes != nullptr ? p.columns : 0);
  if (lines == 0) return cudaSuccess;
  clearAmaxes<<<static_cast<uint32_t>(ceilDivide(lines, kClearThreads)), kClearThreads, 0, stream>>>(p);
  if (p.rows == 0 || p.columns == 0) return cudaGetLastError();
  withWide(p.xType, [&](auto type) {
    raiseLineAmaxes<type.value><<<blocksOf(p), kWarps * 32, 0, stream>>>(p, blocksAcross(p));
    if (!p.fourOverSix) quantizeAny<type.value><<<blocksOf(p), kWarps * 32, 0, stream>>>(p, blocksAcross(p));
  });
  return p.fourOverSix ? launchNvfp4FourOverSix(p, stream) : cudaGetLastError();
}

cudaError_t launchNvfp4Any(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  using namespace nvfp4any;
  const bool isOfTensor = hasTensorScale(p.rule);
  if (isOfTensor && !hasNoTensorAmax(p.rule)) {
    if (cudaError_t error = launchNvfp4Amaxes(p, stream); error != cudaSuccess) return error;
  }
  withWide(p.xType, [&](auto type) {
    if (isOfTensor) storeTensorScales<type.value><<<1, 1, 0, stream>>>(p);
    if (p.rows == 0 || p.columns == 0) return;
    quantizeAny<type.value><<<blocksOf(p), kWarps * 32, 0, stream>>>(p, blocksAcross(p));
  });
  return cudaGetLastError();
}

}  // namespace lockstep
