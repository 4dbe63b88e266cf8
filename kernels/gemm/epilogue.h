// The epilogue of a matrix product: applies scales, beta and bias to the accumulators in f32 with one rounding per operation,
// then rounds to the output type (docs/datapath.md 2).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/formats.gen.h"

namespace lockstep {

// The factors of s = (alpha' * scaleW) * scaleX, with alpha' = ((alpha * amaxW) * amaxX) * inverse. A null pointer means 1.
struct GemmFactors {
  float alpha = 1;
  const float* amaxW = nullptr;
  const float* amaxX = nullptr;
  // 1 over the product of the divisors of the amaxes; 1 if there are none.
  float inverse = 1;
  const float* scaleW = nullptr;
  const float* scaleX = nullptr;
};

// Bits per element of a result in the format `word`; word 0 is f32. Gives 0 for a format that a result cannot have.
constexpr uint32_t gemmResultWidth(uint32_t word) {
  if (word == 0) return 32;
  if (word == format::kBf16 || word == format::kF16) return 16;
  return word == format::kE4m3 || word == format::kE5m2 ? 8 : 0;
}

struct GemmEpilogueParams {
  // The accumulators, f32 [rows, columns]; null means all zero. May alias `out` if `out` is f32, the pitch is `columns` and no
  // lines are skipped.
  const float* sums = nullptr;
  int64_t sumsPitch = 0;
  // Lines of the accumulators that are skipped after each `itemRows`.
  int64_t sumsSkipped = 0;
  int64_t itemRows = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  GemmFactors factors;
  // The result is fma(s, sum, beta * c), or with `split` fma(beta, c, s * sum). If beta is 0, it is s * sum and c is not read.
  float beta = 0;
  const void* c = nullptr;
  Wide cType = Wide::kF32;
  bool split = false;
  // [columns]; null means no bias.
  const void* bias = nullptr;
  Wide biasType = Wide::kF32;
  // [rows, columns] in the format `word`, 0 for f32; may alias `c`. 8-bit formats encode x * outScale with saturation.
  void* out = nullptr;
  uint32_t word = 0;
  float outScale = 1;
  // Set to the largest |x| before outScale is applied, NaN ignored. Null if not wanted.
  float* amax = nullptr;
};

cudaError_t launchGemmEpilogue(const GemmEpilogueParams& p, cudaStream_t stream);

// Writes {s, beta} to device memory, from which cuBLASLt reads its scalars.
struct GemmAlphaParams {
  GemmFactors factors;
  float beta = 0;
  float* out = nullptr;
};

cudaError_t launchGemmAlpha(const GemmAlphaParams& p, cudaStream_t stream);

}  // namespace lockstep
