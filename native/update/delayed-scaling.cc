// The update of the amax histories and scales of delayed scaling.
#include "kernels/update/delayed-scaling.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

void UpdateScales(const Call<calls::UpdateScales>& call) {
  const uint64_t length = call.count("length");
  const uint64_t count = call.count("count");
  // the kernel reads row 0 of the history, which must therefore exist
  if (length == 0) throw Failure{"ARGUMENT", "length is 0"};
  UpdateScalesParams p{};
  p.amaxHistory = call.pointer<float>("amaxHistory", bytesOf(product({length, count}), 32));
  p.scale = call.pointer<float>("scale", bytesOf(count, 32));
  p.length = static_cast<int64_t>(length);
  p.count = static_cast<int64_t>(count);
  p.scaledMax = call.f32("scaledMax");
  p.mostRecent = call.flag("mostRecent");
  call.check("updateScales", launchUpdateScales(p, call.stream()));
}

}  // namespace

void registerDelayedScaling(Napi::Env env, Napi::Object exports) { expose<UpdateScales>(env, exports); }

}  // namespace lockstep
