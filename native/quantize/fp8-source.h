// Reads the arguments of the FP8 quantizers, with and without fused column sums.
#pragma once

#include "kernels/quantize/fp8/block.h"
#include "kernels/quantize/fp8/tensor.h"
#include "native/layout/placement.h"
#include "native/quantize/source.h"

namespace lockstep {

// Reads all arguments except the workspace.
template <typename Declared>
QuantizeTensorParams readQuantizeTensor(const Call<Declared>& call) {
  QuantizeTensorParams p;
  const uint64_t count = readQuantized(call, p);
  p.word = call.word("word");
  p.rowwise = call.template optional<uint8_t>("rowwise", count);
  p.columnwise = call.template optional<uint8_t>("columnwise", count);
  p.rowwiseScaleInv = call.template optional<float>("rowwiseScaleInv", sizeof(float));
  p.columnwiseScaleInv = call.template optional<float>("columnwiseScaleInv", sizeof(float));
  p.scale = call.template optional<float>("scale", sizeof(float));
  p.amax = call.template optional<float>("amax", sizeof(float));
  p.pow2 = call.flag("pow2");
  p.epsilon = call.f32("epsilon");
  p.amaxOut = call.template optional<float>("amaxRecord", sizeof(float));
  return p;
}

template <typename Declared>
QuantizeBlockParams readQuantizeBlock(const Call<Declared>& call) {
  QuantizeBlockParams p;
  const uint64_t count = readQuantized(call, p);
  p.word = call.word("word");
  p.square = call.flag("square");
  p.rowwise = call.template optional<uint8_t>("rowwise.codes", count);
  if (p.rowwise) p.rowwiseScales = readPlacement(call, "rowwise", sizeof(float));
  p.columnwise = call.template optional<uint8_t>("columnwise.codes", count);
  if (p.columnwise) p.columnwiseScales = readPlacement(call, "columnwise", sizeof(float));
  p.inPlace = call.flag("inPlace");
  p.pow2 = call.flag("pow2");
  p.epsilon = call.f32("epsilon");
  return p;
}

}  // namespace lockstep
