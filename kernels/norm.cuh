// What the norms and their gradients share: rows are copied to shared memory while those before them are worked.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/elements.cuh"
#include "kernels/occupancy.cuh"
#include "kernels/reduce.cuh"

namespace lockstep {

constexpr int kAnyType = -1;

// Shared memory that a block's rows do not get of what there is: what its kernel declares, and the driver's own.
constexpr int64_t kReservedBytes = 1024;

// `known` where a kernel was compiled for one type, else the type given.
template <int known>
__device__ Wide typeOr(Wide given) {
  return known == kAnyType ? given : static_cast<Wide>(known);
}

__host__ __device__ constexpr int64_t elementBytes(Wide type) { return type == Wide::kF32 ? 4 : 2; }

// Starts to copy a pack of a row of `matrix` to its place in `stage`.
template <Wide type>
__device__ void fetch(Bytes16* stage, const void* matrix, int64_t row, int packs, int pack) {
  constexpr int pieces = type == Wide::kF32 ? 2 : 1;
  const Bytes16* source = static_cast<const Bytes16*>(matrix) + row * packs * pieces;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    __pipeline_memcpy_async(stage + pack * pieces + i, source + pack * pieces + i, sizeof(Bytes16));
  }
}

// Waits until the block sees what its threads fetched.
__device__ inline void awaitFetched() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
}

// The number of this warp in its block, counted differently by the blocks that share a multiprocessor, which are the
// device's number of those apart: warps of one number share a scheduler.
__device__ inline int turnOf(int multiprocessors) {
  const unsigned warps = blockDim.x / kLanes;
  return static_cast<int>((threadIdx.x / kLanes + 2 * (blockIdx.x / multiprocessors)) % warps);
}

}  // namespace lockstep
