// MXFP8, MXFP6 and MXFP4 quantization (docs/numerics.md 4): one e8m0 scale per 32 elements.
#pragma once

#include <cuda_runtime.h>

#include "kernels/quantize/mx.gen.h"

namespace lockstep {

// Validates as launchQuantizeMx does, and sets the padding of the scales to zero.
cudaError_t prepareQuantizeMx(const QuantizeMxParams& params, cudaStream_t stream);

// As launchQuantizeMx, for cases without a faster kernel. prepareQuantizeMx must be called first.
cudaError_t launchQuantizeMxAny(const QuantizeMxParams& params, cudaStream_t stream);

}  // namespace lockstep
