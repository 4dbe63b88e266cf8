// The largest magnitude of a tensor.
#include "kernels/quantize/amax.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

void Amax(const Call<calls::Amax>& call) {
  const uint64_t count = call.count("count");
  AmaxParams p{};
  p.xType = call.wide("xType");
  p.x = call.pointer("x", bytesOf(count, bitsOf(p.xType)));
  p.out = call.pointer<float>("out", sizeof(float));
  p.count = static_cast<int64_t>(count);
  call.check("amax", launchAmax(p, call.stream()));
}

}  // namespace

void registerAmax(Napi::Env env, Napi::Object exports) { expose<Amax>(env, exports); }

}  // namespace lockstep
