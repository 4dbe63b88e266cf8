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

// Calls `body` with the kernel's shape for the sizes of an attention. Returns whether there is one.
template <Wide type, bool packs, typename Body>
bool withForwardShape(const AttentionRule& rule, Body body) {
  const auto hasSizes = [&](int width, int valueWidth, int keys) {
    return rule.width == width && rule.valueWidth == valueWidth && rule.blockKeys == keys;
  };
  if (hasSizes(64, 64, 128)) return body(ForwardShape<type, 64, 64, 128, packs>{}), true;
  if (hasSizes(96, 96, 128)) return body(ForwardShape<type, 96, 96, 128, packs>{}), true;
  if (hasSizes(128, 128, 128)) return body(ForwardShape<type, 128, 128, 128, packs>{}), true;
  if (hasSizes(192, 128, 128)) return body(ForwardShape<type, 192, 128, 128, packs>{}), true;
  if (hasSizes(256, 256, 64)) return body(ForwardShape<type, 256, 256, 64, packs>{}), true;
  return false;
}

template <Wide type, bool packs>
cudaError_t launchForwardOf(const AttentionParams& p, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  withForwardShape<type, packs>(p.rule, [&](auto shape) {
    using Shape = decltype(shape);
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
