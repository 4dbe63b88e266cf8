// Codes and block scales back to wide values: value(code) * factor, then one rounding.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/formats.gen.h"
#include "kernels/layout/placement.h"

namespace lockstep {

// One copy of a quantized matrix, as it is stored: rows of `columns` codes.
struct DequantizeParams {
  const void* codes;
  // The format of the codes; e2m1 lies two to a byte in rows of an even length, any other takes a byte a code.
  uint32_t word;
  int64_t rows;
  int64_t columns;
  // The values are written [columns, rows].
  bool transposed;
  // Blocks run down the columns of the stored matrix, so that a line of scales is for columns; else along its rows.
  // Not with `transposed`, nor for e2m1.
  bool across;
  ScalePlacement scales;
  // 0 for scales in f32, else e8m0's or e4m3's.
  uint32_t scaleWord;
  // A line of scales is for 2^lineShift rows (or columns, see `across`), a block for 2^blockShift codes: lineShift is 0
  // or at least 3, blockShift at least 3; 62 is all there are.
  int lineShift;
  int blockShift;
  // A scale that is no f32 stands for (value * amax) * inverse; null is an amax of 1.
  const float* amax;
  float inverse;
  void* out;
  Wide outType;
};

__host__ __device__ constexpr int codeBits(uint32_t word) { return word == format::kE2m1 ? 4 : 8; }

cudaError_t launchDequantize(const DequantizeParams& params, cudaStream_t stream);

}  // namespace lockstep
