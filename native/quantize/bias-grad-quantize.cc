// Quantization of gradients, fused with the column sums of the gradients, which are the bias gradients.
#include "kernels/quantize/bias-grad-quantize.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/quantize/fp8-source.h"
#include "native/rows/chunk-sums.h"

namespace lockstep {

namespace {

// Reads the bias gradient's destination and the workspace, which holds `sums` partial sums (native/rows/chunk-sums.h),
// followed by `more` floats.
template <typename Declared>
BiasGradient readBiasGradient(const Call<Declared>& call, uint64_t sums, uint64_t more) {
  BiasGradient gradient;
  gradient.type = call.wide("outType");
  gradient.out = call.pointer("out", bytesOf(call.count("columns"), bitsOf(gradient.type)));
  gradient.chunkSums = call.template workspace<float>(bytesOf(sums + more, 32));
  return gradient;
}

void BiasGradQuantizeTensor(const Call<calls::BiasGradQuantizeTensor>& call) {
  QuantizeTensorParams p = readQuantizeTensor(call);
  const uint64_t sums = chunkSums(call.count("rows"), call.count("columns"), 1);
  const BiasGradient gradient = readBiasGradient(call, sums, 1);
  p.workspace = gradient.chunkSums + sums;
  call.check("biasGradQuantizeTensor", launchBiasGradQuantizeTensor(p, gradient, call.stream()));
}

void BiasGradQuantizeBlock(const Call<calls::BiasGradQuantizeBlock>& call) {
  const QuantizeBlockParams p = readQuantizeBlock(call);
  const BiasGradient gradient = readBiasGradient(call, chunkSums(call.count("rows"), call.count("columns"), 1), 0);
  call.check("biasGradQuantizeBlock", launchBiasGradQuantizeBlock(p, gradient, call.stream()));
}

}  // namespace

void registerBiasGradQuantize(Napi::Env env, Napi::Object exports) {
  expose<BiasGradQuantizeTensor>(env, exports);
  expose<BiasGradQuantizeBlock>(env, exports);
}

}  // namespace lockstep
