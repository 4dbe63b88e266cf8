// Properties of a scalar format: field widths, bias and special codes. `word` is the format word, which describes the
// format in one integer (assembly/contract.ts).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

__host__ __device__ constexpr uint32_t exponentBits(uint32_t word) { return word & 15; }
__host__ __device__ constexpr uint32_t mantissaBits(uint32_t word) { return word >> 4 & 15; }
__host__ __device__ constexpr bool isSigned(uint32_t word) { return word >> 8 & 1; }
__host__ __device__ constexpr bool hasSubnormals(uint32_t word) { return word >> 9 & 1; }
__host__ __device__ constexpr Specials specials(uint32_t word) { return static_cast<Specials>(word >> 10 & 7); }
__host__ __device__ constexpr int exponentBias(uint32_t word) { return static_cast<int32_t>(word) >> 16; }
// Number of bits below the sign bit.
__host__ __device__ constexpr uint32_t magnitudeBits(uint32_t word) { return exponentBits(word) + mantissaBits(word); }
__host__ __device__ constexpr uint32_t magnitudeMask(uint32_t word) { return (1u << magnitudeBits(word)) - 1; }
// Mask of the sign bit; 0 for an unsigned format.
__host__ __device__ constexpr uint32_t signBit(uint32_t word) { return isSigned(word) ? 1u << magnitudeBits(word) : 0; }

// Bits of storage per code: 4 (two codes per byte, the even index in the low nibble), 8, 16 or 32.
__host__ __device__ constexpr uint32_t storageBits(uint32_t word) {
  const uint32_t bits = magnitudeBits(word) + isSigned(word);
  return bits <= 4 ? 4 : bits <= 8 ? 8 : bits <= 16 ? 16 : 32;
}

// The code of the largest finite value.
__host__ __device__ constexpr uint32_t maxCode(uint32_t word) {
  const uint32_t ones = magnitudeMask(word);
  if (specials(word) == Specials::kIeee) return (((1u << exponentBits(word)) - 1) << mantissaBits(word)) - 1;
  return specials(word) == Specials::kNanOnly ? ones - 1 : ones;
}

// Whether codes are two's complement.
__host__ __device__ constexpr bool isInteger(uint32_t word) {
  return specials(word) == Specials::kInteger || specials(word) == Specials::kSymmetric;
}

// The largest magnitude of a negative number, in steps. (maxCode is the largest magnitude of a positive number.)
__host__ __device__ constexpr uint32_t maxNegative(uint32_t word) {
  return specials(word) == Specials::kInteger ? maxCode(word) + 1 : maxCode(word);
}

// The code of a number with the sign bit `sign`, or 0, and the code `code` without sign.
__host__ __device__ constexpr uint32_t withSign(uint32_t word, uint32_t sign, uint32_t code) {
  return isInteger(word) && sign != 0 ? (0u - code) & ((sign << 1) - 1) : sign | code;
}

// The code of NaN: all ones below the sign bit. In fnuz formats it is their single NaN, in formats without NaN the largest finite
// value, in integers 0.
__host__ __device__ constexpr uint32_t nanCode(uint32_t word) {
  if (isInteger(word)) return 0;
  return specials(word) == Specials::kFnuz ? signBit(word) : magnitudeMask(word);
}

// The code for values beyond the largest finite one: infinity if the format has it, else NaN, else the largest finite
// value. `sign` is the sign bit to set.
__host__ __device__ constexpr uint32_t beyondCode(uint32_t word, uint32_t sign) {
  if (specials(word) == Specials::kFnuz) return signBit(word);
  if (isInteger(word)) return withSign(word, sign, sign != 0 ? maxNegative(word) : maxCode(word));
  return sign | (specials(word) == Specials::kFinite ? maxCode(word) : maxCode(word) + 1);
}

// The exponent of the smallest binade.
__host__ __device__ constexpr int minExponent(uint32_t word) {
  return (hasSubnormals(word) ? 1 : 0) - exponentBias(word);
}

}  // namespace lockstep
