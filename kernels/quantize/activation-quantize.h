// Activations, their gated forms and the gradients of both, quantized as they are computed (docs/numerics.md 7.3).
#pragma once

#include <cuda_runtime.h>

#include "kernels/elementwise/gated.h"
#include "kernels/quantize/mx/mx.h"
#include "kernels/quantize/tensor.h"

namespace lockstep {

// Where the values come from: act(x) of x[rows, columns]; where `gated`, act(a) * g of x[rows, 2 columns]; where there is
// a gradient, that of x. `out` is not used.
struct ActivationSource {
  GatedParams form;
  bool gated = false;
};

// The targets are of the result's size; what they say of their source and of `noop` is not used.
struct ActivationQuantizeTensorParams {
  ActivationSource source;
  QuantizeTensorParams target;
};

struct ActivationQuantizeMxParams {
  ActivationSource source;
  QuantizeMxParams target;
};

// The f32 values cast to e4m3 or e5m2 by the scale given, the amax being theirs. Fails with cudaErrorInvalidValue without
// a scale, and for another word.
cudaError_t launchActivationQuantizeTensor(const ActivationQuantizeTensorParams& params, cudaStream_t stream);

// MXFP8 of the values rounded to bf16, in 1x32 blocks. Fails with cudaErrorInvalidValue for other formats and blocks, for
// what is not bf16, and where a half is no whole number of blocks.
cudaError_t launchActivationQuantizeMx(const ActivationQuantizeMxParams& params, cudaStream_t stream);

}  // namespace lockstep
