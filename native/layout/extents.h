// The numbers of elements that strided arrays span, from the first to the last element. Each function throws Failure ARGUMENT
// where a product of sizes exceeds 2^53, so that no sum overflows.
#pragma once

#include <cstdint>

#include "native/core/call.h"

namespace lockstep {

// `batch` * `lines` lines of `length` elements. Consecutive lines start `pitch` elements apart.
inline uint64_t stridedElements(int64_t batch, int64_t lines, int64_t length, int64_t pitch) {
  const uint64_t all = product({static_cast<uint64_t>(batch), static_cast<uint64_t>(lines)});
  return all == 0 ? 0 : product({all - 1, static_cast<uint64_t>(pitch)}) + static_cast<uint64_t>(length);
}

// As above, for `rows` lines. `skipped` further lines follow after every `itemRows` lines, except after the last.
inline uint64_t sumElements(int64_t rows, int64_t itemRows, int64_t skipped, int64_t columns, int64_t pitch) {
  if (rows == 0) return 0;
  const uint64_t items = static_cast<uint64_t>(rows / itemRows);
  const uint64_t lines = product({items - 1, static_cast<uint64_t>(skipped)}) + static_cast<uint64_t>(rows);
  return stridedElements(1, static_cast<int64_t>(lines), columns, pitch);
}

// The scales of blocks of 2^lineShift lines and `length` elements along K.
inline uint64_t blockScaleElements(int64_t lines, int64_t depth, uint32_t lineShift, uint32_t length,
                                   int64_t lineStride, int64_t blockStride) {
  if (lines == 0 || depth == 0) return 0;
  return product({static_cast<uint64_t>(lines - 1) >> lineShift, static_cast<uint64_t>(lineStride)}) +
         product({static_cast<uint64_t>(depth - 1) / length, static_cast<uint64_t>(blockStride)}) + 1;
}

// Bytes of a row of `count` elements of `bits` bits that starts at a whole byte.
inline uint64_t rowBytes(int64_t count, uint32_t bits) { return bytesOf(static_cast<uint64_t>(count), bits); }

}  // namespace lockstep
