// Gated activations and their gradients. A pack is eight elements. Large bf16 inputs of activations evaluated in f64
// use gatedTableKernel: one block per multiprocessor, with the activation and its derivative in shared-memory tables.
// Other matrices whose rows are whole packs use gatedKernel. The rest use raggedGatedKernel, one element at a time.
#include "kernels/elementwise/gated.h"

#include "kernels/elementwise/activation.gen.h"
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/curve-table.cuh"
#include "kernels/elementwise/gated.cuh"

namespace lockstep {

namespace {

// The number of threads along a row in a block that uses a table.
constexpr unsigned kTableColumns = 128;

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
  __device__ void derivatives(const float (&a)[width], float (&results)[width]) const {
#pragma unroll
    for (int i = 0; i < width; ++i) results[i] = derivative(a[i]);
  }
};

// As Curves, but reads them from tables.
struct TabledCurves {
  const Curves& curves;
  const float* valueTable;
  const float* derivativeTable;

  __device__ void values(const float (&a)[kPack], float (&results)[kPack]) const {
    lookUp(valueTable, a, results, [&](float x) { return curves.value(x); });
  }
  __device__ void derivatives(const float (&a)[kPack], float (&results)[kPack]) const {
    lookUp(derivativeTable, a, results, [&](float x) { return curves.derivative(x); });
  }
};

template <int width, typename Of>
__device__ void forward(const GatedForm& p, const Of& curves, int64_t row, int64_t column) {
  const int64_t first = 2 * row * p.columns + column;
  float a[width];
  float g[width];
  float out[width];
  loadElements(p.x, p.xType, first, a);
  loadElements(p.x, p.xType, first + p.columns, g);
  curves.values(a, out);
#pragma unroll
  for (int i = 0; i < width; ++i) out[i] *= gateOf(p, g[i]);
  storeElements(p.out, p.outType, row * p.columns + column, out);
}

template <int width, typename Of>
__device__ void backward(const GatedForm& p, const Of& curves, int64_t row, int64_t column) {
  const int64_t first = 2 * row * p.columns + column;
  float a[width];
  float g[width];
  float grad[width];
  float values[width];
  float derivatives[width];
  loadElements(p.x, p.xType, first, a);
  loadElements(p.x, p.xType, first + p.columns, g);
  loadElements(p.grad, p.gradType, row * p.columns + column, grad);
  curves.values(a, values);
  curves.derivatives(a, derivatives);
#pragma unroll
  for (int i = 0; i < width; ++i) gatedGradients(p, values[i], derivatives[i], grad[i], a[i], g[i]);
  storeElements(p.out, p.outType, first, a);
  storeElements(p.out, p.outType, first + p.columns, g);
}

template <bool isBackward, int width, typename Of>
__device__ void work(const GatedForm& p, const Of& curves, int64_t row, int64_t column) {
  if constexpr (isBackward) {
    backward<width>(p, curves, row, column);
  } else {
    forward<width>(p, curves, row, column);
  }
}

template <bool isBackward, int width>
__device__ void workRows(const GatedForm& p, Activation kind) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
  if (column >= p.columns) return;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < p.rows; row += step) {
    work<isBackward, width>(p, Curves{p, kind}, row, column);
  }
}

// `kind` is a template parameter, so that the loops contain only one activation. Both halves of a row start at
// multiples of 16 bytes.
template <Activation kind, bool isBackward>
__global__ void __launch_bounds__(kRowThreads) gatedKernel(const GatedForm p) {
  workRows<isBackward, kPack>(p, kind);
}

template <bool isBackward>
__global__ void __launch_bounds__(kRowThreads) raggedGatedKernel(const GatedForm p) {
  workRows<isBackward, 1>(p, p.kind);
}

// For bf16 inputs: the activation and its derivative are read from tables. A block advances along a row by
// kTableColumns packs of eight elements.
template <Activation kind, bool isBackward>
__global__ void __launch_bounds__(kTableThreads) gatedTableKernel(const GatedForm p) {
  __shared__ float values[kTableEntries];
  __shared__ float derivatives[isBackward ? kTableEntries : 1];
  const Curves curves{p, kind};
  fillTable(values, [&](float x) { return curves.value(x); });
  if constexpr (isBackward) fillTable(derivatives, [&](float x) { return curves.derivative(x); });
  __syncthreads();
  const TabledCurves tabled{curves, values, derivatives};
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < p.rows; row += step) {
    for (int64_t column = threadIdx.x * kPack; column < p.columns; column += kTableColumns * kPack) {
      work<isBackward, kPack>(p, tabled, row, column);
    }
  }
}

template <bool isBackward>
cudaError_t launch(const GatedForm& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  if (p.columns % kPack != 0) {
    const RowGrid grid = rowGrid(p.rows, p.columns);
    raggedGatedKernel<isBackward><<<grid.blocks, grid.threads, 0, stream>>>(p);
    return cudaGetLastError();
  }
  const RowGrid grid = rowGrid(p.rows, p.columns / kPack);
  withActivation(p.kind, [&](auto kind) {
    if constexpr (inDouble(kind.value)) {
      if (p.xType == Wide::kBf16 && p.rows * p.columns >= kLeastForTable) {
        const dim3 threads(kTableColumns, kTableThreads / kTableColumns);
        gatedTableKernel<kind.value, isBackward><<<tableBlocks(), threads, 0, stream>>>(p);
        return;
      }
    }
    gatedKernel<kind.value, isBackward><<<grid.blocks, grid.threads, 0, stream>>>(p);
  });
  return cudaGetLastError();
}

template <typename Params>
GatedForm formOf(const Params& p) {
  GatedForm form;
  form.x = p.x;
  form.xType = p.xType;
  form.out = p.out;
  form.outType = p.outType;
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
