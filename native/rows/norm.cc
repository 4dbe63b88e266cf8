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

void NormBackward(const Call<calls::NormBackward>& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  const uint64_t elements = product({rows, columns});
  NormBackwardParams p{};
  p.gradType = call.wide("gradType");
  p.grad = call.pointer("grad", bytesOf(elements, bitsOf(p.gradType)));
  p.xType = call.wide("xType");
  p.x = call.pointer("x", bytesOf(elements, bitsOf(p.xType)));
  p.parameterType = call.wide("parameterType");
  p.gamma = call.pointer("gamma", bytesOf(columns, bitsOf(p.parameterType)));
  p.mean = call.optional<float>("mean", bytesOf(rows, 32));
  p.rstd = call.pointer<float>("rstd", bytesOf(rows, 32));
  p.dxType = call.wide("dxType");
  p.dx = call.pointer("dx", bytesOf(elements, bitsOf(p.dxType)));
  p.gradientType = call.wide("gradientType");
  p.dgamma = call.pointer("dgamma", bytesOf(columns, bitsOf(p.gradientType)));
  p.dbeta = call.optional("dbeta", bytesOf(columns, bitsOf(p.gradientType)));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.zeroCentered = call.flag("zeroCentered");
  p.workspace = call.workspace<float>(bytesOf(chunkSums(rows, columns, p.dbeta ? 2 : 1), 32));
  call.check("normBackward", launchNormBackward(p, call.stream()));
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
  expose<NormBackward>(env, exports);
  expose<ColumnSum>(env, exports);
}

}  // namespace lockstep
