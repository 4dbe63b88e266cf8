// The sums that column sums form of the chunks of rows, before they add them.
#pragma once

#include "kernels/rows/column-sum.h"
#include "native/core/call.h"

namespace lockstep {

// How many there are for `results` results of [rows, columns] elements: floats of the workspace.
inline uint64_t chunkSums(uint64_t rows, uint64_t columns, uint64_t results) {
  const auto chunks = static_cast<uint64_t>(chunksOf(static_cast<int64_t>(rows)));
  return product({chunks, columns, results});
}

}  // namespace lockstep
