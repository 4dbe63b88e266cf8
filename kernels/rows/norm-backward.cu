// Selects the kernel of the norms' gradient. A pack is eight elements. The ring kernel of norm-backward.cuh serves rows
// that are whole packs and fit in shared memory. For all others `rowKernel` reads the rows from global memory, one warp
// per row.
#include <algorithm>

#include "kernels/rows/column-sum.h"
#include "kernels/rows/norm-backward.cuh"
#include "kernels/rows/norm.gen.h"

namespace lockstep {

namespace {

constexpr int kWarps = 8;

// The largest number of threads per block for which two blocks share a multiprocessor.
constexpr int kSharingThreads = 384;

// The maximum number of columns per block. A row with more is distributed over the blocks of a cluster, at most 8 (the
// portable maximum).
constexpr int kColumnsPerBlock = 4096;
constexpr int kMaxClusterSize = 8;

// The maximum number of bytes of a slot of the ring buffer, if the slot holds several rows.
constexpr int64_t kSlotBytes = 32 * 1024;

// Values that all elements of a row share. dx = scale * (d + (y * -b - a)), where y = (x - center) * scale and d = grad
// * gamma. a and b are the means over the row of d (0 for RMSNorm) and of d * y.
struct RowTerms {
  float center;
  float scale;
  float a;
  float b;
};

// Computes the RowTerms of a row with one warp. `x`, `grad` and `gamma` return elements by index.
template <typename X, typename Grad, typename Gamma>
__device__ RowTerms termsOf(const NormBackwardParams& p, int64_t row, X x, Grad grad, Gamma gamma) {
  const int64_t columns = p.columns;
  const float length = static_cast<float>(columns);
  RowTerms terms{p.mean ? p.mean[row] : 0.0f, p.rstd[row], 0.0f, 0.0f};
  float sumD = 0;
  float sumDy = 0;
#pragma unroll 8
  for (int64_t i = static_cast<int>(threadIdx.x) % kLanes; i < columns; i += kLanes) {
    const float y = (x(i) - terms.center) * terms.scale;
    const float d = grad(i) * gamma(i);
    sumD += d;
    sumDy += d * y;
  }
  if (p.mean) terms.a = foldLanes(sumD) / length;
  terms.b = foldLanes(sumDy) / length;
  return terms;
}

// One warp computes one row, which it reads from global memory twice.
__global__ void __launch_bounds__(kWarps* kLanes) rowKernel(const NormBackwardParams p) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  const float shift = p.zeroCentered ? 1.0f : -0.0f;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes; row < p.rows; row += step) {
    const int64_t first = row * p.columns;
    const auto x = [&](int64_t i) { return loadElement(p.x, p.xType, first + i); };
    const auto grad = [&](int64_t i) { return loadElement(p.grad, p.gradType, first + i); };
    const auto gamma = [&](int64_t i) { return loadElement(p.gamma, p.gammaType, i) + shift; };
    const auto [center, scale, a, b] = termsOf(p, row, x, grad, gamma);
#pragma unroll 4
    for (int64_t i = static_cast<int>(threadIdx.x) % kLanes; i < p.columns; i += kLanes) {
      const float y = (x(i) - center) * scale;
      storeElement(p.dx, p.dxType, first + i, (grad(i) * gamma(i) + (y * -b - a)) * scale);
    }
  }
}

struct RingPlan {
  // The number of slots is 0 if the ring kernel cannot be used, because a row has too many columns or fewer than 2
  // slots fit in shared memory.
  RingShape shape;
  unsigned threads;
  int64_t bytes;
};

