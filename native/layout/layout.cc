// Conversion between layouts of block scales.
#include "kernels/layout/layout.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/layout/placement.h"

namespace lockstep {

namespace {

void Relayout(const Call<calls::Relayout>& call) {
  const uint64_t bytes = call.flag("wide") ? 4 : 1;
  RelayoutParams p{};
  p.from = readPlacement(call, "from", bytes);
  p.to = readPlacement(call, "to", bytes);
  p.bytes = static_cast<int>(bytes);
  if (p.from.lines != p.to.lines || p.from.blocks != p.to.blocks) {
    throw Failure{"ARGUMENT", "the two layouts have different numbers of lines or blocks"};
  }
  call.check("relayout", launchRelayout(p, call.stream()));
}

}  // namespace

void registerLayout(Napi::Env env, Napi::Object exports) { expose<Relayout>(env, exports); }

}  // namespace lockstep
