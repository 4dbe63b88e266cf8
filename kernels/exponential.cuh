// e^x of many f32, with the bits that math.cuh's exponential has. Products and sums are fused where it rounds each, which changes
// an f64 in its last bit, and the f32 of no x: all have been compared.
#pragma once

#include "kernels/math.cuh"

namespace lockstep {

// What 2^t is made of for a t in f64: n + 1023 in the low word of `n`, f = t - n, and p = 2^f, at least 1 exactly where f is.
struct PowerOfTwo {
  double n;
  double f;
  double p;

  __device__ explicit PowerOfTwo(double t) {
    constexpr double magic = 6755399441056767.0;
    n = t + magic;
    f = t - (n - magic);
    p = __fma_rn(0.000015310083034605573, f, 0.0001546144715432321);
    p = __fma_rn(p, f, 0.0013333454539879229);
    p = __fma_rn(p, f, 0.009618056670850868);
    p = __fma_rn(p, f, 0.05550410928763957);
    p = __fma_rn(p, f, 0.24022650922336714);
    p = __fma_rn(p, f, 0.6931471805537159);
    p = __fma_rn(p, f, 1.0);
  }
};

// e^x, any x; beyond 128 it is infinite and below -128 zero, so that bounds need no f64.
__device__ inline float exponentialOfAny(float x) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(-128.0f));
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(128.0f));
  const PowerOfTwo power(static_cast<double>(x) * kLog2E);
  return static_cast<float>(power.p * doubleFromWord(wordFromDouble(power.n) << 52));
}

// e^x for x from -87 to 0, where it is normal, and for NaN. Conversions between f32 and f64 take as long as several sums: the
// bits of x are put in place as those of 2^-896 x, and the sum with 1.5 * 2^29 + 127, or with half of that but 127, leaves p
// rounded to f32 in its low word.
__device__ inline float exponentialNormal(float x) {
  constexpr double kScaledLog2E = 7.621679001981843e+269;
  const uint32_t bits = __float_as_uint(x);
  const uint32_t high = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 3) & 0x8fffffffu;
  const PowerOfTwo power(__hiloint2double(static_cast<int>(high), static_cast<int>(bits << 29)) * kScaledLog2E);
  const int below = __double2hiint(power.f) >> 31;
  const double rounded = power.p + __hiloint2double(0x41c80000 + below * 0x100000, 0x3f800000);
  const int exponent = (__double2loint(power.n) + below) << 23;
  // NaN again, whose bits have become any
  return __fmaf_rn(x, 0.0f, __int_as_float(__double2loint(rounded) + exponent));
}

// values[i] = e^(values[i]). Where `negative` none is above 0.
template <bool negative, int width>
__device__ inline void exponentials(float (&values)[width]) {
  float results[width];
  bool rare = false;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float x = values[i];
    float bounded;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(bounded) : "f"(x), "f"(-87.0f));
    results[i] = x < -87.0f ? 0.0f : exponentialNormal(bounded);
    // from -104 to -87 results are subnormal or next to it
    rare = rare || fabsf(x + 95.5f) <= 8.5f || (!negative && x > 0);
  }
  if (rare) {
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = exponentialOfAny(values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = results[i];
  }
}

}  // namespace lockstep
