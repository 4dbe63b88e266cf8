// Launches the passes of attention: the kernels for Hopper's tensor cores if they support the sizes and options, otherwise the
// plain kernels.
#include "kernels/attention/hopper/hopper.h"
#include "kernels/attention/plain.h"
#include "kernels/device/device.cuh"

namespace lockstep {

namespace {

cudaError_t openList(int32_t* list, cudaStream_t stream) { return cudaMemsetAsync(list, 0, sizeof(int32_t), stream); }

// Computes dq, dk and dv.
cudaError_t differentiate(const AttentionBackwardParams& p, cudaStream_t stream) {
  if (!isForHopper(p.rule)) {
    if (const cudaError_t error = differentiateQueries(p, nullptr, stream); error != cudaSuccess) return error;
    return differentiateKeys(p, nullptr, stream);
  }
  const TileLists lists = tileListsOf(p);
  cudaError_t error = openList(lists.queries, stream);
  if (error == cudaSuccess) error = openList(lists.keys, stream);
  if (error == cudaSuccess) error = launchHopperBackward(p, lists, stream);
  if (error == cudaSuccess) error = differentiateQueries(p, lists.queries, stream);
  if (error == cudaSuccess) error = differentiateKeys(p, lists.keys, stream);
  return error;
}

}  // namespace

cudaError_t launchAttention(const AttentionParams& p, cudaStream_t stream) {
  const bool isHopper = isForHopper(p.rule);
  // the tensor-core kernel writes the statistics of all rows, except rows between sequences and rows whose splits are merged
  // later
  if (!isHopper || p.rule.cumulative || p.rule.splitKeys != 0 || p.maxLogits != nullptr) {
    if (const cudaError_t error = fillStatistics(p, stream); error != cudaSuccess) return error;
  }
  if (!isHopper) return attendPlain(p, nullptr, stream);
  if (const cudaError_t error = openList(p.workspace, stream); error != cudaSuccess) return error;
  if (const cudaError_t error = launchHopperForward(p, stream); error != cudaSuccess) return error;
  return attendPlain(p, p.workspace, stream);
}

cudaError_t launchAttentionBackward(const AttentionBackwardParams& p, cudaStream_t stream) {
  const AttentionRule& rule = p.rule;
  if (static_cast<double>(p.tiles) < backwardNumbers(p)) return cudaErrorInvalidValue;
  if (p.sumsQueries && (rule.left >= 0 || rule.right < 0 || rule.cumulative)) return cudaErrorInvalidValue;
  if (const cudaError_t error = sumDeltas(p, stream); error != cudaSuccess) return error;
  if (const cudaError_t error = differentiate(p, stream); error != cudaSuccess) return error;
  if (const cudaError_t error = differentiateBias(p, stream); error != cudaSuccess) return error;
  return differentiateSinks(p, stream);
}

}  // namespace lockstep
