// The elementwise operators of src/backends/elementwise.ts. operators.gen.cu has their kernels.
#pragma once

#include "kernels/core/math.cuh"

namespace lockstep::operators {

__device__ inline float add(float x, float y) { return x + y; }

__device__ inline float multiply(float x, float y) { return x * y; }

__device__ inline float scaled(float x, float factor) { return x * factor; }

__device__ inline float sigmoid(float x) { return activate(Activation::kSigmoid, 1.0f, x); }

}  // namespace lockstep::operators
