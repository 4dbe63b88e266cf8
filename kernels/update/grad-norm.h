// The 2-norm of all gradients, and the factor that clips the gradients to a maximum norm (docs/numerics.md §9.3).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"

namespace lockstep {

// The number of elements in a piece. One warp sums the squares of a piece.
constexpr int64_t kSquarePiece = 4096;

struct SquareSumParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  int64_t count = 0;
  // Workspace: one f32 for each piece (kSquarePiece elements) of x.
  float* workspace = nullptr;
  // The result: one f32.
  float* out = nullptr;
};

struct PieceSumsParams {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  int64_t count = 0;
  // The result: one f32 per piece of x.
  float* sums = nullptr;
};

struct SumPiecesParams {
  const float* sums = nullptr;
  int64_t count = 0;
  // The result: one f32.
  float* out = nullptr;
};

struct ClipFactorParams {
  const float* sums = nullptr;
  int64_t count = 0;
  float maxNorm = 0;
  // Results: one f32 each.
  float* norm = nullptr;
  float* factor = nullptr;
};

cudaError_t launchSquareSum(const SquareSumParams& p, cudaStream_t stream);
cudaError_t launchPieceSums(const PieceSumsParams& p, cudaStream_t stream);
cudaError_t launchSumPieces(const SumPiecesParams& p, cudaStream_t stream);
cudaError_t launchClipFactor(const ClipFactorParams& p, cudaStream_t stream);

}  // namespace lockstep
