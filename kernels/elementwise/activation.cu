// Activations and their gradients. Kernels are limited by memory bandwidth or, for functions evaluated in f64, by arithmetic.
// Functions in f64 of large bf16 inputs use tableKernel, which runs one block per multiprocessor, with the function in a
// shared-memory table. All others use activationKernel, in which a thread processes eight elements.
#include "kernels/elementwise/activation.h"

#include <type_traits>

#include "kernels/core/math.cuh"
#include "kernels/elementwise/activation.gen.h"
#include "kernels/elementwise/curve-table.cuh"
#include "kernels/quantize/amax-out.cuh"

namespace lockstep {

namespace {

constexpr int kThreads = 256;

template <typename Params>
constexpr bool kBackward = std::is_same_v<Params, ActivationBackwardParams>;

// `kind` is a template parameter, so that the loop of a kernel contains only one activation. If `measured`, `largest` is raised
// to the magnitudes of the results before rounding.
template <Activation kind, bool measured, int width, typename Params>
__device__ void work(const Params& p, int64_t index, float& largest) {
  constexpr float alpha = alphaOf(kind);
  float values[width];
  loadElements(p.x, p.xType, index, values);
  if constexpr (kBackward<Params>) {
    float grad[width];
    loadElements(p.grad, p.gradType, index, grad);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = differentiate(kind, alpha, values[i]) * grad[i];
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = activate(kind, alpha, values[i]);
  }
  storeElements(p.out, p.outType, index, values);
  if constexpr (measured) raiseTo(largest, values);
}

template <Activation kind, bool measured, typename Params>
__global__ void __launch_bounds__(kThreads) activationKernel(const Params p) {
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  float largest = 0;
  if (i + kPack <= p.count) {
    work<kind, measured, kPack>(p, i, largest);
  } else {
    for (; i < p.count; ++i) work<kind, measured, 1>(p, i, largest);
  }
  if constexpr (measured) raiseAmax(p.amax, largest);
}

// For bf16 inputs: the activation or its derivative is read from a table.
template <Activation kind, bool measured, typename Params>
__global__ void __launch_bounds__(kTableThreads) tableKernel(const Params p) {
  constexpr int kDepth = kBackward<Params> ? 2 : 4;
  __shared__ float table[kTableEntries];
  const auto curve = [](float x) {
    return kBackward<Params> ? differentiate(kind, alphaOf(kind), x) : activate(kind, alphaOf(kind), x);
  };
  fillTable(table, curve);
  __syncthreads();
  float largest = 0;
  const int64_t packs = p.count / kPack;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTableThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTableThreads + threadIdx.x;
  for (int64_t base = first; base < packs; base += kDepth * step) {
    Bytes16 x[kDepth];
    float grad[kDepth][kPack];
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const int64_t pack = base + k * step;
      if (pack >= packs) break;
      x[k] = static_cast<const Bytes16*>(p.x)[pack];
      if constexpr (kBackward<Params>) loadElements(p.grad, p.gradType, pack * kPack, grad[k]);
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const int64_t pack = base + k * step;
      if (pack >= packs) break;
      float values[kPack];
      loadElements(&x[k], Wide::kBf16, 0, values);
      lookUp(table, values, values, curve);
      if constexpr (kBackward<Params>) {
#pragma unroll
        for (int i = 0; i < kPack; ++i) values[i] *= grad[k][i];
      }
      storeElements(p.out, p.outType, pack * kPack, values);
      if constexpr (measured) raiseTo(largest, values);
    }
  }
  const int64_t rest = packs * kPack + first;
  if (rest < p.count) work<kind, measured, 1>(p, rest, largest);
  if constexpr (measured) raiseAmaxByWarp(p.amax, largest);
}

template <bool measured, typename Params>
cudaError_t launchKernel(const Params& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(ceilDivide(p.count, kThreads * kPack));
  withActivation(p.kind, [&](auto kind) {
    if constexpr (inDouble(kind.value)) {
      if (p.xType == Wide::kBf16 && p.count >= kLeastForTable) {
        tableKernel<kind.value, measured><<<tableBlocks(), kTableThreads, 0, stream>>>(p);
        return;
      }
    }
    activationKernel<kind.value, measured><<<blocks, kThreads, 0, stream>>>(p);
  });
  return cudaGetLastError();
}

template <typename Params>
cudaError_t launch(const Params& p, cudaStream_t stream) {
  if (p.amax == nullptr) return launchKernel<false>(p, stream);
  const cudaError_t error = cudaMemsetAsync(p.amax, 0, sizeof(float), stream);
  return error == cudaSuccess ? launchKernel<true>(p, stream) : error;
}

}  // namespace

cudaError_t launchActivation(const ActivationParams& p, cudaStream_t stream) { return launch(p, stream); }

cudaError_t launchActivationBackward(const ActivationBackwardParams& p, cudaStream_t stream) {
  return launch(p, stream);
}

}  // namespace lockstep