RingPlan planOf(const NormBackwardParams& p) {
  const DeviceLimits device = limitsOfDevice();
  int clusterSize = 1;
  while (device.clusters && clusterSize < kMaxClusterSize && clusterSize * kColumnsPerBlock < p.columns)
    clusterSize *= 2;
  if (p.columns > static_cast<int64_t>(clusterSize) * kMaxResultThreads * kPack) return {};
  const int columns = static_cast<int>(ceilDivide(ceilDivide(p.columns, clusterSize), kLanes) * kLanes);
  const auto threads = static_cast<unsigned>(ceilDivide(columns, kPack * kLanes) * kLanes + kOtherThreads);
  const int64_t sharing = threads <= kSharingThreads ? 2 : 1;
  const int64_t fixed = static_cast<int64_t>(sizeof(Ring)) + columns * static_cast<int64_t>(sizeof(float));
  const int64_t rowBytes = 2 * columns * elementBytes(p.xType);
  int group = 1;
  while (group < kMaxRows / 4 && 2 * group * rowBytes <= kSlotBytes / sharing) group *= 2;
  const int64_t room = device.sharedBytes / sharing - kReservedBytes - fixed;
  const int most = std::min(kMaxSlots, kMaxRows / group);
  const auto slots = static_cast<int>(std::min<int64_t>(room / (group * rowBytes), most));
  if (slots < 2) return {};
  return {{columns, clusterSize, slots, group}, threads, fixed + slots * group * rowBytes};
}

// Launches the ring kernel. If there are enough chunks of 32 rows to fill the device, sets `summed`, and the kernel
// also computes the column sums of each chunk.
template <Wide type, int known>
cudaError_t launchRing(const NormBackwardParams& p, const RingPlan& plan, bool& summed, cudaStream_t stream) {
  const auto clusterSize = static_cast<unsigned>(plan.shape.clusterSize);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {clusterSize, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(clusterSize);
  config.blockDim = dim3(plan.threads);
  config.dynamicSmemBytes = static_cast<size_t>(plan.bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = limitsOfDevice().clusters ? (clusterSize > 1 ? 2 : 1) : 0;
  const auto teamsOf = [&](auto kernel) {
    const int64_t blocks = residentBlocks(kernel, plan.threads, plan.bytes);
    return std::max<int64_t>(clusterSize > 1 ? clustersOf(kernel, clusterSize, config) : blocks, 1);
  };
  const auto launch = [&](auto kernel, int64_t units) {
    config.gridDim = dim3(clusterSize * static_cast<unsigned>(std::min(units, teamsOf(kernel))));
    return cudaLaunchKernelEx(&config, kernel, p, plan.shape);
  };
  summed = 2 * chunksOf(p.rows) >= teamsOf(ringKernel<type, known, true>);
  if (summed) return launch(ringKernel<type, known, true>, chunksOf(p.rows));
  return launch(ringKernel<type, known, false>, ceilDivide(p.rows, plan.shape.group));
}

}  // namespace

cudaError_t launchNormBackward(const NormBackwardParams& p, cudaStream_t stream) {
  if (p.columns == 0) return cudaSuccess;
  RingPlan plan{};
  if (p.rows > 0 && p.xType == p.gradType && p.columns % kPack == 0) plan = planOf(p);
  bool summed = false;
  cudaError_t error = cudaSuccess;
  if (plan.shape.slots > 0) {
    withWide(p.xType, [&](auto type) {
      if (p.dxType == p.xType) {
        error = launchRing<type.value, static_cast<int>(type.value)>(p, plan, summed, stream);
      } else {
        error = launchRing<type.value, kAnyType>(p, plan, summed, stream);
      }
    });
  } else if (p.rows > 0) {
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(ceilDivide(p.rows, kWarps), INT32_MAX));
    rowKernel<<<blocks, kWarps * kLanes, 0, stream>>>(p);
    error = cudaGetLastError();
  }
  if (error != cudaSuccess) return error;
  ColumnSumParams sums{};
  sums.x = p.grad;
  sums.xType = p.gradType;
  sums.input = p.x;
  sums.inputType = p.xType;
  sums.mean = p.mean;
  sums.rstd = p.rstd;
  sums.out = p.dbeta;
  sums.weighted = p.dgamma;
  sums.outType = p.dgammaType;
  sums.rows = p.rows;
  sums.columns = p.columns;
  sums.workspace = p.workspace;
  return summed ? launchChunkFold(sums, stream) : launchColumnSum(sums, stream);
}

}  // namespace lockstep
