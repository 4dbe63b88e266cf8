// Transcendental functions and activations, bitwise equal to assembly/core/math.ts and assembly/elementwise/curve.ts.
// They are evaluated in f64 by + - * / without fused multiply-adds, and rounded once to f32 (docs/numerics.md §7.2 and
// §7.6).
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/core/contract.gen.h"

namespace lockstep {

constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;

__host__ __device__ inline double doubleFromWord(uint64_t word) {
  double value;
  memcpy(&value, &word, sizeof value);
  return value;
}

__host__ __device__ inline uint64_t wordFromDouble(double value) {
  uint64_t word;
  memcpy(&word, &value, sizeof word);
  return word;
}

// c0 + c1 x + c2 x^2 + ... by Horner's rule.
__host__ __device__ inline double polynomial(double, double last) { return last; }
template <typename... Rest>
__host__ __device__ inline double polynomial(double x, double first, Rest... rest) {
  return polynomial(x, rest...) * x + first;
}

// Returns 2^t for t in [-1023, 1024]. In f32, 2^-1023 becomes 0 and 2^1024 infinity. NaN propagates. Adding 1.5 * 2^52
// + 1023 rounds t to an integer n, ties to odd. The low bits of the sum hold n + 1023, the exponent field of 2^n.
__host__ __device__ inline double twoToTheBounded(double t) {
  constexpr double magic = 6755399441056767.0;
  const double n = t + magic;
  const double f = t - (n - magic);
  const double p =
      polynomial(f, 1.0, 0.6931471805537159, 0.24022650922336714, 0.05550410928763957, 0.009618056670850868,
                 0.0013333454539879229, 0.0001546144715432321, 0.000015310083034605573);
  return p * doubleFromWord(wordFromDouble(n) << 52);
}

// 2^t with t clamped to [-1023, 1024]. NaN propagates.
__host__ __device__ inline double twoToThe(double t) {
  if (1024.0 < t) t = 1024.0;
  if (t < -1023.0) t = -1023.0;
  return twoToTheBounded(t);
}

// e^x.
__host__ __device__ inline float exponential(float x) {
  return static_cast<float>(twoToThe(static_cast<double>(x) * kLog2E));
}

// log((1 + s) / (1 - s)) / s for the square of s.
__host__ __device__ inline double logarithmQuotient(double square) {
  return polynomial(square, 2.000000000008424, 0.6666666524045282, 0.4000038586907138, 0.2853498592734023,
                    0.23617465827985273);
}

// Natural logarithm of a finite positive number that is not subnormal.
__host__ __device__ inline double logarithmOf(double x) {
  constexpr uint64_t rootHalf = 0x3fe6a09e667f3bcd;
  const uint64_t word = wordFromDouble(x);
  const auto n = static_cast<int64_t>(word - rootHalf) >> 52;
  const double m = doubleFromWord(word - (static_cast<uint64_t>(n) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  return static_cast<double>(n) * kLn2 + s * logarithmQuotient(s * s);
}

// Natural logarithm: -infinity for +0 and -0, NaN for negative x.
__host__ __device__ inline float logarithm(float x) {
  constexpr double infinity = __builtin_huge_val();
  if (!(x > 0)) return static_cast<float>(x == 0 ? -infinity : infinity - infinity);
  if (x == static_cast<float>(infinity)) return x;
  return static_cast<float>(logarithmOf(x));
}

// sqrt(log(1 + e^x)).
__host__ __device__ inline double rootOfSoftplus(double x) {
  if (x > 20.0) return sqrt(x);
  const double e = twoToThe(x * kLog2E);
  if (e > 0.25) return sqrt(logarithmOf(1.0 + e));
  const double s = e / (2.0 + e);
  return sqrt(s * logarithmQuotient(s * s));
}

// The derivative of sqrt(log(1 + e^x)): the logistic function divided by twice the root; 0 where the root is 0.
__host__ __device__ inline double rootOfSoftplusDerivative(double x) {
  const double root = rootOfSoftplus(x);
  if (root == 0.0) return 0.0;
  return 1.0 / (1.0 + twoToThe(x * -kLog2E)) / (2.0 * root);
}

// The exponent of gelu as a power of two: -2 u log2(e), where u is the argument of tanh in gelu.
__host__ __device__ inline double geluExponent(double x) {
  return x * (-2.3022082635570995 + -0.10294324686815556 * (x * x));
}

// x times the derivative of 2u, where u is the argument of tanh in gelu.
__host__ __device__ inline double geluProduct(double x) {
  return x * (1.5957691669464111 + 0.21406446397304535 * (x * x));
}

// The derivative of x s(v(x)), where s is the logistic function: s + x v' s (1 - s). `product` is x v', and e is e^-v.
__host__ __device__ inline double productDerivative(double product, double e) {
  const double s = 1.0 / (1.0 + e);
  return s + product * (s * (1.0 - s));
}

// act(x); `alpha` is the factor of x in the logistic function of silu and qgelu.
__host__ __device__ inline float activate(Activation kind, float alpha, float x) {
  const double xDouble = x;
  switch (kind) {
    case Activation::kGelu:
      return static_cast<float>(xDouble / (1.0 + twoToThe(geluExponent(xDouble))));
    case Activation::kRelu:
      return x > 0 ? x : 0.0f;
    case Activation::kSrelu:
      return x > 0 ? x * x : 0.0f;
    case Activation::kSigmoid:
      return static_cast<float>(1.0 / (1.0 + twoToThe(xDouble * -kLog2E)));
    default:
      return static_cast<float>(xDouble / (1.0 + twoToThe(xDouble * (static_cast<double>(alpha) * -kLog2E))));
  }
}

// act'(x).
__host__ __device__ inline float differentiate(Activation kind, float alpha, float x) {
  const double xDouble = x;
  switch (kind) {
    case Activation::kGelu:
      return static_cast<float>(productDerivative(geluProduct(xDouble), twoToThe(geluExponent(xDouble))));
    case Activation::kRelu:
      return x > 0 ? 1.0f : 0.0f;
    case Activation::kSrelu:
      return x > 0 ? x + x : 0.0f;
    case Activation::kSigmoid: {
      // The derivative does not depend on the sign of x. Using e^-|x| keeps its accuracy where the logistic function
      // approaches 1.
      const double e = twoToThe((xDouble < 0 ? -xDouble : xDouble) * -kLog2E);
      const double sum = 1.0 + e;
      return static_cast<float>(e / (sum * sum));
    }
    default: {
      const double factor = alpha;
      return static_cast<float>(productDerivative(factor * xDouble, twoToThe(xDouble * (factor * -kLog2E))));
    }
  }
}

}  // namespace lockstep
