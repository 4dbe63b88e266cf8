// Softmax. A team of threads computes one row: a warp for short rows, a block for long ones. The threads of its first
// warp are the lanes of the sums. If the row fits in shared memory, it stays there between passes; otherwise it is read
// again.
#include "kernels/rows/softmax.gen.h"

#include "kernels/core/divisor.cuh"
#include "kernels/core/exponential.cuh"
#include "kernels/device/elements.cuh"
#include "kernels/rows/softmax.cuh"

namespace lockstep {

namespace {

constexpr float kInfinity = __builtin_huge_valf();

// Stores elements [index, index + width) of a row in shared memory.
template <int width, typename Index>
__device__ void hold(float* row, Index index, const float (&values)[width]) {
  if constexpr (width == 1) {
    row[index] = values[0];
  } else {
    float4* quads = reinterpret_cast<float4*>(row + index);
#pragma unroll
    for (int i = 0; i < width / 4; ++i) {
      quads[i] = {values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]};
    }
  }
}

// If `held`, the row stays in shared memory. If `width` is kPack, rows must be whole packs.
template <Wide type, int size, bool held, int width>
__global__ void __launch_bounds__(threadsOf(size)) softmaxKernel(const SoftmaxParams p) {
  // the index type that was measured to be faster, by up to 25 %
  using Index = std::conditional_t<(held && size < 256), int, int64_t>;
  extern __shared__ Bytes16 rows[];
  const Team<size> team;
  if (team.row >= p.rows) return;
  const auto columns = static_cast<Index>(p.columns);
  const auto length = static_cast<Index>(lengthOf(p, team.row));
  const int64_t first = team.row * p.columns;
  const auto* x = static_cast<const typename WideOf<type>::Storage*>(p.x) + first;
  float* row = reinterpret_cast<float*>(rows) + (held ? team.number * columns : 0);
  const auto load = [&](Index i, float(&values)[width]) {
    loadElements(x, type, i, values);
#pragma unroll
    for (float& value : values) value = p.scale * value;
  };
  const Index begin = team.rank * width;
  constexpr Index kStep = size * width;
  float top = -kInfinity;
#pragma unroll 8 / width + 1
  for (Index i = begin; i < length; i += kStep) {
    float values[width];
    load(i, values);
    if constexpr (held) hold(row, i, values);
#pragma unroll
    for (int k = 0; k < width; ++k) top = i + k < length && top < values[k] ? values[k] : top;
  }
  top = team.maximum(top) + 0.0f;
  if constexpr (held) {
    // Each thread reads only elements that it wrote itself, so no synchronisation is needed.
#pragma unroll 4 / width + 1
    for (Index i = begin; i < length; i += kStep) {
      float values[width];
      loadElements(row, Wide::kF32, i, values);
#pragma unroll
      for (float& value : values) value -= top;
      exponentials<true>(values);
      hold(row, i, values);
    }
    team.synchronize();
  }
  const auto read = [&](Index i) { return held ? row[i] : p.scale * WideOf<type>::load(x[i]); };
  const auto power = [&](float value) {
    float result[1] = {value - top};
    if constexpr (held) return value;
    exponentials<true>(result);
    return result[0];
  };
  const Divisor total(team.sum(length, read, power));
#pragma unroll 4 / width + 1
  for (Index i = begin; i < columns; i += kStep) {
    float values[width] = {};
    if (i < length) {
      if constexpr (held) {
        loadElements(row, Wide::kF32, i, values);
      } else {
        static_assert(width == 1);
        load(i, values);
        values[0] = power(values[0]);
      }
      total.divide(values);
#pragma unroll
      for (int k = 0; k < width; ++k) values[k] = i + k < length ? values[k] : 0.0f;
    }
    storeElements(p.out, p.outType, first + i, values);
  }
}

}  // namespace

cudaError_t launchSoftmax(const SoftmaxParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  const int64_t bytes = p.columns * static_cast<int64_t>(sizeof(float));
  return withWide(p.xType, [&](auto type) {
    constexpr Wide kType = type.value;
    if (!fits(bytes)) return launchTeams<kLanes>(softmaxKernel<kType, kLanes, false, 1>, p, 0, stream);
    return withTeam(p.columns, [&](auto team) {
      constexpr int kSize = team.value;
      if (p.columns % kPack != 0) return launchTeams<kSize>(softmaxKernel<kType, kSize, true, 1>, p, bytes, stream);
      return launchTeams<kSize>(softmaxKernel<kType, kSize, true, kPack>, p, bytes, stream);
    });
  });
}

}  // namespace lockstep
