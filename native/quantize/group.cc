#include "kernels/quantize/int4/group.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/layout/placement.h"
#include "native/quantize/source.h"

namespace lockstep {

static void QuantizeGroup(const Call<calls::QuantizeGroup>& call) {
  QuantizeGroupParams p;
  const uint64_t bytes = bytesOf(readQuantized(call, p), 4);
  p.word = call.word("word");
  p.length = static_cast<uint32_t>(call.bounded("length", 128));
  p.rowwise = call.optional<uint8_t>("rowwise.codes", bytes);
  if (p.rowwise) p.rowwiseScales = readPlacement(call, "rowwise", sizeof(float));
  p.columnwise = call.optional<uint8_t>("columnwise.codes", bytes);
  if (p.columnwise) p.columnwiseScales = readPlacement(call, "columnwise", sizeof(float));
  p.epsilon = call.f32("epsilon");
  call.check("quantizeGroup", launchQuantizeGroup(p, call.stream()));
}

void registerQuantizeGroup(Napi::Env env, Napi::Object exports) { expose<QuantizeGroup>(env, exports); }

}  // namespace lockstep
