// The sum of two tensors. The kernel is limited by memory bandwidth (kernels/elementwise/elementwise.cuh).
#include "kernels/elementwise/add.gen.h"

#include "kernels/elementwise/elementwise.cuh"

namespace lockstep {

namespace {

template <Wide xType, Wide yType>
struct Sum {
  static constexpr bool kWide = xType == Wide::kF32 || yType == Wide::kF32;

  template <int width>
  static __device__ void read(const AddParams& p, int64_t index, float (&values)[width]) {
    float y[width];
    loadElements(p.x, xType, index, values);
    loadElements(p.y, yType, index, y);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] += y[i];
  }
};

}  // namespace

cudaError_t launchAdd(const AddParams& p, cudaStream_t stream) {
  withWide(p.xType,
           [&](auto x) { withWide(p.yType, [&](auto y) { launchElements<Sum<x.value, y.value>>(p, stream); }); });
  return cudaGetLastError();
}

}  // namespace lockstep
