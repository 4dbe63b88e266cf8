// The size of the workspace of column sums (kernels/rows/column-sum.h). A chunk is a fixed number of consecutive rows.
#pragma once

#include "kernels/rows/column-sum.h"
#include "native/core/call.h"

namespace lockstep {

// The number of f32 sums of chunks, if each of `results` matrices of [rows, columns] elements is summed along its
// columns.
inline uint64_t chunkSums(uint64_t rows, uint64_t columns, uint64_t results) {
  const auto chunks = static_cast<uint64_t>(chunksOf(static_cast<int64_t>(rows)));
  return product({chunks, columns, results});
}

}  // namespace lockstep
