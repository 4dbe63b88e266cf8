// The running softmax of the rows of a wgmma accumulator (docs/numerics.md §10.3). A thread has rows lane / 4 and lane / 4 + 8
// of its warp's 16 rows. In each group of 8 columns it has columns 2 * (lane % 4) and the next one. A row has eight partial
// sums, one for each column modulo 8; each of the row's four threads has two of them.
#pragma once

#include "kernels/attention/special-functions.cuh"
#include "kernels/device/device.cuh"

namespace lockstep {

// The base of a row's exponents: its scaled maximum, or +0 if that maximum is minus infinity.
__device__ inline float baseOf(float scaled) { return scaled == -__builtin_huge_valf() ? 0.0f : scaled; }

// The state of a thread's two rows: maxima, scaled maxima, and two of the eight partial sums of each row.
struct RowPair {
  float maximum[2];
  float scaled[2];
  float sums[2][2];

  __device__ void open() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      maximum[h] = scaled[h] = -__builtin_huge_valf();
      sums[h][0] = sums[h][1] = 0;
    }
  }

  // The sum of the eight partial sums of row h.
  __device__ float total(int h) const {
    float sum = sums[h][0] + sums[h][1];
    sum += __shfl_xor_sync(kFullMask, sum, 1);
    return sum + __shfl_xor_sync(kFullMask, sum, 2);
  }
};

// Adds the scores of a block of keys to the state, and replaces them by their probabilities. With `hides`, bit 2 * i + c of
// shown[h] says whether column c of the thread's group i is visible in row h. Sets decay[h] to the factor by which the outputs
// of row h must be multiplied.
template <bool hides, int columns>
__device__ inline void addScores(RowPair& rows, float (&scores)[columns / 2], const uint32_t (&shown)[2], float factor,
                                 float (&decay)[2]) {
  constexpr int kGroups = columns / 8;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float maxima[2] = {rows.maximum[h], -__builtin_huge_valf()};
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& score = scores[4 * i + 2 * h + c];
        if constexpr (hides) score = shown[h] >> (2 * i + c) & 1 ? score : -__builtin_huge_valf();
        maxima[c] = fmaxf(maxima[c], score);
      }
    }
    float maximum = fmaxf(maxima[0], maxima[1]);
    maximum = fmaxf(maximum, __shfl_xor_sync(kFullMask, maximum, 1));
    maximum = fmaxf(maximum, __shfl_xor_sync(kFullMask, maximum, 2));
    rows.maximum[h] = maximum;
    const float scaled = __fmul_rn(maximum, factor);
    const float base = baseOf(scaled);
    decay[h] = ex2(rows.scaled[h] - base);
    rows.scaled[h] = scaled;
    rows.sums[h][0] *= decay[h];
    rows.sums[h][1] *= decay[h];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& score = scores[4 * i + 2 * h + c];
        float power = ex2(__fmaf_rn(score, factor, -base));
        if constexpr (hides) power = shown[h] >> (2 * i + c) & 1 ? power : 0.0f;
        rows.sums[h][c] += power;
        score = power;
      }
    }
  }
}

}  // namespace lockstep
