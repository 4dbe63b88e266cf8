// Launches the kernels of gradients of queries for one type. A source file for each type instantiates them, so that they are
// compiled in parallel.
#pragma once

#include "kernels/attention/hopper/query-grads.cuh"
#include "kernels/attention/hopper/launch.h"

namespace lockstep {

template <typename Shape, bool kDetailed>
cudaError_t launchQueryGradShape(const AttentionBackwardParams& p, int32_t* list, cudaStream_t stream) {
  QueryGradMaps maps;
  const AttentionRule& rule = p.rule;
  cudaError_t error = describeBoxes(queriesOf(rule, rule.q, Shape::kWidth), Shape::kRows, &maps.queries);
  if (error == cudaSuccess)
    error = describeBoxes(queriesOf(rule, p.grad, Shape::kValueWidth), Shape::kRows, &maps.grads);
  if (error == cudaSuccess) error = describeBoxes(keysOf(rule, rule.k, Shape::kWidth), Shape::kKeys, &maps.keys);
  if (error == cudaSuccess) error = describeBoxes(keysOf(rule, rule.v, Shape::kValueWidth), Shape::kKeys, &maps.values);
  if (error != cudaSuccess) return error;
  const int64_t blocks = ceilDivide(rule.queries, Shape::kRows) * rule.batch * rule.heads;
  return launchBlocks<Shape>(queryGradKernel<Shape, kDetailed>, blocks, stream, p, list, maps);
}

// Calls `body` with the kernel's shape for the sizes of an attention. Returns whether there is one.
template <Wide type, typename Body>
bool withQueryGradShape(const AttentionRule& rule, Body body) {
  const auto hasSizes = [&](int width, int valueWidth, int keys) {
    return rule.width == width && rule.valueWidth == valueWidth && rule.blockKeys == keys;
  };
  if (hasSizes(64, 64, 128)) return body(QueryGradShape<type, 64, 64, 128>{}), true;
  if (hasSizes(96, 96, 128)) return body(QueryGradShape<type, 96, 96, 128>{}), true;
  if (hasSizes(128, 128, 128)) return body(QueryGradShape<type, 128, 128, 128>{}), true;
  if (hasSizes(192, 128, 128)) return body(QueryGradShape<type, 192, 128, 128>{}), true;
  if (hasSizes(256, 256, 64)) return body(QueryGradShape<type, 256, 256, 64>{}), true;
  return false;
}

template <Wide type>
cudaError_t launchQueryGrads(const AttentionBackwardParams& p, int32_t* list, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  withQueryGradShape<type>(p.rule, [&](auto shape) {
    using Shape = decltype(shape);
    error = hasElementOptions(p.rule) ? launchQueryGradShape<Shape, true>(p, list, stream)
                                      : launchQueryGradShape<Shape, false>(p, list, stream);
  });
  return error;
}

}  // namespace lockstep
