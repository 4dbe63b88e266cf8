// Gated activations and their gradients. A pack is eight elements. Large bf16 inputs of activations evaluated in f64
// use gatedTableKernel: one block per multiprocessor, with the activation and its derivative in shared-memory tables.
// Other matrices whose rows are whole packs use gatedKernel. The rest use raggedGatedKernel, one element at a time.
#include "kernels/elementwise/gated.h"

#include "kernels/elementwise/activation.gen.h"
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/curve-table.cuh"
#include "kernels/elementwise/gated.cuh"
#include "kernels/quantize/amax-out.cuh"

namespace lockstep {

namespace {

// Evaluates the activation and its derivative at min(a, limit) for each element.
struct Curves {
  const GatedForm& p;
  Activation kind;

  __device__ float value(float a) const { return activate(kind, p.alpha, atMost(a, p.limit)); }
  __device__ float derivative(float a) const { return differentiate(kind, p.alpha, atMost(a, p.limit)); }

  template <int width>
  __device__ void values(const float (&a)[width], float (&results)[width]) const {
#pragma unroll
    for (int i = 0; i < width; ++i) results[i] = value(a[i]);
  }
  template <int width>
  __device__ void both(const float (&a)[width], float (&values)[width], float (&derivatives)[width]) const {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      values[i] = value(a[i]);
      derivatives[i] = derivative(a[i]);
    }
  }
};

// Reads the activation and its derivative of a pack from tables that cover it.
struct TabledCurves {
  const float* valueTable;
  const float* derivativeTable;
  const uint32_t (&entries)[kPack];

  __device__ void values(const float (&)[kPack], float (&results)[kPack]) const {
#pragma unroll
    for (int i = 0; i < kPack; ++i) results[i] = valueTable[entries[i]];
  }
  __device__ void both(const float (&)[kPack], float (&values)[kPack], float (&derivatives)[kPack]) const {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      values[i] = valueTable[entries[i]];
      derivatives[i] = derivativeTable[entries[i]];
    }
  }
};

// The first of the elements that a thread computes together: row and column of one half of x.
struct Position {
  int64_t row;
  int64_t column;

  // The index in the first half of x; the index in the second half is larger by p.columns.
  __device__ int64_t inHalves(const GatedForm& p) const { return 2 * row * p.columns + column; }
  // The index in the result of the activation.
  __device__ int64_t inResult(const GatedForm& p) const { return row * p.columns + column; }
};

// Computes and stores results. If `measured`, `largest` is raised to their magnitudes before rounding.
template <bool measured, int width, typename Of>
__device__ void forward(const GatedForm& p, const Of& curves, const Position& at, const float (&a)[width],
                        const float (&g)[width], float& largest) {
  float out[width];
  curves.values(a, out);
#pragma unroll
  for (int i = 0; i < width; ++i) out[i] *= gateOf(p, g[i]);
  storeElements(p.out, p.outType, at.inResult(p), out);
  if constexpr (measured) raiseTo(largest, out);
}

// As `forward`, for the gradients, which replace a and g.
template <bool measured, int width, typename Of>
__device__ void backward(const GatedForm& p, const Of& curves, const Position& at, float (&a)[width], float (&g)[width],
                         const float (&grad)[width], float& largest) {
  float values[width];
  float derivatives[width];
  curves.both(a, values, derivatives);
#pragma unroll
  for (int i = 0; i < width; ++i) gatedGradients(p, values[i], derivatives[i], grad[i], a[i], g[i]);
  storeElements(p.out, p.outType, at.inHalves(p), a);
  storeElements(p.out, p.outType, at.inHalves(p) + p.columns, g);
  if constexpr (measured) {
    raiseTo(largest, a);
    raiseTo(largest, g);
  }
}

template <bool isBackward, bool measured, int width>
__device__ void work(const GatedForm& p, const Curves& curves, const Position& at, float& largest) {
  float a[width];
  float g[width];
  loadElements(p.x, p.xType, at.inHalves(p), a);
  loadElements(p.x, p.xType, at.inHalves(p) + p.columns, g);
  if constexpr (isBackward) {
    float grad[width];
    loadElements(p.grad, p.gradType, at.inResult(p), grad);
    backward<measured>(p, curves, at, a, g, grad, largest);
  } else {
    forward<measured>(p, curves, at, a, g, largest);
  }
}

