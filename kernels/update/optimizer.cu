// Optimizer steps. Each element is read once and written once, so the kernels are limited by memory bandwidth.
#include "kernels/update/optimizer.gen.h"

#include "kernels/device/elements.cuh"
#include "kernels/quantize/noop.cuh"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
// The number of elements in one access (a quad).
constexpr int kQuad = 4;
// The number of quads (of kQuad elements) that a thread loads before it processes the first.
constexpr int kQuads = 2;
constexpr int kTile = kThreads * kQuads * kQuad;

struct Sgd {
  using Params = SgdParams;
  static constexpr int kStates = 1;

  __device__ static float* state(const Params& p, int) { return p.m; }
  __device__ static bool reads(const Params& p) { return p.m != nullptr && !p.first; }

  __device__ static float update(const Params& p, float grad, float parameter, float (&state)[kStates]) {
    float step = grad;
    if (p.weightDecay != 0) step = step + p.weightDecay * parameter;
    if (p.m != nullptr) {
      const float momentumBuffer = p.first ? step : p.momentum * state[0] + p.undamped * step;
      state[0] = momentumBuffer;
      step = p.nesterov ? step + p.momentum * momentumBuffer : momentumBuffer;
    }
    return parameter - p.learningRate * step;
  }
};

struct Adamw {
  using Params = AdamwParams;
  static constexpr int kStates = 2;

  __device__ static float* state(const Params& p, int index) { return index == 0 ? p.m : p.v; }
  __device__ static bool reads(const Params&) { return true; }

  __device__ static float update(const Params& p, float grad, float parameter, float (&state)[kStates]) {
    const float decay = p.weightDecay * parameter;
    const float g = p.decoupled ? grad : grad + decay;
    state[0] = p.beta1 * state[0] + (1.0f - p.beta1) * g;
    state[1] = p.beta2 * state[1] + (1.0f - p.beta2) * g * g;
    const float root = __fsqrt_rn(state[1] / p.correction2) + p.epsilon;
    float change = state[0] / p.correction1 / root;
    if (p.decoupled) change = change + decay;
    return parameter - p.learningRate * change;
  }
};

// Loads elements [index, index + some) of an array into a quad of four, and sets the rest of the quad to zero.
template <Wide type>
__device__ void loadQuad(const void* source, int64_t index, int some, float (&values)[kQuad]) {
  using Storage = typename WideOf<type>::Storage;
  struct alignas(kQuad * sizeof(Storage)) Quad {
    Storage elements[kQuad];
  };
  const Storage* from = static_cast<const Storage*>(source) + index;
  if (some == kQuad) {
    const Quad quad = *reinterpret_cast<const Quad*>(from);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) values[i] = WideOf<type>::load(quad.elements[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) values[i] = i < some ? WideOf<type>::load(from[i]) : 0.0f;
  }
}

template <Wide type>
__device__ void storeQuad(void* target, int64_t index, int some, const float (&values)[kQuad]) {
  using Storage = typename WideOf<type>::Storage;
  struct alignas(kQuad * sizeof(Storage)) Quad {
    Storage elements[kQuad];
  };
  Storage* to = static_cast<Storage*>(target) + index;
  if (some == kQuad) {
    Quad quad;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) quad.elements[i] = WideOf<type>::store(values[i]);
    *reinterpret_cast<Quad*>(to) = quad;
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (i < some) to[i] = WideOf<type>::store(values[i]);
    }
  }
}

// Updates kQuads quads of kQuad elements. The first starts at `first`, and the others follow at distances of kThreads
// quads. `whole` promises that none reaches past the end, so that no branch separates the loads.
template <typename Rule, Wide gradType, bool whole>
__device__ void stepQuads(const typename Rule::Params& p, int64_t first) {
  const auto indexOf = [&](int k) { return first + k * (kThreads * kQuad); };
  const auto someOf = [&](int k) {
    return whole ? kQuad : static_cast<int>(max(min(p.count - indexOf(k), int64_t{kQuad}), int64_t{0}));
  };
  float states[Rule::kStates][kQuads][kQuad] = {};
  if (Rule::reads(p)) {
#pragma unroll
    for (int s = 0; s < Rule::kStates; ++s) {
#pragma unroll
      for (int k = 0; k < kQuads; ++k) {
        loadQuad<Wide::kF32>(Rule::state(p, s), indexOf(k), someOf(k), states[s][k]);
      }
    }
  }
  float parameter[kQuads][kQuad];
  float grad[kQuads][kQuad];
#pragma unroll
  for (int k = 0; k < kQuads; ++k) {
    loadQuad<Wide::kF32>(p.parameter, indexOf(k), someOf(k), parameter[k]);
    loadQuad<gradType>(p.grad, indexOf(k), someOf(k), grad[k]);
  }
  const float scale = p.gradScale == nullptr ? 1.0f : *p.gradScale;
  if (isNoop(p.noop)) return;
#pragma unroll
  for (int k = 0; k < kQuads; ++k) {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      float state[Rule::kStates];
#pragma unroll
      for (int s = 0; s < Rule::kStates; ++s) state[s] = states[s][k][i];
      parameter[k][i] = Rule::update(p, grad[k][i] * scale, parameter[k][i], state);
#pragma unroll
      for (int s = 0; s < Rule::kStates; ++s) states[s][k][i] = state[s];
    }
    storeQuad<Wide::kF32>(p.parameter, indexOf(k), someOf(k), parameter[k]);
#pragma unroll
    for (int s = 0; s < Rule::kStates; ++s) {
      if (Rule::state(p, s) != nullptr) storeQuad<Wide::kF32>(Rule::state(p, s), indexOf(k), someOf(k), states[s][k]);
    }
    if (p.copy == nullptr) continue;
    if (p.copyType == Wide::kBf16) {
      storeQuad<Wide::kBf16>(p.copy, indexOf(k), someOf(k), parameter[k]);
    } else {
      storeQuad<Wide::kF16>(p.copy, indexOf(k), someOf(k), parameter[k]);
    }
  }
}

template <typename Rule, Wide gradType>
__global__ void __launch_bounds__(kThreads) stepKernel(const typename Rule::Params p) {
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t first = tile + threadIdx.x * kQuad;
  if (tile + kTile <= p.count) {
    stepQuads<Rule, gradType, true>(p, first);
  } else {
    stepQuads<Rule, gradType, false>(p, first);
  }
}

template <typename Rule>
cudaError_t launch(const typename Rule::Params& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(ceilDivide(p.count, kTile));
  withWide(p.gradType, [&](auto type) { stepKernel<Rule, type.value><<<blocks, kThreads, 0, stream>>>(p); });
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchSgd(const SgdParams& p, cudaStream_t stream) { return launch<Sgd>(p, stream); }

cudaError_t launchAdamw(const AdamwParams& p, cudaStream_t stream) { return launch<Adamw>(p, stream); }

}  // namespace lockstep
