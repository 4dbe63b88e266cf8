// The workspace of column sums (kernels/rows/column-sum.h), which holds the sums of chunks.
#pragma once

#include "kernels/rows/column-sum.h"
#include "native/core/call.h"

namespace lockstep {

// The number of f32 chunk sums for `results` results of [rows, columns] elements.
inline uint64_t chunkSums(uint64_t rows, uint64_t columns, uint64_t results) {
  const auto chunks = static_cast<uint64_t>(chunksOf(static_cast<int64_t>(rows)));
  return product({chunks, columns, results});
}

}  // namespace lockstep
