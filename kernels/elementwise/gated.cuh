// The value and the gradients of one element of a gated activation (docs/numerics.md 7.2).
#pragma once

#include "kernels/core/math.cuh"
#include "kernels/elementwise/gated.h"

namespace lockstep {

// atMost is min(x, high), and atLeast max(x, low). Both return NaN if x is NaN.
__device__ inline float atMost(float x, float high) { return high < x ? high : x; }
__device__ inline float atLeast(float x, float low) { return x < low ? low : x; }

__device__ inline float gateOf(const GatedForm& p, float g) { return atLeast(atMost(g, p.limit), -p.limit) + p.offset; }

__device__ inline float gatedValue(const GatedForm& p, Activation kind, float a, float g) {
  return activate(kind, p.alpha, atMost(a, p.limit)) * gateOf(p, g);
}

// Replaces a and g by their gradients dA and dG. `value` and `derivative` are act and act' at min(a, limit), and `grad`
// is the gradient of the result.
__device__ inline void gatedGradients(const GatedForm& p, float value, float derivative, float grad, float& a,
                                      float& g) {
  const float dA = derivative * grad * gateOf(p, g);
  const float dG = value * grad;
  a = a > p.limit ? 0.0f : dA;
  g = g < -p.limit || g > p.limit ? 0.0f : dG;
}

__device__ inline void gatedGradients(const GatedForm& p, Activation kind, float grad, float& a, float& g) {
  const float bounded = atMost(a, p.limit);
  gatedGradients(p, activate(kind, p.alpha, bounded), differentiate(kind, p.alpha, bounded), grad, a, g);
}

}  // namespace lockstep
