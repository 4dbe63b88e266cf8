// The formats of the result of a matrix product.
#pragma once

#include <cstdint>

#include "kernels/core/formats.gen.h"

namespace lockstep {

// Bits per element of a result in the format of format word `word` (0 is f32). Returns 0 if a result cannot have the
// format.
constexpr uint32_t gemmResultWidth(uint32_t word) {
  if (word == 0) return 32;
  if (word == format::kBf16 || word == format::kF16) return 16;
  return word == format::kE4m3 || word == format::kE5m2 ? 8 : 0;
}

}  // namespace lockstep
