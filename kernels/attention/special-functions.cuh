// The special functions of attention (docs/numerics.md §7.11).
#pragma once

#include <cuda_runtime.h>

namespace lockstep {

// 2^x.
__device__ inline float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float approximateTanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace lockstep
