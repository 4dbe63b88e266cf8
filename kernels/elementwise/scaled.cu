// A tensor times a scalar. The kernel is limited by memory bandwidth (kernels/elementwise/elementwise.cuh).
#include "kernels/elementwise/scaled.gen.h"

#include "kernels/elementwise/elementwise.cuh"

namespace lockstep {

namespace {

template <Wide type>
struct Multiple {
  static constexpr bool kWide = type == Wide::kF32;

  template <int width>
  static __device__ void read(const ScaledParams& p, int64_t index, float (&values)[width]) {
    loadElements(p.x, type, index, values);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] *= p.factor;
  }
};

}  // namespace

cudaError_t launchScaled(const ScaledParams& p, cudaStream_t stream) {
  withWide(p.xType, [&](auto type) { launchElements<Multiple<type.value>>(p, stream); });
  return cudaGetLastError();
}

}  // namespace lockstep
