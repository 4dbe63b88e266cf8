// The datapath of a tensor core in software (docs/datapath.md §1), for operands of a 16-bit type, and the datapath `fp32`
// (docs/datapath.md §4). All fused steps are exact in f64 up to the truncation of their sum.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/calls.gen.h"
#include "kernels/core/math.cuh"

namespace lockstep {

// The number of products of one call of addProducts, a multiple of every step.
constexpr int kTerms = 16;

struct Datapath {
  // The number of products of a step, 8 or 16; 0 is the datapath fp32.
  int step;
  int alignBits;
  int zeroExponent;
  // The exponent of the smallest normal number of the operands.
  int minExponent;
};

__device__ inline Datapath datapathOf(const AttentionRule& p) {
  return {p.step, p.alignBits, p.zeroExponent, p.qType == Wide::kF16 ? -14 : -126};
}

// floor(log2 |x|) of a normal number; 128 for infinities and NaN.
__device__ inline int exponentOf(float x) { return static_cast<int>(__float_as_uint(x) >> 23 & 0xff) - 127; }

// 2^e, for e from -1022 to 1023.
__device__ inline double twoTo(int e) { return doubleFromWord(static_cast<uint64_t>(e + 1023) << 52); }

// Returns `sum` truncated toward zero to 23 fraction bits in f32's exponent range; from 2^128 it is an infinity.
__device__ inline float truncateSum(double sum) {
  if (fabs(sum) >= twoTo(128)) return static_cast<float>(sum);
  return __double2float_rz(sum) + 0.0f;
}

// Returns accumulator c plus `step` products as one step of a tensor core computes it.
template <int step>
__device__ inline float addStep(const Datapath& datapath, float c, const float* a, const float* b) {
  double products[step];
  int largest = exponentOf(c);
  int emax = c == 0 ? datapath.zeroExponent : max(largest, -126);
#pragma unroll
  for (int i = 0; i < step; ++i) {
    products[i] = static_cast<double>(a[i]) * static_cast<double>(b[i]);
    const int exponentA = exponentOf(a[i]);
    const int exponentB = exponentOf(b[i]);
    largest = max(largest, max(exponentA, exponentB));
    const int exponent = max(exponentA, datapath.minExponent) + max(exponentB, datapath.minExponent);
    if (products[i] != 0) emax = max(emax, exponent);
  }
  double sum = c;
  if (largest == 128) {
#pragma unroll
    for (int i = 0; i < step; ++i) sum += products[i];
    return static_cast<float>(sum);
  }
  const double scale = twoTo(datapath.alignBits - emax);
  sum = trunc(sum * scale);
#pragma unroll
  for (int i = 0; i < step; ++i) sum += trunc(products[i] * scale);
  return truncateSum(sum * twoTo(emax - datapath.alignBits));
}

// Returns accumulator c plus kTerms products, in ascending order of their steps. Products of zeros change nothing.
__device__ inline float addProducts(const Datapath& datapath, float c, const float (&a)[kTerms],
                                    const float (&b)[kTerms]) {
  if (datapath.step == 16) return addStep<16>(datapath, c, a, b);
  if (datapath.step == 8) return addStep<8>(datapath, addStep<8>(datapath, c, a, b), a + 8, b + 8);
#pragma unroll
  for (int i = 0; i < kTerms; ++i) c += a[i] * b[i];
  return c;
}

}  // namespace lockstep
