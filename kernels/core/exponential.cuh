// e^x of many f32, with the bits that math.cuh's exponential has. Products and sums are fused where it rounds each, which changes
// an f64 in its last bit, and the f32 of no x: all have been compared.
#pragma once

#include "kernels/core/math.cuh"

namespace lockstep {

// e^x. Beyond 128 it is infinite and below -128 zero, so that bounds need no f64; where `negative`, x is at most 0 or NaN.
template <bool negative>
__device__ inline float exponentialOf(float x) {
  constexpr double magic = 6755399441056767.0;
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(-128.0f));
  if constexpr (!negative) asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(128.0f));
  // t = n + f, as in twoToTheBounded: n + 1023 is in the low word of `sum`
  const double t = static_cast<double>(x) * kLog2E;
  const double sum = t + magic;
  const double f = t - (sum - magic);
  double p = __fma_rn(0.000015310083034605573, f, 0.0001546144715432321);
  p = __fma_rn(p, f, 0.0013333454539879229);
  p = __fma_rn(p, f, 0.009618056670850868);
  p = __fma_rn(p, f, 0.05550410928763957);
  p = __fma_rn(p, f, 0.24022650922336714);
  p = __fma_rn(p, f, 0.6931471805537159);
  p = __fma_rn(p, f, 1.0);
  // times 2^n, in the exponent
  const int high = __double2hiint(p) + (__double2loint(sum) << 20) - (1023 << 20);
  // what that makes of a NaN may be a number: it becomes NaN again
  return __fmaf_rn(x, 0.0f, static_cast<float>(__hiloint2double(high, __double2loint(p))));
}

// values[i] = e^(values[i]). Where `negative` none is above 0.
template <bool negative, int width>
__device__ inline void exponentials(float (&values)[width]) {
#pragma unroll
  for (float& value : values) value = exponentialOf<negative>(value);
}

}  // namespace lockstep
