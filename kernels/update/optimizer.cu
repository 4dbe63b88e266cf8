// Optimizer steps of lists of parameters. Each element is read once and written once, so the kernels are limited by memory
// bandwidth.
#include "kernels/update/optimizer.gen.h"

#include <cstring>

#include "kernels/device/elements.cuh"
#include "kernels/quantize/noop.cuh"
#include "kernels/update/tensor-list.cuh"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
// The number of elements in one access (a quad).
constexpr int kQuad = 4;
// The number of elements of a block: a quad for each thread. With more, fewer threads fit on a multiprocessor, which is slower.
constexpr int kTile = kThreads * kQuad;

// The maximum number of different sets of options in one launch.
constexpr int kFewOptions = 4;
constexpr int kManyOptions = 24;

// What steps of several parameters share.
struct StepOptions {
  const float* gradScale;
  const float* noop;
  float learningRate;
  float weightDecay;
};

// The tensors of one parameter's step. Null states are absent.
template <int stateCount>
struct StepRow {
  const void* grad;
  float* parameter;
  void* copy;
  float* states[stateCount];
  int64_t count;
  // Members of Wide.
  uint8_t gradType;
  uint8_t copyType;
  // The index of its options in the list.
  uint8_t options;
};

struct Sgd {
  using Params = SgdParams;
  static constexpr int kStates = 1;

  struct Options : StepOptions {
    float momentum;
    float undamped;
    bool nesterov;
    bool first;
  };

  static void fill(Options& options, const Params& p) {
    options.momentum = p.momentum;
    options.undamped = p.undamped;
    options.nesterov = p.nesterov;
    options.first = p.first;
  }

  static float* state(const Params& p, int) { return p.m; }
  __device__ static bool reads(const Options& options) { return !options.first; }

