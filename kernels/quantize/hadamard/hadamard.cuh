// The random Hadamard transform of 16 bf16 values, y = x · diag(signs) · H16 / 4. The result is bitwise equal to one
// BF16 tensor-core step of Hopper with a zero accumulator (docs/numerics.md §5.5, assembly/quantize/hadamard.ts). A
// 32-bit word holds two values, the one with the even index in the low half.
#pragma once

#include <cstdint>

#include "kernels/device/pair.cuh"

namespace lockstep {

// Returns the exponent field of the largest magnitude, or 255 if a value is infinite or NaN.
__device__ inline uint32_t largestField(const uint32_t (&words)[8]) {
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(largest) : "r"(words[i] & 0x7fff7fffu));
  }
  asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(largest) : "r"(__byte_perm(largest, largest, 0x1032)));
  return largest >> 7 & 0xffu;
}

// Factors that convert values to integers in units of 2^(emax - 25), and integers back to values. emax is the exponent
// of the largest magnitude divided by 4, but at least -126.
struct HadamardGrid {
  float onto;
  float from;

  __device__ explicit HadamardGrid(uint32_t field) {
    const uint32_t bounded = field > 3 ? field : 3;
    onto = floatOf((256 - bounded) << 23);
    from = floatOf((bounded - 2) << 23);
  }
};

// Computes the 16 outputs as exact sums of integers. Each value is truncated to an integer in units of 2^(emax - 25).
// All values must be finite.
__device__ inline void hadamardSums(const uint32_t (&words)[8], uint32_t signs, const HadamardGrid& grid,
                                    int32_t (&sums)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const uint32_t negated = signs << (31 - i) & 0x80000000u;
    const uint32_t pair = words[i / 2];
    const float x = floatOf((i % 2 == 0 ? pair << 16 : pair & 0xffff0000u) ^ negated);
    // two factors, because 2^(23 - emax) may overflow f32
    sums[i] = __float2int_rz(x * grid.onto * 8388608.0f);
  }
#pragma unroll
  for (int step = 1; step < 16; step *= 2) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if ((i & step) != 0) continue;
      const int32_t a = sums[i];
      const int32_t b = sums[i + step];
      sums[i] = a + b;
      sums[i + step] = a - b;
    }
  }
}

// Converts a sum to f32, truncated to 24 significant bits. Below f32's normal range no bit is lost.
__device__ inline float hadamardValue(int32_t sum, const HadamardGrid& grid) {
  return __int2float_rz(sum) * powerOfTwo(-25) * grid.from;
}

// Bit masks of the infinite values, and of the values that are negative after the signs are applied.
struct HadamardSpecials {
  uint32_t infinite = 0;
  uint32_t negative;
  bool hasNaN = false;

  __device__ HadamardSpecials(const uint32_t (&words)[8], uint32_t signs) : negative(signs) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint32_t bits = words[i / 2] >> (i % 2 * 16) & 0xffffu;
      if ((bits & 0x7fffu) > 0x7f80u) hasNaN = true;
      if ((bits & 0x7fffu) == 0x7f80u) infinite |= 1u << i;
      negative ^= bits >> 15 << i;
    }
  }

  // Returns output `column` as bf16. At least one value must be infinite or NaN; the finite values then do not affect it.
  __device__ uint32_t output(int column) const {
    // bit i says whether i and `column` have an odd number of common set bits
    const uint32_t oddMask = (column & 1 ? 0xaaaau : 0) ^ (column & 2 ? 0xccccu : 0) ^ (column & 4 ? 0xf0f0u : 0) ^
                             (column & 8 ? 0xff00u : 0);
    const bool minus = (infinite & (negative ^ oddMask)) != 0;
    const bool plus = (infinite & ~(negative ^ oddMask)) != 0;
    return hasNaN || (minus && plus) ? 0x7fffu : minus ? 0xff80u : 0x7f80u;
  }
};

// Transforms 16 values in place. Bit i of `signs` negates value i.
__device__ inline void hadamard(uint32_t (&words)[8], uint32_t signs) {
  const uint32_t field = largestField(words);
  uint32_t result[8];
  if (field < 255) {
    const HadamardGrid grid(field);
    int32_t sums[16];
    hadamardSums(words, signs, grid, sums);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      result[i] = bf16Pair(hadamardValue(sums[2 * i], grid), hadamardValue(sums[2 * i + 1], grid));
    }
  } else {
    const HadamardSpecials specials(words, signs);
#pragma unroll
    for (int i = 0; i < 8; ++i) result[i] = specials.output(2 * i) | specials.output(2 * i + 1) << 16;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) words[i] = result[i];
}

// Returns the largest magnitude of the transformed values, NaN ignored, as f32 bits. Only the largest value is rounded
// to bf16, because rounding is monotonic.
__device__ inline uint32_t hadamardAmax(const uint32_t (&words)[8], uint32_t signs) {
  const uint32_t field = largestField(words);
  if (field < 255) {
    const HadamardGrid grid(field);
    int32_t sums[16];
    hadamardSums(words, signs, grid, sums);
    int32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) largest = max(largest, abs(sums[i]));
    return bf16Pair(0.0f, hadamardValue(largest, grid)) & 0xffff0000u;
  }
  const HadamardSpecials specials(words, signs);
  bool infinite = false;
#pragma unroll
  for (int i = 0; i < 16; ++i) infinite = infinite || specials.output(i) != 0x7fffu;
  return infinite ? 0x7f800000u : 0;
}

}  // namespace lockstep
