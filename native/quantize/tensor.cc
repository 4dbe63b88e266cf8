#include "kernels/quantize/fp8/tensor.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/quantize/fp8-source.h"

namespace lockstep {

static void QuantizeTensor(const Call<calls::QuantizeTensor>& call) {
  QuantizeTensorParams p = readQuantizeTensor(call);
  p.workspace = call.has("workspace") ? call.workspace<float>(sizeof(float)) : nullptr;
  call.check("quantizeTensor", launchQuantizeTensor(p, call.stream()));
}

void registerQuantizeTensor(Napi::Env env, Napi::Object exports) { expose<QuantizeTensor>(env, exports); }

}  // namespace lockstep
