// MX quantization for cases without a faster kernel.
#include "kernels/quantize/mx/any.cuh"

namespace lockstep {

cudaError_t launchQuantizeMxAny(const QuantizeMxParams& p, cudaStream_t stream) {
  using namespace mxany;
  const int64_t tiles = (p.rows / kBlock) * (p.columns / kBlock);
  if (tiles == 0) return cudaSuccess;
  const uint32_t blocks = static_cast<uint32_t>(ceilDivide(tiles, kThreads / 32));
  withWide(p.xType, [&](auto type) {
    if (isGeneral(p)) {
      quantizeAny<type.value, true><<<blocks, kThreads, 0, stream>>>(p);
    } else {
      quantizeAny<type.value, false><<<blocks, kThreads, 0, stream>>>(p);
    }
  });
  return cudaGetLastError();
}

}  // namespace lockstep
