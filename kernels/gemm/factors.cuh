// The factors of the sums of a matrix product, which epilogues multiply (datapath.md §2).
#pragma once

#include "kernels/gemm/calls.gen.h"

namespace lockstep {

__device__ inline float valueAt(const float* pointer) { return pointer ? *pointer : 1; }

// Returns alpha' = ((alpha * amaxW) * amaxX) * inverse, with every product rounded.
__device__ inline float alphaOf(const GemmFactors& f) {
  const float scaled = __fmul_rn(__fmul_rn(f.alpha, valueAt(f.amaxW)), valueAt(f.amaxX));
  return __fmul_rn(scaled, f.inverse);
}

// Returns s = (alpha' * scaleW) * scaleX, with every product rounded.
__device__ inline float scaleOf(const GemmFactors& f) {
  return __fmul_rn(__fmul_rn(alphaOf(f), valueAt(f.scaleW)), valueAt(f.scaleX));
}

// Returns s * sum + beta * c by one fused multiply-add: fma(beta, c, s * sum) with split-K, and fma(s, sum, beta * c)
// without. If beta is 0, c does not matter: the result is s * sum with split-K, and fma(s, sum, +0) without.
__device__ inline float combine(float sum, float s, float c, float beta, bool split) {
  if (beta == 0) return split ? __fmul_rn(s, sum) : __fmaf_rn(s, sum, 0);
  return split ? __fmaf_rn(beta, c, __fmul_rn(s, sum)) : __fmaf_rn(s, sum, __fmul_rn(beta, c));
}

}  // namespace lockstep
