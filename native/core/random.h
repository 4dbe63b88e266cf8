// Reading the arguments that say where random words come from.
#pragma once

#include "kernels/core/random.cuh"
#include "native/core/call.h"

namespace lockstep {

// "random": randomWords of src/backends/cuda/lowering.ts.
template <typename Declared>
RandomSource readRandom(const Call<Declared>& call) {
  return {call.word("random.seedLow"), call.word("random.seedHigh"), call.word("random.offsetLow"),
          call.word("random.offsetHigh")};
}

}  // namespace lockstep
