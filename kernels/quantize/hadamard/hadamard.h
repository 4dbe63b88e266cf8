// The random Hadamard transform (docs/numerics.md 5.5).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

struct HadamardParams {
  // bf16 [rows, columns]; `rows` is a multiple of 16. The output is [columns, rows].
  const uint16_t* x = nullptr;
  uint16_t* out = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  // Bit i negates row i of each 16 rows.
  uint32_t signs = 0;
};

// Returns cudaErrorInvalidValue if rows is not a multiple of 16.
cudaError_t launchHadamard(const HadamardParams& params, cudaStream_t stream);

}  // namespace lockstep
