// Reads the arguments that describe a source of random bits.
#pragma once

#include "kernels/core/matrix-part.h"
#include "kernels/core/random.cuh"
#include "native/core/call.h"

namespace lockstep {

// Reads "random", which randomWords of src/backends/cuda/lowering.ts writes.
template <typename Declared>
RandomSource readRandom(const Call<Declared>& call) {
  return {call.word("random.seedLow"), call.word("random.seedHigh"), call.word("random.offsetLow"),
          call.word("random.offsetHigh")};
}

// Reads "part", the position of a matrix in a larger one, if the call has it.
template <typename Declared>
MatrixPart readPart(const Call<Declared>& call) {
  MatrixPart part;
  if (!call.has("part.width")) return part;
  part.rows = call.count("part.rows");
  part.columns = call.count("part.columns");
  part.row = call.count("part.row");
  part.column = call.count("part.column");
  part.width = call.count("part.width");
  part.stride = call.count("part.stride");
  const uint64_t all = part.rows | part.columns | part.row | part.column | part.width | part.stride;
  if (part.width == 0 || all % 16 != 0) throw Failure{"ARGUMENT", "part has a size that is no multiple of 16"};
  return part;
}

}  // namespace lockstep
