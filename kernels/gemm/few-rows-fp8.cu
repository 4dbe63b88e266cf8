#include "kernels/gemm/few-rows.cuh"

namespace lockstep {

cudaError_t launchFewRowsFp8(const GemmFewRowsParams& p, cudaStream_t stream) {
  if (!p.scales.data) return launchFewRowsOf<WeightFormat<format::kE4m3, kUnscaled, kChunk>>(p, stream);
  if (p.scales.length == 32) return launchFewRowsOf<WeightFormat<format::kE4m3, format::kE8m0, 32>>(p, stream);
  return launchFewRowsOf<WeightFormat<format::kE4m3, 0, kChunk>>(p, stream);
}

}  // namespace lockstep
