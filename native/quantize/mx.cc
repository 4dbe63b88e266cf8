#include "kernels/quantize/mx/mx.h"

#include "kernels/core/format.h"
#include "native/addon.h"
#include "native/core/call.h"
#include "native/core/random.h"
#include "native/layout/placement.h"
#include "native/quantize/source.h"

namespace lockstep {

static void QuantizeMx(const Call<calls::QuantizeMx>& call) {
  QuantizeMxParams p;
  const uint64_t count = readQuantized(call, p);
  p.word = call.word("word");
  p.square = call.flag("square");
  p.stochastic = call.flag("stochastic");
  p.random = readRandom(call);
  p.part = readPart(call);
  p.rowwiseWords = call.optional<uint32_t>("rowwiseWords", bytesOf(count, 32));
  p.columnwiseWords = call.optional<uint32_t>("columnwiseWords", bytesOf(count, 32));
  const uint64_t bytes = bytesOf(count, storageBits(p.word));
  p.rowwise = call.optional<uint8_t>("rowwise.codes", bytes);
  if (p.rowwise) p.rowwiseScales = readPlacement(call, "rowwise", 1);
  p.columnwise = call.optional<uint8_t>("columnwise.codes", bytes);
  if (p.columnwise) p.columnwiseScales = readPlacement(call, "columnwise", 1);
  call.check("quantizeMx", launchQuantizeMx(p, call.stream()));
}

void registerQuantizeMx(Napi::Env env, Napi::Object exports) { expose<QuantizeMx>(env, exports); }

}  // namespace lockstep
