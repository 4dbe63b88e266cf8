// Norms quantized as they are computed (docs/numerics.md 7.3).
#pragma once

#include <cuda_runtime.h>

#include "kernels/quantize/tensor.h"
#include "kernels/rows/norm.h"

namespace lockstep {

// Of the source all but `out`, `outType` and `amax` is used; of the target its word, the rowwise copy, the places for
// 1 / scale, the scale and the record of the amax.
struct NormQuantizeParams {
  NormParams source;
  QuantizeTensorParams target;
};

// The codes of the norm's f32 values, whose amax is recorded. Fails with cudaErrorInvalidValue without a rowwise copy or a
// scale, and for another word than e4m3 and e5m2.
cudaError_t launchNormQuantize(const NormQuantizeParams& p, cudaStream_t stream);

}  // namespace lockstep
