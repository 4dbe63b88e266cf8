#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/random.cuh"

namespace lockstep {

// Bit patterns per call, and the number of calls that cover all 2^32.
constexpr uint32_t kSweepPatterns = 1u << 24;
constexpr uint32_t kSweepChunks = 256;

// The digest of the codes of kSweepPatterns f32 bit patterns, starting at chunk * kSweepPatterns (assembly/cast/sweep.ts). It
// consists of two sums modulo 2^32 over the patterns i, of (code(i) + 1) * (mix(i, k) | 1), where mix is x ^= x >> 16, x *= k,
// x ^= x >> 15. NaN counts as code 0xffff in formats stored in 16 bits. Stochastic rounding draws for element i of copy 0.
struct SweepParams {
  uint32_t word;
  Rounding rounding;
  Overflow overflow;
  RandomSource random;
  uint32_t chunk;
  // Receives the two sums.
  uint32_t* out;
};

cudaError_t launchSweep(const SweepParams& params, cudaStream_t stream);

}  // namespace lockstep
