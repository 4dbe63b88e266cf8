#include "kernels/gemm/few-rows.h"

#include "kernels/core/formats.gen.h"

namespace lockstep {

cudaError_t launchGemmFewRows(const GemmFewRowsParams& p, cudaStream_t stream) {
  if (p.columns == 0) return cudaSuccess;
  if (!hasFewRows(p.word, p.scales.word, p.scales.data ? p.scales.length : 0)) return cudaErrorInvalidValue;
  return p.word == format::kE2m1 ? launchFewRowsFp4(p, stream) : launchFewRowsFp8(p, stream);
}

}  // namespace lockstep
