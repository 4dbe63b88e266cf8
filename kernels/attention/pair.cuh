// The gradients of one pair of a query and a key (docs/numerics.md §10.6).
#pragma once

#include "kernels/attention/rows.cuh"

namespace lockstep {

// The values that all pairs of one query of a head share.
struct GradientRow {
  ElementRow q;
  ElementRow grad;
  VisibleKeys isVisible;
  ScoreRow scores;
  Dropout dropout;
  float minusLse;
  float minusDelta;
};

struct PairGradient {
  // The gradient of the product of query and key, before rounding.
  float product;
  // The probability of the key, before rounding; 0 if the key is dropped.
  float probability;
  // The gradient of the bias.
  float bias;
};

// Query i of a head. If its lse is minus infinity, it sees no keys.
__device__ inline GradientRow gradientRowOf(const AttentionBackwardParams& p, const Sequence& s, int32_t head,
                                            int32_t i) {
  const AttentionRule& rule = p.rule;
  const int64_t statistic = statisticOf(rule, s, head, i);
  const float lse = p.lse[statistic];
  GradientRow row{queryRow(rule, rule.q, rule.width, s, head, i),
                  queryRow(rule, p.grad, rule.valueWidth, s, head, i),
                  visibleKeysOf(rule, s, head, i),
                  scoreRowOf(rule, s, head, i),
                  dropoutOf(rule, p.random, s, head, i),
                  -(lse * kLog2EFloat),
                  -reinterpret_cast<const float*>(p.workspace)[statistic]};
  if (lse == -__builtin_huge_valf()) row.isVisible.end = 0;
  return row;
}

// The gradients of the pair of a query and key j, which is visible.
template <Wide type>
__device__ inline PairGradient pairGradient(const AttentionBackwardParams& p, const Datapath& datapath,
                                            const GradientRow& row, const Sequence& s, int32_t keyHead, int32_t j) {
  const AttentionRule& rule = p.rule;
  float bounded = 0;
  const float product = multiplyRows<type>(datapath, row.q, keyRow(rule, rule.k, rule.width, s, keyHead, j));
  const float z = scoreOf(rule, row.scores, j, product, bounded);
  const float w = multiplyRows<type>(datapath, row.grad, keyRow(rule, rule.v, rule.valueWidth, s, keyHead, j));
  const float probability = ex2(__fmaf_rn(z, scoreFactor(rule), row.minusLse));
  const bool isDropped = row.dropout.drops(j);
  const float x = probability * (isDropped ? row.minusDelta : __fmaf_rn(w, rule.keep, row.minusDelta));
  const float y = rule.softcap != 0 ? x * __fmaf_rn(-bounded, bounded, 1.0f) : x;
  return {y, isDropped ? 0.0f : probability, rule.biasBeforeScale ? y * rule.scale : x};
}

}  // namespace lockstep
