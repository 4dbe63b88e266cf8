#include "kernels/quantize/nvfp4/nvfp4.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/core/random.h"
#include "native/layout/placement.h"
#include "native/quantize/source.h"

namespace lockstep {

namespace {

using Quantization = Call<calls::QuantizeNvfp4>;
using OptionalPointer = OptionalName<calls::QuantizeNvfp4, Kind::kPointer>;

// The argument names of one quantized copy, "rowwise" or "columnwise": its codes, scales, amax and input amax.
struct CopyNames {
  consteval CopyNames(const char* name)
      : codes(name, ".codes"),
        scales(name),
        amax(name, ".amax"),
        givenAmax(name, ".givenAmax"),
        words(name, ".words") {}

  OptionalPointer codes;
  PlacementNames<calls::QuantizeNvfp4> scales;
  OptionalPointer amax;
  OptionalPointer givenAmax;
  OptionalPointer words;
};

// Reads a quantized copy with `count` codes and `amaxes` amaxes. If the call has no such copy, the result has no data.
Nvfp4Copy readCopy(const Quantization& call, CopyNames names, uint64_t count, uint64_t amaxes) {
  Nvfp4Copy copy;
  copy.data = call.optional<uint8_t>(names.codes, bytesOf(count, 4));
  if (!copy.data) return copy;
  copy.scales = readPlacement(call, names.scales, 1);
  copy.amax = call.optional<float>(names.amax, bytesOf(amaxes, 32));
  copy.givenAmax = call.optional<float>(names.givenAmax, sizeof(float));
  copy.words = call.optional<uint32_t>(names.words, bytesOf(count, 32));
  return copy;
}

void QuantizeNvfp4(const Quantization& call) {
  QuantizeNvfp4Params p;
  const uint64_t count = readQuantized(call, p);
  p.rowScaled = call.flag("rowScaled");
  p.rowwise = readCopy(call, "rowwise", count, p.rowScaled ? static_cast<uint64_t>(p.rows) : 1);
  p.columnwise = readCopy(call, "columnwise", count, p.rowScaled ? static_cast<uint64_t>(p.columns) : 1);
  p.square = call.flag("square");
  p.transforms = call.flag("transforms");
  p.signs = call.word("signs");
  p.stochastic = call.flag("stochastic");
  p.random = readRandom(call);
  p.part = readPart(call);
  p.fourOverSix = call.flag("fourOverSix");
  p.squaredError = call.flag("squaredError");
  p.e4m3Max = call.f32("e4m3Max");
  call.check("quantizeNvfp4", launchQuantizeNvfp4(p, call.stream()));
}

}  // namespace

void registerQuantizeNvfp4(Napi::Env env, Napi::Object exports) { expose<QuantizeNvfp4>(env, exports); }

}  // namespace lockstep
