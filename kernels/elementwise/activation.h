// Activations and their gradients, element by element (docs/numerics.md 7.2).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// out[i] = act(x[i]), or grad[i] * act'(x[i]) if a gradient is given.
struct ActivationParams {
  const void* x = nullptr;
  Wide xType = Wide::kF32;
  const void* grad = nullptr;
  Wide gradType = Wide::kF32;
  void* out = nullptr;
  Wide outType = Wide::kF32;
  Activation kind = Activation::kGelu;
  int64_t count = 0;
};

// The factor of x inside the logistic function of qgelu; 1 for all other activations.
__host__ __device__ constexpr float alphaOf(Activation kind) { return kind == Activation::kQgelu ? 1.702f : 1.0f; }

// Calls `body` with a tag whose constant `value` is `kind`, as withWide does for types.
template <Activation kind>
struct ActivationTag {
  static constexpr Activation value = kind;
};
template <typename Body>
void withActivation(Activation kind, Body body) {
  switch (kind) {
    case Activation::kGelu:
      return body(ActivationTag<Activation::kGelu>{});
    case Activation::kRelu:
      return body(ActivationTag<Activation::kRelu>{});
    case Activation::kSilu:
      return body(ActivationTag<Activation::kSilu>{});
    case Activation::kQgelu:
      return body(ActivationTag<Activation::kQgelu>{});
    case Activation::kSrelu:
      return body(ActivationTag<Activation::kSrelu>{});
    case Activation::kSigmoid:
      return body(ActivationTag<Activation::kSigmoid>{});
  }
}

cudaError_t launchActivation(const ActivationParams& p, cudaStream_t stream);
cudaError_t launchActivationBackward(const ActivationParams& p, cudaStream_t stream);

}  // namespace lockstep
