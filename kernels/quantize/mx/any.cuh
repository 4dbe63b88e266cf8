// The kernel for MX quantization of any wide type, format, rounding, scale rule and element scaling. A warp quantizes a 32x32
// block, one column per lane. Tests run this kernel on a CPU as well (conformance/tests/stand-in/warp.h).
#pragma once

#include "kernels/device/device.cuh"
#include "kernels/quantize/mx/mx.h"
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/scaler.cuh"

namespace lockstep {

namespace mxany {

constexpr int kBlock = 32;
constexpr int kThreads = 128;

// Whether the kernel must select rule and scaling at run time. Other kernels support only short rules and a plain multiplication.
inline bool isGeneral(const QuantizeMxParams& p) {
  return p.scaling != 0 || p.rule == ScaleRule::kE8m0EvenShort || p.rule == ScaleRule::kE8m0UpLog2 ||
         p.rule == ScaleRule::kE8m0UpLeast || p.rule == ScaleRule::kE8m0FloorLog2 || p.rule == ScaleRule::kE8m0UpNormal;
}

// Computes block scales and codes for one format word.
template <Wide type, bool anyRule>
struct Encoder {
  uint32_t word;
  ScaleRule rule;
  float largest;
  uint32_t carry;
  int maxExponent;
  bool stochastic;
  Scaler<type, anyRule> scaler;

  __device__ explicit Encoder(const QuantizeMxParams& p)
      : word(p.word),
        rule(p.rule),
        largest(decode(maxCode(p.word), p.word)),
        carry(carryOf(p.rule, p.word)),
        maxExponent(static_cast<int>(maxCode(p.word) >> mantissaBits(p.word)) - exponentBias(p.word)),
        stochastic(p.stochastic),
        scaler{p.scaling} {}

  // The scale of a block. `amax` is the bit pattern of the block's amax.
  __device__ E8m0Scale scale(uint32_t amax) const {
    if constexpr (anyRule) {
      if (rule == ScaleRule::kE8m0EvenShort) return e8m0EvenShort(floatOf(amax), carry, maxExponent, scaler.scaling);
      const uint32_t code = codeOf(floatOf(amax));
      if (rule == ScaleRule::kE8m0UpNormal && code == 0) return {0, 0.0f};
      return {code, e8m0Multiplier(code, scaler.scaling)};
    } else {
      const uint32_t code = codeOf(floatOf(amax));
      return {code, e8m0Reciprocal(code)};
    }
  }

  __device__ uint32_t codeOf(float amax) const {
    if constexpr (anyRule) {
      if (rule == ScaleRule::kE8m0UpLog2) return e8m0UpLog2(amax / largest);
      if (rule == ScaleRule::kE8m0UpLeast) return e8m0UpLeast(amax, largest);
      if (rule == ScaleRule::kE8m0UpNormal) return e8m0UpNormal(amax / largest);
      if (rule == ScaleRule::kE8m0FloorLog2) return e8m0FloorLog2(amax, maxExponent);
    }
    if (rule == ScaleRule::kE8m0Up) return e8m0Up(amax * (1 / largest));
    if (rule == ScaleRule::kE8m0UpQuotient) return e8m0Up(amax / largest);
    return e8m0Exponent(amax, carry, maxExponent);
  }

  // Encodes an element of a block with this multiplier. Only stochastic rounding reads `random`.
  __device__ uint32_t operator()(float value, float multiplier, uint32_t random) const {
    float x = scaler(value, multiplier);
    if constexpr (anyRule) x = settled(x, decode(1, word) * 0.5f, scaler.scaling);
    const Rounding rounding = stochastic ? Rounding::kStochastic : Rounding::kTiesToEven;
    return encode(x, word, rounding, Overflow::kSaturate, random);
  }
};

// The random bits of an element. `index` is its index in copy 0 (rowwise) or 1 (columnwise).
__device__ inline uint32_t randomOf(const QuantizeMxParams& p, int64_t row, int64_t column, int64_t index,
                                    uint32_t copy) {
  if (!p.stochastic) return 0;
  const uint32_t* words = copy == 0 ? p.rowwiseWords : p.columnwiseWords;
  if (words != nullptr) return words[index];
  uint64_t position = static_cast<uint64_t>(index);
  if (p.part.width > 0) {
    const bool transposed = copy == 1 && storageBits(p.word) == 4;
    position = indexInWhole(p.part, static_cast<uint64_t>(row), static_cast<uint64_t>(column), transposed);
  }
  return elementBits(philox(position >> 4, copy, p.random), static_cast<int>(position & 15));
}

// A warp quantizes a 32x32 block, with one column per lane, for either copy.
template <Wide type, bool anyRule>
__global__ void __launch_bounds__(kThreads) quantizeAny(const QuantizeMxParams p) {
  if (isNoop(p.noop)) return;
  const int64_t tile = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int64_t blockColumns = p.columns / kBlock;
  if (tile >= blockColumns * (p.rows / kBlock)) return;
  const int lane = threadIdx.x % 32;
  const int64_t firstRow = tile / blockColumns * kBlock;
  const int64_t block = tile % blockColumns;
  const int64_t column = block * kBlock + lane;
  using Wide_ = WideOf<type>;
  const auto* x = static_cast<const typename Wide_::Storage*>(p.x) + firstRow * p.columns + column;
  const Encoder<type, anyRule> encoder(p);
  const bool packed = storageBits(p.word) == 4;

  uint32_t largest = 0;
  for (int r = 0; r < kBlock; ++r) largest = max(largest, magnitudeOf(Wide_::load(x[r * p.columns])));
  if (p.square) largest = __reduce_max_sync(kFullMask, largest);
  const E8m0Scale columnScale = encoder.scale(largest);
  if (p.columnwise.codes != nullptr) {
    const int64_t offset = scaleOffset(p.columnwise.scales, column, firstRow / kBlock);
    static_cast<uint8_t*>(p.columnwise.scales.data)[offset] = static_cast<uint8_t>(columnScale.code);
  }
  uint32_t previous = 0;
  for (int r = 0; r < kBlock; ++r) {
    const int64_t row = firstRow + r;
    const float value = Wide_::load(x[r * p.columns]);
    if (p.rowwise.codes != nullptr) {
      const E8m0Scale rowScale =
          p.square ? columnScale : encoder.scale(__reduce_max_sync(kFullMask, magnitudeOf(value)));
      const int64_t index = row * p.columns + column;
      const uint32_t code = encoder(value, rowScale.multiplier, randomOf(p, row, column, index, 0));
      const uint32_t next = __shfl_down_sync(kFullMask, code, 1);
      if (!packed) p.rowwise.codes[index] = static_cast<uint8_t>(code);
      if (packed && lane % 2 == 0) p.rowwise.codes[index / 2] = static_cast<uint8_t>(code | next << 4);
      const int64_t offset = scaleOffset(p.rowwise.scales, row, block);
      if (lane == 0) static_cast<uint8_t*>(p.rowwise.scales.data)[offset] = static_cast<uint8_t>(rowScale.code);
    }
    if (p.columnwise.codes != nullptr) {
      const int64_t index = packed ? column * p.rows + row : row * p.columns + column;
      const uint32_t code = encoder(value, columnScale.multiplier, randomOf(p, row, column, index, 1));
      if (!packed) p.columnwise.codes[index] = static_cast<uint8_t>(code);
      if (packed && r % 2 == 1) p.columnwise.codes[index / 2] = static_cast<uint8_t>(previous | code << 4);
      previous = code;
    }
  }
}

}  // namespace mxany

}  // namespace lockstep
