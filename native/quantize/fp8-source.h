// What the quantizers to FP8 read, shared by those that also sum.
#pragma once

#include "kernels/quantize/block.h"
#include "kernels/quantize/tensor.h"
#include "native/layout/placement.h"
#include "native/quantize/source.h"

namespace lockstep {

// All but the workspace.
inline QuantizeTensorParams readQuantizeTensor(const Call& call) {
  QuantizeTensorParams p;
  const uint64_t count = readSource(call, p);
  p.word = call.word("word");
  p.rowwise = call.optional<uint8_t>("rowwise", count);
  p.columnwise = call.optional<uint8_t>("columnwise", count);
  p.rowwiseScaleInv = call.optional<float>("rowwiseScaleInv", sizeof(float));
  p.columnwiseScaleInv = call.optional<float>("columnwiseScaleInv", sizeof(float));
  p.scale = call.optional<float>("scale", sizeof(float));
  p.amax = call.optional<float>("amax", sizeof(float));
  p.pow2 = call.flag("pow2");
  p.epsilon = call.f32("epsilon");
  p.amaxRecord = call.optional<float>("amaxRecord", sizeof(float));
  p.noop = call.optional<float>("noop", sizeof(float));
  return p;
}

inline QuantizeBlockParams readQuantizeBlock(const Call& call) {
  QuantizeBlockParams p;
  const uint64_t count = readSource(call, p);
  p.word = call.word("word");
  p.square = call.flag("square");
  p.rowwise = call.optional<uint8_t>("rowwise", count);
  if (p.rowwise) p.rowwiseScales = readPlacement(call, "rowwise", sizeof(float));
  p.columnwise = call.optional<uint8_t>("columnwise", count);
  if (p.columnwise) p.columnwiseScales = readPlacement(call, "columnwise", sizeof(float));
  p.inPlace = call.flag("inPlace");
  p.pow2 = call.flag("pow2");
  p.epsilon = call.f32("epsilon");
  p.noop = call.optional<float>("noop", sizeof(float));
  return p;
}

}  // namespace lockstep
