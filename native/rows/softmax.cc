// Softmax and its gradient.
#include "kernels/rows/softmax.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

// Reads the arguments common to softmax and its gradient. Returns the number of elements.
template <typename Declared>
uint64_t readRows(const Call<Declared>& call, SoftmaxRows& p) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.period = static_cast<int64_t>(call.count("period"));
  p.scale = call.f32("scale");
  return product({rows, columns});
}

void Softmax(const Call<calls::Softmax>& call) {
  SoftmaxParams p{};
  const uint64_t elements = readRows(call, p);
  p.type = call.wide("xType");
  p.x = call.pointer("x", bytesOf(elements, bitsOf(p.type)));
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(elements, bitsOf(p.outType)));
  call.check("softmax", launchSoftmax(p, call.stream()));
}

void SoftmaxBackward(const Call<calls::SoftmaxBackward>& call) {
  SoftmaxBackwardParams p{};
  const uint64_t elements = readRows(call, p);
  p.gradType = call.wide("gradType");
  p.grad = call.pointer("grad", bytesOf(elements, bitsOf(p.gradType)));
  p.yType = call.wide("yType");
  p.y = call.pointer("y", bytesOf(elements, bitsOf(p.yType)));
  p.dxType = call.wide("dxType");
  p.dx = call.pointer("dx", bytesOf(elements, bitsOf(p.dxType)));
  call.check("softmaxBackward", launchSoftmaxBackward(p, call.stream()));
}

}  // namespace

void registerSoftmax(Napi::Env env, Napi::Object exports) {
  expose<Softmax>(env, exports);
  expose<SoftmaxBackward>(env, exports);
}

}  // namespace lockstep
