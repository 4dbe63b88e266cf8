// The epilogue of a matrix product. It applies scales, beta and bias to the sums of products in f32, with one rounding
// per operation (one fused multiply-add for scale and beta), and then rounds to the output type (docs/datapath.md §2).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/formats.gen.h"

namespace lockstep {

// The factors of s = (alpha' * scaleW) * scaleX, where alpha' = ((alpha * amaxW) * amaxX) * inverse. Pointers are to
// device memory; a null pointer means 1.
struct GemmFactors {
  float alpha = 1;
  const float* amaxW = nullptr;
  const float* amaxX = nullptr;
  // NVFP4 divides each amax by a constant. `inverse` is 1 over the product of these constants, or 1 without amaxes.
  float inverse = 1;
  const float* scaleW = nullptr;
  const float* scaleX = nullptr;
};

// Bits per element of a result in the format of format word `word` (0 is f32). Returns 0 if a result cannot have the
// format.
constexpr uint32_t gemmResultWidth(uint32_t word) {
  if (word == 0) return 32;
  if (word == format::kBf16 || word == format::kF16) return 16;
  return word == format::kE4m3 || word == format::kE5m2 ? 8 : 0;
}

struct GemmEpilogueParams {
  // The sums of products, f32 [rows, columns]; null means that all are zero. They may alias `out` if `out` is f32, the
  // pitch is `columns` and sumsSkipped is 0.
  const float* sums = nullptr;
  int64_t sumsPitch = 0;
  // The number of rows of the sums to skip after each `itemRows` rows. A batch has such rows between its items if they
  // are padded.
  int64_t sumsSkipped = 0;
  int64_t itemRows = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  GemmFactors factors;
  // Whether factors.scaleW has a scale for each column, and factors.scaleX one for each row, in place of one for all.
  // They go with a single product, not with a batch. A sum is then multiplied by the scale of its column, by that of its row,
  // and by alpha', which takes the place of s; `split` changes nothing, and with alpha' 1 and beta 0 the scaled sum is the
  // result.
  bool linesW = false;
  bool linesX = false;
  // Whether amaxW has one for each column, and amaxX one for each row, in place of one for all; they go with a single product.
  // With either, p is the result below with beta 0 and no bias; it is multiplied by both amaxes (null means 1), the bias is
  // added, a 16-bit result is rounded, and beta * c is added to it (docs/numerics.md §5.10). The two amaxes are multiplied
  // first, unless there are several rows and several columns with amaxes of their own.
  bool lineAmaxesW = false;
  bool lineAmaxesX = false;
  const float* amaxW = nullptr;
  const float* amaxX = nullptr;
  // The result is fma(s, sum, beta * c), or with `split` fma(beta, c, s * sum). If beta is 0, c is not read; the result
  // is then fma(s, sum, +0), or with `split` s * sum.
  float beta = 0;
  const void* c = nullptr;
  Wide cType = Wide::kF32;
  bool split = false;
  // One value per column; null means no bias.
  const void* bias = nullptr;
  Wide biasType = Wide::kF32;
  // [rows, columns] in the format of format word `word` (0 is f32). It may alias `c`. 8-bit formats encode x * outScale
  // with saturation.
  void* out = nullptr;
  uint32_t word = 0;
  float outScale = 1;
  // If not null, is set to the largest |x| before outScale is applied, NaN ignored.
  float* amax = nullptr;
};

cudaError_t launchGemmEpilogue(const GemmEpilogueParams& p, cudaStream_t stream);

// Writes s and beta to device memory, where cuBLASLt reads its scalars.
struct GemmAlphaParams {
  GemmFactors factors;
  float beta = 0;
  float* out = nullptr;
};

cudaError_t launchGemmAlpha(const GemmAlphaParams& p, cudaStream_t stream);

}  // namespace lockstep
