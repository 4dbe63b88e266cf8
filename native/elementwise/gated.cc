// Gated activations and their gradients.
#include "kernels/elementwise/gated.h"

#include "kernels/elementwise/activation.h"
#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

// A form without clamp.
void readKind(const Call& call, GatedParams& p) {
  p.kind = call.member("kind", Activation::kSigmoid);
  p.alpha = alphaOf(p.kind);
}

void readClamp(const Call& call, GatedParams& p) {
  p.kind = Activation::kSilu;
  p.alpha = call.f32("alpha");
  p.limit = call.f32("limit");
  p.offset = call.f32("offset");
}

using ReadForm = void (*)(const Call& call, GatedParams& p);

template <ReadForm readForm>
void Forward(const Call& call) {
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

template <ReadForm readForm>
void Backward(const Call& call) {
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
  exports.Set("gated", Napi::Function::New<operation<Forward<readKind>>>(env));
  exports.Set("gatedBackward", Napi::Function::New<operation<Backward<readKind>>>(env));
  exports.Set("clampedSwiglu", Napi::Function::New<operation<Forward<readClamp>>>(env));
  exports.Set("clampedSwigluBackward", Napi::Function::New<operation<Backward<readClamp>>>(env));
}

}  // namespace lockstep
