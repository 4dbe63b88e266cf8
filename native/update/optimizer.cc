// Optimizer steps.
#include "kernels/update/optimizer.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

// Reads the arguments common to all optimizers. Returns the number of bytes of an f32 array.
template <typename Declared>
uint64_t readStep(const Call<Declared>& call, StepParams& p) {
  const uint64_t count = call.count("count");
  const uint64_t bytes = bytesOf(count, 32);
  p.gradType = call.wide("gradType");
  p.grad = call.pointer("grad", bytesOf(count, bitsOf(p.gradType)));
  p.parameter = call.template pointer<float>("parameter", bytes);
  p.copy = call.optional("copy", bytesOf(count, 16));
  if (p.copy != nullptr) p.copyType = call.wide("copyType");
  p.gradScale = call.template optional<float>("gradScale", sizeof(float));
  p.noop = call.template optional<float>("noop", sizeof(float));
  p.learningRate = call.f32("learningRate");
  p.weightDecay = call.f32("weightDecay");
  p.count = static_cast<int64_t>(count);
  return bytes;
}

void StepSgd(const Call<calls::Sgd>& call) {
  SgdParams p{};
  const uint64_t bytes = readStep(call, p);
  p.m = call.optional<float>("m", bytes);
  p.momentum = call.f32("momentum");
  p.undamped = call.f32("undamped");
  p.nesterov = call.flag("nesterov");
  p.first = call.flag("first");
  call.check("sgd", launchSgd(p, call.stream()));
}

void StepAdamw(const Call<calls::Adamw>& call) {
  AdamwParams p{};
  const uint64_t bytes = readStep(call, p);
  p.m = call.pointer<float>("m", bytes);
  p.v = call.pointer<float>("v", bytes);
  p.beta1 = call.f32("beta1");
  p.beta2 = call.f32("beta2");
  p.correction1 = call.f32("correction1");
  p.correction2 = call.f32("correction2");
  p.epsilon = call.f32("epsilon");
  p.decoupled = call.flag("decoupled");
  call.check("adamw", launchAdamw(p, call.stream()));
}

}  // namespace

void registerOptimizer(Napi::Env env, Napi::Object exports) {
  expose<StepSgd>(env, exports);
  expose<StepAdamw>(env, exports);
}

}  // namespace lockstep
