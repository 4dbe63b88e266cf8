// Launches the forward kernels of one type. A source file for each type instantiates them, so that they are compiled in
// parallel.
#pragma once

#include <algorithm>

#include "kernels/attention/hopper/forward.cuh"
#include "kernels/attention/hopper/launch.h"

namespace lockstep {

template <typename Shape, ForwardOptions kOptions>
cudaError_t launchForwardShape(const AttentionParams& p, cudaStream_t stream) {
  ForwardMaps maps;
  const AttentionRule& rule = p.rule;
  const auto heads = static_cast<uint32_t>(Shape::kPacks ? rule.heads / rule.keyHeads : 1);
  const auto rows = static_cast<uint32_t>(Shape::kPacks ? rule.queries : Shape::kRows);
  const auto keys =
      static_cast<uint32_t>(rule.pages != nullptr ? std::min(rule.pageLength, Shape::kKeys) : Shape::kKeys);
  cudaError_t error = describeBoxes(queriesOf(rule, rule.q, Shape::kWidth), rows, &maps.queries, heads);
  if (error == cudaSuccess) error = describeBoxes(keysOf(rule, rule.k, Shape::kWidth), keys, &maps.keys);
  if (error == cudaSuccess) error = describeBoxes(keysOf(rule, rule.v, Shape::kValueWidth), keys, &maps.values);
  if (error != cudaSuccess) return error;
  const int64_t blocks = Shape::kPacks ? int64_t{1} * rule.batch * rule.keyHeads * splitsOf(rule)
                                       : ceilDivide(rule.queries, Shape::kRows) * rule.batch * rule.heads;
  return launchBlocks<Shape>(forwardKernel<Shape, kOptions>, blocks, stream, p, maps);
}

template <Wide type, bool packs>
cudaError_t launchForwardOf(const AttentionParams& p, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  withHeadSizes(p.rule, [&](auto sizes) {
    using Shape = ForwardShape<type, sizes.kWidth, sizes.kValueWidth, sizes.kKeys, packs>;
    if (hasElementOptions(p.rule)) {
      error = launchForwardShape<Shape, ForwardOptions::kAll>(p, stream);
    } else if (p.rule.splitKeys != 0) {
      error = launchForwardShape<Shape, ForwardOptions::kSplits>(p, stream);
    } else {
      error = launchForwardShape<Shape, ForwardOptions::kWindows>(p, stream);
    }
  });
  return error;
}

}  // namespace lockstep