template <bool isBackward, bool measured, int width>
__device__ void workRows(const GatedForm& p, Activation kind) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  float largest = 0;
  if (column < p.columns) {
    for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < p.rows; row += step) {
      work<isBackward, measured, width>(p, Curves{p, kind}, {row, column}, largest);
    }
  }
  if constexpr (measured) raiseAmax(p.amax, largest);
}

// `kind` is a template parameter, so that the loops contain only one activation. Both halves of a row start at
// multiples of 16 bytes.
template <Activation kind, bool isBackward, bool measured>
__global__ void __launch_bounds__(kRowThreads) gatedKernel(const GatedForm p) {
  workRows<isBackward, measured, kPack>(p, kind);
}

template <bool isBackward, bool measured>
__global__ void __launch_bounds__(kRowThreads) raggedGatedKernel(const GatedForm p) {
  workRows<isBackward, measured, 1>(p, p.kind);
}

// Whether the form differs from setUnclamped's: it clamps, it has an offset, or a silu has another alpha.
bool isClamped(const GatedForm& p) {
  return p.alpha != alphaOf(p.kind) || p.limit != INFINITY || p.offset != 0 || !std::signbit(p.offset);
}

// Sets the form to clamp nothing, by constants: gateOf(p, g) is then g, and gatedGradients never replaces a gradient by 0.
__device__ void setUnclamped(GatedForm& p, Activation kind) {
  p.alpha = alphaOf(kind);
  p.limit = INFINITY;
  p.offset = -0.0f;
}

// Loads 16 bytes that no kernel reads again soon. They do not displace results in the L2 cache, which the next kernel reads.
__device__ Bytes16 loadOnce(const void* source, int64_t index) {
  const uint4 words = __ldcs(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(source) + index));
  return {{words.x, words.y, words.z, words.w}};
}

// The bf16 inputs of a pack. A gradient of another type is loaded when it is used.
template <bool isBackward>
struct PackInputs {
  Bytes16 a;
  Bytes16 g;
  Bytes16 grad;

  // Does nothing after the last row.
  __device__ void load(const GatedForm& p, const Position& at) {
    if (at.row >= p.rows) return;
    a = loadOnce(p.x, at.inHalves(p));
    g = loadOnce(p.x, at.inHalves(p) + p.columns);
    if constexpr (isBackward) {
      if (p.gradType == Wide::kBf16) grad = loadOnce(p.grad, at.inResult(p));
    }
  }

  // Computes and stores results from tables. Returns false if they do not cover the pack.
  template <bool measured>
  __device__ bool work(const GatedForm& p, const float* values, const float* derivatives, const Position& at,
                       float& largest) const {
    float aValues[kPack];
    float gValues[kPack];
    uint32_t entries[kPack];
    loadElements(&a, Wide::kBf16, 0, aValues);
    if (!tableEntries(aValues, entries)) return false;
    const TabledCurves curves{values, derivatives, entries};
    loadElements(&g, Wide::kBf16, 0, gValues);
    if constexpr (isBackward) {
      float gradValues[kPack];
      if (p.gradType == Wide::kBf16) {
        loadElements(&grad, Wide::kBf16, 0, gradValues);
      } else {
        loadElements(p.grad, p.gradType, at.inResult(p), gradValues);
      }
      backward<measured>(p, curves, at, aValues, gValues, gradValues, largest);
    } else {
      forward<measured>(p, curves, at, aValues, gValues, largest);
    }
    return true;
  }
};

