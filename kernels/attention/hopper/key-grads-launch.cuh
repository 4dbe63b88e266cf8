// Launches the kernels of gradients of keys for one type. A source file for each type instantiates them, so that they are
// compiled in parallel.
#pragma once

#include "kernels/attention/hopper/key-grads.cuh"
#include "kernels/attention/hopper/launch.h"
#include "kernels/device/occupancy.cuh"

namespace lockstep {

// Prepares the sums of gradients of queries. A query that sees no key has no term, and its gradient is 0.
inline cudaError_t openQuerySums(const AttentionBackwardParams& p, const QuerySums& sums, cudaStream_t stream) {
  const AttentionRule& rule = p.rule;
  const cudaError_t error =
      cudaMemsetAsync(sums.ticket, 0, static_cast<size_t>(1 + sums.tiles) * sizeof(int32_t), stream);
  const bool mayLackKeys = rule.queries > rule.keys || rule.queryLengths != nullptr || rule.keyLengths != nullptr;
  if (error != cudaSuccess || !mayLackKeys) return error;
  return cudaMemsetAsync(p.dq, 0, static_cast<size_t>(rule.queryRows) * rule.heads * rule.width * sizeof(uint16_t),
                         stream);
}

template <typename Shape, bool kDetailed>
cudaError_t launchKeyGradShape(const AttentionBackwardParams& p, const TileLists& lists, cudaStream_t stream) {
  KeyGradMaps maps;
  const AttentionRule& rule = p.rule;
  QuerySums sums = querySumsOf(p);
  cudaError_t error = describeBoxes(keysOf(rule, rule.k, Shape::kWidth), Shape::kRows, &maps.keys);
  if (error == cudaSuccess) error = describeBoxes(keysOf(rule, rule.v, Shape::kValueWidth), Shape::kRows, &maps.values);
  if (error == cudaSuccess)
    error = describeBoxes(queriesOf(rule, rule.q, Shape::kWidth), Shape::kQueries, &maps.queries);
  if (error == cudaSuccess) {
    error = describeBoxes(queriesOf(rule, p.grad, Shape::kValueWidth), Shape::kQueries, &maps.grads);
  }
  const int64_t items = int64_t{rule.batch} * rule.keyHeads;
  const int64_t tiles = ceilDivide(rule.keys, Shape::kRows);
  if constexpr (Shape::kAddsQueries) {
    sums.lead = leadOf(rule, items, tiles, multiprocessors());
    if (error == cudaSuccess) error = openQuerySums(p, sums, stream);
  }
  if (error != cudaSuccess) return error;
  const int64_t blocks = tiles * items;
  return launchBlocks<Shape>(keyGradKernel<Shape, kDetailed>, blocks, stream, p, lists.keys, lists.queries, sums, maps);
}

template <Wide type>
cudaError_t launchKeyGrads(const AttentionBackwardParams& p, const TileLists& lists, cudaStream_t stream) {
  const bool isDetailed = hasElementOptions(p.rule);
  if (p.sumsQueries) {
    if (isDetailed || !HeadSizes<128, 128, 128>::areThoseOf(p.rule)) return cudaErrorInvalidValue;
    return launchKeyGradShape<KeyGradShape<type, 128, 128, true>, false>(p, lists, stream);
  }
  cudaError_t error = cudaErrorInvalidValue;
  withHeadSizes(p.rule, [&](auto sizes) {
    using Shape = KeyGradShape<type, sizes.kWidth, sizes.kValueWidth>;
    error = isDetailed ? launchKeyGradShape<Shape, true>(p, lists, stream)
                       : launchKeyGradShape<Shape, false>(p, lists, stream);
  });
  return error;
}

}  // namespace lockstep
