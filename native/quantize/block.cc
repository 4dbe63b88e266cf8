#include "kernels/quantize/fp8/block.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/quantize/fp8-source.h"

namespace lockstep {

static void QuantizeBlock(const Call<calls::QuantizeBlock>& call) {
  call.check("quantizeBlock", launchQuantizeBlock(readQuantizeBlock(call), call.stream()));
}

void registerQuantizeBlock(Napi::Env env, Napi::Object exports) { expose<QuantizeBlock>(env, exports); }

}  // namespace lockstep