  __device__ static float update(const Options& p, bool hasState, float grad, float parameter,
                                 float (&state)[kStates]) {
    float step = grad;
    if (p.weightDecay != 0) step = step + p.weightDecay * parameter;
    if (hasState) {
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

  struct Options : StepOptions {
    float beta1;
    float beta2;
    float correction1;
    float correction2;
    float epsilon;
    bool decoupled;
  };

  static void fill(Options& options, const Params& p) {
    options.beta1 = p.beta1;
    options.beta2 = p.beta2;
    options.correction1 = p.correction1;
    options.correction2 = p.correction2;
    options.epsilon = p.epsilon;
    options.decoupled = p.decoupled;
  }

  static float* state(const Params& p, int index) { return index == 0 ? p.m : p.v; }
  __device__ static bool reads(const Options&) { return true; }

  __device__ static float update(const Options& p, bool, float grad, float parameter, float (&state)[kStates]) {
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

template <typename Rule>
using RowOf = StepRow<Rule::kStates>;

// A list of steps with their options.
template <typename Rule, int capacity, int maxOptions>
struct StepList : TensorList<RowOf<Rule>, capacity> {
  typename Rule::Options options[maxOptions];
  int optionCount;
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

// Updates the elements [first, first + kQuad) that exist. `whole` promises that all do, so that no branch separates the loads.
template <typename Rule, Wide gradType, bool whole>
__device__ void stepQuad(const RowOf<Rule>& row, const typename Rule::Options& options, int64_t first) {
  const int some = whole ? kQuad : static_cast<int>(max(min(row.count - first, int64_t{kQuad}), int64_t{0}));
  float states[Rule::kStates][kQuad] = {};
  if (Rule::reads(options)) {
#pragma unroll
    for (int s = 0; s < Rule::kStates; ++s) {
      if (row.states[s] != nullptr) loadQuad<Wide::kF32>(row.states[s], first, some, states[s]);
    }
  }
  float parameter[kQuad];
  float grad[kQuad];
  loadQuad<Wide::kF32>(row.parameter, first, some, parameter);
  loadQuad<gradType>(row.grad, first, some, grad);
  const float scale = options.gradScale == nullptr ? 1.0f : *options.gradScale;
  if (isNoop(options.noop)) return;
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    float state[Rule::kStates];
#pragma unroll
    for (int s = 0; s < Rule::kStates; ++s) state[s] = states[s][i];
    const bool hasState = row.states[0] != nullptr;
    parameter[i] = Rule::update(options, hasState, grad[i] * scale, parameter[i], state);
#pragma unroll
    for (int s = 0; s < Rule::kStates; ++s) states[s][i] = state[s];
  }
  storeQuad<Wide::kF32>(row.parameter, first, some, parameter);
#pragma unroll
  for (int s = 0; s < Rule::kStates; ++s) {
    if (row.states[s] != nullptr) storeQuad<Wide::kF32>(row.states[s], first, some, states[s]);
  }
  if (row.copy == nullptr) return;
  if (static_cast<Wide>(row.copyType) == Wide::kBf16) {
    storeQuad<Wide::kBf16>(row.copy, first, some, parameter);
  } else {
    storeQuad<Wide::kF16>(row.copy, first, some, parameter);
  }
}

template <typename Rule, Wide gradType>
__device__ void stepTile(const RowOf<Rule>& row, const typename Rule::Options& options, uint32_t tile) {
  const int64_t begin = static_cast<int64_t>(tile) * kTile;
  const int64_t first = begin + threadIdx.x * kQuad;
  if (begin + kTile <= row.count) {
    stepQuad<Rule, gradType, true>(row, options, first);
  } else {
    stepQuad<Rule, gradType, false>(row, options, first);
  }
}

template <typename Rule, typename List>
__global__ void __launch_bounds__(kThreads) stepKernel(const __grid_constant__ List list) {
  const auto [index, tile] = tileOfBlock(list);
  const RowOf<Rule>& row = list.rows[index];
  const typename Rule::Options& options = list.options[row.options];
  switch (static_cast<Wide>(row.gradType)) {
    case Wide::kF32:
      return stepTile<Rule, Wide::kF32>(row, options, tile);
    case Wide::kBf16:
      return stepTile<Rule, Wide::kBf16>(row, options, tile);
    case Wide::kF16:
      return stepTile<Rule, Wide::kF16>(row, options, tile);
  }
}

// Returns the index in the list of options with the same bits, and adds them if there are none. Returns -1 if there is no
// place.
template <typename List, typename Options>
int indexOfOptions(List& list, const Options& options) {
  constexpr int kCapacity = static_cast<int>(std::extent_v<decltype(list.options)>);
  if (list.size == 0) list.optionCount = 0;
  for (int i = list.optionCount - 1; i >= 0; --i) {
    if (std::memcmp(&list.options[i], &options, sizeof(Options)) == 0) return i;
  }
  if (list.optionCount == kCapacity) return -1;
  std::memcpy(&list.options[list.optionCount], &options, sizeof(Options));
  return list.optionCount++;
}

template <typename Rule, typename List>
bool addStep(List& list, const typename Rule::Params& p) {
  typename Rule::Options options;
  // padding is compared too
  std::memset(static_cast<void*>(&options), 0, sizeof(options));
  options.gradScale = p.gradScale;
  options.noop = p.noop;
  options.learningRate = p.learningRate;
  options.weightDecay = p.weightDecay;
  Rule::fill(options, p);
  const int index = indexOfOptions(list, options);
  if (index < 0) return false;
  RowOf<Rule>& row = list.rows[list.size];
  row.grad = p.grad;
  row.parameter = p.parameter;
  row.copy = p.copy;
  row.count = p.count;
  row.gradType = static_cast<uint8_t>(p.gradType);
  row.copyType = static_cast<uint8_t>(p.copyType);
  row.options = static_cast<uint8_t>(index);
  for (int s = 0; s < Rule::kStates; ++s) row.states[s] = Rule::state(p, s);
  return true;
}

template <typename Rule, int capacity, int maxOptions>
cudaError_t launchSteps(std::span<const typename Rule::Params> steps, cudaStream_t stream) {
  using List = StepList<Rule, capacity, maxOptions>;
  return launchLists<List>(
      steps, [](const auto& step) { return ceilDivide(step.count, int64_t{kTile}); }, addStep<Rule, List>,
      [&](const List& list, uint32_t tiles) { stepKernel<Rule><<<tiles, kThreads, 0, stream>>>(list); });
}

template <typename Rule>
cudaError_t launch(std::span<const typename Rule::Params> steps, cudaStream_t stream) {
  const bool isShort = steps.size() <= static_cast<size_t>(kFewTensors);
  return isShort ? launchSteps<Rule, kFewTensors, kFewOptions>(steps, stream)
                 : launchSteps<Rule, kManyTensors, kManyOptions>(steps, stream);
}

}  // namespace

cudaError_t launchSgd(std::span<const SgdParams> steps, cudaStream_t stream) { return launch<Sgd>(steps, stream); }

cudaError_t launchAdamw(std::span<const AdamwParams> steps, cudaStream_t stream) {
  return launch<Adamw>(steps, stream);
}

}  // namespace lockstep
