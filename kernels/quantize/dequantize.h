// Dequantization: out = round(decode(code) * factor), with one rounding to the output type.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/formats.gen.h"
#include "kernels/quantize/dequantize.gen.h"

namespace lockstep {

// The bits of a stored code of a format.
__host__ __device__ constexpr int codeBits(uint32_t word) {
  return word == format::kE2m1 || word == format::kInt4 ? 4 : 8;
}

}  // namespace lockstep
