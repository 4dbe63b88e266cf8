// Norms, their gradients, and column sums.
#include "kernels/rows/norm.h"

#include "kernels/rows/column-sum.h"
#include "native/addon.h"
#include "native/core/call.h"
#include "native/rows/chunk-sums.h"
#include "native/rows/norm-source.h"

namespace lockstep {

namespace {

void Norm(const Call<calls::Norm>& call) {
  NormParams p = readNormSource(call);
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(elementsOf(call), bitsOf(p.outType)));
  p.amax = call.optional<float>("amax", sizeof(float));
  call.check("norm", launchNorm(p, call.stream()));
}

void ColumnSum(const Call<calls::ColumnSum>& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  ColumnSumParams p{};
  p.gradType = call.wide("xType");
  p.grad = call.pointer("x", bytesOf(product({rows, columns}), bitsOf(p.gradType)));
  p.outType = call.wide("outType");
  p.plain = call.pointer("out", bytesOf(columns, bitsOf(p.outType)));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.workspace = call.workspace<float>(bytesOf(chunkSums(rows, columns, 1), 32));
  call.check("columnSum", launchColumnSum(p, call.stream()));
}

}  // namespace

void registerNorm(Napi::Env env, Napi::Object exports) {
  expose<Norm>(env, exports);
  expose<ColumnSum>(env, exports);
}

}  // namespace lockstep
