// Activation and quantization in one kernel: the values of activations, of gated activations and of their gradients are
// quantized without being stored (docs/numerics.md §7.3).
#pragma once

#include <cuda_runtime.h>

#include "kernels/elementwise/gated.h"
#include "kernels/quantize/fp8/tensor.h"
#include "kernels/quantize/mx/mx.h"

namespace lockstep {

// Defines the values to quantize: act(x) for x[rows, columns], or, if `gated`, act(a) * g for x[rows, 2 columns]. If
// form.grad is not null, the values are the gradient with respect to x. `form.out` is ignored.
struct ActivationSource {
  GatedForm form;
  bool gated = false;
};

// `target` has the shape of the result. The fields of `target` for its source and `noop` are ignored.
struct ActivationQuantizeTensorParams {
  ActivationSource source;
  QuantizeTensorParams target;
};

struct ActivationQuantizeMxParams {
  ActivationSource source;
  QuantizeMxParams target;
};

// Casts the f32 values to e4m3 or e5m2 with the given scale and computes their amax. Returns cudaErrorInvalidValue
// without a scale, or for another format.
cudaError_t launchActivationQuantizeTensor(const ActivationQuantizeTensorParams& params, cudaStream_t stream);

// Rounds the values to bf16 and quantizes them to MXFP8 in 1x32 blocks. Returns cudaErrorInvalidValue for other formats
// and blocks, for inputs that are not bf16, and if `columns` is not a multiple of 32.
cudaError_t launchActivationQuantizeMx(const ActivationQuantizeMxParams& params, cudaStream_t stream);

}  // namespace lockstep
