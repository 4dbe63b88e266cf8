// Activations and their gradients.
#include "kernels/elementwise/activation.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

template <typename Declared>
ActivationParams readActivation(const Call<Declared>& call) {
  const uint64_t count = call.count("count");
  ActivationParams p{};
  p.xType = call.wide("xType");
  p.x = call.pointer("x", bytesOf(count, bitsOf(p.xType)));
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(count, bitsOf(p.outType)));
  p.kind = call.template member<Activation>("kind");
  p.count = static_cast<int64_t>(count);
  return p;
}

void Activate(const Call<calls::Activation>& call) {
  const ActivationParams p = readActivation(call);
  call.check("activation", launchActivation(p, call.stream()));
}

void ActivateBackward(const Call<calls::ActivationBackward>& call) {
  ActivationParams p = readActivation(call);
  p.gradType = call.wide("gradType");
  p.grad = call.pointer("grad", bytesOf(static_cast<uint64_t>(p.count), bitsOf(p.gradType)));
  call.check("activationBackward", launchActivationBackward(p, call.stream()));
}

}  // namespace

void registerActivation(Napi::Env env, Napi::Object exports) {
  expose<Activate>(env, exports);
  expose<ActivateBackward>(env, exports);
}

}  // namespace lockstep
