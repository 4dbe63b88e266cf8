// The elementwise operators of src/backends/elementwise.ts. operators.gen.cu has their kernels.
#pragma once

#include "kernels/core/exponential.cuh"
#include "kernels/core/math.cuh"

namespace lockstep::operators {

__device__ inline float add(float x, float y) { return x + y; }

__device__ inline float multiply(float x, float y) { return x * y; }

__device__ inline float scaled(float x, float factor) { return x * factor; }

__device__ inline float sigmoid(float x) { return activate(Activation::kSigmoid, 1.0f, x); }

__device__ inline float divide(float x, float y) { return __fdiv_rn(x, y); }

__device__ inline float exp(float x) { return exponentialOf<false>(x); }

__device__ inline float rsqrt(float x) { return __fdiv_rn(1.0f, __fsqrt_rn(x)); }

__device__ inline float sqrtSoftplus(float x) { return static_cast<float>(rootOfSoftplus(x)); }

__device__ inline float sqrtSoftplusDerivative(float x) { return static_cast<float>(rootOfSoftplusDerivative(x)); }

__device__ inline float where(float condition, float x, float y) { return condition != 0.0f ? x : y; }

}  // namespace lockstep::operators
