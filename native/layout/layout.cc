// Transposes, axis swaps, and conversion between layouts of block scales.
#include "kernels/layout/layout.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/layout/placement.h"

namespace lockstep {

namespace {

void Transpose(const Call<calls::Transpose>& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  const uint64_t bits = call.bounded("bits", 32);
  if (bits < 8 && (rows % 2 != 0 || columns % 2 != 0)) {
    throw Failure{"ARGUMENT", "rows or columns is odd, but two elements share a byte"};
  }
  const uint64_t bytes = bytesOf(product({rows, columns}), bits);
  TransposeParams p{};
  p.x = call.pointer("x", bytes);
  p.out = call.pointer("out", bytes);
  p.bits = static_cast<int>(bits);
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  call.check("transpose", launchTranspose(p, call.stream()));
}

void SwapAxes(const Call<calls::SwapAxes>& call) {
  const uint64_t outer = call.count("outer");
  const uint64_t p = call.count("p");
  const uint64_t middle = call.count("middle");
  const uint64_t q = call.count("q");
  const uint64_t unit = call.count("unit");
  const uint64_t bytes = product({outer, p, middle, q, unit});
  SwapAxesParams params{};
  params.x = call.pointer("x", bytes);
  params.out = call.pointer("out", bytes);
  params.outer = static_cast<int64_t>(outer);
  params.p = static_cast<int64_t>(p);
  params.middle = static_cast<int64_t>(middle);
  params.q = static_cast<int64_t>(q);
  params.unit = static_cast<int64_t>(unit);
  call.check("swapAxes", launchSwapAxes(params, call.stream()));
}

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

void registerLayout(Napi::Env env, Napi::Object exports) {
  expose<Transpose>(env, exports);
  expose<SwapAxes>(env, exports);
  expose<Relayout>(env, exports);
}

}  // namespace lockstep
