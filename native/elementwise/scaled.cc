// A tensor times a scalar.
#include "kernels/elementwise/scaled.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

void Scaled(const Call<calls::Scaled>& call) {
  const uint64_t count = call.count("count");
  ScaledParams p{};
  p.xType = call.wide("xType");
  p.x = call.pointer("x", bytesOf(count, bitsOf(p.xType)));
  p.factor = call.f32("factor");
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(count, bitsOf(p.outType)));
  p.count = static_cast<int64_t>(count);
  call.check("scaled", launchScaled(p, call.stream()));
}

}  // namespace

void registerScaled(Napi::Env env, Napi::Object exports) { expose<Scaled>(env, exports); }

}  // namespace lockstep
