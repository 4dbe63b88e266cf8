// The parameters that the launchers of quantizations support; for others they return cudaErrorInvalidValue. Tests without a GPU
// call the same functions (conformance/tests/stand-in/quantize.cc).
#pragma once

#include "kernels/core/format.h"
#include "kernels/core/formats.gen.h"
#include "kernels/core/scale-kinds.h"
#include "kernels/quantize/activation-quantize.gen.h"
#include "kernels/quantize/dequantize.h"
#include "kernels/quantize/block.gen.h"
#include "kernels/quantize/row.gen.h"
#include "kernels/quantize/tensor.gen.h"
#include "kernels/quantize/group.gen.h"
#include "kernels/quantize/mx/mx.h"
#include "kernels/quantize/norm-quantize.gen.h"
#include "kernels/quantize/nvfp4/nvfp4.h"

namespace lockstep {

namespace taken {

// Whether fused kernels write elements of this format.
constexpr bool isFused(uint32_t word) { return word == format::kE4m3 || word == format::kE5m2; }

// Whether kernels with f32 scales can write elements of this format.
constexpr bool isElement(uint32_t word) { return isSigned(word) && storageBits(word) == 8; }

// Whether rule and scaling are valid for f32 scales.
template <typename Params>
bool hasF32Rule(const Params& p) {
  return hasF32Scales(p.rule) && (p.scaling == 0 || p.rule != ScaleRule::kF32);
}

// Whether column sums are not requested, or the kernel with f32 scales computes them.
template <typename Params>
bool hasSums(const Params& p) {
  return p.chunkSums == nullptr || (p.xType != Wide::kF32 && p.rule == ScaleRule::kF32 && isFused(p.word));
}

// Whether `scales` has one scale for each block of `length` elements, the last one possibly shorter, of each line of `elements`.
inline bool covers(const ScalePlacement& scales, int64_t lines, int64_t elements, int64_t length) {
  return scales.lines == lines && scales.blocks == (elements + length - 1) / length;
}

}  // namespace taken

inline bool isTaken(const QuantizeTensorParams& p) {
  return taken::isElement(p.word) && taken::hasF32Rule(p) && taken::hasSums(p) &&
         (p.rowwise != nullptr || p.columnwise != nullptr) &&
         (p.scale != nullptr || p.amax != nullptr || p.workspace != nullptr);
}

inline bool isTaken(const QuantizeRowParams& p) { return taken::isElement(p.word) && taken::hasF32Rule(p); }

inline bool isTaken(const QuantizeBlockParams& p) {
  return taken::isElement(p.word) && taken::hasF32Rule(p) && taken::hasSums(p);
}

inline bool isTaken(const QuantizeMxParams& p) {
  constexpr int64_t kBlock = 32;
  return p.rows % kBlock == 0 && p.columns % kBlock == 0 && isSigned(p.word) && storageBits(p.word) <= 8 &&
         hasE8m0Scales(p.rule) && !has(p.scaling, ElementScaling::kDivides) &&
         (p.rowwise.codes == nullptr || taken::covers(p.rowwise.scales, p.rows, p.columns, kBlock)) &&
         (p.columnwise.codes == nullptr || taken::covers(p.columnwise.scales, p.columns, p.rows, kBlock));
}

inline bool isTaken(const QuantizeGroupParams& p) {
  constexpr int64_t kTile = 32;
  const int64_t length = p.length;
  return p.word == format::kInt4 && p.rows % kTile == 0 && p.columns % kTile == 0 &&
         (length == 32 || length == 64 || length == 128) && taken::hasF32Rule(p) &&
         (p.rowwise.codes == nullptr || taken::covers(p.rowwise.scales, p.rows, p.columns, length)) &&
         (p.columnwise.codes == nullptr || taken::covers(p.columnwise.scales, p.columns, p.rows, length));
}

inline bool isTaken(const QuantizeNvfp4Params& p) {
  constexpr int64_t kBlock = 16;
  const bool isOwn = p.rule == ScaleRule::kTwoLevel && p.scaling == 0;
  const bool isPlain = !p.transforms && !p.stochastic;
  if (!isOwn && (!isNvfp4Rule(p.rule, p.scaling) || !isPlain || p.fourOverSix)) return false;
  const bool isGiven = p.rowwise.givenAmax != nullptr || p.columnwise.givenAmax != nullptr;
  if (p.rowScaled && (!isOwn || !isPlain || p.square || isGiven)) return false;
  const bool transforms = p.transforms && p.columnwise.codes != nullptr;
  if (transforms && (p.xType != Wide::kBf16 || p.square)) return false;
  if (p.fourOverSix && (transforms || p.stochastic)) return false;
  const auto fits = [&](const Nvfp4Copy& copy, int64_t lines, int64_t elements) {
    return copy.codes == nullptr ||
           ((copy.amax != nullptr || hasUe5m3Scales(p.rule)) && taken::covers(copy.scales, lines, elements, kBlock));
  };
  return p.rows % kBlock == 0 && p.columns % kBlock == 0 && fits(p.rowwise, p.rows, p.columns) &&
         fits(p.columnwise, p.columns, p.rows);
}

inline bool isTaken(const NormQuantizeTensorParams& p) {
  return taken::isFused(p.target.word) && p.target.rowwise != nullptr && p.target.scale != nullptr;
}

inline bool isTaken(const ActivationQuantizeTensorParams& p) {
  return taken::isFused(p.target.word) && p.target.scale != nullptr;
}

inline bool isTaken(const ActivationQuantizeMxParams& p) {
  const GatedForm& form = p.source.form;
  const bool isBf16 = form.xType == Wide::kBf16 && (form.grad == nullptr || form.gradType == Wide::kBf16);
  return isTaken(p.target) && taken::isFused(p.target.word) && isBf16 && form.columns % 32 == 0 && !p.target.square &&
         !p.target.stochastic && p.target.rule == ScaleRule::kE8m0Up && p.target.scaling == 0;
}

inline bool isTaken(const DequantizeParams& p) {
  const bool isNvfp4 = p.word == format::kE2m1 && p.scaleWord == format::kE4m3 && p.amax != nullptr;
  return !(p.transposed && p.across) && (isNvfp4 || (!p.divides && !p.rowScaled)) && !(p.divides && p.rowScaled);
}

}  // namespace lockstep
