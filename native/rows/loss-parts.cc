// The steps of a cross-entropy whose columns ranks have parts of.
#include "kernels/rows/loss-parts.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

// Reads the logits of a call. Returns the number of rows.
template <typename Declared>
uint64_t readLogits(const Call<Declared>& call, PartOfLogits& p) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  p.type = call.wide("logitsType");
  p.logits = call.pointer("logits", bytesOf(product({rows, columns}), bitsOf(p.type)));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  return rows;
}

// The bytes of the sums of each row, without and with label smoothing.
size_t bytesOfSums(uint64_t rows, bool smooths) { return bytesOf(product({rows, smooths ? 3u : 2u}), 32); }

void LossMaximum(const Call<calls::LossMaximum>& call) {
  LossMaximumParams p{};
  const uint64_t rows = readLogits(call, p);
  p.maximum = call.pointer<float>("maximum", bytesOf(rows, 32));
  call.check("lossMaximum", launchLossMaximum(p, call.stream()));
}

void LossSums(const Call<calls::LossSums>& call) {
  LossSumsParams p{};
  const uint64_t rows = readLogits(call, p);
  p.targets = call.pointer<int32_t>("targets", bytesOf(rows, 32));
  p.first = static_cast<int64_t>(call.count("first"));
  p.maximum = call.pointer<float>("maximum", bytesOf(rows, 32));
  p.smooths = call.flag("smooths");
  p.sums = call.pointer<float>("sums", bytesOfSums(rows, p.smooths));
  call.check("lossSums", launchLossSums(p, call.stream()));
}

void LossOfSums(const Call<calls::LossOfSums>& call) {
  const uint64_t rows = call.count("rows");
  LossOfSumsParams p{};
  p.smoothing = call.f32("smoothing");
  p.sums = call.pointer<float>("sums", bytesOfSums(rows, p.smoothing != 0));
  p.targets = call.pointer<int32_t>("targets", bytesOf(rows, 32));
  p.loss = call.pointer<float>("loss", bytesOf(rows, 32));
  p.rows = static_cast<int64_t>(rows);
  p.classes = static_cast<int64_t>(call.count("classes"));
  // the argument has the 32 bits of an i32
  p.ignore = static_cast<int32_t>(call.word("ignore"));
  call.check("lossOfSums", launchLossOfSums(p, call.stream()));
}

}  // namespace

void registerLossParts(Napi::Env env, Napi::Object exports) {
  expose<LossMaximum>(env, exports);
  expose<LossSums>(env, exports);
  expose<LossOfSums>(env, exports);
}

}  // namespace lockstep
