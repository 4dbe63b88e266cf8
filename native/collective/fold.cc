// Combines arrays of several ranks element by element: sums, means and maxima.
#include "kernels/collective/fold.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

void Fold(const Call<calls::Fold>& call) {
  FoldParams p{};
  p.type = call.wide("type");
  p.sumType = call.wide("sumType");
  p.maximum = call.flag("maximum");
  p.factor = call.f32("factor");
  if (p.sumType != Wide::kF32 && p.sumType != p.type) {
    throw Failure{"ARGUMENT", "sumType is neither f32 nor the type of the parts"};
  }
  const uint64_t bits = bitsOf(p.type);
  const uint64_t count = call.count("count");
  const uint64_t stride = call.count("stride");
  const uint64_t ranks = call.count("ranks");
  if (ranks == 0 || stride < count) {
    throw Failure{"ARGUMENT", "there is no part, or parts overlap"};
  }
  p.own = call.has("own") ? call.bytesAt("own", bytesOf(count, bits)) : nullptr;
  const uint64_t apart = ranks - (p.own ? 1 : 0);
  if (p.own) p.ownAt = static_cast<int64_t>(call.bounded("ownAt", ranks - 1));
  p.parts = call.bytesAt("parts", apart == 0 ? 0 : bytesOf(product({apart - 1, stride}) + count, bits));
  p.out = call.bytesAt("out", bytesOf(count, bits));
  for (const void* data : {p.parts, p.own, static_cast<const void*>(p.out)}) {
    if (reinterpret_cast<uint64_t>(data) % (bits / 8) != 0) {
      throw Failure{"ARGUMENT", "an address is not a multiple of an element"};
    }
  }
  p.stride = static_cast<int64_t>(stride);
  p.ranks = static_cast<int64_t>(ranks);
  p.count = static_cast<int64_t>(count);
  call.check("fold", launchFold(p, call.stream()));
}

}  // namespace

void registerFold(Napi::Env env, Napi::Object exports) { expose<Fold>(env, exports); }

}  // namespace lockstep
