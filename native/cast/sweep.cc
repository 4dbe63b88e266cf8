// The digest of an encoding over all 2^32 f32 bit patterns.
#include "kernels/cast/sweep.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/core/random.h"

namespace lockstep {

namespace {

void Sweep(const Call<calls::Sweep>& call) {
  SweepParams p{};
  p.word = call.word("word");
  p.rounding = call.member<Rounding>("rounding");
  p.overflow = call.member<Overflow>("overflow");
  p.random = readRandom(call);
  p.chunk = static_cast<uint32_t>(call.bounded("chunk", kSweepChunks - 1));
  p.out = call.pointer<uint32_t>("out", 2 * sizeof(uint32_t));
  call.check("sweep", launchSweep(p, call.stream()));
}

}  // namespace

void registerSweep(Napi::Env env, Napi::Object exports) { expose<Sweep>(env, exports); }

}  // namespace lockstep
