// From accumulators to the result: scales, beta and bias in f32, one rounding each, then one to the output's type
// (docs/datapath.md 2).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/formats.gen.h"

namespace lockstep {

// s = (alpha' * scaleW) * scaleX with alpha' = ((alpha * amaxW) * amaxX) * inverse; a null pointer stands for 1.
struct GemmFactors {
  float alpha = 1;
  const float* amaxW = nullptr;
  const float* amaxX = nullptr;
  // 1 over the product of the amaxes' divisors, 1 where there are none.
  float inverse = 1;
  const float* scaleW = nullptr;
  const float* scaleX = nullptr;
};

// Bits of an element of a result in the format `word`, 0 for f32; 0 where there is no such result.
constexpr uint32_t gemmResultWidth(uint32_t word) {
  if (word == 0) return 32;
  if (word == format::kBf16 || word == format::kF16) return 16;
  return word == format::kE4m3 || word == format::kE5m2 ? 8 : 0;
}

struct GemmEpilogueParams {
  // f32 [rows, columns]; null: zeros. May be `out`, where that is f32, the pitch is `columns` and no lines are left out.
  const float* sums = nullptr;
  int64_t sumsPitch = 0;
  // Lines of the sums that are left out after each `itemRows`.
  int64_t sumsSkipped = 0;
  int64_t itemRows = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  GemmFactors factors;
  // fma(s, sum, beta * c), and with `split` fma(beta, c, s * sum); s * sum where beta is 0 and c is not read.
  float beta = 0;
  const void* c = nullptr;
  Wide cType = Wide::kF32;
  bool split = false;
  // [columns]; null: none.
  const void* bias = nullptr;
  Wide biasType = Wide::kF32;
  // [rows, columns] of the format `word`, 0 for f32; may be `c`. 8-bit formats get x * outScale and saturate.
  void* out = nullptr;
  uint32_t word = 0;
  float outScale = 1;
  // Becomes the largest |x| before outScale, NaN ignored; null: not wanted.
  float* amax = nullptr;
};

cudaError_t launchGemmEpilogue(const GemmEpilogueParams& p, cudaStream_t stream);

// Writes {s, beta}, as a library reads its scalars from device memory.
struct GemmAlphaParams {
  GemmFactors factors;
  float beta = 0;
  float* out = nullptr;
};

cudaError_t launchGemmAlpha(const GemmAlphaParams& p, cudaStream_t stream);

}  // namespace lockstep
