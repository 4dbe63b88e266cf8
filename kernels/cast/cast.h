#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/random.cuh"

namespace lockstep {

// out[i] = encode(x[i] * scale).
struct EncodeParams {
  const void* x;
  Wide xType;
  void* out;
  // The format word of the codes, which are packed as storageBits(word) says.
  uint32_t word;
  Rounding rounding;
  Overflow overflow;
  // The source of random bits for stochastic rounding, which reads those of copy 0 (kernels/core/random.cuh).
  RandomSource random;
  // If not null, element i is rounded by words[i] instead (castBits of kernels/core/random.cuh).
  const uint32_t* words;
  float scale;
  int64_t count;
};

// out[i] = decode(x[i]) * scale, rounded to the type of `out`.
struct DecodeParams {
  const void* x;
  uint32_t word;
  void* out;
  Wide outType;
  // A pointer to device memory; null means a scale of 1.
  const float* scale;
  int64_t count;
};

cudaError_t launchEncode(const EncodeParams& params, cudaStream_t stream);
cudaError_t launchDecode(const DecodeParams& params, cudaStream_t stream);

}  // namespace lockstep
