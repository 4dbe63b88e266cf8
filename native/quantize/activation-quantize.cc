// Activations fused with quantization.
#include "kernels/quantize/activation-quantize.h"

#include "kernels/core/format.h"
#include "kernels/elementwise/activation.h"
#include "native/addon.h"
#include "native/core/call.h"
#include "native/layout/placement.h"

namespace lockstep {

namespace {

// Reads the input. "rows" and "columns" are the sizes of x or, if the activation is gated, of one of its halves.
template <typename Declared>
ActivationSource readSource(const Call<Declared>& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  ActivationSource source;
  source.gated = call.flag("gated");
  GatedForm& form = source.form;
  form.xType = call.wide("xType");
  form.x = call.pointer("x", bytesOf(product({rows, columns, source.gated ? 2u : 1u}), bitsOf(form.xType)));
  if (call.has("grad.data")) {
    form.gradType = call.wide("grad.type");
    form.grad = call.pointer("grad.data", bytesOf(product({rows, columns}), bitsOf(form.gradType)));
  }
  form.kind = call.template member<Activation>("kind");
  form.alpha = alphaOf(form.kind);
  if (call.has("clamp.limit")) {
    form.alpha = call.f32("clamp.alpha");
    form.limit = call.f32("clamp.limit");
    form.offset = call.f32("clamp.offset");
  }
  form.rows = static_cast<int64_t>(rows);
  form.columns = static_cast<int64_t>(columns);
  return source;
}

// The number of columns of the result. The gradient of a gated activation has dA and dG in each row.
int64_t resultColumns(const ActivationSource& source) {
  return source.form.columns * (source.gated && source.form.grad != nullptr ? 2 : 1);
}

void ActivationQuantizeTensor(const Call<calls::ActivationQuantizeTensor>& call) {
  ActivationQuantizeTensorParams p;
  p.source = readSource(call);
  QuantizeTensorParams& target = p.target;
  target.rows = p.source.form.rows;
  target.columns = resultColumns(p.source);
  const uint64_t count = product({static_cast<uint64_t>(target.rows), static_cast<uint64_t>(target.columns)});
  target.word = call.word("word");
  target.rowwise = call.optional<uint8_t>("rowwise", count);
  target.columnwise = call.optional<uint8_t>("columnwise", count);
  target.rowwiseScaleInv = call.optional<float>("rowwiseScaleInv", sizeof(float));
  target.columnwiseScaleInv = call.optional<float>("columnwiseScaleInv", sizeof(float));
  target.scale = call.pointer<float>("scale", sizeof(float));
  target.amaxOut = call.optional<float>("amaxRecord", sizeof(float));
  call.check("activationQuantizeTensor", launchActivationQuantizeTensor(p, call.stream()));
}

void ActivationQuantizeMx(const Call<calls::ActivationQuantizeMx>& call) {
  ActivationQuantizeMxParams p;
  p.source = readSource(call);
  QuantizeMxParams& target = p.target;
  target.rows = p.source.form.rows;
  target.columns = resultColumns(p.source);
  target.word = call.word("word");
  const uint64_t count = product({static_cast<uint64_t>(target.rows), static_cast<uint64_t>(target.columns)});
  const uint64_t bytes = bytesOf(count, storageBits(target.word));
  target.rowwise = call.optional<uint8_t>("rowwise.codes", bytes);
  if (target.rowwise) target.rowwiseScales = readPlacement(call, "rowwise", 1);
  target.columnwise = call.optional<uint8_t>("columnwise.codes", bytes);
  if (target.columnwise) target.columnwiseScales = readPlacement(call, "columnwise", 1);
  call.check("activationQuantizeMx", launchActivationQuantizeMx(p, call.stream()));
}

}  // namespace

void registerActivationQuantize(Napi::Env env, Napi::Object exports) {
  expose<ActivationQuantizeTensor>(env, exports);
  expose<ActivationQuantizeMx>(env, exports);
}

}  // namespace lockstep
