#include "kernels/quantize/nvfp4/nvfp4.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/core/random.h"
#include "native/layout/placement.h"
#include "native/quantize/source.h"

namespace lockstep {

namespace {

// The names of a copy's arguments.
struct CopyNames {
  consteval CopyNames(const char* name) : data(name), scales(name), amax(name, "Amax"), givenAmax(name, "GivenAmax") {}

  Name data;
  PlacementNames scales;
  Name amax;
  Name givenAmax;
};

// The copy under a name, of `bytes` bytes of codes; one without data where it was not given.
Nvfp4Copy readCopy(const Call& call, CopyNames names, uint64_t bytes) {
  Nvfp4Copy copy;
  copy.data = call.optional<uint8_t>(names.data, bytes);
  if (!copy.data) return copy;
  copy.scales = readPlacement(call, names.scales, 1);
  copy.amax = call.pointer<float>(names.amax, sizeof(float));
  copy.givenAmax = call.optional<float>(names.givenAmax, sizeof(float));
  return copy;
}

void QuantizeNvfp4(const Call& call) {
  QuantizeNvfp4Params p;
  const uint64_t count = readSource(call, p);
  p.rowwise = readCopy(call, "rowwise", bytesOf(count, 4));
  p.columnwise = readCopy(call, "columnwise", bytesOf(count, 4));
  p.square = call.flag("square");
  p.transforms = call.flag("transforms");
  p.signs = call.word("signs");
  p.stochastic = call.flag("stochastic");
  p.random = readRandom(call);
  p.fourOverSix = call.flag("fourOverSix");
  p.squaredError = call.flag("squaredError");
  p.e4m3Max = call.f32("e4m3Max");
  p.noop = call.optional<float>("noop", sizeof(float));
  call.check("quantizeNvfp4", launchQuantizeNvfp4(p, call.stream()));
}

}  // namespace

void registerQuantizeNvfp4(Napi::Env env, Napi::Object exports) {
  exports.Set("quantizeNvfp4", Napi::Function::New<operation<QuantizeNvfp4>>(env));
}

}  // namespace lockstep
