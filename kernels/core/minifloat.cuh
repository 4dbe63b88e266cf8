// Encoding and decoding of every scalar format (docs/numerics.md §1). `word` is a format word (kernels/core/format.h).
// `encode` and `decode` take any format word at run time and define the result. The templates below give the same
// results faster for format words known at compile time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/format.h"
#include "kernels/core/formats.gen.h"

namespace lockstep {

__host__ __device__ constexpr uint32_t bitsOf(float x) { return __builtin_bit_cast(uint32_t, x); }
__host__ __device__ constexpr float floatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }
// 2^exponent, for exponents from -126 to 127.
__host__ __device__ constexpr float powerOfTwo(int exponent) {
  return floatOf(static_cast<uint32_t>(exponent + 127) << 23);
}

// Whether rounding increments the magnitude. `code` is the code at or below the magnitude, and rest / 2^shift the
// discarded fraction. A shift of 25 or more always means a fraction below one half, so 31 can stand for every larger
// shift, except for stochastic rounding, which goes up if the sum of `random` and the fraction in units of 2^-32 carries.
__host__ __device__ inline bool roundsUp(Rounding rounding, bool negative, int code, uint32_t rest, int shift,
                                         uint32_t random) {
  const uint32_t half = 1u << ((shift < 31 ? shift : 31) - 1);
  switch (rounding) {
    case Rounding::kTiesToEven:
      return rest > half || (rest == half && (code & 1) != 0);
    case Rounding::kTiesToAway:
      return rest >= half;
    case Rounding::kTowardPositive:
      return rest != 0 && !negative;
    case Rounding::kTowardNegative:
      return rest != 0 && negative;
    case Rounding::kToOdd:
      return rest != 0 && (code & 1) == 0;
    case Rounding::kStochastic:
      return (shift > 32 ? rest >> (shift < 63 ? shift - 32 : 31) : rest << (32 - shift)) > ~random;
    default:
      return false;
  }
}

// Whether a finite value beyond the largest one stays finite although the overflow policy is kNonfinite.
__host__ __device__ constexpr bool staysFinite(Rounding rounding, bool negative) {
  return rounding == Rounding::kTowardZero || rounding == Rounding::kToOdd ||
         (rounding == Rounding::kTowardPositive && negative) || (rounding == Rounding::kTowardNegative && !negative);
}

// Returns the code of x. Only stochastic rounding reads `random`. Unsigned formats encode |x|. In a format without
// zero, everything below the smallest value becomes that value.
__host__ __device__ inline uint32_t encode(float x, uint32_t word, Rounding rounding, Overflow overflow,
                                           uint32_t random) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  const uint32_t magnitude = bitsOf(x) & 0x7fffffffu;
  if (magnitude > kInfinity) return nanCode(word);

  const bool negative = isSigned(word) && bitsOf(x) >> 31 != 0;
  const uint32_t sign = negative ? signBit(word) : 0;
  const uint32_t zeroSign = specials(word) == Specials::kFnuz || isInteger(word) ? 0 : sign;
  const bool saturates = overflow != Overflow::kNonfinite;
  const uint32_t last = negative ? maxNegative(word) : maxCode(word);
  if (magnitude == kInfinity) {
    return overflow == Overflow::kSaturate ? withSign(word, sign, last) : beyondCode(word, sign);
  }
  if (magnitude == 0) return zeroSign;

  // |x| = significand * 2^(exponent - 23), where significand is in [2^23, 2^24). The bits of a subnormal, converted to a
  // float as an integer, are its significand in normalized form.
  const bool subnormal = magnitude < 0x00800000u;
  const uint32_t normal = subnormal ? bitsOf(static_cast<float>(magnitude)) : magnitude;
  const int exponent = static_cast<int>(normal >> 23) - (subnormal ? 127 + 149 : 127);
  const uint32_t significand = (normal & 0x007fffffu) | 0x00800000u;

  const int m = static_cast<int>(mantissaBits(word));
  const int lowest = minExponent(word);
  if (exponent < lowest && !hasSubnormals(word)) return sign;
  const int binade = exponent > lowest ? exponent : lowest;
  const int shift = 23 - m + binade - exponent;
  const int dropped = shift < 31 ? shift : 31;
  const uint32_t rest = significand & ((1u << dropped) - 1);
  int code = (binade + exponentBias(word) - 1) * (1 << m) + static_cast<int>(significand >> dropped);
  if (roundsUp(rounding, negative, code, rest, shift, random)) ++code;

  if (code > static_cast<int>(last)) {
    return saturates || staysFinite(rounding, negative) ? withSign(word, sign, last) : beyondCode(word, sign);
  }
  return withSign(word, code == 0 ? zeroSign : sign, static_cast<uint32_t>(code));
}

