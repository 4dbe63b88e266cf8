#include "kernels/attention/hopper/hopper.h"
#include "kernels/attention/hopper/key-grads.cuh"
#include "kernels/attention/hopper/launch.h"
#include "kernels/attention/hopper/query-grads.cuh"

namespace lockstep {

namespace {

template <typename Shape, bool kDetailed>
cudaError_t launchQueryGrads(const AttentionBackwardParams& p, int32_t* list, cudaStream_t stream) {
  QueryGradMaps maps;
  const AttentionRule& rule = p.rule;
  cudaError_t error = describeBoxes(queriesOf(rule, rule.q, Shape::kWidth), Shape::kRows, &maps.queries);
  if (error == cudaSuccess) error = describeBoxes(queriesOf(rule, p.grad, Shape::kValueWidth), Shape::kRows, &maps.grads);
  if (error == cudaSuccess) error = describeBoxes(keysOf(rule, rule.k, Shape::kWidth), Shape::kKeys, &maps.keys);
  if (error == cudaSuccess) error = describeBoxes(keysOf(rule, rule.v, Shape::kValueWidth), Shape::kKeys, &maps.values);
  if (error != cudaSuccess) return error;
  const int64_t blocks = ceilDivide(rule.queries, Shape::kRows) * rule.batch * rule.heads;
  return launchBlocks<Shape>(queryGradKernel<Shape, kDetailed>, blocks, stream, p, list, maps);
}

template <typename Shape, bool kDetailed>
cudaError_t launchKeyGrads(const AttentionBackwardParams& p, int32_t* list, cudaStream_t stream) {
  KeyGradMaps maps;
  const AttentionRule& rule = p.rule;
  cudaError_t error = describeBoxes(keysOf(rule, rule.k, Shape::kWidth), Shape::kRows, &maps.keys);
  if (error == cudaSuccess) error = describeBoxes(keysOf(rule, rule.v, Shape::kValueWidth), Shape::kRows, &maps.values);
  if (error == cudaSuccess) error = describeBoxes(queriesOf(rule, rule.q, Shape::kWidth), Shape::kQueries, &maps.queries);
  if (error == cudaSuccess) {
    error = describeBoxes(queriesOf(rule, p.grad, Shape::kValueWidth), Shape::kQueries, &maps.grads);
  }
  if (error != cudaSuccess) return error;
  const int64_t blocks = ceilDivide(rule.keys, Shape::kRows) * rule.batch * rule.keyHeads;
  return launchBlocks<Shape>(keyGradKernel<Shape, kDetailed>, blocks, stream, p, list, maps);
}

// Calls `body` with the shapes of both kernels for the sizes of an attention. Returns whether there are such.
template <Wide type, typename Body>
bool withShapes(const AttentionRule& rule, Body body) {
  const auto is = [&](int width, int valueWidth, int keys) {
    return rule.width == width && rule.valueWidth == valueWidth && rule.blockKeys == keys;
  };
  if (is(64, 64, 128)) return body(QueryGradShape<type, 64, 64, 128>{}, KeyGradShape<type, 64, 64>{}), true;
  if (is(96, 96, 128)) return body(QueryGradShape<type, 96, 96, 128>{}, KeyGradShape<type, 96, 96>{}), true;
  if (is(128, 128, 128)) return body(QueryGradShape<type, 128, 128, 128>{}, KeyGradShape<type, 128, 128>{}), true;
  if (is(192, 128, 128)) return body(QueryGradShape<type, 192, 128, 128>{}, KeyGradShape<type, 192, 128>{}), true;
  if (is(256, 256, 64)) return body(QueryGradShape<type, 256, 256, 64>{}, KeyGradShape<type, 256, 256>{}), true;
  return false;
}

template <typename Body>
bool withKernels(const AttentionRule& rule, Body body) {
  if (rule.qType == Wide::kBf16) return withShapes<Wide::kBf16>(rule, body);
  return withShapes<Wide::kF16>(rule, body);
}

}  // namespace

bool hopperDifferentiates(const AttentionRule& rule) {
  return isForTensorCores(rule) && withKernels(rule, [](auto, auto) {});
}

cudaError_t launchHopperQueryGrads(const AttentionBackwardParams& p, int32_t* list, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  withKernels(p.rule, [&](auto shape, auto) {
    using Shape = decltype(shape);
    error = isDetailed(p.rule) ? launchQueryGrads<Shape, true>(p, list, stream)
                               : launchQueryGrads<Shape, false>(p, list, stream);
  });
  return error;
}

cudaError_t launchHopperKeyGrads(const AttentionBackwardParams& p, int32_t* list, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  withKernels(p.rule, [&](auto, auto shape) {
    using Shape = decltype(shape);
    error = isDetailed(p.rule) ? launchKeyGrads<Shape, true>(p, list, stream)
                               : launchKeyGrads<Shape, false>(p, list, stream);
  });
  return error;
}

}  // namespace lockstep
