#include "kernels/quantize/fp8/row.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/quantize/source.h"

namespace lockstep {

static void QuantizeRow(const Call<calls::QuantizeRow>& call) {
  QuantizeRowParams p;
  const uint64_t count = readQuantized(call, p);
  const uint64_t rows = static_cast<uint64_t>(p.rows);
  const uint64_t columns = static_cast<uint64_t>(p.columns);
  p.word = call.word("word");
  p.rowwise = call.optional<uint8_t>("rowwise", count);
  if (p.rowwise) p.rowwiseScales = call.pointer<float>("rowwiseScaleInv", bytesOf(rows, 32));
  p.columnwise = call.optional<uint8_t>("columnwise", count);
  if (p.columnwise) p.columnwiseScales = call.pointer<float>("columnwiseScaleInv", bytesOf(columns, 32));
  p.pow2 = call.flag("pow2");
  p.epsilon = call.f32("epsilon");
  p.limit = call.f32("limit");
  p.amaxes = call.workspace<uint32_t>(bytesOf((p.rowwise ? rows : 0) + (p.columnwise ? columns : 0), 32));
  call.check("quantizeRow", launchQuantizeRow(p, call.stream()));
}

void registerQuantizeRow(Napi::Env env, Napi::Object exports) { expose<QuantizeRow>(env, exports); }

}  // namespace lockstep
