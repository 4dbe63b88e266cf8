// Normalisation and quantization to FP8 in one kernel (docs/numerics.md §7.3).
#pragma once

#include <cuda_runtime.h>

#include "kernels/quantize/fp8/tensor.h"
#include "kernels/rows/norm.h"

namespace lockstep {

// The fields `out`, `outType` and `amax` of `source` are ignored. Only the format word, the rowwise codes, the pointers
// for 1 / scale, the scale and amaxOut of `target` are used.
struct NormQuantizeParams {
  NormParams source;
  QuantizeTensorParams target;
};

// Encodes the f32 results of the norm, and replaces *amaxOut by their amax if that is larger. Returns
// cudaErrorInvalidValue without rowwise codes or a scale, and for formats other than e4m3 and e5m2.
cudaError_t launchNormQuantize(const NormQuantizeParams& p, cudaStream_t stream);

}  // namespace lockstep
