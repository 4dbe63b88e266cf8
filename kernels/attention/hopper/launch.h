// Launches the kernels of attention on Hopper's tensor cores.
#pragma once

#include "kernels/attention/calls.gen.h"
#include "kernels/device/device.cuh"
#include "kernels/device/tensor-map.cuh"

namespace lockstep {

// The tensors as the copy engine sees them: [batch, row, head, column].
inline HeadsOfRows queriesOf(const AttentionRule& rule, const void* data, int64_t columns) {
  const int64_t line = rule.heads * columns;
  const bool isCumulative = rule.cumulative;
  return {data,
          rule.qType,
          columns,
          rule.heads,
          rule.queries,
          isCumulative ? 1 : rule.batch,
          line * rule.queryStep,
          isCumulative ? line * rule.queries : line * rule.queryBatch};
}

inline HeadsOfRows keysOf(const AttentionRule& rule, const void* data, int64_t columns) {
  const int64_t line = rule.keyHeads * columns;
  if (rule.pages != nullptr) {
    return {data, rule.qType, columns, rule.keyHeads, rule.pageLength, rule.pageCount, line, line * rule.pageLength};
  }
  const bool isCumulative = rule.cumulative;
  return {data,
          rule.qType,
          columns,
          rule.keyHeads,
          rule.keys,
          isCumulative ? 1 : rule.batch,
          line * rule.keyStep,
          isCumulative ? line * rule.keys : line * rule.keyBatch};
}

// Launches `blocks` blocks of a kernel.
template <typename Shape, typename Kernel, typename... Arguments>
cudaError_t launchBlocks(Kernel kernel, int64_t blocks, cudaStream_t stream, const Arguments&... arguments) {
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  if (blocks == 0) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), Shape::kThreads, Shape::kBytes, stream>>>(arguments...);
  return cudaGetLastError();
}

}  // namespace lockstep
