// A team of threads works a row, which lies in shared memory meanwhile: a warp where rows are short, a block where they are
// long. Sums are formed by the first warp of the team, its threads the lanes. Rows that shared memory does not take are read
// again.
#include "kernels/softmax.h"

#include "kernels/elements.cuh"
#include "kernels/math.cuh"
#include "kernels/softmax.cuh"

namespace lockstep {

namespace {

constexpr float kInfinity = __builtin_huge_valf();

template <Wide type, int size, bool held>
__global__ void __launch_bounds__(threadsOf(size)) softmaxKernel(const SoftmaxParams p) {
  // of the two widths the one that measured faster, by up to a quarter
  using Index = std::conditional_t<held && size < 256, int, int64_t>;
  extern __shared__ float rows[];
  const Team<size> team;
  if (team.row >= p.rows) return;
  const auto columns = static_cast<Index>(p.columns);
  const auto length = static_cast<Index>(lengthOf(p, team.row));
  const int64_t first = team.row * p.columns;
  const auto* x = static_cast<const typename WideOf<type>::Storage*>(p.x) + first;
  float* values = rows + (held ? team.number * columns : 0);
  const auto load = [&](Index i) { return p.scale * WideOf<type>::load(x[i]); };
  float top = -kInfinity;
#pragma unroll 8
  for (Index i = team.rank; i < length; i += size) {
    const float value = load(i);
    if constexpr (held) values[i] = value;
    top = top < value ? value : top;
  }
  top = team.maximum(top) + 0.0f;
  if constexpr (held) {
    // each thread wrote what it reads here
#pragma unroll 4
    for (Index i = team.rank; i < length; i += size) values[i] = exponentialOfNegative(values[i] - top);
    team.synchronize();
  }
  const auto read = [&](Index i) { return held ? values[i] : load(i); };
  const auto power = [&](float value) { return held ? value : exponentialOfNegative(value - top); };
  const float total = team.sum(length, read, power);
#pragma unroll 4
  for (Index i = team.rank; i < columns; i += size) {
    storeElement(p.out, p.outType, first + i, i < length ? power(read(i)) / total : 0.0f);
  }
}

}  // namespace

cudaError_t launchSoftmax(const SoftmaxParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  const int64_t bytes = p.columns * static_cast<int64_t>(sizeof(float));
  return withWide(p.type, [&](auto type) {
    constexpr Wide kType = type.value;
    if (!fits(bytes)) return launchTeams<kLanes>(softmaxKernel<kType, kLanes, false>, p, 0, stream);
    return withTeam(p.columns, [&](auto team) {
      constexpr int kSize = team.value;
      return launchTeams<kSize>(softmaxKernel<kType, kSize, true>, p, bytes, stream);
    });
  });
}

}  // namespace lockstep