// For bf16 inputs: the activation and its derivative are read from tables. All threads of the grid process adjacent
// packs and then advance together. A thread loads the inputs of its next pack before it processes the loaded one. A pack
// that the tables do not cover is loaded again and evaluated, one element at a time, which takes few registers.
// Without `clamped`, the form does not clamp, and the kernel has no code for that.
template <Activation kind, bool isBackward, bool clamped, bool measured>
__global__ void __launch_bounds__(kTableThreads) gatedTableKernel(const GatedForm form) {
  __shared__ float values[kTableEntries];
  __shared__ float derivatives[isBackward ? kTableEntries : 1];
  GatedForm p = form;
  if constexpr (!clamped) setUnclamped(p, kind);
  const Curves curves{p, kind};
  fillTable(values, [&](float x) { return curves.value(x); });
  if constexpr (isBackward) fillTable(derivatives, [&](float x) { return curves.derivative(x); });
  __syncthreads();
  const int64_t across = p.columns / kPack;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kTableThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTableThreads + threadIdx.x;
  const Position step = {threads / across, threads % across * kPack};
  Position at = {first / across, first % across * kPack};
  PackInputs<isBackward> next{};
  next.load(p, at);
  float largest = 0;
  while (at.row < p.rows) {
    const Position current = at;
    const PackInputs<isBackward> inputs = next;
    at.row += step.row;
    at.column += step.column;
    if (at.column >= p.columns) {
      at.column -= p.columns;
      ++at.row;
    }
    next.load(p, at);
    if (inputs.template work<measured>(p, values, derivatives, current, largest)) continue;
#pragma unroll 1
    for (int i = 0; i < kPack; ++i) {
      work<isBackward, measured, 1>(p, curves, {current.row, current.column + i}, largest);
    }
  }
  if constexpr (measured) raiseAmaxByWarp(p.amax, largest);
}

template <Activation kind, bool isBackward, bool measured>
void launchTable(const GatedForm& p, cudaStream_t stream) {
  if constexpr (kind == Activation::kSilu) {
    if (isClamped(p)) {
      gatedTableKernel<kind, isBackward, true, measured><<<tableBlocks(), kTableThreads, 0, stream>>>(p);
      return;
    }
  }
  gatedTableKernel<kind, isBackward, false, measured><<<tableBlocks(), kTableThreads, 0, stream>>>(p);
}

template <bool isBackward, bool measured>
cudaError_t launchKernel(const GatedForm& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  if (p.columns % kPack != 0) {
    const RowGrid grid = rowGrid(p.rows, p.columns);
    raggedGatedKernel<isBackward, measured><<<grid.blocks, grid.threads, 0, stream>>>(p);
    return cudaGetLastError();
  }
  const RowGrid grid = rowGrid(p.rows, p.columns / kPack);
  withActivation(p.kind, [&](auto kind) {
    if constexpr (inDouble(kind.value)) {
      if (p.xType == Wide::kBf16 && p.rows * p.columns >= kLeastForTable) {
        launchTable<kind.value, isBackward, measured>(p, stream);
        return;
      }
    }
    gatedKernel<kind.value, isBackward, measured><<<grid.blocks, grid.threads, 0, stream>>>(p);
  });
  return cudaGetLastError();
}

template <bool isBackward>
cudaError_t launch(const GatedForm& p, cudaStream_t stream) {
  if (p.amax == nullptr) return launchKernel<isBackward, false>(p, stream);
  const cudaError_t error = cudaMemsetAsync(p.amax, 0, sizeof(float), stream);
  return error == cudaSuccess ? launchKernel<isBackward, true>(p, stream) : error;
}

template <typename Params>
GatedForm formOf(const Params& p) {
  GatedForm form;
  form.x = p.x;
  form.xType = p.xType;
  form.out = p.out;
  form.outType = p.outType;
  form.amax = p.amax;
  form.rows = p.rows;
  form.columns = p.columns;
  if constexpr (requires { p.grad; }) {
    form.grad = p.grad;
    form.gradType = p.gradType;
  }
  if constexpr (requires { p.kind; }) {
    form.kind = p.kind;
    form.alpha = alphaOf(p.kind);
  } else {
    form.kind = Activation::kSilu;
    form.alpha = p.alpha;
    form.limit = p.limit;
    form.offset = p.offset;
  }
  return form;
}

}  // namespace

cudaError_t launchGated(const GatedParams& p, cudaStream_t stream) { return launch<false>(formOf(p), stream); }

cudaError_t launchGatedBackward(const GatedBackwardParams& p, cudaStream_t stream) {
  return launch<true>(formOf(p), stream);
}

cudaError_t launchClampedSwiglu(const ClampedSwigluParams& p, cudaStream_t stream) {
  return launch<false>(formOf(p), stream);
}

cudaError_t launchClampedSwigluBackward(const ClampedSwigluBackwardParams& p, cudaStream_t stream) {
  return launch<true>(formOf(p), stream);
}

}  // namespace lockstep
