// The sums of gradient times result (Delta), and the gradients of the bias and the sinks (docs/numerics.md §10.6).
#include "kernels/attention/pair.cuh"
#include "kernels/attention/plain.h"

namespace lockstep {

namespace {

constexpr float kInfinity = __builtin_huge_valf();

// The number of products of a lane that are loaded before they are added.
constexpr int kLoadsPerLane = 4;

// The number of rows that a warp computes if no other head waits for it.
constexpr int kRowsPerWarp = 4;

// A warp computes some rows of one head, then the same rows of another head.
template <Wide type>
__global__ void __launch_bounds__(kRowBlock) deltaKernel(const AttentionBackwardParams p) {
  using Element = WideOf<type>;
  const AttentionRule& rule = p.rule;
  const auto* grads = static_cast<const typename Element::Storage*>(p.grad);
  const auto* results = static_cast<const typename Element::Storage*>(p.result);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / kLanes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRowWarps;
  const int64_t heads = static_cast<int64_t>(rule.batch) * rule.heads;
  for (int64_t head = blockIdx.y; head < heads; head += gridDim.y) {
    const Sequence s = sequenceOf(rule, static_cast<int32_t>(head / rule.heads));
    const auto headOfSequence = static_cast<int32_t>(head % rule.heads);
    float* deltas = reinterpret_cast<float*>(p.workspace) + statisticOf(rule, s, headOfSequence, 0);
    for (int64_t i = first; i < s.queries; i += step) {
      const int64_t row =
          (queryRowOf(rule, s, static_cast<int32_t>(i)) * rule.heads + headOfSequence) * rule.valueWidth;
      float sum = 0;
      const auto load = [&](int32_t d) { return Element::load(grads[row + d]) * Element::load(results[row + d]); };
      walkLanes<kLoadsPerLane>(rule.valueWidth, load, [&](float product) { sum += product; });
      sum = foldLanes(sum);
      if (lane == 0) deltas[i] = sum;
    }
  }
}

// A thread computes one element of the gradient of the bias: the sum over the sequences and heads that share it.
template <Wide type>
__global__ void __launch_bounds__(kRowBlock) biasKernel(const AttentionBackwardParams p, int64_t count) {
  const AttentionRule& rule = p.rule;
  const Datapath datapath = datapathOf(rule);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRowBlock;
  for (int64_t pair = static_cast<int64_t>(blockIdx.x) * kRowBlock + threadIdx.x; pair < count; pair += stride) {
    const auto j = static_cast<int32_t>(pair % rule.keys);
    const auto i = static_cast<int32_t>(pair / rule.keys % rule.queries);
    const int64_t plane = pair / rule.keys / rule.queries;
    const auto biasHead = static_cast<int32_t>(plane % rule.biasHeads);
    const auto item = static_cast<int32_t>(plane / rule.biasHeads);
    float sum = 0;
    for (int32_t b = rule.biasBatches > 1 ? item : 0; b < (rule.biasBatches > 1 ? item + 1 : rule.batch); ++b) {
      const Sequence s = sequenceOf(rule, b);
      if (i >= s.queries || j >= s.keys) continue;
      const int32_t end = rule.biasHeads > 1 ? biasHead + 1 : rule.heads;
      for (int32_t head = rule.biasHeads > 1 ? biasHead : 0; head < end; ++head) {
        const GradientRow row = gradientRowOf(p, s, head, i);
        if (row.isVisible(j)) sum += pairGradient<type>(p, datapath, row, s, keyHeadOf(rule, head), j).bias;
      }
    }
    storeElement(p.dbias, p.dbiasType, pair, sum);
  }
}

// A warp computes the gradient of one head's sink.
__global__ void __launch_bounds__(kLanes) sinkKernel(const AttentionBackwardParams p) {
  const AttentionRule& rule = p.rule;
  const auto head = static_cast<int64_t>(blockIdx.x);
  const auto* deltas = reinterpret_cast<const float*>(p.workspace);
  const float sink = rule.sinks[head] * kLog2EFloat;
  const int64_t rows = static_cast<int64_t>(rule.statisticBatches) * rule.queries;
  float sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kLanes) {
    const int64_t statistic = (row / rule.queries * rule.heads + head) * rule.queries + row % rule.queries;
    const float lse = p.lse[statistic];
    sum += lse == -kInfinity ? 0.0f : ex2(sink - lse * kLog2EFloat) * deltas[statistic];
  }
  sum = foldLanes(sum);
  if (threadIdx.x == 0) p.dsinks[head] = sum * -1.0f;
}

}  // namespace

cudaError_t sumDeltas(const AttentionBackwardParams& p, cudaStream_t stream) {
  const AttentionRule& rule = p.rule;
  const int64_t statistics = static_cast<int64_t>(rule.statisticBatches) * rule.heads * rule.queries;
  const int64_t heads = static_cast<int64_t>(rule.batch) * rule.heads;
  if (statistics > 0) {
    const cudaError_t error = cudaMemsetAsync(p.workspace, 0, static_cast<size_t>(statistics) * sizeof(float), stream);
    if (error != cudaSuccess) return error;
  }
  if (heads == 0 || rule.queries == 0) return cudaSuccess;
  const auto rows = static_cast<unsigned>(ceilDivide(rule.queries, kRowWarps * kRowsPerWarp));
  const dim3 blocks(rows, static_cast<unsigned>(std::min(heads, kMaxGridY)));
  return withWide(rule.qType, [&](auto type) {
    deltaKernel<type.value><<<blocks, kRowBlock, 0, stream>>>(p);
    return cudaGetLastError();
  });
}

cudaError_t differentiateBias(const AttentionBackwardParams& p, cudaStream_t stream) {
  const AttentionRule& rule = p.rule;
  if (p.dbias == nullptr) return cudaSuccess;
  const int64_t planes = static_cast<int64_t>(rule.biasBatches) * rule.biasHeads;
  const int64_t count = planes * rule.queries * rule.keys;
  if (count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(std::min(ceilDivide(count, kRowBlock), int64_t{1} << 20));
  return withWide(rule.qType, [&](auto type) {
    biasKernel<type.value><<<blocks, kRowBlock, 0, stream>>>(p, count);
    return cudaGetLastError();
  });
}

cudaError_t differentiateSinks(const AttentionBackwardParams& p, cudaStream_t stream) {
  if (p.dsinks == nullptr) return cudaSuccess;
  sinkKernel<<<static_cast<unsigned>(p.rule.heads), kLanes, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace lockstep
