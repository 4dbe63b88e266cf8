// The pieces in which the squares of a tensor's elements are summed (docs/numerics.md 9.3).
#pragma once

#include <cstdint>

namespace lockstep {

// The number of elements in a piece. One warp sums the squares of a piece.
constexpr int64_t kSquarePiece = 4096;

// The number of pieces of `count` elements.
constexpr int64_t squarePieces(int64_t count) { return count / kSquarePiece + (count % kSquarePiece != 0); }

}  // namespace lockstep
