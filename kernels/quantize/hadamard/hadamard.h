// The random Hadamard transform (docs/numerics.md 5.5).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

struct HadamardParams {
  // bf16 [rows, columns], rows a multiple of 16, and [columns, rows].
  const uint16_t* x = nullptr;
  uint16_t* out = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  // Bit i negates row i of each 16.
  uint32_t signs = 0;
};

// Fails with cudaErrorInvalidValue where rows are no multiple of 16.
cudaError_t launchHadamard(const HadamardParams& params, cudaStream_t stream);

}  // namespace lockstep
