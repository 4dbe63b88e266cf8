// The largest elements of rows (docs/numerics.md §7.17). A warp computes a row. Lane l owns the elements l, l + 32, ...
#include "kernels/device/elements.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/rows/topk.gen.h"

namespace lockstep {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kLanes;

// The values in the routing map while a row is computed.
constexpr int32_t kOutside = 0;
constexpr int32_t kChosen = 1;
constexpr int32_t kCandidate = 2;

struct Best {
  float value;
  // -1 if there is none
  int64_t index;
};

// Whether `a` comes before `b`: its value is larger, or equal with a lower index.
__device__ bool isBefore(const Best& a, const Best& b) {
  if (a.index < 0 || b.index < 0) return a.index >= 0;
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

// Returns the first of the lanes' values to every lane.
__device__ Best firstOfLanes(Best best) {
#pragma unroll
  for (int w = kLanes / 2; w > 0; w /= 2) {
    const Best other = {__shfl_xor_sync(kFullMask, best.value, w), __shfl_xor_sync(kFullMask, best.index, w)};
    if (isBefore(other, best)) best = other;
  }
  return best;
}

// NaN counts as -infinity.
__device__ float scoreOf(float value) { return value == value ? value : -__builtin_huge_valf(); }

struct Row {
  const TopkParams& p;
  int64_t row;
  int lane = static_cast<int>(threadIdx.x) % kLanes;

  __device__ int32_t* flags() const { return p.routingMap + row * p.columns; }
  __device__ float* scores() const { return p.workspace + row * p.groups; }

  // The first element that this lane owns, from `begin` on.
  __device__ int64_t firstOwned(int64_t begin) const { return begin + (lane - begin % kLanes + kLanes) % kLanes; }

  __device__ void set(int64_t begin, int64_t end, int32_t value) const {
    for (int64_t i = firstOwned(begin); i < end; i += kLanes) flags()[i] = value;
    __syncwarp();
  }

  // Marks the first candidate in [begin, end) as chosen and returns it.
  __device__ Best choose(int64_t begin, int64_t end) const {
    Best best = {0.0f, -1};
    for (int64_t i = firstOwned(begin); i < end; i += kLanes) {
      if (flags()[i] != kCandidate) continue;
      const Best candidate = {scoreOf(loadElement(p.x, p.xType, row * p.columns + i)), i};
      if (isBefore(candidate, best)) best = candidate;
    }
    best = firstOfLanes(best);
    if (lane == 0 && best.index >= 0) flags()[best.index] = kChosen;
    __syncwarp();
    return best;
  }

  // Makes the elements of the best groups candidates.
  __device__ void chooseGroups() const {
    const int64_t size = p.columns / p.groups;
    for (int64_t group = 0; group < p.groups; ++group) {
      set(group * size, (group + 1) * size, kCandidate);
      float score = 0.0f;
      for (int64_t i = 0; i < p.k / p.groupTopk; ++i) score += choose(group * size, (group + 1) * size).value;
      if (lane == 0) scores()[group] = scoreOf(score);
      set(group * size, (group + 1) * size, kOutside);
    }
    for (int64_t i = 0; i < p.groupTopk; ++i) {
      Best best = {0.0f, -1};
      for (int64_t group = lane; group < p.groups; group += kLanes) {
        if (flags()[group * size] != kOutside) continue;
        const Best candidate = {scores()[group], group};
        if (isBefore(candidate, best)) best = candidate;
      }
      best = firstOfLanes(best);
      if (best.index >= 0) set(best.index * size, (best.index + 1) * size, kCandidate);
    }
  }
};

__global__ void __launch_bounds__(kThreads) topkKernel(const TopkParams p) {
  const Row row = {p, static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes};
  if (row.row >= p.rows) return;
  if (p.groupTopk == p.groups) {
    row.set(0, p.columns, kCandidate);
  } else {
    row.set(0, p.columns, kOutside);
    row.chooseGroups();
  }
  for (int64_t i = 0; i < p.k; ++i) {
    const Best best = row.choose(0, p.columns);
    if (row.lane == 0) p.indices[row.row * p.k + i] = static_cast<int32_t>(best.index);
  }
  for (int64_t i = row.lane; i < p.columns; i += kLanes) {
    const bool isChosen = row.flags()[i] == kChosen;
    row.flags()[i] = isChosen ? kChosen : kOutside;
    p.mask[row.row * p.columns + i] = isChosen ? 1.0f : 0.0f;
  }
}

}  // namespace

cudaError_t launchTopk(const TopkParams& p, cudaStream_t stream) {
  return launchBlocks(topkKernel, ceilDivide(p.rows, kWarps), kThreads, p, stream);
}

}  // namespace lockstep
