// Gated activations and their gradients.
#include "kernels/elementwise/gated.h"

#include "kernels/elementwise/activation.h"
#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

// Reads the activation, or the parameters of the clamped swiglu.
template <typename Declared>
void readForm(const Call<Declared>& call, GatedParams& p) {
  if constexpr (declares<Declared>("kind")) {
    p.kind = call.template member<Activation>("kind");
    p.alpha = alphaOf(p.kind);
  } else {
    p.kind = Activation::kSilu;
    p.alpha = call.f32("alpha");
    p.limit = call.f32("limit");
    p.offset = call.f32("offset");
  }
}

template <typename Declared>
void Forward(const Call<Declared>& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  GatedParams p{};
  readForm(call, p);
  p.xType = call.wide("xType");
  p.x = call.pointer("x", bytesOf(product({rows, columns, 2}), bitsOf(p.xType)));
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(product({rows, columns}), bitsOf(p.outType)));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  call.check("gated", launchGated(p, call.stream()));
}

template <typename Declared>
void Backward(const Call<Declared>& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  GatedParams p{};
  readForm(call, p);
  p.gradType = call.wide("gradType");
  p.grad = call.pointer("grad", bytesOf(product({rows, columns}), bitsOf(p.gradType)));
  p.xType = call.wide("xType");
  p.x = call.pointer("x", bytesOf(product({rows, columns, 2}), bitsOf(p.xType)));
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(product({rows, columns, 2}), bitsOf(p.outType)));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  call.check("gatedBackward", launchGatedBackward(p, call.stream()));
}

}  // namespace

void registerGated(Napi::Env env, Napi::Object exports) {
  expose<Forward<calls::Gated>>(env, exports);
  expose<Backward<calls::GatedBackward>>(env, exports);
  expose<Forward<calls::ClampedSwiglu>>(env, exports);
  expose<Backward<calls::ClampedSwigluBackward>>(env, exports);
}

}  // namespace lockstep
