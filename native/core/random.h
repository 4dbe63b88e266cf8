// Reads the arguments that describe a source of random bits.
#pragma once

#include "kernels/core/random.cuh"
#include "native/core/call.h"

namespace lockstep {

// Reads "random", which randomWords of src/backends/cuda/lowering.ts writes.
template <typename Declared>
RandomSource readRandom(const Call<Declared>& call) {
  return {call.word("random.seedLow"), call.word("random.seedHigh"), call.word("random.offsetLow"),
          call.word("random.offsetHigh")};
}

}  // namespace lockstep
