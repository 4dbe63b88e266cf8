// What the norms and their gradients share: what a device has room for.
#pragma once

#include "kernels/device/elements.cuh"
#include "kernels/device/occupancy.cuh"
#include "kernels/device/reduce.cuh"

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

}  // namespace lockstep
