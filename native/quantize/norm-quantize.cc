// Norms fused with quantization.
#include "kernels/quantize/norm-quantize.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/rows/norm-source.h"

namespace lockstep {

namespace {

void NormQuantizeTensor(const Call<calls::NormQuantizeTensor>& call) {
  NormQuantizeParams p{};
  p.source = readNormSource(call);
  QuantizeTensorParams& target = p.target;
  target.word = call.word("word");
  target.rowwise = call.pointer<uint8_t>("rowwise", elementsOf(call));
  target.rowwiseScaleInv = call.optional<float>("rowwiseScaleInv", sizeof(float));
  target.columnwiseScaleInv = call.optional<float>("columnwiseScaleInv", sizeof(float));
  target.scale = call.pointer<float>("scale", sizeof(float));
  target.amaxOut = call.optional<float>("amaxRecord", sizeof(float));
  call.check("normQuantizeTensor", launchNormQuantize(p, call.stream()));
}

}  // namespace

void registerNormQuantize(Napi::Env env, Napi::Object exports) { expose<NormQuantizeTensor>(env, exports); }

}  // namespace lockstep
