// The sum of two tensors.
#include "kernels/elementwise/add.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

void Add(const Call<calls::Add>& call) {
  const uint64_t count = call.count("count");
  AddParams p{};
  p.xType = call.wide("xType");
  p.x = call.pointer("x", bytesOf(count, bitsOf(p.xType)));
  p.yType = call.wide("yType");
  p.y = call.pointer("y", bytesOf(count, bitsOf(p.yType)));
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(count, bitsOf(p.outType)));
  p.count = static_cast<int64_t>(count);
  call.check("add", launchAdd(p, call.stream()));
}

}  // namespace

void registerAdd(Napi::Env env, Napi::Object exports) { expose<Add>(env, exports); }

}  // namespace lockstep
