#include "kernels/quantize/tensor.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/quantize/source.h"

namespace lockstep {

static void QuantizeTensor(const Call& call) {
  QuantizeTensorParams p;
  const uint64_t count = readSource(call, p);
  p.word = call.word("word");
  p.rowwise = call.optional<uint8_t>("rowwise", count);
  p.columnwise = call.optional<uint8_t>("columnwise", count);
  p.rowwiseScaleInv = call.optional<float>("rowwiseScaleInv", sizeof(float));
  p.columnwiseScaleInv = call.optional<float>("columnwiseScaleInv", sizeof(float));
  p.scale = call.optional<float>("scale", sizeof(float));
  p.amax = call.optional<float>("amax", sizeof(float));
  p.workspace = call.has("workspace") ? call.workspace<float>(sizeof(float)) : nullptr;
  p.pow2 = call.flag("pow2");
  p.epsilon = call.f32("epsilon");
  p.amaxRecord = call.optional<float>("amaxRecord", sizeof(float));
  p.noop = call.optional<float>("noop", sizeof(float));
  call.check("quantizeTensor", launchQuantizeTensor(p, call.stream()));
}

void registerQuantizeTensor(Napi::Env env, Napi::Object exports) {
  exports.Set("quantizeTensor", Napi::Function::New<operation<QuantizeTensor>>(env));
}

}  // namespace lockstep
