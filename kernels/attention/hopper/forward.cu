#include "kernels/attention/hopper/forward.h"

#include "kernels/attention/hopper/forward.cuh"

namespace lockstep {

namespace {

// The tensors as the copy engine sees them: [batch, row, head, column].
HeadsOfRows queriesOf(const AttentionRule& rule, const void* data, int64_t columns) {
  const int64_t line = rule.heads * columns;
  const bool isOne = rule.cumulative;
  return {data,
          rule.qType,
          columns,
          rule.heads,
          rule.queries,
          isOne ? 1 : rule.batch,
          line * rule.queryStep,
          isOne ? line * rule.queries : line * rule.queryBatch};
}

HeadsOfRows keysOf(const AttentionRule& rule, const void* data, int64_t columns) {
  const int64_t line = rule.keyHeads * columns;
  const bool isOne = rule.cumulative;
  return {data,
          rule.qType,
          columns,
          rule.keyHeads,
          rule.keys,
          isOne ? 1 : rule.batch,
          line * rule.keyStep,
          isOne ? line * rule.keys : line * rule.keyBatch};
}

// Whether scores, masks or probabilities need more than the window of visible keys.
bool isDetailed(const AttentionRule& rule) {
  return rule.mask != nullptr || rule.bias != nullptr || rule.slopes != nullptr || rule.softcap != 0 ||
         rule.threshold != 0;
}

template <typename Shape, bool kDetailed>
cudaError_t launchShape(const AttentionParams& p, cudaStream_t stream) {
  ForwardMaps maps;
  const AttentionRule& rule = p.rule;
  cudaError_t error = describeBoxes(queriesOf(rule, rule.q, Shape::kWidth), Shape::kRows, &maps.queries);
  if (error == cudaSuccess) error = describeBoxes(keysOf(rule, rule.k, Shape::kWidth), Shape::kKeys, &maps.keys);
  if (error == cudaSuccess) {
    error = describeBoxes(keysOf(rule, rule.v, Shape::kValueWidth), Shape::kKeys, &maps.values);
  }
  const auto kernel = forwardKernel<Shape, kDetailed>;
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes);
  }
  if (error != cudaSuccess) return error;
  const int64_t tiles = ceilDivide(rule.queries, Shape::kRows);
  const int64_t blocks = tiles * rule.batch * rule.heads;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  kernel<<<static_cast<unsigned>(blocks), Shape::kThreads, Shape::kBytes, stream>>>(p, maps);
  return cudaGetLastError();
}

// Calls `body` with the kernel's shape for the sizes of an attention. Returns whether there is one.
template <Wide type, typename Body>
bool withShape(const AttentionRule& rule, Body body) {
  const auto is = [&](int width, int valueWidth, int keys) {
    return rule.width == width && rule.valueWidth == valueWidth && rule.blockKeys == keys;
  };
  if (is(64, 64, 128)) return body(ForwardShape<type, 64, 64, 128>{}), true;
  if (is(96, 96, 128)) return body(ForwardShape<type, 96, 96, 128>{}), true;
  if (is(128, 128, 128)) return body(ForwardShape<type, 128, 128, 128>{}), true;
  if (is(192, 128, 128)) return body(ForwardShape<type, 192, 128, 128>{}), true;
  if (is(256, 256, 64)) return body(ForwardShape<type, 256, 256, 64>{}), true;
  return false;
}

template <typename Body>
bool withKernel(const AttentionRule& rule, Body body) {
  if (rule.qType == Wide::kBf16) return withShape<Wide::kBf16>(rule, body);
  if (rule.qType == Wide::kF16) return withShape<Wide::kF16>(rule, body);
  return false;
}

bool isHopper() {
  int device = 0;
  int major = 0;
  int minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return major == 9 && minor == 0;
}

// The parameters of the datapath hopper-half.
constexpr int kStep = 16;
constexpr int kAlignBits = 25;
constexpr int kZeroExponent = -133;

}  // namespace

bool hopperAttends(const AttentionRule& rule) {
  const bool isItsDatapath =
      rule.step == kStep && rule.alignBits == kAlignBits && rule.zeroExponent == kZeroExponent;
  if (!isItsDatapath || rule.splitKeys != 0 || rule.pages != nullptr || rule.queries == 0 || rule.keys == 0) return false;
  const bool exists = withKernel(rule, [](auto) {});
  return exists && isHopper();
}

cudaError_t launchHopperForward(const AttentionParams& p, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  withKernel(p.rule, [&](auto shape) {
    using Shape = decltype(shape);
    error = isDetailed(p.rule) ? launchShape<Shape, true>(p, stream) : launchShape<Shape, false>(p, stream);
  });
  return error;
}

}  // namespace lockstep
