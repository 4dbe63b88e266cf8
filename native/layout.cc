// transpose and relayout.
#include "kernels/layout.h"

#include "native/addon.h"
#include "native/call.h"
#include "native/placement.h"

namespace lockstep {

namespace {

void Transpose(const Call& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  const uint64_t bits = call.bounded("bits", 32);
  if (bits < 8 && (rows % 2 != 0 || columns % 2 != 0)) {
    throw Failure{"ARGUMENT", "rows or columns are odd and two elements share a byte"};
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

void Relayout(const Call& call) {
  const uint64_t bytes = call.flag("wide") ? 4 : 1;
  RelayoutParams p{};
  p.from = readPlacement(call, "from", bytes);
  p.to = readPlacement(call, "to", bytes);
  p.bytes = static_cast<int>(bytes);
  if (p.from.lines != p.to.lines || p.from.blocks != p.to.blocks) {
    throw Failure{"ARGUMENT", "the two layouts are of scale matrices of different sizes"};
  }
  call.check("relayout", launchRelayout(p, call.stream()));
}

}  // namespace

void registerLayout(Napi::Env env, Napi::Object exports) {
  exports.Set("transpose", Napi::Function::New<operation<Transpose>>(env));
  exports.Set("relayout", Napi::Function::New<operation<Relayout>>(env));
}

}  // namespace lockstep
