// e^x of several f32 values, bitwise equal to `exponential` of math.cuh but faster. This version uses fused multiply-adds where
// math.cuh rounds every product and sum. That changes the last bit of some f64 intermediates, but of no f32 result: all 2^32
// inputs have been compared.
#pragma once

#include "kernels/core/math.cuh"

namespace lockstep {

// Returns e^x. x is first clamped to [-128, 128] in f32, because e^128 rounds to infinity and e^-128 to 0. `negative`
// promises that x is at most 0 or NaN.
template <bool negative>
__device__ inline float exponentialOf(float x) {
  constexpr double magic = 6755399441056767.0;
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(-128.0f));
  if constexpr (!negative) asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(128.0f));
  // t = n + f as in twoToTheBounded (math.cuh); the low 32 bits of `sum` hold n + 1023
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
  // multiply by 2^n by adding n to the exponent field
  const int high = __double2hiint(p) + (__double2loint(sum) << 20) - (1023 << 20);
  // the exponent arithmetic may turn a NaN into a number; adding 0 * x makes it NaN again
  return __fmaf_rn(x, 0.0f, static_cast<float>(__hiloint2double(high, __double2loint(p))));
}

// values[i] = e^(values[i]). `negative` promises that no value is above 0.
template <bool negative, int width>
__device__ inline void exponentials(float (&values)[width]) {
#pragma unroll
  for (float& value : values) value = exponentialOf<negative>(value);
}

}  // namespace lockstep
