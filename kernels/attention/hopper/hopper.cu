#include "kernels/attention/hopper/hopper.h"

#include "kernels/attention/hopper/launch.h"

namespace lockstep {

// Defined by a source file for each type.
template <Wide type, bool packs>
cudaError_t launchForwardOf(const AttentionParams& p, cudaStream_t stream);
template <Wide type>
cudaError_t launchQueryGrads(const AttentionBackwardParams& p, int32_t* list, cudaStream_t stream);
template <Wide type>
cudaError_t launchKeyGrads(const AttentionBackwardParams& p, const TileLists& lists, cudaStream_t stream);

namespace {

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

// Whether each page of keys consists of whole blocks, or each block of whole pages.
bool hasPages(const AttentionRule& rule) {
  return rule.pages == nullptr || (rule.pageCount > 0 && rule.pagesOfSequence > 0 && rule.pageLength % 8 == 0 &&
                                   (rule.pageLength % rule.blockKeys == 0 || rule.blockKeys % rule.pageLength == 0));
}

template <Wide type>
cudaError_t launchForward(const AttentionParams& p, cudaStream_t stream) {
  // the rows of a tile of the kernel that packs heads
  constexpr int64_t kPackedRows = 64;
  const AttentionRule& rule = p.rule;
  const bool packs = int64_t{rule.queries} * (rule.heads / rule.keyHeads) <= kPackedRows && !rule.cumulative;
  if (!packs) return launchForwardOf<type, false>(p, stream);
  const cudaError_t error = launchForwardOf<type, true>(p, stream);
  return error == cudaSuccess && rule.splitKeys != 0 ? mergeSplits(p, stream) : error;
}

template <Wide type>
cudaError_t launchBackward(const AttentionBackwardParams& p, const TileLists& lists, cudaStream_t stream) {
  if (!p.sumsQueries) {
    if (const cudaError_t error = launchQueryGrads<type>(p, lists.queries, stream); error != cudaSuccess) return error;
  }
  return launchKeyGrads<type>(p, lists, stream);
}

}  // namespace

bool isForHopper(const AttentionRule& rule) {
  const bool isItsDatapath = rule.step == kStep && rule.alignBits == kAlignBits && rule.zeroExponent == kZeroExponent;
  return isItsDatapath && rule.qType != Wide::kF32 && hasPages(rule) && rule.queries > 0 && rule.keys > 0 &&
         withHeadSizes(rule, [](auto) {}) && isHopper();
}

cudaError_t launchHopperForward(const AttentionParams& p, cudaStream_t stream) {
  if (p.rule.qType == Wide::kF16) return launchForward<Wide::kF16>(p, stream);
  return launchForward<Wide::kBf16>(p, stream);
}

cudaError_t launchHopperBackward(const AttentionBackwardParams& p, const TileLists& lists, cudaStream_t stream) {
  if (p.rule.qType == Wide::kF16) return launchBackward<Wide::kF16>(p, lists, stream);
  return launchBackward<Wide::kBf16>(p, lists, stream);
}

}  // namespace lockstep
