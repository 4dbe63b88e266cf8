// Dequantization: out = round(decode(code) * factor), with one rounding to the output type.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/formats.gen.h"
#include "kernels/layout/placement.h"

namespace lockstep {

// One copy of a quantized matrix, as stored: [rows, columns] codes.
struct DequantizeParams {
  const void* codes;
  // The format word of the codes. Codes of e2m1 and int4 are packed two per byte in rows of even length; others take one byte.
  uint32_t word;
  int64_t rows;
  int64_t columns;
  // Whether the output is [columns, rows].
  bool transposed;
  // Whether blocks lie along the columns of the stored matrix, so that a line of scales belongs to columns; otherwise
  // blocks lie along rows. Cannot be combined with `transposed`, nor with packed codes.
  bool across;
  ScalePlacement scales;
  // 0 for f32 scales, else the format word of e8m0, e4m3 or ue5m3.
  uint32_t scaleWord;
  // A line of scales belongs to 2^lineShift rows (columns if `across`), and a block has 2^blockShift codes along the
  // line. lineShift is 0 or at least 3; blockShift is at least 3. A shift of 62 means one line or block for the whole
  // dimension.
  int lineShift;
  int blockShift;
  // The factor of a code is its scale if that is f32, else (value of the scale * amax) * inverse, where a null amax means 1.
  // With `divides`, which e2m1 with e4m3 scales alone has, it is value of the scale / amax. With `rowScaled`, which such codes
  // alone have without `divides`, each stored row has an amax of its own.
  const float* amax;
  bool rowScaled;
  float inverse;
  bool divides;
  void* out;
  Wide outType;
};

__host__ __device__ constexpr int codeBits(uint32_t word) {
  return word == format::kE2m1 || word == format::kInt4 ? 4 : 8;
}

cudaError_t launchDequantize(const DequantizeParams& params, cudaStream_t stream);

}  // namespace lockstep
