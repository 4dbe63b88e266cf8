// Losses and their gradients.
#include "kernels/rows/loss.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

// Reads the target class to ignore. The argument has the 32 bits of an i32.
template <typename Declared>
int32_t readIgnore(const Call<Declared>& call) {
  return static_cast<int32_t>(call.word("ignore"));
}

void CrossEntropy(const Call<calls::CrossEntropy>& call) {
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

void CrossEntropyBackward(const Call<calls::CrossEntropyBackward>& call) {
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
  p.first = static_cast<int64_t>(call.count("first"));
  p.classes = static_cast<int64_t>(call.count("classes"));
  p.smoothing = call.f32("smoothing");
  p.ignore = readIgnore(call);
  call.check("crossEntropyBackward", launchCrossEntropyBackward(p, call.stream()));
}

// Reads the arguments common to the squared error and its gradient. Returns the number of elements.
template <typename Declared>
uint64_t readPair(const Call<Declared>& call, MsePair& p) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  const uint64_t elements = product({rows, columns});
  p.type = call.wide("xType");
  p.x = call.pointer("x", bytesOf(elements, bitsOf(p.type)));
  p.targetType = call.wide("targetType");
  p.target = call.pointer("target", bytesOf(elements, bitsOf(p.targetType)));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  return elements;
}

void Mse(const Call<calls::Mse>& call) {
  MseParams p{};
  readPair(call, p);
  p.loss = call.pointer<float>("loss", bytesOf(call.count("rows"), 32));
  call.check("mse", launchMse(p, call.stream()));
}

void MseBackward(const Call<calls::MseBackward>& call) {
  MseBackwardParams p{};
  const uint64_t elements = readPair(call, p);
  p.grad = call.pointer<float>("grad", bytesOf(call.count("rows"), 32));
  p.dxType = call.wide("dxType");
  p.dx = call.pointer("dx", bytesOf(elements, bitsOf(p.dxType)));
  call.check("mseBackward", launchMseBackward(p, call.stream()));
}

}  // namespace

void registerLoss(Napi::Env env, Napi::Object exports) {
  expose<CrossEntropy>(env, exports);
  expose<CrossEntropyBackward>(env, exports);
  expose<Mse>(env, exports);
  expose<MseBackward>(env, exports);
}

}  // namespace lockstep
