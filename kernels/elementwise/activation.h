// Shared by the kernels of activations (docs/numerics.md 7.2).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

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

}  // namespace lockstep
