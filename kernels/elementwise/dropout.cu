// Dropout of elements (docs/numerics.md 7.14). A thread processes eight elements, which share a draw.
#include "kernels/device/eight.cuh"
#include "kernels/elementwise/dropout.gen.h"

namespace lockstep {

namespace {

template <Wide xType, Wide outType>
struct Dropout {
  using Params = DropoutParams;
  using From = WideEight<xType>;
  using To = WideEight<outType>;
  static constexpr int kEights = 1;

  __device__ explicit Dropout(const DropoutParams& params) : p(params) {}
  __device__ To operator()(const From& source, int64_t eight) const {
    const uint4 draw = philox(eight, 0, p.random);
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = halfOf(draw, i) < p.threshold ? 0.0f : wideAt<xType>(source, i) * p.keep;
    }
    return wideEight<outType>(values);
  }

  const DropoutParams& p;
};

}  // namespace

cudaError_t launchDropout(const DropoutParams& p, cudaStream_t stream) {
  return withWide(p.xType, [&](auto x) {
    return withWide(p.outType, [&](auto out) { return launchMap<Dropout<x.value, out.value>>(p, stream); });
  });
}

}  // namespace lockstep
