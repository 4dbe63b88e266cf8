// NVFP4 quantization by the scale rules of other libraries than TransformerEngine, and FP4 with ue5m3 scales. A pass over the
// source computes the amaxes of the copies, one thread makes scales of the tensor of them, and a second pass, which is the only
// one where scales of blocks stand alone, computes codes and scales.
#include "kernels/quantize/nvfp4/any.cuh"

namespace lockstep {

cudaError_t launchNvfp4Any(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  using namespace nvfp4any;
  const bool isOfTensor = hasTensorScale(p.rule);
  if (isOfTensor && !hasNoTensorAmax(p.rule)) {
    if (cudaError_t error = launchNvfp4Amaxes(p, stream); error != cudaSuccess) return error;
  }
  withWide(p.type, [&](auto type) {
    if (isOfTensor) storeTensorScales<type.value><<<1, 1, 0, stream>>>(p);
    if (p.rows == 0 || p.columns == 0) return;
    quantizeAny<type.value><<<blocksOf(p), kWarps * 32, 0, stream>>>(p, blocksAcross(p));
  });
  return cudaGetLastError();
}

}  // namespace lockstep
