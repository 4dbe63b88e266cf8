// The source of the random bits of stochastic rounding. A part of a larger matrix uses the bits that its elements have in the
// larger one (docs/numerics.md, choice 6).
#pragma once

#include "kernels/quantize/nvfp4/nvfp4.h"

namespace lockstep {

// The rounding of a kernel: to nearest even, or stochastic. The random bits belong to the matrix itself (kOwn), to the larger
// matrix that contains it (kPart), or are passed by the caller (kGiven).
enum class Fp4Rounding { kNearest, kOwn, kPart, kGiven };

// Calls `body` with a tag whose constant `value` is the rounding of a quantization.
template <Fp4Rounding rounding>
struct RoundingTag {
  static constexpr Fp4Rounding value = rounding;
};
template <typename Body>
void withRounding(const QuantizeNvfp4Params& p, Body body) {
  if (!p.stochastic) return body(RoundingTag<Fp4Rounding::kNearest>{});
  if (p.rowwise.words != nullptr || p.columnwise.words != nullptr) return body(RoundingTag<Fp4Rounding::kGiven>{});
  if (p.part.width > 0) return body(RoundingTag<Fp4Rounding::kPart>{});
  return body(RoundingTag<Fp4Rounding::kOwn>{});
}

// Returns the draw number in the larger matrix of block `block` of copy 0 (rowwise) or 1 (columnwise) of the [rows, columns]
// matrix `part`. Blocks have 16 elements and are counted line by line. All sizes and positions are multiples of 16, so that the
// 16 elements share a draw in the larger matrix too.
__host__ __device__ inline int64_t drawInWhole(const MatrixPart& part, int64_t rows, int64_t columns, int copy,
                                               int64_t block) {
  constexpr uint64_t kShared = 16;
  const uint64_t blocks = static_cast<uint64_t>(copy == 0 ? columns : rows) / kShared;
  const uint64_t line = static_cast<uint64_t>(block) / blocks;
  const uint64_t first = (static_cast<uint64_t>(block) - line * blocks) * kShared;
  const bool transposed = copy == 1;
  const uint64_t index = indexInWhole(part, transposed ? first : line, transposed ? line : first, transposed);
  return static_cast<int64_t>(index / kShared);
}

}  // namespace lockstep
