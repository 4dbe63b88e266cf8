// Dequantization.
#include "kernels/quantize/dequantize.h"

#include "native/addon.h"
#include "native/core/call.h"
#include "native/layout/placement.h"

namespace lockstep {

namespace {

// Throws Failure ARGUMENT if `blocks` blocks of 2^shift codes cover fewer than `size` codes.
void requireCover(const char* name, int64_t blocks, uint64_t size, int shift) {
  if (size == 0 || static_cast<uint64_t>(blocks) > (size - 1) >> shift) return;
  throw Failure{"ARGUMENT", std::string(name) + " of scales do not cover the codes"};
}

void Dequantize(const Call<calls::Dequantize>& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  DequantizeParams p{};
  p.word = call.word("word");
  const uint64_t bits = codeBits(p.word);
  if (bits < 8 && columns % 2 != 0) throw Failure{"ARGUMENT", "columns is odd, but two codes share a byte"};
  const uint64_t count = product({rows, columns});
  p.codes = call.pointer("codes", bytesOf(count, bits));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.transposed = call.flag("transposed");
  p.across = call.flag("across");
  p.scaleWord = call.word("scaleWord");
  p.scales = readPlacement(call, "", p.scaleWord == 0 ? 4 : 1);
  p.lineShift = static_cast<int>(call.bounded("lineShift", 62));
  p.blockShift = static_cast<int>(call.bounded("blockShift", 62));
  requireCover("lines", p.scales.lines, p.across ? columns : rows, p.lineShift);
  requireCover("blocks", p.scales.blocks, p.across ? rows : columns, p.blockShift);
  p.rowScaled = call.flag("rowScaled");
  p.amax = call.optional<const float>("amax", bytesOf(p.rowScaled ? rows : 1, 32));
  p.inverse = call.f32("inverse");
  p.divides = call.flag("divides");
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(count, bitsOf(p.outType)));
  call.check("dequantize", launchDequantize(p, call.stream()));
}

}  // namespace

void registerDequantize(Napi::Env env, Napi::Object exports) { expose<Dequantize>(env, exports); }

}  // namespace lockstep