// Returns the exact value of a code. Bits above the format's width are ignored.
__host__ __device__ constexpr float decode(uint32_t code, uint32_t word) {
  const int m = static_cast<int>(mantissaBits(word));
  const bool negative = (code & signBit(word)) != 0;
  const uint32_t mask = magnitudeMask(word);
  const uint32_t magnitude = isInteger(word) && negative ? mask + 1 - (code & mask) : code & mask;
  const Specials kind = specials(word);
  const float nan = floatOf(0x7fffffffu);
  if (kind == Specials::kFnuz && negative && magnitude == 0) return nan;
  if (kind == Specials::kNanOnly && magnitude == magnitudeMask(word)) return nan;
  const uint32_t sign = negative ? 0x80000000u : 0;
  if (kind == Specials::kIeee && magnitude > maxCode(word)) {
    return magnitude == maxCode(word) + 1 ? floatOf(sign | 0x7f800000u) : nan;
  }
  const int field = static_cast<int>(magnitude >> m);
  const bool subnormal = field == 0 && hasSubnormals(word);
  const uint32_t significand = (magnitude & ((1u << m) - 1)) | (subnormal ? 0 : 1u << m);
  const int exponent = (subnormal ? 1 : field) - exponentBias(word) - m;
  // Both products are exact: the first is a normal number, and the second is representable in f32.
  const float normal = static_cast<float>(significand) * powerOfTwo(exponent > -126 ? exponent : -126);
  return floatOf(sign | bitsOf(normal * powerOfTwo(exponent < -126 ? exponent + 126 : 0)));
}

// A template argument for kernels that read the format word at run time. Their codes take one byte each.
constexpr uint32_t kAnyWord = 0;

// Converts a and b to FP8 in hardware (sm_89 and later): to nearest even, saturating, every NaN to 0x7f. The low byte
// of the result is the code of b.
template <uint32_t word>
__device__ inline uint32_t convertPair(float a, float b) {
  static_assert(word == format::kE4m3 || word == format::kE5m2);
  uint16_t codes;
  if constexpr (word == format::kE4m3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(a), "f"(b));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(a), "f"(b));
  }
  return codes;
}

// min(max(a * b + c, 0), 1), with the sum rounded once.
__device__ inline float saturatedFma(float a, float b, float c) {
  float result;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(c));
  return result;
}

// As saturatedFma, with the sum rounded toward zero.
__device__ inline float saturatedFmaDown(float a, float b, float c) {
  float result;
  asm("fma.rz.sat.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(c));
  return result;
}

// Returns the bits of 2^23 plus the magnitude code of x in e2m1, for |x| of at most 6. The code is 2|x| for |x| up to
// 2, |x| + 2 up to 4, and |x| / 2 + 4 up to 6. It is computed as a sum of three exact terms; each addition rounds to an
// integer, ties to even.
__device__ inline uint32_t magnitudeE2m1(float x) {
  const float a = fabsf(x);
  const float upToTwo = saturatedFma(a, 0.5f, 0.0f);
  const float upToFour = saturatedFma(a, 0.5f, -1.0f);
  const float upToSix = saturatedFma(a, 0.5f, -2.0f);
  return bitsOf(__fmaf_rn(upToFour, 2.0f, __fmaf_rn(upToTwo, 4.0f, 8388608.0f)) + upToSix);
}

// Whether encodeNearest and encodeStochastic have a short form for a format. The format must be signed, have a zero, and stay far
// from the ends of f32's exponent range.
__host__ __device__ constexpr bool isNarrow(uint32_t word) {
  return isSigned(word) && hasSubnormals(word) && specials(word) != Specials::kFnuz && !isInteger(word) &&
         exponentBits(word) <= 5 && mantissaBits(word) >= 1 && mantissaBits(word) <= 7 && exponentBias(word) > -32 &&
         exponentBias(word) < 64;
}

// Returns the f32 bits of the format's smallest normal number, 2^minExponent(word).
__host__ __device__ constexpr uint32_t lowestBinade(uint32_t word) {
  return static_cast<uint32_t>(127 + minExponent(word)) << 23;
}

// Returns encode(x, word, kTiesToEven, kSaturate).
template <uint32_t word>
__device__ inline uint32_t encodeNearest(float x) {
  if constexpr (word == format::kE4m3 || word == format::kE5m2) {
    return convertPair<word>(0.0f, x);
  } else if constexpr (word == format::kE2m1) {
    const float c = fminf(x, 6.0f);  // NaN becomes 6
    return (magnitudeE2m1(c) & 7) | (bitsOf(c) >> 28 & 8);
  } else if constexpr (isNarrow(word)) {
    constexpr uint32_t m = mantissaBits(word);
    constexpr float largest = decode(maxCode(word), word);
    const float c = fminf(x, largest);  // NaN becomes +max
    const float a = fminf(fabsf(c), largest);
    // Adding a power of two rounds |x| to a multiple of the format's ulp in its binade.
    const uint32_t binade = max(bitsOf(a) & 0x7f800000u, lowestBinade(word));
    const uint32_t power = binade + ((23 - m) << 23);
    const uint32_t steps = bitsOf(a + floatOf(power)) - power;
    const uint32_t code = ((binade - lowestBinade(word)) >> (23 - m)) + steps;
    const uint32_t signedCode = code | (bitsOf(c) >> 31 << magnitudeBits(word));
    return specials(word) != Specials::kFinite && x != x ? nanCode(word) : signedCode;
  } else {
    return encode(x, word, Rounding::kTiesToEven, Overflow::kSaturate, 0);
  }
}

// Returns encodeNearest of four values; the code of a is in the lowest bits. A code takes 8 bits, or 4 bits in 4-bit
// formats.
template <uint32_t word>
__device__ inline uint32_t encodeNearest4(float a, float b, float c, float d) {
  if constexpr (word == format::kE4m3 || word == format::kE5m2) {
    return convertPair<word>(b, a) | convertPair<word>(d, c) << 16;
  } else if constexpr (word == format::kE2m1) {
    a = fminf(a, 6.0f);
    b = fminf(b, 6.0f);
    c = fminf(c, 6.0f);
    d = fminf(d, 6.0f);
    // the bits of 2^23 in each term stay above the low 16 bits of the sum
    const uint32_t magnitudes =
        ((magnitudeE2m1(d) * 16 + magnitudeE2m1(c)) * 16 + magnitudeE2m1(b)) * 16 + magnitudeE2m1(a);
    uint32_t signs = bitsOf(d) >> 28;
    signs = __funnelshift_l(bitsOf(c), signs, 4);
    signs = __funnelshift_l(bitsOf(b), signs, 4);
    signs = __funnelshift_l(bitsOf(a), signs, 4);
    return (magnitudes & 0x7777u) | (signs & 0x8888u);
  } else {
    static_assert(storageBits(word) <= 8);
    constexpr int bits = storageBits(word);
    return encodeNearest<word>(a) | encodeNearest<word>(b) << bits | encodeNearest<word>(c) << 2 * bits |
           encodeNearest<word>(d) << 3 * bits;
  }
}

// Returns encodeNearest of two values to bf16 or f16; the code of a is in the low half.
template <uint32_t word>
__device__ inline uint32_t encodeNearest2(float a, float b) {
  static_assert(word == format::kBf16 || word == format::kF16);
  uint32_t codes;
  if constexpr (word == format::kBf16) {
    asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(b), "f"(a));
  } else {
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(b), "f"(a));
  }
  return codes;
}

