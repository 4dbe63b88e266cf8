// Launches the kernels of attention on Hopper's tensor cores.
#pragma once

#include "kernels/attention/calls.gen.h"
#include "kernels/attention/plain.h"
#include "kernels/device/device.cuh"
#include "kernels/device/tensor-map.cuh"

namespace lockstep {

// The width of heads of queries and keys, the width of values, and the number of keys of a block.
template <int width, int valueWidth, int keys>
struct HeadSizes {
  static constexpr int kWidth = width;
  static constexpr int kValueWidth = valueWidth;
  static constexpr int kKeys = keys;

  static bool areThoseOf(const AttentionRule& rule) {
    return rule.width == width && rule.valueWidth == valueWidth && rule.blockKeys == keys;
  }
};

template <typename Sizes, typename Body>
bool withSizes(const AttentionRule& rule, Body body) {
  if (!Sizes::areThoseOf(rule)) return false;
  body(Sizes{});
  return true;
}

// Calls `body` with the sizes of an attention as constants. Returns whether there is a kernel for these sizes.
template <typename Body>
bool withHeadSizes(const AttentionRule& rule, Body body) {
  return withSizes<HeadSizes<64, 64, 128>>(rule, body) || withSizes<HeadSizes<96, 96, 128>>(rule, body) ||
         withSizes<HeadSizes<128, 128, 128>>(rule, body) || withSizes<HeadSizes<192, 128, 128>>(rule, body) ||
         withSizes<HeadSizes<256, 256, 64>>(rule, body);
}

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

// Workspace for the sums that give the gradients of queries (query-sums.cuh). `ticket` and `counts` must be 0 at the start.
struct QuerySums {
  // the number of blocks of threads that have begun
  int32_t* ticket;
  // for each tile of a sequence and head: the number of terms added so far, and kLeftTile
  uint32_t* counts;
  int64_t tiles;
  // the sums of the tiles, in the order of a wgmma accumulator
  float* sums;
  // how many blocks of keys the even heads are ahead of the odd heads (query-sums.cuh)
  int lead;
};

// In the workspace, the sums follow the lists of tiles.
inline QuerySums querySumsOf(const AttentionBackwardParams& p) {
  const auto [queries, keys, end] = tileListsOf(p);
  const int64_t tiles = keys - queries - 1;
  const int64_t numbers = end + 1 + tiles - p.workspace;
  return {end, reinterpret_cast<uint32_t*>(end + 1), tiles,
          reinterpret_cast<float*>(p.workspace + (numbers + 3) / 4 * 4), 0};
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
