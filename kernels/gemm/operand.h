// Staging: converts an operand of a matrix product to the form that its datapath multiplies. Staged lines lie along K,
// are rounded, and are padded with zeros.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>

#include "kernels/core/contract.gen.h"
#include "kernels/core/format.h"

namespace lockstep {

// Block scales along K. Element (line, k) has the scale at index (line >> lineShift) * lineStride + k / length *
// blockStride.
struct GemmBlockScales {
  // Null if there are no scales.
  const void* data = nullptr;
  // The format word of scales of one byte, whose sign is ignored; 0 means f32.
  uint32_t word = 0;
  uint32_t lineShift = 0;
  uint32_t length = 1;
  int64_t lineStride = 0;
  int64_t blockStride = 0;
};

struct GemmOperandParams {
  // The number of operands in a batch. They are contiguous both in the source and in the output.
  int64_t batch = 1;
  // Codes in the format of format word `word` (0 is f32): [lines, depth] or, if transposed, [depth, lines]. Rows start
  // at whole bytes.
  const void* data = nullptr;
  uint32_t word = 0;
  bool transposed = false;
  int64_t lines = 0;
  // Below 2^31.
  int64_t depth = 0;
  // Only a batch of 1 may have scales.
  GemmBlockScales scales;
  // kPlain copies the codes unchanged. kBf16 rounds value * scale to f32, then to bf16 (nearest even, overflow to infinity).
  // kTf32 rounds to tf32 in the same way, stored as f32. kScaled rounds value * scale to f32.
  Staging staging = Staging::kPlain;
  // outLines lines of outPitch bytes, zero beyond `lines` and `depth`. The pitch is a multiple of 16.
  void* out = nullptr;
  int64_t outLines = 0;
  int64_t outPitch = 0;
};

// Bits per element of the source operand (operandWidth) and of the staged operand (stagedWidth).
__host__ __device__ constexpr uint32_t operandWidth(uint32_t word) { return word == 0 ? 32 : storageBits(word); }
__host__ __device__ constexpr uint32_t stagedWidth(Staging staging, uint32_t word) {
  return staging == Staging::kPlain ? operandWidth(word) : staging == Staging::kBf16 ? 16 : 32;
}

cudaError_t launchGemmOperand(const GemmOperandParams& p, cudaStream_t stream);

// Fast kernels for operands stored along K (Lines) and across K (Across). They return nothing if they do not support
// the operand.
std::optional<cudaError_t> launchGemmOperandLines(const GemmOperandParams& p, cudaStream_t stream);
std::optional<cudaError_t> launchGemmOperandAcross(const GemmOperandParams& p, cudaStream_t stream);

}  // namespace lockstep
