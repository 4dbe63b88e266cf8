// Reading the arguments that say where random words come from.
#pragma once

#include "kernels/core/random.cuh"
#include "native/core/call.h"

namespace lockstep {

// "seedLow", "seedHigh", "offsetLow", "offsetHigh": randomWords of src/backends/cuda/lowering.ts.
inline RandomSource readRandom(const Call& call) {
  return {call.word("seedLow"), call.word("seedHigh"), call.word("offsetLow"), call.word("offsetHigh")};
}

}  // namespace lockstep
