// Operands of a matrix product as its datapath multiplies them: dense lines along K, rounded, padded with zeros.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>

#include "kernels/core/contract.gen.h"
#include "kernels/core/format.h"

namespace lockstep {

// Scales of blocks along K: element (line, k) has number (line >> lineShift) * lineStride + k / length * blockStride.
struct GemmBlockScales {
  // Null: no scales.
  const void* data = nullptr;
  // Format of a scale, a byte each, whose sign is ignored; 0: f32.
  uint32_t word = 0;
  uint32_t lineShift = 0;
  uint32_t length = 1;
  int64_t lineStride = 0;
  int64_t blockStride = 0;
};

struct GemmOperandParams {
  // Items that follow on one another, in both places.
  int64_t batch = 1;
  // Codes of the format `word`, 0 for f32: [lines, depth] or, transposed, [depth, lines]. Rows start on whole bytes.
  const void* data = nullptr;
  uint32_t word = 0;
  bool transposed = false;
  int64_t lines = 0;
  // Below 2^31.
  int64_t depth = 0;
  // Of one item alone.
  GemmBlockScales scales;
  // kPlain: the codes as they are. kBf16: value * scale rounded to f32, then to bf16, nearest even, overflow to
  // infinity. kTf32: the same rounded to tf32, as f32. kScaled: value * scale rounded to f32.
  Staging staging = Staging::kPlain;
  // [outLines, outPitch bytes], zero beyond lines and depth; the pitch is a multiple of 16.
  void* out = nullptr;
  int64_t outLines = 0;
  int64_t outPitch = 0;
};

// Bits of an element of an operand, and of the staged operand.
__host__ __device__ constexpr uint32_t operandWidth(uint32_t word) { return word == 0 ? 32 : storageBits(word); }
__host__ __device__ constexpr uint32_t stagedWidth(Staging staging, uint32_t word) {
  return staging == Staging::kPlain ? operandWidth(word) : staging == Staging::kBf16 ? 16 : 32;
}

cudaError_t launchGemmOperand(const GemmOperandParams& p, cudaStream_t stream);

// Fast kernels for operands that lie along K, and across it; nothing where they have none.
std::optional<cudaError_t> launchGemmOperandLines(const GemmOperandParams& p, cudaStream_t stream);
std::optional<cudaError_t> launchGemmOperandAcross(const GemmOperandParams& p, cudaStream_t stream);

}  // namespace lockstep
