#include "kernels/quantize/block.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/layout/placement.h"
#include "native/quantize/source.h"

namespace lockstep {

static void QuantizeBlock(const Call& call) {
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
  call.check("quantizeBlock", launchQuantizeBlock(p, call.stream()));
}

void registerQuantizeBlock(Napi::Env env, Napi::Object exports) {
  exports.Set("quantizeBlock", Napi::Function::New<operation<QuantizeBlock>>(env));
}

}  // namespace lockstep
