// Stand-ins for the kernels of rows: norms, softmax, losses, embeddings.
#include "conformance/tests/stand-in/touch.h"
#include "kernels/rows/column-sum.h"
#include "kernels/rows/embedding.gen.h"
#include "kernels/rows/expert-rows.gen.h"
#include "kernels/rows/loss-parts.gen.h"
#include "kernels/rows/norm.gen.h"
#include "kernels/rows/rotary-embedding.gen.h"
#include "kernels/rows/softmax.gen.h"
#include "kernels/rows/topk.gen.h"

using namespace standin;

namespace lockstep {

cudaError_t launchSoftmax(const SoftmaxParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.rows * p.columns);
  writesWide(p.out, p.outType, p.rows * p.columns);
  return cudaSuccess;
}

cudaError_t launchSoftmaxBackward(const SoftmaxBackwardParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.grad, p.gradType, p.rows * p.columns);
  readsWide(p.y, p.yType, p.rows * p.columns);
  writesWide(p.dx, p.dxType, p.rows * p.columns);
  return cudaSuccess;
}

cudaError_t launchNorm(const NormParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.rows * p.columns);
  readsWide(p.gamma, p.parameterType, p.columns);
  readsWide(p.beta, p.parameterType, p.columns);
  writesWide(p.out, p.outType, p.rows * p.columns);
  writesF32(p.amax, 1);
  writesF32(p.mean, p.rows);
  writesF32(p.rstd, p.rows);
  return cudaSuccess;
}

cudaError_t launchNormBackward(const NormBackwardParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.grad, p.gradType, p.rows * p.columns);
  readsWide(p.x, p.xType, p.rows * p.columns);
  readsWide(p.gamma, p.gammaType, p.columns);
  readsF32(p.mean, p.rows);
  readsF32(p.rstd, p.rows);
  writesWide(p.dx, p.dxType, p.rows * p.columns);
  writesWide(p.dgamma, p.dgammaType, p.columns);
  writesWide(p.dbeta, p.dgammaType, p.columns);
  writesF32(p.workspace, (p.dbeta ? 2 : 1) * chunksOf(p.rows) * p.columns);
  return cudaSuccess;
}

cudaError_t launchColumnSum(const ColumnSumParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.rows * p.columns);
  writesWide(p.out, p.outType, p.columns);
  writesF32(p.workspace, chunksOf(p.rows) * p.columns);
  return cudaSuccess;
}

cudaError_t launchLossSums(const LossSumsParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.logits, p.logitsType, p.rows * p.columns);
  readsF32(p.targets, p.rows);
  readsF32(p.maximum, p.rows);
  writesF32(p.sums, (p.smooths ? 3 : 2) * p.rows);
  return cudaSuccess;
}

cudaError_t launchLossOfSums(const LossOfSumsParams& p, cudaStream_t stream) {
  on(stream);
  readsF32(p.sums, (p.smoothing != 0 ? 3 : 2) * p.rows);
  readsF32(p.targets, p.rows);
  writesF32(p.loss, p.rows);
  return cudaSuccess;
}

cudaError_t launchEmbeddingBackward(const EmbeddingBackwardParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.grad, p.gradType, p.count * p.columns);
  readsF32(p.ids, p.count);
  writesF32(p.workspace, p.vocabulary + 1 + p.count);
  writesWide(p.out, p.outType, p.vocabulary * p.columns);
  return cudaSuccess;
}

cudaError_t launchRowIdMap(const RowIdMapParams& p, cudaStream_t stream) {
  on(stream);
  readsF32(p.routingMap, p.tokens * p.width);
  writesF32(p.workspace, p.experts);
  writesF32(p.rows, p.tokens * p.width);
  writesF32(p.sources, p.total);
  writesF32(p.tokensPerExpert, p.experts);
  return cudaSuccess;
}

cudaError_t launchTopk(const TopkParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.rows * p.columns);
  writesF32(p.workspace, p.rows * p.groups);
  writesF32(p.indices, p.rows * p.k);
  writesF32(p.routingMap, p.rows * p.columns);
  writesF32(p.mask, p.rows * p.columns);
  return cudaSuccess;
}

cudaError_t launchTakeRows(const TakeRowsParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.rows * p.columns);
  readsF32(p.sources, p.count);
  if (p.weights != nullptr) readsWide(p.weights, p.weightsType, p.rows * p.period);
  writesWide(p.out, p.outType, p.count * p.columns);
  return cudaSuccess;
}

cudaError_t launchRotaryEmbedding(const RotaryEmbeddingParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.rows * p.heads * p.width);
  readsF32(p.cos, p.positions * p.pairs);
  readsF32(p.sin, p.positions * p.pairs);
  readsF32(p.starts, p.batch);
  readsF32(p.cumulative, p.batch + 1);
  writesWide(p.out, p.outType, p.rows * p.heads * p.width);
  return cudaSuccess;
}

}  // namespace lockstep
