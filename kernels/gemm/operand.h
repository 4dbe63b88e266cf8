// Staging: converts an operand of a matrix product to the form that its datapath multiplies. Staged lines lie along K,
// are rounded, and are padded with zeros.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>

#include "kernels/core/format.h"
#include "kernels/gemm/calls.gen.h"

namespace lockstep {

// Bits per element of the source operand (operandWidth) and of the staged operand (stagedWidth).
__host__ __device__ constexpr uint32_t operandWidth(uint32_t word) { return word == 0 ? 32 : storageBits(word); }
__host__ __device__ constexpr uint32_t stagedWidth(Staging staging, uint32_t word) {
  return staging == Staging::kPlain ? operandWidth(word) : staging == Staging::kBf16 ? 16 : 32;
}

// Fast kernels for operands stored along K (Lines) and across K (Across). They return nothing if they do not support
// the operand.
std::optional<cudaError_t> launchGemmOperandLines(const GemmOperandParams& p, cudaStream_t stream);
std::optional<cudaError_t> launchGemmOperandAcross(const GemmOperandParams& p, cudaStream_t stream);

}  // namespace lockstep
