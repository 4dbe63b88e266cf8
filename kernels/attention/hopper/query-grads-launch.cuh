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

template <Wide type>
cudaError_t launchQueryGrads(const AttentionBackwardParams& p, int32_t* list, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  withHeadSizes(p.rule, [&](auto sizes) {
    using Shape = QueryGradShape<type, sizes.kWidth, sizes.kValueWidth, sizes.kKeys>;
    error = hasElementOptions(p.rule) ? launchQueryGradShape<Shape, true>(p, list, stream)
                                      : launchQueryGradShape<Shape, false>(p, list, stream);
  });
  return error;
}

}  // namespace lockstep
