// NVFP4 quantization (docs/numerics.md §5): e2m1 codes, an e4m3 scale for each block of 16 elements, and one f32 amax
// for each copy; or ue5m3 scales and no amax (§5.12).
#pragma once

#include <cuda_runtime.h>

#include "kernels/quantize/nvfp4.gen.h"

namespace lockstep {

// The passes of launchQuantizeNvfp4. launchNvfp4Amaxes runs first. Then one of the others computes codes and scales:
// launchNvfp4FourOverSix with 4over6, else launchNvfp4Codes. The latter calls launchNvfp4Rows for a rowwise copy only, in 1x16
// blocks, if there are fewer than 2^32 blocks.
cudaError_t launchNvfp4Amaxes(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4Codes(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4Rows(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4FourOverSix(const QuantizeNvfp4Params& params, cudaStream_t stream);

// As launchQuantizeNvfp4, with an amax for each line. The padding of the scales must be zero.
cudaError_t launchNvfp4RowScaled(const QuantizeNvfp4Params& params, cudaStream_t stream);

// As launchQuantizeNvfp4, under rules other than kTwoLevel. The padding of the scales must be zero.
cudaError_t launchNvfp4Any(const QuantizeNvfp4Params& params, cudaStream_t stream);

}  // namespace lockstep
