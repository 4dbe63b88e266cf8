// Softmax cross-entropy and its gradient.
#include "kernels/loss.h"

#include "native/addon.h"
#include "native/call.h"

namespace lockstep {

namespace {

// The target without loss: the 32 bits of an i32.
int32_t readIgnore(const Call& call) { return static_cast<int32_t>(call.word("ignore")); }

void CrossEntropy(const Call& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  CrossEntropyParams p{};
  p.type = call.wide("logitsType");
  p.logits = call.pointer("logits", bytesOf(product({rows, columns}), bitsOf(p.type)));
  p.targets = call.pointer<int32_t>("targets", bytesOf(rows, 32));
  p.loss = call.pointer<float>("loss", bytesOf(rows, 32));
  p.maximum = call.pointer<float>("maximum", bytesOf(rows, 32));
  p.total = call.pointer<float>("total", bytesOf(rows, 32));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.smoothing = call.f32("smoothing");
  p.ignore = readIgnore(call);
  call.check("crossEntropy", launchCrossEntropy(p, call.stream()));
}

void CrossEntropyBackward(const Call& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  const uint64_t elements = product({rows, columns});
  CrossEntropyBackwardParams p{};
  p.grad = call.pointer<float>("grad", bytesOf(rows, 32));
  p.type = call.wide("logitsType");
  p.logits = call.pointer("logits", bytesOf(elements, bitsOf(p.type)));
  p.targets = call.pointer<int32_t>("targets", bytesOf(rows, 32));
  p.maximum = call.pointer<float>("maximum", bytesOf(rows, 32));
  p.total = call.pointer<float>("total", bytesOf(rows, 32));
  p.dxType = call.wide("dxType");
  p.dx = call.pointer("dx", bytesOf(elements, bitsOf(p.dxType)));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.smoothing = call.f32("smoothing");
  p.ignore = readIgnore(call);
  call.check("crossEntropyBackward", launchCrossEntropyBackward(p, call.stream()));
}

}  // namespace

void registerLoss(Napi::Env env, Napi::Object exports) {
  exports.Set("crossEntropy", Napi::Function::New<operation<CrossEntropy>>(env));
  exports.Set("crossEntropyBackward", Napi::Function::New<operation<CrossEntropyBackward>>(env));
}

}  // namespace lockstep
