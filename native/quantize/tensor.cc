#include "kernels/quantize/tensor.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/quantize/fp8-source.h"

namespace lockstep {

static void QuantizeTensor(const Call& call) {
  QuantizeTensorParams p = readQuantizeTensor(call);
  p.workspace = call.has("workspace") ? call.workspace<float>(sizeof(float)) : nullptr;
  call.check("quantizeTensor", launchQuantizeTensor(p, call.stream()));
}

void registerQuantizeTensor(Napi::Env env, Napi::Object exports) {
  exports.Set("quantizeTensor", Napi::Function::New<operation<QuantizeTensor>>(env));
}

}  // namespace lockstep
