#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/random.cuh"

namespace lockstep {

// Bit patterns of one call, and the calls that make all 2^32.
constexpr uint32_t kSweepPatterns = 1u << 24;
constexpr uint32_t kSweepChunks = 256;

// The digest of the codes of kSweepPatterns f32 bit patterns from chunk * kSweepPatterns on (assembly/cast/sweep.ts): two sums
// modulo 2^32 over the patterns i, of (code(i) + 1) * (mix(i, k) | 1), mix being x ^= x >> 16, x *= k, x ^= x >> 15. A NaN
// counts as code 0xffff in formats stored in 16 bits. Random words are those of element i, copy 0.
struct SweepParams {
  uint32_t word;
  Rounding rounding;
  Overflow overflow;
  RandomSource random;
  uint32_t chunk;
  // Two numbers.
  uint32_t* out;
};

cudaError_t launchSweep(const SweepParams& params, cudaStream_t stream);

}  // namespace lockstep
