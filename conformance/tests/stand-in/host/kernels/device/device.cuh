// kernels/device/device.cuh for kernels that run on a CPU: conversions of wide types without instructions of a GPU.
#pragma once

#include <cmath>

#include "conformance/tests/stand-in/warp.h"
#include "kernels/core/minifloat.cuh"

namespace lockstep {

constexpr uint32_t kFullMask = 0xffffffffu;

constexpr int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The bits of f32 rounded to a format: to nearest even, overflow to infinity.
inline uint16_t roundedBits(float value, uint32_t word) {
  return static_cast<uint16_t>(encode(value, word, Rounding::kTiesToEven, Overflow::kNonfinite, 0));
}

template <Wide type>
struct WideOf;
template <>
struct WideOf<Wide::kF32> {
  using Storage = float;
  static float load(Storage x) { return x; }
  static Storage store(float x) { return x; }
};
template <>
struct WideOf<Wide::kBf16> {
  using Storage = uint16_t;
  static float load(Storage x) { return floatOf(static_cast<uint32_t>(x) << 16); }
  static Storage store(float x) { return roundedBits(x, format::kBf16); }
};
template <>
struct WideOf<Wide::kF16> {
  using Storage = uint16_t;
  static float load(Storage x) { return decode(x, format::kF16); }
  static Storage store(float x) { return roundedBits(x, format::kF16); }
};

template <Wide type>
float rounded(float value) {
  return WideOf<type>::load(WideOf<type>::store(value));
}

template <Wide type>
struct WideTag {
  static constexpr Wide value = type;
};
template <typename Body>
auto withWide(Wide type, Body body) {
  switch (type) {
    case Wide::kBf16:
      return body(WideTag<Wide::kBf16>{});
    case Wide::kF16:
      return body(WideTag<Wide::kF16>{});
    default:
      return body(WideTag<Wide::kF32>{});
  }
}

}  // namespace lockstep
