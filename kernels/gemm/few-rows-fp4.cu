#include "kernels/gemm/few-rows.cuh"

namespace lockstep {

cudaError_t launchFewRowsFp4(const GemmFewRowsParams& p, cudaStream_t stream) {
  if (p.scales.length == 16) return launchFewRowsOf<WeightFormat<format::kE2m1, kUnsignedE4m3, 16>>(p, stream);
  return launchFewRowsOf<WeightFormat<format::kE2m1, format::kE8m0, 32>>(p, stream);
}

}  // namespace lockstep
