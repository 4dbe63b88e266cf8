#include "kernels/activation.h"

#include "kernels/elements.cuh"
#include "kernels/math.cuh"

namespace lockstep {

namespace {

constexpr int kThreads = 256;

// `kind` is known when compiled, so that the loops of a caller hold one curve.
template <Activation kind, bool backward, int width>
__device__ void work(const ActivationParams& p, int64_t index) {
  constexpr float alpha = alphaOf(kind);
  float values[width];
  loadElements(p.x, p.xType, index, values);
  if constexpr (backward) {
    float grad[width];
    loadElements(p.grad, p.gradType, index, grad);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = differentiate(kind, alpha, values[i]) * grad[i];
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = activate(kind, alpha, values[i]);
  }
  storeElements(p.out, p.outType, index, values);
}

template <Activation kind, bool backward>
__global__ void __launch_bounds__(kThreads) activationKernel(const ActivationParams p) {
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if (i + kPack <= p.count) {
    work<kind, backward, kPack>(p, i);
  } else {
    for (; i < p.count; ++i) work<kind, backward, 1>(p, i);
  }
}

template <bool backward>
cudaError_t launch(const ActivationParams& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(ceilDivide(p.count, kThreads * kPack));
  withActivation(p.kind, [&](auto kind) {
    activationKernel<kind.value, backward><<<blocks, kThreads, 0, stream>>>(p);
  });
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchActivation(const ActivationParams& p, cudaStream_t stream) { return launch<false>(p, stream); }

cudaError_t launchActivationBackward(const ActivationParams& p, cudaStream_t stream) { return launch<true>(p, stream); }

}  // namespace lockstep
