// The gradients of queries, keys and values in plain arithmetic (docs/numerics.md §10.6). A warp computes one query or one key
// of a head. Each lane computes the gradients of one pair, and then the sums of some columns.
#include "kernels/attention/pair.cuh"
#include "kernels/attention/plain.h"

namespace lockstep {

namespace {

// For kLanes pairs: the gradients of the products of query and key, and the probabilities.
struct PairLine {
  float products[kLanes];
  float probabilities[kLanes];
};

// The values of a lane's columns, one for each.
using Columns = float[kLaneColumns];

// Computes columns [column, column + kColumnsAtOnce) of the gradient of query i.
template <Wide type>
__device__ void differentiateQuery(const AttentionBackwardParams& p, const Sequence& s, int32_t head, int32_t i,
                                   int32_t column, PairLine& line) {
  const AttentionRule& rule = p.rule;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int32_t keyHead = keyHeadOf(rule, head);
  const Datapath datapath = datapathOf(rule);
  const GradientRow row = gradientRowOf(p, s, head, i);
  const int32_t keys = rule.blockKeys;
  Columns totals = {};
  for (int64_t block = row.isVisible.begin / keys * keys; block < row.isVisible.end; block += keys) {
    Columns sums = {};
    const auto end = static_cast<int32_t>(min(block + keys, static_cast<int64_t>(s.keys)));
    for (auto key = static_cast<int32_t>(block); key < end; key += kLanes) {
      const int32_t j = key + lane;
      const bool isVisible = j < end && row.isVisible(j);
      if (isVisible) {
        line.products[lane] = rounded<type>(pairGradient<type>(p, datapath, row, s, keyHead, j).product);
      }
      const uint32_t visible = __ballot_sync(kFullMask, isVisible);
      __syncwarp();
      for (int n = 0; n < kLanes; n += kTerms) {
        const auto rowOf = [&](int m) { return keyRow(rule, rule.k, rule.width, s, keyHead, key + n + m); };
        addRows<type>(datapath, line.products + n, visible >> n & 0xffff, column, rule.width, rowOf, sums);
      }
      __syncwarp();
    }
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) totals[c] += sums[c] + 0.0f;
  }
  const ElementRow dq = queryRow(rule, p.dq, rule.width, s, head, i);
  storeColumns<type>(p.dq, dq.first, column, rule.width, totals, rule.scale);
}

// Computes columns [column, column + kColumnsAtOnce) of the gradients of key j and of its value.
template <Wide type>
__device__ void differentiateKey(const AttentionBackwardParams& p, const Sequence& s, int32_t keyHead, int32_t j,
                                 int32_t column, PairLine& line) {
  const AttentionRule& rule = p.rule;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const Datapath datapath = datapathOf(rule);
  const int32_t group = rule.heads / rule.keyHeads;
  Columns keySums = {};
  Columns valueSums = {};
  for (int32_t head = keyHead * group; head < (keyHead + 1) * group; ++head) {
    for (int32_t first = 0; first < s.queries; first += kLanes) {
      const int32_t i = first + lane;
      bool isVisible = i < s.queries && visibleKeysOf(rule, s, head, i)(j);
      if (isVisible) {
        const GradientRow row = gradientRowOf(p, s, head, i);
        isVisible = row.isVisible(j);
        if (isVisible) {
          const PairGradient pair = pairGradient<type>(p, datapath, row, s, keyHead, j);
          line.products[lane] = rounded<type>(pair.product);
          line.probabilities[lane] = rounded<type>(pair.probability);
        }
      }
      const uint32_t visible = __ballot_sync(kFullMask, isVisible);
      __syncwarp();
      for (int n = 0; n < kLanes; n += kTerms) {
        const uint32_t used = visible >> n & 0xffff;
        const auto queryOf = [&](int m) { return queryRow(rule, rule.q, rule.width, s, head, first + n + m); };
        const auto gradOf = [&](int m) { return queryRow(rule, p.grad, rule.valueWidth, s, head, first + n + m); };
        addRows<type>(datapath, line.products + n, used, column, rule.width, queryOf, keySums);
        addRows<type>(datapath, line.probabilities + n, used, column, rule.valueWidth, gradOf, valueSums);
      }
      __syncwarp();
    }
  }
  const ElementRow dk = keyRow(rule, p.dk, rule.width, s, keyHead, j);
  const ElementRow dv = keyRow(rule, p.dv, rule.valueWidth, s, keyHead, j);
  storeColumns<type>(p.dk, dk.first, column, rule.width, keySums, rule.scale);
  storeColumns<type>(p.dv, dv.first, column, rule.valueWidth, valueSums, rule.keep);
}

template <Wide type>
__global__ void __launch_bounds__(kRowBlock) queryKernel(const AttentionBackwardParams p, const int32_t* list) {
  __shared__ PairLine lines[kRowWarps];
  const AttentionRule& rule = p.rule;
  forEachRow(static_cast<int64_t>(rule.batch) * rule.heads, rule.queries, list, [&](int64_t head, int32_t i) {
    const Sequence s = sequenceOf(rule, static_cast<int32_t>(head / rule.heads));
    if (i >= s.queries) return;
    PairLine& line = lines[threadIdx.x / kLanes];
    for (int32_t column = 0; column < rule.width; column += kColumnsAtOnce) {
      differentiateQuery<type>(p, s, static_cast<int32_t>(head % rule.heads), i, column, line);
    }
  });
}

template <Wide type>
__global__ void __launch_bounds__(kRowBlock) keyKernel(const AttentionBackwardParams p, const int32_t* list) {
  __shared__ PairLine lines[kRowWarps];
  const AttentionRule& rule = p.rule;
  forEachRow(static_cast<int64_t>(rule.batch) * rule.keyHeads, rule.keys, list, [&](int64_t head, int32_t j) {
    const Sequence s = sequenceOf(rule, static_cast<int32_t>(head / rule.keyHeads));
    if (j >= s.keys) return;
    PairLine& line = lines[threadIdx.x / kLanes];
    for (int32_t column = 0; column < max(rule.width, rule.valueWidth); column += kColumnsAtOnce) {
      differentiateKey<type>(p, s, static_cast<int32_t>(head % rule.keyHeads), j, column, line);
    }
  });
}

}  // namespace

cudaError_t differentiateQueries(const AttentionBackwardParams& p, const int32_t* list, cudaStream_t stream) {
  const int64_t rows = static_cast<int64_t>(p.rule.batch) * p.rule.heads * p.rule.queries;
  if (rows == 0) return cudaSuccess;
  return withWide(p.rule.qType, [&](auto type) {
    queryKernel<type.value><<<rowBlocks(rows, list), kRowBlock, 0, stream>>>(p, list);
    return cudaGetLastError();
  });
}

cudaError_t differentiateKeys(const AttentionBackwardParams& p, const int32_t* list, cudaStream_t stream) {
  const int64_t rows = static_cast<int64_t>(p.rule.batch) * p.rule.keyHeads * p.rule.keys;
  if (rows == 0) return cudaSuccess;
  return withWide(p.rule.qType, [&](auto type) {
    keyKernel<type.value><<<rowBlocks(rows, list), kRowBlock, 0, stream>>>(p, list);
    return cudaGetLastError();
  });
}

}  // namespace lockstep
