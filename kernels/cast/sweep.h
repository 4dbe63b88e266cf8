#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/random.cuh"

namespace lockstep {

// The number of bit patterns that one call encodes.
constexpr uint32_t kSweepPatterns = 1u << 24;
// The number of calls that cover all 2^32 bit patterns.
constexpr uint32_t kSweepChunks = 256;

// Computes the digest of the codes of kSweepPatterns f32 bit patterns, starting at chunk * kSweepPatterns
// (assembly/cast/sweep.ts). The digest is two sums modulo 2^32, one for each of two constants k. A sum adds (code(i) +
// 1) * (mix(i, k) | 1) over the patterns i, where mix is x ^= x >> 16, x *= k, x ^= x >> 15. NaN counts as code 0xffff
// in formats stored in 16 bits. Stochastic rounding takes the random bits of element i of copy 0.
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
