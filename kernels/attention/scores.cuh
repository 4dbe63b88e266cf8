// The scores of a query (docs/numerics.md §10.2), and its dropout (§10.5).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/sequence.cuh"
#include "kernels/attention/special-functions.cuh"
#include "kernels/core/math.cuh"
#include "kernels/core/random.cuh"
#include "kernels/device/elements.cuh"

namespace lockstep {

constexpr float kLog2EFloat = static_cast<float>(kLog2E);

// Whether a score is multiplied by the scale before other operations. Otherwise the scale is a part of scoreFactor.
__device__ inline bool isScaledFirst(const AttentionRule& p) {
  return (p.bias != nullptr && !p.biasBeforeScale) || p.slopes != nullptr || p.softcap != 0;
}

// Whether scoreOf changes a product.
__device__ inline bool changesScores(const AttentionRule& p) { return isScaledFirst(p) || p.bias != nullptr; }

// The factor c: z * c is the exponent of 2 that a score z stands for.
__device__ inline float scoreFactor(const AttentionRule& p) {
  return isScaledFirst(p) ? kLog2EFloat : static_cast<float>(static_cast<double>(p.scale) * kLog2E);
}

// The factor that converts a score z to a logit.
__device__ inline float logitFactor(const AttentionRule& p) { return isScaledFirst(p) ? 1.0f : p.scale; }

// The values that all scores of one query and head share.
struct ScoreRow {
  // The index of the bias of key 0.
  int64_t bias = 0;
  float slope = 0;
  int32_t t = 0;
};

__device__ inline ScoreRow scoreRowOf(const AttentionRule& p, const Sequence& s, int32_t head, int32_t i) {
  ScoreRow row;
  row.t = positionOf(p, s, i);
  if (p.bias != nullptr) row.bias = pairIndexOf(p, p.biasBatches, p.biasHeads, s.batch, head, i);
  if (p.slopes != nullptr) row.slope = p.slopes[(p.slopeBatches > 1 ? int64_t{s.batch} * p.heads : 0) + head];
  return row;
}

// Returns the score z of key j from its product with the query. With a softcap, `bounded` becomes the value of tanh.
__device__ inline float scoreOf(const AttentionRule& p, const ScoreRow& row, int32_t j, float product, float& bounded) {
  float z = product;
  if (p.bias != nullptr && p.biasBeforeScale) z += loadElement(p.bias, p.biasType, row.bias + j);
  if (!isScaledFirst(p)) return z;
  z *= p.scale;
  if (p.softcap != 0) {
    bounded = approximateTanh(z * p.inverseSoftcap);
    z = p.softcap * bounded;
  }
  if (p.bias != nullptr && !p.biasBeforeScale) z += loadElement(p.bias, p.biasType, row.bias + j);
  if (p.slopes != nullptr) {
    const int64_t distance = static_cast<int64_t>(row.t) - j;
    z = __fmaf_rn(row.slope, -static_cast<float>(distance < 0 ? -distance : distance), z);
  }
  return z;
}

// The dropout of the keys of one query and head.
struct Dropout {
  Philox philox;
  uint32_t t = 0;
  uint32_t threshold = 0;

  // Returns the draw of key j. Keys whose indices differ only in bits 0, 3 and 4 share a draw.
  __device__ uint4 draw(int32_t j) const {
    const uint32_t first = static_cast<uint32_t>(j >> 5) * 4 + (static_cast<uint32_t>(j) >> 1 & 3);
    return philox(static_cast<uint64_t>(t) << 32 | first, 0);
  }

  // Whether key j is dropped; `draw` is the draw of j.
  __device__ bool drops(const uint4& draw, int32_t j) const {
    const uint32_t low = j & 8 ? draw.y : draw.x;
    const uint32_t high = j & 8 ? draw.w : draw.z;
    const uint32_t word = j & 16 ? high : low;
    return (j & 1 ? word >> 16 : word & 0xffffu) < threshold;
  }

  __device__ bool drops(int32_t j) const { return threshold != 0 && drops(draw(j), j); }
};

__device__ inline Dropout dropoutOf(const AttentionRule& p, const RandomSource& random, const Sequence& s, int32_t head,
                                    int32_t i) {
  // The last two words of the counter are the head and the low word of the offset.
  const uint32_t counter = static_cast<uint32_t>(s.batch) * p.allHeads + p.firstHead + static_cast<uint32_t>(head);
  const RandomSource source{random.seedLow, random.seedHigh, counter, random.offsetLow};
  return {Philox(source), static_cast<uint32_t>(positionOf(p, s, i)), p.threshold};
}

}  // namespace lockstep
