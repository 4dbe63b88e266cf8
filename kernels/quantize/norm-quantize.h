// Fused normalisation and quantization to FP8 (docs/numerics.md 7.3).
#pragma once

#include <cuda_runtime.h>

#include "kernels/quantize/tensor.h"
#include "kernels/rows/norm.h"

namespace lockstep {

// `source` is used except for `out`, `outType` and `amax`. Of `target`, only the format word, the rowwise copy, the pointers
// for 1 / scale, the scale and amaxOut are used.
struct NormQuantizeParams {
  NormParams source;
  QuantizeTensorParams target;
};

// Encodes the f32 results of the norm and raises amaxOut to their amax. Returns cudaErrorInvalidValue without a rowwise copy or
// a scale, and for formats other than e4m3 and e5m2.
cudaError_t launchNormQuantize(const NormQuantizeParams& p, cudaStream_t stream);

}  // namespace lockstep
