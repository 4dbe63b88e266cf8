// The number of elements of a matrix whose elements may share bytes.
#pragma once

#include "native/core/call.h"

namespace lockstep {

// Throws Failure ARGUMENT if elements of `bits` bits share a byte and the number of rows or columns is odd.
inline uint64_t packedElements(int64_t rows, int64_t columns, int32_t bits) {
  if (bits < 8 && (rows % 2 != 0 || columns % 2 != 0)) {
    throw Failure{"ARGUMENT", "rows or columns is odd, but two elements share a byte"};
  }
  return product({static_cast<uint64_t>(rows), static_cast<uint64_t>(columns)});
}

}  // namespace lockstep