// Returns encode(x, word, kStochastic, kSaturate, random). The lower 16 bits of `random` are zero.
template <uint32_t word>
__host__ __device__ inline uint32_t encodeStochastic(float x, uint32_t random) {
  if constexpr (isNarrow(word)) {
    // An f32 subnormal is treated as a normal number. The shift drops all its bits in either case.
    constexpr uint32_t m = mantissaBits(word);
    constexpr uint32_t lowest = lowestBinade(word) >> 23;
    const uint32_t magnitude = bitsOf(x) & 0x7fffffffu;
    const uint32_t exponent = magnitude >> 23;
    const uint32_t binade = exponent > lowest ? exponent : lowest;
    const uint32_t shift = 7 - m + binade - exponent;
    // the significand in units of 2^-16 ulp of the format
    const uint32_t fixed = ((magnitude & 0x007fffffu) | 0x00800000u) >> (shift < 31 ? shift : 31);
    const uint32_t rounded = ((binade - lowest) << m) + ((fixed + (random >> 16)) >> 16);
    const uint32_t code = rounded < maxCode(word) ? rounded : maxCode(word);
    return magnitude > 0x7f800000u ? nanCode(word) : code | (bitsOf(x) >> 31 << magnitudeBits(word));
  } else {
    return encode(x, word, Rounding::kStochastic, Overflow::kSaturate, random);
  }
}

// Returns decode(code, word). Bits above the format's width are ignored.
template <uint32_t word>
__device__ inline float decodeTo(uint32_t code) {
  if constexpr (word == format::kE4m3 || word == format::kE5m2) {
    float value;
    const uint16_t bits = static_cast<uint16_t>(code & 0xffu);
    if constexpr (word == format::kE4m3) {
      asm("{ .reg .b32 p; .reg .b16 l, h; cvt.rn.f16x2.e4m3x2 p, %1; mov.b32 {l, h}, p; cvt.f32.f16 %0, l; }"
          : "=f"(value)
          : "h"(bits));
    } else {
      asm("{ .reg .b32 p; .reg .b16 l, h; cvt.rn.f16x2.e5m2x2 p, %1; mov.b32 {l, h}, p; cvt.f32.f16 %0, l; }"
          : "=f"(value)
          : "h"(bits));
    }
    return value;
  } else if constexpr (word == format::kE8m0) {
    const uint32_t byte = code & 0xffu;
    return floatOf(byte == 255 ? 0x7fffffffu : byte == 0 ? 0x00400000u : byte << 23);
  } else if constexpr (isNarrow(word) && specials(word) == Specials::kFinite) {
    // The fields move to their f32 positions, where a subnormal becomes an f32 subnormal. The product corrects the
    // exponent bias.
    const uint32_t fields = (code & magnitudeMask(word)) << (23 - mantissaBits(word));
    const uint32_t sign = (code & signBit(word)) << (31 - magnitudeBits(word));
    return floatOf(fields | sign) * powerOfTwo(127 - exponentBias(word));
  } else {
    return decode(code, word);
  }
}

}  // namespace lockstep
